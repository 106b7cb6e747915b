//! What counts from the next start of the machine on.

use std::fmt;

use penstock_model::inventory::BootLoader;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Fact, names::Names};

/// One write for the next start of the machine; the host's executor carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum BootAction {
    /// Have systemd start a unit at boot, or no longer.
    EnableUnit { unit: String, on: bool },
    /// Put words on the kernel's command line, or take them away, from the next start on.
    SetBootArguments(BootArguments),
}

/// Words of ours for the kernel's command line, and how they get there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootArguments {
    /// The tool that merges them.
    pub loader: BootLoader,
    /// The file that it reads; `None` for a tool that is told them.
    pub file: Option<BootFile>,
    /// All words of ours that there are then, each group that belongs together for itself. What somebody else had put there is not
    /// ours.
    pub words: Vec<String>,
    /// Those that there were.
    pub before: Vec<String>,
}

/// A file that a tool of the distribution reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootFile {
    /// Its absolute path.
    pub path: String,
    /// Its text then; `None`: it is not there.
    pub text: Option<String>,
    /// The text that it had before, or nothing: there was no file. Only over this is `text` written as it is, where others write to the
    /// file too. An older version left it out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "recorded")]
    pub over: Option<Option<String>>,
}

/// What is there, `null` too.
fn recorded<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

impl BootArguments {
    /// What the file is to hold that now holds `present`: all of what was planned, or, where somebody else has changed a file that is
    /// not ours alone since, `present` with no more than our words changed.
    pub fn text_over(&self, present: Option<&str>) -> Option<String> {
        let file = self.file.as_ref()?;
        let shared = matches!(self.loader, BootLoader::KernelInstall | BootLoader::ProxmoxBootTool);
        match (present.filter(|_| shared), &file.over) {
            (Some(text), Some(over))
                if Some(text) != over.as_deref() && Some(text) != file.text.as_deref() =>
            {
                Some(merged(text, &self.before, &self.words))
            }
            _ => file.text.clone(),
        }
    }

    /// The commands that merge them, as far as they are the same on each machine.
    pub fn commands(&self) -> Vec<Vec<String>> {
        let not_in = |all: &[String], other: &[String]| -> Vec<String> {
            all.iter().filter(|word| !other.contains(word)).cloned().collect()
        };
        let share_word = |one: &String, other: &String| {
            one.split_ascii_whitespace().any(|word| other.split_ascii_whitespace().any(|other| other == word))
        };
        match &self.loader {
            BootLoader::Grub { refresh, .. } => vec![refresh.clone()],
            BootLoader::Grubby => {
                let option = |name: &str, words: Vec<String>| {
                    (!words.is_empty()).then(|| format!("--{name}={}", words.join(" ")))
                };
                let gone = not_in(&self.before, &self.words);
                // It takes away each word by itself: a group that has one in common with what goes is given again.
                let is_given = |words: &&String| {
                    !self.before.contains(words) || gone.iter().any(|gone| share_word(gone, words))
                };
                let given = self.words.iter().filter(is_given).cloned().collect();
                let options = [option("remove-args", gone.clone()), option("args", given)];
                let options: Vec<String> = options.into_iter().flatten().collect();
                if options.is_empty() {
                    return Vec::new();
                }
                vec![
                    ["grubby", "--update-kernel=ALL"].map(str::to_owned).into_iter().chain(options).collect(),
                ]
            }
            // One call for each kernel that is installed.
            BootLoader::KernelInstall => Vec::new(),
            BootLoader::ProxmoxBootTool => vec![["proxmox-boot-tool", "refresh"].map(str::to_owned).into()],
        }
    }
}

/// Where the words of `group` stand in `words`, one behind the other.
fn place(words: &[&str], group: &[&str]) -> Option<usize> {
    (!group.is_empty()).then(|| words.windows(group.len()).position(|seen| seen == group)).flatten()
}

/// Whether a command line has the words of `group`, one behind the other.
pub fn has_words(line: &str, group: &str) -> bool {
    let line: Vec<&str> = line.split_ascii_whitespace().collect();
    let group: Vec<&str> = group.split_ascii_whitespace().collect();
    group.is_empty() || place(&line, &group).is_some()
}

/// `line` without the groups of words that are in `before` and not in `after`, and with those of `after` that it lacks; as it is
/// where that is all so.
pub(crate) fn merged(line: &str, before: &[String], after: &[String]) -> String {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    let mut changed = false;
    for gone in before.iter().filter(|group| !after.contains(group)) {
        let gone: Vec<&str> = gone.split_ascii_whitespace().collect();
        while let Some(at) = place(&words, &gone) {
            words.drain(at..at + gone.len());
            changed = true;
        }
    }
    for group in after {
        let group: Vec<&str> = group.split_ascii_whitespace().collect();
        if place(&words, &group).is_none() {
            changed |= !group.is_empty();
            words.extend(group);
        }
    }
    if changed { format!("{}\n", words.join(" ")) } else { line.to_owned() }
}

impl BootAction {
    /// What is true after it.
    pub fn after(&self) -> Fact {
        match self.clone() {
            Self::EnableUnit { unit, on } => Fact::UnitEnabled { unit, on },
            Self::SetBootArguments(boot) => Fact::BootArguments(boot),
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, _: &Names) -> fmt::Result {
        match self {
            Self::EnableUnit { unit, on: true } => write!(f, "start {unit} at boot"),
            Self::EnableUnit { unit, on: false } => write!(f, "do not start {unit} at boot"),
            Self::SetBootArguments(boot) if boot.words.is_empty() => {
                write!(f, "no words of ours on the kernel's command line")
            }
            Self::SetBootArguments(boot) => {
                write!(f, "put on the kernel's command line: {}", boot.words.join(" "))
            }
        }
    }
}
