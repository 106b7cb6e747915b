//! A Penstock that works on this machine for a user on another: requests come on standard input, everything that it prints goes to
//! standard output as [`Reply`]s, and it notices the loss of the other end.

use std::{
    io,
    sync::mpsc::{Sender, channel},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    interrupt,
    terminal::{self, Input},
};

use super::{
    protocol::{Payload, Reply, Request, Requests, TIMEOUT},
    reply_sender::ReplySender,
};
use crate::{
    arguments::Verb,
    commands,
    documents::Kind,
    failure::{Failure, Status},
    guarded,
    settings::{Settings, Widths},
    ui::printer::Printer,
};

/// How often the timeout is checked while nothing is received.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs a verb for the user's Penstock, and replies how that ended.
pub fn run(verb: Verb, settings: &Settings) -> Status {
    let (replies, writing) = ReplySender::to(io::stdout());
    let mut printer = Printer::over(replies.clone(), settings);
    printer.expect(Kind::of(&verb));
    let outcome = guarded(|| {
        interrupt::catch()?;
        work(verb, settings, &mut printer)
    });
    let status = outcome.unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.status
    });
    let status = printer.finish(status);
    replies.send(Reply::Ended(status.code()));
    let since = Instant::now();
    // What cannot be written is not waited for longer than it takes to be sure that nobody reads.
    while !writing.is_finished() && since.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(1));
    }
    status
}

fn work(mut verb: Verb, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let on_disconnect = OnDisconnect::of(&verb);
    let (begin, begun) = channel();
    thread::spawn(move || listen(on_disconnect, begin));
    let Ok((payload, widths)) = begun.recv() else {
        return Err(Failure::new(Status::BadInput, "no request from a remote penstock on standard input"));
    };
    printer.set_widths(widths);
    if let Some(subject) = verb.subject() {
        subject.payload = payload.map(|payload| *payload);
    }
    commands::run(verb, settings, printer)
}

/// What becomes of the work when the connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDisconnect {
    /// It ends as after Ctrl-C, and what was done is taken back: perhaps just that has cut the connection.
    Undo,
    /// It goes on to its end: half of a way back helps nobody.
    Finish,
}

impl OnDisconnect {
    fn of(verb: &Verb) -> OnDisconnect {
        match verb {
            Verb::Undo(_) | Verb::Stop(_) | Verb::Confirm(_) => OnDisconnect::Finish,
            _ => OnDisconnect::Undo,
        }
    }
}

/// Receives requests until the other end is lost.
fn listen(on_disconnect: OnDisconnect, begin: Sender<(Option<Box<Payload>>, Widths)>) {
    let mut interrupted = false;
    receive(&mut |request| match request {
        Request::Begin { payload, widths } => drop(begin.send((payload, widths))),
        Request::Alive => {}
        Request::Interrupt if interrupted => {}
        Request::Interrupt => {
            interrupted = true;
            interrupt::raise();
        }
    });
    drop(begin);
    lose(on_disconnect, interrupted);
}

/// Has the work go to its end or back, since the other end is lost. `interrupted`: the user there had pressed Ctrl-C before.
fn lose(on_disconnect: OnDisconnect, interrupted: bool) {
    match on_disconnect {
        OnDisconnect::Finish => {
            interrupt::ignore();
            // A signal may have come before the loss was seen here, with the end of the session: no user meant that.
            if !interrupted {
                interrupt::acknowledge();
            }
        }
        OnDisconnect::Undo => {
            // Once is enough, and the work may be on its way back already.
            if !interrupted {
                interrupt::raise();
            }
            // From then on it is on the way back, which the end of the session must not interrupt.
            interrupt::ignore_once_heard();
        }
    }
}

/// Hands on each request, until there are no more, one makes no sense, or none has come for [`TIMEOUT`].
fn receive(on_request: &mut dyn FnMut(Request)) {
    let (mut requests, mut buffer) = (Requests::default(), vec![0; 64 << 10]);
    let mut last = Instant::now();
    loop {
        match terminal::read_input(&mut buffer, PAUSE) {
            Ok(Input::Bytes(count)) => {
                last = Instant::now();
                if requests.push(&buffer[..count], on_request).is_err() {
                    return;
                }
            }
            Ok(Input::Nothing) if last.elapsed() < TIMEOUT => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, sync::atomic::Ordering};

    use clap::Parser;
    use nix::sys::signal::{Signal, raise};
    use penstock_host::Command;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn a_way_back_is_gone_to_its_end_and_all_else_is_taken_back() {
        let of = |line: &str| OnDisconnect::of(&Arguments::parse_from(line.split(' ')).verb);
        for line in ["penstock undo 3", "penstock stop m.yaml", "penstock confirm"] {
            assert_eq!(of(line), OnDisconnect::Finish, "{line}");
        }
        for line in
            ["penstock apply m.yaml", "penstock start m.yaml", "penstock scan", "penstock verify m.yaml"]
        {
            assert_eq!(of(line), OnDisconnect::Undo, "{line}");
        }
    }

    #[test]
    fn a_signal_that_comes_before_the_loss_is_seen_ends_no_way_back() {
        const INTERRUPTED: &str = "INTERRUPTED_BEFORE_THE_LOSS";
        let Ok(interrupted) = env::var(INTERRUPTED) else {
            // Interrupts are a whole process's: each case is this test in a process of its own.
            let name = "remote::agent::tests::a_signal_that_comes_before_the_loss_is_seen_ends_no_way_back";
            for interrupted in ["false", "true"] {
                let again = Command::new(env::current_exe().unwrap()).args(["--exact", name]);
                let said = again.env(INTERRUPTED, interrupted).succeed().unwrap().text();
                assert!(said.contains("1 passed"), "{said}");
            }
            return;
        };
        interrupt::catch().unwrap();
        let given = interrupt::watched();
        raise(Signal::SIGTERM).unwrap();
        assert!(given.load(Ordering::Relaxed));
        lose(OnDisconnect::Finish, interrupted == "true");
        assert_eq!(
            given.load(Ordering::Relaxed).to_string(),
            interrupted,
            "only what the user wished counts"
        );
    }
}
