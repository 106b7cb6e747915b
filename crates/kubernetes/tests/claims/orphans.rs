//! Claims whose end kubelet never asks for.

use super::*;

pub fn forgotten() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        let pace = OrphanSettings { every: Duration::from_millis(20), grace: Duration::from_millis(20) };
        let agent = Agent::serve_with(&machine, objects.clone(), pace).await;
        let until = async |what: &str, holds: &dyn Fn() -> bool| {
            let began = tokio::time::Instant::now();
            while !holds() {
                assert!(began.elapsed() < SOON, "{what}: {:?}", machine.files());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let looked_at_again = async || {
            let before = *objects.asked.lock().unwrap();
            until("it is looked at", &|| *objects.asked.lock().unwrap() > before + 5).await;
        };
        let is_prepared = |uid: &str| machine.files().contains(&format!("state/claims/{uid}.json"));
        let forget = |uid: &str, change: fn(&mut ResourceClaim)| {
            let mut claims = objects.claims.lock().unwrap();
            change(
                claims.iter_mut().find(|claim| claim.metadata.name == Some(format!("claim-{uid}"))).unwrap(),
            );
        };
        type Change = fn(&mut ResourceClaim);
        let cases: [(&str, Change); 4] = [
            ("gone", |claim| claim.metadata.name = Some("other".to_owned())),
            ("anew", |claim| claim.metadata.uid = Some("another".to_owned())),
            ("deallocated", |claim| claim.status.as_mut().unwrap().allocation = None),
            ("unreserved", |claim| claim.status.as_mut().unwrap().reserved_for = None),
        ];
        for (uid, change) in cases {
            objects.claims.lock().unwrap().push(claim(uid, "net0-0", json!({})));
            assert_eq!(agent.prepare(uid).await.error, "");
            // A pod may run with it.
            looked_at_again().await;
            assert!(is_prepared(uid), "{uid}");
            // Nobody says that none can.
            *objects.away.lock().unwrap() = true;
            forget(uid, change);
            looked_at_again().await;
            assert!(is_prepared(uid), "{uid}");
            *objects.away.lock().unwrap() = false;
            until(uid, &|| machine.files().is_empty()).await;
            assert!(machine.log().contains(&format!("GC {uid}\n")), "{}", machine.log());
            // Kubelet may ask after all.
            assert_eq!(agent.unprepare(uid).await, "");
        }
        // Its pod was deleted by force, and runs: this program lives in its namespace.
        objects.claims.lock().unwrap().push(claim("forced", "net0-0", json!({})));
        assert_eq!(agent.prepare("forced").await.error, "");
        let namespace = penstock_host::NetworkNamespace::current().unwrap().identity().unwrap();
        let mut record = AttachRecord {
            format: AttachRecord::FORMAT,
            namespace,
            netns: "/nowhere".into(),
            attached: Some(json!({})),
            failure: None,
            at: "2026-01-01T00:00:00Z".to_owned(),
        };
        let (records, uid) = (AttachStore::open(&machine.path("run")).unwrap(), "forced".parse().unwrap());
        records.write(&uid, "net0-0", &record).unwrap();
        forget("forced", |claim| claim.status.as_mut().unwrap().reserved_for = None);
        looked_at_again().await;
        assert!(is_prepared("forced"));
        let is_told = || objects.told.lock().unwrap().iter().any(|event| event["reason"] == "ClaimGone");
        until("the pod is told", &is_told).await;
        for _ in 0..3 {
            looked_at_again().await;
        }
        let told = objects.told.lock().unwrap().clone();
        assert_eq!(told.iter().filter(|event| event["reason"] == "ClaimGone").count(), 1, "{told:?}");
        record.namespace = (0, 0);
        records.write(&uid, "net0-0", &record).unwrap();
        until("it has ended", &|| machine.files().is_empty()).await;
        // One that cannot be taken back stays written down, and is tried again.
        objects.claims.lock().unwrap().push(claim("busy", "net0-0", json!({})));
        assert_eq!(agent.prepare("busy").await.error, "");
        machine.refuses(Some("the VF is busy"));
        forget("busy", |claim| claim.metadata.name = Some("other".to_owned()));
        looked_at_again().await;
        assert!(is_prepared("busy"));
        machine.refuses(None);
        until("it is not busy any more", &|| machine.files().is_empty()).await;
        agent.end().await;
    })
}
