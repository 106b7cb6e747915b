//! The real machine's observer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use penstock_host::{
    Here, InterfaceReport, Netlink, PciFunction, Place, Root, VfBackend, chain,
    frames::{self, Carried, Endpoint, NeighbourProbe, ProbeResult, ProbeTimeouts, Reach},
    pci,
    scan::{
        attachments::{attachment, left_over},
        elsewhere::{self, InterfacesElsewhere},
    },
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

    fn virtual_functions(&mut self, pf: Bdf) -> Result<(u16, Vec<(VfIndex, Bdf)>), String> {
        let pf = PciFunction::new(&self.root, pf);
        // In this order: while VFs are made or removed newer kernels let nobody read their number.
        let said = pf.vf_count().map_err(|error| chain(&error))?;
        Ok((said, pf.virtual_functions().map_err(|error| chain(&error))?))
    }

    fn free_vfs(&mut self, vfs: &BTreeSet<Bdf>) -> BTreeMap<Bdf, Result<FreeVf, String>> {
        free_vfs(&self.root, vfs, |away| elsewhere::look(&self.root, away))
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

/// As [`Observer::free_vfs`]; `elsewhere` looks for interfaces in other network namespaces.
fn free_vfs(
    root: &Root,
    vfs: &BTreeSet<Bdf>,
    elsewhere: impl FnOnce(&BTreeSet<Bdf>) -> InterfacesElsewhere,
) -> BTreeMap<Bdf, Result<FreeVf, String>> {
    let mut found: BTreeMap<Bdf, Result<FreeVf, String>> = BTreeMap::new();
    let (opened, mut away) = (pci::opened_by(root, vfs), BTreeSet::new());
    for vf in vfs {
        let function = PciFunction::new(root, *vf);
        let seen = function.driver().and_then(|driver| Ok((driver, function.interface_names()?)));
        let seen = seen.map_err(|error| chain(&error)).map(|(driver, interfaces)| {
            let held = opened.get(vf).map(|held| held.join(", "));
            let taken_by = held.or_else(|| attachment(root, *vf)).or_else(|| left_over(root, *vf));
            let seen = FreeVf { driver, interfaces, taken_by, unseen: None };
            if seen.lacks_interface() {
                away.insert(*vf);
            }
            seen
        });
        found.insert(*vf, seen);
    }
    let elsewhere = elsewhere(&away);
    for vf in away {
        let Some(Ok(seen)) = found.get_mut(&vf) else { continue };
        seen.taken_by = elsewhere.found.get(&vf).map(|who| format!("{who}, who has its interface"));
        seen.unseen.clone_from(&elsewhere.unseen);
        // It may have come home while the namespaces of others were looked through.
        match PciFunction::new(root, vf).interface_names() {
            Ok(interfaces) => seen.interfaces = interfaces,
            Err(error) => drop(found.insert(vf, Err(chain(&error)))),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use penstock_host::files;
    use penstock_testkit::sysfs;

    use super::*;

    #[test]
    fn an_interface_that_comes_home_while_others_are_asked_is_seen() {
        let vf: Bdf = "0000:04:10.1".parse().unwrap();
        let machine = tempfile::tempdir().unwrap();
        let directory = format!("/sys/bus/pci/devices/{vf}");
        sysfs::plant(&format!("[{directory}]\ndriver -> ../../drivers/igbvf\n"), machine.path()).unwrap();
        let root = Root::at(machine.path());
        let look = |comes_home: bool| {
            let found = free_vfs(&root, &[vf].into(), |away| {
                assert_eq!(away, &[vf].into());
                if comes_home {
                    files::create_dir_all(root.path(format!("{directory}/net/eth0"))).unwrap();
                }
                InterfacesElsewhere::default()
            });
            found[&vf].clone().unwrap()
        };
        assert!(look(false).lacks_interface());
        let seen = look(true);
        assert!(!seen.lacks_interface(), "{seen:?}");
        assert_eq!((seen.interfaces, seen.driver), (vec!["eth0".to_owned()], Some("igbvf".to_owned())));
    }
}
