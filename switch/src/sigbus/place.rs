//! Where a mapping is, for a handler that must not wait while another thread changes that.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// A place that nobody has.
const FREE: usize = 0;
/// What stands in a place that somebody is about to fill. No mapping begins there.
const TAKEN: usize = 1;

/// A number that threads share: the processor's, or that of a model of it.
pub(super) trait SharedNumber {
    fn new(value: usize) -> Self;
    fn load(&self, order: Ordering) -> usize;
    fn store(&self, value: usize, order: Ordering);
    /// Puts the second in the place of the first, if that stands there; says whether it did.
    fn replace(&self, current: usize, new: usize) -> bool;
    fn fence(order: Ordering);
}

impl SharedNumber for AtomicUsize {
    fn new(value: usize) -> AtomicUsize {
        AtomicUsize::new(value)
    }

    fn load(&self, order: Ordering) -> usize {
        self.load(order)
    }

    fn store(&self, value: usize, order: Ordering) {
        self.store(value, order);
    }

    fn replace(&self, current: usize, new: usize) -> bool {
        self.compare_exchange(current, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Address and length of a mapping. Who has taken the place changes it; anybody reads it, and sees both as they were together.
#[derive(Debug)]
pub(super) struct Place<N = AtomicUsize> {
    /// How often it was changed, twice: odd while it is.
    changes: N,
    /// Address of the mapping's first byte; [`FREE`], or [`TAKEN`].
    start: N,
    len: N,
}

impl<N: SharedNumber> Place<N> {
    /// A new one, taken.
    pub fn taken() -> Place<N> {
        Place { changes: N::new(0), start: N::new(TAKEN), len: N::new(0) }
    }

    /// Takes it, if nobody has it; says whether that was so.
    pub fn take(&self) -> bool {
        self.start.replace(FREE, TAKEN)
    }

    /// Puts a mapping in. For who has taken it.
    pub fn fill(&self, start: usize, len: usize) {
        self.change(start, len);
    }

    /// Gives it up.
    pub fn free(&self) {
        self.change(TAKEN, 0);
        // The last that is done: somebody else may take it now.
        self.start.store(FREE, Ordering::Release);
    }

    fn change(&self, start: usize, len: usize) {
        let before = self.changes.load(Ordering::Relaxed);
        self.changes.store(before.wrapping_add(1), Ordering::Relaxed);
        // Who sees one of the next two sees that it is being changed.
        N::fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.changes.store(before.wrapping_add(2), Ordering::Release);
    }

    /// The mapping's address and length. `None`: there is none, or it is being changed.
    pub fn read(&self) -> Option<(usize, usize)> {
        let before = self.changes.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed);
        N::fence(Ordering::Acquire);
        let whole = before.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == before;
        (whole && start > TAKEN).then_some((start, len))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::modelled::is_alone;

    type Modelled = loom::sync::atomic::AtomicUsize;

    impl SharedNumber for Modelled {
        fn new(value: usize) -> Modelled {
            Modelled::new(value)
        }

        fn load(&self, order: Ordering) -> usize {
            self.load(order)
        }

        fn store(&self, value: usize, order: Ordering) {
            self.store(value, order);
        }

        fn replace(&self, current: usize, new: usize) -> bool {
            self.compare_exchange(current, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }

        fn fence(order: Ordering) {
            loom::sync::atomic::fence(order);
        }
    }

    #[test]
    fn a_place_is_read_as_it_was_filled_or_not_at_all() {
        let place = Place::<AtomicUsize>::taken();
        assert!(place.read().is_none() && !place.take());
        place.fill(0x1000, 0x2000);
        assert_eq!(place.read(), Some((0x1000, 0x2000)));
        assert!(!place.take());
        place.free();
        assert!(place.read().is_none() && place.take() && place.read().is_none());
    }

    #[test]
    fn nobody_reads_a_mapping_that_never_was() {
        if !is_alone(module_path!(), "nobody_reads_a_mapping_that_never_was") {
            return;
        }
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        let wrong = Arc::new(Mutex::new(None));
        let told = Arc::clone(&wrong);
        model.check(move || {
            let place = Arc::new(Place::<Modelled>::taken());
            place.fill(0x1000, 0x8000);
            let others = Arc::clone(&place);
            let changing = loom::thread::spawn(move || {
                others.free();
                // By whoever maps something next.
                if others.take() {
                    others.fill(0x2000, 0x1000);
                }
            });
            let read = place.read();
            changing.join().unwrap();
            if !matches!(read, None | Some((0x1000, 0x8000) | (0x2000, 0x1000))) {
                *told.lock().unwrap() = read;
            }
        });
        assert_eq!(*wrong.lock().unwrap(), None);
    }
}
