//! Rates, as frames show them: how much arrives of what a VF sends as fast as it can.
//!
//! It takes the NIC a second at each VF's rate, and is done only where somebody asks for it. It stays inside the NIC.

use std::time::Duration;

use penstock_host::{frames::Carried, interrupt};
use penstock_model::{FunctionName, Outcome, TxRate};

use super::{
    Observer,
    neighbours::{self, Neighbours, ProvenPath},
    observation::Observation,
    writer::{Hidden, VerdictSheet},
};

/// How long frames are sent. A rate is one of a second.
const SECOND: Duration = Duration::from_secs(1);
/// A second try takes longer: on a busy machine nobody looks at what arrived for a while.
const LONGER: Duration = Duration::from_secs(3);

/// How much more than the rate may arrive, as a part of it.
const TOLERANCE: f64 = 0.02;
/// So much of the time's worth a limit may let through at once after silence: 10 ms, and four full frames.
const BURST: (f64, f64) = (0.010, 4.0 * 1514.0 * 8.0);
/// With less than this part of the rate it is not the limit that kept frames back.
const REACHED: f64 = 0.90;
/// The longest payload that is sent, in bytes.
const MTU: u32 = 1500;

/// Tries the rate of each VF that the model limits.
pub fn judge(
    observation: &Observation<'_>,
    neighbours: &mut Neighbours<'_, '_>,
    observer: &mut dyn Observer,
    sheet: &mut VerdictSheet,
) {
    let limit = |rate: TxRate| Some(rate).filter(|rate| rate.0 > 0);
    let limited = neighbours::owned(
        observation,
        "max_tx_rate",
        |wanted| wanted.max_tx_rate.and_then(limit),
        // An unlimited one is no less told of.
        |seen| Some(seen.max_tx_rate),
    );
    for (vf, rate) in limited {
        match neighbours.way(&vf, neighbours::are_here) {
            Some(Ok(way)) => measure(observation, &way, rate, observer, sheet),
            Some(Err(nowhere)) => {
                let wanted = wanted(rate, &nowhere.receiver);
                nowhere.tell(observation, &vf, "max_tx_rate", wanted, sheet);
            }
            None => (),
        }
    }
}

/// What is to be seen.
fn wanted(rate: TxRate, receiver: &FunctionName) -> String {
    format!("no more than {rate} arrives at {receiver}, whatever is sent")
}

/// What a load says of a rate.
#[derive(Debug, PartialEq)]
enum Said {
    /// It held, and it was what kept frames back.
    Held,
    /// More came through.
    Broken,
    /// More may have come through: the receiver could not count all.
    Uncounted,
    /// So little was sent that it shows nothing.
    NotReached,
}

fn measure(
    observation: &Observation<'_>,
    way: &ProvenPath,
    rate: TxRate,
    observer: &mut dyn Observer,
    sheet: &mut VerdictSheet,
) {
    let mtu = [&way.sender, &way.receiver]
        .into_iter()
        .filter_map(|function| observation.interface(function).ok())
        .map(|report| report.interface.mtu)
        .fold(MTU, u32::min);
    let mut load = |lasting| match interrupt::pending() {
        true => Err("it was interrupted".to_owned()),
        false => observer.load(&way.from.endpoint, &way.to.endpoint, mtu, lasting),
    };
    let mut carried = load(SECOND);
    if carried
        .as_ref()
        .is_ok_and(|carried| matches!(judged(rate, carried), Said::NotReached | Said::Uncounted))
    {
        carried = load(LONGER);
    }
    let wanted = wanted(rate, &way.receiver);
    let mut page = neighbours::page(observation, &way.sender, &way.receiver, sheet);
    let imitated = page.emulated;
    let carried = match carried {
        Ok(carried) => carried,
        Err(why) => return page.put("max_tx_rate", wanted, why, Outcome::Unknown),
    };
    let arrived = format!("{:.1} Mbit/s", megabits(carried.arrived, carried.took));
    let failed = carried.failed.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    match judged(rate, &carried) {
        Said::Held => page.put("max_tx_rate", wanted, format!("{arrived} arrive"), Outcome::Pass),
        Said::Broken if imitated => {
            let seen = format!("accepted, and not enforced by this emulated NIC: {arrived} arrive");
            page.put("max_tx_rate", wanted, seen, Outcome::Unsupported);
        }
        Said::Broken => page.put("max_tx_rate", wanted, format!("{arrived} arrive"), Outcome::Fail),
        Said::Uncounted => {
            let unread = format!("{:.1} Mbit/s", megabits(carried.unread, carried.took));
            let seen = format!("{arrived} were counted, and up to {unread} more had no room to wait in");
            page.put("max_tx_rate", wanted, seen, Outcome::Unknown);
        }
        Said::NotReached => {
            let seen = format!(
                "the limit was not reached{failed}: {arrived} is all that got through from here, and nothing is proven \
                 above that"
            );
            // What cannot be sent from here cannot be shown here.
            page.hiding(Hidden::All).put("max_tx_rate", wanted, seen, Outcome::Unknown);
        }
    }
}

fn megabits(bytes: u64, took: Duration) -> f64 {
    bytes as f64 * 8.0 / took.as_secs_f64().max(1e-3) / 1e6
}

fn judged(rate: TxRate, carried: &Carried) -> Said {
    let per_second = f64::from(rate.0) * 1e6;
    let seconds = carried.took.as_secs_f64();
    let most = per_second * (seconds + BURST.0) * (1.0 + TOLERANCE) + BURST.1;
    let bits = |bytes: u64| bytes as f64 * 8.0;
    if bits(carried.arrived) > most {
        Said::Broken
    } else if bits(carried.arrived + carried.unread) > most {
        Said::Uncounted
    } else if bits(carried.arrived + carried.unread) >= per_second * seconds * REACHED {
        Said::Held
    } else {
        Said::NotReached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_held_broken_or_not_reached() {
        let said = |rate: u32, arrived: u64, unread: u64| {
            let took = Duration::from_secs(1);
            judged(TxRate(rate), &Carried { took, arrived, unread, ..Carried::default() })
        };
        // 100 Mbit/s are 12,500,000 bytes a second; 2 %, 10 ms and four frames more are at most 12,883,556.
        assert_eq!(said(100, 12_500_000, 0), Said::Held);
        assert_eq!(said(100, 12_883_000, 0), Said::Held);
        assert_eq!(said(100, 12_884_000, 0), Said::Broken);
        assert_eq!(said(100, 60_000_000, 0), Said::Broken);
        assert_eq!(said(100, 11_250_000, 0), Said::Held);
        assert_eq!(said(100, 11_249_000, 0), Said::NotReached);
        assert_eq!(said(100, 0, 0), Said::NotReached);
        assert_eq!(said(100, 12_500_000, 1_000_000), Said::Uncounted);
        // A slow one is not taken for broken by a few frames.
        assert_eq!(said(1, 125_000 + 4 * 1514, 0), Said::Held);
        assert_eq!(said(1, 150_000, 0), Said::Broken);
    }
}
