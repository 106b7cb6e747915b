//! What an NVMe drive says of its VFs and namespaces, as a person reads it.

use penstock_model::{
    inventory::{FlexibleResources, NvmeVirtualization, SecondaryController, Sriov},
    text::one_line as plain,
};

use super::{NONE, inner_table, or_none};
use crate::ui::paragraphs::Paragraphs;

/// What is free for VFs, what each of them has, and the namespaces.
pub(super) fn details(drive: &NvmeVirtualization, sriov: Option<&Sriov>, out: &mut Paragraphs) {
    let held = |of: fn(&SecondaryController) -> u16| drive.secondary.iter().map(|vf| u32::from(of(vf))).sum();
    let queues = resources("queue pairs", drive.queues, held(|vf| vf.queues));
    let interrupts = resources("interrupts", drive.interrupts, held(|vf| vf.interrupts));
    out.wrapped("    ", &format!("controller {}; for VFs: {queues}; {interrupts}", drive.controller));
    // Of VFs that the VF count leaves out only those that have something.
    let present = sriov.map_or(0, |sriov| sriov.num_vfs);
    let shown = drive
        .secondary
        .iter()
        .filter(|vf| vf.vf.get() < present || vf.online || vf.queues > 0 || vf.interrupts > 0);
    let rows: Vec<_> = shown.map(secondary).collect();
    inner_table(out, &["VF", "controller", "queues", "interrupts", "state"], &rows);
    let rows = drive.namespaces.iter().map(|(number, namespace)| {
        let attached: Vec<String> = namespace.controllers.iter().map(|id| controller(drive, *id)).collect();
        [
            number.to_string(),
            namespace.size.to_string(),
            if attached.is_empty() { NONE.to_owned() } else { attached.join(", ") },
            or_none(namespace.device.as_deref()),
            namespace.used.as_deref().map_or(NONE.to_owned(), plain),
        ]
    });
    let rows: Vec<_> = rows.collect();
    inner_table(out, &["namespace", "size", "attached to", "device", "use"], &rows);
}

fn resources(what: &str, of: FlexibleResources, given: u32) -> String {
    let FlexibleResources { total, most, held_by_pf } = of;
    if total == 0 {
        return format!("no {what}");
    }
    let free = total.saturating_sub(given).saturating_sub(held_by_pf.into());
    let held = if held_by_pf == 0 { String::new() } else { format!(", {held_by_pf} held by the PF") };
    format!("{free} of {total} {what} free, at most {most} each{held}")
}

fn secondary(of: &SecondaryController) -> [String; 5] {
    [
        of.vf.to_string(),
        of.controller.to_string(),
        of.queues.to_string(),
        of.interrupts.to_string(),
        if of.online { "on line" } else { "off line" }.to_owned(),
    ]
}

/// Whose controller it is; another port of the drive can have some, too.
fn controller(drive: &NvmeVirtualization, id: u16) -> String {
    if id == drive.controller {
        return "PF".to_owned();
    }
    let vf = drive.secondary.iter().find(|secondary| secondary.controller == id);
    vf.map_or_else(|| format!("controller {id}"), |secondary| format!("VF {}", secondary.vf))
}

#[cfg(test)]
mod tests {
    use penstock_model::{ByteSize, VfIndex, inventory::NvmeNamespace};

    use super::*;

    #[test]
    fn what_a_drive_has_for_vfs_and_whose_namespaces_are() {
        let vf = |vf, controller, online, queues, interrupts| SecondaryController {
            vf: VfIndex::new(vf).unwrap(),
            controller,
            online,
            queues,
            interrupts,
        };
        let namespace = |controllers: &[u16], device: Option<&str>, used: Option<&str>| NvmeNamespace {
            size: ByteSize(64 << 20),
            shared: true,
            controllers: controllers.iter().copied().collect(),
            device: device.map(str::to_owned),
            used: used.map(str::to_owned),
        };
        let drive = NvmeVirtualization {
            controller: 0,
            queues: FlexibleResources { total: 9, most: 3, held_by_pf: 2 },
            interrupts: FlexibleResources::default(),
            secondary: vec![vf(0, 1, true, 3, 0), vf(1, 2, false, 0, 0), vf(2, 3, false, 0, 0)],
            attaches_namespaces: true,
            namespaces: [
                (1, namespace(&[0], Some("nvme0n1"), Some("mounted on the host at /var"))),
                (2, namespace(&[1, 9], None, None)),
                (3, namespace(&[], None, None)),
            ]
            .into(),
        };
        let sriov = Sriov {
            total_vfs: 3,
            num_vfs: 2,
            autoprobe: false,
            first_vf_offset: 1,
            vf_stride: 1,
            vf_device: 0x10,
            vfs: Vec::new(),
        };
        let mut out = Paragraphs::new(Some(110));
        details(&drive, Some(&sriov), &mut out);
        let text = out.finish();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            "controller 0; for VFs: 4 of 9 queue pairs free, at most 3 each, 2 held by the PF; no interrupts",
            "VF controller queues interrupts state",
            "0 1 3 0 on line",
            "1 2 0 0 off line",
            "namespace size attached to device use",
            "1 64MiB PF nvme0n1 mounted on the host at /var",
            "2 64MiB VF 0, controller 9 - -",
            "3 64MiB - - -",
        ];
        let expected: Vec<Vec<&str>> = expected.iter().map(|line| line.split(' ').collect()).collect();
        assert_eq!(lines, expected, "{text}");
    }
}
