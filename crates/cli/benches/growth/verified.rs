//! Verification of a machine that is as its model has it, by a look that takes no time: what it takes to compare. The bench does it itself; what
//! the kernel takes to tell is not in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    process::exit,
    time::Duration,
};

use penstock_host::{
    Command, InterfaceReport, Output, Place, PlaceError,
    frames::{Carried, Endpoint, NeighbourProbe, ProbeResult, ProbeTimeouts, Reach},
};
use penstock_model::{Bdf, Function, Inventory, Mac, Source, VfIndex, inventory::Interface};
use penstock_verify::{
    Effort, FreeVf, GuestPlace, Observer, PfObservation, ProbeEnd, ProbePath, ProbeResults, Remote, verify,
};

/// What such a process is started with.
pub const VERIFY: &str = "verify-settled";

/// Compares the machine of `settled.json` of this directory with its model, and ends, if this is a process for that.
pub fn verify_if_asked() {
    if env::args().nth(1).is_none_or(|word| word != VERIFY) {
        return;
    }
    let read = |name: &str| fs::read_to_string(name).expect("a file");
    let source = Source::new("model.yaml", read("model.yaml"));
    let model = penstock_model::parse(&source).expect("a model").model;
    let inventory: Inventory = serde_json::from_str(&read("settled.json")).expect("an inventory");
    let nics = penstock_plan::resolve(&model, &inventory).expect("its NICs");
    let inside = |function: &Function| {
        let pf = inventory.pf(nics[&function.name.nic]).expect("its PF");
        let vf = pf.sriov.as_ref().and_then(|sriov| sriov.vf(function.name.vf?)).expect("its VF");
        let mac =
            pf.permanent_mac.and_then(|pf| model.nics[&function.name.nic].vf_mac(None, Some(pf), vf.index));
        let interface = interface(function.interface.as_str(), mac.expect("an address"));
        let interface = Interface { addresses: function.addresses.clone(), ..interface };
        report(vf.index.get().into(), interface, vf.bdf)
    };
    let places = model.guests.iter().map(|(name, guest)| {
        let reports = guest.functions.iter().map(inside).collect();
        (name.clone(), GuestPlace::Running(Box::new(Inside(reports))))
    });
    let places: BTreeMap<_, _> = places.collect();
    let effort = Effort { timeout: Duration::ZERO, load: false };
    let observer = &mut AtOnce(&inventory);
    let verdicts = verify(&model, &inventory, &nics, &places, &BTreeMap::new(), observer, effort);
    assert!(verdicts.len() > inventory.guests.len(), "it was judged");
    exit(0);
}

fn interface(name: &str, mac: Mac) -> Interface {
    Interface {
        name: name.parse().expect("a short name"),
        mac,
        mtu: 1500,
        up: true,
        carrier: Some(true),
        speed: None,
        addresses: Vec::new(),
        routes: Vec::new(),
        master: None,
        uppers: Vec::new(),
    }
}

fn report(index: u32, interface: Interface, device: Bdf) -> InterfaceReport {
    InterfaceReport {
        index: index + 1,
        interface,
        permanent_mac: None,
        device: Some(device.to_string()),
        kind: None,
        port_name: None,
        promiscuous: None,
        routes: None,
        master: None,
        lower: None,
    }
}

/// The inside of a container.
struct Inside(Vec<InterfaceReport>);

impl Inside {
    fn gone(&self) -> PlaceError {
        PlaceError::Gone { place: self.describe(), why: "there is nothing else in it".to_owned() }
    }
}

impl Place for Inside {
    fn describe(&self) -> String {
        "inside a container of the bench".to_owned()
    }

    fn run(&self, _: &Command) -> Result<Output, PlaceError> {
        Err(self.gone())
    }

    fn read(&self, _: &str, _: usize) -> Result<Vec<u8>, PlaceError> {
        Err(self.gone())
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        Ok(self.0.clone())
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Ok(Some(1))
    }
}

/// Tells at once what an inventory has; all frames arrive.
struct AtOnce<'a>(&'a Inventory);

impl Observer for AtOnce<'_> {
    fn interfaces(&mut self) -> Result<Vec<InterfaceReport>, String> {
        let of_pf = |(at, pf): (u32, &penstock_model::inventory::Pf)| {
            let found = pf.interface.as_ref()?;
            Some(report(at, interface(found.name.as_str(), found.mac), pf.bdf))
        };
        Ok((0..).zip(&self.0.pfs).filter_map(of_pf).collect())
    }

    fn virtual_functions(&mut self, pf: Bdf) -> Result<(u16, Vec<(VfIndex, Bdf)>), String> {
        let sriov = self.0.pf(pf).and_then(|pf| pf.sriov.as_ref()).ok_or("it has no VFs")?;
        Ok((sriov.num_vfs, sriov.vfs.iter().map(|vf| (vf.index, vf.bdf)).collect()))
    }

    fn free_vfs(&mut self, vfs: &BTreeSet<Bdf>) -> BTreeMap<Bdf, Result<FreeVf, String>> {
        vfs.iter().map(|vf| (*vf, Ok(FreeVf::default()))).collect()
    }

    fn function_of(&mut self, _: &str) -> Option<Bdf> {
        None
    }

    fn pf(&mut self, _: Option<u32>, index: u32) -> Result<PfObservation, String> {
        let at =
            index.checked_sub(1).and_then(|at| self.0.pfs.get(at as usize)).ok_or("there is no such PF")?;
        let vfs = at.sriov.iter().flat_map(|sriov| &sriov.vfs);
        let vfs = vfs.filter_map(|vf| Some((vf.index, vf.present.as_ref()?.attributes.clone()?)));
        Ok(PfObservation { vfs: vfs.collect(), switch_mode: Ok(at.switch_mode) })
    }

    fn reach(
        &mut self,
        _: &[Endpoint],
        pairs: &[(usize, usize)],
        _: &[NeighbourProbe],
        _: ProbeTimeouts,
    ) -> Result<(Vec<Reach>, Vec<ProbeResult>), String> {
        Ok((vec![Reach::Arrived; pairs.len()], Vec::new()))
    }

    fn reach_across(
        &mut self,
        _: &[ProbeEnd],
        _: &[ProbePath],
        _: &[NeighbourProbe],
        _: &[Remote<'_>],
        _: Duration,
    ) -> ProbeResults {
        ProbeResults { frames: Vec::new(), answers: Vec::new() }
    }

    fn load(&mut self, _: &Endpoint, _: &Endpoint, _: u32, _: Duration) -> Result<Carried, String> {
        Err("nothing is sent".to_owned())
    }
}
