//! The same machine, whatever a NIC more, a NIC less or a driver that is reloaded make of its addresses and names. What is so
//! is read by a shell from sysfs and by `ip`, not by a scan.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeMap, process::ExitCode};

use penstock_testkit::{
    board::{KeptBoard, own_name},
    json,
    trials::{self, Failed, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("a_nic_more_changes_nothing_in_board", a_nic_more_changes_nothing),
        ("nics_that_go_away_are_told_in_board", nics_that_go_away_are_told),
    ])
}

/// Known by a MAC address and by a slot, with a VF each in a guest.
const MODEL: &str = r#"machine: one
nics:
  BY_MAC: {match: {mac: "02:70:73:00:00:01"}, vfs: 2}
  BY_SLOT: {match: {slot: 7}, vfs: 2}
guests:
  a: {functions: [BY_MAC#0, BY_SLOT#1]}
"#;

/// A board for [`MODEL`], with `more` NICs in front.
fn board(name: &str, more: &str) -> Result<KeptBoard, String> {
    let nics = r#"  X: {match: {mac: "02:70:73:00:00:01"}, vfs: 2}
  Y: {match: {mac: "02:70:73:00:00:02", slot: 7}, vfs: 2}
"#;
    KeptBoard::up(name, &format!("machine: {name}\nnics:\n{more}{nics}"))
}

/// What of a PF must stay, by its MAC address, and what may not: the addresses of its VFs, and its own place.
#[derive(Debug, PartialEq)]
struct Seen {
    vf_macs: Vec<String>,
    place: [String; 3],
}

fn pfs(board: &KeptBoard) -> Result<BTreeMap<String, Seen>, Failed> {
    let script = r#"
        for device in /sys/bus/pci/devices/*/sriov_totalvfs; do
            device=${device%/*}
            [ -e "$device/net" ] || continue
            name=$(ls "$device/net")
            group=$(readlink "$device/iommu_group")
            echo "$(cat "$device/net/$name/address") ${device##*/} $name ${group##*/}" \
                $(ip link show dev "$name" | sed -n 's/^ *vf [0-9]* *link.ether \([^ ]*\) .*/\1/p')
        done
    "#;
    let seen = board.shell(script);
    seen.ended_with(0)?;
    let lines = seen.stdout.lines().map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let (mac, place) = (word(), [word(), word(), word()]);
        (mac, Seen { vf_macs: words.collect(), place })
    });
    Ok(lines.collect())
}

fn a_nic_more_changes_nothing() -> Outcome {
    let (before, runs) = {
        let board = board(&own_name("identity"), "")?;
        board.write("/root/one.yaml", MODEL).ended_with(0)?;
        board.inside(["penstock", "apply", "/root/one.yaml"]).ended_with(0)?;
        board.inside(["penstock", "verify", "/root/one.yaml"]).ended_with(0)?;
        what_holds_is_not_written(&board)?;
        let runs = board.shell("tar -C / -c var/lib/penstock etc/subuid etc/subgid | base64 -w0");
        runs.ended_with(0)?;
        (pfs(&board)?, runs.stdout)
    };
    let board = board(&own_name("renumbered"), "  FIRST: {match: {mac: \"02:70:73:00:00:99\"}, vfs: 1}\n")?;
    board.write("/root/runs", &runs).ended_with(0)?;
    board.write("/root/one.yaml", MODEL).ended_with(0)?;
    // A machine that is moved or gets a NIC keeps its disk: the runs, and the ids that its containers have.
    board.shell("base64 -d /root/runs | tar -C / -x").ended_with(0)?;
    // The run was made under other addresses, and all that it did went with the boot.
    let undo = board.inside(["penstock", "undo"]);
    undo.ended_with(0)?;
    assert!(!undo.stderr.contains("steps done"), "{}", undo.stderr);
    let fresh = pfs(&board)?;
    assert!(fresh.values().all(|seen| seen.vf_macs.is_empty()), "{fresh:?}");

    board.inside(["penstock", "apply", "/root/one.yaml"]).ended_with(0)?;
    board.inside(["penstock", "verify", "/root/one.yaml"]).ended_with(0)?;
    let after = pfs(&board)?;
    for mac in ["02:70:73:00:00:01", "02:70:73:00:00:02"] {
        let (before, after) = (&before[mac], &after[mac]);
        assert_eq!(before.vf_macs.len(), 2, "{before:?}");
        assert_eq!(before.vf_macs, after.vf_macs, "{mac}");
        assert_ne!(before.place[0], after.place[0], "{mac} has another PCI address");
        assert_ne!(before.place[2], after.place[2], "{mac} is in another IOMMU group");
    }
    assert!(
        ["02:70:73:00:00:01", "02:70:73:00:00:02"]
            .iter()
            .any(|mac| before[*mac].place[1] != after[*mac].place[1]),
        "{before:?} {after:?}"
    );
    assert_eq!(after["02:70:73:00:00:99"].vf_macs, Vec::<String>::new(), "the new NIC is left alone");
    Ok(())
}

/// A second `apply`, under the kernel's own eyes: what is opened for writing, made, removed or renamed, and which requests
/// over netlink change something.
fn what_holds_is_not_written(board: &KeptBoard) -> Outcome {
    let script = r#"
        set -e
        before=$(find /var/lib/penstock | sort)
        mount -t tracefs none /sys/kernel/tracing
        cd /sys/kernel/tracing
        echo 'p:opened do_sys_openat2 path=+0($arg2):ustring flags=+0($arg3):x64' >kprobe_events
        echo 'p:rtnetlink rtnetlink_rcv_msg type=+4($arg2):u16' >>kprobe_events
        echo 'p:generic genl_rcv_msg type=+4($arg2):u16 command=+16($arg2):u8' >>kprobe_events
        echo 'r:made do_mkdirat result=$retval:s32' >>kprobe_events
        echo 'r:unlinked do_unlinkat result=$retval:s32' >>kprobe_events
        echo 'r:removed do_rmdir result=$retval:s32' >>kprobe_events
        echo 'r:renamed do_renameat2 result=$retval:s32' >>kprobe_events
        echo 'r:linked do_linkat result=$retval:s32' >>kprobe_events
        echo 'p:device dev_ioctl command=$arg2:x32 asked=+u0($arg4):u32' >>kprobe_events
        echo 'p:stored sysfs_kf_write' >>kprobe_events
        echo 1 >events/kprobes/enable
        status=0; penstock apply "$1" 2>/root/again.log || status=$?
        echo "canary" >/root/canary
        echo 0 >events/kprobes/enable
        [ "$status" = 0 ]
        [ "$before" = "$(find /var/lib/penstock | sort)" ]
        cat trace
    "#;
    board.write("/root/watch", script).ended_with(0)?;
    let watched = board.inside(["sh", "/root/watch", "/root/one.yaml"]);
    watched.ended_with(0)?;
    let lines: Vec<&str> = watched.stdout.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.iter().any(|line| line.contains("/root/canary")), "the watcher sees writes");
    let of_penstock: Vec<&str> =
        lines.into_iter().filter(|line| line.trim_start().starts_with("penstock-")).collect();
    assert!(of_penstock.len() > 50, "the watcher sees penstock: {of_penstock:?}");
    let field = |line: &str, name: &str| {
        let at = line.find(&format!(" {name}="))? + name.len() + 2;
        Some(line[at..].split(' ').next()?.trim_matches('"').to_owned())
    };
    let changes = |line: &&str| {
        if line.contains(" opened: ") {
            let flags = field(line, "flags").unwrap_or_default();
            let flags = u64::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(u64::MAX);
            // The locks are files of this boot's, which say who is at it: that of the directory of states, and that of the network
            // namespace, which has its number. They are opened in their directories, which are held.
            let of_a_namespace = |path: &str| {
                path.strip_suffix(".lock")
                    .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            };
            let lock = field(line, "path").is_some_and(|path| path == "lock" || of_a_namespace(&path));
            return flags & 0o3 != 0 && !lock;
        }
        if line.contains(" rtnetlink: ") {
            // Types come in fours, of which the third asks (`include/uapi/linux/rtnetlink.h`).
            let kind = field(line, "type").and_then(|text| text.parse::<u16>().ok());
            return kind.is_none_or(|kind| kind % 4 != 2);
        }
        if line.contains(" generic: ") {
            // The controller only tells of families; of ethtool's first eight commands the even ones ask
            // (`include/uapi/linux/ethtool_netlink_generated.h`).
            let number = |name| field(line, name).and_then(|text| text.parse::<u16>().ok());
            let asks = number("type") == Some(0x10) || matches!(number("command"), Some(2 | 4 | 6 | 8));
            return !asks;
        }
        if line.contains(" device: ") && field(line, "command").is_some_and(|command| command == "0x8946") {
            // `ETHTOOL_GDRVINFO`: what the driver is called, and its version.
            return field(line, "asked").is_none_or(|asked| asked != "3");
        }
        // What was attempted in vain, like to make a directory that is there, has changed nothing.
        field(line, "result").is_none_or(|result| result == "0")
    };
    let changed: Vec<&str> = of_penstock.into_iter().filter(changes).collect();
    assert!(changed.is_empty(), "{}", changed.join("\n"));
    let said = board.shell("cat /root/again.log; penstock plan /root/one.yaml --json");
    assert!(said.stdout.contains("Nothing to do"), "{}", said.stdout);
    Ok(())
}

/// Its lines in order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines
}

/// Has the kernel look for functions that were removed, and waits until all is as before: drivers and udev take their time.
fn is_found_again(board: &KeptBoard, before: &str) -> Outcome {
    board.shell("echo 1 >/sys/bus/pci/rescan").ended_with(0)?;
    let mut now = host(board)?;
    for _ in 0..100 {
        if sorted(&now) == sorted(before) {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        now = host(board)?;
    }
    assert_eq!(sorted(&now), sorted(before));
    Ok(())
}

/// Everything that a run may change of the PFs, as one text.
fn host(board: &KeptBoard) -> Result<String, Failed> {
    let script = r#"
        for pf in /sys/bus/pci/devices/*/sriov_numvfs; do
            pf=${pf%/*}; driver=$(readlink "$pf/driver")
            echo "${pf##*/} $(cat "$pf/sriov_numvfs") $(cat "$pf/sriov_drivers_autoprobe") ${driver##*/}"
            for net in "$pf"/net/*; do [ -e "$net" ] && echo "$(cat "$net/address") $(cat "$net/flags")"; done
        done
        ls /run/penstock/guests 2>/dev/null | grep -v "[.]lock$"
        true
    "#;
    let seen = board.shell(script);
    seen.ended_with(0)?;
    Ok(seen.stdout)
}

/// The PCI address of the PF with this MAC address.
fn address(board: &KeptBoard, mac: &str) -> Result<String, Failed> {
    let found = pfs(board)?.remove(mac).ok_or_else(|| format!("there is no {mac}"))?;
    Ok(found.place[0].clone())
}

fn nics_that_go_away_are_told() -> Outcome {
    let name = own_name("unplug");
    let board = board(&name, "")?;
    let two = MODEL
        .replace("functions: [BY_MAC#0, BY_SLOT#1]", "functions: [BY_MAC#0]}\n  b: {functions: [BY_SLOT#1]");
    board.write("/root/two.yaml", &two).ended_with(0)?;
    let apply = ["penstock", "apply", "/root/two.yaml"];
    let before = host(&board)?;

    // The driver is reloaded as soon as the VFs of a PF are there: a failure that takes all back, whatever came of it.
    let (first, second) = (address(&board, "02:70:73:00:00:01")?, address(&board, "02:70:73:00:00:02")?);
    let while_applying = |what: &str| {
        board.shell(&format!(
            "(while [ ! -e /sys/bus/pci/devices/{second}/virtfn1 ]; do sleep 0.02; done; {what}) & \
             timeout 600 penstock apply /root/two.yaml; status=$?; wait; exit $status"
        ))
    };
    let reloaded = while_applying("modprobe -r igb; modprobe igb");
    assert!([1, 5].contains(&reloaded.status), "{}: {}", reloaded.status, reloaded.stderr);
    board.inside(["penstock", "verify", "/root/two.yaml"]).ended_with(1)?;
    board.inside(apply).ended_with(0)?;
    board.inside(["penstock", "verify", "/root/two.yaml"]).ended_with(0)?;
    while board.inside(["penstock", "undo"]).stderr.contains("Undoing") {}
    assert_eq!(sorted(&host(&board)?), sorted(&before));

    // A NIC is unplugged while a guest has its VF: the other guest goes on, and what is gone is passed over.
    board.inside(apply).ended_with(0)?;
    board.shell(&format!("echo 1 >/sys/bus/pci/devices/{first}/remove")).ended_with(0)?;
    let lost = board.inside(["penstock", "verify", "/root/two.yaml", "--json"]);
    lost.ended_with(1)?;
    assert!(lost.stderr.contains("no PF of this machine has MAC 02:70:73:00:00:01"), "{}", lost.stderr);
    let verified: Value = json::read(&lost.stdout)?;
    let failed = |of: &str| {
        let verdicts = verified["verdicts"].as_array().into_iter().flatten();
        verdicts
            .filter(|verdict| verdict["outcome"] != "pass" && verdict["subject"].to_string().contains(of))
            .count()
    };
    assert!(failed("BY_MAC") > 0 && failed("BY_SLOT") == 0, "{}", lost.stdout);
    let again = board.inside(apply);
    again.ended_with(6)?;
    assert!(again.stderr.contains("no PF of this machine has MAC"), "{}", again.stderr);
    let undo = board.inside(["penstock", "undo"]);
    undo.ended_with(0)?;
    assert!(!undo.stderr.contains("not supported"), "{}", undo.stderr);
    is_found_again(&board, &before)?;

    // And while it is being set up.
    let unplugged = while_applying(&format!("echo 1 >/sys/bus/pci/devices/{first}/remove"));
    assert!([1, 5].contains(&unplugged.status), "{}: {}", unplugged.status, unplugged.stderr);
    assert!(unplugged.stderr.contains(&first), "{}", unplugged.stderr);
    while board.inside(["penstock", "undo"]).stderr.contains("Undoing") {}
    is_found_again(&board, &before)?;
    Ok(())
}
