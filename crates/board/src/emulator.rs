//! Which QEMU runs a board: the one that the image brings, whose faults are known and repaired; the host's own, when it is new enough, on a
//! host that cannot run that one.

use std::path::{Path, PathBuf};

use penstock_host::{Command, process};

use crate::{error::BoardError, image::Image};

/// The oldest QEMU that will do: composed SR-IOV devices came with 10.0, and their VFs' memory works since 10.2.
pub const NEEDED: (u32, u32) = (10, 2);

/// The program that emulates a board, on this host's `PATH` and in the image.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// A QEMU that is new enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    version: String,
    /// The whole of what it says of its version.
    build: String,
    program: PathBuf,
    /// Arguments that come before all others.
    leading: Vec<String>,
}

impl Emulator {
    /// The image's QEMU if it runs here, else the host's.
    ///
    /// # Errors
    ///
    /// [`BoardError::Emulator`] with what is wrong with each that was found.
    pub fn find(image: &Image) -> Result<Emulator, BoardError> {
        // Through the tree's own loader and libraries, so that it runs whatever this host's are.
        let tree = image.file("qemu");
        let own = |name: &str| tree.join(name).to_string_lossy().into_owned();
        let leading =
            vec!["--library-path".to_owned(), own("lib"), own(PROGRAM), "-L".to_owned(), own("share")];
        let brought = (tree.join("lib/ld-linux-x86-64.so.2"), leading);
        let installed = process::find(PROGRAM).map(|program| (program, Vec::new()));
        let mut found = Vec::new();
        for (program, leading) in [Some(brought), installed].into_iter().flatten() {
            let candidate = Emulator { version: String::new(), build: String::new(), program, leading };
            match candidate.tried() {
                Ok(emulator) => return Ok(emulator),
                Err(why) => found.push(why),
            }
        }
        Err(BoardError::Emulator { found: found.join("; ") })
    }

    /// Its version, as it says it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What it says of its version with the distribution's own number, which changes with every patch of theirs.
    pub fn build(&self) -> &str {
        &self.build
    }

    /// The file that its process runs: the image's is run by the loader that comes with it.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The command that runs it.
    pub fn command(&self) -> Command {
        // QEMU builds and frees thousands of memory views while it makes a board of many VFs; giving each back to the
        // kernel at once doubles the time to start.
        let allocator = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296:\
                         glibc.malloc.top_pad=67108864";
        Command::new(&self.program).args(&self.leading).env("GLIBC_TUNABLES", allocator)
    }

    fn tried(mut self) -> Result<Emulator, String> {
        let at = self.program.display();
        let output = self.command().arg("--version").run().map_err(|error| error.to_string())?;
        let text = output.text();
        match parse_version(&text) {
            Some((version, numbers)) if numbers >= NEEDED => {
                self.version = version.to_owned();
                self.build = text.lines().next().unwrap_or_default().to_owned();
                Ok(self)
            }
            Some((version, _)) => Err(format!("{at} is {version}")),
            None => Err(format!("{at} tells no version: {}", output.errors().trim())),
        }
    }
}

/// Reads the version out of `QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)`.
fn parse_version(text: &str) -> Option<(&str, (u32, u32))> {
    let rest = text.lines().next()?.strip_prefix("QEMU emulator version ")?;
    let version = rest.split_whitespace().next()?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((version, (numbers.next()??, numbers.next()??)))
}

#[cfg(test)]
impl Emulator {
    /// One that is never run.
    pub(crate) fn called(program: &str, build: &str) -> Emulator {
        let (version, build) = ("11.1.3".to_owned(), build.to_owned());
        Emulator { version, build, program: program.into(), leading: vec!["--library-path".to_owned()] }
    }

    /// One that is this line of shell in its place.
    pub(crate) fn acted_by(line: &str) -> Emulator {
        let leading = ["-c", line, "qemu"].map(str::to_owned).to_vec();
        Emulator { leading, ..Emulator::called("/bin/sh", "a line of shell") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let (version, old) = parse_version("QEMU emulator version 7.2.22 (Debian 1:7.2)\nCopyright").unwrap();
        assert_eq!((version, old), ("7.2.22", (7, 2)));
        assert!(old < NEEDED);
        assert!(parse_version("QEMU emulator version 10.0.13").unwrap().1 < NEEDED);
        assert!(parse_version("QEMU emulator version 11.1.3 (Debian)").unwrap().1 >= NEEDED);
        assert!(parse_version("something else").is_none());
    }
}
