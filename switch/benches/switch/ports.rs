//! Many ports of ours: rows `ports`, `memory` and `idle`.

use std::{fs, thread, time::Duration};

use serde_json::json;

use super::{
    choice::Choice,
    connection::SwitchEndpoint,
    format::Format,
    front::Front,
    lane::{GuestKind, Lane, Sample},
    report::{Bar, Report, Row, Spread},
    supervisor::Workshop,
    switches::{self, Kind, Switch},
};

/// As many as an SR-IOV NIC has at most, its PF included.
const MANY: usize = 256;
/// Entries of an idle guest's rings, as QEMU has them.
const ENTRIES: u16 = 256;
/// How long idle ports are watched.
const IDLE: Duration = Duration::from_secs(10);

/// Measures them.
pub fn measure(choice: &Choice, workshop: &Workshop, report: &mut Report) {
    if choice.wants("ports") {
        report.attempt("ports", workshop, |report| traffic(choice.pairs, workshop, report));
    }
    if choice.wants("memory") || choice.wants("idle") {
        report.attempt("idle ports", workshop, |report| idle(choice, workshop, report));
    }
}

/// Guests at the ports from `first` on, who do nothing.
fn guests(switch: &Switch, first: usize) -> Result<Vec<Front>, String> {
    let ports = switch.sockets.paths.iter().skip(first);
    ports.map(|path| Front::connect(SwitchEndpoint { path, listens: false }, ENTRIES, 1)).collect()
}

/// 64 B frames between two of many ports, the others connected and idle, against a switch with no others.
fn traffic(pairs: usize, workshop: &Workshop, report: &mut Report) -> Result<(), String> {
    let lane = |ports| Lane::start(Kind::Ours { ports }, GuestKind::Prepared, Format::Split, workshop);
    let mut few = lane(2)?;
    let mut many = lane(MANY)?;
    many.switch.program.thaw();
    let idle = guests(&many.switch, 2)?;
    let mut samples: Vec<(Sample, Sample)> = Vec::new();
    for turn in 0..pairs {
        let pair = (many.run(64, report.clock)?, few.run(64, report.clock)?);
        report.progress(&format!(
            "{MANY} ports, {}: {:.2} against {:.2} Mpps",
            turn + 1,
            pair.0.rate() / 1e6,
            pair.1.rate() / 1e6
        ));
        samples.push(pair);
    }
    drop(idle);
    let of = |part: fn(&(Sample, Sample)) -> f64| Spread::of(samples.iter().map(part));
    report.add(Row {
        what: format!("64 B between 2 of {MANY} ports, split ring"),
        ours: format!("{:.2} Mpps", of(|(many, _)| many.rate() / 1e6).median),
        other: format!("2 ports: {:.2} Mpps", of(|(_, few)| few.rate() / 1e6).median),
        value: of(|(many, few)| many.rate() / few.rate()),
        bar: Bar::AtLeast(0.9),
        samples: samples.iter().map(|(many, few)| json!({"many": many, "few": few})).collect(),
    });
    Ok(())
}

/// What idle ports cost.
fn idle(choice: &Choice, workshop: &Workshop, report: &mut Report) -> Result<(), String> {
    let few = switches::start(Kind::Ours { ports: 2 }, workshop)?;
    let few_guests = guests(&few, 0)?;
    let many = switches::start(Kind::Ours { ports: MANY + 2 }, workshop)?;
    let many_guests = guests(&many, 0)?;
    // What was said to it is done before it is asked.
    thread::sleep(Duration::from_millis(500));
    if choice.wants("memory") {
        let (base, all) = (resident(&few)?, resident(&many)?);
        let each = |part: fn(&Resident) -> f64| (part(&all) - part(&base)) / MANY as f64;
        report.add(Row {
            what: "resident memory for each idle port".to_owned(),
            ours: format!(
                "{:.0} KiB, {:.0} of them shared with the guest",
                each(|all| all.whole),
                each(|all| all.shared)
            ),
            other: format!(
                "{:.1} MB with 2 ports, {:.1} with {}",
                base.whole / 1e3,
                all.whole / 1e3,
                MANY + 2
            ),
            value: Spread::of(std::iter::once(each(|all| all.whole))),
            bar: Bar::AtMost(256.0),
            samples: json!({"few": {"resident_kib": base.whole, "shared_kib": base.shared},
                "many": {"resident_kib": all.whole, "shared_kib": all.shared}}),
        });
    }
    if choice.wants("idle") {
        let had = many.program.cpu_seconds();
        thread::sleep(IDLE);
        let seconds = many.program.cpu_seconds() - had;
        report.add(Row {
            what: format!("CPU of {} idle ports over {IDLE:?}", MANY + 2),
            ours: format!("{:.2} ms", seconds * 1e3),
            other: "% of a CPU".to_owned(),
            value: Spread::of(std::iter::once(seconds / IDLE.as_secs_f64() * 100.0)),
            bar: Bar::AtMost(1.0),
            samples: json!({"cpu_seconds": seconds, "seconds": IDLE.as_secs_f64()}),
        });
    }
    drop((few_guests, many_guests));
    Ok(())
}

/// Memory in KiB.
struct Resident {
    whole: f64,
    /// Of that, what is some file's: the program itself, and guests' memory that was touched.
    shared: f64,
}

fn resident(switch: &Switch) -> Result<Resident, String> {
    let path = format!("/proc/{}/status", switch.program.pid());
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok())
            .ok_or_else(|| format!("{path} says nothing of {key}"))
    };
    Ok(Resident { whole: of("VmRSS:")?, shared: of("RssFile:")? + of("RssShmem:")? })
}
