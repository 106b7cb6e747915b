//! What the page shows, as a pure function of what was seen and of the time. How it is drawn and what keys do is not known here.

use std::{collections::BTreeMap, time::Duration};

use penstock_guests::Condition;
use penstock_model::{
    Bdf, GuestName, Outcome,
    measurement::{Quantity, Unit},
    text::{Style, Styled, columns, counted, one_line, wrap_prose},
};
use penstock_plan::action::GuestFunction;
use penstock_report::metrics::{FunctionMetrics, InterfaceMetrics, PortMetrics, VerificationMetrics};

use super::{log_lines::LogLines, look::MachineLook, rates::Rate};
use crate::commands::status::{self, Guest, StatusDocument};

/// From this width on, packets are shown beside bits, and PCI addresses beside names.
const WIDE: usize = 110;

/// How far stands in what belongs to a guest or a NIC.
const INDENT: usize = 2;

/// What a look that takes longer is told of.
const SLOW: Duration = Duration::from_secs(2);

/// A page: two ends of a line at the top, and rows that may be more than fit.
#[derive(Debug, Default, PartialEq)]
pub struct ScreenPage {
    /// What it is of.
    pub title: Styled,
    /// How old what it shows is.
    pub age: Styled,
    /// Its rows.
    pub rows: Vec<PageRow>,
}

/// A line of a page.
#[derive(Debug, Default, PartialEq)]
pub struct PageRow {
    /// What it is known by when its text has changed.
    pub key: String,
    /// The guest that it belongs to.
    pub guest: Option<GuestName>,
    /// What it says.
    pub text: Styled,
}

/// What is known of the machine.
pub struct Observations<'a> {
    /// The last look that is over.
    pub look: Option<&'a MachineLook>,
    /// How long ago that was.
    pub age: Duration,
    /// How long the look takes already that goes on.
    pub looking: Option<Duration>,
    /// Whether the machine is as a model has it.
    pub drift: ModelDrift<'a>,
    /// In milliseconds since 1970.
    pub now: u64,
}

/// Whether the machine is as a model has it.
pub enum ModelDrift<'a> {
    /// There is no model.
    NoModel,
    /// It is compared for the first time.
    Comparing,
    /// What came out, and how long ago that was.
    Compared(&'a Result<VerificationMetrics, String>, Duration),
}

/// The page of a machine, for lines of this width.
pub fn of_machine(seen: &Observations<'_>, width: usize) -> ScreenPage {
    let mut rows = Rows { rows: Vec::new(), width, now: seen.now };
    if let Some(look) = seen.look {
        match &look.status {
            Ok(status) => rows.notices(status, look, seen.age),
            Err(why) => {
                rows.prose("unknown", Style::Error, &format!("How this machine is is not known: {why}"))
            }
        }
        for (what, unseen) in [("How runs stand", &look.runs_unseen), ("How guests are", &look.guests_unseen)]
        {
            if let Some(why) = unseen {
                rows.prose(what, Style::Error, &format!("{what} is not known: {why}"));
            }
        }
        rows.drift(&seen.drift);
        let table = Table::of(look, width);
        match &look.status {
            Ok(status) if look.guests_unseen.is_none() || !status.guests.is_empty() => {
                rows.guests(status, look, &table);
            }
            _ => {}
        }
        rows.nics(look, &table);
        rows.unseen(look);
    }
    ScreenPage { title: Styled::of(Style::Bold, "penstock status"), age: age(seen), rows: rows.rows }
}

/// The page of the last lines on a guest's console.
pub fn of_log(guest: &GuestName, log: &LogLines) -> ScreenPage {
    let row =
        |(number, line): (u64, &str)| PageRow { key: number.to_string(), guest: None, text: line.into() };
    let mut rows: Vec<PageRow> = log.numbered().map(row).collect();
    if rows.is_empty() {
        rows.push(row((0, "It has said nothing yet, or its log is not for you to read.")));
    }
    ScreenPage {
        title: Styled::of(Style::Bold, format!("console of {guest}: its last lines")),
        age: Styled::new(),
        rows,
    }
}

/// The page that tells what keys there are.
pub fn of_help() -> ScreenPage {
    const LINES: [&str; 14] = [
        "Up, Down, k, j       move by a line",
        "PgUp, PgDn           move by a screenful",
        "Home, End, g, G      to the first, the last line",
        "Enter, c             the console of the line's guest; Ctrl-] comes back",
        "l                    the last lines on its console",
        "r                    look now",
        "Ctrl-L               draw the page anew",
        "Ctrl-Z               stop; fg goes on",
        "?                    this page",
        "q, Ctrl-C            quit; q and Esc leave this page",
        "",
        "Rates are a function's own: in is what it received since the look before, out what it sent.",
        "An interface that can be seen has counted them, else the PF has for its VF.",
        "Looking goes on while keys are read; at the top stands how old the page is.",
    ];
    let row = |(number, line): (usize, &&str)| PageRow {
        key: number.to_string(),
        guest: None,
        text: Styled::from(*line),
    };
    ScreenPage {
        title: Styled::of(Style::Bold, "penstock status: keys"),
        age: Styled::new(),
        rows: LINES.iter().enumerate().map(row).collect(),
    }
}

/// How old what is shown is, and whether a look takes long.
fn age(seen: &Observations<'_>) -> Styled {
    let slow = seen.looking.filter(|looking| *looking >= SLOW);
    let slow = slow.map(|looking| format!("looking for {}", whole(looking)));
    match (seen.look, slow) {
        (None, None) => Styled::from("looking"),
        (None, Some(slow)) => Styled::of(Style::Warning, slow),
        (Some(_), slow) => {
            let seen = format!("seen {} ago", whole(seen.age));
            match slow {
                None => Styled::from(seen),
                Some(slow) => Styled::of(Style::Warning, format!("{seen}, {slow}")),
            }
        }
    }
}

fn whole(time: Duration) -> String {
    status::whole(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// The rows of a machine's page as they are made.
struct Rows {
    rows: Vec<PageRow>,
    width: usize,
    now: u64,
}

impl Rows {
    fn push(&mut self, key: impl Into<String>, guest: Option<&GuestName>, text: impl Into<Styled>) {
        self.rows.push(PageRow { key: key.into(), guest: guest.cloned(), text: text.into() });
    }

    /// Words that are read to their end, however narrow the page is.
    fn prose(&mut self, key: &str, style: Style, text: &str) {
        for (number, line) in wrap_prose(&one_line(text), self.width).into_iter().enumerate() {
            self.push(format!("{key} {number}"), None, Styled::of(style, line));
        }
    }

    /// What belongs to what stands above it, read to its end.
    fn below(&mut self, key: &str, guest: Option<&GuestName>, indent: usize, text: &str) {
        let room = self.width.saturating_sub(indent);
        for (number, line) in wrap_prose(&one_line(text), room).into_iter().enumerate() {
            self.push(format!("{key} {number}"), guest, format!("{:indent$}{line}", ""));
        }
    }

    /// A function: on one line, or its attributes below it.
    fn function(&mut self, key: &str, guest: Option<&GuestName>, (line, attributes): (String, String)) {
        let whole = format!("{line}{attributes}");
        if columns(&whole) <= self.width {
            return self.push(key, guest, whole);
        }
        self.push(key, guest, line);
        self.below(key, guest, 2 * INDENT, &attributes);
    }

    fn heading(&mut self, text: &str) {
        self.push(format!("before {text}"), None, Styled::new());
        self.push(text, None, Styled::of(Style::Bold, text));
    }

    /// Runs that somebody should look at, and how long there is to confirm one.
    fn notices(&mut self, told: &StatusDocument, look: &MachineLook, age: Duration) {
        for (number, notice) in status::notices(told, self.now).iter().enumerate() {
            self.prose(&format!("notice {number}"), Style::Warning, notice);
        }
        let passed = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        if let Some(left) = look.to_confirm.map(|left| left.saturating_sub(passed)) {
            let text = match u64::try_from(left) {
                Ok(left) => {
                    format!("Without `penstock confirm` it is taken back in {}.", status::whole(left))
                }
                Err(_) => "It was not confirmed in time, and is taken back.".to_owned(),
            };
            self.prose("confirm", Style::Warning, &text);
        }
    }

    fn drift(&mut self, drift: &ModelDrift<'_>) {
        let (style, text) = match drift {
            ModelDrift::NoModel => {
                (Style::Dim, "Drift is not looked for: `penstock status --watch MODEL` does.".to_owned())
            }
            ModelDrift::Comparing => (Style::Plain, "Comparing this machine with the model.".to_owned()),
            ModelDrift::Compared(Ok(compared), age) => compared_in_words(compared, *age),
            ModelDrift::Compared(Err(why), _) => {
                (Style::Error, format!("This machine could not be compared with the model: {why}"))
            }
        };
        self.prose("drift", style, &text);
    }

    fn guests(&mut self, told: &StatusDocument, look: &MachineLook, table: &Table<'_>) {
        self.heading("Guests");
        if told.guests.is_empty() {
            self.push("no guests", None, status::NO_GUESTS);
        }
        for (name, guest) in &told.guests {
            let (key, owner) = (format!("guest {name}"), Some(name));
            self.push(key.as_str(), owner, Styled::of(style(guest), status::summary(name, guest, self.now)));
            for wait in &guest.waits {
                let text =
                    format!("waits for: {}, because {}", status::waited_for(wait, self.now), wait.reason);
                self.below(&format!("{key} step {}", wait.step), owner, INDENT, &text);
            }
            for owned in guest.status.iter().flat_map(|status| &status.functions) {
                self.function(&format!("{key} {}", owned.function), owner, table.owned(owned));
            }
            for (number, detail) in status::details(name, guest).iter().enumerate() {
                self.below(&format!("{key} detail {number}"), owner, INDENT, detail);
            }
            for port in look.snapshot.ports.iter().filter(|port| port.guest == *name) {
                self.push(format!("{key} port {}", port.port), owner, table.port(port));
            }
        }
    }

    fn nics(&mut self, look: &MachineLook, table: &Table<'_>) {
        self.heading("NICs");
        if look.snapshot.functions.is_empty() {
            self.push("no nics", None, "There is no NIC with SR-IOV here.");
        }
        for function in &look.snapshot.functions {
            let key = format!("function {}", function.identity.bdf);
            self.function(&key, function.guest.as_ref(), table.function(function));
        }
    }

    fn unseen(&mut self, look: &MachineLook) {
        if look.unseen.is_empty() {
            return;
        }
        self.heading("Not seen");
        for (number, why) in look.unseen.iter().enumerate() {
            self.prose(&format!("unseen {number}"), Style::Plain, why);
        }
    }
}

/// What came out of comparing, for a person.
fn compared_in_words(compared: &VerificationMetrics, age: Duration) -> (Style, String) {
    /// So many names are read at a glance.
    const NAMED: usize = 8;
    let count = |outcome: Outcome| -> u64 {
        compared.verdicts.values().filter_map(|outcomes| outcomes.get(&outcome)).sum()
    };
    let ago = whole(age);
    let counts = [Outcome::Pass, Outcome::Fail, Outcome::Unsupported, Outcome::Unknown]
        .map(|outcome| format!("{} {outcome}", count(outcome)));
    let mut text = if compared.holds { "As the model has it" } else { "Not as the model has it" }.to_owned();
    text += &format!(", {ago} ago: {} (no frames were sent).", counts.join(", "));
    let mut named: Vec<String> =
        compared.drift.iter().take(NAMED).map(|one| format!("{} {}", one.subject, one.attribute)).collect();
    if compared.drift.len() > NAMED {
        named.push(format!("{} more", compared.drift.len() - NAMED));
    }
    if !named.is_empty() {
        text += &format!(" What does not hold: {}.", named.join(", "));
    }
    (if compared.holds { Style::Added } else { Style::Error }, text)
}

/// How a guest's line looks.
fn style(guest: &Guest) -> Style {
    let condition = guest.status.as_ref().map(|status| status.condition);
    match condition {
        Some(Condition::Died) => Style::Error,
        _ if !guest.waits.is_empty() => Style::Warning,
        Some(Condition::Running) => Style::Added,
        Some(Condition::Suspended) | None => Style::Warning,
        Some(Condition::Stopped) => Style::Dim,
    }
}

/// Lines of functions, in columns.
struct Table<'a> {
    look: &'a MachineLook,
    functions: BTreeMap<Bdf, &'a FunctionMetrics>,
    wide: bool,
    /// How wide the name is, and what follows it.
    name: usize,
    link: usize,
    rate: usize,
}

impl Table<'_> {
    fn of(look: &MachineLook, width: usize) -> Table<'_> {
        let functions = look.snapshot.functions.iter().map(|one| (one.identity.bdf, one)).collect();
        let mut table = Table { look, functions, wide: width >= WIDE, name: 0, link: 0, rate: 0 };
        for function in &look.snapshot.functions {
            table.name = table.name.max(columns(&table.name_of(function)));
            table.link = table.link.max(columns(&link(function.interface.as_ref())));
            for rate in table.rates_of(function) {
                table.rate = table.rate.max(columns(&rate));
            }
        }
        table
    }

    /// A function of a guest, which may be of no PF that there is.
    fn owned(&self, owned: &GuestFunction) -> (String, String) {
        let mut attributes = vec![format!("as {}", owned.interface)];
        attributes.extend(owned.mac.map(|mac| mac.to_string()));
        attributes.extend(owned.addresses.iter().map(ToString::to_string));
        attributes.extend(owned.mtu.map(|mtu| format!("MTU {mtu}")));
        attributes.extend(owned.egress_rate.map(|rate| format!("sends at most {rate} Mbit/s")));
        attributes.extend(owned.ingress_rate.map(|rate| format!("receives at most {rate} Mbit/s")));
        let line = match self.functions.get(&owned.function) {
            Some(function) => self.line(function, INDENT),
            None => format!("{:INDENT$}{}  not there  ", "", owned.function),
        };
        (line, attributes.join(" "))
    }

    /// A function of a NIC.
    fn function(&self, function: &FunctionMetrics) -> (String, String) {
        let mut attributes = Vec::new();
        attributes.extend(function.interface.as_ref().map(|interface| interface.name.to_string()));
        attributes.push(function.driver.clone().unwrap_or("no driver".to_owned()));
        if let Some(pf) = &function.pf {
            attributes.push(format!("{} of {}", pf.vfs, counted(pf.vfs_max.into(), "VF")));
        }
        attributes.extend(function.guest.as_ref().map(|guest| format!("guest {guest}")));
        let indent = if function.pf.is_some() { 0 } else { INDENT };
        (self.line(function, indent), one_line(&attributes.join(" ")))
    }

    /// The port of a NIC that a VM owns.
    fn port(&self, port: &PortMetrics) -> String {
        let state = match (port.connected, port.up) {
            (false, _) => "not connected",
            (true, true) => "up",
            (true, false) => "down",
        };
        let rate = self.look.rates.ports.get(&(port.guest.clone(), port.port.clone()));
        let [received, sent] = self.words(rate, port.counters.is_some());
        format!("{:INDENT$}{}  {state}  in {received}  out {sent}", "", one_line(&port.port))
    }

    fn line(&self, function: &FunctionMetrics, indent: usize) -> String {
        let [received, sent] = self.rates_of(function);
        let dropped = self.look.rates.functions.get(&function.identity.bdf).map_or(0.0, |rate| rate.dropped);
        let mut line = " ".repeat(indent);
        for (text, width) in [
            (self.name_of(function), self.name + INDENT - indent),
            (link(function.interface.as_ref()), self.link),
            (format!("in {received}"), self.rate + 3),
            (format!("out {sent}"), self.rate + 4),
        ] {
            line += &text;
            line += &" ".repeat(width.saturating_sub(columns(&text)) + 2);
        }
        if dropped > 0.0 {
            line += &format!("drops {}  ", Quantity { value: dropped, unit: Unit::PerSecond });
        }
        line
    }

    fn name_of(&self, function: &FunctionMetrics) -> String {
        let bdf = function.identity.bdf;
        match &function.identity.function {
            Some(name) if self.wide => format!("{name} {bdf}"),
            Some(name) => name.to_string(),
            None => bdf.to_string(),
        }
    }

    fn rates_of(&self, function: &FunctionMetrics) -> [String; 2] {
        let own = function.interface.as_ref().and_then(|interface| interface.counters.as_ref());
        let is_counted = own.is_some() || function.counters.is_some();
        self.words(self.look.rates.functions.get(&function.identity.bdf), is_counted)
    }

    /// What is received and what is sent. A rate takes two looks.
    fn words(&self, rate: Option<&Rate>, is_counted: bool) -> [String; 2] {
        let Some(rate) = rate else {
            let word = if is_counted { "..." } else { "not counted" };
            return [word.to_owned(), word.to_owned()];
        };
        [(rate.rx_bytes, rate.rx_packets), (rate.tx_bytes, rate.tx_packets)].map(|(bytes, packets)| {
            let bits = Quantity { value: bytes * 8.0, unit: Unit::BitPerSecond };
            match self.wide {
                true => format!("{bits} {} packets/s", packets.round()),
                false => bits.to_string(),
            }
        })
    }
}

/// The link of an interface that can be seen.
fn link(interface: Option<&InterfaceMetrics>) -> String {
    let Some(interface) = interface else { return "no link seen".to_owned() };
    match (interface.up, interface.carrier, interface.speed) {
        (false, _, _) => "down".to_owned(),
        (true, Some(false), _) => "no carrier".to_owned(),
        (true, _, Some(speed)) => {
            format!("up {}", Quantity { value: f64::from(speed) * 1e6, unit: Unit::BitPerSecond })
        }
        (true, _, None) => "up".to_owned(),
    }
}
