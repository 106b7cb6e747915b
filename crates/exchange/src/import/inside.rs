//! What netplan's words say of an interface that a guest has inside (netplan's reference, "Properties for all device types"). cloud-init has them, too
//! ("Networking config Version 2").

use std::net::IpAddr;

use penstock_model::{
    InterfaceAddress, Mtu, SearchDomain,
    dns::{MOST_DOMAIN_CHARACTERS, MOST_DOMAINS, MOST_SERVERS},
    yaml::{FlowMapping, flow_list, quoted, shown},
};

use super::foreign::{ForeignFields, ForeignNode};

/// Addresses that are given.
pub fn addresses(fields: &mut ForeignFields<'_>) -> Vec<InterfaceAddress> {
    let mut found = Vec::new();
    for address in fields.take("addresses").iter().flat_map(ForeignNode::items) {
        // `ADDRESS: {label: ..., lifetime: ...}` is one of them too.
        if address.text().is_some() {
            found.extend(address.value::<InterfaceAddress>());
            continue;
        }
        for (text, options) in address.entries() {
            match text.parse() {
                Ok(good) => found.push(good),
                Err(_) => address.error(format!("{} is no address with a prefix length", shown(text))),
            }
            drop(options.fields());
        }
    }
    found
}

/// Keys of a function of a model with their values: addresses, and MTU. `no_lease`: why no address is asked for inside.
pub fn function(fields: &mut ForeignFields<'_>, no_lease: Option<&str>) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(lease) = fields.take("dhcp4").filter(|on| on.switch() == Some(true)) {
        match no_lease {
            None => all.push("dhcp".to_owned()),
            Some(why) => lease.left_out(format!("`dhcp4` is left out: {why}")),
        }
    }
    if let Some(lease) = fields.take("dhcp6").filter(|on| on.switch() == Some(true)) {
        lease.left_out("`dhcp6` is left out: `dhcp` of a model asks for an address of IPv4");
    }
    for key in ["routes", "gateway4", "gateway6"] {
        fields.left_out(key, "write it as `routes` of the function");
    }
    all.extend(addresses(fields).iter().map(|address| quoted(&address.to_string())));
    let mut keys = Vec::new();
    match &all[..] {
        [] => {}
        [one] => keys.push(("address", one.clone())),
        _ => keys.push(("addresses", flow_list(all.iter().cloned()))),
    }
    keys.extend(fields.value::<Mtu>("mtu").map(|mtu| ("mtu", mtu.to_string())));
    keys
}

/// How a guest resolves names.
#[derive(Default)]
pub struct ForeignDns {
    servers: Vec<IpAddr>,
    search: Vec<SearchDomain>,
}

impl ForeignDns {
    /// Adds what one of its interfaces says, if it does. What a guest has no room for is left out.
    pub fn take_from(&mut self, fields: &mut ForeignFields<'_>) {
        let Some(at) = fields.take("nameservers") else { return };
        let mut said = at.fields();
        for server in said.take("addresses").iter().flat_map(ForeignNode::items) {
            let Some(address) = server.value::<IpAddr>() else { continue };
            if !is_server(address) {
                server.left_out(format!("{address} is left out: it is no address that a server answers at"));
            } else if !self.servers.contains(&address) {
                add(&mut self.servers, address, MOST_SERVERS, &server);
            }
        }
        for domain in said.take("search").iter().flat_map(ForeignNode::items) {
            let text = domain.text().unwrap_or_default();
            // That it is a whole name changes nothing of a domain in which names are looked up.
            let name = text.strip_suffix('.').unwrap_or(text).parse::<SearchDomain>();
            let characters: usize = self.search.iter().map(|name| name.to_string().len() + 1).sum();
            match name {
                Err(why) => domain.left_out(format!("{} is left out: {why}", shown(text))),
                Ok(_) if self.servers.is_empty() => {
                    domain.left_out(format!("{} is left out: a model has domains beside servers alone", shown(text)))
                }
                Ok(name) if self.search.contains(&name) => {}
                Ok(name) if characters + name.to_string().len() > MOST_DOMAIN_CHARACTERS => domain.left_out(format!(
                    "{name} is left out: a guest of a model has at most {MOST_DOMAIN_CHARACTERS} characters of domains"
                )),
                Ok(name) => add(&mut self.search, name, MOST_DOMAINS, &domain),
            }
        }
    }

    /// The value of `dns` of a model; `None` without a server.
    pub fn value(&self) -> Option<String> {
        let list = |all: Vec<String>| flow_list(all.iter().map(|one| quoted(one)));
        let mut dns = FlowMapping::default();
        dns.put("servers", list(self.servers.iter().map(ToString::to_string).collect()));
        if !self.search.is_empty() {
            dns.put("search", list(self.search.iter().map(ToString::to_string).collect()));
        }
        (!self.servers.is_empty()).then(|| dns.line())
    }
}

fn add<T: ToString>(all: &mut Vec<T>, one: T, most: usize, at: &ForeignNode<'_>) {
    match all.len() < most {
        true => all.push(one),
        false => {
            at.left_out(format!("{} is left out: a guest of a model has {most} at most", one.to_string()))
        }
    }
}

/// Whether a model takes it for an address of a server.
fn is_server(address: IpAddr) -> bool {
    let is_link_local = matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let is_broadcast = matches!(address, IpAddr::V4(ip) if ip.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_link_local && !is_broadcast
}
