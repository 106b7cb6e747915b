//! The terminal while a page is on it: its alternate screen, keys as they are pressed, and all of it as it was afterwards.

use std::{
    convert::Infallible,
    io::{self, Write},
    panic,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use penstock_host::{
    interrupt,
    terminal::{self, Input, Raw},
};
use penstock_model::text::printable;
use ratatui_core::{
    backend::{Backend, ClearType, WindowSize},
    buffer::Cell,
    layout::{Position, Size},
    style::{Color, Style},
    terminal::{Frame, Terminal},
};

/// To the alternate screen, without a cursor (xterm's `ctlseqs`, DECSET 1049; DECTCEM).
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";

/// Back to where the user was, with usual looks.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// How long a terminal that takes nothing is waited for at the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// How often it is looked whether somebody has told the process to end, while it waits for a line.
const TICK: Duration = Duration::from_millis(250);

/// Whether a page is on the terminal, and what a panic has said meanwhile: it would be lost with the page.
static SHOWN: AtomicBool = AtomicBool::new(false);
static DEFECTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The terminal with a page on it, until this is dropped, also in a panic.
pub struct Screen {
    raw: Option<Raw>,
    terminal: Terminal<AnsiBackend>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    ///
    /// Standard input is no terminal, or standard output cannot be written.
    pub fn enter() -> io::Result<Screen> {
        keep_defects();
        let terminal = Terminal::new(AnsiBackend::default()).unwrap_or_else(|never| match never {});
        let mut screen = Screen { raw: None, terminal };
        screen.come_back()?;
        Ok(screen)
    }

    /// Draws a page over the one before; only what is different is written.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub fn draw(&mut self, page: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(page).unwrap_or_else(|never| match never {});
        terminal::write_output(&self.terminal.backend_mut().take(), interrupt::pending)
    }

    /// Gives the terminal to somebody else for a while.
    pub fn leave(&mut self) {
        if let Some(raw) = self.raw.take() {
            // A terminal that is gone, or takes nothing, gets nothing back.
            let since = Instant::now();
            let _ = terminal::write_output(LEAVE, || since.elapsed() >= FAREWELL);
            drop(raw);
        }
        SHOWN.store(false, Ordering::SeqCst);
        let mut defects = DEFECTS.lock().unwrap_or_else(PoisonError::into_inner);
        for defect in defects.drain(..) {
            let _ = writeln!(io::stderr(), "{}", printable(&defect));
        }
    }

    /// Waits for a line from a person who reads what stands on the terminal while it has no page.
    ///
    /// # Errors
    ///
    /// Standard input cannot be read.
    pub fn wait_for_enter(&self) -> io::Result<()> {
        let _ = writeln!(io::stderr(), "Enter goes back to the page.");
        let mut line = [0; 256];
        while !interrupt::pending() && terminal::read_input(&mut line, TICK)? == Input::Nothing {}
        Ok(())
    }

    /// Has the whole page be drawn anew.
    pub fn clear(&mut self) {
        self.terminal.clear().unwrap_or_else(|never| match never {});
    }

    /// Takes the terminal again; the whole page is drawn anew.
    ///
    /// # Errors
    ///
    /// As [`enter`](Screen::enter).
    pub fn come_back(&mut self) -> io::Result<()> {
        // Somebody may have changed the terminal while this process was stopped.
        self.raw = None;
        self.raw = Some(Raw::enter()?);
        SHOWN.store(true, Ordering::SeqCst);
        self.terminal.backend_mut().take();
        terminal::write_output(ENTER, interrupt::pending)?;
        self.clear();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Has what a panic says wait until no page is on the terminal.
fn keep_defects() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if SHOWN.load(Ordering::SeqCst) {
                DEFECTS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            } else {
                usual(info);
            }
        }));
    });
}

/// Writes what ratatui wants to see on the terminal in the sequences that all of them know (ECMA-48: CUP, ED, SGR).
#[derive(Debug, Default)]
struct AnsiBackend {
    out: Vec<u8>,
}

impl AnsiBackend {
    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn put(&mut self, text: &str) {
        self.out.extend(text.as_bytes());
    }
}

impl Backend for AnsiBackend {
    type Error = Infallible;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Infallible>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut style = Style::reset();
        for (column, line, cell) in content {
            if next != Some((column, line)) {
                self.set_cursor_position((column, line))?;
            }
            if cell.style() != style {
                style = cell.style();
                // anstyle has no word for the terminal's own colour.
                let own = |color: Option<Color>| color.filter(|color| *color != Color::Reset);
                let look = anstyle::Style::from(Style { fg: own(style.fg), bg: own(style.bg), ..style });
                self.put(&format!("\x1b[0m{look}"));
            }
            self.put(cell.symbol());
            // Where the cursor is after a wide character is left to no terminal's taste.
            next = cell.symbol().is_ascii().then_some((column + 1, line));
        }
        self.put("\x1b[0m");
        Ok(())
    }

    fn hide_cursor(&mut self) -> Result<(), Infallible> {
        self.put("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Infallible> {
        self.put("\x1b[?25h");
        Ok(())
    }

    /// Nobody needs to know: the page has no cursor, and the terminal is asked nothing.
    fn get_cursor_position(&mut self) -> Result<Position, Infallible> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Infallible> {
        let Position { x, y } = position.into();
        self.put(&format!("\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1));
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> Result<(), Infallible> {
        self.put(match region {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[K",
        });
        Ok(())
    }

    fn size(&self) -> Result<Size, Infallible> {
        let (columns, lines) = terminal::output_size().unwrap_or((80, 24));
        let narrow = |size: usize| u16::try_from(size).unwrap_or(u16::MAX);
        Ok(Size { width: narrow(columns), height: narrow(lines) })
    }

    fn window_size(&mut self) -> Result<WindowSize, Infallible> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    /// What is to be written is [taken](AnsiBackend::take) by whoever can wait for the terminal.
    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::{buffer::Buffer, layout::Rect, style::Modifier};

    use super::*;

    #[test]
    fn what_is_different_is_written_and_nothing_else() {
        let before = Buffer::empty(Rect::new(0, 0, 8, 2));
        let mut after = before.clone();
        let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        after.set_string(0, 0, "a日b", red);
        after.set_string(6, 1, "c", Style::new());
        let mut backend = AnsiBackend::default();
        backend.draw(before.diff(&after).into_iter()).unwrap();
        let written = String::from_utf8(backend.take()).unwrap();
        // After a wide character the cursor is put where it has to be.
        let wanted = "\u{1b}[1;1H\u{1b}[0m\u{1b}[1m\u{1b}[31ma日\u{1b}[1;4Hb\u{1b}[2;7H\u{1b}[0mc\u{1b}[0m";
        assert_eq!(written, wanted);
        backend.draw(after.diff(&after).into_iter()).unwrap();
        assert_eq!(backend.take(), b"\x1b[0m");
    }
}
