//! Evidence that can be shown to others: hostnames and addresses replaced by pseudonyms, the same throughout a run.
//!
//! IPv4 addresses become those of RFC 5737 (192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24; beyond three networks RFC 2544's
//! 198.18.0.0/15): addresses of one /24 stay in one /24, so that a prefix still says who is on whose network. IPv6 addresses go to
//! 2001:db8::/32, a /64 for a /64, and MAC addresses to `02:00:5e:..`, locally administered. Loopback, `0.0.0.0`, netmasks,
//! multicast and broadcast tell nothing of a machine and stay, and so do documentation addresses. Names of hosts become
//! `host-1`, of users `user-1`, domains `domain-1`, serial numbers `serial-1`; UUIDs and machine-ids become
//! `00000000-0000-4000-8000-000000000001`. Hashes stay those of the originals.

mod find;
mod mentions;
mod names;
mod pseudonyms;
mod words;

use std::{
    collections::{HashMap, HashSet},
    net::{Ipv4Addr, Ipv6Addr},
};

use penstock_model::GuestName;
use serde::de::IgnoredAny;
use serde_json::Value;
use thiserror::Error;

use crate::{
    Evidence, ReadError,
    extent::{self, ReadMode},
};
use find::Address;
use names::Names;
use pseudonyms::Pseudonyms;

/// What redacted evidence says of itself.
pub const NOTE: &str = "redacted: addresses and names of hosts are pseudonyms; hashes are of the originals";

/// No name of a host is longer (RFC 1035: 255 octets), and no serial number.
const LONGEST_NAME: usize = 255;

/// Texts of at most so many bytes are looked at once: evidence repeats its keys, and many a value, for each cell.
const REPEATED: usize = 64;

/// So many of them are remembered.
const REMEMBERED: usize = 1 << 18;

/// Evidence that could not be redacted.
#[derive(Debug, Error)]
pub enum RedactError {
    /// A pseudonym stands where only certain words may: a host or a guest is called like a word of the evidence's form.
    #[error("with its names replaced this is no evidence any more")]
    Form(#[source] ReadError),
}

/// Replaces addresses and names. First it is shown everything ([`Redactor::learn`]), so that what one file tells is replaced in
/// all, then each file goes through it.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    addresses: Pseudonyms,
    names: Names,
    /// Names that had to stay.
    left: Vec<String>,
    /// Short texts that were learnt, and short values behind their keys: again they would tell nothing new.
    learnt: HashSet<String>,
    learnt_pairs: HashSet<String>,
    /// What short texts become, while so many addresses have a pseudonym and nothing else is learnt.
    shown: HashMap<String, String>,
    shown_with: usize,
}

impl Redactor {
    /// A redactor for this run. Names of guests and of the machine stay, unless `names`.
    pub fn new(evidence: &Evidence, names: bool) -> Redactor {
        let mut redactor = Redactor::default();
        let guests = evidence.machine.guests.iter().map(|guest| ("guest", guest.name.as_str()));
        let all: Vec<(&'static str, &str)> = guests
            .chain([("machine", evidence.machine.name.as_str())])
            .filter(|(_, name)| !name.is_empty())
            .collect();
        for (kind, name) in all {
            match names {
                true if !redactor.names.give(kind, name) => redactor.left.push(name.to_owned()),
                true => {}
                // Inside a container its name is its host's name. A machine may be called by its host's name, which is
                // a host's name all the same.
                false if kind == "guest" => redactor.names.keep(name),
                false => {}
            }
        }
        evidence.machine.nics.iter().for_each(|nic| redactor.names.keep(nic.name.as_str()));
        redactor.learn(&evidence.json());
        redactor
    }

    /// Names that were to be replaced and could not be, because they are words that say something else too.
    pub fn left(&self) -> Vec<String> {
        self.left.iter().chain(self.names.left()).cloned().collect()
    }

    /// Takes up what a file's text tells: which names are hosts', which addresses there are.
    pub fn learn(&mut self, text: &str) {
        match structured(text) {
            Some(values) => values.iter().for_each(|value| self.learn_value(value)),
            None => self.learn_text(text),
        }
    }

    fn learn_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.learn_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.learn_value(item)),
            Value::Object(entries) => entries.iter().for_each(|(key, value)| {
                self.learn_text(key);
                if is_commit(key, value) {
                    return;
                }
                // A key says what its value is, as in text.
                if let Value::String(name) = value
                    && name.len() <= LONGEST_NAME
                {
                    let pair = format!("\"{key}\"={name}");
                    if is_new(&mut self.learnt_pairs, &pair) {
                        self.shown.clear();
                        self.names.learn(&pair);
                        self.learn_bare(&pair);
                    }
                }
                self.learn_value(value);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Takes up the MAC addresses without marks that only a key tells.
    fn learn_bare(&mut self, pair: &str) {
        for (_, address) in find::addresses(pair) {
            if let Address::Bare(mac) = address {
                _ = self.addresses.mac(mac);
            }
        }
    }

    fn learn_text(&mut self, text: &str) {
        if !is_new(&mut self.learnt, text) {
            return;
        }
        self.shown.clear();
        self.names.learn(text);
        for (_, address) in find::addresses(text) {
            match address {
                Address::Mac(mac, _) | Address::Dotted(mac) | Address::Bare(mac) => {
                    _ = self.addresses.mac(mac);
                }
                Address::Eui64(all, _) => drop(self.addresses.mac(of_eui64(all))),
                Address::Uuid(uuid) => drop(self.addresses.uuid(&uuid)),
                Address::V4 { address, version: false } => drop(self.addresses.v4(address)),
                Address::V6(address) => drop(self.addresses.v6(address)),
                Address::V4 { version: true, .. } | Address::Digits(_) | Address::Bytes(_) => {}
            }
        }
    }

    /// A file's text, redacted: JSON and lines of JSON string by string, anything else as it stands.
    pub fn file(&mut self, text: &str) -> String {
        let Some(values) = structured(text) else { return self.text(text) };
        let lines = values.len() > 1 || !text.trim_end().contains('\n');
        let mut shown = String::with_capacity(text.len());
        for value in values {
            let value = self.value(value);
            // A value made of strings, numbers and lists can always be written.
            let written =
                if lines { serde_json::to_string(&value) } else { serde_json::to_string_pretty(&value) };
            shown.push_str(&written.expect("a value that was read can be written"));
            shown.push('\n');
        }
        shown
    }

    fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.value(item)).collect()),
            Value::Object(entries) => Value::Object(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let shown = if is_commit(&key, &value) { value } else { self.value(value) };
                        (self.text(&key), shown)
                    })
                    .collect(),
            ),
            other => other,
        }
    }

    /// The text with a pseudonym for each name and address that tells of a machine.
    pub fn text(&mut self, text: &str) -> String {
        if text.len() > REPEATED {
            return self.replaced(text);
        }
        if self.shown_with != self.addresses.count() {
            self.shown.clear();
            self.shown_with = self.addresses.count();
        }
        if let Some(shown) = self.shown.get(text) {
            return shown.clone();
        }
        let shown = self.replaced(text);
        if self.shown.len() < REMEMBERED {
            self.shown.insert(text.to_owned(), shown.clone());
        }
        shown
    }

    fn replaced(&mut self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut done = 0;
        for (range, address) in find::addresses(text) {
            let Some(pseudonym) = self.pseudonym(address) else { continue };
            shown.push_str(&text[done..range.start]);
            shown.push_str(&pseudonym);
            done = range.end;
        }
        shown.push_str(&text[done..]);
        self.names.replace(&shown)
    }

    /// What is written for an address; `None` for what stays as it is.
    fn pseudonym(&mut self, address: Address) -> Option<String> {
        match address {
            Address::Mac(mac, separator) => {
                let given = self.addresses.mac(mac);
                (given != mac).then(|| mac_text(given, &separator.to_string()))
            }
            Address::Dotted(mac) => {
                let given = self.addresses.mac(mac);
                let pair = |at: usize| format!("{:02x}{:02x}", given[at], given[at + 1]);
                (given != mac).then(|| [pair(0), pair(2), pair(4)].join("."))
            }
            Address::Eui64(all, separator) => {
                let given = self.addresses.mac(of_eui64(all));
                let separator = separator.map(String::from).unwrap_or_default();
                let octets =
                    [given[0], given[1], given[2], 0xff, all[4] | 0xfe, given[3], given[4], given[5]];
                let shown = octets.map(|byte| format!("{byte:02x}")).join(&separator);
                (given != of_eui64(all)).then_some(shown)
            }
            Address::Uuid(uuid) => {
                let given = self.addresses.uuid(&uuid);
                (given != uuid).then_some(given)
            }
            Address::V4 { address, version: true } => Some(self.addresses.known_v4(address)?.to_string()),
            Address::V4 { address, version: false } => {
                let given = self.addresses.v4(address);
                (given != address).then(|| given.to_string())
            }
            Address::V6(address) => {
                let given = self.addresses.v6(address);
                (given != address).then(|| given.to_string())
            }
            Address::Bare(mac) => {
                let given = self.addresses.mac(mac);
                (given != mac).then(|| mac_text(given, ""))
            }
            Address::Digits(mac) => Some(mac_text(self.addresses.known_mac(mac)?, "")),
            Address::Bytes(bytes) => {
                let given: Vec<u8> = if let Ok(mac) = <[u8; 6]>::try_from(bytes.as_slice()) {
                    self.addresses.known_mac(mac)?.to_vec()
                } else if let Ok(v4) = <[u8; 4]>::try_from(bytes.as_slice()) {
                    self.addresses.known_v4(Ipv4Addr::from(v4))?.octets().to_vec()
                } else {
                    let v6: [u8; 16] = bytes.try_into().ok()?;
                    self.addresses.known_v6(Ipv6Addr::from(v6))?.octets().to_vec()
                };
                Some(given.iter().map(|byte| format!("0x{byte:02x}")).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The evidence, redacted, with a note that says so.
    ///
    /// # Errors
    /// When a host or a guest has a name that the evidence's form itself is made of.
    pub fn evidence(&mut self, evidence: &Evidence) -> Result<Evidence, RedactError> {
        // Not through text: a number that is written and read again may be another in its last digit.
        let value = serde_json::to_value(evidence).map_err(ReadError::Form).map_err(RedactError::Form)?;
        let value = self.value(value);
        let mut redacted: Evidence =
            serde_json::from_value(value).map_err(ReadError::Form).map_err(RedactError::Form)?;
        // A hash may look like anything, and stays what it is.
        redacted.hashes = evidence.hashes.clone();
        redacted.versions.commit = evidence.versions.commit.clone();
        if !redacted.notes.iter().any(|note| note == NOTE) {
            redacted.notes.push(NOTE.to_owned());
        }
        Ok(redacted)
    }

    /// What stands for a guest's name, which names files too.
    pub fn guest(&mut self, name: &GuestName) -> String {
        self.text(name.as_str())
    }
}

/// Whether it is a commit, which may look like an address, and stays what it is.
fn is_commit(key: &str, value: &Value) -> bool {
    let is_hash = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    key == "commit" && value.as_str().is_some_and(is_hash)
}

/// Whether a text is to be looked at: it is long, or was not among `seen`, where it is from now on.
fn is_new(seen: &mut HashSet<String>, text: &str) -> bool {
    text.len() > REPEATED
        || !seen.contains(text) && (seen.len() >= REMEMBERED || seen.insert(text.to_owned()))
}

/// The MAC address that an EUI-64 was made of; of another one what tells devices apart, its ends.
fn of_eui64(all: [u8; 8]) -> [u8; 6] {
    [all[0], all[1], all[2], all[5], all[6], all[7]]
}

fn mac_text(mac: [u8; 6], separator: &str) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(separator)
}

/// Whether a file's text can be redacted, also the evidence's own.
///
/// # Errors
///
/// It is JSON, and has so many values that to redact it would take more than some 512 MiB of memory.
pub fn check(text: &str) -> Result<(), ReadError> {
    match is_perhaps_structured(text).then(|| extent::check(text, ReadMode::Whole)) {
        Some(Err(error)) if is_structured(text) => Err(error),
        _ => Ok(()),
    }
}

/// Whether it begins as JSON does. So does a kernel's log, with the time.
fn is_perhaps_structured(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// Whether a text is a JSON file or lines of JSON. Nothing of it is kept.
fn is_structured(text: &str) -> bool {
    let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    is_json(text) || text.lines().filter(|line| !line.trim().is_empty()).all(is_json)
}

/// The values of a JSON file or of lines of JSON; `None` for any other text.
fn structured(text: &str) -> Option<Vec<Value>> {
    // A text may have as many as it likes before it turns out to be no JSON.
    if !is_perhaps_structured(text) || extent::check(text, ReadMode::Whole).is_err() && !is_structured(text) {
        return None;
    }
    if let Ok(value) = serde_json::from_str(text) {
        return Some(vec![value]);
    }
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests;
