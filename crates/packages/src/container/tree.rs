//! Trees of files in archives (`tar`), as mmdebstrap writes them: read once, in order, so that what a layer has can be told from its names.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Read, Seek, SeekFrom, Take},
    path::{Path, PathBuf},
};

use penstock_host::files;
use tar::{Archive, EntryType};

use super::layer::{Counted, above};

/// What the runtime puts something over; the directories themselves are kept.
const MOUNTED: [&str; 4] = ["dev/", "proc/", "run/", "sys/"];
/// Before the name of what a layer takes away, which no file may have.
pub(super) const WHITEOUT: &str = ".wh.";
/// The set-user-ID and set-group-ID bits of a mode.
const SET_IDS: u32 = 0o6000;

/// The files of an archive, by their names without a leading or trailing `/`.
#[derive(Debug)]
pub struct Files {
    archive: PathBuf,
    pub(super) entries: BTreeMap<String, Entry>,
}

/// One of its files.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub kind: Kind,
    /// Permissions, and the sticky bit; of a directory also those that set ids.
    pub mode: u32,
    pub owner: u64,
    pub group: u64,
    /// When it was changed, in seconds since 1970.
    pub modified: u64,
}

/// What it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File(Contents),
    /// Where a symbolic link leads.
    Link(String),
}

/// The bytes of a file. Several names of one file have the same place.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    /// Where they begin in the archive.
    pub at: u64,
    /// How many.
    pub length: u64,
    sum: String,
}

impl PartialEq for Contents {
    fn eq(&self, other: &Contents) -> bool {
        self.length == other.length && self.sum == other.sum
    }
}

impl Eq for Contents {}

impl Entry {
    /// Whether nothing but times tells them apart.
    pub fn is_as(&self, other: &Entry) -> bool {
        (&self.kind, self.mode, self.owner, self.group) == (&other.kind, other.mode, other.owner, other.group)
    }
}

impl Files {
    /// What is in an archive. Files lose the bits that set ids: in a container nobody becomes another user. What lies below `/dev`, `/proc`,
    /// `/run` and `/sys` is left out.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or has what a layer cannot keep: a device elsewhere, an extended attribute, a name that is no text, that leads
    /// out of the tree, or that means something else in a layer.
    pub fn read(archive: &Path) -> Result<Files, Box<dyn Error>> {
        let refused = |name: &str, why: &str| format!("{}: {name}: {why}", archive.display());
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        let mut reader = Archive::new(io::BufReader::new(files::open(archive)?));
        for entry in reader.entries()? {
            let mut entry = entry?;
            let whole = text(&entry.path_bytes())?;
            let name = name(&whole);
            if name.is_empty() || MOUNTED.iter().any(|below| name.starts_with(below)) {
                continue;
            }
            if name.split('/').any(|part| matches!(part, "" | "." | "..") || part.starts_with(WHITEOUT)) {
                return Err(refused(name, "a layer cannot have this name").into());
            }
            for extension in entry.pax_extensions()?.into_iter().flatten() {
                let key = text(extension?.key_bytes())?;
                if key.starts_with("SCHILY.xattr.") {
                    return Err(refused(name, &format!("the attribute {key} would be lost")).into());
                }
            }
            let target = entry.link_name_bytes().map(|target| text(&target)).transpose()?;
            let mut mode = entry.header().mode()? & 0o7777;
            let kind = match (entry.header().entry_type(), target) {
                (EntryType::Directory, _) => Kind::Directory,
                (EntryType::Symlink, Some(target)) => Kind::Link(target),
                (EntryType::Link, Some(target)) => match entries.get(self::name(&target)) {
                    Some(Entry { kind: kind @ Kind::File(_), .. }) => kind.clone(),
                    _ => {
                        return Err(refused(name, &format!("{target}, which it links to, is no file")).into());
                    }
                },
                (EntryType::Regular, _) => {
                    let (at, length) = (entry.raw_file_position(), entry.size());
                    let mut counted = Counted::new(io::sink());
                    io::copy(&mut entry, &mut counted)?;
                    let (_, _, sum) = counted.ended();
                    Kind::File(Contents { at, length, sum })
                }
                _ => {
                    let why = "a layer cannot have what is no file, directory or link";
                    return Err(refused(name, why).into());
                }
            };
            if matches!(kind, Kind::File(_)) {
                mode &= !SET_IDS;
            }
            let header = entry.header();
            let (owner, group, modified) = (header.uid()?, header.gid()?, header.mtime()?);
            entries.insert(name.to_owned(), Entry { kind, mode, owner, group, modified });
        }
        Ok(Files { archive: archive.to_owned(), entries })
    }

    /// The same files as they lie in another tree: its directories are as they are there.
    pub fn placed_in(mut self, other: &Files) -> Files {
        let names: Vec<String> = self.entries.keys().cloned().collect();
        for directory in names.iter().flat_map(|name| above(name)) {
            if let Some((name, entry)) = other.entries.get_key_value(directory) {
                self.entries.insert(name.clone(), entry.clone());
            }
        }
        self
    }

    /// The files of it to be read again.
    ///
    /// # Errors
    ///
    /// When the archive cannot be opened.
    pub(super) fn opened(&self) -> Result<Opened, Box<dyn Error>> {
        Ok(Opened(files::open(&self.archive)?))
    }
}

/// An archive whose files are read again.
pub(super) struct Opened(std::fs::File);

impl Opened {
    /// The bytes of one.
    ///
    /// # Errors
    ///
    /// When the file cannot be read from there.
    pub fn contents(&mut self, contents: &Contents) -> io::Result<Take<&std::fs::File>> {
        self.0.seek(SeekFrom::Start(contents.at))?;
        Ok((&self.0).take(contents.length))
    }
}

fn text(bytes: &[u8]) -> Result<String, Box<dyn Error>> {
    let text = std::str::from_utf8(bytes);
    Ok(text.map_err(|_| format!("{} is no UTF-8", bytes.escape_ascii()))?.to_owned())
}

/// A name without what is around it: archives write `./usr/bin/`.
fn name(path: &str) -> &str {
    path.strip_prefix("./").unwrap_or(path).trim_end_matches('/').trim_start_matches('/')
}
