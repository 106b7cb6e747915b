//! What a guest is defined as, in one line: what it is made of, and what each of its interfaces has inside.

use std::fmt::Display;

use penstock_model::{ByteSize, Dns, InterfaceAddress, InterfaceRoute, Mtu};

use crate::{
    action::{GuestDefinition, GuestFunction, GuestNic, named},
    names::Names,
};

/// So many addresses, and so many routes of an interface are told; `--json` has all of them.
const TOLD: usize = 4;

/// The parts of a definition with commas between them.
pub fn definition(definition: &GuestDefinition, names: &Names) -> String {
    let mut parts = vec![if definition.vm.is_some() { "VM" } else { "container" }.to_owned()];
    parts.extend(definition.cpus.map(|cpus| format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" })));
    parts.extend(definition.pin.as_ref().map(|pin| format!("on {}", named(pin))));
    parts.extend(definition.memory.map(|bytes| ByteSize(bytes).to_string()));
    parts.extend(definition.scheduling.map(|scheduling| format!("scheduled as {scheduling}")));
    parts.extend(definition.functions.iter().map(|own| function(own, names)));
    parts.extend(definition.drives.iter().map(|vf| names.short(*vf)));
    parts.extend(definition.nics.iter().map(nic));
    parts.extend(definition.dns.as_ref().map(dns));
    parts.join(", ")
}

fn function(own: &GuestFunction, names: &Names) -> String {
    let name = format!("{} as {}", names.short(own.function), own.interface);
    name + &inside(&own.addresses, own.dhcp, own.mtu, &own.routes)
}

fn nic(own: &GuestNic) -> String {
    if own.nic.is_of_container() {
        return format!("NIC {}", own.name)
            + &inside(&own.nic.addresses, own.nic.dhcp, own.nic.mtu, &own.nic.routes);
    }
    let count = own.nic.most_vfs();
    format!("NIC {} with {count} VF{}", own.name, if count == 1 { "" } else { "s" })
}

/// What an interface has inside, in brackets; nothing where nothing is set.
fn inside(addresses: &[InterfaceAddress], dhcp: bool, mtu: Option<Mtu>, routes: &[InterfaceRoute]) -> String {
    let mut parts = told(addresses, "", "addresses");
    parts.extend(dhcp.then(|| "dhcp".to_owned()));
    parts.extend(mtu.map(|mtu| format!("mtu {mtu}")));
    parts.extend(told(routes, "route ", "routes"));
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// The first ones, each with `before` before it, and how many more of them there are.
fn told<T: Display>(all: &[T], before: &str, many: &str) -> Vec<String> {
    // "1 more" takes as much room as the one itself.
    let told = if all.len() == TOLD + 1 { all.len() } else { TOLD };
    let mut parts: Vec<String> = all.iter().take(told).map(|one| format!("{before}{one}")).collect();
    let rest = all.len().saturating_sub(told);
    parts.extend((rest > 0).then(|| format!("{rest} more {many}")));
    parts
}

fn dns(dns: &Dns) -> String {
    let mut text = String::from("dns");
    for server in &dns.servers {
        text.push_str(&format!(" {server}"));
    }
    if !dns.search.is_empty() {
        text.push_str(" search");
    }
    for domain in &dns.search {
        text.push_str(&format!(" {domain}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use penstock_model::Bdf;

    use super::*;

    fn eth0() -> GuestFunction {
        let at: Bdf = "0000:01:10.0".parse().unwrap();
        GuestFunction::bare(at, "eth0".parse().unwrap())
    }

    #[test]
    fn an_interface_is_told_with_what_it_has_inside() {
        let bare = eth0();
        assert_eq!(function(&bare, &Names::default()), "0000:01:10.0 as eth0");
        let full = GuestFunction {
            addresses: vec!["10.20.31.204/24".parse().unwrap(), "fd00::4/64".parse().unwrap()],
            dhcp: true,
            mtu: Mtu::new(9000),
            routes: vec![
                InterfaceRoute::new("0.0.0.0/0".parse().unwrap(), Some("10.20.31.1".parse().unwrap())),
                InterfaceRoute::new("10.8.0.0/16".parse().unwrap(), None),
            ],
            ..bare
        };
        assert_eq!(
            function(&full, &Names::default()),
            "0000:01:10.0 as eth0 (10.20.31.204/24, fd00::4/64, dhcp, mtu 9000, \
             route default via 10.20.31.1, route 10.8.0.0/16)"
        );
    }

    #[test]
    fn of_many_addresses_the_first_are_told_and_how_many_more() {
        let addresses = |count: u8| -> Vec<InterfaceAddress> {
            (1..=count).map(|last| format!("10.0.0.{last}/24").parse().unwrap()).collect()
        };
        let of = |count| inside(&addresses(count), false, None, &[]);
        assert_eq!(of(5), " (10.0.0.1/24, 10.0.0.2/24, 10.0.0.3/24, 10.0.0.4/24, 10.0.0.5/24)");
        assert_eq!(of(9), " (10.0.0.1/24, 10.0.0.2/24, 10.0.0.3/24, 10.0.0.4/24, 5 more addresses)");
    }
}
