//! What this machine's drivers can do: remembered, tried, and learned from runs.

use std::collections::{BTreeMap, BTreeSet};

use penstock_apply::{
    ApplyError,
    capabilities::{Memory, learned},
    runner::StepReport,
};
use penstock_host::{
    Netlink, chain, driver,
    probe::{KernelKnobs, Target, probe},
};
use penstock_model::{
    Bdf, Inventory,
    inventory::{Capabilities, Capability, VfState},
};
use penstock_plan::{
    Plan,
    probing::{Subject, subjects, untried},
};

use super::Machine;
use crate::{failure::Failure, ui::printer::Printer};

impl Machine {
    fn memory(&self) -> Memory {
        Memory::at(self.journal.join("capabilities.json"))
    }

    /// Puts what is remembered of each PF's driver into the inventory.
    pub fn recall(&self, inventory: &mut Inventory) {
        if inventory.capabilities.is_empty() {
            return;
        }
        let known = self.memory().recall();
        for here in inventory.capabilities.values_mut() {
            if let Some(known) = known.iter().find(|known| known.of == here.of) {
                here.trials = known.trials.clone();
            }
        }
    }

    /// Tries each driver anew, and says which there was no VF for.
    ///
    /// # Errors
    ///
    /// No netlink socket, or what was found cannot be kept.
    pub fn probe_all(&self, inventory: &mut Inventory, printer: &mut Printer) -> Result<(), Failure> {
        let (subjects, without) = subjects(inventory);
        let all: BTreeSet<Capability> = Capability::ALL.iter().copied().collect();
        for subject in subjects {
            self.probe(&subject, &all, inventory, printer)?;
        }
        for of in without {
            printer.warn(format!(
                "driver {of} was not tried: that takes a PF that is up, with a VF that has no driver and no guest"
            ));
        }
        Ok(())
    }

    /// Before a plan is carried out: tries what it is going to set and nobody has tried yet. Whether anything was learned.
    ///
    /// # Errors
    ///
    /// As of [`Machine::probe_all`].
    pub fn probe_for(
        &self,
        plan: &Plan,
        inventory: &mut Inventory,
        printer: &mut Printer,
    ) -> Result<bool, Failure> {
        let untried = untried(plan, inventory);
        for (subject, wanted) in &untried {
            self.probe(subject, wanted, inventory, printer)?;
        }
        Ok(!untried.is_empty())
    }

    fn probe(
        &self,
        subject: &Subject,
        wanted: &BTreeSet<Capability>,
        inventory: &mut Inventory,
        printer: &mut Printer,
    ) -> Result<(), Failure> {
        let pf = inventory.pf(subject.pf).and_then(|pf| pf.interface.as_ref());
        let Some(name) = pf.map(|interface| interface.name.clone()) else { return Ok(()) };
        printer.doing(format!("Trying driver {} on VF {} of {name}", subject.of.driver, subject.vf));
        let mut netlink = Netlink::open()?;
        let reports = netlink.interfaces()?;
        let Some(report) = reports.iter().find(|report| report.interface.name == name) else { return Ok(()) };
        let mut knobs = KernelKnobs { root: &self.root, interface: report.index, netlink: &mut netlink };
        let target = Target { vf: subject.vf, function: subject.function, linked: subject.linked };
        let probed = match probe(&mut knobs, target, wanted) {
            Ok(probed) => probed,
            Err(error) => {
                printer.warn(format!("driver {} was not tried: {}", subject.of, chain(&error)));
                return Ok(());
            }
        };
        if let Some((before, after)) = probed.changed {
            printer.warn(format!(
                "VF {} of {name} is not as it was after driver {} was tried with the values that it had: it had {}, and has {}",
                subject.vf,
                subject.of.driver,
                unlike(&before, &after),
                unlike(&after, &before)
            ));
        }
        let known = Capabilities { of: subject.of.clone(), trials: probed.trials };
        // Whoever may not write there can still use what was found.
        self.keep(std::slice::from_ref(&known), printer);
        for here in inventory.capabilities.values_mut().filter(|here| here.of == known.of) {
            for (capability, trial) in &known.trials {
                here.learn(*capability, trial.clone());
            }
        }
        Ok(())
    }

    /// Remembers what a run has shown of its drivers.
    pub fn learn(
        &self,
        plan: &Plan,
        reports: &[StepReport],
        ended: Option<&ApplyError>,
        printer: &mut Printer,
    ) {
        let mut by_pf: BTreeMap<Bdf, Capabilities> = BTreeMap::new();
        for (pf, capability, trial) in learned(plan, reports, ended) {
            let known = by_pf.entry(pf).or_insert_with(|| {
                let of = driver::identity(&self.root, pf).unwrap_or_default();
                Capabilities { of, ..Capabilities::default() }
            });
            known.learn(capability, trial);
        }
        // A PF that has moved into a guest meanwhile cannot be asked which driver it has.
        let learned: Vec<Capabilities> =
            by_pf.into_values().filter(|known| !known.of.driver.is_empty()).collect();
        self.keep(&learned, printer);
    }

    fn keep(&self, learned: &[Capabilities], printer: &mut Printer) {
        if let Err(error) = self.memory().remember(learned) {
            printer.warn(format!("what was seen of drivers is not remembered: {}", chain(&error)));
        }
    }
}

/// What of a VF's state another one has not.
fn unlike(state: &VfState, other: &VfState) -> String {
    let others = other.attributes();
    let unlike = state.attributes().into_iter().filter(|attribute| !others.contains(attribute));
    let unlike: Vec<String> = unlike.map(|attribute| attribute.to_string()).collect();
    if unlike.is_empty() { "nothing of its kind".to_owned() } else { unlike.join(", ") }
}
