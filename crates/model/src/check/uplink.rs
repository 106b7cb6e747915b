//! Where the embedded switches of NICs that VMs own lead to: PFs and VFs of the model, which stay on the host for them, and
//! interfaces of the host.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::{Subject, function, nic, unusable};
use crate::{
    DataPath, FunctionName, InterfaceName, LinkState, Nic, NicName, TenantNic, Uplink, UplinkVf, VfSettings,
    diagnostic::{Diagnostic, Path},
    document::UplinkEntry,
};

/// Where the uplink of a NIC that a VM owns stands.
pub(super) fn path(uplink: UplinkVf<'_>) -> Path {
    Path::of(["guests", uplink.guest.as_str(), "nics", uplink.nic.as_str(), "uplink"])
}

/// Where an uplink leads to, and what the PF's driver is to keep for it if that is a VF.
pub(super) fn lead_out(
    entry: UplinkEntry,
    nics: &IndexMap<NicName, Nic>,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> (Option<Uplink>, Option<VfSettings>) {
    let Some(name) = entry.function().cloned() else { return (None, None) };
    let written = match entry {
        UplinkEntry::Name(_) | UplinkEntry::Spoiled => None,
        UplinkEntry::Settings(document) => Some(document.settings()),
    };
    let at = if written.is_some() { path.join("vf") } else { path.clone() };
    match (nics.get(&name.nic), name.vf) {
        (Some(found), Some(index)) => {
            if index.get() >= found.vfs {
                messages.push(function::past_the_last(&name, found.vfs, index.get(), at));
                return (None, None);
            }
            let settings = virtual_function(&name, written, found, path, messages);
            (Some(Uplink::Function(name)), Some(settings))
        }
        (Some(_), None) if written.is_some() => {
            messages.push(Diagnostic::error(at, format!("{name} is a PF")).with_hint(format!(
                "write `uplink: {name}` for the PF, which keeps no VF attributes; or a VF like `vf: {name}#0`"
            )));
            (None, None)
        }
        (Some(_), None) => (Some(Uplink::Function(name)), None),
        (None, vf) => match (vf, name.nic.as_str().parse::<InterfaceName>()) {
            (None, Ok(interface)) if written.is_none() => (Some(Uplink::Interface(interface)), None),
            _ => {
                let hint = function::nic_hint(&name.nic, nics.keys());
                let text = format!("an uplink leads to {name}, and there is no NIC {}", name.nic);
                messages.push(Diagnostic::error(at, text).with_hint(hint));
                (None, None)
            }
        },
    }
}

/// What the PF's driver is to keep for a VF that is an uplink. A VF gets frames for its own address alone, and may send from no other,
/// unless it is told otherwise: those inside the VM have addresses of their own.
fn virtual_function(
    name: &FunctionName,
    written: Option<VfSettings>,
    nic: &Nic,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> VfSettings {
    let long = format!("`uplink: {{vf: {name}, trust: on, spoofchk: off}}`");
    let given = written.clone().unwrap_or_default();
    let settings = given.over(&nic.vf_defaults);
    if nic.externally_managed {
        let text = format!(
            "{name} would need `trust: on` and `spoofchk: off` to be an uplink, and {} is externally managed",
            name.nic
        );
        let related = Path::of(["nics", name.nic.as_str(), "externally_managed"]);
        messages.push(
            Diagnostic::error(path.clone(), text).with_related(related, "said here").with_hint(format!(
                "lead it to the PF, `uplink: {}`; or remove `externally_managed`",
                name.nic
            )),
        );
        return settings;
    }
    let needs = [
        ("trust", "on", settings.trust == Some(true), "gets frames for its own address alone", given.trust),
        (
            "spoofchk",
            "off",
            settings.spoofchk == Some(false),
            "may send from its own address alone",
            given.spoofchk,
        ),
    ];
    for (key, value, holds, otherwise, here) in needs {
        if holds {
            continue;
        }
        let text = format!(
            "without `{key}: {value}` the VF {name} {otherwise}, and the functions that it is the uplink of have others"
        );
        let error = match here {
            Some(_) => Diagnostic::error(path.join(key), text),
            None => Diagnostic::error(path.clone(), text),
        };
        messages.push(error.with_hint(format!("write {long}; or lead it to the PF, `uplink: {}`", name.nic)));
        if here.is_none() {
            // Both at once are said by the hint.
            break;
        }
    }
    if let Some((mac, why)) = given.mac.and_then(|mac| Some((mac, unusable(mac)?))) {
        messages.push(
            Diagnostic::error(path.join("mac"), format!("{mac} {why}")).with_hint(
                "an address of your own starts with 02, 06, 0a or 0e; left out, a VF's is derived",
            ),
        );
    }
    if given.link_state == Some(LinkState::Disable) {
        let text = format!("{name} would be shown a link that is down, and nothing would leave by it");
        messages.push(
            Diagnostic::error(path.join("link_state"), text)
                .with_hint("leave it out; without `uplink` the NIC's functions reach each other alone"),
        );
    }
    nic::check_vlan(&given, &settings, path, messages);
    if given.min_tx_rate.is_some() || given.max_tx_rate.is_some() {
        let limit = match given.max_tx_rate {
            Some(_) => path.join("max_tx_rate"),
            None => Path::of(["nics", name.nic.as_str(), "defaults", "max_tx_rate"]),
        };
        nic::check_rates(&settings, path, limit, messages);
    }
    settings
}

/// A VF's hardware drops frames of VLANs that nobody has on its interface, and those that a port VLAN would tag a second time: VLANs of
/// single functions do not go through it.
pub(super) fn check_vlans(own: &TenantNic, path: &Path, messages: &mut Vec<Diagnostic>) {
    let (Some(uplink), Some(_)) = (&own.uplink, &own.uplink_settings) else { return };
    let hint = format!(
        "give the uplink the VLAN, `{{vf: {uplink}, vlan: ..., trust: on, spoofchk: off}}`, in which all frames of the NIC then \
         leave; or lead it to a PF"
    );
    let functions = path.join("functions");
    let vfs = own.vfs.iter().enumerate().map(|(index, settings)| (functions.join(index), settings));
    for (at, settings) in std::iter::once((path.clone(), &own.settings)).chain(vfs) {
        if settings.vlan.is_some_and(|vlan| vlan.get() != 0) {
            let text = format!(
                "frames of this VLAN would be dropped by the uplink: {uplink} is a VF, whose NIC filters VLANs"
            );
            messages.push(
                Diagnostic::error(at.join("vlan"), text)
                    .with_related(path.join("uplink"), "the uplink")
                    .with_hint(&hint),
            );
        }
    }
    let of_nic = own.allow.iter().map(|allow| (path.join("allow"), allow));
    let of_vfs = own.vf_allow.iter().map(|(vf, allow)| (functions.join(vf.get()).join("allow"), allow));
    for (at, _) in of_nic.chain(of_vfs).filter(|(_, allow)| allow.vlan.is_some()) {
        let text = format!(
            "frames of the VLANs that the VM may ask for would be dropped by the uplink: {uplink} is a VF, whose NIC filters VLANs"
        );
        let error = Diagnostic::error(at.join("vlan"), text).with_related(path.join("uplink"), "the uplink");
        messages.push(error.with_hint("leave it out, or lead the uplink to a PF"));
    }
}

/// Uplinks that lead two switches, or a switch and a guest, to one interface; and VFs whose PF is not on the host.
pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    let mut first: HashMap<&Uplink, (DataPath, Path)> = HashMap::new();
    let owners: HashMap<&FunctionName, &super::Owned> =
        subject.owned.iter().rev().map(|owned| (&owned.function.name, owned)).collect();
    let called: HashMap<&InterfaceName, &NicName> =
        model.nics.iter().filter_map(|(name, nic)| Some((nic.interface.as_ref()?, name))).collect();
    for (guest, name, own, uplink) in model.guests.iter().flat_map(|(guest, found)| {
        found.nics.iter().filter_map(move |(name, nic)| Some((guest, name, nic, nic.uplink.as_ref()?)))
    }) {
        if super::full(subject.messages) {
            return;
        }
        let path = Path::of(["guests", guest.as_str(), "nics", name.as_str(), "uplink"]);
        // What an uplink that is a PF may be is known by the NIC's name.
        if let Uplink::Interface(interface) = uplink
            && let Some(nic) = called.get(interface)
        {
            let text = format!("{interface} is what the model calls the interface of {nic}, a PF");
            let hint = match own.path.is_in_bridge() {
                true => "make it a port of a bridge, and write that, like `uplink: br0`".to_owned(),
                false => format!("write the NIC's name, `uplink: {nic}`"),
            };
            let related = Path::of(["nics", nic.as_str(), "interface"]);
            let error = Diagnostic::error(path.clone(), text).with_related(related, "called so here");
            subject.messages.push(error.with_hint(hint));
        }
        let refused = match first.get(uplink) {
            None => None,
            // Any number of taps are ports of one bridge, those of containers' switches among them.
            Some((others, _)) if others.is_in_bridge() && own.path.is_in_bridge() => None,
            Some((others, other)) if !others.is_in_bridge() && !own.path.is_in_bridge() => Some((
                other,
                format!("two NICs have {uplink} as their uplink, and would not reach each other"),
                "give each an interface of its own, like one of a veth pair in a bridge",
            )),
            Some((_, other)) => Some((
                other,
                format!("{uplink} is the uplink of an embedded switch, and the bridge of taps"),
                "write `path: tap` for each NIC of a VM; or lead the switch to one end of a veth pair whose other end is in the bridge",
            )),
        };
        if let Some((other, text, hint)) = refused {
            subject.messages.push(
                Diagnostic::error(path.clone(), text)
                    .with_related(other.clone(), "first given here")
                    .with_hint(hint),
            );
        }
        let owned = |function: &FunctionName| owners.get(function).copied();
        if let Uplink::Function(function) = uplink {
            let pf = FunctionName { nic: function.nic.clone(), vf: None };
            if let Some(owned) = owned(function) {
                let text =
                    format!("{function} goes to {}, so that no uplink on the host leads there", owned.guest);
                let error = Diagnostic::error(path.clone(), text);
                subject.messages.push(error.with_related(owned.name_path(), "given away here"));
            } else if let Some(owned) = owned(&pf).filter(|_| own.uplink_settings.is_some()) {
                let text = format!(
                    "the PF {pf} goes to {}, and {function} is an uplink only while its PF is on the host",
                    owned.guest
                );
                let error = Diagnostic::error(path.clone(), text);
                subject.messages.push(error.with_related(owned.name_path(), "given away here"));
            }
        }
        first.entry(uplink).or_insert((own.path, path));
    }
}
