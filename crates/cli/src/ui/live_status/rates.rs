//! Rates, from what was counted at two moments.

use std::{collections::BTreeMap, time::Instant};

use penstock_model::{
    Bdf, GuestName,
    inventory::{InterfaceCounters, VfCounters},
};
use penstock_report::metrics::{FunctionMetrics, PortMetrics};

use crate::metrics::CountedSnapshot;

/// What went through a function or a port in a second. Received and sent are the function's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Bytes received.
    pub rx_bytes: f64,
    /// Bytes sent.
    pub tx_bytes: f64,
    /// Packets received.
    pub rx_packets: f64,
    /// Packets sent.
    pub tx_packets: f64,
    /// Packets dropped, in either direction.
    pub dropped: f64,
}

/// The rates of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Of functions: what the interface counts where it can be seen, else what the PF counts for a VF.
    pub functions: BTreeMap<Bdf, Rate>,
    /// Of the ports of NICs that VMs own, by guest and port.
    pub ports: BTreeMap<(GuestName, String), Rate>,
}

impl Rates {
    /// What was counted from `before` to `after`. What began anew meanwhile, or is counted by somebody else now, has no rate.
    pub fn between(before: &CountedSnapshot, after: &CountedSnapshot) -> Rates {
        let of_functions = |counted: &CountedSnapshot| -> BTreeMap<Bdf, Totals> {
            let totals = |function: &FunctionMetrics| {
                Some((function.identity.bdf, Totals::of(function, counted.functions)?))
            };
            counted.snapshot.functions.iter().filter_map(totals).collect()
        };
        let of_ports = |counted: &CountedSnapshot| -> BTreeMap<(GuestName, String), Totals> {
            let totals = |port: &PortMetrics| {
                let read = counted.ports.get(&(port.guest.clone(), port.nic.clone()))?;
                let totals = Totals::of_vf(&port.counters.as_ref()?.of_vf(), *read);
                Some(((port.guest.clone(), port.port.clone()), totals))
            };
            counted.snapshot.ports.iter().filter_map(totals).collect()
        };
        Rates {
            functions: rates(&of_functions(before), of_functions(after)),
            ports: rates(&of_ports(before), of_ports(after)),
        }
    }
}

fn rates<K: Ord>(before: &BTreeMap<K, Totals>, after: BTreeMap<K, Totals>) -> BTreeMap<K, Rate> {
    let rate = |(key, now): (K, Totals)| {
        let rate = before.get(&key)?.until(&now)?;
        Some((key, rate))
    };
    after.into_iter().filter_map(rate).collect()
}

/// What was counted since the counters began.
#[derive(Clone, Copy, Debug)]
struct Totals {
    /// When the counters were read.
    read: Instant,
    /// Whether the interface itself has counted.
    by_interface: bool,
    rx_bytes: u64,
    tx_bytes: u64,
    rx_packets: u64,
    tx_packets: u64,
    dropped: u64,
}

impl Totals {
    fn of(function: &FunctionMetrics, read: Instant) -> Option<Totals> {
        let own = function.interface.as_ref().and_then(|interface| interface.counters.as_ref());
        let of_pf = || function.counters.as_ref().map(|counters| Totals::of_vf(counters, read));
        own.map(|counters| Totals::of_interface(counters, read)).or_else(of_pf)
    }

    fn of_interface(counters: &InterfaceCounters, read: Instant) -> Totals {
        Totals {
            read,
            by_interface: true,
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            dropped: counters.rx_dropped.saturating_add(counters.tx_dropped),
        }
    }

    fn of_vf(counters: &VfCounters, read: Instant) -> Totals {
        let dropped = counters.rx_dropped.unwrap_or(0).saturating_add(counters.tx_dropped.unwrap_or(0));
        Totals {
            read,
            by_interface: false,
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            dropped,
        }
    }

    fn until(&self, after: &Totals) -> Option<Rate> {
        let seconds = after.read.saturating_duration_since(self.read).as_secs_f64();
        let per_second = |before: u64, after: u64| Some(after.checked_sub(before)? as f64 / seconds);
        if self.by_interface != after.by_interface || seconds <= 0.0 {
            return None;
        }
        Some(Rate {
            rx_bytes: per_second(self.rx_bytes, after.rx_bytes)?,
            tx_bytes: per_second(self.tx_bytes, after.tx_bytes)?,
            rx_packets: per_second(self.rx_packets, after.rx_packets)?,
            tx_packets: per_second(self.tx_packets, after.tx_packets)?,
            dropped: per_second(self.dropped, after.dropped)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::tests::counted, *};

    #[test]
    fn what_began_anew_has_no_rate() {
        let began = Instant::now();
        let (before, after) = (counted(0, began), counted(1, began));
        let rates = Rates::between(&before, &after);
        let vf: Bdf = "0000:01:10.0".parse().unwrap();
        let rate = rates.functions[&vf];
        assert_eq!((rate.rx_bytes, rate.rx_packets), (75_000.0, 50.0));
        assert_eq!(rates.ports.len(), 1);
        assert_eq!(Rates::between(&after, &before).functions.get(&vf), None, "counters began anew");
        let same = CountedSnapshot { snapshot: after.snapshot.clone(), ..before.clone() };
        assert_eq!(Rates::between(&before, &same), Rates::default(), "no time has passed");
    }

    #[test]
    fn what_is_counted_by_somebody_else_now_has_no_rate() {
        let began = Instant::now();
        let (mut before, after) = (counted(0, began), counted(1, began));
        let [pf, vf] = ["0000:01:00.0", "0000:01:10.0"].map(|bdf| bdf.parse::<Bdf>().unwrap());
        // Its interface has counted for the VF, whose guest has taken it since, so that the PF counts.
        let interface = before.snapshot.functions.iter().find_map(|function| function.interface.clone());
        let of_vf =
            before.snapshot.functions.iter_mut().find(|function| function.identity.bdf == vf).unwrap();
        of_vf.interface = interface;
        let rates = Rates::between(&before, &after).functions;
        assert!(rates.contains_key(&pf) && !rates.contains_key(&vf), "{rates:?}");
    }

    #[test]
    fn looks_that_take_unequal_time_tell_the_same_rate() {
        let began = Instant::now();
        let (before, mut after) = (counted(0, began), counted(1, began));
        let rates = Rates::between(&before, &after);
        // The VM has kept the second look waiting for 2 s, and has sent on meanwhile.
        for read in after.ports.values_mut() {
            *read += Duration::from_secs(2);
        }
        for port in &mut after.snapshot.ports {
            let counters = port.counters.as_mut().unwrap();
            (counters.received, counters.received_bytes) =
                (2 * counters.received, 2 * counters.received_bytes);
        }
        assert_eq!(Rates::between(&before, &after), rates);
    }
}
