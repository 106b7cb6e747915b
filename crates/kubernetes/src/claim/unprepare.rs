//! A claim's devices are taken back: all containers of its pod have ended. Kubelet does not give the claim itself, and may ask any number of
//! times: what is written down decides.

use std::{path::PathBuf, time::Duration};

use penstock_host::{
    boot, chain,
    files::{self, FileError},
    scan::attachments::PENSTOCK,
};
use penstock_model::Bdf;
use serde_json::Value;
use thiserror::Error;

use super::{
    metadata,
    network_plugin::CallError,
    prepare::{ClaimStep, Claims},
    state::{ClaimStore, ClaimUid, StateError},
};
use crate::{cdi, log::say};

/// How long a hook, or another Unprepare, may be at the claim. Kubelet waits for 45 s, and asks again.
const LOCK: Duration = Duration::from_secs(20);

/// Why a claim could not be taken back as a whole. What is left is taken back by the next call.
#[derive(Debug, Error)]
pub enum UnprepareError {
    /// What is written down of claims could not be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file could not be removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A VF is not home.
    #[error("the VFs of the claim could not be taken back")]
    TakeBack(#[from] CallError),
    /// Nobody knows who has a VF of the claim.
    #[error(
        "who has {function} cannot be read in {}: remove the file when nobody has the VF", path.display()
    )]
    Unreadable {
        /// The VF.
        function: Bdf,
        /// The record of `penstock cni`.
        path: PathBuf,
    },
}

impl Claims {
    /// Takes back what a claim has. A claim of which nothing is known is fine.
    ///
    /// # Errors
    ///
    /// When something could not be taken back. It stays written down, and is tried again by the next call.
    pub fn unprepare(&self, uid: &ClaimUid) -> Result<(), UnprepareError> {
        let store = self.store()?;
        // One whose file is damaged ends too.
        let records = self.records(store.read(uid).ok().flatten().as_ref())?;
        let _lock = records.lock(uid, LOCK)?;
        self.unprepare_locked(&store, uid)?;
        Ok(records.remove(uid)?)
    }

    /// The same, by who has the claim's lock, but for the hook's records.
    pub(crate) fn unprepare_locked(&self, store: &ClaimStore, uid: &ClaimUid) -> Result<(), UnprepareError> {
        // Also without a file: a call that was killed may have removed it, and `/run` may hold what a lost file named.
        self.take_back(store, uid)?;
        self.is_home(store, uid)?;
        (self.on_step)(ClaimStep::TakenBack);
        self.forget(store, uid)
    }

    /// Takes a claim's VFs back. Those that were bound for a program are not known to be any more, whatever comes of it: who prepares the claim
    /// again binds them.
    pub(crate) fn take_back(&self, store: &ClaimStore, uid: &ClaimUid) -> Result<(), UnprepareError> {
        let mut noted = Ok(());
        if let Some(mut claim) = store.read(uid).ok().flatten()
            && claim.devices.iter().any(|device| device.group.is_some())
        {
            claim.devices.iter_mut().for_each(|device| device.group = None);
            noted = store.write(&claim);
        }
        // A full disk keeps no VF from coming home. Whoever prepares the claim again has to write it.
        self.network_plugin().take_back(uid)?;
        if let Err(error) = noted {
            say(format!("claim {uid}: its VFs are back, which could not be noted: {}", chain(&error)));
        }
        Ok(())
    }

    /// That no record of a claim's VFs is left of which nobody can read whose it is: GC passes by those.
    fn is_home(&self, store: &ClaimStore, uid: &ClaimUid) -> Result<(), UnprepareError> {
        let root = &self.settings.root;
        let boot = boot::id(root);
        let claim = store.read(uid).ok().flatten();
        let now = claim.filter(|claim| boot.as_ref().is_none_or(|boot| claim.boot == *boot));
        for device in now.into_iter().flat_map(|claim| claim.devices) {
            let path = root.path(format!("{PENSTOCK}/{}.json", device.function));
            let text = match files::read_to_string(&path) {
                Err(error) if error.is_missing() => continue,
                text => text?,
            };
            let record: Option<Value> = serde_json::from_str(&text).ok();
            if record.is_none_or(|record| !record["network"].is_string()) {
                return Err(UnprepareError::Unreadable { function: device.function, path });
            }
        }
        Ok(())
    }

    /// Removes all files of a claim, what says that there is one last.
    pub(crate) fn forget(&self, store: &ClaimStore, uid: &ClaimUid) -> Result<(), UnprepareError> {
        let settings = &self.settings;
        cdi::remove(&settings.cdi, &settings.driver, uid)?;
        (self.on_step)(ClaimStep::CdiRemoved);
        metadata::remove(&settings.state, uid)?;
        (self.on_step)(ClaimStep::MetadataRemoved);
        store.remove(uid)?;
        (self.on_step)(ClaimStep::Forgotten);
        Ok(())
    }
}
