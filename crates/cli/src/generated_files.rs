//! The files that a model generates, on disk.

use std::path::Path;

use penstock_host::{Root, files};
use penstock_render::{FoundFile, MOST_BYTES};

use crate::failure::Failure;

/// What is where a generated file should be.
pub fn look(root: &Root, path: impl AsRef<Path>) -> FoundFile {
    let path = path.as_ref().to_string_lossy();
    match files::read_in_root(root.path("/"), &path, MOST_BYTES + 1) {
        Err(error) if error.is_missing() => FoundFile::Missing,
        Err(error) if error.is_unreadable() => FoundFile::Unreadable(error.source.to_string()),
        Err(error) => FoundFile::Other(error.source.to_string()),
        Ok(bytes) if bytes.len() > MOST_BYTES => {
            FoundFile::Other(format!("it is larger than {} KiB", MOST_BYTES >> 10))
        }
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => FoundFile::Text(text),
            Err(_) => FoundFile::Other("it is not UTF-8 text".to_owned()),
        },
    }
}

/// Writes a file whole or not at all, and the directories on its way.
///
/// # Errors
///
/// When a directory or the file cannot be written.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = path.parent().map_or(Ok(()), files::create_dir_all);
    written.and_then(|()| files::write_atomic(path, text)).map_err(Failure::of_named)
}
