use proptest::prelude::*;

use super::*;

fn answer(parts: &[(usize, &[u8])]) -> IdentifyData {
    let mut bytes = [0; LENGTH];
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    bytes
}

/// What QEMU's controller answered.
const QEMU: &str = include_str!("qemu_11.1.txt");

fn of_qemu(question: &str) -> IdentifyData {
    let mut sections = QEMU.split("= ").skip(1);
    let lines = sections.find_map(|section| section.strip_prefix(question)).expect("it was asked that");
    let mut bytes = [0; LENGTH];
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let numbers: Vec<usize> =
            line.split(' ').map(|number| usize::from_str_radix(number, 16).unwrap()).collect();
        let (at, part) = numbers.split_first().unwrap();
        part.iter().enumerate().for_each(|(place, byte)| bytes[at + place] = *byte as u8);
    }
    bytes
}

#[test]
fn what_qemu_answers() {
    let identity = controller(&of_qemu("01:0"));
    let expected =
        ControllerIdentity { controller: 0, attaches_namespaces: true, manages_virtualization: true };
    assert_eq!(identity, expected);
    let resources = FlexibleResources { total: 6, most: 3, held_by_pf: 0 };
    assert_eq!(primary_capabilities(&of_qemu("14:0")), (resources, resources));
    let vf = |index, online, queues, interrupts| SecondaryController {
        vf: VfIndex::new(index).unwrap(),
        controller: index + 1,
        online,
        queues,
        interrupts,
    };
    let list = secondary_list(&of_qemu("15:0")).unwrap();
    assert_eq!(list, SecondaryList { vfs: vec![vf(0, true, 3, 2), vf(1, false, 2, 0)], next: None });
    assert_eq!(namespace_list(&of_qemu("10:0"), 0).unwrap(), [1, 2, 3]);
    assert_eq!(namespace_list(&of_qemu("02:0"), 0).unwrap(), [1]);
    let size = ByteSize(64 << 20);
    assert_eq!(namespace(&of_qemu("11:2")).unwrap(), Some(NamespaceIdentity { size, shared: true }));
    assert_eq!(controller_list(&of_qemu("12:2")).unwrap(), [1].into());
}

#[test]
fn a_controller_that_manages_nothing() {
    let identity = controller(&answer(&[(78, &[7, 1]), (256, &[0x57, 0])]));
    let expected =
        ControllerIdentity { controller: 0x107, attaches_namespaces: false, manages_virtualization: false };
    assert_eq!(identity, expected);
}

#[test]
fn resources_that_do_not_move_are_none() {
    // Interrupt vectors alone.
    let bytes = answer(&[(4, &[2]), (32, &[9, 0, 0, 0]), (64, &[5, 0, 1, 0]), (72, &[2, 0]), (76, &[3, 0])]);
    let (queues, interrupts) = primary_capabilities(&bytes);
    assert_eq!(queues, FlexibleResources::default());
    assert_eq!(interrupts, FlexibleResources { total: 0x10005, most: 3, held_by_pf: 2 });
}

#[test]
fn secondary_controllers_that_are_no_vfs_are_left_out() {
    let bytes = answer(&[(0, &[2]), (32, &[1, 0]), (64, &[2, 0, 0, 0, 1, 0, 0, 0, 5, 0, 3, 0, 4, 0])]);
    let list = secondary_list(&bytes).unwrap();
    let vf = VfIndex::new(4).unwrap();
    let expected = SecondaryController { vf, controller: 2, online: true, queues: 3, interrupts: 4 };
    assert_eq!(list, SecondaryList { vfs: vec![expected], next: None });
}

#[test]
fn a_full_secondary_list_goes_on() {
    let mut bytes = answer(&[(0, &[127])]);
    for (number, entry) in bytes.chunks_exact_mut(ENTRY).enumerate().skip(1) {
        entry[0] = number as u8;
        entry[8] = number as u8;
    }
    let list = secondary_list(&bytes).unwrap();
    assert_eq!((list.vfs.len(), list.next), (127, Some(128)));
}

#[test]
fn what_contradicts_the_specification_is_refused() {
    let list = "secondary controller list";
    let refused = |parts: &[(usize, &[u8])]| secondary_list(&answer(parts)).unwrap_err();
    assert_eq!(refused(&[(0, &[128])]), MalformedIdentify::TooLong { list, said: 128, most: 127 });
    let unordered = refused(&[(0, &[2]), (32, &[3]), (64, &[3])]);
    assert_eq!(unordered, MalformedIdentify::Unordered { list, before: 3, next: 3 });
    let no_vf = refused(&[(0, &[1]), (32, &[1]), (40, &[0xff, 0xff])]);
    assert_eq!(no_vf, MalformedIdentify::NoSuchVf { controller: 1, number: 0xffff });
    assert!(controller_list(&answer(&[(0, &[0, 8])])).is_err());
    assert!(controller_list(&answer(&[(0, &[2, 0, 1, 0, 1, 0])])).is_err());
    assert!(namespace_list(&answer(&[(0, &[4])]), 4).is_err());
}

#[test]
fn lists_end_where_they_say() {
    let controllers = controller_list(&answer(&[(0, &[2, 0, 1, 0, 5, 1, 9, 9])])).unwrap();
    assert_eq!(controllers, [1, 0x105].into());
    assert_eq!(controller_list(&list_of(0x203)).unwrap(), [0x203].into());
    assert_eq!(namespace_list(&answer(&[(0, &[1, 0, 0, 0, 4]), (12, &[9])]), 0).unwrap(), [1, 4]);
}

#[test]
fn the_size_of_a_namespace_is_that_of_the_format_in_use() {
    let blocks: &[u8] = &[0, 0, 2];
    // Format 33 has 4096 bytes, and format 1 has 512.
    let bytes = answer(&[(0, blocks), (26, &[0x41]), (30, &[1]), (134, &[9]), (262, &[12])]);
    let expected = NamespaceIdentity { size: ByteSize(512 << 20), shared: true };
    assert_eq!(namespace(&bytes), Ok(Some(expected)));
    assert_eq!(namespace(&[0; LENGTH]), Ok(None));
    for shift in [0, 8, 63, 64, 200] {
        let bytes = answer(&[(0, blocks), (130, &[shift])]);
        assert!(matches!(namespace(&bytes), Err(MalformedIdentify::NoSize { .. })), "{shift}");
    }
}

proptest! {
    // Each draws 4096 bytes.
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), LENGTH), few in 0u8..4) {
        let mut bytes: IdentifyData = bytes.try_into().unwrap();
        let _ = (controller(&bytes), primary_capabilities(&bytes), namespace(&bytes));
        // So that some lists are short enough to be read.
        (bytes[0], bytes[1]) = (few, 0);
        if let Ok(list) = secondary_list(&bytes) {
            prop_assert!(list.vfs.len() <= usize::from(few));
        }
        if let Ok(list) = controller_list(&bytes) {
            prop_assert_eq!(list.len(), usize::from(few));
        }
        if let Ok(list) = namespace_list(&bytes, 0) {
            prop_assert!(list.is_sorted() && !list.contains(&0));
        }
    }
}
