//! VMs that own an SR-IOV NIC, on a board: libvirt composes it, switches of the board carry its frames, and the VM makes VFs of it.
#![allow(clippy::disallowed_methods)]

mod tenant;

use std::process::ExitCode;

use penstock_testkit::{
    board::{self, KeptBoard},
    json,
    trials::{self, Failed, Outcome},
};
use serde_json::Value;
use tenant::{ENABLE, dies_and_is_there_again, frames, said, until_it_holds, within};

fn main() -> ExitCode {
    trials::on_boards(&[("a_vm_owns_a_nic_makes_its_vfs_and_is_measured_in_board", || {
        board::with_a_vm("tenant", MODEL, "node-1", a_vm_owns_a_nic)
    })])
}

/// One VM that owns a NIC with two VFs, whose switch leads to the PF of an igb of the board; and over a cable a container with
/// a VF in each VLAN.
const MODEL: &str = r#"machine: MACHINE
nics:
  NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}}
  NET1: {match: {mac: "0c:c4:7a:9a:61:eb"}, vfs: 2}
guests:
  far:
    functions: [NET1#0, {vf: NET1#1, vlan: 100}]
  node-1:
    kind: vm
    memory: 512MiB
    huge_pages: 2MiB
    ready_within: 600
    nics:
      net0:
        vfs: 2
        queues: 2
        workers: 2
        uplink: NET0
        mac: "02:00:00:00:01:00"
        allow: {vlan: 100-199}
        functions:
          0: {mac: "02:00:00:00:01:01", vlan: 0, spoofchk: on}
          1: {mac: "02:00:00:00:01:02", vlan: 100, max_tx_rate: 500, allow: {mac: ["02:00:00:00:01:22"]}}
board:
  cables: [[NET0, NET1]]
"#;

/// What `verify` says of a VLAN that the VM has set.
const SET: &str = "node-1/net0#0 vlan pass: 150, set from inside";

/// Says which VLAN the first frame of the VM's first VF is in that leaves by the uplink. It waits as long as it may take until the VM has sent one,
/// and there is the file `/tmp/listens` as soon as it hears.
const LISTENER: &str = r#"import socket, time
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sniffer.bind((INTERFACE, 0))
sniffer.settimeout(1)
open("/tmp/listens", "w").close()
end, seen = time.time() + 600, set()
while time.time() < end and not seen:
    try:
        frame = sniffer.recv(2048)
    except socket.timeout:
        continue
    if frame[6:12] == bytes.fromhex("020000000101"):
        tagged = frame[12:14] == b"\x81\x00"
        seen.add(int.from_bytes(frame[14:16], "big") & 0xfff if tagged else 0)
print(sorted(seen))
"#;

/// The VM sets a VLAN over its line, as far as `allow` goes, and asks for an address by its device.
fn what_the_vm_asks_for(board: &KeptBoard) -> Outcome {
    let ask = |attributes: &str| {
        let request = format!(
            r#"{{"version": 1, "id": 1, "do": "set", "port": "node-1/net0#0", "attributes": {attributes}}}"#
        );
        within(
            board,
            &format!(
                "port=$(grep -l org.penstock.switch.02:00:00:00:01:00 /sys/class/virtio-ports/*/name) && \
                 exec 3<>/dev/$(basename ${{port%/name}}) && echo '{request}' >&3 && read answer <&3 && echo \"$answer\""
            ),
        )
    };
    assert_eq!(ask(r#"{"vlan": 150}"#)?, "{\"id\":1,\"ok\":null}\n");
    let refused = ask(r#"{"vlan": 200}"#)?;
    assert!(refused.contains("error") && refused.contains("100-199"), "{refused}");
    let status = |board: &KeptBoard| -> Result<Value, Failed> {
        let status = board.inside(["penstock", "status", "--json"]);
        status.ended_with(0)?;
        let document: Value = json::read(&status.stdout)?;
        Ok(document["guests"]["node-1"]["asked"].clone())
    };
    let told = board.inside(["penstock", "status"]).stdout;
    assert!(told.contains("node-1/net0: uplink NET0 (0000:01:00.0), 2 VFs"), "{told}");
    let asked = status(board)?;
    let vf = &asked["node-1/net0#0"];
    assert_eq!((&vf["set"]["vlan"], &vf["refused"]["vlan"]), (&Value::from(150), &Value::from(1)), "{asked}");
    let verify = board.inside(["penstock", "verify", board.model(), "--json"]);
    verify.ended_with(0)?;
    let lines = said(&verify.stdout)?;
    for line in
        [SET, "node-1/net0#0 allow pass: vlan 100-199", "node-1/net0#1 allow pass: mac 02:00:00:00:01:22"]
    {
        assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
    }

    // No plan takes it back.
    board.inside(["penstock", "plan", "--detailed-exitcode", board.model()]).ended_with(0)?;

    // Frames leave in that VLAN.
    let listener = LISTENER.replace(
        "INTERFACE",
        "next(name for _, name in socket.if_nameindex() if open(f'/sys/class/net/{name}/address').read().strip() == '0c:c4:7a:9a:61:ea')",
    );
    board
        .shell(&format!(
            "cat >/tmp/listener.py <<'END'\n{listener}END\nnohup python3 /tmp/listener.py >/tmp/seen 2>&1 & \
             for turn in $(seq 120); do [ -e /tmp/listens ] && exit 0; sleep 0.5; done; cat /tmp/seen; exit 1"
        ))
        .ended_with(0)?;
    within(
        board,
        "pf=/sys/class/net/net0/device/.. && vf=$(ls $pf/virtfn0/virtio*/net) && \
         ip link set $vf down && ip address replace 10.9.0.1/24 dev $vf && ip link set $vf up && \
         ping -c 5 -W 1 10.9.0.2; true",
    )?;
    let seen =
        board.shell("for turn in $(seq 60); do [ -s /tmp/seen ] && break; sleep 1; done; cat /tmp/seen");
    assert_eq!(seen.stdout.trim(), "[150]");

    // What a device is asked for is heard, too: an address that is not allowed, and one that is.
    let address = |mac: &str| {
        within(
            board,
            &format!(
                "pf=/sys/class/net/net0/device/.. && vf=$(ls $pf/virtfn1/virtio*/net) && \
                 ip link set $vf down && ip link set $vf address {mac} && ip link set $vf up"
            ),
        )
    };
    let heard = |wanted: bool| -> Outcome {
        for _ in 0..40 {
            let asked = status(board)?;
            let ungranted = asked["node-1/net0#1"]["ungranted"].to_string();
            if ungranted.contains("02:00:00:00:01:33") == wanted {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        Err(format!("its address is {}: {}", if wanted { "not refused" } else { "refused" }, status(board)?)
            .into())
    };
    address("02:00:00:00:01:33")?;
    heard(true)?;
    address("02:00:00:00:01:22")?;
    heard(false)?;
    let asked = status(board)?;
    assert_eq!(asked["node-1/net0#1"]["refused"]["mac"], 1, "{asked}");
    address("02:00:00:00:01:02")?;
    Ok(())
}

/// All that measuring could leave in the VM. busybox' shell has an `ip` of its own.
const TRACES: &str = "ip=/usr/bin/ip; $ip netns list; $ip -o link | cut -d\\< -f1; $ip -4 -o address; $ip neigh show nud permanent; \
    cat /proc/sys/net/ipv4/conf/*/forwarding";

/// The cells of a measurement of these paths from inside the VM. With the fewest samples that give an interval: a machine with others on it
/// is never quiet enough for a narrow one. It ends when it has them, however long that takes.
fn measured(board: &KeptBoard, run: &str, paths: &str, status: i32) -> Result<Vec<Value>, Failed> {
    let (output, paths) = (format!("/root/{run}"), format!("--path={paths}"));
    let words = ["--quick", "--protocol=tcp-stream", "--samples=6", "--time-limit=none"];
    let measure = ["penstock", "measure", board.model(), "--output", &output, &paths];
    board.inside(measure.into_iter().chain(words)).ended_with(status)?;
    let read = board.inside(["cat", &format!("{output}/evidence.json")]);
    read.ended_with(0)?;
    let evidence: Value = serde_json::from_str(&read.stdout)?;
    Ok(evidence["measurements"]["cells"].as_array().cloned().unwrap_or_default())
}

/// What became of a path in these cells.
fn status_of(cells: &[Value], path: &str) -> Value {
    let of_path = |cell: &&Value| cell["measurement"]["network"]["path"] == path && cell["null"] == false;
    cells.iter().find(of_path).map(|cell| cell["status"].clone()).unwrap_or_default()
}

/// A stream from inside the VM to the PF over the cable, by its PF, while its VFs are off. What was made for it is taken back.
fn what_its_pf_sends_is_measured(board: &KeptBoard) -> Outcome {
    let before = within(board, TRACES)?;
    let cells = measured(board, "off", "vm-vf,vm-pf", 1)?;
    let why = status_of(&cells, "vm-vf")["missing"]["why"].to_string();
    assert!(why.contains("node-1/net0#0") && why.contains("sriov_numvfs"), "{why}");
    assert!(!status_of(&cells, "vm-pf")["measured"].is_null(), "{cells:#?}");
    assert_eq!(within(board, TRACES)?, before);
    Ok(())
}

/// The same by a VF that is on, beside what goes through a bridge in the VM.
fn what_its_vf_sends_is_measured(board: &KeptBoard) -> Outcome {
    within(board, ENABLE)?;
    let before = within(board, TRACES)?;
    let cells = measured(board, "on", "vm-vf,vm-bridge-nat", 0)?;
    for path in ["vm-vf", "vm-bridge-nat"] {
        let status = status_of(&cells, path);
        assert!(!status["measured"].is_null(), "{path}: {status:#?}");
        // What it takes of the VM's CPUs and of the host's, of which the VM's are a part.
        let summaries = status["measured"]["summaries"].as_array().cloned().unwrap_or_default();
        for metric in ["guest_cpu_per_gbit", "host_cpu_per_gbit"] {
            let summary = summaries.iter().find(|summary| summary["metric"] == metric);
            assert!(
                summary.and_then(|summary| summary["median"].as_f64()) > Some(0.0),
                "{path} {metric}: {summaries:#?}"
            );
        }
    }
    assert_eq!(within(board, TRACES)?, before);
    // The others are measured in namespaces (`network_in_netns` of penstock-measure); the VM's kernel has what they are made of.
    let made = "for kind in macvlan ipvlan; do ip link add link net0 name made type $kind && ip link del made || exit; done";
    within(board, made)?;
    Ok(())
}

fn a_vm_owns_a_nic(board: &KeptBoard) -> Outcome {
    let model = board.model();
    board.inside(["penstock", "check", model, "--here"]).ended_with(0)?;
    let plan = board.inside(["penstock", "plan", model]);
    plan.ended_with(0)?;
    let told = plan.stdout + &plan.stderr;
    for line in [
        "custom-device",
        "custom-monitor",
        "node-1 may set by itself at node-1/net0, node-1/net0#0: vlan 100-199",
    ] {
        assert!(told.contains(line), "{line} is said: {told}");
    }
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
    // Of VFs that are off nothing is said; the PF reaches over the uplink and the cable.
    let lines = frames(&verify.stdout)?;
    for line in
        ["node-1/net0 -> NET1: arrives", "NET1#0 -> node-1/net0: arrives", "NET1#1 -> node-1/net0: isolated"]
    {
        assert!(lines.contains(&format!("pass {line}")), "{line} in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("node-1/net0#")), "{lines:#?}");

    what_its_pf_sends_is_measured(board)?;

    // The VM makes them by the kernel's own file, and each has the address of the model.
    let seen = within(board, ENABLE)?;
    assert_eq!(seen, "2\n02:00:00:00:01:01\n02:00:00:00:01:02\n");
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    let lines = said(&verify.stdout)?;
    for line in ["node-1/net0#0 state pass: ready", "node-1/net0#1 state pass: ready"] {
        assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
    }
    // Each VF reaches, both ways, what is in its VLAN, in the VM, on the host and over the cable; and nothing else.
    let lines = frames(&verify.stdout)?;
    let names = ["node-1/net0", "node-1/net0#0", "node-1/net0#1", "NET1", "NET1#0", "NET1#1"];
    for (at, from) in names.iter().enumerate() {
        for (other, to) in
            names.iter().enumerate().filter(|(other, _)| *other != at && (at < 3 || *other < 3))
        {
            // A PF may take the frames of a VLAN or not.
            if [(2, 3), (3, 2)].contains(&(at, other)) {
                continue;
            }
            let tagged = [at, other].map(|at| at == 2 || at == 5);
            let seen = if tagged[0] == tagged[1] { "arrives" } else { "isolated" };
            let line = format!("pass {from} -> {to}: {seen}");
            assert!(lines.contains(&line), "{line} in {lines:#?}");
        }
    }

    what_the_vm_asks_for(board)?;

    // A switch that dies is there again, with what was set, and QEMU with it.
    let unit = "penstock-switch-node-1:net0.service";
    dies_and_is_there_again(board, unit, model)?;
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    let lines = said(&verify.stdout)?;
    assert!(lines.contains(&SET.to_owned()), "{SET} in {lines:#?}");

    // What the VM has set lapses with the reset of its PF.
    let boots_then = board.boots_of("node-1") + 1;
    let reset = board.shell(
        "virsh -q -c qemu:///system reset penstock-node-1; \
         for turn in $(seq 60); do penstock status --json | grep -q '\"set\"' || exit 0; sleep 1; done; exit 1",
    );
    reset.ended_with(0)?;
    // Its agent is asked first, and nobody before it has said that it is ready: verification, and each question, takes the time of an emulated
    // processor that the VM boots with.
    let booted = board.shell(&format!(
        "said() {{ grep -c 'penstock-guest: ready' /run/penstock/guests/penstock-node-1/console.log; }}; \
         for turn in $(seq 300); do [ $(said) -ge {boots_then} ] && break; sleep 1; done; \
         ping='{{\"execute\":\"guest-ping\"}}'; \
         for turn in $(seq 300); do virsh -q -c qemu:///system qemu-agent-command penstock-node-1 \"$ping\" >/dev/null 2>&1 && break; sleep 1; done; \
         {}",
        until_it_holds(model)
    ));
    booted.ended_with(0)?;

    // A change of the model is in force at once, survives the switch, and can be undone.
    let changed = format!("{model}.changed.yaml");
    let edited = board.shell(&format!(
        "sed 's/vlan: 100, max_tx_rate: 500/vlan: 200, spoofchk: on, max_tx_rate: 500/' {model} >{changed} && grep 'vlan: 200' {changed}"
    ));
    edited.ended_with(0)?;
    board.inside(["penstock", "verify", &changed]).ended_with(1)?;
    let applied = board.inside(["penstock", "apply", &changed]);
    applied.ended_with(0)?;
    board.inside(["penstock", "verify", &changed]).ended_with(0)?;
    dies_and_is_there_again(board, unit, &changed)?;
    board.inside(["penstock", "verify", &changed]).ended_with(0)?;
    board.inside(["penstock", "undo"]).ended_with(0)?;
    board.inside(["penstock", "verify", model]).ended_with(0)?;

    what_its_vf_sends_is_measured(board)?;

    // A stop leaves nothing, and comes in the order of the plan.
    board.inside(["penstock", "stop", model]).ended_with(0)?;
    let left = board.shell(&format!(
        "systemctl is-active {unit}; systemctl is-active penstock-filters-node-1:net0.service; ls /run/penstock/guests/penstock-node-1 2>/dev/null; \
         virsh -q -c qemu:///system list --name --all"
    ));
    assert_eq!(left.stdout.trim(), "inactive\ninactive");
    Ok(())
}
