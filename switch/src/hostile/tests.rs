use std::{
    fs,
    io::Write,
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;
use crate::{device, worker};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn split_rings_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        rings(&bytes, false);
    }

    #[test]
    fn packed_rings_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        rings(&bytes, true);
    }

    #[test]
    fn headers_that_lie_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        offload(&bytes);
    }

    #[test]
    fn what_is_left_to_others_is_done(bytes in prop::array::uniform7(any::<u8>())) {
        offload(&bytes);
    }
}

proptest! {
    // Each has threads and descriptors of its own.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn messages_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        protocol(&bytes);
    }

    #[test]
    fn lines_from_inside_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        inside(&bytes);
    }

    #[test]
    fn lines_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        control(&bytes);
    }
}

#[test]
fn what_was_found_once_is_borne() {
    // A customer's tag was taken off with the port's when a checksum was completed.
    offload(&[0x79, 0x3f, 0x3f, 0x6a]);
}

#[test]
fn who_goes_in_the_middle_of_a_message_is_gone_at_once() {
    let (handle, workers) = worker::start(1, |_| ()).unwrap();
    for count in [1, 11, 12, 15] {
        let (mut front, back) = UnixStream::pair().unwrap();
        // A header that says 8 bytes follow, or less than a header.
        front.write_all(&[&[2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0][..], &[0; 8]].concat()[..count]).unwrap();
        drop(front);
        let began = Instant::now();
        device::serve(back, handle.clone(), 0);
        // Who does not go is waited for longer.
        assert!(began.elapsed() < Duration::from_secs(5), "after {count} bytes");
    }
    handle.end();
    workers.into_iter().for_each(|worker| drop(worker.join().unwrap()));
}

/// Runs what the fuzz target of this name has kept: each goes a way through the switch that no other goes.
fn again(target: &str, what: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile").join(target);
    let mut count = 0;
    for file in fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        // Who panics is known by the last name.
        println!("{}", path.display());
        what(&fs::read(path).unwrap());
        count += 1;
    }
    assert!(count > 0, "nothing in {}", directory.display());
}

#[test]
fn what_was_kept_of_split_rings() {
    again("switch_split", |bytes| rings(bytes, false));
}

#[test]
fn what_was_kept_of_packed_rings() {
    again("switch_packed", |bytes| rings(bytes, true));
}

#[test]
fn what_was_kept_of_headers() {
    again("switch_offload", offload);
}

#[test]
fn what_was_kept_of_messages() {
    again("switch_protocol", protocol);
}

#[test]
fn what_was_kept_of_lines() {
    again("switch_control", control);
}

#[test]
fn what_was_kept_of_lines_from_inside() {
    again("switch_inside", inside);
}
