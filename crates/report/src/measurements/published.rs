//! Ratios that others published, beside this run's: a container in a VM, by a VF of the VM's own NIC, against a bridge in the VM.

use penstock_model::measurement::{Comparison, Direction, Load, Metric, Network, PathKind, Protocol, Tool};
use serde::Serialize;

use super::{
    Source,
    shown::{self, bytes},
};

/// Whose ratios they are.
pub(super) const WHO: &str = "Odaki and Washizu, \"Unleashing SR-IOV on Virtual Machines\", KVM Forum 2024";

/// How they were measured.
pub(super) const HOW: &str = "netperf from a container in a VM to another machine, VFs of a ConnectX-6 Dx by vDPA against Calico with firewall \
     and NAT; neither sizes of messages nor a spread are published";

/// What the table says, above it.
pub(super) const ABOUT: &str =
    "A container in a VM that has a VF of the VM's own NIC, divided by one behind a bridge in the VM.";

/// What is added on an emulated machine.
pub(super) const EMULATED: &str = "This machine is emulated: of ours the direction counts, and no number.";

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 3] = ["theirs", "here, bridge with NAT", "here, bridge alone"];

/// The payload of a UDP datagram that fills a frame of Ethernet, in bytes.
const ONE_FRAME: u32 = 1472;

/// A ratio that was published.
struct Published {
    what: &'static str,
    ratio: &'static str,
    protocol: Protocol,
    direction: Direction,
    metric: Metric,
}

/// In the order of the talk.
const PUBLISHED: [Published; 3] = [
    Published {
        what: "UDP that the VM sends, throughput",
        ratio: "1.740",
        protocol: Protocol::UdpStream,
        direction: Direction::Forward,
        metric: Metric::Throughput,
    },
    Published {
        what: "UDP that the VM receives, throughput",
        ratio: "1.800",
        protocol: Protocol::UdpStream,
        direction: Direction::Reverse,
        metric: Metric::Throughput,
    },
    Published {
        what: "UDP round trip, p99 (less is better)",
        ratio: "0.722",
        protocol: Protocol::UdpRr,
        direction: Direction::Forward,
        metric: Metric::P99,
    },
];

/// Published ratios beside this run's.
#[derive(Serialize)]
pub(crate) struct PublishedView {
    who: &'static str,
    how: &'static str,
    about: &'static str,
    /// Empty where the machine is none that is emulated.
    emulated: &'static str,
    columns: [&'static str; 3],
    pub(super) rows: Vec<PublishedRow>,
}

/// One published ratio and what this run found, as text.
#[derive(Serialize)]
pub(crate) struct PublishedRow {
    pub(super) what: &'static str,
    pub(super) theirs: String,
    /// Against a bridge with NAT, as theirs.
    pub(super) with_nat: String,
    /// Against a bridge alone.
    pub(super) bridge: String,
}

/// `None` where the run compared nothing of the kind.
pub(crate) fn view(source: &Source<'_>) -> Option<PublishedView> {
    let row = |published: &Published| PublishedRow {
        what: published.what,
        theirs: format!("×{}", published.ratio),
        with_nat: ours(source, published, PathKind::VmBridgeNat),
        bridge: ours(source, published, PathKind::VmBridge),
    };
    let of_bridge = |comparison: &Comparison| {
        comparison.ratio.is_some()
            && network(source, &comparison.base)
                .is_some_and(|base| matches!(base.path, PathKind::VmBridge | PathKind::VmBridgeNat))
    };
    source.measurements.comparisons.iter().any(of_bridge).then(|| PublishedView {
        who: WHO,
        how: HOW,
        about: ABOUT,
        emulated: if source.measurements.emulated { EMULATED } else { "" },
        columns: COLUMNS,
        rows: PUBLISHED.iter().map(row).collect(),
    })
}

fn network<'a>(source: &Source<'a>, id: &str) -> Option<&'a Network> {
    source.named(id)?.measurement.network()
}

/// The ratio of a VF to this bridge that is nearest to what was published: of streams by the tool that measures both directions, and
/// datagrams that fill a frame; of round trips by netperf, the shortest messages.
fn ours(source: &Source<'_>, published: &Published, bridge: PathKind) -> String {
    let stream = published.protocol.is_stream();
    let tool = if stream { Tool::Iperf3 } else { Tool::Netperf };
    let candidates = source.measurements.comparisons.iter().filter_map(|comparison| {
        let (base, other) = (network(source, &comparison.base)?, network(source, &comparison.other)?);
        let same = (other.path, other.protocol, other.direction, other.load, comparison.metric)
            == (PathKind::VmVf, published.protocol, published.direction, Load::Closed, published.metric);
        let used = source.named(&comparison.base)?.measurement.tool;
        let ratio = comparison.ratio.filter(|_| same && base.path == bridge)?;
        let far = if stream { (base.size > ONE_FRAME, u32::MAX - base.size) } else { (false, base.size) };
        Some(((used != tool, far), comparison, ratio, used, base.size))
    });
    let Some((_, comparison, ratio, used, size)) = candidates.min_by_key(|(rank, ..)| *rank) else {
        return "not measured".to_owned();
    };
    let value = match source.measurements.emulated {
        _ if ratio.spans(1.0) => "no difference can be told".to_owned(),
        true if ratio.value() > 1.0 => "more than 1".to_owned(),
        true => "less than 1".to_owned(),
        false => format!("×{}", shown::ratio(&ratio)),
    };
    let doubt = if comparison.null_holds() == Some(false) { "; A/A differs, do not trust it" } else { "" };
    format!("{value} ({used}, {}{doubt})", bytes(size))
}
