//! What ports that are no guest's are connected to: a tap, the network of an interface, another switch. How each is come by;
//! what is done with its descriptor is [`Wire`]'s.

pub mod cable;
pub mod interface;
pub mod packet;
pub mod tap;

use nix::errno::Errno;
use thiserror::Error;

use crate::engine::{Negotiated, Wire};

/// A wire that can be given to a port, and what the other side of it knows.
#[derive(Debug)]
pub struct Opened {
    /// The descriptor that frames are read from and written to.
    pub wire: Wire,
    /// What may be sent through it.
    pub negotiated: Negotiated,
}

/// What the kernel refused.
#[derive(Debug, Error)]
#[error("{tried}{hint}")]
pub struct AttachError {
    /// What was attempted, with its values.
    tried: String,
    /// What may be done, from a colon on; empty where the kernel's word says all.
    hint: &'static str,
    #[source]
    errno: Errno,
}

impl AttachError {
    /// `tried` could not be done.
    pub(crate) fn new(tried: impl Into<String>, errno: Errno) -> AttachError {
        let hint = match errno {
            Errno::EPERM | Errno::EACCES => " (that takes CAP_NET_ADMIN, for a packet socket CAP_NET_RAW)",
            Errno::EBUSY => " (another program has it open)",
            Errno::ENODEV | Errno::ENXIO => {
                " (there is no such interface in the network namespace of the switch)"
            }
            _ => "",
        };
        AttachError { tried: tried.into(), hint, errno }
    }
}

impl From<AttachError> for std::io::Error {
    fn from(error: AttachError) -> std::io::Error {
        let kind = std::io::Error::from(error.errno).kind();
        std::io::Error::new(kind, error)
    }
}
