//! What decides how late a thread wakes: carried out, and read back.

use penstock_host::{
    Root,
    cgroup::{CgroupError, Cgroups},
    files, irq,
    knob::{self, KnobError},
    resctrl::{ResctrlError, ResctrlGroups, Schemata},
};
use penstock_model::{
    Bdf, CpuSet,
    inventory::tuning::{Knob, ResctrlGroup},
};
use penstock_plan::{ExecuteError, Fact, RealTimeAction};

use super::execute_error;

/// What is seen of a fact: so, or what is so instead.
type Seen = Result<(), String>;

/// Carries `action` out.
///
/// # Errors
///
/// [`ExecuteError::Unsupported`] when the driver has given the interrupt back; when the kernel has no such setting, or refuses it.
pub fn execute(root: &Root, action: &RealTimeAction) -> Result<(), ExecuteError> {
    let at = format!("{action}: not done");
    match action {
        RealTimeAction::Tune { knob, function: Some(function), .. }
            if has_left(root, *knob, Some(*function)) =>
        {
            Err(ExecuteError::Unsupported(format!(
                "the driver of {function} has given the interrupt back since this was planned"
            )))
        }
        RealTimeAction::Tune { knob, to, .. } => {
            knob::write(root, *knob, to).map_err(|error| from_knob(&at, error))
        }
        RealTimeAction::MakePartition { group, cpus } => Cgroups::of(root)
            .and_then(|groups| groups.make_partition(group, cpus))
            .map_err(|error| from_cgroup(&at, error)),
        RealTimeAction::RemovePartition { group, .. } => match Cgroups::of(root) {
            // Without such groups there is none to remove.
            Err(CgroupError::NotVersion2 | CgroupError::NoCpuset) => Ok(()),
            groups => groups
                .and_then(|groups| groups.remove_partition(group))
                .map_err(|error| from_cgroup(&at, error)),
        },
        RealTimeAction::PlaceInterrupts { functions, cpus } => {
            let placed = functions.iter().map(|function| irq::place(root, *function, cpus));
            // Each is tried, whatever became of the one before.
            placed.fold(Ok(()), Result::and).map_err(|error| from_knob(&at, error))
        }
        RealTimeAction::MakeResctrlGroup { group, settings } => ResctrlGroups::of(root)
            .and_then(|groups| groups.make(group, settings))
            .map_err(|error| from_resctrl(&at, error)),
        RealTimeAction::RemoveResctrlGroup { group, .. } => match ResctrlGroups::of(root) {
            Err(ResctrlError::NotMounted) => Ok(()),
            groups => {
                groups.and_then(|groups| groups.remove(group)).map_err(|error| from_resctrl(&at, error))
            }
        },
        RealTimeAction::SetSchemata { group, schemata } => ResctrlGroups::of(root)
            .and_then(|groups| groups.set_schemata(group, schemata))
            .map_err(|error| from_resctrl(&at, error)),
    }
}

/// Whether what `action` is done to has left the machine: an interrupt that its driver gave back, a CPU that went off line.
pub fn is_gone(root: &Root, action: &RealTimeAction) -> bool {
    matches!(action, RealTimeAction::Tune { knob, function, .. } if has_left(root, *knob, *function))
}

/// Whether a knob is not there, or is of an interrupt that its function has no longer, though it be another's by now.
fn has_left(root: &Root, knob: Knob, function: Option<Bdf>) -> bool {
    match (knob, function) {
        (Knob::IrqAffinity(number), Some(function)) => !irq::of_function(root, function).contains(&number),
        _ => !files::exists(root.path(knob.to_string())),
    }
}

/// Reads `fact` back if it is one of these.
pub fn holds(root: &Root, fact: &Fact) -> Option<Result<Seen, ExecuteError>> {
    let at = format!("could not see whether {fact}");
    Some(match fact {
        Fact::KnobIs { knob, value } => match knob::read(root, *knob) {
            Ok(seen) if seen == *value => Ok(Ok(())),
            Ok(seen) => Ok(Err(format!("it holds {seen}"))),
            Err(error) => Err(from_knob(&at, error)),
        },
        Fact::Partition { group, cpus } => {
            partition(root, group, cpus).map_err(|error| from_cgroup(&at, error))
        }
        Fact::NoPartition { group } => match Cgroups::of(root) {
            Ok(groups) if groups.has_partition(group) => Ok(Err("it is there".to_owned())),
            Ok(_) | Err(CgroupError::NotVersion2 | CgroupError::NoCpuset) => Ok(Ok(())),
            Err(error) => Err(from_cgroup(&at, error)),
        },
        Fact::InterruptsAt { functions, cpus } => {
            Ok(functions.iter().try_for_each(|function| interrupts(root, *function, cpus)))
        }
        Fact::ResctrlGroupIs { group, settings } => {
            resctrl(root, group, |seen| same(seen, settings)).map_err(|error| from_resctrl(&at, error))
        }
        Fact::NoResctrlGroup { group } => match ResctrlGroups::of(root) {
            Ok(groups) if groups.has(group) => Ok(Err("it is there".to_owned())),
            _ => Ok(Ok(())),
        },
        Fact::SchemataAre { group, schemata } => {
            resctrl(root, group, |seen| shares(&seen.schemata, schemata))
                .map_err(|error| from_resctrl(&at, error))
        }
        _ => return None,
    })
}

fn partition(root: &Root, group: &str, cpus: &CpuSet) -> Result<Seen, CgroupError> {
    let groups = Cgroups::of(root)?;
    if !groups.has_partition(group) {
        return Ok(Err("there is no such group".to_owned()));
    }
    let path = format!("/{}", group.trim_start_matches('/'));
    Ok(match groups.isolated(&path)? {
        Some(seen) if seen == *cpus => Ok(()),
        Some(seen) => Err(format!("it has the CPUs {seen}")),
        None => Err(format!("the kernel calls it `{}`", groups.state(&path)?)),
    })
}

/// Some interrupts move only when they come the next time (an I/O APIC's): what was asked for counts then.
fn interrupts(root: &Root, function: Bdf, cpus: &CpuSet) -> Seen {
    for (number, seen) in irq::deliveries(root, function) {
        if seen.allowed != *cpus && !seen.effective.0.is_subset(&cpus.0) {
            return Err(format!("interrupt {number} of {function} goes to the CPUs {}", seen.effective));
        }
    }
    Ok(())
}

fn resctrl(
    root: &Root,
    group: &str,
    judge: impl FnOnce(&ResctrlGroup) -> Seen,
) -> Result<Seen, ResctrlError> {
    match ResctrlGroups::of(root)?.read(group) {
        Ok(seen) => Ok(judge(&seen)),
        Err(error @ ResctrlError::Gone { .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

fn same(seen: &ResctrlGroup, wanted: &ResctrlGroup) -> Seen {
    if seen.cpus != wanted.cpus {
        return Err(format!("it has the CPUs {}", seen.cpus));
    }
    shares(&seen.schemata, &wanted.schemata)
}

/// Whether the resources that are wanted have these shares; the kernel names all domains, a plan those that it changes.
fn shares(seen: &Schemata, wanted: &Schemata) -> Seen {
    for (resource, domains) in wanted {
        let seen = seen.get(resource);
        for (domain, share) in domains {
            let found = seen.and_then(|seen| seen.get(domain));
            if found != Some(share) {
                let found = found.map_or("none".to_owned(), |found| format!("{found:x}"));
                return Err(format!("{resource} of domain {domain} is {found}"));
            }
        }
    }
    Ok(())
}

fn from_knob(attempt: &str, error: KnobError) -> ExecuteError {
    let (unsupported, hint) = (error.is_unsupported(), error.hint().map(str::to_owned));
    execute_error(attempt, error, unsupported, hint)
}

fn from_cgroup(attempt: &str, error: CgroupError) -> ExecuteError {
    let hint = error.hint().map(str::to_owned);
    execute_error(attempt, error, false, hint)
}

fn from_resctrl(attempt: &str, error: ResctrlError) -> ExecuteError {
    let hint = error.hint().map(str::to_owned);
    execute_error(attempt, error, false, hint)
}

#[cfg(test)]
mod tests {
    use penstock_model::inventory::tuning::Value;

    use super::*;

    fn tree(texts: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (path, text) in texts {
            let path = root.path(path);
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write_atomic(path, text).unwrap();
        }
        (directory, root)
    }

    /// Carries the action out and reads its own postcondition back.
    fn done(root: &Root, action: RealTimeAction) -> Seen {
        execute(root, &action).unwrap();
        holds(root, &action.after()).unwrap().unwrap()
    }

    #[test]
    fn a_knob_is_turned_there_and_back() {
        let latency = Knob::ResumeLatency(2);
        let (_directory, root) = tree(&[(&latency.to_string(), "0\n")]);
        let tune = |knob, to| RealTimeAction::Tune { knob, to, function: None };
        let strict = tune(latency, Value::Word("n/a".to_owned()));
        let before = tune(latency, Value::Number(0));
        assert_eq!(done(&root, strict.clone()), Ok(()));
        let held = holds(&root, &before.after()).unwrap().unwrap();
        assert_eq!(held, Err("it holds n/a".to_owned()));
        assert_eq!(done(&root, before), Ok(()));
        assert!(!is_gone(&root, &strict));
        let absent = tune(Knob::Governor(2), Value::Word("performance".to_owned()));
        assert!(is_gone(&root, &absent));
        assert!(matches!(execute(&root, &absent), Err(ExecuteError::Unsupported(_))));
    }

    #[test]
    fn interrupts_of_functions_are_looked_up_when_they_are_placed() {
        let (_directory, root) = tree(&[
            ("/sys/bus/pci/devices/0000:04:10.0/msi_irqs/37", "msix\n"),
            ("/proc/irq/37/smp_affinity_list", "0-3\n"),
        ]);
        let functions = ["0000:04:10.0".parse().unwrap(), "0000:04:10.2".parse().unwrap()].into();
        let place = RealTimeAction::PlaceInterrupts { functions, cpus: "1".parse().unwrap() };
        let before = holds(&root, &place.after()).unwrap().unwrap();
        assert!(before.unwrap_err().contains("interrupt 37 of 0000:04:10.0 goes to the CPUs 0-3"));
        assert_eq!(done(&root, place), Ok(()));
    }

    #[test]
    fn an_interrupt_that_its_driver_gave_back_is_gone_though_another_has_its_number() {
        let (_directory, root) = tree(&[
            ("/sys/bus/pci/devices/0000:04:10.0/msi_irqs/37", "msix\n"),
            ("/proc/irq/37/smp_affinity_list", "0-3\n"),
        ]);
        let at = |cpus: &str| Value::Cpus(cpus.parse().unwrap());
        let of = |function: &str, cpus: &str| RealTimeAction::Tune {
            knob: Knob::IrqAffinity(37),
            to: at(cpus),
            function: Some(function.parse().unwrap()),
        };
        assert_eq!(done(&root, of("0000:04:10.0", "1")), Ok(()));
        let others = of("0000:04:10.2", "2");
        assert!(is_gone(&root, &others) && !is_gone(&root, &of("0000:04:10.0", "2")));
        assert!(matches!(execute(&root, &others), Err(ExecuteError::Unsupported(_))));
        assert_eq!(knob::read(&root, Knob::IrqAffinity(37)).unwrap(), at("1"));
    }

    #[test]
    fn shares_are_compared_where_they_are_wanted() {
        let (_directory, root) = tree(&[
            ("/sys/fs/resctrl/schemata", "    L3:0=fff;1=fff\n    MB:0=100;1=100\n"),
            ("/sys/fs/resctrl/cpus_list", "0-7\n"),
        ]);
        let wanted: Schemata = [("L3".to_owned(), [(0, 0xff0)].into())].into();
        let set = RealTimeAction::SetSchemata { group: String::new(), schemata: wanted };
        let before = holds(&root, &set.after()).unwrap().unwrap();
        assert_eq!(before, Err("L3 of domain 0 is fff".to_owned()));
        assert_eq!(done(&root, set), Ok(()));
        let none = Fact::NoResctrlGroup { group: "penstock-rt".to_owned() };
        assert_eq!(holds(&root, &none).unwrap().unwrap(), Ok(()));
        let gone = RealTimeAction::RemoveResctrlGroup {
            group: "penstock-rt".to_owned(),
            settings: ResctrlGroup::default(),
        };
        assert_eq!(done(&root, gone), Ok(()));
    }

    #[test]
    fn machines_that_cannot_say_so_and_what_to_do() {
        let (_directory, root) = tree(&[]);
        let partition =
            RealTimeAction::MakePartition { group: "penstock".to_owned(), cpus: "2".parse().unwrap() };
        let group =
            RealTimeAction::MakeResctrlGroup { group: "rt".to_owned(), settings: ResctrlGroup::default() };
        for action in [partition, group] {
            let Err(ExecuteError::Missing { what, hint }) = execute(&root, &action) else {
                panic!("{action}")
            };
            assert!(what.contains("not") && !hint.is_empty(), "{what}: {hint}");
        }
        // What cannot be there need not be removed.
        let remove =
            RealTimeAction::RemovePartition { group: "penstock".to_owned(), cpus: "2".parse().unwrap() };
        assert_eq!(done(&root, remove), Ok(()));
    }
}
