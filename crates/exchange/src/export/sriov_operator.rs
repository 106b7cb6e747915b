//! `SriovNetworkNodePolicy` of the SR-IOV network operator (`sriovnetwork.openshift.io/v1`), one for each run of VFs that no guest owns. The
//! policies are `externallyManaged`: Penstock makes the VFs, the operator gives them to pods.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write,
};

use penstock_model::{FreeDriver, Model};
use penstock_plan::NicOnMachine;

use super::{
    ExportedFile, free_vfs,
    left_out::{Omissions, ranges},
};

/// One file with all policies.
pub fn files(model: &Model, nics: &[NicOnMachine<'_>], left_out: &mut Omissions) -> Vec<ExportedFile> {
    let mut resources = BTreeMap::new();
    let mut all = Vec::new();
    for nic in nics {
        let resource = resource(nic);
        let policies = policies(model, nic, &resource, left_out);
        if policies.is_empty() {
            continue;
        }
        // The VFs of both would be one resource, and a pod would get either's.
        match resources.entry(resource) {
            Entry::Occupied(other) => {
                let why = format!(
                    "its resource would be called `{}`, as that of {} is: names of resources have small letters, digits and `_` \
                     alone; name one of the two otherwise",
                    other.key(),
                    other.get()
                );
                left_out.nic(nic.name, why);
            }
            Entry::Vacant(free) => {
                free.insert(nic.name);
                all.extend(policies);
            }
        }
    }
    if all.is_empty() {
        return Vec::new();
    }
    let text = format!("# By `penstock export`: kubectl apply -f FILE\n{}", all.join("---\n"));
    vec![ExportedFile { name: "penstock-sriov-operator.yaml".to_owned(), text }]
}

/// What pods ask for: the NIC's name in what a resource's name may hold. Objects, whose names have no capitals, are named by it.
fn resource(nic: &NicOnMachine<'_>) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    nic.name.as_str().chars().map(word).collect()
}

fn policies(model: &Model, nic: &NicOnMachine<'_>, resource: &str, left_out: &mut Omissions) -> Vec<String> {
    let Some((free, driver)) = free_vfs(nic, "the operator", left_out) else { return Vec::new() };
    let kind = if driver == FreeDriver::VfioPci { "vfio-pci" } else { "netdevice" };
    let known = nic.pf.interface.as_ref().map(|interface| &interface.name);
    let Some(name) = nic.nic.interface.as_ref().or(known) else {
        left_out.nic(nic.name, "its PF has no interface, by whose name the operator selects VFs");
        return Vec::new();
    };
    // What the PF keeps for each VF stays as Penstock has set it.
    let object = resource.replace('_', "-");
    ranges(&free)
        .into_iter()
        .map(|range| {
            let mut text = String::new();
            let _ = write!(
                text,
                "apiVersion: sriovnetwork.openshift.io/v1\nkind: SriovNetworkNodePolicy\nmetadata:\n  name: 'penstock-{object}-vf-{range}'\n  \
                 namespace: sriov-network-operator\nspec:\n  nodeSelector:\n    kubernetes.io/hostname: '{}'\n  resourceName: '{resource}'\n  \
                 externallyManaged: true\n  numVfs: {}\n  deviceType: {kind}\n",
                model.machine, nic.nic.vfs
            );
            if let Some(mtu) = nic.nic.mtu {
                let _ = writeln!(text, "  mtu: {}", mtu.get());
            }
            // Its webhook refuses a range without an end, and its daemon ends by one (`ParseVfRange` in api/v1/helper.go, v1.6.0).
            let whole = if range.contains('-') { range } else { format!("{range}-{range}") };
            let _ = writeln!(text, "  nicSelector:\n    pfNames: ['{name}#{whole}']");
            text
        })
        .collect()
}
