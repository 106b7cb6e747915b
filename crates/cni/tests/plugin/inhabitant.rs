//! A process in a namespace. What a test makes is kept by a thread alone, which the list of processes does not show.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use penstock_testkit::namespace::Namespace;

use crate::process::netns;

/// A process in a namespace.
pub struct Inhabitant(Child);

impl Inhabitant {
    pub fn of(namespace: &Namespace) -> Inhabitant {
        let net = format!("--net={}", netns(namespace));
        let child =
            Command::new("nsenter").args([&net, "sleep", "600"]).stdout(Stdio::piped()).spawn().unwrap();
        let there = |path: String| fs::read_link(path).ok();
        let own = there(netns(namespace));
        while there(format!("/proc/{}/ns/net", child.id())) != own {
            thread::sleep(Duration::from_millis(5));
        }
        Inhabitant(child)
    }
}

impl Drop for Inhabitant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
