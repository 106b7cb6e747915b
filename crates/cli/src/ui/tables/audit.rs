//! An audit as a person reads it: what is wrong first, with what to do about it; then what could not be seen; then how much is
//! right.

use std::fmt::Write;

use penstock_model::{
    audit::{Audit, AuditOutcome, Row},
    text::one_line as plain,
};

use crate::ui::paragraphs::Paragraphs;

/// Where the text of a row's parts begins.
const INDENT: usize = 12;

/// The audit as text of at most `width` columns but for what is there to be copied; with `verbose` every row in full, and
/// what was left out.
pub fn table(audit: &Audit, verbose: bool, width: Option<usize>) -> String {
    let mut out = Paragraphs::new(width);
    let cpus = match audit.cpus.0.len() {
        0 => "no CPU is isolated".to_owned(),
        _ => format!("CPUs {}", audit.cpus),
    };
    out.wrapped("", &plain(&format!("Linux {}, {}: {cpus}", audit.kernel, audit.cpu)));
    let wrong = |row: &&Row| matches!(row.verdict, AuditOutcome::Fail | AuditOutcome::Conflict);
    in_full(&audit.rows.iter().filter(wrong).collect::<Vec<_>>(), &mut out);
    let other = |row: &&Row| !wrong(row) && (verbose || row.verdict == AuditOutcome::Unknown);
    let other: Vec<&Row> = audit.rows.iter().filter(other).collect();
    if verbose {
        in_full(&other, &mut out);
    } else {
        in_short(&other, &mut out);
    }
    if verbose && !audit.left_out.is_empty() {
        out.heading("Not asked");
        for left in &audit.left_out {
            out.wrapped("  - ", &plain(&format!("{}: {}", left.rule, left.why)));
        }
    }
    blind(audit, verbose, &mut out);
    score(audit, verbose, &mut out);
    out.finish()
}

/// Rows below their layers, from the firmware up.
fn in_full(rows: &[&Row], out: &mut Paragraphs) {
    for layer in rows.chunk_by(|a, b| a.layer == b.layer) {
        let Some(first) = layer.first() else { continue };
        out.heading(&capital(&first.layer.to_string()));
        for row in layer {
            full(row, out);
        }
    }
}

fn full(row: &Row, out: &mut Paragraphs) {
    let head = format!("{}: {}", row.rule, row.subject);
    out.wrapped(&format!("  {:<9} ", row.verdict), &plain(&head));
    let mut part = |name: &str, text: &str| {
        if !text.is_empty() {
            out.wrapped(&format!("{:INDENT$}{name:<7} ", ""), &plain(text));
        }
    };
    part("read", &row.read);
    if row.verdict != AuditOutcome::Pass {
        part("wanted", &row.wanted);
        part("why", &row.why);
    }
    if let Some(price) = &row.price {
        part("price", &format!("{}: {}", price.currency, price.what));
    }
    if row.verdict != AuditOutcome::Pass {
        part("source", &row.source);
    }
    // It is there to be copied: no line of it is broken.
    for (position, line) in row.change.iter().flat_map(|change| change.lines()).enumerate() {
        let name = if position == 0 { "change" } else { "" };
        let _ = writeln!(out, "{:INDENT$}{name:<7} {}", "", plain(line));
    }
}

/// Rows that could not be judged, one line each, those with the same rule and reason together.
fn in_short(rows: &[&Row], out: &mut Paragraphs) {
    if rows.is_empty() {
        return;
    }
    out.heading("Not known");
    for alike in rows.chunk_by(|a, b| (&a.rule, &a.read) == (&b.rule, &b.read)) {
        let Some(first) = alike.first() else { continue };
        let subjects: Vec<&str> = alike.iter().map(|row| row.subject.as_str()).collect();
        let text = format!("{} ({}): {}", first.rule, subjects.join(", "), first.read);
        out.wrapped("  - ", &plain(&text));
    }
}

/// What cannot be seen from a running system.
fn blind(audit: &Audit, verbose: bool, out: &mut Paragraphs) {
    if audit.blind.is_empty() {
        return;
    }
    out.heading("Out of sight from a running system");
    for blind in &audit.blind {
        out.wrapped("  - ", &plain(&blind.what));
        if verbose {
            out.wrapped("      why     ", &plain(&blind.why));
            out.wrapped("      instead ", &plain(&blind.instead));
        }
    }
}

fn score(audit: &Audit, verbose: bool, out: &mut Paragraphs) {
    let score = audit.score;
    let all = score.pass + score.fail + score.conflict + score.unknown;
    let _ = writeln!(out);
    let counts = format!(
        "Score {} %: {} pass, {} fail, {} conflict, {} unknown of {all} rows; {} more are listed and not judged.",
        score.percent, score.pass, score.fail, score.conflict, score.unknown, score.recorded,
    );
    out.wrapped("", &counts);
    let for_root = |row: &&Row| row.verdict == AuditOutcome::Unknown && row.needs_root;
    let for_root = audit.rows.iter().filter(for_root).count();
    if for_root > 0 {
        let text = format!("{for_root} of the unknown rows take root to read, and unknown is no pass.");
        out.wrapped("", &text);
    }
    if !verbose {
        out.wrapped("", "--verbose shows every row in full, and where to look for what is out of sight.");
    }
}

fn capital(text: &str) -> String {
    match text {
        "vm" => "VMs".to_owned(),
        _ => {
            let mut letters = text.chars();
            letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_model::audit::{Currency, Layer, LeftOut, Price, Score, Unobservable};

    use super::*;

    fn row(rule: &str, layer: Layer, verdict: AuditOutcome) -> Row {
        Row {
            rule: rule.to_owned(),
            layer,
            subject: "CPUs 2-3".to_owned(),
            verdict,
            read: "IRQ 35 on CPU 2\u{1b}[2J".to_owned(),
            wanted: "no IRQ there".to_owned(),
            why: "it takes the CPU away".to_owned(),
            price: Some(Price { currency: Currency::Power, what: "none to speak of".to_owned() }),
            ways: Vec::new(),
            change: Some(format!("echo 0-1 > /proc/irq/35/smp_affinity_list # {}", "x".repeat(120))),
            source: "kernel".to_owned(),
            needs_root: verdict == AuditOutcome::Unknown,
        }
    }

    fn example() -> Audit {
        let rows = vec![
            row("kernel-is-fine", Layer::Kernel, AuditOutcome::Pass),
            row("irqs", Layer::Interrupts, AuditOutcome::Conflict),
            row("fair-server", Layer::Scheduling, AuditOutcome::Unknown),
        ];
        Audit {
            kernel: "6.12.1".to_owned(),
            cpu: "Example CPU".to_owned(),
            cpus: "2-3".parse().unwrap(),
            score: Score::of(&rows),
            rows,
            left_out: vec![LeftOut { rule: "cache".to_owned(), why: "nobody asks".to_owned() }],
            blind: vec![Unobservable {
                what: "SMIs".to_owned(),
                why: "late".to_owned(),
                instead: "hwlatdetect".to_owned(),
            }],
        }
    }

    #[test]
    fn what_is_wrong_comes_first_and_its_change_can_be_copied() {
        let text = table(&example(), false, Some(110));
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in:\n{text}"));
        assert!(at("conflict") < at("Not known") && at("Not known") < at("Score 33 %"), "{text}");
        let change = example().rows[1].change.clone().unwrap();
        assert!(text.lines().any(|line| line.ends_with(&change)), "{text}");
        assert!(
            !text.contains("kernel-is-fine") && !text.contains("hwlatdetect") && !text.contains('\u{1b}')
        );
        assert!(text.contains("1 of the unknown rows take root"), "{text}");
    }

    #[test]
    fn verbose_shows_all_of_it() {
        let text = table(&example(), true, Some(110));
        for wanted in ["pass      kernel-is-fine", "hwlatdetect", "nobody asks", "unknown   fair-server"] {
            assert!(text.contains(wanted), "{wanted} is not in:\n{text}");
        }
        assert!(!text.contains("--verbose"));
    }
}
