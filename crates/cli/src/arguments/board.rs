//! `board`, `board cluster` and `inside`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, Subcommand};

use super::Strict;

/// `board`
#[derive(Debug, Subcommand)]
pub enum Board {
    /// Build the board image unless it is there
    Image(ImageFile),
    /// Start a board for a model, and keep it running
    Up {
        /// The model
        model: PathBuf,
        /// What becomes of the model's warnings
        #[command(flatten)]
        strict: Strict,
        /// Take the PFs' MAC addresses and VF counts from this inventory
        #[arg(long, value_name = "FILE")]
        inventory: Option<PathBuf>,
        /// Boot instead of resuming a saved board
        #[arg(long)]
        cold: bool,
        /// Give it a disk whose content survives resets, until the board is removed
        #[arg(long)]
        keep_disk: bool,
        /// Run systemd on it, as on a server; it takes longer to boot
        #[arg(long)]
        systemd: bool,
        /// Its kernel's command line, instead of the one that turns the IOMMU on
        #[arg(long, value_name = "WORDS")]
        kernel_arguments: Option<String>,
    },
    /// Reset a board that keeps its disk, and wait until it has booted
    Reset {
        /// The board's name, which is the model's `machine`
        name: String,
        /// Reboot it in order instead, which stops what runs on it
        #[arg(long)]
        orderly: bool,
    },
    /// Open a shell on a board, or run a command there
    Ssh {
        /// The board's name, which is the model's `machine`
        name: String,
        /// A program and its arguments, each kept as it is, or one line for the shell there; a shell without any
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Attach to the console of a guest on a board
    Console {
        /// The board's name, which is the model's `machine`
        name: String,
        /// The guest
        guest: penstock_model::GuestName,
    },
    /// Remove a board
    Down {
        /// The board's name, which is the model's `machine`
        name: String,
    },
    /// List the boards that run
    List,
    /// Run a Kubernetes cluster whose nodes are boards (docs/cluster.md)
    #[command(subcommand)]
    Cluster(ClusterVerb),
}

/// `board cluster`
#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Start a cluster whose nodes are boards of a model, and wait until they are Ready
    Up {
        /// The model
        model: PathBuf,
        /// What becomes of the model's warnings
        #[command(flatten)]
        strict: Strict,
        /// How many nodes it has
        #[arg(long, value_name = "N", default_value_t = 2)]
        nodes: usize,
        /// Its name; nodes are called NAME-1 and so on [default: the model's `machine`]
        #[arg(long)]
        name: Option<String>,
        /// Run kwok too, which simulates nodes with the annotation `kwok.x-k8s.io/node: fake`
        #[arg(long)]
        kwok: bool,
        /// Boot its boards instead of resuming saved ones
        #[arg(long)]
        cold: bool,
    },
    /// Remove a cluster with its nodes
    Down {
        /// The cluster's name
        name: String,
    },
    /// List the clusters that there are
    List,
    /// Print the kubeconfig of a cluster's administrator
    Kubeconfig {
        /// The cluster's name
        name: String,
        /// With the API server's address as a node reaches it
        #[arg(long)]
        on_node: bool,
    },
    /// Run the cluster's own kubectl as its administrator
    Kubectl {
        /// The cluster's name
        name: String,
        /// What kubectl is to do
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build what clusters are made of, unless it is there
    Prepare,
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

/// The board image as a file.
#[derive(Debug, Args)]
pub struct ImageFile {
    /// Unpack it from a file that `--to` has written, instead of building it
    #[arg(long, value_name = "FILE", requires = "proof", conflicts_with = "to")]
    pub from: Option<PathBuf>,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HEX", group = "proof", requires = "from")]
    pub sha256: Option<String>,
    /// The minisign key that must have signed the file, or its file; the signature is in FILE.minisig
    #[arg(long, value_name = "KEY", group = "proof", requires = "from")]
    pub key: Option<String>,
    /// Write it to this file, for machines without a Debian mirror
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}
