//! The embedded switch as a program: runs one, or controls one that runs.
#![allow(clippy::disallowed_methods, reason = "it knows nothing of the rest of Penstock")]

use std::{collections::BTreeMap, io::BufRead, path::Path, process::ExitCode};

use clap::Parser;
use penstock_switch::{
    arguments::{SwitchArguments, SwitchRequest, SwitchVerb},
    control::{self, Answer, Wish},
    program::{self, read},
    server::{Attributes, PortState},
    status,
};

fn main() -> ExitCode {
    let outcome = match SwitchArguments::parse().verb {
        SwitchVerb::Run { config, control, line, until_left, keep, workers } => {
            let (control, line) = (control.as_deref(), line.as_deref());
            program::run(&program::Run { config: &config, control, line, until_left, keep, workers })
        }
        SwitchVerb::Ctl { socket, wish } => ctl(&socket, wish),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("penstock-switch: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn ctl(socket: &Path, wish: SwitchRequest) -> Result<(), String> {
    let watches = matches!(wish, SwitchRequest::Watch);
    let get = match &wish {
        SwitchRequest::Get { port, json } => Some((port.clone(), *json)),
        _ => None,
    };
    let wish = match wish {
        SwitchRequest::Get { .. } => Wish::Get,
        SwitchRequest::Set { changes } => Wish::Change { ports: parsed(&changes)? },
        SwitchRequest::Loopback { value } => Wish::Loopback { on: value == "on" },
        SwitchRequest::Reload { config } => Wish::Reload { config: read(&config)? },
        SwitchRequest::Filter { port } => {
            let odd = |error| format!("{port}: what stands on standard input is no JSON: {error}");
            let told: serde_json::Value = serde_json::from_reader(std::io::stdin()).map_err(odd)?;
            Wish::Filter { filter: filter_of(told), port }
        }
        SwitchRequest::Watch => Wish::Subscribe,
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
