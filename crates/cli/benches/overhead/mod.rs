//! What Penstock costs the netperf that it runs: each sample is repeated by hand right after it, by the very command that
//! Penstock's record of it gives, between the same addresses, to the same server, while Penstock itself is stopped.
//!
//! The board's clock counts instructions, so that a throughput is bytes for so many instructions: whatever else this machine does takes no part
//! in it.

use penstock_testkit::board::{KeptBoard, own_name};
use serde_json::Value;

/// Samples of each kind.
const PAIRS: usize = 40;

/// What came of it.
pub struct Compared {
    /// Median through Penstock over median by hand.
    pub ratio: f64,
    /// The same of every second by-hand sample over the others: how much by hand differs from itself.
    pub null: f64,
    /// Each pair's own ratio.
    pub ratios: Vec<f64>,
}

/// Two containers with a VF each, on a board whose clock counts instructions.
fn model(machine: &str) -> String {
    format!(
        "machine: {machine}\nnics: {{NET0: {{vfs: 2, loopback: on}}}}\n\
         guests: {{a: {{functions: [NET0#0]}}, b: {{functions: [NET0#1]}}}}\n\
         board: {{icount: on}}\n"
    )
}

/// Measures it on a board: Penstock is let run until its next record, stopped, the sample that it began is let end, and the
/// command of the record is run by hand in the same container.
pub fn compare() -> Compared {
    let name = own_name("overhead");
    let board = KeptBoard::up(&name, &model(&name)).expect("the board comes up");
    let inside = |line: &str| {
        let run = board.shell(line);
        run.ended_with(0).expect("a line of shell in the board");
        run.stdout
    };
    let model = board.model();
    inside(&format!("penstock apply --quiet {model}"));
    inside(&format!(
        "penstock measure {model} --quick --time-limit none --half-width 0.01% --path vf-vf-inside --protocol tcp-stream \
         --seed 1 --output /root/run </dev/null >/root/run.log 2>&1 & echo $! >/root/run.pid"
    ));
    let mut pairs: Vec<[f64; 2]> = Vec::new();
    for _ in 0..PAIRS {
        let stopped = inside(
            "run=$(cat /root/run.pid); samples=/root/run/samples.jsonl; touch /root/have; \
             for try in $(seq 1200); do \
                 [ \"$(wc -l <$samples 2>/dev/null)\" != \"$(cat /root/have)\" ] && [ -s $samples ] && break; \
                 kill -0 $run || exit 0; sleep 0.05; \
             done; kill -STOP $run; sleep 2.5; wc -l <$samples >/root/have; tail -n 1 $samples",
        );
        let Ok(record) = serde_json::from_str::<Value>(&stopped) else { break };
        let command = record["ran"]["command"].as_str().expect("netperf ran").replace('\'', r"'\''");
        let by_hand = inside(&format!(
            "lxc-attach -P /run/penstock/guests -n penstock-a --clear-env -- sh -c '{command}'; kill -CONT $(cat /root/run.pid)"
        ));
        let through = record["ran"]["stdout"].as_str().and_then(received);
        pairs.extend(through.zip(received(&by_hand)).map(|(through, by_hand)| [through, by_hand]));
    }
    inside(
        "run=$(cat /root/run.pid); kill -INT $run; for try in $(seq 200); do kill -0 $run 2>/dev/null || break; sleep 0.1; done",
    );
    assert!(pairs.len() * 2 > PAIRS, "only {} pairs: {}", pairs.len(), inside("cat /root/run.log"));
    let by_hand: Vec<f64> = pairs.iter().map(|[_, by_hand]| *by_hand).collect();
    let every_second = |first: usize| by_hand.iter().copied().skip(first).step_by(2).collect();
    Compared {
        ratio: median(pairs.iter().map(|[through, _]| *through).collect()) / median(by_hand.clone()),
        null: median(every_second(0)) / median(every_second(1)),
        ratios: pairs.iter().map(|[through, by_hand]| through / by_hand).collect(),
    }
}

/// What netperf says was received.
fn received(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix("REMOTE_RECV_THROUGHPUT="))?;
    line.trim().parse().ok()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
