//! The mode of a NIC's embedded switch, as devlink told it when the inventory was made.

use penstock_model::{
    NicName, Outcome, WantedEswitch,
    inventory::{EswitchMode, Pf, SwitchMode},
    verdict::{Subject, Vantage},
};

use super::{
    observation::Observation,
    writer::{Unobserved, VerdictSheet},
};

/// Judges it where the model wants one.
pub fn judge(observation: &Observation<'_>, name: &NicName, sheet: &mut VerdictSheet) {
    let nic = &observation.model.nics[name];
    let (Some(wanted), Some(pf)) = (nic.eswitch, observation.pf(name)) else { return };
    let mut page = sheet.page(Subject::Nic(name.clone()), Vantage::Host, &nic.best_effort);
    match seen(pf) {
        // What has no other mode is in this one.
        Err(Unobserved::Unsupported(why)) if wanted == WantedEswitch::Legacy => {
            page.put("eswitch", wanted.name(), why, Outcome::Pass);
        }
        seen => page.compare("eswitch", wanted.mode(), seen),
    }
}

/// The mode that a PF's embedded switch was found in.
fn seen(pf: &Pf) -> Result<EswitchMode, Unobserved> {
    let driver = pf.driver.as_deref().unwrap_or("none");
    match &pf.devlink {
        Some(devlink) => match (devlink.eswitch, &devlink.unread) {
            (_, Some(why)) => Err(Unobserved::Unknown(why.clone())),
            (Some(eswitch), None) => Ok(eswitch.mode),
            (None, None) => {
                Err(Unobserved::Unsupported(format!("driver {driver} has no modes of the embedded switch")))
            }
        },
        // Its VFs have representors.
        None if pf.switch_mode == SwitchMode::Switchdev => Ok(EswitchMode::Switchdev),
        None => Err(Unobserved::Unknown("devlink was not asked for it".to_owned())),
    }
}
