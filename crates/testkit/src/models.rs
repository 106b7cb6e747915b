//! Models too large to be written by hand.

use std::{fmt::Write, fs};

use penstock_model::{
    Bdf, Inventory, Mac, VfIndex,
    inventory::{FoundGuest, Interface, Pf, Sriov, SwitchMode, Vf, VfState},
    pci::RoutingId,
};
use tempfile::TempDir;

/// A model of `nics` NICs with `vfs` VFs each, dealt out in turn to `guests` containers that start one after the other.
pub fn dealt_out(nics: u16, vfs: u16, guests: u16) -> String {
    let mut text = "machine: large\nnics:\n".to_owned();
    for nic in 0..nics {
        let _ =
            writeln!(text, "  NET{nic}: {{match: {{mac: \"{}\"}}, vfs: {vfs}, loopback: true}}", pf_mac(nic));
    }
    text.push_str("guests:\n");
    for guest in 0..guests {
        let _ = writeln!(text, "  guest-{guest}:");
        if guest > 0 {
            let _ = writeln!(text, "    after: [guest-{}]", guest - 1);
        }
        text.push_str("    functions:\n");
        let slots = (guest..nics * vfs).step_by(usize::from(guests));
        for (dealt, slot) in slots.enumerate() {
            let (nic, vf) = (slot / vfs, slot % vfs);
            let address = format!("10.{nic}.{}.{}/16", vf / 200, vf % 200 + 1);
            let _ =
                writeln!(text, "      - {{vf: NET{nic}#{vf}, interface: net{dealt}, address: {address}}}");
        }
    }
    text
}

/// The machine on which [`dealt_out`] models fit: PFs of an X550-like NIC with `vfs` VFs each, none of them created yet.
///
/// # Panics
///
/// When the VFs run out of routing ids.
pub fn machine(nics: u16, vfs: u16) -> Inventory {
    let pf = |nic: u16| {
        let bdf = Bdf::new(0, RoutingId((nic * 4 + 4) << 8));
        let vf = |index: u16| Vf {
            index: VfIndex::new(index).expect("few VFs"),
            bdf: bdf.of_vf(0x80, 2, index).expect("few VFs"),
            present: None,
        };
        Pf {
            bdf,
            identity: Default::default(),
            driver: Some("ixgbe".to_owned()),
            interface: Some(Interface {
                name: format!("ens{nic}").parse().expect("a short name"),
                mac: pf_mac(nic),
                mtu: 1500,
                up: false,
                carrier: None,
                speed: None,
                addresses: Vec::new(),
                routes: Vec::new(),
                master: None,
                uppers: Vec::new(),
            }),
            permanent_mac: Some(pf_mac(nic)),
            numa_node: None,
            iommu_group: None,
            sriov: Some(Sriov {
                total_vfs: vfs,
                num_vfs: 0,
                autoprobe: true,
                first_vf_offset: 0x80,
                vf_stride: 2,
                vf_device: 0x1565,
                vfs: (0..vfs).map(vf).collect(),
            }),
            switch_mode: SwitchMode::Veb,
            firmware: None,
            devlink: None,
        }
    };
    Inventory { version: 1, pfs: (0..nics).map(pf).collect(), ..Inventory::default() }
}

/// A directory with a file, and in `machine.json` the inventory of such a machine with one NIC and two VFs.
///
/// # Panics
///
/// When they cannot be written.
pub fn beside_a_machine(file: &str, text: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let machine = serde_json::to_vec(&machine(1, 2)).expect("an inventory is JSON");
    for (name, bytes) in [(file, text.as_bytes()), ("machine.json", &machine)] {
        fs::write(directory.path().join(name), bytes).expect("the file can be written");
    }
    directory
}

fn pf_mac(nic: u16) -> Mac {
    Mac::new([0x0c, 0xc4, 0x7a, 0x9a, 0x62, nic as u8])
}

/// The same machine with all of its VFs there, without drivers, as a recorded tree (see [`crate::sysfs`]).
///
/// # Panics
///
/// When the VFs run out of routing ids.
pub fn tree(nics: u16, vfs: u16) -> String {
    let mut text = "[/proc]\nsys/kernel/osrelease = 6.12.48\ncmdline = quiet\ncpuinfo = processor\\t: 0\n\
                    [/sys/devices/system/cpu]\nonline = 0-3\nisolated =\n[/sys/devices/system/node]\nnode0/cpulist = 0-3\n"
        .to_owned();
    let mut links = String::new();
    for (nic, pf) in (0..nics).zip(&machine(nics, vfs).pfs) {
        let port = format!("/sys/devices/pci0000:00/0000:00:{:02x}.0", nic + 2);
        let mut function = |text: &mut String, bdf: Bdf, device: &str| {
            let _ = writeln!(
                text,
                "[{port}/{bdf}]\nclass = 0x020000\nvendor = 0x8086\ndevice = {device}\nsubsystem_vendor = 0x15d9\n\
                 subsystem_device = 0x1563\nnuma_node = 0\ndriver_override = (null)"
            );
            let at = port.trim_start_matches('/');
            let _ = writeln!(links, "/sys/bus/pci/devices/{bdf} -> ../../../../{at}/{bdf}");
        };
        function(&mut text, pf.bdf, "0x1563");
        let _ = writeln!(
            text,
            "driver -> ../../../../../sys/bus/pci/drivers/ixgbe\nsriov_totalvfs = {vfs}\nsriov_numvfs = {vfs}\n\
             sriov_drivers_autoprobe = 0\nsriov_offset = 128\nsriov_stride = 2\nsriov_vf_device = 1565\n\
             net/ens{nic}/address = {}\nnet/ens{nic}/ifindex = {}\nnet/ens{nic}/mtu = 1500\nnet/ens{nic}/flags = 0x1003\n\
             net/ens{nic}/operstate = up\nnet/ens{nic}/carrier = 1\nnet/ens{nic}/speed = 10000",
            pf_mac(nic),
            nic + 2
        );
        let found = pf.sriov.as_ref().expect("it has VFs");
        for vf in &found.vfs {
            let _ = writeln!(text, "virtfn{} -> ../{}", vf.index, vf.bdf);
        }
        for vf in &found.vfs {
            function(&mut text, vf.bdf, "0x1565");
            let _ = writeln!(text, "physfn -> ../{}", pf.bdf);
        }
        let at = port.trim_start_matches('/');
        let _ = writeln!(links, "/sys/class/net/ens{nic} -> ../../../{at}/{}/net/ens{nic}", pf.bdf);
    }
    text + "# How the rest of sysfs finds the above.\n" + &links
}

/// What netlink would add to a scan of [`tree`], were the machine as the [`dealt_out`] model for `guests` guests wants it, and
/// each guest running with what is its own.
pub fn settled(mut scanned: Inventory, guests: u16) -> Inventory {
    let mut functions: Vec<Bdf> = Vec::new();
    for pf in &mut scanned.pfs {
        let mac = pf.interface.as_ref().map(|interface| interface.mac).expect("the tree has its interface");
        (pf.permanent_mac, pf.switch_mode) = (Some(mac), SwitchMode::Veb);
        for vf in pf.sriov.iter_mut().flat_map(|sriov| &mut sriov.vfs) {
            functions.push(vf.bdf);
            let present = vf.present.as_mut().expect("the tree has all VFs");
            present.attributes = Some(VfState {
                mac: Mac::derived(mac, vf.index),
                spoofchk: Some(true),
                trust: Some(false),
                ..VfState::default()
            });
        }
    }
    for guest in 0..guests {
        let own = functions.iter().skip(usize::from(guest)).step_by(usize::from(guests)).copied().collect();
        let found = FoundGuest { running: true, functions: own, ..FoundGuest::default() };
        scanned.guests.insert(format!("guest-{guest}").parse().expect("a short name"), found);
    }
    scanned
}
