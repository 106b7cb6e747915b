use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;

/// Shown everything, then redacted.
fn redacted(text: &str) -> String {
    let mut redactor = Redactor::default();
    redactor.learn(text);
    redactor.file(text)
}

#[test]
fn what_tells_of_a_machine_goes() {
    for (text, shown) in [
        ("inet 10.20.30.4/24 brd 10.20.30.255 scope", "inet 192.0.2.1/24 brd 192.0.2.255 scope"),
        ("10.0.0.1:5201 10.0.1.1 10.0.0.2", "192.0.2.1:5201 198.51.100.1 192.0.2.2"),
        ("IP 10.0.0.1.5201 > 10.0.0.2.80:", "IP 192.0.2.1.5201 > 192.0.2.2.80:"),
        ("-H10.0.0.1", "-H192.0.2.1"),
        ("10.20.30.0/24", "192.0.2.0/24"),
        (
            "link/ether 0c:c4:7a:9a:61:ea brd ff:ff:ff:ff:ff:ff",
            "link/ether 02:00:5e:00:00:01 brd ff:ff:ff:ff:ff:ff",
        ),
        ("0C-C4-7A-9A-61-EA", "02-00-5e-00-00-01"),
        ("0c:c4:7a:9a:61:ea is enx0cc47a9a61ea", "02:00:5e:00:00:01 is enx02005e000001"),
        (
            "0c:c4:7a:9a:61:ea {0x0c, 0xc4, 0x7a, 0x9a, 0x61, 0xea}",
            "02:00:5e:00:00:01 {0x02, 0x00, 0x5e, 0x00, 0x00, 0x01}",
        ),
        ("client id 01:0c:c4:7a:9a:61:ea", "client id 01:02:00:5e:00:00:01"),
        ("inet6 fe80::ec4:7aff:fe9a:61ea/64 scope", "inet6 2001:db8::1/64 scope"),
        ("inet6 addr:fd00:1::5, fd00:1::6, fd00:1::", "inet6 addr:2001:db8::1, 2001:db8::2, 2001:db8::"),
        ("[fe80::1%eth0]:5201", "[2001:db8::1%eth0]:5201"),
        ("::ffff:10.0.0.1", "2001:db8::1"),
        ("eth0:fe80::1", "eth0:2001:db8::1"),
        ("solicits ff02::1:ff9a:61ea", "solicits 2001:db8::1"),
        (
            "{\"stdout\":\"a\\n10.0.0.1\\t0c:c4:7a:9a:61:ea\\nfe80::1\"}",
            "{\"stdout\":\"a\\n192.0.2.1\\t02:00:5e:00:00:01\\n2001:db8::1\"}\n",
        ),
        (
            "broken {\\n10.0.0.1\\t0c:c4:7a:9a:61:ea\\nfe80::1",
            "broken {\\n192.0.2.1\\t02:00:5e:00:00:01\\n2001:db8::1",
        ),
        ("Linux xeon-d 6.1.0-13-amd64 #1 SMP", "Linux host-1 6.1.0-13-amd64 #1 SMP"),
        (
            "{\"system_info\":\"Linux xeon-d.example.com 6.1.0\", \"b\": \"xeon-d login:\"}",
            "{\"b\":\"host-1 login:\",\"system_info\":\"Linux host-1 6.1.0\"}\n",
        ),
        (
            "{\"hostname\" : \"db7\", \"run\": \"runs/db7-20261121\"}",
            "{\"hostname\":\"host-1\",\"run\":\"runs/host-1-20261121\"}\n",
        ),
        ("out {\\\"hostname\\\" : \\\"db7\\\"}", "out {\\\"hostname\\\" : \\\"host-1\\\"}"),
        (
            "\"connecting_to\": {\"host\": \"peer7\", \"port\": 5201}",
            "\"connecting_to\": {\"host\": \"host-1\", \"port\": 5201}",
        ),
        ("penstock measure /home/jane/m.yaml; jane", "penstock measure /home/user-1/m.yaml; user-1"),
        ("root@xeon-d:~# ls", "root@host-1:~# ls"),
        ("enx0cc47a9a61ea wlx0cc47a9a61eb", "enx02005e000001 wlx02005e000002"),
        ("\\nenx0cc47a9a61ea-TxRx-0 of wwx0cc47a9a61ea", "\\nenx02005e000001-TxRx-0 of wwx02005e000001"),
        ("HOSTNAME=xeon-d and XEON-D, Xeon-D.corp", "HOSTNAME=host-1 and host-1, host-1"),
    ] {
        assert_eq!(redacted(text), shown, "{text}");
        assert_eq!(redacted(shown), shown, "redacted again");
    }
}

#[test]
fn what_tells_nothing_stays() {
    for text in [
        "127.0.0.1 0.0.0.0 255.255.255.0 255.255.255.255 192.0.2.7 198.51.100.1 203.0.113.9 224.0.0.251 240.0.0.0",
        "::1 :: ff02::1 ff02::2 2001:db8:7::1",
        "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 02:00:5e:00:00:09",
        "12:34:56 2026-11-21T12:34:56.789Z 0000:04:00.0 00:1f.6 1:2:3",
        "iperf 3.12.1.2, version 3.12.1.2, v3.12.1.2, \"version\":\t\"3.12.1.2\", 3.12.1.2-4+deb12u1, fio-3.33.1.2",
        "3.12 3.12.1 1.3.6.1.4.1.2021 1.2.3 256.1.1.1 0.95 1e9",
        "std::net::Ipv4Addr vf-vf inside udp stream 128B a:NET0#0>b:NET1#0",
        "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
        "Linux version 6.1.0 Last login: Fri, Started serial-getty@ttyS0.service - Serial Getty, hostname of it",
        "0x0c, 0xc4, 0x7a, 0x9a, 0x61, 0xea, which may be anything",
        "tenx0cc47a9a61ea enx0cc47a9a61eaz",
        // Numbers, times, commits with a letter before them, addresses in memory, what is longer or shorter.
        "123456789012 20261130164 202611301647 1.123456789e12 -3.14159265358e12 6.12.0-rc1-00012-g0cc47a9a61ea",
        "7f0c4a5b6000-7f0c4a5b8000 r-xp, 55d0c4a5b600, at 0x0cc47a9a61ea, 0cc47a9a61eaf 0cc47a9a61e z0cc47a9a61ea",
        "address of 123456789012 bytes; macro 123456789012; 000000000000 mac=ffffffffffff",
    ] {
        assert_eq!(redacted(text), text);
    }
}

/// What stood in logs and consoles of real machines, and what must not be left of it.
const PLANTED: &[(&str, &[&str])] = &[
    (
        "IN=eth0 OUT= MAC=0c:c4:7a:9a:61:ea:3c:ec:ef:01:02:03:08:00 SRC=10.0.0.1",
        &["0c:c4", "61:ea", "3c:ec", "02:03"],
    ),
    ("neighbour 0c:c4:7a:9a:61:ea:5201 answers", &["0c:c4:7a", "61:ea"]),
    ("learned 0cc4.7a9a.61ea on Gi1/0/1", &["0cc4", "61ea"]),
    ("eui 0cc47afffe9a61ea", &["0cc47a", "9a61ea"]),
    ("Device Serial Number 0c-c4-7a-ff-ff-9a-61-ea", &["0c-c4", "7a-ff", "61-ea"]),
    ("[jane@xeon-d ~]$ ls", &["jane", "xeon-d"]),
    ("xeon-d:~ # ls", &["xeon-d"]),
    ("jane@xeon-d:~> ls", &["jane", "xeon-d"]),
    ("\u{1b}[01;32mjane@xeon-d\u{1b}[00m:\u{1b}[01;34m~\u{1b}[00m$ ls", &["jane", "xeon-d"]),
    ("Nov 21 12:34:56 xeon-d sshd[123]: error", &["xeon-d"]),
    ("2026-11-21T12:34:56.789+00:00 xeon-d kernel: up", &["xeon-d"]),
    ("<13>Nov  1 12:34:56 xeon-d penstock: up", &["xeon-d"]),
    ("Accepted publickey for jane from 10.0.0.1 port 22 ssh2: ED25519", &["jane", "10.0.0.1"]),
    ("pam_unix(sshd:session): session opened for user jane(uid=1000)", &["jane"]),
    ("search corp.example.com lab.example.com", &["corp.example", "lab.example"]),
    ("Linux xeon-d 6.1.0\nxeon-d.rack7.corp answers", &["xeon-d", "rack7", "corp"]),
    ("quiet ip=10.0.0.5::10.0.0.1:255.255.255.0:xeon-d:eth0:off", &["xeon-d", "10.0.0.5"]),
    ("Serial Number: S675NX0T123456", &["S675NX0T123456"]),
    ("/dev/disk/by-id/nvme-SAMSUNG_MZVL2512_S675NX0T123456-part1", &["S675NX0T123456"]),
    ("nvme-eui.0025388b11b2b7f5 and eui.0025388b11b2b7f5", &["0025388b11b2b7f5"]),
    (
        "product_serial=A123456789 product_uuid=4c4c4544-0035-3510-8052-b4c04f4e5931",
        &["A123456789", "4c4c4544", "5931"],
    ),
    ("machine-id 4d2b6c1f0a9e4f7c8b3a5d6e7f809112", &["4d2b6c1f"]),
    ("root=UUID=550e8400-e29b-41d4-a716-446655440000 ro", &["550e8400", "446655440000"]),
    ("Linux XEON-D 6.1.0\nxeon-d.local answers, and so does Xeon-D", &["xeon-d", "Xeon-D", "XEON-D"]),
    ("Hostname: xeon-d\nxeon-d answers", &["xeon-d"]),
    ("HOSTNAME=xeon-d\nping xeon-d", &["xeon-d"]),
    ("_Hostname: xeon-d, NodeName=db7", &["xeon-d", "db7"]),
    ("logname: jane, by Jane", &["jane", "Jane"]),
    ("serial Number: s675nx0t123456, S675NX0T123456", &["s675nx0t123456", "S675NX0T123456"]),
    ("{\"SN\": \"S675NX0T123456\"}", &["S675NX0T123456"]),
    ("{\"connecting_to\": {\"host\": \"peer7\"}, \"Domain\": \"corp.lan\"}", &["peer7", "corp.lan"]),
    ("2: enx0cc47a9a61ea: <BROADCAST> and wlx3cecef010203, wwx3cecef010204", &["0cc47a", "3cecef"]),
    ("{\"ID_SERIAL_SHORT\": \"S675NX0T123456\", \"disk\": \"S675NX0T123456\"}", &["S675NX0T123456"]),
    ("of 0cc47a9a61ea, 0CC47A9A61EB.lease, dhcp-0cc47a9a61ec", &["0cc47a", "0CC47A"]),
    ("mac 001122334455, MAC=001122334456; hwaddr: '001122334457'", &["0011223344"]),
    ("MAC address 001122334455, \\\"lladdr\\\": \\\"001122334456\\\"", &["0011223344"]),
    ("{\"perm_mac\": \"001122334455\", \"told\": \"of 001122334455\"}", &["001122334455"]),
];

#[test]
fn nothing_is_left_of_what_was_planted() {
    let mut left = Vec::new();
    for (text, gone) in PLANTED {
        let shown = redacted(text);
        left.extend(gone.iter().filter(|gone| shown.contains(**gone)).map(|gone| format!("{gone}: {shown}")));
        assert_eq!(redacted(&shown), shown, "redacted again");
    }
    assert!(left.is_empty(), "{}", left.join("\n"));
}

#[test]
fn what_is_the_same_stays_the_same() {
    for (text, shown) in [
        (
            "0c:c4:7a:9a:61:ea 0cc4.7a9a.61ea 0cc47afffe9a61ea 0c-c4-7a-ff-ff-9a-61-ea",
            "02:00:5e:00:00:01 0200.5e00.0001 02005efffe000001 02-00-5e-ff-ff-00-00-01",
        ),
        (
            "4c4c4544-0035-3510-8052-b4c04f4e5931 4C4C454400353510 8052 4c4c4544003535108052b4c04f4e5931",
            "00000000-0000-4000-8000-000000000001 4C4C454400353510 8052 00000000000040008000000000000001",
        ),
    ] {
        assert_eq!(redacted(text), shown, "{text}");
    }
}

#[test]
fn what_is_learnt_later_counts_for_texts_that_were_shown_before() {
    let mut redactor = Redactor::default();
    assert_eq!(redactor.text("of 001122334455"), "of 001122334455");
    assert_eq!(redactor.text("00:11:22:33:44:55"), "02:00:5e:00:00:01");
    assert_eq!(redactor.text("of 001122334455"), "of 02005e000001");
    assert_eq!(redactor.text("at xeon-d"), "at xeon-d");
    redactor.learn(r#"{"hostname": "xeon-d", "note": "xeon-d"}"#);
    assert_eq!(redactor.text("at xeon-d"), "at host-1");
    redactor.learn(r#"["jane@ship"]"#);
    assert_eq!(redactor.text("ship"), "host-2");
    redactor.learn(r#"["jane@ship"]"#);
    assert_eq!(redactor.text("jane@ship"), "user-1@host-2");
}

#[test]
fn a_version_that_is_an_address_elsewhere_is_one() {
    assert_eq!(redacted("version 10.1.2.3 of 10.1.2.3"), "version 192.0.2.1 of 192.0.2.1");
}

#[test]
fn a_pseudonym_never_is_an_address_that_is_there() {
    assert_eq!(
        redacted("192.0.2.1 10.0.0.1 2001:db8::1 fe80::1"),
        "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2"
    );
    let many: Vec<String> = (0..900).map(|n| format!("10.{}.{}.7", n / 250, n % 250)).collect();
    let shown = redacted(&many.join(" "));
    let distinct: std::collections::BTreeSet<&str> = shown.split(' ').take(500).collect();
    assert_eq!(distinct.len(), 500);
    assert!(!shown.split(' ').any(|address| address.starts_with("10.")), "{shown}");
}

fn evidence() -> Evidence {
    let mut evidence = Evidence::default();
    evidence.run.id = "xeon-d-20261121".into();
    evidence.run.command = vec!["/home/jane/penstock".into(), "measure".into()];
    evidence.hashes.model = Some("0".repeat(64));
    evidence.versions.commit = Some("0cc47a9a61ea".into());
    evidence.machine.name = "xeon-d".into();
    evidence.model.text = "nics: {NET0: {match: {mac: 0c:c4:7a:9a:61:ea}}}\n".into();
    let json = r#"[{"name":"osd-0","kind":"container","functions":
        [{"function":"NET0#0","interface":"eth0","addresses":["10.20.30.4/24"]}]}]"#;
    evidence.machine.guests = serde_json::from_str(json).unwrap();
    evidence.serial_log = Some("Linux xeon-d 6.1\nLinux osd-0 6.1\n0c:c4:7a:9a:61:ea\n".into());
    evidence
}

#[test]
fn evidence_stays_evidence_with_its_guests_and_hashes() {
    let original = evidence();
    let mut redactor = Redactor::new(&original, false);
    let shown = redactor.evidence(&original).unwrap();
    assert_eq!(shown.hashes, original.hashes);
    assert_eq!(shown.versions.commit, original.versions.commit);
    assert_eq!(shown.run.id, "host-1-20261121");
    assert_eq!(shown.machine.name, "host-1");
    assert_eq!(shown.machine.guests[0].name.as_str(), "osd-0");
    assert_eq!(shown.machine.guests[0].functions[0].addresses[0].to_string(), "192.0.2.1/24");
    assert_eq!(shown.serial_log.as_deref(), Some("Linux host-1 6.1\nLinux osd-0 6.1\n02:00:5e:00:00:01\n"));
    assert_eq!(shown.notes, [NOTE]);
    let again = Redactor::new(&shown, false).evidence(&shown).unwrap();
    assert_eq!(again, shown);
}

#[test]
fn a_commit_stays_where_it_is_called_one_and_is_counted_for_no_address() {
    let text = r#"{"commit": "0cc47a9a61ea", "mac": "0c:c4:7a:9a:61:eb"}"#;
    assert_eq!(redacted(text), "{\"commit\":\"0cc47a9a61ea\",\"mac\":\"02:00:5e:00:00:01\"}\n");
    assert_eq!(
        redacted(r#"{"commit": "of xeon-d, Linux xeon-d 6.1"}"#),
        "{\"commit\":\"of host-1, Linux host-1 6.1\"}\n"
    );
}

/// What `docs/reports.md` says of the two ways: to replace what has the form of something that tells of a machine, or all that is not known to
/// tell nothing. Both are tried on the evidence of runs that were kept.
#[test]
fn an_allow_list_would_take_most_words_of_runs_that_were_kept() {
    fn texts(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::String(text) => all.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|item| texts(item, all)),
            Value::Object(entries) => {
                entries.iter().filter(|(key, _)| *key != "commit").for_each(|(_, value)| texts(value, all));
            }
            _ => {}
        }
    }
    let words_of = |text: &str| -> BTreeSet<String> {
        let words =
            text.split(|c: char| !mentions::is_part(c)).map(|word| word.trim_matches(['.', '-', '_']));
        words.filter(|word| word.contains(|c: char| c.is_alphabetic())).map(str::to_owned).collect()
    };
    let known = |word: &String| {
        let word = word.to_ascii_lowercase();
        words::FORM.contains(&word.as_str()) || words::WORDS.contains(&word.as_str())
    };
    let (mut all, mut left, mut allowed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept");
    #[allow(clippy::disallowed_methods)]
    for file in std::fs::read_dir(kept).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let evidence = Evidence::from_json(&text).unwrap();
        let mut redactor = Redactor::new(&evidence, false);
        let mut of_run = Vec::new();
        texts(&serde_json::from_str(&text).unwrap(), &mut of_run);
        for text in of_run {
            let words = words_of(&text);
            let shown = words_of(&redactor.text(&text));
            left.extend(words.intersection(&shown).cloned());
            allowed.extend(words.iter().filter(|word| known(word)).cloned());
            all.extend(words);
        }
    }
    let part = |some: &BTreeSet<String>| (100 * some.len()).div_ceil(all.len());
    let gone: Vec<&String> = all.difference(&left).collect();
    println!("{} words; gone are {gone:?}; {} % are known", all.len(), part(&allowed));
    // They are of emulated boards, and tell of no machine.
    assert!(gone.is_empty(), "{gone:?}");
    assert!(part(&allowed) <= 33, "{} % are known", part(&allowed));
}

#[test]
fn names_of_guests_go_when_that_is_asked_for() {
    let mut original = evidence();
    original.machine.guests[0].name = "osd-0".parse().unwrap();
    let mut vm = original.machine.guests[0].clone();
    vm.name = "vm".parse().unwrap();
    original.machine.guests.push(vm);
    let mut redactor = Redactor::new(&original, true);
    assert_eq!(redactor.left(), ["vm"]);
    let shown = redactor.evidence(&original).unwrap();
    assert_eq!(shown.machine.guests[0].name.as_str(), "guest-1");
    assert_eq!(shown.machine.name, "machine-1");
    assert!(!shown.json().contains("osd-0") && !shown.json().contains("xeon-d"), "{}", shown.json());
    assert_eq!(redactor.guest(&original.machine.guests[0].name), "guest-1");
}

/// Every word of the evidence's form that its schema tells: its keys, and what may stand where only certain words may.
fn words_of_form(value: &Value, words: &mut BTreeSet<String>) {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Value::Object(entries) = value {
        words.extend(
            entries
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flat_map(|all| all.keys().cloned()),
        );
        words.extend(entries.get("const").and_then(text));
        words.extend(entries.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(text));
        entries.values().for_each(|value| words_of_form(value, words));
    } else if let Value::Array(items) = value {
        items.iter().for_each(|value| words_of_form(value, words));
    }
}

#[test]
fn no_name_stands_for_a_word_of_the_evidences_form() {
    let mut words = BTreeSet::new();
    words_of_form(schemars::schema_for!(Evidence).as_value(), &mut words);
    assert!(words.contains("serial_log") && words.contains("p99") && words.contains("tuned"));
    let known = |word: &String| {
        words::FORM.contains(&word.as_str()) || words::WORDS.contains(&word.to_ascii_lowercase().as_str())
    };
    let missing: Vec<&String> = words.iter().filter(|word| !known(word)).collect();
    assert!(missing.is_empty(), "words.rs has not {missing:?}");
    assert!(words::FORM.is_sorted());
    assert!(!words::FORM.concat().contains(|c: char| c.is_ascii_uppercase()));
    let original = evidence();
    for word in words.iter().map(String::as_str).chain(words::FORM.iter().copied()) {
        for written in [word.to_owned(), word.to_uppercase()] {
            let mut told = original.clone();
            told.serial_log =
                Some(format!("Linux {written} 6.1.0\nroot@{written}:~# ls /home/{written}/x\n"));
            assert!(Redactor::new(&told, false).evidence(&told).is_ok(), "a host or a user called {written}");
        }
    }
}

#[test]
fn names_that_only_their_case_tells_from_what_stays() {
    let mut original = evidence();
    original.machine.guests[0].name = "web".parse().unwrap();
    original.machine.nics = vec![serde_json::from_str(r#"{"name":"LAN"}"#).unwrap()];
    let log = |told: &str| {
        let mut original = original.clone();
        original.serial_log = Some(told.to_owned());
        let mut redactor = Redactor::new(&original, false);
        let shown = redactor.evidence(&original).unwrap();
        assert_eq!(shown.machine.guests[0].name.as_str(), "web");
        assert_eq!(shown.machine.nics[0].name.as_str(), "LAN");
        assert_eq!(redactor.left(), if told.contains("max") { vec!["max"] } else { vec![] });
        shown.serial_log.unwrap()
    };
    assert_eq!(
        log("Linux WEB 6.1\nWEB, web.data, web-1, Web"),
        "Linux host-1 6.1\nhost-1, web.data, web-1, host-1"
    );
    assert_eq!(log("Linux lan 6.1\nlan LAN"), "Linux host-1 6.1\nhost-1 LAN");
    assert_eq!(log("Linux NODE 6.1\nNODE, MAX@NODE CPU"), "Linux host-1 6.1\nhost-1, user-2@host-1 CPU");
    assert_eq!(log("/home/max/x"), "/home/max/x");
}

#[test]
fn guests_that_only_case_tells_apart_stay_apart() {
    let mut original = evidence();
    let mut other = original.machine.guests[0].clone();
    original.machine.guests[0].name = "web".parse().unwrap();
    other.name = "WEB".parse().unwrap();
    original.machine.guests.push(other);
    original.serial_log = Some("web WEB".into());
    let shown = Redactor::new(&original, true).evidence(&original).unwrap();
    assert_eq!(shown.serial_log.as_deref(), Some("guest-1 guest-2"));
}

/// Texts that would take minutes if each start of a name looked at all that follows.
#[test]
fn a_name_without_an_end_is_none_and_takes_no_time() {
    const LONG: usize = 1 << 17;
    let began = Instant::now();
    let long = "a_".repeat(LONGEST_NAME / 2 - 1) + "a-b";
    let mut redactor = Redactor::default();
    let endless = format!("hostname={}\n", "a-".repeat(LONG / 2));
    redactor.learn(&endless);
    redactor.learn(&format!("hostname=bb.{}\n", "c.".repeat(LONG / 2)));
    redactor.learn(&format!("hostname={long}\nhostname=db7\n"));
    assert_eq!(redactor.names.longest(), long.len());
    assert_eq!(redactor.text(&long), "host-2");
    let word = "a_".repeat(LONG / 2);
    assert_eq!(redactor.text(&format!("db7 {word}")), format!("host-3 {word}"));
    for piece in ["eui.", "uuid.", "wwn-0x", "a@", "ip=", "hostname=", "/by-id/", "sudo: "] {
        redactor.learn(&piece.repeat(LONG / 2 / piece.len()));
    }
    assert!(redactor.names.longest() <= LONGEST_NAME);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_longest_name_that_is_there_is_found(
        names in prop::collection::vec("[ab\u{e9}][ab\u{e9}._-]{1,6}", 1..12), text in "[abAB\u{e9}._-]{1,24}",
    ) {
        let mut all = Names::default();
        names.iter().for_each(|name| _ = all.give("host", name));
        let folded = text.to_ascii_lowercase();
        for (at, _) in text.char_indices() {
            let alone = |name: &str| {
                let ends = folded[at..].strip_prefix(name).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
                ends && !text[..at].ends_with(char::is_alphanumeric)
            };
            let longest = names.iter().filter(|name| alone(name)).max_by_key(|name| name.len());
            prop_assert_eq!(all.begins(&text, &folded, at).map(|(name, _)| name), longest);
        }
    }
}

/// An address of a real machine, as text writes it.
fn address() -> impl Strategy<Value = String> {
    let mac = |separator: &'static str| any::<[u8; 6]>().prop_map(move |octets| mac_text(octets, separator));
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Ipv4Addr::from(octets).to_string()),
        any::<[u8; 16]>().prop_map(|octets| Ipv6Addr::from(octets).to_string()),
        (any::<u16>(), any::<u16>()).prop_map(|(a, b)| format!("fe80::{a:x}:{b:x}")),
        mac(":"),
        mac("-"),
    ]
}

/// Whether it may stay.
fn plain(address: &str) -> bool {
    if let Ok(v4) = address.parse() {
        return pseudonyms::v4_is_plain(v4);
    }
    if let Ok(v6) = address.parse() {
        return pseudonyms::v6_is_plain(v6);
    }
    let octets: Vec<u8> =
        address.split([':', '-']).map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
    pseudonyms::mac_is_plain(octets.try_into().unwrap())
}

#[test]
fn what_stands_for_an_address_makes_nothing_with_what_is_before_it() {
    for text in ["n@-::2", "n@.::2", "n@_::2", "-@ₐ::2", "µ@-n@n", "n@dead::beef", "::::A"] {
        let once = redacted(text);
        assert_eq!(redacted(&once), once);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_left_and_twice_is_once(
        parts in prop::collection::vec((address(), "[ ,\n/=\\[\"(]|addr: |\\\\n|=\"|> |%eth0 "), 1..20),
    ) {
        let text: String = parts.iter().map(|(address, gap)| format!("{gap}{address} ")).collect();
        let shown = redacted(&text);
        for (address, _) in parts.iter().filter(|(address, _)| !plain(address)) {
            // As a whole: the digits of one may be part of another's pseudonym.
            let whole = shown.match_indices(address.as_str()).any(|(at, _)| {
                let inside = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.' | '-');
                !shown[..at].ends_with(inside) && !shown[at + address.len()..].starts_with(inside)
            });
            prop_assert!(!whole, "{} is left in {}", address, shown);
        }
        prop_assert_eq!(redacted(&shown), shown);
    }

    #[test]
    fn equal_stays_equal_and_different_different(all in prop::collection::vec(address(), 2..12)) {
        let mut redactor = Redactor::default();
        redactor.learn(&all.join(" "));
        let shown: Vec<String> = all.iter().map(|address| redactor.text(address)).collect();
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                let same = a.replace('-', ":") == b.replace('-', ":");
                prop_assert_eq!(same, shown[i].replace('-', ":") == shown[j].replace('-', ":"));
            }
        }
    }

    #[test]
    fn any_text_goes_through_and_twice_is_once(text in "[0-9a-fx:.,\\-\\\\n \"{}µ@/~]{0,80}|(Linux|hostname|login|/home/|[a-c.:= \"0-9]){0,12}") {
        let once = redacted(&text);
        prop_assert_eq!(redacted(&once), once);
    }

    #[test]
    fn any_evidence_stays_evidence(command in prop::collection::vec("\\PC{0,30}", 0..4), log in "\\PC{0,200}", note in address()) {
        let mut original = evidence();
        original.run.command = command;
        original.serial_log = Some(log);
        original.notes = vec![note];
        let mut redactor = Redactor::new(&original, false);
        let shown = redactor.evidence(&original).unwrap();
        prop_assert_eq!(&Evidence::from_json(&shown.json()).unwrap(), &shown);
        let again = Redactor::new(&shown, false).evidence(&shown).unwrap();
        prop_assert_eq!(again, shown);
    }
}

#[test]
fn latencies_and_audits_keep_their_form_and_tell_of_no_machine() {
    use penstock_model::audit::{Audit, AuditOutcome, Change, Layer, Remedy, Row};
    let mut original = evidence();
    // A commit may look like an address, and stays.
    original.versions.commit = None;
    original.latency = Some(
        serde_json::from_str(
            r#"{"notes":["on xeon-d, 0c:c4:7a:9a:61:ea"],"series":[{"id":"cyclictest osd-0 cpu2 idle tuned held",
            "setting":{"place":{"guest":"osd-0"},"kind":"container","cpu":2,"tool":"cyclictest","load":"idle","arm":"tuned",
            "power":"held"},"blocks":[{"start":0,"seconds":1,"counts":{"bins":{"3":5},"limit":400,"over":0},"max":3.0,
            "raw":"raw/xeon-d.json"}]}],
            "rulings":[{"claim":"latency osd-0 max < 9us","told":"holds","findings":[]}]}"#,
        )
        .unwrap(),
    );
    let row = Row {
        rule: "irqs-on-isolated".into(),
        layer: Layer::Interrupts,
        subject: "enx0cc47a9a61ea-TxRx-0".into(),
        verdict: AuditOutcome::Conflict,
        read: "irq 24 of 0c:c4:7a:9a:61:ea, serial number 0c-c4-7a-ff-ff-9a-61-ea, at 10.20.30.4".into(),
        wanted: "none".into(),
        why: String::new(),
        price: None,
        ways: vec![Remedy {
            changes: vec![Change::ByHand { what: "move 0c:c4:7a:9a:61:ea on xeon-d to another slot".into() }],
            beware: Some("xeon-d starts anew".into()),
        }],
        change: Some("echo 0-1 > /proc/irq/24/smp_affinity_list # root@xeon-d".into()),
        source: String::new(),
        needs_root: false,
    };
    let audit = Audit { rows: vec![row], ..Audit::default() };
    original.audits = Some(crate::Audits { before: Some(audit), after: None });
    for names in [false, true] {
        let shown = Redactor::new(&original, names).evidence(&original).unwrap();
        let text = shown.json();
        for told in ["xeon-d", "0c:c4", "0cc47a", "0c-c4-7a", "10.20.30.4", "9a-61-ea"] {
            assert!(!text.contains(told), "{told} stays in {text}");
        }
        assert_eq!(text.contains("osd-0"), !names);
        let latency = shown.latency.unwrap();
        assert_eq!(
            latency.series[0].bins().unwrap(),
            original.latency.as_ref().unwrap().series[0].bins().unwrap()
        );
        let guest = if names { "guest-1" } else { "osd-0" };
        assert_eq!(latency.rulings[0].expectation.to_string(), format!("latency {guest} max < 9us"));
        assert_eq!(latency.series[0].id, format!("cyclictest {guest} cpu2 idle tuned held"));
    }
}

/// None of it is looked through for each that comes: else this took minutes.
#[test]
fn many_thousand_addresses_of_a_network_have_pseudonyms_in_order() {
    let mut all = Pseudonyms::default();
    let taken = all.mac([2, 0, 0x5e, 0, 0, 2]);
    assert_eq!(all.uuid("00000000-0000-4000-8000-000000000002"), "00000000-0000-4000-8000-000000000002");
    assert_eq!(all.v6("2001:db8::2".parse().unwrap()), "2001:db8::2".parse::<Ipv6Addr>().unwrap());
    for number in 0..40_000u32 {
        let [a, b, c, d] = number.to_be_bytes();
        // One number is another's already.
        let given = if number == 0 { 1 } else { number + 2 };
        let [_, x, y, z] = given.to_be_bytes();
        assert_eq!(all.mac([0x0c, 0xc4, a, b, c, d]), [2, 0, 0x5e, x, y, z]);
        let v6 = Ipv6Addr::from(0xfe80u128 << 112 | 1 << 63 | u128::from(number));
        assert_eq!(all.v6(v6), Ipv6Addr::from(0x2001_0db8u128 << 96 | u128::from(given)));
        let uuid = all.uuid(&format!("550e8400-e29b-41d4-a716-4466{number:08x}"));
        assert_eq!(uuid, format!("00000000-0000-4000-8000-{given:012x}"));
    }
    assert_eq!(all.mac(taken), taken);
}

#[test]
fn a_text_that_is_one_run_of_octets_or_of_names_is_read_once() {
    let octet = |number: usize| format!("{:02x}", 0x10 + number % 0xe0);
    let run = |separator: &str| (0..60_000).map(octet).collect::<Vec<_>>().join(separator);
    let shown = redacted(&run("-"));
    // Its end is one, and so may anything before be.
    assert_eq!(shown.len(), run("-").len());
    assert!(
        shown.starts_with("02-00-5e-") && shown[shown.len() - 17..].starts_with("02-00-5e-"),
        "{shown:.60}"
    );
    assert!(find::addresses(&run(":")).len() >= 60_000 / 8 - 3, "all but the end are read as IPv6 addresses");
    let of_names = "fe80::1 jane@xeon-d ".repeat(30_000);
    let hosts = mentions::names(&of_names);
    let is_host = |name: &&(mentions::Kind, &str)| **name == (mentions::Kind::Host, "xeon-d");
    assert_eq!(hosts.iter().filter(is_host).count(), 30_000);
}
