//! What decides how late a thread wakes, as far as a plan can change it.

use penstock_model::{
    CpuSet,
    inventory::{
        Inventory,
        tuning::{Knob, Partition, Reading, Tuning, Value},
    },
};

use crate::Action;

/// Does what it can of `action`.
pub fn act(inventory: &mut Inventory, action: &Action) {
    match action {
        Action::IsolateGuest { guest, cpus, on } => {
            if let Some(found) = inventory.guests.get_mut(guest) {
                found.isolated = if *on { cpus.clone() } else { CpuSet::default() };
            }
        }
        Action::ScheduleGuest { guest, scheduling } => {
            if let Some(found) = inventory.guests.get_mut(guest) {
                found.scheduling = Some(*scheduling);
            }
        }
        action => {
            if let Some(tuning) = &mut inventory.tuning {
                tune(tuning, action);
            }
        }
    }
}

fn tune(tuning: &mut Tuning, action: &Action) {
    match action {
        Action::Tune { knob, to } => set(tuning, *knob, to),
        Action::MakePartition { group, cpus } => {
            let partition = Partition {
                state: "isolated".to_owned(),
                cpus: cpus.clone(),
                effective: cpus.clone(),
                exclusive: CpuSet::default(),
            };
            tuning.cgroups.partitions.insert(group.clone(), partition);
        }
        Action::RemovePartition { group, .. } => drop(tuning.cgroups.partitions.remove(group)),
        Action::PlaceInterrupts { functions, cpus } => {
            let of =
                tuning.irqs.iter().filter(|(_, irq)| irq.function.is_some_and(|f| functions.contains(&f)));
            let numbers: Vec<u32> = of.map(|(number, _)| *number).collect();
            for number in numbers {
                set(tuning, Knob::IrqAffinity(number), &Value::Cpus(cpus.clone()));
            }
        }
        Action::MakeResctrlGroup { group, settings } => {
            if let Reading::Is(resctrl) = &mut tuning.resctrl {
                resctrl.groups.values_mut().for_each(|other| {
                    other.cpus.0 = other.cpus.0.difference(&settings.cpus.0).copied().collect();
                });
                resctrl.groups.insert(group.clone(), settings.clone());
            }
        }
        Action::RemoveResctrlGroup { group, .. } => {
            if let Reading::Is(resctrl) = &mut tuning.resctrl {
                let cpus = resctrl.groups.remove(group).unwrap_or_default().cpus;
                resctrl.groups.entry(String::new()).or_default().cpus.0.extend(cpus.0);
            }
        }
        Action::SetSchemata { group, schemata } => {
            if let Reading::Is(resctrl) = &mut tuning.resctrl
                && let Some(found) = resctrl.groups.get_mut(group)
            {
                found.schemata.extend(schemata.clone());
            }
        }
        _ => {}
    }
}

fn set(tuning: &mut Tuning, knob: Knob, to: &Value) {
    tuning.knobs.insert(knob, Reading::Is(to.clone()));
    if let (Knob::IrqAffinity(number), Value::Cpus(cpus)) = (knob, to)
        && let Some(irq) = tuning.irqs.get_mut(&number)
    {
        // Where the kernel delivers it of these is not known before.
        irq.effective = Reading::Is(cpus.clone());
    }
}
