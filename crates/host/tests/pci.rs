//! PCI functions in a tree of plain files that stands for sysfs. What a kernel does on a write does not happen there:
//! binding that succeeds and VFs that appear are tested on boards.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use penstock_host::{InterfaceReport, PciError, PciFunction, Root, interface_of};
use penstock_model::{Bdf, Mac, inventory::Interface};
use tempfile::TempDir;

const PF: &str = "0000:04:00.1";
const VF: &str = "0000:04:10.5";

fn bdf(text: &str) -> Bdf {
    text.parse().expect("an address")
}

/// A PF with VF 2, both of a machine in a temporary directory.
struct Tree(TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(TempDir::new().expect("a directory"));
        for (name, text) in [
            ("sriov_totalvfs", "7\n"),
            ("sriov_numvfs", "0\n"),
            ("sriov_drivers_autoprobe", "1\n"),
            ("reset", ""),
            ("driver_override", "(null)\n"),
        ] {
            tree.write(PF, name, text);
        }
        tree.write(VF, "driver_override", "(null)\n");
        tree.link(PF, "virtfn2", &format!("../{VF}"));
        tree.link(PF, "virtfnx", "../nothing");
        tree.link(VF, "physfn", &format!("../{PF}"));
        tree.link(VF, "iommu_group", "../../../kernel/iommu_groups/17");
        tree.file("sys/bus/pci/drivers_probe", "");
        tree
    }

    fn root(&self) -> Root {
        Root::at(self.0.path())
    }

    fn function(&self, address: &str) -> PciFunction {
        PciFunction::new(&self.root(), bdf(address))
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        let path = self.0.path().join(below);
        fs::create_dir_all(path.parent().expect("it is below")).expect("its directory");
        path
    }

    fn file(&self, below: &str, text: &str) {
        fs::write(self.path(below), text).expect("a file");
    }

    fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).expect("a file")
    }

    fn of(function: &str, name: &str) -> String {
        format!("sys/bus/pci/devices/{function}/{name}")
    }

    fn write(&self, function: &str, name: &str, text: &str) {
        self.file(&Tree::of(function, name), text);
    }

    /// Whether the empty line that clears it was written. A plain file keeps the end of what was longer before.
    fn override_cleared(&self) -> bool {
        self.read(&Tree::of(VF, "driver_override")).starts_with('\n')
    }

    fn link(&self, function: &str, name: &str, to: &str) {
        symlink(to, self.path(Tree::of(function, name))).expect("a link");
    }
}

#[test]
fn vfs_and_their_pf_are_found() {
    let tree = Tree::new();
    let vfs = tree.function(PF).virtual_functions().unwrap();
    let [(index, address)] = vfs[..] else { panic!("{vfs:?}") };
    assert_eq!((index.get(), address), (2, bdf(VF)));
    assert_eq!(tree.function(VF).physical_function().unwrap(), Some(bdf(PF)));
    assert_eq!(tree.function(PF).physical_function().unwrap(), None);
    assert_eq!(tree.function(VF).iommu_group().unwrap(), Some(17));
    assert_eq!(tree.function(PF).iommu_group().unwrap(), None);
    assert!(tree.function(VF).exists());
    assert!(!tree.function("0000:05:00.0").exists());
    assert_eq!(tree.function(VF).driver_override().unwrap(), None);
    tree.write(VF, "driver_override", "vfio-pci\n");
    assert_eq!(tree.function(VF).driver_override().unwrap().as_deref(), Some("vfio-pci"));
}

#[test]
fn interfaces_are_found_below_a_virtio_device_too() {
    let tree = Tree::new();
    assert_eq!(tree.function(VF).interface_names().unwrap(), Vec::<String>::new());
    tree.write(PF, "net/ens1f1/mtu", "1500\n");
    tree.write(VF, "virtio12/net/eth3/mtu", "1500\n");
    tree.write(VF, "virtiofs", "");
    assert_eq!(tree.function(PF).interface_names().unwrap(), ["ens1f1"]);
    assert_eq!(tree.function(VF).interface_names().unwrap(), ["eth3"]);
    assert_eq!(tree.function(VF).device_names().unwrap(), [VF, "virtio12"]);
    // One that is not there still goes by its address.
    assert_eq!(tree.function("0000:05:00.0").device_names().unwrap(), ["0000:05:00.0"]);
}

fn report(index: u32, device: Option<&str>, port_name: Option<&str>) -> InterfaceReport {
    InterfaceReport {
        index,
        interface: Interface {
            name: format!("eth{index}").parse().expect("a name"),
            mac: Mac::new([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            up: false,
            carrier: None,
            speed: None,
            addresses: Vec::new(),
            routes: Vec::new(),
            master: None,
            uppers: Vec::new(),
        },
        permanent_mac: None,
        device: device.map(str::to_owned),
        kind: None,
        port_name: port_name.map(str::to_owned),
        promiscuous: None,
        routes: None,
        master: None,
        lower: None,
    }
}

#[test]
fn a_function_is_told_from_the_representors_of_its_vfs() {
    let tree = Tree::new();
    tree.write(VF, "virtio12/net/eth3/mtu", "1500\n");
    let reports = [
        report(2, None, None),
        report(3, Some(PF), Some("pf1vf0")),
        report(4, Some(PF), Some("c1pf1vf0")),
        report(5, Some(PF), Some("pf1sf88")),
        report(9, Some(PF), Some("p1")),
        report(8, Some(PF), None),
        report(10, Some("virtio12"), None),
        report(11, Some("virtio1"), None),
    ];
    let index = |address: &str| interface_of(bdf(address), &reports, &tree.root()).map(|r| r.index);
    assert_eq!(index(PF), Some(8));
    assert_eq!(index(VF), Some(10));
    assert_eq!(index("0000:05:00.0"), None);
}

#[test]
fn a_number_of_vfs_is_written_once() {
    let tree = Tree::new();
    let pf = tree.function(PF);
    assert_eq!((pf.total_vfs().unwrap(), pf.vf_count().unwrap()), (Some(7), 0));
    pf.set_vf_count(7, false).unwrap();
    assert_eq!(tree.read(&Tree::of(PF, "sriov_numvfs")).trim_end(), "7");
    pf.set_vf_count(7, false).unwrap();
    let error = pf.set_vf_count(3, false).unwrap_err();
    assert!(matches!(&error, PciError::Refused { value, .. } if value == "3"), "{error}");
    assert!(error.to_string().contains("change the VFs of 0000:04:00.1 from 7 to 3"), "{error}");
    assert!(error.hint().unwrap().contains("through 0"));
    assert_eq!(pf.vf_count().unwrap(), 7, "nothing was written");
    pf.set_vf_count(0, false).unwrap();
    pf.set_vf_count(5, false).unwrap();
    pf.set_vf_count(2, true).unwrap();
    assert_eq!(pf.vf_count().unwrap(), 2);
}

#[test]
fn vfs_stay_while_somebody_has_one_through_vfio() {
    let tree = Tree::new();
    let pf = tree.function(PF);
    pf.set_vf_count(7, false).unwrap();
    tree.link(VF, "driver", "../../drivers/vfio-pci");
    tree.file("dev/vfio/17", "");
    tree.file("proc/77/comm", "qemu\n");
    let open = tree.path("proc/77/fd/9");
    symlink("/dev/vfio/17", &open).unwrap();
    for (count, through_zero) in [(0, false), (5, true)] {
        let error = pf.set_vf_count(count, through_zero).unwrap_err();
        assert!(
            matches!(&error, PciError::Held { function, by } if *function == bdf(VF) && by == "qemu (process 77)"),
            "{error}"
        );
        assert_eq!(pf.vf_count().unwrap(), 7, "nothing was written");
    }
    tree.link(PF, "driver", "../../drivers/igb");
    let error = pf.set_driver(None).unwrap_err();
    assert!(matches!(error, PciError::Held { .. }), "the VFs go with the PF's driver: {error}");
    for function in [PF, VF] {
        let error = tree.function(function).reset().unwrap_err();
        assert!(matches!(error, PciError::Held { .. }), "{function} is reset under it: {error}");
    }
    fs::remove_file(open).unwrap();
    pf.set_vf_count(0, false).unwrap();
}

#[test]
fn a_function_without_sriov_has_no_vfs_to_create() {
    let tree = Tree::new();
    let vf = tree.function(VF);
    assert_eq!((vf.total_vfs().unwrap(), vf.vf_count().unwrap()), (None, 0));
    let error = vf.set_vf_count(1, false).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert!(error.to_string().contains("sriov_numvfs"), "{error}");
    let error = tree.function("0000:05:00.0").set_vf_count(1, false).unwrap_err();
    assert!(matches!(error, PciError::Missing { .. }), "{error}");
}

#[test]
fn an_attribute_that_makes_no_sense_is_told() {
    let tree = Tree::new();
    tree.write(PF, "sriov_numvfs", "many\n");
    tree.write(PF, "sriov_drivers_autoprobe", "maybe\n");
    let error = tree.function(PF).vf_count().unwrap_err();
    assert!(error.to_string().ends_with("holds \"many\""), "{error}");
    assert!(matches!(tree.function(PF).autoprobe(), Err(PciError::Odd { .. })));
}

#[test]
fn autoprobe_is_read_and_written() {
    let tree = Tree::new();
    let pf = tree.function(PF);
    assert!(pf.autoprobe().unwrap());
    pf.set_autoprobe(false).unwrap();
    assert!(!pf.autoprobe().unwrap());
    assert!(tree.function(VF).set_autoprobe(false).unwrap_err().is_unsupported());
}

#[test]
fn a_function_that_cannot_be_reset_says_so() {
    let tree = Tree::new();
    tree.function(PF).reset().unwrap();
    assert_eq!(tree.read(&Tree::of(PF, "reset")), "1");
    let error = tree.function(VF).reset().unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("reset 0000:04:10.5"), "{error}");
}

#[test]
fn a_driver_that_is_not_loaded_is_named() {
    let tree = Tree::new();
    let error = tree.function(VF).set_driver(Some("igbvf")).unwrap_err();
    let PciError::NotBound { driver, why, hint, .. } = &error else { panic!("{error}") };
    assert_eq!((driver.as_str(), why.as_str()), ("igbvf", "the driver is not loaded"));
    assert_eq!(hint.as_deref(), Some("load it: modprobe igbvf"));
}

#[test]
fn a_name_that_leads_elsewhere_is_no_driver() {
    let tree = Tree::new();
    tree.file("sys/bus/pci/elsewhere/bind", "");
    for name in ["../elsewhere", ".", "", "a/b"] {
        let error = tree.function(VF).set_driver(Some(name)).unwrap_err();
        assert!(error.to_string().contains("no driver's name"), "{error}");
    }
    assert_eq!(tree.read("sys/bus/pci/elsewhere/bind"), "");
    assert_eq!(tree.read("sys/bus/pci/drivers_probe"), "");
}

#[test]
fn a_driver_that_does_not_take_the_function_leaves_no_override() {
    let tree = Tree::new();
    tree.file("sys/bus/pci/drivers/vfio-pci/bind", "");
    let error = tree.function(VF).set_driver(Some("vfio-pci")).unwrap_err();
    assert!(matches!(error, PciError::NotBound { .. }), "{error}");
    assert!(error.hint().unwrap().contains("IOMMU"));
    assert_eq!(tree.read("sys/bus/pci/drivers_probe"), VF);
    assert_eq!(tree.read("sys/bus/pci/drivers/vfio-pci/bind"), VF, "asked for the reason");
    assert!(tree.override_cleared(), "nothing is left to block another driver");
}

#[test]
fn a_bound_driver_keeps_the_override_that_names_it() {
    for (driver, set, kept) in
        [("vfio-pci", "vfio-pci", true), ("igbvf", "igbvf", true), ("igbvf", "vfio-pci", false)]
    {
        let tree = Tree::new();
        tree.write(VF, "driver_override", set);
        tree.link(VF, "driver", &format!("../../drivers/{driver}"));
        tree.file(&format!("sys/bus/pci/drivers/{driver}/unbind"), "");
        let vf = tree.function(VF);
        assert_eq!(vf.driver().unwrap().as_deref(), Some(driver));
        vf.set_driver(Some(driver)).unwrap();
        assert_eq!(tree.override_cleared(), !kept);
        assert_eq!(tree.read(&format!("sys/bus/pci/drivers/{driver}/unbind")), "", "it was left alone");
    }
}

#[test]
fn an_override_is_idle_where_it_serves_no_guest_and_no_choice_of_the_operator() {
    for (set, bound, chosen, idle) in [
        ("igbvf", Some("igbvf"), None, true),
        ("igbvf", None, None, true),
        ("igbvf", Some("igbvf"), Some("igbvf"), false),
        ("vfio-pci", Some("igbvf"), None, false),
        ("(null)", Some("igbvf"), None, false),
    ] {
        let tree = Tree::new();
        tree.write(VF, "driver_override", set);
        if let Some(bound) = bound {
            tree.link(VF, "driver", &format!("../../drivers/{bound}"));
        }
        if let Some(chosen) = chosen {
            tree.file(&format!("etc/driverctl.d/pci-{VF}"), &format!("{chosen}\n"));
        }
        assert_eq!(tree.function(VF).has_idle_override("igbvf").unwrap(), idle, "{set} {bound:?} {chosen:?}");
    }
    for (bound, idle) in [(Some("vfio-pci"), false), (Some("igbvf"), true), (None, true)] {
        let tree = Tree::new();
        tree.write(VF, "driver_override", "vfio-pci");
        if let Some(bound) = bound {
            tree.link(VF, "driver", &format!("../../drivers/{bound}"));
        }
        assert_eq!(tree.function(VF).has_idle_override("vfio-pci").unwrap(), idle, "{bound:?}");
    }
    assert!(!Tree::new().function("0000:05:00.0").has_idle_override("igbvf").unwrap());
}

#[test]
fn what_driverctl_keeps_is_not_cleared() {
    for name in [format!("pci-{VF}"), VF.to_owned()] {
        for (chosen, kept) in [("vfio-pci", true), ("igbvf", false)] {
            let tree = Tree::new();
            tree.file(&format!("etc/driverctl.d/{name}"), &format!("{chosen}\n"));
            tree.write(VF, "driver_override", "vfio-pci");
            tree.file("sys/bus/pci/drivers/vfio-pci/unbind", "");
            tree.link(VF, "driver", "../../drivers/vfio-pci");
            tree.function(VF).set_driver(None).unwrap();
            assert_eq!(tree.override_cleared(), !kept, "{name} {chosen}");
        }
    }
}

#[test]
fn unbinding_writes_the_address_to_the_bound_driver() {
    let tree = Tree::new();
    tree.write(VF, "driver_override", "vfio-pci");
    tree.file("sys/bus/pci/drivers/vfio-pci/unbind", "");
    tree.link(VF, "driver", "../../drivers/vfio-pci");
    tree.function(VF).set_driver(None).unwrap();
    assert_eq!(tree.read("sys/bus/pci/drivers/vfio-pci/unbind"), VF);
    assert!(tree.override_cleared());
    // One without a driver is unbound already; one that is not there is an error.
    tree.function(PF).set_driver(None).unwrap();
    let error = tree.function("0000:05:00.0").set_driver(None).unwrap_err();
    assert!(matches!(error, PciError::Missing { .. }), "{error}");
}
