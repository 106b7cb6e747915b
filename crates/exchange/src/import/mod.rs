//! Another program's files as a model.

mod cni;
mod foreign;
mod guest;
mod incus;
mod inside;
mod libvirt;
mod machine_nics;
mod netplan;
mod networkd;
mod nic;
mod nmstate;
mod sriov_operator;
mod text;
mod xml;

use std::collections::{HashMap, hash_map::Entry};

use penstock_model::{
    Diagnostic, Diagnostics, Inventory, MachineName, NicMatch, Path, PathTarget, Severity, Source, VfIndex,
    parse, text::counted, yaml,
};

use foreign::{ForeignNode, ImportMessages};
use guest::ForeignGuest;
use nic::{ForeignNic, PfSelector};

use crate::ini;

/// The most messages about one file.
const MAX_MESSAGES: usize = 100;
/// The most NICs that a model is made of; no machine has so many PFs.
const MAX_NICS: usize = 256;
/// The most places that one message names.
const MAX_PLACES: usize = 8;

/// Whose files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImportFormat {
    /// Network configurations of CNI whose plugin gives containers VFs.
    Cni,
    /// Incus' YAML: instances, profiles, and networks of type `sriov`.
    Incus,
    /// libvirt's XML: domains, networks, and single devices.
    Libvirt,
    /// netplan's YAML, version 2.
    Netplan,
    /// systemd: `.link` files, and the `.network` files of the same PFs.
    Networkd,
    /// nmstate's desired state, also within a `NodeNetworkConfigurationPolicy` of kubernetes-nmstate.
    Nmstate,
    /// Policies of the SR-IOV network operator of Kubernetes.
    SriovOperator,
}

impl ImportFormat {
    /// All of them, by name.
    pub const ALL: [ImportFormat; 7] = [
        ImportFormat::Cni,
        ImportFormat::Incus,
        ImportFormat::Libvirt,
        ImportFormat::Netplan,
        ImportFormat::Networkd,
        ImportFormat::Nmstate,
        ImportFormat::SriovOperator,
    ];

    /// The program, as a sentence names it.
    fn program(self) -> &'static str {
        match self {
            ImportFormat::Cni => "CNI",
            ImportFormat::Incus => "Incus",
            ImportFormat::Libvirt => "libvirt",
            ImportFormat::Netplan => "netplan",
            ImportFormat::Networkd => "systemd",
            ImportFormat::Nmstate => "nmstate",
            ImportFormat::SriovOperator => "the SR-IOV network operator",
        }
    }
}

/// A model made of other programs' files.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The model's text. It is a good model.
    pub model: String,
    /// What the files say and the model does not, with its place and why; those of each file, in the order of the files.
    pub warnings: Vec<Diagnostics>,
}

/// What a reader of one program's files has found.
#[derive(Default)]
struct Found<'a> {
    machine: Option<MachineName>,
    nics: Vec<ForeignNic<'a>>,
    /// Guests that own VFs of these.
    guests: Vec<ForeignGuest>,
}

/// Reads files of another program into a model. Interfaces that they name are looked up on `machine`.
///
/// # Errors
///
/// The messages of each file, in the order of the files, when one of them is an error: it cannot be read, is none of that program, or says
/// of a NIC or a VF what nothing could have; and when nothing in them is a NIC with VFs. Warnings are among them.
pub fn import(
    sources: &[Source],
    format: ImportFormat,
    machine: Option<&Inventory>,
) -> Result<Imported, Vec<Diagnostics>> {
    let messages = ImportMessages::default();
    let mut documents = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        let read = match format {
            ImportFormat::Networkd => ini::sections(&source.text, networkd::OF_A_VF).map(|root| vec![root]),
            ImportFormat::Libvirt => xml::document(&source.text).map(|root| vec![root]),
            ImportFormat::Cni
            | ImportFormat::Incus
            | ImportFormat::Netplan
            | ImportFormat::Nmstate
            | ImportFormat::SriovOperator => yaml::documents(&source.text),
        };
        match read {
            Ok(all) => documents.extend(all.into_iter().map(|document| (file, document))),
            Err(found) => found.0.into_iter().for_each(|message| messages.push(file, message)),
        }
    }
    let roots: Vec<ForeignNode<'_>> = documents
        .iter()
        .map(|(file, document)| ForeignNode::root(document, *file, &messages))
        .filter(|root| !root.is_null())
        .collect();
    let Found { machine: called, nics, guests } = match format {
        ImportFormat::Cni => cni::read(&roots, machine),
        ImportFormat::Incus => incus::read(&roots, machine),
        ImportFormat::Libvirt => libvirt::read(&roots, machine),
        ImportFormat::Netplan => netplan::read(&roots, machine),
        ImportFormat::Networkd => networkd::read(&roots),
        ImportFormat::Nmstate => nmstate::read(&roots),
        ImportFormat::SriovOperator => sriov_operator::read(&roots),
    };
    let mut found: Vec<(ForeignNic<'_>, Option<NicMatch>)> = Vec::new();
    if let Some(nic) = nics.get(MAX_NICS) {
        nic.at.error(format!(
            "this is one NIC too many: there are {}, and at most {MAX_NICS} are read",
            nics.len()
        ));
    }
    for mut nic in nics.into_iter().take(MAX_NICS) {
        settle_count(&mut nic);
        let matching = nic.find(machine);
        let twin = found.iter().find(|(other, of_other)| {
            let named = nic.selector != PfSelector::default();
            named && other.selector == nic.selector || matching.is_some() && *of_other == matching
        });
        match twin {
            Some((other, _)) => nic.at.error(format!(
                "this and {} are one PF; a model has it once: bring together what the files say of it",
                yaml::shown(&other.name)
            )),
            None => found.push((nic, matching)),
        }
    }
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let from = format!("{}: {}", format.program(), names.join(", "));
    let text = text::model(&from, called.as_ref(), &found, &guests);
    let nothing = found.is_empty();
    drop(found);
    drop(roots);
    let mut all = by_file(messages, sources.len());
    if !all.iter().any(Diagnostics::has_errors) {
        if nothing {
            let message = format!("nothing here is a NIC with VFs in the words of {}", format.program());
            about_all(&mut all, message);
        } else if let Err(wrong) = parse(&Source::new("model.yaml", text.as_str())) {
            about_all(
                &mut all,
                format!("what it says makes no good model: {}", wrong.to_string().replace('\n', "; ")),
            );
        }
    }
    match all.iter().any(Diagnostics::has_errors) {
        true => Err(all),
        false => Ok(Imported { model: text, warnings: all }),
    }
}

/// The number of VFs, where only single VFs are named; VFs beyond a number that is given are left out.
fn settle_count(nic: &mut ForeignNic<'_>) {
    let Some(vfs) = nic.vfs else {
        nic.vfs = Some(nic.named()).filter(|named| *named > 0);
        return;
    };
    let beyond: Vec<VfIndex> = nic.settings.keys().copied().filter(|index| index.get() >= vfs).collect();
    for index in beyond {
        nic.settings.remove(&index);
        nic.at.left_out(format!("VF {index} is left out: there are {}", counted(usize::from(vfs), "VF")));
    }
}

/// Adds an error about the first file as a whole.
fn about_all(all: &mut Vec<Diagnostics>, message: String) {
    let error = Diagnostic::error(Path::default(), message);
    match all.first_mut() {
        Some(first) => first.0.push(error),
        None => all.push(error.into()),
    }
}

/// The messages of each file, in its order. One that is said of many places is said once, with these.
fn by_file(messages: ImportMessages, files: usize) -> Vec<Diagnostics> {
    let mut all = vec![Vec::new(); files];
    for (file, message) in messages.into_vec() {
        all[file].push(message);
    }
    all.into_iter().map(|messages| Diagnostics(brief(messages))).collect()
}

fn brief(mut messages: Vec<Diagnostic>) -> Vec<Diagnostic> {
    messages.sort_by_key(|message| match &message.place {
        PathTarget::Bytes(bytes) => bytes.start,
        _ => usize::MAX,
    });
    let mut said: Vec<(Diagnostic, Vec<Path>)> = Vec::new();
    let mut at = HashMap::new();
    for message in messages {
        match at.entry((message.severity == Severity::Error, message.message.clone())) {
            Entry::Occupied(first) => {
                let (first, more): &mut (Diagnostic, Vec<Path>) = &mut said[*first.get()];
                if first.path != message.path {
                    more.push(message.path);
                }
            }
            Entry::Vacant(new) => {
                new.insert(said.len());
                said.push((message, Vec::new()));
            }
        }
    }
    let more = said.len().saturating_sub(MAX_MESSAGES);
    if more > 0 {
        said.sort_by_key(|(message, _)| message.severity);
        said.truncate(MAX_MESSAGES);
    }
    let mut brief: Vec<Diagnostic> =
        said.into_iter().map(|(message, more)| with_places(message, &more)).collect();
    if more > 0 {
        let wrong = brief.iter().any(|message| message.severity == Severity::Error);
        let text = format!("there is more than these {MAX_MESSAGES}: {more} messages are not shown");
        brief.push(match wrong {
            true => Diagnostic::error(Path::default(), text),
            false => Diagnostic::warning(Path::default(), text),
        });
    }
    brief
}

/// A message with the other places of which the same holds.
fn with_places(message: Diagnostic, more: &[Path]) -> Diagnostic {
    if more.is_empty() {
        return message;
    }
    let mut places: Vec<String> =
        more.iter().take(MAX_PLACES).map(|path| yaml::shown(&path.to_string())).collect();
    if more.len() > MAX_PLACES {
        places.push(format!("and {} more places", more.len() - MAX_PLACES));
    }
    let same = format!("the same holds of {}", places.join(", "));
    let hint = message.hint.as_ref().map_or_else(|| same.clone(), |hint| format!("{hint}; {same}"));
    message.with_hint(hint)
}
