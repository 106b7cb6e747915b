//! `verify --watch` on a board: each kind of drift is told, and that it holds again; nothing is told when nothing happens.
//!
//! The times are those of the board, where software emulation makes all of it slow: what is judged is that the line
//! comes, within seconds. `cargo test -p penstock-host --test ears_in_netns` judges the delay of the events themselves.
#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

use libtest_mimic::Failed;
use penstock_testkit::{
    board::{KeptBoard, own_name},
    trials::{self, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[("drift_is_told_as_it_happens_in_board", drift_is_told)])
}

const MODEL: &str = "
machine: MACHINE
nics:
  NET0: {vfs: 3, loopback: on}
guests:
  box:
    functions: [{vf: NET0#0, address: 192.0.2.10/24, spoofchk: on, trust: on}]
  other:
    functions: [{vf: NET0#1, address: 192.0.2.11/24}]
";

/// Watches, does each thing, waits for its line, and puts all right. Each drift leaves the line `NAME SECONDS`, with -1 where
/// nothing was told.
const SCRIPT: &str = r#"
cd /root
pf=$(ls -d /sys/bus/pci/devices/*/sriov_numvfs | head -1); pf=${pf%/*}; dev=$(ls $pf/net)
vf=$(basename $(readlink -f $pf/virtfn2))
pid() { penstock status --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["guests"][sys.argv[1]]["pid"])' $1; }
box=$(pid box); other=$(pid other)
log=/tmp/watch.log; : >$log
penstock verify MODEL --watch --json >>$log 2>/tmp/watch.err & watch=$!
while ! grep -q '"event":"state"' $log; do sleep 0.1; done
sleep 10; echo "quiet $(($(wc -l <$log) - 1))"
told() {
    name=$1; words=$2; shift 2; [ "$1" = true ] || lines=$(wc -l <$log); began=$(date +%s%N)
    "$@"
    for _ in $(seq 600); do
        if tail -n +$((lines + 1)) $log | grep -q "$words"; then
            echo "$name $((($(date +%s%N) - began) / 1000000))"; return
        fi
        sleep 0.05
    done
    echo "$name -1"
}
told spoofchk '"drift".*"spoofchk"' ip link set $dev vf 0 spoofchk off
told mac_inside '"drift".*"mac".*{"guest":"box"}' nsenter -t $box -n ip link set eth0 address 02:00:00:00:00:99
told mac_kept '"drift".*"mac".*"host"' true
told mtu_up '"drift".*"up".*{"guest":"other"}' nsenter -t $other -n ip link set eth0 down
told up_again '"holds_again".*"up".*{"guest":"other"}' nsenter -t $other -n ip link set eth0 up
told autoprobe '"drift".*"autoprobe"' sh -c "echo 1 >$pf/sriov_drivers_autoprobe"
told reset '"drift".*"carrier".*{"guest":"other"}' sh -c "echo 1 >$pf/virtfn1/reset"
told died '"drift".*"running"' kill -9 $other
told changing '"changing"' sh -c 'penstock stop MODEL >/tmp/stop.log 2>&1; penstock apply MODEL >/tmp/apply.log 2>&1'
told mended '"state","holds":true\|"holds_again".*"autoprobe"' true
told vfs '"drift".*"attribute":"vfs"' sh -c "penstock stop MODEL >/tmp/stop.log 2>&1; sleep 2; echo 0 >$pf/sriov_numvfs"
kill -TERM $watch; wait $watch; echo "status $?"
cat $log >&2
"#;

fn drift_is_told() -> Outcome {
    let name = own_name("watch");
    let board = KeptBoard::up(&name, &MODEL.replace("MACHINE", &name))?;
    board.inside(["penstock", "apply", board.model()]).ended_with(0)?;
    let seen = board.shell(&SCRIPT.replace("MODEL", board.model()));
    seen.ended_with(0)?;
    let figure = |what: &str| {
        let line = seen.stdout.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
        let number = line.and_then(|number| number.parse::<i64>().ok());
        number.ok_or_else(|| Failed::from(format!("nothing of {what}:\n{}\n{}", seen.stdout, seen.stderr)))
    };
    assert_eq!(figure("quiet")?, 0, "{}", seen.stderr);
    let drifts = [
        "spoofchk",
        "mac_inside",
        "mac_kept",
        "mtu_up",
        "up_again",
        "autoprobe",
        "reset",
        "died",
        "changing",
        "mended",
        "vfs",
    ];
    for what in drifts {
        let took = figure(what)?;
        assert!(took >= 0, "{what} was not told within 30 s:\n{}\n{}", seen.stdout, seen.stderr);
    }
    assert_eq!(figure("status")?, 1, "it ended while something had drifted");
    for line in seen.stderr.lines().filter(|line| line.starts_with('{')) {
        let line: Value = serde_json::from_str(line)?;
        assert!(line["time"].is_string() && line["event"].is_string(), "{line}");
    }
    eprintln!("told after ms:\n{}", seen.stdout);
    Ok(())
}
