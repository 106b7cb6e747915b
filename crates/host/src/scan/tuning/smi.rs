//! System management interrupts, as the CPUs count them: the `smi` event of the kernel's `msr` counters
//! (`arch/x86/events/msr.c`), or MSR 0x34 itself (Intel SDM, volume 4, `MSR_SMI_COUNT`). Both are for root.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read},
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
};

use nix::libc;
use penstock_model::inventory::tuning::Reading;

use crate::{Root, scan::reader::Reader};

const COUNTERS: &str = "/sys/bus/event_source/devices/msr";
const SMI_COUNT: u64 = 0x34;

/// Counters of some CPUs, being counted from when this was made.
pub(super) enum Smis {
    /// The kernel's counters.
    Events(Vec<File>),
    /// The registers, and what each held at first.
    Registers(Vec<(File, u32)>),
    /// There is nothing to count, or who asks may not.
    None(Reading<u64>),
}

impl Smis {
    /// Begins to count on these CPUs.
    pub fn begin(root: &Root, cpus: impl Iterator<Item = u32> + Clone, reader: &mut Reader<'_>) -> Smis {
        if !root.is_system() {
            return Smis::None(Reading::Absent);
        }
        let kind = reader.reading(&format!("{COUNTERS}/type"), super::number::<u32>);
        let event = reader.reading(&format!("{COUNTERS}/events/smi"), |text| {
            let number =
                text.strip_prefix("event=0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            number.ok_or_else(|| format!("{text:?} is no event"))
        });
        let mut denied = false;
        if let (Reading::Is(kind), Reading::Is(event)) = (kind, event) {
            match cpus.clone().map(|cpu| counter(kind, event, cpu)).collect::<io::Result<Vec<File>>>() {
                Ok(files) if !files.is_empty() => return Smis::Events(files),
                Err(error) => denied = error.kind() == ErrorKind::PermissionDenied,
                Ok(_) => {}
            }
        }
        let registers = cpus.map(|cpu| {
            let path = root.path(format!("/dev/cpu/{cpu}/msr"));
            let file = OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC).open(path)?;
            let count = register(&file)?;
            Ok((file, count))
        });
        match registers.collect::<io::Result<Vec<_>>>() {
            Ok(registers) if !registers.is_empty() => Smis::Registers(registers),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Smis::None(Reading::Denied),
            _ if denied => Smis::None(Reading::Denied),
            // No such device, or a CPU without this register (EIO).
            _ => Smis::None(Reading::Absent),
        }
    }

    /// How many came since. Each stops all CPUs, so that the CPU that counted most has seen them all.
    pub fn end(self) -> Reading<u64> {
        let counts: io::Result<Vec<u64>> = match self {
            Smis::None(reading) => return reading,
            Smis::Events(files) => files.into_iter().map(counted).collect(),
            Smis::Registers(registers) => registers
                .into_iter()
                .map(|(file, before)| Ok(u64::from(register(&file)?.wrapping_sub(before))))
                .collect(),
        };
        match counts {
            Ok(counts) => Reading::Is(counts.into_iter().max().unwrap_or_default()),
            Err(error) => Reading::Unreadable(format!("the counter of SMIs could not be read: {error}")),
        }
    }
}

fn register(file: &File) -> io::Result<u32> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, SMI_COUNT)?;
    let [a, b, c, d, ..] = bytes;
    Ok(u32::from_le_bytes([a, b, c, d]))
}

fn counted(mut file: File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The first form of `struct perf_event_attr` (`include/uapi/linux/perf_event.h`, `PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_kind: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

/// Counts an event of everybody on a CPU (perf_event_open(2)).
#[allow(unsafe_code)]
fn counter(kind: u32, event: u64, cpu: u32) -> io::Result<File> {
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let size = u32::try_from(size_of::<Attributes>()).unwrap_or_default();
    let attributes = Attributes { kind, size, config: event, ..Attributes::default() };
    let cpu = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
    let (everybody, no_group): (libc::pid_t, libc::c_int) = (-1, -1);
    // SAFETY: the kernel reads `size` bytes of `attributes`, which lives through the call, and writes nothing.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            everybody,
            cpu,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    match RawFd::try_from(outcome) {
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) })),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_are_as_long_as_the_kernel_has_them() {
        assert_eq!(size_of::<Attributes>(), 64);
    }

    /// A CPU's clock among the kernel's software counters (`PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_CPU_CLOCK`) is wherever counters are.
    #[test]
    fn a_counter_of_the_kernel_counts_or_says_why_not() {
        match counter(1, 0, 0) {
            Ok(file) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(counted(file).unwrap() > 0, "nanoseconds went by on CPU 0");
            }
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}
