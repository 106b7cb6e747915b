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
    assert_eq!(outcomes(&right), ["a servers: pass", "a search: pass", "b servers: pass", "b search: pass"]);
    let other = judged(Some("nameserver 192.0.2.53\n"), Some("nameserver 127.0.0.54\n"), |_| {});
    assert_eq!(outcomes(&other), ["a servers: fail", "a search: fail", "b servers: fail", "b search: pass"]);
    assert_eq!(other[1].1, "none");
    let more = judged(Some(&format!("nameserver 203.0.113.66\n{RIGHT}domain evil.example\n")), None, |_| {});
    assert_eq!(outcomes(&more)[..2], ["a servers: fail", "a search: fail"]);
    assert_eq!(more[0].1, "203.0.113.66 192.0.2.53 2001:db8::0:53");
}

/// A resolver asks a server on the guest itself then, and that is known.
#[test]
fn a_file_that_is_not_there_is_a_difference() {
    let gone = judged(None, None, |_| {});
    assert_eq!(outcomes(&gone), ["a servers: fail", "a search: fail", "b servers: fail", "b search: fail"]);
    assert!(gone.iter().all(|(_, seen)| seen == "there is no /etc/resolv.conf"), "{gone:?}");
}

#[test]
fn a_domain_that_the_model_does_not_have_is_a_difference() {
    let stub = "nameserver 127.0.0.53\n";
    let foreign = judged(Some(RIGHT), Some(&format!("{stub}search evil.example\n")), |_| {});
    assert_eq!(outcomes(&foreign)[2..], ["b servers: pass", "b search: fail"]);
    assert_eq!(foreign[3].1, "evil.example");
    let none = judged(Some(RIGHT), Some(&format!("{stub}search .\n")), |_| {});
    assert_eq!(
        none[3],
        ("b search: pass".to_owned(), "none".to_owned()),
        "systemd-resolved writes so that it has none"
    );
}

/// Its root may have written anything.
#[test]
fn a_hostile_file_is_shown_in_few_printable_words() {
    let text = format!("nameserver \u{1b}[2J{}\nsearch {}\n", "x".repeat(9000), "a ".repeat(5000));
    let seen = judged(Some(&text), None, |_| {});
    assert_eq!(outcomes(&seen)[..2], ["a servers: fail", "a search: fail"]);
    assert!(seen.iter().all(|(_, seen)| seen.len() < 100 && !seen.contains(char::is_control)), "{seen:?}");
    // What cannot be seen of a word is not passed over: it would look like the one that is wanted.
    let seen = judged(
        Some("nameserver 192.0.2.53\r\nnameserver 2001:db8::53\nsearch lab\u{202e}.example\n"),
        None,
        |_| {},
    );
    assert_eq!(outcomes(&seen)[..2], ["a servers: fail", "a search: fail"]);
    assert_eq!(seen[0].1, "192.0.2.53\u{fffd} 2001:db8::53");
    assert_eq!(seen[1].1, "lab\u{fffd}.example");
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
    let closed = judged(None, Some("nameserver 127.0.0.53\n"), |world| {
        world.said.insert("a".to_owned(), GuestAnswer::Closed("its agent does not answer"));
    });
    assert_eq!(
        outcomes(&closed),
        ["a servers: unknown", "a search: unknown", "b servers: pass", "b search: pass"]
    );
    assert!(closed[0].1.contains("its agent does not answer"), "{closed:?}");
}
