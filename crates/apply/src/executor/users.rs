//! Whose a VF is at the moment when a step takes it away. The plan has asked that, too; since then a network plugin may have given the VF to a
//! container.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use penstock_host::{
    PciFunction, Root,
    descriptors::Descriptors,
    files::Lock,
    interrupt, pci,
    scan::{
        attachments::{self, AttachmentLookup},
        elsewhere::{self, InterfacesElsewhere},
    },
};
use penstock_model::{Bdf, VfIndex};
use penstock_plan::{ExecuteError, FunctionAction, drivers};

use super::{failed, from_pci};

/// How long calls of `penstock cni` may be at the VFs of a step.
const AT_WORK: Duration = Duration::from_secs(60);

/// How often it is looked meanwhile whether somebody has interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// Which functions a step may take from whoever has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MayTake {
    /// These, by their PCI addresses: that somebody has them was known when the plan was made, and allowed.
    Known(BTreeSet<Bdf>),
    /// All of them, and nobody is waited for: a machine is led back to what it was, whatever has become of it.
    All,
}

impl Default for MayTake {
    fn default() -> MayTake {
        MayTake::Known(BTreeSet::new())
    }
}

/// How it is found out who has a function.
#[derive(Debug)]
pub(super) struct Users {
    pub may_take: MayTake,
    /// [`elsewhere::look`]; a test's machine has no other namespaces.
    pub elsewhere: fn(&Root, &BTreeSet<Bdf>) -> InterfacesElsewhere,
    /// [`interrupt::pending`], which concerns a whole process.
    pub interrupted: fn() -> bool,
    attachments: AttachmentLookup,
    held: Mutex<Held>,
}

impl Default for Users {
    fn default() -> Users {
        Users {
            may_take: MayTake::default(),
            elsewhere: elsewhere::look,
            interrupted: interrupt::pending,
            attachments: AttachmentLookup::default(),
            held: Mutex::default(),
        }
    }
}

/// Locks of functions: no network plugin can give these away before they are dropped.
#[derive(Debug, Default)]
struct Held {
    locks: BTreeMap<Bdf, Lock>,
    room: Vec<Descriptors>,
}

impl Users {
    /// Lets network plugins have what was kept from them: it was seen what came of the steps that it was kept for.
    pub fn let_go(&self) {
        *self.held() = Held::default();
    }

    /// Lets them have one function: it was seen what came of its step.
    pub fn let_go_of(&self, function: Bdf) {
        self.held().locks.remove(&function);
    }

    /// Lets them have all functions but those that one of these actions is done to, or takes along with their PF, and those that are not there: a
    /// step has removed them, and one of these actions may make them anew. Where that cannot be found out all are kept.
    pub fn let_go_of_all_but(&self, root: &Root, actions: &[&FunctionAction]) {
        if self.held().locks.is_empty() {
            return;
        }
        if let Ok(kept) = concerned(root, actions) {
            let is_concerned =
                |function: &Bdf| kept.contains(function) || !PciFunction::new(root, *function).exists();
            self.held().locks.retain(|function, _| is_concerned(function));
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps these functions from network plugins until [`Users::let_go`], waiting for a call that is at one: what a step does to them is
    /// still so when it is proven. Whoever may take all waits for nobody, and keeps what is free.
    ///
    /// # Errors
    ///
    /// [`ExecuteError::Refused`]: a plugin is at one until `deadline`, or until somebody interrupts. [`ExecuteError::Failed`]: a lock cannot be made.
    pub fn hold(
        &self,
        root: &Root,
        functions: &[Bdf],
        attempt: &str,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let held: BTreeSet<Bdf> = self.held().locks.keys().copied().collect();
        let lacking: Vec<Bdf> =
            functions.iter().filter(|function| !held.contains(function)).copied().collect();
        self.held().room.push(Descriptors::for_files(lacking.len()));
        let began = Instant::now();
        let until = deadline.min(began + AT_WORK);
        for function in lacking {
            let left = || match self.may_take {
                MayTake::Known(_) if !(self.interrupted)() => until.saturating_duration_since(Instant::now()),
                _ => Duration::ZERO,
            };
            let lock = loop {
                match attachments::lock(root, function, left().min(LOOK)) {
                    Ok(None) if !left().is_zero() => {}
                    lock => break lock,
                }
            };
            let lock = match (lock, &self.may_take) {
                (Ok(lock), MayTake::All) => lock,
                (Err(_), MayTake::All) => None,
                // Nor could a plugin write there what it gives away.
                (Err(error), _) if error.is_denied() => None,
                (lock, _) => Some(lock.map_err(|error| failed(attempt, error))?.ok_or_else(|| {
                    ExecuteError::Refused {
                        what: format!(
                            "{attempt}: a call of `penstock cni` has been at {function} for {:.2} s",
                            began.elapsed().as_secs_f32()
                        ),
                        hint: "wait for it to end, then try again".to_owned(),
                    }
                })?),
            };
            self.held().locks.extend(lock.map(|lock| (function, lock)));
        }
        Ok(())
    }

    /// As [`Users::hold`], and makes sure that nobody has these functions but as is known. `attempt` is what is said to have failed.
    ///
    /// # Errors
    ///
    /// Those of [`Users::hold`], and [`ExecuteError::Refused`]: somebody has one, or that cannot be found out.
    pub fn keep(
        &self,
        root: &Root,
        functions: &[Bdf],
        attempt: &str,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let there = functions.iter().filter(|function| PciFunction::new(root, **function).exists());
        let there: Vec<Bdf> = there.copied().collect();
        self.hold(root, &there, attempt, deadline)?;
        let MayTake::Known(known) = &self.may_take else { return Ok(()) };
        // Only now: whoever was at one has written down what came of it.
        let given = self.attachments.given_away(root, &there);
        let mut away = BTreeSet::new();
        for function in there.into_iter().filter(|function| !known.contains(function)) {
            if let Some(who) = given.get(&function) {
                return Err(taken(attempt, function, who));
            }
            if is_away(root, function).map_err(|error| from_pci(attempt, error))? {
                away.insert(function);
            }
        }
        let found = (self.elsewhere)(root, &away);
        if let Some((function, who)) = found.found.first_key_value() {
            return Err(taken(attempt, *function, &format!("{who}, who has its interface")));
        }
        // Of what is no VF the driver may give no interface at all: it is no NIC's.
        let is_vf = |function: &&Bdf| {
            PciFunction::new(root, **function).physical_function().is_ok_and(|pf| pf.is_some())
        };
        match (away.iter().find(is_vf), found.unseen) {
            (Some(function), Some(why)) => Err(ExecuteError::Refused {
                what: format!(
                    "{attempt}: the interface of {function} is not here, and whether another network namespace has it is not known: {why}"
                ),
                hint: "bring the interface back to the host, then try again".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Who is seen to have the interface of a function whose driver gives it one, where that is not here: who a network plugin has given it to,
    /// or who lives where it is. `Err` where it is here or nobody is seen to have it, with why somebody may not be seen: a driver may be about
    /// to make the interface, too, or have failed to.
    ///
    /// # Errors
    ///
    /// When the interface is here, and when nobody is seen to have it.
    pub fn who_has_interface(&self, root: &Root, function: Bdf) -> Result<String, Option<String>> {
        if !is_away(root, function).unwrap_or(false) {
            return Err(None);
        }
        if let Some(who) = self.attachments.given_away(root, &[function]).remove(&function) {
            return Ok(who);
        }
        let mut seen = (self.elsewhere)(root, &BTreeSet::from([function]));
        seen.found.remove(&function).ok_or(seen.unseen)
    }

    /// Keeps a function and its VFs, which go with it.
    ///
    /// # Errors
    ///
    /// Those of [`keep`](Users::keep), and of a look at its VFs.
    pub fn keep_with_vfs(
        &self,
        root: &Root,
        function: Bdf,
        attempt: &str,
        deadline: Instant,
    ) -> Result<(), ExecuteError> {
        let vfs = PciFunction::new(root, function).virtual_functions();
        let vfs = vfs.map_err(|error| from_pci(attempt, error))?;
        let functions: Vec<Bdf> = vfs.into_iter().map(|(_, vf)| vf).chain([function]).collect();
        self.keep(root, &functions, attempt, deadline)
    }
}

/// Whether a function is bound to this driver and somebody else has its interface: who binds it has nothing to do or to wait for.
pub(super) fn has_gone_bound(users: &Users, root: &Root, function: Bdf, driver: &str) -> bool {
    let bound = PciFunction::new(root, function).driver().ok().flatten();
    bound.as_deref() == Some(driver) && users.who_has_interface(root, function).is_ok()
}

/// The functions that one of these actions is done to, and those that go along with their PF.
fn concerned(root: &Root, actions: &[&FunctionAction]) -> Result<BTreeSet<Bdf>, penstock_host::PciError> {
    let mut all = BTreeSet::new();
    let mut given: BTreeMap<Bdf, Vec<&FunctionAction>> = BTreeMap::new();
    for action in actions {
        let Some(function) = action.function() else { continue };
        match action {
            FunctionAction::SetVfAttribute { .. } => given.entry(function).or_default().push(action),
            FunctionAction::SetVfCount { .. }
            | FunctionAction::SetEswitchMode { .. }
            | FunctionAction::SetDriver { .. }
            | FunctionAction::ResetFunction { .. } => {
                let vfs = PciFunction::new(root, function).virtual_functions()?;
                all.extend(vfs.into_iter().map(|(_, vf)| vf).chain([function]));
            }
            _ => drop(all.insert(function)),
        }
    }
    for (pf, actions) in given {
        all.extend(given_attributes(root, pf, &actions)?);
    }
    Ok(all)
}

/// The VFs of a PF that these actions give attributes.
pub(super) fn given_attributes(
    root: &Root,
    pf: Bdf,
    actions: &[&FunctionAction],
) -> Result<Vec<Bdf>, penstock_host::PciError> {
    let wanted: BTreeSet<VfIndex> = actions
        .iter()
        .filter_map(|action| match action {
            FunctionAction::SetVfAttribute { vf, .. } => Some(*vf),
            _ => None,
        })
        .collect();
    let pf = PciFunction::new(root, pf);
    wanted.into_iter().filter_map(|index| pf.virtual_function(index).transpose()).collect()
}

/// Whether a function has a driver that gives it an interface, and none here. Of a VF the plan has asked the same.
pub(super) fn is_away(root: &Root, function: Bdf) -> Result<bool, penstock_host::PciError> {
    let pci = PciFunction::new(root, function);
    let Some(driver) = pci.driver()? else { return Ok(false) };
    let gives = match pci.physical_function()? {
        Some(pf) => drivers::gives_interface(PciFunction::new(root, pf).driver()?.as_deref(), &driver),
        None => pci::gives_interface(&driver),
    };
    Ok(gives && pci.interface_names()?.is_empty())
}

fn taken(attempt: &str, function: Bdf, who: &str) -> ExecuteError {
    ExecuteError::Refused {
        what: format!("{attempt}: since the plan was made {function} has gone to {who}"),
        hint: "stop who uses it, or have it give the VF back; a plan that is made now tells what it takes from whom".to_owned(),
    }
}
