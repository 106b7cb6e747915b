//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::identity::{DRIVER, DriverName, NodeName, STATE};

/// SR-IOV NICs on Kubernetes, by Dynamic Resource Allocation
#[derive(Debug, Parser)]
#[command(name = "penstock-kubernetes", version, about, max_term_width = 0)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Publish this node's NICs as ResourceSlices, tell their health, and prepare claims for kubelet
    Node(Box<Node>),
    /// Move a prepared VF into a container's network namespace; the container runtime runs it as a hook
    Attach(Attach),
    /// Bring models to nodes in waves, each confirmed or taken back by its node; once in a cluster
    Controller(Controller),
    /// Print what the cluster needs: access rules, the policy that fences slices to their node, device classes, the systemd unit
    Manifests(Manifests),
}

/// `node`
#[derive(Clone, Debug, Args)]
pub struct Node {
    /// The Node that this machine is in the cluster
    #[arg(long = "node", value_name = "NAME")]
    pub name: NodeName,
    /// How the API server is reached. Default: as a pod of the cluster is told
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The model of this machine, which names its NICs and says what is drift; `none` where there is none
    #[arg(long, value_name = "FILE", default_value = "none")]
    pub model: PathBuf,
    /// The penstock binary
    #[arg(long, value_name = "FILE", default_value = "penstock")]
    pub penstock: PathBuf,
    /// The name of the driver, in slices, claims and device classes
    #[arg(long, value_name = "NAME", default_value = DRIVER)]
    pub driver: DriverName,
    /// Where prepared claims are written down
    #[arg(long, value_name = "DIR", default_value = STATE)]
    pub state: PathBuf,
    /// kubelet's directory, which has its plugins' sockets
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_directory: PathBuf,
    /// Where the container runtime looks for CDI files
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi_directory: PathBuf,
    /// How often the machine is scanned where no event says that something changed, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub rescan: Duration,
}

impl Node {
    /// The model, unless there is none.
    pub fn model(&self) -> Option<&PathBuf> {
        Some(&self.model).filter(|path| path.as_os_str() != "none")
    }
}

/// `attach`
#[derive(Clone, Debug, Args)]
pub struct Attach {
    /// The claim's UID
    #[arg(long, value_name = "UID")]
    pub claim: String,
    /// The device of the claim
    #[arg(long, value_name = "NAME")]
    pub device: String,
    /// The name of the driver
    #[arg(long, value_name = "NAME", default_value = DRIVER)]
    pub driver: DriverName,
    /// Where prepared claims are written down
    #[arg(long, value_name = "DIR", default_value = STATE)]
    pub state: PathBuf,
}

/// `controller`
#[derive(Clone, Debug, Args)]
pub struct Controller {
    /// How the API server is reached. Default: as a pod of the cluster is told
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the Lease that the controller at work holds
    #[arg(long, value_name = "NAME", default_value = "penstock")]
    pub namespace: NodeName,
}

/// `manifests`
#[derive(Clone, Debug, Args)]
pub struct Manifests {
    /// The name of the driver
    #[arg(long, value_name = "NAME", default_value = DRIVER)]
    pub driver: DriverName,
    /// The namespace of the agent's service account
    #[arg(long, value_name = "NAME", default_value = "penstock")]
    pub namespace: NodeName,
    /// Print the systemd unit of the agent and not what the cluster needs
    #[arg(long)]
    pub unit: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected whole seconds from 1 to 86400".to_owned()),
    }
}
