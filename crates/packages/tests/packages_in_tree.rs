//! The packages as machines meet them: bare trees of Debian where they are installed, upgraded and removed, and where Debian's own
//! programs judge them. `make packages-test` makes them and runs these.
#![allow(clippy::disallowed_methods)]

mod published;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use penstock_testkit::{
    binary::Run,
    json,
    needs::{self, Lack},
    tree::{self, Tree, USER},
    trials::{Outcome, Test, Trials},
};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.side_by_side(2);
    let made = || {
        let none = published::directory().is_none();
        none.then(|| Lack::Machine("`make packages-test` makes them first".to_owned()))
    };
    let missing =
        trials.lacking("packages", || made().or_else(|| needs::programs(&["dpkg-deb", "rpmbuild"])));
    let tests: [(&str, Test); 2] = [
        ("packages_that_are_made_again_elsewhere_have_the_same_bytes", made_again),
        ("bills_of_materials_are_what_cyclonedx_says", bills_hold),
    ];
    trials.add(&missing, tests);
    let missing = trials.lacking("packages and trees of Debian", || made().or_else(tree::lacking));
    let tests: [(&str, Test); 4] = [
        ("a_first_rehearsal_of_what_is_published_takes_two_minutes_in_tree", rehearses_what_is_published),
        ("debian_and_rpm_linters_and_shells_are_content_in_tree", judged),
        ("packages_are_installed_upgraded_and_gone_on_debian_12_in_tree", || installed("bookworm")),
        ("packages_are_installed_upgraded_and_gone_on_debian_13_in_tree", || installed("trixie")),
    ];
    trials.add(&missing, tests);
    trials.run()
}

/// From the files of a release and nothing else to a rehearsal that holds, its image unpacked: how long it may take.
const FIRST_REHEARSAL: Duration = Duration::from_secs(120);

/// The published file whose name begins and ends so.
fn published(begin: &str, end: &str) -> Result<PathBuf, String> {
    let directory = published::directory().ok_or("no packages")?;
    let entries = fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut files = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    });
    files.next().ok_or_else(|| format!("{} has no {begin}*{end}", directory.display()))
}

/// Scripts of the sources run in the sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The same commit, packed in another directory by somebody with other habits.
fn made_again() -> Outcome {
    let again = tempfile::tempdir()?;
    let directory = published::directory().ok_or("no packages")?;
    let mut targets = vec!["x86_64-unknown-linux-gnu"];
    if published("penstock_", "_arm64.deb").is_ok() {
        targets.push("aarch64-unknown-linux-gnu");
    }
    for target in targets {
        let mut make = Command::new("sh");
        make.args(["-c", "umask 077 && exec scripts/make-packages \"$@\"", "sh", target]).arg(again.path());
        make.current_dir(sources())
            .env("TZ", "Asia/Tokyo")
            .env("LC_ALL", "C")
            .env("XZ_DEFAULTS", "--threads=2");
        Run::from(make.output()?).ended_with(0)?;
    }
    let mut compared = 0;
    for entry in fs::read_dir(again.path().join("packages"))?.flatten() {
        let name = entry.file_name();
        if name == "SHA256SUMS" {
            continue;
        }
        let first = directory.join(&name);
        let first = fs::read(&first).map_err(|error| format!("{}: {error}", first.display()))?;
        if fs::read(entry.path())? != first {
            return Err(format!("{} has other bytes when it is made again", name.display()).into());
        }
        compared += 1;
    }
    // A .deb, an .rpm, a tarball and a bill of each program.
    assert!(compared >= 12, "{compared} files");
    Ok(())
}

fn bills_hold() -> Outcome {
    let mut held = 0;
    for entry in fs::read_dir(published::directory().ok_or("no packages")?)?.flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().ends_with(".cdx.json") {
            let bill = json::bill_of_materials(&fs::read_to_string(entry.path())?)
                .map_err(|wrong| format!("{}: {wrong}", name.display()))?;
            let components = bill["components"].as_array().map_or(0, Vec::len);
            assert!(components > 30, "{}: {components} components", name.display());
            held += 1;
        }
    }
    assert!(held >= 3, "{held} bills");
    Ok(())
}

/// What a user does who has the files of a release, no compiler and no mirror for an image.
fn rehearses_what_is_published() -> Outcome {
    const IMAGE: &str = "penstock-board-image-x86_64.tar.gz";
    let tree = Tree::bare("trixie")?;
    let package = published("penstock_", "_amd64.deb")?;
    for file in
        [&package, &published("penstock-board-image-x86_64", ".tar.gz")?, &published("SHA256", "SUMS")?]
    {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tree.copy_in(file, &format!("/release/{name}"))?;
    }
    let at_start = Instant::now();
    tree.run(USER, "cd /release && sha256sum --check --ignore-missing --strict SHA256SUMS").ended_with(0)?;
    tree.root_runs("apt-get update -qq && apt-get install -qq -y /release/*.deb >/dev/null")?;
    let installed = at_start.elapsed();
    for compiler in ["cc", "gcc", "rustc", "cargo"] {
        assert_ne!(tree.run(USER, &format!("command -v {compiler}")).status, 0, "{compiler} is there");
    }

    let began = Instant::now();
    let unpack = format!(
        "penstock board image --from /release/{IMAGE} --sha256 $(sed -n 's/  {IMAGE}$//p' /release/SHA256SUMS)"
    );
    tree.run(USER, &unpack).ended_with(0)?;
    let unpacked = began.elapsed();
    let run = tree.run(USER, "penstock rehearse --output run /usr/share/penstock/examples/smallest.yaml");
    run.ended_with(0)?;
    assert!(run.stdout.contains("Holds: ") || run.stderr.contains("Holds: "), "{}{}", run.stdout, run.stderr);
    let took = began.elapsed();
    println!(
        "installed in {:.1} s, the image unpacked in {:.1} s, rehearsed in {:.1} s",
        installed.as_secs_f64(),
        unpacked.as_secs_f64(),
        (took - unpacked).as_secs_f64()
    );
    assert!(tree.path(&format!("/home/{USER}/run/report.html")).exists());
    assert!(took <= FIRST_REHEARSAL, "{} s", took.as_secs());

    // What minisign itself signs is taken with its key, and with no other.
    tree.root_runs(
        "apt-get install -qq -y --no-install-recommends minisign >/dev/null && chmod o+w /release",
    )?;
    let sign = format!(
        "for key in own other; do minisign -G -W -f -s $key.key -p $key.pub >/dev/null || exit 1; done; \
         minisign -S -W -s own.key -t 'penstock: {IMAGE}' -m /release/{IMAGE} && minisign -V -q -p own.pub -m /release/{IMAGE}"
    );
    tree.run(USER, &sign).ended_with(0)?;
    let with =
        |key: &str| tree.run(USER, &format!("penstock board image --from /release/{IMAGE} --key {key}.pub"));
    with("own").ended_with(0)?;
    with("other").ended_with(3)
}

/// A bare tree with the packages in `/packages`, each by its name without version: `penstock.deb`, `penstock-switch.rpm`.
fn machine(release: &str) -> Result<Tree, String> {
    let tree = Tree::bare(release)?;
    let directory = published::directory().ok_or("no packages")?;
    let mut copied = 0;
    for entry in fs::read_dir(&directory).map_err(|error| error.to_string())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Those of aarch64 are there to be judged alone.
        let (place, ending) = match () {
            () if name.ends_with("_amd64.deb") => ("", "deb"),
            () if name.ends_with(".x86_64.rpm") => ("", "rpm"),
            () if name.ends_with("x86_64-unknown-linux-gnu.tar.gz") => ("", "tar.gz"),
            () if name.ends_with("_arm64.deb") => ("aarch64/", "deb"),
            () if name.ends_with(".aarch64.rpm") => ("aarch64/", "rpm"),
            () => continue,
        };
        let others = ["penstock-switch", "penstock-kubernetes"];
        let program = others.into_iter().find(|program| name.starts_with(program)).unwrap_or("penstock");
        tree.copy_in(&entry.path(), &format!("/packages/{place}{program}.{ending}"))?;
        copied += usize::from(place.is_empty());
    }
    if copied == 9 { Ok(tree) } else { Err(format!("{}: {copied} packages, not 9", directory.display())) }
}

/// Every file of the tree but what apt and dpkg note for themselves.
fn files(tree: &Tree) -> Result<BTreeSet<String>, String> {
    let line = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /packages -o -path /home -o \
                -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg \\) -prune -o -print";
    Ok(tree.root_runs(line)?.stdout.lines().map(str::to_owned).collect())
}

/// Installs packages of `/packages` as a user would, and nothing that is only recommended.
fn install(tree: &Tree, packages: &[&str]) -> Result<(), String> {
    let files: Vec<String> = packages.iter().map(|name| format!("/packages/{name}.deb")).collect();
    let line = format!("apt-get install -qq -y --no-install-recommends {} >/dev/null", files.join(" "));
    tree.root_runs(&line).map(drop)
}

fn version(tree: &Tree) -> Result<String, String> {
    Ok(tree.root_runs("dpkg-query --show --showformat='${Version}' penstock")?.stdout)
}

fn installed(release: &str) -> Outcome {
    let tree = machine(release)?;
    let before = files(&tree)?;

    // An older one, as far as its number goes.
    tree.root_runs(
        "dpkg-deb --raw-extract /packages/penstock.deb /tmp/old && sed -i 's/^Version: .*/Version: 0.0.9-1/' /tmp/old/DEBIAN/control && \
         dpkg-deb --build -Znone /tmp/old /packages/old.deb >/dev/null && rm -r /tmp/old",
    )?;
    install(&tree, &["old"])?;
    assert_eq!(version(&tree)?, "0.0.9-1");
    tree.write("/var/lib/penstock/runs/1/journal", "what a run has noted\n", 0o600)?;
    install(&tree, &["penstock", "penstock-switch"])?;
    let upgraded = version(&tree)?;
    assert!(upgraded.starts_with("0.1.0"), "{upgraded}");
    assert!(tree.path("/var/lib/penstock/runs/1/journal").exists(), "an upgrade keeps what was noted");
    // It asks for the very version of penstock that it was made with.
    install(&tree, &["penstock-kubernetes"])?;
    tree.root_runs("dpkg --verify penstock penstock-switch penstock-kubernetes")?;
    assert!(tree.path("/etc/penstock-switch").is_dir(), "the unit's files belong there");
    for package in ["penstock", "penstock-switch"] {
        let told =
            tree.root_runs(&format!("dpkg-query --show --showformat='${{Conffiles}}' {package}"))?.stdout;
        assert!(told.contains(&format!("/etc/needrestart/conf.d/{package}.conf")), "{told}");
    }

    runs_on_nodes(&tree)?;
    works(&tree, "/usr")?;
    plugs_in(&tree)?;
    let rehearsal =
        tree.run(USER, "penstock rehearse --output run /usr/share/penstock/examples/smallest.yaml");
    rehearsal.ended_with(4)?;
    // What it says is missing is what the package recommends.
    let said = rehearsal.stderr.lines().filter_map(|line| line.trim().split_once("sudo apt-get install "));
    let said: BTreeSet<&str> = said.map(|(_, package)| package).collect();
    let recommended = field(&tree, "Recommends")?;
    assert!(!said.is_empty(), "{}", rehearsal.stderr);
    for package in said {
        assert!(
            recommended.iter().any(|name| name == package),
            "{package} is not recommended: {recommended:?}"
        );
    }
    tree.root_runs("apt-get update -qq")?;
    for package in recommended.iter().chain(&field(&tree, "Suggests")?) {
        // The one that is not free is in another part of the archive.
        if package != "netperf" && package != "penstock-switch" {
            tree.root_runs(&format!("apt-cache show {package} >/dev/null"))?;
        }
    }

    // The tarball, beside the packages.
    tree.root_runs("tar -xzf /packages/penstock.tar.gz -C /usr/local --strip-components=1")?;
    works(&tree, "/usr/local")?;
    tree.root_runs(
        "tar -tzf /packages/penstock.tar.gz | sed 's,^[^/]*/,/usr/local/,' | grep -v '/$' | xargs rm",
    )?;

    // What is started at each boot is not taken away.
    let unit = "[Service]\nExecStart=/usr/bin/penstock at-boot nics /etc/penstock/model.yaml\n";
    tree.write("/etc/systemd/system/penstock-nics.service", unit, 0o644)?;
    let refused = tree.run("root", "apt-get remove -qq -y penstock");
    assert_ne!(refused.status, 0, "{}", refused.stdout);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(said.contains("penstock undo --persist"), "{said}");
    tree.run(USER, "penstock --version").ended_with(0)?;
    tree.root_runs("rm /etc/systemd/system/penstock-nics.service")?;
    // apt had taken away what depends on it before it was refused.
    install(&tree, &["penstock-kubernetes"])?;

    // Nor is a claim's record, while a pod has the VF.
    tree.write("/var/lib/penstock/kubernetes/claims/u-1.json", "{}\n", 0o600)?;
    let refused = tree.run("root", "apt-get remove -qq -y penstock-kubernetes");
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(refused.status != 0 && said.contains("kubectl drain"), "{}: {said}", refused.status);
    tree.root_runs("rm /var/lib/penstock/kubernetes/claims/u-1.json")?;
    tree.write("/etc/penstock/kubernetes.token", "secret", 0o600)?;
    tree.write("/etc/default/penstock-kubernetes", "", 0o644)?;
    tree.root_runs("apt-get purge -qq -y penstock-kubernetes >/dev/null")?;
    assert!(!tree.path("/etc/penstock/kubernetes.token").exists());
    assert!(!tree.path("/var/lib/penstock/kubernetes").exists());
    tree.root_runs("apt-get remove -qq -y penstock penstock-switch >/dev/null")?;
    assert!(tree.path("/var/lib/penstock/runs/1/journal").exists(), "only a purge takes what was noted");
    assert!(!tree.path("/usr/bin/penstock").exists());
    tree.root_runs("apt-get purge -qq -y penstock penstock-switch >/dev/null")?;
    let after = files(&tree)?;
    let empty = ["/usr/local/", "/etc/systemd"];
    let left: Vec<&String> =
        after.difference(&before).filter(|file| !empty.iter().any(|begin| file.starts_with(begin))).collect();
    assert!(left.is_empty(), "purged, and left behind: {left:?}");
    let lost: Vec<&String> = before.difference(&after).collect();
    assert!(lost.is_empty(), "taken along: {lost:?}");
    Ok(())
}

/// The names in a field of the package's.
fn field(tree: &Tree, field: &str) -> Result<Vec<String>, String> {
    let line = format!("dpkg-query --show --showformat='${{{field}}}' penstock");
    Ok(tree.root_runs(&line)?.stdout.split(", ").map(str::to_owned).collect())
}

/// What an ordinary user does with a program that was just installed below `prefix`.
fn works(tree: &Tree, prefix: &str) -> Outcome {
    let version = tree.run(USER, &format!("{prefix}/bin/penstock --version"));
    version.ended_with(0)?;
    assert!(
        version.stdout.starts_with("penstock 0.1.0 (") && version.stdout.len() > 20,
        "{}",
        version.stdout
    );
    let check =
        tree.run(USER, &format!("{prefix}/bin/penstock check {prefix}/share/penstock/examples/*.yaml"));
    check.ended_with(0)?;
    let smallest = format!("{prefix}/share/penstock/examples/smallest.yaml: a good model");
    assert!(check.stdout.contains(&smallest), "{}", check.stdout);
    for shell in ["bash", "zsh", "fish"] {
        let file = match shell {
            "bash" => "bash-completion/completions/penstock",
            "zsh" if prefix == "/usr" => "zsh/vendor-completions/_penstock",
            "zsh" => "zsh/site-functions/_penstock",
            _ => "fish/vendor_completions.d/penstock.fish",
        };
        let line = format!("{prefix}/bin/penstock completions {shell} | cmp - {prefix}/share/{file}");
        tree.run(USER, &line).ended_with(0)?;
    }
    tree.run(USER, &format!("gzip -t {prefix}/share/man/man1/penstock-*.gz")).ended_with(0)?;
    Ok(())
}

/// The agent of a Kubernetes node: what a cluster and systemd are given.
fn runs_on_nodes(tree: &Tree) -> Outcome {
    let version = tree.run(USER, "penstock-kubernetes --version");
    version.ended_with(0)?;
    let said = &version.stdout;
    assert!(said.starts_with("penstock-kubernetes 0.1.0 (") && said.trim().len() > 30, "{said}");
    let share = "/usr/share/penstock-kubernetes";
    tree.run(USER, &format!("penstock-kubernetes manifests | cmp - {share}/cluster.yaml")).ended_with(0)?;
    let unit = "/usr/lib/systemd/system/penstock-kubernetes.service";
    tree.run(USER, &format!("penstock-kubernetes manifests --unit | cmp - {unit}")).ended_with(0)?;
    tree.run(USER, "gzip -t /usr/share/man/man1/penstock-kubernetes*.gz").ended_with(0)?;
    Ok(())
}

/// The plugin of containers, where their runtimes look for it.
fn plugs_in(tree: &Tree) -> Outcome {
    let line = "echo '{\"cniVersion\": \"1.0.0\"}' | CNI_COMMAND=VERSION /usr/lib/cni/penstock-cni";
    let run = tree.run("root", line);
    run.ended_with(0)?;
    assert!(run.stdout.contains("supportedVersions"), "{}", run.stdout);
    Ok(())
}

fn judged() -> Outcome {
    let tree = machine("trixie")?;
    let filters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/rpm/rpmlint.toml");
    tree.copy_in(&filters, "/packages/rpmlint.toml")?;
    tree.root_runs(
        "apt-get update -qq && apt-get install -qq -y --no-install-recommends lintian rpm rpmlint zsh fish mandoc >/dev/null 2>&1",
    )?;
    let mut wrong = String::new();
    let mut judge = |line: &str| {
        let run = tree.run(USER, line);
        if run.status != 0 {
            wrong += &format!("`{line}` ended with {}:\n{}{}\n", run.status, run.stdout, run.stderr);
        }
    };
    let packages = |ending: &str| {
        let of_aarch64 = tree.path("/packages/aarch64").exists();
        let of_aarch64 = if of_aarch64 { format!(" /packages/aarch64/*.{ending}") } else { String::new() };
        format!("/packages/*.{ending}{of_aarch64}")
    };
    judge(&format!(
        "lintian --fail-on=error,warning,info --display-info --tag-display-limit=0 {}",
        packages("deb")
    ));
    judge(&format!("rpmlint --strict --config /packages/rpmlint.toml {}", packages("rpm")));

    // As on a machine of Fedora's kin, with what the packages themselves bring and nothing else: no shell for their scriptlets, which
    // `maintainer_scripts.rs` runs.
    let root = "rm -rf /tmp/root && mkdir /tmp/root && rpm --root /tmp/root --initdb && \
                rpm --root /tmp/root --nodeps --noscripts -i /packages/penstock.rpm /packages/penstock-switch.rpm /packages/penstock-kubernetes.rpm";
    tree.root_runs(root)?;
    works(&tree, "/tmp/root/usr")?;
    for shell in [
        "zsh -n /tmp/root/usr/share/zsh/site-functions/_penstock*",
        "for file in /tmp/root/usr/share/fish/vendor_completions.d/*; do fish --no-execute $file || exit 1; done",
        "for file in /tmp/root/usr/share/bash-completion/completions/*; do bash -n $file || exit 1; done",
        "for file in /tmp/root/usr/share/man/man1/*.gz; do mandoc -Tlint -Wwarning $file || exit 1; done",
    ] {
        judge(shell);
    }
    // Only root may change the root.
    tree.root_runs("rpm --root /tmp/root --nodeps --verify penstock penstock-switch penstock-kubernetes")?;
    tree.root_runs(
        "rpm --root /tmp/root --nodeps --noscripts -e penstock penstock-switch penstock-kubernetes",
    )?;
    let left = tree.root_runs("find /tmp/root -path /tmp/root/var -prune -o -type f -print")?.stdout;
    if !left.is_empty() {
        wrong += &format!("the rpms left behind:\n{left}");
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}
