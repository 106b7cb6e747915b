//! A CPU of a board that waits for another gives its host CPU away.
//!
//! Linux waits for who holds a spinlock, and for a CPU that is to answer an interrupt, in a loop around `PAUSE`. QEMU emulates each CPU of a
//! board in a thread of its own. Where there are more of these than the host has CPUs, who is waited for often does not run, and who waits
//! keeps the host's CPU until the host's next tick. Two boards of three CPUs each, on a host of two, took half as much processor time again
//! as the two did one after the other.
//!
//! `helper_pause` of `target/i386/tcg/misc_helper.c` leaves the emulated code at each `PAUSE`. In the image's own copy of QEMU it calls sched_yield(2) before
//! that, which QEMU calls elsewhere, so that its program has it. The call fits between the function's end and the next one's beginning.

use std::ops::Range;

use object::{
    LittleEndian, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
    read::elf::ElfFile64,
};

use super::qemu_patch::{CALL, CALL_OPCODE, called, distance, function};

/// The function that stands for `PAUSE`, the one that it calls last, which does not return, and the one that it is to call.
const PAUSE: &str = "helper_pause";
const LEAVE: &str = "cpu_loop_exit";
const YIELD: &str = "sched_yield";

/// The function as Debian compiles it for QEMU 11.1.3, with what is between it and the next one. What `None` stands for is looked at elsewhere, or is
/// where something is from a register or from the code.
#[rustfmt::skip]
const CODE: [Option<u8>; 64] = {
    const fn is(byte: u8) -> Option<u8> { Some(byte) }
    const ANY: Option<u8> = None;
    [
        is(0xf3), is(0x0f), is(0x1e), is(0xfa), // endbr64
        is(0x53), // push %rbx
        is(0x48), is(0x89), is(0xfb), // mov %rdi,%rbx
        is(0x83), is(0xa7), ANY, ANY, ANY, ANY, is(0xf7), // andl $~HF_INHIBIT_IRQ_MASK,hflags(%rdi)
        is(0x48), is(0x81), is(0xa7), ANY, ANY, ANY, ANY, is(0xff), is(0xff), is(0xfe), is(0xff), // andq $~RF_MASK,eflags(%rdi)
        is(CALL_OPCODE), ANY, ANY, ANY, ANY, // call helper_rechecking_single_step
        is(0x48), is(0x8d), is(0xbb), ANY, ANY, ANY, ANY, // lea cpu(%rbx),%rdi
        is(0xc7), is(0x83), ANY, ANY, ANY, ANY, is(0x00), is(0x00), is(0x01), is(0x00), // movl $EXCP_INTERRUPT,exception_index(%rbx)
        is(CALL_OPCODE), ANY, ANY, ANY, ANY, // call cpu_loop_exit
        is(0x66), is(0x66), is(0x2e), is(0x0f), is(0x1f), is(0x84), is(0), is(0), is(0), is(0), is(0), // nothing
    ]
};
/// Where the new call comes: the stack is aligned there as a call wants it, by one push.
const NEW: usize = 31;
/// Where the last call begins.
const LAST: usize = 48;
/// How long the function is without what is behind it.
const LENGTH: usize = LAST + CALL;
/// What does nothing.
const NOP: u8 = 0x90;

/// Makes `helper_pause` yield; whether it does now. A program that has another one stays as it is.
///
/// # Errors
///
/// What is wrong with `program` as a 64-bit ELF file of x86.
pub fn yield_in_pause(program: &mut [u8]) -> Result<bool, object::Error> {
    let pause = function(program, PAUSE)?.zip(function(program, LEAVE)?);
    let Some((pause, leave)) = pause else { return Ok(false) };
    if pause.len() != LENGTH {
        return Ok(false);
    }
    let Some(stub) = stub(program, YIELD, pause.start)? else { return Ok(false) };
    let places = distance(pause.start, leave.start).zip(distance(pause.start, stub));
    let Some((leave, stub)) = places else { return Ok(false) };
    let code = program.get_mut(pause.start..).and_then(|code| code.first_chunk_mut());
    Ok(code.is_some_and(|code| call_before_leaving(code, leave, stub)))
}

/// Where the code is that jumps to a function of a library, in the segment that has `beside` in it: `jmp *displacement(%rip)`, through the word
/// that the dynamic linker fills for the function.
fn stub(program: &[u8], name: &str, beside: usize) -> Result<Option<usize>, object::Error> {
    const JUMP: [u8; 2] = [0xff, 0x25];
    const LENGTH: u64 = 6;
    let file = ElfFile64::<LittleEndian>::parse(program)?;
    let symbols = file.dynamic_symbol_table();
    let is_named = |target: RelocationTarget| match target {
        RelocationTarget::Symbol(index) => symbols
            .as_ref()
            .and_then(|symbols| symbols.symbol_by_index(index).ok())
            .is_some_and(|symbol| symbol.name() == Ok(name)),
        _ => false,
    };
    let words: Vec<u64> = (file.dynamic_relocations().into_iter().flatten())
        .filter(|(_, relocation)| is_named(relocation.target()))
        .map(|(word, _)| word)
        .collect();
    let of_segment = |offset: u64, size: u64| -> Option<Range<usize>> {
        let range = usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(size)?).ok()?;
        range.contains(&beside).then_some(range)
    };
    Ok(file.segments().find_map(|segment| {
        let (offset, size) = segment.file_range();
        let range = of_segment(offset, size)?;
        let code = program.get(range.clone())?;
        let leads = |at: usize, jump: &[u8]| {
            let displacement = i32::from_le_bytes([jump[2], jump[3], jump[4], jump[5]]);
            let next = segment.address().checked_add(u64::try_from(at).ok()?)?.checked_add(LENGTH)?;
            next.checked_add_signed(i64::from(displacement))
        };
        let found = code.windows(JUMP.len() + 4).enumerate().find(|(at, jump)| {
            jump.starts_with(&JUMP) && leads(*at, jump).is_some_and(|word| words.contains(&word))
        });
        found.map(|(at, _)| range.start + at)
    }))
}

/// Puts a call of what begins at `stub` before the last call of the function, which is that of `leave`; both are given from the function's beginning.
fn call_before_leaving(code: &mut [u8; CODE.len()], leave: i64, stub: i64) -> bool {
    let is_known = code.iter().zip(CODE).all(|(byte, known)| known.is_none_or(|known| known == *byte));
    if !is_known || called(code, LAST) != Some(leave) {
        return false;
    }
    let call = |at: usize, to: i64| -> Option<[u8; CALL]> {
        let distance = to.checked_sub(i64::try_from(at + CALL).ok()?)?;
        let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
        Some([CALL_OPCODE, a, b, c, d])
    };
    let Some((yields, leaves)) = call(NEW, stub).zip(call(LAST + CALL, leave)) else { return false };
    code.copy_within(NEW..LAST, NEW + CALL);
    code[NEW..NEW + CALL].copy_from_slice(&yields);
    code[LAST + CALL..LENGTH + CALL].copy_from_slice(&leaves);
    code[LENGTH + CALL..].fill(NOP);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Where `cpu_loop_exit` and the stub of `sched_yield` are from `helper_pause` in Debian's QEMU 11.1.3.
    const LEAVE_AT: i64 = 0x56_6df0 - 0x93_c660;
    const STUB_AT: i64 = 0x4d_cd90 - 0x93_c660;

    fn code() -> [u8; CODE.len()] {
        let mut code = CODE.map(Option::unwrap_or_default);
        code[LAST + 1..LENGTH].copy_from_slice(&[0x5b, 0xa7, 0xc2, 0xff]);
        code
    }

    #[test]
    fn the_call_comes_before_the_last_one_and_the_rest_stays() {
        let (before, mut after) = (code(), code());
        assert!(call_before_leaving(&mut after, LEAVE_AT, STUB_AT));
        assert_eq!(after[..NEW], before[..NEW]);
        assert_eq!(after[NEW..NEW + CALL], [0xe8, 0x0c, 0x07, 0xba, 0xff], "call sched_yield@plt");
        assert_eq!(after[NEW + CALL..LAST + CALL], before[NEW..LAST]);
        assert_eq!(after[LAST + CALL..LENGTH + CALL], [0xe8, 0x56, 0xa7, 0xc2, 0xff], "call cpu_loop_exit");
        assert_eq!(after[LENGTH + CALL..], [NOP; 6]);
        assert!(!call_before_leaving(&mut after, LEAVE_AT, STUB_AT), "it is another function now");
    }

    #[test]
    fn other_code_stays_as_it_is() {
        // Another register is pushed, more is done behind, and what is called last is something else.
        for (at, byte) in [(4, 0x55), (60, 0x01), (LAST + 1, 0x5c)] {
            let mut code = code();
            code[at] = byte;
            let before = code;
            assert_eq!((call_before_leaving(&mut code, LEAVE_AT, STUB_AT), code), (false, before));
        }
        // What is too far away for a call.
        let mut far = code();
        assert_eq!((call_before_leaving(&mut far, LEAVE_AT, 1 << 40), far), (false, code()));
    }

    #[test]
    fn a_program_without_the_function_stays_as_it_is() {
        let own = penstock_host::files::read("/proc/self/exe").unwrap();
        let mut program = own.clone();
        assert_eq!(yield_in_pause(&mut program), Ok(false));
        assert!(program == own);
        assert!(yield_in_pause(&mut b"#!/bin/sh\n".to_vec()).is_err());
    }

    proptest! {
        #[test]
        fn no_program_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..4096), beside: usize) {
            let _ = stub(&bytes, YIELD, beside);
            let _ = yield_in_pause(&mut bytes);
        }

        #[test]
        fn no_distance_makes_it_panic(leave: i64, stub: i64) {
            call_before_leaving(&mut code(), leave, stub);
        }
    }
}
