//! What the user typed.

mod audit;
mod board;
mod measuring;
mod parse;
mod peers;
mod time;

use std::{fmt, num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use penstock_apply::history::RunId;
use penstock_model::{GuestName, Mac, NicName, mac::ParseMacError, names::NameError};

use self::time::{at_least_a_second, duration};
pub use self::{
    audit::Audit,
    board::{Board, Inside},
    measuring::{Extent, Measure, Only, Rehearse, Report, TimeLimit, Tuning, Waking},
};
use crate::{
    documents::Kind,
    remote::{hosts::Host, protocol::Payload},
    status::Status,
};

/// Describe a machine with SR-IOV in one file; rehearse, apply and prove it.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, about, max_term_width = 0)]
#[command(after_help = Status::help())]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// What holds for every verb.
    #[command(flatten)]
    pub common: Common,
}

/// Options of every verb.
#[derive(Debug, Default, Args)]
pub struct Common {
    /// Print data as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Say only what went wrong; print data only where a verb is there for that
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Whether to use colours: `auto` as the terminal, NO_COLOR, CLICOLOR and CLICOLOR_FORCE have it
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub color: Color,
    /// Work for the Penstock at the other end of standard input and output
    #[arg(long, global = true, hide = true)]
    pub attended: bool,
    /// The model's warnings have been printed by the Penstock that runs this one
    #[arg(long, global = true, hide = true)]
    pub warned: bool,
}

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// Where a terminal takes them.
    #[default]
    Auto,
    /// In pipes and files too.
    Always,
    /// Nowhere.
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print the inventory of this machine: functions that exist, VFs that could, CPUs, IOMMU groups, kernel
    Scan(Scan),
    /// Judge how late threads may wake on this machine, and say what to change
    Audit(Audit),
    /// Validate a model by itself, or against a machine
    Check(Check),
    /// Write the files that tell guests what their functions are, or compare them
    Generate(Generate),
    /// Show what would change, why, and how it is undone
    Plan(Plan),
    /// Carry the plan out on this machine
    Apply(Apply),
    /// Re-read kernel and guests: one verdict per attribute
    Verify(Verify),
    /// Start guests, and the guests that they need
    Start(Guests),
    /// Stop guests; every VF comes back, reset
    Stop(Guests),
    /// Keep what `apply --confirm-within` did
    Confirm(Confirm),
    /// Take a run back unless it is confirmed
    #[command(hide = true)]
    Guard(Guard),
    /// Take an earlier run back: the last that has left anything, or the one that is named
    Undo(Undo),
    /// Show the guests of this machine
    Status(Machines),
    /// Show a guest's console, from before you looked, and write to it
    Console(Console),
    /// Measure every path between the model's functions, and what it costs against a bridge; storage too
    Measure(Measure),
    /// Do all of it on an emulated board, and leave a report
    Rehearse(Rehearse),
    /// Render a run's report again, compare two runs, or make a copy of one without addresses and hostnames
    Report(Report),
    /// Keep, enter and drop a rehearsal's board
    #[command(subcommand)]
    Board(Board),
    /// Give containers VFs, as a plugin of their runtime: the Container Network Interface (docs/cni.md)
    Cni,
    /// Print the JSON Schema of the model, or of what `--json` prints
    Schema(Schema),
    /// Work inside a VM for the Penstock on its host
    #[command(subcommand, hide = true)]
    Inside(Inside),
    /// Apply a model while the machine is started
    #[command(hide = true)]
    AtBoot(AtBoot),
    /// Be an embedded switch
    #[command(hide = true)]
    EmbeddedSwitch(EmbeddedSwitch),
    /// Hand an embedded switch what a VM asks of its devices
    #[command(hide = true)]
    FollowFilters(FollowFilters),
}

impl Verb {
    /// The machines that it is for, where it can be for others than this one.
    pub fn machines(&self) -> Option<&Machines> {
        match self {
            Verb::Scan(Scan { machines, .. })
            | Verb::Audit(Audit { machines, .. })
            | Verb::Check(Check { machines, .. })
            | Verb::Plan(Plan { machines, .. })
            | Verb::Apply(Apply { machines, .. })
            | Verb::Verify(Verify { machines, .. })
            | Verb::Start(Guests { machines, .. })
            | Verb::Stop(Guests { machines, .. })
            | Verb::Confirm(Confirm { machines, .. })
            | Verb::Undo(Undo { machines, .. })
            | Verb::Status(machines) => Some(machines),
            _ => None,
        }
    }

    /// The model that it is about.
    pub fn subject(&mut self) -> Option<&mut Subject> {
        match self {
            Verb::Audit(audit) => audit.subject_mut(),
            Verb::Check(Check { subject, .. })
            | Verb::Plan(Plan { subject, .. })
            | Verb::Apply(Apply { subject, .. })
            | Verb::Verify(Verify { subject, .. })
            | Verb::Start(Guests { subject, .. })
            | Verb::Stop(Guests { subject, .. }) => Some(subject),
            _ => None,
        }
    }
}

/// Other machines, over the user's own OpenSSH.
#[derive(Clone, Debug, Default, Args)]
pub struct Machines {
    /// Do it on this machine instead, over SSH; several with commas, or once for each
    #[arg(long = "host", value_name = "USER@MACHINE", value_delimiter = ',', help_heading = OTHERS)]
    pub hosts: Vec<Host>,
    /// And on the machines in this file: one a line, `#` begins a comment
    #[arg(long, value_name = "FILE", help_heading = OTHERS)]
    pub hosts_from: Option<PathBuf>,
    /// Become root there with `sudo -n`
    #[arg(long, help_heading = OTHERS)]
    pub sudo: bool,
    /// Be at no more of them at a time [default: 8]
    #[arg(long, value_name = "N", help_heading = OTHERS)]
    pub at_most: Option<NonZeroUsize>,
    /// Begin with no further one when one has failed
    #[arg(long, help_heading = OTHERS)]
    pub stop_on_failure: bool,
    /// Take this file for the configuration of `ssh`
    #[arg(long, value_name = "FILE", help_heading = OTHERS)]
    pub ssh_config: Option<PathBuf>,
}

const OTHERS: &str = "Other machines";

/// The model, and where on this machine its NICs are.
#[derive(Clone, Debug, Args)]
pub struct Subject {
    /// The model
    pub model: PathBuf,
    /// Take the PF with this permanent MAC address for a NIC, whatever the model's `match` says
    #[arg(long = "nic", value_name = "NAME=MAC")]
    pub nics: Vec<NicAt>,
    /// What becomes of the model's warnings
    #[command(flatten)]
    pub strict: Strict,
    /// What the user's Penstock has sent along, in place of the file
    #[arg(skip)]
    pub payload: Option<Payload>,
}

/// What becomes of a model's warnings.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Strict {
    /// Take the model's warnings for errors
    #[arg(long)]
    pub strict: bool,
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
    /// Write what is there as a model, of which a plan changes nothing here
    #[arg(long)]
    pub as_model: bool,
    /// Read a recorded tree instead of this machine: a directory that holds sys and proc
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
    /// First try what each PF's driver can do, on a VF that nobody uses, and remember it. Each attribute is set to the value
    /// that it has; the VF is reset
    #[arg(long, conflicts_with = "root")]
    pub probe: bool,
}

/// `check`
#[derive(Debug, Args)]
pub struct Check {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// More models; the exit status is the worst of them
    #[arg(value_name = "MODEL")]
    pub more: Vec<PathBuf>,
    /// How what was found is printed on standard output
    #[arg(long, value_name = "FORMAT", default_value = "human", conflicts_with = "json")]
    pub format: Format,
    /// Also check it against this inventory, as `scan --json` printed it
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub inventory: Option<PathBuf>,
    /// Also check it against this machine
    #[arg(long)]
    pub here: bool,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
}

/// How `check` prints what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each good model; messages with the lines of the file go to standard error
    Human,
    /// One document (docs/json.md); the same as --json
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Annotations of a GitHub workflow
    Github,
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
    #[arg(long, short, value_name = "DIR")]
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
    /// Also show every step in order, with its reason and how it is taken back
    #[arg(long, short_alias = 'v', alias = "verbose")]
    pub steps: bool,
    /// Also show which files `apply --persist` changes, as a diff
    #[arg(long, conflicts_with = "inventory")]
    pub persist: bool,
    /// End with 10, not 0, when an apply would change something
    #[arg(long)]
    pub detailed_exitcode: bool,
    /// What would be refused and may be done all the same
    #[command(flatten)]
    pub allowed: Allowed,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
}

/// `apply`
#[derive(Debug, Args)]
pub struct Apply {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Take it all back unless `penstock confirm` comes within this time of the end: 60s, 5m
    #[arg(long, value_name = "TIME", value_parser = at_least_a_second)]
    pub confirm_within: Option<Duration>,
    /// Also have it applied at each boot, before guests start, with what the kernel must be started with
    #[arg(long, conflicts_with = "confirm_within")]
    pub persist: bool,
    /// What would be refused and may be done all the same
    #[command(flatten)]
    pub allowed: Allowed,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
}

/// Dangers that are allowed.
#[derive(Debug, Args)]
pub struct Allowed {
    /// Do what is refused under this name (`default-route:eno1`) all the same; once for each name
    #[arg(long = "allow", value_name = "NAME")]
    pub names: Vec<String>,
}

/// `verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// How long a link may take to come up, and a frame to arrive: 500ms, 10s, 2min
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub patience: Duration,
    /// Have each VF with a `max_tx_rate` send as fast as it can for a second, to see that it holds (docs/switch.md)
    #[arg(long, conflicts_with = "watch")]
    pub load: bool,
    /// Go on looking, and say at once what changes; sends no frames (docs/watch.md)
    #[arg(long)]
    pub watch: bool,
    /// Watch for so long: 30s, 12h
    #[arg(long = "for", value_name = "TIME", value_parser = duration, requires = "watch")]
    pub lasting: Option<Duration>,
    /// Watch until the first change
    #[arg(long, requires = "watch")]
    pub until_change: bool,
    /// Show every verdict, also those that pass
    #[arg(long, short, conflicts_with = "watch")]
    pub verbose: bool,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
}

/// `start` and `stop`
#[derive(Debug, Args)]
pub struct Guests {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Which guests; all of them when none is named
    pub guests: Vec<penstock_model::GuestName>,
    /// What would be refused and may be done all the same
    #[command(flatten)]
    pub allowed: Allowed,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
}

/// `confirm`
#[derive(Debug, Args)]
pub struct Confirm {
    /// The run, by its number; the last that waits when none is named
    pub run: Option<RunId>,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
}

/// `guard`
#[derive(Debug, Args)]
pub struct Guard {
    /// The run
    pub run: RunId,
}

/// `at-boot`
#[derive(Debug, Args)]
pub struct AtBoot {
    /// Which part
    pub phase: BootPhase,
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// What was allowed when it was made to last
    #[command(flatten)]
    pub allowed: Allowed,
}

/// A part of what is done at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BootPhase {
    /// VFs and PFs, before the network is configured.
    Nics,
    /// Guests.
    Guests,
}

/// `undo`
#[derive(Debug, Args)]
pub struct Undo {
    /// The run, by its number
    pub run: Option<RunId>,
    /// Take later runs that stand on it back too, newest first
    #[arg(long, requires = "run")]
    pub with_later: bool,
    /// List the runs that changed this machine, and what is left of them
    #[arg(long, conflicts_with_all = ["run", "with_later"])]
    pub list: bool,
    /// Take back what `apply --persist` did for the next boots, and nothing else
    #[arg(long, conflicts_with_all = ["run", "with_later", "list"])]
    pub persist: bool,
    /// What would be refused and may be done all the same
    #[command(flatten)]
    pub allowed: Allowed,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
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

/// `schema`
#[derive(Debug, Args)]
pub struct Schema {
    /// Of this kind of document, as `--json` prints it, instead of the model (docs/json.md)
    #[arg(long = "of", value_name = "KIND")]
    pub kind: Option<Kind>,
}

/// `penstock embedded-switch`: what `penstock-switch run` is (docs/switch.md).
#[derive(Debug, Args)]
pub struct EmbeddedSwitch {
    /// Its configuration, JSON
    pub config: PathBuf,
    /// The socket on which it is controlled
    #[arg(long, value_name = "SOCKET")]
    pub control: PathBuf,
    /// The socket is for this host alone, where everything may be done; else what `allow` of the configuration says
    #[arg(long)]
    pub own: bool,
    /// The socket of the line from within the VM, beside one of the host's own: what `allow` of the configuration says may be done
    #[arg(long, value_name = "SOCKET", requires = "own")]
    pub line: Option<PathBuf>,
    /// End when the last guest has gone, or when none comes at all
    #[arg(long)]
    pub until_left: bool,
    /// Run it in a process of its own, and start it again with what was set last when that dies
    #[arg(long)]
    pub again: bool,
}

/// `penstock follow-filters`: what a unit of systemd runs beside an embedded switch (docs/tenant-nics.md).
#[derive(Debug, Args)]
pub struct FollowFilters {
    /// The directory of guests' state
    #[arg(long, value_name = "DIRECTORY")]
    pub state: PathBuf,
    /// The VM
    pub guest: GuestName,
    /// Its NIC
    pub nic: NicName,
}
