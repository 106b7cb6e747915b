//! Which frames a model wants to arrive, and which not. Pure.

use std::collections::BTreeMap;

use penstock_model::{
    DataPath, EndpointName, FunctionName, LinkState, Model, NicName, TenantFunctionName, Uplink, VfSettings,
    VlanId, VlanProtocol,
};

/// What a model says of the frames from one function to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expectation {
    /// They are to arrive.
    Arrives,
    /// They must not arrive.
    Isolated(Barrier),
    /// The model does not say.
    NotJudged,
}

/// What keeps frames from arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Barrier {
    /// One of the two is shown a link that is down.
    LinkDisabled,
    /// They are in different VLANs.
    Vlan,
    /// The embedded switch is not to pass frames between the functions of its NIC.
    LoopbackOff,
    /// Their NICs are not joined.
    NotCabled,
}

impl Barrier {
    /// The attribute of the model that makes the barrier.
    pub fn attribute(self) -> &'static str {
        match self {
            Barrier::LinkDisabled => "link_state",
            Barrier::Vlan => "vlan",
            Barrier::LoopbackOff => "loopback",
            Barrier::NotCabled => "cables",
        }
    }
}

/// A port VLAN: tag protocol and id. Untagged is `None`, whatever protocol was given with it.
type Vlan = Option<(VlanProtocol, VlanId)>;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Port {
    nic: usize,
    vlan: Vlan,
    disabled: bool,
}

/// The port of a function of a NIC that a VM owns, at that NIC's own switch.
struct TenantPort {
    /// Number of that switch; NICs whose taps are in one bridge have the same.
    switch: usize,
    vlan: Vlan,
    leads: Leads,
}

impl TenantPort {
    /// The VLAN that its frames are in beyond its switch's uplink.
    fn beyond(&self) -> Vlan {
        match self.leads {
            Leads::To(_, of_uplink) => of_uplink.or(self.vlan),
            Leads::Nowhere | Leads::Somewhere => self.vlan,
        }
    }
}

/// Where the switch of a NIC that a VM owns leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leads {
    Nowhere,
    /// Out of this NIC of the model, as its PF's; or as those of a VF, whose port VLAN all frames are in beyond it.
    To(usize, Vlan),
    /// Out of an interface of which the model says nothing.
    Somewhere,
}

/// The network that a model describes, made once and asked for many pairs.
pub struct Network {
    ports: BTreeMap<FunctionName, Port>,
    tenants: BTreeMap<TenantFunctionName, TenantPort>,
    /// By NIC: which NICs are joined, as the smallest number among them; `None` when the model names no cable at all
    /// and so says nothing of what joins its NICs.
    joined: Option<Vec<usize>>,
    loopback: Vec<Option<bool>>,
}

impl Network {
    /// The network of `model`.
    pub fn of(model: &Model) -> Network {
        let mut ports = BTreeMap::new();
        for (number, nic) in model.nics.keys().enumerate() {
            let pf = FunctionName { nic: nic.clone(), vf: None };
            let port = |vlan, disabled| Port { nic: number, vlan, disabled };
            ports.insert(pf, port(None, false));
            for (index, settings) in model.vfs(nic) {
                let vlan = vlan_of(settings);
                let vf = FunctionName { nic: nic.clone(), vf: Some(index) };
                ports.insert(vf, port(vlan, settings.link_state == Some(LinkState::Disable)));
            }
        }
        Network {
            ports,
            tenants: tenants(model),
            joined: (!model.board.cables.is_empty()).then(|| joined(model)),
            loopback: model.nics.values().map(|nic| nic.loopback).collect(),
        }
    }

    /// What is expected of frames that `from` sends to the address of `to`, untagged.
    ///
    /// Anti-spoofing, trust and rates do not matter: a probe carries its sender's own address and is small.
    pub fn expectation(&self, from: &FunctionName, to: &FunctionName) -> Expectation {
        let (Some(sender), Some(receiver)) = (self.ports.get(from), self.ports.get(to)) else {
            return Expectation::NotJudged;
        };
        if from == to { Expectation::NotJudged } else { self.of_ports(sender, receiver) }
    }

    /// How many ordered pairs of these functions the model says something of. What it says depends on their ports alone, so that those that
    /// are alike are counted and not gone through.
    pub fn judged<'f>(&self, functions: impl IntoIterator<Item = &'f FunctionName>) -> usize {
        let mut alike: BTreeMap<&Port, usize> = BTreeMap::new();
        for port in functions.into_iter().filter_map(|function| self.ports.get(function)) {
            *alike.entry(port).or_default() += 1;
        }
        let of = |(sender, senders): (&&Port, &usize)| -> usize {
            let judged =
                alike.iter().filter(|(port, _)| self.of_ports(sender, port) != Expectation::NotJudged);
            // Nobody sends to itself.
            let receivers = judged.map(|(port, count)| if port == sender { count - 1 } else { *count });
            senders * receivers.sum::<usize>()
        };
        alike.iter().map(of).sum()
    }

    /// What is expected of frames from one port to another.
    fn of_ports(&self, sender: &Port, receiver: &Port) -> Expectation {
        let same_nic = sender.nic == receiver.nic;
        if !same_nic {
            match &self.joined {
                None => return Expectation::NotJudged,
                Some(joined) if joined[sender.nic] != joined[receiver.nic] => {
                    return Expectation::Isolated(Barrier::NotCabled);
                }
                Some(_) => (),
            }
        }
        if sender.disabled || receiver.disabled {
            return Expectation::Isolated(Barrier::LinkDisabled);
        }
        if sender.vlan != receiver.vlan {
            return Expectation::Isolated(Barrier::Vlan);
        }
        match self.loopback[sender.nic] {
            _ if !same_nic => Expectation::Arrives,
            Some(true) => Expectation::Arrives,
            Some(false) => Expectation::Isolated(Barrier::LoopbackOff),
            None => Expectation::NotJudged,
        }
    }
}

impl Network {
    /// Has a function of a NIC that a VM owns be in this VLAN; 0: in none.
    pub fn set_vlan(&mut self, function: &TenantFunctionName, protocol: VlanProtocol, id: VlanId) {
        if let Some(port) = self.tenants.get_mut(function) {
            port.vlan = (id.get() != 0).then_some((protocol, id));
        }
    }

    /// What is expected of frames that `from` sends to the address of `to`, untagged, where either may be of a NIC that a VM owns.
    pub fn between(&self, from: &EndpointName, to: &EndpointName) -> Expectation {
        match (from, to) {
            (EndpointName::Function(from), EndpointName::Function(to)) => self.expectation(from, to),
            (EndpointName::Tenant(from), EndpointName::Tenant(to)) => {
                match (self.tenants.get(from), self.tenants.get(to)) {
                    (Some(sender), Some(receiver)) if from != to => self.of_tenants(sender, receiver),
                    _ => Expectation::NotJudged,
                }
            }
            (EndpointName::Tenant(tenant), EndpointName::Function(other))
            | (EndpointName::Function(other), EndpointName::Tenant(tenant)) => {
                match (self.tenants.get(tenant), self.ports.get(other)) {
                    (Some(tenant), Some(port)) => self.of_tenant(tenant, other, port),
                    _ => Expectation::NotJudged,
                }
            }
        }
    }

    fn of_tenants(&self, a: &TenantPort, b: &TenantPort) -> Expectation {
        let joined = match (a.leads, b.leads) {
            _ if a.switch == b.switch => Some(true),
            (Leads::Nowhere, _) | (_, Leads::Nowhere) => Some(false),
            (Leads::To(a, _), Leads::To(b, _)) => self.cabled(a, b),
            (Leads::Somewhere, _) | (_, Leads::Somewhere) => None,
        };
        let same = if a.switch == b.switch { a.vlan == b.vlan } else { a.beyond() == b.beyond() };
        expected(joined, same)
    }

    fn of_tenant(&self, tenant: &TenantPort, other: &FunctionName, port: &Port) -> Expectation {
        let joined = match tenant.leads {
            Leads::Nowhere => Some(false),
            Leads::To(nic, _) => self.cabled(nic, port.nic),
            Leads::Somewhere => None,
        };
        // Frames of a VLAN come to a PF with their tags, and whether it takes them is its driver's business.
        let vlan = tenant.beyond();
        let tagged = other.vf.is_none() && vlan.is_some();
        match joined {
            Some(true) if port.disabled => Expectation::Isolated(Barrier::LinkDisabled),
            Some(true) if tagged => Expectation::NotJudged,
            _ => expected(joined, vlan == port.vlan),
        }
    }

    /// Whether cables join two NICs; `None` when the model does not say, as of what a NIC does with its own PF's frames.
    fn cabled(&self, a: usize, b: usize) -> Option<bool> {
        self.joined.as_ref().filter(|_| a != b).map(|joined| joined[a] == joined[b])
    }
}

fn expected(joined: Option<bool>, same_vlan: bool) -> Expectation {
    match joined {
        None => Expectation::NotJudged,
        Some(false) => Expectation::Isolated(Barrier::NotCabled),
        Some(true) if same_vlan => Expectation::Arrives,
        Some(true) => Expectation::Isolated(Barrier::Vlan),
    }
}

fn vlan_of(settings: &VfSettings) -> Vlan {
    let id = settings.vlan.filter(|id| id.get() != 0)?;
    Some((settings.vlan_proto.unwrap_or_default(), id))
}

/// The ports of the NICs that VMs own.
fn tenants(model: &Model) -> BTreeMap<TenantFunctionName, TenantPort> {
    let mut ports = BTreeMap::new();
    let mut bridges: BTreeMap<&Uplink, usize> = BTreeMap::new();
    for (switch, (guest, name, nic)) in model.tenant_nics().enumerate() {
        let leads = match &nic.uplink {
            None => Leads::Nowhere,
            Some(Uplink::Function(function)) => {
                let vlan = nic.uplink_settings.as_ref().and_then(vlan_of);
                model.nics.get_index_of(&function.nic).map_or(Leads::Somewhere, |nic| Leads::To(nic, vlan))
            }
            Some(Uplink::Interface(_)) => Leads::Somewhere,
        };
        // NICs whose taps are in one bridge are at one switch, those whose switches have one there among them.
        let switch = match (nic.path, &nic.uplink) {
            (DataPath::Tap | DataPath::VirtioVdpa, Some(bridge)) => *bridges.entry(bridge).or_insert(switch),
            _ => switch,
        };
        for (vf, _, settings) in nic.functions() {
            let function = FunctionName { nic: name.clone(), vf };
            let name = TenantFunctionName { guest: guest.clone(), function };
            ports.insert(name, TenantPort { switch, vlan: vlan_of(&settings), leads });
        }
    }
    ports
}

/// For each NIC the smallest number among those that cables join it to, over other NICs too: a cable that forks is a hub.
fn joined(model: &Model) -> Vec<usize> {
    let mut least: Vec<usize> = (0..model.nics.len()).collect();
    let number = |nic: &NicName| model.nics.get_index_of(nic);
    let cables: Vec<(usize, usize)> =
        model.board.cables.iter().filter_map(|[a, b]| Some((number(a)?, number(b)?))).collect();
    // One pass settles one more cable of a chain at the least.
    for _ in 0..cables.len() {
        for &(a, b) in &cables {
            let both = least[a].min(least[b]);
            (least[a], least[b]) = (both, both);
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(model: &str, from: &str, to: &str) -> Expectation {
        let source = penstock_model::Source::new("m.yaml", model);
        let model = penstock_model::parse(&source).unwrap().model;
        Network::of(&model).expectation(&from.parse().unwrap(), &to.parse().unwrap())
    }

    #[test]
    fn taps_of_one_bridge_are_at_one_switch() {
        let text = "nics: {A: {vfs: 1}}\nguests:\n  g:\n    kind: vm\n    nics: {n: {vfs: 1, path: tap, uplink: br0}, \
                    o: {vfs: 1, path: tap, uplink: br1}}\n  h: {kind: vm, nics: {n: {vfs: 1, path: tap, uplink: br0}}}\n";
        let model = penstock_model::parse(&penstock_model::Source::new("m.yaml", text)).unwrap().model;
        let network = Network::of(&model);
        let between = |from: &str, to: &str| network.between(&from.parse().unwrap(), &to.parse().unwrap());
        for (to, expected) in [
            ("g/n", Expectation::Arrives),
            ("h/n", Expectation::Arrives),
            ("h/n#0", Expectation::Arrives),
            ("g/o#0", Expectation::NotJudged),
            ("A", Expectation::NotJudged),
        ] {
            assert_eq!(between("g/n#0", to), expected, "{to}");
            assert_eq!(between(to, "g/n#0"), expected, "{to}");
        }
    }

    #[test]
    fn switches_of_containers_in_one_bridge_keep_vlans_apart() {
        let text = "guests:\n  a: {nics: {n: {uplink: br0, vlan: 7}}}\n  b: {nics: {n: {uplink: br0, vlan: 7}, o: {uplink: br0}, \
                    p: {uplink: br1}}}\n  v: {kind: vm, nics: {n: {vfs: 1, path: tap, uplink: br0}}}\n";
        let model = penstock_model::parse(&penstock_model::Source::new("m.yaml", text)).unwrap().model;
        let network = Network::of(&model);
        let between = |from: &str, to: &str| network.between(&from.parse().unwrap(), &to.parse().unwrap());
        for (from, to, expected) in [
            ("a/n", "b/n", Expectation::Arrives),
            ("a/n", "b/o", Expectation::Isolated(Barrier::Vlan)),
            ("v/n#0", "b/o", Expectation::Arrives),
            ("v/n#0", "a/n", Expectation::Isolated(Barrier::Vlan)),
            ("a/n", "b/p", Expectation::NotJudged),
        ] {
            assert_eq!(between(from, to), expected, "{from} to {to}");
            assert_eq!(between(to, from), expected, "{to} to {from}");
        }
    }

    #[test]
    fn pairs_that_are_judged_are_counted_as_they_are_gone_through() {
        let guests = "guests:\n  g:\n    functions: [A#0, A#1, {vf: A#2, vlan: 7}, {vf: A#3, vlan: 7}, {vf: A#4, link_state: disable}, B#0, \
                      {vf: B#1, vlan: 7}, {vf: B#2, vlan: 9}, {vf: B#3, link_state: disable}, C#0]\n";
        for of_nics in ["", ", loopback: on", ", loopback: off"] {
            for cables in ["", "board: {cables: [[A, B]]}\n", "board: {cables: [[B, C]]}\n"] {
                let nics =
                    format!("nics: {{A: {{vfs: 6{of_nics}}}, B: {{vfs: 4}}, C: {{vfs: 1{of_nics}}}}}\n");
                let source = penstock_model::Source::new("m.yaml", format!("{nics}{guests}{cables}"));
                let model = penstock_model::parse(&source).unwrap().model;
                let network = Network::of(&model);
                // A#9 is none of the model's.
                let mut functions: Vec<FunctionName> = network.ports.keys().cloned().collect();
                functions.push("A#9".parse().unwrap());
                let pairs = functions.iter().flat_map(|from| functions.iter().map(move |to| (from, to)));
                let judged =
                    pairs.filter(|(from, to)| network.expectation(from, to) != Expectation::NotJudged);
                assert_eq!(network.judged(&functions), judged.count(), "{nics}{cables}");
            }
        }
    }

    #[test]
    fn the_table() {
        use Barrier::{LinkDisabled, LoopbackOff, NotCabled, Vlan};
        use Expectation::{Arrives, Isolated, NotJudged};
        let model = |loopback: &str, cables: &str| {
            format!(
                "nics:\n  A: {{vfs: 8{loopback}}}\n  B: {{vfs: 8{loopback}}}\n  C: {{vfs: 1{loopback}}}\n\
                 guests:\n  g:\n    functions:\n      - A#0\n      - A#1\n      - {{vf: A#2, vlan: 100}}\n      \
                 - {{vf: A#3, vlan: 100}}\n      - {{vf: A#4, vlan: 100, vlan_proto: 802.1ad}}\n      \
                 - {{vf: A#5, link_state: disable}}\n      - {{vf: A#6, vlan: 0}}\n      - B#0\n      \
                 - {{vf: B#2, vlan: 100}}\n      - {{vf: B#3, vlan: 200}}\n      - {{vf: B#5, link_state: disable}}\n\
                 {cables}"
            )
        };
        let on = model(", loopback: on", "board: {cables: [[A, B]]}\n");
        let off = model(", loopback: off", "board: {cables: [[A, B]]}\n");
        let silent = model("", "");
        for (from, to, with_on, with_off, with_silent) in [
            // Inside one NIC.
            ("A#0", "A#1", Arrives, Isolated(LoopbackOff), NotJudged),
            ("A", "A#0", Arrives, Isolated(LoopbackOff), NotJudged),
            ("A#0", "A", Arrives, Isolated(LoopbackOff), NotJudged),
            ("A#0", "A#6", Arrives, Isolated(LoopbackOff), NotJudged),
            ("A#0", "A#7", Arrives, Isolated(LoopbackOff), NotJudged),
            ("A#2", "A#3", Arrives, Isolated(LoopbackOff), NotJudged),
            ("A#0", "A#2", Isolated(Vlan), Isolated(Vlan), Isolated(Vlan)),
            ("A", "A#2", Isolated(Vlan), Isolated(Vlan), Isolated(Vlan)),
            ("A#2", "A#4", Isolated(Vlan), Isolated(Vlan), Isolated(Vlan)),
            ("A#0", "A#5", Isolated(LinkDisabled), Isolated(LinkDisabled), Isolated(LinkDisabled)),
            ("A#5", "A#0", Isolated(LinkDisabled), Isolated(LinkDisabled), Isolated(LinkDisabled)),
            // Over the cable: the embedded switch's loopback does not matter.
            ("A#0", "B#0", Arrives, Arrives, NotJudged),
            ("A", "B", Arrives, Arrives, NotJudged),
            ("A", "B#0", Arrives, Arrives, NotJudged),
            ("A#2", "B#2", Arrives, Arrives, NotJudged),
            ("A#2", "B#3", Isolated(Vlan), Isolated(Vlan), NotJudged),
            ("A#4", "B#2", Isolated(Vlan), Isolated(Vlan), NotJudged),
            ("A#0", "B#2", Isolated(Vlan), Isolated(Vlan), NotJudged),
            ("A#0", "B#5", Isolated(LinkDisabled), Isolated(LinkDisabled), NotJudged),
            // No cable.
            ("A#0", "C#0", Isolated(NotCabled), Isolated(NotCabled), NotJudged),
            ("A", "C", Isolated(NotCabled), Isolated(NotCabled), NotJudged),
            // Not a pair; not in the model.
            ("A#0", "A#0", NotJudged, NotJudged, NotJudged),
            ("A#0", "A#20", NotJudged, NotJudged, NotJudged),
        ] {
            assert_eq!(expected(&on, from, to), with_on, "{from} -> {to}, loopback on");
            assert_eq!(expected(&off, from, to), with_off, "{from} -> {to}, loopback off");
            assert_eq!(expected(&silent, from, to), with_silent, "{from} -> {to}, nothing said");
        }
    }

    #[test]
    fn what_is_expected_does_not_depend_on_the_direction() {
        let model = "nics: {A: {vfs: 3, loopback: on}, B: {vfs: 3}}\nguests:\n  g:\n    functions: \
                     [A#0, {vf: A#1, vlan: 5}, {vf: A#2, link_state: disable}, B#0, {vf: B#1, vlan: 5}]\n\
                     board: {cables: [[A, B]]}\n";
        let functions = ["A", "A#0", "A#1", "A#2", "B", "B#0", "B#1", "B#2"];
        for from in functions {
            for to in functions {
                assert_eq!(expected(model, from, to), expected(model, to, from), "{from} {to}");
            }
        }
    }

    #[test]
    fn nics_of_vms_are_joined_by_what_their_switches_lead_to() {
        use Barrier::{LinkDisabled, NotCabled, Vlan};
        use Expectation::{Arrives, Isolated, NotJudged};
        let model = "nics: {A: {vfs: 1}, B: {vfs: 3}, C: {vfs: 1}}\nguests:\n\
             \x20 v: {kind: vm, nics: {n: {vfs: 2, uplink: A, functions: {1: {vlan: 7}}}, alone: {vfs: 1}, br: {vfs: 1, uplink: br0}}}\n\
             \x20 w: {kind: vm, nics: {n: {vfs: 2, uplink: C, functions: {1: {vlan: 7}}}}}\n\
             \x20 x: {kind: vm, nics: {n: {vfs: 1, uplink: {vf: C#0, trust: on, spoofchk: off, vlan: 7}}}}\n\
             \x20 c: {functions: [B#0, {vf: B#1, vlan: 7}, {vf: B#2, link_state: disable}]}\n";
        let source = |cables: &str| penstock_model::Source::new("m.yaml", format!("{model}{cables}"));
        let network = |cables: &str| Network::of(&penstock_model::parse(&source(cables)).unwrap().model);
        let cabled = network("board: {cables: [[A, C]]}\n");
        let far = network("board: {cables: [[A, B]]}\n");
        let silent = network("");
        for (from, to, when_cabled, when_far, when_silent) in [
            // At one switch.
            ("v/n", "v/n#0", Arrives, Arrives, Arrives),
            ("v/n#0", "v/n#1", Isolated(Vlan), Isolated(Vlan), Isolated(Vlan)),
            ("v/alone", "v/alone#0", Arrives, Arrives, Arrives),
            // Over both uplinks and the cables.
            ("v/n", "w/n", Arrives, Isolated(NotCabled), NotJudged),
            ("v/n#1", "w/n#1", Arrives, Isolated(NotCabled), NotJudged),
            ("v/n#0", "w/n#1", Isolated(Vlan), Isolated(NotCabled), NotJudged),
            // To functions of the host and its guests.
            ("v/n", "B", Isolated(NotCabled), Arrives, NotJudged),
            ("v/n#0", "B#0", Isolated(NotCabled), Arrives, NotJudged),
            ("v/n#1", "B#1", Isolated(NotCabled), Arrives, NotJudged),
            ("v/n#1", "B#0", Isolated(NotCabled), Isolated(Vlan), NotJudged),
            ("v/n#1", "B", Isolated(NotCabled), NotJudged, NotJudged),
            ("v/n#0", "B#2", Isolated(NotCabled), Isolated(LinkDisabled), NotJudged),
            ("v/n", "C", Arrives, Isolated(NotCabled), NotJudged),
            ("v/n#1", "C", NotJudged, Isolated(NotCabled), NotJudged),
            // All frames leave in the VLAN of the VF that is the uplink, and are in none before it.
            ("x/n", "x/n#0", Arrives, Arrives, Arrives),
            ("x/n", "v/n#1", Arrives, Isolated(NotCabled), NotJudged),
            ("x/n#0", "v/n#0", Isolated(Vlan), Isolated(NotCabled), NotJudged),
            ("x/n", "A", NotJudged, Isolated(NotCabled), NotJudged),
            ("x/n", "A#0", Isolated(Vlan), Isolated(NotCabled), NotJudged),
            ("x/n", "w/n", NotJudged, NotJudged, NotJudged),
            // What a NIC does with its own PF's frames is not said; nor what is behind an interface.
            ("v/n", "A", NotJudged, NotJudged, NotJudged),
            ("v/br", "v/n", NotJudged, NotJudged, NotJudged),
            ("v/br", "B", NotJudged, NotJudged, NotJudged),
            // A switch without an uplink.
            ("v/alone", "v/n", Isolated(NotCabled), Isolated(NotCabled), Isolated(NotCabled)),
            ("v/alone", "B#0", Isolated(NotCabled), Isolated(NotCabled), Isolated(NotCabled)),
            ("v/alone", "v/br", Isolated(NotCabled), Isolated(NotCabled), Isolated(NotCabled)),
            // Not a pair; not in the model.
            ("v/n", "v/n", NotJudged, NotJudged, NotJudged),
            ("v/n#5", "v/n", NotJudged, NotJudged, NotJudged),
        ] {
            let (from, to): (EndpointName, EndpointName) = (from.parse().unwrap(), to.parse().unwrap());
            for (network, wanted) in [(&cabled, when_cabled), (&far, when_far), (&silent, when_silent)] {
                assert_eq!(network.between(&from, &to), wanted, "{from} -> {to}");
                assert_eq!(network.between(&to, &from), wanted, "{to} -> {from}");
            }
        }
    }
}
