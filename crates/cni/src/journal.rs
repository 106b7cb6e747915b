//! Which VF is whose: a file for each in `/run/penstock/cni`, written before anything of the VF is changed. What lies in `/run` ends
//! with the kernel's run, as VFs do.

use std::time::Duration;

use penstock_host::{Root, files, netlink::LinkSettings, scan::attachments};
use penstock_model::{Bdf, InterfaceName, Mac, VfAttribute, VfIndex, inventory::VfState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    config::BoundDriver,
    document::{Attached, CniError},
};

/// Where the records are.
pub const DIRECTORY: &str = attachments::PENSTOCK;
/// How long another call may be at a VF.
const AT_WORK: Duration = Duration::from_secs(60);
/// A record of a later Penstock is not read by this one. One of form 1 knows nothing of drivers that were bound.
const FORMAT: u32 = 2;

/// How far an ADD has come: each is written down before it is begun. Those in which nothing is to be done may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The VF is the container's; nothing is changed.
    Reserved,
    /// Its attributes are set at the PF, and its MAC address.
    Setting,
    /// A driver that hands it to a program is bound.
    Binding,
    /// It is moved into the container.
    Moving,
    /// The IPAM plugin is asked.
    Addressing,
    /// Addresses and routes are set.
    Configuring,
    /// The container has it.
    Attached,
    /// It is taken back.
    Releasing,
}

impl Step {
    /// All of an ADD that moves an interface, in its order.
    pub const OF_ADD: [Step; 6] =
        [Step::Reserved, Step::Setting, Step::Moving, Step::Addressing, Step::Configuring, Step::Attached];
    /// All of an ADD that binds a driver, in its order.
    pub const OF_BINDING: [Step; 4] = [Step::Reserved, Step::Setting, Step::Binding, Step::Attached];
}

/// A VF as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// The driver that it was bound to; `None` when it had none.
    pub driver: Option<String>,
    /// Its `driver_override`, where one was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_override: Option<String>,
    /// Its interface; none under a driver that makes none (`vfio-pci`).
    pub interface: Option<BeforeInterface>,
    /// Its attributes at the PF, where that tells of them.
    pub state: Option<VfState>,
}

/// A VF's interface as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeInterface {
    /// The interface's name in the host's namespace.
    pub name: InterfaceName,
    /// The interface's MAC address.
    pub mac: Mac,
    /// The interface's MTU in bytes.
    pub mtu: u32,
    /// Whether it was up.
    pub up: bool,
    /// What kind of software interface it is; none of a NIC's is one.
    pub kind: Option<String>,
    /// Its flags, link mode and alternative names; records of earlier versions do not have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<LinkSettings>,
}

/// A VF that a container has, or is being given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this form.
    pub format: u32,
    /// The name of the configuration's network.
    pub network: String,
    /// The runtime's identifier of the container (`CNI_CONTAINERID`).
    pub container: String,
    /// The name that the interface has in there.
    pub interface: InterfaceName,
    /// The file of its namespace; none where a driver is bound before there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Its identity (device and inode): files of namespaces are used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<(u64, u64)>,
    /// The VF's PCI address.
    pub function: Bdf,
    /// The PCI address of the VF's PF.
    pub pf: Bdf,
    /// Its index there.
    pub vf: VfIndex,
    /// The driver that is bound for it, where one is; it has no interface then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<BoundDriver>,
    /// What is set at the PF.
    pub wanted: Vec<VfAttribute>,
    /// The VF as it was.
    pub before: Before,
    /// How far it has come.
    pub step: Step,
    /// The configuration, for an end that nobody asks for with one.
    pub configuration: Value,
    /// The interface's index in the container, from when it is there; records of earlier versions do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The container has put something upon the interface, which goes only with the interface: its driver is to be bound anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub covered: bool,
    /// What the container has been given, without what other plugins gave it; records of earlier versions do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Attached>,
}

impl Record {
    /// The form of a record of a VF that is bound to a driver.
    pub const FORMAT: u32 = FORMAT;
    /// The form of one of a VF whose interface is moved: what reads no later form can take it back too.
    pub const FORMAT_OF_MOVED: u32 = 1;

    /// Whether it is of this attachment: network, container and interface together name one (CNI specification, section 2).
    pub fn is_of(&self, network: &str, container: &str, interface: &str) -> bool {
        self.network == network && self.container == container && self.interface.as_str() == interface
    }
}

/// A record that cannot be read.
#[derive(Debug)]
pub struct UnreadableRecord {
    /// Why, and what to do.
    pub error: CniError,
    /// The network that it is of, as far as that can be read.
    pub network: Option<String>,
}

/// The records of a machine.
#[derive(Debug)]
pub struct Journal {
    /// Held: whatever becomes of its name, records are in this very directory.
    directory: files::OwnDirectory,
}

impl Journal {
    /// Opens it, and makes its directory (0700).
    ///
    /// # Errors
    ///
    /// When it cannot be made, or is not this user's alone.
    pub fn open(root: &Root) -> Result<Journal, CniError> {
        Ok(Journal { directory: files::hold_own_directory(root.path(DIRECTORY))? })
    }

    /// Waits until no other call is at the VF, nor a step of `penstock apply` that takes it away.
    ///
    /// # Errors
    ///
    /// When that takes too long.
    pub fn lock(&self, function: Bdf) -> Result<files::Lock, CniError> {
        files::Lock::exclusive_within(self.lock_file(function), AT_WORK)?.ok_or_else(|| {
            let why = format!("another call of the plugin, or a penstock that changes this machine, has been at {function} for a minute");
            CniError::new(CniError::TRY_AGAIN, why)
        })
    }

    /// Takes the lock of a VF; `None` while another call has it.
    ///
    /// # Errors
    ///
    /// When the lock cannot be made.
    pub fn try_lock(&self, function: Bdf) -> Result<Option<files::Lock>, CniError> {
        Ok(files::Lock::try_exclusive(self.lock_file(function))?)
    }

    fn lock_file(&self, function: Bdf) -> std::path::PathBuf {
        attachments::lock_file(&self.directory.path(), function)
    }

    /// The record of a VF.
    ///
    /// # Errors
    ///
    /// When there is one that cannot be read: then nobody knows whose it is.
    pub fn of(&self, function: Bdf) -> Result<Option<Record>, CniError> {
        let path = self.directory.path().join(format!("{function}.json"));
        let text = match files::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let read: Result<Record, _> = serde_json::from_str(&text);
        let why = match read {
            Ok(record) if (1..=FORMAT).contains(&record.format) && record.function == function => {
                return Ok(Some(record));
            }
            Ok(record) => format!("it is of version {}", record.format),
            Err(error) => error.to_string(),
        };
        Err(CniError::new(CniError::IO, format!("{DIRECTORY}/{function}.json cannot be read: {why}"))
            .hint("who has the VF is not known; remove the file when nobody has"))
    }

    /// Every record that can be read, and what is wrong with the others.
    ///
    /// # Errors
    ///
    /// When the directory cannot be listed.
    pub fn all(&self) -> Result<(Vec<Record>, Vec<UnreadableRecord>), CniError> {
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        for name in files::list(self.directory.path())? {
            // What a call that was killed has left of writing a record.
            if let Some((record, _)) = name.strip_suffix(".part").and_then(|name| name.split_once(".json")) {
                files::remove_parts(self.directory.path().join(format!("{record}.json")))?;
            }
            let Some(function) = name.strip_suffix(".json").and_then(|name| name.parse().ok()) else {
                continue;
            };
            match self.of(function) {
                Ok(record) => records.extend(record),
                Err(error) => unreadable.push(UnreadableRecord { error, network: self.network_of(function) }),
            }
        }
        Ok((records, unreadable))
    }

    /// The network that a record names, whatever else is wrong with it: one of a later version, or one that ends too early.
    fn network_of(&self, function: Bdf) -> Option<String> {
        let text = files::read_to_string(self.directory.path().join(format!("{function}.json"))).ok()?;
        let (_, after) = text.split_once("\"network\":")?;
        // A network's name has nothing in it that JSON escapes.
        Some(after.trim_start().strip_prefix('"')?.split_once('"')?.0.to_owned())
    }

    /// Writes a record whole or not at all.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, record: &Record) -> Result<(), CniError> {
        let text =
            serde_json::to_vec(record).map_err(|error| CniError::new(CniError::IO, error.to_string()))?;
        Ok(self.directory.write_atomic_mode(&format!("{}.json", record.function), text, 0o600)?)
    }

    /// Forgets a VF.
    ///
    /// # Errors
    ///
    /// When the record cannot be removed.
    pub fn remove(&self, function: Bdf) -> Result<(), CniError> {
        Ok(self.directory.remove_file(&format!("{function}.json"))?)
    }
}
