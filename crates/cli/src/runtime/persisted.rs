//! What is done at each start of this machine: planned, and looked at.

use std::{borrow::Cow, env, error::Error, path::Path};

use penstock_apply::history::{KnownRun, Phase, Purpose};
use penstock_host::{
    boot, files,
    process::{self, search_path},
    scan,
};
use penstock_model::{
    Inventory, MachineName, Verdict, inventory::BootSetup, machine::with_machine, names::NameError,
    verdict::Subject,
};
use penstock_plan::{
    Action, BootAction, Plan, Step,
    boot::{BootNeed, BootNeeds, BootSetting, is_on},
    longest_waits,
    persist::{self, Persisted, Wanted},
    resolve_drives,
};
use serde::Serialize;

use crate::{
    arguments::{NicAt, Subject as TargetArguments},
    failure::{Failure, Status},
    model_file::ModelFile,
    runtime::machine::Machine,
    ui::printer::Printer,
};

/// Where programs are that stay: not what somebody has just built or copied to look at.
const LASTING: [&str; 5] = ["/usr", "/opt", "/nix", "/gnu", "/bin"];

/// Plans to have the model come true at each start of `machine`, where its NICs are as `inventory` shows them.
///
/// # Errors
///
/// `Status::Missing` where systemd does not run the services; for paths in the model, the program or a drive that may not be there at
/// the next start; when what is there for the start cannot be read.
pub fn plan(
    machine: &Machine,
    file: &ModelFile,
    asked: &TargetArguments,
    allowed: &[String],
    inventory: &Inventory,
    needs: &BootNeeds,
) -> Result<Persisted, Failure> {
    let mut setup = setup(machine)?;
    if let Some(loader) = &setup.loader {
        // Where they are not known the tool that is run tells.
        setup.entries = boot::entries(machine.root(), loader).unwrap_or_default();
    }
    if !setup.systemd {
        let text = "systemd does not run the services of this machine, and Penstock knows no other way to start at boot";
        return Err(Failure::new(Status::Missing, text).hint(
            "have your init run `penstock apply MODEL` once udev has the NICs, and before the network is configured",
        ));
    }
    absolute_only(file)?;
    lasting_drives(file, inventory)?;
    let program = program()?;
    let search_path = search_path()?;
    let directories = search_path.iter().flat_map(|named| named.split(':'));
    for path in [persist::MODEL, persist::JOURNALS, &program].into_iter().chain(directories) {
        local_only(machine, path)?;
    }
    let options = options(file, asked, allowed, inventory);
    let text = copy(file)?;
    let cut_off = found_by_cut_off(machine);
    let wanted = Wanted {
        model: &file.model,
        text: &text,
        program: &program,
        search_path: search_path.as_deref(),
        options: &options,
        needs,
        waits: longest_waits(&file.model, inventory),
        cut_off: cut_off.as_deref(),
    };
    Ok(persist::persist(&wanted, &setup))
}

/// The text of the model's copy. Its name is another, and derived addresses must not become others with it.
fn copy(file: &ModelFile) -> Result<Cow<'_, str>, Failure> {
    let refused = |error: &dyn Error, machine: &str| {
        Failure::new(Status::Refused, error.to_string())
            .hint(format!("write `machine: {machine}` into the model"))
    };
    let machine: MachineName =
        file.model.machine.parse().map_err(|error: NameError| refused(&error, "NAME"))?;
    with_machine(&file.source.text, &machine).map_err(|error| refused(&error, &error.machine))
}

/// Whether `text` is the model's copy. One that can have no copy has none.
fn is_copy(text: &str, file: &ModelFile) -> bool {
    text == file.source.text || copy(file).is_ok_and(|copy| copy == text)
}

fn setup(machine: &Machine) -> Result<BootSetup, Failure> {
    let wants = format!("{}/{}.wants", persist::UNIT_DIRECTORY, persist::WANTED_BY);
    Ok(scan::boot::setup(machine.root(), &persist::paths(), &wants)?)
}

/// At boot the model is another file, in another directory.
fn absolute_only(file: &ModelFile) -> Result<(), Failure> {
    let templates = file.templates.iter().map(|template| &template.path);
    let templates = templates.filter(|path| !Path::new(path).is_absolute());
    let relative: Vec<&str> = file.generated.iter().chain(templates).map(String::as_str).collect();
    if relative.is_empty() {
        return Ok(());
    }
    let text = format!(
        "{} has paths relative to its own directory, and at boot its copy {} is applied: {}",
        file.source.name,
        persist::MODEL,
        relative.join(", ")
    );
    Err(Failure::new(Status::Refused, text).hint("write these paths absolute"))
}

/// The words on the kernel's command line that runs for the next boots found, where some were cut off. One who may not look at runs may
/// not carry out what is planned either.
fn found_by_cut_off(machine: &Machine) -> Option<Vec<String>> {
    let runs = machine.runs();
    let (all, _) = runs.list().ok()?;
    let cut_off = runs.half_way_to_the_start(&all);
    let plans = cut_off.iter().filter_map(|run| runs.plan(run).ok());
    let steps = plans.flat_map(|plan| plan.steps);
    let before = steps.filter_map(|step| match step.action {
        Action::Boot(BootAction::SetBootArguments(set)) => Some(set.before),
        _ => None,
    });
    (!cut_off.is_empty()).then(|| before.flatten().collect())
}

/// A drive is named by its serial number: another one that is added must not be taken for it.
fn lasting_drives(file: &ModelFile, inventory: &Inventory) -> Result<(), Failure> {
    let (found, _) = resolve_drives(&file.model, inventory);
    let open = file.model.drives.iter().filter(|(_, drive)| !drive.matching.is_exact());
    let open: Vec<String> = open
        .map(|(name, _)| {
            let bdf = found.get(name);
            let drive = inventory.nvme.iter().find(|drive| Some(&drive.bdf) == bdf);
            match drive.and_then(|drive| drive.serial.as_deref()) {
                Some(serial) => format!("{name}: {{match: {{serial: \"{}\"}}}}", serial.trim()),
                None => format!("{name}: {{match: {{bdf: ...}}}}"),
            }
        })
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let text = format!(
        "{} leaves open which drive of the machine is meant, and at a later boot that may be another one",
        file.source.name
    );
    let hint = format!("say which: drives: {{{}}}", open.join(", "));
    Err(Failure::new(Status::Refused, text).hint(hint))
}

/// VFs are made before the network is there, and what is needed for that cannot come over it.
fn local_only(machine: &Machine, path: &str) -> Result<(), Failure> {
    let Some(mounted) = boot::over_the_network(machine.root(), path) else { return Ok(()) };
    let text =
        format!("{path} is needed at boot before the network is configured, and comes over it: {mounted}");
    Err(Failure::new(Status::Refused, text).hint("keep it on a local file system"))
}

/// The directories in which programs are looked for alone, if somebody has named some: what applies the model at boot finds them there, too.
fn search_path() -> Result<Option<String>, Failure> {
    let Some(named) = search_path::named() else { return Ok(None) };
    let refused = |why: String| {
        let text = format!("{} is to be set at each boot, and {why}", search_path::VARIABLE);
        Failure::new(Status::Refused, text)
            .hint("name directories there that only root can write to, and whose names are UTF-8")
    };
    let lasting = search_path::lasting(&named, &[0]).map_err(|directory| {
        let directory = directory.display();
        refused(format!(
            "others than root can put programs into {directory}, or another directory in its place"
        ))
    })?;
    let joined =
        env::join_paths(&lasting).map_err(|error| refused(format!("{}: {error}", named.display())))?;
    let joined =
        joined.into_string().map_err(|joined| refused(format!("it is not UTF-8: {}", joined.display())))?;
    Ok(Some(joined).filter(|joined| !joined.is_empty()))
}

/// This program, where it will still be at the next boot, and be ours.
fn program() -> Result<String, Failure> {
    let path = process::own_program()?;
    let path = files::canonical(&path)?;
    let shown = path.display();
    let install = format!("install -m 755 {shown} /usr/local/bin/penstock, then call that one");
    if !LASTING.iter().any(|place| path.starts_with(place)) {
        let text = format!("{shown} is to be started at each boot, and is in no place where programs stay");
        return Err(Failure::new(Status::Refused, text).hint(install));
    }
    if let Some(place) = files::writable_by_others(&path, &[0])? {
        let text = format!(
            "{shown} is to be started as root at each boot, and others than root can write to {}",
            place.display()
        );
        return Err(Failure::new(Status::Refused, text).hint(install));
    }
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        Failure::new(Status::Refused, format!("the path of {shown} is not UTF-8")).hint(install)
    })
}

/// What the program is told at boot besides the model. A NIC that the model leaves open stays the one that it is now,
/// whatever cards are added.
fn options(
    file: &ModelFile,
    asked: &TargetArguments,
    allowed: &[String],
    inventory: &Inventory,
) -> Vec<String> {
    let resolved = penstock_plan::resolve(&file.model, inventory).unwrap_or_default();
    let mut options = Vec::new();
    for (name, nic) in &file.model.nics {
        let open = !nic.matching.is_exact();
        let told = asked.nics.iter().any(|at| at.name == *name);
        let found = resolved.get(name).and_then(|bdf| inventory.pf(*bdf)).and_then(|pf| pf.permanent_mac);
        let mac = if told { nic.matching.mac } else { found.filter(|_| open) };
        if let Some(mac) = mac {
            options.extend(["--nic".to_owned(), NicAt { name: name.clone(), mac }.to_string()]);
        }
    }
    for name in allowed {
        options.extend(["--allow".to_owned(), name.clone()]);
    }
    options
}

/// Words on the kernel's command line that nothing here puts there.
pub fn tell_by_hand(by_hand: &[String], needs: &BootNeeds, printer: &mut Printer) -> Status {
    if by_hand.is_empty() {
        return Status::Holds;
    }
    let line = by_hand.join(" ");
    let is_live = |need: &BootNeed| match &need.setting {
        BootSetting::KernelArgument(words) => need.live || !by_hand.contains(words),
        BootSetting::Module(_) | BootSetting::ModuleOption { .. } => true,
    };
    if needs.needs.iter().all(is_live) {
        printer.say(format!(
            "No boot loader's tool here sets these words without taking others away. The running kernel has what the model needs ({line}): see that the next is started with it too."
        ));
        return Status::Holds;
    }
    let text = format!(
        "no boot loader's tool here sets these words on the kernel's command line without taking others away: {line}"
    );
    let failure = Failure::new(Status::Missing, text)
        .hint(format!("add this where the machine's command line comes from, then reboot: {line}"));
    printer.failure(&failure);
    Status::Missing
}

/// What is done at each start of this machine, and whether it was.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct State {
    /// The copy of the model; `None` when there is none.
    pub model: Option<&'static str>,
    /// The units that are started at boot.
    pub units: Vec<String>,
    /// What was put on the kernel's command line.
    pub arguments: Vec<Argument>,
}

/// Words on the kernel's command line.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Argument {
    /// The words of the kernel's command line.
    pub words: String,
    /// Whether the running kernel was started with them.
    pub live: bool,
    /// Whether this machine was started anew since they were put there.
    pub rebooted: bool,
}

impl Argument {
    /// How it is with them, for a person.
    pub fn seen(&self) -> String {
        match (self.live, self.rebooted) {
            (true, _) => "the running kernel has it".to_owned(),
            (false, false) => "from the next boot on: a reboot is needed".to_owned(),
            (false, true) => {
                "the kernel was started without it since: the boot loader does not pass it on".to_owned()
            }
        }
    }
}

/// Looks; `None` when nothing is done at boot.
///
/// # Errors
///
/// When what is there for the start, or the runs that have put it there, cannot be read.
pub fn state(machine: &Machine) -> Result<Option<State>, Failure> {
    let setup = setup(machine)?;
    let words = persist::words(setup.files.get(persist::ARGUMENTS));
    let model = setup.files.contains_key(persist::MODEL).then_some(persist::MODEL);
    if model.is_none() && setup.enabled.is_empty() && words.is_empty() {
        return Ok(None);
    }
    let now = boot::id(machine.root());
    let standing = if words.is_empty() { Vec::new() } else { standing(machine)? };
    let argument = |words: String| {
        let then = boot_when_set(&standing, &words);
        let rebooted = then.is_some_and(|then| now.as_ref().is_some_and(|now| now != then));
        Argument { live: is_on(&setup.command_line, &words), rebooted, words }
    };
    let arguments = words.into_iter().map(argument).collect();
    Ok(Some(State { model, units: setup.enabled.iter().cloned().collect(), arguments }))
}

/// The runs for the start of the machine of which something stands, the oldest first, each with its plan where that can be read.
fn standing(machine: &Machine) -> Result<Vec<(KnownRun, Option<Plan>)>, Failure> {
    let runs = machine.runs();
    let (all, _) = runs.list()?;
    let stands =
        |run: &KnownRun| run.record.purpose == Purpose::Persist && runs.state(run).phase != Phase::Nothing;
    let with_plan = |run: KnownRun| {
        let plan = runs.plan(&run).ok();
        (run, plan)
    };
    Ok(all.into_iter().filter(stands).map(with_plan).collect())
}

/// On which run of the kernel these words were put there; a later run that left them as they were does not count.
fn boot_when_set<'a>(standing: &'a [(KnownRun, Option<Plan>)], words: &String) -> Option<&'a String> {
    let sets = |step: &Step| match &step.action {
        Action::Boot(BootAction::SetBootArguments(set)) => {
            set.words.contains(words) && !set.before.contains(words)
        }
        _ => false,
    };
    let set =
        standing.iter().rfind(|(_, plan)| plan.as_ref().is_some_and(|plan| plan.steps.iter().any(sets)));
    // The run that did it may be one of too many that were forgotten.
    let (run, _) = set.or(standing.last())?;
    run.record.boot.as_ref()
}

/// Whether what was put on the kernel's command line for this model is there.
///
/// # Errors
///
/// As [`state`].
pub fn verdicts(machine: &Machine, file: &ModelFile) -> Result<Vec<Verdict>, Failure> {
    let Ok(there) = files::read_to_string(machine.root().path(persist::MODEL)) else {
        return Ok(Vec::new());
    };
    if !is_copy(&there, file) {
        return Ok(Vec::new());
    }
    let Some(state) = state(machine)? else { return Ok(Vec::new()) };
    let verdict = |argument: &Argument| {
        let seen = (argument.seen(), argument.live);
        let words = argument.words.clone();
        Verdict::of_host(Subject::Machine, "kernel argument", words.clone(), Ok(seen)).of_item(words)
    };
    Ok(state.arguments.iter().map(verdict).collect())
}

#[cfg(test)]
mod tests {
    use penstock_model::{Source, parse};

    use super::*;
    use crate::model_file;

    #[test]
    fn at_boot_no_other_drive_is_taken_for_that_of_the_model() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.yaml");
        let refused = |matching: &str| {
            let text = format!("nics: {{NET0: }}\ndrives: {{NVME0: {{vfs: 2{matching}}}}}\n");
            files::write_atomic(&path, text).unwrap();
            lasting_drives(&model_file::load(&path).unwrap(), &Inventory::default()).err()
        };
        for exact in ["{serial: S1}", "{bdf: \"0000:05:00.0\"}"] {
            assert!(refused(&format!(", match: {exact}")).is_none(), "{exact}");
        }
        for open in ["", ", match: {model: X}"] {
            let failure = refused(open).expect(open);
            assert_eq!(failure.status, Status::Refused, "{open}");
            assert!(failure.hints.join("").contains("NVME0: {match: {bdf: "), "{open}");
        }
    }

    #[test]
    fn the_copy_gives_guests_the_addresses_that_the_model_gave_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web-1.yaml");
        files::write_atomic(&path, "guests: {a: {nics: {net0: {uplink: br0}}}}\n").unwrap();
        let file = model_file::load(&path).unwrap();
        let text = copy(&file).unwrap();
        let at_boot = parse(&Source::new(persist::MODEL, &*text)).unwrap().model;
        assert_eq!(at_boot.guests, file.model.guests);
        let unnamed = parse(&Source::new(persist::MODEL, file.source.text.as_str())).unwrap().model;
        assert_ne!(unnamed.guests, file.model.guests, "the file's name is what they rest on");
        assert!(is_copy(&text, &file) && is_copy(&file.source.text, &file) && !is_copy("guests:\n", &file));
        let cannot = "? machine\nguests: {a: {nics: {net0: {uplink: br0}}}}\n";
        files::write_atomic(&path, cannot).unwrap();
        let file = model_file::load(&path).unwrap();
        assert_eq!(copy(&file).err().unwrap().status, Status::Refused);
        assert!(!is_copy(&text, &file), "who only looks is not told that it cannot be made");
    }
}
