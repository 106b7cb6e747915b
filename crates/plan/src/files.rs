//! The steps that write a model's files.

use penstock_model::GuestName;
use penstock_render::{FoundMachine, GenerateError, render};

use crate::{
    FileAction,
    draft::{Effect, StepSpec},
    planner::Planner,
};

/// Writes every file whose text is not so already. They are written before any guest starts; a guest that runs already is
/// told when it starts again.
///
/// # Errors
///
/// [`GenerateError`] when a template cannot be filled in.
pub fn file_steps(planner: &mut Planner<'_>) -> Result<(), GenerateError> {
    let found = FoundMachine { inventory: planner.inventory, nics: &planner.resolved };
    let mut late: Vec<GuestName> = Vec::new();
    for file in render(planner.model, Some(found))? {
        let before = planner.inventory.files.get(&file.path);
        if before == Some(&file.text) {
            continue;
        }
        let inverse = match before {
            Some(text) => FileAction::WriteFile { path: file.path.clone(), text: text.clone() }.into(),
            None => FileAction::RemoveFile { path: file.path.clone() }.into(),
        };
        if planner.runs(&file.guest) && !late.contains(&file.guest) {
            late.push(file.guest.clone());
        }
        planner.draft.push(StepSpec::new(
            FileAction::WriteFile { path: file.path.clone(), text: file.text }.into(),
            Some(inverse),
            Vec::new(),
            Effect::File(file.path),
            format!("{} is told what its functions are", file.guest),
        ));
    }
    for guest in late {
        planner.note(format!(
            "guest {guest} runs already; what its files say it learns when it reads them again"
        ));
    }
    Ok(())
}
