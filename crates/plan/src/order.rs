//! In which order guests start.

use std::collections::{HashMap, HashSet};

use penstock_model::{GuestName, Model, NicName};

/// Indices into `model.guests`, in the order in which guests start: each after those in its `after`; where that
/// leaves a choice, a guest that owns a PF before those that own its VFs (moving a PF's interface between namespaces
/// takes it down and resets its VFs), then guests that own a PF, then the file's order.
pub fn start_order(model: &Model) -> Vec<usize> {
    let count = model.guests.len();
    let mut owns_pf = vec![false; count];
    let mut pf_owner: HashMap<&NicName, usize> = HashMap::new();
    for (index, guest) in model.guests.values().enumerate() {
        for function in guest.functions.iter().filter(|function| function.name.vf.is_none()) {
            owns_pf[index] = true;
            pf_owner.insert(&function.name.nic, index);
        }
    }
    // For each guest: whom it starts before, because the model says so or because it owns their PF.
    let mut needed_by = vec![Vec::new(); count];
    let mut preferred_by = vec![HashSet::new(); count];
    let mut needs = vec![0_usize; count];
    let mut prefers = vec![0_usize; count];
    for (index, guest) in model.guests.values().enumerate() {
        for before in guest.after.iter().filter_map(|name| model.guests.get_index_of(name)) {
            needed_by[before].push(index);
            needs[index] += 1;
        }
        for function in &guest.functions {
            if let Some(owner) = pf_owner.get(&function.name.nic)
                && *owner != index
                && preferred_by[*owner].insert(index)
            {
                prefers[index] += 1;
            }
        }
    }
    let mut waiting: Vec<usize> = (0..count).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(position) = (0..waiting.len()).min_by_key(|position| {
        let guest = waiting[*position];
        (needs[guest] > 0, prefers[guest] > 0, !owns_pf[guest], guest)
    }) {
        let guest = waiting.swap_remove(position);
        needed_by[guest].iter().for_each(|after| needs[*after] -= 1);
        preferred_by[guest].iter().for_each(|after| prefers[*after] -= 1);
        order.push(guest);
    }
    order
}

/// The chosen guests and those that they need, directly or not; all when none is chosen.
pub fn with_needed<'a>(model: &'a Model, chosen: &[GuestName]) -> HashSet<&'a GuestName> {
    closure(model, chosen, |name| model.guests[name].after.iter().collect())
}

/// The chosen guests and those that need them, directly or not; all when none is chosen.
pub fn with_dependents<'a>(model: &'a Model, chosen: &[GuestName]) -> HashSet<&'a GuestName> {
    let mut dependents: HashMap<&GuestName, Vec<&GuestName>> = HashMap::new();
    for (name, guest) in &model.guests {
        for before in &guest.after {
            dependents.entry(before).or_default().push(name);
        }
    }
    closure(model, chosen, |name| dependents.get(name).cloned().unwrap_or_default())
}

fn closure<'a>(
    model: &'a Model,
    chosen: &[GuestName],
    next: impl Fn(&GuestName) -> Vec<&'a GuestName>,
) -> HashSet<&'a GuestName> {
    if chosen.is_empty() {
        return model.guests.keys().collect();
    }
    let mut open: Vec<&GuestName> =
        chosen.iter().filter_map(|name| model.guests.get_key_value(name)).map(|(name, _)| name).collect();
    let mut seen = HashSet::new();
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(next(name));
        }
    }
    seen
}
