//! Where text tells names: of hosts and their domains, of users, and the serial numbers of devices.
//!
//! When in doubt it is a name. What is no name of anybody is left out by [`super::names`], which has the words that say something else.

use std::ops::Range;

use super::{
    LONGEST_NAME,
    find::{self, Address},
};

/// What a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Host,
    User,
    Domain,
    Serial,
}

/// Every name that `text` tells, which has no colours.
pub(super) fn names(text: &str) -> Vec<(Kind, &str)> {
    let mut found = Vec::new();
    uname(text, &mut found);
    keyed(text, &mut found);
    led(text, &mut found);
    at_signs(text, &mut found);
    devices(text, &mut found);
    for line in text.lines() {
        found.extend(syslog(line).map(|host| (Kind::Host, host)));
        found.extend(suse_prompt(line).map(|host| (Kind::Host, host)));
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

type Found<'a> = Vec<(Kind, &'a str)>;

/// What a name is made of.
pub(super) fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// How many bytes at the start of what stands behind a host's name are its domain: `.example.com`, and not the ending of a file.
pub(super) fn domain_behind(rest: &str) -> usize {
    const FILES: &[&str] = &[
        "yaml", "yml", "json", "jsonl", "md", "html", "log", "txt", "conf", "service", "socket", "sh", "svg",
        "xml", "gz", "xz", "zst", "img", "qcow2", "pcap", "out", "err", "pid", "lock", "part", "tmp", "toml",
        "csv",
    ];
    let mut end = 0;
    for label in rest.split('.').skip(1) {
        let name = !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-');
        if !rest.starts_with('.')
            || !name
            || !label.starts_with(char::is_alphabetic)
            || FILES.contains(&label)
        {
            break;
        }
        end += 1 + label.len();
    }
    end
}

/// The kernel takes no longer command line (`COMMAND_LINE_SIZE`: 2048 on x86 and arm64).
const LONGEST_LINE: usize = 2048;

/// The name that begins at `from`. Of one that is longer than any name is only so much that it is known to be.
fn name_at(text: &str, from: usize) -> Range<usize> {
    let mut chars = text[from..].char_indices();
    let end = chars.find(|(at, c)| *at > LONGEST_NAME || !is_part(*c));
    from..end.map_or(text.len(), |(at, _)| from + at)
}

/// The names behind each `lead`, and whether a letter stands right before it.
fn after(text: &str, lead: &str) -> Vec<(bool, Range<usize>)> {
    let found = text.match_indices(lead).map(|(at, _)| {
        let glued = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let escape = text[..at].ends_with("\\n") || text[..at].ends_with("\\t");
        (glued && !escape, name_at(text, at + lead.len()))
    });
    found.filter(|(_, name)| !name.is_empty()).collect()
}

/// `Linux xeon-d 6.1.0-13-amd64`.
fn uname<'a>(text: &'a str, found: &mut Found<'a>) {
    for (before, name) in after(text, "Linux ") {
        let release = text[name.end..].strip_prefix(' ').is_some_and(|rest| {
            let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            number.len() < rest.len() && number.starts_with('.')
        });
        if release && !before {
            found.push((Kind::Host, &text[name]));
        }
    }
}

/// Keys with a name behind `:` or `=`, in JSON, in JSON inside JSON, and in what tools print; here in lower case, and in any in text.
const KEYS: &[(&str, Kind)] = &[
    ("hostname", Kind::Host),
    ("nodename", Kind::Host),
    ("\"host\"", Kind::Host),
    ("\\\"host\\\"", Kind::Host),
    ("domainname", Kind::Domain),
    ("domain", Kind::Domain),
    ("logname", Kind::User),
    ("sudo_user", Kind::User),
    // DMI, udev, smartctl, nvme-cli, lspci.
    ("serial", Kind::Serial),
    ("serial_number", Kind::Serial),
    ("serial number", Kind::Serial),
    ("serialnumber", Kind::Serial),
    ("serial_short", Kind::Serial),
    ("asset_tag", Kind::Serial),
    ("asset tag", Kind::Serial),
    ("wwid", Kind::Serial),
    ("wwn", Kind::Serial),
    ("\"sn\"", Kind::Serial),
    ("\nsn ", Kind::Serial),
];

fn keyed<'a>(text: &'a str, found: &mut Found<'a>) {
    let lower = text.to_ascii_lowercase();
    for (key, kind) in KEYS {
        for (at, _) in lower.match_indices(key) {
            let from = at + key.len();
            let gap = text[from..].find(|c: char| !matches!(c, '"' | '\\' | ' ' | '\t' | ':' | '=' | '\''));
            let Some(gap) = gap.filter(|gap| text[from..from + gap].contains([':', '='])) else { continue };
            let name = name_at(text, from + gap);
            // Not the first digits of an IPv6 address.
            if !text[name.end..].starts_with(':') {
                found.push((*kind, &text[name]));
            }
        }
    }
    // ip=CLIENT:SERVER:GATEWAY:NETMASK:HOST:DEVICE:... (Documentation/admin-guide/nfs/nfsroot.rst).
    for (at, _) in text.match_indices("ip=") {
        let mut chars = text[at + 3..].char_indices();
        let end = chars.find(|(at, c)| *at > LONGEST_LINE || c.is_whitespace());
        let value = end.map_or(&text[at + 3..], |(end, _)| &text[at + 3..at + 3 + end]);
        let behind = value.rsplit_once(']').map_or(value, |(_, rest)| rest);
        let skip = if behind.len() < value.len() { 2 } else { 4 };
        if let Some(host) = behind.split(':').nth(skip).filter(|host| host.chars().all(is_part)) {
            found.push((Kind::Host, host));
        }
    }
    // resolv.conf(5).
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let Some("search" | "domain") = words.next() {
            found.extend(words.filter(|word| word.contains('.')).map(|word| (Kind::Domain, word)));
        }
    }
}

/// Words that a name follows.
const LEADS: &[(&str, Kind)] = &[
    ("Set hostname to <", Kind::Host),
    ("Hostname set to <", Kind::Host),
    ("/home/", Kind::User),
    ("/Users/", Kind::User),
    ("/var/mail/", Kind::User),
    ("/var/spool/cron/crontabs/", Kind::User),
    ("session opened for user ", Kind::User),
    ("session closed for user ", Kind::User),
    (" of user ", Kind::User),
    ("Accepted publickey for ", Kind::User),
    ("Accepted password for ", Kind::User),
    ("Accepted keyboard-interactive/pam for ", Kind::User),
    ("Accepted gssapi-with-mic for ", Kind::User),
    ("Failed password for invalid user ", Kind::User),
    ("Failed password for ", Kind::User),
    ("Failed publickey for ", Kind::User),
    ("Invalid user ", Kind::User),
    ("authenticating user ", Kind::User),
    ("Disconnected from user ", Kind::User),
    ("sudo: ", Kind::User),
];

fn led<'a>(text: &'a str, found: &mut Found<'a>) {
    for (lead, kind) in LEADS {
        found.extend(after(text, lead).into_iter().map(|(_, name)| (*kind, &text[name])));
    }
    for (at, _) in text.match_indices(" login:") {
        let from = text[..at].rfind(['\n', '\r', ' ']).map_or(0, |at| at + 1);
        if name_at(text, from).end == at {
            found.push((Kind::Host, &text[from..at]));
        }
    }
}

/// `root@xeon-d:~#`, `[jane@xeon-d ~]$`, `jane@xeon-d.example.com`; not `serial-getty@ttyS0.service`, nor a package's version.
fn at_signs<'a>(text: &'a str, found: &mut Found<'a>) {
    const UNITS: &[&str] = &[
        "service",
        "socket",
        "target",
        "timer",
        "slice",
        "mount",
        "scope",
        "device",
        "path",
        "swap",
        "automount",
    ];
    let mut v6 = None;
    for (at, _) in text.match_indices('@') {
        // A name reaches into no IPv6 address: what stands for that one would be taken for another name.
        let v6: &Vec<Range<usize>> = v6.get_or_insert_with(|| {
            let all = find::addresses(text).into_iter();
            all.filter(|(_, address)| matches!(address, Address::V6(_))).map(|(range, _)| range).collect()
        });
        let name = name_at(text, at + 1);
        let next = v6.partition_point(|range| range.start < name.start);
        let ends = v6.get(next).map(|range| range.start).filter(|start| *start < name.end);
        let ends = ends.unwrap_or(name.end);
        let host = text[name.start..ends].trim_end_matches('.');
        let from = text[..at].char_indices().rev().take_while(|(_, c)| is_part(*c)).last();
        // No host's name begins otherwise (RFC 1123, 2.1).
        let Some((from, _)) = from.filter(|_| host.starts_with(char::is_alphanumeric)) else { continue };
        let last = v6[..v6.partition_point(|range| range.end < at)].last();
        let begins = last.map(|range| range.end).filter(|end| *end >= from).unwrap_or(from);
        let user = text[begins..at].trim_start_matches(|c: char| !c.is_alphanumeric());
        let unit = host.rsplit('.').next().is_some_and(|ending| UNITS.contains(&ending));
        let version = host.starts_with(|c: char| c.is_ascii_digit())
            && host.chars().all(|c| c.is_ascii_digit() || c == '.');
        if !unit && !version {
            found.extend([(Kind::Host, host), (Kind::User, user)]);
        }
    }
}

/// Names below /dev/disk/by-id (60-persistent-storage.rules of udev), and identifiers of NVMe namespaces.
fn devices<'a>(text: &'a str, found: &mut Found<'a>) {
    for (at, _) in text.match_indices("/by-id/") {
        let name = &text[name_at(text, at + "/by-id/".len())];
        let whole = name.split_once("-part").map_or(name, |(whole, _)| whole);
        let last = whole.rsplit(if whole.contains('_') { '_' } else { '-' }).next();
        let last = last.filter(|part| part.len() >= 4 && part.contains(|c: char| c.is_ascii_digit()));
        found.extend(
            last.map(|serial| (Kind::Serial, serial.trim_start_matches("eui.").trim_start_matches("0x"))),
        );
    }
    for lead in ["eui.", "naa.", "wwn-0x", "uuid.", "iqn."] {
        let names = after(text, lead).into_iter().map(|(_, name)| &text[name]);
        found.extend(names.filter(|name| name.len() >= 12).map(|name| (Kind::Serial, name)));
    }
}

/// `Nov 21 12:34:56 xeon-d sshd[123]: ...`, `2026-11-21T12:34:56.789+00:00 xeon-d kernel: ...` (RFC 3164, RFC 5424).
fn syslog(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix('<').and_then(|rest| rest.split_once('>')).map_or(line, |(_, rest)| rest);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let clock = |word: &str| {
        word.len() >= 8 && word.split(':').count() >= 3 && word.starts_with(|c: char| c.is_ascii_digit())
    };
    if MONTHS.contains(&first) {
        words.next().filter(|day| day.len() <= 2 && day.bytes().all(|byte| byte.is_ascii_digit()))?;
        words.next().filter(|time| clock(time))?;
    } else {
        first.split_once('T').filter(|(date, time)| date.len() == 10 && clock(time))?;
    }
    let host = words.next().filter(|host| host.chars().all(is_part))?;
    let program = words.next()?;
    program.ends_with(':').then_some(host)
}

/// `xeon-d:~ #`, as SUSE's root has it.
fn suse_prompt(line: &str) -> Option<&str> {
    let (host, rest) = line.trim_start().split_once(':')?;
    let prompt = rest.starts_with(['~', '/']) && rest.contains(" #");
    (prompt && host.chars().all(is_part)).then_some(host)
}
