//! The SR-IOV and serial number extended capabilities, read out of a function's configuration space.

use std::collections::BTreeSet;

use penstock_model::SerialNumber;
use thiserror::Error;

/// Where the list of extended capabilities starts (PCI Express Base Specification, 7.6).
const EXTENDED: usize = 0x100;
/// The length of an Express function's configuration space.
pub const CONFIG_SPACE: usize = 4096;
/// The SR-IOV capability's id (9.3.3; `PCI_EXT_CAP_ID_SRIOV`).
const SRIOV_ID: u16 = 0x0010;
/// The Device Serial Number capability's id (7.9.3; `PCI_EXT_CAP_ID_DSN`).
const SERIAL_ID: u16 = 0x0003;

/// The registers of an SR-IOV capability that say which VFs there can be (PCI Express Base Specification, 9.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SriovCapability {
    /// TotalVFs: what the hardware has; a driver may allow fewer.
    pub total_vfs: u16,
    /// NumVFs: how many VFs it is set to have.
    pub num_vfs: u16,
    /// First VF Offset.
    pub first_vf_offset: u16,
    /// VF Stride: how far the routing IDs of one VF and the next are apart.
    pub vf_stride: u16,
    /// VF Device ID.
    pub vf_device: u16,
}

/// Why configuration space could not be searched to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CapabilityError {
    /// The kernel shows 64 bytes to whoever lacks `CAP_SYS_ADMIN`, and has 256 when it cannot reach the extended part.
    #[error("only {0} bytes can be read (root can read 4096 of a PCI Express function)")]
    Truncated(usize),
    /// A capability's pointer leads back.
    #[error("the list of extended capabilities comes back to {0:#x}")]
    Loop(usize),
    /// A capability's pointer leads out of the extended part.
    #[error("the list of extended capabilities leads to {0:#x}, where none can be")]
    Outside(usize),
    /// Every byte is 0xff.
    #[error("every byte is 0xff: the function does not answer")]
    NoAnswer,
}

/// The SR-IOV capability in a function's configuration space; `Ok(None)` when it has none.
///
/// # Errors
///
/// [`CapabilityError`] when the list of capabilities leads out of `config`, in a circle, or is cut off.
pub fn sriov(config: &[u8]) -> Result<Option<SriovCapability>, CapabilityError> {
    let Some(at) = find(config, SRIOV_ID)? else { return Ok(None) };
    Ok(Some(SriovCapability {
        total_vfs: word(config, at + 0x0e)?,
        num_vfs: word(config, at + 0x10)?,
        first_vf_offset: word(config, at + 0x14)?,
        vf_stride: word(config, at + 0x16)?,
        vf_device: word(config, at + 0x1a)?,
    }))
}

/// The device's serial number in a function's configuration space; `Ok(None)` when it has none, or nothing but zeros or
/// ones, which a card has whose memory was never written.
///
/// # Errors
///
/// [`CapabilityError`] when the list of capabilities leads out of `config`, in a circle, or is cut off.
pub fn serial(config: &[u8]) -> Result<Option<SerialNumber>, CapabilityError> {
    let Some(at) = find(config, SERIAL_ID)? else { return Ok(None) };
    // The lower double word comes first (7.9.3.2).
    let words = [at + 10, at + 8, at + 6, at + 4].map(|at| word(config, at));
    let mut number = 0;
    for word in words {
        number = number << 16 | u64::from(word?);
    }
    Ok(Some(SerialNumber(number)).filter(|_| number != 0 && number != u64::MAX))
}

fn word(config: &[u8], at: usize) -> Result<u16, CapabilityError> {
    let bytes = config.get(at..at + 2).ok_or(CapabilityError::Truncated(config.len()))?;
    Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// Where the extended capability `wanted` begins.
fn find(config: &[u8], wanted: u16) -> Result<Option<usize>, CapabilityError> {
    if !config.is_empty() && config.iter().all(|byte| *byte == 0xff) {
        return Err(CapabilityError::NoAnswer);
    }
    let mut seen = BTreeSet::new();
    let mut at = EXTENDED;
    loop {
        if !seen.insert(at) {
            return Err(CapabilityError::Loop(at));
        }
        let (id, high) = (word(config, at)?, word(config, at + 2)?);
        // An empty list is a header of zeros; ones are what a function without the extended part reads as.
        if (id, high) == (0, 0) || (id, high) == (0xffff, 0xffff) {
            return Ok(None);
        }
        if id == wanted {
            return Ok(Some(at));
        }
        // The lowest two bits of the pointer are reserved and to be masked off.
        at = usize::from(high >> 4) & !3;
        match at {
            0 => return Ok(None),
            EXTENDED.. => {}
            _ => return Err(CapabilityError::Outside(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn space(capabilities: &[(usize, u32)]) -> Vec<u8> {
        let mut config = vec![0; CONFIG_SPACE];
        for (at, header) in capabilities {
            config[*at..at + 4].copy_from_slice(&header.to_le_bytes());
        }
        config
    }

    #[test]
    fn is_found_behind_another_capability() {
        let mut config = space(&[(0x100, 0x1602_0001), (0x160, 0x0001_0010)]);
        for (at, value) in [(0x0e, 64u16), (0x10, 0), (0x14, 0x80), (0x16, 2), (0x1a, 0x15a8)] {
            config[0x160 + at..][..2].copy_from_slice(&value.to_le_bytes());
        }
        let found = SriovCapability {
            total_vfs: 64,
            num_vfs: 0,
            first_vf_offset: 0x80,
            vf_stride: 2,
            vf_device: 0x15a8,
        };
        assert_eq!(sriov(&config), Ok(Some(found)));
    }

    #[test]
    fn a_serial_number_is_read_as_lspci_reads_it() {
        let mut config = space(&[(0x100, 0x1401_0001), (0x140, 0x0001_0003)]);
        // As `lspci` shows it: "Device Serial Number 00-1b-21-ff-ff-8a-3c-44".
        config[0x144..0x14c].copy_from_slice(&[0x44, 0x3c, 0x8a, 0xff, 0xff, 0x21, 0x1b, 0x00]);
        assert_eq!(serial(&config).unwrap().unwrap().to_string(), "00-1b-21-ff-ff-8a-3c-44");
        config[0x144..0x14c].fill(0xff);
        assert_eq!(serial(&config), Ok(None));
        assert_eq!(serial(&config[..0x148]), Err(CapabilityError::Truncated(0x148)));
    }

    #[test]
    fn a_list_that_bites_its_tail_is_left() {
        let config = space(&[(0x100, 0x1401_0001), (0x140, 0x1001_0003)]);
        assert_eq!(sriov(&config), Err(CapabilityError::Loop(0x100)));
    }

    #[test]
    fn a_pointer_into_the_header_is_refused() {
        assert_eq!(sriov(&space(&[(0x100, 0x0401_0001)])), Err(CapabilityError::Outside(0x40)));
    }

    #[test]
    fn what_is_cut_off_is_said() {
        for have in [0, 64, 256] {
            assert_eq!(sriov(&vec![0; have]), Err(CapabilityError::Truncated(have)));
        }
        let config = space(&[(0x100, 0xff01_0001), (0xff0, 0x0001_0010)]);
        assert_eq!(sriov(&config), Err(CapabilityError::Truncated(4096)));
        assert_eq!(sriov(&[0xff; 64]), Err(CapabilityError::NoAnswer));
        assert_eq!(sriov(&vec![0; 4096]), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(config in proptest::collection::vec(any::<u8>(), 0..=CONFIG_SPACE)) {
            let _ = (sriov(&config), serial(&config));
        }

        /// Headers that point anywhere, so that long walks and loops are met, which random bytes rarely make.
        #[test]
        fn any_list_comes_to_an_end(pointers in proptest::collection::vec(0x40u32..0x400, 960)) {
            let mut config = vec![0; EXTENDED];
            for pointer in pointers {
                config.extend((pointer << 22 | 1).to_le_bytes());
            }
            prop_assert!(!matches!(sriov(&config), Ok(Some(_))));
        }
    }
}
