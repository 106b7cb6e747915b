//! Any lines on the control socket, and any text as a configuration.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| penstock_switch::hostile::control(bytes));
