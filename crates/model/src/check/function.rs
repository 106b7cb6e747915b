//! Which functions guests own, and what is asked of each.

use std::collections::{HashMap, HashSet};

use super::{Owned, Subject, nic, unusable};
use crate::{
    Function, FunctionName, GuestKind, NicName, VfKey,
    decode::nearest,
    diagnostic::{Diagnostic, Path},
};

/// NICs that a hint lists.
const SHOWN_NICS: usize = 10;

pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    let mut first: HashMap<&FunctionName, &Owned> = HashMap::new();
    for owned in subject.owned {
        if super::full(subject.messages) {
            break;
        }
        let name = &owned.function.name;
        let Some(nic) = model.nics.get(&name.nic) else {
            let text = format!("there is no NIC called {}", name.nic);
            subject.messages.push(
                Diagnostic::error(owned.name_path(), text).with_hint(nic_hint(&name.nic, model.nics.keys())),
            );
            continue;
        };
        if let Some(index) = name.vf.map(|index| index.get()).filter(|index| *index >= nic.vfs) {
            subject.messages.push(past_the_last(name, nic.vfs, index, owned.name_path()));
        }
        match first.get(name) {
            Some(other) => subject.messages.push(given_twice(owned, other)),
            None => {
                first.insert(name, owned);
            }
        }
        check_form(owned, subject.messages);
        check_settings(owned, subject.messages);
        let (best_effort, required) = (&owned.written.best_effort, &owned.written.required);
        nic::check_words("best_effort", best_effort, &owned.path, subject.messages);
        nic::check_words("required", required, &owned.path, subject.messages);
        let wanted: HashSet<&String> = required.iter().collect();
        if let Some(word) = best_effort.iter().find(|word| wanted.contains(word)) {
            let text = format!("{} is to be best effort and required at once", crate::tree::shown(word));
            let related = owned.path.join("best_effort");
            subject.messages.push(
                Diagnostic::error(owned.path.join("required"), text)
                    .with_related(related, "best effort here")
                    .with_hint("what is not best effort is required without being named"),
            );
        }
    }
    check_pfs(subject);
}

/// What to do about the unknown NIC `wanted`.
pub(super) fn nic_hint<'a>(wanted: &NicName, known: impl Iterator<Item = &'a NicName> + Clone) -> String {
    match nearest(wanted.as_str(), known.clone().map(NicName::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => {
            let more = if known.clone().nth(SHOWN_NICS).is_some() { ", ..." } else { "" };
            let names: Vec<&str> = known.map(NicName::as_str).take(SHOWN_NICS).collect();
            match names.is_empty() {
                true => "`nics` has none".to_owned(),
                false => format!("`nics` has {}{more}", names.join(", ")),
            }
        }
    }
}

/// That the VF `name`, which `path` names, is none of the `vfs` that its NIC has.
pub(super) fn past_the_last(name: &FunctionName, vfs: u16, index: u16, path: Path) -> Diagnostic {
    let nic = &name.nic;
    let has = match vfs {
        0 => format!("{nic} has no VFs"),
        1 => format!("{nic} has 1 VF, {nic}#0"),
        _ => format!("{nic} has {vfs} VFs, {nic}#0 to {nic}#{}", vfs - 1),
    };
    Diagnostic::error(path, format!("there is no {name}: {has}"))
        .with_related(Path::of(["nics", nic.as_str(), "vfs"]), "the number of VFs")
        .with_hint(format!("raise `vfs` to at least {}, or use a lower index", index + 1))
}

fn given_twice(owned: &Owned, other: &Owned) -> Diagnostic {
    let name = &owned.function.name;
    let text = if owned.guest == other.guest {
        format!("{} is given {name} twice", owned.guest)
    } else {
        format!("{name} is given to {} and to {}", other.guest, owned.guest)
    };
    Diagnostic::error(owned.name_path(), text)
        .with_related(other.name_path(), "first given here")
        .with_hint("a function has one owner: take it from one of them, or use another VF")
}

/// `vf` wants a VF's name, `pf` a PF's.
fn check_form(owned: &Owned, messages: &mut Vec<Diagnostic>) {
    let name = &owned.function.name;
    if owned.written.vf.is_some() && name.vf.is_none() {
        messages.push(
            Diagnostic::error(owned.path.join("vf"), format!("{name} is a PF"))
                .with_hint(format!("write `pf: {name}` for the PF, or a VF like `vf: {name}#0`")),
        );
    }
    if owned.written.pf.is_some() && name.vf.is_some() {
        messages.push(
            Diagnostic::error(owned.path.join("pf"), format!("{name} is a VF"))
                .with_hint(format!("write `vf: {name}`, or `pf: {}` for the PF", name.nic)),
        );
    }
}

fn check_settings(owned: &Owned, messages: &mut Vec<Diagnostic>) {
    let written = owned.written.settings();
    if let Some((mac, why)) = written.mac.and_then(|mac| Some((mac, unusable(mac)?))) {
        messages.push(
            Diagnostic::error(owned.path.join("mac"), format!("{mac} {why}")).with_hint(
                "an address of your own starts with 02, 06, 0a or 0e; left out, a VF's is derived",
            ),
        );
    }
    check_tc_rates(owned, messages);
    if owned.function.name.vf.is_none() {
        for key in written.values().map(|(key, _)| key).filter(|key| *key != VfKey::Mac) {
            messages.push(
                Diagnostic::error(
                    owned.path.join(key.name()),
                    format!("`{key}` is an attribute of VFs, and {} is a PF", owned.function.name),
                )
                .at_key()
                .with_hint("remove it; to give it to all VFs of the NIC, write it in the NIC's `defaults`"),
            );
        }
        return;
    }
    nic::check_vlan(&written, &owned.function.settings, &owned.path, messages);
    // Defaults that contradict each other have been reported at the NIC.
    if written.min_tx_rate.is_some() || written.max_tx_rate.is_some() {
        let limit = match written.max_tx_rate {
            Some(_) => owned.path.join("max_tx_rate"),
            None => Path::of(["nics", owned.function.name.nic.as_str(), "defaults", "max_tx_rate"]),
        };
        nic::check_rates(&owned.function.settings, &owned.path, limit, messages);
    }
}

/// Rates that tc holds: only where frames pass through the host's kernel, and not beside the VF's own.
fn check_tc_rates(owned: &Owned, messages: &mut Vec<Diagnostic>) {
    let Function { egress_rate, ingress_rate, settings, name, .. } = &owned.function;
    let given = [("egress_rate", egress_rate), ("ingress_rate", ingress_rate)];
    for (key, _) in given.into_iter().filter(|(_, rate)| rate.is_some() && owned.kind == GuestKind::Vm) {
        let hint = match name.vf {
            Some(_) if key == "egress_rate" => {
                "use `max_tx_rate`, which the PF's driver holds; or make it a container"
            }
            _ => "leave it out, or make it a container",
        };
        let text =
            format!("`{key}` is held by the host's kernel, which never sees the frames of a VM's function");
        messages.push(Diagnostic::error(owned.path.join(key), text).at_key().with_hint(hint));
    }
    if let (Some(egress), Some(max)) = (egress_rate, settings.max_tx_rate.filter(|max| max.0 != 0))
        && owned.kind == GuestKind::Container
    {
        let limit = match owned.written.max_tx_rate {
            Some(_) => owned.path.join("max_tx_rate"),
            None => Path::of(["nics", name.nic.as_str(), "defaults", "max_tx_rate"]),
        };
        messages.push(
            Diagnostic::error(
                owned.path.join("egress_rate"),
                format!(
                    "{name} has two limits for what it sends: {egress} held by tc, and {max} held by the VF"
                ),
            )
            .with_related(limit, "the VF's own")
            .with_hint("`egress_rate` is for a VF that has no rate of its own: leave one of them out"),
        );
    }
}

/// A PF in a guest: not in a VM, and not with addresses on the host.
fn check_pfs(subject: &mut Subject<'_>) {
    let host: HashMap<&NicName, &Path> =
        subject.host.iter().filter_map(|host| Some((&host.nic, &host.addresses.first()?.1))).collect();
    for owned in subject.owned.iter().filter(|owned| owned.function.name.vf.is_none()) {
        if super::full(subject.messages) {
            break;
        }
        let name = &owned.function.name.nic;
        if !subject.model.nics.contains_key(name) {
            continue;
        }
        if owned.kind == GuestKind::Vm {
            subject.messages.push(
                Diagnostic::error(
                    owned.name_path(),
                    format!(
                        "{} is a VM and is to get the PF {name}: VFIO would take it from the host's driver, with its interface, its VFs and all that \
                         is set on it, and nothing brings those back",
                        owned.guest
                    ),
                )
                .with_hint(format!(
                    "give {} a VF, like {name}#0, which is a function of its own too; or make it a container, which can own the PF's interface",
                    owned.guest
                )),
            );
        }
        if let Some(place) = host.get(name) {
            subject.messages.push(
                Diagnostic::error(
                    (*place).clone(),
                    format!(
                        "{name}'s interface goes into {}, so the host cannot have addresses on it",
                        owned.guest
                    ),
                )
                .with_related(owned.name_path(), "given to a guest here")
                .with_hint("give the addresses at the guest's function"),
            );
        }
    }
}
