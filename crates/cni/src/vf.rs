//! One VF: where it is, and what it is set to.

use std::time::{Duration, Instant};

use penstock_host::{
    InterfaceReport, Netlink, NetlinkError, PciFunction, Root, VfBackend, local_interface_of,
    netlink::{wait_for_interface, wait_for_udev},
};
use penstock_model::{
    Bdf, LinkState, Mac, VfAttribute, VfAttributeKind, VfIndex, VfSettings, inventory::VfState,
};

use crate::{config::Pf, document::CniError};

/// How long the interface of a VF may take to come, after its driver was bound or its namespace ended.
pub const INTERFACE: Duration = Duration::from_secs(10);
/// How long udev may take to name it.
pub const UDEV: Duration = Duration::from_secs(2);

/// A VF of this machine.
#[derive(Clone, Debug)]
pub struct Vf {
    /// The VF's own PCI function.
    pub function: PciFunction,
    /// The PCI function of its PF.
    pub pf: PciFunction,
    /// Its index there.
    pub index: VfIndex,
}

impl Vf {
    /// The VF at this address.
    ///
    /// # Errors
    ///
    /// When there is none, or it is no VF.
    pub fn at(root: &Root, function: Bdf) -> Result<Vf, CniError> {
        let vf = PciFunction::new(root, function);
        if !vf.exists() {
            return Err(CniError::new(CniError::NO_VF, format!("there is no PCI function {function}"))
                .hint("its PF may have fewer VFs now: see sriov_numvfs"));
        }
        let Some(pf) = vf.physical_function()? else {
            return Err(CniError::new(CniError::NO_VF, format!("{function} is no VF")));
        };
        let pf = PciFunction::new(root, pf);
        let index = pf.virtual_functions()?.into_iter().find(|(_, of)| *of == function);
        let (index, _) = index.ok_or_else(|| {
            CniError::new(CniError::NO_VF, format!("{} does not list {function} among its VFs", pf.bdf()))
        })?;
        Ok(Vf { function: vf, pf, index })
    }

    /// The VF's PCI address.
    pub fn bdf(&self) -> Bdf {
        self.function.bdf()
    }
}

/// Whether somebody on the host takes frames of any address from an interface: a switch whose uplink it is, a bridge, a recorder.
pub fn listened_to(report: &InterfaceReport) -> bool {
    report.promiscuous == Some(true)
}

/// The PF that a configuration names.
///
/// # Errors
///
/// When there is none.
pub fn pf(root: &Root, named: &Pf, links: &[InterfaceReport]) -> Result<PciFunction, CniError> {
    let report = |wanted: &dyn Fn(&InterfaceReport) -> bool| {
        links
            .iter()
            .find(|report| report.kind.is_none() && wanted(report))
            .or_else(|| links.iter().find(|r| wanted(r)))
    };
    let found = match named {
        Pf::Function(function) => Some(PciFunction::new(root, *function)),
        Pf::Mac(mac) => report(&|of| of.permanent_mac.unwrap_or(of.interface.mac) == *mac)
            .and_then(|of| function_named(root, of.interface.name.as_str())),
        Pf::Interface(name) => function_named(root, name.as_str()),
    };
    let found = found.filter(PciFunction::exists);
    found.ok_or_else(|| CniError::new(CniError::NO_VF, format!("there is no PF {named} here")))
}

/// The function whose interface is called `name` in the namespace of this `/sys`: in both layouts, as
/// `/sys/class/net/NAME/device` is the function or its virtio device.
fn function_named(root: &Root, name: &str) -> Option<PciFunction> {
    let device = penstock_host::files::canonical(root.path(format!("/sys/class/net/{name}/device"))).ok()?;
    let function =
        device.ancestors().take(2).find_map(|part| part.file_name()?.to_str()?.parse::<Bdf>().ok())?;
    Some(PciFunction::new(root, function))
}

/// The interface of a function in the namespace of `netlink`. The kernel is asked for the one alone that sysfs names, and for all where that
/// is not it: thousands of others cost nothing.
///
/// # Errors
///
/// When the kernel does not tell.
pub fn interface_here(
    root: &Root,
    netlink: &mut Netlink,
    function: &PciFunction,
) -> Result<Option<InterfaceReport>, CniError> {
    // A function whose directory cannot be listed is looked for among all.
    let named = function.interface_names().unwrap_or_default();
    for name in named.iter().filter_map(|name| name.parse().ok()) {
        let report = netlink.link_named(&name)?;
        if let Some(found) = report.and_then(|report| local_interface_of(function.bdf(), &[report], root)) {
            return Ok(Some(found));
        }
    }
    Ok(local_interface_of(function.bdf(), &netlink.links()?, root))
}

/// The attributes to set, where one that travels with another takes the other from what is set.
pub fn wanted(settings: &VfSettings, now: Option<&VfState>) -> Vec<VfAttribute> {
    let mut settings = settings.clone();
    if let Some(now) = now
        && (settings.min_tx_rate.is_some() || settings.max_tx_rate.is_some())
    {
        settings.min_tx_rate = settings.min_tx_rate.or(Some(now.min_tx_rate));
        settings.max_tx_rate = settings.max_tx_rate.or(Some(now.max_tx_rate));
    }
    settings.attributes()
}

/// What sets the attributes of a PF's VFs, reached from the host's namespace.
#[derive(Debug)]
pub struct Attributes<'a> {
    backend: VfBackend<'a>,
    pf: Bdf,
}

impl<'a> Attributes<'a> {
    /// Of this PF, whose interface must be in the namespace of `netlink`.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn of(root: &Root, netlink: &'a mut Netlink, pf: &PciFunction) -> Result<Attributes<'a>, CniError> {
        let index = Attributes::index(root, netlink, pf)?;
        Attributes::through(root, netlink, pf, index)
    }

    /// The index of a PF's interface in the namespace of `netlink`.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub fn index(root: &Root, netlink: &mut Netlink, pf: &PciFunction) -> Result<u32, CniError> {
        let report = interface_here(root, netlink, pf)?.ok_or_else(|| {
            let text = format!("the PF {} has no interface here, through which its VFs are set", pf.bdf());
            CniError::new(CniError::REFUSED, text)
        })?;
        Ok(report.index)
    }

    /// Of the PF whose interface has this index in the namespace of `netlink`.
    ///
    /// # Errors
    ///
    /// When a machine that has lines to embedded switches does not list its interfaces.
    pub fn through(
        root: &Root,
        netlink: &'a mut Netlink,
        pf: &PciFunction,
        index: u32,
    ) -> Result<Attributes<'a>, CniError> {
        Ok(Attributes { backend: VfBackend::of(root, netlink, index)?, pf: pf.bdf() })
    }

    /// What is set for a VF; `None` when the PF's driver tells nothing of it and no embedded switch does.
    ///
    /// # Errors
    ///
    /// When the kernel or the embedded switch does not answer.
    pub fn state(&mut self, vf: VfIndex) -> Result<Option<VfState>, CniError> {
        Ok(self.backend.vfs()?.into_iter().find(|(index, _)| *index == vf).map(|(_, state)| state))
    }

    /// Sets attributes one by one, so that it is known which was refused.
    ///
    /// # Errors
    ///
    /// When one is.
    pub fn set(&mut self, vf: VfIndex, wanted: &[VfAttribute]) -> Result<(), CniError> {
        for attribute in wanted {
            self.backend.set(&[(vf, *attribute)]).map_err(|error| self.refused(error))?;
        }
        Ok(())
    }

    /// Sets attributes that a VF is as `before` again, and goes on past what is refused. An attribute that the driver has no call for was not
    /// set before either: nothing is to be put back where `before` tells nothing of it, or the VF has that very value.
    ///
    /// # Errors
    ///
    /// When one is refused.
    pub fn put_back(
        &mut self,
        vf: VfIndex,
        before: &VfState,
        attributes: impl IntoIterator<Item = VfAttribute>,
    ) -> Result<(), CniError> {
        let mut refused = None;
        for attribute in attributes {
            let Err(error) = self.backend.set(&[(vf, attribute)]) else { continue };
            let is_untold = before.attribute(attribute.kind()).is_none();
            if !(error.is_unsupported() && (is_untold || self.is_set(vf, attribute))) {
                refused = Some(self.refused(error));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Whether it is known that a VF has this value.
    fn is_set(&mut self, vf: VfIndex, attribute: VfAttribute) -> bool {
        let state = self.state(vf).ok().flatten();
        state.is_some_and(|state| state.attribute(attribute.kind()) == Some(attribute))
    }

    fn refused(&self, error: NetlinkError) -> CniError {
        let failed = CniError::from(error);
        CniError { text: format!("PF {}: {}", self.pf, failed.text), ..failed }
    }
}

/// The error for attributes that nothing keeps.
pub fn nothing_keeps(pf: Bdf, wanted: &[VfAttribute]) -> CniError {
    let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    let text = format!(
        "the driver of the PF {pf} tells nothing of its VFs, so that {} cannot be set",
        wanted.join(", ")
    );
    CniError::new(CniError::REFUSED, text)
        .hint("a virtio PF needs a line to its embedded switch (docs/cni.md); else leave these keys out")
}

/// Whether the MAC address is among the attributes.
pub fn mac_among(attributes: &[VfAttribute]) -> Option<Mac> {
    attributes.iter().find_map(|attribute| match attribute {
        VfAttribute::Mac(mac) => Some(*mac),
        _ => None,
    })
}

/// Those that are no MAC address.
pub fn but_mac(attributes: &[VfAttribute]) -> Vec<VfAttribute> {
    attributes.iter().filter(|attribute| attribute.kind() != VfAttributeKind::Mac).copied().collect()
}

/// The MAC address that a PF is to have for a VF again, where it is to be set. That is so when it was set for the record; and when it is
/// another now, or `changed` on the VF itself: a VF that was trusted may have asked for another, and may be refused its old one later. A PF
/// that had none for it is left alone.
pub fn mac_to_restore(
    before: &VfState,
    wanted: &[VfAttribute],
    now: Option<&VfState>,
    changed: bool,
) -> Option<Mac> {
    let differs = changed || now.is_some_and(|now| now.mac != before.mac);
    let is_due = mac_among(wanted).is_some() || (differs && !before.mac.is_zero());
    is_due.then_some(before.mac)
}

/// What is to be set at a PF so that a VF is as it was before: what was set for the record, with the MAC address `mac` first, since trust and
/// spoof checks decide what else it may have.
pub fn to_restore(before: &VfState, wanted: &[VfAttribute], mac: Option<Mac>) -> Vec<VfAttribute> {
    let set = |of: &VfAttribute| wanted.iter().any(|wanted| wanted.kind() == of.kind());
    let known = before.attributes();
    // What the driver does not tell was as the kernel has it by itself, as far as anybody knows: what was set must not stay.
    let defaults =
        [VfAttribute::Trust(false), VfAttribute::Spoofchk(true), VfAttribute::LinkState(LinkState::Auto)];
    let defaults = defaults.into_iter().filter(|of| !known.iter().any(|known| known.kind() == of.kind()));
    let others: Vec<VfAttribute> = but_mac(&known).into_iter().chain(defaults).filter(set).collect();
    mac.map(VfAttribute::Mac).into_iter().chain(others).collect()
}

/// Gives the interface of a VF, which is down and in the host's namespace, the address `own`, and has the PF give it `by_pf` in
/// between where that is wanted, through the PF's interface with that index. The VF asks first: some drivers (igb) let a VF ask for nothing any more once its PF has given it an
/// address. Where the driver of the VF refuses both times it is bound anew, since it takes the PF's word then. Its index.
///
/// # Errors
///
/// When it ends with another address.
pub fn give_mac(
    root: &Root,
    netlink: &mut Netlink,
    vf: &Vf,
    report: &InterfaceReport,
    own: Mac,
    by_pf: Option<(Mac, u32)>,
) -> Result<InterfaceReport, CniError> {
    let differs = report.interface.mac != own;
    if differs {
        let _ = netlink.set_mac(report.index, own);
    }
    if let Some((mac, index)) = by_pf {
        Attributes::through(root, netlink, &vf.pf, index)?.set(vf.index, &[VfAttribute::Mac(mac)])?;
    }
    if !differs {
        return Ok(report.clone());
    }
    if let Some(now) = netlink.link_at(report.index)?.filter(|now| now.interface.mac == own) {
        return Ok(now);
    }
    let refused = match netlink.set_mac(report.index, own) {
        Ok(()) => return Ok(InterfaceReport { interface: with_mac(report, own), ..report.clone() }),
        Err(error) => error,
    };
    let Some(driver) = vf.function.driver()?.filter(|_| by_pf.is_some()) else { return Err(refused.into()) };
    vf.function.set_driver(None)?;
    vf.function.set_driver(Some(&driver))?;
    let now = wait_for_interface(netlink, root, vf.bdf(), Instant::now() + INTERFACE)?;
    wait_for_udev(root, now.index, Instant::now() + UDEV);
    if now.interface.mac != own {
        let text = format!(
            "{} has the MAC address {} after its driver was bound anew, not {own}",
            vf.bdf(),
            now.interface.mac
        );
        return Err(CniError::new(CniError::REFUSED, text));
    }
    Ok(now)
}

fn with_mac(report: &InterfaceReport, mac: Mac) -> penstock_model::inventory::Interface {
    penstock_model::inventory::Interface { mac, ..report.interface.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vf_gets_its_address_back_before_it_is_no_longer_trusted() {
        let (old, new) = (Mac::new([2, 0, 0, 0, 0, 1]), Mac::new([2, 0, 0, 0, 0, 2]));
        let before = VfState { mac: old, trust: Some(false), spoofchk: Some(true), ..VfState::default() };
        let now = VfState { mac: new, trust: Some(true), ..before.clone() };
        let wanted = [VfAttribute::Trust(true)];
        let off = VfAttribute::Trust(false);
        let mac = mac_to_restore(&before, &wanted, Some(&now), false);
        assert_eq!(to_restore(&before, &wanted, mac), [VfAttribute::Mac(old), off]);
        // As the VF's interface tells, where the PF does not hear of it.
        assert_eq!(mac_to_restore(&before, &wanted, Some(&before), true), Some(old));
        assert_eq!(mac_to_restore(&before, &wanted, None, true), Some(old));
        // A driver that does not tell what was.
        let silent = VfState { trust: None, spoofchk: None, link_state: None, ..before.clone() };
        let all = [
            VfAttribute::Trust(true),
            VfAttribute::Spoofchk(false),
            VfAttribute::LinkState(LinkState::Enable),
        ];
        let plain = [off, VfAttribute::Spoofchk(true), VfAttribute::LinkState(LinkState::Auto)];
        assert_eq!(to_restore(&silent, &all, None), plain);
        assert_eq!(to_restore(&silent, &wanted, None), [off]);
        // What is as before is not set: a PF that has given an address refuses others.
        assert_eq!(mac_to_restore(&before, &wanted, Some(&before), false), None);
        assert_eq!(to_restore(&before, &wanted, None), [off]);
        // A PF that had no address for the VF has none again only where one was set.
        let none = VfState { mac: Mac::new([0; 6]), ..before };
        assert_eq!(mac_to_restore(&none, &wanted, Some(&now), true), None);
        assert_eq!(mac_to_restore(&none, &[VfAttribute::Mac(new)], Some(&now), true), Some(none.mac));
    }
}
