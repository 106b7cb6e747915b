//! Follows what guests ask of their devices: QEMU tells that it has changed (`NIC_RX_FILTER_CHANGED`), once until it is asked what it is
//! now (`query-rx-filter`; `qapi/net.json`). The connection is held, and a monitor serves one at a time, so this one is for nobody else.
//! What comes is written by a guest.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    io::{self, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};
use serde_json::{Value, json};

use super::port::STACK;
use crate::rx_filter::Filter;

/// How long QEMU may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// When it is tried again where it could not be reached.
const AGAIN: Duration = Duration::from_secs(1);
/// The pause after a question that an event has caused: a guest that changes its filter without end is asked so often and no more.
const PACE: Duration = Duration::from_millis(10);
/// The longest line that is read; a device with all VLANs takes 28 KiB.
const LONGEST: usize = 256 << 10;

/// What guests ask for, by port, until the switch looks at it: the newest of each.
#[derive(Debug)]
pub(super) struct RequestedFilters {
    filters: Mutex<BTreeMap<String, Filter>>,
    ring: mpsc::Sender<()>,
}

impl RequestedFilters {
    pub fn new(ring: mpsc::Sender<()>) -> RequestedFilters {
        RequestedFilters { filters: Mutex::default(), ring }
    }

    fn put(&self, port: &str, filter: Filter) {
        let mut filters = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
        if filters.is_empty() {
            let _ = self.ring.send(());
        }
        filters.insert(port.to_owned(), filter);
    }

    pub fn take(&self) -> BTreeMap<String, Filter> {
        std::mem::take(&mut *self.filters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What this port's guest asked for is old.
    pub fn forget(&self, port: &str) {
        self.filters.lock().unwrap_or_else(PoisonError::into_inner).remove(port);
    }
}

/// Follows the devices of one monitor, in a thread of its own.
#[derive(Debug)]
pub(super) struct Follower {
    /// The ports by their devices.
    devices: BTreeMap<String, String>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bell: EventFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ends: bool,
    /// Devices that are to be asked about anew.
    again: BTreeSet<String>,
    /// Why it is not known what a device was asked for.
    why: BTreeMap<String, String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let _ = self.bell.write(1);
    }
}

/// The followers that `wanted` needs, by monitor: those that are as it has them stay, others end.
pub(super) fn follow(
    followers: &mut BTreeMap<PathBuf, Follower>,
    wanted: BTreeMap<PathBuf, BTreeMap<String, String>>,
    asked: &Arc<RequestedFilters>,
) -> io::Result<()> {
    followers.retain(|monitor, follower| wanted.get(monitor) == Some(&follower.devices));
    for (monitor, devices) in wanted {
        if let Entry::Vacant(place) = followers.entry(monitor) {
            let follower = Follower::new(place.key(), devices, Arc::clone(asked))?;
            place.insert(follower);
        }
    }
    Ok(())
}

impl Follower {
    fn new(
        monitor: &Path,
        devices: BTreeMap<String, String>,
        asked: Arc<RequestedFilters>,
    ) -> io::Result<Follower> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = Arc::new(Shared { bell, state: Mutex::default() });
        let session = Session {
            shared: Arc::clone(&shared),
            monitor: monitor.to_owned(),
            devices: devices.clone(),
            asked,
        };
        thread::Builder::new().name("filters".to_owned()).stack_size(STACK).spawn(move || session.work())?;
        Ok(Follower { devices, shared })
    }

    /// Asks anew what a port's device was asked for.
    pub fn again(&self, port: &str) {
        let of = |(device, of): (&String, &String)| (of == port).then(|| device.clone());
        self.shared.state().again.extend(self.devices.iter().find_map(of));
        self.shared.ring();
    }

    /// Why it is not known what a port's device was asked for.
    pub fn why(&self, port: &str) -> Option<String> {
        self.shared.state().why.get(port).cloned()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.state().ends = true;
        self.shared.ring();
    }
}

/// What the thread has.
struct Session {
    shared: Arc<Shared>,
    monitor: PathBuf,
    devices: BTreeMap<String, String>,
    asked: Arc<RequestedFilters>,
}

impl Session {
    fn work(&self) {
        loop {
            let ended = self.converse();
            let failed = match ended {
                Ok(()) => return,
                Err(error) => {
                    let monitor = self.monitor.display();
                    format!(
                        "what its guest asks of its device is not known: QEMU's monitor {monitor}: {error}"
                    )
                }
            };
            {
                let mut state = self.shared.state();
                if state.ends {
                    return;
                }
                state.why = self.devices.values().map(|port| (port.clone(), failed.clone())).collect();
            }
            let until = Instant::now() + AGAIN;
            while Instant::now() < until && !self.shared.state().ends {
                wait(&[PollFd::new(self.shared.bell.as_fd(), PollFlags::POLLIN)], AGAIN);
                let _ = self.shared.bell.read();
            }
        }
    }

    /// Follows until that breaks off, or is to end.
    fn converse(&self) -> io::Result<()> {
        let stream = UnixStream::connect(&self.monitor)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut lines = Lines { stream: &stream, read: Vec::new() };
        let greeting = lines.next(Some(TIMEOUT), None)?.unwrap_or_default();
        if greeting.get("QMP").is_none() {
            return Err(io::Error::other("this is no monitor that speaks QMP"));
        }
        let mut changed = BTreeSet::new();
        lines.ask(&json!({"execute": "qmp_capabilities", "id": 0}), |_| {})?.map_err(io::Error::other)?;
        let mut pending: BTreeSet<String> = self.devices.keys().cloned().collect();
        loop {
            {
                let mut state = self.shared.state();
                if state.ends {
                    return Ok(());
                }
                pending.append(&mut state.again);
            }
            let paced = !changed.is_empty();
            pending.append(&mut changed);
            let mut note = |line: &Value| {
                changed.extend(changed_in(line).filter(|name| self.devices.contains_key(name)))
            };
            let Some(device) = pending.pop_first() else {
                if let Some(line) = lines.next(None, Some(&self.shared.bell))? {
                    note(&line);
                }
                let _ = self.shared.bell.read();
                continue;
            };
            let Some(port) = self.devices.get(&device) else { continue };
            let question = json!({"execute": "query-rx-filter", "arguments": {"name": device}, "id": device});
            let told =
                lines.ask(&question, &mut note)?.and_then(|told| match told.as_array().map(Vec::as_slice) {
                    Some([one]) => Filter::read(one),
                    _ => Err("QEMU tells of no one device".to_owned()),
                });
            let mut state = self.shared.state();
            match told {
                Ok(filter) => {
                    state.why.remove(port);
                    drop(state);
                    self.asked.put(port, filter);
                }
                Err(why) => {
                    let text = format!("what its guest asks of its device {device} is not known: {why}");
                    state.why.insert(port.clone(), text);
                }
            }
            if paced {
                thread::sleep(PACE);
            }
        }
    }
}

/// The device whose filter has changed, if a line tells that.
fn changed_in(line: &Value) -> impl Iterator<Item = String> {
    let changed = line.get("event").and_then(Value::as_str) == Some("NIC_RX_FILTER_CHANGED");
    let name = line.pointer("/data/name").and_then(Value::as_str).filter(|_| changed);
    name.map(str::to_owned).into_iter()
}

/// Waits until something is there, or for so long.
fn wait(fds: &[PollFd<'_>], most: Duration) -> bool {
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    poll(&mut fds.to_vec(), timeout).is_ok_and(|count| count > 0)
}

/// What comes of a monitor, line by line.
struct Lines<'a> {
    stream: &'a UnixStream,
    read: Vec<u8>,
}

impl Lines<'_> {
    /// The next line, within `timeout` where there is one; `None`: `bell` has rung.
    fn next(&mut self, timeout: Option<Duration>, bell: Option<&EventFd>) -> io::Result<Option<Value>> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.read.len() > LONGEST {
                return Err(io::Error::other(format!("a line is longer than {LONGEST} bytes")));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut fds = vec![PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
            fds.extend(bell.map(|bell| PollFd::new(bell.as_fd(), PollFlags::POLLIN)));
            let timeout = left.and_then(|left| PollTimeout::try_from(left).ok()).unwrap_or(PollTimeout::NONE);
            match poll(&mut fds, timeout) {
                Err(nix::errno::Errno::EINTR) | Ok(0) => continue,
                Err(errno) => return Err(errno.into()),
                Ok(_) => {}
            }
            if fds.get(1).is_some_and(|bell| bell.any().unwrap_or_default()) {
                return Ok(None);
            }
            let mut bytes = [0; 16 << 10];
            match (&*self.stream).read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.read.extend(bytes.get(..count).unwrap_or_default()),
            }
        }
    }

    /// Asks, and waits for the answer; `note` gets what else comes meanwhile. What is refused is an answer, too.
    fn ask(&mut self, question: &Value, mut note: impl FnMut(&Value)) -> io::Result<Result<Value, String>> {
        (&*self.stream).write_all(format!("{question}\n").as_bytes())?;
        let until = Instant::now() + TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(mut line) = self.next(Some(left), None)? else { continue };
            if line.get("id") != question.get("id") {
                note(&line);
                continue;
            }
            if let Some(error) = line.get("error") {
                let text = error.get("desc").and_then(Value::as_str).unwrap_or("it says no more than no");
                return Ok(Err(text.to_owned()));
            }
            return Ok(Ok(line.get_mut("return").map(Value::take).unwrap_or_default()));
        }
    }
}
