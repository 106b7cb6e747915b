//! How much JSON is read of whoever wrote it: a short text can make a reader take many times its length of memory.

use crate::ReadError;

/// So many values of a JSON text are read.
const VALUES: usize = 4 << 20;

/// So many of them may be objects, each of which takes some hundred bytes however short it is.
const OBJECTS: usize = 512 << 10;

/// So many values are read where each is kept as it is, whatever it means.
const KEPT_VALUES: usize = 1 << 20;

/// What becomes of the values of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// Those that mean something are kept, as what they mean.
    Typed,
    /// All are.
    Whole,
}

/// Whether a JSON text has no more values than are read: with those, reading it takes less than 512 MiB beside the text.
///
/// They are counted by the characters that come before values. What stands in strings is none.
pub(crate) fn check(text: &str, mode: ReadMode) -> Result<(), ReadError> {
    let (mut values, mut objects) = (1, 0);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        values += usize::from(matches!(byte, b',' | b'[' | b'{'));
        objects += usize::from(byte == b'{');
        if byte == b'"' {
            // To the quote that ends it: a backslash is never the last.
            while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
                if byte == b'\\' {
                    bytes.next();
                }
            }
        }
    }
    let most = if mode == ReadMode::Whole { KEPT_VALUES } else { VALUES };
    match () {
        () if values > most => Err(ReadError::TooMuch { what: "values", found: values, most }),
        () if objects > OBJECTS => Err(ReadError::TooMuch { what: "objects", found: objects, most: OBJECTS }),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_strings_is_no_value() {
        let inside = "[{,".repeat(KEPT_VALUES);
        for text in [format!("[\"{inside}\"]"), format!(r#"["\"{inside}", "\\"]"#)] {
            check(&text, ReadMode::Typed).unwrap();
            check(&text, ReadMode::Whole).unwrap();
        }
        // A string that ends with a backslash, and one that is not ended.
        let values = format!(r#"["\\"{}]"#, ",0".repeat(KEPT_VALUES));
        assert!(matches!(check(&values, ReadMode::Whole), Err(ReadError::TooMuch { .. })));
        check(&values, ReadMode::Typed).unwrap();
        check("[\"", ReadMode::Whole).unwrap();
        check("[\"\\", ReadMode::Whole).unwrap();
    }
}
