//! `penstock console` and `penstock status`, with its page, as a user meets them: pseudo-terminals on one side, on the other a thread that
//! serves a VM's console as QEMU does.
#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    pty::openpty,
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use penstock_plan::action::GuestDefinition;
use penstock_testkit::{binary::Run, json};

/// Longer than anything here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until `seen` says so.
fn until(what: &str, mut seen: impl FnMut() -> bool) {
    let began = Instant::now();
    while !seen() {
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A state directory with a VM `rt-2` that is defined.
struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.guest()).unwrap();
        let definition = GuestDefinition {
            vm: Some(Default::default()),
            ..GuestDefinition::bare("rt-2".parse().unwrap())
        };
        let definition = serde_json::to_vec(&definition).unwrap();
        fs::write(machine.guest().join("definition.json"), definition).unwrap();
        machine
    }

    fn state(&self) -> &Path {
        self.directory.path()
    }

    fn guest(&self) -> PathBuf {
        self.state().join("guests/penstock-rt-2")
    }

    fn log(&self) -> PathBuf {
        self.guest().join("console.log")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        command.env("PENSTOCK_STATE", self.state()).env("NO_COLOR", "1").env("TERM", "xterm");
        command.env_remove("SSH_ORIGINAL_COMMAND");
        command.args(arguments);
        command
    }

    /// Runs to the end with this on standard input.
    fn run(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap().into()
    }

    fn append(&self, text: &[u8]) {
        File::options().append(true).create(true).open(self.log()).unwrap().write_all(text).unwrap();
    }
}

/// A VM whose serial port is served as QEMU does it: all that it says goes into the log and to the one client that is
/// connected, and it waits for a client that does not read. It answers each byte that it gets with `<BYTE>`.
struct Vm {
    got: Arc<Mutex<Vec<u8>>>,
    say: Arc<Mutex<Vec<u8>>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    socket: PathBuf,
}

impl Vm {
    fn start(machine: &Machine) -> Vm {
        fs::write(machine.log(), "booting\r\n").unwrap();
        let socket = machine.guest().join("console.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let vm = Vm { got: Arc::default(), say: Arc::default(), end: Arc::default(), thread: None, socket };
        let (got, say, end) = (vm.got.clone(), vm.say.clone(), vm.end.clone());
        let log = machine.log();
        let serve = move || {
            let mut client: Option<UnixStream> = None;
            let mut log = File::options().append(true).open(log).unwrap();
            while !end.load(Ordering::Relaxed) {
                let mut answer = std::mem::take(&mut *say.lock().unwrap());
                match &mut client {
                    None => {
                        if let Ok((stream, _)) = listener.accept() {
                            stream.set_nonblocking(false).unwrap();
                            stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
                            client = Some(stream);
                        } else {
                            thread::sleep(Duration::from_millis(2));
                        }
                    }
                    Some(stream) => {
                        let mut buffer = [0; 256];
                        match stream.read(&mut buffer) {
                            Ok(0) => client = None,
                            Ok(count) => {
                                got.lock().unwrap().extend(&buffer[..count]);
                                answer.extend(buffer[..count].iter().flat_map(|b| [b'<', *b, b'>']));
                            }
                            Err(error)
                                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                            Err(_) => client = None,
                        }
                    }
                }
                log.write_all(&answer).unwrap();
                if client.as_mut().is_some_and(|stream| stream.write_all(&answer).is_err()) {
                    client = None;
                }
            }
        };
        Vm { thread: Some(thread::spawn(serve)), ..vm }
    }

    fn says(&self, bytes: &[u8]) {
        self.say.lock().unwrap().extend(bytes);
    }

    fn got(&self) -> String {
        String::from_utf8_lossy(&self.got.lock().unwrap()).into_owned()
    }

    fn stop(mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        fs::remove_file(&self.socket).unwrap();
    }
}

/// `penstock` on a terminal of its own.
struct Person {
    master: File,
    slave: OwnedFd,
    before: Termios,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Person {
    fn at(machine: &Machine, arguments: &[&str]) -> Person {
        let person = Person::not_looking(machine, arguments);
        let (mut master, seen) = (person.master.try_clone().unwrap(), person.seen.clone());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = master.read(&mut buffer) {
                seen.lock().unwrap().extend(&buffer[..count]);
            }
        });
        person
    }

    /// One whose terminal takes a few kilobytes and then no more.
    fn not_looking(machine: &Machine, arguments: &[&str]) -> Person {
        let pty = openpty(None, None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = machine.command(arguments).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Person { master: File::from(pty.master), slave: pty.slave, before, child, seen: Arc::default() }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    fn sees(&self, text: &str) {
        let began = Instant::now();
        while !self.seen().contains(text) {
            assert!(began.elapsed() < TIMEOUT, "{text:?} is not in {:?}", self.seen());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn types(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    /// Waits until every key reaches the program as it is pressed.
    fn attached(&self) {
        until("a raw terminal", || {
            !tcgetattr(&self.slave).unwrap().local_flags.intersects(LocalFlags::ICANON | LocalFlags::ISIG)
        });
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits until the child has stopped, and says whether the terminal is as it was.
    fn stops(&self) -> bool {
        let child = Pid::from_raw(self.child.id() as i32);
        until("a stop", || {
            let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
            matches!(waitpid(child, Some(flags)).unwrap(), WaitStatus::Stopped(..))
        });
        tcgetattr(self.slave.as_fd()).unwrap() == self.before
    }

    /// How often the page has come to the terminal, and how often it has gone.
    fn pages(&self) -> (usize, usize) {
        let seen = self.seen();
        (seen.matches("\u{1b}[?1049h").count(), seen.matches("\u{1b}[?1049l").count())
    }

    /// Waits for the end: the exit status, and whether the terminal is as it was.
    fn ends(&mut self) -> (Option<i32>, bool) {
        let mut status = None;
        until("the end of penstock", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let restored = tcgetattr(self.slave.as_fd()).unwrap() == self.before;
        (status.unwrap().code(), restored)
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_reach_the_guest_and_one_leaves() {
    let machine = Machine::new();
    let vm = Vm::start(&machine);
    let mut person = Person::at(&machine, &["console", "rt-2"]);
    person.sees("Ctrl-] leaves");
    person.sees("booting");
    person.attached();
    // Also those that would be signals: they are the guest's.
    person.types(b"ls\r\x03\x1a");
    until("the keys in the guest", || vm.got() == "ls\r\x03\x1a");
    person.sees("<l><s>");
    // What was typed before the key that leaves still gets there.
    person.types(b"q\x1dnever");
    assert_eq!(person.ends(), (Some(0), true));
    until("the last key in the guest", || vm.got().ends_with('q'));
    person.sees("left the console of rt-2");
    assert_eq!(fs::read_to_string(machine.guest().join("console.lock")).unwrap(), "", "nobody writes");
    vm.stop();
}

#[test]
fn many_read_one_writes_and_the_next_takes_over() {
    let machine = Machine::new();
    let vm = Vm::start(&machine);
    let mut first = Person::at(&machine, &["console", "rt-2"]);
    first.attached();
    first.types(b"1");
    until("the first one's key", || vm.got() == "1");
    let mut second = Person::at(&machine, &["console", "rt-2"]);
    second.sees(&format!("(pid {}) writes", first.child.id()));
    let mut third = Person::at(&machine, &["console", "rt-2", "--read-only"]);
    third.sees("<1>");
    second.types(b"x");
    second.sees("does not reach the guest");
    let script = machine.run(&["console", "rt-2"], b"script\n");
    assert_eq!(script.status, 9, "a script must not go on without: {}", script.stderr);
    assert!(script.stderr.contains(&format!("(pid {})", first.child.id())), "{}", script.stderr);
    // Killed in the middle: no chance to put anything right.
    first.signal(Signal::SIGKILL);
    first.ends();
    second.sees("now you write");
    second.types(b"2");
    until("the second one's key", || vm.got() == "12");
    third.sees("<2>");
    third.types(b"3\x03");
    assert_eq!(third.ends(), (Some(0), true));
    second.types(b"\x1d");
    assert_eq!(second.ends(), (Some(0), true));
    assert_eq!(vm.got(), "12");
    vm.stop();
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let machine = Machine::new();
    let vm = Vm::start(&machine);
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        let mut person = Person::at(&machine, &["console", "rt-2"]);
        person.attached();
        person.signal(signal);
        assert_eq!(person.ends(), (Some(130), true), "{signal}");
    }
    let mut next = Person::at(&machine, &["console", "rt-2"]);
    next.attached();
    next.types(b"k");
    until("the next one's key", || vm.got() == "k");
    drop(next);
    vm.stop();
}

#[test]
fn a_stuck_terminal_does_not_hold_the_guest_up() {
    let machine = Machine::new();
    let vm = Vm::start(&machine);
    let mut person = Person::not_looking(&machine, &["console", "rt-2"]);
    person.attached();
    person.types(b"!");
    until("a connection", || vm.got() == "!");
    let line = vec![b'x'; 1 << 20];
    for megabytes in 1..=8 {
        vm.says(&line);
        until("the guest goes on", || fs::metadata(machine.log()).unwrap().len() >= megabytes << 20);
    }
    person.types(b"?");
    until("a key past the stuck terminal", || vm.got() == "!?");
    person.signal(Signal::SIGTERM);
    assert_eq!(person.ends(), (Some(130), true));
    vm.stop();
}

#[test]
fn a_guest_that_is_stopped_and_started_is_regained() {
    let machine = Machine::new();
    let mut person = Person::at(&machine, &["console", "rt-2"]);
    person.sees("it does not run; waiting for it");
    person.attached();
    let vm = Vm::start(&machine);
    person.sees("the guest is there; you write");
    person.types(b"a");
    until("a key in the first run", || vm.got() == "a");
    person.sees("<a>");
    vm.stop();
    person.sees("waiting for it");
    fs::remove_file(machine.log()).unwrap();
    let vm = Vm::start(&machine);
    until("the log of the next run", || person.seen().matches("booting").count() == 2);
    until("a key in the next run", || {
        person.types(b"b");
        thread::sleep(Duration::from_millis(100));
        vm.got().contains('b')
    });
    person.sees("<b>");
    person.types(b"\x1d");
    assert_eq!(person.ends(), (Some(0), true));
    vm.stop();
}

#[test]
fn what_is_piped_is_sent_and_what_comes_back_is_shown() {
    let machine = Machine::new();
    let vm = Vm::start(&machine);
    let run = machine.run(&["console", "rt-2"], b"uname\n");
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(vm.got(), "uname\n");
    assert!(run.stdout.starts_with("booting\r\n<u><n>"), "{}", run.stdout);
    assert!(run.stdout.ends_with("<\n>"), "{}", run.stdout);
    let nothing = machine.run(&["console", "rt-2", "--lines", "1"], b"");
    assert_eq!((nothing.status, nothing.stdout.as_str()), (0, ">"), "the last line alone");
    vm.stop();
    let late = machine.run(&["console", "rt-2"], b"x");
    assert_eq!(late.status, 8, "{}", late.stderr);
    assert!(late.stderr.contains("it does not run"), "{}", late.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let machine = Machine::new();
    machine.append(b"one\ntwo\n");
    let mut command = machine.command(&["console", "rt-2", "--read-only"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let mut status = None;
    until("the end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}

#[test]
fn the_scroll_back_asks_the_terminal_nothing() {
    let machine = Machine::new();
    let past = b"\x1b[6n\x1b[c\x1b]11;?\x07\x1bZ\x05\x1bP$qm\x1b\\\x1b[31mred\x1b[0m past\r\n";
    machine.append(past);
    let person = Person::at(&machine, &["console", "rt-2", "--read-only"]);
    person.sees("\x1b[31mred\x1b[0m past");
    for question in ["\x1b[6n", "\x1b[c", "\x1b]11", "\x1bZ", "\x05", "\x1bP"] {
        assert!(!person.seen().contains(question), "{question:?} in {:?}", person.seen());
    }
    machine.append(b"\x1b[6nlive");
    person.sees("\x1b[6nlive");
    // Somebody who is no terminal gets what was said, byte for byte.
    let piped = machine.run(&["console", "rt-2", "--all"], b"");
    assert_eq!(piped.stdout.as_bytes(), [past.as_slice(), b"\x1b[6nlive"].concat());
}

#[test]
fn all_of_it_begins_with_what_was_put_aside() {
    let machine = Machine::new();
    fs::write(machine.guest().join("console.log.1"), "oldest ").unwrap();
    fs::write(machine.guest().join("console.log.0"), "older ").unwrap();
    machine.append(b"new");
    assert_eq!(machine.run(&["console", "rt-2", "--all"], b"").stdout, "oldest older new");
    assert_eq!(machine.run(&["console", "rt-2"], b"").stdout, "new");
}

#[test]
fn over_ssh_there_are_consoles_and_nothing_else() {
    let machine = Machine::new();
    machine.append(b"hello\n");
    let ask = |command: Option<&str>| -> Run {
        let mut penstock = machine.command(&["console", "--ssh"]);
        if let Some(command) = command {
            penstock.env("SSH_ORIGINAL_COMMAND", command);
        }
        penstock.stdin(Stdio::null()).output().unwrap().into()
    };
    for nothing in [None, Some("")] {
        let list = ask(nothing);
        assert_eq!(list.status, 0, "{}", list.stderr);
        assert!(list.stdout.starts_with("rt-2 ") && list.stdout.contains("6 bytes"), "{}", list.stdout);
    }
    let console = ask(Some("rt-2"));
    assert_eq!((console.status, console.stdout.as_str()), (0, "hello\n"), "{}", console.stderr);
    for hostile in ["sh", "rt-2; sh", "rt-2 --all", "--help", "../rt-2", "$(id)", "rt-2\nid", "rt-3"] {
        let refused = ask(Some(hostile));
        assert_eq!((refused.status, refused.stdout.as_str()), (2, ""), "{hostile}: {}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{hostile}: {}", refused.stderr);
    }
    let options = machine.run(&["console", "--ssh", "rt-2"], b"");
    assert_eq!(options.status, 2);
}

#[test]
fn a_guest_that_there_is_not_has_no_console() {
    let machine = Machine::new();
    let run = machine.run(&["console", "rt-3"], b"");
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("guest rt-3 is not defined here"), "{}", run.stderr);
    let list = machine.run(&["console"], b"");
    assert!(list.stdout.contains("nothing yet"), "{}", list.stdout);
}

#[test]
fn a_guest_that_goes_away_is_not_said_to_come() {
    let machine = Machine::new();
    let me = penstock_host::running::Running::this().unwrap();
    let wait = |what: &str| serde_json::json!([{"step": 4, "what": what, "reason": "it goes", "since": null, "until": null}]);
    let progress = serde_json::json!({
        "process": {"id": me.id, "started": me.started},
        "doing": "taking back what was done", "since": 1, "steps": 9, "done": 3, "at": [3, "stop"],
        "guests": {"rt-2": wait("guest rt-2 to be stopped"), "web": wait("guest web: remove its definition"), "db": wait("its VF")},
        "leaving": ["rt-2", "web"],
    });
    fs::write(machine.state().join("progress.json"), progress.to_string()).unwrap();
    let status = machine.run(&["status"], b"");
    for line in [
        "web                         being removed, waits for: guest web: remove its definition",
        "db                          not there yet, waits for: its VF",
        "rt-2             VM         stopped, waits for: guest rt-2 to be stopped",
    ] {
        assert!(status.stdout.contains(line), "{line}: {}", status.stdout);
    }
    let status: serde_json::Value = json::read(&machine.run(&["status", "--json"], b"").stdout).unwrap();
    assert_eq!(status["guests"]["web"]["leaves"], true);
    assert!(status["guests"]["db"].get("leaves").is_none(), "{status}");
}

#[test]
fn who_names_a_guest_where_the_model_stands_is_told_the_order() {
    let machine = Machine::new();
    for verb in ["stop", "start"] {
        let told = machine.run(&[verb, "rt-2"], b"");
        assert_eq!(told.status, 2, "{}", told.stderr);
        let help = format!("rt-2 is a guest, and the model stands before it: `penstock {verb} MODEL rt-2`");
        assert!(told.stderr.contains(&help), "{}", told.stderr);
        let told = machine.run(&[verb, "nobody"], b"");
        assert!(!told.stderr.contains("MODEL nobody"), "{}", told.stderr);
    }
}

#[test]
fn status_tells_of_the_dead_and_of_who_waits() {
    let machine = Machine::new();
    let stopped = machine.run(&["status"], b"");
    assert_eq!(stopped.status, 0, "{}", stopped.stderr);
    assert!(stopped.stdout.contains("rt-2             VM         stopped"), "{}", stopped.stdout);
    // A QEMU that is not there any more.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let started = format!(
        r#"{{"boot": "{}", "since": 1, "functions": [], "init": {{"pid": {}, "started": 1}}}}"#,
        boot.trim(),
        i32::MAX,
    );
    fs::write(machine.guest().join("started.json"), started).unwrap();
    machine.append(b"all is well\r\nKernel panic \x1b[31m- not \x07syncing\r\n");
    let died = machine.run(&["status"], b"");
    assert!(died.stdout.contains("VM         died\n"), "{}", died.stdout);
    assert!(died.stdout.contains("| Kernel panic - not \u{fffd}syncing\n"), "{}", died.stdout);
    // A run of this very process, then of one that is gone.
    let me = penstock_host::running::Running::this().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    for (started, said) in [
        (me.started, "rt-2             VM         died, waits for: link of NET1 (0000:02:00.0), up to "),
        (me.started + 1, "A penstock that was applying died at step 4 (wait)"),
    ] {
        let progress = serde_json::json!({
            "process": {"id": me.id, "started": started},
            "doing": "applying", "since": now as u64, "steps": 9, "done": 3, "at": [4, "wait"],
            "guests": {"rt-2": [{
                "step": 4, "what": "link of NET1 (0000:02:00.0)", "reason": "rt-2 needs it",
                "since": now as u64, "until": now as u64 + 60_000,
            }]},
        });
        fs::write(machine.state().join("progress.json"), progress.to_string()).unwrap();
        let status = machine.run(&["status"], b"");
        assert!(status.stdout.contains(said), "{}", status.stdout);
    }
    let status = machine.run(&["status", "--json"], b"");
    let status: serde_json::Value = json::read(&status.stdout).unwrap();
    assert_eq!(status["guests"]["rt-2"]["condition"], "died");
    assert_eq!(status["died"]["steps"], 9);
    assert!(status["progress"].is_null());
}

#[test]
fn the_page_of_status_answers_keys_and_opens_a_console() {
    let machine = Machine::new();
    let vm = Vm::start(&machine);
    vm.says(b"\x1b]0;title\x07\x1b[2Jhostile\r\n");
    let mut person = Person::at(&machine, &["status", "--watch"]);
    person.sees("stopped");
    person.attached();
    person.types(b"?");
    person.sees("screenful");
    person.types(b"ql");
    person.sees("hostile");
    assert!(!person.seen().contains("\u{1b}]0;"), "{:?}", person.seen());
    person.types(b"q\r");
    person.sees("Ctrl-] leaves");
    assert_eq!(person.pages(), (1, 1), "the console has the terminal");
    until("a key in the guest", || {
        person.types(b"x");
        thread::sleep(Duration::from_millis(50));
        vm.got().contains('x')
    });
    person.types(b"\x1d");
    until("the page again", || person.pages() == (2, 1));
    person.attached();
    person.types(b"q");
    assert_eq!(person.ends(), (Some(0), true));
    until("the end of the page", || person.pages() == (2, 2));
    vm.stop();
}

#[test]
fn the_page_of_status_leaves_the_terminal_as_it_was() {
    let machine = Machine::new();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        let mut person = Person::at(&machine, &["status", "--watch"]);
        person.sees("stopped");
        person.signal(signal);
        assert_eq!(person.ends(), (Some(130), true), "{signal}");
        until("the end of the page", || person.pages() == (1, 1));
    }
    // Ctrl-C is a key.
    let mut person = Person::at(&machine, &["status", "--watch"]);
    person.attached();
    person.types(b"\x03");
    assert_eq!(person.ends(), (Some(0), true));
    // One that is drawn again and again on a terminal that takes nothing any more.
    let mut person = Person::not_looking(&machine, &["status", "--watch"]);
    person.attached();
    person.types(&[0x0c; 200]);
    thread::sleep(Duration::from_secs(1));
    person.signal(Signal::SIGTERM);
    assert_eq!(person.ends(), (Some(130), true));
    // A console that is open ends first.
    let vm = Vm::start(&machine);
    let mut person = Person::at(&machine, &["status", "--watch"]);
    person.sees("stopped");
    person.types(b"c");
    person.sees("Ctrl-] leaves");
    person.attached();
    person.signal(Signal::SIGTERM);
    assert_eq!(person.ends(), (Some(130), true));
    vm.stop();
}

#[test]
fn the_page_of_status_stops_and_goes_on() {
    let machine = Machine::new();
    let mut person = Person::at(&machine, &["status", "--watch"]);
    person.sees("stopped");
    for (pages, by_key) in [(1, true), (2, false)] {
        match by_key {
            true => person.types(b"\x1a"),
            false => person.signal(Signal::SIGTSTP),
        }
        assert!(person.stops(), "the terminal is as it was");
        until("no page", || person.pages() == (pages, pages));
        person.signal(Signal::SIGCONT);
        until("the page again", || person.pages() == (pages + 1, pages));
        person.attached();
    }
    // Stopped by what no program can catch, and the shell has made the terminal its own meanwhile.
    person.signal(Signal::SIGSTOP);
    assert!(!person.stops());
    tcsetattr(&person.slave, SetArg::TCSANOW, &person.before).unwrap();
    person.signal(Signal::SIGCONT);
    person.attached();
    person.types(b"q");
    assert_eq!(person.ends(), (Some(0), true));
}

#[test]
fn the_page_of_status_needs_a_terminal() {
    let machine = Machine::new();
    for arguments in
        [&["status", "--watch"][..], &["status", "--watch", "--json"], &["status", "--watch", "-q"]]
    {
        let run = machine.run(arguments, b"");
        assert_eq!(run.status, 2, "{}", run.stderr);
        assert!(run.stderr.contains("penstock status --json"), "{}", run.stderr);
        assert!(!run.stdout.contains('\u{1b}'), "{}", run.stdout);
    }
    let run = machine.run(&["status", "--watch", "--host", "node-1"], b"");
    assert_eq!(run.status, 2, "{}", run.stderr);
    let run = machine.run(&["status", "m.yaml"], b"");
    assert!(run.status == 2 && run.stderr.contains("--watch"), "{}", run.stderr);
}
