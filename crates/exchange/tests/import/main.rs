//! What files of other programs come to as a model: `tests/foreign/FORMAT.yaml`, with the model and the warnings in
//! `tests/golden/import-FORMAT/`.
#![allow(clippy::disallowed_methods)]

mod inside;
mod libvirt;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use penstock_exchange::{ImportFormat, Imported, import};
use penstock_model::{Against, Diagnostics, Inventory, Source, parse};
use penstock_testkit::golden;

fn machine() -> Inventory {
    serde_json::from_str(include_str!("../machine.json")).unwrap()
}

fn read(text: &str, format: ImportFormat) -> Result<Imported, Vec<Diagnostics>> {
    import(&[Source::new("foreign.yaml", text)], format, Some(&machine()))
}

/// All that is wrong, a line each.
fn wrong(text: &str, format: ImportFormat) -> String {
    let found = read(text, format).unwrap_err();
    assert!(found[0].has_errors());
    found[0].to_string()
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn holds(format: ImportFormat, name: &str) {
    let extension = match format {
        ImportFormat::Cni => "conflist",
        ImportFormat::Libvirt => "xml",
        ImportFormat::Networkd => "link",
        ImportFormat::Incus | ImportFormat::Netplan | ImportFormat::Nmstate | ImportFormat::SriovOperator => {
            "yaml"
        }
    };
    let file = format!("{name}.{extension}");
    let source = Source::new(&file, fs::read_to_string(folder("foreign").join(&file)).unwrap());
    let imported = import(std::slice::from_ref(&source), format, Some(&machine())).unwrap();
    // `check` has nothing to say of it.
    parse(&Source::new("model.yaml", imported.model.as_str())).unwrap();
    let warnings = imported.warnings[0].render(&source, false);
    let folder = folder("golden").join(format!("import-{name}"));
    golden::compare(&folder.join("model.yaml"), &imported.model);
    golden::compare(&folder.join("warnings"), &warnings);
}

/// What one network sets of all VFs of a PF is the PF's in the model; anything else is a claim's to say.
#[test]
fn what_networks_of_the_operator_set_is_read_where_it_holds_for_all_vfs() {
    let policy = |name: &str, pf: &str| {
        format!(
            "apiVersion: a\nkind: SriovNetworkNodePolicy\nspec: {{resourceName: {name}, numVfs: 4, externallyManaged: true, nicSelector: \
             {{pfNames: [\"{pf}\"]}}}}\n---\n"
        )
    };
    let network = |of: &str, more: &str| {
        format!("kind: SriovNetwork\nspec: {{resourceName: {of}, ipam: '{{}}'{more}}}\n---\n")
    };
    let all = ", vlan: 100, vlanQoS: 3, vlanProto: 802.1AD, spoofChk: \"off\", trust: \"on\", linkState: enable, minTxRate: 10, maxTxRate: 100";
    let whole = "defaults: {vlan: 100, qos: 3, vlan_proto: 802.1ad, spoofchk: off, trust: on, min_tx_rate: 10, max_tx_rate: 100, link_state: enable}";
    for (text, wanted, warned) in [
        (policy("a", "enp1s0f0") + &network("a", all), Some(whole), None),
        (policy("a", "enp1s0f0") + &network("a", ", vlan: 0, vlanQoS: 0"), None, None),
        (
            policy("a", "enp1s0f0#0-1") + &policy("a", "enp1s0f0#2-3") + &network("a", ", vlan: 7"),
            Some("defaults: {vlan: 7}"),
            None,
        ),
        (policy("a", "enp1s0f0#0-2") + &network("a", ", vlan: 7"), None, Some("something else, or nothing")),
        (
            policy("a", "enp1s0f0") + &network("a", ", vlan: 7") + &network("a", ", vlan: 8"),
            None,
            Some("something else, or nothing"),
        ),
        (
            policy("a", "enp1s0f0") + &network("b", ", vlan: 7"),
            None,
            Some("no policy here makes the resource `b`"),
        ),
    ] {
        let imported = read(&text, ImportFormat::SriovOperator).unwrap();
        match wanted {
            Some(wanted) => assert!(imported.model.contains(wanted), "{text}{}", imported.model),
            None => assert!(!imported.model.contains("defaults"), "{text}{}", imported.model),
        }
        assert!(!imported.model.contains("guests:"), "{}", imported.model);
        let said = imported.warnings[0].to_string();
        assert_eq!(said.contains("this network"), warned.is_some(), "{text}{said}");
        assert!(said.contains("`ipam`"), "{said}");
        assert!(warned.is_none_or(|warned| said.contains(warned)), "{text}{said}");
    }
    let wrong =
        wrong(&(policy("a", "enp1s0f0") + &network("a", ", vlan: 4096")), ImportFormat::SriovOperator);
    assert!(wrong.contains("4096"), "{wrong}");
}

#[test]
fn instances_of_incus() {
    holds(ImportFormat::Incus, "incus");
}

/// As `export` writes it, where neither name nor kind is in the file.
#[test]
fn a_profile_of_incus_is_a_container_without_a_name() {
    let text = "config: {}\ndevices:\n  eth0: {type: nic, nictype: sriov, parent: enp1s0f0, name: eth7, mtu: '9000'}\n";
    let imported = read(text, ImportFormat::Incus).unwrap();
    assert!(
        imported.model.contains(
            "  guest:\n    functions:\n      - {vf: \"enp1s0f0#0\", interface: \"eth7\", mtu: 9000}\n"
        ),
        "{}",
        imported.model
    );
    let warned = imported.warnings[0].to_string();
    assert!(warned.contains("called `guest`") && warned.contains("a container is assumed"), "{warned}");
}

/// What Incus does where a key is absent, and Penstock would not.
#[test]
fn what_an_instance_of_incus_does_not_say_is_as_incus_has_it() {
    let instance = |kind: &str, config: &str, nic: &str| {
        format!(
            "name: a\ntype: {kind}\n{config}devices:\n  eth0: {{type: nic, nictype: sriov, parent: enp1s0f0{nic}}}\n"
        )
    };
    let (vm, container) = ("virtual-machine", "container");
    let gigabyte = Some("    memory: \"1GiB\"\n");
    let share = "config: {limits.memory: 50%}\n";
    for (text, memory, told) in [
        (instance(vm, "", ""), gigabyte, None),
        (instance(vm, "config: {}\n", ""), gigabyte, None),
        (instance(vm, "config: {limits.memory.hugepages: 'true'}\n", ""), gigabyte, None),
        (instance(vm, share, ""), gigabyte, Some("a share of the host's memory; the VM has 1GiB here")),
        (
            instance(vm, "config: {limits.memory: much}\n", ""),
            gigabyte,
            Some("no size in bytes; the VM has 1GiB here"),
        ),
        (instance(vm, "config: {limits.memory: 2GiB}\n", ""), Some("    memory: \"2GiB\"\n"), None),
        (instance(container, "", ""), None, None),
        (
            instance(container, share, ""),
            None,
            Some("a share of the host's memory; the container has no limit here"),
        ),
    ] {
        let all = read(&text, ImportFormat::Incus).unwrap();
        assert_eq!(all.model.contains("memory"), memory.is_some(), "{text}{}", all.model);
        assert!(all.model.contains(memory.unwrap_or_default()), "{text}{}", all.model);
        let warned = all.warnings[0].to_string();
        assert_eq!(warned.contains("limits.memory"), told.is_some(), "{text}{warned}");
        assert!(warned.contains(told.unwrap_or_default()), "{text}{warned}");
    }
    for (nic, spoofchk) in [
        ("", "off"),
        (", security.mac_filtering: 'false'", "off"),
        (", security.mac_filtering: 'true'", "on"),
    ] {
        let all = read(&instance(vm, "", nic), ImportFormat::Incus).unwrap();
        assert!(all.model.contains(&format!("spoofchk: {spoofchk}")), "{nic}: {}", all.model);
    }
}

#[test]
fn what_is_wrong_with_a_file_of_incus_is_said() {
    for (text, wanted) in [
        ("name: a\ndevices:\n  eth0: {type: nic, nictype: sriov}\n", "`parent`"),
        ("name: a\ndevices:\n  root: {type: disk, path: /}\n", "nothing here is a NIC with VFs"),
        ("name: n\ntype: sriov\nconfig: {}\n", "`parent`"),
        ("name: a\ndevices:\n  e: {type: nic, nictype: sriov, parent: enp1s0f0, vlan: 5000}\n", "5000"),
        ("- 1\n- [2]\n", "expected a mapping"),
    ] {
        let found = wrong(text, ImportFormat::Incus);
        assert!(found.contains(wanted), "{text}: {found}");
    }
}

#[test]
fn a_file_of_netplan() {
    holds(ImportFormat::Netplan, "netplan");
}

#[test]
fn a_link_file_of_systemd() {
    holds(ImportFormat::Networkd, "networkd");
}

#[test]
fn a_key_of_systemd_holds_as_it_comes_last_and_nothing_takes_it_back() {
    let text = "[Match]\nPath=pci-0000:01:00.0\n[Link]\nMTUBytes=1400\n[Link]\nSR-IOVVirtualFunctions=1\nSR-IOVVirtualFunctions=2\nMTUBytes=9000\nMTUBytes=\n\
                [Network]\nAddress=192.0.2.1/24\nAddress=\nAddress=192.0.2.2/24\n";
    let imported = read(text, ImportFormat::Networkd).unwrap();
    let nic = &parse(&Source::new("m.yaml", imported.model)).unwrap().model.nics["nic-0000-01-00.0"];
    assert_eq!((nic.vfs, nic.addresses.len()), (2, 1));
    // Sections of one name are one.
    assert_eq!(nic.mtu.map(|mtu| mtu.get()), None);
}

#[test]
fn a_network_file_gives_addresses_to_the_nic_with_the_same_match() {
    let link = Source::new("a.link", "[Match]\nOriginalName=enp1s0f0\n[Link]\nSR-IOVVirtualFunctions=1\n");
    let network = Source::new(
        "a.network",
        "[Match]\nName=enp1s0f0\n[Network]\nAddress=192.0.2.1/24\nAddress=192.0.2.2/24\nDHCP=yes\n",
    );
    let other = Source::new("b.network", "[Match]\nName=br0\n[Network]\nAddress=192.0.2.3/24\n");
    let imported = import(&[network, link, other], ImportFormat::Networkd, Some(&machine())).unwrap();
    assert!(
        imported.model.contains("addresses: [\"192.0.2.1/24\", \"192.0.2.2/24\"]\n"),
        "{}",
        imported.model
    );
    assert!(imported.warnings[0].to_string().contains("`DHCP` is left out"), "{:?}", imported.warnings);
    assert!(imported.warnings[2].to_string().contains("this file is left out"), "{:?}", imported.warnings);
}

#[test]
fn a_state_of_nmstate() {
    holds(ImportFormat::Nmstate, "nmstate");
}

#[test]
fn network_configurations_of_cni() {
    holds(ImportFormat::Cni, "cni");
}

/// Plugins know a PF by three kinds of names, and a VF by its PCI address; whatever a file calls it, it is one NIC.
#[test]
fn plugins_of_one_pf_are_one_nic_by_whatever_name_they_have_it() {
    let plugin =
        |pf: &str| format!("{{\"type\": \"penstock-cni\", \"pf\": \"{pf}\", \"vfs\": [1], \"vlan\": 7}}");
    let names = ["enp1s0f0", "0000:01:00.0", "0c:c4:7a:9a:61:ea"].map(plugin).join(", ");
    let rest = "{\"type\": \"sriov\", \"deviceID\": \"0000:01:10.0\", \"vlan\": 7}";
    let text = format!("{{\"cniVersion\": \"1.0.0\", \"name\": \"n\", \"plugins\": [{names}, {rest}]}}");
    let imported = read(&text, ImportFormat::Cni).unwrap();
    assert_eq!(imported.warnings, [Diagnostics::default()]);
    assert_eq!(imported.model.matches("vfs: 2").count(), 1, "{}", imported.model);
    assert!(imported.model.contains("defaults: {vlan: 7}"), "{}", imported.model);
    // One of them sets something else.
    let other = read(&text.replacen("\"vlan\": 7", "\"vlan\": 8", 1), ImportFormat::Cni).unwrap();
    assert!(!other.model.contains("vlan"), "{}", other.model);
    assert!(
        other.warnings[0].to_string().contains("what this network sets is left out"),
        "{:?}",
        other.warnings
    );
}

#[test]
fn what_a_plugin_says_twice_or_otherwise_than_another_is_told() {
    let plugins =
        |plugins: &str| format!("{{\"cniVersion\": \"1.0.0\", \"name\": \"n\", \"plugins\": [{plugins}]}}");
    let both = plugins(
        "{\"type\": \"penstock-cni\", \"deviceID\": \"0000:01:10.0\", \"pf\": \"enp1s0f1\", \"vfs\": [1]}",
    );
    let told = read(&both, ImportFormat::Cni).unwrap();
    for key in ["pf", "vfs"] {
        let why = format!("`{key}` is left out: `deviceID` says which VF it is");
        assert!(told.warnings[0].to_string().contains(&why), "{:?}", told.warnings);
    }
    assert!(!told.model.contains("enp1s0f1"), "{}", told.model);
    let of = |driver: &str, vf: u16| {
        format!("{{\"type\": \"penstock-cni\", \"pf\": \"enp1s0f0\", \"vfs\": [{vf}]{driver}}}")
    };
    let two = plugins(&[of(", \"driver\": \"vfio-pci\"", 0), of("", 1)].join(", "));
    let told = read(&two, ImportFormat::Cni).unwrap();
    assert!(
        told.warnings[0].to_string().contains("the driver of this network's VFs is left out"),
        "{:?}",
        told.warnings
    );
    let none = wrong("{\"cniVersion\": \"1.0.0\", \"name\": \"n\"}", ImportFormat::Cni);
    assert!(none.contains("neither `plugins` nor a `type`"), "{none}");
}

#[test]
fn policies_of_the_sriov_network_operator() {
    holds(ImportFormat::SriovOperator, "sriov-operator");
}

/// Files of which a model carries all.
const CARRIED: [(ImportFormat, &str); 4] = [
    (
        ImportFormat::Netplan,
        "network:\n  version: 2\n  ethernets:\n    enp1s0f0:\n      match:\n        macaddress: 0c:c4:7a:9a:61:ea\n      set-name: enp1s0f0\n      \
         virtual-function-count: 2\n    enp1s0f0v1:\n      link: enp1s0f0\n      macaddress: 02:00:00:00:00:07\n  vlans:\n    filter:\n      id: 15\n      \
         link: enp1s0f0v1\n      renderer: sriov\n",
    ),
    (
        ImportFormat::Nmstate,
        "interfaces:\n  - name: enp1s0f0\n    type: ethernet\n    state: up\n    ipv4:\n      enabled: true\n      address:\n        - ip: 192.0.2.1\n          \
         prefix-length: 24\n    ethernet:\n      sr-iov:\n        total-vfs: 2\n        vfs:\n          - id: 0\n            vlan-id: 7\n",
    ),
    (
        ImportFormat::SriovOperator,
        "kind: SriovNetworkNodePolicy\nspec:\n  nodeSelector:\n    kubernetes.io/hostname: m\n  numVfs: 2\n  externallyManaged: true\n  nicSelector:\n    \
         pfNames: [enp1s0f0]\n",
    ),
    (
        ImportFormat::Cni,
        "cniVersion: 1.0.0\nname: data\nplugins:\n  - type: penstock-cni\n    pf: enp1s0f0\n    vfs: [0, 1]\n    vlan: 7\n",
    ),
];

#[test]
fn a_key_that_a_model_has_no_word_for_is_told_wherever_it_stands() {
    for (format, text) in CARRIED {
        let whole = read(text, format).unwrap();
        assert_eq!(whole.warnings, [Diagnostics::default()], "{text}");
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let dash = if line.trim_start().starts_with("- ") { 2 } else { 0 };
            let indent = line.len() - line.trim_start().len() + dash;
            let mut more = lines.clone();
            let strange = format!("{}strange: {{}}", " ".repeat(indent));
            // Before a key, or behind the first one of a list's item.
            more.insert(if dash == 0 { at } else { at + 1 }, &strange);
            let more = more.join("\n");
            let told = read(&more, format).unwrap_or_else(|found| panic!("{more}\n{found:?}"));
            assert_eq!(told.model, whole.model, "{more}");
            assert!(told.warnings[0].to_string().contains("strange"), "{more}\n{}", told.warnings[0]);
        }
    }
}

#[test]
fn hostile_text_is_refused_with_its_place() {
    let laughs: String = (1..12).fold("l0: &l0 [a, a, a, a, a, a, a, a, a]\n".to_owned(), |text, level| {
        let alias = format!("*l{}", level - 1);
        text + &format!("l{level}: &l{level} [{}]\n", [alias.as_str(); 9].join(", "))
    });
    let nested = format!("kind: List\nitems: {}{}", "[".repeat(200), "]".repeat(200));
    let large = format!("# {}\n", "x".repeat(2 << 20));
    for format in ImportFormat::ALL {
        for text in [
            &laughs,
            &nested,
            &large,
            "",
            "# nothing\n",
            "[1, 2]",
            "7",
            "a: 1\na: 2",
            "{",
            "a: !!python/x y",
            "network: {version: 3}",
        ] {
            wrong(text, format);
        }
    }
}

#[test]
fn large_hostile_files_of_others_are_answered_in_bounded_time() {
    let repeated = |head: &str, item: &str| {
        let mut text = head.to_owned();
        (0..)
            .map(|number| item.replace("N", &number.to_string()))
            .take_while(|item| {
                text.push_str(item);
                text.len() < 900_000
            })
            .for_each(drop);
        text
    };
    let mac = "  - {name: é, type: ethernet, state: up, identifier: mac-address, mac-address: 'MAC', ethernet: {sr-iov: {total-vfs: 1}}}\n";
    let macs: String = (0..7000u32)
        .map(|number| {
            let [_, _, high, low] = number.to_be_bytes();
            mac.replace("MAC", &format!("02:00:00:00:{high:02x}:{low:02x}"))
        })
        .collect();
    let cases = [
        (ImportFormat::Networkd, repeated("", "[SR-IOV]\n")),
        (ImportFormat::Networkd, repeated("", "[aN]\n")),
        (ImportFormat::Networkd, repeated("[SR-IOV]\nVirtualFunction=0\n", "aN=\n")),
        (ImportFormat::Netplan, repeated("network:\n  ethernets:\n", "    aN: {link: bN}\n")),
        (ImportFormat::Nmstate, format!("interfaces:\n{macs}")),
        (
            ImportFormat::SriovOperator,
            repeated(
                "kind: SriovNetworkNodePolicy\nspec:\n  numVfs: 9\n  nicSelector:\n    pfNames:\n",
                "    - a#0-16383\n",
            ),
        ),
        (ImportFormat::SriovOperator, repeated("", "kind: aN\n---\n")),
        (ImportFormat::Cni, repeated("plugins:\n", "  - {type: penstock-cni, pf: enp1s0f0, vlan: N}\n")),
        (ImportFormat::Cni, repeated("plugins:\n", "  - {type: penstock-cni, pf: aN, vfs: [0, 16383]}\n")),
    ];
    for (format, text) in cases {
        let began = Instant::now();
        let messages = match read(&text, format) {
            Ok(imported) => imported.warnings,
            Err(messages) => messages,
        };
        messages[0].located(&Source::new("foreign.yaml", text.as_str()), Against::Import);
        // A hundredth of that where it is optimised.
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}: {}", began.elapsed(), &text[..60]);
    }
}

#[test]
fn a_value_that_nothing_can_have_is_an_error_that_names_it() {
    let vf = |vf: &str| {
        format!(
            "interfaces: [{{name: a, type: ethernet, state: up, ethernet: {{sr-iov: {{total-vfs: 1, vfs: [{vf}]}}}}}}]"
        )
    };
    for (vf_text, message) in [
        ("{id: 0, mac-address: zz}", "interfaces.0.ethernet.sr-iov.vfs.0.mac-address: "),
        ("{id: 0, vlan-id: 4095}", "vfs.0.vlan-id: 4095 is no VLAN id"),
        ("{id: 0, trust: maybe}", "`maybe` is neither on nor off"),
        ("{id: 70000}", "interfaces.0.ethernet.sr-iov.vfs.0.id: "),
        ("{trust: true}", "a VF has an `id`"),
        ("[]", "expected a mapping"),
    ] {
        let told = wrong(&vf(vf_text), ImportFormat::Nmstate);
        assert!(told.contains(message), "{vf_text}: {told}");
    }
    let told = wrong(
        "kind: SriovNetworkNodePolicy\nspec: {nicSelector: {pfNames: ['a#3-1']}}",
        ImportFormat::SriovOperator,
    );
    assert!(told.contains("`a#3-1` has no range of VFs"), "{told}");
}

#[test]
fn two_files_about_one_nic_are_refused_in_the_second() {
    let file =
        |name: &str| Source::new(name, "network: {ethernets: {enp1s0f0: {virtual-function-count: 1}}}");
    let found = import(&[file("a"), file("b")], ImportFormat::Netplan, Some(&machine())).unwrap_err();
    assert!(!found[0].has_errors() && found[1].has_errors(), "{found:?}");
    // By its name here and by its address there.
    let by_address =
        "network: {ethernets: {x: {match: {macaddress: '0c:c4:7a:9a:61:ea'}, virtual-function-count: 1}}}";
    let found = import(&[file("a"), Source::new("b", by_address)], ImportFormat::Netplan, Some(&machine()))
        .unwrap_err();
    assert!(found[1].to_string().contains("are one PF"), "{found:?}");
}

#[test]
fn what_is_said_of_many_places_is_said_once_with_them() {
    let vfs: String = (0..200).map(|index| format!("{{id: {index}, strange: 1}}, ")).collect();
    let text = format!(
        "interfaces: [{{name: a, type: ethernet, state: up, ethernet: {{sr-iov: {{total-vfs: 200, vfs: [{vfs}]}}}}}}]"
    );
    let imported = read(&text, ImportFormat::Nmstate).unwrap();
    let strange: Vec<_> =
        imported.warnings[0].0.iter().filter(|warning| warning.message.contains("strange")).collect();
    assert_eq!(strange.len(), 1);
    assert!(strange[0].hint.as_ref().unwrap().ends_with("and 191 more places"), "{strange:?}");
    let vfs: String = (0..200).map(|index| format!("{{id: {index}, s{index}: 1}}, ")).collect();
    let text = format!(
        "interfaces: [{{name: a, type: ethernet, state: up, ethernet: {{sr-iov: {{total-vfs: 200, vfs: [{vfs}]}}}}}}]"
    );
    let warnings = &read(&text, ImportFormat::Nmstate).unwrap().warnings[0];
    assert_eq!(warnings.0.len(), 101);
    assert!(warnings.0[100].message.contains("101 messages are not shown"), "{}", warnings.0[100]);
}

#[test]
fn without_a_machine_a_name_is_told_to_be_unknown_and_the_model_is_good() {
    let (format, text) = CARRIED[1];
    let imported = import(&[Source::new("a", text)], format, None).unwrap();
    assert!(
        imported.warnings[0].to_string().contains("nothing is known of the machine"),
        "{}",
        imported.warnings[0]
    );
    assert!(imported.model.contains("# Which PF it is was not found"), "{}", imported.model);
}
