//! A switch as a process: from its configuration to the signal that ends it.

use std::{
    collections::BTreeSet,
    fs, panic,
    path::Path,
    process,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use nix::{
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        signal::{SigSet, Signal, kill},
    },
    unistd::Pid,
};

use crate::{
    causes::chain,
    config::{Config, PortBackend, PortConfig},
    control::{self, Rights},
    server::{Event, Server},
    socket, worker,
};

/// How long the first guest is awaited by a switch that is to end with its guests.
const FIRST: Duration = Duration::from_secs(60);

/// Reads a configuration.
///
/// # Errors
/// In words, with the file's name.
pub fn read(path: &Path) -> Result<Config, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("{} could not be read: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// How a switch is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The file with its configuration, which is JSON; read again at SIGHUP.
    pub config: &'a Path,
    /// The socket on which the host controls it.
    pub control: Option<&'a Path>,
    /// The socket of the line from within a machine behind it, on which `allow` limits what may be done.
    pub line: Option<&'a Path>,
    /// Whether it ends when its last guest has gone, too, and when none comes within a minute.
    pub until_left: bool,
    /// Whether what is set while it runs is written into its configuration, so that the next one begins with that.
    pub keep: bool,
    /// How many threads move frames.
    pub workers: usize,
}

/// Runs a switch until SIGTERM or SIGINT; SIGHUP has it read its configuration again.
///
/// # Errors
/// In words: why it could not be started.
pub fn run(run: &Run<'_>) -> Result<(), String> {
    let Run { config: path, control, line, until_left, keep, workers } = *run;
    let config = read(path)?;
    let sockets = [
        (control, Rights::All, config.control_access().map_err(|error| chain(&error))?),
        (line, Rights::Attributes, config.line_access().map_err(|error| chain(&error))?),
    ];
    // Before there is another thread, so that none of them gets these signals.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().map_err(|errno| format!("signals could not be taken: {errno}"))?;
    die_with_a_worker();
    may_open_many_files();
    let server = Arc::new(Server::with_workers(workers).map_err(|error| chain(&error))?);
    if until_left {
        let events = server.subscribe();
        // The other side of a cable is no guest: two switches would hold each other for ever.
        let is_guest = |(name, port): (&String, &PortConfig)| {
            matches!(port.backend(name), Ok(PortBackend::Guest(_))).then(|| name.clone())
        };
        let guests: BTreeSet<String> = config.ports.iter().filter_map(is_guest).collect();
        let watch = move || {
            until_all_have_left(&events, &guests, FIRST);
            // Where nobody takes it any more, it has ended already.
            let _ = kill(Pid::this(), Signal::SIGTERM);
        };
        let failed = |error| format!("no thread could be had to watch the guests: {error}");
        thread::Builder::new().name("guests".to_owned()).spawn(watch).map_err(failed)?;
    }
    if keep && let Err(error) = server.begin_with(path) {
        // Without it all is as the host has set it.
        complain!("what was set from inside before does not hold any more: it could not be read: {error}");
    }
    server.apply(&config).map_err(|error| format!("{}: {}", path.display(), chain(&error.at_start())))?;
    if keep {
        let failed = |error| format!("what is set could not be kept in {}: {error}", path.display());
        server.keep_in(path).map_err(failed)?;
    }
    server.attend().map_err(|error| chain(&error))?;
    for (socket, rights, access) in sockets {
        let Some(socket) = socket else { continue };
        let failed = |error| format!("the control socket {} could not be had: {error}", socket.display());
        control::serve(socket, Arc::clone(&server), rights, access).map_err(failed)?;
    }
    loop {
        match signals.wait() {
            Ok(Signal::SIGHUP) => {
                if let Err(failure) = server.reload(|| read(path)) {
                    complain!("{} was not taken: {failure}", path.display());
                }
            }
            Ok(_) => break,
            Err(errno) => return Err(format!("could not wait for a signal: {errno}")),
        }
    }
    server.close();
    for socket in [control, line].into_iter().flatten() {
        socket::remove(socket);
    }
    Ok(())
}

/// Lets the process have as many descriptors as the host allows: every port and every ring of a guest takes some. What is usual for a
/// process, 1,024, is enough for 500 ports that nobody has come to.
fn may_open_many_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    // With fewer it may still do, and says so when it does not.
    if let Err(errno) = raised {
        complain!("the limit of open files could not be raised: {errno}");
    }
}

/// Has the process end when a thread that moves frames does: what is left would look like a switch and be none, and nobody would
/// start another.
fn die_with_a_worker() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        before(panicked);
        if thread::current().name().is_some_and(worker::is_worker) {
            process::abort();
        }
    }));
}

/// Returns when the last guest has gone, or none has come within `first`. One whose connection breaks off and who comes
/// back, as QEMU does after an error, is still there.
fn until_all_have_left(events: &Receiver<Event>, guests: &BTreeSet<String>, first: Duration) {
    let mut connected = 0_usize;
    let mut timeout = first;
    loop {
        match events.recv_timeout(timeout) {
            Ok(Event::Connected { port }) if guests.contains(&port) => connected += 1,
            Ok(Event::Disconnected { port, .. }) if guests.contains(&port) => {
                connected = connected.saturating_sub(1)
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) if connected == 0 => return,
            Err(RecvTimeoutError::Timeout) => {}
            // Too far behind to know: whoever has started the switch ends it.
            Err(RecvTimeoutError::Disconnected) => return thread::sleep(Duration::MAX),
        }
        if connected > 0 {
            timeout = Duration::from_secs(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Instant};

    use super::*;

    #[test]
    fn it_may_have_as_many_descriptors_as_the_host_allows() {
        may_open_many_files();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard);
    }

    #[test]
    fn it_ends_with_its_last_guest_and_not_before() {
        let (sender, events) = mpsc::channel();
        let guests = BTreeSet::from(["a".to_owned()]);
        let come = || Event::Connected { port: "a".to_owned() };
        let go = || Event::Disconnected { port: "a".to_owned(), why: String::new() };
        let began = Instant::now();
        // None comes.
        sender.send(Event::Connected { port: "cable".to_owned() }).unwrap();
        until_all_have_left(&events, &guests, Duration::from_millis(50));
        assert!(began.elapsed() < Duration::from_secs(2));
        let watch = thread::spawn(move || until_all_have_left(&events, &guests, Duration::from_secs(60)));
        for event in [come(), come(), go()] {
            sender.send(event).unwrap();
        }
        thread::sleep(Duration::from_millis(2_500));
        assert!(!watch.is_finished(), "one is still there");
        // It comes back at once.
        sender.send(go()).unwrap();
        sender.send(come()).unwrap();
        thread::sleep(Duration::from_millis(2_500));
        assert!(!watch.is_finished());
        sender.send(go()).unwrap();
        watch.join().unwrap();
    }
}
