//! The logs of a board's programs.

use std::path::Path;

use penstock_host::files;

/// At most the last `limit` bytes of a log, as text; empty when there is none.
pub fn tail(log: &Path, limit: usize) -> String {
    String::from_utf8_lossy(&files::read_tail(log, limit).unwrap_or_default()).into_owned()
}
