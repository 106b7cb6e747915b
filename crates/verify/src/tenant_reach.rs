//! Reachability of the functions of NICs that guests own: whether frames pass between those that are up inside, and to functions
//! of the host and of guests. What a VM has off, down or handed to a container of its own is its own business, and is not judged.

use std::collections::BTreeSet;
use std::time::Duration;

use penstock_host::{
    InterfaceReport,
    frames::{Endpoint, Reach},
};
use penstock_model::{
    EndpointName, FunctionName, GuestName, Mac, Outcome, TenantFunctionName, Uplink,
    verdict::{ARRIVES, ISOLATED, Subject, Vantage},
};

use super::{
    Expectation, Network, Observer,
    observation::{Observation, pf_of},
    probes::{ProbeEnd, ProbePath},
    reach::{self, Remotes},
    sample,
    writer::VerdictSheet,
};

/// Sends frames between the functions of VMs' NICs, and between these and others, and judges what became of them.
pub fn judge(
    observation: &Observation<'_>,
    network: &Network,
    observer: &mut dyn Observer,
    timeout: Duration,
    sheet: &mut VerdictSheet,
) {
    let mut remotes = Remotes::default();
    let mut ends = of_tenants(observation, &mut remotes);
    if ends.is_empty() {
        return;
    }
    let own = ends.len();
    ends.extend(others(observation, own).into_iter().filter_map(|function| {
        let probe_end = reach::probe_end(observation, &function, &mut remotes).ok()?;
        Some((EndpointName::Function(function), probe_end))
    }));
    let pairs = (0..ends.len()).flat_map(|from| (0..ends.len()).map(move |to| (from, to)));
    let tried: Vec<(usize, usize, Expectation)> = pairs
        .filter(|(from, to)| from != to && (*from < own || *to < own))
        .map(|(from, to)| (from, to, network.between(&ends[from].0, &ends[to].0)))
        .filter(|(.., expectation)| *expectation != Expectation::NotJudged)
        .collect();
    if tried.is_empty() {
        return;
    }
    let probe_paths: Vec<ProbePath> = tried
        .iter()
        .map(|(from, to, expectation)| ProbePath {
            from: *from,
            to: *to,
            awaited: *expectation == Expectation::Arrives,
        })
        .collect();
    let (names, probe_ends): (Vec<EndpointName>, Vec<ProbeEnd>) = ends.into_iter().unzip();
    let told = observer.reach_across(&probe_ends, &probe_paths, &[], &remotes.places, timeout);
    for ((from, to, expectation), reached) in tried.into_iter().zip(told.frames) {
        judge_path(observation, &names[from], &names[to], expectation, reached, sheet);
    }
}

fn judge_path(
    observation: &Observation<'_>,
    from: &EndpointName,
    to: &EndpointName,
    expectation: Expectation,
    reached: Result<Reach, String>,
    sheet: &mut VerdictSheet,
) {
    let wanted = if expectation == Expectation::Arrives { ARRIVES } else { ISOLATED };
    let (seen, outcome) = match reached {
        Err(why) => (why, Outcome::Unknown),
        Ok(Reach::SendFailed(why)) => (format!("nothing could be sent: {why}"), Outcome::Unknown),
        Ok(Reach::Arrived) => (
            ARRIVES.to_owned(),
            if expectation == Expectation::Arrives { Outcome::Pass } else { Outcome::Fail },
        ),
        Ok(Reach::NotArrived) if expectation == Expectation::Arrives => {
            ("nothing arrived".to_owned(), Outcome::Fail)
        }
        Ok(Reach::NotArrived) => (ISOLATED.to_owned(), Outcome::Pass),
    };
    let vantage = match to {
        EndpointName::Tenant(function) => Vantage::Guest(function.guest.clone()),
        EndpointName::Function(function) => observation.vantage_of(function),
    };
    let nothing = BTreeSet::new();
    let subject = Subject::Path { from: from.clone(), to: to.clone() };
    sheet.page(subject, vantage, &nothing).put("reach", wanted, seen, outcome);
}

/// The functions of VMs' NICs that are up where this program can send frames.
fn of_tenants<'s>(
    observation: &'s Observation<'_>,
    remotes: &mut Remotes<'s>,
) -> Vec<(EndpointName, ProbeEnd)> {
    let mut ends = Vec::new();
    for (guest, found) in &observation.model.guests {
        for (name, nic) in &found.nics {
            for (vf, mac, _) in nic.functions() {
                let function = FunctionName { nic: name.clone(), vf };
                let function = TenantFunctionName { guest: guest.clone(), function };
                let probe_end = match nic.is_of_container() {
                    true => in_container(observation, guest, mac, &function),
                    false => probe_end(observation, guest, mac, &function, remotes),
                };
                if let Some(probe_end) = probe_end {
                    ends.push((EndpointName::Tenant(function), probe_end));
                }
            }
        }
    }
    ends
}

/// Where frames go in and come out of the function with this address; `None` when it is not up where it could be seen.
fn probe_end<'s>(
    observation: &'s Observation<'_>,
    guest: &GuestName,
    mac: Mac,
    function: &TenantFunctionName,
    remotes: &mut Remotes<'s>,
) -> Option<ProbeEnd> {
    let home = observation.inside(guest).ok()?;
    let program = home.program.as_deref()?;
    let place = observation.place(guest)?;
    // The device inside is of the VM's own addresses; a bridge or VLAN on an interface has its address too.
    let is = |report: &&InterfaceReport| {
        report.interface.mac == mac && report.device.is_none() && report.kind.is_none() && report.interface.up
    };
    let report = home.interfaces.as_ref().ok()?.iter().find(is)?;
    let remote = Some(remotes.add(guest, place, program, home.took));
    let endpoint = Endpoint { label: function.to_string(), namespace: None, interface: report.index, mac };
    Some(ProbeEnd { endpoint, remote })
}

/// The same of the NIC of a container, which lives under this kernel.
fn in_container(
    observation: &Observation<'_>,
    guest: &GuestName,
    mac: Mac,
    function: &TenantFunctionName,
) -> Option<ProbeEnd> {
    let home = observation.inside(guest).ok()?;
    let namespace = *home.namespace.as_ref().ok()?;
    // One of its own may have the same address, as a VLAN on the interface has.
    let is = |report: &&InterfaceReport| {
        report.interface.name.as_str() == function.function.nic.as_str()
            && report.interface.mac == mac
            && report.interface.up
    };
    let report = home.interfaces.as_ref().ok()?.iter().find(is)?;
    let endpoint = Endpoint { label: function.to_string(), namespace, interface: report.index, mac };
    Some(ProbeEnd { endpoint, remote: None })
}

/// The functions that frames of VMs' NICs may come from or go to: PFs, and what guests own as long as that are few.
fn others(observation: &Observation<'_>, own: usize) -> BTreeSet<FunctionName> {
    let uplinks =
        observation.model.guests.values().flat_map(|guest| guest.nics.values()).filter_map(|nic| match &nic
            .uplink
        {
            Some(Uplink::Function(function)) => Some(function.clone()),
            Some(Uplink::Interface(_)) | None => None,
        });
    let mut all = reach::functions(observation.model);
    all.extend(uplinks);
    all.extend(observation.model.board.cables.iter().flatten().map(pf_of));
    if all.len() + own > sample::ALL_UP_TO {
        all.retain(|function| function.vf.is_none());
    }
    all
}
