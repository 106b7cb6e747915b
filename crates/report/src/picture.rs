//! The machine as a picture: where each box, slot and line goes. The template only draws.
//!
//! NICs stand on the left with a slot per function, guests on the right with a row per interface, and a line joins each
//! owned function to its interface. A machine with many functions is drawn densely: a grid of cells per NIC, and at most
//! one line per NIC and guest. Lengths are in CSS pixels of a picture 960 wide.

use std::collections::{BTreeMap, HashMap};

use penstock_model::{FunctionName, GuestName, NicName, text::counted};
use serde::Serialize;

mod tenant;

use self::tenant::TenantBox;
pub(crate) use self::tenant::uplink_words;
use crate::{
    Machine, MachineGuest, MachineNic,
    machine::kind_word,
    printable::{clip, one_line},
};

const WIDTH: usize = 960;
const NIC_LEFT: usize = 56;
const NIC_RIGHT: usize = 456;
const GUEST_LEFT: usize = 624;
const HEADER: usize = 58;
const GUEST_HEADER: usize = 34;
const ROW: usize = 26;
const GAP: usize = 26;
const PADDING: usize = 8;

/// More VFs in one NIC, or functions in all, are drawn densely.
const MOST_SLOTS_OF_NIC: usize = 24;
const MOST_SLOTS: usize = 64;
/// More guests than this and a dense picture draws no lines: colours and numbers say who owns what.
const MOST_LINED_GUESTS: usize = 16;
/// More guests than this are not drawn; the table below the picture has them.
const MOST_GUESTS: usize = 48;
/// Cells of a dense NIC in a row, and their size.
const CELLS: usize = 16;
const CELL_WIDTH: usize = 21;
const CELL_HEIGHT: usize = 19;

/// How many colours there are for guests; the style sheet has as many.
const COLOURS: usize = 7;

/// The picture of one machine, as the template draws it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Picture {
    width: usize,
    height: usize,
    dense: bool,
    nics: Vec<NicBox>,
    guests: Vec<GuestBox>,
    wires: Vec<Wire>,
    cables: Vec<Cable>,
    /// Guests that are not drawn.
    more_guests: usize,
    more_y: usize,
    /// What the picture shows, in a sentence for those who do not see it.
    about: String,
}

#[derive(Debug, Serialize)]
struct NicBox {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    name: String,
    badge: String,
    detail: String,
    title: String,
    slots: Vec<Slot>,
    labels: Vec<Label>,
}

/// A function in its NIC: a row, or a cell of a dense NIC.
#[derive(Debug, Serialize)]
struct Slot {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    /// The colour's class; empty when no guest owns it.
    colour: String,
    label: String,
    detail: String,
    owner: String,
    title: String,
}

#[derive(Debug, Serialize)]
struct Label {
    x: usize,
    y: usize,
    text: String,
}

#[derive(Debug, Serialize)]
struct GuestBox {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    colour: String,
    /// Its number from 1, which stands in the cells of a dense NIC.
    number: usize,
    name: String,
    kind: &'static str,
    title: String,
    rows: Vec<GuestRow>,
    /// The NICs that it owns itself; none in a dense picture.
    nics: Vec<TenantBox>,
}

#[derive(Debug, Serialize)]
struct GuestRow {
    y: usize,
    label: String,
    function: String,
    detail: String,
    title: String,
}

#[derive(Debug, Serialize)]
struct Wire {
    path: String,
    colour: String,
    title: String,
}

#[derive(Debug, Serialize)]
struct Cable {
    path: String,
    x: usize,
    y: usize,
    from_y: usize,
    to_y: usize,
    title: String,
}

/// The colour of the guest at `index`, as a class.
pub(crate) fn colour(index: usize) -> String {
    format!("g{}", index % COLOURS)
}

/// Who owns what, looked up while drawing.
struct Owners<'a> {
    of: HashMap<&'a FunctionName, &'a GuestName>,
    /// For whose NIC a function is the uplink.
    uplinks: HashMap<&'a FunctionName, &'a GuestName>,
    place: HashMap<&'a GuestName, usize>,
}

impl Owners<'_> {
    /// The owner's name and place.
    fn get(&self, function: &FunctionName) -> Option<(String, usize)> {
        self.with_place(self.of.get(function)?)
    }

    /// The name and place of the guest for which it is an uplink.
    fn uplink_of(&self, function: &FunctionName) -> Option<(String, usize)> {
        self.with_place(self.uplinks.get(function)?)
    }

    fn with_place(&self, guest: &GuestName) -> Option<(String, usize)> {
        Some((guest.to_string(), *self.place.get(guest)?))
    }
}

/// The picture of `machine`; `None` when there is nothing to draw.
pub(crate) fn picture(machine: &Machine) -> Option<Picture> {
    if machine.nics.is_empty() && machine.guests.is_empty() {
        return None;
    }
    let owners = Owners {
        of: machine.owners(),
        uplinks: tenant::uplinks(machine),
        place: (machine.guests.iter().map(|guest| &guest.name)).zip(0..).collect(),
    };
    let of_nics = |guest: &MachineGuest| guest.nics.values().map(|nic| nic.vfs.len() + 1).sum::<usize>();
    let owned: usize = machine.guests.iter().map(|guest| guest.functions.len() + of_nics(guest)).sum();
    let slots: usize = machine.nics.iter().map(|nic| nic.vfs.len() + 1).sum();
    let dense =
        slots.max(owned) > MOST_SLOTS || machine.nics.iter().any(|nic| nic.vfs.len() > MOST_SLOTS_OF_NIC);

    let mut picture = Picture { width: WIDTH, dense, about: about(machine), ..Picture::default() };
    let mut y = 2;
    for nic in &machine.nics {
        let drawn = nic_box(nic, machine, &owners, dense, y);
        y += drawn.height + GAP;
        picture.nics.push(drawn);
    }
    let nics_end = y.saturating_sub(GAP);
    let mut y = 2;
    let gap = if dense { 10 } else { 16 };
    for (index, guest) in machine.guests.iter().take(MOST_GUESTS).enumerate() {
        let drawn = guest_box(guest, machine, index, dense, y);
        y += drawn.height + gap;
        picture.guests.push(drawn);
    }
    picture.more_guests = machine.guests.len() - picture.guests.len();
    picture.more_y = y + 14;
    let guests_end = if picture.more_guests > 0 { y + 28 } else { y.saturating_sub(gap) };

    // The shorter column stands in the middle of the longer one.
    let height = nics_end.max(guests_end);
    picture.shift((height - nics_end) / 2, (height - guests_end) / 2);
    picture.height = height + 2;
    picture.wires = if dense { dense_wires(machine, &picture) } else { wires(machine, &picture) };
    picture.cables = cables(machine, &picture);
    Some(picture)
}

impl Picture {
    /// Moves the NICs and the guests down.
    fn shift(&mut self, nics: usize, guests: usize) {
        for nic in &mut self.nics {
            nic.y += nics;
            nic.slots.iter_mut().for_each(|slot| slot.y += nics);
            nic.labels.iter_mut().for_each(|label| label.y += nics);
        }
        for guest in &mut self.guests {
            guest.y += guests;
            guest.rows.iter_mut().for_each(|row| row.y += guests);
            for nic in &mut guest.nics {
                nic.y += guests;
                nic.rows.iter_mut().for_each(|row| row.y += guests);
            }
        }
        self.more_y += guests;
    }
}

fn about(machine: &Machine) -> String {
    let vfs: usize = machine.nics.iter().map(|nic| nic.vfs.len()).sum();
    format!(
        "{}: {} with {}, {}, {}. The table below the picture says the same.",
        one_line(&machine.name),
        counted(machine.nics.len(), "NIC"),
        counted(vfs, "VF"),
        counted(machine.guests.len(), "guest"),
        counted(machine.cables.len(), "cable"),
    )
}

fn nic_box(nic: &MachineNic, machine: &Machine, owners: &Owners<'_>, dense: bool, y: usize) -> NicBox {
    let driver = nic.driver.as_deref().map(one_line);
    let emulator = nic.emulated_by.as_deref().map(one_line);
    let badge = match (&driver, &emulator) {
        (Some(driver), Some(by)) if driver == by => format!("{driver}, emulated"),
        (Some(driver), Some(by)) => format!("{driver}, emulated {by}"),
        (Some(driver), None) => driver.clone(),
        (None, Some(by)) => format!("emulated {by}"),
        (None, None) => String::new(),
    };
    let count = match nic.vfs.len() {
        1 => "1 VF".to_owned(),
        count => format!("{count} VFs"),
    };
    let loopback = nic.loopback.map(|on| if on { "loopback on" } else { "loopback off" });
    let eswitch = nic.eswitch.map(|mode| format!("{} mode", mode.name()));
    let mac = nic.mac.map(|mac| mac.to_string());
    let detail: Vec<String> =
        [mac, Some(count), loopback.map(str::to_owned), eswitch].into_iter().flatten().collect();
    let bdf = nic.bdf.map(|bdf| format!(" at {bdf}")).unwrap_or_default();
    let cabled: Vec<String> = machine
        .cables
        .iter()
        .filter_map(|[a, b]| if *a == nic.name { Some(b) } else { (*b == nic.name).then_some(a) })
        .map(|other| format!(", cable to {other}"))
        .collect();
    let title = format!("{}{bdf}, {}{}", nic.name, detail.join(", "), cabled.concat());
    let function = |vf| FunctionName { nic: nic.name.clone(), vf };
    let top = y + HEADER;
    let mut drawn = NicBox {
        x: NIC_LEFT,
        y,
        width: NIC_RIGHT - NIC_LEFT,
        height: 0,
        name: clip(nic.name.as_str(), 20),
        badge: clip(&badge, 32),
        detail: detail.join(" · "),
        title,
        slots: Vec::new(),
        labels: Vec::new(),
    };
    // Every function, with what is to be said of it.
    let pf = (function(None), "PF".to_owned(), nic.bdf, nic.mac);
    let all = std::iter::once(pf)
        .chain(nic.vfs.iter().map(|vf| (function(Some(vf.index)), format!("#{}", vf.index), vf.bdf, vf.mac)));
    for (place, (name, label, bdf, mac)) in all.enumerate() {
        let owner = owners.get(&name);
        let uplink = owners.uplink_of(&name);
        let whose = match (&owner, &uplink) {
            (Some((guest, _)), _) => format!("owned by {guest}"),
            (None, Some((guest, _))) => format!("the host's, an uplink for {guest}"),
            (None, None) if name.vf.is_none() => "the host's".to_owned(),
            (None, None) => "owned by no guest".to_owned(),
        };
        let mut title = format!("{name}, {whose}");
        let mut detail = Vec::new();
        if let Some(bdf) = bdf {
            title.push_str(&format!(", {bdf}"));
            detail.push(short_bdf(&bdf.to_string()));
        }
        if let Some(mac) = mac {
            title.push_str(&format!(", {mac}"));
            detail.push(mac.to_string());
        }
        let colour = owner.as_ref().or(uplink.as_ref()).map(|(_, index)| colour(*index)).unwrap_or_default();
        drawn.slots.push(if !dense {
            let free = match uplink {
                Some((guest, _)) => clip(&format!("for {guest}"), 15),
                None if name.vf.is_none() => "host".to_owned(),
                None => "free".to_owned(),
            };
            Slot {
                x: NIC_LEFT + PADDING,
                y: top + place * ROW,
                // Up to the edge, where the lines begin.
                width: NIC_RIGHT - NIC_LEFT - PADDING,
                height: ROW - 3,
                colour,
                label,
                detail: detail.join("  "),
                owner: owner.map_or(free, |(guest, _)| clip(&guest, 15)),
                title,
            }
        } else {
            // The PF stands alone in the first row, and the grid of VFs begins in the second.
            let (row, column) = match place.checked_sub(1) {
                None => (0, 0),
                Some(vf) => (1 + vf / CELLS, vf % CELLS),
            };
            let y = top + row * (CELL_HEIGHT + 3);
            if column == 0 {
                drawn.labels.push(Label { x: NIC_LEFT + 40, y: y + 13, text: label });
            }
            Slot {
                x: NIC_LEFT + 48 + column * (CELL_WIDTH),
                y,
                width: CELL_WIDTH - 3,
                height: CELL_HEIGHT,
                colour,
                label: String::new(),
                detail: String::new(),
                owner: owner.map_or_else(String::new, |(_, index)| (index + 1).to_string()),
                title,
            }
        });
    }
    let rows = match dense {
        false => drawn.slots.len() * ROW,
        true => (1 + nic.vfs.len().div_ceil(CELLS)) * (CELL_HEIGHT + 3),
    };
    drawn.height = HEADER + rows + PADDING;
    drawn
}

/// A PCI address without its domain when that is 0, as `lspci` writes it.
fn short_bdf(bdf: &str) -> String {
    bdf.strip_prefix("0000:").unwrap_or(bdf).to_owned()
}

fn guest_box(guest: &MachineGuest, machine: &Machine, index: usize, dense: bool, y: usize) -> GuestBox {
    let functions = guest.owns();
    let mut drawn = GuestBox {
        x: GUEST_LEFT,
        y,
        width: WIDTH - 2 - GUEST_LEFT,
        height: 0,
        colour: colour(index),
        number: index + 1,
        name: clip(guest.name.as_str(), 22),
        kind: kind_word(guest.kind),
        title: format!("{} {}: {functions}", kind_word(guest.kind), guest.name),
        rows: Vec::new(),
        nics: Vec::new(),
    };
    let top = y + GUEST_HEADER;
    if dense {
        let of_nics = guest.nics.values().map(|nic| nic.vfs.len() + 1).sum::<usize>();
        let count = match guest.functions.len() + of_nics {
            1 => "1 function".to_owned(),
            count => format!("{count} functions"),
        };
        drawn.rows.push(GuestRow {
            y: top,
            label: count,
            function: String::new(),
            detail: clip(&functions, 30),
            title: format!("{}: {functions}", guest.name),
        });
    } else {
        for (row, owned) in guest.functions.iter().enumerate() {
            let addresses: Vec<String> = owned.addresses.iter().map(ToString::to_string).collect();
            let detail = match addresses.as_slice() {
                [] => String::new(),
                [address] => clip(address, 20),
                [address, rest @ ..] => format!("{} +{}", clip(address, 20), rest.len()),
            };
            let mut title = format!("{} in {}: {}", owned.interface, guest.name, owned.function);
            for address in &addresses {
                title.push_str(&format!(", {address}"));
            }
            drawn.rows.push(GuestRow {
                y: top + row * ROW,
                label: owned.interface.to_string(),
                function: clip(&owned.function.to_string(), 12),
                detail,
                title,
            });
        }
    }
    let end = top + drawn.rows.len() * ROW;
    let end = if dense {
        end
    } else {
        let (nics, end) = tenant::boxes(guest, machine, end);
        drawn.nics = nics;
        end
    };
    drawn.height = end + PADDING - y;
    drawn
}

/// A line from (x, y) to (x, y), level at both ends.
fn curve(from: (usize, usize), to: (usize, usize)) -> String {
    let middle = (from.0 + to.0) / 2;
    format!("M{} {}C{middle} {} {middle} {} {} {}", from.0, from.1, from.1, to.1, to.0, to.1)
}

/// A line from each owned function to its interface.
fn wires(machine: &Machine, picture: &Picture) -> Vec<Wire> {
    let mut ports: HashMap<FunctionName, (usize, usize)> = HashMap::new();
    for (nic, drawn) in machine.nics.iter().zip(&picture.nics) {
        let names = std::iter::once(None).chain(nic.vfs.iter().map(|vf| Some(vf.index)));
        for (vf, slot) in names.zip(&drawn.slots) {
            let function = FunctionName { nic: nic.name.clone(), vf };
            ports.insert(function, (slot.x + slot.width, slot.y + slot.height / 2));
        }
    }
    let mut wires = Vec::new();
    for (guest, drawn) in machine.guests.iter().zip(&picture.guests) {
        for (owned, row) in guest.functions.iter().zip(&drawn.rows) {
            // A function that its NIC does not show has no port.
            if let Some(port) = ports.get(&owned.function) {
                wires.push(Wire {
                    path: curve(*port, (drawn.x, row.y + ROW / 2)),
                    colour: drawn.colour.clone(),
                    title: row.title.clone(),
                });
            }
        }
    }
    wires.extend(tenant::wires(machine, &picture.guests, &ports));
    wires
}

/// One line from each NIC to each guest that owns functions of it, when there are few enough to be told apart.
fn dense_wires(machine: &Machine, picture: &Picture) -> Vec<Wire> {
    if machine.guests.len() > MOST_LINED_GUESTS {
        return Vec::new();
    }
    let mut wires = Vec::new();
    for (nic, from) in machine.nics.iter().zip(&picture.nics) {
        let of_nic: Vec<(&GuestBox, usize)> = machine
            .guests
            .iter()
            .zip(&picture.guests)
            .map(|(guest, drawn)| {
                (drawn, guest.functions.iter().filter(|owned| owned.function.nic == nic.name).count())
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        for (place, (to, count)) in of_nic.iter().enumerate() {
            let y = from.y + from.height * (place + 1) / (of_nic.len() + 1);
            let row = to.rows.first().map_or(to.y, |row| row.y + ROW / 2);
            wires.push(Wire {
                path: curve((from.x + from.width, y), (to.x, row)),
                colour: to.colour.clone(),
                title: format!("{count} functions of {} in {}", nic.name, to.name),
            });
        }
    }
    wires
}

/// A bracket on the left of the NICs for each cable, each in its own lane as long as there is room.
fn cables(machine: &Machine, picture: &Picture) -> Vec<Cable> {
    let place: BTreeMap<&NicName, &NicBox> =
        (machine.nics.iter().map(|nic| &nic.name)).zip(&picture.nics).collect();
    let ends = machine.cables.iter().filter_map(|[a, b]| Some((a, b, *place.get(a)?, *place.get(b)?)));
    ends.filter(|(a, b, ..)| a != b)
        .enumerate()
        .map(|(lane, (a, b, from, to))| {
            let shift = (lane % 4) * 8;
            let (x, from_y, to_y) = (30 - shift, from.y + 20 + shift, to.y + 20 + shift);
            Cable {
                path: format!("M{NIC_LEFT} {from_y}H{x}V{to_y}H{NIC_LEFT}"),
                x: x - 5,
                y: (from_y + to_y) / 2,
                from_y,
                to_y,
                title: format!("cable between {a} and {b}"),
            }
        })
        .collect()
}
