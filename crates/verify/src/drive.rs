//! NVMe drives, and their VFs from the host and from inside the VMs that own them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use indexmap::IndexMap;
use penstock_host::{Command, Place, chain};
use penstock_model::{
    Bdf, ByteSize, Drive, DriveName, Guest, GuestDrive, GuestName, Inventory, Model, Outcome, Verdict,
    VfIndex,
    inventory::{NvmeController, NvmeVirtualization, SecondaryController},
    text::one_line,
    verdict::{Subject, Vantage},
};

use super::{
    GuestPlace,
    writer::{Hidden, Unobserved, VerdictSheet, VerdictWriter, on},
};

/// Lists each NVMe controller with its identifier, state and serial number, and then its namespaces with identifier and sectors of
/// 512 bytes: for a namespace with several paths that of this one (`drivers/nvme/host/sysfs.c`).
const LIST: &str = r#"for c in /sys/class/nvme/nvme*; do [ -r $c/cntlid ] || continue
echo "controller $(cat $c/cntlid) $(cat $c/state) $(cat $c/serial)"
for n in $c/nvme*n*; do [ -r $n/nsid ] && echo "namespace $(cat $n/nsid) $(cat $n/size)"; done; done; true"#;
/// A guest that does not answer within this is unknown.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The unit of `size` in sysfs, whatever a block of the device has (`Documentation/ABI/stable/sysfs-block`).
const SECTOR: u64 = 512;

/// Compares the drives of `model` with a machine, each at the address that `found` has for it, and what the VMs see that own VFs of
/// them. A guest that is missing in `places` was not looked into.
pub fn drives(
    model: &Model,
    inventory: &Inventory,
    found: &IndexMap<DriveName, Bdf>,
    places: &BTreeMap<GuestName, GuestPlace>,
) -> Vec<Verdict> {
    let mut sheet = VerdictSheet::default();
    let at = |name: &DriveName| inventory.drive(*found.get(name)?);
    for (name, drive) in &model.drives {
        whole(name, drive, at(name), &mut sheet);
    }
    for (guest, wanted) in model.guests.iter().filter(|(_, guest)| !guest.drives.is_empty()) {
        let inside = look(places.get(guest));
        for owned in &wanted.drives {
            let controller = at(&owned.name.drive);
            on_host(owned, controller, &mut sheet);
            within(guest, wanted, owned, controller, &inside, &mut sheet);
        }
    }
    sheet.verdicts
}

/// The drive, and how many VFs it has.
fn whole(name: &DriveName, drive: &Drive, found: Option<&NvmeController>, sheet: &mut VerdictSheet) {
    let nothing = BTreeSet::new();
    let mut page = sheet.page(Subject::Drive(name.clone()), Vantage::Host, &nothing);
    let words = drive.matching.words();
    let wanted = match words.is_empty() {
        true => "an NVMe drive".to_owned(),
        false => format!("an NVMe drive with {}", words.join(", ")),
    };
    let Some(found) = found else {
        return page.put("match", wanted, "there is no such drive", Outcome::Fail);
    };
    let known = |text: &Option<String>| text.as_deref().map_or("unknown", str::trim).to_owned();
    let seen =
        format!("{} with serial number {}, model {}", found.bdf, known(&found.serial), known(&found.model));
    let right = drive.matching.holds_for(found);
    page.put("match", wanted, seen, if right { Outcome::Pass } else { Outcome::Fail });
    match &found.sriov {
        None if drive.vfs > 0 => page.put("vfs", drive.vfs, "the drive has no SR-IOV", Outcome::Fail),
        None => {}
        Some(sriov) => {
            page.compare("vfs", drive.vfs, Ok(sriov.num_vfs));
            if drive.vfs > 0 {
                page.compare("autoprobe", "off", Ok(on(sriov.autoprobe)));
            }
        }
    }
}

/// The VF's controller, as a drive tells of it.
fn controller(
    found: Option<&NvmeController>,
    vf: VfIndex,
) -> Result<(&NvmeVirtualization, &SecondaryController), Unobserved> {
    let found = found.ok_or_else(|| Unobserved::Absent("there is no such drive".to_owned()))?;
    let virtualization = found.virtualization.as_ref().ok_or_else(|| {
        Unobserved::Unknown(format!("the drive {} was not asked, which root alone may do", found.bdf))
    })?;
    let controller = virtualization
        .of_vf(vf)
        .ok_or_else(|| Unobserved::Absent(format!("the drive {} has no controller for it", found.bdf)))?;
    Ok((virtualization, controller))
}

/// The VF as the host sees it, and as the drive tells of it.
fn on_host(owned: &GuestDrive, found: Option<&NvmeController>, sheet: &mut VerdictSheet) {
    let nothing = BTreeSet::new();
    let vf = owned.name.vf;
    let mut page = sheet.page(Subject::DriveVf(owned.name.clone()), Vantage::Host, &nothing);
    let seat = found.and_then(|found| found.sriov.as_ref()?.vfs.iter().find(|seat| seat.index == vf));
    match seat.and_then(|seat| seat.present.as_ref()) {
        None => page.put("driver", "vfio-pci", "there is no such VF", Outcome::Fail),
        Some(present) => {
            let seen = present.driver.as_deref().unwrap_or("none");
            page.compare("driver", "vfio-pci", Ok(seen));
        }
    }
    let told = controller(found, vf);
    let of = |told: &Result<(&NvmeVirtualization, &SecondaryController), Unobserved>| {
        told.as_ref().map(|(_, controller)| **controller).map_err(Clone::clone)
    };
    page.compare(
        "controller",
        "on line",
        of(&told).map(|seen| if seen.online { "on line" } else { "off line" }),
    );
    if let Some(queues) = owned.queues {
        // One pair is for administration.
        page.compare("queues", queues, of(&told).map(|seen| seen.queues.saturating_sub(1)));
    }
    if !owned.namespaces.is_empty() {
        let seen = told.as_ref().map_err(Clone::clone).map(|(virtualization, controller)| {
            let all = virtualization.namespaces.iter();
            let has = all.filter(|(_, found)| found.controllers.contains(&controller.controller));
            listed(has.map(|(namespace, _)| *namespace))
        });
        page.compare("namespaces", listed(owned.namespaces.iter().copied()), seen);
    }
}

fn listed(namespaces: impl Iterator<Item = u32>) -> String {
    let all: Vec<String> = namespaces.map(|namespace| namespace.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// A controller as a guest sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SeenController {
    identifier: u16,
    state: String,
    serial: String,
    /// The namespaces, with their sizes.
    namespaces: BTreeMap<u32, ByteSize>,
}

/// The NVMe controllers inside a guest; as an error, why they were not seen.
fn look(place: Option<&GuestPlace>) -> Result<Vec<SeenController>, Unobserved> {
    match place {
        Some(GuestPlace::Running(place)) => list(&**place).map_err(Unobserved::Unknown),
        Some(GuestPlace::NotRunning(why)) => {
            Err(Unobserved::Absent(format!("the guest does not run: {why}")))
        }
        Some(GuestPlace::Closed(why) | GuestPlace::Unseen(why)) => Err(Unobserved::Unknown(why.clone())),
        None => Err(Unobserved::Unknown("not observed".to_owned())),
    }
}

fn list(place: &dyn Place) -> Result<Vec<SeenController>, String> {
    let output = place.run(&Command::new("sh").args(["-c", LIST]).deadline(TIMEOUT));
    let output = output.map_err(|error| chain(&error))?;
    if !output.status.success() {
        return Err(format!("its NVMe controllers could not be listed: {}", one_line(&output.errors())));
    }
    parse(&output.text())
}

/// Reads what [`LIST`] prints. A guest writes it: what makes no sense is said.
fn parse(text: &str) -> Result<Vec<SeenController>, String> {
    /// More than any drive that a VM is given.
    const MOST: usize = 10_000;
    let wrong = |line: &str| {
        format!("its list of NVMe controllers has a line that cannot be parsed: {}", one_line(line))
    };
    let mut all: Vec<SeenController> = Vec::new();
    for line in text.lines().take(MOST) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("controller"), Some(identifier), Some(state)) => all.push(SeenController {
                identifier: identifier.parse().map_err(|_| wrong(line))?,
                state: state.to_owned(),
                serial: words.collect::<Vec<_>>().join(" "),
                namespaces: BTreeMap::new(),
            }),
            (Some("namespace"), Some(namespace), Some(sectors)) => {
                let sectors: u64 = sectors.parse().map_err(|_| wrong(line))?;
                let size = ByteSize(sectors.saturating_mul(SECTOR));
                let last = all.last_mut().ok_or_else(|| wrong(line))?;
                last.namespaces.insert(namespace.parse().map_err(|_| wrong(line))?, size);
            }
            _ => return Err(wrong(line)),
        }
    }
    Ok(all)
}

/// The VF as its guest sees it.
fn within(
    name: &GuestName,
    guest: &Guest,
    owned: &GuestDrive,
    found: Option<&NvmeController>,
    inside: &Result<Vec<SeenController>, Unobserved>,
    sheet: &mut VerdictSheet,
) {
    let nothing = BTreeSet::new();
    let page = sheet.page(Subject::DriveVf(owned.name.clone()), Vantage::Guest(name.clone()), &nothing);
    let mut page = page.hiding(Hidden::inside(guest));
    let told = controller(found, owned.name.vf);
    let seen = match (inside, &told) {
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        (Ok(all), Ok((_, wanted))) => {
            let serial = found.and_then(|found| found.serial.as_deref()).map(str::trim);
            let is = |seen: &&SeenController| {
                seen.identifier == wanted.controller && serial.is_none_or(|serial| seen.serial == serial)
            };
            all.iter().find(is).ok_or_else(|| {
                Unobserved::Absent(format!(
                    "it sees no NVMe controller {} of the drive, but {}",
                    wanted.controller,
                    match all.len() {
                        0 => "none at all".to_owned(),
                        others => format!("{others} other"),
                    }
                ))
            })
        }
    };
    page.compare("state", "live".to_owned(), seen.clone().map(|seen| seen.state.clone()));
    disks(owned, &told, &seen, &mut page);
}

/// The namespaces that a guest sees, with the sizes that the drive tells.
fn disks(
    owned: &GuestDrive,
    told: &Result<(&NvmeVirtualization, &SecondaryController), Unobserved>,
    seen: &Result<&SeenController, Unobserved>,
    page: &mut VerdictWriter<'_>,
) {
    let words = |all: BTreeMap<u32, ByteSize>| {
        let all: Vec<String> = all.iter().map(|(namespace, size)| format!("{namespace} of {size}")).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    };
    let wanted = match told {
        Ok((virtualization, controller)) => {
            let has = virtualization.namespaces.iter().filter(|(namespace, found)| {
                let attached = found.controllers.contains(&controller.controller);
                if owned.namespaces.is_empty() { attached } else { owned.namespaces.contains(namespace) }
            });
            words(has.map(|(namespace, found)| (*namespace, found.size)).collect())
        }
        Err(_) => listed(owned.namespaces.iter().copied()),
    };
    page.compare("disks", wanted, seen.clone().map(|seen| words(seen.namespaces.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_lists_is_read_and_what_makes_no_sense_is_said() {
        let text =
            "controller 1 live penstock 0\nnamespace 2 131072\nnamespace 3 0\ncontroller 7 connecting x\n";
        let all = parse(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(
            (all[0].identifier, all[0].state.as_str(), all[0].serial.as_str()),
            (1, "live", "penstock 0")
        );
        assert_eq!(all[0].namespaces, [(2, ByteSize(64 << 20)), (3, ByteSize(0))].into());
        assert_eq!(parse("").unwrap(), []);
        let hostile = [
            "namespace 1 1",
            "controller 65536 live x",
            "controller 1",
            "what",
            "controller 1 live x\nnamespace 1 -1",
        ];
        for text in hostile {
            assert!(parse(text).unwrap_err().contains("cannot be parsed"), "{text}");
        }
        assert_eq!(
            parse(&format!("controller 1 live x\nnamespace 1 {}", u64::MAX)).unwrap()[0].namespaces[&1].0,
            u64::MAX
        );
    }
}
