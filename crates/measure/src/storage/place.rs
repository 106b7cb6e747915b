//! Where a target lies at each end, and what may not be written to.

use std::{path::PathBuf, time::Duration};

use penstock_host::{
    Command, Place, Root, chain,
    device::{self, Device, used},
    files,
};

/// How long a small question may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Asks a VM who has the device `$1` or a partition of it, and whether it can be had alone: other devices on it (LVM, RAID,
/// dm-crypt) are its holders (Documentation/ABI/testing/sysfs-block); file systems of several devices and ZFS only keep others
/// from opening it with `O_EXCL` (open(2)). Says the first that it finds, else "free"; then what the path leads to, and the tables of
/// what is mounted and swapped to. All in one command, since it is asked before every sample.
const ASK: &str = r#"
who() {
    [ -b "$d" ] || { echo "unknown no block device"; return; }
    n=$(printf %s "${d#/dev/}" | tr / '!')
    s=/sys/class/block/$n
    [ -d "$s" ] || { echo "unknown no $s"; return; }
    for p in "$s" "$s/$n"*; do
        [ "$p" = "$s" ] || [ -e "$p/partition" ] || continue
        for h in "$p"/holders/*; do [ -e "$h" ] && { echo "holder ${h##*/}"; return; }; done
    done
    # The second is the one that the system of EL8 is written for, which may have no other.
    python=$(command -v python3) || python=/usr/libexec/platform-python
    if command -v perl >/dev/null; then
        perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_RDONLY | O_EXCL) ? print "free
" : printf "held %d
", $!' "$d"
    elif [ -x "$python" ]; then
        "$python" -c 'import os, sys
try:
    os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)
    print("free")
except OSError as error:
    print("held", error.errno)' "$d"
    else
        echo "unknown neither perl nor python3 is there to open it alone"
    fi
}
d=$(readlink -f -- "$1") || d=
who
echo "leads to $d"
cat /proc/self/mountinfo || exit
echo swaps
cat /proc/swaps || exit
echo end
"#;

/// The root directory of a container as the host reaches it; `None` for a VM, which is under another kernel.
///
/// # Errors
///
/// The guest has stopped.
pub fn root_of(place: &dyn Place) -> Result<Option<PathBuf>, String> {
    match place.namespace() {
        Ok(Some(process)) => Ok(Some(PathBuf::from(format!("/proc/{process}/root")))),
        Ok(None) => Ok(Some(PathBuf::from("/"))),
        // A place under another kernel has no process here; one that has stopped answers nothing at all.
        Err(_) if place.run(&Command::new("true")).is_ok() => Ok(None),
        Err(error) => Err(chain(&error)),
    }
}

/// The node of a device of this host, with every symbolic link resolved, and which device it is.
///
/// # Errors
///
/// In words: there is no such path, it cannot be looked at, or it is no block device.
pub fn device_here(path: &str) -> Result<(String, Device), String> {
    let node = files::canonical(path).map_err(|error| match error.is_missing() {
        true => format!("there is no {path} on the host"),
        false => chain(&error),
    })?;
    match device::at(&node).map_err(|error| chain(&error))? {
        Some(device) if device.block => Ok((node.to_string_lossy().into_owned(), device)),
        _ => Err(format!("{path} on the host is no block device")),
    }
}

/// Why a device of this host must not be written to, if so: the host, or anybody on it, uses it.
pub fn in_use_here(node: &str, device: Device) -> Option<String> {
    let root = Root::system();
    used::refusal(&root, node, device, &used::by_host(&root)).unwrap_or_else(|error| Some(chain(&error)))
}

/// Why the path of a container is not this device, if so.
pub fn another_device_inside(root: &PathBuf, path: &str, here: Device) -> Option<String> {
    let inside = device::hold_in_root(root, path)
        .map_err(|error| chain(&error))
        .and_then(|held| held.device().map_err(|error| error.to_string()));
    match inside {
        Ok(Some(inside)) if inside == here => None,
        Ok(Some(inside)) => Some(format!("{path} is {inside} inside and {here} on the host")),
        Ok(None) => Some(format!("{path} is no device inside")),
        Err(why) => Some(why),
    }
}

/// Why a device inside a VM must not be written to, if so: the VM uses it, or cannot be asked.
pub fn in_use_inside(place: &dyn Place, path: &str) -> Option<String> {
    let ask = Command::new("sh").args(["-c", ASK, "penstock-measure", path]).deadline(TIMEOUT);
    let there = place.describe();
    let unknown = |why: &str| Some(format!("whether {path} is in use {there} cannot be told: {why}"));
    let output = match place.run(&ask) {
        Ok(output) => output,
        Err(error) => return unknown(&chain(&error)),
    };
    let said = output.text();
    let Some(answer) = Answer::read(&said).filter(|_| output.status.success() && !output.truncated) else {
        return unknown(&message(&output.errors()));
    };
    if let Some(why) = named_in(answer.mounts, answer.swaps, &[path, answer.leads_to]) {
        return Some(format!("{path} is {why} {there}"));
    }
    let who = message(answer.who);
    match who.split_once(' ') {
        None if who == "free" => None,
        Some(("holder", holder)) => Some(format!("{path} is a part of {holder} {there}")),
        Some(("held", "16")) => Some(format!("somebody {there} has {path} in use")),
        Some(("held", number)) => unknown(&format!("it cannot be opened: error {number}")),
        Some(("unknown", why)) => unknown(why),
        _ => unknown(&message(&output.errors())),
    }
}

/// What [`ASK`] said.
struct Answer<'a> {
    who: &'a str,
    leads_to: &'a str,
    mounts: &'a str,
    swaps: &'a str,
}

impl Answer<'_> {
    /// `None` when it is not whole.
    fn read(said: &str) -> Option<Answer<'_>> {
        let said = said.strip_suffix("end\n")?;
        let (who, rest) = said.split_once("leads to ")?;
        let (leads_to, tables) = rest.split_once('\n')?;
        // A line of the mounts begins with a number, and a name there has no end of a line.
        let (mounts, swaps) = tables.split_once("\nswaps\n")?;
        Some(Answer { who, leads_to, mounts, swaps })
    }
}

fn message(errors: &str) -> String {
    let line = errors.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// What a device, or a partition of it, is used for by these tables.
fn named_in(mounts: &str, swaps: &str, names: &[&str]) -> Option<String> {
    // A partition's name begins with its disk's.
    let named = |source: &str| names.iter().any(|name| !name.is_empty() && source.starts_with(name));
    for line in mounts.lines() {
        // Documentation/filesystems/proc.rst, 3.5: the mount point is field 5, the source the second after " - ".
        let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
        if source.is_some_and(named) {
            return Some(format!("mounted at {}", line.split(' ').nth(4).unwrap_or("?")));
        }
        // The kernel's own name for what it mounted first.
        if source == Some("/dev/root") {
            return Some("perhaps what /dev/root stands for, mounted".to_owned());
        }
    }
    let swap = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(named);
    swap.then(|| "swap space".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use penstock_host::{InterfaceReport, Output, PlaceError};

    use super::*;

    #[test]
    fn what_a_vm_uses() {
        let mounts = "22 1 8:2 / / rw shared:1 - ext4 /dev/vda2 rw\n23 22 0:21 / /proc rw - proc proc rw\n";
        let swaps = "Filename\tType\n/dev/vdb partition 1 0 -2\n";
        let used = |names: &[&str]| named_in(mounts, swaps, names);
        assert_eq!(used(&["/dev/vda"]).as_deref(), Some("mounted at /"), "a part of it is");
        assert_eq!(used(&["/dev/disk/by-id/x", "/dev/vda2"]).as_deref(), Some("mounted at /"));
        assert_eq!(used(&["/dev/vdb"]).as_deref(), Some("swap space"));
        assert_eq!(used(&["/dev/vdc", ""]), None);
        let first = "22 1 8:2 / / rw - ext4 /dev/root rw\n";
        assert!(named_in(first, swaps, &["/dev/vdc"]).is_some(), "nobody can tell which that is");
    }

    /// A VM that is this host, and counts what it is asked.
    #[derive(Default)]
    struct Vm(AtomicUsize);

    impl Place for Vm {
        fn describe(&self) -> String {
            "inside a".to_owned()
        }

        fn run(&self, command: &Command) -> Result<Output, PlaceError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            command.run().map_err(|source| PlaceError::Process { place: self.describe(), source })
        }

        fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(files::read_at_most(path, limit).unwrap().0)
        }

        fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
            unreachable!()
        }

        fn namespace(&self) -> Result<Option<u32>, PlaceError> {
            unreachable!()
        }
    }

    #[test]
    fn a_vm_is_asked_once() {
        let vm = Vm::default();
        for path in ["/dev/null", "/dev/no such", "-n"] {
            let why = in_use_inside(&vm, path).unwrap();
            // Where a table of this host has /dev/root, it is that.
            assert!(why.contains("no block device") || why.contains("/dev/root"), "{why}");
        }
        assert_eq!(vm.0.into_inner(), 3);
    }

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        let whole = "held 16\nleads to /dev/vdb\n22 1 8:2 / / rw - ext4 /dev/vda2 rw\nswaps\nFilename\n/dev/vdc 1\nend\n";
        let answer = Answer::read(whole).unwrap();
        assert_eq!((answer.who, answer.leads_to), ("held 16\n", "/dev/vdb"));
        assert!(named_in(answer.mounts, answer.swaps, &["/dev/vda"]).is_some());
        assert!(named_in(answer.mounts, answer.swaps, &["/dev/vdc"]).is_some());
        assert!(named_in(answer.mounts, answer.swaps, &["/dev/vdb"]).is_none());
        for end in 0..whole.len() {
            assert!(Answer::read(&whole[..end]).is_none(), "{}", &whole[..end]);
        }
    }

    #[test]
    fn devices_of_this_host() {
        assert!(device_here("/dev/no-such-disk").unwrap_err().contains("there is no"));
        assert!(device_here("/dev/null").unwrap_err().contains("is no block device"));
    }
}
