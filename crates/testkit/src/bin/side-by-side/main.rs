//! Runs the tests of this workspace as `cargo test --no-fail-fast` does, but several programs at once: as many as there are CPUs, and more while
//! CPUs are idle ([`room`]). Programs that drive boards one after the other leave CPUs idle, and the shortest still have to wait for the
//! longest ([`order`]).
//!
//! `side-by-side [--quick] [WORDS...]`: the words choose programs as they do for `cargo test`; `--workspace` without any. `--quick`
//! leaves out those that boot a kernel or a cluster, install packages or open a browser ([`order::SLOW`]). What a program says is shown when it has
//! ended, whole. Ctrl-C ends them all.
//!
//! What each failed program said of its failures is repeated at the end ([`failure`]).
//!
//! A table of what each program took, in processor time and by the clock, comes at the end ([`reaper`]): processor time is what a run is made of
//! where boards are emulated.
//!
//! A run of all programs first removes those of earlier builds ([`old`]), and does not begin on a disk that is too full for it ([`disk`]).
//!
//! The programs that boot nothing come first, since most mistakes show there. `PENSTOCK_TESTS_BEGIN_UNTIL`, in seconds since 1970: no
//! program is begun later, and one that still runs [a while after](WIND_UP) is ended. Those are named at the end, and each counts as ignored.
#![allow(clippy::disallowed_methods)]

mod count;
mod disk;
mod failure;
mod old;
mod order;
mod reaper;
mod room;
mod spent;

use std::{
    env,
    ffi::OsString,
    fs,
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
use penstock_testkit::programs::{self, LIST, Program};
use tempfile::TempDir;

use crate::{
    count::Count,
    disk::{Disk, NEEDED},
    failure::Failure,
    order::{SLOW, boots, is_slow, kind, place, waits},
    room::Room,
    spent::{ProgramUsage, Spent},
};

/// The option that leaves out the programs of [`SLOW`].
const QUICK: &str = "--quick";

/// In the environment: when the last program may begin.
const BEGIN_UNTIL: &str = "PENSTOCK_TESTS_BEGIN_UNTIL";

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
    command: Command,
}

/// A task that runs.
struct Running {
    title: String,
    name: String,
    child: Child,
    /// Where what it says is ([`OUTPUT`]), and what its reaper says that it took ([`ACCOUNT`]).
    directory: TempDir,
    began: Instant,
}

/// The file of what a program says, on both streams.
const OUTPUT: &str = "output";

/// The file in which a reaper says how much processor time a program took.
const ACCOUNT: &str = "account";

fn main() -> ExitCode {
    let given: Vec<OsString> = env::args_os().skip(1).collect();
    if let [first, rest @ ..] = &given[..]
        && first == reaper::REAP
    {
        return reaper::reap(rest);
    }
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
    if all {
        let removed = old::remove(&found, SystemTime::now());
        if removed.programs > 0 {
            eprintln!(
                "Removed {} test programs of earlier builds, {:.1} GiB",
                removed.programs,
                removed.bytes as f64 / disk::GIB
            );
        }
    }
    let built = found.len();
    found.retain(|program| !(quick && is_slow(&program.name)));
    let left_out = built - found.len();
    let mut disk = Disk::of_this_machine();
    disk.look(if all && !quick { NEEDED } else { 0 })?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let list = directory.path().join("programs.json");
    programs::tell(&found, &list).map_err(|error| format!("{}: {error}", list.display()))?;
    found.sort_by_key(|program| place(&program.name));
    let mut waiting: Vec<Task> = found.iter().map(|program| task(program, &list)).collect();
    if all {
        let quick = found.iter().take_while(|program| !boots(&program.name)).count();
        waiting.insert(quick, doc_tests());
    }
    waiting.reverse();
    let begin_until = begin_until(env::var(BEGIN_UNTIL).ok().as_deref())?;
    interrupt::catch().map_err(|error| error.to_string())?;

    let began = Instant::now();
    // By this name it is found when Cargo has put another build in its place meanwhile.
    let myself = Path::new("/proc/self/exe");
    let mut room = Room::of_this_machine();
    let (mut running, mut count, mut failed): (Vec<Running>, _, Vec<Failure>) =
        (Vec::new(), Count::default(), Vec::new());
    let mut spent = Spent::default();
    while !(waiting.is_empty() && running.is_empty()) {
        if interrupt::pending() {
            eprintln!("interrupted: {} programs were not run to their end", waiting.len() + running.len());
            end(running, &mark());
            return Ok(ExitCode::from(130));
        }
        disk.warn();
        let now = SystemTime::now();
        if begin_until.is_some_and(|until| now > until) {
            count.no_time_for(waiting.drain(..).rev().map(|task| task.name));
        }
        if begin_until.is_some_and(|until| now > until + WIND_UP) {
            for mut one in running.drain(..) {
                stop(&mut one);
                tell(&one, None, &mut count, &mut spent);
                count.no_time_for([one.name].into_iter());
            }
        }
        while let Some(next) = waiting.last()
            && (waits(&next.name)
                || room
                    .for_one_more(kind(&next.name), running.iter().filter(|one| !waits(&one.name)).count()))
            && (!boots(&next.name) || running.iter().filter(|one| boots(&one.name)).count() < room.boards())
        {
            running.extend(waiting.pop().map(|task| start(task, Some(myself))).transpose()?);
        }
        let mut still = Vec::with_capacity(running.len());
        for mut one in running {
            match one.child.try_wait().map_err(|error| error.to_string())? {
                None if one.began.elapsed() > MOST_TIME => {
                    stop(&mut one);
                    let said = tell(&one, None, &mut count, &mut spent);
                    failed.push(Failure::new(one.name, &said));
                }
                None => still.push(one),
                Some(status) => {
                    let said = tell(&one, Some(status), &mut count, &mut spent);
                    failed.extend((!status.success()).then(|| Failure::new(one.name, &said)));
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
    spent.tell();
    disk.tell();
    println!("\nall programs: {passed} passed; {bad} failed; {ignored} ignored; finished in {seconds} s");
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: {} target{} failed:", failed.len(), if failed.len() == 1 { "" } else { "s" });
    failed.iter().for_each(|failure| eprintln!("{failure}"));
    Ok(ExitCode::FAILURE)
}

/// When the last program may begin, as the environment has it; `None` where it says nothing.
fn begin_until(value: Option<&str>) -> Result<Option<SystemTime>, String> {
    let Some(text) = value else { return Ok(None) };
    let seconds: u64 = text
        .parse()
        .map_err(|error| format!("{BEGIN_UNTIL}={text:?} is no number of seconds since 1970: {error}"))?;
    Ok(Some(UNIX_EPOCH + Duration::from_secs(seconds)))
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
        command,
    }
}

/// The examples in the documentation, which only cargo can run.
fn doc_tests() -> Task {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--package", programs::WITH_EXAMPLES, "--locked", "--doc", "--quiet"]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    Task { title: format!("   Doc-tests of {}", programs::WITH_EXAMPLES), name: "--doc".to_owned(), command }
}

/// Starts a program, by a reaper where one is given.
fn start(task: Task, reaper: Option<&Path>) -> Result<Running, String> {
    let Task { title, name, command } = task;
    let failed = |error: std::io::Error| format!("{}: {error}", title.trim());
    let directory = tempfile::tempdir().map_err(failed)?;
    let output = fs::File::create(directory.path().join(OUTPUT)).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let mut command = match reaper {
        Some(reaper) => reaper::reaped(reaper, &directory.path().join(ACCOUNT), &command),
        None => command,
    };
    // A group of its own: all that it starts can be ended with it.
    command.env(MARK, mark()).process_group(0).stdin(Stdio::null()).stdout(output).stderr(errors);
    let child = command.spawn().map_err(failed)?;
    eprintln!("     Started {name}");
    Ok(Running { title, name, child, directory, began: Instant::now() })
}

/// Shows what a program said, which is given, and how it ended if it did so by itself; adds what it took.
fn tell(ended: &Running, status: Option<ExitStatus>, count: &mut Count, spent: &mut Spent) -> String {
    let text = fs::read(ended.directory.path().join(OUTPUT)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    count.add(&ended.name, &text);
    let taken = ProgramUsage {
        name: ended.name.clone(),
        elapsed: ended.began.elapsed().as_secs_f64(),
        processors: reaper::seconds(&ended.directory.path().join(ACCOUNT)),
    };
    println!("\n{} in {taken}\n{}", ended.title, text.trim_end());
    match status {
        None => println!("it was ended after {:.0} s", taken.elapsed),
        Some(status) => {
            if let Some(signal) = status.signal() {
                println!("it was ended by signal {signal}");
            }
        }
    }
    spent.add(taken);
    text
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
    fn when_the_last_program_may_begin_is_read_from_the_environment() {
        assert_eq!(begin_until(None), Ok(None));
        assert_eq!(begin_until(Some("60")), Ok(Some(UNIX_EPOCH + Duration::from_secs(60))));
        assert!(begin_until(Some("soon")).is_err_and(|why| why.contains(BEGIN_UNTIL)));
    }

    /// As a test leaves a board that is in a session of its own when it is interrupted.
    #[test]
    fn what_a_test_left_in_a_session_of_its_own_is_ended_too() {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 987 & setsid sleep 987 & wait"]);
        let running = start(Task { title: "boards".into(), name: "boards".into(), command }, None).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        // The shell and both.
        while marked(&mark()).len() < 3 {
            assert!(Instant::now() < until, "{:?}", marked(&mark()));
            thread::sleep(Duration::from_millis(10));
        }
        end(vec![running], &mark());
        assert_eq!(marked(&mark()), []);
    }
}
