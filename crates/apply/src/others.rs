//! What somebody else has made of what a run changed, and what a way back owes the machine all the same.

use penstock_model::{Bdf, text::counted};
use penstock_plan::{Action, BootAction, Direction, FileAction, FunctionAction, GuestAction, persist};

/// The PF and the number of VFs that an action gives it; `None` for another action.
pub fn vf_count(action: &Action) -> Option<(Bdf, u16)> {
    match action {
        Action::Function(FunctionAction::SetVfCount { pf, count }) => Some((*pf, *count)),
        _ => None,
    }
}

/// The same of one that makes VFs.
pub fn made_vfs(action: &Action) -> Option<(Bdf, u16)> {
    vf_count(action).filter(|(_, count)| *count > 0)
}

/// The file that an action writes with this text, or with `None` removes; `None` for another action.
pub fn file(action: &Action) -> Option<(&str, Option<&str>)> {
    match action {
        Action::File(FileAction::WriteFile { path, text }) => Some((path, Some(text))),
        Action::File(FileAction::RemoveFile { path }) => Some((path, None)),
        _ => None,
    }
}

/// The file of Penstock's own that an action for the kernel's command line writes with this text, or with `None` removes; `None` for
/// another action, and where the file is not Penstock's alone.
pub fn own_boot_file(action: &Action) -> Option<(&str, Option<&str>)> {
    let Action::Boot(BootAction::SetBootArguments(arguments)) = action else { return None };
    let file = arguments.file.as_ref().filter(|file| persist::owns(&file.path))?;
    Some((&file.path, file.text.as_deref()))
}

/// What is seen of a file that somebody has edited.
pub const OTHER_TEXT: &str = "it has another text";

/// What is seen of a file that somebody has removed.
pub const GONE: &str = "it is gone";

/// Whether VFs are somebody else's, of which there are `now`, where a step was to make `made` of them and there were `before`. One that
/// was not seen to be `done` may have made fewer.
pub fn are_anothers(now: u16, made: u16, before: u16, done: bool) -> bool {
    now != made && now != before && (done || now > made.max(before))
}

/// A number of VFs that nobody expected, in words.
pub fn seen(now: u16) -> String {
    format!("it has {}", counted(usize::from(now), "VF"))
}

/// The function that an action is done to, if it may be a VF: what is done through a PF is done to that.
pub fn may_be_vf(action: &Action) -> Option<Bdf> {
    match action {
        Action::Function(
            FunctionAction::LeaveAlone { .. }
            | FunctionAction::SetAutoprobe { .. }
            | FunctionAction::SetVfCount { .. }
            | FunctionAction::SetVfAttribute { .. }
            | FunctionAction::SetSwitchMode { .. }
            | FunctionAction::SetEswitchMode { .. }
            | FunctionAction::AwaitLink { .. },
        ) => None,
        Action::Function(action) => action.function(),
        Action::Drive(_) | Action::Guest(_) | Action::RealTime(_) | Action::Boot(_) | Action::File(_) => None,
    }
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
/// interface is held by its own function's driver alone, and a driver comes back whatever else is set of its VF. A manager of interfaces gets
/// back those functions that nothing holds: `done` is the step that `back` takes back, which names them too.
pub fn holds(by: &Action, back: &Action, done: Option<&Action>) -> bool {
    match back {
        // How the host uses an interface is the last of its way back: nothing else stands on it.
        _ if matches!(by, Action::Function(FunctionAction::RestoreInterface { .. })) => false,
        Action::Guest(GuestAction::StopGuest { .. }) => false,
        Action::Function(FunctionAction::SetDriver { driver: Some(_), .. }) => {
            !matches!(by, Action::Function(FunctionAction::SetVfAttribute { .. }))
        }
        Action::Function(FunctionAction::LeaveAlone { pf, .. }) => match (by, by.function()) {
            (Action::Function(FunctionAction::SetVfAttribute { .. }), _) => false,
            (Action::Function(FunctionAction::SetVfCount { pf: of, .. }), _) => of == pf,
            (_, Some(function)) => {
                [Some(back), done].into_iter().flatten().any(|action| names(action, function))
            }
            (_, None) => false,
        },
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

/// Whether an action tells a manager of interfaces of a function.
fn names(action: &Action, function: Bdf) -> bool {
    matches!(action, Action::Function(FunctionAction::LeaveAlone { functions, .. }) if functions.contains(&function))
}
