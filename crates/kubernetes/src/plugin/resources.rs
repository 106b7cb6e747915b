//! Claims are prepared and unprepared (`dra/v1/api.proto`). Every claim that is asked for gets an answer of its own: one that fails keeps no
//! other back.

use std::{collections::HashMap, sync::Arc, time::Instant};

use penstock_host::chain;
use thiserror::Error;
use tokio::{sync::watch, task};
use tonic::{Request, Response, Status};

use super::claim_api::{ClaimApi, ClaimApiError};
use crate::{
    cdi,
    claim::{
        ClaimUid, Claims, StateError,
        allocation::{AllocatedClaim, AllocationError, allocated},
        prepare::PrepareError,
        state::PreparedClaim,
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
    devices: watch::Receiver<Arc<Devices>>,
    timings: ClaimTimings,
}

impl<C: ClaimApi> Resources<C> {
    /// Of the claims of this node.
    pub fn new(
        claims: Claims,
        api: Arc<C>,
        devices: watch::Receiver<Arc<Devices>>,
        timings: ClaimTimings,
    ) -> Resources<C> {
        Resources { claims: Arc::new(claims), api, devices, timings }
    }

    /// The service, to be served.
    pub fn service(self) -> DraPluginServer<Resources<C>> {
        DraPluginServer::new(self)
    }

    async fn prepare(&self, asked: &Claim) -> Result<PreparedClaim, ResourceError> {
        let uid: ClaimUid = asked.uid.parse()?;
        let (namespace, name) = (asked.namespace.as_str(), asked.name.as_str());
        let claim = self.api.claim(namespace, name).await?.ok_or_else(|| ResourceError::NoClaim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })?;
        let settings = &self.claims.settings;
        let mut claim = allocated(&claim, &uid, &settings.driver, &settings.pool)?;
        self.refuse_host_network(&mut claim).await?;
        let devices = self.devices.borrow().clone();
        let claims = self.claims.clone();
        Ok(task::spawn_blocking(move || claims.prepare(&claim, &devices)).await??)
    }

    /// Refuses a claim of a pod that shares the host's network; pods that are gone are left out.
    async fn refuse_host_network(&self, claim: &mut AllocatedClaim) -> Result<(), ResourceError> {
        let mut there = Vec::new();
        for reference in std::mem::take(&mut claim.pods) {
            let pod = self.api.pod(&claim.namespace, &reference.name).await?;
            let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&reference.uid)) else {
                continue;
            };
            if pod.spec.is_some_and(|spec| spec.host_network == Some(true)) {
                let pod = format!("{}/{}", claim.namespace, reference.name);
                return Err(PrepareError::HostNetwork { pod }.into());
            }
            there.push(reference);
        }
        claim.pods = there;
        Ok(())
    }

    async fn unprepare(&self, asked: &Claim) -> Result<(), ResourceError> {
        let uid: ClaimUid = asked.uid.parse()?;
        let claims = self.claims.clone();
        Ok(task::spawn_blocking(move || claims.unprepare(&uid)).await??)
    }
}

/// What kubelet is told of a device: its requests, and what the container runtime is to be asked for.
fn devices(claim: &PreparedClaim) -> Vec<Device> {
    let device = |of: &crate::claim::state::PreparedDevice| Device {
        request_names: of.requests.clone(),
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
            let began = Instant::now();
            let prepared = self.prepare(&asked).await;
            self.timings.prepared(&asked.uid, began.elapsed(), prepared.is_ok());
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
            let began = Instant::now();
            let unprepared = self.unprepare(&asked).await;
            self.timings.unprepared(&asked.uid, began.elapsed(), unprepared.is_ok());
            let error = match unprepared {
                Ok(()) => String::new(),
                Err(error) => refused("could not unprepare", &asked, &error),
            };
            claims.insert(asked.uid, NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}
