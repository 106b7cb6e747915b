//! Programs that run, and the threads of VMs (proc_pid_stat(5), proc_pid_status(5), proc_pid_cmdline(5)).

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, CpuSet,
    inventory::tuning::{Irqbalance, Reading, VmProcess, VmThread},
};

use super::{irqbalance, why_unread};
use crate::{Root, scan::reader::Reader};

/// Programs that move threads, interrupts or frequencies about, or ask firmware for something, as the kernel calls them: the
/// first 15 bytes of their names.
const PROGRAMS: [&str; 14] = [
    "auto-cpufreq",
    "cpufreqd",
    "fwupd",
    "intel_lpmd",
    "irqbalance",
    "ksmtuned",
    "numad",
    "power-profiles-daemon",
    "stalld",
    "thermald",
    "throttled",
    "tlp",
    "tuned",
    "tuned-ppd",
];
/// The accounts that distributions have libvirt run QEMU as; its configuration may name another.
const QEMU_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];
const QEMU_CONFIGURATION: &str = "/etc/libvirt/qemu.conf";
/// What the kernel keeps of a name (`TASK_COMM_LEN`).
const NAME: usize = 15;
/// More processes than are looked at (`PID_MAX_LIMIT` is 4 million).
const MOST_PROCESSES: usize = 100_000;
/// So many accounts are named that are not believed.
const MOST_ACCOUNTS: usize = 5;
/// What the kernel tells of a thread in one line is shorter.
const LINE: usize = 4096;
/// More threads of VMs than a machine runs.
const MOST_THREADS: usize = 50_000;

/// What was found among the processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    pub hidden: bool,
    pub programs: BTreeSet<String>,
    pub vms: BTreeMap<u32, VmProcess>,
    pub irqbalance: Option<Irqbalance>,
    /// What of VMs could not be read, and why.
    pub unread: Vec<String>,
}

/// Anybody can call a process what he likes: programs and threads of the kernel are root's, and VMs root's or of the accounts of libvirt.
pub(super) fn processes(reader: &mut Reader<'_>) -> Processes {
    let mut of_qemu = None;
    // With `hidepid` the first process is hidden from everybody but root and itself (proc(5)).
    let hidden = reader.exists("/proc/self") && !reader.exists("/proc/1");
    let mut found = Processes { hidden, ..Processes::default() };
    let mut helpers = Vec::new();
    let mut threads = 0;
    let mut unbelieved = (0, BTreeSet::new());
    let ids: Vec<u32> = reader.quiet_list("/proc").iter().filter_map(|name| name.parse().ok()).collect();
    for id in ids.into_iter().take(MOST_PROCESSES) {
        // One that has ended meanwhile is none.
        let wanted = |name: &str| program(name).is_some() || is_vm(name) || owner(name).is_some();
        let name = match reader.glance(&format!("/proc/{id}/comm"), wanted) {
            Reading::Is(name) => name,
            // With `hidepid=1` others' processes are listed, and nothing more.
            Reading::Denied => {
                found.hidden = true;
                continue;
            }
            Reading::Absent | Reading::Unreadable(_) => continue,
        };
        if !wanted(&name) {
            continue;
        }
        // `None`: it has ended, or its record is of a Penstock that did not look.
        let accounts = accounts(id, reader, &mut Vec::new()).unwrap_or_default();
        let mut others = accounts.into_iter().filter(|account| *account != 0).peekable();
        if others.peek().is_some() {
            if !is_vm(&name) {
                continue;
            }
            let of_qemu = of_qemu.get_or_insert_with(|| qemu_users(reader));
            if let Some(other) = others.find(|account| !of_qemu.contains(account)) {
                unbelieved.0 += 1;
                unbelieved.1.insert(other);
                continue;
            }
        }
        if let Some(program) = program(&name) {
            found.programs.insert(program.to_owned());
            if program == "irqbalance" {
                found.irqbalance = Some(irqbalance::irqbalance(id, reader));
            }
        } else if is_vm(&name) {
            if let Some(vm) = vm(id, &mut threads, reader, &mut found.unread) {
                found.vms.insert(id, vm);
            }
        } else if let Some(owner) = owner(&name) {
            helpers.push((owner, id, name));
        }
    }
    if let (number @ 1.., accounts) = unbelieved {
        let accounts: Vec<String> =
            accounts.into_iter().take(MOST_ACCOUNTS).map(|id| id.to_string()).collect();
        reader.note(format!(
            "{number} processes called as QEMU is were not looked at as VMs, for libvirt has no VM under accounts such as {} \
             here (`user` in {QEMU_CONFIGURATION})",
            accounts.join(", ")
        ));
    }
    for (owner, id, name) in helpers {
        let Some(vm) = found.vms.get_mut(&owner) else { continue };
        let mut unread = Vec::new();
        vm.threads
            .extend(thread(&format!("/proc/{id}"), name, reader, &mut unread).map(|thread| (id, thread)));
        found.unread.extend(unread.iter().map(|why| format!("{} is not wholly known: {why}", of_vm(owner))));
    }
    found
}

/// The program that the kernel calls so.
fn program(name: &str) -> Option<&'static str> {
    PROGRAMS.into_iter().find(|program| name == &program[..program.len().min(NAME)])
}

/// The accounts that a process has: the real, the effective and the saved user ID of proc_pid_status(5). A program that changes its account
/// when it is started (set-user-ID) has that of who started it as well.
fn accounts(id: u32, reader: &mut Reader<'_>, unread: &mut Vec<String>) -> Option<Vec<u32>> {
    let status = status(&format!("/proc/{id}"), reader, unread)?;
    field(&status, "Uid")?.split_whitespace().take(3).map(|account| account.parse().ok()).collect()
}

/// The accounts that QEMU may have here.
fn qemu_users(reader: &mut Reader<'_>) -> BTreeSet<u32> {
    let of_user = |text: &str| -> String {
        let lines = text.lines().filter(|line| {
            line.trim_start().strip_prefix("user").is_some_and(|rest| rest.trim_start().starts_with('='))
        });
        lines.flat_map(|line| [line, "\n"]).collect()
    };
    let configured = reader.part_of(QEMU_CONFIGURATION, of_user);
    let configured = configured.known().and_then(|text| Some(value(text.lines().next()?.split_once('=')?.1)));
    let configured = configured.map(|value| value.trim_start_matches('+').to_owned());
    let names: Vec<&str> = QEMU_USERS.into_iter().chain(configured.as_deref()).collect();
    let kept = |text: &str| -> String {
        let is_named = |line: &&str| line.split(':').next().is_some_and(|name| names.contains(&name));
        text.lines().filter(is_named).flat_map(|line| [line, "\n"]).collect()
    };
    let accounts = reader.part_of("/etc/passwd", kept);
    let of_accounts = accounts.known().into_iter().flat_map(|text| text.lines());
    let of_accounts = of_accounts.filter_map(|line| line.split(':').nth(2)?.parse().ok());
    of_accounts.chain(names.iter().filter_map(|name| name.parse().ok())).collect()
}

/// A value of a configuration of libvirt's (`src/util/virconf.c`), without its quotes and what comes behind it.
fn value(text: &str) -> &str {
    let text = text.trim();
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    match quote {
        Some(quote) => text[1..].split(quote).next().unwrap_or_default(),
        None => text.split(|c: char| c.is_whitespace() || c == '#').next().unwrap_or_default(),
    }
}

/// What [`Processes::unread`] says begins so where it is of the VM whose process this is.
pub fn of_vm(id: u32) -> String {
    format!("/proc/{id}/")
}

fn is_vm(name: &str) -> bool {
    name.starts_with("qemu") || name == "kvm"
}

/// The process that a thread of the kernel works for: `vhost-1234` up to Linux 6.3 (`drivers/vhost/vhost.c`), `kvm-pit/1234`.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix("vhost-").or_else(|| name.strip_prefix("kvm-pit/"))?.parse().ok()
}

fn vm(id: u32, threads: &mut usize, reader: &mut Reader<'_>, unread: &mut Vec<String>) -> Option<VmProcess> {
    let path = format!("/proc/{id}/cmdline");
    let line = reader.part_of(&path, kept);
    unread.extend(why_unread(&path, &line));
    let said = CommandLine::parse(line.known().map_or("", String::as_str));
    let status = status(&format!("/proc/{id}"), reader, unread)?;
    let resident = [kib(&status, "VmRSS"), kib(&status, "VmSwap")];
    let mut vm = VmProcess {
        name: said.name,
        locked_kib: kib(&status, "VmLck"),
        memory_kib: said.memory_kib,
        resident_kib: resident.into_iter().try_fold(0u64, |all, part| Some(all.saturating_add(part?))),
        // The kernel walks all pages for it: quickly only where they are huge.
        huge_page_nodes: if said.huge_pages { huge_page_nodes(id, reader) } else { Reading::Absent },
        functions: said.functions,
        huge_pages: said.huge_pages,
        threads: BTreeMap::new(),
    };
    let tasks = reader.listing(&format!("/proc/{id}/task"));
    unread.extend(why_unread(&format!("/proc/{id}/task"), &tasks));
    for task in tasks.known().into_iter().flatten() {
        let Ok(number) = task.parse() else { continue };
        *threads += 1;
        if *threads > MOST_THREADS {
            reader.note(format!("VMs have more than the {MOST_THREADS} threads that were looked at"));
            break;
        }
        let directory = format!("/proc/{id}/task/{number}");
        let path = format!("{directory}/comm");
        let name = reader.lines_up_to(&path, LINE).map(shown);
        unread.extend(why_unread(&path, &name));
        if let Reading::Is(name) = name
            && let Some(thread) = thread(&directory, name, reader, unread)
        {
            vm.threads.insert(number, thread);
        }
    }
    Some(vm)
}

/// The threads of every process of the container whose first process is `id`: of those in the control group that LXC made
/// for it, or below.
///
/// # Errors
///
/// In words, why not all of them are known: it has ended, is in no such group, or something of them could not be read.
pub fn container_threads(root: &Root, id: u32) -> Result<Vec<VmThread>, String> {
    let mut reader = Reader::new(root);
    // Of one that has ended meanwhile there is none.
    let group_of = |process: &str, reader: &mut Reader<'_>| -> Result<Option<String>, String> {
        let path = format!("/proc/{process}/cgroup");
        let whole = reader.part_of(&path, |text| {
            text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned()
        });
        why_unread(&path, &whole).map_or(Ok(whole.known().cloned()), Err)
    };
    let own = group_of(&id.to_string(), &mut reader)?.ok_or_else(|| format!("process {id} has ended"))?;
    let at = own.find("/lxc.payload.").ok_or_else(|| format!("process {id} is in no group of LXC's"))? + 1;
    let group = &own[..own[at..].find('/').map_or(own.len(), |length| at + length)];
    let (mut threads, mut unread) = (Vec::new(), Vec::new());
    for process in reader.quiet_list("/proc").iter().filter(|name| name.parse::<u32>().is_ok()) {
        let inside = group_of(process, &mut reader)?.is_some_and(|seen| {
            seen.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if !inside {
            continue;
        }
        let tasks = reader.listing(&format!("/proc/{process}/task"));
        unread.extend(why_unread(&format!("/proc/{process}/task"), &tasks));
        for task in tasks.known().into_iter().flatten() {
            let directory = format!("/proc/{process}/task/{task}");
            let path = format!("{directory}/comm");
            let name = reader.lines_up_to(&path, LINE).map(shown);
            unread.extend(why_unread(&path, &name));
            if let Reading::Is(name) = name {
                threads.extend(thread(&directory, name, &mut reader, &mut unread));
            }
            if threads.len() > MOST_THREADS {
                return Err(format!("it has more than {MOST_THREADS} threads"));
            }
        }
    }
    unread.into_iter().next().map_or(Ok(threads), Err)
}

fn thread(
    directory: &str,
    name: String,
    reader: &mut Reader<'_>,
    unread: &mut Vec<String>,
) -> Option<VmThread> {
    let status = status(directory, reader, unread)?;
    let allowed = field(&status, "Cpus_allowed_list").and_then(|list| list.parse::<CpuSet>().ok());
    let path = format!("{directory}/stat");
    // The name in it may hold anything, and says nothing of where a thread runs.
    let stat = reader.lines_up_to(&path, LINE);
    unread.extend(why_unread(&path, &stat));
    let scheduling = scheduling(stat.known()?);
    let (Some(cpus), Some((priority, policy))) = (allowed, scheduling) else {
        unread.push(format!("{directory} does not say where or how a thread runs"));
        return None;
    };
    Some(VmThread { name, cpus, policy, priority })
}

/// A thread's name, which its program chooses, as it can be shown.
fn shown(name: String) -> String {
    name.trim_matches(|c: char| c.is_whitespace() || c == '\0').replace(|c: char| c.is_control(), "\u{fffd}")
}

/// Where the pages of hugetlb of a process are (`show_numa_map` in `fs/proc/task_mmu.c`).
fn huge_page_nodes(id: u32, reader: &mut Reader<'_>) -> Reading<BTreeMap<u32, u64>> {
    let path = format!("/proc/{id}/numa_maps");
    let kept = |text: &str| -> String {
        let of_pages = |word: &&str| *word == "huge" || word.starts_with('N') || word.starts_with(PAGE_SIZE);
        let lines = text.lines().filter(|line| line.split_whitespace().any(|word| word == "huge"));
        lines
            .flat_map(|line| line.split_whitespace().filter(of_pages).chain(["\n"]))
            .collect::<Vec<_>>()
            .join(" ")
    };
    match reader.part_of(&path, kept).map(|text| pages_by_node(&text)) {
        Reading::Is(Some(nodes)) => Reading::Is(nodes),
        Reading::Is(None) => Reading::Unreadable(format!("{path} cannot be parsed")),
        other => other.map(|_| BTreeMap::new()),
    }
}

const PAGE_SIZE: &str = "kernelpagesize_kB=";

/// KiB by node, of lines as `huge N0=4 N1=2 kernelpagesize_kB=1048576`; the pages of one that is not used yet are nowhere.
fn pages_by_node(text: &str) -> Option<BTreeMap<u32, u64>> {
    let mut nodes = BTreeMap::new();
    for line in text.lines() {
        let words = || line.split_whitespace();
        let mut pages = words().filter_map(|word| word.strip_prefix('N')?.split_once('=')).peekable();
        if pages.peek().is_none() {
            continue;
        }
        let size: u64 = words().find_map(|word| word.strip_prefix(PAGE_SIZE))?.parse().ok()?;
        for (node, count) in pages {
            let kib = count.parse::<u64>().ok()?.saturating_mul(size);
            let all: &mut u64 = nodes.entry(node.parse().ok()?).or_default();
            *all = all.saturating_add(kib);
        }
    }
    Some(nodes)
}

/// `status` has many lines; most of them are nobody's business.
fn status(directory: &str, reader: &mut Reader<'_>, unread: &mut Vec<String>) -> Option<String> {
    let wanted = |text: &str| -> String {
        let lines = text.lines().filter(|line| {
            ["Uid:", "VmLck:", "VmRSS:", "VmSwap:", "Cpus_allowed_list:"]
                .iter()
                .any(|name| line.starts_with(name))
        });
        lines.flat_map(|line| [line, "\n"]).collect()
    };
    let path = format!("{directory}/status");
    let text = reader.part_of(&path, wanted);
    unread.extend(why_unread(&path, &text));
    text.known().cloned()
}

/// The value of a line `Name: value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The number of a line `Name: 1234 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim().parse().ok()
}

/// Priority and policy: fields 40 and 41 of `stat`. The name in parentheses may hold anything.
fn scheduling(stat: &str) -> Option<(u32, u32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(40 - 3);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// What QEMU's command line says of a VM.
#[derive(Debug, Default, PartialEq, Eq)]
struct CommandLine {
    name: String,
    functions: BTreeSet<Bdf>,
    huge_pages: bool,
    memory_kib: Option<u64>,
}

impl CommandLine {
    fn parse(line: &str) -> CommandLine {
        let mut found = CommandLine::default();
        let words: Vec<&str> = line.split('\0').take(10_000).collect();
        for pair in words.windows(2) {
            let [option, value] = pair else { continue };
            match option.trim_start_matches('-') {
                "name" => found.name = name(value),
                "m" => found.memory_kib = memory(value),
                "device" if value.contains("vfio-pci") => found.functions.extend(function(value)),
                "object" if value.contains("memory-backend") => found.huge_pages |= huge(value),
                "mem-path" => found.huge_pages |= value.contains("huge"),
                _ => {}
            }
        }
        found
    }
}

/// `guest=NAME,debug-threads=on`, or just `NAME`; a comma in it is written twice.
fn name(value: &str) -> String {
    let value = value.replace(",,", "\u{1}");
    let part =
        value.split(',').find_map(|part| part.strip_prefix("guest=")).or_else(|| value.split(',').next());
    let part = part.unwrap_or_default().replace('\u{1}', ",");
    part.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// KiB in `size=4194304k,slots=16`, `4G`, or `4096`, which are MiB (qemu(1), `-m`).
fn memory(value: &str) -> Option<u64> {
    let size = value.trim().split(',').find_map(|part| match part.split_once('=') {
        Some((key, size)) => (key == "size").then_some(size),
        None => Some(part),
    })?;
    let (digits, unit) = size.split_at(size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len()));
    let number: u64 = digits.parse().ok()?;
    match unit.to_ascii_lowercase().as_str() {
        "b" => Some(number / 1024),
        "k" => Some(number),
        "" | "m" => number.checked_mul(1 << 10),
        "g" => number.checked_mul(1 << 20),
        "t" => number.checked_mul(1 << 30),
        _ => None,
    }
}

/// The host's function in `vfio-pci,host=0000:04:10.0,id=x`, or in the same as JSON.
fn function(value: &str) -> Option<Bdf> {
    let (_, rest) = value.split_once("host")?;
    let rest = rest.trim_start_matches(['"', ':', '=', ' ']);
    let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || c == ':' || c == '.')).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Whether a memory back end is made of huge pages: `"hugetlb":true`, `hugetlb=on`, or a file of a huge-page file system.
fn huge(value: &str) -> bool {
    let value: String = value.chars().filter(|c| !c.is_whitespace()).collect();
    let path = value.split_once("mem-path").is_some_and(|(_, path)| {
        let path = path.trim_start_matches(['"', ':', '=']);
        path.split(['"', ',']).next().is_some_and(|path| path.contains("huge"))
    });
    path || value.contains("\"hugetlb\":true") || value.contains("hugetlb=on")
}

/// What is recorded of a command line: what is read of it, and not disks, addresses and passwords.
fn kept(line: &str) -> String {
    let said = CommandLine::parse(line);
    let mut words =
        vec!["qemu".to_owned(), "-name".to_owned(), format!("guest={}", said.name.replace(',', ",,"))];
    for function in &said.functions {
        words.extend(["-device".to_owned(), format!("vfio-pci,host={function}")]);
    }
    if let Some(memory) = said.memory_kib {
        words.extend(["-m".to_owned(), format!("size={memory}k")]);
    }
    if said.huge_pages {
        words.extend(["-object".to_owned(), "memory-backend-memfd,hugetlb=on".to_owned()]);
    }
    words.join("\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_says_the_vm_and_its_functions() {
        let libvirt = [
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=penstock-rt,,2,debug-threads=on",
            "-object",
            r#"{"qom-type":"memory-backend-file","id":"pc.ram","mem-path":"/dev/hugepages/libvirt/qemu/1-a","prealloc":true}"#,
            "-device",
            r#"{"driver":"vfio-pci","host":"0000:04:10.2","id":"hostdev0","bus":"pci.5","addr":"0x0"}"#,
            "-device",
            "vfio-pci,host=04:10.4,id=b",
            "-m",
            "size=4194304k,slots=16,maxmem=8388608k",
            "-uuid",
            "secret",
        ]
        .join("\0");
        let said = CommandLine::parse(&libvirt);
        assert_eq!(said.name, "penstock-rt,2");
        assert_eq!(said.functions, ["0000:04:10.2", "0000:04:10.4"].map(|bdf| bdf.parse().unwrap()).into());
        assert!(said.huge_pages);
        assert_eq!(said.memory_kib, Some(4 << 20));
        // What is recorded says the same, and nothing else.
        let recorded = kept(&libvirt);
        assert_eq!(CommandLine::parse(&recorded), said);
        assert!(!recorded.contains("secret") && !recorded.contains("mem-path"));
        let plain =
            CommandLine::parse("kvm\0-name\0web\0-object\0memory-backend-file,mem-path=/dev/shm/x\0-m\x001G");
        assert_eq!((plain.name.as_str(), plain.huge_pages, plain.memory_kib), ("web", false, Some(1 << 20)));
        assert_eq!(CommandLine::parse(""), CommandLine::default());
    }

    #[test]
    fn memory_is_told_in_the_units_of_qemu() {
        for (text, kib) in [
            ("512", Some(512 << 10)),
            ("4G", Some(4 << 20)),
            ("2048M,maxmem=4G", Some(2 << 20)),
            ("slots=2,size=1048576k", Some(1 << 20)),
            ("1t", Some(1 << 30)),
            ("4194304b", Some(4096)),
            ("size=1048576k\n", Some(1 << 20)),
            ("slots=2", None),
            ("much", None),
            ("99999999999999999999T", None),
        ] {
            assert_eq!(memory(text), kib, "{text}");
        }
    }

    #[test]
    fn pages_of_hugetlb_are_counted_by_their_node() {
        let text = "huge N0=2 N1=1 kernelpagesize_kB=1048576\nhuge kernelpagesize_kB=2048\nhuge N0=3 kernelpagesize_kB=2048\n";
        assert_eq!(pages_by_node(text), Some([(0, (2 << 20) + 6144), (1, 1 << 20)].into()));
        assert_eq!(pages_by_node(""), Some(BTreeMap::new()));
        for odd in ["huge N0=2", "huge Nx=2 kernelpagesize_kB=4", "huge N0=two kernelpagesize_kB=4"] {
            assert_eq!(pages_by_node(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_configured_value_ends_at_its_quote() {
        for (text, wanted) in [
            (r#" "vm""#, "vm"),
            (r#" "vm" # not "root""#, "vm"),
            (" 'vm' # x", "vm"),
            (" 77 # x", "77"),
            (r#" "vm"#, "vm"),
            (r#" """#, ""),
            ("", ""),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let fields = (5..53).map(|field| (field * 100).to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(scheduling(&format!("12 (a) S) R 1 {fields}")), Some((4000, 4100)));
        assert_eq!(scheduling("12 (a) S 1 2"), None);
    }
}
