//! Keys by which other tools say which device a NIC is, and Penstock does not; what to write instead.
//!
//! The kernel counts interfaces in the order in which drivers find them, and names that udev makes from a slot (`enp4s0f0`) change when
//! a card is added (systemd.net-naming-scheme(7)). A model that selects by name would give away another card's VFs in silence.

use crate::{
    Diagnostics, Inventory, Source,
    diagnostic::{Diagnostic, Path, PathTarget},
    inventory::Pf,
    text::one_line,
    tree::{self, YamlNode, YamlValue},
};

/// Selectors by interface name: netplan's and nmstate's `name`, the SR-IOV network operator's `pfNames`, and what people try.
const BY_NAME: [&str; 17] = [
    "interface",
    "interfaces",
    "interface-name",
    "interface_name",
    "iface",
    "ifname",
    "ifnames",
    "ifName",
    "name",
    "names",
    "dev",
    "device",
    "netdev",
    "link",
    "pfName",
    "pfNames",
    "pf_names",
];

/// Other selectors, and what stands for them.
const OTHERS: [(&[&str], &str); 4] = [
    (
        &["macaddress", "mac-address", "mac_address", "macAddress", "hwaddr", "permanent_mac", "permaddr"],
        "did you mean `mac`?",
    ),
    (
        &["pci", "pciAddress", "pci_address", "pci-address", "address", "addr", "rootDevices", "busaddr"],
        "did you mean `bdf`?",
    ),
    (
        &["vendor", "vendorID", "vendor_id", "deviceID", "device_id", "devices", "model"],
        "a NIC is one device and not a kind of device: write its `mac`; `driver` tells kinds apart",
    ),
    (&["serial-number", "serial_number", "serialNumber", "sn"], "did you mean `serial`?"),
];

/// What to do about a name, where no machine was looked at.
const GENERAL: &str = "write the PF's permanent address, {mac: ...}: `penstock scan` shows it, and `penstock check --here` says which PF \
                       has the name now";

/// Message and hint on an unknown key at `path`, where it is such a selector.
pub(crate) fn explain(path: &Path) -> Option<(String, String)> {
    let key = of_match(path)?;
    let unknown = format!("unknown key `{key}`");
    if BY_NAME.contains(&key) {
        return Some((
            format!("{unknown}: a NIC is not selected by its interface's name, because kernel names move"),
            GENERAL.to_owned(),
        ));
    }
    let found = OTHERS.iter().find(|(keys, _)| keys.contains(&key));
    found.map(|(_, hint)| (unknown, (*hint).to_owned()))
}

/// The last key of a path into a NIC's `match`.
fn of_match(path: &Path) -> Option<&str> {
    match path.0.as_slice() {
        [nics, _, matching, key] if nics == "nics" && matching == "match" => Some(key),
        _ => None,
    }
}

impl Diagnostics {
    /// Whether a NIC is selected by its interface's name, so that [`Diagnostics::tell_who_has_the_names`] has something to tell.
    pub fn select_by_name(&self) -> bool {
        self.0.iter().any(is_by_name)
    }

    /// Says in each message about a NIC that is selected by its interface's name that nobody looked which PF has it, `why`, and what
    /// shows it.
    pub fn tell_that_names_are_unknown(&mut self, why: &str, shown_by: &str) {
        for message in self.0.iter_mut().filter(|message| is_by_name(message)) {
            message.hint = Some(format!(
                "write the PF's permanent address, {{mac: ...}}, which {shown_by} shows; {why}"
            ));
        }
    }

    /// Adds to each message about a NIC that is selected by its interface's name which PF of `inventory` has that name now, and what
    /// to write for it. `source` is the file that the messages are about.
    pub fn tell_who_has_the_names(&mut self, source: &Source, inventory: &Inventory) {
        let Ok((mut root, _)) = tree::read(&source.text) else { return };
        for message in self.0.iter_mut().filter(|message| is_by_name(message)) {
            let mut node = Some(&mut root);
            for segment in &message.path.0 {
                node = node.and_then(|node| node.child_mut(segment));
            }
            let names = node.map(|node| names(node)).unwrap_or_default();
            let told: Vec<String> = names.iter().map(|name| who_has(name, inventory)).collect();
            if !told.is_empty() {
                message.hint = Some(told.join("; "));
            }
        }
    }
}

fn is_by_name(message: &Diagnostic) -> bool {
    message.place == PathTarget::Key && of_match(&message.path).is_some_and(|key| BY_NAME.contains(&key))
}

/// The names that a selector's value has: text, or a list of texts; a range of VFs behind it (`eno1#0-3`) is left out.
fn names(node: &YamlNode) -> Vec<String> {
    /// A file may have very many.
    const MOST: usize = 8;
    let name = |text: &str| text.split('#').next().unwrap_or_default().trim().to_owned();
    let all = match &node.value {
        YamlValue::Scalar(text) => vec![name(text)],
        YamlValue::Sequence(items) => items.iter().flat_map(names).take(MOST).collect(),
        YamlValue::Null | YamlValue::Spoiled | YamlValue::Mapping(_) => Vec::new(),
    };
    all.into_iter().filter(|name| !name.is_empty()).take(MOST).collect()
}

/// Which PF has this name, and what selects it.
fn who_has(name: &str, inventory: &Inventory) -> String {
    let named = |pf: &Pf| pf.interface.as_ref().map(|interface| interface.name.to_string());
    let shown = one_line(name);
    match inventory.pfs.iter().find(|pf| named(pf).as_deref() == Some(name)) {
        Some(pf) => {
            let now = format!("{shown} is now the PF {}", pf.bdf);
            match (pf.permanent_mac, pf.identity.serial) {
                (Some(mac), _) => format!("{now}: write {{mac: \"{mac}\"}}"),
                (None, Some(serial)) => {
                    format!("{now}: write {{serial: {serial}, port: {}}}", pf.bdf.function())
                }
                (None, None) => format!(
                    "{now}, whose permanent address cannot be read: write {{bdf: \"{}\"}}, which holds until the machine is \
                     renumbered",
                    pf.bdf
                ),
            }
        }
        None => {
            let all: Vec<String> = inventory.pfs.iter().filter_map(named).collect();
            match all.is_empty() {
                true => {
                    format!("no NIC of this machine has the name {shown} now, or any name that can be seen")
                }
                false => {
                    format!("no NIC of this machine has the name {shown} now; there are {}", all.join(", "))
                }
            }
        }
    }
}
