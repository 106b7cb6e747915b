//! The binary as a user meets it, without a board: what it prints where, and how it exits.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use penstock_host::{files, running::Running};
use penstock_testkit::{
    binary::{Run, run_built},
    json, models, page, tuned,
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
    for name in
        ["smallest.yaml", "storage-node.yaml", "containers.yaml", "container-nics.yaml", "xeon-d.yaml"]
    {
        let run = penstock(&examples, &["check", name]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{name}");
        assert!(run.stdout.starts_with(&format!("{name}: a good model of")), "{}", run.stdout);
    }
}

/// The reference of the model shows each key by examples (`crates/testkit/tests/reference.rs`), which can be copied.
#[test]
fn every_example_of_the_reference_passes_a_strict_check() {
    let examples = page::examples("model.md");
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<String> = examples.iter().map(|example| format!("line-{}.yaml", example.line)).collect();
    for (example, name) in examples.iter().zip(&names) {
        write(directory.path(), name, &example.text);
    }
    let arguments: Vec<&str> =
        ["check", "--strict"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let run = penstock(directory.path(), &arguments);
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (0, ""),
        "the files are called by their lines in docs/model.md"
    );
    assert!(examples.len() >= 20, "{}", examples.len());
}

#[test]
fn a_board_without_a_disk_is_refused_before_its_reset_is_begun() {
    let directory = tempfile::tempdir().unwrap();
    let boards = directory.path().join("penstock/boards");
    files::make_own_directory(&boards).unwrap();
    files::make_own_directory(boards.join("practice")).unwrap();
    let Running { id, started } = Running::this().unwrap();
    let known = format!(
        r#"{{"name": "practice", "port": 1, "qemu": {{"pid": {id}, "started": {started}}}, "owner": null, "emulator": "9",
            "choice": {{"accelerator": "tcg", "why": "a test"}}}}"#
    );
    write(&boards.join("practice"), "board.json", known);
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.env("XDG_CACHE_HOME", directory.path().join("cache")).env("XDG_RUNTIME_DIR", directory.path());
    let run: Run = command.args(["board", "reset", "practice"]).output().unwrap().into();
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (
            2,
            "error: the board \"practice\" cannot be reset: it has no disk, and all that it was given would be gone\n\
             help: bring it up with `penstock board up MODEL --keep-disk`\n"
        )
    );
}

/// The commands of a document's console examples, and what the document shows that they print.
fn consoles(document: &str) -> Vec<(&str, String)> {
    // What stands before a block's first command, or between blocks, belongs to none.
    let mut found = vec![("", String::new())];
    let mut within = false;
    for line in document.lines() {
        if line.starts_with("```") {
            within = line == "```text";
            found.push(("", String::new()));
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| within) {
            found.push((command, String::new()));
        } else if let Some((_, shown)) = found.last_mut() {
            *shown += line;
            shown.push('\n');
        }
    }
    found.retain(|(command, _)| !command.is_empty());
    found
}

/// Whether that is what is printed; a line `…` stands for any that are left out.
fn is_printed(shown: &str, printed: &str) -> bool {
    let mut rest = printed;
    for (at, part) in shown.split("…\n").enumerate() {
        let Some(found) = rest.find(part).filter(|found| at > 0 || *found == 0) else { return false };
        rest = &rest[found + part.len()..];
    }
    rest.is_empty()
}

/// The README and the tutorial show what `check` and `plan` print; the machine is the practice board of the tutorial.
#[test]
fn what_the_documents_show_of_check_and_plan_is_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::os::unix::fs::symlink(root.join("examples"), at.join("examples")).unwrap();
    let office =
        page::examples("tutorial.md").into_iter().find(|one| one.text.contains("office")).unwrap().text;
    let recorded = root.join("crates/plan/tests/golden/tenant/inventory.json");
    let recorded =
        std::fs::read_to_string(recorded).unwrap().replace("0c:c4:7a:9a:61:ea", "02:70:73:4e:a9:c1");
    let mut machine: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    let paths = serde_json::json!([{"names": ["mgmt"], "function": "0000:00:03.0"}]);
    machine["lifelines"] = serde_json::json!({
        "found": [{"kind": {"ssh": {"peer": "10.0.2.2", "own": true}}, "paths": paths}]
    });
    write(at, "server.json", machine.to_string());
    for (name, wanted) in [("README.md", 2), ("docs/tutorial.md", 4)] {
        let document = std::fs::read_to_string(root.join(name)).unwrap();
        let mut count = 0;
        for (command, shown) in consoles(&document) {
            let arguments: Vec<&str> = command.split(' ').skip(1).collect();
            if !command.starts_with("penstock ") || !["check", "plan"].contains(&arguments[0]) {
                continue;
            }
            count += 1;
            let wrong = shown.contains("adress");
            let office = if wrong {
                office.replace("address: 10.20.30.2/", "adress: 10.20.30.2/")
            } else {
                office.clone()
            };
            write(at, "office.yaml", office);
            let run = penstock(at, &arguments);
            assert_eq!(run.status, if wrong { 2 } else { 0 }, "{name}: {command}: {}", run.stderr);
            let printed = if wrong { run.stderr } else { run.stdout };
            assert!(
                is_printed(&shown, &printed),
                "{name} shows of `{command}`:\n{shown}\nand it prints:\n{printed}"
            );
        }
        assert_eq!(count, wanted, "{name}");
    }
}

/// They begin with what this machine runs boards with, which differs from one to the next.
#[test]
fn what_the_documents_leave_out_of_a_rehearsal_is_marked() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, wanted) in [("README.md", 1), ("docs/tutorial.md", 2)] {
        let document = std::fs::read_to_string(root.join(name)).unwrap();
        let boards = ["penstock rehearse ", "penstock board up "];
        let all = consoles(&document);
        let shown: Vec<_> =
            all.iter().filter(|(command, _)| boards.iter().any(|begin| command.starts_with(begin))).collect();
        assert_eq!(shown.len(), wanted, "{name}");
        for (command, shown) in shown {
            let whole = shown.starts_with("Accelerator: ");
            assert!(whole || shown.starts_with("…\n"), "{name} begins later than `{command}` does:\n{shown}");
        }
    }
}

#[test]
fn one_of_a_thing_is_one() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "one.yaml", "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n");
    write(directory.path(), "two.yaml", "nics: {NET0: {vfs: 2}, NET1: }\n");
    let said = |name: &str| penstock(directory.path(), &["check", name]).stdout;
    assert_eq!(said("one.yaml"), "one.yaml: a good model of 1 NIC, 1 VF, 1 guest\n");
    assert_eq!(said("two.yaml"), "two.yaml: a good model of 2 NICs, 2 VFs, 0 guests\n");
}

#[test]
fn a_wrong_model_is_answered_with_the_place_and_exit_status_2() {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        "m.yaml",
        "nics: {NET0: {vfs: 1, loopbak: on}}\nguests: {a: {functions: [NET0#0]}}\n",
    );
    for verb in ["check", "plan", "apply", "verify", "start", "stop", "measure", "rehearse"] {
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
    let run = penstock(directory.path(), &["check", "."]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("help: name a file in it, like ./FILE"), "{}", run.stderr);
}

#[test]
fn a_directory_or_file_that_is_no_recorded_machine_is_not_taken_for_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "file", "x");
    for verb in ["scan", "metrics", "audit"] {
        for root in ["nowhere", "file", "."] {
            let run = penstock(directory.path(), &[verb, "--root", root]);
            assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{verb} {root}: {}", run.stderr);
            let wanted = format!("{root} holds neither proc nor sys: it is no recorded machine");
            assert!(run.stderr.contains(&wanted), "{verb} {root}: {}", run.stderr);
        }
    }
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
    assert!(run.stdout.contains("0 -> 8"), "{}", run.stdout);
    let run = penstock(directory.path(), &["plan", "large.yaml", "--inventory", "machine.json"]);
    assert_eq!((run.status, run.stdout.as_str()), (6, ""));
    assert!(run.stderr.contains("large.yaml:12:9"), "{}", run.stderr);
    let run = penstock(directory.path(), &["plan", "fits.yaml", "--inventory", "fits.yaml"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("penstock scan --json"), "{}", run.stderr);
    assert!(run.stderr.contains("it is no JSON document; is it a model?"), "{}", run.stderr);
    let run = penstock(directory.path(), &["plan", "fits.yaml", "--inventory", "missing.json"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("penstock scan --json"), "{}", run.stderr);
}

#[test]
fn a_nic_selected_by_name_is_answered_with_who_has_that_name_now() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let machine = models::machine(2, 8);
    write(at, "machine.json", serde_json::to_vec(&machine).unwrap());
    let pf = &machine.pfs[1];
    let name = pf.interface.as_ref().unwrap().name.to_string();
    let (bdf, mac) = (pf.bdf.to_string(), pf.permanent_mac.unwrap().to_string());
    for key in ["interface", "ifname", "name", "dev", "pfNames"] {
        let value = if key == "pfNames" { format!("[\"{name}#0-3\"]") } else { name.clone() };
        write(at, "m.yaml", format!("nics: {{NET0: {{match: {{{key}: {value}}}}}}}\n"));
        let run = penstock(at, &["check", "m.yaml"]);
        assert_eq!(run.status, 2, "{key}: {}", run.stderr);
        assert!(
            run.stderr.contains("kernel names move") && run.stderr.contains("check --here"),
            "{}",
            run.stderr
        );
        for verb in ["check", "plan"] {
            let run = penstock(at, &[verb, "m.yaml", "--inventory", "machine.json"]);
            assert_eq!(run.status, 2, "{verb} {key}: {}", run.stderr);
            let said = format!("{name} is now the PF {bdf}: write {{mac: \"{mac}\"}}");
            assert!(run.stderr.contains(&said), "{verb} {key}: {}", run.stderr);
        }
    }
    // Where no NIC has it, the names that there are; of this machine wherever that is meant.
    write(at, "m.yaml", "nics: {NET0: {match: {interface: none77}}}\n");
    let run = penstock(at, &["plan", "m.yaml", "--inventory", "machine.json"]);
    assert!(
        run.stderr.contains("no NIC of this machine has the name none77 now") && run.stderr.contains(&name),
        "{}",
        run.stderr
    );
    // For a model that is wrong nobody logs in on another machine: that the name was not looked up there is said, and what shows it.
    let run = penstock(at, &["check", "m.yaml", "--host", "nowhere.example"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    for said in [
        "which PF of nowhere.example has the name now was not looked up there",
        "`penstock scan --host nowhere.example`",
    ] {
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
    for line in [
        "check m.yaml --here",
        "plan m.yaml",
        "apply m.yaml",
        "verify m.yaml",
        "start m.yaml",
        "stop m.yaml",
        "measure m.yaml",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let run = penstock(at, &words);
        assert_eq!(run.status, 2, "{line}: {}", run.stderr);
        assert!(run.stderr.contains("no NIC of this machine has the name none77"), "{line}: {}", run.stderr);
    }
}

#[test]
fn a_directory_that_cannot_be_had_is_answered_with_another() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m.yaml", models::dealt_out(2, 8, 2));
    write(directory.path(), "machine.json", serde_json::to_string(&models::machine(2, 8)).unwrap());
    write(directory.path(), "file", "");
    for line in [
        "rehearse m.yaml -o file",
        "rehearse m.yaml -o /proc/xx",
        "export m.yaml --to netplan --inventory machine.json -o file",
    ] {
        let run = penstock(directory.path(), &line.split(' ').collect::<Vec<_>>());
        assert_eq!(run.status, 2, "{line}: {}", run.stderr);
        assert!(run.stderr.contains("help: name another directory with --output"), "{line}: {}", run.stderr);
    }
}

/// Beside what is missing no report says that anything does not hold.
#[test]
fn a_rehearsal_that_cannot_begin_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m.yaml", models::dealt_out(2, 8, 2));
    for more in [
        &["rehearse", "m.yaml"][..],
        &["rehearse", "m.yaml", "--measure"],
        &["rehearse", "m.yaml", "-o", "a/b"],
    ] {
        let run = std::process::Command::new(env!("CARGO_BIN_EXE_penstock"))
            .args(more)
            .current_dir(directory.path())
            .envs([("PATH", "/nonexistent"), ("PENSTOCK_PATH", "/nonexistent")])
            .env("HOME", directory.path().join("home"))
            .env_remove("XDG_CACHE_HOME")
            .output()
            .unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(4), "{more:?}: {said}");
        assert!(said.contains("is not installed") || said.contains("missing"), "{more:?}: {said}");
        for left in ["runs", "a"] {
            assert!(!directory.path().join(left).exists(), "{more:?}: {left}");
        }
    }
}

/// As `plan` tells it, with the place in the model.
#[test]
fn a_rehearsal_of_a_machine_that_does_not_fit_is_answered_as_a_plan_is() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m.yaml", models::dealt_out(2, 9, 2));
    write(directory.path(), "machine.json", serde_json::to_string(&models::machine(2, 8)).unwrap());
    let told = |line: &str| {
        let run = penstock(directory.path(), &line.split(' ').collect::<Vec<_>>());
        assert_eq!(run.status, 6, "{line}: {}", run.stderr);
        run.stderr
    };
    let planned = told("plan m.yaml --inventory machine.json");
    assert!(planned.contains("m.yaml:"), "{planned}");
    assert_eq!(told("rehearse m.yaml --inventory machine.json"), planned);
    assert!(!directory.path().join("runs").exists());
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
    let inventory: penstock_model::Inventory = json::read_as(&run.stdout).unwrap();
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

const SMALLEST: &str =
    "nics: {NET0: {vfs: 2}}\nguests: {a: {functions: [NET0#0]}, b: {functions: [NET0#1]}}\n";

#[test]
fn how_to_measure_is_checked_before_anything_is_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m.yaml", SMALLEST);
    for (words, said) in [
        (["--dwell", "1"], "did you mean 1ms or 1s?"),
        (["--dwell", "1ms"], "a sample lasts 100ms to 1h"),
        (["--time-limit", "0s"], "`none` is no limit"),
        (["--time-limit", "soon"], "12min"),
        (["--half-width", "5"], "5% or 0.05"),
        (["--half-width", "0%"], "more than nothing"),
        (["--samples", "0"], "1..=1000"),
        (["--path", "vf-vf"], "vf-vf-inside"),
        (["--protocol", "sctp"], "udp-stream"),
        (["--only", "cpu"], "network"),
    ] {
        for verb in [&["measure"][..], &["rehearse", "--measure"]] {
            let arguments = [verb, &["m.yaml"], &words].concat();
            let run = penstock(directory.path(), &arguments);
            assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{arguments:?}: {}", run.stderr);
            assert!(run.stderr.contains(said), "{arguments:?}: {}", run.stderr);
        }
    }
    let run = penstock(directory.path(), &["rehearse", "m.yaml", "--dwell", "2s"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("add --measure"), "{}", run.stderr);
    let run = penstock(directory.path(), &["rehearse", "m.yaml", "--measure=some"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("quick"), "{}", run.stderr);
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing was touched: {left:?}");
}

#[test]
fn only_a_run_of_the_same_model_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m.yaml", SMALLEST);
    let run = penstock(directory.path(), &["measure", "m.yaml", "--resume", "nowhere"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(
        run.stderr.contains("nowhere/run.json") && run.stderr.contains("penstock measure"),
        "{}",
        run.stderr
    );

    let choice = r#"{"quick": true, "seed": 7, "only": null, "paths": [], "protocols": [], "rules": {"confidence": 0.95,
        "half_width": 0.05, "minimum": 6, "maximum": 30, "warm_up": 1, "dwell_ms": 1000, "budget": null}}"#;
    let asked = format!(
        r#"{{"penstock": "0.1.0", "model": "{}", "started": "2026-01-01T00:00:00Z", "emulated": null, "choice": {choice}}}"#,
        "0".repeat(64)
    );
    std::fs::create_dir(directory.path().join("run")).unwrap();
    write(directory.path(), "run/run.json", asked);
    let run = penstock(directory.path(), &["measure", "m.yaml", "--resume", "run"]);
    assert_eq!(run.status, 3, "{}", run.stderr);
    assert!(
        run.stderr.contains("was of another model") && run.stderr.contains("model.yaml"),
        "{}",
        run.stderr
    );

    write(directory.path(), "run/run.json", "{}");
    let run = penstock(directory.path(), &["measure", "m.yaml", "--resume", "run"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    // What was measured is not chosen anew.
    for more in [["--dwell", "2s"], ["--output", "other"], ["--seed", "1"]] {
        let run =
            penstock(directory.path(), &[&["measure", "m.yaml", "--resume", "run"], &more[..]].concat());
        assert_eq!(run.status, 2, "{}", run.stderr);
        assert!(run.stderr.contains("cannot be used with"), "{}", run.stderr);
    }
}

#[test]
fn a_model_without_paths_says_which_and_why() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m.yaml", "nics: {NET0: {vfs: 1}}\n");
    let run = penstock(directory.path(), &["measure", "m.yaml", "--path", "bridge"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(
        run.stderr.contains("nothing to measure") && run.stderr.contains("bridge: no two containers"),
        "{}",
        run.stderr
    );
}

/// The machine of [`models::machine`] whose default route and SSH connection go over its first NIC.
fn hanging_on_the_first_nic() -> serde_json::Value {
    let mut inventory = serde_json::to_value(models::machine(2, 8)).unwrap();
    let bdf = inventory.pointer("/pfs/0/bdf").unwrap().clone();
    let paths = serde_json::json!([{"names": ["br0", "ens0"], "function": bdf}]);
    inventory["lifelines"] = serde_json::json!({"found": [
        {"kind": {"default_route": {"family": "IPv4", "table": 254}}, "paths": paths},
        {"kind": {"ssh": {"peer": "203.0.113.7", "own": true}}, "paths": paths},
    ]});
    inventory
}

#[test]
fn what_cuts_the_machine_off_is_refused_until_each_of_it_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "machine.json", hanging_on_the_first_nic().to_string());
    write(directory.path(), "m.yaml", models::dealt_out(2, 8, 2));
    let plan = |more: &[&str]| {
        let arguments = [&["plan", "m.yaml", "--inventory", "machine.json"], more].concat();
        penstock(directory.path(), &arguments)
    };
    let run = plan(&[]);
    assert_eq!(run.status, 3, "{}", run.stderr);
    for said in [
        "default-route:ens0",
        "ssh:ens0",
        "203.0.113.7",
        "below br0",
        "--allow ssh:ens0",
        "nothing was touched",
    ] {
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
    assert!(run.stdout.contains("danger: ssh:ens0 (step"), "the plan is shown all the same: {}", run.stdout);
    // One allows one.
    let run = plan(&["--allow", "ssh:ens0"]);
    assert_eq!(run.status, 3, "{}", run.stderr);
    assert!(!run.stderr.contains("--allow ssh:ens0"), "{}", run.stderr);
    for all in ["all", "*", "default-route", "default-route:"] {
        let run = plan(&["--allow", "ssh:ens0", "--allow", all]);
        assert_eq!(run.status, 3, "{all}: {}", run.stderr);
        assert!(run.stderr.contains("allows nothing"), "{all}: {}", run.stderr);
    }
    let run = plan(&["--allow", "ssh:ens0", "--allow", "default-route:ens0"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("allowed: ssh:ens0"), "{}", run.stderr);
    let run = plan(&["--json"]);
    assert_eq!(run.status, 3, "{}", run.stderr);
    let told: serde_json::Value = json::read(&run.stdout).unwrap();
    let names: Vec<_> = told["dangers"].as_array().unwrap().iter().map(|danger| &danger["name"]).collect();
    assert_eq!(names, ["default-route:ens0", "ssh:ens0"]);
    assert!(told["steps"].is_array() && told["effects"]["vfs"].is_array(), "{told}");
}

#[test]
fn an_inventory_without_lifelines_is_planned_with_a_word_on_it() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "machine.json", serde_json::to_vec(&models::machine(2, 8)).unwrap());
    write(directory.path(), "m.yaml", models::dealt_out(2, 8, 2));
    let run = penstock(directory.path(), &["plan", "m.yaml", "--inventory", "machine.json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("cuts it off is not known"), "{}", run.stderr);
}

#[test]
fn a_scan_tells_what_the_machine_hangs_on() {
    let directory = tempfile::tempdir().unwrap();
    let run = penstock(directory.path(), &["scan", "--json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let inventory: penstock_model::Inventory = json::read_as(&run.stdout).unwrap();
    let lifelines = inventory.lifelines.expect("somebody looked");
    // Every machine has a root; where it is, is found or said to be unknown.
    let root = penstock_model::inventory::LifelineSort::Root;
    let found = lifelines.found.iter().any(|lifeline| lifeline.kind.sort() == root);
    let in_memory = std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(" / / rw - tmpfs");
    assert!(
        found || in_memory || lifelines.unknown.iter().any(|unknown| unknown.sort == root),
        "{lifelines:?}"
    );
}

#[test]
fn every_recorded_machine_is_read_into_a_model_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for name in penstock_testkit::sysfs::machines() {
        let tree = penstock_testkit::sysfs::machine(&name);
        let root = tree.path().to_str().unwrap();
        let scanned = penstock(at, &["scan", "--root", root, "--json"]);
        write(at, "inventory.json", &scanned.stdout);
        let read = penstock(at, &["scan", "--root", root, "--as-model"]);
        let inventory: serde_json::Value = json::read(&scanned.stdout).unwrap();
        let drives = inventory["nvme"].as_array().into_iter().flatten();
        let with_vfs = drives.filter(|drive| drive["sriov"]["num_vfs"].as_u64() > Some(0)).count();
        if inventory["pfs"].as_array().is_none_or(Vec::is_empty) && with_vfs == 0 {
            assert_eq!((read.status, read.stdout.as_str()), (6, ""), "{name}");
            assert!(read.stderr.contains("no NIC"), "{}", read.stderr);
            continue;
        }
        assert_eq!(read.status, 0, "{name}: {}", read.stderr);
        write(at, "m.yaml", &read.stdout);
        let check = penstock(at, &["check", "m.yaml", "--inventory", "inventory.json"]);
        assert_eq!(check.status, 0, "{name}: {}\n{}", read.stdout, check.stderr);
        let plan = penstock(at, &["plan", "m.yaml", "--inventory", "inventory.json"]);
        assert_eq!(plan.status, 0, "{name}: {}", plan.stderr);
        assert!(plan.stdout.contains("Nothing to do"), "{name}: {}", plan.stdout);
        let printed = penstock(at, &["scan", "--root", root, "--as-model", "--json"]);
        let value: serde_json::Value = json::read(&printed.stdout).unwrap();
        assert_eq!(value["model"].as_str(), Some(read.stdout.as_str()), "{name}");
    }
}

#[test]
fn an_audit_of_a_recorded_machine_finds_what_was_planted_and_nothing_else() {
    let planted: Vec<tuned::Fault> = tuned::faults().into_iter().filter(|fault| fault.together).collect();
    let planted: Vec<&tuned::Fault> = planted.iter().collect();
    let machine = tuned::Machine::new();
    let audit = |faults: &[&tuned::Fault]| {
        machine.with(faults, |tree| penstock(tree, &["audit", "--json", "--root", tree.to_str().unwrap()]))
    };
    let complaints = |run: &Run| -> BTreeSet<String> {
        let found: serde_json::Value = json::read(&run.stdout).unwrap();
        let rows = found["rows"].as_array().unwrap().iter();
        let wrong = rows.filter(|row| row["verdict"] == "fail" || row["verdict"] == "conflict");
        wrong.map(|row| row["rule"].as_str().unwrap().to_owned()).collect()
    };
    let well = audit(&[]);
    assert_eq!((well.status, complaints(&well)), (0, BTreeSet::new()), "{}", well.stderr);
    let mis = audit(&planted);
    let wanted: BTreeSet<String> = planted.iter().flat_map(|fault| fault.rules.iter().cloned()).collect();
    assert_eq!((mis.status, complaints(&mis)), (1, wanted), "{}", mis.stderr);
}
