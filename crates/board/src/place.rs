//! A board as a place: commands, files and interfaces inside it, over SSH.

use std::time::Duration;

use penstock_host::{Command, InterfaceReport, Output, Place, PlaceError, ProcessError};

use crate::{board::Board, complaints::complaints, interfaces};

/// How long it may take to read something inside; a busy machine emulates slowly.
const READING: Duration = Duration::from_secs(60);

/// The status with which `ssh` ends when it failed itself.
const SSH_FAILED: i32 = 255;

impl Place for Board {
    fn describe(&self) -> String {
        "inside the board".to_owned()
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        self.came_of(command, self.remote(command).run())
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError> {
        let output = self.run(&reading(path, limit))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(PlaceError::File {
            place: self.describe(),
            path: path.to_owned(),
            why: output.errors().trim().to_owned(),
        })
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let source = "ip -json -details address";
        let list = Command::new("ip").args(["-json", "-details", "address"]);
        let output = self.run(&list.deadline(READING))?;
        interfaces::read(&output.stdout).map_err(|why| PlaceError::File {
            place: self.describe(),
            path: source.to_owned(),
            why,
        })
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Err(PlaceError::Gone {
            place: "the board's network namespace".to_owned(),
            why: "it is under another kernel".to_owned(),
        })
    }
}

/// Reads a file inside, at most so many bytes of it. A FIFO, or a kernel that hangs, would otherwise be waited for without end.
fn reading(path: &str, limit: usize) -> Command {
    Command::new("head").args(["-c", &limit.to_string(), "--", path]).deadline(READING)
}

impl Board {
    /// Runs a command inside to its end, and hands on each line that it prints as soon as it is there
    /// ([`Command::stream`]).
    ///
    /// # Errors
    /// As [`Place::run`]; what came before was handed on.
    pub fn stream(&self, command: &Command, on_line: &mut dyn FnMut(&str)) -> Result<Output, PlaceError> {
        self.came_of(command, self.remote(command).stream(on_line))
    }

    fn came_of(&self, command: &Command, ended: Result<Output, ProcessError>) -> Result<Output, PlaceError> {
        let mut output = ended.map_err(|source| self.why_it_did_not_end(command, source))?;
        let said = output.errors();
        let connection =
            ["ssh: ", "Connection ", "mux_client", "Control socket", "kex_exchange", "client_loop"];
        if output.status.code() == Some(SSH_FAILED) && connection.iter().any(|sign| said.starts_with(sign)) {
            let why = self.died().map_or_else(|| said.trim().to_owned(), |died| died.to_string());
            return Err(PlaceError::Gone { place: "the board".to_owned(), why });
        }
        // What was asked for, not how it got there.
        output.command = command.to_string();
        Ok(output)
    }

    /// Of a command that was ended here, by its own name instead of that of the `ssh` that carried it; with what the board's kernel says
    /// when it is the one that hangs.
    fn why_it_did_not_end(&self, command: &Command, source: ProcessError) -> PlaceError {
        let command = command.to_string();
        let source = match source {
            ProcessError::TimedOut { after, left, .. } => ProcessError::TimedOut { command, after, left },
            ProcessError::Interrupted { left, .. } => ProcessError::Interrupted { command, left },
            other => other,
        };
        let timed_out = matches!(source, ProcessError::TimedOut { .. });
        let console = if timed_out { self.serial_log() } else { String::new() };
        match complaints(&console)[..] {
            [] => PlaceError::Process { place: self.describe(), source },
            ref lines => PlaceError::Gone {
                place: "the board".to_owned(),
                why: format!("{source}; its kernel says: {}", lines.join(" ")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_of_a_board_is_not_waited_for_without_end() {
        let command = reading("/proc/kmsg", 10);
        assert_eq!(command.time_allowed(), Some(READING));
        assert_eq!(command.to_string(), "head -c 10 -- /proc/kmsg");
    }
}
