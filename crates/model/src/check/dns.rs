//! Name servers inside guests.

use std::{collections::HashSet, hash::Hash, net::IpAddr};

use super::AllWritten;
use crate::{
    Boot, Generate, GuestKind, GuestName, Template,
    diagnostic::{Diagnostic, Path},
    dns::{Dns, MOST_DOMAIN_CHARACTERS, MOST_DOMAINS, MOST_SERVERS, words},
    document::DnsDocument,
};

/// How a guest resolves names, as it is written at `path`. Of what was reported nothing more is said.
pub(super) fn build(
    (guest, kind, boot): (&GuestName, GuestKind, &Boot),
    (generate, has_functions): (&[Generate], bool),
    document: Option<DnsDocument>,
    path: &Path,
    all: &AllWritten,
    messages: &mut Vec<Diagnostic>,
) -> Option<Dns> {
    let DnsDocument { servers, search } = document?;
    if kind == GuestKind::Vm
        && *boot != Boot::Builtin
        && !generate.iter().any(|file| says_dns(file, has_functions))
    {
        let text = format!("`dns` has no effect on {guest}: what it boots sets its resolver up by itself");
        let hint = "leave it out and set it inside, or have `generate` make a file that says it: `json`, a template of your own, or, for a guest \
                    with `functions`, `networkd`";
        messages.push(Diagnostic::error(path.clone(), text).at_key().with_hint(hint));
        return None;
    }
    let (servers, is_list) = servers.map_or((Vec::new(), false), |servers| (servers.values, servers.list));
    let addresses: Vec<IpAddr> = servers.iter().map(|server| server.0).collect();
    if addresses.is_empty() && !all.reported.contains(path) && !all.reported.contains(&path.join("servers")) {
        let text = "without a server programs ask one on the guest itself, and there is none";
        let hint = "write `servers`, like {servers: [192.0.2.53]}";
        messages.push(Diagnostic::error(path.clone(), text).with_hint(hint));
    }
    let at = |position: usize| place(path.join("servers"), is_list, position);
    for (position, server) in addresses.iter().enumerate().take(MOST_SERVERS) {
        let (why, hint) = match server {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => (
                "is a link-local address, which says nothing without its interface",
                "write another address of the server",
            ),
            _ if server.is_unspecified() || server.is_multicast() || is_broadcast(*server) => {
                ("is no address of a server", "write the address that the server answers at")
            }
            _ => continue,
        };
        messages.push(Diagnostic::error(at(position), format!("{server} {why}")).with_hint(hint));
    }
    if addresses.len() > MOST_SERVERS {
        let text =
            format!("resolvers ask no more than {MOST_SERVERS} servers, and here are {}", addresses.len());
        let error = Diagnostic::error(at(MOST_SERVERS), text);
        messages.push(error.with_hint("leave the rest out, or let one server forward to them"));
    }
    twice(&addresses, &at, messages);
    let (search, is_list) = search.map_or((Vec::new(), false), |search| (search.values, search.list));
    let at = |position: usize| place(path.join("search"), is_list, position);
    if search.len() > MOST_DOMAINS {
        let text =
            format!("resolvers search no more than {MOST_DOMAINS} domains, and here are {}", search.len());
        messages.push(Diagnostic::error(at(MOST_DOMAINS), text).with_hint("leave the rest out"));
    } else if let Some(length) = Some(words(&search).len()).filter(|length| *length > MOST_DOMAIN_CHARACTERS)
    {
        let text = format!(
            "resolvers read no more than {MOST_DOMAIN_CHARACTERS} characters of domains, and here are {length}"
        );
        messages.push(Diagnostic::error(path.join("search"), text).with_hint("leave some out"));
    }
    twice(&search, &at, messages);
    Some(Dns { servers: addresses, search })
}

/// Whether a file that is made for a guest can say it. Those of systemd-networkd are of functions: without one there is no file.
fn says_dns(file: &Generate, has_functions: bool) -> bool {
    match file.template {
        Template::Networkd => has_functions,
        Template::Json | Template::File { .. } => true,
        Template::CHeader => false,
    }
}

/// Where a value of a list stands, or the one that is no list.
fn place(path: Path, is_list: bool, position: usize) -> Path {
    if is_list { path.join(position) } else { path }
}

/// 255.255.255.255.
fn is_broadcast(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(ip) if ip.is_broadcast())
}

/// Warns of the first that is there twice.
fn twice<T: Eq + Hash + ToString>(all: &[T], at: &dyn Fn(usize) -> Path, messages: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    if let Some((position, one)) = all.iter().enumerate().find(|(_, one)| !seen.insert(*one)) {
        let warning = Diagnostic::warning(at(position), format!("{} is there twice", one.to_string()));
        messages.push(warning.with_hint("leave one out"));
    }
}
