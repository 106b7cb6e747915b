//! What only a VM has: what it boots, its firmware and memory, how it is looked into.

use std::collections::HashMap;

use super::Subject;
use crate::{
    Boot, ByteSize, CpuSet, Firmware, GuestKind, GuestName, Inside, Vm,
    diagnostic::{Diagnostic, Path},
    document::{BootDocument, BootEntry},
    guest::READY_WITHIN,
};

/// The sizes of huge page that x86 has.
const HUGE_PAGES: [ByteSize; 2] = [ByteSize(2 << 20), ByteSize(1 << 30)];
/// A day; nobody waits longer for a guest.
const MAX_READY_WITHIN: u32 = 86_400;

/// Memory of a VM that says nothing of it.
const MEMORY: ByteSize = ByteSize(256 << 20);

/// Memory that is no whole number of huge pages, and disk images that two VMs would write to.
pub(super) fn check(subject: &mut Subject<'_>) {
    let mut disks: HashMap<&str, &GuestName> = HashMap::new();
    for (name, guest) in subject.model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm) {
        if super::full(subject.messages) {
            return;
        }
        let at = |key: &str| Path::of(["guests", name.as_str(), key]);
        let memory = guest.memory.unwrap_or(MEMORY);
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
        if let Boot::Disk { path, .. } = &guest.vm.boot {
            match disks.get(path.as_str()) {
                Some(other) => subject.messages.push(
                    Diagnostic::error(
                        at("boot").join("disk"),
                        format!("{other} and {name} would both write to {}", crate::tree::shown(path)),
                    )
                    .with_related(Path::of(["guests", other.as_str(), "boot", "disk"]), "first given here")
                    .with_hint("give each VM an image of its own"),
                ),
                None => {
                    disks.insert(path, name);
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
