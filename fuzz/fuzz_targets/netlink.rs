//! Any bytes as a datagram of the kernel's: interfaces, addresses, VFs, embedded switches, speeds, errors.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(reading) = penstock_host::netlink::read(bytes) {
        // Nothing is made of nothing: each thing told takes at least an attribute's header.
        let told = reading.interfaces.len() + reading.addresses.len() + reading.vfs.len();
        assert!(told * 4 <= bytes.len());
    }
});
