//! What a plan comes to, in one sentence.

use indexmap::IndexMap;
use penstock_model::{Inventory, inventory::Lifelines, text::counted};

use super::changes::{Change, Changes, Group};
use crate::{Danger, Plan, boot::BootNeeds, effects};

/// What a plan comes to, in one sentence.
pub struct Summary {
    pub text: String,
    /// Whether somebody should look twice: something is destroyed, in danger or not known.
    pub warns: bool,
}

pub fn summary(
    plan: &Plan,
    inventory: &Inventory,
    groups: &IndexMap<Group, Changes>,
    dangers: &[Danger],
    boot: Option<&BootNeeds>,
) -> Summary {
    let mut parts = Vec::new();
    if plan.steps.is_empty() {
        parts.push("nothing to do: the machine is as the model has it".to_owned());
    } else if groups.is_empty() {
        parts.push("nothing changes but for what is waited for".to_owned());
    }
    let effects = effects(plan, inventory);
    nics(plan, groups, &mut parts);
    guests(groups, &mut parts);
    others(groups, &mut parts);
    let destroyed = effects.vfs.len();
    if !plan.steps.is_empty() {
        match destroyed {
            0 => parts.push("nothing destroyed".to_owned()),
            some => parts.insert(0, format!("{} destroyed", counted(some, "VF"))),
        }
        if !effects.guests.is_empty() {
            parts.push(format!("{} concerned", counted(effects.guests.len(), "running guest")));
        }
        parts.push(danger(dangers, inventory.lifelines.as_ref()));
    }
    let reboot = boot.is_some_and(|boot| boot.missing().next().is_some());
    if reboot {
        parts.push("a reboot needed".to_owned());
    } else if boot.is_some() && !plan.steps.is_empty() {
        parts.push("no reboot".to_owned());
    }
    let warns = destroyed > 0
        || !dangers.is_empty()
        || !effects.guests.is_empty()
        || reboot
        || (inventory.lifelines.is_none() && !plan.steps.is_empty());
    let mut text = parts.join(", ");
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text.push('.');
    Summary { text, warns }
}

fn danger(dangers: &[Danger], lifelines: Option<&Lifelines>) -> String {
    match (dangers.len(), lifelines) {
        (0, Some(_)) => "nothing of yours in danger".to_owned(),
        (0, None) => "what of yours is in danger is not known".to_owned(),
        (1, _) => "1 danger".to_owned(),
        (some, _) => format!("{some} dangers"),
    }
}

/// What is done to NICs and drives; only what nobody expects of one whose VFs are made is told besides these.
fn nics(plan: &Plan, groups: &IndexMap<Group, Changes>, parts: &mut Vec<String>) {
    let (mut created, mut altered, mut set) = (Vec::new(), Vec::new(), Vec::new());
    let (mut new, mut other) = (0, 0);
    for (group, changes) in groups {
        let Group::Pf(pf) = group else { continue };
        let name = plan.name_of(*pf).unwrap_or_else(|| pf.to_string());
        let on_it = changes.vfs.values().filter(|vf| !vf.before && vf.after).count();
        let kept = changes.vfs.values().filter(|vf| vf.before && vf.after).count();
        if on_it > 0 {
            created.push(name.clone());
        }
        if kept > 0 {
            altered.push(name.clone());
        }
        if on_it == 0 && !changes.own.keys().all(|what| what == "VFs" || what == "driver autoprobe") {
            set.push(name);
        }
        new += on_it;
        other += kept;
    }
    let on = |nics: Vec<String>| match &nics[..] {
        [one] => one.clone(),
        some if plan.drives.is_empty() => format!("{} NICs", some.len()),
        some => format!("{} PFs", some.len()),
    };
    if new > 0 {
        parts.push(format!("{} created on {}", counted(new, "VF"), on(created)));
    }
    if other > 0 {
        parts.push(format!("{} of {} changed", counted(other, "VF"), on(altered)));
    }
    if !set.is_empty() {
        parts.push(format!("settings of {} changed", on(set)));
    }
}

fn guests(groups: &IndexMap<Group, Changes>, parts: &mut Vec<String>) {
    let (mut started, mut made, mut stopped, mut defined, mut removed, mut tuned) = (0, 0, 0, 0, 0, 0);
    for (group, changes) in groups {
        let Group::Guest(_) = group else { continue };
        let state = changes.own.get("state").map(|change| change.after.as_deref());
        let definition = changes.own.get("definition").map(|change| change.after.is_some());
        match (state, definition) {
            (Some(Some("running")), _) => started += 1,
            (Some(Some("suspended")), _) => made += 1,
            (Some(_), _) => stopped += 1,
            (None, Some(true)) => defined += 1,
            (None, Some(false)) => removed += 1,
            (None, None) => tuned += 1,
        }
    }
    let all = [
        (started, "started"),
        (made, "created, suspended"),
        (stopped, "stopped"),
        (defined, "defined"),
        (removed, "removed"),
        (tuned, "set otherwise"),
    ];
    parts.extend(
        all.into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", counted(count, "guest"))),
    );
}

fn others(groups: &IndexMap<Group, Changes>, parts: &mut Vec<String>) {
    let own = |group: &Group| groups.get(group).map(|changes| changes.own.values().collect::<Vec<&Change>>());
    if let Some(machine) = own(&Group::Machine) {
        parts.push(format!("{} of this machine changed", counted(machine.len(), "setting")));
    }
    if let Some(files) = own(&Group::Files) {
        let removed = files.iter().filter(|change| change.after.is_none()).count();
        let written = files.len() - removed;
        parts.extend((written > 0).then(|| format!("{} written", counted(written, "file"))));
        parts.extend((removed > 0).then(|| format!("{} removed", counted(removed, "file"))));
    }
    if let Some(start) = own(&Group::Start) {
        parts.push(format!("{} of the next start changed", counted(start.len(), "setting")));
    }
}
