//! From a file system or swap space down to the PCI functions that its disks hang on, through partitions, RAID, LVM,
//! multipath, loop devices and overlays; or to the server that keeps it.

use std::{collections::BTreeSet, net::IpAddr};

use penstock_model::{inventory::LifelinePath, text::one_line};

use super::links::function_of;
use crate::scan::reader::{Reader, quoted};

const BLOCK: &str = "/sys/class/block";
/// Layers of block devices and file systems on each other; a machine has some five.
const DEEPEST: usize = 24;
/// Block devices below one file system.
const MOST: usize = 1024;

/// A path with each byte escaped (`PATH_MAX` is 4096).
const LONGEST: usize = 4 * 4096;

/// File systems that a server on the network keeps.
const NETWORK: [&str; 6] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p"];
/// File systems that show a directory of another, which their source is.
const STACKED: [&str; 3] = ["aufs", "ecryptfs", "shiftfs"];
/// File systems in memory alone.
const MEMORY: [&str; 3] = ["tmpfs", "ramfs", "rootfs"];
/// File systems that the kernel makes up, those that a program keeps for others that it knows (LXC, desktops, VMware's tools), and those that
/// other mounts of the table carry. Everything else stands on something.
const VIRTUAL: [&str; 41] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "functionfs",
    "fuse.gvfsd-fuse",
    "fuse.lxcfs",
    "fuse.portal",
    "fuse.vmware-vmblock",
    "fusectl",
    "gadgetfs",
    "hugetlbfs",
    "ibmasmfs",
    "ipathfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "ocfs2_dlmfs",
    "openpromfs",
    "oprofilefs",
    "overlay",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "s390_hypfs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "spufs",
    "sysfs",
    "tracefs",
    "xenfs",
];

/// A mount (`/proc/PID/mountinfo`, proc_pid_mountinfo(5)).
#[derive(Clone, Debug)]
pub(super) struct Mount {
    /// `major:minor`; the major is 0 where no block device is behind it, or several are.
    number: String,
    /// The mount point, with its escapes undone.
    pub at: String,
    kind: String,
    source: String,
    /// The options of the file system.
    options: String,
}

impl Mount {
    /// Whether something is behind it that the machine needs, be it known or not.
    pub fn is_carried(&self) -> bool {
        let kind = self.kind.as_str();
        !self.number.starts_with("0:")
            || !(MEMORY.contains(&kind)
                || VIRTUAL.contains(&kind)
                || self.is_a_users()
                || self.is_of_proxmox())
    }

    /// Whether a program in user space keeps it, which says itself what it is.
    fn is_in_user_space(&self) -> bool {
        self.number.starts_with("0:") && (self.kind == "fuse" || self.kind.starts_with("fuse."))
    }

    /// Whether it is Proxmox's configuration, which a program keeps in memory and in a database of its own (pmxcfs(8)).
    fn is_of_proxmox(&self) -> bool {
        self.is_in_user_space() && self.source == "/dev/fuse" && self.at == "/etc/pve"
    }

    /// Whether an ordinary user has mounted it for himself (fuse(4), `user_id`).
    fn is_a_users(&self) -> bool {
        let user = self.options.split(',').find_map(|option| option.strip_prefix("user_id="));
        self.is_in_user_space() && user.is_some_and(|user| user != "0")
    }

    /// What two mounts share that are carried by the same.
    pub fn device_key(&self) -> (String, String) {
        match self.number.starts_with("0:") {
            // File systems of one pool.
            true if self.kind == "zfs" => {
                (self.kind.clone(), self.source.split('/').next().unwrap_or_default().to_owned())
            }
            true => (self.kind.clone(), self.source.clone()),
            false => (self.number.clone(), String::new()),
        }
    }
}

/// What carries a file system.
pub(super) enum BackingDevice {
    /// A device, and where it hangs.
    Path(LifelinePath),
    /// A server, with what it is called on the way.
    Server { names: Vec<String>, address: IpAddr },
    /// Something that could not be followed, and why.
    Lost(String),
}

/// What is mounted, in order; `None` when that could not be read.
pub(super) fn mounts(reader: &mut Reader<'_>) -> Option<Vec<Mount>> {
    let text = reader.large_text("/proc/self/mountinfo")?;
    let mounts: Vec<Mount> = text.lines().filter_map(mount).collect();
    if mounts.len() < text.lines().count() {
        reader.note("/proc/self/mountinfo has lines that are no mounts; they were left out");
    }
    Some(mounts)
}

/// `id parent major:minor root at options... - kind source options`.
fn mount(line: &str) -> Option<Mount> {
    let (place, what) = line.split_once(" - ")?;
    let place: Vec<&str> = place.split(' ').collect();
    if place.iter().any(|field| field.len() > LONGEST) {
        return None;
    }
    let mut what = what.split(' ');
    Some(Mount {
        number: (*place.get(2)?).to_owned(),
        at: unescaped(place.get(4)?),
        kind: what.next()?.to_owned(),
        source: unescaped(what.next()?),
        options: unescaped(what.next().unwrap_or_default()),
    })
}

/// The swap areas in use; `None` when that could not be read.
pub(super) fn swaps(reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let text = reader.large_text("/proc/swaps")?;
    let areas = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let (areas, odd): (Vec<&str>, Vec<&str>) = areas.partition(|area| area.len() <= LONGEST);
    if !odd.is_empty() {
        reader.note("/proc/swaps has names that are no paths; they were left out");
    }
    Some(areas.into_iter().map(unescaped).collect())
}

/// `\040` and its like (`fs/proc_namespace.c`, `mangle`).
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    // What a name holds reaches a terminal in messages.
    one_line(&String::from_utf8_lossy(&bytes))
}

/// What carries a mount; empty when that is memory.
pub(super) fn devices(
    mount: &Mount,
    mounts: &[Mount],
    reader: &mut Reader<'_>,
) -> Result<Vec<BackingDevice>, String> {
    let mut walk = Walk { mounts, devices: Vec::new(), seen: BTreeSet::new(), memory: false };
    walk.mount(mount, &[], reader)?;
    walk.end()
}

/// What carries a swap area, a device or a file.
pub(super) fn devices_of_swap(
    area: &str,
    mounts: &[Mount],
    reader: &mut Reader<'_>,
) -> Result<Vec<BackingDevice>, String> {
    let mut walk = Walk { mounts, devices: Vec::new(), seen: BTreeSet::new(), memory: false };
    match device(area, reader) {
        Some(name) => walk.block(&name, &[], reader)?,
        None => walk.file(area, &[], reader)?,
    }
    walk.end()
}

/// The name of the block device that a path means.
fn device(path: &str, reader: &mut Reader<'_>) -> Option<String> {
    let rest = path.strip_prefix("/dev/")?;
    let real = reader.canonical(path).unwrap_or_else(|| path.to_owned());
    // A slash in a device's name is an exclamation mark in sysfs (`lib/kobject.c`, `kobject_set_name_vargs`).
    let name = real.strip_prefix("/dev/").unwrap_or(rest).replace('/', "!");
    if is_name(&name) && reader.exists(&format!("{BLOCK}/{name}")) {
        return Some(name);
    }
    let mapped = rest.strip_prefix("mapper/")?;
    let all = reader.list(BLOCK);
    all.into_iter().find(|name| reader.text(&format!("{BLOCK}/{name}/dm/name")).as_deref() == Some(mapped))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.contains(|c: char| c == '/' || c.is_control())
        && name != "."
        && name != ".."
}

struct Walk<'a> {
    mounts: &'a [Mount],
    devices: Vec<BackingDevice>,
    seen: BTreeSet<String>,
    /// Whether something on the way is kept in memory.
    memory: bool,
}

impl Walk<'_> {
    /// What was found. Only of what is in memory nothing may be.
    fn end(self) -> Result<Vec<BackingDevice>, String> {
        if self.devices.is_empty() && !self.memory {
            return Err("nothing that it stands on ends at hardware".to_owned());
        }
        Ok(self.devices)
    }

    /// Counts a thing that is looked at; whether it is new.
    fn enter(&mut self, what: String, above: &[String]) -> Result<bool, String> {
        if above.len() >= DEEPEST || self.seen.len() >= MOST {
            return Err("too many devices lie on each other".to_owned());
        }
        Ok(self.seen.insert(what))
    }

    fn mount(&mut self, mount: &Mount, above: &[String], reader: &mut Reader<'_>) -> Result<(), String> {
        if !self.enter(format!("mount {} {}", mount.number, mount.at), above)? {
            return Ok(());
        }
        let kind = mount.kind.as_str();
        if MEMORY.contains(&kind) {
            self.memory = true;
            return Ok(());
        }
        if NETWORK.contains(&kind) {
            return self.server(mount, above);
        }
        if kind == "overlay" {
            return self.overlay(mount, above, reader);
        }
        if !mount.number.starts_with("0:") {
            let link = format!("/sys/dev/block/{}", mount.number);
            let name = reader.link_name(&link).or_else(|| device(&mount.source, reader));
            let name = name.ok_or_else(|| format!("{link} is not there"))?;
            return self.block(&name, above, reader);
        }
        if STACKED.contains(&kind) && mount.source.starts_with('/') {
            let below = self.below(&mount.source, mount);
            let below = below
                .ok_or_else(|| format!("it is {kind} on {}, which nothing holds", quoted(&mount.source)))?;
            return self.mount(&below, above, reader);
        }
        if mount.is_in_user_space() {
            return Err(format!(
                "it is {kind}, which a program in user space keeps, and that alone knows on what"
            ));
        }
        let first = mount.source.split(':').next().unwrap_or_default();
        let Some(name) = device(first, reader) else {
            return Err(format!("it is {kind} on {}, which is no block device", quoted(&mount.source)));
        };
        // bcachefs names all its devices, Btrfs one of them.
        for other in mount.source.split(':').skip(1) {
            match device(other, reader) {
                Some(other) => self.block(&other, above, reader)?,
                None => {
                    self.devices.push(BackingDevice::Lost(format!("{} is no block device", quoted(other))))
                }
            }
        }
        for other in btrfs_devices(&name, reader) {
            self.block(&other, above, reader)?;
        }
        self.block(&name, above, reader)
    }

    /// A file system that a server keeps: its options have the address (`fs/nfs/super.c`, `fs/smb/client/cifsfs.c`), or, for
    /// Ceph, its source has.
    fn server(&mut self, mount: &Mount, above: &[String]) -> Result<(), String> {
        let option = |name: &str| {
            mount.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
        };
        let in_options =
            ["mountaddr", "addr"].into_iter().filter_map(option).find_map(|text| text.parse::<IpAddr>().ok());
        let addresses: Vec<IpAddr> = match in_options {
            Some(address) => vec![address],
            None => {
                let servers = mount.source.split(":/").next().unwrap_or_default().split(',');
                servers.filter_map(address_of).collect()
            }
        };
        if addresses.is_empty() {
            return Err(format!(
                "it is {} on {}, whose server is not known",
                mount.kind,
                quoted(&mount.source)
            ));
        }
        for address in addresses {
            let mut names = above.to_vec();
            names.push(format!("{} ({})", address, mount.kind));
            self.devices.push(BackingDevice::Server { names, address });
        }
        Ok(())
    }

    /// The layers of an overlay are directories of other file systems (`Documentation/filesystems/overlayfs.rst`).
    fn overlay(&mut self, mount: &Mount, above: &[String], reader: &mut Reader<'_>) -> Result<(), String> {
        let option = |name: &str| {
            mount.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
        };
        let lower = option("lowerdir").into_iter().flat_map(|text| text.split(':'));
        let layers: Vec<String> =
            lower.chain(option("upperdir")).filter(|layer| !layer.is_empty()).map(str::to_owned).collect();
        if layers.is_empty() {
            return Err("it is an overlay that names no layers".to_owned());
        }
        for layer in layers {
            match self.holding(&layer, Some(mount)) {
                Some(below) => self.mount(&below, above, reader)?,
                None => {
                    let why =
                        format!("it is an overlay, and what holds its layer {} is not seen", quoted(&layer));
                    self.devices.push(BackingDevice::Lost(why));
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str, above: &[String], reader: &mut Reader<'_>) -> Result<(), String> {
        match self.holding(path, None) {
            Some(mount) => self.mount(&mount, above, reader),
            None => Err(format!("no file system holds {}", quoted(path))),
        }
    }

    /// The mount that a path is on without `top`, which may cover it.
    fn below(&self, path: &str, top: &Mount) -> Option<Mount> {
        let is_top = |mount: &Mount| mount.number == top.number && mount.at == top.at;
        let mounts: Vec<Mount> = self.mounts.iter().filter(|mount| !is_top(mount)).cloned().collect();
        holding(&mounts, path).cloned()
    }

    /// The mount that a path is on, but for one.
    fn holding(&self, path: &str, but: Option<&Mount>) -> Option<Mount> {
        let best = holding(self.mounts, path)?;
        // What an overlay covers cannot be reached by a path any more.
        but.is_none_or(|but| but.at != best.at).then(|| best.clone())
    }

    fn block(&mut self, name: &str, above: &[String], reader: &mut Reader<'_>) -> Result<(), String> {
        if !is_name(name) {
            return Err(format!("{} is no name of a block device", quoted(name)));
        }
        if !self.enter(format!("block {name}"), above)? {
            return Ok(());
        }
        let directory = format!("{BLOCK}/{name}");
        let real =
            reader.canonical(&directory).ok_or_else(|| format!("{directory} could not be followed"))?;
        let mut names = above.to_vec();
        names.push(name.to_owned());
        if reader.exists(&format!("{real}/partition")) {
            let disk = real.rsplit('/').nth(1).unwrap_or_default().to_owned();
            return self.block(&disk, &names, reader);
        }
        let slaves = reader.list(&format!("{real}/slaves"));
        if !slaves.is_empty() {
            return slaves.iter().try_for_each(|slave| self.block(slave, &names, reader));
        }
        if let Some(file) = reader.text(&format!("{real}/loop/backing_file")) {
            return self.file(&file, &names, reader);
        }
        let controllers = nvme_paths(&real, reader);
        if !controllers.is_empty() {
            for controller in controllers {
                self.controller(&controller, &names, reader);
            }
            return Ok(());
        }
        if let Some(session) =
            real.split('/').find_map(|part| part.strip_prefix("session")?.parse::<u32>().ok())
        {
            return self.iscsi(session, names, reader);
        }
        self.hardware(&real, names, reader);
        Ok(())
    }

    /// A path of an NVMe namespace: a controller on the PCI bus, or one at the other end of a network.
    fn controller(&mut self, name: &str, above: &[String], reader: &mut Reader<'_>) {
        let mut names = above.to_vec();
        names.push(name.to_owned());
        let directory = format!("/sys/class/nvme/{name}");
        let address = reader.text(&format!("{directory}/address")).unwrap_or_default();
        let traddr = address.split(',').find_map(|part| part.trim().strip_prefix("traddr="));
        match traddr.and_then(|text| text.parse::<IpAddr>().ok()) {
            Some(address) => {
                names.push(format!("{address} (NVMe)"));
                self.devices.push(BackingDevice::Server { names, address });
            }
            None => self.hardware(&directory, names, reader),
        }
    }

    /// An iSCSI disk (`drivers/scsi/scsi_transport_iscsi.c`).
    fn iscsi(&mut self, session: u32, mut names: Vec<String>, reader: &mut Reader<'_>) -> Result<(), String> {
        let directory = format!("/sys/class/iscsi_connection/connection{session}:0");
        let address = ["address", "persistent_address"]
            .into_iter()
            .find_map(|attribute| reader.text(&format!("{directory}/{attribute}"))?.parse::<IpAddr>().ok());
        let Some(address) = address else {
            return Err(format!("{directory} does not say where iSCSI session {session} goes"));
        };
        names.push(format!("{address} (iSCSI)"));
        self.devices.push(BackingDevice::Server { names, address });
        Ok(())
    }

    fn hardware(&mut self, directory: &str, names: Vec<String>, reader: &mut Reader<'_>) {
        // Compressed swap is memory.
        if names.last().is_some_and(|name| name.starts_with("zram") || name.starts_with("ram")) {
            self.memory = true;
            return;
        }
        let carrier = match function_of(directory, reader) {
            Ok(None)
                if reader
                    .canonical(directory)
                    .is_some_and(|real| real.starts_with("/sys/devices/virtual/")) =>
            {
                BackingDevice::Lost(format!(
                    "{} is made by software, and what it stands on is not known",
                    names.join(", ")
                ))
            }
            Ok(function) => BackingDevice::Path(LifelinePath { names, function }),
            Err(why) => BackingDevice::Lost(why),
        };
        self.devices.push(carrier);
    }
}

/// The mount that a path is on: that with the longest way in common, the last one mounted there.
fn holding<'m>(mounts: &'m [Mount], path: &str) -> Option<&'m Mount> {
    let holds = |mount: &&Mount| {
        let at = mount.at.trim_end_matches('/');
        path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    mounts.iter().filter(holds).max_by_key(|mount| mount.at.len())
}

/// `[2001:db8::1]:6789`, `192.0.2.1:6789` or an address alone.
fn address_of(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.split(']').next());
    let bare = bare
        .or_else(|| text.parse::<IpAddr>().ok().map(|_| text))
        .unwrap_or_else(|| text.split(':').next().unwrap_or(text));
    bare.parse().ok()
}

/// All devices of the Btrfs that `name` is one of (`fs/btrfs/sysfs.c`).
fn btrfs_devices(name: &str, reader: &mut Reader<'_>) -> Vec<String> {
    const BTRFS: &str = "/sys/fs/btrfs";
    let all = reader.list(BTRFS);
    let directory = all.into_iter().map(|id| format!("{BTRFS}/{id}/devices"));
    let own = directory.into_iter().find(|devices| reader.exists(&format!("{devices}/{name}")));
    own.map(|devices| reader.list(&devices)).unwrap_or_default()
}

/// The controllers over which a namespace of a multipath subsystem is reached (`drivers/nvme/host/multipath.c`).
fn nvme_paths(real: &str, reader: &mut Reader<'_>) -> Vec<String> {
    let subsystem = real.rsplit('/').nth(1).unwrap_or_default();
    if !subsystem.starts_with("nvme-subsys") && !real.contains("/nvme-fabrics/") {
        return Vec::new();
    }
    let is_controller = |name: &String| {
        name.strip_prefix("nvme")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if is_controller(&subsystem.to_owned()) {
        return vec![subsystem.to_owned()];
    }
    let parent = real.rsplit_once('/').map_or("", |(parent, _)| parent);
    reader.list(parent).into_iter().filter(is_controller).collect()
}
