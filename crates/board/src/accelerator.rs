//! What executes the board's instructions: KVM when it has really booted once, else QEMU itself.
//!
//! That `/dev/kvm` exists and opens proves nothing: in some virtual machines a stock kernel then dies with "KVM
//! internal error". So the image's kernel is booted once as far as its first file system, and the outcome is kept for
//! this QEMU, this host kernel and this processor: that it boots, or that KVM itself said why not. What a permission, a lack of memory or
//! a busy machine has done may be another the next time, and is not kept.

use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{files, interrupt};
use penstock_model::{BoardKernel, digest::sha256};
use serde::{Deserialize, Serialize};

use crate::{
    cache::{Cache, unforeseen},
    emulator::Emulator,
    error::BoardError,
    image::Image,
    machine,
    progress::{Listener, Progress},
};

/// What an accelerator is known by; counts changes of what is kept of them.
const VERSION: u32 = 2;
/// The device that is KVM.
const DEVICE: &str = "/dev/kvm";
/// What QEMU says when KVM cannot go on (`kvm_cpu_exec` of accel/kvm/kvm-all.c).
const INTERNAL: &str = "KVM internal error";
/// The most that is read of what a kernel says that is only asked whether it runs.
const SAID: usize = 1 << 16;
/// How long the first boot under KVM may take. Where KVM works it takes two seconds; where it does not, it took 14 s on a busy machine until
/// KVM said so.
const TIMEOUT: Duration = Duration::from_secs(30);
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

/// Chooses, booting once under KVM when there is one of which nothing is known yet.
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
    if let Some(choice) = remembered(cache).remove(&key(emulator)) {
        return Ok(choice);
    }
    listener(Progress::Phase("Trying whether KVM works here".to_owned()));
    try_and_remember(limit, cache, emulator, image)
}

/// What executes a board that did not boot under KVM: KVM no more. Whether that was the board's own fault or KVM's is tried, so that the next
/// board has what is best for it.
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

fn try_and_remember(
    limit: Duration,
    cache: &Cache,
    emulator: &Emulator,
    image: &Image,
) -> Result<Choice, BoardError> {
    let (choice, lasts) = probe(limit, cache, emulator, image)?;
    let mut all = remembered(cache);
    let before = all.clone();
    match lasts {
        true => all.insert(key(emulator), choice.clone()),
        false => all.remove(&key(emulator)),
    };
    if all != before {
        // A map of strings and plain enums always becomes JSON.
        let bytes = serde_json::to_vec_pretty(&all).unwrap_or_default();
        files::create_dir_all(cache.directory())?;
        files::write_atomic(cache.accelerators(), bytes)?;
    }
    Ok(choice)
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

/// What is remembered; nothing when it cannot be read, for it can be found out again.
fn remembered(cache: &Cache) -> BTreeMap<String, Choice> {
    let bytes = files::read(cache.accelerators()).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Boots once under KVM: what is to be chosen then, and whether it would be the same the next time.
fn probe(
    limit: Duration,
    cache: &Cache,
    emulator: &Emulator,
    image: &Image,
) -> Result<(Choice, bool), BoardError> {
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
        let said = machine::tail(&log, SAID);
        let took = started.elapsed();
        if said.contains(PROBED) {
            let why = format!("a kernel booted under KVM in {:.1} s", took.as_secs_f32());
            break Ok((Choice { accelerator: Accelerator::Kvm, why }, true));
        }
        if let Some(line) = said.lines().find(|line| line.contains(INTERNAL)) {
            let why = format!("a kernel does not run under this machine's KVM: {}", line.trim());
            break Ok((Choice::tcg(why), true));
        }
        if ended {
            let last = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
            break Ok((Choice::tcg(format!("QEMU does not run under KVM here: {last}")), false));
        }
        if took > limit {
            let limit = limit.as_secs();
            break Ok((Choice::tcg(format!("a kernel did not boot under KVM within {limit} s")), false));
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

    /// A machine with this device and this QEMU, and a cache that knows nothing.
    fn chosen(there: &Path, device: &str, line: &str) -> Choice {
        let (cache, image) = (Cache::at(there), Image::called("/images/d", "sums"));
        let device = there.join(device);
        choose_of(&device, Duration::from_millis(100), &cache, &Emulator::acted_by(line), &image, &mut |_| {})
            .unwrap()
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
            ("kvm", "exec sleep 600", "did not boot under KVM within"),
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
