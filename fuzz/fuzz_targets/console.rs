//! Any bytes as what a guest printed on its console, shown again to whoever connects.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_guests::console::Replay;

fuzz_target!(|bytes: &[u8]| {
    let mut whole = Vec::new();
    Replay::default().keep(bytes, &mut whole);
    assert!(whole.len() <= bytes.len());
    // However it is cut, it is the same.
    let (mut replay, mut parts) = (Replay::default(), Vec::new());
    for part in bytes.chunks(1 + bytes.len() % 7) {
        replay.keep(part, &mut parts);
    }
    assert_eq!(whole, parts);
    // What is kept of what was kept is all of it.
    let mut again = Vec::new();
    Replay::default().keep(&whole, &mut again);
    assert_eq!(whole, again);
    // Text, colours, and moves within a line.
    let mut rest = whole.as_slice();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != 0x1b {
            assert!(
                *byte >= 0x20 && *byte != 0x7f || matches!(byte, b'\n' | b'\r' | b'\t' | 8),
                "{byte:#x} is kept"
            );
            continue;
        }
        assert_eq!(rest.first(), Some(&b'['));
        let end = rest[1..].iter().position(|byte| (0x40..=0x7e).contains(byte)).expect("a sequence ends");
        assert!(matches!(rest[1 + end], b'm' | b'K' | b'C' | b'D' | b'G'));
        assert!(rest[1..=end].iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')));
        rest = &rest[end + 2..];
    }
});
