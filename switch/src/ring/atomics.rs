//! The numbers of 16 bits that a driver and the switch both read and write, and the fences between them.
//!
//! They are the processor's own. In tests a ring can be put into a model (`loom`), which tries every order that the language's
//! memory model allows: [`Modelled`].

#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicU16 as Word, fence};

#[cfg(test)]
pub(crate) use self::modelled::{Modelled, Word, fence};

#[cfg(test)]
mod modelled {
    use std::{
        cell::RefCell,
        collections::HashMap,
        ptr::NonNull,
        rc::Rc,
        sync::atomic::{AtomicU16, Ordering},
    };

    type Known = Rc<loom::sync::atomic::AtomicU16>;

    thread_local! {
        /// The words of this thread's model by their address. All threads of a model run on one of the system's.
        static WORDS: RefCell<Option<HashMap<usize, Known>>> = const { RefCell::new(None) };
    }

    /// A number of 16 bits: the model's where there is one, else the processor's.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct Word(AtomicU16);

    impl Word {
        /// # Safety
        /// As `AtomicU16::from_ptr`.
        pub unsafe fn from_ptr<'a>(at: *mut u16) -> &'a Word {
            // SAFETY: a word is an `AtomicU16`, and the caller says the rest.
            unsafe { &*at.cast() }
        }

        fn known(&self) -> Option<Known> {
            let at = (&raw const *self).addr();
            WORDS.with_borrow(|words| words.as_ref()?.get(&at).cloned())
        }

        pub fn load(&self, order: Ordering) -> u16 {
            self.known().map_or_else(|| self.0.load(order), |known| known.load(order))
        }

        pub fn store(&self, value: u16, order: Ordering) {
            if let Some(known) = self.known() {
                known.store(value, order);
            }
            self.0.store(value, order);
        }
    }

    pub fn fence(order: Ordering) {
        match WORDS.with_borrow(Option::is_some) {
            true => loom::sync::atomic::fence(order),
            false => std::sync::atomic::fence(order),
        }
    }

    /// As long as it lives, the words that it was given are the model's.
    pub struct Modelled;

    impl Modelled {
        /// To be called in a model, before its other threads begin: all words of these bytes.
        pub fn words(at: NonNull<u8>, len: usize) -> Modelled {
            let words = (0..len / 2).map(|number| {
                // SAFETY: the caller has these bytes, and nobody else uses them yet.
                let value = unsafe { at.cast::<u16>().add(number).read() };
                (at.addr().get() + number * 2, Rc::new(loom::sync::atomic::AtomicU16::new(value)))
            });
            let words = words.collect();
            WORDS.set(Some(words));
            Modelled
        }
    }

    impl Drop for Modelled {
        fn drop(&mut self) {
            WORDS.set(None);
        }
    }
}
