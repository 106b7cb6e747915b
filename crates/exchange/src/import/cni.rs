//! Network configurations of CNI (specification 0.3 to 1.1: "Network configuration format", single ones and lists) whose plugin gives containers VFs: the SR-IOV
//! plugin of the Kubernetes network plumbing group, `penstock-cni`, and `host-device`.
//!
//! The plugin sets what a configuration says of a VF when a container gets it, and goes on to do so. A model keeps what a single VF has with the guest that owns
//! it, and these VFs stay free for containers: so a model has what is set of all VFs of a PF alone.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, FreeDriver, InterfaceName, Inventory, Mac, VfIndex, VfKey, VfSettings, yaml::shown,
};

use super::{
    Found,
    foreign::{ForeignFields, ForeignNode},
    machine_nics::{MachineNics, VfOfNic},
    nic::{PfSelector, VfNetwork},
};

/// What to do about attributes that a model does not take over.
const HINT: &str = "leave it in the configuration: the plugin sets it when a container gets the VF";

/// What has been read so far.
struct Reader<'a, 'm> {
    nics: MachineNics<'a, 'm>,
    /// By NIC.
    given: BTreeMap<usize, Given<'a>>,
}

/// What networks say of the VFs of a NIC.
struct Given<'a> {
    /// The driver of the first network's VFs; `None`: the host's.
    free: Option<FreeDriver>,
    /// In the order of the files.
    networks: Vec<VfNetwork<'a>>,
    /// The VFs that some network gives away.
    vfs: BTreeSet<VfIndex>,
}

/// The NICs of these documents.
pub fn read<'a>(roots: &[ForeignNode<'a>], machine: Option<&Inventory>) -> Found<'a> {
    let mut reader = Reader { nics: MachineNics::new(machine), given: BTreeMap::new() };
    for root in roots {
        reader.configuration(root);
    }
    let mut nics = reader.nics.finish();
    for (nic, given) in reader.given {
        let nic = &mut nics[nic];
        nic.free = given.free;
        let vfs = nic.vfs.unwrap_or_else(|| nic.named());
        let all = (0..vfs).filter_map(VfIndex::new).all(|index| given.vfs.contains(&index));
        nic.add_to_all(vfs, &given.networks, all, HINT);
    }
    Found { machine: None, nics, guests: Vec::new() }
}

impl<'a> Reader<'a, '_> {
    fn configuration(&mut self, at: &ForeignNode<'a>) {
        let mut fields = at.fields();
        if fields.take("kind").is_some() {
            fields.forget();
            return at.left_out_with_hint(
                "this object of Kubernetes is left out: it is no network configuration",
                "a NetworkAttachmentDefinition has one as text: kubectl get net-attach-def NAME -o jsonpath='{.spec.config}'",
            );
        }
        ["cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins"]
            .iter()
            .for_each(|key| fields.pass_over(key));
        if let Some(plugins) = fields.take("plugins") {
            return plugins.items().iter().for_each(|plugin| self.plugin(plugin, plugin.fields()));
        }
        if !fields.names().any(|name| name == "type") {
            fields.forget();
            return at
                .error("this is no network configuration of CNI: it has neither `plugins` nor a `type`");
        }
        self.plugin(at, fields);
    }

    fn plugin(&mut self, at: &ForeignNode<'a>, mut fields: ForeignFields<'a>) {
        let Some(kind) = fields.value::<String>("type") else {
            fields.forget();
            return at.error("a plugin has a `type`");
        };
        match kind.as_str() {
            "sriov" | "penstock-cni" => self.sriov(at, fields),
            "host-device" => self.host_device(at, fields),
            _ => {
                fields.forget();
                at.left_out(format!("the plugin {} is left out: it gives no container a VF", shown(&kind)));
            }
        }
    }

    fn sriov(&mut self, at: &ForeignNode<'a>, mut fields: ForeignFields<'a>) {
        of_containers(&mut fields);
        let driver = fields.take("driver");
        let settings = settings(&mut fields);
        let device = fields.take("deviceID").filter(|device| device.text() != Some(""));
        if device.is_some() {
            ["pf", "vfs"].iter().for_each(|key| fields.left_out(key, "`deviceID` says which VF it is"));
        }
        let given: Vec<VfOfNic> = match (device, fields.take("pf")) {
            (Some(device), _) => {
                device.value().and_then(|bdf: Bdf| self.nics.vf_at(bdf, &device)).into_iter().collect()
            }
            (None, Some(pf)) => {
                let vfs = fields.take("vfs");
                let Some(selector) = selector(&pf) else { return };
                let nic = self.nics.selected(selector, &pf);
                match vfs {
                    Some(vfs) => {
                        let named =
                            vfs.items().iter().filter_map(ForeignNode::value::<VfIndex>).collect::<Vec<_>>();
                        named.into_iter().map(|index| self.nics.name((nic, index))).collect()
                    }
                    None => self.nics.all_vfs_of(nic, "a CNI plugin", &pf),
                }
            }
            (None, None) => {
                fields.forget();
                return at.left_out_with_hint(
                    "this plugin is left out: it names no VF, which a device plugin chooses",
                    "policies of the SR-IOV network operator say which VFs that has: `import --from sriov-operator`",
                );
            }
        };
        let free = driver.as_ref().and_then(|driver| match driver.text() {
            Some("vfio-pci") => Some(FreeDriver::VfioPci),
            _ => {
                driver.left_out("`driver` is left out: a model knows `vfio-pci`");
                None
            }
        });
        self.give(&given, free, &settings, at);
    }

    /// Moves any device of the host; one that is known by its PCI address may be a VF.
    fn host_device(&mut self, at: &ForeignNode<'a>, mut fields: ForeignFields<'a>) {
        of_containers(&mut fields);
        let device = fields.take("pciBusID").filter(|device| device.text() != Some(""));
        ["device", "hwaddr", "kernelpath"]
            .iter()
            .for_each(|key| fields.left_out(key, "only a PCI address says which VF is meant"));
        let Some(device) = device else {
            return at.left_out("this plugin is left out: it has no `pciBusID`");
        };
        let given = device.value().and_then(|bdf: Bdf| self.nics.vf_at(bdf, &device));
        self.give(given.as_slice(), None, &VfSettings::default(), at);
    }

    /// Notes that these VFs are a network's, which has this driver and sets this of them.
    fn give(
        &mut self,
        vfs: &[VfOfNic],
        free: Option<FreeDriver>,
        settings: &VfSettings,
        at: &ForeignNode<'a>,
    ) {
        for nic in vfs.iter().map(|(nic, _)| *nic).collect::<BTreeSet<usize>>() {
            let given = (self.given.entry(nic)).or_insert_with(|| Given {
                free,
                networks: Vec::new(),
                vfs: BTreeSet::new(),
            });
            if given.free != free {
                at.left_out("the driver of this network's VFs is left out: another network of the PF has another, and a model has one for all VFs of a NIC that no guest owns");
            }
            given.networks.push(VfNetwork { settings: settings.clone(), at: at.clone() });
            given.vfs.extend(vfs.iter().filter(|(of, _)| *of == nic).map(|(_, index)| *index));
        }
    }
}

/// What a container gets beside its VF, and what is of no configuration but of a call.
fn of_containers(fields: &mut ForeignFields<'_>) {
    ["cniVersion", "name", "prevResult", "runtimeConfig", "args"]
        .iter()
        .for_each(|key| fields.pass_over(key));
    ["ipam", "dns", "capabilities", "mtu", "addresses", "routes", "logLevel", "logFile", "dpdkMode"]
        .iter()
        .for_each(|key| fields.left_out(key, "what a container gets beside its VF stays with the plugin"));
    fields.left_out("mac", "any container of the network gets it, and a model has the address of one VF");
}

/// What a plugin sets of a VF.
fn settings(fields: &mut ForeignFields<'_>) -> VfSettings {
    let keys = [
        ("vlan", VfKey::Vlan),
        ("vlanQoS", VfKey::Qos),
        ("vlanProto", VfKey::VlanProto),
        ("spoofchk", VfKey::Spoofchk),
        ("trust", VfKey::Trust),
        ("link_state", VfKey::LinkState),
        ("min_tx_rate", VfKey::MinTxRate),
        ("max_tx_rate", VfKey::MaxTxRate),
    ];
    // A priority of 0 is none.
    fields.settings(keys, |key, text| text.is_empty() || key == VfKey::Qos && text == "0")
}

/// A PF as `penstock-cni` knows it: by its PCI address, its permanent MAC address or the name of its interface.
fn selector(at: &ForeignNode<'_>) -> Option<PfSelector> {
    let text = at.text().unwrap_or_default();
    if let Ok(bdf) = text.parse::<Bdf>() {
        return Some(PfSelector::by_address(bdf));
    }
    if let Ok(mac) = text.parse::<Mac>() {
        return Some(PfSelector { mac: Some(mac), ..PfSelector::default() });
    }
    at.value::<InterfaceName>().map(PfSelector::by_name)
}
