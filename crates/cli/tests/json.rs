//! What `--json` promises: one document a run, of a published schema, whatever happens.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use penstock_testkit::{
    binary::{Run, run_built},
    json, models,
};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock");

const BAD: &str = "nics:\n  NET0: {vfs: 1, loopbak: on}\nguests: {a: {functions: [NET0#0]}}\n";
const GOOD: &str = "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n";

struct Here(tempfile::TempDir);

impl Here {
    fn new() -> Here {
        let here = Here(tempfile::tempdir().unwrap());
        here.write("good.yaml", GOOD);
        here.write("bad.yaml", BAD);
        here.write("fits.yaml", &models::dealt_out(2, 8, 2));
        here.write("large.yaml", &models::dealt_out(2, 9, 2));
        here.write("foreign.yaml", "network: {ethernets: {ens0: {virtual-function-count: 1}}}\n");
        here.write("machine.json", &serde_json::to_string(&models::machine(2, 8)).unwrap());
        here
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn run(&self, line: &str) -> Run {
        run_built(PROGRAM, self.0.path(), &line.split(' ').collect::<Vec<_>>())
    }

    /// The one document that it prints; its exit status is the process's.
    fn document(&self, line: &str) -> Value {
        let run = self.run(line);
        let document =
            json::read(&run.stdout).unwrap_or_else(|error| panic!("{line}: {error:?}\n{}", run.stderr));
        assert_eq!(document["exit"], run.status, "{line}: {document}");
        document
    }
}

/// The kinds that `--of` takes, from the program's own help.
fn kinds() -> Vec<String> {
    let help = Here::new().run("schema --of nothing").stderr;
    let list = help.split("[possible values: ").nth(1).and_then(|rest| rest.split(']').next());
    list.unwrap_or_else(|| panic!("{help}")).split(", ").map(str::to_owned).collect()
}

#[test]
fn every_kind_has_a_schema_which_is_the_published_one_and_is_documented() {
    let here = Here::new();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")).unwrap();
    let kinds = kinds();
    assert!(kinds.len() > 20, "{kinds:?}");
    for kind in &kinds {
        let printed = here.run(&format!("schema --of {kind}"));
        assert_eq!(printed.status, 0, "{kind}");
        let path = format!("{}/../../schema/{kind}.schema.json", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &printed.stdout).unwrap();
        }
        assert_eq!(
            printed.stdout,
            fs::read_to_string(&path).unwrap(),
            "{path}: UPDATE_GOLDEN=1 writes it anew"
        );
        assert!(page.contains(&format!("| `{kind}` |")), "{kind} is not in docs/json.md");
    }
    let model: Value = serde_json::from_str(&here.run("schema").stdout).unwrap();
    assert!(model["properties"]["nics"].is_object());
}

/// Each verb that takes `--json` and can be run anywhere prints a document, done or failed.
#[test]
fn every_verb_prints_one_document_when_it_is_done_and_when_it_fails() {
    let here = Here::new();
    let recorded = penstock_testkit::sysfs::machine("x550-two-port");
    let root = recorded.path().display();
    let lines = [
        (format!("scan --json --root {root}"), "scan", 0),
        (format!("scan --json --as-model --root {root}"), "scan-model", 0),
        (format!("audit --json --as-tuned --root {root}"), "audit-tuned", 0),
        (format!("audit --json --tuned good.yaml --root {root}"), "error", 2),
        (format!("metrics --json --root {root}"), "metrics", 0),
        ("metrics bad.yaml --json".to_owned(), "error", 2),
        ("check good.yaml --json".to_owned(), "check", 0),
        ("check bad.yaml --json".to_owned(), "check", 2),
        ("check large.yaml --inventory machine.json --format json".to_owned(), "check", 6),
        ("plan fits.yaml --inventory machine.json --json".to_owned(), "plan", 0),
        ("plan large.yaml --inventory machine.json --json".to_owned(), "error", 6),
        ("rehearse large.yaml --inventory machine.json --json".to_owned(), "error", 6),
        ("board up large.yaml --inventory machine.json --json".to_owned(), "error", 6),
        ("plan bad.yaml --json".to_owned(), "error", 2),
        ("apply bad.yaml --json".to_owned(), "error", 2),
        ("verify bad.yaml --json".to_owned(), "error", 2),
        ("verify bad.yaml --json --watch".to_owned(), "error", 2),
        ("start bad.yaml --json".to_owned(), "error", 2),
        ("stop bad.yaml --json".to_owned(), "error", 2),
        ("generate good.yaml --json".to_owned(), "generate", 0),
        ("generate bad.yaml --json".to_owned(), "error", 2),
        ("export fits.yaml --to nmstate --inventory machine.json --json".to_owned(), "export", 0),
        ("export large.yaml --to nmstate --inventory machine.json --json".to_owned(), "error", 6),
        ("import foreign.yaml --from netplan --inventory machine.json --json".to_owned(), "import", 0),
        ("import bad.yaml --from netplan --inventory machine.json --json".to_owned(), "error", 2),
        ("measure bad.yaml --json".to_owned(), "error", 2),
        ("rehearse bad.yaml --json".to_owned(), "error", 2),
        ("report nowhere --json".to_owned(), "error", 2),
        ("report nowhere elsewhere --json".to_owned(), "error", 2),
        ("report nowhere --redact --json".to_owned(), "error", 2),
        ("report nowhere --latencies rteval --json".to_owned(), "error", 2),
        ("board list --json".to_owned(), "boards", 0),
        ("board down nothing --json".to_owned(), "error", 2),
        ("board cluster list --json".to_owned(), "clusters", 0),
        ("board cluster down nothing --json".to_owned(), "error", 2),
        ("board cluster up bad.yaml --json".to_owned(), "error", 2),
        ("chek good.yaml --json".to_owned(), "error", 2),
        ("check --json --nonsense".to_owned(), "error", 2),
    ];
    for (line, kind, status) in &lines {
        let document = here.document(line);
        assert_eq!(
            (&document["kind"], &document["exit"]),
            (&Value::from(*kind), &Value::from(*status)),
            "{line}: {document}"
        );
        if *kind == "error" {
            let message = document["errors"][0]["message"].as_str();
            assert!(message.is_some_and(|message| !message.is_empty()), "{line}: {document}");
        }
    }
}

/// Verbs that look at this machine's runs: with a state of their own.
#[test]
fn the_verbs_about_runs_print_documents_too() {
    let here = Here::new();
    let run = |line: &str| -> Value {
        let output = Command::new(PROGRAM)
            .args(line.split(' '))
            .env("PENSTOCK_STATE", here.0.path().join("state"))
            .env("PENSTOCK_JOURNAL", here.0.path().join("kept"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let document = json::read(&text)
            .unwrap_or_else(|error| panic!("{line}: {error:?} {}", String::from_utf8_lossy(&output.stderr)));
        assert_eq!(document["exit"], output.status.code().unwrap(), "{line}");
        document
    };
    assert_eq!(run("undo --list --json")["runs"], serde_json::json!([]));
    assert_eq!(run("undo --json")["kind"], "undo");
    assert_eq!(run("console --json")["guests"], serde_json::json!([]));
    let confirm = run("confirm --json");
    assert_eq!((&confirm["kind"], &confirm["of"]), (&"error".into(), &"confirm".into()), "{confirm}");
    assert_eq!(confirm["errors"][0]["message"], "no run waits to be confirmed");
}

#[test]
fn a_bad_model_is_told_as_data() {
    let here = Here::new();
    for line in ["check bad.yaml --json", "plan bad.yaml --json"] {
        let document = here.document(line);
        let found = match document["kind"] == "check" {
            true => &document["files"][0]["diagnostics"][0],
            false => &document["diagnostics"][0],
        };
        assert_eq!(found["severity"], "error", "{document}");
        assert_eq!(found["code"], "model.unknown-key", "{document}");
        let place = ["line", "column", "end_line", "end_column"].map(|key| found[key].as_u64().unwrap());
        assert_eq!((found["file"].as_str(), place), (Some("bad.yaml"), [2, 18, 2, 25]));
        assert!(found["help"].as_str().is_some_and(|help| help.contains("`loopback`")), "{document}");
    }
}

#[test]
fn many_files_are_checked_in_one_run_and_the_worst_counts() {
    let here = Here::new();
    let document = here.document("check good.yaml bad.yaml nowhere.yaml --json");
    let files = document["files"].as_array().unwrap();
    let ends: Vec<_> =
        files.iter().map(|file| (file["file"].as_str().unwrap(), file["exit"].as_u64().unwrap())).collect();
    assert_eq!(ends, [("good.yaml", 0), ("bad.yaml", 2), ("nowhere.yaml", 2)]);
    assert_eq!((&document["exit"], &files[0]["model"]["vfs"]), (&2.into(), &1.into()));
    assert!(files[2]["errors"][0]["message"].as_str().unwrap().contains("could not read nowhere.yaml"));
    let run = here.run("check good.yaml bad.yaml");
    assert_eq!(run.status, 2);
    assert!(
        run.stdout.starts_with("good.yaml: a good model") && run.stderr.contains("bad.yaml:2:18"),
        "{run:?}"
    );
    // One good model is told as it always was, too.
    assert_eq!(here.document("check good.yaml --json")["guests"], 1);
}

#[test]
fn a_model_comes_on_standard_input_too() {
    let here = Here::new();
    let check = |text: &str| {
        let mut child = Command::new(PROGRAM)
            .args(["check", "-", "--json"])
            .current_dir(here.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        json::read(&String::from_utf8(output.stdout).unwrap()).unwrap()
    };
    let good = check(GOOD);
    assert_eq!((&good["exit"], &good["files"][0]["file"]), (&0.into(), &"<stdin>".into()));
    let bad = check(BAD);
    assert_eq!(bad["files"][0]["diagnostics"][0]["file"], "<stdin>", "{bad}");
}

#[test]
fn github_gitlab_and_sarif_say_the_same_as_the_document() {
    let here = Here::new();
    here.write("100%,a:b.yaml", BAD);
    let run = here.run("check 100%,a:b.yaml good.yaml --format github");
    assert_eq!(run.status, 2);
    assert!(
        run.stdout.starts_with("::error file=100%25%2Ca%3Ab.yaml,line=2,endLine=2,col=18,endColumn=25,title=model.unknown-key::unknown key"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("%0Ahelp: "), "{}", run.stdout);

    let run = here.run("check ./100%,a:b.yaml good.yaml --format gitlab");
    assert_eq!(run.status, 2);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let [found] = &report.as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(found["location"], serde_json::json!({"path": "100%,a:b.yaml", "lines": {"begin": 2}}));
    assert_eq!((&found["severity"], &found["check_name"]), (&"major".into(), &"model.unknown-key".into()));
    assert!(found["description"].as_str().unwrap().starts_with("unknown key"), "{report}");
    assert_eq!(found["fingerprint"].as_str().unwrap().len(), 64, "{report}");
    assert_eq!(here.run("check good.yaml --format gitlab").stdout.trim(), "[]");

    let run = here.run("check 100%,a:b.yaml good.yaml --format sarif");
    assert_eq!(run.status, 2);
    let log = json::sarif(&run.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 1, "{log}");
    let place = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "100%25%2Ca%3Ab.yaml");
    assert_eq!((&place["region"]["startLine"], &place["region"]["startColumn"]), (&2.into(), &18.into()));
    assert_eq!(log["runs"][0]["tool"]["driver"]["rules"][0]["id"], results[0]["ruleId"]);
}
