//! What a plan changes, gathered from its steps: each thing once, with its value before the first of them and after the last.

use std::collections::{BTreeMap, HashMap};

use indexmap::IndexMap;
use penstock_model::{
    Bdf, FunctionName, GuestName, Inventory, VfAttribute, VfIndex,
    inventory::{PresentVf, SwitchMode},
};

use super::definition;
use crate::{
    Action, ActionGroup, BootAction, Direction, DriveAction, FileAction, FunctionAction, GuestAction, Plan,
    RealTimeAction, Step,
    action::{Shares, named, resctrl_group, resources},
    names::Names,
};

/// What a reset is called among the values of a VF, which it is none of.
pub const RESET: &str = "reset";

/// What changes belong to. Their order is that in which they are shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// A PF with its VFs, of a NIC or of a drive.
    Pf(Bdf),
    /// A guest with its definition and its state.
    Guest(GuestName),
    /// The machine as a whole: what is tuned for real time.
    Machine,
    /// Files that the model generates.
    Files,
    /// What only the next start of the machine brings.
    Start,
}

/// One value, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What was there: `None` is nothing, an empty text is something that is not worth telling.
    pub before: Option<String>,
    /// What is there then; `None`: nothing.
    pub after: Option<String>,
    /// How many steps change it.
    pub steps: usize,
}

impl Change {
    /// Whether it ends as it began, after one step only: nothing that anybody could notice.
    fn is_none(&self) -> bool {
        self.before == self.after && (self.steps < 2 || self.before.is_none())
    }
}

/// What becomes of a VF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VfChange {
    /// Whether it is there before.
    pub before: bool,
    /// Whether it is there after.
    pub after: bool,
    /// What it was, for one that goes.
    pub was: String,
    /// Its values by the model's words for them.
    pub values: IndexMap<String, Change>,
}

/// The changes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Values of the group itself, by what they are called.
    pub own: IndexMap<String, Change>,
    /// The VFs of a NIC, by which time its VFs are made (0: those of the inventory) and their index.
    pub vfs: BTreeMap<(u32, VfIndex), VfChange>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.vfs.is_empty()
    }
}

/// All changes of `plan` by what they belong to: NICs as the model has them, then guests as they are started.
pub fn changes(plan: &Plan, inventory: &Inventory, names: &Names) -> IndexMap<Group, Changes> {
    let owned = inventory.guests.iter().map(|(guest, found)| (guest.clone(), found.functions.clone()));
    let mut gathering = Gathering {
        inventory,
        names,
        groups: IndexMap::new(),
        made: HashMap::new(),
        away: HashMap::new(),
        count: HashMap::new(),
        owned: owned.collect(),
    };
    for pf in plan.nics.values().chain(plan.drives.values()) {
        gathering.groups.entry(Group::Pf(*pf)).or_default();
    }
    gathering.count.extend(inventory.sriov().map(|(pf, sriov)| (pf, sriov.num_vfs)));
    plan.steps.iter().for_each(|step| gathering.take(step));
    let mut groups = gathering.groups;
    for changes in groups.values_mut() {
        changes.own.retain(|_, change| !change.is_none());
        for vf in changes.vfs.values_mut() {
            vf.values.retain(|_, change| !change.is_none());
        }
        changes.vfs.retain(|_, vf| vf.before != vf.after || !vf.values.is_empty());
    }
    groups.retain(|_, changes| !changes.is_empty());
    groups.sort_by_cached_key(|group, _| match group {
        Group::Pf(_) => 0,
        Group::Guest(_) => 1,
        Group::Machine => 2,
        Group::Files => 3,
        Group::Start => 4,
    });
    groups
}

struct Gathering<'a> {
    inventory: &'a Inventory,
    names: &'a Names,
    groups: IndexMap<Group, Changes>,
    /// How often the VFs of a PF have been made by now.
    made: HashMap<Bdf, u32>,
    /// Whether the host is without the interface of a function by now, as far as it is brought back.
    away: HashMap<Bdf, bool>,
    /// How many VFs a PF has by now.
    count: HashMap<Bdf, u16>,
    /// The functions of guests, as they are defined by now.
    owned: HashMap<GuestName, Vec<Bdf>>,
}

fn on(set: bool) -> String {
    if set { "on" } else { "off" }.to_owned()
}

impl Gathering<'_> {
    fn take(&mut self, step: &Step) {
        let inverse = step.inverse.as_ref();
        match &step.action {
            Action::Function(FunctionAction::LeaveAlone { manager, pf, functions }) => {
                let before = match inverse {
                    Some(Action::Function(FunctionAction::LeaveAlone { functions, .. })) => {
                        self.names.all(functions)
                    }
                    _ => String::new(),
                };
                let what = format!("left alone by {manager}");
                let after = self.names.all(functions);
                self.own(Group::Pf(*pf), &what, Some(before), Some(after));
            }
            Action::Function(FunctionAction::SetAutoprobe { pf, on: set }) => {
                self.own(Group::Pf(*pf), "driver autoprobe", Some(on(!set)), Some(on(*set)));
            }
            Action::Function(FunctionAction::SetVfCount { pf, count }) => self.vf_count(*pf, *count),
            Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute }) => {
                let (what, after) = attribute_words(attribute);
                let before = match inverse {
                    Some(Action::Function(FunctionAction::SetVfAttribute { attribute, .. })) => {
                        attribute_words(attribute).1
                    }
                    _ => "not reported".to_owned(),
                };
                self.vf(*pf, *vf, what, Some(before), Some(after));
            }
            Action::Function(FunctionAction::SetDriver { function, driver, .. }) => {
                let before = match inverse {
                    Some(Action::Function(FunctionAction::SetDriver { driver, .. })) => driver.clone(),
                    _ => None,
                };
                self.function(*function, "driver", before, driver.clone());
            }
            Action::Function(FunctionAction::SetMac { function, mac }) => {
                let before = match inverse {
                    Some(Action::Function(FunctionAction::SetMac { mac, .. })) => Some(mac.to_string()),
                    _ => None,
                };
                self.function(*function, "interface MAC", before, Some(mac.to_string()));
            }
            Action::Function(FunctionAction::Rename { function, to }) => {
                let before = match inverse {
                    Some(Action::Function(FunctionAction::Rename { to, .. })) => Some(to.to_string()),
                    _ => None,
                };
                self.function(*function, "interface", before, Some(to.to_string()));
            }
            Action::Function(FunctionAction::SetMtu { function, mtu }) => {
                let before = match inverse {
                    Some(Action::Function(FunctionAction::SetMtu { mtu, .. })) => Some(mtu.to_string()),
                    _ => Some("no usual one".to_owned()),
                };
                self.function(*function, "mtu", before, Some(mtu.to_string()));
            }
            Action::Function(FunctionAction::SetLink { function, direction }) => {
                let word = |direction: &Direction| match direction {
                    Direction::Up => "up".to_owned(),
                    Direction::Down => "down".to_owned(),
                };
                let before = match inverse {
                    Some(Action::Function(FunctionAction::SetLink { direction, .. })) => word(direction),
                    _ => String::new(),
                };
                self.function(*function, "link", Some(before), Some(word(direction)));
            }
            Action::Function(FunctionAction::AddAddress { function, address }) => {
                self.function(*function, &format!("address {address}"), None, Some(String::new()));
            }
            Action::Function(FunctionAction::RemoveAddress { function, address }) => {
                self.function(*function, &format!("address {address}"), Some(String::new()), None);
            }
            Action::Function(FunctionAction::RestoreInterface { function, setup }) => {
                let addresses = setup.addresses.iter().map(|address| format!("address {address}"));
                let routes = setup.routes.iter().map(|route| format!("route {route}"));
                let vlans = setup.vlans.iter().map(|vlan| format!("interface {} ({})", vlan.name, vlan.tag));
                let all = addresses.chain(routes).chain(vlans);
                // Where the interface is the host's, one comes before it goes, and another after it has come back.
                let away = self.away.entry(*function);
                let away = away.or_insert_with(|| self.inventory.interface(*function).is_none());
                let is_back = std::mem::replace(away, !*away);
                for what in all {
                    let there = Some(String::new());
                    let (before, after) = if is_back { (None, there) } else { (there, None) };
                    self.function(*function, &what, before, after);
                }
            }
            Action::Function(FunctionAction::SetSwitchMode { pf, mode }) => {
                let before = match inverse {
                    Some(Action::Function(FunctionAction::SetSwitchMode { mode, .. })) => loopback(*mode),
                    _ => "not reported".to_owned(),
                };
                self.own(Group::Pf(*pf), "loopback", Some(before), Some(loopback(*mode)));
            }
            Action::Function(FunctionAction::SetEswitchMode { pf, mode }) => {
                let before = match inverse {
                    Some(Action::Function(FunctionAction::SetEswitchMode { mode, .. })) => mode.to_string(),
                    _ => "not known".to_owned(),
                };
                self.own(Group::Pf(*pf), "eswitch", Some(before), Some(mode.to_string()));
            }
            Action::Function(FunctionAction::ResetFunction { function }) => {
                self.function(*function, RESET, None, Some(String::new()));
            }
            Action::Drive(action) => {
                let (drive, vf) = (action.drive(), action.vf());
                let was = inverse.and_then(DriveAction::of);
                match action {
                    DriveAction::SetVfResources { queues, interrupts, .. } => {
                        let before = match was {
                            Some(DriveAction::SetVfResources { queues, interrupts, .. }) => {
                                Some(resources(*queues, *interrupts))
                            }
                            _ => None,
                        };
                        self.vf(drive, vf, "has", before, Some(resources(*queues, *interrupts)));
                    }
                    DriveAction::SetVfOnline { online, with, .. } => {
                        let had = match was {
                            Some(DriveAction::SetVfOnline { with, .. }) => *with,
                            _ => None,
                        };
                        if let (Some(had), Some(with)) = (had, with)
                            && had != *with
                        {
                            self.vf(drive, vf, "has", Some(had.to_string()), Some(with.to_string()));
                        }
                        let line = |online: bool| if online { "on line" } else { "off line" }.to_owned();
                        self.vf(drive, vf, "controller", Some(line(!online)), Some(line(*online)));
                    }
                    DriveAction::AttachNamespace { namespace, attached, .. } => {
                        let there = |there: bool| there.then(String::new);
                        let what = format!("namespace {namespace}");
                        self.vf(drive, vf, &what, there(!attached), there(*attached));
                    }
                }
            }
            Action::Guest(GuestAction::DefineGuest(definition)) => {
                let known = self.inventory.guests.contains_key(&definition.guest).then(String::new);
                let after = definition::definition(definition, self.names);
                let owned = definition.host_functions().collect();
                self.owned.insert(definition.guest.clone(), owned);
                self.own(Group::Guest(definition.guest.clone()), "definition", known, Some(after));
            }
            Action::Guest(GuestAction::UndefineGuest { guest }) => {
                self.own(Group::Guest(guest.clone()), "definition", Some(String::new()), None);
                if let Some(change) = self.groups[&Group::Guest(guest.clone())].own.get("state").cloned() {
                    self.own(Group::Guest(guest.clone()), "state", change.before, None);
                }
            }
            Action::Guest(GuestAction::StartSwitch { guest, nic }) => {
                let what = format!("switch of {nic}");
                self.own(
                    Group::Guest(guest.clone()),
                    &what,
                    Some("stopped".to_owned()),
                    Some("running".to_owned()),
                );
            }
            Action::Guest(GuestAction::StopSwitch { guest, nic }) => {
                let what = format!("switch of {nic}");
                self.own(
                    Group::Guest(guest.clone()),
                    &what,
                    Some("running".to_owned()),
                    Some("stopped".to_owned()),
                );
            }
            Action::Guest(GuestAction::MakeTaps { guest, nic }) => {
                self.own(
                    Group::Guest(guest.clone()),
                    &format!("taps of {nic}"),
                    None,
                    Some("there".to_owned()),
                );
            }
            Action::Guest(GuestAction::RemoveTaps { guest, nic }) => {
                self.own(
                    Group::Guest(guest.clone()),
                    &format!("taps of {nic}"),
                    Some("there".to_owned()),
                    None,
                );
            }
            Action::Guest(GuestAction::SetPortAttribute { guest, nic, vf, attribute }) => {
                let (what, after) = attribute_words(attribute);
                let before = match inverse {
                    Some(Action::Guest(GuestAction::SetPortAttribute { attribute, .. })) => {
                        attribute_words(attribute).1
                    }
                    _ => "not reported".to_owned(),
                };
                let what = format!("{} {what}", FunctionName { nic: nic.clone(), vf: *vf });
                self.own(Group::Guest(guest.clone()), &what, Some(before), Some(after));
            }
            Action::Guest(GuestAction::StartGuest { guest }) => {
                self.state(guest, "running");
                self.moves(guest, true);
            }
            Action::Guest(GuestAction::ResumeGuest { guest }) => self.state(guest, "running"),
            Action::Guest(GuestAction::CreateGuest { guest })
            | Action::Guest(GuestAction::SuspendGuest { guest }) => self.state(guest, "suspended"),
            Action::Guest(GuestAction::StopGuest { guest }) => {
                self.state(guest, "stopped");
                self.moves(guest, false);
            }
            // They change nothing.
            Action::Function(FunctionAction::AwaitLink { .. })
            | Action::Guest(GuestAction::AwaitGuest { .. }) => {}
            Action::File(FileAction::WriteFile { path, text }) => {
                let after = lines(text);
                match inverse {
                    Some(Action::File(FileAction::WriteFile { text: before, .. })) => {
                        let before = lines(before);
                        let other = if before == after { ", other text" } else { "" };
                        self.own(Group::Files, path, Some(before), Some(after + other));
                    }
                    _ => self.own(Group::Files, path, None, Some(after)),
                }
            }
            Action::File(FileAction::RemoveFile { path }) => {
                self.own(Group::Files, path, Some(String::new()), None)
            }
            Action::Boot(BootAction::EnableUnit { unit, on }) => {
                let started = |on: bool| on.then(|| "started at boot".to_owned());
                self.own(Group::Start, unit, started(!on), started(*on));
            }
            Action::Boot(BootAction::SetBootArguments(boot)) => {
                let words = |words: &[String]| (!words.is_empty()).then(|| words.join(" "));
                self.own(Group::Start, "kernel command line", words(&boot.before), words(&boot.words));
            }
            Action::RealTime(RealTimeAction::Tune { knob, to, .. }) => {
                let before = match inverse {
                    Some(Action::RealTime(RealTimeAction::Tune { to, .. })) => to.to_string(),
                    _ => String::new(),
                };
                self.own(Group::Machine, &knob.to_string(), Some(before), Some(to.to_string()));
            }
            Action::RealTime(RealTimeAction::MakePartition { group, cpus }) => {
                let after = format!("isolated partition of {}", named(cpus));
                self.own(Group::Machine, &format!("control group {group}"), None, Some(after));
            }
            Action::RealTime(RealTimeAction::RemovePartition { group, cpus }) => {
                let before = format!("isolated partition of {}", named(cpus));
                self.own(Group::Machine, &format!("control group {group}"), Some(before), None);
            }
            Action::Guest(GuestAction::IsolateGuest { guest, cpus, on }) => {
                let known = self.inventory.guests.get(guest).map(|found| &found.isolated);
                let before = known.filter(|cpus| !cpus.0.is_empty()).map(named);
                self.own(Group::Guest(guest.clone()), "isolated", before, on.then(|| named(cpus)));
            }
            Action::Guest(GuestAction::ScheduleGuest { guest, scheduling }) => {
                let before = match inverse {
                    Some(Action::Guest(GuestAction::ScheduleGuest { scheduling, .. })) => {
                        scheduling.to_string()
                    }
                    _ => String::new(),
                };
                self.own(
                    Group::Guest(guest.clone()),
                    "scheduling",
                    Some(before),
                    Some(scheduling.to_string()),
                );
            }
            Action::RealTime(RealTimeAction::PlaceInterrupts { functions, cpus }) => {
                let group = step.guest.clone().map_or(Group::Machine, Group::Guest);
                let after = format!("of {} to {}", self.names.all(functions), named(cpus));
                self.own(group, "interrupts", Some(String::new()), Some(after));
            }
            Action::RealTime(RealTimeAction::MakeResctrlGroup { group, settings }) => {
                let after = format!("{} with {}", named(&settings.cpus), Shares(&settings.schemata));
                self.own(Group::Machine, &resctrl_group(group), None, Some(after));
            }
            Action::RealTime(RealTimeAction::RemoveResctrlGroup { group, settings }) => {
                let before = format!("{} with {}", named(&settings.cpus), Shares(&settings.schemata));
                self.own(Group::Machine, &resctrl_group(group), Some(before), None);
            }
            Action::RealTime(RealTimeAction::SetSchemata { group, schemata }) => {
                let before = match inverse {
                    Some(Action::RealTime(RealTimeAction::SetSchemata { schemata, .. })) => {
                        Shares(schemata).to_string()
                    }
                    _ => String::new(),
                };
                self.own(
                    Group::Machine,
                    &resctrl_group(group),
                    Some(before),
                    Some(Shares(schemata).to_string()),
                );
            }
        }
    }

    /// A value of a group itself.
    fn own(&mut self, group: Group, what: &str, before: Option<String>, after: Option<String>) {
        note(&mut self.groups.entry(group).or_default().own, what, before, after);
    }

    /// A value of a VF that is there by now. What is new has nothing before.
    fn vf(&mut self, pf: Bdf, index: VfIndex, what: &str, before: Option<String>, after: Option<String>) {
        let made = self.made.get(&pf).copied().unwrap_or(0);
        let changes = self.groups.entry(Group::Pf(pf)).or_default();
        let there = VfChange { before: made == 0, after: true, ..VfChange::default() };
        let vf = changes.vfs.entry((made, index)).or_insert(there);
        note(&mut vf.values, what, before.filter(|_| made == 0), after);
    }

    /// A value of a PF or a VF.
    fn function(&mut self, function: Bdf, what: &str, before: Option<String>, after: Option<String>) {
        match self.names.place(function) {
            Some((pf, index)) => self.vf(pf, index, what, before, after),
            None => self.own(Group::Pf(function), what, before, after),
        }
    }

    fn vf_count(&mut self, pf: Bdf, count: u16) {
        let before = self.count.insert(pf, count).unwrap_or(0);
        self.own(Group::Pf(pf), "VFs", Some(before.to_string()), Some(count.to_string()));
        let made = self.made.entry(pf).or_default();
        let (old, new) = (*made, *made + u32::from(count > 0));
        *made = new;
        let vfs = &mut self.groups.entry(Group::Pf(pf)).or_default().vfs;
        // Linux goes from one number to another only through none: all that are there go.
        for index in (0..before).filter_map(VfIndex::new) {
            let found = self.inventory.sriov().find(|(found, _)| *found == pf);
            let found = found.and_then(|(_, sriov)| sriov.vf(index));
            let was = found.and_then(|vf| vf.present.as_ref()).map(was).unwrap_or_default();
            let gone = VfChange { before: old == 0, after: false, was, values: IndexMap::new() };
            vfs.insert((old, index), gone);
        }
        for index in (0..count).filter_map(VfIndex::new) {
            vfs.insert((new, index), VfChange { after: true, ..VfChange::default() });
        }
    }

    /// The interfaces of a container's PFs go into it, or come back.
    fn moves(&mut self, guest: &GuestName, into: bool) {
        let pfs: Vec<Bdf> = self.owned.get(guest).into_iter().flatten().copied().collect();
        for pf in pfs.into_iter().filter(|function| self.names.place(*function).is_none()) {
            let (there, here) = (format!("in {guest}"), "on the host".to_owned());
            let (before, after) = if into { (here, there) } else { (there, here) };
            self.own(Group::Pf(pf), "interface is", Some(before), Some(after));
            // It is taken down on the way there: its link is the guest's from then on.
            if let Some(changes) = self.groups.get_mut(&Group::Pf(pf)).filter(|_| into) {
                changes.own.shift_remove("link");
            }
        }
    }

    fn state(&mut self, guest: &GuestName, after: &str) {
        let before = self.inventory.guests.get(guest).map(|found| match found {
            found if found.running && found.suspended => "suspended",
            found if found.running => "running",
            _ => "stopped",
        });
        self.own(Group::Guest(guest.clone()), "state", before.map(str::to_owned), Some(after.to_owned()));
    }
}

/// Notes that a value becomes `after`; what was before it is what the first note says.
fn note(values: &mut IndexMap<String, Change>, what: &str, before: Option<String>, after: Option<String>) {
    match values.get_mut(what) {
        Some(change) => {
            change.after = after;
            change.steps += 1;
        }
        None => drop(values.insert(what.to_owned(), Change { before, after, steps: 1 })),
    }
}

/// An attribute's word in the model, and its value.
fn attribute_words(attribute: &VfAttribute) -> (&'static str, String) {
    let text = match attribute {
        VfAttribute::Mac(mac) if mac.is_zero() => "none".to_owned(),
        VfAttribute::Vlan { id, .. } if id.get() == 0 => "none".to_owned(),
        VfAttribute::Vlan { id, qos, protocol } => {
            let mut text = id.to_string();
            if qos.get() != 0 {
                text.push_str(&format!(" qos {qos}"));
            }
            if *protocol != Default::default() {
                text.push_str(&format!(" {protocol}"));
            }
            text
        }
        VfAttribute::Rate { min, max } => match (min.0, max.0) {
            (0, 0) => "unlimited".to_owned(),
            (0, max) => format!("at most {max} Mbit/s"),
            (min, 0) => format!("at least {min} Mbit/s"),
            (min, max) => format!("{min} to {max} Mbit/s"),
        },
        other => other.values().into_iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(" "),
    };
    (attribute.kind().name(), text)
}

fn loopback(mode: SwitchMode) -> String {
    match mode {
        SwitchMode::Veb => "on (VEB)",
        SwitchMode::Vepa => "off (VEPA)",
        SwitchMode::Switchdev => "as the host's rules have it (switchdev)",
        SwitchMode::Unreported => "not reported",
    }
    .to_owned()
}

fn lines(text: &str) -> String {
    let count = text.lines().count();
    format!("{count} line{}", if count == 1 { "" } else { "s" })
}

/// What a VF is that goes, in few words.
fn was(present: &PresentVf) -> String {
    let driver = present.driver.as_deref();
    let mut parts: Vec<String> = Vec::new();
    match (&present.interface, driver) {
        (Some(interface), Some(driver)) => parts.push(format!("was {} ({driver})", interface.name)),
        (Some(interface), None) => parts.push(format!("was {}", interface.name)),
        (None, Some(driver)) => parts.push(format!("had {driver}")),
        (None, None) => {}
    }
    if let Some(state) = &present.attributes {
        if !state.mac.is_zero() {
            parts.push(format!("mac {}", state.mac));
        }
        if state.vlan.get() != 0 {
            parts.push(format!("vlan {}", state.vlan));
        }
    }
    parts.join(", ")
}
