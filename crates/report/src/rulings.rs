//! What the `expect:` lines came out as: one view for the page, the table in Markdown and the lines on a terminal, whatever the
//! lines are about. What was measured finds the words.

use std::fmt::{self, Display, Write};

use penstock_model::measurement::{Claim, Conclusion, ExpectationResult};
use serde::Serialize;

use crate::{markdown_text::plain, printable::one_line};

/// No more claims of one line than this are listed.
const MOST_CLAIMS: usize = 40;

/// The words for lines of one kind.
pub(crate) trait Words<L> {
    /// What a cell or series is called; its bare name where there is none of that name.
    fn label(&self, id: &str) -> String;
    /// What was seen; words to that effect where nothing was.
    fn seen(&self, line: &L, claim: &Claim) -> String;
    /// What it takes: `at least 0.8 times`.
    fn wanted(&self, line: &L) -> String;
    /// What a line came out as, in a sentence or two for somebody who reads such a line for the first time.
    fn meaning(&self, ruling: &ExpectationResult<L>) -> String;
    /// The claim that stands for the line on a terminal; `None` without one of which anything was seen.
    fn shortest<'a>(&self, ruling: &'a ExpectationResult<L>) -> Option<&'a Claim>;
}

/// A line and what it came out as.
#[derive(Serialize)]
pub(crate) struct RulingView {
    line: String,
    class: &'static str,
    symbol: &'static str,
    word: String,
    /// What that means, in a sentence.
    meaning: String,
    open: bool,
    claims: Vec<ClaimRow>,
    left_out: usize,
}

/// One thing that a line was held against.
#[derive(Serialize)]
struct ClaimRow {
    cell: String,
    against: String,
    seen: String,
    wanted: String,
    class: &'static str,
    symbol: &'static str,
    word: String,
    why: String,
}

/// The symbol and the class of an outcome.
fn mark(told: Conclusion) -> (&'static str, &'static str) {
    match told {
        Conclusion::Holds => ("✓", "pass"),
        Conclusion::NotAsked => ("–", "unsupported"),
        Conclusion::NotMeasured | Conclusion::CannotBeTold => ("?", "unknown"),
        Conclusion::DoesNotHold => ("✗", "fail"),
    }
}

/// The lines as the page shows them.
pub(crate) fn views<L: Display>(words: &impl Words<L>, rulings: &[ExpectationResult<L>]) -> Vec<RulingView> {
    rulings.iter().map(|ruling| view(words, ruling)).collect()
}

fn view<L: Display>(words: &impl Words<L>, ruling: &ExpectationResult<L>) -> RulingView {
    let (symbol, class) = mark(ruling.told);
    let mut claims: Vec<&Claim> = ruling.claims.iter().collect();
    // What decides first.
    claims.sort_by_key(|claim| std::cmp::Reverse(claim.told));
    RulingView {
        line: one_line(&ruling.expectation.to_string()),
        class,
        symbol,
        word: ruling.told.to_string(),
        meaning: words.meaning(ruling),
        open: ruling.told != Conclusion::Holds && claims.len() <= 6,
        left_out: claims.len().saturating_sub(MOST_CLAIMS),
        claims: (claims.into_iter().take(MOST_CLAIMS))
            .map(|claim| row(words, &ruling.expectation, claim))
            .collect(),
    }
}

fn row<L>(words: &impl Words<L>, line: &L, claim: &Claim) -> ClaimRow {
    let (symbol, class) = mark(claim.told);
    ClaimRow {
        cell: words.label(&claim.cell),
        against: claim.against.as_deref().map(|id| words.label(id)).unwrap_or_default(),
        seen: words.seen(line, claim),
        wanted: words.wanted(line),
        class,
        symbol,
        word: claim.told.to_string(),
        why: claim.why.as_deref().map(one_line).unwrap_or_default(),
    }
}

/// The lines as a table of Markdown below this title; nothing without lines.
pub(crate) fn table<L: Display>(
    to: &mut String,
    title: &str,
    words: &impl Words<L>,
    rulings: &[ExpectationResult<L>],
) -> fmt::Result {
    if rulings.is_empty() {
        return Ok(());
    }
    writeln!(to, "### {title}\n\n| line | came out | why |\n|---|---|---|")?;
    for ruling in rulings {
        let line = plain(&ruling.expectation.to_string());
        let (symbol, meaning) = (mark(ruling.told).0, plain(&words.meaning(ruling)));
        writeln!(to, "| {line} | {symbol} {} | {meaning} |", ruling.told)?;
    }
    writeln!(to)
}

/// The first `most` lines for a terminal, what does not hold first; and what the others came out as.
pub(crate) fn lines<L: Display>(
    words: &impl Words<L>,
    rulings: &[ExpectationResult<L>],
    most: usize,
) -> (Vec<String>, Vec<Conclusion>) {
    let mut told: Vec<_> = rulings.iter().collect();
    told.sort_by_key(|ruling| std::cmp::Reverse(ruling.told));
    let line = |ruling: &&ExpectationResult<L>| {
        let seen = words.shortest(ruling).map(|claim| words.seen(&ruling.expectation, claim));
        let seen = seen.map_or_else(String::new, |seen| format!(" ({seen})"));
        let line = one_line(&ruling.expectation.to_string());
        format!("  {} {line}: {}{seen}", mark(ruling.told).0, ruling.told)
    };
    let shown = told.iter().take(most).map(line).collect();
    (shown, told.iter().skip(most).map(|ruling| ruling.told).collect())
}
