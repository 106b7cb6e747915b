//! Which frames a model wants to arrive, and which not. Pure.

use std::collections::BTreeMap;

use penstock_model::{FunctionName, LinkState, Model, NicName, VlanId, VlanProtocol};

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

struct Port {
    nic: usize,
    vlan: Vlan,
    disabled: bool,
}

/// The network that a model describes, made once and asked for many pairs.
pub struct Network {
    ports: BTreeMap<FunctionName, Port>,
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
                let vlan = settings
                    .vlan
                    .filter(|id| id.get() != 0)
                    .map(|id| (settings.vlan_proto.unwrap_or_default(), id));
                let vf = FunctionName { nic: nic.clone(), vf: Some(index) };
                ports.insert(vf, port(vlan, settings.link_state == Some(LinkState::Disable)));
            }
        }
        Network {
            ports,
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
        if from == to {
            return Expectation::NotJudged;
        }
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
}
