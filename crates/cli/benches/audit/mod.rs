//! A large machine to audit: files as its kernel would show them.

use std::{fmt::Write, fs, path::Path};

use penstock_testkit::{models, sysfs};

/// How much there is of what an audit reads.
pub struct Extent {
    pub cpus: usize,
    pub irqs: usize,
    /// VMs, each with so many threads.
    pub vms: usize,
    pub threads: usize,
    /// Other processes.
    pub processes: usize,
}

/// Makes the tree of a machine with 128 CPUs, 1000 interrupts, 128 VFs, 30 VMs and 2000 processes in the directory `root`.
#[allow(dead_code, reason = "one of two benches uses it")]
pub fn plant(root: &Path) {
    plant_machine(root, &Extent { cpus: 128, irqs: 1000, vms: 30, threads: 20, processes: 2000 });
}

/// Makes the tree of a machine with two PFs of 64 VFs and so much else in the directory `root`.
pub fn plant_machine(root: &Path, extent: &Extent) {
    let cpus = extent.cpus;
    fs::create_dir_all(root).expect("a directory");
    sysfs::plant(&models::tree(2, 64), root).expect("the tree is planted");
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a directory above")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    let all = format!("0-{}", cpus - 1);
    let last = cpus / 2 - 1;
    file(
        "proc/cmdline",
        &format!("ro isolcpus=managed_irq,2-{last} nohz_full=2-{last} rcu_nocbs=2-{last}\n"),
    );
    file("proc/meminfo", "MemTotal:       65768000 kB\n");
    file("sys/devices/system/cpu/online", &all);
    file("sys/devices/system/cpu/isolated", &format!("2-{last}"));
    for cpu in 0..cpus {
        let cpu_file =
            |name: &str, text: &str| file(&format!("sys/devices/system/cpu/cpu{cpu}/{name}"), text);
        let (first, second) = (cpu % (cpus / 2), cpu % (cpus / 2) + cpus / 2);
        cpu_file("topology/thread_siblings_list", &format!("{first},{second}"));
        cpu_file("power/pm_qos_resume_latency_us", "0");
        for (name, text) in [
            ("scaling_driver", "intel_pstate"),
            ("scaling_governor", "performance"),
            ("scaling_min_freq", "800000"),
            ("scaling_max_freq", "3600000"),
        ] {
            cpu_file(&format!("cpufreq/{name}"), text);
        }
        for (state, name) in ["POLL", "C1", "C1E", "C6"].iter().enumerate() {
            for (attribute, text) in [("name", *name), ("latency", "2"), ("disable", "0"), ("usage", "12345")]
            {
                cpu_file(&format!("cpuidle/state{state}/{attribute}"), text);
            }
        }
        for (index, (level, kind)) in
            [("1", "Data"), ("1", "Instruction"), ("2", "Unified"), ("3", "Unified")].iter().enumerate()
        {
            let shared = if *level == "3" { all.clone() } else { format!("{first},{second}") };
            for (attribute, text) in
                [("level", *level), ("type", kind), ("size", "1024K"), ("shared_cpu_list", &shared)]
            {
                cpu_file(&format!("cache/index{index}/{attribute}"), text);
            }
        }
        file(&format!("sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"), "50000000");
    }
    interrupts(&file, extent);
    processes(&file, extent);
}

fn interrupts(file: &impl Fn(&str, &str), extent: &Extent) {
    let Extent { cpus, irqs, .. } = *extent;
    let mut table = String::new();
    for cpu in 0..cpus {
        let _ = write!(table, "{:>11}", format!("CPU{cpu}"));
    }
    for irq in 0..irqs {
        let _ = write!(table, "\n{irq:>4}:");
        for cpu in 0..cpus {
            let _ = write!(table, "{:>11}", if cpu == irq % cpus { irq * 997 } else { 0 });
        }
        let _ = write!(table, "  IR-PCI-MSIX-0000:04:00.0 {irq}-edge      ens0-TxRx-{irq}");
        file(&format!("proc/irq/{irq}/smp_affinity_list"), &format!("0-{}", cpus - 1));
        file(&format!("proc/irq/{irq}/effective_affinity_list"), &(irq % cpus).to_string());
    }
    file("proc/interrupts", &table);
}

fn processes(file: &impl Fn(&str, &str), extent: &Extent) {
    let status = |name: &str| {
        format!(
            "Name:\t{name}\nUmask:\t0022\nState:\tS (sleeping)\nVmLck:\t 1048576 kB\nCpus_allowed_list:\t0-1\n"
        )
    };
    let stat = |id: usize, name: &str| {
        format!(
            "{id} ({name}) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 4 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 2 1 1 0 0"
        )
    };
    file("proc/self/comm", "penstock");
    for id in 1..=extent.processes {
        file(&format!("proc/{id}/comm"), "kworker/0:1");
    }
    for vm in 0..extent.vms {
        let id = 10_000 + vm * 100;
        let directory = format!("proc/{id}");
        file(&format!("{directory}/comm"), "qemu-system-x86");
        file(
            &format!("{directory}/cmdline"),
            &format!("qemu\0-name\0guest=vm-{vm},debug-threads=on\0-m\x001G\0"),
        );
        file(&format!("{directory}/status"), &status("qemu-system-x86"));
        for thread in 0..extent.threads {
            let id = id + thread;
            let name = format!("CPU {thread}/KVM");
            file(&format!("{directory}/task/{id}/comm"), &name);
            file(&format!("{directory}/task/{id}/status"), &status(&name));
            file(&format!("{directory}/task/{id}/stat"), &stat(id, &name));
        }
    }
}
