//! NICs: the PF, and what its driver keeps for each VF.

use std::collections::BTreeSet;

use penstock_model::{
    FunctionName, NicName, Outcome, SlotName, VfIndex, VfKey, VfSettings, VfValue,
    inventory::VfState,
    verdict::{BY_PF, Subject, Vantage},
};

use super::{
    free, guest,
    observation::{Observation, pf_of},
    uplink,
    writer::{Unobserved, VerdictSheet, VerdictWriter, on},
};

/// Judges a NIC, its PF where that is the host's, and its VFs as the PF's driver reports them.
pub fn judge(
    observation: &Observation<'_>,
    name: &NicName,
    reached: &BTreeSet<&FunctionName>,
    sheet: &mut VerdictSheet,
) {
    let nic = &observation.model.nics[name];
    let mut page = sheet.page(Subject::Nic(name.clone()), Vantage::Host, &nic.best_effort);
    let matching = found(observation, name, &mut page);
    if !matching {
        return;
    }
    count(observation, name, &mut page);
    let pf = pf_of(name);
    if observation.owners.of(&pf).is_none() {
        let mut page = sheet.page(Subject::Function(pf.clone()), Vantage::Host, &nic.best_effort);
        physical(observation, &pf, reached.contains(&pf), &mut page);
    }
    for (index, settings) in observation.model.vfs(name) {
        virtual_function(observation, name, index, settings, sheet);
    }
}

/// Whether the NIC's PF is there and is the one that the model means.
fn found(observation: &Observation<'_>, name: &NicName, page: &mut VerdictWriter<'_>) -> bool {
    let matching = &observation.model.nics[name].matching;
    let parts = matching.words();
    let wanted = if parts.is_empty() { "a PF".to_owned() } else { format!("a PF with {}", parts.join(", ")) };
    let Some(pf) = observation.pf(name) else {
        page.put("match", wanted, "there is no such PF", Outcome::Fail);
        return false;
    };
    let mut seen = format!(
        "{} with MAC {}, driver {}",
        pf.bdf,
        pf.permanent_mac.map_or_else(|| "unknown".to_owned(), |mac| mac.to_string()),
        pf.driver.as_deref().unwrap_or("none")
    );
    let identity = &pf.identity;
    if let (Some(_), Some(serial)) = (matching.serial, identity.serial) {
        seen += &format!(", serial number {serial}");
    }
    let onboard = identity.onboard.map(|number| format!("onboard{number}"));
    let places =
        [identity.slot.as_ref(), identity.label.as_ref()].into_iter().flatten().map(SlotName::as_str);
    let places: Vec<&str> = places.chain(onboard.as_deref()).collect();
    if matching.slot.is_some() && !places.is_empty() {
        seen += &format!(", slot {}", places.join(" or "));
    }
    let alike = matching.mac.is_none_or(|mac| pf.permanent_mac == Some(mac))
        && (matching.serial.is_none() || identity.serial == matching.serial)
        && matching.slot.as_ref().is_none_or(|slot| places.contains(&slot.as_str()))
        && matching.port.is_none_or(|port| pf.bdf.function() == port)
        && matching.bdf.is_none_or(|bdf| pf.bdf == bdf)
        && matching.driver.as_ref().is_none_or(|driver| pf.driver.as_ref() == Some(driver));
    page.put("match", wanted, seen, if alike { Outcome::Pass } else { Outcome::Fail });
    true
}

fn count(observation: &Observation<'_>, name: &NicName, page: &mut VerdictWriter<'_>) {
    let wanted = observation.model.nics[name].vfs;
    let sriov = observation.pf(name).and_then(|pf| pf.sriov.as_ref());
    let Some(sriov) = sriov else {
        if wanted > 0 {
            page.put("vfs", wanted, "the PF has no SR-IOV", Outcome::Fail);
        }
        return;
    };
    match observation.vf_count(name) {
        Ok((said, links)) if links != usize::from(said) => {
            let seen = format!("sriov_numvfs says {said}, and {links} exist");
            page.put("vfs", wanted, seen, Outcome::Fail);
        }
        Ok((said, _)) if observation.model.nics[name].externally_managed => {
            let outcome = if said >= wanted { Outcome::Pass } else { Outcome::Fail };
            page.put("vfs", format!("{wanted} or more"), said, outcome);
        }
        Ok((said, _)) => page.compare("vfs", wanted, Ok(said)),
        Err(blind) => page.blind("vfs", wanted, blind),
    }
    if wanted > 0 && !observation.model.nics[name].externally_managed {
        page.compare("autoprobe", "off", Ok(on(sriov.autoprobe)));
    }
}

/// The PF's interface on the host.
fn physical(observation: &Observation<'_>, pf: &FunctionName, reached: bool, page: &mut VerdictWriter<'_>) {
    let nic = &observation.model.nics[&pf.nic];
    let report = observation.interface(pf);
    if let Some(wanted) = &nic.interface {
        let seen = report.as_ref().map(|report| report.interface.name.clone());
        page.compare("interface", wanted.clone(), seen.map_err(Clone::clone));
    }
    let needed = guest::Needed {
        mtu: nic.mtu,
        up: (nic.vfs > 0 && !nic.externally_managed) || reached,
        carrier: reached,
        addresses: &nic.addresses,
    };
    guest::link(&needed, report, page);
}

/// What the PF's driver keeps for one VF.
fn virtual_function(
    observation: &Observation<'_>,
    nic: &NicName,
    index: VfIndex,
    settings: &VfSettings,
    sheet: &mut VerdictSheet,
) {
    let function = FunctionName { nic: nic.clone(), vf: Some(index) };
    let owner = observation.owners.of(&function);
    let is_uplink = observation.owners.is_uplink(&function);
    let nothing = BTreeSet::new();
    let best_effort = match owner {
        // Without what it needs it would lose frames.
        _ if is_uplink => &nothing,
        Some((_, owned)) => &owned.best_effort,
        None => &observation.model.nics[nic].best_effort,
    };
    let vantage = match observation.home(&pf_of(nic)) {
        Ok(home) => home.vantage.clone(),
        Err(_) => Vantage::Host,
    };
    let known = observation.pf(nic).and_then(|pf| observation.inventory.capabilities.get(&pf.bdf));
    let free = owner.is_none() && !is_uplink && !observation.model.nics[nic].externally_managed;
    if free && free::judge(observation, &function, sheet) {
        return;
    }
    if is_uplink {
        uplink::judge(observation, &function, sheet);
    }
    let page = sheet.page(Subject::Function(function.clone()), vantage, best_effort);
    let mut page = page.shown(BY_PF).knowing(known);
    let state = state(observation, nic, index);
    mac(observation, &function, settings, owner.is_some(), &state, &mut page);
    attributes(settings, &state, &mut page);
}

/// What the PF's driver reports of a VF.
///
/// # Errors
///
/// [`Unobserved::Unknown`] when the driver could not be asked, [`Unobserved::Unsupported`] when it reports no VFs at all,
/// [`Unobserved::Absent`] for a VF that is not there.
pub fn state<'s>(
    observation: &'s Observation<'_>,
    nic: &NicName,
    index: VfIndex,
) -> Result<&'s VfState, Unobserved> {
    let sight = observation.sight(nic).map_err(Unobserved::Unknown)?;
    if sight.vfs.is_empty() {
        let driver = observation.pf(nic).and_then(|pf| pf.driver.as_deref()).unwrap_or("none");
        return Err(match observation.vf_count(nic) {
            Ok((_, 0)) => Unobserved::Absent("there is no such VF".to_owned()),
            _ => Unobserved::Unsupported(format!("the PF's driver ({driver}) reports nothing of its VFs")),
        });
    }
    let of_index = |(at, state): &'s (VfIndex, VfState)| (*at == index).then_some(state);
    // They are in the order of indices; where not all are told of, further on than their places.
    let in_place = sight.vfs.get(usize::from(index.get())).and_then(of_index);
    let found = in_place.or_else(|| sight.vfs.iter().find_map(of_index));
    found.ok_or_else(|| Unobserved::Absent("the PF's driver reports no such VF".to_owned()))
}

/// The MAC is always wanted. Where the PF's driver keeps none, the VF's own interface is the only witness: in a guest
/// it is judged with the rest of the guest, and else here.
fn mac(
    observation: &Observation<'_>,
    function: &FunctionName,
    settings: &VfSettings,
    owned: bool,
    state: &Result<&VfState, Unobserved>,
    page: &mut VerdictWriter<'_>,
) {
    let Some(index) = function.vf else { return };
    let external = observation.model.nics[&function.nic].externally_managed;
    let Some(wanted) = observation.wanted_mac(&function.nic, index, settings.mac) else {
        if external {
            return;
        }
        let why = "the PF has no known MAC to derive it from".to_owned();
        page.blind("mac", "the derived address", Unobserved::Unknown(why));
        return;
    };
    match state {
        // Whoever manages the NIC may have left it to the VF's own interface, which is judged inside its guest.
        Ok(state) if external && owned && state.mac.is_zero() => (),
        Ok(state) => page.compare("mac", wanted, Ok(state.mac)),
        Err(Unobserved::Unsupported(_)) if owned => (),
        // Nobody asked for this address by name, and the interface of a VF that is free keeps its own.
        Err(Unobserved::Unsupported(_)) if settings.mac.is_none() => (),
        Err(Unobserved::Unsupported(why)) => match observation.interface(function) {
            Ok(report) => page.compare("mac", wanted, Ok(report.interface.mac)),
            // Nobody asked for this address by name, nobody owns the VF, and nothing shows it.
            Err(_) if settings.mac.is_none() => (),
            Err(_) => page.blind("mac", wanted, Unobserved::Unsupported(why.clone())),
        },
        Err(blind) => page.blind("mac", wanted, blind.clone()),
    }
}

/// All but the MAC address.
fn attributes(wanted: &VfSettings, state: &Result<&VfState, Unobserved>, page: &mut VerdictWriter<'_>) {
    let unreported = || Unobserved::Unsupported("the PF's driver does not report it".to_owned());
    for (key, wanted) in wanted.values().filter(|(key, _)| *key != VfKey::Mac) {
        let seen = state.as_ref().map_err(Clone::clone);
        let seen = seen.and_then(|state| state.get(key).ok_or_else(unreported));
        match wanted {
            VfValue::Protocol(_) | VfValue::Rate(_) | VfValue::Link(_) => {
                page.compare_defaulted(key.name(), wanted, key.unset(), seen);
            }
            VfValue::Mac(_) | VfValue::Vlan(_) | VfValue::Qos(_) | VfValue::Switch(_) => {
                page.compare(key.name(), wanted, seen);
            }
        }
    }
}
