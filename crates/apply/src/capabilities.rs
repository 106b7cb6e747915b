//! What drivers were seen to do: kept on disk between runs, and learned from the runs themselves.

use std::path::PathBuf;

use penstock_host::files::{self, FileError};
use penstock_model::{
    Bdf, VfAttribute,
    inventory::{Ability, Capabilities, Capability, Trial, is_preset},
};
use penstock_plan::{Action, ExecuteError, FunctionAction, Plan};
use serde::{Deserialize, Serialize};

use crate::{
    journal::Ending,
    runner::{ApplyError, IGNORED, StepError, StepReport},
};

/// The version of the file's form; a file of another is as good as none.
const VERSION: u32 = 1;

/// So many drivers are remembered; those that were learned of longest ago are forgotten.
const MOST: usize = 64;

/// The largest file that is read.
const LIMIT: usize = 1 << 20;

/// The file that keeps what is known. Nothing is lost with it: what is not known is tried again.
#[derive(Clone, Debug)]
pub struct Memory {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    drivers: Vec<Capabilities>,
}

impl Memory {
    /// What is kept at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Memory {
        Memory { path: path.into() }
    }

    /// All that is known; nothing when the file is not there, is damaged, or has another form.
    pub fn recall(&self) -> Vec<Capabilities> {
        let Ok((bytes, false)) = files::read_at_most(&self.path, LIMIT) else { return Vec::new() };
        match serde_json::from_slice(&bytes) {
            Ok(Kept { version: VERSION, drivers }) => drivers,
            _ => Vec::new(),
        }
    }

    /// Adds what was learned of drivers to what is known; the file is written whole or not at all, and not when it
    /// would say the same.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn remember(&self, learned: &[Capabilities]) -> Result<(), FileError> {
        let known = self.recall();
        let mut drivers = known.clone();
        for new in learned.iter().filter(|new| !new.trials.is_empty()) {
            let at = drivers.iter().position(|driver| driver.of == new.of);
            let mut driver = at.map_or_else(
                || Capabilities { of: new.of.clone(), ..Capabilities::default() },
                |at| drivers[at].clone(),
            );
            for (capability, trial) in &new.trials {
                driver.learn(*capability, trial.clone());
            }
            match at {
                Some(at) => drivers[at] = driver,
                None => drivers.push(driver),
            }
        }
        if drivers == known {
            return Ok(());
        }
        let surplus = drivers.len().saturating_sub(MOST);
        drivers.drain(..surplus);
        let text = serde_json::to_vec_pretty(&Kept { version: VERSION, drivers }).unwrap_or_default();
        if let Some(directory) = self.path.parent() {
            files::create_dir_all(directory)?;
        }
        files::write_durable(&self.path, text)
    }
}

/// What a run has shown of the drivers of its PFs.
pub fn learned(
    plan: &Plan,
    reports: &[StepReport],
    ended: Option<&ApplyError>,
) -> Vec<(Bdf, Capability, Trial)> {
    let mut learned: Vec<(Bdf, Capability, Trial)> = Vec::new();
    for report in reports {
        let Some(step) = plan.steps.iter().find(|step| step.id == report.step) else { continue };
        let Action::Function(FunctionAction::SetVfAttribute { pf, attribute, .. }) = &step.action else {
            continue;
        };
        let before = match &step.inverse {
            Some(Action::Function(FunctionAction::SetVfAttribute { attribute, .. })) => Some(attribute),
            _ => None,
        };
        let failed = match ended {
            Some(ApplyError::RolledBack { step, source, .. }) if *step == report.step => Some(&**source),
            _ => None,
        };
        if let Some(trial) = shown(report, attribute, before, failed) {
            let capability = Capability::of(attribute);
            // One VF that shows less than another takes nothing back.
            match learned.iter_mut().find(|(of, known, _)| (of, known) == (pf, &capability)) {
                Some((_, _, known)) if known.ability >= trial.ability => {}
                Some((_, _, known)) => *known = trial,
                None => learned.push((*pf, capability, trial)),
            }
        }
    }
    learned
}

/// What one step has shown.
fn shown(
    report: &StepReport,
    attribute: &VfAttribute,
    before: Option<&VfAttribute>,
    failed: Option<&StepError>,
) -> Option<Trial> {
    match (report.outcome, failed) {
        (Ending::Done, _) => {
            let another = before.map_or(!is_preset(attribute), |before| before != attribute);
            Some(Trial::new(if another { Ability::Kept } else { Ability::Accepted }))
        }
        (Ending::Unsupported, _) => {
            let detail = report.detail.clone().unwrap_or_default();
            Some(match detail.strip_prefix(IGNORED) {
                Some(seen) => Trial::new(Ability::Ignored).saying(seen),
                None => unsupported(&detail),
            })
        }
        (Ending::Failed, Some(StepError::NotSo { seen, .. })) => {
            Some(Trial::new(Ability::Ignored).saying(seen))
        }
        (Ending::Failed, Some(StepError::Execute(ExecuteError::Unsupported(why)))) => Some(unsupported(why)),
        _ => None,
    }
}

/// What the driver said, without the sentence about the one VF that it said it of.
fn unsupported(why: &str) -> Trial {
    let detail = match why.split_once("the driver does not support it") {
        Some((_, words)) => words.trim(),
        None => why,
    };
    let trial = Trial::new(Ability::Unsupported);
    if detail.is_empty() { trial } else { trial.saying(detail) }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::time::Duration;

    use penstock_model::{LinkState, inventory::DriverIdentity};
    use penstock_plan::{Fact, Step, StepId};

    use super::*;

    fn driver(name: &str, ability: Ability) -> Capabilities {
        let of = DriverIdentity { driver: name.to_owned(), ..DriverIdentity::default() };
        Capabilities { of, trials: [(Capability::Trust, Trial::new(ability))].into() }
    }

    #[test]
    fn what_was_learned_is_added_to_what_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::at(directory.path().join("below/capabilities.json"));
        assert_eq!(memory.recall(), []);
        memory.remember(&[driver("igb", Ability::Accepted)]).unwrap();
        memory.remember(&[driver("ice", Ability::Kept), driver("igb", Ability::Unsupported)]).unwrap();
        assert_eq!(memory.recall(), [driver("igb", Ability::Unsupported), driver("ice", Ability::Kept)]);
        let written = std::fs::metadata(&memory.path).unwrap().modified().unwrap();
        memory.remember(&[driver("igb", Ability::Unsupported), Capabilities::default()]).unwrap();
        assert_eq!(std::fs::metadata(&memory.path).unwrap().modified().unwrap(), written);
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none_and_is_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::at(directory.path().join("capabilities.json"));
        memory.remember(&[driver("igb", Ability::Kept)]).unwrap();
        let whole = std::fs::read(&memory.path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&memory.path, &whole[..length]).unwrap();
            assert_eq!(memory.recall(), [], "cut at {length}");
        }
        for text in ["\u{0}\u{1}", "{\"version\":2,\"drivers\":[]}", "[]"] {
            std::fs::write(&memory.path, text).unwrap();
            assert_eq!(memory.recall(), []);
            memory.remember(&[driver("igb", Ability::Kept)]).unwrap();
            assert_eq!(memory.recall(), [driver("igb", Ability::Kept)]);
        }
    }

    #[test]
    fn no_more_drivers_are_remembered_than_any_machine_has() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::at(directory.path().join("capabilities.json"));
        for number in 0..MOST + 3 {
            memory.remember(&[driver(&format!("d{number}"), Ability::Kept)]).unwrap();
        }
        let kept = memory.recall();
        assert_eq!((kept.len(), kept[0].of.driver.as_str()), (MOST, "d3"));
    }

    fn pf() -> Bdf {
        "0000:04:00.0".parse().unwrap()
    }

    /// Steps that set these, each with what was there before, and how each came out.
    fn run(steps: &[(VfAttribute, Option<VfAttribute>, Ending, Option<&str>)]) -> (Plan, Vec<StepReport>) {
        let mut plan = Plan::default();
        let mut reports = Vec::new();
        for (number, (attribute, before, outcome, detail)) in (1..).zip(steps) {
            let set = |attribute| -> Action {
                FunctionAction::SetVfAttribute {
                    pf: pf(),
                    vf: penstock_model::VfIndex::new(0).unwrap(),
                    attribute,
                }
                .into()
            };
            let (id, action) = (StepId(number), set(*attribute));
            reports.push(StepReport {
                step: id,
                action: action.to_string(),
                outcome: *outcome,
                detail: detail.map(str::to_owned),
                best_effort: true,
                seconds: 0.0,
            });
            plan.steps.push(Step {
                id,
                postcondition: Fact::after(&action),
                action,
                reason: String::new(),
                needs: vec![],
                inverse: before.map(set),
                best_effort: true,
                guest: None,
            });
        }
        (plan, reports)
    }

    fn of(steps: &[(VfAttribute, Option<VfAttribute>, Ending, Option<&str>)]) -> Vec<(Capability, Ability)> {
        let (plan, reports) = run(steps);
        learned(&plan, &reports, None).into_iter().map(|(_, of, trial)| (of, trial.ability)).collect()
    }

    #[test]
    fn only_another_value_that_was_read_back_is_kept() {
        use VfAttribute::{LinkState as Link, Trust};
        let (auto, off) = (Link(LinkState::Auto), Link(LinkState::Disable));
        assert_eq!(of(&[(off, Some(auto), Ending::Done, None)]), [(Capability::LinkState, Ability::Kept)]);
        assert_eq!(of(&[(off, None, Ending::Done, None)]), [(Capability::LinkState, Ability::Kept)]);
        assert_eq!(of(&[(auto, None, Ending::Done, None)]), [(Capability::LinkState, Ability::Accepted)]);
        // What a driver presets is not known.
        assert_eq!(of(&[(Trust(true), None, Ending::Done, None)]), [(Capability::Trust, Ability::Accepted)]);
        let several =
            [(Trust(true), Some(Trust(false)), Ending::Done, None), (Trust(true), None, Ending::Done, None)];
        assert_eq!(of(&several), [(Capability::Trust, Ability::Kept)]);
    }

    #[test]
    fn what_was_passed_over_is_known_from_then_on() {
        let trust = VfAttribute::Trust(true);
        assert_eq!(
            of(&[(trust, None, Ending::Unsupported, Some("no such call"))]),
            [(Capability::Trust, Ability::Unsupported)]
        );
        let said = format!("{IGNORED}it reports trust off");
        assert_eq!(
            of(&[(trust, None, Ending::Unsupported, Some(&said))]),
            [(Capability::Trust, Ability::Ignored)]
        );
        assert_eq!(of(&[(trust, None, Ending::LeftOut, None), (trust, None, Ending::Failed, None)]), []);
    }

    #[test]
    fn a_run_that_was_taken_back_has_shown_why() {
        let (plan, reports) = run(&[(VfAttribute::Trust(true), None, Ending::Failed, Some("why"))]);
        let source = StepError::NotSo {
            fact: "f".to_owned(),
            seen: "it reports trust off".to_owned(),
            after: Duration::ZERO,
        };
        let ended = ApplyError::RolledBack {
            step: StepId(1),
            action: String::new(),
            source: Box::new(source),
            undone: vec![],
            not_undone: vec![],
        };
        let shown = learned(&plan, &reports, Some(&ended));
        let trial = Trial::new(Ability::Ignored).saying("it reports trust off");
        assert_eq!(shown, [(pf(), Capability::Trust, trial)]);
    }
}
