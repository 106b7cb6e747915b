//! By this service kubelet learns of the driver (`pluginregistration/v1/api.proto`).

use std::path::{Path, PathBuf};

use tonic::{Request, Response, Status};

use crate::{
    log::say,
    protocol::pluginregistration_v1::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration as Service, RegistrationServer},
    },
};

/// The socket's name in kubelet's registry. Kubelet 1.36 sends the socket's path as the authority of its requests, percent-encoded, and h2 takes
/// that for malformed (hyperium/h2 pull request 487) unless an `@` follows it, which makes it the part before a host.
pub fn socket_name(driver: &str) -> String {
    format!("{driver}@reg.sock")
}

/// The service.
#[derive(Clone, Debug)]
pub struct Registration {
    driver: String,
    endpoint: PathBuf,
}

impl Registration {
    /// Of a driver that serves claims at `endpoint`.
    pub fn new(driver: &str, endpoint: &Path) -> Registration {
        Registration { driver: driver.to_owned(), endpoint: endpoint.to_owned() }
    }

    /// The service, to be served.
    pub fn service(self) -> RegistrationServer<Registration> {
        RegistrationServer::new(self)
    }
}

#[tonic::async_trait]
impl Service for Registration {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.driver.clone(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".to_owned(), "v1alpha1.DRAResourceHealth".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        match status.plugin_registered {
            true => say("kubelet has registered the driver"),
            false => say(format!(
                "kubelet has refused the driver: {}; it asks again when it starts",
                penstock_model::text::one_line(&status.error)
            )),
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
