//! Unix sockets on which others are awaited, and who may come to them: whoever may write to the file may connect.
//!
//! A socket has its mode from its first moment on, whatever the umask is: that of the file is the descriptor's, which is set before it
//! is bound (`unix_bind_bsd`), so that no umask has to be changed, which all threads share. Owner and group follow, and the mode is
//! widened last. Everything is done in a directory that is held: nobody who owns one on the way leads the switch to another
//! ([`HeldName`]).

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag},
    sys::{
        socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket},
        stat::{Mode, SFlag, fchmod, fstat},
    },
    unistd::{Gid, Uid, fchownat},
};
use serde::{Deserialize, Serialize};

use crate::{
    held::{HeldName, kind},
    passed,
};

/// Who may come to a socket, as a configuration says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// The file's mode, in octal. Default: `0600`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Its owner, by name or number. Default: who runs the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its group, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// Who may come to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    mode: Mode,
    owner: Option<Uid>,
    group: Option<Gid>,
}

impl Default for Access {
    /// Its owner alone.
    fn default() -> Access {
        Access { mode: PRIVATE, owner: None, group: None }
    }
}

/// What each socket begins with.
const PRIVATE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

impl TryFrom<&AccessConfig> for Access {
    type Error = String;

    /// Finds the numbers of names. The error says what makes no sense.
    fn try_from(config: &AccessConfig) -> Result<Access, String> {
        let mode = match &config.mode {
            None => PRIVATE,
            Some(text) => u32::from_str_radix(text, 8)
                .ok()
                .filter(|bits| *bits <= 0o777)
                .map(Mode::from_bits_retain)
                .ok_or_else(|| format!("mode {text:?} is none of 0000 to 0777, in octal"))?,
        };
        let owner = config.owner.as_deref().map(|name| number(name, "owner", "/etc/passwd")).transpose()?;
        let group = config.group.as_deref().map(|name| number(name, "group", "/etc/group")).transpose()?;
        Ok(Access { mode, owner: owner.map(Uid::from_raw), group: group.map(Gid::from_raw) })
    }
}

/// The number of a user or a group, which is a line of `file`: name, password, number (passwd(5), group(5)).
fn number(name: &str, key: &str, file: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let all = fs::read_to_string(file).map_err(|error| format!("{key} {name:?}: {file}: {error}"))?;
    let line = all.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut found = line.filter(|fields| fields.first() == Some(&name));
    let number = found.next().and_then(|fields| fields.get(2)?.parse().ok());
    number.ok_or_else(|| format!("{key} {name:?} is not in {file}; a number can be given, too"))
}

/// Awaits others on `path`, `backlog` at a time. A socket that is there and on which nobody listens any more is replaced; nothing else is.
///
/// # Errors
/// What the kernel refuses, with what was tried.
pub fn listen_on(path: &Path, kind: SockType, backlog: i32, access: Access) -> io::Result<OwnedFd> {
    listen_with(new(kind)?, path, kind, backlog, access)
}

/// The same where those who come have no descriptors to pass, and the kernel refuses who tries, if it knows how.
///
/// # Errors
/// As [`listen_on`].
pub fn listen_for_bytes_on(path: &Path, kind: SockType, backlog: i32, access: Access) -> io::Result<OwnedFd> {
    let end = new(kind)?;
    passed::refuse(&end);
    listen_with(end, path, kind, backlog, access)
}

fn listen_with(
    end: OwnedFd,
    path: &Path,
    kind: SockType,
    backlog: i32,
    access: Access,
) -> io::Result<OwnedFd> {
    // Who comes has no shorter name for it.
    UnixAddr::new(path).map_err(|errno| too_long(errno, path, "path", path))?;
    let held = HeldName::of(path)?;
    let bound = held.path();
    let address = UnixAddr::new(&bound).map_err(|errno| too_long(errno, path, "name", &bound))?;
    fchmod(&end, PRIVATE)?;
    match bind(end.as_raw_fd(), &address) {
        Err(Errno::EADDRINUSE) if is_dead(&held, kind) => {
            held.remove()?;
            bind(end.as_raw_fd(), &address)?;
        }
        outcome => outcome?,
    }
    // Before anybody is heard.
    set_access_of(&held, path, access).inspect_err(|_| {
        let _ = held.remove();
    })?;
    listen(&end, Backlog::new(backlog)?)?;
    Ok(end)
}

/// What the kernel says of an address that has too many bytes does not tell of what: of a socket's `part`, which is bound as `bound`.
fn too_long(errno: Errno, path: &Path, part: &str, bound: &Path) -> io::Error {
    if errno != Errno::ENAMETOOLONG {
        return errno.into();
    }
    let over = bound.as_os_str().len().saturating_sub(LONGEST);
    let text =
        format!("{} is too long for a socket: its {part} is to have {over} bytes less", path.display());
    io::Error::new(io::ErrorKind::InvalidFilename, text)
}

/// A socket's address has no more bytes (`sun_path` of unix(7), with a zero at its end).
const LONGEST: usize = 107;

/// Takes a socket away; what else is there stays.
pub fn remove(path: &Path) {
    let remove = || -> io::Result<()> {
        let held = HeldName::of(path)?;
        if kind(&held.look()?) == SFlag::S_IFSOCK {
            held.remove()?;
        }
        Ok(())
    };
    match remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            // The next one that is to be there replaces it.
            complain!("the socket {} could not be removed, and stays: {error}", path.display());
        }
        _ => {}
    }
}

/// Gives a socket of ours its owner, its group, and then its mode.
///
/// # Errors
/// What the kernel refuses; something else than a socket on `path`: who may write to the directory could have put it there.
pub fn set_access(path: &Path, access: Access) -> io::Result<()> {
    set_access_of(&HeldName::of(path)?, path, access)
}

fn set_access_of(held: &HeldName, path: &Path, access: Access) -> io::Result<()> {
    let tried = |what: &str, errno: Errno| {
        let kind = io::Error::from(errno).kind();
        io::Error::new(kind, format!("{what} of {} could not be set: {errno}", path.display()))
    };
    // Links are not followed: from here on it is this file, whatever its name leads to.
    let file = held.open(OFlag::O_PATH, Mode::empty())?;
    if kind(&fstat(&file)?) != SFlag::S_IFSOCK {
        return Err(io::Error::other(format!("{} is no socket any more", path.display())));
    }
    if access.owner.is_some() || access.group.is_some() {
        fchownat(&file, "", access.owner, access.group, AtFlags::AT_EMPTY_PATH)
            .map_err(|errno| tried("owner and group", errno))?;
    }
    // Such a descriptor has no other way (`O_PATH` of open(2)).
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mode = nix::sys::stat::fchmodat(
        nix::fcntl::AT_FDCWD,
        same.as_str(),
        access.mode,
        nix::sys::stat::FchmodatFlags::FollowSymlink,
    );
    mode.map_err(|errno| tried("the mode", errno))
}

/// Who may come to a socket now.
///
/// # Errors
/// What the kernel refuses.
pub fn access_of(path: &Path) -> io::Result<Access> {
    let file = HeldName::of(path)?.look()?;
    Ok(Access {
        mode: Mode::from_bits_retain(file.st_mode & 0o777),
        owner: Some(Uid::from_raw(file.st_uid)),
        group: Some(Gid::from_raw(file.st_gid)),
    })
}

fn new(kind: SockType) -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, kind, flags, None)
}

/// Whether it is a socket on which nobody listens. One whose listener takes nobody is not awaited.
fn is_dead(held: &HeldName, kind_of_socket: SockType) -> bool {
    let is_socket = held.look().is_ok_and(|found| kind(&found) == SFlag::S_IFSOCK);
    let refused = || {
        let end = new(kind_of_socket).ok()?;
        let address = UnixAddr::new(&held.path()).ok()?;
        Some(connect(end.as_fd().as_raw_fd(), &address) == Err(Errno::ECONNREFUSED))
    };
    is_socket && refused().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::{
        io::IoSlice,
        os::unix::{
            fs::{MetadataExt, PermissionsExt, symlink},
            net::{UnixListener, UnixStream},
        },
    };

    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

    use super::*;
    use crate::held::tests::WriteAccess;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn access(text: &str) -> Result<Access, String> {
        Access::try_from(&serde_json::from_str::<AccessConfig>(text).unwrap())
    }

    #[test]
    fn a_socket_has_the_mode_and_the_owner_that_are_set() {
        let directory = tempfile::tempdir().unwrap();
        for (text, wanted) in [("{}", 0o600), (r#"{"mode": "0660"}"#, 0o660), (r#"{"mode": "666"}"#, 0o666)] {
            let path = directory.path().join(wanted.to_string());
            let _socket = listen_on(&path, SockType::Stream, 1, access(text).unwrap()).unwrap();
            assert_eq!(mode(&path), wanted, "{text}");
        }
        if !Uid::effective().is_root() {
            penstock_testkit::skip::part("needs root");
            return;
        }
        let path = directory.path().join("owned");
        let owned = access(r#"{"owner": "daemon", "group": "12345", "mode": "0620"}"#).unwrap();
        let _socket = listen_on(&path, SockType::SeqPacket, 1, owned).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid(), mode(&path)), (1, 12345, 0o620));
        set_access(&path, Access::default()).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn who_comes_to_a_socket_for_bytes_passes_no_descriptors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        for kind in [SockType::Stream, SockType::SeqPacket] {
            let listener = listen_for_bytes_on(&path, kind, 1, Access::default()).unwrap();
            let known = passed::are_refused(&listener);
            // Also before it is let in.
            let end = new(kind).unwrap();
            connect(end.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
            let rights = [end.as_raw_fd()];
            for flags in [MsgFlags::empty(), MsgFlags::MSG_OOB] {
                if kind == SockType::SeqPacket && flags == MsgFlags::MSG_OOB {
                    continue;
                }
                let rights = [ControlMessage::ScmRights(&rights)];
                let sent = sendmsg::<()>(end.as_raw_fd(), &[IoSlice::new(&[0])], &rights, flags, None);
                assert_eq!(sent, if known { Err(Errno::EPERM) } else { Ok(1) }, "{kind:?}");
            }
            assert_eq!(
                sendmsg::<()>(end.as_raw_fd(), &[IoSlice::new(&[0])], &[], MsgFlags::empty(), None),
                Ok(1)
            );
            // Others may.
            fs::remove_file(&path).unwrap();
            let listener = listen_on(&path, kind, 1, Access::default()).unwrap();
            assert!(!passed::are_refused(&listener));
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |path: &Path| {
            let error = listen_on(path, SockType::Stream, 1, Access::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidFilename);
            error.to_string()
        };
        let text = refused(&directory.path().join("n".repeat(107)));
        let over = directory.path().as_os_str().len() + 1;
        assert!(text.ends_with(&format!("its path is to have {over} bytes less")), "{text}");
        // Its path is short enough: it is bound as /proc/self/fd/N/NAME.
        let here = format!("/{}", "n".repeat(100));
        let text = refused(Path::new(&here));
        assert!(text.contains("its name is to have ") && text.contains(&here), "{text}");
        let most = "n".repeat(88);
        // In the directory where the test runs, so that the path is no longer.
        let short = Path::new("/tmp").join(format!("penstock-{}{}", std::process::id(), most));
        let short = short.as_os_str().to_str().unwrap().chars().take(5 + 88).collect::<String>();
        let _socket = listen_on(Path::new(&short), SockType::Stream, 1, Access::default()).unwrap();
        remove(Path::new(&short));
        assert!(!Path::new(&short).exists());
    }

    #[test]
    fn what_is_no_dead_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "precious").unwrap();
        symlink(at("file"), at("link")).unwrap();
        let living = UnixListener::bind(at("living")).unwrap();
        // A listener that takes nobody has a full backlog, at which who comes would wait.
        let full = listen_on(&at("full"), SockType::Stream, 0, Access::default()).unwrap();
        let _waits = UnixStream::connect(at("full")).unwrap();
        for name in ["file", "link", "living", "full"] {
            let refused = listen_on(&at(name), SockType::Stream, 1, Access::default());
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AddrInUse, "{name}");
        }
        assert_eq!(fs::read(at("link")).unwrap(), b"precious");
        drop((living, full));
        for name in ["living", "full"] {
            listen_on(&at(name), SockType::Stream, 1, Access::default()).unwrap();
        }
        // What somebody has put in the place of a socket is not changed.
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o640)).unwrap();
        for name in ["file", "link"] {
            assert!(set_access(&at(name), access(r#"{"mode": "0666"}"#).unwrap()).is_err(), "{name}");
        }
        assert_eq!(mode(&at("file")), 0o640);
    }

    #[test]
    fn who_is_nobody_is_refused_by_name() {
        for (text, told) in [
            (r#"{"mode": "0800"}"#, "mode \"0800\" is none of 0000 to 0777, in octal"),
            (r#"{"mode": "1777"}"#, "none of"),
            (r#"{"owner": "no-such-user"}"#, "owner \"no-such-user\" is not in /etc/passwd"),
            (r#"{"group": "no-such-group"}"#, "group \"no-such-group\" is not in /etc/group"),
        ] {
            let error = access(text).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_link_that_others_can_put_above_a_socket_leads_a_switch_nowhere() {
        let open = access(r#"{"mode": "0666"}"#).unwrap();
        for write_access in WriteAccess::all() {
            let there = tempfile::tempdir().unwrap();
            let at = |name: &str| there.path().join(name);
            ["theirs", "victim"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
            symlink(at("victim"), at("theirs/way")).unwrap();
            symlink(at("victim"), at("ours")).unwrap();
            write_access.open(&at("theirs"), &[at("theirs/way")]);
            drop(UnixListener::bind(at("victim/dead")).unwrap());
            let before = mode(&at("victim/dead"));
            let behind = |name: &str| at("theirs/way").join(name);
            for name in ["dead", "new"] {
                let refused = listen_on(&behind(name), SockType::Stream, 1, open).unwrap_err().to_string();
                assert!(refused.contains("way is a symbolic link that others"), "{refused}");
            }
            assert!(set_access(&behind("dead"), open).is_err() && access_of(&behind("dead")).is_err());
            remove(&behind("dead"));
            assert_eq!(mode(&at("victim/dead")), before);
            assert_eq!(fs::read_dir(at("victim")).unwrap().count(), 1);
            // In their directory itself, and behind a link of ours, it is as ever, and who comes finds it.
            for path in [at("theirs/new"), at("ours/new"), at("ours/dead")] {
                let _socket = listen_on(&path, SockType::Stream, 1, open).unwrap();
                UnixStream::connect(&path).unwrap();
                assert_eq!((access_of(&path).unwrap().mode.bits(), mode(&path)), (0o666, 0o666));
                remove(&path);
                assert!(fs::symlink_metadata(&path).is_err(), "{}", path.display());
            }
            fs::write(at("ours/file"), "").unwrap();
            remove(&at("ours/file"));
            assert!(at("victim/file").exists(), "it is no socket");
        }
    }
}
