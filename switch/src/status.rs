//! How a switch is, for people.

use std::{collections::BTreeMap, fmt::Write};

use crate::server::PortState;

const HEADINGS: [&str; 8] = ["PORT", "STATE", "LINK", "VLAN", "SENT", "RECEIVED", "COPIES", "DROPPED"];

/// A table with a line for each port, and under it what was dropped and why.
pub fn table(ports: &BTreeMap<String, PortState>) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(ports.iter().map(|(name, port)| row(name, port)));
    let mut widths = [0; HEADINGS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            // Numbers end where the others end.
            4.. => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    });
    let mut text = lines.next().unwrap_or_default();
    for (line, port) in lines.zip(ports.values()) {
        text += &line;
        notes(&mut text, port);
    }
    text
}

fn row(name: &str, port: &PortState) -> [String; HEADINGS.len()] {
    let settings = &port.settings;
    let counters = &port.counters;
    let state = match (port.connected, &port.broken) {
        (false, _) => "awaited",
        (true, Some(_)) => "broken",
        (true, None) => "connected",
    };
    let vlan = match (settings.vlan, &settings.trunk) {
        (0, None) => "all".to_owned(),
        (0, Some(trunk)) => trunk.clone(),
        (own, _) => format!("own {own}"),
    };
    let dropped: u64 = [&counters.dropped_sent, &counters.dropped_received, &counters.dropped_mirrored]
        .iter()
        .flat_map(|reasons| reasons.values())
        .sum();
    [
        name.to_owned(),
        state.to_owned(),
        if port.up { "up" } else { "down" }.to_owned(),
        vlan,
        counters.sent.to_string(),
        counters.received.to_string(),
        counters.mirrored.to_string(),
        dropped.to_string(),
    ]
}

/// What a line has no room for.
fn notes(text: &mut String, port: &PortState) {
    let counters = &port.counters;
    let mut note = |what: &str, why: &str| {
        // A String takes all that is written.
        let _ = writeln!(text, "    {what}{why}");
    };
    if let Some(why) = port.unconnected.as_ref().filter(|_| !port.connected) {
        note("not connected: ", why);
    }
    if let Some(why) = &port.untold {
        note("", why);
    }
    if let Some(why) = &port.unlearned {
        note("", why);
    }
    if let Some(why) = &port.broken {
        note("a ring is served no more: ", why);
    }
    let inside = &port.inside;
    if !inside.set.is_empty() {
        let set = inside.set.iter().map(|(key, value)| match inside.host.get(key) {
            Some(host) => format!("{key} {value} (the host has {host})"),
            None => format!("{key} {value}"),
        });
        note("set from inside: ", &set.collect::<Vec<_>>().join(", "));
    }
    if !inside.granted.is_empty() {
        note("its guest asked for, and has: ", &inside.granted.to_string());
    }
    for missing in &inside.ungranted {
        note("its guest asks for, and has not: ", missing);
    }
    if !inside.refused.is_empty() {
        let all: Vec<String> =
            inside.refused.iter().map(|(why, count)| format!("{count} {}", named(*why))).collect();
        note("refused to the inside: ", &all.join(", "));
    }
    for (what, reasons) in [
        ("of what it sent, dropped: ", &counters.dropped_sent),
        ("for it, dropped: ", &counters.dropped_received),
        ("copies for it, dropped: ", &counters.dropped_mirrored),
    ] {
        if !reasons.is_empty() {
            let all: Vec<String> =
                reasons.iter().map(|(why, count)| format!("{count} {}", named(*why))).collect();
            note(what, &all.join(", "));
        }
    }
}

/// A reason as the protocol spells it.
fn named(why: impl serde::Serialize) -> String {
    serde_json::to_value(why).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        allow::Refusal,
        config::PortConfig,
        counters::Dropped,
        server::{Counted, Granted, InsideState},
    };

    #[test]
    fn a_table_has_a_line_for_each_port_and_says_why() {
        let counters = Counted {
            sent: 1234,
            dropped_sent: BTreeMap::from([(Dropped::SpoofedMac, 3), (Dropped::LinkDown, 1)]),
            ..Counted::default()
        };
        let settings = PortConfig { vlan: 100, ..PortConfig::default() };
        let one = PortState { settings, connected: true, up: true, counters, ..PortState::default() };
        let inside = InsideState {
            set: [("vlan".to_owned(), 7.into())].into_iter().collect(),
            host: [("vlan".to_owned(), 100.into())].into_iter().collect(),
            granted: Granted {
                macs: vec!["02:00:00:00:00:09".to_owned()],
                promiscuous: true,
                vlans: vec![5],
            },
            ungranted: vec!["VLAN 6: the host allows VLANs 5".to_owned()],
            refused: BTreeMap::from([(Refusal::Vlan, 2), (Refusal::MaxTxRate, 1)]),
        };
        let one = PortState { inside, ..one };
        let other = PortState { unconnected: Some("it has not come".to_owned()), ..PortState::default() };
        let text = table(&BTreeMap::from([("NET0#0".to_owned(), one), ("cable".to_owned(), other)]));
        let wanted = "\
PORT    STATE      LINK  VLAN     SENT  RECEIVED  COPIES  DROPPED
NET0#0  connected  up    own 100  1234         0       0        4
    set from inside: vlan 7 (the host has 100)
    its guest asked for, and has: address 02:00:00:00:00:09, VLAN 5, all frames of its VLANs
    its guest asks for, and has not: VLAN 6: the host allows VLANs 5
    refused to the inside: 2 vlan, 1 max_tx_rate
    of what it sent, dropped: 3 spoofed_mac, 1 link_down
cable   awaited    down  all         0         0       0        0
    not connected: it has not come
";
        assert_eq!(text, wanted);
    }
}
