//! `penstock verify --watch`, kept running.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_host::files;
use tokio::{
    net::UnixStream,
    sync::{mpsc, watch},
    time,
};

use crate::{
    health::{Drift, DriftEvent},
    log::{self, LastingTrouble},
    pace::Backoff,
    penstock::{Penstock, PenstockError},
};

/// A longer line is no line of a watch: the state of 510 VFs has 2 MB.
const LINE_LIMIT: usize = 16 << 20;

/// How a watch ended.
enum Ended {
    /// By itself.
    Why(String),
    /// The model has changed.
    Changed,
    /// The agent itself changes the machine.
    Paused,
}

/// What a watch goes by.
pub(super) struct Inputs {
    /// The model's file.
    pub path: watch::Receiver<Option<PathBuf>>,
    /// Counts the changes of the model.
    pub changed: watch::Receiver<u64>,
    /// The model's file as it was read last.
    pub judged: watch::Receiver<Option<files::Stamp>>,
    /// Whether the agent itself is changing the machine: what differs from the old model then is no drift.
    pub changing: watch::Receiver<bool>,
}

/// Watches as long as there is a model and the agent itself changes nothing.
pub(super) async fn watch(
    penstock: Penstock,
    inputs: Inputs,
    drift: watch::Sender<Drift>,
    news: mpsc::Sender<DriftEvent>,
) {
    let Inputs { path, mut changed, mut judged, mut changing } = inputs;
    let mut trouble = LastingTrouble::new("watch for drift");
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    loop {
        // Who sends this ends with the agent.
        let _ = changing.wait_for(|changing| !changing).await;
        // A model that has not been read cannot be watched.
        let looked = *changed.borrow_and_update() > 0;
        let model = path.borrow().clone();
        let Some(model) = model.filter(|_| looked) else {
            if looked {
                drift.send_replace(Drift::without_a_model());
            }
            if changed.changed().await.is_err() {
                return std::future::pending().await;
            }
            continue;
        };
        let mut alive = || {
            trouble.end();
            backoff.succeeded();
        };
        let watched = tokio::select! {
            // Before the next line, which the change may be the reason of.
            biased;
            Ok(_) = changing.wait_for(|changing| *changing) => Ended::Paused,
            ended = follow(&penstock, &model, (&mut changed, &mut judged), &drift, &news, &mut alive) => ended,
        };
        match watched {
            Ended::Paused => log::say("the watch for drift waits until the change of the machine is over"),
            Ended::Changed => {
                log::say("the model has changed");
                backoff.succeeded();
            }
            Ended::Why(why) => {
                drift.send_modify(|drift| drift.lost(why.clone()));
                trouble.meet_words(why);
                let wait = backoff.failed();
                // A changed model may be what mends it.
                let _ = time::timeout(wait, changed.changed()).await;
            }
        }
    }
}

/// One run of the watch.
async fn follow(
    penstock: &Penstock,
    model: &Path,
    (changed, judged): (&mut watch::Receiver<u64>, &mut watch::Receiver<Option<files::Stamp>>),
    drift: &watch::Sender<Drift>,
    news: &mpsc::Sender<DriftEvent>,
    alive: &mut dyn FnMut(),
) -> Ended {
    let words = |error: PenstockError| Ended::Why(penstock_host::chain(&error));
    // Before it is read.
    let stamp = files::stamp(model);
    let (mut child, stream) = match penstock.watch(model) {
        Ok(started) => started,
        Err(error) => return words(error),
    };
    let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
    let mut lines = match stream {
        Ok(stream) => Lines { stream, bytes: Vec::new(), looked: 0 },
        Err(error) => return Ended::Why(error.to_string()),
    };
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            Ok(()) = changed.changed() => return Ended::Changed,
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => {
                let status = child.ended().map(|status| format!(" with {status}")).unwrap_or_default();
                return Ended::Why(format!("{} ended{status}", child.command()));
            }
            Err(error) => return Ended::Why(format!("{} cannot be read: {error}", child.command())),
        };
        if !is_in_force(model, stamp, changed, judged).await {
            return Ended::Changed;
        }
        let mut told = None;
        drift.send_if_modified(|drift| {
            let read = drift.line(&line);
            let modified =
                read.as_ref().is_ok_and(|news| !matches!(news, DriftEvent::Nothing | DriftEvent::Blind(_)));
            told = Some(read);
            modified
        });
        match told {
            Some(Ok(DriftEvent::Nothing)) | None => {}
            Some(Ok(DriftEvent::Blind(why))) => {
                log::say(format!("the watch for drift cannot see all: {why}"))
            }
            Some(Ok(DriftEvent::State)) => alive(),
            // Where so much is told that nobody comes to write it, the taints tell the state.
            Some(Ok(one)) => drop(news.try_send(one)),
            Some(Err(error)) => return Ended::Why(penstock_host::chain(&error)),
        }
    }
}

/// Whether the model that a watch has read when its file was `stamp` is still in force. Where the file is another one since, what differs from what
/// the watch has read may be as that wants it: it is waited until it was read. One that is wrong leaves the one before in force.
async fn is_in_force(
    model: &Path,
    stamp: Option<files::Stamp>,
    changed: &mut watch::Receiver<u64>,
    judged: &mut watch::Receiver<Option<files::Stamp>>,
) -> bool {
    loop {
        let now = files::stamp(model);
        if now.is_none() || now == stamp || *judged.borrow_and_update() == now {
            return !changed.has_changed().unwrap_or(false);
        }
        tokio::select! {
            Ok(()) = judged.changed() => {}
            Ok(()) = changed.changed() => return false,
            else => return true,
        }
    }
}

/// Lines of a stream.
struct Lines {
    stream: UnixStream,
    bytes: Vec<u8>,
    /// So many of them have no newline.
    looked: usize,
}

impl Lines {
    /// The next line without its newline; `None` at the end. May be cancelled without a loss.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.bytes[self.looked..].iter().position(|byte| *byte == b'\n') {
                let rest = self.bytes.split_off(self.looked + at + 1);
                let mut line = std::mem::replace(&mut self.bytes, rest);
                line.pop();
                self.looked = 0;
                return Ok(Some(line));
            }
            self.looked = self.bytes.len();
            if self.looked > LINE_LIMIT {
                return Err(io::Error::other(format!("a line is longer than {LINE_LIMIT} bytes")));
            }
            self.stream.readable().await?;
            let mut piece = [0; 16 << 10];
            match self.stream.try_read(&mut piece) {
                Ok(0) => return Ok(None),
                Ok(length) => self.bytes.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    #[test]
    fn a_line_is_told_when_the_file_of_its_model_was_read_and_is_no_other_model() {
        let directory = tempfile::tempdir().unwrap();
        let model = directory.path().join("m.yaml");
        fs::write(&model, "one").unwrap();
        let stamp = files::stamp(&model);
        let (changes, mut changed) = watch::channel(0);
        let (judge, mut judged) = watch::channel(stamp);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert!(is_in_force(&model, stamp, &mut changed, &mut judged).await);
            // Each time another file.
            let replace = |text: &str| {
                let new = directory.path().join("new");
                fs::write(&new, text).unwrap();
                fs::rename(new, &model).unwrap();
                files::stamp(&model)
            };
            // It is wrong, which shows when it is read; nobody is told before.
            let wrong = replace("wrong!");
            {
                let mut waits = std::pin::pin!(is_in_force(&model, stamp, &mut changed, &mut judged));
                let early = time::timeout(Duration::ZERO, &mut waits).await;
                assert!(early.is_err(), "nobody has read the file yet");
                judge.send_replace(wrong);
                assert!(waits.await, "the one before stays in force");
            }
            assert!(is_in_force(&model, stamp, &mut changed, &mut judged).await);
            // It is another model.
            let other = replace("another");
            {
                let mut waits = std::pin::pin!(is_in_force(&model, stamp, &mut changed, &mut judged));
                assert!(time::timeout(Duration::ZERO, &mut waits).await.is_err());
                changes.send_modify(|changes| *changes += 1);
                judge.send_replace(other);
                assert!(!waits.await);
            }
        });
    }

    #[test]
    fn lines_come_one_by_one_and_a_last_piece_is_none() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, mut its) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let mut lines =
                Lines { stream: UnixStream::from_std(ours).unwrap(), bytes: Vec::new(), looked: 0 };
            its.write_all(b"one\n\ntw").unwrap();
            assert_eq!(lines.next().await.unwrap().unwrap(), b"one");
            assert_eq!(lines.next().await.unwrap().unwrap(), b"");
            its.write_all(b"o\nrest").unwrap();
            assert_eq!(lines.next().await.unwrap().unwrap(), b"two");
            drop(its);
            assert_eq!(lines.next().await.unwrap(), None);
        });
    }
}
