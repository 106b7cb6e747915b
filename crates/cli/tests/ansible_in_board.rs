//! The Ansible collection in `ansible/`, as its users run it: its documentation, and a playbook against a board over SSH.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use penstock_testkit::{
    binary::Run,
    board::{KeptBoard, own_name},
    needs,
    trials::{Outcome, Test, Trials},
};
use serde_json::Value;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let board = trials.lacking("a board", needs::board);
    let ansible = trials.lacking("ansible-core", || needs::ansible().err());
    let documented: [(&str, Test); 1] = [("the_documentation_of_each_module_is_read", documentation)];
    trials.add(&ansible, documented);
    let on_a_board: [(&str, Test); 1] = [("a_playbook_does_what_the_verbs_do_in_board", a_playbook)];
    trials.add(&board.or(ansible), on_a_board);
    trials.run()
}

fn collection() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ansible")).unwrap()
}

/// A program of ansible-core that finds the collection, and leaves nothing in the user's home.
fn ansible(program: &str, at: &Path) -> io::Result<Command> {
    let collections = at.join("collections/ansible_collections/penstock");
    fs::create_dir_all(&collections)?;
    symlink(collection(), collections.join("machine"))?;
    let program = needs::ansible().expect("it was asked for").with_file_name(program);
    let mut command = Command::new(program);
    command
        .env("ANSIBLE_HOME", at.join("ansible"))
        .env("ANSIBLE_COLLECTIONS_PATH", at.join("collections"))
        .env("ANSIBLE_NOCOLOR", "1")
        .current_dir(at)
        .stdin(Stdio::null());
    Ok(command)
}

fn documentation() -> Outcome {
    let modules = fs::read_dir(collection().join("plugins/modules"))?
        .map(|entry| Ok(entry?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()))
        .collect::<io::Result<BTreeSet<String>>>()?;
    let names: Vec<String> = modules.iter().map(|module| format!("penstock.machine.{module}")).collect();
    let at = tempfile::tempdir()?;
    let run = Run::from(ansible("ansible-doc", at.path())?.arg("--json").args(&names).output()?);
    run.ended_with(0)?;
    let read: Value = serde_json::from_str(&run.stdout)?;
    for name in &names {
        let (doc, examples) = (&read[name]["doc"], &read[name]["examples"]);
        assert!(doc["short_description"].is_string() && examples.is_string(), "{name}: {}", run.stderr);
        assert!(doc["options"]["executable"].is_object(), "{name} has not the options that all have");
    }
    Ok(())
}

/// Check mode, apply with a confirmation over a new connection, a second run that changes nothing, drift, refusals, undo: the playbook
/// asserts what comes of each.
fn a_playbook() -> Outcome {
    let name = own_name("ansible");
    let text = format!(
        "machine: {name}\nnics: {{NET0: {{vfs: 7}}}}\nguests:\n  one: {{functions: [{{vf: NET0#0, vlan: 5}}, NET0#1]}}\n"
    );
    let board = KeptBoard::up(&name, &text)?;
    let at = board.directory();
    fs::write(at.join("config"), board.over_ssh()?)?;
    let mut playbook = ansible("ansible-playbook", at)?;
    playbook
        .args(["--inventory", "it,", "--ssh-common-args", &format!("-F {}", at.join("config").display())])
        .args(["--extra-vars", &format!("model={} pf=eth0 allow=running-guest:one", board.model())])
        .args(["--extra-vars", "ansible_python_interpreter=/usr/bin/python3"])
        .arg(collection().join("tests/board.yml"))
        .env("ANSIBLE_PIPELINING", "1");
    let run = Run::from(playbook.output()?);
    run.ended_with(0)?;
    assert!(run.stdout.contains("failed=0"), "{}", run.stdout);
    Ok(())
}
