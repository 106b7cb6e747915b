//! Reachability of the functions of NICs that guests own: whether frames pass between those that are up inside, and to functions
//! of the host and of guests. What a VM has off, down or handed to a container of its own is its own business, and is not judged; of what
//! could not be looked at nothing is known, and that is said.

use std::collections::BTreeSet;
use std::time::Duration;

use penstock_host::{
    InterfaceReport,
    frames::{Endpoint, Reach},
};
use penstock_model::{
    EndpointName, FunctionName, Mac, Outcome, TenantFunctionName, TenantNic, Uplink,
    verdict::{ARRIVES, ISOLATED, Subject, Vantage},
};

use super::{
    Expectation, Network, Observer,
    observation::{Observation, pf_of},
    probes::{ProbeEnd, ProbePath},
    reach::{self, Remotes},
    sample,
    silence::{self, EndBefore},
    writer::{Hidden, Unobserved, VerdictSheet},
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
    let (mut ends, dark) = of_tenants(observation, &mut remotes);
    let own = ends.len();
    if own + dark.len() == 0 {
        return;
    }
    let (mut all, mut dark_others) = (Vec::new(), Vec::new());
    for function in others(observation, own) {
        let end = reach::seen_end(observation, &function, &mut remotes);
        let function = EndpointName::Function(function);
        all.push(function.clone());
        match end {
            Ok(probe_end) => ends.push((function, probe_end)),
            // Whether it should be there and up is judged where it is.
            Err(Unobserved::Absent(_)) => {}
            Err(Unobserved::Unknown(why) | Unobserved::Unsupported(why)) => {
                dark_others.push((function, why));
            }
        }
    }
    all.extend(ends[..own].iter().map(|(name, _)| name.clone()));
    all.extend(dark.iter().map(|(name, _)| EndpointName::Tenant(name.clone())));
    unseen(observation, network, &dark, &all, sheet);
    for (tenant, _) in &ends[..own] {
        for (other, why) in &dark_others {
            for (from, to) in [(tenant, other), (other, tenant)] {
                let expectation = network.between(from, to);
                if expectation != Expectation::NotJudged {
                    judge_path(observation, from, to, expectation, Err(why.clone()), sheet);
                }
            }
        }
    }
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
    let mut frames = observer.reach_across(&probe_ends, &probe_paths, &[], &remotes.places, timeout).frames;
    let all = frames.iter_mut().zip(&tried);
    let silent = all.filter(|(reached, _)| **reached == Ok(Reach::NotArrived));
    let (silent, ends): (Vec<&mut Result<Reach, String>>, Vec<_>) = silent
        .map(|(reached, (from, to, expectation))| {
            let before = |at: &usize| end_before(observation, &names[*at], *expectation);
            (reached, (*expectation, [before(from), before(to)]))
        })
        .unzip();
    for (reached, doubt) in silent.into_iter().zip(silence::doubts(observation, &ends, observer)) {
        if let Some(why) = doubt {
            *reached = Err(why);
        }
    }
    for ((from, to, expectation), reached) in tried.into_iter().zip(frames) {
        judge_path(observation, &names[from], &names[to], expectation, reached, sheet);
    }
}

/// An end as it was before frames were sent.
fn end_before<'a>(
    observation: &'a Observation<'_>,
    end: &'a EndpointName,
    expectation: Expectation,
) -> Option<EndBefore<'a>> {
    match end {
        EndpointName::Function(function) => EndBefore::of(observation, function, expectation),
        EndpointName::Tenant(function) => {
            let nic = observation.model.guests[&function.guest].nics.get(&function.function.nic)?;
            let (_, mac, _) = nic.functions().find(|(vf, ..)| *vf == function.function.vf)?;
            let interfaces = observation.inside(&function.guest).ok()?.interfaces.as_ref().ok()?;
            let report = interface(interfaces, nic, function, mac)?;
            let (name, guest) = (function.to_string(), Some(&function.guest));
            Some(EndBefore { name, guest, report, is_proof: false })
        }
    }
}

/// The interface of a function of a guest's NIC that is up.
fn interface<'i>(
    interfaces: &'i [InterfaceReport],
    nic: &TenantNic,
    function: &TenantFunctionName,
    mac: Mac,
) -> Option<&'i InterfaceReport> {
    interfaces.iter().find(|report| {
        // Another may have the same address: a bridge or a VLAN on the interface has. The device inside a VM is of the VM's own addresses.
        let is_its = match nic.is_of_container() {
            true => report.interface.name.as_str() == function.function.nic.as_str(),
            false => report.device.is_none() && report.kind.is_none(),
        };
        is_its && report.interface.mac == mac && report.interface.up
    })
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
    // Of functions that could not be looked at, the model may have it that nobody can.
    let unseen = |end: &EndpointName| match end {
        EndpointName::Function(function) if outcome == Outcome::Unknown => {
            observation.owners.of(function).map(|(guest, _)| Hidden::inside(&observation.model.guests[guest]))
        }
        _ => None,
    };
    let hidden = [from, to].into_iter().filter_map(unseen).find(|hidden| hidden.hides("reach"));
    let page = sheet.page(subject, vantage, &nothing);
    page.hiding(hidden.unwrap_or_default()).put("reach", wanted, seen, outcome);
}

/// Says of functions that could not be looked at that nothing is known of their frames, once for each: to name every path would be a line
/// for each two of them.
fn unseen(
    observation: &Observation<'_>,
    network: &Network,
    dark: &[(TenantFunctionName, String)],
    all: &[EndpointName],
    sheet: &mut VerdictSheet,
) {
    let nothing = BTreeSet::new();
    for (function, why) in dark {
        let own = EndpointName::Tenant(function.clone());
        let judged = |other: &EndpointName| {
            let ways = [network.between(&own, other), network.between(other, &own)];
            ways.iter().any(|expectation| *expectation != Expectation::NotJudged)
        };
        if !all.iter().any(judged) {
            continue;
        }
        let vantage = Vantage::Guest(function.guest.clone());
        let page = sheet.page(Subject::Tenant(function.clone()), vantage, &nothing);
        let hidden = Hidden::inside(&observation.model.guests[&function.guest]);
        let wanted = "frames pass as the model says, if it is up";
        page.hiding(hidden).put("reach", wanted, why, Outcome::Unknown);
    }
}

/// What of VMs' NICs frames are sent between, and what could not be looked at, with the reason.
type TenantEnds = (Vec<(EndpointName, ProbeEnd)>, Vec<(TenantFunctionName, String)>);

/// The functions of VMs' NICs that are up where this program can send frames.
fn of_tenants<'s>(observation: &'s Observation<'_>, remotes: &mut Remotes<'s>) -> TenantEnds {
    let (mut ends, mut dark) = (Vec::new(), Vec::new());
    for (guest, found) in &observation.model.guests {
        for (name, nic) in &found.nics {
            for (vf, mac, _) in nic.functions() {
                let function = FunctionName { nic: name.clone(), vf };
                let function = TenantFunctionName { guest: guest.clone(), function };
                let probe_end = match nic.is_of_container() {
                    true => in_container(observation, nic, mac, &function),
                    false => probe_end(observation, nic, mac, &function, remotes),
                };
                match probe_end {
                    Ok(Some(probe_end)) => ends.push((EndpointName::Tenant(function), probe_end)),
                    Ok(None) => {}
                    Err(why) => dark.push((function, why)),
                }
            }
        }
    }
    (ends, dark)
}

/// Where frames go in and come out of the function with this address; `None` when it was seen to be down or not there, and in words
/// why it could not be looked at.
fn probe_end<'s>(
    observation: &'s Observation<'_>,
    nic: &TenantNic,
    mac: Mac,
    function: &TenantFunctionName,
    remotes: &mut Remotes<'s>,
) -> Result<Option<ProbeEnd>, String> {
    let guest = &function.guest;
    let home = observation.inside(guest).map_err(|dark| dark.why())?;
    let interfaces = home.interfaces.as_ref().map_err(Clone::clone)?;
    let Some(report) = interface(interfaces, nic, function, mac) else { return Ok(None) };
    let (Some(program), Some(place)) = (home.program.as_deref(), observation.place(guest)) else {
        let why = home.namespace.as_ref().err().map_or("nobody can send frames there", String::as_str);
        return Err(reach::without_program(&observation.model.guests[guest], why).to_owned());
    };
    let remote = Some(remotes.add(guest, place, program, home.took));
    let endpoint = Endpoint { label: function.to_string(), namespace: None, interface: report.index, mac };
    Ok(Some(ProbeEnd { endpoint, remote }))
}

/// The same of the NIC of a container, which lives under this kernel.
fn in_container(
    observation: &Observation<'_>,
    nic: &TenantNic,
    mac: Mac,
    function: &TenantFunctionName,
) -> Result<Option<ProbeEnd>, String> {
    let home = observation.inside(&function.guest).map_err(|dark| dark.why())?;
    let interfaces = home.interfaces.as_ref().map_err(Clone::clone)?;
    let Some(report) = interface(interfaces, nic, function, mac) else { return Ok(None) };
    let namespace = *home.namespace.as_ref().map_err(Clone::clone)?;
    let endpoint = Endpoint { label: function.to_string(), namespace, interface: report.index, mac };
    Ok(Some(ProbeEnd { endpoint, remote: None }))
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
