//! Every function that is `pub` and returns a `Result` says under `# Errors` when it fails, and so does each of a trait that is `pub`. Clippy's
//! `missing_errors_doc` demands that of what other crates can call; this, also of what is `pub` in modules that other crates do not see.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{fs, path::Path};

use sources::{crates, is_of_tests, own_files};
use syn::{
    Attribute, Expr, ExprLit, File, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemTrait, Lit, Meta, ReturnType,
    Signature, TraitItem, Type, Visibility,
    visit::{self, Visit},
};

/// What `protoc` has made of somebody else's protocol, comments included.
const GENERATED: [&str; 1] = ["crates/kubernetes/src/protocol"];

/// The functions that do not say it, of the parts of a source that are no tests.
#[derive(Default)]
struct Silent(Vec<String>);

impl Silent {
    fn look(&mut self, visibility: &Visibility, signature: &Signature, attributes: &[Attribute]) {
        let is_public = matches!(visibility, Visibility::Public(_));
        if is_public && may_fail(&signature.output) && !documentation(attributes).contains("# Errors") {
            self.0.push(signature.ident.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Silent {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let is_of_tests = |attribute: &Attribute| match &attribute.meta {
            Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
            _ => false,
        };
        if !item.attrs.iter().any(is_of_tests) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.look(&item.vis, &item.sig, &item.attrs);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        // A trait says it of its functions.
        if item.trait_.is_none() {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        for function in &item.items {
            if let TraitItem::Fn(function) = function {
                self.look(&item.vis, &function.sig, &function.attrs);
            }
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.look(&item.vis, &item.sig, &item.attrs);
    }
}

/// Whether what is returned is a `Result`, of whichever library.
fn may_fail(output: &ReturnType) -> bool {
    let ReturnType::Type(_, returned) = output else { return false };
    match &**returned {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Result"),
        _ => false,
    }
}

fn documentation(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn silent(file: &File) -> Vec<String> {
    let mut silent = Silent::default();
    silent.visit_file(file);
    silent.0
}

#[test]
fn every_public_function_that_may_fail_says_when() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut wrong, mut read) = (Vec::new(), 0);
    for folder in crates() {
        let sources = folder.join("src");
        for path in own_files(&folder) {
            let name = path.strip_prefix(&root).unwrap();
            if is_of_tests(path.strip_prefix(&sources).unwrap())
                || GENERATED.iter().any(|generated| name.starts_with(generated))
            {
                continue;
            }
            let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
            read += 1;
            wrong.extend(silent(&file).into_iter().map(|function| format!("{}: {function}", name.display())));
        }
    }
    assert!(read > 500, "the sources were not read: {read}");
    assert!(wrong.is_empty(), "say under `# Errors` when they fail:\n{}", wrong.join("\n"));
}

#[test]
fn a_function_that_does_not_say_it_is_found() {
    let text = "/// # Errors\n/// Never.\npub fn said() -> Result<(), ()> {}\npub fn f() -> io::Result<()> {}\nfn own() -> Result<(), ()> {}\n\
                pub(crate) fn near() -> Result<(), ()> {}\npub fn g() -> Option<Result<(), ()>> {}\npub fn h() -> ExpectationResult {}\n\
                impl A { pub fn i(&self) -> Result<(), ()> {} }\nimpl B for A { fn j() -> Result<(), ()> {} }\n\
                mod m { pub async fn k() -> Result<(), ()> {} }\n#[cfg(test)] mod tests { pub fn l() -> Result<(), ()> {} }\n\
                pub trait C { fn n() -> Result<(), ()>; fn o(); /** # Errors */ fn p() -> Result<(), ()> {} }\n\
                trait D { fn q() -> Result<(), ()>; }";
    assert_eq!(silent(&syn::parse_file(text).unwrap()), ["f", "i", "k", "n"]);
}

#[test]
fn a_file_of_tests_is_known_by_its_place_in_the_crate() {
    for (file, of_tests) in [("a/tests.rs", true), ("a/tests/b.rs", true), ("a/b.rs", false)] {
        assert_eq!(is_of_tests(Path::new(file)), of_tests, "{file}");
    }
}
