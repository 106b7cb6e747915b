//! The steps of NVMe drives: how many VFs, and what the controller of each VF that a guest owns has.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;
use penstock_model::{
    Bdf, Diagnostics, Drive, DriveName, DriveVfName, Guest, GuestDrive, GuestName, Inventory, Model, Path,
    VfIndex,
    inventory::{
        FlexibleResources, NvmeController, NvmeVirtualization, PresentVf, SecondaryController, Sriov, Vf,
    },
    text::counted,
};

use crate::{
    DriveAction, FunctionAction,
    action::{io_queues, resources},
    count::{self, WantedVfCount},
    definition::vcpus,
    draft::{Effect, StepSpec},
    drivers::VFIO,
    error::error,
    planner::{Planner, vf_name},
    resolve::augment,
};

/// The driver of a drive's PF, through which it is given commands.
const DRIVER: &str = "nvme";

/// A drive of the model on this machine.
pub struct WantedDrive<'a> {
    pub name: &'a DriveName,
    pub drive: &'a Drive,
    pub found: &'a NvmeController,
    /// Those that guests own.
    pub vfs: Vec<WantedDriveVf<'a>>,
}

/// A VF of a drive that a guest owns.
pub struct WantedDriveVf<'a> {
    pub index: VfIndex,
    pub found: &'a Vf,
    pub guest: &'a GuestName,
    pub wanted: &'a GuestDrive,
}

impl<'a> WantedDrive<'a> {
    /// Whether the number of VFs changes, so that all of them are new.
    pub fn remakes(&self) -> bool {
        self.found.sriov.as_ref().is_some_and(|sriov| sriov.num_vfs != self.drive.vfs)
    }

    /// What is known of a VF that is left in being; `None` when it is made anew.
    pub fn present(&self, vf: &WantedDriveVf<'a>) -> Option<&'a PresentVf> {
        vf.found.present.as_ref().filter(|_| !self.remakes())
    }

    /// What the controller of a VF has once the VFs are those that are wanted: one that goes off line loses all.
    fn had(&self, controller: &SecondaryController) -> Share {
        match self.remakes() {
            true => Share { queues: 0, interrupts: 0 },
            false => Share { queues: controller.queues, interrupts: controller.interrupts },
        }
    }

    /// The driver that a VF has before the plan.
    pub fn driver(&self, vf: &WantedDriveVf<'a>) -> Option<&'a str> {
        self.present(vf)?.driver.as_deref()
    }
}

/// Finds the controller of each drive: first of those that name a serial number, a slot or a PCI address, then of the rest, in the file's
/// order and that of PCI addresses.
///
/// What is wrong with the others is beside: a drive that matches nothing, or several; two that match one; one without room for the VFs.
/// Paths are `drives.NAME.match` and `drives.NAME.vfs`.
pub fn resolve_drives(model: &Model, inventory: &Inventory) -> (IndexMap<DriveName, Bdf>, Diagnostics) {
    let mut messages = Vec::new();
    let mut taken: HashMap<Bdf, &DriveName> = HashMap::new();
    let (exact, open): (Vec<_>, Vec<_>) =
        model.drives.iter().partition(|(_, drive)| drive.matching.is_exact());
    for (name, drive) in exact {
        let found: Vec<&NvmeController> =
            inventory.nvme.iter().filter(|found| drive.matching.holds_for(found)).collect();
        let words = drive.matching.words().join(" and ");
        let [found] = found[..] else {
            let what = match found.len() {
                0 => format!("no NVMe drive of this machine has {words}"),
                several => format!("{several} NVMe drives have {words}: {}", listed(found.iter().copied())),
            };
            messages.push(error(at(name, "match"), what, Some(drives_here(inventory))));
            continue;
        };
        if let Some(other) = taken.insert(found.bdf, name) {
            messages.push(error(
                at(name, "match"),
                format!("{name} and {other} both match {}", describe(found)),
                Some("a drive's PF is one drive: match another one, or make it one drive".to_owned()),
            ));
        }
        if drive.vfs > room(found) {
            messages.push(error(at(name, "vfs"), too_few(name, drive.vfs, found), None));
        }
    }
    let candidates: Vec<Vec<Bdf>> = open
        .iter()
        .map(|(_, drive)| {
            let fits = |found: &&NvmeController| {
                !taken.contains_key(&found.bdf) && drive.matching.holds_for(found) && room(found) >= drive.vfs
            };
            // One without SR-IOV is somebody's ordinary drive: the last to be taken.
            let mut all: Vec<&NvmeController> = inventory.nvme.iter().filter(fits).collect();
            all.sort_by_key(|found| (found.sriov.is_none(), found.bdf));
            all.into_iter().map(|found| found.bdf).collect()
        })
        .collect();
    let mut chosen: HashMap<Bdf, usize> = HashMap::new();
    for (index, (name, drive)) in open.iter().enumerate() {
        if !augment(index, &candidates, &mut chosen, &mut Vec::new()) {
            let with = match drive.matching.words()[..] {
                [] => String::new(),
                ref words => format!(" with {}", words.join(" and ")),
            };
            messages.push(error(
                at(name, "match"),
                format!(
                    "no NVMe drive{with} with room for {} is left for {name}",
                    counted(usize::from(drive.vfs), "VF")
                ),
                Some(drives_here(inventory)),
            ));
        }
    }
    taken.extend(chosen.into_iter().map(|(bdf, index)| (bdf, open[index].0)));
    let by_name: HashMap<&DriveName, Bdf> = taken.into_iter().map(|(bdf, name)| (name, bdf)).collect();
    let found = model.drives.keys().filter_map(|name| Some((name.clone(), *by_name.get(name)?))).collect();
    (found, Diagnostics(messages))
}

fn at(drive: &DriveName, key: &str) -> Path {
    Path::of(["drives", drive.as_str(), key])
}

fn room(found: &NvmeController) -> u16 {
    found.sriov.as_ref().map_or(0, Sriov::room)
}

fn too_few(name: &DriveName, vfs: u16, found: &NvmeController) -> String {
    let vfs = counted(usize::from(vfs), "VF");
    match room(found) {
        0 => format!("{name} is to have {vfs}, but {} has no SR-IOV", describe(found)),
        most => format!("{name} is to have {vfs}, but {} has at most {most}", describe(found)),
    }
}

fn describe(found: &NvmeController) -> String {
    let known = |text: &Option<String>| text.as_deref().map_or("unknown", str::trim).to_owned();
    format!("{} (model {}, serial number {})", found.bdf, known(&found.model), known(&found.serial))
}

fn listed<'a>(all: impl Iterator<Item = &'a NvmeController>) -> String {
    all.map(describe).collect::<Vec<_>>().join(", ")
}

fn drives_here(inventory: &Inventory) -> String {
    match inventory.nvme.is_empty() {
        true => "this machine has no NVMe drive on its PCI bus; `penstock scan` lists what it has".to_owned(),
        false => format!("the NVMe drives here: {}", listed(inventory.nvme.iter())),
    }
}

/// The model's drives where they are, in the model's order.
pub fn wanted<'a>(
    model: &'a Model,
    inventory: &'a Inventory,
    resolved: &IndexMap<DriveName, Bdf>,
) -> Vec<WantedDrive<'a>> {
    let joined = model.drives.iter().filter_map(|(name, drive)| {
        let found = inventory.drive(*resolved.get(name)?)?;
        let seats = found.sriov.iter().flat_map(|sriov| &sriov.vfs).take(usize::from(drive.vfs));
        let vfs = seats.filter_map(|seat| {
            let vf = DriveVfName { drive: name.clone(), vf: seat.index };
            let (guest, wanted) = model.drive_owner(&vf)?;
            Some(WantedDriveVf { index: seat.index, found: seat, guest, wanted })
        });
        Some(WantedDrive { name, drive, found, vfs: vfs.collect() })
    });
    joined.collect()
}

/// The VFs of drives that a guest owns, in the model's order.
pub fn owned<'n, 'a>(
    drives: &'n [WantedDrive<'a>],
    guest: &Guest,
) -> Vec<(&'n WantedDrive<'a>, &'n WantedDriveVf<'a>)> {
    let find = |owned: &GuestDrive| {
        let drive = drives.iter().find(|drive| *drive.name == owned.name.drive)?;
        Some((drive, drive.vfs.iter().find(|vf| vf.index == owned.name.vf)?))
    };
    guest.drives.iter().filter_map(find).collect()
}

/// All steps of a drive but those of its guests.
pub fn drive_steps(planner: &mut Planner<'_>, drive: &WantedDrive<'_>) {
    if let Some(sriov) = &drive.found.sriov {
        let count = WantedVfCount {
            name: drive.name.as_str(),
            pf: drive.found.bdf,
            sriov,
            wanted: drive.drive.vfs,
            before_drivers: "its controller is on line",
        };
        count::set(planner, count);
    }
    controller_steps(planner, drive, |_| true);
}

/// The steps of the controllers of those VFs whose guests `chosen` picks.
pub fn controller_steps(
    planner: &mut Planner<'_>,
    drive: &WantedDrive<'_>,
    chosen: impl Fn(&GuestName) -> bool,
) {
    if drive.vfs.is_empty() {
        return;
    }
    let (name, bdf) = (drive.name, drive.found.bdf);
    if drive.found.driver.as_deref() != Some(DRIVER) {
        let driver = drive.found.driver.as_deref().unwrap_or("none");
        planner.lack(
            format!(
                "{name} ({bdf}) has the driver {driver}, and its VFs get what they need through {DRIVER}"
            ),
            format!("bind {DRIVER} to it: echo {bdf} > /sys/bus/pci/drivers/{DRIVER}/bind"),
        );
        return;
    }
    let Some(virtualization) = &drive.found.virtualization else {
        planner.refuse(
            format!("what {name} ({bdf}) has for its VFs is not known: the drive was not asked"),
            "plan as root, who alone may ask it; `penstock scan` says why it was not".to_owned(),
        );
        return;
    };
    let Some(shares) = shares(planner, drive, virtualization) else { return };
    let namespaces = Namespaces { drive, virtualization };
    for (vf, share) in drive.vfs.iter().zip(shares).filter(|(vf, _)| chosen(vf.guest)) {
        let who = vf_name(name, vf.index);
        let Some(before) = virtualization.of_vf(vf.index) else {
            planner.lack(
                format!("{name} ({bdf}) does not say that its VF {} has a controller", vf.index),
                "give the guest another VF; `penstock scan` lists those that have one".to_owned(),
            );
            continue;
        };
        let changes = namespaces.changes(planner, vf, before);
        one(planner, drive, vf, &who, before, share, &changes);
    }
}

/// What the controller of a VF is to have.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Share {
    queues: u16,
    interrupts: u16,
}

/// What each VF that a guest owns gets of the drive's queues and interrupts; `None` where there is not enough, which is said.
fn shares(
    planner: &mut Planner<'_>,
    drive: &WantedDrive<'_>,
    virtualization: &NvmeVirtualization,
) -> Option<Vec<Share>> {
    let (queues, interrupts) = (virtualization.queues, virtualization.interrupts);
    let owned = u32::try_from(drive.vfs.len()).unwrap_or(u32::MAX);
    let is_owned = |index: VfIndex| drive.vfs.iter().any(|vf| vf.index == index);
    let others = virtualization.secondary.iter().filter(|other| !is_owned(other.vf));
    let (held, held_interrupts) = others.fold((0, 0), |(queues, interrupts), other| {
        (queues + u32::from(other.queues), interrupts + u32::from(other.interrupts))
    });
    let (free, free_interrupts) = (free(queues, held), free(interrupts, held_interrupts));
    let equal = |free: u32, of: FlexibleResources| {
        u16::try_from(free / owned.max(1)).unwrap_or(u16::MAX).min(of.most)
    };
    let mut all = Vec::new();
    for vf in &drive.vfs {
        // What it has is left, as far as the model says nothing else.
        let had = virtualization.of_vf(vf.index).map(|had| drive.had(had));
        let suffices = |had: &Share| {
            let queues =
                vf.wanted.queues.map_or(had.queues >= 2, |wanted| had.queues == wanted.saturating_add(1));
            queues && had.interrupts >= 1
        };
        if let Some(had) = had.filter(suffices) {
            all.push(had);
            continue;
        }
        let cpus = planner.model.guests.get(vf.guest).map_or(1, vcpus);
        let cpus = u16::try_from(cpus).unwrap_or(u16::MAX);
        let equally = || equal(free, queues).saturating_sub(1).clamp(1, cpus.max(1));
        let pairs = vf.wanted.queues.unwrap_or_else(equally);
        let queues_of_vf = pairs.saturating_add(1);
        let share =
            Share { queues: queues_of_vf, interrupts: equal(free_interrupts, interrupts).min(queues_of_vf) };
        let who = vf_name(drive.name, vf.index);
        if share.queues > queues.most {
            planner.lack(
                format!(
                    "{who} is to have {}, and {} gives a VF at most {}",
                    io_queues(pairs),
                    drive.name,
                    queues.most.saturating_sub(1)
                ),
                "lower `queues`".to_owned(),
            );
            return None;
        }
        if share.interrupts < share.queues {
            planner.note(format!(
                "{who} has {} for its {} and those for administration, which share",
                counted(usize::from(share.interrupts), "interrupt"),
                io_queues(pairs)
            ));
        }
        all.push(share);
    }
    let sums = [
        ("pairs of queues", all.iter().map(|share| u32::from(share.queues)).sum::<u32>(), free),
        ("interrupts", all.iter().map(|share| u32::from(share.interrupts).max(1)).sum(), free_interrupts),
    ];
    for (what, sum, free) in sums {
        if sum > free {
            planner.lack(
                format!(
                    "the VFs of {} that guests own need {sum} {what}, counted with those for administration, and the drive has {free} for them",
                    drive.name,
                ),
                "lower `queues`, or give fewer VFs to guests; `penstock scan` says what its PF and other VFs hold".to_owned(),
            );
            return None;
        }
    }
    Some(all)
}

/// What the VFs of guests may have together, when other VFs hold so much.
fn free(of: FlexibleResources, held: u32) -> u32 {
    of.total.saturating_sub(u32::from(of.held_by_pf)).saturating_sub(held)
}

/// Namespaces to attach to a VF's controller (`true`) or to detach from it.
type NamespaceChanges = Vec<(u32, bool)>;

struct Namespaces<'a> {
    drive: &'a WantedDrive<'a>,
    virtualization: &'a NvmeVirtualization,
}

impl Namespaces<'_> {
    /// What is to change for a VF. What stands against its namespaces is said.
    fn changes(
        &self,
        planner: &mut Planner<'_>,
        vf: &WantedDriveVf<'_>,
        before: &SecondaryController,
    ) -> NamespaceChanges {
        let name = self.drive.name;
        let who = vf_name(name, vf.index);
        let attached = |namespace: u32| {
            let found = self.virtualization.namespaces.get(&namespace);
            found.is_some_and(|found| found.controllers.contains(&before.controller))
        };
        let all = self.virtualization.namespaces.keys().copied();
        let has: Vec<u32> = all.filter(|namespace| attached(*namespace)).collect();
        let wanted = &vf.wanted.namespaces;
        for namespace in wanted.iter().filter(|wanted| !self.virtualization.namespaces.contains_key(wanted)) {
            let there: Vec<String> = self.virtualization.namespaces.keys().map(u32::to_string).collect();
            planner.lack(
                format!("{who} is to have namespace {namespace} of {name}, which does not exist"),
                match there.is_empty() {
                    true => "make it first: nvme create-ns; Penstock makes and deletes none".to_owned(),
                    false => format!(
                        "there are {}; nvme create-ns makes more: Penstock makes and deletes none",
                        there.join(", ")
                    ),
                },
            );
        }
        let gets: Vec<u32> = if wanted.is_empty() { has.clone() } else { wanted.iter().copied().collect() };
        for namespace in gets {
            self.check(planner, vf, &who, namespace, before);
        }
        if wanted.is_empty() {
            match has[..] {
                [] => planner.note(format!(
                    "{who} has no namespace, and {} sees no disk behind it: `namespaces` gives it some",
                    vf.guest
                )),
                _ => planner.note(format!("{who} has what is attached to it: {}", namespaces(&has))),
            }
            return Vec::new();
        }
        let missing =
            wanted.iter().copied().filter(|wanted| !has.contains(wanted)).map(|namespace| (namespace, true));
        let other =
            has.iter().copied().filter(|has| !wanted.contains(has)).map(|namespace| (namespace, false));
        let changes: NamespaceChanges = other.chain(missing).collect();
        if !changes.is_empty() && !self.virtualization.attaches_namespaces {
            planner.lack(
                format!("{name} cannot attach namespaces to a controller or detach them, which {who} needs"),
                format!(
                    "leave `namespaces` out: {who} then has {}",
                    if has.is_empty() { "none".to_owned() } else { namespaces(&has) }
                ),
            );
            return Vec::new();
        }
        changes
    }

    /// Refuses a namespace that somebody else writes to.
    fn check(
        &self,
        planner: &mut Planner<'_>,
        vf: &WantedDriveVf<'_>,
        who: &str,
        namespace: u32,
        own: &SecondaryController,
    ) {
        let Some(found) = self.virtualization.namespaces.get(&namespace) else { return };
        let name = self.drive.name;
        let device = found.device.as_deref().map(|device| format!(" ({device})")).unwrap_or_default();
        if let Some(used) = &found.used {
            planner.refuse(
                format!(
                    "{who} would give namespace {namespace} of {name}{device} to {}, and this host uses it: {used}. Two who write to one disk destroy its data",
                    vf.guest
                ),
                "give the guest a namespace that nothing uses, by `namespaces`".to_owned(),
            );
        } else if device.len() > 1 && found.controllers.contains(&self.virtualization.controller) {
            planner.note(format!(
                "this host sees namespace {namespace} of {name}{device} as well, which {} gets: whoever mounts it here destroys the guest's data",
                vf.guest
            ));
        }
        let others = self.drive.vfs.iter().filter(|other| other.index != vf.index);
        for other in others {
            let Some(controller) = self.virtualization.of_vf(other.index) else { continue };
            // One that says which it has is freed of all others; of those of one VF the model has seen to it itself.
            let keeps =
                other.wanted.namespaces.is_empty() && found.controllers.contains(&controller.controller);
            if keeps && other.index < vf.index {
                planner.refuse(
                    format!(
                        "namespace {namespace} of {name} is attached to {} and to {who}: {} and {} would destroy each other's data",
                        vf_name(name, other.index),
                        other.guest,
                        vf.guest
                    ),
                    "say which each of them has, by `namespaces`".to_owned(),
                );
            }
        }
        let elsewhere: HashSet<u16> =
            found.controllers.iter().copied().filter(|controller| *controller != own.controller).collect();
        if !found.shared && !elsewhere.is_empty() && !found.controllers.contains(&own.controller) {
            let controllers: Vec<String> = elsewhere.iter().map(u16::to_string).collect();
            planner.refuse(
                format!(
                    "namespace {namespace} of {name} is private, and attached to the controller {}: {who} cannot have it too",
                    controllers.join(", ")
                ),
                format!("detach it there first, when nothing uses it: nvme detach-ns /dev/{} -n {namespace} -c {}", self.drive.found.name.as_deref().unwrap_or("nvmeN"), controllers.join(",")),
            );
        }
    }
}

/// `namespace 2`, `namespaces 2, 3`.
fn namespaces(all: &[u32]) -> String {
    let texts: Vec<String> = all.iter().map(u32::to_string).collect();
    format!("{} {}", if all.len() == 1 { "namespace" } else { "namespaces" }, texts.join(", "))
}

/// The steps of one controller.
fn one(
    planner: &mut Planner<'_>,
    drive: &WantedDrive<'_>,
    vf: &WantedDriveVf<'_>,
    who: &str,
    before: &SecondaryController,
    share: Share,
    changes: &[(u32, bool)],
) {
    let (bdf, index, guest) = (drive.found.bdf, vf.index, vf.guest);
    let had = drive.had(before);
    // A VF that goes takes its controller off line.
    let online = before.online && !drive.remakes();
    if let Some(user) = planner.user(vf.found.bdf) {
        if !online || had != share || !changes.is_empty() {
            planner.note(format!(
                "{who} is left as it is while guest {user} runs with it; it has {}",
                resources(had.queues, had.interrupts)
            ));
        }
        return;
    }
    let mut push = |action: DriveAction, inverse: DriveAction, why: String| {
        planner.draft.push(StepSpec::new(
            action.into(),
            Some(inverse.into()),
            // One after the other: it is off line while it gets something, and on line at last.
            vec![Effect::Vfs(bdf), Effect::Controller(vf.found.bdf)],
            Effect::Controller(vf.found.bdf),
            why,
        ));
    };
    let line = |online: bool| DriveAction::SetVfOnline { drive: bdf, vf: index, online };
    let changed = had != share;
    if online && changed {
        push(line(false), line(true), format!("{who} gets other queues, which it can only off line"));
    }
    if changed {
        let give = |share: Share| DriveAction::SetVfResources {
            drive: bdf,
            vf: index,
            queues: share.queues,
            interrupts: share.interrupts,
        };
        push(give(share), give(had), format!("{who} belongs to {guest}"));
    }
    for (namespace, attached) in changes {
        let set = |attached: bool| DriveAction::AttachNamespace {
            drive: bdf,
            vf: index,
            namespace: *namespace,
            attached,
        };
        let why = match attached {
            true => format!("{guest} is to have namespace {namespace} behind {who}"),
            false => format!("{who} is to have no namespaces but {guest}'s"),
        };
        push(set(*attached), set(!attached), why);
    }
    if !online || changed {
        push(line(true), line(false), format!("{who} answers no driver before"));
    }
}

/// Gives a VF to VFIO, for the VM that owns it.
pub fn bind<'a>(planner: &mut Planner<'_>, drive: &WantedDrive<'a>, vf: &WantedDriveVf<'a>) {
    let function = vf.found.bdf;
    let driver = drive.driver(vf).map(str::to_owned);
    if driver.as_deref() == Some(VFIO) {
        return;
    }
    let who = vf_name(drive.name, vf.index);
    let set = |driver: Option<String>| FunctionAction::SetDriver { function, driver, mac: None };
    let needs = || vec![Effect::Vfs(drive.found.bdf), Effect::Controller(function), Effect::Driver(function)];
    if let Some(other) = driver {
        let why = format!("{} uses {who} through {VFIO}, not {other}", vf.guest);
        planner.draft.push(StepSpec::new(
            set(None).into(),
            Some(set(Some(other)).into()),
            needs(),
            Effect::Driver(function),
            why,
        ));
    }
    planner.draft.push(StepSpec::new(
        set(Some(VFIO.to_owned())).into(),
        Some(set(None).into()),
        needs(),
        Effect::Driver(function),
        format!("{} gets {who}", vf.guest),
    ));
}
