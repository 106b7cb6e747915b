//! A profile with those that it includes, as settings.

use std::{cell::Cell, collections::HashMap};

use penstock_model::yaml::{YamlNode, YamlValue, shown};

use super::setting::{HUGE_PAGES, OFF, TunedSetting, TunedTarget, boot_word, swapped, unit};
use crate::ini;

/// Has the text of what a profile includes, or why it cannot be had.
type Read<'r> = &'r dyn Fn(TunedSource<'_>) -> Result<String, String>;

/// What a profile is made of beside its own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunedSource<'a> {
    /// The `tuned.conf` of a profile of this name.
    Profile(&'a str),
    /// A file of variables, by its path.
    Variables(&'a str),
}

/// How many profiles one may be made of: those of TuneD are made of four.
const MOST_PROFILES: usize = 32;

/// How many options and sections all of them may have together: those of TuneD have some hundred.
const MOST_OPTIONS: usize = 10_000;

/// How much variables may put into values in all, in bytes: each may hold another one twice.
const MOST_EXPANDED: usize = 4 << 20;

/// Stands for what TuneD computes when it loads the profile; no file holds it ([`ini::sections`]).
const COMPUTED: char = '\u{1}';

/// A profile, as far as its settings are ones that an audit advises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunedProfile {
    /// The settings, in order; a later one of the same target holds. `None`: TuneD computes the value when it loads the profile.
    pub(super) settings: Vec<(TunedTarget, Option<String>)>,
    /// What was not read of it: a sentence each.
    pub unread: Vec<String>,
}

/// Reads a profile. `read` has the text of what it includes.
///
/// TuneD's functions (`${f:...}`) are not carried out, nor are scripts; both are told.
///
/// # Errors
///
/// The text is no profile, or one that it includes cannot be had: what and why.
pub fn read_tuned(text: &str, read: Read<'_>) -> Result<TunedProfile, String> {
    let mut merged = Merged::default();
    merged.load("the profile", text, read, &mut Vec::new())?;
    Ok(merged.profile(read))
}

/// One section: which plugin it is for, and its options in order.
#[derive(Default)]
struct Unit {
    name: String,
    options: Vec<(String, String)>,
}

impl Unit {
    fn set(&mut self, key: &str, value: &str) {
        match self.options.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => value.clone_into(old),
            None => self.options.push((key.to_owned(), value.to_owned())),
        }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// Whether a word stands for true (`get_bool` in `tuned/utils/commands.py`).
fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "y", "t"].contains(&value.trim().to_lowercase().as_str())
}

/// All sections of a profile and of those that it includes, merged as `tuned/profiles/merger.py` does.
#[derive(Default)]
struct Merged {
    units: Vec<Unit>,
    variables: Unit,
    loaded: usize,
    options: usize,
    unread: Vec<String>,
}

impl Merged {
    /// Takes a profile in, after those that it includes.
    fn load(
        &mut self,
        name: &str,
        text: &str,
        read: Read<'_>,
        within: &mut Vec<String>,
    ) -> Result<(), String> {
        self.loaded += 1;
        if self.loaded > MOST_PROFILES {
            return Err(format!("it is made of more than {MOST_PROFILES} profiles"));
        }
        let units = units(text).map_err(|why| format!("{name}: {why}"))?;
        self.options += units.iter().map(|unit| 1 + unit.options.len()).sum::<usize>();
        if self.options > MOST_OPTIONS {
            return Err(format!("it has more than {MOST_OPTIONS} options"));
        }
        let included = units.iter().find(|unit| unit.name == "main").and_then(|main| main.get("include"));
        for other in
            included.unwrap_or_default().split([',', ';']).map(str::trim).filter(|name| !name.is_empty())
        {
            // An optional one: `include=-NAME`.
            let (other, optional) = other.strip_prefix('-').map_or((other, false), |other| (other, true));
            if other.contains("${") {
                self.unread.push(format!("{name} includes {other}, which TuneD computes"));
                continue;
            }
            if within.iter().any(|name| name == other) {
                return Err(format!("{other} includes itself"));
            }
            match read(TunedSource::Profile(other)) {
                Ok(text) => {
                    within.push(other.to_owned());
                    self.load(other, &text, read, within)?;
                    within.pop();
                }
                Err(why) if optional => {
                    self.unread.push(format!("{other}, which {name} may do without: {why}"))
                }
                Err(why) => return Err(format!("{name} includes {other}: {why}")),
            }
        }
        for unit in units {
            match unit.name.as_str() {
                "main" => {}
                "variables" => unit.options.iter().for_each(|(key, value)| self.variables.set(key, value)),
                _ => self.merge(unit),
            }
        }
        Ok(())
    }

    fn merge(&mut self, unit: Unit) {
        let known = self.units.iter().position(|known| known.name == unit.name);
        if unit.get("replace").is_some_and(is_true)
            && let Some(at) = known
        {
            self.units[at] = unit;
            return;
        }
        let at = known.unwrap_or_else(|| {
            self.units.push(Unit { name: unit.name.clone(), options: Vec::new() });
            self.units.len() - 1
        });
        let merged = &mut self.units[at];
        for dropped in unit.get("drop").unwrap_or_default().split([',', ';', ' ']) {
            merged.options.retain(|(key, _)| key != dropped);
        }
        unit.options.iter().filter(|(key, _)| key != "drop").for_each(|(key, value)| merged.set(key, value));
    }

    fn profile(self, read: Read<'_>) -> TunedProfile {
        let mut found = TunedProfile { unread: self.unread, ..TunedProfile::default() };
        let variables = Variables::of(&self.variables, read, &mut found.unread);
        for unit in &self.units {
            match unit.get("enabled").map(|value| variables.expanded(value)) {
                Some(value) if value.contains(COMPUTED) => {
                    found.unread.push(format!("[{}]: TuneD computes whether it holds", unit.name));
                }
                Some(value) if !is_true(&value) => {}
                _ => found.unit(unit, &variables),
            }
        }
        found
    }
}

/// The sections of a text, each once.
fn units(text: &str) -> Result<Vec<Unit>, String> {
    let root = ini::sections(text, "").map_err(|found| found.to_string())?;
    let YamlValue::Mapping(sections) = root.value else { return Ok(Vec::new()) };
    let unit = |section: penstock_model::yaml::YamlEntry| {
        let mut unit = Unit { name: section.key, options: Vec::new() };
        if let YamlValue::Mapping(keys) = &section.value.value {
            keys.iter().take(MOST_OPTIONS + 1).for_each(|entry| unit.set(&entry.key, &value(&entry.value)));
        }
        unit
    };
    Ok(sections.into_iter().map(unit).collect())
}

/// A value without the comment behind it.
fn value(node: &YamlNode) -> String {
    let YamlValue::Scalar(text) = &node.value else { return String::new() };
    let comment = text.char_indices().find(|(at, c)| *c == '#' && text[..*at].ends_with(char::is_whitespace));
    comment.map_or(text.as_str(), |(at, _)| text[..at].trim_end()).to_owned()
}

/// The variables of a profile, and how much more may be put in for them ([`MOST_EXPANDED`]).
struct Variables {
    known: HashMap<String, String>,
    left: Cell<usize>,
}

impl Variables {
    fn of(unit: &Unit, read: Read<'_>, unread: &mut Vec<String>) -> Variables {
        let mut known = Variables { known: HashMap::new(), left: Cell::new(MOST_EXPANDED) };
        for (key, value) in &unit.options {
            if key != "include" {
                known.add(key, value);
                continue;
            }
            let path = known.expanded(value);
            if path.contains(COMPUTED) {
                unread.push(format!("the variables in {}: TuneD computes that path", shown(value)));
                continue;
            }
            let text = read(TunedSource::Variables(&path));
            match text.and_then(|text| units(&format!("[variables]\n{text}"))) {
                Ok(units) => {
                    units
                        .iter()
                        .flat_map(|unit| &unit.options)
                        .for_each(|(key, value)| known.add(key, value));
                }
                Err(why) => unread.push(format!("the variables in {}: {why}", shown(&path))),
            }
        }
        known
    }

    fn add(&mut self, name: &str, value: &str) {
        let value = self.expanded(value);
        self.known.insert(name.to_owned(), value);
    }

    /// A text with its variables put in. What TuneD computes, and a variable that nobody has set, is [`COMPUTED`].
    fn expanded(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            out.push_str(&rest[..at]);
            let inside = &rest[at + 2..];
            let end = closing(inside).unwrap_or(inside.len());
            let value = self.known.get(&inside[..end]);
            match value.and_then(|value| Some((value, self.left.get().checked_sub(value.len())?))) {
                Some((value, left)) => {
                    self.left.set(left);
                    out.push_str(value);
                }
                None => out.push(COMPUTED),
            }
            rest = inside.get(end + 1..).unwrap_or_default();
        }
        out.push_str(rest);
        out
    }
}

/// Where the brace is that closes one which was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        (open == 0).then_some(at)
    })
}

/// The options that all plugins have (`tuned/profiles/unit.py`).
const OF_ALL_PLUGINS: [&str; 5] = ["type", "enabled", "replace", "priority", "drop"];

/// Options that narrow down where a section holds.
const NARROWING: [&str; 4] = ["devices", "devices_udev_regex", "cpuinfo_regex", "uname_regex"];

impl TunedProfile {
    fn unit(&mut self, unit: &Unit, variables: &Variables) {
        let plugin = unit.get("type").unwrap_or(&unit.name);
        if let Some(narrowing) = NARROWING
            .iter()
            .find(|key| unit.get(key).is_some_and(|value| !value.trim().is_empty() && value != "*"))
        {
            self.unread
                .push(format!("[{}]: `{narrowing}` says for which machines or devices it is", unit.name));
            return;
        }
        if plugin == "bootloader" {
            self.boot_line(unit, variables);
        }
        let of_all = |key: &str| OF_ALL_PLUGINS.contains(&key) || NARROWING.contains(&key);
        let options = unit.options.iter().filter(|(key, _)| !of_all(key));
        for (key, written) in options {
            let value = variables.expanded(written);
            let value = value.trim().trim_matches('"');
            match (plugin, key.as_str()) {
                ("bootloader", key) if key.starts_with("cmdline") => {}
                ("sysctl", key) => self.set(TunedTarget::File(format!("/proc/sys/{}", swapped(key))), value),
                ("sysfs", key) => {
                    let path = variables.expanded(key);
                    self.set(TunedTarget::File(path), value);
                }
                ("vm", "transparent_hugepages" | "transparent_hugepage") => {
                    self.set(TunedTarget::File(HUGE_PAGES.into()), value)
                }
                ("vm", "transparent_hugepage.defrag") => {
                    self.set(TunedTarget::File("/sys/kernel/mm/transparent_hugepage/defrag".into()), value)
                }
                ("cpu", "governor") => {
                    for files in ["cpu*/cpufreq", "cpufreq/policy*"] {
                        self.set(
                            TunedTarget::File(format!("/sys/devices/system/cpu/{files}/scaling_governor")),
                            value,
                        );
                    }
                }
                ("cpu", "min_perf_pct" | "max_perf_pct" | "no_turbo") => {
                    self.set(TunedTarget::File(format!("/sys/devices/system/cpu/intel_pstate/{key}")), value);
                }
                ("cpu", "boost") => {
                    self.set(TunedTarget::File("/sys/devices/system/cpu/cpufreq/boost".into()), value)
                }
                ("modules", module) => self.module(module, value),
                ("service", key) if key.starts_with("service.") => {
                    self.service(&key["service.".len()..], value)
                }
                ("irqbalance", "banned_cpus") => self.set(TunedTarget::BannedCpus, value),
                ("script", _) => self.unread.push(format!(
                    "[{}]: its script is not carried out: {}",
                    unit.name,
                    shown(written)
                )),
                (_, key) => self.unread.push(format!(
                    "[{}]: {} is nothing that an audit looks for",
                    unit.name,
                    shown(key)
                )),
            }
        }
    }

    fn set(&mut self, target: TunedTarget, value: &str) {
        if matches!(&target, TunedTarget::File(path) if path.contains(COMPUTED)) {
            self.unread.push("a file whose path TuneD computes".to_owned());
            return;
        }
        let value = (!value.contains(COMPUTED)).then(|| value.to_owned());
        self.settings.push((target, value));
    }

    /// All `cmdline*` options in the order of their names, as `_get_effective_options` of `plugin_bootloader.py` puts them together.
    fn boot_line(&mut self, unit: &Unit, variables: &Variables) {
        let mut options: Vec<&(String, String)> =
            unit.options.iter().filter(|(key, _)| key.starts_with("cmdline")).collect();
        options.sort();
        let mut words: Vec<String> = Vec::new();
        for (_, value) in options {
            let value = variables.expanded(value);
            match value.strip_prefix('-') {
                Some(taken_off) => {
                    let off: Vec<&str> = taken_off.split_whitespace().collect();
                    words.retain(|word| !off.contains(&word.as_str()));
                }
                None => {
                    let added = value.strip_prefix('+').unwrap_or(&value);
                    words.extend(added.split_whitespace().map(str::to_owned));
                }
            }
        }
        for word in words {
            let TunedSetting { target, value } = boot_word(&word);
            match &target {
                TunedTarget::BootWord(key) if key.contains(COMPUTED) => {
                    self.unread.push("a word of the boot command line that TuneD computes".to_owned());
                }
                _ => self.set(target, &value),
            }
        }
    }

    /// `[modules]`: options as modprobe.d(5) has them, behind `+r` where the module is loaded anew.
    fn module(&mut self, module: &str, value: &str) {
        let options = value.strip_prefix("+r").map_or(value, |rest| rest.trim_start_matches([',', ' ']));
        for option in options.split_whitespace() {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            self.set(TunedTarget::ModuleOption(module.to_owned(), name.to_owned()), value);
        }
    }

    /// `[service]`: the last of what contradicts holds.
    fn service(&mut self, name: &str, commands: &str) {
        let last = |one: &str, other: &str| {
            commands
                .split([',', ';'])
                .map(str::trim)
                .rfind(|word| *word == one || *word == other)
                .unwrap_or_default()
                .to_owned()
        };
        let (runs, enabled) = (last("start", "stop"), last("enable", "disable"));
        let value = match (runs.as_str(), enabled.as_str()) {
            ("stop", "disable") => OFF.to_owned(),
            _ if commands.contains(COMPUTED) => commands.to_owned(),
            _ => [runs, enabled].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(","),
        };
        self.set(unit(name), &value);
    }
}
