//! What the administrator of a PF sets for a port: the attributes of `ip link set PF vf N ...`, and a few that NICs have and
//! `ip` has not.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    memory::Limit,
    net::{Mac, PROVIDER_TAGGED, TAGGED, Tag, is_tag},
};

/// A set of VLANs.
#[derive(Clone, PartialEq, Eq)]
pub struct Vlans(Box<[u64; 64]>);

impl Vlans {
    /// The empty set: no VLAN, and no frames without a tag.
    pub fn none() -> Vlans {
        Vlans(Box::new([0; 64]))
    }

    /// All, and what has no tag.
    pub fn all() -> Vlans {
        Vlans(Box::new([u64::MAX; 64]))
    }

    /// With this one; what is beyond 4095 is nothing.
    pub fn insert(&mut self, vlan: u16) {
        if let Some(word) = self.0.get_mut(usize::from(vlan / 64)) {
            *word |= 1 << (vlan % 64);
        }
    }

    /// With all from one to another; what is beyond 4095 is nothing.
    pub fn insert_range(&mut self, first: u16, last: u16) {
        for (start, word) in (0_u16..).step_by(64).zip(self.0.iter_mut()) {
            let (low, high) = (first.max(start), last.min(start + 63));
            if low <= high {
                *word |= u64::MAX >> (63 - (high - low)) << (low - start);
            }
        }
    }

    /// Whether this one is among them. 0 stands for frames without a tag.
    #[inline]
    pub fn has(&self, vlan: u16) -> bool {
        self.0.get(usize::from(vlan / 64)).is_some_and(|word| word >> (vlan % 64) & 1 == 1)
    }

    /// Whether it bounds nothing: all VLANs that can be are among them, and what has no tag. 4095 is none (IEEE 802.1Q-2018, 9.6).
    pub fn is_unbounded(&self) -> bool {
        let [rest @ .., last] = &*self.0;
        rest.iter().all(|word| *word == u64::MAX) && last | 1 << 63 == u64::MAX
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Those that are not among `others`.
    pub fn without(mut self, others: &Vlans) -> Vlans {
        self.0.iter_mut().zip(others.0.iter()).for_each(|(word, other)| *word &= !other);
        self
    }

    /// Whether one is in both.
    pub fn meets(&self, others: &Vlans) -> bool {
        self.0.iter().zip(others.0.iter()).any(|(word, other)| word & other != 0)
    }
}

/// As a configuration has them: `0,100-199`.
impl fmt::Display for Vlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut vlan = 0;
        let mut separator = "";
        while vlan < 4096 {
            let first = vlan;
            while self.has(vlan) {
                vlan += 1;
            }
            match vlan - first {
                0 => vlan += 1,
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", vlan - 1)?,
            }
            if vlan > first && self.has(first) {
                separator = ",";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Vlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..4096).filter(|vlan| self.has(*vlan))).finish()
    }
}

/// What link a port shows its guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// The uplink's; up when there is none.
    #[default]
    Auto,
    /// Up, whatever the uplink's link is.
    Enable,
    /// Down: nothing goes in or out.
    Disable,
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkState::Auto => "auto",
            LinkState::Enable => "enable",
            LinkState::Disable => "disable",
        })
    }
}

/// What kind of tag a port VLAN has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TagKind {
    /// A customer's tag, of type 0x8100.
    #[default]
    #[serde(rename = "802.1Q")]
    Customer,
    /// A provider's, around whatever tag the guest uses.
    #[serde(rename = "802.1ad")]
    Provider,
}

impl TagKind {
    /// Its type on the wire.
    pub fn on_wire(self) -> u16 {
        match self {
            TagKind::Customer => TAGGED,
            TagKind::Provider => PROVIDER_TAGGED,
        }
    }
}

/// The tag that a port's frames get on their way in, and lose on their way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortVlan {
    /// VLAN and priority.
    pub tag: Tag,
    /// Kind of tag.
    pub kind: TagKind,
}

/// What is set for a port.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its addresses: frames to them are its own, and with `spoofchk` it sends from no other.
    pub macs: Vec<Mac>,
    /// Its VLAN, when it has one of its own.
    pub vlan: Option<PortVlan>,
    /// VLANs whose tags it may use itself; 0 stands for frames without a tag. Of no meaning with a VLAN of its own.
    pub trunk: Vlans,
    /// Drop frames whose source is none of its addresses.
    pub spoofchk: bool,
    /// Drop ARP and neighbour discovery which say that another address is the sender's.
    pub arp_check: bool,
    /// It may be promiscuous.
    pub trust: bool,
    /// It gets every frame of its VLANs. Only with `trust`.
    pub promiscuous: bool,
    /// It gets frames to addresses that nobody has.
    pub default: bool,
    /// It leads out: frames from it stay inside, and without loopback all others go to it alone.
    pub uplink: bool,
    /// The link that it shows.
    pub link_state: LinkState,
    /// The most that it may send, in Mbit/s; 0 is no limit.
    pub max_tx_rate: u32,
    /// What it is guaranteed of the uplink's speed, in Mbit/s.
    pub min_tx_rate: u32,
    /// What an uplink carries outwards, in Mbit/s; 0 is no limit.
    pub speed: u32,
    /// The longest payload of an Ethernet frame that it may send and gets.
    pub mtu: u16,
    /// What its front end may have mapped.
    pub memory: Limit,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            macs: Vec::new(),
            vlan: None,
            trunk: Vlans::all(),
            spoofchk: false,
            arp_check: false,
            trust: false,
            promiscuous: false,
            default: false,
            uplink: false,
            link_state: LinkState::Auto,
            max_tx_rate: 0,
            min_tx_rate: 0,
            speed: 0,
            mtu: 1500,
            memory: Limit::DEFAULT,
        }
    }
}

impl Settings {
    /// Whether frames of this VLAN concern it; 0 stands for frames without a tag.
    #[inline]
    pub fn is_member(&self, vlan: u16) -> bool {
        match &self.vlan {
            Some(own) => own.tag.vlan == vlan,
            None => self.trunk.has(vlan),
        }
    }

    /// Whether a frame may come to it that has this type behind the tag of its VLAN. Without the port VLAN's tag another one would be
    /// the first, and only a provider's has tags of its customer inside.
    #[inline]
    pub fn takes(&self, kind: u16) -> bool {
        !is_tag(kind) || self.vlan.as_ref().is_none_or(|own| own.kind == TagKind::Provider)
    }
}
