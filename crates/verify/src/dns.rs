//! How programs in a guest resolve names, from the inside: its `/etc/resolv.conf`.

use std::net::IpAddr;

use penstock_host::{Place, PlaceError, chain};
use penstock_model::{
    Dns, GuestName, Outcome,
    dns::{RESOLV_CONF, RESOLVED_CONF, ResolverFile, words},
    text::is_hidden,
};

use super::{
    observation::Observation,
    writer::{Unobserved, VerdictWriter},
};

/// What a guest's file says. Whoever is root inside may have written it, and a resolver reads what is there.
const LIMIT: usize = 64 << 10;

/// More words than a resolver could use are not shown.
const SHOWN: usize = 8;

/// Judges the name servers and the search domains of a guest.
pub fn judge(observation: &Observation<'_>, name: &GuestName, dns: &Dns, page: &mut VerdictWriter<'_>) {
    let inside = observation.inside(name).map_err(|dark| Unobserved::Unknown(dark.why()));
    let place = inside.and_then(|_| {
        observation.place(name).ok_or_else(|| Unobserved::Unknown("it cannot be looked into".to_owned()))
    });
    let file = place.and_then(|place| read(place, dns));
    let wanted = |words: String| if words.is_empty() { "none".to_owned() } else { words };
    let mut put = |item: &str, wanted: String, seen: Result<(String, bool), Unobserved>| {
        let (seen, outcome) = match seen {
            Ok((_, true)) => (wanted.clone(), Outcome::Pass),
            Ok((seen, false)) => (seen, Outcome::Fail),
            Err(unobserved) => unobserved.outcome(),
        };
        page.put_item("dns", Some(item.to_owned()), wanted, seen, outcome);
    };
    let servers = file.as_ref().map(|file| (shown(&file.servers), file.asks(&dns.servers)));
    put("servers", words(&dns.servers), servers.map_err(Clone::clone));
    // Where the model has none, none is wanted: one that somebody else adds decides where a name without a dot leads.
    let search = file.as_ref().map(|file| (shown(&file.search), file.searches(&dns.search)));
    put("search", wanted(words(&dns.search)), search.map_err(Clone::clone));
}

fn read(place: &dyn Place, dns: &Dns) -> Result<ResolverFile, Unobserved> {
    let at = |path: &str| -> Result<ResolverFile, PlaceError> {
        Ok(ResolverFile::read(&String::from_utf8_lossy(&place.read(path, LIMIT)?)))
    };
    let unknown = |error: PlaceError| Unobserved::Unknown(chain(&error));
    // Without it a resolver asks a server on the guest itself. Where systemd-resolved says nothing, it is not known whom it asks.
    let file = at(RESOLV_CONF).map_err(|error| match error.is_missing() {
        true => Unobserved::Absent(format!("there is no {RESOLV_CONF}")),
        false => unknown(error),
    })?;
    if !file.is_stub() || dns.servers.iter().all(IpAddr::is_loopback) {
        return Ok(file);
    }
    at(RESOLVED_CONF).map_err(unknown)
}

/// Words of a file that anybody may have written, as they can be shown.
fn shown(words: &[String]) -> String {
    let visible = |c: char| if is_hidden(c) { char::REPLACEMENT_CHARACTER } else { c };
    let clean = |word: &String| word.chars().map(visible).take(64).collect::<String>();
    let mut all: Vec<String> = words.iter().take(SHOWN).map(clean).collect();
    all.extend((words.len() > SHOWN).then(|| "...".to_owned()));
    if all.is_empty() { "none".to_owned() } else { all.join(" ") }
}
