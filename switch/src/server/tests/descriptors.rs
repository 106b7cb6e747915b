//! Front ends that hand over descriptors by which they could stop the switch: with flags that they change, seals, sizes, and of
//! kinds that nobody asked for.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::mpsc,
};

use nix::{
    fcntl::{FcntlArg, OFlag, SealFlag, fcntl},
    libc,
    sys::{
        epoll::{Epoll, EpollCreateFlags},
        memfd::{MFdFlags, memfd_create},
        timerfd::{ClockId, TimerFd, TimerFlags},
    },
};

use super::{
    misuse::{Rig, set_up},
    raw::{
        ADD_MEM_REG, Events, GET_INFLIGHT, PROTOCOL as PROTOCOL_FEATURES, Raw, SET_BACKEND_REQ_FD,
        SET_INFLIGHT, SET_LOG_BASE, SET_LOG_FD, SET_MEM_TABLE, SET_VRING_CALL, SET_VRING_ENABLE,
        SET_VRING_ERR, SET_VRING_KICK, longs,
    },
    *,
};
use crate::channel::tests::slow_to_close;

/// The feature that allows `VHOST_USER_GET_INFLIGHT_FD` and `VHOST_USER_SET_INFLIGHT_FD`.
const INFLIGHT: u64 = 1 << 12;

/// Has this done in time, or fails: a switch that is stopped for ever would otherwise hold the test for ever, too.
fn in_time(body: impl FnOnce() + Send + 'static) {
    let (done, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match told.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => {
            panic!("the switch, or a port that has done nothing, stands still")
        }
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap_or_else(|why| {
            std::panic::resume_unwind(why);
        }),
    }
}

/// Clears `O_NONBLOCK` for all who have this open file description, the switch among them.
fn block(fd: BorrowedFd<'_>) {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL).unwrap());
    fcntl(fd, FcntlArg::F_SETFL(flags & !OFlag::O_NONBLOCK)).unwrap();
}

/// Why the third port's last front end was sent away, once it was.
fn refusal(rig: &Rig) -> String {
    let until = Instant::now() + TIMEOUT;
    loop {
        let port = rig.server.ports().unwrap().remove("NET0#2").unwrap();
        match port.unconnected {
            Some(why) if !port.connected => return why,
            _ => assert!(Instant::now() < until, "nobody says why the front end was sent away"),
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_call_that_is_full_and_blocks_stops_nobody() {
    in_time(|| {
        let mut rig = Rig::new();
        let raw = rig.third();
        let (memory, [mut to_guest, mut from_guest], events) = set_up(&raw);
        assert!(raw.lives());
        // After they were handed over: what the switch has set is taken back.
        for event in events.iter().flat_map(|all| [&all.call, &all.err]) {
            event.write(u64::MAX - 1).unwrap();
            block(event.as_fd());
        }
        for round in 0..20 {
            let at = round * 2048;
            to_guest.offer(&memory, &[(at, 2048, true)], Form::Chained).unwrap();
            memory.write(0x8_0000, &[&[0; 12][..], &frame(1, 2, 100)].concat());
            from_guest.offer(&memory, &[(0x8_0000, 112, false)], Form::Chained).unwrap();
            events[1].kick.write(1).unwrap();
            assert_eq!(rig.guests[1].receive(), frame(1, 2, 100));
            rig.sent += 1;
            rig.guests[0].send(&frame(2, 0, 100));
            let until = Instant::now() + TIMEOUT;
            while to_guest.used(&memory).is_none() || from_guest.used(&memory).is_none() {
                assert!(Instant::now() < until, "round {round}");
                thread::yield_now();
            }
            rig.goes_on();
        }
        // Both rings break, which it says by the other eventfd.
        memory.word(from_guest.driver_at() + 2).store(1000, Ordering::Release);
        memory.word(to_guest.driver_at() + 2).store(1000, Ordering::Release);
        events[1].kick.write(1).unwrap();
        rig.guests[0].send(&frame(2, 0, 100));
        rig.goes_on();
        assert!(rig.server.ports().unwrap()["NET0#2"].broken.is_some());
        // It leaves, and the switch ends.
        drop(raw);
        drop(rig);
    });
}

#[test]
fn a_kick_that_blocks_stops_nobody_whether_it_is_full_or_empty() {
    in_time(|| {
        let mut rig = Rig::new();
        for full in [true, false] {
            let raw = rig.third();
            let (memory, [_, mut from_guest], events) = set_up(&raw);
            assert!(raw.lives());
            events.iter().for_each(|all| block(all.kick.as_fd()));
            events[1].kick.write(if full { u64::MAX - 1 } else { 1 }).unwrap();
            if !full {
                events[1].kick.read().unwrap();
            }
            memory.write(0x8_0000, &[&[0; 12][..], &frame(1, 2, 100)].concat());
            from_guest.offer(&memory, &[(0x8_0000, 112, false)], Form::Chained).unwrap();
            // Somebody else's frame wakes the switch, too.
            rig.guests[0].send(&frame(9, 0, 60));
            assert_eq!(rig.guests[1].receive(), frame(1, 2, 100));
            rig.sent += 1;
            rig.goes_on();
        }
    });
}

/// Descriptors that belong to no message, with what the kernel calls them.
fn odd_kinds() -> Vec<(&'static str, OwnedFd)> {
    let (pipe, filled) = nix::unistd::pipe2(OFlag::O_NONBLOCK).unwrap();
    while nix::unistd::write(&filled, &[0; 4096]).is_ok() {}
    block(filled.as_fd());
    let (datagrams, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let (packets, _) = nix::sys::socket::socketpair(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::SeqPacket,
        None,
        nix::sys::socket::SockFlag::empty(),
    )
    .unwrap();
    let terminal = std::fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
    let disk = tempfile::tempfile_in("/var/tmp").unwrap();
    disk.set_len(0x12_0000).unwrap();
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::empty()).unwrap();
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    let mut all = vec![
        ("pipe:", pipe),
        ("pipe:", filled),
        ("socket:", datagrams.into()),
        ("socket:", packets),
        ("socket:", std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()),
        ("/dev/", terminal.into()),
        ("/dev/zero", File::open("/dev/zero").unwrap().into()),
        ("/var/tmp/", disk.into()),
        ("/", File::open("/proc/self").unwrap().into()),
        ("anon_inode:[timerfd]", timer.as_fd().try_clone_to_owned().unwrap()),
        ("anon_inode:[eventpoll]", epoll.0),
    ];
    all.extend(userfaultfd().map(|fd| ("anon_inode:[userfaultfd]", fd)));
    all
}

/// `None` where this user may have none.
fn userfaultfd() -> Option<OwnedFd> {
    // `UFFD_USER_MODE_ONLY`: anybody may have that.
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | 1;
    // SAFETY: it takes flags, and makes a descriptor for us alone.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    // SAFETY: as above.
    i32::try_from(made).ok().filter(|fd| *fd >= 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[test]
fn a_descriptor_of_another_kind_ends_its_connection_and_is_named() {
    in_time(|| {
        let region = longs(&[0, 0x12_0000, 1 << 40, 0]);
        let messages = [
            (SET_VRING_KICK, "SET_VRING_KICK (12)", longs(&[0]), "an eventfd"),
            (SET_VRING_CALL, "SET_VRING_CALL (13)", longs(&[0]), "an eventfd"),
            (SET_VRING_ERR, "SET_VRING_ERR (14)", longs(&[0]), "an eventfd"),
            (SET_LOG_FD, "SET_LOG_FD (7)", vec![], "an eventfd"),
            (SET_MEM_TABLE, "SET_MEM_TABLE (5)", [longs(&[1]), region.clone()].concat(), "a memfd"),
            (ADD_MEM_REG, "ADD_MEM_REG (37)", [longs(&[0]), region].concat(), "a memfd"),
            (SET_LOG_BASE, "SET_LOG_BASE (6)", longs(&[0x1000, 0]), "a memfd"),
            (SET_INFLIGHT, "SET_INFLIGHT_FD (32)", longs(&[0x1000, 0, 0]), "a memfd"),
            (SET_BACKEND_REQ_FD, "SET_BACKEND_REQ_FD (21)", vec![], "a unix stream socket"),
            (SET_VRING_ENABLE, "a message that brings none (18)", longs(&[1 << 32]), "no descriptor"),
        ];
        for (request, name, body, wanted) in messages {
            // Of what cannot be closed a port bears only so many.
            let mut rig = Rig::new();
            for (kind, fd) in odd_kinds() {
                let raw = rig.third();
                let _ = raw.send_with(request, 1, &body, &[fd.as_raw_fd()]);
                assert!(!raw.lives(), "{name} took {kind}");
                let why = refusal(&rig);
                assert!(why.contains(name) && why.contains(&format!(" brought {kind}")), "{kind}: {why}");
                assert!(why.contains(&format!(" where {wanted}")), "{why}");
            }
            rig.goes_on();
            let raw = rig.third();
            assert!(raw.lives());
            assert_eq!(
                rig.server.ports().unwrap()["NET0#2"].unconnected,
                None,
                "who has come is not refused"
            );
        }
    });
}

#[test]
fn a_driver_that_says_that_it_never_kicks_is_refused() {
    in_time(|| {
        let mut rig = Rig::new();
        let raw = rig.third();
        raw.send(SET_VRING_KICK, &longs(&[1 << 8 | 1]), &[]);
        assert!(!raw.lives());
        let why = refusal(&rig);
        assert!(why.contains("the driver of ring 1 never kicks"), "{why}");
        rig.goes_on();
    });
}

/// How many descriptors of this process lead to the memfd of this name.
fn copies(name: &str) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().contains(name)).count()
}

#[test]
fn descriptors_that_nobody_wants_do_not_stay_open() {
    in_time(|| {
        const NAME: &str = "penstock-test-many";
        let mut rig = Rig::new();
        let file = memfd_create(NAME, MFdFlags::MFD_CLOEXEC).unwrap();
        let many = [file.as_raw_fd(); 200];
        for request in [SET_VRING_ENABLE, SET_LOG_FD, SET_BACKEND_REQ_FD, SET_MEM_TABLE, GET_INFLIGHT] {
            for count in [2, 33, 200] {
                let raw = rig.third();
                let _ = raw.send_with(request, 1, &[0; 8], &many[..count]);
                assert!(!raw.lives(), "{request} with {count}");
                drop(raw);
            }
        }
        // With bytes that are no header, or the rest of one.
        let raw = rig.third();
        let rights = [nix::sys::socket::ControlMessage::ScmRights(&many[..3])];
        for part in [&[18, 0, 0][..], &[0, 1, 0, 0, 0, 8, 0, 0, 0], &[0; 8]] {
            let part = [std::io::IoSlice::new(part)];
            let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL;
            let _ = nix::sys::socket::sendmsg::<()>(raw.stream.as_raw_fd(), &part, &rights, flags, None);
        }
        assert!(!raw.lives());
        drop(raw);
        rig.goes_on();
        let until = Instant::now() + TIMEOUT;
        while copies(NAME) != 1 {
            assert!(Instant::now() < until, "{} are open", copies(NAME));
            thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn files_that_are_sealed_or_read_only_are_no_memory_and_others_go_on() {
    in_time(|| {
        let mut rig = Rig::new();
        let sealed = |seals: SealFlag| {
            let file = File::from(memfd_create("guest", MFdFlags::MFD_ALLOW_SEALING).unwrap());
            file.set_len(0x12_0000).unwrap();
            fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
            file
        };
        let plain = sealed(SealFlag::empty());
        let read_only = File::open(format!("/proc/self/fd/{}", plain.as_raw_fd())).unwrap();
        let cases = [
            ("sealed", sealed(SealFlag::F_SEAL_WRITE), Some("Operation not permitted")),
            ("read-only", read_only, Some("Permission denied")),
            ("not to be shrunk", sealed(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW), None),
        ];
        for (what, file, refused) in cases {
            let raw = rig.third();
            raw.share_as(&[(0, 1 << 40, 0x12_0000, 0, &file)]);
            assert_eq!(raw.lives(), refused.is_none(), "{what}");
            if let Some(told) = refused {
                let why = refusal(&rig);
                assert!(why.contains("could not be mapped") && why.contains(told), "{what}: {why}");
            }
            drop(raw);
            rig.goes_on();
        }
    });
}

#[test]
fn memory_whose_faults_somebody_else_handles_stops_nobody() {
    let Some(uffd) = userfaultfd() else {
        // SAFETY: it only reads a number.
        penstock_testkit::skip::whole(format!("userfaultfd: {}", std::io::Error::last_os_error()));
        return;
    };
    in_time(move || {
        // `UFFDIO_API`, `UFFDIO_REGISTER` of `include/uapi/linux/userfaultfd.h`.
        const API: libc::c_ulong = 0xc018_aa3f;
        const REGISTER: libc::c_ulong = 0xc020_aa00;
        let mut rig = Rig::new();
        let raw = rig.third();
        let memory = GuestMemory::file(0x12_0000);
        let file = memory.description().1;
        let mut api = [0xaa_u64, 0, 0];
        // SAFETY: the request reads and writes three numbers of 64 bits.
        assert_eq!(unsafe { libc::ioctl(uffd.as_raw_fd(), API, &raw mut api) }, 0);
        // Another mapping than the one by which this test writes, since a touch of it blocks.
        let protection = nix::sys::mman::ProtFlags::PROT_READ | nix::sys::mman::ProtFlags::PROT_WRITE;
        let flags = nix::sys::mman::MapFlags::MAP_SHARED;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let there =
            unsafe { nix::sys::mman::mmap(None, 0x12_0000.try_into().unwrap(), protection, flags, file, 0) };
        // Missing pages.
        let mut range = [there.unwrap().addr().get() as u64, 0x12_0000, 1, 0];
        // SAFETY: the request reads and writes four numbers of 64 bits.
        assert_eq!(unsafe { libc::ioctl(uffd.as_raw_fd(), REGISTER, &raw mut range) }, 0);
        let mut driver = SplitDriver::new(RINGS[0], ENTRIES);
        let events = Events::new();
        raw.share(&memory);
        raw.ring(0, &driver.layout(false), 0, 0, &events);
        raw.enable(0, true);
        assert!(raw.lives());
        for number in 0..20 {
            // Pages that nobody has touched.
            let at = number * 4096;
            driver.offer(&memory, &[(at, 2048, true)], Form::Chained).unwrap();
            rig.guests[0].send(&frame(2, 0, 100));
            let until = Instant::now() + TIMEOUT;
            while driver.used(&memory).is_none() {
                assert!(Instant::now() < until);
                thread::yield_now();
            }
        }
        rig.goes_on();
    });
}

#[test]
fn sizes_that_change_while_they_are_used_end_their_port_only() {
    // As where memory is taken away.
    loom::model(|| ());
    crate::sigbus::install();
    in_time(|| {
        let mut rig = Rig::new();
        // What holds where a packed ring stood gets shorter, and then longer again.
        for again in [0, 0x1000, 0x10_0000] {
            let raw = Raw::connect(&rig.socket);
            raw.begin(VERSION_1 | MERGEABLE | PROTOCOL | PACKED, PROTOCOL_FEATURES | INFLIGHT);
            let memory = GuestMemory::file(0x12_0000);
            let mut driver = driver_of(true, RINGS[1], ENTRIES);
            let events = Events::new();
            raw.share(&memory);
            let notes = File::from(memfd_create("notes", MFdFlags::empty()).unwrap());
            notes.set_len(0x1_0000).unwrap();
            // Two rings.
            let rings = u64::from(ENTRIES) << 16 | 2;
            raw.send(SET_INFLIGHT, &longs(&[0x1_0000, 0, rings]), &[notes.as_raw_fd()]);
            raw.ring(1, &driver.layout(false), 0, 0x8000, &events);
            raw.enable(1, true);
            assert!(raw.lives());
            let mut send = || {
                memory.write(0x8_0000, &[&[0; 12][..], &frame(9, 2, 100)].concat());
                let _ = driver.offer(&memory, &[(0x8_0000, 112, false)], Form::Chained);
                events.kick.write(1).unwrap();
            };
            send();
            notes.set_len(0).unwrap();
            notes.set_len(again).unwrap();
            let until = Instant::now() + TIMEOUT;
            // Where its page is there again it is memory like any other.
            while again == 0 && raw.lives() {
                send();
                assert!(Instant::now() < until, "{again:#x}");
            }
            rig.goes_on();
        }
    });
}

#[test]
fn a_way_back_that_nobody_reads_or_that_is_closed_stops_nobody() {
    in_time(|| {
        let mut rig = Rig::new();
        let raw = rig.third();
        let back = raw.back();
        // Both ends have one buffer; the front end fills it for the switch, too.
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        while (&theirs).write(&[0; 4096]).is_ok() {}
        theirs.set_nonblocking(false).unwrap();
        assert_eq!(raw.done(SET_BACKEND_REQ_FD, &[], &[theirs.as_raw_fd()]), Some(true));
        for number in 0..4 {
            let link = if number % 2 == 0 { "disable" } else { "enable" };
            let settings = serde_json::json!({"link_state": link});
            rig.server.set("NET0#2", settings.as_object().unwrap()).unwrap();
        }
        rig.goes_on();
        ours.set_nonblocking(true).unwrap();
        assert!((&ours).read(&mut [0; 16]).is_ok());
        drop((back, ours, theirs));
        let settings = serde_json::json!({"link_state": "disable"});
        rig.server.set("NET0#2", settings.as_object().unwrap()).unwrap();
        rig.goes_on();
    });
}

#[test]
fn a_front_end_that_is_left_behind_reaches_no_port_that_comes_after_it() {
    in_time(|| {
        let (directory, server, mut config) = rig(3);
        let raw = Raw::connect(&config.ports["NET0#2"].socket);
        raw.begin(VERSION_1 | MERGEABLE | PROTOCOL, PROTOCOL_FEATURES);
        raw.back();
        let (slow, _theirs, _peer) = slow_to_close(6);
        raw.send(SET_BACKEND_REQ_FD, &[], &[slow.as_raw_fd()]);
        drop(slow);
        let (other, _ours) = std::os::unix::net::UnixStream::pair().unwrap();
        // The port's thread closes the one before, and is not back when the port is taken away.
        raw.send(SET_BACKEND_REQ_FD, &[], &[other.as_raw_fd()]);
        thread::sleep(Duration::from_millis(100));
        let before = server.state().ports["NET0#2"].id();
        config.ports.remove("NET0#2");
        server.apply(&config).unwrap();
        config.ports.insert("NET0#4".to_owned(), self::config(directory.path(), 5).ports["NET0#4"].clone());
        server.apply(&config).unwrap();
        assert_ne!(server.state().ports["NET0#4"].id(), before);
        let mut late = Guest::connect(&config.ports["NET0#4"].socket, false);
        let mut guest = Guest::connect(&config.ports["NET0#0"].socket, false);
        late.send(&frame(0, 4, 60));
        assert_eq!(guest.receive(), frame(0, 4, 60));
    });
}

/// Bytes of this process's addresses that lead to the memfd of this name.
fn mapped(name: &str) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let sizes = maps.lines().filter(|line| line.contains(name)).map(|line| {
        let (first, last) = line.split(' ').next().unwrap().split_once('-').unwrap();
        u64::from_str_radix(last, 16).unwrap() - u64::from_str_radix(first, 16).unwrap()
    });
    sizes.sum()
}

/// Waits until a port says that its front end was refused for this.
fn refused(server: &Server, port: &str, told: &str) {
    let until = Instant::now() + TIMEOUT;
    loop {
        let why = server.ports().unwrap()[port].unconnected.clone().unwrap_or_default();
        if why.contains(told) {
            return;
        }
        assert!(Instant::now() < until, "{why:?}, not {told:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn sparse_memory_takes_no_room_of_others() {
    in_time(|| {
        const NAME: &str = "penstock-test-sparse";
        const TIB: u64 = 1 << 40;
        let (_directory, server, config) = rig(5);
        let socket = |number: u8| config.ports[&format!("NET0#{number}")].socket.clone();
        let file = File::from(memfd_create(NAME, MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(1 << 46).unwrap();
        let begin = |number| {
            let raw = Raw::connect(&socket(number));
            raw.begin(VERSION_1 | MERGEABLE | PROTOCOL, PROTOCOL_FEATURES | 1 << 15 | 1 << 1);
            raw
        };
        // All that there is of addresses, at once and by and by, at two ports.
        let greedy = begin(0);
        let regions: Vec<_> = (0..31).map(|at| (at * 4 * TIB, at * 4 * TIB, 4 * TIB, 0, &file)).collect();
        greedy.share_as(&regions);
        let mut slow = begin(1);
        let mut added = 0;
        // Regions that are small, each far inside of the file, are what they say.
        for at in 0..200_u64 {
            let body = longs(&[0, at << 30, 1 << 20, at << 30, TIB * 30 + (at << 30)]);
            assert_eq!(slow.done(ADD_MEM_REG, &body, &[file.as_raw_fd()]), Some(true), "region {at}");
        }
        assert!(mapped(NAME) <= 200 << 20, "{:#x} bytes are mapped for 200 MiB", mapped(NAME));
        while slow.done(ADD_MEM_REG, &longs(&[0, (200 + added) << 38, 1 << 38, 0, 0]), &[file.as_raw_fd()])
            == Some(true)
        {
            added += 1;
            assert!(added < 600, "it may have whatever it likes");
        }
        // A quarter of a TiB each.
        assert_eq!(added, 3);
        for (raw, name, asked) in
            [(&greedy, "NET0#0", "would share 124 TiB"), (&slow, "NET0#1", "would share 1 TiB")]
        {
            assert!(!raw.lives());
            refused(
                &server,
                name,
                &format!("{asked} of memory, and `max_memory` of this port leaves 1 TiB for"),
            );
        }
        // What is noted beside memory counts, too.
        slow = begin(1);
        let body = longs(&[0, 0, TIB, 0, 0]);
        assert_eq!(slow.done(ADD_MEM_REG, &body, &[file.as_raw_fd()]), Some(true));
        slow.send(SET_LOG_BASE, &longs(&[TIB >> 15, 0]), &[file.as_raw_fd()]);
        refused(
            &server,
            "NET0#1",
            "would share 32 MiB of memory, and `max_memory` of this port leaves 0 bytes",
        );
        // Neighbours come, and frames cross.
        let mut guests = [2, 3].map(|number| Guest::connect(&socket(number), number == 2));
        guests[0].send(&frame(3, 2, 100));
        assert_eq!(guests[1].receive(), frame(3, 2, 100));
        // More is had where it is set, by who does not come back in vain.
        let more = serde_json::json!({"max_memory": 4 << 20});
        server.set("NET0#0", more.as_object().unwrap()).unwrap();
        let large = begin(0);
        assert_eq!(large.done(ADD_MEM_REG, &longs(&[0, 0, 3 * TIB, 0, 0]), &[file.as_raw_fd()]), Some(true));
    });
}
