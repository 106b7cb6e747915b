//! Whether AppArmor lets the QEMUs of libvirt write to vDPA devices. libvirt opens one and hands it over; QEMU's own profile has to allow
//! what is written to it all the same (`aa_file_perm`, `security/apparmor/file.c`), and libvirt 11.3 writes no rule for it (`get_files`,
//! `src/security/virt-aa-helper.c`). The kernel says nothing of that to the guest: its NIC is there, and no frame crosses.

use std::time::Duration;

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

/// The line of shell that adds a rule for all QEMUs of libvirt.
pub fn to_add(rule: &str) -> String {
    let directory = OWN_RULES.rsplit_once('/').map_or("", |(directory, _)| directory);
    format!("mkdir -p {directory} && echo '{rule}' >>{OWN_RULES}")
}

/// Names in rules that mean every such device, whatever its number is.
const ANY: [&str; 7] = [
    "/dev/vhost-vdpa-[0-9]*",
    "/dev/vhost-vdpa-*",
    "/dev/vhost-vdpa*",
    "/dev/vhost-*",
    "/dev/vhost*",
    "/dev/*",
    "/dev/**",
];
/// The device of [`SAMPLE`].
const OF_SAMPLE: &str = "/dev/vhost-vdpa-0";

/// What rules (apparmor.d(5)) say of writing to files of these names: that it is allowed, or denied, which is stronger; `None` where
/// there is no such rule.
fn writing(rules: &str, names: &[&str]) -> Option<bool> {
    let mut allowed = None;
    for rule in rules.lines() {
        let rule = rule.split('#').next().unwrap_or_default();
        let words: Vec<&str> = rule.split_whitespace().collect();
        let (denied, words) = match &words[..] {
            ["deny", rest @ ..] | ["audit", "deny", rest @ ..] => (true, rest),
            ["allow" | "audit" | "owner", rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let [name, permissions, ..] = words else { continue };
        let name = name.trim_matches('"');
        // A rule that denies one of them denies what a NIC may get.
        let is_meant = names.contains(&name) || denied && name.starts_with("/dev/vhost-vdpa-");
        if is_meant && permissions.contains('w') {
            if denied {
                return Some(false);
            }
            allowed = Some(true);
        }
    }
    allowed
}

impl Vms {
    /// Fails where libvirt confines its QEMUs by AppArmor, and no rule lets them use vDPA devices.
    pub(super) fn lets_qemu_have_devices(&self, guest: &GuestName) -> Result<(), GuestError> {
        let confined = self
            .virsh
            .confines_by("apparmor", MOMENT)
            .map_err(|source| self.libvirt("ask how it confines QEMU".to_owned(), source))?;
        if !confined {
            return Ok(());
        }
        let files = RULES.into_iter().chain([OWN_RULES]);
        let told: Vec<(&str, Option<bool>)> = files
            .map(|file| {
                let text = files::read_to_string(self.root.path(file)).unwrap_or_default();
                (file, writing(&text, &ANY))
            })
            .collect();
        let why = match told.iter().find(|(_, allowed)| *allowed == Some(false)) {
            Some((file, _)) => format!("{file} denies it, which no other rule can allow"),
            None if told.iter().any(|(_, allowed)| *allowed == Some(true))
                || self.libvirt_writes_a_rule() =>
            {
                return Ok(());
            }
            None => format!(
                "neither {OWN_RULES} nor {} has a rule for all of /dev/vhost-vdpa-*, and libvirt writes none",
                RULES[0]
            ),
        };
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
            asked.is_ok_and(|told| writing(&told.text(), &[&ANY[..], &[OF_SAMPLE]].concat()) == Some(true))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_vdpa_devices_is_found_among_others() {
        for rules in
            [&format!("  # by hand\n  {RULE}\n"), "  /dev/vhost* rw, # all of them\n", "owner /dev/** mrw,\n"]
        {
            assert_eq!(writing(rules, &ANY), Some(true), "{rules}");
        }
        assert_eq!(writing("  \"/dev/vhost-vdpa-0\" rw,\n", &[OF_SAMPLE]), Some(true));
        for rules in [
            "",
            "  \"/dev/vhost-net\" rw,\n",
            "  # /dev/vhost-vdpa-[0-9]* rw,\n",
            // A NIC with VFs gets others, too.
            "  /dev/vhost-vdpa-0 rw,\n",
            "  /dev/vhost-vdpa-* r, # no write\n",
        ] {
            assert_eq!(writing(rules, &ANY), None, "{rules}");
        }
        for rules in ["  deny /dev/vhost-vdpa-0 rw,\n", "/dev/vhost* rw,\naudit deny /dev/vhost-vdpa-* w,\n"]
        {
            assert_eq!(writing(rules, &ANY), Some(false), "{rules}");
        }
    }
}
