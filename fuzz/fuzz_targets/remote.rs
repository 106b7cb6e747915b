//! What comes over SSH: at a machine as the requests of a Penstock, and from a machine as the replies of one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_cli::fuzzing::{replies, requests};

fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else { return };
    match how & 1 {
        0 => requests(bytes, usize::from(*how)),
        _ => replies(bytes, how & 2 != 0, how & 4 != 0, how & 8 != 0),
    }
});
