//! Follows the advice of an audit on a recorded machine: writes as its kernel takes them, and starts it anew where that is needed.
//!
//! What no command does is left to whoever asks. A file that is not there, one that the kernel lets nobody write, and a value that
//! it refuses are errors: advice that cannot be followed is wrong.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use penstock_model::{
    CpuSet,
    audit::{Change, Remedy},
    inventory::tuning::{Knob, Value},
};

use crate::sysfs::{self, PlantError};

const CPU: &str = "/sys/devices/system/cpu";

/// A tree on which advice was followed; as it was before when dropped.
pub struct Followed<'a> {
    tree: &'a Path,
    before: Vec<(PathBuf, Before)>,
    /// Whether something is left that no command does.
    pub by_hand: bool,
}

/// What a path was before.
enum Before {
    Nothing,
    File(Vec<u8>),
    Link(PathBuf),
}

impl Before {
    fn of(path: &Path) -> Before {
        if let Ok(target) = fs::read_link(path) {
            return Before::Link(target);
        }
        match fs::read(path) {
            Ok(bytes) => Before::File(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Before::Nothing,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

impl Drop for Followed<'_> {
    fn drop(&mut self) {
        for (path, before) in self.before.drain(..).rev() {
            // A link is not written through.
            let gone = fs::remove_file(&path);
            let outcome = match before {
                Before::File(bytes) => fs::write(&path, bytes),
                Before::Link(target) => symlink(target, &path),
                Before::Nothing => match gone {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    gone => gone,
                },
            };
            outcome.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

/// Follows all of these ways on the machine below `tree`.
///
/// # Errors
///
/// Why one of them cannot be followed.
pub fn follow<'a>(tree: &'a Path, ways: &[&Remedy]) -> Result<Followed<'a>, String> {
    let mut followed = Followed { tree, before: Vec::new(), by_hand: false };
    for change in ways.iter().flat_map(|way| &way.changes) {
        followed.make(change).map_err(|why| format!("{change}: {why}"))?;
    }
    Ok(followed)
}

type Outcome = Result<(), String>;

impl Followed<'_> {
    fn make(&mut self, change: &Change) -> Outcome {
        match change {
            Change::Write { path, value } => self.write(path, value),
            Change::BootLine { add, remove } => self.start_with(add, remove),
            Change::ModuleOption { module, option, value } => {
                if self.read(&format!("/sys/module/{module}/initstate")).is_none() {
                    return Err(format!("{module} is no module of this kernel that can be loaded anew"));
                }
                self.parameter(module, option, value)
            }
            Change::Setting { path, name, value, service } => self.setting(path, name, value, service),
            Change::Disable { units } => {
                units.iter().for_each(|unit| self.disable(unit));
                Ok(())
            }
            Change::Model { .. } | Change::ByHand { .. } => {
                self.by_hand = true;
                Ok(())
            }
        }
    }

    /// Puts a file's text there, whatever its kernel says.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn put(&mut self, path: &str, text: &str) {
        let file = self.tree.join(path.trim_start_matches('/'));
        let before = Before::of(&file);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).expect("a directory can be made");
        }
        fs::write(&file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.before.push((file, before));
    }

    /// Has the machine be as `changes` record it: what came of what was left to do by hand. A line `- /sys/x` takes a file away.
    ///
    /// # Errors
    ///
    /// A record that makes no sense, or cannot be planted.
    pub fn plant(&mut self, changes: &str) -> Result<(), PlantError> {
        let gone = changes.lines().filter_map(|line| line.strip_prefix("- "));
        let kept: Vec<&str> = changes.lines().filter(|line| !line.starts_with("- ")).collect();
        let record = kept.join("\n");
        let paths = sysfs::paths(&record)?.into_iter().map(|path| format!("/{path}"));
        for path in gone.map(str::to_owned).chain(paths) {
            let file = self.tree.join(path.trim_start_matches('/'));
            let before = Before::of(&file);
            if !matches!(before, Before::Nothing) {
                fs::remove_file(&file)
                    .map_err(|error| PlantError { line: 0, why: format!("{path}: {error}") })?;
            }
            self.before.push((file, before));
        }
        sysfs::plant(&record, self.tree)
    }

    fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.tree.join(path.trim_start_matches('/'))).ok()?;
        Some(text.trim_end_matches('\n').to_owned())
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.tree.join(path.trim_start_matches('/')));
        let names =
            entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.collect()
    }

    fn write(&mut self, path: &str, value: &str) -> Outcome {
        let Some(now) = self.read(path) else { return Err("there is no such file".to_owned()) };
        if !is_writable(path) {
            return Err("the kernel lets nobody write it".to_owned());
        }
        let refused = || Err(format!("the kernel refuses {value:?} beside {now:?}"));
        if now.contains('[') && now.contains(']') {
            return match chosen(&now, value) {
                Some(text) => {
                    self.put(path, &text);
                    Ok(())
                }
                None => refused(),
            };
        }
        let knob: Option<Knob> = path.parse().ok();
        if let Some(knob) = knob {
            match knob.read(value) {
                Ok(Value::Cpus(cpus)) if cpus.0.is_empty() => return refused(),
                Err(_) => return refused(),
                Ok(_) => {}
            }
        }
        match knob {
            Some(Knob::IrqAffinity(irq)) => {
                let cpus: CpuSet = value.parse().map_err(|_| "no CPUs")?;
                let first = cpus.0.first().map(u32::to_string).unwrap_or_default();
                self.put(&format!("/proc/irq/{irq}/effective_affinity_list"), &first);
            }
            _ if path.ends_with("/nx_huge_pages") => {
                // Sticky until KVM is loaded anew (`arch/x86/kvm/mmu/mmu.c`, `set_nx_huge_pages`).
                if now == "never" {
                    return refused();
                }
                self.put(path, if value == "auto" { "Y" } else { value });
                return Ok(());
            }
            _ if path.ends_with("/unprivileged_bpf_disabled") => {
                // What it says of spectre_v2 is made when it is read (`arch/x86/kernel/cpu/bugs.c`, `spectre_v2_show_state`).
                self.put(&format!("{CPU}/vulnerabilities/spectre_v2"), "Mitigation: Enhanced IBRS");
            }
            _ if path.ends_with("/schemata") => {
                let text = merged(&now, value).ok_or("no schemata")?;
                self.put(path, &text);
                return Ok(());
            }
            _ if path.ends_with("/current_clocksource") => {
                let offered = self.read(&path.replace("current_", "available_")).unwrap_or_default();
                // Written, and ignored: the kernel goes on with the best that it trusts.
                if !offered.split_whitespace().any(|clock| clock == value) {
                    return Ok(());
                }
            }
            _ if path.ends_with("/nr_hugepages") => {
                let free = path.replace("/nr_", "/free_");
                let number =
                    |text: Option<String>| text.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
                let more = number(Some(value.to_owned())) - number(Some(now));
                let free_now = number(self.read(&free));
                self.put(&free, &(free_now + more).to_string());
            }
            _ if path.ends_with("/online") => {
                let cpu =
                    path.trim_start_matches(&format!("{CPU}/cpu")).split('/').next().unwrap_or_default();
                let cpu: u32 = cpu.parse().map_err(|_| "no CPU")?;
                let mut online: CpuSet =
                    self.read(&format!("{CPU}/online")).unwrap_or_default().parse().map_err(|_| "no list")?;
                online.0.remove(&cpu);
                self.put(&format!("{CPU}/online"), &online.to_string());
            }
            _ => {}
        }
        self.put(path, value);
        Ok(())
    }

    fn parameter(&mut self, module: &str, name: &str, value: &str) -> Outcome {
        let path = format!("/sys/module/{module}/parameters/{name}");
        let Some(now) = self.read(&path) else { return Err(format!("{path} is not there")) };
        let text = match (now.as_str(), value) {
            _ if now.contains('[') => chosen(&now, value).ok_or("no such choice")?,
            (_, "auto") => "Y".to_owned(),
            ("Y" | "N", "1") => "Y".to_owned(),
            ("Y" | "N", "0") => "N".to_owned(),
            _ => value.to_owned(),
        };
        self.put(&path, &text);
        Ok(())
    }

    fn setting(&mut self, path: &str, name: &str, value: &str, service: &str) -> Outcome {
        let Some(now) = self.read(path) else { return Err("there is no such file".to_owned()) };
        let others = now.lines().filter(|line| !line.starts_with(&format!("{name}=")));
        let text: String = others.flat_map(|line| [line, "\n"]).collect();
        let text = format!("{text}{name}={value}\n");
        self.put(path, &text);
        if path == "/etc/selinux/config" {
            self.put("/sys/fs/selinux/enforce", if value == "enforcing" { "1" } else { "0" });
        }
        for id in self.processes(service) {
            let environ: String =
                text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\0"]).collect();
            self.put(&format!("/proc/{id}/environ"), &environ);
        }
        Ok(())
    }

    fn processes(&self, name: &str) -> Vec<String> {
        let short: String = name.chars().take(15).collect();
        let is_it = |id: &String| self.read(&format!("/proc/{id}/comm")).is_some_and(|comm| comm == short);
        if short.is_empty() {
            return Vec::new();
        }
        self.list("/proc").into_iter().filter(is_it).collect()
    }

    fn disable(&mut self, unit: &str) {
        let mut gone = vec![format!("/etc/systemd/system/timers.target.wants/{unit}")];
        let name = unit.split('.').next().unwrap_or(unit);
        gone.extend(self.processes(name).into_iter().map(|id| format!("/proc/{id}/comm")));
        for path in gone {
            let file = self.tree.join(path.trim_start_matches('/'));
            if let Ok(bytes) = fs::read(&file) {
                fs::remove_file(&file).expect("a file can be removed");
                self.before.push((file, Before::File(bytes)));
            }
        }
    }

    /// Starts the machine anew with another command line.
    fn start_with(&mut self, add: &[String], remove: &[String]) -> Outcome {
        let line = self.read("/proc/cmdline").unwrap_or_default();
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let key = |word: &str| word.split('=').next().unwrap_or(word).replace('-', "_");
        for gone in remove {
            words.retain(|word| if gone.contains('=') { word != gone } else { key(word) != key(gone) });
        }
        for added in add {
            words.retain(|word| key(word) != key(added));
        }
        words.extend(add.iter().cloned());
        self.put("/proc/cmdline", &words.join(" "));
        for word in add {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            self.started_with(key, value)?;
        }
        for word in remove {
            self.started_without(word)?;
        }
        Ok(())
    }

    fn started_with(&mut self, key: &str, value: &str) -> Outcome {
        match key {
            "isolcpus" => {
                let is_flag = |part: &&str| part.starts_with(|c: char| c.is_ascii_lowercase());
                let flags: Vec<&str> = value.split(',').take_while(is_flag).collect();
                let cpus: Vec<&str> = value.split(',').skip_while(is_flag).collect();
                let isolates = flags.is_empty() || flags.contains(&"domain");
                self.put(&format!("{CPU}/isolated"), &if isolates { cpus.join(",") } else { String::new() });
            }
            "nohz_full" => self.put(&format!("{CPU}/nohz_full"), value),
            "irqaffinity" => {
                let cpus: CpuSet = value.parse().map_err(|_| "no CPUs")?;
                let mask = Knob::DefaultIrqAffinity.written(&Value::Cpus(cpus));
                self.put("/proc/irq/default_smp_affinity", &mask);
            }
            "nmi_watchdog" => self.put("/proc/sys/kernel/nmi_watchdog", value),
            "nosoftlockup" => self.put("/proc/sys/kernel/soft_watchdog", "0"),
            "transparent_hugepage" => {
                let path = "/sys/kernel/mm/transparent_hugepage/enabled";
                let now = self.read(path).unwrap_or_default();
                self.put(path, &chosen(&now, value).ok_or("no such choice")?);
            }
            "intel_pstate" => {
                for name in self.list(CPU).into_iter().filter(|name| name.starts_with("cpu")) {
                    let path = format!("{CPU}/{name}/cpufreq/scaling_driver");
                    if self.read(&path).is_some() {
                        self.put(&path, "intel_pstate");
                    }
                }
            }
            "systemd.unified_cgroup_hierarchy" => {
                self.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids");
            }
            "cgroup_disable" => self.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids"),
            "rcupdate.rcu_normal_after_boot" => self.put("/sys/kernel/rcu_normal", value),
            "hugepages" => {
                let line = self.read("/proc/cmdline").unwrap_or_default();
                let size = line.split_whitespace().find_map(|word| word.strip_prefix("hugepagesz="));
                let mib: u64 = size.and_then(|size| size.strip_suffix('M')?.parse().ok()).ok_or("no size")?;
                let pool = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", mib * 1024);
                self.put(&format!("{pool}/nr_hugepages"), value);
                self.put(&format!("{pool}/free_hugepages"), value);
            }
            _ => {
                if let Some((module, name)) = key.split_once('.')
                    && self.read(&format!("/sys/module/{module}/parameters/{name}")).is_some()
                {
                    self.parameter(module, name, value)?;
                }
            }
        }
        Ok(())
    }

    fn started_without(&mut self, word: &str) -> Outcome {
        match word {
            "nohz_full" => self.put(&format!("{CPU}/nohz_full"), "(null)"),
            "rcupdate.rcu_expedited" if self.read("/sys/kernel/rcu_expedited").is_some() => {
                self.put("/sys/kernel/rcu_expedited", "0");
            }
            "kvm.nx_huge_pages" => self.parameter("kvm", "nx_huge_pages", "auto")?,
            "selinux=0" => {
                self.put("/sys/fs/selinux/enforce", "1");
                self.put("/sys/fs/selinux/avc/cache_threshold", "512");
            }
            "apparmor=0" => {
                let modules = self.read("/sys/kernel/security/lsm").unwrap_or_default();
                self.put("/sys/kernel/security/lsm", &format!("{modules},apparmor"));
            }
            "cgroup_disable" => self.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids"),
            _ if word.starts_with("intel_idle.max_cstate") => {
                self.put(&format!("{CPU}/cpuidle/current_driver"), "intel_idle");
            }
            _ => {}
        }
        Ok(())
    }
}

/// The files that a kernel lets root write while it runs: parameters of modules are mostly read only (`0444`).
fn is_writable(path: &str) -> bool {
    const DIRECTORIES: [&str; 4] = ["/proc/sys/", "/proc/irq/", "/sys/kernel/", "/sys/fs/"];
    const PARAMETERS: [&str; 3] =
        ["kvm/parameters/nx_huge_pages", "kvm/parameters/halt_poll_ns", "pcie_aspm/parameters/policy"];
    if let Some(parameter) = path.strip_prefix("/sys/module/") {
        return PARAMETERS.contains(&parameter);
    }
    let of_cpu = path.starts_with(CPU)
        && ["/power/pm_qos_resume_latency_us", "/cpufreq/scaling_governor", "/disable", "/online"]
            .iter()
            .any(|end| path.ends_with(end));
    of_cpu
        || DIRECTORIES.iter().any(|directory| path.starts_with(directory))
        || path.starts_with("/sys/devices/system/node/")
        || path.ends_with("/workqueue/cpumask")
        || path.ends_with("/writeback/cpumask")
        || path.ends_with("/current_clocksource")
}

/// `a [b] c` with another word in brackets.
fn chosen(now: &str, value: &str) -> Option<String> {
    let words: Vec<&str> = now.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect();
    let mark = |word: &&str| if *word == value { format!("[{word}]") } else { (*word).to_owned() };
    words.contains(&value).then(|| words.iter().map(mark).collect::<Vec<_>>().join(" "))
}

/// Schemata with one line's domains changed.
fn merged(now: &str, value: &str) -> Option<String> {
    let (resource, changes) = value.split_once(':')?;
    let mut lines = Vec::new();
    for line in now.lines() {
        let (name, domains) = line.split_once(':')?;
        if name.trim() != resource {
            lines.push(line.to_owned());
            continue;
        }
        let changed = |domain: &str| {
            let number = domain.split('=').next().unwrap_or(domain);
            let new = changes.split(';').find(|change| change.split('=').next() == Some(number));
            new.unwrap_or(domain).to_owned()
        };
        lines.push(format!("{resource}:{}", domains.split(';').map(changed).collect::<Vec<_>>().join(";")));
    }
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_refuses_cannot_be_followed_and_all_is_put_back() {
        let tree = tempfile::tempdir().unwrap();
        let text = "/sys/module/kvm/parameters/nx_huge_pages = never\n/sys/module/kvm_intel/parameters/ple_gap = 1\n\
                    /sys/kernel/mm/transparent_hugepage/enabled = [always] never\n/proc/cmdline = a=1 b\n";
        sysfs::plant(text, tree.path()).unwrap();
        let write = |path: &str, value: &str| Remedy {
            changes: vec![Change::Write { path: path.to_owned(), value: value.to_owned() }],
            beware: None,
        };
        let thp = "/sys/kernel/mm/transparent_hugepage/enabled";
        for (path, value) in [
            ("/sys/module/kvm/parameters/nx_huge_pages", "auto"),
            ("/sys/module/kvm_intel/parameters/ple_gap", "0"),
            ("/sys/kernel/absent", "1"),
            (thp, "sometimes"),
        ] {
            assert!(follow(tree.path(), &[&write(path, value)]).is_err(), "{path}");
        }
        let boot = Remedy {
            changes: vec![Change::BootLine { add: vec!["c=2".to_owned()], remove: vec!["a".to_owned()] }],
            beware: None,
        };
        let read = |path: &str| fs::read_to_string(tree.path().join(&path[1..])).unwrap();
        let followed = follow(tree.path(), &[&write(thp, "never"), &boot]).unwrap();
        assert_eq!((read(thp).as_str(), read("/proc/cmdline").as_str()), ("always [never]", "b c=2"));
        drop(followed);
        assert_eq!((read(thp).as_str(), read("/proc/cmdline").as_str()), ("[always] never\n", "a=1 b\n"));
    }
}
