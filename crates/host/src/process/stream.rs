//! A command whose lines are looked at as they come.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{self, Stdio},
    sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Command, Output, ProcessError, drain};
use crate::interrupt;

/// A longer line is cut here, and the rest of it thrown away; see [`Output::truncated`].
pub const LINE_LIMIT: usize = 64 << 20;

/// So many lines may wait for whoever looks at them; then the program waits.
const WAITING_LINES: usize = 64;

/// How often the deadline and interrupts are looked at while no line comes.
const INTERVAL: Duration = Duration::from_millis(20);

/// How long what a program left running may hold its output open, after the program has ended.
const LINGER: Duration = Duration::from_secs(2);

impl Command {
    /// Runs it to its end and hands on each line of its standard output as soon as it is there, without its newline and with
    /// what is not UTF-8 replaced. The [`Output::stdout`] of the result is empty.
    ///
    /// # Errors
    ///
    /// As [`run`](Command::run); what came before was handed on.
    pub fn stream(&self, on_line: &mut dyn FnMut(&str)) -> Result<Output, ProcessError> {
        let deadline = self.deadline.map(|deadline| Instant::now() + deadline);
        let mut child = self
            .prepare(Stdio::piped(), Stdio::piped(), Stdio::piped())
            .spawn()
            .map_err(|error| self.start(error))?;
        let (to_us, lines) = sync_channel(WAITING_LINES);
        let stdout = child.stdout.take();
        let reading = thread::spawn(move || stdout.is_some_and(|stdout| send_lines(stdout, &to_us)));
        let stderr = child.stderr.take();
        let complaints = thread::spawn(move || stderr.map(|s| drain(Box::new(s))).unwrap_or_default());
        let (input, bytes) = (child.stdin.take(), self.input.clone());
        thread::spawn(move || input.map(|mut input| input.write_all(&bytes)));

        let mut ended: Option<(process::ExitStatus, Instant)> = None;
        loop {
            match lines.recv_timeout(INTERVAL) {
                Ok(line) => {
                    on_line(&String::from_utf8_lossy(&line));
                    if let Some((_, last)) = &mut ended {
                        *last = Instant::now();
                    }
                }
                Err(RecvTimeoutError::Disconnected) if ended.is_some() => break,
                // Its output is closed and it still runs.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(INTERVAL),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ended.is_none() {
                ended = child.try_wait().map_err(|e| self.start(e))?.map(|status| (status, Instant::now()));
            }
            match ended {
                Some((_, last)) if last.elapsed() > LINGER => break,
                Some(_) => {}
                None if interrupt::pending() || deadline.is_some_and(|end| Instant::now() >= end) => {
                    let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL);
                    let _ = child.wait();
                    // What it had said by then is handed on.
                    while let Ok(line) = lines.recv_timeout(INTERVAL) {
                        on_line(&String::from_utf8_lossy(&line));
                    }
                    let command = self.to_string();
                    return Err(match self.deadline {
                        Some(after) if !interrupt::pending() => ProcessError::TimedOut { command, after },
                        _ => ProcessError::Interrupted { command },
                    });
                }
                None => {}
            }
        }
        drop(lines);
        let Some((status, _)) = ended else {
            return Err(self.start(std::io::Error::other("it was not seen to end")));
        };
        // A thread that is stuck on what somebody else holds open is left to itself.
        let patience = Instant::now() + LINGER;
        while !(reading.is_finished() && complaints.is_finished()) && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        let cut_out = reading.is_finished() && reading.join().unwrap_or_default();
        let (stderr, cut_err) = match complaints.is_finished() {
            true => complaints.join().unwrap_or_default(),
            false => Default::default(),
        };
        let truncated = cut_out || cut_err;
        Ok(Output { command: self.to_string(), status, stdout: Vec::new(), stderr, truncated })
    }
}

fn send_lines(stream: impl Read, to: &SyncSender<Vec<u8>>) -> bool {
    each_line(stream, LINE_LIMIT, &mut |line| to.send(line).is_ok())
}

/// Hands on line by line, without newlines, until `next` wants no more; says whether one was longer than `limit` bytes and
/// was cut there. A last line without a newline counts.
pub fn each_line(stream: impl Read, limit: usize, next: &mut dyn FnMut(Vec<u8>) -> bool) -> bool {
    let mut stream = BufReader::new(stream);
    let mut cut = false;
    loop {
        let mut line = Vec::new();
        match stream.by_ref().take(limit as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return cut,
            Ok(_) => {}
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() >= limit {
            cut = true;
            skip_line(&mut stream);
        }
        if !next(line) {
            return cut;
        }
    }
}

fn skip_line(stream: &mut impl BufRead) {
    loop {
        let (used, over) = match stream.fill_buf() {
            Ok([]) | Err(_) => return,
            Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (bytes.len(), false),
            },
        };
        stream.consume(used);
        if over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
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
        let command = shell("read word; echo $word; echo oops >&2; sleep 0.6; printf 'last \\377'; exit 3");
        let (output, lines) = lines_of(&command.input("first\n"));
        let output = output.unwrap();
        assert_eq!((output.status.code(), output.errors().as_str()), (Some(3), "oops\n"));
        assert!(output.stdout.is_empty() && !output.truncated);
        let texts: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
        assert_eq!(texts, ["first", "last \u{fffd}"]);
        assert!(lines[1].1 - lines[0].1 >= Duration::from_millis(400), "{lines:?}");
    }

    #[test]
    fn a_deadline_ends_it_and_keeps_what_came() {
        let (output, lines) = lines_of(&shell("echo a; sleep 60").deadline(Duration::from_millis(300)));
        assert!(matches!(output, Err(ProcessError::TimedOut { .. })), "{output:?}");
        assert_eq!(lines.len(), 1);
        assert!(lines[0].1 < Duration::from_secs(5));
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
    fn many_lines_all_come() {
        let (output, lines) = lines_of(&shell("seq 20000"));
        output.unwrap();
        assert_eq!(lines.len(), 20000);
        assert_eq!(lines[19999].0, "20000");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let endless = std::io::repeat(b'x').take(LINE_LIMIT as u64 + 5).chain(&b"\nnext\n"[..]);
        let (to, from) = sync_channel(4);
        assert!(send_lines(endless, &to));
        let lines: Vec<Vec<u8>> = from.try_iter().collect();
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [LINE_LIMIT, 4]);
    }
}
