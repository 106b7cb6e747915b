//! Where output goes: data to standard output, conversation to standard error.

use std::{
    io::{self, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use penstock_host::terminal;
use serde::Serialize;

use crate::{
    failure::{Failure, Status, sources},
    live::Canvas,
    remote::wire::{Said, Wire},
    settings::Settings,
};

/// Owns what a command prints. A progress bar on a terminal, plain lines elsewhere, and all of it as messages where another
/// Penstock attends. Nobody listening any more ends nothing: what was begun comes to its end.
pub struct Printer {
    json: bool,
    quiet: bool,
    warned: bool,
    color: bool,
    interactive: bool,
    bar: Option<ProgressBar>,
    wire: Option<Wire>,
}

impl Printer {
    /// A printer for these settings.
    pub fn new(settings: &Settings) -> Printer {
        let Settings { json, quiet, warned, color, interactive, .. } = *settings;
        Printer { json, quiet, warned, color, interactive, bar: None, wire: None }
    }

    /// A printer that hands everything to the Penstock on another machine.
    pub fn over(wire: Wire, settings: &Settings) -> Printer {
        Printer { color: false, interactive: false, wire: Some(wire), ..Printer::new(settings) }
    }

    /// Whether the user has seen the model's warnings: a Penstock that runs this one has printed them.
    pub fn warned(&self) -> bool {
        self.warned
    }

    /// Whether messages may be coloured.
    pub fn color(&self) -> bool {
        self.color
    }

    /// Data: as JSON where that was asked for, else as text. A reader that went away is no failure.
    pub fn data(&mut self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        self.bar = None;
        let mut out = match self.json {
            true => serde_json::to_string_pretty(value)?,
            false => text(),
        };
        if !out.ends_with('\n') {
            out.push('\n');
        }
        self.text(out)
    }

    /// Data that is text already.
    pub fn text(&mut self, out: String) -> Result<(), Failure> {
        self.done();
        if let Some(wire) = &self.wire {
            wire.say(Said::Data(out));
            return Ok(());
        }
        match io::stdout().write_all(out.as_bytes()).and_then(|()| io::stdout().flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(not_written(error)),
            _ => Ok(()),
        }
    }

    /// One line of data of many: as JSON where that was asked for, else as text. `false` when its reader went away.
    pub fn line(&mut self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<bool, Failure> {
        self.done();
        let mut out = match self.json {
            true => serde_json::to_string(value)?,
            false => text(),
        };
        if out.is_empty() {
            return Ok(true);
        }
        out.push('\n');
        match io::stdout().write_all(out.as_bytes()).and_then(|()| io::stdout().flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(not_written(error)),
            Ok(()) => Ok(true),
        }
    }

    /// A line of conversation.
    pub fn say(&mut self, line: impl AsRef<str>) {
        if self.quiet {
            return;
        }
        match &self.wire {
            Some(wire) => wire.say(Said::Say(line.as_ref().to_owned())),
            None => self.tell(line.as_ref()),
        }
    }

    /// A warning.
    pub fn warn(&mut self, line: impl AsRef<str>) {
        match &self.wire {
            Some(wire) => wire.say(Said::Warn(line.as_ref().to_owned())),
            None => self.tell(&format!("{} {}", self.paint("33;1", "warning:"), line.as_ref())),
        }
    }

    /// What was explained with its place in a file, over several lines.
    pub fn explained(&mut self, text: impl Into<String>) {
        self.done();
        match &self.wire {
            Some(wire) => wire.say(Said::Explained(text.into())),
            None => self.tell(text.into().trim_end_matches('\n')),
        }
    }

    /// A line on standard error. A terminal that hung up, or a pipe that nobody reads, must not end what is going on: it may
    /// be the way back.
    fn tell(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => drop(writeln!(io::stderr().lock(), "{line}")),
        }
    }

    /// What is going on now. On a terminal it replaces what went on before; elsewhere it is one more line.
    pub fn doing(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.quiet {
            return;
        }
        if let Some(wire) = &self.wire {
            wire.say(Said::Doing(what));
            return;
        }
        if !self.interactive {
            self.tell(&what);
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        bar.set_message(what);
        bar.reset_elapsed();
    }

    /// How far along it is, from 0 to 1. Shown on a terminal only.
    pub fn fraction(&mut self, done: f64) {
        let Some(bar) = &self.bar else { return };
        if bar.length().is_none() {
            bar.set_length(1000);
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {msg} [{bar:30}] {percent}% {elapsed:.dim}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
        }
        bar.set_position((done.clamp(0.0, 1.0) * 1000.0) as u64);
    }

    /// Where a picture of what goes on can be drawn; `None` where nothing is redrawn.
    pub fn canvas(&self) -> Option<Canvas> {
        let (width, height) = terminal::size().unwrap_or((80, 24));
        // One column less: a line that fills the last one wraps on some terminals.
        let canvas =
            Canvas { width: width.saturating_sub(1), height: height.saturating_sub(1), color: self.color };
        (self.interactive && !self.quiet).then_some(canvas)
    }

    /// A picture of what goes on, drawn over the one before it.
    pub fn picture(&mut self, lines: &[String]) {
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            bar
        });
        bar.set_message(lines.join("\n"));
        bar.tick();
    }

    /// What went on is over.
    pub fn done(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Why the command failed: the chain of causes, then what to do.
    pub fn failure(&mut self, failure: &Failure) {
        let causes = failure.error.iter().flat_map(|error| sources(&**error).map(ToString::to_string));
        self.complain(&causes.collect::<Vec<_>>(), &failure.hints);
    }

    /// Why something failed: its causes, outermost first, then what to do.
    pub fn complain(&mut self, causes: &[String], hints: &[String]) {
        self.done();
        if let Some(wire) = &self.wire {
            wire.say(Said::Failure { causes: causes.to_vec(), hints: hints.to_vec() });
            return;
        }
        let mut causes = causes.iter();
        if let Some(first) = causes.next() {
            self.tell(&format!("{} {first}", self.paint("31;1", "error:")));
        }
        for cause in causes {
            self.tell(&format!("  because {cause}"));
        }
        for hint in hints {
            self.tell(&format!("{} {hint}", self.paint("36;1", "help:")));
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Standard output could not be written, and not because its reader went away.
fn not_written(error: io::Error) -> Failure {
    let text = format!("could not write to standard output: {error}");
    Failure::new(Status::Internal, text).hint("is the disk full that it goes to?")
}
