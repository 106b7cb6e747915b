//! The scripts that build and package, in trees of their own, as far as they go without the programs that they package.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use penstock_testkit::{binary::Run, script};
use tempfile::TempDir;

const NATIVE: &str = "x86_64-unknown-linux-gnu";

/// A tree with the scripts of this one, in which programs can be others than this machine's.
struct Tree(TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        let scripts = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts")).unwrap();
        fs::create_dir(tree.at("programs")).unwrap();
        symlink(scripts, tree.at("scripts")).unwrap();
        tree.write("Cargo.toml", "[workspace.package]\nversion = \"1.2.3\"\n");
        tree
    }

    /// With a commit of all that is in it but for `target`.
    fn committed() -> Tree {
        let tree = Tree::new();
        tree.write(".gitignore", "/programs/\n/target/\n/said\n");
        tree.git(&["init", "--quiet"]);
        tree.git(&["add", "--all"]);
        tree.git(&["commit", "--quiet", "--message", "first"]);
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    /// A script that stands for a program.
    fn program(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        script::write(self.at(path), format!("#!/bin/sh\n{text}\n"));
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        let path = format!("{}:{}", self.at("programs").display(), std::env::var("PATH").unwrap_or_default());
        command.arg(program).args(arguments).current_dir(self.0.path()).env("PATH", path);
        command.env("TMPDIR", self.0.path()).env("CARGO_HOME", self.at("cargo"));
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
        }
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Run {
        self.command(program, arguments).output().unwrap().into()
    }

    fn git(&self, words: &[&str]) {
        let run = self.run("git", words);
        assert_eq!(run.status, 0, "{words:?}: {}", run.stderr);
    }

    fn version(&self) -> String {
        let run = self.run("scripts/version", &[]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        run.stdout.trim().to_owned()
    }
}

#[test]
fn a_tag_of_either_kind_makes_a_release_and_a_change_makes_none() {
    let tree = Tree::committed();
    let before = tree.version();
    assert!(before.starts_with("1.2.3~") && before.contains(".g"), "{before}");
    tree.git(&["tag", "v1.2.2"]);
    assert_eq!(tree.version(), before);
    tree.git(&["tag", "v1.2.3"]);
    assert_eq!(tree.version(), "1.2.3");
    tree.git(&["tag", "--force", "--annotate", "--message", "release", "v1.2.3"]);
    assert_eq!(tree.version(), "1.2.3");
    tree.write("changed", "");
    assert_eq!(tree.version(), format!("{before}+dirty"));
}

#[test]
fn flags_of_the_caller_change_no_release() {
    let tree = Tree::new();
    tree.program("programs/cargo", "[ \"$1\" = build ] || exit 0\nenv >said\necho \"$*\" >>said");
    let mut command = tree.command("scripts/build-release", &[NATIVE, "penstock-cli"]);
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env(name, "-Cdebuginfo=2");
    }
    let run = Run::from(command.env("CARGO_TARGET_DIR", tree.at("elsewhere")).output().unwrap());
    assert_eq!(run.status, 0, "{}", run.stderr);
    let said = fs::read_to_string(tree.at("said")).unwrap();
    assert!(!said.contains("-Cdebuginfo=2") && said.contains(" --target-dir target "), "{said}");
    assert!(said.contains("--remap-path-prefix"), "{said}");
}

#[test]
fn packages_of_another_version_go_and_no_program_that_needs_libraries_is_packaged() {
    let tree = Tree::committed();
    let version = tree.version();
    let release = format!("target/{NATIVE}/release");
    tree.program(
        &format!("{release}/penstock-packages"),
        "mkdir -p \"$1/penstock/man1\" && echo >\"$1/penstock/man1/penstock.1\"",
    );
    fs::copy("/usr/bin/env", tree.at(&release).join("penstock")).unwrap();
    let kept = [
        format!("penstock_{version}-1_arm64.deb"),
        format!("penstock-{version}-aarch64-unknown-linux-gnu.tar.gz"),
        "notes".to_owned(),
    ];
    let board_image = ["", ".minisig"].map(|kind| format!("penstock-board-image-x86_64.tar.gz{kind}"));
    let gone = [
        "penstock_1.2.3-1_arm64.deb".to_owned(),
        "penstock-1.2.2-1.aarch64.rpm".to_owned(),
        format!("penstock_{version}-1_amd64.deb"),
        format!("penstock-{version}-x86_64.oci.tar"),
        "SHA256SUMS".to_owned(),
    ];
    for name in kept.iter().chain(&gone).chain(&board_image) {
        tree.write(&format!("target/packages/{name}"), name);
    }
    let image_is_there = || board_image.clone().map(|name| tree.at("target/packages").join(name).exists());
    let mut beside_a_new_image = tree.command("scripts/make-packages", &[NATIVE]);
    let run = Run::from(beside_a_new_image.env("BOARD_IMAGE", "new").output().unwrap());
    assert_eq!((run.status, image_is_there()), (1, [true; 2]), "{}", run.stderr);
    let run = tree.run("scripts/make-packages", &[NATIVE]);
    assert_eq!((run.status, image_is_there()), (1, [false; 2]), "one of another recipe may lie there");
    assert!(run.stderr.contains("release/penstock is not linked statically"), "{}", run.stderr);
    let there = |name: &&String| tree.at("target/packages").join(name).exists();
    assert_eq!(kept.iter().filter(there).collect::<Vec<_>>(), kept.iter().collect::<Vec<_>>());
    assert_eq!(gone.iter().find(there), None);
}

#[test]
fn no_signature_of_another_board_image_stays_beside_a_new_one() {
    let tree = Tree::new();
    symlink(
        fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile")).unwrap(),
        tree.at("Makefile"),
    )
    .unwrap();
    let [image, signature] =
        ["", ".minisig"].map(|kind| format!("target/packages/penstock-board-image-x86_64.tar.gz{kind}"));
    tree.write(&image, "old");
    tree.write(&signature, "of the old one");
    tree.program("penstock", "echo new >\"$4\"");
    let run = tree.run("make", &["--silent", "--old-file=image", "penstock=./penstock", "board-image-file"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(fs::read_to_string(tree.at(&image)).unwrap(), "new\n");
    assert!(!tree.at(&signature).exists());
}

#[test]
fn the_sums_are_those_of_files() {
    let tree = Tree::new();
    // The script goes from its own place.
    fs::remove_file(tree.at("scripts")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sum-packages");
    tree.write("scripts/sum-packages", &fs::read_to_string(script).unwrap());
    for file in
        ["target/packages/b", "target/packages/a", "target/packages/SHA256SUMS", "target/packages/c/d"]
    {
        tree.write(file, "");
    }
    let run = tree.run("sh", &["scripts/sum-packages"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(run.stdout, format!("{empty}  a\n{empty}  b\n"));
    assert_eq!(fs::read_to_string(tree.at("target/packages/SHA256SUMS")).unwrap(), run.stdout);
}

#[test]
fn a_release_of_which_the_changelog_says_nothing_is_refused() {
    let tree = Tree::new();
    tree.write(
        "CHANGELOG.md",
        "# Changelog\n\n## Unreleased\n\nMuch.\n\n## [1.2.3] - 2026-12-01\n\n### One\n\n- a\n\n## 1.2.2\n\n",
    );
    for (version, said) in [
        ("1.2.3", "### One\n\n- a\n\n"),
        ("1.2.3~20261201.gc0ffee", "Much.\n\n"),
        ("1.2.3+dirty", "Much.\n\n"),
    ] {
        let run = tree.run("scripts/release-notes", &[version]);
        assert_eq!((run.status, run.stdout.as_str()), (0, said), "{version}: {}", run.stderr);
    }
    // A section in which nothing is, and none.
    for version in ["1.2.2", "1.2", "1.3.0"] {
        let run = tree.run("scripts/release-notes", &[version]);
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{version}");
        assert!(run.stderr.contains(&format!("says nothing of {version}")), "{}", run.stderr);
    }
}

/// With the scripts that go from their own place, and something to publish.
fn to_publish() -> Tree {
    let tree = Tree::new();
    fs::remove_file(tree.at("scripts")).unwrap();
    for name in ["publish", "check-signing-key", "release-notes", "sum-packages"] {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
        script::write(tree.at("programs").join(name), fs::read_to_string(text).unwrap());
    }
    fs::rename(tree.at("programs"), tree.at("scripts")).unwrap();
    tree.program("scripts/version", "echo 1.2.3");
    tree.write("CHANGELOG.md", "## 1.2.3\n\n- a\n");
    tree.write("target/packages/penstock_1.2.3-1_amd64.deb", "");
    tree.write("target/packages/penstock-board-image-x86_64.tar.gz", "");
    tree
}

#[test]
fn what_is_published_has_its_changes_its_sums_and_with_a_key_signatures() {
    let tree = to_publish();
    let run = tree.run("scripts/publish", &[]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("nothing is signed"), "{}", run.stderr);
    let notes = fs::read_to_string(tree.at("target/packages/penstock-1.2.3-changes.md")).unwrap();
    assert_eq!(notes, "- a\n");
    assert_eq!(run.stdout.lines().count(), 3, "{}", run.stdout);

    // The sums of an earlier signature are others.
    tree.write("target/packages/SHA256SUMS.minisig", "old");
    assert_eq!(tree.run("scripts/publish", &[""]).status, 0);
    assert!(!tree.at("target/packages/SHA256SUMS.minisig").exists());
    // Nothing is made that cannot be signed.
    fs::remove_file(tree.at("target/packages/SHA256SUMS")).unwrap();
    for missing in ["release.key", "release.pub"] {
        let run = tree.run("scripts/publish", &["release.key"]);
        assert_eq!(run.status, 2, "{}", run.stderr);
        assert!(run.stderr.contains(&format!("{missing} is not there")), "{}", run.stderr);
        assert!(!tree.at("target/packages/SHA256SUMS").exists());
        tree.write(missing, "");
    }
    tree.program(
        "programs/minisign",
        "echo \"$*\" >>said\ncase $1 in -S) for file; do :; done; echo >\"$file.minisig\" ;; esac",
    );
    let run = tree.run("scripts/publish", &["release.key"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let said = fs::read_to_string(tree.at("said")).unwrap();
    let wanted: String = ["SHA256SUMS", "penstock-board-image-x86_64.tar.gz"]
        .map(|file| {
            format!(
                "-S -s release.key -t penstock 1.2.3: {file} -m target/packages/{file}\n-V -q -p release.pub -m target/packages/{file}\n"
            )
        })
        .concat();
    assert_eq!(said, wanted);
    // What is summed again has no signatures in it.
    assert!(!tree.run("scripts/sum-packages", &[]).stdout.contains("minisig"));
    // A signature that is none of the public key's is no release.
    tree.program("programs/minisign", "[ $1 = -S ] || exit 1");
    assert_ne!(tree.run("scripts/publish", &["release.key"]).status, 0);
}

#[test]
fn the_oldest_rust_is_tried_where_it_is_there_and_named_where_it_is_not() {
    let tree = Tree::new();
    tree.write("Cargo.toml", "[workspace.package]\nversion = \"1.2.3\"\nrust-version = \"1.89\"\n");
    tree.program("programs/cargo", "echo \"$*\"");
    for (there, said) in [
        ("stable-x86_64-unknown-linux-gnu (active, default)\n1.8-x\n1.890.0-x\n11.89.0-x", None),
        (
            "stable-a\n1.89.0-x86_64-unknown-linux-gnu",
            Some("+1.89.0-x86_64-unknown-linux-gnu check --workspace --all-targets"),
        ),
        ("1.89-x86_64-unknown-linux-gnu (override)", Some("+1.89-x86_64-unknown-linux-gnu check ")),
    ] {
        tree.program(
            "programs/rustup",
            &format!("[ \"$*\" = 'toolchain list' ] && printf '{}\\n'", there.replace('\n', "\\n")),
        );
        let run = tree.run("scripts/check-msrv", &[]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        let wanted = said.unwrap_or("skipped: Rust 1.89 is not installed");
        assert!(run.stdout.starts_with(wanted), "{there}: {}", run.stdout);
    }
}

#[test]
fn an_image_of_a_mirror_has_security_updates_unless_there_are_none_and_that_is_said() {
    let tree = Tree::committed();
    for name in ["penstock_1_amd64.deb", "penstock-switch_1_amd64.deb", "penstock-board-image-x86_64.tar.gz"]
    {
        tree.write(&format!("target/packages/{name}"), "");
    }
    tree.program("programs/dpkg-deb", "echo 1-1");
    tree.program("programs/mmdebstrap", "printf '%s\\n' \"$@\" >said\nexit 1");
    for (security, source) in [
        (None, Some("http://security.debian.org/debian-security trixie-security main")),
        (Some("http://near/security"), Some("http://near/security trixie-security main")),
        (Some(""), None),
    ] {
        let mut command = tree.command("scripts/make-container", &[]);
        command.env("PENSTOCK_MIRROR", "http://near/debian").env_remove("PENSTOCK_SECURITY_MIRROR");
        let run = Run::from(
            command.envs(security.map(|mirror| ("PENSTOCK_SECURITY_MIRROR", mirror))).output().unwrap(),
        );
        let said = fs::read_to_string(tree.at("said")).unwrap();
        let sources: Vec<&str> = said.lines().filter(|line| line.starts_with("deb ")).collect();
        assert_eq!(sources.len(), 2 + usize::from(source.is_some()), "{said}");
        assert!(source.is_none_or(|source| sources[2].ends_with(source)), "{said}");
        assert_eq!(run.stderr.contains("SECURITY_MIRROR is empty"), source.is_none(), "{}", run.stderr);
    }
}

#[test]
fn packages_are_downloaded_where_nobody_else_can_write() {
    let tree = Tree::new();
    tree.program("programs/apt-cache", "exit 0");
    tree.program("programs/apt-get", "ls -ld . >../said\necho \"$*\" >>../said\ntouch tool.deb");
    tree.program("programs/dpkg-deb", "mkdir -p \"$3/usr/bin\" && touch \"$3/usr/bin/tool\"");
    let run = tree.run("scripts/unpack-packages", &["target/tool", "usr/bin/tool", "tool"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let said = fs::read_to_string(tree.at("said")).unwrap();
    assert!(said.starts_with("drwx------") && said.contains("APT::Sandbox::User=root"), "{said}");
    assert!(tree.at("target/tool/usr/bin/tool").exists());
}

#[test]
fn a_crate_that_is_not_the_one_that_is_named_runs_nothing() {
    let tree = Tree::new();
    let fetched = "cache=\"$CARGO_HOME\"/registry/cache/index; mkdir -p \"$cache\"; for version in 0.5.4 0.5.5; do \
                   echo other >\"$cache/mdbook-$version.crate\"; done\necho \"$1\" >>said";
    tree.program("programs/cargo", fetched);
    let run = tree.run("scripts/fetch-mdbook", &["target/mdbook"]);
    assert_eq!(run.status, 1, "{}", run.stderr);
    assert!(run.stderr.contains("is not what this script names"), "{}", run.stderr);
    assert_eq!(fs::read_to_string(tree.at("said")).unwrap(), "fetch\n");
}
