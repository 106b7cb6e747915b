//! Runs the tests of this workspace as `cargo test --no-fail-fast` does, but several programs at once: as many that compute as there are
//! CPUs, and beside them some that wait most of the time ([`waits`]). Programs that drive boards one after the other leave CPUs idle, and
//! the shortest still have to wait for the longest.
//!
//! `side-by-side [--quick] [WORDS...]`: the words choose programs as they do for `cargo test`; `--workspace` without any. `--quick`
//! leaves out those that boot a kernel, install packages or open a browser ([`SLOW`]). What a program says is shown when it has
//! ended, whole. Ctrl-C ends them all.
//!
//! The programs that boot no kernel come first, since most mistakes show there. `PENSTOCK_TESTS_BEGIN_UNTIL`, in seconds since 1970: no
//! program is begun later, and one that still runs [a while after](WIND_UP) is ended. Those are named at the end, and each counts as ignored.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use penstock_host::interrupt;
use penstock_testkit::{
    programs::{self, LIST, Program},
    trials::SKIPPED,
};

/// More of them than this at once need more memory than a small machine has: each may have a board.
const MOST: usize = 4;

/// Programs that [wait](waits) at once, beside those that compute.
const WAITING: usize = 2;

/// How the names of programs end that wait for links, deadlines and slow peers in namespaces: seven of them took 3 to 15 % of a CPU each on a
/// busy machine (November 2026: `network_in_netns` 15 s of 101 s, `inside_in_netns` 0.6 s of 29 s).
const WAITS: &str = "_in_netns";

/// The slow programs that take longest, the longest first: whoever begins last is waited for by nobody. Others begin after them.
const LONGEST: [&str; 23] = [
    "rehearse_in_board",
    "guests_in_board",
    "fresh_in_tree",
    "claims_in_board",
    "tenant_in_board",
    "uplinks_in_board",
    "boot_in_board",
    "crash_in_board",
    "measure_in_board",
    "persist_in_board",
    "watch_in_board",
    "container_nics_in_board",
    "runtimes_in_board",
    "confinement_in_board",
    "json_in_board",
    "plugin_in_board",
    "switch_in_board",
    "latency_in_board",
    "campaign_in_board",
    "realtime_in_board",
    "others_in_board",
    "identity_in_board",
    "ansible_in_board",
];

/// The option that leaves out the programs of [`SLOW`].
const QUICK: &str = "--quick";

/// In the environment: when the last program may begin.
const BEGIN_UNTIL: &str = "PENSTOCK_TESTS_BEGIN_UNTIL";

/// How the names of programs end that take minutes, by what they are run in.
const SLOW: [&str; 4] = ["_in_board", "_in_qemu", "_in_tree", "_in_browser"];

/// In the environment of every program: by it what a test left in a group of its own (a board, a guest) is found and ended.
const MARK: &str = "PENSTOCK_SIDE_BY_SIDE";

/// How long a program may run. One that hangs would keep its place from all others, and the run from its end.
const MOST_TIME: Duration = Duration::from_secs(30 * 60);

/// How long programs have that run when no more are begun ([`BEGIN_UNTIL`]).
const WIND_UP: Duration = Duration::from_secs(550);

/// How long programs that were interrupted may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Something to run.
struct Task {
    /// As cargo announces it.
    title: String,
    /// As cargo names it when it failed.
    name: String,
    /// Whether it has a place beside those that compute.
    waits: bool,
    command: Command,
}

/// A task that runs.
struct Running {
    task: Task,
    child: Child,
    output: tempfile::NamedTempFile,
    began: Instant,
}

/// How many tests there were, and which were skipped.
#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// By the reason: the tests, each with its program.
    skipped: BTreeMap<String, Vec<String>>,
}

impl Count {
    /// Adds what a program says, at its end and of tests that it skips.
    fn add(&mut self, program: &str, output: &str) {
        for (test, why) in output.lines().filter_map(skipped) {
            self.skipped.entry(why.to_owned()).or_default().push(format!("{program} {test}"));
        }
        self.add_results(output);
    }

    /// Adds programs that were not begun.
    fn no_time_for(&mut self, programs: impl Iterator<Item = String>) {
        let why = format!("there was no time for all of it ({BEGIN_UNTIL})");
        for program in programs {
            self.skipped.entry(why.clone()).or_default().push(program);
            self.ignored += 1;
        }
    }

    /// Adds up the lines with which the tests of a program end.
    fn add_results(&mut self, output: &str) {
        for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            let number = |of: &str| -> u64 {
                let found = line.split([';', '.']).find_map(|part| part.trim().strip_suffix(of));
                found.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
            };
            self.passed += number("passed");
            self.failed += number("failed");
            self.ignored += number("ignored");
        }
    }
}

/// The test that a line of a program's output calls skipped, and why.
fn skipped(line: &str) -> Option<(&str, &str)> {
    if let Some(told) = line.strip_prefix(SKIPPED) {
        return told.split_once(": ");
    }
    // The built-in harness: "test NAME ... ignored, WHY".
    line.strip_prefix("test ")?.split_once(" ... ignored, ")
}

fn main() -> ExitCode {
    let mut words: Vec<String> = env::args().skip(1).collect();
    let quick = words.iter().any(|word| word == QUICK);
    words.retain(|word| word != QUICK);
    let all = words.is_empty();
    if all {
        words.push("--workspace".to_owned());
    }
    match run(&words, all, quick) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            sweep(&mark());
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String], all: bool, quick: bool) -> Result<ExitCode, String> {
    let mut found = programs::built(words)?;
    if found.is_empty() {
        return Err("there is nothing to test".to_owned());
    }
    let built = found.len();
    found.retain(|program| !(quick && is_slow(&program.name)));
    let left_out = built - found.len();
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let list = directory.path().join("programs.json");
    programs::tell(&found, &list).map_err(|error| format!("{}: {error}", list.display()))?;
    found.sort_by_key(|program| place(&program.name));
    let mut waiting: Vec<Task> = found.iter().map(|program| task(program, &list)).collect();
    if all {
        let quick = found.iter().take_while(|program| !is_slow(&program.name)).count();
        waiting.insert(quick, doc_tests());
    }
    waiting.reverse();
    let begin_until = begin_until(env::var(BEGIN_UNTIL).ok().as_deref())?;
    interrupt::catch().map_err(|error| error.to_string())?;

    let began = Instant::now();
    let lanes = thread::available_parallelism().map_or(1, usize::from).min(MOST);
    let (mut running, mut count, mut failed): (Vec<Running>, _, Vec<String>) =
        (Vec::new(), Count::default(), Vec::new());
    while !(waiting.is_empty() && running.is_empty()) {
        if interrupt::pending() {
            eprintln!("interrupted: {} programs were not run to their end", waiting.len() + running.len());
            end(running, &mark());
            return Ok(ExitCode::from(130));
        }
        let now = SystemTime::now();
        if begin_until.is_some_and(|until| now > until) {
            count.no_time_for(waiting.drain(..).rev().map(|task| task.name));
        }
        if begin_until.is_some_and(|until| now > until + WIND_UP) {
            for mut one in running.drain(..) {
                stop(&mut one);
                tell(&one, None, &mut count);
                count.no_time_for([one.task.name].into_iter());
            }
        }
        while running.len() < lanes + WAITING
            && let Some(task) = next(&mut waiting, running.iter().map(|one| one.task.waits), lanes)
        {
            running.push(start(task)?);
        }
        let mut still = Vec::with_capacity(lanes);
        for mut one in running {
            match one.child.try_wait().map_err(|error| error.to_string())? {
                None if one.began.elapsed() > MOST_TIME => {
                    stop(&mut one);
                    tell(&one, None, &mut count);
                    failed.push(one.task.name);
                }
                None => still.push(one),
                Some(status) => {
                    let bad = tell(&one, Some(status), &mut count);
                    failed.extend(bad.then_some(one.task.name));
                }
            }
        }
        running = still;
        thread::sleep(Duration::from_millis(20));
    }
    // What a program that was ended by force had in sessions of its own.
    sweep(&mark());
    let Count { passed, failed: bad, ignored, skipped } = count;
    let seconds = began.elapsed().as_secs();
    let named: usize = skipped.values().map(Vec::len).sum();
    if ignored > 0 {
        println!("\nskipped, each for what this machine lacks:");
    }
    for (why, tests) in &skipped {
        println!("  {why}");
        tests.iter().for_each(|test| println!("    {test}"));
    }
    if let Some(silent) = ignored.checked_sub(named as u64).filter(|silent| *silent > 0) {
        println!("  {silent} more, of which nobody said why: look for \"ignored\" above");
    }
    if left_out > 0 {
        println!(
            "\n{left_out} programs were left out ({QUICK}): those whose names end with {}",
            SLOW.join(", ")
        );
    }
    println!("\nall programs: {passed} passed; {bad} failed; {ignored} ignored; finished in {seconds} s");
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: {} target{} failed:", failed.len(), if failed.len() == 1 { "" } else { "s" });
    failed.iter().for_each(|name| eprintln!("    `{name}`"));
    Ok(ExitCode::FAILURE)
}

/// Takes the task that is next of those for which there is a place; the first one is the last in `waiting`. `running` says of each that runs
/// whether it waits.
fn next(waiting: &mut Vec<Task>, running: impl Iterator<Item = bool>, lanes: usize) -> Option<Task> {
    let (beside, computing): (Vec<bool>, Vec<bool>) = running.partition(|waits| *waits);
    let (beside, computing) = (beside.len(), computing.len());
    let at =
        waiting.iter().rposition(|task| if task.waits { beside < WAITING } else { computing < lanes })?;
    Some(waiting.remove(at))
}

/// Whether a program of this name waits for most of its time, so that it may run beside as many others as there are CPUs.
fn waits(name: &str) -> bool {
    name.ends_with(WAITS)
}

/// Where in the order a program of this name runs.
fn place(name: &str) -> usize {
    let listed = LONGEST.iter().position(|longest| *longest == name);
    if is_slow(name) { 1 + listed.unwrap_or(LONGEST.len()) } else { 0 }
}

/// When the last program may begin, as the environment has it; `None` where it says nothing.
fn begin_until(value: Option<&str>) -> Result<Option<SystemTime>, String> {
    let Some(text) = value else { return Ok(None) };
    let seconds: u64 = text
        .parse()
        .map_err(|error| format!("{BEGIN_UNTIL}={text:?} is no number of seconds since 1970: {error}"))?;
    Ok(Some(UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// Whether a program of this name takes minutes.
fn is_slow(name: &str) -> bool {
    SLOW.iter().any(|end| name.ends_with(end))
}

/// A program, with one board at a time: there are others beside it.
fn task(program: &Program, list: &Path) -> Task {
    let Program { package, name, source, directory, executable } = program;
    let mut command = Command::new(executable);
    command.current_dir(directory).env(LIST, list);
    if name.ends_with("_in_board") {
        command.arg("--test-threads=1");
    }
    let kind = if program.is_integration() { "" } else { "unittests " };
    let of = match program.is_integration() {
        true => format!("--test {name}"),
        false if source.ends_with("main.rs") => format!("--bin {name}"),
        false => "--lib".to_owned(),
    };
    Task {
        title: format!("     Running {kind}{} ({})", source.display(), executable.display()),
        name: format!("-p {package} {of}"),
        waits: waits(name),
        command,
    }
}

/// The examples in the documentation, which only cargo can run.
fn doc_tests() -> Task {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--workspace", "--locked", "--doc", "--quiet"]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    Task { title: "   Doc-tests of all crates".to_owned(), name: "--doc".to_owned(), waits: false, command }
}

fn start(mut task: Task) -> Result<Running, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", task.title.trim());
    let output = tempfile::NamedTempFile::new().map_err(failed)?;
    let file = |file: &tempfile::NamedTempFile| {
        fs::OpenOptions::new().append(true).open(file.path()).map(Stdio::from)
    };
    let (one, other) = (file(&output).map_err(failed)?, file(&output).map_err(failed)?);
    // A group of its own: all that it starts can be ended with it.
    let command = task.command.env(MARK, mark()).process_group(0);
    let child = command.stdin(Stdio::null()).stdout(one).stderr(other).spawn();
    let child = child.map_err(failed)?;
    eprintln!("     Started {}", task.name);
    Ok(Running { task, child, output, began: Instant::now() })
}

/// Shows what a task said, and how it ended if it did so by itself; whether it failed.
fn tell(ended: &Running, status: Option<ExitStatus>, count: &mut Count) -> bool {
    let text = fs::read(ended.output.path()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    count.add(&ended.task.name, &text);
    println!("\n{} in {:.1} s\n{}", ended.task.title, ended.began.elapsed().as_secs_f64(), text.trim_end());
    let Some(status) = status else {
        println!("it was ended after {} s", ended.began.elapsed().as_secs());
        return true;
    };
    if let Some(signal) = status.signal() {
        println!("it was ended by signal {signal}");
    }
    !status.success()
}

/// Ends a program by force, with all of its group.
fn stop(program: &mut Running) {
    let group = i32::try_from(program.child.id()).map(Pid::from_raw);
    let _ = group.map(|group| killpg(group, Signal::SIGKILL));
    let _ = program.child.wait();
}

/// What this run's programs are marked with: the process id alone may be had by another run later.
fn mark() -> String {
    static BEGAN: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), BEGAN.get_or_init(|| now().as_nanos()))
}

/// The processes with this mark.
fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}");
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(number);
    let is_marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    all.filter(is_marked).map(Pid::from_raw).collect()
}

/// Ends what runs, as Ctrl-C would, and by force what does not heed that and what it left behind.
fn end(mut running: Vec<Running>, mark: &str) {
    let signal = |one: &Running, signal| {
        let group = i32::try_from(one.child.id()).map(Pid::from_raw);
        let _ = group.map(|group| killpg(group, signal));
    };
    running.iter().for_each(|one| signal(one, Signal::SIGINT));
    let until = Instant::now() + FAREWELL;
    while Instant::now() < until && running.iter_mut().any(|one| matches!(one.child.try_wait(), Ok(None))) {
        thread::sleep(Duration::from_millis(20));
    }
    running.iter_mut().for_each(stop);
    sweep(mark);
}

/// Ends everything with this mark: a board has a group, or a session, of its own. What was begun meanwhile is found in a further round.
fn sweep(mark: &str) {
    let until = Instant::now() + FAREWELL;
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        if Instant::now() > until {
            eprintln!("still there after SIGKILL: {left:?}");
            return;
        }
        for pid in &left {
            // One that has just ended is what is wanted.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_leaves_out_what_boots_a_kernel_and_nothing_else() {
        for slow in LONGEST {
            assert!(is_slow(slow), "{slow}");
        }
        for quick in ["network_in_netns", "golden", "penstock_model", "board"] {
            assert!(!is_slow(quick), "{quick}");
        }
    }

    #[test]
    fn programs_that_wait_run_beside_those_that_compute() {
        let task = |name: &str| Task {
            title: name.into(),
            name: name.into(),
            waits: waits(name),
            command: Command::new("true"),
        };
        let mut waiting: Vec<Task> =
            ["golden", "a_in_netns", "b_in_netns", "c_in_netns", "x_in_board", "y_in_board"].map(task).into();
        waiting.reverse();
        let mut running: Vec<String> = Vec::new();
        let mut fill = |running: &mut Vec<String>| {
            while let Some(task) = next(&mut waiting, running.iter().map(|name| waits(name)), 2) {
                running.push(task.name);
            }
        };
        fill(&mut running);
        assert_eq!(running, ["golden", "a_in_netns", "b_in_netns", "x_in_board"]);
        // One place of each kind is free again.
        running.drain(..2);
        fill(&mut running);
        assert_eq!(running, ["b_in_netns", "x_in_board", "c_in_netns", "y_in_board"]);
    }

    #[test]
    fn what_boots_no_kernel_comes_first_and_then_the_longest() {
        let mut names = ["apt_in_board", "tenant_in_board", "golden", "guests_in_board", "network_in_netns"];
        names.sort_by_key(|name| place(name));
        assert_eq!(
            names,
            ["golden", "network_in_netns", "guests_in_board", "tenant_in_board", "apt_in_board"]
        );
    }

    #[test]
    fn programs_that_were_not_begun_are_named_and_counted() {
        assert_eq!(begin_until(None), Ok(None));
        assert_eq!(begin_until(Some("60")), Ok(Some(UNIX_EPOCH + Duration::from_secs(60))));
        assert!(begin_until(Some("soon")).is_err_and(|why| why.contains(BEGIN_UNTIL)));
        let mut count = Count::default();
        count.no_time_for(std::iter::empty());
        assert_eq!((count.ignored, count.skipped.len()), (0, 0));
        count.no_time_for(["-p x --test y_in_board".to_owned()].into_iter());
        assert_eq!((count.ignored, count.skipped.len()), (1, 1));
    }

    /// As a test leaves a board that is in a session of its own when it is interrupted.
    #[test]
    fn what_a_test_left_in_a_session_of_its_own_is_ended_too() {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 987 & setsid sleep 987 & wait"]);
        let running =
            start(Task { title: "boards".into(), name: "boards".into(), waits: false, command }).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        // The shell and both.
        while marked(&mark()).len() < 3 {
            assert!(Instant::now() < until, "{:?}", marked(&mark()));
            thread::sleep(Duration::from_millis(10));
        }
        end(vec![running], &mark());
        assert_eq!(marked(&mark()), []);
    }

    #[test]
    fn skipped_tests_are_named_with_the_reason() {
        let mut count = Count::default();
        let output = "skipped a_bond: bonds cannot be tested here: this kernel has none\n\
                      skipped b: bonds cannot be tested here: this kernel has none\n\
                      test slow ... ignored, it is to be run under callgrind\ntest fine ... ok\ntest bare ... ignored\n\
                      test result: ok. 3 passed; 0 failed; 4 ignored; 0 measured; 0 filtered out\n";
        count.add("-p x --test y", output);
        assert_eq!((count.passed, count.ignored), (3, 4));
        let reasons: Vec<(&str, usize)> =
            count.skipped.iter().map(|(why, tests)| (why.as_str(), tests.len())).collect();
        let bonds = "bonds cannot be tested here: this kernel has none";
        assert_eq!(reasons, [(bonds, 2), ("it is to be run under callgrind", 1)]);
        assert_eq!(count.skipped[bonds][0], "-p x --test y a_bond");
    }
}
