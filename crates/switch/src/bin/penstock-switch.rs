//! The embedded switch as a program: runs one, or controls one that runs.
#![allow(clippy::disallowed_methods, reason = "it knows nothing of the rest of Penstock")]

use std::{
    fs,
    io::BufRead,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{Parser, Subcommand};
use nix::sys::signal::{SigSet, Signal};
use penstock_switch::{
    config::Config,
    control::{self, Answer, Wish},
    server::Server,
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
    /// Print what is set, and how each port is: connected or not, counters, drops by reason
    Get,
    /// Change attributes of a port, like `spoofchk=true max_tx_rate=100`
    Set {
        /// The port
        port: String,
        /// ATTRIBUTE=VALUE
        #[arg(required = true)]
        attributes: Vec<String>,
    },
    /// Make it as this configuration has it; ports that do not change lose nothing
    Reload {
        /// The configuration
        config: PathBuf,
    },
    /// Print what happens, an event a line
    Watch,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().verb {
        Verb::Run { config, control } => run(&config, control.as_deref()),
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

/// An error and what lies behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}

fn read(path: &Path) -> Result<Config, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("{} could not be read: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn run(path: &Path, control: Option<&Path>) -> Result<(), String> {
    let config = read(path)?;
    // Before there is another thread, so that none of them gets these signals.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().map_err(|errno| format!("signals could not be taken: {errno}"))?;
    let server = Arc::new(Server::start().map_err(|error| chain(&error))?);
    server.apply(&config).map_err(|error| chain(&error))?;
    if let Some(socket) = control {
        let failed = |error| format!("the control socket {} could not be had: {error}", socket.display());
        control::serve(socket, Arc::clone(&server)).map_err(failed)?;
    }
    loop {
        match signals.wait() {
            Ok(Signal::SIGHUP) => {
                let again =
                    read(path).and_then(|config| server.apply(&config).map_err(|error| chain(&error)));
                if let Err(failure) = again {
                    eprintln!("penstock-switch: nothing was changed: {failure}");
                }
            }
            Ok(_) => break,
            Err(errno) => return Err(format!("could not wait for a signal: {errno}")),
        }
    }
    server.close();
    if let Some(socket) = control {
        let _ = fs::remove_file(socket);
    }
    Ok(())
}

fn ctl(socket: &Path, wish: Control) -> Result<(), String> {
    let watches = matches!(wish, Control::Watch);
    let wish = match wish {
        Control::Get => Wish::Get,
        Control::Set { port, attributes } => Wish::Set { port, attributes: parsed(&attributes)? },
        Control::Reload { config } => Wish::Reload { config: read(&config)? },
        Control::Watch => Wish::Subscribe,
    };
    let failed = |error| format!("the switch at {} did not answer: {error}", socket.display());
    let (answer, lines) = control::ask(socket, wish).map_err(failed)?;
    match answer {
        Answer::Error { text, causes } => {
            return Err([vec![text], causes].concat().join(": "));
        }
        Answer::Ok(serde_json::Value::Null) => {}
        Answer::Ok(value) => println!("{value:#}"),
    }
    if watches {
        for line in lines.lines() {
            println!("{}", line.map_err(failed)?);
        }
    }
    Ok(())
}

/// Attributes as they are typed: a value is JSON where it can be, and else a text.
fn parsed(attributes: &[String]) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    let pairs = attributes.iter().map(|text| {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("{text} is not ATTRIBUTE=VALUE"))?;
        let value = match value {
            "on" => true.into(),
            "off" => false.into(),
            value => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        };
        Ok((key.to_owned(), value))
    });
    pairs.collect()
}
