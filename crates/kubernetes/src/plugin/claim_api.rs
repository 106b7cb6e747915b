//! What the plugin asks of the API server. Nothing of it is waited for longer than [`crate::client::REQUEST`].

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

use crate::client::{ApiError, answer};

/// Why the API server did not do what it was asked.
#[derive(Debug, Error)]
pub enum ClaimApiError {
    /// It refused, could not be reached, or was silent.
    #[error("could not {attempt}")]
    Api {
        /// What was attempted.
        attempt: String,
        /// Why.
        source: ApiError,
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
                matches!(source, ApiError::Refused { code: 400 | 404 | 409 | 422, .. })
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

fn failed(attempt: String) -> impl FnOnce(ApiError) -> ClaimApiError {
    |source| ClaimApiError::Api { attempt, source }
}

impl ClaimApi for ClaimApiClient {
    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<ResourceClaim>, ClaimApiError> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        answer(api.get_opt(name)).await.map_err(failed(format!("get ResourceClaim {namespace}/{name}")))
    }

    async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ClaimApiError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        answer(api.get_opt(name)).await.map_err(failed(format!("get pod {namespace}/{name}")))
    }

    async fn tell_claim(&self, namespace: &str, name: &str, status: &Value) -> Result<(), ClaimApiError> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PatchParams::apply(&self.manager).force();
        let told = answer(api.patch_status(name, &parameters, &Patch::Apply(status))).await;
        told.map(drop).map_err(failed(format!("patch the status of ResourceClaim {namespace}/{name}")))
    }

    async fn tell_event(&self, namespace: &str, event: &Value) -> Result<(), ClaimApiError> {
        let attempt = || format!("create an Event in namespace {namespace}");
        let event: Event = serde_json::from_value(event.clone())
            .map_err(|source| ClaimApiError::Object { attempt: attempt(), source })?;
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        match answer(api.create(&PostParams::default(), &event)).await {
            Err(ApiError::Refused { code: 409, .. }) => Ok(()),
            made => made.map(drop).map_err(failed(attempt())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that takes connections and answers nothing: all is asked at once, and the test takes as long as one request may.
    #[test]
    fn a_silent_api_server_is_not_waited_for_for_ever() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let server = format!("http://{}", silent.local_addr().unwrap());
            let client = Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
            let api = ClaimApiClient::new(client, "d");
            let document = serde_json::json!({"metadata": {"name": "e"}, "involvedObject": {}});
            let (claim, pod, status, event) = tokio::join!(
                api.claim("n", "c"),
                api.pod("n", "p"),
                api.tell_claim("n", "c", &document),
                api.tell_event("n", &document),
            );
            for error in [claim.unwrap_err(), pod.unwrap_err(), status.unwrap_err(), event.unwrap_err()] {
                let said = penstock_host::chain(&error);
                assert!(said.contains("did not answer within 10 s") && !error.is_final(), "{said}");
            }
        });
    }
}
