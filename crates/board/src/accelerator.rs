//! What executes the board's instructions: KVM when it has really booted once, else QEMU itself.
//!
//! That `/dev/kvm` exists and opens proves nothing: in some virtual machines a stock kernel then dies with "KVM
//! internal error". So the image's kernel is booted once as far as its first file system, and the outcome is kept for
//! this QEMU, this host kernel and this processor.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use penstock_host::files;
use penstock_model::{BoardKernel, digest::sha256};
use serde::{Deserialize, Serialize};

use crate::{
    cache::{Cache, unforeseen},
    emulator::Emulator,
    error::BoardError,
    image::Image,
    progress::{Listener, Progress},
};

/// How long the first boot under KVM may take. Where KVM works it takes two seconds.
const TIMEOUT: Duration = Duration::from_secs(15);
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

/// Chooses, booting once under KVM when there is one that has not been tried.
pub fn choose(
    cache: &Cache,
    emulator: &Emulator,
    image: &Image,
    listener: Listener<'_>,
) -> Result<Choice, BoardError> {
    if !files::exists("/dev/kvm") {
        return Ok(Choice::tcg("this machine has no /dev/kvm"));
    }
    let key = key(emulator);
    if let Some(choice) = remembered(cache).remove(&key) {
        return Ok(choice);
    }
    listener(Progress::Phase("Trying whether KVM works here".to_owned()));
    let choice = probe(cache, emulator, image)?;
    remember(cache, key, &choice)?;
    Ok(choice)
}

/// Notes that KVM, although it once booted, has failed now.
pub fn forget_kvm(cache: &Cache, emulator: &Emulator, why: &str) -> Result<Choice, BoardError> {
    let choice = Choice::tcg(format!("KVM failed: {why}"));
    remember(cache, key(emulator), &choice)?;
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
    sha256(format!("{}\n{}\n{}", emulator.version(), kernel(), host_processor()))
}

/// What is remembered; nothing when it cannot be read, for it can be found out again.
fn remembered(cache: &Cache) -> BTreeMap<String, Choice> {
    let bytes = files::read(cache.accelerators()).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn remember(cache: &Cache, key: String, choice: &Choice) -> Result<(), BoardError> {
    let mut all = remembered(cache);
    all.insert(key, choice.clone());
    // A map of strings and plain enums always becomes JSON.
    let bytes = serde_json::to_vec_pretty(&all).unwrap_or_default();
    files::create_dir_all(cache.directory())?;
    Ok(files::write_atomic(cache.accelerators(), bytes)?)
}

fn probe(cache: &Cache, emulator: &Emulator, image: &Image) -> Result<Choice, BoardError> {
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
    let choice = loop {
        let ended = process.ended().is_some();
        let said = files::read(&log)?;
        let said = String::from_utf8_lossy(&said);
        let took = started.elapsed();
        if said.contains(PROBED) {
            break Choice {
                accelerator: Accelerator::Kvm,
                why: format!("a kernel booted under KVM in {:.1} s", took.as_secs_f32()),
            };
        }
        if let Some(line) = said.lines().find(|line| line.contains("KVM internal error")) {
            break Choice::tcg(format!("a kernel does not run under this machine's KVM: {}", line.trim()));
        }
        if ended {
            let last = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
            break Choice::tcg(format!("QEMU does not run under KVM here: {last}"));
        }
        if took > TIMEOUT {
            let limit = TIMEOUT.as_secs();
            break Choice::tcg(format!("a kernel did not boot under KVM within {limit} s"));
        }
        thread::sleep(Duration::from_millis(20));
    };
    drop(process);
    files::remove_file(&log)?;
    Ok(choice)
}
