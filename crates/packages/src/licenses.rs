//! The file `copyright` of a package: whose work is in the program, and under which licences, with their whole texts.

use std::{collections::BTreeMap, error::Error, fmt::Write, path::Path};

use penstock_host::{Command, files};

use crate::{Program, dependencies::Dependency};

/// What is linked into a program and is no crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The name of the library.
    pub name: &'static str,
    /// The version that it was linked from.
    pub version: String,
    /// Its licence, as an SPDX expression.
    pub license: &'static str,
    /// What is to be said of it.
    pub note: String,
    /// Whose package it is, for its package URL: `deb/debian`, `generic`.
    pub from: &'static str,
}

impl Linked {
    /// Its package URL.
    pub fn url(&self) -> String {
        format!("pkg:{}/{}@{}", self.from, self.name, self.version.replace('+', "%2B"))
    }
}

/// What this machine links into every program for `target` beside crates: the C library, the compiler's own, Rust's.
///
/// # Errors
///
/// There are no packages for the target, or one of them does not tell its version.
pub fn linked(target: &str) -> Result<Vec<Linked>, Box<dyn Error>> {
    let (libc, compiler) = match target {
        "x86_64-unknown-linux-gnu" => ("libc6-dev", Command::new("cc")),
        "aarch64-unknown-linux-gnu" => ("libc6-dev-arm64-cross", Command::new("aarch64-linux-gnu-gcc")),
        _ => {
            return Err(
                format!("it is not known which C library is linked into programs for {target}").into()
            );
        }
    };
    let words = ["--show", &format!("--showformat={LIBC_FORMAT}"), libc];
    let told = Command::new("dpkg-query").args(words).succeed()?.text();
    let glibc = glibc(&told).ok_or_else(|| {
        format!("the package {libc} does not tell the glibc that it was built from: {}", told.trim())
    })?;
    let rust = Command::new("rustc").arg("--version").succeed()?.text();
    let rust = rust.split_whitespace().nth(1).ok_or("rustc does not tell its version")?.to_owned();
    let gcc = compiler.arg("-dumpfullversion").succeed()?.text().trim().to_owned();
    Ok(vec![
        Linked {
            name: "glibc",
            version: glibc.version,
            license: "LGPL-2.1-or-later",
            note: format!(
                "Linked statically, from Debian's package {libc} {}. Its sources are Debian's source package of glibc of this version{}; with \
                 the sources of Penstock, which are free, the program can be linked again with another version of it.",
                glibc.package,
                glibc.builder.map(|builder| format!(", as built by that of {builder}")).unwrap_or_default(),
            ),
            from: "deb/debian",
        },
        Linked {
            name: "libgcc",
            version: gcc,
            license: "GPL-3.0-or-later WITH GCC-exception-3.1",
            note: "The exception allows to link it with programs under any licence.".to_owned(),
            from: "generic",
        },
        Linked {
            name: "rust-std",
            version: rust,
            license: "MIT OR Apache-2.0",
            note: "Copyright The Rust Project contributors. https://github.com/rust-lang/rust".to_owned(),
            from: "generic",
        },
    ])
}

/// What `dpkg-query` is asked of a package with the C library, a line for each.
const LIBC_FORMAT: &str = "${Version}\n${source:Package} ${source:Version}\n${Built-Using}\n";

/// The glibc of a package of Debian's.
#[derive(Debug, PartialEq, Eq)]
struct Glibc {
    /// The version of its source package.
    version: String,
    /// The version of the package that has the library.
    package: String,
    /// The source package that has built it, where that is another one, and its version.
    builder: Option<String>,
}

/// Reads [`LIBC_FORMAT`]. A cross compiler's library is built by a source package of its own, which names the sources that it was built from.
fn glibc(told: &str) -> Option<Glibc> {
    let mut lines = told.lines();
    let (package, source) = (lines.next()?.to_owned(), lines.next()?);
    if let Some(version) = source.strip_prefix("glibc ") {
        return Some(Glibc { version: version.to_owned(), package, builder: None });
    }
    let mut using = lines.next()?.split(',');
    let version = using.find_map(|one| one.trim().strip_prefix("glibc (= ")?.strip_suffix(')'))?;
    Some(Glibc { version: version.to_owned(), package, builder: Some(source.to_owned()) })
}

/// Where Debian has the texts of common licences.
const COMMON: &str = "/usr/share/common-licenses";
/// How the names of files begin that hold licences and what belongs to them.
const BEGINS: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// For whom the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texts {
    /// For a machine of any kind: all texts are in it.
    Whole,
    /// For Debian, where the texts of common licences are at the same place everywhere and are to be named only.
    Debian,
}

/// The text of the file for `program`.
///
/// # Errors
///
/// A file of a licence cannot be read.
pub fn copyright(
    program: Program,
    crates: &[Dependency],
    linked: &[Linked],
    texts: Texts,
    workspace: &Path,
) -> Result<String, Box<dyn Error>> {
    let name = program.name();
    let mut text = format!(
        "{name} is free software of the Penstock authors, from {}.\n\n\
         Copyright 2026 The Penstock authors\n\n\
         You may use it under the Apache License, version 2.0, or under the MIT license, at your option (Apache-2.0 OR MIT). On Debian \
         systems\nthe former is {COMMON}/Apache-2.0 too.\n\n\
         The program is linked statically from the works of others below, each under the licences that stand beside it, as expressions\n\
         of SPDX. The numbers are those of the texts at the end.\n\n",
        env!("CARGO_PKG_REPOSITORY"),
    );
    let mut texts = Numbered { of: texts, all: Vec::new(), known: BTreeMap::new() };
    let own = ["LICENSE-APACHE", "LICENSE-MIT"];
    let own =
        own.iter().map(|file| files::read_to_string(workspace.join(file)).map(|text| texts.number(text)));
    let own = own.collect::<Result<Vec<_>, _>>()?;
    writeln!(text, "{name}: Apache-2.0 OR MIT {}", numbers(&own))?;
    for one in linked {
        writeln!(text, "{} {}: {}\n    {}", one.name, one.version, one.license, one.note)?;
    }
    let lgpl = texts.number(files::read_to_string(Path::new(COMMON).join("LGPL-2.1"))?);
    writeln!(text, "    The text of LGPL-2.1 is {}.", numbers(&[lgpl]))?;
    for dependency in crates.iter().filter(|dependency| !dependency.is_own()) {
        let mut of = Vec::new();
        let mut names = files::list(&dependency.directory)?;
        names.sort();
        for file in names {
            let path = dependency.directory.join(&file);
            let begins = BEGINS.iter().any(|begins| file.to_ascii_lowercase().starts_with(begins));
            if begins && !path.is_dir() {
                of.push(texts.number(files::read_to_string(path)?));
            }
        }
        let (name, version) = &dependency.id;
        let license = dependency.license.as_deref().unwrap_or("see the text");
        writeln!(text, "{name} {version}: {license} {}", numbers(&of))?;
        if of.is_empty() {
            let authors = match dependency.authors.as_slice() {
                [] => format!("The {name} authors"),
                authors => authors.join(", "),
            };
            writeln!(text, "    Copyright {authors}. Its package has no file with the text.")?;
        }
    }
    for (number, whole) in texts.all.iter().enumerate() {
        write!(text, "\n\n----- [{}] -----\n\n{}\n", number + 1, whole.trim_matches('\n'))?;
    }
    Ok(text)
}

fn numbers(of: &[usize]) -> String {
    of.iter().map(|number| format!("[{number}]")).collect()
}

/// What the texts of licences begin with that are common in Debian, and the names of their files.
const COMMONS: [(&str, &str); 2] = [
    ("Apache License Version 2.0, January 2004", "Apache-2.0"),
    ("GNU LESSER GENERAL PUBLIC LICENSE Version 2.1, February 1999", "LGPL-2.1"),
];

/// Texts of licences, each once however its lines are broken.
struct Numbered {
    of: Texts,
    all: Vec<String>,
    known: BTreeMap<String, usize>,
}

impl Numbered {
    /// The number of a text, from 1.
    fn number(&mut self, text: String) -> usize {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let common = COMMONS.iter().find(|(begins, _)| words.starts_with(begins));
        let (words, text) = match common {
            Some((_, name)) if self.of == Texts::Debian => {
                (format!("{COMMON}/{name}"), format!("The text is in {COMMON}/{name}."))
            }
            _ => (words, text.replace('\r', "")),
        };
        *self.known.entry(words).or_insert_with(|| {
            self.all.push(text);
            self.all.len()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(of: Texts, texts: &[&str]) -> (Vec<usize>, Vec<String>) {
        let mut numbered = Numbered { of, all: Vec::new(), known: BTreeMap::new() };
        (texts.iter().map(|text| numbered.number((*text).to_owned())).collect(), numbered.all)
    }

    #[test]
    fn the_c_library_of_a_cross_compiler_is_the_one_that_it_was_built_from() {
        let own = glibc("2.36-9+deb12u14\nglibc 2.36-9+deb12u14\n\n").unwrap();
        assert_eq!((own.version.as_str(), own.builder), ("2.36-9+deb12u14", None));
        let told = "2.36-8cross1\ncross-toolchain-base 66\nbinutils (= 2.40-2), linux (= 6.1.4-1), glibc (= 2.36-8)\n";
        let cross = glibc(told).unwrap();
        assert_eq!((cross.version.as_str(), cross.package.as_str()), ("2.36-8", "2.36-8cross1"));
        assert_eq!(cross.builder.as_deref(), Some("cross-toolchain-base 66"));
        assert_eq!(glibc("2.36-8cross1\ncross-toolchain-base 66\nlinux (= 6.1.4-1)\n"), None);
    }

    #[test]
    fn nothing_is_said_of_a_target_without_packages() {
        let why = linked("riscv64gc-unknown-linux-gnu").unwrap_err().to_string();
        assert!(why.contains("riscv64gc-unknown-linux-gnu"), "{why}");
    }

    #[test]
    fn a_text_that_is_there_already_has_its_number_again() {
        let (numbers, all) = numbered(Texts::Whole, &["MIT\nor so", "other", "MIT or\r\n so\n"]);
        assert_eq!((numbers, all.len()), (vec![1, 2, 1], 2));
    }

    #[test]
    fn in_debian_a_common_text_is_only_named() {
        let apache = "  Apache License\n  Version 2.0, January 2004\n more";
        let (numbers, all) =
            numbered(Texts::Debian, &["MIT", apache, "Apache License Version 2.0, January 2004 as well"]);
        assert_eq!(numbers, [1, 2, 2]);
        assert_eq!(all[1], "The text is in /usr/share/common-licenses/Apache-2.0.");
        assert_eq!(numbered(Texts::Whole, &[apache]).1, [apache]);
    }
}
