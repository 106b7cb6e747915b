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
    let exported = exported(MODEL, format);
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
