//! Latencies in a few lines for a terminal.

use super::{Source, claims, finding, lead};
use crate::{
    Evidence,
    measurements::{rulings, shown},
    printable::{clip, one_line},
};

/// No more claims than this, and no line is longer.
const MOST_CLAIMS: usize = 4;
const MOST_WIDE: usize = 200;

/// A handful of lines; none when no latencies were to be measured.
pub(crate) fn lines(evidence: &Evidence) -> Vec<String> {
    let Some(source) = Source::of(evidence) else { return Vec::new() };
    let latency = source.latency;
    let marked = if latency.emulated { " Emulated: look at the ratios only." } else { "" };
    let mut lines = vec![format!("latency: {}{marked}", lead(latency))];
    lines.extend(finding::findings(&source).into_iter().map(|finding| format!("  {finding}")));
    let mut told: Vec<_> = latency.rulings.iter().collect();
    told.sort_by_key(|ruling| std::cmp::Reverse(ruling.told));
    for ruling in told.iter().take(MOST_CLAIMS) {
        let seen = ruling.findings.iter().find(|finding| finding.told == ruling.told);
        let seen = seen.map(|seen| format!(" ({})", claims::seen(&source, &ruling.claim, seen)));
        lines.push(format!(
            "  {} {}: {}{}",
            rulings::mark(ruling.told).0,
            one_line(&ruling.claim.to_string()),
            ruling.told,
            seen.unwrap_or_default()
        ));
    }
    if told.len() > MOST_CLAIMS {
        let rest = shown::many(told.len() - MOST_CLAIMS, "more claim");
        lines.push(format!("  and {rest}"));
    }
    lines.into_iter().map(|line| clip(&line, MOST_WIDE)).collect()
}
