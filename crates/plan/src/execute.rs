//! What it is to carry out a step.

use std::time::Duration;

use penstock_model::Bdf;
use thiserror::Error;

use crate::{
    Action, ActionGroup, BootAction, DriveAction, Fact, FileAction, FunctionAction, GuestAction,
    RealTimeAction,
};

/// Something that can carry out the actions of one group.
pub trait Execute<A> {
    /// Does it, within `deadline`. On `Err` the machine is as it was, or `apply` undoes the step by its inverse.
    ///
    /// # Errors
    ///
    /// [`ExecuteError`], which tells whether the action cannot be had here, something is missing, it failed, or its time was
    /// over.
    fn execute(&mut self, action: &A, deadline: Duration) -> Result<(), ExecuteError>;

    /// Does several that do not need one another, each within `deadline`; an executor that can do them side by side
    /// overrides this. The answers are in the order of `actions` and may be fewer: the rest was not attempted.
    fn execute_all(&mut self, actions: &[&A], deadline: Duration) -> Vec<Result<(), ExecuteError>> {
        one_by_one(self, actions, deadline)
    }

    /// Does it to take back what a run has done: no longer refused for the sake of whoever has by now what it is done to.
    ///
    /// # Errors
    ///
    /// As [`Execute::execute`].
    fn take_back(&mut self, action: &A, deadline: Duration) -> Result<(), ExecuteError> {
        self.execute(action, deadline)
    }

    /// Whether what the action is done to has left the machine, so that taking something back there is done already: a NIC
    /// that was unplugged has taken its settings along.
    fn is_gone(&mut self, _action: &A) -> bool {
        false
    }
}

/// Something that can look facts up.
pub trait Observe {
    /// Looks a fact up. `Ok(Err(seen))` says what is so instead.
    ///
    /// # Errors
    ///
    /// [`ExecuteError`] when it cannot be found out.
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError>;

    /// What the actions before were done to need not be kept from others any more: it was seen what came of them.
    fn let_go(&mut self) {}

    /// As [`let_go`](Observe::let_go), of one VF that an action was done to. `false` where it was done to something else, which is not let go.
    fn let_go_of(&mut self, _action: &FunctionAction) -> bool {
        false
    }

    /// Lets go of all VFs but those that one of these actions is done to, or takes along with their PF.
    fn let_go_of_all_but(&mut self, _actions: &[&FunctionAction]) {}

    /// Whether a fact was seen to be so after the actions before, and what it is about was let go since: somebody else may have it by now.
    fn has_seen(&self, _fact: &Fact) -> bool {
        false
    }

    /// How many VFs a PF has by its `sriov_numvfs` alone, whichever of them can be seen; `None` where nobody here can tell.
    fn vf_count(&mut self, _pf: Bdf) -> Option<u16> {
        None
    }

    /// The PF that a function is a VF of; `None` for any other function, or where nobody here can tell.
    fn pf_of(&mut self, _function: Bdf) -> Option<Bdf> {
        None
    }

    /// Whether a function is on the machine; `None` where nobody here can tell.
    fn is_there(&mut self, _function: Bdf) -> Option<bool> {
        None
    }

    /// Who is seen to have the interface of a function whose driver gives it one, where that is not on the host; `None` where it is, where the
    /// driver gives none, or where nobody is seen to have it: the driver may be about to make it.
    fn who_has_interface(&mut self, _function: Bdf) -> Option<String> {
        None
    }

    /// Whether a file holds exactly this text, or with `None` whether there is none, whatever lies beside it; `None` where nobody here
    /// can tell.
    fn file_is(&mut self, _path: &str, _text: Option<&str>) -> Option<bool> {
        None
    }
}

/// What carries out all that is done to the host itself.
pub trait ExecuteHost:
    Execute<FunctionAction>
    + Execute<DriveAction>
    + Execute<RealTimeAction>
    + Execute<BootAction>
    + Execute<FileAction>
    + Observe
{
}

impl<E> ExecuteHost for E where
    E: Execute<FunctionAction>
        + Execute<DriveAction>
        + Execute<RealTimeAction>
        + Execute<BootAction>
        + Execute<FileAction>
        + Observe
{
}

/// What carries out all that is done to the host's guests.
pub trait ExecuteGuests: Execute<GuestAction> + Observe {}

impl<E: Execute<GuestAction> + Observe> ExecuteGuests for E {}

/// The executors of a machine. Each action goes to the one that its group is carried out by, and each fact to the one that the action
/// before it went to.
pub struct Executors<'a> {
    host: &'a mut dyn ExecuteHost,
    guests: Option<&'a mut dyn ExecuteGuests>,
}

impl<'a> Executors<'a> {
    /// Those of a host and its guests.
    pub fn new(host: &'a mut dyn ExecuteHost, guests: &'a mut dyn ExecuteGuests) -> Executors<'a> {
        Executors { host, guests: Some(guests) }
    }

    /// That of a host on which nobody looks after guests.
    pub fn of_host(host: &'a mut dyn ExecuteHost) -> Executors<'a> {
        Executors { host, guests: None }
    }

    /// Whether somebody carries out actions of this group.
    pub fn execute_group_of(&self, action: &Action) -> bool {
        match action {
            Action::Function(_)
            | Action::Drive(_)
            | Action::RealTime(_)
            | Action::Boot(_)
            | Action::File(_) => true,
            Action::Guest(_) => self.guests.is_some(),
        }
    }

    /// Does one action, within `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Execute::execute`]; [`ExecuteError::Failed`] when nobody carries out its group.
    pub fn execute(&mut self, action: &Action, deadline: Duration) -> Result<(), ExecuteError> {
        match action {
            Action::Function(action) => self.host.execute(action, deadline),
            Action::Drive(action) => self.host.execute(action, deadline),
            Action::Guest(action) => match &mut self.guests {
                Some(guests) => guests.execute(action, deadline),
                None => Err(nobody(&action.clone().into())),
            },
            Action::RealTime(action) => self.host.execute(action, deadline),
            Action::Boot(action) => self.host.execute(action, deadline),
            Action::File(action) => self.host.execute(action, deadline),
        }
    }

    /// Takes back by one action, within `deadline`, as [`Execute::take_back`] says.
    ///
    /// # Errors
    ///
    /// As [`Executors::execute`].
    pub fn take_back(&mut self, action: &Action, deadline: Duration) -> Result<(), ExecuteError> {
        match action {
            Action::Function(action) => self.host.take_back(action, deadline),
            action => self.execute(action, deadline),
        }
    }

    /// Does several that do not need one another and are of one group, each within `deadline`. The answers are as with
    /// [`Execute::execute_all`]: those after the first of another group were not attempted.
    pub fn execute_all(&mut self, actions: &[&Action], deadline: Duration) -> Vec<Result<(), ExecuteError>> {
        fn group<'a, A: ActionGroup>(actions: &[&'a Action]) -> Vec<&'a A> {
            actions.iter().map_while(|action| A::of(action)).collect()
        }
        let Some(first) = actions.first() else { return Vec::new() };
        match first {
            Action::Function(_) => self.host.execute_all(&group::<FunctionAction>(actions), deadline),
            Action::Drive(_) => self.host.execute_all(&group::<DriveAction>(actions), deadline),
            Action::Guest(_) => match &mut self.guests {
                Some(guests) => guests.execute_all(&group::<GuestAction>(actions), deadline),
                None => vec![Err(nobody(first))],
            },
            Action::RealTime(_) => self.host.execute_all(&group::<RealTimeAction>(actions), deadline),
            Action::Boot(_) => self.host.execute_all(&group::<BootAction>(actions), deadline),
            Action::File(_) => self.host.execute_all(&group::<FileAction>(actions), deadline),
        }
    }

    /// Whether what the action is done to has left the machine, as [`Execute::is_gone`] says.
    pub fn is_gone(&mut self, action: &Action) -> bool {
        match action {
            Action::Function(action) => self.host.is_gone(action),
            Action::Drive(action) => self.host.is_gone(action),
            Action::Guest(action) => self.guests.as_mut().is_some_and(|guests| guests.is_gone(action)),
            Action::RealTime(action) => self.host.is_gone(action),
            Action::Boot(action) => self.host.is_gone(action),
            Action::File(action) => self.host.is_gone(action),
        }
    }

    /// Whether somebody can look this kind of fact up.
    pub fn observe(&self, fact: &Fact) -> bool {
        fact.guest().is_none() || self.guests.is_some()
    }

    /// Looks a fact up; `None` when nobody can.
    pub fn holds(&mut self, fact: &Fact) -> Option<Result<Result<(), String>, ExecuteError>> {
        match fact.guest() {
            None => Some(self.host.holds(fact)),
            Some(_) => self.guests.as_mut().map(|guests| guests.holds(fact)),
        }
    }

    /// Lets others have what was kept from them until the actions before were looked at, as [`Observe::let_go`] says.
    pub fn let_go(&mut self) {
        self.host.let_go();
        if let Some(guests) = &mut self.guests {
            guests.let_go();
        }
    }

    /// Lets others have one VF that an action was done to, as [`Observe::let_go_of`] says.
    pub fn let_go_of(&mut self, action: &Action) -> bool {
        match action {
            Action::Function(action) => self.host.let_go_of(action),
            _ => false,
        }
    }

    /// Lets others have all VFs but those that these actions concern, as [`Observe::let_go_of_all_but`] says. A guest that one of them starts
    /// needs VFs that the action does not name: then all are kept.
    pub fn let_go_of_all_but(&mut self, actions: &[&Action]) {
        let starts = |action: &&Action| {
            matches!(action, Action::Guest(GuestAction::CreateGuest { .. } | GuestAction::StartGuest { .. }))
        };
        if !actions.iter().any(starts) {
            let of_functions: Vec<&FunctionAction> =
                actions.iter().filter_map(|action| FunctionAction::of(action)).collect();
            self.host.let_go_of_all_but(&of_functions);
        }
    }

    /// Whether a fact was seen to be so already, as [`Observe::has_seen`] says.
    pub fn has_seen(&self, fact: &Fact) -> bool {
        self.host.has_seen(fact)
    }

    /// How many VFs a PF has, as [`Observe::vf_count`] says.
    pub fn vf_count(&mut self, pf: Bdf) -> Option<u16> {
        self.host.vf_count(pf)
    }

    /// The PF that a function is a VF of, as [`Observe::pf_of`] says.
    pub fn pf_of(&mut self, function: Bdf) -> Option<Bdf> {
        self.host.pf_of(function)
    }

    /// Whether a function is on the machine, as [`Observe::is_there`] says.
    pub fn is_there(&mut self, function: Bdf) -> Option<bool> {
        self.host.is_there(function)
    }

    /// Whether a file holds this text, or is not there, as [`Observe::file_is`] says.
    pub fn file_is(&mut self, path: &str, text: Option<&str>) -> Option<bool> {
        self.host.file_is(path, text)
    }
}

fn nobody(action: &Action) -> ExecuteError {
    ExecuteError::Failed {
        attempt: format!("{action}: not done"),
        source: "nobody looks after guests here".into(),
    }
}

/// Does several actions one after the other, up to the first that fails for another reason than being unsupported.
pub fn one_by_one<A, C: Execute<A> + ?Sized>(
    executor: &mut C,
    actions: &[&A],
    deadline: Duration,
) -> Vec<Result<(), ExecuteError>> {
    let mut answers = Vec::with_capacity(actions.len());
    for action in actions {
        answers.push(executor.execute(action, deadline));
        if matches!(answers.last(), Some(Err(error)) if !matches!(error, ExecuteError::Unsupported(_))) {
            break;
        }
    }
    answers
}

/// Why an action was not carried out, or a fact not looked up.
#[derive(Debug, Error)]
pub enum ExecuteError {
    /// The driver or device says that it cannot do this (`EOPNOTSUPP`, a missing file).
    #[error("{0}")]
    Unsupported(String),
    /// Something that it needs is not there: a program, a module, a permission.
    #[error("{what}")]
    Missing {
        /// What was attempted and is missing.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// It was refused before anything was changed, since somebody else has what it would change.
    #[error("{what}")]
    Refused {
        /// What was attempted, and why it was refused.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// It was tried and failed; the source says why.
    #[error("{attempt}")]
    Failed {
        /// What was attempted, with which values.
        attempt: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It did not come true in time.
    #[error("{attempt}: not so after {} s", after.as_secs_f32())]
    TimedOut {
        /// What was waited for.
        attempt: String,
        /// How long it was waited for.
        after: Duration,
    },
}
