//! What the user typed.

mod audit;
mod board;
mod measuring;
mod metrics;
mod parse;
mod peers;
mod status;
mod time;

use std::{fmt, net::IpAddr, num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use penstock_apply::history::RunId;
use penstock_model::{GuestName, Mac, NicName, mac::ParseMacError, names::NameError};
use penstock_switch::arguments::worker_count;

use self::time::{at_least_a_second, duration};
pub use self::{
    audit::Audit,
    board::{Board, ClusterVerb, ImageFile, Inside},
    measuring::{Extent, LatencyForm, Measure, Only, Rehearse, Report, Tuning, Waking},
    metrics::Metrics,
    status::StatusRequest,
};
use crate::{
    documents::Kind,
    remote::{hosts::Host, protocol::Payload},
    status::Status,
    version,
};

/// Describe a machine with SR-IOV in one file; rehearse, apply and verify it.
#[derive(Debug, Parser)]
#[command(name = "penstock", version = version::TEXT, about, max_term_width = 0)]
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
    /// Print errors, warnings and the data that was asked for, and nothing else
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Use colours: `auto` (terminal, NO_COLOR, CLICOLOR, CLICOLOR_FORCE), `always`, `never`
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
    /// No colours anywhere.
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print this machine's inventory: PFs, VFs, CPUs, IOMMU groups, kernel
    Scan(Scan),
    /// Audit real-time latency settings, and say what to change
    Audit(Audit),
    /// Validate models, also against a machine or an inventory
    Check(Check),
    /// Write the files that tell guests which functions they have
    Generate(Generate),
    /// Write what a model says of NICs and VFs in the words of another program
    Export(Export),
    /// Print a model of what another program's files say of NICs and VFs
    Import(Import),
    /// Show what an apply would change, why, and how it is undone
    Plan(Plan),
    /// Make this machine as the model describes it
    Apply(Apply),
    /// Compare the machine and its guests with the model: a verdict per attribute
    Verify(Verify),
    /// Start guests, and those that they depend on
    Start(Guests),
    /// Stop guests, and reset their VFs
    Stop(Guests),
    /// Keep the changes of `apply --confirm-within`
    Confirm(Confirm),
    /// Take a run back unless it is confirmed
    #[command(hide = true)]
    Guard(Guard),
    /// Undo a run: the last one that left changes, or the one that is named
    Undo(Undo),
    /// Show the state of this machine's guests, once or as a page that is kept up to date
    Status(StatusRequest),
    /// Print counters, states and drift for Prometheus (docs/metrics.md)
    Metrics(Metrics),
    /// Attach to a guest's console; its earlier output is shown first
    Console(Console),
    /// Measure network paths between the model's functions, storage, or wake-up latency
    Measure(Measure),
    /// Apply, start and verify a model on an emulated board, and write a report
    Rehearse(Rehearse),
    /// Render a run's report, compare two runs, or redact one
    Report(Report),
    /// Start an emulated board, enter it, and remove it
    #[command(subcommand)]
    Board(Board),
    /// Run as a CNI plugin that gives containers VFs (docs/cni.md)
    Cni,
    /// Print the JSON Schema of models, or of a verb's JSON
    Schema(Schema),
    /// Print the completions of a shell (docs/install.md)
    Completions(Completions),
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
    /// Carry a connection of a board to a port of this machine's loopback
    #[command(hide = true)]
    ForwardConnection(ForwardConnection),
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
            | Verb::Status(StatusRequest { machines, .. }) => Some(machines),
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
    /// Run on this machine over SSH; repeat it, or separate machines by commas
    #[arg(long = "host", value_name = "USER@MACHINE", value_delimiter = ',', help_heading = OTHERS)]
    pub hosts: Vec<Host>,
    /// Also run on the machines in this file, one per line; `#` begins a comment
    #[arg(long, value_name = "FILE", help_heading = OTHERS)]
    pub hosts_from: Option<PathBuf>,
    /// Become root there with `sudo -n`
    #[arg(long, help_heading = OTHERS)]
    pub sudo: bool,
    /// Maximum number of machines in parallel [default: 8]
    #[arg(long, value_name = "N", help_heading = OTHERS)]
    pub at_most: Option<NonZeroUsize>,
    /// Start no further machine after one has failed
    #[arg(long, help_heading = OTHERS)]
    pub stop_on_failure: bool,
    /// Read `ssh`'s configuration from this file
    #[arg(long, value_name = "FILE", help_heading = OTHERS)]
    pub ssh_config: Option<PathBuf>,
}

const OTHERS: &str = "Other machines";

/// The model, and where on this machine its NICs are.
#[derive(Clone, Debug, Args)]
pub struct Subject {
    /// The model
    pub model: PathBuf,
    /// Use the PF with this permanent MAC address for a NIC, instead of the model's `match`; repeat it for others
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
    /// Treat the model's warnings as errors
    #[arg(long)]
    pub strict: bool,
}

/// A NIC of the model and the permanent MAC address of the PF that it is: `NET0=0c:c4:7a:9a:61:ea`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicAt {
    /// The NIC's name in the model.
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
    /// Print a model of this machine, whose plan changes nothing here
    #[arg(long)]
    pub as_model: bool,
    /// Read a recorded tree instead of this machine: a directory that holds sys and proc
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Tell which PF each NIC of this model is
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["as_model", "hosts", "hosts_from"])]
    pub model: Option<PathBuf>,
    /// Count the way to this IP address among what the machine depends on; repeat it for others
    #[arg(long = "peer", value_name = "ADDRESS", conflicts_with = "root")]
    pub peers: Vec<IpAddr>,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
    /// First find out what each PF's driver supports, on an unused VF, and remember it. Attributes are set to the values that
    /// they have, and the VF is reset
    #[arg(long, conflicts_with = "root")]
    pub probe: bool,
    /// Do not ask the drivers of NICs for firmware, versions and health, which waits while firmware is flashed
    #[arg(long, conflicts_with = "root")]
    pub without_drivers: bool,
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
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "human", conflicts_with = "json")]
    pub format: Format,
    /// Also check against this inventory, printed by `scan --json`
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub inventory: Option<PathBuf>,
    /// Also check against this machine
    #[arg(long)]
    pub here: bool,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
}

/// How `check` prints what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line for each valid model; errors with the file's lines go to standard error
    Human,
    /// One document (docs/json.md); the same as --json
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Annotations of a GitHub workflow
    Github,
    /// A Code Quality report of GitLab
    Gitlab,
}

/// `generate`
#[derive(Debug, Args)]
pub struct Generate {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Fill in what the model leaves open from this inventory, printed by `scan --json`
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub inventory: Option<PathBuf>,
    /// Fill in what the model leaves open from this machine
    #[arg(long)]
    pub here: bool,
    /// Write below this directory instead of to the model's paths
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Write nothing; report which files differ
    #[arg(long)]
    pub check: bool,
}

/// `export`
#[derive(Debug, Args)]
pub struct Export {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// The program whose words are wanted
    #[arg(long, value_name = "PROGRAM")]
    pub to: ExportTo,
    /// Export for this inventory, printed by `scan --json`, instead of this machine
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// Write the files into this directory instead of printing them
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Whose words `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportTo {
    /// CNI: a network for the VFs of each NIC that no guest owns, for /etc/cni/net.d
    Cni,
    /// Incus: a profile for each guest with functions
    Incus,
    /// libvirt: a domain for each VM, interfaces for its VFs, networks of VFs that no guest owns
    Libvirt,
    /// netplan: one file for /etc/netplan
    Netplan,
    /// systemd: .link files with VFs, and .network files
    Networkd,
    /// nmstate, for NetworkManager
    Nmstate,
    /// The SR-IOV network operator of Kubernetes: policies for the VFs that no guest owns
    SriovOperator,
}

/// `import`
#[derive(Debug, Args)]
pub struct Import {
    /// The other program's files; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The program whose files they are
    #[arg(long, value_name = "PROGRAM")]
    pub from: ImportFrom,
    /// Look interfaces that the files name up in this inventory, printed by `scan --json`, instead of on this machine
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// Treat what the model cannot say as an error
    #[arg(long)]
    pub strict: bool,
}

/// Whose files `import` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportFrom {
    /// CNI: network configurations of plugins that give containers VFs
    Cni,
    /// Incus' YAML: instances, profiles, networks of type sriov
    Incus,
    /// libvirt's XML: domains, networks, single interfaces
    Libvirt,
    /// netplan's YAML
    Netplan,
    /// systemd: .link files, and .network files of the same PFs
    Networkd,
    /// nmstate's desired state, also within a policy of kubernetes-nmstate
    Nmstate,
    /// The SR-IOV network operator of Kubernetes: its policies and networks
    SriovOperator,
}

/// `plan`
#[derive(Debug, Args)]
pub struct Plan {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Plan for this inventory, printed by `scan --json`, instead of this machine
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// Also show every step in order, with its reason and its inverse
    #[arg(long, visible_short_alias = 'v', alias = "verbose")]
    pub steps: bool,
    /// Also show which files `apply --persist` changes, as a diff
    #[arg(long, conflicts_with = "inventory")]
    pub persist: bool,
    /// Count the way to this IP address among what the machine depends on; repeat it for others
    #[arg(long = "peer", value_name = "ADDRESS", conflicts_with = "inventory")]
    pub peers: Vec<IpAddr>,
    /// Exit with 10 instead of 0 when an apply would change something
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
    /// Undo everything unless `penstock confirm` is run within this time: 60s, 5m
    #[arg(long, value_name = "TIME", value_parser = at_least_a_second)]
    pub confirm_within: Option<Duration>,
    /// Also apply at each boot, before guests start, and set the kernel's command line
    #[arg(long, conflicts_with = "confirm_within")]
    pub persist: bool,
    /// Count the way to this IP address among what the machine depends on; repeat it for others
    #[arg(long = "peer", value_name = "ADDRESS")]
    pub peers: Vec<IpAddr>,
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
    /// Do what is refused as unsafe under this name (`default-route:eno1`); repeat it for others
    #[arg(long = "allow", value_name = "NAME")]
    pub names: Vec<String>,
}

/// `verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// How long to wait for a link to come up and for a frame to arrive: 500ms, 10s, 2min
    #[arg(long, alias = "patience", value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub timeout: Duration,
    /// Also test each `max_tx_rate`: the VF sends at full speed for a second (docs/switch.md)
    #[arg(long, conflicts_with = "watch")]
    pub load: bool,
    /// Keep watching, and report changes as they happen; sends no frames (docs/watch.md)
    #[arg(long)]
    pub watch: bool,
    /// Stop watching after this time: 30s, 12h
    #[arg(long = "for", value_name = "TIME", value_parser = duration, requires = "watch")]
    pub lasting: Option<Duration>,
    /// Stop watching at the first change
    #[arg(long, requires = "watch")]
    pub until_change: bool,
    /// Also show verdicts that pass
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
    /// The guests; all of them without one
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
    /// The run's number; without it, the last run that waits for confirmation, if you have begun it
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
    /// The run's number
    pub run: Option<RunId>,
    /// Also undo later runs that depend on it, newest first
    #[arg(long, requires = "run")]
    pub with_later: bool,
    /// List the runs that changed this machine, and which changes are left
    #[arg(long, conflicts_with_all = ["run", "with_later"])]
    pub list: bool,
    /// Undo only what `apply --persist` did for the next boots
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
    /// Do not send input to the guest
    #[arg(long)]
    pub read_only: bool,
    /// Start with the last N lines [default: 24]
    #[arg(long, value_name = "N", conflicts_with = "all", value_parser = |text: &str| text.parse::<usize>().map_err(|_| "a number of lines, like 24"))]
    pub lines: Option<usize>,
    /// Start with the first output since the guest was started
    #[arg(long)]
    pub all: bool,
    /// Take the guest from SSH_ORIGINAL_COMMAND and nothing else from anywhere: for `ForceCommand` (docs/console.md)
    #[arg(long, hide = true, conflicts_with_all = ["guest", "read_only", "lines", "all"])]
    pub ssh: bool,
}

/// `schema`
#[derive(Debug, Args)]
pub struct Schema {
    /// Print the schema of this kind of JSON document (docs/json.md)
    #[arg(long = "of", value_name = "KIND")]
    pub kind: Option<Kind>,
}

/// `completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
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
    /// Threads that move frames, each of which serves its part of every port's queues
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = worker_count())]
    pub workers: usize,
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

/// `penstock forward-connection`: what QEMU starts for each connection that a board makes to its way out (docs/cluster.md).
#[derive(Debug, Args)]
pub struct ForwardConnection {
    /// The file that names the port
    pub port: PathBuf,
}
