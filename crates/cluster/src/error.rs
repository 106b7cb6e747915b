//! What can go wrong with a cluster, and what to do about it.

use std::{io, path::PathBuf, time::Duration};

use penstock_board::{BoardError, Cache};
use penstock_host::{PlaceError, ProcessError, files::FileError};
use thiserror::Error;

use crate::kept::KeptCluster;

/// Why there is no cluster.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// No Go that builds the programs.
    #[error("Go {}.{} or newer is needed to build Kubernetes, and {found}", needed.0, needed.1)]
    NoGo {
        /// The oldest version that builds them.
        needed: (u32, u32),
        /// What was found.
        found: String,
    },
    /// Go could not have the modules that Kubernetes is built of.
    #[error("the Go modules of Kubernetes could not be had: {why}")]
    Modules {
        /// The end of what Go said.
        why: String,
    },
    /// Go did not build the programs.
    #[error("Kubernetes could not be built: {why}")]
    Build {
        /// The end of what Go said.
        why: String,
    },
    /// There is not enough room.
    #[error("{} has {} MiB free, and {} MiB are needed to make the parts of a cluster", directory.display(), free >> 20, needed >> 20)]
    NoSpace {
        /// A directory of the file system that is too full.
        directory: PathBuf,
        /// Bytes that are free there.
        free: u64,
        /// Bytes that are needed there.
        needed: u64,
    },
    /// A file system got full while Go built.
    #[error("there was not enough room to build Kubernetes: {why}")]
    Full {
        /// What Go said.
        why: String,
    },
    /// A name that names no nodes.
    #[error(
        "{name:?} cannot name a cluster, since its nodes are called {name}-1 and so on: small letters, digits and '-' can, from a letter \
         or digit to a letter or digit, at most 50"
    )]
    Name {
        /// The name that was asked for.
        name: String,
    },
    /// More nodes than a machine can have, or none.
    #[error("a cluster has 1 to {limit} nodes, and {wanted} were asked for")]
    Nodes {
        /// How many were asked for.
        wanted: usize,
        /// The most that there can be.
        limit: usize,
    },
    /// A cluster of this name is there already.
    #[error("there is a cluster {name:?} already")]
    Taken {
        /// Its name.
        name: String,
    },
    /// A cluster of another machine, or of a container.
    #[error("the cluster {name:?} runs on another machine or in a container: {host}")]
    Elsewhere {
        /// Its name.
        name: String,
        /// The name of that machine or container.
        host: String,
        /// Where it is written down.
        directory: PathBuf,
    },
    /// No such cluster.
    #[error("there is no cluster {name:?}")]
    NoSuchCluster {
        /// The name that no cluster has.
        name: String,
        /// Those that there are.
        kept: Vec<String>,
    },
    /// A cluster that is still being brought up.
    #[error("the cluster {name:?} is being brought up and has no API server yet")]
    ComingUp {
        /// Its name.
        name: String,
    },
    /// A program of the control plane ended.
    #[error("{program} ended before the cluster was up: {why}")]
    Ended {
        /// The program.
        program: String,
        /// The end of its log.
        why: String,
    },
    /// The API server did not become ready.
    #[error("the API server was not ready {} s after its start: {why}", after.as_secs())]
    NotReady {
        /// How long was waited.
        after: Duration,
        /// What it answered last.
        why: String,
    },
    /// Nodes did not become ready.
    #[error("nodes were not Ready {} s after kubelet's start: {why}", after.as_secs())]
    NodesNotReady {
        /// How long was waited.
        after: Duration,
        /// What is known of them.
        why: String,
    },
    /// No port for the control plane.
    #[error("no port of the loopback interface could be had for {program}")]
    Port {
        /// The program that was to listen.
        program: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A process that would not end.
    #[error("{program} of the cluster {name:?}, process {id}, could not be ended")]
    Stuck {
        /// Name of the cluster.
        name: String,
        /// The program.
        program: String,
        /// Its process id.
        id: u32,
    },
    /// A cluster that did not come up, of which something is left.
    #[error("{error}; what of the cluster was up by then could not be ended: {left}")]
    Left {
        /// Name of the cluster.
        name: String,
        /// Why it did not come up.
        error: Box<ClusterError>,
        /// Why it could not be ended, with the causes.
        left: String,
    },
    /// An interrupt came.
    #[error("interrupted while {doing}")]
    Interrupted {
        /// What was being done.
        doing: &'static str,
    },
    /// No random numbers.
    #[error("no secrets could be made")]
    Secret(#[source] io::Error),
    /// A board failed.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// A file could not be read or written.
    #[error("a cluster's files could not be handled")]
    File(#[from] FileError),
    /// A program failed.
    #[error("a program that the cluster needs failed")]
    Process(#[from] ProcessError),
    /// A node could not be given what it is to have.
    #[error("the node {node} could not be given penstock and the model: {why}")]
    Furnish {
        /// The node's name.
        node: String,
        /// What failed.
        why: String,
    },
    /// Something on a node failed.
    #[error("something on the node {node} failed")]
    Node {
        /// The node's name.
        node: String,
        /// What failed.
        #[source]
        source: PlaceError,
    },
}

impl ClusterError {
    /// That there is this cluster, here or elsewhere.
    pub(crate) fn taken(cluster: &KeptCluster, cache: &Cache) -> ClusterError {
        let name = cluster.name.clone();
        match cluster.elsewhere() {
            None => ClusterError::Taken { name },
            Some(host) => {
                let directory = cache.clusters().join(&name);
                ClusterError::Elsewhere { name, host: host.to_owned(), directory }
            }
        }
    }

    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            ClusterError::Board(error) => return error.hint(),
            ClusterError::NoSuchCluster { kept, .. } if !kept.is_empty() => {
                return Some(format!("there are: {}", kept.join(", ")));
            }
            ClusterError::Taken { name } => {
                return Some(format!(
                    "remove it first with `penstock board cluster down {name}`, or give this one another --name"
                ));
            }
            ClusterError::Elsewhere { directory, .. } => {
                return Some(format!(
                    "use and remove it there, or give another one another --name; where that one is gone for good, remove {}",
                    directory.display()
                ));
            }
            ClusterError::NoGo { .. } => {
                "install it from https://go.dev/dl, into /usr/local/go, and put its bin directory on PATH"
            }
            ClusterError::Modules { .. } | ClusterError::Build { .. } => {
                "check the network and try again: the modules come from the proxy that GOPROXY names, and nothing half-made is kept"
            }
            ClusterError::Full { .. } => {
                "free some space there: Go keeps modules and what it has compiled where `go env GOMODCACHE GOCACHE` says, all else is in the \
                 cache, which XDG_CACHE_HOME puts elsewhere"
            }
            ClusterError::Stuck { id, .. } => {
                return Some(format!(
                    "end it with `kill -KILL {id}` and try again: what is left is written down"
                ));
            }
            ClusterError::ComingUp { .. } => "wait until `penstock board cluster up` says that it is up",
            ClusterError::Left { name, .. } => {
                return Some(format!("end it with `penstock board cluster down {name}`"));
            }
            ClusterError::NoSpace { .. } => "free some space, or put the cache elsewhere with XDG_CACHE_HOME",
            ClusterError::Name { .. } => "give it another name with --name",
            ClusterError::Port { .. } => "end some program that listens on loopback ports, and try again",
            ClusterError::NotReady { .. } | ClusterError::NodesNotReady { .. } => {
                "try again when the machine has less to do, or with fewer --nodes"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
