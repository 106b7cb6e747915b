//! A fault of QEMU that ends boards with VMs, and its repair in the image's own copy.
//!
//! QEMU emulates each CPU of a board in a thread of its own. A CPU that loads the state of its x87 FPU (`FXRSTOR`, `XRSTOR`: the kernel does
//! it at context switches) calls `cpu_clear_ignne` of `target/i386/tcg/system/fpu_helper.c`. That clears a bit in the `hflags2` of the
//! *first* CPU, by an `and` to memory that is not atomic, from whichever thread it is in. If the first CPU enters or leaves a VM at that moment,
//! one of the two writes is lost: the CPU then believes, for example, that nested paging is still on, looks the host's memory up in
//! the VM's tables, and the board is reset by a triple fault. A board whose VM is busy lives for one to seven minutes. Seen with QEMU 11.1.3, by
//! uprobes on `helper_vmrun` and `do_vmexit` that print `hflags2`.
//!
//! The bit, `HF2_IGNNE_MASK`, serves FPU errors as MS-DOS wants them, by an interrupt of the PIC. A kernel that sets `CR0.NE`, like
//! every Linux of today, never sets it; so nothing is lost where the `and` is left out.

use std::ops::Range;

use object::{LittleEndian, Object, ObjectSegment, ObjectSymbol, read::elf::ElfFile64};

/// The function at fault.
const FUNCTION: &str = "cpu_clear_ignne";
/// How long an `and` of a register's displacement with an immediate is.
const LENGTH: usize = 10;
/// `~HF2_IGNNE_MASK`, the immediate.
const MASK: [u8; 4] = (!0x80_u32).to_le_bytes();
/// `cs nopw 0x0(%rax,%rax,1)`: as long, and does nothing.
const NOTHING: [u8; LENGTH] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// Takes the write to another CPU's flags out of QEMU's program; `false` when it is not there, or stands in code that is not known here.
///
/// # Errors
///
/// What is wrong with `program` as a 64-bit ELF file of x86.
pub fn repair(program: &mut [u8]) -> Result<bool, object::Error> {
    let range = function(program, FUNCTION)?;
    Ok(range.and_then(|range| program.get_mut(range)).is_some_and(repair_code))
}

/// Where in the file the code of a function is that the program exports.
fn function(program: &[u8], name: &str) -> Result<Option<Range<usize>>, object::Error> {
    let file = ElfFile64::<LittleEndian>::parse(program)?;
    let Some(symbol) = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name)) else {
        return Ok(None);
    };
    let start = file.segments().find_map(|segment| {
        let (offset, size) = segment.file_range();
        let inside = symbol.address().checked_sub(segment.address()).filter(|&at| at < size)?;
        offset.checked_add(inside)
    });
    let range = start.and_then(|start| {
        let end = start.checked_add(symbol.size())?;
        Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    });
    Ok(range)
}

/// Looks for `andl $~HF2_IGNNE_MASK, displacement(register)`, and puts a no-op in its place.
fn repair_code(code: &mut [u8]) -> bool {
    let is_write =
        |at: &[u8]| at[0] == 0x81 && (0xa0..=0xa7).contains(&at[1]) && at[1] != 0xa4 && at.ends_with(&MASK);
    let found = code.windows(LENGTH).position(is_write).and_then(|start| code.get_mut(start..start + LENGTH));
    found.map(|write| write.copy_from_slice(&NOTHING)).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The function of QEMU 11.1.3 as Debian compiles it, without the four instructions that ask for the type of the CPU.
    const CODE: [u8; 24] = [
        0xf3, 0x0f, 0x1e, 0xfa, // endbr64
        0x48, 0x83, 0xec, 0x08, // sub $0x8,%rsp
        0x81, 0xa0, 0xa4, 0x41, 0x00, 0x00, 0x7f, 0xff, 0xff, 0xff, // andl $0xffffff7f,0x41a4(%rax)
        0x48, 0x83, 0xc4, 0x08, // add $0x8,%rsp
        0xc3, 0x90, // ret
    ];

    #[test]
    fn the_write_is_replaced_and_nothing_else() {
        let mut code = CODE;
        assert!(repair_code(&mut code));
        assert_eq!((&code[..8], &code[18..]), (&CODE[..8], &CODE[18..]));
        assert_eq!(code[8..18], NOTHING);
        assert!(!repair_code(&mut code), "it is gone");
    }

    #[test]
    fn other_code_stays_as_it_is() {
        // An `and` with another mask, and one with a lock, which is another instruction.
        for (at, byte) in [(14, 0xbf), (8, 0xf0)] {
            let mut code = CODE;
            code[at] = byte;
            let before = code;
            assert_eq!((repair_code(&mut code), code), (false, before));
        }
    }

    #[test]
    fn a_program_without_the_function_stays_as_it_is() {
        let own = penstock_host::files::read("/proc/self/exe").unwrap();
        let mut program = own.clone();
        assert_eq!(repair(&mut program), Ok(false));
        assert!(program == own);
        assert!(repair(&mut b"#!/bin/sh\n".to_vec()).is_err());
    }

    /// The kernel gives each process a library, which every machine has.
    #[cfg(target_arch = "x86_64")]
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "memory of this process, from an offset, is nothing that the product reads"
    )]
    fn the_code_of_a_function_is_found_in_a_real_library() {
        let maps = penstock_host::files::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("a kernel of x86 has a vDSO");
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut library = vec![0; usize::try_from(end - start).unwrap()];
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut library, start).unwrap();

        assert_eq!(function(&library, "none"), Ok(None));
        let code = &library[function(&library, "__vdso_time").unwrap().expect("the vDSO tells the time")];
        // It stores the time where its argument points to: mov %rax,(%rdi).
        assert!(code.windows(3).any(|at| at == [0x48, 0x89, 0x07]), "{code:x?}");
    }

    proptest! {
        #[test]
        fn no_program_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let _ = repair(&mut bytes);
            let _ = repair_code(&mut bytes);
        }
    }
}
