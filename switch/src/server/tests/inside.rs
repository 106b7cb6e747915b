//! What comes from inside: how far it goes, when it lapses, and that neighbours lose nothing by it.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{
    raw::{PROTOCOL as PROTOCOL_FEATURES, Raw},
    *,
};
use crate::{
    control::{self, Rights},
    rx_filter::Filter,
};

mod limits;
mod neighbours;

/// `VHOST_USER_RESET_DEVICE`: the front end resets the device.
const RESET_DEVICE: u32 = 34;
/// `VHOST_USER_PROTOCOL_F_RESET_DEVICE`: the front end may send [`RESET_DEVICE`].
const RESETS: u64 = 1 << 13;
/// Says to a process of these tests that it is to be a switch, and where.
const DIRECTORY: &str = "PENSTOCK_SWITCH_INSIDE_TEST_DIRECTORY";

/// A tenant's PF and two VFs, and a neighbour's two ports without a ceiling.
fn tenant(directory: &Path) -> Config {
    let port = |number: u8, more: Value| {
        let mut port = json!({"socket": directory.join(format!("{number}.sock")),
            "mac": format!("02:00:00:00:00:{number:02x}"), "spoofchk": true});
        port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        port
    };
    let allow = json!({"vlan": "0,100-199", "max_tx_rate": 1000, "mac": ["02:00:00:00:00:55", "02:00:00:00:00:04"],
        "more_macs": 1, "link_state": "enable"});
    let none = json!({"trunk": "0"});
    serde_json::from_value(json!({"version": 1, "pf": "NET0", "ports": {
        "NET0": port(0, json!({"allow": allow, "trunk": "0", "trust": true})),
        "NET0#0": port(1, json!({"allow": allow, "trunk": "0", "max_tx_rate": 500, "trust": true})),
        "NET0#1": port(2, json!({"allow": {}, "trunk": "0"})),
        "other": port(4, none.clone()),
        "another": port(5, json!({"vlan": 200})),
    }}))
    .unwrap()
}

/// A connection with the rights of the line.
struct Line {
    answers: BufReader<UnixStream>,
}

impl Line {
    fn to(server: &Arc<Server>, rights: Rights) -> Line {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = Arc::clone(server);
        thread::spawn(move || control::converse(&theirs, &server, &control::Entrance::new(rights)));
        ours.set_read_timeout(Some(TIMEOUT)).unwrap();
        Line { answers: BufReader::new(ours) }
    }

    fn ask(&mut self, request: Value) -> Value {
        self.answers.get_ref().write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn set(&mut self, port: &str, attributes: Value) -> Result<(), String> {
        let answer = self.ask(json!({"version": 1, "do": "set", "port": port, "attributes": attributes}));
        match answer["error"]["text"].as_str() {
            Some(text) => Err(text.to_owned()),
            None => Ok(()),
        }
    }
}

fn rigged() -> (TempDir, Arc<Server>, Config) {
    let directory = tempfile::tempdir().unwrap();
    let config = tenant(directory.path());
    let server = Arc::new(Server::start().unwrap());
    server.apply(&config).unwrap();
    server.attend().unwrap();
    (directory, server, config)
}

/// A front end that has come so far that it may reset the device.
fn front(config: &Config, port: &str) -> Raw {
    let raw = Raw::connect(&config.ports[port].socket);
    raw.begin(VERSION_1 | PROTOCOL, PROTOCOL_FEATURES | RESETS);
    assert!(raw.lives());
    raw
}

fn until(mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "it did not come to be");
        thread::sleep(Duration::from_millis(2));
    }
}

fn refused(server: &Server, port: &str) -> BTreeMap<Refusal, u64> {
    server.ports().unwrap()[port].inside.refused.clone()
}

#[test]
fn the_inside_sets_what_the_host_allows_and_is_told_how_far_that_goes() {
    let (_directory, server, config) = rigged();
    let events = server.subscribe();
    let mut line = Line::to(&server, Rights::Attributes);
    line.set("NET0#0", json!({"vlan": 150, "max_tx_rate": 1000, "mac": "02:00:00:00:00:55"})).unwrap();
    assert!(
        matches!(events.recv().unwrap(), Event::Set { port, settings } if port == "NET0#0" && settings.vlan == 150)
    );
    for (port, attributes, told, why) in [
        (
            "NET0#0",
            json!({"vlan": 200}),
            "to be in VLAN 200 goes further than the host allows",
            Refusal::Vlan,
        ),
        ("NET0#0", json!({"vlan": 0, "trunk": null}), "VLANs 0,100-199", Refusal::Vlan),
        ("NET0#0", json!({"max_tx_rate": 0}), "at most 1000 Mbit/s", Refusal::MaxTxRate),
        ("NET0#0", json!({"spoofchk": false}), "spoofchk off", Refusal::Spoofchk),
        ("NET0#1", json!({"trust": true}), "trust on", Refusal::Trust),
        ("NET0#0", json!({"mac": "02:00:00:00:00:99"}), "02:00:00:00:00:55, 02:00:00:00:00:04", Refusal::Mac),
        (
            "NET0#0",
            json!({"vlan": 0, "trunk": "0", "mac": "02:00:00:00:00:04"}),
            "another port has",
            Refusal::Taken,
        ),
        ("NET0#0", json!({"qos": 9}), "7 is the highest", Refusal::Invalid),
        ("NET0#0", json!({"vlan": "all"}), "vlan cannot be", Refusal::Invalid),
        ("NET0#0", json!({"uplink": true}), "uplink is not to be had", Refusal::Denied),
        ("NET0#0", json!({"allow": {"trust": true}}), "allow is not to be had", Refusal::Denied),
        ("NET0#1", json!({"vlan": 100}), "no VLAN but what the host has set", Refusal::Vlan),
        ("other", json!({"link_state": "disable"}), "lets nothing of other be set", Refusal::NoAllow),
    ] {
        let before = refused(&server, port).get(&why).copied().unwrap_or_default();
        let error = line.set(port, attributes.clone()).unwrap_err();
        assert!(error.contains(told), "{attributes}: {error}");
        assert_eq!(refused(&server, port)[&why], before + 1, "{attributes}");
        let event = events.recv().unwrap();
        assert!(
            matches!(&event, Event::Refused { port: of, why: told, text } if of == port && *told == why && text.contains(&error)),
            "{event:?}"
        );
    }
    // All or none.
    let both =
        json!({"version": 1, "do": "change", "ports": {"NET0#0": {"vlan": 160}, "NET0#1": {"trust": true}}});
    assert!(line.ask(both)["error"].is_object());
    let state = &server.ports().unwrap()["NET0#0"];
    assert_eq!((state.settings.vlan, state.settings.max_tx_rate), (150, 1000));
    assert_eq!(
        Value::Object(state.inside.set.clone()),
        json!({"vlan": 150, "max_tx_rate": 1000, "mac": "02:00:00:00:00:55"})
    );
    // The host's configuration is its own, and the host is not bounded.
    assert_eq!(server.config(), config);
    server.set("NET0#0", json!({"vlan": 300}).as_object().unwrap()).unwrap();
    let state = &server.ports().unwrap()["NET0#0"];
    assert_eq!((state.settings.vlan, state.settings.max_tx_rate, state.settings.trust), (300, 1000, true));
    // What it may, it may take back.
    line.set("NET0#0", json!({"max_tx_rate": 0, "mac": "02:00:00:00:00:01"})).unwrap_err();
    line.set("NET0#0", json!({"mac": "02:00:00:00:00:01", "trust": false})).unwrap();
    // A host that allows less takes back what goes beyond that.
    let mut less = server.config();
    less.ports.get_mut("NET0#0").unwrap().allow = Some(Default::default());
    line.set("NET0#0", json!({"vlan": 101})).unwrap();
    let events = server.subscribe();
    server.apply(&less).unwrap();
    let told: Vec<Event> = events.try_iter().collect();
    assert!(told.iter().any(|event| matches!(event, Event::Lapsed { port, why } if port == "NET0#0" && why.contains("VLAN 101"))), "{told:?}");
    assert_eq!(server.ports().unwrap()["NET0#0"].settings.vlan, 300);
}

#[test]
fn the_line_shows_nothing_of_the_host() {
    let (directory, server, _config) = rigged();
    let mut line = Line::to(&server, Rights::Attributes);
    let get = line.ask(json!({"version": 1, "do": "get"}));
    let ports: Vec<&String> = get["ok"]["ports"].as_object().unwrap().keys().collect();
    assert_eq!(ports, ["NET0", "NET0#0", "NET0#1"]);
    assert!(!get.to_string().contains(directory.path().to_str().unwrap()), "{get}");
    for wish in [
        json!({"do": "subscribe"}),
        json!({"do": "reload", "config": {"version": 1}}),
        json!({"do": "filter", "port": "NET0#0", "filter": null}),
    ] {
        let mut request = wish;
        request["version"] = 1.into();
        assert!(line.ask(request)["error"]["text"].as_str().unwrap().contains("is not to be had"));
    }
    let error = line.set("nobody", json!({"vlan": 1})).unwrap_err();
    assert!(error.ends_with("there are NET0, NET0#0, NET0#1"), "{error}");
    assert!(line.ask(json!({"version": 1, "do": "loopback", "on": false}))["error"].is_object());
    assert_eq!(refused(&server, "NET0")[&Refusal::Loopback], 1);
    assert!(server.loopback());
}

#[test]
fn what_was_set_from_inside_lapses_with_the_pf_and_with_nothing_else() {
    let (_directory, server, config) = rigged();
    let events = server.subscribe();
    let mut line = Line::to(&server, Rights::Attributes);
    line.set("NET0#0", json!({"vlan": 150})).unwrap();
    server.set("NET0#0", json!({"qos": 3}).as_object().unwrap()).unwrap();
    let vlan = || server.ports().unwrap()["NET0#0"].settings.vlan;
    // A VF that is reset, as when a container gets it.
    front(&config, "NET0#0").send(RESET_DEVICE, &[], &[]);
    // A PF's front end that goes, comes back, and stops its rings for a while, as where a machine is paused.
    let pf = front(&config, "NET0");
    assert_eq!(pf.base(0), Some(0));
    drop(pf);
    until(|| !server.ports().unwrap()["NET0"].connected);
    let pf = front(&config, "NET0");
    assert_eq!(pf.base(1), Some(0));
    assert_eq!(vlan(), 150);
    // Its driver resets it.
    pf.send(RESET_DEVICE, &[], &[]);
    assert!(pf.lives());
    until(|| vlan() == 0);
    let state = &server.ports().unwrap()["NET0#0"];
    assert!(state.inside.is_empty() && state.settings.qos == 3);
    until(|| {
        events.try_iter().any(
            |event| matches!(event, Event::Lapsed { port, why } if port == "NET0#0" && why.contains("NET0")),
        )
    });
    // What is asked for after that holds.
    pf.send(RESET_DEVICE, &[], &[]);
    assert!(pf.lives());
    line.set("NET0#0", json!({"vlan": 151})).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(vlan(), 151);
}

/// Nothing, unless this process was started to be killed.
#[test]
fn a_switch_that_keeps_what_is_set_inside() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let path = directory.join("switch.json");
    let server = Arc::new(Server::start().unwrap());
    server.begin_with(&path).unwrap();
    server.apply(&crate::program::read(&path).unwrap()).unwrap();
    server.keep_in(&path).unwrap();
    server.attend().unwrap();
    let access = Access::default();
    control::serve(&directory.join("control"), Arc::clone(&server), Rights::All, access).unwrap();
    control::serve(&directory.join("line"), Arc::clone(&server), Rights::Attributes, access).unwrap();
    thread::sleep(Duration::from_secs(600));
}

struct Switch(Child);

impl Switch {
    fn start(directory: &Path) -> Switch {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server::tests::inside::a_switch_that_keeps_what_is_set_inside"])
            .env(DIRECTORY, directory)
            .stdout(Stdio::null())
            .spawn();
        let switch = Switch(child.unwrap());
        until(|| UnixStream::connect(directory.join("line")).is_ok());
        switch
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGKILL).unwrap();
        self.0.wait().unwrap();
    }
}

fn line_of(directory: &Path, name: &str) -> Line {
    let stream = UnixStream::connect(directory.join(name)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    Line { answers: BufReader::new(stream) }
}

#[test]
fn what_was_set_from_inside_outlives_a_switch_that_is_killed_and_not_the_pf() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let config = tenant(path);
    let file = serde_json::to_vec(&config).unwrap();
    std::fs::write(path.join("switch.json"), &file).unwrap();
    let apart = path.join("switch.json.inside");
    let vlan = || {
        let state = line_of(path, "control").ask(json!({"version": 1, "do": "get"}));
        state["ok"]["ports"]["NET0#0"]["settings"]["vlan"].as_u64().unwrap()
    };
    let mut switch = Switch::start(path);
    let pf = front(&config, "NET0");
    line_of(path, "line").set("NET0#0", json!({"vlan": 150})).unwrap();
    let asked = json!({"main-mac": "02:00:00:00:00:55", "promiscuous": false});
    let filter = json!({"version": 1, "do": "filter", "port": "NET0#0", "filter": asked});
    assert!(line_of(path, "control").ask(filter)["error"].is_null());
    for life in 0..3 {
        drop(switch);
        assert!(!pf.lives());
        switch = Switch::start(path);
        // As QEMU does that finds its port again.
        let pf = front(&config, "NET0");
        assert_eq!((vlan(), pf.base(0)), (150, Some(0)), "life {life}");
        let state = line_of(path, "control").ask(json!({"version": 1, "do": "get"}));
        assert_eq!(state["ok"]["ports"]["NET0#0"]["inside"]["granted"]["macs"], json!(["02:00:00:00:00:55"]));
    }
    // The host's configuration has nothing of it.
    assert_eq!(std::fs::read(path.join("switch.json")).unwrap(), file);
    assert!(apart.exists());
    let pf = front(&config, "NET0");
    pf.send(RESET_DEVICE, &[], &[]);
    until(|| vlan() == 0);
    front(&config, "NET0#0").send(RESET_DEVICE, &[], &[]);
    until(|| !apart.exists());
    drop(switch);
    let switch = Switch::start(path);
    assert_eq!(vlan(), 0);
    // What cannot be read is nothing, and is said; a tenant cannot go further by it either.
    drop(switch);
    let beyond = json!({"ports": {"NET0#0": {"vlan": 200, "trust": true}}});
    std::fs::write(&apart, beyond.to_string()).unwrap();
    let switch = Switch::start(path);
    assert_eq!(vlan(), 0);
    drop(switch);
}

fn filter(mac: &str, more: &[&str], promiscuous: bool, vlans: &[u16]) -> Option<Filter> {
    let (mac, more_macs) = (Some(mac.to_owned()), more.iter().map(|text| (*text).to_owned()).collect());
    Some(Filter { mac, more_macs, promiscuous, vlans: vlans.to_vec() })
}

#[test]
fn what_guests_ask_of_their_devices_is_granted_as_far_as_the_host_allows() {
    let (_directory, server, config) = rigged();
    let port = |name: &str| server.ports().unwrap()[name].clone();
    let own = "02:00:00:00:00:01";
    // What it has anyhow is no wish.
    server.set_filter("NET0#0", filter(own, &[], false, &[])).unwrap();
    assert!(port("NET0#0").inside.is_empty());
    server
        .set_filter(
            "NET0#0",
            filter("02:00:00:00:00:55", &["02:00:00:00:00:04", "02:00:00:00:00:66"], true, &[150, 200]),
        )
        .unwrap();
    let state = port("NET0#0");
    assert_eq!(state.settings.more_macs, ["02:00:00:00:00:55"]);
    assert_eq!(state.settings.trunk.as_deref(), Some("0,150"));
    assert!(!state.settings.promiscuous);
    let refused = state.inside.refused.clone();
    for (why, count) in
        [(Refusal::Mac, 1), (Refusal::Taken, 1), (Refusal::Vlan, 1), (Refusal::Promiscuous, 1)]
    {
        assert_eq!(refused.get(&why), Some(&count), "{why:?} of {:?}", state.inside);
    }
    // The same again is no other wish.
    server.set_filter("NET0#0", filter(own, &[], false, &[7])).unwrap();
    assert_eq!(port("NET0#0").inside.refused[&Refusal::Vlan], 2);
    server.set_filter("NET0#0", filter(own, &[], false, &[7])).unwrap();
    assert_eq!(port("NET0#0").inside.refused[&Refusal::Vlan], 2);
    // Nobody takes an address from whom has it, whatever the order of their names is.
    server.set_filter("NET0#0", filter("02:00:00:00:00:55", &[], false, &[])).unwrap();
    server.set_filter("NET0", filter("02:00:00:00:00:55", &[], false, &[])).unwrap();
    assert_eq!(port("NET0#0").settings.more_macs, ["02:00:00:00:00:55"]);
    assert_eq!(port("NET0").inside.refused[&Refusal::Taken], 1);
    // Promiscuous mode is granted with trust and an `allow` that has it.
    let mut trusting = server.config();
    trusting.ports.get_mut("NET0#0").unwrap().allow.as_mut().unwrap().promiscuous = true;
    server.apply(&trusting).unwrap();
    server.set("NET0#0", json!({"trust": false}).as_object().unwrap()).unwrap();
    server.set_filter("NET0#0", filter("02:00:00:00:00:09", &[], true, &[])).unwrap();
    let ungranted = port("NET0#0").inside.ungranted;
    assert!(ungranted.iter().all(|text| text.contains("no trust")) && ungranted.len() == 2, "{ungranted:?}");
    server.set_filter("NET0#0", filter(own, &[], true, &[])).unwrap();
    server.set("NET0#0", json!({"trust": true}).as_object().unwrap()).unwrap();
    assert!(port("NET0#0").settings.promiscuous);
    // One that goes is free for others; a device that is reset has asked for nothing.
    assert_eq!(port("NET0").settings.more_macs, ["02:00:00:00:00:55"]);
    front(&config, "NET0").send(RESET_DEVICE, &[], &[]);
    until(|| port("NET0").settings.more_macs.is_empty());
    assert!(port("NET0#0").settings.promiscuous, "another's device was not reset");
    assert!(matches!(server.set_filter("nobody", None), Err(ServerError::NoPort { .. })));
}

/// Fuzzing found it: what a guest asked for was granted by another rule than configurations are judged by. Then neither its wish nor
/// anything that its administrator set came true.
#[test]
fn an_address_of_a_port_in_other_vlans_is_granted_only_where_a_configuration_may_give_it() {
    let (_directory, server, _config) = rigged();
    let port = |name: &str| server.ports().unwrap()[name].clone();
    let set = |name: &str, attributes: Value| server.set(name, attributes.as_object().unwrap());
    let (own, others) = ("02:00:00:00:00:01", "02:00:00:00:00:04");
    // Their trunks have no VLAN in common.
    set("NET0#0", json!({"trunk": "100"})).unwrap();
    server.set_filter("NET0#0", filter(own, &[others], false, &[])).unwrap();
    assert_eq!(port("NET0#0").inside.refused[&Refusal::Taken], 1);
    assert_eq!(port("NET0#0").settings.more_macs, Vec::<String>::new());
    // In a VLAN of its own it has it, until that is no longer so.
    set("NET0#0", json!({"trunk": null, "vlan": 150})).unwrap();
    assert_eq!(port("NET0#0").settings.more_macs, [others]);
    set("NET0#0", json!({"trunk": "100", "vlan": 0})).unwrap();
    assert_eq!(port("NET0#0").settings.more_macs, Vec::<String>::new());
    set("other", json!({"max_tx_rate": 7})).unwrap();
}

#[test]
fn frames_go_where_what_is_granted_has_them_go() {
    let (_directory, server, config) = rigged();
    let guest = |name: &str| Guest::connect(&config.ports[name].socket, false);
    let (mut asks, mut other, mut apart) = (guest("NET0#0"), guest("other"), guest("another"));
    // From and to the address that it has given itself.
    other.send(&frame(0x55, 4, 60));
    asks.send(&frame(4, 0x55, 60));
    server.set_filter("NET0#0", filter("02:00:00:00:00:55", &[], true, &[200])).unwrap();
    other.send(&frame(0x55, 4, 61));
    assert_eq!(asks.receive(), frame(0x55, 4, 61));
    asks.send(&frame(4, 0x55, 62));
    assert_eq!(other.receive(), frame(4, 0x55, 62));
    // What is its neighbours' it does not come to see, promiscuous as it is: the next that it gets is its own.
    let mut to_apart = Guest::connect(&config.ports["NET0#1"].socket, false);
    to_apart.send(&frame(4, 2, 63));
    assert_eq!(other.receive(), frame(4, 2, 63));
    other.send(&frame(1, 4, 64));
    assert_eq!(asks.receive(), frame(1, 4, 64));
    // Nor does it come into a VLAN that it asked for and may not be in, with a tag of its own.
    let tagged = |to: u8, from: u8| {
        let mut tagged = frame(to, from, 80);
        tagged.splice(12..12, [0x81, 0, 0, 200]);
        tagged
    };
    asks.send(&tagged(5, 1));
    apart.send(&frame(1, 5, 70));
    other.send(&frame(1, 4, 71));
    assert_eq!(asks.receive(), frame(1, 4, 71));
    let ports = server.ports().unwrap();
    assert_eq!(ports["another"].counters.received, 0);
    assert_eq!(ports["NET0#0"].counters.dropped_sent[&Dropped::ForeignVlan], 1);
    assert_eq!(ports["NET0#0"].counters.dropped_sent[&Dropped::SpoofedMac], 1);
    // The neighbour's address stays its own.
    server.set_filter("NET0#0", filter("02:00:00:00:00:04", &[], false, &[])).unwrap();
    to_apart.send(&frame(4, 2, 90));
    assert_eq!(other.receive(), frame(4, 2, 90));
    assert_eq!(server.ports().unwrap()["NET0#0"].counters.received, 3);
}

#[test]
fn who_may_be_promiscuous_and_has_no_trust_sees_nothing_of_its_neighbours() {
    let (_directory, server, config) = rigged();
    let own = "02:00:00:00:00:01";
    let mut allowing = server.config();
    let port = allowing.ports.get_mut("NET0#0").unwrap();
    port.trust = false;
    port.allow.as_mut().unwrap().promiscuous = true;
    server.apply(&allowing).unwrap();
    let guest = |name: &str| Guest::connect(&config.ports[name].socket, false);
    let (mut asks, mut sends, mut other) = (guest("NET0#0"), guest("NET0#1"), guest("other"));
    // By its device, and by the line: that it may be promiscuous is granted there, and is nothing without trust.
    server.set_filter("NET0#0", filter(own, &[], true, &[])).unwrap();
    let mut line = Line::to(&server, Rights::Attributes);
    line.set("NET0#0", json!({"promiscuous": true})).unwrap();
    assert!(line.set("NET0#0", json!({"trust": true})).unwrap_err().contains("trust"));
    sends.send(&frame(4, 2, 63));
    assert_eq!(other.receive(), frame(4, 2, 63));
    other.send(&frame(1, 4, 64));
    assert_eq!(asks.receive(), frame(1, 4, 64), "the first that it gets is its own");
    // The host gives it trust.
    server.set("NET0#0", json!({"trust": true}).as_object().unwrap()).unwrap();
    sends.send(&frame(4, 2, 65));
    assert_eq!((asks.receive(), other.receive()), (frame(4, 2, 65), frame(4, 2, 65)));
}

/// A QEMU's monitor: what it tells of its devices, and the connection on which it does.
#[derive(Clone, Default)]
struct Monitor {
    devices: Arc<Mutex<BTreeMap<String, Value>>>,
    stream: Arc<Mutex<Option<UnixStream>>>,
}

impl Monitor {
    fn at(path: &Path) -> Monitor {
        let monitor = Monitor::default();
        let (own, listener) = (monitor.clone(), std::os::unix::net::UnixListener::bind(path).unwrap());
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| own.serve(&stream)));
        monitor
    }

    fn serve(&self, mut stream: &UnixStream) {
        *self.stream.lock().unwrap() = stream.try_clone().ok();
        let _ = stream.write_all(b"{\"QMP\": {}}\n");
        for line in BufReader::new(stream).lines() {
            let Ok(request) = line.map(|line| serde_json::from_str::<Value>(&line).unwrap()) else { return };
            let answer = match request["execute"].as_str().unwrap() {
                "query-rx-filter" => {
                    let name = request["arguments"]["name"].as_str().unwrap();
                    match self.devices.lock().unwrap().get(name) {
                        Some(told) => json!({"return": [told], "id": request["id"]}),
                        None => json!({"error": {"desc": "invalid net client name"}, "id": request["id"]}),
                    }
                }
                _ => json!({"return": {}, "id": request["id"]}),
            };
            let _ = stream.write_all(format!("{answer}\n").as_bytes());
        }
    }

    fn say(&self, bytes: &[u8]) {
        let _ = self.stream.lock().unwrap().as_ref().unwrap().write_all(bytes);
    }

    fn set(&self, device: &str, told: Value) {
        self.devices.lock().unwrap().insert(device.to_owned(), told);
    }

    fn change(&self, device: &str, told: Value) {
        self.set(device, told);
        let event = json!({"event": "NIC_RX_FILTER_CHANGED", "data": {"name": device, "path": "/machine"}});
        self.say(format!("{event}\n").as_bytes());
    }
}

#[test]
fn what_qemu_tells_of_its_devices_is_followed() {
    let (directory, server, mut config) = rigged();
    let path = directory.path().join("qmp");
    for (port, device) in [("NET0", "nic"), ("NET0#0", "nic.0")] {
        let filter = json!({"monitor": path, "device": device});
        config.ports.get_mut(port).unwrap().filter = Some(serde_json::from_value(filter).unwrap());
    }
    server.apply(&config).unwrap();
    let port = |name: &str| server.ports().unwrap()[name].clone();
    let macs = |name: &str| port(name).settings.more_macs;
    until(|| port("NET0#0").unlearned.is_some_and(|why| why.contains("No such file")));
    let monitor = Monitor::at(&path);
    let told =
        |mac: &str| json!({"main-mac": mac, "promiscuous": false, "vlan": "normal", "vlan-table": [150]});
    monitor.set("nic.0", told("02:00:00:00:00:55"));
    until(|| macs("NET0#0") == ["02:00:00:00:00:55"]);
    until(|| {
        port("NET0").unlearned.is_some_and(|why| why.contains("nic is not known: invalid net client name"))
    });
    assert_eq!((port("NET0#0").unlearned, port("NET0#0").settings.trunk.as_deref()), (None, Some("0,150")));
    monitor.change("nic.0", told("02:00:00:00:00:01"));
    until(|| macs("NET0#0").is_empty());
    monitor.change("nic", told("02:00:00:00:00:55"));
    until(|| macs("NET0") == ["02:00:00:00:00:55"] && port("NET0").unlearned.is_none());
    // A device that is reset is asked about anew: QEMU does not tell that it has forgotten everything.
    monitor.set("nic", told("02:00:00:00:00:00"));
    front(&config, "NET0").send(RESET_DEVICE, &[], &[]);
    until(|| macs("NET0").is_empty());
    // What is none of a monitor's lines, has no end, or tells of what is not there, ends the connection and nothing else.
    for bytes in [
        &b"{\"event\": \"NIC_RX_FILTER_CHANGED\", \"data\": {\"name\": \"nobody\"}}\n{nonsense\n"[..],
        &[b' '; 512 << 10],
        &b"{\"event\": \"NIC_RX_FILTER_CHANGED\", \"data\": {\"name\": [7]}}\n[]\n7\n\xff\n"[..],
    ] {
        let again = if macs("NET0#0").is_empty() { "02:00:00:00:00:55" } else { "02:00:00:00:00:01" };
        let wanted: Vec<&str> = if again.ends_with("55") { vec![again] } else { Vec::new() };
        monitor.set("nic.0", told(again));
        monitor.say(bytes);
        // It comes again, and asks for all.
        until(|| macs("NET0#0") == wanted);
    }
    // What is no filter is told, and what was granted stays.
    monitor.change("nic.0", json!({"main-mac": "ff:ff:ff:ff:ff:ff", "promiscuous": false}));
    until(|| port("NET0#0").unlearned.is_some_and(|why| why.contains("ff:ff:ff:ff:ff:ff")));
    assert_eq!(macs("NET0#0"), ["02:00:00:00:00:55"]);
    // Who does not want to know any more does not hold the monitor.
    for port in config.ports.values_mut() {
        port.filter = None;
    }
    server.apply(&config).unwrap();
    let mut byte = [0];
    let stream = monitor.stream.lock().unwrap().as_ref().unwrap().try_clone().unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    until(|| std::io::Read::read(&mut &stream, &mut byte).is_ok_and(|count| count == 0));
}
