//! Any bytes as a drive's answer to each Identify.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_host::nvme::identify::{self, LENGTH};

fuzz_target!(|bytes: &[u8]| {
    let mut answer = [0; LENGTH];
    let length = bytes.len().min(LENGTH);
    answer[..length].copy_from_slice(&bytes[..length]);
    let _ = (
        identify::controller(&answer),
        identify::primary_capabilities(&answer),
        identify::namespace(&answer),
    );
    if let Ok(list) = identify::secondary_list(&answer) {
        assert!(list.vfs.len() <= usize::from(answer[0]));
        assert!(list.vfs.windows(2).all(|pair| pair[0].controller < pair[1].controller));
        // The next answer is of others.
        assert!(list.next.is_none_or(|next| list.vfs.iter().all(|vf| vf.controller < next)));
    }
    if let Ok(list) = identify::controller_list(&answer) {
        assert!(list.len() < LENGTH / 2);
    }
    if let Ok(list) = identify::namespace_list(&answer, 0) {
        assert!(list.len() <= LENGTH / 4 && list.is_sorted() && !list.contains(&0));
    }
});
