//! The pages of reference about the model hold what the program has: their tables are made from its types (`UPDATE_GOLDEN=1 cargo test
//! -p penstock-testkit --test reference`), and they name no key that there is not.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use penstock_model::{
    Source,
    inventory::{Ability, Capability},
    measurement::Quantity,
    parse, schema,
    yaml::{YamlNode, YamlValue, documents},
};
use penstock_testkit::{
    golden,
    page::{Example, examples},
};
use serde_json::Value;

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn text_of(name: &str) -> String {
    fs::read_to_string(page(name)).unwrap()
}

#[test]
fn the_page_of_the_model_has_each_unit_of_a_claim() {
    let page = text_of("model.md");
    let list = page.split_once("\nunit     = ").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
    let units: Vec<&str> = list.split([',', ';']).map(str::trim).collect();
    assert_eq!(units, Quantity::UNITS.split(", ").collect::<Vec<_>>());
}

/// Of which trial an ability is what was seen, and what follows from it.
fn of_ability(ability: Ability) -> (&'static str, &'static str) {
    match ability {
        Ability::Kept => (
            "another value than was there",
            "it can be had. **That the hardware holds to it is not said**: the emulated igb takes rates and limits nothing",
        ),
        Ability::Accepted => ("the value that was there already", "the driver has a call for it"),
        Ability::Ignored => ("another value, which was not there afterwards", "it cannot be had"),
        Ability::Unsupported => ("the driver or the device said so", "it cannot be had"),
        Ability::Untold => {
            ("could not be tried, or the answer proves nothing", "it is tried when a model asks for it")
        }
    }
}

#[test]
fn the_page_of_capabilities_has_all_that_a_trial_can_show() {
    let abilities =
        [Ability::Kept, Ability::Accepted, Ability::Ignored, Ability::Unsupported, Ability::Untold];
    let mut table = "| what was seen | of | what follows |\n|---|---|---|\n".to_owned();
    for ability in abilities {
        let (of, follows) = of_ability(ability);
        table += &format!("| {ability} | {of} | {follows} |\n");
    }
    golden::compare_part(&page("capabilities.md"), "abilities", &table);
    let mut table = "| name | what Linux calls, and what it is |\n|---|---|\n".to_owned();
    for capability in Capability::ALL {
        table += &format!("| {capability} | {} |\n", capability.description());
    }
    golden::compare_part(&page("capabilities.md"), "capabilities", &table);
}

/// Where the mapping of each type of the schema stands in a model: its path by names, without positions.
fn paths(schema: &Value) -> BTreeMap<String, BTreeSet<String>> {
    /// Goes through a schema below `path`, into each type once.
    fn walk(
        root: &Value,
        node: &Value,
        path: &str,
        above: &[&str],
        found: &mut BTreeMap<String, BTreeSet<String>>,
    ) {
        if let Some(reference) = node["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            if !above.contains(&name) {
                let above: Vec<&str> = above.iter().copied().chain([name]).collect();
                walk(root, &root["$defs"][name], path, &above, found);
            }
            return;
        }
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        if let Some(properties) = node["properties"].as_object() {
            for (key, value) in properties {
                found.entry(path.to_owned()).or_default().insert(key.clone());
                walk(root, value, &below(key), above, found);
            }
        }
        if node["additionalProperties"].is_object() {
            walk(root, &node["additionalProperties"], &below("NAME"), above, found);
        }
        if let Some(patterns) = node["patternProperties"].as_object() {
            patterns.values().for_each(|value| walk(root, value, &below("NAME"), above, found));
        }
        walk_all(root, node, path, above, found);
    }

    /// What one place may be, or a list of it.
    fn walk_all(
        root: &Value,
        node: &Value,
        path: &str,
        above: &[&str],
        found: &mut BTreeMap<String, BTreeSet<String>>,
    ) {
        for kind in ["anyOf", "oneOf", "allOf"] {
            for part in node[kind].as_array().into_iter().flatten() {
                walk(root, part, path, above, found);
            }
        }
        if node["items"].is_object() {
            walk(root, &node["items"], path, above, found);
        }
    }

    let mut found = BTreeMap::new();
    walk(schema, schema, "", &[], &mut found);
    found
}

/// Whether Penstock spells a key so: spellings of other tools have a hyphen or a capital letter, its own have neither.
fn is_own(key: &str) -> bool {
    key.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c))
}

#[test]
fn the_page_of_the_model_lists_every_key_of_the_schema() {
    let found = paths(&schema());
    let mut table = "| in | keys |\n|---|---|\n".to_owned();
    for (path, keys) in &found {
        let (own, others): (Vec<&String>, Vec<&String>) = keys.iter().partition(|key| is_own(key));
        let listed = |keys: Vec<&String>| {
            keys.into_iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
        };
        let others = if others.is_empty() { String::new() } else { format!(" ({})", listed(others)) };
        let path = if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") };
        table += &format!("| {path} | {}{others} |\n", listed(own));
    }
    golden::compare_part(&page("model.md"), "keys", &table);
}

/// The words in backticks of a text.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_of_the_model_describes_every_key_and_names_none_that_is_not_there() {
    let text = text_of("model.md");
    let (prose, _) = text.split_once("## All keys").expect("the part that is made");
    let keys: BTreeSet<String> = paths(&schema()).into_values().flatten().collect();
    assert!(keys.len() > 80, "{keys:?}");
    let words: BTreeSet<&str> =
        prose.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').collect();
    for key in &keys {
        assert!(words.contains(key.as_str()), "docs/model.md says nothing of `{key}`");
    }
    let mut rows = 0;
    let mut of_keys = false;
    for line in prose.lines() {
        if !line.starts_with('|') {
            of_keys = false;
        } else if line.starts_with("| key |") {
            of_keys = true;
        } else if of_keys && !line.starts_with("|---") {
            let first = line.split('|').nth(1).unwrap();
            let named: Vec<&str> = code(first).collect();
            assert!(!named.is_empty(), "a row without a key: {line}");
            for key in named {
                assert!(keys.contains(key), "docs/model.md has `{key}`, which is no key: {line}");
            }
            rows += 1;
        }
    }
    assert!(rows > 70, "{rows}");
}

#[test]
fn no_example_of_the_pages_about_models_has_an_unknown_key() {
    let mut seen = 0;
    for name in ["tutorial.md", "capabilities.md", "tenant-nics.md", "realtime.md", "others.md"] {
        for Example { line, text } in examples(name) {
            let source = Source::new("m.yaml", text.as_str());
            if let Err(found) = parse(&source) {
                let messages = found.render(&source, false);
                assert!(!messages.contains("unknown key"), "docs/{name}:{line}:\n{text}\n{messages}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen}");
}

/// Keys of the schema that no good model has: their place, and a model that is refused for them. JSON Schema has one type for two places, of
/// which one takes less.
const REFUSED: [(&str, &str, &str); 2] = [
    ("nics.NAME.defaults", "mac", "nics: {A: {vfs: 1, defaults: {mac: \"02:00:00:00:00:01\"}}}"),
    (
        "guests.NAME.nics.NAME.functions.NAME.allow",
        "loopback",
        "guests: {g: {kind: vm, nics: {n: {vfs: 1, functions: {0: {allow: {loopback: on}}}}}}}",
    ),
];

/// Notes the keys of `node`, which stands at `path`, with their places as `schema` names them.
fn note_keys(
    node: &YamlNode,
    path: &str,
    schema: &BTreeMap<String, BTreeSet<String>>,
    found: &mut BTreeSet<(String, String)>,
) {
    match &node.value {
        YamlValue::Mapping(entries) => {
            for entry in entries {
                let known = schema.get(path).is_some_and(|keys| keys.contains(&entry.key));
                if known {
                    found.insert((path.to_owned(), entry.key.clone()));
                }
                let name = if known { &entry.key } else { "NAME" };
                let below = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                note_keys(&entry.value, &below, schema, found);
            }
        }
        YamlValue::Sequence(items) => items.iter().for_each(|item| note_keys(item, path, schema, found)),
        YamlValue::Null | YamlValue::Scalar(_) | YamlValue::Spoiled => {}
    }
}

/// Of the spellings of other programs one example each is enough, wherever it stands. That the examples are good models is the matter of
/// `crates/cli/tests/command_line.rs`, which has the verb `check`.
#[test]
fn the_page_of_the_model_has_an_example_of_every_key() {
    let schema = paths(&schema());
    let mut found = BTreeSet::new();
    for Example { line, text } in examples("model.md") {
        let documents = documents(&text).unwrap_or_else(|error| panic!("docs/model.md:{line}: {error}"));
        documents.iter().for_each(|node| note_keys(node, "", &schema, &mut found));
    }
    for (path, key, model) in REFUSED {
        let place = (path.to_owned(), key.to_owned());
        assert!(schema[path].contains(key) && !found.contains(&place), "{path}.{key} is no exception");
        let source = Source::new("m.yaml", model);
        let refusal = parse(&source).expect_err("the model is refused").to_string();
        let last = path.rsplit('.').next().unwrap();
        assert!(
            refusal.contains(&format!("{last}.{key}: ")),
            "{path}.{key} is not what is refused: {refusal}"
        );
        found.insert(place);
    }
    let anywhere: BTreeSet<&String> = found.iter().map(|(_, key)| key).collect();
    let mut missing = Vec::new();
    for (path, keys) in &schema {
        for key in keys {
            let shown = if is_own(key) {
                found.contains(&(path.clone(), key.clone()))
            } else {
                anywhere.contains(key)
            };
            if !shown {
                missing.push(format!("{path}.{key}"));
            }
        }
    }
    assert!(missing.is_empty(), "no example in docs/model.md has\n{}", missing.join("\n"));
    assert!(found.len() > 150, "{}", found.len());
}
