//! Names of hosts, of users and, when that is asked for, of guests: where text tells them, and what stands for them.

use std::collections::{BTreeMap, BTreeSet};

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

/// The names that are known, and what stands for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    given: BTreeMap<String, String>,
    kept: BTreeSet<String>,
    counts: BTreeMap<&'static str, u32>,
}

impl Names {
    /// Leaves this name alone, whatever says that it is a host's.
    pub fn keep(&mut self, name: &str) {
        self.kept.insert(name.to_owned());
    }

    /// Gives a pseudonym to a name of this kind: `host`, `user`, `guest`, `machine`. `false` when it cannot have one: it is a
    /// word that says something else too.
    pub fn give(&mut self, kind: &'static str, name: &str) -> bool {
        if self.given.contains_key(name) || is_pseudonym(name) {
            return true;
        }
        if !may_stand_for(kind, name) {
            return false;
        }
        let number = self.counts.entry(kind).or_default();
        *number += 1;
        let pseudonym = format!("{kind}-{number}");
        self.given.insert(name.to_owned(), pseudonym);
        true
    }

    fn give_host(&mut self, name: &str) {
        let name = name.trim_matches('.');
        if self.kept.contains(name) || name.contains(':') {
            return;
        }
        // The short form of a full name is the same host, whichever was seen first.
        let short = name.split_once('.').map_or(name, |(short, _)| short);
        let short = if self.kept.contains(short) || !may_stand_for("host", short) { name } else { short };
        self.give("host", short);
        if let Some(pseudonym) = self.given.get(short).cloned() {
            self.given.entry(name.to_owned()).or_insert(pseudonym);
        }
    }

    /// Takes up the names that `text` tells: `uname -a`, iperf3's and fio's JSON, a login prompt, home directories.
    pub fn learn(&mut self, text: &str) {
        for (before, name) in after(text, "Linux ") {
            let release = text[name.end..].strip_prefix(' ').is_some_and(|rest| {
                let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                number.len() < rest.len() && number.starts_with('.')
            });
            if release && !before {
                self.give_host(&text[name]);
            }
        }
        for key in ["hostname", "\"host\"", "\\\"host\\\"", "nodename"] {
            for (at, _) in text.match_indices(key) {
                let from = at + key.len();
                let gap =
                    text[from..].find(|c: char| !matches!(c, '"' | '\\' | ' ' | '\t' | ':' | '=' | '\''));
                let Some(gap) = gap.filter(|gap| text[from..from + gap].contains([':', '='])) else {
                    continue;
                };
                let name = name_at(text, from + gap);
                // Not the first digits of an IPv6 address.
                if !text[name.end..].starts_with(':') {
                    self.give_host(&text[name]);
                }
            }
        }
        for (at, _) in text.match_indices(" login:") {
            let from = text[..at].rfind(['\n', '\r', ' ']).map_or(0, |at| at + 1);
            if name_at(text, from).end == at {
                self.give_host(&text[from..at]);
            }
        }
        for lead in ["Set hostname to <", "Hostname set to <"] {
            after(text, lead).into_iter().for_each(|(_, name)| self.give_host(&text[name]));
        }
        for lead in ["/home/", "/Users/"] {
            for (_, name) in after(text, lead) {
                self.give("user", &text[name]);
            }
        }
        // `root@xeon-d:~#` of a shell's prompt; not `serial-getty@ttyS0.service`.
        for (at, _) in text.match_indices('@') {
            let name = name_at(text, at + 1);
            let prompt = text[name.end..].starts_with(":~") || text[name.end..].starts_with(":/");
            let from = text[..at].char_indices().rev().take_while(|(_, c)| is_part(*c)).last();
            if let (true, false, Some((from, _))) = (prompt, name.is_empty(), from) {
                self.give_host(&text[name]);
                self.give("user", &text[from..at]);
            }
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
        if self.kept.contains(word) || is_pseudonym(word) {
            shown.push_str(word);
            return;
        }
        let mut at = 0;
        while at < word.len() {
            let rest = &word[at..];
            let begins = !word[..at].ends_with(char::is_alphanumeric);
            let ends = |name: &str| !rest[name.len()..].starts_with(char::is_alphanumeric);
            let name =
                self.given.iter().filter(|(name, _)| begins && rest.starts_with(name.as_str()) && ends(name));
            match name.max_by_key(|(name, _)| name.len()) {
                Some((name, pseudonym)) => {
                    shown.push_str(pseudonym);
                    at += name.len();
                }
                None => {
                    let c = rest.chars().next().map_or(1, char::len_utf8);
                    shown.push_str(&rest[..c]);
                    at += c;
                }
            }
        }
    }
}

/// Whether text that has this word can mean nothing else by it.
fn may_stand_for(kind: &str, name: &str) -> bool {
    let word = WORDS.contains(&name.to_ascii_lowercase().as_str());
    let number = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let least = if matches!(kind, "host" | "user") { 2 } else { 1 };
    !word && !number && name.len() >= least
}

/// What [`Names::give`] makes.
fn is_pseudonym(name: &str) -> bool {
    let mut parts = name.splitn(2, '-');
    let kind = matches!(parts.next(), Some("host" | "user" | "guest" | "machine"));
    kind && parts
        .next()
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// The name that begins at `from`.
fn name_at(text: &str, from: usize) -> std::ops::Range<usize> {
    let length = text[from..].find(|c: char| !is_part(c)).unwrap_or(text.len() - from);
    from..from + length
}

/// The names behind each `lead`, and whether a letter stands right before it.
fn after(text: &str, lead: &str) -> Vec<(bool, std::ops::Range<usize>)> {
    let found = text.match_indices(lead).map(|(at, _)| {
        let glued = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let escape = text[..at].ends_with("\\n") || text[..at].ends_with("\\t");
        (glued && !escape, name_at(text, at + lead.len()))
    });
    found.filter(|(_, name)| !name.is_empty()).collect()
}
