//! Shares of caches and of memory bandwidth (`Documentation/filesystems/resctrl.rst`).
//!
//! A guest's CPUs are put into a group of their own, so that all that runs there has its shares, whichever thread it is. Ways are
//! exclusive because no other group's mask has them: the default group gives them away first.

use std::collections::BTreeMap;

use penstock_model::{
    CpuSet, GuestName, Path,
    inventory::tuning::{Reading, Resctrl, ResctrlGroup},
};

use super::{RealtimeRequirements, guests, named};
use crate::{
    RealTimeAction,
    action::Schemata,
    draft::{Effect, StepSpec},
    error::error,
    planner::Planner,
};

/// The bandwidth of memory, in percent on CPUs of Intel.
const MEMORY: &str = "MB";

/// The group of a guest.
pub fn group_of(guest: &GuestName) -> String {
    format!("penstock-{guest}")
}

/// The resources of the last-level cache: one, or two where code and data have masks of their own (CDP).
fn last_level(resctrl: &Resctrl) -> Vec<&str> {
    let level = |level: &str| -> Vec<&str> {
        let of = resctrl.masks.keys().map(String::as_str);
        of.filter(|name| {
            [level.to_owned(), format!("{level}CODE"), format!("{level}DATA")].iter().any(|own| own == name)
        })
        .collect()
    };
    let third = level("L3");
    if third.is_empty() { level("L2") } else { third }
}

/// One guest's wishes.
struct Share<'a> {
    name: &'a GuestName,
    pin: &'a CpuSet,
    ways: u32,
    bandwidth: Option<u8>,
}

pub fn steps(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>) {
    let shares: Vec<Share<'_>> = guests(planner.model)
        .filter_map(|(name, guest, pin)| {
            let realtime = guest.realtime.as_ref()?;
            let (cache, bandwidth) = (realtime.cache, realtime.memory_bandwidth.map(|share| share.get()));
            (cache.is_some() || bandwidth.is_some()).then_some(Share {
                name,
                pin,
                ways: cache.unwrap_or_default(),
                bandwidth,
            })
        })
        .collect();
    if shares.is_empty() {
        return;
    }
    let Some(resctrl) = mounted(planner, wishes) else { return };
    let good = can(planner, resctrl, &shares);
    let Some(masks) = masks(planner, resctrl, &shares).filter(|_| good) else { return };
    let default = resctrl.groups.get("").cloned().unwrap_or_default();
    let resources = last_level(resctrl);
    // Every domain is cut alike: which of them a guest's CPUs are in does not matter then.
    let given: u64 = masks.iter().fold(0, |all, mask| all | mask);
    if given != 0 {
        let left = |resource: &&str| {
            let now = default.schemata.get(*resource)?;
            let less: BTreeMap<u32, u64> = now.iter().map(|(at, mask)| (*at, mask & !given)).collect();
            Some(((*resource).to_owned(), now.clone(), less))
        };
        let cut: Vec<_> = resources.iter().filter_map(left).filter(|(_, now, less)| now != less).collect();
        if !cut.is_empty() {
            let before: Schemata = cut.iter().map(|(name, now, _)| (name.clone(), now.clone())).collect();
            let after: Schemata = cut.into_iter().map(|(name, _, less)| (name, less)).collect();
            let action = |schemata| RealTimeAction::SetSchemata { group: String::new(), schemata }.into();
            planner.draft.push(StepSpec::new(
                action(after),
                Some(action(before)),
                Vec::new(),
                Effect::Shares,
                "everybody else keeps off the cache ways that are to be a guest's alone".to_owned(),
            ));
        }
    }
    for (share, mask) in shares.iter().zip(masks) {
        make(planner, resctrl, &default, &resources, share, mask);
    }
}

fn make(
    planner: &mut Planner<'_>,
    resctrl: &Resctrl,
    default: &ResctrlGroup,
    resources: &[&str],
    share: &Share<'_>,
    mask: u64,
) {
    let mut schemata = Schemata::new();
    if mask != 0 {
        for resource in resources {
            let domains = default.schemata.get(*resource).into_iter().flatten();
            schemata.insert((*resource).to_owned(), domains.map(|(at, _)| (*at, mask)).collect());
        }
    }
    if let Some(percent) = share.bandwidth {
        let domains = default.schemata.get(MEMORY).into_iter().flatten();
        schemata.insert(MEMORY.to_owned(), domains.map(|(at, _)| (*at, u64::from(percent))).collect());
    }
    let group = group_of(share.name);
    let settings = ResctrlGroup { cpus: share.pin.clone(), schemata };
    let make =
        |settings: ResctrlGroup| RealTimeAction::MakeResctrlGroup { group: group.clone(), settings }.into();
    let remove =
        |settings: ResctrlGroup| RealTimeAction::RemoveResctrlGroup { group: group.clone(), settings }.into();
    if let Some(found) = resctrl.groups.get(&group) {
        let same = found.cpus == settings.cpus
            && settings
                .schemata
                .iter()
                .all(|(resource, domains)| found.schemata.get(resource) == Some(domains));
        if same {
            return;
        }
        planner.draft.push(StepSpec::new(
            remove(found.clone()),
            Some(make(found.clone())),
            vec![Effect::Shares],
            Effect::Shares,
            format!("it is made anew with what {} is to have now", share.name),
        ));
    }
    let mut what = Vec::new();
    if mask != 0 {
        what.push(format!("{} cache ways of its own", mask.count_ones()));
    }
    what.extend(share.bandwidth.map(|percent| format!("{percent}% of the memory's bandwidth")));
    planner.draft.push(StepSpec::new(
        make(settings.clone()),
        Some(remove(settings)),
        vec![Effect::Shares],
        Effect::Shares,
        format!("{} has {}", share.name, what.join(" and ")),
    ));
}

/// resctrl as it is mounted; says why it is not.
fn mounted<'a>(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'a>) -> Option<&'a Resctrl> {
    let flags = &wishes.tuning.cpu_flags;
    let (what, way_round) = match &wishes.tuning.resctrl {
        Reading::Is(resctrl) => return Some(resctrl),
        Reading::Absent if flags.iter().any(|flag| ["cat_l3", "cat_l2", "mba"].contains(&flag.as_str())) => (
            "guests are to have cache ways or memory bandwidth of their own, and resctrl is not mounted",
            "mount it: mount -t resctrl resctrl /sys/fs/resctrl",
        ),
        Reading::Absent => (
            "guests are to have cache ways or memory bandwidth of their own, and this CPU cannot share them out",
            "leave `cache` and `memory_bandwidth` out: `audit` says what else keeps guests apart",
        ),
        Reading::Denied => ("what resctrl shares out now may not be read", "plan as root"),
        Reading::Unreadable(why) => {
            planner.lack(
                format!("what resctrl shares out now could not be read: {why}"),
                "mount it anew, or leave `cache` and `memory_bandwidth` out".to_owned(),
            );
            return None;
        }
    };
    planner.lack(what.to_owned(), way_round.to_owned());
    None
}

/// Whether the machine can do what is asked of it, apart from how many ways are left.
fn can(planner: &mut Planner<'_>, resctrl: &Resctrl, shares: &[Share<'_>]) -> bool {
    let at = |share: &Share<'_>, key| Path::of(["guests", share.name.as_str(), "realtime", key]);
    let mut found = Vec::new();
    // Groups of guests that have shares no more are no longer theirs, but are there.
    let own = |name: &str| shares.iter().any(|share| group_of(share.name) == name);
    let others = resctrl.groups.keys().filter(|name| !own(name)).count().max(1);
    let room = resctrl.most_groups.unwrap_or(u32::MAX) as usize;
    for share in shares.iter().skip(room.saturating_sub(others)) {
        let key = if share.ways > 0 { "cache" } else { "memory_bandwidth" };
        found.push(error(
            at(share, key),
            format!(
                "{} would need group {} of resctrl, and this CPU has {room}",
                share.name,
                others + shares.len()
            ),
            Some("take `cache` and `memory_bandwidth` from a guest".to_owned()),
        ));
    }
    let in_other_units = not_in_percent(planner, resctrl);
    for share in shares {
        let Some(percent) = share.bandwidth.map(u32::from) else { continue };
        match resctrl.bandwidth {
            Some(_) if in_other_units.is_some() => found.push(error(
                at(share, "memory_bandwidth"),
                format!("{percent}% of the memory's bandwidth cannot be set: {}", in_other_units.unwrap_or_default()),
                Some("leave it out, or set it by hand in the guest's group (/sys/fs/resctrl)".to_owned()),
            )),
            None => found.push(error(
                at(share, "memory_bandwidth"),
                "this CPU cannot limit the bandwidth of memory".to_owned(),
                Some("leave it out".to_owned()),
            )),
            Some((least, _)) if percent < least => found.push(error(
                at(share, "memory_bandwidth"),
                format!("{percent}% of the memory's bandwidth is too little: {least}% is the least here"),
                None,
            )),
            Some((_, step)) if step > 1 && percent % step != 0 => found.push(error(
                at(share, "memory_bandwidth"),
                format!("{percent}% of the memory's bandwidth is between two steps of {step}%: the CPU would round it"),
                Some(format!("write {}% or {}%", percent / step * step, (percent / step + 1) * step)),
            )),
            _ => {}
        }
    }
    for share in shares {
        let taken = resctrl
            .groups
            .iter()
            .find(|(name, group)| !name.is_empty() && !own(name) && !group.cpus.0.is_disjoint(&share.pin.0));
        if let Some((name, group)) = taken {
            planner.refuse(
                format!(
                    "{} of {} are in resctrl group {name}, which is not Penstock's",
                    named(&group.cpus),
                    share.name
                ),
                format!("remove it: rmdir /sys/fs/resctrl/{name}"),
            );
        }
    }
    let good = found.is_empty();
    planner.messages.0.extend(found);
    good
}

/// Why a share of bandwidth is no percentage here (`Documentation/filesystems/resctrl.rst`, "Memory bandwidth Allocation"): of what it
/// would be one, the kernel does not tell.
fn not_in_percent(planner: &Planner<'_>, resctrl: &Resctrl) -> Option<&'static str> {
    let default = resctrl.groups.get("").and_then(|group| group.schemata.get(MEMORY));
    let more = default.is_some_and(|domains| domains.values().any(|share| *share > 100));
    let cpu = &planner.inventory.cpus.model;
    if ["AMD", "Hygon"].iter().any(|vendor| cpu.contains(vendor)) {
        Some("this CPU takes it in eighths of a GB/s")
    } else {
        more.then_some("resctrl takes it in MB/s here (it is mounted with mba_MBps)")
    }
}

/// The ways of each guest: one piece each, from the top, without those that devices write to as well and those of groups
/// that are not ours. What a guest has already stays its.
fn masks(planner: &mut Planner<'_>, resctrl: &Resctrl, shares: &[Share<'_>]) -> Option<Vec<u64>> {
    if shares.iter().all(|share| share.ways == 0) {
        return Some(vec![0; shares.len()]);
    }
    let resources = last_level(resctrl);
    let at = |share: &Share<'_>| Path::of(["guests", share.name.as_str(), "realtime", "cache"]);
    let Some(whole) = resources.iter().map(|name| resctrl.masks[*name]).reduce(|all, mask| all & mask) else {
        let first = shares.iter().find(|share| share.ways > 0)?;
        let hint = "leave it out: this CPU shares out memory bandwidth alone";
        planner.messages.0.push(error(
            at(first),
            "no cache of this CPU can be shared out".to_owned(),
            Some(hint.to_owned()),
        ));
        return None;
    };
    let of = |table: &BTreeMap<String, u64>| {
        resources.iter().filter_map(|name| table.get(*name)).fold(0, |all, mask| all | mask)
    };
    let least = resources.iter().filter_map(|name| resctrl.least_bits.get(*name)).max().copied().unwrap_or(1);
    let own = |name: &str| shares.iter().any(|share| group_of(share.name) == name);
    let has = |group: &ResctrlGroup| {
        let domains = resources.iter().filter_map(|name| group.schemata.get(*name));
        domains.flat_map(BTreeMap::values).fold(0_u64, |all, mask| all | mask)
    };
    // A group that has the whole cache has it only because nobody cut it: that is no claim.
    let claims = resctrl.groups.iter().filter(|(name, _)| !name.is_empty() && !own(name));
    let foreign =
        claims.map(|(_, group)| has(group)).filter(|mask| *mask != whole).fold(0, |all, mask| all | mask);
    let shared = of(&resctrl.shareable);
    let mut free = whole & !shared & !foreign;
    // What the default group gives away.
    let mut given = 0;
    let mut masks = vec![0; shares.len()];
    for (share, mask) in shares.iter().zip(&mut masks) {
        let present = resctrl.groups.get(&group_of(share.name)).map(has).unwrap_or_default();
        if share.ways > 0 && present.count_ones() == share.ways && present & !free == 0 {
            *mask = present;
            free &= !present;
            given |= present;
        }
    }
    let mut wrong = Vec::new();
    for (share, mask) in shares.iter().zip(&mut masks) {
        if share.ways == 0 || *mask != 0 {
            continue;
        }
        let all = whole.count_ones();
        if share.ways < least {
            let text = format!("{} cache ways are too few: a group has at least {least} here", share.ways);
            wrong.push(error(at(share), text, None));
            continue;
        }
        let piece = |from: u32| (((1_u128 << share.ways) - 1) << from) as u64;
        let fits = |from: &u32| {
            let mask = piece(*from);
            mask & !free == 0 && keeps(whole & !given & !mask, least)
        };
        let highest = 64_u32.saturating_sub(share.ways);
        match (0..=highest).rev().find(fits) {
            Some(from) => {
                *mask = piece(from);
                free &= !*mask;
                given |= *mask;
            }
            None => {
                let mut hint = format!("this cache has {all} ways");
                if shared != 0 {
                    hint += &format!(", {} of which devices write to as well", (shared & whole).count_ones());
                }
                let text = match share.ways >= all {
                    true => format!(
                        "{} cache ways for {} leave none of {all} for all others",
                        share.ways, share.name
                    ),
                    false => format!(
                        "{} cache ways in one piece for {} are more than are left",
                        share.ways, share.name
                    ),
                };
                wrong.push(error(at(share), text, Some(hint)));
            }
        }
    }
    let good = wrong.is_empty();
    planner.messages.0.extend(wrong);
    good.then_some(masks)
}

/// Whether `rest` is a mask that the default group may have: one piece (older CPUs take no other) with the least bits.
fn keeps(rest: u64, least: u32) -> bool {
    let run = rest >> rest.trailing_zeros().min(63);
    rest != 0 && rest.count_ones() >= least && run & run.wrapping_add(1) == 0
}

/// Takes a guest's group away when it is stopped, and gives its ways back to all.
pub fn remove_group(planner: &mut Planner<'_>, name: &GuestName) {
    let Some(tuning) = &planner.inventory.tuning else { return };
    let Some(resctrl) = tuning.resctrl.known() else { return };
    let group = group_of(name);
    let Some(found) = resctrl.groups.get(&group) else { return };
    planner.draft.push(StepSpec::new(
        RealTimeAction::RemoveResctrlGroup { group: group.clone(), settings: found.clone() }.into(),
        Some(RealTimeAction::MakeResctrlGroup { group, settings: found.clone() }.into()),
        vec![Effect::Running(name.clone()), Effect::Shares],
        Effect::Shares,
        format!("its cache ways and its bandwidth were {name}'s"),
    ));
    let default = planner.returned.get_or_insert_with(|| {
        resctrl.groups.get("").map(|group| group.schemata.clone()).unwrap_or_default()
    });
    let now: Schemata = default.clone();
    for resource in last_level(resctrl) {
        let whole = resctrl.masks.get(resource).copied().unwrap_or_default();
        let back = found.schemata.get(resource).into_iter().flatten();
        for (domain, mask) in back.filter(|(_, mask)| **mask != whole) {
            if let Some(own) = default.get_mut(resource).and_then(|domains| domains.get_mut(domain)) {
                *own |= mask;
            }
        }
    }
    let changed: Schemata = default
        .iter()
        .filter(|(resource, domains)| now.get(*resource) != Some(*domains))
        .map(|(resource, domains)| (resource.clone(), domains.clone()))
        .collect();
    if changed.is_empty() {
        return;
    }
    let before: Schemata =
        changed.keys().filter_map(|name| Some((name.clone(), now.get(name)?.clone()))).collect();
    let action = |schemata| RealTimeAction::SetSchemata { group: String::new(), schemata }.into();
    planner.draft.push(StepSpec::new(
        action(changed),
        Some(action(before)),
        vec![Effect::Shares],
        Effect::Shares,
        "they are everybody's again".to_owned(),
    ));
}
