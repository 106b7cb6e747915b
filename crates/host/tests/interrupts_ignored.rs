//! Signals that come to a process which ignores interrupts.
//!
//! One test, since interrupts are a whole process's, and ignored for ever.

use std::sync::atomic::Ordering;

use nix::sys::signal::{Signal, raise};
use penstock_host::interrupt;

#[test]
fn once_interrupts_are_ignored_no_signal_reaches_what_had_begun_before() {
    interrupt::catch().unwrap();
    // Work is given the flag as it begins, and looks at nothing else.
    let given = interrupt::watched();
    let is_set = || given.load(Ordering::Relaxed);
    // To the thread that calls, so that it has come when the call returns.
    raise(Signal::SIGTERM).unwrap();
    assert!(interrupt::pending() && is_set());

    interrupt::ignore();
    assert!(!interrupt::pending() && is_set(), "what came before is known to whoever asked to be told");
    interrupt::acknowledge();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        raise(signal).unwrap();
        assert!(!is_set(), "{signal} ends half-way what is to come to its end");
    }
    interrupt::raise();
    assert!(!is_set() && !interrupt::pending());
}
