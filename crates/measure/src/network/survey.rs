//! What a place has before anything is changed there: programs, links, networks, ports in use. One command for all of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use penstock_host::Command;

use super::lease::{FIND_IP, SAY_BOOT, boot};

/// What a place has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Which run of its kernel this is (`/proc/sys/kernel/random/boot_id`); `None` where that cannot be read.
    pub boot: Option<String>,
    /// The programs that are there.
    pub programs: BTreeSet<String>,
    /// What netperf says its version is.
    pub netperf: Option<String>,
    /// What iperf3 says its version is.
    pub iperf3: Option<String>,
    /// Ports that somebody listens on, TCP or UDP.
    pub ports: BTreeSet<u16>,
    /// Networks and addresses that there is a route for.
    pub networks: Vec<(Ipv4Addr, u8)>,
    /// The interfaces that were asked about, by name.
    pub links: BTreeMap<String, LinkState>,
}

/// An interface (`Documentation/ABI/testing/sysfs-class-net`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Whether it was set up (`IFF_UP`).
    pub up: bool,
    /// Whether it has carrier; `None` where that cannot be told.
    pub carrier: Option<bool>,
    /// Megabits per second; `None` where the driver tells none.
    pub speed: Option<u32>,
}

/// The command that tells it. `own` is where this same program would be.
pub fn command(interfaces: &BTreeSet<String>, own: &str) -> Command {
    const SCRIPT: &str = "for p in netperf netserver iperf3 nft ovs-vsctl ping; do command -v $p >/dev/null 2>&1 && echo \"program $p\"; done\n\
         command -v netperf >/dev/null 2>&1 && echo \"netperf $(netperf -V 2>&1 | head -n 1)\"\n\
         command -v iperf3 >/dev/null 2>&1 && echo \"iperf3 $(iperf3 --version 2>&1 | head -n 1)\"\n\
         [ -x \"$0\" ] && echo 'program penstock'\n\
         while read -r _ local _ state _; do [ \"$state\" = 0A ] && echo \"port ${local##*:}\"; done </proc/net/tcp\n\
         [ -r /proc/net/tcp6 ] && while read -r _ local _ state _; do \
         [ \"$state\" = 0A ] && echo \"port ${local##*:}\"; done </proc/net/tcp6\n\
         for f in /proc/net/udp /proc/net/udp6; do [ -r $f ] && while read -r _ local _ state _; do \
         [ \"$state\" = 07 ] && echo \"port ${local##*:}\"; done <$f; done\n\
         case \"$(\"$ip\" -V 2>&1)\" in *iproute2*) echo 'program ip' ;; esac\n\
         \"$ip\" -4 route show table all 2>/dev/null | while read -r line; do echo \"route $line\"; done\n\
         get() { v=; { read -r v <\"$d/$1\"; } 2>/dev/null; [ -n \"$v\" ] || v=-; }\n\
         for i in \"$@\"; do d=/sys/class/net/$i; [ -d \"$d\" ] || continue; get flags; l=\"link $i $v\"; \
         get carrier; l=\"$l $v\"; get speed; echo \"$l $v\"; done\n\
         exit 0\n";
    // Names of interfaces are arguments, so that nothing has to be quoted.
    let script = format!("{FIND_IP}{SAY_BOOT}{SCRIPT}");
    Command::new("sh").args(["-c", &script, own]).args(interfaces)
}

/// Reads what the command printed; lines that are none of it are passed over.
pub fn read(text: &str) -> Survey {
    let mut survey = Survey::default();
    for line in text.lines() {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "boot" => survey.boot = boot(rest),
            "program" => drop(survey.programs.insert(rest.to_owned())),
            "netperf" => survey.netperf = version(rest, "Netperf version "),
            "iperf3" => survey.iperf3 = version(rest, "iperf "),
            "port" => survey.ports.extend(u16::from_str_radix(rest, 16)),
            "route" => survey.networks.extend(rest.split_whitespace().filter_map(network)),
            "link" => drop(link(rest).map(|(name, state)| survey.links.insert(name, state))),
            _ => {}
        }
    }
    survey
}

/// The version after these words; `None` where it is said otherwise.
fn version(line: &str, after: &str) -> Option<String> {
    let word = line.strip_prefix(after)?.split_whitespace().next()?;
    let plain = word.len() <= 40 && word.chars().all(|c| c.is_ascii_graphic());
    plain.then(|| word.to_owned())
}

fn network(word: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = word.split_once('/').unwrap_or((word, "32"));
    Some((address.parse().ok()?, prefix.parse().ok().filter(|prefix| *prefix <= 32)?))
}

fn link(words: &str) -> Option<(String, LinkState)> {
    let mut words = words.split(' ');
    let name = words.next()?.to_owned();
    let flags = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let carrier = match words.next()? {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    };
    // -1 is what drivers say that do not know.
    let speed = words.next()?.parse().ok().filter(|speed: &u32| *speed > 0 && *speed < u32::MAX);
    Some((name, LinkState { up: flags & 1 != 0, carrier, speed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_place_says_is_read() {
        let survey = read(
            "boot 6e1106c2-2bcd-4a76-992b-5ff2da8c0d89\nprogram ip\nprogram netperf\nnetperf Netperf version 2.7.1\niperf3 iperf 3.18 (cJSON 1.7.15)\nport 3241\n\
             port zz\nroute 10.20.30.0/24 dev eth0 proto kernel scope link src 10.20.30.200\n\
             route local 198.18.0.1 dev eth0 table local\nroute default via 10.0.0.1\n\
             link eth0 0x1003 1 1000\nlink eth1 0x1002 - -1\nlink eth2 odd\nsomething else\n",
        );
        assert_eq!(survey.boot.as_deref(), Some("6e1106c2-2bcd-4a76-992b-5ff2da8c0d89"));
        assert_eq!(survey.programs, ["ip", "netperf"].map(str::to_owned).into());
        assert_eq!((survey.netperf.as_deref(), survey.iperf3.as_deref()), (Some("2.7.1"), Some("3.18")));
        assert_eq!(survey.ports, [0x3241].into());
        assert!(survey.networks.contains(&(Ipv4Addr::new(10, 20, 30, 0), 24)));
        assert!(survey.networks.contains(&(Ipv4Addr::new(198, 18, 0, 1), 32)));
        let up = LinkState { up: true, carrier: Some(true), speed: Some(1000) };
        assert_eq!(survey.links, [("eth0".to_owned(), up), ("eth1".to_owned(), LinkState::default())].into());
    }

    #[test]
    fn an_unknown_version_is_none() {
        assert_eq!(read("netperf netperf: invalid option -- 'V'\n").netperf, None);
        assert_eq!(read("iperf3 iperf \n").iperf3, None);
    }
}
