//! Frames with any virtio header, cut and summed for receivers of every kind, and checked by code that shares nothing with it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| penstock_switch::hostile::offload(bytes));
