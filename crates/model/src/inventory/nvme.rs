//! What an NVMe controller that is a physical function says of its VFs and its namespaces (NVM Express Base Specification 2.0, 5.17.2
//! "Identify" and 8.26 "Virtualization Enhancements"). The specification calls the PF a primary and its VFs secondary controllers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{ByteSize, VfIndex};

/// What the controller itself says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NvmeVirtualization {
    /// The PF's own controller identifier (CNTLID).
    pub controller: u16,
    /// Pairs of queues that may go to VFs, counted with the pair for administration (VQ resources).
    pub queues: FlexibleResources,
    /// Interrupt vectors that may go to VFs (VI resources).
    pub interrupts: FlexibleResources,
    /// Its VFs' controllers, by the VF's index; those that the VF count leaves out, too.
    pub secondary: Vec<SecondaryController>,
    /// Whether namespaces can be attached to controllers and detached from them (OACS bit 3).
    pub attaches_namespaces: bool,
    /// The namespaces of the drive, by identifier (NSID): those that are attached to no controller, too.
    pub namespaces: BTreeMap<u32, NvmeNamespace>,
}

/// Resources that move between the PF and its VFs (Primary Controller Capabilities).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FlexibleResources {
    /// So many there are (VQFRT, VIFRT).
    pub total: u32,
    /// So many one VF may have at most (VQFRSM, VIFRSM).
    pub most: u16,
    /// So many the PF holds since its last reset (VQRFAP, VIRFAP); VFs cannot have these.
    pub held_by_pf: u16,
}

/// A VF's controller (Secondary Controller List).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SecondaryController {
    /// The VF (its VFN less one).
    pub vf: VfIndex,
    /// Its identifier (SCID).
    pub controller: u16,
    /// Whether it can be used: it has what it needs and was brought on line (SCS).
    pub online: bool,
    /// Pairs of queues that it has, with the one for administration (NVQ).
    pub queues: u16,
    /// Interrupt vectors that it has (NVI).
    pub interrupts: u16,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NvmeNamespace {
    /// Its size.
    pub size: ByteSize,
    /// Whether several controllers may have it at once (NMIC bit 0).
    pub shared: bool,
    /// The controllers that it is attached to.
    pub controllers: BTreeSet<u16>,
    /// The host's block device for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What the host uses it for, partitions and volumes upon it included: `mounted on the host at /var`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
}

impl NvmeVirtualization {
    /// The controller of a VF.
    pub fn of_vf(&self, vf: VfIndex) -> Option<&SecondaryController> {
        self.secondary.iter().find(|secondary| secondary.vf == vf)
    }
}
