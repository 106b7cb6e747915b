//! STATUS: whether a container can be given something.

use crate::{
    bind,
    choose::used,
    document::CniError,
    ipam,
    plugin::Work,
    vf::{self, Attributes, Vf},
};

impl Work<'_> {
    /// Says whether an ADD of this configuration can come to something.
    pub(crate) fn status(&mut self) -> Result<(), CniError> {
        let not_available = |error: CniError| CniError { code: CniError::NOT_AVAILABLE, ..error };
        let (records, _) = self.journal.all().map_err(not_available)?;
        let pf = match (self.configuration.device, &self.configuration.pf) {
            (Some(function), _) => {
                let vf = Vf::at(self.root(), function).map_err(not_available)?;
                if self.configuration.driver.is_some() {
                    bind::can_bind(&vf).map_err(not_available)?;
                }
                // Nobody knows whose it is.
                self.journal.of(function).map_err(not_available)?;
                if self.configuration.free {
                    let links = self.netlink.links_with_addresses()?;
                    // ADD looks at all processes besides.
                    let report = penstock_host::local_interface_of(vf.function.bdf(), &links, self.root());
                    if let Some(report) = report.filter(|report| self.is_used_here(report, &links)) {
                        return Err(not_available(used(&vf, &report)));
                    }
                }
                Some(vf.pf)
            }
            (None, Some(named)) => {
                let links = self.netlink.links_with_addresses()?;
                let vfs = self.vfs_of(named, &links).map_err(not_available)?;
                let pf = vf::pf(self.root(), named, &links).map_err(not_available)?;
                // As an ADD has it: what a dead container has left is free. What cannot be read or asked is not.
                let free = vfs.iter().any(|vf| match self.journal.of(vf.bdf()) {
                    Ok(Some(record)) => self.is_kept(&record).is_ok_and(|kept| !kept),
                    Ok(None) => self.is_free(vf, &links).unwrap_or(false),
                    Err(_) => false,
                });
                if !free {
                    let text = format!("no VF of {named} is free");
                    return Err(CniError::new(CniError::NOT_AVAILABLE, text));
                }
                Some(pf)
            }
            // Each ADD names its own.
            (None, None) => None,
        };
        let wanted = vf::but_mac(&self.configuration.settings.attributes());
        if let Some(pf) = pf.filter(|_| !wanted.is_empty()) {
            let plugin = self.plugin;
            let tells = Attributes::of(&plugin.root, &mut self.netlink, &pf).and_then(|mut of| {
                let first = pf.virtual_functions()?.into_iter().next();
                first.map_or(Ok(None), |(index, _)| of.state(index))
            });
            // What containers have of this PF may not be what was set for them.
            let limited = records.iter().any(|record| record.pf == pf.bdf() && !record.wanted.is_empty());
            let code = if limited { CniError::LIMITED } else { CniError::NOT_AVAILABLE };
            match tells {
                Ok(Some(_)) => {}
                Ok(None) => return Err(CniError { code, ..vf::nothing_keeps(pf.bdf(), &wanted) }),
                Err(error) => return Err(CniError { code, ..error }),
            }
        }
        ipam::delegate(self.call, self.configuration, "STATUS").map(drop)
    }
}
