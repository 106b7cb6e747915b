//! Measuring on boards that boot real kernels: real netperf in real containers, through the binary.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_testkit::{
    binary,
    board::{KeptBoard, own_name},
    json,
    trials::{self, Failed, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("what_is_measured_is_complete_and_goes_on_in_board", what_is_measured_is_complete_and_goes_on),
        ("samples_outlive_the_board_in_board", samples_outlive_the_board),
    ])
}

/// Two containers with a VF of each of two NICs, whose PFs are the host's: every kind of path. NET0 is virtio's, since the igb
/// that QEMU emulates takes in nothing for the addresses behind a bridge.
fn model(machine: &str) -> String {
    format!(
        "machine: {machine}\n\
         nics:\n  NET0: {{vfs: 2, loopback: on}}\n  NET1: {{vfs: 2, loopback: on}}\n\
         guests:\n\
         \x20 a: {{functions: [{{vf: NET0#0, address: 192.0.2.10/24}}, NET1#0]}}\n\
         \x20 b: {{functions: [{{vf: NET0#1, address: 192.0.2.11/24}}, NET1#1]}}\n\
         board:\n  cables: [[NET0, NET1]]\n  emulation: {{NET0: virtio}}\n\
         expect: [tcp stream vf-vf inside >= 0.0001 x bridge]\n"
    )
}

/// All that measuring could leave behind, as one text: addresses and interfaces everywhere, and the tools' processes.
fn traces(board: &KeptBoard) -> Result<String, Failed> {
    let script = r#"
        look() { ip -o -4 address | awk '{print $2, $4}' | sort; ip -o link | awk '{print $2}' | sort; ip neigh show nud permanent; }
        look
        for guest in a b; do
            echo "in $guest"
            lxc-attach -P /run/penstock/guests -n penstock-$guest -- sh -c "$(declare -f look); look"
        done
        for process in /proc/[0-9]*; do
            case "$(cat "$process/comm" 2>/dev/null)" in
            netserver|netperf|iperf3|fio|sleep)
                # One that was killed and that nobody has waited for yet has no words any more, and runs no more.
                words=$(tr '\0' ' ' <"$process/cmdline")
                [ -z "$words" ] || echo "runs: $words" ;;
            esac
        done
    "#;
    let seen = board.inside(["bash", "-c", script]);
    seen.ended_with(0)?;
    Ok(seen.stdout)
}

/// The evidence that a run inside the board left.
fn evidence(board: &KeptBoard, run: &str) -> Result<Value, Failed> {
    let read = board.inside(["cat", &format!("{run}/evidence.json")]);
    read.ended_with(0)?;
    Ok(serde_json::from_str(&read.stdout)?)
}

/// The records of a run inside the board; each line is one.
fn records(board: &KeptBoard, run: &str) -> Result<Vec<Value>, Failed> {
    let read = board.inside(["cat", &format!("{run}/samples.jsonl")]);
    read.ended_with(0)?;
    read.stdout.lines().map(|line| serde_json::from_str(line).map_err(Failed::from)).collect()
}

fn paths(evidence: &Value) -> BTreeSet<String> {
    let cells = evidence["measurements"]["cells"].as_array().cloned().unwrap_or_default();
    let measured = cells.iter().filter(|cell| !cell["status"]["measured"].is_null());
    measured.filter_map(|cell| cell["measurement"]["network"]["path"].as_str().map(str::to_owned)).collect()
}

fn what_is_measured_is_complete_and_goes_on() -> Outcome {
    let name = own_name("measure-paths");
    let board = KeptBoard::up(&name, &model(&name))?;
    let model = board.model();
    // Nobody is there yet.
    let early = board.inside(["penstock", "measure", model, "--quick"]);
    early.ended_with(1)?;
    assert!(early.stderr.contains(&format!("penstock apply {model}")), "{}", early.stderr);

    board.inside(["penstock", "apply", model]).ended_with(0)?;
    let before = traces(&board)?;
    assert!(!before.contains("runs: net"), "{before}");

    // Interrupted in the middle: what was made is taken back, what was measured is kept.
    let interrupted = board.shell(&format!(
        "penstock measure {model} --quick --protocol tcp-stream --time-limit none --samples 6 --seed 7 --output /root/run \
         >/root/measure.log 2>&1 & run=$!; \
         while kill -0 $run && ! [ $(wc -l </root/run/samples.jsonl 2>/dev/null || echo 0) -ge 4 ]; do sleep 0.1; done; \
         kill -INT $run; wait $run; status=$?; cat /root/measure.log; exit $status"
    ));
    interrupted.ended_with(130)?;
    assert!(interrupted.stdout.contains("--resume /root/run"), "{}", interrupted.stdout);
    assert_eq!(traces(&board)?, before, "an interrupted run leaves nothing behind");
    let first = records(&board, "/root/run")?;
    assert!(first.len() >= 4, "{}", first.len());
    let stopped = evidence(&board, "/root/run")?;
    assert_eq!(stopped["run"]["exit"], 130);

    // Gone on with, to its end: the expectation holds, so it ends with 0.
    let resumed = board.inside(["penstock", "measure", model, "--resume", "/root/run"]);
    resumed.ended_with(0)?;
    assert_eq!(traces(&board)?, before, "a run leaves nothing behind");
    let all = records(&board, "/root/run")?;
    assert!(
        all.len() > first.len() && all[..first.len()] == first[..],
        "{} after {}",
        all.len(),
        first.len()
    );
    let evidence = evidence(&board, "/root/run")?;
    let measurements = &evidence["measurements"];
    assert_eq!(measurements["emulated"], true);
    assert_eq!(measurements["seed"], 7);
    let every =
        ["pf-pf", "vf-vf-across", "vf-vf-inside", "guest-host", "bridge", "bridge-across"].map(str::to_owned);
    // Both PFs are the host's, whose kernel would hand the bytes over itself.
    let wanted: BTreeSet<String> = every.into_iter().filter(|path| path != "pf-pf").collect();
    assert_eq!(paths(&evidence), wanted, "{}", resumed.stdout);
    let comparisons = measurements["comparisons"].as_array().cloned().unwrap_or_default();
    let of = |comparison: &&Value| {
        let word = |end: &str, word: &str| comparison[end].as_str().is_some_and(|id| id.contains(word));
        word("base", "bridge a>b") && word("other", "vf-vf inside") && comparison["metric"] == "throughput"
    };
    let ratios: Vec<&Value> = comparisons.iter().filter(of).collect();
    assert_eq!(ratios.len(), 1, "{comparisons:?}");
    for ratio in ratios {
        let (low, value, high) = (&ratio["ratio"]["low"], &ratio["ratio"]["value"], &ratio["ratio"]["high"]);
        let [low, value, high] = [low, value, high].map(|number| number.as_f64().unwrap_or(f64::NAN));
        assert!(0.0 < low && low <= value && value <= high, "{ratio}");
    }
    assert_eq!(measurements["rulings"][0]["told"], "holds", "{}", measurements["rulings"]);
    let raw = |record: &&Value| {
        record["ran"]["command"].as_str().is_some_and(|command| command.contains("netperf"))
    };
    assert!(all.iter().filter(raw).count() == all.len(), "each sample has the tool's own output");

    // Of another model it is not gone on with.
    board.shell(&format!("sed 's/0.0001/0.0002/' {model} >/root/other.yaml")).ended_with(0)?;
    let other = board.inside(["penstock", "measure", "/root/other.yaml", "--resume", "/root/run"]);
    other.ended_with(3)?;
    Ok(())
}

/// A rehearsal that is ended while it measures keeps outside what was measured inside.
fn samples_outlive_the_board() -> Outcome {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("m.yaml"), model(&own_name("measure-outside")))?;
    let words = [
        "rehearse",
        "m.yaml",
        "--measure",
        "--protocol=tcp-stream",
        "--path=vf-vf-inside,bridge",
        "--output",
        "run",
        "--json",
    ];
    let mut child = binary::command(directory.path())
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let samples = directory.path().join("run/samples.jsonl");
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    // First its board boots.
    let deadline = Instant::now() + Duration::from_secs(900);
    while lines(&samples) < 3 && child.try_wait()?.is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    assert!(interrupt.success());
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("what was seen so far is in run"), "{said}");
    let printed = json::read(&String::from_utf8(output.stdout)?)?;
    assert_eq!((&printed["kind"], &printed["exit"]), (&"rehearse".into(), &130.into()), "{printed}");
    let evidence: Value =
        serde_json::from_str(&fs::read_to_string(directory.path().join("run/evidence.json"))?)?;
    let cells = evidence["measurements"]["cells"].as_array().cloned().unwrap_or_default();
    assert_eq!(cells.len(), 3, "a path, the bridge, and one of them again: {said}");
    let samples = |cell: &Value| cell["status"]["measured"]["samples"].as_array().map_or(0, Vec::len);
    assert!(lines(&directory.path().join("run/samples.jsonl")) >= 3);
    let taken: usize = cells.iter().map(samples).sum();
    let whys = cells.iter().filter_map(|cell| cell["status"]["missing"]["why"].as_str());
    assert!(taken + whys.count() >= cells.len(), "each is measured or says why not");
    let notes = evidence["measurements"]["notes"].to_string();
    assert!(notes.contains("did not get to its end"), "{notes}");
    Ok(())
}
