//! Files of one value each that decide how late a thread wakes, read and written.

use nix::errno::Errno;
use penstock_model::inventory::tuning::{Knob, ParseValueError, Value};
use thiserror::Error;

use crate::{
    Root,
    files::{self, FileError},
};

/// Why a knob was not read or not turned.
#[derive(Debug, Error)]
pub enum KnobError {
    /// The file is not there.
    #[error("this kernel or this machine has no {knob}")]
    Absent {
        /// The knob that was to be read or written.
        knob: Knob,
    },
    /// The kernel keeps an interrupt where it is.
    #[error(
        "interrupt {irq} cannot be moved: the kernel itself chose its CPU, as it does for the queues of many drives and of some NICs"
    )]
    Immovable {
        /// The interrupt's number, as in `/proc/irq`.
        irq: u32,
    },
    /// There is no room for the interrupt where it is to go.
    #[error("interrupt {irq} cannot go to the CPUs {to}: they have no interrupt vector left")]
    NoVector {
        /// The interrupt's number, as in `/proc/irq`.
        irq: u32,
        /// Where it was to go.
        to: Value,
    },
    /// The kernel did not take the value.
    #[error("{knob} did not take {value}")]
    Refused {
        /// The knob that was written.
        knob: Knob,
        /// What was written.
        value: Value,
        /// What the kernel said.
        #[source]
        source: FileError,
    },
    /// It could not be read.
    #[error("{knob} could not be read")]
    Unreadable {
        /// The knob that was read.
        knob: Knob,
        /// Why its file could not be read.
        #[source]
        source: FileError,
    },
    /// It holds what no kernel writes.
    #[error(transparent)]
    Odd(#[from] ParseValueError),
}

impl KnobError {
    /// Whether this machine cannot do it at all.
    pub fn is_unsupported(&self) -> bool {
        match self {
            KnobError::Absent { .. } | KnobError::Immovable { .. } | KnobError::NoVector { .. } => true,
            // A driver that has no such setting, or a debugfs that is locked down (`security=lockdown`).
            KnobError::Refused { source, .. } => errno(source) == Some(Errno::EOPNOTSUPP),
            KnobError::Unreadable { .. } | KnobError::Odd(_) => false,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            KnobError::NoVector { .. } => Some(
                "give the interrupts of drivers with many queues more CPUs, or the drivers fewer queues (ethtool -L)",
            ),
            KnobError::Refused { source, .. } | KnobError::Unreadable { source, .. }
                if matches!(errno(source), Some(Errno::EACCES | Errno::EPERM)) =>
            {
                Some(
                    "run Penstock as root; a kernel that is locked down (`/sys/kernel/security/lockdown`) refuses root too",
                )
            }
            _ => None,
        }
    }
}

fn errno(error: &FileError) -> Option<Errno> {
    error.source.raw_os_error().map(Errno::from_raw)
}

/// What a knob holds.
///
/// # Errors
///
/// See [`KnobError`].
pub fn read(root: &Root, knob: Knob) -> Result<Value, KnobError> {
    match files::read_to_string(root.path(knob.to_string())) {
        Ok(text) => Ok(knob.read(&text)?),
        // The directory of a CPU that is offline, or of a kernel without this.
        Err(error) if error.is_missing() || errno(&error) == Some(Errno::ENODEV) => {
            Err(KnobError::Absent { knob })
        }
        Err(source) => Err(KnobError::Unreadable { knob, source }),
    }
}

/// Turns a knob; what it holds then is for [`read`] to tell, since some take a value and keep another.
///
/// # Errors
///
/// See [`KnobError`].
pub fn write(root: &Root, knob: Knob, value: &Value) -> Result<(), KnobError> {
    files::write_attribute(root.path(knob.to_string()), &knob.written(value))
        .map_err(|source| refused(knob, value, source))
}

/// What it means that a knob could not be written.
fn refused(knob: Knob, value: &Value, source: FileError) -> KnobError {
    match (knob, errno(&source)) {
        _ if source.is_missing() => KnobError::Absent { knob },
        // `kernel/irq/proc.c`, `write_irq_affinity`: EPERM, before Linux 6.10 EIO; for root as for others.
        (Knob::IrqAffinity(irq), Some(Errno::EIO | Errno::EPERM)) => KnobError::Immovable { irq },
        // `arch/x86/kernel/apic/vector.c`, `assign_irq_vector`.
        (Knob::IrqAffinity(irq), Some(Errno::ENOSPC)) => KnobError::NoVector { irq, to: value.clone() },
        _ => KnobError::Refused { knob, value: value.clone(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(texts: &[(Knob, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (knob, text) in texts {
            let path = root.path(knob.to_string());
            files::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        (directory, root)
    }

    #[test]
    fn a_knob_is_turned_and_read_back() {
        let (_directory, root) = tree(&[(Knob::Workqueues, "f\n"), (Knob::Governor(2), "powersave\n")]);
        let housekeeping = Value::Cpus("0-1".parse().unwrap());
        write(&root, Knob::Workqueues, &housekeeping).unwrap();
        assert_eq!(read(&root, Knob::Workqueues).unwrap(), housekeeping);
        assert_eq!(read(&root, Knob::Governor(2)).unwrap(), Value::Word("powersave".to_owned()));
    }

    #[test]
    fn what_is_not_there_is_no_failure_of_a_value() {
        let (_directory, root) = tree(&[(Knob::RtRuntime, "much\n")]);
        for outcome in [read(&root, Knob::Ksm).err(), write(&root, Knob::Ksm, &Value::Number(0)).err()] {
            let error = outcome.unwrap();
            assert!(error.is_unsupported(), "{error}");
            assert_eq!(error.to_string(), "this kernel or this machine has no /sys/kernel/mm/ksm/run");
        }
        assert!(matches!(read(&root, Knob::RtRuntime), Err(KnobError::Odd(_))));
    }

    #[test]
    fn what_the_kernel_says_of_an_interrupt_is_told_apart() {
        let to = Value::Cpus("0-1".parse().unwrap());
        let said = |knob: Knob, code: Errno| {
            let source = FileError {
                attempt: "write",
                path: knob.to_string().into(),
                source: std::io::Error::from_raw_os_error(code as i32),
            };
            refused(knob, &to, source)
        };
        let irq = Knob::IrqAffinity(27);
        for kept in [Errno::EIO, Errno::EPERM] {
            assert!(matches!(said(irq, kept), KnobError::Immovable { irq: 27 }), "{kept}");
        }
        let full = said(irq, Errno::ENOSPC);
        assert_eq!(
            full.to_string(),
            "interrupt 27 cannot go to the CPUs 0-1: they have no interrupt vector left"
        );
        for passed_over in [said(irq, Errno::EIO), full, said(irq, Errno::ENOENT)] {
            assert!(passed_over.is_unsupported(), "{passed_over}");
        }
        // No CPU of the mask is on line, and no interrupt.
        for (knob, code) in [(irq, Errno::EINVAL), (Knob::Workqueues, Errno::ENOSPC), (Knob::Ksm, Errno::EIO)]
        {
            let error = said(knob, code);
            assert!(matches!(error, KnobError::Refused { .. }) && !error.is_unsupported(), "{error}");
        }
        assert!(said(Knob::Ksm, Errno::EPERM).hint().is_some());
    }
}
