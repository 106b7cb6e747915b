//! Where records are kept while a run goes on, and how they are read again: one JSON object a line, `samples.jsonl`.

use std::io::Write;

use thiserror::Error;

use crate::record::Record;

/// Keeps the records of a run, in the order in which they are made.
pub trait Journal {
    /// Keeps one more, so that it is there when the run is killed after this.
    ///
    /// # Errors
    /// In words for a person, when it could not be kept; the run goes on and appends no more.
    fn append(&mut self, record: &Record) -> Result<(), String>;
}

impl Journal for Vec<Record> {
    fn append(&mut self, record: &Record) -> Result<(), String> {
        self.push(record.clone());
        Ok(())
    }
}

/// A journal as lines of JSON.
#[derive(Debug)]
pub struct JsonLines<W>(pub W);

impl<W: Write> Journal for JsonLines<W> {
    fn append(&mut self, record: &Record) -> Result<(), String> {
        let mut line = serde_json::to_string(record).map_err(|error| error.to_string())?;
        line.push('\n');
        // One write: a kill leaves whole lines, as far as the file system can.
        let written = self.0.write_all(line.as_bytes()).and_then(|()| self.0.flush());
        written.map_err(|error| error.to_string())
    }
}

/// A line that is no record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the samples cannot be read: {why}")]
pub struct ReadError {
    /// Which, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

/// The records of a journal, in the order written. A last line without its line end was cut off, by a kill or a full disk,
/// and is passed over; [`whole`] is what the run that goes on appends to.
///
/// # Errors
/// When any other line is no record.
pub fn read_records(text: &(impl AsRef<[u8]> + ?Sized)) -> Result<Vec<Record>, ReadError> {
    let lines = whole(text.as_ref()).split(|byte| *byte == b'\n').enumerate();
    let full = lines.filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace));
    full.map(|(at, line)| {
        serde_json::from_slice(line).map_err(|error| ReadError { line: at + 1, why: error.to_string() })
    })
    .collect()
}

/// A journal without a last line that was cut off.
pub fn whole(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_last_line_may_be_cut() {
        assert_eq!(read_records(""), Ok(Vec::new()));
        assert_eq!(read_records("\n{\"cell\":"), Ok(Vec::new()));
        let error = read_records("\nnonsense\n{\"cell\":").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.to_string().starts_with("line 2 of the samples cannot be read: "), "{error}");
        assert!(read_records(b"\xff\xfe\n".as_slice()).is_err());
        assert_eq!(read_records(b"\xff\xfe".as_slice()), Ok(Vec::new()));
    }
}
