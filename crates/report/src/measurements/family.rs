//! Cells by what they have in common: a *family* is everything that one heat map or chart shows, a *line* of it what differs
//! from another line in where or how it was measured, and the column is the size.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use penstock_model::{
    EndpointName,
    measurement::{
        Cell, Direction, End, EndKind, Load, Measurement, Measurements, Mix, PathKind, Pattern, Protocol,
        Subject, Tool,
    },
    verdict::Vantage,
};

use super::shown::{bytes, count};
use crate::{
    charts::{COLOURS, Style},
    printable::one_line,
};

/// What a family's cells have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind<'a> {
    /// Network cells of one protocol.
    Network(Protocol),
    /// Target, order and mix.
    Storage(&'a str, Pattern, Mix),
}

/// What tells a line from the others of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Line<'a> {
    /// Between two ends.
    Network {
        /// What is crossed.
        path: PathKind,
        /// What kind of places the ends are in.
        kinds: [EndKind; 2],
        /// Where the client runs.
        client: &'a End,
        /// Where the server runs.
        server: &'a End,
        /// The program that measures.
        tool: Tool,
        /// Which end sends.
        direction: Direction,
        /// What decides when the next message is sent.
        load: Load,
    },
    /// Of one device or file.
    Storage {
        /// What kind of place fio runs in.
        kind: EndKind,
        /// Where it runs.
        place: &'a Vantage,
        /// Operations in flight.
        depth: u32,
        /// Jobs at once.
        jobs: u32,
    },
}

/// The cells that one heat map shows.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    /// What they have in common.
    pub kind: Kind<'a>,
    /// The lines, in the order of the report.
    pub lines: Vec<Line<'a>>,
    /// The sizes, from the least.
    pub sizes: Vec<u32>,
    /// Positions among all cells, by line and size. Second arms (A/A) are not here.
    at: HashMap<(Line<'a>, u32), usize>,
    /// Positions of all cells, second arms too, in the order of the report.
    pub all: Vec<usize>,
}

impl<'a> Family<'a> {
    /// The cell of this line and size.
    pub(crate) fn cell(&self, line: Line<'a>, size: u32) -> Option<usize> {
        self.at.get(&(line, size)).copied()
    }
}

/// All families, networks first.
pub(crate) fn families(measurements: &Measurements) -> Vec<Family<'_>> {
    let mut kinds: BTreeMap<Kind<'_>, Vec<usize>> = BTreeMap::new();
    for (place, cell) in measurements.cells.iter().enumerate() {
        kinds.entry(kind(&cell.measurement)).or_default().push(place);
    }
    let family = |(kind, mut all): (_, Vec<usize>)| {
        let key = |place: &usize| {
            let cell = &measurements.cells[*place];
            (line(&cell.measurement), cell.measurement.size(), cell.null)
        };
        all.sort_by_key(key);
        let plain = || all.iter().map(|place| (key(place), *place)).filter(|((.., null), _)| !null);
        Family {
            kind,
            lines: plain().map(|((line, ..), _)| line).collect::<BTreeSet<_>>().into_iter().collect(),
            sizes: plain().map(|((_, size, _), _)| size).collect::<BTreeSet<_>>().into_iter().collect(),
            // Of two cells that claim to be the same the first counts.
            at: plain().map(|((line, size, _), place)| ((line, size), place)).rev().collect(),
            all,
        }
    };
    kinds.into_iter().map(family).collect()
}

/// What a cell's family is.
pub(crate) fn kind(measurement: &Measurement) -> Kind<'_> {
    match &measurement.subject {
        Subject::Network(network) => Kind::Network(network.protocol),
        Subject::Storage(storage) => Kind::Storage(&storage.target, storage.pattern, storage.mix),
    }
}

/// What a cell's line is.
pub(crate) fn line(measurement: &Measurement) -> Line<'_> {
    match &measurement.subject {
        Subject::Network(network) => Line::Network {
            path: network.path,
            kinds: [network.client.kind, network.server.kind],
            client: &network.client,
            server: &network.server,
            tool: measurement.tool,
            direction: network.direction,
            load: network.load,
        },
        Subject::Storage(storage) => Line::Storage {
            kind: storage.kind,
            place: &storage.place,
            depth: storage.depth,
            jobs: storage.jobs,
        },
    }
}

/// Everything about a cell in one line of text.
pub(crate) fn label(cell: &Cell) -> String {
    let line = line(&cell.measurement);
    let again = if cell.null { ", once more (A/A)" } else { "" };
    let detail = Some(line.detail()).filter(|detail| !detail.is_empty());
    let detail = detail.map(|detail| format!(", {detail}")).unwrap_or_default();
    format!(
        "{}, {}, {}{detail}{again}",
        kind(&cell.measurement).title(),
        bytes(cell.measurement.size()),
        line.name()
    )
}

impl Kind<'_> {
    /// Its name for a heading.
    pub(crate) fn title(self) -> String {
        match self {
            Kind::Network(Protocol::UdpStream) => "UDP stream".to_owned(),
            Kind::Network(Protocol::TcpStream) => "TCP stream".to_owned(),
            Kind::Network(Protocol::UdpRr) => "UDP request-response".to_owned(),
            Kind::Network(Protocol::TcpRr) => "TCP request-response".to_owned(),
            Kind::Storage(target, pattern, mix) => {
                let mix = match mix {
                    Mix::Read => "read",
                    Mix::Write => "write",
                    Mix::Mixed => "read and write mixed",
                };
                format!("{} {mix}, {}", capital(&pattern.to_string()), one_line(target))
            }
        }
    }

    /// What size means for it.
    pub(crate) fn size_word(self) -> &'static str {
        match self {
            Kind::Network(_) => "message size",
            Kind::Storage(..) => "block size",
        }
    }
}

/// The text with its first letter large.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The word for a kind of place.
pub(crate) fn kind_word(kind: EndKind) -> &'static str {
    match kind {
        EndKind::Host => "host",
        EndKind::Container => "container",
        EndKind::Vm => "VM",
    }
}

/// A place's name.
pub(crate) fn place_word(place: &Vantage) -> String {
    match place {
        Vantage::Host => "host".to_owned(),
        Vantage::Guest(guest) => guest.to_string(),
    }
}

/// How a network is measured: the program, which end sends, and what decides when.
pub(crate) type NetworkMethod = (Tool, Direction, Load);

impl<'a> Line<'a> {
    /// How it was measured; `None` for storage.
    pub(crate) fn way(self) -> Option<NetworkMethod> {
        match self {
            Line::Network { tool, direction, load, .. } => Some((tool, direction, load)),
            Line::Storage { .. } => None,
        }
    }

    /// The same line measured in another way.
    pub(crate) fn measured(self, way: Option<NetworkMethod>) -> Line<'a> {
        match (self, way) {
            (Line::Network { path, kinds, client, server, .. }, Some((tool, direction, load))) => {
                Line::Network { path, kinds, client, server, tool, direction, load }
            }
            (line, _) => line,
        }
    }

    /// The same line measured in the usual way.
    pub(crate) fn usual(self) -> Line<'a> {
        self.measured(Some((Tool::Netperf, Direction::Forward, Load::Closed)))
    }
}

impl Line<'_> {
    /// What it is, without where.
    pub(crate) fn name(self) -> String {
        match self {
            Line::Network { path: PathKind::VfVfInside, client, .. } => {
                match client.function.as_ref().and_then(EndpointName::of_model) {
                    Some(function) => format!("vf-vf inside {}", function.nic),
                    None => PathKind::VfVfInside.to_string(),
                }
            }
            Line::Network { path, .. } => path.to_string(),
            Line::Storage { place, .. } => place_word(place),
        }
    }

    /// Where it is, and how it was measured where that is not the usual way.
    pub(crate) fn detail(self) -> String {
        match self {
            Line::Network { .. } => {
                let (ends, variant) = (self.ends(), self.variant());
                if variant.is_empty() { ends } else { format!("{ends}, {variant}") }
            }
            Line::Storage { depth, jobs, .. } => load_word(depth, jobs),
        }
    }

    /// Between which ends.
    pub(crate) fn ends(self) -> String {
        match self {
            Line::Network { client, server, .. } => format!("{client} → {server}"),
            Line::Storage { .. } => String::new(),
        }
    }

    /// How it was measured, where that is not the usual way: netperf, the client sends, closed loop.
    pub(crate) fn variant(self) -> String {
        let Line::Network { tool, direction, load, .. } = self else { return String::new() };
        let mut words = Vec::new();
        // Only the probe measures in an open loop.
        if tool != Tool::Netperf && load == Load::Closed {
            words.push(tool.to_string());
        }
        if direction == Direction::Reverse {
            words.push("server sends".to_owned());
        }
        if let Load::Open { rate } = load {
            words.push(format!("open loop, {}/s", count(rate)));
        }
        words.join(", ")
    }

    /// Whether a clock decides when it sends.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Line::Network { load: Load::Open { .. }, .. })
    }

    /// Lines of the same group stand in one chart: the kinds of places that the ends are in. First comes what stays between
    /// containers, last what involves the host.
    pub(crate) fn group(self) -> (bool, [EndKind; 2]) {
        match self {
            Line::Network { kinds: [a, b], .. } => {
                let kinds = if a <= b { [a, b] } else { [b, a] };
                (kinds.contains(&EndKind::Host), kinds)
            }
            Line::Storage { kind, .. } => (false, [kind; 2]),
        }
    }

    /// What decides its colour.
    fn colour(self, places: &mut Vec<String>) -> usize {
        match self {
            Line::Network { path, .. } => PathKind::ALL.iter().position(|p| *p == path).unwrap_or(0),
            Line::Storage { place, .. } => {
                let place = place_word(place);
                places.iter().position(|known| *known == place).unwrap_or_else(|| {
                    places.push(place);
                    places.len() - 1
                })
            }
        }
    }
}

/// Operations in flight, in words.
pub(crate) fn load_word(depth: u32, jobs: u32) -> String {
    let jobs = if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") };
    format!("depth {depth}, {jobs}")
}

/// How each line looks: a colour and shape for each path or place, and another dash for each more of the same.
pub(crate) fn styles(lines: &[Line<'_>]) -> Vec<Style> {
    let mut places = Vec::new();
    let mut used: HashMap<usize, usize> = HashMap::new();
    let style = |line: &Line<'_>| {
        // Beyond the colours that there are, another dash tells lines apart.
        let colour = line.colour(&mut places) % COLOURS;
        let dash = used.entry(colour).or_default();
        *dash += 1;
        Style::new(colour, *dash - 1)
    };
    lines.iter().map(style).collect()
}

/// Short names for lines that stand beside each other in one chart: where two have the same, the guests' names help.
pub(crate) fn names(lines: &[Line<'_>]) -> Vec<String> {
    let plain = |line: &Line<'_>| match line {
        Line::Network { path, .. } => path.to_string(),
        Line::Storage { .. } => line.name(),
    };
    let twice = |line: &Line<'_>| lines.iter().filter(|other| plain(other) == plain(line)).count() > 1;
    let name = |line: &Line<'_>| match line {
        _ if !twice(line) => plain(line),
        Line::Network { path, client, server, .. } => {
            let path = match path {
                PathKind::VfVfInside => "inside",
                PathKind::VfVfAcross => "across",
                PathKind::PfPf | PathKind::GuestHost => "",
                PathKind::Bridge => "bridge",
                PathKind::BridgeAcross => "bridge across",
                PathKind::VmVf => "vf",
                PathKind::VmBridge => "bridge",
                PathKind::VmBridgeNat => "bridge nat",
                PathKind::VmOvs => "ovs",
                PathKind::VmMacvlan => "macvlan",
                PathKind::VmIpvlan => "ipvlan",
                PathKind::VmPf => "pf",
                PathKind::PortPort | PathKind::PortHost => "port",
                PathKind::VethVeth | PathKind::VethHost => "veth",
            };
            format!("{path} {}→{}", place_word(&client.place), place_word(&server.place))
                .trim_start()
                .to_owned()
        }
        Line::Storage { depth, jobs, .. } => format!("{} {depth}×{jobs}", line.name()),
    };
    lines.iter().map(name).collect()
}
