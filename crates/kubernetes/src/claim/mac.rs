//! Who on this node has a MAC address already. Two with one address at one switch are sent each other's frames.

use penstock_host::{Netlink, NetlinkError, Root, VfBackend, interface_of};
use penstock_model::{Bdf, Mac};

use super::state::PreparedClaim;
use crate::devices::Devices;

/// Who has an address that is asked for the VF `function`, in words: another prepared claim, a NIC, an interface of the host, or a VF as its PF
/// has it. What the kernel does not tell is not known.
pub fn holder(
    mac: Mac,
    root: &Root,
    function: Bdf,
    devices: &Devices,
    others: &[PreparedClaim],
) -> Option<String> {
    let of_claim = others.iter().find(|other| other.devices.iter().any(|of| of.mac == Some(mac)));
    if let Some(claim) = of_claim {
        return Some(format!("claim {}/{} ({})", claim.namespace, claim.name, claim.uid));
    }
    let of_nic = devices.nics.values().find(|nic| nic.mac == Some(mac));
    if let Some(nic) = of_nic {
        return Some(format!("the NIC {}", nic.name));
    }
    of_host(mac, root, function, devices).ok().flatten()
}

/// The same, of what the host has.
fn of_host(mac: Mac, root: &Root, function: Bdf, devices: &Devices) -> Result<Option<String>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    let own = interface_of(function, &links, root).map(|report| report.index);
    let of_interface = links.iter().find(|report| report.interface.mac == mac && Some(report.index) != own);
    if let Some(report) = of_interface {
        return Ok(Some(format!("the interface {} of the host", report.interface.name)));
    }
    for pf in devices.nics.keys() {
        let Some(report) = interface_of(*pf, &links, root) else { continue };
        for (vf, state) in VfBackend::of(root, &mut netlink, report.index)?.vfs()? {
            let is_own =
                devices.functions.values().any(|of| of.bdf == function && (of.pf, of.vf) == (*pf, vf));
            if state.mac == mac && !is_own {
                return Ok(Some(format!("VF {vf} of {}", report.interface.name)));
            }
        }
    }
    Ok(None)
}
