//! What `SSH_CONNECTION` proves whose connection has ended, or is not that of whoever works here now.

use penstock_model::inventory::LifelineSort;

use crate::{OWN, machine::NETWORK, routes, session, ssh, unknown};

/// A server of an editor's was started over a connection last week, and from another one today's work in it is done.
#[test]
fn the_variable_of_a_connection_that_has_ended_proves_nothing() {
    let editor = "/proc/44/stat = 44 (penstock) S 43 0 0 34816 0\n/proc/43/stat = 43 (bash) S 42 0 0 34816 0\n\
         /proc/42/stat = 42 (node) S 1 0 0 0 0\n/proc/1/stat = 1 (systemd) S 0 0 0 0 0\n";
    let may_be = OWN.replace("that penstock was started", "that penstock may have been started");
    for ended in ["198.51.100.77 49153 198.51.100.2 22", "203.0.113.9 49999 198.51.100.2 22"] {
        let (lines, _) = ssh(&session(editor), Some(ended));
        assert!(lines.contains(&may_be), "the one that lives is not kept: {lines:?}");
        assert!(lines.iter().all(|line| line.contains("may have been started from")), "{lines:?}");
    }
    // One that lives is it below an SSH server alone: to whoever works in the editor now, and to a service that it was handed to from who
    // knows where, as a guard is, it may be of somebody who has gone home.
    let living = Some("198.51.100.3 49153 198.51.100.2 22");
    let service = "/proc/44/stat = 44 (penstock) S 1 0 0 0 0\n/proc/1/stat = 1 (systemd) S 0 0 0 0 0\n";
    for orphan in [editor, service] {
        let (lines, found) = ssh(&session(orphan), living);
        assert!(lines.len() == 2 && lines.contains(&OWN.to_owned()), "{lines:?}");
        assert!(!unknown(&found, LifelineSort::Ssh, ""), "{found:#?}");
    }
    let served = "/proc/44/stat = 44 (penstock) S 43 0 0 34816 0\n/proc/43/stat = 43 (sudo) S 41 0 0 34816 0\n\
         /proc/41/stat = 41 (sshd-session) S 40 0 0 0 0\n/proc/40/stat = 40 (sshd) S 1 0 0 0 0\n";
    assert_eq!(ssh(&session(served), living).0, [OWN]);
    // With none that lives nobody knows over what the operator works.
    let none = format!("{NETWORK}{}{editor}/proc/net/tcp = sl\n", routes("eth0"));
    let (lines, found) = ssh(&none, Some("198.51.100.77 49153 198.51.100.2 22"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(unknown(&found, LifelineSort::Ssh, "no connection to port 22 was found"), "{found:#?}");
    // That others live tells nothing of whoever had it.
    let (_, found) = ssh(&session(editor), Some("198.51.100.77 49153 198.51.100.2 22"));
    assert!(unknown(&found, LifelineSort::Ssh, "no other one from 198.51.100.77 was found"), "{found:#?}");
    // Nor is it said that a connection has ended where none can be seen.
    let unseen = format!("{NETWORK}{}{editor}", routes("eth0"));
    let (lines, found) = ssh(&unseen, living);
    assert_eq!(lines, [may_be]);
    let words = "whether the connection that SSH_CONNECTION names lives could not be seen, and /proc/net/tcp";
    assert!(unknown(&found, LifelineSort::Ssh, words), "{found:#?}");
}

/// Whoever comes back from the same address has another port there, and all else is the same.
#[test]
fn who_has_come_back_from_the_same_address_is_found() {
    let above = |program: &str| {
        format!(
            "/proc/44/stat = 44 (penstock) S 43 0 0 34816 0\n/proc/43/stat = 43 ({program}) S 1 0 0 0 0\n\
             /proc/1/stat = 1 (systemd) S 0 0 0 0 0\n"
        )
    };
    let may_be = OWN.replace("that penstock was started", "that penstock may have been started");
    for program in ["tmux: server", "node"] {
        let address = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
        let (here, own) = (address([198, 51, 100, 2]), address([198, 51, 100, 3]));
        let only = format!(
            "{NETWORK}{}{}/proc/net/tcp <<END\n  sl  local_address rem_address st\n\
             0: {here}:0016 {own}:C001 01 0:0 0:0 0 0 0 901 1\nEND\n",
            routes("eth0"),
            above(program)
        );
        let (lines, found) = ssh(&only, Some("198.51.100.3 49999 198.51.100.2 22"));
        assert_eq!(lines, [may_be.as_str()], "{program}");
        assert!(!unknown(&found, LifelineSort::Ssh, ""), "{program}: {found:#?}");
    }
}
