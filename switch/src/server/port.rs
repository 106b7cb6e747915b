//! A port's socket, and who is connected to it.

use std::{
    io,
    net::Shutdown,
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        socket::SockType,
    },
};

use super::{Event, link::Links};
use crate::{
    device,
    socket::{self, Access},
    table::PortId,
};

/// A thread's stack: messages are short, and nothing recurses.
pub(super) const STACK: usize = 128 << 10;

/// Descriptors of who comes to a port that may stay open for good.
pub(super) const MOST_LEFT: usize = 64;

/// Front ends that may wait until the one before has gone.
const BACKLOG: i32 = 128;

/// A port that awaits its front end, or has one.
#[derive(Debug)]
pub(super) struct Listening {
    path: PathBuf,
    id: PortId,
    listener: Option<UnixListener>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Rings when the port is given up.
    ends: EventFd,
    /// The connection that is served.
    stream: Mutex<Option<UnixStream>>,
    /// Why the last one was refused.
    refusal: Mutex<Option<String>>,
}

impl Shared {
    /// Replaces the connection; says which was there.
    fn set(&self, stream: Option<UnixStream>) -> Option<UnixStream> {
        std::mem::replace(&mut *self.stream.lock().unwrap_or_else(PoisonError::into_inner), stream)
    }

    fn set_refusal(&self, refusal: Option<&str>) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal.map(str::to_owned);
    }
}

impl Listening {
    /// Makes the socket. One that is there and on which nobody listens any more is replaced.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made: somebody listens there, something else is there, or its directory may not be written.
    pub fn open(path: &Path, id: PortId, access: Access) -> io::Result<Listening> {
        let listener = UnixListener::from(socket::listen_on(path, SockType::Stream, BACKLOG, access)?);
        let ends = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = Arc::new(Shared { ends, stream: Mutex::default(), refusal: Mutex::default() });
        Ok(Listening { path: path.to_owned(), id, listener: Some(listener), thread: None, shared })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn id(&self) -> PortId {
        self.id
    }

    pub fn is_connected(&self) -> bool {
        self.shared.stream.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Why the last front end was sent away, while there is no other.
    pub fn refusal(&self) -> Option<String> {
        self.shared.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has front ends served, one after the other.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn serve(&mut self, name: &str, links: Links) -> io::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let (name, id, shared) = (name.to_owned(), self.id, Arc::clone(&self.shared));
        let work = move || {
            let mut left = 0;
            while let Some(stream) = next(&listener, &shared.ends) {
                shared.set(stream.try_clone().ok());
                shared.set_refusal(None);
                links.tell(&Event::Connected { port: name.clone() });
                links.front_end_came(id);
                let ended = device::serve(stream, links.handle().clone(), id);
                left += ended.left;
                let why = match left {
                    0..=MOST_LEFT => ended.to_string(),
                    _ => format!(
                        "{ended}; no more front ends are served here until the switch is started anew: {left} descriptors that \
                         they brought could not be closed safely, and stay open"
                    ),
                };
                let refused = ended.refusal().is_some() || left > MOST_LEFT;
                shared.set_refusal(refused.then_some(&*why));
                let connection = shared.set(None);
                links.tell(&Event::Disconnected { port: name.clone(), why });
                // Descriptors that were sent and never taken end with it. Where that waits for somebody it harms its own port alone.
                drop(connection);
                if left > MOST_LEFT {
                    return;
                }
            }
        };
        self.thread = Some(thread::Builder::new().name("port".to_owned()).stack_size(STACK).spawn(work)?);
        Ok(())
    }

    /// Sends the front end away, and has the port's thread end.
    pub fn end(&self) {
        let _ = self.shared.ends.write(1);
        if let Some(stream) = &*self.shared.stream.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Takes the socket away, when the port's thread has ended or `until` has come; says whether it has. [`Listening::end`] comes before.
    pub fn close(mut self, until: Instant) -> bool {
        let thread = self.thread.take();
        let ended = thread.is_none_or(|thread| join(thread, until, &self.path.display().to_string()));
        socket::remove(&self.path);
        ended
    }
}

/// Waits until a port's thread has ended, but not longer than `until`: what its front end has handed over may hold it for ever. Says
/// whether it has.
pub(super) fn join(thread: JoinHandle<()>, until: Instant, port: &str) -> bool {
    while !thread.is_finished() {
        if Instant::now() >= until {
            complain!(
                "{port}: left behind, since what its front end handed over cannot be closed: \
                 whoever serves it does not answer"
            );
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    // One that panicked has said so already.
    let _ = thread.join();
    true
}

/// The next front end; `None` when the port is given up.
fn next(listener: &UnixListener, ends: &EventFd) -> Option<UnixStream> {
    loop {
        let mut awaited =
            [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(ends.as_fd(), PollFlags::POLLIN)];
        match poll(&mut awaited, PollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return None,
            Ok(_) => {}
        }
        let [listened, ended] = awaited.map(|fd| fd.any().unwrap_or_default());
        if ended {
            return None;
        }
        if listened {
            match listener.accept() {
                Ok((stream, _)) => return Some(stream),
                // It still waits there: without descriptors left, until somebody gives some back.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}
