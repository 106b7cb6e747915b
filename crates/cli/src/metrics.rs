//! What `penstock metrics` tells, gathered once and read only: of the scan, of rtnetlink's counters, of guests, runs and verdicts.

mod counters;

use std::{
    collections::BTreeMap,
    fmt::Display,
    time::{Duration, Instant},
};

use indexmap::IndexMap;
use penstock_apply::history::{KnownRun, Purpose, StoreError};
use penstock_guests::{Condition, Status as GuestStatus};
use penstock_host::{boot, chain};
use penstock_model::{
    Bdf, FunctionName, GuestName, Inventory, NicName, Source, Verdict, VfIndex,
    inventory::{Pf, PresentVf},
};
use penstock_report::metrics::{
    Area, FunctionMetrics, GuestMetrics, GuestState, Identity, PfMetrics, PortMetrics, ProgressMetrics,
    RunMetrics, RunOutcome, RunsMetrics, Snapshot, VerificationMetrics,
};
use penstock_verify::{KernelObserver, Scope, attributes};

use self::counters::{FunctionCounters, read as read_counters};
use crate::{
    commands::{
        status::{self, GuestsAndRuns},
        verify,
    },
    failure::Failure,
    model_file::ModelFile,
    runtime::{
        machine::{Machine, run_states::RunStates},
        progress::{self, Found},
    },
    ui::printer::Printer,
};

/// Looks at everything; with `verify` also whether the machine is as the model has it. What cannot be read is counted and warned of.
pub fn snapshot(
    machine: &Machine,
    file: Option<&ModelFile>,
    verify: bool,
    printer: &mut Printer,
) -> Snapshot {
    snapshot_with(machine, &GuestsAndRuns::look(machine), file, verify, printer).snapshot
}

/// What was gathered, and when the counters were read that rates are made of.
#[derive(Clone, Debug)]
pub struct CountedSnapshot {
    /// What was gathered.
    pub snapshot: Snapshot,
    /// When those of functions were read.
    pub functions: Instant,
    /// When those of ports were read, by the NIC that they are of.
    pub ports: BTreeMap<(GuestName, NicName), Instant>,
}

/// The same of a machine whose guests and runs were looked at just now.
pub fn snapshot_with(
    machine: &Machine,
    seen: &GuestsAndRuns,
    file: Option<&ModelFile>,
    verify: bool,
    printer: &mut Printer,
) -> CountedSnapshot {
    let mut unread = UnreadAreas { counts: BTreeMap::new(), printer };
    let before = machine.before_a_look();
    let inventory = inventory(machine, file.is_some(), &mut unread);
    let nics = file.map(|file| nics(file, &inventory, &mut unread)).unwrap_or_default();
    let is_here = machine.root().is_system();
    let nobody = BTreeMap::new();
    let guests = match &seen.guests {
        Ok((guests, unseen)) => {
            unseen.iter().for_each(|why| unread.note(Area::Guests, why));
            guests
        }
        Err(error) => {
            unread.note(Area::Guests, format!("how guests are is not known: {}", chain(error)));
            &nobody
        }
    };
    let counted = Instant::now();
    let counters = read_counters(machine, &inventory, guests, &mut unread);
    let mut of_ports = BTreeMap::new();
    let snapshot = Snapshot {
        build: env!("CARGO_PKG_VERSION").to_owned(),
        functions: functions(&inventory, &nics, guests, counters),
        guests: BTreeMap::new(),
        ports: ports(machine, guests, &mut of_ports, &mut unread),
        runs: if is_here { runs(&seen.runs, &mut unread) } else { None },
        verification: file.filter(|_| verify).and_then(|file| {
            let seen = verdicts(machine, file, &inventory, &nics, unread.printer);
            verification(seen, &file.source, machine.was_changed(&before), &mut unread)
        }),
        scan_notes: inventory.unknown.len(),
        unread: BTreeMap::new(),
        took: 0.0,
    };
    let progress = if is_here { progress::read(&machine.progress_file()) } else { Found::Nothing };
    let snapshot = Snapshot {
        guests: guest_metrics(guests, &progress),
        unread: unread.counts,
        took: seen.began.elapsed().as_secs_f64(),
        runs: snapshot.runs.map(|runs| with_progress(runs, &progress)),
        ..snapshot
    };
    CountedSnapshot { snapshot, functions: counted, ports: of_ports }
}

/// What could not be read.
pub struct UnreadAreas<'a> {
    counts: BTreeMap<Area, u64>,
    printer: &'a mut Printer,
}

impl UnreadAreas<'_> {
    /// One thing, and why.
    pub fn note(&mut self, area: Area, why: impl Display) {
        *self.counts.entry(area).or_default() += 1;
        self.printer.warn(why.to_string());
    }
}

/// The machine's functions; for a model also what it is resolved by.
fn inventory(machine: &Machine, for_a_model: bool, unread: &mut UnreadAreas<'_>) -> Inventory {
    if !machine.root().is_system() {
        return penstock_host::scan::scan(machine.root(), None);
    }
    if !for_a_model {
        return penstock_host::scan::scan_system();
    }
    let (inventory, unseen) = machine.functions_as_seen();
    if let Some(error) = unseen {
        unread.note(Area::Guests, format!("which functions guests own is not known: {}", chain(&error)));
    }
    inventory
}

/// The PFs that the model's NICs are.
fn nics(file: &ModelFile, inventory: &Inventory, unread: &mut UnreadAreas<'_>) -> IndexMap<NicName, Bdf> {
    let (nics, lost) = penstock_plan::resolve_what_is_there(&file.model, inventory);
    for lost in &lost.0 {
        unread.note(Area::Model, format!("{}: {}", file.source.name, lost.message));
    }
    nics
}

/// The PFs with SR-IOV and their VFs that exist.
fn functions(
    inventory: &Inventory,
    nics: &IndexMap<NicName, Bdf>,
    guests: &BTreeMap<GuestName, GuestStatus>,
    mut counters: FunctionCounters,
) -> Vec<FunctionMetrics> {
    let names: BTreeMap<Bdf, &NicName> = nics.iter().map(|(name, pf)| (*pf, name)).collect();
    let there = guests.iter().filter(|(_, status)| status.pid.is_some());
    let owners: BTreeMap<Bdf, &GuestName> = there
        .flat_map(|(name, status)| status.functions.iter().map(move |owned| (owned.function, name)))
        .collect();
    let owner = |function: Bdf| owners.get(&function).map(|name| (*name).clone());
    let mut all = Vec::new();
    for pf in &inventory.pfs {
        let Some(sriov) = &pf.sriov else { continue };
        let identity = |bdf, vf: Option<VfIndex>| Identity {
            bdf,
            pf: pf.bdf,
            vf,
            function: names.get(&pf.bdf).map(|nic| FunctionName { nic: (*nic).clone(), vf }),
        };
        all.push(FunctionMetrics {
            identity: identity(pf.bdf, None),
            driver: pf.driver.clone(),
            guest: owner(pf.bdf),
            iommu_group: pf.iommu_group,
            interface: counters.interfaces.remove(&pf.bdf),
            counters: None,
            pf: Some(PfMetrics {
                vfs: sriov.num_vfs,
                vfs_max: sriov.total_vfs,
                counts_vfs: counters.counts_vfs.get(&pf.bdf).copied(),
            }),
        });
        for (vf, present) in present_vfs(pf) {
            all.push(FunctionMetrics {
                identity: identity(vf.bdf, Some(vf.index)),
                driver: present.driver.clone(),
                guest: owner(vf.bdf),
                iommu_group: present.iommu_group,
                interface: counters.interfaces.remove(&vf.bdf),
                counters: counters.vfs.remove(&(pf.bdf, vf.index)),
                pf: None,
            });
        }
    }
    all
}

/// The VFs of a PF that exist.
fn present_vfs(pf: &Pf) -> impl Iterator<Item = (&penstock_model::inventory::Vf, &PresentVf)> {
    let vfs = pf.sriov.iter().flat_map(|sriov| &sriov.vfs);
    vfs.filter_map(|vf| Some((vf, vf.present.as_ref()?)))
}

/// The guests that are defined, and those that something is waited for.
fn guest_metrics(
    guests: &BTreeMap<GuestName, GuestStatus>,
    progress: &Found,
) -> BTreeMap<GuestName, GuestMetrics> {
    let state = |status: &GuestStatus| match status.condition {
        Condition::Running => GuestState::Running,
        Condition::Suspended => GuestState::Suspended,
        Condition::Stopped => GuestState::Stopped,
        Condition::Died => GuestState::Died,
    };
    let of = |status: &GuestStatus| GuestMetrics {
        kind: Some(status.kind),
        state: state(status),
        since: status.since,
    };
    let mut all: BTreeMap<GuestName, GuestMetrics> =
        guests.iter().map(|(name, status)| (name.clone(), of(status))).collect();
    if let Found::Running(progress) = progress {
        for (name, _) in progress.guests.iter().filter(|(_, waits)| !waits.is_empty()) {
            let not_there = GuestMetrics { kind: None, state: GuestState::Waiting, since: None };
            all.entry(name.clone()).or_insert(not_there).state = GuestState::Waiting;
        }
    }
    all
}

/// The ports of the embedded switches of NICs that VMs own, and when they were `read`: a VM may keep whoever asks waiting.
fn ports(
    machine: &Machine,
    guests: &BTreeMap<GuestName, GuestStatus>,
    read: &mut BTreeMap<(GuestName, NicName), Instant>,
    unread: &mut UnreadAreas<'_>,
) -> Vec<PortMetrics> {
    let mut all = Vec::new();
    for (guest, status) in guests.iter().filter(|(_, status)| status.pid.is_some()) {
        let own = status::own_nics(machine, guest, status.kind).unwrap_or_else(|why| {
            unread.note(Area::SwitchPorts, why);
            Vec::new()
        });
        for own in own.iter().filter(|own| own.nic.path.has_switch() && !own.nic.is_of_container()) {
            let ports = machine.guests().vms().switch_ports(guest, &own.name);
            read.insert((guest.clone(), own.name.clone()), Instant::now());
            match ports {
                Ok(ports) => all.extend(ports.into_iter().map(|(name, port)| PortMetrics {
                    guest: guest.clone(),
                    nic: own.name.clone(),
                    port: name,
                    connected: port.connected,
                    up: port.up,
                    counters: port.counters,
                })),
                Err(why) => {
                    let text = format!("what went through {} of {guest} is not known: {why}", own.name);
                    unread.note(Area::SwitchPorts, text);
                }
            }
        }
    }
    all
}

fn runs(states: &Result<RunStates, StoreError>, unread: &mut UnreadAreas<'_>) -> Option<RunsMetrics> {
    let states = states.as_ref().map_err(|error| unread.note(Area::Runs, chain(error))).ok()?;
    let RunStates {
        open,
        half_way,
        cut_off: _,
        going: _,
        gone_on_from: _,
        lapsed,
        unreadable,
        damaged,
        last,
    } = states;
    // By the clock that the reader has now, however it was set since.
    let until = |left: i64| progress::now().saturating_add_signed(left);
    Some(RunsMetrics {
        open: open.len(),
        half_way: half_way.len(),
        lapsed: lapsed.len(),
        damaged: damaged.len() + unreadable.len(),
        confirm_until: states.to_confirm(boot::elapsed()).map(|left| seconds(until(left))),
        last: last.as_ref().map(run_metrics),
        in_progress: None,
    })
}

fn run_metrics(run: &KnownRun) -> RunMetrics {
    let purpose = match run.record.purpose {
        Purpose::Apply => "apply",
        Purpose::Stop => "stop",
        Purpose::Persist => "persist",
        Purpose::Undo(_) => "undo",
    };
    let outcome = match &run.outcome {
        Some(outcome) if outcome.error.is_none() => RunOutcome::Done,
        Some(_) => RunOutcome::Failed,
        None if run.is_running() => RunOutcome::Running,
        None => RunOutcome::CutOff,
    };
    RunMetrics {
        id: run.id().0,
        purpose: purpose.to_owned(),
        model: run.record.model.clone(),
        outcome,
        began: seconds(run.record.who.since),
        ended: run.outcome.as_ref().map(|outcome| seconds(outcome.ended)),
    }
}

fn with_progress(runs: RunsMetrics, progress: &Found) -> RunsMetrics {
    let in_progress = match progress {
        Found::Running(progress) => Some(ProgressMetrics { steps: progress.steps, done: progress.done }),
        Found::Nothing | Found::Died(_) => None,
    };
    RunsMetrics { in_progress, ..runs }
}

/// Whether the machine is as the model of `source` has it. Nothing is known of one that somebody changed meanwhile.
fn verification(
    seen: Result<Vec<Verdict>, Failure>,
    source: &Source,
    is_changed: bool,
    unread: &mut UnreadAreas<'_>,
) -> Option<VerificationMetrics> {
    let why = match seen {
        Ok(_) if is_changed => "somebody changed this machine meanwhile".to_owned(),
        Ok(verdicts) => return Some(VerificationMetrics::of(&verdicts, seconds(progress::now()))),
        Err(failure) => failure.in_one_line(),
    };
    unread.note(Area::Verification, format!("nothing was compared with {}: {why}", source.name));
    None
}

/// What is to be said of a machine for a model; no frame is sent, and nothing is waited for.
fn verdicts(
    machine: &Machine,
    file: &ModelFile,
    inventory: &Inventory,
    nics: &IndexMap<NicName, Bdf>,
    printer: &mut Printer,
) -> Result<Vec<Verdict>, Failure> {
    let run = machine.as_run(&file.model, inventory, nics, file.model.guests.keys(), &BTreeMap::new());
    let scope = Scope::whole(&run.model);
    let observer = &mut KernelObserver::new();
    let parts = attributes(&run.model, inventory, nics, &run.places, observer, &scope, Duration::ZERO);
    let mut verdicts: Vec<Verdict> = parts.into_iter().flat_map(|(_, verdicts)| verdicts).collect();
    run.without_unsettled(&mut verdicts);
    verdicts.extend(verify::beside(file, machine, inventory, nics, &run.left_to_incus(), printer)?);
    Ok(verdicts)
}

/// Milliseconds as seconds.
fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}
