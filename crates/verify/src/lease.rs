//! The lease of an interface inside a guest: an address of IPv4 that the model does not give, and the default route that came with it.

use penstock_host::InterfaceReport;
use penstock_model::{
    GuestName, InterfaceAddress, InterfaceName, Outcome,
    dhcp::{Lease, lease_file},
};

use super::{
    observation::Observation,
    writer::{Unobserved, VerdictWriter},
};

/// A note of a lease is one line.
const LIMIT: usize = 4096;

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

/// What the client of a container has noted inside; a VM's notes it elsewhere, if at all.
fn noted(observation: &Observation<'_>, guest: &GuestName, name: &InterfaceName) -> Option<Lease> {
    let bytes = observation.place(guest)?.read(&lease_file(name.as_str()), LIMIT).ok()?;
    Lease::read(&String::from_utf8_lossy(&bytes))
}

fn seen(report: &InterfaceReport, fixed: &[InterfaceAddress], noted: Option<Lease>) -> (String, Outcome) {
    // Those that a host gives itself where nobody answers (RFC 3927) are no lease.
    let is_leased = |address: &&InterfaceAddress| {
        let ip = address.ip();
        ip.is_ipv4()
            && !matches!(ip, std::net::IpAddr::V4(ip) if ip.is_link_local())
            && !fixed.contains(address)
    };
    let leased: Vec<&InterfaceAddress> = report.interface.addresses.iter().filter(is_leased).collect();
    let Some(lease) = noted.filter(|lease| leased.contains(&&lease.address)) else {
        let all: Vec<String> = leased.iter().map(ToString::to_string).collect();
        return match all.is_empty() {
            true => ("no lease".to_owned(), Outcome::Fail),
            false => (all.join(", "), Outcome::Pass),
        };
    };
    let Lease { client, address, router } = lease;
    let Some(router) = router else {
        return (format!("{address} without a router, by {client}"), Outcome::Pass);
    };
    let leads = |routes: &Vec<penstock_model::InterfaceRoute>| {
        routes.iter().any(|route| route.destination.prefix() == 0 && route.gateway == Some(router.into()))
    };
    match report.routes.as_ref().map(leads) {
        Some(true) => (format!("{address} via {router}, by {client}"), Outcome::Pass),
        Some(false) => {
            (format!("{address} by {client}, and its default route via {router} is gone"), Outcome::Fail)
        }
        None => ("its routes were not reported".to_owned(), Outcome::Unknown),
    }
}
