//! `board` and `inside`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Subcommand;

use super::Strict;

/// `board`
#[derive(Debug, Subcommand)]
pub enum Board {
    /// Make the board image, if it is not there yet
    Image,
    /// Start a model's board and keep it
    Up {
        /// The model
        model: PathBuf,
        /// What becomes of the model's warnings
        #[command(flatten)]
        strict: Strict,
        /// Make it from this inventory: its PFs' MAC addresses and VF counts
        #[arg(long, value_name = "FILE")]
        inventory: Option<PathBuf>,
        /// Boot afresh instead of resuming a saved board
        #[arg(long)]
        cold: bool,
        /// Give it a disk that keeps what it writes when it is reset; it is gone with the board
        #[arg(long)]
        keep_disk: bool,
        /// Start systemd in it, as on a server; it takes longer to boot
        #[arg(long)]
        systemd: bool,
        /// Tell its kernel this, and not what turns the IOMMU on
        #[arg(long, value_name = "WORDS")]
        kernel_arguments: Option<String>,
    },
    /// Reset a board that keeps its disk, as its reset button would, and wait until it is up again
    Reset {
        /// The board: the model's machine name
        name: String,
        /// Have it reboot by itself instead, which ends in order what runs in it
        #[arg(long)]
        orderly: bool,
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
