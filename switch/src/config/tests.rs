//! What a configuration says, and what is refused.

use super::*;

fn config(text: &str) -> Result<BTreeMap<String, Settings>, String> {
    let config: Config = serde_json::from_str(text).map_err(|error| error.to_string())?;
    config.settings().map_err(|error| error.to_string())
}

#[test]
fn a_port_is_as_it_says() {
    let all = config(
        r#"{"version": 1, "ports": {"NET0#0": {"socket": "/run/0", "mac": "02:00:00:00:00:01", "vlan": 100, "qos": 3,
        "spoofchk": true}, "up": {"socket": "/run/1", "trunk": "0,100-101", "uplink": true}}}"#,
    )
    .unwrap();
    let port = &all["NET0#0"];
    assert_eq!(port.macs[0].to_string(), "02:00:00:00:00:01");
    assert_eq!(port.vlan.unwrap().tag, Tag { vlan: 100, priority: 3 });
    let up = &all["up"];
    assert!(up.is_member(0) && up.is_member(101) && !up.is_member(102) && !up.is_member(9999));
}

#[test]
fn guarantees_are_those_of_an_uplink_with_a_speed() {
    let all = |up: &str, a: &str, b: &str| {
        config(&format!(
            r#"{{"version": 1, "ports": {{"up": {{"socket": "/u", {up}}}, "a": {{"socket": "/a", {a}}},
            "b": {{"socket": "/b", {b}}}}}}}"#
        ))
    };
    let up = r#""uplink": true, "speed": 1000"#;
    let min = |rate: u32| format!(r#""min_tx_rate": {rate}"#);
    assert_eq!(all(up, &min(400), &min(600)).unwrap()["b"].min_tx_rate, 600);
    let capped = format!(r#"{}, "max_tx_rate": 5"#, min(6));
    for (up, a, b, told) in [
        (up, min(400), min(601), "b: min_tx_rate 601: with it 1001 Mbit/s are promised of the uplink's 1000"),
        (r#""uplink": true"#, min(1), min(0), "a: min_tx_rate 1: the uplink has no speed"),
        (r#""default": true"#, min(1), min(0), "a: min_tx_rate 1: there is no uplink"),
        (up, capped, min(0), "a: min_tx_rate 6: it is more than its max_tx_rate of 5"),
        (up, r#""speed": 3"#.to_owned(), min(0), "a: speed 3: only an uplink has a speed"),
        (up, r#""mirror": {"ports": ["c"]}"#.to_owned(), min(0), r#"a: mirror of "c": there is no such"#),
        (up, r#""mirror": {"ports": ["a"]}"#.to_owned(), min(0), "does not watch itself"),
        (up, r#""mirror": {"ports": [], "direction": "up"}"#.to_owned(), min(0), "unknown variant `up`"),
    ] {
        let error = all(up, &a, &b).unwrap_err();
        assert!(error.contains(told), "{a} {b}: {error}");
    }
}

#[test]
fn no_port_has_the_memory_of_another() {
    let limits = |text: &str| {
        config(&format!(r#"{{"version": 1, {text}}}"#)).map(|all| {
            let limits = all.values().map(|settings| settings.memory);
            limits.map(|limit| (limit.bytes >> 20, limit.regions)).collect::<Vec<_>>()
        })
    };
    let two = |whole: &str, a: &str| {
        limits(&format!(r#"{whole} "ports": {{"a": {{"socket": "/a"{a}}}, "b": {{"socket": "/b"}}}}"#))
    };
    assert_eq!(two("", "").unwrap(), [(1 << 20, 509), (1 << 20, 509)]);
    assert_eq!(two("", r#", "max_memory": 4194304"#).unwrap(), [(4 << 20, 509), (1 << 20, 509)]);
    assert_eq!(two(r#""memory": 1000,"#, r#", "max_memory": 300"#).unwrap(), [(300, 509), (700, 509)]);
    let many: Vec<String> = (0..256).map(|at| format!(r#""{at}": {{"socket": "/{at}"}}"#)).collect();
    let many = limits(&format!(r#""ports": {{{}}}"#, many.join(","))).unwrap();
    assert!(many.iter().all(|limit| *limit == (MEMORY / 256, 117)));
    for (whole, a, told) in [
        ("", r#", "max_memory": 0"#, "a: max_memory 0 MiB: a guest without memory"),
        (
            r#""memory": 1000,"#,
            r#", "max_memory": 1001"#,
            "a: max_memory 1001 MiB: with it the ports have more",
        ),
        (r#""memory": 1000,"#, r#", "max_memory": 1000"#, "b: max_memory 0 MiB: nothing is left for it"),
        ("", r#", "max_memory": 18446744073709551615"#, "a process has less"),
    ] {
        let error = two(whole, a).unwrap_err();
        assert!(error.contains(told) && error.contains("`memory` of the switch is"), "{error}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let port =
        |text: &str| config(&format!(r#"{{"version": 1, "ports": {{"a": {{"socket": "/s", {text}}}}}}}"#));
    for (text, told) in [
        (r#""mac": "02:00:00:00:00""#, "is not a MAC address"),
        (r#""mac": "03:00:00:00:00:01""#, "of one station"),
        (r#""vlan": 4095"#, "`vlan` 4095; 4094 is the highest"),
        (r#""trunk": "5-4""#, "`trunk` \"5-4\" is not a list of VLANs"),
        (r#""qos": 8"#, "7 is the highest"),
        (r#""mtu": 10"#, "68 is the least"),
        (r#""spoofcheck": true"#, "unknown field"),
        (r#""tap": "t0""#, "it has 2 of socket, tap, packet, cable and vduse"),
        (r#""tap": "a name/too long for one""#, "cannot be the name of a network interface"),
        (r#""cable": {"reach": "/c"}"#, "unknown variant"),
    ] {
        let error = port(text).unwrap_err();
        assert!(error.contains(told), "{text}: {error}");
    }
    for other in ["0", "2"] {
        let error = config(&format!(r#"{{"version": {other}}}"#)).unwrap_err();
        assert!(error.contains(&format!("version {other}")), "{error}");
    }
    let twice = r#"{"version": 1, "ports": {"a": {"socket": "/a", "mac": "02:00:00:00:00:01"},
        "b": {"socket": "/b", "mac": "02:00:00:00:00:01"}}}"#;
    assert!(config(twice).unwrap_err().contains("same address"));
    assert!(config(&twice.replace("/b", "/a")).unwrap_err().contains("same socket"));
}

#[test]
fn what_is_set_from_inside_needs_a_ceiling_that_makes_sense_and_a_pf() {
    let ports = |more: &str, port: &str| {
        config(&format!(
            r#"{{"version": 1, {more} "ports": {{"a": {{"socket": "/a", {port}}}, "up": {{"cable": {{"listen": "/c"}},
            "filter": {{"monitor": "/q", "device": "n0"}}}}}}}}"#
        ))
    };
    assert!(ports(r#""pf": "a", "allow": {"loopback": true},"#, r#""allow": {"vlan": "7"}"#).is_ok());
    for (more, port, told) in [
        (
            "",
            r#""allow": {}"#,
            "`allow` of a: what is set from inside lapses when the PF's device is reset: `pf`",
        ),
        (r#""allow": {},"#, r#""mtu": 1500"#, "`allow` of the switch: what is set from inside lapses"),
        (r#""pf": "b","#, r#""mtu": 1500"#, "there is no port b, which `pf` names"),
        (r#""pf": "a","#, r#""allow": {"vlan": "5000"}"#, "`allow` of a: \"5000\" is not a list of VLANs"),
        (r#""pf": "a","#, r#""allow": {"loopback": true}"#, "loopback is the switch's"),
        ("", r#""filter": {"monitor": "/q", "device": "n0"}"#, "a and up have the same device n0"),
    ] {
        let error = ports(more, port).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    // An uplink has none of the switch's.
    let text = r#"{"version": 1, "pf": "a", "allow": {}, "ports": {"a": {"socket": "/a"}, "up": {"cable": {"listen": "/c"}}}}"#;
    let read: Config = serde_json::from_str(text).unwrap();
    assert!(read.ceiling("a").is_some() && read.ceiling("up").is_none() && read.ceiling("b").is_none());
}

#[test]
fn a_vduse_device_has_a_name_that_the_kernel_takes_and_that_no_other_port_has() {
    let backend = |text: &str| {
        let config: Config =
            serde_json::from_str(&format!(r#"{{"version": 1, "ports": {{"a": {{"vduse": {text}}}}}}}"#))
                .map_err(|error| error.to_string())?;
        config.settings().and_then(|_| config.ports["a"].backend("a")).map_err(|error| error.to_string())
    };
    let device = |driver| PortBackend::Vduse(VduseConfig { name: "pen0".to_owned(), driver });
    assert_eq!(backend(r#"{"name": "pen0"}"#), Ok(device(VduseDriver::VirtioVdpa)));
    assert_eq!(backend(r#"{"name": "pen0", "driver": "vhost_vdpa"}"#), Ok(device(VduseDriver::VhostVdpa)));
    assert!(backend(r#"{"name": "pen0", "driver": "vfio"}"#).unwrap_err().contains("vhost_vdpa"));
    for name in ["", "control", "..", "a/b", "a b", &"x".repeat(64)] {
        let error = backend(&format!(r#"{{"name": "{name}"}}"#)).unwrap_err();
        assert!(error.contains("cannot be the name of a VDUSE device"), "{name}: {error}");
    }
    let two = |a: &str, b: &str| {
        config(&format!(r#"{{"version": 1, "ports": {{"a": {{"vduse": {a}}}, "b": {{"vduse": {b}}}}}}}"#))
    };
    assert!(two(r#"{"name": "x"}"#, r#"{"name": "y"}"#).is_ok());
    let error = two(r#"{"name": "x"}"#, r#"{"name": "x", "driver": "vhost_vdpa"}"#).unwrap_err();
    assert_eq!(error, "a and b have the same VDUSE device x");
    let both = r#"{"version": 1, "ports": {"a": {"socket": "/a", "vduse": {"name": "x"}}}}"#;
    assert!(config(both).unwrap_err().contains("it has 2 of socket, tap, packet, cable and vduse"));
}

#[test]
fn a_vduse_device_has_its_part_of_the_memory() {
    let text =
        r#"{"version": 1, "memory": 100, "ports": {"a": {"vduse": {"name": "x"}}, "b": {"socket": "/b"}}}"#;
    assert_eq!(config(text).unwrap()["a"].memory.bytes, 50 << 20);
}
