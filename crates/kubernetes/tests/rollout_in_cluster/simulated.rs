//! Nodes and agents that are nothing but objects: what many of them cost the controller and the API server.

use std::{path::Path, time::Duration};

use kube::{
    Api, Client, Config, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::watcher::{self, Event, watcher},
};
use penstock_kubernetes::machine::{
    SriovMachineSpec, SriovNode, SriovNodeSpec, SriovNodeStatus, UtcTime,
    node::{ChangeResult, Outcome, PlanOutcome, PlanSummary, Stage},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};
use tokio_stream::StreamExt;

/// So many requests at once.
const AT_ONCE: usize = 20;

/// How long `apply` takes an agent that is none, and then its proofs.
const APPLYING: Duration = Duration::from_secs(2);

/// A client of the API server that a kubeconfig names.
pub async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Makes nodes that are ready, each with its SriovNode.
pub async fn make(client: &Client, nodes: &[String], fleet: &str) {
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let records: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<SriovNode>(&()));
    for some in nodes.chunks(AT_ONCE) {
        let mut all = JoinSet::new();
        for node in some {
            let (node, api, records, fleet) = (node.clone(), api.clone(), records.clone(), fleet.to_owned());
            all.spawn(async move {
                let object = json!({"metadata": {"name": node, "labels": {"fleet": fleet}}});
                api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
                let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
                api.patch_status(&node, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
                let object = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovNode", "metadata": {"name": node}, "spec": {}});
                records.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
            });
        }
        all.join_all().await;
    }
}

/// Plans on all nodes, and then makes each change that a node is told to, until this is dropped. A node of `failing` takes it back.
pub async fn agents(client: Client, nodes: Vec<String>, spec: SriovMachineSpec, failing: Option<String>) {
    let records: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<SriovNode>(&()));
    let plan = PlanSummary {
        machine: "fleet".to_owned(),
        hash: spec.hash(),
        digest: PlanSummary::digest_of(&[], &[], false),
        outcome: PlanOutcome::Planned,
        steps: 12,
        dangers: Vec::new(),
        vanishing: Vec::new(),
        reboot: false,
        message: String::new(),
        at: UtcTime::now(),
    };
    for some in nodes.chunks(AT_ONCE) {
        let mut all = JoinSet::new();
        for node in some {
            all.spawn(tell(records.clone(), node.clone(), json!({"plan": plan})));
        }
        all.join_all().await;
    }
    let mut watch = Box::pin(watcher(records.clone(), watcher::Config::default()));
    let mut at_work = JoinSet::new();
    while let Some(event) = watch.next().await {
        let (Ok(Event::Apply(object)) | Ok(Event::InitApply(object))) = event else { continue };
        let part = |name: &str| object.data.get(name).cloned().unwrap_or_else(|| json!({}));
        let spec: SriovNodeSpec = serde_json::from_value(part("spec")).unwrap();
        let status: SriovNodeStatus = serde_json::from_value(part("status")).unwrap();
        let begins = spec.open(&status).filter(|change| {
            change.stage == Stage::Go
                && status.result.as_ref().is_none_or(|result| result.number < change.number)
        });
        let Some(change) = begins.cloned() else { continue };
        let (records, node, plan) = (records.clone(), object.name_any(), plan.clone());
        let outcome = if failing.as_ref() == Some(&node) { Outcome::RolledBack } else { Outcome::Verified };
        at_work.spawn(async move {
            let result = |outcome| ChangeResult {
                number: change.number,
                hash: change.hash.clone(),
                outcome,
                run: Some(1),
                verdicts: None,
                message: String::new(),
                at: UtcTime::now(),
            };
            tell(records.clone(), node.clone(), json!({"plan": plan, "result": result(Outcome::Applying)}))
                .await;
            sleep(APPLYING).await;
            tell(records, node, json!({"plan": plan, "result": result(outcome)})).await;
        });
    }
}

async fn tell(records: Api<DynamicObject>, node: String, status: Value) {
    let object = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovNode", "metadata": {"name": node}, "status": status});
    let parameters = PatchParams::apply("penstock-agent").force();
    records.patch_status(&node, &parameters, &Patch::Apply(object)).await.unwrap();
}
