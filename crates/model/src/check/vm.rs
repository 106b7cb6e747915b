//! What only a VM has: what it boots, its firmware and memory, how it is looked into.

use std::collections::HashMap;

use super::Subject;
use crate::{
    Boot, ByteSize, CpuSet, Firmware, GuestKind, GuestName, Inside, MOST_VM_FUNCTIONS, VM_MEMORY, Vm,
    diagnostic::{Diagnostic, Path},
    document::{BootDocument, BootEntry},
    guest::READY_WITHIN,
    text::plain_path,
};

/// The sizes of huge page that x86 has.
const HUGE_PAGES: [ByteSize; 2] = [ByteSize(2 << 20), ByteSize(1 << 30)];
/// A day; nobody waits longer for a guest.
const MAX_READY_WITHIN: u32 = 86_400;

/// The builtin guest asks for no address: nothing in it would renew the lease.
fn check_leases(subject: &mut Subject<'_>) {
    for owned in subject.owned.iter().filter(|owned| owned.kind == GuestKind::Vm) {
        let Some(path) = &owned.dhcp else { continue };
        let guest = &subject.model.guests[&owned.guest];
        if guest.vm.boot == Boot::Builtin {
            let text = format!(
                "`dhcp` has no effect on {}: the builtin guest has no client that asks for an address",
                owned.guest
            );
            let hint = "write an `address`, or boot a system of your own, like {disk: PATH}";
            subject.messages.push(Diagnostic::error(path.clone(), text).with_hint(hint));
        }
    }
}

/// Memory that is no whole number of huge pages, more functions than a VM has room for, and disk images that a VM and another guest would
/// write to.
pub(super) fn check(subject: &mut Subject<'_>) {
    check_leases(subject);
    let mut disks: HashMap<String, &GuestName> = HashMap::new();
    let mut devices: HashMap<String, &GuestName> = HashMap::new();
    for (name, guest) in &subject.model.guests {
        for device in guest.devices.iter().filter(|device| device.write) {
            devices.entry(plain_path(&device.path)).or_insert(name);
        }
    }
    for (name, guest) in subject.model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm) {
        if super::full(subject.messages) {
            return;
        }
        let at = |key: &str| Path::of(["guests", name.as_str(), key]);
        let memory = guest.memory.unwrap_or(VM_MEMORY);
        if let Some(size) = guest.vm.huge_pages.filter(|size| HUGE_PAGES.contains(size))
            && !memory.0.is_multiple_of(size.0)
        {
            let text = format!("{memory} of memory cannot be made of huge pages of {size}");
            let wrong = match guest.memory {
                Some(_) => Diagnostic::error(at("memory"), text).with_related(at("huge_pages"), "the pages"),
                None => Diagnostic::error(at("huge_pages"), format!("{text}; {memory} is the default")),
            };
            let least = ByteSize(memory.0.div_ceil(size.0).saturating_mul(size.0));
            subject.messages.push(wrong.with_hint(format!("give it {least}, or smaller pages")));
        }
        let owned = guest.functions.len() + guest.drives.len();
        if owned > MOST_VM_FUNCTIONS {
            let key = if guest.functions.is_empty() { "drives" } else { "functions" };
            let text = format!("{name} has {owned} functions, and a VM has room for {MOST_VM_FUNCTIONS}");
            subject.messages.push(
                Diagnostic::error(at(key), text).at_key().with_hint("give the others to another guest"),
            );
        }
        if let Boot::Disk { path, .. } = &guest.vm.boot {
            let plain = plain_path(path);
            if let Some(other) = devices.get(&plain) {
                let related = Path::of(["guests", other.as_str(), "devices"]);
                let text = format!("{name} and {other} would both write to {}", crate::tree::shown(path));
                subject.messages.push(
                    Diagnostic::error(at("boot").join("disk"), text)
                        .with_related(related, "given to the container here")
                        .with_hint("give the VM another disk, or take it from the container"),
                );
            }
            match disks.get(&plain) {
                Some(other) => subject.messages.push(
                    Diagnostic::error(
                        at("boot").join("disk"),
                        format!("{other} and {name} would both write to {}", crate::tree::shown(path)),
                    )
                    .with_related(Path::of(["guests", other.as_str(), "boot", "disk"]), "first given here")
                    .with_hint("give each VM an image of its own"),
                ),
                None => {
                    disks.insert(plain, name);
                }
            }
        }
    }
}

/// A VM's keys as they were written.
pub(super) struct Written {
    pub boot: Option<BootEntry>,
    pub command_line: Option<String>,
    pub firmware: Option<Firmware>,
    pub emulator: Option<CpuSet>,
    pub locked_memory: Option<bool>,
    pub huge_pages: Option<ByteSize>,
    pub inside: Option<Inside>,
    pub ready_within: Option<u32>,
}

pub(super) fn build(written: Written, path: &Path, messages: &mut Vec<Diagnostic>) -> Vm {
    if let Some(size) = written.huge_pages.filter(|size| !HUGE_PAGES.contains(size)) {
        messages.push(
            Diagnostic::error(path.join("huge_pages"), format!("there are no huge pages of {size}"))
                .with_hint("write 2MiB or 1GiB"),
        );
    }
    if let Some(seconds) = written.ready_within.filter(|seconds| !(1..=MAX_READY_WITHIN).contains(seconds)) {
        let text =
            format!("{seconds} is no time to be ready in: it goes from 1 to {MAX_READY_WITHIN} seconds");
        messages.push(Diagnostic::error(path.join("ready_within"), text));
    }
    let boot = match written.boot {
        None | Some(BootEntry::Named(_)) => Boot::Builtin,
        Some(BootEntry::Settings(document)) => boot(document, &path.join("boot"), messages),
    };
    if written.command_line.as_ref().is_some_and(|line| line.contains(char::is_control)) {
        let text = "a kernel command line is one line without control characters";
        messages.push(Diagnostic::error(path.join("command_line"), text));
    }
    if written.command_line.is_some() && matches!(boot, Boot::Disk { .. }) {
        messages.push(
            Diagnostic::error(path.join("command_line"), "a disk image brings its own kernel command line")
                .at_key()
                .with_hint("set it in the image, or boot a `kernel`"),
        );
    }
    Vm {
        boot,
        command_line: written.command_line,
        firmware: written.firmware.unwrap_or_default(),
        emulator: written.emulator,
        locked_memory: written.locked_memory.unwrap_or_default(),
        huge_pages: written.huge_pages,
        inside: written.inside.unwrap_or_default(),
        ready_within: written.ready_within.unwrap_or(READY_WITHIN),
    }
}

fn boot(document: BootDocument, path: &Path, messages: &mut Vec<Diagnostic>) -> Boot {
    for (key, file) in
        [("kernel", &document.kernel), ("initramfs", &document.initramfs), ("disk", &document.disk)]
    {
        if let Some(file) = file {
            check_file(file, &path.join(key), messages);
        }
    }
    let mut wrong = |key: &str, text: &str, hint: &str| {
        let at = if key.is_empty() { path.clone() } else { path.join(key) };
        messages.push(Diagnostic::error(at, text).with_hint(hint));
    };
    match (document.kernel, document.disk) {
        (Some(_), Some(_)) => {
            wrong("disk", "a VM boots a kernel or a disk image, not both", "leave one of them out");
            Boot::Builtin
        }
        (None, None) => {
            wrong("", "this names nothing to boot", "write {kernel: PATH}, {disk: PATH} or `builtin`");
            Boot::Builtin
        }
        (Some(kernel), None) => {
            if document.format.is_some() {
                wrong("format", "only a disk image has a format", "leave it out");
            }
            Boot::Kernel { kernel, initramfs: document.initramfs }
        }
        (None, Some(path)) => {
            if document.initramfs.is_some() {
                wrong("initramfs", "only a kernel has an initramfs", "leave it out");
            }
            Boot::Disk { path, format: document.format.unwrap_or_default() }
        }
    }
}

/// A file of the host must mean the same whoever reads the model, and fit into libvirt's XML.
fn check_file(file: &str, path: &Path, messages: &mut Vec<Diagnostic>) {
    let shown = crate::tree::shown(file);
    if !file.starts_with('/') || file.contains(char::is_control) {
        messages.push(
            Diagnostic::error(path.clone(), format!("{shown} is not an absolute path"))
                .with_hint("write the file from the top, like `/srv/guest.img`"),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::{MOST_VM_FUNCTIONS, Source, parse};

    #[test]
    fn a_vm_has_no_more_functions_than_there_is_room_for() {
        let with = |count: usize| {
            let all: Vec<String> = (0..count).map(|vf| format!("A#{vf}")).collect();
            let of = |kind| {
                format!("nics: {{A: }}\nguests: {{g: {{kind: {kind}, functions: [{}]}}}}\n", all.join(", "))
            };
            ["vm", "container"].map(|kind| parse(&Source::new("m.yaml", of(kind))))
        };
        assert!(with(MOST_VM_FUNCTIONS).iter().all(Result::is_ok));
        let [vm, container] = with(MOST_VM_FUNCTIONS + 1);
        assert!(container.is_ok());
        let found = vm.unwrap_err().to_string();
        assert_eq!(found, "guests.g.functions: g has 209 functions, and a VM has room for 208");
    }
}
