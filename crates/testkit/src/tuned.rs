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
//! `-- RULES` begins what the machine is like once what no command does has been done as these rules advise; `-+ RULES` what it is
//! like after any of their advice, where that shows only later.
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
    /// What follows from advice that a test cannot carry out.
    pub done: Vec<Done>,
}

/// What follows from advice that a test cannot carry out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The rules whose advice it is.
    pub rules: Vec<String>,
    /// Whether it follows from what a test carries out as well.
    pub always: bool,
    /// The changed files; empty: the machine is well tuned again.
    pub changes: String,
}

/// One more look at the well-tuned machine, changed, and what rules say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Rules and their verdicts: `pass`, `fail`, `conflict`, `unknown`, `recorded`, or `left-out`.
    pub verdicts: Vec<(String, String)>,
    /// What is the case, in words.
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
            let (what, changes) = (what.to_owned(), String::new());
            faults.push(Fault { rules, together, what, changes, done: Vec::new() });
            continue;
        }
        let Some(fault) = faults.last_mut() else { continue };
        let after = ["-- ", "-+ "].iter().find_map(|mark| Some((*mark == "-+ ", line.strip_prefix(mark)?)));
        if let Some((always, rules)) = after {
            let rules = rules.split_whitespace().map(str::to_owned).collect();
            fault.done.push(Done { rules, always, changes: String::new() });
            continue;
        }
        let text = fault.done.last_mut().map_or(&mut fault.changes, |done| &mut done.changes);
        text.push_str(line);
        text.push('\n');
    }
    assert!(!faults.is_empty());
    faults
}

/// The cases of `NAME.txt`, whose headings are `== RULE=VERDICT RULE=VERDICT | what`.
///
/// # Panics
///
/// When they are not where they were when this was compiled, or a heading makes no sense.
pub fn cases(name: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text(&format!("{name}.txt")).lines() {
        if let Some(heading) = line.strip_prefix("== ") {
            let (verdicts, what) = heading.split_once(" | ").unwrap_or_else(|| panic!("{line:?}: no |"));
            let verdict = |word: &str| {
                let (rule, verdict) = word.split_once('=').unwrap_or_else(|| panic!("{line:?}: {word:?}"));
                (rule.to_owned(), verdict.to_owned())
            };
            let verdicts = verdicts.split_whitespace().map(verdict).collect();
            cases.push(Case { verdicts, what: what.to_owned(), changes: String::new() });
        } else if let Some(case) = cases.last_mut() {
            case.changes.push_str(line);
            case.changes.push('\n');
        }
    }
    cases
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

    /// What `use_it` makes of the machine's tree with these changes, which take the place of each other and of what it has.
    ///
    /// # Panics
    ///
    /// When they cannot be planted, or taken back.
    pub fn changed<T>(&self, changes: &[&str], use_it: impl FnOnce(&Path) -> T) -> T {
        self.0.with(changes, use_it).unwrap_or_else(|error| panic!("{error} in {changes:?}"))
    }

    /// What `use_it` makes of the machine's tree while it has these faults.
    ///
    /// # Panics
    ///
    /// When they cannot be planted, or taken back.
    pub fn with<T>(&self, faults: &[&Fault], use_it: impl FnOnce(&Path) -> T) -> T {
        let changes: Vec<&str> = faults.iter().map(|fault| fault.changes.as_str()).collect();
        self.changed(&changes, use_it)
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
