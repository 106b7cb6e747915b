//! What the cluster needs to know of the agent: its service account with what it may do, the policy that fences its slices to its own
//! node, device classes; and what runs it on the host: a unit of systemd, or a DaemonSet.

use std::io::{self, Write};

use thiserror::Error;

use crate::{
    arguments::{HOST_DIRECTORY, Manifests},
    identity::{DRIVER, DriverName, NodeName},
};

const ACCESS: &str = include_str!("access.yaml");
const POLICY: &str = include_str!("policy.yaml");
const DAEMONSET: &str = include_str!("daemonset.yaml");
const CLASSES: &str = include_str!("classes.yaml");
const UNIT: &str = include_str!("penstock-kubernetes.service");

/// Why they could not be printed.
#[derive(Debug, Error)]
#[error("cannot print the manifests")]
pub struct PrintError(#[from] io::Error);

/// Prints them on standard output.
///
/// # Errors
///
/// Nobody reads it, or what it is written to is full.
pub fn print(arguments: &Manifests) -> Result<(), PrintError> {
    let text = if arguments.unit {
        unit()
    } else if let Some(image) = &arguments.daemonset {
        daemonset(image, arguments)
    } else {
        all(&arguments.driver, &arguments.namespace)
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// All that is applied to the cluster, as YAML documents.
pub fn all(driver: &DriverName, namespace: &NodeName) -> String {
    cluster(driver, namespace) + &rollout(namespace)
}

/// What agents need of the cluster, as YAML documents.
fn cluster(driver: &DriverName, namespace: &NodeName) -> String {
    // `sriov.penstock.dev` has the class `vf.penstock.dev`.
    let driver = driver.as_str();
    let classes = driver.strip_prefix("sriov.").unwrap_or(driver);
    [ACCESS, POLICY, CLASSES]
        .concat()
        .replace("@DRIVER@", driver)
        .replace("@CLASSES@", classes)
        .replace("@NAMESPACE@", namespace.as_str())
}

/// What roll-outs take beside that: kinds, roles and a policy; JSON, which is YAML too.
fn rollout(namespace: &NodeName) -> String {
    let objects = crate::machine::manifests::objects(namespace.as_str());
    objects.iter().map(|object| format!("---\n{object:#}\n")).collect()
}

/// The DaemonSet of the agent, as YAML documents.
fn daemonset(image: &str, arguments: &Manifests) -> String {
    let Manifests { driver, namespace, server, metrics, .. } = arguments;
    let option = |name: &str, value: Option<String>| {
        value.map(|value| format!(", {name}, \"{value}\"")).unwrap_or_default()
    };
    let driver = Some(driver.to_string()).filter(|driver| *driver != DRIVER);
    DAEMONSET
        .replace("@IMAGE@", &format!("\"{image}\""))
        .replace("@NAMESPACE@", namespace.as_str())
        .replace("@SERVER@", &option("--server", server.clone()))
        .replace("@DRIVER@", &option("--driver", driver))
        .replace("@METRICS@", &option("--metrics", metrics.map(|address| address.to_string())))
        .replace("@DIRECTORY@", HOST_DIRECTORY)
}

/// The unit of the agent.
pub fn unit() -> String {
    UNIT.to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{CommandLine, Verb};

    fn told(more: &[&str]) -> String {
        let line = CommandLine::parse_from([&["penstock-kubernetes", "manifests"][..], more].concat());
        let Verb::Manifests(arguments) = line.verb else { panic!("another verb") };
        daemonset(arguments.daemonset.as_deref().unwrap(), &arguments)
    }

    #[test]
    fn they_are_those_of_the_golden_files() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/manifests");
        let text = cluster(&crate::identity::DRIVER.parse().unwrap(), &"penstock".parse().unwrap());
        penstock_testkit::golden::compare(&golden.join("cluster.yaml"), &text);
        penstock_testkit::golden::compare(&golden.join("penstock-kubernetes.service"), &unit());
        let text = told(&["--daemonset", "registry.example.org/penstock:1.0"]);
        penstock_testkit::golden::compare(&golden.join("daemonset.yaml"), &text);
    }

    #[test]
    fn nothing_is_left_to_be_filled_in() {
        let text = cluster(&"nics.example.org".parse().unwrap(), &"infra".parse().unwrap());
        assert!(!text.contains('@'), "{text}");
        assert!(text.contains("name: vf.nics.example.org") && text.contains("namespace: infra"), "{text}");
        let image = ["--daemonset", "a/b@sha256:00", "--driver", "nics.example.org", "--namespace", "infra"];
        let reached = ["--server", "https://10.0.0.1:6443", "--metrics", "[::1]:9810"];
        let pods = told(&[&image[..], &reached].concat());
        assert!(!pods.replace("@sha256", "").contains('@'), "{pods}");
        for words in [
            "--server, \"https://10.0.0.1:6443\"",
            "--driver, \"nics.example.org\"",
            "--metrics, \"[::1]:9810\"",
            "namespace: infra",
        ] {
            assert!(pods.contains(words), "{words}: {pods}");
        }
        assert!(!text.contains("penstock.dev"), "another driver has nothing of the default one: {text}");
    }
}
