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
        daemonset(image, &arguments.driver, &arguments.namespace, arguments.server.as_deref())
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
pub fn daemonset(image: &str, driver: &DriverName, namespace: &NodeName, server: Option<&str>) -> String {
    let option = |name: &str, value: Option<&str>| {
        value.map(|value| format!(", {name}, \"{value}\"")).unwrap_or_default()
    };
    let driver = Some(driver.as_str()).filter(|driver| *driver != DRIVER);
    DAEMONSET
        .replace("@IMAGE@", &format!("\"{image}\""))
        .replace("@NAMESPACE@", namespace.as_str())
        .replace("@SERVER@", &option("--server", server))
        .replace("@DRIVER@", &option("--driver", driver))
        .replace("@DIRECTORY@", HOST_DIRECTORY)
}

/// The unit of the agent.
pub fn unit() -> String {
    UNIT.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_golden_files() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/manifests");
        let text = cluster(&crate::identity::DRIVER.parse().unwrap(), &"penstock".parse().unwrap());
        penstock_testkit::golden::compare(&golden.join("cluster.yaml"), &text);
        penstock_testkit::golden::compare(&golden.join("penstock-kubernetes.service"), &unit());
        let (driver, namespace) = (DRIVER.parse().unwrap(), "penstock".parse().unwrap());
        let text = daemonset("registry.example.org/penstock:1.0", &driver, &namespace, None);
        penstock_testkit::golden::compare(&golden.join("daemonset.yaml"), &text);
    }

    #[test]
    fn nothing_is_left_to_be_filled_in() {
        let text = cluster(&"nics.example.org".parse().unwrap(), &"infra".parse().unwrap());
        assert!(!text.contains('@'), "{text}");
        assert!(text.contains("name: vf.nics.example.org") && text.contains("namespace: infra"), "{text}");
        let server = Some("https://10.0.0.1:6443");
        let pods = daemonset(
            "a/b@sha256:00",
            &"nics.example.org".parse().unwrap(),
            &"infra".parse().unwrap(),
            server,
        );
        assert!(!pods.replace("@sha256", "").contains('@'), "{pods}");
        for words in
            ["--server, \"https://10.0.0.1:6443\"", "--driver, \"nics.example.org\"", "namespace: infra"]
        {
            assert!(pods.contains(words), "{words}: {pods}");
        }
        assert!(!text.contains("penstock.dev"), "another driver has nothing of the default one: {text}");
    }
}
