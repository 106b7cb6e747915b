//! A conversation with one front end, from its first message to its last.

use std::{
    convert::Infallible,
    fmt,
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use vhost::vhost_user::{BackendReqHandler, Error, Result, VhostUserProtocolFeatures};

use super::{
    Device, IOTLB, NET_SET_MTU, SEND_RARP, SET_BACKEND_REQ_FD, SET_LOG_FD, SET_VRING_ENABLE, descriptors,
    message,
};
use crate::{table::PortId, worker::Handle};

/// How it ended with a front end.
#[derive(Debug)]
pub struct Ended {
    error: Error,
    refusal: Option<String>,
    /// Descriptors that it has brought and that can never be closed.
    pub left: usize,
}

impl Ended {
    /// Why the front end was sent away, where that is not just a message that makes no sense.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => f.write_str(refusal),
            None => self.error.fmt(f),
        }
    }
}

/// Serves one front end until it is gone, or says what cannot be.
pub fn serve(stream: UnixStream, handle: Handle, port: PortId) -> Ended {
    let device = Arc::new(Mutex::new(Device::new(handle, port)));
    // The last to let go of the connection, and of descriptors that were sent and never taken: whoever does may have to wait, and that
    // must not be the worker.
    let connection = Arc::new(stream);
    let mut files = Vec::new();
    let error = match converse(&connection, &device, &mut files) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let mut device = locked(&device);
    device.unplug();
    device.plug(None);
    // Closed here, too, and by no worker that still has a copy.
    device.channel.set(None);
    // One that is gone needs no sending away.
    let _ = connection.shutdown(Shutdown::Both);
    Ended { error, refusal: device.refusal.take(), left: descriptors::leave(files) }
}

fn locked(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converses until that ends. Descriptors that were refused are left in `refused`.
fn converse(
    stream: &Arc<UnixStream>,
    device: &Arc<Mutex<Device>>,
    refused: &mut Vec<OwnedFd>,
) -> Result<Infallible> {
    // Who begins with a message and does not go on, or does not read the answer, is sent away.
    stream.set_read_timeout(Some(message::TIMEOUT)).map_err(Error::SocketError)?;
    stream.set_write_timeout(Some(message::TIMEOUT)).map_err(Error::SocketError)?;
    let own = stream;
    locked(device).plug(Some(Arc::clone(stream)));
    let signals = Arc::clone(locked(device).handle.signals());
    // The crate gets messages by a socket of our own: it takes descriptors without looking at them, and closes those that it does not
    // want, which may wait for ever.
    let (passed, theirs) = UnixStream::pair().map_err(Error::SocketError)?;
    passed.set_nonblocking(true).map_err(Error::SocketError)?;
    let mut requests = BackendReqHandler::from_stream(theirs, Arc::clone(device));
    loop {
        message::await_one(own).map_err(Error::SocketError)?;
        let mut message = message::take(own).map_err(Error::SocketError)?;
        let request = message.request();
        if let Err(why) = descriptors::look(&message, &signals) {
            locked(device).refusal = Some(why);
            *refused = message.files;
            return Err(Error::IncorrectFds);
        }
        if !matches!(
            request,
            SET_LOG_FD | SET_VRING_ENABLE | SEND_RARP | NET_SET_MTU | SET_BACKEND_REQ_FD | IOTLB
        ) {
            message::pass(&message, &passed).map_err(Error::SocketError)?;
            drop(message);
            let outcome = requests.handle_request();
            message::pass_answer(&passed, own).map_err(Error::SocketError)?;
            outcome?;
            continue;
        }
        let mut device = locked(device);
        let outcome = device.handle(request, &mut message);
        // The front end waits for the answer to what it says of translations in any case.
        if device.protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            message::answer(own, &message, outcome.is_ok()).map_err(Error::SocketError)?;
        }
        // One that is too long for the port is the administrator's mistake, not the front end's.
        if request != NET_SET_MTU {
            outcome?;
        }
    }
}
