//! `penstock generate` as a user meets it: what it writes, what it says of a stale file, what it refuses.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use penstock_testkit::binary::{Run, run_built};

fn penstock(directory: &Path, arguments: &[&str]) -> Run {
    run_built(env!("CARGO_BIN_EXE_penstock"), directory, arguments)
}

const MODEL: &str = "\
machine: m
nics: {NET0: {match: {mac: \"0c:c4:7a:9a:61:ea\"}, vfs: 2}}
guests:
  a:
    functions: [NET0#1]
    generate:
      - {template: json, to: made/a.json}
      - {template: templates/a.j2, to: a.txt}
";

/// A directory with a model, below it a template.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("templates")).unwrap();
    fs::write(directory.path().join("templates/a.j2"), "{{ guest.name }} {{ functions[0].mac }}\n").unwrap();
    fs::write(directory.path().join("m.yaml"), MODEL).unwrap();
    directory
}

#[test]
fn files_are_written_beside_the_model_and_compared() {
    let directory = directory();
    let here = directory.path();
    let missing = penstock(here, &["generate", "m.yaml", "--check"]);
    assert_eq!(missing.status, 1, "{missing:?}");
    assert_eq!(missing.stdout.matches("missing").count(), 2, "{}", missing.stdout);
    assert!(!here.join("made").exists(), "--check writes nothing");

    // From another directory: paths are relative to the model.
    let elsewhere = tempfile::tempdir().unwrap();
    let model = here.join("m.yaml");
    let run = penstock(elsewhere.path(), &["generate", model.to_str().unwrap(), "--json"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{run:?}");
    let said = penstock_testkit::json::read(&run.stdout).unwrap()["files"].clone();
    assert_eq!(fs::read_to_string(here.join("a.txt")).unwrap(), "a 02:c8:59:e0:4d:01\n");
    let path = |at: usize| PathBuf::from(said[at]["path"].as_str().unwrap());
    assert_eq!(path(0).canonicalize().unwrap(), here.join("made/a.json").canonicalize().unwrap());
    assert_eq!((&said[1]["guest"], &said[1]["state"]), (&"a".into(), &"written".into()));
    assert_eq!(said[1]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(penstock(here, &["generate", "m.yaml", "--check"]).status, 0);
    let again = penstock(here, &["generate", "m.yaml"]);
    assert_eq!(again.stdout.matches("fresh").count(), 2, "what is so is not written again: {}", again.stdout);

    fs::write(here.join("a.txt"), "a 02:c8:59:e0:4d:02\n").unwrap();
    let stale = penstock(here, &["generate", "m.yaml", "--check"]);
    assert_eq!(stale.status, 1);
    for part in ["stale", "a.txt", "@@ -1 +1 @@", "-a 02:c8:59:e0:4d:02", "+a 02:c8:59:e0:4d:01"] {
        assert!(stale.stdout.contains(part), "{part}: {}", stale.stdout);
    }
    let below = penstock(here, &["generate", "m.yaml", "--output", "out"]);
    assert_eq!(below.status, 0, "{below:?}");
    assert!(here.join("out/made/a.json").is_file() && here.join("out/a.txt").is_file());
    assert_eq!(fs::read_to_string(here.join("a.txt")).unwrap(), "a 02:c8:59:e0:4d:02\n", "left alone");
}

#[test]
fn what_cannot_be_made_is_answered_with_the_place_and_nothing_is_written() {
    let directory = directory();
    let here = directory.path();
    let refused = |what: &str, verbs: &[&str], parts: &[&str]| {
        for verb in verbs {
            let run = penstock(here, &[verb, "m.yaml"]);
            assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{what}, {verb}: {}", run.stderr);
            for part in parts {
                assert!(run.stderr.contains(part), "{what}, {verb}, {part}: {}", run.stderr);
            }
        }
        assert!(!here.join("made").exists() && !here.join("a.txt").exists(), "{what}");
    };
    fs::write(here.join("templates/a.j2"), "one\n{{ guest.nmae }}\n").unwrap();
    let verbs = ["generate", "check"];
    refused(
        "a wrong name",
        &verbs,
        &["templates/a.j2:2:4", "{{ guest.nmae }}", "^^^^", "did you mean `name`?"],
    );
    fs::write(here.join("templates/a.j2"), b"caf\xe9\n").unwrap();
    refused("not text", &verbs, &["m.yaml:8:20", "UTF-8"]);
    fs::remove_file(here.join("templates/a.j2")).unwrap();
    refused(
        "no template",
        &["generate", "check", "plan", "apply", "verify"],
        &["m.yaml:8:20", "cannot be read"],
    );
    let unmatched =
        MODEL.replace("match: {mac: \"0c:c4:7a:9a:61:ea\"}, ", "").replace("templates/a.j2", "json");
    fs::write(here.join("m.yaml"), unmatched).unwrap();
    refused("no MAC", &["generate"], &["m.yaml:2:", "--here", "--inventory"]);
    assert_eq!(penstock(here, &["check", "m.yaml"]).status, 0, "the model by itself is good");
}

#[test]
fn what_is_there_and_no_text_is_not_written_over() {
    let directory = directory();
    let here = directory.path();
    fs::create_dir(here.join("a.txt")).unwrap();
    let run = penstock(here, &["generate", "m.yaml"]);
    assert_eq!(run.status, 3, "{run:?}");
    assert!(run.stderr.contains("a.txt") && !here.join("made").exists(), "{}", run.stderr);
    let check = penstock(here, &["generate", "m.yaml", "--check"]);
    assert_eq!(check.status, 1, "{check:?}");
}
