//! Ways to put something right.

use penstock_model::{
    CpuSet,
    audit::{Change, Remedy},
    inventory::tuning::{Knob, Value},
};

use crate::machine::Machine;

/// The ways to put something right, the best first: each does by itself.
pub(crate) struct Advice(pub(crate) Vec<Remedy>);

impl Advice {
    fn of(changes: Vec<Change>) -> Advice {
        Advice(vec![Remedy { changes, beware: None }])
    }

    /// These changes and then those of the first way of `other`.
    pub(crate) fn and(mut self, other: Advice) -> Advice {
        if let (Some(last), Some(first)) = (self.0.last_mut(), other.0.into_iter().next()) {
            last.changes.extend(first.changes);
        }
        self
    }

    /// These ways, then those of `other` as further alternatives.
    pub(crate) fn or(mut self, other: Advice) -> Advice {
        self.0.extend(other.0);
        self
    }

    /// What the last way may break or end.
    pub(crate) fn beware(mut self, what: impl Into<String>) -> Advice {
        if let Some(last) = self.0.last_mut() {
            last.beware = Some(what.into());
        }
        self
    }
}

/// Writes a value to a file of the kernel.
pub(crate) fn write(path: impl Into<String>, value: impl ToString) -> Advice {
    Advice::of(vec![Change::Write { path: path.into(), value: value.to_string() }])
}

/// Writes one value to several files.
pub(crate) fn writes(paths: impl IntoIterator<Item = String>, value: &str) -> Advice {
    Advice::of(paths.into_iter().map(|path| Change::Write { path, value: value.to_owned() }).collect())
}

/// Has a knob hold these CPUs.
pub(crate) fn cpus(knob: Knob, cpus: &CpuSet) -> Advice {
    write(knob.to_string(), knob.written(&Value::Cpus(cpus.clone())))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Puts words on the boot command line, each in the place of those with its key.
pub(crate) fn boot(add: &str) -> Advice {
    Advice::of(vec![Change::BootLine { add: words(add), remove: Vec::new() }])
}

/// Takes words off the boot command line.
pub(crate) fn boot_without(remove: &str) -> Advice {
    boot_with_and_without("", remove)
}

/// Puts words on the boot command line and takes others off it.
pub(crate) fn boot_with_and_without(add: &str, remove: &str) -> Advice {
    Advice::of(vec![Change::BootLine { add: words(add), remove: words(remove) }])
}

/// Sets a module's option: where the module is built into the kernel only the boot command line can.
pub(crate) fn option(machine: &Machine<'_>, module: &str, option: &str, value: &str) -> Advice {
    if !machine.tuning.loadable.contains(module) {
        return boot(&format!("{module}.{option}={value}"));
    }
    let (module, option, value) = (module.to_owned(), option.to_owned(), value.to_owned());
    Advice::of(vec![Change::ModuleOption { module, option, value }])
}

/// Sets variables in the settings of a service.
pub(crate) fn settings(path: &str, service: &str, variables: &[(&str, String)]) -> Advice {
    let change = |(name, value): &(&str, String)| Change::Setting {
        path: path.to_owned(),
        name: (*name).to_owned(),
        value: value.clone(),
        service: service.to_owned(),
    };
    Advice::of(variables.iter().map(change).collect())
}

/// Stops units and keeps them from starting.
pub(crate) fn disable(units: &[&str]) -> Advice {
    Advice::of(vec![Change::Disable { units: units.iter().map(|unit| (*unit).to_owned()).collect() }])
}

/// Says something in the model.
pub(crate) fn model(says: impl Into<String>) -> Advice {
    Advice::of(vec![Change::Model { says: says.into() }])
}

/// Applies the model as it is.
pub(crate) fn apply() -> Advice {
    model("")
}

/// What no command does.
pub(crate) fn by_hand(what: impl Into<String>) -> Advice {
    Advice::of(vec![Change::ByHand { what: what.into() }])
}

/// What needs CPUs to move something to, where there are some.
pub(crate) fn to_housekeeping(machine: &Machine<'_>, how: impl FnOnce(&CpuSet) -> Advice) -> Advice {
    let cpus = machine.housekeeping();
    if cpus.0.is_empty() {
        return by_hand("isolate fewer CPUs first: none is left for anything else");
    }
    how(&cpus)
}
