//! Both formats against drivers that share nothing with them.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::driver::{Buffer, Driver, Form, GuestMemory, PackedDriver, SplitDriver};

/// Where rings are; buffers and tables lie below.
const RINGS: u64 = 0x8_0000;
const ALL: usize = 0x10_0000;

fn pair(packed: bool, entries: u16, event_index: bool) -> (GuestMemory, Box<dyn Driver>, Ring) {
    let memory = GuestMemory::new(ALL);
    if packed {
        let driver = PackedDriver::new(RINGS, entries);
        let ring = Packed::new(&memory.shared(), &driver.layout(event_index), 0x8000).unwrap();
        return (memory, Box::new(driver), Ring::Packed(ring));
    }
    let driver = SplitDriver::new(RINGS, entries);
    let ring = Split::new(&memory.shared(), &driver.layout(event_index), 0).unwrap();
    (memory, Box::new(driver), Ring::Split(ring))
}

/// The same with a driver that has taken `VIRTIO_F_IN_ORDER`.
fn pair_in_order(packed: bool, entries: u16, event_index: bool) -> (GuestMemory, Box<dyn Driver>, Ring) {
    let (memory, _, mut ring) = pair(packed, entries, event_index);
    ring.tell_last_only();
    let driver: Box<dyn Driver> = match packed {
        true => Box::new(PackedDriver::new(RINGS, entries).in_order()),
        false => Box::new(SplitDriver::new(RINGS, entries).in_order()),
    };
    (memory, driver, ring)
}

/// The bytes of a chain, as the device sees them.
fn bytes(batch: &Batch, chain: &Chain) -> Vec<u8> {
    let mut all = Vec::new();
    for span in batch.spans(chain) {
        // SAFETY: the ring that handed the span out keeps its memory.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(span.start.as_ptr(), span.len as usize) });
    }
    all
}

#[derive(Clone, Debug)]
enum Step {
    /// Offer a chain of buffers of these lengths, in a table or not.
    Offer(Vec<u32>, bool),
    /// Take up to so many, give back so many of the last, complete the others.
    Serve(usize, usize),
    /// See what was used.
    Collect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offer = (prop::collection::vec(1_u32..300, 1..6), any::<bool>());
    let step = prop_oneof![
        4 => offer.prop_map(|(lens, table)| Step::Offer(lens, table)),
        3 => (1_usize..40, 0_usize..4).prop_map(|(most, back)| Step::Serve(most, back)),
        3 => Just(Step::Collect),
    ];
    prop::collection::vec(step, 1..400)
}

/// What is offered comes out once, in order, with its bytes; what is completed is seen once, with its length.
fn hold(
    packed: bool,
    in_order: bool,
    entries: u16,
    event_index: bool,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let rig = if in_order { pair_in_order } else { pair };
    let (memory, mut driver, mut ring) = rig(packed, entries, event_index);
    let mut batch = Batch::default();
    let mut offered: VecDeque<(u16, Vec<u8>)> = VecDeque::new();
    let mut completed: VecDeque<(u16, u32)> = VecDeque::new();
    let mut seed = 1_u8;
    let mut place = 0_u64;
    for step in steps {
        match step {
            Step::Offer(lens, in_table) => {
                let total: u32 = lens.iter().sum();
                // Buffers of as many chains as may be out do not meet: 64 entries of at most 1,500 bytes.
                place = (place + 0x800) % 0x4_0000;
                let mut at = place;
                let chain: Vec<Buffer> = lens
                    .iter()
                    .map(|len| {
                        let buffer = (at, *len, false);
                        at += u64::from(*len);
                        buffer
                    })
                    .collect();
                let text: Vec<u8> = (0..total).map(|byte| seed.wrapping_add(byte as u8)).collect();
                let form = if in_table { Form::Table(0x4_0000 + place / 4) } else { Form::Chained };
                if let Some(id) = driver.offer(&memory, &chain, form) {
                    memory.write(place, &text);
                    seed = seed.wrapping_add(17);
                    offered.push_back((id, text));
                }
            }
            Step::Serve(most, back) => {
                batch.clear();
                let taken = ring.take(Direction::FromGuest, most, &mut batch).unwrap();
                prop_assert!(taken <= most && taken <= offered.len());
                prop_assert_eq!(taken, batch.chains().len());
                // Whatever is there and finds room is taken.
                prop_assert!(taken > 0 || offered.is_empty());
                let kept = taken.saturating_sub(back);
                if let Some(first) = batch.chains().get(kept) {
                    ring.put_back(first);
                }
                for chain in batch.chains().iter().take(kept) {
                    let (id, text) = offered.pop_front().unwrap();
                    prop_assert_eq!(chain.fault, None);
                    prop_assert_eq!(chain.id, id);
                    prop_assert_eq!(bytes(&batch, chain), text);
                    let written = if in_order { 0 } else { u32::from(id) + 5 };
                    if !in_order {
                        ring.complete(chain, written);
                    }
                    completed.push_back((id, written));
                }
                if in_order {
                    let (first, others) = batch.chains()[..kept].split_at(kept / 2);
                    ring.complete_all(first);
                    ring.complete_all(others);
                }
                ring.publish();
            }
            Step::Collect => {
                while let Some(used) = driver.used(&memory) {
                    prop_assert_eq!(Some(used), completed.pop_front());
                }
                prop_assert!(completed.is_empty());
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn split_rings_hold(event_index: bool, in_order: bool, entries in 0_u32..7, steps in steps()) {
        hold(false, in_order, 1 << entries, event_index, steps)?;
    }

    #[test]
    fn packed_rings_hold(event_index: bool, in_order: bool, entries in 1_u16..65, steps in steps()) {
        hold(true, in_order, entries, event_index, steps)?;
    }

    /// Whatever a guest's memory holds: no more than can be, no panic, no endless loop.
    #[test]
    fn garbage_is_borne(packed: bool, event_index: bool, garbage in prop::collection::vec(any::<u8>(), 2048), base: u32) {
        let memory = GuestMemory::new(ALL);
        memory.write(RINGS, &garbage);
        let split = SplitDriver::new(RINGS, 64).layout(event_index);
        let whole = PackedDriver::new(RINGS, 64).layout(event_index);
        let ring = match packed {
            true => Packed::new(&memory.shared(), &whole, base).map(Ring::Packed),
            false => Split::new(&memory.shared(), &split, base).map(Ring::Split),
        };
        let Ok(mut ring) = ring else { return Ok(()) };
        let mut batch = Batch::default();
        for direction in [Direction::FromGuest, Direction::ToGuest] {
            for _ in 0..4 {
                batch.clear();
                if ring.take(direction, 64, &mut batch).is_err() {
                    break;
                }
                for chain in batch.chains() {
                    prop_assert!(bytes(&batch, chain).len() == chain.len as usize);
                    ring.complete(chain, 1);
                }
                ring.publish();
                ring.ask_for_kicks(true);
            }
        }
    }
}

#[test]
fn chains_that_cannot_be_are_handed_out_as_faults() {
    let out = ALL as u64;
    let cases: [(&[Buffer], Fault); 3] = [
        (&[(0, 10, false), (out - 4, 8, false)], Fault::Outside),
        (&[(0, 10, false), (64, 10, true)], Fault::Direction),
        (&[(u64::MAX - 2, 8, false)], Fault::Outside),
    ];
    for packed in [false, true] {
        for form in [Form::Chained, Form::Table(0x1000)] {
            let (memory, mut driver, mut ring) = pair(packed, 16, false);
            let mut batch = Batch::default();
            for (chain, fault) in cases {
                let id = driver.offer(&memory, chain, form).unwrap();
                batch.clear();
                assert_eq!(ring.take(Direction::FromGuest, 8, &mut batch), Ok(1));
                let taken = batch.chains()[0];
                assert_eq!((taken.fault, taken.len), (Some(fault), 0), "{chain:?} {form:?} packed: {packed}");
                ring.complete(&taken, 0);
                assert!(ring.publish());
                assert_eq!(driver.used(&memory), Some((id, 0)));
            }
        }
    }
}

#[test]
fn descriptors_of_empty_buffers_count() {
    for packed in [false, true] {
        for form in [Form::Chained, Form::Table(0x1000)] {
            for (count, fault) in [(128, None), (129, Some(Fault::TooLong)), (200, Some(Fault::TooLong))] {
                let (memory, mut driver, mut ring) = pair(packed, 256, false);
                let mut batch = Batch::default();
                let id = driver.offer(&memory, &vec![(0, 0, false); count], form).unwrap();
                assert_eq!(ring.take(Direction::FromGuest, 8, &mut batch), Ok(1));
                let taken = batch.chains()[0];
                assert_eq!((taken.fault, taken.len), (fault, 0), "{count} {form:?} packed: {packed}");
                ring.complete(&taken, 0);
                ring.publish();
                assert_eq!(driver.used(&memory), Some((id, 0)));
            }
        }
    }
}

#[test]
fn a_table_that_is_too_long_is_not_read() {
    let (memory, mut driver, mut ring) = pair(true, 16, false);
    let mut batch = Batch::default();
    driver.offer(&memory, &[(0, 0, false)], Form::Table(0x1000)).unwrap();
    // Nothing of it is there.
    memory.write(RINGS, &[&(ALL as u64).to_le_bytes()[..], &(16 * 129_u32).to_le_bytes()].concat());
    ring.take(Direction::FromGuest, 8, &mut batch).unwrap();
    assert_eq!(batch.chains()[0].fault, Some(Fault::TooLong));
}

#[test]
fn loops_end() {
    let (memory, mut driver, mut ring) = pair(false, 8, false);
    let mut batch = Batch::default();
    driver.offer(&memory, &[(0, 1, false), (0, 1, false)], Form::Chained).unwrap();
    // The second descriptor leads back to the first.
    memory.word(RINGS + 16 + 12).store(1, std::sync::atomic::Ordering::Relaxed);
    memory.word(RINGS + 16 + 14).store(0, std::sync::atomic::Ordering::Relaxed);
    ring.take(Direction::FromGuest, 8, &mut batch).unwrap();
    assert_eq!(batch.chains()[0].fault, Some(Fault::Loop));
}

#[test]
fn a_driver_that_jumps_breaks_its_ring() {
    let (memory, _, mut ring) = pair(false, 8, false);
    let mut batch = Batch::default();
    memory.word(RINGS + 8 * 16 + 2).store(9, std::sync::atomic::Ordering::Relaxed);
    let jump = RingError::Jump { from: 0, to: 9, entries: 8 };
    assert_eq!(ring.take(Direction::FromGuest, 8, &mut batch), Err(jump));
}

#[test]
fn who_sleeps_is_woken_and_who_is_awake_is_not() {
    for packed in [false, true] {
        for event_index in [false, true] {
            let (memory, mut driver, mut ring) = pair(packed, 8, event_index);
            let mut batch = Batch::default();
            for round in 0..40 {
                let awake = round % 3 == 0;
                driver.want_wake(&memory, !awake, event_index);
                let asleep = round % 2 == 0;
                assert!(!ring.ask_for_kicks(asleep));
                driver.offer(&memory, &[(0, 60, false)], Form::Chained).unwrap();
                let at = format!("packed {packed}, event index {event_index}, round {round}");
                assert_eq!(driver.kicks(&memory, event_index), asleep, "kick: {at}");
                batch.clear();
                assert_eq!(ring.take(Direction::FromGuest, 8, &mut batch), Ok(1), "{at}");
                ring.complete(&batch.chains()[0], 0);
                assert_eq!(ring.publish(), !awake, "wake: {at}");
                assert!(driver.used(&memory).is_some(), "{at}");
            }
        }
    }
}

#[test]
fn a_ring_goes_on_where_it_stood() {
    for packed in [false, true] {
        let (memory, mut driver, mut ring) = pair(packed, 8, false);
        let mut batch = Batch::default();
        for round in 0..30 {
            driver.offer(&memory, &[(0, 60, false), (64, 10, false)], Form::Chained).unwrap();
            batch.clear();
            assert_eq!(ring.take(Direction::FromGuest, 8, &mut batch), Ok(1), "packed {packed}, {round}");
            ring.complete(&batch.chains()[0], 0);
            ring.publish();
            driver.used(&memory).unwrap();
            let base = ring.base();
            let layout = driver.layout(false);
            ring = match packed {
                true => Ring::Packed(Packed::new(&memory.shared(), &layout, base).unwrap()),
                false => Ring::Split(Split::new(&memory.shared(), &layout, base).unwrap()),
            };
        }
    }
}
