//! Claims are prepared and unprepared (`dra/v1/api.proto`). Every claim that is asked for gets an answer of its own: one that fails keeps no
//! other back.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use penstock_host::chain;
use thiserror::Error;
use tokio::{sync::watch, task};
use tonic::{Request, Response, Status};

use super::claim_api::{ClaimApi, ClaimApiError};
use crate::{
    attach::now,
    cdi,
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

/// Why kubelet's call for a claim came to nothing.
#[derive(Debug, Error)]
enum ResourceError {
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

/// The service.
#[derive(Debug)]
pub struct Resources<C> {
    claims: Arc<Claims>,
    api: Arc<C>,
    node: String,
    devices: watch::Receiver<Arc<Devices>>,
    timings: ClaimTimings,
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
    /// Of the claims of this node.
    pub fn new(
        claims: Claims,
        api: Arc<C>,
        node: &str,
        devices: watch::Receiver<Arc<Devices>>,
        timings: ClaimTimings,
    ) -> Resources<C> {
        Resources { claims: Arc::new(claims), api, node: node.to_owned(), devices, timings }
    }

    /// The service, to be served.
    pub fn service(self) -> DraPluginServer<Resources<C>> {
        DraPluginServer::new(self)
    }

    async fn prepare(&self, asked: &Claim, caller: CallerWaits) -> Result<PreparedClaim, ResourceError> {
        let uid: ClaimUid = asked.uid.parse()?;
        let (namespace, name) = (asked.namespace.as_str(), asked.name.as_str());
        let claim = self.api.claim(namespace, name).await?.ok_or_else(|| ResourceError::NoClaim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })?;
        let settings = &self.claims.settings;
        let mut claim = allocated(&claim, &uid, &settings.driver, &settings.pool)?;
        let pods = self.pods_of(&mut claim).await?;
        let devices = self.devices.borrow().clone();
        let claims = self.claims.clone();
        let prepared = task::spawn_blocking(move || claims.prepare(&claim, &devices, &caller)).await??;
        self.tell_unused(&prepared, &pods);
        Ok(prepared)
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
