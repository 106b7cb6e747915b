//! A model in the words of another program.

mod cni;
mod incus;
mod left_out;
mod libvirt;
mod netplan;
pub(crate) mod networkd;
pub(crate) mod nmstate;
mod sriov_operator;

use penstock_model::{Diagnostics, FreeDriver, FunctionName, GuestKind, Inventory, Model, VfIndex};
use penstock_plan::{NicOnMachine, VfOnMachine, nics_on_machine};

use left_out::Omissions;

/// Whose words a model is put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExportFormat {
    /// CNI: a network for the VFs of each NIC that no guest of the model owns.
    Cni,
    /// Incus: a profile for each guest with functions.
    Incus,
    /// libvirt: a network for VFs that no guest owns, an interface for each VF of a VM, and a domain for each VM.
    Libvirt,
    /// netplan: one file for `/etc/netplan`.
    Netplan,
    /// systemd: `.link` files, which udev applies when a NIC appears (systemd.link(5)), and `.network` files for PFs with addresses.
    Networkd,
    /// nmstate's desired state, for NetworkManager (`nmstatectl apply`).
    Nmstate,
    /// Policies of the SR-IOV network operator of Kubernetes, for the VFs that no guest of the model owns.
    SriovOperator,
}

impl ExportFormat {
    /// All of them, by name.
    pub const ALL: [ExportFormat; 7] = [
        ExportFormat::Cni,
        ExportFormat::Incus,
        ExportFormat::Libvirt,
        ExportFormat::Netplan,
        ExportFormat::Networkd,
        ExportFormat::Nmstate,
        ExportFormat::SriovOperator,
    ];

    /// The program, as a sentence names it.
    fn program(self) -> &'static str {
        match self {
            ExportFormat::Cni => "CNI",
            ExportFormat::Incus => "Incus",
            ExportFormat::Libvirt => "libvirt",
            ExportFormat::Netplan => "netplan",
            ExportFormat::Networkd => "systemd",
            ExportFormat::Nmstate => "nmstate",
            ExportFormat::SriovOperator => "the SR-IOV network operator",
        }
    }

    /// What stands before a file of this name where several are printed one after the other: a comment with it. `None` where the format has no
    /// comments.
    pub fn heading(self, name: &str) -> Option<String> {
        match self {
            ExportFormat::Cni => None,
            ExportFormat::Libvirt => Some(format!("<!-- {} -->\n", hyphens_apart(name))),
            ExportFormat::Incus => Some(format!("---\n# {name}\n")),
            ExportFormat::Netplan
            | ExportFormat::Networkd
            | ExportFormat::Nmstate
            | ExportFormat::SriovOperator => Some(format!("# {name}\n")),
        }
    }

    /// Whether it gives away the VFs that no guest owns, as Penstock has set them up.
    fn gives_free_vfs(self) -> bool {
        matches!(self, ExportFormat::Cni | ExportFormat::SriovOperator)
    }
}

/// A name in a comment of XML, where no two hyphens may stand together (XML 1.0, section 2.5).
fn hyphens_apart(name: &str) -> String {
    let mut apart = String::with_capacity(name.len());
    for c in name.chars() {
        if c == '-' && apart.ends_with('-') {
            apart.push(' ');
        }
        apart.push(c);
    }
    apart
}

/// A model in another program's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its files, in order; none where the model has nothing for that program.
    pub files: Vec<ExportedFile>,
    /// What the model says and the files do not: a sentence each.
    pub left_out: Vec<String>,
}

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// Its name, without a directory.
    pub name: String,
    /// The content of the file.
    pub text: String,
}

/// Puts what a model wants of this machine's NICs into the words of another program.
///
/// # Errors
///
/// The model does not fit the machine: as of [`nics_on_machine`].
pub fn export(model: &Model, inventory: &Inventory, format: ExportFormat) -> Result<Exported, Diagnostics> {
    let all = nics_on_machine(model, inventory)?;
    let mut left_out = Omissions::new(format);
    let (managed, own): (Vec<NicOnMachine<'_>>, Vec<NicOnMachine<'_>>) =
        all.into_iter().partition(|nic| nic.nic.externally_managed);
    for nic in &managed {
        left_out.nic(nic.name, "it is externally managed: whoever makes its VFs says what is set there");
    }
    for nic in own.iter().filter(|_| !format.gives_free_vfs()) {
        for (key, said) in
            [("free", nic.nic.free_driver.is_some()), ("best_effort", !nic.nic.best_effort.is_empty())]
        {
            if said {
                left_out.nic_key(nic.name, key);
            }
        }
    }
    let files = match format {
        ExportFormat::Cni => cni::files(&own, inventory, &mut left_out),
        ExportFormat::Incus => incus::files(model, &own, &mut left_out),
        ExportFormat::Libvirt => libvirt::files(model, inventory, &own, &managed, &mut left_out),
        ExportFormat::Netplan => netplan::files(model, &own, &mut left_out),
        ExportFormat::Networkd => networkd::files(&own, &mut left_out),
        ExportFormat::Nmstate => nmstate::files(&own, &mut left_out),
        ExportFormat::SriovOperator => sriov_operator::files(model, &own, &mut left_out),
    };
    left_out.rest_of(model);
    Ok(Exported { files, left_out: left_out.sentences() })
}

/// Whether a VF is a function of a VM: not free, not a container's, and not the uplink of a NIC of a VM's own.
fn is_of_a_vm(model: &Model, nic: &NicOnMachine<'_>, vf: &VfOnMachine<'_>) -> bool {
    vf.owner.and_then(|owner| model.guests.get(owner)).is_some_and(|guest| {
        let its = |name: &FunctionName| name.nic == *nic.name && name.vf == Some(vf.index);
        guest.kind == GuestKind::Vm && guest.functions.iter().any(|function| its(&function.name))
    })
}

/// The VFs of a NIC that no guest owns, and what drives them, for a `giver` that gives them away. `None` where there are none, or where nothing drives them,
/// which is left out.
fn free_vfs(
    nic: &NicOnMachine<'_>,
    giver: &str,
    left_out: &mut Omissions,
) -> Option<(Vec<VfIndex>, FreeDriver)> {
    let free: Vec<VfIndex> = nic.vfs.iter().filter(|vf| vf.owner.is_none()).map(|vf| vf.index).collect();
    match nic.nic.free_driver.unwrap_or(FreeDriver::Host) {
        _ if free.is_empty() => None,
        FreeDriver::None => {
            left_out
                .nic(nic.name, format!("`free: {{driver: none}}`: {giver} gives out no VF without a driver"));
            None
        }
        driver => Some((free, driver)),
    }
}

/// Text as YAML takes it for text: an interface's name may be a number, or `no`.
fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_before_a_file_of_libvirt_leaves_it_xml() {
        let heading = ExportFormat::Libvirt.heading("penstock-a---b.domain.xml").unwrap();
        assert_eq!(heading, "<!-- penstock-a- - -b.domain.xml -->\n");
    }
}
