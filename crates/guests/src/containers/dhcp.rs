//! Leases of IPv4 for interfaces of containers (RFC 2131).
//!
//! A DHCP client of the container's own root asks for them, inside, with no more rights than any program there: what a server answers reaches
//! programs of the container alone. It is started when the interface has its link, lives as long as the container does, and renews the lease.

use std::time::{Duration, Instant};

use penstock_host::{Command, Place, chain, process, running::Running};
use penstock_model::{GuestName, InterfaceName, dhcp};
use penstock_plan::action::GuestDefinition;

use super::{Containers, place::ContainerPlace};
use crate::error::GuestError;

/// What a shell inside runs ([`Containers::ask_for_leases`]).
const PROGRAM: &str = include_str!("dhcp.sh");

/// The clients that it knows, in the order in which it looks for them, and what may be one of them.
const CLIENTS: [&str; 4] = ["udhcpc", "dhcpcd", "dhclient", "busybox"];

/// How long a client may take; each of them gives up before.
const LONGEST: Duration = Duration::from_secs(30);

/// No more than this of what it says is told.
const SAID: usize = 400;

/// The interfaces of a container that are to have a lease.
fn interfaces(definition: &GuestDefinition) -> Vec<InterfaceName> {
    let functions =
        definition.functions.iter().filter(|owned| owned.dhcp).map(|owned| owned.interface.clone());
    let nics = definition.nics.iter().filter(|own| own.nic.dhcp);
    // `check` has seen that each is a name of an interface.
    functions.chain(nics.filter_map(|own| own.name.as_str().parse().ok())).collect()
}

/// Refuses a lease where no client can be inside, before anything is started: the programs of the default root are the host's.
///
/// # Errors
///
/// [`GuestError::NoLease`] with the first interface.
pub fn check(definition: &GuestDefinition) -> Result<(), GuestError> {
    let wanted = interfaces(definition);
    let (Some(interface), None) = (wanted.first(), &definition.root) else { return Ok(()) };
    match CLIENTS.into_iter().any(|name| process::find(name).is_some()) {
        true => Ok(()),
        false => Err(GuestError::NoLease {
            guest: definition.guest.clone(),
            interface: interface.clone(),
            why: "there is no DHCP client on this host, whose programs it has: none of udhcpc, dhcpcd, dhclient".to_owned(),
        }),
    }
}

impl Containers {
    /// Has a client inside ask for the leases that the definition wants, one interface after the other.
    ///
    /// # Errors
    ///
    /// [`GuestError::NoLease`] with the first that there is none for, and what the client said.
    pub(super) fn ask_for_leases(
        &self,
        definition: &GuestDefinition,
        init: Running,
        deadline: Instant,
    ) -> Result<(), GuestError> {
        let wanted = interfaces(definition);
        if wanted.is_empty() {
            return Ok(());
        }
        let guest = &definition.guest;
        let place = ContainerPlace::new(self.root.clone(), self.state.clone(), guest.clone(), init);
        // Into a root of its own nothing is written, and the model's own name servers stay.
        let mut resolver = definition.root.is_none() && definition.dns.is_none();
        for (position, interface) in wanted.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now()).min(LONGEST);
            let metric = dhcp::metric(position);
            ask(&place, guest, interface, metric, resolver, left)?;
            resolver = false;
        }
        Ok(())
    }
}

fn ask(
    place: &ContainerPlace,
    guest: &GuestName,
    interface: &InterfaceName,
    metric: u32,
    resolver: bool,
    timeout: Duration,
) -> Result<(), GuestError> {
    let refused =
        |why: String| GuestError::NoLease { guest: guest.clone(), interface: interface.clone(), why };
    let resolver = if resolver { "yes" } else { "no" };
    let command = Command::new("/bin/sh")
        .args(["-c", PROGRAM, "sh", interface.as_str(), &metric.to_string(), resolver])
        .deadline(timeout);
    let output = place.run(&command).map_err(|error| refused(chain(&error)))?;
    if output.status.success() && dhcp::Lease::read(&output.text()).is_some() {
        return Ok(());
    }
    let said = output.text() + " " + &output.errors();
    let said: Vec<&str> = said.split_whitespace().collect();
    let said: String = said.join(" ").chars().filter(|c| !c.is_control()).take(SAID).collect();
    Err(refused(if said.is_empty() { "the shell inside did not say why".to_owned() } else { said }))
}
