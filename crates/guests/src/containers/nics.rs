//! The NICs that containers own: each is a vDPA device of the host's kernel, the port of an embedded switch of its own, whose uplink is a tap
//! in a Linux bridge (`docs/container-nics.md`). The device's interface is on the host until the container runs, and there again when it
//! has ended.

use std::{
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    InterfaceReport, Netlink, Root, chain,
    embedded::control,
    files, interrupt,
    netlink::udev_is_done,
    tap,
    vdpa::{self, VdpaDriver},
};
use penstock_model::{GuestName, InterfaceName, NicName, TenantNic, Uplink, VfSettings, inventory::VfState};
use penstock_plan::action::{GuestDefinition, GuestNic};
use serde_json::{Value, json};

use super::{Containers, lxc};
use crate::{
    elsewhere,
    error::GuestError,
    vms::switch::{self, SwitchStart, SwitchUnit},
};

/// How long udev may take for an interface; it needs milliseconds.
const NAMING: Duration = Duration::from_secs(3);
/// How often it is looked at whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// The bridge that the switch of a NIC leads to.
fn bridge(own: &GuestNic) -> Option<&InterfaceName> {
    match &own.nic.uplink {
        Some(Uplink::Interface(bridge)) => Some(bridge),
        Some(Uplink::Function(_)) | None => None,
    }
}

/// What the switch of a container's NIC is told: one port is the container's, the other the tap `tap` in the bridge. The device tells its
/// driver the MTU `mtu`.
pub fn configuration(guest: &GuestName, own: &GuestNic, tap: &InterfaceName, mtu: u16) -> Value {
    let mac = own.nic.mac;
    let mut port = json!({
        "vduse": {"name": TenantNic::vdpa_device(mac), "driver": VdpaDriver::Virtio.name()},
        "mac": mac.to_string(),
        "mtu": mtu,
        // Without a VLAN of its own it is in none.
        "trunk": "0",
    });
    switch::set(&mut port, &VfSettings { mac: Some(mac), ..own.nic.settings.clone() });
    // What the tap lets through is the bridge's to say.
    let uplink = json!({"tap": tap, "uplink": true, "mtu": u16::MAX});
    let ports = serde_json::Map::from_iter([
        (switch::port(guest, &own.name, None), port),
        (TenantNic::uplink_port(guest, &own.name), uplink),
    ]);
    json!({"version": switch::VERSION, "loopback": true, "ports": ports})
}

impl Containers {
    /// The unit of a NIC's switch.
    fn switch_unit<'a>(&'a self, guest: &'a GuestName, nic: &'a NicName) -> SwitchUnit<'a> {
        SwitchUnit { root: &self.root, state: &self.state, guest, nic }
    }

    /// Whether this host can make the NIC `nic` that `guest` owns: its kernel has the modules, or could load them, and this process may
    /// make devices. Nothing is loaded, made or started.
    ///
    /// # Errors
    ///
    /// [`GuestError::NoVdpa`] with the first that is missing; [`GuestError::NoSystemd`] or [`GuestError::NoTun`].
    pub fn makes_nic(&self, guest: &GuestName, nic: &NicName) -> Result<(), GuestError> {
        let switch = self.switch_unit(guest, nic);
        switch.needs_systemd()?;
        switch.needs_tun()?;
        vdpa::available(&self.root, VdpaDriver::Virtio)
            .map_err(|source| GuestError::NoVdpa { guest: guest.clone(), source })
    }

    /// Starts the switch of a NIC of a container that is defined and does not run, with its tap in the bridge and its device on the vdpa
    /// bus, and waits for the device's interface; what is left over of one goes first. After a failure there is nothing.
    ///
    /// # Errors
    ///
    /// [`GuestError::Running`] or [`GuestError::Elsewhere`] when the container runs, [`GuestError::NoVdpa`] when the kernel has no such
    /// devices, [`GuestError::NoTun`], [`GuestError::Taps`], [`GuestError::Switch`] with the last lines of the switch or of systemd,
    /// [`GuestError::Busy`] when another Penstock is at work on the container for longer than `timeout`.
    pub fn start_switch(
        &self,
        guest: &GuestName,
        nic: &NicName,
        timeout: Duration,
    ) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        self.not_there(guest)?;
        let own = self.own_nic(guest, nic)?;
        let switch = self.switch_unit(guest, nic);
        switch.needs_systemd()?;
        vdpa::load(&self.root, VdpaDriver::Virtio)
            .map_err(|source| GuestError::NoVdpa { guest: guest.clone(), source })?;
        switch.needs_tun()?;
        self.end_switch(&switch, Some(&own))?;
        let made = self.make(&switch, &own, timeout);
        if made.is_err() {
            let _ = self.end_switch(&switch, Some(&own));
        }
        made
    }

    /// Fails when the container runs, or a guest of this name that was started with another state.
    fn not_there(&self, guest: &GuestName) -> Result<(), GuestError> {
        match self.running(guest)? {
            Some(_) => Err(GuestError::Running { guest: guest.clone() }),
            None => elsewhere::no_guest(&self.root, &self.state, guest),
        }
    }

    fn make(&self, switch: &SwitchUnit<'_>, own: &GuestNic, timeout: Duration) -> Result<(), GuestError> {
        let (guest, nic) = (switch.guest, switch.nic);
        let bridge = bridge(own).ok_or_else(|| switch.failed("has no bridge to lead to", Vec::new()))?;
        let name = switch::port(guest, nic, None);
        let tap = tap::make(&name, own.nic.mac, 1, bridge)
            .map_err(|source| GuestError::taps(guest, nic, source))?;
        let mtu = mtu(&self.root, bridge);
        if let (Some(wanted), Some(has)) = (own.nic.mtu, mtu)
            && wanted.get() > u32::from(has)
        {
            let what = format!("cannot carry an MTU of {wanted}: its bridge {bridge} has {has}");
            return Err(switch.failed(&what, Vec::new()));
        }
        let told = configuration(guest, own, &tap, mtu.unwrap_or(ETHERNET));
        let directory = switch::directory(&self.state, guest, nic);
        files::create_dir_all(&directory)?;
        files::write_atomic(directory.join("switch.json"), format!("{told:#}\n"))?;
        switch.run(SwitchStart { line: None, workers: 1 }, timeout)?;
        let device = TenantNic::vdpa_device(own.nic.mac);
        switch.until(timeout, "has no interface for its port", || {
            match vdpa::interface(&self.root, &device) {
                Some(_) => Ok(true),
                None => Err(self
                    .unconnected(guest, nic)
                    .unwrap_or_else(|| "its device has no driver yet".to_owned())),
            }
        })?;
        self.await_name(&device);
        Ok(())
    }

    /// Waits until udev has done with the interface of a device, which it may give another name. It keeps no record of what its rules do
    /// not know, so that this is not waited for longer than it takes.
    fn await_name(&self, device: &str) {
        let until = Instant::now() + NAMING;
        while Instant::now() < until && !interrupt::pending() {
            let reports = Netlink::open().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default();
            let name = vdpa::interface(&self.root, device);
            let found = reports.iter().find(|report| Some(&report.interface.name) == name.as_ref());
            if found.is_some_and(|report| udev_is_done(&self.root, report.index)) {
                return;
            }
            thread::sleep(LOOK);
        }
    }

    /// Why nobody is at the port of a NIC; `None` when somebody is, or the switch does not tell.
    fn unconnected(&self, guest: &GuestName, nic: &NicName) -> Option<String> {
        let ports = control::ports(&switch::control_socket(&self.state, guest, nic)).ok()?;
        let port = ports.get(&switch::port(guest, nic, None))?;
        if port.connected { None } else { port.unconnected.clone() }
    }

    /// Stops the switch of a NIC of a container that does not run, and takes away its device and its tap; already gone is success.
    ///
    /// # Errors
    ///
    /// [`GuestError::Running`] or [`GuestError::Elsewhere`] while the container runs, [`GuestError::Switch`] when it does not end or
    /// its device stays, [`GuestError::Busy`] when another Penstock is at work on the container for longer than `timeout`.
    pub fn stop_switch(&self, guest: &GuestName, nic: &NicName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        self.not_there(guest)?;
        let own = self.own_nic(guest, nic).ok();
        self.end_switch(&self.switch_unit(guest, nic), own.as_ref())
    }

    fn end_switch(&self, switch: &SwitchUnit<'_>, own: Option<&GuestNic>) -> Result<(), GuestError> {
        // It takes its device off the bus before it ends.
        switch.end()?;
        if let Some(own) = own {
            switch.has_left_no_device([own.nic.mac])?;
        }
        match left_tap(switch, own)? {
            Some(tap) => {
                tap::remove(&tap).map_err(|source| GuestError::taps(switch.guest, switch.nic, source))
            }
            None => Ok(()),
        }
    }

    /// What the host has set at the switch of a NIC, as an inventory has it; `None` when the switch does not tell.
    pub(super) fn port_of(&self, guest: &GuestName, own: &GuestNic) -> Option<(NicName, Vec<VfState>)> {
        let ports = control::ports(&switch::control_socket(&self.state, guest, &own.name)).ok()?;
        let port = ports.get(&switch::port(guest, &own.name, None))?;
        Some((own.name.clone(), vec![port.settings_of_host()?]))
    }

    fn own_nic(&self, guest: &GuestName, nic: &NicName) -> Result<GuestNic, GuestError> {
        let definition =
            self.definition(guest)?.ok_or_else(|| GuestError::Undefined { guest: guest.clone() })?;
        let found = definition.nics.into_iter().find(|own| own.name == *nic);
        found.ok_or_else(|| {
            let switch = self.switch_unit(guest, nic);
            switch.failed("belongs to no NIC that the container was defined with", Vec::new())
        })
    }

    /// Whether the switch of a NIC runs and a driver has its device, or nothing of it is there; why not, else.
    pub(crate) fn switch_runs(
        &self,
        guest: &GuestName,
        nic: &NicName,
        running: bool,
    ) -> Result<Result<(), String>, GuestError> {
        if !running {
            return self.switch_is_gone(guest, nic);
        }
        let own = self.own_nic(guest, nic)?;
        let ports = match control::ports(&switch::control_socket(&self.state, guest, nic)) {
            Ok(ports) => ports,
            Err(error) => return Ok(Err(chain(&error))),
        };
        let name = switch::port(guest, &own.name, None);
        Ok(match ports.get(&name) {
            None => Err(format!("it has no port {name}")),
            Some(port) if port.connected => Ok(()),
            Some(port) => {
                Err(port.unconnected.clone().unwrap_or_else(|| "no driver has its device".to_owned()))
            }
        })
    }

    /// Whether [`stop_switch`](Containers::stop_switch) has nothing to do; what is there, else.
    fn switch_is_gone(&self, guest: &GuestName, nic: &NicName) -> Result<Result<(), String>, GuestError> {
        let switch = self.switch_unit(guest, nic);
        if let Err(why) = switch.is_gone() {
            return Ok(Err(why));
        }
        let own = self.own_nic(guest, nic).ok();
        if let Some(tap) = left_tap(&switch, own.as_ref())? {
            return Ok(Err(format!("its tap {tap} is there")));
        }
        let left = own.map_or(Ok(()), |own| switch.has_left_no_device([own.nic.mac]));
        Ok(left.map_err(|error| error.to_string()))
    }

    /// The interface of each NIC of a container on the host, in the definition's order.
    pub(super) fn nic_interfaces(
        &self,
        definition: &GuestDefinition,
    ) -> Result<Vec<InterfaceName>, GuestError> {
        let of = |own: &GuestNic| {
            let device = TenantNic::vdpa_device(own.nic.mac);
            vdpa::interface(&self.root, &device).ok_or_else(|| {
                let switch = self.switch_unit(&definition.guest, &own.name);
                switch.failed(&format!("has made no interface: {device} has none on the host"), Vec::new())
            })
        };
        definition.nics.iter().map(of).collect()
    }

    /// Whether each NIC of a container is among the interfaces inside it, by its name and with its address.
    pub(super) fn prove_nics(
        &self,
        definition: &GuestDefinition,
        inside: &[InterfaceReport],
    ) -> Result<(), GuestError> {
        let is = |own: &GuestNic, report: &InterfaceReport| {
            report.interface.name.as_str() == own.name.as_str() && report.interface.mac == own.nic.mac
        };
        match definition.nics.iter().find(|own| !inside.iter().any(|report| is(own, report))) {
            None => Ok(()),
            Some(own) => {
                let switch = self.switch_unit(&definition.guest, &own.name);
                let said = lxc::last_words(&self.state, &definition.guest);
                Err(switch.failed("runs, and its interface did not get into the container", said))
            }
        }
    }
}

/// The tap that there is of a NIC's switch, be it only begun to be made.
fn left_tap(switch: &SwitchUnit<'_>, own: Option<&GuestNic>) -> Result<Option<InterfaceName>, GuestError> {
    let failed = |source| GuestError::taps(switch.guest, switch.nic, source);
    let mut taps = tap::taps().map_err(failed)?;
    if let Some(tap) = taps.remove(&switch::port(switch.guest, switch.nic, None)) {
        return Ok(Some(tap.name));
    }
    let Some(own) = own else { return Ok(None) };
    let begun = tap::begun().map_err(failed)?;
    Ok(Some(TenantNic::tap(own.nic.mac)).filter(|tap| begun.contains(tap)))
}

/// What an interface has when nothing else is said.
const ETHERNET: u16 = 1500;

/// The MTU of an interface of the host.
fn mtu(root: &Root, interface: &InterfaceName) -> Option<u16> {
    let text = files::read_to_string(root.path(format!("/sys/class/net/{interface}/mtu"))).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use penstock_model::{DataPath, Emulation, Mac, TxRate, VlanId};

    use super::*;

    #[test]
    fn the_switch_of_a_container_that_was_started_with_another_state_is_let_alone() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join(path);
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write_atomic(path, text).unwrap();
        };
        let process = |id: u32, line: &str, namespace: &str| {
            write(&format!("proc/{id}/cmdline"), line);
            write(&format!("proc/{id}/stat"), &format!("{id} (lxc-start) S {}300 0", "0 ".repeat(18)));
            files::create_dir_all(tree.path().join(format!("proc/{id}/ns"))).unwrap();
            files::link(namespace, tree.path().join(format!("proc/{id}/ns/pid"))).unwrap();
        };
        files::create_dir_all(tree.path().join("proc/self/ns")).unwrap();
        files::link("pid:[1]", tree.path().join("proc/self/ns/pid")).unwrap();
        let state = tree.path().join("guests");
        files::create_dir_all(&state).unwrap();
        files::link(&state, tree.path().join("link")).unwrap();
        let containers = Containers::new(Root::at(tree.path()), state);
        let (guest, nic) = ("web".parse().unwrap(), "net0".parse().unwrap());
        let both =
            || [containers.start_switch(&guest, &nic, NAMING), containers.stop_switch(&guest, &nic, NAMING)];
        // The state itself by another path, and who in a privileged container calls himself a process of LXC's.
        process(5, &format!("[lxc monitor] {}/link penstock-web\0", tree.path().display()), "pid:[1]");
        process(6, "[lxc monitor] /tmp/x penstock-web\0", "pid:[2]");
        assert_eq!(lxc::monitor(&containers.root, &containers.state, &guest).map(|own| own.id), Some(5));
        let undefined = containers.start_switch(&guest, &nic, NAMING).unwrap_err();
        assert!(matches!(undefined, GuestError::Undefined { .. }), "{undefined}");
        process(7, "[lxc monitor] /run/pen stock/guests penstock-web\0", "pid:[1]");
        for refused in both() {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains("as process 7"), "{error}");
            let hint = error.hint().unwrap();
            assert!(hint.contains(" PENSTOCK_STATE='/run/pen stock', "), "{hint}");
            assert!(hint.ends_with("lxc-stop -P '/run/pen stock/guests' -n penstock-web"), "{hint}");
        }
        let other = containers.start_switch(&"we".parse().unwrap(), &nic, NAMING).unwrap_err();
        assert!(matches!(other, GuestError::Undefined { .. }), "{other}");
        // A VM of that name has switches of the same names.
        process(8, "qemu\0-name\0guest=penstock-vm,debug-threads=on\0", "pid:[1]");
        write("run/libvirt/qemu/penstock-vm.pid", "8\n");
        let error = containers.stop_switch(&"vm".parse().unwrap(), &nic, NAMING).unwrap_err();
        assert!(error.to_string().contains("as process 8"), "{error}");
    }

    #[test]
    fn the_switch_of_a_container_is_told_of_its_device_and_of_a_tap_of_its_bridge() {
        let mac: Mac = "02:00:00:00:01:01".parse().unwrap();
        let own = GuestNic {
            name: "net0".parse().unwrap(),
            nic: TenantNic {
                emulation: Emulation::Virtio,
                mac,
                vfs: Vec::new(),
                settings: VfSettings {
                    vlan: VlanId::new(100),
                    spoofchk: Some(true),
                    max_tx_rate: Some(TxRate(500)),
                    ..VfSettings::default()
                },
                addresses: Vec::new(),
                routes: Vec::new(),
                dhcp: false,
                mtu: None,
                path: DataPath::VirtioVdpa,
                uplink: Some(Uplink::Interface("br0".parse().unwrap())),
                uplink_settings: None,
                queues: 1,
                workers: 1,
                allow: None,
                vf_allow: Default::default(),
            },
            uplink_at: None,
        };
        let guest = "web".parse().unwrap();
        let wanted = json!({"version": 1, "loopback": true, "ports": {
            "web/net0": {
                "vduse": {"name": "penstock-020000000101", "driver": "virtio_vdpa"},
                "mac": "02:00:00:00:01:01", "mtu": 1500, "trunk": "0", "vlan": 100, "qos": 0, "vlan_proto": "802.1Q",
                "spoofchk": true, "trust": false, "max_tx_rate": 500
            },
            "web/net0 uplink": {"tap": "tap020000000101", "uplink": true, "mtu": 65535},
        }});
        assert_eq!(configuration(&guest, &own, &TenantNic::tap(mac), 1500), wanted);
    }
}
