//! What is known beforehand of PF drivers: which driver their VFs get, and which knobs they lack.

use penstock_model::{
    VfAttribute,
    inventory::{Pf, PresentVf, SwitchMode},
    pci,
};

/// The driver of functions that are handed to VMs (`drivers/vfio/pci/vfio_pci.c`).
pub const VFIO: &str = "vfio-pci";

/// What planning must know of a PF's driver. All of it is compiled into the driver and cannot be read from a machine
/// before VFs exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfDriver {
    /// As its directory in `/sys/bus/pci/drivers` is called.
    pub name: &'static str,
    /// The network driver of its VFs.
    pub vf_driver: &'static str,
    /// Whether it implements `ndo_set_vf_mac` and its siblings; without them a VF's MAC is set at its own interface.
    pub sets_vf_attributes: bool,
    /// Whether a VF's driver learns from it which MAC address the VF has.
    pub tells_mac: bool,
    /// Whether it implements `ndo_bridge_setlink`, that is VEB and VEPA. Some of these report no mode before VFs
    /// exist.
    pub sets_switch_mode: bool,
    /// Whether its VFs' frames with a foreign source MAC are dropped until it is told otherwise.
    pub spoofchk_at_first: bool,
    /// Whether it makes VFs only while the PF's interface is up.
    pub up_before_vfs: bool,
    /// What it takes for a VF to get frames for other addresses than its own.
    pub vf_promiscuity: VfPromiscuity,
}

/// What it takes, besides asking the interface, for a VF to get frames for addresses that no function of its NIC has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VfPromiscuity {
    /// The VF's driver has no such mode.
    Lacking,
    /// The VF must be trusted: `trust: on`.
    Trust,
    /// `trust: on`, and something else that nobody here sets, in words.
    TrustAnd(&'static str),
}

const fn usual(name: &'static str, vf_driver: &'static str, sets_switch_mode: bool) -> PfDriver {
    PfDriver {
        name,
        vf_driver,
        sets_vf_attributes: true,
        tells_mac: true,
        sets_switch_mode,
        spoofchk_at_first: false,
        up_before_vfs: false,
        vf_promiscuity: VfPromiscuity::Trust,
    }
}

/// One whose driver turns anti-spoofing on for each new VF.
const fn checked(driver: PfDriver) -> PfDriver {
    PfDriver { spoofchk_at_first: true, ..driver }
}

/// Each row follows the `net_device_ops` and the PCI id tables of the files named beside it (Linux 6.12).
const KNOWN: [PfDriver; 9] = [
    // drivers/net/ethernet/intel/igb/igb_main.c, igbvf/netdev.c (igbvf_set_rx_mode sets filters for addresses alone)
    PfDriver { vf_promiscuity: VfPromiscuity::Lacking, ..checked(usual("igb", "igbvf", false)) },
    // drivers/net/ethernet/intel/ixgbe/ixgbe_main.c (ixgbe_ndo_bridge_getlink is silent without VFs), ixgbevf/ixgbevf_main.c;
    // ixgbe_sriov.c, ixgbe_update_vf_xcast_mode
    PfDriver {
        vf_promiscuity: VfPromiscuity::TrustAnd("an X540 or later whose PF is promiscuous itself"),
        ..checked(usual("ixgbe", "ixgbevf", true))
    },
    // drivers/net/ethernet/intel/i40e/i40e_main.c, iavf/iavf_main.c; i40e_ethtool.c, i40e_gl_gstrings_priv_flags
    PfDriver { vf_promiscuity: FIRST_IS_THE_DEFAULT, ..checked(usual("i40e", "iavf", true)) },
    // drivers/net/ethernet/intel/ice/ice_main.c, iavf/iavf_main.c
    PfDriver { vf_promiscuity: FIRST_IS_THE_DEFAULT, ..checked(usual("ice", "iavf", true)) },
    // drivers/net/ethernet/mellanox/mlx4/main.c, en_netdev.c
    PfDriver { vf_promiscuity: LEAVE_OF_THE_FIRMWARE, ..usual("mlx4_core", "mlx4_core", false) },
    // drivers/net/ethernet/mellanox/mlx5/core/main.c, en_main.c
    usual("mlx5_core", "mlx5_core", true),
    // drivers/net/ethernet/broadcom/bnxt/bnxt.c; bnxt_sriov.c, bnxt_sriov_configure wants the interface up
    PfDriver { up_before_vfs: true, ..usual("bnxt_en", "bnxt_en", true) },
    // drivers/net/ethernet/emulex/benet/be_main.c
    PfDriver { vf_promiscuity: LEAVE_OF_THE_FIRMWARE, ..usual("be2net", "be2net", true) },
    // drivers/virtio/virtio_pci_common.c, drivers/net/virtio_net.c: no ndo_set_vf_* at all
    PfDriver { sets_vf_attributes: false, tells_mac: false, ..usual(VIRTIO, VIRTIO, false) },
];

/// Without the flag one function alone, the first to ask, gets what no other has the address of.
const FIRST_IS_THE_DEFAULT: VfPromiscuity = VfPromiscuity::TrustAnd(
    "that no other function asked before it, or `ethtool --set-priv-flags PF vf-true-promisc-support on`",
);

/// What the driver asks for the firmware may refuse.
const LEAVE_OF_THE_FIRMWARE: VfPromiscuity = VfPromiscuity::TrustAnd("a firmware that lets it");

/// virtio's, by itself.
const VIRTIO: &str = "virtio-pci";

/// A virtio PF whose functions are ports of an embedded switch of ours, which keeps the VFs' attributes in the driver's stead
/// (`penstock_host::embedded`). A VF's own address is its device's all the same.
const ON_A_SWITCH: PfDriver = PfDriver { tells_mac: false, ..usual(VIRTIO, VIRTIO, true) };

/// Why the driver refuses an attribute of a VF while the embedded switch is in switchdev mode, whatever its value.
///
/// - `mlx5_core`: `drivers/net/ethernet/mellanox/mlx5/core/esw/legacy.c`, `mlx5_eswitch_set_vport_vlan` (but for no VLAN),
///   `mlx5_eswitch_set_vport_spoofchk` and `mlx5_eswitch_set_vport_trust`.
/// - `ice`: `drivers/net/ethernet/intel/ice/ice_sriov.c`, `ice_set_vf_trust`.
pub fn refused_in_switchdev(driver: &str, attribute: &VfAttribute) -> Option<&'static str> {
    match (driver, attribute) {
        ("mlx5_core", VfAttribute::Vlan { id, .. }) if id.get() != 0 => {
            Some("in switchdev mode it sets no VLAN of a VF: the host's rules tag frames, at its representor")
        }
        ("mlx5_core", VfAttribute::Spoofchk(_)) => {
            Some("in switchdev mode it sets no spoof check: the host's rules say what a VF may send")
        }
        ("mlx5_core" | "ice", VfAttribute::Trust(_)) => Some("in switchdev mode it trusts no VF"),
        _ => None,
    }
}

/// What is known of a PF's driver, and of the embedded switch that it may be at. A virtio PF reports a mode where there is one
/// and never else.
pub fn of(pf: &Pf) -> Option<&'static PfDriver> {
    match pf.driver.as_deref()? {
        VIRTIO if pf.switch_mode != SwitchMode::Unreported => Some(&ON_A_SWITCH),
        name => known(name),
    }
}

/// What is known of the PF driver `name`.
pub fn known(name: &str) -> Option<&'static PfDriver> {
    KNOWN.iter().find(|driver| driver.name == name)
}

/// Whether a VF with the driver `vf`, whose PF has the driver `pf`, has a network interface, in whichever network namespace.
pub fn gives_interface(pf: Option<&str>, vf: &str) -> bool {
    match pf.and_then(known) {
        Some(known) => vf == known.vf_driver,
        None => pci::gives_interface(vf),
    }
}

/// Whether a VF of a PF has an interface that is not here: another network namespace has it, it seems.
pub fn has_interface_elsewhere(pf: &Pf, vf: &PresentVf) -> bool {
    let driver = vf.driver.as_deref();
    driver.is_some_and(|driver| gives_interface(pf.driver.as_deref(), driver)) && vf.interface.is_none()
}

/// The names of all drivers known, for messages.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|driver| driver.name)
}
