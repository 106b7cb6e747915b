//! Routes inside containers, set by `ip`(8) before the first process, and again when their interface was down.
//!
//! LXC has a key for gateways alone (`lxc.net.N.ipv4.gateway`), and none for other routes inside. A container's root may change them as it
//! likes; verification tells.

use std::{fmt::Write, time::Duration};

use penstock_host::{Command, InterfaceReport, Netlink, chain, process, process::quoted};
use penstock_model::{GuestName, InterfaceRoute};
use penstock_plan::action::GuestDefinition;

use crate::{error::GuestError, route};

/// How long `ip` may take.
const MOMENT: Duration = Duration::from_secs(15);

/// How the script says that it is at a route; behind it are the interface and the route.
pub const WORD: &str = "route";

/// Refuses routes that cannot be set here, before anything is started.
///
/// # Errors
///
/// [`GuestError::NoRoute`] with the first route and the program that is missing.
pub fn check(definition: &GuestDefinition) -> Result<(), GuestError> {
    let functions = definition.functions.iter();
    let functions = functions.map(|function| (function.interface.to_string(), &function.routes));
    let nics = definition.nics.iter().map(|own| (own.name.to_string(), &own.nic.routes));
    let mut routes =
        functions.chain(nics).filter_map(|(interface, routes)| Some((interface, routes.first()?)));
    let Some((interface, route)) = routes.next() else { return Ok(()) };
    match ["nsenter", "ip"].into_iter().find(|name| process::find(name).is_none()) {
        None => Ok(()),
        Some(program) => Err(GuestError::NoRoute {
            guest: definition.guest.clone(),
            interface,
            route: route.to_string(),
            why: process::not_installed(program),
        }),
    }
}

/// Adds the commands that set these routes over an interface.
pub fn commands(script: &mut String, interface: &str, routes: &[InterfaceRoute]) {
    let interface = quoted(interface);
    for one in routes {
        // Writing to a `String` cannot fail.
        let _ =
            writeln!(script, "say {WORD} {interface} {one}\ninside ip {}", route::arguments(one, &interface));
    }
}

/// Sets those of these routes over an interface inside that are not there: the kernel takes them away with the link. `init` is the first
/// process, whose namespace `inside` is.
///
/// # Errors
///
/// [`GuestError::NoRoute`] with the first that cannot be set; [`GuestError::Netlink`] when those that are there cannot be listed.
pub fn put_back(
    guest: &GuestName,
    inside: &mut Netlink,
    init: u32,
    found: &InterfaceReport,
    routes: &[InterfaceRoute],
) -> Result<(), GuestError> {
    if routes.is_empty() {
        return Ok(());
    }
    let there = inside.routes_over(found.index)?;
    let interface = found.interface.name.as_str();
    for route in routes.iter().filter(|route| !there.iter().any(|found| route.is_met_by(found))) {
        let command = format!("exec ip {}", route::arguments(route, &quoted(interface)));
        let run = Command::new("nsenter")
            .args(["-t", &init.to_string(), "-n", "--", "/bin/sh", "-c", &command])
            .deadline(MOMENT);
        run.succeed().map_err(|error| GuestError::NoRoute {
            guest: guest.clone(),
            interface: interface.to_owned(),
            route: route.to_string(),
            why: chain(&error),
        })?;
    }
    Ok(())
}
