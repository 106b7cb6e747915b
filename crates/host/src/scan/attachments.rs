//! VFs that network plugins of containers have given away, by what the plugins write down: `penstock cni` below `/run`, the SR-IOV
//! plugin of the Kubernetes network plumbing group below `/var/lib`. Other plugins write nothing that names a VF. And those that the agent of a
//! Kubernetes node has promised to pods which are about to start.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use penstock_model::{Bdf, text::one_line};
use serde::Deserialize;

use super::reader::Reader;
use crate::{Root, files};

/// The records of `penstock cni`: `BDF.json`, and the lock of each VF beside them.
pub const PENSTOCK: &str = "/run/penstock/cni";
/// The allocations of sriov-cni (`pkg/utils/pci_allocator.go`): each file is called as a VF's address, and holds the path of a
/// network namespace.
const SRIOV_CNI: &str = "/var/lib/cni/sriov/pci";

/// The claims that the agent of a Kubernetes node has prepared (`penstock_kubernetes::claim::state`): pods get their VFs when they start.
const CLAIMS: &str = "/var/lib/penstock/kubernetes/claims";
/// Of a directory that was changed less long ago a later change may leave the time as it is: the kernel's clock for files ticks each 1 to 10 ms.
const SETTLED: Duration = Duration::from_secs(1);
/// Who has a VF of a prepared claim.
const POD: &str = "a pod that is to have it (prepared claim of Kubernetes)";

/// The file of a VF's lock in the directory of the records. `penstock cni` holds it for as long as it is at the VF.
pub fn lock_file(directory: &Path, function: Bdf) -> PathBuf {
    directory.join(format!("{function}.lock"))
}

/// Takes the lock of a VF, waiting this long for a call of `penstock cni` that is at it: nobody is given the VF before the lock is dropped. `None`
/// when that was not long enough.
///
/// # Errors
///
/// The directory cannot be made (0700), or is not this user's alone; the lock cannot be made.
pub fn lock(root: &Root, function: Bdf, timeout: Duration) -> files::Result<Option<files::Lock>> {
    let directory = files::hold_own_directory(root.path(PENSTOCK))?;
    files::Lock::exclusive_within(lock_file(&directory.path(), function), timeout)
}

/// What is read of a record of `penstock cni`.
#[derive(Deserialize)]
struct Record {
    network: String,
    container: String,
    #[serde(default)]
    netns: Option<String>,
}

/// What is read of a prepared claim.
#[derive(Deserialize)]
struct Claim {
    boot: String,
    devices: Vec<ClaimDevice>,
}

/// A VF of a claim.
#[derive(Deserialize)]
struct ClaimDevice {
    function: Bdf,
}

/// Who a network plugin has given a VF to, in words. A record whose network namespace is gone says nothing any more: the kernel has
/// given the interface back. One that names none is of a VF that was bound to a driver before there was a namespace. Records that this user
/// may not read are none.
pub fn attachment(root: &Root, function: Bdf) -> Option<String> {
    of(&mut Reader::new(root), function)
}

/// As [`attachment`], of a container that has ended: `penstock cni` has not yet put back what the PF keeps for the VF, and its record stays
/// until it has.
pub fn left_over(root: &Root, function: Bdf) -> Option<String> {
    let record = own_record(&mut Reader::new(root), function)?;
    let Record { network, container, .. } = record;
    Some(one_line(&format!("container {container} (network {network}, penstock cni), which has ended")))
}

/// Looks up whom functions were given to, again and again.
#[derive(Debug, Default)]
pub struct AttachmentLookup {
    /// The functions of prepared claims, and what their directory's stamp was before they were read: a claim's file is called as the claim, and
    /// tells only inside which functions it has.
    prepared: Mutex<Option<(files::Stamp, Arc<BTreeSet<Bdf>>)>>,
}

impl AttachmentLookup {
    /// Those of `functions` that network plugins have given away or that are prepared for pods, each with who has it. Of the plugins' records
    /// only those of `functions` are read, and claims only when one was written anew (by rename) or removed since they were read last.
    pub fn given_away(&self, root: &Root, functions: &[Bdf]) -> BTreeMap<Bdf, String> {
        let mut reader = Reader::new(root);
        let prepared = self.prepared(root);
        let given = |function: &Bdf| {
            let pod = || prepared.contains(function).then(|| POD.to_owned());
            Some((*function, of(&mut reader, *function).or_else(pod)?))
        };
        functions.iter().filter_map(given).collect()
    }

    fn prepared(&self, root: &Root) -> Arc<BTreeSet<Bdf>> {
        let mut kept = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        // Before they are read: what comes meanwhile is read the next time.
        let stamp = files::stamp(root.path(CLAIMS)).filter(|stamp| stamp.is_older_than(SETTLED));
        if let (Some((of, functions)), Some(now)) = (&*kept, &stamp)
            && of == now
        {
            return functions.clone();
        }
        let mut reader = Reader::new(root);
        let functions: Arc<BTreeSet<Bdf>> = Arc::new(prepared(&mut reader).into_iter().collect());
        // What could not be read is tried again.
        let whole = reader.into_notes().is_empty();
        *kept = stamp.filter(|_| whole).map(|stamp| (stamp, functions.clone()));
        functions
    }
}

/// All VFs that network plugins have given away or that are prepared for pods, each with who has it.
pub(super) fn attachments(reader: &mut Reader<'_>) -> BTreeMap<Bdf, String> {
    let mut names = reader.quiet_list(PENSTOCK);
    names.extend(reader.quiet_list(SRIOV_CNI));
    let functions = names.iter().filter_map(|name| name.strip_suffix(".json").unwrap_or(name).parse().ok());
    let mut given: BTreeMap<Bdf, String> =
        functions.filter_map(|function| Some((function, of(reader, function)?))).collect();
    for function in prepared(reader) {
        given.entry(function).or_insert_with(|| POD.to_owned());
    }
    given
}

/// The VFs of prepared claims. In another run of the kernel an address may have been another VF's.
fn prepared(reader: &mut Reader<'_>) -> Vec<Bdf> {
    let names: Vec<String> = reader.list(CLAIMS).into_iter().filter(|name| name.ends_with(".json")).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let boot = reader.text("/proc/sys/kernel/random/boot_id");
    names
        .into_iter()
        .filter_map(|name| claim(reader, &format!("{CLAIMS}/{name}")))
        .filter(|claim| boot.as_ref().is_none_or(|boot| claim.boot == *boot))
        .flat_map(|claim| claim.devices)
        .map(|device| device.function)
        .collect()
}

fn claim(reader: &mut Reader<'_>, path: &str) -> Option<Claim> {
    let text = reader.large_text(path)?;
    serde_json::from_str(&text).map_err(|error| reader.note(format!("{path}: {error}"))).ok()
}

fn own_record(reader: &mut Reader<'_>, function: Bdf) -> Option<Record> {
    let own = format!("{PENSTOCK}/{function}.json");
    let record = reader.exists(&own).then(|| reader.large_text(&own)).flatten()?;
    serde_json::from_str(&record).ok()
}

fn of(reader: &mut Reader<'_>, function: Bdf) -> Option<String> {
    if let Some(record) = own_record(reader, function)
        && record.netns.as_ref().is_none_or(|netns| reader.exists(netns))
    {
        let text = format!("container {} (network {}, penstock cni)", record.container, record.network);
        return Some(one_line(&text));
    }
    let other = format!("{SRIOV_CNI}/{function}");
    let netns = reader.exists(&other).then(|| reader.text(&other)).flatten()?;
    (netns.starts_with('/') && reader.exists(&netns))
        .then(|| one_line(&format!("the network namespace {netns} (sriov-cni)")))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, remove_dir},
        time::SystemTime,
    };

    use super::*;

    fn write(root: &Root, path: &str, text: &str) {
        let path = root.path(path);
        files::create_dir_all(path.parent().unwrap()).unwrap();
        files::write_atomic(path, text).unwrap();
    }

    #[test]
    fn an_attachment_counts_while_its_namespace_is_there() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let write = |path: &str, text: &str| write(&root, path, text);
        let (ours, theirs): (Bdf, Bdf) = ("0000:04:10.1".parse().unwrap(), "0000:04:10.3".parse().unwrap());
        write(
            &format!("{PENSTOCK}/{ours}.json"),
            r#"{"format": 1, "network": "data", "container": "web-1", "netns": "/run/netns/a", "step": "attached"}"#,
        );
        write(&format!("{SRIOV_CNI}/{theirs}"), "/run/netns/b");
        write(&format!("{PENSTOCK}/0000:04:10.5.json"), "{");
        assert_eq!(attachments(&mut Reader::new(&root)), BTreeMap::new());
        let ended = "container web-1 (network data, penstock cni), which has ended";
        assert_eq!(left_over(&root, ours).as_deref(), Some(ended));
        assert_eq!(left_over(&root, theirs), None, "that one says nothing of what it has put back");
        write("/run/netns/a", "");
        write("/run/netns/b", "");
        let found = attachments(&mut Reader::new(&root));
        assert_eq!(found[&ours], "container web-1 (network data, penstock cni)");
        assert_eq!(found[&theirs], "the network namespace /run/netns/b (sriov-cni)");
        assert_eq!(found.len(), 2);
        write(
            &format!("{PENSTOCK}/0000:04:10.7.json"),
            r#"{"format": 2, "network": "n", "container": "c", "driver": "vfio-pci"}"#,
        );
        let bound = attachment(&root, "0000:04:10.7".parse().unwrap());
        assert_eq!(bound.as_deref(), Some("container c (network n, penstock cni)"));
        assert_eq!(attachment(&root, ours).as_ref(), Some(&found[&ours]));
    }

    #[test]
    fn a_vf_that_is_prepared_for_a_pod_is_promised_in_this_run_of_the_kernel() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let write = |path: &str, text: &str| write(&root, path, text);
        write("/proc/sys/kernel/random/boot_id", "now\n");
        let claim = |boot: &str, function: &str| {
            format!(
                r#"{{"format": 2, "boot": "{boot}", "devices": [{{"device": "net0-0", "function": "{function}"}}]}}"#
            )
        };
        write(&format!("{CLAIMS}/a-1.json"), &claim("now", "0000:04:10.1"));
        write(&format!("{CLAIMS}/a-2.json"), &claim("before", "0000:04:10.3"));
        write(&format!("{CLAIMS}/a-3.json"), "{");
        let given = attachments(&mut Reader::new(&root));
        assert_eq!(given.keys().map(ToString::to_string).collect::<Vec<_>>(), ["0000:04:10.1"]);
        assert!(given.values().all(|who| who.starts_with("a pod that is to have it")), "{given:?}");
        let both = ["0000:04:10.1", "0000:04:10.3"].map(|text| text.parse().unwrap());
        assert_eq!(AttachmentLookup::default().given_away(&root, &both), given);
    }

    #[test]
    fn what_is_looked_up_is_as_it_is_now() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let write = |path: &str, text: &str| write(&root, path, text);
        let vf: Bdf = "0000:04:10.1".parse().unwrap();
        let claim =
            format!(r#"{{"format": 2, "boot": "now", "devices": [{{"device": "d", "function": "{vf}"}}]}}"#);
        write("/proc/sys/kernel/random/boot_id", "now\n");
        let changed = |ago: u64| {
            let directory = File::open(root.path(CLAIMS)).unwrap();
            directory.set_modified(SystemTime::now() - Duration::from_secs(ago)).unwrap();
        };
        let lookup = AttachmentLookup::default();
        let is_given = || !lookup.given_away(&root, &[vf]).is_empty();
        assert!(!is_given(), "there is no such directory");
        // Each change is seen, however soon after the last one.
        for ago in [None, Some(60), None, Some(50), Some(40)] {
            write(&format!("{CLAIMS}/a-1.json"), &claim);
            ago.into_iter().for_each(changed);
            assert!(is_given() && is_given(), "{ago:?}");
            files::remove_file(root.path(format!("{CLAIMS}/a-1.json"))).unwrap();
            ago.into_iter().for_each(|ago| changed(ago - 5));
            assert!(!is_given() && !is_given(), "{ago:?}");
        }
        // What cannot be read is not kept, though its directory stays as it is.
        files::create_dir_all(root.path(format!("{CLAIMS}/a-2.json"))).unwrap();
        changed(30);
        assert!(!is_given());
        let time = std::fs::metadata(root.path(CLAIMS)).unwrap().modified().unwrap();
        remove_dir(root.path(format!("{CLAIMS}/a-2.json"))).unwrap();
        write(&format!("{CLAIMS}/a-2.json"), &claim);
        File::open(root.path(CLAIMS)).unwrap().set_modified(time).unwrap();
        assert!(is_given());
    }
}
