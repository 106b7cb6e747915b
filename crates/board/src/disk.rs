//! Boards that are more like a server than others: with a disk of their own, which keeps what they write when they are reset,
//! or with systemd as their first process.

use std::{path::Path, time::Duration};

use penstock_host::{Command, cpio::Archive, files, process};

use crate::{
    error::BoardError,
    image::{self, Image},
};

/// How a board differs from the usual, which writes to memory and has a small init of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// What the board writes is on a disk of its own and still there when it is reset; it is gone with the board.
    pub disk: bool,
    /// Its first process is systemd, and connections over SSH are sessions of logind.
    pub systemd: bool,
}

/// The disk's file in the board's directory. It takes only as much room as the board has written.
const DISK: &str = "disk";
const DISK_SIZE: &str = "4G";
/// Bytes that are to be free for it at least, which often are memory's ($XDG_RUNTIME_DIR): a board writes some 100 MB when it starts.
const DISK_ROOM: u64 = 200 << 20;
/// The first file system, with what makes such a board in a second archive: the kernel unpacks one over the other.
pub const INITRAMFS: &str = "initramfs.cpio";

const INIT: &str = include_str!("../start/init.sh");
const SYSTEMD: [(&str, &str); 9] = [
    ("start", include_str!("../start/systemd.sh")),
    ("board.service", include_str!("../start/units/board.service")),
    ("board-ssh.service", include_str!("../start/units/board-ssh.service")),
    ("board-vms.service", include_str!("../start/units/board-vms.service")),
    ("board-settled.service", include_str!("../start/units/board-settled.service")),
    ("management.link", include_str!("../start/units/management.link")),
    ("coldplug.conf", include_str!("../start/units/coldplug.conf")),
    ("plain.conf", include_str!("../start/units/plain.conf")),
    ("masked", include_str!("../start/units/masked")),
];
/// What a board without VMs needs not wait for.
const VM_UNITS: &str = "libvirtd.service\nlibvirtd.socket\nvirtlogd.service\nvirtlockd.service\n";

impl Lasting {
    /// Whether it is a board like others.
    pub fn is_usual(self) -> bool {
        self == Lasting::default()
    }

    /// Whether it can be saved when it is ready: what is on a disk of its own is not in its memory, and new with each board.
    pub fn can_be_saved(self) -> bool {
        !self.disk
    }

    /// What such a board has over the image's first file system, as an archive that the kernel unpacks; `vms` says that it runs VMs.
    /// `None` for one like others.
    pub fn start_files(self, vms: bool) -> Option<Vec<u8>> {
        if self.is_usual() {
            return None;
        }
        let mut second = Archive::default();
        second.file("init", 0o755, INIT.as_bytes());
        second.directory("systemd");
        for (name, text) in SYSTEMD {
            let mut text = text.to_owned();
            if name == "masked" && !vms {
                text.push_str(VM_UNITS);
            }
            let mode = if name == "start" { 0o755 } else { 0o644 };
            second.file(&format!("systemd/{name}"), mode, text.as_bytes());
        }
        Some(second.finish())
    }

    /// Puts what such a board starts from into its directory; `vms` says that it runs VMs.
    ///
    /// # Errors
    ///
    /// [`BoardError::File`] when the image's initramfs cannot be read or a file not be written, [`BoardError`] when the disk
    /// cannot be made, [`BoardError::NoSpace`] when there is no room for what is written to it at the start.
    pub fn furnish(self, directory: &Path, image: &Image, vms: bool) -> Result<(), BoardError> {
        let Some(second) = self.start_files(vms) else { return Ok(()) };
        let mut whole = files::read(image.initramfs())?;
        whole.extend(second);
        files::write_atomic(directory.join(INITRAMFS), whole)?;
        if self.disk {
            image::check_room(directory, DISK_ROOM, "keep what the board writes")?;
            make_disk(directory)?;
        }
        Ok(())
    }

    /// What is added to the kernel's command line. On a busy machine an emulated timer may be too late for the kernel's test of
    /// it, which then panics.
    pub fn kernel_command_line(self) -> String {
        let words = [
            (!self.is_usual(), " no_timer_check"),
            (self.disk, " penstock.disk=1"),
            (self.systemd, " penstock.init=systemd systemd.unit=multi-user.target systemd.show_status=error"),
        ];
        words.iter().filter(|(wanted, _)| *wanted).map(|(_, words)| *words).collect()
    }

    /// What is added to QEMU's arguments.
    pub fn arguments(self) -> Vec<String> {
        let mut arguments = Vec::new();
        if !self.is_usual() {
            // Later than `-no-reboot`, which it takes back.
            arguments.extend(["-action", "reboot=reset"]);
        }
        if self.disk {
            arguments.extend(["-blockdev", "driver=file,node-name=kept,filename=disk"]);
            // Where no other device of a board is, and known by its serial number.
            // By default QEMU stops the board when it has no room to write, and tells nobody.
            arguments.extend([
                "-device",
                "virtio-blk-pci,id=kept,drive=kept,bus=pcie.0,addr=1.0,serial=penstock-kept,werror=report,rerror=report",
            ]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }
}

fn make_disk(directory: &Path) -> Result<(), BoardError> {
    let purpose = "make a board's disk";
    let program = process::find("mke2fs");
    let program = program.ok_or(BoardError::Missing { program: "mke2fs", purpose })?;
    Command::new(program)
        .args(["-q", "-F", "-t", "ext4", DISK, DISK_SIZE])
        .current_dir(directory)
        .deadline(Duration::from_secs(60))
        .succeed()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_board_is_told_nothing_more() {
        let usual = Lasting::default();
        assert!(usual.arguments().is_empty() && usual.kernel_command_line().is_empty());
    }

    #[test]
    fn what_is_on_a_disk_is_not_saved() {
        for (disk, systemd) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(Lasting { disk, systemd }.can_be_saved(), !disk);
        }
    }

    #[test]
    fn what_systemd_starts_is_linked_and_given() {
        let files = Lasting { disk: false, systemd: true }.start_files(false).unwrap();
        let text = String::from_utf8_lossy(&files).into_owned();
        let wanted = INIT.split("for unit in ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
        for unit in ["board", "board-vms", "board-settled"] {
            assert!(wanted.split(' ').any(|word| word == unit), "{wanted}");
            assert!(text.contains(&format!("systemd/{unit}.service")), "{unit}");
        }
        assert!(text.contains(crate::machine::SETTLED));
        assert_eq!(Lasting::default().start_files(true), None);
    }

    #[test]
    fn a_board_that_keeps_its_disk_is_reset_instead_of_ended() {
        let lasting = Lasting { disk: true, systemd: true };
        let arguments = lasting.arguments().join(" ");
        assert!(arguments.starts_with("-action reboot=reset"), "{arguments}");
        assert!(arguments.contains("serial=penstock-kept"), "{arguments}");
        assert!(
            arguments.contains("werror=report,rerror=report"),
            "a full disk is told to the board: {arguments}"
        );
        assert!(INIT.contains("disk penstock-kept"), "the start script looks for that serial number");
        let line = lasting.kernel_command_line();
        assert_eq!(
            line,
            " no_timer_check penstock.disk=1 penstock.init=systemd systemd.unit=multi-user.target systemd.show_status=error"
        );
    }
}
