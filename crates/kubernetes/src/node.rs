//! The agent of a node: scans, publishes, tells health, and serves kubelet, until it is told to end.
//!
//! It keeps nothing that it could not find out again: slices are compared with what the API server has, prepared claims are on disk,
//! and everything else is scanned. So it may be killed at any time. Its slices stay when it ends; kubelet removes them where it stays
//! away.

use std::{
    collections::BTreeSet,
    env, io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceSlice};
use kube::{Api, Client, runtime::watcher};
use penstock_host::files;
use thiserror::Error;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    time::{self, sleep_until},
};

use crate::{
    arguments,
    change::{self, NodeHost},
    client::{ApiError, ClientSettings, ConnectError, answer, connect},
    controller::Watched,
    devices::Devices,
    events::NodeEvents,
    health::{ClaimDrift, Drift, DriftEvent, HealthReport, add_claim_health, add_claim_taints},
    identity::{DriverName, NodeName, VANISHING},
    log::{self, LastingTrouble},
    metrics::{
        AgentSources, ClaimTimings, SliceProgress,
        server::{MetricsError, MetricsServer},
    },
    pace::{Backoff, Bucket},
    penstock::{Penstock, PenstockError},
    plugin::{self, claim_api::ClaimApiClient, orphans::OrphanSettings, reporter::ClaimDriftReport},
    slices::{Owner, Taint, Taints, publish::Published, slices},
};

mod scanner;
mod watching;

/// What changes together is published together.
const SETTLE: Duration = Duration::from_millis(200);

/// A watch is begun anew after so long (seconds), so that a dead connection does not go unnoticed for longer.
const WATCH: u32 = 60;

/// So many publications at once...
const BURST: u32 = 10;

/// ...and then one each so long.
const EVERY: Duration = Duration::from_secs(2);

/// So long the API server has to say that there are no roll-outs before that is believed: it refuses much in the moments after its start. While it
/// is away nothing is known.
const ROLLOUTS: Duration = Duration::from_secs(30);

/// How much news of drift may wait to be told.
const NEWS: usize = 1024;

/// So long news of drift waits for the API server to say whether the Node is this machine.
const NODE_KNOWN: Duration = Duration::from_secs(60);

/// How long kubelet's calls in flight may take when the agent is told to end.
const ENDING: Duration = Duration::from_secs(20);

/// Why the agent ended.
#[derive(Debug, Error)]
pub enum NodeError {
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
    /// There is no `penstock`.
    #[error(transparent)]
    Penstock(#[from] PenstockError),
    /// The directory of its state cannot be used.
    #[error("cannot keep state in {path}")]
    State {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: files::FileError,
    },
    /// It cannot take part in roll-outs.
    #[error("cannot take part in roll-outs")]
    Rollout(#[source] change::ChangeError),
    /// Scrapers cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Kubelet cannot be served.
    #[error("cannot serve kubelet")]
    Plugin(#[source] plugin::ServeError),
}

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
///
/// What it cannot do without: `penstock`, a kubeconfig, its directory, kubelet's sockets. That the API server is away is none.
pub fn run(arguments: arguments::Node) -> Result<(), NodeError> {
    let system = |what| move |source| NodeError::System { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(system("start"))?;
    let ended = runtime.block_on(serve(arguments));
    // A scan that goes on is not waited for.
    runtime.shutdown_background();
    ended
}

async fn serve(arguments: arguments::Node) -> Result<(), NodeError> {
    let system = |what| move |source| NodeError::System { what, source };
    let penstock = Penstock::new(&arguments.penstock)?;
    let program = env::current_exe().map_err(system("find out where this program is"))?;
    let state = arguments.state.clone();
    files::make_own_directory(&state).map_err(|source| NodeError::State { path: state.clone(), source })?;
    let settings = ClientSettings { kubeconfig: arguments.kubeconfig.clone() };
    let connection = connect(&settings).await?;
    let metrics = arguments.metrics.map(MetricsServer::bind).transpose()?;
    let mut terminate = signal(SignalKind::terminate()).map_err(system("catch SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("catch SIGINT"))?;

    let (devices, devices_seen) = watch::channel(None);
    let (current, current_seen) = watch::channel(false);
    let (blind, blind_seen) = watch::channel(false);
    let (published, published_seen) = watch::channel(Arc::new(Devices::default()));
    // Without a model that the user names it is the one that a roll-out has brought.
    let from_rollout = change::applied_model(&state).map_err(NodeError::Rollout)?;
    let first = arguments.model().cloned().or(from_rollout);
    let drift = if first.is_some() { Drift::default() } else { Drift::without_a_model() };
    let (drift, drift_seen) = watch::channel(drift);
    let (health, health_seen) = watch::channel(Arc::new(HealthReport::new()));
    let (model, model_seen) = watch::channel(0);
    let (news, news_told) = mpsc::channel(NEWS);
    let (claim_drift, claim_drift_seen) = watch::channel(Arc::new(ClaimDrift::new()));
    let (node_host, node_host_seen) = watch::channel(NodeHost::Unknown);
    let (shutdown, shutdown_seen) = watch::channel(false);
    let (progress, progress_seen) = watch::channel(None);
    let timings = ClaimTimings::default();
    // Whoever changes the machine says here by which model it goes from then on, which functions are about to go (by PCI address), and when
    // it is at work.
    let (path, path_seen) = watch::channel(first);
    let (vanishing, vanishing_seen) = watch::channel(None);
    let (refused, refused_seen) = watch::channel(false);
    let (looks, looked) = watch::channel(0);
    let (judged, judged_seen) = watch::channel(None);
    let (changing, changing_seen) = watch::channel(change::is_under_way(&state));

    let client = connection.client.clone();
    let plugin = plugin::serve(
        arguments.run_directory.clone(),
        plugin::Settings {
            client: ClaimApiClient::new(client.clone(), &arguments.driver.to_string()),
            driver: arguments.driver.to_string(),
            node: arguments.name.to_string(),
            pool: arguments.name.to_string(),
            penstock: penstock.path().to_owned(),
            program,
            state: state.clone(),
            kubelet: arguments.kubelet_directory.clone(),
            cdi: arguments.cdi_directory.clone(),
            devices: published_seen,
            health: health_seen,
            drift: ClaimDriftReport { now: claim_drift, news: news.clone() },
            node_host: node_host_seen.clone(),
            shutdown: shutdown_seen,
            timings: timings.clone(),
            orphans: OrphanSettings::default(),
        },
    );
    let changes = change::serve(change::Settings {
        client: settings,
        connection: connection.clone(),
        node: arguments.name.to_string(),
        penstock: penstock.clone(),
        state: state.clone(),
        model: arguments.model().is_none().then_some(path),
        vanishing,
        refused,
        changing,
        node_host,
        looked,
    });
    let scanner = scanner::Scanner {
        penstock: penstock.clone(),
        connection,
        path: path_seen.clone(),
        changing: changing_seen.clone(),
        state,
        rescan: arguments.rescan,
        devices,
        published,
        current,
        blind,
        blind_after: scanner::BLIND_AFTER,
        changed: model,
        judged,
        looks,
    };
    let publisher = Publisher::new(&arguments, client.clone(), progress);
    if let Some(server) = metrics {
        let mut sources = AgentSources {
            penstock: penstock.clone(),
            driver: arguments.driver.to_string(),
            node: arguments.name.to_string(),
            state: arguments.state.clone(),
            model: path_seen.clone(),
            devices: devices_seen.clone(),
            current: current_seen,
            drift: drift_seen.clone(),
            slices: progress_seen,
            timings,
            of_machine: LastingTrouble::new("read the machine's metrics"),
            of_claims: LastingTrouble::new("read the claims for metrics"),
        };
        log::say(format!("metrics are at http://{}/metrics", server.address()));
        server.serve(move || sources.text())?;
    }
    let events = NodeEvents::new(client, arguments.name.clone(), arguments.driver.clone());
    log::say(format!("{} publishes the NICs of the node {}", arguments.driver, arguments.name));

    let watched = watching::Inputs {
        path: path_seen,
        changed: model_seen,
        judged: judged_seen,
        changing: changing_seen,
    };
    let ending = async {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        log::say("told to end");
        shutdown.send_replace(true);
        time::sleep(ENDING).await;
    };
    tokio::select! {
        ended = plugin => ended.map_err(NodeError::Plugin),
        () = ending => Ok(()),
        () = scanner.run() => Ok(()),
        ended = changes => ended.map_err(NodeError::Rollout),
        () = watching::watch(penstock, watched, drift, news) => Ok(()),
        () = publisher.run(PublisherInputs {
            devices: devices_seen.clone(),
            drift: drift_seen.clone(),
            claims: claim_drift_seen.clone(),
            vanishing: vanishing_seen,
            refused: refused_seen,
            node_host: node_host_seen.clone(),
        }) => Ok(()),
        () = assess(devices_seen, drift_seen, claim_drift_seen, blind_seen, health) => Ok(()),
        () = tell(events, news_told, node_host_seen) => Ok(()),
    }
}

/// Keeps the node's slices as they should be.
struct Publisher {
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    driver: DriverName,
    node: NodeName,
    uid: Option<String>,
    published: Published,
    bucket: Bucket,
    progress: watch::Sender<Option<SliceProgress>>,
    trouble: LastingTrouble,
    backoff: Backoff,
}

/// What slices follow from.
struct PublisherInputs {
    devices: watch::Receiver<Option<Arc<Devices>>>,
    drift: watch::Receiver<Drift>,
    claims: watch::Receiver<Arc<ClaimDrift>>,
    vanishing: watch::Receiver<Option<Arc<BTreeSet<String>>>>,
    refused: watch::Receiver<bool>,
    node_host: watch::Receiver<NodeHost>,
}

/// The Node cannot be read.
#[derive(Debug, Error)]
#[error("cannot read the Node {node}")]
struct NoNode {
    node: NodeName,
    source: ApiError,
}

impl Publisher {
    fn new(
        arguments: &arguments::Node,
        client: Client,
        progress: watch::Sender<Option<SliceProgress>>,
    ) -> Publisher {
        Publisher {
            slices: Api::all(client.clone()),
            nodes: Api::all(client),
            driver: arguments.driver.clone(),
            node: arguments.name.clone(),
            uid: None,
            published: Published::default(),
            bucket: Bucket::new(BURST, EVERY, Instant::now()),
            progress,
            trouble: LastingTrouble::new("publish the slices"),
            backoff: backoff(),
        }
    }

    async fn run(mut self, inputs: PublisherInputs) {
        let PublisherInputs { mut devices, mut drift, mut claims, mut vanishing, mut refused, mut node_host } =
            inputs;
        let fields = format!("spec.nodeName={},spec.driver={}", self.node, self.driver);
        let config = watcher::Config::default().fields(&fields).timeout(WATCH);
        let mut watch = Watched::with(self.slices.clone(), "watch the slices", config, backoff());
        let mut due: Option<time::Instant> = None;
        let mut unknown_until: Option<time::Instant> = None;
        loop {
            let now = time::Instant::now();
            let soon = Some(now + SETTLE);
            if self.published.has_gone_back() {
                log::say("the cluster has gone back to what it was earlier: its slices are listed anew");
                watch.relist();
            }
            tokio::select! {
                event = watch.next() => {
                    self.published.see(event);
                    due = due.or(soon);
                }
                Ok(()) = devices.changed() => due = due.or(soon),
                Ok(()) = drift.changed() => due = due.or(soon),
                Ok(()) = claims.changed() => due = due.or(soon),
                Ok(()) = node_host.changed() => due = due.or(soon),
                // What was waited for so long is not waited for any longer.
                Ok(()) = vanishing.changed() => due = soon,
                Ok(()) = refused.changed() => {
                    unknown_until = refused.borrow_and_update().then(|| now + ROLLOUTS);
                    due = due.or(soon);
                }
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => {
                    let known = devices.borrow_and_update().clone();
                    let is_here = *node_host.borrow_and_update() == NodeHost::ThisMachine;
                    let claims = claims.borrow_and_update().clone();
                    let taints = {
                        let drift = drift.borrow_and_update();
                        known.as_ref().filter(|_| drift.is_settled()).map(|devices| drift.taints(devices))
                    };
                    let waited = unknown_until.is_some_and(|until| now >= until);
                    let going = going(vanishing.borrow_and_update().clone(), waited);
                    due = match (known, taints, going) {
                        // The slices are those of another machine, as far as is known.
                        _ if !is_here => None,
                        (Some(_), Some(_), None) => unknown_until,
                        (Some(devices), Some(mut taints), Some(going)) if self.published.is_known() => {
                            add_claim_taints(&claims, &devices, &mut taints);
                            add_vanishing(&devices, &going, &mut taints);
                            let wait = self.publish(&devices, &taints).await;
                            self.tell_progress(wait.is_none());
                            wait.map(|wait| time::Instant::now() + wait)
                        }
                        _ => None,
                    };
                }
            }
        }
    }

    /// Says how far it is, for metrics.
    fn tell_progress(&self, current: bool) {
        let progress = SliceProgress { generation: self.published.generation(), current };
        self.progress.send_replace(Some(progress));
    }

    /// Publishes if that is needed; how long to wait where it has to be tried again.
    async fn publish(&mut self, devices: &Devices, taints: &Taints) -> Option<Duration> {
        let wanted = |publisher: &Publisher| {
            let node_uid = publisher.uid.clone()?;
            let owner = Owner { driver: publisher.driver.clone(), node: publisher.node.clone(), node_uid };
            Some(slices(&owner, devices, taints))
        };
        if wanted(self).is_some_and(|wanted| self.published.is(&wanted)) {
            return None;
        }
        if let Err(wait) = self.bucket.take(Instant::now()) {
            return Some(wait);
        }
        // The Node may have been made anew, and its slices have gone with it.
        match self.node_uid().await {
            Ok(uid) => self.uid = Some(uid),
            Err(error) => {
                self.trouble.meet(&error);
                return Some(self.backoff.failed());
            }
        }
        match self.published.publish(&self.slices, wanted(self)?).await {
            Ok(done) => {
                self.trouble.end();
                self.backoff.succeeded();
                if (done.written, done.removed) != (0, 0) {
                    log::say(format!(
                        "published functions: {}; slices written: {}, removed: {}, generation: {}",
                        devices.functions.len(),
                        done.written,
                        done.removed,
                        done.generation
                    ));
                }
                None
            }
            Err(error) => {
                self.trouble.meet(&error);
                Some(self.backoff.failed())
            }
        }
    }

    async fn node_uid(&self) -> Result<String, NoNode> {
        let failed = |source| NoNode { node: self.node.clone(), source };
        let node = answer(self.nodes.get_metadata(self.node.as_str())).await.map_err(failed)?;
        node.metadata.uid.ok_or_else(|| failed(ApiError::Unreachable("the Node has no UID".to_owned())))
    }
}

/// What is about to go, if that is known, or was waited for in vain. A VF that vanishes and is published without its taint would be given to pods.
fn going(known: Option<Arc<BTreeSet<String>>>, waited: bool) -> Option<Arc<BTreeSet<String>>> {
    known.or_else(|| waited.then(Arc::default))
}

/// Adds the taint of what is about to go.
fn add_vanishing(devices: &Devices, vanishing: &BTreeSet<String>, taints: &mut Taints) {
    let going = devices.functions.values().filter(|function| vanishing.contains(&function.bdf.to_string()));
    for function in going {
        taints.entry(function.name.clone()).or_default().push(Taint { key: VANISHING, value: None });
    }
}

/// How often something is tried again that the API server did not do.
fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(8))
}

/// Puts together how the devices are, for kubelet.
async fn assess(
    mut devices: watch::Receiver<Option<Arc<Devices>>>,
    mut drift: watch::Receiver<Drift>,
    mut claims: watch::Receiver<Arc<ClaimDrift>>,
    mut blind: watch::Receiver<bool>,
    health: watch::Sender<Arc<HealthReport>>,
) {
    loop {
        let known = devices.borrow_and_update().clone();
        if let Some(devices) = known {
            let previous = health.borrow().clone();
            let blind = *blind.borrow_and_update();
            let (drift, now) = (drift.borrow_and_update(), SystemTime::now());
            let mut report = drift.report(&devices, blind, &previous, now);
            add_claim_health(&claims.borrow_and_update(), &previous, now, &mut report);
            if report != *previous {
                health.send_replace(Arc::new(report));
            }
        }
        tokio::select! {
            Ok(()) = devices.changed() => {}
            Ok(()) = drift.changed() => {}
            Ok(()) = claims.changed() => {}
            Ok(()) = blind.changed() => {}
            else => return std::future::pending().await,
        }
    }
}

/// Tells what drifted, what came in one moment together, once the Node is known to be this machine. What is of another machine, or of nobody knows
/// which after [`NODE_KNOWN`], is left to the log.
async fn tell(
    mut events: NodeEvents,
    mut news: mpsc::Receiver<DriftEvent>,
    mut node_host: watch::Receiver<NodeHost>,
) {
    while let Some(first) = news.recv().await {
        time::sleep(SETTLE).await;
        let known = time::timeout(NODE_KNOWN, node_host.wait_for(|host| *host != NodeHost::Unknown)).await;
        let host = known.ok().and_then(Result::ok).map(|host| *host).unwrap_or_default();
        let mut all = vec![first];
        while let Ok(more) = news.try_recv() {
            all.push(more);
        }
        match host {
            NodeHost::ThisMachine => events.tell(&all).await,
            NodeHost::AnotherMachine => log::say(format!(
                "{} pieces of news of drift get no Event: the Node of this name is another machine",
                all.len()
            )),
            NodeHost::Unknown => log::say(format!(
                "{} pieces of news of drift get no Event: whether the Node is this machine is not known after {} s",
                all.len(),
                NODE_KNOWN.as_secs()
            )),
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_published_before_it_is_known_what_vanishes() {
        assert_eq!(going(None, false), None);
        assert_eq!(going(None, true), Some(Arc::default()), "there is nobody to say so");
        let known = Some(Arc::new(BTreeSet::from(["0000:01:10.0".to_owned()])));
        assert_eq!((going(known.clone(), false), going(known.clone(), true)), (known.clone(), known));
    }
}
