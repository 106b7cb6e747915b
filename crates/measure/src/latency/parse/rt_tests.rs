//! What the JSON of all of rt-tests has in common (`rt-utils.c`, `rt_write_json`; `file_version` 1).

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};

use crate::output::{OutputError, text};

/// The document; `T` is what a thread of the tool tells.
#[derive(Deserialize)]
pub(super) struct Document<T> {
    file_version: u32,
    /// Spelt with a colon by rt-tests.
    #[serde(rename = "rt_test_version:", alias = "rt_test_version")]
    pub version: String,
    return_code: i64,
    num_threads: u32,
    thread: BTreeMap<String, T>,
}

/// The only thread of a tool that was asked for one, and the tool's version.
pub(super) fn only_thread<T: DeserializeOwned>(
    tool: &'static str,
    output: &[u8],
) -> Result<(T, String), OutputError> {
    let malformed = |why: String| OutputError::Malformed { tool, why };
    let document: Document<T> =
        serde_json::from_str(text(tool, output)?).map_err(|error| malformed(error.to_string()))?;
    if document.file_version != 1 {
        return Err(malformed(format!("its form is {}, and 1 is known here", document.file_version)));
    }
    if document.return_code != 0 {
        let message = format!("it says that it ended with {}", document.return_code);
        return Err(OutputError::Failed { tool, message });
    }
    let threads = document.thread.len();
    let only = document.thread.into_values().next().filter(|_| threads == 1 && document.num_threads == 1);
    let version = document.version.chars().filter(|c| !c.is_control()).take(40).collect();
    match only {
        Some(thread) => Ok((thread, version)),
        None => {
            let why =
                format!("one thread was asked for, and it tells of {threads} of {}", document.num_threads);
            Err(malformed(why))
        }
    }
}

/// The bins of a histogram: its keys are microseconds.
pub(super) fn bins(
    tool: &'static str,
    histogram: &BTreeMap<String, u64>,
) -> Result<BTreeMap<u32, u64>, OutputError> {
    let bin = |(key, count): (&String, &u64)| match key.parse::<u32>() {
        Ok(bin) => Ok((bin, *count)),
        Err(_) => {
            let key: String = key.chars().take(40).collect();
            Err(OutputError::Odd { tool, why: format!("it has a bin {key:?}") })
        }
    };
    let all: BTreeMap<u32, u64> = histogram.iter().map(bin).collect::<Result<_, _>>()?;
    if all.len() != histogram.len() {
        return Err(OutputError::Odd { tool, why: "it has a bin twice".to_owned() });
    }
    Ok(all)
}
