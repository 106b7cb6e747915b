//! Roll-outs against an API server on this machine: the controller and agents as they are, each agent with a `penstock` that changes nothing
//! and leaves a guard as the real one does; nodes without a kubelet, whose Leases a thread renews.
#![allow(clippy::disallowed_methods)]

#[path = "rollout_in_cluster/deployed.rs"]
mod deployed;
#[path = "rollout_in_cluster/drained.rs"]
mod drained;
#[path = "rollout_in_cluster/faults.rs"]
mod faults;
#[path = "rollout_in_cluster/fenced.rs"]
mod fenced;
#[path = "rollout_in_cluster/fleet.rs"]
mod fleet;
#[path = "rollout_in_cluster/lost.rs"]
mod lost;
#[path = "rollout_in_cluster/simulated.rs"]
mod simulated;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, ExitCode, Stdio},
    sync::{Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use fleet::{Fleet, condition, recorded};
use penstock_model::Inventory;
use penstock_testkit::{
    control_plane::{self, LocalControlPlane},
    needs::Lack,
    trials::Trials,
};
use serde_json::{Value, json};

/// What has to happen at all may take so long on a machine that does other things.
const PATIENT: Duration = Duration::from_secs(240);

const PAUSE: Duration = Duration::from_millis(200);

static PLANE: OnceLock<Mutex<LocalControlPlane>> = OnceLock::new();

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.one_at_a_time();
    let missing = trials.lacking("roll-outs", || control_plane::program().err());
    if trials.run_at_all() && missing.is_none() {
        // On the main thread, with which its programs end.
        let plane = LocalControlPlane::start(control_plane::program().expect("it was there"));
        plane.must(&["apply", "--filename", "-"], &manifests());
        let _ = PLANE.set(Mutex::new(plane));
    }
    let tests: [(&'static str, fn()); 26] = [
        ("a_model_reaches_all_nodes_in_waves_after_its_canary", waves),
        ("a_change_that_cuts_a_node_off_is_taken_back_and_stops_the_wave", cut_off),
        ("one_node_that_refuses_keeps_all_from_being_touched", refused),
        ("a_paused_roll_out_begins_nothing", paused),
        ("a_budget_that_never_yields_has_the_change_called_off", drained::budget),
        ("pods_of_daemon_sets_with_vanishing_vfs_are_evicted_too", drained::daemon_set),
        ("a_node_is_drained_as_a_whole_and_takes_pods_again", drained::whole_node),
        ("a_budget_that_never_yields_leaves_no_node_cordoned", drained::budget_of_whole_node),
        ("a_controller_that_is_killed_all_the_time_does_no_harm", controller_killed),
        ("an_agent_that_is_killed_ends_in_confirmed_or_as_before", agent_killed),
        ("a_roll_out_goes_on_when_the_api_server_comes_back", api_server_away),
        (
            "a_node_says_when_its_last_change_was_for_another_model_and_when_no_machine_selects_it",
            another_model,
        ),
        ("vfs_that_a_change_makes_are_published_when_it_is_confirmed", made_vfs),
        ("vfs_that_a_change_took_away_are_offered_to_nobody_until_they_are_seen_to_be_gone", taken_vfs),
        ("a_granted_change_of_a_node_that_no_machine_selects_any_more_lapses", granted_and_left),
        ("a_damaged_note_of_a_change_keeps_vfs_back_until_it_is_removed", damaged_note),
        ("a_sriov_node_that_is_removed_during_a_change_is_made_anew_with_its_result", lost::removed_record),
        (
            "a_node_that_has_not_begun_is_told_no_more_when_the_roll_out_is_paused",
            lost::paused_before_it_began,
        ),
        ("what_an_agent_said_before_kubelet_told_of_this_start_is_taken_back", lost::acquitted),
        (
            "an_agent_may_write_the_record_of_its_own_node_alone_and_not_what_it_is_told",
            fenced::own_record_alone,
        ),
        ("the_controller_may_cordon_nodes_and_write_nothing_else_of_them", fenced::cordons_alone),
        ("a_second_agent_on_a_machine_says_so_and_ends", second_agent),
        (
            "a_node_that_is_reset_in_the_middle_of_a_change_says_what_became_of_it",
            faults::reset_in_the_middle,
        ),
        ("a_cluster_that_has_gone_back_gets_its_nodes_to_the_model_that_it_has", faults::etcd_restored),
        (
            "a_change_is_taken_back_and_told_when_the_api_server_was_away_for_long",
            faults::api_server_away_for_long,
        ),
        ("a_machine_of_a_newer_kind_changes_no_node_and_says_so", faults::newer_kind),
    ];
    trials.add(&missing, tests);
    let in_pods: [(&'static str, fn()); 1] =
        [("the_controller_of_the_deployment_brings_a_model_to_a_node", deployed::runs_in_a_pod)];
    trials.add(&missing.clone().or_else(deployed::lacking), in_pods);
    // It takes minutes, and says what it took: for figures, not for every run.
    let unasked = std::env::var_os(NODES)
        .is_none()
        .then(|| Lack::Machine(format!("{NODES} says of how many nodes it is to be")));
    let large: [(&'static str, fn()); 1] = [("many_nodes_cost_the_controller_little", many_nodes)];
    trials.add(&missing.or(unasked), large);
    trials.run()
}

/// How many nodes the large fleet has.
const NODES: &str = "PENSTOCK_FLEET_NODES";

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_penstock-kubernetes"))
}

fn manifests() -> String {
    let output = program().arg("manifests").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn waves() {
    let fleet = Fleet::started("waves", 5);
    let before = fleet.writes();
    let began = Instant::now();
    fleet.machine(json!({"rollout": {"maxUnavailable": "40%"}}));
    let status = fleet.until("all have it", |status| status["ready"] == 5);
    eprintln!("five nodes, two at a time: {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(condition(&status, "Ready").0, "AllNodesReady");
    assert_eq!(condition(&status, "Degraded").0, "AsExpected");
    let calls = fleet.calls();
    assert_eq!(
        (calls[0].1.as_str(), calls[1].1.as_str()),
        ("begin", "confirmed"),
        "the canary is alone: {calls:?}"
    );
    assert!(fleet.most_at_a_time() <= 2, "{calls:?}");
    let count = |writes: &BTreeMap<String, u64>| writes.get("sriovnodes").copied().unwrap_or(0);
    let written = count(&fleet.writes()) - count(&before);
    eprintln!("{written} writes to 5 SriovNodes, made included");
    assert!(written <= 6 * 5, "{written} writes");
    // Nothing changes, and soon nothing is written any more: what was told last may still be on its way.
    let deadline = Instant::now() + PATIENT;
    loop {
        let idle = fleet.writes();
        thread::sleep(Duration::from_secs(12));
        let now = fleet.writes();
        if now == idle {
            break;
        }
        assert!(Instant::now() < deadline, "{idle:?}, and then {now:?}");
    }
    // Another model. What an agent changes itself it does not tell as drift from the old one.
    let drift = json!({"kind": "watch", "version": 1, "time": "x", "event": "drift", "subject": {"function": "NET0#3"}, "attribute": "vlan",
        "vantage": "host", "wanted": "100", "seen": "200", "outcome": "fail", "best_effort": false, "concerns": []});
    fs::write(fleet.at("waves-0", "drifts"), format!("{drift}\n")).unwrap();
    fs::write(fleet.at("waves-0", "applying"), "3").unwrap();
    fleet.machine(json!({"rollout": {"maxUnavailable": 1}, "model": "nics: {NET0: {vfs: 5}}\n"}));
    fleet.until("all have the new one", |status| status["ready"] == 5 && status["observedGeneration"] != 1);
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dwaves-0";
    let events = fleet.plane.get(events);
    let drifts = events["items"].as_array().unwrap().iter().filter(|event| event["reason"] == "Drift");
    assert_eq!(drifts.count(), 0, "{events}");
}

fn cut_off() {
    let fleet = Fleet::started("cut", 3);
    fs::write(fleet.at("cut-0", "cut"), "").unwrap();
    let began = Instant::now();
    fleet.machine(json!({"rollout": {"maxUnavailable": 3}}));
    let status = fleet.until("the wave stops", |status| condition(status, "Progressing").0 == "Stopped");
    eprintln!("taken back and told after {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(fleet.outcome("cut-0"), "RolledBack");
    let (reason, message) = condition(&status, "Degraded");
    assert_eq!(reason, "NodeFailed");
    assert!(message.starts_with("cut-0: not confirmed, and taken back by the node itself: "), "{message}");
    assert_eq!(
        fleet.calls(),
        [("cut-0".to_owned(), "begin".to_owned()), ("cut-0".to_owned(), "back".to_owned())]
    );
    // What came when is in Events of the machine.
    let deadline = Instant::now() + PATIENT;
    loop {
        let events =
            fleet.plane.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dcut");
        let events = events["items"].as_array().unwrap();
        let told = |reason: &str, kind: &str, words: &str| {
            events.iter().any(|event| {
                event["reason"] == reason
                    && event["type"] == kind
                    && event["message"].as_str().unwrap().contains(words)
            })
        };
        if told("Applying", "Normal", "told to apply the model: cut-0")
            && told("RolledBack", "Warning", "cut-0: not confirmed, and taken back by the node itself")
            && told("Stopped", "Warning", "stopped after 1 failed")
        {
            break;
        }
        assert!(Instant::now() < deadline, "{events:#?}");
        thread::sleep(PAUSE);
    }
    // Nobody else is begun with, until somebody says so.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(fleet.calls().len(), 2);
    fs::remove_file(fleet.at("cut-0", "cut")).unwrap();
    fleet.machine(json!({"rollout": {"maxUnavailable": 3}, "attempt": 1}));
    fleet.until("the second attempt holds", |status| status["ready"] == 3);
}

fn refused() {
    let fleet = Fleet::started("refused", 3);
    fs::write(fleet.at("refused-1", "plan.exit"), "3").unwrap();
    let plan = json!({"kind": "plan", "steps": [{}], "needs_reboot": false, "effects": {"guests": [], "vfs": []},
        "dangers": [{"name": "default-route:eno1", "steps": [1], "lost": "the default route goes over eno1", "way_round": "another NIC"}]});
    fs::write(fleet.at("refused-1", "plan.json"), plan.to_string()).unwrap();
    fleet.machine(json!({}));
    let status = fleet.until("it is refused", |status| condition(status, "Progressing").0 == "Refused");
    assert_eq!(
        condition(&status, "Degraded"),
        (
            "NodeRefused",
            "refused-1: default-route:eno1: the default route goes over eno1; spec.allow names what may be done all the same: default-route:eno1"
        )
    );
    assert_eq!(
        (&status["matched"], &status["planned"], &status["refused"]),
        (&json!(3), &json!(3), &json!(1))
    );
    thread::sleep(Duration::from_secs(3));
    assert!(fleet.calls().is_empty(), "{:?}", fleet.calls());
    fleet.machine(json!({"rollout": {"partial": true}}));
    fleet.until("the others have it", |status| status["ready"] == 2);
    assert!(fleet.calls().iter().all(|(node, _)| node != "refused-1"));
    // Allowed, the same plan is carried out.
    fs::write(fleet.at("refused-1", "plan.exit"), "0").unwrap();
    fleet.machine(json!({"allow": ["default-route:eno1"]}));
    fleet.until("all have it", |status| status["ready"] == 3);
}

fn paused() {
    let fleet = Fleet::started("paused", 2);
    fleet.machine(json!({"rollout": {"pause": true}}));
    let status = fleet.until("all have planned", |status| status["planned"] == 2);
    assert_eq!(condition(&status, "Progressing").0, "Paused");
    thread::sleep(Duration::from_secs(3));
    assert!(fleet.calls().is_empty());
    fleet.machine(json!({}));
    fleet.until("it goes on", |status| status["ready"] == 2);
}

fn controller_killed() {
    let mut fleet = Fleet::started("killing", 4);
    for node in fleet.nodes.clone() {
        fs::write(fleet.at(&node, "applying"), "1").unwrap();
    }
    fleet.machine(json!({"rollout": {"maxUnavailable": 2}}));
    let deadline = Instant::now() + 4 * PATIENT;
    let at_work = |fleet: &Fleet| {
        let log = fs::read_to_string(fleet.directory.path().join("log")).unwrap_or_default();
        log.matches("this controller holds the Lease").count()
    };
    let mut round = 0;
    while fleet.status()["ready"] != 4 {
        // Each one waits until the Lease of the one before has run out: 15 s. Then it is killed from its first write to after its last.
        while at_work(&fleet) <= round && fleet.status()["ready"] != 4 {
            assert!(Instant::now() < deadline, "{:#}", fleet.status());
            thread::sleep(PAUSE);
        }
        thread::sleep(Duration::from_millis(70 * (round as u64 + 1).pow(2) % 2500));
        fleet.kill_controller();
        fleet.start_controller();
        round += 1;
    }
    eprintln!("the controller was killed {round} times");
    assert!(fleet.most_at_a_time() <= 2, "{:?}", fleet.calls());
    assert_eq!(fleet.calls().iter().filter(|(_, what)| what == "begin").count(), 4, "{:?}", fleet.calls());
}

fn agent_killed() {
    let mut fleet = Fleet::started("agent", 1);
    let node = "agent-0".to_owned();
    fs::write(fleet.at(&node, "begin"), "0.5").unwrap();
    fs::write(fleet.at(&node, "applying"), "0.5").unwrap();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0..8u32 {
        let told = fleet.calls().len();
        fleet.machine(
            json!({"attempt": round, "model": format!("nics: {{NET0: {{vfs: {}}}}}\n", round % 7 + 1)}),
        );
        // From before `apply` to after `confirm`.
        let deadline = Instant::now() + PATIENT;
        while fleet.record(&node)["status"]["result"]["outcome"] != "Applying" && fleet.calls().len() == told
        {
            assert!(Instant::now() < deadline, "{:#}", fleet.record(&node));
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(Duration::from_millis(u64::from(round) * 350));
        fleet.kill_agent(&node);
        fleet.start_agent(&node);
        let hash = |fleet: &Fleet| fleet.status()["hash"].as_str().unwrap_or_default().to_owned();
        let deadline = Instant::now() + PATIENT;
        let outcome = loop {
            let record = fleet.record(&node);
            let result = &record["status"]["result"];
            let ended = result["hash"] == hash(&fleet)
                && !["Applying", ""].contains(&result["outcome"].as_str().unwrap_or(""));
            if ended && record["spec"]["change"]["hash"] == result["hash"] {
                break result["outcome"].as_str().unwrap().to_owned();
            }
            assert!(Instant::now() < deadline, "{record:#}");
            thread::sleep(PAUSE);
        };
        let phase = fs::read_to_string(fleet.at(&node, "phase")).unwrap_or_else(|_| "nothing\n".to_owned());
        match outcome.as_str() {
            "Verified" => assert_eq!(phase.trim(), "applied"),
            "RolledBack" | "Failed" => assert_eq!(phase.trim(), "nothing"),
            other => panic!("{other}, {:#}", fleet.record(&node)),
        }
        *seen.entry(outcome).or_default() += 1;
    }
    eprintln!("ended in {seen:?}");
}

fn api_server_away() {
    let fleet = Fleet::started("away", 3);
    for node in &fleet.nodes {
        fs::write(fleet.at(node, "applying"), "2").unwrap();
    }
    fleet.machine(json!({"rollout": {"maxUnavailable": 1, "confirmWithin": "2m"}}));
    let deadline = Instant::now() + PATIENT;
    while fleet.calls().is_empty() {
        assert!(Instant::now() < deadline, "{:#}", fleet.status());
        thread::sleep(PAUSE);
    }
    fleet.plane.stop_api_server();
    thread::sleep(Duration::from_secs(8));
    fleet.plane.start_api_server();
    fleet.until("all have it", |status| status["ready"] == 3);
    assert!(fleet.most_at_a_time() <= 1, "{:?}", fleet.calls());
}

/// What a node says of a change is of the model that it has now, and its plan is of a machine that selects it.
fn another_model() {
    let fleet = Fleet::started("other", 1);
    let of_node = |what: &str, wanted: &dyn Fn(&Value) -> bool| {
        fleet.until_record("other-0", what, |record| wanted(&record["status"]))["status"].clone()
    };
    let reason =
        |kind: &'static str, reason: &'static str| move |status: &Value| condition(status, kind).0 == reason;
    fleet.machine(json!({}));
    of_node("it has the model", &reason("Verified", "Verified"));
    fleet.machine(json!({"rollout": {"pause": true}, "model": "nics: {NET0: {vfs: 5}}\n"}));
    let status = of_node("it has another model", &reason("Verified", "AnotherModel"));
    assert_eq!(condition(&status, "Applied").0, "AnotherModel");
    assert_eq!(condition(&status, "Planned").0, "Planned");
    assert_eq!(status["result"]["outcome"], "Verified", "what the last change came to is still told");
    assert!(condition(&status, "Applied").1.contains("the last change was for another model: Verified"));

    fleet.label("other-0", "none");
    let status = of_node("no machine selects it", &reason("Planned", "NoMachine"));
    assert!(status["plan"].is_null(), "{status:#}");
    assert_eq!(condition(&status, "Applied").0, "Verified", "what was applied last stays");
    fleet.label("other-0", "other");
    of_node("it is selected again", &reason("Planned", "Planned"));
    fleet.machine(json!({"rollout": {"pause": false}, "model": "nics: {NET0: {vfs: 5}}\n"}));
    of_node("it has the other model", &reason("Verified", "Verified"));
}

/// Also where the agent is started anew in the middle.
fn made_vfs() {
    let mut fleet = Fleet::new("made", 1);
    fleet.rescan = 1;
    let node = "made-0".to_owned();
    let with_vfs = recorded();
    let mut without = recorded();
    for pf in without.pfs.iter_mut().filter_map(|pf| pf.sriov.as_mut()) {
        pf.vfs.clear();
        pf.num_vfs = 0;
    }
    let write = |name: &str, inventory: &Inventory| {
        fs::write(fleet.at(&node, name), serde_json::to_vec(inventory).unwrap()).unwrap();
    };
    write("scan.json", &without);
    write("made.json", &with_vfs);
    fs::write(fleet.at(&node, "applying"), "20").unwrap();
    fleet.start_agent(&node);
    fleet.start_controller();
    fleet.machine(json!({"rollout": {"confirmWithin": "2m"}}));
    let deadline = Instant::now() + PATIENT;
    let mut killed = false;
    loop {
        let devices = fleet.devices(&node).len();
        let calls = fleet.calls();
        let did = |what: &str| calls.iter().any(|(_, call)| call == what);
        assert!(devices == 0 || did("confirmed"), "published before the change was confirmed: {calls:?}");
        if devices > 0 {
            break;
        }
        if did("begin") && !killed {
            // It would have seen them by now.
            thread::sleep(Duration::from_secs(3));
            if fleet.devices(&node).is_empty() {
                fleet.kill_agent(&node);
                fleet.start_agent(&node);
                killed = true;
            }
        }
        assert!(Instant::now() < deadline, "{:#}", fleet.record(&node));
        thread::sleep(PAUSE);
    }
    assert!(killed, "they came before it was looked");
}

/// Also where the look at the machine takes its time.
fn taken_vfs() {
    let fleet = Fleet::started("taken", 1);
    let mut fewer = recorded();
    fewer.pfs[0].sriov.as_mut().unwrap().vfs.remove(0);
    let deadline = Instant::now() + PATIENT;
    while fleet.devices("taken-0").is_empty() {
        assert!(Instant::now() < deadline, "nothing is published");
        thread::sleep(PAUSE);
    }
    fleet.takes_a_vf("taken-0");
    fs::write(fleet.at("taken-0", "made.json"), serde_json::to_vec(&fewer).unwrap()).unwrap();
    fs::write(fleet.at("taken-0", "scanning"), "4").unwrap();
    fleet.machine(json!({}));
    loop {
        let confirmed = fleet.calls().iter().any(|(_, call)| call == "confirmed");
        match fleet.published_vf("taken-0") {
            None => break,
            Some(device) => assert!(
                !confirmed || device["taints"].to_string().contains("penstock.dev/rollout"),
                "it is offered: {device:#}"
            ),
        }
        assert!(Instant::now() < deadline, "{:#}", fleet.record("taken-0"));
        thread::sleep(Duration::from_millis(50));
    }
    assert!(fleet.calls().iter().any(|(_, call)| call == "confirmed"), "it went before the change");
}

fn granted_and_left() {
    let fleet = Fleet::started("granted", 1);
    // Another run is at work, so that the agent does not begin.
    fleet.machine(json!({"rollout": {"pause": true}}));
    fleet.until("it has planned", |status| status["planned"] == 1);
    fs::write(fleet.at("granted-0", "plan.exit"), "9").unwrap();
    fleet.machine(json!({"rollout": {"pause": false}, "drain": {"mode": "node"}}));
    let node = || fleet.plane.get("/api/v1/nodes/granted-0");
    fleet.until_record("granted-0", "it is told to go", |record| record["spec"]["change"]["stage"] == "Go");
    assert_eq!(node()["spec"]["unschedulable"], true);
    fleet.label("granted-0", "none");
    let lapsed = |record: &Value| record["status"]["result"]["outcome"] == "Lapsed";
    fleet.until_record("granted-0", "the change lapses", lapsed);
    let deadline = Instant::now() + PATIENT;
    while node()["spec"]["unschedulable"] == true {
        assert!(Instant::now() < deadline, "it stays cordoned: {:#}", node());
        thread::sleep(PAUSE);
    }
    assert!(fleet.calls().is_empty(), "{:?}", fleet.calls());
    let _ = fleet.plane.api().request("DELETE", "/api/v1/nodes/granted-0", None);
}

fn damaged_note() {
    let mut fleet = Fleet::new("damaged", 1);
    let node = "damaged-0";
    for directory in ["state", "state/rollout"] {
        fs::create_dir(fleet.at(node, directory)).unwrap();
        fs::set_permissions(fleet.at(node, directory), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let note = fleet.at(node, "state/rollout/progress.json");
    fs::write(&note, "{").unwrap();
    fleet.start_agent(node);
    let log = || fs::read_to_string(fleet.directory.path().join("log")).unwrap_or_default();
    let published = || !fleet.devices(node).is_empty();
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENT;
        while !holds() {
            assert!(Instant::now() < deadline, "{what}: {}", log());
            thread::sleep(PAUSE);
        }
    };
    until("it says which file cannot be read", &|| log().contains("progress.json cannot be read"));
    // It would have published them by now.
    thread::sleep(Duration::from_secs(3));
    assert!(!published(), "{}", log());
    fs::remove_file(&note).unwrap();
    until("the VFs are published", &published);
}

fn second_agent() {
    let mut fleet = Fleet::new("second", 1);
    fleet.start_agent("second-0");
    let lock = fleet.at("second-0", "state/rollout/lock");
    let deadline = Instant::now() + PATIENT;
    while !lock.exists() {
        assert!(Instant::now() < deadline, "the agent does not begin");
        thread::sleep(PAUSE);
    }
    thread::sleep(Duration::from_secs(1));
    let output = fleet.agent("second-0").stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("another agent"), "{said}");
}

/// Memory in KiB and CPU time in clock ticks (1/100 s) of a process: its largest resident set so far, what is resident now, and the time.
fn cost(process: u32) -> (u64, u64, u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    (field("VmHWM:"), field("VmRSS:"), ticks(11) + ticks(12))
}

fn many_nodes() {
    let count: usize = std::env::var(NODES).unwrap().parse().unwrap();
    let mut fleet = Fleet::new("many", 0);
    let nodes: Vec<String> = (0..count).map(|index| format!("many-{index:04}")).collect();
    let kubeconfig = fleet.plane.path("kubeconfig");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime()
        .block_on(async { simulated::make(&simulated::client(&kubeconfig).await, &nodes, "many").await });
    fleet.start_controller();
    let controller = fleet.controller.as_ref().unwrap().id();
    thread::sleep(Duration::from_secs(10));
    let before = fleet.writes();
    let rollout = json!({"rollout": {"maxUnavailable": 50, "confirmWithin": "30s"}, "drain": {"timeout": "10s"},
        "model": "nics: {NET0: {vfs: 4}}\n", "nodeSelector": {"fleet": "many"}});
    let spec = serde_json::from_value(rollout.clone()).unwrap();
    let began = Instant::now();
    fleet.machine(rollout);
    let (told, names) = (kubeconfig.clone(), nodes.clone());
    thread::spawn(move || {
        runtime()
            .block_on(async { simulated::agents(simulated::client(&told).await, names, spec, None).await });
    });
    let status = fleet.until("all have planned", |status| status["planned"] == count);
    eprintln!("{count} nodes have planned after {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(status["failed"], 0);
    let deadline = Instant::now() + 4 * PATIENT;
    while fleet.status()["ready"] != count {
        assert!(Instant::now() < deadline, "{:#}", fleet.status());
        thread::sleep(Duration::from_secs(1));
    }
    let took = began.elapsed();
    let after = fleet.writes();
    let (peak, resident, ticks) = cost(controller);
    eprintln!(
        "a roll-out to {count} nodes, 50 at a time: {:.1} s, of which the controller computed {:.1} s",
        took.as_secs_f64(),
        ticks as f64 / 100.0
    );
    for resource in ["sriovnodes", "sriovmachines"] {
        let written = after.get(resource).unwrap_or(&0) - before.get(resource).unwrap_or(&0);
        eprintln!("writes of {resource}: {written}, {:.2} a node", written as f64 / count as f64);
    }
    eprintln!("controller: at most {:.1} MB, now {:.1} MB", peak as f64 / 1024.0, resident as f64 / 1024.0);
    thread::sleep(Duration::from_secs(5));
    let (idle, writes) = (cost(controller).2, fleet.writes());
    thread::sleep(Duration::from_secs(60));
    let idle = cost(controller).2 - idle;
    eprintln!("idle: {:.2} % of a core", idle as f64 / 60.0);
    assert_eq!(fleet.writes(), writes, "nothing changes, and nothing is written");
    let written = after["sriovnodes"] - before.get("sriovnodes").unwrap_or(&0);
    assert!(written <= 6 * count as u64);
    assert!(peak <= 80 << 10, "{peak} KiB");
    assert!(idle <= 60, "{idle} ticks in 60 s");
}
