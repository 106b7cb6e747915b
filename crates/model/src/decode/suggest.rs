//! What is meant by a key or a word that is not known.

use crate::spellings::own_spelling;

/// Words that people write first, the key that stands for them where it is known, and what to write if more than the key.
const FIRST_WORDS: [(&[&str], &str, Option<&str>); 17] = [
    // In a function.
    (&["ip", "ips", "ipv4", "ipv6", "addr", "ip_address", "ipaddr", "cidr"], "address", None),
    (&["gw", "router", "default_gateway"], "gateway", None),
    (&["spoof", "antispoof", "anti_spoof", "spoofing"], "spoofchk", None),
    (&["rate", "tx_rate", "bandwidth"], "max_tx_rate", None),
    // In a guest.
    (&["vfs", "interfaces", "networks"], "functions", Some("`functions`, like [NET0#0]")),
    (
        &["disk", "image", "disks"],
        "boot",
        Some("`boot: {disk: PATH}` of a VM, or `root: DIRECTORY` of a container"),
    ),
    (&["rootfs"], "root", None),
    (&["type"], "kind", None),
    (&["mem", "ram"], "memory", None),
    (&["cores"], "cpus", None),
    (&["cpuset", "affinity"], "pin", None),
    (&["nameservers", "resolvers"], "dns", None),
    (&["depends_on", "requires"], "after", None),
    (&["command", "cmd", "entrypoint"], "init", None),
    // In a NIC.
    (&["pci", "bdf", "pci_address"], "match", Some("`match: {bdf: ...}`")),
    // At the top.
    (&["containers"], "guests", None),
    (&["vms", "virtual_machines"], "guests", Some("`guests`, each of them with `kind: vm`")),
];

/// The same of words that are a key's value.
const FIRST_VALUES: [(&[&str], &str); 2] = [
    (&["docker", "lxc", "podman", "oci"], "container"),
    (&["qemu", "kvm", "libvirt", "virtual-machine"], "vm"),
];

/// What to say of a key that is none of `known`.
pub(super) fn key(key: &str, known: &'static [&'static str]) -> String {
    if let Some((before, value)) = key.split_once(':')
        && known.contains(&before)
    {
        return format!("write a space after the colon: `{before}: {}`", value.trim());
    }
    let written = plain(key);
    let first = FIRST_WORDS
        .iter()
        .find(|(words, meant, _)| words.contains(&written.as_str()) && known.contains(meant))
        // A NIC of a guest's own has `functions` of another form.
        .filter(|(_, meant, _)| *meant != "functions" || known.contains(&"kind"));
    if let Some((_, meant, more)) = first {
        return match more {
            Some(more) => format!("did you mean {more}?"),
            None => format!("did you mean `{meant}`?"),
        };
    }
    match nearest(key, spelled(known)).or_else(|| nearest(key, known.iter().copied())) {
        Some(near) => format!("did you mean `{}`?", own_spelling(near, known)),
        None => format!("expected one of: {}", quoted(spelled(known))),
    }
}

/// What to say of a word that is none of `known`.
pub(super) fn word(word: &str, known: &'static [&'static str]) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    let first =
        FIRST_VALUES.iter().find(|(words, meant)| words.contains(&lower.as_str()) && known.contains(meant));
    let meant = first.map(|(_, meant)| *meant).or_else(|| nearest(word, known.iter().copied()));
    meant.map(|meant| format!("did you mean `{meant}`?"))
}

/// The keys that are known, without the spellings of other tools that are read too.
pub(super) fn spelled(known: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    known.iter().copied().filter(|key| own_spelling(key, known) == *key)
}

/// As a list between backquotes.
pub(super) fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn plain(text: &str) -> String {
    text.to_ascii_lowercase().replace('-', "_")
}

/// The one word of `known` that `text` is a slip of the pen for; none when two are as near.
pub(crate) fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Words that are looked at, for a file may have very many names.
    const MOST: usize = 200;
    if text.len() > 64 {
        return None;
    }
    let wanted = plain(text);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .take(MOST)
        .map(|word| (strsim::damerau_levenshtein(&wanted, &plain(word)), word))
        .filter(|(distance, word)| *distance <= 1.max(word.len() / 3) && *distance < word.len())
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    match near.as_slice() {
        [(first, _), (second, _), ..] if first == second => None,
        [(_, word), ..] => Some(*word),
        [] => None,
    }
}
