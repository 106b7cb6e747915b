//! Reads back what a step was to make true.

use std::collections::BTreeSet;

use penstock_host::{Root, files, managers};
use penstock_model::{Bdf, InterfaceAddress, Mac, VfAttribute, VfIndex, inventory::VfState};
use penstock_plan::{Direction, ExecuteError, Fact};

use super::{Found, HostExecutor, from_netlink, from_pci};

/// So many VFs that are lacking are named.
const NAMED: usize = 16;

/// `IFF_UP` in `/sys/class/net/NAME/flags`.
const UP: u32 = 1;

/// What is seen of a fact: so, or what is so instead.
type Seen = Result<(), String>;

/// Whether a fact is so.
///
/// # Errors
///
/// When that cannot be seen: the kernel or the driver does not tell of it, its PF has no interface here to be asked at, or it is a guest's. A file
/// of ours, or one of an interface's, that cannot be read is told as not so.
pub fn holds(executor: &mut HostExecutor, fact: &Fact) -> Result<Seen, ExecuteError> {
    match fact {
        Fact::LeftAlone { manager, pf, functions } => {
            let told = managers::left_alone(&executor.root, *manager, *pf);
            Ok(same(told.as_ref() == Some(functions), || {
                match managers::is_unread(&executor.root, *manager, *pf) {
                    true => "it has not read its file".to_owned(),
                    false => "its file says otherwise".to_owned(),
                }
            }))
        }
        Fact::Autoprobe { pf, on } => {
            let at = format!("could not read driver autoprobe of {pf}");
            let seen = executor.function(*pf).autoprobe().map_err(|error| from_pci(&at, error))?;
            Ok(same(seen == *on, || format!("it is {}", if seen { "on" } else { "off" })))
        }
        Fact::VfCount { pf, count } => vf_count(executor, *pf, *count),
        Fact::VfAttribute { pf, vf, attribute } => vf_attribute(executor, *pf, *vf, attribute),
        Fact::Driver { function, driver, mac } => driver_is(executor, *function, driver.as_deref(), *mac),
        Fact::Mac { function, mac } => has_mac(executor, *function, *mac),
        Fact::MtuIs { function, mtu } => {
            attribute(executor, *function, "mtu", |seen| seen == mtu.to_string())
        }
        Fact::Name { function, name } => Ok(with_interface(executor, *function, |_, found| {
            same(found.name == name.as_str(), || format!("it is called {}", found.name))
        })?),
        Fact::Link { function, direction: Direction::Down } if executor.find(*function)?.is_none() => {
            Ok(Ok(()))
        }
        Fact::Link { function, direction } => {
            let wanted = *direction == Direction::Up;
            attribute(executor, *function, "flags", |seen| {
                let flags = u32::from_str_radix(seen.trim_start_matches("0x"), 16);
                flags.is_ok_and(|flags| (flags & UP != 0) == wanted)
            })
        }
        Fact::HasAddress { function, address } => {
            let (there, seen) = addresses(executor, *function, *address)?;
            Ok(same(there, || seen))
        }
        Fact::LacksAddress { function, address } => {
            if executor.find(*function)?.is_none() {
                return Ok(Ok(()));
            }
            let (there, seen) = addresses(executor, *function, *address)?;
            Ok(same(!there, || seen))
        }
        Fact::InterfaceIs { function, setup } => super::interface::is(executor, *function, setup),
        Fact::Switch { pf, mode } => {
            let found = executor.interface(*pf)?;
            let at = format!("could not read the embedded switch's mode of {pf}");
            let seen = executor.kept(&found, |backend| backend.mode());
            let seen = seen.map_err(|error| from_netlink(&at, error))?;
            Ok(same(seen == *mode, || format!("it is in {seen} mode")))
        }
        Fact::EswitchMode { pf, mode } => {
            let seen = super::eswitch::mode(executor, *pf)?;
            Ok(same(seen == Some(*mode), || match seen {
                Some(seen) => format!("it is in {seen} mode"),
                None => "devlink reports no mode".to_owned(),
            }))
        }
        Fact::LinkUp { pf } => attribute(executor, *pf, "carrier", |seen| seen == "1"),
        Fact::FileIs { path, text } => Ok(match files::read_to_string(executor.root.path(path)) {
            Ok(seen) => same(seen == *text, || "it has another text".to_owned())
                .and_then(|()| no_parts(&executor.root, path)),
            Err(error) => Err(error.to_string()),
        }),
        Fact::NoFile { path } => {
            let gone = same(!files::exists(executor.root.path(path)), || "it is there".to_owned());
            Ok(gone.and_then(|()| no_parts(&executor.root, path)))
        }
        Fact::UnitEnabled { unit, on } => Ok(super::boot::is_enabled(&executor.root, unit, *on)),
        Fact::BootArguments(arguments) => super::boot::are_set(&executor.root, arguments),
        // The reset file's write returned; the device keeps no trace of it.
        Fact::Reset { .. } => Ok(Ok(())),
        Fact::GuestDefined { .. }
        | Fact::SwitchRunning { .. }
        | Fact::TapsThere { .. }
        | Fact::PortAttribute { .. }
        | Fact::GuestRunning { .. }
        | Fact::GuestSuspended { .. }
        | Fact::GuestIsolated { .. }
        | Fact::GuestScheduled { .. }
        | Fact::GuestReady { .. } => Err(ExecuteError::Failed {
            attempt: format!("the host's executor was asked whether {fact}"),
            source: "guests are another executor's".into(),
        }),
        Fact::KnobIs { .. }
        | Fact::Partition { .. }
        | Fact::NoPartition { .. }
        | Fact::InterruptsAt { .. }
        | Fact::ResctrlGroupIs { .. }
        | Fact::NoResctrlGroup { .. }
        | Fact::SchemataAre { .. } => super::realtime::holds(&executor.root, fact).unwrap_or(Ok(Ok(()))),
        Fact::VfResources { .. } | Fact::VfOnline { .. } | Fact::NamespaceAttached { .. } => {
            super::drive::holds(&executor.root, fact).unwrap_or(Ok(Ok(())))
        }
    }
}

fn same(is: bool, seen: impl FnOnce() -> String) -> Seen {
    if is { Ok(()) } else { Err(seen()) }
}

/// Whether nobody has left half of a file beside it: a step that ended there has more to do than the file itself tells.
pub fn no_parts(root: &Root, path: &str) -> Seen {
    match files::has_parts(root.path(path)) {
        Ok(false) => Ok(()),
        Ok(true) => {
            Err("somebody was killed while writing it, and what was written lies beside it".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn with_interface(
    executor: &mut HostExecutor,
    function: Bdf,
    look: impl FnOnce(&HostExecutor, &Found) -> Seen,
) -> Result<Seen, ExecuteError> {
    match executor.find(function)? {
        Some(found) => Ok(look(executor, &found)),
        None => Ok(Err(format!("{function} has no network interface on the host"))),
    }
}

fn attribute(
    executor: &mut HostExecutor,
    function: Bdf,
    name: &str,
    is: impl FnOnce(&str) -> bool,
) -> Result<Seen, ExecuteError> {
    with_interface(executor, function, |executor, found| {
        let seen = executor.class_attribute(&found.name, name);
        match seen {
            Some(seen) if is(&seen) => Ok(()),
            Some(seen) => Err(format!("{} of {} is {seen}", name, found.name)),
            None => Err(format!("{} has no {name}", found.name)),
        }
    })
}

/// The file that holds an interface's MAC address; what is seen of it begins with this.
pub const ADDRESS: &str = "address";

fn has_mac(executor: &mut HostExecutor, function: Bdf, mac: Mac) -> Result<Seen, ExecuteError> {
    attribute(executor, function, ADDRESS, |seen| seen.eq_ignore_ascii_case(&mac.to_string()))
}

fn vf_count(executor: &HostExecutor, pf: Bdf, count: u16) -> Result<Seen, ExecuteError> {
    let function = executor.function(pf);
    if !function.exists() {
        return Ok(same(count == 0, || format!("there is no {pf}")));
    }
    let at = format!("could not count the VFs of {pf}");
    let says = function.vf_count().map_err(|error| from_pci(&at, error))?;
    let vfs = function.virtual_functions().map_err(|error| from_pci(&at, error))?;
    let exist = vfs.len();
    Ok(same(says == count && exist == usize::from(count), || {
        let there: BTreeSet<u16> = vfs.iter().map(|(index, _)| index.get()).collect();
        let lacking: Vec<String> =
            (0..says).filter(|index| !there.contains(index)).map(|index| index.to_string()).collect();
        let more = lacking.len().saturating_sub(NAMED);
        let which = match &lacking[..lacking.len().min(NAMED)] {
            [] => String::new(),
            named if more > 0 => format!(": VF {} and {more} more have not come", named.join(", ")),
            named => format!(
                ": VF {} {} not come",
                named.join(", "),
                if named.len() == 1 { "has" } else { "have" }
            ),
        };
        format!("sriov_numvfs is {says} and {exist} exist{which}")
    }))
}

fn driver_is(
    executor: &mut HostExecutor,
    function: Bdf,
    driver: Option<&str>,
    mac: Option<Mac>,
) -> Result<Seen, ExecuteError> {
    let at = format!("could not read the driver of {function}");
    let bound = executor.function(function).driver().map_err(|error| from_pci(&at, error))?;
    if bound.as_deref() != driver {
        return Ok(Err(match bound {
            Some(bound) => format!("it is bound to {bound}"),
            None => "it has no driver".to_owned(),
        }));
    }
    match driver {
        Some(driver) if penstock_host::pci::gives_interface(driver) => match mac {
            Some(mac) => has_mac(executor, function, mac),
            None => with_interface(executor, function, |_, _| Ok(())),
        },
        _ => Ok(Ok(())),
    }
}

fn addresses(
    executor: &mut HostExecutor,
    function: Bdf,
    address: InterfaceAddress,
) -> Result<(bool, String), ExecuteError> {
    let found = executor.interface(function)?;
    let at = format!("could not list the addresses of {}", found.name);
    let reports = executor.netlink.interfaces().map_err(|error| from_netlink(&at, error))?;
    let report = reports.iter().find(|report| report.index == found.index);
    let addresses = report.map(|report| &report.interface.addresses[..]).unwrap_or_default();
    let listed: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let seen = match listed[..] {
        [] => "it has no address".to_owned(),
        _ => format!("it has {}", listed.join(", ")),
    };
    Ok((addresses.contains(&address), seen))
}

fn vf_attribute(
    executor: &mut HostExecutor,
    pf: Bdf,
    vf: VfIndex,
    attribute: &VfAttribute,
) -> Result<Seen, ExecuteError> {
    // What was read after the last change is good for all VFs of the PF; but a driver may take its time.
    if let Some(vfs) = executor.vfs.get(&pf)
        && judge(vfs, vf, attribute).is_ok_and(|seen| seen.is_ok())
    {
        return Ok(Ok(()));
    }
    let found = executor.interface(pf)?;
    let at = format!("could not list the VFs of {} ({pf})", found.name);
    let vfs = executor.kept(&found, |backend| backend.vfs()).map_err(|error| from_netlink(&at, error))?;
    let seen = judge(&vfs, vf, attribute);
    executor.vfs.insert(pf, vfs);
    seen
}

/// Whether a VF has an attribute, by what the driver reports of all of them.
///
/// # Errors
///
/// [`ExecuteError::Unsupported`] when the driver reports nothing of its VFs, or not this attribute.
pub fn judge(vfs: &[(VfIndex, VfState)], vf: VfIndex, attribute: &VfAttribute) -> Result<Seen, ExecuteError> {
    if vfs.is_empty() {
        return Err(ExecuteError::Unsupported(
            "the driver took it, but reports nothing of its VFs".to_owned(),
        ));
    }
    let Some((_, state)) = vfs.iter().find(|(index, _)| *index == vf) else {
        return Ok(Err(format!("the driver reports no VF {vf}")));
    };
    let seen = match (attribute, state.attribute(attribute.kind())) {
        // Without a port VLAN there is no tag to have a protocol.
        (VfAttribute::Vlan { id: wanted, protocol, .. }, Some(VfAttribute::Vlan { id, qos, .. }))
            if wanted.get() == 0 =>
        {
            Some(VfAttribute::Vlan { id, qos, protocol: *protocol })
        }
        (_, seen) => seen,
    };
    match seen {
        None => Err(ExecuteError::Unsupported(format!(
            "the driver took it, but does not report {}",
            attribute.kind()
        ))),
        Some(seen) if seen == *attribute => Ok(Ok(())),
        Some(seen) => Ok(Err(format!("it reports {seen}"))),
    }
}
