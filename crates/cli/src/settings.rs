//! What the command line and the environment come to.

use std::{
    env,
    io::{IsTerminal, stderr, stdout},
    path::PathBuf,
};

use crate::arguments::Common;

/// Settings that hold for every verb. None of them belongs in a model.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Print data as JSON.
    pub json: bool,
    /// Say only what went wrong.
    pub quiet: bool,
    /// The warnings of the model have been printed already.
    pub warned: bool,
    /// Colour on standard error.
    pub color: bool,
    /// Whether a person watches standard error: progress may be redrawn.
    pub interactive: bool,
    /// Where images and snapshots are kept: `$XDG_CACHE_HOME/penstock`, or `~/.cache/penstock`.
    pub cache: PathBuf,
    /// Where the running guests' state is kept; gone after a reboot, like the guests.
    pub state: PathBuf,
    /// Where journals are kept; they outlive a reboot.
    pub journal: PathBuf,
}

impl Settings {
    /// Resolves the settings from the arguments and the environment.
    pub fn resolve(common: &Common) -> Settings {
        let directory = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = directory("HOME").unwrap_or_else(|| PathBuf::from("/root"));
        let interactive = stderr().is_terminal();
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Settings {
            json: common.json,
            quiet: common.quiet,
            warned: common.warned,
            color: interactive && stdout().is_terminal() && !no_color,
            interactive,
            cache: directory("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("penstock"),
            state: directory("PENSTOCK_STATE").unwrap_or_else(|| PathBuf::from("/run/penstock")),
            journal: directory("PENSTOCK_JOURNAL").unwrap_or_else(|| PathBuf::from("/var/lib/penstock")),
        }
    }
}
