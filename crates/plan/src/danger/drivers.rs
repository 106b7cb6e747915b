//! What PF drivers do to the PF's own link.

/// Whether the PF's link survives that its VFs are made or removed.
///
/// - `ice`: `drivers/net/ethernet/intel/ice/ice_sriov.c`, `ice_ena_vfs` and `ice_free_vfs` set up and free what VFs have.
/// - `mlx5_core`: `drivers/net/ethernet/mellanox/mlx5/core/sriov.c`, `mlx5_sriov_enable` tells the firmware of each VF.
/// - `virtio-pci`: `drivers/virtio/virtio_pci_common.c`, `virtio_pci_sriov_configure` is `pci_enable_sriov` alone.
///
/// Those of the others do not: `igb` closes and opens the interface (`igb_main.c`, `igb_sriov_reinit`), `ixgbe` too
/// (`ixgbe_main.c`, `ixgbe_sriov_reinit`), `i40e` resets the PF (`i40e_virtchnl_pf.c`, `i40e_pci_sriov_configure`),
/// `bnxt_en` closes and opens it when VFs go (`bnxt.c`, `bnxt_restore_pf_fw_resources`). Of a driver that is
/// not known, nothing is promised.
pub fn link_survives_vfs(driver: Option<&str>) -> bool {
    matches!(driver, Some("ice" | "mlx5_core" | "virtio-pci"))
}

/// Whether the PF's link survives another mode of the embedded switch.
///
/// `i40e` resets the PF (`i40e_main.c`, `i40e_ndo_bridge_setlink`); these write registers or ask the firmware:
/// `ixgbe_main.c`, `ixgbe_configure_bridge_mode`; `ice_main.c`, `ice_bridge_setlink`; `bnxt.c`, `bnxt_bridge_setlink`;
/// `mlx5/core/en_main.c`, `mlx5e_bridge_setlink`; `be_main.c`, `be_ndo_bridge_setlink`.
pub fn link_survives_switch_mode(driver: Option<&str>) -> bool {
    matches!(driver, Some("ixgbe" | "ice" | "bnxt_en" | "mlx5_core" | "be2net"))
}
