//! The network interfaces of functions: on the host, inside a container, and back.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    InterfaceReport, PciFunction, Root, chain, files,
    netlink::{Netlink, NetlinkError},
    pci::{gives_interface, interface_of},
    scan::{elsewhere::elsewhere, lifelines},
};
use penstock_model::{Bdf, InterfaceName, Mac, Mtu, inventory::Interface};
use penstock_plan::action::GuestFunction;

use super::used::{Unless, Uses};
use crate::{error::GuestError, state::Lent};

/// How long processes of a container that has ended may still be seen: its others are killed after its first, one by one.
const UNTENANTED: Duration = Duration::from_secs(1);

/// How a function's interface is told from others.
pub trait Recognise: Send + Sync {
    /// The interface of `function` among those of one namespace.
    fn find(&self, function: Bdf, among: &[InterfaceReport]) -> Option<InterfaceReport>;

    /// Whether the function is on this machine at all: a VF is gone when its PF has fewer of them.
    fn exists(&self, function: Bdf) -> bool;

    /// The PF of a VF; `None` for a function that is none.
    fn physical_function(&self, _function: Bdf) -> Option<Bdf> {
        None
    }

    /// Whether the function has a driver that gives it an interface, on the host or in some namespace.
    fn has_interface(&self, function: Bdf) -> bool {
        self.exists(function)
    }

    /// Whether a living process has its interface in a network namespace other than the host's.
    fn has_tenant(&self, _function: Bdf) -> bool {
        false
    }

    /// What the host's own life hangs on and goes over functions, in words for each: a default route, the SSH connection that Penstock was
    /// started from. It is looked for in the whole machine.
    fn lifelines(&self) -> BTreeMap<Bdf, Vec<String>> {
        BTreeMap::new()
    }
}

/// How the interface of a function is to be on the host after its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterContainer {
    /// Whether it is to be up if it was up before, since nobody else brings it up; else it is down.
    pub up_again: bool,
    /// Which use by the host keeps it as it is.
    pub unless: Unless,
}

impl AfterContainer {
    /// Down, whatever has become of it.
    pub const DOWN: AfterContainer = AfterContainer { up_again: false, unless: Unless::Never };
}

/// Whether a function that a container had is on the host again.
enum Back {
    Here(Box<InterfaceReport>),
    /// It is not on this machine any more, or has no driver that gives it an interface.
    Never,
    NotYet,
}

/// By the PCI device behind it.
#[derive(Debug)]
struct ByDevice(Root);

impl Recognise for ByDevice {
    fn find(&self, function: Bdf, among: &[InterfaceReport]) -> Option<InterfaceReport> {
        interface_of(function, among, &self.0)
    }

    fn exists(&self, function: Bdf) -> bool {
        files::exists(self.0.path(format!("/sys/bus/pci/devices/{function}")))
    }

    fn physical_function(&self, function: Bdf) -> Option<Bdf> {
        PciFunction::new(&self.0, function).physical_function().ok().flatten()
    }

    fn has_interface(&self, function: Bdf) -> bool {
        let driver = PciFunction::new(&self.0, function).driver().ok().flatten();
        driver.is_some_and(|driver| gives_interface(&driver))
    }

    fn has_tenant(&self, function: Bdf) -> bool {
        !elsewhere(&self.0, &BTreeSet::from([function])).is_empty()
    }

    fn lifelines(&self) -> BTreeMap<Bdf, Vec<String>> {
        let all = lifelines::lifelines_here(&lifelines::Started::here(Vec::new()));
        let paths = all.found.iter().flat_map(|lifeline| &lifeline.paths);
        let functions: BTreeSet<Bdf> = paths.filter_map(|path| path.function).collect();
        let over =
            |function| all.through(function).map(|(lifeline, _)| format!("{} goes over it", lifeline.kind));
        functions.into_iter().map(|function| (function, over(function).collect())).collect()
    }
}

/// The interfaces of this host and of its containers.
#[derive(Clone)]
pub struct Interfaces {
    by: Arc<dyn Recognise>,
}

impl fmt::Debug for Interfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interfaces")
    }
}

impl Interfaces {
    /// Those whose device lies under `root`.
    pub fn of(root: Root) -> Interfaces {
        Interfaces::by(Arc::new(ByDevice(root)))
    }

    /// Those that `by` recognises.
    pub fn by(by: Arc<dyn Recognise>) -> Interfaces {
        Interfaces { by }
    }

    /// All of this host.
    ///
    /// # Errors
    ///
    /// When the kernel's socket cannot be opened, or it does not answer.
    pub fn on_host(&self) -> Result<Vec<InterfaceReport>, GuestError> {
        Ok(Netlink::open()?.interfaces()?)
    }

    /// The interface of `function` among those of one namespace.
    pub fn find(&self, function: Bdf, among: &[InterfaceReport]) -> Option<InterfaceReport> {
        self.by.find(function, among)
    }

    /// The PF of a VF; `None` for a function that is none.
    pub fn physical_function(&self, function: Bdf) -> Option<Bdf> {
        self.by.physical_function(function)
    }

    /// Whether the function is on this machine at all.
    pub fn exists(&self, function: Bdf) -> bool {
        self.by.exists(function)
    }

    /// Waits until functions that a container had are on the host again, for at most `timeout` all in all; whether they are
    /// is for the next look to say. One that a living process has in its own namespace after [`UNTENANTED`] is somebody
    /// else's by now, and is not waited for.
    ///
    /// The kernel takes namespaces apart one after the other after their last process has ended, and moves their devices to the host
    /// (`net/core/net_namespace.c`, `cleanup_net`).
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked for the host's interfaces. One that does not come back in time is no error.
    pub fn await_return(&self, lent: &[Lent], timeout: Duration) -> Result<(), GuestError> {
        let mut netlink = Netlink::open()?;
        let deadline = Instant::now() + timeout;
        for lent in lent {
            let left = || deadline.saturating_duration_since(Instant::now());
            let soon = self.back(&mut netlink, lent.function, left().min(UNTENANTED))?;
            if matches!(soon, Back::NotYet) && !self.by.has_tenant(lent.function) {
                self.back(&mut netlink, lent.function, left())?;
            }
        }
        Ok(())
    }

    /// Waits until a function is on the host.
    fn back(&self, netlink: &mut Netlink, function: Bdf, timeout: Duration) -> Result<Back, GuestError> {
        let deadline = Instant::now() + timeout;
        let mut interval = Duration::from_millis(1);
        loop {
            if let Some(found) = self.by.find(function, &netlink.interfaces()?) {
                return Ok(Back::Here(Box::new(found)));
            }
            if !self.by.has_interface(function) {
                return Ok(Back::Never);
            }
            if Instant::now() >= deadline {
                return Ok(Back::NotYet);
            }
            // Polled: the kernel gives namespaces back one after the other, in its own time, and LXC renames what it
            // has given back; the first look nearly always finds it.
            thread::sleep(interval);
            interval = (interval * 2).min(Duration::from_millis(20));
        }
    }

    /// What shows of the whole machine that its interfaces are used.
    pub fn uses(&self) -> Uses<'_> {
        Uses::of(&*self.by)
    }

    /// Those of these functions, which a container had that ended by itself, whose interfaces are on the host and used there.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked for the host's interfaces, or for what uses one.
    pub fn in_use(&self, lent: &[Lent], unless: Unless) -> Result<BTreeSet<Bdf>, GuestError> {
        let mut netlink = Netlink::open()?;
        let (all, uses) = (netlink.interfaces()?, self.uses());
        let mut in_use = BTreeSet::new();
        for function in lent.iter().map(|lent| lent.function) {
            if let Some(found) = self.by.find(function, &all)
                && !uses.signs(&mut netlink, function, &found, unless)?.is_empty()
            {
                in_use.insert(function);
            }
        }
        Ok(in_use)
    }

    /// A function with this interface on the host, as it is to come back.
    ///
    /// # Errors
    ///
    /// When the kernel does not tell the settings of the interface's link, or its programs.
    pub fn lend(&self, function: Bdf, found: InterfaceReport) -> Result<Lent, GuestError> {
        let mut netlink = Netlink::open()?;
        let settings = Some(netlink.link_settings(found.index)?);
        let programs = netlink.xdp_programs_at(found.index)?;
        let programs = programs.into_iter().filter_map(|program| program.number).collect();
        let Interface { name, mtu, mac, up, .. } = found.interface;
        Ok(Lent { function, name, mtu, mac: Some(mac), up, settings, programs })
    }

    /// Waits until a function that a container had is on the host again, then makes it as it was: its flags, link mode and alternative
    /// names, its name where that is free, its MTU and MAC address, and without the XDP programs of a container that was ended just now. The
    /// kernel takes it down on the way back, and its addresses go
    /// (`net/core/dev.c`, `__dev_change_net_namespace`): whatever is on it was added since, and is removed. Where it is to stay if the
    /// host uses it (`after`, by `uses`) it gets its flags, link mode and alternative names back then, and no more: somebody may work over it.
    /// `owned` is what the container is defined with by now: a MAC address that it is to have there stays, since it may have been set after
    /// the container had ended.
    ///
    /// A function that is not on this machine any more, or was let go by its network driver, has nothing to give back. Nothing that a
    /// container may choose fails this: a name or an address that is refused is told of, and left.
    ///
    /// # Errors
    ///
    /// [`GuestError::NotBack`] when it is not there within `timeout`; when the kernel cannot be asked, or refuses to set what the host
    /// had chosen.
    pub fn take_back(
        &self,
        lent: &Lent,
        owned: Option<&GuestFunction>,
        after: AfterContainer,
        uses: &Uses<'_>,
        timeout: Duration,
    ) -> Result<(), GuestError> {
        let mut netlink = Netlink::open()?;
        let found = match self.back(&mut netlink, lent.function, timeout)? {
            Back::Here(found) => *found,
            Back::Never => return Ok(()),
            Back::NotYet => {
                return Err(GuestError::NotBack {
                    function: lent.function,
                    name: lent.name.clone(),
                    after: timeout,
                });
            }
        };
        let index = found.index;
        let signs = uses.signs(&mut netlink, lent.function, &found, after.unless)?;
        if !signs.is_empty() {
            // What it had before is told here for the last time.
            let mac = lent.mac.map(|mac| format!(", its MAC address {mac}")).unwrap_or_default();
            penstock_host::complain!(
                "the interface {} of {} is in use on this host since its container ended ({}): it stays so. Before, its name was {}, \
                 its MTU {}{mac}",
                found.interface.name,
                lent.function,
                signs.join(", "),
                lent.name,
                lent.mtu
            );
            return Ok(restore_settings(&mut netlink, index, lent)?);
        }
        let mut outcome = netlink.set_up(index, false);
        take_off_programs(&mut netlink, &found, lent, after.unless);
        for address in &found.interface.addresses {
            outcome = outcome.and(netlink.remove_address(index, *address));
        }
        if let Some(mac) = lost_mac(lent, owned, found.interface.mac) {
            tell(lent, netlink.set_mac(index, mac));
        }
        outcome = outcome.and(restore_settings(&mut netlink, index, lent));
        if let Some(mtu) = Mtu::new(lent.mtu).filter(|mtu| mtu.get() != found.interface.mtu) {
            outcome = outcome.and(netlink.set_mtu(index, mtu));
        }
        if found.interface.name != lent.name {
            rename_back(&mut netlink, &found, lent);
        }
        if outcome.is_ok() && after.up_again && lent.up {
            tell(lent, netlink.set_up(index, true));
        }
        Ok(outcome?)
    }
}

/// The MAC address that an interface is to have again instead of `seen`.
fn lost_mac(lent: &Lent, owned: Option<&GuestFunction>, seen: Mac) -> Option<Mac> {
    let defined = owned.and_then(|owned| owned.mac.map(|mac| (mac, owned.mac_is_kept)));
    match defined {
        Some((mac, _)) if mac == seen => None,
        // Its PF keeps that one for it, and the next start asks for it.
        Some((mac, true)) => Some(mac),
        Some((_, false)) | None => lent.mac.filter(|mac| *mac != seen),
    }
}

/// Takes off an interface the XDP programs that a container has left there: they stay with the device from one namespace to the next, as
/// filters and queueing disciplines do not. Those that were there before stay, and so does each where the host had time to attach its own.
fn take_off_programs(netlink: &mut Netlink, found: &InterfaceReport, lent: &Lent, unless: Unless) {
    let mut all = match netlink.xdp_programs_at(found.index) {
        Ok(all) => all,
        Err(error) => return tell(lent, Err(error)),
    };
    all.retain(|program| !program.number.is_some_and(|number| lent.programs.contains(&number)));
    let name = &found.interface.name;
    for program in all {
        if unless != Unless::Never {
            penstock_host::complain!(
                "{program} is at the interface {name} of {}, and was not there before its container was started. It stays there: it may be \
                 of this host by now. If it is the container's, take it off: `{}`",
                lent.function,
                program.removal(lent.name.as_str())
            );
            continue;
        }
        match netlink.remove_xdp(found.index, &program) {
            Ok(()) => penstock_host::complain!(
                "{program} was taken off the interface {name} of {}: it was not there before its container was started",
                lent.function
            ),
            // The others go all the same.
            Err(error) => tell(lent, Err(error)),
        }
    }
}

/// Gives an interface the flags, the link mode and the alternative names that it had. Where they are not known it has no flags that anybody
/// could have turned on, and loses that name alone which is to be its own.
fn restore_settings(netlink: &mut Netlink, index: u32, lent: &Lent) -> Result<(), NetlinkError> {
    let now = netlink.link_settings(index)?;
    let wanted = lent.settings.clone().unwrap_or_else(|| {
        let mut wanted = now.plain();
        wanted.other_names.retain(|name| name != lent.name.as_str());
        wanted
    });
    for name in now.names_beyond(&wanted.other_names) {
        tell(lent, netlink.remove_names(index, &[name]));
    }
    for name in wanted.names_beyond(&now.other_names) {
        tell(lent, netlink.add_names(index, &[name]));
    }
    netlink.set_link_settings(index, &wanted)
}

/// Gives an interface the name that it had. Where something else has taken that meanwhile, the one that the kernel gave it will do.
fn rename_back(netlink: &mut Netlink, found: &InterfaceReport, lent: &Lent) {
    match netlink.rename(found.index, &lent.name) {
        Err(error) if error.is_taken() => penstock_host::complain!(
            "warning: the interface {} of {} is back, and is called {} now: could not rename interface {} to {}: {}",
            lent.name,
            lent.function,
            found.interface.name,
            found.index,
            lent.name,
            who_has(&lent.name, &netlink.interfaces().unwrap_or_default())
        ),
        outcome => tell(lent, outcome),
    }
}

/// Who of all interfaces has a name that is taken; an alternative name is not told of each.
fn who_has(name: &InterfaceName, all: &[InterfaceReport]) -> String {
    match all.iter().find(|report| report.interface.name == *name) {
        Some(InterfaceReport { device: Some(device), .. }) => format!("{device} has that name now"),
        Some(InterfaceReport { kind: Some(kind), .. }) => {
            format!("an interface of the kind {kind} has that name now")
        }
        _ => "another interface has that name now, perhaps as an alternative one (`ip link` shows them)"
            .to_owned(),
    }
}

/// Tells what of an interface could not be made as it was.
fn tell(lent: &Lent, outcome: Result<(), NetlinkError>) {
    if let Err(error) = outcome {
        penstock_host::complain!(
            "warning: the interface {} of {} is back, and not all as it was: {}",
            lent.name,
            lent.function,
            chain(&error)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_whose_driver_hands_it_on_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let by = ByDevice(root.clone());
        let function: Bdf = "0000:04:10.0".parse().unwrap();
        let device = root.path(format!("/sys/bus/pci/devices/{function}"));
        files::create_dir_all(&device).unwrap();
        assert!(!by.has_interface(function), "without a driver");
        for (driver, gives) in
            [("vfio-pci", false), ("uio_pci_generic", false), ("igb_uio", false), ("igbvf", true)]
        {
            let link = device.join("driver");
            files::remove_file(&link).unwrap();
            files::link(root.path(format!("/sys/bus/pci/drivers/{driver}")), &link).unwrap();
            assert_eq!(by.has_interface(function), gives, "{driver}");
        }
    }

    #[test]
    fn who_has_a_name_that_is_taken_is_told() {
        let name: InterfaceName = "eth1".parse().unwrap();
        let report = |name: &str, device: Option<&str>, kind: Option<&str>| InterfaceReport {
            index: 2,
            interface: Interface {
                name: name.parse().unwrap(),
                mac: Mac::new([2, 0, 0, 0, 0, 1]),
                mtu: 1500,
                up: false,
                carrier: None,
                speed: None,
                addresses: Vec::new(),
                routes: Vec::new(),
                master: None,
                uppers: Vec::new(),
            },
            permanent_mac: None,
            device: device.map(str::to_owned),
            kind: kind.map(str::to_owned),
            port_name: None,
            promiscuous: None,
            routes: None,
            master: None,
            lower: None,
        };
        let other = report("eth0", Some("0000:01:10.2"), None);
        let all = |holder| [other.clone(), holder];
        for (holder, said) in [
            (report("eth1", Some("0000:01:10.4"), None), "0000:01:10.4 has that name now"),
            (report("eth1", None, Some("bridge")), "an interface of the kind bridge has that name now"),
        ] {
            assert_eq!(who_has(&name, &all(holder)), said);
        }
        assert!(
            who_has(&name, &[other])
                .starts_with("another interface has that name now, perhaps as an alternative")
        );
    }

    #[test]
    fn an_address_that_is_wanted_by_now_stays() {
        let function: Bdf = "0000:04:10.0".parse().unwrap();
        let name: InterfaceName = "net0".parse().unwrap();
        let [before, wanted, chosen] = [1, 2, 3].map(|last| Mac::new([2, 0, 0, 0, 0, last]));
        let lent = Lent {
            function,
            name: name.clone(),
            mtu: 1500,
            mac: Some(before),
            up: false,
            settings: None,
            programs: Vec::new(),
        };
        let owned = |mac_is_kept| GuestFunction {
            mac: Some(wanted),
            mac_is_kept,
            ..GuestFunction::bare(function, name.clone())
        };
        assert_eq!(lost_mac(&lent, None, chosen), Some(before));
        assert_eq!(lost_mac(&lent, None, before), None);
        for (kept, again) in [(true, wanted), (false, before)] {
            assert_eq!(lost_mac(&lent, Some(&owned(kept)), chosen), Some(again));
            assert_eq!(lost_mac(&lent, Some(&owned(kept)), wanted), None);
        }
        // As older versions have written it.
        let old = Lent { mac: None, ..lent };
        assert_eq!(lost_mac(&old, None, chosen), None);
        assert_eq!(lost_mac(&old, Some(&owned(true)), chosen), Some(wanted));
    }
}
