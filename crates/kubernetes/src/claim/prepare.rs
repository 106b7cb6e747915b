//! A claim's devices are made ready: whatever can be refused is refused here, where kubelet makes an Event of the message, and not in the
//! hook. Nothing of a VF is changed yet, but that one for a program is bound to vfio-pci: the container runtime looks for its `/dev/vfio/GROUP`
//! before it runs any hook.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Netlink, PciError, PciFunction, Root, boot,
    files::{FileError, Lock},
    local_interface_of,
    pci::passes_through,
    scan::attachments::attachment,
};
use penstock_model::{Bdf, InterfaceName, Mac};
use thiserror::Error;

use super::{
    allocation::{AllocatedClaim, AllocatedDevice},
    mac::MacNeighbours,
    metadata,
    network_plugin::{CallError, NetworkPlugin},
    parameters::VfMode,
    state::{AttachStore, ClaimStore, ClaimUid, PreparedClaim, PreparedDevice, StateError},
    unprepare::UnprepareError,
};
use crate::{
    cdi,
    change::{self, RolloutStateError},
    devices::Devices,
    log::say,
};

/// How long other calls may be at preparing claims, and another one, or a hook, at the claim. Kubelet waits for 45 s.
pub(super) const LOCK: Duration = Duration::from_secs(20);
/// So long at once other claims wait for who is at one.
pub(crate) const TURN: Duration = Duration::from_secs(1);
/// So long they have their turn then: who waits for a lock looks each 10 ms.
const OTHERS: Duration = Duration::from_millis(50);
/// The driver that hands a VF to a program.
const VFIO: &str = "vfio-pci";
/// How long one call of `penstock cni` may take.
pub(crate) const CALL: Duration = Duration::from_secs(40);

/// What is done for a claim, one after the other; each step is called when what it names is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    /// Prepare: the claim is written down.
    Written,
    /// Prepare, with a VF for a program: it is bound to vfio-pci.
    Bound,
    /// Prepare, with a VF for a program: its VFIO group is written down.
    GroupWritten,
    /// Prepare: the files that containers read of it are written.
    MetadataWritten,
    /// Prepare: the container runtime's file is written.
    CdiWritten,
    /// Unprepare: its VFs are home.
    TakenBack,
    /// Unprepare: the container runtime's file is removed.
    CdiRemoved,
    /// Unprepare: the files that containers read are removed.
    MetadataRemoved,
    /// Unprepare: the claim is forgotten.
    Forgotten,
}

/// Whether kubelet still waits for a Prepare. One that it has given up may have been followed by an Unprepare when its turn comes, and must not
/// begin then. What has begun goes on: an Unprepare waits for the claim's lock, and the next Prepare finds the claim ready.
#[derive(Clone, Debug, Default)]
pub struct CallerWaits {
    given_up: Arc<AtomicBool>,
}

impl CallerWaits {
    /// Nobody waits any more.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), PrepareError> {
        if self.given_up.load(Ordering::SeqCst) { Err(PrepareError::GivenUp) } else { Ok(()) }
    }
}

/// Where things are, and who is asked.
#[derive(Clone, Debug)]
pub struct ClaimSettings {
    /// The directory below which the machine is read; `/` for this machine.
    pub root: Root,
    /// The driver's name.
    pub driver: String,
    /// The node's pool.
    pub pool: String,
    /// `penstock`, by its absolute path.
    pub penstock: PathBuf,
    /// `penstock-kubernetes`, by its absolute path.
    pub program: PathBuf,
    /// The agent's directory.
    pub state: PathBuf,
    /// The directory of the hook's records.
    pub run: PathBuf,
    /// The directory of the container runtime's files.
    pub cdi: PathBuf,
}

/// Why a claim could not be prepared.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// What is written down of claims could not be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A function could not be looked at.
    #[error(transparent)]
    Pci(#[from] PciError),
    /// The kernel does not say which run of it this is.
    #[error("the kernel does not tell its boot id (/proc/sys/kernel/random/boot_id)")]
    NoBoot,
    /// The node does not have the device.
    #[error(
        "this node has no device {device} now: its NIC may be gone or have fewer VFs, or the inventory is not read yet"
    )]
    NoDevice {
        /// The device.
        device: String,
    },
    /// The VF is not there.
    #[error("device {device}: there is no PCI function {function} any more: its PF may have fewer VFs now")]
    Gone {
        /// The device.
        device: String,
        /// The VF that was there.
        function: Bdf,
    },
    /// A change of a roll-out that has begun destroys the VF.
    #[error("device {device}: {function} goes in a change of this node that is under way")]
    Going {
        /// The device.
        device: String,
        /// The VF.
        function: Bdf,
    },
    /// What was written down of a change of a roll-out cannot be read: nobody knows which VFs go.
    #[error("cannot read which VFs go in a change of this node")]
    Change(#[from] RolloutStateError),
    /// The VF's driver is not one with which it can be what the claim asks for.
    #[error(
        "device {device}: {function} {has}, and a pod is to have it as {wants}: see `free` of the NIC in the model, or `mode` of the claim"
    )]
    WrongDriver {
        /// The device.
        device: String,
        /// The VF.
        function: Bdf,
        /// What driver it has, in words.
        has: String,
        /// What it is to be.
        wants: &'static str,
    },
    /// The VF's interface is not in the host's network namespace.
    #[error(
        "device {device}: {function} has no interface on the host: a container that is no pod's, or a VM, has it"
    )]
    Away {
        /// The device.
        device: String,
        /// The VF.
        function: Bdf,
    },
    /// Somebody has the VF.
    #[error("device {device}: {function} was given to {by}")]
    Taken {
        /// The device.
        device: String,
        /// The VF.
        function: Bdf,
        /// Who has it.
        by: String,
    },
    /// Another claim has the device.
    #[error("device {device} is prepared for {claim}, whose pod has not ended here yet")]
    OtherClaim {
        /// The device.
        device: String,
        /// The other claim, in words.
        claim: String,
    },
    /// Two interfaces of a pod would have one name.
    #[error(
        "the interface of device {device} would be called {interface}, as that of {other} in the same pod: say `interface` in the parameters"
    )]
    InterfaceTwice {
        /// The device.
        device: String,
        /// The name.
        interface: InterfaceName,
        /// The other device.
        other: String,
    },
    /// Somebody at the same PF has the MAC address in that VLAN.
    #[error(
        "device {device} cannot have the MAC address {mac}, which {by} has at the same PF and in the same VLAN: frames for it would go astray; name another one, or none"
    )]
    MacTaken {
        /// The device.
        device: String,
        /// The address.
        mac: Mac,
        /// Who has it, in words.
        by: String,
    },
    /// Kubelet does not wait for it any more.
    #[error("kubelet gave the call up, and makes another one")]
    GivenUp,
    /// A pod shares the host's network.
    #[error(
        "pod {pod} has hostNetwork: a VF would have to be moved from the host's network namespace into itself"
    )]
    HostNetwork {
        /// The pod.
        pod: String,
    },
    /// The VF has no IOMMU group.
    #[error("device {device}: {function} has no IOMMU group, which VFIO needs: switch the IOMMU on")]
    NoGroup {
        /// The device.
        device: String,
        /// The VF.
        function: Bdf,
    },
    /// The VF's IOMMU group has other members.
    #[error("device {device}: {function} is in one IOMMU group with {others}: a pod would get all of them")]
    SharedGroup {
        /// The device.
        device: String,
        /// The VF.
        function: Bdf,
        /// The other members.
        others: String,
    },
    /// `penstock cni` would refuse it.
    #[error("device {device}")]
    Refused {
        /// The device.
        device: String,
        /// Why.
        #[source]
        why: CallError,
    },
    /// The VF could not be bound to vfio-pci.
    #[error("device {device} could not be bound to vfio-pci")]
    Bind {
        /// The device.
        device: String,
        /// Why.
        #[source]
        why: CallError,
    },
    /// What an earlier call, which was ended in between, has done for the claim could not be taken back.
    #[error("what an earlier call has bound for the claim could not be taken back")]
    Begun(#[source] Box<UnprepareError>),
    /// What an earlier allocation of the claim has left could not be taken back.
    #[error("what an earlier allocation of the claim had could not be taken back")]
    Earlier(#[source] Box<UnprepareError>),
}

/// The claims of this node.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Where things are.
    pub settings: ClaimSettings,
    /// Called when a step is done.
    pub on_step: fn(ClaimStep),
}

impl Claims {
    /// The claims of a node.
    pub fn new(settings: ClaimSettings) -> Claims {
        Claims { settings, on_step: |_| {} }
    }

    pub(crate) fn store(&self) -> Result<ClaimStore, StateError> {
        ClaimStore::open(&self.settings.state)
    }

    /// The hook's records, in the directory of which the claim says that they are there, whatever the agent was told since.
    pub(crate) fn records(&self, claim: Option<&PreparedClaim>) -> Result<AttachStore, StateError> {
        AttachStore::open(claim.map_or(self.settings.run.as_path(), |claim| claim.run.as_path()))
    }

    pub(crate) fn network_plugin(&self) -> NetworkPlugin {
        NetworkPlugin::new(&self.settings.penstock, CALL)
    }

    /// Makes a claim's devices ready. Once more is fine: the same comes of it, and what a pod has is left alone. All is done under the claim's
    /// lock, which Unprepare takes too, and to its end when it has begun.
    ///
    /// # Errors
    ///
    /// When the claim cannot have them, or the caller does not wait any more when it could begin. Nothing is left of it then, unless it was
    /// prepared before.
    pub fn prepare(
        &self,
        claim: &AllocatedClaim,
        devices: &Devices,
        caller: &CallerWaits,
    ) -> Result<PreparedClaim, PrepareError> {
        let store = self.store()?;
        let boot = boot::id(&self.settings.root).ok_or(PrepareError::NoBoot)?;
        let (_preparing, records, lock) = self.lock(&store, &claim.uid, &boot, caller)?;
        let prepared = self.prepare_locked(&store, &records, (claim, boot), devices, caller);
        // A file that stays is no harm: the claim's end removes it.
        let _ = records.unlock(&claim.uid, lock);
        prepared
    }

    /// Waits until no other call prepares claims, and none is at this one, and takes both locks. Other claims do not wait for one whose hook
    /// takes long.
    fn lock(
        &self,
        store: &ClaimStore,
        uid: &ClaimUid,
        boot: &str,
        caller: &CallerWaits,
    ) -> Result<(Lock, AttachStore, Lock), PrepareError> {
        let until = Instant::now() + LOCK;
        let left = || until.saturating_duration_since(Instant::now());
        let in_all = |error| match error {
            StateError::Locked { what, .. } => StateError::Locked { what, after: LOCK },
            error => error,
        };
        loop {
            let preparing = store.lock(left()).map_err(in_all)?;
            caller.check()?;
            let records = self.records(self.before(store, uid, boot)?.as_ref())?;
            match records.lock(uid, TURN) {
                Ok(lock) => {
                    // An Unprepare that was waited for has ended it: where its records were is no matter any more.
                    let now = self.before(store, uid, boot)?;
                    if records.path() == now.as_ref().map_or(&self.settings.run, |now| &now.run) {
                        return Ok((preparing, records, lock));
                    }
                    records.unlock(uid, lock)?;
                }
                Err(StateError::Locked { .. }) if !left().is_zero() => {}
                Err(error) => return Err(in_all(error).into()),
            }
            drop(preparing);
            thread::sleep(OTHERS);
        }
    }

    /// Whether a claim is prepared in this run of the kernel, as far as is written down. Where the kernel does not tell which run this is one of any
    /// run counts.
    ///
    /// # Errors
    ///
    /// When that cannot be read.
    pub fn is_prepared(&self, uid: &ClaimUid) -> Result<bool, StateError> {
        let boot = boot::id(&self.settings.root);
        let there = self.store()?.read(uid)?;
        Ok(there.is_some_and(|claim| boot.is_none_or(|boot| claim.boot == boot)))
    }

    /// What is prepared of a claim in this run of the kernel.
    fn before(
        &self,
        store: &ClaimStore,
        uid: &ClaimUid,
        boot: &str,
    ) -> Result<Option<PreparedClaim>, StateError> {
        Ok(store.read(uid)?.filter(|before| before.boot == boot))
    }

    fn prepare_locked(
        &self,
        store: &ClaimStore,
        records: &AttachStore,
        (claim, boot): (&AllocatedClaim, String),
        devices: &Devices,
        caller: &CallerWaits,
    ) -> Result<PreparedClaim, PrepareError> {
        caller.check()?;
        store.sweep(&claim.uid)?;
        if let Some(before) = &self.before(store, &claim.uid, &boot)? {
            if self.is_same(before, claim) {
                let mut prepared = before.clone();
                prepared.pods.clone_from(&claim.pods);
                prepared.penstock.clone_from(&self.settings.penstock);
                return self.complete(store, before, prepared);
            }
            self.unprepare_locked(store, &claim.uid)
                .map_err(|error| PrepareError::Earlier(Box::new(error)))?;
            records.clear(&claim.uid)?;
        }
        let prepared = self.decide(store, claim, devices, (boot, records.path()))?;
        match self.complete(store, &prepared, prepared.clone()) {
            Ok(prepared) => Ok(prepared),
            Err(error) => {
                // Kubelet may never ask for the end of what it was refused. What cannot be taken back stays written down.
                let bound = prepared.devices.iter().any(|device| device.mode == VfMode::Vfio);
                if !bound || self.take_back(store, &claim.uid).is_ok() {
                    let _ = self.forget(store, &claim.uid);
                }
                Err(error)
            }
        }
    }

    /// Whether a claim was prepared with what it has now.
    fn is_same(&self, before: &PreparedClaim, claim: &AllocatedClaim) -> bool {
        let same = |(at, (before, now)): (usize, (&PreparedDevice, &AllocatedDevice))| {
            before.device == now.device
                && before.pool == now.pool
                && before.requests == [now.request.clone()]
                && before.mode == now.parameters.mode.unwrap_or_default()
                && before.interface == interface(now, at)
                && before.configuration == now.parameters.configuration(claim.uid.as_str(), before.function)
        };
        before.devices.len() == claim.devices.len()
            && before.driver == self.settings.driver
            && before.devices.iter().zip(&claim.devices).enumerate().all(same)
    }

    /// Writes all files of a claim, and binds VFs that programs drive in between; `before` is what may be written down already.
    fn complete(
        &self,
        store: &ClaimStore,
        before: &PreparedClaim,
        mut prepared: PreparedClaim,
    ) -> Result<PreparedClaim, PrepareError> {
        let settings = &self.settings;
        if *before != prepared || store.read(&prepared.uid)?.as_ref() != Some(&prepared) {
            store.write(&prepared)?;
        }
        (self.on_step)(ClaimStep::Written);
        if prepared.devices.iter().any(is_unbound) {
            self.bind(store, &mut prepared)?;
            (self.on_step)(ClaimStep::Bound);
            store.write(&prepared)?;
            (self.on_step)(ClaimStep::GroupWritten);
        }
        metadata::write(&settings.state, &prepared)?;
        (self.on_step)(ClaimStep::MetadataWritten);
        cdi::write(&settings.cdi, &prepared, &settings.program, &settings.state)?;
        (self.on_step)(ClaimStep::CdiWritten);
        Ok(prepared)
    }

    /// Binds the VFs of a claim that programs drive, and looks for their groups: which number a VF's group has depends on the order in which
    /// the kernel found devices.
    fn bind(&self, store: &ClaimStore, prepared: &mut PreparedClaim) -> Result<(), PrepareError> {
        let plugin = self.network_plugin();
        // A call that was killed may have bound some; no pod has them yet.
        self.take_back(store, &prepared.uid).map_err(|error| PrepareError::Begun(Box::new(error)))?;
        for device in prepared.devices.iter_mut().filter(|device| device.mode == VfMode::Vfio) {
            plugin
                .bind(&prepared.uid, device)
                .map_err(|why| PrepareError::Bind { device: device.device.clone(), why })?;
            device.group = Some(self.group(&device.device, device.function)?);
        }
        Ok(())
    }

    /// The IOMMU group of a VF, which has it alone.
    fn group(&self, device: &str, function: Bdf) -> Result<u32, PrepareError> {
        let device = device.to_owned();
        let pci = PciFunction::new(&self.settings.root, function);
        let Some(group) = pci.iommu_group()? else { return Err(PrepareError::NoGroup { device, function }) };
        let others: Vec<String> = pci.iommu_neighbours().iter().map(ToString::to_string).collect();
        if others.is_empty() {
            return Ok(group);
        }
        Err(PrepareError::SharedGroup { device, function, others: others.join(", ") })
    }

    /// What is to be made of a claim; an error if it cannot be.
    fn decide(
        &self,
        store: &ClaimStore,
        claim: &AllocatedClaim,
        devices: &Devices,
        (boot, run): (String, &Path),
    ) -> Result<PreparedClaim, PrepareError> {
        // Under the lock that a change waits for before it looks which claims there are.
        let going = change::going(&self.settings.state)?;
        let others: Vec<PreparedClaim> =
            store.all()?.into_iter().filter(|other| other.uid != claim.uid).collect();
        let mut prepared = PreparedClaim {
            format: PreparedClaim::FORMAT,
            uid: claim.uid.clone(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            pod_claim: claim.pod_claim.clone(),
            driver: self.settings.driver.clone(),
            pods: claim.pods.clone(),
            boot,
            penstock: self.settings.penstock.clone(),
            run: run.to_owned(),
            devices: Vec::new(),
        };
        for (at, allocated) in claim.devices.iter().enumerate() {
            let device = self.device(claim, allocated, at, devices)?;
            if going.contains(&device.function.to_string()) {
                return Err(PrepareError::Going { device: device.device, function: device.function });
            }
            for other in &others {
                // In another run of the kernel an address may have been another VF's.
                let of_now = other.boot == prepared.boot;
                let same = |of: &&PreparedDevice| {
                    of.device == device.device || of_now && of.function == device.function
                };
                if other.devices.iter().any(|of| same(&of)) {
                    let claim = called(other, &prepared);
                    return Err(PrepareError::OtherClaim { device: device.device, claim });
                }
            }
            // One that a program drives has no interface; within the claim its name is that of an attachment still.
            let of_same_pods = others
                .iter()
                .filter(|other| other.pods.iter().any(|pod| claim.pods.iter().any(|own| own.uid == pod.uid)))
                .flat_map(|other| &other.devices)
                .filter(|of| (of.mode, device.mode) == (VfMode::Netdev, VfMode::Netdev));
            let twice = of_same_pods.chain(&prepared.devices).find(|of| of.interface == device.interface);
            if let Some(other) = twice {
                let (other, interface) = (other.device.clone(), device.interface.clone());
                return Err(PrepareError::InterfaceTwice { device: device.device, interface, other });
            }
            let neighbours =
                MacNeighbours { root: &self.settings.root, devices, claim: &prepared, others: &others };
            if let Some(mac) = allocated.parameters.settings.mac
                && let Some(by) = neighbours.holder(mac, &device)
            {
                return Err(PrepareError::MacTaken { device: device.device, mac, by });
            }
            self.network_plugin()
                .status(&device.configuration)
                .map_err(|why| PrepareError::Refused { device: device.device.clone(), why })?;
            prepared.devices.push(device);
        }
        Ok(prepared)
    }

    fn device(
        &self,
        claim: &AllocatedClaim,
        allocated: &AllocatedDevice,
        at: usize,
        devices: &Devices,
    ) -> Result<PreparedDevice, PrepareError> {
        let root = &self.settings.root;
        let device = allocated.device.clone();
        let Some(published) = devices.get(&device) else { return Err(PrepareError::NoDevice { device }) };
        let function = published.bdf;
        let pci = PciFunction::new(root, function);
        if !pci.exists() {
            return Err(PrepareError::Gone { device, function });
        }
        if let Some(by) = attachment(root, function) {
            return Err(PrepareError::Taken { device, function, by });
        }
        let mode = allocated.parameters.mode.unwrap_or_default();
        let driver = pci.driver()?;
        let has = || match &driver {
            Some(driver) => format!("has the driver {driver}"),
            None => "has no driver".to_owned(),
        };
        let fits = match (mode, driver.as_deref()) {
            (VfMode::Netdev, driver) => driver.is_some_and(|driver| !passes_through(driver)),
            (VfMode::Vfio, None | Some(VFIO)) => true,
            (VfMode::Vfio, Some(driver)) => !passes_through(driver),
        };
        if !fits {
            let wants = match mode {
                VfMode::Netdev => "a network interface",
                VfMode::Vfio => "a VFIO device",
            };
            return Err(PrepareError::WrongDriver { device, function, has: has(), wants });
        }
        let of_a_network = driver.is_some() && driver.as_deref() != Some(VFIO);
        if of_a_network && pci.interface_names()?.is_empty() {
            return Err(PrepareError::Away { device, function });
        }
        if mode == VfMode::Vfio {
            self.group(&device, function)?;
            let holders = pci.held_by();
            if !holders.is_empty() {
                return Err(PrepareError::Taken { device, function, by: holders.join(", ") });
            }
        }
        Ok(PreparedDevice {
            pool: allocated.pool.clone(),
            interface: interface(allocated, at),
            mac: allocated.parameters.settings.mac.or_else(|| current_mac(root, function, mode)),
            configuration: allocated.parameters.configuration(claim.uid.as_str(), function),
            device,
            requests: vec![allocated.request.clone()],
            function,
            mode,
            group: None,
        })
    }
}

/// Whether a device is to be bound for a program, and is not yet, as far as is written down.
fn is_unbound(device: &PreparedDevice) -> bool {
    device.mode == VfMode::Vfio && device.group.is_none()
}

/// The interface's name in the pod: the one that is asked for, or `net1`, `net2`... by the device's place in the claim.
fn interface(allocated: &AllocatedDevice, at: usize) -> InterfaceName {
    let numbered = || format!("net{}", at + 1).parse().expect("a claim has at most 32 devices");
    allocated.parameters.interface.clone().unwrap_or_else(numbered)
}

/// How another claim is called to who reads Events of `claim`. One of another namespace is named in the log alone.
pub(super) fn called(other: &PreparedClaim, claim: &PreparedClaim) -> String {
    let called = |of: &PreparedClaim| format!("claim {}/{} ({})", of.namespace, of.name, of.uid);
    if other.namespace == claim.namespace {
        return called(other);
    }
    say(format!("{} cannot have what {} has", called(claim), called(other)));
    "a claim of another namespace".to_owned()
}

/// The MAC address that a VF's interface has, and keeps where none is asked for.
fn current_mac(root: &Root, function: Bdf, mode: VfMode) -> Option<Mac> {
    let links =
        (mode == VfMode::Netdev).then(|| Netlink::open().and_then(|mut netlink| netlink.links()))?.ok()?;
    local_interface_of(function, &links, root).map(|report| report.interface.mac)
}
