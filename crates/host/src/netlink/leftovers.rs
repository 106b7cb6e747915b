//! What of a link its reports do not tell, and who had it may have left: flags, the link mode, alternative names, the alias.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkMessage, LinkMode, Prop};
use nix::libc;
use penstock_model::text::is_hidden;
use serde::{Deserialize, Serialize};

use super::{
    Netlink, NetlinkError,
    link::{GET_LINK, LINK_HEADER, NEW_LINK, change},
    wire::{self, Message},
};

/// Gives a link alternative names, and takes them (`include/uapi/linux/rtnetlink.h`).
const RTM_NEWLINKPROP: u16 = 108;
const RTM_DELLINKPROP: u16 = 109;
const IFLA_LINKMODE: u16 = 17;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
/// In `NLM_F_*` flags of a request that makes something: beside what is there (`include/uapi/linux/netlink.h`).
const NLM_F_APPEND: u16 = 0x800;

/// How many names one request has: an attribute of names holds 64 KiB, and a name has 127 bytes at most.
const AT_ONCE: usize = 128;

/// How an interface is set beside what its [report](crate::InterfaceReport) tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSettings {
    /// It takes frames for any address, as somebody has set by hand (`IFF_PROMISC`).
    pub promiscuous: bool,
    /// It takes all multicast frames, as somebody has set by hand (`IFF_ALLMULTI`).
    pub all_multicast: bool,
    /// It sends multicast frames (`IFF_MULTICAST`).
    pub multicast: bool,
    /// It asks for and answers to its neighbours' addresses (`IFF_NOARP` is not set).
    pub arp: bool,
    /// What its state ends in when it has a link (`IFLA_LINKMODE`): 0 is up, 1 dormant, 2 testing.
    pub mode: u8,
    /// Its alternative names (`IFLA_ALT_IFNAME`), in the kernel's order. Bytes that are no printable UTF-8 are written `\\xff`, and a
    /// backslash `\\x5c`: the kernel allows both.
    pub other_names: Vec<String>,
    /// Its alias (`IFLA_IFALIAS`), a text that means nothing to the kernel; empty where it has none. Bytes are written as in a name. `None`
    /// where it is not known, as in what a version noted that did not ask for it: it then stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
}

impl LinkSettings {
    /// The same as if nobody had set anything: neither promiscuous nor for all multicast frames, with ARP and the default mode. Names
    /// stay, and so does the alias, which may have been there before.
    pub fn plain(&self) -> LinkSettings {
        LinkSettings {
            promiscuous: false,
            all_multicast: false,
            arp: true,
            mode: 0,
            alias: None,
            ..self.clone()
        }
    }

    /// Its alternative names that are not among `others`.
    pub fn names_beyond(&self, others: &[String]) -> Vec<String> {
        self.other_names.iter().filter(|name| !others.contains(name)).cloned().collect()
    }

    fn flags(&self) -> LinkFlags {
        let mut flags = LinkFlags::empty();
        flags.set(LinkFlags::Promisc, self.promiscuous);
        flags.set(LinkFlags::Allmulti, self.all_multicast);
        flags.set(LinkFlags::Multicast, self.multicast);
        flags.set(LinkFlags::Noarp, !self.arp);
        flags
    }
}

impl Netlink {
    /// How the interface of this index is set.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when there is none, or the kernel does not tell.
    pub fn link_settings(&mut self, index: u32) -> Result<LinkSettings, NetlinkError> {
        let attempt = format!("look at how interface {index} is set");
        let mut body = change(index);
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let mut found = None;
        self.route
            .ask(&attempt, GET_LINK, 0, &body, |message| found = link_settings(message).or(found.take()))?;
        found.ok_or_else(|| NetlinkError::Malformed { attempt, what: "no link is in the answer".to_owned() })
    }

    /// Sets an interface's flags, link mode and, where it is known, alias; alternative names stay.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone or may not be changed (`CAP_NET_ADMIN`).
    pub fn set_link_settings(&mut self, index: u32, wanted: &LinkSettings) -> Result<(), NetlinkError> {
        let mut body = change(index);
        body.header.change_mask =
            LinkFlags::Promisc | LinkFlags::Allmulti | LinkFlags::Multicast | LinkFlags::Noarp;
        body.header.flags = wanted.flags();
        body.attributes.push(LinkAttribute::Mode(LinkMode::from(wanted.mode)));
        // An empty one removes it (`net/core/dev.c`, `dev_set_alias`).
        let alias =
            wanted.alias.as_deref().map(|alias| DefaultNla::new(libc::IFLA_IFALIAS, name_bytes(alias)));
        body.attributes.extend(alias.map(LinkAttribute::Other));
        self.set_link(&format!("set flags, link mode and alias of interface {index}"), &body)
    }

    /// Takes alternative names from an interface.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when it has one of them not, is gone, or may not be changed (`CAP_NET_ADMIN`).
    pub fn remove_names(&mut self, index: u32, names: &[String]) -> Result<(), NetlinkError> {
        let attempt = |names: &[String]| {
            format!("take the alternative names {} from interface {index}", names.join(", "))
        };
        names.chunks(AT_ONCE).try_for_each(|names| {
            self.route.ask(&attempt(names), RTM_DELLINKPROP, 0, &of_names(index, names), |_| {})
        })
    }

    /// Gives an interface alternative names beside those that it has.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when an interface has one of them, this one is gone, or may not be changed (`CAP_NET_ADMIN`).
    pub fn add_names(&mut self, index: u32, names: &[String]) -> Result<(), NetlinkError> {
        let attempt =
            |names: &[String]| format!("give interface {index} the alternative names {}", names.join(", "));
        let how = wire::NLM_F_CREATE | wire::NLM_F_EXCL | NLM_F_APPEND;
        names.chunks(AT_ONCE).try_for_each(|names| {
            self.route.ask(&attempt(names), RTM_NEWLINKPROP, how, &of_names(index, names), |_| {})
        })
    }
}

fn of_names(index: u32, names: &[String]) -> LinkMessage {
    let mut body = change(index);
    let name = |name: &String| {
        let mut bytes = name_bytes(name);
        bytes.push(0);
        Prop::Other(DefaultNla::new(IFLA_ALT_IFNAME, bytes))
    };
    let names = names.iter().map(name).collect();
    body.attributes.push(LinkAttribute::PropList(names));
    body
}

/// A name as [`LinkSettings::other_names`] has it.
fn name_text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let mut shown = String::new();
    for chunk in value[..end].utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' || is_hidden(c) {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes).bytes().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
            } else {
                shown.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
    }
    shown
}

/// The bytes of a name of [`LinkSettings::other_names`].
fn name_bytes(shown: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), shown);
    while let Some(c) = rest.chars().next() {
        let escaped = rest.strip_prefix("\\x").and_then(|after| after.get(..2));
        let escaped = escaped.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                let (one, others) = rest.split_at(c.len_utf8());
                bytes.extend(one.bytes());
                rest = others;
            }
        }
    }
    bytes
}

fn link_settings(message: &Message<'_>) -> Option<LinkSettings> {
    if message.kind != NEW_LINK || i32::from(*message.payload.first()?) != libc::AF_UNSPEC {
        return None;
    }
    let flags = LinkFlags::from_bits_retain(wire::u32_at(message.payload, 8)?);
    let attributes = message.payload.get(LINK_HEADER..)?;
    let (mut mode, mut other_names, mut alias) = (0, Vec::new(), String::new());
    for (attribute, value) in wire::attributes(attributes) {
        match attribute {
            libc::IFLA_IFALIAS => alias = name_text(value),
            IFLA_LINKMODE => mode = *value.first()?,
            IFLA_PROP_LIST => {
                let names = wire::attributes(value).filter(|(kind, _)| *kind == IFLA_ALT_IFNAME);
                other_names.extend(names.map(|(_, name)| name_text(name)));
            }
            _ => {}
        }
    }
    Some(LinkSettings {
        promiscuous: flags.contains(LinkFlags::Promisc),
        all_multicast: flags.contains(LinkFlags::Allmulti),
        multicast: flags.contains(LinkFlags::Multicast),
        arp: !flags.contains(LinkFlags::Noarp),
        mode,
        other_names,
        alias: Some(alias),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_bytes_is_shown_and_meant() {
        for (bytes, shown) in [
            (&b"port-7"[..], "port-7"),
            ("\u{e9}t\u{e9}".as_bytes(), "\u{e9}t\u{e9}"),
            (b"\xff", "\\xff"),
            (b"a\xc3", "a\\xc3"),
            (b"\x1b[2J", "\\x1b[2J"),
            (b"\\xff", "\\x5cxff"),
            (b"\\", "\\x5c"),
            ("\u{202e}".as_bytes(), "\\xe2\\x80\\xae"),
        ] {
            assert_eq!(name_text(bytes), shown);
            assert_eq!(name_bytes(shown), bytes, "{shown}");
        }
        // As records of earlier versions have them.
        assert_eq!(name_bytes("a\\b\\x"), b"a\\b\\x");
        assert_eq!(name_bytes("\\x+f"), b"\\x+f");
        assert_eq!(name_bytes("\\x\u{e9}"), "\\x\u{e9}".as_bytes());
    }

    #[test]
    fn an_alias_that_was_not_noted_is_not_known() {
        let noted = r#"{"promiscuous":true,"all_multicast":false,"multicast":true,"arp":true,"mode":0,"other_names":[]}"#;
        let settings: LinkSettings = serde_json::from_str(noted).unwrap();
        assert_eq!(settings.alias, None);
        let known = LinkSettings { alias: Some(String::new()), ..settings.clone() };
        assert_eq!(
            serde_json::from_str::<LinkSettings>(&serde_json::to_string(&known).unwrap()).unwrap(),
            known
        );
        assert_eq!(known.plain().alias, None);
    }
}
