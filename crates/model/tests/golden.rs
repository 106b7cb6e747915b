//! Each folder of `tests/golden` is a file and the complete text that a user sees for it. `UPDATE_GOLDEN=1` writes
//! the latter anew; read the difference before it is committed.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

use std::{collections::BTreeSet, fs, path::PathBuf};

use penstock_model::{Against, Diagnostics, Parsed, Source, parse, schema};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// What a user sees: the messages, or the model as it was understood and the warnings.
fn answer(bytes: &[u8]) -> String {
    let show = |messages: &Diagnostics, source: &Source| messages.render(source, false);
    let source = match Source::from_bytes("model.yaml", bytes) {
        Ok(source) => source,
        Err(messages) => return show(&messages, &Source::new("model.yaml", "")),
    };
    match parse(&source) {
        Ok(Parsed { model, warnings }) => {
            let json = serde_json::to_string_pretty(&model).unwrap();
            format!("{}{json}\n", show(&warnings, &source))
        }
        Err(messages) => show(&messages, &source),
    }
}

#[test]
fn every_file_is_answered_as_it_was() {
    let mut cases = 0;
    let mut wrong = String::new();
    for case in fs::read_dir(folder()).unwrap() {
        let case = case.unwrap().path();
        let seen = answer(&fs::read(case.join("model.yaml")).unwrap());
        let expected = case.join("expected.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&expected, &seen).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != seen {
            wrong.push_str(&format!("== {}\n{seen}\n", case.file_name().unwrap().display()));
        }
        cases += 1;
    }
    assert!(cases > 40, "only {cases} cases were found");
    assert!(wrong.is_empty(), "these are not as expected; they are now:\n{wrong}");
}

#[test]
fn every_file_that_should_be_refused_is() {
    for case in fs::read_dir(folder()).unwrap() {
        let case = case.unwrap().path();
        let good = case.file_name().unwrap().to_string_lossy().starts_with("good-");
        let bytes = fs::read(case.join("model.yaml")).unwrap();
        let parsed = Source::from_bytes("model.yaml", &bytes).and_then(|source| parse(&source));
        assert_eq!(parsed.is_ok(), good, "{}: {parsed:?}", case.display());
    }
}

/// All keys that a model can have.
fn keys(part: &serde_json::Value, found: &mut BTreeSet<String>) {
    if let Some(properties) = part.get("properties").and_then(serde_json::Value::as_object) {
        found.extend(properties.keys().cloned());
    }
    part.as_object().into_iter().flatten().for_each(|(_, part)| keys(part, found));
}

#[test]
fn no_code_of_a_message_holds_a_name_that_a_user_gave() {
    let mut known = BTreeSet::new();
    keys(&schema(), &mut known);
    let mut codes = BTreeSet::new();
    for case in fs::read_dir(folder()).unwrap() {
        let bytes = fs::read(case.unwrap().path().join("model.yaml")).unwrap();
        let Ok(source) = Source::from_bytes("model.yaml", &bytes) else { continue };
        let found = parse(&source).map_or_else(|found| found, |parsed| parsed.warnings);
        codes.extend(found.located(&source, Against::Model).into_iter().map(|one| one.code));
    }
    assert!(codes.len() > 100, "{codes:?}");
    let named = |code: &&String| {
        let mut keys = code.split('.');
        let whole = keys.next() == Some("yaml") || **code == "model.unknown-key";
        !whole && keys.any(|key| !known.contains(key))
    };
    let wrong: Vec<_> = codes.iter().filter(named).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_examples_are_good_without_a_warning() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for example in fs::read_dir(folder).unwrap() {
        let path = example.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            let source = Source::new(path.display().to_string(), fs::read_to_string(&path).unwrap());
            match parse(&source) {
                Ok(Parsed { warnings, .. }) => {
                    assert!(warnings.0.is_empty(), "{}", warnings.render(&source, false))
                }
                Err(messages) => panic!("{}", messages.render(&source, false)),
            }
            count += 1;
        }
    }
    assert!(count >= 3, "{count} examples");
}
