//! What ports get of an uplink of limited speed, by a clock of ours.

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A port that sends: its guarantee, its limit, and nanoseconds between two frames; 0: it always has one.
struct Sender {
    min: u32,
    max: u32,
    every: u64,
}

fn greedy(min: u32) -> Sender {
    Sender { min, max: 0, every: 0 }
}

/// What each of these gets through an uplink of this speed in a second, in Mbit/s.
fn shares(speed: u32, senders: &[Sender], to: u8) -> Vec<f64> {
    let mut all: Vec<Settings> = (0..senders.len() as u8).map(settings).collect();
    for (settings, sender) in all.iter_mut().zip(senders) {
        (settings.min_tx_rate, settings.max_tx_rate) = (sender.min, sender.max);
    }
    let uplink = all.len();
    all.push(Settings { uplink: true, speed, ..settings(200) });
    all.push(settings(201));
    let (mut engine, mut guests) = rig(true, all);
    let mut due: Vec<u64> = senders.iter().map(|sender| if sender.every > 0 { SECOND } else { 0 }).collect();
    let sent = |engine: &Engine| -> Vec<u64> {
        (0..senders.len()).map(|id| engine.counters(id as PortId).unwrap().sent_bytes).collect()
    };
    // Uneven steps, as a thread has them.
    let (mut now, mut step, mut before) = (SECOND, 7_u64, None);
    while now < 2 * SECOND + SECOND / 5 {
        for (number, sender) in senders.iter().enumerate() {
            let guest = &mut guests[number];
            while guest.sending.used(&guest.memory).is_some() {}
            while due[number] <= now {
                if !guest.try_send_in(&[0; 12], &frame(to, number as u8, None, 1000), &[]) {
                    break;
                }
                due[number] += sender.every;
            }
        }
        engine.round(now);
        for guest in [uplink, uplink + 1] {
            guests[guest].got_again();
        }
        step = (step * 31 + 11) % 97;
        now += 20_000 + step * 800;
        // What the silent were ahead is gone by then.
        if before.is_none() && now >= SECOND + SECOND / 5 {
            before = Some(sent(&engine));
        }
    }
    let before = before.unwrap();
    sent(&engine).iter().zip(before).map(|(after, before)| (after - before) as f64 * 8.0 / 1e6).collect()
}

fn close(got: &[f64], wanted: &[f64]) {
    for (got_one, wanted_one) in got.iter().zip(wanted) {
        assert!((got_one / wanted_one - 1.0).abs() < 0.02, "{got:?} Mbit/s, and {wanted:?} were due");
    }
}

#[test]
fn an_uplink_is_shared_evenly_and_no_faster_than_it_is() {
    close(&shares(60, &[greedy(0), greedy(0), greedy(0)], 9), &[20.0, 20.0, 20.0]);
    close(&shares(500, &[greedy(0), greedy(0)], 9), &[250.0, 250.0]);
}

#[test]
fn a_guarantee_holds_and_the_rest_is_shared() {
    // 20 are nobody's: a third for each.
    let third = 20.0 / 3.0;
    close(&shares(100, &[greedy(60), greedy(20), greedy(0)], 9), &[60.0 + third, 20.0 + third, third]);
    // All of it is given away.
    let got = shares(100, &[greedy(80), greedy(20), greedy(0)], 9);
    close(&got[..2], &[80.0, 20.0]);
    assert!(got[2] < 2.0, "{got:?}");
}

#[test]
fn what_is_limited_leaves_its_share_to_others() {
    let limited = || Sender { min: 10, max: 12, every: 0 };
    close(&shares(80, &[limited(), greedy(0), greedy(0)], 9), &[12.0, 34.0, 34.0]);
    // Nor does it wait for others who has little to send: 1,014 bytes a millisecond.
    let modest = Sender { min: 0, max: 0, every: 1_000_000 };
    close(&shares(80, &[modest, greedy(0), limited()], 9), &[8.112, 59.9, 12.0]);
}

#[test]
fn who_does_not_go_out_is_not_slowed() {
    // To the neighbour instead of the uplink: nothing holds it but the test's own steps.
    let got = shares(10, &[greedy(0)], 201);
    assert!(got[0] > 500.0, "{got:?}");
}
