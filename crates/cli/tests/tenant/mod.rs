//! What board tests of VMs that own an SR-IOV NIC share. The VM is `node-1`, and its NIC `net0`.
//!
//! The memory of such VMs is huge pages there: an emulated processor takes half a minute to map 200 MB of small ones into a VM that starts.

use penstock_host::process::quoted;
use penstock_testkit::{
    board::KeptBoard,
    json,
    trials::{Failed, Outcome},
};
use serde_json::Value;

/// The verdicts that `verify --json` has printed.
pub fn verdicts(verified: &str) -> Result<Vec<Value>, Failed> {
    let document: Value = json::read(verified)?;
    let all = document["verdicts"].as_array().cloned();
    all.ok_or_else(|| format!("no verdicts: {verified}").into())
}

/// The text that a value is; empty if it is none.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What `verify` says of functions of the VM's NIC: function, attribute, outcome and what was seen.
pub fn said(verified: &str) -> Result<Vec<String>, Failed> {
    let all = verdicts(verified)?;
    let lines = all.iter().filter_map(|verdict| {
        let tenant = verdict["subject"].get("tenant")?;
        Some(format!(
            "{}/{} {} {}: {}",
            text(&tenant["guest"]),
            text(&tenant["function"]),
            text(&verdict["attribute"]),
            text(&verdict["outcome"]),
            text(&verdict["seen"])
        ))
    });
    Ok(lines.collect())
}

/// What became of frames between functions of the VM's NIC and others: outcome, the two, and what was seen.
pub fn frames(verified: &str) -> Result<Vec<String>, Failed> {
    let all = verdicts(verified)?;
    let lines = all.iter().filter_map(|verdict| {
        let path = verdict["subject"].get("path")?;
        let (from, to) = (text(&path["from"]), text(&path["to"]));
        let ours = from.contains('/') || to.contains('/');
        ours.then(|| format!("{} {from} -> {to}: {}", text(&verdict["outcome"]), text(&verdict["seen"])))
    });
    Ok(lines.collect())
}

/// Runs a line of shell inside the VM by its agent; what it printed. Each question is a process that the VM waits for, so that it comes less
/// and less often.
pub fn within(board: &KeptBoard, line: &str) -> Result<String, Failed> {
    let request = serde_json::json!({
        "execute": "guest-exec",
        "arguments": {"path": "/bin/sh", "arg": ["-c", line], "capture-output": true}
    });
    let request = quoted(&request.to_string());
    let script = format!(
        "ask() {{ virsh -q -c qemu:///system qemu-agent-command penstock-node-1 --timeout 60 -- \"$1\"; }}\n\
         pid=$(ask {request} | tr -dc 0-9)\n\
         for pause in 0.2 0.4 0.8 $(yes 1 | head -n 600); do\n\
         out=$(ask '{{\"execute\":\"guest-exec-status\",\"arguments\":{{\"pid\":'$pid'}}}}')\n\
         case $out in *'\"exited\":true'*) echo \"$out\"; exit 0;; esac; sleep $pause; done; exit 1"
    );
    let run = board.shell(&script);
    run.ended_with(0)?;
    let answer: Value = serde_json::from_str(run.stdout.trim())?;
    if answer["return"]["exitcode"] != 0 {
        return Err(format!("{line:?} failed inside: {answer}").into());
    }
    let data = answer["return"]["out-data"].as_str().unwrap_or_default();
    let decoded = board.shell(&format!("echo {data} | base64 -d"));
    Ok(decoded.stdout)
}

/// A line of shell that waits until a model holds, and says what does not if it comes to nothing.
pub fn until_it_holds(model: &str) -> String {
    format!(
        "for turn in $(seq 20); do penstock verify --quiet {model} >/dev/null 2>&1 && exit 0; sleep 2; done; penstock verify {model}"
    )
}

/// Kills a switch by its unit, and waits until `model` holds by the next one: systemd has the unit as active before the switch serves.
pub fn dies_and_is_there_again(board: &KeptBoard, unit: &str, model: &str) -> Outcome {
    board.kill_service(unit)?;
    board.shell(&until_it_holds(model)).ended_with(0)
}

/// Makes the VFs of the VM's NIC, sets them up, and tells their addresses.
pub const ENABLE: &str = "pf=$(ls -d /sys/class/net/net0/device/..) && cat $pf/sriov_totalvfs && echo 2 >$pf/sriov_numvfs && \
     for turn in $(seq 60); do [ -e $pf/virtfn1/virtio*/net ] && break; sleep 1; done; \
     for vf in 0 1; do cat $pf/virtfn$vf/virtio*/net/*/address; \
     ip link set $(ls $pf/virtfn$vf/virtio*/net) up; done";
