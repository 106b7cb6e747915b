//! Which cells a model gives, in which order they are sampled, and what becomes of the samples.

use std::collections::{BTreeMap, BTreeSet};

use penstock_measure::{
    matrix::{self, Matrix, Null, Options},
    schedule::{self, Waiting},
    summarise,
};
use penstock_model::{
    Model, Source,
    measurement::{
        Cell, Conclusion, EndKind, Histogram, Measurements, Metric, PathKind, Protocol, Rules, Sample,
        SampleResult, Status, StopReason, Subject, Withheld,
    },
    verdict::Vantage,
};
use proptest::prelude::*;

fn model(text: &str) -> Model {
    penstock_model::parse(&Source::new("m.yaml", text)).unwrap_or_else(|error| panic!("{error:?}")).model
}

const TWO_PORTS: &str = "
nics: {NET0: {vfs: 4}, NET1: {vfs: 4}}
guests:
  owner: {functions: [NET1]}
  a: {functions: [NET0#0, NET1#0]}
  b: {functions: [NET0#1, NET1#1]}
  rt: {kind: vm, functions: [NET0#2]}
board: {cables: [[NET0, NET1]]}
";

fn ends(matrix: &Matrix) -> BTreeSet<String> {
    let ends = matrix.cells.iter().filter_map(|cell| match &cell.measurement.subject {
        Subject::Network(n) => Some(format!("{} {}>{}", n.path, n.client, n.server)),
        Subject::Storage(_) => None,
    });
    ends.collect()
}

#[test]
fn a_two_port_machine_has_every_path() {
    let matrix = matrix::network(&model(TWO_PORTS), &Options::full());
    let expected = [
        "bridge a>b",
        "bridge across a:NET0>b:NET1#1",
        "guest-host a:NET0#0>host:NET0",
        "guest-host host:NET0>rt:NET0#2",
        "pf-pf host:NET0>owner:NET1",
        "vf-vf across a:NET0#0>b:NET1#1",
        "vf-vf across a:NET1#0>rt:NET0#2",
        "vf-vf inside a:NET0#0>b:NET0#1",
        "vf-vf inside a:NET0#0>rt:NET0#2",
    ];
    assert_eq!(ends(&matrix), expected.map(str::to_owned).into());
    assert_eq!(matrix.absent, []);
    // 8 sizes of two streams, 2 of two request-responses, 9 ends each; iperf3 both ways and the probe open and closed,
    // without the bridges; and one again for each tool, protocol and load.
    assert_eq!(matrix.cells.len(), (2 * 8 + 2 * 2) * 9 + 4 * 7 + 7);
    let names: BTreeSet<&str> = matrix.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(names.len(), matrix.cells.len(), "names are unique");
    let bridged = matrix.comparisons().into_iter().filter(|(base, other, _)| {
        matrix.cells[*base].id.contains("bridge a>b 1024B")
            && matrix.cells[*other].id.contains("udp stream vf-vf inside a:NET0#0>b:NET0#1")
    });
    assert_eq!(bridged.count(), 1, "row B7");
    let uplinked = matrix.comparisons().into_iter().filter(|(base, other, _)| {
        let [base, other] = [*base, *other].map(|position| matrix.cells[position].id.as_str());
        assert!(!base.contains("bridge") || !other.contains("bridge"), "{base} {other}");
        base.contains("tcp stream bridge across a:NET0>b:NET1#1 1024B") && other.contains("a:NET0#0>b:NET1#1")
    });
    assert_eq!(uplinked.count(), 1, "only what goes over the cable too");
    assert!(matrix.comparisons().iter().all(|(base, other, null)| {
        let [base, other, null] = [*base, *other, null.unwrap()].map(|position| &matrix.cells[position]);
        let akin = |cell: &matrix::Planned| match &cell.measurement.subject {
            Subject::Network(n) => (cell.measurement.tool, n.protocol, n.load),
            Subject::Storage(_) => unreachable!(),
        };
        base.block == other.block && null.null && akin(null) == akin(base)
    }));
    let each = matrix::network(&model(TWO_PORTS), &Options { null: Null::EachBlock, ..Options::full() });
    assert!(each.comparisons().iter().all(|(base, _, null)| {
        let null = null.unwrap();
        each.cells[*base].block == each.cells[null].block
            && each.cells[each.repeated(null).unwrap()].measurement == each.cells[null].measurement
    }));
}

#[test]
fn chosen_paths_are_compared_with_the_bridge_too() {
    let options = Options { paths: vec![PathKind::VfVfInside, PathKind::Bridge], ..Options::quick() };
    let matrix = matrix::network(&model(TWO_PORTS), &options);
    let expected = ["bridge a>b", "vf-vf inside a:NET0#0>b:NET0#1", "vf-vf inside a:NET0#0>rt:NET0#2"]
        .map(str::to_owned);
    assert_eq!(ends(&matrix), expected.into());
    assert_eq!(matrix.absent, []);
    let bridged = matrix.comparisons().into_iter().filter(|(base, other, _)| {
        matrix.cells[*base].id.contains("bridge a>b 16384B")
            && matrix.cells[*other].id.contains("udp stream vf-vf inside a:NET0#0>b:NET0#1")
    });
    assert_eq!(bridged.count(), 1, "the first arm of a block is an other to the bridge");
}

#[test]
fn what_cannot_be_measured_says_why() {
    let why = |text: &str| -> BTreeMap<PathKind, String> {
        let matrix = matrix::network(&model(text), &Options::quick());
        matrix.absent.into_iter().map(|absent| (absent.path, absent.why)).collect()
    };
    let one = why("nics: {NET0: {vfs: 2}}\nguests: {a: {functions: [NET0#0, NET0#1]}}\n");
    assert_eq!(one[&PathKind::PfPf], "no cable joins two NICs");
    assert!(one[&PathKind::VfVfInside].contains("in one place"), "{one:?}");
    assert!(!one.contains_key(&PathKind::GuestHost));
    let off = why(
        "nics: {NET0: {vfs: 2, loopback: off}}\nguests: {a: {functions: [NET0#0]}, b: {functions: [NET0#1]}}\n",
    );
    assert_eq!(off[&PathKind::VfVfInside], "no NIC switches between its own functions (loopback: off)");
    let host = why("nics: {NET0: {vfs: 1}, NET1: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n");
    assert!(host[&PathKind::PfPf].contains("its kernel would hand the bytes over itself"), "{host:?}");
    let vlan = why(
        "nics: {NET0: {vfs: 2}}\nguests: {a: {functions: [{vf: NET0#0, vlan: 5}]}, b: {functions: [NET0#1]}}\n",
    );
    assert!(vlan[&PathKind::VfVfInside].contains("different VLANs"), "{vlan:?}");
    let rtos = why("nics: {NET0: {vfs: 1}}\nguests: {a: {kind: vm, inside: console, functions: [NET0#0]}}\n");
    assert!(rtos.contains_key(&PathKind::GuestHost), "{rtos:?}");
    assert!(rtos[&PathKind::BridgeAcross].contains("PF is the host's"), "{rtos:?}");
}

const VMS: &str = "
nics: {NET0: {match: {mac: '0c:c4:7a:9a:61:ea'}}, NET1: {match: {mac: '0c:c4:7a:9a:61:eb'}}}
guests:
  node-1:
    kind: vm
    nics:
      net0:
        vfs: 4
        uplink: NET0
        functions: {0: {vlan: 100}, 1: {max_tx_rate: 500}, 2: {}}
  node-2: {kind: vm, nics: {net0: {vfs: 1, uplink: NET1}}}
";

/// What is chosen of a VM's NIC is out of VLANs and has no limit, and the far end is outside the VM.
#[test]
fn what_vms_have_of_their_own_nics_is_measured_to_the_outside() {
    let cabled = format!("{VMS}board: {{cables: [[NET0, NET1]]}}\n");
    let matrix = matrix::network(&model(&cabled), &Options::quick());
    let wanted = [
        "vm bridge nat node-1/net0>host:NET1",
        "vm bridge node-1/net0>host:NET1",
        "vm ipvlan node-1/net0>host:NET1",
        "vm macvlan node-1/net0>host:NET1",
        "vm pf node-1/net0>host:NET1",
        "vm vf node-1/net0#2>host:NET1",
    ];
    assert_eq!(ends(&matrix), wanted.map(str::to_owned).into());
    // A VF against each bridge, with an A/A beside; and what it sends and receives of datagrams that fill a frame.
    let full = matrix::network(&model(&cabled), &Options::full());
    let against = |bridge: &str, what: &str| {
        let id = |at: usize| full.cells[at].id.as_str();
        full.comparisons().into_iter().any(|(base, other, null)| {
            id(base) == format!("{what} {bridge}")
                && id(other).starts_with(&format!("{what} vm vf "))
                && null.is_some()
        })
    };
    // Who asks for a quick run gets a few of them, and who names paths or protocols all.
    let of = |options: &Options, path: PathKind| -> BTreeSet<Protocol> {
        let matrix = matrix::network(&model(&cabled), options);
        let networks = matrix.cells.iter().filter_map(|cell| match &cell.measurement.subject {
            Subject::Network(network) if network.path == path => Some(network.protocol),
            _ => None,
        });
        networks.collect()
    };
    let all: BTreeSet<Protocol> = Options::quick().protocols.into_iter().collect();
    let named = Options { few_of_vms: false, ..Options::quick() };
    for path in PathKind::ALL.into_iter().filter(|path| path.is_of_vm_nic()) {
        assert_eq!(of(&named, path), all, "{path}");
        let quick = of(&Options::quick(), path).contains(&Protocol::UdpStream);
        assert_eq!(quick, path != PathKind::VmOvs, "{path}");
    }
    assert_eq!(of(&Options::quick(), PathKind::VmVf), all);
    assert_eq!(of(&Options::quick(), PathKind::VmBridge), [Protocol::UdpStream, Protocol::UdpRr].into());
    for bridge in ["vm bridge node-1/net0>host:NET1", "vm bridge nat node-1/net0>host:NET1"] {
        assert!(against(&format!("{bridge} 1024B"), "netperf udp stream"));
        assert!(against(&format!("{bridge} 128B"), "netperf udp rr"));
        assert!(against(&format!("{bridge} 1472B reverse"), "iperf3 udp stream"));
    }
    let absent =
        |matrix: &Matrix| -> BTreeSet<PathKind> { matrix.absent.iter().map(|absent| absent.path).collect() };
    assert!(!absent(&matrix).contains(&PathKind::VmVf));
    // No cable named: all NICs hang on one network.
    assert_eq!(ends(&matrix::network(&model(VMS), &Options::quick())), wanted.map(str::to_owned).into());

    // In the VLAN of its uplink's VF a NIC does not reach a PF, which is in none: the other VM's is taken.
    let in_vlan = cabled.replace("uplink: NET0", "uplink: {vf: NET0#0, trust: on, spoofchk: off, vlan: 100}");
    let in_vlan = in_vlan.replace("0: {vlan: 100}, ", "");
    let other = wanted.map(|end| end.replace("node-1", "node-2").replace("NET1", "NET0").replace("#2", "#0"));
    assert_eq!(ends(&matrix::network(&model(&in_vlan), &Options::quick())), other.into());

    for (text, why) in [
        (
            cabled.replace("uplink: NET0", "uplink: br0").replace("uplink: NET1", "uplink: br1"),
            "whose uplink is a PF",
        ),
        (
            cabled
                .replace("kind: vm,", "kind: vm, inside: console,")
                .replace("kind: vm\n", "kind: vm\n    inside: console\n"),
            "commands can be run in",
        ),
    ] {
        let matrix = matrix::network(&model(&text), &Options::quick());
        let said: Vec<&str> = matrix
            .absent
            .iter()
            .filter(|absent| absent.path.is_of_vm_nic())
            .map(|absent| absent.why.as_str())
            .collect();
        assert!(said.len() == 7 && said.iter().all(|said| said.contains(why)), "{said:?}");
    }
    // What is at taps leads to the host's end of their bridge.
    let text = "guests: {node-1: {kind: vm, nics: {net0: {vfs: 2, path: tap, uplink: br0}}}}\n";
    let at_taps = wanted.map(|end| end.replace("#2", "#0").replace("host:NET1", "host"));
    assert_eq!(ends(&matrix::network(&model(text), &Options::quick())), at_taps.into());
    // Where no VM owns a NIC that is said to those alone who ask for it.
    let asked = Options { paths: vec![PathKind::VmVf], ..Options::quick() };
    assert_eq!(absent(&matrix::network(&model(TWO_PORTS), &asked)), [PathKind::VmVf].into());
    assert_eq!(absent(&matrix::network(&model(TWO_PORTS), &Options::quick())), BTreeSet::new());
}

const PORTS: &str = "
guests:
  web: {nics: {net0: {uplink: br0, vlan: 100}}}
  db: {nics: {net0: {uplink: br0, vlan: 100, max_tx_rate: 500}}}
  cache: {nics: {net0: {uplink: br0, vlan: 100}}}
  log: {nics: {net0: {uplink: br0}}}
";

/// Those in one VLAN are ends of one path, without a limit where that can be; the host is an end for what is in none.
#[test]
fn containers_nics_are_measured_beside_veths_in_the_same_bridge() {
    let matrix = matrix::network(&model(PORTS), &Options::full());
    let wanted = [
        "port-host log/net0>host",
        "port-port web/net0>cache/net0",
        "veth-host log/net0>host",
        "veth-veth web/net0>cache/net0",
    ];
    assert_eq!(ends(&matrix), wanted.map(str::to_owned).into());
    assert_eq!(matrix.absent, [], "a machine of ports alone has nothing to say of VFs");
    for (port, veth) in [
        ("port-port web/net0>cache/net0", "veth-veth web/net0>cache/net0"),
        ("port-host log/net0>host", "veth-host log/net0>host"),
    ] {
        for what in ["udp stream", "tcp stream", "udp rr", "tcp rr"] {
            let against = matrix.comparisons().into_iter().filter(|(base, other, null)| {
                let [base, other] = [*base, *other].map(|at| matrix.cells[at].id.as_str());
                (base, other)
                    == (&format!("netperf {what} {veth} 128B"), &format!("netperf {what} {port} 128B"))
                    && null.is_some()
            });
            assert_eq!(against.count(), 1, "{what} {port} against {veth}, with an A/A beside");
        }
    }
    // Round by round each has every position equally often, as others.
    let blocks = matrix.blocks();
    assert!(blocks.iter().flatten().all(|at| matrix.cells[*at].block < blocks.len()));

    let why = |text: &str| -> BTreeMap<PathKind, String> {
        let matrix = matrix::network(&model(text), &Options::quick());
        matrix.absent.into_iter().map(|absent| (absent.path, absent.why)).collect()
    };
    let apart = why(
        "guests: {web: {nics: {net0: {uplink: br0, vlan: 100}}}, log: {nics: {net0: {uplink: br0, vlan: 200}}}}",
    );
    let said = "no two containers' NICs are in one VLAN: web/net0 is in VLAN 100, log/net0 in VLAN 200";
    assert_eq!((apart[&PathKind::PortPort].as_str(), apart[&PathKind::VethVeth].as_str()), (said, said));
    let said = "every container's NIC is in a VLAN (web/net0 in VLAN 100), and the host's end of its bridge, br0, is in none";
    assert_eq!((apart[&PathKind::PortHost].as_str(), apart[&PathKind::VethHost].as_str()), (said, said));
    let one =
        why("guests: {web: {nics: {net0: {uplink: br0}}}, log: {nics: {net0: {uplink: br0, vlan: 200}}}}");
    let said = "no two containers' NICs are in one VLAN: web/net0 is in no VLAN, log/net0 in VLAN 200";
    assert_eq!((one[&PathKind::PortPort].as_str(), one.get(&PathKind::PortHost)), (said, None));
    let bridges = why("guests: {web: {nics: {net0: {uplink: br0}}}, log: {nics: {net0: {uplink: br1}}}}");
    let said = "no two containers' NICs are at one bridge: web/net0 is at br0, log/net0 at br1";
    assert_eq!(bridges[&PathKind::PortPort], said);
    let alone = why("guests: {web: {nics: {net0: {uplink: br0}, net1: {uplink: br0}}}}");
    assert!(alone[&PathKind::PortPort].starts_with("it takes NICs of two containers"), "{alone:?}");

    // Where no container owns a NIC that is said to those alone who ask for it.
    let asked = Options { paths: vec![PathKind::PortHost], ..Options::quick() };
    let absent = |options: &Options| matrix::network(&model(TWO_PORTS), options).absent;
    assert_eq!(absent(&asked).iter().map(|absent| absent.path).collect::<Vec<_>>(), [PathKind::PortHost]);
    assert_eq!(absent(&Options::quick()), []);
}

#[test]
fn storage_is_measured_on_the_host_first() {
    let at = [(Vantage::Host, EndKind::Host), (Vantage::Guest("a".parse().unwrap()), EndKind::Container)];
    let full = matrix::storage("/dev/nvme0n1", &at, false, Null::EachBlock);
    assert_eq!(full.cells.len(), 2 * 3 * 9 * 3 * 3);
    let once = matrix::storage("/dev/nvme0n1", &at, false, Null::EachProtocol);
    assert_eq!(once.cells.len(), 2 * 3 * (9 * 3 * 2 + 1));
    assert!(once.comparisons().iter().all(|(_, _, null)| null.is_some()));
    assert_eq!(full.blocks().len(), 2 * 3 * 9 * 3);
    assert!(full.comparisons().iter().all(|(base, other, _)| {
        full.cells[*base].id.contains(" host ") && full.cells[*other].id.contains(" a ")
    }));
    assert_eq!(matrix::storage("/dev/nvme0n1", &at, true, Null::None).cells.len(), 2 * 3 * 2);
}

#[test]
fn the_time_it_takes_is_told_before() {
    let rules = Rules { minimum: 6, maximum: 6, warm_up: 1, dwell_ms: 1000, ..Rules::default() };
    let told = schedule::duration(100, 20, &rules, 0.02);
    assert!((told.least - 632.4).abs() < 1e-6 && told.least == told.most, "{told:?}");
    let capped = Rules { maximum: 30, budget: Some(720.0), ..rules };
    assert_eq!(schedule::duration(100, 20, &capped, 0.02).most, 720.0);
}

const CONTAINERS: &str = include_str!("../../../examples/containers.yaml");
const XEON_D: &str = include_str!("../../../examples/xeon-d.yaml");
const CONTAINER_NICS: &str = include_str!("../../../examples/container-nics.yaml");
const TENANT: &str = include_str!("../../../examples/tenant.yaml");

#[test]
fn the_examples_fit_into_their_time() {
    let arms = |text: &str, options: &Options| matrix::network(&model(text), options);
    // A container in a VM is made and taken back by its agent for each sample.
    for (text, full, quick, beside) in [
        (CONTAINERS, 101, 15, 0.1),
        (XEON_D, 99, 15, 0.1),
        (CONTAINER_NICS, 95, 15, 0.1),
        (TENANT, 84, 14, 0.25),
    ] {
        for (options, arms_wanted, budget) in
            [(Options::full(), full, 720.0), (Options::quick(), quick, 120.0)]
        {
            let matrix = arms(text, &options);
            assert_eq!(matrix.cells.len(), arms_wanted);
            let rules = Rules { budget: None, minimum: 6, maximum: 6, ..Rules::default() };
            let takes = schedule::duration(arms_wanted, matrix.warm_ups(|_| true).len(), &rules, beside).most;
            // Making ready and giving back take time too.
            assert!(takes < budget * 0.975, "{arms_wanted} arms take {takes} s of {budget} s");
        }
    }
    let bridged = |text: &str| -> BTreeSet<String> {
        ends(&arms(text, &Options::full())).into_iter().filter(|end| end.starts_with("bridge ")).collect()
    };
    assert_eq!(bridged(CONTAINERS), ["bridge pf0>pf1", "bridge pf0>rt-2"].map(str::to_owned).into());
    assert_eq!(bridged(XEON_D), ["bridge pf0>pf1"].map(str::to_owned).into());
}

#[test]
fn paths_are_compared_between_the_same_guests() {
    let text = "
nics: {NET0: {vfs: 4}, NET1: {vfs: 4}}
guests:
  a: {functions: [NET0#0]}
  b: {functions: [NET0#1]}
  c: {functions: [NET0#2, NET1#0]}
board: {cables: [[NET0, NET1]]}
";
    let matrix = matrix::network(&model(text), &Options::quick());
    let guests = |path: &str| -> Vec<String> {
        ends(&matrix).into_iter().filter_map(|end| end.strip_prefix(path).map(str::to_owned)).collect()
    };
    assert_eq!(guests("vf-vf across "), ["a:NET0#0>c:NET1#0"]);
    assert_eq!(guests("vf-vf inside "), ["a:NET0#0>c:NET0#2"]);
    assert_eq!(guests("bridge "), ["a>c", "across a:NET0>c:NET1#0"]);
}

#[test]
fn network_and_storage_are_one_matrix() {
    let at = [(Vantage::Host, EndKind::Host), (Vantage::Guest("a".parse().unwrap()), EndKind::Container)];
    let network = matrix::network(&model(TWO_PORTS), &Options::quick());
    let storage = matrix::storage("/srv", &at, true, Null::EachProtocol);
    let joined = matrix::join(network.clone(), storage.clone());
    assert_eq!(joined.blocks().len(), network.blocks().len() + storage.blocks().len());
    assert_eq!(joined.comparisons().len(), network.comparisons().len() + storage.comparisons().len());
    assert_eq!(matrix::join(Matrix::default(), storage.clone()), storage);
}

#[test]
fn what_a_line_needs_and_the_ends_of_the_sizes_come_first() {
    let matrix = matrix::network(&model(TWO_PORTS), &Options::full());
    let priority = |expect: &[&str], text: &str| {
        let expect: Vec<_> = expect.iter().map(|line| line.parse().unwrap()).collect();
        let of_block = matrix.priorities(&expect).into_iter().zip(matrix.blocks());
        let found = of_block.filter(|(_, block)| matrix.cells[block[0]].id.contains(text));
        found.map(|(priority, _)| priority).collect::<Vec<_>>()
    };
    let udp = "netperf udp stream pf-pf host:NET0>owner:NET1";
    for (size, wanted) in [(16384, 4), (128, 5), (1024, 6), (2048, 7), (8192, 7)] {
        assert_eq!(priority(&[], &format!("{udp} {size}B")), [wanted], "{size}");
    }
    assert_eq!(priority(&[], "netperf tcp rr pf-pf host:NET0>owner:NET1 128B"), [4]);
    let line = ["udp vf-vf inside 2KiB >= 0.8 x pf-pf"];
    assert_eq!(priority(&line, &format!("{udp} 2048B")), [3]);
    assert_eq!(priority(&line, &format!("{udp} 4096B")), [7]);
    // A line for every size does not take their order away.
    let all = ["udp vf-vf inside >= 0.8 x pf-pf"];
    assert_eq!(priority(&all, &format!("{udp} 16384B")), [0]);
    assert_eq!(priority(&all, &format!("{udp} 256B")), [3]);
}

fn waiting() -> impl Strategy<Value = Vec<Waiting>> {
    let one = (0usize..9, 0u32..9, 0u32..3);
    prop::collection::vec(one.prop_map(|(arms, have, priority)| Waiting { arms, have, priority }), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_fits_is_within_the_time_and_no_less_urgent_block_is_there_in_its_place(
        blocks in waiting(), left in 0.0f64..200.0,
    ) {
        let fits = schedule::fit(&blocks, 6, 1.1, left);
        prop_assert_eq!(fits.len(), blocks.len());
        prop_assert!(blocks.is_empty() || fits.contains(&true));
        let takes = |block: &Waiting| block.arms as f64 * f64::from(6 - block.have.min(6)) * 1.1;
        let most_urgent = blocks.iter().map(|block| block.priority).min();
        let of = |fitting: bool| blocks.iter().zip(&fits).filter(move |(_, fits)| **fits == fitting).map(|(b, _)| b);
        let spent: f64 = of(true).map(takes).sum();
        let one_alone = of(true).all(|block| Some(block.priority) == most_urgent || takes(block) == 0.0);
        prop_assert!(spent <= left + 1e-9 || one_alone, "{spent} of {left}");
        for out in of(false) {
            let before: f64 = of(true).filter(|block| block.priority <= out.priority).map(takes).sum();
            prop_assert!(before + takes(out) > left);
        }
    }

    #[test]
    fn as_many_rounds_as_fit_and_no_more(blocks in waiting(), left in 0.0f64..500.0, most in 1u32..40) {
        let takes = |rounds: u32| -> f64 {
            blocks.iter().map(|b| b.arms as f64 * f64::from(rounds.saturating_sub(b.have)) * 1.1).sum()
        };
        let rounds = schedule::rounds_within(&blocks, 1.1, left, most);
        prop_assert!(rounds <= most && takes(rounds) <= left + 1e-9);
        prop_assert!(rounds == most || takes(rounds + 1) > left - 1e-9);
    }

    #[test]
    fn every_round_takes_every_arm_once(sizes in prop::collection::vec(1usize..9, 1..6), seed in any::<u64>()) {
        let mut next = 0;
        let blocks: Vec<Vec<usize>> = sizes.iter().map(|n| { next += n; (next - n..next).collect() }).collect();
        for round in 1..6 {
            let order = schedule::round(&blocks, round, seed);
            prop_assert_eq!(&order, &schedule::round(&blocks, round, seed));
            prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), (0..next).collect());
            prop_assert_eq!(order.len(), next);
            // The arms of a block stand together.
            for block in &blocks {
                let at: Vec<usize> = (0..next).filter(|at| block.contains(&order[*at])).collect();
                prop_assert_eq!(at[at.len() - 1] - at[0] + 1, block.len());
            }
        }
    }

    #[test]
    fn each_arm_stands_everywhere_and_follows_each_other_equally_often(n in 2usize..9, seed in any::<u64>()) {
        let block = vec![(0..n).collect::<Vec<_>>()];
        let rounds = schedule::balanced_after(n);
        let (mut places, mut follows) = (BTreeMap::new(), BTreeMap::new());
        for round in 0..rounds {
            let order = schedule::round(&block, round as u32, seed);
            for (at, arm) in order.iter().enumerate() {
                *places.entry((at, *arm)).or_insert(0) += 1;
            }
            order.windows(2).for_each(|pair| *follows.entry((pair[0], pair[1])).or_insert(0) += 1);
        }
        prop_assert_eq!(places.len(), n * n);
        prop_assert!(places.values().all(|times| *times == rounds / n));
        prop_assert_eq!(follows.len(), n * (n - 1));
        prop_assert!(follows.values().all(|times| *times == rounds / n));
    }
}

#[test]
fn two_arms_go_there_and_back() {
    let rounds: Vec<Vec<usize>> = (0..4).map(|round| schedule::round(&[vec![0, 1]], round, 3)).collect();
    assert_eq!(rounds[0], rounds[2]);
    assert_eq!(rounds[1], rounds[0].iter().rev().copied().collect::<Vec<_>>());
}

/// Cells of a quick matrix, each sample `level` of its path, with one of them missing.
fn measured(emulated: bool) -> Measurements {
    let matrix = matrix::network(&model(TWO_PORTS), &Options::quick());
    let sample = |round: u32, value: f64, metric: Metric| Sample {
        at: f64::from(round),
        seconds: 1.0,
        position: round,
        round,
        warm_up: round == 0,
        taken: SampleResult::Values(BTreeMap::from([(metric, value)])),
    };
    let cells = matrix.cells.iter().map(|planned| {
        let Subject::Network(network) = &planned.measurement.subject else { unreachable!() };
        let metric = planned.measurement.main_metric();
        let level = match network.path {
            PathKind::PfPf => 9.4e9,
            PathKind::VfVfInside => 14.7e9,
            PathKind::Bridge => 5.0e9,
            _ => 9.3e9,
        };
        // The first is warm-up and far off; all arms share what each round does to them.
        let value = |round: u32| if round == 0 { 1.0 } else { level * (1.0 + 0.01 * f64::from(round % 4)) };
        let samples: Vec<Sample> = match network.path {
            PathKind::VfVfAcross => Vec::new(),
            _ => (0..9).map(|round| sample(round, value(round), metric)).collect(),
        };
        let status = summarise::status(samples, None, 0, Vec::new(), StopReason::SamplesUp, 0.95, 1);
        Cell { id: planned.id.clone(), measurement: planned.measurement.clone(), null: planned.null, status }
    });
    Measurements { emulated, cells: cells.collect(), ..Measurements::default() }
}

#[test]
fn warm_up_is_kept_and_not_counted_and_nothing_is_missing_and_not_zero() {
    let run = measured(false);
    let cell = run.cells.iter().find(|cell| cell.id.contains("tcp stream pf-pf") && !cell.null).unwrap();
    let summary = cell.summary(Metric::Throughput).unwrap();
    assert_eq!((summary.n, summary.min), (8, 9.4e9));
    assert_eq!(cell.measured().unwrap().samples.len(), 9);
    let across = run.cells.iter().find(|cell| cell.id.contains("vf-vf across")).unwrap();
    assert!(matches!(&across.status, Status::Missing { why, .. } if why.contains("no sample")), "{across:?}");
}

#[test]
fn lines_are_ruled_on_by_the_cells() {
    let controls = BTreeMap::new();
    let rule = |line: &str, emulated: bool| {
        summarise::rule(&line.parse().unwrap(), &measured(emulated), &controls, 0.95)
    };
    let inside = rule("tcp vf-vf inside >= 1.4 x pf-pf", false);
    assert_eq!((inside.told, inside.claims.len()), (Conclusion::Holds, 2), "two pairs of ends");
    assert_eq!(rule("tcp vf-vf inside >= 1.6 x pf-pf", true).told, Conclusion::DoesNotHold);
    let bridge = rule("udp stream vf-vf inside 16KiB >= 2 x bridge", true);
    assert_eq!((bridge.told, bridge.claims.len()), (Conclusion::Holds, 1), "{bridge:?}");
    assert_eq!(rule("tcp pf-pf >= 9.39Gbit/s", false).told, Conclusion::Holds);
    let absolute = rule("tcp pf-pf >= 9.39Gbit/s", true);
    assert_eq!(absolute.told, Conclusion::CannotBeTold);
    assert!(absolute.claims[0].why.as_ref().unwrap().contains("emulated"));
    let missing = rule("tcp vf-vf across >= 0.5 x pf-pf", false);
    assert_eq!(missing.told, Conclusion::CannotBeTold);
    assert!(missing.claims[0].why.as_ref().unwrap().contains("is missing: no sample"), "{missing:?}");
    assert!(rule("random read >= 0.9 x host", false).claims.is_empty());
}

/// A ratio is worth nothing where the same measured twice differs.
#[test]
fn a_line_is_not_ruled_on_whose_control_differs_from_itself() {
    let run = measured(true);
    let position = |null: bool| {
        let is = |cell: &&Cell| cell.id.contains("tcp stream pf-pf") && cell.null == null;
        run.cells.iter().position(|cell| is(&cell)).unwrap()
    };
    let inside = run.cells.iter().position(|cell| cell.id.contains("tcp stream vf-vf inside")).unwrap();
    let rule = |line: &str, control: [usize; 2]| {
        let all = (0..run.cells.len()).map(|at| (at, control)).collect();
        summarise::rule(&line.parse().unwrap(), &run, &all, 0.95)
    };
    for (line, without_doubt) in [
        ("tcp vf-vf inside >= 1.4 x pf-pf", Conclusion::Holds),
        ("tcp vf-vf inside >= 1.6 x pf-pf", Conclusion::DoesNotHold),
    ] {
        assert_eq!(rule(line, [position(false), position(true)]).told, without_doubt, "{line}");
        let doubted = rule(line, [position(false), inside]);
        assert_eq!(doubted.told, Conclusion::CannotBeTold, "{line}");
        assert!(doubted.claims[0].why.as_ref().unwrap().contains("differs from itself"), "{doubted:?}");
    }
    // What was not compared has a reason of its own.
    let missing = rule("tcp vf-vf across >= 0.5 x pf-pf", [position(false), inside]);
    assert!(missing.claims[0].why.as_ref().unwrap().contains("is missing: no sample"), "{missing:?}");
}

/// In a closed loop the samples with stalls are those with too few round trips for a percentile.
#[test]
fn a_percentile_that_a_sample_withholds_is_not_told_of_the_others() {
    let run = measured(false);
    let cell = run.cells.iter().find(|cell| cell.id.contains(" rr pf-pf") && !cell.null).unwrap();
    let of = |short: u32, histogram: Option<Histogram>, lost: u64| {
        let samples = (0..8).map(|round| {
            let mut values = BTreeMap::from([(Metric::Max, 90.0)]);
            if round >= short {
                values.insert(Metric::P99, 50.0);
            }
            let (at, seconds, position) = (f64::from(round), 1.0, round);
            Sample { at, seconds, position, round, warm_up: false, taken: SampleResult::Values(values) }
        });
        let withheld = (0..short).map(|_| Withheld { metric: Metric::P99, have: 400, need: 1000 });
        let (samples, withheld) = (samples.collect(), withheld.collect());
        let status = summarise::status(samples, histogram, lost, withheld, StopReason::SamplesUp, 0.95, 1);
        Cell { status, ..cell.clone() }
    };
    let (all, most) = (of(0, None, 0), of(2, None, 0));
    assert_eq!(all.summary(Metric::P99).unwrap().n, 8);
    assert_eq!(most.summary(Metric::P99), None);
    assert!(most.summary(Metric::Max).is_some());
    let compared = summarise::compare(&all, &most, None, Metric::P99, 0.95, 1);
    assert!(compared.ratio.is_none() && compared.pairs == 0, "{compared:?}");
    assert!(compared.why.unwrap().starts_with("2 of 8 samples of "));
    let told = |cell: &Cell| {
        let run = Measurements { cells: vec![cell.clone()], ..Measurements::default() };
        let line = "rr pf-pf p99 <= 60us".parse().unwrap();
        summarise::rule(&line, &run, &BTreeMap::new(), 0.95).claims[0].clone()
    };
    assert_eq!(told(&all).told, Conclusion::Holds);
    assert_eq!(told(&most).told, Conclusion::CannotBeTold);
    let why = told(&most).why.unwrap();
    assert!(why.starts_with("2 of 8 samples could not tell it: p99 takes 1000"), "{why}");
    // All latencies together tell it, unless it is one of those that were lost.
    let mut histogram = Histogram::new();
    histogram.record(50_000, 990).unwrap();
    histogram.record(2_000_000, 100).unwrap();
    let pooled = of(2, Some(histogram.clone()), 0);
    let summary = pooled.summary(Metric::P99).unwrap();
    assert!(summary.interval.is_none() && summary.median > 1000.0, "{summary:?}");
    assert!(told(&pooled).why.unwrap().contains("of all together, without an interval"));
    assert_eq!(of(2, Some(histogram), 200).summary(Metric::P99), None);
}

#[test]
fn a_comparison_has_its_pairs_and_its_null() {
    let run = measured(true);
    let find = |text: &str, null: bool| {
        run.cells.iter().find(|cell| cell.id.contains(text) && cell.null == null).unwrap()
    };
    let (base, other) = (find("tcp stream pf-pf", false), find("tcp stream vf-vf inside", false));
    let null = find("tcp stream pf-pf", true);
    let compared = summarise::compare(base, other, Some([base, null]), Metric::Throughput, 0.95, 1);
    assert_eq!(compared.pairs, 8);
    assert!((compared.ratio.unwrap().value() - 14.7 / 9.4).abs() < 1e-9, "{compared:?}");
    assert_eq!(compared.null_holds(), Some(true));
    assert!(compared.penalty().unwrap().high() < 0.0, "inside the NIC is better than the wire");
}
