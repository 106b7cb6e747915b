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

    /// Rows below a header, each column that is used as wide as it must be; the widest one gives way when a row grows too long.
    pub fn columns<const N: usize>(
        &self,
        header: &[&str; N],
        rows: &[[String; N]],
        used: [bool; N],
    ) -> Vec<String> {
        let mut widths: [usize; N] = std::array::from_fn(|column| {
            let cells = rows.iter().map(|row| columns(&row[column]));
            let widest = cells.fold(columns(header[column]), usize::max);
            if used[column] { widest } else { 0 }
        });
        // Two before, two between, and two more for a table that stands inside another.
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(4 + 2 * (N - 1)));
        while widths.iter().sum::<usize>() > room
            && let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 1)
        {
            *widest -= 1;
        }
        let line = |cells: &[&str]| {
            let mut text = String::from("  ");
            for (cell, width) in cells.iter().zip(widths).filter(|(_, width)| *width > 0) {
                let cell = clip(cell, width);
                let fill = width.saturating_sub(columns(&cell)) + 2;
                let _ = write!(text, "{cell}{:fill$}", "");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
            text
        };
        let mut lines = vec![line(header)];
        lines.extend(rows.iter().map(|row| line(&row.each_ref().map(String::as_str))));
        lines
    }
}

impl fmt::Write for Paragraphs {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}
