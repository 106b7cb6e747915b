//! A program that is talked with while it runs.

use std::process::{ChildStderr, ChildStdin, ChildStdout, Stdio};

use super::{Background, Command, ProcessError, deaf_to_interrupts, die_with_parent};

/// Whether a program may use Penstock's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// It may ask on `/dev/tty`: it belongs to the process group that the terminal listens to, and ignores Ctrl-C.
    Shared,
    /// It has a process group of its own, which the terminal stops when it asks.
    Apart,
}

/// A program in the background, and the pipes to and from it.
#[derive(Debug)]
pub struct Talk {
    /// The program; killed when this is dropped.
    pub program: Background,
    /// What it reads.
    pub input: ChildStdin,
    /// What it says.
    pub output: ChildStdout,
    /// What it complains of.
    pub errors: ChildStderr,
}

impl Command {
    /// Starts it with pipes for its input, output and errors. It is killed when the [`Background`] is dropped, and by the
    /// kernel when the thread that started it dies. The standard input and the deadline of the command play no part.
    ///
    /// # Errors
    ///
    /// It is not installed, or cannot be started.
    pub fn talk(&self, terminal: Terminal) -> Result<Talk, ProcessError> {
        let [stdin, stdout, stderr] = [(); 3].map(|()| Stdio::piped());
        let mut command = match terminal {
            Terminal::Apart => self.compose(stdin, stdout, stderr)?,
            Terminal::Shared => self.compose_in_our_group(stdin, stdout, stderr)?,
        };
        if terminal == Terminal::Shared {
            deaf_to_interrupts(&mut command);
        }
        die_with_parent(&mut command);
        let mut child = command.spawn().map_err(|error| self.start(error))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let program = Background { command: self.to_string(), child: Some(child) };
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(self.start(std::io::Error::other("it has no pipes")));
        };
        Ok(Talk { program, input, output, errors })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        time::Duration,
    };

    use super::*;

    #[test]
    fn it_is_talked_with_while_it_runs() {
        let echo =
            Command::new("sh").args(["-c", "while read -r line; do echo got $line; done; echo over >&2"]);
        let Talk { mut program, mut input, output, mut errors } = echo.talk(Terminal::Apart).unwrap();
        let mut output = BufReader::new(output);
        for word in ["one", "two"] {
            writeln!(input, "{word}").unwrap();
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, format!("got {word}\n"));
        }
        assert!(program.ended().is_none());
        drop(input);
        let mut said = String::new();
        errors.read_to_string(&mut said).unwrap();
        assert_eq!(said, "over\n");
        program.end(Duration::from_secs(5));
    }

    #[test]
    fn what_shares_the_terminal_does_not_see_its_interrupts() {
        let ask = |terminal| {
            let command = Command::new("sh").args(["-c", "kill -INT $$; echo alive"]);
            let Talk { program, mut output, .. } = command.talk(terminal).unwrap();
            let mut said = String::new();
            output.read_to_string(&mut said).unwrap();
            program.end(Duration::from_secs(5));
            said
        };
        assert_eq!(ask(Terminal::Shared), "alive\n");
        assert_eq!(ask(Terminal::Apart), "");
    }
}
