//! Ports of the embedded switch as vDPA devices of the machine's own kernel (VDUSE): network interfaces for the machine and for what
//! runs on it, without a NIC that has SR-IOV.
#![allow(clippy::disallowed_methods)]

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use penstock_testkit::{
    binary,
    board::{KeptBoard, own_name},
    needs,
    trials::{Failed, Outcome, Test, Trials},
};
use serde_json::Value;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", needs::board);
    let tests: [(&str, Test); 1] = [("ports_are_interfaces_of_the_machine_in_board", ports_are_interfaces)];
    trials.add(&missing, tests);
    trials.run()
}

const MODEL: &str = r#"machine: MACHINE
nics:
  NET0: {vfs: 1}
"#;

const PORTS: &str = r#"{"version": 1, "ports": {
  "a": {"vduse": {"name": "pena"}, "mac": "02:00:00:00:00:01", "spoofchk": true},
  "b": {"vduse": {"name": "penb"}, "mac": "02:00:00:00:00:02"},
  "c": {"vduse": {"name": "penc"}, "mac": "02:00:00:00:00:03", "vlan": 7}}}"#;

const FEWER: &str = r#"{"version": 1, "ports": {
  "a": {"vduse": {"name": "pena"}, "mac": "02:00:00:00:00:01", "spoofchk": true},
  "b": {"vduse": {"name": "penb"}, "mac": "02:00:00:00:00:02"}}}"#;

/// Says what it has received, or sent, as a digest: `HOST` to send 24 MiB to, or nothing.
const TRANSFER: &str = r#"
import hashlib, random, socket, sys
digest = hashlib.sha256()
if len(sys.argv) > 1:
    data, chunks = random.Random(1).randbytes(1 << 20), 24
    end = socket.create_connection((sys.argv[1], 5001), timeout=240)
    for chunk in range(chunks):
        data = data[1:] + bytes([chunk])
        digest.update(data)
        end.sendall(data)
    end.shutdown(socket.SHUT_WR)
    end.recv(1)
else:
    listener = socket.create_server(("", 5001))
    open("/root/listens", "w").close()
    listener.settimeout(240)
    end, _ = listener.accept()
    end.settimeout(240)
    while part := end.recv(1 << 16):
        digest.update(part)
print(digest.hexdigest())
"#;

/// Within this time all comes true on a board that shares its processors with others.
const TIMEOUT: Duration = Duration::from_secs(240);

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        if Instant::now() > deadline {
            return Err(format!("not within {TIMEOUT:?}: {what}").into());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn shell(board: &KeptBoard, line: &str) -> Result<String, Failed> {
    let run = board.shell(line);
    run.ended_with(0)?;
    Ok(run.stdout)
}

fn start(board: &KeptBoard) -> Outcome {
    shell(
        board,
        "setsid /root/penstock-switch run /root/switch.json --control /run/switch.ctl >>/root/switch.log 2>&1 </dev/null &",
    )?;
    until("all ports have their drivers", || {
        let Ok(all) = get(board) else { return false };
        all.as_object().is_some_and(|all| all.values().all(|port| port["connected"] == true))
    })
}

fn get(board: &KeptBoard) -> Result<Value, Failed> {
    let all: Value =
        serde_json::from_str(&shell(board, "/root/penstock-switch ctl /run/switch.ctl get --json")?)?;
    Ok(all["ports"].clone())
}

fn set(board: &KeptBoard, port: &str, attribute: &str) -> Result<String, Failed> {
    shell(board, &format!("/root/penstock-switch ctl /run/switch.ctl set {port} {attribute}"))
}

fn pings(board: &KeptBoard, from: &str, to: u8) -> bool {
    board.shell(&format!("ip netns exec {from} ping -q -c 2 -i 0.3 -W 2 10.20.50.{to}")).status == 0
}

fn carrier_is(board: &KeptBoard, up: u8) -> bool {
    shell(board, "ip netns exec a cat /sys/class/net/eth/carrier")
        .is_ok_and(|seen| seen.trim() == up.to_string())
}

/// Sends 24 MiB from one to the other, with `meanwhile` done in the middle of that; both sides saw the same.
fn transfer(
    board: &KeptBoard,
    from: &str,
    to: &str,
    host: u8,
    meanwhile: impl FnOnce() -> Outcome,
) -> Outcome {
    let begin = format!(
        "rm -f /root/sent /root/received /root/listens; \
         (ip netns exec {to} python3 /root/transfer.py >/root/received 2>&1 </dev/null &); \
         for try in $(seq 300); do [ -e /root/listens ] && break; sleep 0.2; done; \
         (ip netns exec {from} python3 /root/transfer.py 10.20.50.{host} >/root/sent 2>&1 </dev/null &)"
    );
    shell(board, &begin)?;
    meanwhile()?;
    let digests = || shell(board, "cat /root/sent; echo; cat /root/received").unwrap_or_default();
    until("both sides have ended", || digests().split_whitespace().count() >= 2)?;
    let said = digests();
    let both: Vec<&str> = said.split_whitespace().collect();
    assert!(matches!(both[..], [sent, received] if sent == received && sent.len() == 64), "{said}");
    Ok(())
}

fn ports_are_interfaces() -> Outcome {
    let name = own_name("vduse");
    let board = KeptBoard::up(&name, &MODEL.replace("MACHINE", &name))?;
    let program = binary::path().ok_or("there is no binary")?.with_file_name("penstock-switch");
    board
        .shell_with("cat > /root/penstock-switch && chmod +x /root/penstock-switch", &program)
        .ended_with(0)?;
    for (path, text) in
        [("/root/switch.json", PORTS), ("/root/fewer.json", FEWER), ("/root/transfer.py", TRANSFER)]
    {
        board.write(path, text).ended_with(0)?;
    }

    let refused = board.shell("/root/penstock-switch run /root/switch.json");
    refused.ended_with(1)?;
    assert!(refused.stderr.contains("modprobe vduse"), "{}", refused.stderr);

    shell(&board, "modprobe -a vduse virtio_vdpa")?;
    start(&board)?;
    for (number, port) in (1..).zip(["a", "b", "c"]) {
        let line = format!(
            "ip netns add {port} && interface=$(basename /sys/bus/vdpa/devices/pen{port}/virtio*/net/*) && \
             grep -q 02:00:00:00:00:0{number} /sys/class/net/$interface/address && \
             ip link set $interface netns {port} name eth && \
             ip -n {port} addr add 10.20.50.{number}/24 dev eth && ip -n {port} link set eth up"
        );
        shell(&board, &line)?;
    }
    until("a reaches b", || pings(&board, "a", 2))?;
    until("b reaches a", || pings(&board, "b", 1))?;
    transfer(&board, "a", "b", 2, || Ok(()))?;
    transfer(&board, "b", "a", 1, || Ok(()))?;

    assert!(!pings(&board, "a", 3), "a frame came from one VLAN into another");
    set(&board, "c", "vlan=0")?;
    // A kernel that asks for an address asks once a second.
    until("a reaches c in its VLAN", || pings(&board, "a", 3))?;

    shell(&board, "ip -n a link set eth address 02:aa:aa:aa:aa:aa && ip -n a neigh flush all")?;
    assert!(!pings(&board, "a", 2), "a forged frame passed");
    let dropped = get(&board)?["a"]["counters"]["dropped_sent"]["spoofed_mac"].as_u64();
    assert!(dropped.is_some_and(|count| count > 0), "{dropped:?}");
    shell(&board, "ip -n a link set eth address 02:00:00:00:00:01 && ip -n a neigh flush all")?;
    until("a reaches b with its own address", || pings(&board, "a", 2))?;

    set(&board, "a", "link_state=disable")?;
    until("its driver sees a link that is down", || carrier_is(&board, 0))?;
    set(&board, "a", "link_state=auto")?;
    until("its driver sees the link again", || carrier_is(&board, 1))?;

    // An interface that goes down has its device reset by nobody; one that is given to its driver anew has.
    let rebind = "device=$(basename /sys/bus/vdpa/devices/penc/virtio*) && cd /sys/bus/virtio/drivers/virtio_net && \
         echo $device >unbind && echo $device >bind";
    shell(&board, rebind)?;
    let address = "interface=$(basename /sys/bus/vdpa/devices/penc/virtio*/net/*) && ip link set $interface netns c name eth && \
         ip -n c addr add 10.20.50.3/24 dev eth && ip -n c link set eth up";
    shell(&board, address)?;
    until("a reaches c after its driver was bound anew", || pings(&board, "a", 3))?;

    // A switch that is killed in the middle of a transfer, whose rings the next one goes on with.
    transfer(&board, "a", "b", 2, || {
        shell(&board, "pkill -KILL -x penstock-switch; sleep 0.5")?;
        start(&board)
    })?;
    assert!(!pings(&board, "a", 3), "its configuration has c in a VLAN of its own");
    set(&board, "c", "vlan=0")?;
    until("a reaches c at another switch", || pings(&board, "a", 3))?;
    until("b reaches a at another switch", || pings(&board, "b", 1))?;

    shell(&board, "/root/penstock-switch ctl /run/switch.ctl reload /root/fewer.json")?;
    let devices = || shell(&board, "vdpa dev show; ls /dev/vduse");
    let said = devices()?;
    assert!(said.contains("pena") && !said.contains("penc"), "{said}");
    assert!(pings(&board, "a", 2), "a port that stays was touched");
    shell(&board, "pkill -TERM -x penstock-switch")?;
    until("the switch has ended", || board.shell("pgrep -x penstock-switch").status != 0)?;
    assert_eq!(devices()?.trim(), "control", "something was left");
    assert_eq!(shell(&board, "cat /root/switch.log")?, "");
    Ok(())
}
