use std::{fs::File, io::Write};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{limit::size, *};

/// A file of this many bytes that count up.
pub fn file(len: usize) -> File {
    let mut file = File::from(memfd_create("guest", MFdFlags::empty()).unwrap());
    let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
    file.write_all(&bytes).unwrap();
    file
}

fn described(guest: u64, size: u64, offset: u64) -> Description {
    Description { guest, user: guest + 0x7000_0000_0000, size, offset }
}

#[test]
fn an_address_is_found_with_as_much_as_its_region_has() {
    let parts =
        [(described(0x1_0000, 0x2000, 0x1000), file(0x3000)), (described(0, 0x1000, 0), file(0x1000))];
    let memory = Memory::map(&parts, Limit::DEFAULT).unwrap();
    let span = memory.guest(0x1_1ffe, 100).unwrap();
    assert_eq!(span.len, 2);
    // SAFETY: the span is two bytes of the file, which counts up.
    assert_eq!(unsafe { span.start.read() }, 0x2ffe_u32 as u8);
    assert_eq!(memory.guest(0, 100).unwrap().len, 100);
    for nowhere in [0x1000, 0xffff, 0x1_2000, u64::MAX] {
        assert!(memory.guest(nowhere, 1).is_none(), "{nowhere:#x}");
    }
    assert!(memory.ring(0x7000_0001_0000, 0x2000, 16).is_some());
    assert!(memory.ring(0x7000_0001_0008, 0x10, 16).is_none(), "not aligned");
    assert!(memory.ring(0x7000_0001_0010, 0x2000, 16).is_none(), "too long");
}

#[test]
fn what_the_kernel_gives_to_be_read_alone_does_not_change_by_what_is_written() {
    let file = file(0x2000);
    let region = |at| Description { guest: at, user: at, size: 0x1000, offset: at };
    let parts = [
        (region(0), file.try_clone().unwrap(), Rights::Read),
        (region(0x1000), file.try_clone().unwrap(), Rights::Both),
    ];
    let memory = Memory::of_kernel(&parts, Limit::DEFAULT).unwrap();
    for at in [0x10, 0x1010] {
        let span = memory.guest(at, 1).unwrap();
        // SAFETY: the span is a byte of the mapping.
        unsafe {
            assert_eq!(span.start.read(), 0x10);
            span.start.write(0xee);
        }
    }
    let mut bytes = [0; 2];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes[..1], 0x10).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes[1..], 0x1010).unwrap();
    assert_eq!(bytes, [0x10, 0xee]);
    let disk = tempfile::tempfile_in("/proc/self/cwd").unwrap();
    let parts = [(region(0), disk, Rights::Both)];
    assert!(matches!(
        Memory::of_kernel(&parts, Limit::DEFAULT),
        Err(MemoryError::NotMemory { .. } | MemoryError::BeyondFile { .. })
    ));
}

#[test]
fn what_cannot_be_is_refused() {
    let one = |description| Memory::map(&[(description, file(0x1000))], Limit::DEFAULT);
    assert!(matches!(one(described(0, 0, 0)), Err(MemoryError::Wraps { .. })));
    assert!(matches!(one(described(0, u64::MAX, 1)), Err(MemoryError::Wraps { .. })));
    assert!(matches!(one(described(0x1000, 0x1001, 0)), Err(MemoryError::BeyondFile { .. })));
    let wrapping = Description { guest: u64::MAX - 10, user: 0, size: 0x1000, offset: 0 };
    assert!(matches!(one(wrapping), Err(MemoryError::Wraps { .. })));
    let two = [(described(0, 0x1000, 0), file(0x1000)), (described(0xfff, 0x1000, 0), file(0x1000))];
    assert!(matches!(Memory::map(&two, Limit::DEFAULT), Err(MemoryError::Overlap { .. })));
}

#[test]
fn only_what_is_given_is_mapped_and_counted() {
    let sparse = |len: u64| {
        let file = File::from(memfd_create("sparse", MFdFlags::empty()).unwrap());
        file.set_len(len).unwrap();
        file
    };
    let limit = Limit { bytes: 0x3000, regions: 3 };
    // Far inside a file of 32 TiB.
    let at = |guest, offset, size| (described(guest, size, offset), sparse(1 << 45));
    let far = (1 << 44) + 0x800;
    let memory = Memory::map(&[at(0, far, 0x1000)], limit).unwrap();
    assert_eq!(memory.mapped(), 0x2000, "it begins and ends within pages");
    let start = memory.guest(0, 1).unwrap().start;
    assert_eq!(start.addr().get() % 4096, 0x800);
    // SAFETY: the region has as many bytes.
    unsafe { start.add(0xfff).write(7) };
    let too_much = memory.with(&described(0x1000, 0x1001, 0), &sparse(1 << 45), limit).unwrap_err();
    assert!(matches!(too_much, MemoryError::TooMuch { asked: 0x4000, most: 0x3000 }), "{too_much}");
    assert_eq!(
        too_much.to_string(),
        "its front end would share 16 KiB of memory, and `max_memory` of this port leaves 12 KiB for that: set \
         that key (in MiB) higher in the switch's configuration for a guest as large"
    );
    let more = memory.with(&described(0x1000, 0x1000, 0), &sparse(0x1000), limit).unwrap();
    assert_eq!(more.mapped(), 0x3000);
    assert!(more.with(&described(0x2000, 1, 0), &sparse(0x1000), limit).is_err());
    for parts in [
        vec![at(0, 0, 1 << 45)],
        vec![at(0, 0, 0x2000), at(0x2000, 0, 0x1001)],
        vec![at(0, 0, u64::MAX >> 1), at(1 << 63, 0, u64::MAX >> 1)],
    ] {
        assert!(matches!(Memory::map(&parts, limit), Err(MemoryError::TooMuch { .. })));
    }
    let many: Vec<_> = (0..4).map(|at| (described(at << 12, 1, 0), sparse(1))).collect();
    assert!(matches!(Memory::map(&many, limit), Err(MemoryError::TooMany { regions: 4, most: 3 })));
    assert_eq!([size(1), size(1536), size(3 << 40)], ["1 bytes", "1.5 KiB", "3 TiB"]);
}

#[test]
fn regions_come_and_go() {
    let memory = Memory::default().with(&described(0, 0x1000, 0), &file(0x1000), Limit::DEFAULT).unwrap();
    let more = memory.with(&described(0x1000, 0x1000, 0), &file(0x1000), Limit::DEFAULT).unwrap();
    assert!(memory.guest(0x1000, 1).is_none());
    assert!(more.guest(0x1000, 1).is_some());
    let less = more.without(0, 0x1000).unwrap();
    assert!(less.guest(0, 1).is_none() && less.guest(0x1000, 1).is_some());
    assert!(less.without(0, 0x1000).is_none());
}
