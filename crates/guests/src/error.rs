//! Why something could not be done with a guest.

use std::{path::PathBuf, time::Duration};

use penstock_host::{ProcessError, files::FileError, netlink::NetlinkError};
use penstock_model::{Bdf, GuestName, InterfaceName};
use penstock_plan::CarryError;
use thiserror::Error;

use crate::containers::config::ConfigError;

/// Why something could not be done with a guest.
#[derive(Debug, Error)]
pub enum GuestError {
    /// There is no such guest.
    #[error("guest {guest} is not defined here")]
    Undefined {
        /// Its name.
        guest: GuestName,
    },
    /// It cannot be redefined or removed while it runs.
    #[error("guest {guest} is running; stop it first")]
    Running {
        /// Its name.
        guest: GuestName,
    },
    /// Another Penstock is at work on it.
    #[error("another Penstock has been at work on guest {guest} for more than {} s", after.as_secs_f32())]
    Busy {
        /// Its name.
        guest: GuestName,
        /// How long it was waited for.
        after: Duration,
    },
    /// Its state could not be read or written.
    #[error("the state of the containers cannot be kept")]
    State(#[from] FileError),
    /// A file of its state makes no sense.
    #[error("{} makes no sense", path.display())]
    Garbled {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It cannot be written down for LXC.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its root directory is not there.
    #[error("the root directory {path} of guest {guest} does not exist")]
    NoRoot {
        /// Its name.
        guest: GuestName,
        /// The directory.
        path: String,
    },
    /// A program of LXC is not there.
    #[error("the program {program:?} is not installed")]
    NoLxc {
        /// Which.
        program: String,
    },
    /// Limits were asked for and the kernel's control groups cannot hold them.
    #[error("the {what} limit of guest {guest} cannot be held: {why}")]
    NoLimits {
        /// Its name.
        guest: GuestName,
        /// `cpus` or `memory`.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// A function has no interface on the host.
    #[error("function {function} of guest {guest} has no network interface on this host: {why}")]
    NoInterface {
        /// The guest that should get it.
        guest: GuestName,
        /// The function.
        function: Bdf,
        /// What is known about why.
        why: String,
    },
    /// The kernel could not be asked about interfaces, or refused a change.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A program of LXC failed.
    #[error("LXC failed{}", said(log))]
    Lxc {
        /// The last lines of its log and of the container's console.
        log: Vec<String>,
        /// The command that failed.
        #[source]
        source: ProcessError,
    },
    /// The first process ended at once.
    #[error("its first process, `{init}`, ended at once{}", said(log))]
    Ended {
        /// The first process.
        init: String,
        /// The last lines of LXC's log and of the container's console.
        log: Vec<String>,
    },
    /// It runs, but an interface is not inside.
    #[error("it runs, but the interface {interface} of function {function} is not inside{}", said(log))]
    NotInside {
        /// The function.
        function: Bdf,
        /// The name that its interface should have.
        interface: InterfaceName,
        /// The last lines of LXC's log and of the container's console.
        log: Vec<String>,
    },
    /// It does not stop.
    #[error("its first process, {pid}, still runs after it was killed")]
    Unstoppable {
        /// The first process on the host.
        pid: u32,
    },
    /// A function's interface did not come back.
    #[error(
        "the interface of function {function} (it was called {name}) did not come back to the host within {} s",
        after.as_secs_f32()
    )]
    NotBack {
        /// The function.
        function: Bdf,
        /// Its name on the host before.
        name: InterfaceName,
        /// How long it was waited for.
        after: Duration,
    },
}

fn said(log: &[String]) -> String {
    if log.is_empty() {
        return String::new();
    }
    format!(":\n  {}", log.join("\n  "))
}

impl GuestError {
    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            GuestError::NoLxc { .. } => "install LXC (Debian: apt-get install lxc)".to_owned(),
            GuestError::NoRoot { .. } => "make the directory, or leave `root` out of the model".to_owned(),
            GuestError::NoLimits { .. } => {
                "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1), or leave `cpus` and `memory` out \
                 of the model"
                    .to_owned()
            }
            GuestError::NoInterface { function, .. } => {
                format!("see `ls -l /sys/bus/pci/devices/{function}/driver /sys/bus/pci/devices/{function}/net`")
            }
            GuestError::Netlink(error) => error.hint()?.to_owned(),
            _ => return None,
        })
    }

    /// The same for `apply`, which was doing `attempt`.
    pub fn into_carry_error(self, attempt: &str) -> CarryError {
        match (&self, self.hint()) {
            (
                GuestError::NoLxc { .. }
                | GuestError::NoRoot { .. }
                | GuestError::NoLimits { .. }
                | GuestError::NoInterface { .. },
                Some(hint),
            ) => CarryError::Missing { what: format!("could not {attempt}: {self}"), hint },
            _ => CarryError::Failed { attempt: format!("could not {attempt}"), source: Box::new(self) },
        }
    }
}
