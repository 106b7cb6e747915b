//! Why the kernel did not do what was asked of it over netlink.

use std::{io, time::Duration};

use nix::errno::Errno;
use thiserror::Error;

use crate::namespace::NamespaceError;

/// A netlink request that failed. `attempt` reads like "set mac 02:00:00:00:01:04 of VF 3 through interface 7".
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// The driver or device cannot do this (`EOPNOTSUPP`), or not with this tag protocol (`EPROTONOSUPPORT`).
    #[error("could not {attempt}: the driver does not support it{}", in_words(detail))]
    Unsupported {
        /// What was attempted, with which values.
        attempt: String,
        /// The kernel's own words, if it gave any.
        detail: Option<String>,
    },
    /// The kernel or the driver forbids it (`EPERM`, `EACCES`).
    #[error("could not {attempt}: not permitted{}", in_words(detail))]
    NotPermitted {
        /// What was attempted, with which values.
        attempt: String,
        /// The kernel's own words, if it gave any.
        detail: Option<String>,
    },
    /// There is no such interface in this namespace (`ENODEV`).
    #[error("could not {attempt}: there is no such interface in this network namespace")]
    NoSuchInterface {
        /// What was attempted, with which values.
        attempt: String,
    },
    /// The kernel or the driver refused it.
    #[error("could not {attempt}: {}{}", errno.desc(), in_words(detail))]
    Refused {
        /// What was attempted, with which values.
        attempt: String,
        /// The error number.
        errno: Errno,
        /// The kernel's own words, if it gave any.
        detail: Option<String>,
    },
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel answered with bytes that make no sense.
    #[error("could not {attempt}: the kernel's answer cannot be parsed: {what}")]
    Malformed {
        /// What was attempted.
        attempt: String,
        /// What is wrong with the answer.
        what: String,
    },
    /// The kernel did not answer, or what was waited for did not come.
    #[error("could not {attempt} within {:.1} s", after.as_secs_f32())]
    TimedOut {
        /// What was attempted.
        attempt: String,
        /// How long it was tried.
        after: Duration,
    },
    /// The socket failed.
    #[error("could not {attempt}")]
    Socket {
        /// What was attempted.
        attempt: String,
        /// The error of the socket call.
        #[source]
        source: io::Error,
    },
}

fn in_words(detail: &Option<String>) -> String {
    detail.as_ref().map(|words| format!(" (kernel: {words})")).unwrap_or_default()
}

impl NetlinkError {
    /// The error for a kernel answer of `errno`.
    pub(crate) fn answered(attempt: &str, errno: Errno, detail: Option<String>) -> NetlinkError {
        let attempt = attempt.to_owned();
        match errno {
            Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT => NetlinkError::Unsupported { attempt, detail },
            Errno::EPERM | Errno::EACCES => NetlinkError::NotPermitted { attempt, detail },
            Errno::ENODEV => NetlinkError::NoSuchInterface { attempt },
            _ => NetlinkError::Refused { attempt, errno, detail },
        }
    }

    /// The error number that the kernel answered with, if it was one that has no variant of its own.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            NetlinkError::Refused { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Whether the driver or device cannot do this at all.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, NetlinkError::Unsupported { .. })
    }

    /// Whether another has the name already (`EEXIST`).
    pub fn is_taken(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    /// Whether it takes more rights than this process has.
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, NetlinkError::NotPermitted { .. })
    }

    /// Whether the kernel has no sockets of the protocol that was asked for.
    pub(super) fn is_without_protocol(&self) -> bool {
        let NetlinkError::Socket { source, .. } = self else { return false };
        let errno = source.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT))
    }

    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            NetlinkError::NotPermitted { .. } => Some(
                "run as root (CAP_NET_ADMIN); a VF's own interface may also be refused a MAC other than the one that its PF set",
            ),
            NetlinkError::Namespace(error) if error.source.raw_os_error() == Some(Errno::EPERM as i32) => {
                Some("run as root (CAP_SYS_ADMIN)")
            }
            NetlinkError::Refused { errno: Errno::EBUSY, .. } => {
                Some("an interface may have to be down for this, and a PF up for its VFs to be set")
            }
            NetlinkError::Refused { errno: Errno::EEXIST, .. } => {
                Some("another interface has this name, perhaps as an alternative one (`ip link` shows them)")
            }
            _ => None,
        }
    }
}
