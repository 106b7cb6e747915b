//! Reads what `ip -json -details address` says of the interfaces inside a board.

use penstock_host::InterfaceReport;
use penstock_model::{InterfaceAddress, InterfaceName, Mac, inventory::Interface};
use serde::Deserialize;

#[derive(Deserialize)]
struct Link {
    ifindex: u32,
    ifname: String,
    #[serde(default)]
    flags: Vec<String>,
    mtu: u32,
    #[serde(default)]
    address: String,
    #[serde(default)]
    permaddr: Option<String>,
    #[serde(default)]
    parentdev: Option<String>,
    #[serde(default)]
    phys_port_name: Option<String>,
    #[serde(default)]
    linkinfo: Option<LinkInfo>,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
}

#[derive(Deserialize)]
struct Address {
    local: String,
    prefixlen: u8,
}

/// The interfaces but the loopback one.
///
/// # Errors
///
/// In words: it is not what `ip` prints, or an interface has a name that no interface can have.
pub fn read(json: &[u8]) -> Result<Vec<InterfaceReport>, String> {
    let links: Vec<Link> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let mut reports = Vec::new();
    for link in links {
        let has = |flag: &str| link.flags.iter().any(|set| set == flag);
        if has("LOOPBACK") {
            continue;
        }
        let name: InterfaceName = link.ifname.parse().map_err(|error| format!("{error}"))?;
        let Ok(mac) = link.address.parse::<Mac>() else {
            // A tunnel has no Ethernet address and is nobody's function.
            continue;
        };
        let up = has("UP");
        let addresses = (link.addr_info.iter())
            .filter_map(|address| format!("{}/{}", address.local, address.prefixlen).parse().ok())
            .collect::<Vec<InterfaceAddress>>();
        reports.push(InterfaceReport {
            index: link.ifindex,
            interface: Interface {
                name,
                mac,
                mtu: link.mtu,
                up,
                carrier: up.then(|| has("LOWER_UP")),
                speed: None,
                addresses,
                routes: Vec::new(),
                master: None,
                uppers: Vec::new(),
            },
            permanent_mac: link.permaddr.as_deref().and_then(|mac| mac.parse().ok()),
            device: link.parentdev,
            kind: link.linkinfo.and_then(|info| info.info_kind),
            port_name: link.phys_port_name,
            promiscuous: None,
            routes: None,
            master: None,
            lower: None,
        });
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ip_prints_is_read() {
        let json = br#"[
            {"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"],"mtu":65536,"address":"00:00:00:00:00:00"},
            {"ifindex":3,"ifname":"eth0","flags":["BROADCAST","UP","LOWER_UP"],"mtu":1500,
             "address":"02:00:00:00:00:01","permaddr":"02:00:00:00:00:02","parentdev":"0000:01:00.0",
             "addr_info":[{"family":"inet","local":"192.0.2.1","prefixlen":24}]}]"#;
        let reports = read(json).unwrap();
        let [eth0] = &*reports else { panic!("{reports:?}") };
        assert_eq!(eth0.interface.carrier, Some(true));
        assert_eq!(eth0.interface.addresses[0].to_string(), "192.0.2.1/24");
        assert_eq!(eth0.device.as_deref(), Some("0000:01:00.0"));
        assert!(eth0.permanent_mac.is_some());
        assert!(read(b"nonsense").is_err());
    }
}
