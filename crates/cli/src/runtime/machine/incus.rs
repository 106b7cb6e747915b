//! Guests of the model that Incus runs in Penstock's place: they are looked into, and their VFs are those that Incus chose.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use penstock_guests::incus::{self, ChosenVf, Instance, Listing};
use penstock_host::{chain, running::Running};
use penstock_model::{
    Bdf, FunctionName, FunctionOwners, GuestKind, GuestName, Inventory, Model, NicName, Outcome, Verdict,
    inventory::Pf, verdict::Subject,
};
use penstock_verify::GuestPlace;

use super::Machine;

/// Which of some guests Incus runs.
#[derive(Debug, Default)]
pub struct Instances {
    /// Those that it runs.
    pub running: BTreeMap<GuestName, Instance>,
    /// Of which it does not say so, if of any.
    pub unseen: Option<IncusUnseen>,
}

/// That Incus did not say whether it runs some guests.
#[derive(Clone, Debug)]
pub struct IncusUnseen {
    /// Why.
    pub why: String,
    /// The guests that it may run: Penstock has not defined them, and Incus keeps something of them.
    pub may_run: BTreeSet<GuestName>,
}

/// A model as it is carried out on a machine by whoever runs its guests.
pub struct ModelAsRun {
    /// It, with the VFs that Incus chose.
    pub model: Model,
    /// Where guests can be looked into. What Incus does not say is in there.
    pub places: BTreeMap<GuestName, GuestPlace>,
    /// Its guests that Incus runs, with their processes.
    pub of_incus: BTreeMap<GuestName, Running>,
    /// Why it is not known which of its guests Incus runs, if so.
    pub incus_unseen: Option<IncusUnseen>,
    /// In words who else runs guests, and what is otherwise for it.
    pub notes: Vec<String>,
}

impl ModelAsRun {
    /// The guests of which only their functions are judged: those that Incus runs or may run, and does so as it was told itself.
    pub fn left_to_incus(&self) -> BTreeSet<GuestName> {
        let may_run = self.incus_unseen.iter().flat_map(|unseen| &unseen.may_run);
        self.of_incus.keys().chain(may_run).cloned().collect()
    }

    /// Whether all the guests that Incus ran as this was made still run. It gives the VFs back of one that has ended, so that
    /// nothing is known of what was seen of them since.
    pub fn still_runs(&self) -> bool {
        self.of_incus.values().all(Running::is_alive)
    }

    /// Takes back what was said of functions that Incus may have given or taken meanwhile: those of guests that have ended since, or
    /// that it may run, and VFs of the same NICs that nobody owns.
    pub fn without_unsettled(&self, verdicts: &mut [Verdict]) {
        let ended = self.of_incus.iter().filter(|(_, process)| !process.is_alive());
        let ended = ended.map(|(guest, _)| (guest, format!("Incus stopped {guest} while it was looked at")));
        let unseen = self.incus_unseen.iter().flat_map(|unseen| {
            let why = format!("which VF Incus gave to whom is not known: {}", unseen.why);
            unseen.may_run.iter().map(move |guest| (guest, why.clone()))
        });
        let unsettled = IncusFunctions::of(&self.model, ended.chain(unseen));
        for verdict in verdicts {
            if let Some(IncusFunction::OfGuest(why) | IncusFunction::Free(why)) = unsettled.find(verdict) {
                (verdict.outcome, verdict.seen) = (Outcome::Unknown, why.clone());
            }
        }
    }
}

/// The functions of a model that Incus may give or take because some guests are left to it, with what is known of each of these guests.
pub struct IncusFunctions<'a, T> {
    owners: FunctionOwners<'a>,
    guests: BTreeMap<&'a GuestName, T>,
    nics: BTreeMap<&'a NicName, T>,
}

/// How a function is one that Incus may give or take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncusFunction<T> {
    /// A guest has it that is left to Incus.
    OfGuest(T),
    /// A VF of a NIC of such a guest that neither a guest nor an uplink has: an instance that is started may be given it.
    Free(T),
}

impl<'a, T: Clone> IncusFunctions<'a, T> {
    /// Those of `model` while these guests are left to Incus.
    pub fn of(model: &'a Model, guests: impl IntoIterator<Item = (&'a GuestName, T)>) -> Self {
        let guests: BTreeMap<&GuestName, T> = guests.into_iter().collect();
        let of_guest = |(guest, known): (&&GuestName, &T)| {
            nics_of(model, guest).map(|nic| (nic, known.clone())).collect::<Vec<_>>()
        };
        let nics = guests.iter().flat_map(of_guest).collect();
        IncusFunctions { owners: model.function_owners(), guests, nics }
    }

    /// Whether a verdict is on one of them.
    pub fn find(&self, verdict: &Verdict) -> Option<IncusFunction<&T>> {
        let Subject::Function(function) = &verdict.subject else { return None };
        match self.owners.of(function) {
            Some((guest, _)) => self.guests.get(guest).map(IncusFunction::OfGuest),
            None if function.vf.is_some() && !self.owners.is_uplink(function) => {
                self.nics.get(&function.nic).map(IncusFunction::Free)
            }
            None => None,
        }
    }
}

impl Machine {
    /// Those of these guests that Penstock has not defined and Incus runs. The processes of some may be `known`.
    pub fn incus<'a>(
        &self,
        names: impl IntoIterator<Item = &'a GuestName>,
        known: &BTreeMap<GuestName, Running>,
    ) -> Instances {
        let ours = self.guests().definitions();
        let is_other = |name: &&GuestName| !ours.contains_key(*name) && incus::may_run(&self.root, name);
        let others: BTreeSet<GuestName> = names.into_iter().filter(is_other).cloned().collect();
        if !self.root.is_system() || others.is_empty() {
            return Instances::default();
        }
        match incus::instances(&others, known) {
            Ok(Listing { running, unseen }) => {
                let why = unseen.values().map(String::as_str).collect::<Vec<_>>().join("; ");
                let may_run = unseen.into_keys().collect::<BTreeSet<_>>();
                let unseen = (!may_run.is_empty()).then_some(IncusUnseen { why, may_run });
                Instances { running, unseen }
            }
            Err(error) => {
                let unseen = IncusUnseen { why: chain(&error), may_run: others };
                Instances { running: BTreeMap::new(), unseen: Some(unseen) }
            }
        }
    }

    /// The model as it is carried out here, and where these of its guests can be looked into. The processes of guests of Incus may
    /// be `known`.
    pub fn as_run<'a>(
        &self,
        model: &Model,
        inventory: &Inventory,
        nics: &IndexMap<NicName, Bdf>,
        looked_into: impl IntoIterator<Item = &'a GuestName>,
        known: &BTreeMap<GuestName, Running>,
    ) -> ModelAsRun {
        let instances = self.incus(model.guests.keys(), known);
        let places = self.places_with(looked_into, &instances);
        let Instances { running: instances, unseen: incus_unseen } = instances;
        let (model, otherwise) = as_incus_runs_it(model, &instances, inventory, nics);
        let whose = instances.keys().map(|name| {
            format!("Incus runs {name}: its functions are compared with the model; its memory, CPUs and fences are as Incus was told")
        });
        let notes = whose.chain(otherwise).collect();
        let of_incus = instances.into_iter().map(|(name, instance)| (name, instance.process)).collect();
        ModelAsRun { model, places, of_incus, incus_unseen, notes }
    }

    /// Where a guest that Penstock has not defined can be looked into.
    pub(super) fn place_in_incus(&self, name: &GuestName, instances: &Instances) -> GuestPlace {
        let nowhere = "it is not defined here";
        match (instances.running.get(name), &instances.unseen) {
            (None, Some(unseen)) if unseen.may_run.contains(name) => GuestPlace::Unseen(format!(
                "{nowhere}, and whether Incus runs it is not known: {}",
                unseen.why
            )),
            (None, _) => GuestPlace::NotRunning(nowhere.to_owned()),
            (Some(Instance { kind: GuestKind::Vm, .. }), _) => {
                GuestPlace::Closed("it is a VM of Incus, which is not looked into".to_owned())
            }
            (Some(instance), _) => GuestPlace::Running(incus::place(&self.root, name, instance.process)),
        }
    }
}

/// The model as Incus carries it out, and what it does otherwise, in words: its instances have the VFs that it chose, each in exchange for
/// the model's own, and NICs whose VFs no other guests own are managed by it.
fn as_incus_runs_it(
    model: &Model,
    instances: &BTreeMap<GuestName, Instance>,
    inventory: &Inventory,
    nics: &IndexMap<NicName, Bdf>,
) -> (Model, Vec<String>) {
    let (mut run, mut told) = (model.clone(), Vec::new());
    if instances.is_empty() {
        return (run, told);
    }
    // What follows from a VF's number in the model, or from who manages the NIC, is as it was exported.
    for function in run.guests.values_mut().flat_map(|guest| &mut guest.functions) {
        let pf = nics.get(&function.name.nic).and_then(|bdf| inventory.pf(*bdf)?.permanent_mac);
        if let Some(index) = function.name.vf {
            function.settings.mac = model.nics[&function.name.nic].vf_mac(function.settings.mac, pf, index);
        }
    }
    for (guest, instance) in instances {
        for position in 0..model.guests.get(guest).map_or(0, |wanted| wanted.functions.len()) {
            let wanted = &model.guests[guest].functions[position];
            let Some(pf) = nics.get(&wanted.name.nic).and_then(|bdf| inventory.pf(*bdf)) else { continue };
            let vf = instance.vfs.get(&wanted.interface);
            let Some(to) = vf.and_then(|vf| chosen_for(model, &wanted.name, pf, vf)) else { continue };
            let now = run.guests[guest].functions[position].name.clone();
            exchange(&mut run, &now, &to);
            if to != wanted.name {
                told.push(format!(
                    "Incus gave {guest} {to} as {}, where the model has {}: it takes any VF that is free",
                    wanted.interface, wanted.name
                ));
            }
        }
    }
    for (name, nic) in &mut run.nics {
        let owners =
            model.guests.iter().filter(|(_, guest)| guest.functions.iter().any(|f| f.name.nic == *name));
        let mut owners = owners.map(|(guest, _)| guest).peekable();
        let is_uplink = model.uplink_vfs().any(|uplink| uplink.function.nic == *name);
        if owners.peek().is_some() && owners.all(|guest| instances.contains_key(guest)) && !is_uplink {
            nic.externally_managed = true;
        }
    }
    (run, told)
}

/// The NICs whose functions a guest of the model has.
pub fn nics_of<'a>(model: &'a Model, guest: &GuestName) -> impl Iterator<Item = &'a NicName> + use<'a> {
    let functions = model.guests.get(guest).map(|guest| &guest.functions);
    functions.into_iter().flatten().map(|function| &function.name.nic)
}

/// The function that Incus chose where the model has `wanted`, a VF of `pf`; `None` when it is another NIC's, or none of the model's that
/// a guest could have.
fn chosen_for(model: &Model, wanted: &FunctionName, pf: &Pf, vf: &ChosenVf) -> Option<FunctionName> {
    let parent = &pf.interface.as_ref()?.name;
    let chosen = FunctionName { vf: Some(vf.index), ..wanted.clone() };
    let fits = wanted.vf.is_some()
        && *parent == vf.parent
        && vf.index.get() < model.nics[&wanted.nic].vfs
        && model.uplink_vf(&chosen).is_none();
    fits.then_some(chosen)
}

/// Lets whoever has one of two VFs of a NIC have the other. They may be the same one.
fn exchange(model: &mut Model, one: &FunctionName, other: &FunctionName) {
    for function in model.guests.values_mut().flat_map(|guest| &mut guest.functions) {
        if function.name == *one {
            function.name = other.clone();
        } else if function.name == *other {
            function.name = one.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_model::{Mac, Source, VfIndex};

    use super::*;

    const MODEL: &str = "nics:\n  NET0: {match: {mac: '00:11:22:33:44:55'}, vfs: 4}\nguests:\n  web: {functions: [{vf: NET0#1, interface: \
                         data0}]}\n  db: {functions: [{vf: NET0#0, mac: '02:00:00:00:00:09'}]}\n";

    fn chosen(vfs: &[(&str, &str, &str, u16)]) -> (Model, Vec<String>) {
        let model = penstock_model::parse(&Source::new("m.yaml", MODEL.to_owned())).unwrap().model;
        let pf = serde_json::json!({
            "bdf": "0000:01:00.0",
            "identity": {"ids": {"vendor": 1, "device": 1, "subsystem_vendor": 1, "subsystem": 1}, "vendor_name": null, "device_name": null},
            "driver": "igb", "numa_node": null, "iommu_group": null, "permanent_mac": "00:11:22:33:44:55", "sriov": null, "switch_mode": "veb",
            "interface": {
                "name": "ens1", "mac": "00:11:22:33:44:55", "mtu": 1500, "up": true, "carrier": null, "speed": null, "addresses": [],
            },
        });
        let inventory = Inventory { pfs: vec![serde_json::from_value(pf).unwrap()], ..Inventory::default() };
        let nics = [("NET0".parse().unwrap(), "0000:01:00.0".parse().unwrap())].into_iter().collect();
        let mut instances: BTreeMap<GuestName, Instance> = BTreeMap::new();
        for (guest, interface, parent, index) in vfs {
            let process = Running { id: 1, started: 1 };
            let none = || Instance { kind: GuestKind::Container, process, vfs: BTreeMap::new() };
            let vf = ChosenVf { parent: parent.parse().unwrap(), index: VfIndex::new(*index).unwrap() };
            let instance = instances.entry(guest.parse().unwrap()).or_insert_with(none);
            instance.vfs.insert(interface.parse().unwrap(), vf);
        }
        as_incus_runs_it(&model, &instances, &inventory, &nics)
    }

    fn functions(model: &Model) -> Vec<(String, Option<String>)> {
        let functions = model.guests.values().flat_map(|guest| &guest.functions);
        functions.map(|f| (f.name.to_string(), f.settings.mac.map(|mac| mac.to_string()))).collect()
    }

    /// That of web's VF.
    fn derived() -> String {
        Mac::derived("00:11:22:33:44:55".parse().unwrap(), VfIndex::new(1).unwrap()).to_string()
    }

    #[test]
    fn two_instances_that_have_each_other_s_vfs_keep_their_addresses() {
        let given = Some("02:00:00:00:00:09".to_owned());
        let (model, told) = chosen(&[("web", "data0", "ens1", 0), ("db", "eth0", "ens1", 1)]);
        let wanted = [("NET0#0".to_owned(), Some(derived())), ("NET0#1".to_owned(), given.clone())];
        assert_eq!(functions(&model), wanted);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(model.nics[0].externally_managed);
        // One that no guest of the model has; the other guest is not Incus'.
        let (model, told) = chosen(&[("web", "data0", "ens1", 3)]);
        assert_eq!(functions(&model), [("NET0#3".to_owned(), Some(derived())), ("NET0#0".to_owned(), given)]);
        assert_eq!(
            told,
            ["Incus gave web NET0#3 as data0, where the model has NET0#1: it takes any VF that is free"]
        );
    }

    #[test]
    fn nothing_is_known_of_the_functions_of_an_instance_that_ended_meanwhile() {
        let (model, _) = chosen(&[]);
        let guest = |name: &str, process: Running| (name.parse().unwrap(), process);
        let of_incus =
            [guest("web", Running { id: u32::MAX, started: 1 }), guest("db", Running::this().unwrap())];
        let run = ModelAsRun {
            model,
            places: BTreeMap::new(),
            of_incus: of_incus.into(),
            incus_unseen: None,
            notes: Vec::new(),
        };
        let of = |function: &str| {
            let subject = Subject::Function(function.parse().unwrap());
            Verdict::of_host(subject, "vlan", "100".to_owned(), Ok(("0".to_owned(), false)))
        };
        let mut verdicts = [of("NET0#1"), of("NET0#0"), of("NET0#2")];
        run.without_unsettled(&mut verdicts);
        let outcomes = |verdicts: &[Verdict; 3]| verdicts.each_ref().map(|verdict| verdict.outcome);
        assert_eq!(outcomes(&verdicts), [Outcome::Unknown, Outcome::Fail, Outcome::Unknown]);
        assert_eq!(verdicts[0].seen, "Incus stopped web while it was looked at");
        assert!(!run.still_runs());
        // Nor of those that Incus may run.
        let unseen = IncusUnseen { why: "it is away".to_owned(), may_run: ["db".parse().unwrap()].into() };
        let run = ModelAsRun { of_incus: BTreeMap::new(), incus_unseen: Some(unseen), ..run };
        let mut verdicts = [of("NET0#1"), of("NET0#0"), of("NET0#2")];
        run.without_unsettled(&mut verdicts);
        assert_eq!(outcomes(&verdicts), [Outcome::Fail, Outcome::Unknown, Outcome::Unknown]);
    }

    #[test]
    fn what_is_as_the_model_has_it_or_none_of_its_vfs_is_left() {
        let given = Some("02:00:00:00:00:09".to_owned());
        let as_it_is = [("NET0#1".to_owned(), Some(derived())), ("NET0#0".to_owned(), given)];
        for vfs in [
            &[("web", "data0", "ens1", 1), ("db", "eth0", "ens1", 0)][..],
            &[("web", "data0", "ens2", 0)],
            &[("web", "data0", "ens1", 4)],
            &[("web", "other0", "ens1", 0)],
            &[("nobody", "data0", "ens1", 0)],
        ] {
            let (model, told) = chosen(vfs);
            assert_eq!((functions(&model), told), (as_it_is.to_vec(), Vec::new()), "{vfs:?}");
        }
    }
}
