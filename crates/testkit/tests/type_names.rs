//! One name, one thing: no public type of a crate has the name of another crate's, but for those in `shared_type_names.txt`, and none has a
//! name of which nobody outside can guess what it is.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::LazyLock,
};

use sources::{crates, own_files};
use syn::{Item, Visibility};

/// Names that two crates or more have for different things. It is to become shorter.
const SHARED: &str = include_str!("shared_type_names.txt");

/// Names that were given to types here, and say nothing.
const RIDDLES: [&str; 33] = [
    "Told", "Said", "Ears", "Ear", "Eyes", "Sheet", "Ground", "Glance", "Pulse", "Taker", "Takers", "Sketch",
    "Wishes", "Lacking", "Carry", "AtLoss", "Scene", "Post", "Station", "Stand", "Crossing", "Inquiry",
    "Asked", "AskTold", "Across", "Patience", "Ruling", "News", "Taken", "Way", "Alone", "Deeds", "Asking",
];

/// The public types of a source, those of its public modules too.
fn public_types(items: &[Item], names: &mut BTreeSet<String>) {
    for item in items {
        let (visibility, name) = match item {
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Mod(item) => {
                if let (Visibility::Public(_), Some((_, items))) = (&item.vis, &item.content) {
                    public_types(items, names);
                }
                continue;
            }
            _ => continue,
        };
        if matches!(visibility, Visibility::Public(_)) {
            names.insert(name.to_string());
        }
    }
}

/// The crates that have a public type of each name.
static CRATES_BY_NAME: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in crates() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        for file in own_files(&folder) {
            let mut names = BTreeSet::new();
            public_types(&syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap().items, &mut names);
            for found in names {
                all.entry(found).or_default().insert(name.clone());
            }
        }
    }
    all
});

#[test]
fn no_two_crates_have_one_name_for_different_things() {
    let allowed: BTreeSet<&str> = SHARED.lines().collect();
    let all = &*CRATES_BY_NAME;
    assert!(all.len() > 500, "the sources were not read");
    let shared: BTreeMap<&str, &BTreeSet<String>> = all
        .iter()
        .filter(|(_, crates)| crates.len() > 1)
        .map(|(name, crates)| (name.as_str(), crates))
        .collect();
    let new: Vec<_> = shared.iter().filter(|(name, _)| !allowed.contains(**name)).collect();
    assert!(new.is_empty(), "name one of each otherwise: {new:?}");
    let gone: Vec<_> = allowed.iter().filter(|name| !shared.contains_key(**name)).collect();
    assert!(gone.is_empty(), "no longer shared, take them from shared_type_names.txt: {gone:?}");
}

#[test]
fn no_type_has_a_name_that_is_a_riddle() {
    let all = &*CRATES_BY_NAME;
    let riddles: Vec<_> = RIDDLES.iter().filter_map(|name| all.get_key_value(*name)).collect();
    assert!(riddles.is_empty(), "say what it is: {riddles:?}");
}

#[test]
fn public_types_are_found_in_modules_too_and_private_ones_are_none() {
    let file = syn::parse_file(
        "pub struct A; struct B; pub(crate) enum C {} pub mod m { pub trait D {} } mod n { pub type E = u8; }",
    );
    let mut names = BTreeSet::new();
    public_types(&file.unwrap().items, &mut names);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["A", "D"]);
}
