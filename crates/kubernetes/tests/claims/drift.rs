//! What a pod has and is not as it was given, in network namespaces of this test's own: the PF is one end of a veth pair, what is kept of its VF is
//! an embedded switch's that the test plays, and the pod's interface is another veth.

use std::{
    os::unix::fs::MetadataExt,
    panic,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use nix::sched::{CloneFlags, unshare};
use penstock_host::Command;
use penstock_testkit::{namespace::Namespace, switch_line};

use super::*;

const PF_MAC: &str = "02:00:00:00:00:10";
/// What is to be seen so soon is, once in three times at least: a machine that does other things takes longer.
const AT_MOST: Duration = Duration::from_secs(2);

pub fn is_told() -> Outcome {
    // Threads that it starts live in its namespace.
    let test = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        run(async { in_namespaces().await }).map_err(|error| chain(&*error))
    });
    Ok(test.join().unwrap_or_else(|panic| panic::resume_unwind(panic))?)
}

fn ip(line: &str) {
    Command::new("ip").args(line.split(' ')).succeed().expect(line);
}

/// The embedded switch of the PF: what it keeps of the VF, and how often it was asked.
#[derive(Clone)]
struct Switch {
    settings: Arc<Mutex<Value>>,
    asked: Arc<AtomicUsize>,
}

impl Switch {
    fn at(machine: &Machine) -> Switch {
        let settings = switch_line::settings("02:00:00:00:00:21");
        let switch = Switch { settings: Arc::new(Mutex::new(settings)), asked: Arc::default() };
        let served = switch.clone();
        switch_line::serve(&machine.path("root"), PF_MAC, move |_| {
            served.asked.fetch_add(1, Ordering::SeqCst);
            switch_line::state(&served.settings.lock().unwrap())
        });
        switch
    }

    /// Keeps these settings from now on.
    fn set(&self, settings: &Value) {
        let mut all = self.settings.lock().unwrap();
        for (key, value) in settings.as_object().unwrap() {
            all[key] = value.clone();
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn in_namespaces() {
    let machine = Machine::new();
    let pf = machine.path("root/sys/bus/pci/devices/0000:01:00.0");
    fs::create_dir_all(pf.join("net/pf0")).unwrap();
    symlink("../0000:01:10.0", pf.join("virtfn0")).unwrap();
    ip(&format!("link add pf0 address {PF_MAC} type veth peer name wire"));
    let switch = Switch::at(&machine);
    let (pod, elsewhere) = (Namespace::new(), Namespace::new());
    pod.batch("ip", "link add net1 address 02:00:00:00:00:21 type veth peer name wire1\nlink set net1 up\n");
    let netns = PathBuf::from(format!("/proc/{}/ns/net", pod.id));
    let identity = fs::metadata(&netns).unwrap();

    let (agent, objects) = Agent::with_a_claim(&machine).await;
    let attached = AttachRecord {
        failure: None,
        attached: Some(json!({})),
        namespace: (identity.dev(), identity.ino()),
        netns,
        ..failed_hook()
    };
    let records = AttachStore::open(&machine.path("run")).unwrap();
    records.write(&"u-1".parse().unwrap(), "net0-0", &attached).unwrap();
    told::wake(&machine);
    // The condition that was told last.
    let condition = || {
        let told = objects.told.lock().unwrap();
        let last = told.iter().rev().find(|told| told["kind"] == "ResourceClaim");
        last.map(|told| told["status"]["devices"][0]["conditions"][0].clone()).unwrap_or_default()
    };
    let checks = || machine.log().matches("CHECK u-1").count();
    let news = || agent.news.lock().unwrap().try_recv().ok();
    let drifted = || agent.drifted.borrow().get("net0-0").cloned();
    until("the pod has its VF", || condition()["reason"] == "Attached").await;
    assert_eq!((news(), drifted()), (None, None));

    // What the plugin could not find out is no word on the VF.
    machine.refuses_with(102);
    machine.refuses_verb("-CHECK", Some("the kernel gave no answer"));
    let before = checks();
    told::wake(&machine);
    until("it is looked at again and again", || checks() >= before + 3).await;
    assert_eq!((condition()["reason"].as_str(), news(), drifted()), (Some("Attached"), None, None));

    // One that is gone is no longer the pod's.
    machine.refuses_with(100);
    told::wake(&machine);
    until("it is gone", || condition()["reason"] == "Differs").await;
    until("that is news", || matches!(news(), Some(DriftEvent::ClaimDrift(_)))).await;
    machine.refuses_verb("-CHECK", None);
    machine.refuses_with(103);
    told::wake(&machine);
    until("it is there again", || condition()["reason"] == "Attached").await;
    until("that is news, too", || matches!(news(), Some(DriftEvent::ClaimHoldsAgain(_)))).await;
    assert_eq!(drifted(), None);

    // A container of the pod was not started: the VF is fine, and looked at on.
    let uid = "u-1".parse().unwrap();
    let failed = AttachRecord { failure: Some("the runtime was at fault".to_owned()), ..attached.clone() };
    records.write(&uid, "net0-0", &failed).unwrap();
    told::wake(&machine);
    until("that is told", || condition()["reason"] == "AttachFailed").await;
    assert_eq!((news(), drifted()), (None, None));
    switch.set(&json!({"vlan": 7}));
    until("it differs", || drifted().is_some()).await;
    until("it is news", || matches!(news(), Some(DriftEvent::ClaimDrift(_)))).await;
    switch.set(&json!({"vlan": 0}));
    until("it is over", || matches!(news(), Some(DriftEvent::ClaimHoldsAgain(_)))).await;
    assert_eq!((condition()["reason"].as_str(), drifted()), (Some("AttachFailed"), None));
    records.write(&uid, "net0-0", &attached).unwrap();
    told::wake(&machine);
    until("the next one was started", || condition()["reason"] == "Attached").await;

    // Each is told of soon, and goes back.
    let mut soonest = [Duration::MAX; 2];
    type Change<'a> = (&'a [&'a str], Box<dyn Fn(bool) + 'a>);
    let set = |given: Value, other: Value| -> Box<dyn Fn(bool)> {
        let switch = switch.clone();
        Box::new(move |changed| switch.set(if changed { &other } else { &given }))
    };
    let moves = |changed: bool| match changed {
        true => drop(pod.run(&format!("ip link set net1 netns /proc/{}/ns/net", elsewhere.id))),
        false => {
            elsewhere.run(&format!("ip link set net1 netns /proc/{}/ns/net", pod.id));
            pod.run("ip link set net1 up");
        }
    };
    let changes: [Change<'_>; 4] = [
        (&["the PF has vlan 7"], set(json!({"vlan": 0}), json!({"vlan": 7}))),
        (
            &["spoofchk off", "trust on", "max_tx_rate 50"],
            set(
                json!({"spoofchk": true, "trust": false, "max_tx_rate": 0}),
                json!({"spoofchk": false, "trust": true, "max_tx_rate": 50}),
            ),
        ),
        (
            &["mac 02:00:00:00:00:22"],
            set(json!({"mac": "02:00:00:00:00:21"}), json!({"mac": "02:00:00:00:00:22"})),
        ),
        (&["the pod has no interface net1"], Box::new(moves)),
    ];
    for (words, change) in &changes {
        let all = |text: &str| words.iter().all(|words| text.contains(words));
        change(true);
        let began = std::time::Instant::now();
        until(words[0], || condition()["reason"] == "Differs").await;
        soonest[0] = soonest[0].min(began.elapsed());
        let message = condition()["message"].as_str().unwrap().to_owned();
        assert!(all(&message), "{words:?}: {message}");
        assert!(drifted().is_some_and(|why| all(&why)), "{:?}", drifted());
        until("it is news", || matches!(news(), Some(DriftEvent::ClaimDrift(told)) if all(&told))).await;
        change(false);
        let began = std::time::Instant::now();
        until("it is as it was given", || condition()["reason"] == "Attached").await;
        soonest[1] = soonest[1].min(began.elapsed());
        assert_eq!(drifted(), None);
        until("it is over", || matches!(news(), Some(DriftEvent::ClaimHoldsAgain(_)))).await;
    }
    eprintln!("drift was told after {soonest:?}");
    assert!(soonest.iter().all(|soonest| *soonest < AT_MOST), "{soonest:?}");

    // What is mended where nothing is seen at the PF or the interface, as a route is, goes back too.
    // What the API server refuses for good is not told again and again.
    *objects.refuses.lock().unwrap() = true;
    machine.refuses_verb("-CHECK", Some("there is no route"));
    switch.set(&json!({"vlan": 7}));
    until("it is told", || condition()["reason"] == "Differs").await;
    switch.set(&json!({"vlan": 0}));
    let (before, asked, telling) = (checks(), switch.asked(), *objects.telling.lock().unwrap());
    until("it is looked at, and differs still", || checks() > before && switch.asked() > asked + 2).await;
    let asked = switch.asked();
    until("it was told what there was", || switch.asked() >= asked + 2).await;
    assert_eq!(
        (condition()["reason"].as_str(), *objects.telling.lock().unwrap()),
        (Some("Differs"), telling)
    );
    *objects.refuses.lock().unwrap() = false;
    machine.refuses_verb("-CHECK", None);
    until("it is as it was given", || condition()["reason"] == "Attached").await;
    while news().is_some() {}

    // Nothing changes: it is looked at, without a program, and nothing is told.
    let counts = || (checks(), *objects.telling.lock().unwrap());
    let (before, asked) = (counts(), switch.asked());
    until("it is looked at", || switch.asked() >= asked + 3).await;
    assert_eq!(counts(), before);

    // A claim that ends is not as it was given again, and no drift any more.
    switch.set(&json!({"vlan": 7}));
    until("it is told", || drifted().is_some()).await;
    drop(changes);
    drop(pod);
    assert_eq!(agent.unprepare("u-1").await, "");
    until("it is forgotten", || drifted().is_none()).await;
    let mut last = Vec::new();
    while let Some(one) = news() {
        last.push(one);
    }
    assert!(last.iter().all(|one| matches!(one, DriftEvent::ClaimDrift(_))), "{last:?}");
    agent.end().await;
}
