//! What files say of interfaces inside guests.

use super::*;

/// What a model is made of, and what is told.
fn read(text: &str, format: ImportFormat) -> (String, String) {
    let all = import(&[Source::new("a.yaml", text)], format, Some(&machine())).unwrap();
    let model = all.model.split("guests:\n").nth(1).unwrap_or_default().to_owned();
    (model, all.warnings[0].to_string())
}

/// An instance of Incus with one VF, and this for cloud-init.
fn instance(kind: &str, network: &str) -> String {
    let network: String = network.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "name: a\ntype: {kind}\nconfig:\n    volatile.first.name: eth0\n    cloud-init.network-config: |\n{network}devices:\n  \
         first: {{nictype: sriov, parent: enp1s0f0, type: nic, hwaddr: 02:00:00:00:00:07}}\n"
    )
}

#[test]
fn cloud_init_tells_of_interfaces_of_containers_by_name_and_of_vms_by_address() {
    let by_mac = "version: 2\nethernets:\n  x:\n    match: {macaddress: 02:00:00:00:00:07}\n    addresses: [192.0.2.7/24]\n";
    let by_name = "version: 2\nethernets: {eth0: {addresses: [192.0.2.7/24]}}\n";
    let by_other_name = "version: 2\nethernets: {x: {match: {name: eth0}, addresses: [192.0.2.7/24]}}\n";
    let (address, unknown) = ("address: \"192.0.2.7/24\"", "which VF of the instance it is was not found");
    for (kind, text, found) in [
        ("container", by_mac, true),
        ("container", by_name, true),
        ("container", by_other_name, true),
        ("virtual-machine", by_mac, true),
        // Its kernel names its interfaces itself.
        ("virtual-machine", by_name, false),
        ("container", "version: 2\nethernets: {eth1: {dhcp4: true}}\n", false),
    ] {
        let (model, told) = read(&instance(kind, text), ImportFormat::Incus);
        assert_eq!(
            (model.contains(address), told.contains(unknown)),
            (found, !found),
            "{text}: {model}{told}"
        );
    }
}

#[test]
fn what_cloud_init_says_otherwise_is_told() {
    let version = "of cloud-init's words only those of version 2 are read";
    for (text, told) in [
        ("version: 1\nconfig: []\n", version),
        ("- a\n", version),
        ("a: [\n", "in its text: "),
        (
            "version: 2\nethernets: {eth0: {addresses: [nowhere]}}\n",
            "in its text at `ethernets.eth0.addresses.0`: ",
        ),
    ] {
        let (model, warned) = read(&instance("container", text), ImportFormat::Incus);
        assert!(warned.contains(told), "{text}: {warned}");
        assert!(model.contains("  a:\n    functions:\n") && !model.contains("address"), "{text}: {model}");
    }
    // Older images have another option, and the newer one comes first.
    let both = instance("container", "version: 2\nethernets: {eth0: {dhcp4: true}}\n")
        .replace("config:\n", "config:\n    user.network-config: 'ethernets: {}'\n");
    let (model, warned) = read(&both, ImportFormat::Incus);
    assert!(model.contains("address: dhcp") && !warned.contains(version), "{model}{warned}");
    let old = both.replace("cloud-init.network-config", "user.other");
    assert!(read(&old, ImportFormat::Incus).1.contains(version));
}

#[test]
fn a_guest_has_as_many_name_servers_and_domains_as_a_model_takes() {
    let long = format!("{0}.{0}.{0}", "a".repeat(60));
    for (dns, line, told) in [
        (
            "addresses: [192.0.2.1, 192.0.2.1, 192.0.2.2, 192.0.2.3, 192.0.2.4]".to_owned(),
            Some("dns: {servers: [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\"]}"),
            "192.0.2.4 is left out: a guest of a model has 3 at most",
        ),
        ("search: [example.org]".to_owned(), None, "a model has domains beside servers alone"),
        (
            "addresses: [192.0.2.53, fe80::1], search: [example.org.]".to_owned(),
            Some("dns: {servers: [\"192.0.2.53\"], search: [\"example.org\"]}"),
            "fe80::1 is left out: it is no address that a server answers at",
        ),
        (
            "addresses: [192.0.2.53], search: [\"a b\"]".to_owned(),
            Some("dns: {servers: [\"192.0.2.53\"]}"),
            "`a b` is left out",
        ),
        ("addresses: [0.0.0.0, 224.0.0.1]".to_owned(), None, "224.0.0.1 is left out: it is no address"),
        (
            format!("addresses: [192.0.2.1], search: [{long}, b.{long}]"),
            Some("search: [\"aaaa"),
            "is left out: a guest of a model has at most 247 characters of domains",
        ),
        (
            "addresses: [192.0.2.1], search: [a, b, c, d, e, f, g]".to_owned(),
            Some("search: [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]"),
            "g is left out: a guest of a model has 6 at most",
        ),
    ] {
        let network = format!("version: 2\nethernets: {{eth0: {{mtu: 1400, nameservers: {{{dns}}}}}}}\n");
        let (model, warned) = read(&instance("container", &network), ImportFormat::Incus);
        assert!(warned.contains(told), "{dns}: {warned}");
        assert_eq!(model.contains("dns:"), line.is_some(), "{dns}: {model}");
        assert!(model.contains(line.unwrap_or_default()), "{dns}: {model}");
        assert!(model.contains("mtu: 1400"), "{dns}: {model}");
    }
}

#[test]
fn what_netplan_says_of_a_vfs_interface_stays_the_hosts() {
    for (key, value) in [
        ("dhcp4", "yes"),
        ("dhcp6", "yes"),
        ("addresses", "[192.0.2.7/24]"),
        ("mtu", "1400"),
        ("nameservers", "{addresses: [192.0.2.53]}"),
        ("routes", "[{to: default, via: 192.0.2.1}]"),
        ("gateway4", "192.0.2.1"),
        ("gateway6", "\"2001:db8::1\""),
    ] {
        let text = format!(
            "network:\n  version: 2\n  ethernets:\n    enp1s0f0: {{virtual-function-count: 2}}\n    enp1s0f0v0: {{link: enp1s0f0, {key}: {value}}}\n    \
             enp1s0f0v1: {{link: enp1s0f0}}\n"
        );
        let (guests, warned) = read(&text, ImportFormat::Netplan);
        assert_eq!(guests, "", "{key}");
        let told =
            format!("network.ethernets.enp1s0f0v0.{key}: `{key}` is left out: the host has it at this VF");
        assert!(warned.contains(&told), "{warned}");
    }
}

#[test]
fn of_two_interfaces_that_are_one_vf_the_second_is_left_out() {
    let twice = "version: 2\nethernets:\n  eth0: {dhcp4: true}\n  x: {match: {macaddress: 02:00:00:00:00:07}, addresses: [192.0.2.7/24]}\n";
    let (model, warned) = read(&instance("container", twice), ImportFormat::Incus);
    assert!(model.contains("address: dhcp") && !model.contains("192.0.2.7"), "{model}");
    assert!(warned.contains("another one before it is the same VF of the instance"), "{warned}");
}
