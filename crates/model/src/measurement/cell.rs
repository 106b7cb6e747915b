//! One thing that is measured over and over, and what its samples told.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{CutShort, Estimate, Histogram, Metric, StopReason};
use crate::{EndpointName, GuestKind, GuestName, verdict::Vantage};

/// One thing that is measured over and over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cell {
    /// Its name, unique in a run and the same in the next run of the same model: what two runs are compared by.
    pub id: String,
    /// What is measured.
    pub measurement: Measurement,
    /// Whether it is the second arm of an A/A comparison: the same as another cell, and of interest only for that.
    #[serde(default)]
    pub null: bool,
    /// How it came out.
    pub status: Status,
}

impl Cell {
    /// What was measured, if it was.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.status {
            Status::Measured(measured) => Some(measured),
            Status::Missing { .. } => None,
        }
    }

    /// The summary of one metric.
    pub fn summary(&self, metric: Metric) -> Option<&Summary> {
        self.measured()?.summaries.iter().find(|summary| summary.metric == metric)
    }
}

/// How a cell came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was measured.
    Measured(Box<Measured>),
    /// It was not.
    Missing {
        /// Why it was not measured, in words.
        why: String,
        /// Whether it is so because the run was over: no fault of the machine. `None`: for any other reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_short: Option<CutShort>,
    },
}

impl Status {
    /// Missing because of something that is wrong.
    pub fn missing(why: impl Into<String>) -> Status {
        Status::Missing { why: why.into(), cut_short: None }
    }
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measurement {
    /// The tool that measures it.
    pub tool: Tool,
    /// What is measured: traffic or storage.
    #[serde(flatten)]
    pub subject: Subject,
}

impl Measurement {
    /// What decides when there are samples enough, and what is shown first: throughput of a stream, the median of round
    /// trips, bandwidth of sequential and operations of random I/O.
    pub fn main_metric(&self) -> Metric {
        match &self.subject {
            Subject::Network(network) if network.protocol.is_stream() => Metric::Throughput,
            Subject::Network(_) => Metric::P50,
            Subject::Storage(storage) => match storage.pattern {
                Pattern::Sequential => Metric::Bandwidth,
                Pattern::Random => Metric::Iops,
            },
        }
    }

    /// The size of a message or a block, in bytes.
    pub fn size(&self) -> u32 {
        match &self.subject {
            Subject::Network(network) => network.size,
            Subject::Storage(storage) => storage.block,
        }
    }

    /// What is measured of the network; `None` where storage is measured.
    pub fn network(&self) -> Option<&Network> {
        match &self.subject {
            Subject::Network(network) => Some(network),
            Subject::Storage(_) => None,
        }
    }
}

/// A measuring program.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// netperf, with netserver at the other end.
    Netperf,
    /// iperf3.
    Iperf3,
    /// fio.
    Fio,
    /// Penstock's own sender of requests at fixed times, which no slow answer delays (open loop).
    Probe,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tool::Netperf => "netperf",
            Tool::Iperf3 => "iperf3",
            Tool::Fio => "fio",
            Tool::Probe => "probe",
        })
    }
}

/// Network or storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Between two ends.
    Network(Network),
    /// Of one device or file.
    Storage(Storage),
}

/// A measurement between two ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Network {
    /// What is sent.
    pub protocol: Protocol,
    /// What the traffic crosses.
    pub path: PathKind,
    /// The end where the client runs.
    pub client: End,
    /// The end where the server runs.
    pub server: End,
    /// Message size in bytes: of each write, datagram or request and response.
    pub size: u32,
    /// Which end sends the bulk of it.
    pub direction: Direction,
    /// What decides when the next message is sent.
    pub load: Load,
}

/// What is sent.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// UDP datagrams one way.
    UdpStream,
    /// A TCP connection one way.
    TcpStream,
    /// UDP request and response.
    UdpRr,
    /// TCP request and response over one connection.
    TcpRr,
}

impl Protocol {
    /// All, in the order of the charts.
    pub const ALL: [Protocol; 4] =
        [Protocol::UdpStream, Protocol::TcpStream, Protocol::UdpRr, Protocol::TcpRr];

    /// Whether bytes flow one way as fast as they can.
    pub const fn is_stream(self) -> bool {
        matches!(self, Protocol::UdpStream | Protocol::TcpStream)
    }

    /// Whether it is UDP.
    pub const fn is_udp(self) -> bool {
        matches!(self, Protocol::UdpStream | Protocol::UdpRr)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Protocol::UdpStream => "udp stream",
            Protocol::TcpStream => "tcp stream",
            Protocol::UdpRr => "udp rr",
            Protocol::TcpRr => "tcp rr",
        })
    }
}

/// What the traffic between two ends crosses.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PathKind {
    /// From one NIC's PF over the cable to another NIC's PF.
    PfPf,
    /// From a VF of one NIC over the cable to a VF of another NIC.
    VfVfAcross,
    /// From one VF to another VF of the same NIC, through its embedded switch.
    VfVfInside,
    /// From a guest's VF to the host's PF of the same NIC.
    GuestHost,
    /// veth and a bridge between the same two guests: what SR-IOV replaces.
    Bridge,
    /// veth and a bridge with the host's PF as uplink, over the cable to a VF of another NIC: what SR-IOV replaces where a
    /// guest talks to another machine.
    BridgeAcross,
    /// From a container in a VM, with a VF that the VM has made of a NIC of its own, to something outside that VM.
    VmVf,
    /// The same with veth and a Linux bridge in the VM over the NIC's PF: what such a VF replaces.
    VmBridge,
    /// The same with veth and a bridge that the VM routes, with NAT and connection tracking, over the PF: what container networks do.
    VmBridgeNat,
    /// The same with veth and a bridge of Open vSwitch in the VM over the PF.
    VmOvs,
    /// The same with macvlan over the PF.
    VmMacvlan,
    /// The same with ipvlan over the PF.
    VmIpvlan,
    /// From the VM itself by the NIC's PF, to the same: the control.
    VmPf,
    /// Between the NICs of two containers on one host, each the port of an embedded switch that leads to the same Linux bridge.
    PortPort,
    /// From such a port to the host, by the bridge's own interface.
    PortHost,
    /// veth in a bridge of the run's own between the same two containers: what such ports replace.
    VethVeth,
    /// veth in the host's bridge, from the same container to the host: what such a port replaces.
    VethHost,
}

impl PathKind {
    /// All, in the order of the report.
    pub const ALL: [PathKind; 17] = [
        PathKind::PfPf,
        PathKind::VfVfAcross,
        PathKind::VfVfInside,
        PathKind::GuestHost,
        PathKind::Bridge,
        PathKind::BridgeAcross,
        PathKind::VmVf,
        PathKind::VmBridge,
        PathKind::VmBridgeNat,
        PathKind::VmOvs,
        PathKind::VmMacvlan,
        PathKind::VmIpvlan,
        PathKind::VmPf,
        PathKind::PortPort,
        PathKind::PortHost,
        PathKind::VethVeth,
        PathKind::VethHost,
    ];

    /// Whether it leaves the machine's NICs, so that the link's speed is a limit.
    pub const fn has_wire(self) -> bool {
        matches!(self, PathKind::PfPf | PathKind::VfVfAcross | PathKind::BridgeAcross) || self.is_of_vm_nic()
    }

    /// Whether its client is inside a VM that owns an SR-IOV NIC, and uses that.
    pub const fn is_of_vm_nic(self) -> bool {
        self.is_from_container_in_vm() || matches!(self, PathKind::VmPf)
    }

    /// Whether it is between ports of embedded switches that containers own, or what replaces these.
    pub const fn is_of_ports(self) -> bool {
        matches!(self, PathKind::PortPort | PathKind::PortHost) || self.is_of_veths()
    }

    /// Whether veths in a bridge of the host stand in the place of containers' NICs.
    pub const fn is_of_veths(self) -> bool {
        matches!(self, PathKind::VethVeth | PathKind::VethHost)
    }

    /// Whether its client is in a container that is made in the VM for the time of a sample.
    pub const fn is_from_container_in_vm(self) -> bool {
        matches!(
            self,
            PathKind::VmVf
                | PathKind::VmBridge
                | PathKind::VmBridgeNat
                | PathKind::VmOvs
                | PathKind::VmMacvlan
                | PathKind::VmIpvlan
        )
    }

    /// Whether it is what SR-IOV, or a port of an embedded switch, replaces: a baseline for the other paths between the same two
    /// places.
    pub const fn is_bridge(self) -> bool {
        self.is_of_veths()
            || matches!(
                self,
                PathKind::Bridge
                    | PathKind::BridgeAcross
                    | PathKind::VmBridge
                    | PathKind::VmBridgeNat
                    | PathKind::VmOvs
            )
    }

    /// Whether this bridge is the baseline of such a path between the same two guests. One over the cable is it for what
    /// goes over the cable.
    pub fn is_baseline_of(self, path: PathKind) -> bool {
        match self {
            PathKind::Bridge => !path.is_bridge() && !path.is_of_vm_nic() && !path.is_of_ports(),
            PathKind::BridgeAcross => path == PathKind::VfVfAcross,
            PathKind::VmBridge | PathKind::VmBridgeNat | PathKind::VmOvs => path == PathKind::VmVf,
            PathKind::VethVeth => path == PathKind::PortPort,
            PathKind::VethHost => path == PathKind::PortHost,
            _ => false,
        }
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PathKind::PfPf => "pf-pf",
            PathKind::VfVfAcross => "vf-vf across",
            PathKind::VfVfInside => "vf-vf inside",
            PathKind::GuestHost => "guest-host",
            PathKind::Bridge => "bridge",
            PathKind::BridgeAcross => "bridge across",
            PathKind::VmVf => "vm vf",
            PathKind::VmBridge => "vm bridge",
            PathKind::VmBridgeNat => "vm bridge nat",
            PathKind::VmOvs => "vm ovs",
            PathKind::VmMacvlan => "vm macvlan",
            PathKind::VmIpvlan => "vm ipvlan",
            PathKind::VmPf => "vm pf",
            PathKind::PortPort => "port-port",
            PathKind::PortHost => "port-host",
            PathKind::VethVeth => "veth-veth",
            PathKind::VethHost => "veth-host",
        })
    }
}

/// One end of a measurement.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct End {
    /// Where the program runs.
    pub place: Vantage,
    /// What kind of place that is.
    pub kind: EndKind,
    /// The function that carries the traffic; `None` for the veth of a bridge. The veth of a bridge with an uplink has that:
    /// a PF of the host's; one in the place of a container's NIC has that NIC. `None` as well for the host at a bridge of its own.
    pub function: Option<EndpointName>,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place: &str = match &self.place {
            Vantage::Host => "host",
            Vantage::Guest(guest) => guest.as_str(),
        };
        match &self.function {
            Some(EndpointName::Function(function)) => write!(f, "{place}:{function}"),
            // Which says the VM.
            Some(EndpointName::Tenant(function)) => function.fmt(f),
            None => f.write_str(place),
        }
    }
}

/// What kind of place an end is in.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum EndKind {
    /// On the host.
    Host,
    /// In a container.
    Container,
    /// In a VM.
    Vm,
}

impl From<GuestKind> for EndKind {
    fn from(kind: GuestKind) -> EndKind {
        match kind {
            GuestKind::Vm => EndKind::Vm,
            GuestKind::Container => EndKind::Container,
        }
    }
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EndKind::Host => "host",
            EndKind::Container => "container",
            EndKind::Vm => "vm",
        })
    }
}

/// Which end sends the bulk.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The client sends (and, for request and response, asks).
    #[default]
    Forward,
    /// The server sends.
    Reverse,
}

/// What decides when the next message is sent.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// The one before it: it is sent when that was answered or taken, so that a slow answer hides those that would have
    /// come meanwhile (coordinated omission).
    #[default]
    Closed,
    /// A clock: so many messages a second, whatever became of those before.
    Open {
        /// Messages a second.
        rate: u32,
    },
}

/// A measurement of a device or a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Storage {
    /// Where fio runs.
    pub place: Vantage,
    /// What kind of place that is.
    pub kind: EndKind,
    /// What is read and written, as the model names it; the same for host and guest, or they cannot be compared.
    pub target: String,
    /// In order or not.
    pub pattern: Pattern,
    /// Reading or writing.
    pub mix: Mix,
    /// Block size in bytes.
    pub block: u32,
    /// Operations in flight at once, of each job.
    pub depth: u32,
    /// Jobs at once.
    pub jobs: u32,
}

/// The order of blocks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// At places drawn at random.
    Random,
}

/// Reading or writing.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// Only reading.
    Read,
    /// Only writing.
    Write,
    /// Half reading, half writing.
    Mixed,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mix::Read => "read",
            Mix::Write => "write",
            Mix::Mixed => "mixed",
        })
    }
}

/// What the samples of a cell told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measured {
    /// Every sample in the order taken, warm-up and failed ones too.
    pub samples: Vec<Sample>,
    /// One for each metric that the samples tell.
    pub summaries: Vec<Summary>,
    /// Percentiles that are not told because there are too few samples for them.
    #[serde(default)]
    pub withheld: Vec<Withheld>,
    /// All latencies of the samples that count, where the tool tells them.
    #[serde(default)]
    pub histogram: Option<Histogram>,
    /// Why measuring ended.
    pub stop: StopReason,
}

impl Measured {
    /// In how many of the samples that count a percentile is withheld, and how many these are; `None` where each tells it. What is
    /// left of a percentile without them is too good: those with a stall have the fewest latencies.
    pub fn short_of(&self, metric: Metric) -> Option<(usize, usize)> {
        metric.quantile()?;
        let ran = |sample: &&Sample| !sample.warm_up && matches!(sample.taken, SampleResult::Values(_));
        let counting = self.samples.iter().filter(ran);
        let short = counting.clone().filter(|sample| sample.value(metric).is_none()).count();
        (short > 0).then(|| (short, counting.count()))
    }

    /// The values of one metric of the samples that count, in the order taken.
    pub fn values(&self, metric: Metric) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().filter(|sample| !sample.warm_up).filter_map(move |sample| sample.value(metric))
    }
}

/// One run of the tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sample {
    /// When it began, in seconds since the run's start.
    pub at: f64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Its position in the order of all samples of the run, by which its raw output is found among the run's records.
    pub position: u32,
    /// Which round of the interleaved order it was in: samples of two arms in the same round are a pair.
    pub round: u32,
    /// Whether it is left out of every summary.
    pub warm_up: bool,
    /// What it told.
    #[serde(flatten)]
    pub taken: SampleResult,
}

impl Sample {
    /// The value of one metric.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match &self.taken {
            SampleResult::Values(values) => values.get(&metric).copied(),
            SampleResult::Missing(_) => None,
        }
    }
}

/// What one sample told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SampleResult {
    /// Values, in the metrics' units. A metric that the tool did not tell is absent.
    Values(BTreeMap<Metric, f64>),
    /// Nothing, because of this.
    Missing(String),
}

/// One metric of a cell over its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Summary {
    /// The metric of these samples.
    pub metric: Metric,
    /// How many samples there are, warm-up not counted.
    pub n: u32,
    /// The median of the samples.
    pub median: f64,
    /// The median with its interval; `None` when there are too few samples for one.
    pub interval: Option<Estimate>,
    /// The least of the samples.
    pub min: f64,
    /// The greatest of the samples.
    pub max: f64,
}

/// A percentile that is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Withheld {
    /// The percentile that is not told.
    pub metric: Metric,
    /// How many latencies there are.
    pub have: u64,
    /// How many it would take.
    pub need: u64,
}

/// The guest of a place.
pub(crate) fn guest_of(place: &Vantage) -> Option<&GuestName> {
    match place {
        Vantage::Host => None,
        Vantage::Guest(guest) => Some(guest),
    }
}
