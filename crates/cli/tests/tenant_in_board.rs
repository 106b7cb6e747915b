//! VMs that own an SR-IOV NIC, on a board: libvirt composes it, switches of the board carry its frames, and the VM makes VFs of it.
#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

use libtest_mimic::Failed;
use penstock_host::process::quoted;
use penstock_testkit::{
    board::{self, KeptBoard},
    json,
    trials::{self, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("a_vm_owns_a_nic_and_makes_its_vfs_in_board", || {
            board::with_a_vm("tenant", MODEL, "node-1", a_vm_owns_a_nic)
        }),
        ("a_vf_of_the_host_is_the_uplink_in_board", || {
            board::with_a_vm("uplink", UPLINK_VF, "node-1", a_vf_is_the_uplink)
        }),
        ("what_a_vm_sends_by_its_own_nic_is_measured_in_board", || {
            board::with_a_vm("tenant-measured", MODEL, "node-1", what_a_vm_sends_is_measured)
        }),
    ])
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
    ready_within: 600
    nics:
      net0:
        vfs: 2
        uplink: NET0
        mac: "02:00:00:00:01:00"
        allow: {vlan: 100-199}
        functions:
          0: {mac: "02:00:00:00:01:01", vlan: 0, spoofchk: on}
          1: {mac: "02:00:00:00:01:02", vlan: 100, max_tx_rate: 500, allow: {mac: ["02:00:00:00:01:22"]}}
board:
  cables: [[NET0, NET1]]
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

/// What became of frames between functions of the VM's NIC and others: outcome, the two, and what was seen.
fn frames(verified: &str) -> Result<Vec<String>, Failed> {
    let document: Value = json::read(verified)?;
    let all = document["verdicts"].as_array().ok_or_else(|| format!("no verdicts: {verified}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = all.iter().filter_map(|verdict| {
        let path = verdict["subject"].get("path")?;
        let (from, to) = (text(&path["from"]), text(&path["to"]));
        let ours = from.contains('/') || to.contains('/');
        ours.then(|| format!("{} {from} -> {to}: {}", text(&verdict["outcome"]), text(&verdict["seen"])))
    });
    Ok(lines.collect())
}

/// Runs a line of shell inside the VM by its agent; what it printed.
fn within(board: &KeptBoard, line: &str) -> Result<String, Failed> {
    let request = serde_json::json!({
        "execute": "guest-exec",
        "arguments": {"path": "/bin/sh", "arg": ["-c", line], "capture-output": true}
    });
    let request = quoted(&request.to_string());
    let script = format!(
        "ask() {{ virsh -q -c qemu:///system qemu-agent-command penstock-node-1 --timeout 60 -- \"$1\"; }}\n\
         pid=$(ask {request} | tr -dc 0-9)\n\
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

/// What `verify` says of a VLAN that the VM has set.
const SET: &str = "node-1/net0#0 vlan pass: 150, set from inside";

/// Says which VLAN the first frame of the VM's first VF is in that leaves by the uplink, within a minute.
const LISTENER: &str = r#"import socket, time
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sniffer.bind((INTERFACE, 0))
sniffer.settimeout(1)
end, seen = time.time() + 60, set()
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
            "cat >/tmp/listener.py <<'END'\n{listener}END\nnohup python3 /tmp/listener.py >/tmp/seen 2>&1 &"
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

/// Makes the VFs of the VM's NIC, sets them up, and tells their addresses.
const ENABLE: &str = "pf=$(ls -d /sys/class/net/net0/device/..) && cat $pf/sriov_totalvfs && echo 2 >$pf/sriov_numvfs && \
     for turn in 1 2 3 4 5 6 7 8 9 10; do [ -e $pf/virtfn1/virtio*/net ] && break; sleep 1; done; \
     for vf in 0 1; do cat $pf/virtfn$vf/virtio*/net/*/address; \
     ip link set $(ls $pf/virtfn$vf/virtio*/net) up; done";

/// A stream from inside the VM to the PF over the cable: by its PF, and by a VF once that is on. What was made for it is taken back.
fn what_a_vm_sends_is_measured(board: &KeptBoard) -> Outcome {
    let model = board.model();
    board.inside(["penstock", "apply", model]).ended_with(0)?;
    let measure = |run: &str, status: i32| -> Result<Vec<Value>, Failed> {
        let words =
            ["--quick", "--protocol=tcp-stream", "--path=PATHS", "--half-width=90%", "--time-limit=none"];
        let words = words.map(|word| word.replace("PATHS", PATHS));
        let run = format!("/root/{run}");
        let measured = board.inside(
            ["penstock", "measure", model, "--output", run.as_str()]
                .into_iter()
                .chain(words.iter().map(String::as_str)),
        );
        measured.ended_with(status)?;
        let read = board.inside(["cat", &format!("{run}/evidence.json")]);
        read.ended_with(0)?;
        let evidence: Value = serde_json::from_str(&read.stdout)?;
        Ok(evidence["measurements"]["cells"].as_array().cloned().unwrap_or_default())
    };
    let of = |cells: &[Value], path: &str| -> Value {
        let of_path = |cell: &&Value| cell["measurement"]["network"]["path"] == path && cell["null"] == false;
        cells.iter().find(of_path).map(|cell| cell["status"].clone()).unwrap_or_default()
    };
    // busybox' shell has an `ip` of its own.
    let traces = "ip=/usr/bin/ip; $ip netns list; $ip -o link | cut -d\\< -f1; $ip -4 -o address; $ip neigh show nud permanent; cat /proc/sys/net/ipv4/conf/*/forwarding";
    let before = within(board, traces)?;
    let cells = measure("off", 1)?;
    let why = of(&cells, "vm-vf")["missing"]["why"].to_string();
    assert!(why.contains("node-1/net0#0") && why.contains("sriov_numvfs"), "{why}");
    assert!(!of(&cells, "vm-pf")["measured"].is_null(), "{cells:#?}");
    assert_eq!(within(board, traces)?, before);

    within(board, ENABLE)?;
    let before = within(board, traces)?;
    let cells = measure("on", 0)?;
    for path in PATHS.split(',') {
        assert!(!of(&cells, path)["measured"].is_null(), "{path}: {:#?}", of(&cells, path));
    }
    assert_eq!(within(board, traces)?, before);
    Ok(())
}

/// The paths that are measured from inside the VM.
const PATHS: &str = "vm-vf,vm-pf";

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
    let again = board.shell(&format!(
        "kill -9 $(systemctl show -P MainPID {unit}) && sleep 6 && systemctl is-active {unit}"
    ));
    again.ended_with(0)?;
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    let lines = said(&verify.stdout)?;
    assert!(lines.contains(&SET.to_owned()), "{SET} in {lines:#?}");

    // What the VM has set lapses with the reset of its PF.
    board.vm_will_boot();
    let reset = board.shell(
        "virsh -q -c qemu:///system reset penstock-node-1; \
         for turn in $(seq 60); do penstock status --json | grep -q '\"set\"' || exit 0; sleep 1; done; exit 1",
    );
    reset.ended_with(0)?;
    let booted = board.shell(&format!(
        "for turn in $(seq 60); do penstock verify --quiet {model} >/dev/null 2>&1 && exit 0; sleep 2; done; penstock verify {model}"
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
    let again = board.shell(&format!(
        "kill -9 $(systemctl show -P MainPID {unit}) && sleep 6 && systemctl is-active {unit}"
    ));
    again.ended_with(0)?;
    board.inside(["penstock", "verify", &changed]).ended_with(0)?;
    board.inside(["penstock", "undo"]).ended_with(0)?;
    board.inside(["penstock", "verify", model]).ended_with(0)?;

    // A stop leaves nothing, and comes in the order of the plan.
    board.inside(["penstock", "stop", model]).ended_with(0)?;
    let left = board.shell(&format!(
        "systemctl is-active {unit}; systemctl is-active penstock-filters-node-1:net0.service; ls /run/penstock/guests/penstock-node-1 2>/dev/null; \
         virsh -q -c qemu:///system list --name --all"
    ));
    assert_eq!(left.stdout.trim(), "inactive\ninactive");
    Ok(())
}

/// The switch of a VM's NIC leads to a VF of the host in a VLAN. The VF's NIC is a virtio one, since VFs of an igb have no promiscuous
/// mode. Over a cable is a container with a VF in that VLAN and one in none.
const UPLINK_VF: &str = r#"machine: MACHINE
nics:
  NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}}
  NET1: {match: {mac: "0c:c4:7a:9a:61:eb"}, vfs: 3}
guests:
  far:
    functions: [NET1#0, {vf: NET1#1, vlan: 100}]
  node-1:
    kind: vm
    memory: 512MiB
    ready_within: 600
    nics:
      net0:
        vfs: 1
        uplink: {vf: NET0#1, trust: on, spoofchk: off, vlan: 100}
        mac: "02:00:00:00:01:00"
board:
  cables: [[NET0, NET1]]
"#;

/// What `verify` says of a function of the host: attribute, outcome and what was seen.
fn of_function(verified: &str, name: &str) -> Result<Vec<String>, Failed> {
    let document: Value = json::read(verified)?;
    let all = document["verdicts"].as_array().ok_or_else(|| format!("no verdicts: {verified}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = all.iter().filter(|verdict| verdict["subject"]["function"] == name);
    let line = |verdict: &Value| {
        let (outcome, seen) = (text(&verdict["outcome"]), text(&verdict["seen"]));
        format!("{} {outcome}: {seen}", text(&verdict["attribute"]))
    };
    Ok(of.map(line).collect())
}

/// The interface whose MAC address is ADDRESS hears frames to all, and those to FOREIGN that PF sends: says which came, and whether the
/// kernel has it promiscuous.
const PROMISCUOUS: &str = r#"import json, socket, subprocess, time
def named(address):
    for _, name in socket.if_nameindex():
        if open(f"/sys/class/net/{name}/address").read().strip() == address:
            return name
listener, sender = named("ADDRESS"), named("PF")
subprocess.run(["ip", "link", "set", listener, "up", "promisc", "on"], check=True)
detail = json.loads(subprocess.check_output(["ip", "-d", "-j", "link", "show", listener]))[0]
time.sleep(2)
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
ear.bind((listener, 0x88b5))
ear.settimeout(0.5)
mouth = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
mouth.bind((sender, 0))
source = bytes.fromhex("PF".replace(":", ""))
heard, end = set(), time.time() + 10
while time.time() < end:
    for target in ("ff:ff:ff:ff:ff:ff", "02:00:00:00:99:99"):
        mouth.send(bytes.fromhex(target.replace(":", "")) + source + b"\x88\xb5" + bytes(46))
    try:
        while True:
            heard.add("all" if ear.recv(2048)[:6] == b"\xff" * 6 else "foreign")
    except socket.timeout:
        pass
print(detail["promiscuity"], *sorted(heard))
"#;

fn a_vf_is_the_uplink(board: &KeptBoard) -> Outcome {
    let model = board.model();
    board.inside(["penstock", "check", model, "--here"]).ended_with(0)?;
    board.inside(["penstock", "apply", model]).ended_with(0)?;
    let verified = |status: i32| -> Result<String, Failed> {
        let verify = board.inside(["penstock", "verify", model, "--json"]);
        verify.ended_with(status)?;
        Ok(verify.stdout)
    };
    let holds = |verified: &str| -> Outcome {
        let lines = of_function(verified, "NET0#1")?;
        for line in [
            "up pass: up",
            "carrier pass: carrier",
            "promiscuous pass: on",
            "trust pass: on",
            "spoofchk pass: off",
            "vlan pass: 100",
        ] {
            assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
        }
        assert!(lines.iter().any(|line| line.starts_with("driver pass: virtio")), "{lines:#?}");
        let lines = said(verified)?;
        assert!(lines.contains(&"node-1/net0 uplink pass: NET0#1".to_owned()), "{lines:#?}");
        // Frames to and from an address that is none of the host's NIC, in the uplink's VLAN and in no other.
        let lines = frames(verified)?;
        for line in [
            "node-1/net0 -> NET1#1: arrives",
            "NET1#1 -> node-1/net0: arrives",
            "node-1/net0 -> NET1#0: isolated",
            "NET1#0 -> node-1/net0: isolated",
        ] {
            assert!(lines.contains(&format!("pass {line}")), "{line} in {lines:#?}");
        }
        Ok(())
    };
    holds(&verified(0)?)?;
    board.inside(["penstock", "plan", "--detailed-exitcode", model]).ended_with(0)?;

    // Nobody else takes it, and what is changed by hand is told and put right while the VM runs.
    let vf = "$(ls /sys/bus/pci/devices/0000:01:00.0/virtfn1/virtio*/net)";
    board.shell(&format!("ip link set {vf} down")).ended_with(0)?;
    let lines = of_function(&verified(1)?, "NET0#1")?;
    assert!(lines.contains(&"up fail: down".to_owned()), "{lines:#?}");
    board.inside(["penstock", "apply", model]).ended_with(0)?;
    holds(&verified(0)?)?;

    // An igb's VF is as promiscuous as the kernel has it, and gets no frame to another address than its own.
    let heard = PROMISCUOUS.replace("PF", "0c:c4:7a:9a:61:ea");
    let report = board.shell(&format!(
        "pf=$(grep -l 0c:c4:7a:9a:61:eb /sys/class/net/*/address | xargs dirname) && name=$(basename $pf) && \
         vf=$(ls $pf/device/virtfn2/net) && ip link set $name vf 2 trust on && ip link set $name vf 2 spoofchk off && \
         address=$(cat /sys/class/net/$vf/address) && cat >/tmp/heard.py <<'END'\n{heard}END\n\
         sed -i s/ADDRESS/$address/ /tmp/heard.py && python3 /tmp/heard.py"
    ));
    report.ended_with(0)?;
    assert_eq!(report.stdout.trim(), "1 all");

    // The VF stays the host's when the VM has gone, and is listened to no more.
    board.inside(["penstock", "stop", model]).ended_with(0)?;
    let left = board.shell(&format!("ip -d -j link show {vf} | tr ',' '\\n' | grep promiscuity"));
    assert_eq!(left.stdout.trim(), "\"promiscuity\":0");
    Ok(())
}
