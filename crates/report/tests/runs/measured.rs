//! Runs that measured, made up: the same ones each time.

use std::collections::{BTreeMap, HashMap};

use penstock_model::{
    measurement::{
        Cell, Claim, Comparison, Conclusion, Direction, End, EndKind, Estimate, Expectation,
        ExpectationResult, Histogram, Link, Load, Measured, Measurement, Measurements, Metric, Mix, Network,
        PathKind, Pattern, Protocol, Sample, SampleResult, Status, StopReason, Storage, Subject, Summary,
        Tool, ToolVersion, Withheld,
    },
    verdict::Vantage,
};
use penstock_report::Evidence;

/// Numbers that look drawn (xorshift64*), the same each time.
struct Draw(u64);

impl Draw {
    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About 1, by `spread` more or less.
    fn about(&mut self, spread: f64) -> f64 {
        1.0 + (self.part() + self.part() + self.part() - 1.5) * spread
    }
}

fn place(name: &str) -> Vantage {
    match name {
        "host" => Vantage::Host,
        guest => Vantage::Guest(guest.parse().unwrap()),
    }
}

/// `guest:NET0#1`, of a kind.
pub fn end(text: &str, kind: EndKind) -> End {
    let (name, function) = text.split_once(':').map_or((text, None), |(name, f)| (name, Some(f)));
    End { place: place(name), kind, function: function.map(|function| function.parse().unwrap()) }
}

/// Five digits: as many as every reader of JSON keeps.
fn short(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap()
}

pub fn estimate(value: f64, low: f64, high: f64) -> Estimate {
    let (value, low, high) = (short(value), short(low), short(high));
    Estimate::new(value, low.min(value), high.max(value), 0.95).unwrap()
}

/// How fast a path is: round trip of the least message in µs, and the most bits a second.
fn speed(path: PathKind, vm: bool) -> (f64, f64) {
    let (round_trip, bits) = match path {
        PathKind::PfPf => (52.0, 6.1e9),
        PathKind::VfVfAcross => (61.0, 5.6e9),
        PathKind::VfVfInside => (44.0, 9.2e9),
        PathKind::GuestHost => (57.0, 7.0e9),
        PathKind::Bridge => (71.0, 4.4e9),
        PathKind::BridgeAcross => (83.0, 3.9e9),
        PathKind::VmVf => (64.0, 5.2e9),
        PathKind::VmBridge => (88.0, 3.6e9),
        PathKind::VmBridgeNat => (97.0, 3.1e9),
        PathKind::VmOvs => (92.0, 3.4e9),
        PathKind::VmMacvlan => (74.0, 4.6e9),
        PathKind::VmIpvlan => (72.0, 4.7e9),
        PathKind::VmPf => (66.0, 5.0e9),
        PathKind::PortPort => (70.0, 4.0e9),
        PathKind::PortHost => (60.0, 4.8e9),
        PathKind::VethVeth => (40.0, 8.0e9),
        PathKind::VethHost => (35.0, 9.0e9),
    };
    if vm { (round_trip * 1.9, bits * 0.55) } else { (round_trip, bits) }
}

/// Cells of one run while they are made up.
struct Maker {
    draw: Draw,
    cells: Vec<Cell>,
    /// Every how many cells one has its latencies counted.
    counted_every: usize,
    samples: u32,
    clock: f64,
    position: u32,
}

impl Maker {
    fn new(counted_every: usize, samples: u32) -> Maker {
        let draw = Draw(0x9e37_79b9_7f4a_7c15);
        Maker { draw, cells: Vec::new(), counted_every, samples, clock: 2.0, position: 0 }
    }

    /// Adds a cell around these medians.
    fn add(
        &mut self,
        measurement: Measurement,
        null: bool,
        medians: &[(Metric, f64)],
        latencies: bool,
    ) -> usize {
        let main = measurement.main_metric();
        let mut samples = Vec::new();
        let odd = self.cells.len() % 97 == 41;
        for round in 0..=self.samples {
            let warm_up = round == 0;
            let failed = odd && round == 3;
            let taken = if failed {
                SampleResult::Missing("netperf: receive_response: no response received. errno 4".to_owned())
            } else {
                let cold = if warm_up { 0.8 } else { 1.0 };
                let values = medians.iter().map(|(metric, median)| {
                    let spread = if *metric == Metric::Max { 0.5 } else { 0.05 };
                    (*metric, short(median * self.draw.about(spread) * cold))
                });
                SampleResult::Values(values.collect::<Vec<_>>().into_iter().collect())
            };
            samples.push(Sample {
                at: short(self.clock),
                seconds: 1.04,
                position: self.position,
                round,
                warm_up,
                taken,
            });
            self.clock += 1.12;
            self.position += 1;
        }
        let mut withheld = Vec::new();
        let mut histogram = None;
        if latencies {
            withheld.push(Withheld { metric: Metric::P999, have: 5_900, need: 10_000 });
            if self.cells.len().is_multiple_of(self.counted_every) {
                let median =
                    medians.iter().find(|(metric, _)| *metric == Metric::P50).map_or(50.0, |(_, m)| *m);
                histogram = Some(self.counted(median));
            }
        }
        let metrics: Vec<Metric> = medians.iter().map(|(metric, _)| *metric).collect();
        let mut measured = Measured {
            samples,
            summaries: Vec::new(),
            withheld,
            histogram,
            stop: if odd { StopReason::SamplesUp } else { StopReason::TightEnough },
        };
        measured.summaries = metrics.iter().map(|metric| summary(&measured, *metric)).collect();
        let again = if null { " again" } else { "" };
        let id = format!("{main} {}{again}", self.cells.len());
        self.cells.push(Cell { id, measurement, null, status: Status::Measured(Box::new(measured)) });
        self.cells.len() - 1
    }

    /// Latencies with a long tail.
    fn counted(&mut self, median: f64) -> Histogram {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for _ in 0..4_000 {
            let part = self.draw.part();
            let tail = if part > 0.995 { 1.0 + self.draw.part() * 14.0 } else { 1.0 };
            let around = 0.82 - 0.11 * (1.0 - self.draw.part() * 0.999).ln();
            let nanoseconds = (median * around * tail * 1_000.0) as u64;
            *counts.entry(Histogram::bucket(nanoseconds)).or_default() += 15;
        }
        Histogram::try_from(counts).unwrap()
    }

    fn network(&mut self, tool: Tool, network: Network, null: bool) -> usize {
        let vm = network.client.kind == EndKind::Vm || network.server.kind == EndKind::Vm;
        let (round_trip, most) = speed(network.path, vm);
        let size = f64::from(network.size);
        let udp = network.protocol.is_udp();
        let stream = network.protocol.is_stream();
        let open = matches!(network.load, Load::Open { .. });
        let path = network.path;
        let measurement = Measurement { tool, subject: Subject::Network(network) };
        if stream {
            let per_message = if udp { 2.6e-6 } else { 0.55e-6 } * round_trip / 50.0;
            let bits = size * 8.0 / (per_message + size * 8.0 / most);
            let mut medians = vec![(Metric::Throughput, bits)];
            if udp {
                medians.extend([(Metric::Sent, bits * 1.12), (Metric::Loss, 0.107)]);
            }
            medians.extend([(Metric::LocalCpu, 71.0), (Metric::RemoteCpu, 83.0)]);
            if path.is_of_vm_nic() {
                // What the VM adds to a frame on its way, in seconds a gigabit.
                let guest = round_trip / 120.0;
                medians.extend([(Metric::GuestCpuPerGbit, guest), (Metric::HostCpuPerGbit, guest + 0.21)]);
            }
            self.add(measurement, null, &medians, false)
        } else {
            let loop_factor = if open { 1.7 } else { 1.0 };
            let tcp = if udp { 1.0 } else { 1.12 };
            let p50 = (round_trip + size * 0.0021) * loop_factor * tcp;
            let mut medians = vec![
                (Metric::P50, p50),
                (Metric::P90, p50 * 1.3),
                (Metric::P99, p50 * if open { 6.5 } else { 2.1 }),
                (Metric::Max, p50 * if open { 31.0 } else { 14.0 }),
            ];
            if !open {
                medians.extend([
                    (Metric::Transactions, 1e6 / p50),
                    (Metric::LocalCpu, 33.0),
                    (Metric::RemoteCpu, 38.0),
                ]);
            }
            self.add(measurement, null, &medians, true)
        }
    }

    fn storage(&mut self, storage: Storage, null: bool) -> usize {
        let guest = storage.kind != EndKind::Host;
        let block = f64::from(storage.block);
        let depth = f64::from(storage.depth * storage.jobs);
        let each = (80e-6 + block / 2.1e9) * if guest { 1.18 } else { 1.0 };
        let iops = depth.powf(0.8) / each;
        let p50 = depth / iops * 1e6;
        let medians = [
            (Metric::Iops, iops),
            (Metric::Bandwidth, iops * block),
            (Metric::P50, p50),
            (Metric::P90, p50 * 1.4),
            (Metric::P99, p50 * 3.0),
            (Metric::Max, p50 * 22.0),
            (Metric::LocalCpu, 41.0),
        ];
        self.add(Measurement { tool: Tool::Fio, subject: Subject::Storage(storage) }, null, &medians, true)
    }

    fn missing(&mut self, at: usize, why: &str) {
        self.cells[at].status = Status::missing(why);
    }

    /// The ratio of two cells, as far as they were measured.
    fn compare(&mut self, base: usize, other: usize, null: Option<usize>, metric: Metric) -> Comparison {
        let median = |at: usize| self.cells[at].summary(metric).map(|summary| summary.median);
        let ratio = |base: usize, other: usize, draw: &mut Draw| {
            let ratio = median(other)? / median(base)?;
            Some(estimate(ratio, ratio * (0.98 - draw.part() * 0.03), ratio * (1.02 + draw.part() * 0.03)))
        };
        let drawn = ratio(base, other, &mut self.draw);
        let why = drawn.is_none().then(|| {
            let lost = if median(base).is_none() { base } else { other };
            format!("{} is missing", self.cells[lost].id)
        });
        let null = null.and_then(|null| ratio(base, null, &mut self.draw));
        let (base, other) = (self.cells[base].id.clone(), self.cells[other].id.clone());
        Comparison { base, other, metric, ratio: drawn, null, pairs: self.samples, why }
    }
}

fn summary(measured: &Measured, metric: Metric) -> Summary {
    let mut values: Vec<f64> = measured.values(metric).collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (values[0], values[values.len() - 1]);
    let median = values[values.len() / 2];
    let interval = (values.len() >= 6).then(|| estimate(median, values[1], values[values.len() - 2]));
    Summary { metric, n: values.len() as u32, median, interval, min, max }
}

/// One kind of path between two ends.
pub type Pair = (PathKind, End, End);

/// The pairs of the published machine.
pub fn pairs() -> Vec<Pair> {
    use EndKind::{Container, Host, Vm};
    let pair = |path, client: &str, from, server: &str, to| (path, end(client, from), end(server, to));
    vec![
        pair(PathKind::PfPf, "pf0:NET0", Container, "pf1:NET1", Container),
        pair(PathKind::VfVfAcross, "linux-2:NET0#4", Container, "pf1:NET1#2", Container),
        pair(PathKind::VfVfAcross, "linux-2:NET0#4", Container, "rt-3:NET1#0", Vm),
        pair(PathKind::VfVfInside, "linux-2:NET0#4", Container, "pf0:NET0#3", Container),
        pair(PathKind::VfVfInside, "linux-2:NET0#5", Container, "rt-2:NET0#0", Vm),
        pair(PathKind::GuestHost, "linux-2:NET1#2", Container, "host:NET1", Host),
        pair(PathKind::Bridge, "linux-2", Container, "pf0", Container),
    ]
}

/// All cells of these pairs, block by block, and what is compared.
fn network(
    maker: &mut Maker,
    protocols: &[Protocol],
    pairs: &[Pair],
    sizes: &[u32],
    requests: &[u32],
    comparisons: &mut Vec<Comparison>,
) {
    let mut block = |tool, protocol: Protocol, size, direction, load| {
        let of = |(path, client, server): &Pair| Network {
            protocol,
            path: *path,
            client: client.clone(),
            server: server.clone(),
            size,
            direction,
            load,
        };
        let arms: Vec<usize> = pairs.iter().map(|pair| maker.network(tool, of(pair), false)).collect();
        let null = maker.network(tool, of(&pairs[0]), true);
        let metric = if protocol.is_stream() { Metric::Throughput } else { Metric::P50 };
        for other in &arms[1..] {
            comparisons.push(maker.compare(arms[0], *other, Some(null), metric));
        }
        let bridge = pairs.iter().position(|(path, ..)| *path == PathKind::Bridge);
        let inside = pairs.iter().position(|(path, ..)| *path == PathKind::VfVfInside);
        if let (Some(bridge), Some(inside)) = (bridge, inside) {
            comparisons.push(maker.compare(arms[bridge], arms[inside], None, metric));
        }
    };
    let (forward, closed) = (Direction::Forward, Load::Closed);
    for protocol in protocols.iter().copied() {
        for size in if protocol.is_stream() { sizes } else { requests } {
            block(Tool::Netperf, protocol, *size, forward, closed);
            if protocol == Protocol::UdpRr {
                block(Tool::Probe, protocol, *size, forward, Load::Open { rate: 2_000 });
            }
        }
        if protocol == Protocol::TcpStream {
            block(Tool::Iperf3, protocol, 16_384, forward, closed);
            block(Tool::Iperf3, protocol, 16_384, Direction::Reverse, closed);
        }
    }
}

fn storage(
    maker: &mut Maker,
    target: &str,
    at: &[(&str, EndKind)],
    blocks: &[u32],
    comparisons: &mut Vec<Comparison>,
) {
    for pattern in [Pattern::Sequential, Pattern::Random] {
        for mix in [Mix::Read, Mix::Write, Mix::Mixed] {
            for block in blocks {
                for (depth, jobs) in [(1, 1), (16, 1), (1, 4)] {
                    let of = |(name, kind): &(&str, EndKind)| Storage {
                        place: place(name),
                        kind: *kind,
                        target: target.to_owned(),
                        pattern,
                        mix,
                        block: *block,
                        depth,
                        jobs,
                    };
                    let arms: Vec<usize> = at.iter().map(|at| maker.storage(of(at), false)).collect();
                    let null = maker.storage(of(&at[0]), true);
                    let metric =
                        if pattern == Pattern::Sequential { Metric::Bandwidth } else { Metric::Iops };
                    for other in &arms[1..] {
                        comparisons.push(maker.compare(arms[0], *other, Some(null), metric));
                    }
                }
            }
        }
    }
}

/// What a line of the model comes out as, with the first cells that it means.
fn ruling(line: &str, measurements: &Measurements, told: Option<Conclusion>) -> ExpectationResult {
    let expectation: Expectation = line.parse().unwrap_or_else(|error| panic!("{error}"));
    let metric = expectation.metric();
    let claims = (measurements.comparisons.iter()).filter(|comparison| comparison.metric == metric);
    let by_id: HashMap<&str, &Cell> =
        measurements.cells.iter().map(|cell| (cell.id.as_str(), cell)).collect();
    let claims = claims.filter(|comparison| {
        let of = |id: &str| &by_id[id].measurement;
        expectation.pairs(of(&comparison.other), of(&comparison.base))
    });
    let claims = claims.take(60).map(|comparison| {
        let told = told.unwrap_or_else(|| {
            comparison.ratio.as_ref().map_or(Conclusion::CannotBeTold, |seen| expectation.judge(seen))
        });
        Claim {
            against: Some(comparison.base.clone()),
            metric: Some(metric),
            seen: comparison.ratio,
            why: comparison.why.clone(),
            ..Claim::new(&comparison.other, told)
        }
    });
    let claims: Vec<Claim> = claims.collect();
    ExpectationResult::new(expectation, claims)
}

fn finish(mut evidence: Evidence, maker: Maker, comparisons: Vec<Comparison>, emulated: bool) -> Evidence {
    let link = |text: &str, kind, speed| Link { end: end(text, kind), speed, carrier: Some(true) };
    let tool = |tool, place: &str, version: Option<&str>| ToolVersion {
        tool,
        place: place.to_owned(),
        version: version.map(str::to_owned),
    };
    let rate = Some(if emulated { 1_000 } else { 10_000 });
    let mut measurements = Measurements {
        emulated,
        seed: 20_261_120,
        started: "2026-11-20T19:41:07Z".to_owned(),
        seconds: short(maker.clock + 3.0),
        tools: vec![
            tool(Tool::Netperf, "host", Some("2.7.0")),
            tool(Tool::Netperf, "inside linux-2", Some("2.7.0")),
            tool(Tool::Netperf, "inside rt-2", Some("2.7.1")),
            tool(Tool::Iperf3, "inside linux-2", Some("3.18 (cJSON 1.7.15)")),
            tool(Tool::Fio, "host", Some("fio-3.39")),
            tool(Tool::Fio, "inside rt-3", None),
        ],
        links: vec![
            link("pf0:NET0", EndKind::Container, rate),
            link("pf1:NET1", EndKind::Container, rate),
            link("linux-2:NET0#4", EndKind::Container, None),
        ],
        cells: maker.cells,
        comparisons,
        ..Measurements::default()
    };
    let lines =
        ["vf-vf inside >= 1.2 x bridge", "vf-vf across >= 0.9 x pf-pf", "p50 vf-vf inside <= 0.95 x pf-pf"];
    measurements.rulings = lines.map(|line| ruling(line, &measurements, None)).to_vec();
    evidence.machine.emulated = emulated;
    evidence.measurements = Some(measurements);
    evidence
}

/// The published machine with its network and one file measured; some things are missing.
pub fn measured(emulated: bool) -> Evidence {
    let mut maker = Maker::new(1, 8);
    let mut comparisons = Vec::new();
    let sizes: Vec<u32> = (7..=14).map(|power| 1 << power).collect();
    network(&mut maker, &Protocol::ALL, &pairs(), &sizes, &[128, 1024, 16384], &mut comparisons);
    let at = [("host", EndKind::Host), ("linux-2", EndKind::Container)];
    storage(&mut maker, "/srv/data", &at, &[512, 4096, 131_072], &mut comparisons);
    for at in [18, 26, 58] {
        maker.missing(at, "rt-3 does not answer: its agent went away in the middle of the run");
    }
    maker.missing(85, "UDP lost everything: netperf received 0 bit/s of 2.31 Gbit/s sent");
    let missing: Vec<String> =
        maker.cells.iter().filter(|c| c.measured().is_none()).map(|c| c.id.clone()).collect();
    for comparison in &mut comparisons {
        if let Some(lost) = missing.iter().find(|id| [&comparison.base, &comparison.other].contains(id)) {
            comparison.ratio = None;
            comparison.why = Some(format!("{lost} is missing"));
        }
    }
    // One A/A comparison that shows a difference.
    comparisons[3].null = Some(estimate(1.08, 1.03, 1.12));
    let mut evidence = super::xeon_d();
    evidence.run.command =
        ["penstock", "rehearse", "examples/xeon-d.yaml", "--measure"].map(str::to_owned).to_vec();
    let mut evidence = finish(evidence, maker, comparisons, emulated);
    if let Some(measurements) = &mut evidence.measurements {
        let absent = "vm-vm pairs are not measured: rt-2 and rt-3 have no VFs of one NIC in common";
        measurements.notes.push(absent.to_owned());
    }
    evidence.run.exit = Some(1);
    evidence
}

/// Two paths, two sizes, one file: small enough to be read as a file.
pub fn measured_small() -> Evidence {
    let mut maker = Maker::new(1, 6);
    let mut comparisons = Vec::new();
    let pairs: Vec<Pair> = pairs()
        .into_iter()
        .filter(|(path, _, server)| {
            server.kind == EndKind::Container && matches!(path, PathKind::VfVfInside | PathKind::Bridge)
        })
        .collect();
    network(
        &mut maker,
        &[Protocol::UdpStream, Protocol::UdpRr],
        &pairs,
        &[128, 16384],
        &[128],
        &mut comparisons,
    );
    maker.missing(1, "inside pf0: netserver: not found");
    comparisons.iter_mut().for_each(|comparison| {
        if comparison.other == maker.cells[1].id || comparison.base == maker.cells[1].id {
            comparison.ratio = None;
            comparison.why = Some("inside pf0: netserver: not found".to_owned());
        }
    });
    // Files stay small: a few latencies are enough.
    for cell in &mut maker.cells {
        let Status::Measured(measured) = &mut cell.status else { continue };
        if let Some(counted) = &mut measured.histogram {
            let mut few = Histogram::new();
            for (low, _, count) in counted.buckets().step_by(9) {
                few.record(low, count).unwrap();
            }
            *counted = few;
        }
    }
    let mut evidence = super::small();
    evidence.verdicts = Default::default();
    evidence.run.command =
        ["penstock", "measure", "examples/smallest.yaml", "--quick"].map(str::to_owned).to_vec();
    evidence.run.exit = Some(1);
    finish(evidence, maker, comparisons, true)
}

/// A container in a VM with a NIC of its own, by a VF and by a bridge with NAT and without; what it receives was not measured without NAT.
pub fn measured_in_a_vm(emulated: bool) -> Evidence {
    let mut maker = Maker::new(4, 6);
    let mut comparisons = Vec::new();
    let network = |path, protocol, size, direction| Network {
        protocol,
        path,
        client: end(
            if path == PathKind::VmVf { "node-1:node-1/net0#0" } else { "node-1:node-1/net0" },
            EndKind::Vm,
        ),
        server: end("host:NET1", EndKind::Host),
        size,
        direction,
        load: Load::Closed,
    };
    let (forward, reverse) = (Direction::Forward, Direction::Reverse);
    for (tool, protocol, size, direction) in [
        (Tool::Netperf, Protocol::UdpStream, 16384, forward),
        (Tool::Iperf3, Protocol::UdpStream, 1472, forward),
        (Tool::Iperf3, Protocol::UdpStream, 1472, reverse),
        (Tool::Netperf, Protocol::UdpRr, 16384, forward),
        (Tool::Netperf, Protocol::UdpRr, 128, forward),
    ] {
        let vf = maker.network(tool, network(PathKind::VmVf, protocol, size, direction), false);
        for path in [PathKind::VmBridge, PathKind::VmBridgeNat] {
            let bridge = maker.network(tool, network(path, protocol, size, direction), false);
            if (path, direction) == (PathKind::VmBridge, reverse) {
                maker.missing(
                    bridge,
                    "no container could be made for vm bridge inside node-1: eth0 is in use (upper_mac5)",
                );
            }
            let metrics: &[Metric] =
                if protocol.is_stream() { &[Metric::Throughput] } else { &[Metric::P50, Metric::P99] };
            for metric in metrics {
                comparisons.push(maker.compare(bridge, vf, None, *metric));
            }
        }
    }
    // One whose base differs from itself: what it receives through NAT.
    comparisons[5].null = Some(estimate(1.08, 1.03, 1.12));
    finish(super::small(), maker, comparisons, emulated)
}

/// The NICs of two containers, ports of embedded switches in one bridge of the host, against veth pairs in such a bridge. One cannot be
/// compared: it has a spoof check.
pub fn measured_in_containers() -> Evidence {
    let mut maker = Maker::new(4, 6);
    let mut comparisons = Vec::new();
    let (db, web) = (end("db:db/net0", EndKind::Container), end("web:web/net0", EndKind::Container));
    let network = |path, protocol, client: &End, server: End, direction| Network {
        protocol,
        path,
        client: client.clone(),
        server,
        size: 16384,
        direction,
        load: Load::Closed,
    };
    let (forward, reverse) = (Direction::Forward, Direction::Reverse);
    for (tool, protocol, direction) in [
        (Tool::Netperf, Protocol::TcpStream, forward),
        (Tool::Iperf3, Protocol::TcpStream, reverse),
        (Tool::Netperf, Protocol::UdpRr, forward),
    ] {
        for (port, veth, server) in [
            (PathKind::PortPort, PathKind::VethVeth, web.clone()),
            (PathKind::PortHost, PathKind::VethHost, end("host", EndKind::Host)),
        ] {
            let own = maker.network(tool, network(port, protocol, &db, server.clone(), direction), false);
            let base = maker.network(tool, network(veth, protocol, &db, server, direction), false);
            if veth == PathKind::VethHost {
                maker.missing(
                    base,
                    "every container's NIC that reaches the host has a spoof check (spoofchk: on), and with a veth in the bridge its \
                     container would get round that",
                );
            }
            let metric = if protocol.is_stream() { Metric::Throughput } else { Metric::P99 };
            comparisons.push(maker.compare(base, own, None, metric));
        }
    }
    finish(super::small(), maker, comparisons, true)
}

/// 2,000 cells of six samples and a warm-up, a tenth of them with their latencies counted.
pub fn many_cells() -> Evidence {
    let evidence = with_cells(2_000);
    let cells = evidence.measurements.iter().flat_map(|measurements| &measurements.cells);
    let counted = cells.filter_map(Cell::measured).filter(|measured| measured.histogram.is_some()).count();
    assert!(counted >= 200, "{counted}");
    evidence
}

/// So many cells: the more there are, the more pairs of ends and drives they are of.
pub fn with_cells(count: usize) -> Evidence {
    let mut maker = Maker::new(4, 6);
    let mut comparisons = Vec::new();
    let sizes: Vec<u32> = (7..=14).map(|power| 1 << power).collect();
    let pairs: Vec<Pair> = (0..(count * 38).div_ceil(2_000))
        .map(|number| {
            let (path, mut client, mut server) = pairs()[number % 7].clone();
            for (end, letter) in [(&mut client, "a"), (&mut server, "b")] {
                if let Vantage::Guest(guest) = &mut end.place {
                    *guest = format!("{guest}-{letter}{}", number / 7).parse().unwrap();
                }
            }
            (path, client, server)
        })
        .collect();
    network(&mut maker, &Protocol::ALL, &pairs, &sizes, &[128, 1024, 16384], &mut comparisons);
    let at = [("host", EndKind::Host), ("linux-2", EndKind::Container)];
    let blocks: Vec<u32> = (9..=17).map(|power| 1 << power).collect();
    let targets = (0..count.div_ceil(1_000)).map(|number| match number {
        0 => "/srv/data".to_owned(),
        number => format!("/dev/nvme{}n1", number - 1),
    });
    for target in targets {
        storage(&mut maker, &target, &at, &blocks, &mut comparisons);
    }
    assert!(maker.cells.len() >= count, "{} cells", maker.cells.len());
    maker.cells.truncate(count);
    let kept: std::collections::HashSet<&str> = maker.cells.iter().map(|cell| cell.id.as_str()).collect();
    comparisons.retain(|c| kept.contains(c.base.as_str()) && kept.contains(c.other.as_str()));
    for at in (100..count).step_by(173) {
        maker.missing(at, "the time was up before its turn came");
    }
    finish(super::xeon_d(), maker, comparisons, true)
}
