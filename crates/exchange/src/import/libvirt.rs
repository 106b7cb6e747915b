//! libvirt's XML, as `virsh dumpxml` and `virsh net-dumpxml` print it: VMs that own VFs ("Domain XML format", `<interface type='hostdev'>` and
//! `<hostdev type='pci'>`), pools of VFs ("Network XML format", `<forward mode='hostdev'>`), and single interfaces, as they are attached.
//!
//! libvirt makes no VFs and knows each by its PCI address, so that a machine is needed to tell whose VF one is.

mod disk;
mod same;
mod vm;

use std::collections::{BTreeMap, btree_map::Entry};

use penstock_model::{Bdf, InterfaceName, Inventory, VfKey, VfSettings, yaml::shown};

use super::{
    Found,
    foreign::{ForeignFields, ForeignNode},
    guest::{ForeignFunction, ForeignGuest},
    machine_nics::{MachineNics, VfOfNic},
    nic::PfSelector,
};

/// A network whose members are VFs.
#[derive(Default)]
struct Pool {
    vfs: Vec<VfOfNic>,
    vlan: VfSettings,
}

/// An interface of a network of which libvirt chooses the VF when the VM starts.
struct Choice<'a> {
    at: ForeignNode<'a>,
    network: &'a str,
    /// The position of the VM, and that of the VF among the VM's.
    guest: usize,
    place: usize,
    settings: VfSettings,
}

/// What has been read so far.
struct Reader<'a, 'm> {
    nics: MachineNics<'a, 'm>,
    guests: Vec<ForeignGuest>,
    pools: BTreeMap<&'a str, Pool>,
    /// Who owns a VF.
    owners: BTreeMap<VfOfNic, String>,
    choices: Vec<Choice<'a>>,
}

/// The NICs and VMs of these documents.
pub fn read<'a>(roots: &[ForeignNode<'a>], machine: Option<&Inventory>) -> Found<'a> {
    let mut reader = Reader {
        nics: MachineNics::new(machine),
        guests: Vec::new(),
        pools: BTreeMap::new(),
        owners: BTreeMap::new(),
        choices: Vec::new(),
    };
    let all: Vec<(&str, ForeignNode<'a>)> = roots.iter().flat_map(ForeignNode::entries).collect();
    // VMs name networks, in whatever order the files come.
    for (_, network) in all.iter().filter(|(name, _)| *name == "network") {
        reader.network(network);
    }
    for (name, node) in &all {
        match *name {
            "network" => {}
            "domain" => reader.domain(node),
            "interface" => reader.interface(node, None),
            "hostdev" => reader.hostdev(node, None),
            _ => node.error(
                "this is none of libvirt's files that are read: those have a `domain`, a `network`, an `interface` or a `hostdev`",
            ),
        }
    }
    reader.choose();
    reader.finish()
}

impl<'a> Reader<'a, '_> {
    fn network(&mut self, at: &ForeignNode<'a>) {
        let mut fields = at.fields();
        let name = fields.take("name").and_then(|name| name.text()).unwrap_or_default();
        ["uuid", "connections", "ipv6", "metadata"].iter().for_each(|key| fields.pass_over(key));
        let Some(forward) =
            fields.take("forward").filter(|forward| attribute(forward, "mode") == Some("hostdev"))
        else {
            fields.forget();
            return at.left_out(format!("the network {} is left out: it is no pool of VFs", shown(name)));
        };
        let mut pool = Pool::default();
        if let Some(vlan) = fields.take("vlan") {
            pool.vlan = one_vlan(&vlan);
        }
        let mut forward = forward.fields();
        forward.pass_over("mode");
        // Whether libvirt binds vfio-pci itself: whoever starts the VM does that.
        forward.pass_over("managed");
        if let Some(driver) = forward.take("driver") {
            driver.fields().pass_over("name");
        }
        for pf in forward.take_all("pf") {
            self.pool_of_pf(&pf, &mut pool);
        }
        for address in forward.take_all("address") {
            pool.vfs.extend(self.vf(&address));
        }
        for (nic, index) in pool.vfs.iter().copied() {
            self.nics.nics[nic].add(index, &pool.vlan, at);
        }
        if self.pools.insert(name, pool).is_some() {
            at.error(format!("there are two networks {}", shown(name)));
        }
    }

    /// All VFs of the PF whose interface has this name.
    fn pool_of_pf(&mut self, at: &ForeignNode<'a>, pool: &mut Pool) {
        let mut fields = at.fields();
        let Some(name) = fields.value::<InterfaceName>("dev") else {
            return at.error("a `pf` has its interface's name as `dev`");
        };
        let nic = self.nics.selected(PfSelector::by_name(name), at);
        pool.vfs.extend(self.nics.all_vfs_of(nic, "libvirt", at));
    }

    fn domain(&mut self, at: &ForeignNode<'a>) {
        let mut fields = at.fields();
        let name = fields.take("name").and_then(|name| name.text()).unwrap_or_default();
        let mut devices = fields.take("devices").map(|devices| devices.fields());
        let guest = self.guests.len();
        self.guests.push(ForeignGuest { name: name.to_owned(), ..ForeignGuest::default() });
        if let Some(devices) = &mut devices {
            for interface in devices.take_all("interface") {
                self.interface(&interface, Some(guest));
            }
            for device in devices.take_all("hostdev") {
                self.hostdev(&device, Some(guest));
            }
        }
        if self.guests[guest].functions.is_empty() {
            self.guests.truncate(guest);
            devices.iter_mut().for_each(ForeignFields::forget);
            fields.forget();
            return at
                .left_out(format!("the VM {} is left out: none of its interfaces is a VF", shown(name)));
        }
        self.guests[guest].keys = vm::keys(at, fields, devices);
    }

    fn interface(&mut self, at: &ForeignNode<'a>, guest: Option<usize>) {
        let mut fields = at.fields();
        ["managed", "alias", "target"].iter().for_each(|key| fields.pass_over(key));
        let kind = fields.take("type").and_then(|kind| kind.text()).unwrap_or_default();
        let source = fields.take("source");
        let network = source.as_ref().and_then(|source| attribute(source, "network"));
        let of_pool = network.filter(|network| kind == "network" && self.pools.contains_key(network));
        if kind != "hostdev" && of_pool.is_none() {
            fields.forget();
            return at.left_out(match (kind, network) {
                ("network", Some(network)) => format!(
                    "`interface` is left out: no file here has the network {} as a pool of VFs",
                    shown(network)
                ),
                _ => "`interface` is left out: it is no VF".to_owned(),
            });
        }
        let mut settings = VfSettings::default();
        if let Some(mac) = fields.take("mac") {
            let mac = mac.fields().take("address").and_then(|mac| mac.setting(VfKey::Mac));
            settings = settings.or(&mac.unwrap_or_default());
        }
        if let Some(vlan) = fields.take("vlan") {
            settings = settings.or(&one_vlan(&vlan));
        }
        if let Some(driver) = fields.take("driver") {
            driver.fields().pass_over("name");
        }
        fields.left_out("address", "a VM of a model finds its functions at addresses that libvirt chooses");
        match (of_pool, guest) {
            (None, _) => {
                let mut source = source.map(|source| source.fields());
                let address = source.as_mut().and_then(|source| source.take("address"));
                match address {
                    Some(address) => self.own(&address, settings, guest),
                    None => {
                        at.error("an interface of type hostdev has the PCI address of its VF in `source`")
                    }
                }
            }
            (Some(network), Some(guest)) => {
                let mut source = source.map(|source| source.fields());
                // The second and third are those of a VM that runs.
                ["network", "portid", "bridge"]
                    .iter()
                    .for_each(|key| source.iter_mut().for_each(|source| source.pass_over(key)));
                let functions = &mut self.guests[guest].functions;
                let place = functions.len();
                functions.push(ForeignFunction::default());
                self.choices.push(Choice { at: at.clone(), network, guest, place, settings });
            }
            (Some(_), None) => at.left_out(
                "`interface` is left out: no VM here has it, and which VF it gets is chosen by libvirt",
            ),
        }
    }

    fn hostdev(&mut self, at: &ForeignNode<'a>, guest: Option<usize>) {
        let mut fields = at.fields();
        ["managed", "alias", "mode"].iter().for_each(|key| fields.pass_over(key));
        if fields.take("type").and_then(|kind| kind.text()) != Some("pci") {
            fields.forget();
            return at.left_out("`hostdev` is left out: it is no PCI device");
        }
        if let Some(driver) = fields.take("driver") {
            driver.fields().pass_over("name");
        }
        fields.left_out("address", "a VM of a model finds its functions at addresses that libvirt chooses");
        let address = fields.take("source").and_then(|source| source.fields().take("address"));
        match address {
            Some(address) => self.own(&address, VfSettings::default(), guest),
            None => at.error("a PCI device of the host has its address in `source`"),
        }
    }

    /// The VF at this address has these settings, and is this VM's.
    fn own(&mut self, address: &ForeignNode<'a>, settings: VfSettings, guest: Option<usize>) {
        let Some(vf) = self.vf(address) else { return };
        self.nics.nics[vf.0].add(vf.1, &settings, address);
        if let Some(guest) = guest
            && self.give(vf, guest, address)
        {
            self.guests[guest].functions.push(ForeignFunction { vf: Some(vf), keys: Vec::new() });
        }
    }

    /// Makes a VF a VM's; `false` where it is another's already, which is told: a VF of a model is one guest's.
    fn give(&mut self, vf: VfOfNic, guest: usize, at: &ForeignNode<'a>) -> bool {
        let name = &self.guests[guest].name;
        match self.owners.entry(vf) {
            Entry::Occupied(owner) => {
                let nic = &self.nics.nics[vf.0].name;
                at.left_out(format!(
                    "VF {} of {} is left out of the VM {}: it is the VM {}'s already",
                    vf.1,
                    shown(nic),
                    shown(name),
                    shown(owner.get())
                ));
                false
            }
            Entry::Vacant(free) => {
                free.insert(name.clone());
                true
            }
        }
    }

    /// Chooses the VFs of pools: the first that nobody has.
    fn choose(&mut self) {
        for Choice { at, network, guest, place, settings } in std::mem::take(&mut self.choices) {
            let free = |vf: &&VfOfNic| !self.owners.contains_key(vf);
            let Some(vf) = self.pools.get(network).and_then(|pool| pool.vfs.iter().find(free).copied())
            else {
                at.left_out(format!(
                    "`interface` is left out: the network {} has no VF that nobody else has, as far as is known",
                    shown(network)
                ));
                continue;
            };
            at.left_out(format!(
                "that libvirt may take any VF of {} is left out: a function of a model is one VF, here {}#{}",
                shown(network),
                self.nics.nics[vf.0].name,
                vf.1
            ));
            self.nics.nics[vf.0].add(vf.1, &settings, &at);
            if self.give(vf, guest, &at) {
                self.guests[guest].functions[place].vf = Some(vf);
            }
        }
    }

    /// Which VF has the PCI address that this says, in four attributes.
    fn vf(&mut self, at: &ForeignNode<'a>) -> Option<VfOfNic> {
        self.nics.vf_at(bdf(at)?, at)
    }

    fn finish(mut self) -> Found<'a> {
        // A VM whose pools had no VF left has none.
        self.guests.retain(|guest| guest.functions.iter().any(|function| function.vf.is_some()));
        Found { machine: None, nics: self.nics.finish(), guests: self.guests }
    }
}

/// An attribute, or an element that is only text.
fn attribute<'a>(of: &ForeignNode<'a>, name: &str) -> Option<&'a str> {
    child(of, name)?.text()
}

/// The first attribute or element of this name; an element that is only text has none. What else there is is not told.
fn child<'a>(of: &ForeignNode<'a>, name: &str) -> Option<ForeignNode<'a>> {
    if of.text().is_some() {
        return None;
    }
    of.entries().into_iter().find(|(key, _)| *key == name).map(|(_, node)| node)
}

/// The VLAN of an interface or a network, if it is one.
fn one_vlan(at: &ForeignNode<'_>) -> VfSettings {
    let mut fields = at.fields();
    let tags = fields.take_all("tag");
    let [tag] = &tags[..] else {
        fields.forget();
        at.left_out("`vlan` is left out: a VF is in one VLAN");
        return VfSettings::default();
    };
    tag.fields().take("id").and_then(|id| id.setting(VfKey::Vlan)).unwrap_or_default()
}

/// A PCI address in attributes, each in the words of C: `0x10`, `020` or `16`.
fn bdf(at: &ForeignNode<'_>) -> Option<Bdf> {
    let mut fields = at.fields();
    fields.pass_over("type");
    let mut part = |name: &str| match fields.take(name).map(|node| node.text().and_then(number)) {
        Some(number) => number,
        None if name == "bus" => None,
        None => Some(0),
    };
    let parts = (part("domain"), part("bus"), part("slot"), part("function"));
    let (Some(domain), Some(bus), Some(slot), Some(function)) = parts else {
        fields.forget();
        at.left_out("this address is left out: it is no PCI address");
        return None;
    };
    let bdf = format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}").parse();
    bdf.map_err(|_| at.error("this is no PCI address")).ok()
}

fn number(text: &str) -> Option<u32> {
    match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(hexadecimal), _) => u32::from_str_radix(hexadecimal, 16).ok(),
        (None, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c() {
        for (text, wanted) in [
            ("0x1f", Some(31)),
            ("020", Some(16)),
            ("0", Some(0)),
            ("16", Some(16)),
            ("08", None),
            ("", None),
        ] {
            assert_eq!(number(text), wanted, "{text}");
        }
    }
}
