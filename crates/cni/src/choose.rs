//! Which VF an ADD takes.

use penstock_host::{InterfaceReport, files::Lock};
use penstock_model::{Bdf, address::is_link_local};

use crate::{
    config::{LogLevel, Pf},
    document::CniError,
    plugin::{HeldBy, Work},
    vf::{self, Vf, listened_to},
};

impl Work<'_> {
    /// The VF that the configuration names, or a free one of the PF that it names, with its lock.
    pub(crate) fn choose(&mut self) -> Result<(Vf, Lock), CniError> {
        match (self.configuration.device, &self.configuration.pf) {
            (Some(function), _) => {
                let vf = Vf::at(self.root(), function)?;
                let lock = self.journal.lock(function)?;
                if let Some(record) = self.journal.of(function)? {
                    self.reclaim(record)?;
                }
                Ok((vf, lock))
            }
            (None, Some(pf)) => self.choose_of(&pf.clone()),
            (None, None) => Err(CniError::new(CniError::CONFIGURATION, "the configuration names no VF")
                .hint("deviceID is a VF's PCI address, which a device plugin may give; pf is a PF of which any free VF is taken")),
        }
    }

    fn choose_of(&mut self, named: &Pf) -> Result<(Vf, Lock), CniError> {
        let links = self.netlink.links_with_addresses()?;
        let vfs = self.vfs_of(named, &links)?;
        let (mut stale, mut at_work, mut later) = (Vec::new(), Vec::new(), None);
        for vf in &vfs {
            match self.journal.of(vf.bdf()) {
                // Nobody knows whose it is.
                Err(error) => self.log.say(LogLevel::Warning, error.to_string()),
                Ok(Some(_)) => stale.push(vf),
                Ok(None) if !self.is_free(vf, &links)? => {}
                Ok(None) => match self.journal.try_lock(vf.bdf())? {
                    Some(lock) if self.is_free_now(vf)? => return Ok((vf.clone(), lock)),
                    Some(_) => {}
                    None => at_work.push(vf),
                },
            }
        }
        // What killed calls and dead containers have left.
        for vf in stale {
            match self.journal.try_lock(vf.bdf())? {
                Some(lock) if self.is_left(vf, &mut later) => return Ok((vf.clone(), lock)),
                Some(_) => {}
                None => at_work.push(vf),
            }
        }
        // Another call is at each of these: it may give one back, or fail.
        for vf in at_work {
            let lock = self.journal.lock(vf.bdf())?;
            // It may have taken long.
            let links = self.netlink.links_with_addresses()?;
            self.lowers.take();
            if self.is_left(vf, &mut later) || self.is_free(vf, &links)? && self.is_free_now(vf)? {
                return Ok((vf.clone(), lock));
            }
        }
        if let Some(error) = later {
            return Err(error);
        }
        let text = format!("no VF of {named} is free: it has {} that may be taken", vfs.len());
        Err(CniError::new(CniError::TAKEN, text).hint(match self.configuration.driver {
            None => "a free VF has an interface in the host's namespace, without addresses, with nothing upon it, in no bridge and not promiscuous".to_owned(),
            Some(driver) => format!("a free VF has an interface that the host does not use, or is among `vfs`, has the driver {} and is open in no program", driver.name()),
        }))
    }

    /// The VFs of a PF that the configuration allows.
    ///
    /// # Errors
    ///
    /// When there is no such PF.
    pub(crate) fn vfs_of(&self, named: &Pf, links: &[InterfaceReport]) -> Result<Vec<Vf>, CniError> {
        let pf = vf::pf(self.root(), named, links)?;
        let allowed = |index| self.configuration.vfs.as_ref().is_none_or(|vfs| vfs.contains(&index));
        let vf = |(index, function): (_, Bdf)| Vf {
            function: penstock_host::PciFunction::new(self.root(), function),
            pf: pf.clone(),
            index,
        };
        Ok(pf.virtual_functions()?.into_iter().filter(|(index, _)| allowed(*index)).map(vf).collect())
    }

    /// Whether a VF without a record can be taken, as far as is seen without disturbing anybody: the host does nothing with it, or it is bound
    /// already as is wanted and nobody is seen to have it open, as a model's `free` leaves it.
    pub(crate) fn is_free(&self, vf: &Vf, links: &[InterfaceReport]) -> Result<bool, CniError> {
        Ok(self.is_bound_as_wanted(vf, self.plugin.opened_by)? || self.is_idle(vf, links))
    }

    /// Whether a VF is bound already, and `holders` tells of nobody. Only `vfs` says that such a VF is nobody's: a VM that is stopped has its
    /// own bound so, too.
    fn is_bound_as_wanted(&self, vf: &Vf, holders: HeldBy) -> Result<bool, CniError> {
        let Some(wanted) = self.configuration.driver.filter(|_| self.configuration.vfs.is_some()) else {
            return Ok(false);
        };
        Ok(vf.function.driver()?.as_deref() == Some(wanted.name()) && holders(&vf.function).is_empty())
    }

    /// The same of a VF whose lock the caller has got, by the kernel's word: another call may have it meanwhile, or have given it back under
    /// another name.
    fn is_free_now(&mut self, vf: &Vf) -> Result<bool, CniError> {
        Ok(self.journal.of(vf.bdf())?.is_none()
            && (self.is_bound_as_wanted(vf, self.plugin.held_by)?
                || vf::interface_here(&self.plugin.root, &mut self.netlink, &vf.function)?.is_some()))
    }

    /// Whether a VF whose lock the caller has got had a record, and could be taken back. `later`: why one could not be that may be soon.
    fn is_left(&mut self, vf: &Vf, later: &mut Option<CniError>) -> bool {
        let reclaimed = match self.journal.of(vf.bdf()) {
            Ok(Some(record)) => self.reclaim(record),
            Ok(None) => return false,
            Err(error) => Err(error),
        };
        let Err(error) = reclaimed else { return true };
        self.log.say(LogLevel::Debug, error.to_string());
        if error.code == CniError::TRY_AGAIN {
            later.get_or_insert(error);
        }
        false
    }

    /// Refuses a VF whose interface `report` is, if the host uses it.
    ///
    /// # Errors
    ///
    /// That it does.
    pub(crate) fn must_be_idle(&mut self, vf: &Vf, report: &InterfaceReport) -> Result<(), CniError> {
        let links = self.netlink.links_with_addresses()?;
        if self.is_idle(vf, &links) { Ok(()) } else { Err(used(vf, report)) }
    }

    /// Whether the host itself does nothing with a VF.
    fn is_idle(&self, vf: &Vf, links: &[InterfaceReport]) -> bool {
        let Some(report) = penstock_host::local_interface_of(vf.function.bdf(), links, self.root()) else {
            return false;
        };
        // At last, since it looks at all processes.
        !self.is_used_here(&report, links) && !self.is_lower_of_others(report.index)
    }

    /// Whether the host uses an interface, as far as is seen in its own namespace.
    pub(crate) fn is_used_here(&self, report: &InterfaceReport, links: &[InterfaceReport]) -> bool {
        let name = &report.interface.name;
        let class = self.root().path(format!("/sys/class/net/{name}"));
        let in_bridge = report.master.is_some() || penstock_host::files::exists(class.join("master"));
        // VLANs, macvlans and the like; sysfs lists those, too, of which netlink tells nothing.
        let stands =
            |link: &InterfaceReport| link.lower.as_ref().is_some_and(|lower| lower.index == report.index);
        let entries = penstock_host::files::list(class).unwrap_or_default();
        let has_uppers = links.iter().any(stands) || entries.iter().any(|entry| entry.starts_with("upper_"));
        in_bridge
            || has_uppers
            || listened_to(report)
            || report.interface.addresses.iter().any(|address| !is_link_local(address.ip()))
    }

    /// Whether something in another namespace stands on an interface, as a macvlan that is a container's; also where nobody knows.
    fn is_lower_of_others(&self, index: u32) -> bool {
        let lowers = self.lowers.get_or_init(|| (self.plugin.lowers_of_others)(&self.home).ok());
        lowers.as_ref().is_none_or(|lowers| lowers.contains(&index))
    }
}

/// That the host uses the interface of a VF.
pub(crate) fn used(vf: &Vf, report: &InterfaceReport) -> CniError {
    let text = format!("the host uses the interface {} of {}", report.interface.name, vf.bdf());
    CniError::new(CniError::TAKEN, text)
        .hint("it has an address, is in a bridge or a bond, a VLAN or another interface stands upon it, or somebody takes frames of all addresses from it")
}
