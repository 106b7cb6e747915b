//! One rehearsal: a board, this same binary inside it, and what it found.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use penstock_board::{Board, Design, Lasting};
use penstock_host::{Command, Output, Place, PlaceError};
use penstock_model::{Inventory, Mac, Model, NicName};
use penstock_plan::longest_waits;
use penstock_render::MOST_BYTES;
use penstock_report::{
    Evidence,
    evidence::{Accelerator, Phase, StepOutcome, StepRecord},
    machine::Machine,
};
use serde::de::DeserializeOwned;

use crate::{
    bench::{outcome, remote::Measuring},
    boards::{self, Boards},
    commands::{apply::Carried, verify::Verified},
    failure::{Failure, Status},
    latency::remote as latency,
    model_file::ModelFile,
    runtime::evidence,
    ui::printer::Printer,
};

/// How long one verb may take inside a board, which software emulation slows down some twenty times.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The same where the board counts instructions, which slows it down some ten times more.
const TIMEOUT_COUNTING: Duration = Duration::from_secs(3600);

/// So much of a guest's console is kept.
const CONSOLE_LIMIT: usize = 4 << 20;

/// A rehearsal and the evidence gathered so far; it is kept even when something fails on the way.
pub struct Rehearsal<'a> {
    file: &'a ModelFile,
    evidence: Evidence,
    started: Instant,
    /// Where the model's NICs are on the board, as arguments of the verbs there.
    nics: Vec<String>,
    /// What stands for whoever makes the VFs of NICs that the model does not manage: a line of shell for each.
    outside: Vec<String>,
    /// Whether `apply` and `verify` both ran to their ends.
    complete: bool,
    /// What was brought out of the board, by its path in the run directory.
    files: BTreeMap<String, Vec<u8>>,
}

impl<'a> Rehearsal<'a> {
    /// A rehearsal of `file` that starts at `now`.
    pub fn new(file: &'a ModelFile, id: String, now: SystemTime) -> Rehearsal<'a> {
        let evidence = evidence::begun(file, id, now, true);
        Rehearsal {
            file,
            evidence,
            started: Instant::now(),
            nics: Vec::new(),
            outside: Vec::new(),
            complete: false,
            files: BTreeMap::new(),
        }
    }

    /// Does all of it. Whatever the outcome, the board is gone afterwards.
    ///
    /// # Errors
    ///
    /// When the image cannot be made, the board does not boot, a verb in it fails, or it does not go down.
    pub fn perform(
        &mut self,
        boards: &Boards,
        design: Design,
        cold: bool,
        measuring: Option<Measuring<'_>>,
        printer: &mut Printer,
    ) -> Result<(), Failure> {
        // The model's `match` speaks of the real machine; here a NIC is the PF that was made for it.
        self.nics = design.nics.iter().map(|nic| format!("--nic={}={}", nic.name, nic.mac)).collect();
        let model = &self.file.model;
        let external = |name: &NicName| model.nics.get(name).is_some_and(|nic| nic.externally_managed);
        let external = design.nics.iter().filter(|nic| external(&nic.name));
        self.outside = external.map(|nic| make_vfs(model, &nic.name, nic.mac)).collect();
        let image = self.timed("image", |_| boards.image(printer))?;
        self.evidence.hashes.image = Some(image.digest().to_owned());
        let mut board =
            self.timed("boot", |_| boards.up(design, &image, None, cold, Lasting::default(), printer))?;
        self.evidence.versions.qemu = Some(board.emulator_version().to_owned());
        let (name, why) = board.accelerator();
        self.evidence.versions.accelerator = Some(Accelerator { name: name.to_owned(), why: why.to_owned() });
        let outcome = self.inside(&mut board, measuring, printer);
        self.bring_consoles(&board);
        self.bring_generated(&board);
        self.evidence.serial_log = Some(board.serial_log());
        let down = self.timed("down", |_| Ok(board.down()?));
        outcome.and(down)
    }

    /// What happens inside the board: the same verbs that a user types on a real host.
    fn inside(
        &mut self,
        board: &mut Board,
        measuring: Option<Measuring<'_>>,
        printer: &mut Printer,
    ) -> Result<(), Failure> {
        printer.doing("Copying penstock and the model into the board");
        self.evidence.hashes.binary = Some(evidence::binary()?);
        let model = self.timed("copy", |_| boards::furnish(board, self.file))?;

        for line in &self.outside {
            let made = board.run(&Command::new("sh").args(["-c", line]).deadline(TIMEOUT));
            made.map_err(|error| interrupted("outside", error.into()))?.succeeded()?;
        }

        printer.doing("Scanning the board");
        let inventory: Inventory =
            self.timed("scan", |_| parsed(ask(board, &["scan", "--json"], &[], TIMEOUT)?))?;
        evidence::scanned(&mut self.evidence, &inventory)?;

        let nics = self.nics.clone();
        let allowed = if self.file.model.board.icount { TIMEOUT_COUNTING } else { TIMEOUT };
        // A VM that does not become ready is told of by `apply`, with its console, and not ended with it.
        let allowed = allowed + longest_waits(&self.file.model, &inventory);
        printer.doing("Applying the model to the board");
        let output =
            self.timed("apply", |_| ask(board, &["apply", "--json", "--quiet", &model], &nics, allowed))?;
        let read = serde_json::from_slice::<Carried>(&output.stdout);
        let unread = read.as_ref().err().map(ToString::to_string);
        let carried = read.ok();
        if let Some(carried) = &carried {
            self.evidence.machine = Machine::of(&self.file.model, &inventory, &carried.plan.nics, true);
            self.evidence.steps = records(carried);
            self.evidence.peak_memory = carried.peak_memory;
            self.evidence.notes.extend(carried.plan.notes.iter().cloned());
        }
        match (output.status.code(), &carried) {
            (Some(0), Some(_)) => {}
            // Some guests failed alone; what became of the others is worth seeing.
            (Some(1), Some(_)) => self.evidence.notes.extend(output.errors().lines().map(str::to_owned)),
            // Whatever it did, what it printed is what this program should have been able to read.
            (Some(0 | 1), None) => return Err(unreadable("apply", &output, &unread.unwrap_or_default())),
            _ => return Err(boards::refused("apply", &output)),
        }

        printer.doing("Verifying from the kernel, from inside every guest, and with frames");
        // Nobody else's traffic is on a board.
        let output =
            self.timed("verify", |_| ask(board, &["verify", "--json", "--load", &model], &nics, allowed))?;
        let verified: Verified = parsed(output)?;
        self.evidence.verdicts = verified.verdicts;
        if let Some(measuring) = measuring {
            let wakes = latency::is_realtime(&self.file.model);
            // A model of real time alone has nothing else to measure.
            if !wakes || !measuring.is_empty() {
                printer.doing("Measuring, inside the board");
                self.timed("measure", |evidence| {
                    let outcome = measuring.perform(board, &model, &nics, printer);
                    evidence.measurements = Some(outcome.measurements);
                    outcome.ended
                })?;
            }
            if wakes {
                printer.doing("Measuring how late threads wake, inside the board");
                let (seed, directory) = (measuring.seed(), measuring.directory().to_owned());
                let latency = self.timed("latency", |_| {
                    latency::perform(board, &model, &nics, seed, &directory, printer)
                })?;
                self.evidence.latency = Some(latency);
            }
        }
        self.complete = true;
        Ok(())
    }

    /// Brings out what each guest has said on its console. A guest that never started has said nothing; a board that does not answer is not
    /// asked again.
    fn bring_consoles(&mut self, board: &Board) {
        for guest in self.file.model.guests.keys() {
            let path = format!("/run/penstock/guests/penstock-{guest}/console.log");
            match board.read(&path, CONSOLE_LIMIT) {
                Ok(log) => drop(self.files.insert(format!("consoles/{guest}.log"), log)),
                Err(PlaceError::File { .. }) => {}
                Err(_) => return,
            }
        }
    }

    /// Brings out the files that were made beside the model, to below `generated/`.
    fn bring_generated(&mut self, board: &Board) {
        for path in &self.file.generated {
            let place = Path::new("/root").join(path).to_string_lossy().into_owned();
            let bytes = match board.read(&place, MOST_BYTES) {
                Ok(bytes) => bytes,
                Err(PlaceError::File { .. }) => continue,
                Err(_) => return,
            };
            let plain = path.trim_start_matches("./");
            let short = format!("generated/{}", plain.strip_prefix("generated/").unwrap_or(plain));
            let name = if self.files.contains_key(&short) { format!("generated/{plain}") } else { short };
            self.files.insert(name, bytes);
        }
    }

    /// What was brought out of the board, by its path in the run directory.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }

    /// Whether a board was booted, or was to be: not where its image could not be had, and where the rehearsal `ended` because something for
    /// a board is missing.
    pub fn has_begun(&self, ended: Status) -> bool {
        let (had_image, had_board) =
            (self.evidence.hashes.image.is_some(), self.evidence.versions.qemu.is_some());
        had_image && (had_board || ended != Status::Missing)
    }

    /// Whether all was done and all that was seen is as the model says.
    pub fn holds(&self) -> bool {
        let measured = self.evidence.measurements.as_ref();
        self.complete
            && self.evidence.holds()
            && measured.is_none_or(|measured| outcome::status(measured) == Status::Holds)
    }

    /// The evidence, with how it ended.
    pub fn conclude(mut self, status: Status) -> Evidence {
        self.evidence.run.took = self.started.elapsed();
        self.evidence.run.exit = Some(status.code());
        self.evidence
    }

    fn timed<T>(
        &mut self,
        name: &str,
        act: impl FnOnce(&mut Evidence) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let started = Instant::now();
        let outcome = act(&mut self.evidence);
        self.evidence.phases.push(Phase { name: name.to_owned(), took: started.elapsed() });
        outcome.map_err(|failure| interrupted(name, failure))
    }
}

/// An interrupt in a phase of the rehearsal that is inside the board, in words of the rehearsal; any other failure is as it was.
fn interrupted(phase: &str, failure: Failure) -> Failure {
    let doing = match phase {
        "outside" => "the VFs that somebody else manages were made on the board",
        "scan" => "the board was scanned",
        "apply" => "the model was applied to the board",
        "verify" => "the board was verified",
        "latency" => "it was measured how late threads wake",
        _ => return failure,
    };
    boards::interrupted(doing, failure)
}

/// Makes the VFs of a NIC that somebody else manages on a real machine, with the MAC addresses that the model knows.
fn make_vfs(model: &Model, name: &NicName, mac: Mac) -> String {
    let vfs = model.nics[name].vfs;
    let macs: String = model
        .vfs(name)
        .filter_map(|(index, settings)| Some((index, settings.mac?)))
        .map(|(index, mac)| format!("ip link set $i vf {index} mac {mac}; "))
        .collect();
    format!(
        "for d in /sys/class/net/*; do i=${{d##*/}}; [ \"$(cat $d/address)\" = {mac} ] || continue; \
         p=$(readlink -f $d/device); [ -e $p/sriov_numvfs ] || p=${{p%/*}}; [ -e $p/sriov_numvfs ] || continue; \
         ip link set $i up; echo {vfs} > $p/sriov_numvfs; {macs}done; true"
    )
}

/// Runs one of our own verbs inside the board.
fn ask(board: &Board, arguments: &[&str], nics: &[String], allowed: Duration) -> Result<Output, Failure> {
    let command = Command::new(boards::BINARY).arg("--warned").args(arguments).args(nics).deadline(allowed);
    Ok(board.run(&command)?)
}

/// Reads the JSON that a verb printed; whether it holds is for the reader of the JSON.
fn parsed<T: DeserializeOwned>(output: Output) -> Result<T, Failure> {
    serde_json::from_slice(&output.stdout).map_err(|error| match output.status.success() {
        true => unreadable(&output.command, &output, &error.to_string()),
        false => boards::refused(&output.command, &output),
    })
}

/// A verb inside the board did as it should, and printed what cannot be read.
fn unreadable(verb: &str, output: &Output, why: &str) -> Failure {
    let text = format!(
        "inside the board, `{verb}` ended with {}, and what it printed cannot be read: {why}\n{}",
        output.status,
        output.errors().trim_end()
    );
    Failure::new(Status::Failed, text.trim_end().to_owned())
}

/// The steps of the plan as they went; those after a failure were not reached.
fn records(carried: &Carried) -> Vec<StepRecord> {
    use penstock_apply::journal::Ending;
    let report = |step: &penstock_plan::Step| carried.steps.iter().find(|report| report.step == step.id);
    let record = |step: &penstock_plan::Step| {
        let report = report(step);
        StepRecord {
            id: step.id.0,
            what: step.action.to_string(),
            why: step.reason.clone(),
            took: report.and_then(|report| Duration::try_from_secs_f64(report.seconds).ok()),
            outcome: match report.map(|report| report.outcome) {
                Some(Ending::Done) if carried.undone.contains(&step.id) => StepOutcome::Undone,
                None | Some(Ending::LeftOut) => StepOutcome::Skipped,
                Some(Ending::Done) => StepOutcome::Done,
                Some(Ending::Unsupported) => StepOutcome::Unsupported,
                Some(Ending::Failed) => StepOutcome::Failed,
            },
            detail: report.and_then(|report| report.detail.clone()),
        }
    };
    carried.plan.steps.iter().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_told_without_what_was_run_for_the_rehearsal() {
        let internals = |status| Failure::new(status, "could not run a command inside the board");
        for (phase, wanted) in [
            ("scan", "interrupted while the board was scanned"),
            ("apply", "interrupted while the model was applied to the board"),
            ("verify", "interrupted while the board was verified"),
            ("boot", "could not run a command inside the board"),
        ] {
            let failure = interrupted(phase, internals(Status::Interrupted));
            assert_eq!((failure.status, failure.in_one_line().as_str()), (Status::Interrupted, wanted));
        }
        let other = interrupted("apply", internals(Status::Failed));
        assert_eq!(other.in_one_line(), "could not run a command inside the board");
    }
}
