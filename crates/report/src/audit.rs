//! Audits of the machine as the page and Markdown show them: the score and what is wrong first, then every row by its layer.

use std::fmt::{self, Write};

use penstock_model::{
    audit::{Audit, AuditOutcome, Row},
    measurement::run_comparison::pair,
};
use serde::Serialize;

use crate::{Audits, Evidence, markdown_text::plain, printable::one_line, shown};

/// No more rows than this of one kind.
const MOST_ROWS: usize = 300;

/// Everything that the template names.
#[derive(Serialize)]
pub(crate) struct View {
    /// What the scores come to, before and after.
    scores: Vec<Score>,
    /// Rows that came out differently after the run.
    changed: Vec<Changed>,
    changed_left_out: usize,
    /// Conflicts, failures and what could not be read, the gravest first.
    bad: Vec<RowView>,
    bad_left_out: usize,
    layers: Vec<Layer>,
    left_out: Vec<(String, String)>,
    blind: Vec<[String; 3]>,
    /// Whether all that is shown of the rows is from after the run, when it has no audit before.
    after_only: bool,
    cpus: String,
}

#[derive(Serialize)]
struct Score {
    when: &'static str,
    percent: u32,
    /// How many rows came out how: the word, its class, the count.
    counts: Vec<(&'static str, &'static str, usize)>,
    without_root: String,
}

#[derive(Serialize)]
struct Changed {
    rule: String,
    subject: String,
    before: Mark,
    after: Mark,
    read_before: String,
    read_after: String,
}

#[derive(Serialize)]
struct Layer {
    name: String,
    about: String,
    open: bool,
    rows: Vec<RowView>,
    left_out: usize,
}

#[derive(Clone, Copy, Serialize)]
struct Mark {
    symbol: &'static str,
    word: &'static str,
    class: &'static str,
}

#[derive(Serialize)]
struct RowView {
    mark: Mark,
    rule: String,
    subject: String,
    read: String,
    wanted: String,
    why: String,
    price: String,
    change: String,
    source: String,
    needs_root: bool,
}

fn mark(outcome: AuditOutcome) -> Mark {
    let (symbol, word, class) = match outcome {
        AuditOutcome::Pass => ("✓", "pass", "pass"),
        AuditOutcome::Fail => ("✗", "fail", "fail"),
        AuditOutcome::Unknown => ("?", "unknown", "unknown"),
        AuditOutcome::Conflict => ("⚡", "conflict", "fail"),
        AuditOutcome::Recorded => ("–", "recorded", "unsupported"),
    };
    Mark { symbol, word, class }
}

/// Of a rule that one of two audits did not apply.
const NOT_APPLIED: Mark = Mark { symbol: "–", word: "not applied", class: "unsupported" };

/// The gravest first.
fn rank(outcome: AuditOutcome) -> u8 {
    match outcome {
        AuditOutcome::Conflict => 0,
        AuditOutcome::Fail => 1,
        AuditOutcome::Unknown => 2,
        AuditOutcome::Pass => 3,
        AuditOutcome::Recorded => 4,
    }
}

/// The audits of a run; `None` when it made none.
pub(crate) fn view(evidence: &Evidence) -> Option<View> {
    let audits = evidence.audits.as_ref()?;
    let main = audits.before.as_ref().or(audits.after.as_ref())?;
    let both = [("before", &audits.before), ("after", &audits.after)];
    let mut bad: Vec<&Row> = main.rows.iter().filter(|row| rank(row.verdict) < 3).collect();
    // What came to be wrong during the run is not in the audit before it.
    let was_bad = |row: &Row| bad.iter().any(|was| was.rule == row.rule && was.subject == row.subject);
    let since = audits.before.as_ref().and(audits.after.as_ref()).map(|after| after.rows.as_slice());
    let since: Vec<&Row> =
        (since.unwrap_or_default().iter()).filter(|row| rank(row.verdict) < 3 && !was_bad(row)).collect();
    bad.extend(since);
    bad.sort_by_key(|row| rank(row.verdict));
    let mut changed = changed(audits);
    let changed_left_out = changed.len().saturating_sub(MOST_ROWS);
    changed.truncate(MOST_ROWS);
    Some(View {
        scores: both.into_iter().filter_map(|(when, audit)| Some(score(when, audit.as_ref()?))).collect(),
        changed,
        changed_left_out,
        bad_left_out: bad.len().saturating_sub(MOST_ROWS),
        bad: bad.into_iter().take(MOST_ROWS).map(row).collect(),
        layers: layers(main),
        left_out: main.left_out.iter().map(|rule| (one_line(&rule.rule), one_line(&rule.why))).collect(),
        blind: (main.blind.iter())
            .map(|blind| [&blind.what, &blind.why, &blind.instead].map(|text| one_line(text)))
            .collect(),
        after_only: audits.before.is_none(),
        cpus: main.cpus.to_string(),
    })
}

fn score(when: &'static str, audit: &Audit) -> Score {
    let score = &audit.score;
    let counts = vec![
        ("conflict", "fail", score.conflict),
        ("fail", "fail", score.fail),
        ("unknown", "unknown", score.unknown),
        ("pass", "pass", score.pass),
        ("recorded", "unsupported", score.recorded),
    ];
    let all: usize = counts.iter().map(|(.., count)| count).sum();
    Score {
        when,
        percent: score.percent,
        counts,
        without_root: format!("{} of {all} read without root", score.without_root),
    }
}

/// What came out differently after the run: then it was not the same machine all the time.
fn changed(audits: &Audits) -> Vec<Changed> {
    let (Some(before), Some(after)) = (&audits.before, &audits.after) else { return Vec::new() };
    let pairs = pair(&before.rows, &after.rows, |row| (row.rule.as_str(), row.subject.as_str()));
    let changed = pairs.into_iter().filter_map(|(was, is)| {
        let row = was.or(is)?;
        // A rule that was applied once only is about something that came or went.
        let differs = was.map(|row| row.verdict) != is.map(|row| row.verdict);
        let read =
            |row: Option<&Row>| row.map_or_else(|| "not applied".to_owned(), |row| one_line(&row.read));
        differs.then(|| Changed {
            rule: one_line(&row.rule),
            subject: one_line(&row.subject),
            before: was.map_or(NOT_APPLIED, |row| mark(row.verdict)),
            after: is.map_or(NOT_APPLIED, |row| mark(row.verdict)),
            read_before: read(was),
            read_after: read(is),
        })
    });
    changed.collect()
}

fn row(row: &Row) -> RowView {
    RowView {
        mark: mark(row.verdict),
        rule: one_line(&row.rule),
        subject: one_line(&row.subject),
        read: one_line(&row.read),
        wanted: one_line(&row.wanted),
        why: one_line(&row.why),
        price: (row.price.as_ref())
            .map(|price| format!("{}: {}", price.currency, one_line(&price.what)))
            .unwrap_or_default(),
        change: row.change.as_deref().map(one_line).unwrap_or_default(),
        source: one_line(&row.source),
        needs_root: row.needs_root,
    }
}

fn layers(audit: &Audit) -> Vec<Layer> {
    let mut layers: Vec<(penstock_model::audit::Layer, Vec<&Row>)> = Vec::new();
    for row in &audit.rows {
        match layers.iter_mut().find(|(layer, _)| *layer == row.layer) {
            Some((_, rows)) => rows.push(row),
            None => layers.push((row.layer, vec![row])),
        }
    }
    let shown = layers.into_iter().map(|(layer, mut rows)| {
        rows.sort_by_key(|row| rank(row.verdict));
        let passed = rows.iter().filter(|row| rank(row.verdict) >= 3).count();
        Layer {
            name: layer.to_string(),
            about: match rows.len() - passed {
                0 => shown::many(rows.len(), "row"),
                bad => format!("{}, {bad} of them not as they should be", shown::many(rows.len(), "row")),
            },
            open: false,
            left_out: rows.len().saturating_sub(MOST_ROWS),
            rows: rows.into_iter().take(MOST_ROWS).map(self::row).collect(),
        }
    });
    shown.collect()
}

/// The audits in one line for a terminal.
pub(crate) fn line(evidence: &Evidence) -> Option<String> {
    let audits = evidence.audits.as_ref()?;
    let one = |when: &str, audit: &Option<Audit>| {
        let score = &audit.as_ref()?.score;
        Some(format!(
            "{when} {} % ({}, {} failed, {} unknown)",
            score.percent,
            shown::many(score.conflict, "conflict"),
            score.fail,
            score.unknown
        ))
    };
    let parts = [one("before", &audits.before), one("after", &audits.after)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("audit: {}", parts.join(", ")))
}

/// What is wrong, as Markdown. Writes nothing when there was no audit.
pub(crate) fn markdown(to: &mut String, evidence: &Evidence) -> fmt::Result {
    let Some(view) = view(evidence) else { return Ok(()) };
    writeln!(to, "## Audit\n")?;
    for score in &view.scores {
        let counts: Vec<String> =
            score.counts.iter().map(|(word, _, count)| format!("{count} {word}")).collect();
        writeln!(
            to,
            "{} the run: **{} %** as they should be ({}; {}).\n",
            if score.when == "before" { "Before" } else { "After" },
            score.percent,
            counts.join(", "),
            score.without_root
        )?;
    }
    for one in &view.changed {
        writeln!(
            to,
            "- {} ({}) was {} and is {} now: {}",
            plain(&one.rule),
            plain(&one.subject),
            one.before.word,
            one.after.word,
            plain(&one.read_after)
        )?;
    }
    if view.changed_left_out > 0 {
        writeln!(to, "- and {}; the JSON has them all", shown::many(view.changed_left_out, "more row"))?;
    }
    if !view.changed.is_empty() {
        writeln!(to)?;
    }
    if !view.bad.is_empty() {
        writeln!(to, "| | rule | about | read | wanted | change |\n|---|---|---|---|---|---|")?;
        for row in &view.bad {
            writeln!(
                to,
                "| {} {} | {} | {} | {} | {} | {} |",
                row.mark.symbol,
                row.mark.word,
                plain(&row.rule),
                plain(&row.subject),
                plain(&row.read),
                plain(&row.wanted),
                plain(&row.change)
            )?;
        }
        if view.bad_left_out > 0 {
            writeln!(to, "\nAnd {}; the JSON has them all.", shown::many(view.bad_left_out, "more row"))?;
        }
        writeln!(to)?;
    }
    Ok(())
}
