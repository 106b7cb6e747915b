//! Mistakes that many make, known by what the message says.

use crate::diagnostic::Path;

/// What to say on mistakes that many make.
pub(super) fn hint(path: &Path, message: &str) -> Option<String> {
    let last = path.0.last()?.as_str();
    if let Some(word) =
        message.strip_prefix("expected a list, found `").and_then(|rest| rest.strip_suffix('`'))
    {
        return Some(format!("write `[{word}]`"));
    }
    if let Some(word) =
        message.strip_prefix('`').and_then(|rest| rest.strip_suffix("` is not a whole number"))
    {
        return without_unit(last, word);
    }
    if let Some(value) = message.strip_prefix("\"vf:").or_else(|| message.strip_prefix("\"pf:")) {
        let (key, value) = (&message[1..3], value.split('"').next()?);
        return Some(format!("write a space after the colon: `{{{key}: {value}}}`"));
    }
    let hint = match last {
        "nics" if message.ends_with(", found a list") => "give NICs by name: `nics: {NET0: {vfs: 3}}`",
        "guests" if message.ends_with(", found a list") => {
            "give guests by name: `guests: {web: {functions: [NET0#0]}}`"
        }
        "vlan" if message.starts_with("4095 ") => {
            "IEEE 802.1Q reserves 4095; use 1 to 4094, or leave `vlan` out"
        }
        "vfs" if message.contains(" is no number of VFs") => {
            "`penstock scan` shows how many VFs yours can have"
        }
        "address" | "addresses" if message.contains("is not an address") => {
            "write the address with the length of its network: 10.20.31.204/24"
        }
        "gateway" | "via" if message.contains("without a prefix length") => {
            "write the router's address alone: 10.20.31.1"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// What to write for a number with a unit where none is read: `1Gbps` as a rate, `9k` as an MTU.
fn without_unit(key: &str, word: &str) -> Option<String> {
    let unit = word.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = word[..unit].parse().ok()?;
    let factor = match word[unit..].trim_start().chars().next()?.to_ascii_lowercase() {
        'g' => Some(1_000_000_000),
        'm' => Some(1_000_000),
        'k' => Some(1000),
        _ => None,
    };
    let whole = factor.and_then(|factor| number.checked_mul(factor));
    let told = |value: Option<u64>| value.map_or(String::new(), |value| format!(": {value}"));
    match key.replace('-', "_").to_ascii_lowercase().as_str() {
        "mtu" => Some(format!("an MTU is a number of bytes{}", told(whole))),
        key if key.ends_with("rate") => {
            let megabits = whole.filter(|bits| bits % 1_000_000 == 0).map(|bits| bits / 1_000_000);
            Some(format!("a rate is a number of Mbit/s{}", told(megabits)))
        }
        _ => None,
    }
}
