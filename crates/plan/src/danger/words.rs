//! What functions are called in what is said of them, and what is known of each.

use std::collections::HashMap;

use penstock_model::{
    Bdf, Inventory,
    inventory::{Interface, LifelineKind, LifelineSort, Pf, Vf},
};

use super::harm::{Harm, How};
use crate::{Names, Plan, drivers::VFIO, free};

/// Names functions as the model and the machine do.
pub struct Words<'a> {
    inventory: &'a Inventory,
    names: Names,
    /// What the model calls a PF.
    named: HashMap<Bdf, String>,
    pfs: HashMap<Bdf, &'a Pf>,
    vfs: HashMap<Bdf, (&'a Pf, &'a Vf)>,
}

/// The IOMMU group of a function.
pub struct Group {
    pub number: u32,
    /// Whether it is the function's own, or that of its PF, because it does not exist yet.
    pub sure: bool,
    pf: Option<Bdf>,
}

impl Group {
    /// Whether a member says nothing: the PF of a VF that does not exist yet, which is in its own group already.
    pub fn leaves_out(&self, member: Bdf) -> bool {
        !self.sure && self.pf == Some(member)
    }
}

impl<'a> Words<'a> {
    pub fn new(plan: &'a Plan, inventory: &'a Inventory) -> Words<'a> {
        let vfs = inventory
            .pfs
            .iter()
            .flat_map(|pf| pf.sriov.iter().flat_map(|sriov| &sriov.vfs).map(move |vf| (vf.bdf, (pf, vf))));
        Words {
            inventory,
            names: Names::of(plan, inventory),
            named: inventory
                .sriov()
                .map(|(pf, _)| pf)
                .chain(plan.nics.values().copied())
                .filter_map(|pf| Some((pf, plan.name_of(pf)?)))
                .collect(),
            pfs: inventory.pfs.iter().map(|pf| (pf.bdf, pf)).collect(),
            vfs: vfs.collect(),
        }
    }

    /// The function's interface on the host.
    pub fn interface(&self, function: Bdf) -> Option<&'a Interface> {
        match (self.pfs.get(&function), self.vfs.get(&function)) {
            (Some(pf), _) => pf.interface.as_ref(),
            (None, Some((_, vf))) => vf.present.as_ref()?.interface.as_ref(),
            (None, None) => None,
        }
    }

    /// What stands for a function in the name of a danger: its interface, else its address.
    pub fn handle(&self, function: Bdf) -> String {
        let interface = self.interface(function);
        interface.map_or_else(|| function.to_string(), |interface| interface.name.to_string())
    }

    /// Where a function is: `eno1 (0000:01:00.0)`.
    pub fn place(&self, function: Bdf) -> String {
        match self.interface(function) {
            Some(interface) => format!("{} ({function})", interface.name),
            None => function.to_string(),
        }
    }

    /// The NIC that a function is on: its name in the model, else that of the PF's interface.
    pub fn nic(&self, function: Bdf) -> String {
        let pf = self.names.place(function).map_or(function, |(pf, _)| pf);
        self.named.get(&pf).cloned().unwrap_or_else(|| self.handle(pf))
    }

    /// A function as the model names it, else as the machine does.
    pub fn function(&self, function: Bdf) -> String {
        match self.names.place(function) {
            Some((pf, index)) => match self.named.get(&pf) {
                Some(name) => format!("{name}#{index}"),
                None => format!("VF {index} of {}", self.place(pf)),
            },
            None => self.named.get(&function).cloned().unwrap_or_else(|| self.place(function)),
        }
    }

    /// What is done to a function, as a sentence.
    pub fn harm(&self, harm: &Harm) -> String {
        let name = self.function(harm.function);
        match &harm.how {
            How::Destroyed => {
                format!("{name} would be destroyed with the VFs of {}", self.nic(harm.function))
            }
            How::Unbound => format!("{name} would lose its driver"),
            How::Reset => format!("{name} would be reset"),
            How::OffLine => format!("the controller of {name} would go off line"),
            How::Queues => format!("the controller of {name} would get other queues"),
            How::Detached(namespace) => format!("{name} would lose namespace {namespace}"),
            How::Into(guest) => format!("{name} would go into guest {guest}"),
            How::Down => {
                format!("{name} would be taken down, and routes over it do not come back by themselves")
            }
            How::DownForGood => {
                format!("{name} would lose its link, because the PF's interface is taken down")
            }
            How::Dropped => format!("{name} would be without a link for some seconds"),
            How::Renamed => {
                format!("the interface of {name} would get another name, by which nothing configures it")
            }
            How::Mtu => {
                format!("the MTU of {name} would change, which drops its link and may lose large packets")
            }
            How::Attribute => format!("the address or the filters of {name} would change"),
            How::Loses(address) => format!("{name} would lose the address {address}"),
        }
    }

    /// What to do instead of harming a lifeline.
    pub fn way_round(&self, kind: &LifelineKind, harm: &Harm) -> String {
        let nic = self.nic(harm.function);
        let other = if self.named.values().any(|name| *name == nic) {
            format!("match another PF as {nic}")
        } else {
            "leave that function alone".to_owned()
        };
        match (kind, &harm.how) {
            (_, How::Mtu) => format!("leave the mtu of {nic} out of the model, or {other}"),
            (_, How::Renamed) => format!("leave the interface of {nic} out of the model, or {other}"),
            (LifelineKind::DefaultRoute { .. }, _) => {
                format!("let the default route go over another interface first, or {other}")
            }
            (LifelineKind::Ssh { .. }, _) => {
                format!("start penstock from a console or over another interface, or {other}")
            }
            (LifelineKind::Peer { address }, _) => {
                format!("let {address} be reached over another interface first, or {other}")
            }
            (LifelineKind::Root, _) => format!("the machine cannot do without it: {other}"),
            (LifelineKind::Swap { area }, _) => format!("swapoff {area} first, or {other}"),
            (LifelineKind::Mount { at }, _) => format!("unmount {at} first, or {other}"),
        }
    }

    /// Lifelines of a sort.
    pub fn sort(sort: LifelineSort) -> &'static str {
        match sort {
            LifelineSort::DefaultRoute => "a default route",
            LifelineSort::Ssh => "the SSH connection that penstock was started from",
            LifelineSort::Peer => "the way to a machine that has to be reached",
            LifelineSort::Root => "the root file system",
            LifelineSort::Swap => "swap space",
            LifelineSort::Mount => "a mounted file system",
        }
    }

    /// How what is not known can be known.
    pub fn make_known(sort: LifelineSort) -> &'static str {
        match sort {
            LifelineSort::Ssh => "start penstock as root, outside of tmux and its like, or from a console",
            LifelineSort::Peer => {
                "see `ip route get ADDRESS`, and allow it if that goes over another interface"
            }
            LifelineSort::DefaultRoute => {
                "see `ip route show table all`, and allow it if none goes over this interface"
            }
            LifelineSort::Root | LifelineSort::Swap | LifelineSort::Mount => {
                "see `findmnt` and `lsblk`, and allow it if nothing that is needed is on this device"
            }
        }
    }

    /// Whether a function may have disks behind it: an NVMe drive, or a storage controller by its class.
    pub fn may_be_storage(&self, function: Bdf) -> bool {
        // A VF without a driver carries nothing, and one that VFIO has carries nothing of the host's.
        let is_driven = |vf: &Vf| {
            let driver = vf.present.as_ref().and_then(|present| present.driver.as_deref());
            vf.bdf == function && driver.is_some_and(|driver| driver != VFIO)
        };
        let drive = self.inventory.nvme.iter().any(|drive| {
            let mut vfs = drive.sriov.iter().flat_map(|sriov| &sriov.vfs);
            drive.bdf == function || vfs.any(is_driven)
        });
        let other = self.inventory.others.get(&function).is_some_and(|other| other.class >> 16 == 1);
        drive || other
    }

    /// Who uses a VF that no guest of ours has, if somebody does.
    pub fn stranger(&self, function: Bdf) -> Option<String> {
        let (pf, vf) = self.vfs.get(&function).copied().unzip();
        free::stranger(self.inventory, function, pf, vf.and_then(|vf| vf.present.as_ref()))
    }

    /// The group that a function is in, or is most likely to come into.
    pub fn group(&self, function: Bdf) -> Option<Group> {
        let listed = || {
            let groups = self.inventory.iommu_groups.iter();
            groups.filter(|(_, members)| members.contains(&function)).map(|(number, _)| *number).next()
        };
        let vf = self.vfs.get(&function);
        let pf = vf.map(|(pf, _)| pf.bdf);
        let own = match (vf, self.pfs.get(&function)) {
            (Some((_, vf)), _) => vf.present.as_ref().and_then(|present| present.iommu_group),
            (None, Some(pf)) => pf.iommu_group,
            (None, None) => None,
        };
        if let Some(number) = own.or_else(listed) {
            return Some(Group { number, sure: true, pf });
        }
        let number = vf.and_then(|(pf, _)| pf.iommu_group)?;
        Some(Group { number, sure: false, pf })
    }
}
