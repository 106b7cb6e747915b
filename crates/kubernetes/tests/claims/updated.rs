//! An agent that is started anew with its programs and directories elsewhere.

use super::*;

pub fn after_an_update() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        objects.claims.lock().unwrap().push(claim("u-1", "net0-0", json!({})));
        let agent = Agent::serve(&machine, objects.clone()).await;
        let first = agent.prepare("u-1").await;
        agent.end().await;
        // As an older agent has left it, which was told of another directory of records.
        let store = ClaimStore::open(&machine.path("state")).unwrap();
        let uid = "u-1".parse().unwrap();
        let mut before = store.read(&uid).unwrap().unwrap();
        (before.penstock, before.run) = ("/opt/old/penstock".into(), machine.path("old-run"));
        store.write(&before).unwrap();
        let cdi = machine.path(&format!("cdi/{DRIVER}-u-1.json"));
        let text = fs::read_to_string(&cdi).unwrap();
        fs::write(&cdi, text.replace("/usr/local/bin", "/opt/old")).unwrap();

        let agent = Agent::serve(&machine, objects.clone()).await;
        agent.plugin().await;
        assert_eq!(fs::read_to_string(&cdi).unwrap(), text);
        let after = store.read(&uid).unwrap().unwrap();
        assert_eq!((&after.penstock, &after.run), (&machine.path("bin/penstock"), &before.run));
        // The pod keeps what it has, and the claim's end waits for the hook where that has the lock.
        assert_eq!((agent.prepare("u-1").await, machine.log().as_str()), (first, "STATUS u-1\n"));
        let records = AttachStore::open(&before.run).unwrap();
        let record = AttachRecord {
            format: AttachRecord::FORMAT,
            namespace: (0, 0),
            netns: "/nowhere".into(),
            attached: Some(json!({})),
            failure: None,
            at: "2026-01-01T00:00:00Z".to_owned(),
        };
        records.write(&uid, "net0-0", &record).unwrap();
        assert_eq!(agent.unprepare("u-1").await, "");
        assert_eq!(fs::read_dir(&before.run).unwrap().count(), 0);
        assert_eq!(machine.files(), [""; 0]);
        agent.end().await;
    })
}
