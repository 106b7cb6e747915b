//! How late threads wake on a board: real cyclictest beside real hackbench, on the host and in a container, with the machine's
//! real-time steps on and off by turns.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeMap, process::ExitCode};

use penstock_testkit::{
    board::{KeptBoard, own_name},
    trials::{self, Failed, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[(
        "raw_and_told_agree_and_the_machine_is_as_it_was_in_board",
        raw_and_told_agree_and_the_machine_is_as_it_was,
    )])
}

fn model(machine: &str) -> String {
    format!(
        "machine: {machine}\n\
         nics:\n  NET0: {{vfs: 1}}\n\
         realtime: {{isolated: 2-3, throttling: off}}\n\
         guests:\n  rt: {{functions: [NET0#0], pin: 3, realtime: on}}\n"
    )
}

/// All that tuning changes, as the kernel shows it, and what measuring could leave behind.
fn state(board: &KeptBoard) -> Result<String, Failed> {
    let script = r#"
        find /sys/fs/cgroup -name cpuset.cpus.partition | sort | while read -r f; do
            case "$(cat "$f")" in member) ;; *) echo "$f $(cat "$f") $(cat "${f%partition}effective")" ;; esac
        done
        cat /sys/fs/cgroup/cpuset.cpus.isolated /proc/sys/kernel/sched_rt_runtime_us /proc/irq/default_smp_affinity
        cat /sys/devices/virtual/workqueue/cpumask
        cat /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us
        grep . /proc/irq/*/smp_affinity_list 2>/dev/null | sort
        find /sys/fs/cgroup -name 'penstock-measure*'
        for process in /proc/[0-9]*; do
            case "$(cat "$process/comm" 2>/dev/null)" in
            cyclictest|hackbench|oslat)
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

fn lines(board: &KeptBoard, path: &str) -> Result<Vec<Value>, Failed> {
    let read = board.inside(["cat", path]);
    read.ended_with(0)?;
    read.stdout.lines().map(|line| serde_json::from_str(line).map_err(Failed::from)).collect()
}

/// The counts of one block's raw output: cycles, sum of the bins, and the longest.
fn raw(record: &Value) -> Option<(u64, u64, f64)> {
    let told: Value = serde_json::from_str(record["ran"]["stdout"].as_str()?).ok()?;
    let thread = &told["thread"]["0"];
    let bins = thread["histogram"].as_object()?.values().filter_map(Value::as_u64).sum();
    assert_eq!(told["sysinfo"]["nodename"], "", "the machine's name is kept");
    Some((thread["cycles"].as_u64()?, bins, thread["max"].as_f64()?))
}

fn raw_and_told_agree_and_the_machine_is_as_it_was() -> Outcome {
    let name = own_name("latency");
    let board = KeptBoard::up(&name, &model(&name))?;
    let model = board.model();
    // Nothing is tuned yet, so that nothing can be untuned.
    let early = board.inside(["penstock", "measure", model, "--latency", "--against", "untuned"]);
    early.ended_with(1)?;
    assert!(early.stderr.contains(&format!("penstock apply {model}")), "{}", early.stderr);

    board.inside(["penstock", "apply", model]).ended_with(0)?;
    let before = state(&board)?;
    assert!(before.contains("isolated") && !before.contains("runs: "), "{before}");

    // A bound that the first wake-up breaks ends it with its first round, however slow the board is.
    let measured = board.shell(&format!(
        "penstock measure {model} --latency --quick --against untuned --dwell 1s --time-limit none --prove 1us --seed 3 \
         --output /root/run"
    ));
    measured.ended_with(1)?;
    assert_eq!(state(&board)?, before, "the machine is as it was found");
    let evidence = board.inside(["cat", "/root/run/evidence.json"]);
    evidence.ended_with(0)?;
    let evidence: Value = serde_json::from_str(&evidence.stdout)?;
    let latency = &evidence["latency"];
    assert_eq!((&latency["emulated"], &latency["stopped"]), (&Value::from(true), &Value::from("broken")));
    assert_eq!(latency["rulings"][0]["told"], "cannot_be_told", "a board's microseconds are nobody's");
    let records = lines(&board, "/root/run/latency.jsonl")?;
    let mut blocks: BTreeMap<String, usize> = BTreeMap::new();
    for series in latency["series"].as_array().cloned().unwrap_or_default() {
        let id = series["id"].as_str().unwrap_or_default().to_owned();
        for block in series["blocks"].as_array().cloned().unwrap_or_default() {
            let line: usize = block["raw"]
                .as_str()
                .and_then(|raw| raw.strip_prefix("latency.jsonl:"))
                .and_then(|line| line.parse().ok())
                .ok_or("a block tells where its raw output is")?;
            let record = &records[line - 1];
            assert_eq!(record["cell"], id.as_str());
            let (cycles, bins, max) = raw(record).ok_or_else(|| format!("{record}"))?;
            assert!(cycles > 0 && max > 0.0, "{record}");
            let told: u64 = block["counts"]["bins"]
                .as_object()
                .map_or(0, |bins| bins.values().filter_map(Value::as_u64).sum());
            assert_eq!((told, block["counts"]["over"].as_u64()), (bins, Some(cycles - bins)), "{id}");
            assert_eq!(block["max"].as_f64(), Some(max), "{id}");
            *blocks.entry(id.clone()).or_default() += 1;
        }
    }
    for wanted in [
        "host cpu2 loaded tuned",
        "host cpu2 loaded untuned",
        "host cpu2 loaded null",
        "rt cpu3 loaded tuned",
        "host cpu1",
    ] {
        assert!(blocks.keys().any(|id| id.contains(wanted)), "no {wanted} in {blocks:?}");
    }

    // Interrupted while it is untuned: tuned again, and taken up again.
    let untuned = "for try in $(seq 600); do [ -z \"$(cat /sys/fs/cgroup/cpuset.cpus.isolated)\" ] && break; sleep 0.1; done";
    let start = format!(
        "penstock measure {model} --latency --quick --against untuned --dwell 1s --seed 5 --time-limit none --output"
    );
    let interrupted = board.shell(&format!(
        "{start} /root/again >/root/log 2>&1 & run=$!; {untuned}; sleep 1; kill -INT $run; wait $run; s=$?; cat /root/log; exit $s"
    ));
    interrupted.ended_with(130)?;
    assert!(interrupted.stdout.contains("--resume /root/again"), "{}", interrupted.stdout);
    assert_eq!(state(&board)?, before, "an interrupted run leaves the machine as it was found");

    // Killed while it is untuned: that is a run that can be taken back.
    let killed = board.shell(&format!(
        "{start} /root/killed >/root/log 2>&1 & run=$!; {untuned}; kill -KILL $run; sleep 5"
    ));
    killed.ended_with(0)?;
    assert_ne!(state(&board)?, before, "it was killed while the machine was untuned");
    board.inside(["penstock", "undo"]).ended_with(0)?;
    assert_eq!(state(&board)?, before, "undo puts the steps on again");
    Ok(())
}
