//! The documents of the verbs that need a machine: each is printed on a board, and held against its published schema.
//! `json.rs` has those that can be had anywhere.
#![allow(clippy::disallowed_methods)]

use std::{fs, process::ExitCode};

use penstock_testkit::{
    binary::{Run, run},
    board::{KeptBoard, own_name},
    json,
    trials::{self, Failed, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("every_verb_prints_a_document_of_its_schema_in_board", every_verb),
        ("a_rehearsal_and_its_board_print_documents_in_board", a_rehearsal),
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
    let document = json::read(&run.stdout).map_err(|error| format!("{kind}: {error}\n{}", run.stderr))?;
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
    inside("verify --json --load MODEL", "verify", 0)?;
    let watched = board.inside(["penstock", "verify", "--json", "--watch", "--for", "3s", &path]);
    watched.ended_with(0)?;
    assert!(watched.stdout.lines().count() >= 2, "{}", watched.stdout);
    for line in watched.stdout.lines() {
        assert_eq!(json::read(line)?["kind"], "watch");
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
    inside("undo --list --json", "runs", 0)?;
    inside("confirm --json", "confirm", 0)?;
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
