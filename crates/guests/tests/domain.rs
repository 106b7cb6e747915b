//! Golden domains: what libvirt is told for each definition. `UPDATE_GOLDEN=1` writes them anew.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use penstock_guests::{
    state::State,
    vms::{
        domain::{self, Domain},
        switch::{line_socket, sockets},
    },
};
use penstock_model::{
    Allow, ByteSize, CpuSet, DataPath, DiskFormat, Emulation, Firmware, Inside, Scheduling, SchedulingPolicy,
    TenantNic, Uplink, VfSettings, Vm, domain::Booted,
};
use penstock_plan::action::{GuestDefinition, GuestFunction, GuestNic};

fn function(bdf: &str) -> GuestFunction {
    GuestFunction::bare(bdf.parse().unwrap(), "eth0".parse().unwrap())
}

fn definition(guest: &str, functions: &[&str]) -> GuestDefinition {
    GuestDefinition {
        vm: Some(Vm::default()),
        functions: functions.iter().map(|bdf| function(bdf)).collect(),
        ..GuestDefinition::bare(guest.parse().unwrap())
    }
}

fn kernel() -> Booted {
    Booted::Kernel {
        kernel: "/run/penstock/guests/penstock-rt-2/vmlinuz".into(),
        initramfs: Some("/run/penstock/guests/penstock-rt-2/initramfs".into()),
        command_line: "console=ttyS0".to_owned(),
    }
}

fn render(definition: &GuestDefinition, boot: &Booted, emulator: Option<&str>) -> String {
    let emulator: Option<CpuSet> = emulator.map(|set| set.parse().unwrap());
    let state = State::new("/run/penstock/guests".into());
    // Numbers of devices are the kernel's choice: here those before the first are somebody else's.
    let mut number = 3..;
    let back_ends = |own: &GuestNic| match own.nic.path {
        DataPath::VhostVdpa => {
            let devices = number.by_ref().map(|number| PathBuf::from(format!("/dev/vhost-vdpa-{number}")));
            devices.take(own.nic.functions().count()).collect()
        }
        _ => sockets(&state, &definition.guest, own).into_iter().map(|(_, path)| path).collect(),
    };
    let switches: Vec<Vec<PathBuf>> = definition.nics.iter().map(back_ends).collect();
    let lines: Vec<_> =
        definition.nics.iter().map(|own| line_socket(&state, &definition.guest, own)).collect();
    domain::render(&Domain {
        definition,
        uuid: Some("4d2b6c1f-0a9e-8f7c-8b3a-5d6e7f809112"),
        boot,
        emulator: emulator.as_ref(),
        console_log: "/run/penstock/guests/penstock-rt-2/console.log",
        console_socket: "/run/penstock/guests/penstock-rt-2/console.sock",
        switches: &switches,
        lines: &lines,
    })
}

#[track_caller]
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    penstock_testkit::golden::compare(&path, text);
}

#[test]
fn a_vm_with_nothing_said() {
    golden("bare.xml", &render(&definition("rt-2", &[]), &kernel(), None));
}

#[test]
fn no_virtual_cpu_strays_from_the_pin() {
    let pins = |cpus: u32| {
        let pinned = GuestDefinition {
            cpus: Some(cpus),
            pin: Some("0,2".parse().unwrap()),
            ..definition("rt-2", &[])
        };
        let xml = render(&pinned, &kernel(), None);
        let lines = xml.lines().map(str::trim).filter(|line| line.starts_with("<vcpupin"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let place = |vcpu: u32, cpus: &str| format!("<vcpupin vcpu='{vcpu}' cpuset='{cpus}'/>");
    assert_eq!(pins(1), [place(0, "0,2")]);
    assert_eq!(pins(2), [place(0, "0"), place(1, "2")]);
    assert_eq!(pins(3), [place(0, "0,2"), place(1, "0,2"), place(2, "0,2")]);
}

#[test]
fn virtual_cpus_are_scheduled_from_their_start() {
    let line = |policy: SchedulingPolicy, priority: u32| {
        let scheduled = GuestDefinition {
            pin: Some("2-3".parse().unwrap()),
            scheduling: Some(Scheduling { policy, priority }),
            ..definition("rt-2", &[])
        };
        let xml = render(&scheduled, &kernel(), Some("0-1"));
        xml.lines().map(str::trim).find(|line| line.starts_with("<vcpusched")).map(str::to_owned)
    };
    let wanted = |policy: &str| Some(format!("<vcpusched vcpus='0-1' scheduler='{policy}' priority='80'/>"));
    assert_eq!(line(SchedulingPolicy::Fifo, 80), wanted("fifo"));
    assert_eq!(line(SchedulingPolicy::Rr, 80), wanted("rr"));
    assert_eq!(line(SchedulingPolicy::Other, 0), None);
}

#[test]
fn functions_have_addresses_of_their_own() {
    let definition = definition("rt-2", &["0000:04:10.0", "0000:04:10.5", "10001:ff:1f.7"]);
    golden("functions.xml", &render(&definition, &kernel(), None));
    let inside: Vec<String> =
        (0..3).map(|position| domain::address_inside(position, 3).unwrap().to_string()).collect();
    assert_eq!(inside, ["0000:00:04.0", "0000:00:05.0", "0000:00:06.0"]);
    for (inside, owned) in inside.iter().zip(&definition.functions) {
        assert_eq!(domain::function_at(&definition, inside.parse().unwrap()), Some(owned.function));
    }
    assert_eq!(domain::function_at(&definition, "0000:00:07.0".parse().unwrap()), None);
}

/// A NIC by this number, with so many VFs and pairs of queues. The second may be set from inside, over a line.
fn own_nic(name: &str, number: u8, vfs: u8, queues: u16) -> GuestNic {
    let mac = |last: u8| penstock_model::Mac::new([0x02, 0, 0, 0, number, last]);
    let vf = |last: u8| VfSettings { mac: Some(mac(last + 1)), ..VfSettings::default() };
    let nic = TenantNic {
        emulation: Emulation::Virtio,
        mac: mac(0),
        vfs: (0..vfs).map(vf).collect(),
        path: DataPath::Switch,
        uplink: None,
        uplink_settings: None,
        settings: VfSettings::default(),
        addresses: Vec::new(),
        routes: Vec::new(),
        dhcp: false,
        mtu: None,
        queues,
        workers: 1,
        allow: (number == 1).then(Allow::default),
        vf_allow: BTreeMap::new(),
    };
    GuestNic { name: name.parse().unwrap(), nic, uplink_at: None }
}

/// The same at taps of a bridge.
fn at_taps(name: &str, number: u8, vfs: u8, queues: u16) -> GuestNic {
    let mut own = own_nic(name, number, vfs, queues);
    own.nic.path = DataPath::Tap;
    own.nic.uplink = Some(Uplink::Interface("br0".parse().unwrap()));
    own.nic.allow = None;
    own
}

#[test]
fn a_nic_of_its_own_has_its_vfs_before_their_pf() {
    let definition = GuestDefinition {
        vm: Some(Vm { huge_pages: Some(ByteSize(2 << 20)), ..Vm::default() }),
        nics: vec![own_nic("net0", 0, 2, 1), own_nic("net1", 1, 1, 4)],
        ..definition("rt-2", &["0000:04:10.0"])
    };
    golden("tenant.xml", &render(&definition, &kernel(), None));
}

#[test]
fn functions_at_taps_are_composed_as_those_at_a_switch() {
    let of = |nics| GuestDefinition { nics, ..definition("rt-2", &[]) };
    let alone = of(vec![at_taps("net0", 0, 2, 1), at_taps("net1", 1, 1, 4)]);
    golden("taps.xml", &render(&alone, &kernel(), None));
    // But for the back ends, and the memory that a switch shares, a domain is the same.
    let devices = |definition: &GuestDefinition| {
        let text = render(definition, &kernel(), None);
        let of_back_end =
            ["<interface", "<source type=", "<target dev=", "<access", "<reconnect", "</source>"];
        let lines =
            text.lines().filter(|line| !of_back_end.iter().any(|start| line.trim().starts_with(start)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let switched = of(vec![own_nic("net0", 0, 2, 1), own_nic("net1", 2, 1, 4)]);
    let tapped = of(vec![at_taps("net0", 0, 2, 1), at_taps("net1", 2, 1, 4)]);
    assert_eq!(devices(&tapped), devices(&switched));
    // One switch is enough to share the memory.
    let mixed = render(&of(vec![at_taps("net0", 0, 1, 1), own_nic("net1", 2, 1, 1)]), &kernel(), None);
    assert!(mixed.contains("<access mode='shared'/>") && mixed.contains("managed='no'/>"), "{mixed}");
}

/// The same with a vDPA device for each function.
fn by_devices(name: &str, number: u8, vfs: u8) -> GuestNic {
    let mut own = own_nic(name, number, vfs, 1);
    own.nic.path = DataPath::VhostVdpa;
    own.nic.allow = None;
    own
}

#[test]
fn functions_by_vdpa_devices_are_composed_as_those_at_a_switch() {
    let nics = vec![by_devices("net0", 0, 2), own_nic("net1", 2, 1, 1)];
    let definition = GuestDefinition { nics, ..definition("rt-2", &[]) };
    golden("vdpa.xml", &render(&definition, &kernel(), None));
    // A device that is not there has no interface, since its number is not known.
    let state = State::new("/run/penstock/guests".into());
    let of = |switches: &[Vec<PathBuf>]| {
        domain::render(&Domain {
            definition: &definition,
            uuid: None,
            boot: &kernel(),
            emulator: None,
            console_log: "",
            console_socket: "",
            switches,
            lines: &[],
        })
    };
    let at_switch = sockets(&state, &definition.guest, &definition.nics[1]);
    let text = of(&[Vec::new(), at_switch.into_iter().map(|(_, path)| path).collect()]);
    assert!(!text.contains("type='vdpa'") && text.contains("type='vhostuser'"), "{text}");
}

/// libvirt has words for all that an igb is.
#[test]
fn an_igb_is_one_interface_and_needs_no_override() {
    let mut igb = at_taps("net0", 0, 0, 1);
    igb.nic.emulation = Emulation::Igb;
    let of = |nics| GuestDefinition { nics, ..definition("rt-2", &[]) };
    golden("igb.xml", &render(&of(vec![igb.clone()]), &kernel(), None));
    // At an embedded switch it is a tap, too, and the switch has no part of the VM's memory.
    let mut switched = igb.clone();
    switched.nic.path = DataPath::SwitchTap;
    switched.nic.uplink = None;
    golden("igb.xml", &render(&of(vec![switched]), &kernel(), None));
    let mixed = render(&of(vec![igb, at_taps("net1", 1, 1, 1)]), &kernel(), None);
    assert!(mixed.contains("<model type='igb'/>") && mixed.contains("<qemu:override>"), "{mixed}");
}

#[test]
fn real_time() {
    let definition = GuestDefinition {
        memory: Some(1 << 30),
        pin: Some("2,4-5".parse().unwrap()),
        vm: Some(Vm {
            locked_memory: true,
            huge_pages: Some(ByteSize(2 << 20)),
            inside: Inside::Console,
            ..Vm::default()
        }),
        ..definition("rt-2", &["0000:04:10.0"])
    };
    golden("real-time.xml", &render(&definition, &kernel(), Some("0-1,3")));
}

#[test]
fn a_disk_with_uefi_and_a_hostile_path() {
    let definition = GuestDefinition {
        cpus: Some(4),
        vm: Some(Vm { firmware: Firmware::Uefi, inside: Inside::None, ..Vm::default() }),
        ..definition("rt-2", &[])
    };
    let disk = |is_block_device| {
        let path = "/srv/a&b 'c' \"d\"/<é>.qcow2".into();
        Booted::Disk { path, is_block_device, format: DiskFormat::Qcow2 }
    };
    let file = render(&definition, &disk(false), None);
    golden("disk.xml", &file);
    // QEMU refuses a block device as a file.
    let wanted =
        file.replace("<disk type='file'", "<disk type='block'").replace("<source file=", "<source dev=");
    assert_ne!(wanted, file);
    assert_eq!(render(&definition, &disk(true), None), wanted);
}

#[test]
fn more_functions_than_slots_share_them() {
    let functions: Vec<String> =
        (0..28).map(|n| format!("0000:{:02x}:{:02x}.{}", 4 + n / 8 / 32, n / 8, n % 8)).collect();
    let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
    let text = render(&definition("rt-2", &functions), &kernel(), None);
    assert_eq!(text.matches("multifunction='on'").count(), 4, "one for each slot");
    assert!(text.contains("slot='0x07' function='0x3'/>"), "{text}");
}
