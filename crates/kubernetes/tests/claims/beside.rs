//! Claims of one node beside each other.

use super::*;

/// Both would have their interface called net1, and neither has one.
pub fn for_programs() -> Outcome {
    run(async {
        let machine = Machine::new();
        machine.iommu(7, 9);
        machine.iommu_of("0000:01:10.2", 8, 10);
        let objects = Objects::default();
        let program = |uid, device| claim(uid, device, json!({"mode": "vfio"}));
        *objects.claims.lock().unwrap() = vec![program("u-1", "net0-0"), program("u-2", "net0-1")];
        let agent = Agent::serve(&machine, objects.clone()).await;
        assert_eq!((agent.prepare("u-1").await.error, agent.prepare("u-2").await.error), Default::default());
        assert_eq!((agent.unprepare("u-1").await, agent.unprepare("u-2").await), Default::default());
        // Within a claim it is the name of an attachment too.
        let mut two = program("u-1", "net0-1");
        let result = |device: &str, request: &str| json!({"driver": DRIVER, "pool": "node-1", "device": device, "request": request});
        let config = |request: &str, parameters: Value| json!({"source": "FromClaim", "requests": [request], "opaque": {"driver": DRIVER, "parameters": parameters}});
        let allocation = json!({"devices": {
            "results": [result("net0-1", "a"), result("net0-0", "b")],
            "config": [config("a", json!({"mode": "vfio"})), config("b", json!({"interface": "net1"}))],
        }});
        two.status.as_mut().unwrap().allocation = serde_json::from_value(allocation).unwrap();
        *objects.claims.lock().unwrap() = vec![two];
        let error = agent.prepare("u-1").await.error;
        assert!(error.contains("net0-0 would be called net1, as that of net0-1"), "{error}");
        agent.end().await;
    })
}

pub fn a_mac_address_of_a_neighbour() -> Outcome {
    run(async {
        let machine = Machine::new();
        machine.iommu(7, 9);
        machine.iommu_of("0000:01:10.2", 8, 10);
        let objects = Objects::default();
        let agent = Agent::serve(&machine, objects.clone()).await;
        let with_mac = |uid, device, mac: &str| claim(uid, device, json!({"mode": "vfio", "mac": mac}));
        *objects.claims.lock().unwrap() = vec![with_mac("u-1", "net0-0", machine::NIC_MAC)];
        let error = agent.prepare("u-1").await.error;
        assert!(error.contains("02:00:00:00:00:f0, which the NIC net0 has"), "{error}");
        let links = penstock_host::Netlink::open().unwrap().links().unwrap();
        // A machine may have no interface but its loopback, or none of which the kernel tells no device: that may be the PF's by its name.
        let of_host = links.iter().find(|link| {
            !link.interface.mac.is_zero() && !link.interface.mac.is_multicast() && link.device.is_none()
        });
        if let Some(link) = of_host {
            let of_function =
                |function| format!("root/sys/bus/pci/devices/{function}/net/{}", link.interface.name);
            // It is the VF's own.
            fs::create_dir_all(machine.path(&of_function("0000:01:10.0"))).unwrap();
            *objects.claims.lock().unwrap() =
                vec![with_mac("u-1", "net0-0", &link.interface.mac.to_string())];
            assert_eq!(agent.prepare("u-1").await.error, "");
            assert_eq!(agent.unprepare("u-1").await, "");
            fs::remove_dir(machine.path(&of_function("0000:01:10.0"))).unwrap();
            fs::create_dir_all(machine.path(&of_function("0000:01:00.0"))).unwrap();
            *objects.claims.lock().unwrap() =
                vec![with_mac("u-1", "net0-0", &link.interface.mac.to_string())];
            let error = agent.prepare("u-1").await.error;
            assert!(error.contains("of the host has"), "{error}");
        }
        assert_eq!(machine.files(), [""; 0]);
        let mac = "02:00:00:00:00:07";
        *objects.claims.lock().unwrap() =
            vec![with_mac("u-1", "net0-0", mac), with_mac("u-2", "net0-1", mac)];
        assert_eq!(agent.prepare("u-1").await.error, "");
        assert_eq!(agent.prepare("u-1").await.error, "", "its own");
        let error = agent.prepare("u-2").await.error;
        assert!(error.contains("which claim default/claim-u-1 (u-1) has"), "{error}");
        assert_eq!(agent.unprepare("u-1").await, "");
        assert_eq!(agent.prepare("u-2").await.error, "");
        assert_eq!(agent.unprepare("u-2").await, "");
        // In another VLAN it is another's.
        let in_vlan =
            |uid, device, vlan| claim(uid, device, json!({"mode": "vfio", "mac": mac, "vlan": vlan}));
        *objects.claims.lock().unwrap() = vec![in_vlan("u-1", "net0-0", 100), in_vlan("u-2", "net0-1", 101)];
        assert_eq!((agent.prepare("u-1").await.error, agent.prepare("u-2").await.error), Default::default());
        assert_eq!((agent.unprepare("u-1").await, agent.unprepare("u-2").await), Default::default());
        // Of another namespace the pod does not hear.
        *objects.claims.lock().unwrap() = vec![in_vlan("u-1", "net0-0", 100), in_vlan("u-2", "net0-1", 100)];
        assert_eq!(agent.prepare("u-1").await.error, "");
        let store = ClaimStore::open(&machine.path("state")).unwrap();
        let mut first = store.read(&"u-1".parse().unwrap()).unwrap().unwrap();
        first.namespace = "tenant".to_owned();
        store.write(&first).unwrap();
        let error = agent.prepare("u-2").await.error;
        assert!(
            error.contains("which a claim of another namespace has") && !error.contains("tenant"),
            "{error}"
        );
        // Two devices of one claim.
        assert_eq!(agent.unprepare("u-1").await, "");
        let mut two = in_vlan("u-1", "net0-0", 100);
        let devices = two.status.as_mut().unwrap().allocation.as_mut().unwrap().devices.as_mut().unwrap();
        let results = devices.results.as_mut().unwrap();
        results.push(results[0].clone());
        results[1].device = "net0-1".to_owned();
        *objects.claims.lock().unwrap() = vec![two];
        let error = agent.prepare("u-1").await.error;
        assert!(error.contains("which net0-0 of the same claim has"), "{error}");
        agent.end().await;
    })
}

/// The machine was started anew, VFs have other addresses, and kubelet has not ended the claims of before yet.
pub fn of_an_earlier_run() -> Outcome {
    let machine = Machine::new();
    machine.agent("prepare", None);
    machine.restart("run-2");
    let mut devices = devices();
    devices.functions.get_mut("net0-1").unwrap().bdf = "0000:01:10.0".parse()?;
    let prepare = |device: &str| {
        let claim = allocated(
            &claim("u-2", device, json!({"interface": "data"})),
            &"u-2".parse()?,
            DRIVER,
            "node-1",
        )?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(machine.claims().prepare(
            &claim,
            &devices,
            &CallerWaits::default(),
        ))
    };
    let error = prepare("net0-0")?.unwrap_err().to_string();
    assert!(error.contains("net0-0 is prepared for claim default/claim-u-1"), "{error}");
    assert_eq!(
        prepare("net0-1")?.map_err(|error| chain(&error))?.devices[0].function,
        "0000:01:10.0".parse()?
    );
    Ok(())
}

/// A change of the node has begun: what it destroys is promised to nobody any more.
pub fn of_a_change() -> Outcome {
    run(async {
        let machine = Machine::new();
        let (agent, objects) = Agent::with_a_claim(&machine).await;
        let change = json!({
            "number": 1, "hash": "h", "allow": [], "confirm_within": "60s", "runs_before": 0, "boot": "run-1", "attempts": 0,
            "applied": null, "vanishing": ["0000:01:10.0"],
        });
        let file = machine.path("state/rollout/progress.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, change.to_string()).unwrap();
        assert_eq!(
            agent.prepare("u-1").await.error,
            "",
            "what was prepared before is the change's to see to"
        );
        assert_eq!(agent.unprepare("u-1").await, "");
        let error = agent.prepare("u-1").await.error;
        assert!(error.contains("device net0-0: 0000:01:10.0 goes in a change of this node"), "{error}");
        // Another VF is not concerned.
        objects.claims.lock().unwrap().push(claim("u-2", "net0-1", json!({"mode": "vfio"})));
        let error = agent.prepare("u-2").await.error;
        assert!(!error.contains("goes in a change"), "{error}");
        fs::write(&file, "{").unwrap();
        let error = agent.prepare("u-1").await.error;
        assert!(error.contains("cannot read which VFs go"), "{error}");
        fs::remove_file(&file).unwrap();
        assert_eq!(agent.prepare("u-1").await.error, "");
        agent.end().await;
    })
}
