//! `penstock cni`: the container network plugin, which a container runtime starts with an environment and a configuration
//! (docs/cni.md). Whatever it answers is a document of the CNI specification, and its status is 0 or 1.

use std::{
    env,
    io::{self, Read},
};

use penstock_cni::{CniError, Plugin, config::LARGEST, config::Version};

use crate::{
    commands::exit_with,
    failure::{Failure, Status},
};

/// Carries out one call of a container runtime, prints the result or error, and ends the process.
///
/// # Errors
///
/// Never: the plugin's own errors are printed as CNI has them, and end the process with status 1.
pub fn run() -> Result<Status, Failure> {
    let variable = |name: &str| env::var(name).ok();
    // Who types it sees why nothing happens, and is not waited for.
    let called = variable("CNI_COMMAND").is_some_and(|verb| !verb.is_empty());
    let input = if called { input() } else { Ok(Vec::new()) };
    let outcome = match input {
        Ok(input) => Plugin::system().run(variable, &input),
        Err(error) => Err(error.document(Version::V1_1_0)),
    };
    let (document, status) = match outcome {
        Ok(document) => (document, 0),
        Err(error) => (Some(error), 1),
    };
    if let Some(document) = document {
        anstream::println!("{document}");
    }
    exit_with(status)
}

/// Reads the network configuration from standard input: at most `LARGEST` bytes.
fn input() -> Result<Vec<u8>, CniError> {
    let mut input = Vec::new();
    let limit = LARGEST as u64 + 1;
    io::stdin().lock().take(limit).read_to_end(&mut input).map_err(|error| {
        CniError::new(
            CniError::IO,
            format!("the configuration could not be read from standard input: {error}"),
        )
    })?;
    match input.len() {
        length if length > LARGEST => Err(CniError::new(
            CniError::DECODING,
            format!("the configuration is longer than {LARGEST} bytes"),
        )),
        _ => Ok(input),
    }
}
