//! How programs in a guest resolve names: what stands in its `/etc/resolv.conf` (`resolv.conf(5)`).

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::names::SCALARS;

/// Where it stands inside a guest.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Where systemd-resolved says which servers it asks, where [`RESOLV_CONF`] names nobody but itself (systemd-resolved.service(8)).
pub const RESOLVED_CONF: &str = "/run/systemd/resolve/resolv.conf";

/// Addresses that systemd-resolved itself answers at.
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

/// Resolvers ask no more servers (`MAXNS` of glibc and of musl).
pub const MOST_SERVERS: usize = 3;

/// glibc before 2.26 looks names up in no more domains (`MAXDNSRCH`).
pub const MOST_DOMAINS: usize = 6;

/// The most characters of all domains with the spaces between them: musl leaves out a line of more than 255 bytes (`resolvconf.c`), of which
/// `search ` and the line's end are 8.
pub const MOST_DOMAIN_CHARACTERS: usize = 247;

/// What stands between two words.
const BLANKS: [char; 2] = [' ', '\t'];

/// How programs in a guest resolve names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Dns {
    /// The servers that are asked, the first first.
    pub servers: Vec<IpAddr>,
    /// The domains in which names without a dot are looked up, the first first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<SearchDomain>,
}

impl Dns {
    /// The file that says so. Addresses and domains have no character that could begin a line or a word of its own.
    pub fn resolv_conf(&self) -> String {
        let mut text =
            String::from("# Made by Penstock from the machine's model: change the model, not this file.\n");
        for server in &self.servers {
            text.push_str(&format!("nameserver {server}\n"));
        }
        if !self.search.is_empty() {
            text.push_str(&format!("search {}\n", words(&self.search)));
        }
        text
    }
}

/// What a `resolv.conf` says, as a resolver reads it: word by word, whatever they are. The file is whoever's who wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolverFile {
    /// The words behind each `nameserver`.
    pub servers: Vec<String>,
    /// Those behind the last `search` or `domain`: it counts alone.
    pub search: Vec<String>,
}

impl ResolverFile {
    /// Reads a file as glibc does (`resolv/res_init.c`): a keyword begins its line; a blank or a tab ends a word, and nothing else but the end
    /// of the line does, so that a carriage return is a part of one; a keyword without a word says nothing.
    pub fn read(text: &str) -> ResolverFile {
        let mut file = ResolverFile::default();
        for line in text.split('\n') {
            let Some((keyword, rest)) = line.split_once(BLANKS) else { continue };
            let mut words = rest.split(BLANKS).filter(|word| !word.is_empty()).map(str::to_owned).peekable();
            match keyword {
                _ if words.peek().is_none() => {}
                "nameserver" => file.servers.extend(words.next()),
                "search" => file.search = words.collect(),
                "domain" => file.search = words.take(1).collect(),
                _ => {}
            }
        }
        file
    }

    /// Whether all is left to systemd-resolved.
    pub fn is_stub(&self) -> bool {
        !self.servers.is_empty() && self.servers.iter().all(|server| STUBS.contains(&server.as_str()))
    }

    /// Whether these are the servers that are asked, in this order.
    pub fn asks(&self, servers: &[IpAddr]) -> bool {
        let read = self.servers.iter().map(|word| word.parse::<IpAddr>().ok());
        read.eq(servers.iter().copied().map(Some))
    }

    /// Whether names are looked up in these domains, in this order. Case is nothing in a name (RFC 4343), and `.` is no domain:
    /// systemd-resolved writes it where it has none.
    pub fn searches(&self, domains: &[SearchDomain]) -> bool {
        let words = self.search.iter().filter(|word| *word != ".");
        words.clone().count() == domains.len()
            && words.zip(domains).all(|(word, domain)| word.eq_ignore_ascii_case(&domain.0))
    }
}

/// These, with spaces between them.
pub fn words<T: fmt::Display>(all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(" ")
}

/// A domain in which names are looked up: labels of letters, digits, `-` and `_` with dots between them (RFC 1035, 2.3.4).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SearchDomain(String);

impl SearchDomain {
    /// The domain as text, without a dot at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Text that is no domain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no search domain: {why}")]
pub struct ParseDomainError {
    text: String,
    why: &'static str,
}

impl FromStr for SearchDomain {
    type Err = ParseDomainError;

    fn from_str(text: &str) -> Result<SearchDomain, ParseDomainError> {
        match why_no_domain(text) {
            None => Ok(SearchDomain(text.to_owned())),
            Some(why) => Err(ParseDomainError { text: text.to_owned(), why }),
        }
    }
}

fn why_no_domain(text: &str) -> Option<&'static str> {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if text.is_empty() {
        Some("it is empty")
    } else if text.len() > 253 {
        Some("it is longer than 253 characters")
    } else if text.ends_with('.') {
        Some("it is a whole name already: leave out the dot at its end")
    } else if !text.bytes().all(|b| is_letter(b) || b == b'.') {
        Some(
            "only letters, digits, '-', '_' and '.' may stand in it; those of other scripts are written as punycode, like xn--bcher-kva.example",
        )
    } else if text.split('.').any(|label| label.is_empty() || label.len() > 63) {
        Some("between two dots stand 1 to 63 characters")
    } else if text.split('.').any(|label| label.starts_with('-') || label.ends_with('-')) {
        Some("no part of it begins or ends with '-'")
    } else {
        None
    }
}

impl fmt::Display for SearchDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

crate::names::text_serde!(
    SearchDomain,
    "A domain in which names are looked up.",
    "example.com",
    "^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$",
    SCALARS
);

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(all: &[&str]) -> Vec<SearchDomain> {
        all.iter().map(|one| one.parse().unwrap()).collect()
    }

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let dns = Dns {
            servers: vec!["192.0.2.53".parse().unwrap(), "2001:db8::53".parse().unwrap()],
            search: domains(&["example.com", "lan", "_tcp.example.com"]),
        };
        let text = dns.resolv_conf();
        assert!(
            text.ends_with(
                "nameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch example.com lan _tcp.example.com\n"
            ),
            "{text}"
        );
        let file = ResolverFile::read(&text);
        assert!(file.asks(&dns.servers) && file.searches(&dns.search), "{file:?}");
        let alone = Dns { search: Vec::new(), ..dns };
        assert!(!alone.resolv_conf().contains("search"));
    }

    #[test]
    fn a_file_is_read_as_a_resolver_reads_it() {
        let text = "; a comment\n nameserver 192.0.2.9\nnameserver\t192.0.2.1 trailing\nnameserver x\noptions ndots:5\n\
                    domain first.example\nsearch A.example b.example\nnameserver\nsearchlight x\n";
        let file = ResolverFile::read(text);
        assert_eq!(file.servers, ["192.0.2.1", "x"], "a line that is indented is none");
        assert_eq!(file.search, ["A.example", "b.example"]);
        assert!(file.searches(&domains(&["a.example", "B.EXAMPLE"])));
        assert!(!file.searches(&domains(&["b.example", "a.example"])), "the order counts");
        assert!(!file.asks(&["192.0.2.1".parse().unwrap()]), "one more is asked");
        assert_eq!(ResolverFile::read("search a b\ndomain c d\n").search, ["c"]);
        assert_eq!(ResolverFile::read(""), ResolverFile::default());
        assert_eq!(
            ResolverFile::read("search a\nsearch\nsearch \t\ndomain \n").search,
            ["a"],
            "nothing is said"
        );
        let none = ResolverFile::read("search .\n");
        assert!(none.searches(&[]) && !none.searches(&domains(&["lan"])), "{none:?}");
    }

    /// glibc knows no line ends but `\n` and no spaces but these two: what follows an address makes it none.
    #[test]
    fn other_white_space_is_a_part_of_a_word() {
        for (text, server) in [
            ("nameserver 192.0.2.1\r\n", "192.0.2.1\r"),
            ("nameserver 192.0.2.1\u{b}x\n", "192.0.2.1\u{b}x"),
            ("nameserver 192.0.2.1\u{a0}\n", "192.0.2.1\u{a0}"),
        ] {
            let file = ResolverFile::read(text);
            assert_eq!(file.servers, [server]);
            assert!(!file.asks(&["192.0.2.1".parse().unwrap()]), "{server:?}");
        }
        assert!(!ResolverFile::read("search lan\r\n").searches(&domains(&["lan"])));
        assert!(!ResolverFile::read("nameserver 192.0.2.1\r").is_stub());
    }

    #[test]
    fn no_domain_begins_a_line_of_its_own() {
        for (text, why) in [
            ("", "it is empty"),
            ("a\nnameserver 203.0.113.66", "only letters"),
            ("a b", "only letters"),
            ("a\tb", "only letters"),
            ("a;b", "only letters"),
            ("b\u{fc}cher.example", "punycode"),
            ("example.com.", "the dot at its end"),
            (".", "the dot at its end"),
            (".example", "between two dots"),
            ("a..b", "between two dots"),
            ("-a.example", "begins or ends"),
            ("a.b-", "begins or ends"),
        ] {
            let error = text.parse::<SearchDomain>().unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
        let label = "a".repeat(63);
        assert!(label.parse::<SearchDomain>().is_ok());
        assert!(format!("a{label}").parse::<SearchDomain>().is_err());
        assert!(vec![label; 4].join(".").parse::<SearchDomain>().is_err(), "255 characters");
    }
}
