//! A family of generic netlink, found by its name (`Documentation/networking/generic_netlink.rst`).

use netlink_packet_core::Emitable;
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;

use super::{
    NetlinkError,
    socket::{Conversation, socket_error},
    wire::{self, Message},
};

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// The length of `struct genlmsghdr`.
const HEADER: usize = 4;

/// A socket to one family in one network namespace.
#[derive(Debug)]
pub struct GenericFamily {
    generic: Conversation,
    name: &'static str,
    /// Its number; `None` until it was asked for: most who have a socket never use it.
    number: Option<u16>,
}

impl GenericFamily {
    /// A socket in the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::Socket`] when the kernel gives no socket.
    pub fn open(name: &'static str) -> Result<GenericFamily, NetlinkError> {
        let generic = Conversation::open(NETLINK_GENERIC)
            .map_err(|source| socket_error("open a socket of generic netlink", source))?;
        Ok(GenericFamily { generic, name, number: None })
    }

    /// The number of the family; `Ok(None)` where the kernel has no such family.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer, or refuses for another reason than that there is no such family.
    pub fn number(&mut self) -> Result<Option<u16>, NetlinkError> {
        if self.number.is_some() {
            return Ok(self.number);
        }
        let name = [self.name.as_bytes(), b"\0"].concat();
        let body = GenericBody::new(CTRL_CMD_GETFAMILY).with(CTRL_ATTR_FAMILY_NAME, &name);
        let mut number = None;
        let attempt = format!("find {}", self.name);
        let asked = self.generic.ask(&attempt, GENL_ID_CTRL, 0, &body, |message| {
            number = attributes(message)
                .and_then(|attributes| wire::attribute(attributes, CTRL_ATTR_FAMILY_ID))
                .and_then(|value| wire::u16_at(value, 0));
        });
        match asked {
            Err(error) if error.errno() == Some(Errno::ENOENT) => return Ok(None),
            asked => asked?,
        }
        self.number = number;
        Ok(number)
    }

    /// Asks the family, whose `number` it is, for one thing.
    ///
    /// # Errors
    ///
    /// What the family answers when it refuses; when no answer comes or it cannot be read.
    pub fn ask(
        &mut self,
        attempt: &str,
        number: u16,
        body: &GenericBody,
        each: impl FnMut(&Message<'_>),
    ) -> Result<(), NetlinkError> {
        self.generic.ask(attempt, number, 0, body, each)
    }

    /// Asks the family, whose `number` it is, for everything of a kind.
    ///
    /// # Errors
    ///
    /// As [`GenericFamily::ask`], and `EAGAIN` when what is asked for does not stop changing.
    pub fn dump<T>(
        &mut self,
        attempt: &str,
        number: u16,
        body: &GenericBody,
        each: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        self.generic.dump(attempt, number, body, each)
    }
}

/// The attributes of a message of generic netlink.
pub fn attributes<'a>(message: &Message<'a>) -> Option<&'a [u8]> {
    message.payload.get(HEADER..)
}

/// A generic netlink message: a command and attributes.
pub struct GenericBody(Vec<u8>);

impl GenericBody {
    /// A command without attributes.
    pub fn new(command: u8) -> GenericBody {
        GenericBody(vec![command, 1, 0, 0])
    }

    /// The same with one attribute more.
    pub fn with(mut self, kind: u16, value: &[u8]) -> GenericBody {
        self.0.extend(GenericBody::attribute(kind, value));
        self
    }

    /// The bytes of an attribute.
    pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
}

impl Emitable for GenericBody {
    fn buffer_len(&self) -> usize {
        self.0.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.0);
    }
}
