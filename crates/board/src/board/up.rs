//! Bringing a board up: resuming one that is saved, or booting it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use penstock_host::{
    files, interrupt,
    running::{Running, RunsOn},
};

use super::{Board, UpOptions};
use crate::{
    accelerator::{Accelerator, Choice},
    cache::Cache,
    complaints,
    design::Design,
    emulator::Emulator,
    error::BoardError,
    failed::with_logs,
    image::Image,
    kept::{self, KeptBoard},
    machine::{Machine, READY, Run, SETTLED},
    origin::Origin,
    program,
    progress::{Listener, Progress},
    saved::{self, Saved, Unsaved},
    shell::Shell,
};

/// How often a board is booted whose kernel QEMU's emulation stopped (see [`complaints::stale_trap`]): once in some thousand boots it does, and
/// nothing has been done with the board by then.
pub(super) const BOOTS: usize = 3;

/// How long systemd may go on with its units on a board that is ready, before it is left unsaved.
const SETTLING: Duration = Duration::from_secs(120);

/// How long a resume or a save may take before it is given up for a boot. QEMU needs longer than linear for many VFs:
/// some 20 s for 200 on a busy machine.
fn resume_timeout(design: &Design) -> Duration {
    Duration::from_secs(30 + u64::from(design.total_vfs()) / 3)
}

/// The directory of a board that is being brought up, removed unless that succeeds.
struct Making {
    directory: PathBuf,
    kept: KeptBoard,
    done: bool,
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.done {
            let _ = files::remove_tree(&self.directory);
        }
    }
}

/// What does not change between the attempts to bring a board up.
pub(super) struct Up<'a> {
    pub(super) design: &'a Design,
    pub(super) image: &'a Image,
    pub(super) cache: &'a Cache,
    pub(super) options: &'a UpOptions,
    pub(super) emulator: &'a Emulator,
    pub(super) choice: &'a Choice,
}

/// Why a saved board is not resumed where one that is booted may come up.
struct Unresumed {
    why: BoardError,
    /// Whether QEMU has read what is saved, so that it may be at fault.
    read: bool,
}

impl Up<'_> {
    pub(super) fn attempt(
        &self,
        timings: &mut Vec<(&'static str, Duration)>,
        listener: Listener<'_>,
    ) -> Result<Board, BoardError> {
        // Of no directory: nothing that it boots from depends on where it is.
        let saved = Saved::place(self.cache, Origin::of(&self.run(Path::new(""))));
        if !self.options.cold && self.options.lasting.can_be_saved() && saved.is_there() {
            listener(Progress::Phase("Resuming the saved board".to_owned()));
            let mut spent = timings.clone();
            match self.resume(&saved, &mut spent)? {
                Ok(board) => return Ok(board),
                Err(Unresumed { why: error @ BoardError::Interrupted { .. }, .. }) => return Err(error),
                Err(Unresumed { why, read }) => {
                    listener(Progress::Note(format!(
                        "The saved board did not resume ({why}); booting instead"
                    )));
                    if read {
                        saved.discard()?;
                    }
                }
            }
        }
        listener(Progress::Phase("Booting the board".to_owned()));
        for _ in 1..BOOTS {
            match self.boot(&saved, timings, listener) {
                Err(BoardError::StaleTrap { trap, .. }) => listener(Progress::Note(format!(
                    "QEMU ran code that the board's kernel had replaced, which ended it ({trap}); booting it again"
                ))),
                outcome => return outcome,
            }
        }
        self.boot(&saved, timings, listener)
    }

    fn boot(
        &self,
        saved: &Saved,
        timings: &mut Vec<(&'static str, Duration)>,
        listener: Listener<'_>,
    ) -> Result<Board, BoardError> {
        let mut making = self.directory()?;
        timed(timings, "keys", || Shell::make_keys(&making.directory))?;
        self.options.lasting.furnish(&making.directory, self.image, self.design.vms)?;
        let mut machine = timed(timings, "start QEMU", || self.start(&mut making, false))?;
        let ready = timed(timings, "boot", || machine.await_sign(READY, self.options.timeout));
        let not_ready = |error, machine: &Machine, making: &Making| match error {
            BoardError::EmulatorEnded { why } => self.ended(why, &machine.serial_log()),
            other => with_logs(other, self.cache, &making.kept.name, &making.directory),
        };
        ready.map_err(|error| not_ready(error, &machine, &making))?;
        if !self.options.lasting.can_be_saved() {
            // Nor would it be the same board the next time.
        } else if let Some(what) = self.design.cannot_be_saved() {
            let why = format!("The board has {what}, which QEMU cannot save: it boots anew each time");
            listener(Progress::Note(why));
        } else if self.options.save && !saved.is_there() {
            // A board that cannot be saved is a board all the same.
            let outcome = timed(timings, "save", || {
                if self.options.lasting.systemd {
                    machine.await_sign(SETTLED, SETTLING)?;
                }
                saved.save(&machine, &making.directory, Instant::now() + resume_timeout(self.design))
            });
            match outcome {
                Ok(()) => {}
                Err(Unsaved { why, runs_on: true }) => {
                    listener(Progress::Note(format!("The board could not be saved: {why}")));
                }
                // Nobody would ever get into it.
                Err(Unsaved { why, runs_on: false }) => {
                    let why = machine.blame(why);
                    return Err(not_ready(why, &machine, &making));
                }
            }
        }
        self.enter(making, machine, timings, false)
    }

    /// What the end of QEMU during a boot means that left this console.
    fn ended(&self, why: String, console: &str) -> BoardError {
        // A processor does not run what has been replaced.
        let emulated = self.choice.accelerator != Accelerator::Kvm;
        match complaints::stale_trap(console) {
            Some(trap) if emulated => BoardError::StaleTrap { trap: trap.to_owned(), why },
            _ => BoardError::EmulatorEnded { why },
        }
    }

    /// Of the outer error a board that is booted would fail, too.
    fn resume(
        &self,
        saved: &Saved,
        timings: &mut Vec<(&'static str, Duration)>,
    ) -> Result<Result<Board, Unresumed>, BoardError> {
        let mut making = self.directory()?;
        // Another Penstock may have removed it meanwhile.
        if let Err(why) = saved.furnish(&making.directory) {
            return Ok(Err(Unresumed { why, read: false }));
        }
        // QEMU wants the file even though nothing is booted from it.
        self.options.lasting.furnish(&making.directory, self.image, self.design.vms)?;
        let mut machine = timed(timings, "start QEMU", || self.start(&mut making, true))?;
        let deadline = Instant::now() + resume_timeout(self.design);
        let resumed = timed(timings, "resume", || {
            let control = match saved::to_resume(&machine, deadline) {
                Ok(control) => control,
                Err(error) => match machine.blame(error) {
                    ended @ BoardError::EmulatorEnded { .. } => return Err(ended),
                    why => return Ok(Err(Unresumed { why, read: false })),
                },
            };
            Ok(saved.resume(control).map_err(|why| Unresumed { why, read: true }))
        })?;
        match resumed {
            Ok(()) => {
                let entered = self.enter(making, machine, timings, true);
                Ok(entered.map_err(|why| Unresumed { why, read: true }))
            }
            Err(unresumed) => Ok(Err(unresumed)),
        }
    }

    /// A fresh directory for the board, with what is known of it.
    fn directory(&self) -> Result<Making, BoardError> {
        let board = |name| KeptBoard {
            name,
            port: 0,
            qemu: None,
            switches: Vec::new(),
            owner: Running::this(),
            runs_on: Some(RunsOn::here()),
            emulator: self.emulator.version().to_owned(),
            choice: self.choice.clone(),
            program: Some(self.emulator.program().to_owned()),
            kernel: self.design.kernel.kernel,
            can_be_reset: self.options.lasting.disk,
            bridges: BTreeSet::new(),
        };
        let (directory, kept) = kept::claim(self.cache, self.options.name.as_deref(), board)?;
        let making = Making { kept, directory, done: false };
        if let Some(program) = &self.options.program {
            program::furnish(&making.directory, program)?;
        }
        if let Some(forward) = &self.options.forward {
            forward.furnish(&making.directory)?;
        }
        for drive in &self.design.drives {
            drive.furnish(&making.directory)?;
        }
        Ok(making)
    }

    /// What is run for it in this directory.
    pub(super) fn run<'r>(&'r self, directory: &'r Path) -> Run<'r> {
        Run {
            design: self.design,
            image: self.image,
            emulator: self.emulator,
            accelerator: self.choice.accelerator,
            directory,
            stays: self.options.name.is_some(),
            lasting: self.options.lasting,
            switch: self.options.switch.as_ref(),
            program: self.options.program.is_some(),
            files: self.options.files.as_deref(),
            forward: self.options.forward.as_ref(),
        }
    }

    /// Starts QEMU, and writes down at once that it runs, so that it is found should this process die.
    fn start(&self, making: &mut Making, resumes: bool) -> Result<Machine, BoardError> {
        let place = making.directory.clone();
        let Making { directory, kept, .. } = &mut *making;
        let machine = self.run(&place).start(resumes, &mut |qemu, switches| {
            kept.qemu = qemu.and_then(|qemu| Running::of(qemu.id()));
            kept.switches = switches.iter().filter_map(|switch| Running::of(switch.id())).collect();
            kept.write(directory)
        })?;
        making.kept.port = machine.port;
        making.kept.write(&making.directory)?;
        Ok(machine)
    }

    /// The first commands over SSH.
    fn enter(
        &self,
        mut making: Making,
        machine: Machine,
        timings: &mut Vec<(&'static str, Duration)>,
        warm: bool,
    ) -> Result<Board, BoardError> {
        making.done = true;
        let mut board = Board {
            kept: making.kept.clone(),
            directory: making.directory.clone(),
            shell: Shell::new(&making.directory, machine.port),
            processes: std::iter::once(machine.process).chain(machine.switches).collect(),
            timings: Vec::new(),
            warm,
        };
        let outcome = timed(timings, "ssh", || board.settle());
        if outcome.is_err() && interrupt::pending() {
            let doing = "entering the board";
            return Err(BoardError::Interrupted { doing });
        }
        outcome?;
        board.timings = timings.clone();
        Ok(board)
    }
}

fn timed<T, E>(
    timings: &mut Vec<(&'static str, Duration)>,
    name: &'static str,
    act: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let started = Instant::now();
    let outcome = act();
    timings.push((name, started.elapsed()));
    outcome
}
