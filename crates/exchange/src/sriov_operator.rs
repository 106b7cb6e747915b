//! `SriovNetworkNodePolicy` of the SR-IOV network operator (`sriovnetwork.openshift.io/v1`), one for each run of VFs that no guest owns. The
//! policies are `externallyManaged`: Penstock makes the VFs, the operator gives them to pods.

use std::fmt::Write;

use penstock_model::{FreeDriver, Model, VfIndex};
use penstock_plan::NicOnMachine;

use crate::{
    ExportedFile,
    left_out::{Omissions, ranges},
};

/// One file with all policies.
pub fn files(model: &Model, nics: &[NicOnMachine<'_>], left_out: &mut Omissions) -> Vec<ExportedFile> {
    let policies: Vec<String> = nics.iter().flat_map(|nic| policies(model, nic, left_out)).collect();
    if policies.is_empty() {
        return Vec::new();
    }
    let text = format!("# By `penstock export`: kubectl apply -f FILE\n{}", policies.join("---\n"));
    vec![ExportedFile { name: "penstock-sriov-operator.yaml".to_owned(), text }]
}

fn policies(model: &Model, nic: &NicOnMachine<'_>, left_out: &mut Omissions) -> Vec<String> {
    let free: Vec<VfIndex> = nic.vfs.iter().filter(|vf| vf.owner.is_none()).map(|vf| vf.index).collect();
    if free.is_empty() {
        return Vec::new();
    }
    let kind = match nic.nic.free_driver {
        None | Some(FreeDriver::Host) => "netdevice",
        Some(FreeDriver::VfioPci) => "vfio-pci",
        Some(FreeDriver::None) => {
            left_out.nic(nic.name, "`free: {driver: none}`: the operator gives out no VF without a driver");
            return Vec::new();
        }
    };
    let known = nic.pf.interface.as_ref().map(|interface| &interface.name);
    let Some(name) = nic.nic.interface.as_ref().or(known) else {
        left_out.nic(nic.name, "its PF has no interface, by whose name the operator selects VFs");
        return Vec::new();
    };
    // What the PF keeps for each VF stays as Penstock has set it.
    let resource: String = nic
        .name
        .as_str()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    let object = resource.replace('_', "-");
    ranges(&free)
        .into_iter()
        .map(|range| {
            let mut text = String::new();
            let _ = write!(
                text,
                "apiVersion: sriovnetwork.openshift.io/v1\nkind: SriovNetworkNodePolicy\nmetadata:\n  name: 'penstock-{object}-{range}'\n  \
                 namespace: sriov-network-operator\nspec:\n  nodeSelector:\n    kubernetes.io/hostname: '{}'\n  resourceName: '{resource}'\n  \
                 externallyManaged: true\n  numVfs: {}\n  deviceType: {kind}\n",
                model.machine, nic.nic.vfs
            );
            if let Some(mtu) = nic.nic.mtu {
                let _ = writeln!(text, "  mtu: {}", mtu.get());
            }
            let _ = writeln!(text, "  nicSelector:\n    pfNames: ['{name}#{range}']");
            text
        })
        .collect()
}
