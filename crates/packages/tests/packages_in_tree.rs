//! The packages as machines meet them: bare trees of Debian where they are installed, upgraded and removed, and where Debian's own
//! programs judge them. `make packages-test` makes them and runs these.
#![allow(clippy::disallowed_methods)]

mod published;

use std::{collections::BTreeSet, env, fs, path::Path, process::ExitCode};

use penstock_testkit::{
    needs::Lack,
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
    let missing = trials.lacking("packages", || made().or_else(tree::lacking));
    let tests: [(&str, Test); 3] = [
        ("debian_and_rpm_linters_and_shells_are_content_in_tree", judged),
        ("packages_are_installed_upgraded_and_gone_on_debian_12_in_tree", || installed("bookworm")),
        ("packages_are_installed_upgraded_and_gone_on_debian_13_in_tree", || installed("trixie")),
    ];
    trials.add(&missing, tests);
    trials.run()
}

/// A bare tree with the packages in `/packages`, each by its name without version: `penstock.deb`, `penstock-switch.rpm`.
fn machine(release: &str) -> Result<Tree, String> {
    let tree = Tree::bare(release)?;
    let directory = published::directory().ok_or("no packages")?;
    let mut copied = 0;
    for entry in fs::read_dir(&directory).map_err(|error| error.to_string())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let ending = match () {
            () if name.ends_with("_amd64.deb") => "deb",
            () if name.ends_with(".x86_64.rpm") => "rpm",
            () if name.ends_with("x86_64-unknown-linux-gnu.tar.gz") => "tar.gz",
            () => continue,
        };
        let others = ["penstock-switch", "penstock-kubernetes"];
        let program = others.into_iter().find(|program| name.starts_with(program)).unwrap_or("penstock");
        tree.copy_in(&entry.path(), &format!("/packages/{program}.{ending}"))?;
        copied += 1;
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
    assert!(version.stdout.starts_with("penstock-kubernetes 0.1.0"), "{}", version.stdout);
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
    judge("lintian --fail-on=error,warning,info --display-info --tag-display-limit=0 /packages/*.deb");
    judge("rpmlint --strict --config /packages/rpmlint.toml /packages/*.rpm");

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
