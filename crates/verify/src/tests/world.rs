//! A machine made up for tests of verification, every part of which can be changed or hidden.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use penstock_host::{Command, Output, PlaceError};
use penstock_model::{
    InterfaceAddress, InterfaceRoute, LinkState, Mac, Outcome, TxRate, Verdicts, VlanId, VlanQos,
    inventory::{Interface, PciIdentity, Pf, PresentVf, Sriov, Vf},
};

use super::super::*;

/// Where Penstock is inside the VMs of these tests.
pub const PROGRAM: &str = "/inside/penstock";

pub const PF_MAC: &str = "0c:c4:7a:9a:61:ea";

pub const MODEL: &str = r#"
nics:
  NET0:
    match: {mac: "0c:c4:7a:9a:61:ea"}
    vfs: 5
    loopback: true
    mtu: 9000
    interface: lan0
    addresses: [10.0.0.1/24]
guests:
  a:
    functions:
      - {vf: NET0#0, address: 10.0.0.10/24}
      - {vf: NET0#1, vlan: 100, mac: "02:00:00:00:00:01"}
  b:
    functions:
      - vf: NET0#2
        addresses: [10.0.0.12/24, "fd00::12/64"]
        gateway: 10.0.0.1
        routes: [{to: 10.9.0.0/16, via: 10.0.0.254, metric: 50}]
      - {vf: NET0#3, vlan: 100, qos: 3, spoofchk: on, trust: off, max_tx_rate: 100, link_state: enable, mtu: 9000}
"#;

pub fn parse(text: &str) -> Model {
    penstock_model::parse(&penstock_model::Source::new("m.yaml", text)).unwrap().model
}

pub fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

pub fn mac(text: &str) -> Mac {
    text.parse().unwrap()
}

pub fn index(n: u16) -> VfIndex {
    VfIndex::new(n).unwrap()
}

pub fn vf_bdf(n: u16) -> Bdf {
    bdf("04:00.0").of_vf(0x80, 2, n).unwrap()
}

pub fn vf_mac(n: u16) -> Mac {
    if n == 1 { mac("02:00:00:00:00:01") } else { Mac::derived(mac(PF_MAC), index(n)) }
}

/// A machine that verification looks at. Guests' interfaces are in `inside`, the host's under the empty name.
pub struct World {
    pub model: Model,
    pub inventory: Inventory,
    pub inside: BTreeMap<String, Vec<InterfaceReport>>,
    pub switches: TenantSwitches,
    pub stopped: BTreeSet<String>,
    /// What is said of guests that are not to be looked into, for tests of VMs.
    pub said: BTreeMap<String, GuestAnswer>,
    pub sight: PfObservation,
    /// Pairs whose frames get lost, and pairs whose frames pass although they should not.
    pub lost: BTreeSet<(&'static str, &'static str)>,
    pub leaking: BTreeSet<(&'static str, &'static str)>,
    /// Pairs of which no frame can be sent, and why.
    pub refused: BTreeMap<(&'static str, &'static str), &'static str>,
    pub blind: BTreeSet<Source>,
    /// Interfaces inside guests named by their virtio device, as the real ones are.
    pub virtio: bool,
    pub tried: RefCell<usize>,
    /// Functions whose guests answer no questions.
    pub mute: BTreeSet<&'static str>,
    /// Where the PF's interface is.
    pub pf_namespace: Option<u32>,
    /// Functions whose frames from addresses that are not their own pass.
    pub forging: BTreeSet<&'static str>,
    /// Pairs of which frames arrive until a forged one is sent beside them.
    pub fading: BTreeSet<(&'static str, &'static str)>,
    /// Bytes a second that get through from each function.
    pub speed: u64,
    /// How often a load was sent.
    pub loads: RefCell<usize>,
    /// The VFs that no guest owns.
    pub free: BTreeMap<Bdf, FreeVf>,
    /// So many looks at them see no interface yet.
    pub late: RefCell<usize>,
    /// Who has the VFs that no guest owns until their PF is asked.
    pub leaving: RefCell<Option<&'static str>>,
    /// What `sriov_numvfs` says at the first looks, where that is not what the inventory has.
    pub said_vfs: RefCell<Vec<u16>>,
    /// The interfaces of places once frames were sent, where others than before; `None` of a place that is gone by then.
    pub later: BTreeMap<String, Option<Vec<InterfaceReport>>>,
    /// Files inside guests, by guest and path; no other can be read.
    pub files: BTreeMap<(String, &'static str), String>,
    /// Whether frames were sent.
    pub sent: Arc<AtomicBool>,
    /// How long links and interfaces may take.
    pub timeout: Duration,
}

/// How a guest is that is not a container.
#[derive(Clone, Debug)]
pub enum GuestAnswer {
    /// A VM with an agent, and Penstock inside or not.
    Agent { program: bool },
    /// A VM that prints its NICs on its console.
    Console,
    /// It runs, and nobody can look inside.
    Closed(&'static str),
    /// It does not run.
    NotRunning(&'static str),
}

/// What can be looked at, each of which may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    HostInterfaces,
    VirtualFunctions,
    PfObservation,
    FreeVfs,
    Frames,
    GuestInterfaces,
    GuestNamespace,
    Guest,
}

pub const SOURCES: [Source; 8] = [
    Source::HostInterfaces,
    Source::VirtualFunctions,
    Source::FreeVfs,
    Source::PfObservation,
    Source::Frames,
    Source::GuestInterfaces,
    Source::GuestNamespace,
    Source::Guest,
];

pub fn report(number: u32, name: &str, mac: Mac, device: Bdf, addresses: &[&str]) -> InterfaceReport {
    InterfaceReport {
        index: number,
        interface: Interface {
            name: name.parse().unwrap(),
            mac,
            mtu: if name == "lan0" || number == 13 { 9000 } else { 1500 },
            up: true,
            carrier: Some(true),
            speed: Some(1000),
            addresses: addresses.iter().map(|text| text.parse::<InterfaceAddress>().unwrap()).collect(),
            routes: Vec::new(),
            master: None,
            uppers: Vec::new(),
        },
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

pub fn route(to: &str, via: &str, metric: u32) -> InterfaceRoute {
    InterfaceRoute {
        priority: Some(metric),
        ..InterfaceRoute::new(to.parse().unwrap(), Some(via.parse().unwrap()))
    }
}

pub fn state(n: u16) -> VfState {
    let tagged = n == 1 || n == 3;
    VfState {
        mac: vf_mac(n),
        vlan: VlanId::new(if tagged { 100 } else { 0 }).unwrap(),
        qos: VlanQos::new(if n == 3 { 3 } else { 0 }).unwrap(),
        spoofchk: Some(true),
        trust: Some(false),
        max_tx_rate: TxRate(if n == 3 { 100 } else { 0 }),
        link_state: Some(if n == 3 { LinkState::Enable } else { LinkState::Auto }),
        ..VfState::default()
    }
}

/// A machine that is just as [`MODEL`] wants it.
pub fn world() -> World {
    world_of(MODEL)
}

pub fn world_of(model: &str) -> World {
    let vf = |n| Vf {
        index: index(n),
        bdf: vf_bdf(n),
        present: Some(PresentVf { driver: Some("igbvf".to_owned()), ..PresentVf::default() }),
    };
    let pf = Pf {
        bdf: bdf("04:00.0"),
        identity: PciIdentity::default(),
        driver: Some("igb".to_owned()),
        interface: None,
        permanent_mac: Some(mac(PF_MAC)),
        numa_node: None,
        iommu_group: None,
        sriov: Some(Sriov {
            total_vfs: 7,
            num_vfs: 5,
            autoprobe: false,
            first_vf_offset: 0x80,
            vf_stride: 2,
            vf_device: 0x10ca,
            vfs: (0..5).map(vf).collect(),
        }),
        switch_mode: SwitchMode::Unreported,
        firmware: None,
        devlink: None,
    };
    let inside = [
        (
            "",
            vec![
                report(2, "lan0", mac(PF_MAC), bdf("04:00.0"), &["10.0.0.1/24"]),
                report(14, "lan0v4", vf_mac(4), vf_bdf(4), &[]),
            ],
        ),
        (
            "a",
            vec![
                report(10, "eth0", vf_mac(0), vf_bdf(0), &["10.0.0.10/24", "fe80::1/64"]),
                report(11, "eth1", vf_mac(1), vf_bdf(1), &[]),
            ],
        ),
        (
            "b",
            vec![
                InterfaceReport {
                    routes: Some(vec![
                        route("0.0.0.0/0", "10.0.0.1", 0),
                        route("10.9.0.0/16", "10.0.0.254", 50),
                        // What nobody asked for is the guest's affair.
                        route("10.8.0.0/16", "10.0.0.253", 0),
                    ]),
                    ..report(12, "eth0", vf_mac(2), vf_bdf(2), &["10.0.0.12/24", "fd00::12/64"])
                },
                report(13, "eth1", vf_mac(3), vf_bdf(3), &[]),
            ],
        ),
    ];
    World {
        model: parse(model),
        inventory: Inventory { pfs: vec![pf], ..Inventory::default() },
        inside: inside.into_iter().map(|(name, reports)| (name.to_owned(), reports)).collect(),
        switches: BTreeMap::new(),
        stopped: BTreeSet::new(),
        said: BTreeMap::new(),
        sight: PfObservation {
            vfs: (0..5).map(|n| (index(n), state(n))).collect(),
            switch_mode: Ok(SwitchMode::Unreported),
        },
        lost: BTreeSet::new(),
        leaking: BTreeSet::new(),
        refused: BTreeMap::new(),
        blind: BTreeSet::new(),
        virtio: false,
        tried: RefCell::new(0),
        mute: BTreeSet::new(),
        pf_namespace: None,
        forging: BTreeSet::new(),
        fading: BTreeSet::new(),
        speed: 12_500_000,
        loads: RefCell::new(0),
        free: [(vf_bdf(4), FreeVf { driver: Some("igbvf".to_owned()), ..FreeVf::default() })].into(),
        late: RefCell::new(0),
        leaving: RefCell::new(None),
        said_vfs: RefCell::new(Vec::new()),
        later: BTreeMap::new(),
        files: BTreeMap::new(),
        sent: Arc::default(),
        timeout: Duration::ZERO,
    }
}

impl World {
    /// The files inside a guest.
    fn files_of(&self, guest: &str) -> BTreeMap<&'static str, String> {
        let of_guest = self.files.iter().filter(|((of, _), _)| of == guest);
        of_guest.map(|((_, path), text)| (*path, text.clone())).collect()
    }

    /// Changes the VF that no guest owns.
    pub fn free_vf(&mut self, change: impl FnOnce(&mut FreeVf)) {
        change(self.free.get_mut(&vf_bdf(4)).unwrap());
    }
}

pub struct Inside {
    interfaces: Option<Vec<InterfaceReport>>,
    /// What they are once frames were sent.
    later: Option<Option<Vec<InterfaceReport>>>,
    files: BTreeMap<&'static str, String>,
    sent: Arc<AtomicBool>,
    namespace: bool,
    /// Whether this program is inside, under another kernel.
    program: bool,
}

impl Place for Inside {
    fn describe(&self) -> String {
        "inside a test".to_owned()
    }

    fn run(&self, _: &Command) -> Result<Output, PlaceError> {
        Err(self.gone())
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError> {
        let text = self.files.get(path).ok_or_else(|| PlaceError::File {
            place: self.describe(),
            path: path.to_owned(),
            why: std::io::Error::from_raw_os_error(2).to_string(),
        })?;
        Ok(text.bytes().take(limit).collect())
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let now = self.later.as_ref().filter(|_| self.sent.load(Ordering::Acquire));
        now.unwrap_or(&self.interfaces).clone().ok_or_else(|| self.gone())
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        if self.namespace { Ok(Some(77)) } else { Err(self.gone()) }
    }

    fn own_program(&self) -> Option<&str> {
        self.program.then_some(PROGRAM)
    }
}

impl Inside {
    fn gone(&self) -> PlaceError {
        PlaceError::Gone { place: self.describe(), why: "it cannot be seen".to_owned() }
    }
}

impl Observer for &World {
    fn interfaces(&mut self) -> Result<Vec<InterfaceReport>, String> {
        let now = self.later.get("").filter(|_| self.sent.load(Ordering::Acquire));
        let now = now.cloned().unwrap_or_else(|| Some(self.inside[""].clone()));
        self.unless_blind(Source::HostInterfaces, || now.unwrap_or_default())
    }

    fn virtual_functions(&mut self, pf: Bdf) -> Result<(u16, Vec<(VfIndex, Bdf)>), String> {
        assert_eq!(pf, bdf("04:00.0"));
        let listed = self.inventory.pfs[0].sriov.as_ref().unwrap().num_vfs;
        let mut said = self.said_vfs.borrow_mut();
        let said = if said.is_empty() { listed } else { said.remove(0) };
        let vfs = (0..5).map(|n| (index(n), vf_bdf(n))).collect();
        self.unless_blind(Source::VirtualFunctions, || (said, vfs))
    }

    fn free_vfs(&mut self, vfs: &BTreeSet<Bdf>) -> BTreeMap<Bdf, Result<FreeVf, String>> {
        let looks = self.late.borrow().checked_sub(1);
        let look = |vf: &Bdf| {
            let mut seen = self.free.get(vf).cloned().unwrap_or_default();
            seen.interfaces.retain(|_| looks.is_none());
            seen.taken_by = seen.taken_by.or(self.leaving.borrow().map(str::to_owned));
            self.unless_blind(Source::FreeVfs, || seen)
        };
        *self.late.borrow_mut() = looks.unwrap_or_default();
        vfs.iter().map(|vf| (*vf, look(vf))).collect()
    }

    fn function_of(&mut self, device: &str) -> Option<Bdf> {
        let number = device.strip_prefix("virtio")?.parse().ok()?;
        Some(vf_bdf(number))
    }

    fn pf(&mut self, namespace: Option<u32>, index: u32) -> Result<PfObservation, String> {
        assert_eq!((namespace, index), (self.pf_namespace, 2));
        self.leaving.take();
        self.unless_blind(Source::PfObservation, || self.sight.clone())
    }

    fn reach(
        &mut self,
        endpoints: &[Endpoint],
        pairs: &[(usize, usize)],
        planned_probes: &[NeighbourProbe],
        _: ProbeTimeouts,
    ) -> Result<(Vec<Reach>, Vec<ProbeResult>), String> {
        *self.tried.borrow_mut() += pairs.len();
        self.sent.store(true, Ordering::Release);
        assert!(endpoints.iter().all(|endpoint| !endpoint.label.is_empty()));
        let forged = endpoints.iter().any(|endpoint| endpoint.label.ends_with(", forged"));
        let labels = pairs.iter().map(|(from, to)| (&endpoints[*from].label[..], &endpoints[*to].label[..]));
        let frames = labels
            .map(|(from, to)| match forged && self.fading.contains(&(from, to)) {
                true => Reach::NotArrived,
                false => self.frame(from, to),
            })
            .collect();
        let asked = self.asked(planned_probes, |from| &endpoints[from].label);
        self.unless_blind(Source::Frames, || (frames, asked))
    }

    fn reach_across(
        &mut self,
        probe_ends: &[ProbeEnd],
        probe_paths: &[ProbePath],
        planned_probes: &[NeighbourProbe],
        remotes: &[Remote<'_>],
        _: Duration,
    ) -> ProbeResults {
        *self.tried.borrow_mut() += probe_paths.len();
        self.sent.store(true, Ordering::Release);
        let away = |at: usize| probe_ends[at].remote.is_some();
        let asked = self.asked(planned_probes, |from| &probe_ends[from].endpoint.label);
        let answers = asked.into_iter().map(|asked| self.unless_blind(Source::Frames, || asked)).collect();
        let frames = probe_paths
            .iter()
            .map(|ProbePath { from, to, .. }| {
                assert!(away(*from) || away(*to), "what is under one kernel needs no stations");
                for probe_end in [&probe_ends[*from], &probe_ends[*to]] {
                    assert!(probe_end.remote.is_none_or(|at| remotes[at].program == PROGRAM));
                }
                let frame = self.frame(&probe_ends[*from].endpoint.label, &probe_ends[*to].endpoint.label);
                self.unless_blind(Source::Frames, || frame)
            })
            .collect();
        ProbeResults { frames, answers }
    }

    fn load(
        &mut self,
        from: &Endpoint,
        to: &Endpoint,
        mtu: u32,
        lasting: Duration,
    ) -> Result<Carried, String> {
        assert_eq!(mtu, 1500);
        assert_ne!(from.label, to.label);
        *self.loads.borrow_mut() += 1;
        let arrived = self.speed * lasting.as_secs();
        self.unless_blind(Source::Frames, || Carried { took: lasting, arrived, ..Carried::default() })
    }
}

impl World {
    fn frame(&self, from: &str, to: &str) -> Reach {
        if let Some(from) = from.strip_suffix(", forged") {
            let passes = self.forging.contains(from);
            return if passes { self.frame(from, to) } else { Reach::NotArrived };
        }
        if let Some(why) = self.refused.get(&(from, to)) {
            return Reach::SendFailed((*why).to_owned());
        }
        let pair = |set: &BTreeSet<(&str, &str)>| set.contains(&(from, to));
        let tagged = ["NET0#1", "NET0#3", "node/net0#1"];
        let same = tagged.contains(&from) == tagged.contains(&to);
        let arrives = (same && !pair(&self.lost)) || pair(&self.leaking);
        if arrives { Reach::Arrived } else { Reach::NotArrived }
    }

    /// What becomes of questions: an answer needs the path there and back.
    fn asked<'a>(
        &self,
        planned_probes: &[NeighbourProbe],
        label: impl Fn(usize) -> &'a String,
    ) -> Vec<ProbeResult> {
        let answered = |question: &NeighbourProbe| {
            let number = (0..5).find(|n| vf_mac(*n) == question.to).expect("one of the VFs is asked");
            let (from, to) = (label(question.from), format!("NET0#{number}"));
            let guest = &self.inside[if number < 2 { "a" } else { "b" }];
            let interface = &guest[usize::from(number) % 2].interface;
            let mut addresses = interface.addresses.iter();
            addresses.any(|address| address.ip() == question.address)
                && !self.mute.contains(&to[..])
                && self.frame(from, &to) == Reach::Arrived
                && self.frame(&to, from) == Reach::Arrived
        };
        let alive: BTreeSet<Mac> = planned_probes.iter().filter(|q| answered(q)).map(|q| q.to).collect();
        let outcome = |question: &NeighbourProbe| match answered(question) {
            true => ProbeResult::Answered,
            false if alive.contains(&question.to) => ProbeResult::NotAnswered,
            false => ProbeResult::AnswersNobody,
        };
        planned_probes.iter().map(outcome).collect()
    }

    pub fn unless_blind<T>(&self, source: Source, see: impl FnOnce() -> T) -> Result<T, String> {
        if self.blind.contains(&source) { Err(format!("{source:?} cannot be seen")) } else { Ok(see()) }
    }

    pub fn verify(&self) -> Vec<Verdict> {
        self.verify_with(false)
    }

    /// As [`World::verify`], with a load or not. Whatever a world is like, each verdict has a key of its own.
    pub fn verify_with(&self, load: bool) -> Vec<Verdict> {
        let verdicts = Verdicts::try_from(self.verdicts(load));
        verdicts.unwrap_or_else(|error| panic!("{error}")).into_iter().collect()
    }

    fn verdicts(&self, load: bool) -> Vec<Verdict> {
        self.sent.store(false, Ordering::Release);
        let places = self.model.guests.keys().map(|name| {
            let place = if self.blind.contains(&Source::Guest) {
                GuestPlace::Unseen("it is dark".to_owned())
            } else if self.stopped.contains(name.as_str()) {
                GuestPlace::NotRunning("it was never started".to_owned())
            } else if let Some(GuestAnswer::Closed(why)) = self.said.get(name.as_str()) {
                GuestPlace::Closed((*why).to_owned())
            } else if let Some(GuestAnswer::NotRunning(why)) = self.said.get(name.as_str()) {
                GuestPlace::NotRunning((*why).to_owned())
            } else {
                let said = self.said.get(name.as_str());
                let mut interfaces = self.inside[name.as_str()].clone();
                for report in interfaces.iter_mut().filter(|_| matches!(said, Some(GuestAnswer::Console))) {
                    report.interface.carrier = None;
                }
                for (n, report) in interfaces.iter_mut().enumerate().filter(|_| self.virtio) {
                    let base = if name.as_str() == "a" { 0 } else { 2 };
                    report.device = Some(format!("virtio{}", base + n));
                }
                GuestPlace::Running(Box::new(Inside {
                    interfaces: (!self.blind.contains(&Source::GuestInterfaces)).then_some(interfaces),
                    later: self.later.get(name.as_str()).cloned(),
                    files: self.files_of(name.as_str()),
                    sent: Arc::clone(&self.sent),
                    namespace: said.is_none() && !self.blind.contains(&Source::GuestNamespace),
                    program: matches!(said, Some(GuestAnswer::Agent { program: true })),
                }))
            };
            (name.clone(), place)
        });
        let nics = [("NET0".parse().unwrap(), bdf("04:00.0"))].into_iter().collect();
        verify(
            &self.model,
            &self.inventory,
            &nics,
            &places.collect(),
            &self.switches,
            &mut &*self,
            Effort { timeout: self.timeout, load },
        )
    }

    /// The verdicts that are no pass, as `subject attribute: outcome`.
    pub fn not_passed(&self) -> Vec<String> {
        self.verify()
            .into_iter()
            .filter(|verdict| verdict.outcome != Outcome::Pass)
            .map(|verdict| format!("{} {}: {}", verdict.subject, verdict.attribute, verdict.outcome))
            .collect()
    }

    pub fn interface(&mut self, place: &str, name: &str) -> &mut InterfaceReport {
        let reports = self.inside.get_mut(place).unwrap();
        reports.iter_mut().find(|report| report.interface.name.as_str() == name).unwrap()
    }

    /// An interface as it is once frames were sent.
    pub fn later(&mut self, place: &str, name: &str) -> &mut InterfaceReport {
        let now = || Some(self.inside[place].clone());
        let reports = self.later.entry(place.to_owned()).or_insert_with(now).as_mut().unwrap();
        reports.iter_mut().find(|report| report.interface.name.as_str() == name).unwrap()
    }

    pub fn vf(&mut self, n: usize) -> &mut VfState {
        &mut self.sight.vfs[n].1
    }
}
