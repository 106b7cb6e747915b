//! `penstock import` as a user meets it: a model on standard output, and what it cannot say on standard error.
#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path};

use penstock_testkit::{
    binary::{Run, run_built},
    json, models,
};

const NETPLAN: &str = "\
network:
  version: 2
  ethernets:
    ens0: {virtual-function-count: 2, mtu: 9000, dhcp4: true}
    ens0v1: {link: ens0, macaddress: \"02:00:00:00:00:07\"}
";

fn penstock(directory: &Path, arguments: &[&str]) -> Run {
    run_built(env!("CARGO_BIN_EXE_penstock"), directory, arguments)
}

fn directory() -> tempfile::TempDir {
    models::beside_a_machine("n.yaml", NETPLAN)
}

const WORDS: [&str; 6] = ["import", "n.yaml", "--from", "netplan", "--inventory", "machine.json"];

#[test]
fn the_model_is_a_good_one_and_fits_the_machine_and_the_rest_is_a_warning_with_its_place() {
    let directory = directory();
    let here = directory.path();
    let imported = penstock(here, &WORDS);
    assert_eq!(imported.status, 0, "{}", imported.stderr);
    assert!(
        imported.stderr.contains("warning: `dhcp4` is left out")
            && imported.stderr.contains("--> n.yaml:4:50"),
        "{}",
        imported.stderr
    );
    assert!(
        imported.stdout.contains("match: {mac: \"0c:c4:7a:9a:62:00\"}  # the PF that was called ens0"),
        "{}",
        imported.stdout
    );
    fs::write(here.join("m.yaml"), &imported.stdout).unwrap();
    for verb in ["check", "plan"] {
        let run = penstock(here, &[verb, "m.yaml", "--strict", "--inventory", "machine.json"]);
        assert_eq!(run.status, 0, "{verb}: {}", run.stderr);
    }
}

#[test]
fn as_data_the_warnings_are_diagnostics_and_with_strict_they_are_errors() {
    let directory = directory();
    let here = directory.path();
    let document = json::read(&penstock(here, &[&WORDS[..], &["--json"]].concat()).stdout).unwrap();
    let found = &document["diagnostics"][0];
    assert_eq!(
        (&found["severity"], &found["code"], &found["path"], &found["line"]),
        (&"warning".into(), &"import.dhcp4".into(), &"network.ethernets.ens0.dhcp4".into(), &4.into()),
        "{document}"
    );
    assert!(document["model"].as_str().unwrap().contains("vfs: 2"), "{document}");
    let strict = penstock(here, &[&WORDS[..], &["--strict"]].concat());
    assert_eq!((strict.status, strict.stdout.as_str()), (2, ""));
    assert!(strict.stderr.contains("error: `dhcp4` is left out"), "{}", strict.stderr);
}

#[test]
fn what_is_no_such_file_is_refused_with_its_place() {
    let directory = directory();
    let here = directory.path();
    fs::write(here.join("deep.yaml"), format!("network: {}", "[".repeat(5000))).unwrap();
    fs::write(here.join("bytes.yaml"), b"network: \xff").unwrap();
    fs::write(here.join("large.yaml"), vec![b'#'; 2 << 20]).unwrap();
    for file in ["deep.yaml", "bytes.yaml", "large.yaml", "nothing.yaml", "machine.json"] {
        let run = penstock(here, &["import", file, "--from", "netplan", "--inventory", "machine.json"]);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{file}: {}", run.stderr);
        assert!(run.stderr.contains(file), "{}", run.stderr);
    }
}
