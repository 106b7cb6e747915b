//! The units of systemd that apply a model at boot.
//!
//! Two, because of the order: VFs are to be there before the network is configured and before any other guest can start,
//! but libvirt, which runs our VMs, starts after the network.

use super::{JOURNALS, MODEL, Wanted};
use crate::action::{GUEST_LIMIT, STEP_LIMIT};

/// Makes VFs with their attributes.
pub const NICS_UNIT: &str = "penstock-nics.service";
/// Starts the model's guests, and sets once more what others reset as they start; there is no such unit for a model with neither guests nor
/// real time.
pub const GUESTS_UNIT: &str = "penstock-guests.service";
/// Where the administrator's units are (systemd.unit(5)).
pub const UNIT_DIRECTORY: &str = "/etc/systemd/system";
/// What starts them.
pub const WANTED_BY: &str = "multi-user.target";

/// Who has guests or networks of its own that may want our VFs. An order against a unit that is not there has no effect.
const OTHERS: &str = "libvirtd.service virtqemud.service virtnetworkd.service libvirt-guests.service lxc.service lxc-net.service incus.service docker.service containerd.service pve-guests.service openvswitch-switch.service";

/// Each unit, with its text where there is to be one.
pub fn units(wanted: &Wanted<'_>) -> [(&'static str, Option<String>); 2] {
    let any = !wanted.model.guests.is_empty() || wanted.model.realtime.is_some();
    let guests = any.then(|| guests(wanted));
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
RequiresMountsFor=/etc/penstock {JOURNALS} {program}
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
{environment}ExecStart={command}
TimeoutStartSec=180

[Install]
WantedBy={WANTED_BY}
",
        program = unexpanded(wanted.program),
        environment = environment(wanted),
        command = command(wanted, "nics"),
    )
}

fn guests(wanted: &Wanted<'_>) -> String {
    let model = wanted.model;
    let count = model.guests.len() as u64;
    // Each step has its own limit, so that this is for a program that hangs: a start for each guest and what comes before it.
    let starts = count * (STEP_LIMIT + GUEST_LIMIT).as_secs();
    let stops = count * GUEST_LIMIT.as_secs();
    let shares = model.guests.values().filter_map(|guest| guest.realtime.as_ref());
    let shares = shares.map(|realtime| realtime.cache.is_some() || realtime.memory_bandwidth.is_some());
    // A line of /etc/fstab comes first, with the options that somebody chose.
    let mount = match shares.fold(false, |any, one| any | one) {
        true => {
            "ExecStartPre=-/bin/sh -c 'test -e /sys/fs/resctrl/schemata || mount -t resctrl resctrl /sys/fs/resctrl'\n"
        }
        false => "",
    };
    format!(
        "\
# Made by `penstock apply --persist`; `penstock undo --persist` takes it away.
[Unit]
Description=Guests of {MODEL}
ConditionKernelCommandLine=!penstock=off
Requires={NICS_UNIT}
After={NICS_UNIT} network.target
After=libvirtd.service libvirtd.socket virtqemud.service virtqemud.socket
# They set frequencies and move interrupts when they start: what the model says of these comes after.
After=tuned.service irqbalance.service power-profiles-daemon.service

[Service]
Type=oneshot
RemainAfterExit=yes
{environment}{mount}ExecStart={command}
# A guest that fails does so alone: what the others run with must not be ended with this.
KillMode=process
TimeoutStartSec={start}
TimeoutStopSec={stop}

[Install]
WantedBy={WANTED_BY}
",
        environment = environment(wanted),
        command = command(wanted, "guests"),
        start = 2 * STEP_LIMIT.as_secs() + starts + stops + wanted.waits.as_secs(),
        stop = 2 * STEP_LIMIT.as_secs() + stops,
    )
}

fn environment(wanted: &Wanted<'_>) -> String {
    let line = |named: &str| format!("Environment={}\n", unexpanded(&format!("PENSTOCK_PATH={named}")));
    wanted.search_path.map(line).unwrap_or_default()
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

/// A word as `RequiresMountsFor=` and `Environment=` take it, which know no variables.
fn unexpanded(word: &str) -> String {
    in_words_of_systemd(word).replace("$$", "$")
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
