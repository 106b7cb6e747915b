//! `expect:` lines that begin with `latency`: what the user wants to be true of wake-ups, and whether it is.
//!
//! ```text
//! line  = "latency" side ( "<" | "<=" ) whole microseconds words [ "except" share ]
//!       | "latency" side "/" side ( ">=" | "<=" ) factor "x" words
//! side  = words in any order: GUEST | in GUEST | host | tuned | untuned | loaded | idle | held | system
//!         cyclictest | oslat | timerlat | hwlat | a statistic (max, p99.99, mean...)
//! words = the same; what stands after the bound is said of both sides
//! ```
//!
//! What one side leaves out is as on the other; what neither names is every series that has the rest, of the machine as it is
//! tuned, by a tool that counts wake-ups. A line holds when it holds for every series that it means.
//!
//! That a latency stays *below* a bound is a claim about wake-ups that nobody measured, so it always has a share of them that it may
//! be wrong for: of a percentile that is what is beyond it (one in 10000 for p99.99), of the maximum it is `except`, one in 100000
//! where the line does not say. A tool that counts no wake-ups has seconds in their place, which take longer: there it is one in 100.
//! A maximum is broken by a single wake-up that is too late.

use std::{fmt, ops::Range, str::FromStr};

use super::{Arm, Power, Setting, Statistic, Tool};
use crate::{
    GuestName,
    measurement::{
        ParseExpectationError, Quantity, Relation, Unit,
        line::{self, Sign, Word, Wrong, words},
    },
    verdict::Vantage,
};

/// For how many wake-ups a maximum may be wrong when the line does not say.
const EXCEPT: f64 = 1e-5;
/// For how many seconds, of a tool that counts no wake-ups: five minutes prove it, and 1e-5 would take three and a half days.
const EXCEPT_OF_SECONDS: f64 = 1e-2;
/// Fewer exceptions would take months to prove: 3 / 1e-9 wake-ups at 100 us are three and a half days.
const LEAST_EXCEPT: f64 = 1e-9;

const HINT: &str = "write for example: latency rt-2 max < 100us, latency rt-2 p99.99 < 50us loaded, \
     latency untuned / tuned p99.99 >= 10x";

/// An `expect:` line that begins with `latency`, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyExpectation {
    text: String,
    statistic: Statistic,
    left: Side,
    limit: Limit,
}

/// What it takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// The statistic stays below a latency.
    Below {
        /// The first microsecond that is too late: 100 for `< 100us`, 101 for `<= 100us`, since the tools count whole ones.
        late: u32,
        /// At most this share may be that late: of wake-ups, or of seconds where the tool counts none.
        except: f64,
    },
    /// The left side's statistic is so many times the right side's, or more, or less.
    Times {
        /// Whether `factor` is a lower or an upper bound of the ratio.
        relation: Relation,
        /// How many times.
        factor: f64,
        /// The right side.
        of: Side,
    },
}

/// Which series are meant. What is `None` is left open, but for the arm and the tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Where the series was measured: on the host or in a guest; `None`: anywhere.
    pub place: Option<Vantage>,
    /// `loaded` (true) or `idle` (false).
    pub loaded: Option<bool>,
    /// `tuned` or `untuned`; left out: tuned.
    pub arm: Option<Arm>,
    /// `held` or `system`.
    pub power: Option<Power>,
    /// The tool; left out: all that count wake-ups.
    pub tool: Option<Tool>,
}

impl Side {
    /// Whether it means the series of this setting.
    pub fn matches(&self, setting: &Setting) -> bool {
        !setting.ordinary
            && self.place.as_ref().is_none_or(|place| *place == setting.place)
            && self.loaded.is_none_or(|loaded| loaded == setting.load.is_loaded())
            && self.arm.unwrap_or(Arm::Tuned) == setting.arm
            && self.power.is_none_or(|power| power == setting.power)
            && self.tool.map_or(setting.tool.wakes(), |tool| tool == setting.tool)
    }

    /// Whether its tools count wake-ups. Of one that does not, seconds stand for them.
    pub fn wakes(&self) -> bool {
        self.tool.is_none_or(Tool::wakes)
    }

    fn inherit(&mut self, from: &Side) {
        self.place = self.place.take().or_else(|| from.place.clone());
        self.loaded = self.loaded.or(from.loaded);
        self.arm = self.arm.or(from.arm);
        self.power = self.power.or(from.power);
        self.tool = self.tool.or(from.tool);
    }

    /// Whether both say something of the same.
    fn overlaps(&self, other: &Side) -> bool {
        (self.place.is_some() && other.place.is_some())
            || (self.loaded.is_some() && other.loaded.is_some())
            || (self.arm.is_some() && other.arm.is_some())
            || (self.power.is_some() && other.power.is_some())
            || (self.tool.is_some() && other.tool.is_some())
    }

    /// Whether what neither side names is the same in both settings.
    fn pairs(&self, of: &Side, one: &Setting, other: &Setting) -> bool {
        let places = one.place == other.place;
        (self.place != of.place || places)
            && (!places || one.cpu == other.cpu)
            && (self.loaded != of.loaded || one.load == other.load)
            && (self.arm != of.arm || one.arm == other.arm)
            && (self.power != of.power || one.power == other.power)
            && (self.tool != of.tool || one.tool == other.tool)
    }
}

impl LatencyExpectation {
    /// Whether a line is one of these, whatever else is wrong with it.
    pub fn is_meant(text: &str) -> bool {
        text.split_whitespace().next() == Some("latency")
    }

    /// What is told of the series.
    pub fn statistic(&self) -> Statistic {
        self.statistic
    }

    /// The left side.
    pub fn left(&self) -> &Side {
        &self.left
    }

    /// What it takes.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The sides, left first.
    pub fn sides(&self) -> impl Iterator<Item = &Side> {
        let right = match &self.limit {
            Limit::Below { .. } => None,
            Limit::Times { of, .. } => Some(of),
        };
        std::iter::once(&self.left).chain(right)
    }

    /// Whether a series of the left side and one of the right make a pair: both are meant, and they differ in nothing but what
    /// the sides say.
    pub fn pairs(&self, left: &Setting, right: &Setting) -> bool {
        let Limit::Times { of, .. } = &self.limit else { return false };
        left != right && self.left.matches(left) && of.matches(right) && self.left.pairs(of, left, right)
    }
}

impl FromStr for LatencyExpectation {
    type Err = ParseExpectationError;

    fn from_str(text: &str) -> Result<LatencyExpectation, ParseExpectationError> {
        read(text).map_err(|(at, why)| ParseExpectationError::new(text, why, at, HINT))
    }
}

fn read(text: &str) -> Result<LatencyExpectation, Wrong> {
    line::length(text)?;
    let all = words(text, 0);
    let Some(first) = all.first().filter(|word| word.text == "latency") else {
        return Err((0..text.len(), "a claim about latencies begins with `latency`".into()));
    };
    let from = first.range().end;
    let sign = Sign::find(text, from, &[">=", "<=", "≥", "≤", "<", ">"])?
        .ok_or_else(|| (0..text.len(), "it has no comparison: <, <= or, between two sides, >=".to_owned()))?;
    let (at, right_at) = (sign.range.start, sign.range.end);
    let mut said = LineSoFar::default();
    let (left, of) = match text[from..at].find('/') {
        None => (said.side(&words(&text[from..at], from))?, None),
        Some(slash) => {
            let slash = from + slash;
            let left = said.side(&words(&text[from..slash], from))?;
            let of = said.side(&words(&text[slash + 1..at], slash + 1))?;
            if text[from..slash].trim().is_empty() || text[slash + 1..at].trim().is_empty() {
                return Err((slash..slash + 1, "a side of the / is empty".into()));
            }
            (left, Some(of))
        }
    };
    let right = words(&text[right_at..], right_at);
    let Some((bound, bound_range, rest)) = bound(&right)? else {
        return Err((at..text.len(), format!("nothing stands after {}", sign.text)));
    };
    let (rest, except) = exception(rest)?;
    let both = said.side(rest)?;
    let Some(statistic) = said.statistic else {
        return Err((first.range(), "which latency: max, p99.99, p99.9, p99, p90, p50, mean?".into()));
    };
    let (mut left, mut of) = (left, of);
    for side in std::iter::once(&mut left).chain(&mut of) {
        if side.overlaps(&both) {
            let at = rest.first().map_or(text.len(), |word| word.at);
            let end = rest.last().map_or(text.len(), |word| word.range().end);
            let near = rest.iter().find_map(|word| {
                (!WORDS.contains(&word.text)).then(|| LatencyExpectation::near(word.text))?
            });
            let meant = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            let why = format!("{:?} contradicts or repeats an earlier word{meant}", &text[at..end]);
            return Err((at..end, why));
        }
        side.inherit(&both);
    }
    let limit = match (bound, of) {
        (Amount::Times(factor), Some(mut of)) => {
            if let Some((_, range)) = except {
                return Err((range, "a ratio has no exceptions; they are of a maximum".into()));
            }
            let relation = sign.relation().ok_or_else(|| {
                (at..right_at, "between two sides the comparisons are >= and <=".to_owned())
            })?;
            of.inherit(&left);
            left.inherit(&of);
            if of == left {
                return Err((from..at, "both sides mean the same series".into()));
            }
            Limit::Times { relation, factor, of }
        }
        (Amount::Times(factor), None) => {
            let why =
                format!("{factor}x of what? A ratio has two sides: untuned / tuned, or {factor}us was meant");
            return Err((bound_range, why));
        }
        (Amount::Microseconds(_), Some(_)) => {
            return Err((bound_range, "two sides are compared by a factor, like 10x".into()));
        }
        (Amount::Microseconds(_), None) if [">=", ">", "≥"].contains(&sign.text) => {
            return Err((at..right_at, "a latency is to stay below something: < or <=".into()));
        }
        (Amount::Microseconds(bound), None) => {
            let late = if sign.text == "<" { bound } else { bound + 1 };
            let except = match (statistic, statistic.beyond(), except) {
                (_, Some(_), Some((_, range))) => {
                    return Err((range, format!("{statistic} says itself for which share it may be wrong")));
                }
                (_, Some(beyond), None) => beyond,
                (Statistic::Max, None, Some((share, _))) => share,
                (Statistic::Max, None, None) if !left.wakes() => EXCEPT_OF_SECONDS,
                (Statistic::Max, None, None) => EXCEPT,
                (other, ..) => {
                    let why = format!("the {other} cannot be held below a bound; max or a percentile can");
                    return Err((from..at, why));
                }
            };
            Limit::Below { late, except }
        }
    };
    Ok(LatencyExpectation { text: text.trim().to_owned(), statistic, left, limit })
}

enum Amount {
    Times(f64),
    Microseconds(u32),
}

type Bounded<'a, 'b> = (Amount, Range<usize>, &'b [Word<'a>]);

/// `100us`, `100 us`, `10x` or `10 x`, and what stands after it.
fn bound<'a, 'b>(words: &'b [Word<'a>]) -> Result<Option<Bounded<'a, 'b>>, Wrong> {
    let Some((first, rest)) = words.split_first() else { return Ok(None) };
    let range = first.range();
    if let Some((factor, rest)) = line::factor(words, "10")? {
        return Ok(Some((Amount::Times(factor), range, rest)));
    }
    // A unit may stand apart.
    let apart =
        rest.first().map(|unit| (format!("{} {}", first.text, unit.text), range.start..unit.range().end));
    let one = Quantity::parse(first.text).filter(|quantity| quantity.unit != Unit::Fraction);
    let two = || apart.and_then(|(text, range)| Some((Quantity::parse(&text)?, range, &rest[1..])));
    let (quantity, range, rest) = match one {
        Some(quantity) => (quantity, range, rest),
        None => two().ok_or_else(|| {
            let why = format!("{:?} is neither a latency like 100us nor a factor like 10x", first.text);
            (range, why)
        })?,
    };
    if quantity.unit != Unit::Microseconds {
        return Err((range, format!("a latency is counted in us, not in {}", quantity.unit)));
    }
    let value = quantity.value;
    if !(1.0..=1e9).contains(&value) || (value - value.round()).abs() > 1e-6 {
        return Err((range, "the tools count whole microseconds, from 1us to 1000s".into()));
    }
    Ok(Some((Amount::Microseconds(value.round() as u32), range, rest)))
}

type Excepted<'a, 'b> = (&'b [Word<'a>], Option<(f64, Range<usize>)>);

/// `except 1e-6` at the end.
fn exception<'a, 'b>(words: &'b [Word<'a>]) -> Result<Excepted<'a, 'b>, Wrong> {
    let Some(position) = words.iter().position(|word| word.text == "except") else {
        return Ok((words, None));
    };
    let (before, from) = words.split_at(position);
    let range = from[0].range();
    match from {
        [_, share] => match share.text.parse::<f64>() {
            Ok(value) if (LEAST_EXCEPT..=0.1).contains(&value) => {
                Ok((before, Some((value, range.start..share.range().end))))
            }
            _ => Err((share.range(), format!("{:?} is no share from 1e-9 to 0.1, like 1e-6", share.text))),
        },
        [_] => Err((range, "except which share of the wake-ups? Like 1e-6".into())),
        [_, _, more, ..] => Err((more.range(), "`except` and its share end the line".into())),
        [] => Ok((words, None)),
    }
}

/// What the words of a line have said so far of the statistic, which is the same on both sides.
#[derive(Default)]
struct LineSoFar {
    statistic: Option<Statistic>,
}

/// Every word but guests' names, for the one that was meant.
const WORDS: [&str; 11] = [
    "host",
    "tuned",
    "untuned",
    "loaded",
    "idle",
    "held",
    "system",
    "cyclictest",
    "oslat",
    "timerlat",
    "hwlat",
];

impl LineSoFar {
    fn side(&mut self, words: &[Word<'_>]) -> Result<Side, Wrong> {
        let mut side = Side::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let again = || {
                let near =
                    (!WORDS.contains(&word.text)).then(|| LatencyExpectation::near(word.text)).flatten();
                let meant = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
                (word.range(), format!("{:?} contradicts or repeats an earlier word{meant}", word.text))
            };
            macro_rules! set {
                ($field:expr, $value:expr) => {
                    if $field.replace($value).is_some() {
                        return Err(again());
                    }
                };
            }
            match word.text {
                "host" => set!(side.place, Vantage::Host),
                "tuned" => set!(side.arm, Arm::Tuned),
                "untuned" => set!(side.arm, Arm::Untuned),
                "loaded" => set!(side.loaded, true),
                "idle" => set!(side.loaded, false),
                "held" => set!(side.power, Power::Held),
                "system" => set!(side.power, Power::System),
                "in" => match words.next() {
                    Some(name) => set!(side.place, Vantage::Guest(guest(name)?)),
                    None => return Err((word.range(), "in which guest?".into())),
                },
                text => {
                    if let Ok(statistic) = text.parse::<Statistic>() {
                        set!(self.statistic, statistic)
                    } else if let Some(tool) = Tool::ALL.into_iter().find(|tool| tool.name() == text) {
                        set!(side.tool, tool)
                    } else if text.starts_with("p9") || text.starts_with("p5") {
                        let all = Statistic::ALL.map(Statistic::name).join(", ");
                        return Err((word.range(), format!("{text:?} is none of {all}")));
                    } else {
                        set!(side.place, Vantage::Guest(guest(word)?))
                    }
                }
            }
        }
        Ok(side)
    }
}

fn guest(word: &Word<'_>) -> Result<GuestName, Wrong> {
    word.text.parse().map_err(|error: crate::names::NameError| (word.range(), error.to_string()))
}

impl LatencyExpectation {
    /// The word of a line that was meant by this one, which names no guest.
    pub(crate) fn near(text: &str) -> Option<&'static str> {
        let known = WORDS.into_iter().chain(Statistic::ALL.map(Statistic::name));
        line::near(text, known)
    }
}

impl fmt::Display for LatencyExpectation {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

crate::names::text_serde!(
    LatencyExpectation,
    "What is to hold of the latencies of wake-ups.",
    "latency rt-2 max < 100us",
    "."
);
