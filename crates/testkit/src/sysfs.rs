//! Recorded machines: a sysfs tree as one text file, which can be read in a review and planted in a directory.
//!
//! ```text
//! # A comment.
//! [/sys/devices/pci0000:00/0000:04:00.0]      everything below is relative to this directory
//! class = 0x020000                            a file with this and a line feed; \n \t \\ \xNN stand for themselves
//! driver -> ../../../bus/pci/drivers/ixgbe    a symbolic link, relative and within the tree
//! config : 4096 @0 8680ad15 @100 10000100     4096 bytes, zero but for these, all in hexadecimal but the length
//! net/                                        an empty directory
//! cpu{0-3,8}/online = 1                       the same for each number of the list
//! /usr/share/misc/pci.ids <<END               a file with the lines up to END; this path is absolute
//! 8086  Intel Corporation
//! END
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use penstock_model::CpuSet;
use tempfile::TempDir;

/// No recorded file is larger.
const MAX_FILE: usize = 1 << 20;

/// A tree that cannot be planted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlantError {
    /// The line, from 1; 0 when it is none of them.
    pub line: usize,
    /// What is wrong with that line, or what could not be written.
    pub why: String,
}

impl fmt::Display for PlantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for PlantError {}

#[derive(Clone)]
enum Entry {
    File(Vec<u8>),
    Link(String),
    Directory,
}

/// The recorded machine `fixtures/sysfs/NAME.tree` in a directory of its own, gone when dropped.
///
/// # Panics
///
/// When there is no such record, or it cannot be planted.
pub fn machine(name: &str) -> TempDir {
    let path = fixtures().join("sysfs").join(format!("{name}.tree"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    plant(&text, directory.path()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    directory
}

/// The names of all recorded machines, sorted.
///
/// # Panics
///
/// When the records are not where they were when this was compiled.
pub fn machines() -> Vec<String> {
    let entries = fs::read_dir(fixtures().join("sysfs")).expect("the fixtures are there");
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".tree").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

/// Where the fixtures are.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Writes the tree that `text` records into the empty directory `directory`, and never outside it.
///
/// # Errors
///
/// [`PlantError`] with the line that makes no sense, or line 0 when something cannot be written.
pub fn plant(text: &str, directory: &Path) -> Result<(), PlantError> {
    write(&parse(text)?, directory)
}

/// The paths that `text` records, from the root.
///
/// # Errors
///
/// Text that makes no sense.
pub fn paths(text: &str) -> Result<Vec<String>, PlantError> {
    Ok(parse(text)?.into_keys().collect())
}

/// A planted tree of which some files are changed for a while: to plant it anew for each change takes too long.
pub struct Changing {
    entries: BTreeMap<String, Entry>,
    directory: TempDir,
}

impl Changing {
    /// Plants the tree that `text` records.
    ///
    /// # Errors
    ///
    /// [`PlantError`] with the line that makes no sense, or line 0 when something cannot be written.
    pub fn new(text: &str) -> Result<Changing, PlantError> {
        let directory =
            tempfile::tempdir().map_err(|error| PlantError { line: 0, why: error.to_string() })?;
        let entries = parse(text)?;
        write(&entries, directory.path())?;
        Ok(Changing { entries, directory })
    }

    /// The directory in which the tree is planted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What `use_it` makes of the tree while what `changes` record is in place of, and beside, what it has. A line
    /// `- /sys/kernel/iommu_groups` takes away all that is below.
    ///
    /// # Errors
    ///
    /// [`PlantError`] with the line of `changes` that makes no sense, or line 0 when something cannot be written.
    pub fn with<T>(&self, changes: &[&str], use_it: impl FnOnce(&Path) -> T) -> Result<T, PlantError> {
        let mut changed = BTreeMap::new();
        for changes in changes {
            for gone in changes.lines().filter_map(|line| line.strip_prefix("- /")) {
                let path = self.path().join(gone);
                let is_directory = path.symlink_metadata().is_ok_and(|data| data.is_dir());
                self.remove(gone, if is_directory { fs::remove_dir_all } else { fs::remove_file })?;
            }
            let kept: Vec<&str> = changes.lines().filter(|line| !line.starts_with("- /")).collect();
            changed.extend(parse(&kept.join("\n"))?);
        }
        for path in changed.keys() {
            self.remove(path, fs::remove_file)?;
        }
        write(&changed, self.path())?;
        let made = use_it(self.path());
        for path in changed.keys() {
            self.remove(path, fs::remove_file)?;
        }
        let lacking = |(path, _): &(&String, &Entry)| self.path().join(path).symlink_metadata().is_err();
        let lacking = self.entries.iter().filter(lacking).map(|(path, entry)| (path.clone(), entry.clone()));
        write(&lacking.collect(), self.path())?;
        Ok(made)
    }

    fn remove(&self, path: &str, how: fn(PathBuf) -> io::Result<()>) -> Result<(), PlantError> {
        match how(self.path().join(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(PlantError { line: 0, why: format!("{path}: {error}") })
            }
            _ => Ok(()),
        }
    }
}

fn write(entries: &BTreeMap<String, Entry>, directory: &Path) -> Result<(), PlantError> {
    let put = |path: &String, entry: &Entry| -> io::Result<()> {
        let path = directory.join(path);
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent)?;
        match entry {
            Entry::File(bytes) => fs::write(path, bytes),
            Entry::Link(target) => symlink(target, path),
            Entry::Directory => fs::create_dir_all(path),
        }
    };
    for (path, entry) in entries {
        put(path, entry).map_err(|error| PlantError { line: 0, why: format!("{path}: {error}") })?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<BTreeMap<String, Entry>, PlantError> {
    let mut entries = BTreeMap::new();
    let mut links = BTreeSet::new();
    let mut directory = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let fail = |why: String| PlantError { line: number + 1, why };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(heading) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            directory = absolute("", heading).map_err(fail)?;
            continue;
        }
        let (name, entry) = if let Some((name, end)) = line.split_once(" <<") {
            let mut file = String::new();
            for (_, line) in lines.by_ref().take_while(|(_, line)| *line != end) {
                file.push_str(line);
                file.push('\n');
            }
            (name, Entry::File(file.into_bytes()))
        } else if let Some((name, target)) = line.split_once(" -> ") {
            (name, Entry::Link(target.to_owned()))
        } else if let Some((name, bytes)) = line.split_once(" : ") {
            (name, Entry::File(sparse(bytes).map_err(fail)?))
        } else if let Some((name, value)) = line.split_once(" =") {
            let mut bytes = unescaped(value.strip_prefix(' ').unwrap_or(value)).map_err(fail)?;
            bytes.push(b'\n');
            (name, Entry::File(bytes))
        } else if let Some(name) = line.strip_suffix('/') {
            (name, Entry::Directory)
        } else {
            return Err(fail(format!("{line:?} is neither a file, a link nor a directory")));
        };
        let path = absolute(&directory, name).map_err(fail)?;
        for path in expanded(&path).map_err(fail)? {
            if let Entry::Link(target) = &entry {
                within(&path, target).map_err(fail)?;
                links.insert(path.clone());
            }
            if entries.insert(path.clone(), entry.clone()).is_some() {
                return Err(fail(format!("/{path} is there twice")));
            }
        }
    }
    // What lies below a link would be written wherever that leads.
    let below = entries.keys().find(|path| {
        let mut parents = path.match_indices('/').map(|(position, _)| &path[..position]);
        parents.any(|parent| links.contains(parent))
    });
    match below {
        Some(path) => Err(PlantError { line: 0, why: format!("/{path} lies below a link") }),
        None => Ok(entries),
    }
}

/// `name` below `directory`, or by itself when it starts with a slash; without a leading slash.
fn absolute(directory: &str, name: &str) -> Result<String, String> {
    let path = match name.strip_prefix('/') {
        Some(name) => name.to_owned(),
        None if directory.is_empty() => return Err(format!("{name:?} stands below no directory")),
        None => format!("{directory}/{name}"),
    };
    let odd = path
        .split('/')
        .any(|part| matches!(part, "" | "." | "..") || part.contains('\0') || part.len() > 255);
    if odd { Err(format!("{path:?} is no path of a tree")) } else { Ok(path) }
}

/// The path for each number of the list in braces; the path itself when there is none.
fn expanded(path: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = path.split_once('{') else { return Ok(vec![path.to_owned()]) };
    let odd = || format!("{path:?} has braces without a list of numbers");
    let (list, after) = rest.split_once('}').ok_or_else(odd)?;
    let numbers: CpuSet = list.parse().map_err(|_| odd())?;
    if numbers.0.is_empty() || after.contains('{') {
        return Err(odd());
    }
    Ok(numbers.0.iter().map(|number| format!("{before}{number}{after}")).collect())
}

/// Refuses a link that leads out of the tree.
fn within(path: &str, target: &str) -> Result<(), String> {
    let mut depth = path.matches('/').count();
    let refuse = || Err(format!("a link to {target:?} leads out of the tree"));
    if target.starts_with('/') || target.is_empty() || target.contains('\0') {
        return refuse();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return refuse(),
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    Ok(())
}

/// `LENGTH @OFFSET BYTES...`: all in hexadecimal but the length.
fn sparse(text: &str) -> Result<Vec<u8>, String> {
    let mut words = text.split_whitespace();
    let length = words.next().and_then(|word| word.parse().ok());
    let length = length.filter(|length| *length <= MAX_FILE).ok_or("the length comes first")?;
    let mut bytes = vec![0; length];
    let mut at = 0usize;
    for word in words {
        if let Some(offset) = word.strip_prefix('@') {
            at = usize::from_str_radix(offset, 16).map_err(|_| format!("{word:?} is no offset"))?;
            continue;
        }
        for digits in word.as_bytes().chunks(2) {
            let byte = std::str::from_utf8(digits)
                .ok()
                .filter(|digits| digits.len() == 2)
                .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                .ok_or_else(|| format!("{word:?} is not in hexadecimal"))?;
            *bytes.get_mut(at).ok_or_else(|| format!("{at:#x} is past the length"))? = byte;
            at += 1;
        }
    }
    Ok(bytes)
}

fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => escape(&mut rest).ok_or_else(|| format!("{text:?} has an unknown escape"))?,
            byte => byte,
        });
    }
    Ok(bytes)
}

/// The byte that an escape stands for, its backslash read.
fn escape(rest: &mut impl Iterator<Item = u8>) -> Option<u8> {
    match rest.next()? {
        b'n' => Some(b'\n'),
        b't' => Some(b'\t'),
        b'\\' => Some(b'\\'),
        b'x' => {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            u8::try_from(digit()? << 4 | digit()?).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_planted() {
        let directory = tempfile::tempdir().unwrap();
        let text = "# c\n[/a/b]\nf = x\\ty\\xff\nempty =\nl -> ../../c/d\ng : 6 @1 0aff @4 7\n";
        assert_eq!(plant(text, directory.path()).unwrap_err().line, 6);
        let text = text.replace("@4 7", "@4 70") + "h/i/\n/c/d <<END\none = 1\nEND\n";
        plant(&text, directory.path()).unwrap();
        let read = |path: &str| fs::read(directory.path().join(path)).unwrap();
        assert_eq!(read("a/b/f"), b"x\ty\xff\n");
        assert_eq!(read("a/b/empty"), b"\n");
        assert_eq!(read("a/b/l"), b"one = 1\n");
        assert_eq!(read("a/b/g"), [0, 0x0a, 0xff, 0, 0x70, 0]);
        assert!(directory.path().join("a/b/h/i").is_dir());
    }

    #[test]
    fn a_list_in_braces_stands_for_each_number_and_changes_are_taken_back() {
        let tree = Changing::new("[/a]\ncpu{0-1,3}/x = 1\n").unwrap();
        let read = |path: &Path| {
            let read = |cpu: u32| fs::read_to_string(path.join(format!("a/cpu{cpu}/x"))).ok();
            (0..5).map(read).map(|text| text.unwrap_or_default()).collect::<Vec<_>>()
        };
        let changed = tree.with(&["/a/cpu3/x = 2", "- /a/cpu1\n/a/cpu4/x = 3"], read).unwrap();
        assert_eq!(changed, ["1\n", "", "", "2\n", "3\n"]);
        assert_eq!(read(tree.path()), ["1\n", "1\n", "", "1\n", ""]);
        for odd in ["/a{0 = 1", "/a{} = 1", "/a{x}b = 1", "/a{0}{1} = 1", "/a{0}/b = 1\n/a0/b = 2"] {
            assert!(Changing::new(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn nothing_is_planted_outside() {
        let directory = tempfile::tempdir().unwrap();
        for text in
            ["/a -> ../b", "/a -> /etc", "/../a = 1", "/a/./b = 1", "/l -> d\n/l/f = 1", "f = 1", "/a"]
        {
            assert!(plant(text, directory.path()).is_err(), "{text:?}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
