//! Who runs which tool for a place.

use std::net::SocketAddrV4;

use penstock_host::Command;
use penstock_model::{measurement::Tool, verdict::Vantage};

use super::{NetworkTaker, command, ends::Pair};
use crate::probe;

/// Who runs this same program for a place.
pub(super) struct Runner {
    /// The place itself, or the host.
    pub site: Vantage,
    /// The process whose network namespace it is run in.
    pub namespace: Option<u32>,
}

impl NetworkTaker {
    /// Who runs this same program for a place.
    pub(super) fn runner(&self, vantage: &Vantage) -> Result<Runner, String> {
        if self.survey(vantage)?.programs.contains("penstock") {
            return Ok(Runner { site: vantage.clone(), namespace: None });
        }
        let place = &self.sites[vantage].place;
        let missing =
            format!("this program is not {}: put it there as {}", place.describe(), self.testbed.program);
        match place.namespace() {
            Ok(Some(process)) if self.survey(&Vantage::Host)?.programs.contains("penstock") => {
                Ok(Runner { site: Vantage::Host, namespace: Some(process) })
            }
            _ => Err(missing),
        }
    }

    /// A command of this same program for a place, as its runner runs it.
    pub(super) fn own(
        &self,
        vantage: &Vantage,
        build: impl FnOnce(&str) -> Command,
    ) -> Result<(Runner, Command), String> {
        let runner = self.runner(vantage)?;
        let (site, program) = (&self.sites[vantage], &self.testbed.program);
        if runner.namespace.is_none() {
            return Ok((runner, build(site.own_program(program))));
        }
        let host = self.testbed.place(&Vantage::Host)?;
        let (_, command) = probe::in_place(&*site.place, &**host, program, build)?;
        Ok((runner, command))
    }

    /// The server of a tool, and who runs it.
    pub(super) fn server(
        &self,
        tool: Tool,
        vantage: &Vantage,
        at: SocketAddrV4,
    ) -> Result<(Runner, Command), String> {
        if tool == Tool::Probe {
            let seconds = u32::try_from(self.options.lease.as_secs()).unwrap_or(u32::MAX / 8);
            let seconds = seconds.saturating_mul(4).saturating_add(3600);
            let build = |program: &str| probe::server_command(program, (*at.ip()).into(), at.port(), seconds);
            return self.own(vantage, build);
        }
        let command = command::server(tool, at).ok_or_else(|| format!("{tool} has no server"))?;
        Ok((Runner { site: vantage.clone(), namespace: None }, command))
    }

    /// Why a tool cannot be used between two ends, if so.
    pub(super) fn lacks(&self, tool: Tool, pair: &Pair) -> Option<String> {
        for (end, program) in pair.ends().into_iter().zip(command::programs(tool)) {
            if tool == Tool::Probe {
                if let Err(why) = self.runner(&end.place) {
                    return Some(why);
                }
                continue;
            }
            let survey = match self.survey(&end.place) {
                Ok(survey) => survey,
                Err(why) => return Some(why),
            };
            if !survey.programs.contains(program) {
                let place = self.sites[&end.place].place.describe();
                return Some(format!("{program} is not installed {place}: install the package {tool} there"));
            }
        }
        None
    }
}
