//! What functions are called in what is said of a plan.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
};

use penstock_model::{Bdf, Inventory, VfIndex};

use crate::Plan;

/// Names functions as the model does, with their PCI addresses beside. One that the model does not name is called by its
/// address.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pfs: HashMap<Bdf, String>,
    /// By address: its PF and its index.
    vfs: HashMap<Bdf, (Bdf, VfIndex)>,
    /// By PF and index: its address.
    at: HashMap<(Bdf, VfIndex), Bdf>,
}

impl Names {
    /// The names of a plan's functions; those of VFs are in the inventory that it was made for.
    pub fn of(plan: &Plan, inventory: &Inventory) -> Names {
        let nics = plan.nics.iter().map(|(name, pf)| (*pf, name.to_string()));
        let drives = plan.drives.iter().map(|(name, pf)| (*pf, name.to_string()));
        let mut names = Names { pfs: nics.chain(drives).collect(), ..Names::default() };
        for (pf, sriov) in inventory.sriov() {
            for vf in &sriov.vfs {
                names.vfs.insert(vf.bdf, (pf, vf.index));
                names.at.insert((pf, vf.index), vf.bdf);
            }
        }
        names
    }

    /// `NET0#3`, `NET0`, or the address.
    pub fn short(&self, function: Bdf) -> String {
        self.known(function).unwrap_or_else(|| function.to_string())
    }

    /// `NET0#3 (0000:04:10.6)`, or the address.
    pub fn function(&self, function: Bdf) -> String {
        match self.known(function) {
            Some(name) => format!("{name} ({function})"),
            None => function.to_string(),
        }
    }

    /// A VF of a PF, known by its index.
    pub fn vf(&self, pf: Bdf, index: VfIndex) -> String {
        match (self.pfs.get(&pf), self.at.get(&(pf, index))) {
            (Some(nic), Some(function)) => format!("{nic}#{index} ({function})"),
            (Some(nic), None) => format!("{nic}#{index}"),
            (None, _) => format!("{pf} vf {index}"),
        }
    }

    /// The PF and the index of a VF.
    pub fn place(&self, function: Bdf) -> Option<(Bdf, VfIndex)> {
        self.vfs.get(&function).copied()
    }

    /// The address of a VF.
    pub fn address(&self, pf: Bdf, index: VfIndex) -> Option<Bdf> {
        self.at.get(&(pf, index)).copied()
    }

    /// Functions in few words: the first ones, and how many more.
    pub fn listed(&self, functions: &BTreeSet<Bdf>) -> String {
        const NAMED: usize = 3;
        let named: Vec<String> = functions.iter().take(NAMED).map(|function| self.short(*function)).collect();
        match functions.len() {
            ..=NAMED => named.join(", "),
            all => format!("{} and {} more", named.join(", "), all - NAMED),
        }
    }

    /// The same, all of them: `NET0#0 to #2, NET0#5`, `nothing`.
    pub fn all(&self, functions: &BTreeSet<Bdf>) -> String {
        let mut parts: Vec<String> = Vec::new();
        // The last run of VFs: its PF, its first and its last index.
        let mut run: Option<(Bdf, u16, u16)> = None;
        for function in functions {
            let place = self.vfs.get(function).filter(|(pf, _)| self.pfs.contains_key(pf));
            match (place, run) {
                (Some((pf, index)), Some((of, first, last))) if *pf == of && index.get() == last + 1 => {
                    run = Some((of, first, index.get()));
                    parts.pop();
                    let sign = if index.get() == first + 1 { ", " } else { " to " };
                    parts.push(format!("{}#{first}{sign}#{index}", self.pfs[pf]));
                }
                _ => {
                    run = place.map(|(pf, index)| (*pf, index.get(), index.get()));
                    parts.push(self.short(*function));
                }
            }
        }
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    }

    fn known(&self, function: Bdf) -> Option<String> {
        let of_vf = || {
            let (pf, index) = self.vfs.get(&function)?;
            Some(format!("{}#{index}", self.pfs.get(pf)?))
        };
        self.pfs.get(&function).map(ToString::to_string).or_else(of_vf)
    }
}

/// What `write` writes, as a text.
pub(crate) fn text(write: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result) -> String {
    struct Written<W>(W);
    impl<W: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Written<W> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0(f)
        }
    }
    Written(write).to_string()
}
