//! What the other programs say of the golden files that are written for them. Each test is skipped where its program is not installed.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use penstock_testkit::{
    needs::{self, Lack},
    trials::{Outcome, Test, Trials},
};

/// netplan's generator, which `netplan generate` runs. It touches nothing but the root directory that it is given.
const NETPLAN: &str = "/usr/libexec/netplan/generate";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("netplan", || lacking(NETPLAN));
    trials.add(&missing, [("netplan_makes_units_of_an_export_without_a_warning", netplan as Test)]);
    let missing = trials.lacking("libvirt", || lacking("virt-xml-validate"));
    trials.add(&missing, [("libvirts_schemas_take_networks_and_interfaces", libvirt as Test)]);
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

fn libvirt() -> Outcome {
    let directory = tempfile::tempdir()?;
    for file in golden("libvirt") {
        let text = fs::read_to_string(&file)?;
        // Only a whole domain has a schema.
        let (text, schema) = match text.contains("<interface") {
            true => (
                format!(
                    "<domain type='kvm'><name>a</name><memory>65536</memory><os><type>hvm</type></os><devices>{text}</devices></domain>"
                ),
                "domain",
            ),
            false => (text, "network"),
        };
        let whole = directory.path().join("whole.xml");
        fs::write(&whole, text)?;
        let output = Command::new("virt-xml-validate").arg(&whole).arg(schema).output()?;
        assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
