//! Evidence as one self-contained HTML page.

mod course;
mod verdicts;

use penstock_model::{Outcome, Verdict, measurement::Conclusion};
use serde::Serialize;

use self::{
    course::{StepRow, Steps, Times, step_row, steps, times},
    verdicts::{GroupView, Mark, Reach, VerdictRow, group_view, reach_view, row},
};
use crate::{
    Evidence, GroupName, StepOutcome, audit,
    machine::kind_word,
    measurements, origin,
    picture::{self, Picture},
    printable::{one_line, printable},
    real_time, seconds,
    sentence::sentence,
    templates,
};

/// No more failures than this are listed under the verdict.
const MOST_CALLED_OUT: usize = 8;

/// The evidence as one HTML page that asks for nothing outside itself: no script, no font, no image.
pub fn html(evidence: &Evidence) -> String {
    templates::render("page.html", &Page::of(evidence))
}

/// Everything that the templates name.
#[derive(Serialize)]
struct Page {
    machine: String,
    emulated: bool,
    class: &'static str,
    sign: &'static str,
    verdict: String,
    explanation: String,
    tallies: Vec<Tally>,
    failed_steps: Vec<StepRow>,
    called_out: Vec<VerdictRow>,
    not_called_out: usize,
    notes: Vec<String>,
    facts: Vec<(&'static str, String)>,
    picture: Option<Picture>,
    owned: Vec<OwnedRow>,
    guests: Vec<GuestKey>,
    groups: Vec<GroupView>,
    reach: Option<Reach>,
    measured: Option<measurements::View>,
    real_time: Option<real_time::View>,
    audit: Option<audit::View>,
    steps: Option<Steps>,
    times: Option<Times>,
    origin: Vec<(&'static str, String)>,
    model_name: String,
    model_text: String,
    serial_log: Option<String>,
}

#[derive(Serialize)]
struct Tally {
    mark: Mark,
    count: usize,
    /// Whether it is to be seen: a count of something bad that is not 0.
    loud: bool,
    note: String,
}

#[derive(Serialize)]
struct OwnedRow {
    colour: String,
    guest: String,
    kind: &'static str,
    functions: String,
    interfaces: String,
}

#[derive(Serialize)]
struct GuestKey {
    name: String,
    colour: String,
}

impl Page {
    fn of(evidence: &Evidence) -> Page {
        let verdict = sentence(evidence);
        let (head, explanation) = verdict.split_once(": ").unwrap_or((&verdict, ""));
        let groups = evidence.groups();
        let bad: Vec<&Verdict> = groups
            .iter()
            .flat_map(|group| &group.verdicts)
            .filter(|verdict| !verdict.holds())
            .copied()
            .collect();
        let reach = reach_view(evidence);
        let (class, sign) = match (evidence.holds(), head) {
            (true, _) => ("pass", "✓"),
            (false, "Does not hold") => ("fail", "✗"),
            // What was not shown is no proof of the contrary.
            (false, _) => ("unknown", "?"),
        };
        Page {
            machine: one_line(&evidence.machine.name),
            emulated: evidence.machine.emulated,
            class,
            sign,
            verdict: head.to_owned(),
            explanation: explanation.to_owned(),
            tallies: tallies(evidence),
            failed_steps: (evidence.steps.iter())
                .filter(|step| step.outcome == StepOutcome::Failed)
                .take(MOST_CALLED_OUT)
                .map(step_row)
                .collect(),
            called_out: bad.iter().take(MOST_CALLED_OUT).map(|verdict| row(verdict)).collect(),
            not_called_out: bad.len().saturating_sub(MOST_CALLED_OUT),
            notes: evidence.notes.iter().map(|note| one_line(note)).collect(),
            facts: facts(evidence),
            picture: picture::picture(&evidence.machine),
            owned: owned(evidence),
            guests: guests(evidence),
            groups: groups
                .iter()
                .filter(|group| group.name != GroupName::Paths)
                .map(|group| group_view(evidence, group))
                .collect(),
            reach,
            measured: measurements::view(evidence),
            real_time: real_time::view(evidence),
            audit: audit::view(evidence),
            steps: steps(evidence),
            times: times(evidence),
            origin: origin::rows(evidence),
            model_name: one_line(&evidence.model.name),
            model_text: printable(&evidence.model.text).into_owned(),
            serial_log: evidence.serial_log.as_deref().map(|log| printable(log).into_owned()),
        }
    }
}

fn tallies(evidence: &Evidence) -> Vec<Tally> {
    let counts = evidence.counts();
    if counts.total() == 0 && evidence.measurements.is_some() {
        return measured_tallies(evidence);
    }
    let tally = |outcome, count, loud, note: &str| Tally {
        mark: Mark::of(outcome),
        count,
        loud,
        note: note.to_owned(),
    };
    let allowed = match (counts.allowed, counts.pretended) {
        (0, 0) => "the device cannot do it".to_owned(),
        (allowed, 0) if allowed == counts.unsupported => "best effort: allowed by the model".to_owned(),
        (0, pretended) if pretended == counts.unsupported => "an emulated NIC only pretends".to_owned(),
        (allowed, 0) => format!("{allowed} of them allowed by the model"),
        (0, pretended) => format!("{pretended} of them an emulated NIC only pretends"),
        (allowed, pretended) => {
            format!("{allowed} of them allowed by the model; {pretended} an emulated NIC only pretends")
        }
    };
    let unseen = match counts.hidden {
        0 => "could not be seen".to_owned(),
        hidden if hidden == counts.unknown => "out of sight, as the model has it".to_owned(),
        hidden => format!("could not be seen; {hidden} of them out of sight, as the model has it"),
    };
    vec![
        tally(Outcome::Pass, counts.pass, counts.pass > 0, "seen, as the model says"),
        tally(Outcome::Fail, counts.fail, counts.fail > 0, "seen, and otherwise"),
        tally(Outcome::Unsupported, counts.unsupported, counts.unsupported > counts.excused(), &allowed),
        tally(Outcome::Unknown, counts.unknown, counts.unknown > counts.hidden, &unseen),
    ]
}

/// The same for a run that verified nothing and measured.
fn measured_tallies(evidence: &Evidence) -> Vec<Tally> {
    let counts = evidence.measurements.as_ref().map(|measurements| measurements.counts()).unwrap_or_default();
    let missing = match counts.not_reached {
        0 => "cells that should have been measured".to_owned(),
        some => format!("cells that should have been measured; {some} more were not reached"),
    };
    let asked = evidence.rulings().len() - evidence.expectations_with(Conclusion::NotAsked);
    let mark = |symbol, word, class| Mark { symbol, word, class };
    let tally =
        |mark, count: usize, note: &str| Tally { mark, count, loud: count > 0, note: note.to_owned() };
    vec![
        tally(mark("✓", "measured", "pass"), counts.measured, "cells with samples that count"),
        tally(mark("?", "missing", "unknown"), counts.missing, &missing),
        tally(
            mark("✓", "hold", "pass"),
            evidence.expectations_with(Conclusion::Holds),
            "expectations, with their whole interval",
        ),
        tally(
            mark("✗", "do not hold", "fail"),
            asked - evidence.expectations_with(Conclusion::Holds),
            "expectations, or they were not measured or cannot be told",
        ),
    ]
}

/// The few facts that stand at the top.
fn facts(evidence: &Evidence) -> Vec<(&'static str, String)> {
    let run = &evidence.run;
    [
        ("Run", run.id.clone()),
        ("Started", run.started.clone()),
        ("Took", seconds::text(run.took)),
        ("Model", evidence.model.name.clone()),
        ("Command", run.command.join(" ")),
    ]
    .into_iter()
    .map(|(name, value)| (name, one_line(&value)))
    .filter(|(_, value)| !value.is_empty())
    .collect()
}

fn owned(evidence: &Evidence) -> Vec<OwnedRow> {
    let guests = evidence.machine.guests.iter().enumerate();
    guests
        .map(|(index, guest)| {
            let interfaces = guest.functions.iter().map(|owned| {
                let addresses: Vec<String> = owned.addresses.iter().map(ToString::to_string).collect();
                format!("{} = {} {}", owned.interface, owned.function, addresses.join(" "))
                    .trim_end()
                    .to_owned()
            });
            let nics = guest.nics.iter().map(|(name, nic)| format!("{name}, {}", picture::uplink_words(nic)));
            OwnedRow {
                colour: picture::colour(index),
                guest: guest.name.to_string(),
                kind: kind_word(guest.kind),
                functions: guest.owns(),
                interfaces: interfaces.chain(nics).collect::<Vec<String>>().join("\n"),
            }
        })
        .collect()
}

fn guests(evidence: &Evidence) -> Vec<GuestKey> {
    let guests = evidence.machine.guests.iter().enumerate();
    guests
        .map(|(index, guest)| GuestKey { name: guest.name.to_string(), colour: picture::colour(index) })
        .collect()
}
