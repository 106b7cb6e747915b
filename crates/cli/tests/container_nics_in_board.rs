//! Containers on a machine without any NIC of SR-IOV: each has a NIC of its own, a vDPA device of the board's kernel that is the port of an
//! embedded switch, whose uplink is in a Linux bridge.
#![allow(clippy::disallowed_methods)]

#[allow(dead_code, reason = "the tests of VMs' NICs use the rest")]
mod tenant;

use std::process::ExitCode;

use penstock_testkit::{
    board::{KeptBoard, own_name},
    trials::{self, Failed, Outcome},
};
use serde_json::Value;
use tenant::{dies_and_is_there_again, frames, said};

fn main() -> ExitCode {
    trials::on_boards(&[("containers_own_ports_of_embedded_switches_in_board", || {
        let name = own_name("container-nics");
        let model = EXAMPLE.replace("machine: container-nics", &format!("machine: {name}"));
        let board = KeptBoard::up(&name, &model)?;
        containers_own_ports(&board)
    })])
}

/// Two containers are in one VLAN, the others in none, as the host's end of the bridge.
const EXAMPLE: &str = include_str!("../../../examples/container-nics.yaml");

fn shell(board: &KeptBoard, line: &str) -> Result<String, Failed> {
    let run = board.shell(line);
    run.ended_with(0)?;
    Ok(run.stdout)
}

/// A line of shell in the network of a container.
fn within(board: &KeptBoard, guest: &str, line: &str) -> i32 {
    let pid = format!(
        "$(penstock status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"guests\"][\"{guest}\"][\"pid\"])')"
    );
    board.shell(&format!("nsenter --net --target {pid} sh -c '{line}'")).status
}

/// Pings go on for as long as it takes one to be answered: an address that nobody answered for is asked for once in a second.
fn pings(board: &KeptBoard, from: &str, to: &str) -> bool {
    within(board, from, &format!("ping -q -c 1 -w 30 {to}")) == 0
}

/// Says the digest of what it has received, or sent to the address that it is given: 4 MiB.
const TRANSFER: &str = r#"
import hashlib, random, socket, sys
digest = hashlib.sha256()
if len(sys.argv) > 1:
    data = random.Random(1).randbytes(4 << 20)
    digest.update(data)
    end = socket.create_connection((sys.argv[1], 5001), timeout=60)
    end.sendall(data)
    end.shutdown(socket.SHUT_WR)
    end.recv(1)
else:
    listener = socket.create_server(("", 5001))
    print("listening", flush=True)
    listener.settimeout(60)
    end, _ = listener.accept()
    end.settimeout(60)
    while part := end.recv(1 << 16):
        digest.update(part)
print(digest.hexdigest(), flush=True)
"#;

/// Whole segments, with a tag between the switches, arrive as they were sent.
fn transfers(board: &KeptBoard) -> Outcome {
    board.write("/root/transfer.py", TRANSFER).ended_with(0)?;
    let said = shell(
        board,
        "pid() { penstock status --json | python3 -c \"import json, sys; print(json.load(sys.stdin)['guests']['$1']['pid'])\"; }\n\
         rm -f /root/received; (nsenter --net --target $(pid db) python3 /root/transfer.py >/root/received 2>&1 </dev/null &)\n\
         for turn in $(seq 60); do grep -q listening /root/received && break; sleep 0.5; done\n\
         nsenter --net --target $(pid web) python3 /root/transfer.py 10.20.50.2 2>&1\n\
         for turn in $(seq 60); do [ $(wc -l </root/received) = 2 ] && break; sleep 0.5; done; tail -1 /root/received",
    )?;
    let both: Vec<&str> = said.split_whitespace().collect();
    assert!(matches!(both[..], [sent, received] if sent == received && sent.len() == 64), "{said}");
    Ok(())
}

/// What is there of the containers' NICs: switches, devices, taps.
fn left(board: &KeptBoard) -> Result<String, Failed> {
    shell(
        board,
        "systemctl list-units --all --plain --no-legend 'penstock-switch-*'; ls /sys/bus/vdpa/devices; \
         ls /dev/vduse | grep -v control; ls /sys/class/net | grep ^tap; ls /run/penstock/guests | grep -v lock; true",
    )
}

fn verified(board: &KeptBoard, model: &str) -> Result<(Vec<String>, Vec<String>), Failed> {
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    Ok((said(&verify.stdout)?, frames(&verify.stdout)?))
}

/// What measuring could leave: on the host and in the containers.
const TRACES: &str = "ip -o link | cut -d@ -f1 | cut -d: -f2; ip -4 -o address show scope global; ip neigh show nud permanent; \
     for guest in web db log; do nsenter --net --target $(penstock status --json | python3 -c \
     'import json, sys; print(json.load(sys.stdin)[\"guests\"][sys.argv[1]][\"pid\"])' $guest) \
     sh -c 'ip -o link | cut -d@ -f1; ip -4 -o address; ip neigh show nud permanent'; done";

/// UDP round trips from container to container, by their NICs and by veths in the same bridge. Nothing is left of it. Paths to the host are
/// measured in namespaces (`network_in_netns` of penstock-measure).
fn ports_are_measured(board: &KeptBoard) -> Outcome {
    let before = shell(board, TRACES)?;
    // The fewest samples that give an interval, however wide.
    let words = [
        "--quick",
        "--protocol=udp-rr",
        "--path=port-port,veth-veth",
        "--samples=6",
        "--time-limit=none",
        "--output=/root/ports",
    ];
    board.inside(["penstock", "measure", board.model()].into_iter().chain(words)).ended_with(0)?;
    let evidence: Value = serde_json::from_str(&shell(board, "cat /root/ports/evidence.json")?)?;
    let measured = &evidence["measurements"];
    let cells = measured["cells"].as_array().cloned().unwrap_or_default();
    for path in ["port-port", "veth-veth"] {
        let id = format!("netperf udp rr {path} web/net0>db/net0 128B");
        let cell = cells.iter().find(|cell| cell["id"] == id);
        let samples = cell.and_then(|cell| cell["status"]["measured"]["summaries"][0]["n"].as_u64());
        assert!(samples >= Some(6), "{id}: {samples:?} of {cells:#?}");
    }
    let compared = measured["comparisons"].as_array().cloned().unwrap_or_default();
    let ports = compared.iter().any(|one| {
        let of = |key: &str, path: &str| one[key].as_str().is_some_and(|id| id.contains(path));
        of("base", " veth-veth ")
            && of("other", " port-port ")
            && !one["ratio"].is_null()
            && !one["null"].is_null()
    });
    assert!(ports, "{compared:#?}");
    assert_eq!(shell(board, TRACES)?, before);
    Ok(())
}

fn containers_own_ports(board: &KeptBoard) -> Outcome {
    let model = board.model();
    // A board has the bridge that is the host's own on a real machine.
    shell(board, "ip address add 10.20.60.254/24 dev br0")?;

    // A kernel without the modules is told as such before anything is done; its plan is one of the machine all the same.
    let without = board.shell(&format!(
        "lsmod | grep -q vduse && exit 9; modules=/lib/modules/$(uname -r); mount -t tmpfs none $modules; \
         penstock check {model} --here; status=$?; umount $modules; exit $status"
    ));
    without.ended_with(4)?;
    assert!(without.stderr.contains("no module vduse"), "{}", without.stderr);
    board.inside(["penstock", "check", model, "--here"]).ended_with(0)?;
    assert_eq!(left(board)?, "", "a check leaves nothing");

    board.inside(["penstock", "apply", model]).ended_with(0)?;
    let (lines, paths) = verified(board, model)?;
    for line in [
        "web/net0 port pass: connected",
        "web/net0 mac pass: 02:00:00:00:01:01",
        "web/net0 vlan pass: 100",
        "web/net0 spoofchk pass: on",
        "web/net0 uplink pass: br0",
        "web/net0 interface pass: net0",
        "web/net0 up pass: up",
        "web/net0 carrier pass: carrier",
        "web/net0 addresses pass: 10.20.50.1/24",
        "db/net0 mtu pass: 1400",
        "backup/net0 max_tx_rate pass: 500 Mbit/s",
    ] {
        assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
    }
    for line in [
        "pass web/net0 -> db/net0: arrives",
        "pass db/net0 -> web/net0: arrives",
        "pass web/net0 -> log/net0: isolated",
        "pass log/net0 -> db/net0: isolated",
        "pass log/net0 -> backup/net0: arrives",
    ] {
        assert!(paths.contains(&line.to_owned()), "{line} in {paths:#?}");
    }
    board.inside(["penstock", "plan", "--detailed-exitcode", model]).ended_with(0)?;
    let status = board.inside(["penstock", "status"]).stdout;
    assert!(status.contains("web/net0: uplink br0, vDPA device penstock-020000000101"), "{status}");

    // What goes on in the containers, and between one without a VLAN and the host, is ordinary traffic.
    assert!(pings(board, "web", "10.20.50.2"), "web does not reach db");
    assert!(pings(board, "log", "10.20.60.254"), "log does not reach the host");
    transfers(board)?;
    ports_are_measured(board)?;
    let spoofed = "ip link set net0 address 02:aa:aa:aa:aa:aa && ip neigh flush dev net0 && ! ping -q -c 2 -W 2 10.20.50.2";
    assert_eq!(within(board, "web", spoofed), 0, "a forged frame passed");
    let own = "ip link set net0 address 02:00:00:00:01:01 && ip neigh flush dev net0";
    assert_eq!(within(board, "web", own), 0);

    // A switch that dies is there again, and its container's interface with it.
    dies_and_is_there_again(board, "penstock-switch-web:net0.service", model)?;
    assert!(pings(board, "web", "10.20.50.2"), "web does not reach db by another switch");
    verified(board, model)?;

    // What the model changes is set while they run, and can be undone.
    let changed = format!("{model}.changed.yaml");
    shell(
        board,
        &format!("sed 's/vlan: 100, spoofchk: on, //' {model} >{changed} && ! cmp -s {model} {changed}"),
    )?;
    shell(
        board,
        &format!("sed -i 's/01:01\", /01:01\", vlan: 0, /' {changed} && grep -q 'vlan: 0' {changed}"),
    )?;
    board.inside(["penstock", "verify", &changed]).ended_with(1)?;
    board.inside(["penstock", "apply", &changed]).ended_with(0)?;
    let (_, paths) = verified(board, &changed)?;
    for line in ["pass web/net0 -> db/net0: isolated", "pass web/net0 -> log/net0: arrives"] {
        assert!(paths.contains(&line.to_owned()), "{line} in {paths:#?}");
    }
    board.inside(["penstock", "undo"]).ended_with(0)?;
    verified(board, model)?;

    // The way back takes everything along, and so does a stop.
    board.inside(["penstock", "undo"]).ended_with(0)?;
    assert_eq!(left(board)?, "", "an undo leaves something");
    board.inside(["penstock", "apply", model]).ended_with(0)?;
    verified(board, model)?;
    board.inside(["penstock", "stop", model]).ended_with(0)?;
    assert_eq!(left(board)?, "", "a stop leaves something");
    Ok(())
}
