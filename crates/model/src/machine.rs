//! The machine's name: the file's where `machine:` is not written. Derived addresses of guests' own NICs rest on it, so that a copy of
//! the file under another name has to say it.

use std::borrow::Cow;

use thiserror::Error;

use crate::{
    MachineName, Model, Source, parse,
    tree::{self, YamlValue},
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

/// The name of the machine of a file called `file` that gives none: the file's own, without folder and ending.
pub(crate) fn named_after(file: &str) -> MachineName {
    let name = file.rsplit('/').next().unwrap_or(file);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    stem.parse().or_else(|_| "machine".parse()).expect("`machine` is made of letters")
}

/// The model `text` for a file of any name: what guests of it have is the same as in a file called `machine`. Where something would not be,
/// and that is a derived address, a line `machine: NAME` is added, at the end where that can be, so that the lines keep their numbers.
/// Text that is no good model stays as it is.
///
/// # Errors
///
/// [`MachineLineError`] when no line can be added: write it into the model.
pub fn with_machine<'a>(text: &'a str, machine: &MachineName) -> Result<Cow<'a, str>, MachineLineError> {
    let read = |text: &str, name: &str| -> Option<Model> {
        parse(&Source::new(format!("{name}.yaml"), text)).ok().map(|parsed| parsed.model)
    };
    let other = format!("not-{}", machine.as_str().get(..machine.as_str().len().min(40)).unwrap_or_default());
    let (Some(wanted), Some(elsewhere)) = (read(text, machine.as_str()), read(text, &other)) else {
        return Ok(Cow::Borrowed(text));
    };
    if wanted.guests == elsewhere.guests {
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
        let text = "machine:\nguests: {a: {nics: {n: {uplink: br0}}}}\n";
        let error = with_machine(text, &"web-1".parse().unwrap()).unwrap_err();
        assert_eq!(error.machine, "web-1");
    }
}
