//! Rates, from what was counted at two moments.

use std::collections::BTreeMap;

use penstock_model::{
    Bdf, GuestName,
    inventory::{InterfaceCounters, VfCounters},
};
use penstock_report::metrics::{FunctionMetrics, Snapshot};

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
    /// What was counted from `before` to `after`, which is so many seconds. What began anew meanwhile, or is counted by somebody else
    /// now, has no rate.
    pub fn between(before: &Snapshot, after: &Snapshot, seconds: f64) -> Rates {
        if seconds <= 0.0 {
            return Rates::default();
        }
        let of_functions = |snapshot: &Snapshot| -> BTreeMap<Bdf, Totals> {
            let totals = |function: &FunctionMetrics| Some((function.identity.bdf, Totals::of(function)?));
            snapshot.functions.iter().filter_map(totals).collect()
        };
        let of_ports = |snapshot: &Snapshot| -> BTreeMap<(GuestName, String), Totals> {
            let ports = snapshot.ports.iter();
            ports
                .filter_map(|port| {
                    let totals = Totals::of_vf(&port.counters.as_ref()?.of_vf());
                    Some(((port.guest.clone(), port.port.clone()), totals))
                })
                .collect()
        };
        Rates {
            functions: rates(&of_functions(before), of_functions(after), seconds),
            ports: rates(&of_ports(before), of_ports(after), seconds),
        }
    }
}

fn rates<K: Ord>(
    before: &BTreeMap<K, Totals>,
    after: BTreeMap<K, Totals>,
    seconds: f64,
) -> BTreeMap<K, Rate> {
    let rate = |(key, now): (K, Totals)| {
        let rate = before.get(&key)?.until(&now, seconds)?;
        Some((key, rate))
    };
    after.into_iter().filter_map(rate).collect()
}

/// What was counted since the counters began.
#[derive(Clone, Copy, Debug)]
struct Totals {
    /// Whether the interface itself has counted.
    by_interface: bool,
    rx_bytes: u64,
    tx_bytes: u64,
    rx_packets: u64,
    tx_packets: u64,
    dropped: u64,
}

impl Totals {
    fn of(function: &FunctionMetrics) -> Option<Totals> {
        let own = function.interface.as_ref().and_then(|interface| interface.counters.as_ref());
        own.map(Totals::of_interface).or_else(|| function.counters.as_ref().map(Totals::of_vf))
    }

    fn of_interface(counters: &InterfaceCounters) -> Totals {
        Totals {
            by_interface: true,
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            dropped: counters.rx_dropped.saturating_add(counters.tx_dropped),
        }
    }

    fn of_vf(counters: &VfCounters) -> Totals {
        let dropped = counters.rx_dropped.unwrap_or(0).saturating_add(counters.tx_dropped.unwrap_or(0));
        Totals {
            by_interface: false,
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            dropped,
        }
    }

    fn until(&self, after: &Totals, seconds: f64) -> Option<Rate> {
        let per_second = |before: u64, after: u64| Some(after.checked_sub(before)? as f64 / seconds);
        if self.by_interface != after.by_interface {
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
    use super::{super::tests::machine, *};

    #[test]
    fn what_began_anew_has_no_rate() {
        let (mut before, after) = (machine(0), machine(1));
        let rates = Rates::between(&before, &after, 2.0);
        let vf: Bdf = "0000:01:10.0".parse().unwrap();
        let rate = rates.functions[&vf];
        assert_eq!((rate.rx_bytes, rate.rx_packets), (75_000.0, 50.0));
        assert_eq!(Rates::between(&after, &before, 2.0).functions.get(&vf), None, "counters began anew");
        assert_eq!(Rates::between(&before, &after, 0.0), Rates::default());
        // It was an interface that counted, and is the PF now.
        for function in &mut before.functions {
            let totals = InterfaceCounters::default();
            if let Some(interface) = &mut function.interface {
                interface.counters = Some(totals);
            }
        }
        assert_eq!(rates.ports.len(), 1);
        assert!(
            Rates::between(&before, &after, 2.0).functions.contains_key(&"0000:01:00.0".parse().unwrap())
        );
    }
}
