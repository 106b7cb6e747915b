//! The exact bytes of requests, and answers as drivers give them. Numbers are little-endian, as on all machines that
//! Penstock is built for.

use std::time::{Duration, Instant};

use netlink_packet_core::Emitable;
use penstock_model::{LinkState, Mac, TxRate, VfAttribute, VlanId, VlanProtocol, VlanQos};
use proptest::prelude::*;

use super::{vf::vf_request, *};

fn bytes(message: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// `struct ifinfomsg` for interface 7.
fn header(family: u8) -> Vec<u8> {
    [vec![family, 0, 0, 0], words(&[7, 0, 0])].concat()
}

fn vf_bytes(attribute: VfAttribute) -> Vec<u8> {
    bytes(&vf_request(7, &[(VfIndex::new(3).unwrap(), attribute)]))
}

/// The request as `ip link set dev PF vf 3 ...` lays it out (iproute2, `ip/iplink.c`, `iplink_parse_vf`): a list
/// (22) of one VF (1) with the one attribute.
fn expected(kind: u16, value: &[u8]) -> Vec<u8> {
    [header(0), attribute(22, &attribute(1, &attribute(kind, value)))].concat()
}

#[test]
fn a_mac_travels_in_32_octets() {
    let mac: Mac = "02:00:00:00:01:04".parse().unwrap();
    let mut value = words(&[3]);
    value.extend([2, 0, 0, 0, 1, 4]);
    value.resize(36, 0);
    assert_eq!(vf_bytes(VfAttribute::Mac(mac)), expected(1, &value));
}

#[test]
fn several_travel_as_one_list_in_their_order() {
    let vf = |index| VfIndex::new(index).unwrap();
    let wanted = [
        (vf(3), VfAttribute::Trust(true)),
        (vf(3), VfAttribute::Spoofchk(false)),
        (vf(0), VfAttribute::Trust(false)),
    ];
    let one = |kind, vf, on| attribute(1, &attribute(kind, &words(&[vf, on])));
    let list = [one(9, 3, 1), one(4, 3, 0), one(9, 0, 0)].concat();
    assert_eq!(bytes(&vf_request(7, &wanted)), [header(0), attribute(22, &list)].concat());
}

#[test]
fn a_vlan_travels_as_a_list_with_its_protocol_in_network_order() {
    let set = |protocol| VfAttribute::Vlan {
        id: VlanId::new(100).unwrap(),
        qos: VlanQos::new(5).unwrap(),
        protocol,
    };
    for (protocol, octets) in [(VlanProtocol::Dot1q, [0x81, 0x00]), (VlanProtocol::Dot1ad, [0x88, 0xa8])] {
        let info = [words(&[3, 100, 5]), octets.to_vec(), vec![0, 0]].concat();
        assert_eq!(vf_bytes(set(protocol)), expected(12, &attribute(1, &info)));
    }
}

#[test]
fn switches_states_and_rates_travel_as_numbers() {
    for (attribute, kind, value) in [
        (VfAttribute::Spoofchk(true), 4, words(&[3, 1])),
        (VfAttribute::Spoofchk(false), 4, words(&[3, 0])),
        (VfAttribute::Trust(true), 9, words(&[3, 1])),
        (VfAttribute::LinkState(LinkState::Auto), 5, words(&[3, 0])),
        (VfAttribute::LinkState(LinkState::Enable), 5, words(&[3, 1])),
        (VfAttribute::LinkState(LinkState::Disable), 5, words(&[3, 2])),
    ] {
        assert_eq!(vf_bytes(attribute), expected(kind, &value), "{attribute}");
    }
    let rate = VfAttribute::Rate { min: TxRate(100), max: TxRate(1000) };
    assert_eq!(vf_bytes(rate), expected(6, &words(&[3, 100, 1000])));
}

/// `bridge link set dev PF hwmode veb self` (iproute2, `bridge/link.c`, `brlink_modify`): flags "self" and the mode.
#[test]
fn a_switch_mode_goes_to_the_device_itself() {
    for (mode, number) in [(SwitchMode::Veb, 0_u16), (SwitchMode::Vepa, 1)] {
        let of_family = [attribute(0, &2_u16.to_le_bytes()), attribute(1, &number.to_le_bytes())];
        let request = switch::switch_request(7, mode).unwrap();
        assert_eq!(bytes(&request), [header(7), attribute(26, &of_family.concat())].concat());
    }
}

/// A VF as igb reports it: trust is known, the rest of the settings too.
fn vf_info(vf: u32, protocol: u16) -> Vec<u8> {
    let mut mac = words(&[vf]);
    mac.extend([2, 0, 0, 0, 1, vf as u8]);
    mac.resize(36, 0);
    let vlan = [words(&[vf, 100, 5]), protocol.to_be_bytes().to_vec(), vec![0, 0]].concat();
    let info = [
        attribute(1, &mac),
        attribute(2, &words(&[vf, 100, 5])),
        attribute(6, &words(&[vf, 10, 1000])),
        attribute(3, &words(&[vf, 1000])),
        attribute(4, &words(&[vf, 1])),
        attribute(5, &words(&[vf, 2])),
        attribute(9, &words(&[vf, u32::MAX])),
        attribute(99, &[1, 2, 3]),
        attribute(12, &attribute(1, &vlan)),
    ];
    attribute(1, &info.concat())
}

fn link(family: u8, attributes: &[u8]) -> Vec<u8> {
    let mut payload = header(family);
    payload[2..4].copy_from_slice(&1_u16.to_le_bytes());
    payload[8..12].copy_from_slice(&0x1_0043_u32.to_le_bytes());
    payload.extend(attributes);
    wire::request(16, 0, 1, &payload)
}

#[test]
fn vfs_are_read_as_the_driver_reports_them() {
    let list = [vf_info(0, 0x8100), vf_info(1, 0x88a8)].concat();
    let reading = read(&link(0, &attribute(22, &list))).unwrap();
    let state = |mac: &str, vlan_proto| VfState {
        mac: mac.parse().unwrap(),
        vlan: VlanId::new(100).unwrap(),
        qos: VlanQos::new(5).unwrap(),
        vlan_proto,
        spoofchk: Some(true),
        min_tx_rate: TxRate(10),
        max_tx_rate: TxRate(1000),
        link_state: Some(LinkState::Disable),
        ..VfState::default()
    };
    let vf = |index| VfIndex::new(index).unwrap();
    assert_eq!(
        reading.vfs,
        [
            (vf(0), state("02:00:00:00:01:00", VlanProtocol::Dot1q)),
            (vf(1), state("02:00:00:00:01:01", VlanProtocol::Dot1ad)),
        ]
    );
}

#[test]
fn an_interface_is_listed_whatever_it_is_called() {
    let mac = attribute(1, &[2, 0, 0, 0, 0, 1]);
    let called = |name: &[u8]| {
        let attributes = [attribute(3, name), mac.clone(), attribute(4, &words(&[1500]))].concat();
        let report = read(&link(0, &attributes)).unwrap().interfaces.remove(0);
        report.interface.name.to_string()
    };
    assert_eq!(called(b"vf0\0"), "vf0");
    for name in [&b"-x\0"[..], "\u{e9}\0".as_bytes(), b"\xff\0", b"\x1b[2J\0", b"a%b\0"] {
        assert_eq!(called(name), "index7");
    }
}

/// `IFLA_VF_STATS` as `rtnl_fill_vfinfo` lays it out: eight numbers of 64 bits, with a hole in their kinds.
fn vf_stats(from: u64) -> Vec<u8> {
    let kinds = [0_u16, 1, 2, 3, 4, 5, 7, 8];
    let one = |(kind, count): (&u16, u64)| attribute(*kind, &count.to_le_bytes());
    attribute(8, &kinds.iter().zip(from..).map(one).collect::<Vec<_>>().concat())
}

#[test]
fn counters_of_vfs_are_read_and_a_list_that_is_cut_off_tells_of_those_that_are_whole() {
    let one = |vf: u32, from| {
        let mut mac = words(&[vf]);
        mac.resize(36, 0);
        attribute(1, &[attribute(1, &mac), vf_stats(from)].concat())
    };
    let list = [one(1, 20), one(0, 10)].concat();
    let read_list = |list: &[u8]| read(&link(0, &attribute(22, list))).unwrap().vf_counters;
    let counters = |from| VfCounters {
        rx_packets: from,
        tx_packets: from + 1,
        rx_bytes: from + 2,
        tx_bytes: from + 3,
        broadcast: Some(from + 4),
        multicast: Some(from + 5),
        rx_dropped: Some(from + 6),
        tx_dropped: Some(from + 7),
    };
    let vf = |index| VfIndex::new(index).unwrap();
    assert_eq!(read_list(&list), [(vf(1), counters(20)), (vf(0), counters(10))]);
    assert_eq!(read_list(&list[..list.len() - 4]), [(vf(1), counters(20))]);
    // Asked without statistics.
    assert_eq!(read(&link(0, &attribute(22, &vf_info(0, 0x8100)))).unwrap().vf_counters, []);
}

#[test]
fn counters_of_an_interface_are_read_in_the_order_of_the_kernels_struct() {
    let stats: Vec<u8> = (1..=25_u64).flat_map(u64::to_le_bytes).collect();
    let told = |stats: &[u8]| read(&link(0, &attribute(23, stats))).unwrap().interface_counters;
    let expected = InterfaceCounters {
        rx_packets: 1,
        tx_packets: 2,
        rx_bytes: 3,
        tx_bytes: 4,
        rx_errors: 5,
        tx_errors: 6,
        rx_dropped: 7,
        tx_dropped: 8,
        multicast: 9,
    };
    assert_eq!(told(&stats), [expected]);
    assert_eq!(told(&stats[..64]), [], "one that is too short");
}

#[test]
fn an_interface_is_read_with_its_device_and_port() {
    let attributes = [
        attribute(3, b"ens1f0\0"),
        attribute(1, &[0x0c, 0xc4, 0x7a, 0x9a, 0x61, 0xea]),
        attribute(54, &[0x0c, 0xc4, 0x7a, 0x9a, 0x61, 0xeb]),
        attribute(4, &words(&[1500])),
        attribute(33, &[1]),
        attribute(30, &words(&[2])),
        attribute(38, b"p0\0"),
        attribute(56, b"0000:04:00.0\0"),
    ];
    let reading = read(&link(0, &attributes.concat())).unwrap();
    let [report] = &reading.interfaces[..] else { panic!("{reading:?}") };
    assert_eq!((report.index, report.interface.name.as_str()), (7, "ens1f0"));
    assert_eq!(report.interface.mac.to_string(), "0c:c4:7a:9a:61:ea");
    assert_eq!(report.permanent_mac.unwrap().to_string(), "0c:c4:7a:9a:61:eb");
    assert_eq!(report.device.as_deref(), Some("0000:04:00.0"));
    assert_eq!(report.port_name.as_deref(), Some("p0"));
    assert_eq!((report.interface.up, report.interface.carrier), (true, Some(true)));
    assert_eq!(report.promiscuous, Some(true));
}

#[test]
fn an_embedded_switch_is_read_from_the_bridge_family_only() {
    let mode = attribute(26, &[attribute(0, &[2, 0]), attribute(1, &[1, 0])].concat());
    assert_eq!(read(&link(7, &mode)).unwrap().switches, [(7, SwitchMode::Vepa)]);
    assert_eq!(read(&link(0, &mode)).unwrap().switches, []);
    // BRIDGE_MODE_UNDEF, as ixgbe gives it while it has no VFs.
    let none = attribute(26, &attribute(1, &[0xff, 0xff]));
    assert_eq!(read(&link(7, &none)).unwrap().switches, []);
}

#[test]
fn the_kernels_own_words_are_found() {
    let words_of = |flags: u16, payload: &[u8]| read(&wire::request(2, flags, 1, payload)).unwrap().errors;
    let said = attribute(1, b"mtu greater than device maximum\0");
    let capped = [(-22_i32).to_le_bytes().to_vec(), vec![0; 16], said.clone()].concat();
    let expected = [(Errno::EINVAL, Some("mtu greater than device maximum".to_owned()))];
    assert_eq!(words_of(0x300, &capped), expected);
    let whole = [(-22_i32).to_le_bytes().to_vec(), words(&[22]), vec![0; 20], said].concat();
    assert_eq!(words_of(0x200, &whole), expected);
    assert_eq!(words_of(0, &whole), [(Errno::EINVAL, None)]);
    assert_eq!(words_of(0, &[0; 20]), []);
}

#[test]
fn a_broken_frame_is_told() {
    assert!(read(&[1, 2, 3]).is_err());
    assert!(read(&words(&[400, 0, 0, 0])).is_err());
    assert!(read(&words(&[0, 0, 0, 0])).is_err());
    assert_eq!(read(&[]).unwrap(), Reading::default());
}

/// As kernels do that let the 16 bits of its length wrap.
#[test]
fn a_list_of_vfs_that_does_not_fit_is_not_taken_for_whole() {
    let list = |told: u32| attribute(22, &(0..told).flat_map(|vf| vf_info(vf, 0x8100)).collect::<Vec<u8>>());
    let one = list(1).len() - 4;
    let fits = (usize::from(u16::MAX) / one) as u32;
    let cut = |told: u32, count: u32| {
        let frame = link(0, &[attribute(21, &words(&[count])), list(told)].concat());
        vf::cut_off(&wire::Message { kind: 16, flags: 0, sequence: 1, payload: &frame[16..] })
    };
    let why = cut(2, fits + 3).unwrap();
    assert!(why.contains(&format!("2 of {} VFs", fits + 3)), "{why}");
    assert_eq!(cut(2, 2), None);
    assert_eq!(cut(2, 3), None, "a driver tells nothing of one that is being reset");
    assert_eq!(cut(fits, fits), None);
    let none = link(0, &attribute(21, &words(&[4096])));
    assert_eq!(vf::cut_off(&wire::Message { kind: 16, flags: 0, sequence: 1, payload: &none[16..] }), None);
}

/// With `ipv6.disable=1` the kernel answers who asks for routes of IPv6 with those of IPv4.
#[test]
fn routes_of_another_family_than_asked_for_are_dropped() {
    use netlink_packet_route::AddressFamily;
    use nix::libc;
    let route = |family: u8| {
        [vec![family, 0, 0, 0, 254, 3, 0, 1], words(&[0]), attribute(libc::RTA_OIF, &words(&[7]))].concat()
    };
    for (family, others) in [(AddressFamily::Inet, 10), (AddressFamily::Inet6, 2)] {
        for (of, is) in [(u8::from(family), true), (others, false)] {
            let payload = route(of);
            let message =
                wire::Message { kind: libc::RTM_NEWROUTE, flags: 0, sequence: 1, payload: &payload };
            assert_eq!(route::of_family(family, &message, route::route).is_some(), is, "{family:?} {of}");
        }
    }
    let refused = |errno| NetlinkError::answered("x", errno, None);
    for errno in [Errno::EAFNOSUPPORT, Errno::EOPNOTSUPP] {
        assert!(route::lacks_family(&refused(errno)));
    }
    assert!(!route::lacks_family(&refused(Errno::EPERM)));
}

#[test]
fn udev_is_waited_for_only_where_it_runs() {
    let tree = tempfile::tempdir().unwrap();
    let run = tree.path().join("run/udev");
    std::fs::create_dir_all(run.join("data")).unwrap();
    let took = |index: u32, allowed: Duration| {
        let started = Instant::now();
        wait_for_udev(&crate::Root::at(tree.path()), index, started + allowed);
        started.elapsed()
    };
    let (long, short) = (Duration::from_secs(20), Duration::from_millis(30));
    assert!(took(7, long) < long, "it does not run");
    std::fs::write(run.join("control"), "").unwrap();
    assert!(took(7, short) >= short, "it has not seen the interface");
    std::fs::write(run.join("data/n7"), "I:1\n").unwrap();
    assert!(took(7, long) < long);
}

/// A message of devlink's family, whose number here is 21, of a device on PCI.
fn of_devlink(command: u8, bus: &[u8], attributes: &[u8]) -> Vec<u8> {
    let handle = [attribute(1, bus), attribute(2, b"0000:08:00.0\0")].concat();
    wire::request(21, 0, 1, &[&[command, 1, 0, 0], &handle[..], attributes].concat())
}

fn devlink_parts(datagram: &[u8]) -> Vec<DevlinkPart> {
    let device: Bdf = "0000:08:00.0".parse().unwrap();
    let told = read(datagram).unwrap().devlink;
    assert!(told.iter().all(|(of, _)| *of == device), "{told:?}");
    told.into_iter().map(|(_, part)| part).collect()
}

/// As `devlink_nl_eswitch_fill` lays it out (`net/devlink/dev.c`).
#[test]
fn the_mode_of_an_embedded_switch_is_read_with_what_goes_with_it() {
    use penstock_model::inventory::{Eswitch, EswitchEncapMode, EswitchInlineMode, EswitchMode};
    let whole = [attribute(25, &[1, 0]), attribute(26, &[3]), attribute(62, &[1])].concat();
    let switchdev = Eswitch {
        mode: EswitchMode::Switchdev,
        inline_mode: Some(EswitchInlineMode::Transport),
        encap_mode: Some(EswitchEncapMode::Basic),
    };
    assert_eq!(devlink_parts(&of_devlink(29, b"pci\0", &whole)), [DevlinkPart::Eswitch(switchdev)]);
    // A driver without the calls for the others, and one with numbers of a later kernel.
    let legacy = Eswitch { mode: EswitchMode::Legacy, inline_mode: None, encap_mode: None };
    for rest in [vec![], [attribute(26, &[9]), attribute(62, &[9])].concat()] {
        let message = of_devlink(29, b"pci\0", &[attribute(25, &[0, 0]), rest].concat());
        assert_eq!(devlink_parts(&message), [DevlinkPart::Eswitch(legacy)]);
    }
    let unknown = of_devlink(29, b"pci\0", &attribute(25, &[7, 0]));
    assert_eq!(devlink_parts(&unknown), [DevlinkPart::UnknownMode(7)]);
    // A driver without an embedded switch; a device on another bus.
    assert_eq!(devlink_parts(&of_devlink(29, b"pci\0", &[])), []);
    assert_eq!(devlink_parts(&of_devlink(29, b"netdevsim\0", &whole)), []);
    assert_eq!(devlink_parts(&of_devlink(3, b"pci\0", &[])), [DevlinkPart::Device]);
}

/// What `devlink_nl_eswitch_set_doit` reads (`net/devlink/dev.c`): the handle, and the mode as a number of 16 bits.
#[test]
fn a_mode_is_set_by_the_numbers_that_it_is_read_by() {
    use netlink_packet_core::Emitable;
    use penstock_model::inventory::{Eswitch, EswitchMode};
    let device = "0000:08:00.0".parse().unwrap();
    let modes = [EswitchMode::Legacy, EswitchMode::Switchdev, EswitchMode::SwitchdevInactive];
    for (mode, number) in modes.into_iter().zip([0, 1, 2]) {
        let set = devlink::eswitch_setting(device, mode);
        let mut bytes = vec![0; set.buffer_len()];
        set.emit(&mut bytes);
        let expected = of_devlink(30, b"pci\0", &attribute(25, &[number, 0]));
        // Behind the header of netlink: the command with what goes with it.
        assert_eq!(bytes, expected[16..], "{mode}");
        // The answer to the question after it, from the same attributes.
        let told = devlink_parts(&of_devlink(29, b"pci\0", &attribute(25, &[number, 0])));
        let eswitch = Eswitch { mode, inline_mode: None, encap_mode: None };
        assert_eq!(told, [DevlinkPart::Eswitch(eswitch)]);
    }
}

/// As `devlink_info_version_put` lays them out (`net/devlink/dev.c`).
#[test]
fn versions_are_read_by_whether_they_run() {
    let version = |kind: u16, name: &[u8], value: &[u8]| {
        attribute(kind | 0x8000, &[attribute(103, name), attribute(104, value)].concat())
    };
    let attributes = [
        attribute(98, b"mlx5_core\0"),
        version(100, b"fw.psid\0", b"MT_0000000359\0"),
        version(101, b"fw\0", b"22.41.1000\0"),
        version(101, b"fw.mgmt\0", b" 1.\n2 \0"),
        version(102, b"fw\0", b"22.43.1014\0"),
        attribute(101 | 0x8000, &attribute(103, b"nameless\0")),
    ];
    let [DevlinkPart::Versions(versions)] =
        &devlink_parts(&of_devlink(51, b"pci\0", &attributes.concat()))[..]
    else {
        panic!()
    };
    let pairs = |of: &std::collections::BTreeMap<String, String>| {
        of.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(pairs(&versions.fixed), "fw.psid=MT_0000000359");
    assert_eq!(pairs(&versions.running), "fw=22.41.1000 fw.mgmt=1.2");
    assert_eq!(pairs(&versions.stored), "fw=22.43.1014");
}

/// As `devlink_nl_health_reporter_fill` lays it out (`net/devlink/health.c`).
#[test]
fn health_reporters_are_read_of_devices_and_of_ports() {
    use penstock_model::inventory::HealthReporter;
    let reporter = |name: &[u8], state: u8, errors: u64, recoveries: u64| {
        let inner = [
            attribute(115, name),
            attribute(116, &[state]),
            attribute(117, &errors.to_le_bytes()),
            attribute(118, &recoveries.to_le_bytes()),
        ];
        attribute(114 | 0x8000, &inner.concat())
    };
    let expected = |port, name: &str, healthy, errors, recoveries| {
        DevlinkPart::Health(HealthReporter { port, name: name.to_owned(), healthy, errors, recoveries })
    };
    let of_device = of_devlink(52, b"pci\0", &reporter(b"fw_fatal\0", 1, 3, 2));
    assert_eq!(devlink_parts(&of_device), [expected(None, "fw_fatal", false, 3, 2)]);
    let of_port = [attribute(3, &words(&[65535])), reporter(b"tx\0", 0, 0, 0)].concat();
    assert_eq!(devlink_parts(&of_devlink(52, b"pci\0", &of_port)), [expected(Some(65535), "tx", true, 0, 0)]);
    // One without a state says nothing.
    let none = attribute(114 | 0x8000, &attribute(115, b"fw\0"));
    assert_eq!(devlink_parts(&of_devlink(52, b"pci\0", &none)), []);
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = read(&bytes);
    }

    /// Framed rightly, so that what is inside is reached.
    #[test]
    fn no_payload_makes_reading_panic(
        kind in prop::sample::select(vec![2_u16, 3, 16, 20]),
        flags in any::<u16>(),
        payload in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        let _ = read(&wire::request(kind, flags, 1, &payload));
    }

    /// devlink's likewise, with its handle and any attributes of the kinds that are read.
    #[test]
    fn no_attributes_make_reading_devlink_panic(
        command in prop::sample::select(vec![3_u8, 29, 51, 52]),
        attributes in prop::collection::vec(
            (prop::sample::select(vec![3_u16, 25, 26, 62, 100, 101, 102, 114]), prop::collection::vec(any::<u8>(), 0..40)),
            0..6,
        ),
    ) {
        let attributes: Vec<u8> = attributes.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
        let _ = read(&of_devlink(command, b"pci\0", &attributes));
    }

    /// A true answer with some octets changed or its end cut off.
    #[test]
    fn a_damaged_answer_makes_no_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let list = attribute(22, &[vf_info(0, 0x8100), vf_info(1, 0x88a8)].concat());
        let mut bytes = link(0, &[attribute(3, b"eth0\0"), list].concat());
        for (at, octet) in changes {
            let at = at.index(bytes.len());
            bytes[at] = octet;
        }
        let _ = read(&bytes);
        let _ = read(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn a_vf_reads_back_as_it_was_written(vf in 0..=VfIndex::MAX, octets in any::<[u8; 6]>()) {
        let request = vf_request(7, &[(VfIndex::new(vf).unwrap(), VfAttribute::Mac(Mac::new(octets)))]);
        let reading = read(&wire::request(16, 0, 1, &bytes(&request))).unwrap();
        prop_assert_eq!(reading.vfs.len(), 1);
        prop_assert_eq!(reading.vfs[0].0.get(), vf);
        prop_assert_eq!(reading.vfs[0].1.mac, Mac::new(octets));
    }
}
