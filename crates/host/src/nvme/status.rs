//! How a drive answers a command (NVM Express Base Specification 2.0, 3.3.3.2.1 "Status Field").

use std::fmt;

/// The status of a command that a drive refused, as the kernel hands it on: without the phase bit (`include/linux/nvme.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeStatus(u16);

/// A namespace is attached to the controller already.
pub(super) const ALREADY_ATTACHED: (u8, u8) = (1, 0x18);
/// A namespace is not attached to the controller.
pub(super) const NOT_ATTACHED: (u8, u8) = (1, 0x1a);
/// A namespace that is not shared, and that another controller has.
pub(super) const PRIVATE: (u8, u8) = (1, 0x19);
/// There is no such controller.
pub(super) const WRONG_CONTROLLERS: (u8, u8) = (1, 0x1c);
/// A secondary controller is on line and should not be, or the reverse.
pub(super) const WRONG_STATE: (u8, u8) = (1, 0x20);
/// More resources than there are free, or than one controller may have.
pub(super) const WRONG_NUMBER: (u8, u8) = (1, 0x21);

/// What our commands can be answered with, by status code type and status code (figures 94 to 98).
const WORDS: [((u8, u8), &str); 27] = [
    ((0, 0x01), "invalid command opcode"),
    ((0, 0x02), "invalid field in command"),
    ((0, 0x04), "data transfer error"),
    ((0, 0x05), "command aborted for loss of power"),
    ((0, 0x06), "internal error"),
    ((0, 0x07), "command aborted on request"),
    ((0, 0x0b), "invalid namespace or format"),
    ((0, 0x0c), "command sequence error"),
    ((0, 0x15), "operation denied"),
    ((0, 0x1d), "sanitize in progress"),
    ((0, 0x20), "namespace is write protected"),
    ((0, 0x21), "command interrupted"),
    ((0, 0x22), "transient transport error"),
    ((0, 0x82), "namespace not ready"),
    ((0, 0x84), "format in progress"),
    (ALREADY_ATTACHED, "namespace already attached"),
    (PRIVATE, "namespace is private, and another controller has it"),
    (NOT_ATTACHED, "namespace not attached"),
    (WRONG_CONTROLLERS, "controller list invalid"),
    ((1, 0x1f), "invalid controller identifier"),
    (WRONG_STATE, "invalid state of the secondary controller"),
    (WRONG_NUMBER, "invalid number of controller resources"),
    ((1, 0x22), "invalid resource identifier"),
    ((1, 0x25), "asymmetric namespace access does not let it be attached"),
    ((1, 0x27), "the most namespaces that may be attached are"),
    ((1, 0x29), "I/O command set not supported"),
    // `NVME_SC_HOST_PATH_ERROR`, `NVME_SC_HOST_ABORTED_CMD`: the kernel's, not the drive's.
    ((3, 0x71), "given up by the kernel: the drive did not answer in time, or was reset"),
];

impl NvmeStatus {
    /// The status that `ioctl` returned.
    pub(super) fn new(returned: u16) -> NvmeStatus {
        NvmeStatus(returned)
    }

    /// Status code type and status code.
    pub fn code(self) -> (u8, u8) {
        let [code, kind] = self.0.to_le_bytes();
        (kind & 7, code)
    }
}

impl fmt::Display for NvmeStatus {
    /// `namespace not attached (SCT 1h, SC 1Ah)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, code) = self.code();
        let known = WORDS.iter().find(|(of, _)| *of == (kind, code)).map(|(_, words)| *words);
        let words = known.unwrap_or(match kind {
            0 => "a generic error",
            1 => "an error of this command",
            2 => "an error of the medium or of the data",
            3 => "an error on the way to the drive",
            7 => "an error that its vendor defines",
            _ => "an error of an unknown type",
        });
        write!(f, "{words} (SCT {kind:X}h, SC {code:02X}h)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_in_words_and_numbers() {
        // With "do not retry" and "more".
        assert_eq!(NvmeStatus::new(0x6118).to_string(), "namespace already attached (SCT 1h, SC 18h)");
        assert_eq!(NvmeStatus::new(0x4002).to_string(), "invalid field in command (SCT 0h, SC 02h)");
        assert_eq!(NvmeStatus::new(0x07f1).to_string(), "an error that its vendor defines (SCT 7h, SC F1h)");
    }

    #[test]
    fn every_status_has_words_of_its_own() {
        for (position, (code, _)) in WORDS.iter().enumerate() {
            assert!(WORDS[..position].iter().all(|(other, _)| other != code), "{code:?}");
        }
    }
}
