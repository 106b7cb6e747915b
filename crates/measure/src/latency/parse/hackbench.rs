//! hackbench of rt-tests: it has no JSON, and tells how many seconds it took (`src/hackbench/hackbench.c`).

use crate::output::{OutputError, text};

const TOOL: &str = "hackbench";

/// The seconds of each time that it ran, when it was started over and over with its output going to one file. A last line
/// that was cut off, because it was ended in the middle, is none.
///
/// # Errors
///
/// [`OutputError`] when it is no text or too long, or a time is no number of seconds.
pub fn times(output: &[u8]) -> Result<Vec<f64>, OutputError> {
    let text = text(TOOL, output)?;
    let odd = |line: &str| {
        let why = format!("a time reads {:?}", line.chars().take(80).collect::<String>());
        OutputError::Odd { tool: TOOL, why }
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut times = Vec::new();
    for line in whole.lines() {
        let Some(seconds) = line.trim().strip_prefix("Time:") else { continue };
        let seconds: f64 = seconds.trim().parse().map_err(|_| odd(line))?;
        if !seconds.is_finite() || !(0.0..=1e7).contains(&seconds) {
            return Err(odd(line));
        }
        times.push(seconds);
    }
    Ok(times)
}
