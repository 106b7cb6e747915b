//! Layers (OCI image layer filesystem changeset): archives of what is new in a tree, and the same bytes for the same files.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use penstock_host::files;
use penstock_model::digest::hexadecimal;
use penstock_oci::blank;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::tree::{Contents, Entry, Files, Kind, WHITEOUT};

/// A layer that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLayer {
    /// Where it is.
    pub file: PathBuf,
    /// The SHA-256 of the file.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
    /// The SHA-256 of the archive before it was compressed.
    pub diff: String,
    /// The bytes of that.
    pub unpacked: u64,
}

/// Writes what `tree` has and `below` has not, or has otherwise, with the directories above it, and notes what of `below` is gone. Times later
/// than `latest`, in seconds since 1970, become that: they are those of the build.
///
/// # Errors
///
/// When the tree's archive cannot be read, or the file not be written.
pub fn write(
    tree: &Files,
    below: Option<&Files>,
    latest: u64,
    file: &Path,
) -> Result<ImageLayer, Box<dyn Error>> {
    let new = |(name, entry): &(&String, &Entry)| {
        let old = below.and_then(|below| below.entries.get(*name));
        old.is_none_or(|old| !old.is_as(entry))
    };
    let changed = tree.entries.iter().filter(new).map(|(name, entry)| (name.clone(), Some(entry)));
    let gone = below.map(|below| gone(tree, below)).unwrap_or_default();
    let mut all: BTreeMap<String, Option<&Entry>> =
        changed.chain(gone.into_iter().map(|whiteout| (whiteout, None))).collect();
    // A directory that a layer does not name, but has something in, belongs to root there.
    let names: Vec<String> = all.keys().cloned().collect();
    for directory in names.iter().flat_map(|name| above(name)) {
        if let Some((name, entry)) = tree.entries.get_key_value(directory) {
            all.insert(name.clone(), Some(entry));
        }
    }
    let mut opened = tree.opened()?;

    let (size, digest, unpacked, diff) = files::write_atomic_with(file, 0o644, |to| {
        let packed = GzEncoder::new(Counted::new(BufWriter::new(to)), Compression::default());
        let mut archive = Builder::new(Counted::new(packed));
        // The first name of a file has its bytes.
        let mut first: BTreeMap<u64, &String> = BTreeMap::new();
        for (name, entry) in &all {
            let mut header = blank(latest);
            let Some(entry) = entry else {
                named(&mut archive, header, name, None, io::empty())?;
                continue;
            };
            header.set_mode(entry.mode);
            header.set_uid(entry.owner);
            header.set_gid(entry.group);
            header.set_mtime(entry.modified.min(latest));
            match &entry.kind {
                Kind::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    named(&mut archive, header, &format!("{name}/"), None, io::empty())?;
                }
                Kind::Link(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    named(&mut archive, header, name, Some(target), io::empty())?;
                }
                Kind::File(Contents { at, .. }) if first.contains_key(at) => {
                    header.set_entry_type(EntryType::Link);
                    named(&mut archive, header, name, Some(first[at]), io::empty())?;
                }
                Kind::File(contents) => {
                    first.insert(contents.at, name);
                    header.set_size(contents.length);
                    named(&mut archive, header, name, None, opened.contents(contents)?)?;
                }
            }
        }
        let archived = archive.into_inner()?;
        let (packed, unpacked, diff) = archived.ended();
        let (mut to, size, digest) = packed.finish()?.ended();
        to.flush()?;
        Ok((size, digest, unpacked, diff))
    })?;
    Ok(ImageLayer { file: file.to_owned(), digest, size, diff, unpacked })
}

/// The directories above a name, the nearest first.
pub(super) fn above(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| Some(name.rsplit_once('/')?.0)).skip(1)
}

/// The notes for what `tree` has no more of `below`: of a directory that is gone it is one.
fn gone(tree: &Files, below: &Files) -> BTreeSet<String> {
    let is_directory = |name: &str| tree.entries.get(name).is_some_and(|entry| entry.kind == Kind::Directory);
    let missing = below.entries.keys().filter(|name| !tree.entries.contains_key(*name));
    missing
        .filter_map(|name| match name.rsplit_once('/') {
            Some((parent, base)) => is_directory(parent).then(|| format!("{parent}/{WHITEOUT}{base}")),
            None => Some(format!("{WHITEOUT}{name}")),
        })
        .collect()
}

/// Adds an entry; what its header has no room for stands before it (pax(1)).
fn named(
    archive: &mut Builder<impl Write>,
    mut header: Header,
    name: &str,
    target: Option<&str>,
    contents: impl Read,
) -> io::Result<()> {
    let mut longer: Vec<(&str, &[u8])> = Vec::new();
    if header.set_path(name).is_err() {
        header.set_path("long-name")?;
        longer.push(("path", name.as_bytes()));
    }
    if let Some(target) = target
        && header.set_link_name_literal(target).is_err()
    {
        header.set_link_name_literal("long-target")?;
        longer.push(("linkpath", target.as_bytes()));
    }
    if !longer.is_empty() {
        archive.append_pax_extensions(longer)?;
    }
    header.set_cksum();
    archive.append(&header, contents)
}

/// What is written through it, counted and with its digest.
pub(super) struct Counted<W> {
    to: W,
    length: u64,
    digest: Sha256,
}

impl<W> Counted<W> {
    pub fn new(to: W) -> Counted<W> {
        Counted { to, length: 0, digest: Sha256::new() }
    }

    /// Where it was written to, how many bytes, and their SHA-256.
    pub fn ended(self) -> (W, u64, String) {
        (self.to, self.length, hexadecimal(self.digest.finalize()))
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.to.write(bytes)?;
        self.length += length as u64;
        self.digest.update(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
