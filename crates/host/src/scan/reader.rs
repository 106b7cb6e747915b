//! Reads files that nobody vouches for, and keeps notes of what could not be made sense of.

use std::{
    collections::{BTreeSet, HashSet},
    io,
    str::FromStr,
};

use penstock_model::{inventory::tuning::Reading, text::one_line};

use crate::{Root, record::Entry, root::ENTRIES};

/// No sysfs attribute is longer than a page (`fs/sysfs/file.c`).
const ATTRIBUTE: usize = 4096;
/// The PCI id database has 1.4 MB in 2025, and `/proc/cpuinfo` of a thousand CPUs about as much.
const LARGE: usize = 16 << 20;
/// So many open files one process can have (`/proc/sys/fs/nr_open`, unless that was raised).
const DESCRIPTORS: usize = 1 << 20;
/// What a compressed file begins with (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Nobody reads more notes than this; the rest is counted.
const NOTES: usize = 1000;

/// Reads below a root and writes down what went wrong, each thing once.
pub(super) struct Reader<'a> {
    root: &'a Root,
    notes: Vec<String>,
    noted: HashSet<String>,
    /// Notes beyond [`NOTES`].
    more: usize,
}

impl<'a> Reader<'a> {
    pub fn new(root: &'a Root) -> Reader<'a> {
        Reader { root, notes: Vec::new(), noted: HashSet::new(), more: 0 }
    }

    /// Below which directory it reads.
    pub fn root(&self) -> &'a Root {
        self.root
    }

    /// Writes down one thing that is not known, unless it was written down before.
    pub fn note(&mut self, text: impl AsRef<str>) {
        if self.notes.len() >= NOTES {
            self.more += 1;
            return;
        }
        let text = one_line(text.as_ref());
        if self.noted.insert(text.clone()) {
            self.notes.push(text);
        }
    }

    /// What was written down, in the order in which it was met.
    pub fn into_notes(mut self) -> Vec<String> {
        self.take_notes()
    }

    /// What was written down since the last time, which is then forgotten.
    pub fn take_notes(&mut self) -> Vec<String> {
        self.noted.clear();
        if self.more > 0 {
            self.notes.push(format!("{} more could not be made sense of", self.more));
            self.more = 0;
        }
        std::mem::take(&mut self.notes)
    }

    /// The path without symbolic links, if it is there and below the root.
    pub fn canonical(&self, path: &str) -> Option<String> {
        self.root.canonical(path)
    }

    /// Where a symbolic link points, as it is written; `None` when there is none, or who asks may not know.
    pub fn target(&self, path: &str) -> Option<String> {
        self.root.target(path).ok()?.to_str().map(str::to_owned)
    }

    /// Whether something is there, after symbolic links.
    pub fn exists(&self, path: &str) -> bool {
        self.root.exists(path)
    }

    /// At most `limit` bytes of a file, and whether there is more. `Ok(None)`: it is not there.
    fn read(&self, path: &str, limit: usize) -> io::Result<Option<(Vec<u8>, bool)>> {
        match self.root.read(path, limit) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What came of reading an attribute, told apart by why there is no value. `make` says what is wrong with a text.
    pub fn reading<T>(&mut self, path: &str, make: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let (bytes, more) = match self.read(path, ATTRIBUTE) {
            Ok(Some(read)) => read,
            Ok(None) => return Reading::Absent,
            Err(error) => return failed(path, &error),
        };
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if more || text.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
            return Reading::Unreadable(format!("{path} holds {}, which is no value", quoted(text)));
        }
        match make(text) {
            Ok(value) => Reading::Is(value),
            Err(why) => Reading::Unreadable(format!("{path}: {}", one_line(&why))),
        }
    }

    /// As [`Reader::reading`], for a file of many lines.
    pub fn lines(&mut self, path: &str) -> Reading<String> {
        self.lines_up_to(path, LARGE)
    }

    /// As [`Reader::lines`], for a file of at most `limit` bytes.
    pub fn lines_up_to(&mut self, path: &str, limit: usize) -> Reading<String> {
        match self.read(path, limit) {
            Ok(Some((_, true))) => Reading::Unreadable(format!("{path} is longer than {limit} bytes")),
            // Not copied: a table of interrupts may be tens of megabytes.
            Ok(Some((bytes, false))) => Reading::Is(
                String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            ),
            Ok(None) => Reading::Absent,
            Err(error) => failed(path, &error),
        }
    }

    /// As [`Reader::lines`], of which `keep` is all that a recorder is to have.
    pub fn part_of(&mut self, path: &str, keep: impl FnOnce(&str) -> String) -> Reading<String> {
        let whole = Reader::new(&self.root.unnoted()).lines(path);
        match whole {
            Reading::Is(text) => {
                let kept = keep(&text);
                self.root.note(path, Ok(kept.as_bytes()));
                Reading::Is(kept)
            }
            // Once more, for the recorder.
            _ => self.lines(path),
        }
    }

    /// The text that `unpack` makes of a compressed file of at most `limit` bytes. A recorder is told the text, which is what is read
    /// of its record.
    pub fn compressed(
        &mut self,
        path: &str,
        limit: usize,
        unpack: impl FnOnce(&[u8]) -> Result<String, String>,
    ) -> Reading<String> {
        let read = match self.root.unnoted().read(path, limit) {
            Ok((_, true)) => return Reading::Unreadable(format!("{path} is longer than {limit} bytes")),
            Ok((bytes, false)) => bytes,
            // Once more, for the recorder.
            Err(_) => return self.lines(path),
        };
        let text = if read.starts_with(&GZIP) {
            unpack(&read)
        } else {
            String::from_utf8(read).map_err(|error| error.to_string())
        };
        match text {
            Ok(text) => {
                self.root.note(path, Ok(text.as_bytes()));
                Reading::Is(text)
            }
            Err(why) => Reading::Unreadable(format!("{path}: {}", one_line(&why))),
        }
    }

    /// As [`Reader::reading`] of a text, of which a recorder is told only where it is `wanted`, or may not be read.
    pub fn glance(&mut self, path: &str, wanted: impl FnOnce(&str) -> bool) -> Reading<String> {
        let whole = Reader::new(&self.root.unnoted()).reading(path, |text| Ok(text.to_owned()));
        match &whole {
            Reading::Is(text) if wanted(text) => self.root.note(path, Ok(format!("{text}\n").as_bytes())),
            // Once more, for the recorder.
            Reading::Denied => return self.reading(path, |text| Ok(text.to_owned())),
            _ => {}
        }
        whole
    }

    /// The first `limit` bytes of a file.
    pub fn bytes(&mut self, path: &str, limit: usize) -> Option<Vec<u8>> {
        match self.read(path, limit) {
            Ok(read) => read.map(|(bytes, _)| bytes),
            Err(error) => {
                self.note(format!("{path} could not be read: {error}"));
                None
            }
        }
    }

    /// An attribute's text without the white space around it; `None` when it is not there.
    pub fn text(&mut self, path: &str) -> Option<String> {
        self.text_unless(path, &[])
    }

    /// As [`Reader::text`]; these errors of the kernel mean that the attribute has no value now, and are not noted.
    pub fn text_unless(&mut self, path: &str, no_value: &[nix::errno::Errno]) -> Option<String> {
        let read = self.read(path, ATTRIBUTE);
        self.text_of(path, read, no_value)
    }

    /// The text of what was read of an attribute.
    fn text_of(
        &mut self,
        path: &str,
        read: io::Result<Option<(Vec<u8>, bool)>>,
        no_value: &[nix::errno::Errno],
    ) -> Option<String> {
        let (bytes, more) = match read {
            Ok(read) => read?,
            Err(error) => {
                let quiet = no_value.iter().any(|errno| error.raw_os_error() == Some(*errno as i32));
                if !quiet {
                    self.note(format!("{path} could not be read: {error}"));
                }
                return None;
            }
        };
        if more {
            self.note(format!("{path} is longer than {ATTRIBUTE} bytes and was left out"));
            return None;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if text.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
            self.note(format!("{path} holds {}, which is no text", quoted(text)));
            return None;
        }
        Some(text.to_owned())
    }

    /// As [`Reader::text`], for what every kernel that Penstock runs on has.
    pub fn required(&mut self, path: &str) -> Option<String> {
        let read = self.read(path, ATTRIBUTE);
        if matches!(read, Ok(None)) {
            self.note(format!("{path} is not there"));
        }
        self.text_of(path, read, &[])
    }

    /// A large file's text, with what is not UTF-8 replaced. Of one that is too long the first part, and it is noted that there is more.
    pub fn large_text(&mut self, path: &str) -> Option<String> {
        self.large_text_unless(path, &[])
    }

    /// As [`Reader::large_text`]; these errors of the kernel are not noted.
    pub fn large_text_unless(&mut self, path: &str, quiet: &[nix::errno::Errno]) -> Option<String> {
        match self.read(path, LARGE) {
            Ok(read) => {
                let (bytes, more) = read?;
                if more {
                    self.note(format!("{path} is longer than {LARGE} bytes; the rest was left out"));
                }
                Some(String::from_utf8_lossy(&bytes).into_owned())
            }
            Err(error) => {
                if !quiet.iter().any(|errno| error.raw_os_error() == Some(*errno as i32)) {
                    self.note(format!("{path} could not be read: {error}"));
                }
                None
            }
        }
    }

    /// An attribute's value; `None` when it is not there or is no `what`.
    pub fn value<T: FromStr>(&mut self, path: &str, what: &str) -> Option<T> {
        let text = self.text(path)?;
        self.parse(path, &text, what, |text| text.parse().ok())
    }

    /// As [`Reader::value`], for what every kernel that Penstock runs on has.
    pub fn required_value<T: FromStr>(&mut self, path: &str, what: &str) -> Option<T> {
        let text = self.required(path)?;
        self.parse(path, &text, what, |text| text.parse().ok())
    }

    /// A hexadecimal attribute, with or without `0x`; one that is not there is noted when `required`.
    pub fn hexadecimal(&mut self, path: &str, required: bool) -> Option<u32> {
        let text = if required { self.required(path) } else { self.text(path) }?;
        self.parse(path, &text, "hexadecimal number", |text| {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
        })
    }

    /// As [`Reader::hexadecimal`], for an id of 16 bits.
    pub fn hexadecimal_id(&mut self, path: &str, required: bool) -> Option<u16> {
        let wide = self.hexadecimal(path, required)?;
        let id = u16::try_from(wide).ok();
        if id.is_none() {
            self.note(format!("{path} holds {wide:#x}, which is wider than 16 bits"));
        }
        id
    }

    fn parse<T>(
        &mut self,
        path: &str,
        text: &str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = parse(text);
        if value.is_none() {
            self.note(format!("{path} holds {}, which is no {what}", quoted(text)));
        }
        value
    }

    /// The names in a directory, sorted; none when it is not there.
    pub fn list(&mut self, path: &str) -> Vec<String> {
        self.entries(path).into_iter().map(|entry| entry.name).collect()
    }

    /// As [`Reader::list`], told apart by why there is none.
    pub fn listing(&mut self, path: &str) -> Reading<Vec<String>> {
        match self.root.entries(path, ENTRIES) {
            Ok(entries) => Reading::Is(entries.into_iter().map(|entry| entry.name).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Absent,
            Err(error) => failed(path, &error),
        }
    }

    /// The names of the directories in a directory, without links to such; none when it is not there.
    pub fn directories(&mut self, path: &str) -> Vec<String> {
        self.entries(path).into_iter().filter(|entry| entry.directory).map(|entry| entry.name).collect()
    }

    fn entries(&mut self, path: &str) -> Vec<Entry> {
        match self.root.entries(path, ENTRIES + 1) {
            Ok(mut entries) => {
                if entries.len() > ENTRIES {
                    self.note(format!("{path} has more than {ENTRIES} entries; the others were left out"));
                    entries.truncate(ENTRIES);
                }
                entries
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                self.note(format!("{path} could not be listed: {error}"));
                Vec::new()
            }
        }
    }

    /// As [`Reader::list`], where it is no news that who asks may not know.
    pub fn quiet_list(&self, path: &str) -> Vec<String> {
        let entries = self.root.entries(path, ENTRIES).unwrap_or_default();
        entries.into_iter().map(|entry| entry.name).collect()
    }

    /// All names in a directory, as many as a process can have open files, or why there are none to read.
    ///
    /// # Errors
    ///
    /// What the kernel says of the directory: it is not there, or may not be read.
    pub fn whole_list(&self, path: &str) -> io::Result<Vec<String>> {
        Ok(self.root.entries(path, DESCRIPTORS)?.into_iter().map(|entry| entry.name).collect())
    }

    /// The numbers N of the entries `PREFIXN` of a directory; another entry with this prefix is noted if it starts
    /// with a digit there, since then a number was meant.
    pub fn numbered(&mut self, path: &str, prefix: &str) -> BTreeSet<u32> {
        let mut numbers = BTreeSet::new();
        for name in self.list(path) {
            let Some(rest) = name.strip_prefix(prefix) else {
                continue;
            };
            match rest.parse::<u32>() {
                Ok(number) if number.to_string() == rest => {
                    numbers.insert(number);
                }
                _ if rest.starts_with(|c: char| c.is_ascii_digit()) => {
                    self.note(format!("{path}/{name} has a name that no kernel gives"));
                }
                _ => {}
            }
        }
        numbers
    }

    /// The last part of where a symbolic link points; `None` when there is no such link.
    pub fn link_name(&mut self, path: &str) -> Option<String> {
        let target = match self.root.target(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                self.note(format!("{path} could not be followed: {error}"));
                return None;
            }
        };
        let name =
            target.file_name().and_then(|name| name.to_str()).filter(|name| !name.contains(char::is_control));
        if name.is_none() {
            self.note(format!("{path} points to {}, which is no name", quoted(&target.to_string_lossy())));
        }
        name.map(str::to_owned)
    }
}

/// Why there is no value, as the error says.
fn failed<T>(path: &str, error: &io::Error) -> Reading<T> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Reading::Denied,
        // A file where a directory would be.
        io::ErrorKind::NotADirectory => Reading::Absent,
        // A process that has ended since its file was opened (proc(5)).
        _ if path.starts_with("/proc/") && error.raw_os_error() == Some(nix::libc::ESRCH) => Reading::Absent,
        _ => Reading::Unreadable(format!("{path} could not be read: {error}")),
    }
}

/// Outside text as a message may show it: quoted, escaped and not long.
pub(super) fn quoted(text: &str) -> String {
    let mut start: String = text.chars().take(60).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    format!("{start:?}")
}
