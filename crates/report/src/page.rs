//! Evidence as one self-contained HTML page.

use std::{sync::LazyLock, time::Duration};

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, value::Serde};
use penstock_model::{
    Outcome, Verdict,
    verdict::{Subject, Vantage},
};
use serde::Serialize;

use crate::{
    Evidence, Group, GroupName, StepOutcome, StepRecord,
    machine::{kind_word, ranges},
    origin,
    picture::{self, Picture},
    printable::{one_line, printable},
    reach::{self, Level},
    seconds,
    sentence::sentence,
};

/// No more verdicts than this that hold are listed in one group, nor more of those that do not.
const MOST_ROWS: usize = 500;
/// No more failures than this are listed under the verdict.
const MOST_CALLED_OUT: usize = 8;
/// No more wrong paths than this are listed.
const MOST_WRONG_PATHS: usize = 200;
/// No more steps that went through than this are listed.
const MOST_STEPS: usize = 1_000;

/// The sections, and what they stand in. They are part of the binary: the page is the same wherever it is made.
const TEMPLATES: [(&str, &str); 9] = [
    ("page.html", include_str!("../templates/page.html")),
    ("style.css", include_str!("../templates/style.css")),
    ("verdict.html", include_str!("../templates/verdict.html")),
    ("machine.html", include_str!("../templates/machine.html")),
    ("picture.html", include_str!("../templates/picture.html")),
    ("attributes.html", include_str!("../templates/attributes.html")),
    ("reachability.html", include_str!("../templates/reachability.html")),
    ("course.html", include_str!("../templates/course.html")),
    ("origin.html", include_str!("../templates/origin.html")),
];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, source) in TEMPLATES {
        environment
            .add_template(name, source)
            .expect("the templates are part of the binary, and every test parses them");
    }
    environment
});

/// The evidence as one HTML page that asks for nothing outside itself: no script, no font, no image.
pub fn html(evidence: &Evidence) -> String {
    ENVIRONMENT
        .get_template("page.html")
        .and_then(|page| page.render(Value::from(Serde(Page::of(evidence)))))
        .expect(
            "the page's fields are those that the templates name; a property test renders arbitrary evidence",
        )
}

/// Everything that the templates name.
#[derive(Serialize)]
struct Page {
    machine: String,
    emulated: bool,
    holds: bool,
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

/// An outcome in a symbol, a word and a class.
#[derive(Clone, Copy, Serialize)]
struct Mark {
    symbol: &'static str,
    word: &'static str,
    class: &'static str,
}

impl Mark {
    fn of(outcome: Outcome) -> Mark {
        let (symbol, word) = match outcome {
            Outcome::Pass => ("✓", "pass"),
            Outcome::Fail => ("✗", "fail"),
            Outcome::Unsupported => ("–", "unsupported"),
            Outcome::Unknown => ("?", "unknown"),
        };
        Mark { symbol, word, class: word }
    }
}

#[derive(Serialize)]
struct VerdictRow {
    subject: String,
    attribute: String,
    wanted: String,
    seen: String,
    vantage: String,
    mark: Mark,
    best_effort: bool,
    out_of_sight: bool,
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

#[derive(Serialize)]
struct GroupView {
    name: String,
    about: &'static str,
    colour: String,
    holds: bool,
    counts: String,
    subjects: Vec<SubjectRows>,
    left_out: usize,
}

#[derive(Serialize)]
struct SubjectRows {
    subject: String,
    rows: Vec<VerdictRow>,
}

#[derive(Serialize)]
struct Reach {
    by: &'static str,
    counted: bool,
    total: usize,
    ends: Vec<ReachEnd>,
    rows: Vec<ReachRow>,
    wrong: Vec<VerdictRow>,
    wrong_left_out: usize,
}

#[derive(Serialize)]
struct ReachEnd {
    name: String,
    colour: String,
    owner: String,
}

#[derive(Serialize)]
struct ReachRow {
    end: usize,
    cells: Vec<ReachCell>,
}

#[derive(Serialize)]
struct ReachCell {
    symbol: &'static str,
    class: &'static str,
    words: &'static str,
    count: usize,
}

#[derive(Serialize)]
struct Steps {
    open: bool,
    about: String,
    rows: Vec<StepRow>,
    left_out: usize,
}

#[derive(Serialize)]
struct StepRow {
    id: u32,
    what: String,
    why: String,
    time: String,
    mark: Mark,
    detail: String,
}

#[derive(Serialize)]
struct Times {
    total: String,
    bars: Vec<Bar>,
}

#[derive(Serialize)]
struct Bar {
    name: String,
    time: String,
    /// Where it begins and how long it is, in percent of the whole.
    start: String,
    width: String,
    share: String,
    rest: bool,
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
        Page {
            machine: one_line(&evidence.machine.name),
            emulated: evidence.machine.emulated,
            holds: evidence.holds(),
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
            steps: steps(evidence),
            times: times(evidence),
            origin: origin::rows(evidence),
            model_name: one_line(&evidence.model.name),
            model_text: printable(&evidence.model.text).into_owned(),
            serial_log: evidence.serial_log.as_deref().map(|log| printable(log).into_owned()),
        }
    }
}

fn row(verdict: &Verdict) -> VerdictRow {
    VerdictRow {
        subject: subject(&verdict.subject),
        attribute: one_line(&verdict.attribute),
        wanted: one_line(&verdict.wanted),
        seen: one_line(&verdict.seen),
        vantage: match &verdict.vantage {
            Vantage::Host => "the host".to_owned(),
            inside => inside.to_string(),
        },
        mark: Mark::of(verdict.outcome),
        best_effort: verdict.best_effort,
        out_of_sight: verdict.out_of_sight,
    }
}

fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Path { from, to } => format!("{from} → {to}"),
        other => other.to_string(),
    }
}

fn tallies(evidence: &Evidence) -> Vec<Tally> {
    let counts = evidence.counts();
    let tally = |outcome, count, loud, note: &str| Tally {
        mark: Mark::of(outcome),
        count,
        loud,
        note: note.to_owned(),
    };
    let allowed = match counts.allowed {
        0 => "the device cannot do it".to_owned(),
        allowed if allowed == counts.unsupported => "best effort: allowed by the model".to_owned(),
        allowed => format!("{allowed} of them allowed by the model"),
    };
    let unseen = match counts.hidden {
        0 => "could not be seen".to_owned(),
        hidden if hidden == counts.unknown => "out of sight, as the model has it".to_owned(),
        hidden => format!("could not be seen; {hidden} of them out of sight, as the model has it"),
    };
    vec![
        tally(Outcome::Pass, counts.pass, counts.pass > 0, "seen, as the model says"),
        tally(Outcome::Fail, counts.fail, counts.fail > 0, "seen, and otherwise"),
        tally(Outcome::Unsupported, counts.unsupported, counts.unsupported > counts.allowed, &allowed),
        tally(Outcome::Unknown, counts.unknown, counts.unknown > counts.hidden, &unseen),
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
            OwnedRow {
                colour: picture::colour(index),
                guest: guest.name.to_string(),
                kind: kind_word(guest.kind),
                functions: ranges(guest.functions.iter().map(|owned| &owned.function)),
                interfaces: interfaces.collect::<Vec<String>>().join("\n"),
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

fn group_view(evidence: &Evidence, group: &Group<'_>) -> GroupView {
    let guest = match &group.name {
        GroupName::Guest(name) => evidence.machine.guests.iter().position(|guest| guest.name == *name),
        _ => None,
    };
    let mut subjects: Vec<SubjectRows> = Vec::new();
    let (mut good, mut bad) = (0, 0);
    for verdict in &group.verdicts {
        let so_far = if verdict.holds() { &mut good } else { &mut bad };
        *so_far += 1;
        if *so_far > MOST_ROWS {
            continue;
        }
        let name = subject(&verdict.subject);
        match subjects.last_mut() {
            Some(last) if last.subject == name => last.rows.push(row(verdict)),
            _ => subjects.push(SubjectRows { subject: name, rows: vec![row(verdict)] }),
        }
    }
    let shown: usize = subjects.iter().map(|subject| subject.rows.len()).sum();
    GroupView {
        name: group.name.to_string(),
        about: match &group.name {
            GroupName::Machine => "the machine as a whole",
            GroupName::Nic(_) => "NIC, PF and VFs that no guest owns",
            GroupName::Guest(_) => "guest and its functions",
            GroupName::Paths => "which functions reach which",
        },
        colour: guest.map(picture::colour).unwrap_or_default(),
        holds: group.counts.hold(),
        counts: group.counts.to_string(),
        subjects,
        left_out: group.verdicts.len() - shown,
    }
}

fn reach_view(evidence: &Evidence) -> Option<Reach> {
    let matrix = reach::matrix(evidence)?;
    let owner = |index: Option<usize>| {
        let guest = index.and_then(|index| evidence.machine.guests.get(index));
        match matrix.level {
            Level::Function => guest.map_or_else(|| "host".to_owned(), |guest| guest.name.to_string()),
            Level::Guest | Level::Nic => String::new(),
        }
    };
    let rows = matrix.cells.iter().enumerate().map(|(end, cells)| ReachRow {
        end,
        cells: cells
            .iter()
            .map(|cell| {
                let (symbol, class, words) = cell.mark();
                ReachCell { symbol, class, words, count: cell.total() }
            })
            .collect(),
    });
    Some(Reach {
        by: match matrix.level {
            Level::Function => "function",
            Level::Guest => "guest",
            Level::Nic => "NIC",
        },
        counted: matrix.level != Level::Function,
        total: matrix.total,
        rows: rows.collect(),
        ends: matrix
            .ends
            .iter()
            .map(|end| ReachEnd {
                name: end.name.clone(),
                colour: end.guest.map(picture::colour).unwrap_or_default(),
                owner: owner(end.guest),
            })
            .collect(),
        wrong: matrix.wrong.iter().take(MOST_WRONG_PATHS).map(|verdict| row(verdict)).collect(),
        wrong_left_out: matrix.wrong.len().saturating_sub(MOST_WRONG_PATHS),
    })
}

fn steps(evidence: &Evidence) -> Option<Steps> {
    if evidence.steps.is_empty() {
        return None;
    }
    let mut through = 0;
    let rows: Vec<StepRow> = evidence
        .steps
        .iter()
        .filter(|step| {
            through += usize::from(step.outcome.holds());
            !step.outcome.holds() || through <= MOST_STEPS
        })
        .map(step_row)
        .collect();
    let bad = evidence.steps.iter().filter(|step| !step.outcome.holds()).count();
    let total: Duration =
        evidence.steps.iter().filter_map(|step| step.took).fold(Duration::ZERO, Duration::saturating_add);
    let went = match bad {
        0 => "all went through".to_owned(),
        bad => format!("{bad} did not go through"),
    };
    Some(Steps {
        open: bad > 0,
        about: format!("{} steps, {went}, {}", evidence.steps.len(), seconds::text(total)),
        left_out: evidence.steps.len() - rows.len(),
        rows,
    })
}

fn step_row(step: &StepRecord) -> StepRow {
    let (symbol, class) = match step.outcome {
        StepOutcome::Done | StepOutcome::Already => ("✓", "pass"),
        StepOutcome::Unsupported => ("–", "unsupported"),
        StepOutcome::Skipped => ("·", "unknown"),
        StepOutcome::Undone => ("↩", "unknown"),
        StepOutcome::Failed => ("✗", "fail"),
    };
    StepRow {
        id: step.id,
        what: one_line(&step.what),
        why: one_line(&step.why),
        time: step.took.map(seconds::text).unwrap_or_default(),
        mark: Mark { symbol, word: step.outcome.word(), class },
        detail: step.detail.as_deref().map(one_line).unwrap_or_default(),
    }
}

fn times(evidence: &Evidence) -> Option<Times> {
    if evidence.phases.is_empty() {
        return None;
    }
    let sum = evidence.phases.iter().map(|phase| phase.took).fold(Duration::ZERO, Duration::saturating_add);
    // Phases may overlap the clock's end by a little; the longer of both is the whole.
    let whole = sum.max(evidence.run.took);
    let rest = whole.saturating_sub(sum);
    let mut before = Duration::ZERO;
    let percent = |part: Duration| match whole.as_secs_f64() {
        0.0 => 0.0,
        seconds => part.as_secs_f64() * 100.0 / seconds,
    };
    let mut bar = |name: String, took: Duration, rest: bool| {
        let bar = Bar {
            name,
            time: seconds::text(took),
            start: format!("{:.2}", percent(before)),
            width: format!("{:.2}", percent(took)),
            share: format!("{:.0} %", percent(took)),
            rest,
        };
        before = before.saturating_add(took);
        bar
    };
    let mut bars: Vec<Bar> =
        evidence.phases.iter().map(|phase| bar(one_line(&phase.name), phase.took, false)).collect();
    if percent(rest) >= 1.0 {
        bars.push(bar("everything else".to_owned(), rest, true));
    }
    Some(Times { total: seconds::text(whole), bars })
}
