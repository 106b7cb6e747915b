//! Guests: their order, their share of the machine, a container's root.

use std::collections::HashSet;

use super::Subject;
use crate::{
    ByteSize, Guest, GuestKind, GuestName, Model,
    decode::nearest,
    diagnostic::{Diagnostic, Path, PathTarget},
    document::{GuestDocument, OneOrMany},
    guest::NEEDS_PRIVILEGES,
    names::RESERVED_GUEST_NAME,
    text::plain_path,
};

/// Linux's largest `NR_CPUS`.
pub(super) const MAX_CPUS: u32 = 8192;
/// No machine has as much.
pub(super) const MAX_MEMORY: ByteSize = ByteSize(64 << 40);
/// Less than this, and a kernel with its first process does not start.
const MIN_VM_MEMORY: ByteSize = ByteSize(64 << 20);
/// Less than this, and a container's first process is killed before it does anything.
const MIN_CONTAINER_MEMORY: ByteSize = ByteSize(4 << 20);

/// Names of a cycle that are shown.
const LONGEST_CHAIN: usize = 12;

pub(super) fn check(subject: &mut Subject<'_>) {
    for (name, guest) in &subject.model.guests {
        let path = Path::of(["guests", name.as_str()]);
        if name.as_str() == RESERVED_GUEST_NAME {
            subject.messages.push(Diagnostic {
                place: PathTarget::Key,
                ..Diagnostic::error(
                    path.clone(),
                    "`host` is no guest's name: measurements, `expect:` lines and reports call the machine itself so",
                )
                .with_hint("give the guest another name")
            });
        }
        check_cpus(guest.cpus, &path, subject.messages);
        let least = match guest.kind {
            GuestKind::Vm => MIN_VM_MEMORY,
            GuestKind::Container => MIN_CONTAINER_MEMORY,
        };
        check_memory(guest.memory, least, &path, subject.messages);
        if guest.init.first().is_some_and(String::is_empty) {
            subject
                .messages
                .push(Diagnostic::error(path.join("init"), "the first process has an empty name"));
        }
        if guest.init.iter().any(|word| word.contains(['\n', '\r'])) {
            subject
                .messages
                .push(Diagnostic::error(path.join("init"), "an argument cannot have more than one line"));
        }
        subject.messages.extend(privileged(name, guest, &path));
        check_after(subject.model, name, &path, subject.messages);
    }
    if let Some(cycle) = cycle(subject.model) {
        let mut chain: Vec<&str> = cycle.iter().map(|name| name.as_str()).collect();
        if chain.len() > LONGEST_CHAIN {
            chain.splice(LONGEST_CHAIN / 2..chain.len() - LONGEST_CHAIN / 2, ["..."]);
        }
        let chain = chain.join(" after ");
        let first = cycle[0];
        let position = position(subject.model, first, cycle[1]);
        subject.messages.push(
            Diagnostic::error(
                Path::of(["guests", first.as_str(), "after"]).join(position),
                format!("these guests wait for each other: {chain}"),
            )
            .with_hint("take one of them out of an `after`"),
        );
    }
}

/// What a container opens that has no user namespace.
fn privileged(name: &GuestName, guest: &Guest, path: &Path) -> Option<Diagnostic> {
    let opens = guest.opens()?;
    Some(
        Diagnostic::warning(path.join("privileged"), format!("root in {name} is root of the host: {opens}"))
            .with_hint(format!("leave it out: {NEEDS_PRIVILEGES}")),
    )
}

/// Keys that the guest's kind has no use for.
pub(super) fn check_keys(
    name: &GuestName,
    kind: GuestKind,
    document: &GuestDocument,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    let (other, given, hint): (_, &[(&str, bool)], _) = match kind {
        GuestKind::Vm => (
            "containers",
            &[
                ("root", document.root.is_some()),
                ("init", document.init.is_some()),
                ("privileged", document.privileged.is_some()),
                ("devices", !document.devices.is_empty()),
            ],
            "a VM boots what `boot` says: remove it, or write `kind: container`",
        ),
        GuestKind::Container => (
            "VMs",
            &[
                ("boot", document.boot.is_some()),
                ("command_line", document.command_line.is_some()),
                ("firmware", document.firmware.is_some()),
                ("emulator", document.emulator.is_some()),
                ("locked_memory", document.locked_memory.is_some()),
                ("huge_pages", document.huge_pages.is_some()),
                ("inside", document.inside.is_some()),
                ("ready_within", document.ready_within.is_some()),
            ],
            "remove it, or write `kind: vm`",
        ),
    };
    let is = match kind {
        GuestKind::Vm => "a VM",
        GuestKind::Container => "a container",
    };
    for (key, _) in given.iter().filter(|(_, given)| *given) {
        let text = format!("`{key}` is for {other}, and {name} is {is}");
        messages.push(Diagnostic::error(path.join(key), text).at_key().with_hint(hint));
    }
}

pub(super) fn check_cpus(cpus: Option<u32>, path: &Path, messages: &mut Vec<Diagnostic>) {
    match cpus {
        Some(0) => messages.push(
            Diagnostic::error(path.join("cpus"), "a guest needs at least 1 CPU")
                .with_hint("leave it out for the default"),
        ),
        Some(cpus) if cpus > MAX_CPUS => messages.push(Diagnostic::error(
            path.join("cpus"),
            format!("{cpus} CPUs are more than Linux knows: at most {MAX_CPUS}"),
        )),
        _ => {}
    }
}

pub(super) fn check_memory(
    memory: Option<ByteSize>,
    least: ByteSize,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    let Some(memory) = memory else { return };
    let path = path.join("memory");
    if memory < least {
        messages.push(
            Diagnostic::error(path, format!("{memory} of memory is too little: it needs at least {least}"))
                .with_hint("units are KiB, MiB, GiB and TiB; a number without one counts bytes"),
        );
    } else if memory > MAX_MEMORY {
        messages.push(
            Diagnostic::error(path, format!("{memory} of memory is more than any machine has"))
                .with_hint("units are KiB, MiB, GiB and TiB; a number without one counts bytes"),
        );
    }
}

/// A first process that is none, or whose line would be taken apart otherwise than a shell does.
pub(super) fn check_init(init: &OneOrMany<String>, path: &Path, messages: &mut Vec<Diagnostic>) {
    // Of a list each word is as it stands.
    let Some(line) = init.values.first().filter(|_| !init.list) else { return };
    if line.trim().is_empty() {
        let error = Diagnostic::error(path.clone(), "the first process has an empty name");
        messages.push(error.with_hint("leave it out for an idle process"));
    } else if let Some(word) = line.split_whitespace().find(|word| is_quoted(word)) {
        let text = format!(
            "this line is taken apart at white space, and the quotes or the backslash of {} would be part of the word",
            crate::tree::shown(word)
        );
        let hint = "write a list, like `init: [sh, -c, \"sleep 1; exec sh\"]`";
        messages.push(Diagnostic::error(path.clone(), text).with_hint(hint));
    }
}

/// Whether a quote opens or closes a word, or a backslash would keep it from ending: a shell would take the line apart elsewhere.
fn is_quoted(word: &str) -> bool {
    word.starts_with(['"', '\'']) || word.ends_with(['"', '\'', '\\'])
}

/// A container's root directory must mean the same whoever reads it.
pub(super) fn check_root(root: &str, path: &Path, messages: &mut Vec<Diagnostic>) {
    let shown = crate::tree::shown(root);
    let wrong = if !root.starts_with('/') {
        Some((
            format!("the root {shown} is not an absolute directory"),
            "write a directory from the top, like `/srv/guest`, or `overlay`".to_owned(),
        ))
    } else if root.split('/').any(|part| part == "..") {
        Some((format!("the root {shown} has `..` in it"), "write the directory that is meant".to_owned()))
    } else if plain_path(root) == "/" {
        Some((
            "the host's own root would be written to".to_owned(),
            "`overlay` gives the host's root with a layer of the container's own over it".to_owned(),
        ))
    } else if root.contains(|c: char| c.is_control()) {
        Some((
            format!("the root {shown} has control characters in it"),
            "write the directory that is meant".to_owned(),
        ))
    } else {
        None
    };
    if let Some((text, hint)) = wrong {
        messages.push(Diagnostic::error(path.clone(), text).with_hint(hint));
    }
}

fn check_after(model: &Model, name: &GuestName, path: &Path, messages: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    for (n, earlier) in model.guests[name].after.iter().enumerate() {
        if super::full(messages) {
            break;
        }
        let path = path.join("after").join(n);
        if !model.guests.contains_key(earlier) {
            let hint = match nearest(earlier.as_str(), model.guests.keys().map(GuestName::as_str)) {
                Some(near) => format!("did you mean {near}?"),
                None => "`after` names guests of this file".to_owned(),
            };
            let text = format!("{name} waits for {earlier}, and there is no such guest");
            messages.push(Diagnostic::error(path, text).with_hint(hint));
        } else if !seen.insert(earlier) {
            messages.push(Diagnostic::warning(path, format!("{name} names {earlier} twice")));
        }
    }
}

fn position(model: &Model, guest: &GuestName, earlier: &GuestName) -> usize {
    let after = &model.guests[guest].after;
    after.iter().position(|name| name == earlier).unwrap_or_default()
}

/// One cycle of guests, each of which waits for the next; the first stands at the end again.
fn cycle(model: &Model) -> Option<Vec<&GuestName>> {
    let mut done: HashSet<&GuestName> = HashSet::new();
    for start in model.guests.keys() {
        // Depth first with a stack of its own, for `after` may be as long as the file. Each step is a guest and the
        // position in its `after` to look at next.
        let mut way: Vec<(&GuestName, usize)> = vec![(start, 0)];
        let mut on_way: HashSet<&GuestName> = HashSet::from([start]);
        if done.contains(start) {
            continue;
        }
        while let Some((guest, at)) = way.last_mut() {
            let Some(next) = model.guests.get(*guest).and_then(|guest| guest.after.get(*at)) else {
                on_way.remove(*guest);
                done.insert(*guest);
                way.pop();
                continue;
            };
            *at += 1;
            if on_way.contains(next) {
                let first = way.iter().position(|(name, _)| *name == next)?;
                let mut names: Vec<&GuestName> = way[first..].iter().map(|(name, _)| *name).collect();
                names.push(next);
                return Some(names);
            }
            if !done.contains(next) && model.guests.contains_key(next) {
                on_way.insert(next);
                way.push((next, 0));
            }
        }
    }
    None
}
