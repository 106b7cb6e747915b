//! An interface as far as a plan can change it.

use penstock_model::{
    Bdf, InterfaceName, Mac,
    inventory::{Interface, Upper},
};

use crate::{Action, Direction, FunctionAction, InterfaceSetup, VlanSetup};

/// What a move between namespaces takes from an interface (`net/core/dev.c`, `__dev_change_net_namespace`).
pub fn lose(interface: &mut Interface) {
    interface.up = false;
    interface.addresses.retain(|address| address.is_kernel_made());
    interface.routes.clear();
    interface.master = None;
    take_vlans_down(interface);
}

/// What an interface loses that goes down: addresses of IPv6 but link-local ones, which come back (`addrconf_ifdown`), and its routes, which
/// nobody but who set them brings back (`fib_disable_ip`, `rt6_disable_ip`). Those of VLANs go down with it (`net/8021q/vlan.c`,
/// `vlan_device_event`).
fn take_down(interface: &mut Interface) {
    interface.up = false;
    interface.addresses.retain(|address| address.ip().is_ipv4() || address.is_kernel_made());
    interface.routes.clear();
    take_vlans_down(interface);
}

fn take_vlans_down(interface: &mut Interface) {
    vlans(interface).for_each(take_down);
}

/// Those of VLANs come up with it.
fn bring_up(interface: &mut Interface) {
    interface.up = true;
    vlans(interface).for_each(bring_up);
}

/// The interfaces of VLANs on it.
fn vlans(interface: &mut Interface) -> impl Iterator<Item = &mut Interface> {
    let vlans = interface.uppers.iter_mut().filter(|upper| upper.vlan.is_some());
    vlans.map(|upper| &mut upper.interface)
}

/// Adds what an interface lacks. That somebody sets it up anew meanwhile is no part of a simulation.
pub fn restore(interface: &mut Interface, setup: &InterfaceSetup) {
    if let Some(name) = &setup.name {
        interface.name = name.clone();
    }
    if let Some(mtu) = setup.mtu {
        interface.mtu = mtu.get();
    }
    if setup.up {
        bring_up(interface);
    }
    if interface.master.is_none() {
        interface.master = setup.master.clone();
    }
    for address in &setup.addresses {
        if !interface.addresses.contains(address) {
            interface.addresses.push(*address);
        }
    }
    for route in &setup.routes {
        if !interface.routes.contains(route) {
            interface.routes.push(route.clone());
        }
    }
    for vlan in &setup.vlans {
        match interface.uppers.iter_mut().find(|upper| upper.is_of(&vlan.tag)) {
            Some(upper) => restore(&mut upper.interface, &vlan.setup),
            None => {
                let mut upper = new_vlan(vlan, interface);
                restore(&mut upper.interface, &vlan.setup);
                interface.uppers.push(upper);
            }
        }
    }
}

/// What an action does to an interface that changes it and nothing else.
pub fn change(interface: &mut Interface, action: &Action) {
    match action {
        Action::Function(FunctionAction::SetMac { mac, .. }) => interface.mac = *mac,
        Action::Function(FunctionAction::Rename { to, .. }) => interface.name = to.clone(),
        Action::Function(FunctionAction::SetMtu { mtu, .. }) => interface.mtu = mtu.get(),
        Action::Function(FunctionAction::SetLink { direction, .. }) => match direction {
            Direction::Up => bring_up(interface),
            Direction::Down => take_down(interface),
        },
        Action::Function(FunctionAction::AddAddress { address, .. })
            if interface.addresses.contains(address) => {}
        Action::Function(FunctionAction::AddAddress { address, .. }) => interface.addresses.push(*address),
        Action::Function(FunctionAction::RemoveAddress { address, .. }) => {
            interface.addresses.retain(|other| other != address);
            // With the last address of IPv4 its routes go (`inetdev_event` by way of `fib_disable_ip`).
            if !interface.addresses.iter().any(|left| left.ip().is_ipv4()) {
                interface.routes.retain(|route| !route.is_ipv4());
            }
        }
        _ => {}
    }
}

/// An interface that appears, with a made-up name; its MAC is the administrative one where there is one.
pub fn new_interface(function: Bdf, admin: Option<Mac>) -> Option<Interface> {
    let [high, low] = function.routing_id().0.to_be_bytes();
    let random = Mac::new([0xfe, 0xed, 0, 0, high, low]);
    let name: Option<InterfaceName> =
        format!("n{:x}x{:x}", function.domain(), function.routing_id().0).parse().ok();
    let mac = admin.filter(|mac| !mac.is_zero()).unwrap_or(random);
    Some(unused(name?, mac, 1500))
}

/// The interface of a VLAN as it is made.
fn new_vlan(vlan: &VlanSetup, lower: &Interface) -> Upper {
    let interface = unused(vlan.name.clone(), vlan.mac.unwrap_or(lower.mac), lower.mtu);
    Upper { kind: "vlan".to_owned(), vlan: Some(vlan.tag.clone()), interface }
}

/// An interface that nobody has set up.
fn unused(name: InterfaceName, mac: Mac, mtu: u32) -> Interface {
    Interface {
        name,
        mac,
        mtu,
        up: false,
        carrier: None,
        speed: None,
        addresses: Vec::new(),
        routes: Vec::new(),
        master: None,
        uppers: Vec::new(),
    }
}
