//! Crashes on a board: `penstock apply` killed at exact moments, and what is there afterwards, read without Penstock's help.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use serde_json::Value;

use crate::{binary, board::KeptBoard};

/// Run inside the board: see there. Each file stands beside the others.
const SCRIPTS: [(&str, &str); 3] = [
    ("/root/reader.py", include_str!("../inside/reader.py")),
    ("/root/tracer.py", include_str!("../inside/tracer.py")),
    (PLACE, include_str!("../inside/crash.py")),
];
const PLACE: &str = "/root/crash.py";

/// One moment at which an apply was killed, twice: then an undo, and another apply.
#[derive(Debug)]
pub struct Moment {
    /// `done:12`: after step 12 was done, before anybody wrote that down.
    pub name: String,
    /// What was not as it should be; nothing when all was.
    pub wrong: Vec<String>,
    /// How long all of it took, in seconds.
    pub seconds: f64,
}

/// Puts the scripts into a board.
///
/// # Errors
///
/// What was said when that failed.
pub fn furnish(board: &KeptBoard) -> Result<(), String> {
    for (path, text) in SCRIPTS {
        let run = board.write(path, text);
        if run.status != 0 {
            return Err(run.stderr);
        }
    }
    // Also after a reset.
    let synced = board.inside(["sync"]);
    (synced.status == 0).then_some(()).ok_or(synced.stderr)
}

/// Kills an apply of the board's model at these moments, or once in each of its steps when none is named; each is handed on
/// when it is over. Gives how many steps the plan has.
///
/// # Errors
///
/// When the model could not be applied and taken back as a whole to begin with, or a moment was not told of.
pub fn kill(board: &KeptBoard, moments: &[&str], on_moment: &mut dyn FnMut(Moment)) -> Result<usize, String> {
    let mut command = binary::command(board.directory());
    command.args(["board", "ssh", board.name(), "python3", PLACE, "kill", board.model()]).args(moments);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
    let mut next = || -> Result<Option<Value>, String> {
        let Some(line) = lines.next() else { return Ok(None) };
        let line = line.map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map(Some).map_err(|error| format!("{error}: {line}"))
    };
    let head = next()?.ok_or("nothing was said of the first apply")?;
    let steps = head["steps"].as_u64().unwrap_or(0) as usize;
    if head["apply"] != 0
        || head["undo"] != 0
        || head["changed"] == 0
        || head["wrong"] != Value::Array(vec![])
    {
        return Err(format!("the model was not applied and taken back as a whole: {head}"));
    }
    let mut told = 0;
    while let Some(line) = next()? {
        let wrong = line["wrong"].as_array().map(Vec::as_slice).unwrap_or_default();
        let wrong = wrong.iter().map(|one| one.as_str().unwrap_or_default().to_owned()).collect();
        let name = line["moment"].as_str().unwrap_or_default().to_owned();
        on_moment(Moment { name, wrong, seconds: line["seconds"].as_f64().unwrap_or(f64::NAN) });
        told += 1;
    }
    let _ = child.wait();
    let asked = if moments.is_empty() { steps } else { moments.len() };
    (told == asked).then_some(steps).ok_or_else(|| format!("{told} of {asked} moments were told of"))
}

/// What is there: interfaces, functions and their drivers, guests, and these files.
///
/// # Errors
///
/// What was said when it could not be read.
pub fn state(board: &KeptBoard, files: &[&str]) -> Result<Value, String> {
    let run = board.inside([&["python3", PLACE, "state"][..], files].concat());
    serde_json::from_str(&run.stdout).map_err(|error| format!("{error}: {}{}", run.stdout, run.stderr))
}

/// What of Penstock's files is neither whole nor absent.
pub fn torn(board: &KeptBoard) -> String {
    let run = board.inside(["python3", PLACE, "torn"]);
    run.stdout + &run.stderr
}

/// Where two states differ, for people.
pub fn differences(wanted: &Value, found: &Value) -> Vec<String> {
    fn at(path: &str, wanted: &Value, found: &Value, into: &mut Vec<String>) {
        match (wanted, found) {
            (Value::Object(one), Value::Object(other)) => {
                let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
                for key in keys {
                    at(&format!("{path}/{key}"), &wanted[key], &found[key], into);
                }
            }
            _ if wanted == found => {}
            _ => into.push(format!("{path}: {found}, not {wanted}")),
        }
    }
    let mut all = Vec::new();
    at("", wanted, found, &mut all);
    all
}
