//! The table, and the file with every sample.

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use penstock_testkit::samples::{self, SampleRow};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    peer,
    processes::{self, Clock},
    supervisor::Workshop,
};

/// What fails is tried so often.
const TRIES: usize = 3;

/// Median and quartiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// Half of the values are at most this.
    pub median: f64,
    /// A quarter is.
    pub low: f64,
    /// Three quarters are.
    pub high: f64,
    /// So many values.
    pub count: usize,
}

impl Spread {
    /// Of these.
    pub fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let last = sorted.len().saturating_sub(1) as f64;
            sorted.get((last * part).round() as usize).copied().unwrap_or(f64::NAN)
        };
        Spread { median: at(0.5), low: at(0.25), high: at(0.75), count: sorted.len() }
    }
}

/// What a value is to be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// This, or more.
    AtLeast(f64),
    /// This, or less.
    AtMost(f64),
}

impl Bar {
    fn is_met(self, value: f64) -> bool {
        match self {
            Bar::AtLeast(least) => value >= least,
            Bar::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::AtLeast(least) => write!(f, "at least {least}"),
            Bar::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

/// A line of the table.
pub struct Row {
    /// What was measured.
    pub what: String,
    /// What came of it here.
    pub ours: String,
    /// What it is compared with.
    pub other: String,
    /// Ours over that, pair by pair; or what `other` says.
    pub value: Spread,
    /// What that is to be.
    pub bar: Bar,
    /// Each pair.
    pub samples: Value,
}

/// Everything that was measured.
pub struct Report {
    /// The processor's.
    pub clock: Clock,
    rows: Vec<Row>,
    failures: Vec<String>,
    /// What had to be done again, and why.
    again: Vec<String>,
}

impl Default for Report {
    fn default() -> Self {
        Report { clock: Clock::measured(), rows: Vec::new(), failures: Vec::new(), again: Vec::new() }
    }
}

impl Report {
    /// Adds a line.
    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Says what goes on.
    pub fn progress(&self, text: &str) {
        eprintln!("{text}");
    }

    /// Does something, which adds its rows at its end, once more if it fails; says so, and when it failed for good.
    pub fn attempt(
        &mut self,
        what: &str,
        workshop: &Workshop,
        mut measure: impl FnMut(&mut Report) -> Result<(), String>,
    ) {
        for left in (0..TRIES).rev() {
            let Err(failed) = measure(self) else { return };
            let text = format!("{what}: {failed}{}", peer::complaints(workshop));
            if left == 0 {
                eprintln!("not measured: {text}");
                self.failures.push(text);
            } else {
                eprintln!("again: {text}");
                self.again.push(text);
            }
        }
    }

    /// Whether everything that was asked for was measured.
    pub fn is_whole(&self) -> bool {
        self.failures.is_empty()
    }

    /// Prints the table.
    pub fn print(&self) {
        println!("| what | ours | other | ratio or value (quartiles) | wanted | runs |");
        println!("|---|---|---|---|---|---|");
        for Row { what, ours, other, value, bar, .. } in &self.rows {
            let Spread { median, low, high, count } = value;
            let met = if bar.is_met(*median) { "" } else { " **missed**" };
            println!(
                "| {what} | {ours} | {other} | {median:.2} ({low:.2} to {high:.2}) | {bar}{met} | {count} |"
            );
        }
        println!("\nper second of the switch's CPU; cycles of {}", self.clock);
        for again in &self.again {
            println!("had to be done again: {again}");
        }
        for failure in &self.failures {
            println!("not measured: {failure}");
        }
    }

    /// Keeps all samples with what they belong to.
    pub fn keep(&self, workshop: &Workshop) -> io::Result<PathBuf> {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({"what": row.what, "ours": row.ours, "other": row.other, "bar": row.bar,
                    "value": row.value,
                    "samples": row.samples})
            })
            .collect();
        let output = |program: &str, arguments: &[&str]| {
            let text =
                processes::output(Command::new(program).args(arguments)).unwrap_or_else(|failed| failed);
            text.trim().to_owned()
        };
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kept = json!({
            "commit": output("git", &["rev-parse", "HEAD"]),
            "uncommitted": output("git", &["status", "--porcelain", "--untracked-files=no"]),
            "began": output("date", &["--utc", "--iso-8601=seconds"]),
            "machine": {
                "kernel": output("uname", &["--kernel-release"]),
                "cpu": model.map(|(_, name)| name),
                "cpus": std::thread::available_parallelism().map_or(0, usize::from),
                "clock": self.clock.0,
            },
            "versions": {"dpdk": output("dpkg-query", &["--show", "dpdk"]), "peer": peer::version()},
            "commands": processes::started(),
            "workshop": workshop.path(""),
            "failures": self.failures,
            "again": self.again,
            "rows": rows,
        });
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-switch.json");
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, serde_json::to_vec_pretty(&kept)?)?;
        let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
        let began = kept["began"].as_str().unwrap_or_default();
        let mut measured =
            samples::provenance(began, format!("make bench-switch {}", words.join(" ")).trim());
        for part in ["versions", "failures", "again"] {
            measured[part] = kept[part].clone();
        }
        measured["machine"]["clock"] = kept["machine"]["clock"].clone();
        // A row is a group by itself: any of them may be measured alone.
        let row = |row: &Value| SampleRow {
            group: row["what"].as_str().unwrap_or_default().to_owned(),
            row: row.clone(),
        };
        samples::keep("switch", &measured, kept["rows"].as_array().into_iter().flatten().map(row).collect())
    }
}
