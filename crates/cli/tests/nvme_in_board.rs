//! What `scan` says of an NVMe drive with VFs is what nvme-cli says of it, whatever nvme-cli has done to it: on a board with an emulated one.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeSet, process::ExitCode};

use penstock_testkit::{
    board::{KeptBoard, own_name},
    json, needs,
    trials::{Failed, Outcome, Test, Trials},
};
use serde_json::Value;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", needs::board);
    let tests: [(&str, Test); 1] =
        [("what_a_drive_says_of_its_vfs_is_scanned_in_board", what_a_drive_says_of_its_vfs_is_scanned)];
    trials.add(&missing, tests);
    trials.run()
}

/// The drive as a scan shows it.
fn scanned(board: &KeptBoard) -> Result<Value, Failed> {
    let scan = board.inside(["penstock", "scan", "--json"]);
    scan.ended_with(0)?;
    let inventory: Value = json::read(&scan.stdout)?;
    let virtualization = inventory["nvme"][0]["virtualization"].clone();
    assert!(virtualization.is_object(), "{} {}", inventory["nvme"], inventory["unknown"]);
    Ok(virtualization)
}

fn asked(board: &KeptBoard, line: &str) -> Result<Value, Failed> {
    let run = board.shell(line);
    run.ended_with(0)?;
    Ok(serde_json::from_str(&run.stdout)?)
}

/// Compares a scan with what nvme-cli reads, and returns the scan.
fn agrees(board: &KeptBoard) -> Result<Value, Failed> {
    let scan = scanned(board)?;
    let secondary = asked(board, "nvme list-secondary /dev/nvme0 --num-entries=3 -o json")?;
    let theirs = secondary["secondary-controllers"].as_array().cloned().unwrap_or_default();
    let ours = scan["secondary"].as_array().cloned().unwrap_or_default();
    assert_eq!((ours.len(), theirs.len()), (2, 2), "{ours:?} {theirs:?}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours["controller"], theirs["secondary-controller-identifier"]);
        assert_eq!(ours["queues"], theirs["num-virtual-queues"]);
        assert_eq!(ours["interrupts"], theirs["num-virtual-interrupts"]);
        assert_eq!(ours["online"], theirs["secondary-controller-state"] == 1, "{theirs}");
        assert_eq!(ours["vf"].as_u64().map(|vf| vf + 1), theirs["virtual-function-number"].as_u64());
    }
    let capabilities = asked(board, "nvme primary-ctrl-caps /dev/nvme0 -o json")?;
    for (ours, total, most, held) in
        [("queues", "vqfrt", "vqfrsm", "vqrfap"), ("interrupts", "vifrt", "vifrsm", "virfap")]
    {
        let theirs = [total, most, held].map(|key| &capabilities[key]);
        assert_eq!(["total", "most", "held_by_pf"].map(|key| &scan[ours][key]), theirs, "{ours}");
    }
    let namespaces = asked(board, "nvme list-ns /dev/nvme0 --all -o json")?;
    let theirs: BTreeSet<String> = namespaces["nsid_list"]
        .as_array()
        .iter()
        .copied()
        .flatten()
        .map(|one| one["nsid"].to_string())
        .collect();
    let ours = scan["namespaces"].as_object().cloned().unwrap_or_default();
    assert_eq!(ours.keys().cloned().collect::<BTreeSet<_>>(), theirs);
    for (namespace, ours) in &ours {
        let run = board.shell(&format!("nvme list-ctrl /dev/nvme0 --namespace-id={namespace}"));
        run.ended_with(0)?;
        // `[   0]:0x1`
        let listed = run.stdout.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]:"));
        let numbers: Vec<u64> = listed
            .map(|(_, number)| u64::from_str_radix(number.trim_start_matches("0x"), 16))
            .collect::<Result<_, _>>()?;
        assert_eq!(ours["controllers"], Value::from(numbers), "namespace {namespace}");
    }
    Ok(scan)
}

fn what_a_drive_says_of_its_vfs_is_scanned() -> Outcome {
    let name = own_name("nvme");
    let board = KeptBoard::up(
        &name,
        &format!("machine: {name}\nnics: {{NET0: {{vfs: 1}}}}\nboard: {{nvme_vfs: 2}}\n"),
    )?;
    let before = agrees(&board)?;
    assert_eq!(before["queues"]["most"], 3);
    let first = &before["namespaces"]["1"];
    assert_eq!((&first["size"], &first["device"]), (&"1GiB".into(), &"nvme0n1".into()));
    for waiting in ["2", "3"] {
        let namespace = &before["namespaces"][waiting];
        assert_eq!((&namespace["size"], &namespace["controllers"]), (&"64MiB".into(), &Value::Array(vec![])));
    }

    // VF 0 gets two pairs of queues for I/O, goes on line, and has namespace 2.
    let given = "set -e; cd /sys/class/nvme/nvme0/device
        echo 0 > sriov_drivers_autoprobe; echo 2 > sriov_numvfs
        nvme virt-mgmt /dev/nvme0 -c 1 -r 0 -n 3 -a 8; nvme virt-mgmt /dev/nvme0 -c 1 -r 1 -n 3 -a 8
        nvme virt-mgmt /dev/nvme0 -c 1 -a 9; nvme attach-ns /dev/nvme0 -n 2 -c 1
        vf=$(basename $(readlink virtfn0)); echo nvme > virtfn0/driver_override; echo $vf > /sys/bus/pci/drivers_probe
        for i in $(seq 100); do [ -e /dev/nvme0n2 ] && break; sleep 0.1; done
        mkswap /dev/nvme0n2; swapon /dev/nvme0n2";
    board.shell(given).ended_with(0)?;
    let with = agrees(&board)?;
    let vf = &with["secondary"][0];
    assert_eq!((&vf["queues"], &vf["interrupts"], &vf["online"]), (&3.into(), &3.into(), &true.into()));
    let second = &with["namespaces"]["2"];
    assert_eq!((&second["device"], &second["used"]), (&"nvme0n2".into(), &"the host's swap space".into()));
    let table = board.inside(["penstock", "scan"]);
    table.ended_with(0)?;
    for part in ["3 of 6 interrupts free, at most 3 each", "on line", "VF 0", "swap space"] {
        assert!(table.stdout.contains(part), "no {part:?} in {}", table.stdout);
    }

    let taken = "set -e; swapoff /dev/nvme0n2; cd /sys/class/nvme/nvme0/device
        basename $(readlink virtfn0) > virtfn0/driver/unbind; nvme detach-ns /dev/nvme0 -n 2 -c 1
        nvme virt-mgmt /dev/nvme0 -c 1 -a 7; echo 0 > sriov_numvfs";
    board.shell(taken).ended_with(0)?;
    assert_eq!(agrees(&board)?, before);

    // Whoever cannot ask is told why he knows less.
    board.shell("echo 0000:02:00.0 > /sys/bus/pci/drivers/nvme/unbind").ended_with(0)?;
    let without = board.inside(["penstock", "scan"]);
    without.ended_with(0)?;
    assert!(without.stdout.contains("the kernel's driver nvme has no controller at"), "{}", without.stdout);
    Ok(())
}
