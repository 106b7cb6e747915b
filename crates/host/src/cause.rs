//! An error with its causes.

/// An error and its sources on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text += ": ";
        text += &source.to_string();
        next = source.source();
    }
    text
}
