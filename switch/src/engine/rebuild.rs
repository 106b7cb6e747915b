//! What is looked up for each frame, made from the ports' settings.

use super::{Engine, Port, share::Share};
use crate::table::{PortId, Table};

impl Engine {
    /// Makes anew what is looked up for each frame.
    pub(super) fn rebuild(&mut self) {
        let found = || {
            let numbered = (0..).zip(self.ports.iter());
            numbered.filter_map(|(id, port): (PortId, _)| Some((id, port.as_deref()?)))
        };
        let addresses: Vec<_> =
            found().flat_map(|(id, port)| port.settings().macs.iter().map(move |mac| (*mac, id))).collect();
        self.table = Table::new(&addresses);
        self.promiscuous = found().filter(|(_, port)| hears_all(port)).map(|(id, _)| id).collect();
        self.unclaimed = found().filter(|(_, port)| hears_unclaimed(port)).map(|(id, _)| id).collect();
        self.uplink = found().find(|(_, port)| port.settings().uplink).map(|(id, _)| id);
        self.present = found().filter(|(id, port)| self.hears(*id, port)).map(|(id, _)| id).collect();
        let speed = |id: PortId| Some((id, self.port(id)?.settings().speed));
        let share = Share::new(self.uplink.and_then(speed));
        if !share.is_like(&self.share) {
            self.share = share;
        }
        for (id, port) in (0..).zip(&mut self.ports) {
            let Some(port) = port.as_deref_mut() else { continue };
            port.watched = self.mirrors.watched(id);
            port.noted = port.watched.received || self.uplink == Some(id) && port.settings().speed > 0;
        }
        let carrier = self.uplink_carrier();
        self.ports.iter_mut().flatten().for_each(|port| port.find_link(carrier));
        self.make_room();
    }

    /// Adds the port of this number to what is looked up for each frame, which many that are added one after the other would make as often as they
    /// are. `false`: it is no new one behind all others, or there is no room, and all has to be made anew.
    pub(super) fn append(&mut self, id: PortId) -> bool {
        let is_last = usize::from(id) + 1 == self.ports.len();
        let Some(port) = self.ports.get(usize::from(id)).and_then(Option::as_deref) else { return false };
        // All others' links may be an uplink's.
        if !is_last || port.settings().uplink || !self.table.add(&port.settings().macs, id) {
            return false;
        }
        if hears_all(port) {
            self.promiscuous.push(id);
        }
        if hears_unclaimed(port) {
            self.unclaimed.push(id);
        }
        if self.hears(id, port) {
            self.present.push(id);
        }
        let (watched, carrier) = (self.mirrors.watched(id), self.uplink_carrier());
        if let Some(port) = self.port_mut(id) {
            port.watched = watched;
            port.noted = watched.received;
            port.find_link(carrier);
        }
        self.make_room();
        true
    }

    /// Finds the links anew that the carrier of this port makes: its own, and all when it is the uplink.
    pub(super) fn find_links(&mut self, id: PortId) {
        let carrier = self.uplink_carrier();
        if self.uplink == Some(id) {
            self.ports.iter_mut().flatten().for_each(|port| port.find_link(carrier));
        } else if let Some(port) = self.port_mut(id) {
            port.find_link(carrier);
        }
    }

    fn uplink_carrier(&self) -> bool {
        self.uplink.and_then(|id| self.port(id)).is_none_or(Port::leads_out)
    }

    /// Who watches others and has no address hears nothing but copies.
    fn hears(&self, id: PortId, port: &Port) -> bool {
        !self.mirrors.watches(id) || !port.settings().macs.is_empty()
    }

    /// A frame for all touches each of them.
    fn make_room(&mut self) {
        let all = self.present.len();
        self.touched.reserve(all.saturating_sub(self.touched.len()));
    }
}

fn hears_all(port: &Port) -> bool {
    port.settings().promiscuous && port.settings().trust
}

/// Whether a port gets what nobody has the address of. Who hears everything hears this too, and once.
fn hears_unclaimed(port: &Port) -> bool {
    port.settings().default || port.settings().uplink || hears_all(port)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        engine::mirror::Mirror,
        net::Mac,
        settings::{LinkState, Settings},
    };

    /// All that is looked up, in words.
    fn looked_up(engine: &Engine) -> String {
        let of_port = |port: &Port| (port.watched, port.noted, port.is_up());
        let ports: Vec<_> = engine.ports.iter().map(|port| port.as_deref().map(of_port)).collect();
        let Engine { table, promiscuous, unclaimed, present, uplink, .. } = engine;
        format!("{table:?} {promiscuous:?} {unclaimed:?} {present:?} {uplink:?} {ports:?}")
    }

    /// Settings of many kinds: each has what the bits of a number say.
    fn settings(number: u16) -> Settings {
        let is = |bit: u16| (number >> bit) & 1 == 1;
        let [high, low] = number.to_be_bytes();
        Settings {
            // Several have one address, each in a VLAN of its own; some have none.
            macs: if number % 7 == 3 { Vec::new() } else { vec![Mac::new([2, 0, 0, 0, high, low & 0xfe])] },
            promiscuous: is(1),
            trust: is(2),
            default: is(3),
            link_state: if is(4) { LinkState::Auto } else { LinkState::Enable },
            uplink: number == 40,
            speed: 1000,
            ..Settings::default()
        }
    }

    #[test]
    fn ports_that_are_added_are_looked_up_as_if_all_was_made_anew() {
        let mut engine = Engine::default();
        let mirror = Mirror { port: 3, of: vec![5, 80], sent: true, received: true };
        engine.set_mirrors(vec![mirror]);
        let as_made_anew = |engine: &mut Engine, what: &str| {
            let found = looked_up(engine);
            engine.rebuild();
            assert_eq!(found, looked_up(engine), "{what}");
        };
        let new = |number| Some(Box::new(Port::new(Arc::new(settings(number)))));
        for number in 0..100 {
            engine.set_port(number, new(number));
            as_made_anew(&mut engine, &format!("{number} is put in"));
            engine.set_carrier(number, number % 3 == 0);
            as_made_anew(&mut engine, &format!("{number} has a carrier or none"));
        }
        engine.set_carrier(40, true);
        as_made_anew(&mut engine, "all links are the uplink's");
        for number in [99, 40, 7] {
            engine.set_port(number, None);
            as_made_anew(&mut engine, &format!("{number} is taken out"));
        }
        for number in [7, 99, 102] {
            engine.set_port(number, new(number));
            as_made_anew(&mut engine, &format!("{number} is put in again"));
        }
    }

    /// Each time all is made anew the room for addresses doubles: many ports take about as long as their number.
    #[test]
    fn many_ports_that_are_added_make_little_anew() {
        let mut engine = Engine::default();
        let mut anew = 0;
        for number in 0..1024 {
            let macs = vec![Mac::new([2, 0, 0, 0, (number >> 8) as u8, number as u8])];
            let port = Port::new(Arc::new(Settings { macs, ..Settings::default() }));
            engine.ports.push(Some(Box::new(port)));
            if !engine.append(number) {
                anew += 1;
                engine.rebuild();
            }
        }
        assert_eq!(engine.present.len(), 1024);
        assert!(anew <= 12, "{anew} times");
    }
}
