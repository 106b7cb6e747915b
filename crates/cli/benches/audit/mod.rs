//! A large machine to audit: files as its kernel would show them.

use std::{fmt::Write, fs, path::Path};

use penstock_testkit::{models, sysfs};

/// CPUs of the machine.
const CPUS: usize = 128;
/// Its interrupts.
const IRQS: usize = 1000;
/// Its VMs, each with so many threads.
const VMS: usize = 30;
const THREADS: usize = 20;
/// Its other processes.
const PROCESSES: usize = 2000;

/// Makes the tree of a machine with 128 CPUs, 1000 interrupts, 128 VFs, 30 VMs and 2000 processes in the directory `root`.
pub fn plant(root: &Path) {
    fs::create_dir_all(root).expect("a directory");
    sysfs::plant(&models::tree(2, 64), root).expect("the tree is planted");
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a directory above")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    let all = format!("0-{}", CPUS - 1);
    file("proc/cmdline", "ro isolcpus=managed_irq,2-63 nohz_full=2-63 rcu_nocbs=2-63\n");
    file("proc/meminfo", "MemTotal:       65768000 kB\n");
    file("sys/devices/system/cpu/online", &all);
    file("sys/devices/system/cpu/isolated", "2-63");
    for cpu in 0..CPUS {
        let cpu_file =
            |name: &str, text: &str| file(&format!("sys/devices/system/cpu/cpu{cpu}/{name}"), text);
        let (first, second) = (cpu % 64, cpu % 64 + 64);
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
    interrupts(&file);
    processes(&file);
}

fn interrupts(file: &impl Fn(&str, &str)) {
    let mut table = String::new();
    for cpu in 0..CPUS {
        let _ = write!(table, "{:>11}", format!("CPU{cpu}"));
    }
    for irq in 0..IRQS {
        let _ = write!(table, "\n{irq:>4}:");
        for cpu in 0..CPUS {
            let _ = write!(table, "{:>11}", if cpu == irq % CPUS { irq * 997 } else { 0 });
        }
        let _ = write!(table, "  IR-PCI-MSIX-0000:04:00.0 {irq}-edge      ens0-TxRx-{irq}");
        file(&format!("proc/irq/{irq}/smp_affinity_list"), "0-127");
        file(&format!("proc/irq/{irq}/effective_affinity_list"), &(irq % CPUS).to_string());
    }
    file("proc/interrupts", &table);
}

fn processes(file: &impl Fn(&str, &str)) {
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
    for id in 1..=PROCESSES {
        file(&format!("proc/{id}/comm"), "kworker/0:1");
    }
    for vm in 0..VMS {
        let id = 10_000 + vm * 100;
        let directory = format!("proc/{id}");
        file(&format!("{directory}/comm"), "qemu-system-x86");
        file(
            &format!("{directory}/cmdline"),
            &format!("qemu\0-name\0guest=vm-{vm},debug-threads=on\0-m\x001G\0"),
        );
        file(&format!("{directory}/status"), &status("qemu-system-x86"));
        for thread in 0..THREADS {
            let id = id + thread;
            let name = format!("CPU {thread}/KVM");
            file(&format!("{directory}/task/{id}/comm"), &name);
            file(&format!("{directory}/task/{id}/status"), &status(&name));
            file(&format!("{directory}/task/{id}/stat"), &stat(id, &name));
        }
    }
}
