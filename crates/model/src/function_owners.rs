//! Who has which function of a model, for whoever asks about many of them.

use std::collections::{HashMap, HashSet};

use crate::{Function, FunctionName, GuestName, Model};

/// The owners of all functions of a [`Model`]: what [`Model::owner`] and [`Model::uplink_vf`] go through all guests for.
#[derive(Clone, Debug)]
pub struct FunctionOwners<'a> {
    owned: HashMap<&'a FunctionName, (&'a GuestName, &'a Function)>,
    uplinks: HashSet<&'a FunctionName>,
}

impl Model {
    /// Who has which function.
    pub fn function_owners(&self) -> FunctionOwners<'_> {
        let mut owned = HashMap::new();
        for (name, guest) in &self.guests {
            for function in &guest.functions {
                owned.entry(&function.name).or_insert((name, function));
            }
        }
        FunctionOwners { owned, uplinks: self.uplink_vfs().map(|uplink| uplink.function).collect() }
    }
}

impl<'a> FunctionOwners<'a> {
    /// The guest that owns `function`, and how; the same as [`Model::owner`].
    pub fn of(&self, function: &FunctionName) -> Option<(&'a GuestName, &'a Function)> {
        self.owned.get(function).copied()
    }

    /// Whether `function` is a VF that stays on the host as an uplink: one that [`Model::uplink_vf`] finds.
    pub fn is_uplink(&self, function: &FunctionName) -> bool {
        self.uplinks.contains(function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, parse};

    #[test]
    fn owners_are_those_that_the_model_finds() {
        let text = "machine: m\nnics: {NET0: {vfs: 4}}\n\
                    guests:\n  a: {functions: [NET0#0, NET0#2]}\n  b: {functions: [NET0#1]}\n  \
                    c: {kind: vm, nics: {net0: {vfs: 1, uplink: {vf: NET0#3, trust: on, spoofchk: off}}}}\n";
        let source = Source { name: "m.yaml".to_owned(), text: text.to_owned() };
        let model = parse(&source).expect("a model").model;
        let owners = model.function_owners();
        for name in ["NET0", "NET0#0", "NET0#1", "NET0#2", "NET0#3", "NET0#4"] {
            let function: FunctionName = name.parse().expect("a function");
            assert_eq!(owners.of(&function), model.owner(&function), "{name}");
            assert_eq!(owners.is_uplink(&function), model.uplink_vf(&function).is_some(), "{name}");
        }
        assert!(owners.is_uplink(&"NET0#3".parse().expect("a function")));
    }
}
