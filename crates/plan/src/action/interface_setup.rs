//! How the host uses an interface: what of it can be brought back.

use std::fmt;

use penstock_model::{
    InterfaceAddress, InterfaceName, InterfaceRoute, Mac, Mtu,
    inventory::{Interface, Master, Upper, VlanTag},
    text::counted,
};
use serde::{Deserialize, Serialize};

/// How the host uses an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterfaceSetup {
    /// Its name; `None`: whichever it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<InterfaceName>,
    /// Its MTU; `None`: whichever it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// Whether it is up. One that was down is left as it is.
    pub up: bool,
    /// What it is a port of. Left out when it is a port of something else by then, or there is nothing of this name any more; its VLANs
    /// there when it has others than a new port by then ([`penstock_model::PortVlans::are_lacking`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<Master>,
    /// Its addresses, without link-local ones, which come back by themselves. Those of a family are left out when the interface has
    /// another address of that family by now: somebody has set it up anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<InterfaceAddress>,
    /// The routes over it that somebody set. Those of a family go with its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<InterfaceRoute>,
    /// The interfaces of VLANs over it. One is left out when its name is that of another interface by then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<VlanSetup>,
}

/// How the host uses the interface of a VLAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VlanSetup {
    /// The name that it gets where it has to be made. One that is there keeps its own.
    pub name: InterfaceName,
    /// Its VLAN.
    pub tag: VlanTag,
    /// Its own MAC address; `None`: that of the interface below, which a new one gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// How it is used, without a name.
    pub setup: InterfaceSetup,
}

impl VlanSetup {
    /// Of what stands on an interface with the address `below`, which is the interface of a VLAN.
    pub fn of(upper: &Upper, below: Mac) -> Option<VlanSetup> {
        let found = &upper.interface;
        let setup = InterfaceSetup {
            name: None,
            mtu: Mtu::new(found.mtu),
            up: found.up,
            ..InterfaceSetup::used(found)
        };
        let mac = Some(found.mac).filter(|mac| *mac != below);
        Some(VlanSetup { name: found.name.clone(), tag: upper.vlan.clone()?, mac, setup })
    }
}

impl InterfaceSetup {
    /// So many routes are named; of the others only how many there are.
    const NAMED: usize = 3;

    /// What an interface that was found is a port of, its addresses, the routes over it and the VLANs' interfaces on it, as far as they can
    /// be brought back.
    pub fn used(found: &Interface) -> InterfaceSetup {
        InterfaceSetup {
            master: found.master.clone().filter(Master::takes_ports),
            addresses: found.addresses.iter().copied().filter(|address| !address.is_kernel_made()).collect(),
            routes: found.routes.clone(),
            vlans: found.uppers.iter().filter_map(|upper| VlanSetup::of(upper, found.mac)).collect(),
            ..InterfaceSetup::default()
        }
    }

    /// What an interface lacks of its addresses and routes, which has `present` addresses and routes: without those of a family of which
    /// somebody has set up another address meanwhile.
    pub fn missing_from(
        &self,
        present: (&[InterfaceAddress], &[InterfaceRoute]),
    ) -> (Vec<InterfaceAddress>, Vec<&InterfaceRoute>) {
        let (addresses, routes) = present;
        let replaced = |ipv4: bool| {
            let mut of_family = addresses
                .iter()
                .filter(|address| address.ip().is_ipv4() == ipv4 && !address.is_kernel_made())
                .peekable();
            of_family.peek().is_some() && !of_family.any(|address| self.addresses.contains(address))
        };
        let replaced = [replaced(false), replaced(true)];
        let stays = |ipv4: bool| !replaced[usize::from(ipv4)];
        let lacks =
            |address: &InterfaceAddress| stays(address.ip().is_ipv4()) && !addresses.contains(address);
        let lacks_route = |route: &&InterfaceRoute| {
            stays(route.is_ipv4()) && !routes.iter().any(|there| route.is_met_by(there))
        };
        (
            self.addresses.iter().copied().filter(lacks).collect(),
            self.routes.iter().filter(lacks_route).collect(),
        )
    }
}

impl fmt::Display for InterfaceSetup {
    /// `up, MTU 9000, a port of br0, 192.0.2.7/24, default via 192.0.2.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.name.as_ref().map(ToString::to_string));
        parts.extend(self.up.then(|| "up".to_owned()));
        parts.extend(self.mtu.map(|mtu| format!("MTU {mtu}")));
        parts.extend(self.master.as_ref().map(|master| match &master.vlans {
            Some(vlans) => format!("a port of {} ({vlans})", master.name),
            None => format!("a port of {}", master.name),
        }));
        parts.extend(self.addresses.iter().map(ToString::to_string));
        parts.extend(self.routes.iter().take(Self::NAMED).map(ToString::to_string));
        if let Some(more) = self.routes.len().checked_sub(Self::NAMED).filter(|more| *more > 0) {
            parts.push(format!("{} more", counted(more, "route")));
        }
        parts.extend(self.vlans.iter().map(|vlan| match vlan.setup.to_string() {
            setup if setup.is_empty() => format!("{} ({})", vlan.name, vlan.tag),
            setup => format!("{} ({}: {setup})", vlan.name, vlan.tag),
        }));
        f.write_str(&parts.join(", "))
    }
}
