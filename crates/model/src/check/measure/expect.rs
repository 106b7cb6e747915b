//! `expect:` lines: read, and held against what this model can have.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

use super::{
    super::{Subject, full},
    latency,
};
use crate::{
    DataPath, Diagnostic, GuestKind, GuestName, Inside, Model, NicName, Path, TenantNic, Uplink,
    document::{ExpectLine, OneOrMany},
    measurement::{
        Bound, Expectation, ParseExpectationError, PathKind, Selector, latency::LatencyExpectation,
    },
    tree::shown,
};

/// A line with its place in the file.
pub(in crate::check) struct PlacedLine {
    line: Line,
    path: Path,
}

/// A line about what [`crate::measurement::Measurements`] or what [`crate::measurement::latency::Latency`] has.
enum Line {
    Measured(Expectation),
    Latency(LatencyExpectation),
}

/// Reads a line as what its first word says that it is.
fn read(text: &str) -> Result<Line, ParseExpectationError> {
    if LatencyExpectation::is_meant(text) {
        text.parse().map(Line::Latency)
    } else {
        text.parse().map(Line::Measured)
    }
}

/// The lines that can be read; what is wrong with the others is told, at the wrong word.
pub(in crate::check) fn build(
    lines: Option<OneOrMany<ExpectLine>>,
    messages: &mut Vec<Diagnostic>,
) -> Vec<PlacedLine> {
    let mut placed = Vec::new();
    let Some(lines) = lines else { return placed };
    for (position, text) in lines.values.iter().enumerate() {
        let ExpectLine(Some(text)) = text else { continue };
        if full(messages) {
            break;
        }
        let path = Path::of(["expect"]);
        let path = if lines.list { path.join(position) } else { path };
        match read(text) {
            Ok(line) => placed.push(PlacedLine { line, path }),
            Err(error) => {
                let message = Diagnostic::error(path, error.why()).with_hint(error.hint());
                messages.push(match error.at() {
                    at if at.is_empty() => message,
                    at => message.at_part(at),
                });
            }
        }
    }
    placed
}

/// The lines about measurements, without their places.
pub(in crate::check) fn lines(placed: &[PlacedLine]) -> Vec<Expectation> {
    let measured = placed.iter().filter_map(|placed| match &placed.line {
        Line::Measured(line) => Some(line.clone()),
        Line::Latency(_) => None,
    });
    measured.collect()
}

/// The lines about latencies, without their places.
pub(in crate::check) fn claims(placed: &[PlacedLine]) -> Vec<LatencyExpectation> {
    let latency = placed.iter().filter_map(|placed| match &placed.line {
        Line::Latency(claim) => Some(claim.clone()),
        Line::Measured(_) => None,
    });
    latency.collect()
}

/// The lines against what the model has.
pub(in crate::check) fn check(placed: &[PlacedLine], subject: &mut Subject<'_>) {
    let reach = Reach::of(subject.model);
    for PlacedLine { line, path } in placed {
        if full(subject.messages) {
            return;
        }
        let line = match line {
            Line::Measured(line) => line,
            Line::Latency(claim) => {
                latency::check(claim, path, subject);
                continue;
            }
        };
        let text = line.to_string();
        let sides = sides(line);
        for guest in names(&sides, |side| side.guest.clone()) {
            let at = |message: Diagnostic| match word_after(&text, "in", guest.as_str()) {
                Some(at) => message.at_part(at),
                None => message,
            };
            match subject.model.guests.get(&guest) {
                None => {
                    let unknown = super::unknown_guest(subject.model, &guest, path.clone());
                    subject.messages.push(at(unknown));
                }
                Some(found) if found.kind == GuestKind::Vm && found.vm.inside != Inside::Agent => {
                    let why = format!("nothing can be run in {guest}, so that this cannot be measured");
                    let hint = "that takes `inside: agent`";
                    subject.messages.push(at(Diagnostic::warning(path.clone(), why).with_hint(hint)));
                }
                Some(_) => {}
            }
        }
        for kind in names(&sides, |side| side.path) {
            let Some(why) = reach.missing(kind) else { continue };
            let message = Diagnostic::warning(path.clone(), format!("this model has no path {kind}: {why}"))
                .with_hint("the line will come out as `cannot be told`, and does not hold then");
            let at = text.find(&kind.to_string()).map(|at| at..at + kind.to_string().len());
            subject.messages.push(match at {
                Some(at) => message.at_part(at),
                None => message,
            });
        }
        if sides.iter().any(|side| side.says_storage()) && subject.model.measure.storage.is_empty() {
            let why = format!("{} speaks of storage, and no storage is measured", shown(&text));
            let hint = "say what: measure: {storage: [{guest: NAME, path: /var/tmp}]}";
            subject.messages.push(Diagnostic::warning(path.clone(), why).with_hint(hint));
        }
    }
}

/// The selectors of a line, left first.
fn sides(line: &Expectation) -> Vec<&Selector> {
    match line.bound() {
        Bound::Times { of, .. } => vec![line.left(), of],
        Bound::Value(_) => vec![line.left()],
    }
}

/// What the sides name, each once: the right side inherits what it leaves out.
fn names<T: PartialEq>(sides: &[&Selector], name: impl Fn(&Selector) -> Option<T>) -> Vec<T> {
    let mut names: Vec<T> = Vec::new();
    for name in sides.iter().filter_map(|side| name(side)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Where the word `wanted` stands that follows the word `before`.
fn word_after(text: &str, before: &str, wanted: &str) -> Option<Range<usize>> {
    let mut last = "";
    let mut from = 0;
    for word in text.split_whitespace() {
        let at = from + text[from..].find(word)?;
        from = at + word.len();
        if last == before && word == wanted {
            return Some(at..from);
        }
        last = word;
    }
    None
}

/// Where commands can be run, and which functions are there.
struct Reach<'a> {
    model: &'a Model,
    /// PFs that guests own.
    pfs: HashMap<&'a NicName, &'a GuestName>,
    /// The guests that own VFs, by NIC.
    guests: HashMap<&'a NicName, BTreeSet<&'a GuestName>>,
    /// The containers among them.
    containers: HashMap<&'a NicName, BTreeSet<&'a GuestName>>,
}

impl<'a> Reach<'a> {
    fn of(model: &'a Model) -> Reach<'a> {
        let mut reach =
            Reach { model, pfs: HashMap::new(), guests: HashMap::new(), containers: HashMap::new() };
        for (name, guest) in &model.guests {
            for function in &guest.functions {
                let nic = &function.name.nic;
                if function.name.vf.is_none() {
                    reach.pfs.insert(nic, name);
                } else if reach.open(name) {
                    reach.guests.entry(nic).or_default().insert(name);
                    if guest.kind == GuestKind::Container {
                        reach.containers.entry(nic).or_default().insert(name);
                    }
                }
            }
        }
        reach
    }

    fn open(&self, name: &GuestName) -> bool {
        let guest = &self.model.guests[name];
        guest.kind == GuestKind::Container || guest.vm.inside == Inside::Agent
    }

    /// Why there is no such path; `None` where there may be one.
    fn missing(&self, kind: PathKind) -> Option<&'static str> {
        let nics = &self.model.nics;
        let (found, why) = match kind {
            PathKind::PfPf | PathKind::VfVfAcross if nics.len() < 2 => (false, "it takes a second NIC"),
            PathKind::PfPf => (
                self.pfs_apart(),
                "it takes PFs of two joined NICs in different places that commands can be run in, for one kernel with both \
                 would hand the bytes over itself",
            ),
            PathKind::VfVfAcross => (
                self.across(&self.guests),
                "it takes VFs of two joined NICs in different guests that commands can be run in",
            ),
            PathKind::VfVfInside if !nics.keys().any(|nic| self.switches(nic)) => {
                (false, "no NIC switches between its own functions (`loopback: off`)")
            }
            PathKind::VfVfInside => (
                self.inside(&self.guests),
                "it takes two VFs of one NIC in different guests that commands can be run in",
            ),
            PathKind::GuestHost => (
                self.guests.keys().any(|nic| !self.pfs.contains_key(nic)),
                "it takes a PF of the host with a VF in a guest that commands can be run in",
            ),
            PathKind::Bridge => (
                self.inside(&self.containers) || self.across(&self.containers),
                "it takes two containers that a path between VFs joins as well",
            ),
            PathKind::BridgeAcross => (
                self.bridged_across(),
                "it takes a container with a VF of a NIC whose PF is the host's, and a VF of a joined NIC in another guest",
            ),
            PathKind::VmVf
            | PathKind::VmBridge
            | PathKind::VmBridgeNat
            | PathKind::VmOvs
            | PathKind::VmMacvlan
            | PathKind::VmIpvlan
            | PathKind::VmPf => (
                self.of_vm_nics(),
                "it takes a VM with a NIC of its own (`nics`), that commands can be run in and whose `uplink` is a PF that a \
                 cable joins with another NIC, or that is at taps of a bridge (`path: tap`)",
            ),
            PathKind::PortPort | PathKind::VethVeth => (
                self.ports_joined(),
                "it takes NICs (`nics`) of two containers at one bridge, in one VLAN or both in none",
            ),
            PathKind::PortHost | PathKind::VethHost => (
                self.model.bridge_ports().any(|port| port.reaches_host()),
                "it takes a container with a NIC of its own (`nics`) that is in no VLAN: the host's end of the bridge is in none",
            ),
        };
        (!found).then_some(why)
    }

    fn switches(&self, nic: &NicName) -> bool {
        self.model.nics.get(nic).is_some_and(|nic| nic.loopback != Some(false))
    }

    fn inside(&self, guests: &HashMap<&NicName, BTreeSet<&GuestName>>) -> bool {
        guests.iter().any(|(nic, guests)| guests.len() > 1 && self.switches(nic))
    }

    /// Whether a container's VF, with its PF on the host, is joined to another guest's.
    fn bridged_across(&self) -> bool {
        let uplinks = self.containers.iter().filter(|(nic, _)| !self.pfs.contains_key(*nic));
        uplinks.into_iter().any(|(uplink, containers)| {
            let others = self.guests.iter().filter(|(nic, _)| self.joined(uplink, nic));
            others.into_iter().any(|(_, guests)| containers.union(guests).count() > 1)
        })
    }

    /// Whether the uplink of a VM's NIC is joined to another NIC.
    fn of_vm_nics(&self) -> bool {
        let joined = |nic: &TenantNic| match &nic.uplink {
            None => false,
            Some(Uplink::Interface(_)) => nic.path == DataPath::Tap,
            Some(Uplink::Function(pf)) => self.model.nics.keys().any(|other| self.joined(&pf.nic, other)),
        };
        let mut nics = self.model.tenant_nics().filter(|(guest, ..)| self.open(guest));
        nics.any(|(.., nic)| joined(nic))
    }

    /// Whether two containers have NICs that reach each other.
    fn ports_joined(&self) -> bool {
        self.model.bridge_ports().any(|one| self.model.bridge_ports().any(|other| one.reaches(&other)))
    }

    /// Whether a cable joins two NICs; where the model names none, all hang on one network.
    fn joined(&self, a: &NicName, b: &NicName) -> bool {
        let cables = &self.model.board.cables;
        a != b && (cables.is_empty() || cables.iter().any(|[x, y]| (x, y) == (a, b) || (y, x) == (a, b)))
    }

    /// Whether two NICs that a cable may join have VFs in two different guests.
    fn across(&self, guests: &HashMap<&NicName, BTreeSet<&GuestName>>) -> bool {
        let cables = &self.model.board.cables;
        if cables.is_empty() {
            // All hang on one network; two NICs and two guests between them always leave such a pair.
            return guests.len() > 1 && guests.values().flatten().collect::<BTreeSet<_>>().len() > 1;
        }
        cables.iter().filter(|[a, b]| a != b).any(|[a, b]| match (guests.get(a), guests.get(b)) {
            (Some(a), Some(b)) => a.union(b).count() > 1,
            _ => false,
        })
    }

    fn pfs_apart(&self) -> bool {
        // `Some(None)` is the host.
        let place = |nic: &NicName| match self.pfs.get(nic) {
            None => Some(None),
            Some(guest) => self.open(guest).then_some(Some(*guest)),
        };
        let cables = &self.model.board.cables;
        if cables.is_empty() {
            return self.model.nics.keys().filter_map(place).collect::<BTreeSet<_>>().len() > 1;
        }
        cables.iter().any(|[a, b]| match (place(a), place(b)) {
            (Some(a), Some(b)) => a != b,
            _ => false,
        })
    }
}
