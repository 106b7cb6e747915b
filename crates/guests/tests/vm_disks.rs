//! VMs that boot a block device: a loop device, which only root can make, and not everywhere.
#![allow(clippy::disallowed_methods)]

#[path = "vms/host.rs"]
#[allow(dead_code, reason = "the tests of VMs use the rest")]
mod host;

use std::{
    fs,
    os::unix::fs::{OpenOptionsExt, symlink},
    process::ExitCode,
};

use penstock_guests::GuestError;
use penstock_host::{Command, device};
use penstock_model::{Boot, Vm};
use penstock_testkit::{needs, trials::Trials};

use crate::host::{Host, TIMEOUT, a, says};

/// Of open(2).
const O_EXCL: i32 = 0o200;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    // Containers have few loop devices.
    trials.one_at_a_time();
    let lacking = trials.lacking("block devices", || needs::root().or_else(needs::loop_device));
    let tests: [(&str, fn()); 3] = [
        ("a_vm_boots_a_block_device_that_the_host_does_not_use", unused),
        ("a_vm_boots_no_block_device_that_the_host_has_mounted", mounted),
        ("a_vm_boots_no_block_device_that_the_kernel_has_for_somebody", held),
    ];
    trials.add(&lacking, tests);
    trials.run()
}

/// A host with a loop device, which goes with it.
struct Bench {
    host: Host,
    device: String,
}

impl Bench {
    fn new() -> Bench {
        let host = Host::new();
        let image = host.path("image");
        fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let made = Command::new("losetup").args(["--find", "--show", image.to_str().unwrap()]).succeed();
        let device = made.unwrap().text().trim().to_owned();
        Bench { host, device }
    }

    fn start(&self) -> Result<(), GuestError> {
        let boot = Boot::Disk { path: self.device.clone(), format: Default::default() };
        self.host.defined(Vm { boot, ..Vm::default() }).create(&a(), TIMEOUT).map(drop)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).run();
    }
}

fn unused() {
    let bench = Bench::new();
    bench.start().unwrap();
    let domain = fs::read_to_string(bench.host.file("domain.xml")).unwrap();
    assert!(domain.contains("<disk type='block' device='disk'>"), "{domain}");
    assert!(domain.contains(&format!("<source dev='{}'/>", bench.device)), "{domain}");
}

/// Two who write to one file system destroy it.
fn mounted() {
    let bench = Bench::new();
    let number = device::at(&bench.device).unwrap().unwrap();
    let proc = bench.host.path("root/proc");
    fs::remove_file(&proc).unwrap();
    fs::create_dir_all(proc.join("self")).unwrap();
    let line = format!("30 22 {}:{} / /srv rw - ext4 /dev/vg/vm1 rw\n", number.major, number.minor);
    fs::write(proc.join("self/mountinfo"), line).unwrap();
    let error = bench.start().unwrap_err();
    says(&error, &[&bench.device, "mounted on the host at /srv"]);
    assert!(error.hint().unwrap().contains("`umount`"), "{error}");
}

/// As somebody whose mounts the host does not see has it, or a pool; and as what the host has assembled of it.
fn held() {
    let bench = Bench::new();
    let holder = fs::OpenOptions::new().read(true).custom_flags(O_EXCL).open(&bench.device).unwrap();
    let refused = bench.start();
    let name = bench.device.strip_prefix("/dev/").unwrap();
    let number = device::at(&bench.device).unwrap().unwrap();
    let block = bench.host.path("root/sys/class/block").join(name);
    fs::create_dir_all(block.join("holders")).unwrap();
    fs::write(block.join("holders/md127"), "").unwrap();
    let numbers = bench.host.path("root/sys/dev/block");
    fs::create_dir_all(&numbers).unwrap();
    symlink(&block, numbers.join(format!("{}:{}", number.major, number.minor))).unwrap();
    let named = bench.start();
    drop(holder);
    says(&refused.unwrap_err(), &[&bench.device, "held by the kernel"]);
    let named = named.unwrap_err();
    says(&named, &[&bench.device, "held by the kernel: a part of md127"]);
    assert!(named.hint().unwrap().contains("mdadm --stop"), "{named}");
}
