//! The command line of the program `penstock-switch`, which its manual pages and completions are made from too.

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand, builder::RangedU64ValueParser};

use crate::worker::MOST_WORKERS;

/// The command line, from which manual pages and completions are made.
pub fn command() -> clap::Command {
    SwitchArguments::command()
}

/// A number of workers that a switch can have.
pub fn worker_count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MOST_WORKERS as u64)
}

/// The version, and the commit where the build told one.
const VERSION: &str = match option_env!("PENSTOCK_VERSION") {
    Some(text) => text,
    None => env!("CARGO_PKG_VERSION"),
};

/// An embedded switch whose ports are vhost-user devices.
#[derive(Debug, Parser)]
#[command(name = "penstock-switch", version = VERSION, about, max_term_width = 110)]
pub struct SwitchArguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: SwitchVerb,
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum SwitchVerb {
    /// Run a switch until it is told to end (SIGTERM, Ctrl-C); SIGHUP has it read its configuration again
    Run {
        /// Its configuration, JSON
        config: PathBuf,
        /// The socket on which it is controlled
        #[arg(long, value_name = "SOCKET")]
        control: Option<PathBuf>,
        /// The socket to which a line leads from within a machine behind it: there only that may be set which `allow` allows
        #[arg(long, value_name = "SOCKET")]
        line: Option<PathBuf>,
        /// End when the last guest has gone, or when none comes at all
        #[arg(long)]
        until_left: bool,
        /// Write what is set while it runs into its configuration: the next one begins with that
        #[arg(long)]
        keep: bool,
        /// Threads that move frames, each of which takes a CPU while there are some. Pair P of a port's rings is served by the one with
        /// the number P modulo N: guests with as many queue pairs use all of them
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = worker_count())]
        workers: usize,
    },
    /// Control a switch that runs
    Ctl {
        /// Its control socket
        socket: PathBuf,
        /// What is asked of it
        #[command(subcommand)]
        wish: SwitchRequest,
    },
}

/// What a switch that runs is asked to do.
#[derive(Debug, Subcommand)]
pub enum SwitchRequest {
    /// Print how each port is: connected or not, its link, counters, drops by reason
    Get {
        /// Only this port
        port: Option<String>,
        /// All that is known, with what is set, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change attributes of ports, all or none, like `'NET0#0' spoofchk=on max_tx_rate=100 'NET0#1' vlan=7`
    Set {
        /// A port, and what of it is to change
        #[arg(required = true, value_name = "PORT ATTRIBUTE=VALUE")]
        changes: Vec<String>,
    },
    /// Keep frames between ports inside (on), or have them go out to the uplink (off)
    Loopback {
        /// `on` or `off`
        #[arg(value_parser = ["on", "off"])]
        value: String,
    },
    /// Make it as this configuration has it; ports that do not change lose nothing
    Reload {
        /// The configuration
        config: PathBuf,
    },
    /// Say what a port's guest asks of its device, as QEMU tells it (`query-rx-filter`), read from standard input; `null`: nothing
    Filter {
        /// The port
        port: String,
    },
    /// Print how all is, and then what happens, an event a line
    Watch,
}
