//! What packages run when they are installed, upgraded and removed: the scripts of the .debs and the scriptlets of the .rpms, in a directory
//! instead of the root, with a `systemctl` that notes what it is asked.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use penstock_testkit::{binary::Run, script};
use tempfile::TempDir;

const CLAIM: &str = "var/lib/penstock/kubernetes/claims/u-1.json";
const PROGRESS: &str = "var/lib/penstock/kubernetes/rollout/progress.json";
const LATE: &str = "var/lib/penstock/kubernetes/claims/late.json";
const UNIT: &str = "etc/systemd/system/penstock-nics.service";

/// Notes what it is asked; the agent runs where `active` lies beside it. While it is stopped a pod gets a VF where `late` does. As
/// `deb-systemd-invoke` it starts no agent that is not enabled, and none is here.
const SYSTEMCTL: &str = r#"#!/bin/sh
at=$(dirname "$0")
echo "${0##*/} $*" >>"$at/asked"
case " ${0##*/} $* " in
*" list-units "*" penstock-switch@"*) cat "$at/switches" 2>/dev/null ;;
*" is-active "*) if [ -e "$at/active" ]; then echo active; else echo inactive; exit 3; fi ;;
*" stop "*)
    rm -f "$at/active"
    if [ -e "$at/late" ]; then mv "$at/late" "$(dirname "$at")/var/lib/penstock/kubernetes/claims/late.json"; fi
    ;;
" deb-systemd-invoke start "*) ;;
*" start "*) touch "$at/active" ;;
esac
"#;

/// A machine whose root is a directory.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        for directory in ["bin", "run/systemd/system", "var/lib/penstock/kubernetes/claims"] {
            fs::create_dir_all(machine.at(directory)).unwrap();
        }
        for program in ["systemctl", "deb-systemd-invoke"] {
            script::write(machine.at(&format!("bin/{program}")), SYSTEMCTL);
        }
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    /// Runs a script with this argument and, of a .deb, the version before; what it asked systemd.
    fn run(&self, script: &str, arguments: &[&str]) -> (Run, Vec<String>) {
        let root = self.0.path().display().to_string();
        let mut text = script.to_owned();
        for directory in ["etc", "run", "var", "opt", "usr/local"] {
            text = text.replace(&format!(" /{directory}/"), &format!(" @ROOT@/{directory}/"));
            // Whatever is left would be this machine's.
            let left = text.replace(&format!("@ROOT@/{directory}/"), "").contains(&format!("/{directory}/"));
            assert!(!left, "{text}");
        }
        self.write("script", &text.replace("@ROOT@", &root));
        let path = format!("{root}/bin:{}", std::env::var("PATH").unwrap_or_default());
        let output =
            Command::new("sh").arg(self.at("script")).args(arguments).env("PATH", path).output().unwrap();
        let asked = fs::read_to_string(self.at("bin/asked")).unwrap_or_default();
        let _ = fs::remove_file(self.at("bin/asked"));
        let asked = asked
            .lines()
            .map(|line| line.replace("--system ", "").replace("deb-systemd-invoke", "systemctl"));
        (Run::from(output), asked.collect())
    }
}

fn packaging(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn of_deb(script: &str) -> String {
    packaging(&format!("deb/{script}"))
}

/// A scriptlet of the spec; none of them has a macro in it.
fn of_rpm(header: &str) -> String {
    let spec = packaging("rpm/penstock.spec");
    let mut lines = spec.lines().skip_while(|line| *line != header);
    assert_eq!(lines.next(), Some(header));
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with('%')).collect();
    let text = lines.join("\n");
    assert!(!text.contains('%'), "{text}");
    text
}

/// Who removes the agent's package: the script and how it is called.
fn removals() -> [(String, &'static str); 2] {
    [(of_deb("penstock-kubernetes.prerm"), "remove"), (of_rpm("%preun -n penstock-kubernetes"), "0")]
}

/// Who upgrades it.
fn upgrades() -> [(String, [&'static str; 2]); 2] {
    [
        (of_deb("penstock-kubernetes.postinst"), ["configure", "0.0.9-1"]),
        (of_rpm("%postun -n penstock-kubernetes"), ["1", ""]),
    ]
}

#[test]
fn an_agent_whose_vfs_pods_have_is_not_removed_and_runs_on() {
    for (script, argument) in removals() {
        let machine = Machine::new();
        machine.write(CLAIM, "{}");
        machine.write("bin/active", "");
        let (run, asked) = machine.run(&script, &[argument]);
        assert!(run.status == 1 && run.stderr.contains("kubectl drain"), "{}", run.stderr);
        assert_eq!(asked, [""; 0], "nothing was touched");
    }
}

#[test]
fn an_agent_is_not_removed_in_a_roll_out() {
    for (script, argument) in removals() {
        let machine = Machine::new();
        machine.write(PROGRESS, "{}");
        machine.write("bin/active", "");
        let (run, asked) = machine.run(&script, &[argument]);
        assert!(run.status == 1 && run.stderr.contains("roll-out is changing this node"), "{}", run.stderr);
        assert_eq!(asked, [""; 0], "nothing was touched");
    }
}

#[test]
fn a_pod_that_gets_a_vf_just_when_the_agent_is_removed_keeps_it() {
    for (script, argument) in removals() {
        let machine = Machine::new();
        machine.write("bin/active", "");
        machine.write("bin/late", "");
        let (run, asked) = machine.run(&script, &[argument]);
        assert_eq!(run.status, 1, "{asked:?}");
        let service = "penstock-kubernetes.service";
        assert_eq!(asked, ["is-active", "stop", "start"].map(|verb| format!("systemctl {verb} {service}")));
        assert!(machine.at("bin/active").exists(), "it runs on, though it is not enabled");
        // One that did not run is not started.
        fs::remove_file(machine.at("bin/active")).unwrap();
        fs::rename(machine.at(LATE), machine.at("bin/late")).unwrap();
        let (run, asked) = machine.run(&script, &[argument]);
        assert_eq!((run.status, asked.len()), (1, 2), "{asked:?}");
    }
}

#[test]
fn a_switch_that_runs_keeps_its_package_and_an_upgrade_ends_none() {
    let wants = "etc/systemd/system/multi-user.target.wants/penstock-switch@a.service";
    for (script, argument) in
        [(of_deb("penstock-switch.prerm"), "remove"), (of_rpm("%preun -n penstock-switch"), "0")]
    {
        let machine = Machine::new();
        let running = "penstock-switch@a.service loaded active running Embedded switch a\n\
                       penstock-switch@b-c.service loaded activating auto-restart Embedded switch b-c\n";
        machine.write("bin/switches", running);
        let (run, asked) = machine.run(&script, &[argument]);
        let told = "disable --now penstock-switch@a.service penstock-switch@b-c.service\n";
        assert!(run.status == 1 && run.stderr.contains(told), "{}", run.stderr);
        assert_eq!(asked.len(), 1, "it is looked at alone: {asked:?}");
        for upgrade in ["upgrade", "1"] {
            assert_eq!(machine.run(&script, &[upgrade]).0.status, 0, "an upgrade is none");
        }
        fs::remove_file(machine.at("bin/switches")).unwrap();
        assert_eq!(machine.run(&script, &[argument]).0.status, 0);
        machine.write("bin/switches", running);
        fs::remove_dir(machine.at("run/systemd/system")).unwrap();
        assert_eq!(
            machine.run(&script, &[argument]).0.status,
            0,
            "where systemd does not run none of them does"
        );
    }
    let upgrades = [
        (of_deb("penstock-switch.postinst"), ["configure", "0.0.9-1"]),
        (of_rpm("%postun -n penstock-switch"), ["1", ""]),
    ];
    for (script, arguments) in upgrades {
        let (run, asked) = Machine::new().run(&script, &arguments);
        assert_eq!((run.status, asked), (0, vec!["systemctl daemon-reload".to_owned()]), "{}", run.stderr);
    }
    // What was enabled.
    let enabled = Machine::new();
    fs::create_dir_all(enabled.at(wants).parent().unwrap()).unwrap();
    symlink("/usr/lib/systemd/system/penstock-switch@.service", enabled.at(wants)).unwrap();
    let (_, asked) = enabled.run(&of_rpm("%preun -n penstock-switch"), &["0"]);
    assert!(
        asked.contains(&"systemctl --no-reload disable penstock-switch@a.service".to_owned()),
        "{asked:?}"
    );
    enabled.run(&of_deb("penstock-switch.postrm"), &["remove"]);
    assert!(enabled.at(wants).is_symlink(), "only a purge takes it");
    enabled.run(&of_deb("penstock-switch.postrm"), &["purge"]);
    assert!(!enabled.at(wants).is_symlink());
}

/// Lintian's `maintainer-script-calls-systemctl` looks at lines, whether they are a command or text that is shown.
#[test]
fn no_line_of_a_debian_script_begins_with_systemctl() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb");
    let mut seen = 0;
    for entry in fs::read_dir(scripts).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !["postinst", "postrm", "preinst", "prerm"].iter().any(|kind| name.ends_with(kind)) {
            continue;
        }
        seen += 1;
        for line in fs::read_to_string(&path).unwrap().lines() {
            let begins = line.split(';').any(|part| part.trim_start().starts_with("systemctl"));
            assert!(!begins || line.contains("daemon-reload"), "{name}: {line}");
        }
    }
    assert!(seen > 3);
}

#[test]
fn an_agent_without_pods_is_stopped_and_removed() {
    for (script, argument) in removals() {
        let machine = Machine::new();
        machine.write("bin/active", "");
        let (run, asked) = machine.run(&script, &[argument]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(asked.iter().any(|asked| asked.contains(" stop ")), "{asked:?}");
        assert!(!asked.iter().any(|asked| asked.contains(" start ")), "{asked:?}");
    }
    let machine = Machine::new();
    machine.write(CLAIM, "{}");
    let (run, asked) = machine.run(&of_deb("penstock-kubernetes.prerm"), &["upgrade"]);
    assert_eq!((run.status, asked.len()), (0, 0), "{}", run.stderr);
}

#[test]
fn an_upgrade_restarts_the_agent_but_not_in_a_roll_out() {
    for (script, arguments) in upgrades() {
        let machine = Machine::new();
        let (run, asked) = machine.run(&script, &arguments);
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert_eq!(asked, ["systemctl daemon-reload", "systemctl try-restart penstock-kubernetes.service"]);
        machine.write(PROGRESS, "{}");
        let (run, asked) = machine.run(&script, &arguments);
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert_eq!(asked, ["systemctl daemon-reload"]);
        assert!(run.stderr.contains("systemctl try-restart penstock-kubernetes"), "{}", run.stderr);
    }
}

#[test]
fn a_purge_leaves_nothing_of_the_agent() {
    let machine = Machine::new();
    let own = [
        "etc/penstock/kubernetes.token",
        "etc/penstock/kubernetes.kubeconfig",
        "etc/default/penstock-kubernetes",
    ];
    for file in own {
        machine.write(file, "");
    }
    machine.write("etc/default/others", "");
    let wants = machine.at("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    symlink("/usr/lib/systemd/system/penstock-kubernetes.service", wants.join("penstock-kubernetes.service"))
        .unwrap();

    let script = of_deb("penstock-kubernetes.postrm");
    let (run, asked) = machine.run(&script, &["remove"]);
    assert_eq!((run.status, asked), (0, vec!["systemctl daemon-reload".to_owned()]), "{}", run.stderr);
    assert!(own.iter().all(|file| machine.at(file).exists()), "only a purge takes them");
    let (run, asked) = machine.run(&script, &["purge"]);
    assert_eq!((run.status, asked), (0, vec!["systemctl daemon-reload".to_owned()]), "{}", run.stderr);
    assert!(!machine.at("etc/penstock").exists() && !machine.at("var/lib/penstock").exists());
    assert!(
        !machine.at("etc/default/penstock-kubernetes").exists() && machine.at("etc/default/others").exists()
    );
    assert_eq!(fs::read_dir(&wants).unwrap().count(), 0);
    // What penstock itself has there stays.
    machine.write("etc/penstock/model.yaml", "");
    machine.write("var/lib/penstock/runs/1/journal", "");
    machine.run(&script, &["purge"]);
    assert!(
        machine.at("etc/penstock/model.yaml").exists()
            && machine.at("var/lib/penstock/runs/1/journal").exists()
    );
}

/// What a purge takes belongs to another program as well.
#[test]
fn a_purge_keeps_what_another_penstock_may_need() {
    let others = [
        (UNIT, false),
        ("usr/local/bin/penstock", false),
        ("opt/penstock/bin/penstock", false),
        ("opt/penstock/bin/penstock-kubernetes", true),
        (CLAIM, true),
        (PROGRESS, true),
    ];
    for (other, of_agent) in others {
        let machine = Machine::new();
        let kept = ["etc/penstock/model.yaml", "var/lib/penstock/runs/1/journal"];
        kept.iter().for_each(|file| machine.write(file, ""));
        machine.write("var/lib/penstock/kubernetes/claims.lock", "");
        machine.write("etc/penstock/kubernetes.token", "");
        machine.write(other, "");
        let (run, _) = machine.run(&of_deb("penstock-kubernetes.postrm"), &["purge"]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(!machine.at("etc/penstock/kubernetes.token").exists(), "the package's agent alone has that");
        let left = [other, "var/lib/penstock/kubernetes/claims.lock"].map(|file| machine.at(file).exists());
        assert_eq!(left, [true, of_agent], "{other}: {}", run.stderr);
        assert_eq!(run.stderr.contains(other), of_agent, "{}", run.stderr);
        if of_agent && other.starts_with("opt") {
            continue;
        }
        let (run, _) = machine.run(&of_deb("penstock.postrm"), &["purge"]);
        assert!(run.status == 0 && run.stderr.contains(other), "{other}: {}", run.stderr);
        assert!(kept.iter().all(|file| machine.at(file).exists()), "{other}");
    }
    let machine = Machine::new();
    machine.write("etc/penstock/model.yaml", "");
    let (run, _) = machine.run(&of_deb("penstock.postrm"), &["purge"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert!(!machine.at("etc/penstock").exists() && !machine.at("var/lib/penstock").exists());
}

/// As needrestart reads what lies in `/etc/needrestart/conf.d`, and looks for a service among the patterns of `override_rc`: 0 is not to
/// restart it.
#[test]
fn needrestart_leaves_what_outlives_an_upgrade() {
    let read = r#"our %nrconf; local $/; eval <STDIN>; die $@ if $@;
for my $unit (@ARGV) {
    my @of = grep { $unit =~ /$_/ } keys %{$nrconf{override_rc}};
    print "$unit ", @of ? $nrconf{override_rc}{$of[0]} : "restarted", "
";
}"#;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/needrestart.conf");
    let ours = [
        "penstock-switch-a:net0.service",
        "penstock-filters-a:net0.service",
        "penstock-guard-7-4711.service",
        "penstock-kubernetes.service",
        "penstock-guests.service",
    ];
    let mut command = Command::new("perl");
    command.args(["-e", read]).args(ours).arg("cron.service").stdin(fs::File::open(file).unwrap());
    let run = Run::from(command.output().unwrap());
    let wanted: String = ours
        .iter()
        .map(|unit| {
            format!(
                "{unit} 0
"
            )
        })
        .collect();
    assert_eq!(
        (run.stdout, run.stderr),
        (
            format!(
                "{wanted}cron.service restarted
"
            ),
            String::new()
        )
    );
}

#[test]
fn penstock_is_not_removed_while_it_is_started_at_each_boot() {
    for (script, argument) in [(of_deb("penstock.prerm"), "remove"), (of_rpm("%preun"), "0")] {
        let machine = Machine::new();
        assert_eq!(machine.run(&script, &[argument]).0.status, 0);
        machine.write(UNIT, "[Service]\nExecStart=/usr/bin/penstock at-boot nics /etc/penstock/model.yaml\n");
        let (run, _) = machine.run(&script, &[argument]);
        assert!(run.status == 1 && run.stderr.contains("penstock undo --persist"), "{}", run.stderr);
        assert_eq!(machine.run(&script, &["1"]).0.status, 0, "an upgrade is none");
        // One that was unpacked elsewhere does that, and stays.
        machine.write(
            UNIT,
            "[Service]\nExecStart=/usr/local/bin/penstock at-boot nics /etc/penstock/model.yaml\n",
        );
        assert_eq!(machine.run(&script, &[argument]).0.status, 0);
    }
}
