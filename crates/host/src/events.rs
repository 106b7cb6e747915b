//! Events of several sources at once: interfaces of several network namespaces, devices, ends of processes.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::{
    chain,
    netlink::{LinkEvents, Touched},
    running::Running,
    uevent::{DeviceEvents, Uevent},
};

/// No more events of one source are read before the others have their turn.
const AT_ONCE: usize = 4096;

/// The end of a process, which need not be a child.
#[derive(Debug)]
pub struct ProcessEnd {
    process: OwnedFd,
}

impl ProcessEnd {
    /// The end of this process; `None` when it has ended.
    ///
    /// # Errors
    ///
    /// The kernel has no such thing (before Linux 5.3).
    #[allow(unsafe_code)]
    pub fn of(process: Running) -> io::Result<Option<ProcessEnd>> {
        // SAFETY: the call takes two numbers (pidfd_open(2)); a number that is none of a process is an error.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process.id, 0) };
        if descriptor < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ESRCH) { Ok(None) } else { Err(error) };
        }
        let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
        // SAFETY: the kernel has just opened it for us, and nobody else knows of it.
        let end = ProcessEnd { process: unsafe { OwnedFd::from_raw_fd(descriptor) } };
        // Asked after the descriptor was there: until now the number could have become another's.
        Ok(process.is_alive().then_some(end))
    }
}

/// Something whose events the kernel reports.
#[derive(Debug)]
pub enum EventSource {
    /// The interfaces of a network namespace.
    Links(LinkEvents),
    /// The devices of the machine.
    Devices(DeviceEvents),
    /// A process that will end.
    End(ProcessEnd),
}

/// What a source events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Something happened to an interface, or to an address of it.
    Interface(Touched),
    /// Something happened to a device.
    Device(Uevent),
    /// The process has ended. The source is gone.
    Ended,
    /// More happened than could be kept: nothing that was known is sure.
    Lost,
    /// The source broke, for this reason, and is gone.
    Broken(String),
}

/// Polls several sources, each under a name.
#[derive(Debug)]
pub struct EventPoller<K> {
    sources: Vec<(K, EventSource)>,
}

impl<K: Clone + Ord> Default for EventPoller<K> {
    fn default() -> EventPoller<K> {
        EventPoller { sources: Vec::new() }
    }
}

impl<K: Clone + Ord> EventPoller<K> {
    /// Polls one more.
    pub fn add(&mut self, name: K, source: EventSource) {
        self.sources.push((name, source));
    }

    /// Polls those alone whose names are kept.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.sources.retain(|(name, _)| keep(name));
    }

    /// Waits for events, at most for `timeout`; gives all that have come, each once. None when the time is over, or a
    /// signal came.
    ///
    /// # Errors
    ///
    /// The kernel's, when polling fails or a source cannot be read. Events that were lost are no error but an event of their
    /// own.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<BTreeSet<(K, Event)>> {
        let mut events = BTreeSet::new();
        let ready: Vec<bool> = {
            let mut polled: Vec<PollFd<'_>> = self
                .sources
                .iter()
                .map(|(_, source)| PollFd::new(source.as_fd(), PollFlags::POLLIN))
                .collect();
            // Rounded up, so that the last fraction of a millisecond is not spun away.
            let timeout = timeout + Duration::from_micros(999);
            let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
            match poll(&mut polled, timeout) {
                Ok(_) => polled.iter().map(|polled| polled.any().unwrap_or(true)).collect(),
                Err(nix::errno::Errno::EINTR) => return Ok(events),
                Err(errno) => return Err(errno.into()),
            }
        };
        let mut ready = ready.into_iter();
        self.sources.retain_mut(|(name, source)| {
            !ready.next().unwrap_or(false)
                || source.drain(|one| {
                    events.insert((name.clone(), one));
                })
        });
        Ok(events)
    }

    /// Waits as [`wait`](EventPoller::wait) does; after the first event, goes on until none comes for `quiet`, at most for
    /// `longest`. What happens comes in bursts: a PF that is reset takes all of its VFs along.
    ///
    /// # Errors
    ///
    /// As [`wait`](EventPoller::wait); what had come before the error is lost with it.
    pub fn gather(
        &mut self,
        timeout: Duration,
        quiet: Duration,
        longest: Duration,
    ) -> io::Result<BTreeSet<(K, Event)>> {
        let mut all = self.wait(timeout)?;
        if all.is_empty() {
            return Ok(all);
        }
        let end = Instant::now() + longest;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let more = self.wait(left.min(quiet))?;
            if more.is_empty() || left.is_zero() {
                all.extend(more);
                return Ok(all);
            }
            all.extend(more);
        }
    }
}

impl EventSource {
    /// Whether it is still there afterwards.
    fn drain(&mut self, mut each: impl FnMut(Event)) -> bool {
        let outcome = match self {
            EventSource::Links(events) => events.drain(AT_ONCE, |touched| each(Event::Interface(touched))),
            EventSource::Devices(events) => events.drain(AT_ONCE, |event| each(Event::Device(event))),
            EventSource::End(_) => {
                each(Event::Ended);
                return false;
            }
        };
        match outcome {
            Ok(false) => true,
            Ok(true) => {
                each(Event::Lost);
                true
            }
            Err(error) => {
                each(Event::Broken(chain(&error)));
                false
            }
        }
    }
}

impl AsFd for EventSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            EventSource::Links(events) => events.as_fd(),
            EventSource::Devices(events) => events.as_fd(),
            EventSource::End(end) => end.process.as_fd(),
        }
    }
}
