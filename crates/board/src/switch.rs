//! The embedded switches of composed virtio NICs: what each is told at its start, and the processes that they are.
//!
//! Which program is a switch, this crate does not know: whoever brings a board up says how it is run
//! ([`UpOptions::switch`](crate::UpOptions)). What it is told is described in `docs/switch.md`.

use std::{
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{Command, files, interrupt, process::Background};
use penstock_model::{Mac, NicName, VfIndex};
use serde_json::{Value, json};

use crate::{design::BoardNic, error::BoardError, log};

/// The directory of the sockets, in that of the board: a socket's path is short.
pub const DIRECTORY: &str = "switch";
/// What the switches said.
pub const LOG: &str = "switch.log";
/// What the name of a line begins with; the permanent MAC address of the NIC's PF follows.
pub const LINE: &str = "org.penstock.switch.";
/// The version of a switch's configuration.
const VERSION: u32 = 1;
/// How long switches may take to be gone.
const ENDING: Duration = Duration::from_secs(10);
/// How long a switch may take to be there.
const STARTING: Duration = Duration::from_secs(10);

/// The embedded switch of one NIC. Each of the NIC's functions is a port of it, named as the model names the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    number: usize,
    nic: NicName,
    pf: Mac,
    ports: Vec<Port>,
    uplink: Option<Uplink>,
}

/// The cable of a NIC with an embedded switch, by the number of the switch that awaits the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplink {
    /// This switch awaits another.
    Listen(usize),
    /// It goes to the other.
    Connect(usize),
    /// It awaits QEMU, which has a NIC with a switch inside at the other end.
    Qemu(usize),
}

/// The socket of the cable that the switch `number` awaits.
pub fn cable(number: usize) -> String {
    format!("{DIRECTORY}/{number}.cable")
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    vf: Option<VfIndex>,
    mac: Mac,
    /// Its device's id in QEMU.
    device: String,
    /// Its other end's id in QEMU.
    netdev: String,
}

impl Switch {
    /// The board's switch number `number`, still without ports.
    pub fn new(number: usize, nic: &BoardNic) -> Switch {
        Switch { number, nic: nic.name.clone(), pf: nic.mac, ports: Vec::new(), uplink: None }
    }

    /// Has it lead out by a cable, or not.
    pub fn lead_out(&mut self, uplink: Option<Uplink>) {
        self.uplink = uplink;
    }

    /// One more port, of the VF `vf` or of the PF, whose device in QEMU is `device` and has `netdev` as its other end; gives its socket.
    pub fn add(&mut self, vf: Option<VfIndex>, mac: Mac, device: &str, netdev: &str) -> String {
        self.ports.push(Port { vf, mac, device: device.to_owned(), netdev: netdev.to_owned() });
        self.socket(vf)
    }

    fn socket(&self, vf: Option<VfIndex>) -> String {
        let function = vf.map_or_else(|| "pf".to_owned(), |vf| vf.to_string());
        format!("{DIRECTORY}/{}.{function}", self.number)
    }

    /// Its id among QEMU's character devices.
    pub fn id(&self) -> String {
        format!("switch{}", self.number)
    }

    /// The socket on which it is controlled.
    pub fn control(&self) -> String {
        format!("{DIRECTORY}/{}", self.number)
    }

    /// The monitor at which it tells QEMU of its ports' links.
    pub fn monitor(&self) -> String {
        format!("{DIRECTORY}/{}.qmp", self.number)
    }

    /// The monitor at which it follows what guests ask of their devices: one serves one at a time.
    pub fn filters(&self) -> String {
        format!("{DIRECTORY}/{}.filters", self.number)
    }

    /// The name of the line that leads to it from within the board.
    pub fn line(&self) -> String {
        format!("{LINE}{}", self.pf)
    }

    /// What it is told at its start: nothing is set yet but addresses, as in a NIC whose VFs were just made.
    pub fn configuration(&self) -> Value {
        let mut pf = None;
        let mut ports: serde_json::Map<String, Value> = self
            .ports
            .iter()
            .map(|port| {
                let name = port.vf.map_or_else(|| self.nic.to_string(), |vf| format!("{}#{vf}", self.nic));
                let mut settings = json!({
                    "socket": self.socket(port.vf),
                    "mac": port.mac.to_string(),
                    // The interfaces decide how long a frame may be, as behind any NIC's switch.
                    "mtu": u16::MAX,
                    "qemu": {"monitor": self.monitor(), "netdev": port.netdev},
                    "filter": {"monitor": self.filters(), "device": port.device},
                });
                if port.vf.is_none() {
                    // What is said over the line lapses with the PF's driver, as in a NIC.
                    pf = Some(name.clone());
                    // A PF gets no frames of its VFs' VLANs unless it asks its device for them.
                    settings["trunk"] = "0".into();
                    // Without trust it is not promiscuous, as it is below a bridge: what nobody has the address of is for whoever is
                    // behind it.
                    settings["default"] = true.into();
                }
                (name, settings)
            })
            .collect();
        if let Some(uplink) = self.uplink {
            let cable = match uplink {
                Uplink::Listen(number) => json!({"listen": cable(number)}),
                Uplink::Connect(number) => json!({"connect": cable(number)}),
                Uplink::Qemu(number) => json!({"qemu": cable(number)}),
            };
            // No function is called that.
            ports.insert(
                format!("{} uplink", self.nic),
                json!({"cable": cable, "uplink": true, "mtu": u16::MAX, "allow": everything()}),
            );
        }
        let mut allow = everything();
        allow["loopback"] = true.into();
        json!({"version": VERSION, "loopback": true, "pf": pf, "allow": allow, "ports": ports})
    }

    fn file(&self) -> String {
        format!("{DIRECTORY}/{}.json", self.number)
    }
}

/// All that may be set over a line: whoever is in a board is its administrator, and no board has a way out.
fn everything() -> Value {
    json!({
        "mac": "any",
        "more_macs": u16::MAX,
        "vlan": "0-4094",
        "qos": 7,
        "vlan_proto": true,
        "max_tx_rate": 0,
        "min_tx_rate": u32::MAX,
        "spoofchk": false,
        "arp_check": false,
        "trust": true,
        "promiscuous": true,
        "link_state": "enable",
        "mtu": u16::MAX,
    })
}

/// Starts the switches, each by `program` with its configuration and its control socket, and waits until QEMU can connect to
/// them. With `stays` they outlive Penstock. They end by themselves when their last guest has gone, which QEMU's end sees to.
/// What is given back, and `note` told of, are the processes that start them anew when they die.
///
/// # Errors
///
/// [`BoardError::NoSwitch`] without a `program`, [`BoardError::Switch`] with what it said when one ends or is not there in time,
/// [`BoardError::Interrupted`]; when a file cannot be written, a process not be started, or `note` fails.
pub fn start(
    switches: &[Switch],
    program: Option<&Command>,
    directory: &Path,
    stays: bool,
    note: &mut dyn FnMut(&[Background]) -> Result<(), BoardError>,
) -> Result<Vec<Background>, BoardError> {
    if switches.is_empty() {
        return Ok(Vec::new());
    }
    let program = program.ok_or(BoardError::NoSwitch)?;
    files::remove_tree(directory.join(DIRECTORY))?;
    files::create_dir_all(directory.join(DIRECTORY))?;
    let mut processes = Vec::new();
    for switch in switches {
        files::write_atomic(directory.join(switch.file()), format!("{:#}\n", switch.configuration()))?;
        let command = program
            .clone()
            .args([switch.file().as_str(), "--control", switch.control().as_str()])
            .current_dir(directory);
        let log = files::append(directory.join(LOG))?;
        processes.push(if stays { command.start_to_stay(log)? } else { command.start_logged(log)? });
        note(&processes)?;
    }
    let deadline = Instant::now() + STARTING;
    for (switch, process) in switches.iter().zip(&mut processes) {
        // The control socket is the last that it makes.
        while UnixStream::connect(directory.join(switch.control())).is_err() {
            if interrupt::pending() {
                return Err(BoardError::Interrupted { doing: "starting an embedded switch" });
            }
            if process.ended().is_some() || Instant::now() > deadline {
                return Err(BoardError::Switch { nic: switch.nic.clone(), why: said(directory) });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(processes)
}

/// Waits until no switch of the board in `directory` is there any more, of which those are told that start them anew.
pub fn await_end(directory: &Path) {
    let deadline = Instant::now() + ENDING;
    let names = files::list(directory.join(DIRECTORY)).unwrap_or_default();
    for name in names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        let socket = directory.join(DIRECTORY).join(name);
        // The kernel closes it when it takes the process away.
        while UnixStream::connect(&socket).is_ok() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What the switches of the board in `directory` said.
fn said(directory: &Path) -> String {
    let text = log::tail(&directory.join(LOG), 1 << 16).trim().to_owned();
    if text.is_empty() { "it said nothing".to_owned() } else { text }
}
