//! What is shown while a run measures: what is measured now, how long it will take, and what came out so far. Text as a pure
//! function of what was told; where it is drawn is the printer's.

mod grid;

use std::collections::{HashMap, HashSet};

use penstock_measure::{
    event::{CellSample, Event},
    matrix::Matrix,
};
use penstock_model::{
    measurement::{Metric, Quantity, Rules, StopReason},
    text::{Style, Styled, clip, counted},
};

use self::grid::Grid;

/// What is to be seen of a run that goes on.
pub struct Live {
    grids: Vec<Grid>,
    /// By cell: its block.
    blocks: HashMap<String, usize>,
    open: Vec<Open>,
    cells: usize,
    over: usize,
    missing: usize,
    left_out: usize,
    prepared: Option<String>,
    taken: usize,
    failed: usize,
    emulated: bool,
    rules: Rules,
    now: Option<Now>,
}

/// A block that is measured.
struct Open {
    name: String,
    /// Its cells that are not over.
    left: usize,
    /// Its cells that a sample was taken of, warm-up included.
    sampled: HashSet<String>,
}

/// The sample that is being taken.
struct Now {
    cell: String,
    sample: u32,
    at: f64,
    left: Option<f64>,
}

/// Where it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canvas {
    /// How many columns a line may fill.
    pub width: usize,
    /// How many lines the picture may have.
    pub height: usize,
}

impl Live {
    /// Before anything was measured.
    pub fn new(matrix: &Matrix, rules: &Rules, emulated: bool) -> Live {
        let blocks = matrix.blocks();
        let mut open = Vec::new();
        let mut of_cells = HashMap::new();
        for (number, block) in blocks.iter().enumerate() {
            let what = block.first().map(|at| grid::column_of(&matrix.cells[*at].measurement));
            let name = what.unwrap_or_default();
            open.push(Open { name, left: block.len(), sampled: HashSet::new() });
            of_cells.extend(block.iter().map(|at| (matrix.cells[*at].id.clone(), number)));
        }
        Live {
            grids: grid::grids(matrix),
            blocks: of_cells,
            open,
            cells: matrix.cells.len(),
            over: 0,
            missing: 0,
            left_out: 0,
            prepared: None,
            taken: 0,
            failed: 0,
            emulated,
            rules: *rules,
            now: None,
        }
    }

    /// Takes in what happened. Gives a line that is worth saying for itself, where nothing is redrawn.
    pub fn tell(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Prepared { cells, missing, left_out, duration } => {
                (self.cells, self.missing, self.left_out) = (*cells, *missing, *left_out);
                let told = |count: usize, what: &str| match count {
                    0 => String::new(),
                    1 => format!(", 1 is {what}"),
                    more => format!(", {more} are {what}"),
                };
                let not = told(*missing, "not") + &told(*left_out, "left out for want of time");
                let times = duration.map_or_else(String::new, |duration| {
                    let (least, most) = (time(duration.least), time(duration.most));
                    if least == most {
                        format!(": {least} in all")
                    } else {
                        format!(": {least} to {most} in all")
                    }
                });
                let are = if *cells == 1 { "is" } else { "are" };
                let line = format!("{} {are} measured{not}{times}", counted(*cells, "cell"));
                // Told again after a warm-up, which may have changed nothing.
                let is_new = self.prepared.as_ref() != Some(&line);
                is_new.then(|| self.prepared.insert(line).clone())
            }
            Event::Sampling { cell, sample, at, left, .. } => {
                self.now = Some(Now { cell: cell.clone(), sample: *sample, at: *at, left: *left });
                None
            }
            Event::Sampled(CellSample { cell, metric, value, median, interval, .. }) => {
                if let Some(open) = self.blocks.get(cell).and_then(|block| self.open.get_mut(*block)) {
                    open.sampled.insert(cell.clone());
                }
                self.taken += 1;
                self.failed += usize::from(value.is_none());
                for grid in &mut self.grids {
                    grid.tell(cell, *metric, *median, *interval);
                }
                None
            }
            Event::Stopped { cell, why } => {
                let open = self.open.get_mut(*self.blocks.get(cell)?)?;
                open.left = open.left.saturating_sub(1);
                // What ends for want of time was left out, and counts among what is not reached.
                self.over += usize::from(*why != StopReason::TimeUp && open.sampled.contains(cell));
                let Open { name, left, sampled } = open;
                (*left == 0).then(|| match sampled.is_empty() && *why == StopReason::TimeUp {
                    true => format!("{name}: left out, there is no time for it"),
                    false => format!("{name}: {why}"),
                })
            }
            Event::Note(note) => Some(note.clone()),
        }
    }

    /// One line, for where nothing is redrawn.
    pub fn line(&self) -> String {
        let Some(now) = &self.now else { return "Making ready".to_owned() };
        format!("{}, {}: {} (sample {})", self.counts(), self.times(now), now.cell, now.sample)
    }

    /// The whole picture, no line wider and not more lines than the canvas has.
    pub fn picture(&self, canvas: Canvas) -> Vec<Styled> {
        let Some(now) = &self.now else { return vec![clip("Making ready", canvas.width).into()] };
        let first = self.rules.warm_up + self.rules.minimum;
        let last = self.rules.warm_up + self.rules.maximum;
        let number = match now.sample <= self.rules.warm_up {
            true => format!("warm-up {}", now.sample),
            false if first == last => format!("sample {} of {last}", now.sample),
            false => format!("sample {} of {first} to {last}", now.sample),
        };
        let mut lines = vec![
            Styled::of(Style::Bold, clip(&format!("{number}  {}", now.cell), canvas.width)),
            clip(&self.bar(now, canvas.width), canvas.width).into(),
        ];
        let counts = self.counts();
        lines.push(clip(&counts, canvas.width).into());
        let tables = self.tables(canvas.width, canvas.height.saturating_sub(lines.len() + 1));
        let last = tables.len().saturating_sub(1);
        let style = |at| if at == last { Style::Dim } else { Style::Plain };
        lines.extend(tables.into_iter().enumerate().map(|(at, line)| Styled::of(style(at), line)));
        lines.truncate(canvas.height.max(1));
        lines
    }

    /// What came out so far, in as many tables as there is room for, and what their marks mean.
    pub fn tables(&self, width: usize, room: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for grid in &self.grids {
            let table = grid.lines(width, self.emulated);
            if lines.len() + table.len() < room {
                lines.extend(table);
            }
        }
        if !lines.is_empty() {
            let marks = match self.emulated {
                true => {
                    "x: as many times the bridge, else the first row.  *: emulated, only ratios mean anything"
                }
                false => "x: as many times the bridge between the same guests, else the first row",
            };
            lines.push(clip(marks, width));
        }
        lines
    }

    fn counts(&self) -> String {
        // All cells go on side by side, and most end together: that none is done says nothing until one is.
        let done = if self.over > 0 { format!(", {} done", self.over) } else { String::new() };
        let mut text = format!("{} cells{done}, {} samples", self.cells, self.taken);
        if self.failed > 0 {
            text.push_str(&format!(", {} without a value", self.failed));
        }
        if self.missing > 0 {
            text.push_str(&format!(", {} missing", self.missing));
        }
        if self.left_out > 0 {
            text.push_str(&format!(", {} not reached", self.left_out));
        }
        text
    }

    fn times(&self, now: &Now) -> String {
        match now.left {
            Some(left) => format!("{} so far, about {} left", time(now.at), time(left)),
            None => format!("{} so far", time(now.at)),
        }
    }

    fn bar(&self, now: &Now, width: usize) -> String {
        let times = self.times(now);
        let Some(left) = now.left else { return times };
        let share = (now.at / (now.at + left).max(0.001)).clamp(0.0, 1.0);
        let room = width.saturating_sub(times.chars().count() + 10).min(30);
        if room < 5 {
            return times;
        }
        let full = (share * room as f64) as usize;
        format!("[{}{}] {:>3.0}%  {times}", "=".repeat(full), " ".repeat(room - full), share * 100.0)
    }
}

/// A value as a person reads it, marked where only ratios mean anything.
pub fn value(metric: Metric, value: f64, emulated: bool) -> String {
    format!("{}{}", Quantity { value, unit: metric.unit() }, if emulated { "*" } else { "" })
}

/// Seconds as a person says them.
pub fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

#[cfg(test)]
mod tests;
