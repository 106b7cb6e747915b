//! A VF attribute is a row of a table (`crates/model/src/vf/table.rs`). What cannot be made from the table must have each key too: the
//! embedded switch, which shares no code with the model, and the documentation. Each failure names the file to edit.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{collections::BTreeSet, fs, path::Path};

use penstock_model::VfKey;
use sources::rust_files;
use syn::{Fields, Item};

const CONFIG: &str = "switch/src/config.rs";
const SETTINGS: &str = "switch/src/settings.rs";
const ENGINE: &str = "switch/src/engine";

/// Keys that the engine's settings have in another form: addresses in one list, a port VLAN's tag in one field.
const OTHERWISE: [VfKey; 3] = [VfKey::Mac, VfKey::Qos, VfKey::VlanProto];

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The fields of a struct of a source.
fn fields(path: &str, name: &str) -> BTreeSet<String> {
    let file = syn::parse_file(&text(path)).unwrap();
    let found = file.items.iter().find_map(|item| match item {
        Item::Struct(item) if item.ident == name => Some(&item.fields),
        _ => None,
    });
    let Some(Fields::Named(fields)) = found else { panic!("{path}: there is no struct {name} with fields") };
    fields.named.iter().filter_map(|field| field.ident.as_ref()).map(ToString::to_string).collect()
}

/// The sources of what moves frames, without its tests.
fn engine() -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(ENGINE);
    let files = rust_files(&directory);
    let sources = files.iter().filter(|file| {
        !file.strip_prefix(&directory).unwrap().starts_with("tests") && !file.ends_with("tests.rs")
    });
    sources.map(|file| fs::read_to_string(file).unwrap()).chain([text(&format!("{ENGINE}.rs"))]).collect()
}

/// Whether `word` stands in `text` by itself.
fn has(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|found| found == word)
}

#[test]
fn the_embedded_switch_has_each_key() {
    let (config, settings, engine) = (fields(CONFIG, "PortConfig"), fields(SETTINGS, "Settings"), engine());
    let source = text(CONFIG);
    let list = source.split("const ATTRIBUTES").nth(1).and_then(|rest| rest.split("];").next()).unwrap();
    for key in VfKey::ALL {
        let name = key.name();
        assert!(config.contains(name), "{CONFIG}: PortConfig has no field `{name}`");
        assert!(has(list, name), "{CONFIG}: PortConfig::ATTRIBUTES is without `{name}`");
        if !OTHERWISE.contains(key) {
            assert!(settings.contains(name), "{SETTINGS}: Settings has no field `{name}`");
            assert!(engine.contains(&format!(".{name}")), "{ENGINE}/: nothing reads Settings::{name}");
        }
    }
}

#[test]
fn the_documentation_has_each_key() {
    for (path, heading) in [("docs/model.md", "## VF attributes"), ("docs/switch.md", "| `socket` |")] {
        let page = text(path);
        let from = page.find(heading).unwrap_or_else(|| panic!("{path} is without {heading:?}"));
        // The first table from there on.
        let lines = page[from..].lines().skip_while(|line| !line.starts_with('|'));
        let rows = lines.take_while(|line| line.starts_with('|'));
        let cells: String = rows.filter_map(|row| row.split('|').nth(1)).collect();
        for key in VfKey::ALL {
            assert!(
                cells.contains(&format!("`{key}`")),
                "{path}: the table after {heading:?} has no row of `{key}`"
            );
        }
    }
}
