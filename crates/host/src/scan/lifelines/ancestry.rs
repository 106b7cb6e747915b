//! The processes that Penstock descends from, and which of them show that nobody reaches it over the network.

use crate::scan::reader::Reader;

/// Processes between Penstock and the first one of the machine; more are no ancestry.
const DEEPEST: usize = 64;
/// Programs at the start of a session on the machine's own console or screen.
const CONSOLES: [&str; 8] =
    ["login", "agetty", "getty", "gdm-session-wor", "sddm-helper", "lightdm", "xdm", "lxdm"];

/// A process that another one descends from.
pub(super) struct Ancestor {
    pub id: u32,
    pub name: String,
    /// The device number of its controlling terminal; 0 where it has none.
    terminal: u32,
}

/// A process and all that it descends from, itself first.
pub(super) fn ancestors(process: u32, reader: &mut Reader<'_>) -> Vec<Ancestor> {
    let mut found: Vec<Ancestor> = Vec::new();
    let mut next = process;
    while next > 0 && found.len() < DEEPEST && !found.iter().any(|ancestor| ancestor.id == next) {
        let Some(stat) = reader.text(&format!("/proc/{next}/stat")) else { break };
        // The name, in parentheses, may itself hold blanks and parentheses.
        let Some((start, rest)) = stat.rsplit_once(')') else { break };
        let name = start.split_once('(').map_or("", |(_, name)| name);
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|field| field.parse::<i64>().ok());
        // `tmux: server` and `screen` of GNU, which calls itself in capitals when it is detached.
        let name = name.split([':', ' ']).next().unwrap_or_default();
        let name = if name == "SCREEN" { "screen" } else { name };
        found.push(Ancestor {
            id: next,
            name: name.to_owned(),
            terminal: field(4).map_or(0, |terminal| terminal as u32),
        });
        next = field(1).and_then(|parent| u32::try_from(parent).ok()).unwrap_or(0);
    }
    found
}

/// Whether Penstock was started by the machine itself: it descends from its first process, has no terminal, and nobody
/// logged in on its way (`/proc/PID/loginuid`, which `pam_loginuid` sets and children inherit).
pub(super) fn is_service(ancestors: &[Ancestor], reader: &mut Reader<'_>) -> bool {
    let [own, .., last] = ancestors else { return false };
    let nobody = reader.text(&format!("/proc/{}/loginuid", own.id)).as_deref() == Some("4294967295");
    nobody && last.id == 1 && own.terminal == 0
}

/// Whether a program that begins sessions at the machine's own console or screen is among the ancestors; `None` where none is.
pub(super) fn console(ancestors: &[Ancestor]) -> Option<Result<(), String>> {
    ancestors.iter().any(|ancestor| CONSOLES.contains(&ancestor.name.as_str())).then_some(Ok(()))
}
