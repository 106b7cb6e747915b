//! The embedded switches of the NICs that guests own, and the units of systemd that they are.
//!
//! A switch has to be there before its VM, since QEMU waits for its sockets, and outlives Penstock; systemd starts it again when it
//! dies. Its unit is transient (`systemd-run`): it is gone with the machine's power, as the VM is.

mod configuration;
mod units;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Command, Netlink, Root, boot,
    embedded::{PortReport, control},
    files, interrupt,
    pci::interface_of,
    process::{self, search_path},
    vdpa::{self, VdpaDriver},
};
use penstock_model::{
    DataPath, FunctionName, GuestName, InterfaceName, Mac, NicName, TenantFunctionName, TenantNic, Uplink,
    VfAttribute, VfIndex, inventory::VfState,
};
use penstock_plan::action::{GuestDefinition, GuestNic};

pub use self::configuration::configuration;
pub(crate) use self::configuration::{VERSION, set};
use super::{Vms, prepare::own_program};
use crate::{error::GuestError, state::State, words::last_lines};

/// How long a switch may take to be there.
const STARTING: Duration = Duration::from_secs(20);
/// How long systemd may take for what it is asked.
const MOMENT: Duration = Duration::from_secs(30);
/// How often it is looked at whether a switch is there.
const LOOK: Duration = Duration::from_millis(20);
/// How many last lines of its log an error carries.
const LINES: usize = 5;

/// What a switch never does, and is kept from (systemd.exec(5)), since it reads what guests and their QEMUs write: it runs no other program, makes
/// no namespace, maps nothing that can be executed (guests' memory is mapped to be read and written), asks for no real-time scheduling, and has
/// sockets of these families alone: those of ports and control, taps and their flags, packet sockets, and links that go up and down. None of it takes a
/// namespace of its own or a rule about devices, which would change what it sees of the machine. `packaging/penstock-switch@.service` has the same.
const CONFINED: [&str; 7] = [
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_PACKET AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "SystemCallArchitectures=native",
];

/// The unit of systemd that is the switch of the NIC `nic` of `guest`. Neither name can have a colon.
pub fn unit(guest: &GuestName, nic: &NicName) -> String {
    format!("penstock-switch-{guest}:{nic}.service")
}

/// The unit of systemd that hands the switch of a NIC what the VM asks of its devices.
pub fn filters_unit(guest: &GuestName, nic: &NicName) -> String {
    format!("penstock-filters-{guest}:{nic}.service")
}

/// The name of a function of a VM's NIC, which is that of its port, too.
pub fn port(guest: &GuestName, nic: &NicName, vf: Option<VfIndex>) -> String {
    let function = FunctionName { nic: nic.clone(), vf };
    TenantFunctionName { guest: guest.clone(), function }.to_string()
}

pub(crate) fn directory(state: &State, guest: &GuestName, nic: &NicName) -> PathBuf {
    state.file(guest, &format!("switch-{nic}"))
}

/// The socket on which a switch is controlled.
pub fn control_socket(state: &State, guest: &GuestName, nic: &NicName) -> PathBuf {
    directory(state, guest, nic).join("control")
}

/// The socket of the line from within the VM to the switch of a NIC; `None` where the model lets nothing be set from there.
pub fn line_socket(state: &State, guest: &GuestName, own: &GuestNic) -> Option<PathBuf> {
    own.nic.allows().then(|| directory(state, guest, &own.name).join("line"))
}

/// The socket of each function of a NIC, the PF's first.
pub fn sockets(state: &State, guest: &GuestName, own: &GuestNic) -> Vec<(Option<VfIndex>, PathBuf)> {
    let directory = directory(state, guest, &own.name);
    let file = |vf: Option<VfIndex>| vf.map_or_else(|| "pf".to_owned(), |vf| vf.to_string());
    own.nic.functions().map(|(vf, ..)| (vf, directory.join(file(vf)))).collect()
}

/// How systemd is asked to keep something running beside a VM, which writes to a log in `directory`. What is run is still to be
/// added.
fn unit_command(unit: &str, description: &str, directory: &Path) -> Command {
    let log = directory.join("log");
    let output = format!("append:{}", log.display());
    Command::new("systemd-run")
        .args(["--quiet", "--collect", "--unit", unit, "--property", &format!("Description={description}")])
        // The VM stays, too.
        .args(boot::STAYS_ON_ISOLATE)
        // However often it dies.
        .args(["--property", "Restart=always", "--property", "StartLimitIntervalSec=0"])
        .args(["--property", &format!("StandardOutput={output}"), "--property"])
        .arg(format!("StandardError={output}"))
        .args(search_path::for_service())
        .deadline(MOMENT)
}

/// How a switch is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchStart<'a> {
    /// The socket of the line from within the VM, if the model lets anything be set from there.
    pub line: Option<&'a Path>,
    /// How many threads move frames.
    pub workers: u16,
}

/// How systemd is asked to run `program` as the switch in `directory`. QEMU comes back to its sockets when it has died, and frames
/// pass again.
fn start_command(unit: &str, program: &Path, directory: &Path, start: SwitchStart<'_>) -> Command {
    let command = unit_command(unit, "Penstock embedded switch", directory)
        .args(["--property", "RestartSec=100ms"])
        // When the machine goes down libvirt ends its VMs first: a QEMU that lets go of vDPA devices waits for who serves them.
        .args(["--property", "Before=libvirt-guests.service"])
        .args(CONFINED.iter().flat_map(|property| ["--property", property]))
        .arg("--")
        .arg(program)
        .arg("embedded-switch")
        .arg(directory.join("switch.json"))
        .arg("--control")
        .arg(directory.join("control"))
        .arg("--own");
    let command = match start.workers {
        1 => command,
        workers => command.arg("--workers").arg(workers.to_string()),
    };
    match start.line {
        Some(line) => command.arg("--line").arg(line),
        None => command,
    }
}

/// How systemd is asked to run `program` as what hands a switch the filters of its guest. It keeps nothing, so that it may be
/// killed at any time.
fn follow_command(guest: &GuestName, nic: &NicName, program: &Path, state: &State) -> Command {
    unit_command(&filters_unit(guest, nic), "Penstock filters of a VM", &directory(state, guest, nic))
        .args(["--property", "RestartSec=1s", "--property", "KillSignal=SIGKILL"])
        .arg("--")
        .arg(program)
        .arg("follow-filters")
        .arg("--state")
        .arg(state.directory())
        .arg(guest.as_str())
        .arg(nic.as_str())
}

/// The switch of a NIC of a guest, as a unit of systemd.
pub(crate) struct SwitchUnit<'a> {
    pub root: &'a Root,
    pub state: &'a State,
    pub guest: &'a GuestName,
    pub nic: &'a NicName,
}

impl SwitchUnit<'_> {
    pub(crate) fn failed(&self, what: &str, said: Vec<String>) -> GuestError {
        GuestError::Switch { guest: self.guest.clone(), nic: self.nic.clone(), what: what.to_owned(), said }
    }

    /// Whether somebody is there to start it again.
    pub(crate) fn needs_systemd(&self) -> Result<(), GuestError> {
        match files::exists(self.root.path("/run/systemd/system")) && process::find("systemd-run").is_some() {
            true => Ok(()),
            false => Err(GuestError::NoSystemd { guest: self.guest.clone(), nic: self.nic.clone() }),
        }
    }

    /// Whether the kernel has taps.
    pub(crate) fn needs_tun(&self) -> Result<(), GuestError> {
        match files::exists(self.root.path("/dev/net/tun")) {
            true => Ok(()),
            false => Err(GuestError::NoTun { guest: self.guest.clone(), nic: self.nic.clone() }),
        }
    }

    /// The socket on which it is controlled.
    fn control(&self) -> PathBuf {
        control_socket(self.state, self.guest, self.nic)
    }

    /// Has systemd run it with the configuration that is there, and waits until it is served; the program that it is. After a failure
    /// there is none.
    pub(crate) fn run(&self, start: SwitchStart<'_>, timeout: Duration) -> Result<PathBuf, GuestError> {
        let program =
            own_program().ok_or_else(|| self.failed("has no program: this one was moved", Vec::new()))?;
        let directory = directory(self.state, self.guest, self.nic);
        start_command(&unit(self.guest, self.nic), &program, &directory, start)
            .succeed()
            .map_err(|error| self.failed("was not started", vec![penstock_host::chain(&error)]))?;
        // The control socket and that of the line are the last that it makes.
        let last = start.line.map_or_else(|| self.control(), Path::to_owned);
        self.until(timeout, "does not come to serve its ports", || Ok(control::is_served(&last)))?;
        Ok(program)
    }

    /// Waits until something is so of it; when that takes longer than it may, it is ended.
    pub(crate) fn until(
        &self,
        timeout: Duration,
        otherwise: &str,
        mut holds: impl FnMut() -> Result<bool, String>,
    ) -> Result<(), GuestError> {
        let began = Instant::now();
        loop {
            let why = match holds() {
                Ok(true) => return Ok(()),
                Ok(false) => None,
                Err(why) => Some(why),
            };
            if began.elapsed() > STARTING.min(timeout) || interrupt::pending() {
                let said = last_lines(&directory(self.state, self.guest, self.nic).join("log"), LINES);
                let left = self.end().err().map(|error| penstock_host::chain(&error));
                return Err(self.failed(otherwise, why.into_iter().chain(said).chain(left).collect()));
            }
            thread::sleep(LOOK);
        }
    }

    /// Fails when a device of these addresses is still on the vdpa bus. A switch takes its own off before it ends, unless somebody has
    /// one open.
    pub(crate) fn has_left_no_device(&self, macs: impl IntoIterator<Item = Mac>) -> Result<(), GuestError> {
        let mut devices = macs.into_iter().map(TenantNic::vdpa_device);
        match devices.find(|device| vdpa::exists(self.root, device)) {
            None => Ok(()),
            Some(device) => {
                let what = format!("has left its device {device}: `vdpa dev del {device}` takes it away");
                Err(self.failed(&what, Vec::new()))
            }
        }
    }

    /// Whether it is served at its control socket.
    fn is_served(&self) -> bool {
        control::is_served(&self.control())
    }

    /// Whether nothing of it is there but what others have to say, its taps and devices; what is, else. That nobody serves it is not
    /// enough: systemd may be about to start it, and whoever was to end it may not have lived to the end.
    pub(crate) fn is_gone(&self) -> Result<(), String> {
        if self.is_served() {
            return Err("it is running".to_owned());
        }
        let directory = directory(self.state, self.guest, self.nic);
        if files::exists(&directory) {
            return Err(format!("its directory {} is there", directory.display()));
        }
        let units = [unit(self.guest, self.nic), filters_unit(self.guest, self.nic)];
        match units::kept(self.root, &units)?.first() {
            None => Ok(()),
            Some(unit) => Err(format!("systemd keeps {unit} running")),
        }
    }

    /// Whether systemd keeps the unit running that hands it what the VM asks of its devices; why not, else.
    fn follows_filters(&self) -> Result<(), String> {
        let unit = filters_unit(self.guest, self.nic);
        match units::kept(self.root, std::slice::from_ref(&unit))?.is_empty() {
            false => Ok(()),
            true => Err(format!("nobody tells it what the VM asks of its devices: {unit} does not run")),
        }
    }

    /// Ends it; already gone is success.
    pub(crate) fn end(&self) -> Result<(), GuestError> {
        let (unit, filters) = (unit(self.guest, self.nic), filters_unit(self.guest, self.nic));
        // Nothing is lost by ending what keeps nothing, and most NICs have none.
        let _ = Command::new("systemctl").args(["stop", "--quiet", &filters]).deadline(MOMENT).run();
        let known = Command::new("systemctl").args(["is-active", "--quiet", &unit]).deadline(MOMENT).run();
        let served = self.is_served();
        // 0: it is active; 3: it is not, or is just about to be started again; 4: there is no such unit (systemctl(1)).
        if served || !known.is_ok_and(|output| output.status.code() == Some(4)) {
            let stopped = Command::new("systemctl").args(["stop", &unit]).deadline(MOMENT).run();
            let served = self.is_served();
            if served || stopped.is_err() {
                let said = match stopped {
                    Ok(output) => output.errors().lines().map(str::to_owned).collect(),
                    Err(error) => vec![penstock_host::chain(&error)],
                };
                return Err(self.failed(&format!("does not end: systemctl stop {unit}"), said));
            }
        }
        Ok(files::remove_tree(directory(self.state, self.guest, self.nic))?)
    }
}

impl Vms {
    /// The unit of a NIC's switch.
    pub(super) fn switch_unit<'a>(&'a self, guest: &'a GuestName, nic: &'a NicName) -> SwitchUnit<'a> {
        SwitchUnit { root: &self.root, state: &self.state, guest, nic }
    }

    /// Starts the switch of a NIC of a VM that is defined and not there; one that is left over is started anew.
    ///
    /// # Errors
    ///
    /// [`GuestError::Running`] or [`GuestError::Elsewhere`] when the VM is there, [`GuestError::Switch`] with the last lines of the
    /// switch or of systemd when it does not start, [`GuestError::Busy`] when another Penstock is at work on the VM for longer than
    /// `timeout`.
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
        let qemu_user = self
            .virsh
            .qemu_user(timeout)
            .map_err(|source| self.libvirt("ask as whom it runs QEMU".to_owned(), source))?;
        let uplink = self.uplink(&own).map_err(|what| switch.failed(&what, Vec::new()))?;
        let by_devices = own.nic.path == DataPath::VhostVdpa;
        if by_devices {
            self.lets_qemu_have_devices(guest)?;
            vdpa::load(&self.root, VdpaDriver::Vhost)
                .map_err(|source| GuestError::NoVdpa { guest: guest.clone(), source })?;
        }
        let by_tap = own.nic.path == DataPath::SwitchTap;
        if by_tap {
            switch.needs_tun()?;
        }
        switch.end()?;
        self.has_left_no_device(&switch, &own)?;
        let directory = directory(&self.state, guest, nic);
        let sockets = sockets(&self.state, guest, &own);
        files::create_dir_all(&directory)?;
        // QEMU's user comes through it.
        for directory in [self.state.directory().to_owned(), self.state.of(guest), directory.clone()] {
            files::set_mode(directory, 0o755)?;
        }
        let told = configuration(guest, &own, &sockets, qemu_user, uplink.as_ref());
        files::write_atomic(directory.join("switch.json"), format!("{told:#}\n"))?;
        let line = line_socket(&self.state, guest, &own);
        let made = if by_tap { self.make_tap_of_switch(guest, &own) } else { Ok(()) };
        let run = made.and_then(|()| {
            switch.run(SwitchStart { line: line.as_deref(), workers: own.nic.workers }, timeout)
        });
        if run.is_err() && by_tap {
            let _ = switch.end();
            let _ = self.end_taps(guest, nic);
        }
        let program = run?;
        if by_devices {
            self.await_devices(&switch, &own, timeout)?;
        }
        if own.nic.allows()
            && let Err(error) = follow_command(guest, nic, &program, &self.state).succeed()
        {
            let said = vec![penstock_host::chain(&error)];
            let _ = switch.end();
            return Err(switch.failed("has nobody who tells it what the VM asks of its devices", said));
        }
        Ok(())
    }

    /// Stops the switch of a NIC of a VM that is not there; already gone is success.
    ///
    /// # Errors
    ///
    /// [`GuestError::Running`] or [`GuestError::Elsewhere`] while the VM is there, [`GuestError::Switch`] when it does not end,
    /// [`GuestError::Busy`] when another Penstock is at work on the VM for longer than `timeout`.
    pub fn stop_switch(&self, guest: &GuestName, nic: &NicName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        self.not_there(guest)?;
        let switch = self.switch_unit(guest, nic);
        switch.end()?;
        // Nobody knows of a device of a NIC that is in no definition.
        let own = self.nic_of_definition(guest, nic)?;
        if own.as_ref().is_none_or(|own| own.nic.path == DataPath::SwitchTap) {
            self.end_taps(guest, nic)?;
        }
        own.map_or(Ok(()), |own| self.has_left_no_device(&switch, &own))
    }

    /// Ends the switches that a definition had, before another takes its place: that one may have other NICs, or lead them elsewhere. A VM
    /// that ends by itself leaves its switches. The caller has the guest's lock.
    pub(super) fn end_switches_of(&self, definition: &GuestDefinition) -> Result<(), GuestError> {
        for own in definition.nics.iter().filter(|own| own.nic.path.has_switch()) {
            let guest = &definition.guest;
            let switch = self.switch_unit(guest, &own.name);
            if files::exists(directory(&self.state, guest, &own.name)) {
                switch.end()?;
                self.has_left_no_device(&switch, own)?;
            }
            if own.nic.path == DataPath::SwitchTap {
                self.end_taps(guest, &own.name)?;
            }
        }
        Ok(())
    }

    pub(super) fn own_nic(&self, guest: &GuestName, nic: &NicName) -> Result<GuestNic, GuestError> {
        let found = self.defined(guest)?.nics.into_iter().find(|own| own.name == *nic);
        found.ok_or_else(|| GuestError::Switch {
            guest: guest.clone(),
            nic: nic.clone(),
            what: "belongs to no NIC that the VM was defined with".to_owned(),
            said: Vec::new(),
        })
    }

    /// The interface that a NIC's uplink leads to, which is there; why it is not, else.
    fn uplink(&self, own: &GuestNic) -> Result<Option<InterfaceName>, String> {
        let Some(uplink) = &own.nic.uplink else { return Ok(None) };
        let reports = Netlink::open()
            .and_then(|mut netlink| netlink.interfaces())
            .map_err(|error| format!("cannot be led to {uplink}: {}", penstock_host::chain(&error)))?;
        let found = match (uplink, own.uplink_at) {
            (Uplink::Interface(name), _) => {
                reports.iter().find(|report| report.interface.name == *name).cloned()
            }
            (Uplink::Function(_), Some(function)) => interface_of(function, &reports, &self.root),
            (Uplink::Function(_), None) => None,
        };
        match found {
            Some(report) => Ok(Some(report.interface.name)),
            None => Err(format!("cannot be led to {uplink}: this host has no such interface")),
        }
    }

    /// The ports of the switch of a NIC, as it tells of them; why it does not, else.
    ///
    /// # Errors
    ///
    /// In words, why the switch does not tell: it does not run, or its socket does not answer.
    pub fn switch_ports(
        &self,
        guest: &GuestName,
        nic: &NicName,
    ) -> Result<BTreeMap<String, PortReport>, String> {
        let ports = control::ports(&control_socket(&self.state, guest, nic));
        let mut ports = ports.map_err(|error| penstock_host::chain(&error))?;
        if let Ok(own) = self.own_nic(guest, nic)
            && own.nic.path == DataPath::VhostVdpa
        {
            self.see_devices(guest, &own, &mut ports);
        }
        Ok(ports)
    }

    /// What the host has set for each VF at the switch of a NIC, in index order, whatever was set from inside on top; for an igb's one
    /// port; `None` when the switch does not tell.
    pub(crate) fn vf_ports(&self, guest: &GuestName, own: &GuestNic) -> Option<Vec<VfState>> {
        let nic = &own.name;
        let ports = self.switch_ports(guest, nic).ok()?;
        if own.nic.is_one_port() {
            return Some(vec![ports.get(&port(guest, nic, None))?.settings_of_host()?]);
        }
        let of = |vf| ports.get(&port(guest, nic, Some(vf)));
        (0..).map_while(VfIndex::new).map_while(of).map(PortReport::settings_of_host).collect()
    }

    /// Sets an attribute of a function of a guest's NIC at its switch, which keeps it should it die; it is in the VM's definition, too, for a
    /// switch that is started anew.
    pub(crate) fn set_port(
        &self,
        guest: &GuestName,
        nic: &NicName,
        vf: Option<VfIndex>,
        attribute: &VfAttribute,
        timeout: Duration,
    ) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        let definition = self.state.definition(guest)?;
        let mut definition = definition.ok_or_else(|| GuestError::Undefined { guest: guest.clone() })?;
        control::set(&control_socket(&self.state, guest, nic), &port(guest, nic, vf), attribute).map_err(
            |error| GuestError::Switch {
                guest: guest.clone(),
                nic: nic.clone(),
                what: "does not set it".to_owned(),
                said: vec![penstock_host::chain(&error)],
            },
        )?;
        let own = definition.nics.iter_mut().find(|own| own.name == *nic);
        let settings = own.and_then(|own| match vf {
            Some(vf) => own.nic.vfs.get_mut(usize::from(vf.get())),
            None => Some(&mut own.nic.settings),
        });
        let Some(settings) = settings else { return Ok(()) };
        settings.set(attribute);
        self.state.define(&definition)
    }

    /// Whether the switch of a NIC has this attribute for a function; why not, else.
    pub(crate) fn port_has(
        &self,
        guest: &GuestName,
        nic: &NicName,
        vf: Option<VfIndex>,
        attribute: &VfAttribute,
    ) -> Result<(), String> {
        let ports = self.switch_ports(guest, nic)?;
        let name = port(guest, nic, vf);
        let report = ports.get(&name).ok_or_else(|| format!("it has no port {name}"))?;
        let has = report.settings_of_host().ok_or("its report of the host's settings cannot be parsed")?;
        let mut wanted = has.clone();
        wanted.set(attribute);
        if wanted == has { Ok(()) } else { Err("the switch has it otherwise".to_owned()) }
    }

    /// Whether the switch of a NIC runs, with a port for each function and with whoever hands it what the VM asks, or nothing of it is
    /// there; why not, else.
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
        let ports = match self.switch_ports(guest, nic) {
            Ok(ports) => ports,
            Err(why) => return Ok(Err(why)),
        };
        let names = own.nic.functions().map(|(vf, ..)| port(guest, nic, vf));
        if let Some(missing) = names.into_iter().find(|name| !ports.contains_key(name)) {
            return Ok(Err(format!("it has no port {missing}")));
        }
        Ok(if own.nic.allows() { self.switch_unit(guest, nic).follows_filters() } else { Ok(()) })
    }

    /// Whether [`stop_switch`](Vms::stop_switch) has nothing to do; what is there, else.
    fn switch_is_gone(&self, guest: &GuestName, nic: &NicName) -> Result<Result<(), String>, GuestError> {
        let switch = self.switch_unit(guest, nic);
        if let Err(why) = switch.is_gone() {
            return Ok(Err(why));
        }
        let own = self.nic_of_definition(guest, nic)?;
        if own.as_ref().is_none_or(|own| own.nic.path == DataPath::SwitchTap)
            && let Err(why) = self.no_taps(guest, nic)?
        {
            return Ok(Err(why));
        }
        let left = own.map_or(Ok(()), |own| self.has_left_no_device(&switch, &own));
        Ok(left.map_err(|error| error.to_string()))
    }

    /// Whether the switch of a NIC, of a guest of either kind, answers now.
    pub(crate) fn switch_is_served(&self, guest: &GuestName, nic: &NicName) -> bool {
        self.switch_unit(guest, nic).is_served()
    }

    /// A NIC as the VM is defined with it, if it is.
    pub(super) fn nic_of_definition(
        &self,
        guest: &GuestName,
        nic: &NicName,
    ) -> Result<Option<GuestNic>, GuestError> {
        let own = self.definition(guest)?.into_iter().flat_map(|definition| definition.nics);
        Ok(own.into_iter().find(|own| own.name == *nic))
    }

    /// Whether QEMU is connected to each port, or has opened each device or tap, of each NIC of the VM's own; why not, else.
    pub(crate) fn ports_connected(&self, guest: &GuestName) -> Result<Result<(), String>, GuestError> {
        for own in self.defined(guest)?.nics {
            if own.nic.path == DataPath::Tap {
                match Vms::taps_attached(guest, &own) {
                    Ok(()) => continue,
                    Err(why) => return Ok(Err(why)),
                }
            }
            let ports = match self.switch_ports(guest, &own.name) {
                Ok(ports) => ports,
                Err(why) => return Ok(Err(why)),
            };
            for (vf, ..) in own.nic.functions() {
                let name = port(guest, &own.name, vf);
                match ports.get(&name) {
                    Some(report) if report.connected => {}
                    Some(report) => {
                        let why = report.unconnected.clone().unwrap_or_else(|| "it has not come".to_owned());
                        return Ok(Err(format!("QEMU is not connected to the port of {name}: {why}")));
                    }
                    None => return Ok(Err(format!("its embedded switch has no port {name}"))),
                }
            }
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_that_a_model_may_have_fit_a_socket() {
        let state = State::new("/run/penstock/guests".into());
        let (guest, nic) = ("g".repeat(48).parse().unwrap(), "n".repeat(12).parse().unwrap());
        let path = control_socket(&state, &guest, &nic);
        assert!(path.as_os_str().len() <= 107, "{}", path.display());
    }

    #[test]
    fn what_runs_beside_a_vm_stays_when_a_target_is_isolated_as_the_vm_does_and_ends_with_the_machine() {
        let state = State::new("/run/penstock/guests".into());
        let (guest, nic) = ("web".parse().unwrap(), "NET0".parse().unwrap());
        let program = Path::new("/usr/bin/penstock");
        let start = SwitchStart { line: None, workers: 1 };
        let switch = start_command("switch.service", program, &directory(&state, &guest, &nic), start);
        for command in [switch, follow_command(&guest, &nic, program, &state)] {
            let line = command.to_string();
            let (asked, _) = line.split_once(" -- ").unwrap();
            for property in [
                "IgnoreOnIsolate=yes",
                "DefaultDependencies=no",
                "Conflicts=shutdown.target",
                "Restart=always",
            ] {
                assert!(asked.contains(property), "{property}: {line}");
            }
            assert!(!asked.contains("Requires="), "{line}");
        }
    }

    /// What the package has for who runs a switch without Penstock keeps it from the same.
    #[test]
    fn both_units_of_a_switch_confine_it_alike() {
        let start = SwitchStart { line: None, workers: 1 };
        let line = start_command("a.service", Path::new("/a"), Path::new("/b"), start).to_string();
        let packaged = include_str!("../../../../packaging/penstock-switch@.service");
        // Nor does either stay down after it has died often.
        let restarted = ["Restart=always", "StartLimitIntervalSec=0"];
        for property in CONFINED.into_iter().chain(restarted) {
            assert!(packaged.lines().any(|line| line == property), "{property}");
            assert!(line.contains(property), "{property}: {line}");
        }
        // systemd takes no notice of it among what is of a service.
        let (of_unit, _) = packaged.split_once("[Service]").unwrap();
        assert!(of_unit.contains("\nStartLimitIntervalSec=0\n"), "{of_unit}");
    }
}
