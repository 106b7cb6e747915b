//! Attributes of which it was seen before that the PF's driver cannot set them: refused before anything is touched, or left
//! out where the model allows it.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use penstock_model::{Path, VfAttribute, VfIndex, inventory::Trial};

use crate::{
    error::error,
    planner::{Planner, vf_list},
    wanted::{WantedNic, WantedVf, words},
};

/// What the driver of one NIC is known not to do, of what the model asks for.
#[derive(Default)]
pub struct UnsupportedAttributes<'a> {
    /// By where the model says it and in which word.
    required: IndexMap<(Path, &'static str), (&'a Trial, Vec<VfIndex>)>,
    left_out: BTreeMap<&'static str, (&'a Trial, Vec<VfIndex>)>,
}

impl<'a> UnsupportedAttributes<'a> {
    /// Whether `attribute` of `vf` is known to be out of reach, which is noted.
    pub fn holds(
        &mut self,
        planner: &Planner<'a>,
        nic: &WantedNic<'_>,
        vf: &WantedVf<'_>,
        attribute: &VfAttribute,
    ) -> bool {
        // Every VF is given a MAC, asked for or not; a driver that has no call for that is `unsupported`'s.
        if matches!(attribute, VfAttribute::Mac(_)) {
            return false;
        }
        let known = planner.inventory.capabilities.get(&nic.pf.bdf);
        let Some(trial) = known.and_then(|known| known.lack_of(attribute)) else { return false };
        let may_fail = vf.may_fail(attribute);
        for word in words(attribute, &vf.settings) {
            let (_, vfs) = match may_fail {
                true => self.left_out.entry(word).or_insert_with(|| (trial, Vec::new())),
                false => {
                    let key = (place(planner, nic, vf, attribute, word), word);
                    self.required.entry(key).or_insert_with(|| (trial, Vec::new()))
                }
            };
            vfs.push(vf.index);
        }
        true
    }

    /// Says what was found.
    pub fn tell(self, planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
        let driver = nic.pf.driver.as_deref().unwrap_or("none");
        for (word, (trial, vfs)) in self.left_out {
            let who = vf_list(nic.name, &vfs);
            planner.note(format!("{word} of {who} is left out: driver {driver} cannot set it ({trial})"));
        }
        for ((path, word), (trial, vfs)) in self.required {
            let text = format!(
                "{} cannot have {word}: driver {driver} was tried before ({trial})",
                vf_list(nic.name, &vfs)
            );
            let hint = format!(
                "`best_effort: [{word}]` at the NIC or the function does without it; `penstock scan --probe` tries the \
                 driver again"
            );
            planner.lacking.0.push(error(path, text, Some(hint)));
        }
    }
}

/// Where the model asks for `word` of this VF: at its owner's entry, or for all VFs of the NIC.
fn place(
    planner: &Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    attribute: &VfAttribute,
    word: &str,
) -> Path {
    let defaults = &nic.nic.vf_defaults;
    let from_defaults = defaults
        .attributes()
        .iter()
        .any(|default| default == attribute && words(default, defaults).contains(&word));
    if vf.is_uplink && !from_defaults {
        let function = penstock_model::FunctionName { nic: nic.name.clone(), vf: Some(vf.index) };
        if let Some(uplink) = planner.model.uplink_vf(&function) {
            return Path::of(["guests", uplink.guest.as_str(), "nics", uplink.nic.as_str(), "uplink", word]);
        }
    }
    let owner = vf.owner.filter(|_| !from_defaults).and_then(|name| {
        let functions = &planner.model.guests.get(name)?.functions;
        let is_it = |name: &penstock_model::FunctionName| name.nic == *nic.name && name.vf == Some(vf.index);
        Some((name, functions.iter().position(|function| is_it(&function.name))?))
    });
    match owner {
        Some((guest, at)) => Path::of(["guests", guest.as_str(), "functions"]).join(at).join(word),
        None => Path::of(["nics", nic.name.as_str(), "defaults", word]),
    }
}
