//! Which text stands where in the terminal, and from when until when.
//!
//! Time goes in ticks: what is written within one is seen at its end. Lines are counted from the first that ever was, also those that were
//! scrolled out of sight, so that scrolling moves the whole and changes no text.

use std::collections::BTreeMap;

use avt::{Cell, Color, Line, Pen};

use super::{Recording, RecordingError};

/// Ticks in a second: an eye does not see more than 20 states of a text, and every one makes the picture larger.
pub const TICKS: u32 = 20;

/// How a text is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// One of the terminal's 16 colours; its usual one where there is none.
    pub color: Option<u8>,
    /// In bold letters.
    pub bold: bool,
    /// Paler than the rest.
    pub faint: bool,
}

/// A text that stands somewhere for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its line, from 0, the ones out of sight included.
    pub line: usize,
    /// The column of its first letter, from 0.
    pub column: usize,
    /// Its letters.
    pub text: String,
    /// How it is shown.
    pub style: TextStyle,
    /// The tick from which it is seen.
    pub from: u32,
    /// The tick from which it is not seen any more; `None`: it is still there in the end.
    pub until: Option<u32>,
}

impl Piece {
    /// Whether these letters stand in `cells` too, at the same place.
    fn is_in(&self, cells: &[(char, TextStyle)]) -> bool {
        let there = cells.get(self.column..).unwrap_or(&[]);
        let mut length = 0;
        let same = self.text.chars().zip(there).all(|(letter, (cell, style))| {
            length += 1;
            letter == *cell && (*style == self.style || letter == ' ')
        });
        same && length == self.text.chars().count()
    }
}

/// A session as its pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// In the order in which they appear.
    pub pieces: Vec<Piece>,
    /// The first line in sight, and from which tick it is that.
    pub scrolled: Vec<(u32, usize)>,
    /// The last tick at which something changes.
    pub end: u32,
}

/// Plays the recording.
///
/// # Errors
///
/// [`RecordingError::Style`] when something is shown in a way that [`TextStyle`] has not.
pub fn of(recording: &Recording) -> Result<Timeline, RecordingError> {
    let mut timeline = Timeline { pieces: Vec::new(), scrolled: vec![(0, 0)], end: 0 };
    let Some(mut terminal) = recording.terminal() else { return Ok(timeline) };
    let mut standing: BTreeMap<usize, Vec<Piece>> = BTreeMap::new();
    let mut outputs = recording.outputs.iter().peekable();
    while let Some(output) = outputs.next() {
        terminal.feed(output.text.as_str());
        let tick = tick(output.at);
        if outputs.peek().is_some_and(|next| self::tick(next.at) == tick) {
            continue;
        }
        let screen = terminal.primary_screen();
        let lines: Vec<&Line> = screen.all_lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let cells = cells(line).map_err(|(text, how)| RecordingError::Style {
                at: format!("{:.2}", output.at),
                text,
                how,
            })?;
            let pieces = standing.entry(at).or_default();
            let (stay, go): (Vec<Piece>, Vec<Piece>) =
                std::mem::take(pieces).into_iter().partition(|piece| piece.is_in(&cells));
            let changed = !go.is_empty();
            timeline.pieces.extend(go.into_iter().map(|piece| Piece { until: Some(tick), ..piece }));
            let new = uncovered(at, tick, &cells, &stay);
            if changed || !new.is_empty() {
                timeline.end = tick;
            }
            *pieces = stay.into_iter().chain(new).collect();
        }
        let first = lines.len().saturating_sub(recording.rows);
        if timeline.scrolled.last().is_none_or(|(_, before)| *before != first) {
            timeline.scrolled.push((tick, first));
            timeline.end = tick;
        }
    }
    timeline.pieces.extend(standing.into_values().flatten());
    timeline.pieces.sort_by_key(|piece| (piece.from, piece.line, piece.column));
    Ok(timeline)
}

fn tick(seconds: f64) -> u32 {
    // From 0 on, and no session lasts for years.
    (seconds * f64::from(TICKS)).ceil() as u32
}

/// The cells of a line without the blanks at its end; a wide letter is followed by blanks for the cells that it takes. Or what of it cannot
/// be drawn, and why.
fn cells(line: &Line) -> Result<Vec<(char, TextStyle)>, (String, &'static str)> {
    let mut cells = Vec::new();
    for cell in line.cells() {
        let style = style(cell.pen()).map_err(|how| (line.text().trim_end().to_owned(), how))?;
        cells.push((letter(cell), style));
    }
    while cells.last().is_some_and(|(letter, _)| *letter == ' ') {
        cells.pop();
    }
    Ok(cells)
}

/// The letter of a cell; the second cell of a wide one has none.
fn letter(cell: &Cell) -> char {
    if cell.width() == 0 { ' ' } else { cell.char() }
}

fn style(pen: &Pen) -> Result<TextStyle, &'static str> {
    if pen.background().is_some() || pen.is_inverse() {
        return Err("before a colour");
    }
    if pen.is_italic() || pen.is_underline() || pen.is_strikethrough() || pen.is_blink() {
        return Err("slanted, struck, underlined or blinking");
    }
    let color = match pen.foreground() {
        None => None,
        Some(Color::Indexed(color)) if color < 16 => Some(color),
        Some(_) => return Err("in a colour that is none of the usual 16"),
    };
    Ok(TextStyle { color, bold: pen.is_bold(), faint: pen.is_faint() })
}

/// What no piece that stays covers, as pieces of its own. A piece ends where the style changes and at two blanks, and so does a single letter
/// before a blank: a spinner turns, and what is behind it stays.
fn uncovered(line: usize, from: u32, cells: &[(char, TextStyle)], stay: &[Piece]) -> Vec<Piece> {
    let mut free = vec![true; cells.len()];
    for piece in stay {
        free.iter_mut().skip(piece.column).take(piece.text.chars().count()).for_each(|cell| *cell = false);
    }
    let mut pieces: Vec<Piece> = Vec::new();
    let mut open: Option<Piece> = None;
    for (column, (letter, style)) in cells.iter().enumerate() {
        let blank_next = cells.get(column + 1).is_none_or(|(next, _)| *next == ' ');
        let goes_on = open.as_ref().is_some_and(|piece| {
            let mark = piece.text.chars().count() == 1;
            free[column] && if *letter == ' ' { !blank_next && !mark } else { *style == piece.style }
        });
        if !goes_on {
            pieces.extend(open.take());
        }
        match &mut open {
            Some(piece) => piece.text.push(*letter),
            None if free[column] && *letter != ' ' => {
                open =
                    Some(Piece { line, column, text: letter.to_string(), style: *style, from, until: None });
            }
            None => {}
        }
    }
    pieces.extend(open);
    for piece in &mut pieces {
        piece.text.truncate(piece.text.trim_end().len());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::{Piece, TextStyle, of};
    use crate::recording::{Recording, TerminalOutput};

    fn played(rows: usize, outputs: &[(f64, &str)]) -> (Vec<String>, Vec<(u32, usize)>) {
        let outputs = outputs.iter().map(|(at, text)| TerminalOutput { at: *at, text: (*text).to_owned() });
        let recording = Recording { columns: 40, rows, outputs: outputs.collect() };
        let timeline = of(&recording).unwrap();
        let told = |piece: &Piece| {
            let until = piece.until.map_or(String::new(), |until| until.to_string());
            format!("{},{} {}..{until} {}", piece.line, piece.column, piece.from, piece.text)
        };
        (timeline.pieces.iter().map(told).collect(), timeline.scrolled)
    }

    #[test]
    fn a_spinner_turns_and_what_is_behind_it_stays() {
        let (pieces, scrolled) = played(
            3,
            &[
                (0.1, "a Booting it \x1b[2m0s\x1b[0m"),
                (0.2, "\r\x1b[2Kb Booting it \x1b[2m0s\x1b[0m"),
                (0.3, "\r\x1b[2KDone.\r\n"),
            ],
        );
        assert_eq!(
            pieces,
            ["0,0 2..4 a", "0,2 2..6 Booting it", "0,13 2..6 0s", "0,0 4..6 b", "0,0 6.. Done."]
        );
        assert_eq!(scrolled, [(0, 0)]);
    }

    #[test]
    fn what_is_typed_is_added_letter_by_letter() {
        let (pieces, _) = played(3, &[(0.05, "$ "), (0.5, "l"), (0.6, "s "), (0.7, "-l")]);
        assert_eq!(pieces, ["0,0 1.. $", "0,2 10.. l", "0,3 12.. s", "0,5 14.. -l"]);
    }

    #[test]
    fn columns_are_pieces_and_one_tick_shows_its_last_state_alone() {
        let (pieces, _) = played(3, &[(0.96, "no"), (0.99, "\r\x1b[2Kone two   three"), (1.0, "\r\n")]);
        assert_eq!(pieces, ["0,0 20.. one two", "0,10 20.. three"]);
    }

    #[test]
    fn lines_out_of_sight_are_counted() {
        let (pieces, scrolled) = played(2, &[(0.05, "aa\r\nbb"), (0.1, "\r\ncc")]);
        assert_eq!(pieces, ["0,0 1.. aa", "1,0 1.. bb", "2,0 2.. cc"]);
        assert_eq!(scrolled, [(0, 0), (2, 1)]);
    }

    #[test]
    fn colours_are_kept_and_what_cannot_be_drawn_is_an_error() {
        let recording = |text: &str| Recording {
            columns: 40,
            rows: 2,
            outputs: vec![TerminalOutput { at: 1.25, text: text.to_owned() }],
        };
        let timeline = of(&recording("\x1b[1;33mwarning:\x1b[0m x")).unwrap();
        assert_eq!(timeline.pieces[0].style, TextStyle { color: Some(3), bold: true, faint: false });
        assert_eq!(
            of(&recording("ab \x1b[7mcd\x1b[0m")).unwrap_err().to_string(),
            "at 1.25 s the terminal shows `ab cd` before a colour, which `crates/docs/src/recording` does not draw: add it there"
        );
        assert!(of(&recording("\x1b[38;5;200mx")).is_err() && of(&recording("\x1b[4mx")).is_err());
    }
}
