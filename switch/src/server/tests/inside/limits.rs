//! What a tenant may ask for without end, and that none of it passes to who comes after it.

use super::*;

#[test]
fn what_was_asked_for_at_a_port_does_not_pass_to_another_guest_at_it() {
    let (directory, server, config) = rigged();
    let mut line = Line::to(&server, Rights::Attributes);
    line.set("NET0#0", json!({"vlan": 150})).unwrap();
    server.set_filter("NET0", filter("02:00:00:00:00:55", &[], false, &[])).unwrap();
    assert_eq!(server.ports().unwrap()["NET0#0"].settings.vlan, 150);
    assert!(!server.ports().unwrap()["NET0"].inside.is_empty());
    // The same configuration again is the same guest.
    server.apply(&config).unwrap();
    assert_eq!(server.ports().unwrap()["NET0#0"].settings.vlan, 150);
    let events = server.subscribe();
    let mut other = config;
    for (name, socket) in [("NET0", "a.sock"), ("NET0#0", "b.sock")] {
        other.ports.get_mut(name).unwrap().socket = directory.path().join(socket);
    }
    server.apply(&other).unwrap();
    let ports = server.ports().unwrap();
    assert!(ports["NET0"].inside.is_empty() && ports["NET0#0"].inside.is_empty());
    assert_eq!(ports["NET0#0"].settings.vlan, 0);
    let told: Vec<Event> = events.try_iter().collect();
    for name in ["NET0", "NET0#0"] {
        let lapsed = |event: &Event| matches!(event, Event::Lapsed { port, why } if port == name && why.contains("another guest"));
        assert!(told.iter().any(lapsed), "{told:?}");
    }
}

#[test]
fn nor_does_it_where_the_switch_was_not_there_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switch.json");
    let mut config = tenant(directory.path());
    let vlan_after = |config: &Config, set: bool| {
        // On a busy machine threads of the last one may still listen.
        until(|| config.ports.values().all(|port| UnixStream::connect(&port.socket).is_err()));
        let server = Arc::new(Server::start().unwrap());
        server.begin_with(&path).unwrap();
        server.apply(config).unwrap();
        server.keep_in(&path).unwrap();
        if set {
            Line::to(&server, Rights::Attributes).set("NET0#0", json!({"vlan": 150})).unwrap();
        }
        server.ports().unwrap()["NET0#0"].settings.vlan
    };
    assert_eq!(vlan_after(&config, true), 150);
    assert_eq!(vlan_after(&config, false), 150, "the same guest");
    config.ports.get_mut("NET0#0").unwrap().socket = directory.path().join("b.sock");
    assert_eq!(vlan_after(&config, false), 0);
}

#[test]
fn a_request_from_inside_is_short_and_so_is_what_is_told_of_it() {
    let (_directory, server, config) = rigged();
    let events = server.subscribe();
    let mut line = Line::to(&server, Rights::Attributes);
    let endless = |part: &str, length: usize| part.repeat(length / part.len());
    // As many VLANs as there are, and the same over and over.
    let began = Instant::now();
    for _ in 0..20 {
        line.set("NET0#0", json!({"trunk": endless("0-4094,", 60_000)})).unwrap_err();
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    line.set("NET0#0", json!({"mac": endless("a", 60_000)})).unwrap_err();
    let told: Vec<Event> = events.try_iter().collect();
    assert!(told.len() >= 21, "{}", told.len());
    for event in told {
        let Event::Refused { text, .. } = event else { panic!("nothing was set") };
        assert!(text.len() < 1000, "{}", text.len());
    }
    // Longer than any request.
    let mut stream = line.answers.get_ref();
    stream.write_all(endless("0-4094,", 70_000).as_bytes()).unwrap();
    let mut answer = String::new();
    line.answers.read_line(&mut answer).unwrap();
    assert!(answer.contains("longer than 65536 bytes"), "{answer}");
    assert_eq!(server.config(), config);
}

#[test]
fn who_comes_again_and_again_is_held_back_as_one() {
    let (directory, server, _config) = rigged();
    let path = directory.path().join("line");
    control::serve(&path, Arc::clone(&server), Rights::Attributes, Access::default()).unwrap();
    let began = Instant::now();
    for connection in 0..15 {
        let mut line = Line { answers: BufReader::new(UnixStream::connect(&path).unwrap()) };
        for number in 0..100 {
            line.set("NET0#0", json!({"max_tx_rate": 100 + (connection + number) % 7})).unwrap();
        }
    }
    // 1,024 at once, and one more each 5 ms.
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
}
