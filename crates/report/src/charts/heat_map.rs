//! A table whose cells are coloured by how good they are. The number stands in each cell, so that nothing is told by colour
//! alone; the colours go from light to dark, which the colour-blind and black-and-white printers keep.

use serde::Serialize;

/// How many steps the scale of colours has; the style sheet has as many.
pub(crate) const STEPS: usize = 9;

/// A heat map.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct HeatMap {
    /// Its name within the page.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What the numbers are, and what the colours say.
    pub about: String,
    /// What stands over the row's heads.
    pub corner: String,
    /// The heads of the columns, from left to right.
    pub columns: Vec<HeatColumn>,
    /// Whether the rows say what their colours are relative to.
    pub scales: bool,
    /// The rows that are shown, from top to bottom.
    pub rows: Vec<HeatRow>,
    /// How many rows are not shown.
    pub left_out: usize,
    /// How many columns are not shown.
    pub columns_left_out: usize,
}

/// The head of a column.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct HeatColumn {
    /// What it is.
    pub head: String,
    /// What more there is to say about it.
    pub detail: String,
}

/// A row of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct HeatRow {
    /// What stands at its beginning.
    pub head: String,
    /// What more there is to say about the row.
    pub detail: String,
    /// What the colours of this row are relative to.
    pub scale: String,
    /// A cell a column.
    pub cells: Vec<HeatCell>,
}

impl HeatRow {
    /// The cells as plain text.
    pub(crate) fn texts(&self) -> Vec<String> {
        let text = |cell: &HeatCell| match cell.small.as_str() {
            "" => cell.text.clone(),
            small => format!("{} ({small})", cell.text),
        };
        self.cells.iter().map(text).collect()
    }
}

/// A cell of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct HeatCell {
    /// `h0` to `h8`, `missing`, or `none` where there was nothing to be measured.
    class: String,
    text: String,
    small: String,
    title: String,
    target: String,
}

/// How good a cell is, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Warmth(f64);

impl Warmth {
    /// `part` of the best; what is not a number is the least.
    pub(crate) fn new(part: f64) -> Warmth {
        Warmth(if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) })
    }

    /// The step of the scale.
    fn step(self) -> usize {
        ((self.0 * STEPS as f64) as usize).min(STEPS - 1)
    }
}

impl HeatCell {
    /// A number, something small beside it, and where on the page there is more about it.
    pub(crate) fn number(
        warmth: Warmth,
        text: String,
        small: String,
        title: String,
        target: String,
    ) -> HeatCell {
        HeatCell { class: format!("h{}", warmth.step()), text, small, title, target }
    }

    /// What should be there and is not.
    pub(crate) fn missing(why: String, target: String) -> HeatCell {
        let text = "missing".to_owned();
        HeatCell { class: text.clone(), text, small: String::new(), title: why, target }
    }

    /// What nobody wanted to measure.
    pub(crate) fn none() -> HeatCell {
        HeatCell { class: "none".to_owned(), ..HeatCell::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_step() {
        assert_eq!(Warmth::new(0.0).step(), 0);
        assert_eq!(Warmth::new(1.0).step(), STEPS - 1);
        assert_eq!(Warmth::new(1.7).step(), STEPS - 1);
        assert_eq!(Warmth::new(f64::NAN).step(), 0);
        assert_eq!(Warmth::new(0.5).step(), STEPS / 2);
    }
}
