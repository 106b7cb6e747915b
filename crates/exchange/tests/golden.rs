//! What a model comes to in the words of each program: `tests/golden/FORMAT/`, and what is left out, in `left-out`.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeMap, env, fs, path::Path};

use penstock_exchange::{ExportFormat, Exported, export};
use penstock_model::{Inventory, Source, parse};

const INVENTORY: &str = include_str!("machine.json");
const MODEL: &str = include_str!("model.yaml");

fn exported(model: &str, format: ExportFormat) -> Exported {
    let source = Source::new("model.yaml", model);
    let model = parse(&source).unwrap().model;
    let inventory: Inventory = serde_json::from_str(INVENTORY).unwrap();
    export(&model, &inventory, format).unwrap()
}

fn holds(format: ExportFormat, directory: &str) {
    are_as_before(exported(MODEL, format), directory);
}

fn are_as_before(exported: Exported, directory: &str) {
    let left_out = exported.left_out.iter().map(|line| format!("{line}\n")).collect();
    let files = exported.files.into_iter().map(|file| (file.name, file.text));
    let files: BTreeMap<String, String> = files.chain([("left-out".to_owned(), left_out)]).collect();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(directory);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        let _ = fs::remove_dir_all(&golden);
        fs::create_dir_all(&golden).unwrap();
        files.iter().for_each(|(name, text)| fs::write(golden.join(name), text).unwrap());
    }
    let there = fs::read_dir(&golden).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
    });
    assert_eq!(there.collect::<BTreeMap<_, _>>(), files);
}

#[test]
fn a_model_for_cni() {
    holds(ExportFormat::Cni, "cni");
}

#[test]
fn a_model_for_incus() {
    holds(ExportFormat::Incus, "incus");
}

#[test]
fn a_model_for_libvirt() {
    holds(ExportFormat::Libvirt, "libvirt");
}

/// An NVMe drive with two VFs. Who it is does not matter.
const DRIVE: &str = r#"{
  "bdf": "0000:65:00.0", "driver": "nvme", "name": "nvme0", "model": "a", "serial": "s1", "numa_node": 0, "iommu_group": null,
  "identity": {"ids": {"vendor": 6900, "device": 16, "subsystem_vendor": 6900, "subsystem": 0}, "vendor_name": null, "device_name": null, "serial": null, "slot": null},
  "sriov": {"total_vfs": 2, "num_vfs": 2, "autoprobe": true, "first_vf_offset": 1, "vf_stride": 1, "vf_device": 16, "vfs": [
    {"index": 0, "bdf": "0000:65:00.1"}, {"index": 1, "bdf": "0000:65:00.2"}]}
}"#;

/// Each kind of VM, with all that a domain has words for, and a machine where each may be.
#[test]
fn vms_for_libvirt() {
    let mut inventory: Inventory = serde_json::from_str(INVENTORY).unwrap();
    inventory.cpus.online = "0-7".parse().unwrap();
    inventory.nvme.push(serde_json::from_str(DRIVE).unwrap());
    let model = parse(&Source::new("domains.yaml", include_str!("domains.yaml"))).unwrap().model;
    let exported = export(&model, &inventory, ExportFormat::Libvirt).unwrap();
    are_as_before(exported, "libvirt-domains");
}

#[test]
fn what_a_vm_has_and_the_machine_has_not_is_told() {
    let model = "machine: m\nnics: {NET0: {vfs: 2}}\ndrives: {SSD0: {vfs: 1}}\nguests:\n  a: {kind: vm, drives: [SSD0#0]}\n  \
                 b: {kind: vm, pin: 0-1, exclusive: on, functions: [NET0#0]}\n";
    let exported = exported(model, ExportFormat::Libvirt);
    for told in [
        "SSD0#0 in `drives` of a: this machine has no such VF",
        "where a runs: each CPU of this machine is another guest's alone, and its domain names none",
    ] {
        assert!(exported.left_out.iter().any(|line| line == told), "{told}: {:?}", exported.left_out);
    }
    let a = exported.files.iter().find(|file| file.name == "penstock-a.domain.xml").unwrap();
    assert!(!a.text.contains("hostdev") && !a.text.contains("cpuset=''"), "{}", a.text);
}

#[test]
fn a_model_for_netplan() {
    holds(ExportFormat::Netplan, "netplan");
}

#[test]
fn a_model_for_systemd() {
    holds(ExportFormat::Networkd, "networkd");
}

#[test]
fn a_model_for_nmstate() {
    holds(ExportFormat::Nmstate, "nmstate");
}

#[test]
fn a_model_for_the_sriov_network_operator() {
    holds(ExportFormat::SriovOperator, "sriov-operator");
}

#[test]
fn what_somebody_else_manages_is_left_to_them_and_that_is_said() {
    for format in ExportFormat::ALL {
        let exported = exported("machine: m\nnics: {NET0: {vfs: 2, externally_managed: true}}\n", format);
        assert_eq!(exported.files, []);
        assert_eq!(
            exported.left_out,
            ["NET0: it is externally managed: whoever makes its VFs says what is set there"]
        );
    }
}

#[test]
fn no_two_policies_have_one_name() {
    // `net0` has VFs 1 to 3 free, `net0-1` VF 3.
    let model = "machine: m\nnics:\n  net0: {match: {mac: 0c:c4:7a:9a:61:ea}, vfs: 4}\n  net0-1: {match: {mac: 0c:c4:7a:9a:61:eb}, vfs: 4}\n\
                 guests:\n  a: {functions: [net0#0, net0-1#0, net0-1#1, net0-1#2]}\n";
    let policies = &exported(model, ExportFormat::SriovOperator).files[0].text;
    let mut names: Vec<&str> = policies.lines().filter(|line| line.starts_with("  name: ")).collect();
    let all = names.len();
    names.dedup();
    assert_eq!((all, names.len()), (2, 2), "{policies}");
}

#[test]
fn nics_whose_names_differ_in_case_or_marks_alone_are_not_mixed_up() {
    let model = "machine: m\nnics:\n  a.b: {match: {mac: 0c:c4:7a:9a:61:ea}, vfs: 2}\n  A_b: {match: {mac: 0c:c4:7a:9a:61:eb}, vfs: 2}\n";
    let links = exported(model, ExportFormat::Networkd).files;
    let names: Vec<&str> = links.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["10-penstock-a.b.link", "10-penstock-A_b.link"]);
    let policies = exported(model, ExportFormat::SriovOperator);
    assert_eq!(policies.files[0].text.matches("resourceName").count(), 1);
    assert!(
        policies
            .left_out
            .iter()
            .any(|line| line.starts_with("A_b: its resource would be called `a_b`, as that of a.b is")),
        "{:?}",
        policies.left_out
    );
}
