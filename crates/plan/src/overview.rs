//! A plan as somebody reviews it: first what it comes to in one sentence, then what changes, by NIC and guest.
//!
//! ```text
//! 7 VFs created on NET0, 1 guest started, nothing destroyed, nothing of yours in danger, no reboot.
//!
//! NET0  0000:04:00.0 (eno1, ixgbe)
//!   ~ VFs   0 -> 7
//!   ~ link  down -> up
//!   + NET0#0  0000:04:10.0  for rt-2  mac 02:00:00:00:00:00, driver vfio-pci
//! ```

mod changes;
mod definition;
mod summary;

use std::collections::BTreeSet;

use indexmap::IndexMap;
use penstock_model::{
    Bdf, CpuSet, GuestName, Inventory,
    text::{Style, Styled, columns, wrap},
};

use self::changes::{Change, Changes, Group, RESET, VfChange, changes};
use crate::{Action, Danger, GuestAction, Plan, boot::BootNeeds, names::Names};

/// The least room for values beside what they belong to; with less, they stand below it.
const LEAST: usize = 30;
/// What stands below something is indented so far.
const INDENT: usize = 6;

/// What a plan comes to, and what it changes, in lines of at most `width` columns (`None`: of any length). `dangers` are those
/// of the plan, and `boot` what the model needs at the start of the machine; `None` for a plan that is not about that.
pub fn overview(
    plan: &Plan,
    inventory: &Inventory,
    dangers: &[Danger],
    boot: Option<&BootNeeds>,
    width: Option<usize>,
) -> Styled {
    let names = Names::of(plan, inventory);
    let groups = changes(plan, inventory, &names);
    let mut view = View { out: Styled::new(), plan, inventory, names: &names, width };
    let summary = summary::summary(plan, inventory, &groups, dangers, boot);
    for line in wrap(&summary.text, width) {
        view.out.push(if summary.warns { Style::Warning } else { Style::Bold }, line);
        view.out.plain("\n");
    }
    groups.iter().for_each(|(group, changes)| view.group(group, changes));
    view.out
}

/// How a change is marked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    New,
    Gone,
    Other,
}

impl Sign {
    fn of(before: bool, after: bool) -> Sign {
        match (before, after) {
            (false, true) => Sign::New,
            (true, false) => Sign::Gone,
            (true, true) | (false, false) => Sign::Other,
        }
    }

    fn mark(self) -> (&'static str, Style) {
        match self {
            Sign::New => ("+", Style::Added),
            Sign::Gone => ("-", Style::Removed),
            Sign::Other => ("~", Style::Changed),
        }
    }
}

struct View<'a> {
    out: Styled,
    plan: &'a Plan,
    inventory: &'a Inventory,
    names: &'a Names,
    width: Option<usize>,
}

impl View<'_> {
    fn group(&mut self, group: &Group, changes: &Changes) {
        self.out.plain("\n");
        match group {
            Group::Pf(pf) => self.pf(*pf),
            Group::Guest(guest) => self.heading(&format!("guest {guest}"), ""),
            Group::Machine => self.heading("this machine", ""),
            Group::Files => self.heading("files", ""),
            Group::Start => self.heading("at the next start", ""),
        }
        let own = alike(&changes.own);
        let keys: Vec<usize> = own.iter().map(|(what, _)| columns(what)).collect();
        // One long name does not leave too little room for all values.
        let most = self.width.map_or(usize::MAX, |width| width.saturating_sub(LEAST + INDENT));
        let widest = keys.into_iter().filter(|key| *key <= most).max().unwrap_or(0);
        for (what, change) in &own {
            let sign = Sign::of(change.before.is_some(), change.after.is_some());
            self.row(sign, &format!("{what:widest$}"), &value(what, change));
        }
        self.vfs(group, changes);
    }

    fn heading(&mut self, name: &str, beside: &str) {
        self.out.push(Style::Bold, name);
        if !beside.is_empty() {
            self.out.push(Style::Dim, format!("  {beside}"));
        }
        self.out.plain("\n");
    }

    fn pf(&mut self, pf: Bdf) {
        let found = self.inventory.pf(pf);
        let of_drive = self.inventory.drive(pf).and_then(|drive| drive.driver.clone());
        let interface =
            found.and_then(|pf| pf.interface.as_ref()).map(|interface| interface.name.to_string());
        let known: Vec<String> =
            interface.into_iter().chain(found.and_then(|pf| pf.driver.clone())).chain(of_drive).collect();
        let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
        match self.plan.name_of(pf) {
            Some(name) => self.heading(&name, &format!("{pf}{known}")),
            None => self.heading(&format!("{pf}"), known.trim_start()),
        }
    }

    fn vfs(&mut self, group: &Group, changes: &Changes) {
        let Group::Pf(pf) = group else { return };
        let owners = owners(self.plan, self.inventory);
        let rows: Vec<(Sign, [String; 3], String)> = changes
            .vfs
            .iter()
            .map(|((_, index), vf)| {
                let address = self.names.address(*pf, *index);
                let name = match self.plan.name_of(*pf) {
                    Some(name) => format!("{name}#{index}"),
                    None => format!("VF {index}"),
                };
                let owner = address.filter(|_| vf.after).and_then(|address| owners.get(&address));
                let owner = owner.map(|guest| format!("for {guest}")).unwrap_or_default();
                let address = address.map(|address| address.to_string()).unwrap_or_default();
                (Sign::of(vf.before, vf.after), [name, address, owner], values(vf))
            })
            .collect();
        let widest = |cell: usize| rows.iter().map(|(_, cells, _)| columns(&cells[cell])).max().unwrap_or(0);
        let widths = [widest(0), widest(1), widest(2)];
        for (sign, cells, values) in &rows {
            let used = cells.iter().zip(widths).filter(|(_, width)| *width > 0);
            let cells: Vec<String> = used.map(|(cell, width)| format!("{cell:width$}")).collect();
            self.row(*sign, &cells.join("  "), values);
        }
    }

    /// One line, or several below each other: the mark, what it is about, and what becomes of it.
    fn row(&mut self, sign: Sign, about: &str, what: &str) {
        let (mark, style) = sign.mark();
        self.out.plain("  ");
        self.out.push(style, mark);
        let begins = 4 + columns(about) + 2;
        let below = self
            .width
            .is_some_and(|width| begins + columns(what) > width && begins + LEAST.min(columns(what)) > width);
        let about = if what.is_empty() || below { about.trim_end() } else { about };
        self.out.plain(format!(" {about}"));
        let indent = if below { INDENT } else { begins };
        if what.is_empty() {
            return self.out.plain("\n");
        }
        let room = self.width.map(|width| width.saturating_sub(indent).max(1));
        for (number, line) in filled(what, room).into_iter().enumerate() {
            match (number, below) {
                (0, false) => self.out.plain("  "),
                _ => self.out.plain(format!("\n{:indent$}", "")),
            }
            self.out.push(if sign == Sign::Other { Style::Plain } else { style }, line);
        }
        self.out.plain("\n");
    }
}

/// What is listed with commas, in lines of at most `width` columns: what belongs together stays on one line where it can.
fn filled(text: &str, width: Option<usize>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if width.is_none_or(|width| columns(line) + columns(part.trim_end()) <= width) => {
                line.push_str(part);
            }
            _ => lines.extend(wrap(part, width).into_iter().map(|line| {
                // The blank after a comma, which wrapping has taken.
                if part.ends_with(' ') { line + " " } else { line }
            })),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A change in words: `old -> new`.
fn value(what: &str, change: &Change) -> String {
    match (change.before.as_deref(), change.after.as_deref()) {
        (before, after) if before == after => match (what, after) {
            ("driver", Some(driver)) => format!("{driver} bound anew"),
            ("link", Some("up")) => "up, after a moment down".to_owned(),
            ("link", Some("down")) => "down, after a moment up".to_owned(),
            _ => "taken away and given back".to_owned(),
        },
        (Some(""), Some(after)) | (None, Some(after)) => after.to_owned(),
        (Some(""), None) | (None, None) => String::new(),
        (Some(before), None) => format!("was {before}"),
        (Some(before), Some(after)) => format!("{before} -> {after}"),
    }
}

/// The values of a VF, one after the other.
fn values(vf: &VfChange) -> String {
    if !vf.after {
        return vf.was.clone();
    }
    let one = |(what, change): (&String, &Change)| match (&change.before, &change.after) {
        _ if what == RESET => what.clone(),
        (Some(before), None) if !before.is_empty() => format!("{what} {before} -> none"),
        (None, Some(after)) if vf.before => format!("{what} none -> {after}"),
        _ => format!("{what} {}", value(what, change)).trim_end().to_owned(),
    };
    let (drivers, others): (Vec<_>, Vec<_>) = vf.values.iter().partition(|(what, _)| *what == "driver");
    others.into_iter().chain(drivers).map(one).collect::<Vec<_>>().join(", ")
}

/// Which guest has a function then: as the plan defines it, else as it is.
fn owners(plan: &Plan, inventory: &Inventory) -> IndexMap<Bdf, GuestName> {
    let mut owners: IndexMap<Bdf, GuestName> = IndexMap::new();
    for (guest, found) in &inventory.guests {
        owners.extend(found.functions.iter().map(|function| (*function, guest.clone())));
    }
    for step in &plan.steps {
        match &step.action {
            Action::Guest(GuestAction::DefineGuest(definition)) => {
                owners
                    .extend(definition.host_functions().map(|function| (function, definition.guest.clone())));
            }
            Action::Guest(GuestAction::UndefineGuest { guest }) => owners.retain(|_, owner| owner != guest),
            _ => {}
        }
    }
    owners
}

/// Values of knobs that there are many of, and that change in the same way, as one:
/// `/proc/irq/{24-31}/smp_affinity_list`.
fn alike(own: &IndexMap<String, Change>) -> Vec<(String, Change)> {
    struct Alike<'a> {
        shape: String,
        numbers: BTreeSet<u32>,
        what: &'a String,
        change: &'a Change,
    }
    let mut merged: Vec<Alike<'_>> = Vec::new();
    for (what, change) in own {
        let (shape, number) = match numbered(what) {
            Some((shape, number)) => (shape, Some(number)),
            None => (what.clone(), None),
        };
        let same = |one: &&mut Alike<'_>| {
            one.shape == shape && (&one.change.before, &one.change.after) == (&change.before, &change.after)
        };
        match merged.iter_mut().find(same) {
            Some(one) => one.numbers.extend(number),
            None => merged.push(Alike { shape, numbers: number.into_iter().collect(), what, change }),
        }
    }
    let named = |one: Alike<'_>| match one.numbers.len() {
        0 | 1 => (one.what.clone(), one.change.clone()),
        _ => (one.shape.replace(NUMBER, &format!("{{{}}}", CpuSet(one.numbers))), one.change.clone()),
    };
    merged.into_iter().map(named).collect()
}

/// Stands for a number in the shape of a path.
const NUMBER: &str = "{}";

/// The path of a knob that there is one of for each CPU or interrupt: its shape, and the number.
fn numbered(path: &str) -> Option<(String, u32)> {
    let starts = ["/proc/irq/", "/sys/devices/system/cpu/cpu", "/sys/kernel/debug/sched/fair_server/cpu"];
    let start = starts.into_iter().find(|start| path.starts_with(start))?;
    let rest = &path[start.len()..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let number = rest[..digits].parse().ok()?;
    Some((format!("{start}{NUMBER}{}", &rest[digits..]), number))
}
