//! Reachability of the functions of NICs that VMs own: whether frames pass between those that are up inside, and to functions
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
    reach::{self, Remotes},
    sample,
    scene::{Scene, pf_of},
    stations::{Crossing, Post},
    writer::VerdictSheet,
};

/// Sends frames between the functions of VMs' NICs, and between these and others, and judges what became of them.
pub fn judge(
    scene: &Scene<'_>,
    network: &Network,
    observer: &mut dyn Observer,
    patience: Duration,
    sheet: &mut VerdictSheet,
) {
    let mut remotes = Remotes::default();
    let mut ends = of_tenants(scene, &mut remotes);
    if ends.is_empty() {
        return;
    }
    let own = ends.len();
    ends.extend(others(scene, own).into_iter().filter_map(|function| {
        let post = reach::post(scene, &function, &mut remotes).ok()?;
        Some((EndpointName::Function(function), post))
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
    let crossings: Vec<Crossing> = tried
        .iter()
        .map(|(from, to, expectation)| Crossing {
            from: *from,
            to: *to,
            awaited: *expectation == Expectation::Arrives,
        })
        .collect();
    let (names, posts): (Vec<EndpointName>, Vec<Post>) = ends.into_iter().unzip();
    let told = observer.reach_across(&posts, &crossings, &[], &remotes.places, patience);
    for ((from, to, expectation), reached) in tried.into_iter().zip(told.frames) {
        judge_path(scene, &names[from], &names[to], expectation, reached, sheet);
    }
}

fn judge_path(
    scene: &Scene<'_>,
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
        EndpointName::Function(function) => match scene.model.owner(function) {
            Some((guest, _)) => Vantage::Guest(guest.clone()),
            None => Vantage::Host,
        },
    };
    let nothing = BTreeSet::new();
    let subject = Subject::Path { from: from.clone(), to: to.clone() };
    sheet.page(subject, vantage, &nothing).put("reach", wanted, seen, outcome);
}

/// The functions of VMs' NICs that are up where this program can send frames.
fn of_tenants<'s>(scene: &'s Scene<'_>, remotes: &mut Remotes<'s>) -> Vec<(EndpointName, Post)> {
    let mut ends = Vec::new();
    for (guest, found) in &scene.model.guests {
        for (name, nic) in &found.nics {
            for (vf, mac, _) in nic.functions() {
                let function = FunctionName { nic: name.clone(), vf };
                let function = TenantFunctionName { guest: guest.clone(), function };
                if let Some(post) = post(scene, guest, mac, &function, remotes) {
                    ends.push((EndpointName::Tenant(function), post));
                }
            }
        }
    }
    ends
}

/// Where frames go in and come out of the function with this address; `None` when it is not up where it could be seen.
fn post<'s>(
    scene: &'s Scene<'_>,
    guest: &GuestName,
    mac: Mac,
    function: &TenantFunctionName,
    remotes: &mut Remotes<'s>,
) -> Option<Post> {
    let home = scene.inside(guest).ok()?;
    let program = home.program.as_deref()?;
    let place = scene.place(guest)?;
    // The device inside is of the VM's own addresses; a bridge or VLAN on an interface has its address too.
    let is = |report: &&InterfaceReport| {
        report.interface.mac == mac && report.device.is_none() && report.kind.is_none() && report.interface.up
    };
    let report = home.interfaces.as_ref().ok()?.iter().find(is)?;
    let remote = Some(remotes.add(guest, place, program, home.took));
    let endpoint = Endpoint { label: function.to_string(), namespace: None, interface: report.index, mac };
    Some(Post { endpoint, remote })
}

/// The functions that frames of VMs' NICs may come from or go to: PFs, and what guests own as long as that are few.
fn others(scene: &Scene<'_>, own: usize) -> BTreeSet<FunctionName> {
    let uplinks = scene.model.guests.values().flat_map(|guest| guest.nics.values()).filter_map(|nic| {
        match &nic.uplink {
            Some(Uplink::Function(function)) => Some(function.clone()),
            Some(Uplink::Interface(_)) | None => None,
        }
    });
    let mut all = reach::functions(scene.model);
    all.extend(uplinks);
    all.extend(scene.model.board.cables.iter().flatten().map(pf_of));
    if all.len() + own > sample::ALL_UP_TO {
        all.retain(|function| function.vf.is_none());
    }
    all
}
