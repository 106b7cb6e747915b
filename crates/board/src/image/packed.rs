//! An image as one file: made where there is a mirror of Debian, used where there is none.
//!
//! It is a tar (POSIX `ustar`), compressed with gzip, of the directory `penstock-board-image-RECIPE`, where the recipe is known by the first
//! 16 digits of its digest: a link's target has room for 100 bytes. `SHA256SUMS` comes first and names all others, each a plain file, or a link to one before it. Owners and times are 0, so that the
//! same image gives the same bytes. What reads it takes nothing else, and no more than [`MOST_BYTES`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use penstock_host::{files, interrupt};
use penstock_model::digest::{hexadecimal, is_sha256};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, Entry, EntryType, Header};
use thiserror::Error;

use super::SUMS;

/// Before the recipe in the directory's name.
const DIRECTORY: &str = "penstock-board-image-";
/// So many digits of a recipe's digest are in the directory's name.
const DIGITS: usize = 16;
/// An image has some 400 MB.
const MOST_BYTES: u64 = 4 << 30;
/// An image has some hundred files.
const MOST_FILES: usize = 4096;
/// The list of that many.
const LONGEST_LIST: u64 = 1 << 20;
/// So many bytes are copied at once.
const PIECE: usize = 256 << 10;

/// Why a file is not read as an image.
#[derive(Debug, Error)]
pub enum PackedError {
    /// It is no image, or a damaged one.
    #[error("it is no board image, or a damaged one: {0}")]
    Damaged(String),
    /// It is that of another version.
    #[error(
        "it is a board image of another version of penstock: its recipe is {found}, this one's is {wanted}"
    )]
    OtherRecipe {
        /// The digest of its recipe.
        found: String,
        /// That of this version's.
        wanted: String,
    },
    /// An interrupt came.
    #[error("interrupted")]
    Interrupted,
    /// The file that was named cannot be opened.
    #[error(transparent)]
    Unopened(files::FileError),
    /// It could not be read, or what is in it not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] files::FileError),
}

fn damaged(what: impl Into<String>) -> PackedError {
    PackedError::Damaged(what.into())
}

/// Writes the image of this recipe in `directory`, whose list is `sums`; `told` hears of each file's bytes.
pub(super) fn write(
    digest: &str,
    directory: &Path,
    sums: &str,
    to: impl Write,
    mut told: impl FnMut(u64),
) -> Result<(), PackedError> {
    let mut archive = Builder::new(GzEncoder::new(to, Compression::default()));
    let inside = inside(digest);
    // What does not fit into a header is an error: the crate's own methods put it into an entry of its own, which is not read here.
    let head = |kind: EntryType, name: &str, size: u64, mode: u32| -> io::Result<Header> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_path(format!("{inside}{name}"))?;
        header.set_size(size);
        header.set_mode(mode);
        header.set_cksum();
        Ok(header)
    };
    archive.append(&head(EntryType::Regular, SUMS, sums.len() as u64, 0o644)?, sums.as_bytes())?;
    let mut known = BTreeMap::new();
    for name in listed(sums)?.keys() {
        let file = files::open(directory.join(name))?;
        let found = file.metadata()?;
        let mode = mode_of(found.mode());
        let first = known.entry((found.dev(), found.ino())).or_insert(name);
        if *first == name {
            archive.append(&head(EntryType::Regular, name, found.len(), mode)?, Attentive(file))?;
            told(found.len());
        } else {
            let mut header = head(EntryType::Link, name, 0, mode)?;
            header.set_link_name(format!("{inside}{first}"))?;
            header.set_cksum();
            archive.append(&header, io::empty())?;
        }
    }
    archive.into_inner()?.finish()?;
    Ok(())
}

/// What all paths of a recipe's image begin with.
fn inside(digest: &str) -> String {
    format!("{DIRECTORY}{}/", known_by(digest))
}

fn known_by(digest: &str) -> &str {
    digest.get(..DIGITS).unwrap_or(digest)
}

/// Reads an image of this recipe into the empty `directory`. All that `from` has is read, also what comes behind the image.
pub(super) fn read(digest: &str, from: impl Read, directory: &Path) -> Result<(), PackedError> {
    let mut decoder = GzDecoder::new(from);
    let mut archive = Archive::new((&mut decoder).take(MOST_BYTES));
    // Raw: long names and attributes in entries of their own are read into memory, whatever their length.
    let mut entries = archive.entries().map_err(unreadable)?.raw(true);
    let mut sums = String::new();
    let mut first = entries.next().ok_or_else(|| damaged("it is empty"))?.map_err(unreadable)?;
    is_of(digest, &first)?;
    if first.header().entry_type() != EntryType::Regular || first.size() > LONGEST_LIST {
        return Err(damaged(format!("its {SUMS} is no list of files")));
    }
    first.read_to_string(&mut sums).map_err(|_| damaged(format!("its {SUMS} is no text")))?;
    let wanted = listed(&sums)?;
    let inside = inside(digest);
    let mut done: BTreeSet<String> = BTreeSet::new();
    for entry in entries {
        let mut entry = entry.map_err(unreadable)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let listed = path.strip_prefix(&inside).and_then(|name| wanted.get_key_value(name));
        let Some((name, sum)) = listed else { return Err(damaged(format!("{path:?} is not in its {SUMS}"))) };
        if done.contains(name) {
            return Err(damaged(format!("{name} is there twice")));
        }
        let to = directory.join(name);
        files::create_dir_all(to.parent().unwrap_or(directory))?;
        match entry.header().entry_type() {
            EntryType::Regular => {
                let mode = mode_of(entry.header().mode().map_err(unreadable)?);
                let mut broken = None;
                let written =
                    files::write_atomic_with(&to, mode, |file| copied(&mut entry, file, &mut broken));
                let found = match (written, broken) {
                    (_, Some(error)) => return Err(unreadable(error)),
                    (written, None) => written?,
                };
                if found != *sum {
                    return Err(damaged(format!("the SHA-256 of {name} is {found}, not {sum}")));
                }
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = String::from_utf8_lossy(&target).into_owned();
                let earlier = target.strip_prefix(&inside).and_then(|name| done.get(name));
                let same = earlier.filter(|name| wanted.get(name.as_str()) == Some(sum));
                let Some(same) = same else { return Err(damaged(format!("{name} is a link to {target:?}"))) };
                files::hard_link(directory.join(same), &to)?;
            }
            _ => return Err(damaged(format!("{name} is no plain file"))),
        }
        done.insert(name.clone());
    }
    if let Some(missing) = wanted.keys().find(|name| !done.contains(*name)) {
        return Err(damaged(format!("{missing} is not in it")));
    }
    // gzip's own check is at its end, and what comes behind it is part of what is proven.
    io::copy(&mut (&mut decoder).take(MOST_BYTES), &mut io::sink()).map_err(unreadable)?;
    io::copy(decoder.get_mut(), &mut io::sink()).map_err(unreadable)?;
    files::write_atomic(directory.join(SUMS), sums)?;
    Ok(())
}

/// Reads all that `from` has, which begins as an image of this recipe does; nothing of it is taken.
pub(super) fn read_through(digest: &str, from: &mut impl Read) -> Result<(), PackedError> {
    let mut archive = Archive::new(GzDecoder::new(&mut *from));
    let mut entries = archive.entries().map_err(unreadable)?.raw(true);
    is_of(digest, &entries.next().ok_or_else(|| damaged("it is empty"))?.map_err(unreadable)?)?;
    io::copy(from, &mut io::sink()).map(drop).map_err(unreadable)
}

/// That a file whose first entry this is is an image of this recipe.
fn is_of(digest: &str, first: &Entry<'_, impl Read>) -> Result<(), PackedError> {
    let whole = String::from_utf8_lossy(&first.path_bytes()).into_owned();
    let of = whole.strip_prefix(DIRECTORY).and_then(|rest| rest.strip_suffix(SUMS)?.strip_suffix('/'));
    match of {
        None => Err(damaged(format!("it begins with {whole:?}"))),
        Some(found) if found != known_by(digest) => {
            let found: String = found.chars().filter(char::is_ascii_alphanumeric).take(DIGITS).collect();
            Err(PackedError::OtherRecipe { found, wanted: known_by(digest).to_owned() })
        }
        Some(_) => Ok(()),
    }
}

/// The permissions of a file that had these.
fn mode_of(mode: u32) -> u32 {
    if mode & 0o111 == 0 { 0o644 } else { 0o755 }
}

/// What decompressing and reading a tar say of bytes that are none.
fn unreadable(error: io::Error) -> PackedError {
    match error.kind() {
        _ if interrupt::pending() => PackedError::Interrupted,
        io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::Other => damaged(error.to_string()),
        _ => error.into(),
    }
}

/// The files of a list as `sha256sum` writes it, with their digests.
fn listed(sums: &str) -> Result<BTreeMap<String, String>, PackedError> {
    let mut files = BTreeMap::new();
    for line in sums.lines() {
        let pair = line.split_once("  ").filter(|(sum, name)| is_sha256(sum) && is_inside(name));
        let Some((sum, name)) = pair else {
            return Err(damaged(format!("its {SUMS} has the line {line:?}")));
        };
        if files.insert(name.to_owned(), sum.to_owned()).is_some() || files.len() > MOST_FILES {
            return Err(damaged(format!("its {SUMS} has {name} twice, or too many files")));
        }
    }
    Ok(files)
}

/// Whether a path leads to a file below where it starts, by no links that it names itself, and is not the list.
fn is_inside(name: &str) -> bool {
    let plain = |part: &str| {
        let bytes = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+~".contains(&byte));
        bytes && !matches!(part, "" | "." | "..")
    };
    name.len() <= 200 && name != SUMS && name.split('/').all(plain)
}

/// Copies all of it; the SHA-256 of what came. What cannot be read is in `broken`.
fn copied(from: &mut impl Read, to: &mut File, broken: &mut Option<io::Error>) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(hexadecimal(digest.finalize())),
            Ok(length) => {
                digest.update(&piece[..length]);
                to.write_all(&piece[..length])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let kind = error.kind();
                *broken = Some(error);
                return Err(kind.into());
            }
        }
    }
}

/// A file that is no longer read when an interrupt is pending.
pub(super) struct Attentive(pub File);

impl Read for Attentive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if interrupt::pending() {
            // Not `Interrupted`, after which is read again.
            return Err(io::Error::other("interrupted"));
        }
        self.0.read(buffer)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use penstock_model::digest::sha256;

    use super::*;

    const RECIPE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    const LONG: &str = "a-firmware-with-a-name-of-fifty-seven-bytes-efi-smm-1.fd1";

    /// An image of a few bytes, and its list.
    fn small() -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("qemu")).unwrap();
        fs::write(at("qemu/run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(at("qemu/run"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(at("vmlinuz"), vec![7; 3_000]).unwrap();
        fs::hard_link(at("vmlinuz"), at("qemu/vmlinuz")).unwrap();
        // As long as names and targets of links may be.
        fs::hard_link(at("vmlinuz"), at("qemu").join(LONG)).unwrap();
        let line = |name: &str| format!("{}  {name}\n", sha256(fs::read(at(name)).unwrap()));
        let sums = [&format!("qemu/{LONG}"), "qemu/run", "qemu/vmlinuz", "vmlinuz"].map(line).concat();
        (directory, sums)
    }

    fn packed() -> Vec<u8> {
        let (directory, sums) = small();
        let mut bytes = Vec::new();
        let mut told = 0;
        write(RECIPE, directory.path(), &sums, &mut bytes, |length| told += length).unwrap();
        assert_eq!(told, 3_010, "a link is no second file");
        bytes
    }

    /// All files of a directory, with their permissions.
    fn contents(directory: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut all = BTreeMap::new();
        for name in ["SHA256SUMS", &format!("qemu/{LONG}"), "qemu/run", "qemu/vmlinuz", "vmlinuz"] {
            if let Ok(bytes) = fs::read(directory.join(name)) {
                let mode = fs::metadata(directory.join(name)).unwrap().mode() & 0o777;
                all.insert(name.to_owned(), (mode, bytes));
            }
        }
        all
    }

    fn unpacked(bytes: &[u8]) -> Result<BTreeMap<String, (u32, Vec<u8>)>, PackedError> {
        let directory = tempfile::tempdir().unwrap();
        read(RECIPE, bytes, directory.path())?;
        Ok(contents(directory.path()))
    }

    #[test]
    fn an_image_comes_back_as_it_was_and_always_as_the_same_bytes() {
        let bytes = packed();
        assert_eq!(bytes, packed());
        let (directory, sums) = small();
        fs::write(directory.path().join(SUMS), sums).unwrap();
        let back = unpacked(&bytes).unwrap();
        assert_eq!(back, contents(directory.path()));
        assert_eq!(back["qemu/run"].0, 0o755);
    }

    #[test]
    fn no_change_of_a_byte_gives_another_image() {
        let bytes = packed();
        let whole = unpacked(&bytes).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x11;
            if let Ok(other) = unpacked(&changed) {
                assert_eq!(other, whole, "byte {at}");
            }
            assert!(unpacked(&bytes[..at]).is_err(), "cut at byte {at}");
        }
    }

    #[test]
    fn an_image_of_another_recipe_is_named_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let other = read(&RECIPE.replace('0', "f"), packed().as_slice(), directory.path());
        assert!(matches!(other, Err(PackedError::OtherRecipe { found, .. }) if found == known_by(RECIPE)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// A tar of entries, each with its kind, its name and what it holds or leads to.
    fn tar_of(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
        let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (kind, name, holds) in entries {
            let mut header = Header::new_ustar();
            let is_link = matches!(kind, EntryType::Link | EntryType::Symlink);
            // Names that its own methods refuse.
            let raw = header.as_mut_bytes();
            raw[..name.len()].copy_from_slice(name.as_bytes());
            if is_link {
                raw[157..157 + holds.len()].copy_from_slice(holds);
            }
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            header.set_size(if is_link { 0 } else { holds.len() as u64 });
            header.set_cksum();
            archive.append(&header, if is_link { &[][..] } else { holds }).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn what_is_no_image_is_refused_and_nothing_gets_out_of_its_directory() {
        use EntryType::{Directory, Fifo, GNULongName, Link, Regular, Symlink, XHeader};
        let inside = |name: &str| format!("{}{name}", inside(RECIPE));
        let (list, a, b) = (inside(SUMS), inside("a"), inside("b"));
        let sum = sha256("x");
        let one = format!("{sum}  a\n");
        let two = format!("{sum}  a\n{sum}  b\n");
        let lists = [
            "nonsense\n".to_owned(),
            format!("{sum}  ../a\n"),
            format!("{sum}  /a\n"),
            format!("{sum}  a//b\n"),
            format!("{sum}  ./a\n"),
            format!("{sum}  a\\b\n"),
            format!("{sum}  {SUMS}\n"),
            format!("{sum}  a\n{sum}  a\n"),
            format!("{}  a\n", sum.to_uppercase()),
        ];
        let x: &[u8] = b"x";
        let mut all: Vec<(String, Vec<u8>)> = vec![
            ("nothing".to_owned(), Vec::new()),
            ("text".to_owned(), b"text".to_vec()),
            ("an empty tar".to_owned(), tar_of(&[])),
            ("no list".to_owned(), tar_of(&[(Regular, &a, x)])),
            ("a list that is a link".to_owned(), tar_of(&[(Symlink, &list, b"/etc/passwd")])),
            ("a file too few".to_owned(), tar_of(&[(Regular, &list, one.as_bytes())])),
            ("other bytes".to_owned(), tar_of(&[(Regular, &list, one.as_bytes()), (Regular, &a, b"y")])),
            (
                "a file too many".to_owned(),
                tar_of(&[(Regular, &list, one.as_bytes()), (Regular, &a, x), (Regular, &b, x)]),
            ),
            (
                "a file twice".to_owned(),
                tar_of(&[(Regular, &list, one.as_bytes()), (Regular, &a, x), (Regular, &a, x)]),
            ),
            (
                "a file outside".to_owned(),
                tar_of(&[(Regular, &list, one.as_bytes()), (Regular, &inside("../../a"), x)]),
            ),
            (
                "a path from the root".to_owned(),
                tar_of(&[(Regular, &list, one.as_bytes()), (Regular, "/a", x)]),
            ),
        ];
        for kind in [Symlink, Directory, Fifo, GNULongName, XHeader] {
            all.push((
                format!("an entry of the kind {}", kind.as_byte()),
                tar_of(&[(Regular, &list, one.as_bytes()), (kind, &a, x)]),
            ));
        }
        for target in ["/etc/passwd", &inside("../x"), &b, &inside(SUMS)] {
            let entries: [(EntryType, &str, &[u8]); 3] =
                [(Regular, &list, two.as_bytes()), (Link, &a, target.as_bytes()), (Regular, &b, x)];
            all.push((format!("a link to {target}"), tar_of(&entries)));
        }
        all.extend(lists.map(|list_of| {
            (list_of.clone(), tar_of(&[(Regular, &list, list_of.as_bytes()), (Regular, &a, x)]))
        }));
        for (what, bytes) in all {
            let above = tempfile::tempdir().unwrap();
            let directory = above.path().join("image");
            fs::create_dir(&directory).unwrap();
            let read = read(RECIPE, bytes.as_slice(), &directory);
            assert!(matches!(read, Err(PackedError::Damaged(_))), "{what}: {read:?}");
            assert_eq!(fs::read_dir(above.path()).unwrap().count(), 1, "{what}");
            assert!(!directory.join(SUMS).exists(), "{what}");
        }
        let good = tar_of(&[(Regular, &list, two.as_bytes()), (Regular, &a, x), (Link, &b, a.as_bytes())]);
        let directory = tempfile::tempdir().unwrap();
        read(RECIPE, good.as_slice(), directory.path()).unwrap();
    }
}
