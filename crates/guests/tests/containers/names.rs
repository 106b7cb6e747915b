//! Name servers inside containers, and that nobody else has them.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command as Program,
};

use penstock_host::Place;
use penstock_model::Dns;
use penstock_plan::action::GuestDefinition;

use crate::bench::{Bench, shell, small_root, until};

const WANTED: &str = "nameserver 10.7.7.53\nnameserver fd07::53\nsearch lab.example lan\n";

fn dns() -> Option<Dns> {
    let servers = ["10.7.7.53", "fd07::53"].map(|server| server.parse().unwrap()).to_vec();
    Some(Dns { servers, search: ["lab.example", "lan"].map(|domain| domain.parse().unwrap()).to_vec() })
}

/// What a program inside reads, and what is read of it from outside.
#[track_caller]
fn is_there(place: &impl Place) {
    let (status, text) = shell(place, "cat /etc/resolv.conf");
    assert!(status == 0 && text.ends_with(WANTED), "{text}");
    let read = place.read("/etc/resolv.conf", 1 << 16).unwrap();
    assert_eq!(String::from_utf8(read).unwrap(), text);
}

/// With the default root: there before the first process, and the container's alone.
pub fn default_root() {
    let bench = Bench::new();
    // The host's may change at any time, but not to what is written here.
    let hosts = || fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let init = ["/bin/sh", "-c", "cat /etc/resolv.conf >/run/seen; exec sleep 1000"];
    let init = init.map(str::to_owned).to_vec();
    let definition = GuestDefinition { dns: dns(), init, ..bench.guest("names", 0) };
    let place = bench.start(&definition);
    is_there(&place);
    until("its first process had it", || shell(&place, "cat /run/seen").1.ends_with(WANTED));
    assert_eq!(
        shell(&place, "echo nameserver 203.0.113.66 >/etc/resolv.conf").0,
        0,
        "it is the container's own"
    );
    let host = hosts();
    assert!(!host.contains("203.0.113.66") && !host.contains(WANTED), "the host's is its own: {host}");
    bench.stop(&definition);

    // What nothing is said of any more is the host's again.
    let definition = GuestDefinition { dns: None, ..definition };
    let before = hosts();
    let place = bench.start(&definition);
    let inside = place.read("/etc/resolv.conf", 1 << 16).map(|bytes| String::from_utf8(bytes).unwrap());
    // What not everybody may read is not copied.
    let mode = fs::metadata("/etc/resolv.conf").map(|data| data.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o004 != 0) {
        let inside = inside.unwrap();
        assert!(inside == before || inside == hosts(), "{inside}");
    } else {
        assert!(inside.is_err(), "{inside:?}");
    }
    bench.stop(&definition);
    bench.is_back(0);
}

/// Of a root of its own not even the file is written to, by nobody.
pub fn own_root() {
    let bench = Bench::new();
    let root = small_root();
    let file = root.path().join("etc/resolv.conf");
    let definition = GuestDefinition {
        root: Some(root.path().to_str().unwrap().to_owned()),
        dns: dns(),
        ..bench.guest("box", 0)
    };
    let why = bench.refused(&definition);
    assert!(why.contains(&format!("{}: there is no such file", file.display())), "{why}");
    assert!(!file.exists());

    // Where a link leads inside is nothing that the host may follow.
    let secret = bench.state.path().join("secret");
    fs::write(&secret, "the host's").unwrap();
    symlink(&secret, &file).unwrap();
    let why = bench.refused(&definition);
    assert!(why.contains(&format!("it is a symbolic link to {}", secret.display())), "{why}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "the host's");
    bench.is_back(0);

    // Nobody waits for whoever writes into a pipe.
    fs::remove_file(&file).unwrap();
    assert!(Program::new("mkfifo").arg(&file).status().unwrap().success());
    let why = bench.refused(&definition);
    assert!(why.contains("it is no regular file"), "{why}");
    bench.is_back(0);

    fs::remove_file(&file).unwrap();
    fs::write(&file, "nameserver 192.0.2.1\n").unwrap();
    let place = bench.start(&definition);
    is_there(&place);
    assert_ne!(shell(&place, "echo x >/etc/resolv.conf").0, 0, "it is read-only");
    let (_, mounts) = shell(&place, "cat /proc/self/mountinfo");
    let mount = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/etc/resolv.conf"));
    let options = mount.and_then(|line| line.split(' ').nth(5)).unwrap_or_else(|| panic!("{mounts}"));
    assert!(options.split(',').any(|option| option == "ro"), "{options}");
    bench.stop(&definition);
    bench.is_back(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "nameserver 192.0.2.1\n");
}
