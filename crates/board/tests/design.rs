//! From models to QEMU's command line, and what is refused.

use std::path::Path;

use penstock_board::{Design, DesignError};
use penstock_host::files;
use penstock_model::{Emulation, Mac, Model, Source, composition::VfLayout};
use proptest::prelude::*;

fn model(text: &str) -> Model {
    penstock_model::parse(&Source::new("test.yaml", text)).expect("the test's model is good").model
}

fn design(text: &str) -> Design {
    Design::from_model(&model(text), None).expect("the test's board can be composed")
}

/// The arguments, an option with its value a line.
fn lines(design: &Design) -> String {
    let mut text = String::new();
    for argument in design.arguments() {
        let separator = match (text.is_empty(), argument.starts_with('-')) {
            (true, _) => "",
            (false, true) => "\n",
            (false, false) => " ",
        };
        text.push_str(separator);
        text.push_str(&argument);
    }
    text + "\n"
}

/// Compares with `tests/golden/NAME.args`; with `UPDATE_GOLDEN=1` writes it instead.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.args"));
    let found = lines(&design(text));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        files::create_dir_all(path.parent().unwrap()).unwrap();
        files::write_atomic(&path, &found).unwrap();
    }
    let expected = files::read_to_string(&path).unwrap();
    assert!(found == expected, "{name} differs:\n{found}");
}

#[test]
fn a_kernel_is_chosen_with_the_reason() {
    let chosen = |text: &str| {
        let design = design(text);
        (design.kernel.kernel.name(), design.kernel.why.clone(), design.cpus, design.kernel_command_line())
    };
    let (kernel, why, cpus, line) = chosen("nics: {NET0: {vfs: 1}}");
    assert_eq!((kernel, why.as_str(), cpus), ("standard", "nothing in the model asks for real time", 2));
    assert!(line.contains("mitigations=off"), "{line}");
    let (kernel, why, cpus, line) = chosen("{nics: {NET0: {vfs: 1}}, board: {kernel: realtime}}");
    assert_eq!((kernel, why.as_str(), cpus), ("realtime", "the model says so", 4));
    assert_eq!(line, "console=ttyS0 panic=-1 no_timer_check intel_iommu=on iommu=pt");
    let (kernel, why, ..) = chosen("{nics: {NET0: {vfs: 1}}, guests: {a: {kind: vm, functions: [NET0#0]}}}");
    assert_eq!((kernel, why.as_str()), ("standard", "nothing in the model asks for real time"));
    let (kernel, why, cpus, _) = chosen(
        "{nics: {NET0: {vfs: 1}}, guests: {a: {kind: vm, pin: 1, exclusive: on, realtime: on, functions: [NET0#0]}}}",
    );
    assert_eq!((kernel, cpus), ("standard", 4));
    assert!(why.starts_with("a is a VM, and the realtime one refuses KVM under emulation"), "{why}");
    let (kernel, why, cpus, _) = chosen("{nics: {NET0: {vfs: 1}}, realtime: {isolated: 4-5}}");
    assert_eq!((kernel, why.as_str(), cpus), ("realtime", "the model asks for real time and has no VM", 6));
    let line = design(
        "{nics: {NET0: {vfs: 1}}, guests: {a: {kind: vm, memory: 64MiB, huge_pages: 2MiB, functions: [NET0#0]}}}",
    )
    .kernel_command_line();
    assert!(line.contains(" hugepagesz=2M hugepages=32 "), "{line}");
    let many =
        |board: &str| model(&format!("{{nics: {{NET0: {{vfs: 1}}}}, realtime: {{isolated: 63}}{board}}}"));
    let refused = Design::from_model(&many(""), None).unwrap_err();
    assert_eq!(refused, [DesignError::TooManyCpus { wanted: 64, limit: 32 }]);
    assert!(refused[0].to_string().contains("names CPU 63") && refused[0].to_string().contains("{cpus: 64}"));
    assert_eq!(Design::from_model(&many(", board: {cpus: 64}"), None).unwrap().cpus, 64);
    let text =
        "{nics: {NET0: {vfs: 1}}, board: {kernel: realtime}, guests: {a: {kind: vm, functions: [NET0#0]}}}";
    let refused = penstock_model::parse(&Source::new("test.yaml", text)).unwrap_err();
    assert!(format!("{refused:?}").contains("refuses KVM under emulation"), "{refused:?}");
}

#[test]
fn boards_are_what_they_were() {
    golden("smallest", "nics: {NET0: {vfs: 1}}");
    golden(
        "cable",
        r#"{nics: {NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}, vfs: 7}, NET1: {vfs: 2}, NET2: {}},
            board: {cables: [[NET0, NET1]], cpus: 1, memory: 512MiB}}"#,
    );
    golden(
        "cable-virtio",
        r#"{nics: {NET0: {vfs: 1}, NET1: {vfs: 1}, NET2: {vfs: 1}, NET3: {vfs: 1}},
            board: {cables: [[NET1, NET0], [NET2, NET3]], emulation: {NET0: virtio, NET1: virtio, NET3: virtio}}}"#,
    );
    golden(
        "virtio-9",
        r#"{nics: {NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}, vfs: 9}},
            guests: {a: {functions: [{vf: NET0#3, mac: "02:00:00:00:00:03"}]}}}"#,
    );
    golden("virtio-200", "nics: {NET0: {vfs: 200}}");
    golden("virtio-255", "nics: {NET0: {vfs: 255}}");
    golden("nvme", "nics: {NET0: {vfs: 1}}\nboard: {nvme_vfs: 4}");
    golden("vm-and-many", "nics: {NET0: {vfs: 70}}\nguests: {v: {kind: vm, functions: [NET0#0]}}");
}

#[test]
fn the_cpus_follow_the_vfs_and_the_inventory_gives_macs() {
    assert_eq!(design("nics: {N: {vfs: 64}}").cpus, 2);
    assert_eq!(design("nics: {N: {vfs: 65}}").cpus, 4);
    let model = model("nics: {N: {vfs: 7, match: {driver: ixgbe}}}");
    let mut inventory = penstock_model::Inventory::default();
    let missing = Design::from_model(&model, Some(&inventory)).unwrap_err();
    assert!(missing[0].to_string().contains("no PF that is free with 7 VFs, driver ixgbe"), "{}", missing[0]);
    let pf = r#"{"bdf":"0000:04:00.0","identity":{"ids":{"vendor":32902,"device":5549,"subsystem_vendor":0,
        "subsystem":0},"vendor_name":null,"device_name":null},"driver":"ixgbe","interface":null,
        "permanent_mac":"0c:c4:7a:9a:61:ea","numa_node":null,"iommu_group":null,"switch_mode":"unreported",
        "sriov":{"total_vfs":63,"num_vfs":0,"autoprobe":true,"first_vf_offset":128,"vf_stride":2,"vf_device":5544,
        "vfs":[]}}"#;
    inventory.pfs.push(serde_json::from_str(pf).unwrap());
    let found = Design::from_model(&model, Some(&inventory)).unwrap();
    assert_eq!(found.nics[0].mac.to_string(), "0c:c4:7a:9a:61:ea");
    assert_eq!((found.nics[0].emulation, found.nics[0].total_vfs), (Emulation::Igb, 7));
    let mut asked = model.clone();
    asked.board.emulation.insert("N".parse().unwrap(), Emulation::Virtio);
    assert_eq!(Design::from_model(&asked, Some(&inventory)).unwrap().nics[0].total_vfs, 63);
}

#[test]
fn too_many_vfs_and_cables_to_nowhere_are_refused() {
    let refused = |change: &dyn Fn(&mut Model)| {
        let mut model = model("nics: {A: {vfs: 1}, B: {vfs: 1}}");
        change(&mut model);
        Design::from_model(&model, None).unwrap_err()[0].to_string()
    };
    let message = refused(&|model| {
        model.nics["A"].vfs = 8;
        model.board.emulation.insert("A".parse().unwrap(), Emulation::Igb);
    });
    assert!(message.contains("8 VFs, and the emulated igb has at most 7"), "{message}");
    let message = refused(&|model| model.nics["A"].vfs = 256);
    assert!(message.contains("256 VFs, and a composed virtio NIC has at most 255"), "{message}");
    let cable = |a: &str, b: &str| [a.parse().unwrap(), b.parse().unwrap()];
    let message = refused(&|model| model.board.cables.push(cable("A", "C")));
    assert!(message.contains("a cable goes to C"), "{message}");
    let message = refused(&|model| {
        model.nics.insert("C".parse().unwrap(), model.nics["A"].clone());
        model.board.cables.extend([cable("A", "B"), cable("C", "A")]);
    });
    assert!(message.contains("A has two cables"), "{message}");
    let message = refused(&|model| model.board.cables.push(cable("A", "A")));
    assert!(message.contains("from A to A"), "{message}");
}

proptest! {
    #[test]
    fn vfs_are_evenly_spaced_on_one_bus(vfs in 1u16..=255) {
        let layout = VfLayout::for_vfs(vfs);
        let functions: Vec<u16> = (0..vfs).map(|index| layout.function(index).unwrap()).collect();
        prop_assert!(functions[0] > 0);
        prop_assert!(functions.windows(2).all(|pair| pair[1] - pair[0] == layout.stride));
        prop_assert!(*functions.last().unwrap() < 256);
        if vfs <= 64 {
            // As the published board has them: VF 2 of function 0 is at 10.4.
            prop_assert_eq!((layout.first, layout.stride), (0x80, 2));
        }
    }

    #[test]
    fn any_number_of_nics_and_vfs_makes_a_good_board(vfs in proptest::collection::vec(0u16..=255, 1..6)) {
        let mut model = model("nics: {N: {vfs: 1}}");
        let one = model.nics["N"].clone();
        model.nics.clear();
        for (position, vfs) in vfs.iter().enumerate() {
            let nic = penstock_model::Nic { vfs: *vfs, ..one.clone() };
            model.nics.insert(format!("NET{position}").parse().unwrap(), nic);
        }
        let design = Design::from_model(&model, None).unwrap();
        prop_assert_eq!(design.check(), []);
        for (nic, vfs) in design.nics.iter().zip(vfs) {
            prop_assert!(nic.total_vfs >= vfs);
            prop_assert!(!nic.mac.is_multicast());
        }
        let mac: Option<Mac> = design.devices.iter().find_map(|device| device.mac);
        prop_assert_eq!(mac, Some(penstock_board::design::MANAGEMENT_MAC));
    }
}

#[test]
fn many_igbs_share_root_ports_in_pairs() {
    let of = |count: usize| {
        let nics: Vec<String> = (0..count).map(|nic| format!("N{nic}: {{vfs: 7}}")).collect();
        Design::from_model(&model(&format!("nics: {{{}}}", nics.join(", "))), None)
    };
    let places = |count| {
        let design = of(count).unwrap();
        design.nics.iter().map(|nic| nic.bdf.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(places(14)[12..], ["0000:0d:00.0", "0000:0e:00.0"]);
    assert_eq!(places(15)[..3], ["0000:01:00.0", "0000:01:00.1", "0000:02:00.0"]);
    assert_eq!(places(28)[27], "0000:0e:00.1");
    let ports = |count| lines(&of(count).unwrap()).matches("pcie-root-port").count();
    assert_eq!((ports(14), ports(15), ports(28)), (14, 8, 14));
    let errors = of(29).unwrap_err();
    assert_eq!(errors, [DesignError::TooManyIgbs { wanted: 29, limit: 28 }]);
}
