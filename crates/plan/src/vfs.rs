//! The steps that set what a PF's driver keeps for its VFs.

use std::collections::BTreeMap;

use penstock_model::{
    Mac, VfAttribute, VfIndex,
    inventory::{PresentVf, VfState},
};

use crate::{
    FunctionAction,
    draft::{Effect, StepSpec},
    drivers, free, lent,
    planner::{Planner, vf_list, vf_name},
    unsupported::UnsupportedAttributes,
    wanted::{WantedNic, WantedVf, words},
};

/// Attribute steps of the VFs of `nic` that `chosen` picks: each before its driver binds, since a bound VF driver
/// does not see a new MAC.
pub fn attribute_steps<'a>(
    planner: &mut Planner<'a>,
    nic: &WantedNic<'_>,
    chosen: impl Fn(&WantedVf<'_>) -> bool,
) {
    if nic.nic.externally_managed {
        return;
    }
    let vfs = nic.vfs.iter().filter(|vf| chosen(vf));
    if nic.driver.is_none_or(|driver| !driver.sets_vf_attributes) {
        unsupported(planner, nic, vfs);
    } else if let Some(guest) = planner.user(nic.pf.bdf) {
        lent::attributes(planner, nic, guest, vfs);
    } else {
        let mut lacking = UnsupportedAttributes::default();
        vfs.for_each(|vf| one(planner, nic, vf, &mut lacking));
        lacking.tell(planner, nic);
    }
}

/// Says which attributes the PF's driver has no call for; the MAC is set at the VF's own interface instead.
fn unsupported<'v>(
    planner: &mut Planner<'_>,
    nic: &WantedNic<'_>,
    vfs: impl Iterator<Item = &'v WantedVf<'v>>,
) {
    let mut lacking: BTreeMap<&str, Vec<VfIndex>> = BTreeMap::new();
    for vf in vfs {
        for attribute in vf.settings.attributes() {
            if !matches!(attribute, VfAttribute::Mac(_)) {
                for word in words(&attribute, &vf.settings) {
                    lacking.entry(word).or_default().push(vf.index);
                }
            }
        }
    }
    let driver = nic.pf.driver.as_deref().unwrap_or("none");
    for (word, indices) in lacking {
        planner.note(format!("driver {driver} cannot set {word}: {}", vf_list(nic.name, &indices)));
    }
}

fn one<'a>(
    planner: &mut Planner<'a>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    lacking: &mut UnsupportedAttributes<'a>,
) {
    let present = nic.present(vf);
    let state = present.and_then(|present| present.attributes.as_ref());
    let missing = missing(planner, nic, vf, state, lacking);
    let who = vf_name(nic.name, vf.index);
    if let Some(guest) = planner.user(vf.found.bdf) {
        // What the PF's driver does for the VF can be put right under a guest that is to have it; another MAC would only be
        // seen once the VF's driver is bound anew.
        let live = |attribute: &VfAttribute| {
            let known = state.and_then(|state| state.attribute(attribute.kind())).is_some();
            known && vf.owner == Some(guest) && !matches!(attribute, VfAttribute::Mac(_))
        };
        let (live, left): (Vec<VfAttribute>, Vec<VfAttribute>) = missing.into_iter().partition(live);
        if !left.is_empty() && (state.is_some() || vf.owner == Some(guest)) {
            let texts: Vec<String> = left.iter().map(VfAttribute::to_string).collect();
            planner.note(format!(
                "{who} is left as it is while guest {guest} runs with it; still to set: {}",
                texts.join(", ")
            ));
        }
        set(planner, nic, vf, state, live);
        return;
    }
    // Who has taken a VF that no guest owns has set what it has.
    if vf.owner.is_none() && free::taken(planner, nic, vf).is_some() {
        return;
    }
    // A driver that learns nothing of its PF misses nothing either.
    let learns = nic.driver.is_some_and(|driver| driver.tells_mac);
    if missing.is_empty() && !(learns && stale(vf, present)) {
        return;
    }
    let driver = planner.bound(nic, vf).filter(|_| learns).map(str::to_owned);
    if let Some(driver) = &driver {
        unbind(planner, nic, vf, driver, format!("a bound {driver} would not see what is set for {who}"));
    }
    set(planner, nic, vf, state, missing);
    if let (Some(driver), None) = (driver.filter(|driver| !free::binds_another(nic, driver)), vf.owner) {
        bind(planner, nic, vf, &driver, format!("{who} had it before; no guest owns it"));
        planner.unbound.remove(&vf.found.bdf);
    }
}

/// What a VF that is reported as `state` has otherwise than the model wants, but for what its PF's driver is known not to do.
pub fn missing<'a>(
    planner: &Planner<'a>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    state: Option<&VfState>,
    lacking: &mut UnsupportedAttributes<'a>,
) -> Vec<VfAttribute> {
    let attributes = vf.settings.attributes().into_iter();
    attributes
        .filter(|attribute| state.and_then(|state| state.attribute(attribute.kind())) != Some(*attribute))
        .filter(|attribute| !lacking.holds(planner, nic, vf, attribute))
        .collect()
}

/// Sets these attributes of a VF, which is reported as `state`.
fn set(
    planner: &mut Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    state: Option<&VfState>,
    attributes: Vec<VfAttribute>,
) {
    let who = vf_name(nic.name, vf.index);
    for attribute in attributes {
        let belongs = |guest| match vf.is_uplink {
            true => format!("{who} is an uplink of {guest}"),
            false => format!("{who} belongs to {guest}"),
        };
        let why = match (vf.owner, attribute, vf.derived) {
            (Some(guest), VfAttribute::Mac(_), true) => {
                format!("{}; its MAC is derived from {}'s", belongs(guest), nic.name)
            }
            (Some(guest), ..) => belongs(guest),
            (None, VfAttribute::Mac(_), true) => {
                format!("{who} belongs to no guest; its MAC is derived from {}'s", nic.name)
            }
            (None, ..) => format!("{who} belongs to no guest; {} says so for all its VFs", nic.name),
        };
        let (pf, index) = (nic.pf.bdf, vf.index);
        let inverse = state.and_then(|state| state.attribute(attribute.kind()));
        planner.draft.push(
            StepSpec::new(
                FunctionAction::SetVfAttribute { pf, vf: index, attribute }.into(),
                inverse.map(|attribute| FunctionAction::SetVfAttribute { pf, vf: index, attribute }.into()),
                vec![Effect::Vfs(pf), Effect::Interface(pf), Effect::Driver(vf.found.bdf)],
                Effect::Attributes(vf.found.bdf),
                why,
            )
            .best_effort(vf.may_fail(&attribute)),
        );
    }
}

/// Whether a VF that a guest is to own was bound before its MAC was set, so that its interface has another.
fn stale(vf: &WantedVf<'_>, present: Option<&PresentVf>) -> bool {
    let seen = present.and_then(|present| present.interface.as_ref()).map(|interface| interface.mac);
    vf.owner.is_some() && seen.is_some() && seen != vf.settings.mac
}

/// Takes a VF from its driver.
pub fn unbind(planner: &mut Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>, driver: &str, why: String) {
    let function = vf.found.bdf;
    planner.draft.push(StepSpec::new(
        FunctionAction::SetDriver { function, driver: None, mac: None }.into(),
        Some(
            FunctionAction::SetDriver {
                function,
                driver: Some(driver.to_owned()),
                mac: given(nic, vf, driver),
            }
            .into(),
        ),
        vec![Effect::Vfs(nic.pf.bdf), Effect::Attributes(function), Effect::Driver(function)],
        Effect::Driver(function),
        why,
    ));
    planner.unbound.insert(function);
}

/// The address that a driver which had the VF before learns when it is bound again: the one that the PF keeps now.
pub fn given(nic: &WantedNic<'_>, vf: &WantedVf<'_>, driver: &str) -> Option<Mac> {
    let learns = nic.driver.is_some_and(|known| known.tells_mac && known.vf_driver == driver);
    vf.found.given_mac().filter(|_| learns)
}

/// Gives a VF without a driver its network driver.
pub fn bind(planner: &mut Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>, driver: &str, why: String) {
    let binding = binding(planner, nic, vf, driver, why);
    planner.draft.push(binding);
}

/// The step that gives a VF without a driver its network driver.
pub fn binding(
    planner: &Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    driver: &str,
    why: String,
) -> StepSpec {
    let (function, pf) = (vf.found.bdf, nic.pf.bdf);
    let mut needs =
        vec![Effect::Vfs(pf), Effect::Interface(pf), Effect::Attributes(function), Effect::Driver(function)];
    // A VF driver wants its PF up: by then, that may be inside a guest.
    let holder = planner.user(pf).or(nic.owner.map(|(guest, _)| guest));
    needs.extend(holder.filter(|guest| Some(*guest) != vf.owner).map(|guest| Effect::Ready(guest.clone())));
    StepSpec::new(
        FunctionAction::SetDriver { function, driver: Some(driver.to_owned()), mac: address(nic, vf) }.into(),
        Some(FunctionAction::SetDriver { function, driver: None, mac: None }.into()),
        needs,
        Effect::Driver(function),
        why,
    )
}

/// The address that a VF's network driver has to learn from the PF, where that keeps one for it.
pub fn address(nic: &WantedNic<'_>, vf: &WantedVf<'_>) -> Option<Mac> {
    let keeps = nic.driver.is_some_and(|driver| driver.tells_mac) && !vf.best_effort.contains("mac");
    vf.settings.mac.filter(|_| keeps)
}

/// The step that gives a VF without a driver to VFIO, for a VM. The kernel then only hands it on: it needs nothing of its PF's
/// interface, wherever that is.
pub fn binding_vfio(nic: &WantedNic<'_>, vf: &WantedVf<'_>, why: String) -> StepSpec {
    let function = vf.found.bdf;
    StepSpec::new(
        FunctionAction::SetDriver { function, driver: Some(drivers::VFIO.to_owned()), mac: None }.into(),
        Some(FunctionAction::SetDriver { function, driver: None, mac: None }.into()),
        vec![Effect::Vfs(nic.pf.bdf), Effect::Attributes(function), Effect::Driver(function)],
        Effect::Driver(function),
        why,
    )
}
