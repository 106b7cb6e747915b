//! The real machine's observer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use penstock_host::{
    Here, InterfaceReport, Netlink, PciFunction, Place, Root, VfBackend, chain,
    frames::{self, Carried, Endpoint, NeighbourProbe, ProbeResult, ProbeTimeouts, Reach},
    pci,
    scan::{attachments::attachment, elsewhere},
};
use penstock_model::{Bdf, VfIndex};

use super::{
    FreeVf, Observer, PfObservation,
    probes::{self, ProbeEnd, ProbePath, ProbeResults, Remote},
};

/// Looks at the machine that Penstock runs on.
#[derive(Clone, Debug, Default)]
pub struct KernelObserver {
    root: Root,
}

impl KernelObserver {
    /// The machine that Penstock runs on.
    pub fn new() -> KernelObserver {
        KernelObserver::default()
    }
}

impl Observer for KernelObserver {
    fn interfaces(&mut self) -> Result<Vec<InterfaceReport>, String> {
        Here::new(self.root.clone()).interfaces().map_err(|error| chain(&error))
    }

    fn virtual_functions(&mut self, pf: Bdf) -> Result<Vec<(VfIndex, Bdf)>, String> {
        PciFunction::new(&self.root, pf).virtual_functions().map_err(|error| chain(&error))
    }

    fn free_vfs(&mut self, vfs: &BTreeSet<Bdf>) -> BTreeMap<Bdf, Result<FreeVf, String>> {
        let mut found: BTreeMap<Bdf, Result<FreeVf, String>> = BTreeMap::new();
        let (opened, mut away) = (pci::opened_by(&self.root, vfs), BTreeSet::new());
        for vf in vfs {
            let function = PciFunction::new(&self.root, *vf);
            let seen = function.driver().and_then(|driver| Ok((driver, function.interface_names()?)));
            let seen = seen.map_err(|error| chain(&error)).map(|(driver, interfaces)| {
                let held = opened.get(vf).map(|held| held.join(", "));
                let taken_by = held.or_else(|| attachment(&self.root, *vf));
                let seen = FreeVf { driver, interfaces, taken_by, unseen: None };
                if seen.lacks_interface() {
                    away.insert(*vf);
                }
                seen
            });
            found.insert(*vf, seen);
        }
        let elsewhere = elsewhere::look(&self.root, &away);
        for vf in away {
            if let Some(Ok(seen)) = found.get_mut(&vf) {
                seen.taken_by = elsewhere.found.get(&vf).map(|who| format!("{who}, who has its interface"));
                seen.unseen.clone_from(&elsewhere.unseen);
            }
        }
        found
    }

    fn function_of(&mut self, device: &str) -> Option<Bdf> {
        pci::function_of_device(&self.root, device)
    }

    fn pf(&mut self, namespace: Option<u32>, index: u32) -> Result<PfObservation, String> {
        let mut netlink = match namespace {
            None => Netlink::open(),
            Some(pid) => Netlink::in_namespace_of(pid),
        }
        .map_err(|error| chain(&error))?;
        let mut backend = VfBackend::of(&self.root, &mut netlink, index).map_err(|error| chain(&error))?;
        let vfs = backend.vfs().map_err(|error| chain(&error))?;
        // What the VFs' attributes are was seen, whatever became of the mode.
        let switch_mode = backend.mode().map_err(|error| chain(&error));
        Ok(PfObservation { vfs, switch_mode })
    }

    fn reach(
        &mut self,
        endpoints: &[Endpoint],
        pairs: &[(usize, usize)],
        planned_probes: &[NeighbourProbe],
        timeout: ProbeTimeouts,
    ) -> Result<(Vec<Reach>, Vec<ProbeResult>), String> {
        frames::reach_and_ask(endpoints, pairs, planned_probes, timeout).map_err(|error| chain(&error))
    }

    fn reach_across(
        &mut self,
        probe_ends: &[ProbeEnd],
        probe_paths: &[ProbePath],
        planned_probes: &[NeighbourProbe],
        remotes: &[Remote<'_>],
        timeout: Duration,
    ) -> ProbeResults {
        probes::reach(probe_ends, probe_paths, planned_probes, remotes, timeout)
    }

    fn load(
        &mut self,
        from: &Endpoint,
        to: &Endpoint,
        mtu: u32,
        lasting: Duration,
    ) -> Result<Carried, String> {
        frames::load(from, to, mtu, lasting).map_err(|error| chain(&error))
    }
}
