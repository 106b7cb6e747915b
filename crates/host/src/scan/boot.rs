//! What the machine was started with, what the kernel said of it, and what decides its next start.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::OpenOptions,
    io::{self, ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
};

use nix::fcntl::OFlag;
use penstock_model::{
    Bdf, Inventory,
    inventory::{BootFacts, BootLoader, BootSetup, IommuKind, tuning::Reading},
};

use crate::{Root, files};

/// The kernel's log keeps no more than some megabytes (`CONFIG_LOG_BUF_SHIFT`).
const LOG_LIMIT: usize = 16 << 20;
/// No file that decides a start is larger.
const FILE_LIMIT: usize = 1 << 20;
/// systemd-boot names itself here (systemd.io, "The Boot Loader Interface").
const LOADER_INFO: &str = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// What this run of the kernel found when it was started.
pub fn facts(root: &Root, inventory: &Inventory) -> BootFacts {
    let is_there = |path: &str| root.exists(path);
    let tables = [("DMAR", IommuKind::Intel), ("IVRS", IommuKind::Amd), ("IORT", IommuKind::Arm)];
    let iommu = tables.into_iter().find(|(table, _)| is_there(&format!("/sys/firmware/acpi/tables/{table}")));
    // `identity`, or `DMA`, `DMA-FQ` (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
    let kinds: Vec<String> = inventory
        .pfs
        .iter()
        .filter_map(|pf| pf.iommu_group)
        .filter_map(|group| text(root, &format!("/sys/kernel/iommu_groups/{group}/type")))
        .collect();
    let unsafe_interrupts = text(root, "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts");
    let log = kernel_log(root).unwrap_or_default();
    let said = |what: &str| -> BTreeSet<Bdf> {
        let lines = log.lines().filter(|line| line.contains(what));
        lines
            .filter_map(|line| {
                line.split([' ', ';']).find_map(|word| word.trim_end_matches(':').parse().ok())
            })
            .collect()
    };
    BootFacts {
        iommu: iommu.map(|(_, kind)| kind),
        passthrough: (!kinds.is_empty()).then(|| kinds.iter().all(|kind| kind == "identity")),
        unsafe_interrupts: unsafe_interrupts.is_some_and(|text| matches!(text.as_str(), "Y" | "1")),
        without_room: said(NO_ROOM),
        without_bus: said(NO_BUS),
    }
}

/// What decides how a machine is started, with the text of `paths` as far as they are there. Of the boot loader's entries nothing: a tool
/// tells of them ([`entries`](crate::boot::entries)), which takes longer than one who looks each second can wait.
///
/// # Errors
///
/// A file that is there and cannot be read as text: what it holds could not be brought back.
pub fn setup(root: &Root, paths: &[String], wanted_by: &str) -> files::Result<BootSetup> {
    let mut texts = BTreeMap::new();
    for path in paths {
        match files::read_to_string(root.path(path)) {
            Ok(text) => drop(texts.insert(path.clone(), text)),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    let enabled = files::list(root.path(wanted_by)).unwrap_or_default();
    Ok(BootSetup {
        loader: loader(root),
        entries: Vec::new(),
        systemd: files::exists(root.path("/run/systemd/system")),
        files: texts,
        enabled: enabled.into_iter().filter(|name| name.starts_with("penstock-")).collect(),
        command_line: text(root, "/proc/cmdline").unwrap_or_default(),
    })
}

/// The tool that puts words on the kernel's command line. First what did start this machine, when that says so: several
/// may be installed.
fn loader(root: &Root) -> Option<BootLoader> {
    let program = |name: &str| {
        let places = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        places.into_iter().map(|place| format!("{place}/{name}")).find(|path| files::exists(root.path(path)))
    };
    let started_by = files::read_at_most(root.path(LOADER_INFO), FILE_LIMIT).map(|(bytes, _)| bytes);
    // UTF-16 after four bytes of attributes.
    let started_by: String = started_by
        .unwrap_or_default()
        .into_iter()
        .skip(4)
        .filter(|byte| *byte != 0)
        .map(char::from)
        .collect();
    if started_by.contains("systemd-boot") {
        return match (program("proxmox-boot-tool"), program("kernel-install")) {
            (Some(_), _) => Some(BootLoader::ProxmoxBootTool),
            (None, Some(_)) => Some(BootLoader::KernelInstall),
            (None, None) => None,
        };
    }
    if program("grubby").is_some() {
        return Some(BootLoader::Grubby);
    }
    let menu = "/boot/grub/grub.cfg";
    let script = files::read_at_most(root.path(program("grub-mkconfig")?), FILE_LIMIT).ok()?.0;
    let reads_drop_ins = String::from_utf8_lossy(&script).contains("/default/grub.d");
    if !reads_drop_ins || !files::exists(root.path(menu)) {
        return None;
    }
    let refresh = match program("update-grub") {
        Some(_) => vec!["update-grub".to_owned()],
        None => ["grub-mkconfig", "-o", menu].map(str::to_owned).into(),
    };
    Some(BootLoader::Grub { refresh, menu: menu.to_owned() })
}

fn text(root: &Root, path: &str) -> Option<String> {
    let (bytes, _) = root.read(path, FILE_LIMIT).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// What the kernel said of a VF that found no room (`drivers/pci/iov.c`, `sriov_enable`), or no bus.
const NO_ROOM: &str = "not enough MMIO resources for SR-IOV";
const NO_BUS: &str = "out of range of [bus";
/// What it begins with (`init/main.c`, `start_kernel`): with this, nothing that it said has been lost.
const BEGINNING: &str = "Linux version ";
/// Words of its command line that it does not know (`init/main.c`, `print_unknown_bootoptions`).
const UNKNOWN_WORDS: &str = "Unknown kernel command line parameters ";

/// A value of a word that it does know (`kernel/cpu.c`, `mitigations_parse_cmdline`; `kernel/sched/isolation.c`,
/// `housekeeping_isolcpus_setup`; `kernel/sched/core.c`, `setup_preempt_mode`).
const REFUSED_MITIGATIONS: &str = "Unsupported mitigations=";
const REFUSED_PREEMPT: &str = "Dynamic Preempt: unsupported mode: ";
const REFUSED_FLAG: &str = "isolcpus: Skipped unknown flag ";

/// The words of its command line that the kernel said it does not know; and `word=value` of those whose value it refused.
pub(super) fn unknown_words(root: &Root) -> (Reading<Vec<String>>, Vec<String>) {
    let unread = match kernel_log(root) {
        Ok(log) => return (unknown_in(&log), refused_in(&log)),
        Err(error) if error.kind() == ErrorKind::NotFound => Reading::Absent,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Reading::Denied,
        Err(error) => Reading::Unreadable(format!("{LOG} could not be read: {error}")),
    };
    (unread, Vec::new())
}

fn plain(word: &str) -> String {
    word.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn refused_in(log: &str) -> Vec<String> {
    let first =
        |said: &str| plain(said.split([' ', '\n']).next().unwrap_or_default().trim_end_matches([',', '.']));
    let refused =
        [(REFUSED_MITIGATIONS, "mitigations="), (REFUSED_FLAG, "isolcpus="), (REFUSED_PREEMPT, "preempt=")];
    let mut words = Vec::new();
    for (said, word) in refused {
        words.extend(log.split(said).skip(1).take(20).map(|rest| format!("{word}{}", first(rest))));
    }
    words
}

fn unknown_in(log: &str) -> Reading<Vec<String>> {
    if let Some((_, said)) = log.split_once(UNKNOWN_WORDS) {
        // `Unknown kernel command line parameters "a b=1", will be passed to user space.`
        let said = said.lines().next().unwrap_or_default();
        let quoted = said.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
        let unknown = quoted.map_or(said, |(words, _)| words);
        return Reading::Is(unknown.split_whitespace().take(200).map(plain).collect());
    }
    if log.contains(BEGINNING) {
        return Reading::Is(Vec::new());
    }
    Reading::Unreadable("the kernel's log no longer has what was said at the start".to_owned())
}

const LOG: &str = "/dev/kmsg";

/// What the kernel has said since it was started of what is asked for here, as far as it still knows and tells us.
fn kernel_log(root: &Root) -> io::Result<String> {
    let outcome = said_since_the_start(root).map(|said| {
        let wanted =
            [NO_ROOM, NO_BUS, BEGINNING, UNKNOWN_WORDS, REFUSED_MITIGATIONS, REFUSED_FLAG, REFUSED_PREEMPT];
        let text = String::from_utf8_lossy(&said);
        let lines = text.lines().filter(|line| wanted.iter().any(|words| line.contains(words)));
        lines.flat_map(|line| [line, "\n"]).collect::<String>()
    });
    root.note(LOG, outcome.as_ref().map(|text| text.as_bytes()));
    outcome
}

fn said_since_the_start(root: &Root) -> io::Result<Vec<u8>> {
    if !root.is_system() {
        // In a tree it is a file like any other.
        return root.unnoted().read(LOG, LOG_LIMIT).map(|(bytes, _)| bytes);
    }
    let flags = (OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits();
    let mut log = OpenOptions::new().read(true).custom_flags(flags).open(root.path(LOG))?;
    let mut said = Vec::new();
    let mut record = [0; 8192];
    // Each read is one record (Documentation/ABI/testing/dev-kmsg).
    while said.len() < LOG_LIMIT {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&record[..count]),
            // Overwritten before we came to it.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
            Err(_) => break,
        }
    }
    Ok(said)
}
