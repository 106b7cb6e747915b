//! The controller: brings models to nodes in waves.
//!
//! It watches `SriovMachine`, `SriovNode` and Node, decides ([`rollout::decide`]), and writes what was decided. It keeps nothing: all that it
//! goes by is in objects, so it may be killed at any time. Each write to a node has the object's resourceVersion as its precondition, so two
//! controllers cannot both tell one node; the Lease only keeps them from working in vain. Nothing changed, nothing is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use k8s_openapi::api::core::v1;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    arguments,
    client::{ApiError, ClientSettings, ConnectError, REQUEST, answer, connect},
    identity::CORDONED,
    log::{self, LastingTrouble},
    machine::{SriovMachine, SriovMachineStatus, SriovNode, UtcTime, node::Stage},
    metrics::server::{MetricsError, MetricsServer},
    pace::Backoff,
    rollout::{self, Cordon, Drained, Machine, Node, Record, RolloutDecision, SpecWrite},
};

mod announce;
mod evict;
mod lease;
mod shown;
mod watched;

use announce::Announcer;
use evict::Leavers;
use lease::Leadership;
use shown::Shown;
pub(crate) use watched::{GONE_BACK, Kept, Watched};

/// What changes together is decided together.
const SETTLE: Duration = Duration::from_millis(200);

/// A machine's status is written so often at most.
const STATUSES: Duration = Duration::from_secs(1);

/// The pods of a node that is being drained are looked at so often.
const LOOK: Duration = Duration::from_secs(2);

/// The name by which fields are owned.
const MANAGER: &str = "penstock-controller";

/// Why the controller ended.
#[derive(Debug, Error)]
pub enum ControllerError {
    /// The runtime could not be started, or a signal not be caught.
    #[error("cannot {what}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// There is no way to the API server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Scrapers cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

/// Runs the controller until SIGTERM or SIGINT.
///
/// # Errors
///
/// No runtime, or a kubeconfig that cannot be used. That the API server is away is none.
pub fn run(arguments: arguments::Controller) -> Result<(), ControllerError> {
    let system = |what| move |source| ControllerError::System { what, source };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system("start"))?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: arguments::Controller) -> Result<(), ControllerError> {
    let system = |what| move |source| ControllerError::System { what, source };
    let mut terminate = signal(SignalKind::terminate()).map_err(system("catch SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("catch SIGINT"))?;
    let settings = ClientSettings { kubeconfig: arguments.kubeconfig.clone() };
    let client = connect(&settings).await?.client;
    let mut leadership = Leadership::new(client.clone(), arguments.namespace.as_str());
    let mut controller = Controller::new(client, arguments.namespace.to_string());
    if arguments.pod.is_some() {
        log::say(
            "--pod is not needed any more: apply what `penstock-kubernetes manifests --controller IMAGE` prints",
        );
    }
    if let Some(address) = arguments.metrics {
        let server = MetricsServer::bind(address)?;
        log::say(format!("metrics are at http://{}/metrics", server.address()));
        let shown = controller.shown.clone();
        server.serve(move || shown.text())?;
    }
    tokio::select! {
        () = controller.run(&mut leadership) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    log::say("told to end");
    leadership.release().await;
    Ok(())
}

/// Everything that is known, and what is due.
struct Controller {
    client: Client,
    /// Where pods of controllers are.
    namespace: String,
    machine_api: Api<DynamicObject>,
    node_api: Api<DynamicObject>,
    machines: Kept<Machine>,
    nodes: Kept<NodeState>,
    records: Kept<Record>,
    /// How far nodes are drained, as far as somebody looked; with the number of the change.
    drained: BTreeMap<String, (u64, Drained)>,
    /// The nodes that are being drained, and when their pods are looked at next.
    looks: BTreeMap<String, Instant>,
    due: Option<Instant>,
    statuses_from: Instant,
    announcer: Announcer,
    /// What metrics tell.
    shown: Shown,
    trouble: LastingTrouble,
    backoff: Backoff,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// It was done.
    Done,
    /// It need not be tried again: somebody else wrote meanwhile, of which the watch tells, or the object is gone.
    Moot,
    /// The API server refused it: it is tried again, and holds nothing else up.
    Refused,
    /// It was not done, and nothing else would be now.
    Not,
}

/// What of a Node counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeState {
    labels: BTreeMap<String, String>,
    ready: bool,
    cordoned: bool,
    cordoned_for: Option<u64>,
}

impl Controller {
    fn new(client: Client, namespace: String) -> Controller {
        Controller {
            namespace,
            machine_api: Api::all_with(client.clone(), &ApiResource::erase::<SriovMachine>(&())),
            node_api: Api::all_with(client.clone(), &ApiResource::erase::<SriovNode>(&())),
            announcer: Announcer::new(client.clone(), MANAGER),
            shown: Shown::default(),
            client,
            machines: Kept::default(),
            nodes: Kept::default(),
            records: Kept::default(),
            drained: BTreeMap::new(),
            looks: BTreeMap::new(),
            due: None,
            statuses_from: Instant::now(),
            trouble: LastingTrouble::new("write what was decided"),
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
        }
    }

    async fn run(&mut self, leadership: &mut Leadership) {
        let mut machines = Watched::new(self.machine_api.clone(), "watch SriovMachines");
        let mut records = Watched::new(self.node_api.clone(), "watch SriovNodes");
        let mut nodes = Watched::new(Api::<v1::Node>::all(self.client.clone()), "watch Nodes");
        loop {
            self.shown.leads(leadership.is_held());
            if !leadership.is_held() {
                // Another controller decides meanwhile, and numbers may be given anew.
                self.drained.clear();
                self.looks.clear();
            }
            let now = Instant::now();
            let look = self.looks.values().min().copied();
            let soon = now + SETTLE;
            if self.machines.has_gone_back() | self.records.has_gone_back() | self.nodes.has_gone_back() {
                log::say(GONE_BACK);
                machines.relist();
                records.relist();
                nodes.relist();
            }
            tokio::select! {
                event = machines.next() => if self.machines.see(event, machine) { self.due_by(soon) },
                event = records.next() => if self.records.see(event, record) { self.due_by(soon) },
                event = nodes.next() => if self.nodes.see(event, node) { self.due_by(soon) },
                () = leadership.tend() => self.due_by(now),
                () = sleep_until(look.unwrap_or(now)), if look.is_some() && leadership.is_held() => self.look().await,
                () = sleep_until(self.due.unwrap_or(now)), if self.due.is_some() => {
                    self.due = None;
                    if leadership.is_held() && self.machines.is_whole() && self.nodes.is_whole() && self.records.is_whole() {
                        self.decide().await;
                    }
                }
            }
        }
    }

    fn due_by(&mut self, when: Instant) {
        self.due = Some(self.due.map_or(when, |due| due.min(when)));
    }

    /// The fleet as it is known.
    fn fleet(&self) -> BTreeMap<String, Node> {
        let of = |(name, node): (&String, &NodeState)| {
            let record = self.records.get(name).cloned();
            let drained = self.drained.get(name).cloned();
            let node = Node {
                labels: node.labels.clone(),
                ready: node.ready,
                cordoned: node.cordoned,
                cordoned_for: node.cordoned_for,
                record,
                drained,
            };
            (name.clone(), node)
        };
        self.nodes.iter().map(of).collect()
    }

    async fn decide(&mut self) {
        let machines: Vec<Machine> = self.machines.iter().map(|(_, machine)| machine.clone()).collect();
        let now = UtcTime::now();
        let fleet = self.fleet();
        let RolloutDecision { writes, cordons, statuses, setbacks, draining, next } =
            rollout::decide(&machines, &fleet, now);
        let (mut silent, mut refused, mut begun) = (false, false, Vec::new());
        for (name, cordon) in &cordons {
            if silent {
                break;
            }
            match self.cordon(name, *cordon).await {
                Written::Done | Written::Moot => {}
                Written::Refused => refused = true,
                Written::Not => silent = true,
            }
        }
        for write in writes {
            // Where one gets no answer the others wait: the Lease has to be renewed meanwhile. What is refused of one node is no other's trouble.
            if silent {
                break;
            }
            match self.write(&write).await {
                Written::Done => begun.push(write),
                Written::Moot => {}
                Written::Refused => refused = true,
                Written::Not => silent = true,
            }
        }
        let mut events = announce::begun(&machines, &fleet, &begun);
        let mut waits = false;
        if Instant::now() >= self.statuses_from {
            for (name, status) in &statuses {
                if silent {
                    break;
                }
                let before =
                    self.machines.get(name).map(|machine| machine.status.clone()).unwrap_or_default();
                match self.write_status(name, status).await {
                    Written::Done => events.extend(announce::progress(name, &before, status)),
                    Written::Moot => {}
                    Written::Refused => refused = true,
                    Written::Not => silent = true,
                }
                self.statuses_from = Instant::now() + STATUSES;
            }
        } else if !statuses.is_empty() {
            waits = true;
            self.due_by(self.statuses_from);
        }
        self.drained.retain(|name, _| draining.contains(name));
        self.looks.retain(|name, _| draining.contains(name));
        for name in draining {
            self.looks.entry(name).or_insert_with(Instant::now);
        }
        if let Some(next) = next {
            self.due_by(Instant::now() + next.since(now).max(SETTLE));
        }
        self.shown.machines(self.machines.iter().map(|(_, machine)| machine));
        if silent || refused {
            let wait = self.backoff.failed();
            self.due_by(Instant::now() + wait);
        } else if !waits {
            // What was not tried has not worked.
            self.trouble.end();
            self.backoff.succeeded();
        }
        if !silent {
            events.extend(self.announcer.new_setbacks(&machines, setbacks));
            // Last, and only where the API server answers.
            self.announcer.tell(&machines, events).await;
        }
    }

    /// Tells a node.
    async fn write(&mut self, write: &SpecWrite) -> Written {
        let Some(version) = self.records.version(&write.node) else { return Written::Moot };
        let patch = json!({
            "metadata": {"resourceVersion": version},
            // A merge patch takes out what is null.
            "spec": {"change": write.spec.change, "withdrawn": write.spec.withdrawn},
        });
        match self.patch(&self.node_api, &write.node, patch, false).await {
            Ok(object) => {
                match &write.spec.change {
                    Some(change) if change.stage == Stage::Go => {
                        log::say(format!("{} is told to begin (change {})", write.node, change.number));
                    }
                    Some(change) => log::say(format!("{} is drained (change {})", write.node, change.number)),
                    None => {
                        let why = write.spec.withdrawn.as_ref().map_or("", |withdrawn| &withdrawn.reason);
                        log::say(format!("{}: {why}", write.node));
                    }
                }
                self.records.put(object, record);
                self.due_by(Instant::now() + SETTLE);
                Written::Done
            }
            Err(error) => {
                if matches!(error, ApiError::Refused { code: 404 | 409, .. }) {
                    self.records.refused(&write.node, Instant::now());
                }
                self.not_written(&error)
            }
        }
    }

    /// Cordons a node, or lets it take pods again.
    async fn cordon(&mut self, name: &str, cordon: Cordon) -> Written {
        let (number, said) = match cordon {
            Cordon::On(number) => (Some(number.to_string()), "takes no new pods until its change has ended"),
            Cordon::Off => (None, "takes pods again"),
        };
        // A merge patch takes out what is null.
        let patch = json!({
            "metadata": {"annotations": {CORDONED: number}},
            "spec": {"unschedulable": number.as_ref().map(|_| true)},
        });
        let api = Api::<v1::Node>::all(self.client.clone());
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match answer(api.patch(name, &parameters, &Patch::Merge(patch))).await {
            Ok(object) => {
                log::say(format!("{name} {said}"));
                self.nodes.put(object, node);
                self.due_by(Instant::now() + SETTLE);
                Written::Done
            }
            Err(error) => self.not_written(&error),
        }
    }

    async fn write_status(&mut self, name: &str, status: &SriovMachineStatus) -> Written {
        let mut value = serde_json::to_value(status).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            for gone in ["observedGeneration", "hash", "firstFailure", "changes"] {
                fields.entry(gone).or_insert(Value::Null);
            }
        }
        match self.patch(&self.machine_api, name, json!({"status": value}), true).await {
            Ok(object) => {
                self.machines.put(object, machine);
                Written::Done
            }
            Err(error) => self.not_written(&error),
        }
    }

    async fn patch(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        patch: Value,
        status: bool,
    ) -> Result<DynamicObject, ApiError> {
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(patch);
        let sent = async {
            match status {
                true => api.patch_status(name, &parameters, &patch).await,
                false => api.patch(name, &parameters, &patch).await,
            }
        };
        answer(sent).await
    }

    /// What a write that failed comes to.
    fn not_written(&mut self, error: &ApiError) -> Written {
        match error {
            ApiError::Refused { code: 404 | 409, .. } => Written::Moot,
            ApiError::Refused { code: 400 | 403 | 422, .. } => {
                self.trouble.meet(error);
                Written::Refused
            }
            _ => {
                self.trouble.meet(error);
                Written::Not
            }
        }
    }

    /// Looks at the pods of the nodes whose turn it is.
    async fn look(&mut self) {
        let now = Instant::now();
        let turn: BTreeSet<String> =
            self.looks.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in turn {
            self.looks.insert(name.clone(), now + LOOK);
            let Some(record) = self.records.get(&name) else { continue };
            let (Some(change), Some(plan)) = (&record.spec.change, &record.status.plan) else { continue };
            let number = change.number;
            let all = change.cordon;
            let cordoned = self.nodes.get(&name).is_some_and(|node| node.cordoned);
            if all && !cordoned {
                self.drained.insert(name, (number, Drained::Waiting("it still takes new pods".to_owned())));
                continue;
            }
            let who = match all {
                true => Leavers::All { but_controllers_of: &self.namespace },
                false => Leavers::Claimants,
            };
            let drained = match timeout(REQUEST, evict::look(&self.client, &name, &plan.vanishing, who)).await
            {
                Ok(Ok(drained)) => drained,
                Ok(Err(error)) => Drained::Waiting(evict::not_seen(&error.into())),
                Err(_) => Drained::Waiting("its pods could not be looked at: no answer".to_owned()),
            };
            if self.drained.insert(name, (number, drained.clone())) != Some((number, drained)) {
                self.due_by(now);
            }
        }
    }
}

/// A part of an object, or why it cannot be read.
fn part<T: DeserializeOwned + Default>(object: &DynamicObject, name: &str) -> Result<T, String> {
    match object.data.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value).map_err(|error| format!("{name}: {error}")),
    }
}

fn machine(object: DynamicObject) -> Machine {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    Machine {
        name: object.name_any(),
        uid: object.uid(),
        generation: object.meta().generation,
        spec: serde_json::from_value(spec).map_err(|error| error.to_string()),
        // One that cannot be read is written anew.
        status: part(&object, "status").unwrap_or_default(),
    }
}

fn record(object: DynamicObject) -> Record {
    let read = part(&object, "spec")
        .and_then(|spec| Ok(Record { spec, status: part(&object, "status")?, unreadable: false }));
    read.unwrap_or_else(|error| {
        // It counts as one that has not planned: nobody is told anything then.
        log::say(format!(
            "the SriovNode {} cannot be read, and counts as one that has no plan: {error}",
            object.name_any()
        ));
        Record { unreadable: true, ..Record::default() }
    })
}

fn node(node: v1::Node) -> NodeState {
    let annotations = node.metadata.annotations.unwrap_or_default();
    let conditions = node.status.into_iter().flat_map(|status| status.conditions.unwrap_or_default());
    let ready =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    NodeState {
        labels: node.metadata.labels.unwrap_or_default(),
        ready,
        cordoned: node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
        cordoned_for: annotations.get(CORDONED).and_then(|number| number.parse().ok()),
    }
}
