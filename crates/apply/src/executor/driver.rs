//! Functions get their drivers, and lose them.

use std::{
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    NetlinkError, PciError, PciFunction, Root, interrupt,
    netlink::{wait_for_interface, wait_for_udev},
};
use penstock_model::{Bdf, Mac};
use penstock_plan::{ExecuteError, Fact};

use super::{
    CARRIER, HostExecutor, UDEV, beside_its_pf, facts, from_netlink, from_pci,
    users::{Users, is_away},
};

/// How many functions are bound at once. Driver probes of different VFs run side by side in the kernel; the PF's
/// driver serialises what they ask of it, so that more gain nothing.
const SIDE_BY_SIDE: usize = 4;

impl HostExecutor {
    /// Waits until the VFs that the kernel has bound by itself have their interfaces, or until `deadline`: a driver's probe may go on when the
    /// number of VFs says that all are there. One whose interface does not come may have been given away at once; who needs it says so.
    pub(super) fn await_probes(&self, pf: Bdf, deadline: Instant) {
        let function = self.function(pf);
        // A kernel without the knob binds them.
        if function.autoprobe().is_ok_and(|on| !on) {
            return;
        }
        let comes = || {
            let vfs = function.virtual_functions().unwrap_or_default();
            vfs.into_iter().any(|(_, vf)| is_away(&self.root, vf).unwrap_or(false))
        };
        while comes() && Instant::now() < deadline && !interrupt::pending() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn set_driver(
        &mut self,
        function: Bdf,
        driver: Option<&str>,
        mac: Option<Mac>,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        bind_kept(&self.root, &self.users, function, driver, deadline)?;
        self.settle(function, driver, mac, deadline)
    }

    /// Waits until a function that was bound has its interface, with this MAC address. One with another is bound anew until
    /// its PF has answered: a driver asks once, while it is bound. After [`CARRIER`], or at the step's deadline if that is before,
    /// it has failed.
    fn settle(
        &mut self,
        function: Bdf,
        driver: Option<&str>,
        mac: Option<Mac>,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let answered = deadline.min(Instant::now() + CARRIER);
        let mut pause = Duration::from_millis(50);
        for attempt in 1.. {
            self.await_interface(function, driver, deadline)?;
            let wanted = Fact::Driver { function, driver: driver.map(str::to_owned), mac };
            let Err(seen) = facts::holds(self, &wanted)? else { return Ok(()) };
            // What else may be wrong shows when the step is proven.
            let Some(mac) = mac.filter(|_| seen.starts_with(facts::ADDRESS)) else { return Ok(()) };
            if Instant::now() + pause > answered || interrupt::pending() {
                let times = if attempt == 1 { String::new() } else { format!(" {attempt} times") };
                let driver = driver.unwrap_or("no driver");
                return Err(ExecuteError::Failed {
                    attempt: format!("{function} was bound to {driver}{times}, and {seen}"),
                    source: format!(
                        "its PF did not tell it {mac}; is the PF up, and does `ip link` show that address for the VF?"
                    )
                    .into(),
                });
            }
            // Already so, unless it had its driver before.
            self.users.keep_with_vfs(&self.root, function, &not_bound(function, None), deadline)?;
            bind(&self.root, function, None, attempt)?;
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(1));
            bind(&self.root, function, driver, attempt)?;
        }
        Ok(())
    }

    /// Waits until a function that was bound to a network driver has its interface.
    fn await_interface(
        &mut self,
        function: Bdf,
        driver: Option<&str>,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let Some(driver) = driver.filter(|driver| penstock_host::pci::gives_interface(driver)) else {
            return Ok(());
        };
        let began = Instant::now();
        let root = self.root.clone();
        let settled = |index| wait_for_udev(&root, index, deadline.min(began + UDEV));
        // Nearly always it is there by now: the probe has made it.
        if let Some(found) = self.find(function)? {
            settled(found.index);
            return Ok(());
        }
        match wait_for_interface(&mut self.netlink, &self.root, function, deadline) {
            // Who comes next, a guest that gets it for one, knows it by its name.
            Ok(report) => {
                settled(report.index);
                Ok(())
            }
            Err(NetlinkError::TimedOut { .. }) => Err(ExecuteError::TimedOut {
                attempt: format!("{function} was bound to {driver} and should have a network interface"),
                after: began.elapsed(),
            }),
            Err(error) => {
                Err(from_netlink(&format!("could not wait for the interface of {function}"), error))
            }
        }
    }

    /// Binds several functions side by side, each by a thread of its own in turn.
    pub(super) fn set_drivers(
        &mut self,
        wanted: &[(Bdf, Option<&str>, Option<Mac>)],
        deadline: Duration,
    ) -> Vec<Result<(), ExecuteError>> {
        let until = Instant::now() + deadline;
        let (root, users) = (&self.root, &self.users);
        let bind = |(function, driver, _): &(Bdf, Option<&str>, Option<Mac>)| {
            bind_kept(root, users, *function, *driver, until)
        };
        let share = wanted.len().div_ceil(SIDE_BY_SIDE).max(1);
        let bound: Vec<Result<(), ExecuteError>> = thread::scope(|scope| {
            // A driver that is not loaded is loaded by the first; the others then find it.
            let (first, rest) = wanted.split_at(wanted.len().min(1));
            let mut outcomes: Vec<_> = first.iter().map(bind).collect();
            let threads: Vec<_> = rest
                .chunks(share)
                .map(|part| scope.spawn(move || part.iter().map(bind).collect::<Vec<_>>()))
                .collect();
            for thread in threads {
                let part = thread.join();
                outcomes.extend(part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            outcomes
        });
        let settle = |((function, driver, mac), bound): (&(Bdf, Option<&str>, Option<Mac>), Result<_, _>)| {
            bound?;
            self.settle(*function, *driver, *mac, until)
        };
        wanted.iter().zip(bound).map(settle).collect()
    }
}

/// Binds a function to a driver, or unbinds it, unless somebody has it or a VF of it; no network plugin gets these before it was seen what
/// came of that.
pub(super) fn bind_kept(
    root: &Root,
    users: &Users,
    function: Bdf,
    driver: Option<&str>,
    deadline: Instant,
) -> Result<(), ExecuteError> {
    let at = not_bound(function, driver);
    let bound = PciFunction::new(root, function).driver().map_err(|error| from_pci(&at, error))?;
    // What has its driver already is left to who has it.
    if driver.is_none() || bound.as_deref() != driver {
        users.keep_with_vfs(root, function, &at, deadline)?;
    }
    bind(root, function, driver, 0)
}

fn not_bound(function: Bdf, driver: Option<&str>) -> String {
    match driver {
        Some(driver) => format!("{function} was not bound to {driver}"),
        None => format!("{function} was not unbound"),
    }
}

/// Binds a function to a driver, or unbinds it.
fn bind(root: &Root, function: Bdf, driver: Option<&str>, attempt: usize) -> Result<(), ExecuteError> {
    let pci = PciFunction::new(root, function);
    match beside_its_pf(root, function, attempt, || pci.set_driver(driver)) {
        // A function that is gone has no driver.
        Err(PciError::Missing { .. }) if driver.is_none() => Ok(()),
        outcome => outcome.map_err(|error| from_pci(&not_bound(function, driver), error)),
    }
}
