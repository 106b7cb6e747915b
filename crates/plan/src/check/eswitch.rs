//! Modes of embedded switches.

use penstock_model::{
    Bdf, Nic, NicName, VfAttribute,
    inventory::{EswitchMode, Pf, SwitchMode},
};

use super::machine::Machine;

/// The mode that is known.
pub fn mode(pf: &Pf) -> Option<EswitchMode> {
    let told = pf.devlink.as_ref().and_then(|devlink| devlink.eswitch).map(|eswitch| eswitch.mode);
    told.or_else(|| (pf.switch_mode == SwitchMode::Switchdev).then_some(EswitchMode::Switchdev))
}

/// Changes it.
pub fn act(pf: &mut Pf, mode: EswitchMode) {
    if let Some(eswitch) = pf.devlink.as_mut().and_then(|devlink| devlink.eswitch.as_mut()) {
        eswitch.mode = mode;
    }
    match mode {
        EswitchMode::Switchdev | EswitchMode::SwitchdevInactive => pf.switch_mode = SwitchMode::Switchdev,
        EswitchMode::Legacy if pf.switch_mode == SwitchMode::Switchdev => {
            // These come back with it on: mlx5/core/esw/legacy.c, ice/ice_main.c, bnxt/bnxt.c.
            let reports = matches!(pf.driver.as_deref(), Some("mlx5_core" | "ice" | "bnxt_en"));
            pf.switch_mode = if reports { SwitchMode::Veb } else { SwitchMode::Unreported };
        }
        EswitchMode::Legacy => {}
    }
}

/// Which rules a change breaks.
pub fn broken(machine: &Machine, pf: Bdf, to: EswitchMode) -> Vec<String> {
    let Some(found) = machine.pf(pf).filter(|found| found.bdf == pf) else {
        return vec![format!("there is no PF {pf}")];
    };
    let mut broken = Vec::new();
    match mode(found) {
        None => broken.push(format!("the mode of the embedded switch of {pf} is not known")),
        Some(mode) if mode == to => {
            broken.push(format!("the embedded switch of {pf} is in {mode} mode already"))
        }
        Some(_) => {}
    }
    let vfs = machine.sriov(pf).map_or(0, |sriov| sriov.num_vfs);
    if vfs > 0 {
        broken.push(format!("{pf} has {vfs} VFs, and the mode of its embedded switch changes without any"));
    }
    broken.extend(machine.user(pf).map(|guest| format!("guest {guest} runs with {pf}")));
    broken
}

/// What is wrong with a NIC's mode after a plan. A driver without modes has none that could be wrong, where the model does without.
pub fn wrong(name: &NicName, nic: &Nic, before: &Pf, after: &Pf) -> Option<String> {
    let wanted = nic.eswitch?.mode();
    let is = mode(after).unwrap_or(EswitchMode::Legacy);
    let left = nic.best_effort.contains("eswitch") && mode(before) == mode(after);
    (is != wanted && !left)
        .then(|| format!("the embedded switch of {name} is in {is} mode, and is to be in {wanted}"))
}

/// Whether a VF lacks an attribute because of switchdev mode: a driver refuses to set it at the PF in the mode that the model wants, or
/// else in the one that there is. One that is to be off is so without.
pub enum InSwitchdev {
    /// It may be set.
    Settable,
    /// It is refused.
    Refused,
    /// It is refused, and off is what the VF has.
    OffAnyway,
}

/// What a driver does with an attribute.
pub fn in_switchdev(nic: &Nic, pf: &Pf, attribute: &VfAttribute) -> InSwitchdev {
    let wanted = nic.eswitch.map(|wanted| wanted.mode());
    let is = mode(pf);
    if matches!(wanted.or(is), None | Some(EswitchMode::Legacy)) {
        return InSwitchdev::Settable;
    }
    let refuses = match pf.driver.as_deref() {
        Some("ice") => matches!(attribute, VfAttribute::Trust(_)),
        Some("mlx5_core") => match attribute {
            VfAttribute::Trust(_) | VfAttribute::Spoofchk(_) => true,
            VfAttribute::Vlan { id, .. } => id.get() != 0,
            _ => false,
        },
        _ => false,
    };
    // Whether it comes to the mode is only seen then.
    let unsure = wanted.is_some() && wanted != is && nic.best_effort.contains("eswitch");
    match attribute {
        _ if !refuses => InSwitchdev::Settable,
        VfAttribute::Trust(false) | VfAttribute::Spoofchk(false) => InSwitchdev::OffAnyway,
        _ if unsure => InSwitchdev::Settable,
        _ => InSwitchdev::Refused,
    }
}
