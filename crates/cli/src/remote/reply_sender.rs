//! The thread that sends an agent's replies.

use std::{
    io::Write,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
};

use super::protocol::{HEARTBEAT, Reply, encode};

/// Sends replies to the user's Penstock. Sending never blocks, whatever becomes of the connection.
#[derive(Clone)]
pub struct ReplySender(Sender<Reply>);

impl ReplySender {
    /// Sends everything on `out`, from a thread of its own, until [`Reply::Ended`] or until `out` cannot be written any
    /// more. Sends a heartbeat when nothing else was sent for [`HEARTBEAT`].
    pub fn to(mut out: impl Write + Send + 'static) -> (ReplySender, thread::JoinHandle<()>) {
        let (sender, replies) = channel();
        let thread = thread::spawn(move || {
            loop {
                let reply = match replies.recv_timeout(HEARTBEAT) {
                    Ok(reply) => reply,
                    Err(RecvTimeoutError::Timeout) => Reply::Alive,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let written = out.write_all(&encode(&reply)).and_then(|()| out.flush());
                if written.is_err() || matches!(reply, Reply::Ended(_)) {
                    return;
                }
            }
        });
        (ReplySender(sender), thread)
    }

    /// Sends through `sender`, without a heartbeat.
    #[cfg(feature = "fuzzing")]
    pub fn through(sender: Sender<Reply>) -> ReplySender {
        ReplySender(sender)
    }

    /// Sends it. It is no failure when nobody receives it any more.
    pub fn send(&self, reply: Reply) {
        let _ = self.0.send(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_after_the_end() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (sender, thread) = ReplySender::to(writer);
        sender.send(Reply::Say("one".to_owned()));
        sender.send(Reply::Ended(3));
        sender.send(Reply::Say("nobody receives this".to_owned()));
        thread.join().unwrap();
        let sent = std::io::read_to_string(reader).unwrap();
        assert_eq!(sent, "{\"say\":\"one\"}\n{\"ended\":3}\n");
    }
}
