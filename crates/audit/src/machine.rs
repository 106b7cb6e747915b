//! One machine, joined: what the rules ask of all layers at once.

use penstock_model::{CpuSet, Inventory, Model, inventory::tuning::Tuning};

use crate::{command_line::CommandLine, release::Release, rule::Need};

/// A machine and, where there is one, the model that it is judged by.
pub(crate) struct Machine<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) model: Option<&'a Model>,
    pub(crate) tuning: &'a Tuning,
    /// Whether anybody looked at its tuning.
    pub(crate) looked: bool,
    pub(crate) line: CommandLine,
    /// `None`: the release makes no sense.
    pub(crate) release: Option<Release>,
    /// The CPUs that are judged.
    pub(crate) cpus: CpuSet,
}

static NOTHING: std::sync::LazyLock<Tuning> = std::sync::LazyLock::new(Tuning::default);

impl<'a> Machine<'a> {
    pub(crate) fn new(inventory: &'a Inventory, model: Option<&'a Model>) -> Machine<'a> {
        let looked = inventory.tuning.is_some();
        let tuning = inventory.tuning.as_ref().unwrap_or_else(|| &NOTHING);
        let line = CommandLine::new(&inventory.kernel.command_line);
        let release = inventory.kernel.release.parse().ok();
        let cpus = inventory.cpus.isolated.clone();
        Machine { inventory, model, tuning, looked, line, release, cpus }
    }

    /// Whether the model asks for it; without a model everything is asked for.
    pub(crate) fn needs(&self, need: Need) -> bool {
        self.model.is_none() || need == Need::Always
    }
}
