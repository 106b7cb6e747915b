//! hackbench, over and over, on the host.

use std::{
    io::{BufRead, BufReader, Read},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use penstock_host::{Command, chain, process::Background};
use penstock_model::{CpuSet, measurement::latency::Load};

use super::parse::hackbench;

/// Messages of each pair a time: so few that a time ends within seconds. It ends by itself then where Penstock is killed, and
/// that it starts so often is load too.
const LOOPS: u32 = 1000;
/// How long it runs before a block begins: until its processes are there.
const SETTLE: Duration = Duration::from_millis(700);
/// More of what it says is not kept.
const KEPT: usize = 1 << 20;
/// More of one line is not read.
const LINE: u64 = 4096;

/// A load that runs. Dropped, it ends.
#[derive(Debug)]
pub struct Running {
    load: Load,
    /// The loop, which leads a process group with all of hackbench's processes.
    program: Option<Background>,
    said: Arc<Mutex<String>>,
}

/// The loop. Without `cpus` it is bound to nothing.
pub fn command(groups: u32, cpus: Option<&CpuSet>) -> Command {
    let script = format!("while :; do hackbench -l {LOOPS} -g {groups} -f 20 2>&1 || sleep 0.5; done");
    match cpus {
        Some(cpus) => Command::new("taskset").args(["-c", &cpus.to_string(), "sh", "-c", &script]),
        None => Command::new("sh").args(["-c", &script]),
    }
}

impl Running {
    /// Starts it and waits until it works. `online` are all CPUs of the host: a load on all of them is bound to none.
    ///
    /// # Errors
    /// In words for a person, when it could not be started, or failed at once.
    pub fn start(load: &Load, online: &CpuSet) -> Result<Running, String> {
        let Load::Hackbench { cpus, groups, .. } = load else {
            return Ok(Running { load: load.clone(), program: None, said: Arc::default() });
        };
        let command = command(*groups, (cpus != online).then_some(cpus));
        let (program, output) = command.start_connected().map_err(|error| chain(&error))?;
        let said = Arc::<Mutex<String>>::default();
        let kept = Arc::clone(&said);
        // Read on, or it would wait for somebody to read.
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while matches!(output.by_ref().take(LINE).read_until(b'\n', &mut line), Ok(read) if read > 0) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() < KEPT {
                    kept.push_str(&String::from_utf8_lossy(&line));
                }
                line.clear();
            }
        });
        let mut running = Running { load: load.clone(), program: Some(program), said };
        thread::sleep(SETTLE);
        running.check()?;
        Ok(running)
    }

    /// The load that runs.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Whether it runs and has not failed: a block beside a load that does nothing would tell of an idle machine.
    ///
    /// # Errors
    /// What it said.
    pub fn check(&mut self) -> Result<(), String> {
        let Some(program) = &mut self.program else { return Ok(()) };
        let ended = program.ended();
        let said = self.said();
        let usual = |line: &&str| {
            ["Running in", "Each sender", "Time:"].iter().any(|known| line.starts_with(known))
                || line.trim().is_empty()
        };
        let complaint = said.lines().find(|line| !usual(line)).unwrap_or_default();
        match (ended, complaint) {
            (None, "") => Ok(()),
            (None, complaint) => Err(format!("the load fails: {complaint:.200}")),
            (Some(status), complaint) => Err(format!("the load ended with {status}: {complaint:.200}")),
        }
    }

    /// The seconds of each time that hackbench came to its end.
    pub fn times(&self) -> Vec<f64> {
        hackbench::times(self.said().as_bytes()).unwrap_or_default()
    }

    fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            program.end_group();
        }
    }
}
