//! Tells a QEMU of a port's link. QEMU serves a network device's configuration itself, so that only its monitor can change what the guest
//! sees (QEMU, `docs/interop/qmp-spec.rst`, and `set_link` of `qapi/net.json`).

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::port::STACK;
use crate::config::Qemu;

/// How long QEMU may take for an answer: who else is at its monitor goes first.
const TIMEOUT: Duration = Duration::from_secs(5);
/// When it is told again what it did not take.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest line that is read.
const LONGEST: u64 = 64 << 10;
/// Lines before the answer, which tell of other things.
const MOST_EVENTS: usize = 1000;

/// Tells one QEMU, in a thread of its own, since that may take as long as it likes.
#[derive(Debug)]
pub(super) struct Teller {
    pub qemu: Qemu,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Clone, Debug, Default)]
struct Wanted {
    /// Whether the link is up; `None`: not known yet.
    up: Option<bool>,
    /// How often it is still to be told.
    times: u32,
    ends: bool,
    /// Why it could not be told.
    why: Option<String>,
}

impl Teller {
    /// Begins to tell this QEMU.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn new(qemu: Qemu) -> io::Result<Teller> {
        let shared = Arc::new(Shared::default());
        let (own, at) = (Arc::clone(&shared), qemu.clone());
        let work = move || own.work(&at);
        thread::Builder::new().name("qemu".to_owned()).stack_size(STACK).spawn(work)?;
        Ok(Teller { qemu, shared })
    }

    /// The link went up or down.
    pub fn set(&self, up: bool) {
        self.shared.change(|wanted| {
            wanted.up = Some(up);
            wanted.times = 1;
        });
    }

    /// A front end has come. QEMU holds the link up as soon as that is through, so it is told now and a little later.
    pub fn repeat(&self) {
        self.shared.change(|wanted| wanted.times = 2);
    }

    /// Why QEMU does not know yet.
    pub fn why(&self) -> Option<String> {
        self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner).why.clone()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        // Nobody waits for a thread that waits for QEMU.
        self.shared.change(|wanted| wanted.ends = true);
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn work(&self, qemu: &Qemu) {
        let mut pause = false;
        loop {
            let Some(up) = self.next(std::mem::take(&mut pause)) else { return };
            let outcome = tell(qemu, up);
            self.change(|wanted| {
                if outcome.is_ok() && wanted.up == Some(up) {
                    wanted.times = wanted.times.saturating_sub(1);
                }
                wanted.why = outcome.err().map(|error| {
                    format!("QEMU at {} was not told of the link: {error}", qemu.monitor.display())
                });
                // What failed is tried again, and what is to be told twice is told a little later.
                pause = wanted.times > 0;
            });
        }
    }

    /// What is to be told next, after a pause or at once; `None`: nothing any more.
    fn next(&self, pause: bool) -> Option<bool> {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = if pause {
            let awaited = self.changed.wait_timeout_while(wanted, AGAIN, |wanted| !wanted.ends);
            awaited.map(|(wanted, _)| wanted).unwrap_or_else(|poisoned| poisoned.into_inner().0)
        } else {
            wanted
        };
        let idle = |wanted: &mut Wanted| !wanted.ends && (wanted.times == 0 || wanted.up.is_none());
        let wanted = self.changed.wait_while(wanted, idle).unwrap_or_else(PoisonError::into_inner);
        wanted.up.filter(|_| !wanted.ends)
    }
}

/// Tells it once. The monitor is left at once, since it serves one at a time.
fn tell(qemu: &Qemu, up: bool) -> io::Result<()> {
    let stream = UnixStream::connect(&qemu.monitor)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut lines = BufReader::new(&stream);
    let greeting = line(&mut lines)?;
    if greeting.get("QMP").is_none() {
        return Err(io::Error::other("this is no monitor that speaks QMP"));
    }
    for command in [
        json!({"execute": "qmp_capabilities"}),
        json!({"execute": "set_link", "arguments": {"name": qemu.netdev, "up": up}}),
    ] {
        (&stream).write_all(format!("{command}\n").as_bytes())?;
        answer(&mut lines)?;
    }
    Ok(())
}

fn answer(lines: &mut impl BufRead) -> io::Result<()> {
    for _ in 0..MOST_EVENTS {
        let told = line(lines)?;
        if let Some(error) = told.get("error") {
            let text = error.get("desc").and_then(Value::as_str).unwrap_or("it says no more than no");
            return Err(io::Error::other(text.to_owned()));
        }
        if told.get("return").is_some() {
            return Ok(());
        }
    }
    Err(io::Error::other("it does not answer for all that it tells"))
}

fn line(lines: &mut impl BufRead) -> io::Result<Value> {
    let mut bytes = Vec::new();
    lines.take(LONGEST).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, path::Path, time::Instant};

    use super::*;

    /// Serves one who comes to a monitor; says what it was told of the link.
    fn monitor(listener: &UnixListener, refuses: bool) -> Value {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream);
        (&stream).write_all(b"{\"QMP\": {\"version\": {}}}\n").unwrap();
        assert_eq!(line(&mut lines).unwrap()["execute"], "qmp_capabilities");
        (&stream).write_all(b"{\"return\": {}}\n{\"event\": \"NIC_RX_FILTER_CHANGED\"}\n").unwrap();
        let told = line(&mut lines).unwrap();
        assert_eq!(told["execute"], "set_link");
        let answer: &[u8] = match refuses {
            true => b"{\"error\": {\"class\": \"DeviceNotFound\", \"desc\": \"Device 'n0' not found\"}}\n",
            false => b"{\"return\": {}}\n",
        };
        (&stream).write_all(answer).unwrap();
        told["arguments"].clone()
    }

    fn teller(path: &Path) -> Teller {
        Teller::new(Qemu { monitor: path.to_owned(), netdev: "n0".to_owned() }).unwrap()
    }

    fn until(mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn qemu_is_told_when_it_comes_and_again_when_a_front_end_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("monitor");
        let teller = teller(&path);
        teller.set(false);
        until(|| teller.why().is_some_and(|why| why.contains("monitor") && why.contains("No such file")));
        let listener = UnixListener::bind(&path).unwrap();
        let down = json!({"name": "n0", "up": false});
        assert_eq!(monitor(&listener, true), down);
        until(|| teller.why().is_some_and(|why| why.contains("Device 'n0' not found")));
        assert_eq!(monitor(&listener, false), down);
        until(|| teller.why().is_none());
        teller.repeat();
        assert_eq!((monitor(&listener, false), monitor(&listener, false)), (down.clone(), down));
        teller.set(true);
        assert_eq!(monitor(&listener, false), json!({"name": "n0", "up": true}));
    }
}
