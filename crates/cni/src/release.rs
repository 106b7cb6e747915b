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
    vf::{self, Attributes, INTERFACE, Vf, listened_to},
};

/// Where the VF of a record is, before anything is done.
struct WayBack {
    vf: Vf,
    /// The driver that it has now.
    driver: Option<String>,
    /// The interface, where it is moved and was looked for.
    place: Option<InterfacePlace>,
}

enum InterfacePlace {
    Inside(Box<Container>, Box<InterfaceReport>),
    Here(Box<InterfaceReport>),
}

impl Work<'_> {
    /// Whether the container of a record has the VF: it was given as a whole, and the container lives and did not lose it.
    ///
    /// # Errors
    ///
    /// When that could not be found out.
    pub(crate) fn is_kept(&self, record: &Record) -> Result<bool, CniError> {
        if record.step != Step::Attached {
            return Ok(false);
        }
        if record.netns.is_none() {
            // Bound before there is a namespace: only who has asked for it knows when it ends.
            return Ok(true);
        }
        let Some(mut container) = Container::of(record, None)? else { return Ok(false) };
        match (&record.driver, &record.before.interface) {
            (Some(_), _) | (None, None) => Ok(true),
            (None, Some(_)) => Ok(container.interface_of(self.root(), record)?.is_some()),
        }
    }

    /// Takes back the VF of a record whose container does not have it any more, or never had it. The caller has its lock.
    ///
    /// # Errors
    ///
    /// When the container has it, or it cannot be taken back. What was whole stays whole where nothing could be taken back.
    pub(crate) fn reclaim(&mut self, mut record: Record) -> Result<(), CniError> {
        if self.is_kept(&record)? {
            let (function, container) = (record.function, &record.container);
            return Err(CniError::new(
                CniError::TAKEN,
                match record.netns {
                    None => format!("{function} is bound for {container}"),
                    Some(_) => format!("container {container} has {function} as {}", record.interface),
                },
            ));
        }
        let what = format!(
            "{} comes back from container {}, which does not have it",
            record.function, record.container
        );
        self.log.say(LogLevel::Info, what);
        // An ADD that was killed leaves it half way: what it had done so far is nobody's.
        if record.step != Step::Attached {
            return self.release(record);
        }
        let way = self.way_back(&record)?;
        self.note_release(&mut record);
        self.take_back(&record, way)
    }

    /// Takes a VF back from the container of its record and puts it into the state that it was found in, since it was said that the attachment
    /// ends. The caller has its lock.
    ///
    /// # Errors
    ///
    /// When something could not be put back. The record stays then, and the next call that meets it tries again.
    pub(crate) fn release(&mut self, mut record: Record) -> Result<(), CniError> {
        self.note_release(&mut record);
        let way = self.way_back(&record)?;
        self.take_back(&record, way)
    }

    /// Writes down that a VF is being taken back. A `/run` that is full keeps nothing from coming back: a record is removed in the end.
    fn note_release(&mut self, record: &mut Record) {
        if let Err(error) = self.step(record, Step::Releasing) {
            self.log.say(LogLevel::Warning, error.to_string());
        }
    }

    /// Looks for a record's VF, and whether it can be taken back; `None` when there is no such VF any more. Nothing is changed.
    fn way_back(&mut self, record: &Record) -> Result<Option<WayBack>, CniError> {
        let root = self.root().clone();
        let vf = match Vf::at(&root, record.function) {
            Ok(vf) => vf,
            // The number of VFs was lowered: there is nothing to put back.
            Err(error) if error.code == CniError::NO_VF => return Ok(None),
            Err(error) => return Err(error),
        };
        let driver = vf.function.driver()?;
        let mut place = None;
        if record.driver.is_some() || record.before.interface.is_none() {
            self.is_let_go(&vf)?;
        } else if driver == record.before.driver {
            place = Some(self.place_of(&vf, record)?);
        }
        Ok(Some(WayBack { vf, driver, place }))
    }

    /// Where the interface of a VF is that was moved.
    fn place_of(&mut self, vf: &Vf, record: &Record) -> Result<InterfacePlace, CniError> {
        let root = self.root().clone();
        let container = Container::of(record, self.call.netns.as_deref())?;
        let lives = container.is_some();
        if let Some(mut container) = container
            && let Some(report) = container.interface_of(&root, record)?
        {
            return Ok(InterfacePlace::Inside(Box::new(container), Box::new(report)));
        }
        if let Some(report) = vf::interface_here(&root, &mut self.netlink, &vf.function)? {
            return Ok(InterfacePlace::Here(Box::new(report)));
        }
        let elsewhere = || {
            let text = format!("the interface of {} is in neither namespace", vf.bdf());
            CniError::new(CniError::TRY_AGAIN, text)
        };
        if lives {
            return Err(elsewhere());
        }
        // The kernel takes a while to give back what was in a namespace that has ended.
        let given_back = wait_for_interface(&mut self.netlink, &root, vf.bdf(), Instant::now() + INTERFACE);
        given_back.map(|report| InterfacePlace::Here(Box::new(report))).map_err(|_| elsewhere())
    }

    /// Puts a VF into the state that it was found in.
    fn take_back(&mut self, record: &Record, way: Option<WayBack>) -> Result<(), CniError> {
        let Some(WayBack { vf, driver, mut place }) = way else {
            return self.journal.remove(record.function);
        };
        let ours = record.driver.map(BoundDriver::name);
        if ours.is_some() && (driver.is_none() || driver.as_deref() == ours || driver == record.before.driver)
        {
            self.unbind(&vf, record)?;
        } else if let (None, Some(before)) = (&driver, &record.before.driver) {
            // A call was killed while it bound the driver anew.
            (self.plugin.set_driver)(&vf.function, Some(before))?;
        } else if driver != record.before.driver {
            self.log.say(LogLevel::Warning, format!("{} has another driver now and is left alone", vf.bdf()));
            // A record that stays would keep the VF from everybody.
            if let Err(error) = self.restore_untouched(&vf, record) {
                self.log.say(LogLevel::Warning, format!("what was set for {} stays: {error}", vf.bdf()));
            }
            return self.journal.remove(record.function);
        }
        match record.before.interface.clone() {
            None => {
                self.is_let_go(&vf)?;
                self.restore_attributes(&vf, record, true)?;
            }
            Some(before) => {
                let report = match (record.driver, place.take()) {
                    (Some(_), _) => self.interface_again(&vf, &before)?,
                    (None, Some(place)) => self.bring_home(&vf, record, &before, place)?,
                    (None, None) => {
                        let place = self.place_of(&vf, record)?;
                        self.bring_home(&vf, record, &before, place)?
                    }
                };
                self.restore(&vf, record, &before, report)?;
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
        place: InterfacePlace,
    ) -> Result<InterfaceReport, CniError> {
        let (mut container, inside) = match place {
            InterfacePlace::Here(report) => return self.uncover(vf, record, before, *report),
            InterfacePlace::Inside(container, inside) => (container, inside),
        };
        let stands =
            |link: &InterfaceReport| link.lower.as_ref().is_some_and(|lower| lower.index == inside.index);
        // A record of an earlier version does not say that it was there.
        let mut record = Record { index: Some(inside.index), ..record.clone() };
        if !record.covered && container.netlink.links()?.iter().any(stands) {
            record.covered = true;
            // For who comes after this call was killed; from the host's namespace it is not seen.
            if let Err(error) = self.journal.write(&record) {
                self.log.say(LogLevel::Warning, error.to_string());
            }
        }
        let kept = before.settings.as_ref().map_or(&[][..], |settings| &settings.other_names);
        self.move_home(&mut container, &inside, &before.name, kept)?;
        let root = self.root().clone();
        let report = vf::interface_here(&root, &mut self.netlink, &vf.function)?.ok_or_else(|| {
            let text = format!("the interface of {} is in neither namespace", vf.bdf());
            CniError::new(CniError::TRY_AGAIN, text)
        })?;
        self.uncover(vf, &record, before, report)
    }

    /// The interface that came back, with nothing upon it. What a container has put upon it, a VLAN or a macvlan, stays upon it in the container's
    /// namespace or in any other (`drivers/net/macvlan.c`, `macvlan_device_event`; `net/8021q/vlan.c`, `vlan_device_event`): it would hear and send
    /// with the next one that has the VF. It goes with the interface, which its driver makes anew.
    fn uncover(
        &mut self,
        vf: &Vf,
        record: &Record,
        before: &BeforeInterface,
        report: InterfaceReport,
    ) -> Result<InterfaceReport, CniError> {
        let covered = record.covered || record.index.is_some() && self.is_covered(&report)?;
        let Some(driver) = record.before.driver.as_deref().filter(|_| covered) else { return Ok(report) };
        self.bind_anew(vf, driver)?;
        self.interface_again(vf, before)
    }

    /// Whether something stands upon an interface that came back: from here on nobody but the host can put more there.
    fn is_covered(&mut self, report: &InterfaceReport) -> Result<bool, CniError> {
        match (self.plugin.lowers_of_others)(&self.home) {
            Ok(lowers) if lowers.contains(&report.index) => return Ok(true),
            // It is newer than what was seen before.
            Ok(lowers) => self.lowers = Some(lowers).into(),
            Err(error) => self.log.say(LogLevel::Warning, penstock_host::chain(&error)),
        }
        if !listened_to(report) {
            return Ok(false);
        }
        // In a namespace that only a file holds it is not seen. Some drivers cannot be asked for one address more: what stands upon their interface
        // has it take all frames. So may its own flag, which whoever was in the container could set.
        let now = self.netlink.link_settings(report.index)?;
        self.netlink.set_link_settings(report.index, &LinkSettings { promiscuous: false, ..now })?;
        Ok(self.netlink.link_at(report.index)?.is_some_and(|report| listened_to(&report)))
    }

    fn bind_anew(&self, vf: &Vf, driver: &str) -> Result<(), CniError> {
        let what = format!("what was put upon the interface of {} ends: {driver} is bound anew", vf.bdf());
        self.log.say(LogLevel::Info, what);
        (self.plugin.set_driver)(&vf.function, None)?;
        Ok((self.plugin.set_driver)(&vf.function, Some(driver))?)
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
                let others = container.netlink.link_settings(index)?.names_beyond(kept);
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
        let index = Attributes::index(&plugin.root, &mut self.netlink, &vf.pf)?;
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
        let removed = self.netlink.remove_names(index, &now.names_beyond(&wanted.other_names));
        self.netlink.set_link_settings(index, &wanted)?;
        removed?;
        if let Err(error) = self.netlink.add_names(index, &wanted.names_beyond(&now.other_names)) {
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
        attributes.put_back(vf.index, state, vf::to_restore(state, &record.wanted, mac))
    }

    /// Gives back at the PF of what was set there all that is still as it was set: somebody else has the VF by another driver, and what was
    /// set since is theirs, and so is all while a program has it. It goes on past what is refused.
    fn restore_untouched(&mut self, vf: &Vf, record: &Record) -> Result<(), CniError> {
        let Some(before) = record.before.state.as_ref().filter(|_| !record.wanted.is_empty()) else {
            return Ok(());
        };
        self.is_let_go(vf)?;
        let plugin = self.plugin;
        let mut attributes = Attributes::of(&plugin.root, &mut self.netlink, &vf.pf)?;
        let now = attributes.state(vf.index)?.map(|now| now.attributes()).unwrap_or_default();
        let untouched = |of: &VfAttribute| {
            now.iter().find(|now| now.kind() == of.kind()).is_none_or(|now| record.wanted.contains(now))
        };
        let mac = vf::mac_among(&record.wanted).map(|_| before.mac);
        let due = vf::to_restore(before, &record.wanted, mac).into_iter().filter(untouched);
        attributes.put_back(vf.index, before, due)
    }

    /// Takes back a VF of which nothing is written down, as after `/run` was emptied: only from the very namespace that the runtime
    /// names, and only the VF that the configuration or ADD's result names. How it was before is not known.
    pub(crate) fn take_back_unrecorded(&mut self, name: &InterfaceName) -> Result<(), CniError> {
        let previous = self.configuration.previous.as_ref().and_then(|previous| previous.of_container(name));
        let function = previous.and_then(|(_, interface)| interface.function).or(self.configuration.device);
        let (Some(function), Some(netns)) = (function, self.call.netns.clone()) else { return Ok(()) };
        if !penstock_host::files::exists(&netns) {
            return Ok(());
        }
        let mut container = Container::open(Path::new(&netns))?;
        if container.namespace.identity()? == self.home.identity()? {
            return Ok(());
        }
        let _lock = self.journal.lock(function)?;
        // Another attachment's, which may have been made while the lock was waited for; one that cannot be read may be of this one, and was logged.
        if let Ok(Some(_)) = self.journal.of(function) {
            return Ok(());
        }
        let links = container.netlink.links()?;
        let Some(report) = penstock_host::interface_of(function, &links, self.root()) else { return Ok(()) };
        if report.interface.name != *name {
            return Ok(());
        }
        let Ok(spare) = format!("dev{}", report.index).parse() else { return Ok(()) };
        self.move_home(&mut container, &report, &spare, &[])?;
        let Some(here) = self.netlink.link_named(&spare)? else { return Ok(()) };
        self.restore_settings(here.index, None)?;
        if self.is_covered(&here)? {
            let vf = Vf::at(self.root(), function)?;
            let driver = vf.function.driver()?;
            driver.map_or(Ok(()), |driver| self.bind_anew(&vf, &driver))?;
        }
        Ok(())
    }
}
