//! The inventory as a person reads it, in the order in which questions come.

mod devlink;
mod nvme;

use std::{collections::BTreeMap, fmt::Write};

use penstock_model::{
    Bdf, CpuSet, Inventory,
    inventory::{
        Ability, Cache, Interface, NvmeController, PciIdentity, Pf, PresentVf, Sriov, SwitchMode, Vf,
    },
    text::{counted, one_line as plain},
};

use crate::ui::paragraphs::Paragraphs;

/// What stands for a value that there is none of.
const NONE: &str = "-";

/// The inventory as text of at most `width` columns.
pub fn table(inventory: &Inventory, width: Option<usize>) -> String {
    let mut out = Paragraphs::new(width);
    nics(inventory, &mut out);
    nvme(inventory, &mut out);
    cpus(inventory, &mut out);
    memory(inventory, &mut out);
    kernel(inventory, &mut out);
    lifelines(inventory, &mut out);
    if !inventory.unknown.is_empty() {
        out.heading("Not known");
        for text in &inventory.unknown {
            out.wrapped("  - ", &plain(text));
        }
    }
    out.finish()
}

fn nics(inventory: &Inventory, out: &mut Paragraphs) {
    out.heading("NICs");
    if inventory.pfs.is_empty() {
        out.wrapped("  ", "none: there is no Ethernet function on a PCI bus here");
        return;
    }
    let header = ["BDF", "interface", "driver", "MAC", "link", "NUMA", "IOMMU", "VFs", "switch"];
    let rows = inventory.pfs.iter().map(|pf| {
        let interface = pf.interface.as_ref();
        [
            pf.bdf.to_string(),
            interface.map_or(NONE.into(), |interface| interface.name.to_string()),
            or_none(pf.driver.as_deref()),
            pf.permanent_mac.map_or(NONE.into(), |mac| mac.to_string()),
            interface.map_or(NONE.into(), link),
            number(pf.numa_node),
            number(pf.iommu_group),
            count(pf.sriov.as_ref()),
            switch(pf.switch_mode).into(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let mut lines = columns(out, &header, &rows).into_iter();
    lines.next().iter().for_each(|line| out.push_str(line));
    for (pf, line) in inventory.pfs.iter().zip(lines) {
        out.push_str(&line);
        pf_details(inventory, pf, out);
    }
    if inventory.pfs.iter().all(|pf| pf.sriov.is_none()) {
        out.wrapped(
            "  ",
            "No NIC here has SR-IOV: there can be no VFs. A model may give guests ports of an embedded switch \
             (docs/container-nics.md, docs/tenant-nics.md), and any can be rehearsed.",
        );
    }
}

fn pf_details(inventory: &Inventory, pf: &Pf, out: &mut Paragraphs) {
    out.wrapped("    ", &what(&pf.identity));
    place(&pf.identity, out);
    firmware(pf.firmware.as_deref(), out);
    if let Some(devlink) = &pf.devlink {
        devlink::details(devlink, out);
    }
    if let Some(interface) = &pf.interface {
        if pf.permanent_mac.is_some_and(|mac| mac != interface.mac) {
            out.wrapped("    ", &format!("present MAC {}", interface.mac));
        }
        let addresses: Vec<_> = interface.addresses.iter().map(|address| address.to_string()).collect();
        if !addresses.is_empty() {
            out.wrapped("    ", &format!("MTU {}, {}", interface.mtu, addresses.join(", ")));
        }
    }
    group(inventory, pf.bdf, pf.iommu_group, out);
    if let Some(sriov) = &pf.sriov {
        vfs(sriov, out);
    }
    let functions = pf.sriov.iter().flat_map(|sriov| &sriov.vfs).map(|vf| vf.bdf);
    let chosen: Vec<String> = std::iter::once(pf.bdf)
        .chain(functions)
        .filter_map(|bdf| Some(format!("{bdf} {}", inventory.chosen_drivers.get(&bdf)?)))
        .collect();
    if !chosen.is_empty() {
        out.wrapped("    ", &format!("chosen with driverctl: {}", chosen.join(", ")));
    }
    capabilities(inventory, pf.bdf, out);
}

/// What the driver was seen to do for its VFs, the like together.
fn capabilities(inventory: &Inventory, pf: Bdf, out: &mut Paragraphs) {
    let Some(known) = inventory.capabilities.get(&pf).filter(|known| !known.trials.is_empty()) else {
        return;
    };
    let mut by_ability: BTreeMap<Ability, Vec<String>> = BTreeMap::new();
    for (capability, trial) in &known.trials {
        by_ability.entry(trial.ability).or_default().push(capability.to_string());
    }
    let parts: Vec<String> =
        by_ability.iter().rev().map(|(ability, of)| format!("{ability}: {}", of.join(", "))).collect();
    out.wrapped("    ", &plain(&format!("the driver, as it was tried: {}", parts.join("; "))));
}

/// Who else is in an IOMMU group: whoever gets one of them gets all.
fn group(inventory: &Inventory, bdf: Bdf, group: Option<u32>, out: &mut Paragraphs) {
    let Some(number) = group else { return };
    let others: Vec<_> = inventory
        .iommu_groups
        .get(&number)
        .into_iter()
        .flatten()
        .filter(|member| **member != bdf)
        .map(Bdf::to_string)
        .collect();
    if !others.is_empty() {
        out.wrapped("    ", &format!("shares IOMMU group {number} with {}", others.join(", ")));
    }
}

fn vfs(sriov: &Sriov, out: &mut Paragraphs) {
    // Runs of VFs of which there is nothing to tell one by one.
    let tells = |vf: &Vf| {
        vf.present.as_ref().is_some_and(|present| {
            present.driver.is_some()
                || present.driver_override.is_some()
                || present.interface.is_some()
                || present.representor.is_some()
        })
    };
    let quiet: Vec<&Vf> = sriov.vfs.iter().filter(|vf| !tells(vf)).collect();
    for run in quiet.chunk_by(|a, b| {
        a.present.is_some() == b.present.is_some()
            && b.index.get() == a.index.get() + 1
            && a.bdf.of_vf(sriov.vf_stride, 0, 0) == Some(b.bdf)
    }) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let is = if first.present.is_some() { "without a driver" } else { "possible" };
        let text = if run.len() == 1 {
            format!("VF {} {is}: {}", first.index, first.bdf)
        } else {
            format!("VFs {}-{} {is}: {} to {}", first.index, last.index, first.bdf, last.bdf)
        };
        out.wrapped("    ", &text);
    }
    let present = sriov.vfs.iter().filter_map(|vf| Some((vf, vf.present.as_ref()?)));
    let rows: Vec<_> = present.filter(|(vf, _)| tells(vf)).map(|(vf, present)| vf_row(vf, present)).collect();
    inner_table(
        out,
        &["VF", "BDF", "driver", "interface", "MAC", "VLAN", "link", "IOMMU", "representor", "port of"],
        &rows,
    );
}

/// A table below a function, without the columns in which no row has anything; none without rows.
fn inner_table<const N: usize>(out: &mut Paragraphs, header: &[&str; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    for row in out.columns(4, header, rows, in_use(rows)) {
        out.push_str(&row);
    }
}

fn vf_row(vf: &Vf, present: &PresentVf) -> [String; 10] {
    let interface = present.interface.as_ref();
    let attributes = present.attributes.as_ref();
    let representor = present.representor.as_ref();
    let driver = match (&present.driver, &present.driver_override) {
        (Some(driver), Some(forced)) if driver != forced => format!("{driver} (wants {forced})"),
        (None, Some(forced)) => format!("{NONE} (wants {forced})"),
        (driver, _) => or_none(driver.as_deref()),
    };
    // The PF's word is what frames are filtered by; many drivers report zeros until a MAC has been set.
    let mac = attributes
        .map(|state| state.mac)
        .filter(|mac| !mac.is_zero())
        .or(interface.map(|interface| interface.mac));
    let vlan =
        attributes.filter(|state| state.vlan.get() != 0).map_or(NONE.into(), |state| state.vlan.to_string());
    [
        vf.index.to_string(),
        vf.bdf.to_string(),
        driver,
        interface.map_or(NONE.into(), |interface| interface.name.to_string()),
        mac.map_or(NONE.into(), |mac| mac.to_string()),
        vlan,
        interface.map_or(NONE.into(), link),
        number(present.iommu_group),
        representor.map_or(NONE.into(), |representor| representor.interface.to_string()),
        representor
            .and_then(|representor| representor.master.as_ref())
            .map_or(NONE.into(), ToString::to_string),
    ]
}

fn nvme(inventory: &Inventory, out: &mut Paragraphs) {
    if inventory.nvme.is_empty() {
        return;
    }
    out.heading("NVMe controllers");
    let header = ["BDF", "name", "driver", "model", "serial", "NUMA", "IOMMU", "VFs"];
    let rows = inventory.nvme.iter().map(|controller| {
        [
            controller.bdf.to_string(),
            or_none(controller.name.as_deref()),
            or_none(controller.driver.as_deref()),
            or_none(controller.model.as_deref()),
            or_none(controller.serial.as_deref()),
            number(controller.numa_node),
            number(controller.iommu_group),
            count(controller.sriov.as_ref()),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let mut lines = columns(out, &header, &rows).into_iter();
    lines.next().iter().for_each(|line| out.push_str(line));
    for (controller, line) in inventory.nvme.iter().zip(lines) {
        out.push_str(&line);
        nvme_details(inventory, controller, out);
    }
}

fn nvme_details(inventory: &Inventory, controller: &NvmeController, out: &mut Paragraphs) {
    out.wrapped("    ", &what(&controller.identity));
    place(&controller.identity, out);
    firmware(controller.firmware.as_deref(), out);
    group(inventory, controller.bdf, controller.iommu_group, out);
    if let Some(sriov) = &controller.sriov {
        vfs(sriov, out);
    }
    if let Some(virtualization) = &controller.virtualization {
        nvme::details(virtualization, controller.sriov.as_ref(), out);
    }
}

fn cpus(inventory: &Inventory, out: &mut Paragraphs) {
    let cpus = &inventory.cpus;
    out.heading("CPUs");
    let model = if cpus.model.is_empty() { "unknown model" } else { &cpus.model };
    let threads = cpus.online.0.len();
    let cores = match cpus.siblings.len() {
        0 => String::new(),
        cores => format!("{}, ", counted(cores, "core")),
    };
    let text = format!("{}: {cores}{} ({})", plain(model), counted(threads, "thread"), set(&cpus.online));
    out.wrapped("  ", &text);
    if !cpus.isolated.0.is_empty() {
        out.wrapped("  ", &format!("isolated: {}", set(&cpus.isolated)));
    }
    if cpus.siblings.iter().any(|siblings| siblings.0.len() > 1) {
        out.wrapped("  ", &format!("SMT siblings: {}", sets(cpus.siblings.iter())));
    }
    if cpus.nodes.len() > 1 {
        for (node, members) in &cpus.nodes {
            out.wrapped("  ", &format!("NUMA node {node}: {}", set(members)));
        }
    }
    // Caches come sorted; a run of one level, kind and size is one line.
    for run in cpus.caches.chunk_by(|a, b| (a.level, &a.kind, a.size) == (b.level, &b.kind, b.size)) {
        out.wrapped("  ", &caches(run, &cpus.siblings));
    }
}

fn caches(run: &[Cache], siblings: &[CpuSet]) -> String {
    let Some(first) = run.first() else {
        return String::new();
    };
    let kind = match first.kind.as_str() {
        "Data" => "d".into(),
        "Instruction" => "i".into(),
        "Unified" => String::new(),
        other => format!(" {}", plain(other)),
    };
    let who = if run.iter().map(|cache| &cache.cpus).eq(siblings) {
        "one a core".to_owned()
    } else if let [cache] = run {
        format!("of {}", set(&cache.cpus))
    } else {
        format!("of {}", sets(run.iter().map(|cache| &cache.cpus)))
    };
    format!("L{}{kind} cache: {} x {}, {who}", first.level, run.len(), first.size)
}

fn memory(inventory: &Inventory, out: &mut Paragraphs) {
    out.heading("Huge pages");
    if inventory.huge_pages.is_empty() {
        out.wrapped("  ", "none: the kernel offers no sizes");
    }
    for pool in &inventory.huge_pages {
        out.wrapped("  ", &format!("{}: {} free of {}", pool.size, pool.free, pool.total));
    }
}

fn kernel(inventory: &Inventory, out: &mut Paragraphs) {
    let kernel = &inventory.kernel;
    out.heading("Kernel");
    let kind = if kernel.realtime { "real-time" } else { "not real-time" };
    out.wrapped("  ", &format!("{} ({kind})", plain(&kernel.release)));
    out.wrapped("  ", &plain(&kernel.command_line));
    let groups = inventory.iommu_groups.len();
    let iommu = match groups {
        0 => "IOMMU: off, or not there: no PCI function can be given to a VM".to_owned(),
        _ => format!("IOMMU: on, {}", counted(groups, "group")),
    };
    out.wrapped("  ", &iommu);
}

/// What nobody may want to lose, and where it goes.
fn lifelines(inventory: &Inventory, out: &mut Paragraphs) {
    let Some(lifelines) = &inventory.lifelines else { return };
    out.heading("Lifelines");
    for lifeline in &lifelines.found {
        let ways: Vec<String> = lifeline.paths.iter().map(ToString::to_string).collect();
        let ways = if ways.is_empty() { "over no device".to_owned() } else { ways.join("; ") };
        out.wrapped("  ", &plain(&format!("{}: {ways}", lifeline.kind)));
    }
    for unknown in &lifelines.unknown {
        out.wrapped("  ", &plain(&format!("{}: not known: {}", unknown.sort.word(), unknown.why)));
    }
    if lifelines.found.is_empty() && lifelines.unknown.is_empty() {
        out.wrapped("  ", "none were found");
    }
    for why in &lifelines.unseen {
        out.wrapped("  ", &plain(&format!("who has functions open through VFIO: not known: {why}")));
    }
    for (function, programs) in &lifelines.packet_programs {
        out.wrapped("  ", &plain(&format!("{function} has {}", programs.join(" and "))));
    }
    for why in &lifelines.unseen_packet_programs {
        out.wrapped("  ", &plain(&format!("XDP and tcx programs, queueing disciplines: not known: {why}")));
    }
}

/// What a function is, in words where the database has them and always in numbers.
fn what(identity: &PciIdentity) -> String {
    let names = [&identity.vendor_name, &identity.device_name];
    let mut text: String = names.into_iter().flatten().map(|name| plain(name) + " ").collect();
    let _ = write!(text, "[{:04x}:{:04x}]", identity.ids.vendor, identity.ids.device);
    text
}

/// What a model may know a function by, beside its MAC address.
fn place(identity: &PciIdentity, out: &mut Paragraphs) {
    let parts = [
        identity.slot.as_ref().map(|slot| format!("slot {slot}")),
        identity.label.as_ref().map(|label| format!("label {label}")),
        identity.onboard.map(|number| format!("onboard{number}")),
        identity.serial.map(|serial| format!("serial {serial}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        out.wrapped("    ", &plain(&parts.join(", ")));
    }
}

fn firmware(version: Option<&str>, out: &mut Paragraphs) {
    if let Some(version) = version {
        out.wrapped("    ", &plain(&format!("firmware {version}")));
    }
}

fn link(interface: &Interface) -> String {
    let speed = interface.speed.map(|mbits| match mbits {
        1000.. if mbits % 1000 == 0 => format!("{} Gbit/s", mbits / 1000),
        _ => format!("{mbits} Mbit/s"),
    });
    match (interface.up, interface.carrier) {
        (false, _) => "down".into(),
        (true, Some(false)) => "no carrier".into(),
        (true, _) => speed.unwrap_or("up".into()),
    }
}

const fn switch(mode: SwitchMode) -> &'static str {
    match mode {
        SwitchMode::Veb => "VEB",
        SwitchMode::Vepa => "VEPA",
        SwitchMode::Switchdev => "switchdev",
        SwitchMode::Unreported => NONE,
    }
}

fn count(sriov: Option<&Sriov>) -> String {
    sriov.map_or("none".into(), |sriov| format!("{}/{}", sriov.num_vfs, sriov.total_vfs))
}

fn number(value: Option<u32>) -> String {
    value.map_or(NONE.into(), |value| value.to_string())
}

fn or_none(text: Option<&str>) -> String {
    text.map_or(NONE.into(), plain)
}

fn set(cpus: &CpuSet) -> String {
    if cpus.0.is_empty() { "none".into() } else { cpus.to_string() }
}

fn sets<'a>(all: impl Iterator<Item = &'a CpuSet>) -> String {
    all.map(|cpus| format!("{{{cpus}}}")).collect::<Vec<_>>().join(" ")
}

/// Rows below a header; where that makes them fit a line, without the columns in which no row has anything.
fn columns<const N: usize>(out: &Paragraphs, header: &[&str; N], rows: &[[String; N]]) -> Vec<String> {
    let whole = out.columns(2, header, rows, [true; N]);
    let fits = |table: &[String]| table.iter().all(|row| row.lines().count() == 1);
    let used = out.columns(2, header, rows, in_use(rows));
    if fits(&used) && !fits(&whole) { used } else { whole }
}

/// The columns in which some row has something.
fn in_use<const N: usize>(rows: &[[String; N]]) -> [bool; N] {
    std::array::from_fn(|column| rows.iter().any(|row| row[column] != NONE))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{env, fs};

    use penstock_model::inventory::{
        Lifeline, LifelineKind, LifelinePath, LifelineSort, Lifelines, UnknownLifeline,
    };

    use super::*;

    const WIDTH: usize = 110;

    /// The recorded machines' inventories, as `scan` reads them, and the tables beside them. `UPDATE_GOLDEN=1` writes
    /// the tables anew.
    #[test]
    fn every_recorded_machine_is_shown_as_it_always_was() {
        let folder = penstock_testkit::sysfs::fixtures().join("inventory");
        let mut wrong = Vec::new();
        let mut seen = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            seen += 1;
            let inventory: Inventory = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let text = table(&inventory, Some(WIDTH));
            let kept = path.with_extension("txt");
            if env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&kept, &text).unwrap();
            }
            if fs::read_to_string(&kept).unwrap_or_default() != text {
                wrong.push(kept);
            }
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
                assert_eq!(line, line.trim_end());
            }
            for width in [40, 60, 80, 200] {
                let narrow = table(&inventory, Some(width));
                assert!(narrow.lines().all(|line| line.chars().count() <= width), "{width}: {narrow}");
                let macs = inventory.pfs.iter().filter_map(|pf| pf.permanent_mac.map(|mac| mac.to_string()));
                let functions = inventory.pfs.iter().map(|pf| pf.bdf.to_string());
                for whole in macs.chain(functions) {
                    assert!(narrow.contains(&whole), "{width}: {whole} in {narrow}");
                }
            }
            assert!(
                !table(&inventory, None).contains('…'),
                "nothing is cut where nobody says how wide it may be"
            );
        }
        assert!(seen >= 8 && wrong.is_empty(), "{seen} inventories; wrong: {wrong:?}");
    }

    #[test]
    fn columns_of_nothing_give_way_before_a_row_goes_on_in_the_next_line() {
        let out = Paragraphs::new(Some(40));
        let shown = |numa: &str| {
            let row = ["0000:01:00.0", "02:70:70:70:70:01", numa, "8"].map(str::to_owned);
            columns(&out, &["BDF", "MAC", "NUMA", "VFs"], &[row]).concat()
        };
        let one = "  BDF           MAC                VFs\n  0000:01:00.0  02:70:70:70:70:01  8\n";
        assert_eq!(shown(NONE), one);
        assert!(shown("0").contains("NUMA\n      VFs\n"), "{}", shown("0"));
    }

    #[test]
    fn a_host_without_sr_iov_is_told_what_a_model_can_give_there() {
        let mut inventory = penstock_testkit::models::machine(2, 8);
        let told = |inventory: &Inventory| {
            table(inventory, None).contains("A model may give guests ports of an embedded switch")
        };
        assert!(!told(&inventory));
        inventory.pfs.iter_mut().for_each(|pf| pf.sriov = None);
        assert!(told(&inventory));
    }

    #[test]
    fn lifelines_are_told_with_their_ways() {
        let mut inventory = Inventory::default();
        assert!(!table(&inventory, Some(WIDTH)).contains("Lifelines"), "not observed");
        let path = LifelinePath {
            names: vec!["bond0".to_owned(), "eno1".to_owned()],
            function: Some("04:00.0".parse().unwrap()),
        };
        inventory.lifelines = Some(Lifelines {
            found: vec![Lifeline { kind: LifelineKind::Root, paths: vec![path] }],
            unknown: vec![UnknownLifeline { sort: LifelineSort::Swap, why: "\u{1b}[2J".to_owned() }],
            packet_programs: [("04:00.0".parse().unwrap(), vec!["an XDP program at eno1".to_owned()])].into(),
            unseen_packet_programs: vec!["not permitted".to_owned()],
            ..Lifelines::default()
        });
        let text = table(&inventory, Some(WIDTH));
        assert!(text.contains("the root file system: bond0, eno1, 0000:04:00.0"), "{text}");
        assert!(text.contains("0000:04:00.0 has an XDP program at eno1"), "{text}");
        assert!(
            text.contains("XDP and tcx programs, queueing disciplines: not known: not permitted"),
            "{text}"
        );
        assert!(text.contains("swap: not known") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn outside_text_neither_steers_the_terminal_nor_breaks_the_width() {
        let mut inventory = Inventory::default();
        inventory.kernel.command_line = format!("\u{1b}[2J{}", "x".repeat(500));
        inventory.unknown.push("é".repeat(300));
        let controller = NvmeController {
            bdf: "01:00.0".parse().unwrap(),
            identity: PciIdentity::default(),
            driver: None,
            name: None,
            model: Some("m\r\n".repeat(200)),
            serial: Some("s".repeat(200)),
            firmware: Some("\u{1b}[2J".repeat(80)),
            numa_node: None,
            iommu_group: None,
            sriov: None,
            virtualization: None,
        };
        inventory.nvme.push(controller);
        let text = table(&inventory, Some(WIDTH));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("none: there is no Ethernet function"));
    }
}
