//! `penstock status`: the guests of this machine, and who waits for what.

use std::{collections::BTreeMap, time::Instant};

use penstock_apply::history::{KnownRun, RunId, StoreError};
use penstock_guests::{Condition, GuestError, Status as GuestStatus};
use penstock_host::{chain, embedded::InsideReport};
use penstock_model::{Bdf, DataPath, GuestKind, GuestName, NicName, TenantNic, text::printable};
use penstock_plan::action::GuestNic;
use serde::Serialize;
use serde_json::Value;

use crate::{
    arguments::StatusRequest,
    commands::undo::Unreadable,
    failure::{Failure, Status},
    runtime::{
        machine::{
            Machine,
            run_states::{CUT_OFF_WAY, RunStates},
        },
        persisted,
        progress::{self, Found, Progress, Wait},
    },
    settings::Settings,
    ui::{live_status, printer::Printer},
};

/// What there is to tell; `--json` prints it.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct StatusDocument {
    /// The guests that are defined, and those that are about to be.
    pub guests: BTreeMap<GuestName, Guest>,
    /// What is being carried out.
    pub progress: Option<Progress>,
    /// What was being carried out when whoever did it died.
    pub died: Option<Progress>,
    /// Runs that left the machine half-way.
    pub half_way: Vec<RunId>,
    /// Those of them that were to be confirmed: nothing goes on from one of these until it is taken back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut_off: Vec<RunId>,
    /// Runs that somebody is taking back right now; they may be among the half-way, open and lapsed ones until that has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub going: Vec<RunId>,
    /// Runs that somebody goes on from right now, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone_on_from: Vec<RunId>,
    /// Runs that wait to be confirmed.
    pub open: Vec<RunId>,
    /// What is done at each boot.
    pub at_boot: Option<persisted::State>,
    /// Runs that nobody had confirmed when the machine was reset, and that left something.
    pub lapsed: Vec<RunId>,
    /// Runs of which something cannot be read any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<RunId>,
}

/// A guest, as far as it is known.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Guest {
    /// How it is; nothing for one that is not defined yet.
    #[serde(flatten)]
    pub status: Option<GuestStatus>,
    /// What it waits for.
    pub waits: Vec<Wait>,
    /// Whether its definition is being removed: it waits for that which goes before it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// The NICs that it owns: of a VM with VFs, of a container with one function.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nics: BTreeMap<NicName, OwnNic>,
    /// What a VM has asked for by itself at functions of its NICs (`node-1/net0#2`); only where it has asked for something.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<String, GuestRequests>,
}

/// A NIC that a guest owns.
#[derive(Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct OwnNic {
    /// What carries the frames of its functions; nothing is an embedded switch that QEMU is connected to by sockets.
    #[serde(skip_serializing_if = "DataPath::is_switch")]
    path: DataPath,
    /// Where its switch leads to: `NET0`, `NET0#5` or an interface of the host; nothing where it leads nowhere. The bridge of its taps, or of a
    /// container's NIC.
    uplink: Option<String>,
    /// The PCI address of the function that the uplink is; nothing for an interface.
    at: Option<Bdf>,
    /// How many VFs it has for the VM to enable; 0 of a container's NIC.
    vfs: usize,
    /// The vDPA device of a container's NIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

/// What a VM has asked for by itself at a function.
#[derive(Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GuestRequests {
    /// Attributes that hold as it has set them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    set: BTreeMap<String, Value>,
    /// What it asks of its device now and does not have, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ungranted: Vec<String>,
    /// How many wishes were refused since the function's embedded switch began, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<String, u64>,
}

/// Prints how each guest is, for how long, which functions it has and what it waits for.
///
/// # Errors
///
/// When the runs cannot be listed, or standard output takes nothing. Guests that cannot be seen are told of beside the rest, and count
/// in the status. With `--watch` as [`live_status::run`].
pub fn run(arguments: &StatusRequest, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    if arguments.watch {
        return live_status::run(arguments, settings, printer);
    }
    let machine = Machine::here(settings);
    let GuestsAndRuns { guests, runs, .. } = GuestsAndRuns::look(&machine);
    // Who cannot see the guests may need just what is said of runs.
    let (guests, unseen) = match guests {
        Ok((guests, None)) => (guests, None),
        Ok((guests, Some(why))) => {
            printer.warn(why);
            (guests, None)
        }
        Err(error) => (BTreeMap::new(), Some(Failure::from(error))),
    };
    let told = runs.map_err(Failure::from).and_then(|runs| document(&machine, guests, &runs, printer));
    if let Some(failure) = &unseen {
        printer.failure(failure);
    }
    let told = told?;
    printer.data(&told, || match unseen.is_some() && told.guests.is_empty() {
        true => notices_in_words(&told, progress::now()),
        false => in_words(&told, progress::now()),
    })?;
    Ok(unseen.map_or(Status::Holds, |failure| failure.status))
}

/// The guests and the runs of a machine, looked at once for all that is told of them.
pub struct GuestsAndRuns {
    /// When the look began.
    pub began: Instant,
    /// How the guests are. Where only libvirt cannot be asked, why it is not known which VMs are suspended stands beside the rest.
    pub guests: Result<(BTreeMap<GuestName, GuestStatus>, Option<String>), GuestError>,
    /// How the runs stand.
    pub runs: Result<RunStates, StoreError>,
}

impl GuestsAndRuns {
    /// Looks. A recorded tree has none: those of this machine are others.
    pub fn look(machine: &Machine) -> GuestsAndRuns {
        let began = Instant::now();
        let (guests, runs) = match machine.root().is_system() {
            true => (guests(machine), machine.run_states()),
            false => (Ok(Default::default()), Ok(RunStates::default())),
        };
        GuestsAndRuns { began, guests, runs }
    }
}

/// All that there is to tell of a machine with these guests and runs.
///
/// # Errors
///
/// [`Status::Missing`] and its like when it cannot be read what is done at boot.
pub fn document(
    machine: &Machine,
    guests: BTreeMap<GuestName, GuestStatus>,
    runs: &RunStates,
    printer: &mut Printer,
) -> Result<StatusDocument, Failure> {
    let (progress, died) = match progress::read(&machine.progress_file()) {
        Found::Nothing => (None, None),
        Found::Running(progress) => (Some(progress), None),
        Found::Died(progress) => (None, Some(progress)),
    };
    let guests = guests
        .into_iter()
        .map(|(name, status)| {
            let own = own_nics(machine, &name, status.kind).unwrap_or_else(|why| {
                printer.warn(why);
                Vec::new()
            });
            let asked =
                if status.pid.is_some() { asked(machine, &name, &own, printer) } else { BTreeMap::new() };
            let nics = own.into_iter().map(|own| (own.name.clone(), OwnNic::of(&own))).collect();
            (name, Guest { status: Some(status), nics, asked, ..Guest::default() })
        })
        .collect();
    let mut damaged: Vec<RunId> = Vec::new();
    for run in &runs.unreadable {
        damaged.push(run.id);
        Unreadable::tell(run, printer);
    }
    for (run, damage) in &runs.damaged {
        for damage in damage {
            printer.warn(format!("run {run} is damaged: {damage}"));
        }
        damaged.push(*run);
    }
    damaged.sort();
    let mut told = StatusDocument {
        guests,
        progress,
        died,
        half_way: runs.half_way.clone(),
        cut_off: runs.cut_off.clone(),
        going: runs.going.clone(),
        gone_on_from: runs.gone_on_from.clone(),
        at_boot: persisted::state(machine)?,
        open: runs.open.iter().map(KnownRun::id).collect(),
        lapsed: runs.lapsed.clone(),
        damaged,
    };
    for (name, waits) in told.progress.iter().flat_map(|progress| &progress.guests) {
        told.guests.entry(name.clone()).or_default().waits = waits.clone();
    }
    for name in told.progress.iter().flat_map(|progress| &progress.leaving) {
        // One that is gone by now is told of only while something is left to do for it.
        if let Some(guest) = told.guests.get_mut(name) {
            guest.leaves = true;
        }
    }
    Ok(told)
}

fn guests(machine: &Machine) -> Result<(BTreeMap<GuestName, GuestStatus>, Option<String>), GuestError> {
    match machine.guests().status() {
        Ok(guests) => Ok((guests, None)),
        Err(error @ GuestError::Libvirt { .. }) => {
            let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
            let unseen = format!("whether VMs are suspended is not known: {error}{why}");
            Ok((machine.guests().seen()?, Some(unseen)))
        }
        Err(error) => Err(error),
    }
}

/// The NICs that a guest owns, as it is defined; in words, why that is not known.
///
/// # Errors
///
/// In words, when the definition is there and cannot be read.
pub fn own_nics(machine: &Machine, guest: &GuestName, kind: GuestKind) -> Result<Vec<GuestNic>, String> {
    let guests = machine.guests();
    let definition = match kind {
        GuestKind::Vm => guests.vms().definition(guest),
        GuestKind::Container => guests.containers().definition(guest),
    };
    match definition {
        Ok(definition) => Ok(definition.map(|definition| definition.nics).unwrap_or_default()),
        Err(error) => Err(format!("which NICs {guest} owns is not known: {}", chain(&error))),
    }
}

impl OwnNic {
    fn of(own: &GuestNic) -> OwnNic {
        let uplink = own.nic.uplink.as_ref().map(ToString::to_string);
        let device = own.nic.is_of_container().then(|| TenantNic::vdpa_device(own.nic.mac));
        OwnNic { path: own.nic.path, uplink, at: own.uplink_at, vfs: own.nic.most_vfs(), device }
    }

    /// "uplink NET0#5 (0000:01:10.2), 4 VFs"; "uplink br0, vDPA device penstock-020000000101" of a container's.
    fn in_words(&self) -> String {
        let at = self.at.map(|at| format!(" ({at})")).unwrap_or_default();
        let uplink =
            self.uplink.as_ref().map_or("no uplink".to_owned(), |uplink| format!("uplink {uplink}{at}"));
        if let Some(device) = &self.device {
            return format!("{uplink}, vDPA device {device}");
        }
        let vfs = if self.vfs == 1 { "1 VF".to_owned() } else { format!("{} VFs", self.vfs) };
        let path = match self.path {
            DataPath::Switch | DataPath::VirtioVdpa => "",
            DataPath::SwitchTap => ", a tap",
            DataPath::Tap => ", taps",
            DataPath::VhostVdpa => ", vDPA devices",
        };
        format!("{uplink}, {vfs}{path}")
    }
}

/// What a VM that runs has asked for by itself, as the switches of its NICs tell.
fn asked(
    machine: &Machine,
    guest: &GuestName,
    nics: &[GuestNic],
    printer: &mut Printer,
) -> BTreeMap<String, GuestRequests> {
    let guests = machine.guests();
    let vms = guests.vms();
    let mut all = BTreeMap::new();
    for own in nics.iter().filter(|own| own.nic.allows()) {
        let ports = match vms.switch_ports(guest, &own.name) {
            Ok(ports) => ports,
            Err(why) => {
                printer.warn(format!("what {guest} asks of {} is not known: {why}", own.name));
                continue;
            }
        };
        let inside = ports.into_iter().map(|(name, port)| {
            let InsideReport { set, host: _, ungranted, refused } = port.inside;
            (name, GuestRequests { set, ungranted, refused })
        });
        all.extend(inside.filter(|(_, asked)| *asked != GuestRequests::default()));
    }
    all
}

/// `now` in milliseconds since 1970.
fn in_words(told: &StatusDocument, now: u64) -> String {
    let mut text = notices_in_words(told, now);
    if told.guests.is_empty() {
        return text + NO_GUESTS;
    }
    for (name, guest) in &told.guests {
        text += &format!("{}{}\n", summary(name, guest, now), waits(&guest.waits, now));
        let owned = guest.status.iter().flat_map(|status| &status.functions);
        let functions: Vec<String> =
            owned.map(|owned| format!("{}={}", owned.interface, owned.function)).collect();
        let functions = (!functions.is_empty()).then(|| functions.join(" "));
        for detail in functions.into_iter().chain(details(name, guest)) {
            text += &format!("{:<28}{detail}\n", "");
        }
    }
    text
}

fn notices_in_words(told: &StatusDocument, now: u64) -> String {
    notices(told, now).iter().map(|notice| format!("{notice}\n")).collect()
}

/// What is said of a machine without guests.
pub const NO_GUESTS: &str = "No guests are defined on this machine.";

/// What somebody should know of the machine's runs, a line each; `now` in milliseconds since 1970.
pub fn notices(told: &StatusDocument, now: u64) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(progress) = &told.progress {
        all.push(format!(
            "penstock (pid {}) has been {} for {}: {} of {} steps done",
            progress.process.id,
            progress.doing,
            whole(now.saturating_sub(progress.since)),
            progress.done,
            progress.steps,
        ));
    }
    if let Some(died) = &told.died {
        let at =
            died.at.as_ref().map_or(String::new(), |(step, action)| format!(" at step {step} ({action})"));
        all.push(format!(
            "A penstock that was {} died{at}, with {} of {} steps done; `penstock apply` or `penstock stop` puts it right.",
            died.doing, died.done, died.steps,
        ));
    }
    let mut left_to_others: Vec<RunId> = Vec::new();
    for (runs, what) in [
        (&told.going, "is being taken back"),
        (&told.gone_on_from, "is what somebody goes on from right now"),
    ] {
        let told_of = [&told.half_way, &told.open, &told.lapsed];
        for run in runs.iter().filter(|run| told_of.iter().any(|list| list.contains(run))) {
            all.push(format!("Run {run} {what}."));
            left_to_others.push(*run);
        }
    }
    // What to do about it is said when whoever is at work on it has ended.
    let is_left = |run: &&RunId| !left_to_others.contains(run);
    for run in told.cut_off.iter().filter(is_left) {
        all.push(format!(
            "Run {run} was to be confirmed, and was cut off before it came to its end: {CUT_OFF_WAY}."
        ));
    }
    for run in told.half_way.iter().filter(is_left).filter(|run| !told.cut_off.contains(run)) {
        all.push(format!(
            "Run {run} left this machine half-way: `penstock undo` takes it back, `penstock apply` goes on."
        ));
    }
    for run in told.open.iter().filter(is_left) {
        all.push(format!("Run {run} waits: `penstock confirm` keeps it, `penstock undo` takes it back."));
    }
    if let Some(at_boot) = &told.at_boot {
        all.push(format!(
            "At boot: {} is applied by {}.",
            at_boot.model.unwrap_or("no model"),
            if at_boot.units.is_empty() { "nothing".to_owned() } else { at_boot.units.join(", ") }
        ));
        for argument in &at_boot.arguments {
            all.push(format!("Kernel argument {}: {}.", argument.words, argument.seen()));
        }
    }
    for run in told.lapsed.iter().filter(is_left) {
        all.push(format!(
            "Run {run} was not confirmed before the machine was reset: the next `penstock apply`, or `penstock undo`, takes \
             back what it left."
        ));
    }
    all
}

/// How a guest is and for how long, in one line; `now` in milliseconds since 1970.
pub fn summary(name: &GuestName, guest: &Guest, now: u64) -> String {
    let Some(status) = &guest.status else {
        let is = if guest.leaves { "being removed" } else { "not there yet" };
        return format!("{name:<16} {:<9}  {is}", "");
    };
    let kind = match status.kind {
        GuestKind::Vm => "VM",
        GuestKind::Container => "container",
    };
    let lasted = status.since.map(|since| whole(now.saturating_sub(since.saturating_mul(1000))));
    let lasted = lasted.map(|lasted| format!(" for {lasted}")).unwrap_or_default();
    let condition = match status.condition {
        Condition::Stopped => "stopped",
        Condition::Suspended => "suspended",
        Condition::Running => "running",
        Condition::Died => "died",
    };
    let pid = status.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    format!("{name:<16} {kind:<9}  {condition}{lasted}{pid}")
}

/// The NICs that a guest owns, what it has asked for by itself, and the last that a dead one said; a line each.
pub fn details(name: &GuestName, guest: &Guest) -> Vec<String> {
    let nics = guest.nics.iter().map(|(nic, own)| format!("{name}/{nic}: {}", own.in_words()));
    let asked =
        guest.asked.iter().map(|(function, asked)| format!("{function}: {}", asked.in_words().join("; ")));
    let died = guest.status.iter().filter(|status| status.condition == Condition::Died);
    let last_words = died.flat_map(|status| &status.last_words).map(|said| format!("| {said}"));
    let again = guest.status.iter().filter(|status| status.made_again);
    let again =
        again.map(|_| "made anew once: after its first start it said nothing for too long".to_owned());
    nics.chain(asked).chain(again).chain(last_words).collect()
}

impl GuestRequests {
    fn in_words(&self) -> Vec<String> {
        let list = |all: Vec<String>| (!all.is_empty()).then(|| all.join(", "));
        // What comes of a guest is made fit for a terminal.
        let set = self.set.iter().map(|(key, value)| printable(&format!("{key} {value}")).into_owned());
        let refused = self.refused.iter().map(|(why, count)| format!("{} {count}", printable(why)));
        let ungranted = self.ungranted.iter().map(|text| printable(text).into_owned());
        [
            list(set.collect()).map(|all| format!("set from inside: {all}")),
            list(ungranted.collect()).map(|all| format!("not granted: {all}")),
            list(refused.collect()).map(|all| format!("refused so far: {all}")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// What a guest waits for, as the end of its line.
fn waits(waits: &[Wait], now: u64) -> String {
    if waits.is_empty() {
        return String::new();
    }
    let waits: Vec<String> = waits.iter().map(|wait| waited_for(wait, now)).collect();
    format!(", waits for: {}", waits.join("; "))
}

/// What is waited for, and how long yet or already; `now` in milliseconds since 1970.
pub fn waited_for(wait: &Wait, now: u64) -> String {
    let more = match (wait.until, wait.since) {
        (Some(until), _) => format!(", up to {} more", whole(until.saturating_sub(now))),
        (None, Some(since)) => format!(", for {}", whole(now.saturating_sub(since))),
        (None, None) => ", which is not begun".to_owned(),
    };
    format!("{}{more}", wait.what)
}

/// A time in whole seconds: "3 s", "2 min 5 s", "3 h 2 min", "2 days 1 h".
pub fn whole(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use penstock_host::running::Running;
    use penstock_plan::StepId;

    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn status(condition: Condition, seconds: Option<u64>) -> GuestStatus {
        GuestStatus {
            kind: GuestKind::Vm,
            condition,
            pid: seconds.map(|_| 42),
            since: seconds.map(|seconds| NOW / 1000 - seconds),
            functions: Vec::new(),
            last_words: Vec::new(),
            made_again: false,
            not_awaited: false,
            unfinished: false,
        }
    }

    fn told(status: GuestStatus, waits: Vec<Wait>) -> StatusDocument {
        let guest = Guest { status: Some(status), waits, ..Guest::default() };
        let guests = [("rt-2".parse().unwrap(), guest)].into();
        let (half_way, open, lapsed) = (Vec::new(), Vec::new(), Vec::new());
        StatusDocument {
            guests,
            progress: None,
            died: None,
            half_way,
            cut_off: Vec::new(),
            going: Vec::new(),
            gone_on_from: Vec::new(),
            open,
            lapsed,
            at_boot: None,
            damaged: Vec::new(),
        }
    }

    fn link(since: Option<u64>, until: Option<u64>) -> Wait {
        let what = "link of NET1 (0000:02:00.0)".to_owned();
        Wait { step: StepId(3), what, reason: String::new(), since, until }
    }

    #[test]
    fn a_suspended_guest_tells_what_it_waits_for() {
        let waits = vec![link(Some(NOW - 3000), Some(NOW + 12_900))];
        let text = in_words(&told(status(Condition::Suspended, Some(3)), waits), NOW);
        assert_eq!(
            text,
            "rt-2             VM         suspended for 3 s (pid 42), waits for: link of NET1 (0000:02:00.0), up to \
             12 s more\n"
        );
        let text = in_words(&told(status(Condition::Stopped, None), vec![link(None, None)]), NOW);
        assert!(
            text.ends_with("stopped, waits for: link of NET1 (0000:02:00.0), which is not begun\n"),
            "{text}"
        );
    }

    #[test]
    fn what_a_vm_asks_for_by_itself_is_told() {
        let mut told = told(status(Condition::Running, Some(3)), Vec::new());
        let asked = GuestRequests {
            set: [("vlan".to_owned(), 150.into())].into(),
            ungranted: vec!["promiscuous mode: the host does not allow it".to_owned()],
            refused: [("vlan".to_owned(), 2), ("trust".to_owned(), 1)].into(),
        };
        let guest = told.guests.values_mut().next().unwrap();
        guest.asked = [("rt-2/net0#1".to_owned(), asked)].into();
        let at = |at: &str| Some(at.parse().unwrap());
        guest.nics = [
            (
                "net0".parse().unwrap(),
                OwnNic {
                    device: None,
                    path: DataPath::Switch,
                    uplink: Some("NET0#5".to_owned()),
                    at: at("0000:01:10.2"),
                    vfs: 4,
                },
            ),
            (
                "net1".parse().unwrap(),
                OwnNic { path: DataPath::Switch, uplink: None, at: None, vfs: 1, device: None },
            ),
        ]
        .into();
        let text = in_words(&told, NOW);
        let line = "rt-2/net0#1: set from inside: vlan 150; not granted: promiscuous mode: the host does not allow it; refused so \
                    far: trust 1, vlan 2\n";
        assert!(text.ends_with(line), "{text}");
        for line in ["rt-2/net0: uplink NET0#5 (0000:01:10.2), 4 VFs\n", "rt-2/net1: no uplink, 1 VF\n"] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_dead_guest_is_shown_with_its_last_words() {
        let mut dead = status(Condition::Died, None);
        dead.last_words = vec!["Kernel panic".to_owned(), "end".to_owned()];
        let text = in_words(&told(dead, Vec::new()), NOW);
        let indent = " ".repeat(28);
        assert_eq!(
            text,
            format!("rt-2             VM         died\n{indent}| Kernel panic\n{indent}| end\n")
        );
    }

    #[test]
    fn a_guest_that_was_made_anew_is_said() {
        let again = GuestStatus { made_again: true, ..status(Condition::Running, Some(3)) };
        let text = in_words(&told(again, Vec::new()), NOW);
        assert!(
            text.ends_with("made anew once: after its first start it said nothing for too long\n"),
            "{text}"
        );
    }

    #[test]
    fn a_run_that_died_is_said() {
        let progress = Progress {
            process: Running { id: 1, started: 0 },
            doing: "applying".to_owned(),
            since: NOW,
            steps: 9,
            done: 3,
            at: Some((StepId(4), "guest rt-2: start".to_owned())),
            guests: BTreeMap::new(),
            leaving: Default::default(),
        };
        let told =
            StatusDocument { died: Some(progress), ..told(status(Condition::Stopped, None), Vec::new()) };
        let text = in_words(&told, NOW);
        assert!(
            text.contains("A penstock that was applying died at step 4 (guest rt-2: start), with 3 of 9"),
            "{text}"
        );
    }

    #[test]
    fn a_run_that_somebody_is_at_work_on_is_left_to_them() {
        let runs = |ids: &[&str]| ids.iter().map(|id| id.parse().unwrap()).collect::<Vec<RunId>>();
        let all = StatusDocument {
            half_way: runs(&["3", "4", "9"]),
            cut_off: runs(&["4"]),
            open: runs(&["10"]),
            lapsed: runs(&["2", "5"]),
            going: runs(&["4", "5", "9", "10"]),
            gone_on_from: runs(&["1", "3"]),
            ..told(status(Condition::Stopped, None), Vec::new())
        };
        let wanted = [
            "Run 4 is being taken back.",
            "Run 5 is being taken back.",
            "Run 9 is being taken back.",
            "Run 10 is being taken back.",
            "Run 3 is what somebody goes on from right now.",
            "Run 2 was not confirmed before the machine was reset: the next `penstock apply`, or `penstock undo`, takes back what \
             it left.",
        ];
        assert_eq!(notices(&all, NOW), wanted);
    }

    #[test]
    fn a_guest_that_goes_away_is_not_said_to_come() {
        let wait = || Wait { what: "guest web: remove its definition".to_owned(), ..link(None, None) };
        let mut told = told(status(Condition::Stopped, None), Vec::new());
        let of = |leaves| Guest { waits: vec![wait()], leaves, ..Guest::default() };
        told.guests = [("web".parse().unwrap(), of(true)), ("new".parse().unwrap(), of(false))].into();
        let text = in_words(&told, NOW);
        assert!(
            text.contains("web                         being removed, waits for: guest web: remove"),
            "{text}"
        );
        assert!(text.contains("new                         not there yet, waits for"), "{text}");
    }

    #[test]
    fn times_are_short() {
        let cases = [(999, "0 s"), (59_999, "59 s"), (125_000, "2 min 5 s"), (10_920_000, "3 h 2 min")];
        for (milliseconds, words) in cases {
            assert_eq!(whole(milliseconds), words);
        }
        assert_eq!(whole(2 * 86_400_000 + 3_600_000), "2 days 1 h");
    }
}
