//! NICs that guests own: each is a box in its guest, with the embedded switch of the host before it.

use std::collections::{HashMap, HashSet};

use penstock_model::{
    DataPath, FunctionName, GuestName, NicName, TenantNic, Uplink, VfSettings, text::counted,
};
use serde::Serialize;

use super::{GUEST_LEFT, GuestBox, GuestRow, NIC_RIGHT, PADDING, ROW, WIDTH, Wire, curve};
use crate::{Machine, MachineGuest, printable::clip};

const HEADER: usize = 28;
const GAP: usize = 8;
const LEFT: usize = GUEST_LEFT + 14;
const SWITCH_WIDTH: usize = 64;
/// Nearer to the guest: the line from the uplink needs the room before it.
const SWITCH_LEFT: usize = (NIC_RIGHT + 2 * GUEST_LEFT) / 3 - SWITCH_WIDTH / 2;

/// A NIC in its VM, and its switch.
#[derive(Debug, Serialize)]
pub(super) struct TenantBox {
    x: usize,
    pub(super) y: usize,
    width: usize,
    pub(super) height: usize,
    name: String,
    title: String,
    pub(super) rows: Vec<GuestRow>,
    switch: SwitchBox,
}

#[derive(Debug, Serialize)]
struct SwitchBox {
    x: usize,
    width: usize,
    /// Where it leads to, when that is nothing in the picture.
    uplink: String,
    /// What carries the frames, in a word.
    label: &'static str,
    title: String,
}

/// What carries the NIC's frames, in words.
fn path_words(nic: &TenantNic) -> &'static str {
    if nic.path.has_switch() { "embedded switch" } else { "taps" }
}

/// Where the NIC's switch leads to, in words.
pub(crate) fn uplink_words(nic: &TenantNic) -> String {
    match &nic.uplink {
        None => "no uplink".to_owned(),
        Some(bridge) if nic.path.is_in_bridge() => format!("bridge {bridge}"),
        Some(uplink) => format!("uplink {uplink}"),
    }
}

/// The guest whose NIC has this function as its uplink.
pub(super) fn uplinks(machine: &Machine) -> HashMap<&FunctionName, &GuestName> {
    let nics = machine.guests.iter().flat_map(|guest| guest.nics.values().map(move |nic| (guest, nic)));
    nics.filter_map(|(guest, nic)| match &nic.uplink {
        Some(Uplink::Function(function)) => Some((function, &guest.name)),
        Some(Uplink::Interface(_)) | None => None,
    })
    .collect()
}

/// The boxes of a guest's NICs from `y` on, and where they end.
pub(super) fn boxes(guest: &MachineGuest, machine: &Machine, y: usize) -> (Vec<TenantBox>, usize) {
    let nics: HashSet<&NicName> = machine.nics.iter().map(|nic| &nic.name).collect();
    let mut top = y;
    let boxes = guest.nics.iter().map(|(name, nic)| {
        let rows: Vec<GuestRow> = nic
            .functions()
            .zip(0..)
            .map(|((vf, mac, settings), row)| {
                let function = FunctionName { nic: name.clone(), vf };
                let limits = limits(&settings);
                let detail = match limits.as_slice() {
                    [] => String::new(),
                    [only] => only.clone(),
                    [first, rest @ ..] => format!("{first} +{}", rest.len()),
                };
                let mut title = format!("{}/{function}, {mac}", guest.name);
                limits.iter().for_each(|limit| title.push_str(&format!(", {limit}")));
                GuestRow {
                    y: top + HEADER + row * ROW,
                    label: match vf {
                        Some(vf) => format!("#{vf}"),
                        None if nic.is_of_container() => String::new(),
                        None => "PF".to_owned(),
                    },
                    function: mac.to_string(),
                    detail,
                    title,
                }
            })
            .collect();
        let drawn = matches!(&nic.uplink, Some(Uplink::Function(function)) if nics.contains(&function.nic));
        let height = HEADER + rows.len() * ROW + PADDING - 2;
        let drawn = TenantBox {
            x: LEFT,
            y: top,
            width: WIDTH - 10 - LEFT,
            height,
            name: clip(name.as_str(), 20),
            title: match nic.is_of_container() {
                true => format!("{name} of {}, a vDPA device of the host", guest.name),
                false => {
                    let devices = if nic.path == DataPath::VhostVdpa { ", by vDPA devices" } else { "" };
                    format!("{name} of {}, {}{devices}", guest.name, counted(nic.most_vfs(), "VF"))
                }
            },
            rows,
            switch: SwitchBox {
                x: SWITCH_LEFT,
                width: SWITCH_WIDTH,
                uplink: if drawn { String::new() } else { clip(&uplink_words(nic), 20) },
                label: if nic.path.has_switch() { "switch" } else { "taps" },
                title: format!(
                    "{} of {}/{name} on the host, {}",
                    path_words(nic),
                    guest.name,
                    uplink_words(nic)
                ),
            },
        };
        top += height + GAP;
        drawn
    });
    let boxes: Vec<TenantBox> = boxes.collect();
    (boxes, top)
}

/// What the switch keeps of a VF besides its address, in few words.
fn limits(settings: &VfSettings) -> Vec<String> {
    let vlan = settings.vlan.filter(|vlan| vlan.get() != 0).map(|vlan| format!("VLAN {vlan}"));
    let rate = settings.max_tx_rate.filter(|rate| rate.0 != 0).map(|rate| rate.to_string());
    vlan.into_iter().chain(rate).collect()
}

/// A line from each switch to its uplink, and to each function.
pub(super) fn wires(
    machine: &Machine,
    guests: &[GuestBox],
    ports: &HashMap<FunctionName, (usize, usize)>,
) -> Vec<Wire> {
    let mut wires = Vec::new();
    for (guest, drawn) in machine.guests.iter().zip(guests) {
        for (nic, tenant) in guest.nics.values().zip(&drawn.nics) {
            let switch = &tenant.switch;
            let mut wire = |path, title: &str| {
                wires.push(Wire { path, colour: drawn.colour.clone(), title: title.to_owned() });
            };
            if let Some(Uplink::Function(function)) = &nic.uplink
                && let Some(port) = ports.get(function)
            {
                wire(curve(*port, (switch.x, tenant.y + tenant.height / 2)), &switch.title);
            }
            for row in &tenant.rows {
                let y = row.y + ROW / 2;
                wire(curve((switch.x + switch.width, y), (tenant.x, y)), &row.title);
            }
        }
    }
    wires
}
