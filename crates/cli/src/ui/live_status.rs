//! `penstock status --watch`: a page on the terminal that is kept up to date.
//!
//! Looking ([`look`]) goes on in threads of its own ([`refresher`]), so that keys are answered however long a look takes. What the page
//! says ([`page`]), which part of it is seen and what keys do ([`view`]), and how it is drawn ([`draw`]) are pure.

mod draw;
mod keys;
mod log_lines;
mod look;
mod page;
mod rates;
mod refresher;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use std::{sync::Arc, time::Duration};

use penstock_guests::{console::Console, state::State};
use penstock_host::{
    Command, interrupt,
    job_control::JobControl,
    process,
    terminal::{self, Input},
};
use penstock_model::GuestName;
use penstock_report::metrics::VerificationMetrics;

use self::{
    draw::{columns_seen, rows_seen},
    keys::KeyReader,
    log_lines::LogLines,
    look::{Looker, MachineLook},
    page::{ModelDrift, Observations, ScreenPage},
    refresher::Refresher,
    screen::Screen,
    view::{KeyAction, PageView, Showing},
};
use crate::{
    arguments::StatusRequest,
    failure::{Failure, Status},
    model_file::{self, For},
    runtime::progress,
    settings::Settings,
    ui::printer::Printer,
};

/// How often the machine is looked at, where that costs little.
const LOOK: Duration = Duration::from_secs(1);

/// How often it is compared with the model.
const COMPARE: Duration = Duration::from_secs(10);

/// How often it is looked whether there is anything new to draw. Keys and signals end the wait.
const TICK: Duration = Duration::from_millis(250);

/// How many lines of a console's log are shown.
const LOG: usize = 500;

/// How long a console has to put the terminal back when this process is told to end.
const FAREWELL: Duration = Duration::from_secs(3);

/// Shows the page until somebody leaves it.
///
/// # Errors
///
/// `Status::BadInput` where no page can be drawn; for a model that is wrong; when a thread cannot be started or the terminal not be
/// set.
pub fn run(arguments: &StatusRequest, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    if let Some(why) = no_page(settings) {
        return Err(Failure::new(
            Status::BadInput,
            format!("status --watch draws a page on a terminal, and {why}"),
        )
        .hint("`penstock status` and `penstock status --json` tell the same once")
        .hint("`penstock verify MODEL --watch` tells what changes, line by line"));
    }
    let file = match arguments.subject() {
        Some(subject) => Some(Arc::new(model_file::read_subject(&subject, For::Here(settings), printer)?)),
        None => None,
    };
    let mut looker = Looker::new(settings, file.clone());
    let looks = Refresher::start("look", LOOK, move || looker.look())?;
    let comparisons = match file {
        Some(file) => {
            let settings = settings.clone();
            Some(Refresher::start("compare", COMPARE, move || look::compare(&settings, &file))?)
        }
        None => None,
    };
    let control = JobControl::catch()?;
    let screen = Screen::enter()?;
    let live = Live {
        settings,
        looks,
        comparisons,
        control,
        screen,
        view: PageView::default(),
        page: ScreenPage::default(),
        log: LogLines::default(),
        on_terminal: Showing::Machine,
        drawn: None,
    };
    live.run()
}

/// Why no page can be drawn.
fn no_page(settings: &Settings) -> Option<&'static str> {
    if settings.json {
        Some("--json asks for a document")
    } else if settings.quiet {
        Some("--quiet asks for silence")
    } else if !terminal::is_output() {
        Some("standard output is none")
    } else if !terminal::is_input() {
        Some("standard input is none")
    } else if !settings.redraws {
        Some("TERM says that this one moves no cursor")
    } else {
        None
    }
}

/// The page while it is shown.
struct Live<'a> {
    settings: &'a Settings,
    looks: Refresher<MachineLook>,
    comparisons: Option<Refresher<Result<VerificationMetrics, String>>>,
    control: JobControl,
    screen: Screen,
    view: PageView,
    /// The page that is on the terminal, and what it was made of.
    page: ScreenPage,
    /// The lines of the log that is shown.
    log: LogLines,
    on_terminal: Showing,
    drawn: Option<Drawn>,
}

/// What a page is made of, as far as it changes without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Drawn {
    looks: u64,
    comparisons: u64,
    second: u64,
    size: (u16, u16),
}

impl Live<'_> {
    fn run(mut self) -> Result<Status, Failure> {
        let ended = self.attend();
        // What failed then failed because of it, and a terminal that takes nothing takes no message either.
        if interrupt::pending() { Ok(Status::Interrupted) } else { ended }
    }

    /// Shows the page and does what keys say.
    fn attend(&mut self) -> Result<Status, Failure> {
        let (mut buffer, mut reader) = ([0; 256], KeyReader::default());
        loop {
            if interrupt::pending() {
                return Ok(Status::Interrupted);
            }
            if self.looks.is_dead() || self.comparisons.as_ref().is_some_and(Refresher::is_dead) {
                let text = "penstock has a defect: a thread that looks at the machine has ended";
                return Err(Failure::new(Status::Internal, text)
                    .hint("please report it with what stands on standard error"));
            }
            if self.control.stop_asked() {
                self.stop()?;
            }
            if self.control.continued() {
                self.screen.come_back()?;
                self.drawn = None;
            }
            self.draw()?;
            let keys = match terminal::read_input(&mut buffer, TICK)? {
                Input::End => return Ok(Status::Holds),
                Input::Nothing => reader.rest(),
                Input::Bytes(count) => reader.keys(&buffer[..count], count == buffer.len()),
            };
            for key in keys {
                if self.page_is_another() {
                    self.draw()?;
                }
                let (_, height) = self.size();
                let action = self.view.press(key, &self.page, rows_seen(height));
                self.drawn = None;
                match action {
                    KeyAction::Draw => {}
                    KeyAction::Quit => return Ok(Status::Holds),
                    KeyAction::Stop => self.stop()?,
                    KeyAction::DrawAll => self.screen.clear(),
                    KeyAction::Refresh => {
                        self.looks.refresh();
                        self.comparisons.iter().for_each(Refresher::refresh);
                    }
                    KeyAction::Console(guest) => {
                        self.console(&guest)?;
                        // What was typed after that key was for the console.
                        reader = KeyReader::default();
                        break;
                    }
                }
            }
        }
    }

    /// Whether a key has led to another page than the one that is on the terminal.
    fn page_is_another(&self) -> bool {
        self.on_terminal != self.view.showing
    }

    fn size(&self) -> (u16, u16) {
        let (columns, lines) = terminal::output_size().unwrap_or((80, 24));
        (u16::try_from(columns).unwrap_or(u16::MAX), u16::try_from(lines).unwrap_or(u16::MAX))
    }

    /// Draws what is there now, if it is not on the terminal already.
    fn draw(&mut self) -> Result<(), Failure> {
        let looks = self.looks.now();
        let comparisons = self.comparisons.as_ref().map(Refresher::now);
        let now = progress::now();
        let (width, height) = self.size();
        let drawn = Drawn {
            looks: looks.count,
            comparisons: comparisons.as_ref().map_or(0, |comparisons| comparisons.count),
            second: now / 1000,
            size: (width, height),
        };
        if self.drawn == Some(drawn) {
            return Ok(());
        }
        self.page = match &self.view.showing {
            Showing::Help => page::of_help(),
            Showing::Log(guest) => {
                if self.page_is_another() {
                    self.log = LogLines::default();
                }
                let lines = self.last_lines(guest);
                self.log.take(lines);
                page::of_log(guest, &self.log)
            }
            Showing::Machine => {
                let drift = match &comparisons {
                    None => ModelDrift::NoModel,
                    Some(comparisons) => match comparisons.latest.as_deref() {
                        None => ModelDrift::Comparing,
                        Some(compared) => ModelDrift::Compared(compared, comparisons.age),
                    },
                };
                let (look, age) = (looks.latest.as_deref(), looks.age);
                let seen = Observations { look, age, looking: looks.looking, drift, now };
                page::of_machine(&seen, columns_seen(width))
            }
        };
        self.view.settle(&self.page, rows_seen(height));
        let (page, view, color) = (&self.page, &self.view, self.settings.color_data);
        self.screen.draw(|frame| draw::draw(frame.buffer_mut(), page, view, color))?;
        self.on_terminal = self.view.showing.clone();
        self.drawn = Some(drawn);
        Ok(())
    }

    fn state(&self) -> State {
        State::new(self.settings.state.join("guests"))
    }

    fn last_lines(&self, guest: &GuestName) -> Vec<String> {
        let console = Console::of(&self.state(), guest).ok().flatten();
        console.map(|console| console.last_lines(LOG)).unwrap_or_default()
    }

    /// Has `penstock console` have the terminal until somebody leaves it.
    fn console(&mut self, guest: &GuestName) -> Result<(), Failure> {
        self.screen.leave();
        let penstock = Command::new(process::own_program()?).arg("console").arg(guest.as_str());
        match penstock.run_attached_until_interrupt(FAREWELL) {
            Ok(0) => {}
            // What it said is to be read before the page covers it.
            Ok(_) => self.screen.wait_for_enter()?,
            Err(error) => {
                self.view.note = Some(format!("the console of {guest} could not be opened: {error}"))
            }
        }
        self.screen.come_back()?;
        self.drawn = None;
        Ok(())
    }

    /// Stops, as a shell's user wants it, with the terminal as it was.
    fn stop(&mut self) -> Result<(), Failure> {
        self.screen.leave();
        self.control.stop()?;
        self.screen.come_back()?;
        self.drawn = None;
        // Both have been seen to.
        let _ = (self.control.stop_asked(), self.control.continued());
        Ok(())
    }
}
