//! Where output goes: data to standard output, conversation to standard error.
//!
//! All text goes out through [`Styled`], so that nothing that came from outside steers a terminal, whoever wrote the message.
//! With `--quiet` conversation is left out, and so is an [`answer`](Printer::answer) that all is well; errors, warnings and the
//! data that a verb is there for stay.

use std::{
    io::{self, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use penstock_apply::history::RunId;
use penstock_host::terminal;
use penstock_model::{
    Against, Diagnostics, Located, Source,
    text::{Style, Styled, columns, one_line, printable_json, wrap_prose},
};
use serde::Serialize;

use crate::{
    documents::{Document, Kind, Trouble},
    failure::{Failure, Status},
    remote::{protocol::Reply, reply_sender::ReplySender},
    settings::{Settings, Widths},
    ui::live::Canvas,
};

/// Owns what a command prints. A progress bar on a terminal, plain lines elsewhere, and all of it as messages where another
/// Penstock attends. Nobody listening any more ends nothing: what was begun comes to its end.
pub struct Printer {
    json: bool,
    quiet: bool,
    warned: bool,
    color_data: bool,
    color: bool,
    widths: Widths,
    interactive: bool,
    bar: Option<ProgressBar>,
    replies: Option<ReplySender>,
    /// What would be said, where nobody can be told at once.
    kept: Option<Vec<String>>,
    document: Document,
}

impl Printer {
    /// A printer for these settings.
    pub fn new(settings: &Settings) -> Printer {
        let Settings { json, quiet, warned, color_data, color, widths, interactive, .. } = *settings;
        Printer {
            json,
            quiet,
            warned,
            color_data,
            color,
            widths,
            interactive,
            bar: None,
            replies: None,
            kept: None,
            document: Document::default(),
        }
    }

    /// A printer that hands everything to the Penstock on another machine.
    pub fn over(replies: ReplySender, settings: &Settings) -> Printer {
        let plain = Printer { color_data: false, color: false, interactive: false, ..Printer::new(settings) };
        Printer { replies: Some(replies), ..plain }
    }

    /// A printer that writes nothing and keeps its warnings and errors until they are [taken](Printer::take_kept): for whoever shows them
    /// on a page.
    pub fn keeping(settings: &Settings) -> Printer {
        let quiet = Printer { quiet: true, interactive: false, color: false, ..Printer::new(settings) };
        Printer { kept: Some(Vec::new()), ..quiet }
    }

    /// What was kept since the last time.
    pub fn take_kept(&mut self) -> Vec<String> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the user has seen the model's warnings: a Penstock that runs this one has printed them.
    pub fn warned(&self) -> bool {
        self.warned
    }

    /// Columns that data may take; `None`: as many as it likes, since nobody wraps it.
    pub fn width(&self) -> Option<usize> {
        self.widths.data
    }

    /// Has text take these widths: whoever reads it sits at another terminal.
    pub fn set_widths(&mut self, widths: Widths) {
        self.widths = widths;
    }

    /// Data: as JSON where that was asked for, else as text. A reader that went away is no failure.
    ///
    /// # Errors
    ///
    /// When `value` has no form in JSON, or standard output takes nothing but for its reader's going away.
    pub fn data<T: Into<Styled>>(
        &mut self,
        value: &impl Serialize,
        text: impl FnOnce() -> T,
    ) -> Result<(), Failure> {
        if self.json {
            self.bar = None;
            return Ok(self.document.tell(value)?);
        }
        let text: Styled = text().into();
        let end = if text.is_empty() || text.ends_a_line() { "" } else { "\n" };
        let mut text = text;
        text.plain(end);
        self.out(Out::Text(text)).map(drop)
    }

    /// What came of what was done or judged. As text it is left out where nobody wants to hear that all is `well`.
    ///
    /// # Errors
    ///
    /// As [`Printer::data`].
    pub fn answer<T: Into<Styled>>(
        &mut self,
        well: bool,
        value: &impl Serialize,
        text: impl FnOnce() -> T,
    ) -> Result<(), Failure> {
        if well && self.quiet && !self.json {
            self.done();
            return Ok(());
        }
        self.data(value, text)
    }

    /// Data for programs, of which the conversation has told a person all.
    ///
    /// # Errors
    ///
    /// When `value` has no form in JSON.
    pub fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        if self.json { Ok(self.document.tell(value)?) } else { Ok(()) }
    }

    /// The kind of document that this run prints with `--json`.
    pub fn expect(&mut self, kind: Option<Kind>) {
        self.document = Document::of(kind);
    }

    /// The run's document is of another kind.
    pub fn of_kind(&mut self, kind: Kind) {
        self.document.become_kind(kind);
    }

    /// The data that comes next stands in the run's document under `key`.
    pub fn under(&mut self, key: &'static str) {
        self.document.under(key);
    }

    /// A document that a Penstock elsewhere has made: it is this run's.
    pub fn pass_on(&mut self, text: String) {
        self.document.pass_on(text);
    }

    /// A line of many that a Penstock elsewhere has made: it is printed now.
    ///
    /// # Errors
    ///
    /// As [`Printer::text`].
    pub fn pass_line_on(&mut self, text: &str) -> Result<(), Failure> {
        self.out(Out::Json(text)).map(drop)
    }

    /// Prints the document of a run that ends so. The exit status is another when that cannot be done.
    pub fn finish(&mut self, status: Status) -> Status {
        if !self.json {
            return status;
        }
        let printed = match std::mem::take(&mut self.document).end(status) {
            Ok(None) => Ok(()),
            Ok(Some(text)) => self.out(Out::Json(&text)).map(drop),
            Err(error) => Err(error.into()),
        };
        match printed {
            Ok(()) => status,
            Err(failure) => {
                self.failure(&failure);
                status.worse(failure.status)
            }
        }
    }

    /// Messages about a file, with their places: shown, and kept for the document.
    pub fn diagnose(&mut self, found: &Diagnostics, source: &Source, against: Against) {
        self.document.diagnose(found.located(source, against));
        self.explained(found.styled(source, self.widths.conversation));
    }

    /// The messages about files since the last time.
    pub fn take_diagnostics(&mut self) -> Vec<Located> {
        self.document.take_diagnostics()
    }

    /// What went wrong since the last time.
    pub fn take_errors(&mut self) -> Vec<Trouble> {
        self.document.take_errors()
    }

    /// A document that is none of ours: another tool's, or a schema.
    ///
    /// # Errors
    ///
    /// As [`Printer::data`].
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)?;
        self.out(Out::Json(&text)).map(drop)
    }

    /// Data that is text already.
    ///
    /// # Errors
    ///
    /// When standard output takes nothing, but for its reader's going away.
    pub fn text(&mut self, text: impl Into<Styled>) -> Result<(), Failure> {
        self.out(Out::Text(text.into())).map(drop)
    }

    /// One line of data of many: as JSON where that was asked for, else as text. `false` when its reader went away.
    ///
    /// # Errors
    ///
    /// As [`Printer::data`].
    pub fn line(&mut self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<bool, Failure> {
        if self.json {
            return self.out(Out::Json(&Kind::Watch.line(value)?));
        }
        let mut text = Styled::from(text());
        if text.is_empty() {
            self.done();
            return Ok(true);
        }
        text.plain("\n");
        self.out(Out::Text(text))
    }

    /// Writes to standard output what is fit to be shown. `false` when its reader went away.
    fn out(&mut self, out: Out<'_>) -> Result<bool, Failure> {
        self.done();
        let json = |json: &str| format!("{}\n", printable_json(json));
        if let Some(replies) = &self.replies {
            // Whether colours may be shown is known at the other end.
            replies.send(Reply::Data(match out {
                Out::Text(text) => text,
                Out::Json(text) => json(text).into(),
            }));
            return Ok(true);
        }
        let out = match out {
            Out::Text(text) => text.shown(self.color_data),
            Out::Json(text) => json(text),
        };
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
        match &self.replies {
            Some(replies) => replies.send(Reply::Say(line.as_ref().to_owned())),
            None => self.tell(hanging(line.as_ref(), None, 0).into()),
        }
    }

    /// A warning, printed also with `--quiet`.
    pub fn warn(&mut self, line: impl AsRef<str>) {
        if let Some(kept) = &mut self.kept {
            return kept.push(line.as_ref().to_owned());
        }
        match &self.replies {
            Some(replies) => replies.send(Reply::Warn(line.as_ref().to_owned())),
            None => self.tell(self.labelled(Style::Warning, "warning:", line.as_ref())),
        }
    }

    /// Tells another Penstock that attends this one that `run` waits to be confirmed: it knows how to reach this machine.
    pub fn waits(&self, run: RunId) {
        if let Some(replies) = &self.replies {
            replies.send(Reply::Waits(run));
        }
    }

    /// What was explained with its place in a file, over several lines.
    pub fn explained(&mut self, text: impl Into<Styled>) {
        self.done();
        if let Some(kept) = &mut self.kept {
            return kept.push(text.into().to_string());
        }
        match &self.replies {
            Some(replies) => replies.send(Reply::Explained(text.into())),
            None => self.tell(text.into().trim_end()),
        }
    }

    /// A line on standard error. A terminal that hung up, or a pipe that nobody reads, must not end what is going on: it may
    /// be the way back.
    fn tell(&self, line: Styled) {
        let line = line.shown(self.color);
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
        if let Some(replies) = &self.replies {
            replies.send(Reply::Doing(what));
            return;
        }
        let what = one_line(&what);
        if !self.interactive {
            self.tell(what.into());
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
        let canvas = Canvas { width: width.saturating_sub(1), height: height.saturating_sub(1) };
        (self.interactive && !self.quiet).then_some(canvas)
    }

    /// A picture of what goes on, drawn over the one before it.
    pub fn picture(&mut self, lines: &[Styled]) {
        let lines: Vec<String> = lines.iter().map(|line| line.shown(self.color)).collect();
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
        self.complain(&failure.causes(), &failure.hints);
    }

    /// A message after the word that tells what it is.
    fn labelled(&self, style: Style, label: &str, message: &str) -> Styled {
        let mut text = Styled::of(style, label);
        let before = columns(label) + 1;
        text.plain(format!(" {}", hanging(message, self.widths.conversation, before)));
        text
    }

    /// Why something failed: its causes, outermost first, then what to do.
    pub fn complain(&mut self, causes: &[String], hints: &[String]) {
        self.done();
        self.document.fail(causes, hints);
        if let Some(kept) = &mut self.kept {
            return kept.push(causes.join(": "));
        }
        if let Some(replies) = &self.replies {
            replies.send(Reply::Failure { causes: causes.to_vec(), hints: hints.to_vec() });
            return;
        }
        let mut causes = causes.iter();
        if let Some(first) = causes.next() {
            self.tell(self.labelled(Style::Error, "error:", first));
        }
        for cause in causes {
            self.tell(hanging(&format!("  because {cause}"), self.widths.conversation, 0).into());
        }
        for hint in hints {
            self.tell(self.labelled(Style::Help, "help:", hint));
        }
    }
}

/// What goes to standard output.
enum Out<'a> {
    /// Text, to which its newlines belong.
    Text(Styled),
    /// A document of JSON, which is ended by one.
    Json(&'a str),
}

/// A message whose further lines stand in from the margin: a newline in a name from outside must not begin what looks like a
/// message of its own. No line is longer than `width` where that can be, with `before` columns in front of the first.
fn hanging(message: &str, width: Option<usize>, before: usize) -> String {
    /// How far further lines stand in.
    const IN: usize = 2;
    let mut text = String::new();
    for (number, line) in message.split('\n').enumerate() {
        let own = line.len() - line.trim_start_matches(' ').len();
        let margin = if number == 0 { own } else { own.max(IN) };
        let room =
            width.map(|width| width.saturating_sub(margin.max(IN) + if number == 0 { before } else { 0 }));
        let pieces = match room {
            Some(room) if columns(line) > room => wrap_prose(line, room),
            _ => vec![line.trim_start_matches(' ').to_owned()],
        };
        for (position, piece) in pieces.iter().enumerate() {
            if !text.is_empty() || number > 0 {
                text.push('\n');
            }
            let margin = if position == 0 { margin } else { margin.max(IN) };
            if !piece.is_empty() {
                text.push_str(&" ".repeat(margin));
                text.push_str(piece.trim_end());
            }
        }
    }
    text
}

/// Standard output could not be written, and not because its reader went away.
fn not_written(error: io::Error) -> Failure {
    let text = format!("could not write to standard output: {error}");
    Failure::new(Status::Internal, text).hint("is the disk full that it goes to?")
}
