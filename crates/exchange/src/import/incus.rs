//! Instances, profiles and networks of Incus, as `incus list --format yaml`, `incus config show --expanded`, `incus profile show` and
//! `incus network show` print them (Incus' documentation, "Type: nic", "Instance options", "SR-IOV network").
//!
//! Incus makes no VFs. Each instance gets whichever VF of a PF is free when it starts, so that a model of it has to choose.

mod network;

use std::collections::{BTreeMap, HashMap};

use penstock_model::{
    ByteSize, CpuSet, InterfaceName, Inventory, Mac, Mtu, VfIndex, VfKey, VfSettings,
    yaml::{quoted, shown},
};

use super::{
    Found,
    foreign::{ForeignFields, ForeignNode},
    guest::{ForeignFunction, ForeignGuest},
    nic::{ForeignNic, PfSelector},
};

/// What is the state of an instance, or names it, and nothing that a model could say.
const STATE: [&str; 18] = [
    "architecture",
    "backups",
    "created_at",
    "description",
    "ephemeral",
    "last_used_at",
    "location",
    "managed",
    "project",
    "restore",
    "snapshots",
    "state",
    "stateful",
    "status",
    "status_code",
    "used_by",
    "locations",
    "environment",
];

/// Options that Incus writes itself (`volatile.`), that say where an image is from, or that are there for people.
const NOTES: [&str; 3] = ["volatile.", "image.", "user."];

const MIB: u64 = 1 << 20;

/// The memory of a VM whose `limits.memory` says nothing (Incus' documentation, "Instance options"); in a model it is less.
const MEMORY: ByteSize = ByteSize(1 << 30);

/// How the VF of a NIC is chosen.
#[derive(Default)]
struct VfChoice {
    /// None below it is free.
    next: u16,
    /// The VFs by the addresses that they get anyway.
    derived: HashMap<Mac, VfIndex>,
}

/// What has been read so far.
struct Reader<'a, 'm> {
    machine: Option<&'m Inventory>,
    found: Found<'a>,
    /// NICs by the names of their PFs' interfaces.
    nics: BTreeMap<InterfaceName, usize>,
    /// One for each NIC that was found.
    choices: Vec<VfChoice>,
    /// Networks of type `sriov`: the PF, and what all their VFs have.
    networks: BTreeMap<&'a str, (usize, VfSettings, Option<Mtu>)>,
}

/// The NICs and instances of these documents.
pub fn read<'a>(roots: &[ForeignNode<'a>], machine: Option<&Inventory>) -> Found<'a> {
    let mut reader = Reader {
        machine,
        found: Found::default(),
        nics: BTreeMap::new(),
        choices: Vec::new(),
        networks: BTreeMap::new(),
    };
    let all: Vec<ForeignNode<'a>> = roots
        .iter()
        .flat_map(|root| if root.is_list() { root.items() } else { vec![root.clone()] })
        .collect();
    let kind = |node: &ForeignNode<'a>| {
        node.entries().into_iter().find(|(key, _)| *key == "type").and_then(|(_, kind)| kind.text())
    };
    let is_network = |node: &&ForeignNode<'a>| {
        !node.entries().iter().any(|(key, _)| *key == "devices" || *key == "expanded_devices")
            && kind(node).is_some_and(|kind| !["container", "virtual-machine"].contains(&kind))
    };
    // Instances name networks, in whatever order the files come.
    let (networks, rest): (Vec<_>, Vec<_>) = all.iter().partition(is_network);
    networks.into_iter().for_each(|network| reader.network(network));
    rest.into_iter().for_each(|instance| reader.instance(instance));
    reader.finish()
}

impl<'a> Reader<'a, '_> {
    fn network(&mut self, at: &ForeignNode<'a>) {
        let mut fields = at.fields();
        STATE.iter().for_each(|key| fields.pass_over(key));
        let name = fields.take("name").and_then(|name| name.text()).unwrap_or_default();
        if fields.take("type").and_then(|kind| kind.text()) != Some("sriov") {
            fields.forget();
            return at.left_out(format!("the network {} is left out: it is not of type sriov", shown(name)));
        }
        let Some(config) = fields.take("config") else {
            return at.error("a network of type sriov has its PF's interface as `parent` in `config`");
        };
        let mut config = config.fields();
        let Some((nic, at)) = self.parent(&mut config, at) else { return };
        let vlan = config.take("vlan").and_then(|vlan| vlan.setting(VfKey::Vlan)).unwrap_or_default();
        let mtu = config.value("mtu");
        if self.networks.insert(name, (nic, vlan, mtu)).is_some() {
            at.error(format!("there are two networks {}", shown(name)));
        }
    }

    fn instance(&mut self, at: &ForeignNode<'a>) {
        let mut fields = at.fields();
        STATE.iter().for_each(|key| fields.pass_over(key));
        let name = fields.take("name").and_then(|name| name.text());
        let kind = fields.take("type").and_then(|kind| kind.text());
        let profiles = fields.take("profiles");
        let (expanded, own) = (fields.take("expanded_devices"), fields.take("devices"));
        let is_expanded = expanded.is_some();
        let devices = expanded.or(own);
        let (expanded, own) = (fields.take("expanded_config"), fields.take("config"));
        let config = expanded.or(own);
        let label = name.unwrap_or("guest");
        let mut config = config.map(|config| config.fields());
        let mut guest = ForeignGuest { name: label.to_owned(), ..ForeignGuest::default() };
        let (mut others, mut names) = (Vec::new(), Vec::new());
        for (device, node) in devices.iter().flat_map(ForeignNode::entries) {
            match self.device(device, &node, config.as_mut()) {
                Some((inside, function)) => {
                    guest.functions.push(function);
                    names.push(inside);
                }
                None => others.push(shown(device)),
            }
        }
        if guest.functions.is_empty() {
            config.iter_mut().for_each(ForeignFields::forget);
            fields.forget();
            return at.left_out(format!("{} is left out: none of its devices is a VF", shown(label)));
        }
        if let Some(profiles) =
            profiles.filter(|profiles| !is_expanded && profiles.is_list() && !profiles.items().is_empty())
        {
            profiles.left_out_with_hint(
                "what its profiles say may be missing",
                "they do not where this is what `incus config show --expanded` prints; `incus list --format yaml` says it all",
            );
        }
        if name.is_none() {
            at.left_out("its name is in no file: it is called `guest` here");
        }
        if kind.is_none() {
            at.left_out("whether it is a container or a VM is not in the file: a container is assumed");
        }
        let is_vm = kind == Some("virtual-machine");
        let network = config.as_mut().and_then(|config| cloud_init(config));
        guest.keys = keys(is_vm, config);
        if let Some(network) = network {
            let settings = |vf: (usize, VfIndex)| self.found.nics[vf.0].settings.get(&vf.1);
            let macs = guest.functions.iter().map(|function| settings(function.vf?)?.mac);
            let macs: Vec<Option<Mac>> = macs.collect();
            network::read(&network, &mut guest, (is_vm, &names, &macs));
        }
        others.sort();
        if !others.is_empty() {
            at.left_out(format!("of its devices only VFs are in the model; left out: {}", others.join(", ")));
        }
        self.found.guests.push(guest);
    }

    /// The function that a device is, if it is a VF, and what a container calls it inside.
    fn device(
        &mut self,
        name: &str,
        at: &ForeignNode<'a>,
        mut config: Option<&mut ForeignFields<'a>>,
    ) -> Option<(String, ForeignFunction)> {
        let mut fields = at.fields();
        let kind = fields.take("type").and_then(|kind| kind.text());
        let nictype = fields.take("nictype").and_then(|kind| kind.text());
        let network = fields.take("network").and_then(|network| network.text());
        let of_network = network.and_then(|network| self.networks.get(network)).cloned();
        if kind != Some("nic") || (nictype != Some("sriov") && of_network.is_none()) {
            fields.forget();
            if let (Some("nic"), Some(network)) = (kind, network) {
                at.left_out(format!("no file here has {} as a network of type sriov", shown(network)));
            } else if nictype == Some("physical") {
                at.left_out("a whole NIC is left out: it is a function `{pf: NIC}` of a model");
            }
            return None;
        }
        let (nic, common, common_mtu) = match of_network {
            Some(of_network) => of_network,
            None => (self.parent(&mut fields, at)?.0, VfSettings::default(), None),
        };
        let mut settings = VfSettings::default();
        for (key, of_vf) in [
            ("hwaddr", VfKey::Mac),
            ("vlan", VfKey::Vlan),
            ("security.mac_filtering", VfKey::Spoofchk),
            ("security.trusted", VfKey::Trust),
        ] {
            if let Some(set) = fields.take(key).and_then(|node| node.setting(of_vf)) {
                settings = settings.or(&set);
            }
        }
        // Where no address was given, Incus has made one, and keeps it.
        let made = config.as_mut().and_then(|config| config.take(&format!("volatile.{name}.hwaddr")));
        if let Some(made) = made.filter(|_| settings.mac.is_none()) {
            settings = settings.or(&made.setting(VfKey::Mac).unwrap_or_default());
        }
        // Without the key Incus turns it off, whatever the driver begins with (`networkSRIOVSetupVF`); so `export` says it.
        settings.spoofchk = settings.spoofchk.or(Some(false));
        let settings = settings.or(&common);
        let mut keys = Vec::new();
        let inside = fields.value::<InterfaceName>("name");
        // Where no name was given, Incus has made one, and keeps it.
        let called = config.and_then(|config| config.take(&format!("volatile.{name}.name"))?.text());
        let called = inside.as_ref().map_or(called.unwrap_or(name), |inside| inside.as_str()).to_owned();
        keys.extend(inside.map(|inside| ("interface", quoted(inside.as_str()))));
        let mtu = fields.value::<Mtu>("mtu").or(common_mtu);
        keys.extend(mtu.map(|mtu| ("mtu", mtu.to_string())));
        let Some(index) = self.free(nic, settings.mac) else {
            at.error(format!("{} has more VFs here than a NIC can have", shown(&self.found.nics[nic].name)));
            return None;
        };
        self.found.nics[nic].add(index, &settings, at);
        Some((called, ForeignFunction { vf: Some((nic, index)), keys }))
    }

    /// A VF of this NIC that nobody has: the one that gets this address anyway, which no other VF could have beside it, or the first.
    fn free(&mut self, nic: usize, mac: Option<Mac>) -> Option<VfIndex> {
        let (taken, choice) = (&self.found.nics[nic].settings, &mut self.choices[nic]);
        let derived = mac.and_then(|mac| choice.derived.get(&mac)).filter(|index| !taken.contains_key(index));
        if let Some(index) = derived {
            return Some(*index);
        }
        while let Some(index) = VfIndex::new(choice.next) {
            if !taken.contains_key(&index) {
                return Some(index);
            }
            choice.next = choice.next.checked_add(1)?;
        }
        None
    }

    /// The NIC whose PF's interface is `parent`; the first that names it says where it is.
    fn parent(
        &mut self,
        fields: &mut ForeignFields<'a>,
        at: &ForeignNode<'a>,
    ) -> Option<(usize, ForeignNode<'a>)> {
        let Some(parent) = fields.take("parent") else {
            at.error("VFs need the interface of their PF as `parent`");
            return None;
        };
        let name: InterfaceName = parent.value()?;
        if let Some(nic) = self.nics.get(&name) {
            return Some((*nic, parent));
        }
        let selector = PfSelector::by_name(name.clone());
        let mut nic = ForeignNic::new(name.to_string(), selector.clone(), parent.clone());
        let mut choice = VfChoice::default();
        let mut pfs = self.machine.into_iter().flat_map(|machine| &machine.pfs);
        if let Some(pf) = pfs.find(|pf| selector.holds_for(pf)) {
            nic.count_those_of(pf);
            if let (Some(sriov), Some(permanent)) = (&pf.sriov, pf.permanent_mac) {
                let all = (0..sriov.total_vfs).filter_map(VfIndex::new);
                choice.derived = all.map(|index| (Mac::derived(permanent, index), index)).collect();
            }
        }
        self.choices.push(choice);
        self.found.nics.push(nic);
        self.nics.insert(name, self.found.nics.len() - 1);
        Some((self.found.nics.len() - 1, parent))
    }

    fn finish(mut self) -> Found<'a> {
        for nic in &mut self.found.nics {
            if nic.named() > 0 {
                nic.at.left_out("which VF each guest has is not in these files: Incus takes any that is free; here they come in the order of the files");
            }
            nic.make_room_for_named();
        }
        self.found
    }
}

/// What cloud-init is told of an instance's interfaces; the second option is that of older images (Incus' documentation, "cloud-init").
fn cloud_init<'a>(config: &mut ForeignFields<'a>) -> Option<ForeignNode<'a>> {
    let old = config.take("user.network-config");
    config.take("cloud-init.network-config").or(old)
}

/// Keys of a guest of a model with their values. Options that are left are told in one message each.
fn keys(is_vm: bool, config: Option<ForeignFields<'_>>) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    if is_vm {
        // Incus' agent is not QEMU's, which a model means: it would be waited for in vain.
        keys.extend([("kind", "vm".to_owned()), ("inside", "none".to_owned())]);
    }
    let Some(mut config) = config else {
        keys.extend(is_vm.then(|| ("memory", quoted(&MEMORY.to_string()))));
        return keys;
    };
    let on = |config: &mut ForeignFields<'_>, key| config.take(key).and_then(|on| on.switch()) == Some(true);
    let huge = is_vm && on(&mut config, "limits.memory.hugepages");
    let limit = config.take("limits.memory");
    let memory = limit.as_ref().and_then(|limit| size(limit.text()?, if huge { 2 * MIB } else { MIB }));
    if let Some(limit) = limit.filter(|_| memory.is_none()) {
        let is_share = limit.text().is_some_and(|text| text.ends_with('%'));
        let what = if is_share { "a share of the host's memory" } else { "no size in bytes" };
        let instead = match is_vm {
            true => format!("the VM has {MEMORY} here"),
            false => "the container has no limit here".to_owned(),
        };
        limit.left_out_with_hint(
            format!("`limits.memory` is left out: it is {what}; {instead}"),
            "write `memory` as a size",
        );
    }
    let memory = memory.or(is_vm.then_some(MEMORY));
    keys.extend(memory.map(|memory| ("memory", quoted(&memory.to_string()))));
    if let Some(cpus) = config.take("limits.cpu") {
        match cpus.text().map(|text| (text, text.parse::<u32>(), text.parse::<CpuSet>())) {
            Some((_, Ok(count), _)) => keys.push(("cpus", count.to_string())),
            Some((text, _, Ok(_))) => keys.push(("pin", quoted(text))),
            _ => cpus.left_out("`limits.cpu` is left out: it is neither a number nor a set of CPUs"),
        }
    }
    if huge {
        keys.push(("huge_pages", quoted("2MiB")));
    }
    if !is_vm && on(&mut config, "security.privileged") {
        keys.push(("privileged", "on".to_owned()));
    }
    let notes: Vec<&str> =
        config.names().filter(|name| NOTES.iter().any(|note| name.starts_with(note))).collect();
    notes.into_iter().for_each(|note| config.pass_over(note));
    keys
}

/// A size as Incus writes it ("Units for storage and network limits"), in whole pieces of so many bytes.
fn size(text: &str, piece: u64) -> Option<ByteSize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = (text[..digits].parse::<u64>().ok()?, text[digits..].trim());
    let scale = match unit {
        "" | "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => MIB,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    Some(ByteSize(number.checked_mul(scale)?.div_ceil(piece).checked_mul(piece)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_incus_in_whole_mib() {
        for (text, wanted) in [
            ("512MiB", Some(512 << 20)),
            ("1GB", Some(954 << 20)),
            ("1", Some(1 << 20)),
            ("50%", None),
            ("", None),
            ("99999999999TiB", None),
            ("4 GiB", Some(4 << 30)),
        ] {
            assert_eq!(size(text, MIB).map(|size| size.0), wanted, "{text}");
        }
        assert_eq!(size("3MiB", 2 * MIB), Some(ByteSize(4 * MIB)));
    }
}
