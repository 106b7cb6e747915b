//! Latencies in a few lines for a terminal.

use super::{Source, finding, lead};
use crate::{Evidence, printable::clip, rulings, shown};

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
    let (told, rest) = rulings::lines(&source, &latency.rulings, MOST_CLAIMS);
    lines.extend(told);
    if !rest.is_empty() {
        lines.push(format!("  and {}", shown::many(rest.len(), "more claim")));
    }
    lines.into_iter().map(|line| clip(&line, MOST_WIDE)).collect()
}
