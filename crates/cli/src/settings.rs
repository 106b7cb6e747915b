//! What the command line and the environment come to.

use std::{
    env,
    io::{IsTerminal, stderr, stdout},
    path::PathBuf,
};

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use penstock_host::terminal;
use serde::{Deserialize, Serialize};

use crate::arguments::Common;

/// Narrower than this nothing of ours can be read.
const NARROWEST: usize = 40;

/// Settings that hold for every verb. None of them belongs in a model.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Print data as JSON.
    pub json: bool,
    /// Say only what went wrong.
    pub quiet: bool,
    /// The warnings of the model have been printed already.
    pub warned: bool,
    /// Colour on standard output.
    pub color_data: bool,
    /// Colour on standard error.
    pub color: bool,
    /// How wide text may be. `COLUMNS` says it, else the terminal that the stream is; what goes into a pipe or a file is not wrapped.
    pub widths: Widths,
    /// Whether a person watches standard error, on a terminal that can move its cursor: progress may be redrawn.
    pub interactive: bool,
    /// Whether the terminal can move its cursor (`TERM`).
    pub redraws: bool,
    /// Where images and snapshots are kept: `$XDG_CACHE_HOME/penstock`, or `~/.cache/penstock`.
    pub cache: PathBuf,
    /// Where the running guests' state is kept; gone after a reboot, like the guests.
    pub state: PathBuf,
    /// Where journals are kept; they outlive a reboot.
    pub journal: PathBuf,
}

/// How many columns text may take; `None`: as many as it likes, since nobody wraps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Widths {
    /// On standard output.
    pub data: Option<usize>,
    /// On standard error.
    pub conversation: Option<usize>,
}

impl Settings {
    /// Resolves the settings from the arguments and the environment.
    pub fn resolve(common: &Common) -> Settings {
        let directory = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = directory("HOME").unwrap_or_else(|| PathBuf::from("/root"));
        let interactive = stderr().is_terminal() && can_redraw();
        Settings {
            json: common.json,
            quiet: common.quiet,
            warned: common.warned,
            color_data: colored(&stdout()),
            color: colored(&stderr()),
            widths: Widths {
                data: columns(terminal::output_columns).map(|columns| columns.max(NARROWEST)),
                conversation: columns(terminal::error_columns).map(|columns| columns.max(NARROWEST)),
            },
            interactive,
            redraws: can_redraw(),
            cache: directory("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("penstock"),
            state: directory("PENSTOCK_STATE").unwrap_or_else(|| PathBuf::from("/run/penstock")),
            journal: directory("PENSTOCK_JOURNAL").unwrap_or_else(|| PathBuf::from("/var/lib/penstock")),
        }
    }
}

/// Whether a stream is written with colours: `--color` decides, then NO_COLOR, CLICOLOR_FORCE and CLICOLOR
/// (<https://no-color.org>, <https://bixense.com/clicolors>), then whether it is a terminal that has some.
fn colored(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Whether the terminal takes escape sequences at all (`TERM`, terminfo(5)).
fn can_redraw() -> bool {
    env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// How wide text may be, as far as somebody says it: the environment, or else the terminal that it goes to.
fn columns(of_terminal: fn() -> Option<usize>) -> Option<usize> {
    let said = env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    said.filter(|columns| *columns > 0).or_else(of_terminal)
}
