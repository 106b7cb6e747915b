//! An audit as a person reads it: what is wrong first, with what to do about it; then what could not be seen; then how much is
//! right.

use std::fmt::Write;

use penstock_model::audit::{Audit, Judgement, Row};

use crate::inventory_table::{heading, plain, wrapped};

/// Where the text of a row's parts begins.
const INDENT: usize = 12;

/// The audit as text; with `verbose` every row in full, and what was left out.
pub fn table(audit: &Audit, verbose: bool) -> String {
    let mut out = String::new();
    let cpus = match audit.cpus.0.len() {
        0 => "no CPU is isolated".to_owned(),
        _ => format!("CPUs {}", audit.cpus),
    };
    wrapped(&mut out, "", &plain(&format!("Linux {}, {}: {cpus}", audit.kernel, audit.cpu)));
    let wrong = |row: &&Row| matches!(row.verdict, Judgement::Fail | Judgement::Conflict);
    in_full(&audit.rows.iter().filter(wrong).collect::<Vec<_>>(), &mut out);
    let other = |row: &&Row| !wrong(row) && (verbose || row.verdict == Judgement::Unknown);
    let other: Vec<&Row> = audit.rows.iter().filter(other).collect();
    if verbose {
        in_full(&other, &mut out);
    } else {
        in_short(&other, &mut out);
    }
    if verbose && !audit.left_out.is_empty() {
        heading(&mut out, "Not asked");
        for left in &audit.left_out {
            wrapped(&mut out, "  - ", &plain(&format!("{}: {}", left.rule, left.why)));
        }
    }
    blind(audit, verbose, &mut out);
    score(audit, verbose, &mut out);
    out
}

/// Rows below their layers, from the firmware up.
fn in_full(rows: &[&Row], out: &mut String) {
    for layer in rows.chunk_by(|a, b| a.layer == b.layer) {
        let Some(first) = layer.first() else { continue };
        heading(out, &capital(&first.layer.to_string()));
        for row in layer {
            full(row, out);
        }
    }
}

fn full(row: &Row, out: &mut String) {
    let head = format!("{}: {}", row.rule, row.subject);
    wrapped(out, &format!("  {:<9} ", row.verdict), &plain(&head));
    let mut part = |name: &str, text: &str| {
        if !text.is_empty() {
            wrapped(out, &format!("{:INDENT$}{name:<7} ", ""), &plain(text));
        }
    };
    part("read", &row.read);
    if row.verdict != Judgement::Pass {
        part("wanted", &row.wanted);
        part("why", &row.why);
    }
    if let Some(price) = &row.price {
        part("price", &format!("{}: {}", price.currency, price.what));
    }
    if row.verdict != Judgement::Pass {
        part("source", &row.source);
    }
    // It is there to be copied: no line of it is broken.
    for (position, line) in row.change.iter().flat_map(|change| change.lines()).enumerate() {
        let name = if position == 0 { "change" } else { "" };
        let _ = writeln!(out, "{:INDENT$}{name:<7} {}", "", plain(line));
    }
}

/// Rows that could not be judged, one line each, those with the same rule and reason together.
fn in_short(rows: &[&Row], out: &mut String) {
    if rows.is_empty() {
        return;
    }
    heading(out, "Not known");
    for alike in rows.chunk_by(|a, b| (&a.rule, &a.read) == (&b.rule, &b.read)) {
        let Some(first) = alike.first() else { continue };
        let subjects: Vec<&str> = alike.iter().map(|row| row.subject.as_str()).collect();
        let text = format!("{} ({}): {}", first.rule, subjects.join(", "), first.read);
        wrapped(out, "  - ", &plain(&text));
    }
}

/// What cannot be seen from a running system.
fn blind(audit: &Audit, verbose: bool, out: &mut String) {
    if audit.blind.is_empty() {
        return;
    }
    heading(out, "Out of sight from a running system");
    for blind in &audit.blind {
        wrapped(out, "  - ", &plain(&blind.what));
        if verbose {
            wrapped(out, "      why     ", &plain(&blind.why));
            wrapped(out, "      instead ", &plain(&blind.instead));
        }
    }
}

fn score(audit: &Audit, verbose: bool, out: &mut String) {
    let score = audit.score;
    let all = score.pass + score.fail + score.conflict + score.unknown;
    let _ = writeln!(out);
    let counts = format!(
        "Score {} %: {} pass, {} fail, {} conflict, {} unknown of {all} rows; {} more are told and not judged.",
        score.percent, score.pass, score.fail, score.conflict, score.unknown, score.recorded,
    );
    wrapped(out, "", &counts);
    let for_root = |row: &&Row| row.verdict == Judgement::Unknown && row.needs_root;
    let for_root = audit.rows.iter().filter(for_root).count();
    if for_root > 0 {
        let text = format!("{for_root} of the unknown rows take root to read, and unknown is no pass.");
        wrapped(out, "", &text);
    }
    if !verbose {
        wrapped(out, "", "--verbose shows every row in full, and where to look for what is out of sight.");
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
    use penstock_model::audit::{Blind, Currency, Layer, LeftOut, Price, Score};

    use super::*;

    fn row(rule: &str, layer: Layer, verdict: Judgement) -> Row {
        Row {
            rule: rule.to_owned(),
            layer,
            subject: "CPUs 2-3".to_owned(),
            verdict,
            read: "IRQ 35 on CPU 2\u{1b}[2J".to_owned(),
            wanted: "no IRQ there".to_owned(),
            why: "it takes the CPU away".to_owned(),
            price: Some(Price { currency: Currency::Power, what: "none to speak of".to_owned() }),
            change: Some(format!("echo 0-1 > /proc/irq/35/smp_affinity_list # {}", "x".repeat(120))),
            source: "kernel".to_owned(),
            needs_root: verdict == Judgement::Unknown,
        }
    }

    fn example() -> Audit {
        let rows = vec![
            row("kernel-is-fine", Layer::Kernel, Judgement::Pass),
            row("irqs", Layer::Interrupts, Judgement::Conflict),
            row("fair-server", Layer::Scheduling, Judgement::Unknown),
        ];
        Audit {
            kernel: "6.12.1".to_owned(),
            cpu: "Example CPU".to_owned(),
            cpus: "2-3".parse().unwrap(),
            score: Score::of(&rows),
            rows,
            left_out: vec![LeftOut { rule: "cache".to_owned(), why: "nobody asks".to_owned() }],
            blind: vec![Blind {
                what: "SMIs".to_owned(),
                why: "late".to_owned(),
                instead: "hwlatdetect".to_owned(),
            }],
        }
    }

    #[test]
    fn what_is_wrong_comes_first_and_its_change_can_be_copied() {
        let text = table(&example(), false);
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
        let text = table(&example(), true);
        for wanted in ["pass      kernel-is-fine", "hwlatdetect", "nobody asks", "unknown   fair-server"] {
            assert!(text.contains(wanted), "{wanted} is not in:\n{text}");
        }
        assert!(!text.contains("--verbose"));
    }
}
