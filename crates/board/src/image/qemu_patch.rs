//! Two faults of QEMU 11.1.3 that end boards with VMs and hang their VMs, and their repair in the image's own copy.
//!
//! **A write to another CPU's flags.** QEMU emulates each CPU of a board in a thread of its own. A CPU that loads the state of its x87 FPU (`FXRSTOR`, `XRSTOR`: the kernel
//! does it at context switches) calls `cpu_clear_ignne` of `target/i386/tcg/system/fpu_helper.c`. That clears a bit in the `hflags2` of the
//! *first* CPU, by an `and` to memory that is not atomic, from whichever thread it is in. If the first CPU enters or leaves a VM at that moment,
//! one of the two writes is lost: the CPU then believes, for example, that nested paging is still on, looks the host's memory up in
//! the VM's tables, and the board is reset by a triple fault. A board whose VM is busy lives for one to seven minutes. Seen by
//! uprobes on `helper_vmrun` and `do_vmexit` that print `hflags2`.
//!
//! The bit, `HF2_IGNNE_MASK`, serves FPU errors as MS-DOS wants them, by an interrupt of the PIC. A kernel that sets `CR0.NE`, like
//! every Linux of today, never sets it; so nothing is lost where the `and` is left out.
//!
//! **An interrupt that a VM gets twice.** `helper_vmrun` of `target/i386/tcg/system/svm_helper.c` delivers an interrupt that the host injects by
//! `do_interrupt_x86_hardirq`, and leaves its vector behind as the CPU's pending exception (`exception_index`). The next exception, interrupt or exit overwrites
//! that; but if QEMU wants something of the CPU's thread before (`exit_request`), the vector is delivered once more, to a handler that
//! has interrupts off. That was read, not seen; it is the likely cause of VMs that hung in their kernel's first seconds with a timer interrupt while
//! interrupts were off, one start in fifty to a hundred and fifty. Nothing reads the vector but a line of a log, so that the write is left out.

use std::ops::Range;

use object::{LittleEndian, Object, ObjectSegment, ObjectSymbol, read::elf::ElfFile64};

/// The function that writes to another CPU's flags.
const CLEAR_IGNNE: &str = "cpu_clear_ignne";
/// How long an `and` of a register's displacement with an immediate is.
const AND: usize = 10;
/// `~HF2_IGNNE_MASK`, the immediate.
const MASK: [u8; 4] = (!0x80_u32).to_le_bytes();
/// `cs nopw 0x0(%rax,%rax,1)`: as long, and does nothing.
const INSTEAD_OF_AND: [u8; AND] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// The function that leaves a vector behind, and the one that it has deliver it, by a call after that.
const VMRUN: &str = "helper_vmrun";
const DELIVER: &str = "do_interrupt_x86_hardirq";
/// How long a store of a register to a displacement is.
const STORE: usize = 6;
/// `nopw 0x0(%rax,%rax,1)`: as long, and does nothing.
const INSTEAD_OF_STORE: [u8; STORE] = [0x66, 0x0f, 0x1f, 0x44, 0, 0];
/// How far before the call the store may be, in bytes.
const NEAR: usize = 64;
/// How long a call is, and its first byte.
pub const CALL: usize = 5;
pub const CALL_OPCODE: u8 = 0xe8;

/// Takes both writes out of QEMU's program; gives the functions where a write is not there, or stands in code that is not known here.
///
/// # Errors
///
/// What is wrong with `program` as a 64-bit ELF file of x86.
pub fn repair(program: &mut [u8]) -> Result<Vec<&'static str>, object::Error> {
    let clear = function(program, CLEAR_IGNNE)?;
    let vmrun = function(program, VMRUN)?.zip(function(program, DELIVER)?);
    let clear = clear.and_then(|range| program.get_mut(range)).is_some_and(leave_flags);
    let vmrun = vmrun
        .and_then(|(vmrun, deliver)| {
            let deliver = distance(vmrun.start, deliver.start)?;
            Some(leave_no_vector(program.get_mut(vmrun)?, deliver))
        })
        .unwrap_or_default();
    let all = [(CLEAR_IGNNE, clear), (VMRUN, vmrun)];
    Ok(all.into_iter().filter(|(_, repaired)| !repaired).map(|(name, _)| name).collect())
}

/// Where in the file the code of a function is that the program exports.
///
/// # Errors
///
/// What is wrong with `program` as a 64-bit ELF file of x86.
pub fn function(program: &[u8], name: &str) -> Result<Option<Range<usize>>, object::Error> {
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

/// How far it is from one place in the file to another: a file's code has one place in memory.
pub fn distance(from: usize, to: usize) -> Option<i64> {
    Some(i64::try_from(to).ok()? - i64::try_from(from).ok()?)
}

/// What the call at `at` leads to, from the beginning of `code`; `None` where there is no call.
pub fn called(code: &[u8], at: usize) -> Option<i64> {
    let [CALL_OPCODE, a, b, c, d] = *code.get(at..)?.first_chunk::<CALL>()? else { return None };
    Some(i64::try_from(at + CALL).ok()? + i64::from(i32::from_le_bytes([a, b, c, d])))
}

/// Looks for `andl $~HF2_IGNNE_MASK, displacement(register)`, and puts a no-op in its place.
fn leave_flags(code: &mut [u8]) -> bool {
    let is_write =
        |at: &[u8]| at[0] == 0x81 && (0xa0..=0xa7).contains(&at[1]) && at[1] != 0xa4 && at.ends_with(&MASK);
    let found = code.windows(AND).position(is_write).and_then(|start| code.get_mut(start..start + AND));
    found.map(|write| write.copy_from_slice(&INSTEAD_OF_AND)).is_some()
}

/// Looks for the only call of what begins at `deliver`, and before it for the only `mov %esi, displacement(register)` to what lies before the CPU's
/// registers, as `exception_index` does: `%esi` is the vector that the call is given. Puts a no-op in the store's place.
fn leave_no_vector(code: &mut [u8], deliver: i64) -> bool {
    let mut calls = (0..code.len()).filter(|at| called(code, *at) == Some(deliver));
    let (Some(call), None) = (calls.next(), calls.next()) else { return false };
    let begin = call.saturating_sub(NEAR);
    let is_store =
        |at: &[u8]| at[0] == 0x89 && (0xb0..=0xb7).contains(&at[1]) && at[1] != 0xb4 && at[5] == 0xff;
    let mut stores = (code[begin..call].windows(STORE).enumerate())
        .filter(|(_, at)| is_store(at))
        .map(|(at, _)| begin + at);
    let (Some(store), None) = (stores.next(), stores.next()) else { return false };
    code[store..store + STORE].copy_from_slice(&INSTEAD_OF_STORE);
    true
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
        assert!(leave_flags(&mut code));
        assert_eq!((&code[..8], &code[18..]), (&CODE[..8], &CODE[18..]));
        assert_eq!(code[8..18], INSTEAD_OF_AND);
        assert!(!leave_flags(&mut code), "it is gone");
    }

    /// The case of an interrupt in `helper_vmrun` of QEMU 11.1.3 as Debian compiles it, from its vector to the call.
    const INTERRUPT: [u8; 64] = [
        0x41, 0x0f, 0xb6, 0xf4, // movzbl %r12b,%esi
        0x44, 0x89, 0xab, 0x80, 0x34, 0x00, 0x00, // mov %r13d,0x3480(%rbx)
        0x89, 0xb3, 0x50, 0xc2, 0xff, 0xff, // mov %esi,-0x3db0(%rbx)
        0xc7, 0x83, 0x84, 0x34, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // movl $0x0,0x3484(%rbx)
        0x48, 0xc7, 0x83, 0x88, 0x34, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, // movq $-1,0x3488(%rbx)
        0xf6, 0x05, 0xdc, 0x5d, 0x57, 0x01, 0x02, // testb $0x2,0x1575ddc(%rip)
        0x0f, 0x85, 0xc1, 0x00, 0x00, 0x00, // jne
        0xba, 0x01, 0x00, 0x00, 0x00, // mov $0x1,%edx
        0x48, 0x89, 0xdf, // mov %rbx,%rdi
        0xe8, 0x79, 0x7e, 0x07, 0x00, // call do_interrupt_x86_hardirq
    ];
    const DELIVERED_AT: i64 = 64 + 0x0007_7e79;

    #[test]
    fn the_vector_is_left_behind_no_more_and_nothing_else_changes() {
        let mut code = INTERRUPT;
        assert!(leave_no_vector(&mut code, DELIVERED_AT));
        assert_eq!((&code[..11], &code[17..]), (&INTERRUPT[..11], &INTERRUPT[17..]));
        assert_eq!(code[11..17], INSTEAD_OF_STORE);
        assert!(!leave_no_vector(&mut code, DELIVERED_AT), "it is gone");
        // A call of something else, a store of another register or to the CPU's registers, and two calls.
        for (at, byte) in [(60, 0x7a), (12, 0xab), (16, 0x00)] {
            let mut code = INTERRUPT;
            code[at] = byte;
            let before = code;
            assert_eq!((leave_no_vector(&mut code, DELIVERED_AT), code), (false, before));
        }
        let mut twice = [INTERRUPT, INTERRUPT].concat();
        twice[64 + 60..64 + 64].copy_from_slice(&(0x0007_7e79_i32 - 64).to_le_bytes());
        assert!(!leave_no_vector(&mut twice, DELIVERED_AT));
    }

    #[test]
    fn other_code_stays_as_it_is() {
        // An `and` with another mask, and one with a lock, which is another instruction.
        for (at, byte) in [(14, 0xbf), (8, 0xf0)] {
            let mut code = CODE;
            code[at] = byte;
            let before = code;
            assert_eq!((leave_flags(&mut code), code), (false, before));
        }
    }

    #[test]
    fn a_program_without_the_function_stays_as_it_is() {
        let own = penstock_host::files::read("/proc/self/exe").unwrap();
        let mut program = own.clone();
        assert_eq!(repair(&mut program), Ok(vec![CLEAR_IGNNE, VMRUN]));
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
        fn no_program_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..4096), deliver: i64) {
            let _ = repair(&mut bytes);
            let _ = leave_flags(&mut bytes);
            let _ = leave_no_vector(&mut bytes, deliver);
        }
    }
}
