//! Files that name a release name the one that Cargo.toml has: whoever raises the version finds the rest here.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeSet, fs, path::Path};

/// The versions of three numbers in a text.
fn versions(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.').map(|word| word.trim_matches('.'));
    words.filter(|word| word.split('.').filter(|part| !part.is_empty()).count() == 3).collect()
}

#[test]
fn what_names_a_release_names_this_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files: Vec<_> =
        fs::read_dir(root.join("packaging/ci")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    assert!(files.len() >= 3, "{files:?}");
    files.extend(["ansible/galaxy.yml", "docs/install.md"].map(|file| root.join(file)));
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(versions(&text), BTreeSet::from([env!("CARGO_PKG_VERSION")]), "{}", file.display());
    }
}

#[test]
fn versions_are_told_from_other_numbers() {
    assert_eq!(
        versions("penstock_0.1.0-1_amd64.deb, Debian 12.1. v1.2.3. ...").into_iter().collect::<Vec<_>>(),
        ["0.1.0", "1.2.3"]
    );
}
