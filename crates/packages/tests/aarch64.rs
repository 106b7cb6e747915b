//! Packages for aarch64, unpacked and tried under QEMU's emulation of its user mode: `make packages machine=aarch64` makes them, and
//! `make packages-test` runs this.
#![allow(clippy::disallowed_methods)]

mod published;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
};

use penstock_testkit::{
    needs::{self, Lack},
    trials::{Outcome, Trials},
};

const PROGRAMS: [&str; 3] = ["penstock", "penstock-kubernetes", "penstock-switch"];

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("packages for aarch64", || {
        let none = PROGRAMS.iter().any(|program| package(program, "arm64").is_none());
        let none = none.then(|| Lack::Machine("`make packages machine=aarch64` makes them first".to_owned()));
        none.or_else(|| needs::programs(&["dpkg-deb", "qemu-aarch64"]))
    });
    trials.add(&missing, [("programs_for_aarch64_run_and_say_what_they_cannot_do", run as fn() -> Outcome)]);
    trials.run()
}

/// The .deb of a program for an architecture of Debian's.
fn package(program: &str, architecture: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(published::directory()?).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{program}_")) && name.ends_with(&format!("_{architecture}.deb"))
    })
}

fn succeeded(output: Output, what: &str) -> Result<String, String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{what}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

fn dpkg_deb(arguments: &[&str], package: &Path) -> Result<String, String> {
    let output = Command::new("dpkg-deb").args(arguments).arg(package).output();
    succeeded(output.map_err(|error| error.to_string())?, &format!("dpkg-deb {arguments:?}"))
}

/// The names of the files of a package.
fn files(package: &Path) -> Result<BTreeSet<String>, String> {
    let listed = dpkg_deb(&["--contents"], package)?;
    Ok(listed.lines().filter_map(|line| Some(line.split_whitespace().nth(5)?.to_owned())).collect())
}

fn run() -> Outcome {
    let unpacked = tempfile::tempdir().map_err(|error| error.to_string())?;
    let root = unpacked.path();
    for program in PROGRAMS {
        let package = package(program, "arm64").ok_or("no package")?;
        assert_eq!(
            dpkg_deb(&["--field"], &package)?.lines().find(|line| line.starts_with("Architecture")),
            Some("Architecture: arm64")
        );
        let output = Command::new("dpkg-deb").arg("--extract").arg(&package).arg(root).output();
        succeeded(output.map_err(|error| error.to_string())?, "dpkg-deb --extract")?;
        let native = self::package(program, "amd64");
        if let Some(native) = native {
            assert_eq!(files(&package)?, files(&native)?, "{program} has the same files on both");
        }
        let elf = fs::read(root.join("usr/bin").join(program)).map_err(|error| error.to_string())?;
        // The machine of an ELF header: EM_AARCH64.
        assert_eq!(elf.get(18..20), Some(&[183, 0][..]), "{program}");
        let copyright = root.join("usr/share/doc").join(program).join("copyright");
        let copyright = fs::read_to_string(copyright).map_err(|error| error.to_string())?;
        assert!(
            copyright.contains("libc6-dev-arm64-cross"),
            "{program} is linked from the other machine's library"
        );
        let version = succeeded(emulated(root, program, &["--version"])?, program)?;
        assert!(version.starts_with(&format!("{program} 0.1.0 (")), "{version}");
    }
    let examples = root.join("usr/share/penstock/examples");
    let smallest = examples.join("smallest.yaml").to_string_lossy().into_owned();
    let entries = fs::read_dir(&examples).map_err(|error| error.to_string())?;
    let mut checked = 0;
    for model in entries.flatten() {
        let model = model.path().to_string_lossy().into_owned();
        let said = succeeded(emulated(root, "penstock", &["check", &model])?, &model)?;
        assert!(said.contains("a good model"), "{said}");
        checked += 1;
    }
    assert!(checked > 5, "{checked} examples");
    let scanned = succeeded(emulated(root, "penstock", &["scan", "--json"])?, "scan")?;
    assert!(scanned.contains("\"kernel\""), "{scanned}");

    let refused = emulated(root, "penstock", &["rehearse", &smallest])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("this one is for aarch64: rehearse on an x86-64 machine"), "{said}");
    Ok(())
}

/// Runs a program of the packages in a directory of its own.
fn emulated(root: &Path, program: &str, arguments: &[&str]) -> Result<Output, String> {
    let home = root.join("home");
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    let mut command = Command::new("qemu-aarch64");
    command.arg(root.join("usr/bin").join(program)).args(arguments).current_dir(&home).env("HOME", &home);
    command.output().map_err(|error| format!("qemu-aarch64: {error}"))
}
