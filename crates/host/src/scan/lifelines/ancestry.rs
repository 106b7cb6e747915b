//! The processes that Penstock descends from, and which of them show that nobody reaches it over the network.

use crate::scan::reader::Reader;

/// Processes between Penstock and the first one of the machine; more are no ancestry.
const DEEPEST: usize = 64;
/// Programs at the start of a session on a terminal.
const LOGINS: [&str; 3] = ["login", "agetty", "getty"];
/// Programs at the start of a session on a screen.
const SCREENS: [&str; 5] = ["gdm-session-wor", "sddm-helper", "lightdm", "xdm", "lxdm"];
/// The major numbers of pseudo-terminals (`include/uapi/linux/major.h`, `UNIX98_PTY_SLAVE_MAJOR`): what is at their other end is a
/// program.
const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;

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

/// Whether the session was begun at the machine's own console or screen; `None` where no program that does so is among the
/// ancestors. An error is in words why what looks so may be served over the network, as `ttyd login` is.
pub(super) fn console(ancestors: &[Ancestor], reader: &mut Reader<'_>) -> Option<Result<(), String>> {
    let is = |names: &[&str]| ancestors.iter().position(|ancestor| names.contains(&ancestor.name.as_str()));
    let (at, screen) = match (is(&LOGINS), is(&SCREENS)) {
        (Some(at), _) => (at, false),
        (None, Some(at)) => (at, true),
        (None, None) => return None,
    };
    let name = &ancestors[at].name;
    if !screen {
        // It gives its terminal away to the shell that it starts (`login-utils/login.c`, `fork_session`).
        let below = at.checked_sub(1).and_then(|below| ancestors.get(below));
        let own = [Some(&ancestors[at]), below].into_iter().flatten().map(|ancestor| ancestor.terminal);
        let terminal = own.into_iter().find(|terminal| *terminal != 0).unwrap_or(0);
        // Bits 8 to 19 of a device number are the major one (`include/linux/kdev_t.h`, `new_encode_dev`).
        if terminal == 0 {
            return Some(Err(format!("{name} is on no terminal, so who it serves is not known")));
        }
        if PSEUDO_TERMINALS.contains(&(terminal >> 8 & 0xfff)) {
            return Some(Err(format!(
                "{name} is on a pseudo-terminal, which a program may serve over the network"
            )));
        }
    }
    Some(match session(ancestors, reader) {
        Some(session) if session.lines().any(|line| line == "REMOTE=1") => {
            Err(format!("systemd-logind says that the session of {name} comes from another machine"))
        }
        // A serial line has no seat.
        Some(session)
            if screen && !session.lines().any(|line| line.starts_with("SEAT=") && line != "SEAT=") =>
        {
            Err(format!("systemd-logind says that the session of {name} is at no screen of this machine"))
        }
        _ => Ok(()),
    })
}

/// The process that leads the login session, if it is still one of these programs: it may not be an ancestor, where one in between has
/// ended.
pub(super) fn leader(ancestors: &[Ancestor], programs: &[&str], reader: &mut Reader<'_>) -> Option<u32> {
    let session = session(ancestors, reader)?;
    let leader = session.lines().find_map(|line| line.strip_prefix("LEADER="))?.parse().ok()?;
    let is_one = |leader: &Ancestor| programs.contains(&leader.name.as_str());
    self::ancestors(leader, reader).first().filter(|leader| is_one(leader)).map(|leader| leader.id)
}

/// What systemd-logind knows of the session (`src/login/logind-session.c`, `session_save`), where it runs.
fn session(ancestors: &[Ancestor], reader: &mut Reader<'_>) -> Option<String> {
    let own = ancestors.first()?.id;
    let number: u32 = reader.text(&format!("/proc/{own}/sessionid"))?.parse().ok()?;
    reader.large_text(&format!("/run/systemd/sessions/{number}"))
}
