//! The connection to the API server.

use std::{
    net::{IpAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    core::Status,
    runtime::watcher,
};
use penstock_host::files;
use thiserror::Error;
use tokio::time::timeout;

/// How long the connection may take to stand.
const CONNECT: Duration = Duration::from_secs(5);

/// Every request but a watch is given up after so long.
pub const REQUEST: Duration = Duration::from_secs(10);

/// Why the API server did not do something, in few words. `kube`'s own errors repeat what is below them at each level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApiError {
    /// It refused.
    #[error("the API server refused it: {message} ({reason}, {code})")]
    Refused {
        /// Its words.
        message: String,
        /// Its word for the sort of refusal: `Forbidden`.
        reason: String,
        /// The status of HTTP.
        code: u16,
    },
    /// It could not be reached, or its answer not be read.
    #[error("the API server gave no answer: {0}")]
    Unreachable(String),
    /// It did not answer in time.
    #[error("the API server did not answer within {} s", REQUEST.as_secs())]
    Silent,
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> ApiError {
        match error {
            kube::Error::Api(status) => ApiError::refused(&status),
            error => ApiError::Unreachable(innermost(&error)),
        }
    }
}

impl From<watcher::Error> for ApiError {
    fn from(error: watcher::Error) -> ApiError {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error.into(),
            watcher::Error::WatchError(status) => ApiError::refused(&status),
            watcher::Error::NoResourceVersion => {
                ApiError::Unreachable("it tells no versions of objects".to_owned())
            }
        }
    }
}

impl ApiError {
    fn refused(status: &Status) -> ApiError {
        let Status { message, reason, code, .. } = status;
        ApiError::Refused { message: message.clone(), reason: reason.clone(), code: *code }
    }

    /// Whether a watch has only to begin anew, since the API server keeps no changes that old.
    pub fn is_expired(&self) -> bool {
        matches!(self, ApiError::Refused { code: 410, .. })
    }
}

/// Waits for an answer of the API server, not for ever.
///
/// # Errors
///
/// Its refusal, that it cannot be reached, or that it is silent.
pub async fn answer<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match timeout(REQUEST, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ApiError::Silent),
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

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
    /// A file that holds more than a token, which would be sent as it is, and which no API server takes.
    #[error(
        "{path} holds more than a token: a space or a line's end; write it with `printf %s TOKEN`, as kubectl does"
    )]
    Token {
        /// Which.
        path: PathBuf,
    },
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
    if let Some(path) = config.auth_info.token_file.as_deref().map(Path::new) {
        is_a_token(path)?;
    }
    config.connect_timeout = Some(CONNECT);
    // Whoever asks tries again as is fit. The client's own way is to repeat up to 15 times what was answered with 429, for minutes: a
    // PodDisruptionBudget that does not yield, for one.
    config.default_retry = false;
    let server = config.cluster_url.clone();
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = server.port_u16().unwrap_or(443);
    let client = Client::try_from(config)
        .map_err(|source| ConnectError::Client { server: server.to_string(), source: Box::new(source) })?;
    Ok(Connection { client, host, port })
}

/// Whether a file holds a token and nothing beside it, where it can be read: it may come later.
fn is_a_token(path: &Path) -> Result<(), ConnectError> {
    match files::read_to_string(path) {
        Ok(token) if token.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Err(ConnectError::Token { path: path.to_owned() })
        }
        Ok(_) | Err(_) => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_with_a_line_end_is_said_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(is_a_token(&path).is_ok(), "it may come later");
        files::write_atomic(&path, "eyJh.bGci.T1J").unwrap();
        assert!(is_a_token(&path).is_ok());
        files::write_atomic(&path, "eyJh.bGci.T1J\n").unwrap();
        let error = is_a_token(&path).unwrap_err().to_string();
        assert!(error.contains("a line's end") && error.contains("/token"), "{error}");
    }

    #[test]
    fn errors_are_told_in_few_words() {
        let status = Status::failure("nodes \"a\" not found", "NotFound").with_code(404);
        let error = ApiError::from(kube::Error::Api(status.boxed()));
        assert_eq!(error.to_string(), "the API server refused it: nodes \"a\" not found (NotFound, 404)");
        let deep = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "Connection refused");
        let error = ApiError::from(watcher::Error::WatchFailed(kube::Error::ReadEvents(deep)));
        assert_eq!(error.to_string(), "the API server gave no answer: Connection refused");
        let old = Status::failure("too old", "Expired").with_code(410);
        assert!(ApiError::from(watcher::Error::WatchError(old.boxed())).is_expired());
    }
}
