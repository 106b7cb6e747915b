//! The modules of a crate use one another in one direction, as crates do: no circles, but for those that `module_circles.txt` allows, each with
//! its reason. A module is what `lib.rs` declares; what it has inside is its own affair.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use proc_macro2::{TokenStream, TokenTree};
use sources::{crates, rust_files};
use syn::{Attribute, File, ImplItem, Item, ItemMod, ItemUse, Macro, Meta, UseTree, visit::Visit};

/// Uses against the order, a line each: `CRATE MODULE USED: why`. It is to become shorter.
const ALLOWED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/module_circles.txt");

/// Which module of a crate uses which.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The paths of a source, as they are from its own module, but for those of tests.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
    /// In how many modules within the file this is.
    inside: usize,
}

impl Paths {
    fn take(&mut self, path: &[String]) {
        let supers = path.iter().take_while(|part| *part == "super").count();
        // One that does not leave the file is of no module's but this one's.
        if supers == 0 || supers > self.inside {
            self.found.push(path[supers.min(self.inside)..].to_vec());
        }
    }

    fn take_all(&mut self, tokens: TokenStream) {
        let mut paths = Vec::new();
        paths_in(tokens, &mut paths);
        paths.iter().for_each(|path| self.take(path));
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes_of(item).iter().any(is_of_tests) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs[..],
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_of_tests) {
            syn::visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.inside += 1;
        syn::visit::visit_item_mod(self, item);
        self.inside -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        flatten(&item.tree, &mut Vec::new(), &mut |path, _| self.take(path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.take(&parts);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.visit_path(&item.path);
        self.take_all(item.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.take_all(list.tokens.clone());
        }
    }
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_of_tests(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all (test")
        }
        _ => false,
    }
}

/// Gives each path of a `use` to `each`, with the name that it gets.
fn flatten(tree: &UseTree, before: &mut Vec<String>, each: &mut impl FnMut(&[String], &str)) {
    let mut end = |name: String, called: String| {
        let mut path = before.clone();
        path.push(name);
        each(&path, &called);
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, each);
            before.pop();
        }
        UseTree::Name(name) => end(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(renamed) => end(renamed.ident.to_string(), renamed.rename.to_string()),
        UseTree::Glob(_) => end("*".to_owned(), "*".to_owned()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, each)),
    }
}

/// The paths among the tokens of a macro or an attribute, of which nobody knows what they are.
fn paths_in(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                if colons != 2 {
                    paths.push(std::mem::take(&mut path));
                }
                path.push(word.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            other => {
                colons = 0;
                paths.push(std::mem::take(&mut path));
                if let TokenTree::Group(group) = other {
                    paths_in(group.stream(), paths);
                }
            }
        }
    }
    paths.push(path);
}

/// The path of the module that a file is, in its crate.
fn module_of(file: &Path) -> Vec<String> {
    let mut path: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    path
}

/// What a path in the module `here` begins with at the crate's root; `None` for what is not of this crate, or of the module itself.
fn at_root(path: &[String], here: &[String]) -> Option<String> {
    let supers = path.iter().take_while(|part| *part == "super").count();
    match path.first()?.as_str() {
        "crate" => path.get(1).cloned(),
        "super" if supers == here.len() => path.get(supers).cloned(),
        _ => None,
    }
}

/// The modules that `lib.rs` declares, and of which of them each name is that it gives to the root.
fn root_of(lib: &File) -> (BTreeSet<String>, BTreeMap<String, String>) {
    let (mut modules, mut names) = (BTreeSet::new(), BTreeMap::new());
    for item in &lib.items {
        match item {
            Item::Mod(item) if !item.attrs.iter().any(is_of_tests) => {
                modules.insert(item.ident.to_string());
            }
            Item::Use(item) => flatten(&item.tree, &mut Vec::new(), &mut |path, called| {
                let path: Vec<&String> =
                    path.iter().skip_while(|part| ["self", "crate"].contains(&part.as_str())).collect();
                if let [module, _, ..] = path[..] {
                    names.insert(called.to_owned(), module.clone());
                }
            }),
            _ => {}
        }
    }
    (modules, names)
}

/// The modules that a file declares for tests alone, in files of their own.
fn modules_of_tests(file: &File, here: &[String]) -> Vec<Vec<String>> {
    let own = |item: &Item| match item {
        Item::Mod(item) if item.attrs.iter().any(is_of_tests) => {
            Some([here, &[item.ident.to_string()]].concat())
        }
        _ => None,
    };
    file.items.iter().filter_map(own).collect()
}

/// Which modules of a crate use which, as its sources say.
fn uses_of(sources: &Path) -> Uses {
    let read = |path: &Path| syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
    let (modules, names) = root_of(&read(&sources.join("lib.rs")));
    let files =
        rust_files(sources).into_iter().map(|path| (module_of(path.strip_prefix(sources).unwrap()), path));
    let files = files.filter(|(here, _)| modules.contains(&here[0]));
    let files: Vec<(Vec<String>, File)> = files.map(|(here, path)| (here, read(&path))).collect();
    let of_tests: Vec<_> = files.iter().flat_map(|(here, file)| modules_of_tests(file, here)).collect();
    let mut uses = Uses::new();
    for (here, file) in files.iter().filter(|(here, _)| !of_tests.iter().any(|own| here.starts_with(own))) {
        let mut paths = Paths::default();
        paths.visit_file(file);
        for path in paths.found {
            let Some(name) = at_root(&path, here) else { continue };
            let used = if modules.contains(&name) { Some(&name) } else { names.get(&name) };
            if let Some(used) = used.filter(|used| modules.contains(*used) && **used != here[0]) {
                uses.entry(here[0].clone()).or_default().insert(used.clone());
            }
        }
    }
    uses
}

/// The shortest way from one module to another, both included.
fn way(uses: &Uses, from: &str, to: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::from([from.to_owned()]);
    while !ways.is_empty() {
        let mut further = Vec::new();
        for way in ways {
            for next in uses.get(way.last()?).into_iter().flatten() {
                let longer = [way.clone(), vec![next.clone()]].concat();
                if next == to {
                    return Some(longer);
                }
                if seen.insert(next.clone()) {
                    further.push(longer);
                }
            }
        }
        ways = further;
    }
    None
}

/// A circle that is left without the uses that are allowed, and those of these that close none.
fn judge(uses: &Uses, allowed: &[(&str, &str)]) -> (Option<Vec<String>>, Vec<String>) {
    let mut rest = uses.clone();
    let mut needless = Vec::new();
    let mut there = Vec::new();
    for (module, used) in allowed {
        match rest.get_mut(*module).is_some_and(|all| all.remove(*used)) {
            true => there.push((module, used)),
            false => needless.push(format!("{module} does not use {used}")),
        }
    }
    let circle = rest.keys().filter_map(|module| way(&rest, module, module)).min_by_key(Vec::len);
    for (module, used) in there {
        if circle.is_none() && way(&rest, used, module).is_none() {
            needless.push(format!("{module} may use {used}: that closes no circle"));
        }
    }
    (circle, needless)
}

#[test]
fn no_modules_of_a_crate_use_one_another_in_a_circle() {
    let mut allowed: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    let list = fs::read_to_string(ALLOWED).unwrap();
    for line in list.lines() {
        let (pair, why) = line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
        let [name, module, used] = pair.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(!why.trim().is_empty(), "{line}");
        allowed.entry(name).or_default().push((module, used));
    }
    let mut wrong = Vec::new();
    let mut read = 0;
    for folder in crates().into_iter().filter(|folder| folder.join("src/lib.rs").is_file()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let uses = uses_of(&folder.join("src"));
        read += uses.len();
        let (circle, needless) = judge(&uses, &allowed.remove(name.as_str()).unwrap_or_default());
        wrong.extend(circle.map(|circle| format!("{name}: a circle: {}", circle.join(" uses "))));
        wrong.extend(needless.into_iter().map(|why| format!("{name}: take from module_circles.txt: {why}")));
    }
    wrong.extend(allowed.keys().map(|name| format!("{name}: there is no such crate")));
    assert!(read > 200, "the sources were not read: {read}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (module, used) in pairs {
            uses.entry((*module).to_owned()).or_default().insert((*used).to_owned());
        }
        uses
    };
    let circle = uses(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]);
    let found = judge(&circle, &[]).0.unwrap();
    assert_eq!(found, ["a", "b", "c", "a"]);
    assert_eq!(judge(&circle, &[("c", "a")]), (None, vec![]));
    let needless = judge(&circle, &[("c", "a"), ("c", "d"), ("d", "a")]).1;
    assert_eq!(needless, ["d does not use a", "c may use d: that closes no circle"]);
}

#[test]
fn uses_are_found_wherever_they_stand() {
    let text = "use crate::{a::X, Root as R, b};\nuse super::super::c::Y;\nuse super::near;\nuse std::fmt;\n\
                fn f(g: crate::d::Z) { h!(1, crate::e::i(), super::super::j); }\n#[error(\"{}\", crate::r::S)] struct T;\n#[cfg(test)] use crate::k;\n\
                mod o { use super::p; use super::super::super::q; }\n#[cfg(test)] mod tests { use crate::l; }\n\
                fn s() { crate::t::u!(1); }\n#[cfg(test)] const V: crate::v::W = 1;\n#[cfg(test)] struct W(crate::w::X);\n\
                impl X { #[cfg(test)] fn x() -> crate::x::Y {} #[cfg(all(test, y))] const Y: crate::y::Z = 1;\n\
                fn z(self, a: crate::z::A) {} }";
    let mut paths = Paths::default();
    paths.visit_file(&syn::parse_file(text).unwrap());
    let here = ["m".to_owned(), "n".to_owned()];
    let found: Vec<String> = paths.found.iter().filter_map(|path| at_root(path, &here)).collect();
    assert_eq!(found, ["a", "Root", "b", "c", "d", "e", "j", "r", "q", "t", "z"]);
    let lib =
        syn::parse_file("pub mod a; #[cfg(test)] mod b; pub use self::a::{X, y::Z as W}; use crate::a::V;");
    let (modules, names) = root_of(&lib.unwrap());
    assert_eq!(modules.into_iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(names.into_keys().collect::<Vec<_>>(), ["V", "W", "X"]);
}
