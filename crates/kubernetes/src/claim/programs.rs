//! Where the programs are that a prepared claim names: after an update they may be elsewhere, and the hook of a container that is started again
//! runs what is written down.

use penstock_host::{boot, chain, files};

use super::{
    prepare::{Claims, LOCK, PrepareError},
    state::{ClaimStore, ClaimUid},
};
use crate::{cdi, log::say};

impl Claims {
    /// Has the claims that are prepared name this agent's programs and directory. What fails with one is said, and keeps no other back.
    ///
    /// # Errors
    ///
    /// When claims cannot be listed, or another agent is at work on them.
    pub fn renew_programs(&self) -> Result<(), PrepareError> {
        let store = self.store()?;
        let _lock = store.lock(LOCK)?;
        for uid in store.uids()? {
            if let Err(error) = self.renew(&store, &uid) {
                say(format!("claim {uid} may name programs that are gone: {}", chain(&error)));
            }
        }
        Ok(())
    }

    fn renew(&self, store: &ClaimStore, uid: &ClaimUid) -> Result<(), PrepareError> {
        let settings = &self.settings;
        // One of an earlier run of the kernel is prepared anew.
        let boot = boot::id(&settings.root);
        let Some(mut claim) = store.read(uid)?.filter(|claim| Some(&claim.boot) == boot.as_ref()) else {
            return Ok(());
        };
        if claim.penstock != settings.penstock {
            claim.penstock.clone_from(&settings.penstock);
            store.write(&claim)?;
        }
        // Without it kubelet was told nothing of the claim yet, and asks again.
        if files::exists(cdi::path(&settings.cdi, &claim.driver, uid)) {
            cdi::write(&settings.cdi, &claim, &settings.program, &settings.state)?;
        }
        Ok(())
    }
}
