//! Guests that write any bytes into their split rings and their memory between the rounds of a whole switch.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| penstock_switch::hostile::rings(bytes, false));
