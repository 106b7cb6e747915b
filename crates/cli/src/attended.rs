//! A Penstock that works on this machine for one on another: the model comes on standard input, everything that is said
//! goes to standard output as messages, and the loss of the other end is noticed.

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

use crate::{
    arguments::Verb,
    commands,
    documents::Kind,
    failure::{Failure, Status},
    guarded,
    model_file::Brought,
    printer::Printer,
    remote::wire::{Asked, LINE, PATIENCE, Said, Wire},
    settings::{Settings, Widths},
};

/// How often the time is looked at while nothing is heard.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs a verb for the Penstock at the other end, and tells it how that ended.
pub fn run(verb: Verb, settings: &Settings) -> Status {
    let (wire, writing) = Wire::to(io::stdout());
    let mut printer = Printer::over(wire.clone(), settings);
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
    wire.say(Said::Ended(status.code()));
    let since = Instant::now();
    // What cannot be written is not waited for longer than it takes to be sure that nobody reads.
    while !writing.is_finished() && since.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    status
}

fn work(mut verb: Verb, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let at_loss = AtLoss::of(&verb);
    let (begin, begun) = channel();
    thread::spawn(move || listen(at_loss, begin));
    let Ok((brought, widths)) = begun.recv() else {
        return Err(Failure::new(
            Status::BadInput,
            "nothing came on standard input that another penstock says",
        ));
    };
    printer.set_widths(widths);
    if let Some(subject) = verb.subject() {
        subject.brought = brought.map(|brought| *brought);
    }
    commands::run(verb, settings, printer)
}

/// What becomes of the work when the other end is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtLoss {
    /// It ends as after Ctrl-C, and what was done is taken back: perhaps just that has cut the connection.
    TakeBack,
    /// It goes on to its end: half of a way back helps nobody.
    Finish,
}

impl AtLoss {
    fn of(verb: &Verb) -> AtLoss {
        match verb {
            Verb::Undo(_) | Verb::Stop(_) | Verb::Confirm(_) => AtLoss::Finish,
            _ => AtLoss::TakeBack,
        }
    }
}

/// Hears what the other end says, until it is lost.
fn listen(at_loss: AtLoss, begin: Sender<(Option<Box<Brought>>, Widths)>) {
    let mut interrupted = false;
    hear(&mut |asked| match asked {
        Asked::Begin { brought, widths } => drop(begin.send((brought, widths))),
        Asked::Alive => {}
        Asked::Interrupt if interrupted => {}
        Asked::Interrupt => {
            interrupted = true;
            interrupt::raise();
        }
    });
    drop(begin);
    match at_loss {
        AtLoss::Finish => interrupt::ignore(),
        AtLoss::TakeBack => {
            // Once: a second interrupt would end the commands of the way back.
            if !interrupted {
                interrupt::raise();
            }
            while interrupt::pending() {
                thread::sleep(Duration::from_millis(10));
            }
            // From here on it is on the way back, which the end of the session must not interrupt.
            interrupt::ignore();
        }
    }
}

/// Hands on each message, until there are no more, one makes no sense, or none has come for too long.
fn hear(on: &mut dyn FnMut(Asked)) {
    let (mut text, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let mut last = Instant::now();
    loop {
        match terminal::read_input(&mut buffer, PAUSE) {
            Ok(Input::Bytes(count)) => text.extend_from_slice(&buffer[..count]),
            Ok(Input::Nothing) if last.elapsed() < PATIENCE => continue,
            _ => return,
        }
        last = Instant::now();
        let mut begins = 0;
        while let Some(length) = text[begins..].iter().position(|byte| *byte == b'\n') {
            let Ok(asked) = serde_json::from_slice(&text[begins..begins + length]) else { return };
            on(asked);
            begins += length + 1;
        }
        text.drain(..begins);
        if text.len() > LINE {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn a_way_back_is_gone_to_its_end_and_all_else_is_taken_back() {
        let of = |line: &str| AtLoss::of(&Arguments::parse_from(line.split(' ')).verb);
        for line in ["penstock undo 3", "penstock stop m.yaml", "penstock confirm"] {
            assert_eq!(of(line), AtLoss::Finish, "{line}");
        }
        for line in
            ["penstock apply m.yaml", "penstock start m.yaml", "penstock scan", "penstock verify m.yaml"]
        {
            assert_eq!(of(line), AtLoss::TakeBack, "{line}");
        }
    }
}
