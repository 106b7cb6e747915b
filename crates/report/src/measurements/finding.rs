//! The main finding, in a sentence or two.

use penstock_model::{
    EndpointName,
    measurement::{Comparison, Metric, PathKind},
};

use super::{
    Source,
    family::{Kind, Line, capital, kind, line},
    shown::{self, bytes},
};

/// What a path does, as the subject of a sentence.
pub(crate) fn path_words(line: Line<'_>) -> String {
    match line {
        Line::Network { path, client, .. } => {
            match (path, client.function.as_ref().and_then(EndpointName::of_model)) {
                (PathKind::PfPf, _) => "PF to PF over the cable".to_owned(),
                (PathKind::VfVfAcross, _) => "VF to VF over the cable".to_owned(),
                (PathKind::VfVfInside, Some(function)) => format!("VF to VF inside {}", function.nic),
                (PathKind::VfVfInside, None) => "VF to VF inside one NIC".to_owned(),
                (PathKind::GuestHost, _) => "guest to host".to_owned(),
                (PathKind::Bridge, _) => "the bridge".to_owned(),
                (PathKind::BridgeAcross, _) => "the bridge over the cable".to_owned(),
                (PathKind::VmVf, _) => "a VF of the VM's own NIC".to_owned(),
                (PathKind::VmBridge, _) => "veth and a bridge in the VM".to_owned(),
                (PathKind::VmBridgeNat, _) => "veth, a bridge and NAT in the VM".to_owned(),
                (PathKind::VmOvs, _) => "veth and Open vSwitch in the VM".to_owned(),
                (PathKind::VmMacvlan, _) => "macvlan in the VM".to_owned(),
                (PathKind::VmIpvlan, _) => "ipvlan in the VM".to_owned(),
                (PathKind::VmPf, _) => "the PF of the VM's own NIC".to_owned(),
                (PathKind::PortPort, _) => "ports of embedded switches, container to container".to_owned(),
                (PathKind::PortHost, _) => "a port of an embedded switch, container to host".to_owned(),
                (PathKind::VethVeth, _) => "veth in a bridge".to_owned(),
                (PathKind::VethHost, _) => "veth in the host's bridge".to_owned(),
            }
        }
        Line::Storage { place, .. } => super::family::place_word(place),
    }
}

/// A comparison that could be a finding.
struct Candidate<'a> {
    comparison: &'a Comparison,
    base: Line<'a>,
    other: Line<'a>,
    kind: Kind<'a>,
    size: u32,
}

/// The sentences: VF against what it replaces, or the nearest to that which there is.
pub(crate) fn findings(source: &Source<'_>) -> Vec<String> {
    let candidates: Vec<Candidate<'_>> = source
        .measurements
        .comparisons
        .iter()
        .filter(|comparison| comparison.ratio.is_some())
        .filter_map(|comparison| {
            let (base, other) = (source.named(&comparison.base)?, source.named(&comparison.other)?);
            Some(Candidate {
                comparison,
                base: line(&base.measurement),
                other: line(&other.measurement),
                kind: kind(&other.measurement),
                size: other.measurement.size(),
            })
        })
        .collect();
    let path = |line: Line<'_>| match line {
        Line::Network { path, .. } => Some(path),
        Line::Storage { .. } => None,
    };
    // How near a comparison is to the question that SR-IOV answers: is a VF better than the bridge that it replaces?
    let rank = |candidate: &Candidate<'_>| match (path(candidate.base), path(candidate.other)) {
        (Some(PathKind::Bridge), Some(PathKind::VfVfInside)) => 0,
        (Some(PathKind::BridgeAcross), Some(PathKind::VfVfAcross)) => 1,
        (Some(PathKind::VmBridgeNat), Some(PathKind::VmVf)) => 1,
        (Some(PathKind::VethVeth), Some(PathKind::PortPort)) => 1,
        (Some(PathKind::Bridge), _) => 2,
        (Some(PathKind::PfPf), Some(PathKind::VfVfInside)) => 3,
        (Some(PathKind::PfPf), Some(PathKind::VfVfAcross)) => 4,
        (Some(_), _) => 5,
        (None, _) => 6,
    };
    let mut found = Vec::new();
    for metrics in [&[Metric::Throughput, Metric::Bandwidth, Metric::Iops][..], &[Metric::P50]] {
        let of_metric = || candidates.iter().filter(|c| metrics.contains(&c.comparison.metric));
        let Some(best) = of_metric().map(rank).min() else { continue };
        let mut alike: Vec<&Candidate<'_>> = of_metric().filter(|c| rank(c) == best).collect();
        // TCP, the greatest size, the usual way of measuring first.
        alike.sort_by_key(|c| {
            let udp = matches!(c.kind, Kind::Network(protocol) if protocol.is_udp());
            (udp, std::cmp::Reverse(c.size), c.other, c.base)
        });
        let Some(main) = alike.first() else { continue };
        found.extend(sentence(main));
        if let Some(range) = range(&alike) {
            found.push(range);
        }
    }
    found
}

fn sentence(candidate: &Candidate<'_>) -> Option<String> {
    let ratio = candidate.comparison.ratio.as_ref()?;
    let (base, other) = (path_words(candidate.base), path_words(candidate.other));
    let times = shown::ratio(ratio);
    let what = match candidate.kind {
        Kind::Network(_) if candidate.comparison.metric == Metric::P50 => "median round trip, ".to_owned(),
        _ => String::new(),
    };
    let how = format!("{what}{}, {}", candidate.kind.title(), bytes(candidate.size));
    let ends = Some(candidate.other.ends()).filter(|ends| !ends.is_empty());
    let ends = ends.map(|ends| format!("; {ends}")).unwrap_or_default();
    let doubt = match candidate.comparison.null_holds() {
        Some(false) => {
            " But the same measured twice in this run differs from itself (the A/A interval does not hold 1), so do not trust it."
        }
        _ => "",
    };
    let claim = if ratio.spans(1.0) {
        format!("Between {other} and {base} no difference can be told: {times} times")
    } else {
        match candidate.comparison.metric {
            Metric::Throughput => format!("{} carries {times} times what {base} carries", capital(&other)),
            Metric::P50 => format!("A message through {other} takes {times} times as long as through {base}"),
            _ => format!("{} does {times} times what {base} does", capital(&other)),
        }
    };
    Some(format!("{claim} ({how}{ends}).{doubt}"))
}

/// Between what the ratio lies over all comparisons of the same kind.
fn range(alike: &[&Candidate<'_>]) -> Option<String> {
    if alike.len() < 2 {
        return None;
    }
    let values = || alike.iter().filter_map(|c| c.comparison.ratio.as_ref()).map(|ratio| ratio.value());
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    Some(format!(
        "Over all {} such comparisons of this run the ratio is between {} and {}.",
        alike.len(),
        shown::number(least),
        shown::number(most)
    ))
}
