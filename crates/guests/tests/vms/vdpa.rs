//! VMs that own a NIC by vDPA devices.

use penstock_guests::GuestError;
use penstock_model::DataPath;
use penstock_model::Emulation;
use penstock_model::Mac;
use penstock_model::TenantNic;
use penstock_model::VfAttribute;
use penstock_model::VfSettings;
use penstock_model::Vm;
use penstock_plan::Execute;
use penstock_plan::Fact;
use penstock_plan::GuestAction;
use penstock_plan::Observe;
use penstock_plan::action::GuestDefinition;
use penstock_plan::action::GuestNic;
use std::fs;

use crate::host::{Host, TIMEOUT, a, chain, definition, says};

/// A VM that owns a NIC with one VF by vDPA devices.
fn with_devices() -> GuestDefinition {
    let mac = |last: u8| Mac::new([2, 0, 0, 0, 1, last]);
    let nic = TenantNic {
        emulation: Emulation::Virtio,
        mac: mac(0),
        vfs: vec![VfSettings { mac: Some(mac(1)), ..VfSettings::default() }],
        settings: VfSettings::default(),
        addresses: Vec::new(),
        routes: Vec::new(),
        dhcp: false,
        mtu: None,
        path: DataPath::VhostVdpa,
        uplink: None,
        uplink_settings: None,
        queues: 1,
        workers: 1,
        allow: None,
        vf_allow: Default::default(),
    };
    let own = GuestNic { name: "net0".parse().unwrap(), nic, uplink_at: None };
    GuestDefinition { nics: vec![own], ..definition("a", Vm::default()) }
}

#[test]
fn a_vm_is_made_with_the_vdpa_devices_that_are_there_and_not_without_them() {
    let host = Host::new();
    let vms = host.vms();
    vms.define(&with_devices(), TIMEOUT).unwrap();
    let device = |name: &str| {
        fs::create_dir_all(host.path("root/sys/bus/vdpa/devices").join(name)).unwrap();
    };
    device("penstock-020000000100/vhost-vdpa-4");
    let error = vms.create(&a(), TIMEOUT).unwrap_err();
    says(&error, &["a/net0#0", "penstock-020000000101"]);
    assert_eq!(host.calls(), Vec::<String>::new(), "libvirt is not asked");

    device("penstock-020000000101/vhost-vdpa-7");
    vms.create(&a(), TIMEOUT).unwrap();
    let xml = fs::read_to_string(host.file("domain.xml")).unwrap();
    let order = ["<source dev='/dev/vhost-vdpa-7'/>", "<source dev='/dev/vhost-vdpa-4'/>"];
    let at = order.map(|line| xml.find(line).unwrap());
    assert!(at[0] < at[1], "the VF before its PF: {xml}");
    assert_eq!(vms.found().unwrap()[&a()].vdpa, ["net0".parse().unwrap()].into());
}

/// An undo passed over the stop of a switch that nobody served, whatever was left of it.
#[test]
fn a_switch_is_gone_only_with_all_that_belongs_to_it() {
    let host = Host::new();
    let mut guests = host.guests();
    host.vms().define(&with_devices(), TIMEOUT).unwrap();
    let gone = Fact::SwitchRunning { guest: a(), nic: "net0".parse().unwrap(), running: false };
    assert_eq!(guests.holds(&gone).unwrap(), Ok(()));
    fs::create_dir_all(host.file("switch-net0")).unwrap();
    let why = guests.holds(&gone).unwrap().unwrap_err();
    assert!(why.starts_with("its directory ") && why.ends_with("/penstock-a/switch-net0 is there"), "{why}");
    fs::remove_dir(host.file("switch-net0")).unwrap();
    let device = host.path("root/sys/bus/vdpa/devices/penstock-020000000101");
    fs::create_dir_all(&device).unwrap();
    let why = guests.holds(&gone).unwrap().unwrap_err();
    assert!(why.contains("has left its device penstock-020000000101"), "{why}");
    fs::remove_dir(&device).unwrap();
    assert_eq!(guests.holds(&gone).unwrap(), Ok(()));
    // What was set at a switch that does not answer is gone with it, as it was.
    fs::create_dir_all(host.file("switch-net0")).unwrap();
    let set = GuestAction::SetPortAttribute {
        guest: a(),
        nic: "net0".parse().unwrap(),
        vf: None,
        attribute: VfAttribute::Trust(true),
    };
    assert!(guests.is_gone(&set));
}

#[test]
fn a_qemu_that_apparmor_would_keep_from_its_vdpa_devices_is_found_before_it_is_made() {
    let host = Host::new();
    let vms = host.vms();
    for file in ["root/sys/bus/vdpa/drivers/vhost_vdpa", "root/dev/vduse", "root/etc/apparmor.d/abstractions"]
    {
        fs::create_dir_all(host.path(file)).unwrap();
    }
    fs::write(host.path("root/dev/vduse/control"), "").unwrap();
    let abstraction = host.path("root/etc/apparmor.d/abstractions/libvirt-qemu");
    fs::write(&abstraction, "/dev/vhost-net rw,\n").unwrap();
    let nic = "net0".parse().unwrap();
    // Whether somebody starts switches again is of the machine that this runs on, and asked last.
    let refused = || match vms.makes_devices(&a(), &nic) {
        Ok(()) | Err(GuestError::NoSystemd { .. }) => None,
        Err(error @ GuestError::NoVdpaRule { .. }) => error.hint(),
        Err(other) => panic!("{}", chain(&other)),
    };
    assert_eq!(refused(), None, "libvirt confines nobody");
    host.on("capabilities", "echo '<secmodel><model>apparmor</model></secmodel>'");
    let hint = refused().unwrap();
    let own = "/etc/apparmor.d/local/abstractions/libvirt-qemu";
    assert!(hint.contains(&format!("echo '/dev/vhost-vdpa-[0-9]* rw,' >>{own}")), "{hint}");

    // A libvirt that writes the rule itself, as far as it says.
    fs::create_dir_all(host.path("root/usr/lib/libvirt")).unwrap();
    let rule = "cat >/dev/null; echo '  \"/dev/vhost-vdpa-0\" rw,'";
    host.script("root/usr/lib/libvirt/virt-aa-helper", &format!("#!/bin/sh\n{rule}\n"));
    assert_eq!(refused(), None);
    host.script(
        "root/usr/lib/libvirt/virt-aa-helper",
        "#!/bin/sh\ncat >/dev/null; echo '  \"/dev/vhost-net\" rw,'\n",
    );
    assert!(refused().is_some());
    fs::create_dir_all(host.path("root/etc/apparmor.d/local/abstractions")).unwrap();
    fs::write(host.path(&format!("root{own}")), "  /dev/vhost-vdpa-[0-9]* rw,\n").unwrap();
    assert_eq!(refused(), None);
}
