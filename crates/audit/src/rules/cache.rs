//! Shared caches and memory bandwidth (`Documentation/filesystems/resctrl.rst`).

use penstock_model::{
    CpuSet,
    audit::{Currency, Layer},
    inventory::tuning::{Resctrl, ResctrlGroup},
};

use crate::{
    advice::{Advice, by_hand, model, write},
    machine::{Machine, read},
    rule::{Finding, Need, NoFinding, Rule, RuleResult, left_out},
    sets::{both, named, without},
};

const RESCTRL: &str = "Documentation/filesystems/resctrl.rst";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "cache-allocation",
        layer: Layer::Cache,
        what: "whether isolated CPUs have ways of the last-level cache that are theirs alone (resctrl)",
        why: "housekeeping work throws out what a real-time guest has in a shared cache; whether that shows is to be measured",
        price: Some((Currency::Throughput, "everybody else has a smaller cache")),
        source: RESCTRL,
        needs_root: true,
        need: Need::Cache,
        judge: allocation,
    },
    Rule {
        id: "cache-ways-shared-with-devices",
        layer: Layer::Cache,
        what: "ways of groups of their own that devices write to as well (shareable_bits)",
        why: "NICs write arriving frames straight into those ways (DDIO) and throw out what the guest has there",
        price: None,
        source: "https://github.com/intel/intel-cmt-cat/issues/128",
        needs_root: true,
        need: Need::Always,
        judge: with_devices,
    },
    Rule {
        id: "cache-groups-overlap",
        layer: Layer::Cache,
        what: "ways that two groups have",
        why: "a way that two groups may fill belongs to none of them",
        price: None,
        source: RESCTRL,
        needs_root: true,
        need: Need::Always,
        judge: overlap,
    },
    Rule {
        id: "cache-group-without-its-cpus",
        layer: Layer::Cache,
        what: "groups of their own whose CPUs are not isolated",
        why: "the ways are kept for CPUs that everybody may use",
        price: None,
        source: RESCTRL,
        needs_root: true,
        need: Need::Always,
        judge: without_cpus,
    },
];

fn resctrl<'a>(machine: &Machine<'a>) -> Result<Option<&'a Resctrl>, NoFinding> {
    read(&machine.tuning.resctrl, "/sys/fs/resctrl")
}

fn mounted<'a>(machine: &Machine<'a>) -> Result<&'a Resctrl, NoFinding> {
    if let Some(why) = machine.tuning.unread.resctrl.first() {
        return crate::rule::unknown(why.as_str());
    }
    match resctrl(machine)? {
        Some(resctrl) if resctrl.groups.len() > 1 => Ok(resctrl),
        Some(_) => left_out("resctrl has no group but the default one"),
        None => left_out("resctrl is not mounted"),
    }
}

const FLAGS: [&str; 4] = ["cat_l3", "cat_l2", "cdp_l3", "mba"];

fn allocation(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let can = FLAGS.into_iter().filter(|flag| machine.tuning.cpu_flags.contains(*flag)).collect::<Vec<_>>();
    let asked = machine.requirements.as_ref().is_some_and(|requirements| requirements.need(Need::Cache));
    let Some(resctrl) = resctrl(machine)? else {
        if machine.tuning.cpu_flags.is_empty() {
            return crate::rule::unknown("the CPU's flags could not be read");
        }
        if can.is_empty() {
            let why = "this CPU cannot share out its caches or its memory bandwidth";
            return if asked {
                Finding::fail(
                    why,
                    "cat_l3",
                    model("no `cache:` and no `memory_bandwidth:`")
                        .beware("the guest then shares the cache: another CPU can share it out"),
                )
                .into()
            } else {
                left_out(why)
            };
        }
        let how = by_hand("mount -t resctrl resctrl /sys/fs/resctrl").and(model("realtime: {cache: 4}"));
        let read = format!("not mounted; the CPU has {}", can.join(" "));
        return if asked {
            Finding::fail(read, "mounted", how).into()
        } else {
            Finding::recorded(read, "ways of their own where that measures better").changed_by(how).into()
        };
    };
    let own: Vec<String> = resctrl
        .groups
        .iter()
        .filter(|(name, group)| !name.is_empty() && !both(&group.cpus, kept).0.is_empty())
        .map(|(name, group)| format!("{name} ({})", named(&group.cpus)))
        .collect();
    let wanted = "ways of their own where that measures better";
    if own.is_empty() {
        return Finding::recorded("no group of their own", wanted)
            .changed_by(model("realtime: {cache: 4}"))
            .into();
    }
    Finding::recorded(own.join(", "), wanted).into()
}

fn is_cache(resource: &str) -> bool {
    resource.starts_with('L')
}

/// Whether a group's share of this domain is used: of a cache that none of its CPUs is behind it has whatever it was made with.
/// A group without CPUs has tasks, which run anywhere.
fn uses(machine: &Machine<'_>, resource: &str, group: &ResctrlGroup, domain: u32) -> bool {
    let level = resource.as_bytes().get(1).map(|digit| u32::from(digit.wrapping_sub(b'0')));
    let mut caches: Vec<&CpuSet> = machine
        .inventory
        .cpus
        .caches
        .iter()
        .filter(|cache| Some(cache.level) == level)
        .map(|cache| &cache.cpus)
        .collect();
    caches.sort_by_key(|cpus| cpus.0.first());
    caches.dedup();
    // The inventory does not keep the caches' ids, which count up with their sockets.
    let domains: Vec<u32> =
        group.schemata.get(resource).into_iter().flatten().map(|(domain, _)| *domain).collect();
    if group.cpus.0.is_empty() || domains.len() != caches.len() {
        return true;
    }
    let position = domains.iter().position(|other| *other == domain);
    position.is_none_or(|position| !both(caches[position], &group.cpus).0.is_empty())
}

/// A group with other ways in some domains of a resource. Ways of a group are to be next to each other on most CPUs, so that the
/// longest run of what is left is taken.
fn ways_left(resctrl: &Resctrl, name: &str, resource: &str, masks: &[(u32, u64)]) -> Option<Advice> {
    let least = resctrl.least_bits.get(resource).copied().unwrap_or(1).max(1);
    let mut domains = Vec::new();
    for (domain, left) in masks {
        let run = longest_run(*left);
        if run.count_ones() < least {
            return None;
        }
        domains.push(format!("{domain}={run:x}"));
    }
    let path = if name.is_empty() {
        "/sys/fs/resctrl/schemata".to_owned()
    } else {
        format!("/sys/fs/resctrl/{name}/schemata")
    };
    Some(write(path, format!("{resource}:{}", domains.join(";"))))
}

/// The longest run of ones, the lowest of several.
fn longest_run(mask: u64) -> u64 {
    let (mut best, mut at) = (0_u64, 0_u32);
    while at < u64::BITS {
        let rest = mask >> at;
        let length = rest.trailing_ones();
        if length == 0 {
            at += rest.trailing_zeros().max(1);
            continue;
        }
        if length > best.count_ones() {
            best = (u64::MAX >> (u64::BITS - length)) << at;
        }
        at += length;
    }
    best
}

fn with_devices(machine: &Machine<'_>) -> RuleResult {
    let resctrl = mounted(machine)?;
    let wanted = "no way that devices write to";
    let mut found = Vec::new();
    for (name, group) in resctrl.groups.iter().filter(|(name, _)| !name.is_empty()) {
        for (resource, domains) in group.schemata.iter().filter(|(resource, _)| is_cache(resource)) {
            let devices = resctrl.shareable.get(resource).copied().unwrap_or(0);
            let shared: Vec<(u32, u64)> = domains
                .iter()
                .filter(|(domain, mask)| *mask & devices != 0 && uses(machine, resource, group, **domain))
                .map(|(domain, mask)| (*domain, *mask))
                .collect();
            if !shared.is_empty() {
                let texts: Vec<String> =
                    shared.iter().map(|(domain, mask)| format!("{resource}:{domain}={mask:x}")).collect();
                let read = format!("{}, devices write to {devices:x}", texts.join(" "));
                let left: Vec<_> = shared.iter().map(|(domain, mask)| (*domain, mask & !devices)).collect();
                let how = ways_left(resctrl, name, resource, &left).unwrap_or_else(|| {
                    by_hand(format!("give {name} ways outside of {devices:x} in /sys/fs/resctrl/{name}/schemata, and take them from another group"))
                });
                found.push(Finding::conflict(read, wanted, how).about(format!("resctrl group {name}")));
            }
        }
    }
    if found.is_empty() { Finding::pass("none", wanted).into() } else { Ok(found) }
}

fn overlap(machine: &Machine<'_>) -> RuleResult {
    let resctrl = mounted(machine)?;
    let wanted = "each way in one group";
    let called = |name: &str| if name.is_empty() { "the default group".to_owned() } else { name.to_owned() };
    let groups: Vec<_> = resctrl.groups.iter().collect();
    let mut found = Vec::new();
    for (n, (one, group)) in groups.iter().enumerate() {
        for (other, others) in &groups[n + 1..] {
            let (mut shared, mut how) = (Vec::new(), None);
            for (resource, domains) in group.schemata.iter().filter(|(resource, _)| is_cache(resource)) {
                let (mut mine, mut yours) = (Vec::new(), Vec::new());
                for (domain, mask) in domains {
                    let theirs = others
                        .schemata
                        .get(resource)
                        .and_then(|domains| domains.get(domain))
                        .copied()
                        .unwrap_or(0);
                    let used =
                        [group, others].into_iter().all(|group| uses(machine, resource, group, *domain));
                    if mask & theirs != 0 && used {
                        shared.push(format!("{resource}:{domain}={:x}", mask & theirs));
                        mine.push((*domain, mask & !theirs));
                        yours.push((*domain, theirs & !mask));
                    }
                }
                if !mine.is_empty() {
                    let way = ways_left(resctrl, one, resource, &mine)
                        .or_else(|| ways_left(resctrl, other, resource, &yours));
                    how = match (how, way) {
                        (Some(how), Some(way)) => Some(Advice::and(how, way)),
                        (how, way) => how.or(way),
                    };
                }
            }
            if !shared.is_empty() {
                let read = format!("{} and {} both have {}", called(one), called(other), shared.join(" "));
                let how = how.unwrap_or_else(|| {
                    by_hand(format!(
                        "take them out of {} or of {} in its schemata, and give that other ones",
                        called(one),
                        called(other)
                    ))
                });
                found.push(
                    Finding::conflict(read, wanted, how).about(format!("resctrl group {}", called(other))),
                );
            }
        }
    }
    if found.is_empty() { Finding::pass("none in two", wanted).into() } else { Ok(found) }
}

fn without_cpus(machine: &Machine<'_>) -> RuleResult {
    let resctrl = mounted(machine)?;
    let kept = machine.kept()?;
    let wanted = "its CPUs isolated";
    let mut found = Vec::new();
    let mut seen = 0;
    for (name, group) in resctrl.groups.iter().filter(|(name, _)| !name.is_empty()) {
        if group.cpus.0.is_empty() {
            continue;
        }
        seen += 1;
        let bare = without(&group.cpus, kept);
        if !bare.0.is_empty() {
            let how = write(format!("/sys/fs/resctrl/{name}/cpus_list"), without(&group.cpus, &bare))
                .or(model(format!("realtime: {{isolated: {}}}", crate::sets::either(kept, &bare))));
            found.push(
                Finding::conflict(format!("{} not isolated", named(&bare)), wanted, how)
                    .about(format!("resctrl group {name}")),
            );
        }
    }
    match (seen, found.is_empty()) {
        (0, _) => left_out("no group has CPUs of its own"),
        (_, true) => Finding::pass(format!("{seen} with isolated ones"), wanted).into(),
        (_, false) => Ok(found),
    }
}
