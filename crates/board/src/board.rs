//! A board that runs.

mod bridges;
mod clock;
#[cfg(test)]
mod tests;
mod up;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Command, Place, interrupt,
    process::{Background, quoted},
};

use penstock_model::GuestName;

use self::up::Up;
use crate::{
    accelerator::{self, Accelerator, Choice},
    cache::Cache,
    control::Control,
    design::Design,
    disk::Lasting,
    emulator::Emulator,
    error::BoardError,
    failed::with_logs,
    forward::Forward,
    image::Image,
    kept::{self, KeptBoard, KeptBoards},
    kernel::KernelChoice,
    machine::{self, DYING, KERNEL_STARTS, READY},
    program,
    progress::{Listener, Progress},
    saved,
    shell::Shell,
};

/// How a board is to be brought up.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// Boot it even though one like it is saved.
    pub cold: bool,
    /// Save it when it is ready and none like it is saved.
    pub save: bool,
    /// The name under which it can stay after [`Board::detach`]. `None`: it ends with this process.
    pub name: Option<String>,
    /// How long a boot may take.
    pub timeout: Duration,
    /// Whether it has a disk or systemd. One with a disk is booted each time: a saved one would not know its disk.
    pub lasting: Lasting,
    /// The program that is an embedded switch, with the arguments that come before its configuration. Only needed by boards
    /// that have one.
    pub switch: Option<Command>,
    /// A program of this machine that [`Board::install`] puts into the board.
    pub program: Option<PathBuf>,
    /// A file of this machine that the board has as one more disk, which it can only read: its serial number there is
    /// [`FILES_SERIAL`](crate::FILES_SERIAL).
    pub files: Option<PathBuf>,
    /// A way from the board to a port of this machine.
    pub forward: Option<Forward>,
}

impl Default for UpOptions {
    fn default() -> UpOptions {
        let lasting = Lasting::default();
        UpOptions {
            cold: false,
            save: true,
            name: None,
            timeout: TIMEOUT,
            lasting,
            switch: None,
            program: None,
            files: None,
            forward: None,
        }
    }
}

/// How long a boot may take where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(180);

/// How often the console of a board that was reset is looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// How many ports of the loopback interface are tried.
const PORTS: usize = 5;

/// The account on a board that is for consoles of guests.
const CONSOLE_ACCOUNT: &str = "console";

/// What makes SSH use a terminal, on a connection of its own: on a shared one nobody tells the board that a client was
/// killed, and what it ran there stays, with the right to write to a console.
const ALONE: [&str; 3] = ["-t", "-S", "none"];

/// How long the first connection may take.
const SSH_TIMEOUT: Duration = Duration::from_secs(60);

/// A running board. Dropped, it is ended and its files are removed, unless it was [detached](Board::detach).
///
/// The kernel ends it too when the thread that brought it up ends: keep that thread.
#[derive(Debug)]
pub struct Board {
    kept: KeptBoard,
    directory: PathBuf,
    shell: Shell,
    /// QEMU and its switches; none when another Penstock started them, or when they are to stay.
    processes: Vec<Background>,
    timings: Vec<(&'static str, Duration)>,
    warm: bool,
}

impl Board {
    /// Brings a board up: resumes one like it where one is saved, else boots it, saves it, and lets it run on. It is
    /// up when its first command has run over SSH.
    ///
    /// # Errors
    ///
    /// [`BoardError`] when a program is missing, no QEMU fits, the board's name is taken, QEMU ends, or it is not up in time;
    /// its processes are ended and its files removed then.
    pub fn up(
        design: Design,
        image: &Image,
        cache: &Cache,
        options: &UpOptions,
        listener: Listener<'_>,
    ) -> Result<Board, BoardError> {
        let started = Instant::now();
        Shell::check_tools()?;
        let emulator = Emulator::find(image)?;
        let mut choice = match design.icount {
            true => Choice::counting(),
            false => accelerator::choose(cache, &emulator, image, listener)?,
        };
        let mut timings = vec![("prepare", started.elapsed())];
        saved::evict(cache)?;
        if let Some(name) = &options.name {
            for died in kept::clear_ended(cache, Some(name))? {
                listener(Progress::Note(format!("Before, {died}")));
            }
        }
        let (mut ports, mut failed) = (PORTS, false);
        loop {
            let Choice { accelerator, why } = &choice;
            listener(Progress::Note(format!("Accelerator: {} ({why})", accelerator.name())));
            let KernelChoice { kernel, why } = &design.kernel;
            listener(Progress::Note(format!("Kernel: {} ({why})", kernel.name())));
            let up = Up { design: &design, image, cache, options, emulator: &emulator, choice: &choice };
            match up.attempt(&mut timings, listener) {
                // Between the moment that a port is found free and QEMU's taking it, another may: then another is tried.
                Err(BoardError::EmulatorEnded { why }) if machine::lacks_port(&why) => {
                    ports -= 1;
                    if ports == 0 {
                        return Err(BoardError::Port { why });
                    }
                }
                Err(error @ (BoardError::NotReady { .. } | BoardError::EmulatorEnded { .. }))
                    if choice.accelerator == Accelerator::Kvm =>
                {
                    // One whose QEMU has ended says more of this machine's memory than of KVM.
                    failed |= matches!(error, BoardError::NotReady { .. });
                    choice =
                        accelerator::after_failure(cache, &emulator, image, &error.to_string(), listener)?;
                }
                outcome => {
                    if failed && outcome.is_ok() {
                        // The board is none the worse for it where that cannot be noted.
                        let _ = accelerator::set_aside(cache, &emulator);
                    }
                    return outcome;
                }
            }
        }
    }

    /// Finds out what a first board would find out, so that it starts at once: whether KVM works here.
    ///
    /// # Errors
    /// When the image's QEMU cannot be run, or the cache cannot be written.
    pub fn prepare(image: &Image, cache: &Cache, listener: Listener<'_>) -> Result<(), BoardError> {
        accelerator::choose(cache, &Emulator::find(image)?, image, listener).map(drop)
    }

    /// A board that stayed, by name.
    ///
    /// # Errors
    ///
    /// [`BoardError::NoSuchBoard`] with those that there are, [`BoardError::Elsewhere`] for one of another machine or a container, [`BoardError::Died`] for one whose QEMU has ended by itself, which is cleared away then,
    /// [`BoardError::Stuck`] or [`BoardError::File`] for one that is to be gone and cannot be ended, [`BoardError::Name`] for a name that no board can have.
    pub fn attach(cache: &Cache, name: &str) -> Result<Board, BoardError> {
        let directory = kept::directory(cache, name)?;
        let KeptBoards { running: boards, ended, elsewhere, stuck } = kept::list(cache, Some(name))?;
        if let Some(board) = elsewhere.iter().find(|board| board.name == name) {
            return Err(BoardError::elsewhere(board, directory));
        }
        if let Some(ended) = ended.into_iter().find(|board| board.name == name) {
            return Err(kept::clear(cache, ended)?);
        }
        if let Some((_, error)) = stuck.into_iter().find(|(stuck, _)| stuck == name) {
            return Err(error);
        }
        let found = boards.iter().find(|board| board.name == name);
        let Some(kept) = found.cloned() else {
            return Err(BoardError::NoSuchBoard {
                name: name.to_owned(),
                kept: boards.into_iter().map(|board| board.name).collect(),
            });
        };
        Ok(Board {
            shell: Shell::new(&directory, kept.port),
            kept,
            directory,
            processes: Vec::new(),
            timings: Vec::new(),
            warm: false,
        })
    }

    /// Ends a board that stayed.
    ///
    /// # Errors
    ///
    /// As [`attach`](Board::attach) and [`down`](Board::down).
    pub fn drop_kept(cache: &Cache, name: &str) -> Result<(), BoardError> {
        Board::attach(cache, name)?.down()
    }

    /// The boards that run.
    ///
    /// # Errors
    ///
    /// [`BoardError::File`] when the directory of kept boards cannot be read.
    pub fn list(cache: &Cache) -> Result<Vec<KeptBoard>, BoardError> {
        Ok(kept::list(cache, None)?.running)
    }

    /// The boards of other machines and containers, where the directory of kept boards is theirs, too.
    ///
    /// # Errors
    ///
    /// As [`list`](Board::list).
    pub fn elsewhere(cache: &Cache) -> Result<Vec<KeptBoard>, BoardError> {
        Ok(kept::list(cache, None)?.elsewhere)
    }

    /// All boards that are there, those of other machines and containers last, once those are cleared away whose QEMU has ended by itself; and
    /// what [`clear_ended`](Board::clear_ended) gives of these and of what keeps others.
    ///
    /// # Errors
    ///
    /// As [`list`](Board::list).
    pub fn survey(cache: &Cache) -> Result<(Vec<KeptBoard>, Vec<BoardError>), BoardError> {
        kept::survey(cache)
    }

    /// Clears boards away that stayed and whose QEMU has ended by itself: that of this name, or all. Gives why each ended ([`BoardError::Died`]),
    /// and what keeps those that are to be gone ([`BoardError::Stuck`], [`BoardError::File`]).
    ///
    /// # Errors
    ///
    /// [`BoardError::File`] when the directory of kept boards cannot be read.
    pub fn clear_ended(cache: &Cache, name: Option<&str>) -> Result<Vec<BoardError>, BoardError> {
        kept::clear_ended(cache, name)
    }

    /// Lets it run on when this process ends. Only for a board that was given a name.
    ///
    /// # Errors
    ///
    /// [`BoardError::File`] when it cannot be written down that it stays; it ends then.
    pub fn detach(mut self) -> Result<(), BoardError> {
        self.kept.owner = None;
        self.kept.write(&self.directory)?;
        std::mem::take(&mut self.processes).into_iter().for_each(Background::leave);
        Ok(())
    }

    /// Ends it and removes its files.
    ///
    /// # Errors
    ///
    /// [`BoardError::Stuck`] when its QEMU does not end, [`BoardError::File`] when a file cannot be removed.
    pub fn down(mut self) -> Result<(), BoardError> {
        self.processes.clear();
        self.kept.end(&self.directory)
    }

    /// Whether it can be reset: what it was furnished with outlives that.
    ///
    /// # Errors
    ///
    /// [`BoardError::NoDisk`] for a board without a disk that keeps what it writes.
    pub fn check_reset(&self) -> Result<(), BoardError> {
        match self.kept.can_be_reset {
            true => Ok(()),
            false => Err(BoardError::NoDisk { name: self.kept.name.clone() }),
        }
    }

    /// Resets it as its reset button would, and waits until it is up again. What its kernel had not written to its disk is
    /// lost. With `orderly` it is asked to reboot instead, and ends what runs in it first.
    ///
    /// # Errors
    ///
    /// As [`check_reset`](Board::check_reset); [`BoardError`] when QEMU does not answer, or the board is not up again in time; its logs are kept in the cache then.
    pub fn reset(&self, orderly: bool, cache: &Cache) -> Result<(), BoardError> {
        self.check_reset()?;
        let said = machine::said_so_far(&self.directory);
        let mut deadline = Instant::now() + TIMEOUT;
        if orderly {
            // It may be gone before it has answered.
            let _ = self.remote(&Command::new("sh").args(["-c", REBOOT]).deadline(SSH_TIMEOUT)).run();
        } else {
            let mut control = Control::connect(&machine::control_socket(&self.directory), deadline)?;
            control.ask("reset the board", "system_reset", serde_json::Value::Null)?;
        }
        // Nobody at the other end of the kept connection will ever answer again.
        self.shell.hang_up();
        let mut boots = false;
        loop {
            let since = machine::said_since(&self.directory, said);
            if since.contains(READY) {
                break;
            }
            if !boots && since.contains(KERNEL_STARTS) {
                // What it took to end is not the boot's.
                (boots, deadline) = (true, Instant::now() + TIMEOUT);
            }
            if interrupt::pending() {
                return Err(BoardError::Interrupted { doing: "waiting for the board" });
            }
            if !self.kept.is_up() {
                return Err(self.last_words());
            }
            if Instant::now() > deadline {
                let console = machine::last_lines(&self.directory);
                let error = BoardError::NotReady { after: TIMEOUT, console, logs: None };
                return Err(with_logs(error, cache, &self.kept.name, &self.directory));
            }
            thread::sleep(PAUSE);
        }
        // A connection that was made while it went down.
        self.shell.hang_up();
        self.settle()?;
        self.make_bridges_again()
    }

    /// The name by which `penstock board` knows it.
    pub fn name(&self) -> &str {
        &self.kept.name
    }

    /// Its QEMU's version.
    pub fn emulator_version(&self) -> &str {
        &self.kept.emulator
    }

    /// What executes it, and why that and not another.
    pub fn accelerator(&self) -> (&str, &str) {
        (self.kept.choice.accelerator.name(), &self.kept.choice.why)
    }

    /// Whether it was resumed rather than booted.
    pub fn is_warm(&self) -> bool {
        self.warm
    }

    /// What each phase of bringing it up took, in order.
    pub fn timings(&self) -> &[(&'static str, Duration)] {
        &self.timings
    }

    /// Everything that its console has said, from the first byte, but of much the last 4 MiB; that of the saved board before it, for one
    /// that was resumed.
    pub fn serial_log(&self) -> String {
        machine::serial_log(&self.directory)
    }

    /// Why it is not there any more; `None` while its QEMU runs. To be asked when a connection to it broke off, which it
    /// does a moment before the process is gone.
    pub fn died(&self) -> Option<BoardError> {
        let deadline = Instant::now() + DYING;
        while self.kept.is_up() {
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(PAUSE);
        }
        Some(self.last_words())
    }

    fn last_words(&self) -> BoardError {
        BoardError::Died { name: self.kept.name.clone(), why: machine::last_words(&self.directory) }
    }

    /// The command that enters it, or runs `words` in it, on this terminal: one word alone is a line for the shell there, as `ssh` takes it, and
    /// several are a program and its arguments, which are passed on as they are. They get a terminal of their own there when `terminal` says so.
    pub fn ssh_command(&self, words: &[String], terminal: bool) -> Command {
        let ssh = if terminal { self.shell.ssh().args(ALONE) } else { self.shell.ssh() };
        match words {
            [] => ssh,
            [line] if !line.is_empty() => ssh.arg("--").arg(line),
            words => ssh.arg("--").arg(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")),
        }
    }

    /// The command that attaches this terminal to the console of `guest`, as the account that may do nothing else.
    pub fn console_command(&self, guest: &GuestName) -> Command {
        self.shell.ssh_as(CONSOLE_ACCOUNT).args(ALONE).arg("--").arg(guest.as_str())
    }

    /// The same words as a place would run them.
    pub(crate) fn remote(&self, command: &Command) -> Command {
        self.shell.remote(command)
    }

    /// Makes the connection by loading the driver of the lines to embedded switches, which only udev would, and sets the clock.
    fn settle(&self) -> Result<(), BoardError> {
        let driver = Command::new("modprobe").arg("virtio_console").deadline(SSH_TIMEOUT);
        let loaded = self.remote(&driver).succeed();
        loaded.map_err(|error| BoardError::Unreachable { why: error.to_string() })?;
        clock::set(SSH_TIMEOUT, clock::here, |command| self.remote(command).run())
    }

    /// Puts the program that it was brought up with ([`UpOptions::program`]) to this path in it, and gives it a machine-id if it has none.
    ///
    /// # Errors
    ///
    /// [`BoardError`] when it was brought up without one, or as [`write`](Board::write).
    pub fn install(&self, remote: &str) -> Result<(), BoardError> {
        self.run(&program::installer(&self.directory, remote)?)?.succeeded()?;
        Ok(())
    }

    /// Writes a file in it whole or not at all, with these permissions.
    ///
    /// # Errors
    ///
    /// [`BoardError`] when the board does not answer over SSH, or the file cannot be written there.
    pub fn write(&self, remote: &str, bytes: &[u8], mode: u32) -> Result<(), BoardError> {
        let script = r#"cat >"$1.part" && chmod "$2" "$1.part" && mv "$1.part" "$1""#;
        let command = Command::new("sh")
            .args(["-c", script, "sh", remote, &format!("{mode:o}")])
            .input(bytes)
            .deadline(Duration::from_secs(300));
        self.run(&command)?.succeeded()?;
        Ok(())
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // A kept board of another Penstock, and a detached one, have no process here.
        if !std::mem::take(&mut self.processes).is_empty() {
            let _ = self.kept.end(&self.directory);
        }
    }
}

/// What makes a board reboot by itself.
const REBOOT: &str = "if [ -d /run/systemd/system ]; then systemctl reboot; else sync; busybox reboot -f; fi >/dev/null 2>&1 &";
