//! The binary as a user meets it, without a board: what it prints where, and how it exits.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use penstock_testkit::{
    binary::{Run, run_built},
    models,
};

/// Runs the binary of this build.
fn penstock(directory: &Path, arguments: &[&str]) -> Run {
    run_built(env!("CARGO_BIN_EXE_penstock"), directory, arguments)
}

fn write(directory: &Path, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, contents).unwrap();
    path
}

#[test]
fn the_examples_are_good_models() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["smallest.yaml", "storage-node.yaml", "containers.yaml", "xeon-d.yaml"] {
        let run = penstock(&examples, &["check", name]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{name}");
        assert!(run.stdout.starts_with(&format!("{name}: a good model of")), "{}", run.stdout);
    }
}

#[test]
fn a_wrong_model_is_answered_with_the_place_and_exit_status_2() {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        "m.yaml",
        "nics: {NET0: {vfs: 1, loopbak: on}}\nguests: {a: {functions: [NET0#0]}}\n",
    );
    for verb in ["check", "plan", "apply", "verify", "start", "stop", "rehearse"] {
        let run = penstock(directory.path(), &[verb, "m.yaml"]);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{verb}: {}", run.stderr);
        assert!(run.stderr.contains("m.yaml:1:23"), "{verb}: {}", run.stderr);
        assert!(run.stderr.contains("loopback"), "{verb} names the key that was meant: {}", run.stderr);
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing was touched: {left:?}");
}

#[test]
fn a_file_that_is_no_model_is_answered_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let bomb = (0..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}a{}: &a{} [*a{n}, *a{n}, *a{n}, *a{n}]\n", n + 1, n + 1)
    });
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("empty.yaml", Vec::new(), "empty"),
        ("latin1.yaml", b"machine: caf\xe9\n".to_vec(), "UTF-8"),
        ("large.yaml", vec![b'#'; 10 << 20], "1024 KiB"),
        ("bomb.yaml", bomb.into_bytes(), "bomb.yaml"),
        ("text.yaml", b"just words\n".to_vec(), "just words"),
    ];
    for (name, contents, said) in cases {
        write(directory.path(), name, contents);
        let run = penstock(directory.path(), &["check", name]);
        assert_eq!(run.status, 2, "{name}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{name}: {}", run.stderr);
    }
    let run = penstock(directory.path(), &["check", "missing.yaml"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("could not read missing.yaml"), "{}", run.stderr);
}

#[test]
fn a_model_that_does_not_fit_points_at_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let inventory = serde_json::to_vec(&models::machine(2, 8)).unwrap();
    write(directory.path(), "machine.json", inventory);
    write(directory.path(), "fits.yaml", models::dealt_out(2, 8, 2));
    write(directory.path(), "large.yaml", models::dealt_out(2, 9, 2));
    let run = penstock(directory.path(), &["plan", "fits.yaml", "--inventory", "machine.json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.contains("0000:04:00.0: 8 VFs"), "{}", run.stdout);
    let run = penstock(directory.path(), &["plan", "large.yaml", "--inventory", "machine.json"]);
    assert_eq!((run.status, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("large.yaml:12:9"), "{}", run.stderr);
    let run = penstock(directory.path(), &["plan", "fits.yaml", "--inventory", "fits.yaml"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("penstock scan --json"), "{}", run.stderr);
}

#[test]
fn evidence_is_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m.yaml", "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n");
    let run = penstock(directory.path(), &["rehearse", "m.yaml", "--output", "."]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(run.stderr.contains("is not empty"), "{}", run.stderr);
}

#[test]
fn data_is_json_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let recorded = penstock_testkit::sysfs::machine("x550-two-port");
    let root = recorded.path().to_str().unwrap();
    let run = penstock(directory.path(), &["scan", "--json", "--root", root]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let inventory: penstock_model::Inventory = serde_json::from_str(&run.stdout).unwrap();
    let vf = &inventory.pfs[1].sriov.as_ref().unwrap().vfs[2];
    assert_eq!(vf.bdf.to_string(), "0000:04:10.5");
    let schema = penstock(directory.path(), &["schema"]);
    serde_json::from_str::<serde_json::Value>(&schema.stdout).unwrap();
}

#[test]
fn a_bad_command_line_is_exit_status_2() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(penstock(directory.path(), &["chek"]).status, 2);
    assert_eq!(penstock(directory.path(), &["check"]).status, 2);
}
