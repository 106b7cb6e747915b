//! What a run is given to work with: the places of a machine, and where each function's interface is.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fmt,
    sync::Arc,
    thread,
};

use indexmap::IndexMap;
use penstock_guests::vms::{qemu, switch};
use penstock_host::{Here, InterfaceReport, PciFunction, Place, Root, chain, files, interface_of};
use penstock_measure::{
    network,
    testbed::{FunctionInterface, Testbed},
};
use penstock_model::{
    Bdf, Board, DataPath, EndpointName, FunctionName, Guest, GuestKind, GuestName, InterfaceAddress,
    Inventory, Mac, Model, Mtu, NicName, TenantFunctionName, Uplink, address::is_link_local,
    inventory::Interface, verdict::Vantage,
};
use penstock_verify::GuestPlace;

/// The places and interfaces of a model on this machine. Guests are looked into all at once, and consumed: nobody else
/// looks into them while they are measured.
pub fn testbed(
    model: &Model,
    nics: &IndexMap<NicName, Bdf>,
    guests: BTreeMap<GuestName, GuestPlace>,
    root: &Root,
) -> Testbed {
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
    let function_interfaces = functions(model)
        .into_iter()
        .map(|name| {
            let function_interface = match &name {
                EndpointName::Function(function) => {
                    function_interface(model, nics, function, &interfaces, root)
                }
                EndpointName::Tenant(function) => tenant_station(model, function, &interfaces),
            };
            (name, function_interface)
        })
        .collect();
    // A path that cannot be told makes what needs the program missing, with that reason.
    let program = env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let bridges = bridges(model, &interfaces);
    let vms = model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm && !guest.nics.is_empty());
    let vm_groups =
        vms.map(|(name, guest)| (Vantage::Guest(name.clone()), groups(name, guest, root))).collect();
    Testbed { places, function_interfaces, bridges, vm_groups, instruction: instruction(root), program }
}

/// How long an instruction takes, in nanoseconds, where QEMU counts them and the firmware says so (`drivers/firmware/qemu_fw_cfg.c`).
fn instruction(root: &Root) -> Option<u32> {
    let item = format!("/sys/firmware/qemu_fw_cfg/by_name/{}/raw", Board::INSTRUCTION_ITEM);
    files::read_to_string(root.path(item)).ok()?.trim().parse().ok().filter(|nanoseconds| *nanoseconds > 0)
}

/// Why nothing of what was wanted can be measured; `None` when at least one guest can be looked into.
pub fn nobody_there(testbed: &Testbed) -> Option<String> {
    let guests: Vec<_> = testbed.places.iter().filter(|(vantage, _)| **vantage != Vantage::Host).collect();
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

/// Every function that can be an end: the guests', the PFs, and those of NICs that VMs own.
fn functions(model: &Model) -> BTreeSet<EndpointName> {
    let pfs = model.nics.keys().map(|nic| FunctionName { nic: nic.clone(), vf: None });
    let owned =
        model.guests.values().flat_map(|guest| &guest.functions).map(|function| function.name.clone());
    let tenants = model.tenant_nics().flat_map(|(guest, name, nic)| {
        nic.functions().map(move |(vf, ..)| {
            let function = FunctionName { nic: name.clone(), vf };
            EndpointName::Tenant(TenantFunctionName { guest: guest.clone(), function })
        })
    });
    pfs.chain(owned).map(EndpointName::from).chain(tenants).collect()
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

fn function_interface(
    model: &Model,
    nics: &IndexMap<NicName, Bdf>,
    function: &FunctionName,
    interfaces: &Interfaces,
    root: &Root,
) -> Result<FunctionInterface, String> {
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
    // What the model itself gives a guest's interface is nobody else's.
    let given: &[InterfaceAddress] = owner.map_or(&[], |(_, owned)| &owned.addresses);
    let foreign = |address: &&InterfaceAddress| !is_link_local(address.ip()) && !given.contains(address);
    let name = found.interface.name.as_str();
    let in_use = found.interface.addresses.iter().any(|address| foreign(&address))
        || (home == Vantage::Host && (is_part(root, name) || has_route(root, name)));
    station_of(found.interface, in_use, function)
}

fn station_of(
    interface: Interface,
    in_use: bool,
    function: &dyn fmt::Display,
) -> Result<FunctionInterface, String> {
    Ok(FunctionInterface {
        mac: interface.mac,
        mtu: Mtu::new(interface.mtu).ok_or_else(|| format!("{function} has an MTU of {}", interface.mtu))?,
        carrier: interface.carrier,
        speed: interface.speed,
        interface: interface.name,
        in_use,
    })
}

/// The interface of a function of a NIC that a VM owns. It is known by its address: what device is behind it, the VM alone says.
fn tenant_station(
    model: &Model,
    name: &TenantFunctionName,
    interfaces: &Interfaces,
) -> Result<FunctionInterface, String> {
    let TenantFunctionName { guest, function } = name;
    let nic = model.guests.get(guest).and_then(|found| found.nics.get(&function.nic));
    let own = nic.and_then(|nic| Some((nic, nic.functions().find(|(vf, ..)| *vf == function.vf)?.1)));
    let (nic, mac): (_, Mac) = own.ok_or_else(|| format!("there is no {name}"))?;
    let there = match interfaces.get(&Vantage::Guest(guest.clone())) {
        Some(Ok(there)) => there,
        Some(Err(why)) => return Err(why.clone()),
        None => return Err(format!("{guest} was not looked into")),
    };
    if nic.is_of_container() {
        // The container may have given it another address: its name is the NIC's.
        let found = there.iter().find(|report| report.interface.name.as_str() == function.nic.as_str());
        let found = found.ok_or_else(|| {
            format!("{name} has no interface inside {guest}: the container has renamed it, or moved it to a network namespace")
        })?;
        return station_of(found.interface.clone(), false, name);
    }
    // A bridge or a VLAN on the interface has its address too.
    let is = |report: &&InterfaceReport| {
        report.interface.mac == mac && report.device.is_none() && report.kind.is_none()
    };
    let found = there.iter().find(is).ok_or_else(|| {
        let elsewhere = match function.vf {
            None => "the VM has given it another address, has no driver for it, or has moved it to a network namespace",
            Some(_) => {
                "the VM has not enabled it (sriov_numvfs), has given it another address, or has moved it to a network namespace, as \
                 that of a container"
            }
        };
        format!("{name} ({mac}) has no interface inside {guest}: {elsewhere}")
    })?;
    let in_use = found.interface.addresses.iter().any(|address| !is_link_local(address.ip()));
    station_of(found.interface.clone(), in_use, name)
}

/// The bridge of the host that each NIC of a container, and each function of a VM's NIC at taps, leads to.
fn bridges(
    model: &Model,
    interfaces: &Interfaces,
) -> BTreeMap<EndpointName, Result<FunctionInterface, String>> {
    let of_containers = model.bridge_ports().map(|port| (port.function(), port.bridge));
    let taps = model.tenant_nics().filter(|(.., nic)| nic.path == DataPath::Tap);
    let of_vms = taps.filter_map(|(guest, name, nic)| Some((guest, name, nic, nic.uplink.as_ref()?)));
    let of_vms = of_vms.flat_map(|(guest, name, nic, bridge)| {
        nic.functions().map(move |(vf, ..)| {
            let function = FunctionName { nic: name.clone(), vf };
            (TenantFunctionName { guest: guest.clone(), function }, bridge)
        })
    });
    let bridges = of_containers.chain(of_vms).filter_map(|(function, bridge)| {
        let Uplink::Interface(bridge) = bridge else { return None };
        let found = match interfaces.get(&Vantage::Host) {
            Some(Ok(here)) => here
                .iter()
                .find(|report| report.interface.name == *bridge)
                .ok_or_else(|| format!("there is no bridge {bridge} on the host"))
                .and_then(|report| station_of(report.interface.clone(), true, bridge)),
            Some(Err(why)) => Err(why.clone()),
            None => Err("the host was not looked at".to_owned()),
        };
        Some((EndpointName::Tenant(function), found))
    });
    bridges.collect()
}

/// `cpu.stat` of the control groups of a VM's QEMU and of its NICs' switches (cgroup v2).
fn groups(name: &GuestName, guest: &Guest, root: &Root) -> Result<Vec<String>, String> {
    const MOUNTED: &str = "/sys/fs/cgroup";
    let readable = |path: String| match files::exists(root.path(&path)) {
        true => Ok(path),
        false => Err(format!("there is no {path}")),
    };
    let read = |path: &str| files::read_to_string(root.path(path)).map_err(|error| chain(&error));
    let process = qemu::process(root, name)
        .ok_or_else(|| format!("no QEMU of {name} runs, by {}", qemu::file(name)))?;
    // libvirt has a group for each virtual CPU and one for all else below QEMU's own.
    let own = read(&format!("/proc/{}/cgroup", process.id))?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let own = own.ok_or_else(|| format!("QEMU of {name} is in no control group of version 2"))?;
    let group = own.split_once("/libvirt/").map(|(group, _)| group);
    let own =
        group.ok_or_else(|| format!("QEMU of {name} is in {own}, which is no control group of its own"))?;
    let mut groups = vec![readable(format!("{MOUNTED}{own}/cpu.stat"))?];
    for (nic, _) in guest.nics.iter().filter(|(_, nic)| nic.path.has_switch()) {
        let unit = switch::unit(name, nic);
        groups.push(readable(format!("{MOUNTED}/system.slice/{unit}/cpu.stat"))?);
    }
    Ok(groups)
}

fn address(nics: &IndexMap<NicName, Bdf>, function: &FunctionName, root: &Root) -> Result<Bdf, String> {
    let pf = *nics.get(&function.nic).ok_or_else(|| format!("{} was not found here", function.nic))?;
    let Some(wanted) = function.vf else { return Ok(pf) };
    let vfs = PciFunction::new(root, pf).virtual_functions().map_err(|error| chain(&error))?;
    let found = vfs.into_iter().find(|(index, _)| *index == wanted);
    found.map(|(_, address)| address).ok_or_else(|| format!("there is no {function}"))
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

#[cfg(test)]
mod tests {
    use penstock_model::Source;

    use super::*;

    fn report(name: &str, mac: &str, kind: Option<&str>, addresses: &[&str]) -> InterfaceReport {
        InterfaceReport {
            index: 2,
            interface: Interface {
                name: name.parse().unwrap(),
                mac: mac.parse().unwrap(),
                mtu: 1500,
                up: true,
                carrier: Some(true),
                speed: None,
                addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
                routes: Vec::new(),
                master: None,
                uppers: Vec::new(),
            },
            permanent_mac: None,
            device: None,
            kind: kind.map(str::to_owned),
            port_name: None,
            promiscuous: None,
            routes: None,
            master: None,
            lower: None,
        }
    }

    /// QEMU's control group is above those that libvirt has for its threads; what is missing is said.
    #[test]
    fn what_carries_a_vms_frames_is_found_by_its_control_groups() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let write = |path: &str, text: &str| {
            let path = root.path(path);
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write_atomic(path, text).unwrap();
        };
        let text = "nics: {NET0: {vfs: 0}}\nguests:\n  node-1:\n    kind: vm\n    nics: {net0: {vfs: 1, uplink: NET0}}\n";
        let model = penstock_model::parse(&Source::new("m.yaml", text)).unwrap().model;
        let name: GuestName = "node-1".parse().unwrap();
        let found = || groups(&name, &model.guests["node-1"], &root);
        assert!(found().unwrap_err().contains("penstock-node-1.pid"), "{:?}", found());
        write("/run/libvirt/qemu/penstock-node-1.pid", "42\n");
        // By now the number may be another's.
        write("/proc/42/stat", &format!("42 (a b) S 1{}", " 0".repeat(30)));
        for another in
            ["sleep\0guest=penstock-node-10\0", "qemu\0-name\0guest=penstock-node-2,debug-threads=on\0"]
        {
            write("/proc/42/cmdline", another);
            assert!(found().unwrap_err().contains("no QEMU of node-1 runs"), "{:?}", found());
        }
        write("/proc/42/cmdline", "qemu\0-name\0guest=penstock-node-1,debug-threads=on\0");
        write("/proc/42/cgroup", "4:cpu:/machine\n");
        assert_eq!(found().unwrap_err(), "QEMU of node-1 is in no control group of version 2");
        // What is in there besides is not the VM's.
        for other in ["/", "/system.slice/libvirtd.service", "/machine.slice/machine-qemu.scope/emulator"] {
            write("/proc/42/cgroup", &format!("0::{other}\n"));
            let why = format!("QEMU of node-1 is in {other}, which is no control group of its own");
            assert_eq!(found().unwrap_err(), why);
        }
        let scope = "/machine.slice/machine-qemu\\x2d1.scope";
        write("/proc/42/cgroup", &format!("0::{scope}/libvirt/emulator\n"));
        let own = format!("/sys/fs/cgroup{scope}/cpu.stat");
        assert_eq!(found().unwrap_err(), format!("there is no {own}"));
        write(&own, "usage_usec 1\n");
        let switch = "/sys/fs/cgroup/system.slice/penstock-switch-node-1:net0.service/cpu.stat";
        assert_eq!(found().unwrap_err(), format!("there is no {switch}"));
        write(switch, "usage_usec 1\n");
        assert_eq!(found().unwrap(), [own, switch.to_owned()]);
    }

    /// The functions of a VM's NIC are found by their addresses inside, and what is not there is said.
    #[test]
    fn functions_of_a_vms_nic_are_known_by_their_addresses() {
        let text = "nics: {NET0: {vfs: 0}}\nguests:\n  node-1:\n    kind: vm\n    nics:\n      net0: {vfs: 2, mac: '02:00:00:00:01:00', functions: {0: {mac: \
                    '02:00:00:00:01:01'}}}\n";
        let model = penstock_model::parse(&Source::new("m.yaml", text)).unwrap().model;
        let inside = vec![
            report("br0", "02:00:00:00:01:00", Some("bridge"), &["192.0.2.1/24"]),
            report("net0", "02:00:00:00:01:00", None, &["fe80::1/64"]),
            report("eth1", "02:00:00:00:01:01", None, &["192.0.2.1/24"]),
        ];
        let named = |text: &str| match text.parse().unwrap() {
            EndpointName::Tenant(name) => name,
            EndpointName::Function(_) => unreachable!(),
        };
        let all = ["NET0", "node-1/net0", "node-1/net0#0", "node-1/net0#1"];
        assert_eq!(functions(&model), all.map(|name| name.parse().unwrap()).into());
        let interfaces = BTreeMap::from([(Vantage::Guest("node-1".parse().unwrap()), Ok(inside))]);
        let function_interface = |name: &str| tenant_station(&model, &named(name), &interfaces);
        let [pf, vf] = ["node-1/net0", "node-1/net0#0"].map(|name| function_interface(name).unwrap());
        assert_eq!((pf.interface.as_str(), pf.in_use), ("net0", false));
        assert_eq!((vf.interface.as_str(), vf.in_use), ("eth1", true));
        let why = function_interface("node-1/net0#1").unwrap_err();
        assert!(why.contains("no interface inside node-1") && why.contains("sriov_numvfs"), "{why}");
        assert_eq!(function_interface("node-1/net0#2").unwrap_err(), "there is no node-1/net0#2");
        let dark = BTreeMap::from([(Vantage::Guest("node-1".parse().unwrap()), Err("no agent".to_owned()))]);
        assert_eq!(tenant_station(&model, &named("node-1/net0"), &dark).unwrap_err(), "no agent");
    }
}
