//! Where processes run that something is written down of, for others to read who may run elsewhere: a file system can be that of several machines,
//! and a volume that of several containers.

use std::path::Path;

use penstock_model::digest::sha256;
use serde::{Deserialize, Serialize};

use crate::{Root, files};

/// What `/proc/self/ns/pid` leads to in the PID namespace that a kernel starts with (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Where numbers of processes mean these processes: a start of a machine, and there a PID namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunsOn {
    /// The host name of the machine or the container.
    pub host: String,
    /// Which start of which machine it is, and which PID namespace: a digest.
    pub start: String,
    /// Which machine it is, whenever it was started: a digest. `None` in a container, which does not come back.
    pub machine: Option<String>,
}

impl RunsOn {
    /// Where this process runs.
    pub fn here() -> RunsOn {
        RunsOn::below(&Root::system())
    }

    /// As [`here`](RunsOn::here), on the machine whose `/proc` and `/etc` lie below `root`.
    pub fn below(root: &Root) -> RunsOn {
        let read = |path: &str| {
            let text = files::read_to_string(root.path(path)).unwrap_or_default();
            text.trim().to_owned()
        };
        let namespace = files::read_link(root.path("/proc/self/ns/pid")).unwrap_or_default();
        let host = read("/proc/sys/kernel/hostname");
        let boot = Some(read("/proc/sys/kernel/random/boot_id")).filter(|id| !id.is_empty());
        let id = read("/etc/machine-id");
        // A machine's id is nobody else's to know (machine-id(5)).
        let digest = |of: &str| sha256(format!("penstock runs on {of}"))[..16].to_owned();
        let start = digest(&format!("{} {}", boot.as_ref().unwrap_or(&host), namespace.display()));
        let is_machine = namespace == Path::new(FIRST_NAMESPACE) && !id.is_empty();
        RunsOn { start, machine: is_machine.then(|| digest(&id)), host }
    }

    /// The name of the machine or the container where that runs of which `written` tells, if it is not this one: whether it runs cannot be told
    /// from here. What was written before this was is this one's.
    pub fn elsewhere(written: Option<&RunsOn>) -> Option<&str> {
        written.filter(|it| !it.is_known(&RunsOn::here())).map(|it| it.host.as_str())
    }

    /// Whether `here` can tell of this whether its processes run: it is the same, or an earlier start of the same machine, whose processes have
    /// ended.
    pub fn is_known(&self, here: &RunsOn) -> bool {
        let again = self.machine.is_some() && self.machine == here.machine && self.host == here.host;
        self.start == here.start || again
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A machine, and a container where the namespace is not the first.
    fn machine(host: &str, boot: &str, id: &str, namespace: &str) -> RunsOn {
        let there = tempfile::tempdir().unwrap();
        let root = Root::at(there.path());
        for (path, text) in [
            ("proc/sys/kernel/hostname", host),
            ("proc/sys/kernel/random/boot_id", boot),
            ("etc/machine-id", id),
        ] {
            let path = there.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        fs::create_dir_all(there.path().join("proc/self/ns")).unwrap();
        symlink(namespace, there.path().join("proc/self/ns/pid")).unwrap();
        RunsOn::below(&root)
    }

    #[test]
    fn only_who_counts_the_same_processes_can_tell_whether_they_run() {
        let a = machine("a", "1", "m", FIRST_NAMESPACE);
        assert!(a.is_known(&machine("a", "1", "m", FIRST_NAMESPACE)));
        assert!(a.is_known(&machine("b", "1", "m", FIRST_NAMESPACE)), "it was called otherwise meanwhile");
        assert!(a.is_known(&machine("a", "2", "m", FIRST_NAMESPACE)), "it was started anew");
        // Another machine, one that was copied with its id, a container on it, and a machine without an id.
        for other in [
            machine("b", "2", "n", FIRST_NAMESPACE),
            machine("b", "2", "m", FIRST_NAMESPACE),
            machine("a", "1", "m", "pid:[4026532999]"),
            machine("a", "2", "", FIRST_NAMESPACE),
        ] {
            assert!(!a.is_known(&other) && !other.is_known(&a), "{other:?}");
        }
        // What is in an image is no machine's: each container of it has it.
        let container = machine("c", "1", "m", "pid:[4026532999]");
        assert!(!container.is_known(&machine("c", "2", "m", "pid:[4026532999]")));
        assert!(!container.is_known(&machine("c", "1", "m", "pid:[4026533000]")));
        assert!(container.is_known(&container));
    }

    #[test]
    fn this_process_runs_here() {
        assert!(RunsOn::here().is_known(&RunsOn::here()));
        assert!(!RunsOn::here().host.is_empty());
    }
}
