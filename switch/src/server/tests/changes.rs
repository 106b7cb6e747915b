//! Changes that are refused, break off, or come at the same time as others.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::*;
use crate::{config::QemuFilter, socket::AccessConfig};

/// Says to a process of these tests that it is to run out of descriptors.
const WITHOUT_DESCRIPTORS: &str = "PENSTOCK_SWITCH_TEST_WITHOUT_DESCRIPTORS";

fn set(server: &Server, port: &str, attributes: Value) {
    server.set(port, attributes.as_object().unwrap()).unwrap();
}

#[test]
fn a_reload_that_is_refused_has_changed_nothing() {
    let (directory, server, before) = rig(3);
    let at = |number: u8| directory.path().join(format!("{number}.sock"));
    let mode = |number: u8| fs::metadata(at(number)).unwrap().permissions().mode() & 0o777;
    let mut guests = [0, 1].map(|number| Guest::connect(&at(number), false));
    let mut config = self::config(directory.path(), 4);
    config.ports.remove("NET0#2");
    for name in ["NET0#0", "NET0#1"] {
        let port = config.ports.get_mut(name).unwrap();
        port.access = Some(AccessConfig { mode: Some("0666".to_owned()), ..AccessConfig::default() });
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
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let (directory, server, before) = rig(2);
    let mut guests =
        [0, 1].map(|number| Guest::connect(&before.ports[&format!("NET0#{number}")].socket, false));
    let mut config = before.clone();
    config.ports.get_mut("NET0#0").unwrap().spoofchk = false;
    // Whoever follows that needs a descriptor.
    let filter = QemuFilter { monitor: directory.path().join("monitor"), device: "net0".to_owned() };
    config.ports.get_mut("NET0#1").unwrap().filter = Some(filter);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let next = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, next, hard).unwrap();
    let broken_off = server.apply(&config).unwrap_err();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert!(matches!(broken_off, ServerError::Partly(_)), "{broken_off}");
    assert!(!server.ports().unwrap()["NET0#0"].settings.spoofchk, "it is told as it is");
    guests[0].send(&frame(1, 9, 60));
    assert_eq!(guests[1].receive(), frame(1, 9, 60));

    server.apply(&before).unwrap();
    guests[0].send(&frame(1, 9, 61));
    guests[0].send(&frame(1, 0, 62));
    assert_eq!(guests[1].receive(), frame(1, 0, 62), "what was set before holds again");
    assert!(server.ports().unwrap()["NET0#0"].settings.spoofchk);
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
