//! A VF is bound to a driver that hands it to a program (`driver` of the configuration), and back: no interface is moved, and there may be no
//! namespace yet. A container runtime wants `/dev/vfio/GROUP` to be there when it makes a container, before any of its hooks is run.

use std::time::Instant;

use penstock_host::{
    InterfaceReport,
    netlink::{wait_for_interface, wait_for_udev},
    pci::passes_through,
};
use penstock_model::InterfaceName;

use crate::{
    config::BoundDriver,
    document::{Attached, CniError, Interface},
    journal::{BeforeInterface, Record, Step},
    plugin::{Found, Work},
    vf::{self, Attributes, INTERFACE, UDEV, Vf},
};

impl Work<'_> {
    /// Whether a VF may be bound to the driver: its IOMMU group holds nothing else, since whoever opens the group has all of it, and nobody
    /// uses it. `report` is its interface, where it has one.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub(crate) fn may_bind(
        &mut self,
        vf: &Vf,
        driver: BoundDriver,
        report: Option<&InterfaceReport>,
    ) -> Result<(), CniError> {
        let bdf = vf.bdf();
        can_bind(vf)?;
        let taken = |text: String| CniError::new(CniError::TAKEN, text);
        if let Some(bound) = vf.function.driver()?
            && passes_through(&bound)
            && bound != driver.name()
        {
            return Err(taken(format!(
                "{bdf} has the driver {bound}, which somebody has chosen for a program of theirs"
            ))
            .hint(format!("name another VF, or bind it to {} yourself", driver.name())));
        }
        // An interface goes with its driver, and its addresses and whatever is upon it go with the interface.
        report.map_or(Ok(()), |report| self.must_be_idle(vf, report))
    }

    /// Sets a VF's attributes and binds the driver. The PF's word on the MAC address comes first: whoever opens the VF is told that one.
    ///
    /// # Errors
    ///
    /// When the PF or the driver refuses.
    pub(crate) fn bind(
        &mut self,
        record: &mut Record,
        vf: &Vf,
        found: &Found,
        driver: BoundDriver,
    ) -> Result<Attached, CniError> {
        self.step(record, Step::Setting)?;
        let plugin = self.plugin;
        if let (Some(index), false) = (found.pf, record.wanted.is_empty()) {
            Attributes::through(&plugin.root, &mut self.netlink, &vf.pf, index)?
                .set(vf.index, &record.wanted)?;
        }
        self.step(record, Step::Binding)?;
        (plugin.set_driver)(&vf.function, Some(driver.name()))?;
        let by_pf = vf::mac_among(&record.wanted);
        let interface = Interface {
            name: record.interface.to_string(),
            mac: by_pf.or(record.before.state.as_ref().map(|state| state.mac)).filter(|mac| !mac.is_zero()),
            mtu: None,
            sandbox: record.netns.clone(),
            function: Some(vf.bdf()),
        };
        let attached = Attached { interfaces: vec![interface], ..Attached::default() };
        record.given = Some(attached.clone());
        self.step(record, Step::Attached)?;
        Ok(attached)
    }

    /// CHECK of a VF that is bound: its driver, and what is set at its PF.
    ///
    /// # Errors
    ///
    /// With each thing that differs.
    pub(crate) fn check_bound(&mut self, name: &InterfaceName) -> Result<(), CniError> {
        let differs = |wrong: &[String]| Err(CniError::new(CniError::DIFFERS, wrong.join("; ")));
        let Some(record) = self.recorded(name)? else {
            return differs(&["no VF is bound for it".to_owned()]);
        };
        let function = record.function;
        let mut wrong = Vec::new();
        if record.step != Step::Attached {
            wrong.push(format!("{function} was not bound as a whole, or is being taken back"));
        }
        let wanted = record.driver.map(BoundDriver::name);
        let bound = Vf::at(self.root(), function)?.function.driver()?;
        if bound.as_deref() != wanted {
            let name =
                |driver: Option<&str>| driver.map_or("no driver".to_owned(), |of| format!("the driver {of}"));
            wrong.push(format!("{function} has {}, not {}", name(bound.as_deref()), name(wanted)));
        }
        wrong.extend(self.check_attributes(function, Some(&record))?);
        if wrong.is_empty() { Ok(()) } else { differs(&wrong) }
    }

    /// That no program has a VF through VFIO.
    ///
    /// # Errors
    ///
    /// When one has: it is told.
    pub(crate) fn is_let_go(&self, vf: &Vf) -> Result<(), CniError> {
        let holders = (self.plugin.held_by)(&vf.function);
        if holders.is_empty() {
            return Ok(());
        }
        Err(CniError::new(CniError::TRY_AGAIN, format!("{} is open in {}", vf.bdf(), holders.join(", "))))
    }

    /// Gives a VF back the driver that it had, where another was bound for the record, or an ADD was killed in between. A program's driver goes
    /// first: until then whoever opens the VF could use it with what its PF has for the host. Then its PF's word: a driver asks it for the MAC
    /// address when it is bound.
    ///
    /// # Errors
    ///
    /// When a program still has it open, or the kernel refuses.
    pub(crate) fn unbind(&mut self, vf: &Vf, record: &Record) -> Result<(), CniError> {
        self.is_let_go(vf)?;
        let before = record.before.driver.as_deref();
        let bound = vf.function.driver()?;
        if bound.as_deref() != before {
            if bound.is_some() {
                (self.plugin.set_driver)(&vf.function, None)?;
            }
            self.restore_attributes(vf, record, true)?;
        }
        // Also where it has that driver: an ADD that was killed before it bound another may have written `driver_override`.
        (self.plugin.set_driver)(&vf.function, before)?;
        let wanted = record.before.driver_override.as_deref();
        if wanted.is_some() && vf.function.driver_override()?.as_deref() != wanted {
            vf.function.set_override(wanted)?;
        }
        Ok(())
    }

    /// The interface that a VF's own driver has made after it was bound again, under whatever name.
    ///
    /// # Errors
    ///
    /// When it makes none in time.
    pub(crate) fn interface_again(
        &mut self,
        vf: &Vf,
        before: &BeforeInterface,
    ) -> Result<InterfaceReport, CniError> {
        let root = self.root().clone();
        let report = match vf::interface_here(&root, &mut self.netlink, &vf.function)? {
            Some(report) => report,
            None => wait_for_interface(&mut self.netlink, &root, vf.bdf(), Instant::now() + INTERFACE)
                .map_err(|error| {
                    let why = penstock_host::chain(&error);
                    let text = format!(
                        "{} has its driver again, and no interface like {}: {why}",
                        vf.bdf(),
                        before.name
                    );
                    CniError::new(CniError::TRY_AGAIN, text)
                })?,
        };
        if report.interface.name == before.name {
            return Ok(report);
        }
        // Who is renamed while udev is at it loses one of the two names.
        wait_for_udev(&root, report.index, Instant::now() + UDEV);
        Ok(self.netlink.link_at(report.index)?.unwrap_or(report))
    }
}

/// Whether VFIO can have a VF at all: it has an IOMMU group, alone.
///
/// # Errors
///
/// Why not.
pub(crate) fn can_bind(vf: &Vf) -> Result<(), CniError> {
    let refused = |text: String| CniError::new(CniError::REFUSED, text);
    if vf.function.iommu_group()?.is_none() {
        return Err(refused(format!("{} has no IOMMU group, which VFIO needs", vf.bdf()))
            .hint("switch the IOMMU on: in the firmware, and with intel_iommu=on or amd_iommu=on"));
    }
    let others: Vec<String> = vf.function.iommu_neighbours().iter().map(ToString::to_string).collect();
    if others.is_empty() {
        return Ok(());
    }
    let text =
        format!("{} is in one IOMMU group with {}: whoever has it has them all", vf.bdf(), others.join(", "));
    Err(refused(text))
}
