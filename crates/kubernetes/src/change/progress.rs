//! What a change has come to, on disk before it goes on: whoever is killed finds out what to do next.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use penstock_host::files;
use penstock_model::{
    MachineName,
    digest::sha256,
    machine::{MachineLineError, with_machine},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::machine::{Span, UtcTime};

/// A change that an agent has begun and not reported the end of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The number of the change.
    pub number: u64,
    /// The `SriovMachine`'s hash.
    pub hash: String,
    /// What is allowed.
    pub allow: Vec<String>,
    /// The time to confirm within.
    pub confirm_within: Span,
    /// The highest number of a run before.
    pub runs_before: u64,
    /// The kernel's run in which it was begun.
    pub boot: String,
    /// How often it was begun.
    pub attempts: u32,
    /// When `apply` had ended, by this machine's clock.
    pub applied: Option<UtcTime>,
    /// The PCI addresses of the VFs that it destroys.
    #[serde(default)]
    pub vanishing: BTreeSet<String>,
}

/// What was applied and confirmed last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The `SriovMachine`'s hash.
    pub hash: String,
    /// The kernel's run in which that was.
    pub boot: String,
}

/// Why a node that was the model with this hash, as the cluster has it, need not be so any more in this run of the kernel: how a sentence
/// of it begins. `None`: it was the last one that was applied here, and since then the kernel was not started.
pub fn why_lapsed(applied: Option<&Applied>, hash: &str, boot: &str) -> Option<&'static str> {
    match applied {
        Some(applied) if applied.boot == boot && applied.hash == hash => None,
        // etcd was restored: what the cluster says is of before.
        Some(applied) if applied.boot == boot => {
            Some("the cluster has gone back to what it was earlier: this node was given another model since")
        }
        // The VFs of an earlier run of the kernel are gone, with all that was set for them.
        Some(_) | None => Some("this node was started anew"),
    }
}

/// The agent's files for roll-outs.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    /// One agent alone works on a machine.
    _lock: files::Lock,
}

/// Why the agent's files cannot be used.
#[derive(Debug, Error)]
pub enum RolloutStateError {
    /// They cannot be read or written.
    #[error("cannot keep what a roll-out has come to")]
    File(#[from] files::FileError),
    /// Another agent works with them.
    #[error(
        "another agent on this machine takes part in roll-outs: it holds the lock {0}. End one of the two"
    )]
    Another(PathBuf),
    /// One of them is no JSON of ours.
    #[error(
        "{path} cannot be read: {why}. `penstock status` says how this machine stands; remove the file when that is as it should be"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl Store {
    /// The files below the agent's directory.
    ///
    /// # Errors
    ///
    /// The directory is not its own, or another agent holds it.
    pub fn open(state: &Path) -> Result<Store, RolloutStateError> {
        let directory = state.join("rollout");
        files::make_own_directory(&directory)?;
        files::make_own_directory(directory.join("models"))?;
        let lock = directory.join("lock");
        match files::Lock::try_exclusive(&lock)? {
            Some(held) => Ok(Store { directory, _lock: held }),
            None => Err(RolloutStateError::Another(lock)),
        }
    }

    /// Where the model with this hash is.
    pub fn model(&self, hash: &str) -> PathBuf {
        self.directory.join("models").join(format!("{hash}.yaml"))
    }

    /// Writes a model down, for root alone: it may hold addresses that not everybody need know.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep_model(&self, hash: &str, text: &str) -> Result<PathBuf, RolloutStateError> {
        let path = self.model(hash);
        files::write_atomic_mode(&path, text, 0o600)?;
        Ok(path)
    }

    /// Removes the models that are none of these any more.
    ///
    /// # Errors
    ///
    /// One cannot be removed.
    pub fn forget_models(&self, but: &[&str]) -> Result<(), RolloutStateError> {
        let models = self.directory.join("models");
        for name in files::list(&models)? {
            if !but.iter().any(|hash| name == format!("{hash}.yaml")) {
                files::remove_file(models.join(name))?;
            }
        }
        Ok(())
    }

    /// The change that was begun.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn progress(&self) -> Result<Option<Progress>, RolloutStateError> {
        read(progress_file(&self.directory))
    }

    /// Writes down how far a change is.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep_progress(&self, progress: &Progress) -> Result<(), RolloutStateError> {
        write(progress_file(&self.directory), progress)
    }

    /// The change has ended and was reported.
    ///
    /// # Errors
    ///
    /// The file cannot be removed.
    pub fn end_progress(&self) -> Result<(), RolloutStateError> {
        Ok(files::remove_durable(progress_file(&self.directory))?)
    }

    /// What was applied and confirmed last.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn applied(&self) -> Result<Option<Applied>, RolloutStateError> {
        read(applied_file(&self.directory))
    }

    /// Writes down what was applied and confirmed.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep_applied(&self, applied: &Applied) -> Result<(), RolloutStateError> {
        write(applied_file(&self.directory), applied)
    }
}

/// The model `text` for the machine of `node`.
///
/// Its file is called by its hash, which every change of the model changes. Where it does not say the machine's name and derived addresses
/// rest on that, it is the node's: the same for ever, and on no two nodes.
///
/// # Errors
///
/// [`MachineLineError`] when the name cannot be written into the model: all nodes would have the same addresses.
pub fn of_node<'a>(text: &'a str, node: &str) -> Result<Cow<'a, str>, MachineLineError> {
    // A longer name than a machine can have in a model stands for itself by its digest.
    let machine = node.parse().or_else(|_| sha256(node)[..40].parse::<MachineName>());
    let machine = machine.map_err(|_| MachineLineError { machine: node.to_owned() })?;
    with_machine(text, &machine)
}

/// The model that was applied and confirmed last, of an agent below this directory; nothing is locked for that.
///
/// # Errors
///
/// What is there cannot be read.
pub fn applied_model(state: &Path) -> Result<Option<PathBuf>, RolloutStateError> {
    let directory = state.join("rollout");
    let applied: Option<Applied> = read(applied_file(&directory))?;
    Ok(applied.map(|applied| directory.join("models").join(format!("{}.yaml", applied.hash))))
}

/// Whether an agent below this directory has begun a change that it has not told the end of; nothing is locked for that.
pub fn is_changing(state: &Path) -> bool {
    files::exists(progress_file(&state.join("rollout")))
}

/// The PCI addresses of the VFs that a change destroys which an agent below this directory has begun; nothing is locked for that.
///
/// # Errors
///
/// What is there cannot be read.
pub fn going(state: &Path) -> Result<BTreeSet<String>, RolloutStateError> {
    let progress: Option<Progress> = read(progress_file(&state.join("rollout")))?;
    Ok(progress.map(|progress| progress.vanishing).unwrap_or_default())
}

fn applied_file(directory: &Path) -> PathBuf {
    directory.join("applied.json")
}

fn progress_file(directory: &Path) -> PathBuf {
    directory.join("progress.json")
}

fn read<T: serde::de::DeserializeOwned>(path: PathBuf) -> Result<Option<T>, RolloutStateError> {
    if !files::exists(&path) {
        return Ok(None);
    }
    let text = files::read_to_string(&path)?;
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| RolloutStateError::Damaged { path, why: error.to_string() })
}

fn write(path: PathBuf, value: &impl Serialize) -> Result<(), RolloutStateError> {
    match serde_json::to_string(value) {
        Ok(text) => Ok(files::write_durable(path, text)?),
        Err(error) => Err(RolloutStateError::Damaged { path, why: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_by_the_next_agent_and_there_is_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        assert!(matches!(Store::open(directory.path()), Err(RolloutStateError::Another(_))));
        assert_eq!(store.progress().unwrap(), None);
        let progress = Progress {
            number: 2,
            hash: "h".to_owned(),
            allow: vec!["ssh:eno1".to_owned()],
            confirm_within: Span::seconds(60),
            runs_before: 7,
            boot: "b".to_owned(),
            attempts: 1,
            applied: None,
            vanishing: BTreeSet::from(["0000:01:10.0".to_owned()]),
        };
        assert!(!is_changing(directory.path()));
        assert_eq!(going(directory.path()).unwrap(), BTreeSet::new());
        store.keep_progress(&progress).unwrap();
        assert!(is_changing(directory.path()));
        assert_eq!(going(directory.path()).unwrap(), progress.vanishing);
        store.keep_model("h", "nics: {}").unwrap();
        store.keep_model("old", "nics: {}").unwrap();
        store.forget_models(&["h"]).unwrap();
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.progress().unwrap(), Some(progress));
        assert!(files::exists(store.model("h")) && !files::exists(store.model("old")));
        store.end_progress().unwrap();
        store.end_progress().unwrap();
        assert_eq!(store.progress().unwrap(), None);
        files::write_durable(directory.path().join("rollout/progress.json"), "{").unwrap();
        assert!(store.progress().unwrap_err().to_string().contains("penstock status"));
    }

    #[test]
    fn what_the_cluster_says_was_applied_is_held_against_what_was_applied_last() {
        let applied = |hash: &str, boot: &str| Applied { hash: hash.to_owned(), boot: boot.to_owned() };
        let why = |applied: Option<Applied>| why_lapsed(applied.as_ref(), "h", "now");
        assert_eq!(why(Some(applied("h", "now"))), None);
        for before in [Some(applied("h", "before")), Some(applied("other", "before")), None] {
            assert_eq!(why(before), Some("this node was started anew"));
        }
        assert!(why(Some(applied("other", "now"))).unwrap().contains("has gone back"));
    }

    #[test]
    fn derived_addresses_rest_on_the_node_and_not_on_the_hash_of_the_model() {
        let text = "guests: {a: {nics: {net0: {uplink: br0}}}}\n";
        let of = |text: &str, node: &str| of_node(text, node).unwrap().into_owned();
        assert_eq!(of(text, "node-1"), format!("{text}machine: node-1\n"));
        assert_ne!(of(text, "node-2"), of(text, "node-1"));
        let long = format!("{}.example.com", "n".repeat(60));
        assert!(of(text, &long).contains("machine: "), "a node's name may be longer than a machine's");
        let says = format!("machine: m\n{text}");
        assert_eq!(of(&says, "node-1"), says);
        let empty = format!("machine:\n{text}");
        assert_eq!(
            of(&empty, "node-1"),
            format!("machine: node-1\n{text}"),
            "of a chart without a value for it"
        );
        let cannot = of_node(&format!("? machine\n{text}"), "node-1").unwrap_err();
        assert_eq!(cannot.machine, "node-1", "without the name all nodes would have the same addresses");
    }
}
