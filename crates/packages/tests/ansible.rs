//! The Ansible collection in `ansible/` on this machine, with a program that answers as `penstock` does: in which order the role calls it, and
//! what the modules make of answers that no board gives. `crates/cli/tests/ansible_in_board.rs` has the real one.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use penstock_testkit::{
    binary::Run,
    needs, script,
    trials::{Outcome, Test, Trials},
};
use tempfile::TempDir;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let ansible = trials.lacking("ansible-core", || needs::ansible().err());
    let tests: [(&str, Test); 6] = [
        ("what_is_to_last_is_confirmed_before", confirmed_before_it_lasts),
        ("a_run_of_another_is_confirmed_by_its_number_alone", confirmed_by_its_number),
        ("what_needs_a_reboot_is_set_up_and_no_failure", set_up_for_the_next_boot),
        ("what_no_boot_loader_is_told_fails_each_time", no_boot_loader),
        ("options_that_exclude_each_other_are_refused", excluded),
        ("a_program_that_is_not_installed_yet_is_not_called_in_check_mode", not_installed_yet),
    ];
    trials.add(&ansible, tests);
    // What Python 3.6 cannot read is met only on the managed machine.
    let python = trials.lacking("Python", || needs::programs(&["python3"]));
    trials.add(
        &python,
        [("what_managed_machines_run_needs_no_python_newer_than_3_6", old_python as fn() -> Outcome)],
    );
    trials.run()
}

/// Answers as `penstock` does, on a machine that needs a reboot where `waits` lies beside it, and has no boot loader's tool where `bare` does; where
/// `lost` does it loses that before it has applied; where `anothers` does, the run that waits is another user's. It notes how it was called.
const PENSTOCK: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 70
echo "$*" >>called
persist='' within=''
for word; do
    case $word in
    --persist) persist=yes ;;
    --confirm-within=*) within=yes ;;
    esac
done
answer() {
    echo "{\"kind\": \"$verb\", \"status\": \"$2\", \"exit\": $1$3}"
    exit "$1"
}
bare='{"message": "no boot loader'"'"'s tool was found"}' more=''
[ ! -e bare ] || more="$bare, "
later=", \"errors\": [$more{\"message\": \"not possible before this machine is started anew\"}]"
verb=$1
case $verb in
plan)
    steps='[{"id": 1}]' shown='"+++ model.yaml"'
    [ ! -e applied ] || steps='[]'
    [ ! -e lasts ] || shown='""'
    told=", \"steps\": $steps${persist:+, \"persist\": $shown}"
    [ ! -e waits ] || answer 6 does-not-fit "$told, \"needs_reboot\": true$later"
    answer 0 holds "$told"
    ;;
apply)
    [ -z "$persist" ] || [ -z "$within" ] || answer 2 bad-input ', "errors": [{"message": "cannot be used with"}]'
    [ -z "$persist" ] || touch lasts
    [ ! -e lost ] || answer 4 missing ", \"persist\": {\"steps\": [{\"step\": 1, \"outcome\": \"done\"}], \"undone\": []}, \"errors\": [$bare]"
    if [ -e waits ]; then
        [ -n "$persist" ] || answer 6 does-not-fit "$later"
        answer 1 does-not-hold
    fi
    [ -z "$within" ] || touch open
    touch applied
    answer 0 holds
    ;;
status) if [ -e open ]; then answer 0 holds ', "open": [1]'; else answer 0 holds; fi ;;
confirm)
    [ ! -e anothers ] || [ "$2" != --json ] || answer 1 does-not-hold ', "errors": [{"message": "run 1 was begun by eve"}]'
    rm open && answer 0 holds ', "run": 1'
    ;;
verify) answer 0 holds ', "holds": true, "verdicts": []' ;;
undo) answer 0 holds ', "runs": []' ;;
esac
exit 2
"#;

/// A machine that is this one, with a program of its own.
struct Managed(TempDir);

impl Managed {
    fn new() -> Managed {
        let managed = Managed(tempfile::tempdir().unwrap());
        let at = managed.0.path();
        script::write(at.join("penstock"), PENSTOCK);
        fs::write(at.join("model.yaml"), "nics: {}\n").unwrap();
        let collections = at.join("collections/ansible_collections/penstock");
        fs::create_dir_all(&collections).unwrap();
        symlink(fs::canonicalize(collection()).unwrap(), collections.join("machine")).unwrap();
        managed
    }

    /// Runs these tasks as a playbook.
    fn play(&self, tasks: &str, options: &[&str]) -> Run {
        let at = self.0.path();
        let playbook = format!("- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}");
        fs::write(at.join("playbook.yml"), playbook).unwrap();
        let program = needs::ansible().expect("it was asked for");
        let mut command = Command::new(program);
        command
            .args(["--inventory", "it,", "--connection", "local"])
            .args([
                "--extra-vars",
                &format!("at={} ansible_python_interpreter=/usr/bin/python3", at.display()),
            ])
            .args(options)
            .arg("playbook.yml")
            .env("ANSIBLE_HOME", at.join("ansible"))
            .env("ANSIBLE_COLLECTIONS_PATH", at.join("collections"))
            .env("ANSIBLE_NOCOLOR", "1")
            .current_dir(at)
            .stdin(Stdio::null());
        Run::from(command.output().unwrap())
    }

    /// The verbs that were called with what matters of their options, but for those that only look.
    fn called(&self) -> Vec<String> {
        let called = fs::read_to_string(self.0.path().join("called")).unwrap_or_default();
        let _ = fs::remove_file(self.0.path().join("called"));
        let kept = |word: &&str| !word.contains("model.yaml") && *word != "--json";
        let lines = called.lines().map(|line| line.split(' ').filter(kept).collect::<Vec<_>>().join(" "));
        lines.filter(|line| !line.starts_with("plan") && line != "status").collect()
    }
}

fn collection() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ansible")
}

/// The role with a model that is to last, and what is to hold then.
fn role(asserts: &str) -> String {
    format!(
        "    - ansible.builtin.include_role: {{name: penstock.machine.apply}}
      vars: {{penstock_model_src: '{{{{ at }}}}/model.yaml', penstock_executable: '{{{{ at }}}}/penstock', penstock_persist: true}}
    - ansible.builtin.assert: {{that: [{asserts}]}}
"
    )
}

fn confirmed_before_it_lasts() -> Outcome {
    let managed = Managed::new();
    let first = "penstock_applied is changed, penstock_lasts is changed, not penstock_lasts.reboot_required";
    managed.play(&role(first), &["--check"]).ended_with(0)?;
    assert_eq!(managed.called(), [""; 0], "check mode only looks");
    managed.play(&role(first), &[]).ended_with(0)?;
    assert_eq!(managed.called(), ["apply --confirm-within=2m", "confirm 1", "apply --persist", "verify"]);
    managed
        .play(&role("penstock_applied is not changed, penstock_lasts is not changed"), &[])
        .ended_with(0)?;
    assert_eq!(managed.called(), ["verify"]);
    Ok(())
}

fn confirmed_by_its_number() -> Outcome {
    let managed = Managed::new();
    let waits =
        || ["open", "anothers"].iter().try_for_each(|file| fs::write(managed.0.path().join(file), ""));
    waits()?;
    let tasks = "    - penstock.machine.confirm: {executable: '{{ at }}/penstock'}
      register: refused
      ignore_errors: true
    - ansible.builtin.assert: {that: [refused is failed, \"'begun by eve' in refused.msg\"]}
";
    managed.play(tasks, &[]).ended_with(0)?;
    assert_eq!(managed.called(), ["confirm"]);
    let confirmed = |options: &str| {
        format!(
            "    - penstock.machine.confirm: {{executable: '{{{{ at }}}}/penstock'{options}}}
      register: confirmed
    - ansible.builtin.assert: {{that: [confirmed is changed, confirmed.run == 1]}}
"
        )
    };
    managed.play(&confirmed(", run: 1"), &[]).ended_with(0)?;
    assert_eq!(managed.called(), ["confirm 1"]);
    waits()?;
    fs::remove_file(managed.0.path().join("anothers"))?;
    managed.play(&confirmed(""), &[]).ended_with(0)?;
    assert_eq!(managed.called(), ["confirm"]);
    Ok(())
}

fn set_up_for_the_next_boot() -> Outcome {
    let managed = Managed::new();
    fs::write(managed.0.path().join("waits"), "")?;
    let first = "penstock_lasts is changed, penstock_lasts.reboot_required, penstock_lasts.steps == 1";
    managed.play(&role(first), &[]).ended_with(0)?;
    assert_eq!(managed.called(), ["apply --persist"]);
    managed
        .play(&role("penstock_lasts is not changed, penstock_lasts.reboot_required"), &[])
        .ended_with(0)?;
    assert_eq!(managed.called(), [""; 0]);
    // Who does not ask for that is told of it.
    let tasks = "    - penstock.machine.model: {src: '{{ at }}/model.yaml', executable: '{{ at }}/penstock'}
      register: late
      ignore_errors: true
    - ansible.builtin.assert: {that: [late is failed, late.reboot_required, \"'started anew' in late.msg\"]}
";
    managed.play(tasks, &[]).ended_with(0)
}

fn no_boot_loader() -> Outcome {
    let managed = Managed::new();
    let late = |asserts: &str| {
        format!(
            "    - penstock.machine.model: {{src: '{{{{ at }}}}/model.yaml', executable: '{{{{ at }}}}/penstock', persist: true}}
      register: late
      ignore_errors: true
    - ansible.builtin.assert: {{that: [late is failed, \"'boot loader' in late.msg\", {asserts}]}}
"
        )
    };
    for file in ["waits", "bare"] {
        fs::write(managed.0.path().join(file), "")?;
    }
    for _ in 0..2 {
        managed.play(&late("late is not changed, late.reboot_required"), &[]).ended_with(0)?;
        assert_eq!(managed.called(), [""; 0]);
    }
    // What it has done by then is told.
    fs::remove_file(managed.0.path().join("bare"))?;
    fs::write(managed.0.path().join("lost"), "")?;
    managed.play(&late("late is changed"), &[]).ended_with(0)?;
    assert_eq!(managed.called(), ["apply --persist"]);
    Ok(())
}

fn excluded() -> Outcome {
    let managed = Managed::new();
    let mut tasks = String::new();
    for (module, options, said) in [
        (
            "model",
            "content: x, persist: true, confirm_within: 2m",
            "mutually exclusive: persist|confirm_within",
        ),
        ("undo", "persist: true, run: 1", "mutually exclusive: persist|run"),
        ("undo", "with_later: true", "with_later is True but all of the following are missing: run"),
    ] {
        tasks += &format!(
            "    - penstock.machine.{module}: {{executable: '{{{{ at }}}}/penstock', {options}}}
      register: refused
      ignore_errors: true
    - ansible.builtin.assert: {{that: [refused is failed, \"'{said}' in refused.msg\"]}}
"
        );
    }
    managed.play(&tasks, &[]).ended_with(0)?;
    assert_eq!(managed.called(), [""; 0]);
    // What is not wanted excludes nothing.
    let tasks = "    - penstock.machine.model:
        {src: '{{ at }}/model.yaml', executable: '{{ at }}/penstock', persist: false, confirm_within: 2m}
    - penstock.machine.undo: {executable: '{{ at }}/penstock', persist: false, run: 1}
";
    managed.play(tasks, &[]).ended_with(0)?;
    assert_eq!(managed.called(), ["apply --confirm-within=2m", "undo --list", "undo 1"]);
    Ok(())
}

fn not_installed_yet() -> Outcome {
    let managed = Managed::new();
    let tasks = "    - ansible.builtin.include_role: {name: penstock.machine.apply}
      vars: {penstock_model_src: '{{ at }}/model.yaml', penstock_binary: '{{ at }}/penstock'}
    - ansible.builtin.assert: {that: [penstock_installed is changed, penstock_applied is not defined]}
";
    managed.play(tasks, &["--check"]).ended_with(0)?;
    assert_eq!(managed.called(), [""; 0]);
    Ok(())
}

fn old_python() -> Outcome {
    let check = "import ast, sys
for path in sys.argv[1:]:
    tree = ast.parse(open(path).read(), path, feature_version=(3, 6))
    names = [name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == '__future__' for name in node.names]
    assert 'annotations' not in names, path + ': Python 3.6 knows no such feature'
";
    let mut files = Vec::new();
    for folder in ["plugins/modules", "plugins/module_utils"] {
        for entry in fs::read_dir(collection().join(folder))? {
            files.extend(
                Some(entry?.path())
                    .filter(|path| path.extension().is_some_and(|extension| extension == "py")),
            );
        }
    }
    assert!(files.len() > 5, "{files:?}");
    Run::from(Command::new("python3").args(["-c", check]).args(&files).output()?).ended_with(0)
}
