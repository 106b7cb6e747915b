//! Calls that kubelet does not wait for, and claims that cannot be taken back.

use super::*;

pub fn does_nothing_more() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        objects.claims.lock().unwrap().push(claim("u-1", "net0-0", json!({})));
        let agent = Agent::serve(&machine, objects.clone()).await;
        let mut plugin = agent.plugin().await;
        let store = ClaimStore::open(&machine.path("state")).unwrap();
        // Another call is at work, and kubelet hangs up.
        let other = store.lock(Duration::ZERO).unwrap();
        let call = tokio::spawn(async move {
            plugin.node_prepare_resources(NodePrepareResourcesRequest { claims: vec![asked("u-1")] }).await
        });
        until("the call is there", || *objects.asked.lock().unwrap() > 0).await;
        assert_eq!(agent.timings.refused(), 0);
        call.abort();
        // It counts as one that failed.
        until("the call is given up", || agent.timings.refused() == 1).await;
        assert_eq!(agent.unprepare("u-1").await, "");

        // What goes on for it nevertheless finds that nobody waits.
        let caller = CallerWaits::default();
        let claims = machine.claims();
        let allocated =
            allocated(&claim("u-1", "net0-0", json!({})), &"u-1".parse().unwrap(), DRIVER, "node-1").unwrap();
        let worker = {
            let caller = caller.clone();
            std::thread::spawn(move || claims.prepare(&allocated, &devices(), &caller))
        };
        caller.give_up();
        machine.claims().unprepare(&"u-1".parse().unwrap()).unwrap();
        drop(other);
        let error = worker.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("kubelet gave the call up"), "{error}");
        // The abandoned call ends too, before or after this one.
        assert_eq!(agent.prepare("u-1").await.error, "");
        assert_eq!(agent.unprepare("u-1").await, "");
        assert_eq!(machine.files(), [""; 0]);
        assert!(!machine.log().contains("ADD"), "{}", machine.log());
        agent.end().await;
    })
}

pub fn a_record_that_cannot_be_read() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        objects.claims.lock().unwrap().push(claim("u-1", "net0-0", json!({})));
        let agent = Agent::serve(&machine, objects).await;
        assert_eq!(agent.prepare("u-1").await.error, "");
        let records = machine.path("root/run/penstock/cni");
        fs::create_dir_all(&records).unwrap();
        // Of nobody knows whom, but not of this claim's VF; and of another network.
        fs::write(records.join("0000:01:10.4.json"), "{").unwrap();
        fs::write(records.join("0000:01:10.0.json"), r#"{"network": "data"}"#).unwrap();
        assert_eq!(agent.unprepare("u-1").await, "");
        fs::remove_file(records.join("0000:01:10.0.json")).unwrap();
        assert_eq!(agent.prepare("u-1").await.error, "");
        fs::write(records.join("0000:01:10.0.json"), "{").unwrap();
        let error = agent.unprepare("u-1").await;
        assert!(
            error.contains("who has 0000:01:10.0 cannot be read in") && error.contains("remove the file"),
            "{error}"
        );
        assert!(machine.files().contains(&"state/claims/u-1.json".to_owned()));
        fs::remove_file(records.join("0000:01:10.0.json")).unwrap();
        assert_eq!((agent.unprepare("u-1").await, machine.files()), Default::default());
        // Nor does a claim's own file that is damaged keep it.
        assert_eq!(agent.prepare("u-1").await.error, "");
        fs::write(machine.path("state/claims/u-1.json"), "{").unwrap();
        assert_eq!((agent.unprepare("u-1").await, machine.files()), Default::default());
        agent.end().await;
    })
}
