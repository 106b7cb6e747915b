//! This machine: its inventory, what can be carried out on it, and the places inside it, put together from the parts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
};

use penstock_guests::{Builtin, Condition, Containers, GuestError, Guests, Status as GuestStatus};
use penstock_host::{
    Netlink, Place, Root, chain, files, interface_of, scan,
    scan::lifelines::{Started, lifelines, lifelines_here},
    tap, threads,
};
use penstock_model::{
    Bdf, Guest, GuestKind, GuestName, Inventory, Model, NicName, Verdict,
    inventory::tuning::{Tuning, VmThread},
};
use penstock_render::FoundFile;
use penstock_verify::{GuestObservation, GuestPlace, TenantSwitches, TenantTaps, placement, realtime};

use self::incus::Instances;
use crate::{
    failure::{Failure, Status},
    generated_files,
    settings::Settings,
};

mod capabilities;
pub mod incus;
mod lock;
mod others;
mod overrides;
pub mod run_states;
pub mod runs;

pub use lock::MachineLock;

/// A machine that Penstock runs on, or a recorded tree of one.
pub struct Machine {
    root: Root,
    state: PathBuf,
    journal: PathBuf,
    builtin: Builtin,
    peers: Vec<IpAddr>,
    /// Where the locks are that do not depend on `state`.
    changing: PathBuf,
}

/// The tree of a machine that somebody recorded (`--root`).
///
/// # Errors
///
/// [`Status::BadInput`]: it holds neither `proc` nor `sys`.
pub fn recorded(tree: &Path) -> Result<Root, Failure> {
    if ["proc", "sys"].iter().any(|name| files::exists(tree.join(name))) {
        return Ok(Root::recorded(tree));
    }
    let text = format!("{} holds neither proc nor sys: it is no recorded machine", tree.display());
    Err(Failure::new(Status::BadInput, text).hint("`penstock audit --record DIR` makes one there"))
}

impl Machine {
    /// The machine that Penstock runs on.
    pub fn here(settings: &Settings) -> Machine {
        Machine::at(Root::system(), settings)
    }

    /// The machine whose file systems are under `root`.
    pub fn at(root: Root, settings: &Settings) -> Machine {
        Machine {
            root,
            state: settings.state.clone(),
            journal: settings.journal.clone(),
            builtin: builtin(settings),
            peers: Vec::new(),
            changing: PathBuf::from(lock::CHANGING),
        }
    }

    /// The same, which also depends on the ways to these `peers`.
    #[must_use]
    pub fn reaching(self, peers: &[IpAddr]) -> Machine {
        Machine { peers: peers.to_vec(), ..self }
    }

    /// Where its file systems are.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Everything found on it, with the guests that are defined there.
    ///
    /// # Errors
    ///
    /// As [`Machine::functions`].
    pub fn inventory(&self) -> Result<Inventory, Failure> {
        self.inventory_reaching(&self.peers)
    }

    /// The same; the machine depends on the ways to these `peers` too.
    ///
    /// # Errors
    ///
    /// As [`Machine::functions`].
    pub fn inventory_reaching(&self, peers: &[IpAddr]) -> Result<Inventory, Failure> {
        if !self.root.is_system() {
            let mut inventory = penstock_host::scan::scan(&self.root, None);
            inventory.lifelines = Some(lifelines(&self.root, None, &Started::default()));
            inventory.boot = Some(scan::boot::facts(&self.root, &inventory));
            return Ok(inventory);
        }
        let mut inventory = self.functions()?;
        inventory.lifelines = Some(lifelines_here(&Started::here(peers.to_vec())));
        inventory.boot = Some(scan::boot::facts(&self.root, &inventory));
        Ok(inventory)
    }

    /// The inventory of the machine that Penstock runs on, but for what its life hangs on.
    ///
    /// # Errors
    ///
    /// When the guests that are defined cannot be seen.
    pub fn functions(&self) -> Result<Inventory, Failure> {
        match self.functions_as_seen() {
            (inventory, None) => Ok(inventory),
            (_, Some(unseen)) => Err(of_guests(unseen)),
        }
    }

    /// The same, however its guests are; why they could not be looked at, if so.
    pub fn functions_as_seen(&self) -> (Inventory, Option<GuestError>) {
        // In this order: the interfaces of a container that has just ended come back before the guests are told.
        let guests = self.guests().found();
        let mut inventory = penstock_host::scan::scan_system();
        let unseen = guests.map(|guests| inventory.guests = guests).err();
        self.find_lent_pfs(&mut inventory);
        self.find_own_overrides(&mut inventory);
        self.recall(&mut inventory);
        (inventory, unseen)
    }

    /// Its inventory with all that decides how late threads wake, where the model has a word of real time, and with the modes of the embedded
    /// switches that it names.
    ///
    /// # Errors
    ///
    /// As [`Machine::functions`].
    pub fn inventory_with_tuning(&self, model: &Model) -> Result<Inventory, Failure> {
        let mut inventory = self.inventory()?;
        if model.realtime.is_some() {
            let (tuning, unknown) = scan::tuning::tuning(&self.root, &inventory);
            inventory.tuning = Some(tuning);
            inventory.unknown.extend(unknown);
        }
        self.ask_eswitch_modes(model, &mut inventory);
        Ok(inventory)
    }

    /// The same, with the files that the model generates, as far as they are there. One that is there and cannot be
    /// taken back once it is overwritten is refused.
    ///
    /// # Errors
    ///
    /// As [`Machine::functions`], and `Status::Refused` when something that cannot be put back is where a file is to be made.
    pub fn inventory_for(&self, model: &Model) -> Result<Inventory, Failure> {
        let mut inventory = self.inventory_with_tuning(model)?;
        for path in penstock_render::paths(model) {
            match self.generated(&path) {
                FoundFile::Text(text) => drop(inventory.files.insert(path, text)),
                FoundFile::Missing => {}
                FoundFile::Other(why) | FoundFile::Unreadable(why) => {
                    let text =
                        format!("{path} is to be made for a guest, and something else is there: {why}");
                    return Err(Failure::new(Status::Refused, text)
                        .hint("move it away, or write another `to` in the model"));
                }
            }
        }
        Ok(inventory)
    }

    /// Asks for the modes of the embedded switches that the model has a mode for, and of no others: devlink may keep whoever asks waiting.
    pub fn ask_eswitch_modes(&self, model: &Model, inventory: &mut Inventory) {
        let mut named = model.nics.iter().filter(|(_, nic)| nic.eswitch.is_some()).peekable();
        if named.peek().is_none() {
            return;
        }
        let (found, _) = penstock_plan::resolve_what_is_there(model, inventory);
        let pfs: Vec<Bdf> = named.filter_map(|(name, _)| found.get(name).copied()).collect();
        penstock_host::eswitch::ask_modes(&self.root, inventory, pfs);
    }

    /// What is where a generated file should be.
    pub fn generated(&self, path: &str) -> FoundFile {
        generated_files::look(&self.root, path)
    }

    /// A PF that a guest owns has its interface in there, and with it the permanent address by which models know it, and what its driver keeps
    /// for its VFs.
    fn find_lent_pfs(&self, inventory: &mut Inventory) {
        let containers = self.containers();
        for (name, guest) in inventory.guests.iter().filter(|(_, guest)| guest.running) {
            let lent = inventory.pfs.iter_mut().filter(|pf| guest.functions.contains(&pf.bdf));
            let lent: Vec<_> = lent.filter(|pf| pf.interface.is_none()).collect();
            let Some(place) = containers.place(name).filter(|_| !lent.is_empty()) else {
                continue;
            };
            let interfaces = place.interfaces().unwrap_or_default();
            let namespace = place.namespace().ok().flatten();
            let mut netlink = namespace.and_then(|process| Netlink::in_namespace_of(process).ok());
            for pf in lent {
                let Some(found) = interface_of(pf.bdf, &interfaces, &self.root) else { continue };
                pf.permanent_mac = pf.permanent_mac.or(found.permanent_mac).or(Some(found.interface.mac));
                // What cannot be read stays unknown, which a plan says.
                let states = netlink.as_mut().and_then(|netlink| netlink.vfs(found.index).ok());
                if let (Some(states), Some(sriov)) = (states, &mut pf.sriov) {
                    sriov.give_attributes(states);
                }
            }
        }
    }

    /// The machine's guests that Penstock looks after.
    pub fn guests(&self) -> Guests {
        Guests::new(self.root.clone(), self.state.join("guests"), self.builtin.clone())
    }

    /// The machine's containers that Penstock looks after.
    fn containers(&self) -> Containers {
        Containers::new(self.root.clone(), self.state.join("guests"))
    }

    /// Where each of the model's guests can be looked into, also where Incus runs it.
    pub fn places(&self, model: &Model) -> BTreeMap<GuestName, GuestPlace> {
        let names = || model.guests.keys();
        self.places_with(names(), &self.incus(names(), &BTreeMap::new()))
    }

    fn places_with<'a>(
        &self,
        names: impl IntoIterator<Item = &'a GuestName>,
        instances: &Instances,
    ) -> BTreeMap<GuestName, GuestPlace> {
        let guests = self.guests();
        let status = guests.status();
        let place = |name: &GuestName| match (guests.place(name), &status) {
            (Ok(place), _) => GuestPlace::Running(place),
            (Err(_), Err(unseen)) => GuestPlace::Unseen(unseen.to_string()),
            (Err(why), Ok(status)) => match status.get(name) {
                Some(status) => closed(why, status),
                None => self.place_in_incus(name, instances),
            },
        };
        names.into_iter().map(|name| (name.clone(), place(name))).collect()
    }

    /// What the limits, pins, rates, devices and fences of the model's containers turn out to be.
    pub fn limits(&self, model: &Model) -> Vec<Verdict> {
        let containers = self.containers();
        let of = |(name, guest): (&GuestName, &Guest)| {
            let mut verdicts = containers.verdicts(name, guest);
            verdicts.extend(containers.fences(name, guest));
            verdicts
        };
        model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Container).flat_map(of).collect()
    }

    /// Where the model's VMs run and what their memory is made of, as the host shows it.
    pub fn placement(&self, model: &Model, inventory: &Inventory) -> Vec<Verdict> {
        if !model.guests.values().any(|guest| guest.kind == GuestKind::Vm) {
            return Vec::new();
        }
        let status = self.guests().status();
        let sight = |name: &GuestName| match &status {
            Err(unseen) => Err(unseen.to_string()),
            Ok(status) => match status.get(name).and_then(|status| status.pid) {
                None => Err("it does not run".to_owned()),
                Some(pid) => threads::vm_sight(&self.root, pid).map_err(|error| chain(&error)),
            },
        };
        let sights = model.guests.keys().map(|name| (name.clone(), sight(name))).collect();
        placement(model, &inventory.cpus.online, &sights)
    }

    /// What the embedded switches of the NICs tell that the model's guests own.
    pub fn tenant_switches(&self, model: &Model) -> TenantSwitches {
        let guests = self.guests();
        let ports = |(guest, found): (&GuestName, &Guest)| -> Vec<_> {
            let of = |nic: &NicName| ((guest.clone(), nic.clone()), guests.vms().switch_ports(guest, nic));
            found.nics.iter().filter(|(_, own)| own.path.has_switch()).map(|(nic, _)| of(nic)).collect()
        };
        model.guests.iter().flat_map(ports).collect()
    }

    /// The taps of the NICs that guests own, where the model has any; why they could not be listed, else.
    pub fn tenant_taps(&self, model: &Model) -> TenantTaps {
        let mut nics = model.guests.values().flat_map(|guest| guest.nics.values());
        if nics.all(|own| own.path.maps_memory()) {
            return Ok(BTreeMap::new());
        }
        tap::taps().map_err(|error| chain(&error))
    }

    /// What decides how late the model's guests wake, read anew.
    pub fn realtime(&self, model: &Model, inventory: &Inventory) -> Vec<Verdict> {
        if model.realtime.is_none() {
            return Vec::new();
        }
        let (tuning, _) = scan::tuning::tuning(&self.root, inventory);
        let status = self.guests().seen();
        let sight = |name: &GuestName| {
            let status = match &status {
                Err(unseen) => {
                    return GuestObservation { threads: Err(unseen.to_string()), functions: BTreeSet::new() };
                }
                Ok(status) => status.get(name),
            };
            let threads = match status.and_then(|status| Some((status.kind, status.pid?))) {
                None => Err("it does not run".to_owned()),
                Some((GuestKind::Vm, pid)) => vm_threads(&tuning, pid),
                Some((GuestKind::Container, pid)) => scan::tuning::container_threads(&self.root, pid)
                    .map_err(|why| format!("its threads could not be read: {why}")),
            };
            let functions =
                status.map(|status| status.functions.iter().map(|owned| owned.function).collect());
            GuestObservation { threads, functions: functions.unwrap_or_default() }
        };
        let sights = model.guests.keys().map(|name| (name.clone(), sight(name))).collect();
        let inventory = Inventory { tuning: Some(tuning.clone()), ..inventory.clone() };
        realtime(model, &inventory, &sights)
    }

    /// Where a run keeps how far it is.
    pub fn progress_file(&self) -> PathBuf {
        self.state.join("progress.json")
    }
}

/// The threads of the VM whose QEMU is this process, where all of them are known: one that could not be read may be on any CPU.
/// What other processes keep to themselves says nothing of this one.
fn vm_threads(tuning: &Tuning, pid: u32) -> Result<Vec<VmThread>, String> {
    let own = scan::tuning::of_vm(pid);
    let unread: Vec<&str> =
        tuning.unread.processes.iter().map(String::as_str).filter(|why| why.starts_with(&own)).collect();
    match tuning.vms.get(&pid) {
        Some(_) if !unread.is_empty() => {
            Err(format!("what it does is not wholly known: {}", unread.join(", ")))
        }
        Some(vm) => Ok(vm.threads.values().cloned().collect()),
        None => Err(format!("the threads of its QEMU (process {pid}) could not be read")),
    }
}

/// Why a guest cannot be looked into, told from how it is.
fn closed(why: String, status: &GuestStatus) -> GuestPlace {
    match status.condition {
        Condition::Running => GuestPlace::Closed(why),
        Condition::Suspended => GuestPlace::NotRunning("it is suspended".to_owned()),
        Condition::Stopped => GuestPlace::NotRunning("it was not started".to_owned()),
        Condition::Died if status.last_words.is_empty() => {
            GuestPlace::NotRunning("it died, and its console says nothing".to_owned())
        }
        Condition::Died => GuestPlace::NotRunning(format!(
            "it died; its console ends with: {}",
            status.last_words.join(" | ")
        )),
    }
}

/// Where the kernel and the initramfs of the builtin guest may be: on a board in its image; on a machine of the user's in
/// the board image that was made there.
fn builtin(settings: &Settings) -> Builtin {
    let made = penstock_board::Image::guest_directory(&penstock_board::Cache::at(&settings.cache));
    Builtin { directories: vec![PathBuf::from("/usr/lib/penstock/guest"), made] }
}

/// Guests that cannot be looked at: what is missing, and what to do.
fn of_guests(error: penstock_guests::GuestError) -> Failure {
    Failure::from(error)
}

#[cfg(test)]
mod tests {
    use penstock_model::inventory::tuning::VmProcess;

    use super::*;

    #[test]
    fn what_of_other_processes_could_not_be_read_is_no_doubt_of_a_vm() {
        let thread = VmThread { name: "CPU 0/KVM".into(), ..VmThread::default() };
        let vm = VmProcess { threads: [(8, thread.clone())].into(), ..VmProcess::default() };
        let mut tuning = Tuning { vms: [(7, vm)].into(), ..Tuning::default() };
        tuning.unread.processes =
            ["/proc/77/task/78/stat may not be read", "/proc/9/task: \"/proc/7/\""].map(str::to_owned).into();
        assert_eq!(vm_threads(&tuning, 7), Ok(vec![thread]));
        tuning.unread.processes.push("/proc/7/task/9/stat may not be read".to_owned());
        let why = "what it does is not wholly known: /proc/7/task/9/stat may not be read";
        assert_eq!(vm_threads(&tuning, 7), Err(why.to_owned()));
        assert!(vm_threads(&tuning, 77).is_err());
    }
}
