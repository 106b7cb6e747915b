//! Switches of the boot command line that leave a weakness of the CPU open (`Documentation/admin-guide/hw-vuln/`,
//! `Documentation/admin-guide/kernel-parameters.txt`).

use crate::machine::Machine;

/// A switch that leaves something open.
pub(super) struct Switch {
    /// Its name, with `_` for every `-`.
    key: &'static str,
    /// Its value; empty for a word without one.
    value: &'static str,
    /// Whether guests can use what it leaves open, against the host or each other.
    guests: bool,
}

const fn of_guests(key: &'static str, value: &'static str) -> Switch {
    Switch { key, value, guests: true }
}

const fn of_programs(key: &'static str, value: &'static str) -> Switch {
    Switch { key, value, guests: false }
}

/// Every single switch; `mitigations=` is looked at by itself.
pub(super) const SWITCHES: [Switch; 30] = [
    of_guests("gather_data_sampling", "off"),
    of_guests("indirect_target_selection", "off"),
    of_guests("kvm_intel.vmentry_l1d_flush", "never"),
    of_programs("kpti", "0"),
    of_programs("kpti", "off"),
    of_guests("l1tf", "off"),
    of_guests("mds", "off"),
    of_guests("mmio_stale_data", "off"),
    of_programs("nopti", ""),
    of_programs("nospec_store_bypass_disable", ""),
    of_guests("nospectre_bhb", ""),
    of_programs("nospectre_v1", ""),
    of_guests("nospectre_v2", ""),
    of_programs("no_entry_flush", ""),
    of_programs("no_rfi_flush", ""),
    of_programs("no_stf_barrier", ""),
    of_programs("no_uaccess_flush", ""),
    of_programs("pti", "off"),
    of_guests("reg_file_data_sampling", "off"),
    of_guests("retbleed", "off"),
    of_guests("spec_rstack_overflow", "off"),
    of_programs("spec_store_bypass_disable", "off"),
    of_guests("spectre_bhi", "off"),
    of_guests("spectre_v2", "off"),
    of_programs("spectre_v2_user", "off"),
    of_guests("srbds", "off"),
    of_programs("ssbd", "force-off"),
    of_guests("tsa", "off"),
    of_guests("tsx_async_abort", "off"),
    of_guests("vmscape", "off"),
];

/// The attack vectors that `mitigations=` can leave open (Linux 6.17 on), and whether guests can use them.
const VECTORS: [(&str, bool); 5] = [
    ("no_cross_thread", true),
    ("no_guest_guest", true),
    ("no_guest_host", true),
    ("no_user_kernel", false),
    ("no_user_user", false),
];

/// What the command line leaves open.
#[derive(Default)]
pub(super) struct Open {
    /// Words that switch something off: `retbleed=off`, `mitigations=off`.
    pub(super) words: Vec<String>,
    /// Attack vectors that `mitigations=` leaves open: `no_guest_host`, `no_user_kernel`.
    pub(super) vectors: Vec<&'static str>,
}

impl Open {
    /// What the command line of this machine leaves open; with `guests_only` what guests can use.
    pub(super) fn of(machine: &Machine<'_>, guests_only: bool) -> Open {
        let line = &machine.line;
        let mut open = Open::default();
        let parts = line.parts("mitigations");
        if parts.contains(&"off") {
            open.words.push("mitigations=off".to_owned());
        } else {
            let there =
                VECTORS.iter().filter(|(vector, guests)| parts.contains(vector) && (*guests || !guests_only));
            open.vectors = there.map(|(vector, _)| *vector).collect();
        }
        for switch in SWITCHES.iter().filter(|switch| switch.guests || !guests_only) {
            let Switch { key, value, .. } = switch;
            match *value {
                "" if line.has(key) => open.words.push((*key).to_owned()),
                "" => {}
                value if line.says(key, value) => open.words.push(format!("{key}={value}")),
                _ => {}
            }
        }
        open
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.vectors.is_empty()
    }

    /// All of it in words.
    pub(super) fn text(&self) -> String {
        let mut words = self.words.clone();
        if !self.vectors.is_empty() {
            words.push(format!("mitigations= with {}", self.vectors.join(" and ")));
        }
        words.join(", ")
    }
}
