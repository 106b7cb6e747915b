//! Errors in one line.

/// An error and the causes behind it, the nearest first.
pub fn chain(error: &dyn std::error::Error) -> String {
    let behind = std::iter::successors(error.source(), |error| error.source());
    behind.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
