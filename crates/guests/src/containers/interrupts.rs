//! The interrupts of PFs that are on other CPUs while a container starts or ends.
//!
//! Where each was before is written down first: whoever is killed meanwhile leaves that to the next who starts, stops or removes the
//! container. Their numbers are another's after a reset, and so is the record of no worth then.

use penstock_host::{
    files,
    irq::{self, MovedInterrupt},
};
use penstock_model::GuestName;
use penstock_plan::action::GuestDefinition;
use serde::{Deserialize, Serialize};

use super::{Containers, vfs};
use crate::{error::GuestError, state};

/// The file of a container's state that tells of them.
const FILE: &str = "interrupts.json";

/// What is written down.
#[derive(Debug, Serialize, Deserialize)]
struct MovedInBoot {
    /// The boot in which they were moved (`/proc/sys/kernel/random/boot_id`).
    boot: String,
    moved: Vec<MovedInterrupt>,
}

impl Containers {
    /// Has a container started or ended where the drivers of the PFs of its VFs can answer all that is asked of them: with PREEMPT_RT
    /// apart from the kernel's workqueues.
    ///
    /// # Errors
    ///
    /// Those of `work`; when an interrupt of a PF could not be put back to where it was, if it came that far.
    pub(super) fn beside_workqueues<R>(
        &self,
        definition: &GuestDefinition,
        work: impl FnOnce() -> Result<R, GuestError>,
    ) -> Result<R, GuestError> {
        if !vfs::is_preempt_rt(&self.root) {
            return work();
        }
        let owned = definition.functions.iter().map(|owned| owned.function);
        let pfs = owned.filter_map(|function| self.interfaces.physical_function(function)).collect();
        let moved = irq::beside_workqueues(&self.root, &pfs, definition.pin.as_ref());
        // What cannot be written down is not moved: a full disk keeps nobody from stopping a container.
        if moved.is_empty() || self.keep_interrupts(&definition.guest, &moved).is_err() {
            return work();
        }
        irq::move_away(&self.root, &moved);
        let outcome = work();
        let put_back = self.put_interrupts_back(&definition.guest);
        let done = outcome?;
        put_back?;
        Ok(done)
    }

    fn keep_interrupts(&self, guest: &GuestName, moved: &[MovedInterrupt]) -> Result<(), GuestError> {
        let path = self.state.file(guest, FILE);
        let text = serde_json::to_string_pretty(&MovedInBoot {
            boot: state::this_boot(&self.root)?,
            moved: moved.to_vec(),
        });
        let text = text.map_err(|source| GuestError::Garbled { path: path.clone(), source })?;
        Ok(files::write_durable(path, text)?)
    }

    /// Whether somebody has left interrupts of a container's PFs elsewhere, or is about to put them back.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file cannot be read or makes no sense.
    pub(crate) fn has_moved_interrupts(&self, guest: &GuestName) -> Result<bool, GuestError> {
        let kept: Option<MovedInBoot> = state::read(self.state.file(guest, FILE))?;
        Ok(match kept {
            Some(kept) => kept.boot == state::this_boot(&self.root)?,
            None => false,
        })
    }

    /// Puts back what was moved for a container, now or by somebody who was killed at it. It is tried once: one that cannot be put back
    /// is told of, and keeps nobody from the container.
    ///
    /// # Errors
    ///
    /// [`GuestError::Interrupts`]; [`GuestError::State`] or [`GuestError::Garbled`] when a file cannot be read or removed, or makes no
    /// sense.
    pub(super) fn put_interrupts_back(&self, guest: &GuestName) -> Result<(), GuestError> {
        let path = self.state.file(guest, FILE);
        files::remove_parts(&path)?;
        let Some(kept) = state::read::<MovedInBoot>(path.clone())? else { return Ok(()) };
        let put_back = match kept.boot == state::this_boot(&self.root)? {
            true => irq::put_back(&self.root, &kept.moved),
            false => Ok(()),
        };
        files::remove_durable(path)?;
        put_back.map_err(|source| GuestError::Interrupts { guest: guest.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use penstock_host::Root;

    use super::*;

    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    const AT: &str = "/proc/irq/39/smp_affinity_list";

    fn write(root: &Root, path: &str, text: &str) {
        let path = root.path(path);
        files::create_dir_all(path.parent().unwrap()).unwrap();
        files::write_atomic(path, text).unwrap();
    }

    /// Killed while the container starts: the next who has to do with it puts the interrupt back, whatever else it does.
    #[test]
    fn an_interrupt_that_somebody_left_elsewhere_is_put_back_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let containers = Containers::new(root.clone(), directory.path().join("guests"));
        let guest: GuestName = "box".parse().unwrap();
        let function = "0000:01:00.0".parse().unwrap();
        let allowed = "0-1".parse().unwrap();
        let moved = MovedInterrupt { irq: 39, function, allowed, on: 3 };
        write(&root, &format!("/sys/bus/pci/devices/{function}/msi_irqs/39"), "msix\n");
        let at = || files::read_to_string(root.path(AT)).unwrap().trim().to_owned();
        let leave = || {
            write(&root, BOOT, "one\n");
            write(&root, AT, "0-1\n");
            files::create_dir_all(containers.state.of(&guest)).unwrap();
            containers.keep_interrupts(&guest, std::slice::from_ref(&moved)).unwrap();
            irq::move_away(&root, std::slice::from_ref(&moved));
            assert_eq!(at(), "3");
            assert!(containers.has_moved_interrupts(&guest).unwrap());
        };
        let second = std::time::Duration::from_secs(1);
        // A start or stop that comes to nothing, of a container that is not defined or does not run.
        let ways: [&dyn Fn(); 3] =
            [&|| drop(containers.start(&guest, second)), &|| drop(containers.stop(&guest, second)), &|| {
                containers.undefine(&guest, second).unwrap()
            }];
        for way in ways {
            leave();
            way();
            assert_eq!(at(), "0-1");
            assert!(!containers.has_moved_interrupts(&guest).unwrap());
        }
        // After a reset the number can be any interrupt's.
        leave();
        write(&root, BOOT, "two\n");
        assert!(!containers.has_moved_interrupts(&guest).unwrap());
        containers.put_interrupts_back(&guest).unwrap();
        assert_eq!(at(), "3");
        assert!(!files::exists(containers.state.file(&guest, FILE)));
    }
}
