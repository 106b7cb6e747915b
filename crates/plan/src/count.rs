//! The steps that change how many VFs a PF has, of a NIC or of a drive.

use std::fmt;

use penstock_model::{Bdf, inventory::Sriov, text::counted};

use crate::{
    FunctionAction,
    draft::{Effect, StepSpec},
    eswitch::{self, EswitchChange},
    planner::{Planner, vf_list, vf_name},
};

/// A PF and how many VFs it is to have.
#[derive(Clone, Copy)]
pub struct WantedVfCount<'a> {
    /// What the model calls it.
    pub name: &'a str,
    pub pf: Bdf,
    pub sriov: &'a Sriov,
    pub wanted: u16,
    /// What a VF is to have before a driver binds to it.
    pub before_drivers: &'static str,
    /// Another mode for its embedded switch, which changes while there are no VFs.
    pub eswitch: Option<EswitchChange>,
}

/// The steps to the number of VFs that is wanted, without drivers that bind to them by themselves.
pub fn set(planner: &mut Planner<'_>, count: WantedVfCount<'_>) {
    let WantedVfCount { name, pf, sriov, wanted, before_drivers, eswitch } = count;
    let present = sriov.num_vfs;
    let changes = present != wanted || eswitch.is_some();
    if changes && in_use(planner, &count) {
        return;
    }
    if sriov.autoprobe && wanted > 0 {
        planner.draft.push(StepSpec::new(
            FunctionAction::SetAutoprobe { pf, on: false }.into(),
            Some(FunctionAction::SetAutoprobe { pf, on: true }.into()),
            vec![],
            Effect::Autoprobe(pf),
            format!("no driver may bind to a VF of {name} before {before_drivers}"),
        ));
    }
    if !changes {
        return;
    }
    let needs = || vec![Effect::Autoprobe(pf), Effect::Vfs(pf), Effect::Interface(pf)];
    if present > 0 {
        planner.notes.extend(destroyed(name, sriov));
        let has = counted(usize::from(present), "VF");
        let why = match eswitch {
            _ if wanted == 0 => format!("{name} is to have no VFs"),
            Some(EswitchChange { to, .. }) => {
                format!("{name} has {has}, and its embedded switch goes into {to} mode without any")
            }
            None => format!("{name} has {has}, and Linux changes their number only through 0"),
        };
        planner.draft.push(StepSpec::new(
            FunctionAction::SetVfCount { pf, count: 0 }.into(),
            Some(FunctionAction::SetVfCount { pf, count: present }.into()),
            needs(),
            Effect::Vfs(pf),
            why,
        ));
    }
    if let Some(change) = eswitch {
        planner.draft.push(eswitch::step(name, pf, change));
    }
    if wanted > 0 {
        planner.draft.push(StepSpec::new(
            FunctionAction::SetVfCount { pf, count: wanted }.into(),
            Some(FunctionAction::SetVfCount { pf, count: 0 }.into()),
            needs(),
            Effect::Vfs(pf),
            format!("{name} is to have {}", counted(usize::from(wanted), "VF")),
        ));
    }
}

/// Refuses to change the number of VFs under guests that run with them or with the PF.
fn in_use(planner: &mut Planner<'_>, count: &WantedVfCount<'_>) -> bool {
    let WantedVfCount { name, pf, sriov, .. } = *count;
    let would = match count.eswitch {
        Some(change) => eswitch::would_change(name, change),
        None => format!("the number of VFs of {name} would change"),
    };
    let mut used = false;
    if let Some(guest) = planner.user(pf) {
        used = true;
        planner.refuse(
            format!("{would} while guest {guest} runs with its PF"),
            format!("stop it first: penstock stop MODEL {guest}"),
        );
    }
    for vf in &sriov.vfs {
        if let Some(guest) = planner.user(vf.bdf) {
            used = true;
            let vf_name = vf_name(name, vf.index);
            let text = match vf.present {
                Some(_) => {
                    format!("{would}, which destroys {vf_name}, while guest {guest} runs with it")
                }
                None => format!(
                    "guest {guest} runs, but {vf_name} is gone: the driver of {name} was reloaded, or somebody removed its \
                     VFs; a VF that is made anew does not come back into a guest that runs"
                ),
            };
            planner.refuse(text, format!("stop it first: penstock stop MODEL {guest}"));
        }
    }
    used
}

/// What goes with the VFs that are there.
fn destroyed(name: &str, sriov: &Sriov) -> Vec<String> {
    let present: Vec<_> =
        sriov.vfs.iter().filter_map(|vf| vf.present.as_ref().map(|present| (vf.index, present))).collect();
    let all: Vec<_> = present.iter().map(|(index, _)| *index).collect();
    let mut notes = vec![format!(
        "{} are destroyed with all that was set for them; undo makes them again without it",
        vf_list(name, &all)
    )];
    notes.extend(present.into_iter().filter_map(|(index, present)| {
        let driver = present.driver.as_deref()?;
        let who = vf_name(name, index);
        Some(match &present.interface {
            Some(interface) => format!("{who} was the host's interface {} ({driver})", interface.name),
            None => format!("{who} was bound to {driver}"),
        })
    }));
    notes
}

/// That a PF has another number of VFs than the model wants.
pub fn is_other(name: impl fmt::Display, sriov: Option<&Sriov>, wanted: u16) -> String {
    let present = sriov.map_or(0, |sriov| sriov.num_vfs);
    format!("{name} has {}, and the model wants {wanted}", counted(usize::from(present), "VF"))
}
