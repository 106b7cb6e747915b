//! Every program that a script of Penstock's calls on the machine has the mark `script` in `scripts/programs`: by that root's search path knows
//! which programs nobody else may be able to change (`crates/host/src/process/search_path.rs`). In a text that is surely a script every command
//! has to be known; in another one, which may be for people, those count that `scripts/programs` lists.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use penstock_host::packages;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use sources::{
    crates, own_files,
    shell::{BUILTINS, commands},
};
use syn::Lit;

/// Sources, or directories of them, with scripts that others run than Penstock here, and who. Those of tests are the tests' own affair.
const ELSEWHERE: &[(&str, &str)] = &[
    ("crates/board/src/board.rs", "a board"),
    ("crates/board/src/board/bridges.rs", "a board"),
    ("crates/board/src/board/clock.rs", "a board"),
    ("crates/board/src/program.rs", "a board"),
    ("crates/board/recipe", "a board's image, a board, or a VM in it"),
    ("crates/board/start", "a board"),
    ("crates/cli/src/rehearsal.rs", "a board"),
    ("crates/cli/src/remote/bootstrap.sh", "another machine"),
    ("crates/cluster/node", "a board that is a node"),
    ("crates/cluster/src/image.rs", "a pod"),
    ("crates/cluster/src/node.rs", "a board that is a node"),
    ("crates/guests/src/containers/config.rs", "a container's first process"),
    (
        "crates/guests/src/containers/confinement.rs",
        "a container's root, with a search path that the script sets itself",
    ),
    ("crates/guests/src/containers/dhcp", "a container, and a test of what runs there"),
    ("crates/guests/src/containers/dhcp-event.sh", "a container"),
    ("crates/guests/src/containers/dhcp.sh", "a container"),
    ("crates/guests/src/containers/proofs.rs", "a container"),
    ("crates/guests/src/vms/place.rs", "a VM"),
    ("crates/plan/src/persist/units.rs", "systemd, with its own search path"),
];

/// Sources with parts of scripts, of which they do not show that themselves, and what runs them.
const PARTS: &[(&str, &str)] = &[
    ("crates/guests/src/containers/rates.rs", "containers/start_script.rs"),
    ("crates/measure/src/network/open_vswitch.rs", "network/bridge.rs"),
];

/// Words at the beginning of a text that is no script: for people, or a command line that Penstock carries out itself.
const NO_CALLS: &[(&str, &str)] = &[
    ("crates/board/src/image.rs", "make"),
    ("crates/measure/src/latency/command.rs", "hwlatdetect"),
    ("crates/measure/src/latency/command.rs", "rtla"),
    ("crates/measure/src/latency/machine.rs", "hwlatdetect"),
    ("crates/measure/src/storage.rs", "fio"),
];

/// Behind this, up to the next quote, a text has a script within it.
const WITHIN: &str = "sh -c '";

/// What a source consists of, but for what is of tests alone, and for attributes.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    /// A name, or a word of the language.
    Word(String),
    Text(String),
    Mark(char),
    /// What is between brackets, of whichever kind.
    Group(Vec<Piece>),
}

fn pieces(tokens: TokenStream) -> Vec<Piece> {
    let mut pieces_so_far = Vec::new();
    // Whether what comes next is of tests alone.
    let mut of_tests = false;
    let mut before_attribute = false;
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => before_attribute = true,
            TokenTree::Group(group) if before_attribute && group.delimiter() == Delimiter::Bracket => {
                before_attribute = false;
                of_tests |= group.stream().to_string() == "cfg (test)";
            }
            TokenTree::Group(group) => {
                let skipped = of_tests && group.delimiter() == Delimiter::Brace;
                of_tests &= !skipped;
                if !skipped {
                    pieces_so_far.push(Piece::Group(pieces(group.stream())));
                }
            }
            TokenTree::Punct(mark) => {
                of_tests &= mark.as_char() != ';';
                pieces_so_far.push(Piece::Mark(mark.as_char()));
            }
            TokenTree::Literal(literal) => {
                if let Lit::Str(text) = Lit::new(literal) {
                    pieces_so_far.push(Piece::Text(text.value()));
                }
            }
            TokenTree::Ident(word) => pieces_so_far.push(Piece::Word(word.to_string())),
        }
    }
    pieces_so_far
}

/// A source, as far as it is about scripts.
#[derive(Default)]
struct Source {
    texts: Vec<String>,
    /// Those that are surely scripts, or the beginning of one.
    scripts: BTreeSet<String>,
    /// The texts that a constant or a variable of this name has, whichever of them.
    named: BTreeMap<String, Vec<String>>,
    /// The names of what a shell is given.
    given: BTreeSet<String>,
    /// The files with scripts that it takes in.
    included: Vec<String>,
    /// Whether a shell is named in it: to another program `-c` means something else.
    names_shell: bool,
}

impl Source {
    fn of(text: &str) -> Source {
        let all = pieces(text.parse().unwrap());
        let names_shell = texts(&all).iter().any(|text| ["sh", "/bin/sh"].contains(&text.as_str()));
        let mut source = Source { names_shell, ..Source::default() };
        source.read(&all);
        let begins = |text: &&String| ["#!", "set -e"].iter().any(|beginning| text.starts_with(beginning));
        source.scripts.extend(source.texts.iter().filter(begins).cloned());
        let of_names = source.given.iter().filter_map(|name| source.named.get(name)).flatten();
        source.scripts.extend(of_names.cloned());
        source
    }

    fn read(&mut self, all: &[Piece]) {
        for (at, piece) in all.iter().enumerate() {
            let (before, behind) = (at.checked_sub(1).map(|before| &all[before]), &all[at + 1..]);
            match (piece, behind) {
                (Piece::Group(inner), _) => self.read(inner),
                (Piece::Text(text), _) => {
                    self.texts.push(text.clone());
                    if text == "-c" && self.names_shell {
                        self.give(behind.strip_prefix(&[Piece::Mark(',')]).unwrap_or_default());
                    }
                }
                (Piece::Word(word), [Piece::Mark('!'), Piece::Group(inner), ..]) if word == "include_str" => {
                    let scripts = texts(inner).into_iter().filter(|name| name.ends_with(".sh"));
                    self.included.extend(scripts);
                }
                // The function, and neither a method nor where it is defined.
                (Piece::Word(word), [Piece::Group(inner), ..]) if word == "shell" => {
                    let called = !matches!(before, Some(Piece::Mark('.')))
                        && before != Some(&Piece::Word("fn".to_owned()));
                    if called {
                        self.give(inner);
                    }
                }
                (Piece::Word(word), rest) if ["const", "static", "let"].contains(&word.as_str()) => {
                    let mutable = Piece::Word("mut".to_owned());
                    if let [Piece::Word(name), rest @ ..] = rest.strip_prefix(&[mutable]).unwrap_or(rest) {
                        let end = rest.iter().position(|piece| *piece == Piece::Mark(';'));
                        let of_it = texts(&rest[..end.unwrap_or(rest.len())]);
                        self.named.entry(name.clone()).or_default().extend(of_it);
                    }
                }
                _ => {}
            }
        }
    }

    /// Has a shell given what these pieces begin with: a text, one that `format!` makes, or something that has a name.
    fn give(&mut self, pieces: &[Piece]) {
        match pieces.strip_prefix(&[Piece::Mark('&')]).unwrap_or(pieces) {
            [Piece::Text(text), ..] => drop(self.scripts.insert(text.clone())),
            [Piece::Word(word), Piece::Mark('!'), Piece::Group(inner), ..] if word == "format" => {
                self.scripts.extend(texts(inner).into_iter().next());
            }
            [Piece::Word(name), ..] => drop(self.given.insert(name.clone())),
            _ => {}
        }
    }

    /// Whether it has something run by a shell.
    fn has_scripts(&self) -> bool {
        let by_shell = self.names_shell && self.texts.iter().any(|text| text == "-c");
        let within = self.texts.iter().any(|text| text.contains(WITHIN));
        by_shell || within || !self.scripts.is_empty() || !self.given.is_empty()
    }
}

/// The texts among pieces.
fn texts(pieces: &[Piece]) -> Vec<String> {
    let of = |piece: &Piece| match piece {
        Piece::Text(text) => vec![text.clone()],
        Piece::Group(inner) => texts(inner),
        _ => Vec::new(),
    };
    pieces.iter().flat_map(of).collect()
}

/// The programs that a text calls if it is a script; it may be a part of one that `format!` puts together.
fn called(text: &str) -> BTreeSet<String> {
    let looks_so = text.contains([';', '|', '&', '$', '>', '\n']) || text.split_whitespace().count() > 1;
    if !looks_so {
        return BTreeSet::new();
    }
    let text = text.replace("{{", "{").replace("}}", "}");
    // What mmdebstrap has a shell run.
    let hook = text.strip_prefix("--").and_then(|text| text.split_once("-hook="));
    let text = match hook {
        Some((name, line)) if name.chars().all(|c| c.is_ascii_lowercase()) => line,
        _ => &text,
    };
    // A script within it, as a unit of systemd's has one.
    let within = text.split(WITHIN).skip(1).filter_map(|rest| rest.split('\'').next());
    within.flat_map(commands).chain(commands(text)).collect()
}

/// The functions that a script defines.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("()").filter_map(move |(end, _)| text[..end].rsplit(|c| !of_name(c)).next())
}

/// The sources, and the scripts that these take in, by their names.
fn all_sources() -> BTreeMap<String, Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let name_of = |file: &Path| {
        file.canonicalize().unwrap().strip_prefix(&root).unwrap().to_string_lossy().into_owned()
    };
    let mut all = BTreeMap::new();
    for folder in crates().into_iter().filter(|folder| !folder.ends_with("testkit")) {
        let sources = folder.join("src");
        for file in own_files(&folder) {
            if file.strip_prefix(&sources).unwrap().iter().any(|part| part == "tests") {
                continue;
            }
            let source = Source::of(&fs::read_to_string(&file).unwrap());
            for script in &source.included {
                let script = file.with_file_name(script).canonicalize().unwrap();
                let text = fs::read_to_string(&script).unwrap();
                let texts = vec![text.clone()];
                let included = Source { texts, scripts: [text].into(), ..Source::default() };
                all.insert(name_of(&script), included);
            }
            all.insert(name_of(&file), source);
        }
    }
    all
}

#[test]
fn what_scripts_call_on_the_machine_has_the_mark() {
    let mut unused: BTreeSet<&str> = ELSEWHERE.iter().map(|(file, _)| *file).collect();
    let mut parts: BTreeSet<&str> = PARTS.iter().map(|(file, _)| *file).collect();
    let mut uncalled: BTreeSet<&(&str, &str)> = NO_CALLS.iter().collect();
    let (mut wrong, mut all) = (BTreeSet::new(), BTreeSet::new());
    let sources = all_sources();
    let own: BTreeSet<&str> =
        sources.values().flat_map(|source| &source.texts).flat_map(|text| functions(text)).collect();
    for (name, source) in &sources {
        let is_part = PARTS.iter().any(|(file, _)| file == name);
        if !source.has_scripts() && !is_part {
            continue;
        }
        if is_part && !source.has_scripts() {
            parts.remove(name.as_str());
        }
        if let Some((file, _)) = ELSEWHERE.iter().find(|(file, _)| Path::new(name).starts_with(file)) {
            unused.remove(file);
            continue;
        }
        for text in &source.texts {
            for program in called(text) {
                if let Some(known) = NO_CALLS.iter().find(|known| **known == (name.as_str(), &*program)) {
                    uncalled.remove(known);
                    continue;
                }
                let is_builtin = BUILTINS.contains(&program.as_str());
                let is_known = is_builtin || own.contains(program.as_str());
                match packages::row(&program) {
                    Some(row) if !row.is_of_scripts() && !is_builtin => {
                        wrong.insert(format!("{name}: {program} has no mark `script` in scripts/programs"));
                    }
                    None if !is_known && source.scripts.contains(text) => {
                        wrong.insert(format!("{name}: {program} is not listed in scripts/programs"));
                    }
                    _ => {}
                }
                all.insert(program);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unused.is_empty(), "no scripts are there, take them from ELSEWHERE: {unused:?}");
    assert!(parts.is_empty(), "they show it themselves, or are gone, take them from PARTS: {parts:?}");
    assert!(uncalled.is_empty(), "no text begins so, take them from NO_CALLS: {uncalled:?}");
    for known in ["chroot", "cp", "grep", "ip", "nsenter", "ovs-vsctl", "rm", "sleep", "tc"] {
        assert!(all.contains(known), "{known} is called by a script: {all:?}");
    }
}

#[test]
fn a_program_in_a_script_is_found() {
    let text = "fn f() { run(\"sh\", \"-c\", \"cat x | chroot y\"); }\n#[cfg(test)]\nmod tests { const A: &str = \"mv a b\"; }\n\
                #[error(\"touch it;\")] struct B; const C: &str = \"--customize-hook=mkdir \\\"$1\\\"/x\";\n\
                const D: &str = \"ExecStartPre=-/bin/sh -c 'test -e x || mount y'\";";
    let source = Source::of(text);
    assert!(source.has_scripts());
    let programs: Vec<String> = source.texts.iter().flat_map(|text| called(text)).collect();
    assert_eq!(programs, ["cat", "chroot", "mkdir", "mount", "test"]);
}

#[test]
fn what_is_surely_a_script_is_told_from_what_people_read() {
    let text = "const A: &str = \"a 1\"; fn f() { let mut b = format!(\"b 1{}\", x); run(\"sh\", [\"-c\", A, \"no 1\"]); g([\"-c\", &b]); }\n\
                fn c() { shell(\"c 1\"); shell(&format!(\"d 1{}\", \"no 2\")); let e = \"no 3\"; it.shell(e); run(\"#!/bin/sh\\ne 1\"); }\n\
                fn shell(f: &str) {} const F: &str = include_str!(\"f.sh\"); const G: &str = include_str!(\"g.txt\");";
    let source = Source::of(text);
    let expected = ["#!/bin/sh\ne 1", "a 1", "b 1{}", "c 1", "d 1{}"];
    assert_eq!(source.scripts.iter().collect::<Vec<_>>(), expected);
    assert_eq!(source.included, ["f.sh"]);
    for (text, has) in [
        ("fn f() { shell(&a); }", true),
        ("const F: &str = include_str!(\"f.sh\");", false),
        ("fn f() { it.shell(a); g(\"sh\", \"made -c x\"); }", false),
    ] {
        assert_eq!(Source::of(text).has_scripts(), has, "{text}");
    }
    let found: Vec<&str> = functions("say() { echo; }\n  in_it() { :; } no").collect();
    assert_eq!(found, ["say", "in_it"]);
}

#[test]
fn the_commands_of_a_script_are_found() {
    let script = "set -eu\ntriple=$(rustc -vV | sed -n 's/^host: //p') # not this\nif ! head x >/dev/null && A=1 cut y; then\n\
                  cat >f <<'END'\nnot these\nEND\nfor a in one two; do base64 \"$(dirname \"$a\")\"; done\n\
                  case $x in a|b) tail ;; *) exec sort ;; esac\nmv a \\\n  b\n";
    let expected = [
        "base64", "case", "cat", "cut", "dirname", "done", "esac", "for", "head", "mv", "rustc", "sed",
        "set", "sort", "tail",
    ];
    let found: Vec<String> = commands(script).into_iter().collect();
    assert_eq!(found, expected);
}
