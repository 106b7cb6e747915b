//! Tries what a PF's driver can do for its VFs, on a VF that nobody uses, without changing anything.
//!
//! Each attribute is set to the value that it has. A driver without the call for it answers so (`EOPNOTSUPP`;
//! `net/core/rtnetlink.c`, `do_setvfinfo`) whatever the value is; one that has it does nothing that lasts, and there is
//! nothing to restore should we be killed meanwhile. Another value would tell more, and would leave a trace with some
//! drivers: that is learned when a model asks for one.
//!
//! A MAC is tried only where the VF has none. `i40e` and `ice` report the random address that they made up, and setting that
//! makes it the administrator's, which the VF may never change again.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, VfAttribute, VfIndex,
    inventory::{Ability, Capability, SwitchMode, Trial, VfState},
};

use crate::{Netlink, NetlinkError, PciError, PciFunction, Root, VfBackend, chain};

/// What is turned to try a driver.
pub trait Knobs {
    /// What the driver reports of its VFs.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the PF's interface is gone, or the kernel's answer cannot be read.
    fn vfs(&mut self) -> Result<Vec<(VfIndex, VfState)>, NetlinkError>;
    /// Sets an attribute of a VF.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::Unsupported`] when the driver has no call for it; other errors are about the value, or will pass.
    fn set_vf(&mut self, vf: VfIndex, attribute: &VfAttribute) -> Result<(), NetlinkError>;
    /// The mode of the embedded switch.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel cannot be asked.
    fn switch_mode(&mut self) -> Result<SwitchMode, NetlinkError>;
    /// Sets the mode of the embedded switch.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::Unsupported`] when the driver has no call for it; other errors are about the mode, or will pass.
    fn set_switch_mode(&mut self, mode: SwitchMode) -> Result<(), NetlinkError>;
    /// Resets a VF.
    ///
    /// # Errors
    ///
    /// [`PciError`] when the VF has no way to be reset, or that fails.
    fn reset(&mut self, function: Bdf) -> Result<(), PciError>;
}

/// The knobs of a PF of this machine.
#[derive(Debug)]
pub struct KernelKnobs<'a> {
    /// Where its files are.
    pub root: &'a Root,
    /// In the namespace of the PF's interface.
    pub netlink: &'a mut Netlink,
    /// The index of the PF's interface.
    pub interface: u32,
}

impl KernelKnobs<'_> {
    fn backend(&mut self) -> Result<VfBackend<'_>, NetlinkError> {
        VfBackend::of(self.root, self.netlink, self.interface)
    }
}

impl Knobs for KernelKnobs<'_> {
    fn vfs(&mut self) -> Result<Vec<(VfIndex, VfState)>, NetlinkError> {
        self.backend()?.vfs()
    }

    fn set_vf(&mut self, vf: VfIndex, attribute: &VfAttribute) -> Result<(), NetlinkError> {
        self.backend()?.set(&[(vf, *attribute)])
    }

    fn switch_mode(&mut self) -> Result<SwitchMode, NetlinkError> {
        self.backend()?.mode()
    }

    fn set_switch_mode(&mut self, mode: SwitchMode) -> Result<(), NetlinkError> {
        self.backend()?.set_mode(mode)
    }

    fn reset(&mut self, function: Bdf) -> Result<(), PciError> {
        PciFunction::new(self.root, function).reset()
    }
}

/// The VF that is tried on.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The VF's index at its PF.
    pub vf: VfIndex,
    /// The VF's PCI address.
    pub function: Bdf,
    /// Whether its PF has a link.
    pub linked: bool,
}

/// What came of trying.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// By what was tried.
    pub trials: BTreeMap<Capability, Trial>,
    /// What the VF had before and has now, should that differ.
    pub changed: Option<(Box<VfState>, Box<VfState>)>,
}

/// Tries what is `wanted` on a VF that has no driver and no guest.
///
/// # Errors
///
/// When the VFs cannot be listed, so that there is nothing to try with.
pub fn probe(
    knobs: &mut dyn Knobs,
    target: Target,
    wanted: &BTreeSet<Capability>,
) -> Result<Probed, NetlinkError> {
    let mut probed = Probed::default();
    let before = state_of(knobs, target.vf)?;
    if wanted.contains(&Capability::Reset) {
        probed.trials.insert(Capability::Reset, reset(knobs, target.function));
    }
    let Some(before) = before else {
        let silent = || Trial::new(Ability::Unsupported).saying("the driver reports nothing of its VFs");
        let all = wanted.iter().filter(|wanted| !matches!(wanted, Capability::Reset | Capability::Loopback));
        probed.trials.extend(all.map(|wanted| (*wanted, silent())));
        return Ok(probed);
    };
    for capability in wanted {
        let trial = match capability {
            Capability::Reset => continue,
            Capability::Loopback => loopback(knobs),
            // Nothing that is there already says anything of a tag that is not.
            Capability::VlanProto => untold("it is not tried without a port VLAN"),
            Capability::Mac if !before.mac.is_zero() => untold(
                "it has an address, and with some drivers setting that takes it out of the VF's own hands",
            ),
            Capability::Rate if !target.linked => {
                untold("the PF has no link, without which drivers refuse every rate")
            }
            _ => match capability.attribute().and_then(|kind| before.attribute(kind)) {
                Some(attribute) => judge(knobs.set_vf(target.vf, &attribute)),
                None => untold("the driver does not report it, so that there is no value to set it to"),
            },
        };
        probed.trials.insert(*capability, trial);
    }
    if let Some(after) = state_of(knobs, target.vf)?.filter(|after| *after != before) {
        probed.changed = Some((Box::new(before), Box::new(after)));
    }
    Ok(probed)
}

fn state_of(knobs: &mut dyn Knobs, vf: VfIndex) -> Result<Option<VfState>, NetlinkError> {
    Ok(knobs.vfs()?.into_iter().find_map(|(index, state)| (index == vf).then_some(state)))
}

fn untold(why: &str) -> Trial {
    Trial::new(Ability::Untold).saying(why)
}

/// Only that there is no such call is told by an error; another may be about the value, or pass.
fn judge(answer: Result<(), NetlinkError>) -> Trial {
    match answer {
        Ok(()) => Trial::new(Ability::Accepted),
        Err(error) => {
            let why = chain(&error);
            match error {
                NetlinkError::Unsupported { detail, .. } => Trial { ability: Ability::Unsupported, detail },
                _ => untold(&why),
            }
        }
    }
}

/// A driver that has VFs and reports no mode has none to set.
fn loopback(knobs: &mut dyn Knobs) -> Trial {
    match knobs.switch_mode() {
        Ok(SwitchMode::Unreported) => {
            Trial::new(Ability::Unsupported).saying("the driver has VFs and reports no mode of its switch")
        }
        Ok(SwitchMode::Switchdev) => untold("the NIC is in switchdev mode"),
        Ok(mode) => judge(knobs.set_switch_mode(mode)),
        Err(error) => untold(&chain(&error)),
    }
}

fn reset(knobs: &mut dyn Knobs, function: Bdf) -> Trial {
    match knobs.reset(function) {
        Ok(()) => Trial::new(Ability::Accepted),
        Err(error) if error.is_unsupported() => Trial::new(Ability::Unsupported).saying(chain(&error)),
        Err(error) => untold(&chain(&error)),
    }
}

#[cfg(test)]
mod tests;
