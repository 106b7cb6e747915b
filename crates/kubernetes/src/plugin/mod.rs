//! What kubelet talks to.

use std::{path::PathBuf, sync::Arc};

use thiserror::Error;
use tokio::sync::watch;

use crate::{devices::Devices, health::HealthReport};

/// What the plugin works with.
pub struct Settings {
    /// The API server.
    pub client: kube::Client,
    /// The driver's name.
    pub driver: String,
    /// The Node.
    pub node: String,
    /// The pool of its devices.
    pub pool: String,
    /// The penstock binary.
    pub penstock: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// Where state is kept.
    pub state: PathBuf,
    /// kubelet's directory.
    pub kubelet: PathBuf,
    /// The directory of CDI files.
    pub cdi: PathBuf,
    /// What is published.
    pub devices: watch::Receiver<Arc<Devices>>,
    /// How it is.
    pub health: watch::Receiver<Arc<HealthReport>>,
    /// Whether to end.
    pub shutdown: watch::Receiver<bool>,
}

/// Why kubelet cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {}

/// Serves kubelet until it is told to end.
///
/// # Errors
///
/// None here.
pub async fn serve(mut settings: Settings) -> Result<(), ServeError> {
    let _ = settings.shutdown.wait_for(|ends| *ends).await;
    Ok(())
}
