//! The VFs that pods have, looked at each second for little: what the PF, or its embedded switch, keeps of each, its driver, and the interface in
//! the pod. Where that differs from the second before the [`reporter`](super::reporter) looks in earnest.
//!
//! By the clock, since the kernel does not tell of all of it: not of a PF that is down, of a VF that resets itself, nor of an embedded switch. To
//! hear of the interfaces of a pod's network namespace a socket would have to stay there, and the namespace with it: its VF would not come home.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use penstock_host::{Netlink, NetworkNamespace, PciFunction, Root, VfBackend, chain, local_interface_of};
use penstock_model::{Bdf, InterfaceName, Mac, VfAttributeKind, inventory::VfState};

use crate::claim::{
    ClaimUid, Claims, StateError,
    parameters::VfMode,
    state::{AttachRecord, PreparedClaim, PreparedDevice},
};

/// So often...
const EVERY: Duration = Duration::from_secs(1);

/// ...and so much longer than a look takes: the line to an embedded switch is nobody else's meanwhile.
const REST: u32 = 10;

/// So long that line may be another's, and so long an answer may take. What is not seen then is in the next look.
const LINE: Duration = Duration::from_secs(3);

/// How long to wait after a look that has taken so long.
pub(super) fn pause(look: Duration) -> Duration {
    EVERY.max(look * REST)
}

/// A VF that a pod has, as it is in one moment. What cannot be read is so in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VfInPod {
    /// The pod's network namespace, and the file by which it was known: its number is another's when it has ended.
    namespace: (u64, u64),
    netns: PathBuf,
    mode: VfMode,
    driver: Result<Option<String>, String>,
    /// What is kept of it; `None` where nothing is.
    at_pf: Result<Option<VfState>, String>,
    /// Its interface in the pod; `None` where there is none.
    inside: Result<Option<InterfaceInPod>, String>,
}

/// An interface in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InterfaceInPod {
    index: u32,
    mac: Mac,
    mtu: u32,
    up: bool,
}

impl VfInPod {
    /// Whether it is still, or again, in the same pod.
    pub(super) fn is_of(&self, other: &VfInPod) -> bool {
        self.namespace == other.namespace && self.netns == other.netns
    }

    /// Whether what the PF keeps of it could be read, and is something.
    pub(super) fn is_known_at_pf(&self) -> bool {
        matches!(self.at_pf, Ok(Some(_)))
    }

    /// What the PF keeps otherwise than it did when the pod was given the VF, whatever the claim says of it. A program that drives a VF itself may
    /// give it an address, and so may a pod where the PF has none for it.
    pub(super) fn changed_since(&self, given: &VfInPod) -> Option<String> {
        let (Ok(Some(given)), Ok(Some(now))) = (&given.at_pf, &self.at_pf) else { return None };
        let own_address = self.mode == VfMode::Vfio || given.mac.is_zero();
        let changed = given.attributes().into_iter().filter_map(|before| {
            let now = now.attribute(before.kind()).filter(|now| *now != before)?;
            let is_own = before.kind() == VfAttributeKind::Mac && own_address;
            (!is_own).then(|| format!("the PF has {now} for the VF, not {before} as when it was given"))
        });
        let changed: Vec<String> = changed.collect();
        (!changed.is_empty()).then(|| changed.join("; "))
    }
}

/// The devices of a claim, in its order; `None` of those that no pod has.
pub(super) type ClaimVfs = Vec<Option<VfInPod>>;

/// Looks at VFs; each PF is asked once.
pub(super) struct VfPoll<'a> {
    root: &'a Root,
    /// What each PF keeps of its VFs.
    pfs: BTreeMap<Bdf, Result<BTreeMap<Bdf, VfState>, String>>,
}

impl<'a> VfPoll<'a> {
    /// On the machine below `root`.
    pub(super) fn new(root: &'a Root) -> VfPoll<'a> {
        VfPoll { root, pfs: BTreeMap::new() }
    }

    /// The devices of a claim.
    pub(super) fn at(&mut self, claims: &Claims, claim: &PreparedClaim) -> Result<ClaimVfs, StateError> {
        let records = claims.records(Some(claim))?;
        let mut seen = Vec::new();
        for device in &claim.devices {
            let record = records.read(&claim.uid, &device.device)?;
            let given = record.filter(|record| record.attached.is_some());
            seen.push(given.and_then(|record| self.vf(device, &record)));
        }
        Ok(seen)
    }

    /// A VF, as long as the network namespace that was given it lives.
    fn vf(&mut self, device: &PreparedDevice, record: &AttachRecord) -> Option<VfInPod> {
        let namespace = NetworkNamespace::open(&record.netns).ok()?;
        if !namespace.identity().is_ok_and(|identity| identity == record.namespace) {
            return None;
        }
        let function = PciFunction::new(self.root, device.function);
        let inside = match device.mode {
            VfMode::Netdev => inside(&namespace, &device.interface),
            VfMode::Vfio => Ok(None),
        };
        Some(VfInPod {
            namespace: record.namespace,
            netns: record.netns.clone(),
            mode: device.mode,
            driver: function.driver().map_err(|error| chain(&error)),
            at_pf: self.at_pf(&function),
            inside,
        })
    }

    fn at_pf(&mut self, function: &PciFunction) -> Result<Option<VfState>, String> {
        let pf = function.physical_function().map_err(|error| chain(&error))?;
        let pf = pf.ok_or_else(|| format!("{} is no VF", function.bdf()))?;
        let root = self.root;
        let states = self.pfs.entry(pf).or_insert_with(|| vfs_of(root, pf)).as_ref();
        states.map(|states| states.get(&function.bdf()).cloned()).map_err(Clone::clone)
    }
}

/// What a PF, or its embedded switch, keeps of its VFs, by their addresses. The kernel is asked for its interface alone.
fn vfs_of(root: &Root, pf: Bdf) -> Result<BTreeMap<Bdf, VfState>, String> {
    let function = PciFunction::new(root, pf);
    let names = function.interface_names().map_err(|error| chain(&error))?;
    let mut netlink = Netlink::open().map_err(|error| chain(&error))?;
    for name in names.iter().filter_map(|name| name.parse::<InterfaceName>().ok()) {
        let report = netlink.link_named(&name).map_err(|error| chain(&error))?;
        let Some(link) = report.and_then(|report| local_interface_of(pf, &[report], root)) else { continue };
        let states =
            VfBackend::of(root, &mut netlink, link.index).and_then(|mut backend| backend.vfs_within(LINE));
        let mut states: BTreeMap<_, _> = states.map_err(|error| chain(&error))?.into_iter().collect();
        let vfs = function.virtual_functions().map_err(|error| chain(&error))?;
        return Ok(vfs.into_iter().filter_map(|(vf, at)| Some((at, states.remove(&vf)?))).collect());
    }
    Err(format!("the PF {pf} has no interface on the host"))
}

fn inside(namespace: &NetworkNamespace, name: &InterfaceName) -> Result<Option<InterfaceInPod>, String> {
    let report = namespace.netlink().and_then(|mut netlink| netlink.link_named(name));
    let report = report.map_err(|error| chain(&error))?;
    Ok(report.map(|report| InterfaceInPod {
        index: report.index,
        mac: report.interface.mac,
        mtu: report.interface.mtu,
        up: report.interface.up,
    }))
}

/// The devices of several claims, without claims that are prepared no more. One that cannot be read now has no devices here, and is not known to differ.
pub(super) fn all(
    claims: &Claims,
    of: impl IntoIterator<Item = ClaimUid>,
) -> Result<BTreeMap<ClaimUid, ClaimVfs>, StateError> {
    let store = claims.store()?;
    let mut poll = VfPoll::new(&claims.settings.root);
    let mut seen = BTreeMap::new();
    for uid in of {
        let devices = match store.read(&uid) {
            Ok(Some(claim)) => poll.at(claims, &claim),
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        seen.insert(uid, devices.unwrap_or_default());
    }
    Ok(seen)
}

/// Whether a VF is otherwise than it was. One that no pod has any more, or that one has got since, is its hook's matter.
pub(super) fn differs(before: &ClaimVfs, now: &ClaimVfs) -> bool {
    let both = before.iter().zip(now).filter_map(|(before, now)| Some((before.as_ref()?, now.as_ref()?)));
    both.into_iter().any(|(before, now)| before != now)
}

#[cfg(test)]
pub(super) mod tests {
    use penstock_model::VlanId;

    use super::*;

    pub(in super::super) fn vf(mode: VfMode, at_pf: VfState) -> VfInPod {
        VfInPod {
            namespace: (4, 17),
            netns: "/run/netns/a".into(),
            mode,
            driver: Ok(Some("igbvf".to_owned())),
            at_pf: Ok(Some(at_pf)),
            inside: Ok(None),
        }
    }

    /// One of which the PF tells nothing.
    pub(in super::super) fn silent() -> VfInPod {
        VfInPod { at_pf: Ok(None), ..vf(VfMode::Netdev, VfState::default()) }
    }

    impl VfInPod {
        /// The same, in a namespace of the same number that this file leads to.
        pub(in super::super) fn in_namespace_of(&self, netns: &str) -> VfInPod {
            VfInPod { netns: netns.into(), ..self.clone() }
        }
    }

    #[test]
    fn what_a_claim_leaves_out_is_to_stay_as_it_was_but_an_address_of_its_own() {
        let (one, other) = (Mac::new([2, 0, 0, 0, 0, 1]), Mac::new([2, 0, 0, 0, 0, 2]));
        let given = VfState { mac: one, spoofchk: Some(true), ..VfState::default() };
        let before = vf(VfMode::Netdev, given.clone());
        assert_eq!(before.changed_since(&before), None);
        let vlan = VfState { vlan: VlanId::new(7).unwrap(), ..given.clone() };
        let said = vf(VfMode::Netdev, vlan).changed_since(&before).unwrap();
        assert!(said.starts_with("the PF has vlan 7 ") && said.contains(", not vlan 0 "), "{said}");
        // What is not told any more is no change of it.
        let silent = VfState { spoofchk: None, ..given.clone() };
        assert_eq!(vf(VfMode::Netdev, silent).changed_since(&before), None);
        let address = VfState { mac: other, ..given.clone() };
        let now = vf(VfMode::Netdev, address.clone());
        assert!(now.changed_since(&before).unwrap().contains("mac"));
        let program = vf(VfMode::Vfio, address.clone());
        assert_eq!(program.changed_since(&vf(VfMode::Vfio, given.clone())), None);
        let nobodys = VfState { mac: Mac::new([0; 6]), ..given };
        assert_eq!(now.changed_since(&vf(VfMode::Netdev, nobodys)), None);
        let unread = VfInPod { at_pf: Err("no".to_owned()), ..now.clone() };
        assert_eq!(unread.changed_since(&before), None);
        assert!(differs(&vec![Some(before.clone())], &vec![Some(now.clone())]));
        assert!(!differs(&vec![Some(before.clone()), None], &vec![None, Some(now)]));
    }

    #[test]
    fn another_pod_may_have_the_number_of_a_namespace_that_has_ended() {
        let first = vf(VfMode::Netdev, VfState::default());
        assert!(first.is_of(&first.clone()));
        assert!(!first.in_namespace_of("/run/netns/b").is_of(&first));
        assert!(!VfInPod { namespace: (4, 18), ..first.clone() }.is_of(&first));
    }

    #[test]
    fn a_look_that_takes_long_leaves_the_line_to_others_ten_times_as_long() {
        assert_eq!(pause(Duration::from_millis(3)), EVERY);
        assert_eq!(pause(Duration::from_millis(400)), Duration::from_secs(4));
    }
}
