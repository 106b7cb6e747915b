//! What the agent tells scrapers.

use super::*;

pub fn scraped() {
    let mut inventory = igb();
    inventory.nics = [("NET0".parse().unwrap(), inventory.pfs[0].bdf)].into();
    let mut node = Node::new("scraped", &inventory);
    (node.model, node.metrics) = (true, true);
    fs::write(node.path("m.yaml"), "nics: {NET0: {vfs: 7}}\n").unwrap();
    fs::write(node.path("metrics"), "# HELP a b.\n# TYPE a gauge\na 1\n# EOF\n").unwrap();
    let vf = &inventory.pfs[0].sriov.as_ref().unwrap().vfs[3];
    let claim = json!({
        "format": 1, "uid": "u-1", "namespace": "blue", "name": "data", "pod_claim": null, "driver": "sriov.penstock.dev",
        "pods": [{"name": "one", "uid": "p-1"}], "boot": "b", "penstock": "/nowhere", "run": node.path("run"),
        "devices": [{"pool": "scraped", "device": "net0-3", "requests": ["vf"], "function": vf.bdf, "mode": "netdev", "interface": "net1",
            "mac": null, "group": null, "configuration": {}}],
    });
    let store = ClaimStore::open(&node.path("state")).unwrap();
    let claim: PreparedClaim = serde_json::from_value(claim).unwrap();
    store.write(&claim).unwrap();
    node.start();
    let mut verdict = json!({
        "kind": "watch", "version": 1, "time": "x", "event": "state", "holds": true, "counts": {}, "verdicts": [],
        "glance_every": 0.8, "unheard": [],
    });
    node.say(&verdict);
    for (key, value) in [
        ("event", json!("drift")),
        ("subject", json!({"function": "NET0#3"})),
        ("attribute", json!("vlan")),
        ("vantage", json!("host")),
        ("wanted", json!("100")),
        ("seen", json!("200")),
        ("outcome", json!("fail")),
        ("best_effort", json!(false)),
        ("concerns", json!([])),
    ] {
        verdict[key] = value;
    }
    node.say(&verdict);
    let bdf = vf.bdf;
    let wanted = [
        "a 1".to_owned(),
        "penstock_agent_scrape_errors{what=\"machine\"} 0".to_owned(),
        "penstock_published_devices 7".to_owned(),
        "penstock_slices_current 1".to_owned(),
        "penstock_claims{state=\"waiting\"} 1".to_owned(),
        format!(
            "penstock_claim_info{{bdf=\"{bdf}\",nic=\"NET0\",vf=\"3\",device=\"net0-3\",namespace=\"blue\",pod=\"one\",claim=\"data\"}} 1"
        ),
        "penstock_claim_prepare_duration_seconds_count{outcome=\"prepared\"} 0".to_owned(),
        "penstock_drift{subject=\"NET0#3\",attribute=\"vlan\"} 1".to_owned(),
        "penstock_drifted_attributes 1".to_owned(),
    ];
    let began = Instant::now();
    let text = loop {
        let text = node.scrape().unwrap_or_default();
        if wanted.iter().all(|line| text.lines().any(|one| one == line)) {
            break text;
        }
        assert!(began.elapsed() < PATIENT, "{text}\n{}", node.log());
        thread::sleep(PAUSE);
    };
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    assert!(text.lines().any(|line| line.starts_with("penstock_slices_generation ")), "{text}");
    // Scraped ten times a second, looked at each 5 s.
    let calls = fs::read_to_string(node.path("calls")).unwrap();
    assert!(
        calls.lines().all(|call| call == format!("metrics {}", node.path("m.yaml").display())),
        "{calls}"
    );
    assert!(calls.lines().count() as u64 <= began.elapsed().as_secs() / 5 + 2, "{calls}");
    // A machine that cannot be read is missing, and the rest is there.
    fs::write(node.path("metrics"), "a 1\n").unwrap();
    let began = Instant::now();
    loop {
        let text = node.scrape().unwrap_or_default();
        if text.contains("penstock_agent_scrape_errors{what=\"machine\"} 1") {
            assert!(
                !text.contains("a 1\n") && text.contains("penstock_claims{state=\"waiting\"} 1"),
                "{text}"
            );
            break;
        }
        assert!(began.elapsed() < PATIENT, "{text}\n{}", node.log());
        thread::sleep(PAUSE);
    }
}
