//! Keys of a model that are read in other spellings too.

use crate::VfKey;

/// Keys beside those of VF attributes: the type in the schema, the key, and its other spellings.
pub(crate) const ALIASES: [(&str, &str, &[&str]); 8] = [
    ("TenantNic", "mac", &["mac-address"]),
    ("Nic", "vfs", &["numVfs", "virtual-function-count"]),
    ("Nic", "eswitch", &["eSwitchMode", "embedded-switch-mode"]),
    ("Nic", "externally_managed", &["externallyManaged"]),
    ("Function", "interface", &["name"]),
    ("Function", "egress_rate", &["egressRate", "egress-rate"]),
    ("Function", "ingress_rate", &["ingressRate", "ingress-rate"]),
    ("VlanProtocol", "", &["802.1q", "802.1AD"]),
];

/// The key that `spelling` is read as among `known`: itself, unless it is another spelling of one of them.
pub(crate) fn own_spelling<'a>(spelling: &'a str, known: &[&'a str]) -> &'a str {
    let of_vfs = VfKey::ALL.iter().map(|key| (key.name(), key.aliases()));
    let others = ALIASES.iter().map(|(_, key, spellings)| (*key, *spellings));
    let meant = |(key, spellings): (&'static str, &'static [&'static str])| {
        known.iter().copied().find(|known| *known == key && spellings.contains(&spelling))
    };
    of_vfs.chain(others).find_map(meant).unwrap_or(spelling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_spelling_is_one_only_beside_its_key() {
        assert_eq!(own_spelling("numVfs", &["vfs", "numVfs"]), "vfs");
        assert_eq!(own_spelling("vlan-id", &["vlan", "vlan-id"]), "vlan");
        assert_eq!(own_spelling("name", &["name", "interface"]), "interface");
        assert_eq!(own_spelling("name", &["name", "path"]), "name");
        assert_eq!(own_spelling("vfs", &["vfs", "numVfs"]), "vfs");
    }
}
