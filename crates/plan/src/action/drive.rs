//! What is done to an NVMe drive for its VFs: the VFs' controllers are the drive's own to give (NVM Express Base Specification 2.0, 8.26).

use std::fmt;

use penstock_model::{Bdf, VfIndex, inventory::SecondaryController, text::counted};
use serde::{Deserialize, Serialize};

use super::{GoesWith, NoInverse};
use crate::{Fact, names::Names};

/// What the controller of a VF has of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ControllerResources {
    /// Pairs of queues, counted with the one for administration.
    pub queues: u16,
    /// Interrupt vectors.
    pub interrupts: u16,
}

impl ControllerResources {
    /// What one has that went off line, or is new.
    pub const NONE: ControllerResources = ControllerResources { queues: 0, interrupts: 0 };

    /// What a controller has now.
    pub fn of(controller: &SecondaryController) -> ControllerResources {
        ControllerResources { queues: controller.queues, interrupts: controller.interrupts }
    }

    /// What both have of each.
    pub(crate) fn least(self, other: ControllerResources) -> ControllerResources {
        ControllerResources {
            queues: self.queues.min(other.queues),
            interrupts: self.interrupts.min(other.interrupts),
        }
    }

    /// The larger one of each.
    pub(crate) fn most(self, other: ControllerResources) -> ControllerResources {
        ControllerResources {
            queues: self.queues.max(other.queues),
            interrupts: self.interrupts.max(other.interrupts),
        }
    }
}

impl fmt::Display for ControllerResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&resources(self.queues, self.interrupts))
    }
}

/// What is done to an NVMe drive, through its PF; the host's executor gives the commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum DriveAction {
    /// Give the controller of a VF so many pairs of queues, counted with the one for administration, and so many interrupt vectors
    /// (Virtualization Management, secondary controller assign). It must be off line.
    SetVfResources { drive: Bdf, vf: VfIndex, queues: u16, interrupts: u16 },
    /// Bring the controller of a VF on line, or take it off line (Virtualization Management, secondary controller online).
    /// One that goes off line loses what it has: `with` is what it is given again then, or has before it comes on line, so that
    /// either is taken back by one step. Without it, what it is left with.
    SetVfOnline {
        drive: Bdf,
        vf: VfIndex,
        online: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with: Option<ControllerResources>,
    },
    /// Attach a namespace to the controller of a VF, or detach it (Namespace Attachment). The data stay.
    AttachNamespace { drive: Bdf, vf: VfIndex, namespace: u32, attached: bool },
}

impl DriveAction {
    /// The PF that gets the command.
    pub fn drive(&self) -> Bdf {
        match self {
            Self::SetVfResources { drive, .. }
            | Self::SetVfOnline { drive, .. }
            | Self::AttachNamespace { drive, .. } => *drive,
        }
    }

    /// The VF that it is for.
    pub fn vf(&self) -> VfIndex {
        match self {
            Self::SetVfResources { vf, .. }
            | Self::SetVfOnline { vf, .. }
            | Self::AttachNamespace { vf, .. } => *vf,
        }
    }

    pub(crate) fn after(&self) -> Fact {
        match *self {
            Self::SetVfResources { drive, vf, queues, interrupts } => {
                Fact::VfResources { drive, vf, queues, interrupts }
            }
            Self::SetVfOnline { drive, vf, online, with } => Fact::VfOnline { drive, vf, online, with },
            Self::AttachNamespace { drive, vf, namespace, attached } => {
                Fact::NamespaceAttached { drive, vf, namespace, attached }
            }
        }
    }

    pub(super) fn no_inverse(&self) -> NoInverse {
        NoInverse::unexpected()
            .unless(GoesWith::VfsOf(self.drive()), "the VF goes, and its controller with it")
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        let vf = names.vf(self.drive(), self.vf());
        match self {
            Self::SetVfResources { queues, interrupts, .. } => {
                write!(f, "{vf}: {}", resources(*queues, *interrupts))
            }
            Self::SetVfOnline { online: true, with, .. } => {
                write!(f, "{vf}: bring its controller on line")?;
                with.map_or(Ok(()), |with| write!(f, " with {with}"))
            }
            Self::SetVfOnline { online: false, with, .. } => {
                write!(f, "{vf}: take its controller off line")?;
                let left = with.filter(|with| *with != ControllerResources::NONE);
                left.map_or(Ok(()), |left| write!(f, ", where it has {left}"))
            }
            Self::AttachNamespace { namespace, attached: true, .. } => {
                write!(f, "{vf}: attach namespace {namespace}")
            }
            Self::AttachNamespace { namespace, attached: false, .. } => {
                write!(f, "{vf}: detach namespace {namespace}")
            }
        }
    }
}

/// `2 pairs of I/O queues, 3 interrupts`: one pair of `queues` is for administration.
pub(crate) fn resources(queues: u16, interrupts: u16) -> String {
    let interrupts = counted(usize::from(interrupts), "interrupt");
    match queues.checked_sub(1) {
        None => format!("no queues, {interrupts}"),
        Some(pairs) => format!("{}, {interrupts}", io_queues(pairs)),
    }
}

/// `1 pair of I/O queues`, `2 pairs of I/O queues`.
pub(crate) fn io_queues(pairs: u16) -> String {
    format!("{} of I/O queues", counted(usize::from(pairs), "pair"))
}
