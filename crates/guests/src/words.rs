//! What programs and guests say, made fit to be shown.

use std::path::Path;

use penstock_host::files;
use penstock_model::text::{clip, one_line};

/// How much of the end of a log is looked at for its last lines; a hostile guest can write as much as it likes.
const TAIL: usize = 64 << 10;

/// A line that must not steer the operator's terminal, nor fill it.
pub fn printable(line: &str) -> String {
    clip(one_line(line).trim_end(), 400)
}

/// The last `count` lines of a log that say something; none when it cannot be read.
pub fn last_lines(log: &Path, count: usize) -> Vec<String> {
    let bytes = files::read_tail(log, TAIL).unwrap_or_default();
    // The first line of so much may be the end of one, another each time.
    let begin = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) if bytes.len() == TAIL => end,
        _ => 0,
    };
    let text = String::from_utf8_lossy(&bytes[begin..]);
    let mut lines: Vec<String> = text
        .rsplit('\n')
        // Of what was overwritten in a line (a progress bar) the last is what stood there in the end.
        .filter_map(|line| line.trim_end().rsplit('\r').next().map(printable))
        .filter(|line| !line.trim().is_empty())
        .take(count)
        .collect();
    lines.reverse();
    lines
}

/// Lines below what is said of them.
pub fn listed(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        [one] if one.len() <= 100 => format!(": {one}"),
        lines => format!(":\n  {}", lines.join("\n  ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_of_a_console() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("console.log");
        files::write_atomic(&log, b"one\r\n\r\ntwo \x1b[31mred\xff\r\n10%\r100%\r\n\n").unwrap();
        assert_eq!(last_lines(&log, 2), ["two red\u{fffd}", "100%"]);
        assert_eq!(last_lines(&log, 9).len(), 3);
        assert!(last_lines(Path::new("/nonexistent"), 9).is_empty());
        files::write_atomic(&log, format!("{}\nlast\n", "x".repeat(TAIL))).unwrap();
        assert_eq!(last_lines(&log, 9), ["last"], "the end of a line is none");
        files::write_atomic(&log, "x".repeat(2 * TAIL)).unwrap();
        assert_eq!(last_lines(&log, 9).len(), 1, "it is all there is");
    }
}
