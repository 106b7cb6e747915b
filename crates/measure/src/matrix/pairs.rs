//! Between which ends of a model each path is measured, and why a path is not.

mod ports;

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    DataPath, EndpointName, FunctionName, GuestName, Inside, Model, NicName, TenantFunctionName, TenantNic,
    Uplink, VfIndex,
    measurement::{End, EndKind, PathKind},
    verdict::Vantage,
};

use super::Absent;

/// A path and its two ends, the client's first.
pub(super) type Pair = (PathKind, End, End);

/// The pairs of ends that can be measured, at most `most` for each kind of path and of ends; and the kinds without any.
pub(super) fn pairs(model: &Model, most: usize) -> (Vec<Pair>, Vec<Absent>) {
    let nics: Vec<&NicName> = model.nics.keys().collect();
    let cabled = |a: &NicName, b: &NicName| {
        // A model that names no cable is of a machine whose NICs hang on one network.
        let cables = &model.board.cables;
        cables.is_empty() || cables.iter().any(|[x, y]| (x, y) == (a, b) || (y, x) == (a, b))
    };
    let joined: Vec<(&NicName, &NicName)> = nics
        .iter()
        .enumerate()
        .flat_map(|(i, a)| nics[i + 1..].iter().map(move |b| (*a, *b)))
        .filter(|(a, b)| cabled(a, b))
        .collect();
    let vfs = |nic: &NicName| vf_ends(model, nic);
    let mut found = Vec::new();
    let mut absent = Vec::new();
    for path in PathKind::ALL {
        let all: Vec<(End, End)> = match path {
            PathKind::PfPf => {
                let ends = joined.iter().filter_map(|(a, b)| Some((pf_end(model, a)?, pf_end(model, b)?)));
                ends.collect()
            }
            PathKind::VfVfAcross => joined.iter().flat_map(|(a, b)| product(vfs(a), vfs(b))).collect(),
            PathKind::VfVfInside => nics
                .iter()
                .filter(|nic| model.nics[**nic].loopback != Some(false))
                .flat_map(|nic| each_with_later(vfs(nic)))
                .collect(),
            PathKind::GuestHost => nics
                .iter()
                .filter_map(|nic| pf_end(model, nic).filter(|pf| pf.place == Vantage::Host))
                .flat_map(|pf| {
                    let nic = pf.function.as_ref().and_then(EndpointName::of_model).map(|pf| pf.nic.clone());
                    product(nic.map(|nic| vfs(&nic)).unwrap_or_default(), vec![pf])
                })
                .collect(),
            PathKind::Bridge => {
                // veth needs the two guests' namespaces under one kernel.
                let between = found.iter().filter(|(path, a, b): &&Pair| {
                    *path != PathKind::GuestHost
                        && (a.kind, b.kind) == (EndKind::Container, EndKind::Container)
                });
                let bare = |end: &End| End { function: None, ..end.clone() };
                let mut pairs: Vec<(End, End)> = Vec::new();
                for (_, a, b) in between {
                    let pair = (bare(a), bare(b));
                    if !pairs.contains(&pair) && !pairs.contains(&(pair.1.clone(), pair.0.clone())) {
                        pairs.push(pair);
                    }
                }
                pairs
            }
            PathKind::BridgeAcross => {
                let across = found.iter().filter(|(path, ..): &&Pair| *path == PathKind::VfVfAcross);
                across.filter_map(|(_, a, b)| bridged_across(model, a, b)).collect()
            }
            PathKind::VmVf => from_vm_nics(model, &cabled, vf_to_measure),
            PathKind::VmBridge
            | PathKind::VmBridgeNat
            | PathKind::VmOvs
            | PathKind::VmMacvlan
            | PathKind::VmIpvlan
            | PathKind::VmPf => from_vm_nics(model, &cabled, |_| Some(None)),
            PathKind::PortPort => ports::joined(model),
            PathKind::PortHost => ports::to_the_host(model),
            // What ports replace is measured between the same ends.
            PathKind::VethVeth => between_those_of(PathKind::PortPort, &found),
            // A veth in the host's bridge gets round a spoof check.
            PathKind::VethHost => {
                let pairs = between_those_of(PathKind::PortHost, &found);
                pairs.into_iter().filter(|(nic, _)| !ports::is_checked(model, nic)).collect()
            }
        };
        let any = !all.is_empty();
        let all = if path == PathKind::VfVfInside { known_first(all, &found) } else { all };
        let mut kinds: BTreeMap<[EndKind; 2], usize> = BTreeMap::new();
        let before = found.len();
        // A bridge is there for every pair of guests that was chosen: each is the baseline of its own.
        let most = if path.is_bridge() && !path.is_of_vm_nic() { usize::MAX } else { most };
        for (a, b) in all.into_iter().filter(|(a, b)| a.place != b.place && same_vlan(model, a, b)) {
            // Starting a program through a VM's agent is slow: the client is at the other end, unless it is the VM that is measured.
            let turned = a.kind == EndKind::Vm && b.kind != EndKind::Vm && !path.is_of_vm_nic();
            let (a, b) = if turned { (b, a) } else { (a, b) };
            let mut kind = [a.kind, b.kind];
            kind.sort();
            let taken = kinds.entry(kind).or_default();
            if *taken < most {
                *taken += 1;
                found.push((path, a, b));
            }
        }
        if found.len() == before {
            absent.push(Absent { path, why: why_absent(path, any, &joined, model) });
        }
    }
    (found, absent)
}

/// The pairs that are measured of another path.
fn between_those_of(path: PathKind, found: &[Pair]) -> Vec<(End, End)> {
    found.iter().filter(|(of, ..)| *of == path).map(|(_, a, b)| (a.clone(), b.clone())).collect()
}

/// The pairs between guests that another path is measured between first, so that paths are compared between the same
/// guests, and one bridge is the baseline of all.
fn known_first(mut pairs: Vec<(End, End)>, found: &[Pair]) -> Vec<(End, End)> {
    let known = |a: &End, b: &End| {
        let guests = BTreeSet::from([&a.place, &b.place]);
        found.iter().any(|(_, x, y)| guests == BTreeSet::from([&x.place, &y.place]))
    };
    pairs.sort_by_cached_key(|(a, b)| !known(a, b));
    pairs
}

fn why_absent(path: PathKind, any: bool, joined: &[(&NicName, &NicName)], model: &Model) -> String {
    let text = match path {
        PathKind::PortPort | PathKind::VethVeth => return ports::why_none_joined(model),
        PathKind::PortHost => return ports::why_none_to_the_host(model),
        PathKind::VethHost => return ports::why_no_veth_to_the_host(model),
        PathKind::VmVf
        | PathKind::VmBridge
        | PathKind::VmBridgeNat
        | PathKind::VmOvs
        | PathKind::VmMacvlan
        | PathKind::VmIpvlan
        | PathKind::VmPf => {
            "it takes a VM that commands can be run in with a NIC of its own, whose uplink is a PF that a cable joins with another \
             NIC, or that is at taps of a bridge (path: tap); and for a VF one outside of VLANs"
        }
        PathKind::PfPf if any => {
            "both PFs of each pair are in one place: its kernel would hand the bytes over itself (give one of them to a container)"
        }
        _ if any => {
            "both ends of each pair are in one place, or on different VLANs: its kernel would hand the bytes over itself"
        }
        PathKind::PfPf | PathKind::VfVfAcross if joined.is_empty() => "no cable joins two NICs",
        PathKind::PfPf => "a PF is in a guest that nothing can be run in",
        PathKind::VfVfInside if model.nics.values().all(|nic| nic.loopback == Some(false)) => {
            "no NIC switches between its own functions (loopback: off)"
        }
        PathKind::VfVfAcross | PathKind::VfVfInside => {
            "no two guests that commands can be run in own such VFs"
        }
        PathKind::GuestHost => "no PF is the host's, with a VF in a guest that commands can be run in",
        PathKind::Bridge => "no two containers have another path between them that a bridge could replace",
        PathKind::BridgeAcross => {
            "no container has a path between VFs over a cable from a NIC whose PF is the host's: that PF would be the bridge's \
             uplink"
        }
    };
    text.to_owned()
}

/// The same two guests with a veth in place of a container's VF, and that VF's PF, which must be the host's, as the uplink of
/// a bridge: of the client, or else of the server.
fn bridged_across(model: &Model, a: &End, b: &End) -> Option<(End, End)> {
    let veth = |end: &End| {
        let function = FunctionName { nic: end.function.as_ref()?.of_model()?.nic.clone(), vf: None };
        let fits = end.kind == EndKind::Container && model.owner(&function).is_none();
        fits.then(|| End { function: Some(function.into()), ..end.clone() })
    };
    veth(a).map(|a| (a, b.clone())).or_else(|| Some((a.clone(), veth(b)?)))
}

/// A PF, where it is; `None` when nothing can be run there.
fn pf_end(model: &Model, nic: &NicName) -> Option<End> {
    let function = FunctionName { nic: nic.clone(), vf: None };
    match model.owner(&function) {
        None => Some(End { place: Vantage::Host, kind: EndKind::Host, function: Some(function.into()) }),
        Some((guest, _)) => guest_end(model, guest, function),
    }
}

fn guest_end(model: &Model, name: &GuestName, function: impl Into<EndpointName>) -> Option<End> {
    let guest = &model.guests[name];
    let kind = EndKind::from(guest.kind);
    let reachable = kind == EndKind::Container || guest.vm.inside == Inside::Agent;
    let place = Vantage::Guest(name.clone());
    reachable.then(|| End { place, kind, function: Some(function.into()) })
}

/// A function of each NIC that VMs own, which `choose` picks, with an end outside that VM: the PF of a NIC over the cable of the NIC's
/// uplink, the host's before a guest's, since it takes the least from the CPUs of what is measured; of a NIC at taps the host's end of
/// their bridge.
fn from_vm_nics(
    model: &Model,
    cabled: &impl Fn(&NicName, &NicName) -> bool,
    choose: impl Fn(&TenantNic) -> Option<Option<VfIndex>>,
) -> Vec<(End, End)> {
    let far = |near: &NicName| {
        let over = model.nics.keys().filter(|nic| *nic != near && cabled(near, nic));
        over.filter_map(|nic| pf_end(model, nic)).min_by_key(|end| end.place != Vantage::Host)
    };
    let pairs = model.tenant_nics().filter_map(|(guest, name, nic)| {
        let outside = match (nic.uplink.as_ref()?, nic.path) {
            (Uplink::Function(uplink), _) => far(&uplink.nic)?,
            (Uplink::Interface(_), DataPath::Tap) => {
                End { place: Vantage::Host, kind: EndKind::Host, function: None }
            }
            // What is behind another interface the model does not say.
            (Uplink::Interface(_), _) => return None,
        };
        let function = FunctionName { nic: name.clone(), vf: choose(nic)? };
        let own = guest_end(model, guest, TenantFunctionName { guest: guest.clone(), function })?;
        Some((own, outside))
    });
    pairs.collect()
}

/// The VF of a VM's NIC that is measured: one outside of VLANs, as a far end is, and without a limit where there is one.
fn vf_to_measure(nic: &TenantNic) -> Option<Option<VfIndex>> {
    let untagged = nic
        .functions()
        .filter(|(vf, _, settings)| vf.is_some() && settings.vlan.is_none_or(|vlan| vlan.get() == 0));
    let best = untagged.min_by_key(|(.., settings)| settings.max_tx_rate.is_some());
    best.map(|(vf, ..)| vf)
}

/// The VFs of a NIC that are in guests, in the guests' order.
fn vf_ends(model: &Model, nic: &NicName) -> Vec<End> {
    let of_nic = |name: &FunctionName| name.nic == *nic && name.vf.is_some();
    let guests = model.guests.iter();
    let owned =
        guests.flat_map(|(guest, owner)| owner.functions.iter().map(move |function| (guest, function)));
    owned
        .filter(|(_, function)| of_nic(&function.name))
        .filter_map(|(guest, function)| guest_end(model, guest, function.name.clone()))
        .collect()
}

fn product(left: Vec<End>, right: Vec<End>) -> Vec<(End, End)> {
    left.iter().flat_map(|a| right.iter().map(move |b| (a.clone(), b.clone()))).collect()
}

fn each_with_later(ends: Vec<End>) -> Vec<(End, End)> {
    let pairs = ends.iter().enumerate().flat_map(|(i, a)| ends[i + 1..].iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| (a.clone(), b.clone())).collect()
}

/// Whether the embedded switch lets frames pass between them: both untagged, or on the same VLAN.
fn same_vlan(model: &Model, a: &End, b: &End) -> bool {
    let vlan = |end: &End| match end.function.as_ref()? {
        EndpointName::Function(function) => model.owner(function)?.1.settings.vlan,
        EndpointName::Tenant(TenantFunctionName { guest, function }) => {
            let nic = model.guests.get(guest)?.nics.get(&function.nic)?;
            let own = || match function.vf {
                Some(vf) => nic.vfs.get(usize::from(vf.get()))?.vlan,
                None => nic.settings.vlan,
            };
            // A VLAN of the uplink's VF is that of all functions beyond it.
            let vlan = nic.uplink_settings.as_ref().and_then(|settings| settings.vlan).or_else(own);
            vlan.filter(|vlan| vlan.get() != 0)
        }
    };
    vlan(a) == vlan(b)
}
