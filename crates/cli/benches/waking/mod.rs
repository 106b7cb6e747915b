//! How late an isolated CPU wakes beside hackbench, against the same machine untuned, on a board with the RT kernel: by turns,
//! in balanced order, with the tuned machine measured twice.

use penstock_testkit::board::{KeptBoard, own_name};
use serde_json::Value;

/// How long it measures.
const LIMIT: &str = "12m";

/// A ratio of the untuned machine to the tuned one, with its interval and that of the tuned machine to itself.
pub struct Ratio {
    /// Of what: "p99.99", "max".
    pub statistic: String,
    /// The ratio.
    pub value: f64,
    /// All of it in words: the interval, the null, or why there is none.
    pub words: String,
}

/// Measures it with the load bound to the other CPUs, or `anywhere`.
pub fn compare(load: &str) -> Vec<Ratio> {
    let name = own_name("waking");
    let model = format!(
        "machine: {name}\nnics: {{NET0: {{vfs: 1}}}}\n\
         realtime: {{isolated: 2-3, wake_latency: 0, throttling: off}}\n\
         guests: {{rt: {{functions: [NET0#0], pin: 3, realtime: on}}}}\n"
    );
    let board = KeptBoard::up(&name, &model).expect("the board comes up");
    let inside = |line: &str, status: &[i32]| {
        let run = board.shell(line);
        assert!(status.contains(&run.status), "{line}: {}", run.stderr);
        run.stdout
    };
    let model = board.model();
    inside(&format!("penstock apply --quiet {model}"), &[0]);
    inside(
        &format!(
            "penstock measure {model} --latency --quick --against untuned --load {load} --time-limit {LIMIT} --seed 1 --output \
             /root/run >/root/run.log 2>&1"
        ),
        &[0, 1],
    );
    let evidence: Value =
        serde_json::from_str(&inside("cat /root/run/evidence.json", &[0])).expect("evidence is JSON");
    let comparisons = evidence["latency"]["comparisons"].as_array().cloned().unwrap_or_default();
    let of = |comparison: &&Value| {
        let side = |side: &str, word: &str| comparison[side].as_str().is_some_and(|id| id.contains(word));
        side("base", "host cpu2 loaded tuned") && side("other", "untuned")
    };
    let range = |estimate: &Value| {
        let number = |name: &str| estimate[name].as_f64().unwrap_or(f64::NAN);
        format!("{:.2} [{:.2}, {:.2}]", number("value"), number("low"), number("high"))
    };
    comparisons
        .iter()
        .filter(of)
        .map(|comparison| {
            let ratio = &comparison["ratio"];
            Ratio {
                statistic: comparison["statistic"].as_str().unwrap_or_default().to_owned(),
                value: ratio["value"].as_f64().unwrap_or(f64::NAN),
                words: match ratio.is_null() {
                    true => comparison["why"].as_str().unwrap_or_default().to_owned(),
                    false => format!(
                        "{}, A/A {}, {} pairs",
                        range(ratio),
                        range(&comparison["null"]),
                        comparison["pairs"]
                    ),
                },
            }
        })
        .collect()
}
