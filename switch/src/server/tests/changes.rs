//! Changes that are refused, break off, or come at the same time as others.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::*;
use crate::{
    config::{MirrorConfig, MirrorDirection, QemuFilter},
    server::make::WantedPorts,
    socket::AccessConfig,
};

/// Says to a process of these tests that it is to run out of descriptors.
const WITHOUT_DESCRIPTORS: &str = "PENSTOCK_SWITCH_TEST_WITHOUT_DESCRIPTORS";

fn access(mode: &str) -> Option<AccessConfig> {
    Some(AccessConfig { mode: Some(mode.to_owned()), ..AccessConfig::default() })
}

fn mode(socket: &Path) -> u32 {
    fs::metadata(socket).unwrap().permissions().mode() & 0o777
}

fn set(server: &Server, port: &str, attributes: Value) {
    server.set(port, attributes.as_object().unwrap()).unwrap();
}

#[test]
fn a_reload_that_is_refused_has_changed_nothing() {
    let (directory, server, before) = rig(3);
    let at = |number: u8| directory.path().join(format!("{number}.sock"));
    let mode = |number: u8| mode(&at(number));
    let mut guests = [0, 1].map(|number| Guest::connect(&at(number), false));
    let mut config = self::config(directory.path(), 4);
    config.ports.remove("NET0#2");
    for name in ["NET0#0", "NET0#1"] {
        let port = config.ports.get_mut(name).unwrap();
        port.access = access("0666");
        port.spoofchk = false;
    }
    // What others are to be let come to is gone.
    fs::remove_file(at(1)).unwrap();
    let refused = server.apply(&config).unwrap_err();
    assert!(matches!(&refused, ServerError::Backend { port, .. } if port == "NET0#1"), "{refused}");
    assert_eq!(mode(0), 0o600);
    assert!(at(2).exists() && !at(3).exists());
    let ports = server.ports().unwrap();
    assert!(ports.len() == 3 && ports["NET0#0"].settings.spoofchk);
    guests[0].send(&frame(1, 9, 60));
    guests[0].send(&frame(1, 0, 61));
    assert_eq!(guests[1].receive(), frame(1, 0, 61));
    assert_eq!(server.config(), before);
    // Without that all of it is taken.
    config.ports.get_mut("NET0#1").unwrap().access = None;
    server.apply(&config).unwrap();
    assert_eq!((mode(0), at(2).exists(), mode(3)), (0o666, false, 0o600));
    guests[0].send(&frame(1, 9, 62));
    assert_eq!(guests[1].receive(), frame(1, 9, 62));
}

/// In a process of its own, whose descriptors no other test needs.
#[test]
fn what_a_change_that_breaks_off_has_set_is_told_and_set_back_by_the_next() {
    if std::env::var_os(WITHOUT_DESCRIPTORS).is_none() {
        let name =
            "server::tests::changes::what_a_change_that_breaks_off_has_set_is_told_and_set_back_by_the_next";
        let mut own = Command::new(std::env::current_exe().unwrap());
        let output =
            own.args(["--exact", name, "--nocapture"]).env(WITHOUT_DESCRIPTORS, "").output().unwrap();
        let told = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert!(output.status.success() && told[0].contains(" 1 passed"), "{}", told.concat());
        return;
    }
    let (directory, server, before) = rig(4);
    let mut guests =
        [0, 1].map(|number| Guest::connect(&before.ports[&format!("NET0#{number}")].socket, false));
    let mut config = before.clone();
    config.ports.get_mut("NET0#0").unwrap().spoofchk = false;
    config.ports.values_mut().for_each(|port| port.access = access("0666"));
    let modes = || before.ports.values().map(|port| mode(&port.socket)).collect::<Vec<_>>();
    // Whoever follows one of these needs a descriptor, and there are two for four: before that access is set with them.
    for (name, port) in &mut config.ports {
        port.filter = Some(QemuFilter { monitor: directory.path().join(name), device: "net0".to_owned() });
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let free = [(); 2].map(|()| File::open("/dev/null").unwrap());
    let last = free.each_ref().map(|file| file.as_raw_fd() as u64).into_iter().max().unwrap();
    drop(free);
    setrlimit(Resource::RLIMIT_NOFILE, last + 1, hard).unwrap();
    let broken_off = server.apply(&config).unwrap_err();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert!(matches!(broken_off, ServerError::Partly(_)), "{broken_off}");
    assert!(
        matches!(broken_off.at_start(), ServerError::Start(_)),
        "there is nothing to be set back at the start"
    );
    assert_eq!(modes(), [0o666; 4]);
    assert!(!server.ports().unwrap()["NET0#0"].settings.spoofchk, "it is told as it is");
    guests[0].send(&frame(1, 9, 60));
    assert_eq!(guests[1].receive(), frame(1, 9, 60));

    server.apply(&before).unwrap();
    assert_eq!(modes(), [0o600; 4], "nobody else may come any more");
    guests[0].send(&frame(1, 9, 61));
    guests[0].send(&frame(1, 0, 62));
    assert_eq!(guests[1].receive(), frame(1, 0, 62), "what was set before holds again");
    assert!(server.ports().unwrap()["NET0#0"].settings.spoofchk);
}

/// A change may break off before the settings of ports that stay.
#[test]
fn who_was_let_in_by_a_change_that_broke_off_is_kept_out_again() {
    let (_directory, server, before) = rig(2);
    let mut config = before.clone();
    config.ports.values_mut().for_each(|port| port.access = access("0666"));
    let modes = || before.ports.values().map(|port| mode(&port.socket)).collect::<Vec<_>>();
    let wanted = WantedPorts::new(&config, config.settings().unwrap()).unwrap();
    let mut state = server.state();
    state.effective = wanted.admit(&config, &state).unwrap();
    drop(state);
    assert_eq!(modes(), [0o666, 0o666]);
    assert_eq!(server.ports().unwrap()["NET0#0"].settings.access, access("0666"), "it is told as it is");
    server.apply(&before).unwrap();
    assert_eq!(modes(), [0o600, 0o600]);
}

/// A change may break off between the ports that go and those that come.
#[test]
fn a_port_in_the_place_of_one_that_watched_gets_no_copies() {
    let (_directory, server, before) = rig(3);
    let mut guests =
        [0, 1].map(|number| Guest::connect(&before.ports[&format!("NET0#{number}")].socket, false));
    let mut config = before.clone();
    let watch = MirrorConfig { ports: vec!["NET0#0".to_owned()], direction: MirrorDirection::Both };
    config.ports.get_mut("NET0#2").unwrap().mirror = Some(watch);
    server.apply(&config).unwrap();
    let copies = |port: &str| {
        let counters = &server.ports().unwrap()[port].counters;
        counters.mirrored + counters.dropped_mirrored.values().sum::<u64>()
    };
    guests[0].send(&frame(1, 0, 60));
    guests[1].receive();
    assert_eq!(copies("NET0#2"), 1);

    let port = config.ports.remove("NET0#2").unwrap();
    let mut state = server.state();
    let (id, mut made) = (state.ports["NET0#2"].id(), state.effective.clone());
    let wanted = WantedPorts::new(&config, config.settings().unwrap()).unwrap();
    server.remove_all_but(&wanted, &mut state, &mut made).unwrap();
    let settings = &before.settings().unwrap()["NET0#2"];
    let other = Attached::open(&port.backend("other").unwrap(), id, settings, Access::default()).unwrap();
    let other = server.put("other", settings, other).unwrap();
    state.ports.insert("other".to_owned(), other);
    drop(state);
    guests[0].send(&frame(1, 0, 61));
    guests[1].receive();
    assert_eq!(copies("other"), 0);
}

#[test]
fn a_mode_that_is_set_takes_no_other_change_back() {
    let (_directory, server, _) = rig(2);
    thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(|round| server.set_loopback(round % 2 == 0).unwrap()));
        for round in 1..=300_u16 {
            set(&server, "NET0#0", json!({"vlan": round}));
            set(&server, "NET0#1", json!({"vlan": round}));
            let vlans: Vec<u16> = server.config().ports.values().map(|port| port.vlan).collect();
            assert_eq!(vlans, [round, round]);
        }
    });
}

#[test]
fn what_is_reloaded_is_read_when_its_turn_has_come() {
    let (_directory, server, config) = rig(1);
    let read = || {
        assert!(server.turn.try_lock().is_err(), "another could set something meanwhile");
        Ok(Config { loopback: false, ..config.clone() })
    };
    server.reload(read).unwrap();
    assert!(!server.loopback());
    let refused = server.reload(|| Err("switch.json: it is gone".to_owned())).unwrap_err();
    assert_eq!(refused, "switch.json: it is gone");
}
