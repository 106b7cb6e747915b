//! What somebody has put at the interfaces of functions, for each of their packets to pass through.

use std::collections::BTreeMap;

use penstock_model::{Bdf, inventory::Lifelines, text::one_line};

use crate::{
    InterfaceReport, Netlink, Root, bpf, chain,
    pci::{function_of_device, is_representor},
};

/// What is listed, each with the index of its interface; or why it is not.
type Listed = Result<Vec<(u32, String)>, String>;

/// Adds what this kernel tells, and what came in the way of it.
pub(super) fn packet_programs(root: &Root, netlink: &mut Netlink, found: &mut Lifelines) {
    let links = match netlink.links() {
        Ok(links) => links,
        Err(error) => return found.unseen_packet_programs.push(one_line(&chain(&error))),
    };
    let at = interfaces(&links, |device| function_of_device(root, device));
    let interfaces: Vec<u32> = at.keys().copied().collect();
    // Each is asked for by itself: where one is not told, the others are.
    let (tcx, untold) = bpf::tcx_programs(root, &interfaces);
    let listed = [
        netlink.xdp_programs().map_err(|error| chain(&error)),
        netlink.queueing_disciplines().map_err(|error| chain(&error)),
        Ok(tcx),
        untold.map_or_else(|| Ok(Vec::new()), |error| Err(chain(&error))),
    ];
    attributed(listed, &at, found);
}

/// The interfaces that functions have themselves, by their indices, with their names. A representor stands for a VF or for a part of the
/// card, and is the PF's device by its parent alone.
fn interfaces(
    links: &[InterfaceReport],
    function: impl Fn(&str) -> Option<Bdf>,
) -> BTreeMap<u32, (Bdf, String)> {
    let own = links.iter().filter(|link| !link.port_name.as_deref().is_some_and(is_representor));
    let of = |link: &InterfaceReport| {
        Some((link.index, (function(link.device.as_deref()?)?, link.interface.name.to_string())))
    };
    own.filter_map(of).collect()
}

/// Gives what was listed to the functions whose interfaces it is at.
fn attributed<const N: usize>(listed: [Listed; N], at: &BTreeMap<u32, (Bdf, String)>, found: &mut Lifelines) {
    let mut programs = Vec::new();
    for listed in listed {
        match listed {
            Ok(listed) => programs.extend(listed),
            Err(why) => found.unseen_packet_programs.push(one_line(&why)),
        }
    }
    for (index, what) in programs {
        let Some((function, name)) = at.get(&index) else { continue };
        let told = found.packet_programs.entry(*function).or_default();
        let what = format!("{what} at {name}");
        if !told.contains(&what) {
            told.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::NetlinkError;

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

    fn told<const N: usize>(listed: [Listed; N], links: &[InterfaceReport]) -> Lifelines {
        let mut found = Lifelines::default();
        attributed(listed, &interfaces(links, |device| device.parse().ok()), &mut found);
        found
    }

    fn refused() -> Listed {
        Err(chain(&NetlinkError::answered("list them", Errno::EPERM, None)))
    }

    #[test]
    fn what_cannot_be_listed_hides_nothing_else_and_is_told() {
        let links = [link(2, "eno1", None)];
        let seen = || Ok(vec![(2, "a".to_owned())]);
        for listed in [[refused(), seen(), Ok(Vec::new())], [seen(), Ok(Vec::new()), refused()]] {
            let found = told(listed, &links);
            assert_eq!(found.packet_programs[&PF.parse().unwrap()], ["a at eno1"]);
            assert_eq!(found.unseen_packet_programs.len(), 1, "{found:?}");
            assert!(found.unseen_packet_programs[0].contains("list them"), "{found:?}");
        }
        assert_eq!(told([Ok(Vec::new()), Ok(Vec::new())], &links), Lifelines::default());
        assert_eq!(told([seen(), refused(), refused()], &links).unseen_packet_programs.len(), 2);
    }

    #[test]
    fn a_representors_own_are_not_the_pfs() {
        let clsact = || "the place of tc's filters (clsact)".to_owned();
        let disciplines = (2..6).map(|index| (index, clsact())).chain([(2, clsact())]).collect();
        let links = [
            link(2, "eno1", Some("p0")),
            link(3, "eno1_0", Some("pf0vf0")),
            link(4, "eno1_1", Some("c1pf0vf1")),
            link(5, "eno2", None),
        ];
        let found = told([Ok(Vec::new()), Ok(disciplines)], &links);
        let at = |name: &str| format!("{} at {name}", clsact());
        assert_eq!(found.packet_programs[&PF.parse().unwrap()], [at("eno1"), at("eno2")]);
    }
}
