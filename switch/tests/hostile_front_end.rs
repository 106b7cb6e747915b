//! The program itself against a front end that would stop it: it answers, and ends when it is told to.
#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, IoSlice, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::{
            fs::{FileExt, PermissionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::{
        eventfd::{EfdFlags, EventFd},
        memfd::{MFdFlags, memfd_create},
        signal::{Signal, kill},
        socket::{ControlMessage, MsgFlags, sendmsg},
    },
    unistd::Pid,
};
use penstock_testkit::{needs, trials::Trials};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Features: `VIRTIO_F_VERSION_1`, `VHOST_USER_F_PROTOCOL_FEATURES`.
const FEATURES: u64 = 1 << 32 | 1 << 30;
/// What the front end's own addresses begin with.
const USER: u64 = 1 << 40;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    // What one starts would be given the other's files.
    trials.one_at_a_time();
    let nothing = trials.lacking("a switch", || None::<needs::Lack>);
    trials.add(
        &nothing,
        [
            ("a_switch_answers_and_ends_while_a_front_end_has_filled_its_call", full_call as fn()),
            ("sockets_are_for_those_who_are_named_whatever_the_umask_is", modes as fn()),
        ],
    );
    let missing = trials.lacking("a file system of its own", || {
        let device = Path::new("/dev/fuse").exists();
        needs::root().or_else(|| (!device).then(|| "there is no /dev/fuse".to_owned().into()))
    });
    trials.add(
        &missing,
        [(
            "a_switch_answers_and_ends_while_files_that_nobody_answers_for_are_handed_over",
            silent_files as fn(),
        )],
    );
    trials.run()
}

/// A switch with two ports, `a` and `b`.
struct Switch {
    child: Child,
    directory: tempfile::TempDir,
}

impl Switch {
    fn start() -> Switch {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let config = format!(
            r#"{{"version": 1, "ports": {{"a": {{"socket": "{}"}}, "b": {{"socket": "{}"}}}}}}"#,
            at("a"),
            at("b")
        );
        fs::write(at("switch.json"), config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_penstock-switch"))
            .args(["run", &at("switch.json"), "--control", &at("ctl")])
            .spawn()
            .unwrap();
        let switch = Switch { child, directory };
        let until = Instant::now() + TIMEOUT;
        // A socket has its name before anybody listens on it.
        while UnixStream::connect(switch.path("ctl")).is_err() {
            assert!(Instant::now() < until, "it does not start");
            thread::sleep(Duration::from_millis(5));
        }
        switch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What `ctl get` prints, which must come in time. Asked without a program: one that is started here is given all files, and
    /// would wait at the end of those that nobody answers for.
    fn get(&self) -> String {
        let mut asked = UnixStream::connect(self.path("ctl")).unwrap();
        asked.set_read_timeout(Some(TIMEOUT)).unwrap();
        asked.write_all(b"{\"version\": 1, \"do\": \"get\"}\n").unwrap();
        let mut told = String::new();
        BufReader::new(asked).read_line(&mut told).expect("`get` is not answered");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let ports = serde_json::from_value(told["ok"]["ports"].clone()).unwrap();
        penstock_switch::status::table(&ports)
    }

    /// Tells it to end: its sockets are gone in time.
    fn tell_to_end(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        let until = Instant::now() + TIMEOUT;
        while ["a", "b", "ctl"].iter().any(|name| self.path(name).exists()) {
            assert!(Instant::now() < until, "SIGTERM does not end it");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sees that it has ended.
    fn ends(mut self) {
        let until = Instant::now() + TIMEOUT;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "SIGTERM does not end it");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // Not awaited: where a test fails, that could take for ever.
        let _ = self.child.kill();
    }
}

/// A front end that says what it is told to.
struct Front(UnixStream);

impl Front {
    fn connect(path: &Path) -> Front {
        Front::try_connect(path).unwrap()
    }

    fn try_connect(path: &Path) -> io::Result<Front> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Front(stream))
    }

    fn send(&self, request: u32, body: &[u64], fds: &[RawFd]) {
        let header = [request, 1, body.len() as u32 * 8].map(u32::to_ne_bytes).concat();
        let body: Vec<u8> = body.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let message = [header, body].concat();
        let rights = [ControlMessage::ScmRights(fds)];
        let with = if fds.is_empty() { &[][..] } else { &rights };
        let parts = [IoSlice::new(&message)];
        let _ = sendmsg::<()>(self.0.as_raw_fd(), &parts, with, MsgFlags::MSG_NOSIGNAL, None);
    }

    /// Whether all that was said before was taken.
    fn lives(&self) -> bool {
        self.send(1, &[], &[]);
        (&self.0).read_exact(&mut [0; 20]).is_ok()
    }
}

fn modes() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let write = |access: &str, control: &str| {
        let path = |name: &str| at(name).display().to_string();
        let config = format!(
            r#"{{"version": 1, {control} "ports": {{"a": {{"socket": "{}"{access}}}, "b": {{"socket": "{}"}},
            "c": {{"cable": {{"listen": "{}"}}{access}}}, "d": {{"cable": {{"qemu": "{}"}}}}}}}}"#,
            path("a"),
            path("b"),
            path("c"),
            path("d")
        );
        fs::write(at("switch.json"), config).unwrap();
    };
    let mode = |name: &str| fs::symlink_metadata(at(name)).unwrap().permissions().mode() & 0o7777;
    let open = r#", "access": {"mode": "0660"}"#;
    for (umask, access, control, wanted) in [
        ("0", "", "", [0o600; 5]),
        ("0", open, r#""control": {"mode": "0666"},"#, [0o660, 0o600, 0o660, 0o600, 0o666]),
        ("077", open, "", [0o660, 0o600, 0o660, 0o600, 0o600]),
    ] {
        write(access, control);
        let line = format!(r#"umask {umask}; exec "$0" run "$1" --control "$2""#);
        let mut child = Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_penstock-switch")])
            .args([at("switch.json"), at("ctl")])
            .spawn()
            .unwrap();
        let until = Instant::now() + TIMEOUT;
        // Whoever asks has it answered, so all of them are there and as they are to be.
        while UnixStream::connect(at("ctl")).is_err() {
            assert!(Instant::now() < until, "it does not start");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(["a", "b", "c", "d", "ctl"].map(mode), wanted, "umask {umask}");
        // A reload changes them; who is connected stays.
        let front = Front::connect(&at("a"));
        assert!(front.lives());
        write(r#", "access": {"mode": "0620"}"#, "");
        let pid = Pid::from_raw(child.id() as i32);
        kill(pid, Signal::SIGHUP).unwrap();
        while mode("a") != 0o620 || mode("c") != 0o620 {
            assert!(Instant::now() < until, "{:o} after a reload", mode("a"));
            thread::sleep(Duration::from_millis(5));
        }
        assert!(front.lives());
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(child.wait().unwrap().success());
    }
    write(r#", "access": {"owner": "no-such-user"}"#, "");
    let refused = Command::new(env!("CARGO_BIN_EXE_penstock-switch"))
        .arg("run")
        .arg(at("switch.json"))
        .output()
        .unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && told.contains(r#"a: owner "no-such-user" is not in /etc/passwd"#),
        "{told}"
    );
}

fn full_call() {
    let switch = Switch::start();
    let front = Front::connect(&switch.path("b"));
    let memory = File::from(memfd_create("guest", MFdFlags::empty()).unwrap());
    memory.set_len(0x1_0000).unwrap();
    // A split ring of 16 entries at 0, 0x1000 and 0x2000: one frame of 12 + 60 bytes at 0x8000, offered in all of its entries.
    for entry in 0..16_u64 {
        memory.write_at(&[0x8000_u64, 72].map(u64::to_ne_bytes).concat(), entry * 16).unwrap();
    }
    let [kick, call] = [0; 2].map(|_| EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
    front.send(3, &[], &[]);
    front.send(2, &[FEATURES], &[]);
    front.send(5, &[1, 0, 0x1_0000, USER, 0], &[memory.as_raw_fd()]);
    let ring = |value: u64| 1 | value << 32;
    front.send(8, &[ring(16)], &[]);
    front.send(9, &[ring(0), USER, USER + 0x2000, USER + 0x1000, 0], &[]);
    front.send(10, &[ring(0)], &[]);
    front.send(13, &[1], &[call.as_fd().as_raw_fd()]);
    front.send(12, &[1], &[kick.as_fd().as_raw_fd()]);
    front.send(18, &[ring(1)], &[]);
    assert!(front.lives());
    // Now that it was handed over.
    fcntl(call.as_fd(), FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    call.write(u64::MAX - 1).unwrap();
    // Three of them are there, one after the other, and each asks to be woken.
    for count in 1..=3_u16 {
        memory.write_at(&count.to_ne_bytes(), 0x1002).unwrap();
        kick.write(1).unwrap();
        let until = Instant::now() + TIMEOUT;
        let mut used = [0; 2];
        while u16::from_ne_bytes(used) != count {
            assert!(Instant::now() < until, "frame {count} is not taken");
            memory.read_exact_at(&mut used, 0x2002).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    }
    let told = switch.get();
    // Their sender has no address.
    assert!(told.contains("dropped: 3 spoofed_mac"), "{told}");
    assert!(Front::connect(&switch.path("a")).lives());
    // While the front end is there.
    switch.tell_to_end();
    switch.ends();
}

/// A file system with one file, `file`, which answers until it is told to be silent, and is there in this thread's mount namespace.
struct Silent {
    place: PathBuf,
    silent: Arc<AtomicBool>,
}

impl Silent {
    fn mount(place: &Path) -> Silent {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("penstock-test"), place, Some("fuse"), flags, Some(options.as_str())).unwrap();
        let silent = Arc::new(AtomicBool::new(false));
        let hushed = Arc::clone(&silent);
        thread::spawn(move || serve(&device, &hushed));
        Silent { place: place.to_owned(), silent }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // With what waits for an answer.
        let _ = umount2(&self.place, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
    }
}

/// Answers what is needed to open a file (`include/uapi/linux/fuse.h`, version 7.31).
fn serve(mut device: &File, silent: &AtomicBool) {
    let mut request = vec![0; 1 << 17];
    while let Ok(len) = device.read(&mut request) {
        if silent.load(Ordering::Acquire) || len < 40 {
            continue;
        }
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        // `fuse_attr`: number, size, blocks, times, mode, links, owner, device, block size, flags.
        let attributes = |node: u64, mode: u32| {
            let mut all = [node, 0x1000, 8, 0, 0, 0].map(u64::to_ne_bytes).concat();
            all.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat());
            all
        };
        let body = match word(4) {
            // LOOKUP: node, generation, for how long that and the attributes hold.
            1 => [[2_u64, 0, 0, 0, 0].map(u64::to_ne_bytes).concat(), attributes(2, 0o100_666)].concat(),
            // GETATTR
            3 => {
                let (node, mode) = if word(16) == 1 { (1, 0o40_755) } else { (2, 0o100_666) };
                [[0_u64; 2].map(u64::to_ne_bytes).concat(), attributes(node, mode)].concat()
            }
            // OPEN
            14 => [7_u64, 0].map(u64::to_ne_bytes).concat(),
            // INIT: version, read ahead, flags, background, the longest write.
            26 => {
                let mut all = [7_u32, 31, 0, 0, 0, 4096].map(u32::to_ne_bytes).concat();
                all.resize(64, 0);
                all
            }
            _ => Vec::new(),
        };
        let error = if body.is_empty() { -nix::libc::ENOSYS } else { 0 };
        let head = [(16 + body.len() as u32).to_ne_bytes(), error.to_ne_bytes()].concat();
        let _ = device.write(&[&head, &request[8..16], &body].concat());
    }
}

fn silent_files() {
    let work = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let all = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
        mount(None::<&str>, "/", None::<&str>, all, None::<&str>).unwrap();
        let switch = Switch::start();
        let place = tempfile::tempdir().unwrap();
        let files = Silent::mount(place.path());
        let file = OpenOptions::new().read(true).write(true).open(place.path().join("file")).unwrap();
        files.silent.store(true, Ordering::Release);
        let file = std::mem::ManuallyDrop::new(OwnedFd::from(file));
        // As a kick, a call, an error, memory, marks, what is in flight, the way back, and with a message that brings none.
        let messages: [(u32, &[u64]); 9] = [
            (12, &[0]),
            (13, &[0]),
            (14, &[0]),
            (5, &[1, 0, 0x1000, USER, 0]),
            (37, &[0, 0, 0x1000, USER, 0]),
            (6, &[0x1000, 0]),
            (32, &[0x1000, 0, 0]),
            (21, &[]),
            (1, &[]),
        ];
        for (request, body) in messages {
            let front = Front::connect(&switch.path("b"));
            front.send(3, &[], &[]);
            front.send(16, &[0xffff], &[]);
            front.send(2, &[FEATURES], &[]);
            assert!(front.lives());
            front.send(request, body, &[file.as_raw_fd()]);
            assert!(!front.lives(), "message {request} was taken");
            let until = Instant::now() + TIMEOUT;
            let told = |text: &str| {
                text.contains(&format!("({request}) brought /")) && text.contains("/file where ")
            };
            while !told(&switch.get()) {
                assert!(Instant::now() < until, "{}", switch.get());
            }
            assert!(Front::connect(&switch.path("a")).lives());
        }
        // In one message more than may stay open; then its port is served no more, and the others are.
        for _ in 0..3 {
            // That may have come about before the last.
            let Ok(front) = Front::try_connect(&switch.path("b")) else { break };
            front.send(12, &[0], &[file.as_raw_fd(); 30]);
            front.lives();
        }
        let until = Instant::now() + TIMEOUT;
        while !switch.get().contains("until the switch is started anew") {
            assert!(Instant::now() < until, "{}", switch.get());
        }
        assert!(UnixStream::connect(switch.path("b")).is_err());
        assert!(Front::connect(&switch.path("a")).lives());
        switch.tell_to_end();
        // The kernel ends no process that was given such a file before its file system answers, or is gone.
        drop(files);
        switch.ends();
        drop(std::mem::ManuallyDrop::into_inner(file));
    };
    thread::spawn(work).join().unwrap();
}
