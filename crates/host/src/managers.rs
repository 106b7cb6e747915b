//! Programs that configure network interfaces as they appear, and how each is told to leave some alone.
//!
//! Each NIC has one file for each manager, below `/run`: it is gone after a reboot, as what it is about.
//!
//! - systemd-networkd takes the first `.network` file, by name, that matches an interface (systemd.network(5)); ours says
//!   `Unmanaged=yes`. It reads them when it is told (`networkctl reload`), and then configures anew only what matches a file
//!   that has changed.
//! - NetworkManager leaves alone what udev marks with `NM_UNMANAGED` (NetworkManager(8)). udev looks at its rules when an
//!   interface appears, also one that comes back from a guest.
//!
//! Beside a file that its manager has yet to read lies another, empty one ([`UNREAD`]): whoever is killed between the two has
//! left something to be done, whatever the first one says.

use std::{collections::BTreeSet, time::Duration};

use penstock_model::{Bdf, inventory::Manager};
use thiserror::Error;

use crate::{
    Command, ProcessError, Root,
    files::{self, FileError},
    root::ENTRIES,
};

/// How long a manager may take to read its files.
const READING: Duration = Duration::from_secs(20);

/// The line by which a file of ours is read back.
const MARK: &str = "# functions:";

/// How the name of the file ends that lies beside one which was changed and not yet read. Neither manager reads it.
const UNREAD: &str = ".unread";

/// Why a manager was not told.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// The file was not written or removed.
    #[error("{manager} was not told to leave functions of {pf} alone")]
    File {
        /// The manager that the file is for.
        manager: Manager,
        /// The functions' PF.
        pf: Bdf,
        /// Why the file could not be written or removed.
        #[source]
        source: FileError,
    },
    /// The file is there, and the manager did not read it.
    #[error("{manager} did not read anew what it is to leave alone")]
    NotRead {
        /// The manager that was to read its files again.
        manager: Manager,
        /// Why the command that tells it failed.
        #[source]
        source: ProcessError,
    },
}

/// The directory of a manager's files, and how ours start and end there.
fn place(manager: Manager) -> (&'static str, &'static str, &'static str) {
    match manager {
        // Before all that an operator would write, also netplan's 10-netplan-....
        Manager::Networkd => ("/run/systemd/network", "00-00-penstock-", ".network"),
        // Behind NetworkManager's own, 85-nm-unmanaged.rules.
        Manager::NetworkManager => ("/run/udev/rules.d", "86-penstock-", ".rules"),
    }
}

fn path(manager: Manager, pf: Bdf) -> String {
    let (directory, start, end) = place(manager);
    // A colon is no letter of a unit's name.
    format!("{directory}/{start}{}{end}", pf.to_string().replace(':', "-"))
}

fn unread_path(manager: Manager, pf: Bdf) -> String {
    path(manager, pf) + UNREAD
}

fn text(manager: Manager, functions: &BTreeSet<Bdf>) -> String {
    let list = |before: &str, between: &str| -> String {
        let all: Vec<String> = functions.iter().map(|function| format!("{before}{function}")).collect();
        all.join(between)
    };
    let head = format!(
        "# Written by penstock, whose guests have these functions; gone after a reboot.\n{MARK} {}\n",
        list("", " ")
    );
    match manager {
        // ID_PATH ends with the function's address; on some machines something comes before (`platform-...-pci-`).
        Manager::Networkd => {
            format!("{head}[Match]\nPath={}\n\n[Link]\nUnmanaged=yes\n", list("*pci-", " "))
        }
        Manager::NetworkManager => format!(
            "{head}SUBSYSTEM==\"net\", ACTION!=\"remove\", SUBSYSTEMS==\"pci\", KERNELS==\"{}\", ENV{{NM_UNMANAGED}}=\"1\"\n",
            list("", "|")
        ),
    }
}

/// Tells a manager to leave these functions of a PF alone, and no others of it: itself and its VFs.
///
/// # Errors
///
/// [`ManagerError::File`] when the manager's file cannot be written or removed, [`ManagerError::NotRead`] when it cannot be
/// told to read it.
pub fn leave_alone(
    root: &Root,
    manager: Manager,
    pf: Bdf,
    functions: &BTreeSet<Bdf>,
) -> Result<(), ManagerError> {
    let file = |source| ManagerError::File { manager, pf, source };
    write(root, manager, pf, functions).map_err(file)?;
    let read = match root.is_system() {
        true => have_read(manager),
        false => Ok(()),
    };
    // A manager that refuses is told of to whoever asked; only who is killed tells nobody.
    files::remove_file(root.path(unread_path(manager, pf))).map_err(file)?;
    read
}

/// Writes what a manager is to read, or takes it away; that it is to be read is known before.
fn write(root: &Root, manager: Manager, pf: Bdf, functions: &BTreeSet<Bdf>) -> Result<(), FileError> {
    let path = root.path(path(manager, pf));
    if functions.is_empty() && !files::exists(&path) && !is_unread(root, manager, pf) {
        // Where it was told nothing there may be no directory either.
        return files::remove_parts(&path);
    }
    path.parent().map_or(Ok(()), files::create_dir_all)?;
    files::append(root.path(unread_path(manager, pf)))?;
    files::remove_parts(&path)?;
    match functions.is_empty() {
        true => files::remove_file(&path),
        false => files::write_atomic(&path, text(manager, functions)),
    }
}

fn have_read(manager: Manager) -> Result<(), ManagerError> {
    let reading = match manager {
        Manager::Networkd => Command::new("networkctl").arg("reload"),
        Manager::NetworkManager => Command::new("udevadm").args(["control", "--reload"]),
    };
    match reading.deadline(READING).succeed() {
        Ok(_) => Ok(()),
        Err(source) => Err(ManagerError::NotRead { manager, source }),
    }
}

/// What a manager was told of a PF, and has read as far as that is known; `None` when the file that is there is none of ours, or was
/// changed by somebody who did not live to have it read.
pub fn left_alone(root: &Root, manager: Manager, pf: Bdf) -> Option<BTreeSet<Bdf>> {
    if is_unread(root, manager, pf) { None } else { written(root, manager, pf) }
}

/// Whether what is written for a manager of a PF, or that nothing is, has yet to be read by it.
pub fn is_unread(root: &Root, manager: Manager, pf: Bdf) -> bool {
    root.exists(&unread_path(manager, pf))
}

/// What is written for a manager of a PF, read or not; `None` when the file that is there is none of ours.
pub fn written(root: &Root, manager: Manager, pf: Bdf) -> Option<BTreeSet<Bdf>> {
    let path = path(manager, pf);
    let Ok((bytes, false)) = root.read(&path, 1 << 20) else {
        return (!root.exists(&path)).then(BTreeSet::new);
    };
    let found = String::from_utf8(bytes).ok()?;
    let line = found.lines().find_map(|line| line.strip_prefix(MARK))?;
    let functions = line.split_whitespace().map(str::parse).collect::<Result<BTreeSet<Bdf>, _>>().ok()?;
    (text(manager, &functions) == found).then_some(functions)
}

/// The PF that one of a manager's files is about, by the file's name.
fn pf_of(manager: Manager, name: &str) -> Option<Bdf> {
    let (_, start, end) = place(manager);
    let pf = name.strip_suffix(UNREAD).unwrap_or(name).strip_prefix(start)?.strip_suffix(end)?;
    let mut parts = pf.splitn(3, '-');
    let (domain, bus, rest) = (parts.next()?, parts.next()?, parts.next()?);
    format!("{domain}:{bus}:{rest}").parse().ok()
}

/// The PFs of which a manager was told something, or has yet to read that it is told nothing more.
pub fn known(root: &Root, manager: Manager) -> BTreeSet<Bdf> {
    let (directory, ..) = place(manager);
    let entries = root.entries(directory, ENTRIES).unwrap_or_default();
    entries.iter().filter_map(|entry| pf_of(manager, &entry.name)).collect()
}

/// Whether a manager runs and sees this machine's interfaces rather than a container's.
pub fn runs(root: &Root, manager: Manager) -> bool {
    // What the kernel keeps of a program's name: 15 bytes.
    let (state, name) = match manager {
        Manager::Networkd => ("/run/systemd/netif", "systemd-network"),
        Manager::NetworkManager => ("/run/NetworkManager", "NetworkManager"),
    };
    // Either makes it when it starts: where it is not there, nobody need be looked for.
    if !root.exists(state) {
        return false;
    }
    let namespace = |id: &str| root.target(&format!("/proc/{id}/ns/net")).ok();
    let own = namespace("self");
    let processes = root.entries("/proc", ENTRIES).unwrap_or_default();
    processes.iter().map(|entry| &entry.name).filter(|id| id.bytes().all(|byte| byte.is_ascii_digit())).any(
        |id| {
            let path = format!("/proc/{id}/comm");
            let comm = root.unnoted().read(&path, 64).unwrap_or_default().0;
            // A recorder need not know what else runs.
            if comm.trim_ascii_end() == name.as_bytes() {
                root.note(&path, Ok(&comm));
            }
            let comm = String::from_utf8_lossy(&comm);
            // Who may not see the namespace takes it for ours.
            comm.trim_end() == name
                && namespace(id).is_none_or(|seen| own.as_ref().is_none_or(|own| *own == seen))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(list: &[&str]) -> BTreeSet<Bdf> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// What each manager reads, to the byte: networkd's own reader is met on a board, NetworkManager has none there.
    #[test]
    fn what_a_manager_is_told() {
        let two = functions(&["0000:04:10.0", "0000:04:10.2"]);
        assert_eq!(
            text(Manager::NetworkManager, &two).lines().last(),
            Some(
                r#"SUBSYSTEM=="net", ACTION!="remove", SUBSYSTEMS=="pci", KERNELS=="0000:04:10.0|0000:04:10.2", ENV{NM_UNMANAGED}="1""#
            )
        );
        assert!(
            text(Manager::Networkd, &two)
                .ends_with("[Match]\nPath=*pci-0000:04:10.0 *pci-0000:04:10.2\n\n[Link]\nUnmanaged=yes\n")
        );
    }

    #[test]
    fn what_was_told_is_read_back_and_taken_away() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let pf: Bdf = "0000:04:00.0".parse().unwrap();
        for manager in Manager::ALL {
            assert_eq!(left_alone(&root, manager, pf), Some(BTreeSet::new()));
            for list in [&["0000:04:10.0", "0000:04:10.2"][..], &["0000:04:00.0"], &[]] {
                leave_alone(&root, manager, pf, &functions(list)).unwrap();
                assert_eq!(left_alone(&root, manager, pf), Some(functions(list)));
                assert_eq!(
                    known(&root, manager),
                    if list.is_empty() { BTreeSet::new() } else { [pf].into() }
                );
            }
            // Gone already is success; what somebody has changed is no longer ours.
            leave_alone(&root, manager, pf, &BTreeSet::new()).unwrap();
            leave_alone(&root, manager, pf, &functions(&["0000:04:10.0"])).unwrap();
            let file = root.path(path(manager, pf));
            let changed = files::read_to_string(&file).unwrap().replace("10.0", "10.4");
            files::write_atomic(&file, changed.replacen("10.4", "10.6", 1)).unwrap();
            assert_eq!(left_alone(&root, manager, pf), None);
        }
    }

    /// Killed between the file and what has it read: neither way may take it for told.
    #[test]
    fn what_nobody_has_had_read_is_not_told() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let pf: Bdf = "0000:04:00.0".parse().unwrap();
        for manager in Manager::ALL {
            for list in [&["0000:04:10.0"][..], &[]] {
                write(&root, manager, pf, &functions(list)).unwrap();
                assert_eq!(left_alone(&root, manager, pf), None, "{manager}");
                assert_eq!(written(&root, manager, pf), Some(functions(list)));
                assert_eq!(known(&root, manager), [pf].into());
                // Half a file that somebody was killed at goes as well.
                let part = format!("{}.4194305.0123456789abcdef.part", path(manager, pf));
                std::fs::write(root.path(&part), "").unwrap();
                leave_alone(&root, manager, pf, &functions(list)).unwrap();
                assert_eq!(left_alone(&root, manager, pf), Some(functions(list)));
                assert!(!is_unread(&root, manager, pf) && !root.exists(&part));
            }
            assert!(known(&root, manager).is_empty());
        }
    }

    #[test]
    fn a_manager_runs_whose_process_is_there() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let file = |path: &str, text: &str| {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file("proc/7/comm", "systemd-network\n");
        file("proc/8/comm", "NetworkManager\n");
        assert!(!runs(&root, Manager::Networkd), "nothing in /run");
        file("run/systemd/netif/state", "");
        assert!(runs(&root, Manager::Networkd) && !runs(&root, Manager::NetworkManager));
        file("run/NetworkManager/x", "");
        assert!(runs(&root, Manager::NetworkManager));
        // In another network namespace it is a container's.
        for (id, number) in [("self", 1), ("8", 2), ("7", 1)] {
            std::fs::create_dir_all(tree.path().join(format!("proc/{id}/ns"))).unwrap();
            std::os::unix::fs::symlink(
                format!("net:[{number}]"),
                tree.path().join(format!("proc/{id}/ns/net")),
            )
            .unwrap();
        }
        assert!(runs(&root, Manager::Networkd) && !runs(&root, Manager::NetworkManager));
    }
}
