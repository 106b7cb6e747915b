//! The steps of NVMe drives: how many VFs, and what the controller of each VF that a guest owns has.

mod controllers;
mod namespaces;
mod shares;

use std::collections::HashMap;

use indexmap::IndexMap;
use penstock_model::{
    Bdf, Diagnostics, Drive, DriveName, DriveVfName, Guest, GuestDrive, GuestName, Inventory, Model, Path,
    VfIndex,
    inventory::{NvmeController, PresentVf, Sriov, Vf},
    text::counted,
};

pub use self::controllers::controller_steps;
use crate::{
    FunctionAction,
    count::{self, WantedVfCount},
    draft::{Effect, StepSpec},
    drivers::VFIO,
    error::error,
    planner::{Planner, vf_name},
    resolve::augment,
};

/// The driver of a drive's PF, through which it is given commands.
pub const DRIVER: &str = "nvme";

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

    /// The driver that a VF has before the plan.
    pub fn driver(&self, vf: &WantedDriveVf<'a>) -> Option<&'a str> {
        self.present(vf)?.driver.as_deref()
    }

    /// Who has a VF that is left in being: a guest that runs, or who has it open through VFIO.
    pub fn taker(&self, planner: &Planner<'_>, vf: &WantedDriveVf<'_>) -> Option<String> {
        taker(planner, vf.found.bdf, self.remakes())
    }
}

/// What a plan does with a VF that a guest of the model owns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seat {
    /// Its controller is made what the model says.
    Changed,
    /// Its guest is not among those that the plan is for.
    Left,
    /// Somebody has it, and nothing is done to it.
    Taken,
}

/// Who has a VF of a drive; whoever has it open has it no more once it is made anew.
fn taker(planner: &Planner<'_>, vf: Bdf, remade: bool) -> Option<String> {
    if let Some(guest) = planner.user(vf) {
        return Some(format!("guest {guest}"));
    }
    let lifelines = planner.inventory.lifelines.as_ref().filter(|_| !remade)?;
    lifelines.holders.get(&vf).map(|holders| holders.join(", "))
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
pub fn drive_steps<'a>(planner: &mut Planner<'a>, drive: &WantedDrive<'a>) {
    if let Some(sriov) = &drive.found.sriov {
        let count = WantedVfCount {
            name: drive.name.as_str(),
            pf: drive.found.bdf,
            sriov,
            wanted: drive.drive.vfs,
            eswitch: None,
            before_drivers: "its controller is on line",
        };
        count::set(planner, count);
    }
    controller_steps(planner, drive, |_| true);
}

/// Takes a VF from a driver other than VFIO: its controller is not to change under one.
fn unbind(planner: &mut Planner<'_>, drive: &WantedDrive<'_>, vf: &WantedDriveVf<'_>) {
    let function = vf.found.bdf;
    let Some(other) = drive.driver(vf).filter(|driver| *driver != VFIO) else { return };
    if !planner.unbound.insert(function) {
        return;
    }
    let set = |driver: Option<String>| FunctionAction::SetDriver { function, driver, mac: None };
    let who = vf_name(drive.name, vf.index);
    planner.draft.push(StepSpec::new(
        set(None).into(),
        Some(set(Some(other.to_owned())).into()),
        vec![Effect::Vfs(drive.found.bdf), Effect::Controller(function), Effect::Driver(function)],
        Effect::Driver(function),
        format!("{} uses {who} through {VFIO}, not {other}", vf.guest),
    ));
}

/// Gives a VF to VFIO, for the VM that owns it.
pub fn bind<'a>(planner: &mut Planner<'a>, drive: &WantedDrive<'a>, vf: &WantedDriveVf<'a>) {
    let function = vf.found.bdf;
    if drive.driver(vf) == Some(VFIO) {
        return;
    }
    unbind(planner, drive, vf);
    let set = |driver: Option<String>| FunctionAction::SetDriver { function, driver, mac: None };
    planner.draft.push(StepSpec::new(
        set(Some(VFIO.to_owned())).into(),
        Some(set(None).into()),
        vec![Effect::Vfs(drive.found.bdf), Effect::Controller(function), Effect::Driver(function)],
        Effect::Driver(function),
        format!("{} gets {}", vf.guest, vf_name(drive.name, vf.index)),
    ));
}
