//! `penstock export` as a user meets it: files or text, and what is left out.
#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path};

use penstock_testkit::{
    binary::{Run, run_built},
    json, models,
};

fn penstock(directory: &Path, arguments: &[&str]) -> Run {
    run_built(env!("CARGO_BIN_EXE_penstock"), directory, arguments)
}

const MODEL: &str = "\
machine: m
nics: {NET0: {vfs: 2}}
guests:
  a: {functions: [{vf: NET0#1, max_tx_rate: 100}]}
";

fn directory() -> tempfile::TempDir {
    models::beside_a_machine("m.yaml", MODEL)
}

#[test]
fn what_is_printed_is_what_is_written_and_what_is_left_out_is_a_warning() {
    let directory = directory();
    let here = directory.path();
    let words = ["export", "m.yaml", "--inventory", "machine.json", "--to", "networkd"];
    let printed = penstock(here, &words);
    assert_eq!(printed.status, 0, "{}", printed.stderr);
    assert!(printed.stderr.contains("warning: left out: NET0: `max_tx_rate` of VF 1"), "{}", printed.stderr);

    let written = penstock(here, &[&words[..], &["--output", "made/link"]].concat());
    assert_eq!((written.status, written.stdout.as_str()), (0, "made/link/10-penstock-NET0.link\n"));
    let text = fs::read_to_string(here.join("made/link/10-penstock-NET0.link")).unwrap();
    assert_eq!(printed.stdout, text);

    let document = json::read(&penstock(here, &[&words[..], &["--json"]].concat()).stdout).unwrap();
    assert_eq!(document["files"][0]["text"], text);
    assert_eq!(document["left_out"].as_array().unwrap().len(), 2, "{document}");
}

/// What is printed goes into a file or a pipe: whoever reads it takes it for its own.
#[test]
fn what_is_printed_is_read_by_the_program_that_it_is_for() {
    let directory = directory();
    let here = directory.path();
    fs::write(
        here.join("vm.yaml"),
        "machine: m\nnics: {NET0: {vfs: 2}}\nguests: {a: {kind: vm, functions: [NET0#1]}}\n",
    )
    .unwrap();
    fs::write(here.join("none.yaml"), "machine: m\nnics: {NET0: {vfs: 2}}\nguests: {}\n").unwrap();
    let export = |model, to| penstock(here, &["export", model, "--inventory", "machine.json", "--to", to]);
    let list = export("m.yaml", "cni");
    let document: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!(document["plugins"][0]["type"], "penstock-cni", "{}", list.stdout);

    let network = export("none.yaml", "libvirt");
    assert!(network.stdout.starts_with("<!-- By"), "{}", network.stdout);
    fs::write(here.join("network.xml"), network.stdout).unwrap();
    let words = ["import", "network.xml", "--from", "libvirt", "--inventory", "machine.json"];
    let back = penstock(here, &words);
    assert_eq!(back.status, 0, "{}", back.stderr);

    // Of several each has its name before it, in a comment.
    let two = export("vm.yaml", "libvirt");
    assert!(two.stdout.starts_with("<!-- penstock-NET0.network.xml -->\n<!-- By"), "{}", two.stdout);
    assert!(two.stdout.contains("\n<!-- penstock-NET0-vf1.interface.xml -->\n"), "{}", two.stdout);
}

#[test]
fn a_program_that_is_not_known_is_answered_with_those_that_are() {
    let directory = directory();
    let run = penstock(directory.path(), &["export", "m.yaml", "--to", "ifupdown"]);
    assert_eq!(run.status, 2);
    for name in ["cni", "incus", "libvirt", "netplan", "networkd", "nmstate", "sriov-operator"] {
        assert!(run.stderr.contains(name), "{}", run.stderr);
    }
}
