//! Several machines side by side: who begins when, what is shown of each, and Ctrl-C.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{interrupt, terminal};
use penstock_model::text::{Styled, clip, one_line, printable};

use super::{
    hosts::Host,
    protocol::Reply,
    session::{self, Event, Job, Over, Wish},
    summary::{Outcome, shown},
    trouble::Trouble,
};
use crate::{
    documents::{self, Kind},
    failure::{Failure, Status},
    ui::printer::Printer,
};

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
    /// What they print has no end: it is shown as it comes, also as JSON, for as long as somebody reads it.
    pub watches: bool,
}

/// Does the job on all of them and shows what happens meanwhile. Gives what came of each, and whether it was interrupted.
pub fn perform(hosts: &[Host], job: &Job, order: Order, printer: &mut Printer) -> (Vec<Outcome>, bool) {
    let wish = Wish::default();
    // Without a limit: a terminal that stands still must not keep a session from telling its machine that it lives, or it takes back what
    // it does. What a machine says is limited as a whole.
    let (events, from) = channel();
    let mut fleet = Fleet::of(hosts, order, printer);
    thread::scope(|scope| {
        let wish = &wish;
        let begin = |at: usize, events: &Sender<(usize, Event)>| {
            let (host, events) = (&hosts[at], events.clone());
            scope.spawn(move || {
                // Nobody hears it only when all is over.
                let over = session::hold(host, job, wish, &mut |event| drop(events.send((at, event))));
                let _ = events.send((at, Event::Over(over)));
            });
        };
        fleet.go(&events, &from, wish, begin);
    });
    (fleet.outcomes, fleet.interrupted)
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
    /// Whether Ctrl-C is why.
    interrupted: bool,
    /// Whether a line of a watch could not be written.
    unwritten: bool,
    /// Whether the watches were told to end, since nobody reads them.
    unread: bool,
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
            waits: None,
        };
        let outcomes: Vec<Outcome> = hosts.iter().map(outcome).collect();
        let at_work = vec![None; outcomes.len()];
        Fleet {
            order,
            printer,
            outcomes,
            at_work,
            next: 0,
            closed: false,
            interrupted: false,
            unwritten: false,
            unread: false,
        }
    }

    fn go(
        &mut self,
        events: &Sender<(usize, Event)>,
        from: &Receiver<(usize, Event)>,
        wish: &Wish,
        begin: impl Fn(usize, &Sender<(usize, Event)>),
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
            if self.is_unread_now(terminal::output_is_gone) {
                wish.interrupt();
            }
            if interrupt::pending() {
                interrupt::acknowledge();
                self.closed = true;
                self.interrupted = true;
                let given_up = wish.interrupt();
                self.printer.warn(match given_up {
                    false => "interrupted: waiting for what goes on there to end in order; Ctrl-C again gives that up",
                    true => "given up",
                });
            }
        }
        self.printer.done();
    }

    /// Whether it is seen now that nobody reads what watches say, which have no other end.
    fn is_unread_now(&mut self, is_gone: impl Fn() -> bool) -> bool {
        let now = self.order.watches && !self.unread && (self.unwritten || is_gone());
        self.unread |= now;
        self.closed |= now;
        now
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
            Reply::Failure { causes, hints } => {
                let trouble = Trouble::reported(&causes, &hints);
                // Whatever stands in it, only this says of which machine it is.
                let name = self.several().then(|| self.outcomes[at].host.to_string());
                self.complain(at, &trouble, name.as_deref());
            }
            Reply::Data(text) => self.data(at, text),
            Reply::Waits(run) => self.outcomes[at].waits = Some(run),
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
                whole.append(without_headings(text));
                whole.plain("\n");
                self.printer.text(whole)
            }
            false => self.printer.text(text),
        };
        self.printed(at, printed);
    }

    /// Standard output may be full or gone: what goes on there comes to its end all the same. Of the lines of watches it is said once.
    fn printed(&mut self, at: usize, printed: Result<(), Failure>) {
        if let Err(failure) = printed {
            self.outcomes[at].lost = Some(failure.status);
            if !self.unwritten {
                self.printer.failure(&failure);
            }
            self.unwritten |= self.order.watches;
        }
    }

    fn json(&mut self, at: usize, text: &str) {
        match shown(text) {
            Ok(text) if self.several() => self.outcomes[at].data.push(text),
            Ok(text) if self.order.watches && !documents::is_of(&text, Kind::Error) => {
                let printed = self.printer.pass_line_on(text.trim_end());
                self.printed(at, printed);
            }
            Ok(text) => self.printer.pass_on(text.trim_end().to_owned()),
            Err(why) => {
                let host = &self.outcomes[at].host;
                let trouble = Trouble::new(format!("{host} printed what is no JSON")).because(why);
                self.outcomes[at].lost = Some(Status::Failed);
                self.complain(at, &trouble, None);
            }
        }
    }

    /// Says why it failed, whose words are kept, after this name. What we found ourselves has the machine's name in it.
    fn complain(&mut self, at: usize, trouble: &Trouble, name: Option<&str>) {
        self.outcomes[at].error.extend(trouble.causes.iter().cloned());
        let mut causes = trouble.causes.clone();
        if let (Some(name), Some(first)) = (name, causes.first_mut()) {
            *first = format!("{name}: {first}");
        }
        self.printer.complain(&causes, &trouble.hints);
    }

    fn over(&mut self, at: usize, over: Over) {
        if let Some((since, _)) = self.at_work[at].take() {
            self.outcomes[at].seconds = since.elapsed().as_secs_f64();
        }
        if let Some(trouble) = &over.trouble {
            self.complain(at, trouble, None);
        }
        self.closed |= self.order.stop_on_failure && !over.status.is_good();
        self.outcomes[at].over = Some(over);
        if self.working() == 0 {
            self.printer.done();
        }
    }
}

/// What one of several machines prints, none of whose lines passes for the heading of another machine.
fn without_headings(text: Styled) -> Styled {
    let plain = text.to_string();
    if !plain.lines().any(|line| line.starts_with("==")) {
        return text;
    }
    let lines = plain.split_inclusive('\n');
    Styled::from(
        lines
            .map(|line| if line.starts_with("==") { format!(" {line}") } else { line.to_owned() })
            .collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use penstock_apply::history::RunId;

    use super::*;
    use crate::{
        arguments::Common,
        remote::{protocol::encode, reply_sender::ReplySender},
        settings::Settings,
    };

    /// What is printed of what one machine prints, before its end and at it.
    fn printed(data: &[&str], watches: bool) -> (Vec<String>, Option<String>) {
        let settings = Settings { json: true, ..Settings::resolve(&Common::default()) };
        let (reader, writer) = std::io::pipe().unwrap();
        let (replies, thread) = ReplySender::to(writer);
        let mut printer = Printer::over(replies.clone(), &settings);
        printer.expect(Some(if watches { Kind::Watch } else { Kind::Verify }));
        let order = Order { at_most: 1, stop_on_failure: false, json: true, watches };
        let mut fleet = Fleet::of(&["node-1".parse().unwrap()], order, &mut printer);
        for text in data {
            fleet.on(0, Event::Reply(Reply::Data(Styled::from(format!("{text}\n")))));
        }
        assert!(fleet.outcomes[0].lost.is_none());
        replies.send(Reply::Say("the end".to_owned()));
        printer.finish(Status::Holds);
        replies.send(Reply::Ended(0));
        thread.join().unwrap();
        let sent = std::io::read_to_string(reader).unwrap();
        let of = |text: &&str| {
            let reply = encode(&Reply::Data(Styled::from(format!("{text}\n"))));
            String::from_utf8(reply).unwrap()
        };
        let end = String::from_utf8(encode(&Reply::Say("the end".to_owned()))).unwrap();
        let (before, after) = sent.split_once(&end).unwrap();
        let all = |sent: &str| -> Vec<String> {
            data.iter().filter(|text| sent.contains(&of(text))).map(|text| (*text).to_owned()).collect()
        };
        (all(before), all(after).pop())
    }

    #[test]
    fn a_watch_whose_lines_cannot_be_written_ends_and_says_so_once() {
        let settings = Settings::resolve(&Common::default());
        let (reader, writer) = std::io::pipe().unwrap();
        let (replies, thread) = ReplySender::to(writer);
        let mut printer = Printer::over(replies.clone(), &settings);
        let order = Order { at_most: 2, stop_on_failure: true, json: false, watches: true };
        let mut fleet =
            Fleet::of(&["node-1".parse().unwrap(), "node-2".parse().unwrap()], order, &mut printer);
        // One has failed: no further one is begun, and the reader of the other may go away all the same.
        fleet.closed = true;
        assert!(!fleet.is_unread_now(|| false));
        let full = || Err(Failure::new(Status::Failed, "no space is left"));
        fleet.printed(0, full());
        fleet.printed(1, full());
        assert!(fleet.is_unread_now(|| false) && !fleet.is_unread_now(|| true), "they are told once");
        assert!(fleet.outcomes.iter().all(|outcome| outcome.lost == Some(Status::Failed)));
        replies.send(Reply::Ended(0));
        thread.join().unwrap();
        let sent = std::io::read_to_string(reader).unwrap();
        assert_eq!(sent.matches("no space is left").count(), 1, "{sent}");
    }

    /// What is said on standard error and printed of what the first of two machines says, and what is kept of it.
    fn told(replies: Vec<Reply>) -> (Vec<Reply>, Outcome) {
        let settings = Settings::resolve(&Common::default());
        let (reader, writer) = std::io::pipe().unwrap();
        let (sender, thread) = ReplySender::to(writer);
        let mut printer = Printer::over(sender.clone(), &settings);
        let order = Order { at_most: 2, stop_on_failure: false, json: false, watches: false };
        let mut fleet = Fleet::of(&["a".parse().unwrap(), "b".parse().unwrap()], order, &mut printer);
        replies.into_iter().for_each(|reply| fleet.on(0, Event::Reply(reply)));
        let outcome = fleet.outcomes.swap_remove(0);
        sender.send(Reply::Ended(0));
        thread.join().unwrap();
        let said = std::io::read_to_string(reader).unwrap();
        let mut said: Vec<Reply> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(said.pop(), Some(Reply::Ended(0)));
        (said, outcome)
    }

    #[test]
    fn every_error_has_its_machines_name_whatever_stands_in_it() {
        for text in ["could not read /etc/a", "b: all is well, said a", "a: nothing"] {
            let (said, outcome) =
                told(vec![Reply::Failure { causes: vec![text.to_owned()], hints: Vec::new() }]);
            assert_eq!(said, [Reply::Failure { causes: vec![format!("a: {text}")], hints: Vec::new() }]);
            assert_eq!(outcome.error, [text], "its document stands under its name");
        }
    }

    #[test]
    fn no_machine_prints_under_the_heading_of_another() {
        let data = Styled::from("all is well\n== b\nit fails\n".to_owned());
        let (said, _) = told(vec![Reply::Data(data)]);
        assert_eq!(said, [Reply::Data(Styled::from("== a\nall is well\n == b\nit fails\n\n".to_owned()))]);
        let mut styled = Styled::of(penstock_model::text::Style::Error, "it fails");
        styled.plain(" here\n");
        assert_eq!(without_headings(styled.clone()), styled, "colours stay");
    }

    #[test]
    fn the_run_that_waits_on_a_machine_is_known_by_its_number() {
        let (said, outcome) = told(vec![Reply::Waits(RunId(7))]);
        assert_eq!((said, outcome.waits), (Vec::new(), Some(RunId(7))));
    }

    #[test]
    fn each_line_of_a_watch_is_printed_as_it_comes_and_a_document_at_the_end() {
        let lines = [r#"{"kind":"watch","n":1}"#, r#"{"kind":"watch","n":2}"#];
        assert_eq!(printed(&lines, true), (lines.map(str::to_owned).to_vec(), None));
        let failed = r#"{"kind":"error","of":"watch"}"#;
        let told = printed(&[lines[0], failed], true);
        assert_eq!(told, (vec![lines[0].to_owned()], Some(failed.to_owned())), "once, at the end");
        let whole = r#"{"kind":"verify"}"#;
        assert_eq!(printed(&[whole], false), (Vec::new(), Some(whole.to_owned())));
    }
}
