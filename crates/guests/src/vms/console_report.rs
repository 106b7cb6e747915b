//! What a guest says about itself on its console (docs/console.md). Pure.
//!
//! ```text
//! penstock-guest: begin
//! penstock-nic: NAME MAC up|down MTU ADDRESS...
//! penstock-guest: ready
//! ```
//!
//! The console is the guest's, so every byte may be hostile: nothing here panics, and what comes out is bounded.

use penstock_model::{InterfaceAddress, InterfaceName, Mac};

/// More NICs of one report, and more addresses of one NIC, are not looked at.
const MOST: usize = 1024;

/// A longer line is none of these.
const LONGEST: usize = 64 << 10;

/// A network interface as a guest tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleNic {
    /// Its name inside the guest.
    pub name: InterfaceName,
    /// Its MAC address.
    pub mac: Mac,
    /// Whether it is up.
    pub up: bool,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its IP addresses.
    pub addresses: Vec<InterfaceAddress>,
}

/// The NICs of the last whole report in `log`; `None` when there is none. A guest that starts again reports again, and
/// from its `begin` on what it said before is not true any more.
pub fn parse(log: &[u8]) -> Option<Vec<ConsoleNic>> {
    let (mut whole, mut begun): (Option<Vec<ConsoleNic>>, Option<Vec<ConsoleNic>>) = (None, None);
    for line in log.split(|byte| *byte == b'\n').filter(|line| line.len() <= LONGEST) {
        // A kernel's message or a prompt may stand before it in the same line.
        let line = String::from_utf8_lossy(line);
        if let Some(words) = after(&line, "penstock-guest: ") {
            match words.trim_end() {
                "begin" => begun = Some(Vec::new()),
                "ready" => whole = begun.take().or(whole),
                _ => {}
            }
        } else if let (Some(words), Some(nics)) = (after(&line, "penstock-nic: "), &mut begun)
            && nics.len() < MOST
        {
            nics.extend(nic(words));
        }
    }
    whole
}

fn after<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    line.find(marker).map(|at| &line[at + marker.len()..])
}

fn nic(words: &str) -> Option<ConsoleNic> {
    let mut words = words.split_whitespace();
    let name = words.next()?.parse().ok()?;
    let mac = words.next()?.parse().ok()?;
    let up = match words.next()? {
        "up" => true,
        "down" => false,
        _ => return None,
    };
    let mtu = words.next()?.parse().ok()?;
    let addresses = words.take(MOST).filter_map(|word| word.parse().ok()).collect();
    Some(ConsoleNic { name, mac, up, mtu, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIC: &str = "penstock-nic: eth0 02:00:00:00:01:04 up 1500 192.0.2.7/24 fe80::1/64\r\n";

    fn names(log: &str) -> Option<Vec<String>> {
        parse(log.as_bytes()).map(|nics| nics.iter().map(|nic| nic.name.to_string()).collect())
    }

    #[test]
    fn a_report() {
        let log = format!("booting\r\npenstock-guest: begin\r\n{NIC}penstock-guest: ready\r\n/ # ");
        let nics = parse(log.as_bytes()).unwrap();
        assert_eq!(nics.len(), 1);
        assert_eq!((nics[0].up, nics[0].mtu, nics[0].addresses.len()), (true, 1500, 2));
        assert_eq!(nics[0].mac.to_string(), "02:00:00:00:01:04");
    }

    #[test]
    fn the_last_whole_one_counts() {
        let one = format!("penstock-guest: begin\n{NIC}penstock-guest: ready\n");
        let other = one.replace("eth0", "eth9");
        assert_eq!(names(&format!("{one}{other}")), Some(vec!["eth9".to_owned()]));
        // Begun, not ended.
        assert_eq!(names(&format!("{one}penstock-guest: begin\n")), Some(vec!["eth0".to_owned()]));
        assert_eq!(names("penstock-guest: begin\npenstock-guest: ready"), Some(vec![]));
    }

    #[test]
    fn what_is_none() {
        assert_eq!(names(""), None);
        assert_eq!(names("penstock-guest: ready\n"), None, "never begun");
        assert_eq!(names(&format!("penstock-guest: begin\n{NIC}")), None, "not ready");
        let log = "penstock-guest: begin\npenstock-nic: eth0\npenstock-nic: a/b 02:00:00:00:01:04 up 1500\n\
                   penstock-nic: eth1 02:00:00:00:01:04 sideways 1500\npenstock-nic: eth1 02:00:00:00:01:04 up -1\n\
                   penstock-guest: ready\n";
        assert_eq!(names(log), Some(vec![]), "lines that make no sense");
    }

    #[test]
    fn hostile_bytes_are_bounded() {
        let mut log = b"\xff\xfe\0penstock-guest: begin\n".to_vec();
        for _ in 0..5000 {
            log.extend(NIC.as_bytes());
        }
        log.extend(b"penstock-nic: ");
        log.resize(log.len() + LONGEST, b'x');
        log.extend(b"\npenstock-guest: ready\n");
        assert_eq!(parse(&log).unwrap().len(), MOST);
    }
}
