//! A port's vDPA device: a thread that makes it, answers the kernel, gives its rings to the worker and tells its driver of the link.
//!
//! What waits for the driver (putting the device on the bus and taking it off) is done by threads of its own, while this one answers.

mod driver_memory;

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use self::driver_memory::DriverMemory;
use super::{Event, link::Links, port::STACK};
use crate::{
    causes::chain,
    config::VduseConfig,
    engine::{Engine, GivenRing},
    eventfd::Notify,
    features::{ACCESS_PLATFORM, EVENT_INDEX, MAC, OFFERED_TO_KERNEL, VERSION_1, negotiated},
    memory::read,
    ring::{Ring, Split},
    table::PortId,
    vduse::{CONFIGURATION, Device, KernelRequest, RINGS, RequestKind, VduseControl, VduseError, bus},
    worker::Kick,
};

/// `VIRTIO_CONFIG_S_DRIVER_OK` (2.1).
const DRIVER_OK: u8 = 4;
/// `VIRTIO_CONFIG_S_FEATURES_OK` (2.1).
const FEATURES_OK: u8 = 8;
/// Between two attempts to have the device, or to put it on the bus.
const AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at rings that a driver may take into use without a word.
const LOOK: u16 = 250;
/// How long the kernel may take to store a status whose answer it has.
const STORED: Duration = Duration::from_secs(1);
/// How long it may take to take a device away when its port goes.
const REMOVAL: Duration = Duration::from_secs(10);

/// A port that has a vDPA device.
#[derive(Debug)]
pub(super) struct Vduse {
    id: PortId,
    device: VduseConfig,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Rings when the port is given up, its link has changed, or a thread beside has ended.
    bell: Arc<EventFd>,
    ends: AtomicBool,
    /// Whether a driver has the device.
    connected: AtomicBool,
    /// Why none has.
    why: Mutex<Option<String>>,
}

impl Shared {
    fn set_why(&self, why: Option<String>) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }
}

impl Vduse {
    /// Sees whether there can be VDUSE devices. The device itself is made when it is served: one that was its port's before is gone by then.
    ///
    /// # Errors
    ///
    /// When the kernel has no VDUSE, or it may not be opened; when no more files can be open.
    pub fn open(device: &VduseConfig, id: PortId) -> io::Result<Vduse> {
        VduseControl::open()?;
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let why = Mutex::new(Some("its device is not there yet".to_owned()));
        let shared = Shared { bell, ends: AtomicBool::new(false), connected: AtomicBool::new(false), why };
        Ok(Vduse { id, device: device.clone(), thread: None, shared: Arc::new(shared) })
    }

    pub fn device(&self) -> &VduseConfig {
        &self.device
    }

    pub fn id(&self) -> PortId {
        self.id
    }

    pub fn is_connected(&self) -> bool {
        self.shared.connected.load(Ordering::Acquire)
    }

    /// Why no driver has it.
    pub fn why(&self) -> Option<String> {
        self.shared.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the device made and served.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn serve(&mut self, name: &str, links: Links) -> io::Result<()> {
        links.set_bell(self.id, Arc::clone(&self.shared.bell));
        let keeper = Keeper {
            id: self.id,
            port: name.to_owned(),
            config: self.device.clone(),
            shared: Arc::clone(&self.shared),
            links,
        };
        let work = move || keeper.keep();
        self.thread = Some(thread::Builder::new().name("vduse".to_owned()).stack_size(STACK).spawn(work)?);
        Ok(())
    }

    /// Has the device taken away.
    pub fn end(&self) {
        self.shared.ends.store(true, Ordering::Release);
        let _ = self.shared.bell.write(1);
    }

    /// Waits until it is; says whether that came. [`Vduse::end`] comes before.
    pub fn close(self) -> bool {
        let Some(thread) = self.thread else { return true };
        let until = Instant::now() + REMOVAL;
        while !thread.is_finished() {
            if Instant::now() >= until {
                let name = &self.device.name;
                complain!(
                    "VDUSE device {name}: left behind, since its driver does not let go of it: \
                     `vdpa dev del {name}` takes it off the bus"
                );
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        // One that panicked has said so already.
        let _ = thread.join();
        true
    }
}

/// What the thread has.
struct Keeper {
    id: PortId,
    port: String,
    config: VduseConfig,
    shared: Arc<Shared>,
    links: Links,
}

/// A ring of the device.
struct Queue {
    /// What its driver kicks.
    kick: EventFd,
    /// Whether it is to be looked at: it was kicked, or taken into use.
    awaits: bool,
    ready: bool,
    /// What wakes the worker, while that has the ring.
    runs: Option<Kick>,
    /// What it lies in meanwhile.
    memory: Option<DriverMemory>,
    /// Where it stood when it was taken back.
    base: u16,
}

/// A device that is served.
struct Session<'a> {
    keeper: &'a Keeper,
    device: Arc<Device>,
    features: u64,
    /// Whether a driver has it.
    driven: bool,
    configuration: [u8; CONFIGURATION],
    queues: Vec<Queue>,
}

impl Keeper {
    fn keep(&self) {
        while !self.shared.ends() {
            match self.session() {
                Ok(session) => session.serve(),
                Err(error) => {
                    self.shared.set_why(Some(chain(&error)));
                    self.wait(AGAIN);
                }
            }
        }
    }

    /// Waits for the bell.
    fn wait(&self, most: Duration) {
        let most = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut [PollFd::new(self.shared.bell.as_fd(), PollFlags::POLLIN)], most);
        let _ = self.shared.bell.read();
    }

    /// The device's configuration as it is now, and whether the port has an address.
    fn configuration(&self) -> ([u8; CONFIGURATION], bool) {
        let id = self.id;
        let found = self.links.handle().ask(move |engine| {
            engine.port(id).map(|port| (port.configuration(1), !port.settings().macs.is_empty()))
        });
        let (short, addressed) = found.flatten().unwrap_or_default();
        let mut whole = [0; CONFIGURATION];
        whole.iter_mut().zip(short).for_each(|(to, from)| *to = from);
        (whole, addressed)
    }

    /// Makes the device, or goes on with the one that a switch before this has left.
    fn session(&self) -> Result<Session<'_>, VduseError> {
        let name = &self.config.name;
        let (configuration, addressed) = self.configuration();
        let device = match bus::has(name) {
            true => Device::open(name)?,
            false => {
                let control = VduseControl::open()?;
                // One that was never put on the bus, or taken off behind the back of who made it.
                control.destroy(name)?;
                let features = OFFERED_TO_KERNEL | if addressed { MAC } else { 0 };
                control.create(name, features, configuration)?
            }
        };
        let mut session = Session {
            keeper: self,
            device: Arc::new(device),
            features: 0,
            driven: false,
            configuration,
            queues: Vec::new(),
        };
        for _ in 0..RINGS {
            let kick = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|errno| session.failed("an eventfd for kicks", errno))?;
            session.queues.push(Queue {
                kick,
                awaits: false,
                ready: false,
                runs: None,
                memory: None,
                base: 0,
            });
        }
        session.device.set_configuration(configuration)?;
        if session.device.has_driver() {
            session.take_features()?;
            session.begin()?;
        }
        Ok(session)
    }
}

impl Session<'_> {
    fn failed(&self, what: &str, errno: nix::errno::Errno) -> VduseError {
        VduseError::new(format!("VDUSE device {}: {what}", self.keeper.config.name), errno)
    }

    /// Serves it until its port is given up, or the kernel does not answer.
    fn serve(mut self) {
        let shared = &self.keeper.shared;
        let mut beside: Option<JoinHandle<Result<(), VduseError>>> = Some(self.put_on_bus());
        let (mut leaves, mut again) = (false, None::<Instant>);
        loop {
            if let Err(error) = self.step() {
                shared.set_why(Some(chain(&error)));
                self.let_go(&chain(&error));
                if shared.ends() {
                    complain!("{}: its device is left behind: {}", self.keeper.port, chain(&error));
                }
                // Another one is opened, after a moment.
                self.keeper.wait(AGAIN);
                break;
            }
            if let Some(thread) = beside.take_if(|thread| thread.is_finished()) {
                let outcome = thread.join().unwrap_or(Ok(()));
                match outcome {
                    Ok(()) if leaves => break,
                    Err(error) if leaves => {
                        complain!("{}: {}", self.keeper.port, chain(&error));
                        break;
                    }
                    Ok(()) if self.driven => {}
                    Ok(()) => {
                        let driver = self.keeper.config.driver.name();
                        shared.set_why(Some(format!("{driver} has its device, and nobody uses that yet")));
                    }
                    Err(error) => {
                        if !self.driven {
                            shared.set_why(Some(chain(&error)));
                        }
                        again = Some(Instant::now() + AGAIN);
                    }
                }
            }
            if shared.ends() && !leaves && beside.is_none() {
                leaves = true;
                beside = Some(self.take_off_bus());
            } else if beside.is_none() && !leaves && again.is_some_and(|when| Instant::now() >= when) {
                again = None;
                if !self.driven {
                    beside = Some(self.put_on_bus());
                }
            }
        }
        self.let_go("the port is given up");
        let Session { keeper, device, .. } = self;
        drop(device);
        let name = &keeper.config.name;
        if leaves
            && !bus::has(name)
            && let Err(error) = VduseControl::open().and_then(|control| control.destroy(name))
        {
            complain!("{}: {}", keeper.port, chain(&error));
        }
        // What is beside and waits for the device ends without it.
    }

    /// Does something that waits for this thread to answer, on another one.
    fn beside(
        &self,
        work: impl FnOnce() -> Result<(), VduseError> + Send + 'static,
    ) -> JoinHandle<Result<(), VduseError>> {
        let bell = Arc::clone(&self.keeper.shared.bell);
        thread::spawn(move || {
            let outcome = work();
            let _ = bell.write(1);
            outcome
        })
    }

    fn put_on_bus(&self) -> JoinHandle<Result<(), VduseError>> {
        let VduseConfig { name, driver } = self.keeper.config.clone();
        self.beside(move || {
            if !bus::has(&name) {
                bus::add(&name)?;
            }
            bus::bind(&name, driver)
        })
    }

    fn take_off_bus(&self) -> JoinHandle<Result<(), VduseError>> {
        let name = self.keeper.config.name.clone();
        self.beside(move || if bus::has(&name) { bus::delete(&name) } else { Ok(()) })
    }

    /// Waits for something to do, and does it.
    fn step(&mut self) -> Result<(), VduseError> {
        let waits: Vec<bool> = self.queues.iter().map(|queue| self.driven && queue.runs.is_none()).collect();
        let timeout =
            if waits.contains(&true) { PollTimeout::from(LOOK) } else { PollTimeout::from(1000_u16) };
        let mut awaited = vec![
            PollFd::new(self.keeper.shared.bell.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.device.as_fd(), PollFlags::POLLIN),
        ];
        let kicked = self.queues.iter().zip(&waits).filter(|(_, waits)| **waits);
        awaited.extend(kicked.map(|(queue, _)| PollFd::new(queue.kick.as_fd(), PollFlags::POLLIN)));
        // An interruption is as good as an event: who waits looks again.
        let _ = poll(&mut awaited, timeout);
        let asks = awaited.get(1).and_then(PollFd::any).unwrap_or(false);
        let _ = self.keeper.shared.bell.read();
        if asks {
            while let Some(request) = self.device.request()? {
                self.answer(&request)?;
            }
        }
        self.tell_link()?;
        if self.driven {
            for index in 0..RINGS {
                self.look(index)?;
            }
        }
        Ok(())
    }

    /// Tells the driver of its link, where that has changed.
    fn tell_link(&mut self) -> Result<(), VduseError> {
        let (configuration, _) = self.keeper.configuration();
        if configuration != self.configuration {
            self.device.set_configuration(configuration)?;
            self.configuration = configuration;
            self.device.has_driver();
        }
        Ok(())
    }

    fn answer(&mut self, request: &KernelRequest) -> Result<(), VduseError> {
        match request.kind {
            RequestKind::Status(0) => {
                // Before the answer: the kernel gives the pages away behind it.
                self.let_go("its driver has let go of it");
                self.features = 0;
                let id = self.keeper.id;
                self.keeper.links.handle().ask(move |engine| engine.note_reset(id));
                self.device.answer(request, true, 0)
            }
            RequestKind::Status(status) if status & DRIVER_OK != 0 && !self.driven => {
                if self.features == 0 && self.take_features().is_err() {
                    return self.device.answer(request, false, 0);
                }
                self.device.answer(request, true, 0)?;
                self.await_status();
                self.begin()
            }
            RequestKind::Status(status) if status & FEATURES_OK != 0 && self.features == 0 => {
                let known = self.take_features().is_ok();
                self.device.answer(request, known, 0)
            }
            RequestKind::Status(_) => self.device.answer(request, true, 0),
            RequestKind::State(index) => {
                self.stop(index);
                let base = self.queues.get(index as usize).map(|queue| queue.base);
                self.device.answer(request, base.is_some(), base.unwrap_or_default())
            }
            RequestKind::Memory => {
                for index in 0..RINGS {
                    self.stop(index);
                }
                self.queues.iter_mut().for_each(|queue| queue.awaits = true);
                self.device.answer(request, true, 0)
            }
            RequestKind::Unknown(kind) => {
                let name = &self.keeper.config.name;
                complain!("VDUSE device {name}: the kernel asks what is not known here: {kind}");
                self.device.answer(request, false, 0)
            }
        }
    }

    /// Looks at what the driver has taken, which the kernel does not compare with what was offered.
    fn take_features(&mut self) -> Result<(), VduseError> {
        let features = self.device.features()?;
        let needed = VERSION_1 | ACCESS_PLATFORM;
        if features & !(OFFERED_TO_KERNEL | MAC) != 0 || features & needed != needed {
            let text = format!("its driver has taken the features {features:#x}, which were not offered so");
            self.keeper.shared.set_why(Some(text.clone()));
            return Err(self.failed(&text, nix::errno::Errno::EINVAL));
        }
        self.features = features;
        Ok(())
    }

    /// Waits until the kernel has stored the status whose answer it has: before that the driver cannot be woken.
    fn await_status(&self) {
        let until = Instant::now() + STORED;
        while !self.device.has_driver() {
            let mut asks = [PollFd::new(self.device.as_fd(), PollFlags::POLLIN)];
            let asks = poll(&mut asks, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
            if asks || Instant::now() > until {
                // What it asks says more, or its driver is gone again.
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A driver has it: rings are served as soon as there is something in them.
    fn begin(&mut self) -> Result<(), VduseError> {
        for (index, queue) in (0..).zip(&mut self.queues) {
            self.device.set_kick(index, queue.kick.as_fd())?;
            // What was kicked before that is found.
            (queue.awaits, queue.ready) = (true, false);
        }
        self.driven = true;
        let keeper = self.keeper;
        keeper.shared.set_why(None);
        keeper.shared.connected.store(true, Ordering::Release);
        let id = keeper.id;
        keeper
            .links
            .handle()
            .ask_each(|_| move |engine: &mut Engine| engine.port_mut(id).map(|port| port.broken = None));
        keeper.links.tell(&Event::Connected { port: keeper.port.clone() });
        keeper.links.refresh();
        Ok(())
    }

    /// Takes everything back: nothing of the driver's memory is used or mapped any more.
    fn let_go(&mut self, why: &str) {
        for index in 0..RINGS {
            self.stop(index);
        }
        self.queues.iter_mut().for_each(|queue| (queue.awaits, queue.ready, queue.base) = (false, false, 0));
        if !std::mem::take(&mut self.driven) {
            return;
        }
        let keeper = self.keeper;
        keeper.shared.set_why(Some(why.to_owned()));
        keeper.shared.connected.store(false, Ordering::Release);
        let id = keeper.id;
        keeper.links.handle().ask_each(|_| move |engine: &mut Engine| engine.take_rings(id));
        keeper.links.tell(&Event::Disconnected { port: keeper.port.clone(), why: why.to_owned() });
    }

    /// Takes ring `index` back from the worker.
    fn stop(&mut self, index: u32) {
        let id = self.keeper.id;
        let Some(queue) = self.queues.get_mut(index as usize) else { return };
        if queue.runs.take().is_none() {
            return;
        }
        let stopped = self.keeper.links.handle().take_ring(id, index);
        // The worker has let go of it: it is unmapped here.
        queue.memory = None;
        if let Some(base) = stopped.flatten() {
            // Of a split ring: its index.
            queue.base = base as u16;
        }
    }

    /// Has the worker serve ring `index`, as soon as it is in use and the kernel has memory for what is in it: at the latest when there
    /// is something in it.
    fn look(&mut self, index: u32) -> Result<(), VduseError> {
        let event_index = self.features & EVENT_INDEX != 0;
        let Some(queue) = self.queues.get_mut(index as usize) else { return Ok(()) };
        if queue.runs.is_some() {
            return Ok(());
        }
        let found = self.device.queue(index, event_index)?;
        let taken_into_use = found.ready && !std::mem::replace(&mut queue.ready, found.ready);
        let kicked = queue.kick.read().is_ok();
        let looked_at = std::mem::take(&mut queue.awaits) || kicked || taken_into_use;
        if !found.ready || !looked_at {
            return Ok(());
        }
        let parts = self.device.regions()?;
        let keeper = self.keeper;
        let id = keeper.id;
        let limit =
            keeper.links.handle().ask(move |engine| engine.port(id).map(|port| port.settings().memory));
        let Some(limit) = limit.flatten() else { return Ok(()) };
        let others = self.queues.iter().filter_map(|queue| queue.memory.as_ref());
        let driver_memory = match DriverMemory::map(&parts, others, limit) {
            Ok(memory) => memory,
            Err(error) => {
                keeper.shared.set_why(Some(chain(&error)));
                return Ok(());
            }
        };
        drop(parts);
        let memory = &driver_memory.memory;
        let number = |at: u64| {
            let mut bytes = [0; 2];
            read(memory, at, &mut bytes).map(|()| u16::from_le_bytes(bytes))
        };
        // Either ring has its index behind its flags (2.7.6, 2.7.8). All that was taken was completed: it goes on from there.
        let indices =
            (number(found.layout.driver.saturating_add(2)), number(found.layout.device.saturating_add(2)));
        let (Some(available), Some(used)) = indices else { return Ok(()) };
        // Nobody kicks a ring again that was served before, by a switch that asked for no kicks: it is served at once. So is one whose
        // kernel has its pages already, which begin at 0.
        if available == used && used == 0 && memory.guest(0, 1).is_none() {
            return Ok(());
        }
        let ring = match Split::new(memory, &found.layout, u32::from(used)) {
            Ok(ring) => Ring::Split(ring),
            Err(error) => {
                keeper.shared.set_why(Some(format!("ring {index}: {error}")));
                return Ok(());
            }
        };
        let Some(queue) = self.queues.get_mut(index as usize) else { return Ok(()) };
        let clone = queue.kick.as_fd().try_clone_to_owned();
        let clone = clone.map_err(|error| VduseError::io("an eventfd could not be copied", &error))?;
        let kick = Kick::of_ring(keeper.links.handle(), index, clone)
            .map_err(|errno| VduseError::new("kicks could not be listened to", errno))?;
        (queue.runs, queue.memory) = (Some(kick), Some(driver_memory));
        let call: Arc<dyn Notify> = Arc::new(self.device.interrupt(index));
        let negotiated = negotiated(self.features);
        let given = GivenRing { ring, call: Some(Arc::clone(&call)), err: None };
        keeper.links.handle().put_ring(id, index, negotiated, given);
        // A switch before this one may have completed something without a word.
        call.signal();
        Ok(())
    }
}
