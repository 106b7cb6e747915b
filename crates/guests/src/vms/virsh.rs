//! libvirt, asked through `virsh`.
//!
//! Each call names its deadline. libvirt that cannot be reached, dies meanwhile or does not answer is told apart from
//! libvirt that answers and refuses.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{Command, ProcessError, interrupt, process};
use penstock_model::GuestName;
use thiserror::Error;

use crate::state::PREFIX;
use crate::words;

/// The connection to the system's VMs. No other would do: only root may lock memory and open VFIO groups.
const CONNECTION: &str = "qemu:///system";

/// What `virsh` says when libvirt is not there, or was there a moment ago (libvirt, `src/rpc/virnetsocket.c`,
/// `virnetclient.c`; `tools/virsh.c`).
const SILENCE: [&str; 9] = [
    "failed to connect to the hypervisor",
    "Failed to connect socket",
    "Failed to reconnect to the hypervisor",
    "Disconnected from",
    "Cannot recv data",
    "Cannot write data",
    "End of file while reading data",
    "client socket is closed",
    "internal error: connection closed",
];

/// What it says when it has not even reached libvirt, so that nothing was asked.
const UNREACHED: [&str; 2] = ["failed to connect to the hypervisor", "Failed to connect socket"];

/// How long libvirt's daemon has to come back: whoever looks after it starts it again within a second or two.
const RETURN: Duration = Duration::from_secs(3);

/// Why libvirt did not do something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VirshError {
    /// There is no `virsh`.
    #[error("{}", process::not_installed("virsh"))]
    Missing,
    /// It did not answer.
    #[error("libvirt does not answer{}", words::listed(said))]
    Silent {
        /// What was said about that.
        said: Vec<String>,
    },
    /// It knows no such domain.
    #[error("libvirt knows no such VM")]
    NoDomain,
    /// It answered, and did not do it.
    #[error("libvirt refused{}", words::listed(said))]
    Refused {
        /// What it said.
        said: Vec<String>,
    },
}

impl VirshError {
    /// Whether libvirt's daemon was not even reached: it is not there.
    pub fn is_unreached(&self) -> bool {
        matches!(self, VirshError::Silent { .. }) && self.says(&UNREACHED)
    }

    /// What libvirt or `virsh` said, line by line.
    pub fn said(&self) -> &[String] {
        match self {
            VirshError::Silent { said } | VirshError::Refused { said } => said,
            VirshError::Missing | VirshError::NoDomain => &[],
        }
    }

    /// Whether what was said holds one of these words.
    pub fn says(&self, any: &[&str]) -> bool {
        self.said().iter().any(|line| any.iter().any(|words| line.contains(words)))
    }
}

/// libvirt of this host.
#[derive(Clone, Debug, Default)]
pub struct Virsh {
    program: Option<PathBuf>,
}

impl Virsh {
    /// Through this program instead of the one on `PATH`, for tests.
    pub fn through(program: PathBuf) -> Virsh {
        Virsh { program: Some(program) }
    }

    /// Whether there is a `virsh`.
    pub fn is_there(&self) -> bool {
        self.program.is_some() || process::find("virsh").is_some()
    }

    /// Makes a domain of this XML and leaves it suspended. It is transient: gone when it ends.
    ///
    /// # Errors
    ///
    /// [`VirshError::Refused`] with what libvirt says of the XML or of QEMU's start; otherwise as every call: there is no `virsh`, or
    /// libvirt does not answer in time.
    pub fn create(&self, xml: &Path, timeout: Duration) -> Result<(), VirshError> {
        self.call(["create".into(), "--paused".into(), xml.into()], timeout).map(drop)
    }

    /// Lets a suspended domain run; already running is success.
    ///
    /// # Errors
    ///
    /// [`VirshError::NoDomain`], or [`VirshError::Refused`] for another reason than that it runs; as every call.
    pub fn resume(&self, guest: &GuestName, timeout: Duration) -> Result<(), VirshError> {
        let outcome = self.about("resume", guest, &[], timeout);
        outcome.or_else(|error| if error.says(&["already running"]) { Ok(()) } else { Err(error) })
    }

    /// Suspends a domain; already suspended is success.
    ///
    /// # Errors
    ///
    /// [`VirshError::NoDomain`], [`VirshError::Refused`]; as every call.
    pub fn suspend(&self, guest: &GuestName, timeout: Duration) -> Result<(), VirshError> {
        self.about("suspend", guest, &[], timeout)
    }

    /// Asks the guest to end, by its agent or by the power button.
    ///
    /// # Errors
    ///
    /// [`VirshError::NoDomain`]; [`VirshError::Refused`] when it does not run, or its agent does not answer; as every call.
    pub fn shutdown(&self, guest: &GuestName, by_agent: bool, timeout: Duration) -> Result<(), VirshError> {
        self.about("shutdown", guest, &["--mode", if by_agent { "agent" } else { "acpi" }], timeout)
    }

    /// Ends a domain at once; no such domain is success.
    ///
    /// # Errors
    ///
    /// [`VirshError::Refused`] when its process cannot be ended; as every call.
    pub fn destroy(&self, guest: &GuestName, timeout: Duration) -> Result<(), VirshError> {
        let outcome = self.about("destroy", guest, &[], timeout);
        outcome.or_else(|error| match error {
            VirshError::NoDomain => Ok(()),
            error if error.says(&["domain is not running"]) => Ok(()),
            error => Err(error),
        })
    }

    /// The user as whom libvirt runs QEMU, as a number; `None` for its own, which is root.
    ///
    /// # Errors
    ///
    /// [`VirshError::Missing`], [`VirshError::Silent`], or [`VirshError::Refused`].
    pub fn qemu_user(&self, timeout: Duration) -> Result<Option<u32>, VirshError> {
        let text = self.call(["capabilities".into()], timeout)?;
        Ok(read_user(&String::from_utf8_lossy(&text)))
    }

    /// Whether libvirt confines its QEMUs by this security model (`apparmor`, `selinux`).
    ///
    /// # Errors
    ///
    /// As [`Virsh::qemu_user`].
    pub fn confines_by(&self, model: &str, timeout: Duration) -> Result<bool, VirshError> {
        let text = self.call(["capabilities".into()], timeout)?;
        Ok(String::from_utf8_lossy(&text).contains(&format!("<model>{model}</model>")))
    }

    /// The command line with which a domain of this XML would be started. Nothing is started.
    ///
    /// # Errors
    ///
    /// [`VirshError::Refused`] when libvirt does not take the XML; as every call.
    pub fn native(&self, xml: &str, timeout: Duration) -> Result<String, VirshError> {
        let words = ["domxml-to-native", "qemu-argv", "--xml", "/dev/stdin"];
        let text = self.call_with(words.map(OsString::from), xml.as_bytes(), timeout)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The guests that are there, and suspended.
    ///
    /// # Errors
    ///
    /// As [`Virsh::qemu_user`].
    pub fn suspended(&self, timeout: Duration) -> Result<Vec<GuestName>, VirshError> {
        let text = self.call(["list".into(), "--name".into(), "--state-paused".into()], timeout)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(text.lines().filter_map(|line| line.trim().strip_prefix(PREFIX)?.parse().ok()).collect())
    }

    /// Whether libvirt has a domain of this name, be it one that it is still about to start.
    ///
    /// # Errors
    ///
    /// As [`Virsh::qemu_user`].
    pub fn knows(&self, guest: &GuestName, timeout: Duration) -> Result<bool, VirshError> {
        let text = self.call(["list".into(), "--name".into(), "--all".into()], timeout)?;
        let domain = format!("{PREFIX}{guest}");
        Ok(String::from_utf8_lossy(&text).lines().any(|line| line.trim() == domain))
    }

    /// Sends the guest's agent a command, and gives its answer.
    ///
    /// # Errors
    ///
    /// [`VirshError::NoDomain`]; [`VirshError::Refused`] when the agent is not there or says no; as every call.
    pub fn ask_agent(
        &self,
        guest: &GuestName,
        request: &serde_json::Value,
        timeout: Duration,
    ) -> Result<Vec<u8>, VirshError> {
        // libvirt counts in whole seconds.
        let seconds = timeout.as_secs().max(1).to_string();
        let domain = format!("{PREFIX}{guest}");
        let words = ["qemu-agent-command", &domain, "--timeout", &seconds, "--", &request.to_string()];
        self.call(words.map(OsString::from), timeout + Duration::from_secs(5))
    }

    /// Asks QEMU's own monitor, and gives what that answers. libvirt marks the domain as tainted (`custom-monitor`).
    ///
    /// # Errors
    ///
    /// [`VirshError::NoDomain`]; [`VirshError::Refused`] when it does not run; as every call.
    pub fn ask_monitor(
        &self,
        guest: &GuestName,
        request: &serde_json::Value,
        timeout: Duration,
    ) -> Result<Vec<u8>, VirshError> {
        let domain = format!("{PREFIX}{guest}");
        let words = ["qemu-monitor-command", &domain, &request.to_string()];
        self.call(words.map(OsString::from), timeout)
    }

    /// What tells a line each time that QEMU's monitor tells this event, for as long as libvirt is there.
    ///
    /// # Errors
    ///
    /// [`VirshError::Missing`].
    pub fn monitor_events(&self, guest: &GuestName, event: &str) -> Result<Command, VirshError> {
        let domain = format!("{PREFIX}{guest}");
        // `virsh` keeps lines back where its output is no terminal (libvirt, `tools/vsh.c`, `vshPrint`).
        let command = Command::new("stdbuf").arg("--output=L").arg(self.found()?).args([
            "-q",
            "-c",
            CONNECTION,
            "qemu-monitor-event",
            "--domain",
            &domain,
            "--event",
            event,
            "--loop",
        ]);
        Ok(command.env("LC_ALL", "C").current_dir("/"))
    }

    fn found(&self) -> Result<PathBuf, VirshError> {
        self.program.clone().or_else(|| process::find("virsh")).ok_or(VirshError::Missing)
    }

    fn about(
        &self,
        verb: &str,
        guest: &GuestName,
        words: &[&str],
        timeout: Duration,
    ) -> Result<(), VirshError> {
        let domain = format!("{PREFIX}{guest}");
        let words = [verb, &domain].into_iter().chain(words.iter().copied());
        self.call(words.map(OsString::from), timeout).map(drop)
    }

    fn call(
        &self,
        words: impl IntoIterator<Item = OsString>,
        timeout: Duration,
    ) -> Result<Vec<u8>, VirshError> {
        self.call_with(words, &[], timeout)
    }

    fn call_with(
        &self,
        words: impl IntoIterator<Item = OsString>,
        input: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, VirshError> {
        let command = Command::new(self.found()?)
            .args(["-q", "-c", CONNECTION])
            .args(words)
            .input(input)
            // What it says is looked at.
            .env("LC_ALL", "C")
            .current_dir("/");
        let started = Instant::now();
        let mut unreached: Option<VirshError> = None;
        loop {
            let left = timeout.saturating_sub(started.elapsed()).max(Duration::from_millis(100));
            let error = match command.clone().deadline(left).run() {
                Ok(output) if output.status.success() => return Ok(output.stdout),
                Ok(output) => read_refusal(&output.errors()),
                Err(ProcessError::NotInstalled { .. }) => return Err(VirshError::Missing),
                // A last try that was too short tells less than the one before.
                Err(error) => {
                    return Err(unreached
                        .unwrap_or_else(|| VirshError::Silent { said: vec![penstock_host::chain(&error)] }));
                }
            };
            // Asked again only when it was not asked at all.
            if !error.is_unreached() || started.elapsed() >= RETURN.min(timeout) || interrupt::pending() {
                return Err(error);
            }
            unreached = Some(error);
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Reads what `virsh` says where it refuses, and what it answers to questions; the lines of it that are shown.
#[cfg(feature = "fuzzing")]
pub fn read_answers(text: &str) -> Vec<String> {
    let _ = read_user(text);
    read_refusal(text).said().to_vec()
}

/// The user of the security model `dac`: `<baselabel type='kvm'>+64055:+994</baselabel>`
/// (<https://libvirt.org/formatcaps.html>).
fn read_user(capabilities: &str) -> Option<u32> {
    let (_, dac) = capabilities.split_once("<model>dac</model>")?;
    let (dac, _) = dac.split_once("</secmodel>")?;
    let (_, label) = dac.split_once("<baselabel type='kvm'>")?;
    let (user, _) = label.split_once(':')?;
    user.trim_start_matches('+').parse().ok().filter(|user| *user != 0)
}

fn read_refusal(errors: &str) -> VirshError {
    let said: Vec<String> = errors
        .lines()
        .map(|line| words::printable(line.strip_prefix("error: ").unwrap_or(line)))
        .filter(|line| !line.is_empty())
        .collect();
    let says = |words: &str| said.iter().any(|line| line.contains(words));
    if SILENCE.iter().any(|words| says(words)) {
        VirshError::Silent { said }
    } else if says("Domain not found") || says("failed to get domain") {
        VirshError::NoDomain
    } else {
        VirshError::Refused { said }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_qemu_is_that_of_the_dac_model() {
        let text = "<secmodel>\n <model>apparmor</model>\n <doi>0</doi>\n</secmodel>\n<secmodel>\n <model>dac</model>\n \
                    <doi>0</doi>\n <baselabel type='kvm'>+64055:+994</baselabel>\n \
                    <baselabel type='qemu'>+64055:+994</baselabel>\n</secmodel>";
        assert_eq!(read_user(text), Some(64055));
        assert_eq!(read_user(&text.replace("64055", "0")), None);
        assert_eq!(read_user("<secmodel><model>selinux</model></secmodel>"), None);
    }

    #[test]
    fn refusals_are_told_apart() {
        let silent = "error: failed to connect to the hypervisor\nerror: Failed to connect socket to \
                      '/var/run/libvirt/libvirt-sock': No such file or directory\n";
        assert!(matches!(read_refusal(silent), VirshError::Silent { said } if said.len() == 2));
        let died = "error: Failed to create domain from a.xml\nerror: End of file while reading data: Input/output error\n";
        assert!(matches!(read_refusal(died), VirshError::Silent { .. }));
        let gone = "error: failed to get domain 'penstock-a'\n";
        assert_eq!(read_refusal(gone), VirshError::NoDomain);
        let refused = "error: Failed to create domain from a.xml\nerror: XML error: no\u{7}\n";
        let wanted = ["Failed to create domain from a.xml", "XML error: no\u{fffd}"].map(String::from).into();
        assert_eq!(read_refusal(refused), VirshError::Refused { said: wanted });
    }
}
