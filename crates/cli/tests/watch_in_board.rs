//! `verify --watch` on a board: each kind of drift is told, and that it holds again; nothing is told when nothing happens.
//!
//! The times are those of the board, where software emulation makes all of it slow: what is judged is that the line
//! comes, within seconds. `cargo test -p penstock-host --test events_in_netns` judges the delay of the events themselves.
#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

use penstock_testkit::{
    board::{KeptBoard, own_name},
    json,
    trials::{self, Failed, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("drift_is_told_as_it_happens_in_board", drift_is_told),
        ("what_is_advised_mends_each_kind_of_drift_in_board", advice_mends),
    ])
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
/// nothing was told. What is done inside a guest is looked at after nine times what the last look took, and after a minute at the latest
/// (`RECHECKS` and `LOOK_BETWEEN` of `watch/schedule.rs`); and a look at a busy board takes seconds.
const SCRIPT: &str = r#"
cd /root
pf=$(ls -d /sys/bus/pci/devices/*/sriov_numvfs | head -1); pf=${pf%/*}; dev=$(ls $pf/net)
vf=$(basename $(readlink -f $pf/virtfn2))
pid() { penstock status --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["guests"][sys.argv[1]]["pid"])' $1; }
box=$(pid box); other=$(pid other)
log=/tmp/watch.log; : >$log
# igbvf looks for its link every two seconds: one that is found later is rightly told.
for try in $(seq 60); do penstock verify --quiet MODEL >/dev/null 2>&1 && break; sleep 1; done
penstock verify MODEL --watch --json >>$log 2>/tmp/watch.err & watch=$!
trap 'kill $watch 2>/dev/null' EXIT
while ! grep -q '"event":"state"' $log; do sleep 0.1; kill -0 $watch || { cat /tmp/watch.err >&2; exit 1; }; done
head -1 $log | grep -c '"event":"blind_spots"' | sed 's/^/first /'
sleep 10; echo "quiet $(($(wc -l <$log) - 2))"
told() {
    name=$1; words=$2; shift 2; [ "$1" = true ] || lines=$(wc -l <$log); began=$(date +%s%N)
    "$@"
    while [ $(date +%s%N) -lt $((began + 90 * 1000000000)) ]; do
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
# Its driver finds the link in its own time: only what has a carrier can lose it.
told linked '"holds_again".*"carrier".*{"guest":"other"}' true
told autoprobe '"drift".*"autoprobe"' sh -c "echo 1 >$pf/sriov_drivers_autoprobe"
# The carrier is back two seconds after a reset, which may be before anybody looks: it is reset until somebody does.
resetting() { while echo 1 >$pf/virtfn1/reset; do sleep 0.5; done & resets=$!; }
told reset '"drift".*"carrier".*{"guest":"other"}' resetting
kill $resets
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
    assert_eq!(figure("first")?, 1, "what is not watched is said first: {}", seen.stderr);
    let drifts = [
        "spoofchk",
        "mac_inside",
        "mac_kept",
        "mtu_up",
        "up_again",
        "linked",
        "autoprobe",
        "reset",
        "died",
        "changing",
        "mended",
        "vfs",
    ];
    for what in drifts {
        let took = figure(what)?;
        assert!(took >= 0, "{what} was not told within 90 s:\n{}\n{}", seen.stdout, seen.stderr);
    }
    assert_eq!(figure("status")?, 1, "it ended while something had drifted");
    for line in seen.stderr.lines().filter(|line| line.starts_with('{')) {
        let line: Value = json::read(line)?;
        assert!(line["time"].is_string() && line["event"].is_string(), "{line}");
    }
    eprintln!("told after ms:\n{}", seen.stdout);
    Ok(())
}

/// Each kind of drift on a board where one container has a VF, another the PF of the other NIC, and a third a VF of that. One line
/// each: what it is called, the words of its line, and what makes it.
const KINDS: &[(&str, &str, &str)] = &[
    ("spoofchk", r#""spoofchk".*"host""#, "ip link set $dev vf 0 spoofchk off"),
    ("vlan", r#""vlan".*"host""#, "ip link set $dev vf 0 vlan 200"),
    ("mac_kept", r#""attribute":"mac",.*"vantage":"host""#, "ip link set $dev vf 0 mac 02:00:00:00:00:77"),
    (
        "mac_inside",
        r#""attribute":"mac",.*"vantage":{"guest":"box"}"#,
        "nsenter -t $(pid box) -n ip link set eth0 address 02:00:00:00:00:99",
    ),
    (
        "mtu_inside",
        r#""attribute":"mtu",.*"vantage":{"guest":"box"}"#,
        "nsenter -t $(pid box) -n ip link set eth0 mtu 1300",
    ),
    (
        "up_inside",
        r#""attribute":"up",.*"vantage":{"guest":"box"}"#,
        "nsenter -t $(pid box) -n ip link set eth0 down",
    ),
    (
        "address_inside",
        r#""attribute":"addresses",.*"vantage":{"guest":"box"}"#,
        "nsenter -t $(pid box) -n ip address flush dev eth0",
    ),
    ("pf_down", r#""attribute":"up",.*"vantage":"host""#, "ip link set $dev down"),
    ("pf_mtu", r#""attribute":"mtu",.*"vantage":"host""#, "ip link set $dev mtu 1400"),
    (
        "pf_inside",
        r#""attribute":"up",.*"vantage":{"guest":"edge"}"#,
        "nsenter -t $(pid edge) -n ip link set eth0 down",
    ),
    ("autoprobe", r#""autoprobe""#, "echo 1 >$pf/sriov_drivers_autoprobe"),
    ("died", r#""attribute":"running""#, "kill -9 $(pid box)"),
    ("vfs", r#""attribute":"vfs""#, "echo 0 >$pf/sriov_numvfs"),
];

const KINDS_MODEL: &str = "
machine: MACHINE
nics:
  NET0: {vfs: 3, mtu: 1500}
  NET1: {vfs: 2}
guests:
  box:
    functions: [{vf: NET0#0, address: 192.0.2.10/24, vlan: 100, spoofchk: on, trust: on, mtu: 1400}]
  edge: {functions: [NET1]}
  leaf: {functions: [NET1#0], after: [edge]}
";

/// Watches until the first change, makes the drift, takes what is advised from its line, and does that. The line may take as long as in
/// [`SCRIPT`].
const FOLLOW: &str = r#"
cd /root
for count in /sys/bus/pci/devices/*/sriov_numvfs; do [ $(cat $count) = 3 ] && pf=${count%/*}; done; dev=$(ls $pf/net)
pid() { penstock status --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["guests"][sys.argv[1]]["pid"])' $1; }
log=/tmp/follow.log; : >$log
penstock verify MODEL --watch --json >>$log 2>/tmp/follow.err & watch=$!
trap 'kill $watch 2>/dev/null' EXIT
while ! grep -q '"event":"state"' $log; do sleep 0.1; kill -0 $watch || { cat /tmp/follow.err; exit 1; }; done
grep -q '"holds":true' $log || { echo "it does not hold to begin with"; cat $log; exit 1; }
MAKE
for _ in $(seq 1800); do grep '"event":"drift"' $log | grep -q 'WORDS' && break; sleep 0.05; done
kill -TERM $watch; wait $watch
line=$(grep '"event":"drift"' $log | grep 'WORDS' | tail -1)
[ -n "$line" ] || { echo "no line was told"; cat $log; exit 1; }
mend=$(echo "$line" | python3 -c 'import json,sys; print(json.loads(sys.stdin.read()).get("mend", ""))')
echo "mend $mend"
[ -n "$mend" ] || { echo "$line"; exit 1; }
sh -c "$mend" >/tmp/mend.log 2>&1 || { cat /tmp/mend.log; exit 1; }
for try in $(seq 10); do penstock verify MODEL >/tmp/verify.log && exit 0; sleep 2; done
grep -v '^pass' /tmp/verify.log; exit 1
"#;

fn advice_mends() -> Outcome {
    let name = own_name("advice");
    let board = KeptBoard::up(&name, &KINDS_MODEL.replace("MACHINE", &name))?;
    board.inside(["penstock", "apply", board.model()]).ended_with(0)?;
    let mut wrong = Vec::new();
    for (kind, words, make) in KINDS {
        let script = FOLLOW.replace("MODEL", board.model()).replace("WORDS", words).replace("MAKE", make);
        let followed = board.shell(&script);
        let mend = followed.stdout.lines().find_map(|line| line.strip_prefix("mend ")).unwrap_or("nothing");
        eprintln!("{kind}: {mend}");
        if followed.status != 0 {
            wrong.push(format!("{kind}: {mend}:\n{}{}", followed.stdout, followed.stderr));
            // The others are to be tried all the same.
            board.inside(["penstock", "stop", "--quiet", board.model()]);
            board.inside(["penstock", "apply", "--quiet", board.model()]);
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}
