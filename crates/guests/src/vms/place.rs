//! The inside of a VM: through the guest agent, or by what it prints on its console.

use std::{
    ffi::{OsStr, OsString},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Command, InterfaceReport, Output, Place, PlaceError, ProcessError, Root, chain, files, running::Running,
};
use penstock_model::{Boot, GuestName, InterfaceName, inventory::Interface};
use penstock_plan::action::GuestDefinition;
use serde_json::Value;

use super::{
    agent::{self, AgentInterface, AnswerError, Program},
    builtin, console_report,
    domain::{self, function_at},
    kernel_routes,
    virsh::{Virsh, VirshError},
};
use crate::state::State;

/// How long the agent has to answer one question, in the time of a slow machine.
const ANSWER: Duration = Duration::from_secs(15);

/// How long a command without a deadline of its own may run inside.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How libvirt says that the agent went away while it was asked (`src/qemu/qemu_agent.c`).
const AGENT_LEFT: [&str; 2] = ["Guest agent disappeared", "QEMU guest agent is not connected"];

/// How many bytes of a file are asked for at once; the agent's answer is a third longer.
const CHUNK: usize = 1 << 20;

/// How much of a console is looked at for a report, from its end and, when there is none, from its beginning.
const CONSOLE: usize = 2 << 20;

/// The inside of a VM whose agent answers, for as long as it runs.
#[derive(Clone, Debug)]
pub struct VmPlace {
    pub(super) root: Root,
    pub(super) virsh: Virsh,
    pub(super) definition: GuestDefinition,
    pub(super) process: Running,
}

impl VmPlace {
    /// The name of the VM.
    pub fn guest(&self) -> &GuestName {
        &self.definition.guest
    }

    /// Whether the agent answers, and why not else.
    pub(super) fn ping(&self, timeout: Duration) -> Result<(), VirshError> {
        let answer = self.virsh.ask_agent(self.guest(), &agent::ping(), timeout)?;
        agent::nothing(&answer).map_err(|error| VirshError::Refused { said: vec![chain(&error)] })
    }

    fn builtin(&self) -> bool {
        self.definition.vm.as_ref().is_some_and(|vm| vm.boot == Boot::Builtin)
    }

    fn ask<T>(
        &self,
        request: &Value,
        read: impl FnOnce(&[u8]) -> Result<T, AnswerError>,
    ) -> Result<T, PlaceError> {
        let answer =
            self.virsh.ask_agent(self.guest(), request, ANSWER).map_err(|error| self.gone(&error))?;
        read(&answer).map_err(|error| self.gone(&error))
    }

    fn gone(&self, error: &dyn std::error::Error) -> PlaceError {
        let why = if self.process.is_alive_below(&self.root) {
            chain(error)
        } else {
            "the VM does not run any more".to_owned()
        };
        PlaceError::Gone { place: self.describe(), why }
    }

    /// Asks until the program has ended, less and less often: most end at once.
    fn await_end(&self, pid: i64, command: &Command, started: Instant) -> Result<agent::Ended, PlaceError> {
        let allowed = command.time_allowed().unwrap_or(TIMEOUT);
        let mut interval = Duration::from_millis(20);
        loop {
            if let Some(ended) = self.ask(&agent::exec_status(pid), agent::ended)? {
                return Ok(ended);
            }
            if started.elapsed() >= allowed {
                let kill = Program {
                    path: "kill".to_owned(),
                    arguments: vec!["-9".to_owned(), pid.to_string()],
                    ..Program::default()
                };
                let _ = self.ask(&agent::exec(&kill), agent::pid);
                let source =
                    ProcessError::TimedOut { command: command.to_string(), after: allowed, left: None };
                return Err(PlaceError::Process { place: self.describe(), source });
            }
            if penstock_host::interrupt::pending() {
                let source = ProcessError::Interrupted { command: command.to_string(), left: None };
                return Err(PlaceError::Process { place: self.describe(), source });
            }
            thread::sleep(interval.min(allowed.saturating_sub(started.elapsed())));
            interval = (interval * 2).min(Duration::from_secs(1));
        }
    }

    fn run_once(&self, command: &Command) -> Result<Output, PlaceError> {
        let started = Instant::now();
        let request = agent::exec(&program(command));
        let answer = self.virsh.ask_agent(self.guest(), &request, ANSWER);
        let answer = answer.map_err(|error| {
            if error.says(&["No such file or directory"]) {
                let program = command.program().to_string_lossy().into_owned();
                let source = ProcessError::NotInstalled { program };
                return PlaceError::Process { place: self.describe(), source };
            }
            self.gone(&error)
        })?;
        let pid = agent::pid(&answer).map_err(|error| self.gone(&error))?;
        let ended = self.await_end(pid, command, started)?;
        let status = ended.signal.filter(|signal| *signal != 0).unwrap_or(ended.code << 8);
        Ok(Output {
            command: command.to_string(),
            status: ExitStatus::from_raw(status),
            stdout: ended.stdout,
            stderr: ended.stderr,
            truncated: ended.truncated,
        })
    }

    /// What this same program, inside, tells of the interfaces.
    fn by_own_program(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let command = Command::new(builtin::PROGRAM).args(["inside", "interfaces"]).deadline(ANSWER * 2);
        let output = self.run(&command)?.succeeded();
        let output = output.map_err(|source| PlaceError::Process { place: self.describe(), source })?;
        serde_json::from_slice(&output.stdout).map_err(|error| self.gone(&error))
    }

    /// What the agent itself tells, and what a shell reads in `/sys` of what the agent does not.
    fn by_agent(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let found = self.ask(&agent::get_interfaces(), agent::interfaces)?;
        let details = "for d in /sys/class/net/*; do [ -e \"$d/device\" ] || continue; \
                      echo \"${d##*/} $(cat \"$d/ifindex\") $(cat \"$d/mtu\") $(cat \"$d/flags\") \
                      $(cat \"$d/carrier\" 2>/dev/null || echo -) $(readlink -f \"$d/device\")\"; done";
        let script = format!("{details}; {}", kernel_routes::SCRIPT);
        let command = Command::new("/bin/sh").args(["-c", &script]).deadline(ANSWER * 2);
        // A guest may have no shell, or an agent that runs nothing.
        let text = self.run(&command).map_or_else(|_| String::new(), |output| output.text());
        let of_devices = text.split(kernel_routes::BEGIN).next().unwrap_or_default();
        let details: Vec<Detail> = of_devices.lines().filter_map(Detail::read).collect();
        let routes = kernel_routes::read(&text);
        let of = |name: &InterfaceName| {
            let own = routes.iter().flatten().filter(|(interface, _)| interface == name.as_str());
            routes.is_some().then(|| own.map(|(_, route)| route.clone()).collect())
        };
        let report = |(found, index): (&AgentInterface, u32)| InterfaceReport {
            routes: of(&found.name),
            ..self.report(found, index, &details)
        };
        Ok(found.iter().zip(1..).map(report).collect())
    }

    fn report(&self, found: &AgentInterface, index: u32, details: &[Detail]) -> InterfaceReport {
        let detail = details.iter().find(|detail| detail.name == found.name.as_str());
        InterfaceReport {
            index: detail.map_or(index, |detail| detail.index),
            interface: Interface {
                name: found.name.clone(),
                mac: found.mac,
                mtu: detail.map_or(0, |detail| detail.mtu),
                up: detail.is_none_or(|detail| detail.up),
                carrier: detail.and_then(|detail| detail.carrier),
                speed: None,
                addresses: found.addresses.clone(),
                routes: Vec::new(),
                master: None,
                uppers: Vec::new(),
            },
            permanent_mac: None,
            device: detail.map(|detail| detail.device.clone()),
            kind: None,
            port_name: None,
            promiscuous: None,
            routes: None,
            master: None,
            lower: None,
        }
    }
}

/// What `/sys/class/net` has of an interface: "eth0 2 1500 0x1003 1 /sys/devices/pci0000:00/0000:00:04.0/virtio1".
struct Detail {
    name: String,
    index: u32,
    mtu: u32,
    up: bool,
    carrier: Option<bool>,
    device: String,
}

impl Detail {
    fn read(line: &str) -> Option<Detail> {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let index = words.next()?.parse().ok().filter(|index| *index > 0)?;
        let mtu = words.next()?.parse().ok()?;
        let flags = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        let carrier = match words.next()? {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        // The PCI function, also behind what virtio puts in between.
        let mut parts = words.next()?.rsplit('/');
        let device = parts.find(|part| part.parse::<penstock_model::Bdf>().is_ok())?.to_owned();
        Some(Detail { name, index, mtu, up: flags & 1 != 0, carrier, device })
    }
}

impl Place for VmPlace {
    fn describe(&self) -> String {
        format!("inside {}", self.guest())
    }

    /// As [`Place::run`]. An agent that goes away meanwhile, as one does that its init system starts anew, is waited for,
    /// and the command is run once more: it may then have run twice.
    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        match self.run_once(command) {
            Err(PlaceError::Gone { why, .. }) if AGENT_LEFT.iter().any(|words| why.contains(words)) => {
                let deadline = Instant::now() + ANSWER;
                while self.ping(Duration::from_secs(2)).is_err()
                    && self.process.is_alive_below(&self.root)
                    && Instant::now() < deadline
                {
                    thread::sleep(Duration::from_millis(200));
                }
                self.run_once(command)
            }
            outcome => outcome,
        }
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError> {
        let handle = match self.virsh.ask_agent(self.guest(), &agent::open(path), ANSWER) {
            Ok(answer) => agent::handle(&answer).map_err(|error| self.gone(&error))?,
            Err(VirshError::Refused { said }) if self.process.is_alive_below(&self.root) => {
                let why = said.join("; ");
                return Err(PlaceError::File { place: self.describe(), path: path.to_owned(), why });
            }
            Err(error) => return Err(self.gone(&error)),
        };
        let mut bytes = Vec::new();
        let outcome = loop {
            let count = CHUNK.min(limit - bytes.len());
            if count == 0 {
                break Ok(());
            }
            match self.ask(&agent::read(handle, count), agent::chunk) {
                // Nothing new and not the end: of a hostile guest that would go on for ever.
                Ok((chunk, last)) => {
                    let empty = chunk.is_empty();
                    bytes.extend(chunk.into_iter().take(count));
                    if last || empty {
                        break Ok(());
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let _ = self.ask(&agent::close(handle), agent::nothing);
        outcome.map(|()| bytes)
    }

    /// The interfaces inside. Of one that is a function's `device` is the function's address on the host, of others none:
    /// what a guest says of its devices is of its own addresses, and never taken for the host's.
    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let mut reports = if self.builtin() { self.by_own_program()? } else { self.by_agent()? };
        for report in &mut reports {
            let mac = Some(report.interface.mac);
            let function = match &report.device {
                Some(inside) => inside.parse().ok().and_then(|inside| function_at(&self.definition, inside)),
                // Where the guest does not tell the address, its MAC is what it is known by.
                None => self
                    .definition
                    .functions
                    .iter()
                    .find(|owned| owned.mac == mac)
                    .map(|owned| owned.function),
            };
            report.device = function.map(|function| function.to_string());
        }
        Ok(reports)
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Err(under_another_kernel(self.describe()))
    }

    fn own_program(&self) -> Option<&str> {
        self.builtin().then_some(builtin::PROGRAM)
    }
}

/// A command as the agent is told of it.
fn program(command: &Command) -> Program {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    let mut words: Vec<String> = command.arguments().iter().map(|word: &OsString| text(word)).collect();
    let mut path = text(command.program());
    if let Some(directory) = command.directory() {
        // The shell is given everything as arguments, so that nothing has to be quoted.
        words.insert(0, path);
        let script = "cd -- \"$0\" && exec \"$@\"".to_owned();
        words.splice(0..0, ["-c".to_owned(), script, text(directory.as_os_str())]);
        path = "/bin/sh".to_owned();
    }
    let mut environment: Vec<String> =
        command.environment().iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
    if !environment.is_empty() && !environment.iter().any(|variable| variable.starts_with("PATH=")) {
        // What the agent is given replaces its own.
        environment.push("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    }
    Program { path, arguments: words, environment, input: command.standard_input().to_vec() }
}

fn under_another_kernel(place: String) -> PlaceError {
    PlaceError::Gone { place, why: "its network namespace is under another kernel".to_owned() }
}

/// What a VM without an agent says about itself on its console.
#[derive(Clone, Debug)]
pub struct ConsolePlace {
    pub(super) state: State,
    pub(super) definition: GuestDefinition,
}

impl ConsolePlace {
    fn cannot(&self, what: &str) -> PlaceError {
        PlaceError::Gone {
            place: self.describe(),
            why: format!("it is looked into by its console alone, which cannot {what}"),
        }
    }
}

impl Place for ConsolePlace {
    fn describe(&self) -> String {
        format!("inside {}", self.definition.guest)
    }

    fn run(&self, _: &Command) -> Result<Output, PlaceError> {
        Err(self.cannot("run commands"))
    }

    fn read(&self, _: &str, _: usize) -> Result<Vec<u8>, PlaceError> {
        Err(self.cannot("read files"))
    }

    /// The NICs that it printed; a NIC's `device` is the host's function with its MAC address, or else with its name.
    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let nics = report_of(&self.state.file(&self.definition.guest, "console.log"));
        let nics = nics.ok_or_else(|| PlaceError::Gone {
            place: self.describe(),
            why: "it has not printed what it has on its console".to_owned(),
        })?;
        let functions = &self.definition.functions;
        let by_mac = |nic: &console_report::ConsoleNic| {
            functions.iter().find(|owned| owned.mac == Some(nic.mac)).map(|owned| owned.function)
        };
        let taken: Vec<_> = nics.iter().filter_map(by_mac).collect();
        let by_name = |nic: &console_report::ConsoleNic| {
            let named = functions.iter().find(|owned| owned.interface == nic.name)?;
            (!taken.contains(&named.function)).then_some(named.function)
        };
        let report = |(nic, index): (&console_report::ConsoleNic, u32)| InterfaceReport {
            index,
            device: by_mac(nic).or_else(|| by_name(nic)).map(|function| function.to_string()),
            interface: Interface {
                name: nic.name.clone(),
                mac: nic.mac,
                mtu: nic.mtu,
                up: nic.up,
                carrier: None,
                speed: None,
                addresses: nic.addresses.clone(),
                routes: Vec::new(),
                master: None,
                uppers: Vec::new(),
            },
            permanent_mac: None,
            kind: None,
            port_name: None,
            promiscuous: None,
            routes: None,
            master: None,
            lower: None,
        };
        Ok(nics.iter().zip(1..).map(report).collect())
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Err(under_another_kernel(self.describe()))
    }
}

/// The last whole report on a console, also where libvirt has put the log aside meanwhile (virtlogd: `max_size`).
pub(super) fn report_of(log: &Path) -> Option<Vec<console_report::ConsoleNic>> {
    ["", ".0", ".1", ".2"].into_iter().find_map(|suffix| {
        let mut path = log.as_os_str().to_owned();
        path.push(suffix);
        let path = Path::new(&path);
        let end = files::read_tail(path, CONSOLE).ok()?;
        console_report::parse(&end).or_else(|| {
            if end.len() < CONSOLE {
                return None;
            }
            console_report::parse(&files::read_at_most(path, CONSOLE).ok()?.0)
        })
    })
}

/// The addresses inside and on the host of a VM's functions, in order.
pub fn addresses(definition: &GuestDefinition) -> Vec<(penstock_model::Bdf, penstock_model::Bdf)> {
    let count = definition.host_functions().count();
    let functions = definition.host_functions().enumerate();
    functions
        .filter_map(|(position, function)| Some((domain::address_inside(position, count)?, function)))
        .collect()
}
