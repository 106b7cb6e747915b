//! One machine: Penstock is made to run there, and listened to until it ends or is lost.

use std::{
    io::Write,
    path::Path,
    process::ChildStdin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use penstock_host::process::{Background, Talk, Terminal, each_line, quoted_where_needed};
use penstock_model::text::{clip, one_line};

use super::{
    bootstrap::{self, BootstrapReply, Program},
    hosts::Host,
    protocol::{HEARTBEAT, MAX_LINE, Reply, Request, TIMEOUT, encode},
    ssh::{self, SshTarget},
    trouble::Trouble,
};
use crate::failure::{Fault, Status};

#[cfg(test)]
mod tests;

/// How often wishes and the time are looked at.
const PAUSE: Duration = Duration::from_millis(50);
/// A machine of which nobody is asked for a password answers within this.
const LOGIN: Duration = Duration::from_secs(90);
/// How long a connection may take to end by itself.
const PARTING: Duration = Duration::from_secs(2);
/// What one machine says altogether is no more than this.
const MOST: usize = 256 << 20;
/// What is told to the other thread takes so many bytes more than its text, until that thread comes to it: an empty line is not free.
const EVENT: usize = 128;
/// What a login shell says before the script does is no more lines than this.
const GREETING: usize = 1000;
/// So much is kept of what is said on standard error.
const KEPT: usize = 40;
/// The longest line of standard error.
const COMPLAINT: usize = 4 << 10;

/// What is to be done on each machine.
#[derive(Debug)]
pub struct Job {
    /// The words of the command line there.
    pub words: Vec<String>,
    /// The verb, for messages.
    pub verb: &'static str,
    /// Whether it changes the machine: only root can.
    pub changes: bool,
    /// What the Penstock there is told first.
    pub begin: Request,
    /// This program, which is sent to a machine that does not have it.
    pub program: Program,
    /// Become root there.
    pub sudo: bool,
    /// Nobody can be asked for a password.
    pub batch: bool,
    /// The configuration of `ssh` that is read instead of the user's.
    pub config: Option<std::path::PathBuf>,
    /// Whether what is not confirmed in time is taken back there.
    pub confirms: bool,
}

impl Job {
    /// To apply something, for what is never sent anywhere.
    #[cfg(any(test, feature = "fuzzing"))]
    fn of_nothing(sudo: bool) -> Job {
        Job {
            words: Vec::new(),
            verb: "apply",
            changes: true,
            begin: Request::Alive,
            program: Program { bytes: Arc::from([]), hash: String::new() },
            sudo,
            batch: true,
            config: None,
            confirms: false,
        }
    }

    /// The options by which another command reaches this machine, or several with commas between them.
    pub fn reach(&self, hosts: &str) -> String {
        let sudo = if self.sudo { " --sudo" } else { "" };
        let config = self
            .config
            .as_ref()
            .map(|path| format!(" --ssh-config {}", quoted_where_needed(&path.to_string_lossy())));
        format!("--host {hosts}{sudo}{}", config.unwrap_or_default())
    }
}

/// What the user wants of all machines meanwhile.
#[derive(Debug, Default)]
pub struct Wish(AtomicU8);

impl Wish {
    /// Ctrl-C: what goes on there is to end in order; once more, it is given up. Says whether it is given up now.
    pub fn interrupt(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > 0
    }

    fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

/// Something happened with a machine.
#[derive(Debug)]
pub enum Event {
    /// What goes on now, as this side sees it.
    Doing(String),
    /// A line that is not Penstock's: of `ssh`, `sudo`, or a library.
    Noise(String),
    /// Something that the Penstock there says.
    Reply(Reply),
    /// It is over.
    Over(Over),
}

/// How it ended with a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// The exit status.
    pub status: Status,
    /// What to call that in one or two words, where the status alone does not tell it.
    pub what: Option<&'static str>,
    /// Why, where the Penstock there has not said it.
    pub trouble: Option<Trouble>,
}

impl Over {
    fn trouble(status: Status, what: &'static str, trouble: Trouble) -> Over {
        Over { status, what: Some(what), trouble: Some(trouble) }
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The script has not said anything.
    Connecting,
    /// The script runs.
    Preparing,
    /// Penstock runs on the other machine.
    Running,
}

/// Something was heard.
enum Heard {
    Output(Vec<u8>),
    Error(Vec<u8>),
}

/// Does the job on `host`; what happens is told to `tell`, which must not wait: meanwhile the other side would hear nothing. Gives how it
/// ended.
pub fn hold(host: &Host, job: &Job, wish: &Wish, tell: &mut dyn FnMut(Event)) -> Over {
    let way = SshTarget { host, config: job.config.as_deref().map(Path::new), batch: job.batch };
    tell(Event::Doing("connecting".to_owned()));
    let command = match way.has_own_timeout() {
        Ok(own) => way.command(own, bootstrap::FIRST),
        Err((status, trouble)) => return Over::trouble(status, "not reached", trouble),
    };
    let terminal = if job.batch { Terminal::Apart } else { Terminal::Shared };
    let Talk { program, input, output, errors } = match command.talk(terminal) {
        Ok(talk) => talk,
        Err(error) => return Over::trouble(error.status(), "not reached", ssh::not_started(&error, host)),
    };
    let (heard, from) = sync_channel(64);
    let also = heard.clone();
    let listen = |limit, wrap: fn(Vec<u8>) -> Heard, heard: SyncSender<Heard>| {
        move |stream: Box<dyn std::io::Read + Send>| {
            each_line(stream, limit, &mut |line| heard.send(wrap(line.to_vec())).is_ok())
        }
    };
    let (hear_output, hear_errors) =
        (listen(MAX_LINE, Heard::Output, heard), listen(COMPLAINT, Heard::Error, also));
    thread::spawn(move || hear_output(Box::new(output)));
    thread::spawn(move || hear_errors(Box::new(errors)));
    let mut session = Session::new(host, job, tell, token(host), Mouth::of(input));
    session.mouth.say(bootstrap::script(&session.token, &job.program, job.sudo, &job.words));
    let over = session.listen(program, &from, wish);
    drop(from);
    over
}

/// Takes `output` as what a machine prints that `apply` is run on, by `sudo` or not, with nobody to answer it; gives how it ended, if that
/// was said.
#[cfg(any(test, feature = "fuzzing"))]
pub fn take_output(token: &str, output: &[u8], sudo: bool, tell: &mut dyn FnMut(Event)) -> Option<Over> {
    let host: Host = "node-1".parse().expect("a name of a machine");
    let job = Job::of_nothing(sudo);
    let mut session = Session::new(&host, &job, tell, token.to_owned(), Mouth { to: None });
    let mut over = None;
    each_line(output, MAX_LINE, &mut |line| {
        over = session.hear(Heard::Output(line.to_vec()));
        over.is_none()
    });
    over
}

/// What tells the script's lines from those of a login shell.
fn token(host: &Host) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seed = format!("{} {} {host}", now.as_nanos(), std::process::id());
    penstock_model::digest::sha256(seed)[..16].to_owned()
}

struct Session<'a> {
    host: &'a Host,
    job: &'a Job,
    tell: &'a mut dyn FnMut(Event),
    token: String,
    mouth: Mouth,
    stage: Stage,
    began: Instant,
    /// When it was last seen to live.
    last: Instant,
    /// When it was last told that we live.
    beat: Instant,
    interrupted: bool,
    /// Bytes heard so far on standard output and standard error, and what was told of them takes; more than `MOST` end the session.
    size: usize,
    /// Lines heard before the script's first.
    greeting: usize,
    /// The last lines of standard error.
    complaints: Vec<String>,
}

impl<'a> Session<'a> {
    fn new(
        host: &'a Host,
        job: &'a Job,
        tell: &'a mut dyn FnMut(Event),
        token: String,
        mouth: Mouth,
    ) -> Session<'a> {
        Session {
            host,
            job,
            tell,
            token,
            mouth,
            stage: Stage::Connecting,
            began: Instant::now(),
            last: Instant::now(),
            beat: Instant::now(),
            interrupted: false,
            size: 0,
            greeting: 0,
            complaints: Vec::new(),
        }
    }

    fn listen(&mut self, mut ssh: Background, from: &Receiver<Heard>, wish: &Wish) -> Over {
        let mut ended: Option<(Option<i32>, Instant)> = None;
        let over = loop {
            match from.recv_timeout(PAUSE) {
                Ok(heard) => {
                    if let Some(over) = self.hear(heard) {
                        break over;
                    }
                }
                Err(RecvTimeoutError::Disconnected) if ended.is_some() => break self.cut_off(ended),
                Err(RecvTimeoutError::Disconnected) => thread::sleep(PAUSE),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ended.is_none() {
                ended = ssh.ended().map(|status| (status.code(), Instant::now()));
            }
            // A connection that the user shares may hold the pipes open for longer than this one lasts.
            if ended.is_some_and(|(_, when)| when.elapsed() > PARTING) {
                break self.cut_off(ended);
            }
            if let Some(over) = self.look(wish) {
                break over;
            }
        };
        self.mouth.close();
        if ended.is_none() {
            let since = Instant::now();
            while self.stage == Stage::Running && since.elapsed() < PARTING && ssh.ended().is_none() {
                thread::sleep(Duration::from_millis(5));
            }
            // SIGTERM first: at a question for a password it puts the terminal right.
            ssh.end(PARTING);
        }
        over
    }

    fn hear(&mut self, heard: Heard) -> Option<Over> {
        self.last = Instant::now();
        match heard {
            Heard::Output(line) => {
                if let Some(over) = self.count(line.len()) {
                    return Some(over);
                }
                let line = String::from_utf8_lossy(&line);
                match self.stage {
                    Stage::Running => self.penstock_says(&line),
                    _ => self.script_says(&line),
                }
            }
            Heard::Error(line) => {
                if let Some(over) = self.count(line.len()) {
                    return Some(over);
                }
                let line = clip(&one_line(&String::from_utf8_lossy(&line)), 1000);
                if self.complaints.len() >= KEPT {
                    self.complaints.remove(0);
                }
                self.complaints.push(line.clone());
                // Why nobody gets in is told once, in the end; but where somebody sits here, he may be asked for something.
                if self.stage != Stage::Connecting || !self.job.batch {
                    self.tell(Event::Noise(line));
                }
                None
            }
        }
    }

    /// Counts bytes that came from the other side, on either of its streams; ends the session where they are too many.
    fn count(&mut self, bytes: usize) -> Option<Over> {
        self.size += bytes;
        (self.size > MOST).then(|| self.nonsense(&format!("more than {} MiB", MOST >> 20)))
    }

    /// Tells what happened, which is kept until somebody comes to it.
    fn tell(&mut self, event: Event) {
        self.size += EVENT;
        (self.tell)(event);
    }

    fn script_says(&mut self, line: &str) -> Option<Over> {
        let host = self.host;
        let over = |status, what, trouble: Trouble| Some(Over::trouble(status, what, trouble));
        let safe = |why: String| clip(&one_line(&why), 1000);
        let Some(told) = BootstrapReply::read(line.trim_end_matches('\r'), &self.token) else {
            self.greeting += 1;
            return (self.greeting > GREETING).then(|| self.nonsense("a greeting without an end"));
        };
        match told {
            BootstrapReply::Machine(system, processor, account) => {
                self.stage = Stage::Preparing;
                if (system.as_str(), processor.as_str()) != ("Linux", std::env::consts::ARCH) {
                    let text = format!(
                        "{host} is {} on {}, and this penstock runs on Linux on {}",
                        safe(system),
                        safe(processor),
                        std::env::consts::ARCH
                    );
                    return over(
                        Status::DoesNotFit,
                        "wrong machine",
                        Trouble::new(text).hint("log in there, and run one built for it"),
                    );
                }
                if self.job.changes && account != "0" && !self.job.sudo {
                    let text = format!(
                        "{host}: `{}` changes the machine, and the account there is not root's",
                        self.job.verb
                    );
                    return over(
                        Status::Missing,
                        "not root",
                        Trouble::new(text).hint("log in as root, or add --sudo"),
                    );
                }
                self.mouth.say(&b"go\n"[..]);
                None
            }
            BootstrapReply::Sudo(why) => over(
                Status::Missing,
                "not root",
                Trouble::new(format!("{host}: the account there cannot become root with `sudo -n`"))
                    .because(safe(why))
                    .hint("allow it sudo without a password (NOPASSWD in sudoers), or log in as root"),
            ),
            BootstrapReply::NoPlace(why) => over(
                Status::Missing,
                "not brought",
                Trouble::new(format!("{host}: no directory there can keep a program and run it"))
                    .hint(self.more_room(&why))
                    .because(safe(why)),
            ),
            BootstrapReply::Need => {
                let size = self.job.program.bytes.len() as f64 / 1e6;
                self.tell(Event::Doing(format!("bringing penstock there ({size:.1} MB)")));
                self.mouth.say(self.job.program.bytes.clone());
                None
            }
            BootstrapReply::Comes => None,
            BootstrapReply::Short(why) => over(
                Status::Missing,
                "not brought",
                Trouble::new(format!("{host}: penstock could not be written there"))
                    .because(safe(why))
                    .hint("is the file system full?"),
            ),
            BootstrapReply::Spoilt => over(
                Status::Failed,
                "not brought",
                Trouble::new(format!("{host}: what arrived there is not what was sent")),
            ),
            BootstrapReply::Broken(why) => over(
                Status::Failed,
                "not brought",
                Trouble::new(format!("{host}: penstock was brought there and does not run"))
                    .because(safe(why)),
            ),
            BootstrapReply::Ready => {
                self.stage = Stage::Running;
                self.mouth.say(encode(&self.job.begin));
                self.beat = Instant::now();
                None
            }
        }
    }

    /// What to do where no directory is good, of which was said `why`.
    fn more_room(&self, why: &str) -> &'static str {
        if ["No space left", "quota exceeded"].iter().any(|sign| why.contains(sign)) {
            "is the file system full?"
        } else if self.job.sudo {
            "root must be able to run a program from one of them by `sudo -n`: see whether sudo there lets it run any program, \
             whether root may read the account's home, and whether they are mounted without noexec"
        } else {
            "mount one of them without noexec, or set XDG_CACHE_HOME there to another directory"
        }
    }

    fn penstock_says(&mut self, text: &str) -> Option<Over> {
        match serde_json::from_str(text) {
            Ok(Reply::Ended(code)) => Some(match Status::of(code) {
                Some(status) => Over { status, what: None, trouble: None },
                None => self.unknown(code),
            }),
            Ok(Reply::Alive) => None,
            Ok(mut said) => {
                if let Reply::Failure { hints, .. } = &mut said {
                    // What it says is as if it was called there.
                    if hints.iter().any(|hint| hint.contains("`penstock ")) {
                        let reach = self.job.reach(self.host.as_str());
                        hints.push(format!("from here add to such a command: {reach}"));
                    }
                }
                self.tell(Event::Reply(said));
                None
            }
            Err(_) => Some(self.nonsense(&format!("`{}`", clip(&one_line(text), 100)))),
        }
    }

    /// What the user wants, and whether the other end still lives.
    fn look(&mut self, wish: &Wish) -> Option<Over> {
        let host = self.host;
        if wish.is_interrupted() && self.stage != Stage::Running {
            let trouble = Trouble::new(format!("{host}: interrupted before anything was done there"));
            return Some(Over { status: Status::Interrupted, what: None, trouble: Some(trouble) });
        }
        if wish.is_interrupted() && !self.interrupted {
            self.interrupted = true;
            self.mouth.say(encode(&Request::Interrupt));
        }
        if wish.is_given_up() {
            let trouble = self
                .left(format!("{host}: given up while `{}` had not come to its end there", self.job.verb));
            return Some(Over {
                status: Status::Interrupted,
                what: Some("given up"),
                trouble: Some(trouble),
            });
        }
        if self.stage == Stage::Running && self.beat.elapsed() >= HEARTBEAT {
            self.beat = Instant::now();
            self.mouth.say(encode(&Request::Alive));
        }
        match self.stage {
            // Whoever is asked for a password may take his time.
            Stage::Connecting if !self.job.batch || self.began.elapsed() < LOGIN => None,
            Stage::Connecting => Some(Over::trouble(
                Status::Failed,
                "not reached",
                Trouble::new(format!("{host} did not let anybody in within {} s", LOGIN.as_secs()))
                    .hint(format!("see whether `ssh {host} true` works")),
            )),
            _ if self.last.elapsed() < TIMEOUT => None,
            _ => Some(self.lost(&format!("nothing was heard for {} s", TIMEOUT.as_secs()))),
        }
    }

    /// The connection has ended before Penstock has.
    fn cut_off(&self, ended: Option<(Option<i32>, Instant)>) -> Over {
        let (host, said) = (self.host, self.complaints.join("\n"));
        let code = ended.and_then(|(code, _)| code);
        let status = code.map_or("a signal".to_owned(), |code| format!("status {code}"));
        match self.stage {
            Stage::Connecting if code == Some(ssh::FAILED) => {
                Over::trouble(Status::Failed, "not reached", ssh::explain(&said, host))
            }
            Stage::Connecting => Over::trouble(
                Status::Failed,
                "no shell",
                Trouble::new(format!(
                    "{host} let us in, but the account there runs no shell: it ended with {status}"
                ))
                .because(self.complaints.last().cloned().unwrap_or_default()),
            ),
            _ if code == Some(ssh::FAILED) && ssh::is_loss(&said) => {
                self.lost(self.complaints.last().map_or("", String::as_str))
            }
            Stage::Preparing => Over::trouble(
                Status::Failed,
                "not brought",
                Trouble::new(format!("{host}: the shell there ended with {status} before penstock ran"))
                    .because(self.complaints.last().cloned().unwrap_or_default()),
            ),
            Stage::Running => {
                let text = format!(
                    "{host}: penstock ended there without saying how `{}` went ({status})",
                    self.job.verb
                );
                let why = self.complaints.last().cloned().unwrap_or_default();
                Over::trouble(self.unheard(), "cut off", self.left(text).because(why))
            }
        }
    }

    fn lost(&self, why: &str) -> Over {
        let text = match self.stage {
            Stage::Running => {
                format!("{}: the connection was lost while `{}` ran there", self.host, self.job.verb)
            }
            _ => format!("{}: the connection was lost before anything was done there", self.host),
        };
        Over::trouble(self.unheard(), "lost", self.left(text).because(why))
    }

    /// It ended with a number that no command of this version ends with: the program there is another one.
    fn unknown(&self, code: u8) -> Over {
        let text = format!(
            "{}: `{}` ended there with exit status {code}, which this penstock does not know",
            self.host, self.job.verb
        );
        Over::trouble(self.unheard(), "unknown status", self.left(text))
    }

    /// The status of a machine that has not said how it went.
    fn unheard(&self) -> Status {
        match self.job.changes && self.stage == Stage::Running {
            true => Status::HalfWay,
            false => Status::Failed,
        }
    }

    fn nonsense(&self, what: &str) -> Over {
        let text = format!("{} sent an answer that cannot be parsed: {what}", self.host);
        Over::trouble(self.unheard(), "nonsense", self.left(text))
    }

    /// With what is known of the machine when nothing is heard of it any more.
    fn left(&self, text: String) -> Trouble {
        let trouble = Trouble::new(text);
        if !self.job.changes || self.stage != Stage::Running {
            return trouble;
        }
        let reach = self.job.reach(self.host.as_str());
        let then = match self.job.verb {
            _ if self.job.confirms => {
                "what was done is taken back: as soon as it is noticed there, or when it is not confirmed in time"
            }
            "undo" | "stop" | "confirm" => "it goes on there to its end",
            _ => {
                "as soon as it is noticed there, within a minute, what was done is taken back; what had come to its end stays"
            }
        };
        trouble
            .hint(format!("{then}; to see what is so: penstock status {reach}, penstock undo --list {reach}"))
    }
}

/// The way to the other side. To say something never waits.
struct Mouth {
    to: Option<Sender<Arc<[u8]>>>,
}

impl Mouth {
    fn of(mut input: ChildStdin) -> Mouth {
        let (to, from) = channel::<Arc<[u8]>>();
        thread::spawn(move || {
            for bytes in from {
                // Its end is seen by whoever listens.
                if input.write_all(&bytes).and_then(|()| input.flush()).is_err() {
                    return;
                }
            }
        });
        Mouth { to: Some(to) }
    }

    fn say(&self, bytes: impl Into<Arc<[u8]>>) {
        if let Some(to) = &self.to {
            let _ = to.send(bytes.into());
        }
    }

    fn close(&mut self) {
        self.to = None;
    }
}
