//! When a container is ready: it runs, and the PFs that it owns have their links.

use std::time::{Duration, Instant};

use penstock_host::{InterfaceReport, Netlink, files, interrupt};
use penstock_model::GuestName;
use penstock_plan::action::GuestFunction;

use super::{Containers, LINES};
use crate::{error::GuestError, words::last_lines};

/// How long a container's interfaces are waited for before it is seen again whether it runs.
const SLICE: Duration = Duration::from_millis(500);

impl Containers {
    /// Waits until a container is ready: it runs, and the interface of each PF that it owns has its link. One whose start nobody has
    /// finished is given first what it lacks.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Containers::start) when it cannot be given that; [`GuestError::NotReady`] with the PFs that have no link after `timeout`, [`GuestError::Undefined`] or
    /// [`GuestError::NotThere`] when it was not started, [`GuestError::Died`] when it has ended.
    pub fn await_ready(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let started = Instant::now();
        self.finish(guest, timeout)?;
        loop {
            let Some(init) = self.running(guest)? else {
                self.state
                    .definition(guest)?
                    .ok_or_else(|| GuestError::Undefined { guest: guest.clone() })?;
                return Err(match self.state.started(guest)? {
                    Some(_) => self.died(guest),
                    None => GuestError::NotThere { guest: guest.clone() },
                });
            };
            let left = timeout.saturating_sub(started.elapsed());
            let slice = Instant::now() + left.min(SLICE);
            // A namespace can be gone by now: then so is the container, which the next look tells.
            let missing = match Netlink::in_namespace_of(init.id) {
                Err(error) if init.is_alive_below(&self.root) => return Err(error.into()),
                Err(_) => continue,
                Ok(mut netlink) => {
                    let pick = |reports: &[InterfaceReport]| {
                        self.without_link(guest, reports)
                            .is_none_or(|missing| missing.is_none())
                            .then_some(())
                    };
                    if netlink.wait_for("see the links of PFs", slice, pick).is_ok() {
                        return Ok(());
                    }
                    netlink.interfaces().ok().and_then(|reports| self.without_link(guest, &reports).flatten())
                }
            };
            if started.elapsed() >= timeout || interrupt::pending() {
                return Err(GuestError::NotReady {
                    guest: guest.clone(),
                    after: started.elapsed(),
                    why: missing.unwrap_or_else(|| "its interfaces cannot be seen".to_owned()),
                    console: last_lines(&self.console_log(guest), LINES),
                });
            }
        }
    }

    /// Whether a container is ready now; why not, else.
    pub(crate) fn ready(&self, guest: &GuestName) -> Result<Result<(), String>, GuestError> {
        let Some(init) = self.running(guest)? else {
            return Ok(Err("it does not run".to_owned()));
        };
        if let Some(unfinished) = self.unfinished(guest)? {
            return Ok(Err(unfinished.to_owned()));
        }
        let reports = Netlink::in_namespace_of(init.id)?.interfaces()?;
        Ok(match self.without_link(guest, &reports).flatten() {
            Some(missing) => Err(missing),
            None => Ok(()),
        })
    }

    /// The first of the container's PFs whose interface, among those inside, has no link, in words. The outer `None`
    /// when the container is not defined any more.
    fn without_link(&self, guest: &GuestName, inside: &[InterfaceReport]) -> Option<Option<String>> {
        let definition = self.state.definition(guest).ok().flatten()?;
        let pf = |owned: &&GuestFunction| {
            let directory = self.root.path(format!("/sys/bus/pci/devices/{}", owned.function));
            files::exists(&directory) && !files::exists(directory.join("physfn"))
        };
        Some(definition.functions.iter().filter(pf).find_map(|owned| {
            let (name, function) = (&owned.interface, owned.function);
            match self.interfaces.find(function, inside) {
                Some(found) if found.interface.carrier == Some(true) => None,
                Some(found) if !found.interface.up => {
                    Some(format!("its interface {name} of PF {function} is down"))
                }
                Some(_) => Some(format!("its interface {name} of PF {function} has no link")),
                None => Some(format!("its interface {name} of PF {function} is not inside")),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use penstock_host::Root;
    use penstock_model::{Bdf, inventory::Interface};
    use penstock_plan::action::GuestDefinition;

    use super::*;
    use crate::containers::Recognise;

    /// By the device that a report names.
    struct ByReport;

    impl Recognise for ByReport {
        fn find(&self, function: Bdf, among: &[InterfaceReport]) -> Option<InterfaceReport> {
            among.iter().find(|report| report.device == Some(function.to_string())).cloned()
        }

        fn exists(&self, _: Bdf) -> bool {
            true
        }
    }

    fn report(device: &str, up: bool, carrier: Option<bool>) -> InterfaceReport {
        InterfaceReport {
            index: 2,
            interface: Interface {
                name: "pf0".parse().unwrap(),
                mac: "02:00:00:00:00:01".parse().unwrap(),
                mtu: 1500,
                up,
                carrier,
                speed: None,
                addresses: vec![],
                routes: vec![],
                master: None,
                uppers: Vec::new(),
            },
            permanent_mac: None,
            device: Some(device.to_owned()),
            kind: None,
            port_name: None,
            promiscuous: None,
            routes: None,
            master: None,
            lower: None,
        }
    }

    #[test]
    fn a_pf_has_its_link_and_a_vf_needs_none() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        for bdf in ["0000:04:00.0", "0000:04:10.0/physfn"] {
            files::create_dir_all(root.join("sys/bus/pci/devices").join(bdf)).unwrap();
        }
        let containers =
            Containers::new(Root::at(root), directory.path().join("state")).recognising(Arc::new(ByReport));
        let owned = |function: &str, interface: &str| {
            GuestFunction::bare(function.parse().unwrap(), interface.parse().unwrap())
        };
        let guest: GuestName = "pf0".parse().unwrap();
        let look = |inside: &[InterfaceReport]| containers.without_link(&guest, inside);
        assert_eq!(look(&[]), None, "it is not defined");
        let definition = GuestDefinition {
            functions: vec![owned("0000:04:10.0", "vf"), owned("0000:04:00.0", "uplink")],
            ..GuestDefinition::bare(guest.clone())
        };
        containers.define(&definition, Duration::from_secs(5)).unwrap();
        let pf = |up, carrier| look(&[report("0000:04:00.0", up, carrier)]);
        let says = |words: &str| Some(Some(format!("its interface uplink of PF 0000:04:00.0 {words}")));
        assert_eq!(look(&[report("0000:04:10.0", true, Some(true))]), says("is not inside"));
        assert_eq!(pf(false, None), says("is down"));
        assert_eq!(pf(true, Some(false)), says("has no link"));
        assert_eq!(pf(true, Some(true)), Some(None), "whatever the VF has");
        let error = containers.await_ready(&guest, Duration::ZERO).unwrap_err();
        assert!(matches!(error, GuestError::NotThere { .. } | GuestError::State(_)), "{error}");
    }
}
