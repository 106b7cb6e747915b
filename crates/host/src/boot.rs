//! Which run of the kernel this is, and how long it has lasted.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::{Root, files};

/// The kernel's name for this run of itself (`/proc/sys/kernel/random/boot_id`): another one after every reset. `None`
/// where it does not tell.
pub fn id(root: &Root) -> Option<String> {
    let text = files::read_to_string(root.path("/proc/sys/kernel/random/boot_id")).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// How long the kernel has run, time asleep included (`CLOCK_BOOTTIME`): nobody sets this clock, and every process reads the
/// same.
pub fn elapsed() -> Duration {
    // The clock is there since Linux 2.6.39, so that the default never comes about.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// Whether systemd is what runs the services of this machine (sd_booted(3)), and this process sees the machine as it does:
/// in the same network and mount namespaces.
pub fn systemd_serves_us() -> bool {
    let root = Root::system();
    let shared = |kind: &str| {
        let ours = files::read_link(root.path(format!("/proc/self/ns/{kind}")));
        let first = files::read_link(root.path(format!("/proc/1/ns/{kind}")));
        matches!((ours, first), (Ok(ours), Ok(first)) if ours == first)
    };
    files::exists(root.path("/run/systemd/system")) && shared("net") && shared("mnt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_and_the_boot_has_a_name() {
        let before = elapsed();
        assert!(before > Duration::ZERO);
        assert!(elapsed() >= before);
        assert_eq!(id(&Root::system()), id(&Root::system()));
        assert!(id(&Root::system()).is_some_and(|id| id.len() == 36));
    }
}
