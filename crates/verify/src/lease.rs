//! The lease of an interface inside a guest: an address of IPv4 that the model does not give, and the default route that came with it.

use penstock_host::InterfaceReport;
use penstock_model::{
    GuestName, InterfaceAddress, InterfaceName, Outcome,
    dhcp::{self, DhcpLease},
};

use super::{
    observation::Observation,
    writer::{Unobserved, VerdictWriter},
};

/// Judges the lease of an interface that has these addresses beside it.
pub fn judge(
    observation: &Observation<'_>,
    guest: &GuestName,
    (name, fixed): (&InterfaceName, &[InterfaceAddress]),
    report: Result<&InterfaceReport, Unobserved>,
    page: &mut VerdictWriter<'_>,
) {
    let (seen, outcome) = match report {
        Ok(report) => seen(report, fixed, noted(observation, guest, name)),
        Err(unobserved) => unobserved.outcome(),
    };
    page.put_item("addresses", Some("dhcp".to_owned()), "dhcp", seen, outcome);
}

/// What the client of a container has noted inside, and whether it runs; a VM's notes it elsewhere, if at all.
fn noted(
    observation: &Observation<'_>,
    guest: &GuestName,
    name: &InterfaceName,
) -> Option<(DhcpLease, bool)> {
    let place = observation.place(guest)?;
    let read = |path: &str, limit: usize| place.read(path, limit).ok();
    Some((dhcp::noted(read, name.as_str())?, dhcp::client_runs(read, name.as_str())))
}

fn seen(
    report: &InterfaceReport,
    fixed: &[InterfaceAddress],
    noted: Option<(DhcpLease, bool)>,
) -> (String, Outcome) {
    // Those that a host gives itself where nobody answers (RFC 3927) are no lease.
    let is_leased = |address: &&InterfaceAddress| {
        let ip = address.ip();
        ip.is_ipv4() && !penstock_model::address::is_link_local(ip) && !fixed.contains(address)
    };
    let leased: Vec<&InterfaceAddress> = report.interface.addresses.iter().filter(is_leased).collect();
    let Some((lease, runs)) = noted.filter(|(lease, _)| leased.contains(&&lease.address)) else {
        let all: Vec<String> = leased.iter().map(ToString::to_string).collect();
        return match all.is_empty() {
            true => ("no lease".to_owned(), Outcome::Fail),
            false => (all.join(", "), Outcome::Pass),
        };
    };
    let DhcpLease { client, address, router } = lease;
    if !runs {
        let seen = format!("{address}, and nobody renews it: its client {client} has ended");
        return (seen, Outcome::Fail);
    }
    let Some(router) = router else {
        return (format!("{address} without a router, by {client}"), Outcome::Pass);
    };
    let leads = |routes: &Vec<penstock_model::InterfaceRoute>| {
        routes.iter().any(|route| route.destination.prefix() == 0 && route.gateway == Some(router.into()))
    };
    match report.routes.as_ref().map(leads) {
        Some(true) => (format!("{address} via {router}, by {client}"), Outcome::Pass),
        Some(false) => (
            format!("{address} by {client}, and there is no default route via its router {router}"),
            Outcome::Fail,
        ),
        None => ("its routes were not reported".to_owned(), Outcome::Unknown),
    }
}
