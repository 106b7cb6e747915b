//! Whether AppArmor lets the QEMUs of libvirt write to vDPA devices. libvirt opens one and hands it over; QEMU's own profile has to allow
//! what is written to it all the same (`aa_file_perm`, `security/apparmor/file.c`), and libvirt 11.3 writes no rule for it (`get_files`,
//! `src/security/virt-aa-helper.c`). The kernel says nothing of that to the guest: its NIC is there, and no frame crosses.

use std::{path::PathBuf, time::Duration};

use penstock_host::{Command, files};
use penstock_model::GuestName;

use super::Vms;
use crate::error::GuestError;

/// The rule that QEMU needs.
pub const RULE: &str = "/dev/vhost-vdpa-[0-9]* rw,";
/// Where an administrator's own rules for all QEMUs of libvirt are. libvirt reads it anew for each VM.
pub const OWN_RULES: &str = "/etc/apparmor.d/local/abstractions/libvirt-qemu";
/// Where other rules for all of them are.
const RULES: [&str; 2] =
    ["/etc/apparmor.d/abstractions/libvirt-qemu", "/etc/apparmor.d/libvirt/TEMPLATE.qemu"];
/// What writes a VM's own rules, wherever distributions have it.
const HELPERS: [&str; 3] =
    ["/usr/lib/libvirt/virt-aa-helper", "/usr/libexec/virt-aa-helper", "/usr/libexec/libvirt/virt-aa-helper"];
/// A VM with a vDPA device, of which that program says its rules.
const SAMPLE: &str = "<domain type='kvm'><name>penstock-vdpa</name><uuid>UUID</uuid><memory unit='MiB'>64</memory>\
    <os><type arch='x86_64' machine='q35'>hvm</type></os><devices><interface type='vdpa'>\
    <source dev='/dev/vhost-vdpa-0'/></interface></devices></domain>";
/// No VM has it.
const UUID: &str = "00000000-0000-4000-8000-70656e73746f";
/// How long libvirt and its programs may take.
const MOMENT: Duration = Duration::from_secs(30);

/// Whether there is a rule that lets QEMU write to such a device.
fn allows(rules: &str) -> bool {
    let rules =
        rules.lines().map(str::trim).filter(|line| !line.starts_with('#') && !line.starts_with("deny"));
    let mut words = rules.map(|line| line.trim_start_matches('"'));
    words.any(|line| {
        ["/dev/vhost-vdpa-", "/dev/vhost-*", "/dev/vhost*", "/dev/*", "/dev/**"]
            .iter()
            .any(|path| line.starts_with(path) && line.contains('w'))
    })
}

impl Vms {
    /// Fails where libvirt confines its QEMUs by AppArmor, and no rule lets them use vDPA devices.
    pub(super) fn lets_qemu_have_devices(&self, guest: &GuestName) -> Result<(), GuestError> {
        let confined = self
            .virsh
            .confines_by("apparmor", MOMENT)
            .map_err(|source| self.libvirt("ask how it confines QEMU".to_owned(), source))?;
        let rules = RULES.iter().chain([&OWN_RULES]).map(|path| self.root.path(path));
        let written = |path: PathBuf| files::read_to_string(path).is_ok_and(|text| allows(&text));
        if !confined || rules.into_iter().any(written) || self.libvirt_writes_a_rule() {
            return Ok(());
        }
        let why = format!(
            "neither {OWN_RULES} nor {} has a rule for /dev/vhost-vdpa-*, and libvirt writes none",
            RULES[0]
        );
        Err(GuestError::NoVdpaRule { guest: guest.clone(), why })
    }

    /// Whether libvirt lets a QEMU use the vDPA devices of its domain; the program that would write the rules is asked, and writes nothing.
    fn libvirt_writes_a_rule(&self) -> bool {
        let helper = HELPERS.iter().map(|path| self.root.path(path)).find(|path| files::exists(path));
        let uuid = format!("libvirt-{UUID}");
        helper.is_some_and(|helper| {
            let asked = Command::new(helper)
                .args(["--dryrun", "--replace", "--uuid", &uuid])
                .input(SAMPLE.replace("UUID", UUID))
                .deadline(MOMENT)
                .succeed();
            asked.is_ok_and(|told| allows(&told.text()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_vdpa_devices_is_found_among_others() {
        assert!(allows(&format!("  # by hand\n  {RULE}\n")));
        assert!(allows("  \"/dev/vhost-vdpa-3\" rw,\n"));
        assert!(allows("  /dev/vhost* rw,\n"));
        for rules in [
            "",
            "  \"/dev/vhost-net\" rw,\n",
            "  # /dev/vhost-vdpa-[0-9]* rw,\n",
            "  deny /dev/vhost-vdpa-0 rw,\n",
            "  /dev/vhost-vdpa-* r,\n",
        ] {
            assert!(!allows(rules), "{rules}");
        }
    }
}
