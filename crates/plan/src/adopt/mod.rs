//! A live machine read into a model of it: a file whose plan, on that machine, is empty.
//!
//! Each NIC and each guest is written in the most telling form of which that holds: the file so far is read and planned
//! with it, and what would change something is written otherwise, or as a comment that says so.

mod text;
mod words;

use std::{collections::BTreeMap, fmt::Write};

use penstock_model::{
    Bdf, DriveName, DriveVfName, FreeDriver, FunctionName, GuestName, Inventory, NicName, Source, VfIndex,
    VfSettings,
    inventory::{NvmeController, Pf, Vf},
    yaml::quoted,
};

use crate::{Action, FunctionAction, Plan, Step, action::GuestDefinition, drivers, lasting_match, plan};

/// A machine as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct ImportInput<'a> {
    /// What it is called.
    pub host: Option<&'a str>,
    /// What was found on it.
    pub inventory: &'a Inventory,
    /// How the guests of ours are defined.
    pub definitions: &'a BTreeMap<GuestName, GuestDefinition>,
    /// Who else has a function, in words.
    pub strangers: &'a BTreeMap<Bdf, Vec<String>>,
}

/// How much of a NIC a model says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// All that can be set.
    Whole,
    /// The same without the addresses of its interface, which the model's other parts do not go with.
    WithoutAddresses,
    /// Which VFs there are; what was set stays somebody else's.
    External,
}

/// A NIC of the model.
struct Adopted<'a> {
    name: NicName,
    pf: &'a Pf,
    form: Form,
    /// What the model of the whole NIC would change.
    instead: Vec<String>,
    /// What all of its VFs have that is no default.
    defaults: VfSettings,
    /// The driver of its VFs that no guest has, where it is not the one that a plan would bind.
    free: Option<FreeDriver>,
}

/// A drive of the model.
struct AdoptedDrive<'a> {
    name: DriveName,
    found: &'a NvmeController,
}

/// The model so far.
struct Draft<'a> {
    sight: ImportInput<'a>,
    nics: Vec<Adopted<'a>>,
    drives: Vec<AdoptedDrive<'a>>,
    guests: Vec<&'a GuestName>,
}

/// A model of the machine, as text with comments on what it does not say. `None`: it has no NIC and no drive that a model could name.
pub fn adopt(sight: ImportInput<'_>) -> Option<String> {
    let mut draft = Draft { sight, nics: Vec::new(), drives: Vec::new(), guests: Vec::new() };
    let mut left_out: Vec<(Bdf, String)> = Vec::new();
    let all = || sight.inventory.pfs.iter();
    let some_can = all().any(|pf| pf.sriov.is_some());
    for pf in all().filter(|pf| pf.sriov.is_some() == some_can) {
        let Ok(name) = format!("NET{}", draft.nics.len()).parse() else { continue };
        draft.nics.push(Adopted {
            name,
            pf,
            form: Form::Whole,
            instead: Vec::new(),
            defaults: text::in_common(pf),
            free: free_driver(pf, sight.inventory),
        });
        let Err(instead) = draft.holds() else { continue };
        let adopted = draft.nics.last_mut()?;
        (adopted.form, adopted.instead) = (Form::WithoutAddresses, instead);
        if draft.holds().is_ok() {
            continue;
        }
        draft.nics.last_mut()?.form = Form::External;
        if let Err(why) = draft.holds() {
            left_out.push((pf.bdf, why.join("; ")));
            draft.nics.pop();
        }
    }
    // One without VFs is somebody's ordinary drive.
    let has_vfs = |found: &&NvmeController| found.sriov.as_ref().is_some_and(|sriov| sriov.num_vfs > 0);
    for found in sight.inventory.nvme.iter().filter(has_vfs) {
        let Ok(name) = format!("SSD{}", draft.drives.len()).parse() else { continue };
        draft.drives.push(AdoptedDrive { name, found });
        if let Err(why) = draft.holds() {
            left_out.push((found.bdf, why.join("; ")));
            draft.drives.pop();
        }
    }
    if draft.nics.is_empty() && draft.drives.is_empty() {
        return None;
    }
    let mut apart: Vec<(&GuestName, String)> = Vec::new();
    for (name, found) in &sight.inventory.guests {
        if !found.running || found.suspended {
            apart.push((name, "it does not run, and a model's guests do".to_owned()));
            continue;
        }
        draft.guests.push(name);
        if let Err(why) = draft.holds() {
            draft.guests.pop();
            apart.push((name, why.join("; ")));
        }
    }
    let mut out = words::head(&sight, &draft.holds().unwrap_or_default());
    out.push_str(&draft.text());
    words::tail(&draft, &left_out, &apart, &mut out);
    Some(out)
}

impl Draft<'_> {
    /// Whether the model says what is so and nothing else; what it would change, or why it is none, if not. What the
    /// managers of interfaces would have to be told depends on all guests, and is given by itself.
    fn holds(&self) -> Result<Vec<String>, Vec<String>> {
        let source = Source::new("machine.yaml", self.text());
        // Whoever reads the file is told its warnings then.
        let model = penstock_model::parse(&source)
            .map(|parsed| parsed.model)
            .map_err(|found| found.0.iter().map(|message| message.message.clone()).collect::<Vec<_>>())?;
        let made = plan(&model, self.sight.inventory).map_err(|error| vec![words::no_plan(&error)])?;
        let (said, more) = steps(&made);
        if more.is_empty() { Ok(said) } else { Err(more) }
    }

    /// The model without its head and what stands behind it.
    fn text(&self) -> String {
        let mut out = String::new();
        if let Some(host) = self.sight.host.filter(|host| text::is_word(host)) {
            let _ = writeln!(out, "machine: {}", quoted(host));
        }
        if !self.nics.is_empty() {
            out.push_str("nics:\n");
        }
        for adopted in &self.nics {
            words::above(adopted, &self.sight, &mut out);
            text::nic(adopted, lasting_match(adopted.pf, self.sight.inventory), &mut out);
        }
        if !self.drives.is_empty() {
            out.push_str("drives:\n");
        }
        self.drives.iter().for_each(|adopted| text::drive(adopted, self.sight.inventory, &mut out));
        if !self.guests.is_empty() {
            out.push_str("guests:\n");
        }
        for name in &self.guests {
            text::guest(self, name, &mut out);
        }
        out
    }

    /// A VF of a drive as the model names it, with the drive.
    fn drive_vf(&self, function: Bdf) -> Option<(&NvmeController, DriveVfName)> {
        self.drives.iter().find_map(|adopted| {
            let vf = adopted.found.sriov.as_ref()?.vfs.iter().find(|vf| vf.bdf == function)?;
            Some((adopted.found, DriveVfName { drive: adopted.name.clone(), vf: vf.index }))
        })
    }

    /// A function as the model names it.
    fn name_of(&self, function: Bdf) -> Option<(&Adopted<'_>, FunctionName)> {
        self.nics.iter().find_map(|adopted| {
            let name = |vf: Option<VfIndex>| FunctionName { nic: adopted.name.clone(), vf };
            if adopted.pf.bdf == function {
                return Some((adopted, name(None)));
            }
            let vfs = &adopted.pf.sriov.as_ref()?.vfs;
            let vf = vfs.iter().find(|vf| vf.bdf == function)?;
            Some((adopted, name(Some(vf.index))))
        })
    }
}

/// What a model says of the VFs of a PF that no guest has.
fn free_driver(pf: &Pf, inventory: &Inventory) -> Option<FreeDriver> {
    let owned = |vf: &&Vf| inventory.guests.values().any(|found| found.functions.contains(&vf.bdf));
    let vfs = pf.sriov.iter().flat_map(|sriov| &sriov.vfs).filter(|vf| !owned(vf));
    let bound: Vec<Option<&str>> =
        vfs.filter_map(|vf| vf.present.as_ref()).map(|present| present.driver.as_deref()).collect();
    if bound.contains(&None) {
        return Some(FreeDriver::None);
    }
    let vfio = !bound.is_empty() && bound.iter().all(|driver| *driver == Some(drivers::VFIO));
    vfio.then_some(FreeDriver::VfioPci)
}

/// What a plan would say to managers of interfaces, and what it would do besides.
fn steps(made: &Plan) -> (Vec<String>, Vec<String>) {
    let (said, more): (Vec<_>, Vec<_>) = made
        .steps
        .iter()
        .partition(|step| matches!(step.action, Action::Function(FunctionAction::LeaveAlone { .. })));
    let words = |steps: Vec<&Step>| steps.into_iter().map(|step| step.action.to_string()).collect();
    (words(said), words(more))
}

/// Whether the driver of a PF drops frames with a foreign source MAC unless it is told otherwise.
fn checks_by_default(pf: &Pf) -> bool {
    pf.driver.as_deref().and_then(drivers::known).is_some_and(|driver| driver.spoofchk_at_first)
}
