use std::time::UNIX_EPOCH;

use super::*;
use crate::slices::tests::{devices, machine, pf};

fn verdict(subject: &str, attribute: &str, outcome: &str) -> String {
    let seen = if outcome == "unknown" { "no netlink" } else { "200" };
    format!(
        r#"{{"kind":"watch","version":1,"time":"2026-11-21T19:36:32.970Z","event":"EVENT","subject":{subject},"attribute":"{attribute}","vantage":"host","wanted":"100","seen":"{seen}","outcome":"{outcome}","best_effort":false,"concerns":[]}}"#
    )
}

fn line(drift: &mut Drift, event: &str, subject: &str, attribute: &str, outcome: &str) -> DriftEvent {
    drift.line(verdict(subject, attribute, outcome).replace("EVENT", event).as_bytes()).unwrap()
}

const STATE: &str = r#"{"kind":"watch","version":1,"time":"x","event":"state","holds":true,"counts":{"pass":9},"verdicts":[],"glance_every":0.8,"unheard":[]}"#;

fn watched() -> (Drift, Devices) {
    let mut drift = Drift::default();
    assert!(!drift.is_settled());
    assert_eq!(drift.line(STATE.as_bytes()).unwrap(), DriftEvent::State);
    assert!(drift.is_settled());
    (drift, devices(&machine(vec![pf(0, 1, 2), pf(1, 2, 2)])))
}

fn tainted(drift: &Drift, devices: &Devices) -> Vec<String> {
    drift.taints(devices).keys().map(DeviceName::to_string).collect()
}

#[test]
fn what_drifts_is_a_taint_until_it_holds_again() {
    let (mut drift, devices) = watched();
    assert!(drift.taints(&devices).is_empty());
    line(&mut drift, "drift", r#"{"function":"NET0#1"}"#, "vlan", "fail");
    let taints = drift.taints(&devices);
    assert_eq!(taints["net0-1"], [Taint { key: DRIFT, value: Some("vlan".to_owned()) }]);
    assert_eq!(taints.len(), 1);
    let report = drift.report(&devices, false, &HealthReport::new(), UNIX_EPOCH);
    assert_eq!(report["net0-1"].condition, DeviceCondition::Unhealthy);
    assert_eq!(report["net0-1"].message, "NET0#1 vlan: wanted 100, seen 200");
    assert_eq!(
        (report["net0-0"].condition, report["net0-0"].message.as_str()),
        (DeviceCondition::Healthy, "")
    );
    let news = line(&mut drift, "holds_again", r#"{"function":"NET0#1"}"#, "vlan", "pass");
    assert!(matches!(news, DriftEvent::HoldsAgain(_)) && drift.taints(&devices).is_empty());
    let later = drift.report(&devices, false, &report, UNIX_EPOCH + Duration::from_secs(9));
    assert_eq!(later["net0-1"].condition, DeviceCondition::Healthy);
    assert_eq!(later["net0-0"].since, UNIX_EPOCH, "since when it is so");
    assert_eq!(later["net0-1"].since, UNIX_EPOCH + Duration::from_secs(9));
}

#[test]
fn a_nic_or_its_pf_concerns_all_its_functions_and_a_guest_none() {
    let (mut drift, devices) = watched();
    line(&mut drift, "drift", r#"{"guest":"a"}"#, "memory", "fail");
    line(&mut drift, "drift", r#""machine""#, "boot", "fail");
    assert!(drift.taints(&devices).is_empty());
    line(&mut drift, "drift", r#"{"function":"NET1"}"#, "mtu", "fail");
    assert_eq!(tainted(&drift, &devices), ["net1-0", "net1-1"]);
    line(&mut drift, "drift", r#"{"nic":"NET0"}"#, "loopback", "fail");
    assert_eq!(tainted(&drift, &devices).len(), 4);
}

#[test]
fn what_cannot_be_seen_is_unknown_and_no_taint() {
    let (mut drift, devices) = watched();
    line(&mut drift, "unseen", r#"{"function":"NET0#0"}"#, "vlan", "unknown");
    assert!(drift.taints(&devices).is_empty());
    let report = drift.report(&devices, false, &HealthReport::new(), UNIX_EPOCH);
    assert_eq!(report["net0-0"].condition, DeviceCondition::Unknown);
    assert!(report["net0-0"].message.contains("no netlink"), "{:?}", report["net0-0"]);
    line(&mut drift, "drift", r#"{"function":"NET0#0"}"#, "spoofchk", "fail");
    drift.lost("penstock ended".to_owned());
    let report = drift.report(&devices, false, &report, UNIX_EPOCH);
    assert_eq!(
        report["net0-0"].condition,
        DeviceCondition::Unhealthy,
        "what drifted is taken to be so still"
    );
    assert!(report["net0-0"].message.starts_with("NET0#0 spoofchk"), "{:?}", report["net0-0"]);
    assert_eq!(report["net1-0"].condition, DeviceCondition::Unknown);
    assert!(report["net1-0"].message.contains("penstock ended"));
    // A new state is the whole of it.
    drift.line(STATE.as_bytes()).unwrap();
    assert!(drift.taints(&devices).is_empty());
}

#[test]
fn nothing_is_healthy_before_somebody_has_looked() {
    let all = devices(&machine(vec![pf(0, 1, 1)]));
    let report = Drift::default().report(&all, false, &HealthReport::new(), UNIX_EPOCH);
    assert!(report.values().all(|one| one.condition == DeviceCondition::Unknown), "{report:?}");
    let report = Drift::without_a_model().report(&all, false, &HealthReport::new(), UNIX_EPOCH);
    assert!(report.values().all(|one| one.condition == DeviceCondition::Healthy), "{report:?}");
}

#[test]
fn nothing_is_healthy_while_nobody_sees_the_machine() {
    let (mut drift, devices) = watched();
    line(&mut drift, "drift", r#"{"function":"NET0#1"}"#, "vlan", "fail");
    let seen = drift.report(&devices, false, &HealthReport::new(), UNIX_EPOCH);
    let blind = drift.report(&devices, true, &seen, UNIX_EPOCH);
    assert_eq!(blind["net0-0"].condition, DeviceCondition::Unknown);
    assert!(blind["net0-0"].message.contains("cannot be looked at"), "{:?}", blind["net0-0"]);
    assert_eq!(blind["net0-1"], seen["net0-1"], "what drifted is taken to be so still");
    let all = Drift::without_a_model().report(&devices, true, &seen, UNIX_EPOCH);
    assert!(all.values().all(|one| one.condition == DeviceCondition::Unknown), "{all:?}");
    assert_eq!(drift.report(&devices, false, &blind, UNIX_EPOCH), seen);
}

#[test]
fn what_a_pod_has_and_is_not_as_it_was_given_is_unhealthy_and_tainted_until_it_is() {
    let (mut drift, devices) = watched();
    let claims = |why: &str| {
        ClaimDrift::from([("net0-1".to_owned(), why.to_owned()), ("net9-9".to_owned(), String::new())])
    };
    let health = |drift: &Drift, claims: &ClaimDrift, previous: &HealthReport, seconds| {
        let now = UNIX_EPOCH + Duration::from_secs(seconds);
        let mut report = drift.report(&devices, false, previous, now);
        add_claim_health(claims, previous, now, &mut report);
        report
    };
    let taints = |drift: &Drift, claims: &ClaimDrift| {
        let mut taints = drift.taints(&devices);
        add_claim_taints(claims, &devices, &mut taints);
        taints
    };
    let why = claims("the PF has vlan 7");
    let first = health(&drift, &why, &HealthReport::new(), 1);
    assert_eq!(first["net0-1"].condition, DeviceCondition::Unhealthy);
    assert_eq!(first["net0-1"].message, "not as the pod was given it: the PF has vlan 7");
    assert_eq!((first["net0-0"].condition, first.len()), (DeviceCondition::Healthy, 4));
    assert_eq!(health(&drift, &why, &first, 9), first, "since when it is so");
    assert_eq!(taints(&drift, &why)["net0-1"], [Taint { key: DRIFT, value: Some("claim".to_owned()) }]);
    assert_eq!(taints(&drift, &why).len(), 1);
    // What is wrong with its PF comes first, and there is one taint.
    line(&mut drift, "drift", r#"{"function":"NET0"}"#, "mtu", "fail");
    let both = &health(&drift, &why, &first, 9)["net0-1"];
    assert_eq!(
        both.message,
        "NET0 mtu: wanted 100, seen 200; not as the pod was given it: the PF has vlan 7"
    );
    assert_eq!(taints(&drift, &why)["net0-1"], [Taint { key: DRIFT, value: Some("mtu".to_owned()) }]);
    line(&mut drift, "holds_again", r#"{"function":"NET0"}"#, "mtu", "pass");
    let mended = health(&drift, &ClaimDrift::new(), &first, 12);
    assert_eq!(
        (mended["net0-1"].condition, mended["net0-1"].message.as_str()),
        (DeviceCondition::Healthy, "")
    );
    assert!(taints(&drift, &ClaimDrift::new()).is_empty());
}

#[test]
fn a_device_that_is_gone_is_unhealthy_for_a_day() {
    let (drift, all) = watched();
    let report = drift.report(&all, false, &HealthReport::new(), UNIX_EPOCH);
    let fewer = devices(&machine(vec![pf(0, 1, 1)]));
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let report = drift.report(&fewer, false, &report, at(10));
    assert_eq!(report["net0-1"].condition, DeviceCondition::Unhealthy);
    let report = drift.report(&fewer, false, &report, at(3600));
    assert_eq!(report["net0-1"].since, at(10));
    let report = drift.report(&fewer, false, &report, at(30 * 3600));
    assert!(!report.contains_key("net0-1") && report.contains_key("net0-0"));
}

#[test]
fn lines_that_are_not_known_are_skipped_and_failures_are_told() {
    let (mut drift, _) = watched();
    for skipped in [
        r#"{"kind":"watch","version":1,"event":"changing","who":"root","new":1}"#,
        r#"{"kind":"watch","version":2,"event":"of-next-year"}"#,
        r#"{"kind":"watch","event":"blind_spots","unwatched":[]}"#,
    ] {
        assert_eq!(drift.line(skipped.as_bytes()).unwrap(), DriftEvent::Nothing, "{skipped}");
    }
    let failed = r#"{"kind":"error","version":1,"of":"watch","errors":[{"message":"no model"}]}"#;
    assert_eq!(drift.line(failed.as_bytes()).unwrap_err().to_string(), "no model");
    for nonsense in ["", "{", "[]", "{}", "\u{0}", r#"{"kind":"watch","event":"drift"}"#] {
        assert!(drift.line(nonsense.as_bytes()).is_err(), "{nonsense}");
    }
    assert!(drift.line(b"\xff\xfe").is_err());
}

#[test]
fn a_message_is_one_line_of_at_most_so_many_bytes() {
    assert_eq!(cut("a\nb".to_owned()), "a b");
    let long = cut("é".repeat(2000));
    assert!(long.len() <= MESSAGE_LIMIT && long.ends_with("..."), "{}", long.len());
    assert!(
        is_label_value("min_tx_rate")
            && !is_label_value("a b")
            && !is_label_value("")
            && !is_label_value("-")
    );
}
