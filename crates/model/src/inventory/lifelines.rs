//! What a machine's own life hangs on: the functions that a change must not take from under whoever makes it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::Bdf;

/// What the machine's life hangs on, as far as it could be found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Lifelines {
    /// Each lifeline, with the ways that it takes.
    pub found: Vec<Lifeline>,
    /// What could not be found out. A sort of lifeline that is named here may be there all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownLifeline>,
    /// Who has functions: who holds them open through VFIO, each as `NAME (process ID, VM NAME, user NAME)` (VMs, whoever
    /// started them), and the containers that a network plugin has given VFs to, by its records.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub holders: BTreeMap<Bdf, Vec<String>>,
    /// What came in the way of seeing who holds functions open through VFIO: there may be more holders than are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// What somebody has put at functions' interfaces, for each of their packets to pass through: XDP and `tcx` programs, and queueing
    /// disciplines (tc(8)) that the kernel does not make by itself, `clsact` with its filters among them. It goes with the interface. Read on
    /// the machine itself only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub packet_programs: BTreeMap<Bdf, Vec<String>>,
    /// What came in the way of seeing those: there may be more at any interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen_packet_programs: Vec<String>,
}

/// One thing that the machine, or whoever works on it, cannot do without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Lifeline {
    /// What it is.
    pub kind: LifelineKind,
    /// The ways to the hardware that it takes, all of them at once or one instead of another: the ports of a bond, the
    /// next hops of a route, the disks of an array. Which of them it could do without is not known.
    pub paths: Vec<LifelinePath>,
}

/// What a lifeline is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LifelineKind {
    /// A route to everywhere else: of prefix length 0, or one of the two halves by which VPNs cover it.
    DefaultRoute {
        /// `IPv4` or `IPv6`.
        family: Family,
        /// The routing table; 254 is the main one (`rt_tables`).
        table: u32,
    },
    /// An SSH connection to this machine.
    Ssh {
        /// The address at its other end.
        peer: String,
        /// Whether Penstock was started from it; else that could not be told, and it may have been.
        own: bool,
    },
    /// The way to another machine that somebody named: the API server of a node's cluster.
    Peer {
        /// Its IP address.
        address: String,
    },
    /// The file system that holds `/`, also one that a server on the network keeps.
    Root,
    /// Swap space that is in use.
    Swap {
        /// The device or file, as `/proc/swaps` has it.
        area: String,
    },
    /// Another file system that is mounted, from a device or from a server on the network.
    Mount {
        /// Where it is mounted.
        at: String,
    },
}

/// An address family of IP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[allow(missing_docs)]
pub enum Family {
    #[serde(rename = "IPv4")]
    V4,
    #[serde(rename = "IPv6")]
    V6,
}

/// One way from a lifeline to the hardware.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct LifelinePath {
    /// The names on the way, from the lifeline on: `bond0`, `eth1`, or `dm-0`, `nvme0n1p3`, `nvme0n1`.
    pub names: Vec<String>,
    /// The PCI function at its end; `None` for hardware that is on no PCI bus.
    pub function: Option<Bdf>,
}

/// Something that could not be found out about a machine's lifelines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UnknownLifeline {
    /// Lifelines of this sort may be there that were not found, or go where nobody saw.
    pub sort: LifelineSort,
    /// What was looked for and what came in the way.
    pub why: String,
}

/// The sorts of lifelines.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LifelineSort {
    DefaultRoute,
    Ssh,
    Peer,
    Root,
    Swap,
    Mount,
}

impl Lifelines {
    /// The lifelines that go through `function`, each with the ways that do.
    pub fn through(&self, function: Bdf) -> impl Iterator<Item = (&Lifeline, Vec<&LifelinePath>)> {
        self.found.iter().filter_map(move |lifeline| {
            let paths: Vec<_> =
                lifeline.paths.iter().filter(|path| path.function == Some(function)).collect();
            (!paths.is_empty()).then_some((lifeline, paths))
        })
    }

    /// Whether any lifeline goes through `function`.
    pub fn has(&self, function: Bdf) -> bool {
        self.found.iter().flat_map(|lifeline| &lifeline.paths).any(|path| path.function == Some(function))
    }
}

impl LifelineKind {
    /// The sort of lifeline, without details like the peer or the mount point.
    pub fn sort(&self) -> LifelineSort {
        match self {
            LifelineKind::DefaultRoute { .. } => LifelineSort::DefaultRoute,
            LifelineKind::Ssh { .. } => LifelineSort::Ssh,
            LifelineKind::Peer { .. } => LifelineSort::Peer,
            LifelineKind::Root => LifelineSort::Root,
            LifelineKind::Swap { .. } => LifelineSort::Swap,
            LifelineKind::Mount { .. } => LifelineSort::Mount,
        }
    }
}

impl LifelineSort {
    /// Whether it is one of the network: lost with an interface, not with a disk.
    pub fn is_of_the_network(self) -> bool {
        matches!(self, LifelineSort::DefaultRoute | LifelineSort::Ssh | LifelineSort::Peer)
    }

    /// As the names of refusals have it: `default-route`, `ssh`...
    pub fn word(self) -> &'static str {
        match self {
            LifelineSort::DefaultRoute => "default-route",
            LifelineSort::Ssh => "ssh",
            LifelineSort::Peer => "peer",
            LifelineSort::Root => "root",
            LifelineSort::Swap => "swap",
            LifelineSort::Mount => "mount",
        }
    }
}

impl fmt::Display for LifelineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LifelineKind::DefaultRoute { family, table: 254 | 0 } => {
                write!(f, "the default route of {family}")
            }
            LifelineKind::DefaultRoute { family, table } => {
                write!(f, "the default route of {family} in table {table}")
            }
            LifelineKind::Ssh { peer, own: true } => {
                write!(f, "the SSH connection from {peer} that penstock was started from")
            }
            LifelineKind::Ssh { peer, own: false } => {
                write!(f, "the SSH connection from {peer} that penstock may have been started from")
            }
            LifelineKind::Peer { address } => write!(f, "the way to {address}"),
            LifelineKind::Root => f.write_str("the root file system"),
            LifelineKind::Swap { area } => write!(f, "the swap space {area}"),
            LifelineKind::Mount { at } => write!(f, "the file system at {at}"),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// `bond0, eth1, 0000:01:00.0`.
impl fmt::Display for LifelinePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))?;
        match self.function {
            Some(function) if self.names.is_empty() => write!(f, "{function}"),
            Some(function) => write!(f, ", {function}"),
            None => Ok(()),
        }
    }
}
