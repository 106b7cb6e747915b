//! Carries out the host's steps.
//!
//! A function is addressed by its PCI address. Its interface is looked up when the step runs, in the function's own
//! directory of sysfs: one short listing, however many interfaces the machine has.

use std::{
    collections::BTreeMap,
    error::Error,
    io::ErrorKind,
    iter, mem,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    InterfaceReport, Netlink, NetlinkError, PciError, PciFunction, Root, VfBackend, chain, files,
    interface_of, irq,
    managers::{self, ManagerError},
    netlink::wait_for_udev,
};
use penstock_model::{Bdf, VfAttribute, VfIndex, inventory::VfState};
use penstock_plan::{
    BootAction, Direction, DriveAction, Execute, ExecuteError, Fact, FileAction, FunctionAction, Observe,
    RealTimeAction, execute::one_by_one,
};

mod boot;
mod drive;
mod driver;
mod eswitch;
mod facts;
mod interface;
mod realtime;
mod users;

use eswitch::{Eswitches, OverDevlink};
pub use users::MayTake;
use users::Users;

/// How long udev may take to have done with a new interface before it is renamed.
const UDEV: Duration = Duration::from_secs(5);

/// How long the VFs that the kernel binds by itself may take to have their interfaces.
const PROBED: Duration = Duration::from_secs(5);

/// How long a PF may take from being brought up to having its link; copper takes some 3 s to negotiate.
const CARRIER: Duration = Duration::from_secs(15);

/// Carries out what concerns the host's functions and their interfaces.
#[derive(Debug)]
pub struct HostExecutor {
    root: Root,
    netlink: Netlink,
    /// What PFs' drivers report of their VFs, until the next change.
    vfs: BTreeMap<Bdf, Vec<(VfIndex, VfState)>>,
    users: Users,
    eswitches: Box<dyn Eswitches>,
    /// What drivers were seen to have done, while network plugins were kept from it; they are not any more.
    seen: Vec<Fact>,
    /// Waits a little, before something is looked at again.
    pause: fn(&Root),
}

/// A function's interface on the host.
struct Found {
    name: String,
    index: u32,
}

impl HostExecutor {
    /// An executor for the machine under `root`, in the network namespace of the calling thread. It takes no function from whoever has it.
    ///
    /// # Errors
    ///
    /// When no netlink socket can be made.
    pub fn new(root: Root) -> Result<HostExecutor, NetlinkError> {
        Ok(HostExecutor {
            root,
            netlink: Netlink::open()?,
            vfs: BTreeMap::new(),
            users: Users::default(),
            eswitches: Box::new(OverDevlink),
            seen: Vec::new(),
            pause: |_| thread::sleep(Duration::from_millis(10)),
        })
    }

    /// The same, which may take these.
    #[must_use]
    pub fn taking(mut self, may_take: MayTake) -> HostExecutor {
        self.users.may_take = may_take;
        self
    }

    fn function(&self, bdf: Bdf) -> PciFunction {
        PciFunction::new(&self.root, bdf)
    }

    /// The function's interface; `None` when it has none in this namespace.
    fn find(&mut self, function: Bdf) -> Result<Option<Found>, ExecuteError> {
        let at = format!("could not look for the interface of {function}");
        let pci = self.function(function);
        let names = pci.interface_names().map_err(|error| from_pci(&at, error))?;
        match &names[..] {
            [] => Ok(None),
            [name] => match index_of(&pci, name) {
                Some(index) => Ok(Some(Found { name: name.clone(), index })),
                // Renamed between the two looks.
                None => self.find_by_netlink(function, &at),
            },
            // Several ports, or representors beside the PF's own.
            _ => self.find_by_netlink(function, &at),
        }
    }

    fn find_by_netlink(&mut self, function: Bdf, at: &str) -> Result<Option<Found>, ExecuteError> {
        let reports = self.netlink.interfaces().map_err(|error| from_netlink(at, error))?;
        Ok(interface_of(function, &reports, &self.root)
            .map(|report| Found { name: report.interface.name.to_string(), index: report.index }))
    }

    /// An attribute in `/sys/class/net/NAME`.
    fn class_attribute(&self, name: &str, attribute: &str) -> Option<String> {
        let path = self.root.path(format!("/sys/class/net/{name}/{attribute}"));
        let text = files::read_to_string(path).ok()?;
        Some(text.trim().to_owned())
    }

    /// The function's interface, which has to be there.
    fn interface(&mut self, function: Bdf) -> Result<Found, ExecuteError> {
        let found = self.find(function)?;
        found.ok_or_else(|| ExecuteError::Failed {
            attempt: format!("{function} cannot be changed"),
            source: match self.function(function).exists() {
                true => "it has no network interface on the host".into(),
                false => "it is no longer there: it was unplugged, or its PF's driver let it go".into(),
            },
        })
    }

    /// Asks who keeps the attributes of the VFs of a PF whose interface was found.
    fn kept<R>(
        &mut self,
        pf: &Found,
        ask: impl FnOnce(&mut VfBackend<'_>) -> Result<R, NetlinkError>,
    ) -> Result<R, NetlinkError> {
        ask(&mut VfBackend::of(&self.root, &mut self.netlink, pf.index)?)
    }

    /// Does `change` to what is kept of a PF's VFs.
    fn change_kept(
        &mut self,
        pf: Bdf,
        change: impl FnOnce(&mut VfBackend<'_>) -> Result<(), NetlinkError>,
    ) -> Result<(), ExecuteError> {
        let found = self.interface(pf)?;
        self.kept(&found, change)
            .map_err(|error| from_netlink(&format!("{} ({pf}) was not changed", found.name), error))
    }

    /// Does `change` to the function's interface.
    fn change(
        &mut self,
        function: Bdf,
        change: impl FnOnce(&mut Netlink, u32) -> Result<(), NetlinkError>,
    ) -> Result<(), ExecuteError> {
        let found = self.interface(function)?;
        change(&mut self.netlink, found.index)
            .map_err(|error| from_netlink(&format!("{} ({function}) was not changed", found.name), error))
    }

    /// Waits until a PF that is up has its link, or until `deadline`: drivers check a rate against the link's speed and
    /// refuse it with EINVAL while there is none (`igb_ndo_set_vf_bw` and its like). A PF that stays without one is
    /// left to the driver's own answer.
    fn await_carrier(&mut self, pf: Bdf, deadline: Instant) -> Result<(), ExecuteError> {
        let found = self.interface(pf)?;
        let linked = |reports: &[InterfaceReport]| {
            let link = reports.iter().find(|report| report.index == found.index)?;
            (link.interface.carrier == Some(true) || !link.interface.up).then_some(())
        };
        match self.netlink.wait_for(&format!("see the link of {} ({pf})", found.name), deadline, linked) {
            Ok(()) | Err(NetlinkError::TimedOut { .. }) => Ok(()),
            Err(error) => {
                Err(from_netlink(&format!("the link of {} ({pf}) was not seen", found.name), error))
            }
        }
    }

    /// Waits for a PF's link as a step of its own; a PF without one is something that a model may allow.
    fn await_link(&mut self, pf: Bdf, within: u32) -> Result<(), ExecuteError> {
        let timeout = Duration::from_secs(within.into());
        self.await_carrier(pf, Instant::now() + timeout)?;
        match facts::holds(self, &Fact::LinkUp { pf })? {
            Ok(()) => Ok(()),
            Err(seen) => Err(ExecuteError::Unsupported(format!("{seen} after {within} s; is its cable in?"))),
        }
    }

    fn rename(
        &mut self,
        function: Bdf,
        to: &penstock_model::InterfaceName,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let found = self.interface(function)?;
        if found.name == to.as_str() {
            return Ok(());
        }
        wait_for_udev(&self.root, found.index, deadline.min(Instant::now() + UDEV));
        self.netlink
            .rename(found.index, to)
            .map_err(|error| from_netlink(&format!("{} ({function}) was not renamed", found.name), error))
    }

    /// Sets attributes of VFs, those of one PF with one request. Where that fails they are set one by one: setting again what
    /// is so already does no harm, and shows which it was. What was waited for in vain is not waited for again.
    fn set_attributes(
        &mut self,
        actions: &[&FunctionAction],
        deadline: Duration,
    ) -> Vec<Result<(), ExecuteError>> {
        let mut answers = Vec::with_capacity(actions.len());
        for of_one in actions.chunk_by(|a, b| pf_of(a) == pf_of(b)) {
            match self.set_at_once(of_one, deadline) {
                Ok(()) => {
                    answers.extend(of_one.iter().map(|_| Ok(())));
                    continue;
                }
                Err(error @ ExecuteError::TimedOut { .. }) => {
                    answers.push(Err(error));
                    break;
                }
                Err(_) => {}
            }
            answers.extend(one_by_one(self, of_one, deadline));
            if matches!(answers.last(), Some(Err(error)) if !matches!(error, ExecuteError::Unsupported(_))) {
                break;
            }
        }
        answers
    }

    /// Sets attributes of VFs of one PF with one request.
    fn set_at_once(&mut self, actions: &[&FunctionAction], deadline: Duration) -> Result<(), ExecuteError> {
        let wanted: Vec<(VfIndex, VfAttribute)> = actions
            .iter()
            .filter_map(|action| match action {
                FunctionAction::SetVfAttribute { vf, attribute, .. } => Some((*vf, *attribute)),
                _ => None,
            })
            .collect();
        let Some(pf) = actions.first().and_then(|action| pf_of(action)) else { return Ok(()) };
        self.vfs.remove(&pf);
        if wanted.iter().any(|(_, attribute)| matches!(attribute, VfAttribute::Rate { .. })) {
            self.await_carrier(pf, Instant::now() + deadline.min(CARRIER))?;
        }
        self.keep_given_attributes(pf, actions, Instant::now() + deadline)?;
        self.change_kept(pf, |backend| backend.set(&wanted))
    }

    /// Gives a PF `count` VFs. Those that go are kept from network plugins; those that come are held by nobody.
    fn set_vf_count(&self, pf: Bdf, count: u16, deadline: Instant) -> Result<(), ExecuteError> {
        let at = format!("the number of VFs of {pf} was not changed");
        let failed = |error| from_pci(&at, error);
        let function = self.function(pf);
        let present = function.vf_count().map_err(failed)?;
        if present != count {
            let vfs = function.virtual_functions().map_err(failed)?;
            let vfs: Vec<Bdf> = vfs.into_iter().map(|(_, vf)| vf).collect();
            self.users.keep(&self.root, &vfs, &at, deadline)?;
        }
        // Going through 0 destroys VFs; a plan says so by a step of its own.
        function.set_vf_count(count, false).map_err(|error| from_count(&at, error))?;
        // Of those that were there nobody knows what their drivers give them, and nothing was done to them.
        if present == 0 {
            self.await_probes(pf, deadline.min(Instant::now() + PROBED));
        }
        Ok(())
    }

    /// Keeps the VFs of a PF that these actions give attributes: a container that has one since has its own.
    fn keep_given_attributes(
        &self,
        pf: Bdf,
        actions: &[&FunctionAction],
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let at = format!("VFs of {pf} were not changed");
        let vfs = users::given_attributes(&self.root, pf, actions).map_err(|error| from_pci(&at, error))?;
        self.users.keep(&self.root, &vfs, &at, deadline)
    }

    /// Holds the VF whose interface an action changes, which a network plugin would move into a container.
    fn hold_interface(&self, action: &FunctionAction, deadline: Instant) -> Result<(), ExecuteError> {
        let Some(function) = action.changes_interface_of() else { return Ok(()) };
        match self.function(function).physical_function() {
            Ok(Some(_)) => {
                self.users.hold(&self.root, &[function], &format!("{function} was not changed"), deadline)
            }
            _ => Ok(()),
        }
    }
}

/// The number of a function's interface, from its own directory: by its name alone it may be another's by now.
fn index_of(pci: &PciFunction, name: &str) -> Option<u32> {
    let own = pci.directory();
    let below = pci.device_names().ok()?.into_iter().map(|device| own.join(device));
    let read = |place: PathBuf| {
        let text = files::read_to_string(place.join("net").join(name).join("ifindex")).ok()?;
        text.trim().parse().ok()
    };
    iter::once(own.clone()).chain(below).find_map(read)
}

/// The PF whose VF an action gives an attribute.
fn pf_of(action: &FunctionAction) -> Option<Bdf> {
    match action {
        FunctionAction::SetVfAttribute { pf, .. } => Some(*pf),
        _ => None,
    }
}

/// Does to a function what has its driver ask its PF's, where the PF's can answer ([`irq::beside`]).
fn beside_its_pf<R>(root: &Root, function: Bdf, attempt: usize, work: impl FnOnce() -> R) -> R {
    match PciFunction::new(root, function).physical_function() {
        Ok(Some(pf)) => irq::beside(root, pf, attempt, work),
        _ => work(),
    }
}

impl Execute<FunctionAction> for HostExecutor {
    fn execute(&mut self, action: &FunctionAction, deadline: Duration) -> Result<(), ExecuteError> {
        let until = Instant::now() + deadline;
        self.vfs.clear();
        self.hold_interface(action, until)?;
        match action {
            FunctionAction::LeaveAlone { manager, pf, functions } => {
                managers::leave_alone(&self.root, *manager, *pf, functions).map_err(|error| match error {
                    // The file is there: whoever reads it later does as it says.
                    ManagerError::NotRead { .. } => ExecuteError::Unsupported(chain(&error)),
                    ManagerError::File { .. } => failed(&format!("{action} was not done"), error),
                })
            }
            FunctionAction::SetAutoprobe { pf, on } => self
                .function(*pf)
                .set_autoprobe(*on)
                .map_err(|error| from_pci(&format!("driver autoprobe of {pf} was not changed"), error)),
            FunctionAction::SetVfCount { pf, count } => self.set_vf_count(*pf, *count, until),
            FunctionAction::SetVfAttribute { pf, vf, attribute } => {
                if matches!(attribute, VfAttribute::Rate { .. }) {
                    self.await_carrier(*pf, until.min(Instant::now() + CARRIER))?;
                }
                self.keep_given_attributes(*pf, &[action], until)?;
                self.change_kept(*pf, |backend| backend.set(&[(*vf, *attribute)]))
            }
            FunctionAction::SetDriver { function, driver, mac } => {
                self.set_driver(*function, driver.as_deref(), *mac, until)
            }
            FunctionAction::SetMac { function, mac } => {
                self.change(*function, |netlink, index| netlink.set_mac(index, *mac))
            }
            FunctionAction::Rename { function, to } => self.rename(*function, to, until),
            FunctionAction::SetMtu { function, mtu } => {
                self.change(*function, |netlink, index| netlink.set_mtu(index, *mtu))
            }
            FunctionAction::SetLink { function, direction } => {
                let root = self.root.clone();
                beside_its_pf(&root, *function, 0, || {
                    self.change(*function, |netlink, index| {
                        netlink.set_up(index, *direction == Direction::Up)
                    })
                })
            }
            FunctionAction::AddAddress { function, address } => {
                self.change(*function, |netlink, index| netlink.add_address(index, *address))
            }
            FunctionAction::RemoveAddress { function, address } => {
                self.change(*function, |netlink, index| netlink.remove_address(index, *address))
            }
            FunctionAction::SetSwitchMode { pf, mode } => {
                self.change_kept(*pf, |backend| backend.set_mode(*mode))
            }
            FunctionAction::SetEswitchMode { pf, mode } => eswitch::set(self, *pf, *mode, deadline),
            FunctionAction::ResetFunction { function } => {
                let at = format!("{function} was not reset");
                self.users.keep_with_vfs(&self.root, *function, &at, until)?;
                match self.function(*function).reset() {
                    Err(PciError::Missing { .. }) => Ok(()),
                    outcome => outcome.map_err(|error| from_pci(&at, error)),
                }
            }
            FunctionAction::RestoreInterface { function, setup } => {
                interface::restore(self, *function, setup, until)
            }
            FunctionAction::AwaitLink { pf, within } => self.await_link(*pf, *within),
        }
    }

    fn execute_all(
        &mut self,
        actions: &[&FunctionAction],
        deadline: Duration,
    ) -> Vec<Result<(), ExecuteError>> {
        if actions.iter().all(|action| matches!(action, FunctionAction::SetVfAttribute { .. })) {
            return self.set_attributes(actions, deadline);
        }
        let drivers: Option<Vec<_>> = actions
            .iter()
            .map(|action| match action {
                FunctionAction::SetDriver { function, driver, mac } => {
                    Some((*function, driver.as_deref(), *mac))
                }
                _ => None,
            })
            .collect();
        match drivers {
            Some(wanted) => {
                self.vfs.clear();
                self.set_drivers(&wanted, deadline)
            }
            None => one_by_one(self, actions, deadline),
        }
    }

    fn take_back(&mut self, action: &FunctionAction, deadline: Duration) -> Result<(), ExecuteError> {
        let may_take = mem::replace(&mut self.users.may_take, MayTake::All);
        let outcome = self.execute(action, deadline);
        self.users.may_take = may_take;
        outcome
    }

    fn is_gone(&mut self, action: &FunctionAction) -> bool {
        if let FunctionAction::SetDriver { function, driver: Some(driver), .. } = action
            && users::has_gone_bound(&self.users, &self.root, *function, driver)
        {
            return true;
        }
        action.function().is_some_and(|function| !self.function(function).exists())
    }
}

impl Execute<DriveAction> for HostExecutor {
    fn execute(&mut self, action: &DriveAction, _: Duration) -> Result<(), ExecuteError> {
        drive::execute(&self.root, action)
    }

    fn is_gone(&mut self, action: &DriveAction) -> bool {
        drive::is_gone(&self.root, action)
    }
}

impl Execute<RealTimeAction> for HostExecutor {
    fn execute(&mut self, action: &RealTimeAction, _: Duration) -> Result<(), ExecuteError> {
        realtime::execute(&self.root, action)
    }

    fn is_gone(&mut self, action: &RealTimeAction) -> bool {
        realtime::is_gone(&self.root, action)
    }
}

impl Execute<BootAction> for HostExecutor {
    fn execute(&mut self, action: &BootAction, deadline: Duration) -> Result<(), ExecuteError> {
        match action {
            BootAction::EnableUnit { unit, on } => boot::enable(&self.root, unit, *on),
            BootAction::SetBootArguments(arguments) => boot::set_arguments(&self.root, arguments, deadline),
        }
    }
}

impl Execute<FileAction> for HostExecutor {
    fn execute(&mut self, action: &FileAction, _: Duration) -> Result<(), ExecuteError> {
        match action {
            FileAction::WriteFile { path, text } => {
                let place = self.root.path(path);
                let made = place.parent().map_or(Ok(()), files::create_dir_all);
                // What the journal says is done must be there after a reset.
                made.and_then(|()| files::remove_parts(&place))
                    .and_then(|()| files::write_durable(&place, text))
                    .map_err(|error| failed(&format!("{path} was not written"), error))
            }
            FileAction::RemoveFile { path } => files::remove_parts(self.root.path(path))
                .and_then(|()| files::remove_durable(self.root.path(path)))
                .map_err(|error| failed(&format!("{path} was not removed"), error)),
        }
    }
}

impl Observe for HostExecutor {
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError> {
        facts::holds(self, fact)
    }

    fn let_go(&mut self) {
        self.users.let_go();
        self.seen.clear();
    }

    fn let_go_of(&mut self, action: &FunctionAction) -> bool {
        let vf = match action {
            FunctionAction::SetVfAttribute { pf, vf, .. } => {
                self.function(*pf).virtual_function(*vf).ok().flatten()
            }
            action => action.function().filter(|function| self.pf_of(*function).is_some()),
        };
        vf.map(|vf| self.users.let_go_of(vf)).is_some()
    }

    fn let_go_of_all_but(&mut self, actions: &[&FunctionAction]) {
        self.users.let_go_of_all_but(&self.root, actions);
    }

    fn has_seen(&self, fact: &Fact) -> bool {
        self.seen.contains(fact)
    }

    fn vf_count(&mut self, pf: Bdf) -> Option<u16> {
        let pf = self.function(pf);
        pf.vf_count().ok().filter(|_| pf.exists())
    }

    fn pf_of(&mut self, function: Bdf) -> Option<Bdf> {
        self.function(function).physical_function().ok().flatten()
    }

    fn is_there(&mut self, function: Bdf) -> Option<bool> {
        Some(self.function(function).exists())
    }

    fn who_has_interface(&mut self, function: Bdf) -> Option<String> {
        self.users.who_has_interface(&self.root, function).ok()
    }

    fn file_is(&mut self, path: &str, text: Option<&str>) -> Option<bool> {
        match (files::read(self.root.path(path)), text) {
            (Ok(seen), Some(text)) => Some(seen == text.as_bytes()),
            (Ok(_), None) => Some(false),
            (Err(error), text) if error.is_missing() => Some(text.is_none()),
            (Err(_), _) => None,
        }
    }
}

fn failed(attempt: &str, source: impl Error + Send + Sync + 'static) -> ExecuteError {
    ExecuteError::Failed { attempt: attempt.to_owned(), source: Box::new(source) }
}

fn from_pci(attempt: &str, error: PciError) -> ExecuteError {
    let (unsupported, hint) = (error.is_unsupported(), error.hint().map(str::to_owned));
    execute_error(attempt, error, unsupported, hint)
}

/// The same of a number of VFs, which the kernel says to be busy, and we a VF that a process has, before anything is changed.
fn from_count(attempt: &str, error: PciError) -> ExecuteError {
    let busy = match &error {
        PciError::Held { .. } => true,
        PciError::Refused { source, .. } => source.kind() == ErrorKind::ResourceBusy,
        _ => false,
    };
    match from_pci(attempt, error) {
        ExecuteError::Missing { what, hint } if busy => ExecuteError::Refused { what, hint },
        other => other,
    }
}

fn from_netlink(attempt: &str, error: NetlinkError) -> ExecuteError {
    let (unsupported, hint) = (error.is_unsupported(), error.hint().map(str::to_owned));
    execute_error(attempt, error, unsupported, hint)
}

/// An error of the host as one of an executor: what cannot be done, what is missing and how to mend that, or a failure.
fn execute_error(
    attempt: &str,
    error: impl Error + Send + Sync + 'static,
    unsupported: bool,
    hint: Option<String>,
) -> ExecuteError {
    match hint {
        _ if unsupported => ExecuteError::Unsupported(error.to_string()),
        Some(hint) => ExecuteError::Missing { what: format!("{attempt}: {}", chain(&error)), hint },
        None => failed(attempt, error),
    }
}

#[cfg(test)]
mod tests;
