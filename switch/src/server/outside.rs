//! A port that is no guest's: a thread that awaits what it is connected to, gives it to the worker, and notices when it goes.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use super::{
    Event,
    link::Links,
    port::{MOST_LEFT, STACK, join},
};
use crate::{
    config::{Cable, PortBackend},
    device,
    net::Mac,
    outside::{AttachError, Opened, cable, interface, interface::LinkSocket, packet, tap},
    passed::PassedFiles,
    settings::Settings,
    socket::{self, Access},
    table::PortId,
    worker::Kick,
};

/// How long the other side of a cable may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);
/// Between two attempts to reach the other side of a cable.
const AGAIN: Duration = Duration::from_millis(250);

/// A port that is connected to something else than a guest, or awaits it.
#[derive(Debug)]
pub(super) struct Outside {
    id: PortId,
    backend: PortBackend,
    /// What was opened for it already.
    ready: Option<Ready>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Ready {
    Interface(Opened, LinkSocket),
    Listener(OwnedFd),
    Nothing,
}

#[derive(Debug)]
struct Shared {
    /// Rings when one of the next two has changed.
    bell: EventFd,
    ends: AtomicBool,
    /// Whether its administrator has not disabled its link.
    enabled: AtomicBool,
    connected: AtomicBool,
    /// The port's own addresses, the first one first.
    macs: Mutex<Vec<Mac>>,
    /// Why it was not connected when that was tried last.
    why: Mutex<Option<String>>,
}

impl Outside {
    /// Opens what can be opened at once.
    ///
    /// # Errors
    ///
    /// When its socket cannot be made, or its interface not be opened; when no more files can be open.
    pub fn open(
        backend: &PortBackend,
        id: PortId,
        settings: &Settings,
        enabled: bool,
        access: Access,
    ) -> io::Result<Outside> {
        let ready = match backend {
            PortBackend::Cable(Cable::Listen(path)) => Ready::Listener(cable::await_on(path, access)?),
            PortBackend::Cable(Cable::Qemu(path)) => Ready::Listener(cable::await_qemu_on(path, access)?),
            PortBackend::Cable(Cable::Connect(_)) | PortBackend::Guest(_) | PortBackend::Vduse(_) => {
                Ready::Nothing
            }
            PortBackend::Tap(_) | PortBackend::Packet(_) => {
                // Before it is looked at, so that no change is missed.
                let changes = LinkSocket::new()?;
                Ready::Interface(open_interface(backend, settings.mtu, &settings.macs)?, changes)
            }
        };
        let shared = Shared {
            bell: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            ends: AtomicBool::new(false),
            enabled: AtomicBool::new(enabled),
            connected: AtomicBool::new(false),
            macs: Mutex::new(settings.macs.clone()),
            why: Mutex::default(),
        };
        Ok(Outside {
            id,
            backend: backend.clone(),
            ready: Some(ready),
            thread: None,
            shared: Arc::new(shared),
        })
    }

    pub fn backend(&self) -> &PortBackend {
        &self.backend
    }

    pub fn id(&self) -> PortId {
        self.id
    }

    pub fn is_connected(&self) -> bool {
        self.shared.connected.load(Ordering::Acquire)
    }

    /// Why it is not connected.
    pub fn why(&self) -> Option<String> {
        self.shared.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says whether its link is disabled: the other side of a cable is then to see that.
    pub fn set_enabled(&self, enabled: bool) {
        if self.shared.enabled.swap(enabled, Ordering::AcqRel) != enabled {
            let _ = self.shared.bell.write(1);
        }
    }

    /// Says what the port's addresses are now. A tap that has the first one of those before gets the first of these; any other is let
    /// go of until it has one of them.
    pub fn set_macs(&self, macs: &[Mac]) {
        let mut now = self.shared.macs.lock().unwrap_or_else(PoisonError::into_inner);
        if *now == macs {
            return;
        }
        let before = std::mem::replace(&mut *now, macs.to_vec());
        drop(now);
        if let (PortBackend::Tap(name), Some(mac)) = (&self.backend, macs.first())
            && interface::address(name).is_some_and(|address| before.first() == Some(&address))
        {
            // Where that cannot be, the interface has another address than its port, and the thread says so.
            let _ = interface::set_address(name, *mac);
        }
        let _ = self.shared.bell.write(1);
    }

    /// Has it watched, and connected whenever that can be.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn serve(&mut self, name: &str, mtu: u16, links: Links) -> io::Result<()> {
        let Some(ready) = self.ready.take() else { return Ok(()) };
        let keeper = Keeper {
            id: self.id,
            name: name.to_owned(),
            backend: self.backend.clone(),
            mtu,
            shared: Arc::clone(&self.shared),
            links,
        };
        let work = move || match ready {
            Ready::Interface(opened, changes) => keeper.keep_interface(opened, &changes),
            Ready::Listener(listener) => keeper.keep_cable(Some(&listener)),
            Ready::Nothing => keeper.keep_cable(None),
        };
        self.thread = Some(thread::Builder::new().name("wire".to_owned()).stack_size(STACK).spawn(work)?);
        Ok(())
    }

    /// Has its thread let go of it.
    pub fn end(&self) {
        self.shared.ends.store(true, Ordering::Release);
        let _ = self.shared.bell.write(1);
    }

    /// Takes its socket away, when its thread has ended or `until` has come; says whether it has. [`Outside::end`] comes before.
    pub fn close(mut self, until: Instant) -> bool {
        let thread = self.thread.take();
        let ended = thread.is_none_or(|thread| join(thread, until, &self.backend.to_string()));
        if let PortBackend::Cable(Cable::Listen(path) | Cable::Qemu(path)) = &self.backend {
            socket::remove(path);
        }
        ended
    }
}

fn open_interface(backend: &PortBackend, mtu: u16, macs: &[Mac]) -> Result<Opened, AttachError> {
    match backend {
        PortBackend::Tap(name) => tap::open(name, mtu, macs),
        PortBackend::Packet(name) => packet::open(name),
        PortBackend::Guest(_) | PortBackend::Cable(_) | PortBackend::Vduse(_) => {
            Err(AttachError::new("this is no network interface", Errno::EINVAL))
        }
    }
}

/// What the thread has.
struct Keeper {
    id: PortId,
    name: String,
    backend: PortBackend,
    mtu: u16,
    shared: Arc<Shared>,
    links: Links,
}

impl Keeper {
    fn ends(&self) -> bool {
        self.shared.ends.load(Ordering::Acquire)
    }

    fn macs(&self) -> Vec<Mac> {
        self.shared.macs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the interface that is there is not at its port, if it is not.
    fn misaddressed(&self) -> Option<String> {
        let PortBackend::Tap(name) = &self.backend else { return None };
        tap::other_address(name, &self.macs())
    }

    fn enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Acquire)
    }

    /// Waits until one of these says something, the bell rings, or this long.
    fn wait(&self, others: &[(BorrowedFd<'_>, PollFlags)], most: PollTimeout) {
        let mut awaited = vec![PollFd::new(self.shared.bell.as_fd(), PollFlags::POLLIN)];
        awaited.extend(others.iter().map(|(fd, flags)| PollFd::new(*fd, *flags)));
        // An interruption is as good as an event: who waits looks again.
        let _ = poll(&mut awaited, most);
        let _ = self.shared.bell.read();
    }

    /// Gives a wire to the worker. What wakes it lives as long as what is given back.
    fn attach(&self, opened: Opened, carrier: bool) -> Result<Kick, String> {
        let Opened { wire, negotiated } = opened;
        let failed = |error: io::Error| format!("its descriptor could not be used: {error}");
        let fd = wire.fd().try_clone_to_owned().map_err(failed)?;
        let kick = Kick::of_wire(self.links.handle(), fd).map_err(|errno| failed(errno.into()))?;
        let id = self.id;
        self.set_why(None);
        self.shared.connected.store(true, Ordering::Release);
        self.links.handle().set_wire(id, Some((wire, negotiated)), carrier);
        self.links.tell(&Event::Connected { port: self.name.clone() });
        self.links.refresh();
        Ok(kick)
    }

    fn detach(&self, why: String) {
        let id = self.id;
        // First the reason, then the link: whoever sees the link of a port go sees why.
        self.set_why(Some(why.clone()));
        self.shared.connected.store(false, Ordering::Release);
        self.links.handle().set_wire(id, None, false);
        self.links.tell(&Event::Disconnected { port: self.name.clone(), why });
        self.links.refresh();
    }

    fn set_why(&self, why: Option<String>) {
        *self.shared.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Keeps an interface: follows its carrier, and takes it again when it was taken away and came back.
    fn keep_interface(&self, opened: Opened, changes: &LinkSocket) {
        let (PortBackend::Tap(name) | PortBackend::Packet(name)) = &self.backend else { return };
        let mut next = Some(opened);
        while !self.ends() {
            // Before it is looked at: what changes from here on wakes the wait below.
            changes.drain();
            let attempt = match next.take() {
                Some(opened) => Ok(opened),
                None if interface::index(name).is_some() => {
                    open_interface(&self.backend, self.mtu, &self.macs())
                }
                None => Err(AttachError::new(format!("there is no network interface {name}"), Errno::ENODEV)),
            };
            let index = interface::index(name);
            let carrier = interface::carrier(name).unwrap_or(false);
            let attached = attempt
                .map_err(|error| io::Error::from(error).to_string())
                .and_then(|opened| self.attach(opened, carrier));
            match attached {
                Ok(_kick) => {
                    self.follow(name, index, carrier, changes);
                    self.detach(match self.ends() {
                        true => "the port is given up".to_owned(),
                        false => {
                            self.misaddressed().unwrap_or_else(|| format!("{} was taken away", self.backend))
                        }
                    });
                }
                Err(why) => {
                    self.set_why(Some(why));
                    self.wait(&[(changes.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
                }
            }
        }
    }

    /// Follows an interface's carrier, until it is gone or has an address that its port has not.
    fn follow(&self, name: &str, index: Option<u32>, mut carrier: bool, changes: &LinkSocket) {
        loop {
            if self.ends() || interface::index(name) != index || self.misaddressed().is_some() {
                return;
            }
            let now = interface::carrier(name).unwrap_or(false);
            if now != carrier {
                carrier = now;
                self.links.handle().set_carrier(self.id, now);
                self.links.refresh();
            }
            self.wait(&[(changes.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
            changes.drain();
        }
    }

    /// Keeps a cable: awaits the other side here, or goes to it, again and again.
    fn keep_cable(&self, listener: Option<&OwnedFd>) {
        let PortBackend::Cable(cable @ (Cable::Listen(path) | Cable::Connect(path) | Cable::Qemu(path))) =
            &self.backend
        else {
            return;
        };
        let is_qemu = matches!(cable, Cable::Qemu(_));
        // What the other side has passed, against all custom, and how much of it cannot be closed.
        let (brought, mut left) = (PassedFiles::default(), 0);
        while !self.ends() {
            left += device::leave(brought.take());
            if left > MOST_LEFT {
                self.set_why(Some(format!(
                    "the other side sent descriptors, of which {left} could not be closed safely, and stay open: nobody is \
                     served here any more until the switch is started anew"
                )));
                self.wait(&[], PollTimeout::NONE);
                continue;
            }
            if !self.enabled() {
                self.set_why(Some("its link is disabled".to_owned()));
                // Who comes meanwhile is sent away, and sees that there is no link.
                match listener {
                    Some(listener) => {
                        self.wait(&[(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
                        if !self.enabled() {
                            drop(cable::accept(listener));
                        }
                    }
                    None => self.wait(&[], PollTimeout::NONE),
                }
                continue;
            }
            let end = match listener {
                Some(listener) => {
                    self.wait(&[(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
                    cable::accept(listener).ok_or_else(|| "the other side has not come yet".to_owned())
                }
                None => reach(path),
            };
            // A QEMU says nothing of itself.
            let found =
                end.and_then(|end| if is_qemu { Ok(end) } else { self.greet(&end, &brought).map(|()| end) });
            let attached = found.and_then(|end| {
                let watched = end.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
                let opened =
                    if is_qemu { cable::qemu_wire(end, &brought) } else { cable::wire(end, &brought) };
                Ok((watched, self.attach(opened, true)?))
            });
            match attached {
                Ok((end, _kick)) => {
                    let why = self.until_it_goes(&end, listener);
                    let files = brought.take();
                    self.detach(match files.is_empty() {
                        true => why,
                        false => "the other side sends descriptors, which belong to no frame".to_owned(),
                    });
                    left += device::leave(files);
                }
                Err(why) => {
                    self.set_why(Some(why));
                    if listener.is_none() {
                        self.wait(&[], timeout(AGAIN));
                    }
                }
            }
        }
    }

    /// Says who we are, and hears who the other side is.
    fn greet(&self, end: &OwnedFd, brought: &PassedFiles) -> Result<(), String> {
        cable::greet(end).map_err(|errno| format!("the other side went at once: {errno}"))?;
        let until = Instant::now() + GREETING;
        loop {
            let mut awaited = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
            let left = until.saturating_duration_since(Instant::now());
            if self.ends() || left.is_zero() {
                return Err("the other side does not say who it is".to_owned());
            }
            // Short, since nobody else wakes this.
            if poll(&mut awaited, timeout(left.min(AGAIN))).is_ok_and(|count| count > 0) {
                return cable::greeted(end, brought);
            }
        }
    }

    /// Waits until a cable's other side has gone, or this one is to go; says which.
    fn until_it_goes(&self, end: &OwnedFd, listener: Option<&OwnedFd>) -> String {
        loop {
            if self.ends() {
                return "the port is given up".to_owned();
            }
            if !self.enabled() {
                return "its link is disabled".to_owned();
            }
            if hung_up(end) {
                return "the other side of the cable has gone".to_owned();
            }
            let mut others = vec![(end.as_fd(), PollFlags::empty())];
            others.extend(listener.map(|listener| (listener.as_fd(), PollFlags::POLLIN)));
            self.wait(&others, PollTimeout::NONE);
            // A cable has two ends: a third is sent away, unless it comes instead of one that has gone.
            if let Some(listener) = listener
                && !hung_up(end)
            {
                drop(cable::accept(listener));
            }
        }
    }
}

fn reach(path: &Path) -> Result<OwnedFd, String> {
    cable::reach(path).map_err(|errno| format!("{} does not answer: {errno}", path.display()))
}

/// That is told whether it is asked for or not.
fn hung_up(end: &OwnedFd) -> bool {
    let mut looked = [PollFd::new(end.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
    let found = poll(&mut looked, PollTimeout::ZERO).is_ok_and(|count| count > 0);
    found && looked.iter().any(|fd| fd.revents().is_some_and(|events| events.intersects(gone)))
}

fn timeout(duration: Duration) -> PollTimeout {
    u16::try_from(duration.as_millis()).map_or(PollTimeout::MAX, PollTimeout::from)
}
