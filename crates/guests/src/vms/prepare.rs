//! What is made for a VM before libvirt is asked: what it boots, and its domain.

use std::path::{Path, PathBuf};

use penstock_host::{
    device::{self, used},
    emulated::LEFT_OUT,
    files, process,
};
use penstock_model::{
    Boot, DataPath, GuestName, Inside,
    domain::{Booted, KERNEL_CONSOLE, command_line},
};
use penstock_plan::action::GuestDefinition;

use super::{
    Vms, builtin,
    domain::{self, Domain},
    identity, needs, switch, vm,
};
use crate::{
    error::{GuestError, refuse_used},
    state::CONSOLE,
};

/// The command line of the builtin guest: each byte on a serial console costs a slow machine an exit of the VM, and what
/// the host's processor needs against itself the host's kernel does. ACPI tells of every bus: without `lastbus` the kernel asks 8,128 times
/// for devices on buses that are not there (`pcibios_fixup_peer_bridges` in `arch/x86/pci/legacy.c`), with two exits each.
///
/// What the guest has no use for is left out: what a board's kernel does without, AppArmor, and the watchdog for CPUs that hang.
fn builtin_command_line() -> String {
    format!(
        "console=ttyS0 quiet mitigations=off tsc=reliable no_timer_check pci=lastbus=0 {LEFT_OUT} apparmor=0 nowatchdog"
    )
}

impl Vms {
    /// Writes what the guest boots and what libvirt reads.
    pub(super) fn prepare(&self, definition: &GuestDefinition) -> Result<(), GuestError> {
        let guest = &definition.guest;
        for old in ["console.log", "console.log.0", "console.log.1", "console.log.2", CONSOLE] {
            files::remove_file(self.state.file(guest, old))?;
        }
        // libvirt runs QEMU as another user.
        for directory in [self.state.directory().to_owned(), self.state.of(guest)] {
            files::set_mode(directory, 0o755)?;
        }
        let boot = self.booted(definition)?;
        let emulator = needs::emulator(&self.root, &self.state, definition)?;
        let switches = definition.nics.iter().map(|own| match own.nic.path {
            DataPath::VhostVdpa => self.devices(guest, own),
            DataPath::Switch | DataPath::SwitchTap | DataPath::Tap | DataPath::VirtioVdpa => {
                let sockets = switch::sockets(&self.state, guest, own);
                Ok(sockets.into_iter().map(|(_, socket)| socket).collect())
            }
        });
        let switches: Vec<Vec<PathBuf>> = switches.collect::<Result<_, _>>()?;
        let lines: Vec<Option<PathBuf>> =
            definition.nics.iter().map(|own| switch::line_socket(&self.state, guest, own)).collect();
        let text = domain::render(&Domain {
            definition,
            uuid: identity::uuid(&self.root, guest).as_deref(),
            boot: &boot,
            emulator: emulator.as_ref(),
            console_log: &self.console_log(guest).to_string_lossy(),
            console_socket: &self.state.file(guest, CONSOLE).to_string_lossy(),
            switches: &switches,
            lines: &lines,
        });
        Ok(files::write_atomic(self.state.file(guest, "domain.xml"), text)?)
    }

    /// What the guest boots, made where it has to be.
    fn booted(&self, definition: &GuestDefinition) -> Result<Booted, GuestError> {
        let guest = &definition.guest;
        let vm = vm(definition);
        let there = |what: &'static str, path: &String| {
            if files::exists(path) {
                return Ok(PathBuf::from(path));
            }
            Err(GuestError::NoFile { guest: guest.clone(), what, path: path.clone() })
        };
        Ok(match &vm.boot {
            Boot::Builtin => {
                let looked = || self.builtin.directories.clone();
                let realtime = definition.scheduling.is_some();
                let (kernel, initramfs) =
                    self.builtin.find(realtime).ok_or_else(|| GuestError::NoBuiltin { looked: looked() })?;
                // Beside the other: a user's own directories are closed to QEMU, and AppArmor closes /usr/lib.
                let own = |name: &str| self.state.file(guest, name);
                files::copy(&kernel, own("vmlinuz"))?;
                files::set_mode(own("vmlinuz"), 0o644)?;
                let program = if vm.inside == Inside::Agent { own_program() } else { None };
                builtin::write_initramfs(definition, &initramfs, program.as_ref(), &own("initramfs"))?;
                Booted::Kernel {
                    kernel: own("vmlinuz"),
                    initramfs: Some(own("initramfs")),
                    command_line: command_line(&builtin_command_line(), &vm),
                }
            }
            Boot::Kernel { kernel, initramfs } => Booted::Kernel {
                kernel: there("kernel", kernel)?,
                initramfs: initramfs.as_ref().map(|path| there("initramfs", path)).transpose()?,
                command_line: command_line(KERNEL_CONSOLE, &vm),
            },
            Boot::Disk { path, format } => {
                let path = there("disk image", path)?;
                let is_block_device = self.is_block_device(guest, &path)?;
                Booted::Disk { path, is_block_device, format: *format }
            }
        })
    }

    /// Whether a block device is there, which neither the host uses nor the kernel has for somebody: the VM writes to it.
    fn is_block_device(&self, guest: &GuestName, path: &Path) -> Result<bool, GuestError> {
        let Some(device) = device::at(path)?.filter(|device| device.block) else { return Ok(false) };
        let refusal = used::refusal(&self.root, path, device, &used::by_host(&self.root));
        refuse_used(refusal, guest, &path.display().to_string())?;
        Ok(true)
    }
}

/// This program, where a builtin guest can run it.
pub(super) fn own_program() -> Option<PathBuf> {
    // Without it the guest cannot be looked into as well as with it; everything else works.
    process::own_program().ok().filter(|path| files::exists(path))
}
