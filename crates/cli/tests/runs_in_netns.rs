//! Runs that changed a machine, as another process finds them: a veth pair in namespaces of its own stands for a PF's
//! interface, and `ip` and the kernel's files are the witnesses.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_apply::{
    Journal,
    history::{Confirm, KnownRun, Outcome, Purpose, RunRecord, Runs, Who},
    journal::{Ending, Entry, JOURNAL_VERSION},
};
use penstock_host::{
    Command, Output, Root, accounts, boot, files::Lock, process::Background, running::Running,
};
use penstock_model::{Bdf, Mtu};
use penstock_plan::{Action, Direction, Fact, FileAction, FunctionAction, Plan, Step, StepId};
use penstock_testkit::{needs, trials::Trials};

#[path = "runs_in_netns/lapsed.rs"]
mod lapsed;

const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock");
const PF: &str = "0000:04:00.0";

type Check = fn(&Host);

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let checks: [(&str, Check); 15] = [
        ("a_run_that_was_cut_off_is_seen_and_taken_back_in_netns", a_run_that_was_cut_off),
        ("what_cannot_be_taken_back_leaves_the_machine_half_way_in_netns", half_way),
        ("runs_are_taken_back_newest_first_in_netns", runs_are_taken_back_newest_first),
        ("who_comes_second_is_told_who_is_at_it_in_netns", who_comes_second),
        ("what_nobody_confirms_is_taken_back_in_netns", nobody_confirms),
        ("what_is_confirmed_in_time_stays_in_netns", confirmed_in_time),
        ("a_run_whose_session_is_killed_is_taken_back_in_netns", a_killed_session),
        ("a_run_whose_guard_was_killed_is_for_somebody_to_decide_in_netns", a_killed_guard),
        ("a_damaged_run_is_told_and_the_others_go_on_in_netns", a_damaged_run),
        ("a_full_disk_keeps_no_run_that_nobody_confirms_in_netns", a_full_disk),
        ("a_disk_that_filled_up_and_is_free_again_has_it_all_recorded_in_netns", room_that_was_reserved),
        ("a_run_is_taken_back_on_a_disk_that_is_full_in_netns", an_undo_with_a_full_disk),
        ("a_run_is_taken_back_where_nothing_can_be_recorded_in_netns", an_undo_that_cannot_be_recorded),
        (
            "a_run_that_waits_to_be_confirmed_is_undone_on_a_full_disk_in_netns",
            an_undo_of_an_open_run_with_a_full_disk,
        ),
        ("a_holder_that_was_killed_holds_nothing_in_netns", a_killed_holder),
    ];
    let missing_for_faults = trials.lacking("strace", || needs::programs(&["strace"]));
    let lacking = missing.clone().or(missing_for_faults);
    let faults = || alone(system_calls_of_a_guard_fail);
    trials.add(&lacking, [("a_run_is_taken_back_whose_guards_system_calls_fail_in_netns", faults)]);
    let checks = checks.into_iter().chain(lapsed::CHECKS);
    trials.add(&missing, checks.map(|(name, check)| (name, move || alone(check))));
    trials.run()
}

/// In milliseconds, within which time a run that nobody confirms is to be confirmed: long enough for what a test does before that on a
/// busy machine.
const SOON: u64 = 15_000;

/// A machine whose only PCI function has the interface `pf0`, and where Penstock keeps what it knows of it.
struct Host {
    directory: PathBuf,
}

fn alone(check: Check) {
    let work = move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        ip("link add pf0 type veth peer name peer");
        fs::create_dir_all(at("real")).unwrap();
        mount(Some("sysfs"), &at("real"), Some("sysfs"), MsFlags::MS_RDONLY, none).unwrap();
        fs::create_dir_all(at("sys/class")).unwrap();
        fs::create_dir_all(at(&format!("sys/bus/pci/devices/{PF}/net"))).unwrap();
        symlink(at("real/class/net/pf0"), at(&format!("sys/bus/pci/devices/{PF}/net/pf0"))).unwrap();
        symlink(at("real/class/net"), at("sys/class/net")).unwrap();
        mount(Some(&at("sys")), "/sys", none, MsFlags::MS_BIND, none).unwrap();
        check(&Host { directory: directory.path().to_owned() });
        nix::mount::umount("/sys").unwrap();
        nix::mount::umount(&at("real")).unwrap();
    };
    thread::spawn(work).join().unwrap();
}

fn ip(line: &str) {
    Command::new("ip").args(line.split(' ')).succeed().expect(line);
}

fn who() -> Who {
    // A process that is gone: no process has this number and started then.
    let process = Running { id: 1, started: u64::MAX };
    let command = vec!["penstock".to_owned(), "apply".to_owned()];
    Who { process, user: "mara".to_owned(), command, since: 0, terminal: None, peer: None }
}

fn pf() -> Bdf {
    PF.parse().unwrap()
}

fn mtu(bytes: u32) -> Action {
    FunctionAction::SetMtu { function: pf(), mtu: Mtu::new(bytes).unwrap() }.into()
}

fn link(direction: Direction) -> Action {
    FunctionAction::SetLink { function: pf(), direction }.into()
}

impl Host {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn runs(&self, boot: Option<String>) -> Runs {
        Runs::new(self.path("kept"), boot)
    }

    /// As [`left`](Host::left), of a run by `process` that is to be confirmed within this time.
    fn open(&self, process: Running, within: u64, ended: bool) -> KnownRun {
        let run = self.left(here(), &[(mtu(9000), mtu(1500))], false);
        let confirm = Some(Confirm { within, at_most: 60_000 });
        let who = Who { process, user: accounts::this_user(), peer: Some("192.0.2.1".to_owned()), ..who() };
        let record = RunRecord { confirm, who, ..run.record.clone() };
        fs::write(run.directory.join("run.json"), serde_json::to_vec(&record).unwrap()).unwrap();
        ip("link set pf0 mtu 9000");
        if ended {
            let boottime = boot::elapsed().as_millis() as u64;
            run.end(&Outcome { ended: 1, boottime, error: None }).unwrap();
        }
        run
    }

    /// Starts the guard of run 1 in a session of its own, as `apply` does, and waits until it watches.
    fn guard(&self) -> Running {
        let log = fs::File::create(self.path("guard.log")).unwrap();
        let command = Command::new(PROGRAM).args(["guard", "1"]).env("NO_COLOR", "1");
        let command =
            command.env("PENSTOCK_STATE", self.path("state")).env("PENSTOCK_JOURNAL", self.path("kept"));
        let guard = command.start_session(log).unwrap();
        let running = Running::of(guard.id()).unwrap();
        // It is waited for, so that it does not stay as a zombie that seems to hold something.
        let mut guard = Some(guard);
        thread::spawn(move || {
            while guard.as_mut().is_some_and(|guard| guard.ended().is_none()) {
                thread::sleep(Duration::from_millis(10));
            }
            guard.take().map(Background::leave)
        });
        until("the guard watches", || self.path("kept/runs/0001/guard.json").exists());
        running
    }

    /// What a run of these steps, each with its inverse, leaves on disk; of the last step nobody knows unless it `ended`.
    fn left(&self, boot: Option<String>, steps: &[(Action, Action)], ended: bool) -> KnownRun {
        let step = |(n, (action, inverse)): (u32, &(Action, Action))| Step {
            id: StepId(n),
            action: action.clone(),
            reason: "a test".to_owned(),
            needs: Vec::new(),
            inverse: Some(inverse.clone()),
            postcondition: Fact::after(action),
            best_effort: false,
            guest: None,
        };
        let nics = [("NET0".parse().unwrap(), pf())].into_iter().collect();
        let steps = (1..).zip(steps).map(step).collect();
        let plan = Plan { nics, steps, ..Plan::default() };
        let record = RunRecord::new(Purpose::Apply, who());
        let run = self.runs(boot).create(record, &plan, None).unwrap();
        let mut entries = vec![Entry::Begin { version: JOURNAL_VERSION, steps: plan.steps.len() }];
        entries.extend(plan.steps.iter().map(|step| Entry::Intent {
            step: step.id,
            action: step.action.clone(),
            inverse: step.inverse.clone(),
        }));
        for step in &plan.steps {
            entries.push(Entry::Begun { steps: vec![step.id] });
            if ended || step.id.0 < plan.steps.len() as u32 {
                entries.push(Entry::Outcome { step: step.id, outcome: Ending::Done, detail: None });
            }
        }
        if ended {
            entries.push(Entry::End { applied: true });
            run.end(&Outcome { ended: 1, boottime: 1, error: None }).unwrap();
        }
        run.journal().unwrap().record(&entries, true).unwrap();
        run
    }

    fn penstock(&self, line: &str) -> Output {
        self.penstock_of(line, "")
    }

    /// Runs it as `sudo` does for this user.
    fn penstock_of(&self, line: &str, caller: &str) -> Output {
        self.run(Command::new(PROGRAM).args(line.split(' ')).env("SUDO_USER", caller))
    }

    fn run(&self, command: Command) -> Output {
        // From where `open` began its run, wherever the tester sits.
        let command = command.env("NO_COLOR", "1").env("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.9 22");
        let command = command.env("PENSTOCK_STATE", self.path("state"));
        command.env("PENSTOCK_JOURNAL", self.path("kept")).run().unwrap()
    }

    /// Runs it, which must end with this status; gives all that it said.
    fn says(&self, line: &str, status: i32) -> String {
        let output = self.penstock(line);
        let said = output.text() + &output.errors();
        assert_eq!(output.status.code(), Some(status), "penstock {line}\n{said}");
        said
    }
}

fn here() -> Option<String> {
    boot::id(&Root::system())
}

/// Waits up to 20 s.
fn until(what: &str, is_so: impl FnMut() -> bool) {
    within(Duration::from_secs(20), || what.to_owned(), is_so);
}

/// Waits until a run is taken back that nobody confirms [`SOON`]: up to 20 s after that time is over.
fn until_taken_back() {
    let lapsed = Duration::from_millis(SOON);
    within(lapsed + Duration::from_secs(20), || "it is taken back".to_owned(), || seen("mtu") == "1500");
}

fn within(longest: Duration, what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < longest, "not within {longest:?}: {}", what());
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process, and its whole session, that does nothing.
fn session() -> (Background, Running) {
    let sleeper = Command::new("sleep").arg("600").start_session(tempfile::tempfile().unwrap()).unwrap();
    let running = Running::of(sleeper.id()).unwrap();
    (sleeper, running)
}

fn nobody_confirms(host: &Host) {
    host.open(who().process, SOON, true);
    let began = Instant::now();
    host.guard();
    assert!(host.says("status", 0).contains("Run 1 waits"));
    until_taken_back();
    assert!(began.elapsed() > Duration::from_millis(1000));
    until("its end is kept", || host.path("kept/runs/0002/outcome.json").exists());
    assert!(host.says("confirm", 1).contains("too late"));
    assert!(!host.says("status", 0).contains("Run 1"));
    assert!(host.says("undo", 0).contains("Nothing to undo"));
}

/// Has what Penstock keeps lie on a disk of its own, of 2 MiB.
fn on_a_small_disk(host: &Host) {
    fs::create_dir_all(host.path("kept")).unwrap();
    mount(Some("tmpfs"), &host.path("kept"), Some("tmpfs"), MsFlags::empty(), Some("size=2m,nr_inodes=200"))
        .unwrap();
}

/// Fills the disk of `host`, also what anybody frees on it, until what it gives is dropped.
fn fill_up(host: &Host) -> impl Drop + use<> {
    struct Filler(Arc<AtomicBool>, Option<thread::JoinHandle<()>>, PathBuf);
    impl Drop for Filler {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            let _ = self.1.take().map(thread::JoinHandle::join);
            fs::remove_dir_all(&self.2).unwrap();
        }
    }
    let (stop, full) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let directory = host.path("kept/log");
    fs::create_dir(&directory).unwrap();
    let (stopped, filled, into) = (stop.clone(), full.clone(), directory.clone());
    let thread = thread::spawn(move || {
        let mut log = fs::File::create(into.join("log")).unwrap();
        let mut inodes = 0;
        while !stopped.load(Ordering::Relaxed) {
            if log.write_all(&[0; 4096]).is_err() {
                // Its inodes too.
                while fs::File::create(into.join(inodes.to_string())).is_ok() {
                    inodes += 1;
                }
                filled.store(true, Ordering::Relaxed);
            }
        }
    });
    until("the disk is full", || full.load(Ordering::Relaxed));
    Filler(stop, Some(thread), directory)
}

fn a_full_disk(host: &Host) {
    on_a_small_disk(host);
    host.open(who().process, SOON, true);
    let guard = host.guard();
    // Somebody else was faster at the room that is freed for the way back: there is none at all.
    fs::remove_dir_all(host.path("kept/runs/0001/reserve")).unwrap();
    let filler = fill_up(host);
    assert!(fs::write(host.path("kept/more"), "more").is_err());
    until_taken_back();
    // Nothing of it could be written down, and yet nobody can confirm any more, or is told so.
    let said = host.says("confirm", 1);
    assert!(said.contains("too late: run 1 is being taken back"), "{said}");
    assert!(!host.path("kept/runs/0001/decision.json").exists() && guard.is_alive());
    let told = fs::read_to_string(host.path("guard.log")).unwrap();
    assert!(told.contains("cannot be recorded now") && told.contains("No space left on device"), "{told}");
    // As soon as there is room the records catch up.
    drop(filler);
    until("the guard ends", || !guard.is_alive());
    assert_eq!(seen("mtu"), "1500");
    let said = host.says("confirm", 1);
    assert!(said.contains("too late: nobody confirmed run 1 in time"), "{said}");
    let said = host.says("undo --list", 0);
    assert!(said.contains("nothing of it is left"), "{said}");
    assert!(host.says("undo", 0).contains("Nothing to undo"));
}

fn room_that_was_reserved(host: &Host) {
    on_a_small_disk(host);
    host.open(who().process, SOON, true);
    let guard = host.guard();
    // Full, but nobody waits for what is freed.
    let mut log = fs::File::create(host.path("kept/log")).unwrap();
    while log.write_all(&[0; 4096]).is_ok() {}
    assert!(fs::write(host.path("kept/more"), "more").is_err());
    until_taken_back();
    until("the guard ends", || !guard.is_alive());
    assert!(host.path("kept/runs/0002/outcome.json").exists());
    assert!(!host.path("kept/runs/0001/reserve").exists());
    assert!(host.says("confirm", 1).contains("nobody confirmed run 1 in time"));
    let told = fs::read_to_string(host.path("guard.log")).unwrap();
    assert!(!told.contains("cannot be recorded"), "{told}");
}

/// An apply takes the room for its way back when it begins; what fills the disk afterwards leaves that.
fn an_undo_with_a_full_disk(host: &Host) {
    on_a_small_disk(host);
    let run = host.left(here(), &[(mtu(9000), mtu(1500))], true);
    run.reserve().unwrap();
    ip("link set pf0 mtu 9000");
    fill_once(host);
    host.says("undo", 0);
    assert_eq!(seen("mtu"), "1500");
    assert!(host.path("kept/runs/0002/outcome.json").exists());
    assert!(host.says("undo --list", 0).contains("nothing of it is left"));
}

/// An undo that was killed on a full disk has used up its room, and the next one is asked for before anybody has made some. What it
/// can still write it does; on a disk that takes nothing at all it leads back too.
fn an_undo_that_cannot_be_recorded(host: &Host) {
    on_a_small_disk(host);
    host.left(here(), &[(mtu(9000), mtu(1500))], true);
    ip("link set pf0 mtu 9000");
    let filled = fill_once(host);
    let said = host.penstock("undo").errors();
    assert_eq!(seen("mtu"), "1500");
    assert!(said.contains("this undo goes on, and cannot be recorded as a run"), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    filled.into_iter().for_each(|path| fs::remove_file(path).unwrap());

    host.left(here(), &[(mtu(9000), mtu(1500))], true);
    ip("link set pf0 mtu 9000");
    let remount = |flags| {
        mount(None::<&str>, &host.path("kept"), None::<&str>, MsFlags::MS_REMOUNT | flags, None::<&str>)
    };
    remount(MsFlags::MS_RDONLY).unwrap();
    let said = host.says("undo", 1);
    assert_eq!(seen("mtu"), "1500");
    for told in [
        "this undo goes on, and cannot be recorded as a run",
        "could not be recorded, so that `undo --list` tells of it as it was before: make room",
        "Read-only file system",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    remount(MsFlags::empty()).unwrap();
    assert!(host.says("undo --list", 0).contains("applied"));
    host.says("undo", 0);
    assert_eq!(seen("mtu"), "1500");
    assert!(host.says("undo", 0).contains("Nothing to undo"));
}

/// The room for its way back is there for the decision, too.
fn an_undo_of_an_open_run_with_a_full_disk(host: &Host) {
    on_a_small_disk(host);
    let run = host.open(who().process, 60_000, true);
    run.reserve().unwrap();
    fill_once(host);
    host.says("undo", 0);
    assert_eq!(seen("mtu"), "1500");
    assert!(host.says("confirm", 1).contains("run 1 was taken back by"));
    assert!(host.says("undo --list", 0).contains("nothing of it is left"));
}

/// Fills the disk of `host` with bytes and files; the files that do.
fn fill_once(host: &Host) -> Vec<PathBuf> {
    let log = host.path("kept/log");
    let mut file = fs::File::create(&log).unwrap();
    while file.write_all(&[0; 512]).is_ok() {}
    let paths = (0..).map(|number| host.path(&format!("kept/{number}")));
    let files = paths.take_while(|path| fs::File::create(path).is_ok());
    [log].into_iter().chain(files).collect()
}

/// Where system calls of a guard fail from the moment on at which it watches: the n-th, some, or all (`1+`), where the
/// machine can be taken back without them; or are slow. What strace(1) is told to inject; it counts each call by itself.
const FAULTS: [&str; 33] = [
    "write:error=ENOSPC:when=1+",
    "write:error=EIO:when=2",
    "fsync,fdatasync:error=EIO:when=1+",
    "fsync:error=EIO:when=1",
    "fdatasync:error=ENOSPC:when=1",
    "linkat:error=ENOSPC:when=1+",
    "mkdir,mkdirat:error=ENOSPC:when=1+",
    "rename,renameat,renameat2:error=EIO:when=1+",
    "unlink,unlinkat:error=EIO:when=1+",
    "ftruncate:error=EIO:when=1+",
    "fchmod:error=EPERM:when=1+",
    "openat,open:error=EMFILE:when=1",
    "openat,open:error=ENFILE:when=2..60",
    "openat,open:error=EIO:when=20..200",
    "openat,open:error=ENOSPC:when=300..330",
    "read,readv:error=EIO:when=1",
    "read,readv:error=EIO:when=3..90",
    "readlink,readlinkat:error=EIO:when=1..20",
    "stat,statx,newfstatat,fstat:error=EIO:when=1..40",
    "flock:error=ENOLCK:when=1",
    "flock:error=ENOLCK:when=1..20",
    "socket:error=EMFILE:when=1..3",
    "sendto,sendmsg:error=ENOBUFS:when=1",
    "sendto,sendmsg:error=ENOBUFS:when=2..4",
    "recvfrom,recvmsg:error=ENOMEM:when=1..3",
    "bind,setsockopt:error=ENOMEM:when=1..3",
    "getdents64:error=EIO:when=1..5",
    "lseek:error=EIO:when=1+",
    "openat,open,fsync,fdatasync:delay_enter=30000:when=1..60",
    "nanosleep,clock_nanosleep:error=EINTR:when=1..5",
    "poll,ppoll:error=ENOMEM:when=1..3",
    "clone,clone3,vfork,execve:error=EAGAIN:when=1..3",
    "ioctl,connect,kill,pidfd_open,pidfd_send_signal:error=EPERM:when=1..3",
];

fn system_calls_of_a_guard_fail(host: &Host) {
    // Each third one in an ordinary run, which takes half a minute; all of them where that is asked for.
    let every = if std::env::var_os("PENSTOCK_CAMPAIGN").is_some() { 1 } else { 3 };
    for (number, fault) in (1..).zip(FAULTS).step_by(every) {
        let host = Host { directory: host.path(&format!("{number}")) };
        fs::create_dir(&host.directory).unwrap();
        host.open(who().process, 2000, true);
        let guard = host.guard();
        let calls = fault.split(':').next().unwrap();
        let mut strace = Command::new("strace")
            .args(["-qq", "-f", "-o", "/dev/null", "-p", &guard.id.to_string()])
            .args(["-e", &format!("trace={calls}"), "-e", &format!("inject={fault}")])
            .start_session(fs::File::create(host.path("strace.log")).unwrap())
            .unwrap();
        let log = || {
            let read = |name| fs::read_to_string(host.path(name)).unwrap_or_default();
            format!("{fault}: {}{}", read("guard.log"), read("strace.log"))
        };
        within(Duration::from_secs(60), log, || {
            let watches = guard.is_alive();
            let back = seen("mtu") == "1500";
            assert!(watches || back, "the guard ended: {}", log());
            back
        });
        // What fails for ever keeps records from being written for ever; then it still watches.
        thread::sleep(Duration::from_millis(200));
        if strace.ended().is_none() {
            kill(Pid::from_raw(strace.id() as i32), Signal::SIGTERM).unwrap();
            until("strace lets go", || strace.ended().is_some());
        }
        strace.leave();
        let ends = || format!("it ends: {}", log());
        within(Duration::from_secs(20), ends, || !guard.is_alive());
        assert_eq!(seen("mtu"), "1500", "{}", log());
        let said = host.says("confirm", 1);
        assert!(said.contains("too late"), "{said} {}", log());
        assert!(host.says("undo", 0).contains("Nothing to undo"), "{}", log());
    }
}

fn confirmed_in_time(host: &Host) {
    assert!(host.says("confirm", 1).contains("no run waits"));
    host.open(who().process, 60_000, true);
    let guard = host.guard();
    // Somebody who comes too late for an own run.
    let other = host.penstock_of("confirm", "bob");
    let said = other.errors();
    assert_eq!(other.status.code(), Some(1), "{said}");
    assert!(said.contains("and not by root (bob) from 192.0.2.1: nothing is confirmed"), "{said}");
    assert!(said.contains("penstock confirm 1"), "{said}");
    assert!(guard.is_alive());
    assert!(host.says("confirm", 0).contains("Run 1 is confirmed"));
    until("the guard ends", || !guard.is_alive());
    assert_eq!(seen("mtu"), "9000");
    assert!(host.says("confirm 1", 0).contains("was confirmed before"));
    host.says("undo", 0);
    assert_eq!(seen("mtu"), "1500");
}

fn a_killed_session(host: &Host) {
    let (mut apply, process) = session();
    host.open(process, 60_000, false);
    let guard = host.guard();
    assert!(host.says("confirm", 9).contains("has not come to its end"));
    // All that the end of a session sends.
    for signal in [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT] {
        kill(Pid::from_raw(guard.id as i32), signal).unwrap();
    }
    thread::sleep(Duration::from_millis(300));
    assert!(guard.is_alive());
    assert_eq!(seen("mtu"), "9000");
    kill(Pid::from_raw(process.id as i32), Signal::SIGHUP).unwrap();
    until("it dies", || apply.ended().is_some());
    until("it is taken back", || seen("mtu") == "1500");
    until("the guard ends", || !guard.is_alive());
    assert!(host.says("confirm", 1).contains("did not come to a good end"));
}

fn a_killed_guard(host: &Host) {
    host.open(who().process, SOON, true);
    let lapses = Instant::now() + Duration::from_millis(SOON);
    let guard = host.guard();
    assert!(guard.kill(Duration::from_secs(5)));
    thread::sleep(lapses.saturating_duration_since(Instant::now()) + Duration::from_millis(200));
    assert_eq!(seen("mtu"), "9000");
    assert!(host.says("status", 0).contains("Run 1 waits"));
    host.says("undo", 0);
    assert_eq!(seen("mtu"), "1500");
    assert!(host.says("confirm", 1).contains("was taken back by"));
}

fn seen(attribute: &str) -> String {
    let path = Path::new("/sys/class/net/pf0").join(attribute);
    fs::read_to_string(path).unwrap().trim().to_owned()
}

fn a_run_that_was_cut_off(host: &Host) {
    assert!(host.says("undo", 0).contains("Nothing to undo"));
    assert!(host.says("undo --list", 0).contains("No run has changed"));
    let up = (link(Direction::Up), link(Direction::Down));
    let run = host.left(here(), &[(mtu(9000), mtu(1500)), up], false);
    // It was killed after the first step; whether the second came about only the machine can tell.
    ip("link set pf0 mtu 9000");
    assert!(host.says("status", 0).contains("Run 1 left this machine half-way"));
    assert!(host.says("undo --list", 0).contains("cut off"));
    let said = host.says("undo", 0);
    assert!(said.contains("Run 1 was interrupted"), "{said}");
    assert_eq!((seen("mtu").as_str(), seen("flags").as_str()), ("1500", "0x1002"));
    assert!(host.says("undo", 0).contains("Nothing to undo"));
    assert!(!host.says("status", 0).contains("half-way"));
    let said = host.says("undo --list", 0);
    assert!(said.contains("nothing of it is left") && said.contains("took back"), "{said}");
    // A journal that was cut off in the middle of a line is read as far as it goes.
    let again = host.left(here(), &[(mtu(9000), mtu(1500))], false);
    ip("link set pf0 mtu 9000");
    let path = again.directory.join("journal");
    let text = fs::read_to_string(&path).unwrap() + "{\"entry\":\"outc";
    fs::write(&path, text).unwrap();
    host.says("undo", 0);
    assert_eq!(seen("mtu"), "1500");
    assert_ne!(run.id(), again.id());
}

fn half_way(host: &Host) {
    // Another interface has that name.
    let never = FunctionAction::Rename { function: pf(), to: "peer".parse().unwrap() }.into();
    let run = host.left(here(), &[(mtu(9000), mtu(1500)), (mtu(8000), never)], true);
    ip("link set pf0 mtu 8000");
    let said = host.says("undo", 7);
    assert!(said.contains("1 of 2 steps of the way back failed"), "{said}");
    assert_eq!(seen("mtu"), "1500", "the rest is taken back");
    assert!(host.says("undo --list", 0).contains("taken back in part"));
    // That it could not be printed either is said after it, and there is room for the next one.
    let lost = host.run(Command::new("sh").args(["-c", "exec \"$0\" undo >/dev/full", PROGRAM]));
    let said = lost.errors();
    assert_eq!(lost.status.code(), Some(7), "{said}");
    let [failed, unwritten] = ["of the way back failed", "could not write to"].map(|words| said.find(words));
    assert!(failed.is_some() && failed < unwritten, "{said}");
    assert!(run.directory.join("reserve").exists());
}

fn runs_are_taken_back_newest_first(host: &Host) {
    host.left(here(), &[(mtu(4000), mtu(1500))], true);
    host.left(here(), &[(mtu(9000), mtu(4000))], true);
    ip("link set pf0 mtu 9000");
    let said = host.says("undo 1", 3);
    assert!(said.contains("run 2 came after run 1") && said.contains("--with-later"), "{said}");
    assert_eq!(seen("mtu"), "9000");
    host.says("undo 7", 2);
    host.says("undo", 0);
    assert_eq!(seen("mtu"), "4000");
    host.says("undo 3", 2);
    host.left(here(), &[(mtu(5000), mtu(4000))], true);
    ip("link set pf0 mtu 5000");
    host.says("undo 1 --with-later", 0);
    assert_eq!(seen("mtu"), "1500");
}

fn who_comes_second(host: &Host) {
    host.left(here(), &[(mtu(9000), mtu(1500))], true);
    ip("link set pf0 mtu 9000");
    fs::create_dir_all(host.path("state")).unwrap();
    let mut lock = Lock::try_exclusive(host.path("state/lock")).unwrap().unwrap();
    let process = Running::this().unwrap();
    let first = Who { process, terminal: Some("/dev/pts/3".to_owned()), ..who() };
    lock.note(&serde_json::to_string(&first).unwrap()).unwrap();
    let said = host.says("undo", 9);
    let expected = format!("`penstock apply` of mara (process {} on /dev/pts/3)", process.id);
    assert!(said.contains(&expected), "{said}");
    assert_eq!(seen("mtu"), "9000");
    drop(lock);
    host.says("undo", 0);
    assert_eq!(seen("mtu"), "1500");
}

fn a_damaged_run(host: &Host) {
    let damaged = host.left(here(), &[(mtu(4000), mtu(1500))], true);
    let file = host.path("made");
    let path = file.display().to_string();
    let write = FileAction::WriteFile { path: path.clone(), text: "text".to_owned() }.into();
    host.left(here(), &[(write, FileAction::RemoveFile { path }.into())], true);
    fs::write(&file, "text").unwrap();
    ip("link set pf0 mtu 4000");
    // A short write with the next entry glued to it, which takes away what came of the first step.
    let journal = damaged.directory.join("journal");
    let text = fs::read_to_string(&journal).unwrap().replacen(
        "{\"entry\":\"begun\"",
        "{\"ent{\"entry\":\"begun\"",
        1,
    );
    fs::write(&journal, text).unwrap();
    // Of another nobody can read a word, and of a third not what it was to do.
    let unreadable = host.left(here(), &[(mtu(4000), mtu(1500))], true);
    fs::write(unreadable.directory.join("run.json"), "{\"vers").unwrap();
    let planless = host.left(here(), &[(mtu(4000), mtu(1500))], true);
    fs::write(planless.directory.join("plan.json"), "{").unwrap();

    let said = host.says("undo --list", 0);
    assert!(said.contains("run 1 is damaged: line 3 of the journal"), "{said}");
    assert!(said.contains("run 3 cannot be read") && said.contains("   3  cannot be read"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("   1 ") && line.contains(" damaged ")), "{said}");
    let said = host.says("undo --list --json", 0);
    assert!(said.contains("\"damage\"") && said.contains("\"unreadable\""), "{said}");
    assert!(host.says("status", 0).contains("run 1 is damaged"));

    // Each that can be taken back is: also the damaged one, since its plan is there and the machine can be asked.
    host.says("undo 4", 70);
    host.says("undo 3", 70);
    host.says("undo 2", 0);
    assert!(!file.exists());
    let said = host.says("undo 1", 0);
    assert!(said.contains("run 1 is damaged, so that all that it was to do is looked at"), "{said}");
    assert_eq!(seen("mtu"), "1500");
    let said = host.says("undo", 0);
    assert!(said.contains("Nothing to undo"), "{said}");
}

fn a_killed_holder(host: &Host) {
    fs::create_dir_all(host.path("state")).unwrap();
    let text = serde_json::to_string(&who()).unwrap();
    fs::write(host.path("state/lock"), text).unwrap();
    assert!(host.says("undo", 0).contains("Nothing to undo"));
}
