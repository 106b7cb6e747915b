//! Each key of a model is in the files of an export, or told as left out: those of the schema, so that none is forgotten.

use std::collections::BTreeSet;

use penstock_exchange::{ExportFormat, Exported, export};
use penstock_model::{Inventory, Source, parse, schema};
use serde_json::Value;

fn exported(model: &str, format: ExportFormat) -> Exported {
    let model =
        parse(&Source::new("model.yaml", model)).unwrap_or_else(|wrong| panic!("{model}\n{wrong}")).model;
    let inventory: Inventory = serde_json::from_str(include_str!("machine.json")).unwrap();
    export(&model, &inventory, format).unwrap()
}

/// The keys of a type of the schema, less the spellings of other programs.
fn keys(of: &str) -> BTreeSet<String> {
    let schema = schema();
    let of: &Value = if of == "Model" { &schema } else { &schema["$defs"][of] };
    let is_own = |key: &&String| key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    of["properties"].as_object().unwrap().keys().filter(is_own).cloned().collect()
}

/// Each key of a type is a sample's, and what is said of it holds.
fn each<'a>(of: &str, samples: &[(&'a str, &'a str)], holds: impl Fn(&'a str, &'a str)) {
    let known: BTreeSet<String> = samples.iter().map(|(key, _)| (*key).to_owned()).collect();
    assert_eq!(known, keys(of), "each key of {of} has a sample here");
    samples.iter().filter(|(_, value)| !value.is_empty()).for_each(|(key, value)| holds(key, value));
}

/// Whether what a model with more in it says reaches a person: another file, or a sentence with these words.
fn is_said(words: &str, less: &str, more: &str, format: ExportFormat) -> bool {
    let (less, more) = (exported(less, format), exported(more, format));
    less.files != more.files || more.left_out.iter().any(|line| line.contains(words))
}

/// These change nothing of NICs: Penstock sets up PFs and their VFs, and they give away what nobody owns.
const GIVE_AWAY: [ExportFormat; 2] = [ExportFormat::Cni, ExportFormat::SriovOperator];

#[test]
fn each_key_of_a_model_is_exported_or_told() {
    let base = "machine: m\nnics: {NET0: {vfs: 2}}\n";
    let guest = "guests: {a: {functions: [NET0#0]}}\n";
    let samples = [
        // The name of the machine itself, which reports have.
        ("machine", ""),
        ("nics", ""),
        ("drives", "drives: {SSD0: {}}"),
        ("guests", "guests: {b: {}}"),
        ("realtime", "realtime: {}"),
        ("measure", "measure: {storage: [{guest: a, path: /srv}]}"),
        ("expect", "expect: guest-host >= 1Gbit/s"),
        // What a rehearsal alone has.
        ("board", ""),
    ];
    each("Model", &samples, |key, more| {
        for format in ExportFormat::ALL {
            let guest = if key == "guests" { "" } else { guest };
            let (less, more) = (format!("{base}{guest}"), format!("{base}{guest}{more}\n"));
            assert!(is_said(&format!("`{key}`"), &less, &more, format), "{key} to {format:?}");
        }
    });
}

#[test]
fn each_key_of_a_nic_is_exported_or_told() {
    let samples = [
        // By these it is found.
        ("match", ""),
        ("vfs", "3"),
        ("externally_managed", "on"),
        ("loopback", "on"),
        ("eswitch", "switchdev"),
        ("mtu", "9000"),
        ("interface", "fast0"),
        ("address", "192.0.2.1/24"),
        ("addresses", "[192.0.2.1/24]"),
        // Of each of its keys below.
        ("defaults", ""),
        ("free", "{driver: vfio-pci}"),
        ("best_effort", "[link_state]"),
    ];
    let nic = |more: &str| format!("machine: m\nnics: {{NET0: {{vfs: 2{more}}}}}\n");
    each("Nic", &samples, |key, value| {
        let more = match key {
            "vfs" => "machine: m\nnics: {NET0: {vfs: 3}}\n".to_owned(),
            _ => nic(&format!(", {key}: {value}")),
        };
        for format in ExportFormat::ALL {
            let kept = GIVE_AWAY.contains(&format)
                && ["loopback", "eswitch", "mtu", "interface", "address", "addresses", "best_effort"]
                    .contains(&key);
            let words = match key {
                "address" => "`addresses`",
                "externally_managed" => "it is externally managed",
                key => &format!("`{key}`"),
            };
            assert!(kept || is_said(words, &nic(""), &more, format), "{key} to {format:?}");
        }
    });
}

/// With which a VF differs from one of which nothing is said.
const OF_A_VF: [(&str, &str); 9] = [
    ("mac", "mac: \"02:00:00:00:00:07\""),
    ("vlan", "vlan: 7"),
    ("qos", "vlan: 7, qos: 3"),
    ("vlan_proto", "vlan: 7, vlan_proto: 802.1ad"),
    ("spoofchk", "spoofchk: on"),
    ("trust", "trust: on"),
    ("min_tx_rate", "max_tx_rate: 100, min_tx_rate: 10"),
    ("max_tx_rate", "max_tx_rate: 100"),
    ("link_state", "link_state: enable"),
];

/// What goes with a key, and is no difference.
fn without(key: &str) -> &'static str {
    match key {
        "qos" | "vlan_proto" => "vlan: 7",
        "min_tx_rate" => "max_tx_rate: 100",
        _ => "",
    }
}

#[test]
fn each_attribute_of_vfs_is_exported_or_told() {
    // VFs cannot share an address, which is a function's.
    let shared = OF_A_VF.map(|(key, value)| if key == "mac" { (key, "") } else { (key, value) });
    let nic = |defaults: &str| format!("machine: m\nnics: {{NET0: {{vfs: 2, defaults: {{{defaults}}}}}}}\n");
    each("VfSettings", &shared, |key, value| {
        for format in ExportFormat::ALL.into_iter().filter(|format| !GIVE_AWAY.contains(format)) {
            let words = format!("`{key}` of VF");
            assert!(is_said(&words, &nic(without(key)), &nic(value), format), "{key} to {format:?}");
        }
    });
}

/// For the programs that are told of guests' functions. Of all others it is told that they are not.
#[test]
fn each_key_of_a_function_is_exported_or_told() {
    let others = [
        ("vf", ""),
        ("pf", ""),
        ("interface", "interface: fast0"),
        // Another spelling of it.
        ("name", ""),
        ("address", "address: 192.0.2.1/24"),
        ("addresses", "addresses: [192.0.2.1/24]"),
        ("gateway", "address: 192.0.2.1/24, gateway: 192.0.2.9"),
        ("routes", "address: 192.0.2.1/24, routes: [{to: 198.51.100.0/24, via: 192.0.2.9}]"),
        ("mtu", "mtu: 9000"),
        ("egress_rate", "egress_rate: 100"),
        ("ingress_rate", "ingress_rate: 100"),
        ("best_effort", "best_effort: [trust]"),
        ("required", "required: [spoofchk]"),
    ];
    let samples: Vec<(&str, &str)> = others.into_iter().chain(OF_A_VF).collect();
    for (format, kind) in
        [(ExportFormat::Incus, "container"), (ExportFormat::Incus, "vm"), (ExportFormat::Libvirt, "vm")]
    {
        let model = |more: &str| {
            format!(
                "machine: m\nnics: {{NET0: {{vfs: 1, best_effort: [spoofchk]}}}}\n\
                 guests: {{a: {{kind: {kind}, functions: [{{vf: NET0#0, {more}}}]}}}}\n"
            )
        };
        each("Function", &samples, |key, value| {
            // The kernel holds a container's.
            if kind == "vm" && key.ends_with("gress_rate") {
                return;
            }
            let words = match key {
                "address" => "`addresses` of NET0#0",
                "gateway" => "`routes` of NET0#0",
                // Of the NIC it is told anyway.
                "required" => "`best_effort` of NET0#0",
                key if OF_A_VF.iter().any(|(of_vf, _)| *of_vf == key) => &format!("`{key}` of VF 0"),
                key => &format!("`{key}` of NET0#0"),
            };
            let less = match key {
                "gateway" | "routes" => "address: 192.0.2.1/24",
                key => without(key),
            };
            assert!(is_said(words, &model(less), &model(value), format), "{key} to {format:?}, a {kind}");
        });
    }
    let model = "machine: m\nnics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n";
    let told = "`guests`, and who owns which function: ";
    for format in ExportFormat::ALL {
        let of_functions = matches!(format, ExportFormat::Incus | ExportFormat::Libvirt);
        let left_out = exported(model, format).left_out;
        assert!(
            of_functions || left_out.iter().any(|line| line.starts_with(told)),
            "{format:?}: {left_out:?}"
        );
    }
}

/// Of a guest that has a function, in the files that have words for guests. Of all others it is told that guests are not in them.
#[test]
fn each_key_of_a_guest_is_exported_or_told() {
    let (both, container, vm): (&[&str], &[&str], &[&str]) = (&["container", "vm"], &["container"], &["vm"]);
    let of_kinds = [
        ("kind", both, ""),
        ("functions", both, ""),
        ("cpus", both, "cpus: 2"),
        ("memory", both, "memory: 512MiB"),
        ("pin", both, "pin: 2-3"),
        ("exclusive", both, "pin: 2, exclusive: on"),
        ("realtime", both, "pin: 2, realtime: on"),
        ("drives", vm, "drives: [SSD0#0]"),
        ("nics", vm, "nics: {net0: {vfs: 1}}"),
        ("dns", both, "dns: {servers: 192.0.2.53}"),
        ("after", both, "after: [b]"),
        ("root", container, "root: /srv/a"),
        ("init", container, "init: /bin/a"),
        ("privileged", container, "privileged: on"),
        ("devices", container, "devices: [/dev/sda]"),
        ("boot", vm, "boot: {kernel: /boot/a}"),
        ("command_line", vm, "command_line: quiet"),
        ("firmware", vm, "firmware: uefi"),
        ("emulator", vm, "emulator: 0"),
        ("locked_memory", vm, "locked_memory: on"),
        ("huge_pages", vm, "huge_pages: 2MiB"),
        ("inside", vm, "inside: none"),
        ("ready_within", vm, "ready_within: 60"),
        ("generate", both, "generate: [{template: json, to: a.json}]"),
    ];
    let model = |kind: &str, more: &str| {
        format!(
            "machine: m\nnics: {{NET0: {{vfs: 2}}}}\ndrives: {{SSD0: {{vfs: 1}}}}\n\
             guests:\n  b: {{functions: [NET0#1]}}\n  a: {{kind: {kind}, functions: [NET0#0], {more}}}\n"
        )
    };
    let samples = of_kinds.map(|(key, _, value)| (key, value));
    each("Guest", &samples, |key, value| {
        let (_, kinds, _) = of_kinds.iter().find(|(of, ..)| *of == key).unwrap();
        for kind in *kinds {
            let less = if ["exclusive", "realtime"].contains(&key) { "pin: 2" } else { "" };
            let (less, more) = (model(kind, less), model(kind, value));
            let words = format!("`{key}`");
            assert!(is_said(&words, &less, &more, ExportFormat::Incus), "{key} of a {kind}");
            // Of containers it is told that nothing is written.
            let said = *kind == "container" || is_said(&words, &less, &more, ExportFormat::Libvirt);
            assert!(said, "{key} of a {kind} to libvirt");
        }
    });
    let model = model("vm", "");
    for format in ExportFormat::ALL {
        let begin = match format {
            ExportFormat::Incus => "`kind` of a: ",
            ExportFormat::Libvirt => "`guests`: b gets no domain, since it is a container",
            _ => "`guests`, ",
        };
        let left_out = exported(&model, format).left_out;
        assert!(left_out.iter().any(|line| line.starts_with(begin)), "{format:?}: {left_out:?}");
    }
}

/// What a file has of a guest's key is told nowhere as left out, and what it has not is.
#[test]
fn incus_is_told_of_cpus_memory_and_privileges() {
    let model = |guest: &str| {
        let model = format!(
            "machine: m\nnics: {{NET0: {{vfs: 1}}}}\nguests: {{a: {{functions: [NET0#0], {guest}}}}}\n"
        );
        let exported = exported(&model, ExportFormat::Incus);
        let text = exported.files[0].text.clone();
        let config =
            text.split_once("config:").unwrap().1.split_once("devices:").unwrap().0.trim().to_owned();
        let of_guests = exported.left_out.into_iter().filter(|line| line.contains(" of a: "));
        (config, of_guests.collect::<Vec<_>>())
    };
    let vm = "`kind` of a: a profile made here has a guest's functions, CPUs, memory and privileges alone";
    let none: &[&str] = &[];
    for (guest, wanted, told) in [
        ("", "{}", none),
        (
            "cpus: 2, memory: 512MiB, privileged: on",
            "limits.cpu: '2'\n  limits.memory: '512MiB'\n  security.privileged: 'true'",
            none,
        ),
        ("kind: vm", "limits.memory: '256MiB'", &[vm]),
        // A number alone would be how many.
        ("pin: 3", "limits.cpu: '3-3'", none),
        ("pin: \"2,4-5\"", "limits.cpu: '2,4-5'", none),
        (
            "kind: vm, pin: 2-3, cpus: 2, huge_pages: 2MiB",
            "limits.cpu: '2-3'\n  limits.memory: '256MiB'\n  limits.memory.hugepages: 'true'",
            &[vm],
        ),
        (
            "pin: 2-3, cpus: 1",
            "limits.cpu: '2-3'",
            &["`cpus: 1` of a: Incus has one word for which CPUs and how many, and `pin` has it"],
        ),
        (
            "kind: vm, memory: 1GiB, huge_pages: 1GiB",
            "limits.memory: '1GiB'\n  limits.memory.hugepages: 'true'",
            &["`huge_pages: 1GiB` of a: Incus takes huge pages of the size that the host mounts", vm],
        ),
    ] {
        assert_eq!(
            model(guest),
            (wanted.to_owned(), told.iter().map(|line| (*line).to_owned()).collect()),
            "{guest}"
        );
    }
}

#[test]
fn no_vlan_is_told_where_a_program_has_words_for_vlans_alone() {
    let model =
        "machine: m\nnics: {NET0: {vfs: 2, defaults: {vlan: 0}}}\nguests: {a: {functions: [NET0#0]}}\n";
    for format in [ExportFormat::Networkd, ExportFormat::Netplan, ExportFormat::Incus] {
        let exported = exported(model, format);
        let text: String = exported.files.iter().map(|file| file.text.as_str()).collect();
        assert!(!text.to_lowercase().contains("vlan"), "{text}");
        assert!(exported.left_out.iter().any(|line| line.contains("`vlan: 0`")), "{:?}", exported.left_out);
    }
}
