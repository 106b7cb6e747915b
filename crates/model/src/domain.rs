//! What libvirt is told of a VM in the same words, whoever runs it: Penstock itself, or somebody for whom its domain is exported. Pure.
//!
//! Each function hands on lines with the depth at which they stand. What differs, like the VM's functions and its console, is the
//! caller's.
//!
//! Format: <https://libvirt.org/formatdomain.html>.

use std::{fmt::Write as _, path::PathBuf};

use crate::{CpuSet, DiskFormat, Firmware, Scheduling, SchedulingPolicy, Vm};

/// The serial console of a kernel that QEMU loads.
pub const KERNEL_CONSOLE: &str = "console=ttyS0";

/// By this channel a VM's guest agent is reached.
pub const AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";

/// What a VM boots, as files of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Booted {
    /// A kernel that QEMU loads itself.
    Kernel {
        /// The path of the kernel on the host.
        kernel: PathBuf,
        /// The path of the initramfs on the host; `None`: it boots without one.
        initramfs: Option<PathBuf>,
        /// The whole kernel command line.
        command_line: String,
    },
    /// A disk image.
    Disk {
        /// The path of the image on the host.
        path: PathBuf,
        /// Whether a block device is there, which QEMU opens with another driver than a file.
        is_block_device: bool,
        /// The format in which QEMU reads the image.
        format: DiskFormat,
    },
}

/// The kernel command line of a VM: what is `given` to each, and what the model adds.
pub fn command_line(given: &str, vm: &Vm) -> String {
    match &vm.command_line {
        Some(more) => format!("{given} {more}"),
        None => given.to_owned(),
    }
}

/// A domain up to its devices.
#[derive(Clone, Debug)]
pub struct DomainHead<'a> {
    /// The domain's name.
    pub name: &'a str,
    /// The UUID of the machine that it is; `None`: libvirt makes up one.
    pub uuid: Option<&'a str>,
    /// In bytes.
    pub memory: u64,
    /// How many virtual CPUs it has, at least 1.
    pub vcpus: u32,
    /// The host's CPUs for them: one each where there are as many, else all of them for each. `None`: any.
    pub pin: Option<&'a CpuSet>,
    /// How the virtual CPUs are scheduled; `None`: as the kernel has it.
    pub scheduling: Option<Scheduling>,
    /// The host's CPUs for QEMU's own threads; `None`: any.
    pub emulator: Option<&'a CpuSet>,
    /// Firmware, huge pages and locked memory.
    pub vm: &'a Vm,
    /// What it boots; `None`: nothing that is known, so that it looks at its disks.
    pub boot: Option<&'a Booted>,
    /// Whether others map its memory.
    pub shares_memory: bool,
    /// Whether it ends with what only QEMU has words for (`<qemu:override>`).
    pub overrides_qemu: bool,
}

/// The domain from its first line to the one that begins its devices.
pub fn head(head: &DomainHead<'_>, line: &mut impl FnMut(usize, String)) {
    let schema = match head.overrides_qemu {
        false => "",
        true => " xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'",
    };
    line(0, format!("<domain type='kvm'{schema}>"));
    line(1, format!("<name>{}</name>", escape(head.name)));
    if let Some(uuid) = head.uuid {
        line(1, format!("<uuid>{}</uuid>", escape(uuid)));
    }
    line(1, format!("<memory unit='b'>{}</memory>", head.memory));
    line(1, format!("<vcpu placement='static'>{}</vcpu>", head.vcpus));
    tuning(head, line);
    memory(head, line);
    let firmware = match head.vm.firmware {
        Firmware::Bios => "",
        Firmware::Uefi => " firmware='efi'",
    };
    line(1, format!("<os{firmware}>"));
    line(2, "<type arch='x86_64' machine='q35'>hvm</type>".to_owned());
    if let Some(Booted::Kernel { kernel, initramfs, command_line }) = head.boot {
        line(2, format!("<kernel>{}</kernel>", escape(&kernel.to_string_lossy())));
        if let Some(initramfs) = initramfs {
            line(2, format!("<initrd>{}</initrd>", escape(&initramfs.to_string_lossy())));
        }
        line(2, format!("<cmdline>{}</cmdline>", escape(command_line)));
    } else {
        line(2, "<boot dev='hd'/>".to_owned());
    }
    line(1, "</os>".to_owned());
    for fixed in [
        "<features><acpi/><apic/></features>",
        "<cpu mode='host-passthrough' check='none' migratable='off'/>",
        "<clock offset='utc'/>",
        "<on_poweroff>destroy</on_poweroff>",
        "<on_reboot>restart</on_reboot>",
        "<on_crash>destroy</on_crash>",
        "<devices>",
    ] {
        line(1, fixed.to_owned());
    }
}

fn tuning(head: &DomainHead<'_>, line: &mut impl FnMut(usize, String)) {
    if head.pin.is_none() && head.emulator.is_none() && head.scheduling.is_none() {
        return;
    }
    line(1, "<cputune>".to_owned());
    for (vcpu, places) in vcpu_places(head.pin, head.vcpus).iter().enumerate() {
        line(2, format!("<vcpupin vcpu='{vcpu}' cpuset='{places}'/>"));
    }
    // libvirt refuses a priority for the ordinary policy, which every thread has anyway.
    if let Some(Scheduling { policy, priority }) = head.scheduling
        && policy != SchedulingPolicy::Other
    {
        let last = head.vcpus - 1;
        let policy = if policy == SchedulingPolicy::Rr { "rr" } else { "fifo" };
        line(2, format!("<vcpusched vcpus='0-{last}' scheduler='{policy}' priority='{priority}'/>"));
    }
    if let Some(emulator) = head.emulator {
        line(2, format!("<emulatorpin cpuset='{emulator}'/>"));
    }
    line(1, "</cputune>".to_owned());
}

/// Where each virtual CPU runs; empty for anywhere. As many as there are CPUs have one each; fewer or more share them all,
/// so that none strays to a CPU that is another guest's alone.
fn vcpu_places(pin: Option<&CpuSet>, vcpus: u32) -> Vec<CpuSet> {
    let Some(pin) = pin else { return Vec::new() };
    let vcpus = vcpus as usize;
    if pin.0.len() == vcpus {
        return pin.0.iter().map(|cpu| CpuSet([*cpu].into())).collect();
    }
    vec![pin.clone(); vcpus]
}

fn memory(head: &DomainHead<'_>, line: &mut impl FnMut(usize, String)) {
    line(1, "<memoryBacking>".to_owned());
    if let Some(size) = head.vm.huge_pages {
        line(2, format!("<hugepages><page size='{}' unit='KiB'/></hugepages>", size.0 / 1024));
    }
    if head.shares_memory {
        line(2, "<source type='memfd'/>".to_owned());
        line(2, "<access mode='shared'/>".to_owned());
    }
    // What a function reaches by DMA is never merged with another's pages; that which looks for such pages costs time.
    line(2, "<nosharepages/>".to_owned());
    if head.vm.locked_memory {
        line(2, "<locked/>".to_owned());
    }
    line(1, "</memoryBacking>".to_owned());
}

/// The disk that the VM boots from, if it does, with the lines that its caller adds to it.
pub fn disk(boot: &Booted, more: &[String], line: &mut impl FnMut(usize, String)) {
    let Booted::Disk { path, is_block_device, format } = boot else { return };
    let format = match format {
        DiskFormat::Raw => "raw",
        DiskFormat::Qcow2 => "qcow2",
    };
    let (kind, source) = if *is_block_device { ("block", "dev") } else { ("file", "file") };
    line(2, format!("<disk type='{kind}' device='disk'>"));
    line(3, format!("<driver name='qemu' type='{format}' cache='none'/>"));
    line(3, format!("<source {source}='{}'/>", escape(&path.to_string_lossy())));
    line(3, "<target dev='vda' bus='virtio'/>".to_owned());
    more.iter().for_each(|more| line(3, more.clone()));
    line(2, "</disk>".to_owned());
}

/// The channel to the VM's guest agent.
pub fn agent_channel(line: &mut impl FnMut(usize, String)) {
    line(2, format!("<channel type='unix'><target type='virtio' name='{AGENT_CHANNEL}'/></channel>"));
}

/// The VM's random numbers, with the lines that its caller adds to them, and what it has no balloon for: memory that is pinned for DMA does not come back.
pub fn rest(more: &[String], line: &mut impl FnMut(usize, String)) {
    line(2, "<rng model='virtio'>".to_owned());
    line(3, "<backend model='random'>/dev/urandom</backend>".to_owned());
    more.iter().for_each(|more| line(3, more.clone()));
    line(2, "</rng>".to_owned());
    line(2, "<memballoon model='none'/>".to_owned());
}

/// Text within XML, in an element or a quoted attribute. What XML 1.0 cannot hold at all becomes U+FFFD.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            // A parser would make blanks of them in an attribute.
            '\t' | '\n' | '\r' => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// What [`escape`] has made of text without blanks other than spaces, as libvirt writes it too.
pub fn unescape(text: &str) -> String {
    let others = [("&lt;", "<"), ("&gt;", ">"), ("&apos;", "'"), ("&quot;", "\""), ("&amp;", "&")];
    others.into_iter().fold(text.to_owned(), |text, (written, meant)| text.replace(written, meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a&b<c>'d\"\n\u{1}"), "a&amp;b&lt;c&gt;&apos;d&quot;&#10;\u{fffd}");
        assert_eq!(unescape(&escape("a&lt;b&<c>'d\"")), "a&lt;b&<c>'d\"");
    }
}
