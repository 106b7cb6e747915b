//! What a profile can set, whichever plugin sets it.

use std::fmt;

use penstock_model::audit::Change;

/// Where irqbalance's settings are for TuneD (`IRQBALANCE_SYSCONFIG_FILE` in its `consts.py`): no other file is changed.
const IRQBALANCE: &str = "/etc/sysconfig/irqbalance";

/// The variable that TuneD's `banned_cpus` takes the place of.
const BANNED_LIST: &str = "IRQBALANCE_BANNED_CPULIST";

/// The variable that TuneD removes when it bans CPUs.
const BANNED_MASK: &str = "IRQBALANCE_BANNED_CPUS";

/// Where the kernel has transparent huge pages, which the plugin `vm` sets.
pub const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// What is set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunedTarget {
    /// A file of the kernel; of a profile it may be a pattern of the shell (`/sys/class/*/x`).
    File(String),
    /// A word of the boot command line, by its key.
    BootWord(String),
    /// An option of a module.
    ModuleOption(String, String),
    /// Whether a unit of systemd runs and is enabled: `stop,disable`.
    Unit(String),
    /// The CPUs to which irqbalance moves nothing.
    BannedCpus,
}

impl fmt::Display for TunedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunedTarget::File(path) => f.write_str(path),
            TunedTarget::BootWord(key) => write!(f, "boot command line, {key}"),
            TunedTarget::ModuleOption(module, option) => write!(f, "module {module}, option {option}"),
            TunedTarget::Unit(unit) => write!(f, "unit {unit}"),
            TunedTarget::BannedCpus => f.write_str("irqbalance, banned CPUs"),
        }
    }
}

/// What is set to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunedSetting {
    pub target: TunedTarget,
    pub value: String,
}

impl TunedSetting {
    fn new(target: TunedTarget, value: impl Into<String>) -> TunedSetting {
        TunedSetting { target, value: value.into() }
    }
}

/// How a unit that is switched off is written.
pub const OFF: &str = "stop,disable";

/// A word of the boot command line as its key and its value, which is empty where there is none.
pub fn boot_word(word: &str) -> TunedSetting {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    TunedSetting::new(TunedTarget::BootWord(key.to_owned()), value)
}

/// A unit's name as TuneD and systemctl(1) have it: without `.service`.
pub fn unit(name: &str) -> TunedTarget {
    TunedTarget::Unit(name.strip_suffix(".service").unwrap_or(name).to_owned())
}

/// A change as settings of a profile.
///
/// # Errors
///
/// Why no profile can make it.
pub fn settings(change: &Change) -> Result<Vec<TunedSetting>, String> {
    match change {
        Change::Write { path, value } => match path.starts_with("/sys/") || path.starts_with("/proc/sys/") {
            true => Ok(vec![TunedSetting::new(TunedTarget::File(path.clone()), value.clone())]),
            false => Err(format!("TuneD writes only below /sys and /proc/sys: {change}")),
        },
        Change::BootLine { add, remove } if remove.is_empty() => {
            Ok(add.iter().map(|word| boot_word(word)).collect())
        }
        Change::BootLine { .. } => {
            Err(format!("TuneD takes no words off the boot command line that it did not add: {change}"))
        }
        Change::ModuleOption { module, option, value } => Ok(vec![TunedSetting::new(
            TunedTarget::ModuleOption(module.clone(), option.clone()),
            value.clone(),
        )]),
        Change::Setting { path, name, value, .. } if path == IRQBALANCE && name == BANNED_LIST => {
            Ok(vec![TunedSetting::new(TunedTarget::BannedCpus, value.clone())])
        }
        Change::Setting { path, name, value, .. }
            if path == IRQBALANCE && name == BANNED_MASK && value.is_empty() =>
        {
            Ok(Vec::new())
        }
        Change::Setting { .. } => Err(format!("TuneD has no plugin for these settings: {change}")),
        Change::Disable { units } => {
            Ok(units.iter().map(|name| TunedSetting::new(unit(name), OFF)).collect())
        }
        Change::Model { .. } => Err(format!("the model says this, and `penstock apply` does it: {change}")),
        Change::ByHand { .. } => Err(format!("no program does this: {change}")),
    }
}

/// A path below /proc/sys as sysctl(8) names it, and back: dots are slashes, and a dot of the path (`eth0.5`) is a slash.
pub fn swapped(name: &str) -> String {
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    name.chars().map(swap).collect()
}
