//! SSH into a board: keys of its own, one kept connection, words passed on as they are.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_host::{Command, files, process, process::quoted};

use crate::error::BoardError;

/// The two key pairs of a board: the client's and the host's.
pub const KEYS: [&str; 4] = ["client-key", "client-key.pub", "host-key", "host-key.pub"];
const KNOWN_HOSTS: &str = "known_hosts";
/// The name under which the board's host key is known, whatever its port.
const ALIAS: &str = "board";

/// The way into one board.
#[derive(Clone, Debug)]
pub struct Shell {
    directory: PathBuf,
    port: u16,
}

impl Shell {
    /// The way into the board whose keys are in `directory`, on the loopback port `port`.
    pub fn new(directory: impl Into<PathBuf>, port: u16) -> Shell {
        Shell { directory: directory.into(), port }
    }

    /// Makes fresh keys in `directory`.
    ///
    /// # Errors
    ///
    /// When `ssh-keygen` is missing or fails, or the host key cannot be noted.
    pub fn make_keys(directory: &Path) -> Result<(), BoardError> {
        for name in ["client-key", "host-key"] {
            let comment = format!("penstock board {name}");
            Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", &comment, "-f", name])
                .current_dir(directory)
                .deadline(Duration::from_secs(30))
                .succeed()?;
        }
        Shell::pin_host_key(directory)
    }

    /// Notes the only host key that is accepted.
    ///
    /// # Errors
    ///
    /// When the key cannot be read, or the file not be written.
    pub fn pin_host_key(directory: &Path) -> Result<(), BoardError> {
        let key = files::read_to_string(directory.join("host-key.pub"))?;
        files::write_atomic(directory.join(KNOWN_HOSTS), format!("{ALIAS} {key}"))?;
        Ok(())
    }

    /// Whether the programs are there.
    ///
    /// # Errors
    ///
    /// [`BoardError::Missing`] with the first that is not there.
    pub fn check_tools() -> Result<(), BoardError> {
        for program in ["ssh", "ssh-keygen"] {
            if process::find(program).is_none() {
                return Err(BoardError::Missing { program, purpose: "reach a board" });
            }
        }
        Ok(())
    }

    /// `ssh` with everything but what to run: for a person who enters the board, or a command that is added.
    pub fn ssh(&self) -> Command {
        self.ssh_as("root")
    }

    /// The same as another account.
    pub fn ssh_as(&self, account: &str) -> Command {
        let option = |name: &str, path: &str| format!("{name}={}", self.directory.join(path).display());
        Command::new("ssh")
            .args(["-F", "none", "-p", &self.port.to_string()])
            .arg("-i")
            .arg(self.directory.join("client-key"))
            .args(["-o", &option("UserKnownHostsFile", KNOWN_HOSTS)])
            .args(["-o", "GlobalKnownHostsFile=none", "-o", &format!("HostKeyAlias={ALIAS}")])
            .args(["-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"])
            .args(["-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=20"])
            // A board whose kernel hangs is given up after five minutes; one that only has much to do answers before.
            .args(["-o", "ServerAliveInterval=30", "-o", "ServerAliveCountMax=10"])
            // The fastest under software emulation by a third.
            .args(["-o", "Ciphers=aes128-gcm@openssh.com"])
            // A connection costs about a second under software emulation; one more command on it some 50 ms.
            .args([
                "-o",
                "ControlMaster=auto",
                "-o",
                "ControlPersist=600",
                "-o",
                // A connection belongs to the account that made it.
                &option(
                    "ControlPath",
                    &if account == "root" { "ssh".to_owned() } else { format!("ssh-{account}") },
                ),
            ])
            .arg(format!("{account}@127.0.0.1"))
    }

    /// Ends the kept connection; the next command makes a new one.
    pub fn hang_up(&self) {
        // Where there is none, there is none to end.
        let _ = self.ssh().args(["-O", "exit"]).deadline(Duration::from_secs(10)).run();
    }

    /// `command` as `ssh` runs it inside the board, with its input, environment, directory and deadline.
    pub fn remote(&self, command: &Command) -> Command {
        let mut line = String::new();
        if let Some(directory) = command.directory() {
            line.push_str(&format!("cd {} && ", quoted(&directory.to_string_lossy())));
        }
        line.push_str("exec");
        if !command.environment().is_empty() {
            line.push_str(" env");
            for (name, value) in command.environment() {
                let assignment = format!("{}={}", name.to_string_lossy(), value.to_string_lossy());
                line.push_str(&format!(" {}", quoted(&assignment)));
            }
        }
        if let Some(deadline) = command.time_allowed() {
            // So that nothing is left running there; this side gives up at the deadline itself.
            line.push_str(&format!(" timeout -s KILL {}", deadline.as_secs() + 1));
        }
        for word in std::iter::once(command.program()).chain(command.arguments().iter().map(AsRef::as_ref)) {
            line.push_str(&format!(" {}", quoted(&word.to_string_lossy())));
        }
        let remote = self.ssh().arg("--").arg(line).input(command.standard_input());
        match command.time_allowed() {
            Some(deadline) => remote.deadline(deadline),
            None => remote,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_board_as_they_are() {
        let shell = Shell::new("/run/x", 2201);
        let command = Command::new("printf")
            .args(["%s", "it's $HOME; `date`", ""])
            .env("A", "b c")
            .current_dir("/tmp/a b")
            .deadline(Duration::from_secs(5));
        let remote = shell.remote(&command);
        let line = remote.arguments().last().unwrap().to_string_lossy().into_owned();
        let expected =
            r"cd '/tmp/a b' && exec env 'A=b c' timeout -s KILL 6 'printf' '%s' 'it'\''s $HOME; `date`' ''";
        assert_eq!(line, expected);
        // A real shell reads back the same words.
        let local = line.replace("cd '/tmp/a b' && ", "");
        let output = Command::new("sh").args(["-c", &local]).succeed().unwrap();
        assert_eq!(output.text(), "it's $HOME; `date`");
    }
}
