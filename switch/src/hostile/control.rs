//! Lines on the control socket, and text as configuration.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::{
    config::{Config, VERSION},
    control::{self, Answer, Request, Rights, Wish},
    server::Server,
};

/// Lines of one connection.
const LINES: usize = 24;
/// Ports that are made; each has a socket and a thread.
const PORTS: usize = 6;

/// The same configuration, but that it touches nothing beside this directory.
fn confined(config: &mut Config, directory: &Path) {
    while config.ports.len() > PORTS {
        config.ports.pop_last();
    }
    for port in config.ports.values_mut() {
        (port.tap, port.packet, port.cable, port.vduse) = (None, None, None, None);
        if !port.socket.as_os_str().is_empty() {
            let kept: usize =
                port.socket.as_os_str().as_encoded_bytes().iter().map(|byte| usize::from(*byte)).sum();
            port.socket = directory.join((kept % 16).to_string());
        }
    }
}

/// A directory of its own for as long as it lives.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("penstock-hostile-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a directory can be made");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// These bytes as lines that somebody sends, and as a configuration.
///
/// # Panics
/// When a line gets no answer, or one that is none, or when what was refused has changed something.
pub fn control(bytes: &[u8]) {
    if let Ok(config) = serde_json::from_slice::<Config>(bytes) {
        let settings = config.settings();
        let text = serde_json::to_vec(&config).expect("what was read can be written");
        let again: Config = serde_json::from_slice(&text).expect("what was written can be read");
        assert_eq!(again, config);
        assert_eq!(again.settings().is_ok(), settings.is_ok());
    }
    let directory = Directory::new();
    let server = Server::start().expect("a thread can be had");
    thread::scope(|scope| {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets can be had");
        let server = &server;
        let answerer =
            scope.spawn(move || control::converse(&theirs, server, &control::Entrance::new(Rights::All)));
        let mut answers = BufReader::new(ours.try_clone().expect("a descriptor can be had"));
        for line in bytes.split(|byte| *byte == b'\n').take(LINES) {
            let mut line = line.to_vec();
            let mut wanted = None;
            if let (id, Ok(mut wish)) = control::read(&line) {
                let text = serde_json::to_vec(&Request { version: VERSION, id, wish: wish.clone() });
                let text = text.expect("what was read can be written");
                assert_eq!(control::read(&text), (id, Ok(wish.clone())));
                match &mut wish {
                    // Nothing comes back of the connection's own then.
                    Wish::Subscribe => {
                        drop(server.subscribe());
                        continue;
                    }
                    Wish::Set { attributes, .. } => {
                        for place in ["socket", "tap", "packet", "cable"] {
                            attributes.remove(place);
                        }
                    }
                    Wish::Reload { config } => {
                        confined(config, &directory.0);
                        wanted = Some(config.clone());
                    }
                    _ => {}
                }
                line = serde_json::to_vec(&Request { version: VERSION, id: None, wish })
                    .expect("it can be written");
            }
            line.push(b'\n');
            let before = server.config();
            ours.write_all(&line).expect("the connection stands");
            let mut answer = String::new();
            answers.read_line(&mut answer).expect("an answer");
            let mut answer: serde_json::Value = serde_json::from_str(&answer).expect("an answer that is one");
            answer.as_object_mut().expect("an object").remove("id");
            match serde_json::from_value(answer).expect("an answer that is one") {
                Answer::Ok(_) => {
                    if let Some(wanted) = wanted {
                        assert_eq!(server.config(), wanted);
                    }
                }
                Answer::Error { text, .. } => {
                    assert!(!text.is_empty());
                    assert_eq!(server.config(), before, "{text}");
                }
            }
            let ports = server.ports().expect("the switch runs");
            assert!(ports.keys().eq(server.config().ports.keys()));
        }
        let _ = ours.shutdown(Shutdown::Both);
        // A scope waits for what a thread does, not for its end, and what it still has would count as lost. How it ends is not judged.
        let _ = answerer.join().expect("the thread ends without a panic");
    });
}
