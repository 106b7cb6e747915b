//! A way from a board to one port of this machine's loopback: an address of the board's management network that QEMU answers
//! (`guestfwd` of QEMU's user networking), with a process for each connection that carries its bytes. Nothing has to be kept alive for it,
//! and the board reaches nothing else.

use std::path::Path;

use penstock_host::{Command, files, process::quoted};

use crate::error::BoardError;

/// The address on the board's management network that leads to the port.
pub const ADDRESS: &str = "10.0.2.100";

/// The TCP port at that address: the usual one of a Kubernetes API server.
pub const PORT: u16 = 6443;

/// The file in the board's directory that names the port of this machine. QEMU works in that directory, and so do the processes that carry
/// connections: what a board is booted from is the same whatever the port is.
const FILE: &str = "forward";

/// Where the way leads, and who carries its connections.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The port of this machine's loopback.
    pub port: u16,
    /// The program that connects its standard input and output to the port that a file names; the file's name is added to its
    /// arguments.
    pub carrier: Command,
}

impl Forward {
    /// Writes down where it leads, in a board's directory.
    ///
    /// # Errors
    ///
    /// [`BoardError::File`] when it cannot be written.
    pub(crate) fn furnish(&self, directory: &Path) -> Result<(), BoardError> {
        Ok(files::write_atomic_mode(directory.join(FILE), self.port.to_string(), 0o600)?)
    }

    /// What is added to the options of the board's management network.
    pub(crate) fn option(&self) -> String {
        let words = std::iter::once(self.carrier.program())
            .chain(self.carrier.arguments().iter().map(AsRef::as_ref))
            .map(|word| quoted(&word.to_string_lossy()));
        let line = words.chain([quoted(FILE)]).collect::<Vec<_>>().join(" ");
        // In QEMU's option syntax a comma is doubled.
        format!(",guestfwd=tcp:{ADDRESS}:{PORT}-cmd:{}", line.replace(',', ",,"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_same_for_every_port_and_has_every_word() {
        let carrier = Command::new("/a,b/it's").arg("carry");
        let one = Forward { port: 1, carrier: carrier.clone() };
        let other = Forward { port: 2, carrier };
        assert_eq!(one.option(), other.option());
        assert_eq!(one.option(), r",guestfwd=tcp:10.0.2.100:6443-cmd:'/a,,b/it'\''s' 'carry' 'forward'");
    }
}
