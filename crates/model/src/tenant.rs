//! Tenant NICs: SR-IOV NICs that VMs own. QEMU emulates the PF and its VFs, which are ports of an embedded switch of the host
//! (`docs/tenant-nics.md`); the VM makes VFs of them and hands these out.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{FunctionName, GuestName, InterfaceName, Mac, NicName, VfIndex, VfSettings};

/// The most pairs of queues of a function of a tenant NIC.
pub const MAX_TENANT_QUEUES: u16 = 16;

/// An SR-IOV NIC that a VM owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantNic {
    /// The PF's address. Default: derived from the names of machine, VM and NIC ([`TenantNic::derived_mac`]).
    pub mac: Mac,
    /// What the embedded switch keeps for each VF, by index; `mac` is always there.
    pub vfs: Vec<VfSettings>,
    /// Where the embedded switch leads to. `None`, the default: nowhere; the NIC's functions reach each other alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<Uplink>,
    /// Pairs of queues of each function. Default: 1.
    pub queues: u16,
}

/// Where the embedded switch of a tenant NIC leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Uplink {
    /// The interface of a function of the model, which stays on the host.
    Function(FunctionName),
    /// A network interface of the host that the model does not have.
    Interface(InterfaceName),
}

impl fmt::Display for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uplink::Function(function) => function.fmt(f),
            Uplink::Interface(interface) => interface.fmt(f),
        }
    }
}

impl TenantNic {
    /// What the embedded switch of the NIC `name` of `guest` calls the port of its uplink. No function is called that.
    pub fn uplink_port(guest: &GuestName, name: &NicName) -> String {
        format!("{guest}/{name} uplink")
    }

    /// The address of the PF of the NIC `nic` of the VM `guest` when the model gives none. Locally administered and unicast; no
    /// derived address of a VF below index 15,360 begins with its first octet. **This is part of the file format: it never
    /// changes.**
    pub fn derived_mac(machine: &str, guest: &GuestName, nic: &NicName) -> Mac {
        let mut hash = Sha256::new();
        for part in ["tenant NIC", machine, guest.as_str(), nic.as_str()] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let hash = hash.finalize();
        Mac::new([0xf2, hash[0], hash[1], hash[2], hash[3], hash[4]])
    }

    /// The NIC's functions, the PF first: the VF's index, the address and what is set.
    pub fn functions(&self) -> impl Iterator<Item = (Option<VfIndex>, Mac, VfSettings)> {
        let pf = VfSettings { mac: Some(self.mac), ..VfSettings::default() };
        let vfs = (0..).map_while(VfIndex::new).map(Some).zip(self.vfs.iter().cloned());
        std::iter::once((None, pf)).chain(vfs).map(|(vf, settings)| {
            let derived = vf.map_or(self.mac, |vf| Mac::derived(self.mac, vf));
            (vf, settings.mac.unwrap_or(derived), settings)
        })
    }
}

/// A function of a tenant NIC: `node-1/net0` is the PF, `node-1/net0#2` a VF.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct TenantFunctionName {
    /// The VM.
    pub guest: GuestName,
    /// Which of its NICs, and which function of that.
    pub function: FunctionName,
}

impl fmt::Display for TenantFunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.guest, self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format's promise: these never change.
    #[test]
    fn derived_addresses_of_tenant_nics_are_what_they_always_were() {
        let (guest, nic) = ("node-1".parse().unwrap(), "net0".parse().unwrap());
        let pf = TenantNic::derived_mac("tenant", &guest, &nic);
        assert!(pf.is_local() && !pf.is_multicast());
        assert_eq!(pf.to_string(), "f2:23:5b:d8:a9:11");
        // The parts are kept apart.
        let (guest, nic) = ("node-1n".parse().unwrap(), "et0".parse().unwrap());
        assert_ne!(TenantNic::derived_mac("tenant", &guest, &nic), pf);
    }
}
