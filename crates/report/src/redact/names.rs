//! Names of hosts, of users and, when that is asked for, of guests: where text tells them, and what stands for them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Included, Unbounded},
};

use super::{
    LONGEST_NAME,
    mentions::{self, Kind, is_part},
    words::{FORM, WORDS},
};

/// What pseudonyms of names begin with: `host-1`.
pub(super) const KINDS: [&str; 6] = ["host", "user", "guest", "machine", "domain", "serial"];

/// The names that are known, and what stands for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// By the name in lower case, as a host's name is the same in any (RFC 4343), but for those of [`key`].
    given: BTreeMap<String, String>,
    /// The same names as they were met.
    met: BTreeSet<String>,
    /// Bytes of the longest of them.
    longest: usize,
    /// As they are written: guests and NICs may be told apart by their case.
    kept: BTreeSet<String>,
    /// Names of hosts and users that are words of the evidence's form.
    left: BTreeSet<String>,
    counts: BTreeMap<&'static str, u32>,
}

impl Names {
    /// Leaves this name alone, whatever says that it is a host's.
    pub fn keep(&mut self, name: &str) {
        self.kept.insert(name.to_owned());
    }

    /// Names of hosts and users that have no pseudonym, because the evidence's form is made of them.
    pub fn left(&self) -> impl Iterator<Item = &String> {
        self.left.iter()
    }

    #[cfg(test)]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Gives a pseudonym to a name of this kind: `host`, `user`, `guest`, `machine`. `false` when it cannot have one: it is a
    /// word that says something else too.
    pub fn give(&mut self, kind: &'static str, name: &str) -> bool {
        if is_pseudonym(name) {
            return true;
        }
        if !may_stand_for(kind, name) {
            if matches!(kind, "host" | "user") && is_of_form(name) {
                self.left.insert(name.to_owned());
            }
            return false;
        }
        let key = key(kind, name);
        if !self.given.contains_key(&*key) {
            let number = self.counts.entry(kind).or_default();
            *number += 1;
            let pseudonym = format!("{kind}-{number}");
            self.given.insert(key.into_owned(), pseudonym);
        }
        self.longest = self.longest.max(name.len());
        self.met.insert(name.to_owned());
        true
    }

    fn give_host(&mut self, name: &str) {
        let name = name.trim_matches('.');
        if self.kept.contains(name) || name.contains(':') {
            return;
        }
        // The short form of a full name is the same host, whichever was seen first.
        let first = name.split_once('.').map_or(name, |(short, _)| short);
        let whole = self.kept.contains(first) || !self.give("host", first);
        let short = if whole { name } else { first };
        self.give("host", short);
        if let Some((_, domain)) = name.split_once('.').filter(|_| short != name) {
            self.give_domain(domain);
        }
        if let Some(pseudonym) =
            self.given.get(&*key("host", short)).cloned().filter(|_| name.len() <= LONGEST_NAME)
        {
            self.longest = self.longest.max(name.len());
            self.met.insert(name.to_owned());
            self.given.entry(key("host", name).into_owned()).or_insert(pseudonym);
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
        if name.contains('.') && !self.kept.contains(name) {
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
        if self.kept.contains(word) || is_pseudonym(word) {
            shown.push_str(word);
            return;
        }
        // As long as the word itself.
        let folded = &*folded(word);
        let mut at = 0;
        while at < word.len() {
            match self.begins(word, folded, at) {
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

    /// The longest name that begins at `at` of a word and stands by itself there, and what stands for it.
    pub fn begins(&self, word: &str, folded: &str, at: usize) -> Option<(&String, &String)> {
        if word[..at].ends_with(char::is_alphanumeric) {
            return None;
        }
        let in_any_case = self.longest_in(&word[at..], &folded[at..]);
        let as_written = if word == folded { None } else { self.longest_in(&word[at..], &word[at..]) };
        in_any_case.into_iter().chain(as_written).max_by_key(|(name, _)| name.len())
    }

    /// The longest name that `rest` begins with, which is written as `written`.
    fn longest_in(&self, written: &str, rest: &str) -> Option<(&String, &String)> {
        let stands = |end: usize| {
            let kept = self.kept.contains(&written[..end]) && !self.met.contains(&written[..end]);
            !rest[end..].starts_with(char::is_alphanumeric) && !kept
        };
        let mut end = boundary(rest, self.longest);
        // The greatest of the names that are not greater: it is what `rest` begins with, or no name that `rest` begins with is longer
        // than what the two have in common.
        while end > 0 {
            let (name, pseudonym) =
                self.given.range::<str, _>((Unbounded, Included(&rest[..end]))).next_back()?;
            let common =
                name.bytes().zip(rest[..end].bytes()).take_while(|(one, other)| one == other).count();
            if common < name.len() {
                end = boundary(rest, common);
            } else if stands(common) {
                return Some((name, pseudonym));
            } else {
                end = boundary(rest, common - 1);
            }
        }
        None
    }
}

/// What a name is known by: itself in lower case. Letters that are not ASCII stay, so that it is as long as before. A guest's is known as
/// it is written, and so is one that only its case tells from a word of the evidence's form.
fn key<'a>(kind: &str, name: &'a str) -> Cow<'a, str> {
    let folded = folded(name);
    if kind == "guest" || is_of_form(&folded) { name.into() } else { folded }
}

/// The last boundary of a character at `at` or before.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Lower case as far as ASCII goes.
fn folded(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

/// Whether text that has this word can mean nothing else by it.
fn may_stand_for(kind: &str, name: &str) -> bool {
    let word = WORDS.contains(&&*folded(name)) || is_of_form(name);
    let number = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let says = name.contains(char::is_alphanumeric);
    let least = if matches!(kind, "host" | "user") { 2 } else { 1 };
    // What is said where a serial number belongs and there is none has no digit: "Not Specified".
    let serial = kind != "serial" || (name.len() >= 4 && name.bytes().any(|byte| byte.is_ascii_digit()));
    // A serial number of digits alone is one.
    !word
        && says
        && (!number || kind == "serial" && name.len() >= 6 && !name.contains('.'))
        && (least..=LONGEST_NAME).contains(&name.len())
        && serial
}

/// Whether the evidence's form has this word as it is written.
fn is_of_form(name: &str) -> bool {
    FORM.binary_search(&name).is_ok()
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
