//! What is told on claims that cannot be prepared.

use super::*;

/// The conditions of the devices of what was told of a claim.
fn conditions(told: &Value) -> Vec<Value> {
    let devices = told["status"]["devices"].as_array().unwrap();
    devices.iter().map(|device| device["conditions"][0].clone()).collect()
}

pub fn is_told_on_the_claim() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        let agent = Agent::serve(&machine, objects.clone()).await;
        let told = || objects.told.lock().unwrap().split_off(0);
        // As the API server keeps it.
        let keep = |told: &Value| {
            let devices = serde_json::from_value(told["status"]["devices"].clone()).unwrap();
            let name = told["metadata"]["name"].as_str().map(str::to_owned);
            let mut claims = objects.claims.lock().unwrap();
            let claim = claims.iter_mut().find(|claim| claim.metadata.name == name).unwrap();
            claim.status.as_mut().unwrap().devices = Some(devices);
        };
        let refuse = async |uid: &str, words: &str| {
            assert!(agent.prepare(uid).await.error.contains(words), "{words}");
            let told = told();
            assert_eq!(told.len(), 1, "{words}: {told:?}");
            let condition = conditions(&told[0]).remove(0);
            let message = condition["message"].as_str().unwrap();
            assert!(
                message.contains("could not be made ready for the pod") && message.contains(words),
                "{message}"
            );
            assert_eq!(
                (&condition["status"], &condition["reason"]),
                (&json!("False"), &json!("NotPrepared"))
            );
            keep(&told[0]);
        };
        for (device, parameters, words) in [
            ("net0-2", json!({}), "there is no PCI function 0000:01:10.4 any more"),
            ("net0-9", json!({}), "this node has no device net0-9"),
            ("net0-1", json!({}), "has the driver vfio-pci"),
            ("net0-0", json!({"vlna": 1}), "\"vlan\" is one"),
        ] {
            *objects.claims.lock().unwrap() = vec![claim("u-1", device, parameters)];
            refuse("u-1", words).await;
            // Kubelet asks again and again.
            assert!(agent.prepare("u-1").await.error.contains(words));
            assert_eq!(told(), [json!(null); 0], "{words}");
        }
        *objects.claims.lock().unwrap() = ["u-1", "u-2"].map(|uid| claim(uid, "net0-0", json!({}))).to_vec();
        *objects.host_network.lock().unwrap() = true;
        refuse("u-1", "pod default/pod has hostNetwork").await;
        *objects.host_network.lock().unwrap() = false;
        // It goes back: nothing is told of its devices until a container comes to them.
        assert_eq!(agent.prepare("u-1").await.error, "");
        let back = told();
        assert_eq!(back.len(), 1, "{back:?}");
        assert_eq!(back[0]["status"]["devices"], json!([]));
        keep(&back[0]);
        assert_eq!(agent.prepare("u-1").await.error, "");
        assert_eq!(told(), [json!(null); 0]);
        refuse("u-2", "is prepared for claim default/claim-u-1").await;
        // A pod has what another pod cannot have: nothing is wrong with the claim.
        *objects.host_network.lock().unwrap() = true;
        assert!(agent.prepare("u-1").await.error.contains("hostNetwork"));
        assert_eq!(told(), [json!(null); 0]);
        *objects.host_network.lock().unwrap() = false;
        assert_eq!(agent.unprepare("u-1").await, "");
        // Somebody else has it.
        let interface = machine.path("root/sys/bus/pci/devices/0000:01:10.0/net/vf0");
        fs::remove_dir_all(&interface).unwrap();
        refuse("u-2", "has no interface on the host").await;
        fs::create_dir_all(&interface).unwrap();
        // What the API server does not say is no word on a claim.
        *objects.away.lock().unwrap() = true;
        assert!(agent.prepare("u-2").await.error.contains("reach the API server"));
        *objects.away.lock().unwrap() = false;
        assert_eq!(told(), [json!(null); 0]);
        assert_eq!(agent.prepare("u-2").await.error, "");
        assert_eq!(told()[0]["status"]["devices"], json!([]));
        agent.end().await;
    })
}

pub fn for_another_machine() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        objects.claims.lock().unwrap().push(claim("u-1", "net0-0", json!({})));
        let agent = Agent::serve(&machine, objects.clone()).await;
        agent.node_host.send_replace(NodeHost::AnotherMachine);
        let error = agent.prepare("u-1").await.error;
        assert!(error.contains("the Node node-1 is another machine"), "{error}");
        assert_eq!((machine.log(), machine.files()), (String::new(), Vec::new()));
        assert_eq!(*objects.told.lock().unwrap(), [json!(null); 0]);
        // An agent that was just started waits until it knows.
        agent.node_host.send_replace(NodeHost::Unknown);
        let (prepared, ()) = tokio::join!(agent.prepare("u-1"), async {
            tokio::task::yield_now().await;
            agent.node_host.send_replace(NodeHost::ThisMachine);
        });
        assert_eq!(prepared.error, "");
        // What was prepared is taken back wherever the Node is.
        agent.node_host.send_replace(NodeHost::AnotherMachine);
        assert_eq!((agent.unprepare("u-1").await.as_str(), machine.files()), ("", Vec::new()));
        agent.end().await;
    })
}
