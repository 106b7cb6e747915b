//! A domain for each VM ("Domain XML format"), for `virsh define`: the VM that Penstock would start, with devices that libvirt sees to by itself.

use std::{collections::BTreeMap, fmt::Write};

use penstock_model::{
    Bdf, Boot, CpuSet, DriveName, Function, Guest, GuestDrive, GuestKind, GuestName, Inside, Inventory,
    Model, Vm,
    domain::{self, Booted, DomainHead, KERNEL_CONSOLE, command_line},
};
use penstock_plan::{NicOnMachine, resolve_drives, vm_cpus};

use super::{interface, place};
use crate::export::{ExportedFile, left_out::Omissions};

/// Why a domain does not say what it does not say.
const WHY: &str = "a domain has a VM's CPUs, memory, functions and what it boots alone";

/// The serial console by which `virsh console` enters a VM.
const CONSOLE: [(usize, &str); 6] = [
    (2, "<serial type='pty'>"),
    (3, "<target type='isa-serial' port='0'/>"),
    (2, "</serial>"),
    (2, "<console type='pty'>"),
    (3, "<target type='serial' port='0'/>"),
    (2, "</console>"),
];

/// A file for each VM; `nics` are all of the model.
pub fn files(
    model: &Model,
    inventory: &Inventory,
    nics: &[&NicOnMachine<'_>],
    left_out: &mut Omissions,
) -> Vec<ExportedFile> {
    // What is wrong with a drive is told of the VM that has a VF of it.
    let (drives, _) = resolve_drives(model, inventory);
    let domains = Domains { model, inventory, nics, drives: drives.into_iter().collect() };
    let vms = model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm);
    vms.map(|(name, guest)| ExportedFile {
        name: format!("penstock-{name}.domain.xml"),
        text: domains.domain(name, guest, left_out),
    })
    .collect()
}

/// What all domains are made of.
struct Domains<'a> {
    model: &'a Model,
    inventory: &'a Inventory,
    nics: &'a [&'a NicOnMachine<'a>],
    /// Where the model's drives are.
    drives: BTreeMap<DriveName, Bdf>,
}

impl Domains<'_> {
    fn domain(&self, name: &GuestName, guest: &Guest, left_out: &mut Omissions) -> String {
        let mut xml = "<!-- By `penstock export`: virsh define FILE -->\n".to_owned();
        let mut line = |depth: usize, text: String| {
            let _ = writeln!(xml, "{:depth$}{text}", "", depth = depth * 2);
        };
        let cpus = vm_cpus(self.model, self.inventory, name, guest);
        let some = |set: Option<CpuSet>| set.filter(|set| !set.0.is_empty());
        let (anywhere, pin) = (cpus.pin.is_none(), some(cpus.pin));
        if !anywhere && pin.is_none() {
            left_out.guest(format!(
                "where {name} runs: each CPU of this machine is another guest's alone, and its domain names none"
            ));
        }
        let boot = booted(&guest.vm);
        domain::head(
            &DomainHead {
                name: name.as_str(),
                uuid: None,
                memory: guest.vm_memory(),
                vcpus: cpus.vcpus.max(1),
                pin: pin.as_ref(),
                scheduling: cpus.scheduling,
                emulator: some(cpus.emulator).as_ref(),
                vm: &guest.vm,
                boot: boot.as_ref(),
                shares_memory: false,
                overrides_qemu: false,
            },
            &mut line,
        );
        line(2, "<controller type='usb' model='none'/>".to_owned());
        boot.iter().for_each(|boot| domain::disk(boot, &[], &mut line));
        guest.functions.iter().for_each(|function| self.function(function, left_out, &mut line));
        guest.drives.iter().for_each(|drive| self.drive(name, drive, left_out, &mut line));
        CONSOLE.iter().for_each(|(depth, text)| line(*depth, (*text).to_owned()));
        if guest.vm.inside == Inside::Agent {
            domain::agent_channel(&mut line);
        }
        domain::rest(&[], &mut line);
        line(1, "</devices>".to_owned());
        line(0, "</domain>".to_owned());
        say_what_is_left_out(name, guest, left_out);
        xml
    }

    /// A VF as an interface that gets its address and VLAN from libvirt; as a device of the host where somebody else sets it up. A VM of a good model
    /// owns no PF.
    fn function(&self, function: &Function, left_out: &mut Omissions, line: &mut impl FnMut(usize, String)) {
        let name = &function.name;
        let Some(nic) = self.nics.iter().find(|nic| *nic.name == name.nic) else { return };
        left_out.function_keys(nic, function, "libvirt", |_| false);
        match nic.vfs.iter().find(|vf| Some(vf.index) == name.vf) {
            None => left_out.nic(nic.name, format!("{name}: this machine has no such VF")),
            Some(vf) if nic.nic.externally_managed => device(vf.bdf, line),
            Some(vf) => interface(vf).into_iter().for_each(|(depth, text)| line(depth + 2, text)),
        }
    }

    /// A VF of a drive.
    fn drive(
        &self,
        guest: &GuestName,
        drive: &GuestDrive,
        left_out: &mut Omissions,
        line: &mut impl FnMut(usize, String),
    ) {
        let name = &drive.name;
        let found = self.drives.get(&name.drive).and_then(|bdf| self.inventory.drive(*bdf));
        let vf = found.and_then(|found| found.sriov.as_ref()?.vf(name.vf));
        let Some(vf) = vf else {
            return left_out.guest(format!("{name} in `drives` of {guest}: this machine has no such VF"));
        };
        device(vf.bdf, line);
        left_out.guest(format!(
            "queues and namespaces of {name} in `drives` of {guest}: libvirt has no word for them; its controller has to be on line with them"
        ));
    }
}

/// A function that the VM gets as it is.
fn device(bdf: Bdf, line: &mut impl FnMut(usize, String)) {
    line(2, "<hostdev mode='subsystem' type='pci' managed='yes'>".to_owned());
    line(3, "<source>".to_owned());
    // The schema has no type for it here: the device has one.
    line(4, format!("<address {}/>", place(bdf)));
    line(3, "</source>".to_owned());
    line(2, "</hostdev>".to_owned());
}

/// What there is to boot. Of a disk its name tells what it is: the host of the domain may be another one. Below `/dev/shm` are files.
fn booted(vm: &Vm) -> Option<Booted> {
    match &vm.boot {
        Boot::Builtin => None,
        Boot::Kernel { kernel, initramfs } => Some(Booted::Kernel {
            kernel: kernel.into(),
            initramfs: initramfs.as_ref().map(Into::into),
            command_line: command_line(KERNEL_CONSOLE, vm),
        }),
        Boot::Disk { path, format } => Some(Booted::Disk {
            path: path.into(),
            is_block_device: path.starts_with("/dev/") && !path.starts_with("/dev/shm/"),
            format: *format,
        }),
    }
}

fn say_what_is_left_out(name: &GuestName, guest: &Guest, left_out: &mut Omissions) {
    let is_builtin = guest.vm.boot == Boot::Builtin;
    if is_builtin {
        left_out.guest(format!(
            "`boot` of {name}: Penstock makes what the builtin guest boots at each start; the domain has nothing to boot: add a disk"
        ));
    }
    if guest.realtime.is_some() {
        left_out.guest(format!(
            "`realtime` of {name}, but for the scheduling of its virtual CPUs: libvirt has no word for it"
        ));
    }
    left_out.guest_keys(name, guest, WHY, |key| match key {
        "kind" | "cpus" | "memory" | "pin" | "realtime" | "drives" | "boot" | "firmware" | "emulator"
        | "locked_memory" | "huge_pages" => true,
        "command_line" => !is_builtin,
        "inside" => guest.vm.inside != Inside::Console,
        _ => false,
    });
}
