//! Models too large to be written by hand.

use std::fmt::Write;

use penstock_model::{
    Bdf, Inventory, Mac, VfIndex,
    inventory::{Interface, Pf, Sriov, SwitchMode, Vf},
    pci::RoutingId,
};

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
        }
    };
    Inventory { version: 1, pfs: (0..nics).map(pf).collect(), ..Inventory::default() }
}

fn pf_mac(nic: u16) -> Mac {
    Mac::new([0x0c, 0xc4, 0x7a, 0x9a, 0x62, nic as u8])
}
