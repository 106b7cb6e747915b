//! What counts from the next start of the machine on.

use std::fmt;

use penstock_model::inventory::BootLoader;
use serde::{Deserialize, Serialize};

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
    /// All words of ours that there are then, each group that belongs together for itself.
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
}

impl BootArguments {
    /// The commands that merge them, as far as they are the same on each machine.
    pub fn commands(&self) -> Vec<Vec<String>> {
        let not_in = |all: &[String], other: &[String]| -> Vec<String> {
            all.iter().filter(|word| !other.contains(word)).cloned().collect()
        };
        match &self.loader {
            BootLoader::Grub { refresh, .. } => vec![refresh.clone()],
            BootLoader::Grubby => {
                let option = |name: &str, words: Vec<String>| {
                    (!words.is_empty()).then(|| format!("--{name}={}", words.join(" ")))
                };
                let options = [
                    option("remove-args", not_in(&self.before, &self.words)),
                    option("args", not_in(&self.words, &self.before)),
                ];
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
