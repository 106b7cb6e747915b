//! What came out so far, as a table: where it was measured, against what was.

use std::collections::{BTreeSet, HashMap};

use penstock_measure::matrix::{Matrix, Planned};
use penstock_model::{
    ByteSize,
    measurement::{
        Direction, Estimate, Load, Measurement, Metric, Network, PathKind, Protocol, Quantity, Storage,
        Subject, Tool,
    },
    text::clip,
    verdict::Vantage,
};

/// A table: a row for each path or place, a column for each protocol or pattern.
pub struct Grid {
    rows: Vec<Row>,
    columns: Vec<String>,
    /// By cell: its row and column.
    at: HashMap<String, (usize, usize)>,
    seen: HashMap<(usize, usize), Partial>,
}

struct Row {
    name: String,
    /// The row that it is compared with.
    base: Option<usize>,
}

#[derive(Clone, Copy)]
struct Partial {
    metric: Metric,
    median: f64,
    interval: Option<Estimate>,
}

/// How much of a value fits.
#[derive(Clone, Copy)]
enum Detail {
    /// Value, half the interval's width, ratio.
    All,
    /// Value and ratio.
    Short,
    /// The ratio; the value where there is none.
    Least,
}

/// One table for the network, one for storage, as far as there is either.
pub fn grids(matrix: &Matrix) -> Vec<Grid> {
    [network(matrix), storage(matrix)].into_iter().flatten().collect()
}

/// What is measured there, without where: "tcp stream 16KiB".
pub fn column_of(measurement: &Measurement) -> String {
    match &measurement.subject {
        Subject::Network(n) => {
            let tool = if measurement.tool == Tool::Netperf {
                String::new()
            } else {
                format!("{} ", measurement.tool)
            };
            let reverse = if n.direction == Direction::Reverse { " reverse" } else { "" };
            format!("{tool}{} {}{reverse}", n.protocol, ByteSize(n.size.into()))
        }
        Subject::Storage(s) => format!("{} {} {}", s.pattern, s.mix, ByteSize(s.block.into())),
    }
}

fn arms(matrix: &Matrix) -> impl Iterator<Item = &Planned> {
    matrix.cells.iter().filter(|cell| !cell.null)
}

/// Streams at their largest size, request and response at its smallest: what a network is known by.
fn network(matrix: &Matrix) -> Option<Grid> {
    let all: Vec<(&Planned, &Network)> = arms(matrix)
        .filter_map(|cell| Some((cell, cell.measurement.network()?)))
        .filter(|(cell, network)| cell.measurement.tool == Tool::Netperf && network.load == Load::Closed)
        .collect();
    let sizes =
        |protocol: Protocol| all.iter().filter(move |(_, n)| n.protocol == protocol).map(|(_, n)| n.size);
    let shown = |protocol: Protocol| match protocol.is_stream() {
        true => sizes(protocol).max(),
        false => sizes(protocol).min(),
    };
    let columns: Vec<(Protocol, u32)> =
        Protocol::ALL.into_iter().filter_map(|protocol| Some((protocol, shown(protocol)?))).collect();
    let mut pairs: Vec<&Network> = Vec::new();
    for (_, network) in &all {
        if !pairs.iter().any(|known| same_pair(known, network)) {
            pairs.push(network);
        }
    }
    let name = |pair: &&Network| match pairs.iter().filter(|other| other.path == pair.path).count() {
        1 => pair.path.to_string(),
        _ => format!("{} {}>{}", pair.path, pair.client, pair.server),
    };
    let bridge = |pair: &&Network| {
        let between = places(pair);
        let bridges = |kind: PathKind| {
            let same = |other: &&Network| other.path == kind && places(other) == between;
            pairs.iter().position(|other| kind.is_baseline_of(pair.path) && same(other))
        };
        let kinds = [PathKind::BridgeAcross, PathKind::Bridge, PathKind::VethVeth, PathKind::VethHost];
        kinds.into_iter().find_map(bridges)
    };
    let base = |(row, pair): (usize, &&Network)| match bridge(pair) {
        Some(bridge) => Some(bridge),
        _ if row != 0 => Some(0),
        _ => None,
    };
    let rows = pairs
        .iter()
        .enumerate()
        .map(|(row, pair)| Row { name: name(pair), base: base((row, pair)) })
        .collect();
    let mut at = HashMap::new();
    for (cell, network) in &all {
        let row = pairs.iter().position(|pair| same_pair(pair, network));
        let column = columns.iter().position(|column| *column == (network.protocol, network.size));
        if let (Some(row), Some(column)) = (row, column) {
            at.insert(cell.id.clone(), (row, column));
        }
    }
    let columns: Vec<String> =
        columns.into_iter().map(|(protocol, size)| format!("{protocol} {}", ByteSize(size.into()))).collect();
    (!columns.is_empty()).then(|| Grid { rows, columns, at, seen: HashMap::new() })
}

fn same_pair(a: &Network, b: &Network) -> bool {
    (a.path, &a.client, &a.server) == (b.path, &b.client, &b.server)
}

fn places(network: &Network) -> BTreeSet<&Vantage> {
    BTreeSet::from([&network.client.place, &network.server.place])
}

/// The block size nearest to a page, one operation at a time.
fn storage(matrix: &Matrix) -> Option<Grid> {
    let all: Vec<(&Planned, &Storage)> = arms(matrix)
        .filter_map(|cell| match &cell.measurement.subject {
            Subject::Storage(storage) => Some((cell, storage)),
            Subject::Network(_) => None,
        })
        .filter(|(_, storage)| (storage.depth, storage.jobs) == (1, 1))
        .collect();
    let size = all.iter().map(|(_, s)| s.block).min_by_key(|block| block.abs_diff(4096))?;
    let mut rows: Vec<(Row, &Storage)> = Vec::new();
    let mut columns: Vec<String> = Vec::new();
    let mut at = HashMap::new();
    for (cell, storage) in all.iter().filter(|(_, storage)| storage.block == size) {
        let same =
            |(_, known): &(Row, &Storage)| known.place == storage.place && known.target == storage.target;
        let row = rows.iter().position(same).unwrap_or_else(|| {
            let base = rows.iter().position(|(_, known)| known.target == storage.target);
            let place = match &storage.place {
                Vantage::Host => "host",
                Vantage::Guest(guest) => guest.as_str(),
            };
            rows.push((Row { name: format!("{place} {}", storage.target), base }, storage));
            rows.len() - 1
        });
        let name = column_of(&cell.measurement);
        let column = columns.iter().position(|known| *known == name).unwrap_or_else(|| {
            columns.push(name);
            columns.len() - 1
        });
        at.insert(cell.id.clone(), (row, column));
    }
    let rows = rows.into_iter().map(|(row, _)| row).collect();
    Some(Grid { rows, columns, at, seen: HashMap::new() })
}

impl Grid {
    /// Takes in what is known of a cell so far.
    pub fn tell(&mut self, cell: &str, metric: Metric, median: Option<f64>, interval: Option<Estimate>) {
        if let (Some(at), Some(median)) = (self.at.get(cell), median) {
            self.seen.insert(*at, Partial { metric, median, interval });
        }
    }

    /// The table with as much in it as fits into this width; columns that do not are left out, which is said.
    pub fn lines(&self, width: usize, emulated: bool) -> Vec<String> {
        for detail in [Detail::All, Detail::Short, Detail::Least] {
            if let Some(lines) = self.drawn(width, detail, self.columns.len(), emulated) {
                return lines;
            }
        }
        let fewer = (1..self.columns.len()).rev();
        fewer
            .filter_map(|columns| self.drawn(width, Detail::Least, columns, emulated))
            .next()
            .unwrap_or_default()
    }

    fn drawn(&self, width: usize, detail: Detail, columns: usize, emulated: bool) -> Option<Vec<String>> {
        let left_out = match self.columns.len() - columns {
            0 => String::new(),
            some => format!("(and {some} more)"),
        };
        let head: Vec<String> =
            std::iter::once(left_out).chain(self.columns[..columns].iter().cloned()).collect();
        let mut table = vec![head];
        for (number, row) in self.rows.iter().enumerate() {
            let values = (0..columns).map(|column| self.shown(number, column, detail, emulated));
            table.push(std::iter::once(clip(&row.name, 28)).chain(values).collect());
        }
        let widest = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        // A table that jumps with each value is hard to read.
        let least = match detail {
            Detail::All => 20,
            Detail::Short => 16,
            Detail::Least => 10,
        };
        let widths: Vec<usize> =
            (0..=columns).map(|at| if at == 0 { widest(at) } else { widest(at).max(least) }).collect();
        let full: usize = widths.iter().sum::<usize>() + 2 * columns;
        if full > width {
            return None;
        }
        let line = |row: &Vec<String>| {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}")).collect();
            cells.join("  ").trim_end().to_owned()
        };
        Some(table.iter().map(line).collect())
    }

    fn shown(&self, row: usize, column: usize, detail: Detail, emulated: bool) -> String {
        let Some(partial) = self.seen.get(&(row, column)) else {
            let measured = self.at.values().any(|at| *at == (row, column));
            return if measured { "·".to_owned() } else { "-".to_owned() };
        };
        let base = self.rows[row].base.and_then(|base| self.seen.get(&(base, column)));
        let ratio = base
            .map(|base| partial.median / base.median)
            .filter(|ratio| ratio.is_finite())
            .map(|ratio| format!("{ratio:.2}x"));
        let value = super::value(partial.metric, partial.median, emulated);
        let spread = partial.interval.and_then(|interval| interval.relative_half_width());
        let spread = spread.map(|width| {
            format!(
                "±{}",
                Quantity { value: width * 100.0, unit: penstock_model::measurement::Unit::Percent }
            )
        });
        let words = match detail {
            Detail::All => vec![Some(value), spread, ratio],
            Detail::Short => vec![Some(value), ratio],
            Detail::Least => vec![Some(ratio.unwrap_or(value))],
        };
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}
