//! How the host uses an interface: brought back, and looked at.

use std::{
    thread,
    time::{Duration, Instant},
};

use penstock_host::{InterfaceReport, Lower, Netlink, NetlinkError, interrupt};
use penstock_model::{Bdf, InterfaceAddress, InterfaceRoute, PortVlans, inventory::Master};
use penstock_plan::{ExecuteError, InterfaceSetup, VlanSetup};

use super::{Found, HostExecutor, PROBED, beside_its_pf, failed, from_netlink, users::is_away};

/// How long a gateway may take to be reachable over an interface that has just come up.
const REACHABLE: Duration = Duration::from_secs(5);

/// Brings back what an interface lacks of `setup`. What is so already is left alone.
///
/// # Errors
///
/// When the interface cannot be looked at or is not on the host, or the kernel refuses something of `setup`.
pub fn restore(
    executor: &mut HostExecutor,
    function: Bdf,
    setup: &InterfaceSetup,
    until: Instant,
) -> Result<(), ExecuteError> {
    if is(executor, function, setup)?.is_ok() {
        return Ok(());
    }
    await_return(executor, function, until.min(Instant::now() + PROBED))?;
    if let Some(name) = &setup.name {
        executor.rename(function, name, until)?;
    }
    let found = executor.interface(function)?;
    bring_back(executor, function, &found, setup, until)
}

/// Waits until an interface that a function's driver gives it is here: a probe may still be about to make it. Nobody waits for one that somebody
/// is seen to have.
fn await_return(executor: &HostExecutor, function: Bdf, until: Instant) -> Result<(), ExecuteError> {
    let attempt = format!("{function} was not set up as the host had it");
    let is_away = || is_away(&executor.root, function).unwrap_or(false);
    let (mut looked, mut late) = (false, false);
    while is_away() {
        late |= Instant::now() >= until || interrupt::pending();
        // Looking at all processes is much: at first, and once more when it has not come.
        if !looked || late {
            match executor.users.who_has_interface(&executor.root, function) {
                Ok(who) => {
                    return Err(ExecuteError::Refused {
                        what: format!("{attempt}: {who} has its interface"),
                        hint: "stop who uses it, or have it give the interface back; `penstock undo` then brings back what the host had of it"
                            .to_owned(),
                    });
                }
                Err(unseen) if late && is_away() => {
                    let unseen = unseen.map(|why| format!(": {why}")).unwrap_or_default();
                    return Err(ExecuteError::Failed {
                        attempt,
                        source: format!("its interface is not here, and nobody was seen to have it{unseen}")
                            .into(),
                    });
                }
                Err(_) => looked = true,
            }
        }
        (executor.pause)(&executor.root);
    }
    Ok(())
}

/// Brings back what a function's interface, or that of a VLAN on it, lacks of `setup` but its name.
fn bring_back(
    executor: &mut HostExecutor,
    function: Bdf,
    found: &Found,
    setup: &InterfaceSetup,
    until: Instant,
) -> Result<(), ExecuteError> {
    let at = format!("{} ({function}) was not set up as it was", found.name);
    let netlink = |error| from_netlink(&at, error);
    if let Some(mtu) = setup.mtu {
        executor.netlink.set_mtu(found.index, mtu).map_err(netlink)?;
    }
    if let Some(master) = &setup.master
        && let Some(link) = executor.netlink.link_at(found.index).map_err(netlink)?
    {
        if let Some(master) = lacking(&mut executor.netlink, &link, master).map_err(netlink)? {
            enter(executor, function, &link, &master).map_err(|error| {
                failed(&format!("{at}: it is no port of {}", master.interface.name), error)
            })?;
        }
        if let Some((present, wanted)) =
            other_vlans(&mut executor.netlink, found.index, master).map_err(netlink)?
        {
            executor.netlink.set_port_vlans(found.index, &present, wanted).map_err(netlink)?;
        }
    }
    if setup.up {
        let root = executor.root.clone();
        beside_its_pf(&root, function, 0, || executor.netlink.set_up(found.index, true)).map_err(netlink)?;
    }
    let (addresses, routes) = present(executor, found).map_err(netlink)?;
    let (addresses, routes) = setup.missing_from((&addresses, &routes));
    for address in addresses {
        executor.netlink.add_address(found.index, address).map_err(netlink)?;
    }
    let reachable = until.min(Instant::now() + REACHABLE);
    for route in routes {
        add_route(executor, found, route, reachable)
            .map_err(|error| failed(&format!("{at}: it lacks the route {route}"), error))?;
    }
    for vlan in &setup.vlans {
        if let Some(upper) = have_vlan(&mut executor.netlink, found, vlan).map_err(netlink)? {
            bring_back(executor, function, &upper, &vlan.setup, until)?;
        }
    }
    Ok(())
}

/// The interface of a VLAN, or that there is none.
enum OnTop {
    There(Found),
    /// Another interface has its name: somebody has set it up anew.
    NameTaken,
    Lacking,
}

/// Looks for the interface of a VLAN over `lower`, whatever its name.
fn find_vlan(netlink: &mut Netlink, lower: &Found, vlan: &VlanSetup) -> Result<OnTop, NetlinkError> {
    let stands = |upper: &Lower| {
        upper.index == lower.index && upper.vlan.as_ref().is_some_and(|tag| tag.is_that_of(&vlan.tag))
    };
    let links = netlink.links()?;
    if let Some(link) = links.iter().find(|link| link.lower.as_ref().is_some_and(stands)) {
        return Ok(OnTop::There(Found { name: link.interface.name.to_string(), index: link.index }));
    }
    // By an alternative name, too.
    Ok(match netlink.link_named(&vlan.name)? {
        Some(_) => OnTop::NameTaken,
        None => OnTop::Lacking,
    })
}

/// The interface of a VLAN over `lower`, made where it is lacking; `None` where another has its name.
fn have_vlan(netlink: &mut Netlink, lower: &Found, vlan: &VlanSetup) -> Result<Option<Found>, NetlinkError> {
    let mut found = find_vlan(netlink, lower, vlan)?;
    if let OnTop::Lacking = found {
        netlink.add_vlan(lower.index, &vlan.name, vlan.mac, &vlan.tag)?;
        found = find_vlan(netlink, lower, vlan)?;
    }
    match found {
        OnTop::There(upper) => Ok(Some(upper)),
        OnTop::NameTaken => Ok(None),
        OnTop::Lacking => {
            let attempt = format!("look at {} of {}, which was just made", vlan.name, vlan.tag);
            Err(NetlinkError::NoSuchInterface { attempt })
        }
    }
}

/// What an interface is no port of and should be, if there is such an interface and it is a port of no other.
fn lacking(
    netlink: &mut Netlink,
    link: &InterfaceReport,
    master: &Master,
) -> Result<Option<InterfaceReport>, NetlinkError> {
    if link.master.is_some() {
        return Ok(None);
    }
    netlink.link_named(&master.name)
}

/// The VLANs that a port of `master` has, and those that it is to be given in their place; `None` where there is nothing to give.
fn other_vlans<'a>(
    netlink: &mut Netlink,
    port: u32,
    master: &'a Master,
) -> Result<Option<(PortVlans, &'a PortVlans)>, NetlinkError> {
    let Some(wanted) = &master.vlans else { return Ok(None) };
    let (Some(bridge), Some(link)) = (netlink.link_named(&master.name)?, netlink.link_at(port)?) else {
        return Ok(None);
    };
    if link.master != Some(bridge.index) {
        return Ok(None);
    }
    let present = netlink.port_vlans()?.into_iter().find_map(|(of, vlans)| (of == port).then_some(vlans));
    let default = netlink.default_pvid(bridge.index)?;
    Ok(present.filter(|present| wanted.are_lacking(present, default)).map(|present| (present, wanted)))
}

/// Makes an interface a port. A bond takes none that is up, and brings it up itself (`drivers/net/bonding/bond_main.c`,
/// `bond_enslave`).
fn enter(
    executor: &mut HostExecutor,
    function: Bdf,
    link: &InterfaceReport,
    master: &InterfaceReport,
) -> Result<(), NetlinkError> {
    if link.interface.up && master.kind.as_deref() == Some("bond") {
        let root = executor.root.clone();
        beside_its_pf(&root, function, 0, || executor.netlink.set_up(link.index, false))?;
    }
    executor.netlink.set_master(link.index, master.index)
}

/// Adds a route, again until its gateway is known to be on the link.
fn add_route(
    executor: &mut HostExecutor,
    found: &Found,
    route: &InterfaceRoute,
    until: Instant,
) -> Result<(), NetlinkError> {
    let mut pause = Duration::from_millis(5);
    loop {
        match executor.netlink.add_route(found.index, route) {
            Err(NetlinkError::Refused { .. }) if Instant::now() + pause < until => thread::sleep(pause),
            outcome => return outcome,
        }
        pause *= 2;
    }
}

/// Whether an interface has all of `setup`: so, or what it lacks.
///
/// # Errors
///
/// When the interface cannot be looked at.
pub fn is(
    executor: &mut HostExecutor,
    function: Bdf,
    setup: &InterfaceSetup,
) -> Result<Result<(), String>, ExecuteError> {
    let Some(found) = executor.find(function)? else {
        return Ok(Err(format!("{function} has no network interface on the host")));
    };
    if let Some(name) = setup.name.as_ref().filter(|name| name.as_str() != found.name) {
        return Ok(Err(format!("it is called {}, not {name}", found.name)));
    }
    is_used_so(executor, &found, setup)
}

/// Whether a function's interface, or that of a VLAN on it, has all of `setup` but its name.
fn is_used_so(
    executor: &mut HostExecutor,
    found: &Found,
    setup: &InterfaceSetup,
) -> Result<Result<(), String>, ExecuteError> {
    let at = format!("could not look at {}", found.name);
    let netlink = |error| from_netlink(&at, error);
    let Some(link) = executor.netlink.link_at(found.index).map_err(netlink)? else {
        return Ok(Err(format!("{} is gone", found.name)));
    };
    if let Some(mtu) = setup.mtu.filter(|mtu| mtu.get() != link.interface.mtu) {
        return Ok(Err(format!("its MTU is {}, not {mtu}", link.interface.mtu)));
    }
    if setup.up && !link.interface.up {
        return Ok(Err("it is down".to_owned()));
    }
    if let Some(master) = &setup.master
        && lacking(&mut executor.netlink, &link, master).map_err(netlink)?.is_some()
    {
        return Ok(Err(format!("it is no port of {}", master.name)));
    }
    if let Some(master) = &setup.master
        && let Some((present, wanted)) =
            other_vlans(&mut executor.netlink, found.index, master).map_err(netlink)?
    {
        return Ok(Err(format!("at {} it has {present}, not {wanted}", master.name)));
    }
    let (addresses, routes) = present(executor, found).map_err(netlink)?;
    let (addresses, routes) = setup.missing_from((&addresses, &routes));
    if let Some(address) = addresses.first() {
        return Ok(Err(format!("it lacks the address {address}")));
    }
    if let Some(route) = routes.first() {
        return Ok(Err(format!("it lacks the route {route}")));
    }
    for vlan in &setup.vlans {
        let upper = match find_vlan(&mut executor.netlink, found, vlan).map_err(netlink)? {
            OnTop::There(upper) => upper,
            OnTop::NameTaken => continue,
            OnTop::Lacking => return Ok(Err(format!("it has no {} ({})", vlan.name, vlan.tag))),
        };
        if let Err(why) = is_used_so(executor, &upper, &vlan.setup)? {
            return Ok(Err(format!("{}: {why}", upper.name)));
        }
    }
    Ok(Ok(()))
}

/// The addresses of an interface, and the routes over it.
fn present(
    executor: &mut HostExecutor,
    found: &Found,
) -> Result<(Vec<InterfaceAddress>, Vec<InterfaceRoute>), NetlinkError> {
    let netlink = &mut executor.netlink;
    Ok((netlink.addresses_of(found.index)?, netlink.routes_over(found.index)?))
}
