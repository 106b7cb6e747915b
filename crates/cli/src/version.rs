//! Which Penstock this is.

use std::sync::LazyLock;

/// The version, and the commit where one is known, as `penstock --version` has it: `0.1.0 (120dc3b0a1f2)`.
static TEXT: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    commit().map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
});

/// What stands behind the name in `penstock --version`.
pub fn text() -> &'static str {
    TEXT.as_str()
}

/// The commit that it was built from, as `make build` tells; `None` where nobody told.
pub fn commit() -> Option<&'static str> {
    option_env!("PENSTOCK_COMMIT").filter(|commit| !commit.is_empty())
}
