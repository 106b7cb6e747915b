//! What a VM is known by to what runs in it and to who looks from outside.

use penstock_host::{Root, files};
use penstock_model::{GuestName, digest};

/// The UUID of the machine that a VM is (SMBIOS, System Information; `/sys/class/dmi/id/product_uuid` inside): the same at each start on
/// one host, where libvirt would make up another. By it systemd, DHCP clients and licences know a machine again. RFC 9562, version 8:
/// made of the host's machine-id and the guest's name.
///
/// `None` where the host has no `/etc/machine-id`: guests of two such hosts would have the same.
pub(super) fn uuid(root: &Root, guest: &GuestName) -> Option<String> {
    let host = files::read_to_string(root.path("/etc/machine-id")).ok()?;
    let host = host.trim();
    let is_id = host.len() == 32 && host.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| of(host, guest))
}

fn of(host: &str, guest: &GuestName) -> String {
    let digest = digest::sha256(format!("penstock VM\n{host}\n{guest}"));
    // Six bits say which kind of UUID it is: the version and the variant.
    let variant = match digest.as_bytes()[16] {
        b'0' | b'4' | b'8' | b'c' => '8',
        b'1' | b'5' | b'9' | b'd' => '9',
        b'2' | b'6' | b'a' | b'e' => 'a',
        _ => 'b',
    };
    format!(
        "{}-{}-8{}-{variant}{}-{}",
        &digest[..8],
        &digest[8..12],
        &digest[13..16],
        &digest[17..20],
        &digest[20..32]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_has_one_uuid_on_one_host_and_another_on_another() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let guest: GuestName = "rt-2".parse().unwrap();
        assert_eq!(uuid(&root, &guest), None, "the host has no id");
        let tell = |id: &str| {
            files::create_dir_all(root.path("/etc")).unwrap();
            files::write_atomic(root.path("/etc/machine-id"), format!("{id}\n")).unwrap();
            uuid(&root, &guest)
        };
        assert_eq!(tell("uninitialized"), None);
        let here = tell("4d2b6c1f0a9e4f7c8b3a5d6e7f809112").unwrap();
        assert_eq!(Some(&here), uuid(&root, &guest).as_ref());
        assert_ne!(Some(&here), uuid(&root, &"rt-3".parse().unwrap()).as_ref());
        assert_ne!(Some(&here), tell("4d2b6c1f0a9e4f7c8b3a5d6e7f809113").as_ref());
        let parts: Vec<&str> = here.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{here}");
        assert!(parts[2].starts_with('8') && parts[3].starts_with(['8', '9', 'a', 'b']), "{here}");
    }
}
