//! What a run is given to work with: the places of a machine, and where each function's interface is.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::Arc,
    thread,
};

use indexmap::IndexMap;
use penstock_apply::GuestPlace;
use penstock_host::{Here, InterfaceReport, PciFunction, Place, Root, chain, files, interface_of};
use penstock_measure::{
    network,
    scene::{Scene, Station},
};
use penstock_model::{
    Bdf, FunctionName, GuestName, InterfaceAddress, Inventory, Model, Mtu, NicName, verdict::Vantage,
};

/// The places and interfaces of a model on this machine. Guests are looked into all at once, and consumed: nobody else
/// looks into them while they are measured.
pub fn scene(
    model: &Model,
    nics: &IndexMap<NicName, Bdf>,
    guests: BTreeMap<GuestName, GuestPlace>,
    root: &Root,
) -> Scene {
    let here: Arc<dyn Place> = Arc::new(Here::new(root.clone()));
    let mut places: BTreeMap<Vantage, Result<Arc<dyn Place>, String>> =
        BTreeMap::from([(Vantage::Host, Ok(here))]);
    for (name, place) in guests {
        let place = match place {
            GuestPlace::Running(place) => Ok(Arc::from(place)),
            GuestPlace::NotRunning(why) => Err(format!("{name} does not run: {why}")),
            GuestPlace::Closed(why) | GuestPlace::Unseen(why) => {
                Err(format!("nothing can be run inside {name}: {why}"))
            }
        };
        places.insert(Vantage::Guest(name), place);
    }
    let interfaces = look(&places);
    let stations = functions(model)
        .into_iter()
        .map(|function| {
            let station = station(model, nics, &function, &interfaces, root);
            (function, station)
        })
        .collect();
    // A path that cannot be told makes what needs the program missing, with that reason.
    let program = env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    Scene { places, stations, program }
}

/// Why nothing of what was wanted can be measured; `None` when at least one guest can be looked into.
pub fn nobody_there(scene: &Scene) -> Option<String> {
    let guests: Vec<_> = scene.places.iter().filter(|(vantage, _)| **vantage != Vantage::Host).collect();
    if guests.iter().any(|(_, place)| place.is_ok()) {
        return None;
    }
    let whys: BTreeSet<&str> =
        guests.iter().filter_map(|(_, place)| place.as_ref().err()).map(String::as_str).collect();
    match whys.into_iter().collect::<Vec<_>>().as_slice() {
        [] => Some("the model has no guests".to_owned()),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
            Some(format!("{first}{more}"))
        }
    }
}

/// Why the machine's numbers mean nothing outside it, as far as its inventory tells; `None` for a real one.
pub fn emulated(inventory: &Inventory, nics: &IndexMap<NicName, Bdf>, root: &Root) -> Option<String> {
    for (name, bdf) in nics {
        let Some(pf) = inventory.pf(*bdf) else { continue };
        if pf.identity.is_virtio() {
            return Some(format!("{name} is a virtio device: a hypervisor emulates it"));
        }
        if pf.identity.is_imitated() {
            let ids = pf.identity.ids;
            let subsystem = format!("{:04x}:{:04x}", ids.subsystem_vendor, ids.subsystem);
            return Some(format!("{name} is emulated by QEMU (subsystem {subsystem})"));
        }
    }
    // A NIC passed through to a VM is real, and the processors that it interrupts are not: nothing is claimed of those.
    let cpus = files::read_at_most(root.path("/proc/cpuinfo"), 1 << 20).ok()?.0;
    let text = String::from_utf8_lossy(&cpus);
    let flags = text.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"))?;
    let virtual_machine = flags.split_whitespace().any(|flag| flag == "hypervisor");
    virtual_machine.then(|| "this machine is itself a virtual machine (CPU flag hypervisor)".to_owned())
}

/// Every function that can be an end: the guests', and the PFs.
fn functions(model: &Model) -> BTreeSet<FunctionName> {
    let pfs = model.nics.keys().map(|nic| FunctionName { nic: nic.clone(), vf: None });
    let owned =
        model.guests.values().flat_map(|guest| &guest.functions).map(|function| function.name.clone());
    pfs.chain(owned).collect()
}

type Interfaces = BTreeMap<Vantage, Result<Vec<InterfaceReport>, String>>;

/// The interfaces of each place: a VM takes its time to answer.
fn look(places: &BTreeMap<Vantage, Result<Arc<dyn Place>, String>>) -> Interfaces {
    thread::scope(|scope| {
        let looking: Vec<_> = places
            .iter()
            .map(|(vantage, place)| {
                let looked = scope.spawn(move || match place {
                    Ok(place) => place.interfaces().map_err(|error| chain(&error)),
                    Err(why) => Err(why.clone()),
                });
                (vantage.clone(), looked)
            })
            .collect();
        let seen = looking.into_iter().map(|(vantage, thread)| {
            (vantage, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        seen.collect()
    })
}

fn station(
    model: &Model,
    nics: &IndexMap<NicName, Bdf>,
    function: &FunctionName,
    interfaces: &Interfaces,
    root: &Root,
) -> Result<Station, String> {
    let owner = model.owner(function);
    let home = owner.map_or(Vantage::Host, |(guest, _)| Vantage::Guest(guest.clone()));
    let address = address(nics, function, root)?;
    let there = match interfaces.get(&home) {
        Some(Ok(there)) => there,
        Some(Err(why)) => return Err(why.clone()),
        None => return Err(format!("{home} was not looked at")),
    };
    let found = interface_of(address, there, root).ok_or_else(|| {
        format!(
            "{function} ({address}) has no interface {}",
            if owner.is_some() { home.to_string() } else { "on the host".to_owned() }
        )
    })?;
    let interface = found.interface;
    // What the model itself gives a guest's interface is nobody else's.
    let given: &[InterfaceAddress] = owner.map_or(&[], |(_, owned)| &owned.addresses);
    let foreign = |address: &&InterfaceAddress| !is_link_local(address) && !given.contains(address);
    let in_use = interface.addresses.iter().any(|address| foreign(&address))
        || (home == Vantage::Host
            && (is_part(root, interface.name.as_str()) || has_route(root, interface.name.as_str())));
    Ok(Station {
        mac: interface.mac,
        mtu: Mtu::new(interface.mtu).ok_or_else(|| format!("{function} has an MTU of {}", interface.mtu))?,
        carrier: interface.carrier,
        speed: interface.speed,
        interface: interface.name,
        in_use,
    })
}

fn address(nics: &IndexMap<NicName, Bdf>, function: &FunctionName, root: &Root) -> Result<Bdf, String> {
    let pf = *nics.get(&function.nic).ok_or_else(|| format!("{} was not found here", function.nic))?;
    let Some(wanted) = function.vf else { return Ok(pf) };
    let vfs = PciFunction::new(root, pf).virtual_functions().map_err(|error| chain(&error))?;
    let found = vfs.into_iter().find(|(index, _)| *index == wanted);
    found.map(|(_, address)| address).ok_or_else(|| format!("there is no {function}"))
}

fn is_link_local(address: &InterfaceAddress) -> bool {
    match address.ip() {
        std::net::IpAddr::V4(v4) => v4.is_link_local(),
        std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Whether it is a port of a bridge or bond, or has a VLAN or the like on it. A bridge of a run that was killed does not count:
/// the next run removes it.
fn is_part(root: &Root, interface: &str) -> bool {
    let directory = format!("/sys/class/net/{interface}");
    let above = files::list(root.path(&directory)).unwrap_or_default();
    let mut above = above.iter().filter_map(|name| name.strip_prefix("upper_"));
    above.any(|name| !left_over(root, name))
}

fn left_over(root: &Root, link: &str) -> bool {
    let alias = files::read_to_string(root.path(format!("/sys/class/net/{link}/ifalias")));
    alias.is_ok_and(|alias| network::is_of_a_run(alias.trim_end()))
}

/// Whether an IPv4 route leaves by the interface. Routes of IPv6 that matter have an address of their own beside them.
fn has_route(root: &Root, interface: &str) -> bool {
    let table = files::read_to_string(root.path("/proc/net/route")).unwrap_or_default();
    table.lines().skip(1).any(|line| line.split_whitespace().next() == Some(interface))
}
