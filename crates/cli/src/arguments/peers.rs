//! What to say when somebody types a verb or an option of another tool: ip, netplan, nmstatectl, virsh, terraform, kubectl.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What stands for a verb of others here.
const VERBS: [(&[&str], &str); 20] = [
    (
        &["show", "list", "ls", "get", "info", "describe", "inventory", "dump", "state"],
        "`penstock scan` shows this machine, `penstock status` its guests",
    ),
    (&["ps", "guests", "vms", "containers"], "`penstock status` shows the guests of this machine"),
    (
        &["diff", "preview", "simulate", "dry-run", "dryrun", "compare"],
        "`penstock plan MODEL` shows what would change and changes nothing; `penstock rehearse MODEL` does all of it on an \
         emulated board",
    ),
    (
        &["rollback", "roll-back", "revert", "restore", "back"],
        "`penstock undo` takes the last run back; `penstock undo --list` shows which there are",
    ),
    (
        &["history", "runs", "log", "logs", "events"],
        "`penstock undo --list` shows the runs that changed this machine; `penstock console GUEST` what a guest has said",
    ),
    (&["validate", "lint", "verify-model", "fmt"], "`penstock check MODEL` says whether a model is good"),
    (
        &["up", "create", "deploy", "run", "set", "converge", "sync", "define", "provision"],
        "`penstock apply MODEL` makes the machine as the model has it, guests too; `penstock start MODEL` starts guests alone",
    ),
    (
        &[
            "down", "destroy", "delete", "del", "rm", "remove", "shutdown", "teardown", "clean", "clear",
            "undefine",
        ],
        "`penstock stop MODEL` stops its guests and takes their VFs back; `penstock undo` takes back what the last run changed",
    ),
    (
        &["init", "new", "adopt", "discover"],
        "`penstock scan --as-model > model.yaml` writes a model of this machine to begin with",
    ),
    (
        &["try"],
        "`penstock apply MODEL --confirm-within 60s` undoes itself unless `penstock confirm` comes in time",
    ),
    (&["version"], "`--version` tells version and build"),
    (&["commit", "accept", "ok"], "`penstock confirm` keeps what `penstock apply --confirm-within` did"),
    (
        &["restart", "reload", "reboot", "reset"],
        "`penstock stop MODEL GUEST`, then `penstock start MODEL GUEST`; `penstock apply MODEL` carries out what has changed in \
         a model",
    ),
    (
        &["enable", "install", "persist", "save"],
        "`penstock apply MODEL --persist` has the model applied at each boot too",
    ),
    (
        &["disable", "uninstall"],
        "`penstock undo --persist` takes back what `penstock apply --persist` did for the next boots",
    ),
    (&["watch", "monitor", "drift"], "`penstock verify MODEL --watch` tells what changes, as it happens"),
    (
        &["stats", "counters", "prometheus", "openmetrics", "exporter"],
        "`penstock metrics` prints counters, states and drift for Prometheus",
    ),
    (
        &["test", "doctor", "diagnose"],
        "`penstock verify MODEL` looks whether the machine is as the model has it; `penstock audit` judges it for real time",
    ),
    (&["bench", "benchmark", "perf"], "`penstock measure MODEL` measures every path"),
    (
        &["attach", "exec", "shell", "enter", "login", "connect", "ssh"],
        "`penstock console GUEST` shows a guest's console and types into it",
    ),
];

/// What stands for a verb of others behind `board`.
const OF_BOARDS: [(&[&str], &str); 5] = [
    (
        &["create", "start", "boot", "run", "new"],
        "`penstock board up MODEL` starts a model's board and keeps it",
    ),
    (
        &["destroy", "stop", "delete", "rm", "remove", "drop", "kill"],
        "`penstock board down NAME` drops a board",
    ),
    (&["ls", "ps", "show", "status"], "`penstock board list` lists the boards that are kept"),
    (&["enter", "exec", "shell", "login", "connect", "attach"], "`penstock board ssh NAME` enters a board"),
    (&["restart", "reboot"], "`penstock board reset NAME` resets a board, with `--orderly` as a reboot does"),
];

/// What stands for an option of others.
const OPTIONS: [(&[&str], &str); 5] = [
    (
        &[
            "-n",
            "--dry-run",
            "--dryrun",
            "--check",
            "--diff",
            "--noop",
            "--no-op",
            "--simulate",
            "--preview",
            "--what-if",
        ],
        "`penstock plan MODEL` shows what would change and changes nothing; `penstock rehearse MODEL` does all of it on an \
         emulated board",
    ),
    (
        &["-y", "--yes", "--force", "--auto-approve", "--assume-yes"],
        "nothing is asked; what is refused as unsafe has a name that `--allow NAME` takes (docs/safety.md)",
    ),
    (
        &["-f", "--file", "--filename", "--model", "-c", "--config"],
        "the model stands by itself behind the verb: `penstock plan model.yaml`",
    ),
    (
        &["-o", "--out", "--output", "--format"],
        "`--json` prints data as JSON; standard output can be sent to a file",
    ),
    (&["--timeout", "--wait"], "`penstock verify MODEL --timeout 10s` waits so long for links and frames"),
];

/// What to say beside clap's own words on something that it does not know; `None` where no other tool has it.
pub fn hint(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let among = |table: &[(&[&str], &str)], word: &str| {
        let found = table.iter().find(|(words, _)| words.contains(&word));
        found.map(|(_, hint)| (*hint).to_owned())
    };
    match error.kind() {
        ErrorKind::UnknownArgument => among(&OPTIONS, text(ContextKind::InvalidArg)?),
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
            let hint = match usage.contains("penstock board") {
                true => among(&OF_BOARDS, word),
                false => among(&VERBS, word),
            };
            let is_file = word.ends_with(".yaml") || word.ends_with(".yml");
            hint.or_else(|| {
                is_file.then(|| format!("a verb comes before the model: `penstock check {word}`, or plan, apply, verify, rehearse"))
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn each_word_is_in_one_table_once_and_no_verb_of_ours() {
        let ours = Arguments::command();
        let boards = ours.find_subcommand("board").expect("a verb");
        for (table, ours) in [(&VERBS[..], &ours), (&OF_BOARDS[..], boards)] {
            let mut seen = BTreeSet::new();
            for word in table.iter().flat_map(|(words, _)| *words) {
                assert!(seen.insert(word), "{word} twice");
                assert!(ours.find_subcommand(word).is_none(), "{word} is a verb");
            }
        }
    }

    #[test]
    fn what_a_hint_says_to_type_is_a_command() {
        let hints = VERBS.iter().chain(&OF_BOARDS).chain(&OPTIONS).map(|(_, hint)| *hint);
        for hint in hints {
            for quoted in hint.split('`').skip(1).step_by(2) {
                let line = quoted.split(" > ").next().unwrap_or_default();
                let Some(line) = line.strip_prefix("penstock ") else { continue };
                // The name of an option, not a whole command.
                if matches!(line, "apply --confirm-within" | "apply --persist") {
                    continue;
                }
                let line = line.replace("MODEL", "m.yaml").replace("GUEST", "a").replace("NAME", "b");
                let parsed = Arguments::try_parse_from(format!("penstock {line}").split(' '));
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }
}
