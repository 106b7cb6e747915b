//! What CHECK holds: each thing that ADD set, as it is where it is enforced. Pure.

use penstock_host::InterfaceReport;
use penstock_model::{Bdf, InterfaceAddress, InterfaceRoute, VfAttribute, inventory::VfState};

use crate::document::{Address, Interface};

/// What was seen of a container's interface.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The interface, with its addresses.
    pub report: InterfaceReport,
    /// The function whose interface it is, where the kernel tells.
    pub function: Option<Bdf>,
    /// The routes over it.
    pub routes: Vec<InterfaceRoute>,
}

/// What of an interface is not as a result has it.
pub fn interface(
    wanted: &Interface,
    addresses: &[&Address],
    routes: &[InterfaceRoute],
    seen: &Seen,
) -> Vec<String> {
    let there = &seen.report.interface;
    let mut wrong = Vec::new();
    if let (Some(wanted), Some(function)) = (wanted.function, seen.function)
        && wanted != function
    {
        wrong.push(format!("{} is the interface of {function}, not of {wanted}", there.name));
    }
    if let Some(mac) = wanted.mac.filter(|mac| *mac != there.mac) {
        wrong.push(format!("{} has the MAC address {}, not {mac}", there.name, there.mac));
    }
    if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != there.mtu) {
        wrong.push(format!("{} has an MTU of {}, not {mtu}", there.name, there.mtu));
    }
    if !there.up {
        wrong.push(format!("{} is down", there.name));
    }
    let missing: Vec<InterfaceAddress> =
        addresses.iter().map(|of| of.address).filter(|address| !there.addresses.contains(address)).collect();
    wrong.extend(missing.iter().map(|address| format!("{} has no address {address}", there.name)));
    for route in routes.iter().filter(|route| !seen.routes.iter().any(|there| route.is_met_by(there))) {
        let over = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        wrong.push(format!("there is no route to {}{over} over {}", route.destination, there.name));
    }
    wrong
}

/// What of a VF is not as it is wanted, as the PF's driver or its embedded switch has it; `None` when that tells of no such VF.
pub fn attributes(wanted: &[VfAttribute], seen: Option<&VfState>) -> Vec<String> {
    let Some(seen) = seen else {
        return match wanted {
            [] => Vec::new(),
            _ => vec!["the PF tells nothing of the VF any more".to_owned()],
        };
    };
    let there = seen.attributes();
    let mut wrong = Vec::new();
    for attribute in wanted {
        // What the driver does not report cannot be held against it.
        let Some(is) = there.iter().find(|there| there.kind() == attribute.kind()) else { continue };
        if is != attribute {
            wrong.push(format!("the PF has {is} for the VF, not {attribute}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use penstock_model::{Mac, inventory};
    use serde_json::json;

    use super::*;
    use crate::document::Attached;

    type Change = fn(&mut Seen);

    fn seen() -> Seen {
        Seen {
            report: InterfaceReport {
                index: 7,
                interface: inventory::Interface {
                    name: "net1".parse().unwrap(),
                    mac: "02:00:00:00:01:04".parse().unwrap(),
                    mtu: 1500,
                    up: true,
                    carrier: Some(true),
                    speed: None,
                    addresses: vec!["10.1.0.5/24".parse().unwrap()],
                    routes: Vec::new(),
                    master: None,
                    uppers: Vec::new(),
                },
                permanent_mac: None,
                device: Some("0000:01:10.0".to_owned()),
                kind: None,
                port_name: None,
                promiscuous: None,
                routes: None,
                master: None,
                lower: None,
            },
            function: Some("0000:01:10.0".parse().unwrap()),
            routes: vec![InterfaceRoute {
                table: Some(254),
                scope: Some(0),
                ..InterfaceRoute::new("0.0.0.0/0".parse().unwrap(), Some("10.1.0.1".parse().unwrap()))
            }],
        }
    }

    fn attached() -> Attached {
        serde_json::from_value(json!({
            "interfaces": [{"name": "net1", "mac": "02:00:00:00:01:04", "mtu": 1500, "sandbox": "/n", "pciID": "0000:01:10.0"}],
            "ips": [{"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}],
            "routes": [{"dst": "0.0.0.0/0"}],
        }))
        .unwrap()
    }

    fn wrong(seen: &Seen) -> Vec<String> {
        let attached = attached();
        let addresses: Vec<&Address> = attached.addresses_of(0).collect();
        interface(&attached.interfaces[0], &addresses, &attached.kernel_routes(), seen)
    }

    #[test]
    fn what_is_as_it_was_set_holds() {
        assert_eq!(wrong(&seen()), [""; 0]);
    }

    #[test]
    fn each_thing_that_differs_is_named() {
        let changes: [(Change, &str); 6] = [
            (
                |seen| seen.function = "0000:01:10.2".parse().ok(),
                "is the interface of 0000:01:10.2, not of 0000:01:10.0",
            ),
            (|seen| seen.report.interface.mac = Mac::new([2; 6]), "has the MAC address 02:02:02:02:02:02"),
            (|seen| seen.report.interface.mtu = 9000, "has an MTU of 9000, not 1500"),
            (|seen| seen.report.interface.up = false, "net1 is down"),
            (|seen| seen.report.interface.addresses.clear(), "has no address 10.1.0.5/24"),
            (|seen| seen.routes[0].gateway = None, "no route to 0.0.0.0/0 via 10.1.0.1"),
        ];
        for (change, words) in changes {
            let mut seen = seen();
            change(&mut seen);
            let wrong = wrong(&seen);
            assert!(wrong.len() == 1 && wrong[0].contains(words), "{words}: {wrong:?}");
        }
    }

    #[test]
    fn attributes_are_held_against_what_the_pf_tells() {
        let state = VfState {
            mac: Mac::new([2; 6]),
            vlan: penstock_model::VlanId::new(100).unwrap(),
            spoofchk: Some(true),
            ..VfState::default()
        };
        let vlan = |id| VfAttribute::Vlan {
            id: penstock_model::VlanId::new(id).unwrap(),
            qos: Default::default(),
            protocol: Default::default(),
        };
        assert_eq!(
            attributes(&[vlan(100), VfAttribute::Spoofchk(true), VfAttribute::Trust(true)], Some(&state)),
            [""; 0]
        );
        let wrong = attributes(&[vlan(7), VfAttribute::Spoofchk(false)], Some(&state));
        assert_eq!(
            wrong,
            [
                "the PF has vlan 100 qos 0 proto 802.1Q for the VF, not vlan 7 qos 0 proto 802.1Q",
                "the PF has spoofchk on for the VF, not spoofchk off",
            ]
        );
        assert_eq!(attributes(&[vlan(7)], None).len(), 1);
        assert_eq!(attributes(&[], None), [""; 0]);
    }
}
