//! The descriptor of a port that is no guest's, and what may come with what is read of it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::{
    sys::socket::{Shutdown, shutdown},
    unistd,
};

use crate::passed::{self, PassedFiles, Received};

/// A descriptor that does not block.
#[derive(Debug)]
pub(super) struct WireEnd {
    fd: OwnedFd,
    /// Where descriptors go that are passed to it: the worker, which reads here, must not close them. `None`: none can be passed.
    brought: Option<PassedFiles>,
    /// Whether nothing is read any more.
    shut: bool,
}

impl WireEnd {
    /// One to which nobody can pass descriptors.
    pub fn new(fd: OwnedFd) -> WireEnd {
        WireEnd { fd, brought: None, shut: false }
    }

    /// The same of one to which they can be passed: they are left in `brought`, and that is its end.
    pub fn taking(self, brought: PassedFiles) -> WireEnd {
        passed::keep_urgent(&self.fd);
        WireEnd { brought: Some(brought), ..self }
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Reads what there is; says how many bytes. `None`: there is nothing now.
    #[inline]
    pub fn read(&mut self, into: &mut [u8]) -> Option<usize> {
        // What was under way when it was shut is nothing to go on with.
        if self.shut {
            return None;
        }
        // Whatever else is wrong shows as silence; the descriptor's owner is told by its events.
        let read = match &self.brought {
            None => unistd::read(&self.fd, into).ok(),
            Some(_) => self.read_with_files(into),
        };
        read.filter(|len| *len > 0)
    }

    #[inline(never)]
    fn read_with_files(&mut self, into: &mut [u8]) -> Option<usize> {
        let Received { bytes, files, cut } = passed::receive(self.fd.as_fd(), into).ok()?;
        if cut || !files.is_empty() {
            if let Some(brought) = &self.brought {
                brought.add(files);
            }
            self.shut();
            return None;
        }
        Some(bytes)
    }

    /// Ends the connection. Whoever watches the descriptor sees it end.
    #[cold]
    pub fn shut(&mut self) {
        self.shut = true;
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Both);
    }
}
