//! What is done to a function of the host, or to its interface.

use std::{collections::BTreeSet, fmt};

use penstock_model::{
    Bdf, InterfaceAddress, InterfaceName, Mac, Mtu, VfAttribute, VfIndex,
    inventory::{EswitchMode, Manager, SwitchMode},
    text::counted,
};
use serde::{Deserialize, Serialize};

use super::{ActionTimeLimit, GoesWith, InterfaceSetup, NoInverse};
use crate::{Fact, names::Names};

/// One write to a function of the host or to its interface; the host's executor carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum FunctionAction {
    /// Have a manager of network interfaces leave these functions of a PF alone, itself or VFs, and no others of it.
    LeaveAlone { manager: Manager, pf: Bdf, functions: BTreeSet<Bdf> },
    /// Write `sriov_drivers_autoprobe` of the PF.
    SetAutoprobe { pf: Bdf, on: bool },
    /// Write `sriov_numvfs` of the PF. Linux only takes 0 to N and N to 0 (`drivers/pci/pci-sysfs.c`).
    SetVfCount { pf: Bdf, count: u16 },
    /// Set one attribute of a VF through its PF's interface (`IFLA_VFINFO_LIST`).
    SetVfAttribute { pf: Bdf, vf: VfIndex, attribute: VfAttribute },
    /// Bind a driver to a function that has none: `driver_override`, then `drivers_probe`; or unbind with `None`. With a
    /// MAC address, the one that the PF keeps for a VF: its driver asks for it while it is bound, and where the PF does not
    /// answer just then, takes one of its own (`drivers/net/ethernet/intel/igbvf/netdev.c`, `igbvf_probe`).
    SetDriver {
        function: Bdf,
        driver: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<Mac>,
    },
    /// Set the MAC address of a function's own interface (`IFLA_ADDRESS`): for drivers whose PF cannot set it.
    SetMac { function: Bdf, mac: Mac },
    /// Rename a function's interface; it must be down.
    Rename { function: Bdf, to: InterfaceName },
    /// Set the MTU of a function's interface.
    SetMtu { function: Bdf, mtu: Mtu },
    /// Bring a function's interface up or down.
    SetLink { function: Bdf, direction: Direction },
    /// Add an IP address to a function's interface.
    AddAddress { function: Bdf, address: InterfaceAddress },
    /// Remove an IP address from a function's interface.
    RemoveAddress { function: Bdf, address: InterfaceAddress },
    /// Set the mode of the embedded switch (`IFLA_BRIDGE_MODE`).
    SetSwitchMode { pf: Bdf, mode: SwitchMode },
    /// Put the embedded switch into a mode over devlink (`DEVLINK_CMD_ESWITCH_SET`): while there are no VFs.
    SetEswitchMode { pf: Bdf, mode: EswitchMode },
    /// Reset a function (`reset` in its PCI directory): nothing of one guest reaches the next.
    ResetFunction { function: Bdf },
    /// Bring back how the host uses a function's interface, as far as that is not so: what goes when the interface goes down, loses its
    /// driver or moves into a guest. Its inverse is the same: a plan has it before such a step, where nothing is to be done yet,
    /// so that the way back ends with it.
    RestoreInterface { function: Bdf, setup: InterfaceSetup },
    /// Wait until the PF's interface has its link, for at most `within` seconds.
    AwaitLink { pf: Bdf, within: u32 },
}

/// Up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Direction {
    Up,
    Down,
}

impl FunctionAction {
    /// The function that it is done to; `None` for what a manager of interfaces is told, which is kept beside the function and stays
    /// when that is gone.
    pub fn function(&self) -> Option<Bdf> {
        match self {
            Self::LeaveAlone { .. } => None,
            Self::SetAutoprobe { pf, .. }
            | Self::SetVfCount { pf, .. }
            | Self::SetVfAttribute { pf, .. }
            | Self::SetSwitchMode { pf, .. }
            | Self::SetEswitchMode { pf, .. }
            | Self::AwaitLink { pf, .. } => Some(*pf),
            Self::SetDriver { function, .. }
            | Self::SetMac { function, .. }
            | Self::Rename { function, .. }
            | Self::SetMtu { function, .. }
            | Self::SetLink { function, .. }
            | Self::AddAddress { function, .. }
            | Self::RemoveAddress { function, .. }
            | Self::RestoreInterface { function, .. }
            | Self::ResetFunction { function } => Some(*function),
        }
    }

    /// The function whose interface on the host it changes.
    pub fn changes_interface_of(&self) -> Option<Bdf> {
        match self {
            Self::SetMac { function, .. }
            | Self::Rename { function, .. }
            | Self::SetMtu { function, .. }
            | Self::SetLink { function, .. }
            | Self::AddAddress { function, .. }
            | Self::RemoveAddress { function, .. }
            | Self::RestoreInterface { function, .. } => Some(*function),
            Self::LeaveAlone { .. }
            | Self::SetAutoprobe { .. }
            | Self::SetVfCount { .. }
            | Self::SetVfAttribute { .. }
            | Self::SetSwitchMode { .. }
            | Self::SetEswitchMode { .. }
            | Self::AwaitLink { .. }
            | Self::SetDriver { .. }
            | Self::ResetFunction { .. } => None,
        }
    }

    /// What is true after it.
    pub fn after(&self) -> Fact {
        match self.clone() {
            Self::LeaveAlone { manager, pf, functions } => Fact::LeftAlone { manager, pf, functions },
            Self::SetAutoprobe { pf, on } => Fact::Autoprobe { pf, on },
            Self::SetVfCount { pf, count } => Fact::VfCount { pf, count },
            Self::SetVfAttribute { pf, vf, attribute } => Fact::VfAttribute { pf, vf, attribute },
            Self::SetDriver { function, driver, mac } => Fact::Driver { function, driver, mac },
            Self::SetMac { function, mac } => Fact::Mac { function, mac },
            Self::Rename { function, to } => Fact::Name { function, name: to },
            Self::SetMtu { function, mtu } => Fact::MtuIs { function, mtu },
            Self::SetLink { function, direction } => Fact::Link { function, direction },
            Self::AddAddress { function, address } => Fact::HasAddress { function, address },
            Self::RemoveAddress { function, address } => Fact::LacksAddress { function, address },
            Self::SetSwitchMode { pf, mode } => Fact::Switch { pf, mode },
            Self::SetEswitchMode { pf, mode } => Fact::EswitchMode { pf, mode },
            Self::ResetFunction { function } => Fact::Reset { function },
            Self::RestoreInterface { function, setup } => Fact::InterfaceIs { function, setup },
            Self::AwaitLink { pf, .. } => Fact::LinkUp { pf },
        }
    }

    pub(super) fn is_setting(&self) -> bool {
        match self {
            Self::LeaveAlone { .. }
            | Self::SetAutoprobe { .. }
            | Self::SetVfAttribute { .. }
            | Self::SetMac { .. }
            | Self::SetMtu { .. }
            | Self::SetSwitchMode { .. }
            | Self::ResetFunction { .. } => true,
            // What the model says of VFs is for the mode that it names: the rest does not go on in another one.
            Self::SetEswitchMode { .. }
            | Self::SetVfCount { .. }
            | Self::SetDriver { .. }
            | Self::Rename { .. }
            | Self::SetLink { .. }
            | Self::AddAddress { .. }
            | Self::RemoveAddress { .. }
            | Self::RestoreInterface { .. }
            | Self::AwaitLink { .. } => false,
        }
    }

    pub(super) fn time_limit(&self) -> ActionTimeLimit {
        match self {
            Self::AwaitLink { within, .. } => ActionTimeLimit::Wait(*within),
            Self::LeaveAlone { .. }
            | Self::SetAutoprobe { .. }
            | Self::SetVfCount { .. }
            | Self::SetVfAttribute { .. }
            | Self::SetDriver { .. }
            | Self::SetMac { .. }
            | Self::Rename { .. }
            | Self::SetMtu { .. }
            | Self::SetLink { .. }
            | Self::AddAddress { .. }
            | Self::RemoveAddress { .. }
            | Self::SetSwitchMode { .. }
            | Self::SetEswitchMode { .. }
            | Self::RestoreInterface { .. }
            | Self::ResetFunction { .. } => ActionTimeLimit::Step,
        }
    }

    pub(super) fn no_inverse(&self) -> NoInverse {
        match self {
            Self::SetVfAttribute { pf, attribute, .. } => NoInverse::new(format!(
                "the driver does not report {} as it was, so that nothing can put it back; a VF that is made anew has it no more",
                attribute.kind()
            ))
            .unless(GoesWith::VfsOf(*pf), "the VF goes, with all that is set for it"),
            Self::SetSwitchMode { pf, .. } => NoInverse::new(
                "the driver does not report the mode that it was in, so that nothing can put it back",
            )
            .unless(GoesWith::VfsOf(*pf), "without VFs there is no embedded switch"),
            Self::SetMac { function, .. } => NoInverse::new("the address that the interface had is not known").unless(
                GoesWith::DriverOf(*function),
                "the interface goes with its driver, and its address with it",
            ),
            Self::SetMtu { .. } => NoInverse::new("the interface has an MTU that cannot be set"),
            Self::ResetFunction { .. } => NoInverse::new("what a reset clears was of the guest that is gone"),
            Self::AwaitLink { .. } => NoInverse::new(NoInverse::WAITS),
            Self::LeaveAlone { .. }
            | Self::SetAutoprobe { .. }
            | Self::SetVfCount { .. }
            | Self::SetDriver { .. }
            | Self::Rename { .. }
            | Self::SetLink { .. }
            | Self::AddAddress { .. }
            | Self::RemoveAddress { .. }
            | Self::SetEswitchMode { .. }
            | Self::RestoreInterface { .. } => NoInverse::unexpected(),
        }
    }

    pub(super) fn lost_for_good(&self) -> Option<&'static str> {
        match self {
            Self::ResetFunction { .. } => {
                Some("what a function held before its reset is not kept by anybody")
            }
            Self::SetVfCount { .. } => Some("the VFs that were there before are not known"),
            Self::AwaitLink { .. } | Self::RestoreInterface { .. } => None,
            Self::LeaveAlone { .. }
            | Self::SetAutoprobe { .. }
            | Self::SetVfAttribute { .. }
            | Self::SetDriver { .. }
            | Self::SetMac { .. }
            | Self::Rename { .. }
            | Self::SetMtu { .. }
            | Self::SetLink { .. }
            | Self::AddAddress { .. }
            | Self::RemoveAddress { .. }
            | Self::SetSwitchMode { .. }
            | Self::SetEswitchMode { .. } => Some(super::UNKNOWN_BEFORE),
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        let of = |function: &Bdf| names.function(*function);
        let on = |set: &bool| if *set { "on" } else { "off" };
        match self {
            Self::LeaveAlone { manager, pf, functions } if functions.is_empty() => {
                write!(f, "{manager}: leave nothing of {} alone any more", of(pf))
            }
            Self::LeaveAlone { manager, functions, .. } => {
                write!(f, "{manager}: leave {} alone", names.listed(functions))
            }
            Self::SetAutoprobe { pf, on: set } => write!(f, "{}: driver autoprobe {}", of(pf), on(set)),
            Self::SetVfCount { pf, count } => {
                write!(f, "{}: {}", of(pf), counted(usize::from(*count), "VF"))
            }
            Self::SetVfAttribute { pf, vf, attribute } => write!(f, "{}: {attribute}", names.vf(*pf, *vf)),
            Self::SetDriver { function, driver: Some(driver), .. } => {
                write!(f, "{}: bind {driver}", of(function))
            }
            Self::SetDriver { function, driver: None, .. } => {
                write!(f, "{}: unbind its driver", of(function))
            }
            Self::SetMac { function, mac } => write!(f, "{}: interface address {mac}", of(function)),
            Self::Rename { function, to } => write!(f, "{}: call its interface {to}", of(function)),
            Self::SetMtu { function, mtu } => write!(f, "{}: MTU {mtu}", of(function)),
            Self::SetLink { function, direction: Direction::Up } => write!(f, "{}: bring up", of(function)),
            Self::SetLink { function, direction: Direction::Down } => {
                write!(f, "{}: bring down", of(function))
            }
            Self::AddAddress { function, address } => write!(f, "{}: add address {address}", of(function)),
            Self::RemoveAddress { function, address } => {
                write!(f, "{}: remove address {address}", of(function))
            }
            Self::SetSwitchMode { pf, mode } => write!(f, "{}: embedded switch in {mode} mode", of(pf)),
            Self::SetEswitchMode { pf, mode } => write!(f, "{}: eswitch mode {mode}", of(pf)),
            Self::ResetFunction { function } => write!(f, "{}: reset", of(function)),
            Self::RestoreInterface { function, setup } => {
                write!(f, "{}: its interface as it was: {setup}", of(function))
            }
            Self::AwaitLink { pf, within } => write!(f, "{}: wait for its link, up to {within} s", of(pf)),
        }
    }
}
