//! Network interfaces: which one a PCI function has, and what netlink adds to what sysfs says of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nix::errno::Errno;
use penstock_model::{
    Bdf, InterfaceName, InterfaceRoute, Mac, PortVlans,
    inventory::{Interface, Master, Representor, Sriov, SwitchMode, Upper},
};

use super::{Links, reader::Reader};
use crate::{
    InterfaceReport, Lower, chain,
    pci::{is_representor, represented_vf},
};

/// As many interfaces stand on each other at most (`MAX_NEST_DEV`, `include/linux/netdevice.h`).
const MAX_NESTED: usize = 8;
const CLASS: &str = "/sys/class/net";
/// The interface is administratively up (`IFF_UP`, `include/uapi/linux/if.h`).
const IFF_UP: u32 = 1;
/// `SPEED_UNKNOWN` as an unsigned number; sysfs prints it as -1.
const SPEED_UNKNOWN: i64 = u32::MAX as i64;

/// The interfaces of the network namespace that is scanned.
pub(super) struct Interfaces<'a> {
    /// Netlink and what it listed; `None` when sysfs is all there is.
    netlink: Option<(&'a mut dyn Links, Vec<InterfaceReport>)>,
    /// The VLANs of bridges' ports by the index of the port, read when the first is asked for.
    port_vlans: Option<HashMap<u32, PortVlans>>,
    /// The representors that PFs have beside their own interface.
    representors: BTreeMap<Bdf, Vec<InterfaceReport>>,
    /// Names of interfaces that turned out to be some function's.
    claimed: BTreeSet<String>,
}

impl<'a> Interfaces<'a> {
    pub fn new(links: Option<&'a mut dyn Links>, reader: &mut Reader<'_>) -> Interfaces<'a> {
        let netlink = links.and_then(|links| match links.interfaces() {
            Ok(mut reports) => {
                match links.routes() {
                    Ok(routes) => give(routes, &mut reports),
                    Err(error) => reader.note(format!(
                        "netlink did not list the routes, so that no plan can bring them back: {}",
                        chain(&*error)
                    )),
                }
                Some((links, reports))
            }
            Err(error) => {
                reader.note(format!("netlink did not list the network interfaces: {}", chain(&*error)));
                None
            }
        });
        if netlink.is_none() {
            reader.note(
                "netlink was not asked: IP addresses, permanent MAC addresses, VF attributes and switch modes are \
                 not known",
            );
        }
        Interfaces { netlink, port_vlans: None, representors: BTreeMap::new(), claimed: BTreeSet::new() }
    }

    /// The interface of the function in `directory`.
    pub fn of(&mut self, directory: &str, bdf: Bdf, reader: &mut Reader<'_>) -> Option<InterfaceReport> {
        let (names, devices) = names_below(directory, bdf, reader);
        self.claimed.extend(names.iter().cloned());
        let reports: Vec<InterfaceReport> = match &self.netlink {
            None => names.iter().filter_map(|name| from_sysfs(name, &devices, reader)).collect(),
            Some((_, reports)) => {
                // Kernels before 5.14 do not say which device is behind an interface; there the name has to do.
                let is_its = |report: &&InterfaceReport| match &report.device {
                    Some(device) => devices.contains(device),
                    None => {
                        report.kind.is_none()
                            && names.iter().any(|name| name == report.interface.name.as_str())
                    }
                };
                reports.iter().filter(is_its).cloned().collect()
            }
        };
        if self.netlink.is_some() && reports.is_empty() && !names.is_empty() {
            reader.note(format!(
                "{} of {bdf} is in the namespace that /sys shows and not in the one that was asked over netlink",
                names.join(", ")
            ));
        }
        self.claimed.extend(reports.iter().map(|report| report.interface.name.as_str().to_owned()));
        let stands_for_another =
            |report: &InterfaceReport| report.port_name.as_deref().is_some_and(is_representor);
        let (representors, mut reports): (Vec<_>, Vec<_>) = reports.into_iter().partition(stands_for_another);
        if !representors.is_empty() {
            self.representors.insert(bdf, representors);
        }
        reports.sort_by_key(|report| report.index);
        if reports.len() > 1 {
            let all: Vec<_> = reports.iter().map(|report| report.interface.name.as_str()).collect();
            reader.note(format!("{bdf} has several interfaces, {}; the first is taken", all.join(", ")));
        }
        let mut report = reports.into_iter().next()?;
        report.interface.master = self.master(&report, reader);
        report.interface.uppers = self.uppers(report.index, MAX_NESTED, reader);
        if report.interface.speed.is_none() {
            report.interface.speed = speed(report.interface.name.as_str(), reader);
        }
        Some(report)
    }

    /// What stands on an interface, `depth` high at most.
    fn uppers(&mut self, lower: u32, depth: usize, reader: &mut Reader<'_>) -> Vec<Upper> {
        let Some((_, all)) = &self.netlink else { return Vec::new() };
        let stands = |report: &&InterfaceReport| matches!(&report.lower, Some(below) if below.index == lower);
        let found: Vec<InterfaceReport> = all.iter().filter(stands).cloned().collect();
        let mut uppers = Vec::new();
        for report in found {
            let (Some(kind), Some(Lower { vlan, .. })) = (report.kind.clone(), report.lower.clone()) else {
                continue;
            };
            let master = self.master(&report, reader);
            let above = match depth {
                0 => Vec::new(),
                _ => self.uppers(report.index, depth - 1, reader),
            };
            uppers.push(Upper {
                kind,
                vlan,
                interface: Interface { master, uppers: above, ..report.interface },
            });
        }
        uppers
    }

    /// What an interface is a port of.
    fn master(&mut self, port: &InterfaceReport, reader: &mut Reader<'_>) -> Option<Master> {
        let (links, all) = self.netlink.as_mut()?;
        let index = port.master?;
        let report = all.iter().find(|other| other.index == index)?;
        let name = report.interface.name.clone();
        let file = format!("{CLASS}/{name}/bridge/vlan_filtering");
        let is_bridge = report.kind.as_deref() == Some("bridge");
        let filters_vlans = is_bridge && reader.text(&file).is_some_and(|filters| filters == "1");
        let vlans = match filters_vlans {
            true => {
                let read = || match links.port_vlans() {
                    Ok(vlans) => vlans.into_iter().collect(),
                    Err(error) => {
                        reader.note(format!("the VLANs of bridges' ports are not known: {}", chain(&*error)));
                        HashMap::new()
                    }
                };
                self.port_vlans.get_or_insert_with(read).get(&port.index).cloned()
            }
            false => None,
        };
        Some(Master { name, kind: report.kind.clone(), filters_vlans, vlans })
    }

    /// The names of all of them; `None` when netlink did not tell.
    pub fn names(&self) -> Option<BTreeSet<InterfaceName>> {
        let (_, reports) = self.netlink.as_ref()?;
        Some(reports.iter().map(|report| report.interface.name.clone()).collect())
    }

    /// The names of those that are Linux bridges; `None` when netlink did not tell.
    pub fn bridges(&self) -> Option<BTreeSet<InterfaceName>> {
        let (_, reports) = self.netlink.as_ref()?;
        let bridges = reports.iter().filter(|report| report.kind.as_deref() == Some("bridge"));
        Some(bridges.map(|report| report.interface.name.clone()).collect())
    }

    /// The mode of the embedded switch behind a PF's interface. Only an embedded switch in switchdev mode has
    /// representors, so that one is known also where devlink may not be asked.
    pub fn switch_mode(&mut self, report: &InterfaceReport, pf: Bdf, reader: &mut Reader<'_>) -> SwitchMode {
        if self.representors.contains_key(&pf) {
            return SwitchMode::Switchdev;
        }
        let Some((links, _)) = &mut self.netlink else {
            return SwitchMode::default();
        };
        links.switch_mode(report.index).unwrap_or_else(|error| {
            let name = &report.interface.name;
            reader.note(format!("the switch mode of {pf} ({name}) is not known: {}", chain(&*error)));
            SwitchMode::default()
        })
    }

    /// Puts representors to the VFs of the PF that exist. Without any VFs a driver may keep the representors of all that could be.
    pub fn fill_representors(&self, pf: Bdf, sriov: &mut Sriov, reader: &mut Reader<'_>) {
        if sriov.num_vfs == 0 {
            return;
        }
        for report in self.representors.get(&pf).into_iter().flatten() {
            let (name, port) = (&report.interface.name, report.port_name.as_deref().unwrap_or_default());
            let Some(index) = represented_vf(port) else { continue };
            let vf = sriov.vfs.iter_mut().find(|vf| vf.index == index);
            let Some(present) = vf.and_then(|vf| vf.present.as_mut()) else {
                reader.note(format!("{name} stands for VF {index} of {pf} ({port}), which is not there"));
                continue;
            };
            let directory = format!("{CLASS}/{name}");
            present.representor = Some(Representor {
                interface: name.clone(),
                port: port.to_owned(),
                switch_id: reader
                    .text_unless(&format!("{directory}/phys_switch_id"), &[Errno::EOPNOTSUPP])
                    .filter(|id| !id.is_empty()),
                master: reader.link_name(&format!("{directory}/master")).and_then(|name| name.parse().ok()),
            });
        }
    }

    /// Puts what the PF's driver reports of its VFs to those that exist.
    pub fn fill_attributes(&mut self, report: &InterfaceReport, sriov: &mut Sriov, reader: &mut Reader<'_>) {
        let Some((links, _)) = &mut self.netlink else {
            return;
        };
        if sriov.num_vfs == 0 {
            return;
        }
        let name = &report.interface.name;
        let states = match links.vfs(report.index) {
            Ok(states) => states,
            Err(error) => {
                reader.note(format!("the VF attributes of {name} are not known: {}", chain(&*error)));
                return;
            }
        };
        let on_virtio = report.device.as_deref().is_some_and(|device| device.starts_with("virtio"));
        let could_be = sriov.num_vfs..u16::try_from(sriov.vfs.len()).unwrap_or(u16::MAX);
        for index in sriov.give_attributes(states) {
            // An embedded switch has ports also for those that could be.
            if !on_virtio || !could_be.contains(&index.get()) {
                reader.note(format!("netlink reports VF {index} of {name}, which sysfs does not have"));
            }
        }
    }

    /// Names the interfaces of devices that can have no VFs, since a reader will look for them among the PFs.
    pub fn note_others(&self, reader: &mut Reader<'_>) {
        for name in reader.list(CLASS) {
            let directory = format!("{CLASS}/{name}");
            // A software interface (veth, bridge...) has no device.
            if self.claimed.contains(&name) || !reader.exists(&format!("{directory}/device")) {
                continue;
            }
            let device = reader.link_name(&format!("{directory}/device"));
            reader.note(format!(
                "{directory} belongs to {}, which is no Ethernet function on the PCI bus and is left out",
                device.as_deref().unwrap_or("an unknown device")
            ));
        }
    }
}

/// Gives each interface the routes over it.
fn give(routes: Vec<(u32, InterfaceRoute)>, reports: &mut [InterfaceReport]) {
    for (index, route) in routes {
        if let Some(report) = reports.iter_mut().find(|report| report.index == index) {
            report.interface.routes.push(route);
        }
    }
}

/// The names of the interfaces below a function's directory, and what netlink may call the device behind them.
///
/// Most drivers hang the interface on the PCI function itself; virtio's hangs on a virtio device below that.
fn names_below(directory: &str, bdf: Bdf, reader: &mut Reader<'_>) -> (Vec<String>, Vec<String>) {
    let mut names = reader.list(&format!("{directory}/net"));
    let mut devices = vec![bdf.to_string()];
    for number in reader.numbered(directory, "virtio") {
        names.extend(reader.list(&format!("{directory}/virtio{number}/net")));
        devices.push(format!("virtio{number}"));
    }
    (names, devices)
}

/// What sysfs says of an interface. A file for each of these exists as long as the interface does.
fn from_sysfs(name: &str, devices: &[String], reader: &mut Reader<'_>) -> Option<InterfaceReport> {
    let directory = format!("{CLASS}/{name}");
    let parsed = match name.parse::<InterfaceName>() {
        Ok(parsed) => parsed,
        Err(error) => {
            reader.note(format!("{directory}: {error}"));
            return None;
        }
    };
    let mac: Option<Mac> = reader.required_value(&format!("{directory}/address"), "Ethernet MAC address");
    let flags = reader.hexadecimal(&format!("{directory}/flags"), true);
    let up = flags.is_some_and(|flags| flags & IFF_UP != 0);
    let interface = Interface {
        name: parsed,
        mac: mac.unwrap_or(Mac::new([0; 6])),
        mtu: reader.required_value(&format!("{directory}/mtu"), "number of bytes").unwrap_or_default(),
        up,
        carrier: if up { carrier(&directory, reader) } else { None },
        speed: speed(name, reader),
        addresses: Vec::new(),
        routes: Vec::new(),
        master: None,
        uppers: Vec::new(),
    };
    Some(InterfaceReport {
        index: reader.value(&format!("{directory}/ifindex"), "number").unwrap_or_default(),
        interface,
        permanent_mac: None,
        device: devices.last().cloned(),
        kind: None,
        port_name: reader.text_unless(&format!("{directory}/phys_port_name"), &[Errno::EOPNOTSUPP]),
        // The file `flags` tells only of what was set by hand.
        promiscuous: None,
        routes: None,
        master: None,
        lower: None,
    })
}

/// Whether there is a carrier. The kernel answers EINVAL for an interface that is down.
fn carrier(directory: &str, reader: &mut Reader<'_>) -> Option<bool> {
    let path = format!("{directory}/carrier");
    match reader.text_unless(&path, &[Errno::EINVAL])?.as_str() {
        "1" => Some(true),
        "0" => Some(false),
        _ => {
            reader.note(format!("{path} is neither 0 nor 1"));
            None
        }
    }
}

/// The speed in Mbit/s. The kernel answers EINVAL for an interface that is down or whose driver has none to tell, and
/// -1 for a speed that its driver does not know.
fn speed(name: &str, reader: &mut Reader<'_>) -> Option<u32> {
    let path = format!("{CLASS}/{name}/speed");
    let text = reader.text_unless(&path, &[Errno::EINVAL, Errno::EOPNOTSUPP])?;
    match text.parse::<i64>() {
        Ok(-1 | 0 | SPEED_UNKNOWN) => None,
        Ok(speed @ 1..SPEED_UNKNOWN) => u32::try_from(speed).ok(),
        _ => {
            reader.note(format!("{path} holds {}, which is no speed", super::reader::quoted(&text)));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_vf_a_representor_stands_for_is_in_its_ports_name() {
        let index = |port: &str| represented_vf(port).map(|index| index.get());
        assert_eq!((index("pf0vf0"), index("pf1vf12")), (Some(0), Some(12)));
        // Another host's, a sub-function's, the PF's, the uplink's, and what no kernel gives.
        for port in
            ["c1pf0vf3", "pf0sf1", "pf0", "p0", "", "pfvf", "pf0vf", "pf0vf+1", "pf0vf01", "pf0vf99999"]
        {
            assert_eq!(index(port), None, "{port}");
        }
    }
}
