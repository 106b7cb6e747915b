//! What somebody else has made of what a run changed, and what a way back owes the machine all the same.

use penstock_model::{Bdf, text::counted};
use penstock_plan::{Action, Direction, FileAction, FunctionAction, GuestAction};

/// The PF and the number of VFs that an action gives it; `None` for another action.
pub fn vf_count(action: &Action) -> Option<(Bdf, u16)> {
    match action {
        Action::Function(FunctionAction::SetVfCount { pf, count }) => Some((*pf, *count)),
        _ => None,
    }
}

/// The file that an action writes with this text, or with `None` removes; `None` for another action.
pub fn file(action: &Action) -> Option<(&str, Option<&str>)> {
    match action {
        Action::File(FileAction::WriteFile { path, text }) => Some((path, Some(text))),
        Action::File(FileAction::RemoveFile { path }) => Some((path, None)),
        _ => None,
    }
}

/// What is seen of a file that somebody has edited.
pub const OTHER_TEXT: &str = "it has another text";

/// Whether VFs are somebody else's, of which there are `now`, where a step was to make `made` of them and there were `before`. One that
/// was not seen to be `done` may have made fewer.
pub fn are_anothers(now: u16, made: u16, before: u16, done: bool) -> bool {
    now != made && now != before && (done || now > made.max(before))
}

/// A number of VFs that nobody expected, in words.
pub fn seen(now: u16) -> String {
    format!("it has {}", counted(usize::from(now), "VF"))
}

/// The PF of whose VFs an action is about one: with the VF that goes too. `pf_of` tells of which PF a function is a VF. That the host
/// uses an interface again is about the host.
pub fn about_vfs_of(action: &Action, pf_of: impl FnOnce(Bdf) -> Option<Bdf>) -> Option<Bdf> {
    match action {
        Action::Function(FunctionAction::SetVfAttribute { pf, .. }) => Some(*pf),
        Action::Function(FunctionAction::RestoreInterface { .. } | FunctionAction::SetVfCount { .. }) => None,
        Action::Function(action) => pf_of(action.function()?),
        Action::Drive(action) => Some(action.drive()),
        Action::Guest(_) | Action::RealTime(_) | Action::Boot(_) | Action::File(_) => None,
    }
}

/// Whether `back`, which takes a step back, waits for `by`, which takes back one that stands on it and stays or fails. The machine's own
/// connection may hang on an interface of the host, and on a guest that has one: whatever else stays, they come back. An
/// interface is held by its own function's driver alone.
pub fn holds(by: &Action, back: &Action) -> bool {
    match back {
        Action::Guest(GuestAction::StopGuest { .. }) => false,
        Action::Function(
            FunctionAction::RestoreInterface { .. }
            | FunctionAction::SetLink { direction: Direction::Up, .. }
            | FunctionAction::AddAddress { .. }
            | FunctionAction::SetMac { .. }
            | FunctionAction::SetMtu { .. }
            | FunctionAction::Rename { .. },
        ) => {
            let driver = matches!(by, Action::Function(FunctionAction::SetDriver { .. }));
            driver && by.function() == back.function()
        }
        _ => true,
    }
}
