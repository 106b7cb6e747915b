//! Fresh machines: trees of Debian on which nothing is installed, where an ordinary user does what the README says. `make fresh` runs
//! these alone.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use penstock_host::packages;
use penstock_testkit::{
    binary, needs,
    tree::{self, Tree, USER},
    trials::{Outcome, Test, Trials},
};
use serde_json::Value;

/// How long it may take to say what is missing.
const AT_ONCE: Duration = Duration::from_secs(10);
/// The README's first rehearsal, where `penstock` is on the path.
const REHEARSE: &str = "penstock rehearse --output run /src/examples/smallest.yaml";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.side_by_side(2);
    let missing = trials.lacking("fresh machines", || tree::lacking().or_else(needs::built));
    let tests: [(&str, Test); 4] = [
        ("an_ordinary_user_rehearses_from_nothing_and_builds_on_debian_12_in_tree", || rehearses("bookworm")),
        ("an_ordinary_user_rehearses_from_nothing_and_builds_on_debian_13_in_tree", || rehearses("trixie")),
        ("the_small_install_steps_bring_every_program_on_debian_12_in_tree", || installs("bookworm")),
        ("the_small_install_steps_bring_every_program_on_debian_13_in_tree", || installs("trixie")),
    ];
    trials.add(&missing, tests);
    let code = trials.run();
    // Where only some tests are run: nobody drops what is static.
    left().clear();
    code
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Bare trees that nobody has used yet, by release.
static LEFT: Mutex<BTreeMap<&str, Tree>> = Mutex::new(BTreeMap::new());

fn left() -> MutexGuard<'static, BTreeMap<&'static str, Tree>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bare tree of a release that no test has used. Two tests want one of each: the first makes it, and leaves a copy for the other.
fn bare(release: &'static str) -> Result<Tree, String> {
    let found = left().remove(release);
    if let Some(tree) = found {
        return Ok(tree);
    }
    let tree = Tree::bare(release)?;
    let copy = tree.copied()?;
    left().insert(release, copy);
    Ok(tree)
}

/// A bare tree with what a user has brought: a clone, a Rust toolchain, and here the binary that `make build` makes there.
fn machine(release: &'static str) -> Result<Tree, String> {
    let mut tree = bare(release)?;
    for name in ["examples", "scripts", "fuzz/run", "fuzz/sanitize", "Makefile"] {
        tree.copy_in(&repository().join(name), &format!("/src/{name}"))?;
    }
    let binary = binary::path().ok_or("the optimised binary is not built")?;
    tree.copy_in(&binary, "/usr/local/bin/penstock")?;
    let toolchain = Command::new("rustc").args(["--print", "sysroot"]).output();
    let toolchain = toolchain.map_err(|error| format!("rustc: {error}"))?;
    tree.share(String::from_utf8_lossy(&toolchain.stdout).trim(), "/opt/rust");
    Ok(tree)
}

/// Whether a rehearsal is refused at once, with each of these lines and nothing half-made.
fn is_refused(tree: &Tree, why: &str, user: &str, line: &str, expected: &[&str]) -> Outcome {
    let began = Instant::now();
    let run = tree.run(user, line);
    let took = began.elapsed();
    tree.root_runs(&format!("rm -rf /home/{USER}/run"))?;
    run.ended_with(4)?;
    for line in expected {
        if !run.stderr.lines().any(|said| said.trim() == *line) {
            return Err(format!("{why}: no line {line:?} in\n{}", run.stderr).into());
        }
    }
    if took > AT_ONCE {
        return Err(format!("{why}: that was said after {} s", took.as_secs()).into());
    }
    Ok(())
}

/// A line as the ordinary user runs it, in a user namespace in which root has made a `setting` first: of this machine's own settings
/// none is touched. Its accounts are those outside.
fn where_set(setting: &str, line: &str) -> String {
    format!(
        "mkfifo /tmp/mapped && {{ unshare --user sh -c 'read _ </tmp/mapped && exec sh -c \"{setting} && \
         exec setpriv --reuid={USER} --regid={USER} --init-groups env --chdir=/home/{USER} HOME=/home/{USER} {line}\"' & }} && \
         until [ \"$(readlink /proc/$!/ns/user)\" != \"$(readlink /proc/self/ns/user)\" ]; do sleep 0.05; done && \
         for map in uid_map gid_map; do echo 0 0 1000000 >/proc/$!/$map || exit 9; done && echo >/tmp/mapped && wait $!"
    )
}

fn rehearses(release: &'static str) -> Outcome {
    let tree = machine(release)?;

    // Nothing is installed.
    let packages = ["mmdebstrap", "squashfs-tools", "openssh-client", "uidmap"];
    let expected = [
        "mmdebstrap is not installed: sudo apt-get install mmdebstrap",
        "sqfstar is not installed: sudo apt-get install squashfs-tools",
        "ssh is not installed: sudo apt-get install openssh-client",
        "ssh-keygen is not installed: sudo apt-get install openssh-client",
        "newuidmap is not installed: sudo apt-get install uidmap",
        "newgidmap is not installed: sudo apt-get install uidmap",
    ];
    is_refused(&tree, "nothing is installed", USER, REHEARSE, &expected)?;

    // What the install step says is what there is to do.
    let line = told(&tree, "build")?.ok_or("the install step has nothing to install")?;
    for package in packages {
        if !line.split(' ').any(|word| word == package) {
            return Err(format!("{package} is not in {line:?}").into());
        }
    }
    tree.root_runs(&line)?;
    assert_eq!(told(&tree, "build")?, None, "what was said was not enough");

    // Nor may the user do what is needed: each line is what helps.
    let ranges = fs::read_to_string(tree.path("/etc/subuid"))?;
    tree.write("/etc/subuid", "", 0o644)?;
    tree.write("/etc/subgid", "", 0o644)?;
    let user =
        "tester has no subordinate user ids in /etc/subuid: sudo usermod --add-subuids 100000-165535 tester";
    let group =
        "tester has no subordinate group ids in /etc/subgid: sudo usermod --add-subgids 100000-165535 tester";
    is_refused(&tree, "no subordinate ids", USER, REHEARSE, &[user, group])?;
    for line in [user, group] {
        let remedy = line.split_once(": sudo ").ok_or("a remedy")?.1;
        tree.root_runs(remedy)?;
    }
    assert_eq!(fs::read_to_string(tree.path("/etc/subuid"))?, ranges, "the same as useradd gives a user");
    let off = "user namespaces are switched off here for ordinary users, user.max_user_namespaces is 0: \
               sudo sysctl user.max_user_namespaces=15000";
    let set = "echo 0 >/proc/sys/user/max_user_namespaces";
    is_refused(&tree, "no user namespaces", "root", &where_set(set, REHEARSE), &[off])?;

    let run = tree.run(USER, REHEARSE);
    run.ended_with(0)?;
    let evidence = fs::read_to_string(tree.path(&format!("/home/{USER}/run/evidence.json")))?;
    let evidence: Value = serde_json::from_str(&evidence)?;
    let verdicts = evidence["verdicts"].as_array().map_or(0, Vec::len);
    assert!(verdicts > 0, "{evidence}");

    // What `build` needs is there now, and all targets that need it too.
    bring(&tree, &WITH_BUILD)
}

/// The line that root is to run, as the install step of a target tells the ordinary user; `None` when there is none left.
fn told(tree: &Tree, target: &str) -> Result<Option<String>, String> {
    let step = tree.run(USER, &format!("/src/scripts/install-dependencies {target}"));
    let line = step.stderr.lines().find_map(|line| line.trim().strip_prefix("sudo "));
    match (step.status, line) {
        (0, None) => Ok(None),
        (4, Some(line)) => Ok(Some(line.replace("sudo ", ""))),
        (status, _) => Err(format!("the install step of {target} ended with {status}: {}", step.stderr)),
    }
}

/// The targets of make with an install step that need no package of `build` alone, the smaller ones first: what one brings is there for
/// the next.
const SMALL: [&str; 4] = ["docs", "fuzz", "sanitize", "bench-switch"];
/// The other ones with an install step, as well.
const WITH_BUILD: [&str; 5] = ["build", "packages", "bench", "recording", "test"];

fn installs(release: &'static str) -> Outcome {
    let tree = machine(release)?;
    tree.root_runs("apt-get update -qq && apt-get install -qq --no-install-recommends -y make >/dev/null")?;
    bring(&tree, &SMALL)
}

/// Whether the install step of each target brings every program that the target needs.
fn bring(tree: &Tree, targets: &[&str]) -> Outcome {
    let mut wrong = Vec::new();
    for target in targets.iter().copied() {
        let plan = tree.run(USER, &format!("make --dry-run --directory=/src {target}"));
        let step = match target {
            "build" => "scripts/install-dependencies\n".to_owned(),
            _ => format!("scripts/install-dependencies {target}\n"),
        };
        if !plan.stdout.contains(&step) {
            wrong.push(format!("make {target} does not begin with {step:?}: {}{}", plan.stdout, plan.stderr));
        }
        // Root's step installs; what an ordinary user needs besides is told.
        tree.root_runs(&format!("/src/scripts/install-dependencies {target}"))?;
        if let Some(line) = told(tree, target)? {
            tree.root_runs(&line)?;
        }
        if let Some(line) = told(tree, target)? {
            wrong.push(format!("{target}: {line:?} is still to be run after it was run"));
        }
        for (user, root) in [("root", true), (USER, false)] {
            let rows = packages::rows().filter(|row| row.is_for(target, root) && row.package != "image");
            let look = rows.map(|row| match row.program.strip_prefix("package:") {
                Some(package) => format!("dpkg-query -W {package} >/dev/null || echo {package}\n"),
                None if row.program.starts_with('/') => format!("[ -e {0} ] || echo {0}\n", row.program),
                None => format!(
                    "command -v {0} >/dev/null || [ -x /usr/sbin/{0} ] || [ -x /sbin/{0} ] || echo {0}\n",
                    row.program
                ),
            });
            let run = tree.run(user, &look.collect::<String>());
            run.ended_with(0)?;
            let missing = run.stdout.split_whitespace().map(|program| {
                let from = packages::row(program).map_or("?", |row| row.package);
                format!("{target} for {user}: {program} is not there, and not in {from}")
            });
            wrong.extend(missing);
        }
        let proof = match target {
            // Every program of ours is linked so.
            "build" => {
                "echo 'fn main() {}' >a.rs && rustc --target x86_64-unknown-linux-gnu \
                 -C target-feature=+crt-static a.rs && ./a"
            }
            "fuzz" => "echo '#include <vector>\nint main() {}' | c++ -o b -x c++ - && ./b",
            _ => continue,
        };
        tree.run(USER, proof).ended_with(0)?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}
