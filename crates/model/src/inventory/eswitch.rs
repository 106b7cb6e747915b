//! What is known of the mode of a PF's embedded switch, by what devlink told, by representors, and by what drivers have.

use super::{EswitchMode, Pf, SwitchMode};

/// What is known of the mode of a PF's embedded switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownMode<'a> {
    /// It is this.
    Is(EswitchMode),
    /// The driver has no modes: it is as `legacy` is.
    Without,
    /// Nobody asked devlink, or this is why it did not tell.
    Unknown(Option<&'a str>),
}

/// What a driver that has modes and tells none now may be at.
const TELLS_NONE: &str = "its driver has modes, and tells none now (`mlx5_core` before Linux 6.0 does not while there are no VFs; a function that \
     does not manage the switch never does)";

impl Pf {
    /// The mode of its embedded switch.
    pub fn known_mode(&self) -> KnownMode<'_> {
        let driver = self.driver.as_deref();
        if driver.is_some_and(has_no_modes) {
            return KnownMode::Without;
        }
        let devlink = self.devlink.as_ref();
        let unread = devlink.and_then(|devlink| devlink.unread.as_deref());
        if let (Some(eswitch), None) = (devlink.and_then(|devlink| devlink.eswitch), unread) {
            return KnownMode::Is(eswitch.mode);
        }
        // Its VFs have representors.
        if self.switch_mode == SwitchMode::Switchdev {
            return KnownMode::Is(EswitchMode::Switchdev);
        }
        match devlink {
            Some(devlink) if devlink.no_modes && unread.is_none() => match driver {
                Some(driver) if !has_modes(driver) => KnownMode::Without,
                _ => KnownMode::Unknown(Some(TELLS_NONE)),
            },
            // A scan without root is not told what there is.
            _ => KnownMode::Unknown(unread),
        }
    }
}

/// Whether the driver has no modes of the embedded switch: no `eswitch_mode_get` among its `devlink_ops`, or no devlink at all (Linux 6.12).
fn has_no_modes(driver: &str) -> bool {
    matches!(driver, "igb" | "ixgbe" | "i40e" | "mlx4_core" | "be2net" | "virtio-pci")
}

/// Whether the driver has modes of the embedded switch, with each firmware. Others may have: of these it is known.
///
/// `mlx5_core`: `mlx5/core/devlink.c`; `ice`: `ice/devlink/devlink.c`; `bnxt_en`: `bnxt/bnxt_devlink.c`. `nfp` has them with some kinds of
/// firmware (`nfp/nfp_app.h`).
fn has_modes(driver: &str) -> bool {
    matches!(driver, "mlx5_core" | "ice" | "bnxt_en")
}
