//! What systemd calls the interfaces of VFs (systemd.net-naming-scheme(7), "SR-IOV"): as their PF's, with `v` and the index, in place of
//! the name of the PF's port.

use penstock_model::{InterfaceName, VfIndex};

/// The name of a VF's interface, where it has one that an interface can have.
pub fn of_vf(pf: &InterfaceName, index: VfIndex) -> Option<InterfaceName> {
    format!("{}v{index}", without_port(pf.as_str())).parse().ok()
}

/// Which VF of the PF with this name an interface is, by its name.
pub fn index(vf: &InterfaceName, pf: &str) -> Option<VfIndex> {
    let number = vf.as_str().strip_prefix(without_port(pf))?.strip_prefix('v')?;
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| plain).and_then(VfIndex::new)
}

/// `enp1s0f0` of `enp1s0f0np0`.
fn without_port(pf: &str) -> &str {
    match pf.rsplit_once("np") {
        Some((slot, port)) if !slot.is_empty() && port.parse::<u16>().is_ok() => slot,
        _ => pf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vfs_name_is_its_pfs_with_the_index_and_is_read_again() {
        let name = |text: &str| text.parse::<InterfaceName>().unwrap();
        let seven = VfIndex::new(7).unwrap();
        for (pf, vf) in
            [("enp1s0f0", "enp1s0f0v7"), ("enp1s0f0np0", "enp1s0f0v7"), ("np0", "np0v7"), ("env1", "env1v7")]
        {
            assert_eq!(of_vf(&name(pf), seven), Some(name(vf)));
            assert_eq!(index(&name(vf), pf), Some(seven));
        }
        assert_eq!(of_vf(&name("enp1s0f0abcdefg"), seven), None);
        for (vf, pf) in [
            ("enp1s0f0v", "enp1s0f0"),
            ("enp1s0f0v+1", "enp1s0f0"),
            ("enp2v1", "enp1"),
            ("enp1v99999", "enp1"),
        ] {
            assert_eq!(index(&name(vf), pf), None);
        }
    }
}
