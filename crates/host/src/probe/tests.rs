//! A driver that does what it is told to.

use nix::errno::Errno;
use penstock_model::{LinkState, Mac, TxRate};

use super::*;

struct Fake {
    state: VfState,
    lacks: Vec<Capability>,
    /// What it answers instead of setting.
    refuses: Option<(Capability, Errno)>,
    silent: bool,
    mode: SwitchMode,
    set: Vec<VfAttribute>,
    resets: usize,
    /// What it does to the state when it sets anything: some drivers do.
    turns: Option<fn(&mut VfState)>,
}

fn fake() -> Fake {
    let state = VfState {
        mac: Mac::new([0; 6]),
        vlan: penstock_model::VlanId::new(7).unwrap(),
        spoofchk: Some(true),
        max_tx_rate: TxRate(100),
        link_state: Some(LinkState::Auto),
        ..VfState::default()
    };
    Fake {
        state,
        lacks: vec![],
        refuses: None,
        silent: false,
        mode: SwitchMode::Vepa,
        set: vec![],
        resets: 0,
        turns: None,
    }
}

impl Knobs for Fake {
    fn vfs(&mut self) -> Result<Vec<(VfIndex, VfState)>, NetlinkError> {
        let of = |index| (VfIndex::new(index).unwrap(), self.state.clone());
        Ok(if self.silent { vec![] } else { (0..3).map(of).collect() })
    }

    fn set_vf(&mut self, vf: VfIndex, attribute: &VfAttribute) -> Result<(), NetlinkError> {
        assert_eq!(vf, target().vf, "another VF was touched");
        self.set.push(*attribute);
        let capability = Capability::of(attribute);
        let (attempt, detail) = ("set it".to_owned(), None);
        if self.lacks.contains(&capability) {
            return Err(NetlinkError::Unsupported { attempt, detail });
        }
        if let Some((_, errno)) = self.refuses.filter(|(refused, _)| *refused == capability) {
            return Err(NetlinkError::Refused { attempt, errno, detail });
        }
        self.turns.into_iter().for_each(|turn| turn(&mut self.state));
        Ok(())
    }

    fn switch_mode(&mut self) -> Result<SwitchMode, NetlinkError> {
        Ok(self.mode)
    }

    fn set_switch_mode(&mut self, mode: SwitchMode) -> Result<(), NetlinkError> {
        assert_eq!(mode, self.mode, "the switch was turned");
        Ok(())
    }

    fn reset(&mut self, _: Bdf) -> Result<(), PciError> {
        self.resets += 1;
        Ok(())
    }
}

fn target() -> Target {
    Target { vf: VfIndex::new(2).unwrap(), function: "0000:04:10.4".parse().unwrap(), linked: true }
}

fn tried(fake: &mut Fake, linked: bool) -> Probed {
    let all = Capability::ALL.iter().copied().collect();
    probe(fake, Target { linked, ..target() }, &all).unwrap()
}

#[test]
fn each_is_set_to_what_it_has_and_what_there_is_no_call_for_is_told() {
    let mut driver = Fake { lacks: vec![Capability::LinkState], ..fake() };
    let probed = tried(&mut driver, true);
    let ability = |capability| probed.trials[&capability].ability;
    assert_eq!(ability(Capability::LinkState), Ability::Unsupported);
    for accepted in [
        Capability::Mac,
        Capability::Vlan,
        Capability::Spoofchk,
        Capability::Rate,
        Capability::Loopback,
        Capability::Reset,
    ] {
        assert_eq!(ability(accepted), Ability::Accepted, "{accepted}");
    }
    // Not reported, so there is no value that it has; and 802.1ad cannot be tried with what is there.
    assert_eq!(ability(Capability::Trust), Ability::Untold);
    assert_eq!(ability(Capability::VlanProto), Ability::Untold);
    assert_eq!(probed.trials.len(), Capability::ALL.len());
    let had = fake().state;
    assert!(driver.set.contains(&VfAttribute::Rate { min: had.min_tx_rate, max: had.max_tx_rate }));
    assert_eq!((driver.state, probed.changed), (had, None), "nothing is different afterwards");
}

#[test]
fn an_error_that_is_about_the_value_proves_nothing() {
    let mut driver = Fake { refuses: Some((Capability::Mac, Errno::EINVAL)), ..fake() };
    let trial = tried(&mut driver, true).trials.remove(&Capability::Mac).unwrap();
    assert_eq!(trial.ability, Ability::Untold);
    assert!(trial.detail.unwrap().contains("Invalid argument"));
}

#[test]
fn an_address_is_not_made_the_administrators_and_no_rate_is_tried_without_a_link() {
    let mut driver = fake();
    driver.state.mac = Mac::new([2, 0, 0, 0, 0, 9]);
    let probed = tried(&mut driver, false);
    assert_eq!(probed.trials[&Capability::Mac].ability, Ability::Untold);
    assert_eq!(probed.trials[&Capability::Rate].ability, Ability::Untold);
    let touched = |set: &VfAttribute| matches!(set, VfAttribute::Mac(_) | VfAttribute::Rate { .. });
    assert!(!driver.set.iter().any(touched), "{:?}", driver.set);
}

#[test]
fn a_driver_that_reports_nothing_is_asked_nothing() {
    let mut driver = Fake { silent: true, ..fake() };
    let probed = tried(&mut driver, true);
    assert_eq!(probed.trials[&Capability::Trust].ability, Ability::Unsupported);
    assert!(driver.set.is_empty());
}

#[test]
fn only_what_is_wanted_is_tried() {
    let mut driver = fake();
    let probed = probe(&mut driver, target(), &BTreeSet::from([Capability::Spoofchk])).unwrap();
    assert_eq!(probed.trials.keys().collect::<Vec<_>>(), [&Capability::Spoofchk]);
    assert_eq!((driver.set.len(), driver.resets), (1, 0));
}

#[test]
fn a_driver_that_changes_something_all_the_same_is_told_of() {
    let mut driver = Fake { turns: Some(|state| state.trust = Some(false)), ..fake() };
    let (before, after) = tried(&mut driver, true).changed.expect("it was noticed");
    assert_eq!((before.trust, after.trust), (None, Some(false)));
}

#[test]
fn a_switch_without_a_mode_has_none_to_set() {
    let mut driver = Fake { mode: SwitchMode::Unreported, ..fake() };
    assert_eq!(tried(&mut driver, true).trials[&Capability::Loopback].ability, Ability::Unsupported);
    let mut driver = Fake { mode: SwitchMode::Switchdev, ..fake() };
    assert_eq!(tried(&mut driver, true).trials[&Capability::Loopback].ability, Ability::Untold);
}
