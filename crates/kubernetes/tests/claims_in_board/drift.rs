//! How soon a change of a VF that no pod has is a taint, by which the scheduler goes.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Instant,
};

use penstock_kubernetes::identity::DRIFT;
use penstock_testkit::{
    binary,
    cluster::PATIENT,
    trials::{Failed, Outcome},
};

use super::Bed;

/// What is wanted where nothing else runs, in seconds; here two CPUs emulate two others, and the figure is told.
const WANTED: u32 = 2;

/// The VF that is changed.
const DEVICE: &str = "net0-6";

/// A VF of the first node with its taints, a line for each change of a slice that has it; of the node's other slices a line says nothing.
struct TaintWatch {
    kubectl: Child,
    lines: Receiver<(Instant, String)>,
}

impl TaintWatch {
    fn begin(bed: &Bed) -> Result<TaintWatch, Failed> {
        let of_node = format!("--field-selector=spec.nodeName={}", bed.node);
        let mut command = binary::command(bed.cluster.at());
        command.args(["board", "cluster", "kubectl", bed.cluster.name(), "get", "resourceslices", "--watch"]);
        let part = |part: &str| format!("{{.spec.devices[?(@.name==\"{DEVICE}\")].{part}}}");
        let line = format!("{} {}{{\"\\n\"}}", part("name"), part("taints[*].key"));
        command.arg(of_node).arg(format!("--output=jsonpath={line}"));
        // In a group of its own, with which the kubectl is ended that penstock runs.
        let mut kubectl = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = kubectl.stdout.take().ok_or("kubectl has no output")?;
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Nobody listens any more when the test has ended.
            lines.map(|line| (Instant::now(), line)).try_for_each(|line| tell.send(line)).ok()
        });
        Ok(TaintWatch { kubectl, lines })
    }

    /// When the VF first had the taint, or first had it no more.
    fn until(&self, tainted: bool) -> Result<Instant, Failed> {
        loop {
            let (when, line) = self
                .lines
                .recv_timeout(PATIENT)
                .map_err(|error| format!("the taint {DRIFT} did not become {tainted}: {error}"))?;
            if line.starts_with(DEVICE) && line.contains(DRIFT) == tainted {
                return Ok(when);
            }
        }
    }
}

impl Drop for TaintWatch {
    fn drop(&mut self) {
        // It is ended already, or cannot be: there is nothing else to be done.
        let group = format!("-{}", self.kubectl.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.kubectl.wait();
    }
}

pub fn is_told(bed: &Bed) -> Outcome {
    let outcome = is_told_and_taken_back(bed);
    // What failed in the middle is no trouble of the tests that follow.
    set_spoof_check(bed, "on")?;
    outcome?;
    bed.is_as_before()
}

fn set_spoof_check(bed: &Bed, state: &str) -> Outcome {
    let change = format!("ip link set $(ls /sys/bus/pci/devices/0000:01:00.0/net) vf 6 spoofchk {state}");
    bed.cluster.on(&bed.node, &change)?;
    Ok(())
}

fn is_told_and_taken_back(bed: &Bed) -> Outcome {
    let watch = TaintWatch::begin(bed)?;
    // What is there already.
    watch.until(false)?;
    for (spoofchk, tainted, what) in [("off", true, "there"), ("on", false, "gone")] {
        let before = Instant::now();
        set_spoof_check(bed, spoofchk)?;
        let after = Instant::now();
        let told = watch.until(tainted)?;
        // SSH to the node takes its time before and after the change.
        let [least, most] = [after, before].map(|since| told.saturating_duration_since(since).as_secs_f64());
        eprintln!(
            "drift: its taint was {what} {least:.1} to {most:.1} s after the change (wanted on a quiet machine: {WANTED} s)"
        );
    }
    Ok(())
}
