//! The program that runs on a board: it is on a disk of its own, since a file of 30 MB takes an emulated processor 15 s to decipher and a
//! second to read.
//!
//! A saved board may be resumed with another program, and its kernel has read the first bytes of the disk to look for partitions. So the
//! program is read past the kernel's cache, and the disk is as large with every program.

use std::{path::Path, time::Duration};

use penstock_host::{Command, files};

use crate::error::BoardError;

/// The disk's file in the board's directory.
const FILE: &str = "program";

/// How many bytes the program has, in the board's directory.
const LENGTH: &str = "program.length";

/// Bytes of the disk, of which only those of the program take room.
const DISK_SIZE: u64 = 2 << 30;

/// What QEMU is told of the disk. It is beside the root disk, so that the kernel finds that one first, and known by its serial number.
pub const ARGUMENTS: [&str; 4] = [
    "-blockdev",
    "driver=file,node-name=program,read-only=on,auto-read-only=off,filename=program",
    "-device",
    "virtio-blk-pci,id=program,drive=program,bus=pcie.0,addr=2.1,serial=penstock-program",
];

/// `$1`: where to, `$2`: how many bytes. The board gets its machine-id with the program: boards that are resumed from one state are
/// machines of their own.
const INSTALL: &str = r#"set -e
[ -s /etc/machine-id ] || tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
disk=$(grep -lx penstock-program /sys/block/vd*/serial)
disk=${disk%/serial}
dd if=/dev/"${disk##*/}" of="$1.part" bs=1M iflag=direct count=$((($2 + 1048575) / 1048576)) status=none
truncate -s "$2" "$1.part"
chmod 755 "$1.part"
mv "$1.part" "$1""#;

/// Puts `program` into the directory of a board, as the file of its disk.
///
/// # Errors
///
/// [`BoardError`] when it cannot be read or copied, or is larger than the disk.
pub fn furnish(directory: &Path, program: &Path) -> Result<(), BoardError> {
    let file = directory.join(FILE);
    let length = files::length(program)?;
    if length > DISK_SIZE {
        return Err(BoardError::ProgramTooLarge { program: program.to_owned(), length, limit: DISK_SIZE });
    }
    let length = files::copy(program, &file)?;
    files::set_mode(&file, 0o600)?;
    files::lengthen(&file, DISK_SIZE)?;
    files::write_atomic(directory.join(LENGTH), length.to_string())?;
    Ok(())
}

/// What puts the program of the board in `directory` to the path `remote` inside.
///
/// # Errors
///
/// [`BoardError`] when the board has no program.
pub fn installer(directory: &Path, remote: &str) -> Result<Command, BoardError> {
    let length = files::read_to_string(directory.join(LENGTH))?;
    let command = Command::new("sh").args(["-c", INSTALL, "sh", remote, length.trim()]);
    Ok(command.deadline(Duration::from_secs(300)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_as_large_with_every_program() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["one", "another, which is longer"] {
            let program = directory.path().join("binary");
            files::write_atomic(&program, text).unwrap();
            let board = directory.path().join("board");
            files::create_dir_all(&board).unwrap();
            furnish(&board, &program).unwrap();
            assert_eq!(files::length(board.join(FILE)).unwrap(), DISK_SIZE);
            let installer = installer(&board, "/usr/local/bin/penstock").unwrap();
            assert_eq!(installer.arguments().last().unwrap().to_str(), Some(text.len().to_string().as_str()));
        }
    }

    #[test]
    fn a_board_without_a_program_installs_none() {
        let directory = tempfile::tempdir().unwrap();
        assert!(installer(directory.path(), "/usr/local/bin/penstock").is_err());
    }
}
