//! The mode of a NIC's embedded switch (`Documentation/networking/devlink/devlink-eswitch-attr.rst`): what is known of it, and its change.
//!
//! It changes while there are no VFs: `ice` refuses it else, `mlx5_core` takes the links of all VFs down, and representors come with the VFs.

use penstock_model::{
    Bdf, Nic, VfAttribute, WantedEswitch,
    inventory::{EswitchMode, KnownMode, Pf, SwitchMode},
};

use crate::{
    FunctionAction,
    draft::{Effect, StepSpec},
    drivers,
    planner::Planner,
    wanted::WantedNic,
};

/// Another mode for an embedded switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EswitchChange {
    /// The mode that it is in.
    pub from: EswitchMode,
    /// The mode that the model wants.
    pub to: EswitchMode,
    /// Whether the model does without it where the driver turns out not to have it.
    pub best_effort: bool,
}

/// What changes of the embedded switch of a PF, as far as its driver can.
pub fn change(nic: &Nic, pf: &Pf) -> Option<EswitchChange> {
    let to = nic.eswitch.filter(|_| !nic.externally_managed)?.mode();
    let KnownMode::Is(from) = pf.known_mode() else { return None };
    (from != to).then_some(EswitchChange { from, to, best_effort: is_best_effort(nic) })
}

/// The mode that a NIC's embedded switch is in after the plan if what is best effort comes true, where it is known.
fn hoped_mode(nic: &WantedNic<'_>) -> Option<EswitchMode> {
    let known = || match nic.pf.known_mode() {
        KnownMode::Is(mode) => Some(mode),
        KnownMode::Without | KnownMode::Unknown(_) => None,
    };
    nic.eswitch_change().map(|change| change.to).or_else(known)
}

/// The same, where it is known whatever comes of what is best effort.
fn mode_after(nic: &WantedNic<'_>) -> Option<EswitchMode> {
    hoped_mode(nic).filter(|_| !nic.eswitch_change().is_some_and(|change| change.best_effort))
}

/// Whether the model does without the mode where it cannot be had.
fn is_best_effort(nic: &Nic) -> bool {
    nic.best_effort.contains("eswitch")
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
    let why = match nic.pf.known_mode() {
        KnownMode::Is(_) => return,
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
    if let KnownMode::Unknown(_) = nic.pf.known_mode() {
        return planner.lack(
            text,
            format!(
                "try again as root on that machine, once `devlink dev eswitch show pci/{pf}` answers; or leave `eswitch` of {name} out"
            ),
        );
    }
    if is_best_effort(nic.nic) {
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
pub fn step(name: &str, pf: Bdf, change: EswitchChange) -> StepSpec {
    let EswitchChange { from, to, best_effort } = change;
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
    planner.draft.push(step(nic.name.as_str(), nic.pf.bdf, change));
}

/// The beginning of a sentence that refuses it.
pub fn would_change(name: &str, change: EswitchChange) -> String {
    format!("the embedded switch of {name} would change from {} to {} mode", change.from, change.to)
}

/// Loopback of a PF that leaves legacy mode with it off (VEPA): it goes with the mode, so it is set on before, whose way back comes after the
/// mode's own. Drivers come back to legacy mode with it on.
pub fn loopback_before(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    let (name, pf) = (nic.name, nic.pf.bdf);
    let leaves = nic.eswitch_change().is_some_and(|change| change.to != EswitchMode::Legacy);
    if !leaves || nic.pf.switch_mode != SwitchMode::Vepa || planner.user(pf).is_some() {
        return;
    }
    if is_best_effort(nic.nic) {
        return planner.lack(
            format!(
                "{name} has loopback off (VEPA), which goes with legacy mode, and `best_effort: [eswitch]` may leave it in that"
            ),
            format!("take `eswitch` out of `best_effort` of {name}, or set loopback on first: `loopback: on`"),
        );
    }
    planner.draft.push(StepSpec::new(
        FunctionAction::SetSwitchMode { pf, mode: SwitchMode::Veb }.into(),
        Some(FunctionAction::SetSwitchMode { pf, mode: SwitchMode::Vepa }.into()),
        vec![Effect::Vfs(pf), Effect::Interface(pf)],
        Effect::Interface(pf),
        format!("loopback of {name} is off, which goes with legacy mode, and comes back with it"),
    ));
}

/// Why an attribute of a VF cannot be set at its PF, if the driver is known to refuse it in the mode that the switch is in then.
pub fn refused(nic: &WantedNic<'_>, attribute: &VfAttribute) -> Option<&'static str> {
    refused_in(nic, mode_after(nic), attribute)
}

/// Why an attribute that is to be off need not be set: the driver refuses it in switchdev mode, and a VF does not have it there. VFs
/// are new where the mode changes, and where that comes to nothing such drivers make them without it too.
pub fn off_in_switchdev(nic: &WantedNic<'_>, attribute: &VfAttribute) -> Option<&'static str> {
    if !matches!(attribute, VfAttribute::Spoofchk(false) | VfAttribute::Trust(false)) {
        return None;
    }
    refused_in(nic, hoped_mode(nic), attribute)
}

fn refused_in(
    nic: &WantedNic<'_>,
    mode: Option<EswitchMode>,
    attribute: &VfAttribute,
) -> Option<&'static str> {
    mode.filter(|mode| *mode != EswitchMode::Legacy)?;
    drivers::refused_in_switchdev(nic.pf.driver.as_deref()?, attribute)
}

/// That a NIC's embedded switch is in another mode than the model wants, or in nobody knows which, for a plan that does not change it; and
/// what to do.
pub fn is_other(nic: &WantedNic<'_>) -> Option<(String, String)> {
    let name = nic.name;
    if let Some(EswitchChange { from, to, .. }) = nic.eswitch_change() {
        return Some((
            format!("the embedded switch of {name} is in {from} mode, and the model wants {to}"),
            "change it first: penstock apply".to_owned(),
        ));
    }
    let wanted = nic.nic.eswitch?;
    let text =
        |why: String| format!("the embedded switch of {name} is to be in {} mode, and {why}", wanted.name());
    match nic.pf.known_mode() {
        KnownMode::Is(_) => None,
        KnownMode::Without if wanted == WantedEswitch::Legacy || is_best_effort(nic.nic) => None,
        KnownMode::Without => Some((
            text("its driver has no modes of it".to_owned()),
            format!("leave `eswitch` of {name} out; `best_effort: [eswitch]` does without it"),
        )),
        KnownMode::Unknown(why) => Some((
            text(format!(
                "which it is in is not known: {}",
                why.unwrap_or("devlink was not asked, or did not tell (it takes root)")
            )),
            format!(
                "try again as root, once `devlink dev eswitch show pci/{}` answers; or leave `eswitch` of {name} out",
                nic.pf.bdf
            ),
        )),
    }
}
