//! What a run came to, for a terminal and for the exit status.

use std::fmt::{self, Write};

use penstock_measure::{
    event::{CellSample, Event},
    matrix::Matrix,
};
use penstock_model::{
    measurement::{
        Claim, Conclusion, ExpectationResult, Measurements, Metric, Quantity, Status as CellStatus, Summary,
    },
    text::counted,
};

use crate::{failure::Status, ui::live::Live};

/// No more reasons than this are listed.
const REASONS: usize = 8;

/// The exit status that they come to.
pub fn status(measurements: &Measurements) -> Status {
    if measurements.holds() { Status::Holds } else { Status::DoesNotHold }
}

/// The table of what is known best, of at most `width` columns, each `expect:` line, and what is missing.
pub fn text(measurements: &Measurements, matrix: &Matrix, width: Option<usize>) -> String {
    let mut live = Live::new(matrix, &measurements.rules, measurements.emulated);
    for cell in &measurements.cells {
        let Some(summary) = cell.summary(cell.measurement.main_metric()) else { continue };
        live.tell(&Event::Sampled(CellSample {
            cell: cell.id.clone(),
            path: None,
            metric: summary.metric,
            value: Some(summary.median),
            why: None,
            median: Some(summary.median),
            interval: summary.interval,
            samples: summary.n,
        }));
    }
    let mut text = String::new();
    live.tables(width.unwrap_or(usize::MAX), usize::MAX).into_iter().for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    text.push_str(&cpu(measurements));
    rulings(&mut text, &measurements.rulings, |ruling, claim| {
        let seen = claim.seen.map_or_else(String::new, |seen| format!(": {seen:.3}"));
        format!("{} of {}{seen}", ruling.expectation.metric(), claim.cell)
    });
    let reasons = reasons(measurements);
    for (why, cells) in reasons.iter().take(REASONS) {
        let _ = writeln!(text, "missing: {}: {why}", counted(*cells, "cell"));
    }
    if let Some(rest) = reasons.get(REASONS..).filter(|rest| !rest.is_empty()) {
        let cells = counted(rest.iter().map(|(_, cells)| cells).sum(), "cell");
        let _ = writeln!(
            text,
            "missing: {cells}: for {}; evidence.json has every one",
            counted(rest.len(), "other reason")
        );
    }
    text
}

/// A line for each `expect:` line, and one for each of its claims that does not hold: what it is `about` and what was seen, and why.
pub fn rulings<L: fmt::Display>(
    text: &mut String,
    rulings: &[ExpectationResult<L>],
    about: impl Fn(&ExpectationResult<L>, &Claim) -> String,
) {
    for ruling in rulings {
        let _ = writeln!(text, "{}: {}", ruling.told, ruling.expectation);
        // What holds has something to say where it does not hold of all that one may think of.
        let says = |claim: &&Claim| claim.told != Conclusion::Holds || claim.why.is_some();
        let open: Vec<_> = ruling.claims.iter().filter(says).collect();
        for claim in open.iter().take(REASONS) {
            let why = claim.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            let _ = writeln!(text, "  {}{why}", about(ruling, claim));
        }
        if open.len() > REASONS {
            let _ = writeln!(text, "  and {} more; evidence.json has every one", open.len() - REASONS);
        }
    }
}

/// The CPU time that streams by VMs' own NICs took, a line for each cell; nothing where there is none.
fn cpu(measurements: &Measurements) -> String {
    let mark = if measurements.emulated { ", emulated" } else { "" };
    let mut text = String::new();
    for cell in measurements.cells.iter().filter(|cell| !cell.null) {
        let of = |metric: Metric| {
            let summary = cell.summary(metric);
            let told =
                |summary: &Summary| Quantity { value: summary.median, unit: metric.unit() }.to_string();
            summary.map_or_else(|| "not seen".to_owned(), told)
        };
        let seen =
            [Metric::GuestCpuPerGbit, Metric::HostCpuPerGbit].map(|metric| cell.summary(metric).is_some());
        if !seen.contains(&true) {
            continue;
        }
        if text.is_empty() {
            let _ = writeln!(
                text,
                "CPU seconds per Gbit, in the VM and of its QEMU and switch on the host{mark}:"
            );
        }
        let (guest, host) = (of(Metric::GuestCpuPerGbit), of(Metric::HostCpuPerGbit));
        let _ = write!(text, "  {}: VM {guest}, host {host}", cell.id);
        let instructions = [Metric::GuestInstructionsPerFrame, Metric::HostInstructionsPerFrame];
        if instructions.iter().any(|metric| cell.summary(*metric).is_some()) {
            let [guest, host] = instructions.map(of);
            let _ = write!(text, "; VM {guest}, host {host}");
        }
        text.push('\n');
    }
    text
}

/// Why cells are missing, the most frequent reason first. What was not reached because the run was over is none of them: the run's
/// sentence says that it was stopped, and how much was measured.
fn reasons(measurements: &Measurements) -> Vec<(&str, usize)> {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for cell in &measurements.cells {
        let CellStatus::Missing { why, cut_short: None } = &cell.status else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, cells)) => *cells += 1,
            None => reasons.push((why, 1)),
        }
    }
    reasons.sort_by_key(|(_, cells)| std::cmp::Reverse(*cells));
    reasons
}
