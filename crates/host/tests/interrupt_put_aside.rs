//! An interrupt that is put aside while others come to be ignored.
//!
//! One test, since interrupts are a whole process's, and ignored for ever.

use std::sync::atomic::Ordering;

use penstock_host::interrupt;

#[test]
fn an_interrupt_that_was_put_aside_is_known_to_whoever_asked_to_be_told_though_interrupts_are_ignored_meanwhile()
 {
    let given = interrupt::watched();
    interrupt::raise();
    interrupt::set_aside(|| {
        assert!(!given.load(Ordering::Relaxed));
        // The connection of who raised it is lost.
        interrupt::ignore_once_heard();
    });
    assert!(given.load(Ordering::Relaxed), "what was to be taken back stays");
}
