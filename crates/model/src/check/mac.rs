//! Every MAC address once: those written, those of PFs, and those derived where the PF's is known.

use std::collections::HashMap;

use super::{Subject, unusable, uplink};
use crate::{
    FunctionName, Mac, VfIndex,
    diagnostic::{Diagnostic, Path},
};

/// Who has an address, and where that stands.
struct Holder {
    function: FunctionName,
    path: Path,
    derived: bool,
}

pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    let mut holders: HashMap<Mac, Holder> = HashMap::new();
    let of_guests = subject.owned.iter().map(|owned| (&owned.function.name, owned.written.mac, &owned.path));
    let places: Vec<Path> = model.uplink_vfs().map(uplink::path).collect();
    let of_uplinks =
        model.uplink_vfs().zip(&places).map(|(uplink, path)| (uplink.function, uplink.settings.mac, path));
    let given: Vec<(&FunctionName, Mac, &Path)> = of_guests
        .chain(of_uplinks)
        .filter_map(|(function, mac, path)| Some((function, mac?, path)))
        .collect();
    let written: HashMap<&FunctionName, Mac> =
        given.iter().map(|(function, mac, _)| (*function, *mac)).collect();
    for (name, nic) in &model.nics {
        let path = Path::of(["nics", name.as_str(), "match", "mac"]);
        let Some(mac) = nic.matching.mac else { continue };
        if let Some(why) = unusable(mac) {
            subject.messages.push(
                Diagnostic::error(path, format!("{mac} {why}"))
                    .with_hint("`penstock scan` shows the permanent address of each PF"),
            );
            continue;
        }
        // Two NICs with one address have been reported as one device.
        holders.entry(mac).or_insert(Holder {
            function: FunctionName { nic: name.clone(), vf: None },
            path,
            derived: false,
        });
    }
    for (function, mac, path) in given.into_iter().filter(|(_, mac, _)| unusable(*mac).is_none()) {
        let path = path.join("mac");
        match holders.get(&mac) {
            // A PF may be told to keep the address that it has; a function given twice has been reported.
            Some(holder) if holder.function == *function => {}
            Some(holder) => {
                let message = taken(mac, function, path, holder);
                subject.messages.push(message);
            }
            None => {
                holders.insert(mac, Holder { function: function.clone(), path, derived: false });
            }
        }
    }
    let vfs: u64 = model.nics.values().map(|nic| u64::from(nic.vfs)).sum();
    if vfs > super::MAX_VFS {
        return;
    }
    for (name, nic) in &model.nics {
        let derives = |mac: &Mac| unusable(*mac).is_none() && !nic.externally_managed;
        let Some(pf) = nic.matching.mac.filter(derives) else {
            continue;
        };
        for index in (0..nic.vfs).map_while(VfIndex::new) {
            let function = FunctionName { nic: name.clone(), vf: Some(index) };
            if written.contains_key(&function) {
                continue;
            }
            let mac = Mac::derived(pf, index);
            match holders.get(&mac) {
                // The message belongs where a hand wrote the address; two derived ones meet at the NIC's.
                Some(holder) if holder.derived => {
                    let path = Path::of(["nics", name.as_str(), "match", "mac"]);
                    let both_same =
                        model.nics.get(&holder.function.nic).and_then(|nic| nic.matching.mac) == Some(pf);
                    if !both_same {
                        subject.messages.push(taken(mac, &function, path, holder));
                    }
                }
                Some(holder) => {
                    subject.messages.push(
                        Diagnostic::error(
                            holder.path.clone(),
                            format!("{mac} is the address that {function} gets, derived from {name}'s {pf}"),
                        )
                        .with_hint(format!(
                            "give {} another address, or {function} one of its own",
                            holder.function
                        )),
                    );
                }
                None => {
                    holders.insert(
                        mac,
                        Holder {
                            function,
                            path: Path::of(["nics", name.as_str(), "match", "mac"]),
                            derived: true,
                        },
                    );
                }
            }
        }
    }
}

fn taken(mac: Mac, function: &FunctionName, path: Path, holder: &Holder) -> Diagnostic {
    Diagnostic::error(path, format!("{function} and {} have the same MAC address, {mac}", holder.function))
        .with_related(holder.path.clone(), "first given here")
        .with_hint("every function needs an address of its own; left out, a VF's is derived")
}
