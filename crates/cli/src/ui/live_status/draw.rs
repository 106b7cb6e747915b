//! Draws a page on a terminal of any size.

use penstock_model::text::{Style as TextStyle, Styled, columns};
use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::{
    page::ScreenPage,
    view::{PageView, Showing},
};

/// What stands before the line that the cursor is on, and before the others.
const MARK: &str = "> ";
const NO_MARK: &str = "  ";

/// How many lines of a page are seen on a terminal of so many.
pub fn rows_seen(height: u16) -> usize {
    usize::from(height.saturating_sub(2))
}

/// How many columns a page has on a terminal of so many.
pub fn columns_seen(width: u16) -> usize {
    usize::from(width).saturating_sub(MARK.len())
}

/// Draws `page` as `view` sees it, with its line of keys.
pub fn draw(buffer: &mut Buffer, page: &ScreenPage, view: &PageView, color: bool) {
    let area = buffer.area;
    if area.is_empty() {
        return;
    }
    let brush = Brush { color };
    buffer.set_style(Rect { height: 1, ..area }, Style::new().add_modifier(Modifier::REVERSED));
    // What is shown may be old, which matters more than what it is.
    let age = columns(&page.age.to_string());
    let room = columns_seen(area.width).saturating_sub(age);
    brush.put(buffer, 0, area.x, room, &page.title);
    brush.put(
        buffer,
        0,
        area.right().saturating_sub(u16::try_from(age).unwrap_or(area.width)).max(area.x),
        age,
        &page.age,
    );
    let (at, top) = view.lines();
    let seen = rows_seen(area.height);
    for (line, row) in page.rows.iter().enumerate().skip(top).take(seen) {
        let Ok(y) = u16::try_from(line - top + 1) else { break };
        let is_marked = line == at && view.showing == Showing::Machine;
        let mark = if is_marked { MARK } else { NO_MARK };
        brush.put(buffer, y, area.x, MARK.len(), &mark.into());
        let x = area.x.saturating_add(MARK.len() as u16);
        brush.put(buffer, y, x, columns_seen(area.width), &row.text);
        if is_marked {
            let line = Rect { y: area.y + y, height: 1, ..area };
            buffer.set_style(line.intersection(area), Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    if area.height < 3 {
        return;
    }
    let more = page.rows.len().saturating_sub(top + seen);
    let keys = match (&view.note, &view.showing) {
        (Some(note), _) => note.clone(),
        (None, Showing::Machine) => "q quit  ? keys  Enter console  l log  Up/Down move".to_owned(),
        (None, Showing::Log(_)) => "q back  Enter console  Up/Down move".to_owned(),
        (None, Showing::Help) => "q back".to_owned(),
    };
    let style = if view.note.is_some() { TextStyle::Warning } else { TextStyle::Dim };
    let mut line = Styled::new();
    if more > 0 {
        line.push(TextStyle::Dim, format!("{more} more lines below  "));
    }
    line.push(style, keys);
    brush.put(buffer, area.height - 1, area.x, area.width.into(), &line);
}

struct Brush {
    color: bool,
}

impl Brush {
    /// At most `width` columns of `text`, in the buffer's line `y`. Nothing in it steers a terminal ([`Styled::parts`]).
    fn put(&self, buffer: &mut Buffer, y: u16, x: u16, width: usize, text: &Styled) {
        let area = buffer.area;
        let (mut x, y) = (x, area.y.saturating_add(y));
        if y >= area.bottom() || width == 0 {
            return;
        }
        let end = x.saturating_add(u16::try_from(width).unwrap_or(u16::MAX)).min(area.right());
        for (style, part) in text.clone().clip(width).parts() {
            if x >= end {
                return;
            }
            let look = if self.color { Style::from(style.look()) } else { Style::new() };
            (x, _) = buffer.set_stringn(x, y, part, usize::from(end - x), look);
        }
    }
}
