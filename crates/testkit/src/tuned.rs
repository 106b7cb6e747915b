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
//! What is below a heading takes the place of what the machine has there. A `@` before the `|` has the fault be one of those
//! that the mis-tuned machine has all at once.

use std::{fs, path::Path};

use penstock_host::{Root, scan};
use penstock_model::{Inventory, inventory::tuning::Watched};
use tempfile::TempDir;

use crate::sysfs;

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

/// The well-tuned machine with these faults, in a directory of its own that is gone when dropped.
///
/// # Panics
///
/// When it cannot be planted.
pub fn machine<'a>(faults: impl IntoIterator<Item = &'a Fault>) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let changes: Vec<&str> = faults.into_iter().map(|fault| fault.changes.as_str()).collect();
    sysfs::plant_changed(&text("well-tuned.tree"), &changes, directory.path())
        .unwrap_or_else(|error| panic!("{error} in {changes:?}"));
    directory
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
