//! Names of hosts, of users and, when that is asked for, of guests: where text tells them, and what stands for them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::mentions::{self, Kind, is_part};

/// Words that the evidence's own form, or any text, is made of: a host of such a name cannot be told from them.
const WORDS: &[&str] = &[
    "localhost",
    "localdomain",
    "localhost.localdomain",
    "linux",
    "host",
    "guest",
    "root",
    "none",
    "unknown",
    "null",
    "true",
    "false",
    "name",
    "local",
    "user",
    "home",
    "container",
    "vm",
    "machine",
    "board",
    "path",
    "function",
    "nic",
    "netperf",
    "iperf3",
    "iperf",
    "fio",
    "probe",
    "network",
    "storage",
    "measured",
    "missing",
    "values",
    "pass",
    "fail",
    "unsupported",
    "pf-pf",
    "vf-vf-across",
    "vf-vf-inside",
    "guest-host",
    "bridge",
    "bridge-across",
    "udp-stream",
    "tcp-stream",
    "udp-rr",
    "tcp-rr",
    "forward",
    "reverse",
    "closed",
    "open",
    "sequential",
    "random",
    "read",
    "write",
    "mixed",
    "done",
    "already",
    "skipped",
    "failed",
    "undone",
    "throughput",
    "model",
    "version",
    "kernel",
    "debian",
    "ubuntu",
    "admin",
    "penstock",
    "last",
    "inside",
    "across",
    "vf",
    "pf",
    "udp",
    "tcp",
    "rr",
    "stream",
    "netserver",
    "igb",
    "virtio",
    "kvm",
    "tcg",
    "reach",
    "arrives",
    "isolated",
    "emulated",
];

/// What pseudonyms of names begin with: `host-1`.
pub(super) const KINDS: [&str; 6] = ["host", "user", "guest", "machine", "domain", "serial"];

/// The names that are known, and what stands for each. They are kept in lower case: a host's name is the same in any (RFC 4343).
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    given: BTreeMap<String, String>,
    /// Bytes of the longest of them.
    longest: usize,
    kept: BTreeSet<String>,
    counts: BTreeMap<&'static str, u32>,
}

impl Names {
    /// Leaves this name alone, whatever says that it is a host's.
    pub fn keep(&mut self, name: &str) {
        self.kept.insert(folded(name).into_owned());
    }

    /// Gives a pseudonym to a name of this kind: `host`, `user`, `guest`, `machine`. `false` when it cannot have one: it is a
    /// word that says something else too.
    pub fn give(&mut self, kind: &'static str, name: &str) -> bool {
        let name = &*folded(name);
        if self.given.contains_key(name) || is_pseudonym(name) {
            return true;
        }
        if !may_stand_for(kind, name) {
            return false;
        }
        let number = self.counts.entry(kind).or_default();
        *number += 1;
        let pseudonym = format!("{kind}-{number}");
        self.longest = self.longest.max(name.len());
        self.given.insert(name.to_owned(), pseudonym);
        true
    }

    fn give_host(&mut self, name: &str) {
        let name = &*folded(name.trim_matches('.'));
        if self.kept.contains(name) || name.contains(':') {
            return;
        }
        // The short form of a full name is the same host, whichever was seen first.
        let short = name.split_once('.').map_or(name, |(short, _)| short);
        let short = if self.kept.contains(short) || !may_stand_for("host", short) { name } else { short };
        self.give("host", short);
        if let Some((_, domain)) = name.split_once('.').filter(|_| short != name) {
            self.give_domain(domain);
        }
        if let Some(pseudonym) = self.given.get(short).cloned() {
            self.longest = self.longest.max(name.len());
            self.given.entry(name.to_owned()).or_insert(pseudonym);
        }
    }

    /// Takes up the names that `text` tells, whatever colours it has.
    pub fn learn(&mut self, text: &str) {
        let text = &without_colours(text);
        for (kind, name) in mentions::names(text) {
            match kind {
                Kind::Host => self.give_host(name),
                Kind::User => drop(self.give("user", name)),
                Kind::Domain => self.give_domain(name),
                Kind::Serial => drop(self.give("serial", name)),
            }
        }
    }

    /// A domain, and the host before it when there is one.
    fn give_domain(&mut self, name: &str) {
        let name = name.trim_matches('.');
        if name.contains('.') && !self.kept.contains(&*folded(name)) {
            self.give("domain", name);
        }
    }

    /// The text with every name that stands by itself replaced.
    pub fn replace(&self, text: &str) -> String {
        if self.given.is_empty() {
            return text.to_owned();
        }
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        let mut escape = false;
        while let Some(c) = rest.chars().next() {
            let colour = colour(rest);
            if colour > 0 {
                shown.push_str(&rest[..colour]);
                rest = &rest[colour..];
                continue;
            }
            let starts = is_part(c);
            if !starts {
                shown.push(c);
                escape = c == '\\';
                rest = &rest[c.len_utf8()..];
                continue;
            }
            if std::mem::take(&mut escape) && matches!(c, 'n' | 't' | 'r' | 'b' | 'f') {
                shown.push(c);
                rest = &rest[1..];
                continue;
            }
            let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            self.word(&mut shown, &rest[..end]);
            rest = &rest[end..];
        }
        shown
    }

    /// One run of letters, digits, `-`, `_` and `.`: a name, or a name with more around it, as in `xeon-d.local` or
    /// `xeon-d-20261121`.
    fn word(&self, shown: &mut String, word: &str) {
        // As long as the word itself.
        let folded = &*folded(word);
        if self.kept.contains(folded) || is_pseudonym(word) {
            shown.push_str(word);
            return;
        }
        let mut at = 0;
        while at < word.len() {
            match self.begins(&folded[..at], &folded[at..]) {
                Some((name, pseudonym)) => {
                    shown.push_str(pseudonym);
                    at += name.len();
                    // The domains of a host tell as much as its name.
                    at +=
                        if pseudonym.starts_with("host-") { mentions::domain_behind(&word[at..]) } else { 0 };
                }
                None => {
                    let c = word[at..].chars().next().map_or(1, char::len_utf8);
                    shown.push_str(&word[at..at + c]);
                    at += c;
                }
            }
        }
    }

    /// The longest name that `rest` begins with and that stands by itself there, behind `before`.
    fn begins(&self, before: &str, rest: &str) -> Option<(&String, &String)> {
        if before.ends_with(char::is_alphanumeric) {
            return None;
        }
        let ends = rest.char_indices().skip(1).filter(|(_, c)| !c.is_alphanumeric()).map(|(at, _)| at);
        let ends = ends.take_while(|end| *end <= self.longest);
        let whole = (rest.len() <= self.longest).then_some(rest.len());
        ends.chain(whole).filter_map(|end| self.given.get_key_value(&rest[..end])).last()
    }
}

/// A name as it is known. Letters that are not ASCII stay, so that it is as long as before.
fn folded(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

/// Whether text that has this word can mean nothing else by it.
fn may_stand_for(kind: &str, name: &str) -> bool {
    let word = WORDS.contains(&&*folded(name));
    let number = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let says = name.contains(char::is_alphanumeric);
    let least = if matches!(kind, "host" | "user") { 2 } else { 1 };
    // What is said where a serial number belongs and there is none has no digit: "Not Specified".
    let serial = kind != "serial" || (name.len() >= 4 && name.bytes().any(|byte| byte.is_ascii_digit()));
    // A serial number of digits alone is one.
    !word
        && says
        && (!number || kind == "serial" && name.len() >= 6 && !name.contains('.'))
        && name.len() >= least
        && serial
}

/// What [`Names::give`] makes.
fn is_pseudonym(name: &str) -> bool {
    let mut parts = name.splitn(2, '-');
    let kind = parts.next().is_some_and(|kind| KINDS.contains(&kind));
    kind && parts
        .next()
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// How many bytes at the start of `text` are a terminal's colours and the like (ECMA-48, CSI).
fn colour(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    let end = rest.find(|c: char| matches!(c, '@'..='~'));
    end.map_or(0, |end| end + 3)
}

fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        match colour(rest) {
            0 => {
                plain.push(c);
                rest = &rest[c.len_utf8()..];
            }
            colour => rest = &rest[colour..],
        }
    }
    plain.into()
}
