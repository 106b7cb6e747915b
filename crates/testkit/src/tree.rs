//! Debian trees on which nothing is installed but what every Debian has: each stands for a fresh machine, on which root and an
//! ordinary user run lines of shell.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_host::{Command, debian};
use tempfile::TempDir;

use crate::{
    binary::Run,
    needs::{self, Lack},
};

/// How a tree is entered.
const ENTER: &str = include_str!("../tree/enter.sh");
/// How long the making of a tree may take, which downloads some 40 MB.
const MAKING: Duration = Duration::from_secs(900);
/// How long one line may take: the packages of all tests are several hundred MB.
const LINE: Duration = Duration::from_secs(1800);

/// The ordinary user of every tree, who has subordinate ids.
pub const USER: &str = "tester";

/// Why no tree can be made and entered here, if so.
pub fn lacking() -> Option<Lack> {
    let words =
        ["--mount", "--pid", "--fork", "--propagation=private", "mount", "-t", "proc", "proc", "/proc"];
    needs::root()
        .or_else(|| needs::programs(&["mmdebstrap", "unshare", "setpriv", "pivot_root", "mount", "umount"]))
        .or_else(|| needs::refused(Command::new("unshare").args(words)))
}

/// A tree, gone with this value.
#[derive(Debug)]
pub struct Tree {
    directory: TempDir,
    shared: Vec<(PathBuf, String)>,
}

impl Tree {
    /// A bare tree of a release of Debian, made now from this machine's own mirror.
    ///
    /// # Errors
    ///
    /// What mmdebstrap said.
    pub fn bare(release: &str) -> Result<Tree, String> {
        let tree = Tree::empty()?;
        // In namespaces of its own: where a test is killed, no process and no mount is left.
        let mut command = Command::new("unshare")
            .env("LC_ALL", "C.UTF-8")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--propagation=private"])
            .args([
                "mmdebstrap",
                "--mode=root",
                "--variant=minbase",
                "--architectures=amd64",
                "--format=directory",
                "--quiet",
            ])
            .arg("--aptopt=Acquire::Languages \"none\"")
            .arg("--aptopt=Acquire::Retries \"3\"")
            // The tree need not survive a power cut.
            .arg("--dpkgopt=force-unsafe-io")
            .args([release])
            .arg(tree.root());
        if let Some(mirror) = debian::mirror() {
            command = command.arg(mirror);
        }
        command.deadline(MAKING).succeed().map_err(|error| format!("no tree of {release}: {error}"))?;
        // No package may start its daemons: they would be this machine's.
        tree.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)?;
        // useradd gives a user subordinate ids where there are files for them.
        tree.write("/etc/subuid", "", 0o644)?;
        tree.write("/etc/subgid", "", 0o644)?;
        tree.root_runs(&format!("useradd --create-home {USER}"))?;
        Ok(tree)
    }

    /// Another tree with the same files. Nothing is shared with this one.
    ///
    /// # Errors
    ///
    /// What `cp` said.
    pub fn copied(&self) -> Result<Tree, String> {
        let tree = Tree::empty()?;
        let copy = Command::new("cp").args(["-a", "--no-target-directory"]).arg(self.root()).arg(tree.root());
        copy.deadline(MAKING).succeed().map_err(|error| error.to_string())?;
        Ok(tree)
    }

    /// One in which nothing is.
    fn empty() -> Result<Tree, String> {
        let directory = tempfile::Builder::new().prefix("penstock-tree-").tempdir();
        let directory = directory.map_err(|error| error.to_string())?;
        // Every user of the tree has to come in.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
            .map_err(|error| error.to_string())?;
        Ok(Tree { directory, shared: Vec::new() })
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// A file of it, seen from outside.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.root().join(absolute.trim_start_matches('/'))
    }

    /// Puts a file into it.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, path: &str, text: &str, mode: u32) -> Result<(), String> {
        let path = self.path(path);
        let written = fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))
            .and_then(|()| fs::write(&path, text))
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Copies a file or a directory of this machine into it, as it is, for everybody to read.
    ///
    /// # Errors
    ///
    /// What `cp` said.
    pub fn copy_in(&self, from: &Path, to: &str) -> Result<(), String> {
        let to = self.path(to);
        fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).map_err(|error| error.to_string())?;
        let copied = Command::new("cp").args(["-R", "--no-target-directory"]).arg(from).arg(&to).succeed();
        copied.map_err(|error| error.to_string())?;
        let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(&to).succeed();
        opened.map(drop).map_err(|error| error.to_string())
    }

    /// Has every later line see a directory of this machine, which none can write to.
    pub fn share(&mut self, from: impl Into<PathBuf>, at: &str) {
        self.shared.push((from.into(), at.to_owned()));
    }

    /// Runs a line of shell to its end as a user of the tree, in the user's home directory.
    pub fn run(&self, user: &str, line: &str) -> Run {
        let mut command = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--propagation=private",
                "sh",
                "-c",
                ENTER,
                "enter.sh",
            ])
            .arg(self.root())
            .args([user, line]);
        for (from, at) in &self.shared {
            command = command.arg(from).arg(at);
        }
        match command.deadline(LINE).run() {
            Ok(output) => Run {
                status: output.status.code().unwrap_or(-1),
                stdout: output.text(),
                stderr: output.errors(),
            },
            Err(error) => Run { status: -1, stdout: String::new(), stderr: error.to_string() },
        }
    }

    /// Runs a line as root, which has to succeed.
    ///
    /// # Errors
    ///
    /// With what it said when it did not.
    pub fn root_runs(&self, line: &str) -> Result<Run, String> {
        let run = self.run("root", line);
        match run.status {
            0 => Ok(run),
            status => Err(format!("`{line}` ended with {status}: {}{}", run.stdout, run.stderr)),
        }
    }
}
