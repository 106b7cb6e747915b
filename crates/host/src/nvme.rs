//! NVMe drives with SR-IOV: queues, interrupts and namespaces for their VFs (NVM Express Base Specification 2.0, 8.26 "Virtualization
//! Enhancements", and 8.12 "Namespace Management").
//!
//! The specification calls the PF a *primary* and the VFs *secondary* controllers. A VF can be used once it has two pairs of queues (one
//! is for administration) and an interrupt vector, and was brought on line; what it then stores on are the namespaces attached to it.

mod block;
mod command;
pub mod identify;
mod read;
mod status;

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use nix::fcntl::OFlag;
use penstock_model::{
    Bdf, VfIndex,
    inventory::{NvmeVirtualization, SecondaryController},
    text::counted,
};
use thiserror::Error;

pub use block::NamespaceDevice;
pub use identify::MalformedIdentify;
pub use status::NvmeStatus;

use crate::{
    Root,
    device::{self, Device},
    files::{self, FileError},
};
use block::namespace_devices;
use command::{AdminCommand, Data};
use identify::{IdentifyData, LENGTH};
use read::{Identify, IdentifyRequest};

/// How long a drive may take to answer one question, and all that are asked at a time. Longer than any answer takes, since the kernel
/// resets the drive when this has passed.
const ANSWERING: Duration = Duration::from_secs(30);
/// How long a drive may take to change something; what the kernel lets an administrative command take by itself.
const CHANGING: Duration = Duration::from_secs(60);

/// Opcodes of administrative commands (figure 138).
const IDENTIFY: u8 = 0x06;
const NAMESPACE_ATTACHMENT: u8 = 0x15;
const VIRTUALIZATION_MANAGEMENT: u8 = 0x1c;

/// What moves between a PF and its VFs (Virtualization Management, RT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlexibleResource {
    Queues,
    Interrupts,
}

impl FlexibleResource {
    fn of(self, secondary: &SecondaryController) -> u16 {
        match self {
            FlexibleResource::Queues => secondary.queues,
            FlexibleResource::Interrupts => secondary.interrupts,
        }
    }

    fn words(self) -> &'static str {
        match self {
            FlexibleResource::Queues => "queue pair",
            FlexibleResource::Interrupts => "interrupt vector",
        }
    }
}

/// What is done to a controller (Virtualization Management, ACT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    KeepForPrimary = 1,
    TakeOffLine = 7,
    Assign = 8,
    BringOnLine = 9,
}

/// The PF of an NVMe drive, which the kernel's `nvme` driver has, asked and told through its character device.
#[derive(Debug)]
pub struct PrimaryController {
    bdf: Bdf,
    root: Root,
    device: File,
}

impl PrimaryController {
    /// Opens the controller of the PF at `bdf`. Nothing is sent to the drive.
    ///
    /// # Errors
    ///
    /// [`NvmeError::NoController`] where the kernel's `nvme` driver has none there, [`NvmeError::Open`] when its device cannot be opened,
    /// as by others than root, or is another device, [`NvmeError::File`] when sysfs cannot be read.
    pub fn open(root: &Root, bdf: Bdf) -> Result<PrimaryController, NvmeError> {
        let all = root.path(format!("/sys/bus/pci/devices/{bdf}/nvme"));
        let names = if files::exists(&all) { files::list(&all)? } else { Vec::new() };
        let name = names.into_iter().find(|name| block::is_controller(name));
        let name = name.ok_or(NvmeError::NoController { drive: bdf })?;
        let number = format!("c {}", files::read_to_string(all.join(&name).join("dev"))?.trim());
        let path = root.path(format!("/dev/{name}"));
        let is_it = |found: Option<Device>| match found {
            Some(device) if device.to_string() == number => Ok(()),
            _ => Err(io::Error::other(format!("it is not the kernel's device {number}"))),
        };
        let open = || {
            // Before it is opened, since to open another device can do something to it; and afterwards.
            is_it(device::at(&path).map_err(|error| error.source)?)?;
            let flags = (OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_NONBLOCK).bits();
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
            is_it(device::of_file(&file)?)?;
            Ok(file)
        };
        let device = open().map_err(|source| NvmeError::Open { drive: bdf, path: path.clone(), source })?;
        Ok(PrimaryController { bdf, root: root.clone(), device })
    }

    /// What it says of its VFs and of the drive's namespaces (Identify, 5.17), with which of the host's block devices those are. Changes nothing.
    /// What the host uses them for is left out.
    ///
    /// # Errors
    ///
    /// [`NvmeError::Refused`] and [`NvmeError::Malformed`] for answers, [`NvmeError::NotSent`] when the kernel does not take a question,
    /// [`NvmeError::Slow`] after 30 s, or a minute where the last question is answered late.
    pub fn virtualization(&self) -> Result<NvmeVirtualization, NvmeError> {
        let mut found = read::virtualization(&mut self.questions())?;
        for NamespaceDevice { namespace, name, .. } in self.namespace_devices() {
            if let Some(namespace) = found.namespaces.get_mut(&namespace) {
                namespace.device.get_or_insert(name);
            }
        }
        Ok(found)
    }

    /// The host's block devices of the drive's namespaces, over the PF and over those of its VFs that the `nvme` driver has.
    pub fn namespace_devices(&self) -> Vec<NamespaceDevice> {
        namespace_devices(&self.root, self.bdf)
    }

    /// Gives the VF with the controller `secondary` this many pairs of queues, that for administration among them, instead of those that it
    /// has (Virtualization Management, "Secondary Controller Assign", 5.26). It must be off line,
    /// unless it has exactly so many; its VF need not be there. As many as the drive says it gave, which
    /// may be more where it gives them by several.
    ///
    /// # Errors
    ///
    /// [`NvmeError::Refused`] when it is on line or there are too few, [`NvmeError::Granted`] when the drive gave fewer, [`NvmeError::NotSent`].
    pub fn set_queues(&self, secondary: u16, count: u16) -> Result<u16, NvmeError> {
        self.assign(secondary, FlexibleResource::Queues, count)
    }

    /// The same for interrupt vectors.
    ///
    /// # Errors
    ///
    /// Those of [`PrimaryController::set_queues`].
    pub fn set_interrupts(&self, secondary: u16, count: u16) -> Result<u16, NvmeError> {
        self.assign(secondary, FlexibleResource::Interrupts, count)
    }

    fn assign(&self, secondary: u16, resource: FlexibleResource, count: u16) -> Result<u16, NvmeError> {
        let what = resource.words();
        let attempt = format!("give its controller {secondary} {}", counted(count.into(), what));
        let has = || self.secondary(secondary).map(|found| found.map_or(0, |found| resource.of(&found)));
        // NRM, in the lower half.
        let granted = match self.manage(secondary, Action::Assign, Some((resource, count)), &attempt) {
            Err(error) if error.is(status::WRONG_STATE) && has()? == count => count,
            outcome => outcome? as u16,
        };
        if granted >= count {
            return Ok(granted);
        }
        // Before that is called too few, the drive says what the controller has.
        let has = has()?;
        if has >= count {
            return Ok(has);
        }
        Err(NvmeError::Granted { drive: self.bdf, controller: secondary, what, wanted: count, granted: has })
    }

    /// Brings the VF with the controller `secondary` on line, or takes it off line ("Secondary Controller Online", "... Offline", 5.26).
    /// Already so is success. The VF must be there (VF Enable), and on line it needs 2 pairs of queues and 1 interrupt vector at least.
    /// One that goes off line loses its queues and interrupts, and whatever it has not finished. So does each when the VFs go or the PF is
    /// reset.
    ///
    /// # Errors
    ///
    /// [`NvmeError::InUse`] when somebody on this host has a block device of one of its namespaces, [`NvmeError::Refused`] when it lacks
    /// something, [`NvmeError::NotSent`].
    pub fn set_online(&self, secondary: u16, online: bool) -> Result<(), NvmeError> {
        if online {
            self.refuse_what_a_vf_gets(secondary)?;
        }
        let (action, attempt) = match online {
            true => (Action::BringOnLine, format!("bring its controller {secondary} on line")),
            false => (Action::TakeOffLine, format!("take its controller {secondary} off line")),
        };
        match self.manage(secondary, action, None, &attempt) {
            Err(error)
                if error.is(status::WRONG_STATE)
                    && self.secondary(secondary)?.is_some_and(|secondary| secondary.online == online) =>
            {
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    /// Has the PF hold this many of the pairs of queues and of the interrupt vectors that VFs could have ("Primary Controller Flexible
    /// Allocation", 5.26), from its next reset on ([`PciFunction::reset`](crate::PciFunction::reset)), which takes its VFs off
    /// line. Some drives begin with all of them held.
    ///
    /// # Errors
    ///
    /// [`NvmeError::Refused`] when VFs have too many of them, [`NvmeError::NotSent`].
    pub fn hold(&self, queues: u16, interrupts: u16) -> Result<(), NvmeError> {
        let own = read::controller(&mut self.questions())?.controller;
        for (resource, count) in
            [(FlexibleResource::Queues, queues), (FlexibleResource::Interrupts, interrupts)]
        {
            let attempt = format!("have its PF hold {}", counted(count.into(), resource.words()));
            self.manage(own, Action::KeepForPrimary, Some((resource, count)), &attempt)?;
        }
        Ok(())
    }

    /// Attaches a namespace to the controller with the identifier `controller`, the PF's or a VF's, or detaches it (Namespace Attachment, 5.19).
    /// Already so is success. One that the host uses through this controller is not detached, and one that it uses through another is not
    /// attached.
    ///
    /// # Errors
    ///
    /// [`NvmeError::InUse`], [`NvmeError::Refused`] when the drive does not, [`NvmeError::NotSent`].
    pub fn attach(&self, namespace: u32, controller: u16, attached: bool) -> Result<(), NvmeError> {
        self.refuse_used(namespace, controller, attached)?;
        let (select, attempt, already) = match attached {
            true => (
                0,
                format!("attach namespace {namespace} to its controller {controller}"),
                status::ALREADY_ATTACHED,
            ),
            false => (
                1,
                format!("detach namespace {namespace} from its controller {controller}"),
                status::NOT_ATTACHED,
            ),
        };
        let command = AdminCommand {
            opcode: NAMESPACE_ATTACHMENT,
            namespace,
            dword_10: select,
            ..AdminCommand::default()
        };
        let list = identify::list_of(controller);
        match self.send(command, Data::Out(&list), CHANGING, &attempt) {
            Err(error) if error.is(already) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn refuse_used(&self, namespace: u32, controller: u16, attached: bool) -> Result<(), NvmeError> {
        let of_it = |found: &NamespaceDevice| {
            // What takes it away is a detaching here; who writes to it as well is elsewhere.
            found.namespace == namespace && (found.controller == controller) != attached
        };
        let done = if attached { "attached" } else { "detached" };
        self.refuse_held(self.namespace_devices().into_iter().filter(of_it), done)
    }

    /// Asks the kernel once more of what a VF is about to write to.
    fn refuse_what_a_vf_gets(&self, secondary: u16) -> Result<(), NvmeError> {
        let devices = self.namespace_devices();
        if devices.is_empty() || self.secondary(secondary)?.is_some_and(|found| found.online) {
            return Ok(());
        }
        let namespaces = self.virtualization()?.namespaces;
        let is_its = |found: &NamespaceDevice| {
            namespaces.get(&found.namespace).is_some_and(|found| found.controllers.contains(&secondary))
        };
        self.refuse_held(devices.into_iter().filter(is_its), "given to a VF")
    }

    /// Refuses to have namespaces `done` of which somebody has one of these devices.
    fn refuse_held(
        &self,
        devices: impl Iterator<Item = NamespaceDevice>,
        done: &'static str,
    ) -> Result<(), NvmeError> {
        let mut used = None;
        for found in devices {
            let used = used.get_or_insert_with(|| device::used::by_host(&self.root));
            if let Some(why) = found.held(&self.root, used)? {
                let NamespaceDevice { namespace, name: device, .. } = found;
                return Err(NvmeError::InUse { drive: self.bdf, namespace, done, device, why });
            }
        }
        Ok(())
    }

    fn manage(
        &self,
        controller: u16,
        action: Action,
        resource: Option<(FlexibleResource, u16)>,
        attempt: &str,
    ) -> Result<u32, NvmeError> {
        let (resource, count) = resource.unwrap_or((FlexibleResource::Queues, 0));
        let command = AdminCommand {
            opcode: VIRTUALIZATION_MANAGEMENT,
            dword_10: u32::from(controller) << 16 | (resource as u32) << 8 | action as u32,
            dword_11: count.into(),
            ..AdminCommand::default()
        };
        self.send(command, Data::Nothing, CHANGING, attempt)
    }

    /// The controller of a VF as the drive tells of it now; `None` where the drive has none for it.
    ///
    /// # Errors
    ///
    /// Those of [`PrimaryController::virtualization`].
    pub fn of_vf(&self, vf: VfIndex) -> Result<Option<SecondaryController>, NvmeError> {
        let all = read::secondary_controllers(&mut self.questions())?;
        Ok(all.into_iter().find(|secondary| secondary.vf == vf))
    }

    /// A VF's controller as the drive tells of it now.
    fn secondary(&self, controller: u16) -> Result<Option<SecondaryController>, NvmeError> {
        let all = read::secondary_controllers(&mut self.questions())?;
        Ok(all.into_iter().find(|secondary| secondary.controller == controller))
    }

    fn questions(&self) -> Questions<'_> {
        Questions { controller: self, deadline: Instant::now() + ANSWERING }
    }

    fn send(
        &self,
        command: AdminCommand,
        data: Data<'_>,
        timeout: Duration,
        attempt: &str,
    ) -> Result<u32, NvmeError> {
        let sent = command::send(&self.device, command, data, timeout);
        let drive = self.bdf;
        match sent {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(status)) => Err(NvmeError::Refused { attempt: attempt.to_owned(), drive, status }),
            Err(source) => Err(NvmeError::NotSent { attempt: attempt.to_owned(), drive, source }),
        }
    }
}

/// Questions that must all be answered by a deadline.
struct Questions<'a> {
    controller: &'a PrimaryController,
    deadline: Instant,
}

impl Identify for Questions<'_> {
    fn identify(&mut self, request: IdentifyRequest) -> Result<Box<IdentifyData>, NvmeError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NvmeError::Slow { drive: self.controller.bdf, after: ANSWERING });
        }
        let mut bytes = Box::new([0; LENGTH]);
        let command = AdminCommand {
            opcode: IDENTIFY,
            namespace: request.namespace,
            dword_10: u32::from(request.controller) << 16 | u32::from(request.structure),
            ..AdminCommand::default()
        };
        let attempt = format!("ask Identify {:02X}h of it", request.structure);
        self.controller.send(command, Data::In(&mut bytes), ANSWERING, &attempt)?;
        Ok(bytes)
    }

    fn malformed(&self, source: MalformedIdentify) -> NvmeError {
        NvmeError::Malformed { drive: self.controller.bdf, source }
    }
}

/// Why a drive was not asked, or did not do as it was told.
#[derive(Debug, Error)]
pub enum NvmeError {
    /// There is nothing to talk to.
    #[error("the kernel's driver nvme has no controller at {drive}")]
    NoController {
        /// The PF's address.
        drive: Bdf,
    },
    /// Its device does not open.
    #[error("could not open {} of the NVMe drive {drive}", path.display())]
    Open {
        /// The PF's address.
        drive: Bdf,
        /// The character device.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The kernel did not hand a command on.
    #[error("NVMe drive {drive}: could not {attempt}")]
    NotSent {
        /// What was attempted.
        attempt: String,
        /// The PF's address.
        drive: Bdf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The drive refused a command.
    #[error("NVMe drive {drive}: could not {attempt}: {status}")]
    Refused {
        /// What was attempted.
        attempt: String,
        /// The PF's address.
        drive: Bdf,
        /// Its answer.
        status: NvmeStatus,
    },
    /// The drive gave fewer than asked for.
    #[error(
        "NVMe drive {drive}: its controller {controller} was to have {wanted} {what}, and the drive gave it {granted}"
    )]
    Granted {
        /// The PF's address.
        drive: Bdf,
        /// The VF's controller.
        controller: u16,
        /// What it was given.
        what: &'static str,
        /// As many as asked for.
        wanted: u16,
        /// As many as it has.
        granted: u16,
    },
    /// A namespace that the host uses.
    #[error(
        "NVMe drive {drive}: namespace {namespace} is not {done}: it is {device} on this host, and {why}"
    )]
    InUse {
        /// The PF's address.
        drive: Bdf,
        /// The namespace.
        namespace: u32,
        /// What was to be done to it.
        done: &'static str,
        /// Its block device.
        device: String,
        /// What it is used for.
        why: String,
    },
    /// An answer makes no sense.
    #[error("NVMe drive {drive}: its answer cannot be parsed")]
    Malformed {
        /// The PF's address.
        drive: Bdf,
        /// What is wrong with it.
        #[source]
        source: MalformedIdentify,
    },
    /// Too many questions for the time that they may take.
    #[error("NVMe drive {drive}: it has not told of its VFs and namespaces after {} s", after.as_secs())]
    Slow {
        /// The PF's address.
        drive: Bdf,
        /// How long it had.
        after: Duration,
    },
    /// A file of sysfs.
    #[error(transparent)]
    File(#[from] FileError),
}

impl NvmeError {
    /// Whether the drive refused with this status code type and status code.
    fn is(&self, code: (u8, u8)) -> bool {
        matches!(self, NvmeError::Refused { status, .. } if status.code() == code)
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            NvmeError::NoController { .. } => Some(
                "only the kernel's driver nvme can configure its VFs: bind it to the PF (`driverctl unset-override ADDRESS`)",
            ),
            NvmeError::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("run as root")
            }
            // `nvme_dev_open`: while a controller is reset.
            NvmeError::Open { source, .. } if source.kind() == io::ErrorKind::WouldBlock => {
                Some("the drive is being reset, or has failed: `dmesg` says more; try again")
            }
            NvmeError::Refused { status, .. } => match status.code() {
                status::WRONG_STATE => Some(
                    "a VF's controller gets queues and interrupts off line, and goes on line with 2 queue pairs, 1 interrupt vector and its VF there",
                ),
                status::PRIVATE => Some("detach it from the controller that has it first"),
                status::WRONG_CONTROLLERS => Some("`penstock scan` shows the drive's controllers"),
                status::WRONG_NUMBER => Some(
                    "`penstock scan` shows how many are free, how many one VF may have and how many the PF holds",
                ),
                _ => None,
            },
            NvmeError::Granted { .. } => Some("ask for fewer, or take them from another VF"),
            NvmeError::InUse { .. } => Some("unmount it, or take it out of its volume group, pool or array"),
            _ => None,
        }
    }
}
