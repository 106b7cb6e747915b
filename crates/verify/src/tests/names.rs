//! Name servers of guests, as verification judges them.

use penstock_model::{Outcome, Verdict};

use super::world::{GuestAnswer, World, parse, world};

const MODEL: &str = r#"
nics: {NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}, vfs: 5}}
guests:
  a: {functions: [NET0#0, NET0#1], dns: {servers: [192.0.2.53, "2001:db8::53"], search: [lab.example]}}
  b: {functions: [NET0#2, NET0#3], dns: {servers: 127.0.0.53}}
"#;

const RIGHT: &str = "nameserver 192.0.2.53\nnameserver 2001:db8::0:53\nsearch LAB.example\n";

/// The verdicts on name servers: `a servers: pass`, with what was seen.
fn judged(a: Option<&str>, b: Option<&str>, change: fn(&mut World)) -> Vec<(String, String)> {
    let mut world = world();
    world.model = parse(MODEL);
    for (guest, text) in [("a", a), ("b", b)] {
        world.files.extend(text.map(|text| ((guest.to_owned(), "/etc/resolv.conf"), text.to_owned())));
    }
    change(&mut world);
    let verdicts = world.verify();
    let of_names = verdicts.iter().filter(|verdict| verdict.attribute == "dns");
    let line = |verdict: &Verdict| {
        let item = verdict.item.as_deref().unwrap_or_default();
        let holds = if verdict.outcome != Outcome::Pass && verdict.holds() { " holds" } else { "" };
        (format!("{} {item}: {}{holds}", verdict.subject, verdict.outcome), verdict.seen.clone())
    };
    of_names.map(line).collect()
}

fn outcomes(judged: &[(String, String)]) -> Vec<&str> {
    judged.iter().map(|(line, _)| line.as_str()).collect()
}

#[test]
fn servers_and_domains_are_those_that_a_resolver_would_use() {
    let right = judged(Some(RIGHT), Some("nameserver 127.0.0.53\n"), |_| {});
    assert_eq!(outcomes(&right), ["a servers: pass", "a search: pass", "b servers: pass"]);
    let other = judged(Some("nameserver 192.0.2.53\n"), Some("nameserver 127.0.0.54\n"), |_| {});
    assert_eq!(outcomes(&other), ["a servers: fail", "a search: fail", "b servers: fail"]);
    assert_eq!(other[1].1, "none");
    let more = judged(Some(&format!("nameserver 203.0.113.66\n{RIGHT}domain evil.example\n")), None, |_| {});
    assert_eq!(outcomes(&more), ["a servers: fail", "a search: fail", "b servers: unknown"]);
    assert_eq!(more[0].1, "203.0.113.66 192.0.2.53 2001:db8::0:53");
}

/// Its root may have written anything.
#[test]
fn a_hostile_file_is_shown_in_few_printable_words() {
    let text = format!("nameserver \u{1b}[2J{}\nsearch {}\n", "x".repeat(9000), "a ".repeat(5000));
    let seen = judged(Some(&text), None, |_| {});
    assert_eq!(outcomes(&seen)[..2], ["a servers: fail", "a search: fail"]);
    assert!(seen.iter().all(|(_, seen)| seen.len() < 100 && !seen.contains(char::is_control)), "{seen:?}");
}

#[test]
fn systemd_resolved_is_asked_whom_it_asks() {
    let stub = Some("nameserver 127.0.0.53\noptions edns0\n");
    let seen = judged(stub, None, |_| {});
    assert_eq!(outcomes(&seen)[..2], ["a servers: unknown", "a search: unknown"], "it does not say");
    let seen = judged(stub, None, |world| {
        world.files.insert(("a".to_owned(), "/run/systemd/resolve/resolv.conf"), RIGHT.to_owned());
    });
    assert_eq!(outcomes(&seen)[..2], ["a servers: pass", "a search: pass"]);
}

#[test]
fn who_cannot_be_looked_into_is_unknown() {
    let closed = judged(None, None, |world| {
        world.said.insert("a".to_owned(), GuestAnswer::Closed("its agent does not answer"));
    });
    assert_eq!(outcomes(&closed), ["a servers: unknown", "a search: unknown", "b servers: unknown"]);
    assert!(closed[0].1.contains("its agent does not answer"), "{closed:?}");
}
