//! What each VM of a model is, so that nothing is lost where a domain says it: what Penstock writes into domains, and what libvirt adds to them.

use super::{attribute, child};
use crate::import::{
    foreign::{ForeignFields, ForeignNode},
    xml::TEXT,
};

/// Passes over what of a domain is so of each VM of a model.
pub fn of_each_vm(domain: &mut ForeignFields<'_>) {
    domain.pass_over_usual("features", |features| {
        has_only(features, &["acpi", "apic"])
            && features.entries().iter().all(|(_, feature)| feature.is_null())
    });
    domain.pass_over_usual("cpu", |cpu| {
        has_only(cpu, &["mode", "check", "migratable"])
            && attribute(cpu, "mode") == Some("host-passthrough")
            && attribute(cpu, "check").is_none_or(|check| check == "none")
            && attribute(cpu, "migratable") == Some("off")
    });
    domain.pass_over_usual("clock", |clock| {
        has_only(clock, &["offset"]) && attribute(clock, "offset") == Some("utc")
    });
    for (key, usual) in [("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")] {
        domain.pass_over_usual(key, |action| action.text() == Some(usual));
    }
}

/// The same of its devices.
pub fn of_each_vms_devices(devices: &mut ForeignFields<'_>) {
    // Where the others are is libvirt's choice.
    devices.pass_over_usual("controller", |controller| match attribute(controller, "type") {
        Some("usb") => attribute(controller, "model") == Some("none"),
        Some("pci" | "virtio-serial") => true,
        _ => false,
    });
    devices.pass_over_usual("serial", |serial| is_terminal(serial, &["isa-serial"]));
    devices.pass_over_usual("console", |console| is_terminal(console, &["serial"]));
    devices.pass_over_usual("rng", |rng| {
        let backend = child(rng, "backend");
        has_only(rng, &["model", "backend", "alias", "address"])
            && attribute(rng, "model") == Some("virtio")
            && backend.is_some_and(|backend| {
                attribute(&backend, "model") == Some("random")
                    && attribute(&backend, TEXT) == Some("/dev/urandom")
            })
    });
    devices.pass_over_usual("memballoon", |balloon| attribute(balloon, "model") == Some("none"));
}

/// Whether this is the first serial line, of one of these kinds, by a terminal of the host: on it each VM of a model has its console. What libvirt
/// adds while it runs is the terminal's path.
fn is_terminal(at: &ForeignNode<'_>, kinds: &[&str]) -> bool {
    let target = child(at, "target");
    has_only(at, &["type", "tty", "source", "target", "alias"])
        && attribute(at, "type") == Some("pty")
        && target.is_some_and(|target| {
            attribute(&target, "type").is_some_and(|kind| kinds.contains(&kind))
                && attribute(&target, "port").is_none_or(|port| port == "0")
        })
}

/// Whether it is made of these alone.
fn has_only(at: &ForeignNode<'_>, known: &[&str]) -> bool {
    at.text().is_none() && at.entries().iter().all(|(key, _)| known.contains(key))
}
