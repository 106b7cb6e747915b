//! The crates that a program is linked from, as cargo tells them. Crates that run while it is built (procedural macros, build scripts)
//! are none of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::{Path, PathBuf},
};

use penstock_host::{Command, files};
use serde::Deserialize;

use crate::Program;

/// Name and version, by which two crates are told apart.
pub type Id = (String, String);

/// A crate that a program is linked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Its name on crates.io, and its version.
    pub id: Id,
    /// Under which licences it is, as an SPDX expression.
    pub license: Option<String>,
    /// Who wrote it, in the words of its manifest.
    pub authors: Vec<String>,
    /// Where its sources are developed.
    pub repository: Option<String>,
    /// SHA-256 of what crates.io has; `None` for a crate of this workspace.
    pub checksum: Option<String>,
    /// Where its sources are here.
    pub directory: PathBuf,
    /// Which of the others it uses.
    pub uses: BTreeSet<Id>,
}

impl Dependency {
    /// Whether it is a crate of this workspace.
    pub fn is_own(&self) -> bool {
        self.checksum.is_none()
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    authors: Vec<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// The crates of `program` for `target`, itself among them, in the order of their names.
///
/// # Errors
///
/// Cargo fails, says what is not understood here, or names a crate in one place and not in another.
pub fn of(program: Program, target: &str, workspace: &Path) -> Result<Vec<Dependency>, Box<dyn Error>> {
    let cargo = |words: &[&str]| Command::new("cargo").current_dir(workspace).args(words).succeed();
    // What is linked: cargo's metadata counts the features of tests, and build scripts, too.
    let tree = [
        "tree",
        "--locked",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
        "--target",
        target,
        "--package",
        program.crate_name(),
    ];
    let linked: BTreeSet<Id> = cargo(&tree)?.text().lines().filter_map(named).collect();
    let metadata = cargo(&["metadata", "--locked", "--format-version=1", "--filter-platform", target])?;
    let metadata: Metadata = serde_json::from_str(&metadata.text())?;
    let checksums = checksums(&files::read_to_string(workspace.join("Cargo.lock"))?);

    let ids: BTreeMap<&str, Id> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), (package.name.clone(), package.version.clone())))
        .collect();
    let uses: BTreeMap<&Id, BTreeSet<Id>> = metadata
        .resolve
        .nodes
        .iter()
        .filter_map(|node| {
            let used = node.dependencies.iter().filter_map(|id| ids.get(id.as_str()));
            Some((ids.get(node.id.as_str())?, used.filter(|id| linked.contains(*id)).cloned().collect()))
        })
        .collect();
    let mut found = Vec::new();
    for package in &metadata.packages {
        let id = (package.name.clone(), package.version.clone());
        if !linked.contains(&id) {
            continue;
        }
        found.push(Dependency {
            license: package.license.as_deref().map(expression),
            authors: package.authors.clone(),
            repository: package.repository.clone(),
            checksum: checksums.get(&id).cloned(),
            directory: package.manifest_path.parent().unwrap_or(Path::new("/")).to_owned(),
            uses: uses.get(&id).cloned().unwrap_or_default(),
            id,
        });
    }
    found.sort_by(|one, other| one.id.cmp(&other.id));
    if found.len() != linked.len() {
        let missing: Vec<String> = linked
            .iter()
            .filter(|id| found.iter().all(|dependency| dependency.id != **id))
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        return Err(format!(
            "`cargo tree` names crates that `cargo metadata` does not: {}",
            missing.join(", ")
        )
        .into());
    }
    Ok(found)
}

/// The crate of a line of `cargo tree`: `clap v4.6.7`, with more behind it.
fn named(line: &str) -> Option<Id> {
    let mut words = line.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some((name.to_owned(), version.to_owned()))
}

/// An expression of SPDX also where a manifest has the `/` of old.
fn expression(license: &str) -> String {
    license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

/// The checksums that a lock file has: it is written by cargo, a key a line.
fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let packages = lock.split("[[package]]").skip(1);
    let value = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")))?;
        Some(line.strip_suffix('"')?.to_owned())
    };
    packages
        .filter_map(|package| {
            Some(((value(package, "name")?, value(package, "version")?), value(package, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_has_a_checksum_for_each_crate_of_the_registry() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"r\"\nchecksum = \"ab\"\n\
                    dependencies = [\n \"b\",\n]\n\n[[package]]\nname = \"b\"\nversion = \"0.1.0\"\n";
        let expected = BTreeMap::from([(("a".to_owned(), "1.0.0".to_owned()), "ab".to_owned())]);
        assert_eq!(checksums(lock), expected);
    }

    #[test]
    fn a_slash_between_licences_is_a_choice() {
        assert_eq!(expression("MIT/Apache-2.0"), "MIT OR Apache-2.0");
        assert_eq!(expression("Unicode-3.0"), "Unicode-3.0");
    }

    #[test]
    fn a_line_of_a_tree_names_a_crate_and_its_version() {
        let id = Some(("clap".to_owned(), "4.6.7".to_owned()));
        assert_eq!(named("clap v4.6.7 (*)"), id);
        assert_eq!(named("clap v4.6.7"), id);
        assert_eq!(named(""), None);
    }
}
