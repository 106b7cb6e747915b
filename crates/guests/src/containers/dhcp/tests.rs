//! What a client inside runs, by itself, with an `ip` that notes what it is asked for; and starts whose lease is late.

use std::collections::BTreeMap;

use penstock_host::{InterfaceReport, Output, files};

use super::*;

/// A container's client and its event script.
struct Event {
    directory: tempfile::TempDir,
    client: &'static str,
    refuses: &'static str,
}

impl Event {
    /// Its `ip` refuses what matches these patterns of the shell.
    fn new(client: &'static str, refuses: &'static str) -> Event {
        Event { directory: tempfile::tempdir().unwrap(), client, refuses }
    }

    /// What is asked of `ip` when this happens, whether the script was content, and what it has noted.
    fn happens(&self, what: &str, variables: &[(&str, &str)]) -> (Vec<String>, bool, String) {
        let (at, client, refuses) = (self.directory.path().display(), self.client, self.refuses);
        let head = format!(
            "ip() {{ case \"$*\" in {refuses}) return 2 ;; esac; printf '%s\\n' \"$*\" >>{at}/asked; }}\n\
             client={client} interface=eth0 metric=1024 resolver=yes fixed='192.0.2.1 192.0.2.2' resolv={at}/resolv\n\
             note={at}/note new={at}/new log={at}/log\n{EVENT}"
        );
        files::remove_file(self.directory.path().join("asked")).unwrap();
        let mut command = Command::new("/bin/sh").args(["-c", &head, "sh"]);
        for (name, value) in variables {
            command = command.env(*name, *value);
        }
        let command = match client {
            "dhclient" | "dhcpcd" => command.env("reason", what),
            _ => command.arg(what),
        };
        let output = command.run().unwrap();
        assert_eq!(output.errors(), "");
        let asked = self.file("asked").lines().map(str::to_owned).collect();
        (asked, output.status.success(), self.file("note"))
    }

    fn file(&self, name: &str) -> String {
        files::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }
}

const LEASE: [(&str, &str); 4] =
    [("ip", "10.0.0.5"), ("mask", "24"), ("router", "10.0.0.1"), ("lease", "120")];

/// The answer above with other values.
fn with<'a>(others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut all: BTreeMap<&str, &str> = LEASE.into_iter().collect();
    all.extend(others.iter().copied());
    all.into_iter().filter(|(_, value)| *value != "-").collect()
}

#[test]
fn an_address_is_there_for_as_long_as_its_lease() {
    let event = Event::new("udhcpc", "none");
    let address = "-4 address replace 10.0.0.5/24 brd + dev eth0 valid_lft 120 preferred_lft 120 metric 1024";
    let route = "-4 route replace default via 10.0.0.1 dev eth0 src 10.0.0.5 metric 1024";
    let note = "lease udhcpc 10.0.0.5/24 10.0.0.1\n";
    let bound = (vec![address.to_owned(), route.to_owned()], true, note.to_owned());
    assert_eq!(event.happens("bound", &LEASE), bound);
    assert_eq!(event.happens("renew", &LEASE), bound);

    // Another address, and no router any more.
    let (asked, content, note) = event.happens("renew", &with(&[("ip", "10.0.0.6"), ("router", "-")]));
    let wanted = [
        "-4 route del default dev eth0 metric 1024",
        "-4 address del 10.0.0.5/24 dev eth0",
        "-4 address replace 10.0.0.6/24 brd + dev eth0 valid_lft 120 preferred_lft 120 metric 1024",
        "-4 route del default dev eth0 metric 1024",
    ];
    assert!(asked == wanted && content && note == "lease udhcpc 10.0.0.6/24 none\n", "{asked:?} {note}");
    let (asked, content, note) = event.happens("deconfig", &[]);
    assert!(asked == [wanted[0], "-4 address del 10.0.0.6/24 dev eth0"] && content && note.is_empty());

    for (seconds, told) in [("4294967295", "forever"), ("-", "3600")] {
        let (asked, ..) = event.happens("bound", &with(&[("lease", seconds)]));
        assert!(asked[0].contains(&format!("valid_lft {told} preferred_lft {told}")), "{asked:?}");
    }

    // dhclient has names of its own; dhcpcd does it all itself.
    let theirs = [
        ("new_ip_address", "10.0.0.5"),
        ("new_subnet_mask", "255.255.240.0"),
        ("new_routers", "10.0.0.1"),
        ("new_dhcp_lease_time", "60"),
    ];
    let (asked, content, note) = Event::new("dhclient", "none").happens("BOUND", &theirs);
    assert!(asked[0].contains("10.0.0.5/20 brd + dev eth0 valid_lft 60"), "{asked:?}");
    assert!(content && note == "lease dhclient 10.0.0.5/20 10.0.0.1\n", "{note}");
    let (asked, content, note) = Event::new("dhcpcd", "none").happens("BOUND", &theirs);
    assert!(asked.is_empty() && content && note == "lease dhcpcd 10.0.0.5/20 10.0.0.1\n", "{asked:?} {note}");
}

/// A single address, as hosters lease it, whose router is in no network of it.
#[test]
fn a_router_off_the_link_is_reached_all_the_same() {
    let event = Event::new("udhcpc", "*onlink*) ;; *via*");
    let (asked, content, note) = event.happens("bound", &with(&[("mask", "32")]));
    let route = "-4 route replace default via 10.0.0.1 dev eth0 src 10.0.0.5 metric 1024 onlink";
    assert!(asked.last().is_some_and(|last| last == route), "{asked:?}");
    assert!(content && note == "lease udhcpc 10.0.0.5/32 10.0.0.1\n", "{note}");

    // One that cannot be set is noted: `verify` misses the route.
    let event = Event::new("udhcpc", "*via*");
    let (_, content, note) = event.happens("bound", &LEASE);
    assert!(content && note == "lease udhcpc 10.0.0.5/24 10.0.0.1\n", "{note}");
    assert!(event.file("log").contains("the router 10.0.0.1 cannot be set"));
}

#[test]
fn what_no_host_can_have_is_not_taken() {
    for (name, value, why) in [
        ("ip", "192.0.2.2", "an address that the model gives"),
        ("ip", "0.0.0.0", "none that a host may have"),
        ("ip", "127.0.0.1", "none that a host may have"),
        ("ip", "224.0.0.1", "none that a host may have"),
        ("ip", "10.0.0.256", "none that a host may have"),
        ("ip", "10.0.0.1 x", "none that a host may have"),
        ("ip", "10.0.0", "none that a host may have"),
        ("mask", "1", "no length"),
        ("mask", "33", "no length"),
        ("mask", "255.0.255.0", "no length"),
        ("mask", "128.0.0.0", "no length"),
        ("lease", "0", "for no time"),
        ("lease", "12;34", "for no time"),
    ] {
        let event = Event::new("udhcpc", "none");
        let (asked, content, note) = event.happens("bound", &with(&[(name, value)]));
        assert!(asked.iter().all(|line| !line.contains("replace")), "{name} {value}: {asked:?}");
        assert!(!content && note.is_empty(), "{name} {value}: {note}");
        assert!(event.file("log").contains(why), "{name} {value}: {}", event.file("log"));
    }
    // dhcpcd has set it by itself, and nothing else is there beside it.
    let event = Event::new("dhcpcd", "none");
    let (asked, content, note) =
        event.happens("BOUND", &[("new_ip_address", "10.0.0.5"), ("new_subnet_cidr", "1")]);
    assert!(asked.contains(&"-4 address flush dev eth0 scope global".to_owned()), "{asked:?}");
    assert!(!content && note.is_empty() && event.file("log").contains("no length"), "{}", event.file("log"));
    // The lease that was is lost with the answer that took its place.
    let event = Event::new("udhcpc", "none");
    event.happens("bound", &LEASE);
    let (asked, ..) = event.happens("renew", &with(&[("ip", "192.0.2.1")]));
    assert!(asked.contains(&"-4 address del 10.0.0.5/24 dev eth0".to_owned()), "{asked:?}");

    for (router, noted) in [("0.0.0.0 10.0.0.2", "10.0.0.2"), ("255.255.255.255", "none"), ("a;b", "none")] {
        let (_, content, note) = Event::new("udhcpc", "none").happens("bound", &with(&[("router", router)]));
        assert!(content && note == format!("lease udhcpc 10.0.0.5/24 {noted}\n"), "{router}: {note}");
    }
    // Without a mask it is that of the address's class.
    for (address, length) in [("10.0.0.5", 8), ("172.16.0.5", 16), ("192.168.0.5", 24)] {
        let (_, _, note) =
            Event::new("udhcpc", "none").happens("bound", &with(&[("ip", address), ("mask", "-")]));
        assert!(note.starts_with(&format!("lease udhcpc {address}/{length} ")), "{note}");
    }
    // Without lifetimes there is no address.
    let (_, content, note) = Event::new("udhcpc", "*valid_lft*").happens("bound", &LEASE);
    assert!(!content && note.is_empty());
    // A metric of the address can be missing.
    let (asked, content, _) = Event::new("udhcpc", "*metric*").happens("bound", &with(&[("router", "-")]));
    assert!(asked[0].ends_with("preferred_lft 120") && content, "{asked:?}");
}

/// A client asks for as long as the container runs: what it says of that must not grow.
#[test]
fn what_is_said_of_each_question_takes_the_place_of_the_last() {
    for (client, what) in
        [("udhcpc", "leasefail"), ("busybox", "nak"), ("dhclient", "FAIL"), ("dhcpcd", "NAK")]
    {
        let event = Event::new(client, "none");
        let log = event.directory.path().join("log");
        files::write_atomic_mode(log, "a line\n".repeat(100), 0o644).unwrap();
        assert!(event.happens(what, &[]).1);
        assert!(
            event.file("log").ends_with("and it is asked again\n") && event.file("log").lines().count() == 1
        );
    }
}

#[test]
fn names_are_taken_that_are_names() {
    for (client, search, domain, wanted) in [
        ("udhcpc", "lab.example -a.example lan.", "x", "search lab.example lan\n"),
        // What busybox makes of what it does not like.
        ("udhcpc", "-", "bad", ""),
        ("busybox", "-", "bad", ""),
        ("udhcpc", "-", "lan", "search lan\n"),
        ("udhcpc", "-", "$(touch /tmp/x) ;x", ""),
    ] {
        let event = Event::new(client, "none");
        let dns = "10.0.0.53 0.0.0.0 x 10.0.0.54";
        event.happens("bound", &with(&[("search", search), ("domain", domain), ("dns", dns)]));
        let text = format!("# Of the lease of eth0.\nnameserver 10.0.0.53\nnameserver 10.0.0.54\n{wanted}");
        assert_eq!(event.file("resolv"), text);
    }
}

/// What is inside a container: these files, and a shell that ends or does not.
struct Inside(BTreeMap<&'static str, &'static str>);

impl Place for Inside {
    fn describe(&self) -> String {
        "inside a".to_owned()
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        let source = ProcessError::TimedOut { command: command.to_string(), after: SHELL, left: None };
        Err(PlaceError::Process { place: self.describe(), source })
    }

    fn read(&self, path: &str, _: usize) -> Result<Vec<u8>, PlaceError> {
        let gone = || PlaceError::Gone { place: self.describe(), why: "no such file".to_owned() };
        self.0.get(path).map(|text| text.as_bytes().to_vec()).ok_or_else(gone)
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        Ok(Vec::new())
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Ok(None)
    }
}

#[test]
fn a_lease_that_is_late_is_waited_for_and_ends_no_start() {
    let (guest, eth0) = ("a".parse().unwrap(), "eth0".parse().unwrap());
    let mut files = BTreeMap::from([
        ("/run/penstock-dhcp/pid.eth0", "77"),
        ("/proc/77/cmdline", "udhcpc\0-f"),
        ("/run/penstock-dhcp/log.eth0", "one\ntwo\n\u{1b}[2Jthree\nfour\n"),
    ]);
    let wait = |files: &BTreeMap<_, _>| {
        let began = Instant::now();
        let place = Inside(files.clone());
        (await_lease(&place, &guest, &eth0, began, began + LOOK), began.elapsed())
    };
    let (late, took) = wait(&files);
    assert!(late.is_ok() && took >= LOOK, "{late:?}");
    // A client that cannot run is no server that is late.
    files.remove("/proc/77/cmdline");
    let ended = wait(&files).0.unwrap_err().to_string();
    assert!(
        ended.contains(
            "nobody asks for a lease of its interface eth0: its DHCP client has ended: two; [2Jthree; four"
        ),
        "{ended}"
    );
    files.insert("/run/penstock-dhcp/lease.eth0", "lease udhcpc 10.0.0.5/24 none\n");
    assert!(wait(&files).0.is_ok());

    let silent = start_client(&Inside(BTreeMap::new()), &eth0, 1024, true, "");
    assert!(matches!(silent, Err(Unstarted::Silent)), "{silent:?}");
}
