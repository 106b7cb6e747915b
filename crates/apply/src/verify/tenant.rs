//! NICs that VMs own, as their embedded switches tell of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use penstock_host::embedded::PortReport;
use penstock_model::{
    FunctionName, GuestName, Model, NicName, Outcome, TenantFunctionName, TenantNic, Verdict, VfIndex,
    VfSettings,
    verdict::{Subject, Vantage},
};

use super::sheet::{Blind, Page, Sheet, on};

/// What was seen of one NIC: its switch's ports, by the names of functions (`node-1/net0#2`) and `node-1/net0 uplink`; why they could
/// not be seen, else.
pub type TenantPorts = Result<BTreeMap<String, PortReport>, String>;

/// Compares each NIC that a VM of `model` owns with what its switch told: whether QEMU is at each port, what is set there, and
/// whether the VM has enabled its VFs. A NIC that is missing in `seen` was not looked at.
pub fn tenant_nics(model: &Model, seen: &BTreeMap<(GuestName, NicName), TenantPorts>) -> Vec<Verdict> {
    let mut sheet = Sheet::default();
    let unseen: TenantPorts = Err("nobody looked".to_owned());
    for (guest, found) in &model.guests {
        for (name, nic) in &found.nics {
            let ports = seen.get(&(guest.clone(), name.clone())).unwrap_or(&unseen);
            judge(guest, name, nic, ports, &mut sheet);
        }
    }
    sheet.verdicts
}

fn judge(guest: &GuestName, name: &NicName, nic: &TenantNic, ports: &TenantPorts, sheet: &mut Sheet) {
    let nothing = BTreeSet::new();
    let find = |port: &str, absent: &str| match ports {
        Err(why) => Err(Blind::Unknown(format!("its embedded switch does not tell: {why}"))),
        Ok(ports) => ports.get(port).ok_or_else(|| Blind::Absent(absent.to_owned())),
    };
    for (vf, mac, settings) in nic.functions() {
        let function = FunctionName { nic: name.clone(), vf };
        let function = TenantFunctionName { guest: guest.clone(), function };
        let port = find(&function.to_string(), "its embedded switch has no such port");
        let mut page = sheet.page(Subject::Tenant(function), Vantage::Host, &nothing);
        connected(&port, &mut page);
        page.compare("mac", mac, port.clone().map(|port| port.settings.mac));
        attributes(&settings, &port, &mut page);
        enabled(vf, &port, &mut page);
        if let (None, Some(uplink)) = (vf, &nic.uplink) {
            match find(&TenantNic::uplink_port(guest, name), "its embedded switch has none") {
                Err(blind) => page.blind("uplink", uplink, blind),
                Ok(port) if port.connected && port.up => page.put("uplink", uplink, uplink, Outcome::Pass),
                Ok(port) => {
                    let why = port.unconnected.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                    page.put("uplink", uplink, format!("no link there{why}"), Outcome::Fail);
                }
            }
        }
    }
}

type Seen<'a> = Result<&'a PortReport, Blind>;

fn connected(port: &Seen<'_>, page: &mut Page<'_>) {
    match port {
        Err(blind) => page.blind("port", "connected", blind.clone()),
        Ok(port) => match (&port.broken, port.connected) {
            (Some(why), true) => page.put("port", "connected", why, Outcome::Fail),
            (None, true) => page.put("port", "connected", "connected", Outcome::Pass),
            (_, false) => {
                let why = port.unconnected.clone().unwrap_or_else(|| "QEMU has not come".to_owned());
                page.put("port", "connected", why, Outcome::Fail);
            }
        },
    }
}

/// What the model sets for a VF.
fn attributes(wanted: &VfSettings, port: &Seen<'_>, page: &mut Page<'_>) {
    let has = |of: fn(&PortReport) -> String| port.clone().map(of);
    if let Some(vlan) = wanted.vlan {
        page.compare("vlan", vlan.to_string(), has(|port| port.settings.vlan.to_string()));
    }
    if let Some(qos) = wanted.qos {
        page.compare("qos", qos.to_string(), has(|port| port.settings.qos.to_string()));
    }
    if let Some(proto) = wanted.vlan_proto {
        page.compare("vlan_proto", proto.to_string(), has(|port| port.settings.vlan_proto.to_string()));
    }
    let flag = |set: Option<bool>| on(set.unwrap_or_default()).to_owned();
    if wanted.spoofchk.is_some() {
        page.compare(
            "spoofchk",
            flag(wanted.spoofchk),
            port.clone().map(|port| flag(port.settings.spoofchk)),
        );
    }
    if wanted.trust.is_some() {
        page.compare("trust", flag(wanted.trust), port.clone().map(|port| flag(port.settings.trust)));
    }
    if let Some(rate) = wanted.max_tx_rate {
        page.compare("max_tx_rate", rate.to_string(), has(|port| port.settings.max_tx_rate.to_string()));
    }
}

/// Whether the VM has a driver at a function. A VF is its to enable: one that is off is as it should be.
fn enabled(vf: Option<VfIndex>, port: &Seen<'_>, page: &mut Page<'_>) {
    let wanted = if vf.is_some() { "reserved" } else { "ready" };
    match port {
        Err(blind) => page.blind("state", wanted, blind.clone()),
        Ok(port) if port.pairs > 0 => page.put("state", wanted, "ready", Outcome::Pass),
        Ok(_) if vf.is_some() => page.put("state", wanted, "reserved, off", Outcome::Pass),
        Ok(_) => page.put("state", wanted, "off: the VM has no driver at its PF", Outcome::Fail),
    }
}

#[cfg(test)]
mod tests {
    use penstock_model::{Source, TxRate, inventory::VfState, parse};

    use super::*;

    fn model() -> Model {
        let text = "nics: {NET0: {vfs: 1}}\nguests: {a: {kind: vm, nics: {net0: {vfs: 2, uplink: NET0, mac: \"02:00:00:00:00:10\", \
                    functions: {1: {vlan: 7, spoofchk: on, mac: \"02:00:00:00:00:11\"}}}}}}\n";
        parse(&Source::new("m.yaml", text)).unwrap().model
    }

    fn port(mac: &str, pairs: usize) -> PortReport {
        let settings = VfState {
            mac: mac.parse().unwrap(),
            vlan: Default::default(),
            qos: Default::default(),
            vlan_proto: Default::default(),
            spoofchk: Some(false),
            trust: Some(false),
            min_tx_rate: TxRate(0),
            max_tx_rate: TxRate(0),
            link_state: None,
        };
        PortReport { settings, connected: true, unconnected: None, up: true, pairs, broken: None }
    }

    fn seen(ports: TenantPorts) -> Vec<String> {
        let seen = [(("a".parse().unwrap(), "net0".parse().unwrap()), ports)].into();
        let line = |verdict: &Verdict| {
            format!("{} {} {}: {}", verdict.outcome, verdict.subject, verdict.attribute, verdict.seen)
        };
        tenant_nics(&model(), &seen).iter().map(line).collect()
    }

    #[test]
    fn a_vf_that_the_vm_has_not_enabled_is_as_it_should_be() {
        let model = model();
        let derived = model.guests["a"].nics["net0"].vfs[0].mac.unwrap().to_string();
        let mut ports: BTreeMap<String, PortReport> = [
            ("a/net0", port("02:00:00:00:00:10", 1)),
            ("a/net0#0", port(&derived, 0)),
            ("a/net0#1", port("02:00:00:00:00:11", 0)),
            ("a/net0 uplink", port("00:00:00:00:00:00", 0)),
        ]
        .map(|(name, port)| (name.to_owned(), port))
        .into();
        let second = ports.get_mut("a/net0#1").unwrap();
        second.settings.vlan = "7".parse::<u16>().ok().and_then(penstock_model::VlanId::new).unwrap();
        second.settings.spoofchk = Some(true);
        let lines = seen(Ok(ports.clone()));
        assert!(lines.iter().all(|line| line.starts_with("pass ")), "{lines:#?}");
        assert!(lines.contains(&"pass a/net0#0 state: reserved, off".to_owned()), "{lines:#?}");
        assert!(lines.contains(&"pass a/net0 uplink: NET0".to_owned()), "{lines:#?}");
        // Enabled, with another VLAN, without QEMU, without an uplink.
        ports.get_mut("a/net0#0").unwrap().pairs = 1;
        ports.get_mut("a/net0#1").unwrap().settings.vlan = Default::default();
        ports.get_mut("a/net0").unwrap().connected = false;
        ports.remove("a/net0 uplink");
        let lines = seen(Ok(ports));
        for line in [
            "pass a/net0#0 state: ready",
            "fail a/net0#1 vlan: 0",
            "fail a/net0 port: QEMU has not come",
            "fail a/net0 uplink: its embedded switch has none",
        ] {
            assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
        }
    }

    #[test]
    fn a_switch_that_does_not_tell_leaves_all_unknown() {
        let lines = seen(Err("nobody serves it".to_owned()));
        assert_eq!(lines.len(), 12, "{lines:#?}");
        assert!(lines.iter().all(|line| line.starts_with("unknown ")), "{lines:#?}");
    }
}
