//! The user's own `ssh`: with which options it is called, and what its complaints mean.

use std::{path::Path, time::Duration};

use penstock_host::{Command, ProcessError};
use penstock_model::text::{clip, one_line};

use super::{hosts::Host, trouble::Trouble};
use crate::failure::{Fault, Status};

/// The status of `ssh` itself failing.
pub const FAILED: i32 = 255;

/// How long a machine may take to answer, in seconds, where the user's configuration does not say it.
const ANSWER: u32 = 20;

/// How long it may take to read a configuration; `Match exec` runs commands.
const READING: Duration = Duration::from_secs(20);

/// The way to one machine.
#[derive(Clone, Copy, Debug)]
pub struct SshTarget<'a> {
    /// The machine, as `ssh` knows it.
    pub host: &'a Host,
    /// The configuration that is read instead of the user's.
    pub config: Option<&'a Path>,
    /// Nobody can be asked for a password.
    pub batch: bool,
}

impl SshTarget<'_> {
    /// Whether the configuration says how long a machine may take to answer (`ssh -G`, which connects to nothing).
    ///
    /// # Errors
    ///
    /// `ssh` is not installed, or does not understand its configuration.
    pub fn has_own_timeout(&self) -> Result<bool, (Status, Trouble)> {
        let asked = self.ssh().args(["-G", "--", self.host.as_str()]).deadline(READING).run();
        let output = asked.map_err(|error| (error.status(), not_started(&error, self.host)))?;
        if !output.status.success() {
            return Err((Status::Failed, explain(&output.errors(), self.host)));
        }
        Ok(has_timeout(&output.text()))
    }

    /// `ssh` that runs `line` there with the shell of the account.
    pub fn command(&self, own_timeout: bool, line: &str) -> Command {
        let mut ssh = self.ssh().args([
            // As scp(1) calls it: nothing of the configuration but the way there and the login.
            "-x",
            "-oRemoteCommand=none",
            "-oRequestTTY=no",
            "-oClearAllForwardings=yes",
            "-oPermitLocalCommand=no",
            "-oForwardAgent=no",
        ]);
        if self.batch {
            ssh = ssh.arg("-oBatchMode=yes");
        }
        if !own_timeout {
            ssh = ssh.arg(format!("-oConnectTimeout={ANSWER}"));
        }
        ssh.args(["--", self.host.as_str(), line])
    }

    fn ssh(&self) -> Command {
        let ssh = Command::new("ssh");
        match self.config {
            Some(path) => ssh.arg("-F").arg(path),
            None => ssh,
        }
    }
}

fn has_timeout(configuration: &str) -> bool {
    let value = configuration.lines().find_map(|line| line.strip_prefix("connecttimeout "));
    value.is_some_and(|value| value.trim() != "none")
}

/// `ssh` could not be started.
pub fn not_started(error: &ProcessError, host: &Host) -> Trouble {
    match error {
        ProcessError::NotInstalled { .. } => {
            Trouble::new(format!("{host} cannot be reached: there is no ssh here"))
                .hint("install OpenSSH's client; on Debian: apt-get install openssh-client")
        }
        error => Trouble::new(format!("{host} cannot be reached")).because(penstock_host::chain(error)),
    }
}

/// What `ssh` complained of before anybody was logged in, and what to do about it.
pub fn explain(said: &str, host: &Host) -> Trouble {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let why = lines.last().map_or("ssh does not say why".to_owned(), |line| clip(&one_line(line), 300));
    let trouble = |what: &str| Trouble::new(format!("{host} {what}")).because(why.clone());
    let says = |signs: &[&str]| signs.iter().any(|sign| said.contains(sign));
    if says(&["REMOTE HOST IDENTIFICATION HAS CHANGED"]) {
        return trouble("has another host key than before, so nobody was logged in").hint(
            "somebody may pretend to be it; if it was installed anew, take the old key out with `ssh-keygen -R`",
        );
    }
    if says(&["Host key verification failed", "No matching host key", "host key is known"]) {
        return trouble("has a host key that is not known here, so nobody was logged in")
            .hint(format!("compare it and accept it once: ssh {host}"));
    }
    if says(&["Permission denied", "Too many authentication failures", "No more authentication methods"]) {
        return trouble("lets nobody in").hint(format!(
            "`ssh {host} true` must work; with several machines, or without a terminal, it must not ask for a password: \
             use a key and an agent"
        ));
    }
    if says(&["Could not resolve hostname", "Name or service not known"]) {
        return trouble("is not known")
            .hint("is it spelled right? a name of your own stands in ~/.ssh/config");
    }
    if says(&["onfiguration option", "Can't open user config file", "bad configuration"]) {
        return trouble("cannot be reached: ssh does not understand its configuration");
    }
    trouble("cannot be reached").hint(format!("see whether `ssh {host} true` works"))
}

/// Whether a connection that there was is there no more, from the last of what `ssh` said.
pub fn is_loss(said: &str) -> bool {
    let signs = [
        "Connection to ",
        "Connection closed",
        "Connection reset",
        "Broken pipe",
        "not responding",
        "client_loop",
        "Control socket",
        "mux_client",
        "disconnect",
    ];
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    signs.iter().any(|sign| last.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        "root@node".parse().unwrap()
    }

    #[test]
    fn the_users_configuration_decides_all_but_what_would_get_in_the_way() {
        let host = host();
        let way = SshTarget { host: &host, config: None, batch: true };
        let line = way.command(false, "exec sh").to_string();
        assert_eq!(
            line,
            "ssh -x -oRemoteCommand=none -oRequestTTY=no -oClearAllForwardings=yes -oPermitLocalCommand=no \
             -oForwardAgent=no -oBatchMode=yes -oConnectTimeout=20 -- root@node 'exec sh'"
        );
        let way = SshTarget { config: Some(Path::new("f")), batch: false, ..way };
        let line = way.command(true, "x").to_string();
        assert!(
            line.starts_with("ssh -F f -x") && !line.contains("Batch") && !line.contains("Timeout"),
            "{line}"
        );
    }

    #[test]
    fn a_timeout_of_the_users_stays() {
        assert!(has_timeout("port 22\nconnecttimeout 60\n"));
        assert!(!has_timeout("port 22\nconnecttimeout none\n"));
        assert!(!has_timeout(""));
    }

    #[test]
    fn complaints_are_told_apart() {
        let cases = [
            ("ssh: Could not resolve hostname node: Name or service not known", "is not known"),
            ("ssh: connect to host node port 22: Connection refused", "cannot be reached"),
            ("root@node: Permission denied (publickey).", "lets nobody in"),
            (
                "No ED25519 host key is known for node and you have requested strict checking.\nHost key verification failed.",
                "not known here",
            ),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                "another host key",
            ),
            (
                "f: line 1: Bad configuration option: foo\nf: terminating, 1 bad configuration options",
                "configuration",
            ),
            ("", "cannot be reached"),
        ];
        for (said, wanted) in cases {
            let trouble = explain(said, &host());
            assert!(trouble.causes[0].contains(wanted), "{said}: {trouble:?}");
            assert!(trouble.causes[0].contains("root@node"), "{trouble:?}");
        }
        let hostile = explain("x\u{1b}]0;title\u{7}y", &host());
        assert_eq!(hostile.causes[1], "x\u{fffd}y");
        assert!(is_loss("client_loop: send disconnect: Broken pipe\r\n"));
        assert!(!is_loss("thread 'main' panicked"));
    }
}
