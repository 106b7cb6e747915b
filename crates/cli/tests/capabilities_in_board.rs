//! What a driver was seen not to do is known before anything is touched: on a board with an igb, which has no VF link state.
#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

use penstock_testkit::{
    binary::Run,
    board::{KeptBoard, own_name},
    json, needs,
    trials::{Outcome, Test, Trials},
};
use serde_json::Value;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", needs::board);
    let tests: [(&str, Test); 1] =
        [("what_was_tried_is_known_beforehand_in_board", what_was_tried_is_known_beforehand)];
    trials.add(&missing, tests);
    trials.run()
}

const MEMORY: &str = "/var/lib/penstock/capabilities.json";

fn model(best_effort: &str) -> String {
    // Only a VF without a driver is tried on.
    format!(
        "nics: {{NET0: {{vfs: 2, free: {{driver: none}}, defaults: {{link_state: enable, max_tx_rate: 100}}{best_effort}}}}}\n"
    )
}

/// All that `ip` tells of the VFs.
fn seen(board: &KeptBoard) -> String {
    board.shell("ip -d link show | grep -w vf").stdout
}

fn said(run: &Run, what: &str) {
    assert!(run.stderr.contains(what), "no {what:?} in {}", run.stderr);
}

fn what_was_tried_is_known_beforehand() -> Outcome {
    let name = own_name("capabilities");
    let board = KeptBoard::up(&name, &format!("machine: {name}\n{}", model("")))?;
    board.write("/root/strict.yaml", &model("")).ended_with(0)?;
    board.write("/root/lenient.yaml", &model(", best_effort: [link_state]")).ended_with(0)?;
    let penstock = |words: &[&str]| board.inside(["penstock"].iter().chain(words));

    // Of VFs that do not exist nothing can be tried before: it is learned on the way, and the rest is done.
    let first = penstock(&["apply", "--json", "/root/strict.yaml"]);
    first.ended_with(1)?;
    said(&first, "does not support it");
    let carried: Value = json::read(&first.stdout)?;
    let steps = carried["steps"].as_array().cloned().unwrap_or_default();
    let passed_over = |step: &&Value| step["outcome"] == "unsupported";
    let actions: Vec<&Value> = steps.iter().filter(passed_over).map(|step| &step["action"]).collect();
    // One request set them all; the answer is still told of each.
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert!(actions.iter().all(|action| action.to_string().contains("state enable")), "{actions:?}");
    let had = seen(&board);
    assert!(had.matches("max_tx_rate 100Mbps").count() == 2, "{had}");

    // From now on it is known.
    let verified = penstock(&["verify", "--json", "/root/strict.yaml"]);
    verified.ended_with(1)?;
    let verdicts: Value = json::read(&verified.stdout)?;
    let of = |attribute: &'static str| {
        let verdicts = verdicts["verdicts"].as_array().cloned().unwrap_or_default();
        let about = verdicts.into_iter().filter(move |verdict| verdict["attribute"] == attribute);
        about.map(|verdict| verdict["outcome"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("link_state"), ["unsupported", "unsupported"]);
    assert_eq!(of("max_tx_rate"), ["pass", "pass"]);
    for words in [["plan", "/root/strict.yaml"], ["apply", "/root/strict.yaml"]] {
        let refused = penstock(&words);
        refused.ended_with(6)?;
        said(&refused, "NET0#0, #1 cannot have link_state");
        said(&refused, "strict.yaml:1:");
        said(&refused, "best_effort: [link_state]");
    }
    assert_eq!(seen(&board), had);

    // Forgotten, it is tried on a VF that nobody uses before anything is planned.
    board.shell(&format!("rm {MEMORY}")).ended_with(0)?;
    let again = penstock(&["apply", "/root/strict.yaml"]);
    again.ended_with(6)?;
    said(&again, "Trying driver igb on VF 1");
    said(&again, "cannot have link_state");
    assert_eq!(seen(&board), had);

    // A damaged file is as good as none.
    board.shell(&format!("head -c 40 {MEMORY} > {MEMORY}.cut && mv {MEMORY}.cut {MEMORY}")).ended_with(0)?;
    penstock(&["plan", "/root/strict.yaml"]).ended_with(0)?;

    // All of it at once; nothing is different afterwards, and nothing is claimed that cannot be seen.
    let probed = penstock(&["scan", "--probe", "--json"]);
    probed.ended_with(0)?;
    assert_eq!(seen(&board), had);
    let inventory: Value = json::read(&probed.stdout)?;
    let known = inventory["capabilities"].as_object().and_then(|all| all.values().next()).cloned();
    let known = known.ok_or("no driver was tried")?;
    assert_eq!((&known["driver"], &known["device"]), (&Value::from("igb"), &Value::from("8086:10c9")));
    let ability = |of: &str| known["trials"][of]["ability"].as_str().unwrap_or("nothing").to_owned();
    assert_eq!(ability("link_state"), "unsupported");
    assert_eq!(ability("loopback"), "unsupported");
    // It takes rates and holds to none: that it takes them is all that is said.
    assert_eq!(ability("rate"), "accepted");
    for had in ["vlan", "spoofchk", "trust", "reset"] {
        assert_eq!(ability(had), "accepted", "{had}");
    }

    // Where the model does without, it is left out, and all holds.
    let lenient = penstock(&["apply", "/root/lenient.yaml"]);
    lenient.ended_with(0)?;
    said(&lenient, "link_state of NET0#0, #1 is left out");
    penstock(&["verify", "/root/lenient.yaml"]).ended_with(0)?;

    // A plan that is made elsewhere knows it too.
    board.shell("penstock scan --json > /root/here.json && rm -r /var/lib/penstock").ended_with(0)?;
    penstock(&["plan", "/root/strict.yaml", "--inventory", "/root/here.json"]).ended_with(6)
}
