//! A program that is spoken to on its prompt.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use super::processes::{self, Program};

/// A program that has a prompt.
pub struct Prompt {
    /// The process.
    pub program: Program,
    answers: Receiver<String>,
    prompt: &'static str,
}

impl Prompt {
    /// Starts it. Its first answer is what it says until it has a prompt: [`Prompt::answer`].
    pub fn start(command: &mut Command, prompt: &'static str) -> Result<Prompt, String> {
        let mut program = Program::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let mut stdout = program.child().stdout.take().ok_or("a program without output")?;
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            processes::before_all_others();
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                text += &String::from_utf8_lossy(buffer.get(..count).unwrap_or_default());
                if text.ends_with(prompt) && sender.send(std::mem::take(&mut text)).is_err() {
                    return;
                }
            }
            // Its last words, without a prompt.
            let _ = sender.send(text);
        });
        Ok(Prompt { program, answers, prompt })
    }

    /// Waits for its answer to `what`.
    pub fn answer(&self, what: &str, timeout: Duration) -> Result<String, String> {
        let text = self
            .answers
            .recv_timeout(timeout)
            .map_err(|_| format!("{} did not answer {what} within {timeout:?}", self.prompt.trim()))?;
        match text.ends_with(self.prompt) {
            true => Ok(text),
            false => Err(format!("{} ended at {what}: {}", self.prompt.trim(), text.trim())),
        }
    }

    /// Says `line` and waits for the answer.
    pub fn ask(&mut self, line: &str, timeout: Duration) -> Result<String, String> {
        let stdin = self.program.child().stdin.as_mut().ok_or("a program without input")?;
        stdin.write_all(format!("{line}\n").as_bytes()).map_err(|error| format!("{line}: {error}"))?;
        self.answer(line, timeout)
    }
}
