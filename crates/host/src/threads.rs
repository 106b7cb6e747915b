//! A VM as the host's scheduler and memory management show it: the threads and the memory of its QEMU process.
//!
//! QEMU names the thread of virtual CPU `n` `CPU n/KVM` (`softmmu/cpus.c`, when it is started with `debug-threads=on`, as
//! libvirt does). What is read is proc_pid_task(5), proc_pid_status(5), proc_pid_smaps(5) and proc_pid_cmdline(5).

use std::collections::BTreeMap;

use penstock_model::CpuSet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Root,
    files::{self, FileError},
    running::Running,
};

/// A VM's QEMU process, as the host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmObservation {
    /// By virtual CPU, from 0: the host's CPUs that its thread may run on (`Cpus_allowed_list`).
    pub vcpu_affinity: Vec<CpuSet>,
    /// The CPUs that QEMU's other threads may run on, those of all of them together.
    pub emulator_affinity: CpuSet,
    /// Its memory as it was started with (`-m`), in bytes; `None` where its command line does not say.
    pub memory: Option<u64>,
    /// Memory that stays in RAM (`VmLck`), in bytes; that which functions reach by VFIO counts.
    pub locked: Option<u64>,
    /// Memory in huge pages: by the size of a page the size of what is mapped so, in bytes. `None` where the kernel does
    /// not say.
    pub huge: Option<BTreeMap<u64, u64>>,
}

/// Why a VM's process could not be looked at.
#[derive(Debug, Error)]
pub enum ThreadsError {
    /// Its files could not be read: it has ended, or belongs to somebody else.
    #[error("could not look at process {pid}")]
    File {
        /// The process id of QEMU.
        pid: u32,
        /// Why one of its files in `/proc` could not be read.
        #[source]
        source: FileError,
    },
    /// None of its threads runs a virtual CPU.
    #[error("process {pid} has no thread of a virtual CPU among its {threads}")]
    NoVcpus {
        /// The process id of QEMU.
        pid: u32,
        /// How many threads it has.
        threads: usize,
    },
    /// What was still there of it says nothing of the VM.
    #[error("process {pid} ended while it was looked at")]
    Ended {
        /// The process id of QEMU.
        pid: u32,
    },
}

/// A command line, a status or the name of a thread is shorter; the map of a VM's memory has some thousand lines.
const LIMIT: usize = 8 << 20;

/// `SIGKILL` in a mask of signals.
const KILL: u64 = 1 << 8;

/// Looks at the QEMU process `pid` of a VM.
///
/// # Errors
///
/// See [`ThreadsError`]. Threads that end while they are looked at are passed over, unless the whole process ends.
pub fn vm_sight(root: &Root, pid: u32) -> Result<VmObservation, ThreadsError> {
    while_it_runs(root, pid, || look(root, pid))
}

/// What `look` sees of process `pid`, if that is the same one afterwards.
fn while_it_runs<T>(
    root: &Root,
    pid: u32,
    look: impl FnOnce() -> Result<T, ThreadsError>,
) -> Result<T, ThreadsError> {
    let running = Running::find(root, pid);
    match (running, look()) {
        (Some(running), seen) if running.is_alive_below(root) && !is_ending(root, pid) => seen,
        // What cannot be read at all may belong to somebody else.
        (None, Err(error @ ThreadsError::File { .. })) => Err(error),
        _ => Err(ThreadsError::Ended { pid }),
    }
}

/// Whether a process was killed, or has given back its memory, and its command line with it. Its threads end one by one, and that of a
/// large VM then stays for seconds.
fn is_ending(root: &Root, pid: u32) -> bool {
    let read = |name: &str| files::read_at_most(root.path(format!("/proc/{pid}/{name}")), LIMIT);
    let status = read("status").map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned());
    let is_killed = |status: String| {
        let pending = field(&status, "SigPnd").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        pending.is_some_and(|pending| pending & KILL != 0)
    };
    status.is_ok_and(is_killed) || read("cmdline").is_ok_and(|(line, _)| line.is_empty())
}

fn look(root: &Root, pid: u32) -> Result<VmObservation, ThreadsError> {
    let of = |name: &str| root.path(format!("/proc/{pid}/{name}"));
    let error = |source: FileError| ThreadsError::File { pid, source };
    let read = |name: &str| {
        files::read_at_most(of(name), LIMIT)
            .map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(error)
    };
    let tasks = files::list(of("task")).map_err(error)?;
    let mut vcpus: BTreeMap<u32, CpuSet> = BTreeMap::new();
    let mut emulator = CpuSet::default();
    for task in &tasks {
        let (Ok(name), Ok(status)) =
            (read(&format!("task/{task}/comm")), read(&format!("task/{task}/status")))
        else {
            continue;
        };
        let Some(allowed) = field(&status, "Cpus_allowed_list").and_then(|text| text.parse::<CpuSet>().ok())
        else {
            continue;
        };
        // A thread of the kernel's own that follows the first virtual CPU (`arch/x86/kvm/mmu/mmu.c`).
        if name.starts_with("kvm-nx-lpage") {
            continue;
        }
        match vcpu(&name) {
            Some(number) => drop(vcpus.insert(number, allowed)),
            None => emulator.0.extend(allowed.0),
        }
    }
    if vcpus.is_empty() {
        return Err(ThreadsError::NoVcpus { pid, threads: tasks.len() });
    }
    let status = read("status")?;
    Ok(VmObservation {
        vcpu_affinity: vcpus.into_values().collect(),
        emulator_affinity: emulator,
        memory: memory_of(&read("cmdline")?),
        locked: field(&status, "VmLck").and_then(kilobytes),
        huge: read("smaps").ok().map(|smaps| huge_of(&smaps)),
    })
}

/// The threads of the virtual CPUs of QEMU's process `pid`, by virtual CPU: of one that is ending those that are left, for what they have is
/// still to be given back.
///
/// # Errors
///
/// [`ThreadsError::File`] or [`ThreadsError::NoVcpus`].
pub fn vcpu_threads(root: &Root, pid: u32) -> Result<BTreeMap<u32, u32>, ThreadsError> {
    let tasks = files::list(root.path(format!("/proc/{pid}/task")))
        .map_err(|source| ThreadsError::File { pid, source })?;
    let threads: BTreeMap<u32, u32> = tasks
        .iter()
        .filter_map(|task| {
            let name = files::read_to_string(root.path(format!("/proc/{pid}/task/{task}/comm"))).ok()?;
            Some((vcpu(&name)?, task.parse().ok()?))
        })
        .collect();
    if threads.is_empty() {
        return Err(ThreadsError::NoVcpus { pid, threads: tasks.len() });
    }
    Ok(threads)
}

/// The number in `CPU 3/KVM`.
fn vcpu(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split('/').next()?.trim().parse().ok()
}

/// The value of a line `Name: value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// `1234 kB` in bytes.
fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What `-m` says, in bytes: `-m 256`, `-m 1G`, `-m size=262144k,slots=2` (QEMU's manual; MiB without a suffix).
fn memory_of(command_line: &str) -> Option<u64> {
    let mut words = command_line.split('\0');
    words.find(|word| *word == "-m")?;
    let size = words.next()?.split(',').next()?;
    let size = size.strip_prefix("size=").unwrap_or(size);
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &size[digits.len()..] {
        "k" | "K" => 1 << 10,
        "" | "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// What is mapped in pages of more than the usual size, by the size of a page.
fn huge_of(smaps: &str) -> BTreeMap<u64, u64> {
    let mut huge = BTreeMap::new();
    let mut size = None;
    let mut usual = u64::MAX;
    let mut mapped: Vec<(u64, u64)> = Vec::new();
    for line in smaps.lines() {
        if let Some(text) = line.strip_prefix("Size:") {
            size = kilobytes(text.trim());
        } else if let Some(text) = line.strip_prefix("KernelPageSize:")
            && let (Some(size), Some(page)) = (size.take(), kilobytes(text.trim()))
        {
            usual = usual.min(page);
            mapped.push((page, size));
        }
    }
    for (page, size) in mapped.into_iter().filter(|(page, _)| *page > usual) {
        let sum: &mut u64 = huge.entry(page).or_default();
        *sum = sum.saturating_add(size);
    }
    huge
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(threads: &[(u32, &str, &str)], rest: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let write = |name: String, text: &str| {
            let path = root.path(format!("/proc/7/{name}"));
            files::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (id, name, allowed) in threads {
            write(format!("task/{id}/comm"), &format!("{name}\n"));
            write(
                format!("task/{id}/status"),
                &format!(
                    "Name:\t{name}\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\nMems_allowed:\t1\n"
                ),
            );
        }
        write("stat".to_owned(), &stat("S", 300));
        for (name, text) in rest {
            write((*name).to_owned(), text);
        }
        (directory, root)
    }

    /// The line of a process in this state that started at this time.
    fn stat(state: &str, started: u64) -> String {
        format!("7 (qemu-system-x86) {state} {}{started} 0", "0 ".repeat(18))
    }

    const STATUS: &str =
        "Name:\tqemu-system-x86\nVmPeak:\t  900000 kB\nVmLck:\t  262144 kB\nVmPin:\t       0 kB\n";
    const SMAPS: &str = "7f0000000000-7f0010000000 rw-s 00000000 00:10 1 /dev/hugepages/libvirt/qemu/ram\n\
                         Size:             262144 kB\nKernelPageSize:     2048 kB\nMMUPageSize:        2048 kB\n\
                         7f1000000000-7f1000021000 rw-p 00000000 00:00 0\n\
                         Size:                132 kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\n";

    #[test]
    fn a_pinned_vm() {
        let threads = [
            (7, "qemu-system-x86", "0"),
            (8, "IO mon_iothread", "0-1"),
            (10, "CPU 1/KVM", "3"),
            (9, "CPU 0/KVM", "2"),
        ];
        let command = "/usr/bin/qemu-system-x86_64\0-name\0guest=rt-2\0-m\0size=262144k\0-smp\x002\0";
        let (_directory, root) =
            tree(&threads, &[("status", STATUS), ("smaps", SMAPS), ("cmdline", command)]);
        let sight = vm_sight(&root, 7).unwrap();
        assert_eq!(
            sight,
            VmObservation {
                vcpu_affinity: vec!["2".parse().unwrap(), "3".parse().unwrap()],
                emulator_affinity: "0-1".parse().unwrap(),
                memory: Some(256 << 20),
                locked: Some(256 << 20),
                huge: Some([(2 << 20, 256 << 20)].into()),
            }
        );
    }

    #[test]
    fn what_is_missing_or_ended_is_told() {
        assert!(matches!(vm_sight(&Root::at("/nowhere"), 7), Err(ThreadsError::File { pid: 7, .. })));
        let (_directory, root) = tree(&[(7, "bash", "0-3")], &[("status", STATUS), ("cmdline", "bash\0")]);
        assert!(matches!(vm_sight(&root, 7), Err(ThreadsError::NoVcpus { pid: 7, threads: 1 })));
        // Without `smaps`, which needs the same user, the rest is seen all the same.
        let (_directory, root) =
            tree(&[(9, "CPU 0/TCG", "0-3")], &[("status", "Name:\tq\n"), ("cmdline", "q\0")]);
        let sight = vm_sight(&root, 7).unwrap();
        assert_eq!((sight.memory, sight.locked, sight.huge), (None, None, None));
    }

    /// Its threads end one by one while the process is still there.
    #[test]
    fn of_a_vm_that_is_ending_nothing_is_told() {
        let left = [(7, "qemu-system-x86", "0"), (9, "CPU 0/KVM", "2")];
        let whole = [("status", STATUS), ("cmdline", "q\0")];
        let killed = format!("{STATUS}SigPnd:\t0000000000000100\n");
        let zombie = stat("Z", 300);
        let cases = [("cmdline", ""), ("status", &killed[..]), ("stat", &zombie)];
        for case in cases {
            let (_directory, root) = tree(&left, &[&whole[..], &[case]].concat());
            assert!(matches!(vm_sight(&root, 7), Err(ThreadsError::Ended { pid: 7 })), "{case:?}");
            assert_eq!(vcpu_threads(&root, 7).unwrap(), [(0, 9)].into(), "what is left");
        }
        let (_directory, root) = tree(&left, &whole);
        assert!(vm_sight(&root, 7).is_ok());
        let another = while_it_runs(&root, 7, || {
            std::fs::write(root.path("/proc/7/stat"), stat("S", 301)).unwrap();
            look(&root, 7)
        });
        assert!(matches!(another, Err(ThreadsError::Ended { pid: 7 })), "its number is another's by now");
    }

    #[test]
    fn sizes_as_qemu_writes_them() {
        for (words, bytes) in [
            ("-m\x00256", Some(256 << 20)),
            ("-m\x001G", Some(1 << 30)),
            ("-m\0size=524288k,slots=2,maxmem=1G", Some(512 << 20)),
            ("-m\0size=x", None),
            ("-m\x0099999999999999999999", None),
            ("-m\x0018446744073709551615G", None),
            ("-m", None),
            ("", None),
        ] {
            assert_eq!(memory_of(&format!("qemu\0{words}\0")), bytes, "{words}");
        }
    }
}
