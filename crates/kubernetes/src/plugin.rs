//! The kubelet plugin: two Unix sockets. By one kubelet finds the driver, over the other it has claims prepared and hears of devices' health.
//!
//! - [`sockets`]: how sockets are made and served. [`registration`], [`resources`], [`health_stream`]: the three services.
//! - [`claim_api`]: what is asked of the API server. [`reporter`]: what is told there of claims, and whether pods have what they were given.
//!   [`orphans`]: claims that kubelet has forgotten.

use std::{path::PathBuf, sync::Arc};

use penstock_host::{
    Root, chain,
    files::{self, FileError, Lock},
};
use thiserror::Error;
use tokio::{sync::watch, task};

use crate::{
    change::NodeHost,
    claim::{ClaimSettings, Claims, StateError},
    devices::Devices,
    health::HealthReport,
    log::say,
    metrics::ClaimTimings,
};

pub mod claim_api;
pub mod health_stream;
pub mod orphans;
mod poll;
pub mod registration;
pub mod reporter;
pub mod resources;
pub mod sockets;

use claim_api::{ClaimApi, ClaimApiClient};
use orphans::{OrphanSettings, Orphans};

/// What the plugin is to be.
#[derive(Debug)]
pub struct Settings<C = ClaimApiClient> {
    /// What is asked of the API server.
    pub client: C,
    /// The driver's name.
    pub driver: String,
    /// The node's name.
    pub node: String,
    /// The name of the pool of its devices.
    pub pool: String,
    /// `penstock`, by its absolute path.
    pub penstock: PathBuf,
    /// This very program, by its absolute path: the container runtime runs it as a hook.
    pub program: PathBuf,
    /// The agent's directory.
    pub state: PathBuf,
    /// Kubelet's directory, `/var/lib/kubelet`.
    pub kubelet: PathBuf,
    /// The directory of the container runtime's files, `/var/run/cdi`.
    pub cdi: PathBuf,
    /// The devices of this node.
    pub devices: watch::Receiver<Arc<Devices>>,
    /// Their health.
    pub health: watch::Receiver<Arc<HealthReport>>,
    /// Who is told of what pods have and is not as it was given.
    pub drift: reporter::ClaimDriftReport,
    /// Where the Node is of which it takes itself to be: nothing is prepared for another machine.
    pub node_host: watch::Receiver<NodeHost>,
    /// True when the plugin is to end.
    pub shutdown: watch::Receiver<bool>,
    /// Where it is counted how long calls take.
    pub timings: ClaimTimings,
    /// When it is looked for claims that kubelet has forgotten.
    pub orphans: OrphanSettings,
}

/// Why the plugin could not be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A file or directory could not be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// What is written down of claims could not be opened.
    #[error(transparent)]
    State(#[from] StateError),
    /// A socket could not be made.
    #[error("could not listen on {}", path.display())]
    Listen {
        /// The socket's path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another agent serves this node.
    #[error("another agent of this node is running: it holds {}", path.display())]
    Running {
        /// The file that it holds.
        path: PathBuf,
    },
    /// A server ended by itself.
    #[error("the server of {} ended", path.display())]
    Server {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        source: tonic::transport::Error,
    },
}

/// Serves kubelet until `shutdown` says true: calls in flight are finished then, and the sockets removed. The hook's records are in `run`.
///
/// # Errors
///
/// When a socket cannot be made, another agent runs, or a server ends by itself.
pub async fn serve(run: PathBuf, settings: Settings) -> Result<(), ServeError> {
    serve_on(Root::system(), run, settings).await
}

/// As [`serve`], with the machine below `root` and the hook's records in `run`.
///
/// # Errors
///
/// As [`serve`].
pub async fn serve_on<C: ClaimApi>(
    root: Root,
    run: PathBuf,
    settings: Settings<C>,
) -> Result<(), ServeError> {
    files::make_own_directory(&settings.state)?;
    let held = settings.state.join("plugin.lock");
    let Some(_alone) = Lock::try_exclusive(&held)? else { return Err(ServeError::Running { path: held }) };
    let claims = Claims::new(ClaimSettings {
        root,
        driver: settings.driver.clone(),
        pool: settings.pool.clone(),
        penstock: settings.penstock,
        program: settings.program,
        state: settings.state,
        run,
        cdi: settings.cdi,
    });
    let api = Arc::new(settings.client);
    let reporter = reporter::Reporter::open(claims.clone(), api.clone(), &settings.node, settings.drift)?;

    let orphans =
        Orphans::new(claims.clone(), api.clone(), &settings.node, settings.orphans, settings.timings.clone());
    let of_before = claims.clone();
    if let Ok(Err(error)) = task::spawn_blocking(move || of_before.renew_programs()).await {
        say(format!("claims may name programs that are gone: {}", chain(&error)));
    }

    let plugins = settings.kubelet.join("plugins").join(&settings.driver);
    files::create_dir_all(settings.kubelet.join("plugins_registry"))?;
    files::create_dir_all(settings.kubelet.join("plugins"))?;
    files::make_own_directory(&plugins)?;
    let endpoint = sockets::Socket::bind(plugins.join("dra.sock"))?;
    // Kubelet calls it as soon as it is there.
    let name = registration::socket_name(&settings.driver);
    let registry = sockets::Socket::bind(settings.kubelet.join("plugins_registry").join(name))?;

    let resources = resources::Resources {
        claims: Arc::new(claims),
        api,
        node: settings.node,
        devices: settings.devices,
        node_host: settings.node_host,
        timings: settings.timings,
        woken: reporter.woken(),
    };
    let health = health_stream::HealthStream::new(&settings.pool, settings.health, settings.shutdown.clone());
    let registration = registration::Registration::new(&settings.driver, endpoint.path());
    let served = endpoint.serve(
        tonic::service::Routes::new(resources.service()).add_service(health.service()),
        settings.shutdown.clone(),
    );
    let registered =
        registry.serve(tonic::service::Routes::new(registration.service()), settings.shutdown.clone());
    tokio::select! {
        ended = async { tokio::try_join!(served, registered) } => ended.map(drop),
        () = reporter.report() => Ok(()),
        () = orphans.watch() => Ok(()),
    }
}
