//! What the plugin asks of the API server.

use std::future::Future;

use k8s_openapi::api::{
    core::v1::{Event, Pod},
    resource::v1::ResourceClaim,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::Value;
use thiserror::Error;

/// Why the API server did not do what it was asked.
#[derive(Debug, Error)]
pub enum ClaimApiError {
    /// It refused, or could not be reached.
    #[error("could not {attempt}")]
    Api {
        /// What was attempted.
        attempt: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// What was to be sent is none of its objects: a mistake of this program.
    #[error("could not {attempt}")]
    Object {
        /// What was attempted.
        attempt: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl ClaimApiError {
    /// Whether the same will be refused again: what it is about is gone or is another one, or it may never be done.
    pub fn is_final(&self) -> bool {
        match self {
            ClaimApiError::Api { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if matches!(status.code, 400 | 404 | 409 | 422))
            }
            ClaimApiError::Object { .. } => true,
        }
    }
}

/// The API server, as far as the plugin needs it.
pub trait ClaimApi: Send + Sync + 'static {
    /// The claim of this name; `None` when there is none.
    ///
    /// # Errors
    ///
    /// When the API server does not say.
    fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<ResourceClaim>, ClaimApiError>> + Send;

    /// The pod of this name; `None` when there is none.
    ///
    /// # Errors
    ///
    /// When the API server does not say.
    fn pod(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<Pod>, ClaimApiError>> + Send;

    /// Tells of devices in a claim's `status`, by server-side apply.
    ///
    /// # Errors
    ///
    /// When the API server does not take it.
    fn tell_claim(
        &self,
        namespace: &str,
        name: &str,
        status: &Value,
    ) -> impl Future<Output = Result<(), ClaimApiError>> + Send;

    /// Makes an Event. One that is there already is success.
    ///
    /// # Errors
    ///
    /// When the API server does not take it.
    fn tell_event(
        &self,
        namespace: &str,
        event: &Value,
    ) -> impl Future<Output = Result<(), ClaimApiError>> + Send;
}

/// The API server of a client.
#[derive(Clone)]
pub struct ClaimApiClient {
    client: Client,
    manager: String,
}

impl ClaimApiClient {
    /// Of this client; `manager` owns what is told of claims (server-side apply).
    pub fn new(client: Client, manager: &str) -> ClaimApiClient {
        ClaimApiClient { client, manager: manager.to_owned() }
    }
}

fn failed(attempt: String) -> impl FnOnce(kube::Error) -> ClaimApiError {
    |source| ClaimApiError::Api { attempt, source: Box::new(source) }
}

impl ClaimApi for ClaimApiClient {
    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<ResourceClaim>, ClaimApiError> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        api.get_opt(name).await.map_err(failed(format!("get ResourceClaim {namespace}/{name}")))
    }

    async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ClaimApiError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        api.get_opt(name).await.map_err(failed(format!("get pod {namespace}/{name}")))
    }

    async fn tell_claim(&self, namespace: &str, name: &str, status: &Value) -> Result<(), ClaimApiError> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PatchParams::apply(&self.manager).force();
        let told = api.patch_status(name, &parameters, &Patch::Apply(status)).await;
        told.map(drop).map_err(failed(format!("patch the status of ResourceClaim {namespace}/{name}")))
    }

    async fn tell_event(&self, namespace: &str, event: &Value) -> Result<(), ClaimApiError> {
        let attempt = || format!("create an Event in namespace {namespace}");
        let event: Event = serde_json::from_value(event.clone())
            .map_err(|source| ClaimApiError::Object { attempt: attempt(), source })?;
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        match api.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => made.map(drop).map_err(failed(attempt())),
        }
    }
}
