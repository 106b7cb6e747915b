//! Guests whose memory is compared page by page: what the switch has changed is marked, and nothing else but what it wrote to.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use proptest::prelude::*;

use super::*;
use crate::{
    driver::{Driver, Form, GuestMemory, PackedDriver, SplitDriver, USER, driver_of, guest::Guest},
    engine::{Engine, GivenRing, Negotiated, Port},
    iotlb::{Access, Questions, Range, Table, View},
    net::Mac,
    ring::{Layout, Packed, Ring, Split},
    settings::Settings,
    table::PortId,
};

/// The guest that is watched, and another.
const WATCHED: PortId = 1;
const OTHER: PortId = 0;
const ENTRIES: u16 = 256;
/// Where frames of the guest's are, where its empty buffers, where its rings; and all of its memory.
const FRAMES: u64 = 0x8_0000;
const RINGS: [u64; 2] = [0xa_0000, 0xb_0000];
const ALL: u64 = 0xc_0000;
/// How far from where it is the front end wants the device's part of a ring.
const ELSEWHERE: u64 = ALL;
/// How far up the guest's devices see its memory when it has an IOMMU.
const MOVED: u64 = 0x5_0000_0000;

#[derive(Clone, Copy, Debug)]
struct Kind {
    packed: bool,
    event_index: bool,
    mergeable: bool,
    in_order: bool,
    iommu: bool,
    /// Bytes of bits.
    bits: usize,
}

fn kind() -> impl Strategy<Value = Kind> {
    let bits = prop_oneof![4 => Just(128_usize), 1 => 1_usize..128];
    (any::<[bool; 5]>(), bits).prop_map(|([packed, event_index, mergeable, in_order, iommu], bits)| Kind {
        packed,
        event_index,
        mergeable,
        in_order,
        iommu,
        bits,
    })
}

/// What happens between two looks at the memory.
#[derive(Clone, Debug)]
struct Step {
    /// Empty buffers that are offered, each of pieces, in a table or not.
    buffers: Vec<(Vec<u32>, bool)>,
    /// Lengths of frames to the guest, and where they are cut, if they are.
    to_guest: Vec<(usize, u32)>,
    /// Lengths of frames from it.
    from_guest: Vec<usize>,
    /// Whether the switch goes to sleep after it.
    sleeps: bool,
    /// Whether marks are wanted.
    wanted: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let buffers = prop::collection::vec((prop::collection::vec(1_u32..2500, 1..4), any::<bool>()), 0..24);
    let to_guest = prop::collection::vec((14_usize..1514, 1_u32..200), 0..12);
    let from_guest = prop::collection::vec(14_usize..1514, 0..12);
    (buffers, to_guest, from_guest, any::<bool>(), prop::bool::weighted(0.9)).prop_map(
        |(buffers, to_guest, from_guest, sleeps, wanted)| Step {
            buffers,
            to_guest,
            from_guest,
            sleeps,
            wanted,
        },
    )
}

struct Rig {
    kind: Kind,
    engine: Engine,
    other: Guest,
    memory: GuestMemory,
    drivers: [Box<dyn Driver>; 2],
    marks: Arc<Marks>,
    bits: GuestMemory,
    /// Empty buffers by their ids: their pieces.
    buffers: HashMap<u16, Vec<(u64, u32)>>,
    place: u64,
}

fn pages(at: u64, len: u64) -> std::ops::RangeInclusive<u64> {
    at / PAGE..=(at + len.max(1) - 1) / PAGE
}

fn frame(to: PortId, from: PortId, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to as u8, 2, 0, 0, 0, 0, from as u8, 0x88, 0xb5];
    // Never what was there before.
    frame.extend((14..len).map(|at| (at as u8) | 1));
    frame
}

impl Rig {
    fn new(kind: Kind) -> Rig {
        let mut engine = Engine::default();
        for id in [OTHER, WATCHED] {
            let mac = Mac::new([2, 0, 0, 0, 0, id as u8]);
            let settings = Settings { macs: vec![mac], ..Settings::default() };
            engine.set_port(id, Some(Box::new(Port::new(Arc::new(settings)))));
        }
        let knows = Negotiated { mergeable: kind.mergeable, ..Negotiated::default() };
        let other = Guest::plug(&mut engine, OTHER, !kind.packed, 64, 2048, Negotiated::default());
        let memory = GuestMemory::new(ALL as usize);
        let shared = memory.shared();
        let bits = GuestMemory::new(4096);
        let bits_shared = bits.shared();
        let start = bits_shared.guest(0, 1).unwrap().start;
        let log = Log { places: bits_shared.places(), start, size: kind.bits as u64 };
        let [to_guest, from_guest] = RINGS.map(|at| driver_of(kind.packed, at, ENTRIES));
        let from_guest: Box<dyn Driver> = match (kind.in_order, kind.packed) {
            (false, _) => from_guest,
            (true, true) => Box::new(PackedDriver::new(RINGS[1], ENTRIES).in_order()),
            (true, false) => Box::new(SplitDriver::new(RINGS[1], ENTRIES).in_order()),
        };
        let drivers = [to_guest, from_guest];
        let [to_guest, from_guest] = [0, 1].map(|index| {
            let layout = Rig::layout(&*drivers[index], kind);
            let memory = if kind.iommu {
                let all = Range { first: MOVED, last: MOVED + ALL - 1, user: USER, access: Access::BOTH };
                let table = Arc::new(Table::default().with(all));
                let access = if index == 0 { Access::WRITE } else { Access::READ };
                shared.through(View::new(table, Arc::new(Questions::default()), access))
            } else {
                shared.clone()
            };
            let mut ring = match kind.packed {
                true => Ring::Packed(Packed::new(&memory, &layout, 0x8000).unwrap()),
                false => Ring::Split(Split::new(&memory, &layout, 0).unwrap()),
            };
            if kind.in_order && index == 1 {
                ring.tell_last_only();
            }
            ring
        });
        let marks = Arc::new(Marks { log, memory: shared.places(), buffers: true, ring: None });
        for (index, ring) in (0..).zip([to_guest, from_guest]) {
            engine.put_ring(WATCHED, index, knows, GivenRing { ring, call: None, err: None });
        }
        Rig { kind, engine, other, memory, drivers, marks, bits, buffers: HashMap::new(), place: 0 }
    }

    fn layout(driver: &dyn Driver, kind: Kind) -> Layout {
        let layout = driver.layout(kind.event_index);
        let moved = |at: u64| if kind.iommu { at - USER + MOVED } else { at };
        Layout {
            descriptors: moved(layout.descriptors),
            driver: moved(layout.driver),
            device: moved(layout.device),
            ..layout
        }
    }

    /// The guest's address as its devices see it.
    fn seen(&self, at: u64) -> u64 {
        if self.kind.iommu { MOVED + at } else { at }
    }

    /// Where the device's part of a ring is: its address in memory, and its length.
    fn device(&self, index: usize) -> (u64, u64) {
        let [.., (at, len)] = self.drivers[index].layout(self.kind.event_index).parts(self.kind.packed);
        (at - USER, len as u64)
    }

    fn want(&mut self, wanted: bool) {
        let marks = [0, 1].map(|index| {
            let ring = match self.kind.iommu {
                true => Device::Found,
                false => Device::At(self.device(index).0 + ELSEWHERE),
            };
            wanted.then(|| Arc::new(Marks { ring: Some(ring), ..Marks::clone(&self.marks) }))
        });
        let [to_guest, from_guest] = marks;
        let pair = self.engine.port_mut(WATCHED).unwrap().pairs.first_mut().unwrap();
        pair.to_guest.as_mut().unwrap().set_marks(to_guest);
        pair.from_guest.as_mut().unwrap().ring.set_marks(from_guest);
    }

    fn offer(&mut self, pieces: &[u32], table: bool) {
        let mut chain = Vec::new();
        let form = match table {
            false => Form::Chained,
            true => Form::Table(self.seen(FRAMES - 0x1000)),
        };
        for len in pieces {
            if self.place + u64::from(*len) > FRAMES - 0x1000 {
                self.place = 0;
            }
            chain.push((self.place, *len));
            // Some lie in the same page, most do not.
            self.place += u64::from(*len) + u64::from(*len % 7) * 500;
        }
        let seen: Vec<_> = chain.iter().map(|(at, len)| (self.seen(*at), *len, true)).collect();
        // The table's place is one for all: only one buffer at a time may have it, and the driver writes it unmoved.
        let form = if self.kind.iommu || self.buffers.len() > 40 { Form::Chained } else { form };
        if table && form != Form::Chained && !self.buffers.is_empty() {
            return;
        }
        if let Some(id) = self.drivers[0].offer(&self.memory, &seen, form) {
            self.buffers.insert(id, chain);
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        self.memory.read(0, ALL as usize)
    }

    fn marked(&self) -> BTreeSet<u64> {
        let bytes = self.bits.read(0, 4096);
        let all = (0_u64..).zip(bytes).flat_map(|(at, byte)| {
            (0..8).filter(move |bit| byte & 1 << bit != 0).map(move |bit| at * 8 + bit)
        });
        all.collect()
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        for (pieces, table) in &step.buffers {
            if self.buffers.len() < 64 {
                self.offer(pieces, *table);
            }
        }
        for (len, cut) in &step.to_guest {
            // Those in one piece go the shortest way.
            let lens: &[u32] = if cut % 4 == 0 { &[12, *cut] } else { &[] };
            self.other.send_in([0; 12], &frame(WATCHED, OTHER, *len), lens);
        }
        for (number, len) in (0..).zip(&step.from_guest) {
            let bytes = [vec![0; 12], frame(OTHER, WATCHED, *len)].concat();
            let at = FRAMES + number * 2048;
            self.memory.write(at, &bytes);
            let chain = [(self.seen(at), bytes.len() as u32, false)];
            self.drivers[1].offer(&self.memory, &chain, Form::Chained).unwrap();
        }
        self.want(step.wanted);
        self.bits.write(0, &[0; 4096]);
        let before = self.snapshot();
        self.engine.round(0);
        if step.sleeps {
            self.engine.ask_for_kicks(true, 0);
            self.engine.ask_for_kicks(false, 0);
        }
        let (after, marked) = (self.snapshot(), self.marked());
        self.other.got_again();
        let may = self.written_to();
        if !step.wanted {
            prop_assert!(marked.is_empty(), "marked {marked:?} for nobody");
            return Ok(());
        }
        let shift = if self.kind.iommu { 0 } else { ELSEWHERE / PAGE };
        for page in 0..ALL / PAGE {
            let range = (page * PAGE) as usize..((page + 1) * PAGE) as usize;
            let has_bit = |page: u64| page / 8 < self.kind.bits as u64;
            if before[range.clone()] == after[range] {
                continue;
            }
            // What lies in a ring may be its device's part, which is wanted elsewhere.
            let in_ring = page * PAGE >= RINGS[0];
            let right = marked.contains(&page) || !has_bit(page);
            let moved = in_ring && (marked.contains(&(page + shift)) || !has_bit(page + shift));
            prop_assert!(right || moved, "page {page:#x} was written to; marked: {marked:x?}");
        }
        let too_many: Vec<u64> = marked.difference(&may).copied().collect();
        prop_assert!(too_many.is_empty(), "marked {too_many:x?}; written to {may:x?}");
        Ok(())
    }

    /// The pages that may be marked, as the drivers see what was used.
    fn written_to(&mut self) -> BTreeSet<u64> {
        let mut may = BTreeSet::new();
        let elsewhere = if self.kind.iommu { 0 } else { ELSEWHERE };
        for index in [0, 1] {
            let (at, len) = self.device(index);
            may.extend(pages(at + elsewhere, len));
            if self.kind.packed {
                may.extend(pages(RINGS[index], u64::from(ENTRIES) * 16));
            }
        }
        while let Some((id, written)) = self.drivers[0].used(&self.memory) {
            let mut left = written + BEYOND;
            for (at, len) in self.buffers.remove(&id).unwrap() {
                let here = left.min(len);
                if here > 0 {
                    may.extend(pages(at, here.into()));
                }
                left -= here;
            }
        }
        while self.drivers[1].used(&self.memory).is_some() {}
        may
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_is_marked(kind in kind(), steps in prop::collection::vec(step(), 1..8)) {
        let mut rig = Rig::new(kind);
        for step in &steps {
            rig.run(step)?;
        }
    }
}

/// A header is written with room for a tag behind it, where there is room.
#[test]
fn what_is_written_behind_a_short_frame_is_marked() {
    let [packed, event_index, mergeable, in_order, iommu] = [false; 5];
    let mut rig = Rig::new(Kind { packed, event_index, mergeable, in_order, iommu, bits: 128 });
    rig.memory.write(0, &[0xff; 2 * PAGE as usize]);
    rig.place = PAGE - 26;
    let buffers = vec![(vec![2000], false)];
    let step = Step { buffers, to_guest: vec![(14, 1)], from_guest: Vec::new(), sleeps: false, wanted: true };
    rig.run(&step).unwrap();
    assert!(rig.marked().contains(&0));
}
