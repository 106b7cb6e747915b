use std::path::PathBuf;

use penstock_guests::state::State;
use penstock_host::netlink::Touched;
use penstock_model::{Outcome, Source, verdict::Subject};
use penstock_plan::action::GuestDefinition;

use super::*;
use crate::{arguments::Common, settings::Settings};

fn nics(all: &[(&str, &str)]) -> IndexMap<NicName, Bdf> {
    all.iter().map(|(name, pf)| (name.parse().unwrap(), pf.parse().unwrap())).collect()
}

#[test]
fn a_nic_that_is_away_keeps_its_place_and_no_other_one_s() {
    let source = "nics: {NET0: {vfs: 1}, NET1: {match: {mac: '02:00:00:00:aa:01'}, vfs: 1}}";
    let model = penstock_model::parse(&Source::new("m.yaml", source)).unwrap().model;
    let before = nics(&[("NET0", "0000:01:00.0"), ("NET1", "0000:02:00.0")]);
    let moved = with_those_found(&model, before.clone(), nics(&[("NET1", "0000:03:00.0")]));
    assert_eq!(moved, nics(&[("NET0", "0000:01:00.0"), ("NET1", "0000:03:00.0")]));
    let taken = with_those_found(&model, before, nics(&[("NET1", "0000:01:00.0")]));
    assert_eq!(taken, nics(&[("NET1", "0000:01:00.0")]));
}

#[test]
fn a_nic_that_is_matched_loosely_is_not_found_in_the_place_of_one_that_is_away() {
    let source = "nics: {NET0: {vfs: 1}, NET1: {vfs: 1}, NET2: {match: {mac: '02:00:00:00:aa:01'}, vfs: 1}}";
    let model = penstock_model::parse(&Source::new("m.yaml", source)).unwrap().model;
    let before = nics(&[("NET0", "0000:01:00.0"), ("NET1", "0000:02:00.0")]);
    // The first port is away: what is left is given to the first NIC of the file.
    let found = nics(&[("NET0", "0000:02:00.0"), ("NET2", "0000:03:00.0")]);
    let now = with_those_found(&model, before.clone(), found.clone());
    let mut wanted = before.clone();
    wanted.extend(nics(&[("NET2", "0000:03:00.0")]));
    assert_eq!(now, wanted, "one that is matched exactly is where it is found");
    let all = nics(&[("NET0", "0000:02:00.0"), ("NET1", "0000:03:00.0")]);
    assert_eq!(with_those_found(&model, before, all.clone()), all, "none is away");
}

/// Of a machine that has neither NIC nor guests of Penstock's.
pub fn watcher(of_incus: &[&str]) -> Watcher {
    let source = Source::new(
        "m.yaml",
        "nics: {NET0: {match: {mac: '02:00:00:00:aa:01'}, vfs: 1}}\nguests: {box: {functions: [NET0#0], memory: 64MiB}}\n",
    );
    let model = penstock_model::parse(&source).unwrap().model;
    let (templates, generated) = (Vec::new(), Vec::new());
    let warnings = Default::default();
    let file = ModelFile { source, model, warnings, templates, generated, directory: "".into() };
    let nowhere = PathBuf::from("/nonexistent/penstock");
    let (state, journal) = (nowhere.clone(), nowhere);
    let settings = Settings { state, journal, ..Settings::resolve(&Common::default()) };
    let process = Running { id: 1, started: 1 };
    let of_incus = of_incus.iter().map(|name| (name.parse().unwrap(), process)).collect();
    Watcher::new(file, Machine::here(&settings), of_incus)
}

#[test]
fn what_a_guest_can_do_without_end_waits_and_what_the_host_tells_does_not() {
    let mut watcher = watcher(&[]);
    let guest: GuestName = "box".parse().unwrap();
    let process = Running { id: 1, started: 1 };
    let touched = Event::Interface(Touched { index: 2, device: None });
    let inside = SourceName::Inside(guest.clone(), process);
    let Rechecks { at_once, waits } =
        watcher.concerned(&[(inside, touched), (SourceName::Host, Event::Lost)].into());
    assert!(at_once.is_nothing() && waits.whole && waits.scope.guests.contains(&guest));
    let end = SourceName::End(guest.clone(), process);
    let all = [SourceName::Inside(guest.clone(), process), end.clone(), SourceName::Host];
    watcher.polled.extend(all.clone());
    let Rechecks { at_once, waits } = watcher.concerned(&[(end, Event::Ended)].into());
    assert!(waits.is_nothing() && at_once.scope.guests.contains(&guest));
    let host = BTreeSet::from([SourceName::Host]);
    assert_eq!(watcher.polled, host, "nothing keeps the network namespace of one that has ended");
    watcher.polled.extend(all);
    watcher.forget_ended();
    assert_eq!(watcher.polled, host);
}

#[test]
fn guests_that_cannot_be_looked_into_are_told_of_but_for_those_left_to_incus() {
    let watcher = watcher(&[]);
    let known = BTreeMap::new();
    let model = &watcher.file.model;
    let words = |left: &BTreeSet<GuestName>| {
        let mut run = watcher.machine.as_run(model, &watcher.inventory, &watcher.nics, [], &known);
        run.places = [("box".parse().unwrap(), GuestPlace::Unseen("libvirt is away".to_owned()))].into();
        UnseenGuests::of(run, left, IncusStarts::None).in_words()
    };
    let left = ["box".parse().unwrap()].into();
    assert_eq!(words(&BTreeSet::new()).as_deref(), Some("box is not looked into: libvirt is away"));
    assert_eq!(words(&left), None);
}

#[test]
fn a_guest_that_incus_runs_is_not_judged_whatever_was_said_of_it_before() {
    let of_box = |known: &Known| known.verdicts().filter(|v| v.attribute == "running").count();
    let mut watcher = watcher(&[]);
    let whole = Scope::whole(&watcher.file.model);
    let (fresh, _) = watcher.attributes(&whole, When::Later, Duration::ZERO);
    watcher.known.take(fresh);
    assert_eq!(of_box(&watcher.known), 1, "it does not run");
    watcher.of_incus.insert("box".parse().unwrap(), Running { id: 1, started: 1 });
    let (fresh, _) = watcher.attributes(&whole, When::Later, Duration::ZERO);
    let changes = watcher.known.take(fresh);
    assert_eq!((changes, of_box(&watcher.known)), (Vec::new(), 0));
}

#[test]
fn where_incus_does_not_answer_the_guests_that_it_may_run_are_left_and_the_others_judged() {
    let mut watcher = watcher(&[]);
    let whole = Scope::whole(&watcher.file.model);
    let model = watcher.file.model.clone();
    let known = BTreeMap::new();
    let mut run =
        watcher.machine.as_run(&model, &watcher.inventory, &watcher.nics, model.guests.keys(), &known);
    run.incus_unseen =
        Some(IncusUnseen { why: "it is away".to_owned(), may_run: ["box".parse().unwrap()].into() });
    let parts = |judged: Judged| judged.into_iter().map(|(part, _)| part).collect::<Vec<_>>();
    let net0 = Part::Nic("NET0".parse().unwrap());
    assert_eq!(
        parts(watcher.judged(&run, &whole, When::Later, Duration::ZERO).0),
        std::slice::from_ref(&net0)
    );
    assert!(watcher.as_run.is_none(), "what Incus has chosen is not known");
    run.incus_unseen = Some(IncusUnseen { why: "it is away".to_owned(), may_run: BTreeSet::new() });
    let all = [net0, Part::Guest("box".parse().unwrap())];
    assert_eq!(parts(watcher.judged(&run, &whole, When::Later, Duration::ZERO).0), all);
}

#[test]
fn what_was_seen_while_an_instance_ended_is_no_drift() {
    let mut watcher = watcher(&[]);
    let whole = Scope::whole(&watcher.file.model);
    let model = watcher.file.model.clone();
    watcher.inventory = penstock_testkit::models::machine(1, 1);
    watcher.nics = [("NET0".parse().unwrap(), watcher.inventory.pfs[0].bdf)].into();
    let mut judged = |process: Running| {
        let known = BTreeMap::new();
        let mut run = watcher.machine.as_run(&model, &watcher.inventory, &watcher.nics, [], &known);
        run.of_incus = [("box".parse().unwrap(), process)].into();
        let (judged, starts) = watcher.judged(&run, &whole, When::Later, Duration::ZERO);
        assert_eq!(starts == IncusStarts::None, process.is_alive(), "what was not judged is told of");
        let mut verdicts = judged.iter().flat_map(|(_, verdicts)| verdicts);
        let of_vf =
            |subject: &Subject| matches!(subject, Subject::Function(function) if function.vf.is_some());
        (verdicts.any(|verdict| of_vf(&verdict.subject)), watcher.as_run.is_some())
    };
    let ended = Running { id: u32::MAX, started: 1 };
    assert_eq!(judged(ended), (false, false));
    assert_eq!(judged(Running::this().unwrap()), (true, true));
    assert_eq!(judged(ended), (false, true), "how it ran is still known");
}

#[test]
fn nothing_is_said_of_what_else_a_guest_of_incus_has() {
    let watcher = watcher(&[]);
    let mut printer = Printer::keeping(&Settings::resolve(&Common::default()));
    let mut of_guests = |left: &[&str]| {
        let left = left.iter().map(|name| name.parse().unwrap()).collect();
        let Watcher { file, machine, inventory, nics, .. } = &watcher;
        let verdicts = verify::beside(file, machine, inventory, nics, &left, &mut printer).unwrap();
        verdicts.iter().filter(|verdict| matches!(verdict.subject, Subject::Guest(_))).count()
    };
    assert!(of_guests(&[]) > 0, "it does not run");
    assert_eq!(of_guests(&["box"]), 0);
}

#[test]
fn a_guest_that_penstock_has_defined_since_is_judged_again() {
    let mut watcher = watcher(&["box"]);
    let state = tempfile::tempdir().unwrap();
    let settings = Settings { state: state.path().to_owned(), ..Settings::resolve(&Common::default()) };
    watcher.machine = Machine::here(&settings);
    watcher.as_run = Some(Arc::new(watcher.file.model.clone()));
    let whole = Scope::whole(&watcher.file.model);
    let of_box = |(judged, _): (Judged, UnseenGuests)| {
        judged.iter().any(|(part, verdicts)| matches!(part, Part::Guest(_)) && !verdicts.is_empty())
    };
    assert!(!of_box(watcher.attributes(&whole, When::Later, Duration::ZERO)) && watcher.as_run.is_some());
    let definition = GuestDefinition::bare("box".parse().unwrap());
    State::new(state.path().join("guests")).define(&definition).unwrap();
    assert!(of_box(watcher.attributes(&whole, When::Later, Duration::ZERO)));
    assert!(watcher.of_incus.is_empty());
}

#[test]
fn free_vfs_of_a_nic_whose_guest_of_incus_is_stopped_are_judged_later() {
    let mut watcher = watcher(&["box"]);
    watcher.inventory = penstock_testkit::models::machine(1, 2);
    watcher.file.model.nics[0].vfs = 2;
    let nic: NicName = "NET0".parse().unwrap();
    watcher.nics = [(nic.clone(), watcher.inventory.pfs[0].bdf)].into();
    let scope = Scope::of_nic(&watcher.file.model, &nic);
    let mut of_free = |when: When| {
        let run = watcher.machine.as_run(
            &watcher.file.model,
            &watcher.inventory,
            &watcher.nics,
            [],
            &BTreeMap::new(),
        );
        let (judged, starts) = watcher.judged(&run, &scope, when, Duration::ZERO);
        assert_ne!(starts, IncusStarts::Some);
        let free = judged.iter().flat_map(|(_, verdicts)| verdicts);
        let free = free.filter(|verdict| verdict.subject == Subject::Function("NET0#1".parse().unwrap()));
        let free: Vec<Outcome> = free.map(|verdict| verdict.outcome).collect();
        watcher.known.take(judged);
        (free, starts == IncusStarts::Perhaps)
    };
    assert_eq!(of_free(When::AtOnce), (Vec::new(), true), "nothing was known of them");
    let (seen, again) = of_free(When::Later);
    assert!(!seen.is_empty() && !again);
    assert_eq!(of_free(When::AtOnce), (seen, true), "they stay as they were known");
}
