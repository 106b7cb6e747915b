//! Guests, from the inside.

use std::collections::BTreeSet;

use penstock_host::InterfaceReport;
use penstock_model::{
    Function, FunctionName, GuestKind, GuestName, InterfaceAddress, InterfaceRoute, Mtu, Outcome,
    TenantFunctionName,
    verdict::{Subject, Vantage},
};

use super::{
    lease::judge as lease,
    observation::{GuestUnobserved, Observation},
    writer::{Hidden, Unobserved, VerdictSheet, VerdictWriter},
};

/// Judges a guest and each of its functions.
pub fn judge(
    observation: &Observation<'_>,
    name: &GuestName,
    reached: &BTreeSet<&FunctionName>,
    sheet: &mut VerdictSheet,
) {
    let guest = &observation.model.guests[name];
    let nothing = BTreeSet::new();
    let mut page = sheet.page(Subject::Guest(name.clone()), Vantage::Host, &nothing);
    match observation.inside(name) {
        Ok(_) | Err(GuestUnobserved::Closed(_)) => page.put("running", "running", "running", Outcome::Pass),
        Err(GuestUnobserved::NotRunning(why)) => page.put("running", "running", why, Outcome::Fail),
        Err(GuestUnobserved::Unseen(why)) => page.put("running", "running", why, Outcome::Unknown),
    }
    if let Some(dns) = &guest.dns {
        let page = sheet.page(Subject::Guest(name.clone()), Vantage::Guest(name.clone()), &nothing);
        super::dns::judge(observation, name, dns, &mut page.hiding(Hidden::inside(guest)));
    }
    for function in &guest.functions {
        let subject = Subject::Function(function.name.clone());
        let mut page = sheet.page(subject.clone(), Vantage::Host, &function.best_effort);
        driver(observation, function, guest.kind, &mut page);
        let page = sheet.page(subject, Vantage::Guest(name.clone()), &function.best_effort);
        let mut page = page.hiding(Hidden::inside(guest));
        inside(observation, name, function, reached.contains(&function.name), &mut page);
    }
    nics(observation, name, sheet);
}

/// Judges the interface of each NIC of its own that a container has. What a VM makes of its own it may make otherwise.
fn nics(observation: &Observation<'_>, name: &GuestName, sheet: &mut VerdictSheet) {
    let nothing = BTreeSet::new();
    let guest = &observation.model.guests[name];
    for (nic, own) in guest.nics.iter().filter(|(_, own)| own.is_of_container()) {
        let function = FunctionName { nic: nic.clone(), vf: None };
        let function = TenantFunctionName { guest: name.clone(), function };
        let mut page = sheet.page(Subject::Tenant(function), Vantage::Guest(name.clone()), &nothing);
        let report = called(observation, name, nic.as_str());
        page.compare(
            "interface",
            nic.to_string(),
            report.as_ref().map(|report| report.interface.name.to_string()).map_err(Clone::clone),
        );
        page.compare(
            "mac",
            own.mac,
            report.as_ref().map(|report| report.interface.mac).map_err(Clone::clone),
        );
        let needed = Needed { mtu: own.mtu, up: true, carrier: true, addresses: &own.addresses };
        link(&needed, report.clone(), &mut page);
        if let (true, Ok(interface)) = (own.dhcp, nic.as_str().parse()) {
            lease(observation, name, (&interface, &own.addresses), report.clone(), &mut page);
        }
        routes(&own.routes, report, &mut page);
    }
}

/// The driver that the guest's kind needs.
fn driver(observation: &Observation<'_>, function: &Function, kind: GuestKind, page: &mut VerdictWriter<'_>) {
    let pf = observation.pf(&function.name.nic);
    let seen = match function.name.vf {
        None => pf.and_then(|pf| pf.driver.as_deref()),
        Some(index) => pf
            .and_then(|pf| pf.sriov.as_ref())
            .and_then(|sriov| sriov.vf(index))
            .and_then(|vf| vf.present.as_ref()?.driver.as_deref()),
    };
    let (wanted, right) = match kind {
        GuestKind::Container => ("a network driver", seen.is_some_and(|driver| !is_pass_through(driver))),
        GuestKind::Vm => ("a pass-through driver", seen.is_some_and(is_pass_through)),
    };
    let outcome = if right { Outcome::Pass } else { Outcome::Fail };
    page.put("driver", wanted, seen.unwrap_or("none"), outcome);
}

fn is_pass_through(driver: &str) -> bool {
    driver.contains("vfio") || driver == "pci-stub"
}

fn inside(
    observation: &Observation<'_>,
    guest: &GuestName,
    function: &Function,
    reached: bool,
    page: &mut VerdictWriter<'_>,
) {
    let named = interface_called(observation, guest, function);
    let seen = match (&named, observation.interface(&function.name)) {
        (Ok(report), _) => Ok(report.interface.name.clone()),
        // It is there, by another name.
        (Err(Unobserved::Absent(_)), Ok(report)) => Ok(report.interface.name.clone()),
        (Err(blind), _) => Err(blind.clone()),
    };
    page.compare("interface", function.interface.clone(), seen);

    // The rest is about the interface of that name; where there is none, about the function's own, if it is there.
    let report = match named {
        Err(Unobserved::Absent(_)) => observation.interface(&function.name),
        named => named,
    };
    device(observation, function, &report, page);
    let wanted_mac = match function.name.vf {
        Some(index) => {
            let wanted = observation.wanted_mac(&function.name.nic, index, function.settings.mac);
            if wanted.is_none() && !observation.model.nics[&function.name.nic].externally_managed {
                let why = "the PF has no known MAC to derive it from".to_owned();
                page.blind("mac", "the derived address", Unobserved::Unknown(why));
            }
            wanted
        }
        None => function.settings.mac,
    };
    if let Some(wanted) = wanted_mac {
        let seen = report.as_ref().map(|report| report.interface.mac);
        page.compare("mac", wanted, seen.map_err(Clone::clone));
    }
    let of_nic = || observation.model.nics[&function.name.nic].mtu.filter(|_| function.name.vf.is_none());
    let needed = Needed {
        mtu: function.mtu.or_else(of_nic),
        up: true,
        carrier: reached,
        addresses: &function.addresses,
    };
    link(&needed, report.clone(), page);
    if function.dhcp {
        lease(observation, guest, (&function.interface, &function.addresses), report.clone(), page);
    }
    routes(&function.routes, report, page);
}

/// Judges the routes over an interface inside a guest.
fn routes(
    wanted: &[InterfaceRoute],
    report: Result<&InterfaceReport, Unobserved>,
    page: &mut VerdictWriter<'_>,
) {
    let there = report.and_then(|report| {
        report.routes.as_ref().ok_or_else(|| Unobserved::Unknown("its routes were not reported".to_owned()))
    });
    for route in wanted {
        let text = with_metric(route);
        let (seen, outcome) = match &there {
            Ok(routes) if routes.iter().any(|there| route.is_met_by(there)) => (text.clone(), Outcome::Pass),
            // Of all routes only those that lead to the same place could have been meant.
            Ok(routes) => (instead(route, routes), Outcome::Fail),
            Err(unobserved) => unobserved.clone().outcome(),
        };
        page.put_item("routes", Some(text.clone()), text, seen, outcome);
    }
}

/// What leads to the same place as a route that is not there.
fn instead(route: &InterfaceRoute, there: &[InterfaceRoute]) -> String {
    let same = |other: &&InterfaceRoute| other.destination.same_network(route.destination);
    let texts: Vec<String> = there.iter().filter(same).map(with_metric).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// A route with its metric: two of one guest may differ in nothing else.
fn with_metric(route: &InterfaceRoute) -> String {
    match route.priority {
        Some(metric) => format!("{route} metric {metric}"),
        None => route.to_string(),
    }
}

/// The interface that has the name that the model gives.
fn interface_called<'s>(
    observation: &'s Observation<'_>,
    guest: &GuestName,
    function: &Function,
) -> Result<&'s InterfaceReport, Unobserved> {
    called(observation, guest, function.interface.as_str())
}

/// The interface of this name inside a guest.
fn called<'s>(
    observation: &'s Observation<'_>,
    guest: &GuestName,
    name: &str,
) -> Result<&'s InterfaceReport, Unobserved> {
    let home = observation.inside(guest).map_err(|dark| Unobserved::Unknown(dark.why()))?;
    let interfaces = home.interfaces.as_ref().map_err(|why| Unobserved::Unknown(why.clone()))?;
    home.named(name).ok_or_else(|| {
        let names: Vec<&str> = interfaces.iter().map(|report| report.interface.name.as_str()).collect();
        Unobserved::Absent(match names[..] {
            [] => "there is no interface".to_owned(),
            _ => format!("there is only {}", names.join(", ")),
        })
    })
}

/// Which function the interface really is.
fn device(
    observation: &Observation<'_>,
    function: &Function,
    report: &Result<&InterfaceReport, Unobserved>,
    page: &mut VerdictWriter<'_>,
) {
    let wanted = match observation.address(&function.name) {
        Ok(address) => observation.name_of(address),
        Err(blind) => return page.blind("device", &function.name, blind),
    };
    let seen = report.as_ref().map_err(|blind| (*blind).clone()).and_then(|report| {
        if page.hidden.hides("device") {
            // Which of the host's functions it is was worked out from what it says of itself.
            return Err(Unobserved::Unknown("it is known by its MAC address and its name alone".to_owned()));
        }
        observation.behind(report).map(|address| observation.name_of(address)).ok_or_else(|| {
            match &report.device {
                Some(device) => Unobserved::Unknown(format!("{device} cannot be traced to a PCI function")),
                None => match &report.kind {
                    Some(kind) => Unobserved::Absent(format!("{} is a {kind}", report.interface.name)),
                    None => Unobserved::Unknown("the kernel does not say which device it is".to_owned()),
                },
            }
        })
    });
    page.compare("device", wanted, seen);
}

/// What is wanted of an interface, on the host or inside a guest.
pub struct Needed<'a> {
    pub mtu: Option<Mtu>,
    pub up: bool,
    pub carrier: bool,
    pub addresses: &'a [InterfaceAddress],
}

/// Judges an interface's link and addresses.
pub fn link(needed: &Needed<'_>, report: Result<&InterfaceReport, Unobserved>, page: &mut VerdictWriter<'_>) {
    let interface = report.map(|report| &report.interface);
    let look = || interface.as_ref().map_err(Clone::clone);
    if let Some(mtu) = needed.mtu {
        page.compare("mtu", mtu.get(), look().map(|interface| interface.mtu));
    }
    if needed.up {
        page.compare("up", "up", look().map(|interface| if interface.up { "up" } else { "down" }));
    }
    if needed.carrier {
        let seen = look().and_then(|interface| match interface.carrier {
            _ if !interface.up => Ok("none: the interface is down".to_owned()),
            Some(true) => Ok("carrier".to_owned()),
            Some(false) => Ok("no carrier".to_owned()),
            None => Err(Unobserved::Unknown("it is not reported".to_owned())),
        });
        page.compare("carrier", "carrier".to_owned(), seen);
    }
    for address in needed.addresses {
        let (seen, outcome) = match look() {
            Ok(interface) if interface.addresses.contains(address) => (address.to_string(), Outcome::Pass),
            Ok(interface) => {
                let seen: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
                let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
                (seen, Outcome::Fail)
            }
            Err(blind) => blind.outcome(),
        };
        page.put_item("addresses", Some(address.to_string()), address, seen, outcome);
    }
}
