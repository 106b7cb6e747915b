//! Any lines on the line from inside, and any text as what QEMU tells of a device.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| penstock_switch::hostile::inside(bytes));
