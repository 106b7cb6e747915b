//! From which SSH connection this very process was started, as one line that can be handed on to whoever has no such ancestors.
//!
//! `sudo` and `su` keep `SSH_CONNECTION` from what they run, and a service descends from nobody who had it.

use std::{collections::BTreeSet, env, net::IpAddr};

use super::{
    ancestry::{Ancestor, ancestors, leader},
    session::{MULTIPLEXERS, SERVERS, Started, lives, of_server},
    sockets::sockets,
};
use crate::{Root, files, scan::reader::Reader};

impl Started {
    /// How this very process was started, with whom it must be able to reach beside that.
    pub fn here(peers: Vec<IpAddr>) -> Started {
        Started { ssh_connection: ssh_connection(), process: Some(std::process::id()), peers }
    }
}

/// What `SSH_CONNECTION` (ssh(1), ENVIRONMENT) is, or would be had nobody kept it from this process; `None` where it was started in another
/// way, and where that cannot be told: below a program that outlives connections any of those may be the one, unless a variable says it.
///
/// One whose connection is seen to live is preferred. Where there is none this may be of one that has ended: whoever acts on it looks.
pub fn ssh_connection() -> Option<String> {
    of(&Root::system(), std::process::id(), own(), true)
}

/// The same, for telling callers apart: what this process, or the nearest one above it that has the variable, was told, whatever has become
/// of that connection.
pub fn ssh_connection_as_told() -> Option<String> {
    of(&Root::system(), std::process::id(), own(), false)
}

/// This process's own variable.
fn own() -> Option<String> {
    env::var("SSH_CONNECTION").ok().filter(|text| !text.is_empty())
}

/// The same of a process whose own variable is `own`: else that of its nearest ancestor that has one, else the connection of the server that
/// it descends from, or that leads its login session. Of variables one whose connection lives comes first, and after the server one that has
/// `to_live` for more than a name.
///
/// Environments hold secrets: they are read past whoever records what is looked at.
fn of(root: &Root, process: u32, own: Option<String>, to_live: bool) -> Option<String> {
    let mut reader = Reader::new(root);
    let all = ancestors(process, &mut reader);
    let named = |ancestor: &&Ancestor, names: &[&str]| names.contains(&ancestor.name.as_str());
    let above = all.iter().skip(1);
    // Its own is that of whoever started it, and what it starts may have a newer one.
    let outlives = |ancestor: &&Ancestor| named(ancestor, &MULTIPLEXERS);
    let below = above.clone().take_while(|ancestor| !outlives(ancestor));
    let mut told = own.into_iter().chain(below.filter_map(|ancestor| variable(root, ancestor.id)));
    let nearest = told.next();
    if !to_live && nearest.is_some() {
        return nearest;
    }
    let sockets = sockets(&mut reader).unwrap_or_default();
    // Any program may outlive the connection that it was started from, and hand on its name. One that lives may still be of somebody else
    // than who works here now: it is proof below an SSH server alone, and whoever acts on it looks for one.
    if let Some(living) = nearest.iter().cloned().chain(told).find(|text| lives(text, &sockets)) {
        return Some(living);
    }
    if all.iter().any(|ancestor| outlives(&ancestor)) {
        return nearest;
    }
    let server = above.clone().find(|ancestor| named(ancestor, &SERVERS)).map(|ancestor| ancestor.id);
    let Some(server) = server.or_else(|| leader(&all, &SERVERS, &mut reader)) else { return nearest };
    let served = of_server(server, &sockets, &mut reader);
    let ends: BTreeSet<String> = served
        .into_iter()
        .filter(|socket| !socket.peer.is_loopback())
        .map(|socket| format!("{} {} {} {}", socket.peer, socket.peer_port, socket.local, socket.port))
        .collect();
    // Of several nobody says which it is.
    if ends.len() == 1 { ends.into_iter().next() } else { nearest }
}

/// `SSH_CONNECTION` in a process's environment.
fn variable(root: &Root, process: u32) -> Option<String> {
    let environment = files::read(root.path(format!("/proc/{process}/environ"))).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"SSH_CONNECTION="))?;
    (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    const OWN: &str = "198.51.100.3 49153 198.51.100.2 22";

    /// Adds a process with its parent.
    fn process(tree: &Path, id: u32, name: &str, parent: u32) {
        let directory = tree.join(format!("proc/{id}"));
        fs::create_dir_all(directory.join("fd")).unwrap();
        fs::write(directory.join("stat"), format!("{id} ({name}) S {parent} 0 0 34816 0\n")).unwrap();
    }

    /// `penstock` below a shell of root's, which `sudo` of a user over SSH runs.
    fn machine() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (id, name, parent) in [
            (46, "penstock", 45),
            (45, "bash", 44),
            (44, "sudo", 43),
            (43, "sudo", 42),
            (42, "bash", 41),
            (41, "sshd-session", 40),
            (40, "sshd", 1),
            (1, "systemd", 0),
        ] {
            process(tree.path(), id, name, parent);
        }
        fs::create_dir_all(tree.path().join("proc/net")).unwrap();
        let address = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
        let (here, own) = (address([198, 51, 100, 2]), address([198, 51, 100, 3]));
        let table = format!(
            "  sl  local_address rem_address st\n\
             0: 00000000:0016 00000000:0000 0A 0:0 0:0 0 0 0 900 1\n\
             1: {here}:0016 {own}:C001 01 0:0 0:0 0 0 0 901 1\n"
        );
        fs::write(tree.path().join("proc/net/tcp"), table).unwrap();
        tree
    }

    fn told(tree: &tempfile::TempDir) -> Option<String> {
        of(&Root::at(tree.path()), 46, None, true)
    }

    #[test]
    fn it_is_found_in_the_environment_of_whoever_had_it_last() {
        let tree = machine();
        assert_eq!(told(&tree), None);
        let environment = |id: u32, text: &str| {
            fs::write(tree.path().join(format!("proc/{id}/environ")), text).unwrap();
        };
        environment(45, "HOME=/root\0SUDO_USER=mara\0SSH_CONNECTION=\0");
        environment(42, &format!("SSH_CONNECTION={OWN}\0HOME=/home/mara\0"));
        assert_eq!(told(&tree).as_deref(), Some(OWN));
        // What outlives connections has that of last week, and may have told what it starts a newer one.
        process(tree.path(), 42, "tmux: server", 1);
        assert_eq!(told(&tree), None);
        environment(44, &format!("HOME=/home/mara\0SSH_CONNECTION={OWN}\0"));
        assert_eq!(told(&tree).as_deref(), Some(OWN));
    }

    /// Any program may outlive the connection that it was started from: an editor's server, a daemon of one's own.
    #[test]
    fn a_variable_of_a_connection_that_has_ended_is_not_the_one() {
        let tree = machine();
        let environment = |id: u32, text: &str| {
            fs::write(tree.path().join(format!("proc/{id}/environ")), format!("SSH_CONNECTION={text}\0"))
                .unwrap();
        };
        let own = |own: &str, to_live| of(&Root::at(tree.path()), 46, Some(own.to_owned()), to_live);
        // Last week's, also from the same machine to another of the addresses.
        for ended in [
            "198.51.100.9 49153 198.51.100.2 22",
            "198.51.100.3 49154 198.51.100.2 22",
            "198.51.100.3 49153 203.0.113.2 22",
            "198.51.100.3 49153 198.51.100.2 2222",
        ] {
            // With no other, it is told to who looks by itself.
            environment(44, ended);
            assert_eq!(told(&tree).as_deref(), Some(ended));
            environment(42, OWN);
            assert_eq!(told(&tree).as_deref(), Some(OWN));
            assert_eq!(own(ended, true).as_deref(), Some(OWN));
            // Callers are told apart by what they were told.
            assert_eq!(own(ended, false).as_deref(), Some(ended));
            environment(42, "");
        }
        symlink("socket:[901]", tree.path().join("proc/41/fd/4")).unwrap();
        assert_eq!(told(&tree).as_deref(), Some(OWN));
        assert_eq!(own("198.51.100.9 1 198.51.100.2 22", true).as_deref(), Some(OWN));
    }

    #[test]
    fn it_is_found_by_the_servers_socket() {
        let tree = machine();
        symlink("socket:[901]", tree.path().join("proc/41/fd/4")).unwrap();
        assert_eq!(told(&tree).as_deref(), Some(OWN));
        // A shell in between has ended: the login session knows who leads it.
        process(tree.path(), 45, "bash", 1);
        assert_eq!(told(&tree), None);
        fs::write(tree.path().join("proc/46/sessionid"), "7\n").unwrap();
        fs::create_dir_all(tree.path().join("run/systemd/sessions")).unwrap();
        fs::write(tree.path().join("run/systemd/sessions/7"), "REMOTE=1\nLEADER=41\n").unwrap();
        assert_eq!(told(&tree).as_deref(), Some(OWN));
        // Its number is another process's by now.
        process(tree.path(), 41, "bash", 1);
        assert_eq!(told(&tree), None);
    }
}
