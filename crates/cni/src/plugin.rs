//! The verbs.

use std::{cell::OnceCell, collections::BTreeSet, path::PathBuf};

use penstock_host::{
    InterfaceReport, Netlink, NetworkNamespace, PciError, PciFunction, Root, files::FileError,
    netlink::lowers_of_others,
};
use penstock_model::{InterfaceName, VfAttribute};
use serde_json::Value;

use crate::{
    call::{Call, Verb},
    config::{Configuration, LogLevel, Version},
    document::{self, Attached, CniError, Interface},
    ipam,
    journal::{Before, BeforeInterface, Journal, Record, Step},
    log::Log,
    place::Container,
    vf::{self, Attributes, Vf, listened_to},
};

/// What binds a driver to a function, or unbinds it.
pub type SetDriver = fn(&PciFunction, Option<&str>) -> Result<(), PciError>;
/// Who has a function through VFIO, in words.
pub type HeldBy = fn(&PciFunction) -> Vec<String>;
/// The interfaces of a namespace that something in another stands on, by their index.
pub type LowersOfOthers = fn(&NetworkNamespace) -> Result<BTreeSet<u32>, FileError>;

/// The plugin on one machine.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The directory below which the machine is read and the journal is kept; `/` for this machine.
    pub root: Root,
    /// Called when a step of an ADD or of a release has been written down, before it is begun.
    pub on_step: fn(Step),
    /// [`PciFunction::set_driver`]; a test's machine has no kernel that binds.
    pub set_driver: SetDriver,
    /// [`PciFunction::held_by`]; a test's machine has no kernel that knows.
    pub held_by: HeldBy,
    /// [`PciFunction::opened_by`]: it opens nothing itself.
    pub opened_by: HeldBy,
    /// [`lowers_of_others`]: it looks at all processes.
    pub lowers_of_others: LowersOfOthers,
}

/// What a call works with.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub plugin: &'a Plugin,
    pub call: &'a Call,
    pub configuration: &'a Configuration,
    pub journal: Journal,
    /// In the host's namespace.
    pub netlink: Netlink,
    /// The host's namespace.
    pub home: NetworkNamespace,
    /// The host's interfaces that something in another namespace stands on, from when they were first asked for; `None` within where that
    /// cannot be found out.
    pub lowers: OnceCell<Option<BTreeSet<u32>>>,
    pub log: Log,
}

/// A VF as an ADD has found it in the host's namespace.
pub(crate) struct Found {
    /// Its interface; none under a driver that makes none.
    pub report: Option<InterfaceReport>,
    /// The index of its PF's interface, where attributes are to be set.
    pub pf: Option<u32>,
}

impl Plugin {
    /// The plugin on this machine.
    pub fn system() -> Plugin {
        Plugin {
            root: Root::system(),
            on_step: |_| {},
            set_driver: PciFunction::set_driver,
            held_by: PciFunction::held_by,
            opened_by: PciFunction::opened_by,
            lowers_of_others,
        }
    }

    /// One call: what goes to standard output, if something does.
    ///
    /// # Errors
    ///
    /// The error's document.
    pub fn run(
        &self,
        variable: impl Fn(&str) -> Option<String>,
        input: &[u8],
    ) -> Result<Option<Value>, Value> {
        let outcome = Call::read(variable).and_then(|call| self.answer(&call, input));
        outcome.map_err(|error| error.document(Version::told_by(input)))
    }

    fn answer(&self, call: &Call, input: &[u8]) -> Result<Option<Value>, CniError> {
        if call.verb == Verb::Version {
            return Ok(Some(Version::answer(input)));
        }
        let configuration = Configuration::read(input, call.mac)?;
        let about = match call.container.as_str() {
            "" => configuration.name.clone(),
            container => format!("{} of {container}", configuration.name),
        };
        let log = Log::of(&configuration, about);
        let outcome = self.work(call, &configuration, log.clone());
        if let Err(error) = &outcome {
            log.say(LogLevel::Error, error.to_string());
        }
        outcome
    }

    fn work(&self, call: &Call, configuration: &Configuration, log: Log) -> Result<Option<Value>, CniError> {
        let open = || -> Result<Work<'_>, CniError> {
            Ok(Work {
                plugin: self,
                call,
                configuration,
                journal: Journal::open(&self.root)?,
                netlink: Netlink::open()?,
                home: NetworkNamespace::current()?,
                lowers: OnceCell::new(),
                log,
            })
        };
        let mut work = match open() {
            Err(error) if call.verb == Verb::Status => {
                return Err(CniError { code: CniError::NOT_AVAILABLE, ..error });
            }
            work => work?,
        };
        match call.verb {
            Verb::Add => work.add().map(|attached| {
                let given = attached.document(configuration.version);
                Some(document::after(configuration.whole.get("prevResult"), given))
            }),
            Verb::Del => work.del().map(|()| None),
            Verb::Check => work.check().map(|()| None),
            Verb::Gc => work.gc().map(|()| None),
            Verb::Status => work.status().map(|()| None),
            Verb::Version => Ok(Some(Version::answer(&[]))),
        }
    }
}

impl Work<'_> {
    pub(crate) fn root(&self) -> &Root {
        &self.plugin.root
    }

    /// Writes down how far it has come.
    pub(crate) fn step(&self, record: &mut Record, step: Step) -> Result<(), CniError> {
        record.step = step;
        self.journal.write(record)?;
        (self.plugin.on_step)(step);
        Ok(())
    }

    /// The record of the attachment that the call is about. One that cannot be read is logged: it may be of it, and must not keep all others
    /// from what is theirs.
    pub(crate) fn recorded(&self, name: &InterfaceName) -> Result<Option<Record>, CniError> {
        // The VF that the configuration names has it as a rule. One that cannot be read is told of below.
        if let Some(Ok(Some(record))) = self.configuration.device.map(|function| self.journal.of(function))
            && self.is_of_call(&record, name)
        {
            return Ok(Some(record));
        }
        let (records, unreadable) = self.journal.all()?;
        unreadable.iter().for_each(|of| self.log.say(LogLevel::Warning, of.error.to_string()));
        Ok(records.into_iter().find(|record| self.is_of_call(record, name)))
    }

    fn is_of_call(&self, record: &Record, name: &InterfaceName) -> bool {
        record.is_of(&self.configuration.name, &self.call.container, name.as_str())
    }

    pub(crate) fn netns(&self) -> Result<PathBuf, CniError> {
        let netns = self.call.netns.clone();
        netns.ok_or_else(no_namespace)
    }

    /// The container's namespace; none where a driver is to be bound and the runtime names no namespace.
    fn container(&self) -> Result<Option<Container>, CniError> {
        if self.configuration.driver.is_some() && self.call.netns.is_none() {
            return Ok(None);
        }
        let container = Container::open(&self.netns()?)?;
        if container.namespace.identity()? == self.home.identity()? {
            let text = format!("CNI_NETNS {} is the host's own namespace", self.netns()?.display());
            return Err(CniError::new(CniError::ENVIRONMENT, text));
        }
        Ok(Some(container))
    }

    fn add(&mut self) -> Result<Attached, CniError> {
        let name = self.call.interface()?.clone();
        let mut container = self.container()?;
        if let Some(old) = self.recorded(&name)? {
            let _lock = self.journal.lock(old.function)?;
            if let Some(old) = self.journal.of(old.function)?.filter(|old| self.is_of_call(old, &name)) {
                self.reclaim(old)?;
            }
        }
        let driver = self.configuration.driver;
        if let (None, Some(container)) = (driver, &mut container)
            && container.has(&name)?
        {
            return Err(CniError::new(
                CniError::ENVIRONMENT,
                format!("the container has an interface {name} already"),
            ));
        }
        let (vf, _lock) = self.choose()?;
        let (mut record, found) = self.reserve(&vf, container.as_ref(), &name)?;
        let attached = match (driver, &mut container) {
            (Some(driver), _) => self.bind(&mut record, &vf, &found, driver),
            (None, Some(container)) => self.attach(&mut record, &vf, found, container, &name),
            (None, None) => Err(no_namespace()),
        };
        match attached {
            Ok(attached) => {
                self.log.say(LogLevel::Info, format!("has {} as {name}", vf.bdf()));
                Ok(attached)
            }
            Err(error) => {
                // Everything goes back; what does not is left to DEL and to the next ADD, which find the record.
                if record.step >= Step::Addressing
                    && let Err(error) = ipam::delegate(self.call, self.configuration, "DEL")
                {
                    self.log.say(LogLevel::Warning, error.to_string());
                }
                if let Err(error) = self.release(record) {
                    self.log.say(LogLevel::Warning, error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Writes down whose the VF is, and how it was found.
    fn reserve(
        &mut self,
        vf: &Vf,
        container: Option<&Container>,
        name: &InterfaceName,
    ) -> Result<(Record, Found), CniError> {
        let report = vf::interface_here(&self.plugin.root, &mut self.netlink, &vf.function)?;
        let driver = vf.function.driver()?;
        let binds = self.configuration.driver;
        if report.is_none() {
            let text = match &driver {
                Some(driver) if penstock_host::pci::passes_through(driver) => None,
                Some(driver) => Some(format!("{} has the driver {driver} and no interface here", vf.bdf())),
                None if binds.is_some() => None,
                None => Some(format!("{} has no driver", vf.bdf())),
            };
            if let Some(text) = text {
                return Err(CniError::new(CniError::TAKEN, text)
                    .hint("another container may have it; a VF without a driver has to be bound to the host's, or to vfio-pci"));
            }
        }
        // Also of one that was bound to vfio-pci before, by whomever.
        self.is_let_go(vf).map_err(|error| CniError { code: CniError::TAKEN, ..error })?;
        if let Some(binds) = binds {
            self.may_bind(vf, binds, report.as_ref())?;
        } else if let Some(report) = report.as_ref().filter(|_| self.configuration.free) {
            self.must_be_idle(vf, report)?;
        }
        let plugin = self.plugin;
        let settings = &self.configuration.settings;
        let (mut state, mut pf) = (None, None);
        if !settings.attributes().is_empty() {
            let index = Attributes::index(&plugin.root, &mut self.netlink, &vf.pf)?;
            state = Attributes::through(&plugin.root, &mut self.netlink, &vf.pf, index)?.state(vf.index)?;
            pf = Some(index);
        }
        let mut wanted = vf::wanted(settings, state.as_ref());
        if state.is_none() {
            let others = vf::but_mac(&wanted);
            if !others.is_empty() || ((report.is_none() || binds.is_some()) && !wanted.is_empty()) {
                return Err(vf::nothing_keeps(vf.pf.bdf(), &wanted));
            }
            // The interface itself can have the address.
            wanted.clear();
        }
        if let Some(of) = report.as_ref().filter(|report| listened_to(report)) {
            let text = format!(
                "the interface {} of {} is promiscuous: somebody on the host listens to it",
                of.interface.name,
                vf.bdf()
            );
            return Err(CniError::new(CniError::TAKEN, text).hint(
                "it is the uplink of a switch, a port of a bridge, or a program records its frames: end that, or name another VF",
            ));
        }
        let link = report.as_ref().map(|report| self.netlink.link_settings(report.index)).transpose()?;
        let mut record = Record {
            format: if binds.is_some() { Record::FORMAT } else { Record::FORMAT_OF_MOVED },
            network: self.configuration.name.clone(),
            container: self.call.container.clone(),
            interface: name.clone(),
            netns: container.map(|container| container.namespace.path().to_string_lossy().into_owned()),
            namespace: container.map(|container| container.namespace.identity()).transpose()?,
            function: vf.bdf(),
            pf: vf.pf.bdf(),
            vf: vf.index,
            driver: binds,
            wanted,
            before: Before {
                driver,
                driver_override: match binds {
                    Some(_) => vf.function.driver_override()?,
                    None => None,
                },
                interface: report.as_ref().map(|report| BeforeInterface {
                    name: report.interface.name.clone(),
                    mac: report.interface.mac,
                    mtu: report.interface.mtu,
                    up: report.interface.up,
                    kind: report.kind.clone(),
                    settings: link,
                }),
                state,
            },
            step: Step::Reserved,
            configuration: self.configuration.whole.clone(),
            index: None,
            covered: false,
            given: None,
        };
        // Where nothing is to be set before the move it is written down once: a file that is replaced leaves the kernel something to
        // free, and the move waits for all that was left so (`rcu_barrier` in `net/core/dev.c`, `__dev_change_net_namespace`).
        let mtu = self.configuration.mtu;
        let moves_at_once = report.as_ref().is_some_and(|report| {
            binds.is_none()
                && record.wanted.is_empty()
                && settings.mac.is_none_or(|mac| mac == report.interface.mac)
                && mtu.is_none_or(|mtu| mtu.get() == report.interface.mtu)
        });
        self.step(&mut record, if moves_at_once { Step::Moving } else { Step::Reserved })?;
        Ok((record, Found { report, pf }))
    }

    fn attach(
        &mut self,
        record: &mut Record,
        vf: &Vf,
        found: Found,
        container: &mut Container,
        name: &InterfaceName,
    ) -> Result<Attached, CniError> {
        if record.step < Step::Setting {
            self.step(record, Step::Setting)?;
        }
        let plugin = self.plugin;
        let others: Vec<VfAttribute> = vf::but_mac(&record.wanted);
        let root = &plugin.root;
        if let (Some(index), false) = (found.pf, others.is_empty()) {
            Attributes::through(root, &mut self.netlink, &vf.pf, index)?.set(vf.index, &others)?;
        }
        let by_pf = vf::mac_among(&record.wanted);
        let mut interface = Interface {
            name: name.to_string(),
            mac: by_pf.or(record.before.state.as_ref().map(|state| state.mac)).filter(|mac| !mac.is_zero()),
            mtu: None,
            sandbox: record.netns.clone(),
            function: Some(vf.bdf()),
        };
        let mut moved = None;
        if let Some(report) = found.report {
            let own = self.configuration.settings.mac.unwrap_or(report.interface.mac);
            let by_pf = by_pf.zip(found.pf);
            // The move brings it down by itself: to ask for that before would have the kernel wait twice.
            if report.interface.up && (by_pf.is_some() || own != report.interface.mac) {
                self.netlink.set_up(report.index, false)?;
            }
            let report = vf::give_mac(root, &mut self.netlink, vf, &report, own, by_pf)?;
            if let Some(mtu) = self.configuration.mtu
                && mtu.get() != report.interface.mtu
            {
                self.netlink.set_mtu(report.index, mtu)?;
            }
            if record.step < Step::Moving {
                self.step(record, Step::Moving)?;
            }
            self.netlink.move_to(report.index, &container.namespace, name)?;
            let inside = container.netlink.link_named(name)?.ok_or_else(|| {
                CniError::new(
                    CniError::REFUSED,
                    format!("{name} is not in the container after it was moved there"),
                )
            })?;
            container.netlink.set_up(inside.index, true)?;
            interface.mac = Some(inside.interface.mac);
            interface.mtu = Some(inside.interface.mtu);
            moved = Some(inside.index);
            record.index = moved;
        } else if let Some((mac, index)) = by_pf.zip(found.pf) {
            Attributes::through(root, &mut self.netlink, &vf.pf, index)?
                .set(vf.index, &[VfAttribute::Mac(mac)])?;
        }
        let mut attached = Attached::default();
        if self.configuration.ipam.is_some() {
            self.step(record, Step::Addressing)?;
            attached = ipam::add(self.call, self.configuration)?;
        } else if moved.is_some() {
            attached = self.configuration.own_addresses();
        }
        attached.interfaces = vec![interface];
        attached.ips.iter_mut().for_each(|address| address.interface = Some(0));
        if let Some(index) = moved {
            self.step(record, Step::Configuring)?;
            container.configure(index, name, 0, &attached)?;
        }
        record.given = Some(attached.clone());
        self.step(record, Step::Attached)?;
        if let Some(index) = moved
            && let Err(why) = container.announce(index, name, 0, &attached)
        {
            let text = format!("neighbours are not told where the addresses of {name} are: {why}");
            self.log.say(LogLevel::Warning, text);
        }
        Ok(attached)
    }

    fn del(&mut self) -> Result<(), CniError> {
        let name = self.call.interface()?.clone();
        let addresses = ipam::delegate(self.call, self.configuration, "DEL");
        match self.recorded(&name)? {
            Some(found) => {
                let _lock = self.journal.lock(found.function)?;
                // Whoever had the lock may have taken it back, and given the VF to another.
                let record = self.journal.of(found.function)?;
                if let Some(record) = record.filter(|record| self.is_of_call(record, &name))
                    && let Err(error) = self.release(record)
                {
                    self.log.say(LogLevel::Warning, format!("{error}; the next call tries again"));
                }
            }
            None => {
                if let Err(error) = self.take_back_unrecorded(&name) {
                    self.log.say(LogLevel::Warning, error.to_string());
                }
            }
        }
        addresses.map(drop)
    }
}

fn no_namespace() -> CniError {
    CniError::new(CniError::ENVIRONMENT, "CNI_NETNS is not set, and without `driver` this verb needs it")
}
