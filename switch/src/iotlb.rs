//! What stands between a guest's addresses and its memory when the guest has an IOMMU (`VIRTIO_F_ACCESS_PLATFORM`): the
//! translations that the front end has told, and the questions for those that it has not.
//!
//! A [`Table`] never changes; a front end's message makes a new one, which the data path is given between two rounds. So looking
//! something up takes no lock, and when an invalidation is answered, nothing is left of what it took away. Only for a translation
//! that is missing something is shared: the list of what was asked, so that nothing is asked twice.
//!
//! vhost-user protocol, "IOMMU support"; `struct vhost_iotlb_msg` in `include/uapi/linux/vhost_types.h`.

use std::{
    cell::Cell,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::channel::{Channel, Sent};

/// Translations that are kept. One of a page for each entry of two rings of 1,024, and as many again.
pub const MOST_RANGES: usize = 4096;
/// Questions that may be open.
const MOST_ASKED: usize = 256;
/// How long an answer is awaited; a front end that has none sends nothing. What needs it is then beyond the guest's memory.
const TIMEOUT: Duration = Duration::from_secs(3);
/// What is asked for at once: the smallest page of any guest.
const PAGE: u64 = 4096;

/// `VHOST_IOTLB_MISS`: the switch asks for a translation.
const MISS: u8 = 1;
/// `VHOST_IOTLB_UPDATE`: the front end tells a translation.
const UPDATE: u8 = 2;
/// `VHOST_IOTLB_INVALIDATE`: the front end takes translations away.
const INVALIDATE: u8 = 3;

/// What may be done with memory (`VHOST_ACCESS_RO`, `VHOST_ACCESS_WO`, `VHOST_ACCESS_RW`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// It may be read.
    pub const READ: Access = Access(1);
    /// It may be written.
    pub const WRITE: Access = Access(2);
    /// It may be read and written.
    pub const BOTH: Access = Access(3);

    fn allows(self, wanted: Access) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// What a front end tells of translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IotlbMessage {
    /// These addresses are there, for this.
    Update(Range),
    /// The addresses from the first to the last are nowhere any more.
    Invalidate(u64, u64),
}

impl IotlbMessage {
    /// Reads a message's body. `None`: it is too short, of a kind that a front end does not send, or its addresses wrap.
    pub fn read(body: &[u8]) -> Option<IotlbMessage> {
        let number = |at: usize| {
            let bytes = body.get(at..at + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let (first, size, user) = (number(0)?, number(8)?, number(16)?);
        let last = first.checked_add(size.checked_sub(1)?);
        match *body.get(25)? {
            UPDATE => {
                let (last, access) = (last?, Access(*body.get(24)?));
                user.checked_add(size)?;
                matches!(access.0, 1..=3).then_some(IotlbMessage::Update(Range { first, last, user, access }))
            }
            // QEMU takes everything away with a size beyond the end.
            INVALIDATE => Some(IotlbMessage::Invalidate(first, last.unwrap_or(u64::MAX))),
            _ => None,
        }
    }
}

/// A question for a translation, as it is sent: 26 bytes, padded.
fn question(at: u64, access: Access) -> [u8; 32] {
    let mut body = [0; 32];
    let (numbers, kinds) = body.split_at_mut(24);
    for (place, number) in numbers.chunks_exact_mut(8).zip([at, PAGE, 0]) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    for (place, kind) in kinds.iter_mut().zip([access.0, MISS]) {
        *place = kind;
    }
    body
}

/// Addresses that lie together on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The guest's first.
    pub first: u64,
    /// The guest's last.
    pub last: u64,
    /// Where the front end has the first.
    pub user: u64,
    /// What the device may do there.
    pub access: Access,
}

impl Range {
    /// The part of it from `first` to `last`, both of which are in it.
    fn part(&self, first: u64, last: u64) -> Range {
        Range { first, last, user: self.user + (first - self.first), access: self.access }
    }

    /// What is left of it without what lies from `first` to `last`.
    fn without(&self, first: u64, last: u64) -> [Option<Range>; 2] {
        if last < self.first || first > self.last {
            return [Some(*self), None];
        }
        [
            (self.first < first).then(|| self.part(self.first, first - 1)),
            (self.last > last).then(|| self.part(last + 1, self.last)),
        ]
    }

    /// Whether `next` goes on where it ends, on both sides, for the same.
    fn goes_on(&self, next: &Range) -> bool {
        self.last.checked_add(1) == Some(next.first)
            && self.access == next.access
            && next.user.checked_sub(self.user) == Some(next.first - self.first)
    }
}

/// What is known.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// By address, without overlap; neighbours that go on are one.
    ranges: Vec<Range>,
}

impl Table {
    /// With this too; what it overlaps is replaced. When there are too many, those farthest from it are forgotten.
    pub fn with(&self, range: Range) -> Table {
        let mut left = self.without(range.first, range.last);
        let at = left.ranges.partition_point(|other| other.last < range.first);
        left.ranges.insert(at, range);
        // The neighbour behind it first, so that `at` still holds.
        for at in [at, at.wrapping_sub(1)] {
            if let (Some(one), Some(next)) = (left.ranges.get(at), left.ranges.get(at.wrapping_add(1)))
                && one.goes_on(next)
            {
                let whole = Range { last: next.last, ..*one };
                left.ranges.splice(at..=at + 1, [whole]);
            }
        }
        if left.ranges.len() > MOST_RANGES {
            let farthest = if at > MOST_RANGES / 2 { 0 } else { left.ranges.len() - 1 };
            left.ranges.remove(farthest);
        }
        left
    }

    /// Without what lies from `first` to `last`.
    pub fn without(&self, first: u64, last: u64) -> Table {
        let left = self.ranges.iter().flat_map(|range| range.without(first, last));
        Table { ranges: left.flatten().collect() }
    }

    /// Whether something between these addresses is known.
    pub fn touches(&self, first: u64, last: u64) -> bool {
        let place = self.ranges.partition_point(|range| range.last < first);
        self.ranges.get(place).is_some_and(|range| range.first <= last)
    }

    /// How many ranges it has.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The range in which `at` is, tried first at `hint`; and its place.
    fn find(&self, at: u64, hint: usize) -> Option<(usize, &Range)> {
        let has = |range: &&Range| range.first <= at && at <= range.last;
        if let Some(range) = self.ranges.get(hint).filter(has) {
            return Some((hint, range));
        }
        let place = self.ranges.partition_point(|range| range.last < at);
        self.ranges.get(place).filter(has).map(|range| (place, range))
    }
}

/// A question that was asked.
#[derive(Clone, Copy, Debug)]
struct OpenMiss {
    page: u64,
    access: Access,
    when: Instant,
    /// It was answered, and not with what was wanted.
    refused: bool,
}

/// The questions of one guest's device.
#[derive(Debug, Default)]
pub struct Questions {
    channel: Channel,
    open: Mutex<Vec<OpenMiss>>,
}

impl Questions {
    /// Questions that are asked here.
    pub fn new(channel: Channel) -> Questions {
        Questions { channel, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Vec<OpenMiss>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the translation of `at`, unless that was done; says whether there may still be an answer. It never waits.
    fn ask(&self, at: u64, access: Access) -> bool {
        let page = at & !(PAGE - 1);
        let mut open = self.open();
        let now = Instant::now();
        let is_it = |asked: &OpenMiss| asked.page == page && asked.access == access;
        if let Some(place) = open.iter().position(is_it) {
            let over = open.get(place).is_none_or(|asked| asked.refused || now - asked.when > TIMEOUT);
            if over {
                open.swap_remove(place);
            }
            return !over;
        }
        if open.len() >= MOST_ASKED {
            open.retain(|asked| now - asked.when <= TIMEOUT);
        }
        // Those that do not find room, here or in the socket, are asked when they are needed the next time.
        if open.len() < MOST_ASKED
            && self.channel.send(Channel::IOTLB, &question(page, access)) != Sent::Later
        {
            open.push(OpenMiss { page, access, when: now, refused: false });
        }
        true
    }

    /// What was told of, from `first` to `last`, is asked no longer, but what `table` still has not is refused.
    pub fn answered(&self, table: &Table, first: u64, last: u64) {
        self.open().retain_mut(|asked| {
            if asked.page.saturating_add(PAGE - 1) < first || asked.page > last {
                return true;
            }
            asked.refused = true;
            !table.find(asked.page, 0).is_some_and(|(_, range)| range.access.allows(asked.access))
        });
    }
}

/// What became of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is at the front end's own address so and so, with so many bytes behind it, less one.
    At(u64, u64),
    /// It is not there yet.
    Asked,
    /// It is nowhere.
    Nowhere,
}

/// A table as one ring looks at it.
#[derive(Clone, Debug)]
pub struct View {
    table: Arc<Table>,
    questions: Arc<Questions>,
    /// What the ring does with its buffers.
    access: Access,
    /// Where something was found the last time.
    last: Cell<usize>,
    /// Whether something was asked for since the last look.
    missed: Cell<bool>,
}

impl View {
    /// What is known, for a ring that does this with its buffers.
    pub fn new(table: Arc<Table>, questions: Arc<Questions>, access: Access) -> View {
        View { table, questions, access, last: Cell::new(0), missed: Cell::new(false) }
    }

    /// What the ring does with its buffers.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Replaces what is known.
    pub fn set_table(&mut self, table: Arc<Table>) {
        self.table = table;
        self.missed.set(false);
    }

    /// Whether something was asked for since the last time that somebody wanted to know.
    pub fn take_missed(&self) -> bool {
        self.missed.take()
    }

    /// Where `at` is.
    pub fn find(&self, at: u64, access: Access) -> Found {
        if let Some((place, range)) = self.table.find(at, self.last.get())
            && range.access.allows(access)
        {
            self.last.set(place);
            return Found::At(range.user + (at - range.first), range.last - at);
        }
        if self.questions.ask(at, access) {
            self.missed.set(true);
            return Found::Asked;
        }
        Found::Nowhere
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use proptest::prelude::*;

    use super::*;

    fn range(first: u64, size: u64, user: u64, access: Access) -> Range {
        Range { first, last: first + size - 1, user, access }
    }

    fn body(numbers: [u64; 3], perm: u8, kind: u8) -> Vec<u8> {
        let mut body: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        body.extend([perm, kind, 0, 0, 0, 0, 0, 0]);
        body
    }

    #[test]
    fn messages_are_read() {
        let told = IotlbMessage::read(&body([0x1000, 0x2000, 0x7000], 3, 2));
        assert_eq!(told, Some(IotlbMessage::Update(range(0x1000, 0x2000, 0x7000, Access::BOTH))));
        assert_eq!(
            IotlbMessage::read(&body([0x1000, 0x1000, 0], 0, 3)),
            Some(IotlbMessage::Invalidate(0x1000, 0x1fff))
        );
        assert_eq!(
            IotlbMessage::read(&body([0, u64::MAX, 0], 0, 3)),
            Some(IotlbMessage::Invalidate(0, u64::MAX - 1))
        );
        assert_eq!(
            IotlbMessage::read(&body([8, u64::MAX, 0], 0, 3)),
            Some(IotlbMessage::Invalidate(8, u64::MAX))
        );
        for bad in [
            body([0x1000, 0, 0], 3, 2),
            body([u64::MAX, 2, 0], 3, 2),
            body([0, 0x1000, u64::MAX], 3, 2),
            body([0, 0x1000, 0], 0, 2),
            body([0, 0x1000, 0], 4, 2),
            body([0, 0x1000, 0], 3, 1),
            body([0, 0x1000, 0], 3, 4),
            body([0, 0x1000, 0], 3, 2)[..25].to_vec(),
        ] {
            assert_eq!(IotlbMessage::read(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn neighbours_become_one_and_are_cut_apart() {
        let table = Table::default().with(range(0x2000, 0x1000, 0x9000, Access::READ));
        let table = table.with(range(0x0, 0x1000, 0x7000, Access::READ));
        assert_eq!(table.len(), 2);
        let table = table.with(range(0x1000, 0x1000, 0x8000, Access::READ));
        assert_eq!(table.ranges, [range(0, 0x3000, 0x7000, Access::READ)]);
        let table = table.without(0x1800, 0x18ff);
        let parts = [range(0, 0x1800, 0x7000, Access::READ), range(0x1900, 0x1700, 0x8900, Access::READ)];
        assert_eq!(table.ranges, parts);
        assert!(table.without(0, u64::MAX).is_empty());
    }

    #[test]
    fn there_are_not_more_than_there_may_be() {
        let mut table = Table::default();
        for number in 0..MOST_RANGES as u64 + 100 {
            table = table.with(range(number * 0x2000, 0x1000, 0, Access::BOTH));
            assert!(table.find(number * 0x2000, 0).is_some());
        }
        assert_eq!(table.len(), MOST_RANGES);
    }

    proptest! {
        /// Against an array with an entry for each address.
        #[test]
        fn it_is_what_was_told(told in prop::collection::vec((0_u64..64, 1_u64..32, 0_u64..200, 0_u8..4), 1..60)) {
            let mut table = Table::default();
            let mut plain: Vec<Option<(u64, u8)>> = vec![None; 96];
            for (first, size, user, access) in told {
                let last = first + size - 1;
                table = match access {
                    0 => table.without(first, last),
                    access => table.with(Range { first, last, user, access: Access(access) }),
                };
                for at in first..=last {
                    plain[at as usize] = (access > 0).then_some((user + (at - first), access));
                }
                prop_assert!(table.ranges.windows(2).all(|pair| pair[0].last < pair[1].first));
                prop_assert!(table.ranges.windows(2).all(|pair| !pair[0].goes_on(&pair[1])));
            }
            for (at, expected) in (0_u64..).zip(plain) {
                for hint in [0, 3, 1000] {
                    let found = table.find(at, hint).map(|(_, range)| (range.user + (at - range.first), range.access.0));
                    prop_assert_eq!(found, expected, "at {}", at);
                }
            }
        }
    }

    #[test]
    fn a_page_is_asked_for_once_and_given_up_when_it_is_refused() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let channel = Channel::default();
        channel.set(Some(ours));
        let questions = Arc::new(Questions::new(channel));
        let mut view = View::new(Arc::default(), Arc::clone(&questions), Access::READ);
        for at in [0x1234, 0x1000, 0x1fff] {
            assert_eq!(view.find(at, Access::READ), Found::Asked);
        }
        assert!(view.take_missed() && !view.take_missed());
        let mut message = [0; 44];
        theirs.read_exact(&mut message).unwrap();
        assert_eq!(message[..12], [1, 0, 0, 0, 1, 0, 0, 0, 32, 0, 0, 0]);
        assert_eq!(message[12..20], 0x1000_u64.to_ne_bytes());
        assert_eq!(message[36..38], [1, MISS]);
        theirs.set_nonblocking(true).unwrap();
        assert!(theirs.read(&mut message).is_err(), "asked twice");
        // It is there, but not for this.
        let table = Arc::new(Table::default().with(range(0x1000, 0x1000, 0x5000, Access::WRITE)));
        questions.answered(&table, 0x1000, 0x1fff);
        view.set_table(Arc::clone(&table));
        assert_eq!(view.find(0x1234, Access::READ), Found::Nowhere);
        assert_eq!(view.find(0x1234, Access::WRITE), Found::At(0x5234, 0xdcb));
        // Somebody may have thought better of it.
        assert_eq!(view.find(0x1234, Access::READ), Found::Asked);
        theirs.read_exact(&mut message).unwrap();
        let table = Arc::new(table.with(range(0x1000, 0x1000, 0x5000, Access::BOTH)));
        questions.answered(&table, 0, 0xffff);
        assert!(questions.open().is_empty());
        view.set_table(table);
        assert_eq!(view.find(0x1234, Access::READ), Found::At(0x5234, 0xdcb));
    }
}
