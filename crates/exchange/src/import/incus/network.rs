//! What cloud-init is told of an instance's interfaces ("Networking config Version 2"): which addresses they have inside, and by whom names are
//! resolved.

use std::collections::BTreeSet;

use penstock_model::Mac;

use crate::import::{
    foreign::ForeignNode,
    guest::ForeignGuest,
    inside::{self, ForeignDns},
};

/// Why a VM asks for no address.
const NO_CLIENT: &str =
    "nothing here says what the VM boots, and the model's default has no client that asks for an address";

/// Adds it to a guest: whether it is a VM, what a container calls its functions, and their addresses tell which interface is which.
pub fn read(at: &ForeignNode<'_>, guest: &mut ForeignGuest, of: (bool, &[String], &[Option<Mac>])) {
    let (mut dns, mut told_of) = (ForeignDns::default(), BTreeSet::new());
    at.yaml_inside(|root| {
        let mut root = root.fields();
        // It stands in one, or not.
        let within = root.take("network");
        let mut network = within.map_or(root, |network| network.fields());
        if network.take("version").and_then(|version| version.text()) != Some("2") {
            network.forget();
            return at.left_out(
                "its interfaces are left out: of cloud-init's words only those of version 2 are read",
            );
        }
        for (id, interface) in network.take("ethernets").iter().flat_map(ForeignNode::entries) {
            ethernet(id, &interface, guest, of, &mut told_of, &mut dns);
        }
    });
    guest.keys.extend(dns.value().map(|dns| ("dns", dns)));
}

fn ethernet(
    id: &str,
    at: &ForeignNode<'_>,
    guest: &mut ForeignGuest,
    (is_vm, names, macs): (bool, &[String], &[Option<Mac>]),
    told_of: &mut BTreeSet<usize>,
    dns: &mut ForeignDns,
) {
    let mut fields = at.fields();
    let (mut name, mut mac) = (Some(id), None);
    if let Some(matching) = fields.take("match") {
        let mut matching = matching.fields();
        name = matching.take("name").and_then(|name| name.text());
        mac = matching.value::<Mac>("macaddress");
    }
    // A VM's kernel names its interfaces itself.
    let is_called = |position: usize| !is_vm && name == names.get(position).map(String::as_str);
    let is_its = |position: &usize| match mac {
        Some(mac) => macs.get(*position).copied().flatten() == Some(mac),
        None => is_called(*position),
    };
    let position = (0..guest.functions.len()).find(is_its);
    let Some((position, function)) = position.and_then(|at| Some((at, guest.functions.get_mut(at)?))) else {
        fields.forget();
        return at.left_out("this interface is left out: which VF of the instance it is was not found");
    };
    if !told_of.insert(position) {
        fields.forget();
        return at
            .left_out("this interface is left out: another one before it is the same VF of the instance");
    }
    fields.pass_over("optional");
    if function.keys.iter().any(|(key, _)| *key == "mtu") {
        fields.left_out("mtu", "the device of the instance has one");
    }
    function.keys.extend(inside::function(&mut fields, is_vm.then_some(NO_CLIENT)));
    dns.take_from(&mut fields);
}
