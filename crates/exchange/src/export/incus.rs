//! Profiles of Incus, one for each guest with functions: `nic` devices with `nictype: sriov` for VFs and `physical` for PFs, and what the guest
//! may have of CPUs and memory (Incus' documentation, "Type: nic", "Instance options").

use std::{collections::BTreeMap, fmt::Write};

use penstock_model::{ByteSize, Function, Guest, GuestKind, GuestName, Model, NicName, VfIndex, VfKey};
use penstock_plan::NicOnMachine;

use super::{
    ExportedFile,
    left_out::{Omissions, ranges},
    single_quoted,
};

/// The huge pages that a host mounts unless its command line says otherwise, and `import` takes for Incus'.
const HUGE_PAGE: ByteSize = ByteSize(2 << 20);

/// A profile for each guest that owns functions.
pub fn files(model: &Model, nics: &[NicOnMachine<'_>], left_out: &mut Omissions) -> Vec<ExportedFile> {
    let by_name: BTreeMap<&NicName, &NicOnMachine<'_>> = nics.iter().map(|nic| (nic.name, nic)).collect();
    let mut owned: BTreeMap<&NicName, Vec<VfIndex>> = BTreeMap::new();
    let mut files = Vec::new();
    for nic in nics {
        left_out.nic_key(nic.name, "vfs");
        left_out.pf_keys(nic);
    }
    for (guest, what) in &model.guests {
        let mut profile = Profile::default();
        for function in &what.functions {
            let Some(nic) = by_name.get(&function.name.nic) else { continue };
            profile.device(nic, function, what.kind, left_out);
            if let Some(index) = function.name.vf {
                owned.entry(nic.name).or_default().push(index);
            }
        }
        if profile.devices.is_empty() {
            left_out.guest(format!(
                "`guests`: {guest} gets no profile, since it has no function of a NIC that is exported"
            ));
        } else {
            profile.config = config(guest, what, left_out);
            files.push(profile.file(guest));
        }
    }
    for nic in nics {
        let mut mine = owned.remove(nic.name).unwrap_or_default();
        mine.sort_unstable();
        if !mine.is_empty() {
            let vfs = ranges(&mine).join(", ");
            left_out.nic(
                nic.name,
                format!("that the guests have VF {vfs}: Incus gives each any VF of the NIC that is free"),
            );
        }
        let unsaid: Vec<VfIndex> = nic
            .vfs
            .iter()
            .filter(|vf| mine.contains(&vf.index) && vf.settings.spoofchk.is_none())
            .map(|vf| vf.index)
            .collect();
        if !unsaid.is_empty() {
            left_out.nic(
                nic.name,
                format!(
                    "that the spoof check of VF {} stays as it is: Incus turns it off where `spoofchk` does not say `on`",
                    ranges(&unsaid).join(", ")
                ),
            );
        }
        let of_guests: Vec<_> = nic.vfs.iter().filter(|vf| mine.contains(&vf.index)).collect();
        let trusted = of_guests.iter().filter(|vf| vf.settings.trust.is_some());
        let trusted: Vec<VfIndex> = trusted.map(|vf| vf.index).collect();
        if !trusted.is_empty() {
            left_out.nic(
                nic.name,
                format!(
                    "`trust` of VF {}: Incus 6.0 takes no profile with the word that later ones have for it (`security.trusted`)",
                    ranges(&trusted).join(", ")
                ),
            );
        }
        left_out.vf_keys_of(nic, &of_guests, |key| {
            matches!(key, VfKey::Mac | VfKey::Vlan | VfKey::Spoofchk | VfKey::Trust)
        });
        let rest: Vec<_> = nic.vfs.iter().filter(|vf| !mine.contains(&vf.index)).collect();
        left_out.vf_keys_of(nic, &rest, |_| false);
    }
    files
}

/// What Incus is told of a guest's CPUs, memory and privileges: options of an instance, each with its value.
fn config(name: &GuestName, guest: &Guest, left_out: &mut Omissions) -> Vec<(&'static str, String)> {
    let is_vm = guest.kind == GuestKind::Vm;
    let mut config = Vec::new();
    let pinned = guest.pin.as_ref().map(|pin| pin.0.len());
    match (&guest.pin, guest.cpus) {
        (Some(pin), _) => {
            // A number alone is how many, and not which.
            let only = pin.0.first().filter(|_| pin.0.len() == 1);
            config.push(("limits.cpu", only.map_or_else(|| pin.to_string(), |cpu| format!("{cpu}-{cpu}"))));
        }
        (None, Some(cpus)) => config.push(("limits.cpu", cpus.to_string())),
        (None, None) => {}
    }
    // An Incus that is told nothing gives a VM more.
    let memory = guest.memory.or(is_vm.then(|| ByteSize(guest.vm_memory())));
    config.extend(memory.map(|memory| ("limits.memory", memory.to_string())));
    if let Some(size) = guest.vm.huge_pages.filter(|_| is_vm) {
        config.push(("limits.memory.hugepages", "true".to_owned()));
        if size != HUGE_PAGE {
            left_out.guest(format!(
                "`huge_pages: {size}` of {name}: Incus takes huge pages of the size that the host mounts"
            ));
        }
    }
    if guest.privileged && !is_vm {
        config.push(("security.privileged", "true".to_owned()));
    }
    let both = guest.cpus.zip(pinned).filter(|(cpus, pinned)| usize::try_from(*cpus) != Ok(*pinned));
    if let Some((cpus, _)) = both {
        left_out.guest(format!(
            "`cpus: {cpus}` of {name}: Incus has one word for which CPUs and how many, and `pin` has it"
        ));
    }
    let why = "a profile made here has a guest's functions, CPUs, memory and privileges alone";
    left_out.guest_keys(name, guest, why, |key| {
        matches!(key, "cpus" | "pin" | "memory" | "huge_pages" | "privileged")
    });
    config
}

/// The options and devices of one guest.
#[derive(Default)]
struct Profile {
    config: Vec<(&'static str, String)>,
    devices: String,
}

impl Profile {
    fn device(
        &mut self,
        nic: &NicOnMachine<'_>,
        function: &Function,
        kind: GuestKind,
        left_out: &mut Omissions,
    ) {
        let name = &function.name;
        let known = nic.pf.interface.as_ref().map(|interface| &interface.name);
        let Some(parent) = nic.nic.interface.as_ref().or(known) else {
            return left_out.nic(
                nic.name,
                format!("{name}: its PF has no interface, by whose name Incus would find it"),
            );
        };
        let nictype = if name.vf.is_some() { "sriov" } else { "physical" };
        let mut lines =
            vec![("type", "nic".to_owned()), ("nictype", nictype.to_owned()), ("parent", parent.to_string())];
        // The name of an interface inside a VM is the VM's own to say.
        if kind == GuestKind::Container {
            lines.push(("name", function.interface.to_string()));
        }
        let vf = name.vf.and_then(|index| nic.vfs.iter().find(|vf| vf.index == index));
        let settings = vf.map_or(&function.settings, |vf| &vf.settings);
        lines.extend(settings.mac.map(|mac| ("hwaddr", mac.to_string())));
        lines.extend(settings.vlan.filter(|vlan| vlan.get() != 0).map(|vlan| ("vlan", vlan.to_string())));
        lines.extend(settings.spoofchk.map(|on| ("security.mac_filtering", on.to_string())));
        lines.extend(function.mtu.map(|mtu| ("mtu", mtu.get().to_string())));
        let _ = writeln!(self.devices, "  {}:", single_quoted(function.interface.as_str()));
        for (key, value) in lines {
            let _ = writeln!(self.devices, "    {key}: {}", single_quoted(&value));
        }
        if settings.vlan.is_some_and(|vlan| vlan.get() == 0) {
            left_out.nic(
                nic.name,
                format!("`vlan: 0` of {name}: Incus has a word for VLANs alone, and none for no VLAN"),
            );
        }
        // The name of an interface inside a VM is the VM's own to say.
        left_out
            .function_keys(nic, function, "a `nic` of this type", |key| matches!(key, "interface" | "mtu"));
    }

    fn file(self, guest: &GuestName) -> ExportedFile {
        let mut text = format!(
            "# By `penstock export`: incus profile create penstock-{guest} < FILE\ndescription: Functions of {guest}, of a Penstock model\n"
        );
        text.push_str(if self.config.is_empty() { "config: {}\n" } else { "config:\n" });
        for (key, value) in self.config {
            let _ = writeln!(text, "  {key}: {}", single_quoted(&value));
        }
        let _ = write!(text, "devices:\n{}", self.devices);
        ExportedFile { name: format!("penstock-{guest}.profile.yaml"), text }
    }
}
