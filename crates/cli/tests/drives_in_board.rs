//! VFs of an NVMe drive for VMs, on a board with an emulated drive: given, verified from both sides, and taken back. nvme-cli is the witness.
#![allow(clippy::disallowed_methods)]

#[allow(dead_code, reason = "shared with tests of VMs that own NICs")]
mod tenant;

use std::process::ExitCode;

use penstock_testkit::{
    board::{self, KeptBoard},
    trials::{self, Failed, Outcome},
};
use serde_json::Value;
use tenant::{text, verdicts, within};

/// The first VF with all that can be said of one; its VM has one CPU, so that `queues` alone decides.
const MODEL: &str = r#"machine: MACHINE
drives:
  SSD0: {match: {serial: S6EUNX0R123456}, vfs: 2}
guests:
  node-1:
    kind: vm
    memory: 512MiB
    huge_pages: 2MiB
    ready_within: 600
    drives: [{vf: SSD0#0, namespaces: [2], queues: 2}]
"#;

/// All that is set of the drive, as nvme-cli and sysfs have it.
const STATE: &str = "cd /sys/class/nvme/nvme0/device; cat sriov_numvfs sriov_drivers_autoprobe
    nvme list-secondary /dev/nvme0 --num-entries=3 -o json
    for n in 1 2 3; do nvme list-ctrl /dev/nvme0 --namespace-id=$n; done
    for f in /sys/bus/pci/devices/*; do echo $(basename $f) $(basename $(readlink $f/driver)) $(cat $f/driver_override); done";

/// What the VM leaves on its disk.
const WORDS: &str = "written by node-1";

fn main() -> ExitCode {
    trials::on_boards(&[("a_vm_owns_a_vf_of_a_drive_in_board", || {
        board::with_a_vm("drives", MODEL, "node-1", a_vm_owns_a_vf)
    })])
}

fn say(board: &KeptBoard, line: &str) -> Result<String, Failed> {
    let run = board.shell(line);
    run.ended_with(0)?;
    Ok(run.stdout)
}

/// What is said of the drive and of its VF: subject, from where, attribute, outcome and what was seen.
fn said(verified: &str) -> Result<Vec<String>, Failed> {
    let lines = verdicts(verified)?.into_iter().filter_map(|verdict| {
        let subject = verdict["subject"].get("drive_vf").or_else(|| verdict["subject"].get("drive"))?.clone();
        let inside = verdict["vantage"] != "host";
        Some(format!(
            "{}{} {} {}: {}",
            text(&subject),
            if inside { " inside" } else { "" },
            text(&verdict["attribute"]),
            text(&verdict["outcome"]),
            text(&verdict["seen"])
        ))
    });
    Ok(lines.collect())
}

fn a_vm_owns_a_vf(board: &KeptBoard) -> Outcome {
    let model = board.model();
    let before = say(board, STATE)?;

    // What the host uses is given to nobody.
    say(
        board,
        "nvme attach-ns /dev/nvme0 -n 2 -c 0 && for try in $(seq 600); do [ -e /dev/nvme0n2 ] && break; sleep 0.1; done; \
                mkswap /dev/nvme0n2 && swapon /dev/nvme0n2",
    )?;
    let plan = board.inside(["penstock", "plan", model]);
    plan.ended_with(3)?;
    assert!(plan.stderr.contains("this host uses it: the host's swap space"), "{}", plan.stderr);
    say(board, "swapoff /dev/nvme0n2 && nvme detach-ns /dev/nvme0 -n 2 -c 0")?;

    board.inside(["penstock", "apply", model]).ended_with(0)?;
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    let lines = said(&verify.stdout)?;
    for line in [
        "SSD0 vfs pass: 2",
        "SSD0#0 driver pass: vfio-pci",
        "SSD0#0 controller pass: on line",
        "SSD0#0 queues pass: 2",
        "SSD0#0 namespaces pass: 2",
        "SSD0#0 inside state pass: live",
        "SSD0#0 inside disks pass: 2 of 64MiB",
    ] {
        assert!(lines.iter().any(|said| said == line), "{line} is said: {lines:#?}");
    }
    board.inside(["penstock", "plan", "--detailed-exitcode", model]).ended_with(0)?;

    // The witnesses: the drive by nvme-cli, and the VM.
    let told: Value =
        serde_json::from_str(&say(board, "nvme list-secondary /dev/nvme0 --num-entries=2 -o json")?)?;
    let controller = &told["secondary-controllers"][0];
    let given = ["secondary-controller-state", "num-virtual-queues", "num-virtual-interrupts"];
    assert_eq!(given.map(|key| controller[key].as_u64()), [Some(1), Some(3), Some(3)], "{told}");
    assert_eq!(within(board, "cat /sys/class/nvme/nvme0/serial")?.trim(), "S6EUNX0R123456");
    // Of one with several paths the kernel shows these as well, as `nvme0c1n1`, and they are no devices.
    let find = "for at in /sys/block/nvme*; do disk=/dev/${at##*/}; [ -b $disk ] && break; done";
    within(
        board,
        &format!("{find}; printf '{WORDS}' | dd of=$disk conv=sync,fsync bs=512 2>&1 && ls -l $disk"),
    )?;

    // A namespace that somebody attaches is drift.
    say(board, "nvme attach-ns /dev/nvme0 -n 3 -c 1")?;
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(1)?;
    let lines = said(&verify.stdout)?;
    assert!(lines.iter().any(|said| said == "SSD0#0 namespaces fail: 2, 3"), "{lines:#?}");
    say(board, "nvme detach-ns /dev/nvme0 -n 3 -c 1")?;

    // A stop gives the VF back; a start takes it again; and the way back leaves nothing but what the VM wrote.
    board.inside(["penstock", "stop", model, "node-1"]).ended_with(0)?;
    let driver = say(board, "ls -d /sys/class/nvme/nvme0/device/virtfn0/driver 2>/dev/null | wc -l")?;
    assert_eq!(driver.trim(), "0");
    board.inside(["penstock", "start", model, "node-1"]).ended_with(0)?;
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    for _ in 0..3 {
        board.inside(["penstock", "undo"]).ended_with(0)?;
    }
    assert_eq!(say(board, STATE)?, before);
    let disk = say(
        board,
        "nvme attach-ns /dev/nvme0 -n 2 -c 0 >/dev/null && for try in $(seq 600); do [ -e /dev/nvme0n2 ] && break; sleep 0.1; done; \
                           head -c 17 /dev/nvme0n2",
    )?;
    assert_eq!(disk, WORDS);
    Ok(())
}
