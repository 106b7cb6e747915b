//! The embedded switch as a program: runs one, or controls one that runs.
#![allow(clippy::disallowed_methods, reason = "it knows nothing of the rest of Penstock")]

use std::{
    collections::BTreeMap,
    io::BufRead,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use penstock_switch::{
    control::{self, Answer, Wish},
    program::{self, read},
    server::{Attributes, PortState},
    status,
};

/// An embedded switch whose ports are vhost-user devices.
#[derive(Debug, Parser)]
#[command(name = "penstock-switch", version, about, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
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
    },
    /// Control a switch that runs
    Ctl {
        /// Its control socket
        socket: PathBuf,
        #[command(subcommand)]
        wish: Control,
    },
}

#[derive(Debug, Subcommand)]
enum Control {
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

fn main() -> ExitCode {
    let outcome = match Arguments::parse().verb {
        Verb::Run { config, control, line, until_left, keep } => {
            let (control, line) = (control.as_deref(), line.as_deref());
            program::run(&program::Run { config: &config, control, line, until_left, keep })
        }
        Verb::Ctl { socket, wish } => ctl(&socket, wish),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("penstock-switch: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn ctl(socket: &Path, wish: Control) -> Result<(), String> {
    let watches = matches!(wish, Control::Watch);
    let get = match &wish {
        Control::Get { port, json } => Some((port.clone(), *json)),
        _ => None,
    };
    let wish = match wish {
        Control::Get { .. } => Wish::Get,
        Control::Set { changes } => Wish::Change { ports: parsed(&changes)? },
        Control::Loopback { value } => Wish::Loopback { on: value == "on" },
        Control::Reload { config } => Wish::Reload { config: read(&config)? },
        Control::Filter { port } => {
            let odd = |error| format!("{port}: what stands on standard input is no JSON: {error}");
            let told: serde_json::Value = serde_json::from_reader(std::io::stdin()).map_err(odd)?;
            Wish::Filter { filter: filter_of(told), port }
        }
        Control::Watch => Wish::Subscribe,
    };
    let failed = |error| format!("the switch at {} did not answer: {error}", socket.display());
    let (answer, lines) = control::ask(socket, wish).map_err(failed)?;
    match answer {
        Answer::Error { text, causes } => {
            return Err([vec![text], causes].concat().join(": "));
        }
        Answer::Ok(serde_json::Value::Null) => {}
        Answer::Ok(value) => match get {
            Some((port, json)) => print!("{}", shown(value, port.as_deref(), json)?),
            None => println!("{value:#}"),
        },
    }
    if watches {
        for line in lines.lines() {
            println!("{}", line.map_err(failed)?);
        }
    }
    Ok(())
}

/// What `get` prints.
fn shown(mut state: serde_json::Value, only: Option<&str>, json: bool) -> Result<String, String> {
    let ports = state.get("ports").cloned().unwrap_or_default();
    let odd = |error| format!("the switch's answer is none that is known here: {error}");
    let mut ports: BTreeMap<String, PortState> = serde_json::from_value(ports).map_err(odd)?;
    if let Some(only) = only {
        let all = ports.keys().cloned().collect::<Vec<_>>().join(", ");
        ports.retain(|name, _| name == only);
        if ports.is_empty() {
            return Err(format!("there is no port {only}; there are {all}"));
        }
        state = state
            .pointer_mut(&format!("/ports/{}", only.replace('~', "~0").replace('/', "~1")))
            .map(serde_json::Value::take)
            .unwrap_or_default();
    }
    Ok(if json { format!("{state:#}\n") } else { status::table(&ports) })
}

/// The filter of one device, also where it stands in QEMU's answer (`{"return": [...]}`).
fn filter_of(mut told: serde_json::Value) -> serde_json::Value {
    if let Some(answer) = told.get_mut("return") {
        told = answer.take();
    }
    match told {
        serde_json::Value::Array(mut one) if one.len() == 1 => one.pop().unwrap_or_default(),
        other => other,
    }
}

/// Attributes as they are typed, behind the port that they are for: a value is JSON where it can be, and else a text.
fn parsed(changes: &[String]) -> Result<BTreeMap<String, Attributes>, String> {
    let mut all: BTreeMap<String, Attributes> = BTreeMap::new();
    let mut port = None;
    for text in changes {
        let Some((key, value)) = text.split_once('=') else {
            port = Some(all.entry(text.clone()).or_default());
            continue;
        };
        let attributes = port
            .as_deref_mut()
            .ok_or_else(|| format!("{text}: the port that it is for comes first, like NET0#0 {text}"))?;
        let value = match value {
            "on" => true.into(),
            "off" => false.into(),
            value => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        };
        attributes.insert(key.to_owned(), value);
    }
    match all.iter().find(|(_, attributes)| attributes.is_empty()) {
        Some((port, _)) => Err(format!("{port}: nothing is said of what is to change, like {port} vlan=7")),
        None => Ok(all),
    }
}
