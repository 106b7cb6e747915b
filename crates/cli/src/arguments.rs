//! What the user typed.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use clap::{Args, Parser, Subcommand};
use penstock_model::{Mac, NicName, mac::ParseMacError, names::NameError};

/// Describe a machine with SR-IOV in one file; rehearse, apply and prove it.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, about, max_term_width = 110)]
#[command(after_help = "Exit status: 0 holds; 1 does not hold; 2 bad usage or model; 3 refused as unsafe; \
4 something needed is missing; 5 failed and was rolled back.")]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// What holds for every verb.
    #[command(flatten)]
    pub common: Common,
}

/// Options of every verb.
#[derive(Debug, Args)]
pub struct Common {
    /// Print data as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Say only what went wrong
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print the inventory of this machine: functions that exist, VFs that could, CPUs, IOMMU groups, kernel
    Scan(Scan),
    /// Validate a model by itself, or against a machine
    Check(Check),
    /// Write the files that tell guests what their functions are, or compare them
    Generate(Generate),
    /// Show what would change, why, and how it is undone
    Plan(Plan),
    /// Carry the plan out on this machine
    Apply(Subject),
    /// Re-read kernel and guests: one verdict per attribute
    Verify(Verify),
    /// Start guests, and the guests that they need
    Start(Guests),
    /// Stop guests; every VF comes back, reset
    Stop(Guests),
    /// Show the guests of this machine
    Status,
    /// Show a guest's console, from before you looked, and write to it
    Console(Console),
    /// Do all of it on an emulated board, and leave a report
    Rehearse(Rehearse),
    /// Keep, enter and drop a rehearsal's board
    #[command(subcommand)]
    Board(Board),
    /// Print the model's JSON Schema
    Schema,
    /// Work inside a VM for the Penstock on its host
    #[command(subcommand, hide = true)]
    Inside(Inside),
}

/// The model, and where on this machine its NICs are.
#[derive(Debug, Args)]
pub struct Subject {
    /// The model
    pub model: PathBuf,
    /// Take the PF with this permanent MAC address for a NIC, whatever the model's `match` says
    #[arg(long = "nic", value_name = "NAME=MAC")]
    pub nics: Vec<NicAt>,
}

/// A NIC of the model and the permanent MAC address of the PF that it is: `NET0=0c:c4:7a:9a:61:ea`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicAt {
    /// The NIC.
    pub name: NicName,
    /// The PF's permanent address.
    pub mac: Mac,
}

impl FromStr for NicAt {
    type Err = String;

    fn from_str(text: &str) -> Result<NicAt, String> {
        let (name, mac) = text.split_once('=').ok_or("it is written NAME=MAC")?;
        Ok(NicAt {
            name: name.parse().map_err(|error: NameError| error.to_string())?,
            mac: mac.parse().map_err(|error: ParseMacError| error.to_string())?,
        })
    }
}

impl fmt::Display for NicAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.mac)
    }
}

/// `scan`
#[derive(Debug, Args)]
pub struct Scan {
    /// Read a recorded tree instead of this machine: a directory that holds sys and proc
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// `check`
#[derive(Debug, Args)]
pub struct Check {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Also check it against this inventory, as `scan --json` printed it
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub inventory: Option<PathBuf>,
    /// Also check it against this machine
    #[arg(long)]
    pub here: bool,
}

/// `generate`
#[derive(Debug, Args)]
pub struct Generate {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Take what the model leaves open from this inventory, as `scan --json` printed it
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub inventory: Option<PathBuf>,
    /// Take what the model leaves open from this machine
    #[arg(long)]
    pub here: bool,
    /// Put the files below this directory instead of where the model has them
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Write nothing; say whether each file is as it would be made
    #[arg(long)]
    pub check: bool,
}

/// `plan`
#[derive(Debug, Args)]
pub struct Plan {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Plan for this inventory, as `scan --json` printed it, instead of this machine
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
}

/// `verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// How long a link may take to come up, and a frame to arrive, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub patience: u64,
}

/// `start` and `stop`
#[derive(Debug, Args)]
pub struct Guests {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Which guests; all of them when none is named
    pub guests: Vec<penstock_model::GuestName>,
}

/// `console`
#[derive(Debug, Args)]
pub struct Console {
    /// The guest; without one, list the guests that have a console
    pub guest: Option<penstock_model::GuestName>,
    /// Only look
    #[arg(long)]
    pub read_only: bool,
    /// Begin with the last N lines [default: 24]
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub lines: Option<usize>,
    /// Begin with the first byte of the guest's last start
    #[arg(long)]
    pub all: bool,
    /// Take the guest from SSH_ORIGINAL_COMMAND and nothing else from anywhere: for `ForceCommand` (docs/console.md)
    #[arg(long, hide = true, conflicts_with_all = ["guest", "read_only", "lines", "all"])]
    pub ssh: bool,
}

/// `rehearse`
#[derive(Debug, Args)]
pub struct Rehearse {
    /// The model
    pub model: PathBuf,
    /// Rehearse the machine that this inventory describes: its PFs' MAC addresses and VF counts
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// The run directory [default: runs/MACHINE-TIME]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Boot the board afresh instead of resuming a saved one
    #[arg(long)]
    pub cold: bool,
}

/// `board`
#[derive(Debug, Subcommand)]
pub enum Board {
    /// Make the board image, if it is not there yet
    Image,
    /// Start a model's board and keep it
    Up {
        /// The model
        model: PathBuf,
        /// Make it from this inventory: its PFs' MAC addresses and VF counts
        #[arg(long, value_name = "FILE")]
        inventory: Option<PathBuf>,
        /// Boot afresh instead of resuming a saved board
        #[arg(long)]
        cold: bool,
    },
    /// Enter a kept board, or run a command there
    Ssh {
        /// The board: the model's machine name
        name: String,
        /// The command; a shell when there is none
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Attach to a guest's console on a kept board, over the SSH account that can do nothing else
    Console {
        /// The board: the model's machine name
        name: String,
        /// The guest
        guest: penstock_model::GuestName,
    },
    /// Drop a kept board
    Down {
        /// The board: the model's machine name
        name: String,
    },
    /// List kept boards
    List,
}

/// `inside`
#[derive(Debug, Subcommand)]
pub enum Inside {
    /// Print the network interfaces, each with its PCI function
    Interfaces,
    /// Send and count frames: the task is read as JSON from standard input
    Frames,
    /// Send UDP requests and tell how long each took to be answered
    Probe {
        /// The address to send from
        #[arg(long)]
        bind: IpAddr,
        /// The reflector's address and port
        #[arg(long)]
        to: SocketAddr,
        /// Requests a second, at times drawn in advance (open loop); without it the next leaves when the last was answered
        #[arg(long)]
        rate: Option<u32>,
        /// Bytes of a request
        #[arg(long)]
        size: u32,
        /// Milliseconds to send for
        #[arg(long)]
        dwell_ms: u32,
        /// What the times are drawn from
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Answer a probe's requests for a time
    Reflect {
        /// The address to listen at
        #[arg(long)]
        bind: IpAddr,
        /// The port
        #[arg(long)]
        port: u16,
        /// Seconds until it ends
        #[arg(long)]
        seconds: u32,
    },
}
