//! CHECK: whether everything is as it was given.

use penstock_host::{InterfaceReport, Root};
use penstock_model::Bdf;

use crate::{
    compare,
    document::{Attached, CniError},
    ipam,
    journal::{Record, Step},
    place::Container,
    plugin::Work,
    vf::{self, Attributes, Vf},
};

impl Work<'_> {
    pub(crate) fn check(&mut self) -> Result<(), CniError> {
        let name = self.call.interface()?.clone();
        if self.configuration.driver.is_some() {
            return self.check_bound(&name);
        }
        let differs = |wrong: Vec<String>| CniError::new(CniError::DIFFERS, wrong.join("; "));
        let previous =
            self.configuration.previous.clone().ok_or_else(|| {
                CniError::new(CniError::CONFIGURATION, "CHECK needs prevResult, what ADD gave")
            })?;
        let Some((place, wanted)) = previous.of_container(&name) else {
            let text = format!("prevResult has no interface {name} of a container");
            return Err(CniError::new(CniError::CONFIGURATION, text));
        };
        let record = self.recorded(&name)?;
        let mut wrong = Vec::new();
        if let Some(record) = record.as_ref().filter(|record| record.step != Step::Attached) {
            wrong.push(format!(
                "{} was not given to the container as a whole, or is being taken back",
                record.function
            ));
        }
        let mut container = Container::open(&self.netns()?)?;
        let plugin = self.plugin;
        let mut wanted = wanted.clone();
        let known = record.as_ref().map(|record| record.function).or(self.configuration.device);
        wanted.function = wanted.function.or(known);
        let has_interface = record.as_ref().is_none_or(|record| record.before.interface.is_some());
        let report = container.netlink.link_named(&name)?;
        match report.filter(|report| report.interface.name == name) {
            None if !has_interface => {}
            None => wrong.push(format!("the container has no interface {name}")),
            Some(mut report) => {
                report.interface.addresses = container.netlink.addresses_of(report.index)?;
                let routes = container.netlink.routes_over(report.index)?;
                let function = wanted.function.filter(|function| is_of(&plugin.root, *function, &report));
                // Another's, if the kernel tells of one.
                let function = function.or(report.device.as_ref().and_then(|device| device.parse().ok()));
                if function.is_none() && report.device.is_some() {
                    wrong.push(format!("{name} is not the interface of the VF"));
                }
                let seen = compare::Seen { report, function, routes };
                // prevResult is everybody's: routes of it may be other plugins', over other interfaces.
                let own = record.as_ref().and_then(|record| record.given.as_ref()).map(|given| (given, 0));
                let (given, place): (&Attached, usize) = own.unwrap_or((&previous, place));
                let addresses: Vec<_> = given.addresses_of(place).collect();
                wrong.extend(compare::interface(&wanted, &addresses, &given.kernel_routes(), &seen));
            }
        }
        if let Some(function) = wanted.function {
            wrong.extend(self.check_attributes(function, record.as_ref())?);
        }
        if !wrong.is_empty() {
            return Err(differs(wrong));
        }
        ipam::delegate(self.call, self.configuration, "CHECK").map(drop)
    }

    /// What is set at the PF, against what the record has, or the configuration where there is none.
    pub(crate) fn check_attributes(
        &mut self,
        function: Bdf,
        record: Option<&Record>,
    ) -> Result<Vec<String>, CniError> {
        let settings = &self.configuration.settings;
        if record.is_some_and(|record| record.wanted.is_empty())
            || settings.attributes().is_empty() && record.is_none()
        {
            return Ok(Vec::new());
        }
        let plugin = self.plugin;
        let vf = Vf::at(&plugin.root, function)?;
        let state = Attributes::of(&plugin.root, &mut self.netlink, &vf.pf)?.state(vf.index)?;
        let wanted = match record {
            Some(record) => record.wanted.clone(),
            None if state.is_none() => vf::but_mac(&settings.attributes()),
            None => vf::wanted(settings, state.as_ref()),
        };
        Ok(compare::attributes(&wanted, state.as_ref()))
    }
}

/// Whether an interface is that of a function.
fn is_of(root: &Root, function: Bdf, report: &InterfaceReport) -> bool {
    penstock_host::interface_of(function, std::slice::from_ref(report), root).is_some()
}
