//! A machine that is tuned for real time as well as can be, and faults that are planted in it.
//!
//! The faults are in one text, each with the rules that complain when it is there:
//!
//! ```text
//! == default-irqs-on-isolated | interrupts go to isolated CPUs by default
//! [/proc/irq]
//! default_smp_affinity = ffff
//! ```
//!
//! What is below a heading takes the place of what the machine has there; `- /sys/x` takes away all that is below it. A `@` before the `|` has the fault be one of those
//! that the mis-tuned machine has all at once.

use std::{fs, path::Path};

use penstock_host::{Root, scan};
use penstock_model::{Inventory, inventory::tuning::Watched};

use crate::sysfs::{self, Changing};

/// A fault that can be planted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rules that complain, and no others.
    pub rules: Vec<String>,
    /// Whether the mis-tuned machine has it.
    pub together: bool,
    /// What is wrong, in words.
    pub what: String,
    /// The changed files, as [`sysfs`] records them.
    pub changes: String,
}

fn text(name: &str) -> String {
    let path = sysfs::fixtures().join("tuning").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All faults.
///
/// # Panics
///
/// When they are not where they were when this was compiled, or a heading makes no sense.
pub fn faults() -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    for line in text("faults.txt").lines() {
        if let Some(heading) = line.strip_prefix("== ") {
            let (rules, what) = heading.split_once(" | ").unwrap_or_else(|| panic!("{line:?}: no |"));
            let mut rules: Vec<String> = rules.split_whitespace().map(str::to_owned).collect();
            let together = rules.last().is_some_and(|last| last == "@");
            rules.truncate(rules.len() - usize::from(together));
            faults.push(Fault { rules, together, what: what.to_owned(), changes: String::new() });
        } else if let Some(fault) = faults.last_mut() {
            fault.changes.push_str(line);
            fault.changes.push('\n');
        }
    }
    assert!(!faults.is_empty());
    faults
}

/// The well-tuned machine.
pub struct Machine(Changing);

impl Machine {
    /// Plants it in a directory of its own, gone when dropped.
    ///
    /// # Panics
    ///
    /// When it cannot be planted.
    #[expect(clippy::new_without_default, reason = "it writes files")]
    pub fn new() -> Machine {
        Machine(Changing::new(&text("well-tuned.tree")).unwrap_or_else(|error| panic!("{error}")))
    }

    /// What `use_it` makes of the machine's tree while it has these faults.
    ///
    /// # Panics
    ///
    /// When they cannot be planted, or taken back.
    pub fn with<T>(&self, faults: &[&Fault], use_it: impl FnOnce(&Path) -> T) -> T {
        let changes: Vec<&str> = faults.iter().map(|fault| fault.changes.as_str()).collect();
        self.0.with(&changes, use_it).unwrap_or_else(|error| panic!("{error} in {changes:?}"))
    }
}

/// The inventory of a planted machine, with its tuning, and with what went on while it was recorded.
///
/// # Panics
///
/// When what went on makes no sense.
pub fn inventory(tree: &Path) -> Inventory {
    let root = Root::recorded(tree);
    let mut inventory = scan::scan(&root, None);
    let (mut tuning, unknown) = scan::tuning::tuning(&root, &inventory);
    tuning.watched = fs::read(tree.join(".watched.json"))
        .ok()
        .map(|bytes| serde_json::from_slice::<Watched>(&bytes).expect("what went on can be read"));
    inventory.tuning = Some(tuning);
    inventory.unknown.extend(unknown);
    inventory
}
