//! etcd, the control plane, kubelet, kubectl and kwok as one program. It is built from the Go modules that `go/go.mod` names, on first use,
//! and kept in the cache under the digest of its sources and of the Go that builds it.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use penstock_board::{Cache, Listener, Progress};
use penstock_host::{
    Command,
    files::{self, Lock},
    interrupt, process,
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
    digest: String,
    file: PathBuf,
}

impl ClusterProgram {
    /// The program of this version's sources: from the cache, or built now. Of two Penstocks that build it, the second waits for the
    /// first. Go keeps the modules and what it has compiled where it always does.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NoGo`] when no Go that is new enough is installed, [`ClusterError::Modules`] and [`ClusterError::Build`] with what
    /// Go said, [`ClusterError::NoSpace`]. Nothing is left under its name.
    pub fn ensure(cache: &Cache, listener: Listener<'_>) -> Result<ClusterProgram, ClusterError> {
        let go = go_version()?;
        let digest = digest(&go);
        let directory = cache.kubernetes().join(format!("program-{}", &digest[..32]));
        let program = ClusterProgram { file: directory.join(FILE), digest };
        if files::exists(&program.file) {
            return Ok(program);
        }
        files::make_own_directory(cache.kubernetes())?;
        let _lock = lock(&directory.with_extension("lock"), listener)?;
        if files::exists(&program.file) {
            return Ok(program);
        }
        let part = directory.with_extension("part");
        files::remove_tree(&part)?;
        files::make_own_directory(&part)?;
        if let Err(error) = build(&part, &go, listener) {
            files::remove_tree(&part)?;
            return Err(error);
        }
        files::rename(&part, &directory)?;
        Ok(program)
    }

    #[cfg(test)]
    pub(crate) fn called(file: &str) -> ClusterProgram {
        ClusterProgram { digest: "0".repeat(64), file: file.into() }
    }

    /// The digest of its sources, of the Go that builds it, and of how.
    pub fn digest(&self) -> &str {
        &self.digest
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
        return Err(found("it is not installed".to_owned()));
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

fn digest(go: &str) -> String {
    let mut all = Vec::new();
    let flags = flags();
    let words = [go, &flags].into_iter().chain(SOURCES.iter().flat_map(|(name, text)| [*name, *text]));
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
    files::make_own_directory(&source)?;
    for (name, text) in SOURCES {
        files::write_atomic(source.join(name), text)?;
    }
    // Loads every package's source, so that a machine that cannot have the modules is told apart from sources that do not compile.
    go_says(&source, &["list", "-deps", "-mod=readonly", "."]).map_err(|failed| match failed {
        ClusterError::Build { why } => ClusterError::Modules { why },
        error => error,
    })?;
    let file = format!("../{FILE}");
    let ldflags = flags();
    // What only debuggers read takes a tenth of the compiler's time.
    let quick = "-gcflags=all=-dwarf=false";
    let words = [
        "build",
        "-trimpath",
        "-mod=readonly",
        "-buildvcs=false",
        quick,
        "-ldflags",
        &ldflags,
        "-o",
        &file,
        ".",
    ];
    go_says(&source, &words)?;
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
        // Each package is compiled by a process of its own, of which most end before they have anything to collect: a fifth of the
        // processor time is saved. The largest collect once they have grown to this.
        .env("GOGC", "off")
        .env("GOMEMLIMIT", "1GiB")
        .deadline(BUILDING)
        .run()?;
    if output.status.success() {
        return Ok(());
    }
    let said = output.errors();
    let lines: Vec<&str> =
        said.trim_end().lines().filter(|line| !line.starts_with("go: downloading")).collect();
    let why = lines[lines.len().saturating_sub(12)..].join("\n");
    Err(ClusterError::Build { why })
}

/// The lock `path`, waited for until it is ours or an interrupt comes.
pub fn lock(path: &Path, listener: Listener<'_>) -> Result<Lock, ClusterError> {
    let mut told = false;
    loop {
        if let Some(lock) = Lock::try_exclusive(path)? {
            return Ok(lock);
        }
        if !told {
            listener(Progress::Phase("Waiting for another penstock that makes the same".to_owned()));
            told = true;
        }
        if interrupt::pending() {
            return Err(ClusterError::Interrupted { doing: "waiting for another penstock" });
        }
        // flock(2) has no event that can be waited for together with an interrupt.
        thread::sleep(Duration::from_millis(200));
    }
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

    #[test]
    fn another_go_makes_another_program() {
        assert_ne!(digest("go1.26.7"), digest("go1.26.8"));
    }

    #[test]
    fn the_version_is_that_of_the_modules() {
        assert!(SOURCES[0].1.contains(&format!("\tk8s.io/kubernetes {VERSION}\n")));
        assert!(SOURCES[0].1.contains(&format!("\ngo {}.{}.0\n", NEEDED.0, NEEDED.1)));
        assert!(flags().ends_with("gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"));
    }
}
