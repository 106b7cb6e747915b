//! The schema and the reader agree.

use penstock_model::{Diagnostic, Diagnostics, Path, Source, parse, schema};
use serde_json::Value;

/// The keys that the schema has for `name`.
fn keys(name: &str) -> Vec<String> {
    let schema = schema();
    let object = match name {
        "Model" => &schema,
        _ => &schema["$defs"][name],
    };
    assert_eq!(object["additionalProperties"], Value::Bool(false), "{name}");
    object["properties"].as_object().unwrap().keys().cloned().collect()
}

/// The answer to a file with `key` in a place where the schema has the keys of `name`.
fn messages(name: &str, key: &str) -> String {
    let text = match name {
        "Model" => format!("{key}: 1\n"),
        "Nic" => format!("nics: {{A: {{{key}: 1}}}}\n"),
        "NicMatch" => format!("nics: {{A: {{match: {{{key}: 1}}}}}}\n"),
        "VfSettings" => format!("nics: {{A: {{defaults: {{{key}: 1}}}}}}\n"),
        "Guest" => format!("nics: {{A: }}\nguests: {{g: {{{key}: 1}}}}\n"),
        "Function" => format!("nics: {{A: }}\nguests: {{g: {{functions: [{{{key}: 1}}]}}}}\n"),
        "Measure" => format!("nics: {{A: }}\nmeasure: {{{key}: 1}}\n"),
        "StorageTarget" => format!("nics: {{A: }}\nmeasure: {{storage: [{{{key}: 1}}]}}\n"),
        "Board" => format!("nics: {{A: }}\nboard: {{{key}: 1}}\n"),
        "Realtime" => format!("nics: {{A: }}\nrealtime: {{{key}: 1}}\n"),
        "GuestRealtime" => format!("nics: {{A: }}\nguests: {{g: {{realtime: {{{key}: 1}}}}}}\n"),
        other => panic!("{other}"),
    };
    let source = Source::new("m.yaml", text);
    parse(&source).map_or_else(|messages| messages.render(&source, false), |_| String::new())
}

#[test]
fn every_key_of_the_schema_is_read_and_described() {
    let schema = schema();
    for name in [
        "Model",
        "Nic",
        "NicMatch",
        "VfSettings",
        "Guest",
        "Function",
        "Measure",
        "StorageTarget",
        "Board",
        "Realtime",
        "GuestRealtime",
    ] {
        let keys = keys(name);
        assert!(keys.len() >= if name == "Measure" { 1 } else { 3 }, "{name}: {keys:?}");
        for key in keys {
            let seen = messages(name, &key);
            assert!(!seen.contains("unknown key"), "{name}.{key}: {seen}");
            let object = if name == "Model" { &schema } else { &schema["$defs"][name] };
            assert!(object["properties"][&key]["description"].is_string(), "{name}.{key} has no description");
        }
        assert!(messages(name, "nonsense").contains("unknown key `nonsense`"), "{name}");
    }
}

#[test]
fn every_key_that_a_message_offers_is_in_the_schema() {
    for name in [
        "Model",
        "Nic",
        "Guest",
        "Function",
        "Measure",
        "StorageTarget",
        "Board",
        "Realtime",
        "GuestRealtime",
    ] {
        let seen = messages(name, "nonsense");
        let offered = seen.split("expected one of: ").nth(1).unwrap().lines().next().unwrap();
        let keys = keys(name);
        for key in offered.split(", ").map(|key| key.trim_matches('`')) {
            assert!(keys.iter().any(|known| known == key), "{name}.{key}");
        }
    }
}

#[test]
fn a_path_from_elsewhere_is_found_and_shown_in_colour_if_asked() {
    let source = Source::new("m.yaml", "nics:\n  NET0:\n    vfs: 9\n");
    let messages = Diagnostics(vec![
        Diagnostic::error(Path::of(["nics", "NET0", "vfs"]), "too many").with_hint("fewer"),
    ]);
    assert_eq!(
        messages.render(&source, false),
        "error: too many\n  --> m.yaml:3:10\n   |\n 3 |     vfs: 9\n   |          ^\n   = help: fewer\n"
    );
    assert!(messages.render(&source, true).contains("\x1b[1m\x1b[31merror\x1b[0m"));
    let beyond = Diagnostics(vec![Diagnostic::warning(Path::of(["nics", "NET0", "mtu", "7"]), "?")]);
    assert_eq!(
        beyond.render(&source, false),
        "warning: ?\n  --> m.yaml:2:3\n   |\n 2 |   NET0:\n   |   ^^^^\n"
    );
    assert_eq!(beyond.to_string(), "nics.NET0.mtu.7: ?");
}

#[test]
fn a_name_comes_from_the_file_when_there_is_none() {
    for (file, name) in
        [("/a/b/xeon-d.yaml", "xeon-d"), ("plain", "plain"), ("-", "machine"), ("a b.yaml", "machine")]
    {
        let model = parse(&Source::new(file, "nics: {A: }\n")).unwrap().model;
        assert_eq!(model.machine, name, "{file}");
    }
}

#[test]
fn an_expectation_may_be_one_line_or_a_list_and_the_schema_says_so() {
    let schema = schema();
    let reference = schema["properties"]["expect"]["anyOf"][0]["$ref"].as_str().unwrap();
    let text = schema.pointer(reference.trim_start_matches('#')).unwrap().to_string();
    assert!(text.contains("ExpectLine") && text.contains("array"), "{text}");
    assert_eq!(schema["$defs"]["ExpectLine"]["type"][0], "string");
    for file in ["expect: pf-pf >= 1Gbit/s", "expect: [pf-pf >= 1Gbit/s]", "expect:\n - pf-pf >= 1Gbit/s\n"] {
        let model = parse(&Source::new("m.yaml", format!("nics: {{A: , B: }}\n{file}\n"))).unwrap().model;
        assert_eq!(model.expect.iter().map(ToString::to_string).collect::<Vec<_>>(), ["pf-pf >= 1Gbit/s"]);
    }
    for file in ["expect:", "expect: []", "measure:", "measure: {storage: }"] {
        let model = parse(&Source::new("m.yaml", format!("nics: {{A: }}\n{file}\n"))).unwrap().model;
        assert!(model.expect.is_empty() && model.measure.storage.is_empty(), "{file}");
    }
}
