//! What is written down of claims. The agent writes what is prepared, below its own directory, where it outlives the kernel's run. The hook
//! writes how far it has come below `/run`, where records end with the kernel's run, as VFs do.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, Instant},
};

use penstock_host::{
    Root, boot,
    files::{self, FileError, Lock, OwnDirectory},
};
use penstock_model::{Bdf, InterfaceName, Mac};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;
use thiserror::Error;

use super::parameters::VfMode;

/// Where the hook's records are, unless a test says otherwise.
pub const RUN: &str = "/run/penstock/kubernetes";
/// The socket in that directory on which the agent hears that a hook has run.
pub const SOCKET: &str = "agent.sock";
/// A file of a later Penstock is not read by this one.
const FORMAT: u32 = 1;
/// The lock under which claims are prepared, one at a time.
const PREPARING: &str = "prepare.lock";

/// Why what is written down of claims could not be read or written.
#[derive(Debug, Error)]
pub enum StateError {
    /// A file or directory could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file holds something else.
    #[error("{} cannot be understood: {why}; move it away when no pod uses the claim any more", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A lock was not given back in time.
    #[error("another call has been at work on {what} for {} s", after.as_secs())]
    Locked {
        /// What is locked.
        what: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// A claim's UID is none that can be a file's name.
    #[error("{0:?} is no UID of a claim")]
    Uid(String),
}

/// The UID of a ResourceClaim: at most 64 letters, digits and `-`, so that it can be part of a file's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ClaimUid(String);

impl ClaimUid {
    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClaimUid {
    type Err = StateError;

    fn from_str(text: &str) -> Result<ClaimUid, StateError> {
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let all = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if first && all && text.len() <= 64 {
            Ok(ClaimUid(text.to_owned()))
        } else {
            Err(StateError::Uid(text.to_owned()))
        }
    }
}

impl fmt::Display for ClaimUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ClaimUid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ClaimUid, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A pod that may use a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodReference {
    /// The pod's name, in the claim's namespace.
    pub name: String,
    /// The pod's UID.
    pub uid: String,
}

/// A device of a claim, made ready for containers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreparedDevice {
    /// The pool that the device is in: the node's name.
    pub pool: String,
    /// The device's name in the pool.
    pub device: String,
    /// The requests of the claim that it is for, as the allocation has them.
    pub requests: Vec<String>,
    /// The VF's PCI address.
    pub function: Bdf,
    /// What it is to the container.
    pub mode: VfMode,
    /// The interface's name in the pod, and the name by which `penstock cni` knows the attachment.
    pub interface: InterfaceName,
    /// The MAC address that the interface will have, where that is known.
    pub mac: Option<Mac>,
    /// The VFIO group, in [`VfMode::Vfio`]: read when the VF was bound, and `None` until then.
    pub group: Option<u32>,
    /// What `penstock cni` is called with.
    pub configuration: Value,
}

/// A claim that is prepared on this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreparedClaim {
    /// The version of this form.
    pub format: u32,
    /// The claim's UID.
    pub uid: ClaimUid,
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The name by which the pod's specification knows a claim that was made from a template.
    pub pod_claim: Option<String>,
    /// The driver's name.
    pub driver: String,
    /// The pods that the claim was reserved for when it was prepared.
    pub pods: Vec<PodReference>,
    /// The kernel's run in which it was prepared (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// The `penstock` that the hook calls, by its absolute path.
    pub penstock: PathBuf,
    /// Where the hook writes its records.
    pub run: PathBuf,
    /// The devices.
    pub devices: Vec<PreparedDevice>,
}

impl PreparedClaim {
    /// A claim of this form.
    pub const FORMAT: u32 = FORMAT;

    /// The device of this name.
    pub fn device(&self, name: &str) -> Option<&PreparedDevice> {
        self.devices.iter().find(|device| device.device == name)
    }
}

/// How far the hook has come with a device, in this run of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttachRecord {
    /// The version of this form.
    pub format: u32,
    /// The network namespace by its device and inode.
    pub namespace: (u64, u64),
    /// A file by which it can be entered: of the pod's sandbox where the runtime names that.
    pub netns: PathBuf,
    /// What ADD gave; `None` until it has.
    pub attached: Option<Value>,
    /// Why the last hook failed; `None` when it did not.
    pub failure: Option<String>,
    /// When that was, in RFC 3339.
    pub at: String,
}

impl AttachRecord {
    /// A record of this form.
    pub const FORMAT: u32 = FORMAT;
}

/// That a pod was refused a device which another pod has. It is no failure of that one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRefusal {
    /// The version of this form.
    pub format: u32,
    /// The pod, where the container runtime names it.
    pub pod: Option<PodReference>,
    /// Why.
    pub why: String,
    /// When that was, in RFC 3339.
    pub at: String,
}

impl PodRefusal {
    /// A record of this form.
    pub const FORMAT: u32 = FORMAT;
}

/// The claims that are prepared.
#[derive(Debug)]
pub struct ClaimStore {
    path: PathBuf,
    directory: OwnDirectory,
}

impl ClaimStore {
    /// Opens the store below the agent's directory, and makes both (0700).
    ///
    /// # Errors
    ///
    /// When they cannot be made, or are not this user's alone.
    pub fn open(state: &Path) -> Result<ClaimStore, StateError> {
        files::make_own_directory(state)?;
        let path = state.join("claims");
        let directory = files::hold_own_directory(&path)?;
        Ok(ClaimStore { path, directory })
    }

    /// The same, only if it is there.
    ///
    /// # Errors
    ///
    /// When it is there and not this user's alone.
    pub fn existing(state: &Path) -> Result<Option<ClaimStore>, StateError> {
        let path = state.join("claims");
        Ok(files::own_directory(&path)?.map(|directory| ClaimStore { path, directory }))
    }

    /// Waits until no other call prepares a claim.
    ///
    /// # Errors
    ///
    /// When that takes too long.
    pub fn lock(&self, timeout: Duration) -> Result<Lock, StateError> {
        let locked = || StateError::Locked { what: "the claims of this node".to_owned(), after: timeout };
        Lock::exclusive_within(self.directory.path().join(PREPARING), timeout)?.ok_or_else(locked)
    }

    /// What is prepared of a claim.
    ///
    /// # Errors
    ///
    /// When there is a file that cannot be read.
    pub fn read(&self, uid: &ClaimUid) -> Result<Option<PreparedClaim>, StateError> {
        let read = read_json(&self.directory, &self.path, &format!("{uid}.json"))?;
        Ok(read.filter(|claim: &PreparedClaim| claim.uid == *uid))
    }

    /// The UIDs of all claims that are prepared, also of those that cannot be read.
    ///
    /// # Errors
    ///
    /// When the directory cannot be listed.
    pub fn uids(&self) -> Result<Vec<ClaimUid>, StateError> {
        let names = files::list(self.directory.path())?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect())
    }

    /// All claims that are prepared.
    ///
    /// # Errors
    ///
    /// When one cannot be read: what it holds is then not known.
    pub fn all(&self) -> Result<Vec<PreparedClaim>, StateError> {
        let mut claims = Vec::new();
        for uid in self.uids()? {
            claims.extend(self.read(&uid)?);
        }
        Ok(claims)
    }

    /// Removes what writers of a claim that were killed have left. Who calls it has the claim's lock: others of this program may be writing other
    /// claims.
    ///
    /// # Errors
    ///
    /// When the directory cannot be listed, or a file not removed.
    pub fn sweep(&self, uid: &ClaimUid) -> Result<(), StateError> {
        Ok(files::remove_parts(self.directory.path().join(format!("{uid}.json")))?)
    }

    /// Writes a claim, whole or not at all, and on disk when this returns.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, claim: &PreparedClaim) -> Result<(), StateError> {
        let text = serde_json::to_vec(claim).unwrap_or_default();
        self.directory.write_atomic_mode(&format!("{}.json", claim.uid), text, 0o600)?;
        Ok(files::sync_directory(self.directory.path())?)
    }

    /// Forgets a claim, and what writers of it that were killed have left.
    ///
    /// # Errors
    ///
    /// When one of its files cannot be removed.
    pub fn remove(&self, uid: &ClaimUid) -> Result<(), StateError> {
        self.sweep(uid)?;
        self.directory.remove_file(&format!("{uid}.json"))?;
        Ok(files::sync_directory(self.directory.path())?)
    }
}

/// The names of the devices with a prepared claim: what is away in a pod is not lost. A claim is written down before its VFs move, and
/// forgotten after they are home.
///
/// # Errors
///
/// When what is written down of a claim cannot be read.
pub fn held(state: &Path) -> Result<BTreeSet<String>, StateError> {
    let Some(store) = ClaimStore::existing(state)? else { return Ok(BTreeSet::new()) };
    let claims = store.all()?;
    Ok(claims.into_iter().flat_map(|claim| claim.devices).map(|device| device.device).collect())
}

/// The functions of claims that were prepared in this run of the kernel: pods of them can be evicted, who else uses a VF cannot.
///
/// # Errors
///
/// When what is written down of a claim cannot be read.
pub fn held_functions(state: &Path) -> Result<BTreeSet<Bdf>, StateError> {
    let Some(store) = ClaimStore::existing(state)? else { return Ok(BTreeSet::new()) };
    let boot = boot::id(&Root::system());
    // In another run an address may be another VF's.
    let now = store.all()?.into_iter().filter(|claim| boot.as_ref().is_none_or(|boot| claim.boot == *boot));
    Ok(now.flat_map(|claim| claim.devices).map(|device| device.function).collect())
}

/// The same, at a moment when no call prepares a claim, for which it is waited this long: each that comes later sees what was written down before.
///
/// # Errors
///
/// As [`held_functions`]; [`StateError::Locked`] when it took longer.
pub fn held_when_nothing_is_prepared(state: &Path, timeout: Duration) -> Result<BTreeSet<Bdf>, StateError> {
    let _lock = ClaimStore::open(state)?.lock(timeout)?;
    held_functions(state)
}

/// The hook's records.
#[derive(Debug)]
pub struct AttachStore {
    path: PathBuf,
    directory: OwnDirectory,
}

impl AttachStore {
    /// Opens the directory of records, and makes it (0700).
    ///
    /// # Errors
    ///
    /// When it cannot be made, or is not this user's alone.
    pub fn open(run: &Path) -> Result<AttachStore, StateError> {
        Ok(AttachStore { path: run.to_owned(), directory: files::hold_own_directory(run)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until no other call is at the claim.
    ///
    /// # Errors
    ///
    /// When that takes too long.
    pub fn lock(&self, uid: &ClaimUid, timeout: Duration) -> Result<Lock, StateError> {
        let path = self.directory.path().join(format!("{uid}.lock"));
        let locked = || StateError::Locked { what: format!("claim {uid}"), after: timeout };
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let lock = Lock::exclusive_within(&path, left)?.ok_or_else(locked)?;
            // Whoever had it may have removed it, with all else of the claim.
            if lock.is_at(&path) {
                return Ok(lock);
            }
        }
    }

    /// Gives back the lock of a claim, and leaves no file of it.
    ///
    /// # Errors
    ///
    /// When the file cannot be removed.
    pub fn unlock(&self, uid: &ClaimUid, _lock: Lock) -> Result<(), StateError> {
        Ok(self.directory.remove_file(&format!("{uid}.lock"))?)
    }

    /// The record of a device.
    ///
    /// # Errors
    ///
    /// When there is one that cannot be read.
    pub fn read(&self, uid: &ClaimUid, device: &str) -> Result<Option<AttachRecord>, StateError> {
        read_json(&self.directory, &self.path, &format!("{uid}.{device}.json"))
    }

    /// Writes the record of a device, whole or not at all.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, uid: &ClaimUid, device: &str, record: &AttachRecord) -> Result<(), StateError> {
        let text = serde_json::to_vec(record).unwrap_or_default();
        Ok(self.directory.write_atomic_mode(&format!("{uid}.{device}.json"), text, 0o600)?)
    }

    /// The pod that was refused a device last, while another one has it.
    ///
    /// # Errors
    ///
    /// When there is a record that cannot be read.
    pub fn refusal(&self, uid: &ClaimUid, device: &str) -> Result<Option<PodRefusal>, StateError> {
        read_json(&self.directory, &self.path, &format!("{uid}.{device}.refused.json"))
    }

    /// Writes down that a pod was refused a device, or with `None` that nobody is any more.
    ///
    /// # Errors
    ///
    /// When it cannot be written, or removed.
    pub fn write_refusal(
        &self,
        uid: &ClaimUid,
        device: &str,
        refusal: Option<&PodRefusal>,
    ) -> Result<(), StateError> {
        let name = format!("{uid}.{device}.refused.json");
        match refusal {
            Some(refusal) => {
                let text = serde_json::to_vec(refusal).unwrap_or_default();
                Ok(self.directory.write_atomic_mode(&name, text, 0o600)?)
            }
            None => Ok(self.directory.remove_file(&name)?),
        }
    }

    /// Forgets all of a claim but its lock, which the caller goes on to hold.
    ///
    /// # Errors
    ///
    /// When a file cannot be removed.
    pub fn clear(&self, uid: &ClaimUid) -> Result<(), StateError> {
        let of_claim = |name: &String| name.starts_with(&format!("{uid}.")) && !name.ends_with(".lock");
        for name in files::list(self.directory.path())?.into_iter().filter(of_claim) {
            self.directory.remove_file(&name)?;
        }
        Ok(())
    }

    /// Forgets a claim, its lock too, which the caller has.
    ///
    /// # Errors
    ///
    /// When a file cannot be removed.
    pub fn remove(&self, uid: &ClaimUid) -> Result<(), StateError> {
        self.clear(uid)?;
        Ok(self.directory.remove_file(&format!("{uid}.lock"))?)
    }
}

/// A file's format, whatever else it holds.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

fn read_json<T: DeserializeOwned>(
    directory: &OwnDirectory,
    path: &Path,
    name: &str,
) -> Result<Option<T>, StateError> {
    let text = match files::read_to_string(directory.path().join(name)) {
        Ok(text) => text,
        Err(error) if error.is_missing() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let damaged = |why: String| StateError::Damaged { path: path.join(name), why };
    let Format { format } = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    if format != FORMAT {
        return Err(damaged(format!("it is of version {format}, and this Penstock writes {FORMAT}")));
    }
    serde_json::from_str(&text).map(Some).map_err(|error| damaged(error.to_string()))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    pub(crate) fn claim(uid: &str, device: &str) -> PreparedClaim {
        PreparedClaim {
            format: PreparedClaim::FORMAT,
            uid: uid.parse().unwrap(),
            namespace: "default".to_owned(),
            name: "data".to_owned(),
            pod_claim: Some("nic".to_owned()),
            driver: "sriov.penstock.dev".to_owned(),
            pods: vec![PodReference { name: "pod".to_owned(), uid: "p-1".to_owned() }],
            boot: "b".to_owned(),
            penstock: "/usr/local/bin/penstock".into(),
            run: RUN.into(),
            devices: vec![PreparedDevice {
                pool: "node-1".to_owned(),
                device: device.to_owned(),
                requests: vec!["vf".to_owned()],
                function: "0000:01:10.0".parse().unwrap(),
                mode: VfMode::Netdev,
                interface: "net1".parse().unwrap(),
                mac: "02:00:00:00:00:01".parse().ok(),
                group: None,
                configuration: json!({"cniVersion": "1.1.0", "name": uid, "deviceID": "0000:01:10.0"}),
            }],
        }
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(held(directory.path()).unwrap(), BTreeSet::new());
        let store = ClaimStore::open(directory.path()).unwrap();
        let claim = claim("a-1", "net0-0");
        store.write(&claim).unwrap();
        assert_eq!(store.read(&claim.uid).unwrap().unwrap(), claim);
        assert_eq!(store.all().unwrap(), std::slice::from_ref(&claim));
        assert_eq!(held(directory.path()).unwrap(), BTreeSet::from(["net0-0".to_owned()]));
        let mode =
            |path: &str| std::fs::metadata(directory.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("claims"), mode("claims/a-1.json")), (0o700, 0o600));
        store.remove(&claim.uid).unwrap();
        store.remove(&claim.uid).unwrap();
        assert_eq!(store.read(&claim.uid).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_understood_is_said_and_not_taken_for_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = ClaimStore::open(directory.path()).unwrap();
        for (text, words) in
            [("{", "EOF"), ("{\"format\": 9}", "of version 9"), ("{\"format\": 1}", "missing field")]
        {
            std::fs::write(directory.path().join("claims/a.json"), text).unwrap();
            let error = store.all().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("a.json"), "{text}: {error}");
            assert!(held(directory.path()).is_err());
        }
    }

    #[test]
    fn what_killed_writers_have_left_goes_with_its_own_claim() {
        let directory = tempfile::tempdir().unwrap();
        let store = ClaimStore::open(directory.path()).unwrap();
        let claim = claim("a-1", "net0-0");
        let own = format!("claims/a-1.json.{}.0.part", std::process::id());
        let others = own.replace("a-1", "a-2");
        for leaves in [ClaimStore::sweep, ClaimStore::remove] {
            store.write(&claim).unwrap();
            for part in [&own, &others] {
                std::fs::write(directory.path().join(part), "{").unwrap();
            }
            leaves(&store, &claim.uid).unwrap();
            assert!(!directory.path().join(&own).exists());
            assert!(directory.path().join(&others).exists(), "somebody is writing it");
        }
    }

    #[test]
    fn a_function_of_an_earlier_run_of_the_kernel_is_held_by_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let store = ClaimStore::open(directory.path()).unwrap();
        let mut claim = claim("a-1", "net0-0");
        store.write(&claim).unwrap();
        assert_eq!(held_functions(directory.path()).unwrap(), BTreeSet::new());
        assert_eq!(held(directory.path()).unwrap().len(), 1, "the device stays the claim's");
        claim.boot = boot::id(&Root::system()).unwrap();
        store.write(&claim).unwrap();
        assert_eq!(held_functions(directory.path()).unwrap(), BTreeSet::from([claim.devices[0].function]));
    }

    #[test]
    fn a_uid_is_a_files_name() {
        for wrong in ["", "../a", "-a", "a.b", "a/b", &"a".repeat(65)] {
            assert!(wrong.parse::<ClaimUid>().is_err(), "{wrong}");
        }
        assert!("3c2c3dbf-8d5a-4dd5-9e3a-0a5f6d3c6f11".parse::<ClaimUid>().is_ok());
    }

    #[test]
    fn the_records_of_one_claim_are_forgotten_alone() {
        let directory = tempfile::tempdir().unwrap();
        let store = AttachStore::open(directory.path()).unwrap();
        let record = AttachRecord {
            format: AttachRecord::FORMAT,
            namespace: (1, 2),
            netns: "/proc/7/ns/net".into(),
            attached: Some(json!({})),
            failure: None,
            at: "2026-01-01T00:00:00Z".to_owned(),
        };
        let (a, b): (ClaimUid, ClaimUid) = ("a".parse().unwrap(), "a-b".parse().unwrap());
        let _lock = store.lock(&a, Duration::ZERO).unwrap();
        assert!(matches!(store.lock(&a, Duration::ZERO), Err(StateError::Locked { .. })));
        store.write(&a, "x", &record).unwrap();
        store.write(&b, "x", &record).unwrap();
        assert_eq!(store.read(&a, "x").unwrap(), Some(record.clone()));
        store.remove(&a).unwrap();
        assert_eq!(store.read(&a, "x").unwrap(), None);
        assert_eq!(store.read(&b, "x").unwrap(), Some(record));
        assert_eq!(files::list(directory.path()).unwrap(), ["a-b.x.json"]);
    }
}
