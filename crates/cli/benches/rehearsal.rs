//! `make bench`: what a user waits for, measured on the binary that a user runs. Prints a table and keeps each sample in
//! `bench/samples/rehearsal.json`.
//!
//! Arguments after `--` choose among [`groups`]; all of them without any.
#![allow(clippy::disallowed_methods)]

mod attributes;
mod audit;
mod binds;
mod crash;
mod overhead;
#[path = "growth/process.rs"]
mod process;
mod waking;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Instant, SystemTime},
};

use penstock_testkit::{
    binary, models,
    samples::{self, SampleRow},
    sysfs,
};
use serde_json::{Value, json};

#[path = "../../report/tests/runs/mod.rs"]
mod runs;

/// One line of the table.
struct Row {
    what: &'static str,
    unit: &'static str,
    target: f64,
    samples: Vec<f64>,
    /// Where the time goes.
    parts: String,
}

impl Row {
    fn median(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

fn main() {
    process::launch_if_asked();
    let chosen: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let groups = groups(directory.path());
    for word in &chosen {
        let known: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
        assert!(known.contains(&word.as_str()), "`{word}` is none of {}", known.join(", "));
    }
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|word| word == name);
    let mut measured = Vec::new();
    for (name, measure) in groups.into_iter().filter(|(name, _)| wanted(name)) {
        measured.extend(measure().into_iter().map(|row| (name, row)));
    }
    print(&measured);
    keep(&measured, &chosen);
}

/// Rows that are measured in one go, by what they are asked for with.
type RowGroup<'a> = (&'static str, Box<dyn FnOnce() -> Vec<Row> + 'a>);

/// All groups, in the order in which they are measured.
fn groups(directory: &Path) -> Vec<RowGroup<'_>> {
    vec![
        ("plan", Box::new(move || plan(directory))),
        ("empty", Box::new(move || empty(directory))),
        ("attributes", Box::new(attributes)),
        ("audit", Box::new(move || audits(directory))),
        ("binds", Box::new(move || ["standard", "realtime"].into_iter().flat_map(binds).collect())),
        ("report", Box::new(report)),
        ("rehearse", Box::new(move || rehearse(directory))),
        ("measure", Box::new(move || measure(directory))),
        ("latency", Box::new(latency)),
        ("overhead", Box::new(overhead)),
        ("vfs", Box::new(move || vec![vfs(directory)])),
        ("kill", Box::new(move || vec![crashes("killed in every step, back and on again", &crash::kill())])),
        (
            "kill-realtime",
            Box::new(move || {
                vec![crashes("killed in every step of real time, back and on again", &crash::kill_realtime())]
            }),
        ),
        (
            "reset",
            Box::new(move || vec![crashes("reset at a random moment, back or on again", &crash::reset())]),
        ),
        ("image", Box::new(move || vec![image(directory)])),
    ]
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Runs `penstock` to its end and gives the seconds that it took.
fn timed(directory: &Path, arguments: &[&str], variables: &[(&str, &Path)]) -> f64 {
    let mut command = binary::command(directory);
    command.args(arguments).envs(variables.iter().copied());
    let started = Instant::now();
    let output = command.output().expect("the binary runs");
    let seconds = started.elapsed().as_secs_f64();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    seconds
}

/// The evidence that a run left in `directory`.
fn evidence(directory: &Path) -> Value {
    let text = fs::read_to_string(directory.join("evidence.json")).expect("a run leaves evidence");
    serde_json::from_str(&text).expect("evidence is JSON")
}

/// The phases of a run, each with its seconds.
type Phases = Vec<(String, f64)>;

/// Those of the run that left its evidence in `directory`.
fn phases(directory: &Path) -> Phases {
    let evidence = evidence(directory);
    let phases = evidence["phases"].as_array().cloned().unwrap_or_default();
    phases
        .iter()
        .map(|phase| {
            (phase["name"].as_str().unwrap_or_default().to_owned(), phase["seconds"].as_f64().unwrap_or(0.0))
        })
        .collect()
}

fn in_words(phases: &[(String, f64)]) -> String {
    let words: Vec<String> = phases.iter().map(|(name, seconds)| format!("{name} {seconds:.1}")).collect();
    words.join(", ")
}

/// Parse, check and plan of 2 NICs, 510 VFs and 64 guests: the whole process, started from nothing.
fn plan(directory: &Path) -> Vec<Row> {
    let model = directory.join("large.yaml");
    let inventory = directory.join("large.json");
    fs::write(&model, models::dealt_out(2, 255, 64)).expect("the model is written");
    fs::write(&inventory, serde_json::to_vec(&models::machine(2, 255)).expect("JSON"))
        .expect("the inventory is written");
    let words = ["check", "large.yaml", "--inventory", "large.json"];
    let times = (0..21).map(|_| timed(directory, &words, &[]) * 1000.0).collect();
    let penstock = binary::path().expect("the binary was built");
    let memory = (0..3).map(|_| process::measure(directory, &penstock, &words).memory).collect();
    vec![
        Row {
            what: "check + plan, 510 VFs, 64 guests",
            unit: "ms",
            target: 50.0,
            samples: times,
            parts: String::new(),
        },
        Row {
            what: "  peak memory of that",
            unit: "MB",
            target: 100.0,
            samples: memory,
            parts: String::new(),
        },
    ]
}

/// An empty plan of 510 VFs that 64 guests run with: the scan of the machine's tree, and the plan of what was found with what
/// netlink would have added. Each is a whole process, which prints or reads the inventory as JSON besides.
fn empty(directory: &Path) -> Vec<Row> {
    let root = directory.join("root");
    fs::create_dir_all(&root).expect("a directory");
    sysfs::plant(&models::tree(2, 255), &root).expect("the tree is planted");
    fs::write(directory.join("settled.yaml"), models::dealt_out(2, 255, 64)).expect("the model is written");
    let scan = ["scan", "--json", "--root", "root"];
    let scanned = binary::command(directory).args(scan).output().expect("the binary runs");
    let scanned = serde_json::from_slice(&scanned.stdout).expect("an inventory");
    let settled = models::settled(scanned, 64);
    fs::write(directory.join("settled.json"), serde_json::to_vec(&settled).expect("JSON"))
        .expect("the inventory is written");
    let plan = ["plan", "settled.yaml", "--inventory", "settled.json"];
    let told = binary::command(directory).args(plan).output().expect("the binary runs");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("Nothing to do"), "{told}");
    let both = || (timed(directory, &scan, &[]) * 1000.0, timed(directory, &plan, &[]) * 1000.0);
    let times: Vec<(f64, f64)> = (0..21).map(|_| both()).collect();
    let row = |what, target, part: fn(&(f64, f64)) -> f64| Row {
        what,
        unit: "ms",
        target,
        samples: times.iter().map(part).collect(),
        parts: String::new(),
    };
    let metrics = ["metrics", "--root", "root"];
    let scraped = Row {
        what: "  metrics of that, without counters",
        unit: "ms",
        target: 200.0,
        samples: (0..21).map(|_| timed(directory, &metrics, &[]) * 1000.0).collect(),
        parts: String::new(),
    };
    vec![
        row("empty plan, 510 VFs: scan and plan", 200.0, |(scan, plan)| scan + plan),
        row("  the scan of that", 200.0, |(scan, _)| *scan),
        row("  the plan of that", 200.0, |(_, plan)| *plan),
        scraped,
    ]
}

/// An audit of a large recorded machine, and one of this machine: each is a whole process.
fn audits(directory: &Path) -> Vec<Row> {
    audit::plant(&directory.join("large"));
    let program = binary::path().expect("the binary was built: `make build`");
    let rows = |[what, processors]: [&'static str; 2], arguments: &[&str], parts: &str| {
        let run = || {
            let started = Instant::now();
            let used = process::measure(directory, &program, arguments);
            (started.elapsed().as_secs_f64() * 1000.0, used.cpu)
        };
        let (samples, cpu): (Vec<f64>, Vec<f64>) = (0..21).map(|_| run()).unzip();
        let row = |what, target, samples, parts: &str| Row {
            what,
            unit: "ms",
            target,
            samples,
            parts: parts.to_owned(),
        };
        [
            row(what, 300.0, samples, parts),
            row(processors, 100.0, cpu, "what other work on the machine does not change"),
        ]
    };
    let large = rows(
        ["audit, 128 CPUs, 1000 interrupts, 30 VMs", "  processor time of that"],
        &["audit", "--json", "--root", "large"],
        "a recorded tree, 128 VFs, 2000 processes",
    );
    let here = rows(["audit of this machine", "  processor time of that one"], &["audit", "--json"], "");
    large.into_iter().chain(here).collect()
}

/// How much longer `ip link set` takes for the attributes of 196 VFs.
fn attributes() -> Vec<Row> {
    let rounds = attributes::compare();
    let row = |what, unit, target, part: &dyn Fn(&attributes::Round) -> f64, parts: &str| Row {
        what,
        unit,
        target,
        samples: rounds.iter().map(part).collect(),
        parts: parts.to_owned(),
    };
    // The table's targets are upper bounds, so that at least 5 times faster is at most a fifth.
    vec![
        row(
            "784 attributes of 196 VFs, as % of `ip` for each",
            "%",
            20.0,
            &|round| round.penstock / round.each * 100.0,
            "in pairs, on a board with 28 igbs",
        ),
        row("  as % of `ip` for each VF", "%", 100.0, &|round| round.penstock / round.each_vf * 100.0, ""),
        row("  penstock apply, its scan and plan included", "s", 60.0, &|round| round.penstock, ""),
        row("  784 calls of `ip`", "s", 600.0, &|round| round.each, ""),
        row("  196 calls of `ip`", "s", 600.0, &|round| round.each_vf, ""),
    ]
}

/// What VFs have inside a container after more than 100 binds on a loaded board.
fn binds(kernel: &'static str) -> Vec<Row> {
    let counted = binds::count(kernel);
    let row = |what, unit, target, samples, parts| Row { what, unit, target, samples, parts };
    let parts = format!("{} binds, {} starts failed", counted.binds, counted.failed);
    let (wrong, without_link, took) = match kernel {
        "standard" => (
            "wrong addresses after binds, loaded board",
            "  no link after them",
            "  7 VFs bound, their container started",
        ),
        _ => (
            "wrong addresses after binds, PREEMPT_RT, loaded board",
            "  no link after them, PREEMPT_RT",
            "  7 VFs bound, their container started, PREEMPT_RT",
        ),
    };
    vec![
        row(wrong, "", 0.0, vec![counted.wrong as f64], parts.clone()),
        row(without_link, "", 0.0, vec![counted.without_link as f64], parts),
        row(took, "s", f64::INFINITY, counted.seconds, String::new()),
    ]
}

/// The page of a run with 2,000 cells, a tenth of them with their latencies counted.
fn report() -> Vec<Row> {
    let evidence = runs::measured::many_cells();
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..11 {
        let started = Instant::now();
        let page = penstock_report::html(&evidence);
        times.push(started.elapsed().as_secs_f64() * 1000.0);
        sizes.push(page.len() as f64 / 1e6);
    }
    let row = |what, unit, target, samples| Row { what, unit, target, samples, parts: String::new() };
    vec![row("report of 2,000 cells", "ms", 1000.0, times), row("  size of that page", "MB", 3.0, sizes)]
}

/// An example that is rehearsed, with the targets in seconds of a cold and a warm one.
struct Rehearsed {
    example: &'static str,
    /// What its rows are called: cold, warm, and both of these over the boot of the same board.
    rows: [&'static str; 4],
    targets: [f64; 2],
}

const REHEARSED: [Rehearsed; 3] = [
    Rehearsed {
        example: "smallest.yaml",
        rows: [
            "rehearse smallest.yaml, cold",
            "rehearse smallest.yaml, warm",
            "  smallest.yaml, cold over the board's boot",
            "  smallest.yaml, warm over the board's boot",
        ],
        targets: [f64::INFINITY; 2],
    },
    Rehearsed {
        example: "containers.yaml",
        rows: [
            "rehearse containers.yaml, cold",
            "rehearse containers.yaml, warm",
            "  containers.yaml, cold over the board's boot",
            "  containers.yaml, warm over the board's boot",
        ],
        targets: [60.0, 20.0],
    },
    Rehearsed {
        example: "xeon-d.yaml",
        rows: [
            "rehearse xeon-d.yaml (2 VMs), cold",
            "rehearse xeon-d.yaml (2 VMs), warm",
            "  xeon-d.yaml, cold over the board's boot",
            "  xeon-d.yaml, warm over the board's boot",
        ],
        targets: [150.0, 75.0],
    },
];

/// The seconds and the phases of a cold rehearsal and of a warm one.
type Pair = ((f64, Phases), (f64, Phases));

/// The seconds of a boot among the phases of a cold rehearsal.
fn boot(phases: &[(String, f64)]) -> f64 {
    phases.iter().find(|(name, _)| name == "boot").map(|(_, seconds)| *seconds).expect("the board booted")
}

/// Pairs of a cold and a warm rehearsal of each example, in turn, so that what the machine does meanwhile meets both. A cold one boots
/// the board, from QEMU's start to the first program that SSH runs there: what a rehearsal takes over that stands on any machine.
fn rehearse(directory: &Path) -> Vec<Row> {
    const PAIRS: usize = 3;
    let run = directory.join("run");
    let (mut resumed, mut memory, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for Rehearsed { example: name, rows: [cold, warm, cold_over, warm_over], targets } in REHEARSED {
        let model = example(name);
        let model = model.to_str().expect("a path in UTF-8");
        let mut once = |extra: &[&str]| {
            let _ = fs::remove_dir_all(&run);
            let seconds = timed(directory, &[&["rehearse", model, "--output", "run"], extra].concat(), &[]);
            let evidence = evidence(&run);
            let steps = evidence["steps"].as_array().cloned().unwrap_or_default();
            let resumes = steps
                .iter()
                .filter(|step| step["what"].as_str().is_some_and(|what| what.ends_with(": let it run")));
            resumed.extend(resumes.filter_map(|step| step["seconds"].as_f64()));
            memory.extend(evidence["peak_memory"].as_f64().map(|bytes| bytes / 1e6));
            (seconds, phases(&run))
        };
        let pairs: Vec<Pair> = (0..PAIRS).map(|_| (once(&["--cold"]), once(&[]))).collect();
        let over = |what, taken: fn(&Pair) -> f64| {
            let samples = pairs.iter().map(|pair| taken(pair) / boot(&pair.0.1)).collect();
            Row { what, unit: "", target: f64::INFINITY, samples, parts: String::new() }
        };
        let row = |what, target, of: fn(&Pair) -> &(f64, Phases)| Row {
            what,
            unit: "s",
            target,
            samples: pairs.iter().map(|pair| of(pair).0).collect(),
            parts: pairs.last().map(|pair| in_words(&of(pair).1)).unwrap_or_default(),
        };
        rows.push(row(cold, targets[0], |(cold, _)| cold));
        rows.push(row(warm, targets[1], |(_, warm)| warm));
        rows.push(over(cold_over, |(cold, _)| cold.0));
        rows.push(over(warm_over, |(_, warm)| warm.0));
    }
    let row = |what, unit, target, samples| Row { what, unit, target, samples, parts: String::new() };
    rows.push(row("  a VM, from ready to run to running", "s", 1.0, resumed));
    rows.push(row("  peak memory of penstock on the board", "MB", 30.0, memory));
    rows
}

/// The example's measurements on a board, quick and in full.
fn measure(directory: &Path) -> Vec<Row> {
    let model = example("containers.yaml");
    let model = model.to_str().expect("a path in UTF-8");
    let row = |what, extent: &str, target| {
        let run = directory.join(extent);
        let output = Command::new(binary::path().expect("the binary was built"))
            .args(["rehearse", model, &format!("--measure={extent}"), "--output", extent])
            .current_dir(directory)
            .output()
            .expect("the binary runs");
        // 1: something had to be left out, which the row says.
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        let evidence = evidence(&run);
        let cells = evidence["measurements"]["cells"].as_array().cloned().unwrap_or_default();
        let measured = cells.iter().filter(|cell| !cell["status"]["measured"].is_null()).count();
        let seconds = phases(&run).iter().find(|(name, _)| name == "measure").map(|(_, seconds)| *seconds);
        let has_interval = |cell: &&serde_json::Value| {
            let summaries = cell["status"]["measured"]["summaries"].as_array().cloned().unwrap_or_default();
            summaries.iter().any(|summary| !summary["interval"].is_null())
        };
        let intervals = cells.iter().filter(has_interval).count();
        let parts = format!("{measured} of {} cells measured, {intervals} with an interval", cells.len());
        Row { what, unit: "s", target, samples: seconds.into_iter().collect(), parts }
    };
    vec![
        row("measure containers.yaml, quick", "quick", 120.0),
        row("measure containers.yaml, full", "full", 720.0),
    ]
}

/// How much later an untuned board wakes than a tuned one.
fn latency() -> Vec<Row> {
    let rows = |(load, what): (&str, &'static [(&'static str, &'static str)])| {
        let found = waking::compare(load);
        let row = move |(statistic, what): &(&str, &'static str)| {
            let ratio = found.iter().find(|ratio| ratio.statistic == *statistic);
            // The table's targets are upper bounds, so that at least 10 times less is at most a tenth.
            let value = ratio.map_or(f64::NAN, |ratio| 1.0 / ratio.value);
            let parts = ratio.map_or_else(String::new, |ratio| format!("untuned over tuned {}", ratio.words));
            Row { what, unit: "", target: 0.1, samples: vec![value], parts }
        };
        what.iter().map(row).collect::<Vec<_>>()
    };
    let others: &[(&str, &str)] = &[
        ("p99.99", "tuned over untuned, p99.99, load on the others"),
        ("max", "tuned over untuned, maximum, load on the others"),
    ];
    let anywhere: &[(&str, &str)] = &[
        ("p99.99", "tuned over untuned, p99.99, load anywhere"),
        ("max", "tuned over untuned, maximum, load anywhere"),
    ];
    [("others", others), ("anywhere", anywhere)].into_iter().flat_map(rows).collect()
}

/// What Penstock costs a single netperf.
fn overhead() -> Vec<Row> {
    let compared = overhead::compare();
    let row = |what, target, samples, parts| Row { what, unit: "%", target, samples, parts };
    let off = compared.ratios.iter().map(|ratio| (ratio - 1.0).abs() * 100.0).collect();
    vec![
        row(
            "netperf through penstock, off from by hand",
            2.0,
            vec![(compared.ratio - 1.0).abs() * 100.0],
            format!(
                "ratio of medians {:.4} of {} pairs, in instructions of the board",
                compared.ratio,
                compared.ratios.len()
            ),
        ),
        row(
            "  the same by hand twice, for comparison",
            100.0,
            vec![(compared.null - 1.0).abs() * 100.0],
            String::new(),
        ),
        row("  each pair of those", 100.0, off, String::new()),
    ]
}

/// 200 VFs of one NIC, dealt out to four containers: from the board being up to all of them inside their guests.
fn vfs(directory: &Path) -> Row {
    fs::write(directory.join("many.yaml"), models::dealt_out(1, 200, 4)).expect("the model is written");
    let run = directory.join("many");
    let mut samples = Vec::new();
    for _ in 0..2 {
        let _ = fs::remove_dir_all(&run);
        timed(directory, &["rehearse", "many.yaml", "--output", "many"], &[]);
        samples.extend(phases(&run).iter().filter(|(name, _)| name == "apply").map(|(_, seconds)| *seconds));
    }
    Row {
        what: "200 VFs created, named, in their guests",
        unit: "s",
        target: 10.0,
        samples,
        parts: in_words(&phases(&run)),
    }
}

/// The board image from nothing, into an empty cache.
fn image(directory: &Path) -> Row {
    let cache = directory.join("cache");
    let seconds = timed(directory, &["board", "image"], &[("XDG_CACHE_HOME", &cache)]);
    Row {
        what: "board image from nothing",
        unit: "s",
        target: 180.0,
        samples: vec![seconds],
        parts: String::new(),
    }
}

/// Times are only told; what counts is that all ended right.
fn crashes(what: &'static str, counted: &crash::Counted) -> Row {
    let of = counted.seconds.len();
    assert_eq!(counted.right, of, "{what}: {} of {of} ended right", counted.right);
    let parts = format!("{of} of {of} ended right");
    Row { what, unit: "s", target: f64::INFINITY, samples: counted.seconds.clone(), parts }
}

fn print(rows: &[(&str, Row)]) {
    println!("| what | median | target | samples | where the time goes (last run, s) |");
    println!("|---|---|---|---|---|");
    for (_, row) in rows {
        let (median, unit) = (row.median(), row.unit);
        let met = if median <= row.target { "" } else { " **missed**" };
        println!(
            "| {} | {median:.1} {unit} | {} {unit}{met} | {} | {} |",
            row.what,
            row.target,
            row.samples.len(),
            row.parts
        );
    }
}

/// Keeps the raw samples with the date, the commit, the machine and the command that they belong to. What was not measured stays.
fn keep(rows: &[(&str, Row)], chosen: &[String]) {
    let row = |(group, row): &(&str, Row)| SampleRow {
        group: (*group).to_owned(),
        row: json!({
            "what": row.what.trim(), "unit": row.unit, "target": row.target, "samples": row.samples, "parts": row.parts,
        }),
    };
    let words = if chosen.is_empty() { String::new() } else { format!(" rows=\"{}\"", chosen.join(" ")) };
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let measured = samples::provenance(&date, &format!("make bench{words}"));
    let path = samples::keep("rehearsal", &measured, rows.iter().map(row).collect());
    println!("\nraw samples: {}", path.expect("the samples are kept").display());
}
