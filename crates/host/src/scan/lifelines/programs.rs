//! What somebody has put at the interfaces of functions, for each of their packets to pass through.

use std::collections::BTreeMap;

use penstock_model::{Bdf, inventory::Lifelines, text::one_line};

use crate::{
    InterfaceReport, Netlink, NetlinkError, Root, chain,
    pci::{function_of_device, is_representor},
};

/// What netlink lists: each with the index of its interface.
type Listed = Result<Vec<(u32, String)>, NetlinkError>;

/// Adds what this kernel tells, and what came in the way of it.
pub(super) fn packet_programs(root: &Root, netlink: &mut Netlink, found: &mut Lifelines) {
    // Each is asked for by itself: where one is not told, the other is.
    let listed = [netlink.xdp_programs(), netlink.queueing_disciplines()];
    let function = |device: &str| function_of_device(root, device);
    attributed(listed, || netlink.links(), function, found);
}

/// Gives what was listed to the functions whose interfaces it is at.
fn attributed(
    listed: [Listed; 2],
    links: impl FnOnce() -> Result<Vec<InterfaceReport>, NetlinkError>,
    function: impl Fn(&str) -> Option<Bdf>,
    found: &mut Lifelines,
) {
    let mut programs = Vec::new();
    for listed in listed {
        match listed {
            Ok(listed) => programs.extend(listed),
            Err(error) => found.unseen_packet_programs.push(one_line(&chain(&error))),
        }
    }
    // On most machines nobody has put anything anywhere.
    if programs.is_empty() {
        return;
    }
    let links = match links() {
        Ok(links) => links,
        Err(error) => return found.unseen_packet_programs.push(one_line(&chain(&error))),
    };
    let mut told: BTreeMap<Bdf, Vec<String>> = BTreeMap::new();
    for (index, what) in programs {
        let Some(link) = links.iter().find(|link| link.index == index) else { continue };
        // It stands for a VF or for a part of the card, and is the PF's device by its parent alone.
        if link.port_name.as_deref().is_some_and(is_representor) {
            continue;
        }
        if let Some(function) = link.device.as_deref().and_then(&function) {
            let told = told.entry(function).or_default();
            let what = format!("{what} at {}", link.interface.name);
            if !told.contains(&what) {
                told.push(what);
            }
        }
    }
    found.packet_programs = told;
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    const PF: &str = "0000:01:00.0";

    fn link(index: u32, name: &str, port: Option<&str>) -> InterfaceReport {
        serde_json::from_value(serde_json::json!({
            "index": index,
            "interface": {
                "name": name, "mac": "02:00:00:00:00:01", "mtu": 1500, "up": true, "carrier": null, "speed": null,
                "addresses": [],
            },
            "permanent_mac": null,
            "device": PF,
            "kind": null,
            "port_name": port,
        }))
        .unwrap()
    }

    fn told(listed: [Listed; 2], links: Vec<InterfaceReport>) -> Lifelines {
        let mut found = Lifelines::default();
        attributed(listed, || Ok(links), |device| device.parse().ok(), &mut found);
        found
    }

    fn refused() -> Listed {
        Err(NetlinkError::answered("list them", Errno::EPERM, None))
    }

    #[test]
    fn what_cannot_be_listed_hides_nothing_else_and_is_told() {
        let links = || vec![link(2, "eno1", None)];
        for listed in [[refused(), Ok(vec![(2, "a".to_owned())])], [Ok(vec![(2, "a".to_owned())]), refused()]]
        {
            let found = told(listed, links());
            assert_eq!(found.packet_programs[&PF.parse().unwrap()], ["a at eno1"]);
            assert_eq!(found.unseen_packet_programs.len(), 1, "{found:?}");
            assert!(found.unseen_packet_programs[0].contains("list them"), "{found:?}");
        }
        let found = told([Ok(Vec::new()), Ok(Vec::new())], links());
        assert_eq!(found, Lifelines::default());
        let mut found = Lifelines::default();
        let links = || Err(NetlinkError::answered("list links", Errno::EPERM, None));
        attributed([Ok(vec![(2, "a".to_owned())]), refused()], links, |_| None, &mut found);
        assert_eq!(found.unseen_packet_programs.len(), 2, "{found:?}");
    }

    #[test]
    fn a_representors_own_are_not_the_pfs() {
        let clsact = || "the place of tc's filters (clsact)".to_owned();
        let disciplines = (2..6).map(|index| (index, clsact())).chain([(2, clsact())]).collect();
        let links = vec![
            link(2, "eno1", Some("p0")),
            link(3, "eno1_0", Some("pf0vf0")),
            link(4, "eno1_1", Some("c1pf0vf1")),
            link(5, "eno2", None),
        ];
        let found = told([Ok(Vec::new()), Ok(disciplines)], links);
        let at = |name: &str| format!("{} at {name}", clsact());
        assert_eq!(found.packet_programs[&PF.parse().unwrap()], [at("eno1"), at("eno2")]);
    }
}
