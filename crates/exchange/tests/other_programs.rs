//! What the other programs say of the golden files that are written for them, and Penstock of theirs. Each test is skipped where its program
//! is not there.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use penstock_exchange::{ImportFormat, TunedSource, TunedVerdict, compare_with_tuned, import, read_tuned};
use penstock_model::{
    Inventory, Source,
    audit::{Audit, Change, Remedy, Row},
};
use penstock_testkit::{
    needs::{self, Lack},
    trials::{Outcome, Test, Trials},
    unpacked,
};
use serde_json::{Value, json};

/// netplan's generator, which `netplan generate` runs. It touches nothing but the root directory that it is given.
const NETPLAN: &str = "/usr/libexec/netplan/generate";

/// What TuneD reads profiles with. Of all that its package depends on this needs Python alone.
const TUNED_LOADER: &str = "usr/lib/python3/dist-packages/tuned/profiles/loader.py";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("netplan", || lacking(NETPLAN));
    trials.add(&missing, [("netplan_makes_units_of_an_export_without_a_warning", netplan as Test)]);
    let missing = trials.lacking("libvirt", || {
        let files = ["usr/bin/virsh", "usr/bin/xmllint", "usr/share/libvirt/schemas/domain.rng"];
        unpacked::lacking(unpacked::VIRSH, &files)
            .or_else(|| ["virsh", "xmllint"].into_iter().find_map(lacking_a_library))
    });
    trials.add(
        &missing,
        [
            ("libvirts_schemas_take_domains_networks_and_interfaces", libvirts_schemas as Test),
            ("libvirt_defines_domains_and_says_the_same_of_them", libvirt_defines as Test),
        ],
    );
    let missing = trials.lacking("TuneD", || {
        needs::programs(&["python3"]).or_else(|| unpacked::lacking(unpacked::TUNED, &[TUNED_LOADER]))
    });
    trials.add(
        &missing,
        [
            ("tuned_reads_a_profile_made_of_an_audit_as_it_is_meant", tuned_reads as Test),
            ("the_profiles_of_tuned_are_read", read_of_tuned as Test),
        ],
    );
    trials.run()
}

/// No install step brings these programs: one that is missing is the machine's affair.
fn lacking(program: &str) -> Option<Lack> {
    needs::programs(&[program]).map(|lack| Lack::Machine(lack.to_string()))
}

/// The golden files of a format, but for what is left out.
fn golden(format: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| !path.ends_with("left-out")).collect();
    assert!(!files.is_empty());
    files
}

fn netplan() -> Outcome {
    let root = tempfile::tempdir()?;
    let etc = root.path().join("etc/netplan");
    fs::create_dir_all(&etc)?;
    for file in golden("netplan") {
        let copy = etc.join(file.file_name().unwrap());
        fs::copy(file, &copy)?;
        // netplan warns of files that others may read.
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
    }
    let output = Command::new(NETPLAN).arg("--root-dir").arg(root.path()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let units = root.path().join("run/systemd");
    let link = fs::read_to_string(units.join("network/10-netplan-NET0.link"))?;
    assert!(
        link.contains("PermanentMACAddress=0c:c4:7a:9a:61:ea") && link.contains("MTUBytes=9000"),
        "{link}"
    );
    // The unit that makes VFs waits for both PFs.
    let apply = fs::read_to_string(units.join("system/netplan-sriov-apply.service"))?;
    assert!(["enp1s0f0.device", "enp1s0f1.device"].iter().all(|pf| apply.contains(pf)), "{apply}");
    Ok(())
}

/// What is exported for libvirt.
fn golden_of_libvirt() -> Vec<PathBuf> {
    ["libvirt", "libvirt-domains"].into_iter().flat_map(golden).collect()
}

/// A program of libvirt's tree, with its libraries, and with no settings of somebody's.
fn of_libvirt(program: &str, home: &Path) -> Command {
    let tree = unpacked::tree(unpacked::VIRSH);
    let mut command = Command::new(tree.join("usr/bin").join(program));
    let libraries = tree.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    command.env_clear().env("LD_LIBRARY_PATH", libraries).env("HOME", home).env("LC_ALL", "C.UTF-8");
    command
}

/// Why a program of libvirt's tree is not loaded, if so: the tree has not every library, and those which most machines have are this machine's.
fn lacking_a_library(program: &str) -> Option<Lack> {
    /// What the loader ends with where a library is missing.
    const NOT_LOADED: i32 = 127;
    let output = of_libvirt(program, Path::new("/nonexistent")).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    (output.status.code() == Some(NOT_LOADED))
        .then(|| Lack::Machine(format!("{program} is not loaded: {}", said.trim())))
}

/// As `virt-xml-validate` does with the schemas that are installed.
fn libvirts_schemas() -> Outcome {
    let directory = tempfile::tempdir()?;
    let schemas = unpacked::tree(unpacked::VIRSH).join("usr/share/libvirt/schemas");
    for file in golden_of_libvirt() {
        let text = fs::read_to_string(&file)?;
        // Only a whole domain has a schema.
        let (text, schema) = match (text.contains("<domain"), text.contains("<interface")) {
            (true, _) => (text, "domain"),
            (false, true) => (
                format!(
                    "<domain type='kvm'><name>a</name><memory>65536</memory><os><type>hvm</type></os><devices>{text}</devices></domain>"
                ),
                "domain",
            ),
            (false, false) => (text, "network"),
        };
        let whole = directory.path().join("whole.xml");
        fs::write(&whole, text)?;
        let mut lint = of_libvirt("xmllint", directory.path());
        let schema = schemas.join(format!("{schema}.rng"));
        let output = lint.arg("--noout").arg("--relaxng").arg(schema).arg(&whole).output()?;
        assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// libvirt's test driver reads a domain as QEMU's does, and keeps it in memory: what it prints is imported as the file itself is.
fn libvirt_defines() -> Outcome {
    let directory = tempfile::tempdir()?;
    let machine: Inventory = serde_json::from_str(include_str!("machine.json"))?;
    let model = |text: &str| {
        let read = import(&[Source::new("domain.xml", text)], ImportFormat::Libvirt, Some(&machine));
        read.map(|imported| (imported.model, imported.warnings))
    };
    let mut defined = 0;
    for file in golden_of_libvirt() {
        let (path, text) = (file.to_str().unwrap(), fs::read_to_string(&file)?);
        let Some(name) = path.strip_suffix(".domain.xml").and_then(|path| path.rsplit_once("/penstock-"))
        else {
            continue;
        };
        let mut virsh = of_libvirt("virsh", directory.path());
        // One connection: the test driver's domains go with it.
        let commands = format!("define '{path}'; dumpxml {}", name.1);
        let output = virsh.args(["--quiet", "--connect", "test:///default", &commands]).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{path}: {said}{}", String::from_utf8_lossy(&output.stderr));
        let printed = &said[said.find("<domain").unwrap_or_else(|| panic!("{path}: {said}"))..];
        defined += 1;
        // Without a VF of a NIC nothing is imported.
        match (model(&text), model(printed)) {
            (Ok((wanted, _)), Ok((back, warnings))) => assert_eq!(back, wanted, "{printed}\n{warnings:?}"),
            (Err(_), Err(_)) => assert!(!text.contains("<interface"), "{path}: {printed}"),
            (wanted, back) => panic!("{path}: {wanted:?}, {back:?}: {printed}"),
        }
    }
    assert_eq!(defined, 5);
    Ok(())
}

/// Loads a profile as `tuned` does, and prints its sections and their options.
const LOAD: &str = r#"
import json, sys
tree, directory = sys.argv[1:]
sys.path.insert(0, tree + "/usr/lib/python3/dist-packages")
from tuned import profiles
locator = profiles.locator.Locator([directory, tree + "/usr/lib/tuned"])
loader = profiles.loader.Loader(
    locator, profiles.factory.Factory(), profiles.merger.Merger(), None, profiles.variables.Variables())
units = loader.load("penstock").units
print(json.dumps({name: dict(unit.options) for name, unit in units.items()}))
"#;

fn tuned_reads() -> Outcome {
    let directory = tempfile::tempdir()?;
    let profile = directory.path().join("penstock");
    fs::create_dir(&profile)?;
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tuned/tuned.conf");
    fs::copy(golden, profile.join("tuned.conf"))?;
    let mut python = Command::new("python3");
    python.args(["-B", "-c", LOAD]).arg(unpacked::tree(unpacked::TUNED)).arg(directory.path());
    let output = python.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout)?;
    let wanted = json!({
        "bootloader": {"cmdline_penstock": "+isolcpus=managed_irq,domain,2-7 nosoftlockup"},
        "irqbalance": {"banned_cpus": "2-7"},
        "modules": {"kvm": "kvmclock_periodic_sync=0 nx_huge_pages=never"},
        "service": {"service.fstrim.timer": "stop,disable", "service.ksmtuned": "stop,disable"},
        "sysctl": {"net.ipv4.conf.eth0/5.rp_filter": "1", "vm.stat_interval": "10"},
        "sysfs": {"/sys/kernel/rcu_normal": "1", "/sys/module/pcie_aspm/parameters/policy": "performance"},
        "vm": {"transparent_hugepages": "never"},
    });
    assert_eq!(read, wanted);
    Ok(())
}

/// A row of an audit that is put right this way.
fn failed(way: Remedy) -> Row {
    let row = json!({
        "rule": "a", "layer": "kernel", "subject": "machine", "verdict": "fail", "read": "", "wanted": "", "why": "", "price": null,
        "ways": [way], "change": null, "source": "", "needs_root": false,
    });
    serde_json::from_value(row).unwrap()
}

fn read_of_tuned() -> Outcome {
    let all = unpacked::tree(unpacked::TUNED).join("usr/lib/tuned");
    // They are there since TuneD 2.23.
    let newer = all.join("profiles");
    let profiles = if newer.is_dir() { newer } else { all };
    let conf = |name: &str| fs::read_to_string(profiles.join(name).join("tuned.conf"));
    let others = |source: TunedSource<'_>| match source {
        TunedSource::Profile(name) => conf(name).map_err(|error| format!("{name}: {error}")),
        TunedSource::Variables(path) => Err(format!("{path} is left out")),
    };
    let mut read = 0;
    for entry in fs::read_dir(&profiles)? {
        let name = entry?.file_name().into_string().unwrap();
        let Ok(text) = conf(&name) else { continue };
        read_tuned(&text, &others).unwrap_or_else(|why| panic!("{name}: {why}"));
        read += 1;
    }
    assert!(read > 20, "{read}");
    let realtime = read_tuned(&conf("realtime-virtual-host")?, &others)?;
    let wants = |path: &str, value: &str| {
        let change = Change::Write { path: path.to_owned(), value: value.to_owned() };
        let remedy = Remedy { changes: vec![change], beware: None };
        let row = failed(remedy);
        let found = compare_with_tuned(&Audit { rows: vec![row], ..Audit::default() }, &realtime);
        found.rows[0].verdict
    };
    assert_eq!(wants("/sys/kernel/mm/ksm/run", "2"), TunedVerdict::Sets);
    assert_eq!(wants("/proc/sys/kernel/sched_rt_runtime_us", "-1"), TunedVerdict::Sets);
    assert_eq!(wants("/sys/devices/virtual/workqueue/writeback/cpumask", "1"), TunedVerdict::Computes);
    Ok(())
}
