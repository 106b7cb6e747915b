//! What there is to measure: the cells that a model gives. Pure.
//!
//! Both ends of a path must be in different places: a kernel that owns both ends hands the bytes over itself, and never
//! lets them reach the NIC. Paths that a model has not, or that nobody could measure, are listed with the reason.

mod pairs;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use penstock_model::{
    Model,
    measurement::{
        Bound, Direction, EndKind, Expectation, Load, Measurement, Mix, Network, PathKind, Pattern, Protocol,
        Storage, Subject, Tool,
    },
    verdict::Vantage,
};

use self::pairs::{Pair, pairs};

/// What of all that could be measured is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Message sizes of streams, in bytes.
    pub stream_sizes: Vec<u32>,
    /// Message sizes of request and response, in bytes.
    pub request_sizes: Vec<u32>,
    /// What is sent.
    pub protocols: Vec<Protocol>,
    /// Kinds of path that are measured; those that are not in here are left out.
    pub paths: Vec<PathKind>,
    /// How many pairs of ends at most for each kind of path and each kind of guests at its ends.
    pub pairs: usize,
    /// Whether iperf3 measures TCP in both directions too, at the largest size.
    pub iperf3: bool,
    /// Requests a second of an open-loop latency run, beside a closed-loop one by the same program at the smallest size;
    /// `None`: neither.
    pub probe: Option<u32>,
    /// What is measured twice.
    pub null: Null,
    /// Of the paths from inside VMs with NICs of their own only what tells most: a UDP stream by each, UDP round trips by a VF and
    /// both bridges, and a TCP stream by a VF and the bridge with NAT.
    pub few_of_vms: bool,
}

/// What is measured twice, to see how much the same differs from itself (A/A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Null {
    /// Nothing is measured twice.
    None,
    /// The first arm of one block of each tool, protocol and load (for storage: of each pattern and mix), at the largest
    /// size. It stands beside the comparisons of all their blocks: what the order of samples and the machine's moods do to
    /// a ratio differs little between sizes, and a second arm in every block is a fifth of a run's time.
    EachProtocol,
    /// The first arm of every block.
    EachBlock,
}

impl Options {
    /// All of it: 128 B to 16 KiB. Request and response at the ends of that only: between them the latency is a straight
    /// line.
    pub fn full() -> Options {
        Options {
            stream_sizes: (7..=14).map(|power| 1 << power).collect(),
            request_sizes: vec![128, 16384],
            protocols: Protocol::ALL.to_vec(),
            paths: PathKind::ALL.to_vec(),
            pairs: 1,
            iperf3: true,
            probe: Some(1000),
            null: Null::EachProtocol,
            few_of_vms: false,
        }
    }

    /// The least that shows every path: what a path carries (both streams at 16 KiB) and how long it takes (UDP round trips
    /// of 128 B).
    pub fn quick() -> Options {
        Options {
            stream_sizes: vec![16384],
            request_sizes: vec![128],
            protocols: vec![Protocol::UdpStream, Protocol::TcpStream, Protocol::UdpRr],
            iperf3: false,
            probe: None,
            few_of_vms: true,
            ..Options::full()
        }
    }
}

/// A cell that is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its name, unique in the run: [`penstock_model::measurement::Cell::id`].
    pub id: String,
    /// What is measured.
    pub measurement: Measurement,
    /// Cells of the same block differ in nothing but where they are measured: their samples are interleaved and compared.
    pub block: usize,
    /// Whether it is the same as the first of its block, to see how much the same differs from itself.
    pub null: bool,
}

/// A kind of path that is not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The kind of path.
    pub path: PathKind,
    /// Why it is not measured, in words for a person.
    pub why: String,
}

/// All that is to be measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    /// The cells, block by block; the first of a block is what the others are compared with.
    pub cells: Vec<Planned>,
    /// The paths that are not measured.
    pub absent: Vec<Absent>,
    /// What the model gives beside, and was not asked for.
    pub left_out: Vec<Measurement>,
}

impl Matrix {
    /// The same, of `all` that the model gives.
    pub fn out_of(self, all: &Matrix) -> Matrix {
        let known: HashSet<&Measurement> = self.cells.iter().map(|cell| &cell.measurement).collect();
        let rest = all.cells.iter().map(|cell| &cell.measurement).filter(|one| !known.contains(one));
        let left_out = rest.cloned().collect();
        Matrix { left_out, ..self }
    }

    /// Whether a line means cells that the model gives and that were not asked for, and none that were.
    pub fn leaves_out(&self, line: &Expectation) -> bool {
        let asked = || self.cells.iter().map(|cell| &cell.measurement);
        let left_out = || self.left_out.iter();
        match line.bound() {
            Bound::Value(_) => {
                !asked().any(|one| line.left().matches(one)) && left_out().any(|one| line.left().matches(one))
            }
            Bound::Times { .. } => {
                let pairs = |left: &Measurement, right: &Measurement| line.pairs(left, right);
                !asked().any(|left| asked().any(|right| pairs(left, right)))
                    && (left_out().any(|left| asked().chain(left_out()).any(|right| pairs(left, right)))
                        || asked().any(|left| left_out().any(|right| pairs(left, right))))
            }
        }
    }

    /// The blocks: positions in `cells`.
    pub fn blocks(&self) -> Vec<Vec<usize>> {
        let mut blocks: Vec<Vec<usize>> = Vec::new();
        for (position, cell) in self.cells.iter().enumerate() {
            if blocks.len() <= cell.block {
                blocks.resize(cell.block + 1, Vec::new());
            }
            blocks[cell.block].push(position);
        }
        blocks.retain(|block| !block.is_empty());
        blocks
    }

    /// Which cells are compared: base, other, and the second arm that tells how much the same differs from itself, if there
    /// is one. The first of a block with all others, and each path with the bridges between the same guests. The second arm
    /// is that of the same block, else one of the same tool, protocol and load; what it repeats is told by
    /// [`Matrix::repeated`].
    pub fn comparisons(&self) -> Vec<(usize, usize, Option<usize>)> {
        let mut comparisons = Vec::new();
        let nulls: Vec<usize> = (0..self.cells.len()).filter(|at| self.cells[*at].null).collect();
        for block in self.blocks() {
            let arms: Vec<usize> = block.into_iter().filter(|position| !self.cells[*position].null).collect();
            let [base, others @ ..] = arms.as_slice() else { continue };
            let first = &self.cells[*base];
            let own = nulls.iter().copied().find(|null| self.cells[*null].block == first.block);
            let akin = || {
                nulls.iter().copied().find(|null| akin(&self.cells[*null].measurement, &first.measurement))
            };
            let null = own.or_else(akin);
            comparisons.extend(others.iter().map(|other| (*base, *other, null)));
            for bridge in others {
                let Some(baseline) = self.cells[*bridge].measurement.network() else { continue };
                let same = |position: &usize| {
                    self.cells[*position].measurement.network().is_some_and(|n| {
                        baseline.path.is_baseline_of(n.path) && places(n) == places(baseline)
                    })
                };
                // The first of the block too: what a path is to the bridge is asked of all in the same way.
                let against = arms.iter().copied().filter(same);
                comparisons.extend(against.map(|other| (*bridge, other, null)));
            }
        }
        comparisons
    }

    /// For each arm that is compared the cell and its second arm that are its control, as far as there is one.
    pub fn controls(&self) -> BTreeMap<usize, [usize; 2]> {
        let control = |null: Option<usize>| Some([self.repeated(null?)?, null?]);
        let compared = self.comparisons().into_iter().filter_map(|(base, other, null)| {
            let control = control(null)?;
            Some([(base, control), (other, control)])
        });
        compared.flatten().collect()
    }

    /// What a second arm is the same as: the first of its block.
    pub fn repeated(&self, null: usize) -> Option<usize> {
        let block = self.cells.get(null)?.block;
        self.cells.iter().position(|cell| cell.block == block && !cell.null)
    }

    /// The cells that warm the machine up for all others, of those that are `wanted`: for each tool and path the
    /// first at the largest size; for storage for each target, place and mix.
    pub fn warm_ups(&self, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut largest: Vec<usize> = Vec::new();
        for (at, cell) in self.cells.iter().enumerate().filter(|(at, cell)| !cell.null && wanted(*at)) {
            let warms = |other: &usize| warms(&self.cells[*other].measurement, &cell.measurement);
            match largest.iter().position(warms) {
                Some(known) if self.cells[largest[known]].measurement.size() < cell.measurement.size() => {
                    largest[known] = at
                }
                Some(_) => {}
                None => largest.push(at),
            }
        }
        largest
    }

    /// How early each block of [`Matrix::blocks`] is taken in where the time is not enough for all; 0 first. What a line
    /// needs is before all others; then the largest messages, the smallest, and 1 KiB (4 KiB blocks, all of them one at a
    /// time), of each protocol: most can be seen from those. Of round trips the smallest are first.
    pub fn priorities(&self, expect: &[Expectation]) -> Vec<u32> {
        let needed = |cell: &Planned| {
            let of = |expectation: &Expectation| match expectation.bound() {
                Bound::Times { of, .. } => of.matches(&cell.measurement),
                Bound::Value(_) => false,
            };
            expect.iter().any(|line| line.left().matches(&cell.measurement) || of(line))
        };
        let by_size = |cell: &Planned| {
            let alike = self.cells.iter().filter(|other| akin(&other.measurement, &cell.measurement));
            let (least, greatest) = alike
                .map(|cell| cell.measurement.size())
                .fold((u32::MAX, 0), |(least, greatest), size| (least.min(size), greatest.max(size)));
            let (order, alone) = match &cell.measurement.subject {
                Subject::Network(network) if network.protocol.is_stream() => {
                    ([greatest, least, BETWEEN], true)
                }
                Subject::Network(_) => ([least, greatest, BETWEEN], true),
                Subject::Storage(storage) => {
                    ([greatest, least, 4096], (storage.depth, storage.jobs) == (1, 1))
                }
            };
            let place = order.iter().position(|size| alone && *size == cell.measurement.size());
            place.unwrap_or(order.len()) as u32
        };
        let of_block = |block: &Vec<usize>| {
            let cells = || block.iter().map(|position| &self.cells[*position]);
            let size = cells().next().map_or(0, by_size);
            if cells().any(needed) { size } else { size + 4 }
        };
        self.blocks().iter().map(of_block).collect()
    }
}

/// The cells of both, those of `b` after those of `a`.
pub fn join(a: Matrix, b: Matrix) -> Matrix {
    let first = a.cells.iter().map(|cell| cell.block + 1).max().unwrap_or(0);
    let shifted = b.cells.into_iter().map(|cell| Planned { block: first + cell.block, ..cell });
    Matrix {
        cells: a.cells.into_iter().chain(shifted).collect(),
        absent: a.absent.into_iter().chain(b.absent).collect(),
        left_out: a.left_out.into_iter().chain(b.left_out).collect(),
    }
}

/// Whether the second arm of one tells something of the other.
fn akin(one: &Measurement, other: &Measurement) -> bool {
    let alike = match (&one.subject, &other.subject) {
        (Subject::Network(a), Subject::Network(b)) => (a.protocol, a.load) == (b.protocol, b.load),
        (Subject::Storage(a), Subject::Storage(b)) => {
            (&a.target, a.pattern, a.mix) == (&b.target, b.pattern, b.mix)
        }
        _ => false,
    };
    alike && one.tool == other.tool
}

/// Whether after a sample of one the other does not begin cold.
fn warms(one: &Measurement, other: &Measurement) -> bool {
    let alike = match (&one.subject, &other.subject) {
        (Subject::Network(a), Subject::Network(b)) => {
            a.path == b.path && (&a.client, &a.server) == (&b.client, &b.server)
        }
        (Subject::Storage(a), Subject::Storage(b)) => {
            (&a.target, &a.place, a.mix) == (&b.target, &b.place, b.mix)
        }
        _ => false,
    };
    alike && one.tool == other.tool
}

fn places(network: &Network) -> BTreeSet<&Vantage> {
    BTreeSet::from([&network.client.place, &network.server.place])
}

/// The most bytes of a UDP datagram that fit into a frame of Ethernet.
const ONE_FRAME: u32 = 1472;

/// The size between the ends that tells most: it still fits into one frame.
const BETWEEN: u32 = 1024;

/// The network measurements of a model.
pub fn network(model: &Model, options: &Options) -> Matrix {
    let (mut pairs, mut absent) = pairs(model, options.pairs);
    // Left out only now: which guests a bridge is between comes from the other paths.
    pairs.retain(|(path, ..)| options.paths.contains(path));
    // That no guest owns a NIC is news only to who asks for its paths.
    let own = |of_container: bool| {
        model
            .guests
            .values()
            .any(|guest| guest.nics.values().any(|nic| nic.is_of_container() == of_container))
    };
    let (tenants, ports) = (own(false), own(true));
    let named = options.paths.len() < PathKind::ALL.len();
    let told = |path: PathKind| match path {
        path if path.is_of_vm_nic() => tenants,
        path if path.is_of_ports() => ports,
        // Of a machine whose containers have such NICs alone.
        _ => !(ports && model.nics.is_empty()),
    };
    absent.retain(|absent| options.paths.contains(&absent.path) && (named || told(absent.path)));
    let between = |paths: &[PathKind]| -> Vec<BTreeSet<&Vantage>> {
        let pairs = pairs.iter().filter(|(path, ..)| paths.contains(path));
        pairs.map(|(_, a, b)| BTreeSet::from([&a.place, &b.place])).collect()
    };
    let vfs = between(&[PathKind::VfVfAcross, PathKind::VfVfInside]);
    let bridged = between(&[PathKind::Bridge]);
    let baseline = bridged.iter().any(|guests| vfs.contains(guests));
    // A bridge is as fast between any two containers: one is measured at every size, and another, between the owners of
    // the PFs, only at the largest of several. What the two other tools tell is held against netperf's, not against it.
    let worth = |(path, a, b): &Pair, tool: Tool, largest: bool| {
        let guests = BTreeSet::from([&a.place, &b.place]);
        match path {
            PathKind::Bridge => tool == Tool::Netperf && (!baseline || vfs.contains(&guests) || largest),
            PathKind::BridgeAcross | PathKind::VmOvs | PathKind::VmMacvlan | PathKind::VmIpvlan => {
                tool == Tool::Netperf
            }
            path if path.is_of_veths() => tool == Tool::Netperf,
            _ => true,
        }
    };
    // Each sample from a container in a VM has that made, which takes time: the ends of the sizes and one between are enough, and
    // of Open vSwitch, macvlan and ipvlan the largest of streams and the smallest of round trips.
    let sized = |path: PathKind, protocol: Protocol, size: u32, sizes: &[u32]| {
        let (least, most) = (sizes.iter().min() == Some(&size), sizes.iter().max() == Some(&size));
        match path {
            PathKind::VmOvs | PathKind::VmMacvlan | PathKind::VmIpvlan if protocol.is_stream() => most,
            PathKind::VmOvs | PathKind::VmMacvlan | PathKind::VmIpvlan => least,
            _ => !path.is_of_vm_nic() || least || most || size == BETWEEN,
        }
    };
    let chosen = |path: PathKind, protocol: Protocol| match path {
        _ if !options.few_of_vms => true,
        PathKind::VmBridge => matches!(protocol, Protocol::UdpStream | Protocol::UdpRr),
        // The builtin guest has none.
        PathKind::VmOvs => false,
        PathKind::VmMacvlan | PathKind::VmIpvlan | PathKind::VmPf => protocol == Protocol::UdpStream,
        _ => true,
    };
    let mut matrix = Matrix { absent, ..Matrix::default() };
    let mut block = 0;
    let of_vms = pairs.iter().any(|(path, ..)| path.is_of_vm_nic());
    let mut nulls: Vec<(Tool, Protocol, Load)> = Vec::new();
    let mut arms = |tool: Tool, protocol: Protocol, size: u32, direction: Direction, load: Load| {
        let sizes = if protocol.is_stream() { &options.stream_sizes } else { &options.request_sizes };
        // What VMs with NICs of their own receive by UDP, netperf cannot tell.
        let received = (tool, protocol) == (Tool::Iperf3, Protocol::UdpStream);
        let largest = tool == Tool::Probe || received || sizes.iter().all(|other| *other <= size);
        let mut add = |(path, client, server): &Pair, null: bool| {
            let (client, server) = (client.clone(), server.clone());
            let network = Network { protocol, path: *path, client, server, size, direction, load };
            let measurement = Measurement { tool, subject: Subject::Network(network) };
            let id = id(&measurement, null);
            matrix.cells.push(Planned { id, measurement, block, null });
        };
        let taken: Vec<&Pair> = pairs
            .iter()
            .filter(|pair| worth(pair, tool, largest && sizes.len() > 1 && protocol.is_stream()))
            .filter(|(path, ..)| !received || path.is_of_vm_nic())
            .filter(|(path, ..)| tool != Tool::Netperf || sized(*path, protocol, size, sizes))
            .filter(|(path, ..)| chosen(*path, protocol))
            .collect();
        taken.iter().for_each(|pair| add(pair, false));
        let null = match options.null {
            Null::None => false,
            Null::EachBlock => true,
            Null::EachProtocol => largest && !nulls.contains(&(tool, protocol, load)),
        };
        if let Some(first) = taken.first().filter(|_| null) {
            add(first, true);
            nulls.push((tool, protocol, load));
        }
        block += 1;
    };
    let (forward, reverse) = (Direction::Forward, Direction::Reverse);
    for protocol in &options.protocols {
        let sizes = if protocol.is_stream() { &options.stream_sizes } else { &options.request_sizes };
        for size in sizes {
            arms(Tool::Netperf, *protocol, *size, forward, Load::Closed);
        }
        if (*protocol, options.iperf3, of_vms) == (Protocol::UdpStream, true, true) {
            arms(Tool::Iperf3, *protocol, ONE_FRAME, forward, Load::Closed);
            arms(Tool::Iperf3, *protocol, ONE_FRAME, reverse, Load::Closed);
        }
        if let (Protocol::TcpStream, true, Some(size)) = (protocol, options.iperf3, sizes.iter().max()) {
            arms(Tool::Iperf3, *protocol, *size, forward, Load::Closed);
            arms(Tool::Iperf3, *protocol, *size, reverse, Load::Closed);
        }
        if let (Protocol::UdpRr, Some(rate), Some(size)) = (protocol, options.probe, sizes.iter().min()) {
            arms(Tool::Probe, *protocol, *size, forward, Load::Closed);
            arms(Tool::Probe, *protocol, *size, forward, Load::Open { rate });
        }
    }
    matrix
}

/// The storage measurements of one device or file, on the host and in guests; the first place is what the others are
/// compared with. `quick`: one block size, depth and number of jobs.
pub fn storage(target: &str, at: &[(Vantage, EndKind)], quick: bool, null: Null) -> Matrix {
    let mut matrix = Matrix::default();
    let blocks: Vec<u32> = if quick { vec![4096] } else { (9..=17).map(|power| 1 << power).collect() };
    let loads: &[(u32, u32)] = if quick { &[(1, 1)] } else { &[(1, 1), (16, 1), (1, 4)] };
    let mut number = 0;
    for pattern in [Pattern::Sequential, Pattern::Random] {
        for mix in [Mix::Read, Mix::Write, Mix::Mixed] {
            for (block, (depth, jobs)) in
                blocks.iter().flat_map(|b| loads.iter().map(move |load| (*b, *load)))
            {
                let null = match null {
                    Null::None => false,
                    Null::EachBlock => true,
                    Null::EachProtocol => Some(&block) == blocks.last() && (depth, jobs) == loads[0],
                };
                let again = at.first().filter(|_| null).map(|first| (first, true));
                for ((place, kind), null) in at.iter().map(|place| (place, false)).chain(again) {
                    let (place, kind, target) = (place.clone(), *kind, target.to_owned());
                    let storage = Storage { place, kind, target, pattern, mix, block, depth, jobs };
                    let measurement = Measurement { tool: Tool::Fio, subject: Subject::Storage(storage) };
                    let id = id(&measurement, null);
                    matrix.cells.push(Planned { id, measurement, block: number, null });
                }
                number += 1;
            }
        }
    }
    matrix
}

/// A cell's name: all that tells it from others, so that the same cell of another run has the same.
fn id(measurement: &Measurement, null: bool) -> String {
    let again = if null { " again" } else { "" };
    match &measurement.subject {
        Subject::Network(n) => {
            let load = match n.load {
                Load::Closed => String::new(),
                Load::Open { rate } => format!(" open {rate}/s"),
            };
            let direction = if n.direction == Direction::Reverse { " reverse" } else { "" };
            format!(
                "{} {} {} {}>{} {}B{direction}{load}{again}",
                measurement.tool, n.protocol, n.path, n.client, n.server, n.size
            )
        }
        Subject::Storage(s) => {
            let place = match &s.place {
                Vantage::Host => "host",
                Vantage::Guest(guest) => guest.as_str(),
            };
            format!(
                "{} {} {} {place} {} {}B depth {} jobs {}{again}",
                measurement.tool, s.pattern, s.mix, s.target, s.block, s.depth, s.jobs
            )
        }
    }
}
