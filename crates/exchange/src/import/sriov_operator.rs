//! `SriovNetworkNodePolicy` of the SR-IOV network operator (`sriovnetwork.openshift.io/v1`): which VFs a PF has, and what drives them; and
//! `SriovNetwork`: what a pod's VF of a policy's resource gets.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, FreeDriver, InterfaceName, MachineName, Mtu, VfCount, VfIndex, VfKey, yaml::shown,
};

use super::{
    Found,
    foreign::ForeignNode,
    nic::{ForeignNic, PfSelector, VfNetwork},
};

/// First and last of some VFs; `None`: all.
type VfRange = Option<(VfIndex, VfIndex)>;

/// One policy, of one PF.
struct Policy<'a> {
    selector: PfSelector,
    /// The VFs that it speaks of.
    range: VfRange,
    at: ForeignNode<'a>,
}

/// What policies say together.
#[derive(Default)]
struct Policies<'a> {
    nics: BTreeMap<PfSelector, ForeignNic<'a>>,
    /// In the order of the files.
    order: Vec<PfSelector>,
    /// The VFs of which policies speak, first and last; `None`: one speaks of all.
    covered: BTreeMap<PfSelector, Option<Vec<(u16, u16)>>>,
    machines: BTreeSet<String>,
    /// Of each PF the resources that policies make of its VFs, with the VFs.
    resources: BTreeMap<PfSelector, Vec<(String, VfRange)>>,
    /// By resource.
    networks: BTreeMap<String, Vec<VfNetwork<'a>>>,
}

/// The NICs of these documents.
pub fn read<'a>(roots: &[ForeignNode<'a>]) -> Found<'a> {
    let mut all = Policies::default();
    for root in roots {
        all.object(root);
    }
    all.found()
}

impl<'a> Policies<'a> {
    fn object(&mut self, at: &ForeignNode<'a>) {
        let mut fields = at.fields();
        let kind = fields.take("kind");
        match kind.as_ref().and_then(ForeignNode::text) {
            Some("SriovNetworkNodePolicy") => {
                // What names the object, and what the operator says of it.
                ["apiVersion", "metadata", "status"].into_iter().for_each(|key| drop(fields.take(key)));
                match fields.take("spec") {
                    Some(spec) => self.policy(&spec),
                    None => at.error("a policy has a `spec`"),
                }
            }
            Some("SriovNetwork") => {
                ["apiVersion", "metadata", "status"].into_iter().for_each(|key| drop(fields.take(key)));
                match fields.take("spec") {
                    Some(spec) => self.network(&spec),
                    None => at.error("a network has a `spec`"),
                }
            }
            Some("List" | "SriovNetworkNodePolicyList" | "SriovNetworkList") => {
                ["apiVersion", "metadata"].into_iter().for_each(|key| drop(fields.take(key)));
                // Lists do not stand in lists.
                for item in fields.take("items").iter().flat_map(ForeignNode::items) {
                    let is_list = item.entries().iter().any(|(key, value)| {
                        *key == "kind" && value.text().is_some_and(|kind| kind.ends_with("List"))
                    });
                    match is_list {
                        true => item.error("a list stands in a list"),
                        false => self.object(&item),
                    }
                }
            }
            Some(other) => {
                fields.forget();
                at.left_out(format!(
                    "this {} is left out: Penstock has the NICs and their VFs, which policies describe, and the rest stays in Kubernetes",
                    shown(other)
                ));
            }
            None => {
                fields.forget();
                at.error("this is no object of Kubernetes: it has no `kind`");
            }
        }
    }

    fn policy(&mut self, spec: &ForeignNode<'a>) {
        let mut fields = spec.fields();
        if let Some(nodes) = fields.take("nodeSelector") {
            let mut nodes = nodes.fields();
            self.machines.extend(nodes.value::<String>("kubernetes.io/hostname"));
        }
        let count: Option<u16> = fields.value::<VfCount>("numVfs").map(|count| count.get());
        let mtu: Option<Mtu> = fields.value("mtu");
        let kind = fields.take("deviceType");
        let free = kind.as_ref().and_then(|kind| match kind.text() {
            Some("netdevice") => Some(FreeDriver::Host),
            Some("vfio-pci") => Some(FreeDriver::VfioPci),
            _ => {
                kind.left_out("`deviceType` is left out: a model knows `netdevice` and `vfio-pci`");
                None
            }
        });
        if fields.take("externallyManaged").and_then(|node| node.switch()) != Some(true) {
            spec.left_out_with_hint(
                "that the operator makes the VFs is left out: with this model Penstock makes them",
                "set `externallyManaged: true` in the policy, or `externally_managed: on` in the model",
            );
        }
        let resource = fields.take("resourceName").and_then(|node| {
            node.left_out("`resourceName` is left out: a model has no word for it");
            node.value::<String>()
        });
        let policies = match fields.take("nicSelector") {
            Some(nics) => selected(&nics),
            None => Vec::new(),
        };
        if policies.is_empty() {
            spec.left_out("this policy is left out: it selects no PF by `pfNames` or `rootDevices`, and a NIC is one device");
        }
        for policy in policies {
            self.add(&policy, count, mtu, free);
            if let Some(resource) = &resource {
                let of_pf = self.resources.entry(policy.selector.clone()).or_default();
                of_pf.push((resource.clone(), policy.range));
            }
        }
    }

    /// What the SR-IOV CNI plugin sets of a VF. What it makes inside a pod stays in Kubernetes.
    fn network(&mut self, spec: &ForeignNode<'a>) {
        let mut fields = spec.fields();
        ["networkNamespace", "ipam", "capabilities", "metaPlugins", "logLevel", "logFile"]
            .iter()
            .for_each(|key| fields.left_out(key, "what a pod gets beside its VF stays in Kubernetes"));
        let Some(resource) = fields.value::<String>("resourceName") else {
            return spec.error("a network has the `resourceName` of a policy");
        };
        let keys = [
            ("vlan", VfKey::Vlan),
            ("vlanQoS", VfKey::Qos),
            ("vlanProto", VfKey::VlanProto),
            ("spoofChk", VfKey::Spoofchk),
            ("trust", VfKey::Trust),
            ("linkState", VfKey::LinkState),
            ("minTxRate", VfKey::MinTxRate),
            ("maxTxRate", VfKey::MaxTxRate),
        ];
        // The operator's 0 is no VLAN and no priority: the VF keeps what it has.
        let settings =
            fields.settings(keys, |key, text| matches!(key, VfKey::Vlan | VfKey::Qos) && text == "0");
        self.networks.entry(resource).or_default().push(VfNetwork { settings, at: spec.clone() });
    }

    /// What networks set of the VFs of a PF.
    fn settings(&self, nic: &mut ForeignNic<'a>) {
        let (Some(vfs), Some(resources)) = (nic.vfs, self.resources.get(&nic.selector)) else { return };
        let networks: Vec<VfNetwork<'a>> =
            resources.iter().filter_map(|(name, _)| self.networks.get(name)).flatten().cloned().collect();
        let ranges = resources.iter().filter(|(name, _)| self.networks.contains_key(name));
        let ranges =
            ranges.map(|(_, range)| range.map_or((0, vfs), |(first, last)| (first.get(), last.get())));
        let hint = "a claim of Penstock's driver says it for each pod (docs/claims.md)";
        nic.add_to_all(vfs, &networks, cover(ranges.collect(), vfs), hint);
    }

    fn add(&mut self, policy: &Policy<'a>, count: Option<u16>, mtu: Option<Mtu>, free: Option<FreeDriver>) {
        let Policy { selector, range, at } = policy;
        let new = !self.nics.contains_key(selector);
        let nic = self
            .nics
            .entry(selector.clone())
            .or_insert_with(|| ForeignNic::new(selector.label(), selector.clone(), at.clone()));
        let covered = self.covered.entry(selector.clone()).or_insert_with(|| Some(Vec::new()));
        match range {
            Some((first, last)) => covered.iter_mut().for_each(|all| all.push((first.get(), last.get()))),
            None => *covered = None,
        }
        if new {
            self.order.push(selector.clone());
            (nic.vfs, nic.mtu, nic.free) = (count, mtu, free);
            return;
        }
        if nic.vfs != count {
            at.left_out("`numVfs` of this policy is left out where it is less: another policy of the PF has another number");
            nic.vfs = nic.vfs.max(count);
        }
        if nic.mtu != mtu {
            at.left_out(
                "`mtu` of this policy is left out where it is less: another policy of the PF has another",
            );
            nic.mtu = nic.mtu.max(mtu);
        }
        if nic.free != free {
            at.left_out("`deviceType` of this policy is left out: another policy of the PF has another, and a model has one for all VFs of a NIC that no guest owns");
        }
    }

    fn found(mut self) -> Found<'a> {
        let mut nics = Vec::new();
        for selector in &self.order {
            let Some(mut nic) = self.nics.remove(selector) else { continue };
            self.settings(&mut nic);
            if let (Some(Some(covered)), Some(vfs)) = (self.covered.remove(selector), nic.vfs)
                && !cover(covered, vfs)
            {
                nic.at.left_out(
                    "that some VFs are in no policy is left out: a model gives those that are not free to guests, and no guest is known here",
                );
            }
            nics.push(nic);
        }
        let known: BTreeSet<&String> = self.resources.values().flatten().map(|(name, _)| name).collect();
        for (resource, networks) in self.networks.iter().filter(|(resource, _)| !known.contains(resource)) {
            networks.iter().for_each(|network| {
                network.at.left_out(format!(
                    "this network is left out: no policy here makes the resource {}",
                    shown(resource)
                ));
            });
        }
        // Policies of several machines make no model of one.
        let mut machines = self.machines.iter();
        let machine = match (machines.next(), machines.next()) {
            (Some(one), None) => one.parse::<MachineName>().ok(),
            (Some(_), Some(_)) => {
                if let Some(nic) = nics.first() {
                    nic.at.error("these policies are of several nodes, and a model is of one machine: give those of one");
                }
                None
            }
            (None, _) => None,
        };
        Found { machine, nics, guests: Vec::new() }
    }
}

/// Whether these ranges have every VF of so many.
fn cover(mut ranges: Vec<(u16, u16)>, vfs: u16) -> bool {
    ranges.sort_unstable();
    let next = ranges.into_iter().fold(0, |next, (first, last)| match first <= next {
        true => next.max(last.saturating_add(1)),
        false => next,
    });
    next >= vfs
}

/// The PFs that a policy selects, each with its VFs.
fn selected<'a>(at: &ForeignNode<'a>) -> Vec<Policy<'a>> {
    let mut fields = at.fields();
    let names: Vec<ForeignNode<'a>> = fields.take("pfNames").iter().flat_map(ForeignNode::items).collect();
    let devices: Vec<ForeignNode<'a>> =
        fields.take("rootDevices").iter().flat_map(ForeignNode::items).collect();
    let by_name: Vec<_> = names.iter().filter_map(|node| Some((node, pf_name(node)?))).collect();
    // Whatever is given must hold: one name and one address are one PF, and of several the addresses tell more.
    if let ([device], [(_, (_, range))]) = (devices.as_slice(), by_name.as_slice()) {
        let bdf = device.value::<Bdf>();
        let selector = PfSelector { bdf, ..PfSelector::default() };
        return vec![Policy { selector, range: *range, at: device.clone() }];
    }
    if !devices.is_empty() {
        by_name.iter().for_each(|(node, _)| {
            node.left_out("this name is left out: `rootDevices` says which PFs are meant")
        });
        return devices
            .iter()
            .filter_map(|node| {
                let selector = PfSelector::by_address(node.value()?);
                Some(Policy { selector, range: None, at: node.clone() })
            })
            .collect();
    }
    by_name
        .into_iter()
        .map(|(node, (name, range))| {
            let selector = PfSelector::by_name(name);
            Policy { selector, range, at: node.clone() }
        })
        .collect()
}

/// `eno1`, or `eno1#0-3` for some of its VFs.
fn pf_name(node: &ForeignNode<'_>) -> Option<(InterfaceName, VfRange)> {
    let text: String = node.value()?;
    let (name, range) = match text.split_once('#') {
        Some((name, range)) => (name, Some(range)),
        None => (text.as_str(), None),
    };
    let index = |text: &str| text.parse::<u16>().ok().and_then(VfIndex::new);
    let bounds = match range.map(|range| range.split_once('-').unwrap_or((range, range))) {
        None => Ok(None),
        Some((first, last)) => match (index(first), index(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Some((first, last))),
            _ => Err(()),
        },
    };
    let Ok(bounds) = bounds else {
        node.error(format!("{} has no range of VFs like `eno1#0-3`", shown(&text)));
        return None;
    };
    match name.parse() {
        Ok(name) => Some((name, bounds)),
        Err(why) => {
            node.error(format!("{} names no interface: {why}", shown(&text)));
            None
        }
    }
}
