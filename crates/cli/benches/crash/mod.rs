//! Crashes in numbers: an apply killed in every step of a long plan, and a board that is reset while it is changed.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use penstock_testkit::{
    binary,
    board::{KeptBoard, own_name},
    crash::{self, Moment},
};

/// How often the board is reset.
const RESETS: usize = 20;

/// The file that the models of this module make, inside the board.
const MADE: &str = "/root/made/a.json";

/// What came of many crashes.
pub struct Counted {
    /// How many ended as they should.
    pub right: usize,
    /// How long each took, in seconds.
    pub seconds: Vec<f64>,
}

/// Two NICs with 12 VFs, attributes, an MTU, a file, and three containers, one of which owns a PF: more than 40 steps.
fn long(machine: &str) -> String {
    format!(
        "machine: {machine}\n\
         nics:\n  NET0: {{vfs: 7, loopback: on, defaults: {{spoofchk: on}}, mtu: 1600}}\n  \
         NET1: {{vfs: 5, defaults: {{trust: on}}}}\n\
         guests:\n  a: {{functions: [{{vf: NET0#0, vlan: 100, address: 10.20.30.1/24}}, NET0#1], \
         generate: [{{template: json, to: made/a.json}}]}}\n  \
         b: {{functions: [{{vf: NET0#2, mac: \"02:00:00:00:00:02\"}}, {{vf: NET1#0, address: 10.20.31.1/24}}], after: [a]}}\n  \
         c: {{functions: [{{pf: NET1, address: 10.20.31.9/24}}]}}\n\
         board: {{cables: [[NET0, NET1]]}}\n"
    )
}

/// A container in real time on one of the isolated CPUs, and the other one nobody's: a step for each thing that is changed.
fn realtime(machine: &str) -> String {
    format!(
        "machine: {machine}\nnics: {{NET0: {{vfs: 2}}}}\n\
         realtime: {{isolated: 2-3, wake_latency: 0, throttling: off}}\n\
         guests: {{rt: {{pin: 2, realtime: {{policy: fifo, priority: 5, interrupts: 1}}, functions: [NET0#0]}}}}\n\
         board: {{cpus: 4}}\n"
    )
}

/// Kills `penstock apply` once in every step; each time an undo leads back, and another apply on.
pub fn kill() -> Counted {
    let name = own_name("kill");
    let board = KeptBoard::up(&name, &long(&name)).expect("the board comes up");
    killed(&board, 40)
}

/// The same for the steps of real time: control groups, masks of interrupts and knobs are compared as well.
pub fn kill_realtime() -> Counted {
    let name = own_name("kill-realtime");
    let board = KeptBoard::up(&name, &realtime(&name)).expect("the board comes up");
    killed(&board, 20)
}

fn killed(board: &KeptBoard, at_least: usize) -> Counted {
    crash::furnish(board).expect("the script is put into the board");
    let mut counted = Counted { right: 0, seconds: Vec::new() };
    let steps = crash::kill(board, &[], &mut |Moment { name, wrong, seconds }| {
        println!("killed at {name}: {seconds:.0} s, {}", told(&wrong));
        counted.right += usize::from(wrong.is_empty());
        counted.seconds.push(seconds);
    });
    assert!(steps.expect("every moment is told of") >= at_least);
    counted
}

fn told(wrong: &[String]) -> String {
    if wrong.is_empty() { "as it should be".to_owned() } else { format!("WRONG: {}", wrong.join("; ")) }
}

/// Resets the board at random moments of an apply, every third of which was to be confirmed; then undoes, or applies again.
pub fn reset() -> Counted {
    let name = own_name("reset");
    let board = KeptBoard::up_with(&name, &long(&name), &["--keep-disk"]).expect("the board comes up");
    crash::furnish(&board).expect("the script is put into the board");
    let state = || crash::state(&board, &[MADE]).expect("the state is read");
    let model = board.model().to_owned();
    let (before, began) = (state(), Instant::now());
    board.inside(["penstock", "apply", "--quiet", &model]).ended_with(0).expect("the model is applied");
    let (took, wanted) = (began.elapsed(), state());
    board.inside(["penstock", "undo", "--quiet"]).ended_with(0).expect("it is taken back");
    let mut counted = Counted { right: 0, seconds: Vec::new() };
    for number in 0..RESETS {
        let began = Instant::now();
        // From before its first write to after its last.
        let moment = took.mul_f64(RandomState::new().hash_one(number) as f64 / u64::MAX as f64 * 1.1);
        let confirmed = number % 3 == 2;
        let wrong = one_reset(&board, &model, moment, (number % 2 == 1, confirmed), (&before, &wanted));
        let how = if confirmed { " of an apply to be confirmed" } else { "" };
        println!("reset {:.2} s after the start{how}: {}", moment.as_secs_f64(), told(&wrong));
        counted.right += usize::from(wrong.is_empty());
        counted.seconds.push(began.elapsed().as_secs_f64());
    }
    counted
}

/// One reset; says what was not as it should be.
fn one_reset(
    board: &KeptBoard,
    model: &str,
    moment: Duration,
    (applied_again, to_be_confirmed): (bool, bool),
    (before, wanted): (&serde_json::Value, &serde_json::Value),
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut apply = binary::command(board.directory());
    apply.args(["board", "ssh", board.name(), "penstock", "apply", "--quiet", model]);
    if to_be_confirmed {
        apply.args(["--confirm-within", "10min"]);
    }
    let child = apply.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("the binary runs");
    thread::sleep(moment);
    // One that had come to its end is a run of its own, with a file that outlives the reset.
    let ended = matches!(child.try_wait(), Ok(Some(_)));
    let reset = board.reset(&[]);
    let _ = child.kill();
    let _ = child.wait();
    if reset.status != 0 {
        return vec![reset.stderr];
    }
    let mut run = |what: &str, words: &[&str], status: i32| {
        let run = board.inside(words);
        if run.status != status {
            wrong.push(format!("{what}: status {}, not {status}: {}", run.status, run.stderr));
        }
        run
    };
    run("status", &["penstock", "status"], 0);
    if to_be_confirmed {
        run("confirm", &["penstock", "confirm"], 1);
    }
    if applied_again {
        run("apply", &["penstock", "apply", "--quiet", model], 0);
    } else {
        run("undo", &["penstock", "undo", "--quiet"], 0);
    }
    let state = || crash::state(board, &[MADE]).expect("the state is read");
    let expected = if applied_again { wanted } else { before };
    let mut differs = crash::differences(expected, &state());
    if applied_again {
        run("the last undo", &["penstock", "undo", "--quiet"], 0);
        if ended {
            run("the undo before it", &["penstock", "undo", "--quiet"], 0);
        }
        differs.extend(crash::differences(before, &state()));
    }
    let torn = crash::torn(board);
    let left = board.shell("ls /root/made 2>/dev/null").stdout;
    wrong.extend(differs);
    wrong.extend([torn, left].into_iter().filter(|text| !text.is_empty()));
    wrong
}
