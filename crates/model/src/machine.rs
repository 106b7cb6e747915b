//! The machine's name: the file's where `machine:` is not written. Derived addresses of guests' own NICs rest on it, so that a copy of
//! the file under another name has to say it.

use std::borrow::Cow;

use thiserror::Error;

use crate::{
    MachineName, Model, Source, parse,
    tree::{self, YamlEntry, YamlValue},
};

/// A model in which nothing can say the machine's name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "addresses of guests' own NICs are derived from the machine's name, {machine}, which the model does not say, and no line can be added that does"
)]
pub struct MachineLineError {
    /// The name that it would have to say.
    pub machine: String,
}

/// The name of the machine of a file called `file` that gives none: the file's own, without folder and ending. `None`: no machine can be
/// called so, as with standard input.
pub(crate) fn named_after(file: &str) -> Option<MachineName> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    stem.parse().ok()
}

/// The name of a machine of which neither the model nor the file's name says one.
pub(crate) fn nameless() -> MachineName {
    "machine".parse().expect("`machine` is made of letters")
}

/// What `text` says in a file called `name`; `None` where it is no good model.
fn read(text: &str, name: &str) -> Option<Model> {
    parse(&Source::new(format!("{name}.yaml"), text)).ok().map(|parsed| parsed.model)
}

/// Guests' own NICs with an uplink that have the same address on whatever machine the model is applied, as `GUEST/NIC`: the model says
/// their addresses, or the machine's name, from which they are derived. Two machines with it have one address twice in a network.
pub fn same_on_each_machine(text: &str) -> Vec<String> {
    let (Some(one), Some(other)) = (read(text, "one"), read(text, "other")) else { return Vec::new() };
    one.tenant_nics()
        .filter(|(guest, name, nic)| {
            let there = other.guests.get(*guest).and_then(|guest| guest.nics.get(*name));
            nic.uplink.is_some() && there.is_some_and(|there| there.mac == nic.mac)
        })
        .map(|(guest, name, _)| format!("{guest}/{name}"))
        .collect()
}

/// The model `text` for a file of any name: what guests of it have, and the files that are made for them, are the same as in a file called
/// `machine`. Where something would not be, a line `machine: NAME` is added, at the end where that can be, so that the lines keep their
/// numbers; a key `machine` without a value gets the name. Text that is no good model stays as it is.
///
/// # Errors
///
/// [`MachineLineError`] when no line can be added: write it into the model.
pub fn with_machine<'a>(text: &'a str, machine: &MachineName) -> Result<Cow<'a, str>, MachineLineError> {
    let other = format!("not-{}", machine.as_str().get(..machine.as_str().len().min(40)).unwrap_or_default());
    let (Some(wanted), Some(elsewhere)) = (read(text, machine.as_str()), read(text, &other)) else {
        return Ok(Cow::Borrowed(text));
    };
    let generates = wanted.guests.values().any(|guest| !guest.generate.is_empty());
    if wanted == elsewhere || (!generates && wanted.guests == elsewhere.guests) {
        return Ok(Cow::Borrowed(text));
    }
    // What is added is proven: where YAML ends has more rules than are worth knowing here.
    let added =
        candidates(text, machine).into_iter().find(|text| read(text, &other).as_ref() == Some(&wanted));
    added.map(Cow::Owned).ok_or_else(|| MachineLineError { machine: machine.to_string() })
}

/// Places at which the name may be added.
fn candidates(text: &str, machine: &MachineName) -> Vec<String> {
    let Ok((root, _)) = tree::read(text) else { return Vec::new() };
    let YamlValue::Mapping(entries) = &root.value else { return Vec::new() };
    if let Some(entry) = entries.iter().find(|entry| entry.key == "machine") {
        return fillings(text, entry, machine);
    }
    let Some(first) = entries.first().map(|entry| entry.key_span.start) else { return Vec::new() };
    let Some(before) = text.get(..first) else { return Vec::new() };
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    let indent: String = before[line..].chars().take_while(|c| *c == ' ').collect();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let (head, tail) = text.split_at(line);
    let in_braces = before.rfind('{').map(|brace| {
        let (head, tail) = text.split_at(brace + 1);
        format!("{head}machine: {machine}, {tail}")
    });
    let at_the_end = format!("{text}{newline}{indent}machine: {machine}\n");
    let at_the_top = format!("{head}{indent}machine: {machine}\n{tail}");
    in_braces.into_iter().chain([at_the_end, at_the_top]).collect()
}

/// Ways to give the key `machine`, which has no value, the name.
fn fillings(text: &str, entry: &YamlEntry, machine: &MachineName) -> Vec<String> {
    let key = entry.key_span.end;
    let with = |from: usize, to: usize, words: String| {
        let (before, behind) = (text.get(..from)?, text.get(to..)?);
        Some(format!("{before}{words}{behind}"))
    };
    let value = &entry.value.span;
    let replaced = (!value.is_empty()).then(|| with(value.start, value.end, machine.to_string())).flatten();
    let colon = text.get(key..).and_then(|rest| rest.find(':')).map(|at| key + at + 1);
    let behind = colon.and_then(|colon| with(colon, colon, format!(" {machine}")));
    // In braces a key may stand alone.
    let alone = with(key, key, format!(": {machine}"));
    [replaced, behind, alone].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(text: &str) -> String {
        with_machine(text, &"web-1".parse().unwrap()).unwrap().into_owned()
    }

    #[test]
    fn a_model_whose_derived_addresses_rest_on_the_name_of_its_file_says_the_name() {
        let block = "# {Ours}.\nguests:\n  a: {kind: vm, nics: {net0: {vfs: 1}}}\n";
        for (text, with) in [
            (block, format!("{block}machine: web-1\n")),
            (block.trim_end(), format!("{block}machine: web-1\n")),
            (
                "  guests:\n    a: {nics: {n: {uplink: br0}}}\n",
                "  guests:\n    a: {nics: {n: {uplink: br0}}}\n  machine: web-1\n".to_owned(),
            ),
            (
                "guests: {a: {nics: {n: {uplink: br0}}}}\n...\n",
                "machine: web-1\nguests: {a: {nics: {n: {uplink: br0}}}}\n...\n".to_owned(),
            ),
            (
                "--- # {\n{guests: {a: {nics: {n: {uplink: br0}}}}}\n",
                "--- # {\n{machine: web-1, guests: {a: {nics: {n: {uplink: br0}}}}}\n".to_owned(),
            ),
            (
                "machine: # Of the chart.\nguests: {a: {nics: {n: {uplink: br0}}}}\n",
                "machine: web-1 # Of the chart.\nguests: {a: {nics: {n: {uplink: br0}}}}\n".to_owned(),
            ),
            (
                "guests: {a: {nics: {n: {uplink: br0}}}}\nmachine: ~\n",
                "guests: {a: {nics: {n: {uplink: br0}}}}\nmachine: web-1\n".to_owned(),
            ),
            (
                "machine: &name\nguests: {a: {nics: {n: {uplink: br0}}}}\n",
                "machine: web-1\nguests: {a: {nics: {n: {uplink: br0}}}}\n".to_owned(),
            ),
            (
                "{machine, guests: {a: {nics: {n: {uplink: br0}}}}}\n",
                "{machine: web-1, guests: {a: {nics: {n: {uplink: br0}}}}}\n".to_owned(),
            ),
            (
                "nics: {A: {vfs: 1, match: {mac: 0c:c4:7a:9a:61:ea}}}\nguests: {a: {functions: [A#0], generate: [{template: json, to: /a.json}]}}\n",
                "nics: {A: {vfs: 1, match: {mac: 0c:c4:7a:9a:61:ea}}}\nguests: {a: {functions: [A#0], generate: [{template: json, to: /a.json}]}}\nmachine: web-1\n".to_owned(),
            ),
        ] {
            assert_eq!(added(text), with);
            let of = |text: &str, name: &str| parse(&Source::new(name, text)).unwrap();
            let (before, after) = (of(text, "web-1.yaml"), of(&with, "/etc/penstock/model.yaml"));
            assert_eq!(before.model, after.model);
            assert_eq!(after.warnings.0, [], "nothing rests on the file's name any more");
        }
    }

    #[test]
    fn what_rests_on_no_name_stays_as_it_is() {
        for text in [
            "nics: {A: {vfs: 1}}\nguests: {a: {functions: [A#0]}}\n",
            "machine: web\nguests: {a: {nics: {n: {uplink: br0}}}}\n",
            "guests: {a: {nics: {n: {uplink: br0, mac: 02:00:00:00:00:01}}}}\n",
            "guests: [\n",
        ] {
            assert_eq!(added(text), text);
        }
    }

    #[test]
    fn a_model_that_has_no_place_for_the_name_is_refused() {
        let text = "? machine\nguests: {a: {nics: {n: {uplink: br0}}}}\n";
        let error = with_machine(text, &"web-1".parse().unwrap()).unwrap_err();
        assert_eq!(error.machine, "web-1");
    }

    #[test]
    fn addresses_that_rest_on_no_machine_are_the_same_on_each() {
        let with = |machine: &str, nic: &str| {
            let text = format!(
                "{machine}nics: {{P: {{vfs: 0}}}}\nguests: {{a: {{kind: vm, nics: {{n: {{vfs: 1{nic}}}}}}}}}\n"
            );
            assert!(read(&text, "m").is_some(), "{text}");
            same_on_each_machine(&text)
        };
        let (said, uplink) = (", mac: 02:00:00:00:00:01", ", uplink: P");
        assert_eq!(with("machine: one\n", uplink), ["a/n"]);
        assert_eq!(with("", &format!("{uplink}{said}")), ["a/n"]);
        for (machine, nic) in [("", uplink), ("machine:\n", uplink), ("machine: one\n", ""), ("", said)] {
            assert!(with(machine, nic).is_empty(), "{machine}{nic}");
        }
        assert!(same_on_each_machine("guests: [\n").is_empty());
    }
}
