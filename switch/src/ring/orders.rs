//! Every order in which a driver and the switch may see each other's words, as far as the language's memory model goes (`loom`,
//! with at most three turns cut short in each run).
//!
//! What both must never do at once is to go to sleep: the one that was told to wait has seen what there was, or the other has
//! seen that it is to be woken. And what shows is whole.

use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    driver::{Driver, Form, GuestMemory, PackedDriver, SplitDriver},
    modelled::is_alone,
    ring::atomics::Modelled,
};

const RINGS: u64 = 0x1000;
const ENTRIES: u16 = 2;

/// What is run in each order; it says what is wrong.
type What = fn(&GuestMemory, Box<dyn Driver>, Ring, bool) -> Result<(), String>;

/// Runs this with a ring of two entries of each kind, at each place where it may stand.
/// What `what` says of each order is looked at when the model has ended: a panic in it would wait for its threads for ever.
fn each(test: &str, what: What) {
    if !is_alone(module_path!(), test) {
        return;
    }
    for (packed, event_index) in [(false, false), (false, true), (true, false), (true, true)] {
        for rounds in 0..3 {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(3);
            let wrong = Arc::new(Mutex::new(None));
            let told = Arc::clone(&wrong);
            model.check(move || {
                let memory = GuestMemory::ours(0x1100);
                let layout;
                let (mut driver, mut ring): (Box<dyn Driver>, _) = if packed {
                    let driver = PackedDriver::new(RINGS, ENTRIES);
                    layout = driver.layout(event_index);
                    let ring = Packed::new(&memory.shared(), &layout, 0x8000).unwrap();
                    (Box::new(driver), Ring::Packed(ring))
                } else {
                    let driver = SplitDriver::new(RINGS, ENTRIES);
                    layout = driver.layout(event_index);
                    (Box::new(driver), Ring::Split(Split::new(&memory.shared(), &layout, 0).unwrap()))
                };
                let mut batch = Batch::default();
                for _ in 0..rounds {
                    driver.offer(&memory, &[(0, 60, false)], Form::Chained).unwrap();
                    driver.kicks(&memory, event_index);
                    batch.clear();
                    ring.take(Direction::FromGuest, 8, &mut batch).unwrap();
                    ring.complete(&batch.chains()[0], 0);
                    ring.publish();
                    driver.used(&memory).unwrap();
                }
                let len = u64::from(ENTRIES) * 26 + 16;
                let start = memory.shared().guest(RINGS, len as u32).unwrap().start;
                let _modelled = Modelled::words(start, len as usize);
                if let Err(why) = what(&memory, driver, ring, event_index) {
                    *told.lock().unwrap() = Some(why);
                }
            });
            let wrong = wrong.lock().unwrap().take();
            assert_eq!(wrong, None, "packed {packed}, event index {event_index}, after {rounds} frames");
        }
    }
}

/// Runs both side by side to their ends; says what came of each.
fn both<A: Send + 'static, B: Send + 'static>(
    one: impl FnOnce() -> A + Send + 'static,
    other: impl FnOnce() -> B,
) -> (A, B) {
    let thread = loom::thread::spawn(one);
    let other = other();
    (thread.join().unwrap(), other)
}

#[test]
fn who_sends_kicks_or_is_seen() {
    each("who_sends_kicks_or_is_seen", |memory, mut driver, mut ring, event_index| {
        ring.ask_for_kicks(false);
        let theirs = memory.again();
        let (seen, kicks) = both(
            move || ring.ask_for_kicks(true),
            move || {
                driver.offer(&theirs, &[(0, 60, false)], Form::Chained).unwrap();
                driver.kicks(&theirs, event_index)
            },
        );
        (seen || kicks).then_some(()).ok_or_else(|| "the switch sleeps, and nobody wakes it".to_owned())
    });
}

#[test]
fn who_waits_is_woken_or_sees() {
    each("who_waits_is_woken_or_sees", |memory, mut driver, mut ring, event_index| {
        driver.offer(memory, &[(0, 60, false)], Form::Chained).unwrap();
        driver.want_wake(memory, false, event_index);
        let mut batch = Batch::default();
        assert_eq!(ring.take(Direction::FromGuest, 8, &mut batch), Ok(1));
        let theirs = memory.again();
        let (wakes, seen) = both(
            move || {
                ring.complete(&batch.chains()[0], 0);
                ring.publish()
            },
            move || {
                driver.want_wake(&theirs, true, event_index);
                driver.used(&theirs).is_some()
            },
        );
        (wakes || seen).then_some(()).ok_or_else(|| "the guest sleeps, and nobody wakes it".to_owned())
    });
}

#[test]
fn what_is_taken_is_whole_and_in_order() {
    each("what_is_taken_is_whole_and_in_order", |memory, mut driver, mut ring, _| {
        let theirs = memory.again();
        let (taken, offered) = both(
            move || {
                let mut taken = Vec::new();
                let mut batch = Batch::default();
                for _ in 0..2 {
                    batch.clear();
                    ring.take(Direction::FromGuest, 8, &mut batch).unwrap();
                    for chain in batch.chains() {
                        taken.push((chain.id, chain.len, chain.fault));
                        ring.complete(chain, 0);
                    }
                    ring.publish();
                }
                taken
            },
            move || {
                [60, 61].map(|len| (driver.offer(&theirs, &[(0, len, false)], Form::Chained).unwrap(), len))
            },
        );
        let right = offered.map(|(id, len)| (id, len, None));
        right.starts_with(&taken).then_some(()).ok_or_else(|| format!("{taken:?} of {right:?}"))
    });
}

#[test]
fn what_is_used_shows_once_and_in_order() {
    each("what_is_used_shows_once_and_in_order", |memory, mut driver, mut ring, _| {
        let ids = [0; 2].map(|_| driver.offer(memory, &[(0, 60, false)], Form::Chained).unwrap());
        let theirs = memory.again();
        let ((), seen) = both(
            move || {
                let mut batch = Batch::default();
                for most in [1, 1] {
                    batch.clear();
                    ring.take(Direction::FromGuest, most, &mut batch).unwrap();
                    for chain in batch.chains() {
                        ring.complete(chain, u32::from(chain.id) + 7);
                    }
                    ring.publish();
                }
            },
            move || (0..2).filter_map(|_| driver.used(&theirs)).collect::<Vec<_>>(),
        );
        let all = ids.map(|id| (id, u32::from(id) + 7));
        all.starts_with(&seen).then_some(()).ok_or_else(|| format!("{seen:?} of {all:?}"))
    });
}
