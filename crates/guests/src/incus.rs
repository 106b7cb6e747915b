//! Instances that Incus runs (its REST API, `GET /1.0/instances`): they are looked into, and nothing about them is changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use penstock_host::{Command, Place, ProcessError, Root, boot, chain, files, process, running::Running};
use penstock_model::{GuestKind, GuestName, InterfaceName, VfIndex};
use serde::Deserialize;

use crate::containers::ContainerPlace;

const PROGRAM: &str = "incus";

/// Where Incus keeps a directory for each instance that runs.
const RUN: &str = "/run/incus";

/// How long Incus may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why it is not known which instances there are.
#[derive(Debug, thiserror::Error)]
pub enum IncusError {
    /// Its program could not be run, or its daemon does not answer.
    #[error("Incus does not say what it runs")]
    Silent(#[from] ProcessError),
    /// What it answers is not what its API says.
    #[error("the output of `incus query {path}` cannot be parsed")]
    Garbled {
        /// What was asked for.
        path: String,
        /// What is wrong with the answer.
        #[source]
        source: serde_json::Error,
    },
}

/// Which of some guests Incus runs.
#[derive(Debug, Default)]
pub struct Listing {
    /// Those that run on this machine.
    pub running: BTreeMap<GuestName, Instance>,
    /// Those that are being stopped or started, or of which Incus does not say enough; each with why.
    pub unseen: BTreeMap<GuestName, String>,
}

/// An instance that runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// What it is.
    pub kind: GuestKind,
    /// Its init, or its QEMU. Incus gives its VFs back once that has ended, and says for longer that the instance runs.
    pub process: Running,
    /// Its VFs, by the names of their interfaces inside: of a VM, by those of their devices.
    pub vfs: BTreeMap<InterfaceName, ChosenVf>,
}

/// The VF that Incus has taken for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenVf {
    /// The interface of its PF.
    pub parent: InterfaceName,
    /// Which VF of the PF it is.
    pub index: VfIndex,
}

/// `GET /1.0`.
#[derive(Deserialize)]
struct Server {
    environment: Environment,
}

#[derive(Deserialize)]
struct Environment {
    server_name: String,
    #[serde(default)]
    server_clustered: bool,
}

/// One of `GET /1.0/instances?recursion=1`.
#[derive(Deserialize)]
struct Listed {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    status: String,
    /// The member of a cluster that it is on.
    location: String,
    /// Incus' own notes in it begin with `volatile.`.
    expanded_config: BTreeMap<String, String>,
    expanded_devices: BTreeMap<String, BTreeMap<String, String>>,
}

/// `GET /1.0/operations?recursion=1`, by their states.
type Operations = BTreeMap<String, Vec<Operation>>;

/// An operation of Incus.
#[derive(Deserialize)]
struct Operation {
    /// Its kind, in English.
    #[serde(default)]
    description: String,
    /// Paths below `/1.0` of what it is about, by kind.
    #[serde(default)]
    resources: Option<BTreeMap<String, Vec<String>>>,
}

/// `GET /1.0/instances/NAME/state`.
#[derive(Deserialize)]
struct State {
    #[serde(default)]
    pid: i64,
}

impl State {
    /// The instance's init, or its QEMU; none when it does not run. An error in words where this machine does not show that process.
    fn process(&self) -> Result<Option<Running>, String> {
        let Some(pid) = u32::try_from(self.pid).ok().filter(|pid| *pid != 0) else { return Ok(None) };
        let process = Running::of(pid);
        process
            .map(Some)
            .ok_or_else(|| format!("process {pid}, which Incus says it is, is not to be seen here"))
    }
}

/// Whether an instance of this name may run. To ask Incus would start its daemon where none does.
pub fn may_run(root: &Root, guest: &GuestName) -> bool {
    files::exists(root.path(format!("{RUN}/{guest}")))
}

/// Those of these guests that are instances of the default project and run on this machine; none where Incus is not installed. The
/// processes that are `known` of some are not asked for while they live.
///
/// # Errors
///
/// See [`IncusError`].
pub fn instances(
    names: &BTreeSet<GuestName>,
    known: &BTreeMap<GuestName, Running>,
) -> Result<Listing, IncusError> {
    if process::find(PROGRAM).is_none() {
        return Ok(Listing::default());
    }
    let server: Server = query("/1.0")?;
    let asked = boot::elapsed();
    let listed: Vec<Listed> = query("/1.0/instances?recursion=1")?;
    let mut listing = Listing::default();
    let mut running = here(&server, listed);
    running.retain(|name, _| names.contains(name));
    if running.len() < names.len() {
        // While one is being started it is listed as stopped.
        let worked_on = worked_on(&query("/1.0/operations?recursion=1")?);
        let stopped = names.iter().filter(|name| !running.contains_key(*name) && worked_on.contains(*name));
        listing.unseen.extend(stopped.map(|name| (name.clone(), at_work(name))));
    }
    for (name, instance) in running {
        let process = match known.get(&name).filter(|process| process.is_alive()) {
            Some(process) => Ok(Some(*process)),
            None => query(&format!("/1.0/instances/{name}/state"))
                .map_err(|error| chain(&error))
                .and_then(|state: State| state.process()),
        };
        match process {
            // What was listed of an instance that has been started since is of its last run: some of its VFs, or others.
            Ok(Some(process)) if process.began() < asked => {
                listing.running.insert(name, found(&instance, process));
            }
            Ok(_) => {
                let why = at_work(&name);
                listing.unseen.insert(name, why);
            }
            Err(why) => {
                listing.unseen.insert(name, why);
            }
        }
    }
    Ok(listing)
}

fn at_work(guest: &GuestName) -> String {
    format!("Incus starts or stops {guest} at this moment")
}

/// How those operations are called that start or stop instances (`internal/server/db/operationtype` of Incus): a backup, say, does not.
const STARTS_OR_STOPS: [&str; 8] =
    ["Starting", "Stopping", "Restarting", "Creating", "Rebuilding", "Restoring", "Migrating", "Deleting"];

/// The instances of the default project that operations start or stop which have not ended.
fn worked_on(operations: &Operations) -> BTreeSet<GuestName> {
    let going_on = ["pending", "running"].iter().filter_map(|status| operations.get(*status)).flatten();
    let touches = |operation: &&Operation| {
        STARTS_OR_STOPS.iter().any(|begins| operation.description.starts_with(begins))
    };
    let going_on = going_on.filter(touches);
    let instances = going_on.filter_map(|operation| operation.resources.as_ref()?.get("instances"));
    instances.flatten().filter_map(|path| path.strip_prefix("/1.0/instances/")?.parse().ok()).collect()
}

/// What is listed of those that run on this machine, so Incus says; one that is paused or says that it is ready runs. Those whose names
/// are none of guests are left out.
fn here(server: &Server, listed: Vec<Listed>) -> BTreeMap<GuestName, Listed> {
    let is_here = |instance: &Listed| {
        !server.environment.server_clustered || instance.location == server.environment.server_name
    };
    let runs = |instance: &Listed| matches!(&instance.status[..], "Running" | "Ready" | "Frozen");
    let running = listed.into_iter().filter(|instance| runs(instance) && is_here(instance));
    running.filter_map(|instance| Some((instance.name.parse().ok()?, instance))).collect()
}

/// Reads what Incus answers of itself, of its instances and of its operations; how many guests it tells of.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_answers(server: &[u8], listed: &[u8], operations: &[u8]) -> usize {
    let at_work = read::<Operations>("", operations).map_or(0, |operations| worked_on(&operations).len());
    let state = read::<State>("", operations).ok().and_then(|state| state.process().ok().flatten());
    let (Ok(server), Ok(listed)) = (read("", server), read::<Vec<Listed>>("", listed)) else {
        return at_work;
    };
    let process = state.unwrap_or(Running { id: 1, started: 1 });
    let here = here(&server, listed);
    let found: Vec<Instance> = here.values().map(|instance| found(instance, process)).collect();
    found.len() + at_work
}

fn found(instance: &Listed, process: Running) -> Instance {
    let kind = if instance.kind == "virtual-machine" { GuestKind::Vm } else { GuestKind::Container };
    let vf = |(device, keys): (&String, &BTreeMap<String, String>)| {
        let noted =
            |key: &str| instance.expanded_config.get(&format!("volatile.{device}.last_state.vf.{key}"));
        let name = keys.get("name").filter(|_| kind == GuestKind::Container).unwrap_or(device);
        let index: u16 = noted("id")?.parse().ok()?;
        Some((
            name.parse().ok()?,
            ChosenVf { parent: noted("parent")?.parse().ok()?, index: VfIndex::new(index)? },
        ))
    };
    Instance { kind, process, vfs: instance.expanded_devices.iter().filter_map(vf).collect() }
}

/// The inside of a container that Incus runs under this name, whose first process is `init`.
pub fn place(root: &Root, guest: &GuestName, init: Running) -> Box<dyn Place> {
    Box::new(ContainerPlace::of_incus(root.clone(), guest.clone(), init))
}

/// What runs a command inside an instance, but for `-- COMMAND`.
pub(crate) fn exec(guest: &GuestName) -> Command {
    program().arg("exec").arg(format!("local:{guest}")).arg("--mode=non-interactive")
}

/// Incus' client, which talks to the daemon of this machine whatever remote is the user's usual one.
fn program() -> Command {
    let program = process::find(PROGRAM).unwrap_or_else(|| PROGRAM.into());
    Command::new(program).current_dir("/")
}

fn query<T: for<'a> Deserialize<'a>>(path: &str) -> Result<T, IncusError> {
    let output = program().arg("query").arg(format!("local:{path}")).deadline(PATIENCE).succeed()?;
    read(path, &output.stdout)
}

fn read<T: for<'a> Deserialize<'a>>(path: &str, said: &[u8]) -> Result<T, IncusError> {
    // Of an empty object the client prints nothing.
    let said = if said.trim_ascii().is_empty() { b"{}" } else { said };
    serde_json::from_slice(said).map_err(|source| IncusError::Garbled { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PROCESS: Running = Running { id: 1, started: 1 };

    fn listed(name: &str, kind: &str, status: &str, location: &str) -> serde_json::Value {
        json!({
            "name": name, "type": kind, "status": status, "location": location, "architecture": "x86_64",
            "expanded_config": {
                "volatile.one.last_state.vf.id": "3", "volatile.one.last_state.vf.parent": "ens1",
                "volatile.two.last_state.vf.id": "99999", "volatile.two.last_state.vf.parent": "ens1",
                "volatile.bridged.hwaddr": "10:66:6a:00:00:01",
            },
            "expanded_devices": {
                "one": {"type": "nic", "nictype": "sriov", "parent": "ens1", "name": "data0"},
                "two": {"type": "nic", "nictype": "sriov", "parent": "ens1"},
                "bridged": {"type": "nic", "network": "incusbr0", "name": "eth0"},
                "root": {"type": "disk", "path": "/"},
            },
        })
    }

    fn instances_of(server: serde_json::Value, listed: serde_json::Value) -> BTreeMap<GuestName, Instance> {
        let listed = here(&serde_json::from_value(server).unwrap(), serde_json::from_value(listed).unwrap());
        listed.into_iter().map(|(name, instance)| (name, found(&instance, PROCESS))).collect()
    }

    #[test]
    fn each_vf_is_known_by_its_interface_inside() {
        let server = json!({"environment": {"server_name": "box", "server_clustered": false}});
        let all = json!([
            listed("web", "container", "Running", "none"),
            listed("vm", "virtual-machine", "Ready", "none"),
            listed("paused", "container", "Frozen", "none"),
            listed("idle", "container", "Stopped", "none"),
        ]);
        let found = instances_of(server, all);
        let vf = ChosenVf { parent: "ens1".parse().unwrap(), index: VfIndex::new(3).unwrap() };
        let of = |kind, name: &str| Instance {
            kind,
            process: PROCESS,
            vfs: [(name.parse().unwrap(), vf.clone())].into(),
        };
        let container = of(GuestKind::Container, "data0");
        let wanted = [("vm", of(GuestKind::Vm, "one")), ("web", container.clone()), ("paused", container)];
        assert_eq!(found, wanted.map(|(name, instance)| (name.parse().unwrap(), instance)).into());
    }

    #[test]
    fn those_that_are_being_started_are_known_by_operations() {
        let about = |what: &str, path: &str| json!({"description": what, "resources": {"instances": [path]}});
        let start = |path: &str| about("Starting instance", path);
        let backup = about("Backing up instance", "/1.0/instances/kept");
        let nothing = json!({"description": "Starting instance", "resources": null});
        let operations = json!({
            "running": [start("/1.0/instances/web"), backup, nothing, {"class": "websocket"}],
            "pending": [about("Restarting instance", "/1.0/instances/db"), start("/1.0/instances/other?project=lab")],
            "success": [start("/1.0/instances/idle")],
        });
        let found = worked_on(&serde_json::from_value(operations).unwrap());
        assert_eq!(found.iter().map(GuestName::as_str).collect::<Vec<_>>(), ["db", "web"]);
        assert!(read::<Operations>("/1.0/operations", b"\n").unwrap().is_empty(), "there are none");
        assert!(read::<Operations>("/1.0/operations", b"{").is_err());
    }

    #[test]
    fn an_instance_on_another_member_of_the_cluster_is_not_here() {
        let server = json!({"environment": {"server_name": "a", "server_clustered": true}});
        let all =
            json!([listed("web", "container", "Running", "a"), listed("db", "container", "Running", "b")]);
        let found = instances_of(server, all);
        assert_eq!(found.keys().map(GuestName::as_str).collect::<Vec<_>>(), ["web"]);
    }
}
