//! NICs that guests own, as their embedded switches tell of them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use penstock_host::embedded::PortReport;
use penstock_model::{
    Allow, DataPath, EndpointName, FunctionName, GuestName, Mac, Model, NicName, Outcome, TenantFunctionName,
    TenantNic, Verdict, VfIndex, VfSettings,
    verdict::{Subject, Vantage},
};

use serde_json::Value;

use super::{
    Network,
    taps::{self, TenantTaps},
    writer::{Unobserved, VerdictSheet, VerdictWriter, on},
};

/// What is added to a value that is not the model's, and may be.
const SET_INSIDE: &str = "set from inside";
/// That nothing may be set from inside.
const NOTHING: &str = "nothing may be set from inside";

/// What was seen of one NIC: its switch's ports, by the names of functions (`node-1/net0#2`) and `node-1/net0 uplink`; why they could
/// not be seen, else.
pub type TenantPorts = Result<BTreeMap<String, PortReport>, String>;

/// The switches of the NICs that guests own.
pub type TenantSwitches = BTreeMap<(GuestName, NicName), TenantPorts>;

/// Has the VLANs that VMs have set for their functions, which their switches let them, hold in `network`.
pub(super) fn set_inside(switches: &TenantSwitches, network: &mut Network) {
    for ((guest, nic), ports) in switches {
        for (name, port) in ports.iter().flatten() {
            let set = ["vlan", "vlan_proto"].iter().any(|key| port.inside.set.contains_key(*key));
            let Ok(EndpointName::Tenant(function)) = name.parse() else { continue };
            if set && (&function.guest, &function.function.nic) == (guest, nic) {
                network.set_vlan(&function, port.settings.vlan_proto, port.settings.vlan);
            }
        }
    }
}

/// Compares each NIC that a guest of `model` owns with what its switch told: whether QEMU is at each port, what is set there, and
/// whether the VM has enabled its VFs. A NIC that is missing in `seen` was not looked at. One that is at taps is compared with `taps`, and so is the uplink of a container's.
pub fn tenant_nics(model: &Model, seen: &TenantSwitches, taps: &TenantTaps) -> Vec<Verdict> {
    let mut sheet = VerdictSheet::default();
    let unseen: TenantPorts = Err("not observed".to_owned());
    for (guest, found) in &model.guests {
        for (name, nic) in &found.nics {
            if nic.path == DataPath::Tap {
                at_taps(guest, name, nic, taps, &mut sheet);
                continue;
            }
            let ports = seen.get(&(guest.clone(), name.clone())).unwrap_or(&unseen);
            judge(guest, name, nic, ports, &mut sheet);
            match nic.path {
                DataPath::VirtioVdpa => uplink_of_container(guest, name, nic, taps, &mut sheet),
                DataPath::SwitchTap => tap_of_switch(guest, name, taps, &mut sheet),
                DataPath::Switch | DataPath::VhostVdpa | DataPath::Tap => {}
            }
        }
    }
    sheet.verdicts
}

fn at_taps(guest: &GuestName, name: &NicName, nic: &TenantNic, taps: &TenantTaps, sheet: &mut VerdictSheet) {
    let nothing = BTreeSet::new();
    for (vf, mac, _) in nic.functions() {
        let function = FunctionName { nic: name.clone(), vf };
        let function = TenantFunctionName { guest: guest.clone(), function };
        let port = function.to_string();
        let mut page = sheet.page(Subject::Tenant(function), Vantage::Host, &nothing);
        taps::judge(&port, mac, nic.uplink.as_ref(), taps, &mut page);
    }
}

/// Whether the tap that is the uplink of a container's switch is in its bridge.
fn uplink_of_container(
    guest: &GuestName,
    name: &NicName,
    nic: &TenantNic,
    taps: &TenantTaps,
    sheet: &mut VerdictSheet,
) {
    let nothing = BTreeSet::new();
    let function = FunctionName { nic: name.clone(), vf: None };
    let function = TenantFunctionName { guest: guest.clone(), function };
    let tap = taps::find(&function.to_string(), taps);
    let mut page = sheet.page(Subject::Tenant(function), Vantage::Host, &nothing);
    match (&nic.uplink, tap) {
        (None, _) => {}
        (Some(uplink), Ok(tap)) if !tap.attached => {
            page.put("uplink", uplink, format!("its switch has not opened {}", tap.name), Outcome::Fail);
        }
        (Some(uplink), tap) => taps::in_bridge(uplink, tap, &mut page),
    }
}

/// Whether what an igb sends gets nowhere but to its switch.
fn tap_of_switch(guest: &GuestName, name: &NicName, taps: &TenantTaps, sheet: &mut VerdictSheet) {
    let nothing = BTreeSet::new();
    let function = FunctionName { nic: name.clone(), vf: None };
    let function = TenantFunctionName { guest: guest.clone(), function };
    let tap = taps::find(&function.to_string(), taps);
    let mut page = sheet.page(Subject::Tenant(function), Vantage::Host, &nothing);
    const WANTED: &str = "gets nothing of the tap";
    match tap {
        Err(blind) => page.blind("host", WANTED, blind),
        Ok(tap) => match (&tap.unheard, &tap.bridge) {
            (Ok(true), _) => page.put("host", WANTED, WANTED, Outcome::Pass),
            (_, Some(bridge)) => {
                page.put("host", WANTED, format!("{} is a port of {bridge}", tap.name), Outcome::Fail);
            }
            (Ok(false), None) => {
                let reached = format!(
                    "no filter of {} drops its frames: the VM reaches the host past its switch",
                    tap.name
                );
                page.put("host", WANTED, reached, Outcome::Fail);
            }
            (Err(why), None) => page.blind("host", WANTED, Unobserved::Unknown(why.clone())),
        },
    }
}

fn judge(guest: &GuestName, name: &NicName, nic: &TenantNic, ports: &TenantPorts, sheet: &mut VerdictSheet) {
    let nothing = BTreeSet::new();
    let find = |port: &str, absent: &str| match ports {
        Err(why) => Err(Unobserved::Unknown(format!("its embedded switch does not tell: {why}"))),
        Ok(ports) => ports.get(port).ok_or_else(|| Unobserved::Absent(absent.to_owned())),
    };
    for (vf, mac, settings) in nic.functions() {
        let function = FunctionName { nic: name.clone(), vf };
        let function = TenantFunctionName { guest: guest.clone(), function };
        let port = find(&function.to_string(), "its embedded switch has no such port");
        let mut page = sheet.page(Subject::Tenant(function), Vantage::Host, &nothing);
        connected(&port, &mut page);
        ceiling(nic.allow(vf), &port, &mut page);
        let mut judged = Judged { allow: nic.allow(vf), port: &port, page: &mut page, told: BTreeSet::new() };
        judged.attribute("mac", mac, |port| port.settings.mac);
        attributes(&settings, &mut judged);
        judged.beside();
        match nic.path {
            // It is ready when its driver is at its port; the rest is told from inside.
            DataPath::VirtioVdpa => continue,
            // Of its driver a tap tells nothing.
            DataPath::SwitchTap => let_through(nic, &port, &mut page),
            DataPath::Switch | DataPath::VhostVdpa | DataPath::Tap => enabled(vf, &port, &mut page),
        }
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

type Seen<'a> = Result<&'a PortReport, Unobserved>;

fn connected(port: &Seen<'_>, page: &mut VerdictWriter<'_>) {
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
fn attributes(wanted: &VfSettings, judged: &mut Judged<'_, '_>) {
    for key in TenantNic::switch_keys() {
        if let Some(value) = wanted.get(key) {
            judged.attribute(key.name(), value, |port| port.settings.get(key).unwrap_or(key.unset()));
        }
    }
}

/// Attributes of one function, some of which may have been set from inside.
struct Judged<'a, 'b> {
    allow: Option<&'a Allow>,
    port: &'a Seen<'a>,
    page: &'a mut VerdictWriter<'b>,
    /// The attributes of which there is a verdict.
    told: BTreeSet<&'static str>,
}

impl Judged<'_, '_> {
    /// Passes when the switch has what is wanted, or what the VM has set in its place: the switch lets it go as far as `allow` and no
    /// further, and whether its `allow` is the model's has a verdict of its own.
    fn attribute<T: PartialEq + Display>(
        &mut self,
        key: &'static str,
        wanted: T,
        has: impl Fn(&PortReport) -> T,
    ) {
        self.told.insert(key);
        match (self.port, self.allow) {
            (Ok(port), Some(_)) if port.inside.set.contains_key(key) => {
                let seen = format!("{}, {SET_INSIDE}", has(port));
                self.page.put(key, wanted, seen, Outcome::Pass);
            }
            (port, _) => self.page.compare(key, wanted, port.clone().map(has)),
        }
    }

    /// What the VM has set and the model does not.
    fn beside(&mut self) {
        let Ok(port) = self.port else { return };
        for (key, value) in port.inside.set.iter().filter(|(key, _)| !self.told.contains(key.as_str())) {
            let value = match value {
                Value::Bool(set) => on(*set).to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let seen = format!("{value}, {SET_INSIDE}");
            match self.allow {
                Some(allow) => self.page.put(key, format!("allowed: {allow}"), seen, Outcome::Pass),
                None => self.page.put(key, "nothing set from inside", seen, Outcome::Fail),
            }
        }
    }
}

/// How far the VM may go by itself, as the switch holds it.
fn ceiling(wanted: Option<&Allow>, port: &Seen<'_>, page: &mut VerdictWriter<'_>) {
    let has = |port: &&PortReport| port.allow.clone().map(|value| written(&value));
    let seen = match (port, wanted) {
        (Err(blind), Some(wanted)) => return page.blind("allow", wanted, blind.clone()),
        (Err(_), None) => return,
        (Ok(port), _) => has(port),
    };
    match (wanted, seen) {
        (None, None) => {}
        // Of the NIC, not of a port.
        (Some(wanted), Some(Ok(seen))) if seen == (Allow { loopback: false, ..wanted.clone() }) => {
            page.put("allow", wanted, wanted, Outcome::Pass);
        }
        (Some(wanted), Some(Ok(seen))) => page.put("allow", wanted, seen, Outcome::Fail),
        (Some(wanted), Some(Err(why))) => page.put("allow", wanted, why, Outcome::Fail),
        (Some(wanted), None) => page.put("allow", wanted, NOTHING, Outcome::Fail),
        (None, Some(seen)) => {
            let seen = seen.map_or_else(|why| why, |seen| seen.to_string());
            page.put("allow", NOTHING, seen, Outcome::Fail);
        }
    }
}

/// A ceiling as the switch tells of it; in its words what no model can have written.
fn written(value: &Value) -> Result<Allow, String> {
    let mut rest = value.clone();
    if let Some(all) = rest.as_object_mut() {
        // What a model has no words for is as a switch has it by itself.
        all.retain(|key, value| match key.as_str() {
            "arp_check" => *value != true,
            "min_tx_rate" => *value != 0,
            _ => true,
        });
    }
    serde_json::from_value(rest).map_err(|_| value.to_string())
}

/// Whether the VM has a driver at a function. A VF is its to enable: one that is off is as it should be.
/// What frames of an igb may have, as its switch holds it: tags, and addresses beside that of the PF.
fn let_through(nic: &TenantNic, port: &Seen<'_>, page: &mut VerdictWriter<'_>) {
    page.compare(
        "vlans",
        nic.trunk(),
        port.clone().map(|port| port.trunk.clone().unwrap_or_else(|| "all".to_owned())),
    );
    let words = |macs: &[Mac]| macs.iter().map(Mac::to_string).collect::<Vec<_>>().join(", ");
    if !nic.more_macs().is_empty() {
        page.compare("more_macs", words(nic.more_macs()), port.clone().map(|port| words(&port.more_macs)));
    }
}

fn enabled(vf: Option<VfIndex>, port: &Seen<'_>, page: &mut VerdictWriter<'_>) {
    let wanted = if vf.is_some() { "reserved" } else { "ready" };
    match port {
        Err(blind) => page.blind("state", wanted, blind.clone()),
        Ok(port) if port.pairs > 0 => page.put("state", wanted, "ready", Outcome::Pass),
        Ok(_) if vf.is_some() => page.put("state", wanted, "reserved, off", Outcome::Pass),
        Ok(_) => page.put("state", wanted, "off: the VM has no driver at its PF", Outcome::Fail),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use penstock_host::embedded::InsideReport;
    use penstock_model::{Source, inventory::VfState, parse};
    use serde_json::json;

    use super::*;

    fn model() -> Model {
        let text = "nics: {NET0: {vfs: 1}}\nguests: {a: {kind: vm, nics: {net0: {vfs: 2, uplink: NET0, mac: \"02:00:00:00:00:10\", \
                    functions: {1: {vlan: 7, spoofchk: on, mac: \"02:00:00:00:00:11\"}}}}}}\n";
        parse(&Source::new("m.yaml", text)).unwrap().model
    }

    /// A port as its switch tells of it when nothing is set.
    pub fn port(mac: &str, pairs: usize) -> PortReport {
        let settings = VfState {
            mac: mac.parse().unwrap(),
            spoofchk: Some(false),
            trust: Some(false),
            ..VfState::default()
        };
        PortReport {
            settings,
            connected: true,
            unconnected: None,
            up: true,
            pairs,
            broken: None,
            allow: None,
            trunk: None,
            more_macs: Vec::new(),
            inside: InsideReport::default(),
            counters: None,
        }
    }

    fn seen(ports: TenantPorts) -> Vec<String> {
        let seen = [(("a".parse().unwrap(), "net0".parse().unwrap()), ports)].into();
        let line = |verdict: &Verdict| {
            format!("{} {} {}: {}", verdict.outcome, verdict.subject, verdict.attribute, verdict.seen)
        };
        tenant_nics(&model(), &seen, &nobody_looked()).iter().map(line).collect()
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
    fn what_was_set_from_inside_is_told_as_such() {
        let text = "nics: {NET0: {vfs: 1}}\nguests: {a: {kind: vm, nics: {net0: {vfs: 2, allow: {vlan: 100-199}, functions: {0: {vlan: 100}, 1: {allow: {}}}}}}}";
        let model = parse(&Source::new("m.yaml", text)).unwrap().model;
        let nic = &model.guests["a"].nics["net0"];
        let mut ports: BTreeMap<String, PortReport> = BTreeMap::new();
        for (vf, mac, settings) in nic.functions() {
            let function = FunctionName { nic: "net0".parse().unwrap(), vf };
            let mut port = port(&mac.to_string(), 1);
            port.settings.vlan = settings.vlan.unwrap_or_default();
            port.allow = Some(json!({"mac": "own", "arp_check": true, "min_tx_rate": 0, "vlan": "100-199"}));
            ports.insert(format!("a/{function}"), port);
        }
        ports.get_mut("a/net0#1").unwrap().allow = Some(json!({}));
        let lines = |ports: &BTreeMap<String, PortReport>| {
            let seen = [(("a".parse().unwrap(), "net0".parse().unwrap()), Ok(ports.clone()))].into();
            let line = |verdict: &Verdict| {
                let Verdict { outcome, subject, attribute, wanted, seen, .. } = verdict;
                format!("{outcome} {subject} {attribute}: wanted {wanted}, seen {seen}")
            };
            tenant_nics(&model, &seen, &nobody_looked()).iter().map(line).collect::<Vec<_>>()
        };
        assert!(lines(&ports).iter().all(|line| line.starts_with("pass ")), "{:#?}", lines(&ports));
        // Within what is allowed, and another ceiling than the model's.
        let first = ports.get_mut("a/net0#0").unwrap();
        first.settings.vlan = penstock_model::VlanId::new(150).unwrap();
        first.inside.set = [("vlan".to_owned(), json!(150)), ("promiscuous".to_owned(), json!(false))].into();
        ports.get_mut("a/net0").unwrap().allow = Some(json!({"vlan": "7"}));
        ports.get_mut("a/net0#1").unwrap().allow = Some(json!({"mtu": 9000}));
        let lines = lines(&ports);
        for line in [
            "pass a/net0#0 vlan: wanted 100, seen 150, set from inside",
            "pass a/net0#0 promiscuous: wanted allowed: vlan 100-199, seen off, set from inside",
            "fail a/net0 allow: wanted vlan 100-199, seen vlan 7",
            "fail a/net0#1 allow: wanted only less than the model gives, seen {\"mtu\":9000}",
        ] {
            assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
        }
    }

    fn nobody_looked() -> TenantTaps {
        Err("not observed".to_owned())
    }

    #[test]
    fn the_nic_of_a_container_is_judged_by_its_port_and_by_the_tap_that_leads_out() {
        use penstock_host::tap::TapReport;
        let text = "guests: {a: {nics: {net0: {uplink: br0, spoofchk: on, mac: \"02:00:00:00:00:10\"}}}}\n";
        let model = parse(&Source::new("m.yaml", text)).unwrap().model;
        let tap = TapReport {
            name: "tap020000000010".parse().unwrap(),
            bridge: "br0".parse().ok(),
            up: true,
            attached: true,
            unheard: Ok(false),
            forwarding: true,
        };
        let lines = |port: Option<PortReport>, tap: TapReport| {
            let ports = port.map(|port| ("a/net0".to_owned(), port)).into_iter().collect();
            let seen = [(("a".parse().unwrap(), "net0".parse().unwrap()), Ok(ports))].into();
            let taps = Ok([("a/net0".to_owned(), tap)].into());
            let line =
                |verdict: &Verdict| format!("{} {}: {}", verdict.outcome, verdict.attribute, verdict.seen);
            tenant_nics(&model, &seen, &taps).iter().map(line).collect::<Vec<_>>()
        };
        let mut good = port("02:00:00:00:00:10", 1);
        good.settings.spoofchk = Some(true);
        assert_eq!(
            lines(Some(good.clone()), tap.clone()),
            ["pass port: connected", "pass mac: 02:00:00:00:00:10", "pass spoofchk: on", "pass uplink: br0"]
        );
        let unbound = PortReport {
            connected: false,
            unconnected: Some("virtio_vdpa is not loaded".to_owned()),
            ..good.clone()
        };
        assert_eq!(lines(Some(unbound), tap.clone())[0], "fail port: virtio_vdpa is not loaded");
        assert_eq!(lines(None, tap.clone())[0], "fail port: its embedded switch has no such port");
        let closed = TapReport { attached: false, ..tap.clone() };
        let last = lines(Some(good.clone()), closed).pop().unwrap();
        assert_eq!(last, "fail uplink: its switch has not opened tap020000000010");
        let apart = TapReport { bridge: None, ..tap };
        assert_eq!(lines(Some(good), apart).pop().unwrap(), "fail uplink: a port of no bridge");
    }

    #[test]
    fn an_igb_at_a_switch_is_judged_by_its_one_port_and_by_what_the_host_hears() {
        use penstock_host::tap::TapReport;
        let text = "guests: {a: {kind: vm, nics: {net0: {emulation: igb, uplink: eth0, spoofchk: on, max_tx_rate: 100, \
                    allow: {vlan: 100-101, mac: [\"02:00:00:00:00:11\"]}, mac: \"02:00:00:00:00:10\"}}}}\n";
        let model = parse(&Source::new("m.yaml", text)).unwrap().model;
        let tap = TapReport {
            name: "tap020000000010".parse().unwrap(),
            bridge: None,
            up: true,
            attached: true,
            unheard: Ok(true),
            forwarding: false,
        };
        let lines = |own: PortReport, tap: TapReport| {
            let ports =
                [("a/net0".to_owned(), own), ("a/net0 uplink".to_owned(), port("02:00:00:00:00:ff", 0))];
            let seen = [(("a".parse().unwrap(), "net0".parse().unwrap()), Ok(ports.into()))].into();
            let taps = Ok([("a/net0".to_owned(), tap)].into());
            let line =
                |verdict: &Verdict| format!("{} {}: {}", verdict.outcome, verdict.attribute, verdict.seen);
            tenant_nics(&model, &seen, &taps).iter().map(line).collect::<Vec<_>>()
        };
        // Rings are of vhost-user alone.
        let mut good = port("02:00:00:00:00:10", 0);
        (good.settings.spoofchk, good.settings.max_tx_rate) = (Some(true), penstock_model::TxRate(100));
        (good.trunk, good.more_macs) =
            (Some("0,100-101".to_owned()), vec!["02:00:00:00:00:11".parse().unwrap()]);
        assert_eq!(
            lines(good.clone(), tap.clone()),
            [
                "pass port: connected",
                "pass mac: 02:00:00:00:00:10",
                "pass spoofchk: on",
                "pass max_tx_rate: 100 Mbit/s",
                "pass vlans: 0,100-101",
                "pass more_macs: 02:00:00:00:00:11",
                "pass uplink: eth0",
                "pass host: gets nothing of the tap",
            ]
        );
        let open = PortReport { trunk: None, more_macs: Vec::new(), ..good.clone() };
        let lines_of_open = lines(open, tap.clone());
        assert_eq!(lines_of_open[4..6], ["fail vlans: all", "fail more_macs: "]);
        let heard = TapReport { unheard: Ok(false), ..tap.clone() };
        let last = lines(good.clone(), heard).pop().unwrap();
        assert!(last.starts_with("fail host: no filter of tap020000000010 drops its frames"), "{last}");
        let blind = TapReport { unheard: Err("there is no tc".to_owned()), ..tap.clone() };
        assert_eq!(lines(good.clone(), blind).pop().unwrap(), "unknown host: there is no tc");
        let entered = TapReport { bridge: "br0".parse().ok(), unheard: Ok(false), ..tap };
        assert_eq!(lines(good, entered).pop().unwrap(), "fail host: tap020000000010 is a port of br0");
    }

    #[test]
    fn functions_at_taps_are_judged_by_their_ports_of_the_bridge() {
        use penstock_host::tap::TapReport;
        type Change = dyn Fn(&mut TapReport);
        let text = "nics: {NET0: {vfs: 1}}\nguests: {a: {kind: vm, nics: {net0: {vfs: 1, path: tap, uplink: br0, \
                    mac: \"02:00:00:00:00:10\", functions: {0: {mac: \"02:00:00:00:00:11\"}}}}}}\n";
        let model = parse(&Source::new("m.yaml", text)).unwrap().model;
        let tap = |name: &str| TapReport {
            name: name.parse().unwrap(),
            bridge: "br0".parse().ok(),
            up: true,
            attached: true,
            unheard: Ok(false),
            forwarding: true,
        };
        let lines = |taps: &TenantTaps| {
            let line = |verdict: &Verdict| {
                format!("{} {} {}: {}", verdict.outcome, verdict.subject, verdict.attribute, verdict.seen)
            };
            tenant_nics(&model, &TenantSwitches::new(), taps).iter().map(line).collect::<Vec<_>>()
        };
        let good: BTreeMap<String, TapReport> =
            [("a/net0".to_owned(), tap("tap020000000010")), ("a/net0#0".to_owned(), tap("tap020000000011"))]
                .into();
        let wanted = [
            "pass a/net0 port: connected",
            "pass a/net0 mac: 02:00:00:00:00:10",
            "pass a/net0 uplink: br0",
            "pass a/net0#0 port: connected",
            "pass a/net0#0 mac: 02:00:00:00:00:11",
            "pass a/net0#0 uplink: br0",
        ];
        assert_eq!(lines(&Ok(good.clone())), wanted);
        let with = |change: &Change| {
            let mut taps = good.clone();
            change(taps.get_mut("a/net0#0").unwrap());
            lines(&Ok(taps))
        };
        let cases: [(&Change, &str); 6] = [
            (&|tap| tap.attached = false, "fail a/net0#0 port: QEMU has not opened tap020000000011"),
            (&|tap| (tap.attached, tap.up) = (false, false), "fail a/net0#0 port: tap020000000011 is down"),
            (&|tap| tap.name = "tap020000000012".parse().unwrap(), "fail a/net0#0 mac: 02:00:00:00:00:12"),
            (&|tap| tap.bridge = None, "fail a/net0#0 uplink: a port of no bridge"),
            (&|tap| tap.bridge = "br1".parse().ok(), "fail a/net0#0 uplink: br1"),
            (&|tap| tap.forwarding = false, "fail a/net0#0 uplink: br0, which does not forward its frames"),
        ];
        for (change, line) in cases {
            let lines = with(change);
            assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
        }
        assert!(lines(&nobody_looked()).iter().all(|line| line.starts_with("unknown ")));
        let none = lines(&Ok(BTreeMap::new()));
        assert!(none.iter().all(|line| line.starts_with("fail ")), "{none:#?}");
    }

    #[test]
    fn a_switch_that_does_not_tell_leaves_all_unknown() {
        let lines = seen(Err("nobody serves it".to_owned()));
        assert_eq!(lines.len(), 12, "{lines:#?}");
        assert!(lines.iter().all(|line| line.starts_with("unknown ")), "{lines:#?}");
    }
}
