//! Snapshots to render.

use std::collections::BTreeMap;

use penstock_model::{
    Bdf, GuestKind, Outcome, VfIndex,
    inventory::{InterfaceCounters, PortCounters, VfCounters},
};
use penstock_report::metrics::{
    Area, DriftMetrics, FunctionMetrics, GuestMetrics, GuestState, Identity, InterfaceMetrics, PfMetrics,
    PortMetrics, ProgressMetrics, RunMetrics, RunOutcome, RunsMetrics, Snapshot, VerificationMetrics,
};

pub fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

/// Counters that are all different.
pub fn counters(from: u64) -> InterfaceCounters {
    InterfaceCounters {
        rx_packets: from + 1,
        tx_packets: from + 2,
        rx_bytes: from + 3,
        tx_bytes: from + 4,
        rx_errors: from + 5,
        tx_errors: from + 6,
        rx_dropped: from + 7,
        tx_dropped: from + 8,
        multicast: from + 9,
    }
}

/// A PF with two VFs: one in a container, one in a VM, whose own NIC has a port that drops.
pub fn small() -> Snapshot {
    let pf = bdf("0000:04:00.0");
    let identity = |at: &str, vf: Option<u16>| {
        let vf = vf.and_then(VfIndex::new);
        let name = vf.map_or("NET0".to_owned(), |vf| format!("NET0#{vf}"));
        Identity { bdf: bdf(at), pf, vf, function: Some(name.parse().unwrap()) }
    };
    let interface = |name: &str, carrier, speed, from| InterfaceMetrics {
        name: name.parse().unwrap(),
        up: true,
        carrier: Some(carrier),
        speed,
        counters: Some(counters(from)),
    };
    let vf = |at, index, driver: &str, guest: &str| FunctionMetrics {
        identity: identity(at, Some(index)),
        driver: Some(driver.to_owned()),
        guest: Some(guest.parse().unwrap()),
        iommu_group: Some(30 + u32::from(index)),
        interface: None,
        counters: Some(VfCounters {
            rx_packets: 10,
            tx_packets: 20,
            rx_bytes: 640,
            tx_bytes: u64::MAX,
            broadcast: Some(3),
            multicast: None,
            rx_dropped: Some(0),
            tx_dropped: Some(1),
        }),
        pf: None,
    };
    let functions = vec![
        FunctionMetrics {
            identity: identity("0000:04:00.0", None),
            driver: Some("ixgbe".to_owned()),
            guest: None,
            iommu_group: None,
            interface: Some(interface("ens1f0", true, Some(10_000), 100)),
            counters: None,
            pf: Some(PfMetrics { vfs: 2, vfs_max: 63, counts_vfs: Some(true) }),
        },
        FunctionMetrics {
            interface: Some(interface("net0", false, None, 200)),
            ..vf("0000:04:10.0", 0, "ixgbevf", "linux-2")
        },
        vf("0000:04:10.2", 1, "vfio-pci", "rt-2"),
    ];
    let guest = |kind, state, since| GuestMetrics { kind: Some(kind), state, since };
    let guests = [
        ("linux-2", guest(GuestKind::Container, GuestState::Running, Some(1_800_000_000))),
        ("rt-2", guest(GuestKind::Vm, GuestState::Running, Some(1_800_000_001))),
        ("soon", GuestMetrics { kind: None, state: GuestState::Waiting, since: None }),
    ];
    let ports = vec![PortMetrics {
        guest: "rt-2".parse().unwrap(),
        nic: "net0".parse().unwrap(),
        port: "rt-2/net0#1".to_owned(),
        connected: true,
        up: false,
        counters: Some(PortCounters {
            sent: 5,
            sent_bytes: 300,
            received: 6,
            received_bytes: 360,
            dropped_sent: [("spoofed_mac".to_owned(), 4)].into(),
            dropped_received: BTreeMap::new(),
        }),
    }];
    let runs = RunsMetrics {
        open: 1,
        half_way: 0,
        lapsed: 0,
        damaged: 0,
        confirm_until: Some(1_800_000_060.25),
        last: Some(RunMetrics {
            id: 7,
            purpose: "apply".to_owned(),
            model: Some("/root/a \"model\".yaml".to_owned()),
            outcome: RunOutcome::Done,
            began: 1_799_999_990.5,
            ended: Some(1_800_000_000.25),
        }),
        in_progress: Some(ProgressMetrics { steps: 9, done: 4 }),
    };
    let outcomes = |all: &[(Outcome, u64)]| all.iter().copied().collect();
    let verification = VerificationMetrics {
        holds: false,
        at: 1_800_000_002.0,
        verdicts: [
            ("mac".to_owned(), outcomes(&[(Outcome::Pass, 2), (Outcome::Fail, 1)])),
            ("vlan".to_owned(), outcomes(&[(Outcome::Unknown, 1)])),
        ]
        .into(),
        drift: vec![DriftMetrics { subject: "NET0#1".to_owned(), attribute: "mac".to_owned() }],
    };
    Snapshot {
        build: "0.1.0".to_owned(),
        functions,
        guests: guests.map(|(name, guest)| (name.parse().unwrap(), guest)).into(),
        ports,
        runs: Some(runs),
        verification: Some(verification),
        scan_notes: 2,
        unread: [(Area::VfCounters, 1)].into(),
        took: 0.0125,
    }
}

/// As [`small`], with something of every family.
pub fn everything() -> Snapshot {
    let mut snapshot = small();
    if let Some(counters) = &mut snapshot.functions[1].counters {
        counters.multicast = Some(2);
    }
    if let Some(counters) = &mut snapshot.ports[0].counters {
        counters.dropped_received = [("no_buffers".to_owned(), 1)].into();
    }
    snapshot
}
