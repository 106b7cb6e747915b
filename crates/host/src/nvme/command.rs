//! Commands to a drive through its character device (`include/uapi/linux/nvme_ioctl.h`).

use std::{fs::File, io, os::fd::AsRawFd, time::Duration};

use super::{identify::LENGTH, status::NvmeStatus};

/// `struct nvme_passthru_cmd`, which the kernel also calls `nvme_admin_cmd`.
#[repr(C)]
#[derive(Default)]
struct Passthrough {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dwords_2_and_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    length: u32,
    dwords_10_to_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

nix::ioctl_readwrite!(send_admin_command, b'N', 0x41, Passthrough);

/// What an administrative command moves besides itself.
pub(super) enum Data<'a> {
    Nothing,
    /// From the drive.
    In(&'a mut [u8; LENGTH]),
    /// To the drive.
    Out(&'a [u8; LENGTH]),
}

/// An administrative command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AdminCommand {
    pub opcode: u8,
    pub namespace: u32,
    pub dword_10: u32,
    pub dword_11: u32,
}

/// How a command went that the kernel took.
pub(super) type Completion = Result<u32, NvmeStatus>;

/// Sends a command and waits for its completion, whose dword 0 is the outcome. The two lowest bits of an opcode say which way data goes
/// (NVM Express Base Specification 2.0, figure 138). The kernel resets a drive that has not answered after `timeout`
/// (`nvme_timeout`, `drivers/nvme/host/pci.c`).
#[allow(unsafe_code)]
pub(super) fn send(
    device: &File,
    command: AdminCommand,
    data: Data<'_>,
    timeout: Duration,
) -> io::Result<Completion> {
    let direction = match data {
        Data::Nothing => 0,
        Data::Out(_) => 1,
        Data::In(_) => 2,
    };
    if command.opcode & 3 != direction {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command moves data the other way"));
    }
    let mut dwords = [0; 6];
    dwords[0] = command.dword_10;
    dwords[1] = command.dword_11;
    let (address, length) = match data {
        Data::Nothing => (0, 0),
        Data::In(bytes) => (bytes.as_mut_ptr().expose_provenance(), LENGTH),
        Data::Out(bytes) => (bytes.as_ptr().expose_provenance(), LENGTH),
    };
    let mut passthrough = Passthrough {
        opcode: command.opcode,
        namespace: command.namespace,
        address: address as u64,
        length: length as u32,
        dwords_10_to_15: dwords,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        ..Passthrough::default()
    };
    // SAFETY: the descriptor is open; `passthrough` is a whole `struct nvme_passthru_cmd`, and its address and length are those of a buffer
    // that outlives the call, or 0. The kernel writes to that only where the lowest bits of the opcode say that data comes from the drive
    // (`nvme_is_write`, `include/linux/nvme.h`), which was compared above.
    let returned = unsafe { send_admin_command(device.as_raw_fd(), &raw mut passthrough) }?;
    Ok(match u16::try_from(returned) {
        Ok(0) => Ok(passthrough.result),
        Ok(status) => Err(NvmeStatus::new(status)),
        Err(_) => return Err(io::Error::other(format!("the kernel returned {returned}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_is_as_long_as_the_kernels() {
        assert_eq!(size_of::<Passthrough>(), 72);
    }

    #[test]
    fn what_is_no_drive_takes_no_command() {
        let file = tempfile::tempfile().unwrap();
        assert!(send(&file, AdminCommand::default(), Data::Nothing, Duration::from_secs(1)).is_err());
    }
}
