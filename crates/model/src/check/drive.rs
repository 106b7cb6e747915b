//! NVMe drives, and the VFs of drives that guests own.

use std::collections::{BTreeSet, HashMap};

use indexmap::IndexMap;

use super::Subject;
use crate::{
    Drive, DriveName, DriveVfName, GuestDrive, GuestKind, GuestName, VfCount, VfIndex,
    decode::nearest,
    diagnostic::{Diagnostic, Path},
    document::{DriveDocument, GuestDocument, GuestDriveEntry},
};

/// The VF that stands for all of them in a command (NVM Express Base Specification 2.0, 3.2.1.2).
const EVERY_NAMESPACE: u32 = u32::MAX;

/// The drives, with as many VFs as guests use of those that do not say.
pub(super) fn build(
    documents: IndexMap<DriveName, DriveDocument>,
    guests: &IndexMap<GuestName, GuestDocument>,
) -> IndexMap<DriveName, Drive> {
    let mut highest: HashMap<&DriveName, u16> = HashMap::new();
    for name in guests.values().flat_map(|guest| &guest.drives).filter_map(GuestDriveEntry::name) {
        let most = highest.entry(&name.drive).or_default();
        *most = name.vf.get().max(*most);
    }
    let build = |(name, document): (DriveName, DriveDocument)| {
        let used = highest.get(&name).map_or(0, |index| index + 1);
        let DriveDocument { matching, vfs, queues } = document;
        (name, Drive { matching, vfs: vfs.map_or(used, VfCount::get), queues })
    };
    documents.into_iter().map(build).collect()
}

/// The VFs of drives that one guest owns; where each stands is added to `places`.
pub(super) fn build_guest(
    entries: Vec<GuestDriveEntry>,
    path: &Path,
    drives: &IndexMap<DriveName, Drive>,
    places: &mut Vec<Path>,
    messages: &mut Vec<Diagnostic>,
) -> Vec<GuestDrive> {
    let mut owned = Vec::new();
    for (position, entry) in entries.into_iter().enumerate() {
        let path = path.join("drives").join(position);
        let (name, namespaces, queues) = match entry {
            GuestDriveEntry::Spoiled => continue,
            GuestDriveEntry::Name(name) => (name, Vec::new(), None),
            GuestDriveEntry::Settings(document) => {
                let Some(name) = document.vf else { continue };
                (name, document.namespaces, document.queues)
            }
        };
        check_numbers(&path, &namespaces, queues, messages);
        let of_drive = drives.get(&name.drive).and_then(|drive| drive.queues);
        owned.push(GuestDrive {
            namespaces: namespaces.into_iter().collect(),
            queues: queues.or(of_drive),
            name,
        });
        places.push(path);
    }
    owned
}

fn check_numbers(path: &Path, namespaces: &[u32], queues: Option<u16>, messages: &mut Vec<Diagnostic>) {
    check_queues(&path.join("queues"), queues, messages);
    let mut seen = BTreeSet::new();
    for (position, namespace) in namespaces.iter().enumerate() {
        let place = path.join("namespaces").join(position);
        if [0, EVERY_NAMESPACE].contains(namespace) {
            messages.push(
                Diagnostic::error(
                    place,
                    format!("{namespace} identifies no namespace: they are counted from 1"),
                )
                .with_hint("`penstock scan` lists a drive's namespaces"),
            );
        } else if !seen.insert(namespace) {
            messages.push(Diagnostic::error(place, format!("namespace {namespace} is listed twice")));
        }
    }
}

fn check_queues(place: &Path, queues: Option<u16>, messages: &mut Vec<Diagnostic>) {
    // One more is for administration, and its number is one of 16 bits.
    if let Some(queues) = queues.filter(|queues| !(1..u16::MAX).contains(queues)) {
        messages.push(Diagnostic::error(
            place.clone(),
            format!("a VF has 1 to {} pairs of I/O queues, not {queues}", u16::MAX - 1),
        ));
    }
}

/// Drives, and the VFs of them that guests own, which stand at `places`.
pub(super) fn check(places: &[Path], subject: &mut Subject<'_>) {
    check_drives(subject);
    let mut places = places.iter();
    let model = subject.model;
    let messages = &mut *subject.messages;
    let mut first: HashMap<&DriveVfName, (&GuestName, Path)> = HashMap::new();
    let mut given: HashMap<(&DriveName, u32), (&DriveVfName, Path)> = HashMap::new();
    for (guest, found) in &model.guests {
        let path = Path::of(["guests", guest.as_str(), "drives"]);
        if found.kind == GuestKind::Container && !found.drives.is_empty() {
            messages.push(
                Diagnostic::error(
                    path.clone(),
                    "a VF of a drive goes to a VM: a container has no driver of its own for it",
                )
                .at_key()
                .with_hint(
                    "give the container the block device of a namespace, like `devices: [/dev/nvme0n2]`",
                ),
            );
        }
        for (owned, place) in found.drives.iter().zip(places.by_ref()) {
            if super::full(messages) {
                return;
            }
            let name = &owned.name;
            match model.drives.get(&name.drive) {
                None => messages.push(unknown(name, place.clone(), model.drives.keys())),
                Some(drive) if name.vf.get() >= drive.vfs => {
                    messages.push(Diagnostic::error(
                        place.clone(),
                        format!(
                            "there is no {name}: {} has {}",
                            name.drive,
                            crate::text::counted(usize::from(drive.vfs), "VF")
                        ),
                    ));
                }
                Some(_) => {}
            }
            if let Some((other, there)) = first.get(name) {
                messages.push(
                    Diagnostic::error(place.clone(), format!("{name} is given to {other} already"))
                        .with_related(there.clone(), "first given here"),
                );
            } else {
                first.insert(name, (guest, place.clone()));
            }
            for namespace in &owned.namespaces {
                let key = (&name.drive, *namespace);
                if let Some((other, there)) = given.get(&key) {
                    let text = format!(
                        "namespace {namespace} of {} is given to {other} already: two guests that write to one namespace destroy each other's data",
                        name.drive
                    );
                    messages.push(
                        Diagnostic::error(place.clone(), text)
                            .with_related(there.clone(), "first given here")
                            .with_hint("give each VF namespaces of its own"),
                    );
                } else {
                    given.insert(key, (name, place.clone()));
                }
            }
        }
    }
}

fn unknown<'a>(
    name: &DriveVfName,
    place: Path,
    known: impl Iterator<Item = &'a DriveName> + Clone,
) -> Diagnostic {
    let drive = &name.drive;
    let hint = match nearest(drive.as_str(), known.clone().map(DriveName::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None if known.clone().next().is_none() => {
            format!(
                "name the drive, like `drives: {{{drive}: {{match: {{serial: ...}}}}}}`; `penstock scan` lists drives"
            )
        }
        None => format!("`drives` has {}", known.map(DriveName::as_str).collect::<Vec<_>>().join(", ")),
    };
    Diagnostic::error(place, format!("there is no drive called {drive}")).with_hint(hint)
}

fn check_drives(subject: &mut Subject<'_>) {
    let model = subject.model;
    let messages = &mut *subject.messages;
    let mut first = HashMap::new();
    for (name, drive) in &model.drives {
        if super::full(messages) {
            return;
        }
        let path = Path::of(["drives", name.as_str()]);
        if model.nics.contains_key(name.as_str()) {
            let related = Path::of(["nics", name.as_str()]);
            messages.push(
                Diagnostic::error(
                    path.clone(),
                    format!("a NIC is called {name} as well, so that {name}#0 would be two functions"),
                )
                .at_key()
                .with_related(related, "the NIC"),
            );
        }
        if drive.vfs > VfIndex::MAX + 1 {
            messages.push(Diagnostic::error(
                path.join("vfs"),
                format!("{} VFs are more than any drive has: at most {}", drive.vfs, VfIndex::MAX + 1),
            ));
        }
        check_queues(&path.join("queues"), drive.queues, messages);
        for (key, text) in [("serial", &drive.matching.serial), ("model", &drive.matching.model)] {
            let unusable = |text: &String| text.trim().is_empty() || text.contains(char::is_control);
            if text.as_ref().is_some_and(unusable) {
                messages.push(
                    Diagnostic::error(
                        path.join("match").join(key),
                        format!("no drive has this {key} number"),
                    )
                    .with_hint("`penstock scan` shows each drive's"),
                );
            }
        }
        if drive.matching.is_exact()
            && let Some(other) = first.insert(&drive.matching, name)
        {
            let text = format!(
                "{other} and {name} match the same device: both have {}",
                drive.matching.words().join(", ")
            );
            let related = Path::of(["drives", other.as_str(), "match"]);
            messages
                .push(Diagnostic::error(path.join("match"), text).with_related(related, "first given here"));
        }
    }
}
