//! What irqbalance was told (`irqbalance(1)`, "ENVIRONMENT VARIABLES").

use std::collections::BTreeMap;

use penstock_model::inventory::tuning::{Irqbalance, Reading};

use crate::scan::reader::Reader;

/// Debian and those after it; Red Hat, SUSE and those after them.
const SETTINGS: [&str; 2] = ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"];
/// Drop-ins of its unit, which say `Environment=`.
const DROP_INS: &str = "/etc/systemd/system/irqbalance.service.d";
const PREFIX: &str = "IRQBALANCE_BANNED_";

/// What the irqbalance that runs as process `id` was told.
pub(super) fn irqbalance(id: u32, reader: &mut Reader<'_>) -> Irqbalance {
    // Of everybody's environment only these variables are anybody's business.
    let environment = reader.part_of(&format!("/proc/{id}/environ"), |text| {
        let ours = text.split(['\0', '\n']).filter(|variable| variable.starts_with(PREFIX));
        ours.flat_map(|variable| [variable, "\n"]).collect()
    });
    let environment = environment.map(|text| text.lines().filter_map(variable).collect());
    let mut settings = BTreeMap::new();
    for name in reader.list(DROP_INS).into_iter().filter(|name| name.ends_with(".conf")).take(100) {
        // Of its words too only these are anybody's business.
        let text = reader.part_of(&format!("{DROP_INS}/{name}"), |text| {
            let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("Environment="));
            let words = lines.flat_map(str::split_whitespace).map(|word| word.trim_matches(['"', '\'']));
            let ours = words.filter(|word| word.starts_with(PREFIX));
            ours.flat_map(|word| ["Environment=", word, "\n"]).collect()
        });
        let lines = text.known().into_iter().flat_map(|text| text.lines());
        settings.extend(lines.filter_map(|line| variable(line.strip_prefix("Environment=")?)));
    }
    let mut file = None;
    for path in SETTINGS {
        let text = reader.part_of(path, |text| {
            let ours = text.lines().map(str::trim_start).filter(|line| line.starts_with(PREFIX));
            ours.flat_map(|line| [line, "\n"]).collect()
        });
        // What a file says is set over what its unit says (systemd.exec(5), EnvironmentFile=).
        if let Reading::Is(text) = text {
            file = file.or(Some(path.to_owned()));
            settings.extend(text.lines().filter_map(variable));
        }
    }
    Irqbalance { environment, settings, file }
}

fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.trim().split_once('=')?;
    let plain = |c: &char| !c.is_control();
    let value: String = value.trim_matches(['"', '\'']).chars().filter(plain).take(1000).collect();
    name.starts_with(PREFIX).then(|| (name.to_owned(), value))
}
