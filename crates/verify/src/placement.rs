//! A VM's CPUs and memory, as the host shows them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use penstock_host::threads::VmObservation;
use penstock_model::{
    ByteSize, CpuSet, Guest, GuestKind, GuestName, Model, Outcome, VM_MEMORY, Verdict,
    verdict::{Subject, Vantage},
};

use super::writer::{Unobserved, VerdictSheet, VerdictWriter};

/// Compares the CPUs and the memory of every VM of `model` with what was seen of its process: `cpus`, `memory`, `pin`,
/// `emulator`, `locked_memory`, `huge_pages`, as far as the model says something of them. `online` are the host's CPUs. A
/// VM that is missing in `sights` was not looked at; an error there says why it could not be.
pub fn placement(
    model: &Model,
    online: &CpuSet,
    sights: &BTreeMap<GuestName, Result<VmObservation, String>>,
) -> Vec<Verdict> {
    let mut sheet = VerdictSheet::default();
    let nothing = BTreeSet::new();
    let unseen = Err("not observed".to_owned());
    for (name, guest) in model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm) {
        let sight =
            sights.get(name).unwrap_or(&unseen).as_ref().map_err(|why| Unobserved::Unknown(why.clone()));
        let mut page = sheet.page(Subject::Guest(name.clone()), Vantage::Host, &nothing);
        counts(guest, &sight, &mut page);
        pins(model, name, guest, &sight, &mut page);
        emulator(model, name, guest, online, &sight, &mut page);
        kept_in_memory(guest, &sight, &mut page);
    }
    sheet.verdicts
}

type Seen<'a> = Result<&'a VmObservation, Unobserved>;

fn counts(guest: &Guest, sight: &Seen<'_>, page: &mut VerdictWriter<'_>) {
    let pinned = guest.pin.as_ref().map(|pin| pin.0.len());
    let cpus = guest.cpus.map(|cpus| cpus as usize).or(pinned).unwrap_or(1);
    page.compare("cpus", cpus, sight.clone().map(|sight| sight.vcpu_affinity.len()));
    let memory = sight.clone().and_then(|sight| {
        let why = || Unobserved::Unknown("QEMU's command line does not say".to_owned());
        sight.memory.map(ByteSize).ok_or_else(why)
    });
    page.compare("memory", guest.memory.unwrap_or(VM_MEMORY), memory);
}

/// A pinned guest runs just where it is pinned; any other on no CPU that is another guest's alone.
fn pins(model: &Model, name: &GuestName, guest: &Guest, sight: &Seen<'_>, page: &mut VerdictWriter<'_>) {
    let told = |cpus: &[CpuSet]| {
        let each: Vec<String> =
            cpus.iter().enumerate().map(|(vcpu, cpus)| format!("vCPU {vcpu} on {cpus}")).collect();
        each.join(", ")
    };
    if let Some(pin) = &guest.pin {
        let wanted: Vec<CpuSet> = pin.0.iter().map(|cpu| CpuSet([*cpu].into())).collect();
        let count = guest.cpus.map_or(wanted.len(), |cpus| cpus as usize).min(wanted.len());
        return match sight {
            Ok(sight) => page.compare("pin", told(&wanted[..count]), Ok(told(&sight.vcpu_affinity))),
            Err(blind) => page.blind("pin", told(&wanted[..count]), blind.clone()),
        };
    }
    let Some((taken, wanted)) = others_alone(model, name) else { return };
    match sight {
        Ok(sight) => {
            let outcome = all_clear(&sight.vcpu_affinity, &taken);
            page.put("pin", wanted, told(&sight.vcpu_affinity), outcome);
        }
        Err(blind) => page.blind("pin", wanted, blind.clone()),
    }
}

/// QEMU's other threads run where the model says; of a pinned guest on the CPUs that no guest is pinned to, as far as
/// there are any; of any on no CPU that is another guest's alone.
fn emulator(
    model: &Model,
    name: &GuestName,
    guest: &Guest,
    online: &CpuSet,
    sight: &Seen<'_>,
    page: &mut VerdictWriter<'_>,
) {
    let pinned: BTreeSet<u32> = model
        .guests
        .values()
        .filter_map(|guest| guest.pin.as_ref())
        .flat_map(|pin| &pin.0)
        .copied()
        .collect();
    let free = || {
        let free: BTreeSet<u32> = online.0.difference(&pinned).copied().collect();
        (guest.pin.is_some() && !free.is_empty()).then_some(CpuSet(free))
    };
    if let Some(wanted) = guest.vm.emulator.clone().or_else(free) {
        return page.compare("emulator", wanted, sight.clone().map(|sight| sight.emulator_affinity.clone()));
    }
    let Some((taken, wanted)) = others_alone(model, name) else { return };
    match sight {
        Ok(sight) => {
            let seen = &sight.emulator_affinity;
            page.put("emulator", wanted, seen, all_clear(std::slice::from_ref(seen), &taken));
        }
        Err(blind) => page.blind("emulator", wanted, blind.clone()),
    }
}

/// The CPUs that are other guests' alone, with what that asks for in words.
fn others_alone(model: &Model, name: &GuestName) -> Option<(BTreeSet<u32>, String)> {
    let others = model.guests.iter().filter(|(other, guest)| *other != name && guest.exclusive);
    let taken: BTreeSet<u32> =
        others.filter_map(|(_, guest)| guest.pin.as_ref()).flat_map(|pin| &pin.0).copied().collect();
    let wanted = format!("none of {}, which are other guests' alone", CpuSet(taken.clone()));
    (!taken.is_empty()).then_some((taken, wanted))
}

fn all_clear(cpus: &[CpuSet], taken: &BTreeSet<u32>) -> Outcome {
    if cpus.iter().all(|cpus| cpus.0.is_disjoint(taken)) { Outcome::Pass } else { Outcome::Fail }
}

fn kept_in_memory(guest: &Guest, sight: &Seen<'_>, page: &mut VerdictWriter<'_>) {
    let memory = guest.memory.unwrap_or(VM_MEMORY);
    if guest.vm.locked_memory {
        let wanted = format!("at least {memory}");
        let locked = sight.clone().and_then(|sight| {
            sight
                .locked
                .ok_or_else(|| Unobserved::Unknown("the kernel does not say what is locked".to_owned()))
        });
        match locked {
            Ok(locked) => {
                let outcome = if locked >= memory.0 { Outcome::Pass } else { Outcome::Fail };
                page.put("locked_memory", wanted, ByteSize(locked), outcome);
            }
            Err(blind) => page.blind("locked_memory", wanted, blind),
        }
    }
    if let Some(size) = guest.vm.huge_pages {
        let wanted = format!("at least {memory} in pages of {size}");
        let huge = sight.clone().and_then(|sight| {
            let why = || Unobserved::Unknown("the map of its memory could not be read".to_owned());
            sight.huge.as_ref().ok_or_else(why)
        });
        match huge {
            Ok(huge) => {
                let enough = huge.get(&size.0).is_some_and(|bytes| *bytes >= memory.0);
                let told: Vec<String> = huge
                    .iter()
                    .map(|(page, bytes)| format!("{} in pages of {}", ByteSize(*bytes), ByteSize(*page)))
                    .collect();
                let told = if told.is_empty() { "no huge pages".to_owned() } else { told.join(", ") };
                page.put("huge_pages", wanted, told, if enough { Outcome::Pass } else { Outcome::Fail });
            }
            Err(blind) => page.blind("huge_pages", wanted, blind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "nics: {A: {vfs: 2}}\nguests:\n  \
        rt: {kind: vm, memory: 512MiB, pin: 2-3, exclusive: on, locked_memory: on, huge_pages: 2MiB, functions: [A#0]}\n  \
        any: {kind: vm, functions: [A#1]}\n";

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn rt() -> VmObservation {
        VmObservation {
            vcpu_affinity: vec![cpus("2"), cpus("3")],
            emulator_affinity: cpus("0-1"),
            memory: Some(512 << 20),
            locked: Some(600 << 20),
            huge: Some([(2 << 20, 512 << 20)].into()),
        }
    }

    fn any() -> VmObservation {
        VmObservation {
            vcpu_affinity: vec![cpus("0-1")],
            emulator_affinity: cpus("0-1"),
            memory: Some(256 << 20),
            ..VmObservation::default()
        }
    }

    fn judge(rt: Result<VmObservation, String>, any: Result<VmObservation, String>) -> Vec<Verdict> {
        let model = penstock_model::parse(&penstock_model::Source::new("m.yaml", MODEL)).unwrap().model;
        let sights = [("rt".parse().unwrap(), rt), ("any".parse().unwrap(), any)].into();
        placement(&model, &cpus("0-3"), &sights)
    }

    fn not_passed(verdicts: &[Verdict]) -> Vec<String> {
        verdicts
            .iter()
            .filter(|verdict| verdict.outcome != Outcome::Pass)
            .map(|v| format!("{} {}: {}", v.subject, v.attribute, v.outcome))
            .collect()
    }

    #[test]
    fn vms_that_are_where_the_model_wants_them_pass_whole() {
        let verdicts = judge(Ok(rt()), Ok(any()));
        assert_eq!(not_passed(&verdicts), Vec::<String>::new());
        let of = |name: &str| -> Vec<&str> {
            let of = verdicts.iter().filter(|verdict| verdict.subject.to_string() == name);
            of.map(|verdict| &verdict.attribute[..]).collect()
        };
        assert_eq!(of("rt"), ["cpus", "memory", "pin", "emulator", "locked_memory", "huge_pages"]);
        assert_eq!(of("any"), ["cpus", "memory", "pin", "emulator"]);
    }

    #[test]
    fn whatever_is_otherwise_fails() {
        type Change = fn(&mut VmObservation);
        let of_rt: [(Change, &[&str]); 8] = [
            (|s| s.vcpu_affinity.swap(0, 1), &["rt pin: fail"]),
            (|s| s.vcpu_affinity[1] = cpus("0-3"), &["rt pin: fail"]),
            (|s| drop(s.vcpu_affinity.pop()), &["rt cpus: fail", "rt pin: fail"]),
            (|s| s.emulator_affinity = cpus("0-2"), &["rt emulator: fail"]),
            (|s| s.memory = Some(256 << 20), &["rt memory: fail"]),
            (|s| s.locked = Some(256 << 20), &["rt locked_memory: fail"]),
            (|s| s.huge = Some([(1 << 30, 1 << 30)].into()), &["rt huge_pages: fail"]),
            (|s| s.huge = None, &["rt huge_pages: unknown"]),
        ];
        for (change, expected) in of_rt {
            let mut sight = rt();
            change(&mut sight);
            assert_eq!(not_passed(&judge(Ok(sight), Ok(any()))), expected);
        }
        let of_any: [(Change, &str); 2] = [
            (|s| s.vcpu_affinity[0] = cpus("0-2"), "any pin: fail"),
            (|s| s.emulator_affinity = cpus("3"), "any emulator: fail"),
        ];
        for (change, expected) in of_any {
            let mut sight = any();
            change(&mut sight);
            assert_eq!(not_passed(&judge(Ok(rt()), Ok(sight))), [expected]);
        }
    }

    #[test]
    fn what_was_not_seen_is_unknown_and_not_left_out() {
        let whole = judge(Ok(rt()), Ok(any())).len();
        let blind = judge(Err("it does not run".to_owned()), Err("it does not run".to_owned()));
        assert_eq!(blind.len(), whole);
        assert!(blind.iter().all(|v| v.outcome == Outcome::Unknown && v.seen == "it does not run"));
    }
}
