//! What it is to be a place: somewhere that commands run, files are read and interfaces live.

use thiserror::Error;

use crate::{Command, InterfaceReport, NetlinkError, Output, ProcessError};

/// This host, the inside of a container, the inside of a VM, a board, a remote machine.
///
/// Measurement and verification are written against this, so that they need not know which of these they look into; they
/// may look into several at once, each from a thread of its own.
pub trait Place: Send + Sync {
    /// What to call it in messages: "on the host", "inside linux-2", "on the board".
    fn describe(&self) -> String;

    /// Runs a command there to its end. A status other than 0 is not an error here; see [`Output`].
    ///
    /// # Errors
    ///
    /// [`PlaceError`] when the command is not there or cannot be started, its deadline passes, or the place is gone.
    fn run(&self, command: &Command) -> Result<Output, PlaceError>;

    /// Reads a file there, at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`PlaceError`] when there is no such file, it cannot be read, or the place is gone.
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError>;

    /// Lists the network interfaces there, the loopback interface left out.
    ///
    /// # Errors
    ///
    /// [`PlaceError`] when they cannot be listed, or the place is gone.
    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError>;

    /// A process of this kernel that lives in the place's network namespace, so that frames can be sent and received
    /// there; `None` when the place is this process's own namespace, an error when it is under another kernel.
    ///
    /// # Errors
    ///
    /// [`PlaceError`] when the place is under another kernel, or gone.
    fn namespace(&self) -> Result<Option<u32>, PlaceError>;

    /// Where this same program is in a place under another kernel, so that it can be run there to send and count frames;
    /// `None` where it is not.
    fn own_program(&self) -> Option<&str> {
        None
    }
}

impl PlaceError {
    /// Whether there is no such file there. Under another kernel only the words of its own error tell.
    pub fn is_missing(&self) -> bool {
        matches!(self, PlaceError::File { why, .. } if why.contains("No such file or directory"))
    }
}

/// Why a place could not be asked.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// A command could not be run there.
    #[error("could not run a command {place}")]
    Process {
        /// The place as [`Place::describe`] calls it.
        place: String,
        /// Why the command did not run to its end.
        #[source]
        source: ProcessError,
    },
    /// A file could not be read there.
    #[error("could not read {path} {place}: {why}")]
    File {
        /// The place as [`Place::describe`] calls it.
        place: String,
        /// The path of the file, as it is inside the place.
        path: String,
        /// Why it could not be read.
        why: String,
    },
    /// Its network interfaces could not be listed.
    #[error("could not list the network interfaces {place}")]
    Interfaces {
        /// The place as [`Place::describe`] calls it.
        place: String,
        /// Why netlink did not list them.
        #[source]
        source: NetlinkError,
    },
    /// The place is not there any more.
    #[error("could not reach anything {place}: {why}")]
    Gone {
        /// The place as [`Place::describe`] calls it.
        place: String,
        /// Why it cannot be reached, or what it cannot be asked.
        why: String,
    },
}
