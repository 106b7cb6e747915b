//! NICs that VMs own: how QEMU may compose them (`hw/pci/pcie_sriov.c`) and what their switch can keep.

use std::collections::{BTreeMap, HashMap, HashSet};

use indexmap::IndexMap;

use super::{Subject, container_nic, igb, nic, taps, unusable, uplink, vdpa};
use crate::{
    Allow, AllowedMacs, DataPath, Emulation, FunctionName, GuestName, LinkState, Mac, Nic, NicName,
    TenantFunctionName, TenantNic, VfIndex, VfSettings,
    composition::{self, Addressing, CompositionError, tenant as devices},
    diagnostic::{Diagnostic, Path},
    document::TenantNicDocument,
    function::index_after,
    tenant::MAX_TENANT_QUEUES,
};

/// The longest names of a VM and of its NIC together: both are in the path of a socket, which has 107 bytes (`unix(7)`).
const LONGEST_NAMES: usize = 60;

/// The most NICs of a VM: each has a root port, and these share a slot (`composition::tenant`).
const MOST_NICS: usize = composition::SLOT_FUNCTIONS as usize;

/// The most VFs of a NIC of a VM: they share the slot behind its root port with the PF.
const MOST_VFS: u16 = composition::SLOT_FUNCTIONS - 1;

/// The most addresses beside its first that QEMU tells of a function (`MAC_TABLE_ENTRIES`, `hw/net/virtio-net.c`).
const MOST_ADDRESSES: u16 = 64;

/// An address that is written.
pub(super) struct Written {
    pub(super) function: TenantFunctionName,
    pub(super) mac: Mac,
    pub(super) path: Path,
}

/// The NICs of the VM `guest` as they were written; the addresses that stand there are added to `written`.
pub(super) fn build(
    machine: &str,
    guest: &GuestName,
    documents: IndexMap<NicName, TenantNicDocument>,
    nics: &IndexMap<NicName, Nic>,
    written: &mut Vec<Written>,
    messages: &mut Vec<Diagnostic>,
) -> IndexMap<NicName, TenantNic> {
    let path = Path::of(["guests", guest.as_str(), "nics"]);
    if let Some((name, _)) = documents.get_index(MOST_NICS) {
        let text = format!("{guest} has no room for a root port for {name}: a VM can own {MOST_NICS} NICs");
        messages.push(
            Diagnostic::error(path.join(name.as_str()), text).at_key().with_hint(
                "the root ports share a slot, which has eight functions; the next is the chipset's",
            ),
        );
    }
    // What is composed is compared with all of it.
    let built = documents.into_iter().take(MOST_NICS).map(|(name, document)| {
        let path = path.join(name.as_str());
        let nic = build_nic(machine, guest, &name, document, nics, &path, written, messages);
        (name, nic)
    });
    let built = built.collect();
    compose(guest, &built, &path, messages);
    built
}

/// Whether the NICs of `guest` can be composed, by the rules that hold for boards, too. Of each NIC the first that breaks one is told.
fn compose(
    guest: &GuestName,
    nics: &IndexMap<NicName, TenantNic>,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    let function = |nic: &NicName, vf| {
        let function = FunctionName { nic: nic.clone(), vf };
        TenantFunctionName { guest: guest.clone(), function }.to_string()
    };
    let id = |at: usize, vf| nics.get_index(at).map_or_else(String::new, |(nic, _)| function(nic, vf));
    let devices = devices::devices(nics.values(), id);
    let netdevs: Vec<&str> = devices.iter().filter_map(|device| device.netdev.as_deref()).collect();
    let errors = composition::check(&devices, &netdevs, Addressing::Slot);
    for (at, (name, nic)) in nics.iter().enumerate() {
        let path = path.join(name.as_str());
        let port = devices::root_port(at, nics.len()).id;
        let vfs = (0..nic.vfs.len()).filter_map(|vf| VfIndex::new(u16::try_from(vf).ok()?));
        let functions: Vec<String> =
            std::iter::once(None).chain(vfs.map(Some)).map(|vf| function(name, vf)).collect();
        let of_nic = |error: &&CompositionError| {
            // Two of the whole model must not have one address, which is looked at where it is known of all.
            !matches!(error, CompositionError::DuplicateMac { .. })
                && error
                    .device()
                    .is_some_and(|device| device == port || functions.iter().any(|id| id == device))
        };
        let Some(error) = errors.iter().find(of_nic) else { continue };
        messages.push(Diagnostic::error(path, error.to_string()).at_key());
    }
}

/// Whether the names leave room for the path of the switch's socket.
pub(super) fn check_names(guest: &GuestName, name: &NicName, path: &Path, messages: &mut Vec<Diagnostic>) {
    let length = guest.as_str().len() + name.as_str().len();
    if length > LONGEST_NAMES {
        let text = format!(
            "the names {guest} and {name} have {length} characters together, and the path of a socket has room for {LONGEST_NAMES}"
        );
        messages.push(Diagnostic::error(path.clone(), text).at_key().with_hint("give one a shorter name"));
    }
}

#[allow(clippy::too_many_arguments, reason = "who it is, what is written, and where both go")]
fn build_nic(
    machine: &str,
    guest: &GuestName,
    name: &NicName,
    mut document: TenantNicDocument,
    nics: &IndexMap<NicName, Nic>,
    path: &Path,
    written: &mut Vec<Written>,
    messages: &mut Vec<Diagnostic>,
) -> TenantNic {
    let data_path = taps::data_path(&document, path, messages);
    if data_path.has_switch() {
        check_names(guest, name, path, messages);
    }
    container_nic::check_vm_keys(guest, &document, data_path, path, messages);
    let emulation = document.emulation.unwrap_or(Emulation::Virtio);
    if emulation == Emulation::Igb {
        igb::check(guest, &mut document, data_path, path, messages);
    }
    if data_path == DataPath::VhostVdpa {
        vdpa::check(&mut document, path, messages);
    }
    // An igb has one port at its switch; of other NICs each function has its own.
    let settings = match data_path {
        DataPath::SwitchTap => document.settings(),
        DataPath::Switch | DataPath::Tap | DataPath::VirtioVdpa | DataPath::VhostVdpa => {
            VfSettings::default()
        }
    };
    let vfs = match document.vfs {
        _ if emulation == Emulation::Igb => 0,
        None => {
            let text = format!("nothing says how many VFs {guest} can make of {name}");
            messages.push(Diagnostic::error(path.clone(), text).at_key().with_hint("write `vfs`, 1 to 7"));
            0
        }
        Some(0) => {
            let text = format!("a NIC of a VM without VFs has no SR-IOV, and {name} has 0");
            messages.push(Diagnostic::error(path.join("vfs"), text).with_hint("write `vfs`, 1 to 7"));
            0
        }
        Some(vfs) if vfs > MOST_VFS => {
            let text = format!(
                "a NIC of a VM has 1 to {MOST_VFS} VFs, not {vfs}: libvirt has as many addresses behind its root port"
            );
            let hint = format!("write `vfs`, 1 to {MOST_VFS}; give the VM another NIC for more");
            messages.push(Diagnostic::error(path.join("vfs"), text).with_hint(hint));
            // What is written for these is not wrong for another reason.
            vfs.min(Emulation::Virtio.most_vfs())
        }
        Some(vfs) => vfs,
    };
    let queues = document.queues.unwrap_or(1);
    if !(1..=MAX_TENANT_QUEUES).contains(&queues) {
        let text = format!("a function has 1 to {MAX_TENANT_QUEUES} pairs of queues, not {queues}");
        messages.push(Diagnostic::error(path.join("queues"), text));
    }
    let workers = check_workers(&document, data_path, queues, path, messages);
    let mut note = |vf: Option<VfIndex>, mac: Option<Mac>, path: Path| {
        let function = FunctionName { nic: name.clone(), vf };
        let function = TenantFunctionName { guest: guest.clone(), function };
        written.extend(mac.map(|mac| Written { function, mac, path }));
    };
    note(None, document.mac, path.join("mac"));
    let mac = document.mac.unwrap_or_else(|| TenantNic::derived_mac(machine, guest, name));
    let derived = |vf: VfIndex| VfSettings { mac: Some(Mac::derived(mac, vf)), ..VfSettings::default() };
    let mut all: Vec<VfSettings> = (0..vfs).map_while(VfIndex::new).map(derived).collect();
    let mut vf_allow = BTreeMap::new();
    for (key, mut document) in document.functions {
        let settings = document.settings();
        let path = path.join("functions").join(&key);
        // One spelling of each, so that none is there twice.
        let index = index_after(&key).ok();
        let Some((vf, slot)) = index.and_then(|vf| Some((vf, all.get_mut(usize::from(vf.get()))?))) else {
            let has = match vfs {
                0 => format!("{name} has no VFs"),
                1 => format!("{name} has 1 VF, 0"),
                _ => format!("{name} has the VFs 0 to {}", vfs - 1),
            };
            let text = format!("there is no VF {}: {has}", crate::tree::shown(&key));
            let hint = match key.parse::<u16>() {
                Ok(index) if index < vfs => format!("write {index}"),
                _ => "keys of `functions` are indices of VFs; the PF's address is the NIC's `mac`".to_owned(),
            };
            messages.push(Diagnostic::error(path, text).at_key().with_hint(hint));
            continue;
        };
        note(Some(vf), settings.mac, path.join("mac"));
        check_settings(&settings, &path, messages);
        match data_path {
            DataPath::Tap => taps::check_vf(&document, &path, messages),
            DataPath::VhostVdpa => vdpa::check_vf(&mut document, &path, messages),
            DataPath::Switch | DataPath::SwitchTap | DataPath::VirtioVdpa => {}
        }
        *slot = settings.or(slot);
        if let Some(allow) = document.allow.take() {
            let path = path.join("allow");
            check_allow(&allow, slot.trust.unwrap_or_default(), &path, messages);
            if allow.loopback {
                let text = "whether frames between functions stay inside is a matter of the NIC, not of a VF";
                let error = Diagnostic::error(path.join("loopback"), text).at_key();
                messages.push(error.with_hint(format!("write it in `allow` of {name} itself")));
            }
            vf_allow.insert(vf, allow);
        }
    }
    match (data_path, &document.allow) {
        (_, None) => {}
        (DataPath::Tap, Some(_)) => taps::refuse_allow(path, messages),
        (DataPath::SwitchTap, Some(allow)) => check_macs(allow, &path.join("allow"), messages),
        (DataPath::Switch | DataPath::VirtioVdpa | DataPath::VhostVdpa, Some(allow)) => {
            let trusted = all.iter().any(|settings| settings.trust.unwrap_or_default());
            check_allow(allow, trusted, &path.join("allow"), messages);
        }
    }
    all.truncate(usize::from(MOST_VFS));
    let (uplink, uplink_settings) = match data_path {
        DataPath::Switch | DataPath::SwitchTap | DataPath::VirtioVdpa | DataPath::VhostVdpa => {
            let entry = document.uplink;
            entry
                .map(|entry| uplink::lead_out(entry, nics, &path.join("uplink"), messages))
                .unwrap_or_default()
        }
        DataPath::Tap => (taps::bridge(document.uplink, nics, data_path, path, messages), None),
    };
    let built = TenantNic {
        emulation,
        mac,
        vfs: all,
        settings,
        addresses: Vec::new(),
        routes: Vec::new(),
        dhcp: false,
        mtu: None,
        path: data_path,
        uplink,
        uplink_settings,
        queues,
        workers,
        allow: document.allow,
        vf_allow,
    };
    uplink::check_vlans(&built, path, messages);
    built
}

/// How many threads its embedded switch has: those that would have nothing to do are refused.
fn check_workers(
    document: &TenantNicDocument,
    data_path: DataPath,
    queues: u16,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> u16 {
    let workers = document.workers.unwrap_or(1);
    let at = path.join("workers");
    match data_path {
        _ if workers == 1 => {}
        DataPath::Switch if !(1..=MAX_TENANT_QUEUES).contains(&workers) => {
            let text = format!("an embedded switch has 1 to {MAX_TENANT_QUEUES} workers, not {workers}");
            messages.push(Diagnostic::error(at, text));
        }
        DataPath::Switch if workers > queues => {
            let text = format!(
                "{workers} workers share the queues of each function, and there {}",
                if queues == 1 { "is 1 pair".to_owned() } else { format!("are {queues} pairs") }
            );
            let hint = format!("write `queues: {workers}`, or as many workers as there are pairs of queues");
            messages.push(Diagnostic::error(at, text).with_hint(hint));
        }
        DataPath::Switch => {}
        DataPath::SwitchTap | DataPath::Tap | DataPath::VirtioVdpa | DataPath::VhostVdpa => {
            let text =
                "`workers` are threads of an embedded switch whose functions have several pairs of queues";
            let error = Diagnostic::error(at, text).at_key();
            messages.push(error.with_hint("leave it out; or write `path: switch`, without `emulation: igb`"));
        }
    }
    workers
}

/// What an embedded switch of a tenant NIC cannot keep.
fn check_settings(settings: &VfSettings, path: &Path, messages: &mut Vec<Diagnostic>) {
    nic::check_vlan(settings, settings, path, messages);
    if settings.min_tx_rate.is_some_and(|rate| rate.0 != 0) {
        let text = "a rate is guaranteed of an uplink's speed, and that of a VM's NIC has none";
        messages.push(
            Diagnostic::error(path.join("min_tx_rate"), text)
                .at_key()
                .with_hint("leave it out; `max_tx_rate` is held"),
        );
    }
    if settings.link_state == Some(LinkState::Auto) || settings.link_state.is_none() {
        return;
    }
    let text = "the link that a VF of a VM's NIC shows cannot be set: its QEMU is not told of it";
    messages.push(Diagnostic::error(path.join("link_state"), text).at_key().with_hint("leave it out"));
}

/// Addresses that no function can have.
fn check_macs(allow: &Allow, path: &Path, messages: &mut Vec<Diagnostic>) {
    if let AllowedMacs::These(all) = &allow.mac {
        for (at, mac) in all.iter().enumerate() {
            if let Some(why) = unusable(*mac) {
                let path = path.join("mac").join(at.to_string());
                messages.push(Diagnostic::error(path, format!("{mac} {why}")));
            }
        }
    }
}

/// What of a ceiling would never have an effect.
fn check_allow(allow: &Allow, trusted: bool, path: &Path, messages: &mut Vec<Diagnostic>) {
    check_macs(allow, path, messages);
    let at = path.join("more_macs");
    if allow.more_macs > MOST_ADDRESSES {
        let text = format!(
            "QEMU tells of at most {MOST_ADDRESSES} addresses of a function, not of {}",
            allow.more_macs
        );
        messages.push(Diagnostic::error(at, text).with_hint(format!("write at most {MOST_ADDRESSES}")));
    } else if allow.more_macs > 0 && allow.mac == AllowedMacs::Own {
        let text = "more addresses are allowed, and none that they could be";
        messages
            .push(Diagnostic::error(at, text).at_key().with_hint("write `mac`: a list of them, or `any`"));
    }
    if allow.promiscuous && !allow.trust && !trusted {
        let text = "a function is promiscuous only where it has trust, and none has it or may have it";
        let error = Diagnostic::error(path.join("promiscuous"), text).at_key();
        messages.push(error.with_hint("allow `trust: on` as well, or set it for a function"));
    }
}

/// Derived addresses that rest on a machine's name which the model does not say: the file's, where that is one.
pub(super) fn check_machine(names_itself: bool, written: &[Written], subject: &mut Subject<'_>) {
    let model = subject.model;
    let written: HashSet<(&GuestName, &NicName)> = written
        .iter()
        .filter(|written| written.function.function.vf.is_none())
        .map(|written| (&written.function.guest, &written.function.function.nic))
        .collect();
    let mut all = model.tenant_nics().filter(|(guest, name, _)| !written.contains(&(*guest, *name)));
    let Some((guest, name, _)) = all.next() else { return };
    let more = match all.count() {
        0 => "has an address that is".to_owned(),
        1 => "and another NIC have addresses that are".to_owned(),
        more => format!("and {more} more NICs have addresses that are"),
    };
    let (why, machine) = if names_itself {
        let machine = model.machine.as_str();
        let why = format!(
            "and that is the file's, {machine}: in a file of another name they change, and on machines with files of one name they are the same"
        );
        (why, machine)
    } else {
        let why =
            "which neither the model nor a file's name says: on each machine without one they are the same";
        (why.to_owned(), "NAME")
    };
    let text = format!("{guest}/{name} {more} derived from the machine's name, {why}");
    let hint = format!(
        "write `machine: {machine}` for this machine alone; for several machines leave it out, or give each a model of its own"
    );
    let path = Path::of(["guests", guest.as_str(), "nics", name.as_str()]);
    subject.messages.push(Diagnostic::warning(path, text).at_key().with_hint(hint));
}

/// Addresses that two have.
pub(super) fn check(written: &[Written], subject: &mut Subject<'_>) {
    let model = subject.model;
    if model.guests.values().all(|guest| guest.nics.is_empty()) {
        return;
    }
    // Who has which address by now. Two of the machine's own functions with one have been reported.
    let mut holders: HashMap<Mac, String> = HashMap::new();
    let owned = subject.owned.iter().map(|owned| (&owned.function.name, owned.written.mac));
    let uplinks = model.uplink_vfs().map(|uplink| (uplink.function, uplink.settings.mac));
    let given: HashMap<&FunctionName, Mac> =
        owned.chain(uplinks).filter_map(|(function, mac)| Some((function, mac?))).collect();
    // More VFs than any machine has have been reported.
    let vfs: u64 = model.nics.values().map(|nic| u64::from(nic.vfs)).sum();
    for (name, nic) in &model.nics {
        let Some(pf) = nic.matching.mac else { continue };
        holders.insert(pf, name.to_string());
        // What others make has addresses of theirs, and a VF with one of its own has not the derived one.
        if nic.externally_managed || vfs > super::MAX_VFS {
            continue;
        }
        for vf in (0..nic.vfs).map_while(VfIndex::new) {
            let function = FunctionName { nic: name.clone(), vf: Some(vf) };
            if !given.contains_key(&function) {
                holders.insert(Mac::derived(pf, vf), function.to_string());
            }
        }
    }
    holders.extend(given.iter().map(|(function, mac)| (*mac, function.to_string())));
    let places: HashMap<&TenantFunctionName, &Path> =
        written.iter().rev().map(|written| (&written.function, &written.path)).collect();
    for written in written {
        if let Some(why) = unusable(written.mac) {
            subject.messages.push(
                Diagnostic::error(written.path.clone(), format!("{} {why}", written.mac)).with_hint(
                    "an address of your own starts with 02, 06, 0a or 0e; left out, it is derived",
                ),
            );
        }
    }
    for (guest, found) in &model.guests {
        for (name, nic) in &found.nics {
            for (vf, mac, _) in nic.functions() {
                let function = FunctionName { nic: name.clone(), vf };
                let function = TenantFunctionName { guest: guest.clone(), function };
                if let Some(other) = holders.get(&mac) {
                    let path = places.get(&function).map_or_else(
                        || Path::of(["guests", guest.as_str(), "nics", name.as_str()]),
                        |path| (*path).clone(),
                    );
                    let text = format!("{function} and {other} have the same MAC address, {mac}");
                    subject
                        .messages
                        .push(Diagnostic::error(path, text).with_hint(
                            "every function needs an address of its own; left out, it is derived",
                        ));
                } else {
                    holders.insert(mac, function.to_string());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Mac, Source, TenantNic, VfIndex, parse};

    #[test]
    fn addresses_that_rest_on_a_name_which_nothing_says_are_warned_of_and_those_that_are_written_are_not() {
        let warnings = |file: &str, mac: &str| {
            let text = format!("guests: {{a: {{nics: {{n: {{uplink: br0{mac}}}}}}}}}\n");
            parse(&Source::new(file, text)).unwrap().warnings.0
        };
        let derived = TenantNic::derived_mac("web-1", &"a".parse().unwrap(), &"n".parse().unwrap());
        assert_eq!(warnings("web-1.yaml", &format!(", mac: {derived}")), []);
        for (file, says, hint) in [
            ("web-1.yaml", "that is the file's, web-1", "`machine: web-1` for this machine alone"),
            (
                "<stdin>",
                "which neither the model nor a file's name says",
                "`machine: NAME` for this machine alone",
            ),
            ("a model.yaml", "which neither the model nor a file's name says", "`machine: NAME` for"),
        ] {
            let found = warnings(file, "");
            let [found] = &found[..] else { panic!("{file}: {found:?}") };
            assert!(found.message.contains(says), "{file}: {found}");
            assert!(found.hint.as_ref().is_some_and(|found| found.contains(hint)), "{file}: {found:?}");
        }
    }

    #[test]
    fn an_address_that_no_vf_has_any_more_is_free() {
        let pf: Mac = "0c:c4:7a:9a:61:ea".parse().unwrap();
        let derived = Mac::derived(pf, VfIndex::new(0).unwrap());
        let with = |nic: &str, function: &str| {
            let text = format!(
                "nics: {{A: {{match: {{mac: {pf}}}, vfs: 1{nic}}}}}\nguests:\n  a: {{functions: [{function}]}}\n  \
                 b: {{nics: {{net0: {{uplink: br0, mac: {derived}}}}}}}\n"
            );
            parse(&Source::new("m.yaml", text)).is_ok()
        };
        assert!(!with("", "A#0"), "the VF has it");
        assert!(with("", "{vf: A#0, mac: 02:00:00:00:00:01}"));
        assert!(with(", externally_managed: on", "A#0"));
        assert!(!with("", &format!("{{vf: A#0, mac: {derived}}}")), "given is had, too");
    }
}
