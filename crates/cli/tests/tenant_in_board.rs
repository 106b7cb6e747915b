//! VMs that own an SR-IOV NIC, on a board: libvirt composes it, switches of the board carry its frames, and the VM makes VFs of it.
#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

use libtest_mimic::Failed;
use penstock_testkit::{
    board::{KeptBoard, own_name},
    json,
    trials::{self, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[("a_vm_owns_a_nic_and_makes_its_vfs_in_board", a_vm_owns_a_nic)])
}

/// One VM that owns a NIC with two VFs, whose switch leads to the PF of an igb of the board.
const MODEL: &str = r#"machine: MACHINE
nics:
  NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}, vfs: 1}
guests:
  node-1:
    kind: vm
    memory: 512MiB
    ready_within: 600
    nics:
      net0:
        vfs: 2
        uplink: NET0
        mac: "02:00:00:00:01:00"
        functions:
          0: {mac: "02:00:00:00:01:01", spoofchk: on}
          1: {mac: "02:00:00:00:01:02", vlan: 100, max_tx_rate: 500}
"#;

/// What `verify` says of functions of the VM's NIC: function, attribute, outcome and what was seen.
fn said(verified: &str) -> Result<Vec<String>, Failed> {
    let document: Value = json::read(verified)?;
    let all = document["verdicts"].as_array().ok_or_else(|| format!("no verdicts: {verified}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
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

/// Runs a line of shell inside the VM by its agent; what it printed.
fn within(board: &KeptBoard, line: &str) -> Result<String, Failed> {
    let request = serde_json::json!({
        "execute": "guest-exec",
        "arguments": {"path": "/bin/sh", "arg": ["-c", line], "capture-output": true}
    });
    let script = format!(
        "ask() {{ virsh -q -c qemu:///system qemu-agent-command penstock-node-1 --timeout 60 -- \"$1\"; }}\n\
         pid=$(ask '{request}' | tr -dc 0-9)\n\
         for turn in $(seq 100); do\n\
         out=$(ask '{{\"execute\":\"guest-exec-status\",\"arguments\":{{\"pid\":'$pid'}}}}')\n\
         case $out in *'\"exited\":true'*) echo \"$out\"; exit 0;; esac; sleep 0.2; done; exit 1"
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

fn a_vm_owns_a_nic() -> Outcome {
    let name = own_name("tenant");
    let board = KeptBoard::up(&name, &MODEL.replace("MACHINE", &name))?;
    let model = board.model();
    board.inside(["penstock", "check", model, "--here"]).ended_with(0)?;
    let plan = board.inside(["penstock", "plan", model]);
    plan.ended_with(0)?;
    let told = plan.stdout + &plan.stderr;
    assert!(told.contains("custom-device"), "the taint is said: {told}");
    board.inside(["penstock", "apply", model]).ended_with(0)?;

    // Reserved, off: VFs are the VM's to enable.
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    let lines = said(&verify.stdout)?;
    for line in [
        "node-1/net0 port pass: connected",
        "node-1/net0 mac pass: 02:00:00:00:01:00",
        "node-1/net0 state pass: ready",
        "node-1/net0 uplink pass: NET0",
        "node-1/net0#0 state pass: reserved, off",
        "node-1/net0#0 spoofchk pass: on",
        "node-1/net0#1 port pass: connected",
        "node-1/net0#1 vlan pass: 100",
        "node-1/net0#1 max_tx_rate pass: 500 Mbit/s",
    ] {
        assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
    }

    // The VM makes them by the kernel's own file, and each has the address of the model.
    let seen = within(
        &board,
        "pf=$(ls -d /sys/class/net/net0/device/..) && cat $pf/sriov_totalvfs && echo 2 >$pf/sriov_numvfs && \
         for turn in 1 2 3 4 5 6 7 8 9 10; do [ -e $pf/virtfn1/virtio*/net ] && break; sleep 1; done; \
         for vf in 0 1; do cat $pf/virtfn$vf/virtio*/net/*/address; \
         ip link set $(ls $pf/virtfn$vf/virtio*/net) up; done",
    )?;
    assert_eq!(seen, "2\n02:00:00:00:01:01\n02:00:00:00:01:02\n");
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    let lines = said(&verify.stdout)?;
    for line in ["node-1/net0#0 state pass: ready", "node-1/net0#1 state pass: ready"] {
        assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
    }

    // A switch that dies is there again, with what was set, and QEMU with it.
    let unit = "penstock-switch-node-1:net0.service";
    let again = board.shell(&format!(
        "kill -9 $(systemctl show -P MainPID {unit}) && sleep 6 && systemctl is-active {unit}"
    ));
    again.ended_with(0)?;
    let verify = board.inside(["penstock", "verify", model]);
    verify.ended_with(0)?;

    // A stop leaves nothing, and comes in the order of the plan.
    board.inside(["penstock", "stop", model]).ended_with(0)?;
    let left = board.shell(&format!(
        "systemctl is-active {unit}; ls /run/penstock/guests/penstock-node-1 2>/dev/null; \
         virsh -q -c qemu:///system list --name --all"
    ));
    assert_eq!(left.stdout.trim(), "inactive");
    Ok(())
}
