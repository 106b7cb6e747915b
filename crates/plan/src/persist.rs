//! What makes a model come true again after each start of the machine: a copy of it, units of systemd that apply it, and
//! what the kernel is started with.
//!
//! Nothing that a tool generates is edited. Words for the kernel's command line go where the distribution's own tool reads
//! them ([`BootLoader`]), and that tool is run.

use std::{collections::BTreeMap, time::Duration};

use penstock_model::{
    Model,
    inventory::{BootLoader, BootSetup},
};

use crate::{
    Action, BootAction, Fact, FileAction, Plan, Step, StepId,
    action::{BootArguments, BootFile, has_words, merged},
    boot::{BootNeeds, BootSetting, entries_have, is_there},
};

mod diff;
mod units;

pub use diff::unified;
pub use units::{GUESTS_UNIT, NICS_UNIT, UNIT_DIRECTORY, WANTED_BY, in_words_of_systemd};

/// The copy of the model.
pub const MODEL: &str = "/etc/penstock/model.yaml";
/// Where journals of runs are kept, unless somebody says otherwise.
pub const JOURNALS: &str = "/var/lib/penstock";
/// The words that were put on the kernel's command line, whichever tool did it.
pub const ARGUMENTS: &str = "/etc/penstock/kernel-arguments";
/// Modules that are loaded early (modules-load.d(5)).
pub const MODULES: &str = "/etc/modules-load.d/penstock.conf";
/// Options of modules (modprobe.d(5)).
pub const MODULE_OPTIONS: &str = "/etc/modprobe.d/penstock.conf";
/// What `grub-mkconfig` reads after `/etc/default/grub`.
pub const GRUB_DROP_IN: &str = "/etc/default/grub.d/penstock.cfg";
/// What `kernel-install` and `proxmox-boot-tool` take a command line from.
pub const KERNEL_COMMAND_LINE: &str = "/etc/kernel/cmdline";
/// What `kernel-install` takes one from when there is none of the administrator's.
pub const VENDOR_COMMAND_LINE: &str = "/usr/lib/kernel/cmdline";

/// Every file whose text must be known to plan this.
pub fn paths() -> Vec<String> {
    let unit = |name: &str| format!("{UNIT_DIRECTORY}/{name}");
    let fixed =
        [MODEL, ARGUMENTS, MODULES, MODULE_OPTIONS, GRUB_DROP_IN, KERNEL_COMMAND_LINE, VENDOR_COMMAND_LINE];
    fixed.into_iter().map(str::to_owned).chain([unit(NICS_UNIT), unit(GUESTS_UNIT)]).collect()
}

/// Whether a file is Penstock's own: nobody else writes it, and each [`persist`] makes it anew.
pub fn owns(path: &str) -> bool {
    ![KERNEL_COMMAND_LINE, VENDOR_COMMAND_LINE].contains(&path) && paths().iter().any(|own| own == path)
}

/// What is to be done at each start.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The model that is applied at each start.
    pub model: &'a Model,
    /// Its text, which is copied.
    pub text: &'a str,
    /// The absolute path of the program that applies it.
    pub program: &'a str,
    /// Directories in which it looks for programs alone, in the form of `PATH`, where somebody has named some (`PENSTOCK_PATH`).
    pub search_path: Option<&'a str>,
    /// Options that it is given: `--nic`, `NET0=0c:c4:7a:9a:61:ea`.
    pub options: &'a [String],
    /// What it needs of the kernel's start.
    pub needs: &'a BootNeeds,
    /// How long its guests are waited for in all ([`longest_waits`](crate::longest_waits)).
    pub waits: Duration,
    /// Where an earlier run was cut off: the words of ours that it found. [`ARGUMENTS`] may tell of those that it was to set alone,
    /// and the boot loader's tool is run once more, whatever is there.
    pub cut_off: Option<&'a [String]>,
}

/// What there is to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Persisted {
    /// The steps; none where all is there already.
    pub plan: Plan,
    /// The same for a person: each file's change as a unified diff, and the commands that are run.
    pub shown: String,
    /// Words that nothing here puts on the kernel's command line without harm to others: somebody has to, by hand.
    pub by_hand: Vec<String>,
}

/// Plans to have `wanted` come true at each start of a machine.
pub fn persist(wanted: &Wanted<'_>, setup: &BootSetup) -> Persisted {
    let mut made = Making { setup, plan: Plan::default(), shown: String::new() };
    let arguments = wanted.needs.arguments();
    let settings = || wanted.needs.needs.iter().map(|need| &need.setting);
    let modules: Vec<String> = settings()
        .filter_map(|setting| match setting {
            BootSetting::Module(module) => Some(format!("{module}\n")),
            _ => None,
        })
        .collect();
    let options: Vec<String> = settings()
        .filter_map(|setting| match setting {
            BootSetting::ModuleOption { module, option } => Some(format!("options {module} {option}\n")),
            _ => None,
        })
        .collect();
    let ours = |lines: &[String]| {
        (!lines.is_empty()).then(|| format!("# Made by `penstock apply --persist`.\n{}", lines.concat()))
    };
    made.file(MODEL, Some(wanted.text.to_owned()), "the model is applied from this copy");
    made.file(MODULES, ours(&modules), "loaded before anything else can want the functions");
    made.file(MODULE_OPTIONS, ours(&options), "read by modprobe when the module is loaded");
    let mut before = words(setup.files.get(ARGUMENTS));
    for words in wanted.cut_off.unwrap_or_default() {
        if !before.contains(words) {
            before.push(words.clone());
        }
    }
    let line = match &setup.loader {
        // Whoever puts them there is asked to by us.
        None => CommandLine { ours: arguments.clone(), by_hand: arguments, ..CommandLine::default() },
        Some(loader) => made.command_line(loader, &before, arguments),
    };
    let ours: String = line.ours.iter().chain(&line.kept).map(|words| format!("{words}\n")).collect();
    let ours = (!ours.is_empty()).then_some(ours);
    made.file(ARGUMENTS, ours, "tells later what was put on the kernel's command line");
    for (unit, text) in units::units(wanted) {
        let wants = text.is_some();
        let path = format!("{UNIT_DIRECTORY}/{unit}");
        if !wants {
            made.enable(unit, false);
        }
        made.file(&path, text, "systemd starts it at boot");
        if wants {
            made.enable(unit, true);
        }
    }
    if let Some(loader) = &setup.loader {
        made.arguments(loader, before, &line, wanted.cut_off.is_some());
    }
    Persisted { plan: made.plan, shown: made.shown, by_hand: line.by_hand }
}

/// Whether a plan is one of [`persist`]: all that it does is for the start of the machine.
pub fn is_for_the_start(plan: &Plan) -> bool {
    let ours = paths();
    let is_ours = |step: &Step| match &step.action {
        Action::Boot(BootAction::EnableUnit { .. }) | Action::Boot(BootAction::SetBootArguments(_)) => true,
        Action::File(FileAction::WriteFile { path, .. }) | Action::File(FileAction::RemoveFile { path }) => {
            ours.contains(path)
        }
        _ => false,
    };
    !plan.steps.is_empty() && plan.steps.iter().all(is_ours)
}

/// The words in a file of ours that has a group of them on each line.
pub fn words(text: Option<&String>) -> Vec<String> {
    text.into_iter()
        .flat_map(|text| text.lines())
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// What becomes of the words that the kernel is to be started with.
#[derive(Default)]
struct CommandLine {
    /// Those that nobody else had put there.
    ours: Vec<String>,
    /// Those of somebody else's that some of the boot loader's entries lack.
    to_complete: Vec<String>,
    /// Those of ours that are not wanted, and that no tool here takes away without harm, or before a person has put others in their
    /// place.
    kept: Vec<String>,
    /// Those that no tool here sets without harm.
    by_hand: Vec<String>,
    /// Whether the boot loader's entries lack a word of ours.
    lacking: bool,
}

struct Making<'a> {
    setup: &'a BootSetup,
    plan: Plan,
    shown: String,
}

impl Making<'_> {
    fn push(&mut self, action: Action, inverse: Action, reason: &str) {
        let last = self.plan.steps.last().map(|step| step.id);
        let id = StepId(last.map_or(1, |last| last.0 + 1));
        self.plan.steps.push(Step {
            id,
            postcondition: Fact::after(&action),
            action,
            reason: reason.to_owned(),
            // One after the other: what starts at boot must not be there before what it reads.
            needs: last.into_iter().collect(),
            inverse: Some(inverse),
            best_effort: false,
            guest: None,
        });
    }

    /// Has `path` hold `text`, or nothing be there.
    fn file(&mut self, path: &str, text: Option<String>, reason: &str) {
        let before = self.setup.files.get(path);
        if before == text.as_ref() {
            return;
        }
        self.shown += &unified(path, before.map(String::as_str), text.as_deref());
        let to = |text: Option<String>| match text {
            Some(text) => FileAction::WriteFile { path: path.to_owned(), text }.into(),
            None => FileAction::RemoveFile { path: path.to_owned() }.into(),
        };
        self.push(to(text), to(before.cloned()), reason);
    }

    fn enable(&mut self, unit: &str, on: bool) {
        if self.setup.enabled.contains(unit) == on {
            return;
        }
        self.shown += &format!("run: systemctl {} {unit}\n", if on { "enable" } else { "disable" });
        let to = |on| BootAction::EnableUnit { unit: unit.to_owned(), on }.into();
        self.push(to(on), to(!on), "so that it is started at each boot");
    }

    /// Whose words are whose.
    fn command_line(&self, loader: &BootLoader, before: &[String], wanted: Vec<String>) -> CommandLine {
        let entries = without(&self.setup.entries, before, &wanted);
        let ours = match loader {
            // The drop-in is ours alone, and its words come last.
            BootLoader::Grub { .. } => wanted,
            BootLoader::KernelInstall | BootLoader::ProxmoxBootTool => {
                let written = self.written_line().map(|line| line_without(line, before, &wanted));
                let running = running(&self.setup.command_line);
                // What the running kernel alone has may have been typed for this start.
                let is_somebodys = |words: &String| match &written {
                    Some(line) => is_there(line, words),
                    None => is_there(&running, words) && entries.iter().any(|entry| is_there(entry, words)),
                };
                wanted.into_iter().filter(|words| before.contains(words) || !is_somebodys(words)).collect()
            }
            BootLoader::Grubby => return told_to_grubby(&self.setup.entries, before, wanted),
        };
        let lacking = !entries.is_empty() && ours.iter().any(|words| !entries_have(loader, &entries, words));
        CommandLine { ours, lacking, ..CommandLine::default() }
    }

    /// The command line that somebody has written for `kernel-install`.
    fn written_line(&self) -> Option<&String> {
        let own = self.setup.files.get(KERNEL_COMMAND_LINE);
        own.or_else(|| self.setup.files.get(VENDOR_COMMAND_LINE))
    }

    /// The same, or what `kernel-install` takes where there is none.
    fn present_line(&self) -> String {
        self.written_line().cloned().unwrap_or_else(|| running(&self.setup.command_line))
    }

    /// Has the kernel's command line come to have `line.ours` where it had `before` of ours.
    fn arguments(&mut self, loader: &BootLoader, mut before: Vec<String>, line: &CommandLine, again: bool) {
        let mut after = line.ours.clone();
        let grubby = *loader == BootLoader::Grubby;
        before.retain(|words| !line.kept.contains(words));
        let found = before.clone();
        let with_all = &self.setup.entries;
        let entries = without(with_all, &before, &after);
        let cut_off = again && !grubby;
        before.retain(|words| match after.contains(words) {
            // What was to be ours and did not come to the entries, since a run was cut off, is set again.
            true => !cut_off && (entries.is_empty() || entries_have(loader, &entries, words)),
            // What is in no entry need not be taken from any.
            false => !grubby || with_all.is_empty() || with_all.iter().any(|entry| has_words(entry, words)),
        });
        // Where a part of the entries had it, it was there.
        let was_there = |words: &String| {
            before.contains(words)
                || after.contains(words) && entries.iter().any(|entry| is_there(entry, words))
        };
        let mut back: Vec<String> = found.into_iter().filter(was_there).collect();
        if grubby {
            after.extend(line.to_complete.iter().cloned());
            // They were in part of the entries, and stay in all.
            back.extend(line.to_complete.iter().cloned());
        }
        let file = self.boot_file(loader, &before, &after);
        let unchanged = file.as_ref().is_none_or(|(path, text)| self.setup.files.get(path) == text.as_ref());
        let told = cut_off || line.lacking;
        if unchanged && before == after && !told {
            return;
        }
        let present = |path: &String| self.setup.files.get(path).cloned();
        let way_back = file.as_ref().map(|(path, text)| BootFile {
            path: path.clone(),
            text: present(path),
            over: Some(text.clone()),
        });
        if let Some((path, text)) = &file {
            self.shown += &unified(path, present(path).as_deref(), text.as_deref());
        }
        let action = BootArguments {
            loader: loader.clone(),
            file: file.map(|(path, text)| BootFile { over: Some(present(&path)), path, text }),
            words: after.clone(),
            before,
        };
        for command in action.commands() {
            self.shown += &format!("run: {}\n", command.join(" "));
        }
        if *loader == BootLoader::KernelInstall {
            self.shown += "run: kernel-install add VERSION IMAGE, for each kernel\n";
        }
        let inverse = BootArguments { loader: loader.clone(), file: way_back, words: back, before: after };
        self.push(
            BootAction::SetBootArguments(action).into(),
            BootAction::SetBootArguments(inverse).into(),
            "the kernel is started with it from the next boot on",
        );
    }

    /// The file that a tool reads, and what it is to hold.
    fn boot_file(
        &self,
        loader: &BootLoader,
        before: &[String],
        after: &[String],
    ) -> Option<(String, Option<String>)> {
        match loader {
            BootLoader::Grubby => None,
            BootLoader::Grub { .. } => {
                // The menu's rescue entries do not have the words of _DEFAULT: with these the machine starts without them.
                let text = format!(
                    "# Made by `penstock apply --persist`.\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT {}\"\n",
                    after.join(" ")
                );
                Some((GRUB_DROP_IN.to_owned(), (!after.is_empty()).then_some(text)))
            }
            BootLoader::KernelInstall | BootLoader::ProxmoxBootTool => {
                let own = self.setup.files.get(KERNEL_COMMAND_LINE);
                if own.is_none() && after.is_empty() {
                    return Some((KERNEL_COMMAND_LINE.to_owned(), None));
                }
                Some((KERNEL_COMMAND_LINE.to_owned(), Some(merged(&self.present_line(), before, after))))
            }
        }
    }
}

/// `lines` without the groups of `before` that are not in `after`.
fn without(lines: &[String], before: &[String], after: &[String]) -> Vec<String> {
    lines.iter().map(|line| line_without(line, before, after)).collect()
}

/// `line` without the groups of `before` that are not in `after`.
fn line_without(line: &str, before: &[String], after: &[String]) -> String {
    let gone: Vec<String> = before.iter().filter(|words| !after.contains(words)).cloned().collect();
    merged(line, &gone, &[])
}

/// What of `wanted` `grubby` is told, where the boot loader has `all` these entries. It replaces a word of the same key
/// (grubby(8), `--args`): where that would be somebody else's, or another of ours, a person has to see to it.
fn told_to_grubby(all: &[String], before: &[String], wanted: Vec<String>) -> CommandLine {
    let mut line = CommandLine::default();
    let in_all = |entries: &[String], words: &str| {
        !entries.is_empty() && entries_have(&BootLoader::Grubby, entries, words)
    };
    // It takes away each word wherever it stands: none that somebody else's group has too may be taken away.
    let is_somebodys = |words: &&String| !before.contains(words) && in_all(all, words);
    let somebodys: Vec<String> = wanted.iter().filter(is_somebodys).cloned().collect();
    let groups: Vec<String> = before.iter().chain(&wanted).cloned().collect();
    let others = without(all, &groups, &somebodys);
    let is_apart = |words: &str| {
        let is_alone = |word: &str| !others.iter().any(|line| has_words(line, word));
        words.split_ascii_whitespace().all(is_alone)
    };
    let gone: Vec<String> =
        before.iter().filter(|words| !wanted.contains(words) && is_apart(words)).cloned().collect();
    // What is ours and goes is in nobody's way, and is not there any more.
    let entries = without(all, &gone, &[]);
    for words in &wanted {
        let there = entries.iter().any(|entry| is_there(entry, words));
        if in_all(&entries, words) {
            line.ours.extend(before.contains(words).then(|| words.clone()));
            continue;
        }
        let group: Vec<&str> = words.split_ascii_whitespace().collect();
        let foreign = |entry: &String| {
            let others: Vec<&str> =
                entry.split_ascii_whitespace().filter(|word| !group.contains(word)).collect();
            share_key(words, &others.join(" "))
        };
        let another = wanted.iter().any(|other| other != words && share_key(words, other));
        if another || entries.iter().any(foreign) {
            line.by_hand.push(words.clone());
        } else if there && !before.contains(words) {
            line.to_complete.push(words.clone());
        } else {
            line.ours.push(words.clone());
        }
    }
    let waits = |words: &String| line.by_hand.iter().any(|by_hand| share_key(by_hand, words));
    let is_left = |words: &String| all.is_empty() || all.iter().any(|entry| has_words(entry, words));
    let stays = |words: &&String| {
        !line.ours.contains(words) && (!gone.contains(words) || waits(words)) && is_left(words)
    };
    let kept = before.iter().filter(stays).cloned().collect();
    CommandLine { kept, ..line }
}

/// Whether two groups of words have a key in common.
fn share_key(one: &str, other: &str) -> bool {
    let keys = |words: &str| -> Vec<String> {
        let key = |word: &str| word.split_once('=').map(|(key, _)| key.to_owned());
        words.split_ascii_whitespace().filter_map(key).collect()
    };
    let of_other = keys(other);
    keys(one).iter().any(|key| of_other.contains(key))
}

/// What a boot loader adds, and what is for one start: it would have each end in a shell, or without Penstock (systemd(1), "Kernel command
/// line"; dracut.cmdline(7)).
const NOT_LASTING: [&str; 11] =
    ["penstock=off", "single", "-s", "s", "S", "1", "-b", "emergency", "rescue", "rd.break", "sh"];
/// The same, with whichever value.
const NOT_LASTING_KEYS: [&str; 3] = ["BOOT_IMAGE", "initrd", "rd.break"];
/// What `systemd.unit=` names for one start, and `init=`: other units and programs are for each.
const RESCUE_UNITS: [&str; 4] = ["rescue", "rescue.target", "emergency", "emergency.target"];
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ash", "busybox"];

/// A running kernel's command line without what its boot loader added, as `90-loaderentry.install` has it, and without what was for this
/// start alone.
fn running(line: &str) -> String {
    let lasts = |word: &&str| match word.split_once('=') {
        _ if NOT_LASTING.contains(word) => false,
        Some(("systemd.unit" | "rd.systemd.unit", unit)) => !RESCUE_UNITS.contains(&unit),
        Some(("init" | "rdinit", path)) => !SHELLS.contains(&path.rsplit('/').next().unwrap_or(path)),
        Some((key, _)) => !NOT_LASTING_KEYS.contains(&key),
        None => true,
    };
    line.split_ascii_whitespace().filter(lasts).collect::<Vec<_>>().join(" ")
}

/// What the files of a machine are after `plan`, as far as it writes any. For proofs that the way back leads back.
pub fn after(files: &BTreeMap<String, String>, plan: &Plan) -> BTreeMap<String, String> {
    let mut files = files.clone();
    let set = |files: &mut BTreeMap<String, String>, path: &String, text: Option<&String>| match text {
        Some(text) => drop(files.insert(path.clone(), text.clone())),
        None => drop(files.remove(path)),
    };
    for step in &plan.steps {
        match &step.action {
            Action::File(FileAction::WriteFile { path, text }) => set(&mut files, path, Some(text)),
            Action::File(FileAction::RemoveFile { path }) => set(&mut files, path, None),
            Action::Boot(BootAction::SetBootArguments(arguments)) => {
                let Some(file) = &arguments.file else { continue };
                let text = arguments.text_over(files.get(&file.path).map(String::as_str));
                set(&mut files, &file.path, text.as_ref());
            }
            _ => {}
        }
    }
    files
}
