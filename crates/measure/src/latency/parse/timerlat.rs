//! `rtla timerlat hist`: how late the interrupt of a timer came, and how late the thread that it wakes ran
//! (Documentation/tools/rtla/rtla-timerlat-hist.rst). It has no JSON.
//!
//! ```text
//! # RTLA timerlat histogram
//! # Time unit is microseconds (us)
//! # Duration:   0 00:00:05
//! Index   IRQ-002   Thr-002
//! 1          4900        12
//! 2           100      4988
//! over:         0         0
//! count:     5000      5000
//! min:          1         1
//! avg:          1         2
//! max:          2         2
//! ```

use std::collections::BTreeMap;

use super::{LatencyOutput, counts, lines, total};
use crate::output::OutputError;

const TOOL: &str = "rtla timerlat";

/// What it printed of one CPU, in buckets of a microsecond (`-b 1`), `limit` of them (`-E`).
#[derive(Clone, Debug, PartialEq)]
pub struct Both {
    /// How late the interrupt was.
    pub interrupt: LatencyOutput,
    /// How late the thread ran.
    pub thread: LatencyOutput,
}

#[derive(Default)]
struct Column {
    bins: BTreeMap<u32, u64>,
    over: Option<u64>,
    count: Option<u64>,
    min: Option<f64>,
    avg: Option<f64>,
    max: Option<f64>,
}

/// Its output for one CPU.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, not of the form that this tool prints, or its numbers
/// contradict each other, and when it has counted nothing.
pub fn histogram(output: &[u8], limit: u32) -> Result<Both, OutputError> {
    let text = lines(TOOL, output)?;
    let malformed = |why: &str| OutputError::Malformed { tool: TOOL, why: why.to_owned() };
    let odd = |line: &str| {
        let why = format!("a line reads {:?}", line.chars().take(80).collect::<String>());
        OutputError::Odd { tool: TOOL, why }
    };
    if !text.lines().any(|line| line.starts_with('#') && line.contains("microseconds")) {
        return Err(malformed("it does not say that its unit is microseconds"));
    }
    let mut rows = text.lines().skip_while(|line| !line.starts_with("Index"));
    let header = rows.next().ok_or_else(|| malformed("it has no header"))?;
    let names: Vec<&str> = header.split_whitespace().skip(1).collect();
    let number = |kind: &str| names.iter().position(|name| name.starts_with(kind));
    let (interrupt, thread) = number("IRQ-")
        .zip(number("Thr-"))
        .ok_or_else(|| malformed("its header has no columns of interrupt and thread"))?;
    let cpus: Vec<Option<u32>> =
        names.iter().map(|name| name.rsplit('-').next().and_then(|cpu| cpu.parse().ok())).collect();
    if cpus.iter().any(|cpu| cpu.is_none() || *cpu != cpus[0]) {
        return Err(malformed("it is not of one CPU"));
    }
    let mut columns: Vec<Column> = names.iter().map(|_| Column::default()).collect();
    let mut ended = false;
    for line in rows {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let values: Vec<&str> = words.collect();
        // A summary of all CPUs follows, which with one of them is the same again.
        if first == "ALL:" {
            break;
        }
        let row = first.trim_end_matches(':');
        if values.len() != columns.len() {
            return Err(odd(line));
        }
        for (column, value) in columns.iter_mut().zip(values) {
            let count = || value.parse::<u64>().map_err(|_| odd(line));
            // What was never measured has a dash.
            let microseconds = || match value {
                "-" => Ok(None),
                value => value.parse::<f64>().map(Some).map_err(|_| odd(line)),
            };
            match row {
                "over" => column.over = Some(count()?),
                "count" => column.count = Some(count()?),
                "min" => column.min = microseconds()?,
                "avg" => column.avg = microseconds()?,
                "max" => {
                    column.max = microseconds()?;
                    ended = true;
                }
                bin => {
                    let bin: u32 = bin.parse().map_err(|_| odd(line))?;
                    if bin >= limit || column.bins.insert(bin, count()?).is_some() {
                        return Err(odd(line));
                    }
                }
            }
        }
    }
    // The last row of all: without it, the rest may be missing too.
    if !ended {
        return Err(malformed("it has no row \"max\""));
    }
    let mut told = |at: usize| -> Result<LatencyOutput, OutputError> {
        let Column { bins, over, count, min, avg, max } = std::mem::take(&mut columns[at]);
        let within = total(TOOL, &bins)?;
        let count = count.ok_or_else(|| malformed("it has no row \"count\""))?;
        let over = over.ok_or_else(|| malformed("it has no row \"over\""))?;
        if count == 0 {
            return Err(OutputError::NothingCounted { tool: TOOL });
        }
        if within.checked_add(over) != Some(count) {
            let why = format!("{within} are in its bins and {over} beyond, but it counted {count}");
            return Err(OutputError::Odd { tool: TOOL, why });
        }
        let (Some(min), Some(avg), Some(max)) = (min, avg, max) else {
            return Err(malformed("it has no row of the shortest, the mean or the longest"));
        };
        let counts = counts(TOOL, bins, limit, count)?;
        LatencyOutput { version: None, cpu: cpus[0], counts, min, mean: avg, max }.checked(TOOL)
    };
    Ok(Both { interrupt: told(interrupt)?, thread: told(thread)? })
}
