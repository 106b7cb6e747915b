//! What executes the board's instructions: KVM when it has really booted once, else QEMU itself.
//!
//! That `/dev/kvm` exists and opens proves nothing: in some virtual machines a stock kernel then dies with "KVM
//! internal error". So the image's kernel is booted once as far as its first file system, and the outcome is kept for
//! this QEMU, this host kernel and this processor: that it boots, or that KVM itself said why not; for a day that it did not boot in time, or that a
//! board came up without KVM alone, for each of these costs minutes to find out. What a permission or a lack of memory has done may be another the
//! next time, and is not kept.

use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_host::{files, interrupt};
use penstock_model::{BoardKernel, digest::sha256};
use serde::{Deserialize, Serialize};

use crate::{
    cache::{Cache, unforeseen},
    emulator::Emulator,
    error::BoardError,
    image::Image,
    log,
    progress::{Listener, Progress},
};

/// What an accelerator is known by; counts changes of what is kept of them.
const VERSION: u32 = 3;
/// The device that is KVM.
const DEVICE: &str = "/dev/kvm";
/// What QEMU says when KVM cannot go on (`kvm_cpu_exec` of accel/kvm/kvm-all.c).
const INTERNAL: &str = "KVM internal error";
/// The most that is read of what a kernel says that is only asked whether it runs.
const SAID: usize = 1 << 16;
/// How long the first boot under KVM may take. Where KVM works it takes two seconds; where it does not, it took 14 s on a busy machine until
/// KVM said so.
const TIMEOUT: Duration = Duration::from_secs(30);
/// For how many seconds KVM is not tried again where it may work after all: a busy machine is slow, too.
const DAY: u64 = 24 * 60 * 60;
/// What the first file system's script says when it is only asked whether it runs.
const PROBED: &str = "penstock: probe ready";

/// What executes a board's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor itself, through Linux's KVM.
    Kvm,
    /// QEMU's translation of one processor's code into another's, with a thread for each CPU of the board.
    Tcg,
}

impl Accelerator {
    /// The name that people read: `kvm` or `tcg`.
    pub const fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }

    /// The value of QEMU's `-accel`. Where instructions are counted all CPUs take turns in one thread.
    pub const fn argument(self, icount: bool) -> &'static str {
        match (self, icount) {
            (Accelerator::Kvm, _) => "kvm",
            (Accelerator::Tcg, false) => "tcg,thread=multi",
            (Accelerator::Tcg, true) => "tcg,thread=single",
        }
    }

    /// The value of QEMU's `-cpu`.
    ///
    /// Everything that there is, except what costs an emulated processor time and gives a board nothing. Quick strings (`erms`, `fsrm`
    /// and their kin) are what a kernel copies and clears with where it sees them; they are emulated byte by byte, where its other loops go
    /// by eight or more. Page tables of five levels (`la57`) have one more to walk at each miss, and a VM's twelve more, since each level of
    /// its own is looked up in the board's. With `smap` each access of the kernel to a program's memory is one under another
    /// translation; `smep`, `umip` and `pku` are looked at where nothing real is to be protected.
    pub const fn processor(self) -> &'static str {
        match self {
            Accelerator::Kvm => "max",
            Accelerator::Tcg => {
                "max,erms=off,fsrm=off,fzrm=off,fsrs=off,fsrc=off,la57=off,smap=off,smep=off,umip=off,pku=off"
            }
        }
    }
}

/// An accelerator, and why it and not another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Choice {
    /// The accelerator that boards use here.
    pub accelerator: Accelerator,
    /// Why it is this one, in words.
    pub why: String,
}

impl Choice {
    /// The one that can count instructions.
    pub fn counting() -> Choice {
        Choice::tcg("instructions are counted: `icount` of the model's board")
    }

    fn tcg(why: impl Into<String>) -> Choice {
        Choice { accelerator: Accelerator::Tcg, why: why.into() }
    }
}

/// What is known of an accelerator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnownChoice {
    #[serde(flatten)]
    choice: Choice,
    /// Until when, in seconds since 1970; `None`: for as long as QEMU, the kernel and the processor are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

/// For how long something is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownFor {
    /// It would be the same the next time.
    Ever,
    /// It may be another the next time, and took long to find out.
    ADay,
    /// It may be another the next time.
    Once,
}

/// Chooses, booting once under KVM when there is one of which nothing is known yet.
///
/// # Errors
///
/// When QEMU cannot be run, or what was found not be kept. A KVM that does not work is a choice, and no error.
pub fn choose(
    cache: &Cache,
    emulator: &Emulator,
    image: &Image,
    listener: Listener<'_>,
) -> Result<Choice, BoardError> {
    choose_of(Path::new(DEVICE), TIMEOUT, cache, emulator, image, listener)
}

fn choose_of(
    device: &Path,
    limit: Duration,
    cache: &Cache,
    emulator: &Emulator,
    image: &Image,
    listener: Listener<'_>,
) -> Result<Choice, BoardError> {
    if !files::exists(device) {
        return Ok(Choice::tcg(format!("this machine has no {}", device.display())));
    }
    // Who may open it changes from one moment to the next.
    if let Err(error) = files::try_open_device(device) {
        return Ok(Choice::tcg(format!("{} cannot be opened: {error}", device.display())));
    }
    if let Some(known) = remembered(cache).remove(&key(emulator)) {
        return Ok(known.choice);
    }
    listener(Progress::Phase("Trying whether KVM works here".to_owned()));
    try_and_remember(limit, cache, emulator, image)
}

/// What executes a board that did not boot under KVM: KVM no more. Whether that was the board's own fault or KVM's is tried, so that the next
/// board has what is best for it.
///
/// # Errors
///
/// As [`choose`].
pub fn after_failure(
    cache: &Cache,
    emulator: &Emulator,
    image: &Image,
    why: &str,
    listener: Listener<'_>,
) -> Result<Choice, BoardError> {
    listener(Progress::Phase("Trying whether KVM still works here".to_owned()));
    let tried = try_and_remember(TIMEOUT, cache, emulator, image)?;
    Ok(Choice::tcg(match tried.accelerator {
        Accelerator::Kvm => format!("{}, and this board did not: {why}", tried.why),
        Accelerator::Tcg => format!("KVM failed: {why}; {}", tried.why),
    }))
}

/// Leaves KVM alone for a day: a board that did not boot under it did without it. That a kernel boots there is not enough then.
///
/// # Errors
///
/// When it cannot be written into the cache.
pub fn set_aside(cache: &Cache, emulator: &Emulator) -> Result<(), BoardError> {
    let known = remembered(cache).remove(&key(emulator));
    // Of a KVM that was found not to work that is known already.
    if known.is_none_or(|known| known.choice.accelerator == Accelerator::Tcg) {
        return Ok(());
    }
    let why = "a board did not boot under KVM and did without it; it is tried again a day later";
    remember(cache, emulator, &Choice::tcg(why), KnownFor::ADay)
}

fn try_and_remember(
    limit: Duration,
    cache: &Cache,
    emulator: &Emulator,
    image: &Image,
) -> Result<Choice, BoardError> {
    let (choice, lasts) = probe(limit, cache, emulator, image)?;
    remember(cache, emulator, &choice, lasts)?;
    Ok(choice)
}

fn remember(cache: &Cache, emulator: &Emulator, choice: &Choice, lasts: KnownFor) -> Result<(), BoardError> {
    let mut all = remembered(cache);
    let before = all.clone();
    let known = |until| KnownChoice { choice: choice.clone(), until };
    match lasts {
        KnownFor::Ever => all.insert(key(emulator), known(None)),
        KnownFor::ADay => all.insert(key(emulator), known(Some(now() + DAY))),
        KnownFor::Once => all.remove(&key(emulator)),
    };
    if all != before {
        // A map of strings, numbers and plain enums always becomes JSON.
        let bytes = serde_json::to_vec_pretty(&all).unwrap_or_default();
        files::create_dir_all(cache.directory())?;
        files::write_atomic(cache.accelerators(), bytes)?;
    }
    Ok(())
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What is below KVM: this machine's processor and its kernel.
pub fn host() -> String {
    format!("{}\n{}", host_processor(), kernel())
}

fn kernel() -> String {
    files::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// The processor, as far as an accelerator depends on it.
fn host_processor() -> String {
    let info = files::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let wanted = |line: &&str| line.starts_with("model name") || line.starts_with("flags");
    info.lines().filter(wanted).take(2).collect::<Vec<_>>().join("\n")
}

fn key(emulator: &Emulator) -> String {
    sha256(format!("{VERSION}\n{}\n{}\n{}", emulator.version(), kernel(), host_processor()))
}

/// What is remembered and not over; nothing when it cannot be read, for it can be found out again.
fn remembered(cache: &Cache) -> BTreeMap<String, KnownChoice> {
    let bytes = files::read(cache.accelerators()).unwrap_or_default();
    let mut all: BTreeMap<String, KnownChoice> = serde_json::from_slice(&bytes).unwrap_or_default();
    let now = now();
    // What would last longer was noted before the clock was set back.
    all.retain(|_, known| known.until.is_none_or(|until| (now..=now + DAY).contains(&until)));
    all
}

/// Boots once under KVM: what is to be chosen then, and for how long that is known.
fn probe(
    limit: Duration,
    cache: &Cache,
    emulator: &Emulator,
    image: &Image,
) -> Result<(Choice, KnownFor), BoardError> {
    files::create_dir_all(cache.directory())?;
    let log = cache.directory().join(format!("kvm-probe-{}.log", unforeseen()));
    let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    let mut process = emulator
        .command()
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
        .args(["-machine", "q35", "-accel", "kvm", "-cpu", "max", "-smp", "2", "-m", "512M"])
        .args(["-kernel", &text(image.kernel(BoardKernel::Standard)), "-initrd", &text(image.initramfs())])
        .args(["-append", "console=ttyS0 panic=-1 penstock.probe=1", "-serial", "stdio"])
        .start_logged(files::append(&log)?)?;
    let started = Instant::now();
    let found = loop {
        let ended = process.ended().is_some();
        let said = log::tail(&log, SAID);
        let took = started.elapsed();
        if said.contains(PROBED) {
            let why = format!("a kernel booted under KVM in {:.1} s", took.as_secs_f32());
            break Ok((Choice { accelerator: Accelerator::Kvm, why }, KnownFor::Ever));
        }
        if let Some(line) = said.lines().find(|line| line.contains(INTERNAL)) {
            let why = format!("a kernel does not run under this machine's KVM: {}", line.trim());
            break Ok((Choice::tcg(why), KnownFor::Ever));
        }
        if ended {
            let last = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
            break Ok((Choice::tcg(format!("QEMU does not run under KVM here: {last}")), KnownFor::Once));
        }
        if took > limit {
            let limit = limit.as_secs();
            let why =
                format!("a kernel did not boot under KVM within {limit} s; it is tried again a day later");
            break Ok((Choice::tcg(why), KnownFor::ADay));
        }
        if interrupt::pending() {
            break Err(BoardError::Interrupted { doing: "trying whether KVM works here" });
        }
        thread::sleep(Duration::from_millis(20));
    };
    drop(process);
    files::remove_file(&log)?;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with this device and this QEMU, and the cache that is there.
    fn chosen(there: &Path, device: &str, line: &str) -> Choice {
        chosen_within(Duration::from_secs(300), there, device, line)
    }

    fn chosen_within(limit: Duration, there: &Path, device: &str, line: &str) -> Choice {
        let (cache, image) = (Cache::at(there), Image::called("/images/d", "sums"));
        let device = there.join(device);
        choose_of(&device, limit, &cache, &Emulator::acted_by(line), &image, &mut |_| {}).unwrap()
    }

    /// As if it had been noted more than a day ago.
    fn a_day_later(there: &Path) {
        let file = Cache::at(there).accelerators();
        let mut all: BTreeMap<String, KnownChoice> =
            serde_json::from_slice(&files::read(&file).unwrap()).unwrap();
        for known in all.values_mut() {
            known.until = known.until.map(|until| until - DAY - 1);
        }
        files::write_atomic(file, serde_json::to_vec(&all).unwrap()).unwrap();
    }

    #[test]
    fn what_may_be_another_the_next_time_is_not_remembered() {
        let there = tempfile::tempdir().unwrap();
        let at = there.path();
        files::write_atomic(at.join("kvm"), "").unwrap();
        // What cannot be opened for writing, whoever tries.
        files::create_dir_all(at.join("forbidden")).unwrap();
        let known = || files::exists(Cache::at(at).accelerators());
        for (device, line, why) in [
            ("nothing", "exit 9", "this machine has no "),
            ("forbidden", "exit 9", "cannot be opened"),
            ("kvm", "echo 'Cannot allocate memory' >&2; exit 1", "here: Cannot allocate memory"),
        ] {
            let choice = chosen(at, device, line);
            assert_eq!(choice.accelerator, Accelerator::Tcg);
            assert!(choice.why.contains(why), "{}", choice.why);
            assert!(!known(), "{why}");
        }
        let boots = format!("echo '{PROBED}'; exec sleep 600");
        let booted = chosen(at, "kvm", &boots);
        assert_eq!(booted.accelerator, Accelerator::Kvm);
        // One who may not open it has another, and takes nothing from the others.
        assert!(chosen(at, "forbidden", "exit 9").why.contains("cannot be opened"));
        assert_eq!(chosen(at, "kvm", "exit 9"), booted);
        assert_eq!(files::list(at).unwrap(), ["accelerators.json", "forbidden", "kvm"]);
    }

    #[test]
    fn a_kvm_under_which_nothing_comes_up_is_tried_once_a_day() {
        let there = tempfile::tempdir().unwrap();
        let (at, emulator) = (there.path(), Emulator::acted_by(""));
        let cache = Cache::at(at);
        files::write_atomic(at.join("kvm"), "").unwrap();
        let boots = format!("echo '{PROBED}'; exec sleep 600");
        let hung = chosen_within(Duration::from_millis(100), at, "kvm", "exec sleep 600");
        assert!(hung.why.contains("did not boot under KVM within"), "{}", hung.why);
        assert_eq!(chosen(at, "kvm", &boots), hung);
        set_aside(&cache, &emulator).unwrap();
        assert_eq!(chosen(at, "kvm", &boots), hung, "that is known already");
        a_day_later(at);
        assert_eq!(chosen(at, "kvm", &boots).accelerator, Accelerator::Kvm);
        a_day_later(at);
        assert_eq!(
            chosen(at, "kvm", "exit 9").accelerator,
            Accelerator::Kvm,
            "that it boots is known for ever"
        );
        // A board that came up without it alone.
        set_aside(&cache, &emulator).unwrap();
        let aside = chosen(at, "kvm", &boots);
        assert!(
            aside.accelerator == Accelerator::Tcg && aside.why.contains("did without it"),
            "{}",
            aside.why
        );
        a_day_later(at);
        assert_eq!(chosen(at, "kvm", &boots).accelerator, Accelerator::Kvm);
    }

    #[test]
    fn a_board_that_failed_under_kvm_takes_it_from_no_other() {
        let there = tempfile::tempdir().unwrap();
        let (cache, image) = (Cache::at(there.path()), Image::called("/images/d", "sums"));
        files::write_atomic(there.path().join("kvm"), "").unwrap();
        let boots = format!("echo '{PROBED}'; exec sleep 600");
        let booted = chosen(there.path(), "kvm", &boots);
        let after = |line: &str| {
            after_failure(&cache, &Emulator::acted_by(line), &image, "not ready", &mut |_| {}).unwrap()
        };
        let choice = after(&boots);
        assert_eq!(choice.accelerator, Accelerator::Tcg);
        assert!(choice.why.ends_with("and this board did not: not ready"), "{}", choice.why);
        let again = chosen(there.path(), "kvm", "exit 9");
        assert_eq!(again.accelerator, booted.accelerator);
        let choice = after(&format!("echo '{INTERNAL}. Suberror: 1'; exec sleep 600"));
        assert!(choice.why.starts_with("KVM failed: not ready; a kernel does not run"), "{}", choice.why);
        assert_eq!(chosen(there.path(), "kvm", &boots).accelerator, Accelerator::Tcg, "KVM itself said so");
    }
}
