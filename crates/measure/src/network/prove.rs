//! The proof of a pair's path, from what both of its places say.

use std::{
    thread,
    time::{Duration, Instant},
};

use penstock_host::{chain, interrupt};
use penstock_model::measurement::Tool;

use super::{
    NetworkTaker, Route,
    command::{self, Exchange},
    ends::AddressedEnd,
    lease::MARK,
    proof::{self, Counted, EndReport, Exchanged},
    site,
    test_path::said,
};

/// How long an exchange through a bridge's uplink may take.
const THROUGH_A_PF: Duration = Duration::from_secs(10);

/// What a client says whose server does not listen (`ECONNREFUSED`, in the C locale).
const REFUSED: &str = "Connection refused";

/// How long a server that refused is left alone before it is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// The shortest that it is waited for an answer.
const SHORTEST: Duration = Duration::from_millis(300);

/// How much longer an exchange may take whose packets come and go, but not all of them in time: as those of a VM on an emulated
/// processor that has the host's CPUs to share.
const TIMES_AS_LONG: u32 = 6;

/// Which part of an exchange's packets, one in so many, has to come and go in time for its path to count as slow and not as dead. TCP sends its
/// first packet some six times in that time when nobody answers.
const ALIVE: u64 = 5;

/// What else can be wrong where a bridge has an uplink.
fn hint(route: &Route) -> String {
    let Some(uplink) = &route.uplink else { return String::new() };
    let interface = &uplink.interface;
    format!(
        ", or {interface} does not take in what is for the MAC addresses behind a bridge (the igb that QEMU emulates does not)"
    )
}

impl NetworkTaker {
    /// Asks the server of a tool whether it answers, for less long than a sample would wait. One that refuses is asked again until then: iperf3's
    /// listens anew after each test, and for a moment does not.
    pub(super) fn answers(&self, tool: Tool, route: &Route) -> Result<(), String> {
        let at = self.listening(route, tool)?;
        let Some(greeting) = command::greeting(tool, route.client.address, at) else { return Ok(()) };
        let client = &self.sites[&route.client.place];
        let timeout = self.options.timeout / 4;
        let (from, to) = (&route.client.name, &route.server.name);
        let greeting = greeting.env(MARK, client.lease.client_mark()).env("LC_ALL", "C");
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed()).max(SHORTEST);
            match self.run_as_client(route, &greeting.clone().deadline(left))? {
                Ok(output) if output.status.success() => return Ok(()),
                Ok(output) => {
                    let said = said(&output);
                    let may_be_again = began.elapsed() + SHORTEST < timeout && !interrupt::pending();
                    if said.contains(REFUSED) && may_be_again {
                        thread::sleep(AGAIN);
                        continue;
                    }
                    return Err(format!(
                        "{from} gets no answer from {to}: the path may be down (the client said: {said})"
                    ));
                }
                Err(error) if site::timed_out(&error) => {
                    let _ = client.run(&client.lease.end_clients());
                    let seconds = timeout.as_secs_f64();
                    return Err(format!(
                        "{from} gets no answer from {to} within {seconds} s: the path may be down"
                    ));
                }
                Err(error) => return Err(chain(&error)),
            }
        }
    }

    /// Proves that what goes from one end to the other crosses the two interfaces that are meant.
    pub(super) fn prove(&self, route: &Route) -> Result<(), String> {
        self.lent(route)?;
        let answering = [Tool::Netperf, Tool::Iperf3, Tool::Probe].into_iter().find_map(|tool| {
            let at = self.listening(route, tool).ok()?;
            let own = self.runner(&route.client.place).ok().filter(|runner| runner.namespace.is_none());
            let own = own.map(|_| self.sites[&route.client.place].own_program(&self.testbed.program));
            command::exchange(tool, route.client.address, at, own)
        });
        let Some(exchange) = answering else {
            // Without a server there is nothing to prove: each tool says for itself what it lacks.
            if !route.servers.keys().any(|tool| self.listening(route, *tool).is_ok()) {
                return Ok(());
            }
            let (from, to) = (&route.client.name, &route.server.name);
            let place = self.sites[&route.client.place].place.describe();
            return Err(format!(
                "nothing can prove {place} that what goes from {from} to {to} crosses these two: install netperf or iperf3 at \
                 both ends"
            ));
        };
        let (before, told) = self.exchanged(route, &exchange)?;
        let after = if told.failed.is_none() {
            let server = &self.sites[&route.server.place];
            let after = server.run(&proof::after(&route.server, &exchange, before))?;
            proof::read(&after.text()).after.ok_or_else(|| uncounted(&route.server))?
        } else {
            before
        };
        let name =
            |addressed_end: &AddressedEnd| (addressed_end.name.clone(), addressed_end.interface.clone());
        let (from, to) = (name(&route.client), name(&route.server));
        let (client, server) = ((&*from.0, &*from.1), (&*to.0, &*to.1));
        Exchanged { exchange: &exchange, client, server, told, counted: (before, after) }
            .judge()
            .map_err(|why| if why.contains(" gets no answer ") { why + &hint(route) } else { why })
    }

    /// What the interface of an end that stays has counted so far.
    fn counted(&self, end: &AddressedEnd) -> Result<Counted, String> {
        let output = self.sites[&end.place].run(&proof::before(end))?;
        proof::read(&output.text()).before.ok_or_else(|| uncounted(end))
    }

    /// Has the client make an exchange, and tells what it said. One that has no end in time, although packets come and go, is of a slow path
    /// and not of a dead one: it is made once more, with more time. What the server's interface had counted before comes first.
    fn exchanged(&self, route: &Route, exchange: &Exchange) -> Result<(Counted, EndReport), String> {
        // What is silent through an uplink is silent for good: its NIC hands nothing on.
        let longest = route.uplink.as_ref().map_or(Duration::MAX, |_| THROUGH_A_PF);
        let timeout = self.options.timeout.min(longest);
        let client = &self.sites[&route.client.place];
        let mut before = self.counted(&route.server)?;
        let mut spent = Duration::ZERO;
        for timeout in [timeout, timeout * TIMES_AS_LONG] {
            let asked =
                proof::exchange(&route.client, &route.server, exchange, &client.lease.client_mark(), timeout);
            spent += timeout;
            match self.run_as_client(route, &asked)? {
                Ok(output) => return Ok((before, proof::read(&output.text()))),
                Err(error) if site::timed_out(&error) => {
                    let _ = client.run(&client.lease.end_clients());
                }
                Err(error) => return Err(chain(&error)),
            }
            let after = self.counted(&route.server)?;
            let here = after.since(before);
            if here.received < exchange.there.div_ceil(ALIVE) || here.sent < exchange.back.div_ceil(ALIVE) {
                let (from, to) = (&route.client.name, &route.server.name);
                let seconds = timeout.as_secs_f64();
                return Err(format!(
                    "{from} gets no answer from {to} within {seconds} s: the path may be down ({to} counted {here}){}",
                    hint(route)
                ));
            }
            before = after;
        }
        Err(format!(
            "the path from {} to {} is too slow to measure: {} packets each way took longer than {} s",
            route.client.name,
            route.server.name,
            exchange.there,
            spent.as_secs_f64()
        ))
    }
}

/// Why nothing can be said of an interface.
fn uncounted(end: &AddressedEnd) -> String {
    format!("the counters of {} could not be read", end.name)
}
