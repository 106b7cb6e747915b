//! What a program's file says of itself (elf(5)): for which processor it is, and whether it needs libraries of the system that it runs on.

/// The processors that Penstock is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// `EM_X86_64`.
    Amd64,
    /// `EM_AARCH64`.
    Arm64,
}

/// A program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elf {
    /// For which processor it is; `None` for another one.
    pub processor: Option<Processor>,
    /// Whether it names a dynamic linker (`PT_INTERP`), without which it does not start.
    pub is_dynamic: bool,
}

/// The number of a program header that names the dynamic linker.
const PT_INTERP: u64 = 3;

impl Processor {
    /// What Go and container images call it (`GOARCH`).
    pub fn goarch(self) -> &'static str {
        match self {
            Processor::Amd64 => "amd64",
            Processor::Arm64 => "arm64",
        }
    }
}

impl Elf {
    /// Reads a file of 64 bits in the order of little endian. `None` where it is none, or is cut off within its headers.
    pub fn read(file: &[u8]) -> Option<Elf> {
        let number = |at: usize, length: usize| {
            let bytes = file.get(at..at.checked_add(length)?)?;
            Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        // The magic number, ELFCLASS64 and ELFDATA2LSB.
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let processor = match number(18, 2)? {
            62 => Some(Processor::Amd64),
            183 => Some(Processor::Arm64),
            _ => None,
        };
        let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let mut is_dynamic = false;
        for index in 0..count {
            let at = usize::try_from(first.checked_add(index * size)?).ok()?;
            is_dynamic |= number(at, 4)? == PT_INTERP;
        }
        Some(Elf { processor, is_dynamic })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_host::files;
    use proptest::prelude::*;

    #[test]
    fn this_program_needs_no_library_and_a_shell_does() {
        let read = |path: &str| Elf::read(&files::read(path).unwrap()).unwrap();
        let own = read("/proc/self/exe");
        assert_eq!(
            own.processor.unwrap().goarch(),
            if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
        );
        assert!(!own.is_dynamic);
        assert!(read("/bin/sh").is_dynamic);
    }

    proptest! {
        #[test]
        fn no_file_is_read_beyond_its_end(cut in 0..200_usize, at in 0..64_usize, byte: u8) {
            let mut file = files::read("/bin/true").unwrap();
            file.truncate(cut);
            if let Some(there) = file.get_mut(at) {
                *there = byte;
            }
            let read = Elf::read(&file);
            prop_assert!(read.is_none() || cut >= 58);
        }
    }
}
