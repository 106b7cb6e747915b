//! How the running kernel was built (`CONFIG_IKCONFIG_PROC`, or the copy that distributions put beside the kernel).

use std::{collections::BTreeMap, io::Read};

use flate2::read::GzDecoder;
use penstock_model::inventory::tuning::Reading;

use crate::scan::reader::Reader;

/// The options that a rule asks for, without `CONFIG_`.
const OPTIONS: [&str; 8] = [
    "CPU_MITIGATIONS",
    "IRQ_FORCED_THREADING",
    "NO_HZ_FULL",
    "PREEMPT_RT",
    "RCU_NOCB_CPU",
    "RT_GROUP_SCHED",
    "RT_GROUP_SCHED_DEFAULT_DISABLED",
    "SCHED_DEBUG",
];
/// The kernel's own copy, compressed.
const OWN: &str = "/proc/config.gz";
/// Room for it: 60 KiB in Debian 13's kernel.
const COMPRESSED: usize = 1 << 20;
/// Room for what comes out of it: 280 KiB there. A tree that somebody made up could ask for all memory otherwise.
const TEXT: u64 = 8 << 20;

/// The options of the kernel with this release. Absent: nobody kept them.
pub(super) fn build(release: &str, reader: &mut Reader<'_>) -> Reading<BTreeMap<String, String>> {
    match reader.compressed(OWN, COMPRESSED, unpacked) {
        Reading::Absent => {}
        Reading::Is(text) => return Reading::Is(options(&text)),
        other => return other.map(|_| BTreeMap::new()),
    }
    // A release is part of a path here, and may be anybody's.
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-_.~".contains(c);
    if release.is_empty() || release.starts_with('.') || !release.chars().all(plain) {
        return Reading::Absent;
    }
    let mut last = Reading::Absent;
    let copies = ["/boot/config-RELEASE", "/lib/modules/RELEASE/config", "/usr/lib/modules/RELEASE/config"];
    for path in copies.map(|path| path.replace("RELEASE", release)) {
        match reader.part_of(&path, kept) {
            Reading::Is(text) => return Reading::Is(options(&text)),
            Reading::Absent => {}
            other => last = other.map(|_| BTreeMap::new()),
        }
    }
    last
}

fn unpacked(bytes: &[u8]) -> Result<String, String> {
    let mut text = String::new();
    let mut from = GzDecoder::new(bytes).take(TEXT);
    from.read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(kept(&text))
}

/// The lines of the options that are asked for, those that are not set among them.
fn kept(text: &str) -> String {
    let asked = |line: &&str| {
        let name = line.strip_prefix("# ").unwrap_or(line).strip_prefix("CONFIG_");
        let name = name.and_then(|line| line.split(['=', ' ']).next());
        name.is_some_and(|name| OPTIONS.contains(&name))
    };
    text.lines().filter(asked).flat_map(|line| [line, "\n"]).collect()
}

fn options(text: &str) -> BTreeMap<String, String> {
    let set = text.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='));
    set.map(|(name, value)| (name.to_owned(), value.chars().take(40).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_kept() {
        let text = "CONFIG_RT_GROUP_SCHED=y\n# CONFIG_PREEMPT_RT is not set\nCONFIG_SECRET=\"x\"\nCONFIG_NO_HZ_FULL=y\n";
        assert_eq!(
            kept(text),
            "CONFIG_RT_GROUP_SCHED=y\n# CONFIG_PREEMPT_RT is not set\nCONFIG_NO_HZ_FULL=y\n"
        );
        let found: Vec<String> =
            options(&kept(text)).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(found, ["NO_HZ_FULL=y", "RT_GROUP_SCHED=y"]);
    }
}
