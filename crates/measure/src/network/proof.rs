//! Proof that the traffic of a pair of ends crosses the two interfaces that are meant, and no others: a short exchange, and
//! both interfaces' counters before and after it.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use penstock_host::{Command, process::quoted};

use super::{
    command::Exchange,
    ends::AddressedEnd,
    lease::{MARK, shell},
};

/// How long a driver has to count what passed, in tenths of a second: some ask their PF for it.
const TENTHS: u32 = 30;

/// Packets that an interface counted (`/sys/class/net/*/statistics`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets received (`rx_packets`).
    pub received: u64,
    /// Packets sent (`tx_packets`).
    pub sent: u64,
}

impl Counted {
    /// What was counted after `before`.
    pub fn since(self, before: Counted) -> Counted {
        let received = self.received.saturating_sub(before.received);
        Counted { received, sent: self.sent.saturating_sub(before.sent) }
    }
}

impl Display for Counted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets sent and {} received", self.sent, self.received)
    }
}

fn files(interface: &str) -> String {
    let directory = format!("/sys/class/net/{interface}/statistics");
    format!(
        "r={}; s={}\ncount() {{ read -r nr <\"$r\"; read -r ns <\"$s\"; }}\ncounted() {{ count; echo \"$1 $nr $ns\"; }}\n",
        quoted(&format!("{directory}/rx_packets")),
        quoted(&format!("{directory}/tx_packets"))
    )
}

/// Waits until an interface counted so much more than before, or long enough, and prints it.
fn settle(before: &str, received: u64, sent: u64) -> String {
    format!(
        "{before}\nn=0; while [ $n -lt {TENTHS} ]; do count; [ $((nr-br)) -ge {received} ] && [ $((ns-bs)) -ge {sent} ] && \
         break; n=$((n+1)); sleep 0.1; done\ncounted after\n"
    )
}

/// Prints what the server's interface has counted so far.
pub fn before(server: &AddressedEnd) -> Command {
    shell(&(files(&server.interface) + "counted before\n")).deadline(Duration::from_secs(20))
}

/// The same after the exchange.
pub fn after(server: &AddressedEnd, exchange: &Exchange, before: Counted) -> Command {
    let wait = settle(&format!("br={}; bs={}", before.received, before.sent), exchange.there, exchange.back);
    shell(&(files(&server.interface) + &wait)).deadline(Duration::from_secs(30))
}

/// The exchange, by the client, with its interface's counters and the route that the kernel takes.
pub fn exchange(
    client: &AddressedEnd,
    server: &AddressedEnd,
    exchange: &Exchange,
    mark: &str,
    timeout: Duration,
) -> Command {
    let mut script = files(&client.interface);
    script.push_str(&format!(
        "echo \"route $(\"$ip\" -4 -o route get {} from {} 2>&1)\"\ncounted before\nbr=$nr; bs=$ns\n\
         said=$({} 2>&1) || {{ echo failed $said; exit 0; }}\n",
        server.address, client.address, exchange.command
    ));
    script.push_str(&settle(":", exchange.back, exchange.there));
    shell(&script).env(MARK, mark).deadline(timeout)
}

/// What one end printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndReport {
    /// The interface that the route goes out of.
    pub device: Option<String>,
    /// What the tool said when it failed.
    pub failed: Option<String>,
    /// What its interface had counted before the exchange; `None` when that could not be read.
    pub before: Option<Counted>,
    /// What its interface had counted after the exchange; `None` when that could not be read.
    pub after: Option<Counted>,
}

/// Reads what one end printed.
pub fn read(text: &str) -> EndReport {
    let mut told = EndReport::default();
    for line in text.lines() {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split_whitespace();
        match key {
            "route" => {
                // "198.18.0.2 from 198.18.0.1 dev eth0 uid 0"; a gateway's `via` comes before `dev` too.
                let mut after = words.by_ref().skip_while(|word| *word != "dev");
                told.device = after.nth(1).map(str::to_owned);
            }
            "failed" => {
                told.failed = Some(rest.chars().filter(|c| !c.is_control()).take(300).collect());
            }
            "before" => told.before = counted(words),
            "after" => told.after = counted(words),
            _ => {}
        }
    }
    told
}

fn counted<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Counted> {
    Some(Counted { received: words.next()?.parse().ok()?, sent: words.next()?.parse().ok()? })
}

/// What both ends told of an exchange.
#[derive(Clone, Debug)]
pub struct Exchanged<'a> {
    /// The exchange, with the least number of packets each way.
    pub exchange: &'a Exchange,
    /// The client, as people call it, and its interface.
    pub client: (&'a str, &'a str),
    /// The server, the same.
    pub server: (&'a str, &'a str),
    /// What the client told.
    pub told: EndReport,
    /// What the server's interface counted.
    pub counted: (Counted, Counted),
}

impl Exchanged<'_> {
    /// Whether the traffic crossed the two interfaces.
    ///
    /// # Errors
    /// In words, when it did not, or nobody answered.
    pub fn judge(&self) -> Result<(), String> {
        let ((client, out), (server, _)) = (self.client, self.server);
        if let Some(said) = &self.told.failed {
            return Err(format!("{client} gets no answer from {server}: {said}"));
        }
        if self.told.device.as_deref() != Some(out) {
            let device = self.told.device.as_deref().unwrap_or("nowhere");
            return Err(format!("the kernel sends what goes from {client} to {server} out of {device}"));
        }
        let (Some(before), Some(after)) = (self.told.before, self.told.after) else {
            return Err(format!("the counters of {client} could not be read"));
        };
        let there = after.since(before);
        let here = self.counted.1.since(self.counted.0);
        let Exchange { there: sent, back, .. } = *self.exchange;
        for (who, what, counted, wanted) in [
            (client, "sent", there.sent, sent),
            (server, "received", here.received, sent),
            (server, "sent", here.sent, back),
            (client, "received", there.received, back),
        ] {
            if counted < wanted {
                return Err(format!(
                    "the traffic takes another way: {who} counted {counted} packets {what} of at least {wanted}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanged(exchange: &Exchange, text: &str, here: u64) -> Result<(), String> {
        let counted = (Counted { received: 5, sent: 5 }, Counted { received: 5 + here, sent: 5 + here });
        let (client, server) = (("NET0#0 inside a", "eth0"), ("NET0#1 inside b", "eth1"));
        Exchanged { exchange, client, server, told: read(text), counted }.judge()
    }

    #[test]
    fn traffic_that_takes_another_way_is_found() {
        let exchange = Exchange { command: Command::new("netperf"), there: 100, back: 100 };
        let good = "route 198.18.0.2 from 198.18.0.1 dev eth0 uid 0\nbefore 7 7\nafter 107 120\n";
        assert_eq!(exchanged(&exchange, good, 100), Ok(()));
        let why = |text: &str, here| exchanged(&exchange, text, here).unwrap_err();
        assert!(why(good, 99).contains("NET0#1 inside b counted 99 packets received"));
        assert!(why(&good.replace("dev eth0", "via 10.0.0.1 dev eth7"), 100).contains("out of eth7"));
        assert!(why(&good.replace("after 107", "after 90"), 100).contains("NET0#0 inside a counted 83"));
        assert!(why("route RTNETLINK answers: Network is unreachable\n", 100).contains("nowhere"));
        assert!(why("route x dev eth0\nbefore 1 1\nafter - 1\n", 100).contains("could not be read"));
        assert!(
            why("route x dev eth0\nbefore 1 1\nfailed no route to host\n", 0).contains("no route to host")
        );
    }
}
