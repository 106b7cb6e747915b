//! Consoles: who may write, the way in, what a scroll-back keeps, and a real container's console.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use penstock_guests::{
    Containers,
    console::{Console, Holder, Replay, Turn, WriteTurn, share_with},
    state::State,
};
use penstock_host::{Root, process};
use penstock_model::{GuestKind, GuestName};
use penstock_plan::action::GuestDefinition;
use penstock_testkit::{needs, trials::Trials};

const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let anywhere: [(&str, fn()); 9] = [
        ("a_scroll_back_keeps_text_and_colours", keeps_text_and_colours),
        ("a_scroll_back_drops_all_that_a_terminal_obeys", drops_the_rest),
        ("any_bytes_make_a_harmless_scroll_back", any_bytes),
        ("bytes_in_pieces_are_the_same_bytes", in_pieces),
        ("one_writes_and_says_who", one_writes),
        ("a_lock_that_says_nonsense", nonsense_in_the_lock),
        ("a_guest_that_is_defined_anew_has_a_new_turn", defined_anew),
        ("a_line_is_drained_and_tells_of_its_end", line_is_drained),
        ("a_guest_that_takes_no_input_holds_nobody_up", takes_no_input),
    ];
    let as_root: [(&str, fn()); 1] = [("what_is_shared_with_the_group", shared)];
    let with_lxc: [(&str, fn()); 1] = [("a_containers_console_in_netns", container)];
    let no_root = trials.lacking("what is shared", needs::root);
    let no_lxc = trials.lacking("consoles of containers", || needs::containers(&["lxc-console"]));
    trials.add(&None, anywhere);
    trials.add(&no_root, as_root);
    trials.add(&no_lxc, with_lxc);
    trials.run()
}

fn until(what: &str, mut seen: impl FnMut() -> bool) {
    let began = Instant::now();
    while !seen() {
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn kept(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Replay::default().keep(bytes, &mut out);
    out
}

fn keeps_text_and_colours() {
    let lines: [&[u8]; 5] = [
        b"plain\ttext\r\nback\x08\n",
        "umlauts äöü, a line ─ and a face 😀, no-break\u{a0}space ¿\n".as_bytes(),
        b"\x1b[1;31mred\x1b[0m \x1b[38;5;12mblue\x1b[38:2::1:2:3mx\x1b[m\n",
        b"10%\x1b[K\r100%\x1b[3D\x1b[2C\x1b[1G\n",
        b"latin \xe4\xfc\xa9 bytes\n",
    ];
    for line in lines {
        assert_eq!(String::from_utf8_lossy(&kept(line)), String::from_utf8_lossy(line));
    }
}

fn drops_the_rest() {
    // A byte behind a sequence in which a character began is no part of that character, but a control of eight bits.
    assert_eq!(kept(b"a\x1b[1\xd633m\x9b6nb"), b"a\xd6\x1b[133m6nb");
    assert_eq!(kept(b"a\x1b[1\xd6\x1bZ\x9b6nb"), b"a\xd66nb");
    assert_eq!(kept(b"a\x1b[1\xd6\x1b]0;t\x07\x9b6nb"), b"a\xd66nb");
    let cases: [(&[u8], &str); 26] = [
        // What a terminal answers.
        (b"a\x1b[6nb", "ab"),
        (b"a\x1b[?6nb", "ab"),
        (b"a\x1b[cb", "ab"),
        (b"a\x1b[>0cb", "ab"),
        (b"a\x1b[0xb", "ab"),
        (b"a\x1b[21tb", "ab"),
        (b"a\x1b[?1$pb", "ab"),
        (b"a\x1b[>qb", "ab"),
        (b"a\x1bZb", "ab"),
        (b"a\x05b", "ab"),
        (b"a\x1b]11;?\x07b", "ab"),
        (b"a\x1b]52;c;?\x1b\\b", "ab"),
        (b"a\x1bP+q544e\x1b\\b", "ab"),
        (b"a\x1b_Gi=1;AAAA\x1b\\b", "ab"),
        // The same in eight bits, and in eight bits as UTF-8.
        (b"a\x9b6nb", "a6nb"),
        (b"a\xc2\x9b6nb", "a6nb"),
        (b"a\xc2\x1b[cb", "ab"),
        // What it obeys.
        (b"a\x1bcb", "ab"),
        (b"a\x1b[?1000h\x1b[2J\x1b[5;5Hb", "ab"),
        (b"a\x1b(0\x0eb", "ab"),
        (b"a\x1b]0;title\x07b", "ab"),
        // What is broken off.
        (b"a\x1b]0;no end\nb", "a\nb"),
        (b"a\x1b[31\x1b[32mb", "a\x1b[32mb"),
        (b"a\x1b]x\x1b[31mb", "a\x1b[31mb"),
        (b"a\x1b", "a"),
        (b"a\x1b[3\n1mb", "a\n\x1b[31mb"),
    ];
    for (bytes, wanted) in cases {
        assert_eq!(String::from_utf8_lossy(&kept(bytes)), wanted, "{}", bytes.escape_ascii());
    }
    let endless = [b"a\x1b[".as_slice(), &[b'1'; 100_000], b"mb"].concat();
    assert_eq!(kept(&endless), b"ab", "a sequence is bounded");
}

/// Bytes that look like what hurts, put together at random but the same each time.
fn noise(seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    const PIECES: [&[u8]; 20] = [
        b"\x1b", b"[", b"]", b"P", b"6", b"n", b"c", b"m", b";", b"?", b"\\", b"\x07", b"\n", b"\x9b",
        b"\xc2", b"\x9d", b"\xe2", b"\x80", b"\xf0", b"x",
    ];
    (0..300).flat_map(|_| PIECES[next() as usize % PIECES.len()]).copied().collect()
}

fn any_bytes() {
    for seed in 0..5_000 {
        let out = kept(&noise(seed));
        let mut rest = out.as_slice();
        while let Some(at) = rest.iter().position(|byte| *byte == 0x1b) {
            let sequence = &rest[at + 1..];
            assert_eq!(sequence.first(), Some(&b'['), "seed {seed}: {}", out.escape_ascii());
            let end = sequence[1..].iter().position(|b| !matches!(b, b'0'..=b'9' | b';' | b':'));
            let end = end.unwrap_or_else(|| panic!("seed {seed}: {}", out.escape_ascii()));
            assert!(b"mKCDG".contains(&sequence[1 + end]), "seed {seed}: {}", out.escape_ascii());
            rest = &sequence[end + 2..];
        }
        let controls = |pair: &[u8]| pair[0] == 0xc2 && (0x80..=0x9f).contains(&pair[1]);
        assert!(!out.windows(2).any(controls), "seed {seed}: {}", out.escape_ascii());
    }
}

fn in_pieces() {
    for seed in 0..200 {
        let bytes = noise(seed);
        let (mut replay, mut out) = (Replay::default(), Vec::new());
        for byte in &bytes {
            replay.keep(&[*byte], &mut out);
        }
        assert_eq!(out, kept(&bytes), "seed {seed}");
    }
}

fn definition(name: &str, vm: bool, init: &[&str]) -> GuestDefinition {
    GuestDefinition {
        init: init.iter().map(|word| (*word).to_owned()).collect(),
        vm: vm.then(Default::default),
        ..GuestDefinition::bare(name.parse().unwrap())
    }
}

fn vm(directory: &tempfile::TempDir) -> (State, Console) {
    let state = State::new(directory.path().to_owned());
    state.define(&definition("rt-2", true, &[])).unwrap();
    let guest: GuestName = "rt-2".parse().unwrap();
    let console = Console::of(&state, &guest).unwrap().unwrap();
    assert_eq!(console.kind(), GuestKind::Vm);
    (state, console)
}

fn turn(console: &Console) -> Turn {
    match console.take().unwrap() {
        WriteTurn::Ours(turn) => turn,
        WriteTurn::ByAnother(holder) => panic!("{holder} has it"),
    }
}

fn one_writes() {
    let directory = tempfile::tempdir().unwrap();
    let (_, console) = vm(&directory);
    let ours = turn(&console);
    let WriteTurn::ByAnother(holder) = console.take().unwrap() else { panic!("two write") };
    assert_eq!(holder.pid, Some(std::process::id()));
    if process::is_root() {
        assert_eq!(holder.to_string(), format!("root (pid {})", std::process::id()));
    }
    drop(ours);
    turn(&console);
}

fn nonsense_in_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let (state, console) = vm(&directory);
    let _ours = turn(&console);
    let lock = state.file(console.guest(), "console.lock");
    let nobody = Holder { pid: None, user: None };
    let unnamed = Holder { pid: Some(7), user: None };
    let cases: [(&[u8], &Holder); 5] = [
        (b"", &nobody),
        (b"\xff\x1b[2J", &nobody),
        (b"7 \x1b]0;x\x07", &unnamed),
        (b"7 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &unnamed),
        (b"-1 root", &nobody),
    ];
    for (text, wanted) in cases {
        fs::write(&lock, text).unwrap();
        let WriteTurn::ByAnother(holder) = console.take().unwrap() else { panic!("two write") };
        assert_eq!(&holder, wanted, "{}", text.escape_ascii());
    }
}

fn defined_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (state, console) = vm(&directory);
    let ours = turn(&console);
    assert!(ours.is_good());
    state.forget(console.guest()).unwrap();
    assert!(!ours.is_good());
    assert!(console.take().unwrap_err().to_string().contains("does not run"));
    state.define(&definition("rt-2", true, &[])).unwrap();
    let theirs = turn(&console);
    assert!(theirs.is_good() && !ours.is_good());
}

fn line_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let (state, console) = vm(&directory);
    let socket = state.file(console.guest(), "console.sock");
    let turn = turn(&console);
    let error = console.connect(&turn).unwrap_err();
    assert!(!error.is_final() && error.to_string().contains("does not run"), "{error}");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut line = console.connect(&turn).unwrap();
    let (mut guest, _) = listener.accept().unwrap();
    // Much more than any socket holds: it would stop here if nobody read.
    guest.set_write_timeout(Some(TIMEOUT)).unwrap();
    guest.write_all(&vec![b'x'; 16 << 20]).unwrap();
    assert_eq!(line.write(b"ls\r").unwrap(), 3);
    let mut got = [0; 3];
    guest.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ls\r");
    assert!(line.is_open());
    drop(guest);
    until("the line's end", || !line.is_open());
    assert!(line.write(b"x").is_err());
    // Who died left a socket that nobody listens on.
    drop(listener);
    assert!(!console.connect(&turn).unwrap_err().is_final());
    // One that leaves is seen to leave.
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let line = console.connect(&turn).unwrap();
    let (mut guest, _) = listener.accept().unwrap();
    drop(line);
    guest.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(guest.read(&mut got).unwrap(), 0);
}

fn takes_no_input() {
    let directory = tempfile::tempdir().unwrap();
    let (state, console) = vm(&directory);
    let listener = UnixListener::bind(state.file(console.guest(), "console.sock")).unwrap();
    let turn = turn(&console);
    let mut line = console.connect(&turn).unwrap();
    let (_guest, _) = listener.accept().unwrap();
    let began = Instant::now();
    let block = vec![b'x'; 64 << 10];
    let mut taken = 0;
    loop {
        match line.write(&block).unwrap() {
            0 => break,
            count => taken += count,
        }
        assert!(taken < 64 << 20, "nobody reads, and all is taken");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(line.is_open());
}

fn shared() {
    const GROUP: u32 = 54_321;
    let directory = tempfile::tempdir().unwrap();
    let (state, console) = vm(&directory);
    let of = state.of(console.guest());
    // Before the first start: the lock alone.
    share_with(&of, GROUP).unwrap();
    fs::write(console.log(), "").unwrap();
    fs::set_permissions(console.log(), fs::Permissions::from_mode(0o600)).unwrap();
    let socket = state.file(console.guest(), "console.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    share_with(&of, GROUP).unwrap();
    let lock = state.file(console.guest(), "console.lock");
    for (path, mode) in [(&of, 0o751), (&console.log(), 0o640), (&socket, 0o660), (&lock, 0o660)] {
        let data = fs::metadata(path).unwrap();
        assert_eq!((data.gid(), data.mode() & 0o7777), (GROUP, mode), "{}", path.display());
    }
    let definition = fs::metadata(state.file(console.guest(), "definition.json")).unwrap();
    assert_ne!(definition.gid(), GROUP, "nothing else is touched");
    // A link in place of a file is not followed.
    let other = directory.path().join("other");
    fs::write(&other, "").unwrap();
    let before = fs::metadata(&other).unwrap();
    fs::remove_file(console.log()).unwrap();
    std::os::unix::fs::symlink(&other, console.log()).unwrap();
    let _ = share_with(&of, GROUP);
    assert_eq!(fs::metadata(&other).unwrap().gid(), before.gid());
}

fn container() {
    let directory = tempfile::tempdir().unwrap();
    let state = State::new(directory.path().to_owned());
    let containers = Containers::new(Root::system(), directory.path().to_owned())
        .keeping_ids_in(directory.path().join("ids"));
    let echo = "echo begin; while read line; do echo \"got:$line\"; done";
    let definition = definition("box", false, &["/bin/sh", "-c", echo]);
    containers.define(&definition, TIMEOUT).unwrap();
    containers.start(&definition.guest, TIMEOUT).unwrap();
    let console = Console::of(&state, &definition.guest).unwrap().unwrap();
    assert_eq!(console.kind(), GuestKind::Container);
    let said = || fs::read_to_string(console.log()).unwrap_or_default();
    until("the container's first line", || said().contains("begin"));
    let ours = turn(&console);
    let mut line = console.connect(&ours).unwrap();
    for word in ["one", "two"] {
        let text = format!("{word}\n");
        assert_eq!(line.write(text.as_bytes()).unwrap(), text.len());
        until("the container's answer", || said().contains(&format!("got:{word}")));
    }
    // Left and entered again.
    drop(line);
    let mut line = console.connect(&ours).unwrap();
    until("the container's third answer", || {
        line.write(b"three\n").unwrap();
        thread::sleep(Duration::from_millis(200));
        said().contains("got:three")
    });
    containers.stop(&definition.guest, TIMEOUT).unwrap();
    until("the line's end", || !line.is_open());
    assert!(!console.connect(&ours).unwrap_err().is_final(), "it may be started again");
    assert!(said().contains("got:three"), "what it said is still there");
    containers.undefine(&definition.guest, TIMEOUT).unwrap();
}
