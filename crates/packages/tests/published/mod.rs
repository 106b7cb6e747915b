//! Where `make packages-test` has the packages and the container image lie.

use std::{env, path::PathBuf};

/// Set by `make packages-test`.
const PACKAGES: &str = "PENSTOCK_PACKAGES";

/// The directory; `None` where they were not made.
pub fn directory() -> Option<PathBuf> {
    env::var_os(PACKAGES).map(PathBuf::from).filter(|directory| directory.is_dir())
}
