//! What an audit advises, as a profile.

use std::{collections::BTreeMap, fmt::Write};

use penstock_model::{
    audit::{Audit, AuditOutcome, Remedy, Row},
    yaml::shown,
};

use super::setting::{HUGE_PAGES, TunedSetting, TunedTarget, settings, swapped};
use crate::export::{Exported, ExportedFile};

/// The file that a profile's directory holds.
pub const TUNED_FILE: &str = "tuned.conf";

/// What puts right the rows that failed or contradict, as `tuned.conf`. Of several ways to put a row right it is the first that a profile
/// can go whole, or else what it can of the first.
///
/// A value that stands for something in such a file (`${`, ` #`, a line feed) is left out: the audit may be of a tree from elsewhere.
pub fn tuned_profile(audit: &Audit) -> Exported {
    let mut taken = Taken::default();
    for row in audit.rows.iter().filter(|row| is_wrong(row)) {
        taken.row(row);
    }
    let files = match taken.settings.is_empty() {
        true => Vec::new(),
        false => vec![ExportedFile { name: TUNED_FILE.to_owned(), text: taken.text(audit) }],
    };
    Exported { files, left_out: taken.left_out }
}

/// Whether a row asks for changes.
pub fn is_wrong(row: &Row) -> bool {
    matches!(row.verdict, AuditOutcome::Fail | AuditOutcome::Conflict)
}

/// The settings so far, each with the row that asked for it first.
#[derive(Default)]
struct Taken {
    settings: BTreeMap<TunedTarget, (String, String)>,
    beware: Vec<String>,
    left_out: Vec<String>,
}

impl Taken {
    fn row(&mut self, row: &Row) {
        let name = format!("{} ({})", row.rule, row.subject);
        let whole = |way: &&Remedy| way.changes.iter().all(|change| settings(change).is_ok());
        let Some(way) = row.ways.iter().find(whole).or(row.ways.first()) else {
            self.left_out.push(format!("{name}: the audit advises no change"));
            return;
        };
        let before = self.settings.len();
        for change in &way.changes {
            match settings(change) {
                Ok(all) => all.into_iter().for_each(|setting| self.add(setting, &name)),
                Err(why) => self.left_out.push(format!("{name}: {why}")),
            }
        }
        if let Some(beware) = &way.beware
            && self.settings.len() > before
            && is_plain(beware)
        {
            self.beware.push(format!("{}: {beware}", row.rule));
        }
    }

    fn add(&mut self, TunedSetting { target, value }: TunedSetting, row: &str) {
        let is_pattern = matches!(&target, TunedTarget::File(path) if path.contains(['=', '*', '?', '[']));
        if is_pattern || !is_plain(&target.to_string()) || !is_plain(&value) {
            self.left_out.push(format!("{row}: {target} = {} cannot be written in a profile", shown(&value)));
            return;
        }
        match self.settings.get(&target) {
            Some((other, by)) if *other != value => self.left_out.push(format!(
                "{row}: {target} would be {}, and is {} for {by}: one value has to do for both",
                shown(&value),
                shown(other)
            )),
            Some(_) => {}
            None => {
                self.settings.insert(target, (value, row.to_owned()));
            }
        }
    }

    fn text(&self, audit: &Audit) -> String {
        let mut text = String::from(
            "# What `penstock audit` advises for the machine that it looked at. To use it beside the profile that is active:\n\
             #   mkdir /etc/tuned/profiles/penstock (up to TuneD 2.22: /etc/tuned/penstock), put this there as tuned.conf, and run\n\
             #   `tuned-adm profile ACTIVE penstock`\n",
        );
        for line in &self.beware {
            let _ = writeln!(text, "# Beware, {line}");
        }
        let kernel = if is_plain(&audit.kernel) { audit.kernel.as_str() } else { "of a strange name" };
        let _ = writeln!(
            text,
            "\n[main]\nsummary=Advice of penstock audit for kernel {kernel}, CPUs {}",
            audit.cpus
        );
        let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut words = Vec::new();
        let mut options: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (target, (value, _)) in &self.settings {
            match target {
                TunedTarget::File(path) if path == HUGE_PAGES => {
                    sections.entry("vm").or_default().push(format!("transparent_hugepages={value}"));
                }
                TunedTarget::File(path) => match path.strip_prefix("/proc/sys/") {
                    Some(name) => {
                        sections.entry("sysctl").or_default().push(format!("{}={value}", swapped(name)));
                    }
                    None => sections.entry("sysfs").or_default().push(format!("{path}={value}")),
                },
                TunedTarget::BootWord(key) if value.is_empty() => words.push(key.clone()),
                TunedTarget::BootWord(key) => words.push(format!("{key}={value}")),
                TunedTarget::ModuleOption(module, option) => {
                    options.entry(module).or_default().push(format!("{option}={value}"));
                }
                TunedTarget::Unit(unit) => {
                    sections.entry("service").or_default().push(format!("service.{unit}={value}"));
                }
                TunedTarget::BannedCpus => {
                    sections.entry("irqbalance").or_default().push(format!("banned_cpus={value}"));
                }
            }
        }
        if !words.is_empty() {
            sections.insert("bootloader", vec![format!("cmdline_penstock=+{}", words.join(" "))]);
        }
        for (module, options) in options {
            sections.entry("modules").or_default().push(format!("{module}={}", options.join(" ")));
        }
        for (section, lines) in sections {
            let _ = writeln!(text, "\n[{section}]\n{}", lines.join("\n"));
        }
        text
    }
}

/// Whether text stands for itself in a profile: white space and quotes around a value are none of it there.
fn is_plain(text: &str) -> bool {
    text == text.trim_matches([' ', '"', '\''])
        && !text.ends_with('\\')
        && !text.contains("${")
        && !text.contains(" #")
        && !text.contains(" ;")
        && !text.contains(char::is_control)
}
