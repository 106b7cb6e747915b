//! What can go wrong with images and boards, and what to do about it.

use std::{io, path::PathBuf, time::Duration};

use penstock_host::{PlaceError, ProcessError, files::FileError, packages, process::search_path::SearchPath};
use penstock_model::NicName;
use thiserror::Error;

use crate::{
    image::{PackedError, ProofError},
    kept::KeptBoard,
    rootless::Lack,
};

/// Why there is no image, or no board. All of these mean that something needed is missing.
#[derive(Debug, Error)]
pub enum BoardError {
    /// A program that makes or reaches a board is not installed.
    #[error("{program} is needed to {purpose} and is not installed{}", SearchPath::own().why_not(program))]
    Missing {
        /// The name of the program's file.
        program: &'static str,
        /// What it is needed to do, as a verb and its object.
        purpose: &'static str,
    },
    /// Boards are of another processor than this program.
    #[error(
        "a board is an x86-64 machine in which this very program runs, and this one is for {processor}: rehearse on an x86-64 machine"
    )]
    OtherProcessor {
        /// What this program is for, as Rust calls it.
        processor: &'static str,
    },
    /// No board image can be made here by this user.
    #[error("no board image can be made here:\n  {}", lines(lacks))]
    Lacking {
        /// All that is not there.
        lacks: Vec<Lack>,
    },
    /// There is not enough room.
    #[error("{} has {} MiB free, and {} MiB are needed to {purpose}", directory.display(), free >> 20, needed >> 20)]
    NoSpace {
        /// A directory of the file system that is too full.
        directory: PathBuf,
        /// Bytes that are free there.
        free: u64,
        /// Bytes that are needed there.
        needed: u64,
        /// What they are needed to do, as a verb and its object.
        purpose: &'static str,
    },
    /// The program that is to run on a board does not fit the disk that it is read from there.
    #[error("{} is to run on the board and has {} MiB; {} MiB is the most", program.display(), length >> 20, limit >> 20)]
    ProgramTooLarge {
        /// The program's file on this host.
        program: PathBuf,
        /// Size of that file in bytes.
        length: u64,
        /// The disk's bytes.
        limit: u64,
    },
    /// Packages could not be fetched.
    #[error("the packages of the board image could not be fetched: {why}")]
    Download {
        /// The package manager's own words.
        why: String,
    },
    /// The archive's signature could not be checked.
    #[error("the signatures of the package archive could not be checked: {why}")]
    Keyring {
        /// The package manager's own words.
        why: String,
    },
    /// The image could not be made.
    #[error("the board image could not be made: {why}")]
    Build {
        /// The end of what the tool said.
        why: String,
    },
    /// An image that is not what it was when it was made.
    #[error("the board image {} is damaged: {what}", directory.display())]
    Damaged {
        /// The image's directory.
        directory: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file is not read as a board image.
    #[error("{} is not used as a board image", file.display())]
    Packed {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: PackedError,
    },
    /// A file is not shown to be the board image that is meant.
    #[error("{} is not shown to be the board image that you mean, and not used", file.display())]
    Unproven {
        /// The file.
        file: PathBuf,
        /// What speaks against it.
        source: ProofError,
    },
    /// No QEMU that is new enough was found.
    #[error("no QEMU {}.{} or newer was found: {found}", crate::emulator::NEEDED.0, crate::emulator::NEEDED.1)]
    Emulator {
        /// What was found, and where.
        found: String,
    },
    /// The emulator ended at once.
    #[error("QEMU ended before the board was up: {why}")]
    EmulatorEnded {
        /// What it said.
        why: String,
    },
    /// The emulator ended because it ran code that the board's kernel had replaced.
    #[error(
        "QEMU ended before the board was up: it ran code that the board's kernel had already replaced ({trap}), each time; {why}"
    )]
    StaleTrap {
        /// The line of the kernel that says so.
        trap: String,
        /// What it said last.
        why: String,
    },
    /// The emulator ended while the board was in use.
    #[error("the QEMU of the board {name:?} ended by itself: {why}")]
    Died {
        /// Name of the board.
        name: String,
        /// What it said.
        why: String,
    },
    /// An embedded switch did not start.
    #[error("the embedded switch of {nic} did not start: {why}")]
    Switch {
        /// The NIC whose embedded switch it is.
        nic: NicName,
        /// What it said.
        why: String,
    },
    /// Nobody said which program is an embedded switch.
    #[error("the board has a composed virtio NIC, and no program was named that is its embedded switch")]
    NoSwitch,
    /// No port for SSH.
    #[error("no port of the loopback interface could be had for SSH: {why}")]
    Port {
        /// What was tried.
        why: String,
    },
    /// The board did not become ready.
    #[error("the board was not ready {} s after its start; its console ended with:\n{console}", after.as_secs())]
    NotReady {
        /// How long was waited.
        after: Duration,
        /// The last lines of its console.
        console: String,
        /// The directory in which all its logs are kept.
        logs: Option<PathBuf>,
    },
    /// SSH into the board failed.
    #[error("the board cannot be reached over SSH: {why}")]
    Unreachable {
        /// What SSH said.
        why: String,
    },
    /// A Linux bridge that the model takes for granted could not be made in the board.
    #[error("the board's bridges could not be made: {why}")]
    Bridges {
        /// What `ip` said.
        why: String,
    },
    /// QEMU's control socket said something else than expected.
    #[error("QEMU did not {attempt}: {why}")]
    Control {
        /// What it was asked to do.
        attempt: &'static str,
        /// QEMU's description of the error, or why there was no answer.
        why: String,
    },
    /// No such board.
    #[error("there is no board {name:?} that runs")]
    NoSuchBoard {
        /// The name that no running board has.
        name: String,
        /// Those that there are.
        kept: Vec<String>,
    },
    /// A board of this name runs already.
    #[error("a board {name:?} runs already")]
    Taken {
        /// The name that the running board has.
        name: String,
    },
    /// A board of another machine, or of a container.
    #[error("the board {name:?} runs on another machine or in a container: {host}")]
    Elsewhere {
        /// Its name.
        name: String,
        /// The name of that machine or container.
        host: String,
        /// Where it is written down.
        directory: PathBuf,
    },
    /// A name that can be no directory.
    #[error("{name:?} cannot name a board: letters, digits, '-', '_' and '.' can")]
    Name {
        /// The name that was asked for.
        name: String,
    },
    /// A board that would not end.
    #[error("the QEMU of the board {name:?}, process {id}, could not be ended")]
    Stuck {
        /// Name of the board.
        name: String,
        /// The process id of its QEMU.
        id: u32,
    },
    /// A board of which nothing would be left after a reset.
    #[error("the board {name:?} cannot be reset: it has no disk, and all that it was given would be gone")]
    NoDisk {
        /// Name of the board.
        name: String,
    },
    /// An interrupt came.
    #[error("interrupted while {doing}")]
    Interrupted {
        /// What was being done.
        doing: &'static str,
    },
    /// A file could not be read or written.
    #[error("a board's files could not be handled")]
    File(#[from] FileError),
    /// A program failed.
    #[error("a program that the board needs failed")]
    Process(#[from] ProcessError),
    /// A socket failed.
    #[error("could not {attempt}")]
    Socket {
        /// What was attempted.
        attempt: &'static str,
        /// The error of the socket.
        #[source]
        source: io::Error,
    },
    /// Something inside the board failed.
    #[error("something inside the board failed")]
    Place(#[from] PlaceError),
}

/// A line for each.
fn lines(lacks: &[Lack]) -> String {
    lacks.iter().map(Lack::to_string).collect::<Vec<_>>().join("\n  ")
}

impl BoardError {
    /// That this board, which is written down in `directory`, is none of this machine.
    pub(crate) fn elsewhere(board: &KeptBoard, directory: PathBuf) -> BoardError {
        let host = board.elsewhere().unwrap_or_default().to_owned();
        BoardError::Elsewhere { name: board.name.clone(), host, directory }
    }

    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            BoardError::Missing { program, .. } => {
                let package = packages::row(program)?.package;
                return Some(format!("on Debian it is in the package {package}: apt-get install {package}"));
            }
            BoardError::NoSuchBoard { kept, .. } if !kept.is_empty() => {
                return Some(format!("these run: {}", kept.join(", ")));
            }
            BoardError::Taken { name } => {
                return Some(format!(
                    "drop it first with `penstock board down {name}`, or enter it with `penstock board ssh {name}`"
                ));
            }
            BoardError::Elsewhere { directory, .. } => {
                return Some(format!(
                    "enter and drop it there, or use another name; where that one is gone for good, remove {}",
                    directory.display()
                ));
            }
            BoardError::NoSpace { .. } => {
                "free some space, or put the cache elsewhere with XDG_CACHE_HOME (the temporary directory with TMPDIR, running \
                 boards with XDG_RUNTIME_DIR)"
            }
            BoardError::Download { .. } => {
                "check the network and try again: nothing half-made is kept; another mirror of Debian can be named in \
                 PENSTOCK_MIRROR"
            }
            BoardError::Keyring { .. } => {
                "install or update the package debian-archive-keyring, which has the archive's keys"
            }
            BoardError::Packed { source: PackedError::OtherRecipe { .. }, .. } => {
                "take the image of the release that this penstock is of: `penstock --version` tells it"
            }
            BoardError::Packed { .. } => "fetch it once more, or have the image made: `penstock board image`",
            BoardError::Unproven { source, .. } => match source {
                ProofError::Unsigned(_) | ProofError::NoSignature { .. } => {
                    "fetch the signature from where the image is, too, or name the SHA-256 with --sha256"
                }
                ProofError::OtherDigest { .. } | ProofError::Forged { .. } => {
                    "fetch it once more, and look where the SHA-256 or the key is from"
                }
                ProofError::NoDigest(_) | ProofError::NoKey { .. } => return None,
            },
            BoardError::Damaged { .. } => "remove that directory; the image is then made anew",
            BoardError::Emulator { .. } => {
                "let Penstock make the board image, which brings one, or install a newer qemu-system-x86"
            }
            BoardError::NoDisk { .. } => "bring it up with `penstock board up MODEL --keep-disk`",
            BoardError::Port { .. } => "end some program that listens on loopback ports, and try again",
            BoardError::NotReady { logs, .. } => {
                let kept =
                    logs.iter().map(|logs| format!("all that it said is kept in {}; ", logs.display()));
                return Some(
                    kept.collect::<String>()
                        + "try again when the machine has less to do; with board.cpus and board.memory the model can ask \
                           for a smaller board",
                );
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
