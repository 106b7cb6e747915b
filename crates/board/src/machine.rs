//! One run of QEMU: what a run adds to a design, and waiting for what the board says on its console.

use std::{
    io::{ErrorKind, Read},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{Command, files, interrupt, process::Background};

use penstock_model::Board;

use crate::{
    accelerator::Accelerator,
    design::Design,
    disk::{self, Lasting},
    emulator::Emulator,
    error::BoardError,
    forward::Forward,
    image::Image,
    log, program, switch,
};

/// What the board's start script says when all is up.
pub const READY: &str = "penstock: board ready";
/// What a board with systemd says when all its units are up, which may be later.
pub const SETTLED: &str = "penstock: board settled";
/// With this each kernel begins on its console (init/version-timestamp.c).
pub const KERNEL_STARTS: &str = "Linux version ";
/// Everything that the console said, from the first byte.
pub const SERIAL_LOG: &str = "serial.log";
/// How long a QEMU whose connections broke off is given to be gone.
pub const DYING: Duration = Duration::from_secs(1);
/// The most bytes that are read of a log: a board says what it likes.
const MOST_SAID: usize = 4 << 20;
const SERIAL_SOCKET: &str = "serial";
const CONTROL_SOCKET: &str = "control";
const EMULATOR_LOG: &str = "qemu.log";
/// What QEMU notes of resets of CPUs, and why: their state at each, and [`TRIPLE_FAULT`].
const RESET_LOG: &str = "resets.log";
/// All that a board's run leaves to look at.
pub const LOGS: [&str; 3] = [SERIAL_LOG, EMULATOR_LOG, RESET_LOG];
/// What QEMU's emulated CPU says there of a fault that it resets itself for (`check_exception` of target/i386/tcg/excp_helper.c).
const TRIPLE_FAULT: &str = "Triple fault";

/// The serial number by which a board knows the disk of [`UpOptions::files`](crate::UpOptions::files)
/// (`/sys/block/DISK/serial`).
pub const FILES_SERIAL: &str = "penstock-files";

/// That disk, beside the root disk and that of the program.
const FILES_DISK: &str = "virtio-blk-pci,id=files,drive=files,bus=pcie.0,addr=2.2,serial=penstock-files";

/// Everything that a run of QEMU needs.
#[derive(Debug)]
pub struct Run<'a> {
    /// The board's CPUs, memory and devices.
    pub design: &'a Design,
    /// The image that it boots.
    pub image: &'a Image,
    /// The QEMU that runs it.
    pub emulator: &'a Emulator,
    /// What executes the guest's instructions.
    pub accelerator: Accelerator,
    /// Where its sockets, keys and logs are. QEMU's working directory.
    pub directory: &'a Path,
    /// Whether it may outlive Penstock.
    pub stays: bool,
    /// Whether it has a disk or systemd; what it starts from then is in the directory.
    pub lasting: Lasting,
    /// The program that is an embedded switch.
    pub switch: Option<&'a Command>,
    /// Whether a program is in the directory, to be read on the board from a disk.
    pub program: bool,
    /// A file that is one more disk, only to be read.
    pub files: Option<&'a Path>,
    /// A way from the board to a port of this machine.
    pub forward: Option<&'a Forward>,
}

/// What differs between runs of one board, and is no part of what it boots from ([`Origin`](crate::origin::Origin)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerRun {
    /// The loopback port of its SSH server.
    pub port: u16,
    /// Whether it waits for a saved state instead of booting.
    pub resumes: bool,
}

impl PerRun {
    /// What stands in the place of it where runs are compared. No port has the number 0.
    pub const LEFT_OUT: PerRun = PerRun { port: 0, resumes: false };
}

/// Who is told of QEMU, once it runs, and of the switches that run, so that somebody finds them when this process dies.
pub type Note<'a> = &'a mut dyn FnMut(Option<&Background>, &[Background]) -> Result<(), BoardError>;

/// A QEMU that runs.
#[derive(Debug)]
pub struct Machine {
    /// The process of QEMU.
    pub process: Background,
    /// Its embedded switches.
    pub switches: Vec<Background>,
    /// The loopback port of its SSH server.
    pub port: u16,
    directory: PathBuf,
}

impl Run<'_> {
    /// Starts QEMU, with a free port of the loopback interface forwarded to the board's SSH server; it boots, or with `resumes`
    /// waits for a saved state. `note` is told of each process as soon as it is there. QEMU ends soon where another takes that port
    /// before it does ([`lacks_port`]).
    ///
    /// # Errors
    ///
    /// When no port is free, a switch or QEMU does not start, QEMU ends or its sockets are not there within 30 s, or `note` fails;
    /// [`BoardError::Interrupted`] when an interrupt comes meanwhile.
    pub fn start(&self, resumes: bool, note: Note<'_>) -> Result<Machine, BoardError> {
        let run = PerRun { port: free_port()?, resumes };
        for name in [SERIAL_SOCKET, CONTROL_SOCKET, EMULATOR_LOG, RESET_LOG] {
            files::remove_file(self.directory.join(name))?;
        }
        // QEMU connects to them before it does anything else.
        let switches =
            switch::start(&self.design.switches, self.switch, self.directory, self.stays, &mut |switches| {
                note(None, switches)
            })?;
        let log = files::append(self.directory.join(EMULATOR_LOG))?;
        let command = self.command(run);
        let process = if self.stays { command.start_to_stay(log)? } else { command.start_logged(log)? };
        note(Some(&process), &switches)?;
        let mut machine = Machine { process, switches, port: run.port, directory: self.directory.to_owned() };
        machine.await_sockets(Instant::now() + Duration::from_secs(30))?;
        Ok(machine)
    }

    /// The whole command line. Whatever a board depends on goes through it, so that a saved board is known by it.
    pub fn command(&self, PerRun { port, resumes }: PerRun) -> Command {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let initramfs = match self.lasting.is_usual() {
            true => text(self.image.initramfs()),
            false => disk::INITRAMFS.to_owned(),
        };
        let line = self.design.kernel_command_line() + &self.lasting.kernel_command_line();
        let forward = self.forward.map(Forward::option).unwrap_or_default();
        let mut command = self
            .emulator
            .command()
            .args(["-name", "penstock", "-d", "cpu_reset", "-D", RESET_LOG])
            .args([
                "-accel",
                self.accelerator.argument(self.design.icount),
                "-cpu",
                self.accelerator.processor(),
            ])
            .args(["-kernel", &text(self.image.kernel(self.design.kernel.kernel)), "-initrd", &initramfs])
            .args(["-append", &line])
            .args(["-chardev", &serial()])
            .args(["-device", "isa-serial,id=console,chardev=console"])
            .args(["-blockdev", &read_only("root", &self.image.root())])
            // `restrict`: the board reaches nothing outside but what is forwarded; only one port leads in.
            .args(["-netdev", &format!("user,id=mgmt,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22{forward}")])
            .args(["-fw_cfg", "name=opt/penstock/host-key,file=host-key"])
            .args(["-fw_cfg", "name=opt/penstock/client-key,file=client-key.pub"])
            .args(["-qmp", &format!("unix:{CONTROL_SOCKET},server=on,wait=off")])
            .args(self.design.arguments())
            .args(self.lasting.arguments())
            .current_dir(self.directory);
        if self.program {
            command = command.args(program::ARGUMENTS);
        }
        if let Some(file) = self.files {
            command = command.args(["-blockdev", &read_only("files", file), "-device", FILES_DISK]);
        }
        if !self.design.drives.is_empty() {
            command = command.args(["-fw_cfg", "name=opt/penstock/nvme,string=1"]);
        }
        if self.design.vms {
            command = command.args(["-fw_cfg", "name=opt/penstock/vms,string=1"]);
        }
        if self.design.icount {
            // While all wait, its time passes as outside (`sleep`); while it computes nobody holds it up (`align`).
            let shift = format!("shift={},sleep=on,align=off", Board::ICOUNT_SHIFT);
            let told = format!("name={},string={}", Board::INSTRUCTION_ITEM, Board::INSTRUCTION);
            command = command.args(["-icount", &shift, "-fw_cfg", &told]);
        }
        if resumes {
            command = command.args(["-S", "-incoming", "defer"]);
        }
        command
    }
}

fn serial() -> String {
    format!("socket,id=console,path={SERIAL_SOCKET},server=on,wait=off,logfile={SERIAL_LOG},logappend=on")
}

fn read_only(node: &str, image: &Path) -> String {
    // In QEMU's option syntax a comma is doubled.
    let path = image.to_string_lossy().replace(',', ",,");
    format!("driver=file,node-name={node},read-only=on,auto-read-only=off,filename={path}")
}

fn free_port() -> Result<u16, BoardError> {
    let socket = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    socket.map(|address| address.port()).map_err(|error| BoardError::Port { why: error.to_string() })
}

impl Machine {
    /// QEMU's control socket.
    pub fn control_socket(&self) -> PathBuf {
        control_socket(&self.directory)
    }

    /// Waits until the console has said `sign`, or QEMU ended, or the deadline passed.
    ///
    /// # Errors
    ///
    /// [`BoardError::NotReady`] with the console's last lines, [`BoardError::Interrupted`], and when QEMU has ended, what it said last.
    pub fn await_sign(&mut self, sign: &str, timeout: Duration) -> Result<(), BoardError> {
        let deadline = Instant::now() + timeout;
        let failed = |source| BoardError::Socket { attempt: "read the board's console", source };
        let console = UnixStream::connect(self.directory.join(SERIAL_SOCKET));
        let mut console = console.map_err(|source| self.blame(failed(source)))?;
        // What was said before this connection is in the log.
        let mut said = self.serial_log().into_bytes();
        let mut buffer = [0; 4096];
        loop {
            if contains(&said, sign.as_bytes()) {
                return Ok(());
            }
            if interrupt::pending() {
                let doing = "booting the board";
                return Err(BoardError::Interrupted { doing });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let console = self.last_lines();
                return Err(BoardError::NotReady { after: timeout, console, logs: None });
            }
            // Short enough to notice an interrupt; what the board says comes as an event.
            let wait = left.min(Duration::from_millis(200));
            console.set_read_timeout(Some(wait)).map_err(failed)?;
            match console.read(&mut buffer) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => {
                    said.extend_from_slice(&buffer[..count]);
                    let surplus = said.len().saturating_sub(1 << 16);
                    said.drain(..surplus);
                }
                // What was said before QEMU took this connection is in the log alone.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    said = self.serial_log().into_bytes();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(self.ended()),
            }
        }
    }

    /// The console's text so far.
    pub fn serial_log(&self) -> String {
        serial_log(&self.directory)
    }

    /// Waits for the sockets to be there; QEMU makes them before it starts the guest.
    fn await_sockets(&mut self, deadline: Instant) -> Result<(), BoardError> {
        let sockets = [SERIAL_SOCKET, CONTROL_SOCKET].map(|name| self.directory.join(name));
        while !sockets.iter().all(files::exists) {
            if self.process.ended().is_some() {
                return Err(self.ended());
            }
            if interrupt::pending() {
                let doing = "starting QEMU";
                return Err(BoardError::Interrupted { doing });
            }
            if Instant::now() > deadline {
                let why = "it made no sockets".to_owned();
                return Err(BoardError::EmulatorEnded { why });
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// What a connection to QEMU that failed means: that QEMU has ended, where it has.
    pub fn blame(&mut self, error: BoardError) -> BoardError {
        let deadline = Instant::now() + DYING;
        while self.process.ended().is_none() {
            if Instant::now() > deadline {
                return error;
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.ended()
    }

    /// Why QEMU ended, in its own words or the board's last ones.
    fn ended(&mut self) -> BoardError {
        BoardError::EmulatorEnded { why: last_words(&self.directory) }
    }

    fn last_lines(&self) -> String {
        last_lines(&self.directory)
    }
}

/// What the QEMU of the board in `directory` said before it ended; when that is nothing, what the board's console did. A triple fault of one of its
/// CPUs comes first: the kernel had no part in that reset.
pub fn last_words(directory: &Path) -> String {
    let text = |name| log::tail(&directory.join(name), MOST_SAID);
    let fault = match text(RESET_LOG).contains(TRIPLE_FAULT) {
        true => "one of its CPUs had a triple fault; ",
        false => "",
    };
    let said = text(EMULATOR_LOG);
    let telling: Vec<&str> = said.lines().filter(|line| !line.contains("warning:")).collect();
    if telling.is_empty() {
        return format!("{fault}it said nothing; the board's console ended with:\n{}", last_lines(directory));
    }
    fault.to_owned() + &telling.join("; ")
}

/// Whether a QEMU ended because another has taken the port that was free for it, by its last words.
pub fn lacks_port(why: &str) -> bool {
    why.contains("host forwarding")
}

/// The last lines of the console of the board in `directory`.
pub fn last_lines(directory: &Path) -> String {
    let text = serial_log(directory);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// QEMU's control socket of the board in `directory`.
pub fn control_socket(directory: &Path) -> PathBuf {
    directory.join(CONTROL_SOCKET)
}

/// The console's text of the board in `directory`, without carriage returns: of much the last 4 MiB. Empty when it has said nothing.
pub fn serial_log(directory: &Path) -> String {
    log::tail(&directory.join(SERIAL_LOG), MOST_SAID).replace('\r', "")
}

/// How many bytes the console of the board in `directory` has said.
pub fn said_so_far(directory: &Path) -> u64 {
    files::length(directory.join(SERIAL_LOG)).unwrap_or(0)
}

/// What it has said after its first `from` bytes: of much the last 4 MiB.
pub fn said_since(directory: &Path, from: u64) -> String {
    let more = said_so_far(directory).saturating_sub(from);
    log::tail(&directory.join(SERIAL_LOG), usize::try_from(more).unwrap_or(MOST_SAID).min(MOST_SAID))
}

fn contains(text: &[u8], sign: &[u8]) -> bool {
    text.windows(sign.len()).any(|window| window == sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_board_that_says_without_end_the_last_is_read() {
        let there = tempfile::tempdir().unwrap();
        assert_eq!((serial_log(there.path()), said_so_far(there.path())), (String::new(), 0));
        let said = |text: &str| files::write_atomic(there.path().join(SERIAL_LOG), text).unwrap();
        let long = "x".repeat(MOST_SAID) + "\r\nthe end\r\n";
        said(&long);
        let log = serial_log(there.path());
        assert!(log.len() < MOST_SAID && log.ends_with("x\nthe end\n"));
        let before = said_so_far(there.path());
        said(&(long + READY));
        assert_eq!(said_since(there.path(), before), READY);
        assert_eq!(said_since(there.path(), 0).len(), MOST_SAID);
    }
}
