//! Which page is seen, which of its lines, and what keys do about it. Pure.

use penstock_model::GuestName;

use super::{keys::Key, page::ScreenPage};

/// What is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Showing {
    /// The machine.
    #[default]
    Machine,
    /// The last lines on a guest's console.
    Log(GuestName),
    /// The keys.
    Help,
}

/// What a key asks of whoever runs the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// Nothing but to draw it again.
    Draw,
    /// To end.
    Quit,
    /// The console of a guest.
    Console(GuestName),
    /// To stop this process, as Ctrl-Z does.
    Stop,
    /// To draw all of it anew.
    DrawAll,
    /// To look at once.
    Refresh,
}

/// Where somebody is on the pages.
#[derive(Debug, Default)]
pub struct PageView {
    /// The page.
    pub showing: Showing,
    /// What is said below the page, until the next key.
    pub note: Option<String>,
    machine: Cursor,
    other: Cursor,
}

/// A line of a page, and the first one that is seen.
#[derive(Clone, Debug, Default)]
struct Cursor {
    key: Option<String>,
    at: usize,
    top: usize,
    /// Whether it stays at the end when lines are added.
    at_end: bool,
}

impl PageView {
    /// Finds the line again that the cursor was on, and has it be among the `height` lines that are seen.
    pub fn settle(&mut self, page: &ScreenPage, height: usize) {
        self.cursor().settle(page, height);
    }

    /// The line that the cursor is on, and the first one that is seen.
    pub fn lines(&self) -> (usize, usize) {
        let cursor = if self.showing == Showing::Machine { &self.machine } else { &self.other };
        (cursor.at, cursor.top)
    }

    /// A key was pressed, `height` lines of `page` being seen.
    pub fn press(&mut self, key: Key, page: &ScreenPage, height: usize) -> KeyAction {
        self.note = None;
        let screenful = height.saturating_sub(1).max(1);
        let last = page.rows.len().saturating_sub(1);
        let at = self.lines().0;
        let to = match key {
            Key::Control('c') => return KeyAction::Quit,
            Key::Control('z') => return KeyAction::Stop,
            Key::Control('l') => return KeyAction::DrawAll,
            Key::Char('q') | Key::Escape if self.showing != Showing::Machine => {
                self.showing = Showing::Machine;
                return KeyAction::Draw;
            }
            Key::Char('q') => return KeyAction::Quit,
            Key::Char('r') => return KeyAction::Refresh,
            Key::Char('?' | 'h') => {
                self.open(Showing::Help);
                return KeyAction::Draw;
            }
            Key::Char('l') | Key::Char('c') | Key::Enter => return self.of_guest(key, page),
            Key::Up | Key::Char('k') => at.saturating_sub(1),
            Key::Down | Key::Char('j') => at + 1,
            Key::PageUp => at.saturating_sub(screenful),
            Key::PageDown | Key::Char(' ') => at + screenful,
            Key::Home | Key::Char('g') => 0,
            Key::End | Key::Char('G') => last,
            Key::Escape | Key::Control(_) | Key::Char(_) => return KeyAction::Draw,
        };
        let is_log = matches!(self.showing, Showing::Log(_));
        let cursor = self.cursor();
        cursor.at = to.min(last);
        cursor.key = page.rows.get(cursor.at).map(|row| row.key.clone());
        cursor.at_end = is_log && cursor.at == last;
        cursor.settle(page, height);
        KeyAction::Draw
    }

    /// A key that is about the guest whose line the cursor is on.
    fn of_guest(&mut self, key: Key, page: &ScreenPage) -> KeyAction {
        let guest = match &self.showing {
            Showing::Log(guest) => Some(guest.clone()),
            Showing::Machine => page.rows.get(self.machine.at).and_then(|row| row.guest.clone()),
            Showing::Help => return KeyAction::Draw,
        };
        match (guest, key) {
            (None, _) => {
                self.note = Some("this line is no guest's: move to one".to_owned());
                KeyAction::Draw
            }
            (Some(guest), Key::Char('l')) => {
                self.open(Showing::Log(guest));
                KeyAction::Draw
            }
            (Some(guest), _) => KeyAction::Console(guest),
        }
    }

    fn open(&mut self, showing: Showing) {
        self.other = Cursor { at_end: matches!(showing, Showing::Log(_)), ..Cursor::default() };
        self.showing = showing;
    }

    fn cursor(&mut self) -> &mut Cursor {
        if self.showing == Showing::Machine { &mut self.machine } else { &mut self.other }
    }
}

impl Cursor {
    fn settle(&mut self, page: &ScreenPage, height: usize) {
        let last = page.rows.len().saturating_sub(1);
        let found = self.key.as_ref().and_then(|key| page.rows.iter().position(|row| row.key == *key));
        // Until somebody moves, it is on the first guest, unless that hides what stands above it.
        let first = || page.rows.iter().take(height).position(|row| row.guest.is_some());
        self.at = match (self.at_end, found, &self.key) {
            (true, _, _) => last,
            (_, Some(at), _) => at,
            (_, None, None) => first().unwrap_or(0),
            (_, None, Some(_)) => self.at.min(last),
        };
        let fits = last.saturating_sub(height.saturating_sub(1));
        self.top = self.top.min(self.at).max((self.at + 1).saturating_sub(height.max(1))).min(fits);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::page::PageRow, *};

    fn page(rows: &[(&str, Option<&str>)]) -> ScreenPage {
        let row = |(key, guest): &(&str, Option<&str>)| PageRow {
            key: (*key).to_owned(),
            guest: guest.map(|guest| guest.parse().unwrap()),
            text: (*key).into(),
        };
        ScreenPage { rows: rows.iter().map(row).collect(), ..ScreenPage::default() }
    }

    #[test]
    fn the_cursor_stays_on_its_line_when_others_come_and_go() {
        let mut view = PageView::default();
        let small = page(&[("notice", None), ("box", Some("box")), ("rt-2", Some("rt-2"))]);
        view.settle(&small, 2);
        assert_eq!(view.lines(), (1, 0), "on the first guest");
        assert_eq!(view.press(Key::Down, &small, 2), KeyAction::Draw);
        assert_eq!(view.lines(), (2, 1), "it is among the lines that are seen");
        assert_eq!(view.press(Key::Enter, &small, 2), KeyAction::Console("rt-2".parse().unwrap()));
        let mut more = vec![("a", None), ("b", None), ("rt-2", Some("rt-2")), ("c", None), ("d", None)];
        view.settle(&page(&more), 3);
        assert_eq!(view.lines(), (2, 1));
        more.remove(2);
        view.settle(&page(&more), 3);
        assert_eq!(view.lines().0, 2, "where it was");
        view.settle(&page(&[]), 3);
        assert_eq!(view.lines(), (0, 0));
    }

    #[test]
    fn what_stands_above_the_guests_is_seen_first() {
        let mut view = PageView::default();
        view.settle(&page(&[("a", None), ("b", None), ("box", Some("box"))]), 2);
        assert_eq!(view.lines(), (0, 0));
    }

    #[test]
    fn keys_lead_to_pages_and_back() {
        let machine = page(&[("notice", None), ("box", Some("box"))]);
        let mut view = PageView::default();
        view.press(Key::Home, &machine, 10);
        assert_eq!(view.press(Key::Char('l'), &machine, 10), KeyAction::Draw);
        assert!(view.note.take().is_some(), "no guest's line");
        view.press(Key::Down, &machine, 10);
        view.press(Key::Char('l'), &machine, 10);
        assert_eq!(view.showing, Showing::Log("box".parse().unwrap()));
        let log = page(&[("0", None), ("1", None), ("2", None)]);
        view.settle(&log, 2);
        assert_eq!(view.lines(), (2, 1), "a log is seen from its end");
        view.press(Key::PageUp, &log, 2);
        assert_eq!(view.lines(), (1, 1));
        view.press(Key::Up, &log, 2);
        assert_eq!(view.lines(), (0, 0));
        assert_eq!(view.press(Key::Enter, &log, 2), KeyAction::Console("box".parse().unwrap()));
        view.press(Key::Char('?'), &log, 2);
        assert_eq!(view.showing, Showing::Help);
        assert_eq!(view.press(Key::Char('q'), &log, 2), KeyAction::Draw);
        assert_eq!(view.lines().0, 1, "where it was");
        assert_eq!(view.press(Key::Char('q'), &machine, 2), KeyAction::Quit);
        view.press(Key::Char('?'), &machine, 2);
        assert_eq!(view.press(Key::Control('c'), &machine, 2), KeyAction::Quit);
    }

    #[test]
    fn no_height_is_too_small() {
        let mut view = PageView::default();
        let machine = page(&[("a", None), ("b", Some("b"))]);
        for key in [Key::PageDown, Key::PageUp, Key::End, Key::Home, Key::Down, Key::Up] {
            for height in 0..3 {
                view.press(key, &machine, height);
                view.press(key, &page(&[]), height);
            }
        }
    }
}
