//! From which SSH connection this very process was started, as one line that can be handed on to whoever has no such ancestors.
//!
//! `sudo` and `su` keep `SSH_CONNECTION` from what they run, and a service descends from nobody who had it.

use std::{collections::BTreeSet, env};

use super::{
    ancestry::{Ancestor, ancestors, leader},
    session::{MULTIPLEXERS, SERVERS, of_server},
    sockets::sockets,
};
use crate::{Root, files, scan::reader::Reader};

/// What `SSH_CONNECTION` (ssh(1), ENVIRONMENT) is, or would be had nobody kept it from this process; `None` where it was started in another
/// way, and where that cannot be told: below a program that outlives connections any of those may be the one, unless a variable says it.
pub fn ssh_connection() -> Option<String> {
    let own = env::var("SSH_CONNECTION").ok().filter(|text| !text.is_empty());
    own.or_else(|| of(&Root::system(), std::process::id()))
}

/// The same of a process that has no such variable: its nearest ancestor's that has one, else the connection of the server that it descends
/// from, or that leads its login session.
///
/// Environments hold secrets: they are read past whoever records what is looked at.
fn of(root: &Root, process: u32) -> Option<String> {
    let mut reader = Reader::new(root);
    let all = ancestors(process, &mut reader);
    let named = |ancestor: &&Ancestor, names: &[&str]| names.contains(&ancestor.name.as_str());
    let above = all.iter().skip(1);
    // Its own is that of whoever started it, and what it starts may have a newer one.
    let outlives = |ancestor: &&Ancestor| named(ancestor, &MULTIPLEXERS);
    let below = above.clone().take_while(|ancestor| !outlives(ancestor));
    if let Some(told) = below.clone().find_map(|ancestor| variable(root, ancestor.id)) {
        return Some(told);
    }
    if all.iter().any(|ancestor| outlives(&ancestor)) {
        return None;
    }
    let server = above.clone().find(|ancestor| named(ancestor, &SERVERS)).map(|ancestor| ancestor.id);
    let server = server.or_else(|| leader(&all, &SERVERS, &mut reader))?;
    let sockets = sockets(&mut reader)?;
    let served = of_server(server, &sockets, &mut reader);
    let ends: BTreeSet<String> = served
        .into_iter()
        .filter(|socket| !socket.peer.is_loopback())
        .map(|socket| format!("{} {} {} {}", socket.peer, socket.peer_port, socket.local, socket.port))
        .collect();
    // Of several nobody says which it is.
    if ends.len() == 1 { ends.into_iter().next() } else { None }
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
        of(&Root::at(tree.path()), 46)
    }

    #[test]
    fn it_is_found_in_the_environment_of_whoever_had_it_last() {
        let tree = machine();
        assert_eq!(told(&tree), None);
        let environment = |id: u32, text: &str| {
            fs::write(tree.path().join(format!("proc/{id}/environ")), text).unwrap();
        };
        environment(45, "HOME=/root\0SUDO_USER=mara\0SSH_CONNECTION=\0");
        environment(42, "SSH_CONNECTION=198.51.100.9 1 198.51.100.2 22\0HOME=/home/mara\0");
        assert_eq!(told(&tree).as_deref(), Some("198.51.100.9 1 198.51.100.2 22"));
        environment(44, "HOME=/home/mara\0SSH_CONNECTION=198.51.100.3 49153 198.51.100.2 22\0");
        assert_eq!(told(&tree).as_deref(), Some(OWN));
        // What outlives connections has that of last week, and may have told what it starts a newer one.
        process(tree.path(), 42, "tmux: server", 1);
        assert_eq!(told(&tree).as_deref(), Some(OWN));
        environment(44, "HOME=/home/mara\0");
        assert_eq!(told(&tree), None);
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
