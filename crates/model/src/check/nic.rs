//! NICs by themselves.

use std::{collections::HashMap, hash::Hash};

use super::Subject;
use crate::{
    NicMatch, NicName, VfIndex, VfKey, VlanProtocol, WantedEswitch,
    decode::nearest,
    diagnostic::{Diagnostic, Path},
    vf::VfSettings,
};

/// What `best_effort` and `required` may name besides the keys of VF attributes, which a driver or device may not know how to carry
/// out: what `verify` looks at too.
const MORE_BEST_EFFORT: [&str; 8] =
    ["mtu", "loopback", "eswitch", "interface", "addresses", "driver", "link", "speed"];

/// All that `best_effort` and `required` may name.
fn best_effort_words() -> impl Iterator<Item = &'static str> {
    VfKey::ALL.iter().map(|key| key.name()).chain(MORE_BEST_EFFORT)
}

/// Whether `best_effort` and `required` may name it.
pub(super) fn is_attribute(word: &str) -> bool {
    best_effort_words().any(|known| known == word)
}

pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    let messages = &mut *subject.messages;
    // A host without any may have guests whose NICs its kernel or QEMU makes.
    let made = model.guests.values().any(|guest| !guest.nics.is_empty());
    if model.nics.is_empty() && model.drives.is_empty() && !made && messages.is_empty() {
        messages.push(
            Diagnostic::error(Path::of(["nics"]), "the model has no NIC and no drive")
                .at_key()
                .with_hint("name one, like `nics: {NET0: {vfs: 7}}`"),
        );
    }
    let vfs: u64 = model.nics.values().map(|nic| u64::from(nic.vfs)).sum();
    if vfs > super::MAX_VFS {
        messages.push(Diagnostic::error(
            Path::of(["nics"]),
            format!("the NICs have {vfs} VFs together, and a machine has room for {}", super::MAX_VFS),
        ));
    }
    for (name, nic) in &model.nics {
        let path = Path::of(["nics", name.as_str()]);
        if super::full(messages) {
            break;
        }
        if nic.vfs > VfIndex::MAX + 1 {
            messages.push(Diagnostic::error(
                path.join("vfs"),
                format!("{} VFs are more than any NIC has: at most {}", nic.vfs, VfIndex::MAX + 1),
            ));
        }
        if nic.matching.driver.as_ref().is_some_and(|driver| {
            driver.is_empty() || !driver.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
        }) {
            messages.push(
                Diagnostic::error(path.join("match").join("driver"), "this is no driver's name")
                    .with_hint("`penstock scan` shows each PF's driver"),
            );
        }
        if let Some(port) = nic.matching.port.filter(|port| *port > 7) {
            messages.push(
                Diagnostic::error(
                    path.join("match").join("port"),
                    format!("a card has the ports 0 to 7, and this is {port}"),
                )
                .with_hint("it is the last digit of the PF's PCI address"),
            );
        }
        if nic.eswitch == Some(WantedEswitch::Switchdev) && nic.loopback.is_some() {
            messages.push(
                Diagnostic::error(
                    path.join("loopback"),
                    format!("{name} has no loopback in switchdev mode: the host's rules say where frames go"),
                )
                .at_key()
                .with_related(path.join("eswitch"), "said here")
                .with_hint("leave `loopback` out, or write `eswitch: legacy`"),
            );
        }
        check_defaults(&nic.vf_defaults, &path.join("defaults"), messages);
    }
    let nics = || model.nics.iter();
    same(
        nics().filter_map(|(name, nic)| Some((name, nic.matching.mac?))),
        &["match", "mac"],
        "match the same device: both have the MAC address",
        messages,
    );
    same(
        nics().filter_map(|(name, nic)| Some((name, nic.matching.bdf?))),
        &["match", "bdf"],
        "match the same device: both have the PCI address",
        messages,
    );
    same(
        nics().filter(|(_, nic)| nic.matching.serial.is_some() || nic.matching.slot.is_some()).filter_map(
            |(name, nic)| match nic.matching {
                // Of these two it was said above.
                NicMatch { mac: Some(_), .. } | NicMatch { bdf: Some(_), .. } => None,
                ref matching => Some((name, matching.words().join(", "))),
            },
        ),
        &["match"],
        "match the same device: both have",
        messages,
    );
    same(
        nics().filter_map(|(name, nic)| Some((name, nic.interface.clone()?))),
        &["interface"],
        "cannot have the same interface name,",
        messages,
    );
}

/// Refuses a value that two NICs have.
fn same<'a, T: Hash + Eq + ToString>(
    values: impl Iterator<Item = (&'a NicName, T)>,
    keys: &[&str],
    what: &str,
    messages: &mut Vec<Diagnostic>,
) {
    let place = |name: &NicName| Path::of(["nics", name.as_str()].iter().chain(keys));
    let mut first: HashMap<T, &NicName> = HashMap::new();
    for (name, value) in values {
        if let Some(other) = first.get(&value) {
            let text = format!("{other} and {name} {what} {}", value.to_string());
            messages
                .push(Diagnostic::error(place(name), text).with_related(place(other), "first given here"));
        } else {
            first.insert(value, name);
        }
    }
}

/// `words` are those that the entry at `path` has under `key`.
pub(super) fn check_words<'a>(
    key: &str,
    words: impl IntoIterator<Item = &'a String>,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    for word in words {
        if super::full(messages) {
            break;
        }
        if !is_attribute(word) {
            let hint = match nearest(word, best_effort_words()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    format!("expected one of: {}", best_effort_words().collect::<Vec<_>>().join(", "))
                }
            };
            let text = format!("`{key}` names the attribute {}, which is none", crate::tree::shown(word));
            messages.push(Diagnostic::error(path.join(key), text).with_hint(hint));
        }
    }
}

fn check_defaults(defaults: &VfSettings, path: &Path, messages: &mut Vec<Diagnostic>) {
    if defaults.mac.is_some() {
        messages.push(
            Diagnostic::error(path.join("mac"), "all VFs of the NIC would get this one MAC address")
                .at_key()
                .with_hint(
                    "leave it out: each VF gets one derived from the PF's; or give it at one function",
                ),
        );
    }
    check_vlan(defaults, defaults, path, messages);
    check_rates(defaults, path, path.join("max_tx_rate"), messages);
}

/// A tag's priority and protocol say nothing without a tag. `written` is what stands at `path`, `settings` what comes
/// of it.
pub(super) fn check_vlan(
    written: &VfSettings,
    settings: &VfSettings,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    // What stands beside `vlan: 0` and asks for no tag, either, says it twice and is right.
    let (outside, why) = match settings.vlan {
        Some(vlan) if vlan.get() != 0 => return,
        Some(_) => (true, "`vlan: 0` asks for none"),
        None => (false, "there is no `vlan`"),
    };
    let qos = written.qos.is_some_and(|qos| !outside || qos.get() != 0);
    let protocol = written.vlan_proto.is_some_and(|protocol| !outside || protocol != VlanProtocol::Dot1q);
    for (key, _) in [("qos", qos), ("vlan_proto", protocol)].into_iter().filter(|(_, given)| *given) {
        messages.push(
            Diagnostic::error(path.join(key), format!("`{key}` is of a port VLAN's tag, and {why}"))
                .at_key()
                .with_hint("give a `vlan` of 1 to 4094"),
        );
    }
}

/// A guaranteed rate above the limit can never be had.
/// `limit` is where it stands.
pub(super) fn check_rates(settings: &VfSettings, path: &Path, limit: Path, messages: &mut Vec<Diagnostic>) {
    if let (Some(min), Some(max)) = (settings.min_tx_rate, settings.max_tx_rate)
        && max.0 != 0
        && min > max
    {
        messages.push(
            Diagnostic::error(
                path.join("min_tx_rate"),
                format!("the guaranteed rate, {min}, is above the limit, {max}"),
            )
            .with_related(limit, "the limit")
            .with_hint("lower `min_tx_rate` or raise `max_tx_rate`; a limit of 0 is none"),
        );
    }
}
