//! A VF comes back: whatever has become of its container, and never from somebody else.

use std::{path::Path, time::Instant};

use penstock_host::{
    InterfaceReport, NetlinkError,
    netlink::{LinkSettings, wait_for_interface},
};
use penstock_model::{InterfaceName, Mac, Mtu, VfAttribute};

use crate::{
    config::{BoundDriver, LogLevel},
    document::CniError,
    journal::{BeforeInterface, Record, Step},
    place::Container,
    plugin::Work,
    vf::{self, Attributes, INTERFACE, Vf},
};

impl Work<'_> {
    /// Takes back the VF of a record whose container does not have it any more, or never had it. The caller has its lock.
    ///
    /// # Errors
    ///
    /// When the container has it, or it cannot be taken back.
    pub(crate) fn reclaim(&mut self, record: Record) -> Result<(), CniError> {
        let root = self.root().clone();
        let has = |container: &mut Container| match (&record.driver, &record.before.interface) {
            (Some(_), _) | (None, None) => Ok(record.step == Step::Attached),
            (None, Some(_)) => Ok::<bool, CniError>(container.interface_of(&root, &record)?.is_some()),
        };
        // An ADD that was killed leaves it half way: what it had done so far is nobody's.
        let whole = record.step == Step::Attached;
        if whole && record.netns.is_none() {
            // Bound before there is a namespace: only who has asked for it knows when it ends.
            let text = format!("{} is bound for {}", record.function, record.container);
            return Err(CniError::new(CniError::TAKEN, text));
        }
        if whole
            && let Some(mut container) = Container::of(&record)
            && has(&mut container)?
        {
            let text =
                format!("container {} has {} as {}", record.container, record.function, record.interface);
            return Err(CniError::new(CniError::TAKEN, text));
        }
        let what = format!(
            "{} comes back from container {}, which does not have it",
            record.function, record.container
        );
        self.log.say(LogLevel::Info, what);
        self.release(record)
    }

    /// Takes a VF back from the container of its record and puts it into the state that it was found in. The caller has its lock.
    ///
    /// # Errors
    ///
    /// When something could not be put back. The record stays then, and the next call that meets it tries again.
    pub(crate) fn release(&mut self, mut record: Record) -> Result<(), CniError> {
        self.step(&mut record, Step::Releasing)?;
        let root = self.root().clone();
        let vf = match Vf::at(&root, record.function) {
            Ok(vf) => vf,
            // The number of VFs was lowered: there is nothing to put back.
            Err(error) if error.code == CniError::NO_VF => return self.journal.remove(record.function),
            Err(error) => return Err(error),
        };
        let driver = vf.function.driver()?;
        let ours = record.driver.map(BoundDriver::name);
        if ours.is_some() && (driver.is_none() || driver.as_deref() == ours || driver == record.before.driver)
        {
            self.unbind(&vf, &record)?;
        } else if let (None, Some(before)) = (&driver, &record.before.driver) {
            // A call was killed while it bound the driver anew.
            (self.plugin.set_driver)(&vf.function, Some(before))?;
        } else if driver != record.before.driver {
            self.log.say(LogLevel::Warning, format!("{} has another driver now and is left alone", vf.bdf()));
            return self.journal.remove(record.function);
        }
        match record.before.interface.clone() {
            None => {
                self.is_let_go(&vf)?;
                self.restore_attributes(&vf, &record, true)?;
            }
            Some(before) => {
                let report = match record.driver {
                    Some(_) => self.interface_again(&vf, &before)?,
                    None => self.bring_home(&vf, &record, &before)?,
                };
                self.restore(&vf, &record, &before, report)?;
            }
        }
        self.journal.remove(record.function)
    }

    /// The VF's interface in the host's namespace, after it was moved there if need be.
    fn bring_home(
        &mut self,
        vf: &Vf,
        record: &Record,
        before: &BeforeInterface,
    ) -> Result<InterfaceReport, CniError> {
        let root = self.root().clone();
        let mut lives = false;
        // The runtime may know the namespace by another file than it did.
        let named = self.call.netns.as_deref().and_then(|netns| Container::open(netns).ok());
        let named = named
            .filter(|container| container.namespace.identity().is_ok_and(|of| Some(of) == record.namespace));
        if let Some(mut container) = Container::of(record).or(named) {
            lives = true;
            if let Some(report) = container.interface_of(&root, record)? {
                let kept = before.settings.as_ref().map_or(&[][..], |settings| &settings.other_names);
                self.move_home(&mut container, &report, &before.name, kept)?;
            }
        }
        if let Some(report) = vf::interface_here(&root, &mut self.netlink, &vf.function)? {
            return Ok(report);
        }
        let elsewhere = || {
            CniError::new(
                CniError::TRY_AGAIN,
                format!("the interface of {} is in neither namespace", vf.bdf()),
            )
        };
        if lives {
            return Err(elsewhere());
        }
        // The kernel takes a while to give back what was in a namespace that has ended.
        wait_for_interface(&mut self.netlink, &root, vf.bdf(), Instant::now() + INTERFACE)
            .map_err(|_| elsewhere())
    }

    /// Moves an interface to the host's namespace, under `name` if that is free there. Where something there has one of its names it loses
    /// its alternative ones but those in `kept`.
    fn move_home(
        &mut self,
        container: &mut Container,
        report: &InterfaceReport,
        name: &InterfaceName,
        kept: &[String],
    ) -> Result<(), CniError> {
        let index = report.index;
        // One that is up is brought down by the move: to ask for that before would have the kernel wait twice.
        match container.netlink.move_to(index, &self.home, name) {
            Err(error @ NetlinkError::Refused { .. }) => {
                if container.netlink.link_at(index)?.is_none() {
                    // It has moved, and could not be renamed.
                    return Ok(());
                }
                // As the kernel itself calls what it gives back.
                let mut names: Vec<InterfaceName> = format!("dev{index}").parse().into_iter().collect();
                // An alternative name that somebody here has keeps it from coming, too (`__dev_change_net_namespace`), and so does this
                // name as an alternative one of its own: whoever was in the container could have chosen them.
                let others = added(&container.netlink.link_settings(index)?.other_names, kept);
                if !others.is_empty() {
                    container.netlink.remove_names(index, &others)?;
                    names.insert(0, name.clone());
                }
                for name in names {
                    let moved = container.netlink.move_to(index, &self.home, &name);
                    if moved.is_ok() || container.netlink.link_at(index)?.is_none() {
                        return Ok(());
                    }
                }
                Err(error.into())
            }
            outcome => Ok(outcome?),
        }
    }

    /// Puts everything back, and goes on past what cannot be.
    fn restore(
        &mut self,
        vf: &Vf,
        record: &Record,
        before: &BeforeInterface,
        report: InterfaceReport,
    ) -> Result<(), CniError> {
        let root = self.root().clone();
        let mut failed = Vec::new();
        // One that comes from another namespace is down.
        if report.interface.up {
            failed.extend(self.netlink.set_up(report.index, false).err().map(CniError::from));
        }
        // A VF that is not trusted may be refused an address of its own asking: the address comes while it is trusted.
        let trusted = VfAttribute::Trust(true);
        let was_trusted = record.before.state.as_ref().is_some_and(|state| {
            state.attribute(trusted.kind()).is_some_and(|attribute| attribute == trusted)
        });
        if was_trusted {
            failed.extend(self.restore_attributes(vf, record, false).err());
        }
        let by_pf = match self.mac_at_pf(vf, record, report.interface.mac != before.mac) {
            Ok(by_pf) => by_pf,
            Err(error) => {
                failed.push(error);
                None
            }
        };
        let report = match vf::give_mac(&root, &mut self.netlink, vf, &report, before.mac, by_pf) {
            Ok(report) => report,
            Err(error) => {
                failed.push(error);
                report
            }
        };
        if !was_trusted {
            failed.extend(self.restore_attributes(vf, record, false).err());
        }
        let index = report.index;
        // Before it is renamed: its own name in the host's namespace may be among those that it was given.
        failed.extend(self.restore_settings(index, before.settings.as_ref()).err());
        if report.interface.mtu != before.mtu
            && let Some(mtu) = Mtu::new(before.mtu)
        {
            failed.extend(self.netlink.set_mtu(index, mtu).err().map(CniError::from));
        }
        if report.interface.name != before.name
            && let Err(error) = self.netlink.rename(index, &before.name)
        {
            // Somebody has the name now: the VF can be used under another.
            self.log.say(LogLevel::Warning, error.to_string());
        }
        if before.up {
            failed.extend(self.netlink.set_up(index, true).err().map(CniError::from));
        }
        match failed.into_iter().next() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// The MAC address that the PF is to have for the VF again, with the index of the PF's interface; none where nothing is to be set.
    /// `changed`: the VF's interface has another address than before.
    fn mac_at_pf(&mut self, vf: &Vf, record: &Record, changed: bool) -> Result<Option<(Mac, u32)>, CniError> {
        let Some(before) = &record.before.state else { return Ok(None) };
        let plugin = self.plugin;
        let index = Attributes::index(&plugin.root, &vf.pf, &self.netlink.links()?)?;
        let now = Attributes::through(&plugin.root, &mut self.netlink, &vf.pf, index)?.state(vf.index)?;
        let mac = vf::mac_to_restore(before, &record.wanted, now.as_ref(), changed);
        Ok(mac.map(|mac| (mac, index)))
    }

    /// Gives an interface in the host's namespace the flags, the link mode and the alternative names that it had: whoever had it may have left
    /// it promiscuous, and a promiscuous one is given to nobody. Where they are not known it has none of these flags, and keeps its names.
    fn restore_settings(&mut self, index: u32, before: Option<&LinkSettings>) -> Result<(), CniError> {
        let now = self.netlink.link_settings(index)?;
        let wanted = before.cloned().unwrap_or_else(|| now.plain());
        if now == wanted {
            return Ok(());
        }
        let removed = self.netlink.remove_names(index, &added(&now.other_names, &wanted.other_names));
        self.netlink.set_link_settings(index, &wanted)?;
        removed?;
        if let Err(error) = self.netlink.add_names(index, &added(&wanted.other_names, &now.other_names)) {
            // Somebody has the name now.
            self.log.say(LogLevel::Warning, error.to_string());
        }
        Ok(())
    }

    /// Gives back at the PF what was set there: all but the MAC address, or that too. It goes on past what is refused.
    pub(crate) fn restore_attributes(
        &mut self,
        vf: &Vf,
        record: &Record,
        mac_too: bool,
    ) -> Result<(), CniError> {
        let Some(state) = &record.before.state else { return Ok(()) };
        if !mac_too && vf::but_mac(&record.wanted).is_empty() {
            return Ok(());
        }
        let plugin = self.plugin;
        let mut attributes = Attributes::of(&plugin.root, &mut self.netlink, &vf.pf)?;
        let now = if mac_too { attributes.state(vf.index)? } else { None };
        let mac = vf::mac_to_restore(state, &record.wanted, now.as_ref(), false).filter(|_| mac_too);
        let mut refused = None;
        for attribute in vf::to_restore(state, &record.wanted, mac) {
            refused = attributes.set(vf.index, &[attribute]).err().or(refused);
        }
        refused.map_or(Ok(()), Err)
    }

    /// Takes back a VF of which nothing is written down, as after `/run` was emptied: only from the very namespace that the runtime
    /// names, and only the VF that the configuration or ADD's result names. How it was before is not known.
    pub(crate) fn take_back_unrecorded(&mut self, name: &InterfaceName) -> Result<(), CniError> {
        let previous = self.configuration.previous.as_ref().and_then(|previous| previous.of_container(name));
        let function = previous.and_then(|(_, interface)| interface.function).or(self.configuration.device);
        let (Some(function), Some(netns)) = (function, self.call.netns.clone()) else { return Ok(()) };
        if self.journal.of(function)?.is_some() {
            // Another attachment's.
            return Ok(());
        }
        let Ok(mut container) = Container::open(Path::new(&netns)) else { return Ok(()) };
        if container.namespace.identity()? == self.home.identity()? {
            return Ok(());
        }
        let _lock = self.journal.lock(function)?;
        let links = container.netlink.links()?;
        let Some(report) = penstock_host::interface_of(function, &links, self.root()) else { return Ok(()) };
        if report.interface.name != *name {
            return Ok(());
        }
        let Ok(spare) = format!("dev{}", report.index).parse() else { return Ok(()) };
        self.move_home(&mut container, &report, &spare, &[])?;
        match self.netlink.link_named(&spare)? {
            Some(here) => self.restore_settings(here.index, None),
            None => Ok(()),
        }
    }
}

/// Those of `names` that are not among `others`.
fn added(names: &[String], others: &[String]) -> Vec<String> {
    names.iter().filter(|name| !others.contains(name)).cloned().collect()
}
