//! etcd, the control plane, kubelet, kubectl and kwok as one program. It is built from the Go modules that `go/go.mod` names, on first use,
//! and kept in the cache under the digest of its sources and of how it is built. What any Go that is new enough makes of them is as good.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_board::{Cache, Listener, Progress, cached};
use penstock_host::{
    Command, files,
    process::{self, search_path::SearchPath},
};
use penstock_model::digest::sha256;

use crate::error::ClusterError;

/// The version of Kubernetes in `go/go.mod`.
pub const VERSION: &str = "v1.36.3";

/// The program's sources.
const SOURCES: [(&str, &str); 4] = [
    ("go.mod", include_str!("../go/go.mod")),
    ("go.sum", include_str!("../go/go.sum")),
    ("main.go", include_str!("../go/main.go")),
    ("credentials.go", include_str!("../go/credentials.go")),
];

/// How Go is asked to build it. What only debuggers read takes a tenth of the compiler's time.
const BUILD: [&str; 5] =
    ["build", "-trimpath", "-mod=readonly", "-buildvcs=false", "-gcflags=all=-dwarf=false"];

/// Where Go has what it needs while it builds, some GiB, beside the sources: an interrupt leaves it there.
const SCRATCH: &str = "scratch";

/// The oldest Go that builds it, as `go/go.mod` says.
const NEEDED: (u32, u32) = (1, 26);

/// How long a build may take: some 2,800 packages, 7 minutes on two CPUs, and the modules come over a network.
const BUILDING: Duration = Duration::from_secs(3600);

/// Room for the modules' sources, what is compiled of them, and the program.
const ROOM: u64 = 4 << 30;

/// The program's file within its directory.
const FILE: &str = "penstock-cluster";

/// The program in the cache.
#[derive(Clone, Debug)]
pub struct ClusterProgram {
    file: PathBuf,
}

impl ClusterProgram {
    /// The program of this version's sources: from the cache, or built now. Of two Penstocks that build it, the second waits for the
    /// first. Go keeps the modules and what it has compiled where it always does.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NoGo`] when it is to be built and no Go that is new enough is installed, [`ClusterError::Modules`] and
    /// [`ClusterError::Build`] with what Go said, [`ClusterError::NoSpace`], [`ClusterError::Full`]. Nothing is left under its name.
    pub fn ensure(cache: &Cache, listener: Listener<'_>) -> Result<ClusterProgram, ClusterError> {
        files::make_own_directory(cache.kubernetes())?;
        let directory = directory(cache);
        let look = || Ok(found(&directory));
        cached::once(&directory, listener, look, |part, listener| build(part, &go_version()?, listener))
    }

    /// Whether it is there, or a Go that can build it. Takes a moment, so that it is said before other parts are made that take minutes.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NoGo`].
    pub fn check(cache: &Cache) -> Result<(), ClusterError> {
        match found(&directory(cache)) {
            Some(_) => Ok(()),
            None => go_version().map(drop),
        }
    }

    #[cfg(test)]
    pub(crate) fn called(file: &str) -> ClusterProgram {
        ClusterProgram { file: file.into() }
    }

    /// Where it is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// One of the programs that it is, by name.
    pub fn command(&self, name: &str) -> Command {
        Command::new(&self.file).arg(name)
    }
}

/// Which Go is installed, as it names itself: `go1.26.8`.
fn go_version() -> Result<String, ClusterError> {
    let found = |found: String| ClusterError::NoGo { needed: NEEDED, found };
    if process::find("go").is_none() {
        return Err(found(format!("it is not installed{}", SearchPath::own().why_not("go"))));
    }
    // Not another one that a file or the network would name.
    let output = Command::new("go")
        .args(["env", "GOVERSION"])
        .env("GOTOOLCHAIN", "local")
        .current_dir("/")
        .deadline(Duration::from_secs(60))
        .succeed()?;
    let version = output.text().trim().to_owned();
    match number(&version) {
        Some(number) if number >= NEEDED => Ok(version),
        _ => Err(found(format!("{version} is installed"))),
    }
}

/// The first two numbers of a version of Go.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("go")?.split(['.', '-', ' ']);
    let digits = |part: &str| part.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    let major = digits(parts.next()?)?;
    // `1.27rc1` is no 1.27 yet, and near enough.
    let minor = parts.next()?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    Some((major, minor))
}

/// Where the program of this version's sources is in the cache, or will be.
fn directory(cache: &Cache) -> PathBuf {
    cache.kubernetes().join(format!("program-{}", &digest()[..32]))
}

/// The program in its directory, if it is there.
fn found(directory: &Path) -> Option<ClusterProgram> {
    whole(directory, FILE).map(|file| ClusterProgram { file })
}

/// A file of what was made once, if it is there. One without a byte was left by a power cut.
pub(crate) fn whole(directory: &Path, name: &str) -> Option<PathBuf> {
    let file = directory.join(name);
    files::length(&file).is_ok_and(|length| length > 0).then_some(file)
}

/// The digest of its sources, and of how it is built.
pub fn digest() -> String {
    let mut all = Vec::new();
    let flags = flags();
    let how = BUILD.into_iter().chain([flags.as_str()]);
    let words = how.chain(SOURCES.iter().flat_map(|(name, text)| [*name, *text]));
    for text in words {
        all.extend((text.len() as u64).to_le_bytes());
        all.extend(text.as_bytes());
    }
    sha256(all)
}

/// What the linker is told: no symbols, and the version that every program would otherwise call `v0.0.0-master`.
fn flags() -> String {
    let version = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let mut numbers = VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let versions = [version("gitVersion", VERSION), version("gitMajor", major), version("gitMinor", minor)];
    format!("-s -w {}", versions.join(" "))
}

fn build(part: &Path, go: &str, listener: Listener<'_>) -> Result<(), ClusterError> {
    let free = files::free_space(part)?;
    if free < ROOM {
        return Err(ClusterError::NoSpace { directory: part.to_owned(), free, needed: ROOM });
    }
    listener(Progress::Phase(format!("Building Kubernetes {VERSION} with {go}, once: it takes minutes")));
    let source = part.join("source");
    for directory in [&source, &part.join(SCRATCH)] {
        files::make_own_directory(directory)?;
    }
    for (name, text) in SOURCES {
        files::write_atomic(source.join(name), text)?;
    }
    // Loads every package's source, so that a machine that cannot have the modules is told apart from sources that do not compile.
    go_says(&source, &["list", "-deps", "-mod=readonly", "."]).map_err(|failed| match failed {
        ClusterError::Build { why } => ClusterError::Modules { why },
        error => error,
    })?;
    let (file, ldflags) = (format!("../{FILE}"), flags());
    let words: Vec<&str> = BUILD.into_iter().chain(["-ldflags", &ldflags, "-o", &file, "."]).collect();
    go_says(&source, &words)?;
    files::remove_tree(part.join(SCRATCH))?;
    files::remove_tree(&source)?;
    Ok(())
}

/// Runs Go on the sources in `source`.
fn go_says(source: &Path, words: &[&str]) -> Result<(), ClusterError> {
    let output = Command::new("go")
        .args(words)
        .current_dir(source)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .env("GOTMPDIR", source.with_file_name(SCRATCH))
        // Each package is compiled by a process of its own, of which most end before they have anything to collect: a fifth of the
        // processor time is saved. The largest collect once they have grown to this.
        .env("GOGC", "off")
        .env("GOMEMLIMIT", "1GiB")
        .deadline(BUILDING)
        .run()?;
    if output.status.success() {
        return Ok(());
    }
    Err(failure(&output.errors()))
}

/// What it means that Go has said this and failed.
fn failure(said: &str) -> ClusterError {
    if let Some(line) = said.lines().find(|line| line.contains("no space left on device")) {
        return ClusterError::Full { why: line.trim().to_owned() };
    }
    let lines: Vec<&str> =
        said.trim_end().lines().filter(|line| !line.starts_with("go: downloading")).collect();
    ClusterError::Build { why: lines[lines.len().saturating_sub(12)..].join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_numbers() {
        assert_eq!(number("go1.26.8"), Some((1, 26)));
        assert_eq!(number("go1.27rc1"), Some((1, 27)));
        assert_eq!(number("go1.9"), Some((1, 9)));
        assert!(number("devel").is_none());
    }

    /// A program that is there is taken whatever Go is installed, if any is.
    #[test]
    fn what_is_built_needs_no_go() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path());
        files::make_own_directory(cache.kubernetes()).unwrap();
        let file = directory(&cache).join(FILE);
        files::create_dir_all(directory(&cache)).unwrap();
        // What a power cut has left.
        files::write_atomic(&file, "").unwrap();
        assert!(found(&directory(&cache)).is_none());
        files::write_atomic(&file, "the program").unwrap();
        ClusterProgram::check(&cache).unwrap();
        let mut said = Vec::new();
        let program = ClusterProgram::ensure(&cache, &mut |progress| said.push(progress)).unwrap();
        assert_eq!((program.file(), said.len()), (file.as_path(), 0));
    }

    #[test]
    fn a_full_disk_is_known_by_what_go_says() {
        let said = "go: downloading k8s.io/api v0.36.3\n\
                    compile: writing output: write $WORK/b001/_pkg_.a: no space left on device\nexit status 1\n";
        let error = failure(said);
        assert!(matches!(&error, ClusterError::Full { why } if why.starts_with("compile: ")), "{error}");
        assert!(matches!(failure("main.go:1:1: syntax error\n"), ClusterError::Build { .. }));
    }

    #[test]
    fn the_version_is_that_of_the_modules() {
        assert!(SOURCES[0].1.contains(&format!("\tk8s.io/kubernetes {VERSION}\n")));
        assert!(SOURCES[0].1.contains(&format!("\ngo {}.{}.0\n", NEEDED.0, NEEDED.1)));
        assert!(flags().ends_with("gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"));
    }
}
