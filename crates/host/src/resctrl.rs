//! Groups of CPUs with their own ways of caches and their own share of memory bandwidth
//! (`Documentation/filesystems/resctrl.rst`).

use std::{collections::BTreeMap, fs};

use nix::errno::Errno;
use penstock_model::inventory::tuning::ResctrlGroup;
use thiserror::Error;

use crate::{
    Root,
    files::{self, FileError},
};

const MOUNT: &str = "/sys/fs/resctrl";

/// Domains and resources of one group: caches of a machine with hundreds of sockets.
const MOST_SHARES: usize = 4096;

/// Capacity masks, or bandwidth for `MB` and `SMBA`, by resource and domain.
pub type Schemata = BTreeMap<String, BTreeMap<u32, u64>>;

/// Why a group was not made, changed or removed.
#[derive(Debug, Error)]
pub enum ResctrlError {
    /// Nothing is mounted there.
    #[error("{MOUNT} is not mounted")]
    NotMounted,
    /// There is no room for one more.
    #[error("resctrl has no room for group {group}: the CPU knows no more groups than there are")]
    Full {
        /// The group that was to be made.
        group: String,
    },
    /// There is no such group.
    #[error("there is no resctrl group {group:?}")]
    Gone {
        /// The group that was looked for.
        group: String,
    },
    /// The name could lead elsewhere.
    #[error("{group:?} is no name of a resctrl group")]
    Name {
        /// The name that was given.
        group: String,
    },
    /// The kernel refused.
    #[error("{attempt}: resctrl says {said:?}")]
    Refused {
        /// What was attempted.
        attempt: String,
        /// At most 200 characters of `info/last_cmd_status`; empty where it could not be read.
        said: String,
        /// The error of the file.
        #[source]
        source: FileError,
    },
    /// A file that makes no sense.
    #[error("{MOUNT}/{file} holds {text:?}, which cannot be parsed")]
    Odd {
        /// The path of the file, below the mount point.
        file: String,
        /// The beginning of it.
        text: String,
    },
    /// A file or directory of a group could not be read, made or removed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ResctrlError {
    /// Whether this machine cannot do it as it is.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, ResctrlError::NotMounted)
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ResctrlError::NotMounted => Some(
                "where the CPU has it (rdt_a in /proc/cpuinfo): mount -t resctrl resctrl /sys/fs/resctrl, and a line in /etc/fstab",
            ),
            ResctrlError::Full { .. } => {
                Some("remove a group that nobody needs, or have fewer guests ask for `cache`")
            }
            _ => None,
        }
    }
}

/// The groups of a machine.
#[derive(Clone, Debug)]
pub struct ResctrlGroups {
    root: Root,
}

impl ResctrlGroups {
    /// The groups of the machine under `root`.
    ///
    /// # Errors
    ///
    /// When they are not mounted.
    pub fn of(root: &Root) -> Result<ResctrlGroups, ResctrlError> {
        if !files::exists(root.path(format!("{MOUNT}/schemata"))) {
            return Err(ResctrlError::NotMounted);
        }
        Ok(ResctrlGroups { root: root.clone() })
    }

    /// Makes a group with these CPUs and shares; one of this name is changed. After a failure there is none.
    ///
    /// # Errors
    ///
    /// See [`ResctrlError`].
    pub fn make(&self, group: &str, settings: &ResctrlGroup) -> Result<(), ResctrlError> {
        let path = self.path(group, "")?;
        match fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) if error.raw_os_error() == Some(Errno::ENOSPC as i32) => {
                return Err(ResctrlError::Full { group: group.to_owned() });
            }
            Err(source) => return Err(FileError { attempt: "make the group", path, source }.into()),
            Ok(()) => {}
        }
        // Shares first: a CPU that comes in has them from its first moment on.
        let made = self.set_schemata(group, &settings.schemata).and_then(|()| {
            let attempt = format!("the CPUs {} were not put into resctrl group {group}", settings.cpus);
            self.write(group, "cpus_list", &format!("{}\n", settings.cpus), attempt)
        });
        if made.is_err() {
            let _ = self.remove(group);
        }
        made
    }

    /// Removes a group; already gone is success. Its CPUs are the default group's again.
    ///
    /// # Errors
    ///
    /// See [`ResctrlError`].
    pub fn remove(&self, group: &str) -> Result<(), ResctrlError> {
        Ok(files::remove_directory(self.path(group, "")?)?)
    }

    /// Whether there is a group of this name.
    pub fn has(&self, group: &str) -> bool {
        self.path(group, "").is_ok_and(files::exists)
    }

    /// Sets shares of a group, the default one by the empty name.
    ///
    /// # Errors
    ///
    /// See [`ResctrlError`].
    pub fn set_schemata(&self, group: &str, schemata: &Schemata) -> Result<(), ResctrlError> {
        // One line a write: one that is refused is then the one that the kernel talks about.
        for (resource, domains) in schemata {
            let line = written(resource, domains);
            let attempt = format!("the shares {line} were not taken by resctrl group {group:?}");
            self.write(group, "schemata", &format!("{line}\n"), attempt)?;
        }
        Ok(())
    }

    /// A group as it is.
    ///
    /// # Errors
    ///
    /// See [`ResctrlError`].
    pub fn read(&self, group: &str) -> Result<ResctrlGroup, ResctrlError> {
        let text = |file: &str| -> Result<String, ResctrlError> {
            files::read_to_string(self.path(group, file)?).map_err(|error| {
                if error.is_missing() { ResctrlError::Gone { group: group.to_owned() } } else { error.into() }
            })
        };
        let odd = |file: &str, text: &str| ResctrlError::Odd {
            // The root group has no name.
            file: if group.is_empty() { file.to_owned() } else { format!("{group}/{file}") },
            text: text.chars().take(80).collect(),
        };
        let cpus = text("cpus_list")?;
        let shares = text("schemata")?;
        let schemata = parsed(&shares).ok_or_else(|| odd("schemata", &shares))?;
        Ok(ResctrlGroup { cpus: cpus.trim().parse().map_err(|_| odd("cpus_list", &cpus))?, schemata })
    }

    fn write(&self, group: &str, file: &str, text: &str, attempt: String) -> Result<(), ResctrlError> {
        let path = self.path(group, file)?;
        files::write_attribute(path, text).map_err(|source| {
            if source.is_missing() {
                return ResctrlError::Gone { group: group.to_owned() };
            }
            let said = files::read_to_string(self.root.path(format!("{MOUNT}/info/last_cmd_status")));
            let said =
                said.unwrap_or_default().trim().chars().filter(|c| !c.is_control()).take(200).collect();
            ResctrlError::Refused { attempt, said, source }
        })
    }

    fn path(&self, group: &str, file: &str) -> Result<std::path::PathBuf, ResctrlError> {
        // `info`, `mon_groups` and `mon_data` are the kernel's own.
        let fit = !group.contains('/')
            && !group.starts_with('.')
            && !["info", "mon_groups", "mon_data"].contains(&group);
        if !fit {
            return Err(ResctrlError::Name { group: group.to_owned() });
        }
        Ok(match group {
            "" => self.root.path(format!("{MOUNT}/{file}")),
            group => self.root.path(format!("{MOUNT}/{group}/{file}")),
        })
    }
}

/// Whether a resource is a bandwidth, of memory (`MB`) or of slower memory (`SMBA`), which are numbers; all others are masks.
fn is_bandwidth(resource: &str) -> bool {
    matches!(resource, "MB" | "SMBA")
}

/// `L3:0=ff0;1=ff0`: masks in hexadecimal, bandwidth in decimal.
fn written(resource: &str, domains: &BTreeMap<u32, u64>) -> String {
    let share = |(domain, share): (&u32, &u64)| match is_bandwidth(resource) {
        true => format!("{domain}={share}"),
        false => format!("{domain}={share:x}"),
    };
    let shares: Vec<String> = domains.iter().map(share).collect();
    format!("{resource}:{}", shares.join(";"))
}

/// What a file `schemata` holds: `    L3:0=fffff;1=3` and `    MB:0=100;1=40`, a line a resource. `None`: it makes no sense, or has more
/// domains than any machine.
pub fn parsed(text: &str) -> Option<Schemata> {
    let mut schemata = Schemata::new();
    let mut shares = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (resource, domains) = line.split_once(':')?;
        let resource = resource.trim();
        if resource.is_empty() || resource.len() > 16 || !resource.chars().all(|c| c.is_ascii_alphanumeric())
        {
            return None;
        }
        let radix = if is_bandwidth(resource) { 10 } else { 16 };
        let share = |text: &str| {
            let digits = text.strip_prefix("0x").filter(|_| radix == 16).unwrap_or(text);
            u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
        };
        let mut of = BTreeMap::new();
        for domain in domains.split(';').map(str::trim).filter(|domain| !domain.is_empty()) {
            let (number, value) = domain.split_once('=')?;
            of.insert(number.trim().parse().ok()?, share(value.trim())?);
            shares += 1;
            if shares > MOST_SHARES {
                return None;
            }
        }
        schemata.insert(resource.to_owned(), of);
    }
    Some(schemata)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let write = |path: &str, text: &str| {
            let path = root.path(format!("{MOUNT}/{path}"));
            files::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("schemata", "    MB:0= 100;1= 100\n    L3:0=fff;1=fff\n");
        write("cpus_list", "0-7\n");
        write("info/last_cmd_status", "Mask out of range\n");
        // What the kernel makes with the directory.
        write("rt/schemata", "L3:0=fff;1=fff\n");
        write("rt/cpus_list", "\n");
        (directory, root)
    }

    #[test]
    fn shares_are_read_as_the_kernel_writes_them() {
        let (_directory, root) = tree();
        let groups = ResctrlGroups::of(&root).unwrap();
        let all = groups.read("").unwrap();
        assert_eq!(all.cpus, "0-7".parse().unwrap());
        assert_eq!(all.schemata["MB"], [(0, 100), (1, 100)].into());
        assert_eq!(all.schemata["L3"], [(0, 0xfff), (1, 0xfff)].into());
    }

    #[test]
    fn schemata_are_read_as_the_kernel_prints_them_and_written_alike() {
        let found = parsed("    L3:0=fffff;1=3\n    MB:0= 40;1=100\n  SMBA:0=2048\nL2:\n").unwrap();
        assert_eq!(found["L3"], [(0, 0xfffff), (1, 3)].into());
        assert_eq!(found["MB"], [(0, 40), (1, 100)].into());
        assert_eq!(found["SMBA"], [(0, 2048)].into());
        assert_eq!(found["L2"], BTreeMap::new());
        for (resource, domains) in &found {
            let line = written(resource, domains);
            assert_eq!(parsed(&line).unwrap()[resource], *domains, "{line}");
        }
        assert_eq!(written("SMBA", &found["SMBA"]), "SMBA:0=2048");
        for odd in ["L3", "L3:0", "L3:0=x", "L3:x=1", ":0=1", "L3:0=+1", "L\u{1b}3:0=1", "MB:0=ff"] {
            assert_eq!(parsed(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn a_group_is_made_of_its_settings() {
        let (_directory, root) = tree();
        let groups = ResctrlGroups::of(&root).unwrap();
        let settings = ResctrlGroup {
            cpus: "2-3".parse().unwrap(),
            schemata: [("L3".to_owned(), [(0, 0xf), (1, 0xf)].into())].into(),
        };
        groups.make("rt", &settings).unwrap();
        let text = |file: &str| files::read_to_string(root.path(format!("{MOUNT}/rt/{file}"))).unwrap();
        assert_eq!(text("schemata"), "L3:0=f;1=f\n");
        assert_eq!(text("cpus_list"), "2-3\n");
        groups.set_schemata("", &[("MB".to_owned(), [(0, 40)].into())].into()).unwrap();
        let of_all = files::read_to_string(root.path(format!("{MOUNT}/schemata"))).unwrap();
        assert_eq!(of_all, "MB:0=40\n");
    }

    #[test]
    fn refusals_say_what_the_kernel_said() {
        let (_directory, root) = tree();
        let groups = ResctrlGroups::of(&root).unwrap();
        assert!(matches!(ResctrlGroups::of(&Root::at("/nowhere")), Err(ResctrlError::NotMounted)));
        let shares: Schemata = [("L3".to_owned(), [(0, 1)].into())].into();
        assert!(matches!(groups.set_schemata("none", &shares), Err(ResctrlError::Gone { .. })));
        // A directory cannot be written: any refusal brings what `last_cmd_status` has.
        fs::remove_file(root.path(format!("{MOUNT}/rt/schemata"))).unwrap();
        fs::create_dir(root.path(format!("{MOUNT}/rt/schemata"))).unwrap();
        let error = groups.set_schemata("rt", &shares).unwrap_err();
        assert!(error.to_string().contains("Mask out of range"), "{error}");
        for name in ["info", "../x", "a/b", "."] {
            assert!(matches!(groups.remove(name), Err(ResctrlError::Name { .. })), "{name}");
        }
        groups.remove("gone").unwrap();
    }
}
