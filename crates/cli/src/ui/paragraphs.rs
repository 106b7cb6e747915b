//! Headings, paragraphs and columns of text that fit the width that data may take.

use std::fmt::{self, Write};

use penstock_model::text::{clip, columns, wrap};

/// Text of at most so many columns.
pub struct Paragraphs {
    text: String,
    width: Option<usize>,
}

impl Paragraphs {
    /// No text yet. `None`: lines may be of any length.
    pub fn new(width: Option<usize>) -> Paragraphs {
        Paragraphs { text: String::new(), width }
    }

    /// The text as written so far.
    pub fn finish(self) -> String {
        self.text
    }

    /// Goes on with this text as it is.
    pub fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// A line that others stand below, with an empty one before it.
    pub fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// A paragraph after `prefix`, its further lines indented as deep; a word longer than a line is cut into several.
    pub fn wrapped(&mut self, prefix: &str, text: &str) {
        let indent = " ".repeat(columns(prefix));
        let room = self.width.map(|width| width.saturating_sub(indent.len()));
        let mut lead = prefix;
        for line in wrap(text, room).iter().filter(|line| !line.is_empty()) {
            let _ = writeln!(self.text, "{lead}{line}");
            lead = &indent;
        }
    }

    /// Rows below a header, so many columns deep, with each column that is used as wide as it must be. Rows that are too long for a line go on
    /// in further ones, deeper than that: half a PCI address or MAC is of no use to anybody. Only a cell is cut that a whole line is too short
    /// for. Each text is one row, with the ends of its lines.
    pub fn columns<const N: usize>(
        &self,
        indent: usize,
        header: &[&str; N],
        rows: &[[String; N]],
        used: [bool; N],
    ) -> Vec<String> {
        let widest = |column: usize| {
            let cells = rows.iter().map(|row| columns(&row[column]));
            cells.fold(columns(header[column]), usize::max)
        };
        let mut lines: Vec<LineOfColumns> = Vec::new();
        for column in (0..N).filter(|column| used[*column]) {
            let width = widest(column);
            match lines.last_mut().filter(|line| line.room >= width + GAP) {
                Some(line) => {
                    line.room -= width + GAP;
                    line.columns.push((column, width));
                }
                None => {
                    let indent = if lines.is_empty() { indent } else { indent + DEEPER };
                    let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(1));
                    let width = width.min(room);
                    lines.push(LineOfColumns { indent, room: room - width, columns: vec![(column, width)] });
                }
            }
        }
        let row = |cells: &[&str]| -> String { lines.iter().map(|line| line.of(cells)).collect() };
        let mut all = vec![row(header)];
        all.extend(rows.iter().map(|cells| row(&cells.each_ref().map(String::as_str))));
        all
    }
}

/// So much is between two columns.
const GAP: usize = 2;

/// So much deeper are the further lines of a row than its first: more than what is said below a row.
const DEEPER: usize = 4;

/// The columns that stand in one line of a row.
struct LineOfColumns {
    indent: usize,
    /// How much of the line is left.
    room: usize,
    /// Their places and widths.
    columns: Vec<(usize, usize)>,
}

impl LineOfColumns {
    fn of(&self, cells: &[&str]) -> String {
        let mut text = " ".repeat(self.indent);
        for (column, width) in &self.columns {
            let cell = clip(cells[*column], *width);
            let fill = width.saturating_sub(columns(&cell)) + GAP;
            let _ = write!(text, "{cell}{:fill$}", "");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

impl fmt::Write for Paragraphs {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 5] = ["BDF", "name", "MAC", "unused", "IOMMU"];

    fn table(width: usize, indent: usize) -> String {
        let row = ["0000:01:10.4", "eth5", "02:c1:fc:27:f0:01", "-", "14"].map(str::to_owned);
        Paragraphs::new(Some(width))
            .columns(indent, &HEADER, &[row], [true, true, true, false, true])
            .concat()
    }

    #[test]
    fn rows_that_just_fit_stand_in_one_line_whatever_columns_are_hidden() {
        let wide = "    BDF           name  MAC                IOMMU\n    0000:01:10.4  eth5  02:c1:fc:27:f0:01  14\n";
        assert_eq!(table(48, 4), wide);
        assert_eq!(wide.lines().map(str::len).max(), Some(48));
    }

    #[test]
    fn a_row_that_is_too_long_goes_on_and_loses_nothing() {
        let two =
            "  BDF           name  MAC\n      IOMMU\n  0000:01:10.4  eth5  02:c1:fc:27:f0:01\n      14\n";
        assert_eq!(table(45, 2), two);
        for width in 23..60 {
            let text = table(width, 2);
            assert!(!text.contains('…') && text.lines().all(|line| line.len() <= width), "{width}: {text}");
        }
        assert!(table(22, 2).contains("02:c1:fc:27:f0:…"), "wider than a line");
    }
}
