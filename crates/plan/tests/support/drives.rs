//! Random NVMe drives, with VFs that VMs own.

use penstock_model::{
    Bdf, Drive, DriveMatch, DriveVfName, GuestDrive, GuestKind, GuestName, Inventory, Model, VfIndex,
    inventory::{
        FlexibleResources, NvmeController, NvmeNamespace, NvmeVirtualization, PciIdentity, PresentVf,
        SecondaryController, Sriov, Vf,
    },
};

use super::Dice;

/// The most VFs of a drive, and pairs of queues and interrupts of one.
const VFS: u16 = 5;
const MOST: u16 = 6;

/// Gives the machine up to two drives, and each of its VMs at most one VF.
pub fn add(dice: &mut Dice, guests: &[GuestName], model: &mut Model, inventory: &mut Inventory) {
    let mut vms: Vec<&GuestName> =
        guests.iter().filter(|name| model.guests[*name].kind == GuestKind::Vm).collect();
    for number in 0..dice.below(3) {
        let mut found = controller(dice, number);
        let vfs = dice.below(u64::from(VFS) + 1) as u16;
        let name: penstock_model::DriveName = format!("SSD{number}").parse().unwrap();
        let matching = DriveMatch {
            serial: found.serial.clone().filter(|_| dice.once_in(2)),
            bdf: Some(found.bdf).filter(|_| dice.once_in(2)),
            ..DriveMatch::default()
        };
        for vf in (0..vfs).filter_map(VfIndex::new) {
            if dice.once_in(3) {
                continue;
            }
            let Some(owner) = vms.pop() else { break };
            // Each has one that no other has.
            let own = u32::from(vf.get()) + 2;
            model.guests[owner].drives.push(GuestDrive {
                name: DriveVfName { drive: name.clone(), vf },
                namespaces: [own].into(),
                queues: dice.once_in(2).then(|| 1 + dice.below(u64::from(MOST) - 1) as u16),
            });
        }
        let owned =
            model.guests.values().flat_map(|guest| &guest.drives).filter(|owned| owned.name.drive == name);
        fit(dice, owned.collect(), &mut found);
        let exact = matching.is_exact();
        let matching = if exact { matching } else { DriveMatch { bdf: Some(found.bdf), ..matching } };
        model.drives.insert(name, Drive { matching, vfs, queues: None });
        inventory.nvme.push(found);
    }
}

/// Takes the namespaces that `owned` VFs are to have from VFs that nobody owns, where a plan leaves them; and leaves the drive now and then
/// no more than the VFs have or are to have.
fn fit(dice: &mut Dice, owned: Vec<&GuestDrive>, found: &mut NvmeController) {
    let Some(told) = &mut found.virtualization else { return };
    let owner = |vf: VfIndex| owned.iter().find(|owned| owned.name.vf == vf);
    let free: Vec<u16> = told
        .secondary
        .iter()
        .filter(|secondary| owner(secondary.vf).is_none())
        .map(|secondary| secondary.controller)
        .collect();
    for namespace in owned.iter().flat_map(|owned| &owned.namespaces) {
        if let Some(namespace) = told.namespaces.get_mut(namespace) {
            namespace.controllers.retain(|controller| !free.contains(controller));
        }
    }
    if dice.once_in(2) {
        return;
    }
    let (mut before, mut after) = ([0, 0], [0, 0]);
    for secondary in &told.secondary {
        let had = [secondary.queues, secondary.interrupts];
        let wanted = match owner(secondary.vf).map(|owned| owned.queues) {
            None => had,
            Some(Some(queues)) => [queues + 1, had[1].max(1)],
            Some(None) => [had[0].max(2), had[1].max(1)],
        };
        for (sum, of) in [(&mut before, had), (&mut after, wanted)] {
            sum.iter_mut().zip(of).for_each(|(sum, of)| *sum += u32::from(of));
        }
    }
    told.queues.total = before[0].max(after[0]);
    told.interrupts.total = before[1].max(after[1]);
}

fn controller(dice: &mut Dice, number: u64) -> NvmeController {
    let at = |function: u16| format!("0000:f{number}:00.{function}").parse::<Bdf>().unwrap();
    let num_vfs = dice.below(u64::from(VFS) + 1) as u16;
    let mut secondary = Vec::new();
    let mut vfs = Vec::new();
    for index in (0..VFS).filter_map(VfIndex::new) {
        let there = index.get() < num_vfs;
        let (queues, interrupts) = match dice.below(3) {
            0 => (0, 0),
            _ => (2 + dice.below(3) as u16, 1 + dice.below(3) as u16),
        };
        let online = there && queues > 0 && dice.once_in(2);
        secondary.push(SecondaryController {
            vf: index,
            controller: index.get() + 1,
            online,
            queues,
            interrupts,
        });
        let driver = [None, Some("nvme"), Some("vfio-pci")][dice.below(3) as usize].map(str::to_owned);
        let present = there.then(|| PresentVf { driver, ..PresentVf::default() });
        vfs.push(Vf { index, bdf: at(index.get() + 1), present });
    }
    let namespaces = (1..=u32::from(VFS) + 2).map(|namespace| {
        let controllers = (1..=VFS).filter(|_| dice.once_in(4)).collect();
        (
            namespace,
            NvmeNamespace {
                size: penstock_model::ByteSize(1 << 30),
                shared: true,
                controllers,
                ..NvmeNamespace::default()
            },
        )
    });
    let of = FlexibleResources { total: u32::from(MOST * VFS * 2), most: MOST, held_by_pf: 0 };
    let virtualization = NvmeVirtualization {
        controller: 0,
        queues: of,
        interrupts: of,
        attaches_namespaces: true,
        namespaces: namespaces.collect(),
        secondary,
    };
    NvmeController {
        bdf: at(0),
        identity: PciIdentity::default(),
        driver: Some("nvme".to_owned()),
        name: Some(format!("nvme{number}")),
        model: Some("a drive".to_owned()),
        serial: Some(format!("S{number}")),
        firmware: None,
        numa_node: None,
        iommu_group: None,
        sriov: Some(Sriov {
            total_vfs: VFS,
            num_vfs,
            autoprobe: dice.once_in(2),
            first_vf_offset: 1,
            vf_stride: 1,
            vf_device: 0x10,
            vfs,
        }),
        virtualization: Some(virtualization),
    }
}
