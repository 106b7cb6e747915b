//! Leases of guests, as verification judges them.

use penstock_model::{Outcome, Verdict};

use super::world::{World, parse, route, world};

const MODEL: &str = r#"
nics: {NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}, vfs: 5}}
guests:
  a: {functions: [{vf: NET0#0, addresses: [dhcp, 192.0.2.1/24]}, NET0#1]}
  b: {functions: [NET0#2, NET0#3]}
"#;

/// What is said of the lease of `a`, whose interface has these addresses and whose client has noted this.
fn judged(addresses: &[&str], note: Option<&str>, change: fn(&mut World)) -> (Outcome, String) {
    let mut world = world();
    world.model = parse(MODEL);
    let eth0 = world.interface("a", "eth0");
    eth0.interface.addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    eth0.routes = Some(vec![route("0.0.0.0/0", "10.0.0.1", 1024)]);
    let file = ("a".to_owned(), "/run/penstock-dhcp/lease.eth0");
    world.files.extend(note.map(|note| (file, note.to_owned())));
    let mut file = |path, text: &str| world.files.insert(("a".to_owned(), path), text.to_owned());
    file("/run/penstock-dhcp/pid.eth0", "77\n");
    file("/proc/77/cmdline", "udhcpc\0-f\0-i\0eth0\0");
    change(&mut world);
    let verdicts = world.verify();
    let of_lease = |verdict: &&Verdict| verdict.item.as_deref() == Some("dhcp");
    let verdict = verdicts.iter().find(of_lease).expect("the lease is judged");
    (verdict.outcome, verdict.seen.clone())
}

#[test]
fn a_lease_has_its_address_and_its_route() {
    let note = Some("lease udhcpc 10.0.0.57/24 10.0.0.1\n");
    let addresses: &[&str] = &["192.0.2.1/24", "10.0.0.57/24", "fe80::1/64"];
    let seen = judged(addresses, note, |_| {});
    assert_eq!(seen, (Outcome::Pass, "10.0.0.57/24 via 10.0.0.1, by udhcpc".to_owned()));
    let seen = judged(addresses, Some("lease dhclient 10.0.0.57/255.255.255.0 none\n"), |_| {});
    assert_eq!(seen, (Outcome::Pass, "10.0.0.57/24 without a router, by dhclient".to_owned()));
    let seen = judged(addresses, note, |world| world.interface("a", "eth0").routes = Some(vec![]));
    assert_eq!(seen.0, Outcome::Fail, "{}", seen.1);
    let seen = judged(addresses, note, |world| world.interface("a", "eth0").routes = None);
    assert_eq!(seen.0, Outcome::Unknown, "{}", seen.1);
}

/// Its address stays for as long as the lease was to be, and nobody renews it.
#[test]
fn a_client_that_has_ended_is_missed() {
    let note = Some("lease udhcpc 10.0.0.57/24 10.0.0.1\n");
    let changes: [fn(&mut World); 2] = [
        |world| {
            world.files.insert(("a".to_owned(), "/proc/77/cmdline"), String::new());
        },
        |world| {
            world.files.remove(&("a".to_owned(), "/run/penstock-dhcp/pid.eth0"));
        },
    ];
    for change in changes {
        let words = "10.0.0.57/24, and nobody renews it: its client udhcpc has ended";
        assert_eq!(judged(&["10.0.0.57/24"], note, change), (Outcome::Fail, words.to_owned()));
    }
}

/// VMs note their leases elsewhere, and a container's root may write what it likes: the kernel has the last word.
#[test]
fn an_address_is_what_the_interface_has() {
    assert_eq!(
        judged(&["192.0.2.1/24", "10.0.0.57/24"], None, |_| {}),
        (Outcome::Pass, "10.0.0.57/24".to_owned())
    );
    let note = Some("lease udhcpc 10.0.0.57/24 10.0.0.1\n");
    for addresses in [&["192.0.2.1/24"][..], &["192.0.2.1/24", "169.254.7.7/16", "fd00::1/64"], &[]] {
        assert_eq!(judged(addresses, note, |_| {}), (Outcome::Fail, "no lease".to_owned()), "{addresses:?}");
    }
}
