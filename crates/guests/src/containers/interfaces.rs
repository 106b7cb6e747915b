//! The network interfaces of functions: on the host, inside a container, and back.

use std::{
    collections::BTreeSet,
    fmt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    InterfaceReport, PciFunction, Root, files, netlink::Netlink, pci::interface_of,
    scan::elsewhere::elsewhere,
};
use penstock_model::{Bdf, Mtu};

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
        driver.is_some_and(|driver| !matches!(driver.as_str(), "vfio-pci" | "pci-stub"))
    }

    fn has_tenant(&self, function: Bdf) -> bool {
        !elsewhere(&self.0, &BTreeSet::from([function])).is_empty()
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

    /// Waits until a function that a container had is on the host again, then makes it as it was: its name where that
    /// is free, its MTU, down. Addresses do not survive the way back (`net/core/dev.c`,
    /// `__dev_change_net_namespace`); whatever was added to it since is removed.
    ///
    /// A function that is not on this machine any more, or was let go by its network driver, has nothing to give back.
    pub fn take_back(&self, lent: &Lent, timeout: Duration) -> Result<(), GuestError> {
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
        netlink.set_up(found.index, false)?;
        for address in &found.interface.addresses {
            netlink.remove_address(found.index, *address)?;
        }
        if let Some(mtu) = Mtu::new(lent.mtu).filter(|mtu| mtu.get() != found.interface.mtu) {
            netlink.set_mtu(found.index, mtu)?;
        }
        if found.interface.name != lent.name {
            // Where something else has taken the name meanwhile, the one that the kernel gave it will do.
            let taken = netlink.interfaces()?.iter().any(|other| other.interface.name == lent.name);
            if !taken {
                netlink.rename(found.index, &lent.name)?;
            }
        }
        Ok(())
    }
}
