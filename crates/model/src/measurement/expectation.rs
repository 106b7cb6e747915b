//! `expect:` lines: what the user wants to be true of the measurements, and whether it is.
//!
//! ```text
//! line     = selector ( ">=" | "<=" ) bound
//! bound    = factor "x" selector | number unit
//! selector = words in any order: pf-pf | vf-vf across | vf-vf inside | guest-host | bridge | bridge across
//!            vm vf | vm bridge | vm bridge nat | vm ovs | vm macvlan | vm ipvlan | vm pf
//!            udp | tcp | stream | rr | open | closed | sequential | random | read | write | mixed | host | guest
//!            in GUEST | a size (1KiB) | a metric (throughput, p99, iops...)
//! ```
//!
//! What the right side leaves out is as on the left. A line that names no metric means throughput, or what its unit and its
//! other words say. A line holds when it holds for every cell that it means. The interval counts against the claim: of
//! `>=` the lower end must reach the bound, of `<=` the upper end; an interval with the bound inside tells nothing.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::{
    Conclusion, Estimate, Measurement, Metric, Quantity, Selector, Unit,
    cell::{Mix, PathKind, Pattern},
    line::{self, Sign, Word, Wrong, words},
    selector,
};
use crate::ByteSize;

/// One `expect:` line.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    text: String,
    left: Selector,
    relation: Relation,
    bound: Bound,
    metric: Metric,
}

/// Which way a claim goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// At least the bound: `>=`.
    AtLeast,
    /// At most the bound: `<=`.
    AtMost,
}

impl Relation {
    /// What a claim that goes this way comes out as. The interval counts against it: with the bound inside nothing is told.
    pub fn judge(self, seen: &Estimate, bound: f64) -> Conclusion {
        let (holds, contradicts) = match self {
            Relation::AtLeast => (seen.low() >= bound, seen.high() < bound),
            Relation::AtMost => (seen.high() <= bound, seen.low() > bound),
        };
        match (holds, contradicts) {
            (true, _) => Conclusion::Holds,
            (_, true) => Conclusion::DoesNotHold,
            (false, false) => Conclusion::CannotBeTold,
        }
    }
}

/// What the left side is held against.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// So many times another cell.
    Times {
        /// How many times.
        factor: f64,
        /// Which cells; what the line left out is filled in from the left side.
        of: Selector,
    },
    /// A value, in the metric's unit.
    Value(Quantity),
}

impl Expectation {
    /// The left side.
    pub fn left(&self) -> &Selector {
        &self.left
    }

    /// Which way it goes.
    pub fn relation(&self) -> Relation {
        self.relation
    }

    /// What the left side is held against.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// What of the cells is compared.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Whether a cell of the left side and one of the right make a pair: both are meant, and they differ in nothing but
    /// where they were made (and in size where both sides name one).
    pub fn pairs(&self, left: &Measurement, right: &Measurement) -> bool {
        let Bound::Times { of, .. } = &self.bound else { return false };
        let same_size = of.size == self.left.size;
        left != right
            && self.left.matches(left)
            && of.matches(right)
            && selector::comparable(left, right, same_size)
    }

    /// What the line comes out as for this ratio, or for this value in the metric's unit. The interval counts against the
    /// claim.
    pub fn judge(&self, seen: &Estimate) -> Conclusion {
        let bound = match &self.bound {
            Bound::Times { factor, .. } => *factor,
            Bound::Value(quantity) => quantity.value,
        };
        self.relation.judge(seen, bound)
    }
}

/// An `expect:` line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} cannot be expected: {why}")]
pub struct ParseExpectationError {
    text: String,
    why: String,
    /// Bytes of the line that the message is about.
    at: std::ops::Range<usize>,
    hint: &'static str,
}

impl ParseExpectationError {
    pub(super) fn new(
        text: &str,
        why: String,
        at: std::ops::Range<usize>,
        hint: &'static str,
    ) -> ParseExpectationError {
        ParseExpectationError { text: text.to_owned(), why, at, hint }
    }

    /// What is wrong, without the line.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Bytes of the line that the message is about, for a caret.
    pub fn at(&self) -> std::ops::Range<usize> {
        self.at.clone()
    }

    /// How such a line looks.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

const HINT: &str =
    "write for example: vf-vf inside >= 0.8 x pf-pf, udp vf-vf across 1KiB >= 2Gbit/s, p99 <= 50us";

/// Every word that a selector may have, for the one that was meant.
const WORDS: [&str; 21] = [
    "pf-pf",
    "vf-vf",
    "vm",
    "guest-host",
    "bridge",
    "port-port",
    "port-host",
    "veth-veth",
    "veth-host",
    "udp",
    "tcp",
    "stream",
    "rr",
    "open",
    "closed",
    "sequential",
    "random",
    "read",
    "write",
    "mixed",
    "host",
];

impl FromStr for Expectation {
    type Err = ParseExpectationError;

    fn from_str(text: &str) -> Result<Expectation, ParseExpectationError> {
        read(text).map_err(|(at, why)| ParseExpectationError::new(text, why, at, HINT))
    }
}

fn read(text: &str) -> Result<Expectation, Wrong> {
    line::length(text)?;
    let sign = Sign::find(text, 0, &[">=", "<=", "≥", "≤"])?.ok_or_else(|| missing_relation(text))?;
    let relation = sign.relation().ok_or_else(|| missing_relation(text))?;
    let (at, right_at) = (sign.range.start, sign.range.end);
    let (left_text, right_text) = (&text[..at], &text[right_at..]);
    let mut left = selector(&words(left_text, 0))?;
    if left == Selector::default() {
        return Err((at..right_at, format!("nothing stands before {}", sign.text)));
    }
    let right = words(right_text, right_at);
    let Some(first) = right.first() else {
        return Err((at..text.len(), format!("nothing stands after {}", sign.text)));
    };
    let bound = match line::factor(&right, "0.8")? {
        Some((factor, rest)) => {
            let mut of = selector(rest)?;
            if of == Selector::default() {
                return Err((first.at..text.len(), "nothing stands after the x".into()));
            }
            if let (Some(one), Some(other)) = (left.metric, of.metric)
                && one != other
            {
                return Err((first.at..text.len(), format!("{one} cannot be compared with {other}")));
            }
            let metric = left.metric.or(of.metric);
            left.metric = metric;
            of.inherit(&left);
            Bound::Times { factor, of }
        }
        None => {
            let range = first.at..text.trim_end().len();
            let quantity = Quantity::parse(right_text).ok_or_else(|| unreadable_bound(right_text, &range))?;
            Bound::Value(quantity)
        }
    };
    let metric = resolve(&left, &bound).map_err(|why| (0..text.len(), why))?;
    left.metric = Some(metric);
    let bound = match bound {
        Bound::Times { factor, mut of } => {
            of.metric = Some(metric);
            if of == left {
                return Err((first.at..text.len(), "both sides mean the same cells".into()));
            }
            Bound::Times { factor, of }
        }
        Bound::Value(quantity) => {
            Bound::Value(fit(quantity, metric).map_err(|why| (first.at..text.len(), why))?)
        }
    };
    if left.says_network() && left.says_storage() {
        return Err((0..at, "it names both the network and storage".into()));
    }
    Ok(Expectation { text: text.trim().to_owned(), left, relation, bound, metric })
}

impl Selector {
    /// Fills in what is left out.
    fn inherit(&mut self, from: &Selector) {
        self.path = self.path.or(from.path);
        self.udp = self.udp.or(from.udp);
        self.stream = self.stream.or(from.stream);
        self.open = self.open.or(from.open);
        self.pattern = self.pattern.or(from.pattern);
        self.mix = self.mix.or(from.mix);
        self.host = self.host.or(from.host);
        self.size = self.size.or(from.size);
        self.metric = self.metric.or(from.metric);
        // A guest on the left says where that cell was made, which is what the sides differ in.
    }
}

fn missing_relation(text: &str) -> Wrong {
    match text.find(['<', '>', '=']) {
        Some(at) => (
            at..at + 1,
            "the comparisons are >= and <=, and in a line that begins with `latency` < too".into(),
        ),
        None => (0..text.len(), "it has no comparison: >= or <=".into()),
    }
}

fn unreadable_bound(text: &str, range: &std::ops::Range<usize>) -> Wrong {
    let text = text.trim();
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    let why = if digits {
        format!(
            "{text:?} is neither a number with a unit ({}) nor a factor like 0.8 x pf-pf",
            Quantity::UNITS
        )
    } else {
        format!("a comparison with {text:?} needs a factor: 1 x {text}")
    };
    (range.clone(), why)
}

fn selector(words: &[Word<'_>]) -> Result<Selector, Wrong> {
    let mut selector = Selector::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let again = || (word.range(), format!("{:?} contradicts or repeats an earlier word", word.text));
        macro_rules! set {
            ($field:ident, $value:expr) => {
                if selector.$field.replace($value).is_some() {
                    return Err(again());
                }
            };
        }
        match word.text {
            "pf-pf" => set!(path, PathKind::PfPf),
            "guest-host" => set!(path, PathKind::GuestHost),
            "port-port" => set!(path, PathKind::PortPort),
            "port-host" => set!(path, PathKind::PortHost),
            "veth-veth" => set!(path, PathKind::VethVeth),
            "veth-host" => set!(path, PathKind::VethHost),
            "bridge" => match words.next_if(|next| next.text == "across") {
                Some(_) => set!(path, PathKind::BridgeAcross),
                None => set!(path, PathKind::Bridge),
            },
            "vf-vf" => match words.next().map(|next| next.text) {
                Some("across") => set!(path, PathKind::VfVfAcross),
                Some("inside") => set!(path, PathKind::VfVfInside),
                _ => {
                    let why = "vf-vf needs to know which: vf-vf across (two NICs and the cable) or vf-vf inside (one NIC)";
                    return Err((word.range(), why.into()));
                }
            },
            "vm" => match words.next().map(|next| next.text) {
                Some("vf") => set!(path, PathKind::VmVf),
                Some("pf") => set!(path, PathKind::VmPf),
                Some("ovs") => set!(path, PathKind::VmOvs),
                Some("macvlan") => set!(path, PathKind::VmMacvlan),
                Some("ipvlan") => set!(path, PathKind::VmIpvlan),
                Some("bridge") => match words.next_if(|next| next.text == "nat") {
                    Some(_) => set!(path, PathKind::VmBridgeNat),
                    None => set!(path, PathKind::VmBridge),
                },
                _ => {
                    let why = "vm needs to know what a VM with a NIC of its own sends by: vm vf, vm bridge, vm bridge nat, vm ovs, \
                               vm macvlan, vm ipvlan or vm pf";
                    return Err((word.range(), why.into()));
                }
            },
            "udp" => set!(udp, true),
            "tcp" => set!(udp, false),
            "stream" => set!(stream, true),
            "rr" => set!(stream, false),
            "open" => set!(open, true),
            "closed" => set!(open, false),
            "sequential" => set!(pattern, Pattern::Sequential),
            "random" => set!(pattern, Pattern::Random),
            "read" => set!(mix, Mix::Read),
            "write" => set!(mix, Mix::Write),
            "mixed" => set!(mix, Mix::Mixed),
            "host" => set!(host, true),
            "guest" => set!(host, false),
            "in" => match words.next() {
                Some(name) => {
                    let guest = name.text.parse();
                    set!(
                        guest,
                        guest.map_err(|error: crate::names::NameError| (name.range(), error.to_string()))?
                    )
                }
                None => return Err((word.range(), "in which guest?".into())),
            },
            text if text.starts_with(|c: char| c.is_ascii_digit()) => {
                let size: ByteSize = text
                    .parse()
                    .map_err(|e: crate::quantity::ParseSizeError| (word.range(), e.to_string()))?;
                set!(size, size)
            }
            text => match text.parse::<Metric>() {
                Ok(metric) => set!(metric, metric),
                Err(()) => return Err((word.range(), unknown(text))),
            },
        }
    }
    Ok(selector)
}

fn unknown(text: &str) -> String {
    // As `measure --path` has it.
    let two = text
        .rsplit_once('-')
        .filter(|(path, end)| WORDS.contains(path) && ["across", "inside"].contains(end));
    if let Some((path, end)) = two {
        return format!("{text:?} is written in two words here: {path} {end}");
    }
    let known = WORDS.into_iter().chain(["guest", "across", "inside"]).chain(Metric::ALL.map(Metric::name));
    match line::near(text, known) {
        Some(word) if text.len() < 40 => format!("{text:?} means nothing here; did you mean {word:?}?"),
        _ => format!("{text:?} is no path, protocol, size or metric"),
    }
}

/// What of the cells is compared, from all that the line says.
fn resolve(left: &Selector, bound: &Bound) -> Result<Metric, String> {
    if let Some(metric) = left.metric {
        if let Some(path) = left.path.filter(|path| metric.is_cost() && !path.is_of_vm_nic()) {
            return Err(format!(
                "{metric} is measured on paths of a VM's own NIC only, and {path} is not one"
            ));
        }
        let stream = match metric {
            Metric::Throughput
            | Metric::Sent
            | Metric::Jitter
            | Metric::GuestCpuPerGbit
            | Metric::HostCpuPerGbit
            | Metric::GuestInstructionsPerFrame
            | Metric::HostInstructionsPerFrame => Some(true),
            Metric::Transactions => Some(false),
            // Of round trips an open loop tells it too: it sends whatever was not answered.
            Metric::Loss => Some(left.open != Some(true)),
            metric if metric.is_latency() => Some(false),
            _ => None,
        };
        return match (stream, left.stream) {
            (Some(wanted), Some(given)) if wanted != given => {
                let of = match (wanted, metric) {
                    (true, Metric::Loss) => "a stream, and by round trips in an open loop (rr open),",
                    (true, _) => "a stream",
                    (false, _) => "request and response (rr)",
                };
                Err(format!("{metric} is measured by {of} only"))
            }
            _ => Ok(metric),
        };
    }
    let unit = match bound {
        Bound::Value(quantity) => Some(quantity.unit),
        Bound::Times { .. } => None,
    };
    match unit {
        Some(Unit::Microseconds) => Err("which latency: p50, p90, p99, p99.9, max, mean?".into()),
        Some(Unit::BytePerSecond) if left.says_network() => {
            Err("network throughput is written in bit/s, for example 2Gbit/s".into())
        }
        Some(Unit::BytePerSecond) => Ok(Metric::Bandwidth),
        Some(Unit::PerSecond) if left.says_storage() => Ok(Metric::Iops),
        Some(Unit::PerSecond) => Ok(Metric::Transactions),
        Some(Unit::Percent | Unit::Fraction) => {
            Err("a share of what? Name loss, local_cpu or remote_cpu".into())
        }
        Some(Unit::BitPerSecond) => Ok(Metric::Throughput),
        Some(Unit::SecondsPerGigabit) => {
            Err("whose CPU time? Name guest_cpu_per_gbit or host_cpu_per_gbit".into())
        }
        Some(Unit::InstructionsPerFrame) => {
            Err("whose instructions? Name guest_instructions_per_frame or host_instructions_per_frame".into())
        }
        None if left.pattern == Some(Pattern::Random) => Ok(Metric::Iops),
        None if left.says_storage() => Ok(Metric::Bandwidth),
        None if left.stream == Some(false) => Ok(Metric::Transactions),
        None => Ok(Metric::Throughput),
    }
}

/// The value in the metric's unit.
fn fit(quantity: Quantity, metric: Metric) -> Result<Quantity, String> {
    let unit = metric.unit();
    match (quantity.unit, unit) {
        (given, wanted) if given == wanted => Ok(quantity),
        (Unit::Percent, Unit::Fraction) => Ok(Quantity { value: quantity.value / 100.0, unit }),
        (Unit::Fraction, _) => Err(format!("{metric} is written with a unit, for example 1{unit}")),
        (given, _) => Err(format!("{metric} is counted in {unit}, not in {given}")),
    }
}

impl fmt::Display for Expectation {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

crate::names::text_serde!(
    Expectation,
    "What is to hold of the measurements.",
    "vf-vf inside >= 0.8 x pf-pf",
    "."
);
