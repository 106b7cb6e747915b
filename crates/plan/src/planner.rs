//! What all parts of planning share: the machine as it is, joined with the model, and the steps so far.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
};

use indexmap::IndexMap;
use penstock_model::{
    Bdf, Diagnostics, DriveName, FunctionName, GuestName, Inventory, Model, NicName, VfIndex,
    inventory::Manager,
};

use crate::{
    Plan, PlanError,
    action::Schemata,
    draft::Draft,
    drive::resolve_drives,
    error::Refusal,
    nics::vf_ranges,
    realtime::RealtimeRequirements,
    resolve::resolve,
    restore::restore,
    wanted::{WantedNic, WantedVf, wanted},
};

/// A plan in the making.
pub struct Planner<'a> {
    pub model: &'a Model,
    pub inventory: &'a Inventory,
    pub resolved: IndexMap<NicName, Bdf>,
    pub drives: IndexMap<DriveName, Bdf>,
    /// Which running guest has which function, or has it as an uplink.
    pub running: HashMap<Bdf, &'a GuestName>,
    /// VFs that lost their driver in this plan.
    pub unbound: HashSet<Bdf>,
    /// What managers of interfaces leave alone at this point of the plan, of each PF.
    pub told: HashMap<(Manager, Bdf), BTreeSet<Bdf>>,
    /// Of which PFs managers of interfaces have not read that.
    pub unread: HashSet<(Manager, Bdf)>,
    /// What real time asks of the machine; `None`: nothing.
    pub realtime: Option<RealtimeRequirements<'a>>,
    /// Where the functions of guests are here.
    pub given: HashMap<GuestName, BTreeSet<Bdf>>,
    /// The shares of resctrl's default group at this point of the plan, once a guest has given back its own.
    pub returned: Option<Schemata>,
    pub draft: Draft,
    pub notes: Vec<String>,
    pub messages: Diagnostics,
    /// What the model requires and a driver was seen not to do.
    pub lacking: Diagnostics,
    lacks: Vec<Refusal>,
    refusals: Vec<Refusal>,
}

impl<'a> Planner<'a> {
    /// Also returns the NICs, in the model's order.
    ///
    /// # Errors
    ///
    /// [`PlanError::Model`] when a NIC or drive of the model is not on this machine, or what is wanted of it contradicts itself there.
    pub fn new(
        model: &'a Model,
        inventory: &'a Inventory,
    ) -> Result<(Planner<'a>, Vec<WantedNic<'a>>), PlanError> {
        let resolved = resolve(model, inventory).map_err(PlanError::Model)?;
        let (drives, wrong) = resolve_drives(model, inventory);
        if !wrong.0.is_empty() {
            return Err(PlanError::Model(wrong));
        }
        let running: HashMap<Bdf, &GuestName> = inventory
            .guests
            .iter()
            .filter(|(_, found)| found.running)
            .flat_map(|(guest, found)| {
                found.functions.iter().chain(&found.uplinks).map(move |function| (*function, guest))
            })
            .collect();
        let nics = wanted(model, inventory, &resolved, &running).map_err(PlanError::Model)?;
        let told = inventory.managers.iter().flat_map(|(manager, told)| {
            told.iter().map(|(pf, functions)| ((*manager, *pf), functions.clone()))
        });
        let told = told.collect();
        let unread = inventory.unread.iter().flat_map(|(manager, pfs)| pfs.iter().map(|pf| (*manager, *pf)));
        let unread = unread.collect();
        let planner = Planner {
            model,
            inventory,
            resolved,
            drives,
            running,
            unbound: HashSet::new(),
            told,
            unread,
            realtime: None,
            given: HashMap::new(),
            returned: None,
            draft: Draft::default(),
            notes: Vec::new(),
            messages: Diagnostics::default(),
            lacking: Diagnostics::default(),
            lacks: Vec::new(),
            refusals: Vec::new(),
        };
        Ok((planner, nics))
    }

    /// Where a function of the model is on this machine.
    pub fn address(&self, function: &FunctionName) -> Option<Bdf> {
        let pf = *self.resolved.get(&function.nic)?;
        let Some(index) = function.vf else { return Some(pf) };
        let sriov = self.inventory.pf(pf)?.sriov.as_ref()?;
        sriov.vf(index).map(|vf| vf.bdf)
    }

    /// The guest that runs with `function`, or has it as an uplink.
    pub fn user(&self, function: Bdf) -> Option<&'a GuestName> {
        self.running.get(&function).copied()
    }

    /// Whether a guest of this name is there: running, or suspended.
    pub fn runs(&self, guest: &GuestName) -> bool {
        self.inventory.guests.get(guest).is_some_and(|found| found.running)
    }

    /// Whether a VM of this name is there and suspended.
    pub fn suspended(&self, guest: &GuestName) -> bool {
        self.inventory.guests.get(guest).is_some_and(|found| found.running && found.suspended)
    }

    /// The driver that a VF has at this point of the plan.
    pub fn bound(&self, nic: &WantedNic<'_>, vf: &WantedVf<'a>) -> Option<&'a str> {
        if self.unbound.contains(&vf.found.bdf) {
            return None;
        }
        nic.present(vf).and_then(|present| present.driver.as_deref())
    }

    /// Says what the operator should know; each thing once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Says what this machine or version cannot do for the model; each thing once.
    pub fn lack(&mut self, what: String, way_round: String) {
        let lack = Refusal { what, way_round };
        if !self.lacks.contains(&lack) {
            self.lacks.push(lack);
        }
    }

    /// Says what is not done; each thing once.
    pub fn refuse(&mut self, what: String, way_round: String) {
        let refusal = Refusal { what, way_round };
        if !self.refusals.contains(&refusal) {
            self.refusals.push(refusal);
        }
    }

    /// The plan, unless something stands against it.
    ///
    /// # Errors
    ///
    /// [`PlanError`] with all of the first kind that stands against it: what is wrong in the model, which attributes the machine does
    /// not support, what it lacks, what is refused.
    pub fn finish(self) -> Result<Plan, PlanError> {
        if !self.messages.0.is_empty() {
            return Err(PlanError::Model(self.messages));
        }
        if !self.lacking.0.is_empty() {
            return Err(PlanError::UnsupportedAttributes(self.lacking));
        }
        if !self.lacks.is_empty() {
            return Err(PlanError::Unsupported(self.lacks));
        }
        if !self.refusals.is_empty() {
            return Err(PlanError::Refused(self.refusals));
        }
        let plan =
            Plan { nics: self.resolved, drives: self.drives, steps: self.draft.finish(), notes: self.notes };
        Ok(restore(plan, self.inventory))
    }
}

/// VFs of one NIC in few words: `NET0#0 to #5, #7`.
pub fn vf_list(pf: impl fmt::Display, indices: &[VfIndex]) -> String {
    let texts: Vec<String> = vf_ranges(indices)
        .into_iter()
        .map(|(first, last)| match last.get() - first.get() {
            0 => format!("#{first}"),
            1 => format!("#{first}, #{last}"),
            _ => format!("#{first} to #{last}"),
        })
        .collect();
    format!("{pf}{}", texts.join(", "))
}

/// The name of a VF as a model writes it: `NET0#3`.
pub fn vf_name(pf: impl fmt::Display, vf: VfIndex) -> String {
    format!("{pf}#{vf}")
}
