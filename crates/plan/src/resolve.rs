//! Which PF each NIC of a model is on this machine.

use std::{cmp::Reverse, collections::HashMap};

use indexmap::IndexMap;
use penstock_model::{
    Bdf, Diagnostic, Diagnostics, Inventory, Mac, Model, Nic, NicMatch, NicName, Path,
    inventory::{Pf, Sriov},
    text::counted,
};

use crate::error::error;

/// Finds the PF of each NIC: first of those that name a MAC, a serial number, a slot or a PCI address, then of those that
/// name a driver or a port, then of the rest. The latter two take, in the file's order, the first PF by PCI address that has room for their VFs and
/// that is not taken; if that would leave a NIC without a PF although there is a way to give each one, that way is
/// taken.
///
/// # Errors
///
/// A NIC that matches nothing, or names two PFs; two NICs that match one PF; a PF without SR-IOV or without room for
/// the VFs. Paths are `nics.NAME.match`, `nics.NAME.vfs` and `guests.NAME.functions.N`.
pub fn resolve(model: &Model, inventory: &Inventory) -> Result<IndexMap<NicName, Bdf>, Diagnostics> {
    match resolve_what_is_there(model, inventory) {
        (nics, Diagnostics(messages)) if messages.is_empty() => Ok(nics),
        (_, messages) => Err(messages),
    }
}

/// As [`resolve`], for who looks at a machine that may have lost a NIC: the PFs of those that were found, and what is wrong
/// with the others.
pub fn resolve_what_is_there(model: &Model, inventory: &Inventory) -> (IndexMap<NicName, Bdf>, Diagnostics) {
    let mut pfs: Vec<&Pf> = inventory.pfs.iter().collect();
    // A PF without SR-IOV is somebody's ordinary NIC: the last to be taken when the model does not say which.
    pfs.sort_by_key(|pf| (pf.sriov.is_none(), pf.bdf));
    let mut messages = Vec::new();
    let mut owners: HashMap<Bdf, &NicName> = HashMap::new();
    let inside = inside_guests(model, inventory);
    let matches =
        |name: &NicName, nic: &Nic, pf: &Pf| nic.matching.holds_for(pf, inside.get(&pf.bdf) == Some(&name));

    let exact = |nic: &Nic| nic.matching.is_exact();
    for (name, nic) in model.nics.iter().filter(|(_, nic)| exact(nic)) {
        let found = pfs.iter().copied().filter(|pf| matches(name, nic, pf)).collect();
        match exactly(name, nic, found, &pfs).and_then(|pf| has_room(model, name, nic, pf).map(|()| pf)) {
            Err(found) => messages.extend(found),
            Ok(pf) => {
                if let Some(other) = owners.insert(pf.bdf, name) {
                    messages.push(error(
                        at(name, "match"),
                        format!("{name} and {other} both match {}", describe(pf)),
                        Some("a PF is one NIC: match another one, or make it one NIC".to_owned()),
                    ));
                }
            }
        }
    }

    // Those that leave a choice are matched by augmenting paths (Kuhn), so that file order and address order decide
    // where they can, and no NIC goes without where they cannot. A driver is more exact than nothing.
    let mut open: Vec<(&NicName, &Nic)> = model.nics.iter().filter(|(_, nic)| !exact(nic)).collect();
    open.sort_by_key(|(_, nic)| Reverse((nic.matching.driver.is_some(), nic.matching.port.is_some())));
    let candidates: Vec<Vec<Bdf>> = open
        .iter()
        .map(|(name, nic)| {
            pfs.iter()
                .filter(|pf| !owners.contains_key(&pf.bdf) && matches(name, nic, pf) && room(pf) >= nic.vfs)
                .map(|pf| pf.bdf)
                .collect()
        })
        .collect();
    let mut taken: HashMap<Bdf, usize> = HashMap::new();
    let without: Vec<usize> =
        (0..open.len()).filter(|index| !augment(*index, &candidates, &mut taken, &mut Vec::new())).collect();
    owners.extend(taken.into_iter().map(|(bdf, index)| (bdf, open[index].0)));
    for (name, nic) in without.into_iter().map(|index| open[index]) {
        messages.push(nothing_left(name, nic, &pfs, &owners));
    }

    let position = |message: &Diagnostic| {
        let nic = message.path.0.get(1).map(String::as_str).unwrap_or_default();
        model.nics.get_index_of(nic).unwrap_or(usize::MAX)
    };
    messages.sort_by_key(position);
    let by_name: HashMap<&NicName, Bdf> = owners.into_iter().map(|(bdf, name)| (name, bdf)).collect();
    let found = model.nics.keys().filter_map(|name| Some((name.clone(), *by_name.get(name)?))).collect();
    (found, Diagnostics(messages))
}

/// Finds a PF for `nic`, moving those that took theirs earlier to another one if need be.
pub(crate) fn augment(
    nic: usize,
    candidates: &[Vec<Bdf>],
    taken: &mut HashMap<Bdf, usize>,
    tried: &mut Vec<Bdf>,
) -> bool {
    if let Some(free) = candidates[nic].iter().find(|bdf| !taken.contains_key(bdf)) {
        taken.insert(*free, nic);
        return true;
    }
    for bdf in &candidates[nic] {
        if !tried.contains(bdf) {
            tried.push(*bdf);
            if augment(taken[bdf], candidates, taken, tried) {
                taken.insert(*bdf, nic);
                return true;
            }
        }
    }
    false
}

/// The one PF that a NIC names.
fn exactly<'a>(
    name: &NicName,
    nic: &Nic,
    found: Vec<&'a Pf>,
    pfs: &[&Pf],
) -> Result<&'a Pf, Vec<Diagnostic>> {
    match found[..] {
        [pf] => Ok(pf),
        [] => Err(vec![error(
            at(name, "match"),
            format!("no PF of this machine has {}", nic.matching.words().join(" and ")),
            Some(nearest(&nic.matching, pfs)),
        )]),
        _ => Err(vec![error(
            match nic.matching.mac {
                Some(_) => at(name, "match").join("mac"),
                None => at(name, "match"),
            },
            format!(
                "{} PFs have {}: {}",
                found.len(),
                nic.matching.words().join(" and "),
                found.iter().map(|pf| describe(pf)).collect::<Vec<_>>().join(", ")
            ),
            Some(
                match nic.matching.mac {
                    Some(_) => "match by slot as well, or by bdf",
                    None => "say which port of the card: `port: 0`, or match by mac",
                }
                .to_owned(),
            ),
        )]),
    }
}

/// Whether the PF that was named can have the VFs that are wanted.
fn has_room(model: &Model, name: &NicName, nic: &Nic, pf: &Pf) -> Result<(), Vec<Diagnostic>> {
    if nic.vfs <= room(pf) {
        return Ok(());
    }
    let Some(sriov) = &pf.sriov else {
        return Err(vec![error(
            at(name, "vfs"),
            format!(
                "{name} is to have {}, but {} has no SR-IOV",
                counted(usize::from(nic.vfs), "VF"),
                describe(pf)
            ),
            Some("match a PF with SR-IOV, or turn it on in the firmware's settings".to_owned()),
        )]);
    };
    let most = room(pf);
    let device = describe(pf);
    let limit = if most < sriov.total_vfs {
        format!(
            "{device} has PCI addresses for {most} of its {}",
            counted(usize::from(sriov.total_vfs), "VF")
        )
    } else {
        format!("{device} has at most {most}")
    };
    let past: Vec<Diagnostic> = model
        .guests
        .iter()
        .flat_map(|(guest, owner)| {
            owner.functions.iter().enumerate().map(move |(at, function)| (guest, at, &function.name))
        })
        .filter(|(.., function)| function.nic == *name && function.vf.is_some_and(|vf| vf.get() >= most))
        .map(|(guest, position, function)| {
            error(
                Path::of(["guests", guest.as_str(), "functions"]).join(position),
                format!("there is no {function}: {limit}"),
                most.checked_sub(1).map(|last| format!("use {name}#0 to {name}#{last}")),
            )
        })
        .collect();
    if past.is_empty() {
        return Err(vec![error(
            at(name, "vfs"),
            format!("{name} is to have {}, but {limit}", count(nic.vfs)),
            Some(format!("ask for {most} or fewer")),
        )]);
    }
    Err(past)
}

/// Why a NIC that leaves a choice got no PF.
fn nothing_left(name: &NicName, nic: &Nic, pfs: &[&Pf], owners: &HashMap<Bdf, &NicName>) -> Diagnostic {
    let alike: Vec<&Pf> = pfs.iter().copied().filter(|pf| nic.matching.holds_for(pf, false)).collect();
    let what = match nic.matching.words()[..] {
        [] => "PF".to_owned(),
        ref words => format!("PF with {}", words.join(" and ")),
    };
    let vfs = count(nic.vfs);
    let message = if alike.is_empty() {
        format!("this machine has no {what}, and {name} needs one")
    } else if alike.iter().all(|pf| pf.sriov.is_none()) && nic.vfs > 0 {
        format!("{name} is to have {vfs}, but no {what} has SR-IOV")
    } else if alike.iter().all(|pf| room(pf) < nic.vfs) {
        let most = alike.iter().map(|pf| room(pf)).max().unwrap_or(0);
        format!("{name} is to have {vfs}, but no {what} can have more than {most}")
    } else {
        let room = if nic.vfs > 0 { format!(" with room for {vfs}") } else { String::new() };
        let claims: Vec<String> = alike
            .iter()
            .filter_map(|pf| owners.get(&pf.bdf).map(|owner| format!("{owner} is {}", pf.bdf)))
            .collect();
        format!("no {what}{room} is left for {name}: {}", claims.join(", "))
    };
    error(at(name, "match"), message, Some(nearest(&nic.matching, pfs)))
}

/// Which NICs are PFs inside running guests. Their MACs cannot be read from the host, but a guest of the model that
/// runs with as many functions as the model gives it has them in the same order.
fn inside_guests<'a>(model: &'a Model, inventory: &Inventory) -> HashMap<Bdf, &'a NicName> {
    let mut inside = HashMap::new();
    for (name, found) in inventory.guests.iter().filter(|(_, found)| found.running) {
        let Some(guest) = model.guests.get(name) else {
            continue;
        };
        if guest.functions.len() == found.functions.len() {
            let pairs = guest.functions.iter().zip(&found.functions);
            inside.extend(
                pairs
                    .filter(|(function, _)| function.name.vf.is_none())
                    .map(|(function, bdf)| (*bdf, &function.name.nic)),
            );
        }
    }
    inside
}

/// How many VFs a PF can have.
pub(crate) fn room(pf: &Pf) -> u16 {
    pf.sriov.as_ref().map_or(0, Sriov::room)
}

fn count(vfs: u16) -> String {
    format!("{vfs} {}", if vfs == 1 { "VF" } else { "VFs" })
}

fn at(nic: &NicName, key: &str) -> Path {
    Path::of(["nics", nic.as_str(), key])
}

fn describe(pf: &Pf) -> String {
    let driver = pf.driver.as_deref().unwrap_or("none");
    let mac = pf.permanent_mac.map_or_else(|| "unknown".to_owned(), |mac: Mac| mac.to_string());
    format!("{} (MAC {mac}, driver {driver})", pf.bdf)
}

/// What else tells a PF from others, as a match by it would be written.
fn place(pf: &Pf) -> String {
    let identity = &pf.identity;
    let parts = [
        identity.serial.map(|serial| format!("serial {serial}")),
        identity.slot.as_ref().map(|slot| format!("slot {slot}")),
        identity.label.as_ref().map(|label| format!("slot {label}")),
        identity.onboard.map(|number| format!("slot onboard{number}")),
    ];
    parts.into_iter().flatten().map(|part| format!(", {part}")).collect()
}

/// The PFs that are there, the most similar first.
fn nearest(matching: &NicMatch, pfs: &[&Pf]) -> String {
    let distance = |pf: &&Pf| {
        let apart = |wanted: Option<String>, seen: Option<String>| {
            wanted.map_or(0, |wanted| strsim::levenshtein(&wanted, &seen.unwrap_or_default()))
        };
        apart(matching.mac.map(|mac| mac.to_string()), pf.permanent_mac.map(|mac| mac.to_string()))
            + apart(
                matching.serial.map(|serial| serial.to_string()),
                pf.identity.serial.map(|serial| serial.to_string()),
            )
            + matching.slot.as_ref().map_or(0, |slot| usize::from(!pf.identity.is_in(slot)))
            + apart(matching.bdf.map(|bdf| bdf.to_string()), Some(pf.bdf.to_string()))
            + apart(matching.driver.clone(), pf.driver.clone())
    };
    let mut near = pfs.to_vec();
    near.sort_by_key(distance);
    let elsewhere = matching.serial.is_some() || matching.slot.is_some();
    let listed: Vec<String> = near
        .iter()
        .map(|pf| {
            let place = if elsewhere { place(pf) } else { String::new() };
            match room(pf) {
                0 => format!("{}{place} without SR-IOV", describe(pf)),
                most => format!("{}{place} with room for {}", describe(pf), counted(usize::from(most), "VF")),
            }
        })
        .collect();
    if matching.serial.is_some() && !pfs.is_empty() && pfs.iter().all(|pf| pf.identity.serial.is_none()) {
        let listed = listed.join("; ");
        return format!("no PF here tells a serial number; root alone can read them. The PFs here: {listed}");
    }
    if listed.is_empty() {
        "`penstock scan` lists the PFs of a machine; this one has none".to_owned()
    } else {
        format!("the PFs here, nearest first: {}", listed.join("; "))
    }
}
