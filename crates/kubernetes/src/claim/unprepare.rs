//! A claim's devices are taken back: all containers of its pod have ended. Kubelet does not give the claim itself, and may ask any number of
//! times: what is written down decides.

use std::time::Duration;

use penstock_host::files::FileError;
use thiserror::Error;

use super::{
    metadata,
    network_plugin::CallError,
    prepare::{ClaimStep, Claims},
    state::{AttachStore, ClaimStore, ClaimUid, StateError},
};
use crate::cdi;

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
}

impl Claims {
    /// Takes back what a claim has. A claim of which nothing is known is fine.
    ///
    /// # Errors
    ///
    /// When something could not be taken back. It stays written down, and is tried again by the next call.
    pub fn unprepare(&self, uid: &ClaimUid) -> Result<(), UnprepareError> {
        let store = self.store()?;
        self.unprepare_locked(&store, uid)
    }

    pub(crate) fn unprepare_locked(&self, store: &ClaimStore, uid: &ClaimUid) -> Result<(), UnprepareError> {
        let records = AttachStore::open(&self.settings.run)?;
        let _lock = records.lock(uid, LOCK)?;
        // Also without a file: a call that was killed may have removed it, and `/run` may hold what a lost file named.
        self.network_plugin().take_back(uid)?;
        (self.on_step)(ClaimStep::TakenBack);
        self.forget(store, uid)?;
        Ok(records.remove(uid)?)
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
