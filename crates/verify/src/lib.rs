//! Looks at everything that a model asks for, anew, and says what was seen.
//!
//! It uses nothing of `penstock-plan` and `penstock-apply`: not what they remember, and not their way of finding things. A mistake of
//! theirs must not hide itself.
//! A verdict is a pass only for what was seen; what could not be looked at is `unknown`, never left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use indexmap::IndexMap;
use penstock_host::{
    InterfaceReport, Place,
    frames::{Carried, Endpoint, NeighbourProbe, ProbeResult, ProbeTimeouts, Reach},
    pci::gives_interface,
};
use penstock_model::{
    Bdf, FunctionName, GuestName, Inventory, Model, NicName, Verdict, VfIndex,
    inventory::{SwitchMode, VfState},
};

mod dns;
pub mod drift;
mod drive;
mod eswitch;
mod expectation;
mod forgery;
mod free;
mod guest;
mod kernel;
mod lease;
mod neighbours;
mod nic;
mod observation;
mod placement;
mod planned_probes;
mod probes;
mod rate;
mod reach;
mod realtime;
mod sample;
mod scope;
mod silence;
mod taps;
mod tenant;
mod tenant_reach;
mod uplink;
mod writer;

pub use drive::drives;
pub use expectation::{Barrier, Expectation, Network};
pub use kernel::KernelObserver;
pub use placement::placement;
pub use probes::{ProbeEnd, ProbePath, ProbeResults, Remote};
pub use realtime::{GuestObservation, realtime};
pub use scope::{Scope, function_at};
pub use taps::TenantTaps;
pub use tenant::{TenantPorts, TenantSwitches, tenant_nics};

/// Where a guest can be looked into.
pub enum GuestPlace {
    /// It runs, and this is its inside.
    Running(Box<dyn Place>),
    /// It runs, and nobody can look inside, for this reason: the model says so, or its agent does not answer.
    Closed(String),
    /// It does not run, for this reason: it was not started, is suspended, or died with these last words.
    NotRunning(String),
    /// Whether it runs could not be found out, for this reason.
    Unseen(String),
}

/// What a PF's driver tells over netlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PfObservation {
    /// What it reports of its VFs; empty when it reports nothing of them.
    pub vfs: Vec<(VfIndex, VfState)>,
    /// The mode of the embedded switch; why it could not be asked for, else. That a driver has none is a mode of its own.
    pub switch_mode: Result<SwitchMode, String>,
}

/// A VF that no guest owns, or that is an uplink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeVf {
    /// The driver that it is bound to; `None` when it is bound to none.
    pub driver: Option<String>,
    /// The interfaces of it that are in our network namespace, as sysfs names them.
    pub interfaces: Vec<String>,
    /// Who has it, in words: by VFIO, by a network plugin's record, or because its interface is in another network namespace.
    pub taken_by: Option<String>,
    /// Why it is not known whether its interface is in another network namespace, where it is not on the host.
    pub unseen: Option<String>,
}

impl FreeVf {
    /// Whether its driver gives interfaces, and it has none that anybody was seen to have.
    fn lacks_interface(&self) -> bool {
        let gives = self.driver.as_deref().is_some_and(gives_interface);
        gives && self.interfaces.is_empty() && self.taken_by.is_none()
    }
}

/// What verification looks with, besides the inventory and the guests' places. Errors are reasons, in words.
pub trait Observer {
    /// The host's own interfaces.
    ///
    /// # Errors
    ///
    /// In words, why they cannot be listed; what depends on them is then unknown.
    fn interfaces(&mut self) -> Result<Vec<InterfaceReport>, String>;

    /// How many VFs a PF says that it has (`sriov_numvfs`), and those that it has, as `virtfnN` shows them: one read right after the other.
    ///
    /// # Errors
    ///
    /// In words, why sysfs does not tell; what depends on it is then unknown.
    fn virtual_functions(&mut self, pf: Bdf) -> Result<(u16, Vec<(VfIndex, Bdf)>), String>;

    /// VFs that no guest owns, all in one look; those that are left out were not looked at.
    ///
    /// # Errors
    ///
    /// In words, why one cannot be looked at; its attributes are then unknown.
    fn free_vfs(&mut self, vfs: &BTreeSet<Bdf>) -> BTreeMap<Bdf, Result<FreeVf, String>>;

    /// The PCI function that a device of another bus sits on: that of `virtio3`.
    fn function_of(&mut self, device: &str) -> Option<Bdf>;

    /// What the PF whose interface has this index in the namespace of this process (`None`: our own) tells.
    ///
    /// # Errors
    ///
    /// In words, why the kernel does not tell; the VFs' attributes are then unknown.
    fn pf(&mut self, namespace: Option<u32>, index: u32) -> Result<PfObservation, String>;

    /// Tries whether frames pass and questions are answered, as [`penstock_host::frames::reach_and_ask`] does.
    ///
    /// # Errors
    ///
    /// In words, why no frames can be sent or counted; reachability is then unknown.
    fn reach(
        &mut self,
        endpoints: &[Endpoint],
        pairs: &[(usize, usize)],
        planned_probes: &[NeighbourProbe],
        timeout: ProbeTimeouts,
    ) -> Result<(Vec<Reach>, Vec<ProbeResult>), String>;

    /// Tries whether frames pass between this kernel and others, and among those, and whether questions are answered that
    /// are asked from the end at [`NeighbourProbe::from`].
    fn reach_across(
        &mut self,
        probe_ends: &[ProbeEnd],
        probe_paths: &[ProbePath],
        planned_probes: &[NeighbourProbe],
        remotes: &[Remote<'_>],
        timeout: Duration,
    ) -> ProbeResults;

    /// Sends as much as an interface takes, and counts what arrives, as [`penstock_host::frames::load`] does.
    ///
    /// # Errors
    ///
    /// In words, why no frames can be sent or counted; the rate is then unknown.
    fn load(
        &mut self,
        from: &Endpoint,
        to: &Endpoint,
        mtu: u32,
        lasting: Duration,
    ) -> Result<Carried, String>;
}

/// How far verification goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How long a link may take to come up, and a frame to arrive.
    pub timeout: Duration,
    /// Whether each VF with a rate sends as fast as it can for a second, to see that the rate holds.
    pub load: bool,
}

/// Compares `model` with a machine.
///
/// `inventory` is a fresh scan, `nics` says which PF each NIC of the model is there, `places` where each guest can be
/// looked into; a guest that is missing there counts as unseen. `switches` are those of NICs that VMs own, as far as they tell. Of
/// what the model leaves open nothing is said.
pub fn verify(
    model: &Model,
    inventory: &Inventory,
    nics: &IndexMap<NicName, Bdf>,
    places: &BTreeMap<GuestName, GuestPlace>,
    switches: &TenantSwitches,
    observer: &mut dyn Observer,
    effort: Effort,
) -> Vec<Verdict> {
    let timeout = effort.timeout;
    let paths = paths(model);
    let reached = links(model, &paths);
    let owners = model.function_owners();
    let awaited = awaited(&reached, paths.parted(&owners), timeout);
    let whole = Scope::whole(model);
    let observation =
        observation::Observation::look(model, inventory, nics, places, observer, &whole, &awaited, timeout);

    let mut sheet = writer::VerdictSheet::default();
    for name in model.nics.keys() {
        nic::judge(&observation, name, &reached, &mut sheet);
        eswitch::judge(&observation, name, &mut sheet);
    }
    for name in model.guests.keys() {
        guest::judge(&observation, name, &reached, &mut sheet);
    }
    let trials = reach::judge(&observation, &paths, observer, timeout, &mut sheet);
    let mut network = Network::of(model);
    tenant::set_inside(switches, &mut network);
    tenant_reach::judge(&observation, &network, observer, timeout, &mut sheet);
    let mut neighbours = neighbours::Neighbours::new(&observation, &paths, &trials);
    forgery::judge(&observation, &mut neighbours, observer, timeout, &mut sheet);
    if effort.load {
        rate::judge(&observation, &mut neighbours, observer, &mut sheet);
    }
    sheet.verdicts
}

/// A part of a model that is judged as one, whatever becomes of the others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A NIC: its PF where that is the host's, and what the PF's driver keeps for the VFs.
    Nic(NicName),
    /// A guest: whether it runs, and its functions.
    Guest(GuestName),
    /// What is judged of the machine as a whole.
    Rest,
}

/// Compares the NICs and guests in `scope` with a machine as [`verify`] does, but for whether frames pass, loopback where only frames tell it,
/// and the mode of the embedded switch, for which devlink would have to be asked. Nothing is sent.
pub fn attributes(
    model: &Model,
    inventory: &Inventory,
    nics: &IndexMap<NicName, Bdf>,
    places: &BTreeMap<GuestName, GuestPlace>,
    observer: &mut dyn Observer,
    scope: &Scope,
    timeout: Duration,
) -> Vec<(Part, Vec<Verdict>)> {
    let paths = paths(model);
    let reached = links(model, &paths);
    let awaited = awaited(&reached, [], timeout);
    let observation =
        observation::Observation::look(model, inventory, nics, places, observer, scope, &awaited, timeout);
    let of_nics = model.nics.keys().filter(|name| scope.nics.contains(*name)).map(|name| {
        let mut sheet = writer::VerdictSheet::default();
        nic::judge(&observation, name, &reached, &mut sheet);
        if !reach::reported(&observation, name, &mut sheet) {
            reach::unread(&observation, name, &mut sheet);
        }
        (Part::Nic(name.clone()), sheet.verdicts)
    });
    let of_guests = model.guests.keys().filter(|name| scope.guests.contains(*name)).map(|name| {
        let mut sheet = writer::VerdictSheet::default();
        guest::judge(&observation, name, &reached, &mut sheet);
        (Part::Guest(name.clone()), sheet.verdicts)
    });
    of_nics.chain(of_guests).collect()
}

/// The functions that are to have a carrier.
fn links<'a>(model: &'a Model, paths: &'a reach::Paths) -> BTreeSet<&'a FunctionName> {
    let mut all = paths.reached();
    all.extend(model.uplink_vfs().map(|uplink| uplink.function));
    all
}

/// How long a link is waited for that only shows whether silence proves something: where no cable is, each look would take as long.
const LINK_OF_PROOF: Duration = Duration::from_secs(5);

/// How long each function may take to have a carrier: those of `reached` have the whole `timeout`.
fn awaited<'a>(
    reached: &BTreeSet<&'a FunctionName>,
    parted: impl IntoIterator<Item = &'a FunctionName>,
    timeout: Duration,
) -> BTreeMap<&'a FunctionName, Duration> {
    let parted = parted.into_iter().map(|function| (function, timeout.min(LINK_OF_PROOF)));
    parted.chain(reached.iter().map(|function| (*function, timeout))).collect()
}

/// The paths that are tried of a model.
fn paths(model: &Model) -> reach::Paths {
    reach::paths(&Network::of(model), &reach::functions(model))
}

#[cfg(test)]
mod tests;
