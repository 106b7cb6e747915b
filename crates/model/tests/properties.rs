//! What holds for every value: routing ids, derived addresses, and text that reads back as what it was written from.

use std::{collections::HashSet, net::IpAddr};

use penstock_model::{
    Bdf, ByteSize, CpuSet, FunctionName, InterfaceAddress, Mac, RoutingId, Source, VfIndex, names::NicName,
    parse,
};
use proptest::prelude::*;

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac::new)
}

fn index() -> impl Strategy<Value = VfIndex> {
    (0..=VfIndex::MAX).prop_map(|index| VfIndex::new(index).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Against the sum written out on bus, device and function, as a person carries it.
    #[test]
    fn a_vf_is_where_the_specification_puts_it(pf: u16, offset: u16, stride: u16, index: u16) {
        let sum = u64::from(pf) + u64::from(offset) + u64::from(stride) * u64::from(index);
        let vf = RoutingId(pf).of_vf(offset, stride, index);
        if sum > 0xffff {
            prop_assert_eq!(vf, None);
        } else {
            let bdf = Bdf::new(0, vf.unwrap());
            let within = u64::from(pf & 0xff) + u64::from(offset) + u64::from(stride) * u64::from(index);
            prop_assert_eq!(u64::from(bdf.bus()), u64::from(pf >> 8) + within / 256);
            prop_assert_eq!(u64::from(bdf.device()) * 8 + u64::from(bdf.function()), within % 256);
        }
    }

    #[test]
    fn vfs_of_one_pf_never_share_an_address(pf: u16, offset: u16, stride in 1u16..64, a in 0u16..256, b in 0u16..256) {
        prop_assume!(a != b);
        let place = |index| RoutingId(pf).of_vf(offset, stride, index);
        prop_assert!(place(a).is_none() || place(a) != place(b));
    }

    #[test]
    fn a_vf_stays_in_its_pfs_domain(domain: u32, pf: u16, index in 0u16..300) {
        if let Some(vf) = Bdf::new(domain, RoutingId(pf)).of_vf(0x80, 2, index) {
            prop_assert_eq!(vf.domain(), domain);
        }
    }

    #[test]
    fn a_bdf_reads_back(domain: u32, id: u16) {
        let bdf = Bdf::new(domain, RoutingId(id));
        prop_assert_eq!(bdf.to_string().parse::<Bdf>().unwrap(), bdf);
    }

    #[test]
    fn a_derived_mac_can_be_owned_and_tells_its_index(pf in mac(), index in index()) {
        let derived = Mac::derived(pf, index);
        prop_assert!(!derived.is_multicast());
        prop_assert!(derived.is_local());
        prop_assert!(!derived.is_zero());
        let octets = derived.octets();
        prop_assert_eq!(u16::from(octets[0] >> 2) << 8 | u16::from(octets[5]), index.get());
        prop_assert_eq!(Mac::derived(pf, index), derived);
    }

    #[test]
    fn a_mac_reads_back(mac in mac()) {
        prop_assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        let dashes = mac.to_string().to_uppercase().replace(':', "-");
        prop_assert_eq!(dashes.parse::<Mac>().unwrap(), mac);
    }

    #[test]
    fn a_cpu_set_reads_back(cpus in proptest::collection::btree_set(0u32..2000, 0..80)) {
        let set = CpuSet(cpus);
        prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
    }

    #[test]
    fn a_size_reads_back(bytes: u64, shift in 0u32..50) {
        for size in [ByteSize(bytes), ByteSize(bytes >> shift << shift)] {
            prop_assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
    }

    #[test]
    fn a_function_reads_back(nic in "[A-Za-z0-9][A-Za-z0-9._-]{0,47}", vf in proptest::option::of(index())) {
        let name = FunctionName { nic: nic.parse::<NicName>().unwrap(), vf };
        prop_assert_eq!(name.to_string().parse::<FunctionName>().unwrap(), name);
    }

    #[test]
    fn an_address_reads_back(ip: IpAddr, prefix in 0u8..=128) {
        match InterfaceAddress::new(ip, prefix) {
            Some(address) => prop_assert_eq!(address.to_string().parse::<InterfaceAddress>().unwrap(), address),
            None => prop_assert!(ip.is_ipv4() && prefix > 32),
        }
    }

    /// Numbers with a sign, other digits, or more than a number are no names for the same thing.
    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,24}") {
        let _ = text.parse::<Bdf>();
        let _ = text.parse::<Mac>();
        let _ = text.parse::<CpuSet>();
        let _ = text.parse::<ByteSize>();
        let _ = text.parse::<FunctionName>();
        let _ = text.parse::<InterfaceAddress>();
    }
}

#[test]
fn all_the_derived_macs_of_a_pf_differ() {
    let pf = Mac::new([0x0c, 0xc4, 0x7a, 0x9a, 0x61, 0xea]);
    let all: HashSet<Mac> =
        (0..=VfIndex::MAX).map(|index| Mac::derived(pf, VfIndex::new(index).unwrap())).collect();
    assert_eq!(all.len(), usize::from(VfIndex::MAX) + 1);
}

#[test]
fn neighbouring_pfs_derive_apart() {
    let first = VfIndex::new(0).unwrap();
    let all: HashSet<[u8; 4]> = (0..=255)
        .map(|last| {
            let [_, a, b, c, d, _] =
                Mac::derived(Mac::new([0x0c, 0xc4, 0x7a, 0x9a, 0x61, last]), first).octets();
            [a, b, c, d]
        })
        .collect();
    assert_eq!(all.len(), 256);
}

/// Models in which a function stands in one of the ways that YAML has, with what stands between its NIC and `#`.
fn with_a_function_cut(how: usize, gap: &str, index: u16, quote: &str) -> String {
    let function = format!("{quote}NET0{quote}{gap}#{index}");
    let functions = match how {
        0 => format!("\n      - {function}"),
        1 => format!("\n      - NET0#0\n      - {function}\n      - NET0#1"),
        2 => format!("\n      - pf: {function}\n        address: 10.0.0.1/24"),
        3 => format!("\n      - address: 10.0.0.1/24\n        vf: {function}"),
        4 => format!(" [{function}]"),
        5 => format!(" [{function}\n      ]"),
        6 => format!(" [NET0#0, {function}, NET0#1]"),
        7 => format!(" [{{pf: {function}, address: 10.0.0.1/24}}]"),
        8 => format!(" [{{pf: {function}\n      , address: 10.0.0.1/24}}]"),
        _ => format!("\n      - ? pf\n        : {function}"),
    };
    format!("nics: {{NET0: {{vfs: 8}}}}\nguests:\n  other:\n  a:\n    functions:{functions}\n  last:\n")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// White space before the `#` never makes a PF of a VF: what was meant is told, where it stands.
    #[test]
    fn a_function_and_a_number_in_a_comment_are_refused(
        how in 0usize..10, gap in "[ \t]{1,3}", index in 0u16..9000, quote in "['\"]?",
    ) {
        let text = with_a_function_cut(how, &gap, index, &quote);
        let found = parse(&Source::new("m.yaml", text.clone())).expect_err(&text);
        let meant = format!("did you mean NET0#{index}?");
        prop_assert!(found.0[0].hint.as_ref().is_some_and(|hint| hint.contains(&meant)), "{text}{found:?}");
        let line = text.lines().position(|line| line.contains(&format!("{gap}#{index}"))).unwrap() + 1;
        let shown = found.render(&Source::new("m.yaml", text.clone()), false);
        let place = format!("--> m.yaml:{line}:");
        prop_assert!(shown.contains(&place), "{shown}");
    }
}
