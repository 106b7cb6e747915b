//! Functions of VMs' NICs that are taps of a bridge, as the host's kernel tells of them. Pure.

use std::collections::BTreeMap;

use penstock_host::tap::TapReport;
use penstock_model::{Mac, Outcome, Uplink};

use super::writer::{Unobserved, VerdictWriter};

/// The host's taps by the names of functions (`node-1/net0#2`); why they could not be listed, else.
pub type TenantTaps = Result<BTreeMap<String, TapReport>, String>;

/// Whether QEMU has the tap of `function` open, it was made for the address `mac`, and the bridge `uplink` forwards its frames. Whether the VM
/// has enabled the function a tap does not tell.
pub(super) fn judge(
    function: &str,
    mac: Mac,
    uplink: Option<&Uplink>,
    taps: &TenantTaps,
    page: &mut VerdictWriter<'_>,
) {
    let tap = find(function, taps);
    match &tap {
        Err(blind) => page.blind("port", "connected", blind.clone()),
        Ok(tap) if tap.attached => page.put("port", "connected", "connected", Outcome::Pass),
        Ok(tap) if !tap.up => page.put("port", "connected", format!("{} is down", tap.name), Outcome::Fail),
        Ok(tap) => {
            page.put("port", "connected", format!("QEMU has not opened {}", tap.name), Outcome::Fail);
        }
    }
    let of_tap = |tap: &TapReport| tap.mac().map_or_else(|| tap.name.to_string(), |mac| mac.to_string());
    page.compare("mac", mac.to_string(), tap.clone().map(of_tap));
    if let Some(uplink) = uplink {
        in_bridge(uplink, tap, page);
    }
}

/// The tap of `function`.
pub(super) fn find<'a>(function: &str, taps: &'a TenantTaps) -> Result<&'a TapReport, Unobserved> {
    match taps {
        Err(why) => Err(Unobserved::Unknown(format!("the host's taps could not be listed: {why}"))),
        Ok(taps) => taps.get(function).ok_or_else(|| Unobserved::Absent("it has no tap".to_owned())),
    }
}

/// Whether the bridge `uplink` forwards the frames of a tap.
pub(super) fn in_bridge(uplink: &Uplink, tap: Result<&TapReport, Unobserved>, page: &mut VerdictWriter<'_>) {
    let wanted = uplink.to_string();
    match tap {
        Err(blind) => page.blind("uplink", wanted, blind),
        Ok(tap) => match &tap.bridge {
            None => page.put("uplink", wanted, "a port of no bridge", Outcome::Fail),
            Some(bridge) if bridge.as_str() != wanted => page.put("uplink", wanted, bridge, Outcome::Fail),
            Some(bridge) if tap.forwarding => page.put("uplink", wanted, bridge, Outcome::Pass),
            Some(bridge) => {
                page.put(
                    "uplink",
                    wanted,
                    format!("{bridge}, which does not forward its frames"),
                    Outcome::Fail,
                );
            }
        },
    }
}
