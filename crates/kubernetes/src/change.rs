//! The agent's part of a roll-out: it plans each model that is for its node, and when the controller tells it to, applies it with a guard
//! behind it, proves over new connections that the node still works, verifies, and confirms. Whatever it cannot prove it leaves to the guard,
//! which takes the change back without a cluster and without this agent.
//!
//! Each step is on disk before the next one. An agent that is killed anywhere finds out from Penstock's own runs what became of the change,
//! and ends it in one of two ways: as it was before, or confirmed.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use penstock_host::{Root, boot};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    claim,
    client::{ApiError, ClientSettings, Connection, answer},
    controller::{GONE_BACK, Kept, Watched},
    log::{self, LastingTrouble},
    machine::{
        GROUP, SriovMachine, SriovNode, SriovNodeSpec, SriovNodeStatus, UtcTime, VERSION,
        node::{Change, ChangeResult, Outcome, PlanOutcome, PlanSummary, Stage},
        policy::SriovMachineSpec,
    },
    pace::Backoff,
    penstock::{Penstock, PenstockError},
    rollout::Record,
    runs,
};

mod carry;
mod elsewhere;
mod probes;
mod progress;
mod replan;
mod report;
mod verbs;

pub use elsewhere::NodeHost;
use elsewhere::{BootMismatch, Own};
pub use progress::RolloutStateError;
use progress::{Progress, Store};
use replan::Replan;
use verbs::Verbs;

/// The name by which the agent owns fields of a status.
const MANAGER: &str = "penstock-agent";

/// What changes together is looked at together.
const SETTLE: Duration = Duration::from_millis(200);

/// A run of somebody else, or the end of a claim, is waited for so long before it is asked again.
const BUSY: Duration = Duration::from_secs(15);

/// How long it is waited for a look at the machine after a change.
const LOOK: Duration = Duration::from_secs(300);

/// What the agent's part of a roll-out needs.
pub struct Settings {
    /// By which new clients are made.
    pub client: ClientSettings,
    /// The connection for everything else.
    pub connection: Connection,
    /// The Node.
    pub node: String,
    /// The binary.
    pub penstock: Penstock,
    /// The agent's directory.
    pub state: PathBuf,
    /// Gets the path of the model that was applied and confirmed, unless the user has named one.
    pub model: Option<watch::Sender<Option<PathBuf>>>,
    /// Gets the addresses of VFs that a granted change is about to destroy: no new claim may be given one. `None` until that is known.
    pub vanishing: watch::Sender<Option<Arc<BTreeSet<String>>>>,
    /// Whether the API server says that there are no roll-outs for this agent: its kinds are not there, or it may not see them.
    pub refused: watch::Sender<bool>,
    /// Is true from before a granted change until it has ended, one way or another: what is seen of the machine meanwhile is taken back, or
    /// follows a model that is not confirmed yet.
    pub changing: watch::Sender<bool>,
    /// Whether the Node is this machine: on another one the rest of the agent publishes and prepares nothing either.
    pub node_host: watch::Sender<NodeHost>,
    /// Counts how often the machine was looked at; not while it is changed, and no look counts that began before the end of a change.
    pub looked: watch::Receiver<u64>,
}

/// Why the agent takes part in no roll-out.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// Its files cannot be used.
    #[error(transparent)]
    Store(#[from] RolloutStateError),
    /// What is written down of claims cannot be read.
    #[error("cannot read which VFs claims have")]
    Claims(#[from] claim::StateError),
    /// `penstock` cannot be run.
    #[error(transparent)]
    Penstock(#[from] PenstockError),
    /// The API server cannot be reached, or refuses.
    #[error("cannot {what}")]
    Api {
        /// What was attempted.
        what: &'static str,
        /// Why not.
        source: ApiError,
    },
}

/// The model that was applied and confirmed last in a roll-out, if there was any.
///
/// # Errors
///
/// The agent's directory cannot be read.
pub fn applied_model(state: &std::path::Path) -> Result<Option<PathBuf>, ChangeError> {
    Ok(progress::applied_model(state)?)
}

/// Whether a change was begun whose end is not written down yet. An agent that was ended in the middle of one goes on with it.
pub fn is_under_way(state: &std::path::Path) -> bool {
    progress::is_changing(state)
}

/// The VFs, by their PCI addresses, that a change which has begun destroys: no new claim is prepared with one.
///
/// # Errors
///
/// What was written down of the change cannot be read.
pub fn going(state: &std::path::Path) -> Result<BTreeSet<String>, RolloutStateError> {
    progress::going(state)
}

/// Takes part in roll-outs, for ever.
///
/// # Errors
///
/// The agent's directory cannot be used, or another agent on this machine does.
pub async fn serve(settings: Settings) -> Result<(), ChangeError> {
    let store = Store::open(&settings.state)?;
    let boot = boot::id(&Root::system()).unwrap_or_default();
    let client = settings.connection.client.clone();
    let machine_api: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::erase::<SriovMachine>(&()));
    let node_api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<SriovNode>(&()));
    let mut machines = Watched::new(machine_api, "watch SriovMachines");
    let mut records = Watched::named(node_api, "watch this node's SriovNode", &settings.node)
        .telling(settings.refused.clone());
    let nodes = Watched::named(Api::<Node>::all(client), "watch this Node", &settings.node);
    let (node_seen, mut node_changed) = watch::channel(Kept::default());
    let (node_relist, node_went_back) = (Notify::new(), Notify::new());
    let watching = elsewhere::watch_node(
        nodes,
        (settings.node.clone(), boot.clone()),
        settings.node_host.clone(),
        node_seen,
        (&node_relist, &node_went_back),
    );
    let mut agent = Agent {
        verbs: Verbs::new(settings.penstock.clone()),
        settings,
        store,
        boot,
        machines: Kept::default(),
        records: Kept::default(),
        nodes: node_changed.clone(),
        planned: None,
        replan: Replan::new(),
        mismatch: BootMismatch::default(),
    };
    let working = async {
        let mut trouble = LastingTrouble::new("take part in the roll-out");
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let mut due: Option<Instant> = None;
        loop {
            let now = Instant::now();
            // Also where something is to be done later by itself.
            let soon = due.map_or(now + SETTLE, |due| due.min(now + SETTLE));
            if agent.machines.has_gone_back() | agent.records.has_gone_back() {
                log::say(GONE_BACK);
                machines.relist();
                records.relist();
                node_relist.notify_one();
            }
            tokio::select! {
                event = machines.next() => if agent.machines.see(event, machine) { due = Some(soon) },
                event = records.next() => if agent.records.see(event, record) { due = Some(soon) },
                Ok(()) = node_changed.changed() => due = Some(soon),
                () = node_went_back.notified() => {
                    machines.relist();
                    records.relist();
                }
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => {
                    due = None;
                    if agent.records.is_whole() {
                        agent.withhold();
                    }
                    if !(agent.machines.is_whole() && agent.records.is_whole() && agent.nodes.borrow().is_whole()) {
                        continue;
                    }
                    match agent.work().await {
                        Ok(again) => {
                            trouble.end();
                            backoff.succeeded();
                            due = again.map(|wait| Instant::now() + wait);
                        }
                        Err(error) => {
                            trouble.meet(&error);
                            due = Some(Instant::now() + backoff.failed());
                        }
                    }
                }
            }
        }
    };
    tokio::select! {
        () = watching => Ok(()),
        () = working => Ok(()),
    }
}

/// Which `SriovMachine` a node goes by.
enum Chosen {
    /// This one.
    One(String, SriovMachineSpec),
    /// None, for this reason: as a condition has it, and as a sentence.
    None(&'static str, &'static str),
    /// One of a newer version may be.
    Unknown,
}

/// What is kept of a `SriovMachine`: its spec, unless it is for a newer version.
type Spec = Result<SriovMachineSpec, String>;

struct Agent {
    settings: Settings,
    verbs: Verbs,
    store: Store,
    boot: String,
    machines: Kept<Spec>,
    records: Kept<Record>,
    nodes: watch::Receiver<Kept<Own>>,
    /// The hash that was planned since this agent was started.
    planned: Option<String>,
    replan: Replan,
    mismatch: BootMismatch,
}

impl Agent {
    /// Does what is to be done now. How long to wait before it is asked again by itself.
    async fn work(&mut self) -> Result<Option<Duration>, ChangeError> {
        if let Some(progress) = self.store.progress()? {
            self.go_on(progress).await?;
            return Ok(Some(Duration::ZERO));
        }
        // Somebody may have removed what was written down of a change.
        self.changing(false);
        let own = self.nodes.borrow().get(&self.settings.node).cloned();
        let Some(own) = own else {
            log::say(format!("there is no Node {} in the cluster; waiting for it", self.settings.node));
            return Ok(None);
        };
        if NodeHost::of(Some(&own), &self.boot) == NodeHost::AnotherMachine {
            return self.is_elsewhere(&own).await;
        }
        let known = self.records.get(&self.settings.node).cloned();
        self.is_here(&own, known.as_ref()).await?;
        let (name, spec) = match self.chosen(&own) {
            Chosen::One(name, spec) => (name, spec),
            Chosen::None(reason, why) => {
                self.planned = None;
                if let Some(record) = known {
                    self.forget_plan(&record, reason, why).await?;
                }
                return Ok(None);
            }
            Chosen::Unknown => return Ok(None),
        };
        let hash = spec.hash();
        let record = match known {
            Some(record) => record,
            None => self.make_record(&own).await?,
        };
        let open = record.spec.open(&record.status).cloned();
        if let Some(change) = open.filter(|change| change.stage == Stage::Go) {
            return self.begin(&change, &name, &spec, &record).await;
        }
        let is_known = record.status.plan.as_ref().is_some_and(|plan| plan.hash == hash);
        if is_known && self.planned.as_ref() == Some(&hash) {
            let wait = self.replan.wait(Instant::now().into_std());
            if wait.is_none_or(|wait| !wait.is_zero()) {
                return Ok(wait);
            }
        } else {
            self.replan = Replan::new();
        }
        self.plan(&name, &spec, &record).await
    }

    /// The machine that is for this node. Where two are the controller says so, too, and none is planned.
    fn chosen(&self, own: &Own) -> Chosen {
        let mut chosen = None;
        let mut unreadable = false;
        for (name, spec) in self.machines.iter() {
            match spec {
                Ok(spec) if spec.selects(&own.labels) && chosen.is_some() => {
                    return Chosen::None("SeveralMachines", "several SriovMachines select this node");
                }
                Ok(spec) if spec.selects(&own.labels) => chosen = Some((name, spec)),
                Ok(_) => {}
                Err(_) => unreadable = true,
            }
        }
        match chosen {
            Some((name, spec)) => Chosen::One(name.clone(), spec.clone()),
            None if unreadable => Chosen::Unknown,
            None => Chosen::None("NoMachine", "no SriovMachine selects this node"),
        }
    }

    /// The plan is for a machine that is this node's no more. A change that was granted for it and is not begun comes to its end by that.
    async fn forget_plan(&mut self, record: &Record, reason: &str, why: &str) -> Result<(), ChangeError> {
        let now = UtcTime::now();
        let granted = record.spec.open(&record.status).filter(|change| change.stage == Stage::Go);
        let lapsed = granted
            .map(|change| not_begun(change, Outcome::Lapsed, format!("{why}; nothing was changed"), now));
        // A record that cannot be read has no conditions here, and is left as it is.
        let before = record.status.conditions.iter().find(|condition| condition.kind == "Planned");
        let is_news = record.status.plan.is_some()
            || lapsed.is_some()
            || before.is_some_and(|before| before.reason != reason);
        if !is_news {
            return Ok(());
        }
        let result = lapsed.or_else(|| record.status.result.clone());
        self.tell(&report::unplanned(result, &record.status, reason, why, now)).await?;
        Ok(())
    }

    /// What the model of the machine `name` is on this node. `None`: another run is at work here.
    async fn plan_of(
        &self,
        name: &str,
        spec: &SriovMachineSpec,
        hash: &str,
    ) -> Result<Option<PlanSummary>, ChangeError> {
        let text = match progress::of_node(&spec.model, &self.settings.node) {
            Ok(text) => text,
            Err(error) => {
                let why =
                    format!("{error}: write `machine: {}` into a model for this node alone", error.machine);
                return Ok(Some(report::unfit(&why, name, hash, UtcTime::now())));
            }
        };
        let model = self.store.keep_model(hash, &text)?;
        let answer = self.verbs.plan(&model, &spec.allow, &self.peers().await).await?;
        let held = claim::held_functions(&self.settings.state)?;
        let plan = report::plan(&answer, &held, name, spec, hash, UtcTime::now());
        if plan.is_none() {
            log::say(format!("another run is at work on this machine: {}", answer.why()));
        }
        Ok(plan)
    }

    /// Plans, and tells what came of it where that is news.
    async fn plan(
        &mut self,
        name: &str,
        spec: &SriovMachineSpec,
        record: &Record,
    ) -> Result<Option<Duration>, ChangeError> {
        let hash = spec.hash();
        let Some(mut plan) = self.plan_of(name, spec, &hash).await? else { return Ok(Some(BUSY)) };
        let now = plan.at;
        let began = Instant::now().into_std();
        let model = self.store.model(&hash);
        let before = record.status.result.clone();
        let mut result = before.clone();
        if plan.outcome == PlanOutcome::Planned && plan.steps == 0 {
            let verified = before
                .as_ref()
                .is_some_and(|result| result.hash == hash && result.outcome == Outcome::Verified);
            if !verified {
                let answer = self.verbs.verify(&model).await?;
                let (counts, first) = verbs::verdicts(&answer.document);
                if answer.exit == 0 {
                    let number = record.spec.next_number(&record.status) - 1;
                    let message = "nothing had to be changed".to_owned();
                    result = Some(ChangeResult {
                        number,
                        hash: hash.clone(),
                        outcome: Outcome::Verified,
                        run: None,
                        verdicts: Some(counts),
                        message,
                        at: now,
                    });
                    self.store
                        .keep_applied(&progress::Applied { hash: hash.clone(), boot: self.boot.clone() })?;
                    self.show(model);
                } else {
                    plan.outcome = PlanOutcome::Failed;
                    plan.message = format!(
                        "nothing has to be changed, and yet it does not hold: {}",
                        first.unwrap_or_else(|| answer.why())
                    );
                }
            }
        } else if let Some(result) =
            result.as_mut().filter(|result| result.hash == hash && result.outcome == Outcome::Verified)
        {
            let applied = self.store.applied()?;
            if let Some(why) = progress::why_lapsed(applied.as_ref(), &hash, &self.boot) {
                result.outcome = Outcome::Lapsed;
                result.message = format!("{why}, and is {} steps away from the model", plan.steps);
                result.at = now;
                log::say(&result.message);
            }
        }
        let outcome = plan.outcome;
        let same = record.status.plan.as_ref().is_some_and(|before| report::same_plan(before, &plan));
        if !same || result != before {
            let says = if plan.message.is_empty() { String::new() } else { format!("; {}", plan.message) };
            log::say(format!(
                "planned the SriovMachine {name}: {}, steps: {}{says}",
                plan.outcome, plan.steps
            ));
            let status = report::status(Some(plan), result, &record.status, now);
            self.tell(&status).await?;
        }
        let applied = self.store.applied()?;
        let kept: Vec<&str> = [Some(hash.as_str()), applied.as_ref().map(|applied| applied.hash.as_str())]
            .into_iter()
            .flatten()
            .collect();
        self.store.forget_models(&kept)?;
        self.planned = Some(hash);
        Ok(self.replan.after(outcome, began))
    }

    /// Begins a change that the controller granted, if it is still the one that was planned.
    async fn begin(
        &mut self,
        change: &Change,
        name: &str,
        spec: &SriovMachineSpec,
        record: &Record,
    ) -> Result<Option<Duration>, ChangeError> {
        let now = UtcTime::now();
        let hash = spec.hash();
        let refuse = |outcome, message: &str| not_begun(change, outcome, message.to_owned(), now);
        if change.hash != hash {
            let result =
                refuse(Outcome::Lapsed, "the model changed before this node began; nothing was changed");
            let status = report::status(record.status.plan.clone(), Some(result), &record.status, now);
            self.tell(&status).await?;
            return Ok(Some(Duration::ZERO));
        }
        if self.awaits_claims(change, record, &spec.allow).await? {
            return Ok(Some(BUSY));
        }
        let Some(plan) = self.plan_of(name, spec, &hash).await? else { return Ok(Some(BUSY)) };
        if plan.digest != change.plan || plan.outcome != PlanOutcome::Planned {
            let words = "the plan became another after this node was told to begin; nothing was changed";
            let status =
                report::status(Some(plan), Some(refuse(Outcome::Lapsed, words)), &record.status, now);
            self.tell(&status).await?;
            return Ok(Some(Duration::ZERO));
        }
        let runs_before =
            runs::list(&self.settings.penstock).await?.iter().map(|run| run.run).max().unwrap_or(0);
        let vanishing = plan.vanishing.iter().map(|vf| vf.address.clone()).collect();
        // That this gets through is the first proof that something can be proven afterwards.
        let status = report::status(Some(plan), Some(refuse(Outcome::Applying, "")), &record.status, now);
        let told = self.tell(&status).await?;
        let still = told.spec.open(&told.status);
        if still.is_none_or(|still| still.number != change.number || still.stage != Stage::Go) {
            let words = "called off before this node began; nothing was changed";
            return self.lapse(not_begun(change, Outcome::Lapsed, words.to_owned(), now)).await;
        }
        let progress = Progress {
            number: change.number,
            hash,
            allow: spec.allow.clone(),
            confirm_within: change.confirm_within,
            runs_before,
            boot: self.boot.clone(),
            attempts: 0,
            applied: None,
            vanishing,
        };
        self.store.keep_progress(&progress)?;
        self.go_on(progress).await?;
        Ok(Some(Duration::ZERO))
    }

    /// Tells that a change came to its end before it began.
    async fn lapse(&mut self, result: ChangeResult) -> Result<Option<Duration>, ChangeError> {
        let before =
            self.records.get(&self.settings.node).map(|record| record.status.clone()).unwrap_or_default();
        let status = report::status(before.plan.clone(), Some(result), &before, UtcTime::now());
        self.tell(&status).await?;
        Ok(Some(Duration::ZERO))
    }

    /// Carries a change to its end and tells how it ended.
    async fn go_on(&mut self, progress: Progress) -> Result<(), ChangeError> {
        self.changing(true);
        let result = self.carry_out(progress).await?;
        let looked = *self.settings.looked.borrow();
        self.changing(false);
        let says = if result.message.is_empty() { String::new() } else { format!(", {}", result.message) };
        log::say(format!("change {}: {}{says}", result.number, result.outcome));
        let mut trouble = LastingTrouble::new("tell how the change ended");
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        loop {
            let before = self.records.get(&self.settings.node).cloned().unwrap_or_default();
            let mut plan = before.status.plan.clone();
            if let (Outcome::Verified, Some(plan)) = (result.outcome, plan.as_mut()) {
                plan.is_carried_out();
            }
            let status = report::status(plan, Some(result.clone()), &before.status, UtcTime::now());
            let told = match self.tell(&status).await {
                // The watch is not listened to here: somebody has removed the SriovNode meanwhile.
                Err(ChangeError::Api { source: ApiError::Refused { code: 404, .. }, .. }) => {
                    self.make_record_anew().await.map(|()| false)
                }
                told => told.map(|_| true),
            };
            match told {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    trouble.meet(&error);
                    sleep(backoff.failed()).await;
                }
            }
        }
        trouble.end();
        self.store.end_progress()?;
        if result.outcome == Outcome::Lapsed {
            self.planned = None;
        }
        // VFs that are gone keep their taint until it is seen that they are.
        let seen = self.settings.looked.wait_for(|now| *now > looked);
        if timeout(LOOK, seen).await.is_err() {
            log::say("the machine was not seen since it was changed: VFs that are gone may be offered");
        }
        Ok(())
    }

    /// The addresses that the API server may be reached at: the way to them is what this node hangs on.
    async fn peers(&self) -> Vec<IpAddr> {
        let connection = self.settings.connection.clone();
        tokio::task::spawn_blocking(move || connection.addresses()).await.unwrap_or_default()
    }

    /// Has no new claim be given what an open change destroys, whichever machine it is of.
    fn withhold(&self) {
        let record = self.records.get(&self.settings.node);
        let addresses =
            record.map(|record| vanishing(record, record.spec.open(&record.status))).unwrap_or_default();
        let same = self.settings.vanishing.borrow().as_deref() == Some(&addresses);
        if !same {
            self.settings.vanishing.send_replace(Some(Arc::new(addresses)));
        }
    }

    /// Tells the rest of the agent whether the machine is being changed.
    fn changing(&self, now: bool) {
        self.settings.changing.send_if_modified(|changing| std::mem::replace(changing, now) != now);
    }

    /// The rest of the agent goes by this model from now on.
    fn show(&self, model: PathBuf) {
        if let Some(sender) = &self.settings.model {
            sender.send_replace(Some(model));
        }
    }

    async fn make_record(&mut self, own: &Own) -> Result<Record, ChangeError> {
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": self.settings.node, "uid": own.uid}]);
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "SriovNode",
            "metadata": {"name": self.settings.node, "ownerReferences": owner}, "spec": {},
        });
        let what = "make this node's SriovNode";
        let nonsense = |error| api_error(what)(kube::Error::SerdeError(error).into());
        let object: DynamicObject = serde_json::from_value(object).map_err(nonsense)?;
        let api = self.record_api();
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match answer(api.create(&parameters, &object)).await {
            Ok(object) => {
                self.records.put(object, record);
            }
            // Of an agent before this one; the watch brings it.
            Err(ApiError::Refused { code: 409, .. }) => {}
            Err(error) => return Err(api_error(what)(error)),
        }
        Ok(self.records.get(&self.settings.node).cloned().unwrap_or_default())
    }

    /// Makes this node's record where it is gone; the Node may be another one since, too.
    async fn make_record_anew(&mut self) -> Result<(), ChangeError> {
        let api = Api::<Node>::all(self.settings.connection.client.clone());
        let own = answer(api.get(&self.settings.node)).await.map_err(api_error("read this Node"))?;
        log::say(format!("the SriovNode {} is gone, and made anew", self.settings.node));
        self.records.forget(&self.settings.node);
        self.make_record(&Own::of(own)).await?;
        Ok(())
    }

    fn record_api(&self) -> Api<DynamicObject> {
        Api::all_with(self.settings.connection.client.clone(), &ApiResource::erase::<SriovNode>(&()))
    }

    /// Writes the status: all of it that is the agent's. The record as it is then.
    async fn tell(&mut self, status: &SriovNodeStatus) -> Result<Record, ChangeError> {
        let value = serde_json::to_value(status).unwrap_or_default();
        let object = self.apply_status(value, MANAGER).await?;
        self.records.put(object.clone(), record);
        Ok(record(object))
    }

    async fn apply_status(&self, status: Value, manager: &str) -> Result<DynamicObject, ChangeError> {
        let what = "write the status of this node's SriovNode";
        let patch = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "SriovNode", "metadata": {"name": self.settings.node}, "status": status,
        });
        let parameters = PatchParams::apply(manager).force();
        let (api, patch) = (self.record_api(), Patch::Apply(patch));
        let sent = api.patch_status(&self.settings.node, &parameters, &patch);
        answer(sent).await.map_err(api_error(what))
    }
}

/// What is told of a change before Penstock has run for it.
fn not_begun(change: &Change, outcome: Outcome, message: String, now: UtcTime) -> ChangeResult {
    ChangeResult {
        number: change.number,
        hash: change.hash.clone(),
        outcome,
        run: None,
        verdicts: None,
        message,
        at: now,
    }
}

fn api_error(what: &'static str) -> impl Fn(ApiError) -> ChangeError {
    move |source| ChangeError::Api { what, source }
}

/// The VFs that no new claim may be given: those that an open change destroys.
fn vanishing(record: &Record, open: Option<&Change>) -> BTreeSet<String> {
    let plan =
        record.status.plan.as_ref().filter(|plan| open.is_some_and(|change| change.plan == plan.digest));
    plan.into_iter().flat_map(|plan| plan.vanishing.iter().map(|vf| vf.address.clone())).collect()
}

fn machine(object: DynamicObject) -> Spec {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    serde_json::from_value(spec).map_err(|error| error.to_string())
}

fn record(object: DynamicObject) -> Record {
    let part = |name: &str| {
        object.data.get(name).cloned().filter(|value| !value.is_null()).unwrap_or_else(|| json!({}))
    };
    let spec: Result<SriovNodeSpec, _> = serde_json::from_value(part("spec"));
    let status: Result<SriovNodeStatus, _> = serde_json::from_value(part("status"));
    if let Some(error) = spec.as_ref().err().or(status.as_ref().err()) {
        log::say(format!(
            "the SriovNode {} cannot be read, and tells this agent nothing: {error}",
            object.name_any()
        ));
    }
    match (spec, status) {
        (Ok(spec), Ok(status)) => Record { spec, status, unreadable: false },
        // What it is told it does not understand: it does nothing, and says anew what it planned.
        _ => Record { unreadable: true, ..Record::default() },
    }
}
