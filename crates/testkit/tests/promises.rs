//! SECURITY.md names the test of each promise: each of them is a test that is there.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{collections::BTreeSet, fs, path::Path};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use sources::all_rust_files;

/// Adds the names of the tests that these tokens have: functions with the attribute `test`, also in a macro's tokens, and in a program of
/// tests pairs of a name and a function, as [`penstock_testkit::trials::Trials`] takes them.
fn tests_of(tokens: TokenStream, has_trials: bool, names: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    // Whether the function that comes next is a test.
    let mut is_test = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let is_attribute = matches!(at.checked_sub(1).map(|before| &tokens[before]),
                    Some(TokenTree::Punct(mark)) if mark.as_char() == '#');
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                if is_attribute && group.delimiter() == Delimiter::Bracket {
                    is_test |= matches!(inside.last(), Some(TokenTree::Ident(last)) if last == "test");
                    continue;
                }
                if let [TokenTree::Literal(name), TokenTree::Punct(comma), TokenTree::Ident(_), ..] =
                    &inside[..]
                    && has_trials
                    && group.delimiter() == Delimiter::Parenthesis
                    && comma.as_char() == ','
                {
                    names.insert(name.to_string().trim_matches('"').to_owned());
                }
                tests_of(group.stream(), has_trials, names);
            }
            TokenTree::Ident(word) if word == "fn" => {
                if let (true, Some(TokenTree::Ident(name))) = (is_test, tokens.get(at + 1)) {
                    names.insert(name.to_string());
                }
                is_test = false;
            }
            _ => {}
        }
    }
}

#[test]
fn each_promise_names_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let mut tests = BTreeSet::new();
    for file in all_rust_files() {
        let text = fs::read_to_string(&file).unwrap();
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        tests_of(tokens, file.iter().any(|part| part == "tests"), &mut tests);
    }
    let mut promises = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| not trusted")) {
        let named: Vec<&str> =
            line.trim_end_matches(" |").rsplit(" | ").next().unwrap().split(", ").collect();
        for test in &named {
            let name = test.strip_prefix('`').and_then(|test| test.strip_suffix('`'));
            let name = name.unwrap_or_else(|| panic!("{line} names no test"));
            assert!(tests.contains(name), "there is no test {name}: {line}");
        }
        promises += 1;
    }
    assert!(promises >= 10, "{promises}");
}

#[test]
fn a_word_or_a_function_that_is_no_test_is_none() {
    let text = r#"
        // a_comment
        #[test]
        #[should_panic(expected = "a_text")]
        fn a_test() { helper("an_argument"); }
        #[cfg(test)]
        fn a_helper() {}
        proptest! { #[test] fn in_a_macro(n in 0..1) {} }
        fn main() { trials.add(&missing, [("a_trial", a_function), ("a_pair", 1)]); say("a_call", other) }
    "#;
    let names = |has_trials: bool| {
        let mut names = BTreeSet::new();
        tests_of(text.parse().unwrap(), has_trials, &mut names);
        names.into_iter().collect::<Vec<String>>()
    };
    assert_eq!(names(false), ["a_test", "in_a_macro"]);
    assert_eq!(names(true), ["a_call", "a_test", "a_trial", "in_a_macro"], "a call looks like a pair");
}
