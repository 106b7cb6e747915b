//! A front end that sends any messages of vhost-user, with any descriptors, while other ports carry frames.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| penstock_switch::hostile::protocol(bytes));
