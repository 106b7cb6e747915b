//! The switches that are compared, each with one thread that polls on the switch's CPU.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use super::{
    peer,
    processes::{GUESTS, Program, Thread, silent},
    supervisor::Workshop,
    testpmd::{Sockets, mac},
};

/// A switch that runs.
pub struct Switch {
    /// The process.
    pub program: Program,
    /// Its thread with the data path.
    pub polls: Thread,
    /// What it was told is in there, if not in the process itself.
    #[allow(dead_code, reason = "it runs for as long as the switch does")]
    pub database: Option<Program>,
    /// Where its guests find it.
    pub sockets: Sockets,
}

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This crate's.
    Ours {
        /// So many.
        ports: usize,
    },
    /// Open vSwitch.
    Peer {
        /// It passes on whole segments of TCP.
        segments: bool,
    },
}

impl Kind {
    /// Its name, short enough for a file's.
    pub fn name(self) -> String {
        match self {
            Kind::Ours { ports } => format!("ours-{ports}"),
            Kind::Peer { segments: false } => "peer".to_owned(),
            Kind::Peer { segments: true } => "peer-tso".to_owned(),
        }
    }
}

/// Starts one.
pub fn start(kind: Kind, workshop: &Workshop) -> Result<Switch, String> {
    let home = workshop.path(&kind.name());
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let switch = match kind {
        Kind::Ours { ports } => ours(&home, ports)?,
        Kind::Peer { segments } => peer::start(workshop, &home, segments)?,
    };
    switch.program.keep_on(GUESTS, switch.polls);
    Ok(switch)
}

/// Ours with so many ports: exact filters, a port VLAN and anti-spoofing on each.
fn ours(home: &Path, ports: usize) -> Result<Switch, String> {
    let socket = |number: usize| home.join(format!("port-{number}"));
    let settings: serde_json::Map<String, Value> = (0..ports)
        .map(|number| {
            // Frames of 1,518 bytes without a tag are longer than an MTU of 1,500 has them.
            let settings = json!({"socket": socket(number), "mac": mac(number), "vlan": 100, "spoofchk": true, "mtu": 9000});
            (format!("port-{number}"), settings)
        })
        .collect();
    let file = home.join("switch.json");
    let config = json!({"version": 1, "ports": settings});
    std::fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock-switch"));
    command.arg("run").arg(&file);
    let program = Program::start(silent(&mut command))?;
    let polls = program.thread(&["switch"])?;
    let sockets = Sockets { paths: (0..ports).map(socket).collect(), front_end_listens: false };
    Ok(Switch { program, polls, database: None, sockets })
}
