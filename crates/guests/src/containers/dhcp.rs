//! Leases of IPv4 for interfaces of containers (RFC 2131).
//!
//! A DHCP client of the container's own root asks for them, inside, with no more rights than any program there: what a server answers reaches
//! programs of the container alone. It lives as long as the container does, asks until it has an answer, and renews the lease. A start
//! waits for the lease, and does not fail without it: a server that is late must not end a container that an undo or a boot brings back.

use std::{
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Command, Place, PlaceError, ProcessError, chain, complain, interrupt, process, running::Running,
};
use penstock_model::{GuestName, InterfaceName, dhcp};
use penstock_plan::action::GuestDefinition;

use super::{Containers, place::ContainerPlace};
use crate::error::GuestError;

/// What a shell inside runs ([`Containers::ask_for_leases`]).
const PROGRAM: &str = include_str!("dhcp.sh");

/// What the client runs.
const EVENT: &str = include_str!("dhcp-event.sh");

/// How long all leases of a container are waited for. A port with a spanning tree forwards nothing for as long.
const LONGEST: Duration = Duration::from_secs(35);

/// How long the shell may take that starts a client; it needs milliseconds.
const SHELL: Duration = Duration::from_secs(10);

/// A client that is not seen for so long has ended: while the kernel puts a program in the place of the shell that started it, it has no command
/// line.
const ENDED: Duration = Duration::from_secs(3);

/// How often it is looked whether a lease is there.
const LOOK: Duration = Duration::from_millis(50);

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

/// The addresses of IPv4 that the model gives it, with spaces between.
fn fixed(definition: &GuestDefinition) -> String {
    let functions = definition.functions.iter().flat_map(|owned| &owned.addresses);
    let nics = definition.nics.iter().flat_map(|own| &own.nic.addresses);
    let fixed = functions.chain(nics).map(|address| address.ip()).filter(|ip| ip.is_ipv4());
    fixed.map(|ip| ip.to_string()).collect::<Vec<_>>().join(" ")
}

/// Refuses a lease where no client can be inside, before anything is started: the programs of the default root are the host's.
///
/// # Errors
///
/// [`GuestError::NoLease`] with the first interface.
pub fn check(definition: &GuestDefinition) -> Result<(), GuestError> {
    let wanted = interfaces(definition);
    let (Some(interface), None) = (wanted.first(), &definition.root) else { return Ok(()) };
    let is_there = |name: &&str| process::find(name).is_some();
    let why = match dhcp::CLIENTS.iter().any(is_there) {
        true if is_there(&"ip") => return Ok(()),
        true => "there is no program ip on this host, whose programs it has",
        false => {
            "there is no DHCP client on this host, whose programs it has: none of udhcpc, dhcpcd, dhclient"
        }
    };
    Err(GuestError::NoLease {
        guest: definition.guest.clone(),
        interface: interface.clone(),
        why: why.to_owned(),
    })
}

impl Containers {
    /// Has clients inside ask for the leases that the definition wants, and waits for these until the deadline, and no longer than
    /// [`LONGEST`]. What is late is said, and asked for by the client as long as the container runs.
    ///
    /// # Errors
    ///
    /// [`GuestError::NoLease`] with the first interface whose client cannot be started or has ended, and what it said.
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
        let began = Instant::now();
        let deadline = deadline.min(began + LONGEST);
        let fixed = fixed(definition);
        // The resolver of a root of its own is its own, and the model's name servers stay.
        let mut resolver = definition.root.is_none() && definition.dns.is_none();
        // All of them ask before one is waited for.
        let mut asked = Vec::new();
        for (position, interface) in wanted.iter().enumerate() {
            match start_client(&place, interface, dhcp::metric(position), resolver, &fixed) {
                Ok(()) => asked.push(interface),
                Err(Unstarted::Refused(why)) => return Err(refused(guest, interface, why)),
                Err(Unstarted::Silent) => complain!(
                    "guest {guest}: its shell did not start a DHCP client for {interface} within {} s; the guest runs without that lease",
                    SHELL.as_secs()
                ),
            }
            resolver = false;
        }
        for interface in asked {
            await_lease(&place, guest, interface, began, deadline)?;
        }
        Ok(())
    }
}

/// Why there is no client.
#[derive(Debug)]
enum Unstarted {
    /// It cannot be started, in words.
    Refused(String),
    /// The shell that was to start it did not end.
    Silent,
}

/// Has a shell inside start a client, unless it runs already.
fn start_client(
    place: &impl Place,
    interface: &InterfaceName,
    metric: u32,
    resolver: bool,
    fixed: &str,
) -> Result<(), Unstarted> {
    let resolver = if resolver { "yes" } else { "no" };
    let command = Command::new("/bin/sh")
        .args(["-c", PROGRAM, "sh", interface.as_str(), &metric.to_string(), resolver, fixed, EVENT])
        .deadline(SHELL);
    let output = place.run(&command).map_err(|error| match error {
        // Their words have the whole program in them.
        PlaceError::Process { source: ProcessError::TimedOut { .. }, .. } => Unstarted::Silent,
        PlaceError::Process { source: ProcessError::Interrupted { .. }, .. } => {
            Unstarted::Refused("it was interrupted".to_owned())
        }
        error => Unstarted::Refused(shortened(&chain(&error))),
    })?;
    if output.status.success() && output.text().starts_with("client ") {
        return Ok(());
    }
    let said = shortened(&(output.text() + " " + &output.errors()));
    Err(Unstarted::Refused(if said.is_empty() {
        "the shell inside did not say why".to_owned()
    } else {
        said
    }))
}

/// Waits until the lease is noted. That it is not is said.
fn await_lease(
    place: &impl Place,
    guest: &GuestName,
    interface: &InterfaceName,
    began: Instant,
    deadline: Instant,
) -> Result<(), GuestError> {
    let mut ended: Option<Instant> = None;
    loop {
        if dhcp::noted(|path, limit| place.read(path, limit).ok(), interface.as_str()).is_some() {
            return Ok(());
        }
        let said = || {
            let log = place.read(&dhcp::log_file(interface.as_str()), 16 << 10).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let last: Vec<&str> = log.lines().rev().take(3).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            shortened(&last.join("; "))
        };
        if dhcp::client_runs(|path, limit| place.read(path, limit).ok(), interface.as_str()) {
            ended = None;
        } else if ended.get_or_insert_with(Instant::now).elapsed() >= ENDED {
            return Err(refused(guest, interface, format!("its DHCP client has ended: {}", said())));
        }
        if ended.is_none() && (Instant::now() >= deadline || interrupt::pending()) {
            complain!(
                "guest {guest} runs, and its interface {interface} has no lease after {} s: {}; the client inside asks on, and `penstock verify` \
                 tells whether it has one",
                began.elapsed().as_secs(),
                match said() {
                    said if said.is_empty() => "its client has not said why".to_owned(),
                    said => said,
                }
            );
            return Ok(());
        }
        thread::sleep(LOOK);
    }
}

fn refused(guest: &GuestName, interface: &InterfaceName, why: String) -> GuestError {
    GuestError::NoLease { guest: guest.clone(), interface: interface.clone(), why }
}

/// One line of what something inside said.
fn shortened(said: &str) -> String {
    let words: Vec<&str> = said.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !penstock_model::text::is_hidden(*c)).take(SAID).collect()
}

#[cfg(test)]
mod tests;
