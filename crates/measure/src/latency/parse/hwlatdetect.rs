//! hwlatdetect of rt-tests: time that firmware took from all of Linux, by the kernel's hwlat tracer
//! (`src/hwlatdetect/hwlatdetect.py`; Documentation/trace/hwlat_detector.rst).

use super::{LONGEST, lines};
use crate::output::OutputError;

const TOOL: &str = "hwlatdetect";

/// What it found.
#[derive(Clone, Debug, PartialEq)]
pub struct HardwareLatency {
    /// From how many microseconds on something counts.
    pub threshold: f64,
    /// The longest, in microseconds; `None` when none was as long as the threshold.
    pub longest: Option<f64>,
    /// How many were.
    pub exceeding: u64,
    /// System management interrupts meanwhile, where the CPU counts them.
    pub smis: Option<u64>,
}

/// Its output, which has an end: cut off, it tells nothing.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, not of the form that this tool prints, or its numbers
/// contradict each other.
pub fn summary(output: &[u8]) -> Result<HardwareLatency, OutputError> {
    let text = lines(TOOL, output)?;
    let value = |key: &str| text.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
    let need = |key: &str| {
        value(key).ok_or_else(|| OutputError::Malformed { tool: TOOL, why: format!("it has no \"{key}\"") })
    };
    let odd =
        |key: &str, value: &str| OutputError::Odd { tool: TOOL, why: format!("\"{key}\" is {value:.80}") };
    let microseconds = |key: &str, value: &str| {
        let number = value.strip_suffix("us").unwrap_or(value).parse::<f64>().ok();
        let sound = number.filter(|number| number.is_finite() && (0.0..=LONGEST).contains(number));
        sound.ok_or_else(|| odd(key, value))
    };
    let threshold = microseconds("Latency threshold:", need("Latency threshold:")?)?;
    need("test finished")?;
    let longest = match need("Max Latency:")? {
        "Below threshold" => None,
        other => Some(microseconds("Max Latency:", other)?),
    };
    let key = "Samples exceeding threshold:";
    let exceeding = need(key).and_then(|text| text.parse::<u64>().map_err(|_| odd(key, text)))?;
    if longest.is_some() != (exceeding > 0) {
        let longest = longest.map_or_else(|| "below it".to_owned(), |longest| format!("of {longest} us"));
        let why = format!("{exceeding} are beyond the threshold, and the longest is {longest}");
        return Err(OutputError::Odd { tool: TOOL, why });
    }
    let key = "SMIs during run:";
    let smis = value(key).map(|text| text.parse::<u64>().map_err(|_| odd(key, text))).transpose()?;
    Ok(HardwareLatency { threshold, longest, exceeding, smis })
}
