//! The text of a model from what other programs' files say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use penstock_model::{
    MODELINE, Mac, MachineName, NicMatch, VfAttributeKind, VfIndex, VfKey, VfSettings,
    text::one_line,
    yaml::{FlowMapping, flow_list, quoted},
};

use super::{guest::ForeignGuest, nic::ForeignNic};

/// The longest name of a NIC or a guest.
const LONGEST_NAME: usize = 48;

/// A model of these NICs and guests. `from` says what it was made of.
pub fn model(
    from: &str,
    machine: Option<&MachineName>,
    nics: &[(ForeignNic<'_>, Option<NicMatch>)],
    known: &[ForeignGuest],
) -> String {
    let mut out = format!("{MODELINE}\n# By `penstock import`, from {}.\n", one_line(from));
    if let Some(machine) = machine {
        let _ = writeln!(out, "machine: {}", quoted(machine.as_str()));
    }
    out.push_str("nics:\n");
    let mut guests = String::new();
    let (mut names, mut of_guests) = (BTreeSet::new(), BTreeSet::new());
    let mut all_own = Vec::new();
    for (nic, matching) in nics {
        let name = name(&nic.name, &mut names);
        let (defaults, own) = settings(nic, matching.as_ref().and_then(|matching| matching.mac));
        entry(&name, nic, matching.as_ref(), &defaults, &mut out);
        all_own.push((name, own));
    }
    let mut guests_text = String::new();
    for guest in known {
        let _ = writeln!(guests_text, "  {}:", name(&guest.name, &mut of_guests));
        guest.keys.iter().for_each(|(key, value)| {
            let _ = writeln!(guests_text, "    {key}: {value}");
        });
        guests_text.push_str("    functions:\n");
        for (vf, keys) in guest.functions.iter().filter_map(|function| Some((function.vf?, &function.keys))) {
            if let Some((nic, own)) = all_own.get_mut(vf.0) {
                function(nic, vf.1, &own.remove(&vf.1).unwrap_or_default(), keys, &mut guests_text);
            }
        }
    }
    for (name, own) in &mut all_own {
        own.retain(|_, settings| *settings != VfSettings::default());
        if !own.is_empty() {
            guest(name, own, &mut of_guests, &mut guests);
        }
    }
    // What stands for others is in nobody's file: it comes last, and is said to.
    let stands = |indent: &str| {
        format!(
            "{indent}# A model keeps what a VF alone has with the guest that owns the VF. Each of these stands for your guests: name them, and\n\
             {indent}# give each its VFs.\n"
        )
    };
    match (guests_text.is_empty(), guests.is_empty()) {
        (true, true) => {}
        (true, false) => out.extend([stands("").as_str(), "guests:\n", &guests]),
        (false, true) => out.extend(["guests:\n", &guests_text]),
        (false, false) => out.extend(["guests:\n", &guests_text, &stands("  "), &guests]),
    }
    out
}

/// A name of a model for what another program calls so, that no other has.
fn name(text: &str, taken: &mut BTreeSet<String>) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let mut name: String = text.chars().map(word).take(LONGEST_NAME).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        name = format!("nic{name}");
    }
    let mut unique: String = name.chars().take(LONGEST_NAME).collect();
    let mut number = 2;
    while !taken.insert(unique.clone()) {
        let short: String = name.chars().take(LONGEST_NAME - 6).collect();
        unique = format!("{short}-{number}");
        number += 1;
    }
    unique
}

fn entry(
    name: &str,
    nic: &ForeignNic<'_>,
    matching: Option<&NicMatch>,
    defaults: &VfSettings,
    out: &mut String,
) {
    let _ = writeln!(out, "  {name}:");
    match matching {
        Some(matching) => {
            let mut known = FlowMapping::default();
            known.maybe("mac", matching.mac.map(|mac| quoted(&mac.to_string())));
            known.maybe("bdf", matching.bdf.map(|bdf| quoted(&bdf.to_string())));
            known.maybe("driver", matching.driver.as_deref().map(quoted));
            let looked_up = nic.selector.name.as_ref().filter(|_| nic.selector.is_by_name());
            let comment =
                looked_up.map(|name| format!("  # the PF that was called {name}")).unwrap_or_default();
            let _ = writeln!(out, "    match: {}{comment}", known.line());
        }
        None => out.push_str("    # Which PF it is was not found: write `match: {mac: ...}`.\n"),
    }
    if let Some(vfs) = nic.vfs {
        let _ = writeln!(out, "    vfs: {vfs}");
    }
    if let Some(interface) = &nic.interface {
        let _ = writeln!(out, "    interface: {}", quoted(interface.as_str()));
    }
    if let Some(eswitch) = nic.eswitch {
        let _ = writeln!(out, "    eswitch: {}", eswitch.name());
    }
    if let Some(mtu) = nic.mtu {
        let _ = writeln!(out, "    mtu: {mtu}");
    }
    if !nic.addresses.is_empty() {
        let addresses = nic.addresses.iter().map(|address| quoted(&address.to_string()));
        let _ = writeln!(out, "    addresses: {}", flow_list(addresses));
    }
    let defaults = FlowMapping::from(defaults);
    if !defaults.is_empty() {
        let _ = writeln!(out, "    defaults: {}", defaults.line());
    }
    if let Some(driver) = nic.free {
        let _ = writeln!(out, "    free: {{driver: {}}}", driver.name());
    }
}

/// What all VFs of a NIC have, and what is a VF's own beside that. The address that a VF gets anyway is nobody's own.
fn settings(nic: &ForeignNic<'_>, pf: Option<Mac>) -> (VfSettings, BTreeMap<VfIndex, VfSettings>) {
    let mut own = nic.settings.clone();
    let mut defaults = VfSettings::default();
    if own.len() == usize::from(nic.vfs.unwrap_or_default()) {
        // The keys of one attribute travel together.
        for kind in VfAttributeKind::ALL.iter().filter(|kind| **kind != VfKey::Mac.kind()) {
            let keys = || VfKey::ALL.iter().filter(|key| key.kind() == *kind);
            let values = |settings: &VfSettings| keys().map(|key| settings.get(*key)).collect::<Vec<_>>();
            let Some(first) = own.values().next() else { break };
            if own.values().any(|settings| values(settings) != values(first)) {
                continue;
            }
            let mut common = first.clone();
            common.retain(|key, _| key.kind() == *kind);
            defaults = defaults.or(&common);
            own.values_mut().for_each(|settings| keys().for_each(|key| settings.clear(*key)));
        }
    }
    for (index, settings) in &mut own {
        if pf.is_some_and(|pf| settings.mac == Some(Mac::derived(pf, *index))) {
            settings.mac = None;
        }
    }
    (defaults, own)
}

/// A guest that stands for those which own these VFs of a NIC.
fn guest(
    name_of_nic: &str,
    own: &BTreeMap<VfIndex, VfSettings>,
    taken: &mut BTreeSet<String>,
    out: &mut String,
) {
    let short: String = name_of_nic.chars().take(LONGEST_NAME - "-vfs".len()).collect();
    let _ = writeln!(out, "  {}:", name(&format!("{short}-vfs"), taken));
    out.push_str("    functions:\n");
    for (index, settings) in own {
        function(name_of_nic, *index, settings, &[], out);
    }
}

fn function(
    nic: &str,
    index: VfIndex,
    settings: &VfSettings,
    keys: &[(&'static str, String)],
    out: &mut String,
) {
    let mut entry = FlowMapping::default();
    entry.put("vf", quoted(&format!("{nic}#{index}")));
    entry.append(FlowMapping::from(settings));
    keys.iter().for_each(|(key, value)| entry.put(key, value.clone()));
    let _ = writeln!(out, "      - {}", entry.line());
}
