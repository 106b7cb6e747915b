//! Functions get their drivers, and lose them.

use std::{
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    NetlinkError, PciError, PciFunction, Root, files, interrupt,
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

/// So long those of several functions that are bound are waited for together; then those that lack something are seen to one by one.
const LATE: Duration = Duration::from_secs(2);

impl HostExecutor {
    /// Waits until the VFs that the kernel binds by itself have their interfaces, or until `deadline`: a driver's probe may go on when the
    /// number of VFs says that all are there, and a driver that udev is still to load binds them when it comes. One whose interface does not come
    /// may have been given away at once; who needs it says so.
    pub(super) fn await_probes(&self, pf: Bdf, deadline: Instant) {
        let function = self.function(pf);
        // A kernel without the knob binds them.
        if function.autoprobe().is_ok_and(|on| !on) {
            return;
        }
        let comes = || {
            let vfs = function.virtual_functions().unwrap_or_default();
            // udev keeps this file for as long as it has something to do (`src/udev/udev-manager.c`).
            let loads = files::exists(self.root.path("/run/udev/queue"));
            let is_bound = |vf| self.function(vf).driver().is_ok_and(|driver| driver.is_some());
            vfs.into_iter()
                .any(|(_, vf)| is_away(&self.root, vf).unwrap_or(false) || (loads && !is_bound(vf)))
        };
        while comes() && Instant::now() < deadline && !interrupt::pending() {
            (self.pause)(&self.root);
        }
    }

    pub(super) fn set_driver(
        &mut self,
        function: Bdf,
        driver: Option<&str>,
        mac: Option<Mac>,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let taken = bind_kept(&self.root, &self.users, function, driver, deadline)?;
        self.settle(function, driver, mac, taken, deadline)
    }

    /// Waits until a function that was bound has its interface, with this MAC address. One with another is bound anew until
    /// its PF has answered: a driver asks once, while it is bound. After [`CARRIER`], or at the step's deadline if that is before,
    /// it has failed. `taken` says whether it was bound just now, and not before: from then on it is not as it was, whatever fails.
    fn settle(
        &mut self,
        function: Bdf,
        driver: Option<&str>,
        mac: Option<Mac>,
        mut taken: bool,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let outcome = self.bind_until_told(function, driver, mac, &mut taken, deadline);
        outcome.map_err(|error| if taken { changed(error) } else { error })
    }

    fn bind_until_told(
        &mut self,
        function: Bdf,
        driver: Option<&str>,
        mac: Option<Mac>,
        taken: &mut bool,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let answered = deadline.min(Instant::now() + CARRIER);
        let mut pause = Duration::from_millis(50);
        for attempt in 1.. {
            self.await_interface(function, driver, deadline)?;
            let wanted = fact_of(function, driver, mac);
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
            let at = not_bound(function, None);
            if *taken {
                // Whoever has written down since that it is to be theirs gets it when it is proven.
                self.users.hold(&self.root, &[function], &at, deadline)?;
            } else {
                self.users.keep_with_vfs(&self.root, function, &at, deadline)?;
                *taken = true;
            }
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
        self.seen.clear();
        let (root, users) = (&self.root, &self.users);
        let bind = |(function, driver, _): &(Bdf, Option<&str>, Option<Mac>)| {
            bind_kept(root, users, *function, *driver, until)
        };
        let share = wanted.len().div_ceil(SIDE_BY_SIDE).max(1);
        let bound: Vec<Result<bool, ExecuteError>> = thread::scope(|scope| {
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
        self.let_go_of_settled(wanted, &bound, until);
        let settle = |((function, driver, mac), bound): (&(Bdf, Option<&str>, Option<Mac>), Result<_, _>)| {
            let taken = bound?;
            if !self.seen.contains(&fact_of(*function, *driver, *mac)) {
                self.settle(*function, *driver, *mac, taken, until)?;
                self.let_go_if_so(*function, *driver, *mac);
            }
            Ok(())
        };
        wanted.iter().zip(bound).map(settle).collect()
    }

    /// Lets go of those functions that are as wanted: one whose PF does not answer, or that is slow, keeps no network plugin from the others.
    fn let_go_of_settled(
        &mut self,
        wanted: &[(Bdf, Option<&str>, Option<Mac>)],
        bound: &[Result<bool, ExecuteError>],
        until: Instant,
    ) {
        let late = until.min(Instant::now() + LATE);
        let mut left: Vec<_> =
            wanted.iter().zip(bound).filter(|(_, bound)| bound.is_ok()).map(|(wanted, _)| *wanted).collect();
        loop {
            let mut comes = false;
            left.retain(|(function, driver, mac)| {
                let is_there =
                    self.function(*function).interface_names().is_ok_and(|names| !names.is_empty());
                if driver.is_some_and(penstock_host::pci::gives_interface) && !is_there {
                    comes = true;
                    return true;
                }
                self.await_interface(*function, *driver, until).is_err()
                    || !self.let_go_if_so(*function, *driver, *mac)
            });
            if !comes || Instant::now() >= late || interrupt::pending() {
                return;
            }
            (self.pause)(&self.root);
        }
    }

    /// Lets go of a VF that is bound as wanted, and notes that it was seen to be so.
    fn let_go_if_so(&mut self, function: Bdf, driver: Option<&str>, mac: Option<Mac>) -> bool {
        let fact = fact_of(function, driver, mac);
        let is_vf = matches!(self.function(function).physical_function(), Ok(Some(_)));
        let is_so = is_vf && matches!(facts::holds(self, &fact), Ok(Ok(())));
        if is_so {
            self.seen.push(fact);
            self.users.let_go_of(function);
        }
        is_so
    }
}

fn fact_of(function: Bdf, driver: Option<&str>, mac: Option<Mac>) -> Fact {
    Fact::Driver { function, driver: driver.map(str::to_owned), mac }
}

/// The same of a function that is not as it was any more: no error that says that nothing was changed.
fn changed(error: ExecuteError) -> ExecuteError {
    match error {
        ExecuteError::Refused { what, hint } => ExecuteError::Failed { attempt: what, source: hint.into() },
        ExecuteError::Unsupported(why) => ExecuteError::Failed {
            attempt: "its driver was changed, and what comes after that cannot be had".to_owned(),
            source: why.into(),
        },
        other => other,
    }
}

/// Binds a function to a driver, or unbinds it, unless somebody has it or a VF of it; no network plugin gets these before it was seen what
/// came of that. Tells whether they were kept: what has its driver already is left to who has it.
pub(super) fn bind_kept(
    root: &Root,
    users: &Users,
    function: Bdf,
    driver: Option<&str>,
    deadline: Instant,
) -> Result<bool, ExecuteError> {
    let at = not_bound(function, driver);
    let bound = PciFunction::new(root, function).driver().map_err(|error| from_pci(&at, error))?;
    let takes = driver.is_none() || bound.as_deref() != driver;
    if takes {
        users.keep_with_vfs(root, function, &at, deadline)?;
    }
    bind(root, function, driver, 0).map(|()| takes)
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
    let bound = || pci.driver().ok().flatten();
    let before = bound();
    match beside_its_pf(root, function, attempt, || pci.set_driver(driver)) {
        // A function that is gone has no driver.
        Err(PciError::Missing { .. }) if driver.is_none() => Ok(()),
        outcome => outcome.map_err(|error| {
            let error = from_pci(&not_bound(function, driver), error);
            if bound() == before { error } else { changed(error) }
        }),
    }
}
