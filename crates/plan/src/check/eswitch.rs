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
            pf.switch_mode = SwitchMode::Unreported;
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

/// Whether a driver refuses to set an attribute at the PF in the mode that the model wants, or else in the one that there is.
pub fn refuses(nic: &Nic, pf: &Pf, attribute: &VfAttribute) -> bool {
    let mode = nic.eswitch.map(|wanted| wanted.mode()).or_else(|| mode(pf));
    if matches!(mode, None | Some(EswitchMode::Legacy)) {
        return false;
    }
    match pf.driver.as_deref() {
        Some("ice") => matches!(attribute, VfAttribute::Trust(_)),
        Some("mlx5_core") => match attribute {
            VfAttribute::Trust(_) | VfAttribute::Spoofchk(_) => true,
            VfAttribute::Vlan { id, .. } => id.get() != 0,
            _ => false,
        },
        _ => false,
    }
}
