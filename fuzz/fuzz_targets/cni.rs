//! Any bytes as the configuration that a container runtime gives, and as the environment beside it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_cni::{Call, Configuration, config::Version};

fuzz_target!(|bytes: &[u8]| {
    let (variables, configuration) = bytes.split_at(bytes.iter().position(|byte| *byte == 0).unwrap_or(0));
    let variables = String::from_utf8_lossy(variables);
    let value = |name: &str| {
        variables.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let configuration = configuration.strip_prefix(b"\0").unwrap_or(configuration);
    let mac = Call::read(value).ok().and_then(|call| call.mac);
    match Configuration::read(configuration, mac) {
        Ok(read) => {
            // What is written down of it is read again as the same.
            let again = Configuration::read(read.whole.to_string().as_bytes(), mac);
            assert_eq!(again.as_ref(), Ok(&read));
            if let Some(previous) = &read.previous {
                let document = previous.document(read.version);
                assert_eq!(document["cniVersion"], read.version.text());
            }
        }
        Err(error) => assert!(error.code != 0 && !error.text.is_empty()),
    }
    let _ = Version::answer(configuration);
});
