//! From a model to the devices of a board. Pure: the same model and inventory always give the same board.

mod needs;
mod nvme;

use std::collections::BTreeMap;

pub use nvme::BoardDrive;
use penstock_host::emulated::LEFT_OUT;
use penstock_model::{
    Bdf, BoardKernel, ByteSize, DriveName, Emulation, GuestKind, Inventory, Mac, Model, Nic, NicName,
    RoutingId, VfIndex,
    composition::{self, Addressing, CompositionError, Device, DeviceKind, ROOT_BUS, VfLayout},
    inventory::Pf,
    text::counted,
};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    kernel::KernelChoice,
    netdev::{End, Netdev},
    switch::{self, Switch, Uplink},
};

/// The management NIC's address. The guest's start script knows its NIC by it.
pub const MANAGEMENT_MAC: Mac = Mac::new([0x52, 0x54, 0x00, 0x70, 0x73, 0x00]);

/// Beyond this many VFs, interrupt vectors become scarce: x86 has about 200 for each CPU.
const MANY_VFS: u32 = 64;
/// The first device number of the root bus that a root port takes; 2 is the disk, 3 the management NIC.
const FIRST_PORT: u16 = 4 * 8;

/// The most root ports with an igb behind them. An igb has I/O ports, a bridge hands them on 4 KiB at a time, and SeaBIOS stops
/// without a word when the 64 KiB that there are do not suffice.
const IGB_PORTS: usize = 14;
/// The most CPUs that a board has unless the model's `board` says more: emulated ones share those of this machine.
const MOST_CPUS: u32 = 32;
/// Milliseconds until QEMU looks again for an embedded switch that has gone: one that died is started anew.
const AGAIN: u32 = 200;
/// Where the root bus has the lines to embedded switches: before the chipset's own devices (`1f.0`).
const SERIAL: u16 = 0x1e * 8;

/// Why a model has no board.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DesignError {
    /// Its devices cannot be composed so.
    #[error(transparent)]
    Composition(#[from] CompositionError),
    /// More VFs than the device that stands for the NIC can have.
    #[error("NIC {nic} is to have {}, and {} has at most {limit}{}", counted(usize::from(*wanted), "VF"), device_name(*emulation),
        if *emulation == Emulation::Igb { "; `emulation: virtio` has up to 255" } else { "" })]
    TooManyVfs {
        /// The NIC's name in the model.
        nic: NicName,
        /// What the model wants.
        wanted: u16,
        /// What stands for it.
        emulation: Emulation,
        /// What that can have.
        limit: u16,
    },
    /// More NICs and drives than root ports fit on the root bus.
    #[error("a board has room for {limit} NICs and drives, and the model has {wanted}")]
    TooManyNics {
        /// What the model has.
        wanted: usize,
        /// The most NICs that a board can have.
        limit: usize,
    },
    /// More emulated igbs than there are I/O ports for.
    #[error(
        "a board has room for {limit} NICs that are an emulated igb, and the model has {wanted}; `emulation: virtio` takes no such room"
    )]
    TooManyIgbs {
        /// What the model has.
        wanted: usize,
        /// The most emulated igbs that a board can have.
        limit: usize,
    },
    /// More CPUs than are emulated without being asked for.
    #[error(
        "the model names CPU {}, and a board has at most {limit} CPUs where nothing is said: write `board: {{cpus: {wanted}}}` to have as many, or name lower ones",
        wanted - 1
    )]
    TooManyCpus {
        /// How many there would have to be.
        wanted: u32,
        /// The most CPUs that a board has unless the model asks for more.
        limit: u32,
    },
    /// No PF of the inventory is the NIC's.
    #[error("NIC {nic}: the inventory has no PF {what}")]
    NoSuchPf {
        /// The NIC's name in the model.
        nic: NicName,
        /// What was looked for.
        what: String,
    },
    /// A drive that a real machine has by its place or its make, which no emulated one has.
    #[error(
        "drive {drive} is known by its {words}, and a board's drives are known by their serial numbers alone: write `match: {{serial: ...}}`"
    )]
    DriveByPlace {
        /// The drive's name in the model.
        drive: DriveName,
        /// What it is known by.
        words: String,
    },
    /// A drive with more VFs than QEMU's has.
    #[error("drive {drive} is to have {wanted} VFs, and an emulated NVMe drive has at most {limit}")]
    TooManyDriveVfs {
        /// The drive's name in the model.
        drive: DriveName,
        /// As many as the model wants.
        wanted: u16,
        /// The most that QEMU gives one.
        limit: u16,
    },
    /// A cable that ends at no NIC.
    #[error("a cable goes to {nic}, and there is no such NIC")]
    CableToNowhere {
        /// What was named.
        nic: NicName,
    },
    /// A cable from a NIC to itself.
    #[error("a cable goes from {nic} to {nic}: its two ends must be different NICs")]
    CableToItself {
        /// The NIC that the model names at both ends.
        nic: NicName,
    },
    /// A NIC with two cables, which the model refuses already.
    #[error("{nic} has two cables, and a NIC has one uplink")]
    SecondCable {
        /// The NIC that the model names in both cables.
        nic: NicName,
    },
}

/// What people call the device that stands for a NIC.
fn device_name(emulation: Emulation) -> &'static str {
    match emulation {
        Emulation::Igb => "the emulated igb",
        Emulation::Virtio => "a composed virtio NIC",
    }
}

/// A NIC as a board has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardNic {
    /// Its name in the model.
    pub name: NicName,
    /// Where the board's kernel finds its PF.
    pub bdf: Bdf,
    /// The PF's permanent address.
    pub mac: Mac,
    /// What stands for it.
    pub emulation: Emulation,
    /// How many VFs it can have.
    pub total_vfs: u16,
    /// Where its cable leads: the NIC's place among the board's.
    pub peer: Option<usize>,
    /// Whether the IOMMU, where there is one, stands between its functions and memory, so that VMs can have them. With an
    /// embedded switch of ours only where one does: each page of the board's memory is a question to QEMU then.
    pub translated: bool,
}

/// A board: what QEMU is told that a run does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// The model's name of the machine.
    pub machine: String,
    /// How many CPUs it has.
    pub cpus: u32,
    /// Whether its clock counts instructions.
    pub icount: bool,
    /// Which of the image's kernels it runs, and why.
    pub kernel: KernelChoice,
    /// Whether there is an IOMMU.
    pub iommu: bool,
    /// How much memory it has; QEMU is told whole MiB.
    pub memory: ByteSize,
    /// Huge pages that its VMs want: how many of each size.
    pub huge_pages: BTreeMap<ByteSize, u64>,
    /// The NICs, in the model's order, which is also that of their buses.
    pub nics: Vec<BoardNic>,
    /// The embedded switches of composed virtio NICs: processes beside QEMU.
    pub switches: Vec<Switch>,
    /// Back ends of the NICs' functions.
    pub netdevs: Vec<Netdev>,
    /// Devices in the order in which QEMU makes them.
    pub devices: Vec<Device>,
    /// What its kernel is told besides what every board needs. `None`: to use the IOMMU, where there is one.
    pub kernel_arguments: Option<String>,
    /// Whether it runs VMs, so that its start includes libvirt's.
    pub vms: bool,
    /// Whether systemd has to be its first process: the switches of NICs that VMs own are units of it.
    pub systemd: bool,
    /// Its NVMe drives.
    pub drives: Vec<BoardDrive>,
}

impl Design {
    /// The board's kernel command line. An IOMMU is in pass-through for the board's own devices (requirement C6).
    /// Grace periods are hastened, because every interface that changes its namespace or name waits for several, and
    /// mitigations only cost time where nothing real is to be protected; but neither with the realtime kernel, of which a board
    /// is to show what it does: hastened grace periods interrupt every CPU. An emulated timer may be late when the host is busy,
    /// and the kernel would take that for a broken one and panic.
    pub fn kernel_command_line(&self) -> String {
        let iommu = if self.iommu { "intel_iommu=on iommu=pt" } else { "" };
        let more = self.kernel_arguments.as_deref().unwrap_or(iommu);
        let quick = match self.kernel.kernel {
            // Security modules other than AppArmor cost time, too: systemd loads programs into the one of BPF.
            BoardKernel::Standard => {
                format!("mitigations=off rcupdate.rcu_expedited=1 {LEFT_OUT} lsm=capability,apparmor ")
            }
            BoardKernel::Realtime => String::new(),
        };
        // Set aside at the start, while memory is in one piece.
        let pages = (self.huge_pages.iter())
            .map(|(size, count)| format!("hugepagesz={}M hugepages={count} ", size.0 >> 20))
            .collect::<String>();
        format!("console=ttyS0 panic=-1 no_timer_check {quick}{pages}{more}").trim_end().to_owned()
    }

    /// The board for `model`.
    ///
    /// With an inventory, each NIC has the permanent MAC address and the number of VFs of the PF that the model's
    /// `match` picks there. Without one, the address is that of `match`, or one derived from the NIC's name; the
    /// number of VFs is what the model wants.
    ///
    /// A NIC whose `match` names a slot by its number is in that slot.
    ///
    /// An igb stands for a NIC of up to 7 wanted VFs, because its embedded switch and VF attributes are real; a
    /// composed virtio NIC beyond, or where the model says so, whose functions are ports of an embedded switch ([`Switch`]).
    ///
    /// # Errors
    ///
    /// Each [`DesignError`] of the model: a PF that the inventory has not, more NICs, VFs or CPUs than are emulated, devices
    /// that cannot be composed so, cables that no board can have.
    pub fn from_model(model: &Model, inventory: Option<&Inventory>) -> Result<Design, Vec<DesignError>> {
        let mut errors = Vec::new();
        let found = match inventory {
            Some(inventory) => pick(model, inventory, &mut errors),
            None => vec![None; model.nics.len()],
        };
        let peers = peers(model, &mut errors);
        let room = usize::from(SERIAL - FIRST_PORT);
        let ports = model.nics.len() + model.drives.len();
        if ports + 1 > room {
            errors.push(DesignError::TooManyNics { wanted: ports, limit: room - 1 });
        }
        errors.extend(nvme::errors(model));
        let mut nics = Vec::new();
        for (((name, nic), pf), peer) in model.nics.iter().zip(found).zip(peers) {
            match board_nic(model, name, nic, pf, peer) {
                Ok(nic) => nics.push(nic),
                Err(error) => errors.push(error),
            }
        }
        let igbs = nics.iter().filter(|nic| nic.emulation == Emulation::Igb).count();
        if igbs > 2 * IGB_PORTS {
            errors.push(DesignError::TooManyIgbs { wanted: igbs, limit: 2 * IGB_PORTS });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        place(&mut nics, igbs > IGB_PORTS);
        let design = assemble(model, nics);
        let mut errors: Vec<DesignError> = design.check().into_iter().map(DesignError::from).collect();
        if model.board.cpus.is_none() && design.cpus > MOST_CPUS {
            errors.push(DesignError::TooManyCpus { wanted: design.cpus, limit: MOST_CPUS });
        }
        if errors.is_empty() { Ok(design) } else { Err(errors) }
    }

    /// Checks the rules of composition; empty when all hold.
    pub fn check(&self) -> Vec<CompositionError> {
        let netdevs: Vec<&str> = self.netdevs.iter().map(|netdev| netdev.id.as_str()).collect();
        composition::check(&self.devices, &netdevs, Addressing::Ari)
    }

    /// How many VFs the board has in all.
    pub fn total_vfs(&self) -> u32 {
        self.nics.iter().map(|nic| u32::from(nic.total_vfs)).sum()
    }

    /// Why QEMU cannot save such a board; `None` where it can.
    pub fn cannot_be_saved(&self) -> Option<&'static str> {
        (!self.drives.is_empty()).then_some("an NVMe controller")
    }

    /// QEMU's arguments for all of this: machine, CPUs, memory, back ends and devices. Not among them is what a run
    /// adds: accelerator, kernel, files, sockets, the management NIC's port.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
            "-machine",
            "q35,kernel-irqchip=split",
            // Hot-plug by the ports themselves, whose slots the kernel then names by their numbers; ACPI gives every bus a
            // slot 0, of which no name is stable.
            "-global",
            "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off",
            // A virtio NIC that can announce itself loses the timer for that when a saved board is loaded, and its next reset, by a reboot
            // of the board, ends QEMU with a signal (11.1.3, `virtio_net_reset` of hw/net/virtio-net.c). Nobody is to hear of it here.
            "-global",
            "virtio-net-device.guest_announce=off",
            "-smp",
        ]
        .map(String::from)
        .into();
        arguments.push(self.cpus.to_string());
        arguments.push("-m".to_owned());
        arguments.push(format!("{}M", self.memory.0 >> 20));
        if !self.switches.is_empty() {
            // A switch reads and writes frames where they are: in the board's memory.
            let size = self.memory.0 >> 20;
            arguments.push("-object".to_owned());
            arguments.push(format!("memory-backend-memfd,id=memory,size={size}M,share=on"));
            arguments.extend(["-machine".to_owned(), "memory-backend=memory".to_owned()]);
        }
        for switch in &self.switches {
            arguments.push("-chardev".to_owned());
            arguments.push(format!(
                "socket,id={},path={},reconnect-ms={AGAIN}",
                switch.id(),
                switch.control()
            ));
            arguments.push("-qmp".to_owned());
            arguments.push(format!("unix:{},server=on,wait=off", switch.monitor()));
            arguments.push("-qmp".to_owned());
            arguments.push(format!("unix:{},server=on,wait=off", switch.filters()));
        }
        arguments.extend(self.drives.iter().flat_map(BoardDrive::backings));
        for netdev in self.netdevs.iter().filter(|netdev| netdev.id != MANAGEMENT) {
            if let End::Switch(socket) = &netdev.end {
                arguments.push("-chardev".to_owned());
                arguments.push(format!("socket,id={},path={socket},reconnect-ms={AGAIN}", netdev.id));
            }
            arguments.push("-netdev".to_owned());
            arguments.push(netdev.to_string());
        }
        for device in &self.devices {
            arguments.push("-device".to_owned());
            arguments.push(device.to_string());
        }
        arguments
    }
}

/// The id of the management NIC's back end, which a run makes.
pub const MANAGEMENT: &str = "mgmt";

/// The PF of the inventory for each NIC. Those that are named by MAC or address come first, so that a NIC that
/// matches anything does not take theirs.
fn pick<'a>(model: &Model, inventory: &'a Inventory, errors: &mut Vec<DesignError>) -> Vec<Option<&'a Pf>> {
    let mut picked: Vec<Option<&Pf>> = vec![None; model.nics.len()];
    for round in [true, false] {
        for (position, (name, nic)) in model.nics.iter().enumerate() {
            if nic.matching.is_exact() != round {
                continue;
            }
            let wanted = &nic.matching;
            let free = |pf: &&Pf| !picked.iter().flatten().any(|taken| taken.bdf == pf.bdf);
            let fits = |pf: &&Pf| {
                wanted.holds_for(pf, false)
                    && pf.sriov.as_ref().is_some_and(|sriov| sriov.total_vfs >= nic.vfs)
            };
            let found = inventory.pfs.iter().filter(free).find(fits);
            if found.is_none() {
                let mut what = vec![format!("that is free with {}", counted(usize::from(nic.vfs), "VF"))];
                what.extend(wanted.words());
                errors.push(DesignError::NoSuchPf { nic: name.clone(), what: what.join(", ") });
            }
            picked[position] = found;
        }
    }
    picked
}

/// Where each NIC's cable leads, by the NICs' places.
fn peers(model: &Model, errors: &mut Vec<DesignError>) -> Vec<Option<usize>> {
    let mut peers: Vec<Option<usize>> = vec![None; model.nics.len()];
    for [a, b] in &model.board.cables {
        let mut end = |nic: &NicName| {
            let position = model.nics.get_index_of(nic);
            if position.is_none() {
                errors.push(DesignError::CableToNowhere { nic: nic.clone() });
            }
            position
        };
        let (Some(first), Some(second)) = (end(a), end(b)) else {
            continue;
        };
        if first == second {
            errors.push(DesignError::CableToItself { nic: a.clone() });
            continue;
        }
        for (nic, own, other) in [(a, first, second), (b, second, first)] {
            if peers[own].replace(other).is_some_and(|before| before != other) {
                errors.push(DesignError::SecondCable { nic: nic.clone() });
            }
        }
    }
    peers
}

/// The number of the embedded switch of the NIC at this place.
fn switch_number(nics: &[BoardNic], position: usize) -> usize {
    nics.iter().take(position).filter(|nic| nic.emulation == Emulation::Virtio).count()
}

/// Where the uplink of an embedded switch leads: the one that was made first awaits the other, and an igb's QEMU comes to it.
fn cable(nics: &[BoardNic], position: usize) -> Option<Uplink> {
    let other = nics.get(position)?.peer?;
    let own = switch_number(nics, position);
    Some(match nics.get(other)?.emulation {
        Emulation::Igb => Uplink::Qemu(own),
        Emulation::Virtio if position < other => Uplink::Listen(own),
        Emulation::Virtio => Uplink::Connect(switch_number(nics, other)),
    })
}

/// Where the uplink of an igb leads: to a hub inside QEMU, which it shares with the igb that a cable joins it with; or to the
/// embedded switch of the NIC at the other end.
fn igb_end(nics: &[BoardNic], position: usize) -> End {
    let hub = |position| End::Hub(u32::try_from(position).unwrap_or(u32::MAX));
    match nics.get(position).and_then(|nic| nic.peer) {
        None => hub(position),
        Some(other) if nics.get(other).is_some_and(|nic| nic.emulation == Emulation::Virtio) => {
            End::Cable { path: switch::cable(switch_number(nics, other)), again: AGAIN }
        }
        Some(other) => hub(position.min(other)),
    }
}

fn board_nic(
    model: &Model,
    name: &NicName,
    nic: &Nic,
    pf: Option<&Pf>,
    peer: Option<usize>,
) -> Result<BoardNic, DesignError> {
    let asked = model.board.emulation.get(name).copied();
    // A VF of an igb has no promiscuous mode, which an uplink needs.
    let has_uplink = model.uplink_vfs().any(|uplink| uplink.function.nic == *name);
    let emulation = asked.unwrap_or(if nic.vfs <= Emulation::Igb.most_vfs() && !has_uplink {
        Emulation::Igb
    } else {
        Emulation::Virtio
    });
    let limit = emulation.most_vfs();
    if nic.vfs > limit {
        return Err(DesignError::TooManyVfs { nic: name.clone(), wanted: nic.vfs, emulation, limit });
    }
    let real = pf.and_then(|pf| pf.sriov.as_ref()).map(|sriov| sriov.total_vfs);
    let total_vfs = match emulation {
        Emulation::Igb => limit,
        // A PF without any VF would be no PF.
        Emulation::Virtio => real.unwrap_or(nic.vfs).clamp(nic.vfs.max(1), limit),
    };
    let mac = (pf.and_then(|pf| pf.permanent_mac)).or(nic.matching.mac).unwrap_or_else(|| derived_mac(name));
    let bdf = Bdf::new(0, RoutingId(0));
    let vms = model.guests.values().filter(|guest| guest.kind == GuestKind::Vm);
    let to_vm = vms.flat_map(|guest| &guest.functions).any(|function| function.name.nic == *name);
    let translated = to_vm || emulation != Emulation::Virtio;
    Ok(BoardNic { name: name.clone(), bdf, mac, emulation, total_vfs, peer, translated })
}

/// Puts each NIC behind a root port of its own; of too many igbs two behind one, as the ports of one card. Root ports are
/// scanned in order and each has one bus below it: the first NIC is on bus 1.
fn place(nics: &mut [BoardNic], in_pairs: bool) {
    let mut bus = 0;
    let mut half_full: Option<u16> = None;
    for nic in nics {
        let paired = in_pairs && nic.emulation == Emulation::Igb;
        let id = match half_full.take_if(|_| paired) {
            Some(beside) => beside << 8 | 1,
            None => {
                bus += 1;
                half_full = if paired { Some(bus) } else { half_full };
                bus << 8
            }
        };
        nic.bdf = Bdf::new(0, RoutingId(id));
    }
}

/// The address of a NIC for which the model gives none: locally administered, of the SHA-256 of its name.
fn derived_mac(name: &NicName) -> Mac {
    let hash = Sha256::digest(format!("board NIC {name}"));
    Mac::new([0x02, 0x70, 0x73, hash[0], hash[1], hash[2]])
}

fn assemble(model: &Model, nics: Vec<BoardNic>) -> Design {
    let vfs: u32 = nics.iter().map(|nic| u32::from(nic.total_vfs)).sum();
    let many = vfs > MANY_VFS;
    let has_vm = needs::has_vm(model);
    // QEMU draws up every function's address space anew whenever one of them maps a register: with hundreds of
    // functions behind an IOMMU a boot takes minutes and the emulator gigabytes.
    let iommu = model.board.iommu.unwrap_or(has_vm || !many);
    let kernel = KernelChoice::of(model);
    let drives = BoardDrive::all(model);
    let mut design = Design {
        iommu,
        machine: model.machine.clone(),
        cpus: match (model.board.cpus, model.board.icount) {
            (Some(cpus), _) => cpus,
            (None, true) => 1,
            (None, false) => needs::cpus(model, many, kernel.kernel),
        },
        icount: model.board.icount,
        kernel,
        memory: model.board.memory.unwrap_or_else(|| {
            needs::memory(model, vfs + drives.iter().map(|drive| u32::from(drive.vfs)).sum::<u32>())
        }),
        huge_pages: needs::huge_pages(model),
        nics: Vec::new(),
        netdevs: vec![Netdev { id: MANAGEMENT.to_owned(), end: End::Hub(0) }],
        switches: Vec::new(),
        devices: Vec::new(),
        vms: has_vm,
        systemd: model.guests.values().any(|guest| !guest.nics.is_empty()),
        kernel_arguments: None,
        drives,
    };
    let devices = &mut design.devices;
    if iommu {
        devices
            .push(Device::new("iommu", DeviceKind::Iommu).with("intremap", "on").with("device-iotlb", "on"));
    }
    let disk = Device::new("disk", DeviceKind::Disk).at(ROOT_BUS, 2 * 8).with("drive", "root");
    // Beside it is the disk with the program that runs on the board (`program.rs`).
    devices.push(disk.with("multifunction", "on"));
    let mut management = Device::new("management", DeviceKind::VirtioNet).at(ROOT_BUS, 3 * 8);
    management.netdev = Some(MANAGEMENT.to_owned());
    management.mac = Some(MANAGEMENT_MAC);
    devices.push(management);

    let slots = slots(model, &nics);
    let mut ports = 0;
    for (position, (nic, slot)) in nics.iter().zip(&slots).enumerate() {
        let (bus, function) = (u16::from(nic.bdf.bus()), nic.bdf.routing_id().0 & 0xff);
        let port = format!("port{}", bus - 1);
        if bus > ports {
            ports = bus;
            devices.push(root_port(&port, bus - 1, *slot));
        }
        match nic.emulation {
            Emulation::Igb => {
                let netdev = format!("{}-uplink", nic.name);
                let mut igb = Device::new(nic.name.as_str(), DeviceKind::Igb).at(&port, function);
                let is_beside = |other: &BoardNic| other.bdf != nic.bdf && other.bdf.bus() == nic.bdf.bus();
                if function == 0 && nics.iter().any(is_beside) {
                    // Linux asks each function for the next one (ARI), not for all.
                    igb = igb.with("multifunction", "on").with("x-pcie-ari-nextfn-1", "on");
                }
                igb.mac = Some(nic.mac);
                igb.netdev = Some(netdev.clone());
                devices.push(igb);
                design.netdevs.push(Netdev { id: netdev, end: igb_end(&nics, position) });
            }
            Emulation::Virtio => {
                let mut switch = Switch::new(switch_number(&nics, position), nic);
                switch.lead_out(cable(&nics, position));
                compose(model, nic, &port, (many, iommu), devices, &mut design.netdevs, &mut switch);
                design.switches.push(switch);
            }
        }
    }
    if !design.switches.is_empty() {
        // One line for each, so that who is inside can set what a switch does.
        let lines = design.switches.len();
        devices.push(
            Device::new("serial", DeviceKind::Serial).at(ROOT_BUS, SERIAL).with("max_ports", lines + 1),
        );
        for switch in &design.switches {
            let port = Device::new(format!("{}-line", switch.id()), DeviceKind::SerialPort);
            devices.push(port.with("chardev", switch.id()).with("name", switch.line()));
        }
    }
    let mut taken = slots;
    for (drive, position) in design.drives.iter().zip(ports..) {
        let (port, slot) = (format!("port{position}"), free_slot(&taken));
        taken.push(slot);
        devices.push(root_port(&port, position, slot));
        drive.compose(&port, devices);
    }
    design.nics = nics;
    design
}

/// A port's Physical Slot Number has 13 bits (PCI Express Base Specification, 7.5.3.9).
const LAST_SLOT: u16 = 0x1fff;

/// The slot of each NIC: the one that its `match` names where that is a slot's number, else the first that is free.
fn slots(model: &Model, nics: &[BoardNic]) -> Vec<u16> {
    let named = |nic: &BoardNic| {
        let slot = model.nics.get(&nic.name)?.matching.slot.as_ref()?;
        slot.as_str().parse().ok().filter(|number| (1..=LAST_SLOT).contains(number))
    };
    let mut taken: Vec<u16> = nics.iter().filter_map(named).collect();
    let mut slots = Vec::new();
    for nic in nics {
        // The ports of one card are in one slot, which a board has no cards for: the second gets another.
        let slot = named(nic).filter(|slot| !slots.contains(slot)).unwrap_or_else(|| free_slot(&taken));
        taken.push(slot);
        slots.push(slot);
    }
    slots
}

fn free_slot(taken: &[u16]) -> u16 {
    (1..=LAST_SLOT).find(|slot| !taken.contains(slot)).unwrap_or(LAST_SLOT)
}

fn root_port(id: &str, position: u16, slot: u16) -> Device {
    Device::new(id, DeviceKind::RootPort)
        .at(ROOT_BUS, FIRST_PORT + position)
        .with("chassis", position + 1)
        .with("slot", slot)
        .with("multifunction", "on")
}

/// A composed NIC: its VFs, then the PF that claims them.
fn compose(
    model: &Model,
    nic: &BoardNic,
    port: &str,
    (many, iommu): (bool, bool),
    devices: &mut Vec<Device>,
    netdevs: &mut Vec<Netdev>,
    switch: &mut Switch,
) {
    let mut function = |vf: Option<VfIndex>, number: u16, mac: Mac| {
        let id = vf.map_or_else(|| nic.name.to_string(), |vf| format!("{}.{vf}", nic.name));
        let netdev = format!("{id}-port");
        let end = End::Switch(switch.add(vf, mac, &id, &netdev));
        netdevs.push(Netdev { id: netdev.clone(), end });
        let mut device = Device::new(id, DeviceKind::VirtioNet)
            .at(port, number)
            // One vector each for configuration, receive and transmit; of many functions, one for both queues.
            .with("vectors", if many { 2 } else { 3 })
            // A descriptor for each queue of hundreds of functions would make every turn of QEMU's main loop long.
            .with("ioeventfd", "off");
        if iommu && nic.translated {
            // Or it would not stand between the function and memory, and no VM could be given it.
            device = device.with("iommu_platform", "on").with("ats", "on");
        }
        device.netdev = Some(netdev);
        device.mac = Some(mac);
        device
    };
    let wanted: Vec<Option<Mac>> = model.vfs(&nic.name).map(|(_, settings)| settings.mac).collect();
    let layout = VfLayout::for_vfs(nic.total_vfs);
    for index in 0..nic.total_vfs {
        // `total_vfs` is at most 255, and the layout holds as many.
        let (Some(number), Some(vf)) = (layout.function(index), VfIndex::new(index)) else {
            break;
        };
        let mac = wanted.get(usize::from(index)).copied().flatten();
        let mac = mac.unwrap_or_else(|| Mac::derived(nic.mac, vf));
        let mut device = function(Some(vf), number, mac);
        device.pf = Some(nic.name.to_string());
        devices.push(device);
    }
    devices.push(function(None, 0, nic.mac));
}
