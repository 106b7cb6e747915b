//! The documents of the verbs that need a machine: each is printed on a board, and held against its published schema.
//! `json.rs` has those that can be had anywhere.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
};

use penstock_testkit::{
    binary::{Run, command, run},
    board::{KeptBoard, own_name},
    json::read,
    trials::{self, Failed, Outcome},
};
use serde_json::{Value, json};

fn main() -> ExitCode {
    trials::on_boards(&[
        ("every_verb_prints_a_document_of_its_schema_in_board", every_verb),
        ("a_rehearsal_and_its_board_print_documents_in_board", a_rehearsal),
        ("an_image_from_a_file_is_the_one_that_was_packed_in_board", an_image_as_a_file),
    ])
}

fn model(machine: &str) -> String {
    format!(
        "machine: {machine}
nics: {{NET0: {{vfs: 2, loopback: on}}}}
guests:
  a: {{functions: [{{vf: NET0#0, address: 192.0.2.10/24}}]}}
  b: {{functions: [{{vf: NET0#1, address: 192.0.2.11/24}}], after: [a]}}
board: {{emulation: {{NET0: virtio}}}}
expect: [tcp stream vf-vf inside >= 0.0001 x bridge]
"
    )
}

/// The one document of a run, which is of `kind` and says the status with which the run ended.
fn document(run: &Run, kind: &str, status: i32) -> Result<Value, Failed> {
    let document = read(&run.stdout).map_err(|error| format!("{kind}: {error}\n{}", run.stderr))?;
    let seen = (document["kind"].as_str().unwrap_or_default(), &document["exit"], run.status);
    if seen != (kind, &Value::from(status), status) {
        return Err(format!("wanted {kind} with {status}, seen {seen:?}: {document}\n{}", run.stderr).into());
    }
    Ok(document)
}

fn every_verb() -> Outcome {
    let name = own_name("documents");
    let board = KeptBoard::up_with(&name, &model(&name), &["--systemd"])?;
    let path = board.model().to_owned();
    let inside = |line: &str, kind: &str, status: i32| -> Result<Value, Failed> {
        let words = line.split(' ').map(|word| if word == "MODEL" { path.as_str() } else { word });
        document(&board.inside(["penstock"].into_iter().chain(words)), kind, status)
            .map_err(|failed| format!("penstock {line}: {failed}").into())
    };
    inside("scan --json", "scan", 0)?;
    inside("scan --probe --json", "scan", 0)?;
    inside("plan --json MODEL", "plan", 0)?;
    inside("plan --json --persist MODEL", "plan", 0)?;
    inside("status --json", "status", 0)?;
    inside("start --json MODEL", "error", 3)?;
    inside("verify --json MODEL", "verify", 1)?;

    let applied = inside("apply --json MODEL", "apply", 0)?;
    assert_eq!(applied["persist"], Value::Null);
    inside("apply --json MODEL", "apply", 0)?;
    let persisted = inside("apply --json --persist MODEL", "apply", 0)?;
    assert!(persisted["persist"].is_object(), "{persisted}");
    let before = inside("metrics --json --verify MODEL", "metrics", 0)?;
    inside("verify --json --load MODEL", "verify", 0)?;
    let after = inside("metrics --json --verify MODEL", "metrics", 0)?;
    counters_rise(&before, &after)?;
    assert_eq!(after["verification"]["holds"], true, "{after}");
    text_of_metrics(&board, &path)?;
    let watched = board.inside(["penstock", "verify", "--json", "--watch", "--for", "3s", &path]);
    watched.ended_with(0)?;
    assert!(watched.stdout.lines().count() >= 2, "{}", watched.stdout);
    for line in watched.stdout.lines() {
        assert_eq!(read(line)?["kind"], "watch");
    }
    inside("audit --json --over 300ms MODEL", "audit", 1)?;
    inside("status --json", "status", 0)?;
    inside("console --json", "consoles", 0)?;
    inside("stop --json MODEL", "stop", 0)?;
    inside("start --json MODEL", "start", 0)?;
    inside(
        "measure --json --quick --protocol tcp-stream --path vf-vf-inside --samples 6 --time-limit none --output /root/run MODEL",
        "measure",
        0,
    )?;
    inside("report --json /root/run", "report", 0)?;
    inside("report --json /root/run /root/run", "comparison", 0)?;
    inside("report --json --redact /root/run", "redacted", 0)?;
    inside("undo --list --json", "runs", 0)?;
    inside("undo --persist --json", "undo", 0)?;
    inside("undo --json", "undo", 0)?;
    inside("apply --json --confirm-within 5min MODEL", "apply", 0)?;
    let waits = inside("metrics --json", "metrics", 0)?["runs"].clone();
    assert_eq!((&waits["open"], &waits["last"]["outcome"]), (&json!(1), &json!("done")), "{waits}");
    let left = waits["confirm_until"].as_f64().zip(waits["last"]["ended"].as_f64());
    assert_eq!(left.map(|(until, ended)| (until - ended).round()), Some(300.0), "{waits}");
    inside("undo --list --json", "runs", 0)?;
    inside("confirm --json", "confirm", 0)?;
    Ok(())
}

/// What went through a VF is counted by its PF and, inside its container, by its interface; all that was to be read was read.
fn counters_rise(before: &Value, after: &Value) -> Outcome {
    for document in [before, after] {
        assert_eq!(document["unread"], json!({}), "{document}");
    }
    for name in ["NET0#0", "NET0#1"] {
        let function = |document: &Value| {
            let mut all = document["functions"].as_array().into_iter().flatten();
            let found = all.find(|one| one["identity"]["function"] == name);
            found.cloned().ok_or_else(|| format!("there is no {name}: {document}"))
        };
        let (before, after) = (function(before)?, function(after)?);
        for path in ["/counters/tx_bytes", "/counters/rx_bytes", "/interface/counters/tx_bytes"] {
            let count = |function: &Value| function.pointer(path).and_then(Value::as_u64);
            let rose = count(&before).zip(count(&after)).is_some_and(|(before, after)| after > before);
            assert!(rose, "{name} {path}: {before} {after}");
        }
        assert!(after["guest"].is_string(), "{after}");
    }
    Ok(())
}

/// The two forms of text: for a scrape, and for node_exporter in a file that everybody may read.
fn text_of_metrics(board: &KeptBoard, model: &str) -> Outcome {
    let printed = board.inside(["penstock", "metrics", model, "--verify"]);
    printed.ended_with(0)?;
    assert!(printed.stdout.ends_with("# EOF\n"), "{}", printed.stdout);
    let line = format!(
        "mkdir -p /run/textfile && cd /run/textfile && penstock metrics {model} --verify --textfile . && stat -c '%n %a' * \
         && cat penstock.prom"
    );
    let written = board.inside(["sh", "-c", &line]);
    written.ended_with(0)?;
    let (names, text) = written.stdout.split_once('\n').ok_or("nothing was written")?;
    assert_eq!(names, "penstock.prom 644");
    for text in [text, printed.stdout.as_str()] {
        let guest = "penstock_guest_state{guest=\"a\",state=\"running\"} 1\n";
        for line in ["penstock_verify_holds 1\n", "penstock_drifted_attributes 0\n", guest] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
    Ok(())
}

/// What the host prints of a board that it makes, resets, drops, and rehearses on.
fn a_rehearsal() -> Outcome {
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    let name = own_name("documents-outside");
    fs::write(at.join("m.yaml"), model(&name))?;
    let here = |words: &[&str], kind: &str| document(&run(at, words), kind, 0);
    here(&["board", "image", "--json"], "board-image")?;
    here(&["board", "up", "--json", "--keep-disk", "m.yaml"], "board")?;
    let kept = [
        here(&["board", "list", "--json"], "boards")
            .map(|list| assert!(list.to_string().contains(&name), "{list}")),
        here(&["board", "reset", "--json", &name], "board").map(drop),
    ];
    here(&["board", "down", "--json", &name], "board")?;
    kept.into_iter().collect::<Result<(), Failed>>()?;
    let rehearsed = here(&["rehearse", "--json", "--output", "run", "m.yaml"], "rehearse")?;
    assert!(rehearsed["verdicts"].as_array().is_some_and(|all| !all.is_empty()), "{rehearsed}");
    Ok(())
}

/// The board image as a file, and unpacked from it by a user who has none, on whose machine nothing that makes one is looked for.
fn an_image_as_a_file() -> Outcome {
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    let packed = document(&run(at, ["board", "image", "--to", "image.tar.gz", "--json"]), "board-image", 0)?;
    let digest = packed["packed"]["sha256"].as_str().ok_or_else(|| format!("{packed}"))?;
    let from = |proof: &[&str]| {
        let words = [&["board", "image", "--json", "--from", "image.tar.gz"], proof].concat();
        command(at).args(words).env("XDG_CACHE_HOME", at.join("cache")).output().map(Run::from)
    };
    let other = digest.chars().rev().collect::<String>();
    let refused = from(&["--sha256", &other])?;
    refused.ended_with(3)?;
    assert!(refused.stdout.contains(digest) && refused.stdout.contains(&other), "{}", refused.stdout);
    let images = at.join("cache/penstock/images");
    let left: Vec<_> =
        fs::read_dir(&images)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
    assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".lock")), "{left:?}");
    let unpacked = document(&from(&["--sha256", digest])?, "board-image", 0)?;
    assert_eq!((&unpacked["digest"], &unpacked["unpacked"]), (&packed["digest"], &true.into()));
    let again = document(&from(&["--sha256", digest])?, "board-image", 0)?;
    assert_eq!((&again["digest"], &again["unpacked"]), (&packed["digest"], &false.into()));
    from(&["--sha256", &other])?.ended_with(3)?;
    let at = |image: &Value| PathBuf::from(image["directory"].as_str().unwrap_or_default());
    let list = |image: &Value| fs::read_to_string(at(image).join("SHA256SUMS"));
    assert_eq!(list(&unpacked)?, list(&packed)?);
    let mut all = Command::new("sha256sum");
    let same = Run::from(all.args(["--check", "--quiet", "SHA256SUMS"]).current_dir(at(&unpacked)).output()?);
    same.ended_with(0)?;
    for program in ["qemu/qemu-system-x86_64", "vmlinuz"] {
        let mode = |image: &Value| fs::metadata(at(image).join(program)).map(|found| found.permissions());
        assert_eq!(mode(&unpacked)?, mode(&packed)?, "{program}");
    }
    Ok(())
}
