//! A file that another process writes to, read as it grows, across truncation and replacement. It is a plain file: a FIFO or a
//! device that whoever may write to the directory has put there is neither opened nor waited for.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use nix::{
    poll::PollFlags,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};

use crate::{files::open_plain, terminal::ready};

/// No more of the end of a file is searched for its last lines: what is in it may be one endless line.
const LINES_LIMIT: u64 = 1 << 20;

/// How long a change can go unnoticed where the kernel tells of none (a network file system, a directory that was not
/// there).
const UNTOLD: Duration = Duration::from_millis(200);

/// Where in a file to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With its first byte.
    First,
    /// With its last so many lines.
    LastLines(usize),
}

/// What reading on came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// So many bytes more.
    Bytes(usize),
    /// Nothing new for now.
    Nothing,
    /// The file was truncated, or another one has its name: what follows is from its first byte.
    Anew,
    /// There is no such file for now.
    Absent,
}

/// A file that is followed by name.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    open: Option<Open>,
    /// Whether there has been a file.
    seen: bool,
    watch: Option<Inotify>,
}

#[derive(Debug)]
struct Open {
    file: File,
    id: (u64, u64),
    offset: u64,
}

impl Follower {
    /// Follows `path`, which need not be there yet.
    ///
    /// # Errors
    ///
    /// It is there and cannot be read, or is no plain file.
    pub fn new(path: impl Into<PathBuf>, begin: Begin) -> io::Result<Follower> {
        let path = path.into();
        // Watched before it is read, so that nothing goes unnoticed in between.
        let watch = watch(&path);
        let mut open = open(&path)?;
        if let (Some(open), Begin::LastLines(lines)) = (&mut open, begin) {
            open.offset = last_lines(&open.file, lines)?;
        }
        Ok(Follower { seen: open.is_some(), path, open, watch })
    }

    /// How many bytes there are beyond those that were read.
    pub fn ahead(&self) -> u64 {
        let length = |open: &Open| Some(open.file.metadata().ok()?.len().saturating_sub(open.offset));
        self.open.as_ref().and_then(length).unwrap_or(0)
    }

    /// Reads on, without waiting.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or one of its name has come that may not be.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Followed> {
        let Some(open) = &mut self.open else {
            self.open = open(&self.path)?;
            let came = self.open.is_some();
            let came_back = came && self.seen;
            self.seen |= came;
            return Ok(match came {
                false => Followed::Absent,
                true if came_back => Followed::Anew,
                true => Followed::Nothing,
            });
        };
        let count = open.read(buffer)?;
        if count > 0 {
            return Ok(Followed::Bytes(count));
        }
        if open.file.metadata()?.len() < open.offset {
            open.offset = 0;
            return Ok(Followed::Anew);
        }
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == open.id => Ok(Followed::Nothing),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            // Gone or replaced; it may have been written to until then.
            gone => {
                let count = open.read(buffer)?;
                if count > 0 {
                    return Ok(Followed::Bytes(count));
                }
                self.open = None;
                match gone {
                    Ok(_) => self.read(buffer),
                    Err(_) => Ok(Followed::Absent),
                }
            }
        }
    }

    /// Waits until something may have changed, for at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) {
        if self.watch.is_none() || self.open.is_none() {
            // The directory may be another one by now.
            self.watch = watch(&self.path);
            thread::sleep(timeout.min(UNTOLD));
            return;
        }
        if let Some(watch) = &self.watch
            && matches!(ready(watch.as_fd(), PollFlags::POLLIN, timeout.min(UNTOLD)), Ok(true))
        {
            let _ = watch.read_events();
        }
    }
}

impl Open {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, self.offset) {
                Ok(count) => {
                    self.offset += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn open(path: &Path) -> io::Result<Option<Open>> {
    match open_plain(path) {
        Ok(file) => {
            let data = file.metadata()?;
            Ok(Some(Open { file, id: (data.dev(), data.ino()), offset: 0 }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The kernel's word on changes in the directory of `path` (inotify(7)); the directory, because files come and go.
fn watch(path: &Path) -> Option<Inotify> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
    let changes = AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_DELETE;
    inotify.add_watch(path.parent()?, changes).ok()?;
    Some(inotify)
}

/// Where the last `lines` lines of a file begin; a last line without its end counts as one.
fn last_lines(file: &File, lines: usize) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let floor = length.saturating_sub(LINES_LIMIT);
    let mut found = 0;
    let mut end = length;
    let mut block = vec![0; 16 << 10];
    while end > floor {
        let size = (end - floor).min(block.len() as u64) as usize;
        let start = end - size as u64;
        let count = file.read_at(&mut block[..size], start)?;
        for at in (0..count).rev().filter(|at| block[*at] == b'\n') {
            // The end of the very last line begins no other.
            if start + at as u64 + 1 == length {
                continue;
            }
            found += 1;
            if found >= lines {
                return Ok(if lines == 0 { length } else { start + at as u64 + 1 });
            }
        }
        end = start;
    }
    Ok(if lines == 0 { length } else { floor })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn follow(path: &Path, begin: Begin) -> Follower {
        Follower::new(path, begin).unwrap()
    }

    /// All that can be read for now, with `|` where it began anew and `.` where there was no file.
    fn text(follower: &mut Follower) -> String {
        let (mut text, mut buffer) = (String::new(), [0; 5]);
        loop {
            match follower.read(&mut buffer).unwrap() {
                Followed::Bytes(count) => text += std::str::from_utf8(&buffer[..count]).unwrap(),
                Followed::Anew => text.push('|'),
                Followed::Nothing if follower.ahead() == 0 => return text,
                Followed::Nothing => {}
                Followed::Absent => return text + ".",
            }
        }
    }

    #[test]
    fn the_last_lines_are_counted_from_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "a\nb\nc\nd").unwrap();
        for (lines, wanted) in [(0, ""), (1, "d"), (2, "c\nd"), (4, "a\nb\nc\nd"), (9, "a\nb\nc\nd")] {
            assert_eq!(text(&mut follow(&path, Begin::LastLines(lines))), wanted, "{lines}");
        }
        fs::write(&path, "a\nb\n").unwrap();
        assert_eq!(text(&mut follow(&path, Begin::LastLines(1))), "b\n");
        fs::write(&path, vec![b'x'; 3 << 20]).unwrap();
        assert_eq!(follow(&path, Begin::LastLines(1)).ahead(), LINES_LIMIT, "an endless line is bounded");
        let many: String = (0..30_000).map(|n| format!("{n}\n")).collect();
        fs::write(&path, many).unwrap();
        assert!(text(&mut follow(&path, Begin::LastLines(10_000))).starts_with("20000\n20001\n"));
    }

    #[test]
    fn a_file_is_followed_through_all_that_can_happen_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut follower = follow(&path, Begin::LastLines(5));
        assert_eq!(text(&mut follower), ".");
        fs::write(&path, "one\n").unwrap();
        assert_eq!(text(&mut follower), "one\n", "it came");
        let append =
            |bytes: &str| File::options().append(true).open(&path).unwrap().write_all(bytes.as_bytes());
        append("two\n").unwrap();
        assert_eq!(text(&mut follower), "two\n", "it grew");
        fs::write(&path, "new\n").unwrap();
        assert_eq!(text(&mut follower), "|new\n", "it was truncated and written anew");
        append("last").unwrap();
        fs::rename(&path, directory.path().join("log.1")).unwrap();
        fs::write(&path, "rotated").unwrap();
        assert_eq!(text(&mut follower), "last|rotated", "nothing is lost in a rotation");
        fs::remove_file(&path).unwrap();
        assert_eq!(text(&mut follower), ".");
        assert_eq!(text(&mut follower), ".");
        fs::write(&path, "back").unwrap();
        assert_eq!(text(&mut follower), "|back");
    }

    #[test]
    fn only_a_plain_file_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let fifo = || nix::unistd::mkfifo(&at("log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let began = std::time::Instant::now();
        fifo();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        for (name, what) in [("log", "a FIFO"), ("zero", "a device")] {
            let error = Follower::new(at(name), Begin::LastLines(10)).unwrap_err();
            assert_eq!(error.to_string(), format!("it is {what}, not a plain file"));
        }
        // One that comes in the place of a file.
        fs::remove_file(at("log")).unwrap();
        fs::write(at("log"), "one").unwrap();
        let mut follower = follow(&at("log"), Begin::First);
        assert_eq!(text(&mut follower), "one");
        fs::remove_file(at("log")).unwrap();
        fifo();
        let error = follower.read(&mut [0; 5]).unwrap_err();
        assert_eq!(error.to_string(), "it is a FIFO, not a plain file");
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_change_ends_the_wait_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "").unwrap();
        let mut follower = follow(&path, Begin::First);
        assert_eq!(text(&mut follower), "");
        let soonest = (0..5).map(|_| {
            fs::write(&path, "x").unwrap();
            let began = std::time::Instant::now();
            follower.wait(Duration::from_secs(60));
            began.elapsed()
        });
        let soonest = soonest.min().unwrap();
        assert!(soonest < UNTOLD, "{soonest:?}");
        assert_eq!(text(&mut follower), "x");
    }
}
