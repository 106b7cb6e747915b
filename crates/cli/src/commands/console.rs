//! `penstock console GUEST`: what a guest's console says, and a way to answer.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    thread,
    time::{Duration, Instant},
};

use penstock_guests::{
    GuestError,
    console::{Console, ConsoleError, GROUP, Holder, Line, Turn, WriteTurn},
    state::State,
};
use penstock_host::{
    files,
    follow::{Begin, Follower},
    interrupt,
    terminal::{self, Input, Raw},
};
use penstock_model::{GuestKind, GuestName};
use serde::Serialize;

use self::shown::{Event, Shown};
use crate::{
    arguments,
    failure::{Failure, Fault, Status},
    settings::Settings,
    ui::printer::Printer,
};

mod shown;

/// The key that leaves: Ctrl-], as telnet and virsh have it.
const LEAVE: u8 = 0x1d;

/// Ctrl-C, which leaves too where nothing can be written.
const CTRL_C: u8 = 0x03;

/// How many lines of scroll-back are shown unless the user says otherwise: a screenful.
const SCREENFUL: usize = 24;

/// How long to wait for keys before looking at everything else.
const TICK: Duration = Duration::from_millis(100);

/// How often it is tried to get the right to write, or to connect.
const RETRY: Duration = Duration::from_millis(250);

/// What is typed for a guest that takes no input is kept up to this many bytes.
const PENDING: usize = 64 << 10;

/// After piped input has ended, the guest has so long to go on answering after each thing that it says...
const QUIET: Duration = Duration::from_secs(2);

/// ...the console is left this soon where nothing was sent...
const QUIET_UNASKED: Duration = Duration::from_millis(300);

/// ...and so long altogether. So long, too, it may read nothing of what is sent to it.
const AT_MOST: Duration = Duration::from_secs(30);

/// How long piped input waits for a guest that is just starting.
const STARTING: Duration = Duration::from_secs(5);

/// Attaches to a console, or lists the guests that have one.
///
/// # Errors
///
/// `Status::BadInput` for a guest that is not defined, or that the user of `--ssh` may not have; when the console cannot be read or
/// shown.
pub fn run(
    arguments: &arguments::Console,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let state = State::new(settings.state.join("guests"));
    let begin = match (arguments.all, arguments.lines) {
        (true, _) => Begin::First,
        (false, lines) => Begin::LastLines(lines.unwrap_or(SCREENFUL)),
    };
    if arguments.ssh {
        return match asked_for(env::var_os("SSH_ORIGINAL_COMMAND"), &state) {
            Ok(None) => list(&state, printer),
            Ok(Some(guest)) => {
                let console = Console::of(&state, &guest)?;
                let console = console.ok_or_else(|| Failure::new(Status::BadInput, Refused))?;
                attach(&console, begin, false, settings)
            }
            Err(refused) => Err(Failure::new(Status::BadInput, refused)),
        };
    }
    let Some(guest) = &arguments.guest else {
        return list(&state, printer);
    };
    let console = Console::of(&state, guest)?;
    let console = console.ok_or_else(|| {
        let undefined = GuestError::Undefined { guest: guest.clone() };
        Failure::new(Status::BadInput, undefined).hint("`penstock console` lists those that are")
    })?;
    attach(&console, begin, arguments.read_only, settings)
}

/// A request over SSH that is not the name of one guest of this machine. It says nothing of what was asked for, which may
/// be anything.
#[derive(Debug, PartialEq, Eq)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "this account takes the name of one guest and nothing else; without a name it lists the guests",
        )
    }
}

impl std::error::Error for Refused {}

/// The guest that an SSH client asks for with `SSH_ORIGINAL_COMMAND` (sshd_config(5), `ForceCommand`): the name of one that
/// is defined, and not a byte more. `None` for a client that asks for nothing.
fn asked_for(command: Option<OsString>, state: &State) -> Result<Option<GuestName>, Refused> {
    let Some(command) = command.filter(|command| !command.is_empty()) else {
        return Ok(None);
    };
    let guest: GuestName = command.to_str().and_then(|name| name.parse().ok()).ok_or(Refused)?;
    // Looked up among those that there are, so that no path is ever made from what a client says.
    let known = state.guests().unwrap_or_default();
    if known.contains(&guest) { Ok(Some(guest)) } else { Err(Refused) }
}

/// The guests that have a console.
#[derive(Serialize, schemars::JsonSchema)]
pub struct Consoles {
    guests: Vec<Listed>,
}

/// A guest with a console.
#[derive(Serialize, schemars::JsonSchema)]
struct Listed {
    /// The guest that it belongs to.
    guest: GuestName,
    /// A VM or a container.
    kind: GuestKind,
    /// How many bytes are in its log; `None` before its first start.
    bytes: Option<u64>,
}

fn list(state: &State, printer: &mut Printer) -> Result<Status, Failure> {
    let mut all = Vec::new();
    for guest in state.guests()? {
        if let Some(console) = Console::of(state, &guest)? {
            all.push(Listed { kind: console.kind(), bytes: files::length(console.log()).ok(), guest });
        }
    }
    let all = Consoles { guests: all };
    printer.data(&all, || {
        if all.guests.is_empty() {
            return "No guests are defined on this machine.".to_owned();
        }
        let line = |listed: &Listed| {
            let kind = match listed.kind {
                GuestKind::Vm => "VM",
                GuestKind::Container => "container",
            };
            match listed.bytes {
                Some(bytes) => format!("{:<16} {kind:<9}  {bytes} bytes\n", listed.guest),
                None => format!("{:<16} {kind:<9}  nothing yet\n", listed.guest),
            }
        };
        all.guests.iter().map(line).collect()
    })?;
    Ok(Status::Holds)
}

/// Shows a console, and forwards what is typed or piped, until there is a reason to leave.
fn attach(console: &Console, begin: Begin, read_only: bool, settings: &Settings) -> Result<Status, Failure> {
    let unreadable = |source: io::Error| {
        let text = format!("could not read {}: {source}", console.log().display());
        let failure = Failure::new(source.status(), text);
        match source.kind() {
            io::ErrorKind::PermissionDenied => {
                failure.hint(format!("be root, or a member of the group {GROUP}"))
            }
            _ => failure,
        }
    };
    let follower = Follower::new(console.log(), begin).map_err(unreadable)?;
    let older = if begin == Begin::First { console.older_logs() } else { Vec::new() };
    let interactive = terminal::is_input();
    let notes = Notes { quiet: settings.quiet, raw: interactive };
    let leave = match (interactive, read_only) {
        (true, true) => "; Ctrl-] or Ctrl-C leaves",
        (true, false) => "; Ctrl-] leaves",
        (false, _) => "",
    };
    if interactive {
        Notes { raw: false, ..notes }.say(&format!("console of {}{leave}", console.guest()));
    }
    // Shown by a thread of its own: however stuck the terminal is, keys and signals are seen.
    let shown = Shown::start(follower, older)?;
    let raw = if interactive { Some(Raw::enter()?) } else { None };
    let mut session = Session {
        console,
        notes,
        right: if read_only { Right::Never } else { Right::NotYet { told: None } },
        line: None,
        pending: Vec::new(),
        told_absent: false,
        told_dropped: false,
    };
    let outcome = match interactive {
        true => session.with_keys(&shown),
        false => session.with_input(&shown),
    };
    if let (Ok(Left::ByKey), Some(raw)) = (&outcome, &raw) {
        raw.usual_looks();
    }
    drop(raw);
    match outcome? {
        Left::ByKey => {
            Notes { raw: false, ..notes }.say(&format!("left the console of {}", console.guest()));
            Ok(Status::Holds)
        }
        Left::AtEnd => Ok(Status::Holds),
        Left::Interrupted => Ok(Status::Interrupted),
    }
}

/// Why a console was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    ByKey,
    AtEnd,
    Interrupted,
}

/// What is said beside what the guest says.
#[derive(Clone, Copy)]
struct Notes {
    quiet: bool,
    raw: bool,
}

impl Notes {
    fn say(&self, text: &str) {
        if !self.quiet {
            let line = if self.raw { format!("\r\n[{text}]\r\n") } else { format!("penstock: {text}\n") };
            // A terminal that is gone is noticed elsewhere.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

/// Whether this console's user may write.
enum Right {
    /// The user does not want to, or cannot.
    Never,
    /// Another has the right, if any was told of.
    NotYet { told: Option<Holder> },
    /// It is this user's turn.
    Now(Turn),
}

struct Session<'a> {
    console: &'a Console,
    notes: Notes,
    right: Right,
    line: Option<Line>,
    pending: Vec<u8>,
    told_absent: bool,
    told_dropped: bool,
}

impl Session<'_> {
    /// A person at a terminal.
    fn with_keys(&mut self, shown: &Shown) -> Result<Left, Failure> {
        let mut buffer = [0; 4096];
        let mut tried: Option<Instant> = None;
        loop {
            if let Some(left) = self.look_around(shown)? {
                return Ok(left);
            }
            if tried.is_none_or(|tried| tried.elapsed() >= RETRY) {
                tried = Some(Instant::now());
                self.seek_right();
            }
            self.send();
            match terminal::read_input(&mut buffer, TICK)? {
                Input::Nothing => {}
                // A terminal that hung up.
                Input::End => return Ok(Left::Interrupted),
                Input::Bytes(count) => {
                    let typed = &buffer[..count];
                    let leaves =
                        |key: &u8| *key == LEAVE || *key == CTRL_C && matches!(self.right, Right::Never);
                    let end = typed.iter().position(leaves);
                    self.type_in(&typed[..end.unwrap_or(count)]);
                    if end.is_some() {
                        return Ok(Left::ByKey);
                    }
                }
            }
        }
    }

    /// A pipe or file.
    fn with_input(&mut self, shown: &Shown) -> Result<Left, Failure> {
        let mut buffer = [0; 4096];
        let mut sent = false;
        let mut ended: Option<Instant> = None;
        let mut taken = Instant::now();
        loop {
            if let Some(left) = self.look_around(shown)? {
                return Ok(left);
            }
            if matches!(self.right, Right::Never) {
                // Only looks on.
                thread::sleep(TICK);
                continue;
            }
            if !self.pending.is_empty() {
                sent = true;
                self.send_on(&mut taken, AT_MOST)?;
                continue;
            }
            if let Some(ended) = ended {
                let quiet = if sent { QUIET } else { QUIET_UNASKED };
                if ended.elapsed() >= AT_MOST || ended.elapsed().min(shown.quiet_for()) >= quiet {
                    return Ok(Left::AtEnd);
                }
                thread::sleep(TICK);
                continue;
            }
            match terminal::read_input(&mut buffer, TICK)? {
                Input::Nothing => {}
                Input::End => ended = Some(Instant::now()),
                Input::Bytes(count) => {
                    self.must_write()?;
                    self.pending.extend(&buffer[..count]);
                    taken = Instant::now();
                }
            }
        }
    }

    /// Signals, what the showing thread has to say, and whether anybody still looks.
    fn look_around(&mut self, shown: &Shown) -> Result<Option<Left>, Failure> {
        if interrupt::pending() {
            return Ok(Some(Left::Interrupted));
        }
        for event in shown.events.try_iter() {
            match event {
                Event::Anew => {
                    self.told_absent = false;
                    self.notes
                        .say("its log begins anew: the guest was started again, or the log was put aside");
                }
                Event::Absent => self.notes.say("it has said nothing yet; waiting for it"),
                Event::Unreadable(why) => self.notes.say(&format!("its log cannot be read now: {why}")),
            }
        }
        Ok(shown.is_over().then_some(if self.notes.raw { Left::Interrupted } else { Left::AtEnd }))
    }

    /// Gets, keeps and regains the right to write and the way in, and says how it stands when that changes.
    fn seek_right(&mut self) {
        if let Right::Now(turn) = &self.right
            && !turn.is_good()
        {
            self.line = None;
            self.right = Right::NotYet { told: None };
        }
        if let Right::NotYet { told } = &mut self.right {
            match self.console.take() {
                Ok(WriteTurn::Ours(turn)) => {
                    if told.is_some() {
                        self.notes.say("the other has left: now you write");
                    }
                    self.right = Right::Now(turn);
                    self.told_dropped = false;
                }
                Ok(WriteTurn::ByAnother(holder)) => {
                    // Who just took it may not have said yet who it is.
                    let news = told.as_ref().is_none_or(|told| holder.pid.is_some() && *told != holder);
                    if news {
                        self.notes.say(&format!("read-only while {holder} writes; after that you do"));
                        *told = Some(holder);
                    }
                }
                Err(error) => self.cannot(&error),
            }
        }
        if self.line.as_ref().is_some_and(|line| !line.is_open()) {
            self.line = None;
            self.pending.clear();
        }
        if let (Right::Now(turn), None) = (&self.right, &self.line) {
            match self.console.connect(turn) {
                Ok(line) => {
                    if self.told_absent {
                        self.notes.say("the guest is there; you write");
                    }
                    self.told_absent = false;
                    self.line = Some(line);
                }
                Err(error) => self.cannot(&error),
            }
        }
    }

    fn cannot(&mut self, error: &ConsoleError) {
        if error.is_final() {
            self.right = Right::Never;
            let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            self.notes.say(&format!("read-only: {error}{hint}; Ctrl-] or Ctrl-C leaves"));
        } else if !self.told_absent {
            self.told_absent = true;
            self.notes.say(&format!("{error}; waiting for it"));
        }
    }

    fn type_in(&mut self, typed: &[u8]) {
        if typed.is_empty() {
            return;
        }
        if self.line.is_some() && self.pending.len() + typed.len() <= PENDING {
            self.pending.extend(typed);
            self.send();
        } else if !std::mem::replace(&mut self.told_dropped, true) {
            self.notes.say("what you type does not reach the guest");
        }
    }

    /// Hands the guest what it takes now.
    fn send(&mut self) {
        if let Some(line) = &mut self.line
            && !self.pending.is_empty()
        {
            // A guest that is gone closes the line.
            let taken = line.write(&self.pending).unwrap_or(0);
            self.pending.drain(..taken);
        }
    }

    /// Hands the guest what it takes now of a script's input, which is given up when the guest is gone, or has `taken` nothing for so long.
    fn send_on(&mut self, taken: &mut Instant, at_most: Duration) -> Result<(), Failure> {
        let before = self.pending.len();
        self.send();
        let left = self.pending.len();
        let why = if !self.line.as_ref().is_some_and(Line::is_open) {
            "went away".to_owned()
        } else if left < before {
            *taken = Instant::now();
            return Ok(());
        } else if taken.elapsed() < at_most {
            return Ok(());
        } else {
            format!("has read nothing from its console for {} s", at_most.as_secs())
        };
        let text = format!("guest {} {why}, with {left} bytes not sent to it", self.console.guest());
        Err(Failure::new(Status::Failed, text))
    }

    /// The right to write and the way in, for a script, which must not go on without.
    fn must_write(&mut self) -> Result<(), Failure> {
        if self.line.is_some() {
            return Ok(());
        }
        let turn = match self.console.take().map_err(unwritable)? {
            WriteTurn::Ours(turn) => turn,
            WriteTurn::ByAnother(holder) => {
                let text =
                    format!("the console of guest {} is being written to by {holder}", self.console.guest());
                return Err(Failure::new(Status::Busy, text)
                    .hint("with a terminal (ssh -t) you look on, and write when the other leaves"));
            }
        };
        let began = Instant::now();
        let line = loop {
            match self.console.connect(&turn) {
                Err(error) if error.is_final() || began.elapsed() >= STARTING || interrupt::pending() => {
                    return Err(unwritable(error));
                }
                Err(_) => thread::sleep(TICK),
                Ok(line) => break line,
            }
        };
        self.line = Some(line);
        self.right = Right::Now(turn);
        Ok(())
    }
}

fn unwritable(error: ConsoleError) -> Failure {
    Failure::from(error)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::unix::{ffi::OsStringExt, net::UnixListener},
    };

    use penstock_plan::action::GuestDefinition;

    use super::*;

    #[test]
    fn a_script_is_given_up_when_the_guest_reads_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let guest = directory.path().join("penstock-a");
        files::create_dir_all(&guest).unwrap();
        let name: GuestName = "a".parse().unwrap();
        let definition =
            GuestDefinition { vm: Some(Default::default()), ..GuestDefinition::bare(name.clone()) };
        files::write_atomic(guest.join("definition.json"), serde_json::to_vec(&definition).unwrap()).unwrap();
        let listener = UnixListener::bind(guest.join("console.sock")).unwrap();
        let console = Console::of(&State::new(directory.path().to_owned()), &name).unwrap().unwrap();
        let mut session = Session {
            console: &console,
            notes: Notes { quiet: true, raw: false },
            right: Right::NotYet { told: None },
            line: None,
            pending: vec![b'x'; 8 << 20],
            told_absent: false,
            told_dropped: false,
        };
        session.must_write().unwrap();
        let (mut vm, _) = listener.accept().unwrap();
        let begun = Instant::now();
        let mut taken = begun;
        // As much as a socket holds is taken; what takes longer is not given up before its time.
        let error = loop {
            if let Err(error) = session.send_on(&mut taken, Duration::from_millis(300)) {
                break error.in_one_line();
            }
        };
        let left = session.pending.len();
        assert!(left < 8 << 20 && taken > begun, "some of it was taken");
        assert!(
            error.contains("read nothing") && error.contains(&format!("{left} bytes not sent")),
            "{error}"
        );
        // With a guest that reads again it goes on.
        vm.read_exact(&mut vec![0; (8 << 20) - left]).unwrap();
        let mut taken = Instant::now();
        session.send_on(&mut taken, AT_MOST).unwrap();
        assert!(session.pending.len() < left);
    }

    #[test]
    fn over_ssh_only_the_name_of_a_guest_gets_through() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::new(directory.path().to_owned());
        for name in ["rt-2", "a.b_c"] {
            let path = directory.path().join(format!("penstock-{name}/definition.json"));
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write_atomic(path, "{}").unwrap();
        }
        let ask = |command: &[u8]| asked_for(Some(OsString::from_vec(command.to_owned())), &state);
        assert_eq!(asked_for(None, &state), Ok(None));
        assert_eq!(ask(b""), Ok(None));
        for name in ["rt-2", "a.b_c"] {
            assert_eq!(ask(name.as_bytes()), Ok(Some(name.parse().unwrap())));
        }
        let hostile: [&[u8]; 24] = [
            b" ",
            b" rt-2",
            b"rt-2 ",
            b"rt-2\n",
            b"rt-2\0",
            b"rt-2;id",
            b"rt-2 && sh",
            b"rt-2|sh",
            b"`id`",
            b"$(id)",
            b"rt-2 --read-only",
            b"--all",
            b"-",
            b"--",
            b"-- rt-2",
            b"..",
            b"../rt-2",
            b"penstock-rt-2/../penstock-rt-2",
            b"/etc/passwd",
            b"rt-3",
            b"RT-2",
            b"rt\xff2",
            b"internal-sftp",
            b"\x1b[2Jrt-2",
        ];
        for command in hostile {
            assert_eq!(ask(command), Err(Refused), "{}", String::from_utf8_lossy(command));
        }
        assert_eq!(ask(&vec![b'a'; 1 << 20]), Err(Refused));
    }
}
