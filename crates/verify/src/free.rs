//! VFs that no guest owns: which driver they have, and whether somebody has taken them.

use std::collections::BTreeSet;

use penstock_host::pci::passes_through;
use penstock_model::{
    FreeDriver, FunctionName, Outcome,
    verdict::{Subject, Vantage},
};

use super::{
    observation::Observation,
    writer::{Unobserved, VerdictSheet},
};

/// The attribute that is judged of them.
const DRIVER: &str = "driver";

/// Judges the driver of a VF that no guest owns, and says whether somebody has taken it: what the PF keeps for it is then whatever
/// that one has set, and no drift.
pub fn judge(observation: &Observation<'_>, function: &FunctionName, sheet: &mut VerdictSheet) -> bool {
    let asked = observation.model.nics[&function.nic].free_driver;
    // Who says nothing of it gets it as far as it goes.
    let best_effort: BTreeSet<String> = asked.is_none().then(|| DRIVER.to_owned()).into_iter().collect();
    let mut page = sheet.page(Subject::Function(function.clone()), Vantage::Host, &best_effort);
    let seen = match observation.free_vf(function) {
        Ok(seen) => seen,
        // That it is not there is said of its attributes.
        Err(Unobserved::Absent(_)) => return false,
        Err(blind) => {
            page.blind(DRIVER, wanted(asked), blind);
            return false;
        }
    };
    let driver = seen.driver.as_deref();
    if let Some(taker) = &seen.taken_by {
        let driver = driver.unwrap_or("none");
        page.put(DRIVER, "free, or taken", format!("{driver}; in use by {taker}"), Outcome::Pass);
        return true;
    }
    let holds = match asked {
        Some(FreeDriver::None) => return false,
        Some(FreeDriver::Host) => driver.is_some_and(|driver| !passes_through(driver)),
        Some(FreeDriver::VfioPci) => driver == Some("vfio-pci"),
        None => driver.is_some(),
    };
    // Whoever has the interface would be known. The host's interfaces were listed a while before.
    let lacks_interface =
        seen.lacks_interface() && matches!(observation.interface(function), Err(Unobserved::Absent(_)));
    if let Some(driver) = driver.filter(|_| holds && lacks_interface) {
        let (seen, outcome) = match (&seen.unseen, asked) {
            (Some(why), _) => (
                format!("{driver}; whether another network namespace has its interface is not known: {why}"),
                Outcome::Unknown,
            ),
            (None, None) => (format!("{driver}; its driver made no interface"), Outcome::Unsupported),
            (None, Some(_)) => (format!("{driver}; its driver made no interface"), Outcome::Fail),
        };
        page.put(DRIVER, wanted(asked), seen, outcome);
        return false;
    }
    let outcome = match (holds, asked) {
        (true, _) => Outcome::Pass,
        (false, None) => Outcome::Unsupported,
        (false, Some(_)) => Outcome::Fail,
    };
    page.put(DRIVER, wanted(asked), driver.unwrap_or("none"), outcome);
    false
}

fn wanted(asked: Option<FreeDriver>) -> &'static str {
    match asked {
        None => "the host's, or another",
        Some(FreeDriver::Host) => "the host's",
        Some(FreeDriver::VfioPci) => "vfio-pci",
        Some(FreeDriver::None) => "none needed",
    }
}
