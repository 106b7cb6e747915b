//! Cables between two switches that run, and between one and what would be a QEMU.

use std::{
    io::{IoSlice, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg, socket,
    },
};

use super::*;
use crate::{channel::tests::slow_to_close, config::Cable};

/// A switch with one guest's port and a cable.
fn side(directory: &Path, number: u8, cable: Cable) -> (Server, Config) {
    let mut config = config(directory, number + 1);
    config.ports.retain(|name, _| *name == format!("NET0#{number}"));
    let uplink = PortConfig { cable: Some(cable), uplink: true, ..PortConfig::default() };
    config.ports.insert("cable".to_owned(), uplink);
    let server = Server::start().unwrap();
    server.apply(&config).unwrap();
    (server, config)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn port(server: &Server, name: &str) -> PortState {
    server.ports().unwrap().remove(name).unwrap()
}

#[test]
fn a_cable_carries_frames_and_its_loss_is_seen_and_mended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cable");
    // Who connects may come first.
    let (left, left_config) = side(directory.path(), 0, Cable::Connect(path.clone()));
    assert!(!port(&left, "NET0#0").up && !port(&left, "cable").connected);
    let mut left_guest = Guest::connect(&left_config.ports["NET0#0"].socket, true);
    left_guest.send(&frame(1, 0, 60));
    assert_eq!(port(&left, "NET0#0").counters.dropped_sent.get(&Dropped::LinkDown), Some(&1));
    let events = left.subscribe();
    for round in 0..3 {
        let (right, config) = side(directory.path(), 1, Cable::Listen(path.clone()));
        until("the cable", || port(&left, "NET0#0").up && port(&right, "NET0#1").up);
        let mut guest = Guest::connect(&config.ports["NET0#1"].socket, false);
        for len in 60..100 {
            left_guest.send(&frame(1, 0, len));
            assert_eq!(guest.receive(), frame(1, 0, len), "round {round}");
            guest.send(&frame(0, 1, len));
            assert_eq!(left_guest.receive(), frame(0, 1, len), "round {round}");
        }
        drop((guest, right));
        until("the loss", || !port(&left, "NET0#0").up);
        assert!(!path.exists());
    }
    // The loss shows before it is told.
    let mut told = Vec::new();
    let down = Event::Link { port: "NET0#0".to_owned(), up: false };
    while told.iter().filter(|event| **event == down).count() < 3 {
        told.push(events.recv_timeout(TIMEOUT).unwrap());
    }
    let link = |up| Event::Link { port: "NET0#0".to_owned(), up };
    for (event, times) in [(link(true), 3), (link(false), 3), (Event::Connected { port: "cable".into() }, 3)]
    {
        assert_eq!(told.iter().filter(|one| **one == event).count(), times, "{event:?} in {told:?}");
    }
}

#[test]
fn a_disabled_end_is_seen_at_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cable");
    let (left, _) = side(directory.path(), 0, Cable::Listen(path.clone()));
    let (right, _) = side(directory.path(), 1, Cable::Connect(path));
    let set = |server: &Server, state: &str| {
        let state = serde_json::json!({"link_state": state});
        server.set("cable", state.as_object().unwrap()).unwrap();
    };
    for (one, other, name) in [(&left, &right, "NET0#1"), (&right, &left, "NET0#0")] {
        until("the cable", || port(other, name).up);
        set(one, "disable");
        until("the other side's link", || !port(other, name).up);
        assert!(!port(other, "cable").connected && port(other, "cable").unconnected.is_some());
        thread::sleep(Duration::from_millis(600));
        assert!(!port(other, name).up, "it does not come back by itself");
        set(one, "auto");
    }
    until("the cable", || port(&left, "NET0#0").up && port(&right, "NET0#1").up);
}

#[test]
fn who_is_no_switch_gets_no_cable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cable");
    let (left, _) = side(directory.path(), 0, Cable::Listen(path.clone()));
    let flags = SockFlag::SOCK_CLOEXEC;
    let stranger = || {
        let end = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        connect(end.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        end
    };
    let odd = stranger();
    nix::unistd::write(&odd, &[7; 3000]).unwrap();
    until("why", || port(&left, "cable").unconnected.is_some_and(|why| why.contains("no switch of this")));
    let dumb = stranger();
    drop(dumb);
    assert!(!port(&left, "cable").connected);
    // They are in nobody's way.
    let (right, _) = side(directory.path(), 1, Cable::Connect(path.clone()));
    until("the cable", || port(&right, "NET0#1").up);
    // Nor is a third one, which is sent away.
    let mut third = [0; 64];
    assert!(matches!(nix::unistd::read(stranger(), &mut third), Ok(0) | Err(_)));
    assert!(port(&left, "cable").connected);
}

/// Passes what does not close to the other side, with these bytes.
fn pass_slow(end: &OwnedFd, bytes: &[u8]) -> (nix::Result<usize>, UnixStream, std::net::TcpStream) {
    let (slow, theirs, peer) = slow_to_close(30);
    let rights = [slow.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&rights)];
    let sent = sendmsg::<()>(
        end.as_raw_fd(),
        &[IoSlice::new(bytes)],
        &rights,
        MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        None,
    );
    if sent.is_err() {
        // Nobody has it but this thread, which would stand as well.
        std::mem::forget(slow);
    }
    (sent, theirs, peer)
}

#[test]
fn who_passes_descriptors_through_a_cable_stops_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cable");
    type Make = fn(PathBuf) -> Cable;
    let kinds: [(&str, Make); 3] =
        [("listen", Cable::Listen), ("connect", Cable::Connect), ("qemu", Cable::Qemu)];
    for (kind, cable) in kinds {
        let listener = (kind == "connect")
            .then(|| crate::outside::cable::await_on(&path, crate::socket::Access::default()).unwrap());
        let (left, config) = side(directory.path(), 0, cable(path.clone()));
        let come = || -> OwnedFd {
            if kind == "qemu" {
                return UnixStream::connect(&path).unwrap().into();
            }
            let Some(listener) = &listener else { return crate::outside::cable::reach(&path).unwrap() };
            let until = Instant::now() + TIMEOUT;
            loop {
                match crate::outside::cable::accept(listener) {
                    Some(end) => return end,
                    None => assert!(Instant::now() < until, "nobody comes"),
                }
                thread::sleep(Duration::from_millis(5));
            }
        };
        let mut guest = Guest::connect(&config.ports["NET0#0"].socket, true);
        // With the first words, and with a frame.
        for early in [true, false] {
            let end = come();
            let mut held = Vec::new();
            if early {
                held.push(pass_slow(&end, b"penstock cable 1\n"));
            }
            let bytes = [&60_u32.to_be_bytes()[..], &frame(0, 1, 60)].concat();
            if kind != "qemu" && (!early || held[0].0.is_err()) {
                crate::outside::cable::greet(&end).unwrap();
            }
            let lives = !early || held[0].0.is_err();
            if lives {
                until("the cable", || port(&left, "NET0#0").up);
                held.push(pass_slow(&end, &bytes));
            }
            for (sent, ..) in &held {
                assert!(matches!(sent, Ok(_) | Err(Errno::EPERM)), "{kind}: {sent:?}");
            }
            let asked = Instant::now();
            guest.send(&frame(9, 0, 60));
            let told = port(&left, "cable");
            assert!(asked.elapsed() < Duration::from_secs(10), "{kind}: {:?}", asked.elapsed());
            // Where the kernel does not refuse them, the cable ends.
            if held.iter().any(|(sent, ..)| sent.is_ok()) {
                until("the end", || {
                    port(&left, "cable").unconnected.is_some_and(|why| why.contains("descriptors"))
                });
            } else {
                assert!(told.connected, "{kind}: {:?}", told.unconnected);
            }
            drop(end);
            until("the loss", || !port(&left, "NET0#0").up);
        }
    }
}

#[test]
fn a_cable_that_is_full_is_in_nobodys_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cable");
    let (left, config) = side(directory.path(), 0, Cable::Listen(path.clone()));
    // A switch on the other side that says who it is and reads no more.
    let end = crate::outside::cable::reach(&path).unwrap();
    crate::outside::cable::greet(&end).unwrap();
    until("the cable", || port(&left, "NET0#0").up);
    let mut guest = Guest::connect(&config.ports["NET0#0"].socket, true);
    let mut sent = 0;
    // The kernel keeps some thousands. They are counted, not timed: where sanitizers watch, each takes its time.
    while port(&left, "cable").counters.dropped_received.is_empty() {
        assert!(sent < 100_000, "nothing is dropped");
        for _ in 0..100 {
            guest.send(&frame(1, 0, 1514));
        }
        sent += 100;
    }
    let counters = port(&left, "cable").counters;
    let dropped = counters.dropped_received[&Dropped::NoBuffers];
    assert_eq!(counters.received + dropped, sent);
}

#[test]
fn a_qemu_has_its_frames_in_a_stream() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cable");
    let (left, config) = side(directory.path(), 0, Cable::Qemu(path.clone()));
    assert!(!port(&left, "NET0#0").up, "nobody is on the other side");
    let mut guest = Guest::connect(&config.ports["NET0#0"].socket, true);
    for round in 0..3 {
        let mut qemu = UnixStream::connect(&path).unwrap();
        qemu.set_read_timeout(Some(TIMEOUT)).unwrap();
        until("the cable", || port(&left, "NET0#0").up);
        for len in [60_usize, 61, 1514] {
            guest.send(&frame(1, 0, len));
            let mut got = vec![0; 4 + len];
            qemu.read_exact(&mut got).unwrap();
            assert_eq!(got[..4], (len as u32).to_be_bytes(), "round {round}");
            assert_eq!(got[4..], frame(1, 0, len));
            // Half of it waits for the other half.
            let mut bytes = (len as u32).to_be_bytes().to_vec();
            bytes.extend(frame(0, 1, len));
            let (first, second) = bytes.split_at(len / 2);
            qemu.write_all(first).unwrap();
            thread::sleep(Duration::from_millis(5));
            qemu.write_all(second).unwrap();
            assert_eq!(guest.receive(), frame(0, 1, len), "round {round}");
        }
        if round == 1 {
            // What is no length ends the connection, not the port.
            qemu.write_all(&[0xff; 64]).unwrap();
            let mut rest = Vec::new();
            assert!(matches!(qemu.read_to_end(&mut rest), Ok(0) | Err(_)));
        }
        drop(qemu);
        until("the loss", || !port(&left, "NET0#0").up);
    }
}
