//! How the tools are started, and what their output tells.

use std::time::Duration;

use penstock_host::Command;
use penstock_model::{
    CpuSet,
    measurement::latency::{Power, Setting, Tool},
};

use super::parse::{LatencyOutput, cyclictest, oslat, timerlat};
use crate::record::RawOutput;

/// cyclictest's bins: a tenth of a second of them, which an emulated machine needs. Only those with a count are printed.
pub const CYCLICTEST_BINS: u32 = 100_000;
/// oslat's: it takes no more.
pub const OSLAT_BINS: u32 = 1024;
/// timerlat's bins, of one microsecond each: latencies up to 10 ms.
pub const TIMERLAT_BINS: u32 = 10_000;
/// Microseconds between two wake-ups of cyclictest. The recipe that published figures are made with.
pub const INTERVAL: u32 = 200;
/// cyclictest's and timerlat's priority: above everything but the kernel's own watchdogs and migration.
pub const PRIORITY: u32 = 95;
/// oslat never sleeps: above ordinary threads, and below everything that the CPU needs.
pub const OSLAT_PRIORITY: u32 = 1;

/// How much longer than it measures a tool may take: it starts, locks its memory, warms up, and ends, on a slow machine under
/// load.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Puts the shell into a group of CPUs when one is given, then becomes the tool. The tool's JSON comes out of the shell's standard
/// output; the histogram that it prints besides is dropped.
const SCRIPT: &str =
    "[ -z \"$1\" ] || echo $$ >\"$1/cgroup.procs\" || exit 71; shift; exec \"$@\" 3>&1 >/dev/null";
/// Where the tools write their JSON.
const JSON: &str = "--json=/proc/self/fd/3";

/// Where in its place a tool measures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// The CPU, by its number there.
    pub cpu: u32,
    /// CPUs there for the tool's main thread, which sleeps meanwhile; the same CPU when there is no other.
    pub main: Option<CpuSet>,
    /// The directory of the control group that the tool is put into, so that it may use the CPU.
    pub group: Option<String>,
}

/// The tool's program.
pub fn program(tool: Tool) -> &'static str {
    match tool {
        Tool::Cyclictest => "cyclictest",
        Tool::Oslat => "oslat",
        Tool::Timerlat => "rtla",
        Tool::Hwlat => "hwlatdetect",
    }
}

/// The package that it is in, in Debian's words.
pub fn package(tool: Tool) -> &'static str {
    match tool {
        Tool::Cyclictest | Tool::Oslat | Tool::Hwlat => "rt-tests",
        Tool::Timerlat => "rtla",
    }
}

/// One block, so long: whole seconds are all that the tools know.
pub fn block(setting: &Setting, seat: &Seat, length: Duration) -> Command {
    let seconds = seconds(length);
    let cpu = seat.cpu.to_string();
    let held = setting.power == Power::Held;
    let mut words: Vec<String> = Vec::new();
    let mut say = |text: &str| words.extend(text.split(' ').map(str::to_owned));
    match setting.tool {
        Tool::Cyclictest => {
            say(&format!(
                "cyclictest -q -m -p{PRIORITY} --policy=fifo -i {INTERVAL} -h {CYCLICTEST_BINS} -t 1 -a {cpu}"
            ));
            if let Some(main) = &seat.main {
                say(&format!("--mainaffinity={main}"));
            }
            if !held {
                say("--default-system");
            }
            say(&format!("-D {seconds} {JSON}"));
        }
        Tool::Oslat => {
            // The main thread is bound in any case: to CPU 0, which it may not use, without being told.
            let first = seat.main.as_ref().and_then(|main| main.0.first()).copied().unwrap_or(seat.cpu);
            say(&format!("oslat -q --cpu-list {cpu} --cpu-main-thread {first} --rtprio {OSLAT_PRIORITY}"));
            say(&format!("-w memmove -m 4K -b {OSLAT_BINS} -D {seconds} {JSON}"));
        }
        Tool::Timerlat => {
            let text =
                format!("rtla timerlat hist -c {cpu} -P f:{PRIORITY} -d {seconds}s -b 1 -E {TIMERLAT_BINS}");
            say(&text);
            if held {
                say("--dma-latency 0");
            }
        }
        Tool::Hwlat => say(&format!("hwlatdetect --duration={seconds}s --threshold=10us --cpu-list={cpu}")),
    }
    let deadline = Duration::from_secs(seconds) * 3 + TIMEOUT;
    match setting.tool {
        Tool::Cyclictest | Tool::Oslat => {
            let group = seat.group.clone().unwrap_or_default();
            Command::new("sh").args(["-c", SCRIPT, "penstock-measure", &group]).args(words)
        }
        // The kernel's own threads measure, and need no group.
        Tool::Timerlat | Tool::Hwlat => Command::new(&words[0]).args(&words[1..]),
    }
    .deadline(deadline)
}

/// Whole seconds, at least 1.
pub fn seconds(length: Duration) -> u64 {
    length.as_millis().div_ceil(1000).max(1) as u64
}

/// What a block's raw output tells, in words for a person when it tells nothing.
///
/// # Errors
///
/// In words: what is wrong with the output, with the tool's status and the last line that it wrote to standard error; also for
/// hwlatdetect, which prints no histogram.
pub fn read(tool: Tool, raw: &RawOutput) -> Result<LatencyOutput, String> {
    raw.is_whole(tool)?;
    let output = raw.stdout.as_bytes();
    let told = match tool {
        Tool::Cyclictest => cyclictest::json(output, CYCLICTEST_BINS),
        Tool::Oslat => oslat::json(output, OSLAT_BINS),
        Tool::Timerlat => timerlat::histogram(output, TIMERLAT_BINS).map(|both| both.thread),
        Tool::Hwlat => return Err("hwlatdetect tells no histogram".to_owned()),
    };
    let line = raw.stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let said: String = line.chars().filter(|c| !c.is_control()).take(300).collect();
    let told = told.map_err(|error| match (raw.status, said.as_str()) {
        (Some(0), _) => error.to_string(),
        (Some(71), said) => format!("it could not be put onto its CPU: {said}"),
        (Some(127), _) => format!("{} is not installed {}", program(tool), raw.place),
        (status, "") => format!("{error} (exit status {})", in_words(status)),
        (_, said) => format!("{tool} failed: {said}"),
    })?;
    match raw.status {
        Some(0) => Ok(told),
        status => Err(format!("{tool} ended with {}: {said}", in_words(status))),
    }
}

fn in_words(status: Option<i32>) -> String {
    status.map_or_else(|| "a signal".to_owned(), |status| status.to_string())
}

/// The output without the machine's name, which rt-tests writes into its JSON and nobody needs.
pub fn nameless(output: &str) -> String {
    const KEY: &str = "\"nodename\":";
    let Some(at) = output.find(KEY) else { return output.to_owned() };
    let (before, after) = output.split_at(at + KEY.len());
    let mut rest = after.trim_start().strip_prefix('"').unwrap_or_default();
    // A name could hold a quotation mark, which has a backslash then. Where it is cut off, nothing of it stays.
    loop {
        match rest.find(['"', '\\']) {
            Some(at) if rest.as_bytes()[at] == b'"' => break rest = &rest[at + 1..],
            Some(at) => {
                let mut behind = rest[at + 1..].chars();
                behind.next();
                rest = behind.as_str();
            }
            None => break rest = "",
        }
    }
    format!("{before} \"\"{rest}")
}

#[cfg(test)]
mod tests {
    use penstock_model::{
        measurement::{
            EndKind,
            latency::{Arm, Load},
        },
        verdict::Vantage,
    };

    use super::*;

    fn line(tool: Tool, power: Power, group: Option<&str>) -> String {
        let setting = Setting {
            place: Vantage::Host,
            kind: EndKind::Host,
            cpu: 3,
            ordinary: false,
            tool,
            load: Load::Idle,
            arm: Arm::Tuned,
            power,
        };
        let seat = Seat { cpu: 3, main: Some("0-1".parse().unwrap()), group: group.map(str::to_owned) };
        let command = block(&setting, &seat, Duration::from_millis(2500));
        command.to_string().replace(SCRIPT, "SCRIPT")
    }

    #[test]
    fn the_honest_one_leaves_the_machine_as_it_is() {
        let honest = line(Tool::Cyclictest, Power::System, Some("/sys/fs/cgroup/x"));
        assert!(
            honest.ends_with(
                "penstock-measure /sys/fs/cgroup/x cyclictest -q -m -p95 --policy=fifo -i 200 -h 100000 -t 1 -a 3 \
                 --mainaffinity=0-1 --default-system -D 3 --json=/proc/self/fd/3"
            ),
            "{honest}"
        );
        let held = line(Tool::Cyclictest, Power::Held, None);
        assert!(
            held.contains("penstock-measure '' cyclictest") && !held.contains("default-system"),
            "{held}"
        );
        assert_eq!(
            line(Tool::Timerlat, Power::Held, None),
            "rtla timerlat hist -c 3 -P f:95 -d 3s -b 1 -E 10000 --dma-latency 0"
        );
        assert!(line(Tool::Oslat, Power::System, None).contains("--cpu-main-thread 0 --rtprio 1"));
    }

    #[test]
    fn no_name_of_a_machine_is_kept() {
        for (output, kept) in [
            (r#"{"nodename": "secret", "x": 1}"#, r#"{"nodename": "", "x": 1}"#),
            (r#"{"nodename": "se\"cret", "x": 1}"#, r#"{"nodename": "", "x": 1}"#),
            (r#"{"nodename": "secr"#, r#"{"nodename": """#),
            (r#"{"nodename": "secret\"#, r#"{"nodename": """#),
            (r#"{"nodename":"#, r#"{"nodename": """#),
            (r#"{"node": 0}"#, r#"{"node": 0}"#),
        ] {
            assert_eq!(nameless(output), kept);
        }
    }
}
