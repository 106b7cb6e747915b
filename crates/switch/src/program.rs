//! A switch as a process: from its configuration to the signal that ends it.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{SigSet, Signal, kill},
    unistd::Pid,
};

use crate::{
    config::Config,
    control::{self, Rights},
    server::{Event, Server},
};

/// How long the first guest is awaited by a switch that is to end with its guests.
const FIRST: Duration = Duration::from_secs(60);

/// An error and what lies behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}

/// Reads a configuration.
///
/// # Errors
/// In words, with the file's name.
pub fn read(path: &Path) -> Result<Config, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("{} could not be read: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs a switch until SIGTERM or SIGINT; SIGHUP has it read its configuration again. With `until_left` it ends when its last
/// guest has gone, too, and when none comes within a minute.
///
/// # Errors
/// In words: why it could not be started.
pub fn run(path: &Path, control: Option<(&Path, Rights)>, until_left: bool) -> Result<(), String> {
    let config = read(path)?;
    // Before there is another thread, so that none of them gets these signals.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().map_err(|errno| format!("signals could not be taken: {errno}"))?;
    let server = Arc::new(Server::start().map_err(|error| chain(&error))?);
    if until_left {
        let events = server.subscribe();
        let watch = move || {
            until_all_have_left(&events, FIRST);
            // Where nobody takes it any more, it has ended already.
            let _ = kill(Pid::this(), Signal::SIGTERM);
        };
        let failed = |error| format!("no thread could be had to watch the guests: {error}");
        thread::Builder::new().name("guests".to_owned()).spawn(watch).map_err(failed)?;
    }
    server.apply(&config).map_err(|error| chain(&error))?;
    if let Some((socket, rights)) = control {
        let failed = |error| format!("the control socket {} could not be had: {error}", socket.display());
        control::serve(socket, Arc::clone(&server), rights).map_err(failed)?;
    }
    loop {
        match signals.wait() {
            Ok(Signal::SIGHUP) => {
                let again =
                    read(path).and_then(|config| server.apply(&config).map_err(|error| chain(&error)));
                if let Err(failure) = again {
                    eprintln!("penstock-switch: nothing was changed: {failure}");
                }
            }
            Ok(_) => break,
            Err(errno) => return Err(format!("could not wait for a signal: {errno}")),
        }
    }
    server.close();
    if let Some((socket, _)) = control {
        let _ = fs::remove_file(socket);
    }
    Ok(())
}

/// Returns when the last guest has gone, or none has come within `first`. One whose connection breaks off and who comes
/// back, as QEMU does after an error, is still there.
fn until_all_have_left(events: &Receiver<Event>, first: Duration) {
    let mut connected = 0_usize;
    let mut patience = first;
    loop {
        match events.recv_timeout(patience) {
            Ok(Event::Connected { .. }) => connected += 1,
            Ok(Event::Disconnected { .. }) => connected = connected.saturating_sub(1),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) if connected == 0 => return,
            Err(RecvTimeoutError::Timeout) => {}
            // Too far behind to know: whoever has started the switch ends it.
            Err(RecvTimeoutError::Disconnected) => return thread::sleep(Duration::MAX),
        }
        if connected > 0 {
            patience = Duration::from_secs(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Instant};

    use super::*;

    #[test]
    fn it_ends_with_its_last_guest_and_not_before() {
        let (sender, events) = mpsc::channel();
        let come = || Event::Connected { port: "a".to_owned() };
        let go = || Event::Disconnected { port: "a".to_owned(), why: String::new() };
        let began = Instant::now();
        // None comes.
        until_all_have_left(&events, Duration::from_millis(50));
        assert!(began.elapsed() < Duration::from_secs(2));
        let watch = thread::spawn(move || until_all_have_left(&events, Duration::from_secs(60)));
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
