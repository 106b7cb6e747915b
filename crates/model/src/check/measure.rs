//! What is measured beside the machine's paths, and what is to hold of it.

mod expect;
mod latency;

use std::collections::HashMap;

use indexmap::IndexMap;

use super::Subject;
use crate::{
    ByteSize, Guest, GuestKind, GuestName, Inside, Measure, Model, StorageTarget,
    decode::nearest,
    diagnostic::{Diagnostic, Path},
    document::{MeasureDocument, StorageEntry},
    text::plain_path,
    tree::shown,
};

pub(super) use expect::{PlacedLine, build as build_expect, claims, lines};

/// How much of a target is read and written unless the file says otherwise.
const SIZE: ByteSize = ByteSize(64 << 20);
/// The largest block that is read or written at once.
const BLOCK: ByteSize = ByteSize(128 << 10);

/// A storage target with its place in the file.
pub(super) struct Placed {
    target: StorageTarget,
    path: Path,
}

/// The targets that can be understood; what is wrong with them by themselves is told.
pub(super) fn build(document: MeasureDocument, messages: &mut Vec<Diagnostic>) -> (Measure, Vec<Placed>) {
    let mut placed = Vec::new();
    let path = Path::of(["measure", "storage"]);
    for (position, entry) in document.storage.into_iter().enumerate() {
        let StorageEntry::Settings(document) = entry else { continue };
        let (Some(guest), Some(inside)) = (document.guest, document.path) else { continue };
        let path = path.join(position);
        let size = document.size.unwrap_or(SIZE);
        if super::full(messages) {
            break;
        }
        let sound = [
            check_path(&inside, "the guest", path.join("path"), messages),
            document
                .host
                .as_ref()
                .is_none_or(|host| check_path(host, "the host", path.join("host"), messages)),
            check_size(size, path.join("size"), messages),
        ];
        if sound.contains(&false) {
            continue;
        }
        if let Some(host) = document.host.as_ref().filter(|host| is_device(host) != is_device(&inside)) {
            let what = |path: &str| if is_device(path) { "a device" } else { "a directory" };
            let text = format!(
                "{} is {} and {} is {}: they cannot be compared",
                shown(&inside),
                what(&inside),
                shown(host),
                what(host)
            );
            let hint = "what is below /dev is measured as a device, everything else as a directory";
            messages.push(Diagnostic::error(path.join("host"), text).with_hint(hint));
            continue;
        }
        let write = document.write.unwrap_or(!is_device(&inside));
        let target = StorageTarget { guest, path: inside, host: document.host, size, write };
        placed.push(Placed { target, path });
    }
    let storage = placed.iter().map(|placed| placed.target.clone()).collect();
    (Measure { storage }, placed)
}

/// Whether it is measured as a device.
fn is_device(path: &str) -> bool {
    plain_path(path).starts_with("/dev/")
}

fn check_path(text: &str, place: &str, path: Path, messages: &mut Vec<Diagnostic>) -> bool {
    let why = if !text.starts_with('/') {
        format!("{} does not start with `/`", shown(text))
    } else if text.split('/').any(|part| part == "..") {
        format!("{} has a `..` in it", shown(text))
    } else if text.contains(char::is_control) {
        format!("{} has a control character in it", shown(text))
    } else if plain_path(text) == "/dev" {
        format!("{} holds devices, and is none", shown(text))
    } else {
        return true;
    };
    let hint = format!(
        "write the path that it has on {place} from the top: a directory like /var/tmp, or a device like /dev/nvme0n1"
    );
    let hint =
        if place == "the guest" { hint.replace("has on the guest", "has inside the guest") } else { hint };
    messages.push(Diagnostic::error(path, why).with_hint(hint));
    false
}

fn check_size(size: ByteSize, path: Path, messages: &mut Vec<Diagnostic>) -> bool {
    let why = match size {
        ByteSize(0) => "with a size of 0 there is nothing to read".to_owned(),
        size if !size.0.is_multiple_of(BLOCK.0) => {
            format!("{size} is no multiple of {BLOCK}, the largest block that is read and written")
        }
        _ => return true,
    };
    let hint = format!("leave it out for {SIZE}, or write a multiple of {BLOCK}, like 256MiB");
    messages.push(Diagnostic::error(path, why).with_hint(hint));
    false
}

/// Targets and lines against the rest of the model.
pub(super) fn check(targets: &[Placed], lines: &[PlacedLine], subject: &mut Subject<'_>) {
    check_targets(targets, subject);
    expect::check(lines, subject);
}

fn check_targets(placed: &[Placed], subject: &mut Subject<'_>) {
    let mut first: HashMap<(&GuestName, String), &Path> = HashMap::new();
    for Placed { target, path } in placed {
        if super::full(subject.messages) {
            return;
        }
        let Some(guest) = subject.model.guests.get(&target.guest) else {
            subject.messages.push(unknown_guest(subject.model, &target.guest, path.join("guest")));
            continue;
        };
        match first.get(&(&target.guest, plain_path(&target.path))) {
            Some(other) => {
                let text = format!("{} is measured in {} twice", shown(&target.path), target.guest);
                subject.messages.push(
                    Diagnostic::error(path.join("path"), text)
                        .with_related(other.join("path"), "first given here")
                        .with_hint("remove one of them"),
                );
                continue;
            }
            None => {
                first.insert((&target.guest, plain_path(&target.path)), path);
            }
        }
        match guest.kind {
            GuestKind::Container => check_device(guest, target, path, subject.messages),
            GuestKind::Vm => check_vm(guest, target, path, subject.messages),
        }
    }
}

/// A container sees the devices that it is given, and may do with them what it is allowed to.
fn check_device(guest: &Guest, target: &StorageTarget, path: &Path, messages: &mut Vec<Diagnostic>) {
    if !is_device(&target.path) {
        return;
    }
    let name = &target.guest;
    let inside = plain_path(&target.path);
    match guest.devices.iter().find(|device| plain_path(&device.inside) == inside) {
        None => {
            let hint = match nearest(&inside, guest.devices.iter().map(|device| device.inside.as_str())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("give it to the container: add it to the `devices` of {name}"),
            };
            let text = format!("{name} has no device {}", shown(&target.path));
            messages.push(Diagnostic::error(path.join("path"), text).with_hint(hint));
        }
        Some(device) if target.write && !device.write => messages.push(
            Diagnostic::error(path.join("write"), format!("{name} may only read {}", shown(&target.path)))
                .with_related(Path::of(["guests", name.as_str(), "devices"]), "given here with `write: off`")
                .with_hint("measure it with `write: off`, or let the container write to it"),
        ),
        Some(_) => {}
    }
}

fn check_vm(guest: &Guest, target: &StorageTarget, path: &Path, messages: &mut Vec<Diagnostic>) {
    let name = &target.guest;
    if guest.vm.inside != Inside::Agent {
        messages.push(
            Diagnostic::error(path.join("guest"), format!("nothing can be run in {name} that would measure"))
                .with_related(Path::of(["guests", name.as_str(), "inside"]), "how it is looked into")
                .with_hint("that takes `inside: agent`"),
        );
    } else if target.host.is_none() {
        let text =
            format!("{} of {name} is measured alone, with nothing to compare it with", shown(&target.path));
        messages.push(Diagnostic::warning(path.join("path"), text).with_hint(
            "`host` says which device or directory of the host is the same, when it can be reached there",
        ));
    }
}

/// The message for a guest that is not there.
fn unknown_guest(model: &Model, name: &GuestName, path: Path) -> Diagnostic {
    Diagnostic::error(path, format!("there is no guest {name}")).with_hint(other_guests(&model.guests, name))
}

fn other_guests(guests: &IndexMap<GuestName, Guest>, name: &GuestName) -> String {
    match nearest(name.as_str(), guests.keys().map(GuestName::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => "guests are the keys of `guests`".to_owned(),
    }
}
