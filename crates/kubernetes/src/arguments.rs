//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand};

use crate::{
    claim::state::RUN,
    identity::{DRIVER, DriverName, NodeName, STATE},
};

/// Where a pod puts its programs on its node.
pub const HOST_DIRECTORY: &str = "/opt/penstock";

/// The version, and the commit where the build told one.
const VERSION: &str = match option_env!("PENSTOCK_VERSION") {
    Some(text) => text,
    None => env!("CARGO_PKG_VERSION"),
};

/// SR-IOV NICs on Kubernetes, by Dynamic Resource Allocation
#[derive(Debug, Parser)]
#[command(name = "penstock-kubernetes", version = VERSION, about, max_term_width = 0)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The command line, for manual pages and completions.
pub fn command() -> clap::Command {
    CommandLine::command()
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Publish this node's NICs as ResourceSlices, tell their health, and prepare claims for kubelet
    Node(Box<Node>),
    /// Run the agent of a pod on the pod's node, as the DaemonSet of `manifests --daemonset` does
    Host(HostAgent),
    /// Move a prepared VF into a container's network namespace; the container runtime runs it as a hook
    Attach(Attach),
    /// Bring models to nodes in waves, each confirmed or taken back by its node; once in a cluster
    Controller(Controller),
    /// Print what the cluster needs: service accounts, access rules, policies, device classes, kinds; or what runs agents or the controller
    Manifests(Manifests),
    /// Write the container image that `manifests --daemonset` and `manifests --controller` run: this program and penstock, and nothing else
    Image(AgentImage),
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
    /// Where hooks leave their records, which end with the kernel's run
    #[arg(long, value_name = "DIR", default_value = RUN)]
    pub run_directory: PathBuf,
    /// kubelet's directory, which has its plugins' sockets
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_directory: PathBuf,
    /// Where the container runtime looks for CDI files
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi_directory: PathBuf,
    /// How often the machine is scanned where no event says that something changed, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub rescan: Duration,
    /// Serve metrics on http://ADDRESS:PORT/metrics. Not done by default: whoever reaches the port can read them, the names of pods too
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
}

impl Node {
    /// The model, unless there is none.
    pub fn model(&self) -> Option<&PathBuf> {
        Some(&self.model).filter(|path| path.as_os_str() != "none")
    }
}

/// `host`
#[derive(Clone, Debug, Args)]
pub struct HostAgent {
    /// The pod's UID
    #[arg(long, value_name = "UID")]
    pub pod: String,
    /// The pod's projected volume that has `token` and `ca.crt`
    #[arg(long, value_name = "NAME", default_value = "token")]
    pub token_volume: String,
    /// The API server as the node reaches it. Default: as kubelet tells pods
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The penstock binary of the image
    #[arg(long, value_name = "FILE", default_value = "/usr/bin/penstock")]
    pub penstock: PathBuf,
    /// Where on the node programs are put, in `bin`
    #[arg(long, value_name = "DIR", default_value = HOST_DIRECTORY)]
    pub directory: PathBuf,
    /// kubelet's directory on the node
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_directory: PathBuf,
    /// What `node` is given beside --kubeconfig, --penstock and --kubelet-directory
    #[arg(last = true, value_name = "ARGUMENT")]
    pub node: Vec<OsString>,
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
    /// The namespace of the Lease that the controller at work holds, and of the Deployment's pods
    #[arg(long, value_name = "NAME", default_value = "penstock")]
    pub namespace: NodeName,
    /// As older manifests give it: nothing needs it any more
    #[arg(long, hide = true, value_name = "UID")]
    pub pod: Option<String>,
    /// Serve metrics on http://ADDRESS:PORT/metrics. Not done by default: whoever reaches the port can read them
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
}

/// `manifests`
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("pods").args(["daemonset", "controller"]))]
pub struct Manifests {
    /// The name of the driver
    #[arg(long, value_name = "NAME", default_value = DRIVER, conflicts_with_all = ["controller", "unit"])]
    pub driver: DriverName,
    /// The namespace of the service accounts of agents and the controller
    #[arg(long, value_name = "NAME", default_value = "penstock", conflicts_with = "unit")]
    pub namespace: NodeName,
    /// Print the systemd unit of the agent and not what the cluster needs
    #[arg(long, conflicts_with = "pods")]
    pub unit: bool,
    /// Print a DaemonSet that runs the agent from this container image, and not what the cluster needs
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub daemonset: Option<String>,
    /// Print a Deployment that runs the controller from this container image, and not what the cluster needs
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub controller: Option<String>,
    /// The API server as nodes reach it, for the DaemonSet. Default: by the cluster's own service
    #[arg(long, value_name = "URL", requires = "daemonset", conflicts_with_all = ["controller", "unit"], value_parser = url)]
    pub server: Option<String>,
    /// Where the DaemonSet's agents serve metrics, on their nodes, or the Deployment's controller, in its pod. Default: nowhere
    #[arg(long, value_name = "ADDRESS:PORT", requires = "pods")]
    pub metrics: Option<SocketAddr>,
}

/// `image`
#[derive(Clone, Debug, Args)]
pub struct AgentImage {
    /// The archive to write, which `skopeo copy oci-archive:FILE`, `podman load` and `ctr images import` read
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// The image's name and tag
    #[arg(long, value_name = "IMAGE", default_value = concat!("localhost/penstock-kubernetes:", env!("CARGO_PKG_VERSION")), value_parser = tagged)]
    pub name: String,
    /// The penstock binary
    #[arg(long, value_name = "FILE", default_value = "penstock")]
    pub penstock: PathBuf,
}

/// A name that a registry can have, with a tag.
fn tagged(text: &str) -> Result<String, String> {
    let is_tag = |tag: &str| {
        tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let is_name = |name: &str| {
        let (registry, path) = name.split_once('/').unwrap_or_default();
        let fits = |text: &str, more: &[u8]| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || more.contains(&byte))
        };
        fits(registry, b".-:") && fits(path, b"._-/")
    };
    match text.rsplit_once(':') {
        Some((name, tag)) if is_name(name) && is_tag(tag) && text.len() <= 512 => Ok(text.to_owned()),
        _ => {
            Err("expected registry, name and tag, like registry.example.org/penstock-kubernetes:1.0"
                .to_owned())
        }
    }
}

/// A reference to an image (`distribution/reference`), as far as it can stand in YAML and be none of its words.
fn image(text: &str) -> Result<String, String> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@+".contains(&byte);
    match text.bytes().all(is_fit)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= 512
    {
        true => Ok(text.to_owned()),
        false => Err("expected a container image, like registry.example.org/penstock:1.0".to_owned()),
    }
}

fn url(text: &str) -> Result<String, String> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:[]%".contains(&byte);
    match text.starts_with("https://") && text.bytes().all(is_fit) {
        true => Ok(text.to_owned()),
        false => Err("expected a URL, like https://10.0.0.1:6443".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected whole seconds from 1 to 86400".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_registry_a_name_and_a_tag() {
        for good in ["localhost/a:1", "localhost:5000/a/b:v1.0_x", "registry.example.org/a-b:0.1.0-rc.1"] {
            assert_eq!(tagged(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "a:1",
            "localhost/a",
            "localhost/a:",
            "a/b:1:2",
            "a/b:+",
            "a/B:1",
            "a/b@sha256:00",
            "/a:1",
            "a/:1",
        ] {
            assert!(tagged(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_controller_begins_with_what_an_older_manifest_gives_it() {
        let line = ["penstock-kubernetes", "controller", "--namespace=penstock", "--pod=6c7e1f3a"];
        CommandLine::try_parse_from(line).unwrap();
    }
}
