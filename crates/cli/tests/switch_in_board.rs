//! A board's virtio NIC is at an embedded switch: what a model asks of it really holds there, as tools show that are not ours, and
//! what somebody changes behind Penstock's back is found.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    process::{ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_testkit::{
    binary,
    board::{KeptBoard, own_name},
    json, needs,
    trials::{Failed, Outcome, Test, Trials},
};
use serde_json::Value;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", needs::board);
    let tests: [(&str, Test); 2] = [
        ("what_a_model_asks_of_an_embedded_switch_holds_in_board", what_a_model_asks_holds),
        ("a_board_that_is_broken_off_leaves_no_switch_in_board", broken_off),
    ];
    trials.add(&missing, tests);
    trials.run()
}

const EXAMPLE: &str = include_str!("../../../examples/embedded-switch.yaml");
const NET0: &str = "0c:c4:7a:9a:61:ea";
const FORGED: &str = "02:aa:aa:aa:aa:aa";
const OTHER: &str = "02:bb:bb:bb:bb:bb";

/// Runs a line of shell inside a guest; what it printed, and whether it held.
fn within(board: &KeptBoard, guest: &str, line: &str) -> (bool, String) {
    let attach = ["lxc-attach", "-P", "/run/penstock/guests", "-n"];
    let name = format!("penstock-{guest}");
    let run = board.inside(attach.iter().copied().chain([name.as_str(), "--", "sh", "-c", line]));
    (run.status == 0, run.stdout + &run.stderr)
}

fn pings(board: &KeptBoard, from: &str, to: u8) -> bool {
    within(board, from, &format!("ping -q -c 3 -i 0.3 -W 2 10.20.40.{to}")).0
}

/// Whether a guest's driver comes to see its link so: QEMU is told a moment after the switch.
fn carrier_is(board: &KeptBoard, guest: &str, up: bool) -> bool {
    let wanted = u8::from(up);
    let look = format!(
        "for turn in $(seq 50); do [ \"$(cat /sys/class/net/eth0/carrier)\" = {wanted} ] && exit 0; sleep 0.2; done; exit 1"
    );
    within(board, guest, &look).0
}

/// Tells NET0's switch something without Penstock: over its line, as anybody in the board can who is root.
fn tell(board: &KeptBoard, request: &str) -> Result<Value, Failed> {
    let line = format!(
        "port=$(basename $(dirname $(grep -l {NET0} /sys/class/virtio-ports/*/name))); \
         exec 3<>/dev/$port && echo '{request}' >&3 && timeout 30 head -n 1 <&3"
    );
    let told = board.shell(&line);
    told.ended_with(0)?;
    let answer: Value = serde_json::from_str(&told.stdout)?;
    if answer["ok"].is_null() && answer.get("error").is_some() {
        return Err(format!("the switch refused {request}: {answer}").into());
    }
    Ok(answer["ok"].clone())
}

fn set(board: &KeptBoard, port: &str, attributes: &str) -> Result<Value, Failed> {
    let request = format!(r#"{{"version":1,"do":"set","port":"{port}","attributes":{attributes}}}"#);
    tell(board, &request)
}

/// Whether `limited` comes to see a forged address of `checked`.
fn forgery_passes(board: &KeptBoard) -> Result<bool, Failed> {
    within(board, "limited", "ip neigh flush all");
    let forge = format!(
        "own=$(cat /sys/class/net/eth0/address); ip link set eth0 address {FORGED}; ip neigh flush all; \
         ping -q -c 2 -i 0.3 -W 1 10.20.40.2; ip link set eth0 address $own; ip neigh flush all"
    );
    within(board, "checked", &forge);
    let (held, seen) = within(board, "limited", "ip neigh show");
    if held { Ok(seen.contains(FORGED)) } else { Err(seen.into()) }
}

/// Mbit/s that arrive at the other end of the cable of what `limited` sends; `more` is what else iperf3 is told.
fn rate(board: &KeptBoard, more: &str) -> Result<f64, Failed> {
    // Port 5201, in the state in which it listens (`net/tcp_states.h`).
    let serve = "iperf3 -s -1 -D; for try in $(seq 100); do grep -q ':1451 .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.1; done; exit 1";
    let (serves, said) = within(board, "across", serve);
    if !serves {
        return Err(format!("iperf3 does not listen: {said}").into());
    }
    let (held, said) = within(board, "limited", &format!("iperf3 -c 10.20.40.5 -t 4 -O 1 -J {more}"));
    let report: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
    let arrived = report["end"]["sum_received"]["bits_per_second"].as_f64();
    match arrived.filter(|_| held) {
        Some(arrived) => Ok(arrived / 1e6),
        None => Err(said.into()),
    }
}

/// What frames show of an attribute, beside what the switch says of it: the function, the outcome, and what was seen.
fn shown(verified: &Value, attribute: &str) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (verified["verdicts"].as_array().into_iter().flatten())
        .filter(|verdict| verdict["attribute"] == attribute && text(&verdict["wanted"]).contains("arrive"))
        .map(|verdict| {
            (text(&verdict["subject"]["function"]), text(&verdict["outcome"]), text(&verdict["seen"]))
        })
        .collect()
}

/// Frames of `verify` show the same as tools that are not ours: a spoof check and a rate that hold, or do not. A machine that
/// is too busy to reach the rate says so.
fn frames_show(verified: &Value, hold: bool) {
    let outcome = if hold { "pass" } else { "fail" };
    for (attribute, of) in [("spoofchk", "NET0#0"), ("max_tx_rate", "NET0#1")] {
        let shown = shown(verified, attribute);
        let busy = |said: &str| hold && said.contains("the limit was not reached");
        assert!(
            matches!(&shown[..], [(function, told, said)] if function == of && (told == outcome || busy(said))),
            "{attribute} is to {outcome}: {shown:?}"
        );
    }
}

/// Whether it holds in the end.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
    }
    true
}

/// The processes of the board that are switches.
fn switches(board: &str) -> Vec<(i32, String)> {
    let is_one = |line: &str| line.contains("embedded-switch") && !line.contains("--again");
    processes(board).into_iter().filter(|(_, line)| is_one(line)).collect()
}

/// Processes that run in the board's directory on this machine, with their command lines: QEMU, the switches, and those that
/// start these anew. One that was killed has no command line any more while the kernel clears it away, and runs no more.
fn processes(board: &str) -> Vec<(i32, String)> {
    let all = fs::read_dir("/proc").expect("there is /proc").flatten();
    let is_its = |entry: &fs::DirEntry| {
        let directory = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        directory.to_string_lossy().contains(&format!("/{board}"))
    };
    let line = |entry: fs::DirEntry| {
        let process = entry.file_name().to_string_lossy().parse().ok()?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?.replace('\0', " ");
        (!line.is_empty()).then_some((process, line))
    };
    all.filter(is_its).filter_map(line).collect()
}

fn what_a_model_asks_holds() -> Outcome {
    let name = own_name("switch");
    let board =
        KeptBoard::up(&name, &EXAMPLE.replace("machine: embedded-switch", &format!("machine: {name}")))?;
    assert_eq!(switches(&name).len(), 2);
    let configuration = || -> Result<Value, Failed> {
        let mut all = tell(&board, r#"{"version":1,"do":"get"}"#)?;
        let ports = all["ports"].as_object_mut().ok_or("no ports")?;
        ports.values_mut().for_each(|port| *port = port["settings"].take());
        Ok(all)
    };
    let penstock = |words: &[&str]| board.inside(["penstock"].iter().chain(words));

    let applied = penstock(&["apply", board.model()]);
    applied.ended_with(0)?;
    assert!(!applied.stderr.contains("cannot set"), "{}", applied.stderr);
    let verified = penstock(&["verify", "--json", "--load", board.model()]);
    verified.ended_with(0)?;
    frames_show(&json::read(&verified.stdout)?, true);
    let again = penstock(&["apply", board.model()]);
    assert!(again.stderr.contains("Nothing to do"), "{}", again.stderr);

    // VLANs, and a link that is down.
    assert!(until(|| pings(&board, "checked", 2)));
    assert!(!pings(&board, "checked", 3), "a frame came from one VLAN into another");
    assert!(!pings(&board, "checked", 4), "a frame passed a link that is down");
    assert!(carrier_is(&board, "unplugged", false), "its own driver does not see it");
    set(&board, "NET0#3", r#"{"link_state":"enable"}"#)?;
    assert!(carrier_is(&board, "unplugged", true));
    assert!(until(|| pings(&board, "checked", 4)), "the link was what kept it");
    set(&board, "NET0#2", r#"{"vlan":100}"#)?;
    assert!(until(|| pings(&board, "checked", 3)), "the VLAN was what kept it");

    // The cable.
    assert!(until(|| pings(&board, "checked", 5)), "nothing crosses the cable");
    tell(&board, r#"{"version":1,"do":"loopback","on":false}"#)?;
    assert!(!pings(&board, "checked", 2), "a frame stayed inside without loopback");
    assert!(until(|| pings(&board, "checked", 5)), "without loopback the cable is where all goes");
    tell(&board, r#"{"version":1,"do":"loopback","on":true}"#)?;
    set(&board, "NET0 uplink", r#"{"link_state":"disable"}"#)?;
    assert!(carrier_is(&board, "across", false), "the other end sees that the cable is out");
    set(&board, "NET0 uplink", r#"{"link_state":"auto"}"#)?;
    assert!(carrier_is(&board, "across", true));

    // A forged address.
    assert!(!forgery_passes(&board)?, "a forged frame passed");
    set(&board, "NET0#0", r#"{"spoofchk":false}"#)?;
    assert!(until(|| forgery_passes(&board).unwrap_or(false)), "the check was what kept it");

    // An address that a guest gives its interface itself is its port's as far as it may be, which QEMU tells the switch.
    let inside = || -> Result<Value, Failed> {
        Ok(tell(&board, r#"{"version":1,"do":"get"}"#)?["ports"]["NET0#0"]["inside"].clone())
    };
    set(&board, "NET0#0", r#"{"spoofchk":true}"#)?;
    let (done, own) = within(&board, "checked", "cat /sys/class/net/eth0/address");
    assert!(done && within(&board, "checked", &format!("ip link set eth0 address {OTHER}")).0);
    let refused =
        |told: &Value| told["ungranted"].to_string().contains(OTHER) && told["refused"]["mac"].is_u64();
    assert!(until(|| inside().is_ok_and(|told| refused(&told))), "{}", inside()?);
    within(&board, "limited", "ip neigh flush all");
    assert!(!pings(&board, "checked", 2), "frames from an address that was refused passed");
    set(&board, "NET0#0", r#"{"trust":true}"#)?;
    assert_eq!(inside()?["granted"]["macs"], serde_json::json!([OTHER]));
    assert!(
        until(|| pings(&board, "checked", 2)),
        "frames do not come from and to an address that was granted"
    );
    assert!(within(&board, "checked", &format!("ip link set eth0 address {}", own.trim())).0);
    assert!(until(|| inside().is_ok_and(|told| told["granted"].is_null())), "{}", inside()?);
    within(&board, "limited", "ip neigh flush all");
    set(&board, "NET0#0", r#"{"spoofchk":false,"trust":false}"#)?;

    // A rate.
    // What waits at the receiver when it begins to count, unread on a busy machine, counts as come in since: so little waits.
    let limited = rate(&board, "-w 128K")?;
    assert!(limited < 21.0, "{limited} Mbit/s of 20 arrived");
    set(&board, "NET0#1", r#"{"max_tx_rate":0}"#)?;
    let mut free = limited;
    let faster = until(|| {
        free = rate(&board, "-w 128K").unwrap_or(free);
        free > limited * 1.5
    });
    assert!(faster, "{limited} Mbit/s arrive with a limit of 20, {free} without");

    // What was changed behind its back is found, put right, and in the end taken back.
    // On a busy machine less than the limit may be sent, and then it cannot be told: it is asked again.
    let (mut verdicts, mut missing) = (Value::Null, Vec::new());
    for _ in 0..5 {
        let verified = penstock(&["verify", "--json", "--load", board.model()]);
        verified.ended_with(1)?;
        verdicts = json::read(&verified.stdout)?;
        let failed: Vec<&str> = (verdicts["verdicts"].as_array().into_iter().flatten())
            .filter(|verdict| verdict["outcome"] == "fail")
            .filter_map(|verdict| verdict["attribute"].as_str())
            .collect();
        missing = vec!["link_state", "vlan", "spoofchk", "max_tx_rate"];
        missing.retain(|attribute| !failed.contains(attribute));
        if missing != ["max_tx_rate"] {
            break;
        }
    }
    assert_eq!(missing, Vec::<&str>::new(), "verified without a failure");
    frames_show(&verdicts, false);
    let changed = configuration()?;
    penstock(&["apply", board.model()]).ended_with(0)?;
    assert!(!pings(&board, "checked", 3) && !pings(&board, "checked", 4));
    penstock(&["verify", board.model()]).ended_with(0)?;

    // A switch that dies is there again, and does what it was told.
    let state = configuration()?;
    for (process, _) in switches(&name) {
        kill(Pid::from_raw(process), Signal::SIGKILL)?;
    }
    assert!(until(|| pings(&board, "checked", 5)), "no frame crosses new switches");
    assert_eq!(configuration()?, state);
    assert!(!pings(&board, "checked", 3) && !pings(&board, "checked", 4));
    assert!(carrier_is(&board, "unplugged", false));
    penstock(&["verify", board.model()]).ended_with(0)?;

    // What the last apply changed is taken back.
    penstock(&["undo"]).ended_with(0)?;
    assert_eq!(configuration()?, changed);

    // What was set over the line lapses when the PF's driver is unbound.
    let vlan = || configuration().map(|all| all["ports"]["NET0#2"]["vlan"].clone());
    assert_eq!(vlan()?, 100);
    let rebind = format!(
        "pf=$(dirname $(grep -l {NET0} /sys/class/net/*/address | head -n 1)); device=$(basename $(readlink -f $pf/device)); \
         cd /sys/bus/virtio/drivers/virtio_net && echo $device >unbind && echo $device >bind"
    );
    board.shell(&rebind).ended_with(0)?;
    assert!(until(|| vlan().is_ok_and(|vlan| vlan == 0)), "{:?}", vlan());

    drop(board);
    assert_eq!(processes(&name), [], "something was left running");
    Ok(())
}

/// Interrupted or killed while it boots, `board up` leaves nothing; what is killed is cleared away by whoever looks next.
fn broken_off() -> Outcome {
    let name = own_name("broken");
    let directory = tempfile::tempdir()?;
    fs::write(
        directory.path().join("m.yaml"),
        EXAMPLE.replace("machine: embedded-switch", &format!("machine: {name}")),
    )?;
    for (signal, status) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let mut up = binary::command(directory.path());
        up.args(["board", "up", "m.yaml"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut up = up.spawn()?;
        let runs = || {
            let all = processes(&name);
            switches(&name).len() == 2
                && all.iter().any(|(_, line)| line.contains("-netdev"))
                && fs::read_link(format!("/proc/{}/cwd", all.first().map_or(0, |(process, _)| *process)))
                    .is_ok_and(|place| place.join("control").exists())
        };
        let came = until(|| {
            thread::sleep(Duration::from_millis(20));
            runs()
        });
        let places =
            processes(&name).into_iter().filter_map(|(id, _)| fs::read_link(format!("/proc/{id}/cwd")).ok());
        let places: Vec<_> = places.collect();
        kill(Pid::from_raw(i32::try_from(up.id())?), signal)?;
        assert_eq!(up.wait()?.code(), status);
        assert!(came, "no switch ever ran");
        if signal == Signal::SIGKILL {
            let listed = binary::run(directory.path(), ["board", "list"]);
            listed.ended_with(0)?;
            assert!(!listed.stdout.contains(&name), "{}", listed.stdout);
        }
        assert_eq!(processes(&name), [], "something was left running by {signal}");
        assert!(
            !places.is_empty() && places.iter().all(|place| !place.exists()),
            "{places:?} are left by {signal}"
        );
    }
    Ok(())
}
