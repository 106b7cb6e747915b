//! The mode of a NIC's embedded switch (`Documentation/networking/devlink/devlink-eswitch-attr.rst`): what is known of it, and its change.
//!
//! It changes while there are no VFs: `ice` refuses it else, `mlx5_core` takes the links of all VFs down, and representors come with the VFs.

use penstock_model::{
    Bdf, VfAttribute, WantedEswitch,
    inventory::{Devlink, EswitchMode, Pf, SwitchMode},
};

use crate::{
    FunctionAction,
    draft::{Effect, StepSpec},
    drivers,
    planner::Planner,
    wanted::WantedNic,
};

/// What is known of the mode of a PF's embedded switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownMode<'a> {
    /// It is this.
    Is(EswitchMode),
    /// The driver has no modes: it is as `legacy` is.
    Without,
    /// Nobody asked devlink, or this is why it did not tell.
    Unknown(Option<&'a str>),
}

/// The mode of a PF's embedded switch.
pub fn known_mode(pf: &Pf) -> KnownMode<'_> {
    let devlink = pf.devlink.as_ref();
    if let Some(eswitch) = devlink.and_then(|devlink| devlink.eswitch) {
        return KnownMode::Is(eswitch.mode);
    }
    // Its VFs have representors.
    if pf.switch_mode == SwitchMode::Switchdev {
        return KnownMode::Is(EswitchMode::Switchdev);
    }
    if pf.driver.as_deref().is_some_and(drivers::has_no_eswitch_modes) {
        return KnownMode::Without;
    }
    match devlink {
        // A scan without root is not told what these have.
        Some(Devlink { unread: None, .. })
            if !pf.driver.as_deref().is_some_and(drivers::has_eswitch_modes) =>
        {
            KnownMode::Without
        }
        Some(devlink) => KnownMode::Unknown(devlink.unread.as_deref()),
        None => KnownMode::Unknown(None),
    }
}

/// Another mode for an embedded switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EswitchChange {
    /// The mode that it is in.
    pub from: EswitchMode,
    /// The mode that the model wants.
    pub to: EswitchMode,
}

/// What changes of a PF's embedded switch that the model wants in a mode, as far as its driver can.
pub fn change(wanted: Option<WantedEswitch>, pf: &Pf) -> Option<EswitchChange> {
    let to = wanted?.mode();
    let KnownMode::Is(from) = known_mode(pf) else { return None };
    let fixed = pf.driver.as_deref().and_then(drivers::fixed_eswitch_mode);
    (from != to && fixed.is_none()).then_some(EswitchChange { from, to })
}

/// The mode that a NIC's embedded switch is in after the plan, where it is known.
pub fn mode_after(nic: &WantedNic<'_>) -> Option<EswitchMode> {
    match (nic.eswitch_change(), known_mode(nic.pf)) {
        (Some(change), _) => Some(change.to),
        (None, KnownMode::Is(mode)) => Some(mode),
        (None, KnownMode::Without | KnownMode::Unknown(_)) => None,
    }
}

/// Says what stands in the way of the mode that the model wants: nothing is guessed, and a driver without modes is in none.
pub fn judge(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    let Some(wanted) = nic.nic.eswitch else { return };
    let (name, pf) = (nic.name, nic.pf.bdf);
    let driver = nic.pf.driver.as_deref().unwrap_or("none");
    // A driver's version is its kernel's.
    let driver = match &nic.pf.firmware {
        Some(firmware) => {
            format!("driver {driver} of Linux {}, firmware {firmware},", planner.inventory.kernel.release)
        }
        None => format!("driver {driver} of Linux {}", planner.inventory.kernel.release),
    };
    let fixed = nic.pf.driver.as_deref().and_then(drivers::fixed_eswitch_mode);
    let why = match known_mode(nic.pf) {
        KnownMode::Is(mode) if mode == wanted.mode() => return,
        KnownMode::Is(mode) => match fixed {
            Some(why) => format!("{driver} does not change it from {mode}: {why}"),
            None => {
                if nic.pf.switch_mode == SwitchMode::Vepa {
                    planner.note(format!(
                        "{name} has loopback off (VEPA), which goes with legacy mode: undo does not put it back"
                    ));
                }
                return;
            }
        },
        KnownMode::Without if wanted == WantedEswitch::Legacy => return,
        KnownMode::Without => format!("{driver} has no modes of it"),
        KnownMode::Unknown(Some(why)) => format!("which it is in is not known: {why}"),
        KnownMode::Unknown(None) => {
            format!(
                "which it is in is not known: devlink was not asked of {pf}, or did not tell (it takes root)"
            )
        }
    };
    let text = format!("the embedded switch of {name} cannot be put into {} mode: {why}", wanted.name());
    // Best effort is about what a driver lacks, not about what nobody knows.
    if let KnownMode::Unknown(_) = known_mode(nic.pf) {
        return planner.lack(
            text,
            format!(
                "try again as root on that machine, once `devlink dev eswitch show pci/{pf}` answers; or leave `eswitch` of {name} out"
            ),
        );
    }
    if nic.nic.best_effort.contains("eswitch") {
        return planner.note(format!("{text}; it is left as it is"));
    }
    planner.lack(
        text,
        format!(
            "leave `eswitch` of {name} out, or match a PF whose driver has the mode; `best_effort: [eswitch]` does without it"
        ),
    );
}

/// The step that changes the mode of a PF without VFs.
pub fn step(name: &str, pf: Bdf, change: EswitchChange, best_effort: bool) -> StepSpec {
    let EswitchChange { from, to } = change;
    StepSpec::new(
        FunctionAction::SetEswitchMode { pf, mode: to }.into(),
        Some(FunctionAction::SetEswitchMode { pf, mode: from }.into()),
        vec![Effect::Autoprobe(pf), Effect::Vfs(pf), Effect::Interface(pf)],
        // What comes after a number of VFs comes after this too.
        Effect::Vfs(pf),
        format!("the embedded switch of {name} is in {from} mode, and is to be in {to} mode"),
    )
    .best_effort(best_effort)
}

/// The mode of a PF without SR-IOV, whose VFs need not go for it.
pub fn without_sriov(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    let (Some(change), None) = (nic.eswitch_change(), nic.sriov()) else { return };
    if let Some(guest) = planner.user(nic.pf.bdf) {
        return planner.refuse(
            format!("{} while guest {guest} runs with its PF", would_change(nic.name.as_str(), change)),
            format!("stop it first: penstock stop MODEL {guest}"),
        );
    }
    let step = step(nic.name.as_str(), nic.pf.bdf, change, nic.nic.best_effort.contains("eswitch"));
    planner.draft.push(step);
}

/// The beginning of a sentence that refuses it.
pub fn would_change(name: &str, change: EswitchChange) -> String {
    format!("the embedded switch of {name} would change from {} to {} mode", change.from, change.to)
}

/// Why an attribute of a VF cannot be set at its PF, if the driver is known to refuse it in the mode that the switch is in then.
pub fn refused(nic: &WantedNic<'_>, attribute: &VfAttribute) -> Option<&'static str> {
    let is_switchdev = mode_after(nic).is_some_and(|mode| mode != EswitchMode::Legacy);
    let driver = nic.pf.driver.as_deref().filter(|_| is_switchdev)?;
    drivers::refused_in_switchdev(driver, attribute)
}

/// That a NIC's embedded switch is in another mode than the model wants, for a plan that does not change it.
pub fn is_other(nic: &WantedNic<'_>) -> Option<String> {
    let EswitchChange { from, to } = nic.eswitch_change()?;
    Some(format!("the embedded switch of {} is in {from} mode, and the model wants {to}", nic.name))
}
