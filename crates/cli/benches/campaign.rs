//! `make campaign`: each step of the plans of the examples meets each fault on a board, and what is there afterwards is compared
//! with what has to be. Goes on where it was interrupted; prints a table at its end and ends with 1 when something was wrong.
//!
//! Arguments after `--`: `model=NAME,...` (files of examples/, without `.yaml`), `steps=NUMBER,...` or `steps=kinds` (the first step
//! of each kind of action), `faults=NAME,...`, `runs=apply,undo,guard,guarded`; all of each without.
//! `builds=all` passes over what was right with another build of the program, and has the trials of all builds in the table.
#![allow(clippy::disallowed_methods)]

use std::{env, fs, path::Path, process::ExitCode, str::FromStr};

use penstock_model::digest::sha256;
use penstock_testkit::{
    binary,
    campaign::{Campaign, Choice, Record, Steps, table::table},
};

/// From the one that is over soonest to the longest.
const MODELS: [&str; 11] = [
    "smallest",
    "kubernetes-node",
    "container-nics",
    "embedded-switch",
    "tenant",
    "storage-node",
    "realtime",
    "containers",
    "nvme",
    "realtime-vm",
    "xeon-d",
];

fn main() -> ExitCode {
    match campaign() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing was wrong.
fn campaign() -> Result<bool, String> {
    let (mut models, mut choice, mut all_builds) = (Vec::new(), Choice::default(), false);
    for word in env::args().skip(1).filter(|word| !word.starts_with("--")) {
        match word.split_once('=') {
            Some(("model", names)) => models = list::<String>(names)?,
            Some(("steps", "kinds")) => choice.steps = Steps::Kinds,
            Some(("steps", numbers)) => choice.steps = Steps::Numbers(list(numbers)?),
            Some(("faults", names)) => choice.faults = list(names)?,
            Some(("runs", names)) => choice.runs = list(names)?,
            Some(("builds", "all")) => all_builds = true,
            _ => return Err(format!("`{word}` is none of model=, steps=, faults=, runs=, builds=all")),
        }
    }
    if models.is_empty() {
        models = MODELS.map(str::to_owned).to_vec();
        models.extend(unlisted()?);
    }
    let program = binary::path().ok_or("there is no binary: `make build`")?;
    let program = fs::read(&program).map_err(|error| format!("{}: {error}", program.display()))?;
    // What another build did says nothing of this one.
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/campaign");
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let path = directory.join(format!("{}.jsonl", &sha256(program)[..12]));
    let mut record = Record::open(&path)?;
    if all_builds {
        record.with_other_builds()?;
    }
    println!("record: {}", path.display());
    let mut broken = Vec::new();
    for name in &models {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{name}.yaml"));
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let lines = text.lines().filter(|line| !line.starts_with("machine:"));
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        let campaign = Campaign { model: name, text: &text, choices: std::slice::from_ref(&choice) };
        let ran = campaign.run(&mut record, &mut |ended| {
            let trial = &ended.trial;
            let outcome = match (&ended.not_tried, ended.wrong.is_empty()) {
                (Some(why), _) => format!("not tried: {why}"),
                (None, true) => "as it has to be".to_owned(),
                (None, false) => format!("WRONG: {}", ended.wrong.join("; ")),
            };
            let (over, fault) = (trial.over.name(), trial.fault.name());
            println!(
                "{name} {over} {} {} {fault}: {:.0} s, {outcome}",
                trial.step, trial.action, ended.seconds
            );
        });
        broken.extend(ran.err());
    }
    println!("\n{}", table(&record.of_all_builds()));
    for broken in &broken {
        println!("BROKEN OFF: {broken}");
    }
    Ok(broken.is_empty() && record.ended().iter().all(|ended| ended.wrong.is_empty()))
}

/// The examples that are not in [`MODELS`] yet.
fn unlisted() -> Result<Vec<String>, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let failed = |error| format!("{}: {error}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        names.extend(file.strip_suffix(".yaml").filter(|name| !MODELS.contains(name)).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn list<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').map(|word| word.parse().map_err(|error| format!("`{word}`: {error}"))).collect()
}
