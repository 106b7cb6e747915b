//! Which of a large machine's paths are tried. Pure.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{FunctionName, NicName};

/// Up to so many functions every path is tried; it grows with their square.
pub const ALL_UP_TO: usize = 64;
/// Beyond, so many paths are tried besides those to neighbours and PFs.
pub const DRAWN: usize = 2000;

/// Ordered pairs of positions in `functions` (sorted, so neighbours are of one NIC where they can be): all of them up to
/// [`ALL_UP_TO`] functions; beyond, each function to its next neighbour and back, each VF to its PF and back, and
/// [`DRAWN`] drawn pairs, the same at every call.
pub fn pairs(functions: &[&FunctionName]) -> Vec<(usize, usize)> {
    let count = functions.len();
    if count <= ALL_UP_TO {
        let all = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        return all.filter(|(from, to)| from != to).collect();
    }
    let mut chosen = BTreeSet::new();
    let mut both = |a: usize, b: usize| {
        chosen.insert((a, b));
        chosen.insert((b, a));
    };
    let pfs = functions.iter().enumerate().filter(|(_, function)| function.vf.is_none());
    let pfs: BTreeMap<&NicName, usize> = pfs.map(|(at, pf)| (&pf.nic, at)).collect();
    for (at, function) in functions.iter().enumerate() {
        both(at, (at + 1) % count);
        if let Some(pf) = pfs.get(&function.nic).filter(|pf| **pf != at) {
            both(at, *pf);
        }
    }
    let certain = chosen.len();
    // Knuth's MMIX generator: which pairs are drawn matters to nobody, that they are the same next time does.
    let mut state: u64 = 1;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count
    };
    while chosen.len() < (certain + DRAWN).min(count * (count - 1)) {
        let (from, to) = (draw(), draw());
        if from != to {
            chosen.insert((from, to));
        }
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(vfs: usize) -> Vec<FunctionName> {
        let mut functions: Vec<FunctionName> = vec!["A".parse().unwrap()];
        functions.extend((0..vfs).map(|n| format!("A#{n}").parse().unwrap()));
        functions
    }

    #[test]
    fn a_small_machine_is_tried_whole() {
        let functions = functions(63);
        let pairs = pairs(&functions.iter().collect::<Vec<_>>());
        assert_eq!(pairs.len(), 64 * 63);
    }

    #[test]
    fn of_a_large_machine_neighbours_the_pf_and_a_fixed_draw_are_tried() {
        let functions = functions(200);
        let refs: Vec<_> = functions.iter().collect();
        let chosen = pairs(&refs);
        assert_eq!(chosen, pairs(&refs));
        let set: BTreeSet<_> = chosen.iter().copied().collect();
        assert_eq!(set.len(), chosen.len());
        for at in 1..=200 {
            assert!(set.contains(&(0, at)) && set.contains(&(at, 0)), "PF and {at}");
            assert!(set.contains(&(at, (at + 1) % 201)));
        }
        assert!(chosen.iter().all(|(from, to)| from != to && *from <= 200 && *to <= 200));
        // 2 x 200 with the PF, 2 x 199 more with neighbours, and the draw.
        assert_eq!(chosen.len(), 400 + 398 + DRAWN);
    }

    #[test]
    fn a_machine_just_past_the_limit_ends_too() {
        let functions = functions(ALL_UP_TO);
        let pairs = pairs(&functions.iter().collect::<Vec<_>>());
        assert!(pairs.len() <= 65 * 64);
        assert!(pairs.len() > DRAWN);
    }
}
