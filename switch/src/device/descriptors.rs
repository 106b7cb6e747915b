//! Descriptors that front ends hand over, looked at before anything is done with them.
//!
//! Whoever serves a descriptor may never answer: a file of a FUSE file system, a socket that somebody holds locked, a tty that is
//! stopped. Even `poll`, `fstat`, `statfs` and `close` then wait for ever (`fuse_flush`, `fuse_file_poll`; a socket that lingers). So each
//! message may bring what belongs to it and nothing else, and its kind is asked of the kernel alone:
//!
//! - an eventfd, by [`Signals::is_event`];
//! - shared memory (memfd, tmpfs) or huge pages: `F_GET_SEALS` succeeds for those two and nothing else (`mm/memfd.c`), and does not ask a
//!   file system. A fault in them waits for no `userfaultfd`, which catches those of the process that has registered it, not ours, but
//!   it does wait while somebody punches a hole just there (`shmem_falloc_wait`), against which there is nothing;
//! - a unix stream socket, by two options that no lock stands in front of.
//!
//! What is refused is closed only where the kernel does that alone; else it stays open until the switch ends ([`leave`]).

use std::{
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd},
};

use nix::{errno::Errno, libc};

use super::message::{MOST_FILES, Message};
use crate::{eventfd::Signals, memory::is_memory};

/// What a message may bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Event,
    Memory,
    Socket,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wanted::Nothing => "no descriptor",
            Wanted::Event => "an eventfd",
            Wanted::Memory => "a memfd, or a file of tmpfs or hugetlbfs,",
            Wanted::Socket => "a unix stream socket",
        })
    }
}

/// What belongs to a message, and what it is called (vhost-user protocol, "Front-end message types").
fn wanted(request: u32) -> (Wanted, &'static str) {
    match request {
        5 => (Wanted::Memory, "VHOST_USER_SET_MEM_TABLE"),
        6 => (Wanted::Memory, "VHOST_USER_SET_LOG_BASE"),
        7 => (Wanted::Event, "VHOST_USER_SET_LOG_FD"),
        12 => (Wanted::Event, "VHOST_USER_SET_VRING_KICK"),
        13 => (Wanted::Event, "VHOST_USER_SET_VRING_CALL"),
        14 => (Wanted::Event, "VHOST_USER_SET_VRING_ERR"),
        21 => (Wanted::Socket, "VHOST_USER_SET_BACKEND_REQ_FD"),
        32 => (Wanted::Memory, "VHOST_USER_SET_INFLIGHT_FD"),
        37 => (Wanted::Memory, "VHOST_USER_ADD_MEM_REG"),
        // It should bring none; some front ends do.
        38 => (Wanted::Memory, "VHOST_USER_REM_MEM_REG"),
        _ => (Wanted::Nothing, "a message that brings none"),
    }
}

/// Looks at all descriptors of a message.
///
/// # Errors
/// What is wrong, for people.
pub fn look(message: &Message, signals: &Signals) -> Result<(), String> {
    let (wanted, name) = wanted(message.request());
    if message.cut {
        return Err(format!(
            "{name} ({}) brought more descriptors than the switch could take: {} came, and a process may have \
             only so many (RLIMIT_NOFILE)",
            message.request(),
            message.files.len()
        ));
    }
    if message.files.len() > MOST_FILES {
        let (request, count) = (message.request(), message.files.len());
        return Err(format!("{name} ({request}) brought {count} descriptors; {MOST_FILES} are the most"));
    }
    let is_wanted = |fd: BorrowedFd<'_>| match wanted {
        Wanted::Nothing => false,
        Wanted::Event => signals.is_event(fd),
        Wanted::Memory => is_memory(fd),
        Wanted::Socket => is_unix_stream(fd),
    };
    match message.files.iter().find(|file| !is_wanted(file.as_fd())) {
        None => Ok(()),
        Some(odd) => Err(format!(
            "{name} ({}) brought {} where {wanted} belongs: a front end could have the switch wait for it",
            message.request(),
            described(odd)
        )),
    }
}

fn is_unix_stream(fd: BorrowedFd<'_>) -> bool {
    let option = |name: libc::c_int| -> Result<libc::c_int, Errno> {
        let mut value: libc::c_int = 0;
        let mut len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: both options are of this type, for which there is room.
        let outcome = unsafe {
            libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len)
        };
        Errno::result(outcome).map(|_| value)
    };
    option(libc::SO_DOMAIN) == Ok(libc::AF_UNIX) && option(libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}

/// Closes descriptors that were refused, where nothing but the kernel has a part in that; says how many stay open for good. A thread
/// that closes one of those may never come back (`fuse_flush`). The process as a whole ends with them, after everything that it has
/// to do; when the kernel gives its last remains back is then up to whoever serves the file, or to who ends that.
pub fn leave(files: Vec<OwnedFd>) -> usize {
    let (harmless, others): (Vec<_>, Vec<_>) = files.into_iter().partition(closes_at_once);
    drop(harmless);
    others.into_iter().map(IntoRawFd::into_raw_fd).count()
}

/// Whether it is an eventfd, shared memory or the like, or a file on a disk.
fn closes_at_once(fd: &OwnedFd) -> bool {
    if described(fd).starts_with("anon_inode:") || is_memory(fd.as_fd()) {
        return true;
    }
    // What the kernel knows already, without asking whoever serves the file.
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: it is plain data, and all zeros are one.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is empty, and there is room for what is found.
    let outcome =
        unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_TYPE, &raw mut found) };
    let is_file = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFREG;
    // File systems that are served by somebody have no device; only root mounts others (`fuseblk`).
    outcome == 0 && is_file && found.stx_dev_major != 0
}

/// What the kernel calls it, without asking whoever serves it: `pipe:[123]`, `anon_inode:[userfaultfd]`, a path.
fn described(fd: &OwnedFd) -> String {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    match name {
        // Its owner has named it.
        Ok(name) => name.to_string_lossy().chars().take(80).collect::<String>().escape_debug().to_string(),
        Err(_) => "something else".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::unix::net::{UnixDatagram, UnixStream},
    };

    use nix::sys::{
        eventfd::{EfdFlags, EventFd},
        memfd::{MFdFlags, memfd_create},
    };

    use super::*;

    #[test]
    fn each_message_brings_what_belongs_to_it_and_nothing_else() {
        let signals = Signals::new().unwrap();
        let shm = tempfile::Builder::new().tempfile_in("/dev/shm").unwrap();
        let disk = tempfile::Builder::new().tempfile_in("/var/tmp").unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let (datagrams, _other) = UnixDatagram::pair().unwrap();
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        let event = EventFd::from_flags(EfdFlags::empty()).unwrap();
        let event = event.as_fd().try_clone_to_owned().unwrap();
        let kinds: Vec<(&str, OwnedFd, &[u32])> = vec![
            ("eventfd", event, &[7, 12, 13, 14]),
            ("memfd", memfd_create("m", MFdFlags::empty()).unwrap(), &[5, 6, 32, 37, 38]),
            ("file of tmpfs", shm.reopen().unwrap().into(), &[5, 6, 32, 37, 38]),
            ("file of a disk", disk.reopen().unwrap().into(), &[]),
            ("unix stream socket", socket.into(), &[21]),
            ("unix datagram socket", datagrams.into(), &[]),
            ("pipe", pipe, &[]),
            ("device", File::open("/dev/zero").unwrap().into(), &[]),
            ("directory", File::open("/").unwrap().into(), &[]),
        ];
        for (kind, fd, fits) in &kinds {
            for request in 0..50 {
                let files = vec![fd.try_clone().unwrap()];
                let message = Message::of(request, files, false);
                assert_eq!(look(&message, &signals).is_ok(), fits.contains(&request), "{kind}, {request}");
            }
        }
        let (_, pipe, _) = &kinds[6];
        let message = Message::of(13, vec![pipe.try_clone().unwrap()], false);
        let why = look(&message, &signals).unwrap_err();
        assert!(why.starts_with("VHOST_USER_SET_VRING_CALL (13) brought pipe:["), "{why}");
        assert!(why.contains("where an eventfd belongs"), "{why}");
    }

    #[test]
    fn only_what_the_kernel_closes_alone_is_closed() {
        let event = EventFd::from_flags(EfdFlags::empty()).unwrap().as_fd().try_clone_to_owned().unwrap();
        let (pipe, other) = nix::unistd::pipe().unwrap();
        assert_eq!(leave(vec![event, memfd_create("m", MFdFlags::empty()).unwrap()]), 0);
        // Its other end may be written to by somebody who never ends, and holds a lock meanwhile.
        assert_eq!(leave(vec![pipe]), 1);
        assert!(nix::unistd::write(&other, &[0]).is_ok(), "it was closed");
    }

    #[test]
    fn descriptors_that_could_not_all_be_had_are_refused() {
        let signals = Signals::new().unwrap();
        let cut = Message::of(5, Vec::new(), true);
        assert!(look(&cut, &signals).unwrap_err().contains("RLIMIT_NOFILE"));
        let many = (0..=MOST_FILES).map(|_| memfd_create("m", MFdFlags::empty()).unwrap()).collect();
        let many = Message::of(5, many, false);
        assert!(look(&many, &signals).unwrap_err().contains("33 descriptors; 32 are the most"));
    }
}
