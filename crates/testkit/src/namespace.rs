//! Network namespaces made for one test, gone with it.

use std::{
    sync::mpsc::{Sender, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::gettid,
};
use penstock_host::Command;

/// A network namespace, kept by a thread that lives in it.
#[derive(Debug)]
pub struct Namespace {
    /// The thread, which `/proc` shows like a process.
    pub id: u32,
    _keep: Sender<()>,
}

impl Namespace {
    /// An empty namespace: a loopback interface and nothing else.
    ///
    /// # Panics
    ///
    /// Where [`needs::network_namespace`](crate::needs::network_namespace) tells why.
    #[expect(clippy::new_without_default, reason = "it makes something")]
    pub fn new() -> Namespace {
        let (send_id, id) = channel();
        let (keep, end) = channel::<()>();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            send_id.send(gettid().as_raw() as u32).expect("the test waits");
            // Until the test drops its end.
            let _ = end.recv();
        });
        Namespace { id: id.recv().expect("the thread made its namespace"), _keep: keep }
    }

    /// Runs a program with its arguments, split at spaces, inside; gives what it printed.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn run(&self, line: &str) -> String {
        Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.id))
            .args(line.split(' '))
            .succeed()
            .expect(line)
            .text()
    }

    /// Waits until every port of a bridge inside forwards frames: the kernel works off a link that came up later, and what is sent
    /// before is lost.
    ///
    /// # Panics
    ///
    /// When one does not within a minute; what they are is told.
    pub fn ports_forward(&self, bridge: &str) {
        let master = format!(" master {bridge} ");
        let began = Instant::now();
        loop {
            let all = self.run("bridge -o link show");
            let ports: Vec<&str> = all.lines().filter(|line| line.contains(&master)).collect();
            if !ports.is_empty() && ports.iter().all(|port| port.contains(" state forwarding ")) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{bridge} does not forward:\n{all}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs `ip -batch` (or `bridge -batch`) inside on these lines.
    ///
    /// # Panics
    ///
    /// When one of them fails.
    pub fn batch(&self, program: &str, lines: &str) {
        Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.id))
            .args([program, "-batch", "-"])
            .input(lines)
            .succeed()
            .expect(lines);
    }
}
