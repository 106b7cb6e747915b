//! The connection to the API server.

use std::{
    net::{IpAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use thiserror::Error;

/// How long the connection may take to stand.
const CONNECT: Duration = Duration::from_secs(5);

/// Every request but a watch is given up after so long.
pub const REQUEST: Duration = Duration::from_secs(10);

/// How the API server is found.
#[derive(Clone, Debug, Default)]
pub struct ClientSettings {
    /// The file that says it; `None` for a pod, which finds it in its environment and its service account's directory.
    pub kubeconfig: Option<PathBuf>,
}

/// Why there is no way to the API server.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// No kubeconfig was given, and this is no pod.
    #[error("no --kubeconfig is given, and this process is no pod with a service account")]
    NoPod(#[source] kube::config::InClusterError),
    /// The client cannot be made: certificates that cannot be read, a scheme that is not known.
    #[error("cannot make a client for {server}")]
    Client {
        /// Where to.
        server: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// A client, and where it talks to.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The API server's host: a name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Makes a client. Nothing is sent yet.
///
/// # Errors
///
/// A kubeconfig that cannot be read or used; none, outside of a pod.
pub async fn connect(settings: &ClientSettings) -> Result<Connection, ConnectError> {
    let mut config = match &settings.kubeconfig {
        Some(path) => {
            let unusable = |source| ConnectError::Kubeconfig { path: path.clone(), source };
            let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?
        }
        None => Config::incluster().map_err(ConnectError::NoPod)?,
    };
    config.connect_timeout = Some(CONNECT);
    let server = config.cluster_url.clone();
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = server.port_u16().unwrap_or(443);
    let client = Client::try_from(config)
        .map_err(|source| ConnectError::Client { server: server.to_string(), source: Box::new(source) })?;
    Ok(Connection { client, host, port })
}

impl Connection {
    /// The addresses that the API server may be reached at. Empty while the name cannot be looked up. May block.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut addresses: Vec<IpAddr> = found.into_iter().flatten().map(|address| address.ip()).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}
