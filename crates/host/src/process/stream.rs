//! A command whose lines are looked at as they come.

use std::io::Read;

use super::{Command, OUTPUT_LIMIT, Output, ProcessError, append_within, pump::Stream};

/// A longer line is cut here, and the rest of it thrown away; see [`Output::truncated`].
pub const LINE_LIMIT: usize = 64 << 20;

impl Command {
    /// Runs it to its end and hands on each line of its standard output as soon as it is there, without its newline and with
    /// what is not UTF-8 replaced. The [`Output::stdout`] of the result is empty.
    ///
    /// # Errors
    ///
    /// As [`run`](Command::run); what came before was handed on.
    pub fn stream(&self, on_line: &mut dyn FnMut(&str)) -> Result<Output, ProcessError> {
        let mut lines = Lines::new(LINE_LIMIT);
        let mut stderr = Vec::new();
        let mut truncated = false;
        let mut hand_on = |line: &[u8]| {
            on_line(&String::from_utf8_lossy(line));
            true
        };
        let ended = self.attend(&mut |stream, bytes| match stream {
            Stream::Output => drop(lines.push(bytes, &mut hand_on)),
            Stream::Errors => truncated |= !append_within(OUTPUT_LIMIT, &mut stderr, bytes),
        });
        // What it had said when its deadline passed is handed on too.
        let cut = lines.finish(&mut hand_on);
        let (status, held_open) = ended?;
        let truncated = truncated || cut || held_open;
        Ok(Output { command: self.to_string(), status, stdout: Vec::new(), stderr, truncated })
    }
}

/// Hands on line by line, without newlines, until `next` wants no more; says whether one was longer than `limit` bytes and
/// was cut there. A last line without a newline counts.
pub fn each_line(mut stream: impl Read, limit: usize, next: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let mut lines = Lines::new(limit);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return lines.finish(next),
            Ok(length) => {
                if !lines.push(&buffer[..length], next) {
                    return lines.cut;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return lines.finish(next),
        }
    }
}

/// Bytes that come in pieces, cut into lines of bounded length.
struct Lines {
    limit: usize,
    line: Vec<u8>,
    /// Whether a line was longer than the limit.
    cut: bool,
}

impl Lines {
    fn new(limit: usize) -> Lines {
        Lines { limit, line: Vec::new(), cut: false }
    }

    /// Hands on the lines that `bytes` completes; `false` when `next` wants no more.
    fn push(&mut self, bytes: &[u8], next: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        bytes.split_inclusive(|byte| *byte == b'\n').all(|piece| {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.cut |= !append_within(self.limit, &mut self.line, text);
            if text.len() == piece.len() {
                return true;
            }
            let wanted = next(&self.line);
            self.line.clear();
            wanted
        })
    }

    /// Hands on what comes after the last newline; says whether a line was cut.
    fn finish(&mut self, next: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        if !self.line.is_empty() {
            next(&self.line);
            self.line.clear();
        }
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn shell(line: &str) -> Command {
        Command::new("sh").args(["-c", line])
    }

    fn lines_of(command: &Command) -> (Result<Output, ProcessError>, Vec<(String, Duration)>) {
        let began = Instant::now();
        let mut lines = Vec::new();
        let output = command.stream(&mut |line| lines.push((line.to_owned(), began.elapsed())));
        (output, lines)
    }

    #[test]
    fn lines_come_as_they_are_written() {
        // Its last line waits for a file that is made when its first was told.
        let directory = tempfile::tempdir().unwrap();
        let told = directory.path().join("told");
        let line = "read word; echo $word; echo oops >&2; until [ -e \"$0\" ]; do sleep 0.05; done; printf 'last \\377'; exit 3";
        let command = shell(line).arg(&told).input("first\n").deadline(Duration::from_secs(60));
        let mut texts = Vec::new();
        let output = command.stream(&mut |line| {
            texts.push(line.to_owned());
            std::fs::File::create(&told).unwrap();
        });
        let output = output.unwrap();
        assert_eq!((output.status.code(), output.errors().as_str()), (Some(3), "oops\n"));
        assert!(output.stdout.is_empty() && !output.truncated);
        assert_eq!(texts, ["first", "last \u{fffd}"]);
    }

    #[test]
    fn a_deadline_ends_it_and_keeps_what_came() {
        let (output, lines) = lines_of(&shell("echo a; sleep 60").deadline(Duration::from_secs(3)));
        assert!(matches!(output, Err(ProcessError::TimedOut { .. })), "{output:?}");
        assert_eq!(lines.len(), 1);
        assert!(lines[0].1 < Duration::from_secs(30));
    }

    #[test]
    fn what_it_leaves_running_holds_nobody_up() {
        let began = Instant::now();
        let (output, lines) = lines_of(&shell("echo a; sleep 30 &"));
        assert!(output.unwrap().status.success());
        assert_eq!(lines.len(), 1);
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn what_it_complained_of_is_kept_when_something_holds_its_errors_open() {
        let (output, _) = lines_of(&shell("echo oops >&2; sleep 30 >&2 &"));
        let output = output.unwrap();
        assert_eq!(output.errors(), "oops\n");
        assert!(output.truncated);
    }

    #[test]
    fn many_lines_all_come() {
        let (output, lines) = lines_of(&shell("seq 20000"));
        output.unwrap();
        assert_eq!(lines.len(), 20000);
        assert_eq!(lines[19999].0, "20000");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let endless = std::io::repeat(b'x').take(LINE_LIMIT as u64 + 5).chain(&b"\nnext\n"[..]);
        let mut lengths = Vec::new();
        let cut = each_line(endless, LINE_LIMIT, &mut |line| {
            lengths.push(line.len());
            true
        });
        assert!(cut);
        assert_eq!(lengths, [LINE_LIMIT, 4]);
    }
}
