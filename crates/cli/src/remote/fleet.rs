//! Several machines side by side: who begins when, what is shown of each, and Ctrl-C.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use penstock_host::interrupt;
use penstock_model::text::{Styled, clip, one_line, printable};

use super::{
    hosts::Host,
    protocol::Reply,
    session::{self, Event, Job, Over, Wish},
    summary::{Outcome, shown},
    trouble::Trouble,
};
use crate::{failure::Status, printer::Printer};

const PAUSE: Duration = Duration::from_millis(50);
/// The longest line of conversation that is shown.
const LINE: usize = 4000;
/// The longest text that explains what is wrong in a file.
const EXPLAINED: usize = 64 << 10;

/// How the machines are gone through.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// At no more at a time.
    pub at_most: usize,
    /// Begin with none after one has failed.
    pub stop_on_failure: bool,
    /// What they print is JSON.
    pub json: bool,
}

/// Does the job on all of them and shows what happens meanwhile.
pub fn perform(hosts: &[Host], job: &Job, order: Order, printer: &mut Printer) -> Vec<Outcome> {
    let wish = Wish::default();
    let (events, from) = sync_channel(256);
    let mut fleet = Fleet::of(hosts, order, printer);
    thread::scope(|scope| {
        let wish = &wish;
        let begin = |at: usize, events: &SyncSender<(usize, Event)>| {
            let (host, events) = (&hosts[at], events.clone());
            scope.spawn(move || {
                // Nobody hears it only when all is over.
                let over = session::hold(host, job, wish, &mut |event| drop(events.send((at, event))));
                let _ = events.send((at, Event::Over(over)));
            });
        };
        fleet.go(&events, &from, wish, begin);
    });
    fleet.outcomes
}

/// Shows what happened with the first of one or two machines, and how it ended.
#[cfg(feature = "fuzzing")]
pub fn show(
    events: Vec<Event>,
    end: Option<Over>,
    several: bool,
    order: Order,
    printer: &mut Printer,
) -> Vec<Outcome> {
    let names = if several { &["node-1", "node-2"][..] } else { &["node-1"] };
    let hosts: Vec<Host> = names.iter().map(|name| name.parse().expect("a name of a machine")).collect();
    let mut fleet = Fleet::of(&hosts, order, printer);
    for event in events.into_iter().chain(end.map(Event::Over)) {
        fleet.on(0, event);
    }
    fleet.outcomes
}

struct Fleet<'a> {
    order: Order,
    printer: &'a mut Printer,
    outcomes: Vec<Outcome>,
    /// When each that is at work was begun, and what it does.
    at_work: Vec<Option<(Instant, String)>>,
    next: usize,
    /// No further one is begun.
    closed: bool,
}

impl<'a> Fleet<'a> {
    fn of(hosts: &[Host], order: Order, printer: &'a mut Printer) -> Fleet<'a> {
        let outcome = |host: &Host| Outcome {
            host: host.clone(),
            over: None,
            seconds: 0.0,
            data: Vec::new(),
            error: Vec::new(),
            lost: None,
        };
        let outcomes: Vec<Outcome> = hosts.iter().map(outcome).collect();
        let at_work = vec![None; outcomes.len()];
        Fleet { order, printer, outcomes, at_work, next: 0, closed: false }
    }

    fn go(
        &mut self,
        events: &SyncSender<(usize, Event)>,
        from: &Receiver<(usize, Event)>,
        wish: &Wish,
        begin: impl Fn(usize, &SyncSender<(usize, Event)>),
    ) {
        loop {
            while self.next < self.outcomes.len() && !self.closed && self.working() < self.order.at_most {
                self.at_work[self.next] = Some((Instant::now(), String::new()));
                begin(self.next, events);
                self.next += 1;
            }
            if self.working() == 0 {
                break;
            }
            match from.recv_timeout(PAUSE) {
                Ok((at, event)) => self.on(at, event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if interrupt::pending() {
                interrupt::acknowledge();
                self.closed = true;
                let given_up = wish.interrupt();
                self.printer.warn(match given_up {
                    false => "interrupted: waiting for what goes on there to end in order; Ctrl-C again gives that up",
                    true => "given up",
                });
            }
        }
        self.printer.done();
    }

    fn working(&self) -> usize {
        self.at_work.iter().flatten().count()
    }

    fn several(&self) -> bool {
        self.outcomes.len() > 1
    }

    /// A line of conversation about a machine.
    fn about(&self, at: usize, text: &str) -> String {
        let text = clip(&printable(text), LINE);
        match self.several() {
            true => format!("{}: {}", self.outcomes[at].host, text.replace('\n', "\n  ")),
            false => text,
        }
    }

    fn on(&mut self, at: usize, event: Event) {
        match event {
            Event::Doing(what) => {
                let host = &self.outcomes[at].host;
                let what = if self.several() { what } else { format!("{host}: {what}") };
                // Nothing is drawn where somebody may be asked for a password.
                if self.several() { self.doing(at, &what) } else { self.printer.say(what) }
            }
            Event::Noise(line) => {
                let line = self.about(at, &line);
                self.printer.say(line);
            }
            Event::Reply(reply) => self.reply(at, reply),
            Event::Over(over) => self.over(at, over),
        }
    }

    fn reply(&mut self, at: usize, reply: Reply) {
        match reply {
            Reply::Doing(what) if self.several() => self.doing(at, &what),
            Reply::Doing(what) => self.printer.doing(clip(&one_line(&what), LINE)),
            Reply::Say(line) => {
                let line = self.about(at, &line);
                self.printer.say(line);
            }
            Reply::Warn(line) => {
                let line = self.about(at, &line);
                self.printer.warn(line);
            }
            Reply::Explained(text) => {
                let text = text.clip(EXPLAINED);
                self.outcomes[at].error.push(text.to_string());
                let heading =
                    if self.several() { format!("{}:\n", self.outcomes[at].host) } else { String::new() };
                let mut whole = Styled::from(heading);
                whole.append(text);
                self.printer.explained(whole);
            }
            Reply::Failure { causes, hints } => self.complain(at, &Trouble::told(&causes, &hints)),
            Reply::Data(text) => self.data(at, text),
            Reply::Alive | Reply::Ended(_) => {}
        }
    }

    fn doing(&mut self, at: usize, what: &str) {
        let what = clip(&one_line(what), LINE);
        let Some(canvas) = self.printer.canvas() else {
            let line = self.about(at, &what);
            return self.printer.doing(line);
        };
        if let Some((_, doing)) = &mut self.at_work[at] {
            *doing = what;
        }
        let all = self.outcomes.iter().zip(&self.at_work);
        let line = |(outcome, work): (&Outcome, &Option<(Instant, String)>)| {
            work.as_ref().map(|(_, doing)| clip(&format!("{}: {doing}", outcome.host), canvas.width))
        };
        let lines = all.filter_map(line).take(canvas.height.saturating_sub(1).max(1));
        let lines: Vec<Styled> = lines.map(Styled::from).collect();
        self.printer.picture(&lines);
    }

    fn data(&mut self, at: usize, text: Styled) {
        if self.order.json {
            return self.json(at, &text.raw());
        }
        let printed = match self.several() {
            true => {
                let mut whole = Styled::from(format!("== {}\n", self.outcomes[at].host));
                whole.append(text);
                whole.plain("\n");
                self.printer.text(whole)
            }
            false => self.printer.text(text),
        };
        // Standard output is full or gone: what goes on there comes to its end all the same.
        if let Err(failure) = printed {
            self.outcomes[at].lost = Some(failure.status);
            self.printer.failure(&failure);
        }
    }

    fn json(&mut self, at: usize, text: &str) {
        match shown(text) {
            Ok(text) if self.several() => self.outcomes[at].data.push(text),
            Ok(text) => self.printer.pass_on(text.trim_end().to_owned()),
            Err(why) => {
                let host = &self.outcomes[at].host;
                let trouble = Trouble::new(format!("{host} printed what is no JSON")).because(why);
                self.outcomes[at].lost = Some(Status::Failed);
                self.complain(at, &trouble);
            }
        }
    }

    /// Says why it failed, whose words are kept.
    fn complain(&mut self, at: usize, trouble: &Trouble) {
        let Outcome { host, error, .. } = &mut self.outcomes[at];
        error.extend(trouble.causes.iter().cloned());
        let mut causes = trouble.causes.clone();
        let host = host.to_string();
        if let Some(first) = causes.first_mut().filter(|first| self.order_is_shared(&host, first)) {
            *first = format!("{host}: {first}");
        }
        self.printer.complain(&causes, &trouble.hints);
    }

    /// Whether a message needs its machine's name before it.
    fn order_is_shared(&self, host: &str, message: &str) -> bool {
        self.several() && !message.contains(host)
    }

    fn over(&mut self, at: usize, over: Over) {
        if let Some((since, _)) = self.at_work[at].take() {
            self.outcomes[at].seconds = since.elapsed().as_secs_f64();
        }
        if let Some(trouble) = &over.trouble {
            self.complain(at, trouble);
        }
        self.closed |= self.order.stop_on_failure && !over.status.is_good();
        self.outcomes[at].over = Some(over);
        if self.working() == 0 {
            self.printer.done();
        }
    }
}
