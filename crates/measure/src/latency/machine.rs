//! Blocks taken on this machine, in its containers and VMs.

use std::{
    collections::{BTreeMap, BTreeSet},
    process,
    time::{Duration, Instant},
};

use penstock_host::{Command, Place, PlaceError, ProcessError, Root, chain, interrupt};
use penstock_model::{
    CpuSet,
    measurement::{
        EndKind,
        latency::{Arm, Load, Setting, Tool, ToolVersion},
    },
    verdict::Vantage,
};

use super::{
    command::{self, Seat},
    isolation::{self, Partition},
    load::Running,
    parse::hwlatdetect,
    settings::Layout,
    tracing::Tracing,
};
use crate::{
    network::lease::{MARK, sweep},
    record::RawOutput,
    sampler::{Failure, Preparation, Sampler},
    testbed::Testbed,
};

/// How long looking for tools, and ending what was left, may take in a place.
const TIMEOUT: Duration = Duration::from_secs(60);
/// After the machine was tuned or untuned, before a block begins: what was moved settles.
const SETTLE: Duration = Duration::from_millis(500);

/// Takes real-time steps off the machine and puts them on again.
pub trait Toggle {
    /// Has the machine as the model's `realtime` says, or as it was without.
    ///
    /// # Errors
    /// In words for a person. The machine may then be in between; [`Toggle::restore`] is called in any case.
    fn set(&mut self, tuned: bool) -> Result<(), String>;

    /// Has the machine as it was found.
    ///
    /// # Errors
    /// In words for a person, with what to do.
    fn restore(&mut self) -> Result<(), String>;
}

/// A machine that stays as it is.
pub struct AsItIs;

impl Toggle for AsItIs {
    fn set(&mut self, tuned: bool) -> Result<(), String> {
        match tuned {
            true => Ok(()),
            false => Err("the machine is not to be untuned".to_owned()),
        }
    }

    fn restore(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Takes blocks on a machine.
pub struct LatencyTaker<'a> {
    testbed: &'a Testbed,
    root: Root,
    layout: Layout,
    toggle: &'a mut dyn Toggle,
    /// Whether to look for time that firmware takes, before anything else.
    firmware: Option<Duration>,
    tuned: Option<bool>,
    load: Option<Running>,
    partitions: Vec<Partition>,
    mark: String,
    /// The kernel's tracer as it was found, before a tool sets it.
    tracing: Option<Tracing>,
    /// Guests in which a tool may still run, because the command that ran it was ended.
    unfinished: BTreeSet<Vantage>,
}

impl<'a> LatencyTaker<'a> {
    /// For this machine. `firmware`: how long hwlatdetect is run before all blocks.
    pub fn new(
        testbed: &'a Testbed,
        root: Root,
        layout: Layout,
        toggle: &'a mut dyn Toggle,
        firmware: Option<Duration>,
    ) -> LatencyTaker<'a> {
        LatencyTaker {
            testbed,
            root,
            layout,
            toggle,
            firmware,
            tuned: None,
            load: None,
            partitions: Vec::new(),
            mark: format!("latency-{};", process::id()),
            tracing: None,
            unfinished: BTreeSet::new(),
        }
    }

    /// Has the kernel's tracer as it was found; says what could not be done.
    fn leave_tracer(&self) -> Vec<String> {
        self.tracing.as_ref().map(Tracing::restore).unwrap_or_default()
    }

    /// Which of these programs are in a place, with the versions that they tell.
    fn survey(
        &self,
        place: &dyn Place,
        programs: &BTreeSet<&str>,
    ) -> Result<BTreeMap<String, String>, String> {
        let list: Vec<&str> = programs.iter().copied().collect();
        let script = "for p in \"$@\"; do command -v \"$p\" >/dev/null && echo \"$p\"; done; true";
        let look = Command::new("sh").args(["-c", script, "sh"]).args(list).deadline(TIMEOUT);
        let output = place.run(&look).map_err(|error| chain(&error))?;
        let found = output.text();
        Ok(found
            .lines()
            .filter(|line| programs.contains(line))
            .map(|program| (program.to_owned(), String::new()))
            .collect())
    }

    /// Has the machine as an arm has it.
    fn have(&mut self, arm: Arm) -> Result<(), Failure> {
        let tuned = arm != Arm::Untuned;
        if self.tuned == Some(tuned) {
            return Ok(());
        }
        self.load = None;
        self.leave_partitions();
        self.tuned = None;
        self.toggle.set(tuned).map_err(Failure::Machine)?;
        self.tuned = Some(tuned);
        std::thread::sleep(SETTLE);
        Ok(())
    }

    /// Has this load run, and no other.
    fn bear(&mut self, load: &Load) -> Result<(), Failure> {
        if self.load.as_ref().is_some_and(|running| running.load() == load) {
            return self.load.as_mut().map_or(Ok(()), Running::check).map_err(Failure::Sample);
        }
        self.load = None;
        self.load = Some(Running::start(load, &self.layout.online).map_err(Failure::Sample)?);
        Ok(())
    }

    fn seat(&mut self, setting: &Setting) -> Result<Seat, Failure> {
        let others = |cpus: &CpuSet| {
            let others: std::collections::BTreeSet<u32> =
                cpus.0.iter().copied().filter(|cpu| *cpu != setting.cpu).collect();
            (!others.is_empty()).then_some(CpuSet(others))
        };
        let guest =
            setting.guest().and_then(|name| self.layout.guests.iter().find(|seat| seat.name == *name));
        match (setting.kind, guest) {
            (EndKind::Host, _) => match isolation::partition(&self.root, setting.cpu)
                .map_err(Failure::Sample)?
            {
                Some(partition) => {
                    let group =
                        isolation::group_for_tasks(&self.root, &partition).map_err(Failure::Sample)?;
                    let main = others(&partition.cpus);
                    if !self.partitions.contains(&partition) {
                        self.partitions.push(partition);
                    }
                    let group = self.root.path(group).to_string_lossy().into_owned();
                    Ok(Seat { cpu: setting.cpu, main, group: Some(group) })
                }
                None => Ok(Seat { cpu: setting.cpu, main: others(&self.layout.housekeeping), group: None }),
            },
            (EndKind::Container, Some(guest)) => {
                Ok(Seat { cpu: setting.cpu, main: others(&guest.pin), group: None })
            }
            (EndKind::Vm, Some(guest)) => {
                // Its virtual CPUs are on the host's in ascending order.
                let at = guest.pin.0.iter().position(|cpu| *cpu == setting.cpu).unwrap_or(0);
                let cpu = u32::try_from(at).unwrap_or(0);
                let all: CpuSet = CpuSet((0..u32::try_from(guest.pin.0.len()).unwrap_or(1)).collect());
                let main = CpuSet(all.0.into_iter().filter(|other| *other != cpu).collect());
                Ok(Seat { cpu, main: (!main.0.is_empty()).then_some(main), group: None })
            }
            (_, None) => Err(Failure::Sample(format!("{} is no guest in real time", setting.name()))),
        }
    }

    fn leave_partitions(&mut self) {
        for partition in std::mem::take(&mut self.partitions) {
            isolation::clean(&self.root, &partition);
        }
    }

    /// What firmware takes from all of Linux, as a note.
    fn firmware(&self, place: &dyn Place, length: Duration) -> String {
        let cpu = self.layout.measured().unwrap_or(0);
        let seconds = command::seconds(length);
        let command = Command::new("hwlatdetect")
            .args([
                format!("--duration={seconds}s"),
                "--threshold=10us".to_owned(),
                format!("--cpu-list={cpu}"),
            ])
            .deadline(length * 3 + TIMEOUT);
        let output = match place.run(&command) {
            Ok(output) => output,
            Err(error) => return format!("hwlatdetect could not be run: {}", chain(&error)),
        };
        match hwlatdetect::summary(&output.stdout) {
            Ok(found) => {
                let smis = found.smis.map_or_else(String::new, |smis| format!(", and {smis} SMIs"));
                match found.longest {
                    None => format!(
                        "hwlatdetect, {seconds} s on CPU {cpu}: firmware took nothing longer than {} us{smis}",
                        found.threshold
                    ),
                    Some(longest) => format!(
                        "hwlatdetect, {seconds} s on CPU {cpu}: firmware or the hypervisor took {longest} us at the longest, {} \
                         times more than {} us{smis}; no setting of Linux changes that",
                        found.exceeding, found.threshold
                    ),
                }
            }
            Err(error) => {
                let errors = output.errors();
                let said = errors.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
                format!("hwlatdetect told nothing: {error}: {said:.200}")
            }
        }
    }
}

impl Sampler<Setting, ToolVersion> for LatencyTaker<'_> {
    fn prepare(&mut self, settings: &[Setting]) -> Preparation<ToolVersion> {
        let mut preparation = Preparation::default();
        let places: BTreeSet<&Vantage> = settings.iter().map(|setting| &setting.place).collect();
        let mut surveys: BTreeMap<&Vantage, Result<BTreeMap<String, String>, String>> = BTreeMap::new();
        for vantage in places {
            let mut programs: BTreeSet<&str> = settings
                .iter()
                .filter(|setting| setting.place == *vantage)
                .map(|setting| command::program(setting.tool))
                .collect();
            if *vantage == Vantage::Host {
                programs.extend(["hackbench", "taskset"]);
            }
            let survey = self.testbed.place(vantage).and_then(|place| self.survey(place.as_ref(), &programs));
            if let (Ok(survey), Ok(place)) = (&survey, self.testbed.place(vantage)) {
                let told = survey.keys().filter(|program| *program != "taskset");
                preparation.tools.extend(told.map(|program| ToolVersion {
                    tool: program.clone(),
                    place: place.describe(),
                    version: None,
                }));
            }
            surveys.insert(vantage, survey);
        }
        let host = surveys.get(&Vantage::Host).and_then(|survey| survey.as_ref().ok()).cloned();
        // Without a setting of the host's nobody has looked there.
        let host = host.or_else(|| {
            let place = self.testbed.place(&Vantage::Host).ok()?;
            self.survey(place.as_ref(), &BTreeSet::from(["hackbench", "taskset"])).ok()
        });
        for setting in settings {
            let program = command::program(setting.tool);
            let why = match surveys.get(&setting.place) {
                Some(Ok(there)) if there.contains_key(program) => None,
                Some(Ok(_)) => Some(format!(
                    "{program} is not installed {}: install the package {} there",
                    if setting.kind == EndKind::Host {
                        "on the host".to_owned()
                    } else {
                        setting.place.to_string()
                    },
                    command::package(setting.tool)
                )),
                Some(Err(why)) => Some(why.clone()),
                None => Some(format!("{} was not looked at", setting.place)),
            };
            let lacks = ["hackbench", "taskset"].into_iter().find(|program| {
                setting.load.is_loaded() && host.as_ref().is_none_or(|host| !host.contains_key(*program))
            });
            let why = why.or_else(|| {
                let package = if lacks? == "hackbench" { "rt-tests" } else { "util-linux" };
                Some(format!(
                    "there is no load: {} is not installed on the host: install the package {package}",
                    lacks?
                ))
            });
            if let Some(why) = why {
                preparation.missing.insert(setting.id(), why);
            }
        }
        let traces = |setting: &Setting| matches!(setting.tool, Tool::Timerlat | Tool::Hwlat);
        if self.firmware.is_some() || settings.iter().any(traces) {
            self.tracing = Some(Tracing::find(&self.root));
        }
        let firmware = self.firmware.filter(|_| !interrupt::pending());
        if let (Some(length), Ok(place)) = (firmware, self.testbed.place(&Vantage::Host)) {
            preparation.notes.push(self.firmware(place.as_ref(), length));
            // What is not as it was is told in the end.
            self.leave_tracer();
        }
        preparation
    }

    fn take(&mut self, setting: &Setting, length: Duration) -> Result<RawOutput, Failure> {
        self.have(setting.arm)?;
        self.bear(&setting.load)?;
        let seat = self.seat(setting)?;
        let place = self.testbed.place(&setting.place).map_err(Failure::Sample)?;
        let command = command::block(setting, &seat, length).env(MARK, &self.mark);
        let began = Instant::now();
        let output = place.run(&command).map_err(|error| {
            if matches!(
                &error,
                PlaceError::Process {
                    source: ProcessError::Interrupted { .. } | ProcessError::TimedOut { .. },
                    ..
                }
            ) || interrupt::pending()
            {
                self.unfinished.insert(setting.place.clone());
            }
            self.leave_tracer();
            Failure::Sample(chain(&error))
        })?;
        if !output.status.success() {
            self.leave_tracer();
        }
        // It is there until the end, or part of the block was on an idle machine.
        self.load.as_mut().map_or(Ok(()), Running::check).map_err(Failure::Sample)?;
        let least = Duration::from_secs(command::seconds(length));
        let text = |bytes: &[u8]| command::nameless(&String::from_utf8_lossy(bytes));
        let raw = RawOutput::of(place.describe(), &command, &output, text);
        let took = began.elapsed();
        if setting.tool != Tool::Hwlat && raw.status == Some(0) && took < least.mul_f64(0.9) {
            let took = took.as_secs_f64();
            return Err(Failure::Sample(format!(
                "{} ended after {took:.1} s of {} s",
                setting.tool,
                least.as_secs()
            )));
        }
        Ok(raw)
    }

    fn finish(&mut self) -> Vec<String> {
        self.load = None;
        let mut complaints = Vec::new();
        interrupt::set_aside(|| {
            for vantage in std::mem::take(&mut self.unfinished) {
                let Ok(place) = self.testbed.place(&vantage) else { continue };
                let end = Command::new("sh").args(["-c", &sweep(&self.mark)]).deadline(TIMEOUT);
                if let Err(error) = place.run(&end) {
                    complaints.push(format!(
                        "a tool may still run {vantage}, until its time is over: {}",
                        chain(&error)
                    ));
                }
            }
            complaints.extend(self.leave_tracer());
            self.leave_partitions();
            complaints.extend(self.toggle.restore().err());
        });
        complaints
    }
}
