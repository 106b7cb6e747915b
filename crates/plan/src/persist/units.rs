//! The units of systemd that apply a model at boot.
//!
//! Two, because of the order: VFs are to be there before the network is configured and before any other guest can start,
//! but libvirt, which runs our VMs, starts after the network.

use penstock_model::GuestKind;

use super::{MODEL, Wanted};

/// Makes VFs with their attributes.
pub const NICS_UNIT: &str = "penstock-nics.service";
/// Starts the model's guests; there is no such unit for a model without guests.
pub const GUESTS_UNIT: &str = "penstock-guests.service";
/// Where the administrator's units are (systemd.unit(5)).
pub const UNIT_DIRECTORY: &str = "/etc/systemd/system";
/// What starts them.
pub const WANTED_BY: &str = "multi-user.target";

/// Who has guests or networks of its own that may want our VFs. An order against a unit that is not there has no effect.
const OTHERS: &str = "libvirtd.service virtqemud.service virtnetworkd.service libvirt-guests.service lxc.service lxc-net.service incus.service docker.service containerd.service pve-guests.service openvswitch-switch.service";

/// Each unit, with its text where there is to be one.
pub fn units(wanted: &Wanted<'_>) -> [(&'static str, Option<String>); 2] {
    let guests = (!wanted.model.guests.is_empty()).then(|| guests(wanted));
    [(NICS_UNIT, Some(nics(wanted))), (GUESTS_UNIT, guests)]
}

fn nics(wanted: &Wanted<'_>) -> String {
    format!(
        "\
# Made by `penstock apply --persist`; `penstock undo --persist` takes it away.
[Unit]
Description=VFs of {MODEL}
# With `penstock=off` on the kernel's command line the machine starts without.
ConditionKernelCommandLine=!penstock=off
# cloud-init wants the network before sysinit.target: that must not wait for this.
DefaultDependencies=no
RequiresMountsFor=/etc/penstock /var/lib/penstock {program}
# For its NICs it waits itself, each by name: systemd-udev-settle waits for every device of the machine.
After=local-fs.target systemd-modules-load.service systemd-sysctl.service
After=systemd-udevd.service systemd-udev-trigger.service
# NetworkManager, systemd-networkd and ifupdown all start after network-pre.target.
Wants=network-pre.target
Before=network-pre.target shutdown.target
Before={OTHERS}
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command}
TimeoutStartSec=180

[Install]
WantedBy={WANTED_BY}
",
        program = path(wanted.program),
        command = command(wanted, "nics"),
    )
}

fn guests(wanted: &Wanted<'_>) -> String {
    let waits: u64 = wanted
        .model
        .guests
        .values()
        .map(|guest| match guest.kind {
            GuestKind::Vm => u64::from(guest.vm.ready_within),
            GuestKind::Container => 30,
        })
        .sum();
    format!(
        "\
# Made by `penstock apply --persist`; `penstock undo --persist` takes it away.
[Unit]
Description=Guests of {MODEL}
ConditionKernelCommandLine=!penstock=off
Requires={NICS_UNIT}
After={NICS_UNIT} network.target
After=libvirtd.service libvirtd.socket virtqemud.service virtqemud.socket

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command}
# A guest that fails does so alone: what the others run with must not be ended with this.
KillMode=process
TimeoutStartSec={timeout}

[Install]
WantedBy={WANTED_BY}
",
        command = command(wanted, "guests"),
        timeout = 120 + waits,
    )
}

fn command(wanted: &Wanted<'_>, phase: &str) -> String {
    let words = [wanted.program, "at-boot", phase, MODEL];
    let words = words.into_iter().chain(wanted.options.iter().map(String::as_str));
    words.map(in_words_of_systemd).collect::<Vec<_>>().join(" ")
}

/// A word as `ExecStart=` takes it (systemd.service(5), "Command lines"): specifiers and variables are not expanded in it.
pub fn in_words_of_systemd(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@#=,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '%' => text.push_str("%%"),
            '$' => text.push_str("$$"),
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// A path as `RequiresMountsFor=` takes it.
fn path(path: &str) -> String {
    if path.contains([' ', '"', '\\', '%']) {
        in_words_of_systemd(path).replace("$$", "$")
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::in_words_of_systemd;

    #[test]
    fn words_reach_the_program_as_they_are() {
        for (word, written) in [
            ("NET0=02:00:00:00:00:01", "NET0=02:00:00:00:00:01"),
            ("mount:/srv/my data", "\"mount:/srv/my data\""),
            ("50%", "\"50%%\""),
            ("$HOME\"\\", "\"$$HOME\\\"\\\\\""),
            ("", "\"\""),
        ] {
            assert_eq!(in_words_of_systemd(word), written);
        }
    }
}
