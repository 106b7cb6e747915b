//! VFs that somebody has taken since a plan was made.

use penstock_model::{Inventory, inventory::FoundGuest};
use penstock_plan::{Executors, InterfaceSetup, Plan, Step, StepId};

use super::{super::driver::bind_kept, *};
use crate::{
    ApplyError, Mode, Options,
    history::{Phase, RunId, RunState, recovery::RunToUndo, way_back},
    journal::Entry,
    steps::step,
};

/// Since the plan was made: a container has the interface of the second VF.
#[test]
fn a_vf_that_somebody_has_taken_since_is_left_to_them() {
    let tree = Tree::new();
    let (pf, vf) = (bdf(PF), bdf("0000:04:10.2"));
    let in_container = |_: &Root, away: &std::collections::BTreeSet<Bdf>| {
        let found = away.iter().map(|function| (*function, "web (process 7)".to_owned())).collect();
        penstock_host::scan::elsewhere::InterfacesElsewhere { found, unseen: None }
    };
    symlink("../../drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    symlink("../0000:04:00.0", tree.device("0000:04:10.2/physfn")).unwrap();
    for file in ["0000:04:10.2/reset", "0000:04:10.2/driver_override"] {
        fs::write(tree.device(file), "").unwrap();
    }
    fs::create_dir_all(tree.path("sys/bus/pci/drivers/igbvf")).unwrap();
    fs::write(tree.path("sys/bus/pci/drivers/igbvf/unbind"), "").unwrap();
    let untouched = || {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        read(tree.device("0000:04:00.0/sriov_numvfs")) == "2\n"
            && read(tree.device("0000:04:10.2/reset")).is_empty()
            && read(tree.path("sys/bus/pci/drivers/igbvf/unbind")).is_empty()
    };
    let set_driver = |driver: Option<&str>| FunctionAction::SetDriver {
        function: vf,
        driver: driver.map(str::to_owned),
        mac: None,
    };
    let attribute = FunctionAction::SetVfAttribute {
        pf,
        vf: VfIndex::new(1).unwrap(),
        attribute: VfAttribute::Spoofchk(false),
    };
    let actions = [
        FunctionAction::SetVfCount { pf, count: 0 },
        set_driver(None),
        set_driver(Some("vfio-pci")),
        FunctionAction::SetDriver { function: pf, driver: None, mac: None },
        FunctionAction::ResetFunction { function: vf },
        FunctionAction::ResetFunction { function: pf },
        attribute,
    ];
    // The PF has one, too.
    symlink("../../drivers/igb", tree.device("0000:04:00.0/driver")).unwrap();
    let second = Duration::from_secs(1);
    let refused = |executor: &mut HostExecutor, action: &FunctionAction, who: &str| {
        for outcome in [Some(executor.execute(action, second)), executor.execute_all(&[action], second).pop()]
        {
            let error = outcome.unwrap().unwrap_err();
            let text = penstock_host::chain(&error);
            let wanted = format!("since the plan was made {vf} has gone to {who}");
            assert!(
                matches!(error, ExecuteError::Refused { .. }) && text.contains(&wanted),
                "{action}: {text}"
            );
        }
        assert!(untouched(), "{action}");
    };
    for action in &actions {
        let mut executor = tree.executor();
        executor.users.elsewhere = in_container;
        refused(&mut executor, action, "web (process 7), who has its interface");
        let unseen = |_: &Root, _: &_| penstock_host::scan::elsewhere::InterfacesElsewhere {
            unseen: Some("hidden".to_owned()),
            ..Default::default()
        };
        executor.users.elsewhere = unseen;
        let text = penstock_host::chain(&executor.execute(action, second).unwrap_err());
        assert!(text.contains("whether another network namespace has it is not known: hidden"), "{text}");
        assert!(untouched(), "{action}");
    }
    a_run_leaves_it_alone_to_the_end(&tree, in_container);
    assert!(untouched());
    // Its interface is here, and it is written down whose it is to be.
    fs::create_dir_all(tree.device("0000:04:10.2/net/eth3")).unwrap();
    fs::create_dir_all(tree.path("run/netns")).unwrap();
    fs::write(tree.path("run/netns/a"), "").unwrap();
    fs::create_dir_all(tree.path("run/penstock/cni")).unwrap();
    let record = r#"{"network": "n", "container": "web", "netns": "/run/netns/a"}"#;
    fs::write(tree.path(&format!("run/penstock/cni/{vf}.json")), record).unwrap();
    for action in &actions {
        refused(&mut tree.executor(), action, "container web (network n, penstock cni)");
    }
    // What a run has made it takes back all the same, and is as careful as before.
    let mut executor = tree.executor();
    executor.take_back(&actions[4], second).unwrap();
    assert!(!untouched());
    fs::write(tree.device("0000:04:10.2/reset"), "").unwrap();
    refused(&mut executor, &actions[4], "container web (network n, penstock cni)");
    executor.let_go();
    // Of which the plan knew, and what is so already.
    let known = MayTake::Known([vf].into());
    tree.executor().taking(known.clone()).execute(&actions[4], second).unwrap();
    assert!(!untouched());
    fs::create_dir_all(tree.path("sys/class/net/eth3")).unwrap();
    fs::write(tree.device("0000:04:10.2/net/eth3/ifindex"), "9\n").unwrap();
    tree.executor().execute(&set_driver(Some("igbvf")), second).unwrap();
    // Whoever has nobody's word for anything goes on as well.
    fs::write(tree.device("0000:04:10.2/reset"), "").unwrap();
    tree.executor().taking(MayTake::All).execute(&actions[4], second).unwrap();
    assert!(!untouched());
}

/// Neither a step that is refused for the sake of who has taken the VF, nor the way back of a run that was killed at that step, waits for
/// the interface or has anything left to do.
fn a_run_leaves_it_alone_to_the_end(
    tree: &Tree,
    elsewhere: fn(
        &Root,
        &std::collections::BTreeSet<Bdf>,
    ) -> penstock_host::scan::elsewhere::InterfacesElsewhere,
) {
    let autoprobe = |on| FunctionAction::SetAutoprobe { pf: bdf(PF), on };
    let driver = |driver: Option<&str>| FunctionAction::SetDriver {
        function: bdf("0000:04:10.2"),
        driver: driver.map(str::to_owned),
        mac: None,
    };
    let plan = Plan {
        steps: vec![
            step(1, autoprobe(false), autoprobe(true), &[]),
            step(2, driver(None), driver(Some("igbvf")), &[]),
        ],
        ..Plan::default()
    };
    let mut executor = tree.executor();
    executor.users.elsewhere = elsewhere;
    let deadline = Duration::from_millis(300);
    let mut run = |plan: &Plan, mode| {
        let options = Options { mode, deadline, ..Options::default() };
        let (mut executors, mut journal) = (Executors::of_host(&mut executor), Vec::new());
        let outcome = crate::run(plan, &mut executors, &mut journal, &mut (), &options);
        (outcome, RunState::read(&journal, false).phase)
    };
    let (outcome, phase) = run(&plan, Mode::Apply);
    let Err(ApplyError::RolledBack { step, undone, not_undone, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((step, undone, not_undone), (StepId(2), vec![StepId(1)], vec![]));
    assert_eq!(phase, Phase::Nothing);
    assert!(run(&penstock_plan::undo(&plan), Mode::Undo).0.is_ok());
}

/// Below a directory of the tree that was recorded of what was looked at.
fn names_in(recorded: &std::path::Path, directory: &str) -> usize {
    fs::read_dir(recorded.join(directory)).map_or(0, Iterator::count)
}

#[test]
fn a_step_reads_what_concerns_its_functions() {
    const RECORDS: &str = "run/penstock/cni";
    const CLAIMS: &str = "var/lib/penstock/kubernetes/claims";
    let tree = Tree::new();
    let vf = bdf("0000:04:10.2");
    for directory in [RECORDS, CLAIMS, "proc/sys/kernel/random", "run/netns"] {
        fs::create_dir_all(tree.path(directory)).unwrap();
    }
    fs::write(tree.path("proc/sys/kernel/random/boot_id"), "now\n").unwrap();
    fs::write(tree.path("run/netns/a"), "").unwrap();
    let record = r#"{"network": "n", "container": "web", "netns": "/run/netns/a"}"#;
    let claim = |of: Bdf| format!(r#"{{"boot": "now", "devices": [{{"function": "{of}"}}]}}"#);
    for number in 0..1000_u16 {
        let other = bdf(&format!("0001:{:02x}:{:02x}.{}", number / 256, number % 256 / 8, number % 8));
        fs::write(tree.path(&format!("{RECORDS}/{other}.json")), record).unwrap();
        fs::write(tree.path(&format!("{RECORDS}/{other}.lock")), "").unwrap();
        fs::write(tree.path(&format!("{CLAIMS}/claim-{number}.json")), claim(other)).unwrap();
    }
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(60);
    fs::File::open(tree.path(CLAIMS)).unwrap().set_modified(long_ago).unwrap();
    let users = Users::default();
    // How many names of records and of claims are looked at; who has the VF.
    let keep = || {
        let recorder = std::sync::Arc::new(penstock_host::record::Recorder::default());
        let root = Root::at(tree.0.path()).recording(recorder.clone());
        let kept = users.keep(&root, &[vf], "x", Instant::now() + Duration::from_secs(1));
        let to = tempfile::tempdir().unwrap();
        recorder.write(to.path()).unwrap();
        let who = kept.err().map(|error| penstock_host::chain(&error));
        (names_in(to.path(), RECORDS), names_in(to.path(), CLAIMS), who)
    };
    assert_eq!(keep(), (0, 1000, None));
    assert_eq!(keep(), (0, 0, None), "nothing has changed");
    // What is written since is seen, by whoever comes after the locks.
    fs::write(tree.path(&format!("{CLAIMS}/mine.json")), claim(vf)).unwrap();
    let (records, claims, who) = keep();
    assert_eq!((records, claims), (0, 1001));
    assert!(who.unwrap().contains("a pod that is to have it"));
    fs::write(tree.path(&format!("{RECORDS}/{vf}.json")), record).unwrap();
    let (records, _, who) = keep();
    assert_eq!(records, 1);
    assert!(who.unwrap().contains("container web"));
}

#[test]
fn a_plugin_and_a_step_are_at_a_vf_one_after_the_other() {
    let tree = Tree::new();
    let root = Root::at(tree.0.path());
    let (vf, soon) = (bdf("0000:04:10.2"), Duration::from_millis(20));
    let held = penstock_host::scan::attachments::lock(&root, vf, soon).unwrap().unwrap();
    let count = FunctionAction::SetVfCount { pf: bdf(PF), count: 0 };
    let text = penstock_host::chain(&tree.executor().execute(&count, soon).unwrap_err());
    assert!(text.contains("a call of `penstock cni` has been at 0000:04:10.2"), "{text}");
    // It tells how long it was waited for, and several attributes are not waited for one after the other.
    let told: f32 =
        text.split_once("at 0000:04:10.2 for ").unwrap().1.trim_end_matches(" s").parse().unwrap();
    assert!((0.0..60.0).contains(&told), "{text}");
    let attribute =
        |attribute| FunctionAction::SetVfAttribute { pf: bdf(PF), vf: VfIndex::new(1).unwrap(), attribute };
    let wanted = [attribute(VfAttribute::Spoofchk(false)), attribute(VfAttribute::Trust(true))];
    let answers = tree.executor().execute_all(&wanted.each_ref(), soon);
    assert!(matches!(answers[..], [Err(ExecuteError::Refused { .. })]), "{answers:?}");
    assert_eq!(fs::read_to_string(tree.device("0000:04:00.0/sriov_numvfs")).unwrap(), "2\n");
    // Nobody who interrupts waits for a plugin.
    let mut interrupted = tree.executor();
    interrupted.users.interrupted = || true;
    let began = Instant::now();
    let refused = interrupted.execute(&count, Duration::from_secs(60));
    assert!(matches!(refused, Err(ExecuteError::Refused { .. })), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(50));
    drop((held, interrupted));
    tree.executor().execute(&count, soon).unwrap();
    assert_eq!(fs::read_to_string(tree.device("0000:04:00.0/sriov_numvfs")).unwrap().trim(), "0");
    let mut executor = tree.executor();
    let until = || Instant::now() + Duration::from_secs(1);
    let keep = |users: &Users| users.keep(&root, &[vf], "x", until()).unwrap();
    // What is bound is kept until its interface is there.
    let bind = |users: &Users| assert!(bind_kept(&root, users, vf, None, until()).unwrap());
    for take in [&keep as &dyn Fn(&Users), &bind] {
        take(&executor.users);
        take(&executor.users);
        assert!(penstock_host::scan::attachments::lock(&root, vf, soon).unwrap().is_none(), "a plugin waits");
        executor.let_go();
    }
    assert!(penstock_host::scan::attachments::lock(&root, vf, soon).unwrap().is_some());
    // As the machine's root is to the root of a user namespace: no plugin of theirs could write there either.
    if std::os::unix::fs::chown(tree.path("run/penstock/cni"), Some(65534), Some(65534)).is_ok() {
        assert!(penstock_host::scan::attachments::lock(&root, vf, soon).unwrap_err().is_denied());
        executor.users.keep(&root, &[vf], "x", Instant::now() + soon).unwrap();
    } else {
        penstock_testkit::skip::part("files cannot be given to another user here");
    }
}

/// How the host used an interface comes back when that does, and nothing else of a way back waits for it.
#[test]
fn an_interface_that_somebody_has_is_not_in_the_way_of_the_rest() {
    let tree = Tree::new();
    let vf = bdf("0000:04:10.2");
    symlink("../../drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    symlink("../0000:04:00.0", tree.device("0000:04:10.2/physfn")).unwrap();
    let restore: penstock_plan::Action = FunctionAction::RestoreInterface {
        function: vf,
        setup: InterfaceSetup { up: true, ..Default::default() },
    }
    .into();
    let autoprobe = |on| FunctionAction::SetAutoprobe { pf: bdf(PF), on };
    let plan = Plan {
        steps: vec![
            step(1, autoprobe(false), autoprobe(true), &[]),
            step(2, restore.clone(), restore.clone(), &[1]),
        ],
        ..Plan::default()
    };
    let off: FunctionAction = FunctionAction::SetAutoprobe { pf: bdf(PF), on: false };
    tree.executor().execute(&off, Duration::from_secs(1)).unwrap();
    let done = |step: &Step| {
        let (step, action, inverse) = (step.id, step.action.clone(), step.inverse.clone());
        [
            Entry::Intent { step, action, inverse },
            Entry::Begun { steps: vec![step] },
            Entry::Outcome { step, outcome: crate::journal::Ending::Done, detail: None },
        ]
    };
    let journal: Vec<Entry> = plan.steps.iter().flat_map(done).collect();
    let state = RunState::read(&journal, false);
    let runs = [RunToUndo { id: RunId(1), plan: &plan, state: &state }];
    let mut executor = tree.executor();
    executor.users.elsewhere = |_, away| penstock_host::scan::elsewhere::InterfacesElsewhere {
        found: away.iter().map(|function| (*function, "web (process 7)".to_owned())).collect(),
        unseen: None,
    };
    let mut present = Inventory::default();
    let way = way_back(&runs, &present, &mut executor);
    let kept: Vec<(StepId, &str)> = way.kept.iter().map(|kept| (kept.step, kept.why.as_str())).collect();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].0 == StepId(2) && kept[0].1.starts_with("web (process 7) has its interface"), "{kept:?}");
    let back: Vec<_> = way.plan.steps.iter().map(|step| step.action.clone()).collect();
    assert_eq!(back, [penstock_plan::Action::from(autoprobe(true))]);
    // A container that the same way back stops gives it back.
    let web: penstock_model::GuestName = "web".parse().unwrap();
    let has = FoundGuest { running: true, functions: vec![vf], ..FoundGuest::default() };
    present.guests.insert(web.clone(), has);
    let stop = |guest| penstock_plan::GuestAction::StopGuest { guest };
    let start = penstock_plan::GuestAction::StartGuest { guest: web.clone() };
    let mut with_guest = plan.clone();
    with_guest.steps.push(step(3, start, stop(web), &[]));
    let mut journal = journal.clone();
    journal.extend(done(&with_guest.steps[2]));
    let state = RunState::read(&journal, false);
    let runs_with_guest = [RunToUndo { id: RunId(1), plan: &with_guest, state: &state }];
    let way = way_back(&runs_with_guest, &present, &mut executor);
    assert!(way.kept.is_empty() && way.plan.steps.len() == 3, "{:?}", way.kept);
    // Somebody has taken it since the way back was planned.
    let options = Options { mode: Mode::Undo, deadline: Duration::from_millis(300), ..Options::default() };
    let planned = penstock_plan::undo(&plan);
    let mut executors = Executors::of_host(&mut executor);
    let outcome = crate::run(&planned, &mut executors, &mut Vec::<Entry>::new(), &mut (), &options);
    let Err(ApplyError::Incomplete { failures, .. }) = outcome else { panic!("{outcome:?}") };
    let told: Vec<String> = failures.iter().map(|failure| penstock_host::chain(&failure.error)).collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("web (process 7) has its interface"), "{told:?}");
    assert!(tree.holds(Fact::Autoprobe { pf: bdf(PF), on: true }), "it was not held up");
}

/// A VF whose driver is bound and has made no interface, as just after it was bound.
#[test]
fn an_interface_that_nobody_is_seen_to_have_is_waited_for() {
    let tree = Tree::new();
    let vf = bdf("0000:04:10.2");
    symlink("../../drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    symlink("../0000:04:00.0", tree.device("0000:04:10.2/physfn")).unwrap();
    let setup = InterfaceSetup::default();
    let restore = FunctionAction::RestoreInterface { function: vf, setup };
    let driver = |driver: Option<&str>| {
        let driver = driver.map(str::to_owned);
        penstock_plan::Action::from(FunctionAction::SetDriver { function: vf, driver, mac: None })
    };
    let mut executor = tree.executor();
    // What the way back of these steps does, and keeps.
    let way = |executor: &mut HostExecutor, steps: &[Step]| {
        let plan = Plan { steps: steps.to_vec(), ..Plan::default() };
        let done = |step: &Step| {
            [
                Entry::Intent { step: step.id, action: step.action.clone(), inverse: step.inverse.clone() },
                Entry::Begun { steps: vec![step.id] },
                Entry::Outcome { step: step.id, outcome: crate::journal::Ending::Done, detail: None },
            ]
        };
        let journal: Vec<Entry> = plan.steps.iter().flat_map(done).collect();
        let state = RunState::read(&journal, false);
        let runs = [RunToUndo { id: RunId(1), plan: &plan, state: &state }];
        let way = way_back(&runs, &Inventory::default(), executor);
        (way.plan.steps.len(), way.kept.len(), way.left_for_now().is_some())
    };
    let restored = step(1, restore.clone(), restore.clone(), &[]);
    let bound = step(2, driver(Some("vfio-pci")), driver(Some("igbvf")), &[]);
    assert_eq!(way(&mut executor, std::slice::from_ref(&restored)), (1, 0, false), "nobody is seen");
    executor.users.elsewhere = |_, away| penstock_host::scan::elsewhere::InterfacesElsewhere {
        found: away.iter().map(|function| (*function, "web (process 7)".to_owned())).collect(),
        unseen: None,
    };
    assert_eq!(way(&mut executor, std::slice::from_ref(&restored)), (0, 1, true));
    assert_eq!(way(&mut executor, &[restored, bound]), (2, 0, false), "the driver brings it");
    let refused = executor.execute(&restore, Duration::from_secs(60));
    assert!(matches!(refused, Err(ExecuteError::Refused { .. })), "{refused:?}");

    executor.users.elsewhere = |_, _| penstock_host::scan::elsewhere::InterfacesElsewhere {
        unseen: Some("hidden".to_owned()),
        ..Default::default()
    };
    let failed = executor.execute(&restore, Duration::from_millis(20)).unwrap_err();
    let text = penstock_host::chain(&failed);
    assert!(matches!(failed, ExecuteError::Failed { .. }), "{text}");
    assert!(text.ends_with("its interface is not here, and nobody was seen to have it: hidden"), "{text}");
    executor.pause = |root| {
        fs::create_dir_all(root.path("/sys/bus/pci/devices/0000:04:10.2/net/eth3")).unwrap();
        fs::write(root.path("/sys/bus/pci/devices/0000:04:10.2/net/eth3/ifindex"), "4000000\n").unwrap();
    };
    executor.execute(&restore, Duration::from_secs(60)).unwrap();
    assert!(tree.device("0000:04:10.2/net/eth3").exists());
}

/// A VF that is bound to igbvf and has this interface, with an address that its PF does not keep.
fn with_an_address_of_its_own(tree: &Tree) -> FunctionAction {
    fs::create_dir_all(tree.path("sys/bus/pci/drivers/igbvf")).unwrap();
    symlink("../../drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    symlink("../0000:04:00.0", tree.device("0000:04:10.2/physfn")).unwrap();
    fs::write(tree.path("sys/bus/pci/drivers/igbvf/unbind"), "").unwrap();
    fs::create_dir_all(tree.device("0000:04:10.2/net/eth3")).unwrap();
    fs::create_dir_all(tree.path("sys/class/net/eth3")).unwrap();
    fs::write(tree.device("0000:04:10.2/net/eth3/ifindex"), "9\n").unwrap();
    fs::write(tree.path("sys/class/net/eth3/address"), "02:00:00:00:00:01\n").unwrap();
    FunctionAction::SetDriver {
        function: bdf("0000:04:10.2"),
        driver: Some("igbvf".to_owned()),
        mac: Some("02:00:00:00:00:02".parse().unwrap()),
    }
}

/// So long the address of a VF that never has the wanted one is waited for: a busy machine has to look at least once before it is over.
const UNTIL_IT_IS_LOOKED_AT: Duration = Duration::from_secs(4);

/// Somebody writes down, after the VF was unbound for the first time, that it is to be theirs.
#[test]
fn a_vf_that_was_bound_anew_is_not_said_to_be_as_it_was() {
    let tree = Tree::new();
    let action = with_an_address_of_its_own(&tree);
    fs::create_dir_all(tree.path("run/netns")).unwrap();
    fs::write(tree.path("run/netns/a"), "").unwrap();
    let mut executor = tree.executor();
    executor.users.elsewhere = |root, _| {
        let record = r#"{"network": "n", "container": "web", "netns": "/run/netns/a"}"#;
        fs::write(root.path("/run/penstock/cni/0000:04:10.2.json"), record).unwrap();
        Default::default()
    };
    let failed = executor.execute(&action, UNTIL_IT_IS_LOOKED_AT).unwrap_err();
    let text = penstock_host::chain(&failed);
    assert!(
        matches!(failed, ExecuteError::Failed { .. }) && text.contains("its PF did not tell it"),
        "{text}"
    );
    // The next step leaves it to them.
    executor.let_go();
    let refused = executor.execute(&action, UNTIL_IT_IS_LOOKED_AT);
    assert!(matches!(refused, Err(ExecuteError::Refused { .. })), "{refused:?}");
}

/// While the driver of one VF is asked again and again, a plugin takes the other one and binds it.
#[test]
fn a_vf_whose_pf_does_not_answer_keeps_nobody_from_the_others() {
    for bad_first in [true, false] {
        the_other_is_let_go(bad_first);
    }
}

fn the_other_is_let_go(bad_first: bool) {
    let tree = Tree::new();
    let bad = with_an_address_of_its_own(&tree);
    let good = bdf("0000:04:10.0");
    fs::remove_file(tree.device("0000:04:10.0/driver")).unwrap();
    symlink("../0000:04:00.0", tree.device("0000:04:10.0/physfn")).unwrap();
    let unbind = FunctionAction::SetDriver { function: good, driver: None, mac: None };
    let steps = match bad_first {
        true => vec![step(1, bad.clone(), bad, &[]), step(2, unbind.clone(), unbind, &[])],
        false => vec![step(1, unbind.clone(), unbind, &[]), step(2, bad.clone(), bad, &[])],
    };
    let plan = Plan { steps, ..Plan::default() };
    let mut executor = tree.executor();
    executor.users.elsewhere = |root, _| {
        let lock = |vf| penstock_host::scan::attachments::lock(root, bdf(vf), Duration::ZERO).unwrap();
        let driver = root.path("/sys/bus/pci/devices/0000:04:10.0/driver");
        if lock("0000:04:10.0").is_some() && !driver.exists() && lock("0000:04:10.2").is_none() {
            let _ = symlink("../../drivers/igbvf", driver);
        }
        Default::default()
    };
    let mut journal = Vec::<Entry>::new();
    let options = Options { deadline: UNTIL_IT_IS_LOOKED_AT, ..Options::default() };
    let outcome = crate::run(&plan, &mut Executors::of_host(&mut executor), &mut journal, &mut (), &options);
    let Err(ApplyError::RolledBack { step, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(step, StepId(if bad_first { 1 } else { 2 }));
    assert!(tree.device("0000:04:10.0/driver").is_symlink(), "the plugin has it");
    let done = Entry::Outcome { step: StepId(1), outcome: crate::journal::Ending::Done, detail: None };
    // What comes after the one that failed is not looked at, and is taken back.
    assert_eq!(journal.contains(&done), !bad_first, "{journal:?}");
}

/// Looks at each fact as a plugin that would like to have the VF: whether it could begin now, between a step and its proof.
struct Plugin<'a> {
    executor: &'a mut HostExecutor,
    vf: Bdf,
    could_begin: Vec<bool>,
}

impl<A> Execute<A> for Plugin<'_>
where
    HostExecutor: Execute<A>,
{
    fn execute(&mut self, action: &A, deadline: Duration) -> Result<(), ExecuteError> {
        self.executor.execute(action, deadline)
    }

    fn execute_all(&mut self, actions: &[&A], deadline: Duration) -> Vec<Result<(), ExecuteError>> {
        self.executor.execute_all(actions, deadline)
    }

    fn take_back(&mut self, action: &A, deadline: Duration) -> Result<(), ExecuteError> {
        // Nor between what failed and the way back.
        self.look();
        self.executor.take_back(action, deadline)
    }
}

impl Observe for Plugin<'_> {
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError> {
        self.look();
        self.executor.holds(fact)
    }

    fn let_go(&mut self) {
        self.executor.let_go();
    }

    fn let_go_of(&mut self, action: &FunctionAction) -> bool {
        self.executor.let_go_of(action)
    }

    fn let_go_of_all_but(&mut self, actions: &[&FunctionAction]) {
        self.executor.let_go_of_all_but(actions);
    }

    fn has_seen(&self, fact: &Fact) -> bool {
        self.executor.has_seen(fact)
    }
}

impl Plugin<'_> {
    fn look(&mut self) {
        let lock = penstock_host::scan::attachments::lock(&self.executor.root, self.vf, Duration::ZERO);
        self.could_begin.push(lock.unwrap().is_some());
    }
}

#[test]
fn no_plugin_begins_between_a_step_and_its_proof() {
    let tree = Tree::new();
    let vf = bdf("0000:04:10.2");
    symlink("../../drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    symlink("../0000:04:00.0", tree.device("0000:04:10.2/physfn")).unwrap();
    fs::create_dir_all(tree.device("0000:04:10.2/net/eth3")).unwrap();
    fs::create_dir_all(tree.path("sys/bus/pci/drivers/igbvf")).unwrap();
    fs::write(tree.path("sys/bus/pci/drivers/igbvf/unbind"), "").unwrap();
    let driver = |driver: Option<&str>| FunctionAction::SetDriver {
        function: vf,
        driver: driver.map(str::to_owned),
        mac: None,
    };
    // A tree's driver does not go: the proof is looked at until the step's time is over, and so is that of the way back.
    let plan = Plan { steps: vec![step(1, driver(None), driver(None), &[])], ..Plan::default() };
    let mut executor = tree.executor();
    let mut plugin = Plugin { executor: &mut executor, vf, could_begin: Vec::new() };
    let options = Options { deadline: Duration::from_millis(50), ..Options::default() };
    let outcome =
        crate::run(&plan, &mut Executors::of_host(&mut plugin), &mut Vec::<Entry>::new(), &mut (), &options);
    assert!(matches!(outcome, Err(ApplyError::RolledBack { .. })), "{outcome:?}");
    assert!(!plugin.could_begin.is_empty());
    assert!(!plugin.could_begin.contains(&true), "{:?}", plugin.could_begin);
    let soon = Duration::from_millis(20);
    let root = Root::at(tree.0.path());
    assert!(
        penstock_host::scan::attachments::lock(&root, vf, soon).unwrap().is_some(),
        "nor is it kept longer"
    );
}

/// Of two VFs that are unbound together one is a container's by now, and the other does not lose its driver.
#[test]
fn a_vf_of_a_failed_batch_that_nothing_was_done_to_keeps_nobody_waiting_for_the_way_back() {
    let tree = Tree::new();
    let (done, theirs) = (bdf("0000:04:10.0"), bdf("0000:04:10.2"));
    with_an_address_of_its_own(&tree);
    for (of, to) in [("driver", "../../drivers/igbvf"), ("physfn", "../0000:04:00.0")] {
        let link = tree.device(&format!("{done}/{of}"));
        let _ = fs::remove_file(&link);
        symlink(to, link).unwrap();
    }
    fs::create_dir_all(tree.path("run/netns")).unwrap();
    fs::write(tree.path("run/netns/a"), "").unwrap();
    fs::create_dir_all(tree.path("run/penstock/cni")).unwrap();
    let record = r#"{"network": "n", "container": "web", "netns": "/run/netns/a"}"#;
    fs::write(tree.path(&format!("run/penstock/cni/{theirs}.json")), record).unwrap();
    let unbind = |function| FunctionAction::SetDriver { function, driver: None, mac: None };
    let link = FunctionAction::SetLink { function: bdf(PF), direction: Direction::Up };
    let steps = vec![step(1, unbind(done), unbind(done), &[]), step(2, unbind(theirs), link, &[])];
    let plan = Plan { steps, ..Plan::default() };
    for (vf, is_let_go) in [(theirs, true), (done, false)] {
        let mut executor = tree.executor();
        let mut plugin = Plugin { executor: &mut executor, vf, could_begin: Vec::new() };
        let options = Options { deadline: Duration::from_millis(50), ..Options::default() };
        let mut journal = Vec::<Entry>::new();
        let outcome =
            crate::run(&plan, &mut Executors::of_host(&mut plugin), &mut journal, &mut (), &options);
        let Err(ApplyError::RolledBack { step, not_undone, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((step, not_undone.len()), (StepId(1), 1), "{not_undone:?}");
        assert!(!plugin.could_begin[0], "before anything had failed");
        // The proof of the way back comes last.
        assert_eq!(plugin.could_begin.last(), Some(&is_let_go), "{vf}: {:?}", plugin.could_begin);
    }
}

/// A step has removed one of the VFs and failed; its way back makes it anew.
#[test]
fn a_vf_that_a_failed_step_has_removed_is_kept_until_it_is_back() {
    let tree = Tree::new();
    let (stays, goes) = (bdf("0000:04:10.0"), bdf("0000:04:10.2"));
    let (root, soon) = (Root::at(tree.0.path()), Duration::from_millis(20));
    let is_held = |vf| penstock_host::scan::attachments::lock(&root, vf, Duration::ZERO).unwrap().is_none();
    let mut executor = tree.executor();
    executor.users.hold(&root, &[stays, goes], "x", Instant::now() + soon).unwrap();
    fs::remove_file(tree.device("0000:04:00.0/virtfn1")).unwrap();
    fs::remove_dir_all(tree.device("0000:04:10.2")).unwrap();
    executor.let_go_of_all_but(&[&FunctionAction::SetVfCount { pf: bdf(PF), count: 2 }]);
    assert!(is_held(stays) && is_held(goes));
    executor.let_go_of_all_but(&[&FunctionAction::SetAutoprobe { pf: bdf(PF), on: true }]);
    assert!(!is_held(stays), "it is there, and nothing is done to it");
    assert!(is_held(goes));
    executor.let_go();
    assert!(!is_held(goes));
}
