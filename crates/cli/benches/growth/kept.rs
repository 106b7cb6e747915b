//! All samples, with the date, the commit and the machine that they belong to.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use serde_json::{Value, json};

use super::{choice::Axis, curve::Curve};

/// Writes `target/bench-growth.json`.
pub fn keep(curves: &[Curve]) {
    // A tree with changes of its own has `-dirty` behind the commit.
    let commit =
        Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]).output();
    let commit = commit.map(|output| output.stdout).unwrap_or_default();
    let curves: Vec<Value> = curves
        .iter()
        .map(|curve| {
            json!({
                "by": curve.axis.name(), "what": curve.subject, "quantity": curve.quantity,
                "unit": curve.quantity.unit(), "points": curve.points,
            })
        })
        .collect();
    let kept = json!({
        "date": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        "commit": String::from_utf8_lossy(&commit).trim(),
        "machine": machine(),
        "curves": curves,
    });
    fs::write(path(), serde_json::to_vec_pretty(&kept).expect("JSON")).expect("the samples are kept");
    println!("\nraw samples: target/bench-growth.json");
}

/// The curves that were kept last.
pub fn read() -> Vec<Curve> {
    let text = fs::read_to_string(path()).expect("something was measured before");
    let kept: Value = serde_json::from_str(&text).expect("JSON");
    let curves = kept["curves"].as_array().expect("curves").iter();
    let curve = |curve: &Value| Curve {
        axis: curve["by"].as_str().and_then(Axis::of).expect("a kind of size"),
        subject: curve["what"].as_str().expect("a name").to_owned(),
        quantity: serde_json::from_value(curve["quantity"].clone()).expect("a quantity"),
        points: serde_json::from_value(curve["points"].clone()).expect("samples"),
    };
    curves.map(curve).collect()
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-growth.json")
}

fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "processor": model.map(|(_, model)| model),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}
