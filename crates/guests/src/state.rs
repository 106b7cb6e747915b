//! What is kept on disk about guests, so that it outlives the Penstock that wrote it.
//!
//! Each guest has one directory, `penstock-NAME`, which is also a container's directory in LXC's sense:
//!
//! | file | what |
//! |---|---|
//! | `definition.json` | the guest's definition; the guest is defined while this exists |
//! | `started.json` | written before it is started, completed when it runs, gone when its functions are back |
//! | `interrupts.json` | of a container's PFs, those that are elsewhere while it starts or ends, and where they were |
//! | `config` | what LXC is told; made at each start |
//! | `console.log` | what the guest has written to its console since its last start, from the first byte |
//! | `console.lock` | held by whoever writes to the console |
//! | `lxc.log` | what LXC said, of the last start |
//! | `start.sh`, `start.log` | what LXC runs to set what it has no keys for, rates and routes, and what that said; made at each start |
//! | `layer`, `root` | where the layer and the root are mounted, inside the container alone |
//! | `domain.xml` | what libvirt is told; made at each start |
//! | `vmlinuz`, `initramfs` | what a VM boots, where Penstock makes it |
//! | `switch-NIC` | of a NIC that a VM owns: its switch's configuration, log and sockets |
//! | `console.sock` | where a VM's console is served, to one at a time |

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_host::{
    Root,
    files::{self, Lock},
    netlink::LinkSettings,
    running::Running,
};
use penstock_model::{Bdf, GuestName, InterfaceName, Mac};
use penstock_plan::action::GuestDefinition;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::GuestError;

/// How LXC knows a guest: `penstock-NAME`.
pub const PREFIX: &str = "penstock-";

/// The socket of a VM's console in its directory.
pub(crate) const CONSOLE: &str = "console.sock";

/// A guest that was started, and whose functions have not been given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The boot in which it was (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// When, in seconds since 1970.
    pub since: u64,
    /// Its functions' interfaces as they were on the host; a VM's functions have none.
    pub functions: Vec<Lent>,
    /// A container's first process, a VM's QEMU; `None` while it is being started, or when whoever did so died meanwhile.
    pub init: Option<Running>,
    /// Whether nobody has waited yet until it was ready, to the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_awaited: bool,
    /// Whether it was ended once and made anew, since it had said nothing for too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made_again: bool,
    /// The directories of the control groups that LXC made for a container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<PathBuf>,
    /// Whether a Penstock was ending a container, and has not seen its functions back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
}

impl Started {
    /// Whether a Penstock began to start or to end it, and has not seen that through.
    pub fn is_halfway(&self) -> bool {
        self.init.is_none() || self.ending
    }

    /// Whether that was since the machine was last switched on: what was started before is gone.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] when the kernel does not tell the boot.
    pub fn is_of_this_boot(&self, root: &Root) -> Result<bool, GuestError> {
        Ok(self.boot == this_boot(root)?)
    }
}

/// The boot of this machine.
///
/// # Errors
///
/// [`GuestError::State`] when the kernel does not tell it.
pub fn this_boot(root: &Root) -> Result<String, GuestError> {
    let id = files::read_to_string(root.path("/proc/sys/kernel/random/boot_id"))?;
    Ok(id.trim().to_owned())
}

/// A function that was given to a container, as it was on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lent {
    /// The PCI address of the function.
    pub function: Bdf,
    /// The name of its interface.
    pub name: InterfaceName,
    /// The MTU of its interface.
    pub mtu: u32,
    /// The MAC address of its interface; none in a record of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Whether its interface was up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub up: bool,
    /// Its flags, link mode and alternative names; none in a record of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<LinkSettings>,
    /// The numbers of the XDP programs that were at its interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<u32>,
}

/// The directory of all guests' state.
#[derive(Clone, Debug)]
pub struct State {
    directory: PathBuf,
}

impl State {
    /// The state below `directory`.
    pub fn new(directory: PathBuf) -> State {
        State { directory }
    }

    /// The directory; also LXC's (`lxcpath`), so that nothing of the user's own containers is touched.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether `directory` is the directory, however it is written.
    pub fn is_in(&self, directory: &Path) -> bool {
        directory == self.directory || files::is_same(directory, &self.directory)
    }

    /// The directory of one guest.
    pub fn of(&self, guest: &GuestName) -> PathBuf {
        self.directory.join(format!("{PREFIX}{guest}"))
    }

    /// A file of one guest.
    pub fn file(&self, guest: &GuestName, name: &str) -> PathBuf {
        self.of(guest).join(name)
    }

    /// The guests that are defined, by name.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] when the directory cannot be read. One that is not there has no guests.
    pub fn guests(&self) -> Result<Vec<GuestName>, GuestError> {
        let names = match files::list(&self.directory) {
            Ok(names) => names,
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        Ok(names
            .iter()
            .filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok())
            .filter(|guest| files::exists(self.file(guest, "definition.json")))
            .collect())
    }

    /// A guest's definition.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense.
    pub fn definition(&self, guest: &GuestName) -> Result<Option<GuestDefinition>, GuestError> {
        read(self.file(guest, "definition.json"))
    }

    /// Whether anything of a guest is kept, a definition or what was left of making or removing one.
    pub fn has_any(&self, guest: &GuestName) -> bool {
        files::exists(self.of(guest))
    }

    /// The guest other than `but` that is there and has `function`.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense, of any
    /// guest.
    pub fn holder(&self, function: Bdf, but: &GuestName) -> Result<Option<GuestName>, GuestError> {
        for guest in self.guests()? {
            if guest == *but || self.started(&guest)?.is_none() {
                continue;
            }
            let owns =
                |definition: GuestDefinition| definition.host_functions().any(|owned| owned == function);
            if self.definition(&guest)?.is_some_and(owns) {
                return Ok(Some(guest));
            }
        }
        Ok(None)
    }

    /// Keeps a guest's definition.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] when its directory cannot be made or its file not be written.
    pub fn define(&self, definition: &GuestDefinition) -> Result<(), GuestError> {
        files::create_dir_all(self.of(&definition.guest))?;
        write(self.file(&definition.guest, "definition.json"), definition)
    }

    /// Forgets a guest.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] when a file cannot be removed. Once its definition is gone it is no guest any more.
    pub fn forget(&self, guest: &GuestName) -> Result<(), GuestError> {
        // First what makes it a guest: should the rest fail, it is gone all the same.
        files::remove_file(self.file(guest, "definition.json"))?;
        Ok(files::remove_tree(self.of(guest))?)
    }

    /// How a guest was started, if it was and its functions have not been given back.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense.
    pub fn started(&self, guest: &GuestName) -> Result<Option<Started>, GuestError> {
        read(self.file(guest, "started.json"))
    }

    /// Somebody has waited until a guest was ready, or for as long as it had.
    ///
    /// # Errors
    ///
    /// As [`State::started`], and [`GuestError::State`] when that cannot be written.
    pub fn keep_awaited(&self, guest: &GuestName) -> Result<(), GuestError> {
        match self.started(guest)? {
            Some(started) if started.not_awaited => {
                self.keep_started(guest, &Started { not_awaited: false, ..started })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A guest was ended and made anew while it was waited for.
    ///
    /// # Errors
    ///
    /// As [`State::keep_awaited`].
    pub fn keep_made_again(&self, guest: &GuestName) -> Result<(), GuestError> {
        match self.started(guest)? {
            Some(started) => self.keep_started(guest, &Started { made_again: true, ..started }),
            None => Ok(()),
        }
    }

    /// Whether a guest is being ended.
    ///
    /// # Errors
    ///
    /// As [`State::keep_awaited`].
    pub fn keep_ending(&self, guest: &GuestName, ending: bool) -> Result<(), GuestError> {
        match self.started(guest)? {
            Some(started) if started.ending != ending => {
                self.keep_started(guest, &Started { ending, ..started })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Keeps how a guest was started.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] when the file cannot be written.
    pub fn keep_started(&self, guest: &GuestName, started: &Started) -> Result<(), GuestError> {
        write(self.file(guest, "started.json"), started)
    }

    /// Notes that a guest's functions are back.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] when a file cannot be removed.
    pub fn forget_started(&self, guest: &GuestName) -> Result<(), GuestError> {
        for file in ["config", "domain.xml", "vmlinuz", "initramfs"] {
            files::remove_file(self.file(guest, file))?;
        }
        Ok(files::remove_file(self.file(guest, "started.json"))?)
    }

    /// Keeps other Penstocks away from a guest until the lock is dropped.
    ///
    /// # Errors
    ///
    /// [`GuestError::Busy`] when another Penstock holds it for longer than `timeout`, [`GuestError::State`] when the lock's
    /// file cannot be made.
    pub fn lock(&self, guest: &GuestName, timeout: Duration) -> Result<Lock, GuestError> {
        files::create_dir_all(&self.directory)?;
        let path = self.directory.join(format!("{guest}.lock"));
        let lock = Lock::exclusive_within(path, timeout)?;
        lock.ok_or_else(|| GuestError::Busy { guest: guest.clone(), after: timeout })
    }
}

/// What a file of a guest's state holds; `None` when it is not there.
///
/// # Errors
///
/// [`GuestError::State`] or [`GuestError::Garbled`] when it cannot be read or makes no sense.
pub(crate) fn read<T: DeserializeOwned>(path: PathBuf) -> Result<Option<T>, GuestError> {
    match files::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|source| GuestError::Garbled { path, source })
        }
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn write<T: Serialize>(path: PathBuf, value: &T) -> Result<(), GuestError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|source| GuestError::Garbled { path: path.clone(), source })?;
    // Readable for all: `status` needs no root.
    Ok(files::write_atomic(path, text)?)
}
