//! The mode of a NIC's embedded switch, as devlink told it when the inventory was made.

use penstock_model::{
    NicName, Outcome, WantedEswitch,
    inventory::{EswitchMode, KnownMode, Pf},
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
    match pf.known_mode() {
        KnownMode::Is(mode) => Ok(mode),
        KnownMode::Without => {
            let driver = pf.driver.as_deref().unwrap_or("none");
            Err(Unobserved::Unsupported(format!("driver {driver} has no modes of the embedded switch")))
        }
        KnownMode::Unknown(why) => {
            Err(Unobserved::Unknown(why.unwrap_or("devlink was not asked for it").to_owned()))
        }
    }
}
