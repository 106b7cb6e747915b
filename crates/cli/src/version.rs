//! Which Penstock this is.

/// What stands behind the name in `penstock --version`: the version, and the commit where `make build` told one, as in `0.1.0 (120dc3b0a1f2)`.
pub const TEXT: &str = match option_env!("PENSTOCK_VERSION") {
    Some(text) => text,
    None => env!("CARGO_PKG_VERSION"),
};

/// The commit that it was built from, as `make build` tells; `None` where nobody told.
pub fn commit() -> Option<&'static str> {
    option_env!("PENSTOCK_COMMIT").filter(|commit| !commit.is_empty())
}
