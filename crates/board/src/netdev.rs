//! The back ends of a board's NICs.

use std::fmt;

/// A back end: what a function's frames go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netdev {
    /// The `id` of its `-netdev`, by which a device names it.
    pub id: String,
    /// Where it leads.
    pub end: End,
}

/// Where a back end leads. None has a way out of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A port of this hub inside QEMU. A hub floods; it is no switch.
    Hub(u32),
    /// A port of an embedded switch, a process of its own (vhost-user), on this socket. The character device that QEMU wants
    /// for it has the back end's id.
    Switch(String),
    /// The embedded switch at the other end of a cable, which awaits QEMU on this socket, and is looked for again so many
    /// milliseconds after it has gone.
    Cable {
        /// Path of the socket that the embedded switch listens on.
        path: String,
        /// Milliseconds until QEMU connects again after the switch has gone.
        again: u32,
    },
}

impl fmt::Display for Netdev {
    /// As the argument of `-netdev`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            End::Hub(hub) => write!(f, "hubport,id={},hubid={hub}", self.id),
            End::Switch(_) => write!(f, "vhost-user,id={},chardev={0}", self.id),
            End::Cable { path, again } => {
                write!(
                    f,
                    "stream,id={},server=off,addr.type=unix,addr.path={path},reconnect-ms={again}",
                    self.id
                )
            }
        }
    }
}
