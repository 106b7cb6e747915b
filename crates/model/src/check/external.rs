//! NICs that somebody else manages: a model uses their VFs and asks for nothing that would have to be set.

use super::Subject;
use crate::{
    NicName, VfKey,
    diagnostic::{Diagnostic, Path},
};

pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    for (name, nic) in model.nics.iter().filter(|(_, nic)| nic.externally_managed) {
        if super::full(subject.messages) {
            return;
        }
        let path = Path::of(["nics", name.as_str()]);
        let host = subject.host.iter().find(|host| host.nic == *name);
        let address = host.and_then(|host| host.addresses.first()).map(|(_, place)| place.clone());
        let asked = [
            ("loopback", nic.loopback.is_some().then(|| path.join("loopback"))),
            ("eswitch", nic.eswitch.is_some().then(|| path.join("eswitch"))),
            ("mtu", nic.mtu.is_some().then(|| path.join("mtu"))),
            ("interface", nic.interface.is_some().then(|| path.join("interface"))),
            ("addresses", address),
            ("free", nic.free_driver.is_some().then(|| path.join("free"))),
        ];
        for (key, place) in asked {
            subject.messages.extend(place.map(|place| refused(name, key, place)));
        }
        for key in nic.vf_defaults.values().map(|(key, _)| key.name()) {
            subject.messages.push(refused(name, key, path.join("defaults").join(key)));
        }
    }
    for owned in subject.owned {
        let name = &owned.function.name.nic;
        if super::full(subject.messages) || !model.nics.get(name).is_some_and(|nic| nic.externally_managed) {
            continue;
        }
        if owned.function.name.vf.is_none() {
            subject.messages.push(
                Diagnostic::error(
                    owned.name_path(),
                    format!("{name} is externally managed, so that its PF cannot go to {}", owned.guest),
                )
                .with_related(at(name), "said here")
                .with_hint("give it a VF; or remove `externally_managed`"),
            );
            continue;
        }
        let settings = owned.written.settings();
        for key in settings.values().map(|(key, _)| key).filter(|key| *key != VfKey::Mac) {
            subject.messages.push(refused(name, key.name(), owned.path.join(key.name())));
        }
    }
}

fn at(name: &NicName) -> Path {
    Path::of(["nics", name.as_str(), "externally_managed"])
}

fn refused(name: &NicName, key: &str, place: Path) -> Diagnostic {
    Diagnostic::error(place, format!("`{key}` would have to be set, and {name} is externally managed"))
        .at_key()
        .with_related(at(name), "said here")
        .with_hint("leave it to whoever makes the VFs; or remove `externally_managed`")
}
