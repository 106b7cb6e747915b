//! What kubelet and pods are told.

use penstock_kubernetes::claim::state::{PodReference, PodRefusal};

use super::*;

/// Tells the agent of the claim `u-1` that a hook has run.
pub fn wake(machine: &Machine) {
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    socket.send_to(b"u-1", machine.path("run/agent.sock")).unwrap();
}

/// What hooks and the agent have written down.
fn stores(machine: &Machine) -> (AttachStore, ClaimStore) {
    (AttachStore::open(&machine.path("run")).unwrap(), ClaimStore::open(&machine.path("state")).unwrap())
}

/// The container of the pod asks for `vf`, and the scheduler took the second of its alternatives.
pub fn a_request_of_alternatives() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        let mut claim = claim("u-1", "net0-0", json!({}));
        let allocation = claim.status.as_mut().unwrap().allocation.as_mut().unwrap();
        allocation.devices.as_mut().unwrap().results.as_mut().unwrap()[0].request = "vf/fast".to_owned();
        objects.claims.lock().unwrap().push(claim);
        let agent = Agent::serve(&machine, objects).await;
        let answer = agent.prepare("u-1").await;
        assert_eq!(
            (answer.error.as_str(), answer.devices[0].request_names.as_slice()),
            ("", &["vf".to_owned()][..])
        );
        let store = ClaimStore::open(&machine.path("state")).unwrap();
        assert_eq!(store.read(&"u-1".parse().unwrap()).unwrap().unwrap().devices[0].requests, ["vf/fast"]);
        let metadata = fs::read(machine.path("state/metadata/u-1/vf.json")).unwrap();
        let metadata: Value = serde_json::from_slice(&metadata).unwrap();
        assert_eq!(metadata["requests"][0]["name"], "vf/fast");
        agent.end().await;
    })
}

pub fn a_device_that_no_container_asks_for() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        objects.claims.lock().unwrap().push(claim("u-1", "net0-0", json!({})));
        *objects.of_pods.lock().unwrap() = json!({
            "containers": [{"name": "c"}], "resourceClaims": [{"name": "nic", "resourceClaimName": "claim-u-1"}],
        });
        let agent = Agent::serve(&machine, objects.clone()).await;
        assert_eq!(agent.prepare("u-1").await.error, "");
        until("the pod is told", || !objects.told.lock().unwrap().is_empty()).await;
        let told = objects.told.lock().unwrap().split_off(0);
        assert_eq!(
            (&told[0]["reason"], &told[0]["involvedObject"]["uid"]),
            (&json!("ClaimUnused"), &json!("p-1"))
        );
        assert!(told[0]["message"].as_str().unwrap().contains("no container has it"), "{told:?}");
        assert_eq!(told.len(), 1);
        agent.end().await;
    })
}

pub fn a_refusal_is_told_once() -> Outcome {
    run(async {
        let machine = Machine::new();
        let (agent, objects) = Agent::with_a_claim(&machine).await;
        let uid = "u-1".parse().unwrap();
        let records = AttachStore::open(&machine.path("run")).unwrap();
        let pod = PodReference { name: "second".to_owned(), uid: "p-2".to_owned() };
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        for (at, count) in [(now.as_str(), 1), ("2026-01-01T00:00:00Z", 0)] {
            let why = "another pod of the claim has the VF".to_owned();
            let refusal =
                PodRefusal { format: PodRefusal::FORMAT, pod: Some(pod.clone()), why, at: at.to_owned() };
            records.write_refusal(&uid, "net0-0", Some(&refusal)).unwrap();
            wake(&machine);
            until("it is forgotten", || records.refusal(&uid, "net0-0").unwrap().is_none()).await;
            let told = objects.told.lock().unwrap().split_off(0);
            assert_eq!(told.len(), count, "{at}: {told:?}");
            assert!(told.iter().all(|event| event["involvedObject"]["uid"] == "p-2"), "{told:?}");
        }
        agent.end().await;
    })
}

pub fn beside_one_that_cannot_be_read() -> Outcome {
    run(async {
        let machine = Machine::new();
        let (agent, objects) = Agent::with_a_claim(&machine).await;
        agent.end().await;
        let record = failed_hook();
        let records = AttachStore::open(&machine.path("run")).unwrap();
        records.write(&"u-1".parse().unwrap(), "net0-0", &record).unwrap();
        fs::write(machine.path("state/claims/u-0.json"), "{").unwrap();
        // Nor does one that is read later.
        let store = ClaimStore::open(&machine.path("state")).unwrap();
        let mut later = store.read(&"u-1".parse().unwrap()).unwrap().unwrap();
        (later.uid, later.name) = ("u-00".parse().unwrap(), "claim-u-00".to_owned());
        records.write(&later.uid, "net0-0", &record).unwrap();
        let file = machine.path("state/claims/u-00.json");
        fs::create_dir(&file).unwrap();
        let agent = Agent::serve(&machine, objects.clone()).await;
        let told = |name: &str| objects.told.lock().unwrap().iter().any(|of| of["metadata"]["name"] == name);
        until("the other claim is told", || told("claim-u-1")).await;
        assert!(!told("claim-u-00"));
        fs::remove_dir(&file).unwrap();
        store.write(&later).unwrap();
        until("it is looked at again", || told("claim-u-00")).await;
        agent.end().await;
    })
}

/// Longer than a socket's queue is.
pub fn hooks_that_run_meanwhile() -> Outcome {
    run(async {
        let machine = Machine::new();
        let (agent, objects) = Agent::with_a_claim(&machine).await;
        let uid = "u-1".parse().unwrap();
        let records = AttachStore::open(&machine.path("run")).unwrap();
        records.write(&uid, "net0-0", &failed_hook()).unwrap();
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        let wake = |uid: &str| socket.send_to(uid.as_bytes(), machine.path("run/agent.sock")).is_ok();
        let slow = objects.slow.clone().write_owned().await;
        assert!(wake("u-1"));
        let telling = || *objects.telling.lock().unwrap();
        until("it is told", || telling() == 1).await;
        let room: usize =
            fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap().trim().parse().unwrap();
        for _ in 0..=2 * room {
            until("the agent listens", || wake("u-9")).await;
        }
        until("the agent listens", || wake("u-1")).await;
        assert_eq!(telling(), 1);
        drop(slow);
        until("it is told of the hook that has run meanwhile", || telling() == 2).await;
        agent.end().await;
    })
}

pub fn what_hooks_have_written() -> Outcome {
    run(async {
        let machine = Machine::new();
        let (agent, objects) = Agent::with_a_claim(&machine).await;
        let uid = "u-1".parse().unwrap();
        let told = async |count: usize| {
            let began = tokio::time::Instant::now();
            while objects.told.lock().unwrap().len() < count {
                assert!(began.elapsed() < SOON, "{:?}", objects.told.lock().unwrap());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            objects.told.lock().unwrap().split_off(0)
        };
        let wake = || {
            let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
            socket.send_to(b"u-1", machine.path("run/agent.sock")).unwrap();
            // Of nobody, and no UID at all.
            socket.send_to(b"u-9", machine.path("run/agent.sock")).unwrap();
            socket.send_to(b"../../x\xff", machine.path("run/agent.sock")).unwrap();
        };
        let mut record = failed_hook();
        let records = AttachStore::open(&machine.path("run")).unwrap();
        records.write(&uid, "net0-0", &record).unwrap();
        wake();
        let failed = told(2).await;
        let condition = &failed[0]["status"]["devices"][0]["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("AttachFailed")));
        assert_eq!(failed[1]["involvedObject"]["name"], "pod");
        // It was given, and is not there: the script's CHECK holds, but there is no namespace.
        record.failure = None;
        record.attached = Some(json!({}));
        records.write(&uid, "net0-0", &record).unwrap();
        wake();
        let differs = told(1).await;
        assert_eq!(differs[0]["status"]["devices"][0]["conditions"][0]["reason"], "Differs");
        // An agent that was not there when the hook ran tells it when it starts.
        agent.end().await;
        let agent = Agent::serve(&machine, objects.clone()).await;
        assert_eq!(told(1).await.len(), 1);
        agent.end().await;
        let store = ClaimStore::open(&machine.path("state")).unwrap();
        assert!(store.read(&uid).unwrap().is_some());
    })
}

pub fn what_could_not_be_looked_at() -> Outcome {
    run(async {
        let machine = Machine::new();
        let (agent, objects) = Agent::with_a_claim(&machine).await;
        let uid = "u-1".parse().unwrap();
        let (records, store) = stores(&machine);
        let record = AttachRecord { failure: None, attached: Some(json!({})), ..failed_hook() };
        records.write(&uid, "net0-0", &record).unwrap();
        let wake = || wake(&machine);
        let looks = || machine.log().matches("CHECK u-1").count();
        let told = || objects.told.lock().unwrap().clone();
        // The plugin does not come to an answer.
        let dies = machine.path("bin/dies-CHECK");
        fs::write(&dies, "").unwrap();
        wake();
        // What differs is looked at twice before it is told.
        until("it is looked at again", || looks() >= 3).await;
        assert_eq!(told(), [json!(null); 0]);
        fs::remove_file(dies).unwrap();
        // There is no such namespace.
        until("it is told", || !told().is_empty()).await;
        assert_eq!(told()[0]["status"]["devices"][0]["conditions"][0]["reason"], "Differs");
        assert_eq!(objects.told.lock().unwrap().split_off(0).len(), 1);
        // While the claim's end is at it, it differs, and is nobody's.
        let (lock, before) = (records.lock(&uid, Duration::ZERO).unwrap(), looks());
        wake();
        until("it is looked at again", || looks() >= before + 2).await;
        assert_eq!(told(), [json!(null); 0]);
        store.remove(&uid).unwrap();
        records.unlock(&uid, lock).unwrap();
        let (asked, telling) = (looks(), *objects.telling.lock().unwrap());
        wake();
        agent.end().await;
        assert!(looks() <= asked + 1 && *objects.telling.lock().unwrap() == telling);
        assert_eq!(told(), [json!(null); 0]);
    })
}

pub fn beside_a_device_that_could_not_be_looked_at() -> Outcome {
    run(async {
        let machine = Machine::new();
        let (agent, objects) = Agent::with_a_claim(&machine).await;
        let uid = "u-1".parse().unwrap();
        let (records, store) = stores(&machine);
        let mut prepared = store.read(&uid).unwrap().unwrap();
        let mut second = prepared.devices[0].clone();
        second.device = "net0-1".to_owned();
        prepared.devices.push(second);
        store.write(&prepared).unwrap();
        // What the plugin does not come to an answer about was told to be fine before.
        let former = json!({"driver": DRIVER, "pool": "node-1", "device": "net0-0", "conditions": [{
            "type": "Ready", "status": "True", "reason": "Attached", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        objects.claims.lock().unwrap()[0].status.as_mut().unwrap().devices =
            serde_json::from_value(json!([former])).unwrap();
        fs::write(machine.path("bin/dies-CHECK"), "").unwrap();
        let attached = AttachRecord { failure: None, attached: Some(json!({})), ..failed_hook() };
        records.write(&uid, "net0-1", &failed_hook()).unwrap();
        records.write(&uid, "net0-0", &attached).unwrap();
        wake(&machine);
        until("both are told of", || objects.told.lock().unwrap().len() >= 2).await;
        let told = objects.told.lock().unwrap().clone();
        let reasons = [0, 1].map(|device| {
            let device = &told[0]["status"]["devices"][device];
            (device["device"].clone(), device["conditions"][0]["reason"].clone())
        });
        let wanted = [("net0-0", "Attached"), ("net0-1", "AttachFailed")];
        assert_eq!(reasons, wanted.map(|(device, reason)| (json!(device), json!(reason))));
        assert_eq!((&told[1]["kind"], &told[1]["reason"]), (&json!("Event"), &json!("AttachFailed")));
        agent.end().await;
    })
}
