//! Rates of containers' functions, held by the kernel's traffic control (`tc`(8)) at the interface inside.
//!
//! What the guest sends passes a token bucket (`sch_tbf`) at the root of its interface: one rate for one interface is
//! all that is wanted, and htb would need a class and a default for it. Below it lies `fq_codel` where the kernel has
//! it, so that one flow that fills the queue does not hold up the others; else the token bucket's own queue of 50 ms.
//!
//! What it receives is led to an intermediate interface (`ifb`) and shaped there in the same way. A policer
//! (`act_police`) would need no such interface, but it drops what comes too early instead of delaying it, and TCP then
//! settles well below the rate or swings around it.
//!
//! All of it is set by the [start script](super::start_script). It goes with the guest: an interface loses its queues when it changes its namespace
//! (`net/core/dev.c`, `__dev_change_net_namespace`), and an ifb dies with the namespace.
//!
//! A container's root has `CAP_NET_ADMIN` over its own interfaces and can take the limits away, and frames that it sends
//! around the kernel's queues (`PACKET_QDISC_BYPASS`, XDP) are not counted. [`Containers::verdicts`] tells the former. A
//! limit that a guest cannot touch is the VF's own (`max_tx_rate`).
//!
//! [`Containers::verdicts`]: super::Containers::verdicts

use std::{fmt::Write, time::Duration};

use penstock_host::{Command, process, process::quoted};
use penstock_model::{Function, InterfaceName, TxRate, Verdict, verdict::Subject};
use penstock_plan::action::{GuestDefinition, GuestFunction};
use serde::Deserialize;

use crate::error::GuestError;

/// How long `tc` may take to tell what is set.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Refuses rates that cannot be set here, before anything is started.
///
/// # Errors
///
/// [`GuestError::NoRate`] with the function and what is missing: a rate of 0, a program, or a part of the kernel.
pub fn check(definition: &GuestDefinition) -> Result<(), GuestError> {
    for function in &definition.functions {
        let wanted = [("egress_rate", function.egress_rate), ("ingress_rate", function.ingress_rate)];
        for (what, rate) in wanted.into_iter().filter_map(|(what, rate)| Some((what, rate?))) {
            let refused = |why: String| GuestError::NoRate {
                guest: definition.guest.clone(),
                what: what.to_owned(),
                interface: function.interface.to_string(),
                why,
            };
            if rate.0 == 0 {
                return Err(refused("a rate of 0 would let nothing pass".to_owned()));
            }
            if let Some(program) =
                ["nsenter", "tc", "ip"].into_iter().find(|name| process::find(name).is_none())
            {
                return Err(refused(process::not_installed(program)));
            }
        }
    }
    Ok(())
}

/// Whether any rate is to be held for it.
pub fn wanted(function: &GuestFunction) -> bool {
    function.egress_rate.is_some() || function.ingress_rate.is_some()
}

/// How much may be sent at once, in bytes: 10 ms of the rate, which the eye of a one-second mean does not see; where that
/// is more than the two largest frames that offloads make, those or 1 ms. Never less than two frames, and two jumbo
/// frames at least: what is larger than the bucket would never pass, and a guest can raise its MTU.
fn burst(rate: TxRate, mtu: u32) -> u64 {
    let in_ms = |ms: u64| u64::from(rate.0) * 125 * ms;
    let frames = 2 * (u64::from(mtu) + 22);
    in_ms(10).min(in_ms(1).max(128 << 10)).max(frames.max(20_000))
}

/// The parameters of a token bucket for `rate`; `bps` is bytes a second to tc.
fn bucket(rate: TxRate, mtu: u32) -> String {
    let burst = burst(rate, mtu);
    // 50 ms of the rate wait at most, where `fq_codel` does not decide; a queue's length is 32 bits.
    let queue = (u64::from(rate.0) * 6250).min(32 << 20) + burst;
    format!("tbf rate {}bps burst {burst} limit {queue}", u64::from(rate.0) * 125_000)
}

/// The interface through which the function at this position in the guest's list receives, when that is limited.
fn intermediate(position: usize) -> String {
    format!("penstock-in{position}")
}

/// Adds the commands that set the rates of the function at this position; `mtu` is what its interface has on the host.
pub fn commands(script: &mut String, position: usize, function: &GuestFunction, mtu: u32) {
    let mtu = function.mtu.map_or(mtu, |mtu| mtu.get());
    let shape = |script: &mut String, interface: &str, rate: TxRate| {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            script,
            "inside tc qdisc replace dev {interface} root handle 1: {}\n\
             inside tc qdisc add dev {interface} parent 1:1 handle 10: fq_codel 2>/dev/null || :",
            bucket(rate, mtu)
        );
    };
    // It has neither spaces nor slashes, but quotes and dollars it may have.
    let interface = quoted(function.interface.as_str());
    if let Some(rate) = function.egress_rate {
        let _ = writeln!(script, "say egress_rate {interface}");
        shape(script, &interface, rate);
    }
    if let Some(rate) = function.ingress_rate {
        let through = intermediate(position);
        let _ = writeln!(
            script,
            "say ingress_rate {interface}\n\
             modprobe -q ifb numifbs=0 2>/dev/null || :\n\
             inside ip link add name {through} type ifb\n\
             inside ip link set dev {through} addrgenmode none up"
        );
        shape(script, &through, rate);
        let _ = writeln!(
            script,
            "inside tc qdisc replace dev {interface} ingress\n\
             inside tc filter add dev {interface} parent ffff: protocol all pref 1 matchall \
             action mirred egress redirect dev {through} 2>/dev/null ||\n    \
             inside tc filter add dev {interface} parent ffff: protocol all pref 1 u32 match u32 0 0 \
             action mirred egress redirect dev {through}"
        );
    }
}

/// One verdict for each rate that is asked for. `inside` tells the present name inside of the interface of the function
/// at a position; `pid` is the guest's first process.
pub fn verdicts(
    functions: &[Function],
    pid: Result<u32, String>,
    inside: impl Fn(usize) -> Result<InterfaceName, String>,
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (position, function) in functions.iter().enumerate() {
        let mut judge = |attribute: &str, rate: Option<TxRate>, look: Look| {
            let Some(rate) = rate else { return };
            let seen = pid.clone().and_then(|pid| {
                let interface = inside(position)?;
                look(&|arguments| tc(pid, arguments), &interface, rate)
            });
            let best_effort = function.best_effort.contains(attribute);
            let subject = Subject::Function(function.name.clone());
            verdicts.push(Verdict {
                best_effort,
                ..Verdict::of_host(subject, attribute, rate.to_string(), seen)
            });
        };
        judge("egress_rate", function.egress_rate, egress);
        judge("ingress_rate", function.ingress_rate, ingress);
    }
    verdicts
}

type Tc<'a> = &'a dyn Fn(&[&str]) -> Result<String, String>;
type Seen = Result<(String, bool), String>;
type Look = fn(Tc<'_>, &InterfaceName, TxRate) -> Seen;

/// What `tc` of the host says in the network namespace of process `pid`.
fn tc(pid: u32, arguments: &[&str]) -> Result<String, String> {
    let find = |name: &str| process::find(name).ok_or_else(|| process::not_installed(name));
    let command = Command::new(find("nsenter")?)
        .args(["-t", &pid.to_string(), "-n", "--"])
        .arg(find("tc")?)
        .args(["-j"])
        .args(arguments)
        .deadline(TIMEOUT);
    command.succeed().map(|output| output.text()).map_err(|error| error.to_string())
}

fn egress(tc: Tc<'_>, interface: &InterfaceName, wanted: TxRate) -> Seen {
    root_rate(&tc(&["qdisc", "show", "dev", interface.as_str()])?, wanted)
}

fn ingress(tc: Tc<'_>, interface: &InterfaceName, wanted: TxRate) -> Seen {
    match redirect(&tc(&["filter", "show", "dev", interface.as_str(), "ingress"])?)? {
        Ok(through) => root_rate(&tc(&["qdisc", "show", "dev", through.as_str()])?, wanted),
        Err(instead) => Ok((instead, false)),
    }
}

#[derive(Deserialize)]
struct Qdisc {
    kind: String,
    #[serde(default)]
    root: bool,
    #[serde(default)]
    options: Bucket,
}

#[derive(Default, Deserialize)]
struct Bucket {
    /// Bytes a second.
    rate: Option<u64>,
    /// How many bytes the bucket holds.
    burst: Option<u64>,
}

/// Whether `tc -j qdisc show` of one interface shows that all it sends is held to this rate, and what it shows.
///
/// # Errors
///
/// It is not what `tc` prints.
pub fn root_rate(text: &str, wanted: TxRate) -> Seen {
    let qdiscs: Vec<Qdisc> = parse(text)?;
    // An interface without a queue, as every virtual one at first, may have none at all.
    let Some(root) = qdiscs.iter().find(|qdisc| qdisc.root) else {
        return Ok(("no limit".to_owned(), false));
    };
    if root.kind != "tbf" {
        return Ok((format!("no limit ({})", shown(&root.kind)), false));
    }
    let (Some(rate), Some(most)) = (root.options.rate, root.options.burst) else {
        return Err("tc shows a token bucket without a rate".to_owned());
    };
    let mut seen = format!("{} Mbit/s", in_mbit(rate));
    // The kernel keeps it as a time, and rounds. A bucket that holds seconds of the rate is no limit.
    let fits = most <= burst(wanted, 0xffff) / 8 * 9;
    if !fits {
        let _ = write!(seen, " with {most} bytes at once");
    }
    Ok((seen, fits && rate == u64::from(wanted.0) * 125_000))
}

#[derive(Deserialize)]
struct Filter {
    kind: String,
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    chain: u64,
    options: Option<serde_json::Map<String, serde_json::Value>>,
}

/// The interface to which `tc -j filter show dev X ingress` shows that everything is led; what is shown instead, else.
///
/// # Errors
///
/// It is not what `tc` prints.
pub fn redirect(text: &str) -> Result<Result<InterfaceName, String>, String> {
    let filters: Vec<Filter> = parse(text)?;
    // Each classifier is listed once by itself and, for u32, with each of its tables.
    let matches =
        |filter: &&Filter| filter.options.as_ref().is_some_and(|options| !options.contains_key("ht_divisor"));
    let mut real = filters.iter().filter(matches);
    let (Some(filter), None) = (real.next(), real.next()) else {
        let count = filters.iter().filter(matches).count();
        return Ok(Err(if count == 0 { "no limit".to_owned() } else { format!("{count} filters") }));
    };
    let foreign = || Ok(Err(format!("a filter ({}) that does not limit", shown(&filter.kind))));
    let Some(options) = &filter.options else { return foreign() };
    let value = |name: &str| options.get(name);
    let everything = match filter.kind.as_str() {
        "matchall" => true,
        "u32" => value("match").is_some_and(|one| one["mask"] == "0" && one["value"] == "0"),
        _ => false,
    };
    let actions = value("actions").and_then(|actions| actions.as_array()).map(Vec::as_slice);
    let Some([action]) = actions.filter(|_| everything && filter.protocol == "all" && filter.chain == 0)
    else {
        return foreign();
    };
    if action["kind"] != "mirred" || action["mirred_action"] != "redirect" || action["direction"] != "egress"
    {
        return foreign();
    }
    let through = action["to_dev"].as_str().unwrap_or_default();
    through.parse().map(Ok).map_err(|_| format!("tc names no interface: {:?}", shown(through)))
}

/// tc prints nothing at all where it has nothing to list.
fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<Vec<T>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(|error| format!("the output of tc cannot be parsed: {error}"))
}

/// Of what a guest may have made up, what a terminal can be shown.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).take(16).collect()
}

/// Bytes a second in Mbit/s, to the bit.
fn in_mbit(rate: u64) -> String {
    let bits = u128::from(rate) * 8;
    let (whole, part) = (bits / 1_000_000, bits % 1_000_000);
    if part == 0 { whole.to_string() } else { format!("{whole}.{part:06}").trim_end_matches('0').to_owned() }
}
