//! VFs that stay on the host because the embedded switch of a VM's NIC leads to them.

use std::collections::BTreeSet;

use penstock_host::pci::passes_through;
use penstock_model::{
    FunctionName, Outcome,
    verdict::{Subject, Vantage},
};

use super::{
    guest::{self, Needed},
    observation::Observation,
    writer::{Unobserved, VerdictSheet, on},
};

/// Judges the driver of a VF that is an uplink, its link, and whether the switch has made it promiscuous: without that it gets frames
/// for its own address alone. What its PF keeps for it is judged as of every VF.
pub fn judge(observation: &Observation<'_>, function: &FunctionName, sheet: &mut VerdictSheet) {
    let nothing = BTreeSet::new();
    let mut page = sheet.page(Subject::Function(function.clone()), Vantage::Host, &nothing);
    match observation.free_vf(function) {
        Err(blind) => page.blind("driver", "the host's", blind),
        Ok(seen) => {
            let driver = seen.driver.as_deref();
            let (text, holds) = match &seen.taken_by {
                Some(taker) => (format!("{}; in use by {taker}", driver.unwrap_or("none")), false),
                None => (
                    driver.unwrap_or("none").to_owned(),
                    driver.is_some_and(|driver| !passes_through(driver)),
                ),
            };
            page.put("driver", "the host's", text, if holds { Outcome::Pass } else { Outcome::Fail });
        }
    }
    let report = observation.interface(function);
    let promiscuous = report.as_ref().map_err(Clone::clone).and_then(|report| {
        let untold = || Unobserved::Unknown("the kernel does not tell it".to_owned());
        report.promiscuous.map(on).ok_or_else(untold)
    });
    let needed = Needed { mtu: None, up: true, carrier: true, addresses: &[] };
    guest::link(&needed, report, &mut page);
    page.compare("promiscuous", on(true), promiscuous);
}
