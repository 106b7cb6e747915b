//! The places of a run as they were found, before anything is changed there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    thread,
    time::Duration,
};

use penstock_model::{
    measurement::{End, EndKind, Link, Tool, ToolVersion},
    verdict::Vantage,
};

use super::{NetworkTaker, command, ends::Pair, site::Site, survey::Survey, test_path::on_host};
use crate::sampler::Preparation;

impl NetworkTaker {
    /// Looks at every place of these pairs, at all of them at once.
    pub(super) fn look(&mut self, wanted: &[(Pair, BTreeSet<Tool>)]) {
        let mut interfaces: BTreeMap<Vantage, (EndKind, BTreeSet<String>)> = BTreeMap::new();
        for (pair, _) in wanted {
            if let Some(Ok(bridge)) = pair.port().map(|nic| self.testbed.bridge(nic)) {
                let host = interfaces.entry(Vantage::Host).or_insert((EndKind::Host, BTreeSet::new()));
                host.1.insert(bridge.interface.to_string());
            }
            for end in pair.ends() {
                let function_interface =
                    end.function.as_ref().and_then(|function| self.testbed.function_interface(function).ok());
                let (_, names) = interfaces.entry(end.place.clone()).or_insert((end.kind, BTreeSet::new()));
                let name =
                    function_interface.map(|function_interface| function_interface.interface.to_string());
                if pair.is_veth(end) {
                    let host = interfaces.entry(Vantage::Host).or_insert((EndKind::Host, BTreeSet::new()));
                    host.1.extend(name);
                } else {
                    names.extend(name);
                }
            }
        }
        // It makes bridges, and runs this program for containers that do not have it.
        if !wanted.is_empty() {
            interfaces.entry(Vantage::Host).or_insert((EndKind::Host, BTreeSet::new()));
        }
        for (number, (vantage, (kind, _))) in interfaces.iter().enumerate() {
            if let Ok(place) = self.testbed.place(vantage) {
                let site = Site::new(Arc::clone(place), *kind, format!("{}.{number}", self.mark));
                self.sites.insert(vantage.clone(), site);
            }
        }
        let (program, interfaces) = (&self.testbed.program, &interfaces);
        thread::scope(|scope| {
            for (vantage, site) in &mut self.sites {
                scope.spawn(move || site.look(&interfaces[vantage].1, program));
            }
        });
    }

    pub(super) fn survey(&self, vantage: &Vantage) -> Result<&Survey, String> {
        match self.sites.get(vantage) {
            Some(site) => site.survey.as_ref().map_err(Clone::clone),
            None => {
                Err(self.testbed.place(vantage).err().unwrap_or_else(|| format!("{vantage} is not there")))
            }
        }
    }

    /// The links and the tools as they were found, and what the reader should know of them.
    pub(super) fn tell(&self, wanted: &[(Pair, BTreeSet<Tool>)], preparation: &mut Preparation) {
        let mut uses: BTreeMap<&Vantage, BTreeSet<Tool>> = BTreeMap::new();
        for (pair, tools) in wanted {
            let mut speeds = Vec::new();
            for end in pair.ends() {
                uses.entry(&end.place).or_default().extend(tools);
                let link = self.link(pair, end);
                speeds.extend(link.as_ref().and_then(|link| link.speed));
                if let Some(link) = link.filter(|link| preparation.links.iter().all(|l| l.end != link.end)) {
                    preparation.links.push(link);
                }
            }
            if let [one, other] = speeds[..]
                && one != other
                && pair.path.has_wire()
            {
                let Pair { path, client, server } = pair;
                preparation.notes.push(format!(
                    "the links of {path} differ: {client} runs at {one} Mbit/s, {server} at {other} Mbit/s"
                ));
            }
        }
        for (vantage, tools) in uses {
            let (Some(site), Ok(survey)) = (self.sites.get(vantage), self.survey(vantage)) else { continue };
            for tool in tools {
                let version = match tool {
                    Tool::Netperf => survey.netperf.clone(),
                    Tool::Iperf3 => survey.iperf3.clone(),
                    Tool::Fio => None,
                    Tool::Probe => {
                        survey.programs.contains("penstock").then(|| env!("CARGO_PKG_VERSION").to_owned())
                    }
                };
                preparation.tools.push(ToolVersion { tool, place: site.place.describe(), version });
            }
        }
        let seconds = command::seconds(self.options.dwell);
        let dwell = self.options.dwell;
        if !wanted.is_empty() && dwell != Duration::from_secs(seconds) {
            let dwell = dwell.as_secs_f64();
            preparation
                .notes
                .push(format!("netperf and iperf3 count in whole seconds: {dwell} s became {seconds} s"));
        }
    }

    pub(super) fn link(&self, pair: &Pair, end: &End) -> Option<Link> {
        // A veth in the place of a container's NIC has no link of its own, nor has a bridge.
        if pair.path.is_of_veths() {
            return None;
        }
        let end = if pair.is_veth(end) { &on_host(end.function.as_ref()?) } else { end };
        let function_interface = self.testbed.function_interface(end.function.as_ref()?).ok()?;
        let seen =
            self.survey(&end.place).ok().and_then(|s| s.links.get(function_interface.interface.as_str()));
        let speed = seen.and_then(|state| state.speed).or(function_interface.speed);
        let carrier = seen.and_then(|state| state.carrier).or(function_interface.carrier);
        Some(Link { end: end.clone(), speed, carrier })
    }
}
