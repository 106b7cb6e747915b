//! Claims are prepared and unprepared (`dra/v1/api.proto`). Every claim that is asked for gets an answer of its own: one that fails keeps no
//! other back.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use penstock_host::chain;
use thiserror::Error;
use tokio::{sync::watch, task, time::timeout};
use tonic::{Request, Response, Status};

use super::{
    claim_api::{ClaimApi, ClaimApiError},
    reporter::WokenClaims,
};
use crate::{
    attach::now,
    cdi,
    change::NodeHost,
    claim::{
        CallerWaits, ClaimUid, Claims, StateError,
        allocation::{AllocatedClaim, AllocationError, allocated, base},
        containers,
        prepare::PrepareError,
        state::PreparedClaim,
        status,
        unprepare::UnprepareError,
    },
    devices::Devices,
    log::say,
    metrics::ClaimTimings,
    protocol::dra_v1::{
        Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
        NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
        NodeUnprepareResourcesResponse,
        dra_plugin_server::{DraPlugin, DraPluginServer},
    },
};

/// How long an agent that was just started may not know yet whether the Node is this machine. Kubelet waits for 45 s.
const HOST_KNOWN: Duration = Duration::from_secs(10);

/// Why kubelet's call for a claim came to nothing.
#[derive(Debug, Error)]
enum ResourceError {
    #[error(
        "the Node {node} is another machine, or was started anew and its kubelet has not told the API server: nothing is prepared for it here"
    )]
    AnotherMachine { node: String },
    #[error("whether the Node {node} is this machine is not known: the API server has not told within {} s", HOST_KNOWN.as_secs())]
    NodeHostUnknown { node: String },
    #[error(transparent)]
    Api(#[from] ClaimApiError),
    #[error("there is no ResourceClaim {namespace}/{name} any more")]
    NoClaim { namespace: String, name: String },
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Unprepare(#[from] UnprepareError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the work on the claim was given up")]
    Worker(#[from] task::JoinError),
}

impl ResourceError {
    /// Whether it is a word on the claim: not that somebody could not be asked, or is at work on it, or waits no more.
    fn is_of_the_claim(&self) -> bool {
        match self {
            ResourceError::Allocation(error) => {
                !matches!(error, AllocationError::OtherClaim { .. } | AllocationError::Uid(_))
            }
            ResourceError::Prepare(PrepareError::Refused { why, .. } | PrepareError::Bind { why, .. }) => {
                why.is_answer()
            }
            ResourceError::Prepare(error) => !matches!(
                error,
                PrepareError::State(_)
                    | PrepareError::File(_)
                    | PrepareError::Pci(_)
                    | PrepareError::Change(_)
                    | PrepareError::NoBoot
                    | PrepareError::GivenUp
            ),
            ResourceError::AnotherMachine { .. }
            | ResourceError::NodeHostUnknown { .. }
            | ResourceError::Api(_)
            | ResourceError::NoClaim { .. }
            | ResourceError::Unprepare(_)
            | ResourceError::State(_)
            | ResourceError::Worker(_) => false,
        }
    }
}

/// The service, of the claims of this node.
#[derive(Debug)]
pub struct Resources<C> {
    /// The claims.
    pub claims: Arc<Claims>,
    /// What is asked of the API server.
    pub api: Arc<C>,
    /// The node's name.
    pub node: String,
    /// The devices of this node.
    pub devices: watch::Receiver<Arc<Devices>>,
    /// Whether the Node is this machine.
    pub node_host: watch::Receiver<NodeHost>,
    /// Where it is counted how long calls take.
    pub timings: ClaimTimings,
    /// Who tells what became of claims.
    pub(super) woken: Arc<WokenClaims>,
}

/// A call of kubelet: counted when it ends, also when kubelet gives it up and its future is dropped.
struct KubeletCall<'a> {
    timings: &'a ClaimTimings,
    count: fn(&ClaimTimings, &str, Duration, bool),
    uid: &'a str,
    began: Instant,
    done: bool,
    caller: CallerWaits,
}

impl Drop for KubeletCall<'_> {
    fn drop(&mut self) {
        self.caller.give_up();
        (self.count)(self.timings, self.uid, self.began.elapsed(), self.done);
    }
}

impl<C: ClaimApi> Resources<C> {
    /// The service, to be served.
    pub fn service(self) -> DraPluginServer<Resources<C>> {
        DraPluginServer::new(self)
    }

    async fn prepare(&self, asked: &Claim, caller: CallerWaits) -> Result<PreparedClaim, ResourceError> {
        let uid: ClaimUid = asked.uid.parse()?;
        self.on_this_machine().await?;
        let (namespace, name) = (asked.namespace.as_str(), asked.name.as_str());
        let claim = self.api.claim(namespace, name).await?.ok_or_else(|| ResourceError::NoClaim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })?;
        let prepared = self.prepare_claim(&uid, &claim, caller).await;
        self.tell_refusal(&uid, &claim, prepared.as_ref().err()).await;
        prepared
    }

    async fn prepare_claim(
        &self,
        uid: &ClaimUid,
        there: &ResourceClaim,
        caller: CallerWaits,
    ) -> Result<PreparedClaim, ResourceError> {
        let settings = &self.claims.settings;
        let mut claim = allocated(there, uid, &settings.driver, &settings.pool)?;
        let pods = self.pods_of(&mut claim).await?;
        let devices = self.devices.borrow().clone();
        let claims = self.claims.clone();
        let prepared = task::spawn_blocking(move || claims.prepare(&claim, &devices, &caller)).await??;
        self.tell_unused(&prepared, &pods);
        Ok(prepared)
    }

    /// Waits until it is known that the Node is this machine.
    async fn on_this_machine(&self) -> Result<(), ResourceError> {
        let node = || self.node.clone();
        let mut node_host = self.node_host.clone();
        let known = node_host.wait_for(|seen| *seen != NodeHost::Unknown);
        let seen = timeout(HOST_KNOWN, known).await.map(|seen| seen.map(|seen| *seen));
        match seen {
            Ok(Ok(NodeHost::ThisMachine)) => Ok(()),
            Ok(Ok(NodeHost::AnotherMachine)) => Err(ResourceError::AnotherMachine { node: node() }),
            Ok(Ok(NodeHost::Unknown) | Err(_)) | Err(_) => {
                Err(ResourceError::NodeHostUnknown { node: node() })
            }
        }
    }

    /// Tells on the claim why it could not be prepared, or that it is no longer so. Of one that a pod has nothing is: that another pod cannot have it
    /// is no word on it.
    async fn tell_refusal(&self, uid: &ClaimUid, there: &ResourceClaim, error: Option<&ResourceError>) {
        let settings = &self.claims.settings;
        let (driver, pool) = (settings.driver.as_str(), settings.pool.as_str());
        let told = match error {
            None => status::no_longer_refused(there, driver, pool),
            Some(error) if error.is_of_the_claim() => {
                let (claims, of) = (self.claims.clone(), uid.clone());
                let prepared = task::spawn_blocking(move || claims.is_prepared(&of)).await;
                // What nobody can read may be a pod's.
                let is_free = matches!(prepared, Ok(Ok(false)));
                is_free.then(|| status::refused(there, driver, pool, &chain(error), &now())).flatten()
            }
            Some(_) => None,
        };
        let metadata = &there.metadata;
        if let (Some(told), Some(namespace), Some(name)) = (told, &metadata.namespace, &metadata.name) {
            if let Err(error) = self.api.tell_claim(namespace, name, &told).await {
                say(chain(&error));
            }
            // A container may have come to the claim meanwhile, and what was told of that is gone.
            self.woken.add(uid.clone(), true);
        }
    }

    /// Tells pods of which no container asks for the claim that its devices are theirs all the same. Kubelet is not kept waiting for that.
    fn tell_unused(&self, prepared: &PreparedClaim, pods: &[Pod]) {
        let now = now();
        let of_pods = pods.iter().zip(&prepared.pods);
        let events = of_pods
            .filter(|(pod, _)| containers::is_unused(pod, prepared))
            .flat_map(|(_, reference)| status::unused(prepared, reference, &now, &self.node));
        for event in events {
            let (api, namespace) = (self.api.clone(), prepared.namespace.clone());
            task::spawn(async move {
                if let Err(error) = api.tell_event(&namespace, &event).await {
                    say(chain(&error));
                }
            });
        }
    }

    /// The pods of a claim, without those that are gone, which the claim loses. One that shares the host's network is refused.
    async fn pods_of(&self, claim: &mut AllocatedClaim) -> Result<Vec<Pod>, ResourceError> {
        let (mut there, mut pods) = (Vec::new(), Vec::new());
        for reference in std::mem::take(&mut claim.pods) {
            let pod = self.api.pod(&claim.namespace, &reference.name).await?;
            let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&reference.uid)) else {
                continue;
            };
            if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
                let pod = format!("{}/{}", claim.namespace, reference.name);
                return Err(PrepareError::HostNetwork { pod }.into());
            }
            there.push(reference);
            pods.push(pod);
        }
        claim.pods = there;
        Ok(pods)
    }

    fn call<'a>(
        &'a self,
        asked: &'a Claim,
        count: fn(&ClaimTimings, &str, Duration, bool),
    ) -> KubeletCall<'a> {
        let (timings, uid, caller) = (&self.timings, asked.uid.as_str(), CallerWaits::default());
        KubeletCall { timings, count, uid, began: Instant::now(), done: false, caller }
    }

    async fn unprepare(&self, asked: &Claim) -> Result<(), ResourceError> {
        let uid: ClaimUid = asked.uid.parse()?;
        let claims = self.claims.clone();
        Ok(task::spawn_blocking(move || claims.unprepare(&uid)).await??)
    }
}

/// What kubelet is told of a device: its requests, and what the container runtime is to be asked for. A request is named as containers name it,
/// without the one among its alternatives that was taken (`stripSubrequestNames` of `kubeletplugin/draplugin.go`): kubelet compares whole names.
fn devices(claim: &PreparedClaim) -> Vec<Device> {
    let device = |of: &crate::claim::state::PreparedDevice| Device {
        request_names: of.requests.iter().map(|request| base(request).to_owned()).collect(),
        pool_name: of.pool.clone(),
        device_name: of.device.clone(),
        cdi_device_ids: cdi::identifiers(claim, of),
        share_id: None,
    };
    claim.devices.iter().map(device).collect()
}

fn refused(verb: &str, asked: &Claim, error: &ResourceError) -> String {
    let why = chain(error);
    say(format!("{verb} claim {}/{} ({}): {why}", asked.namespace, asked.name, asked.uid));
    why
}

#[tonic::async_trait]
impl<C: ClaimApi> DraPlugin for Resources<C> {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for asked in request.into_inner().claims {
            let mut call = self.call(&asked, ClaimTimings::prepared);
            let prepared = self.prepare(&asked, call.caller.clone()).await;
            call.done = prepared.is_ok();
            drop(call);
            let response = match prepared {
                Ok(claim) => NodePrepareResourceResponse { devices: devices(&claim), error: String::new() },
                Err(error) => NodePrepareResourceResponse {
                    devices: Vec::new(),
                    error: refused("could not prepare", &asked, &error),
                },
            };
            claims.insert(asked.uid, response);
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for asked in request.into_inner().claims {
            let mut call = self.call(&asked, ClaimTimings::unprepared);
            let unprepared = self.unprepare(&asked).await;
            call.done = unprepared.is_ok();
            drop(call);
            let error = match unprepared {
                Ok(()) => String::new(),
                Err(error) => refused("could not unprepare", &asked, &error),
            };
            claims.insert(asked.uid, NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}
