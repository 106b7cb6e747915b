//! What the cluster needs to know of the agent: its service account with what it may do, the policy that fences its slices to its own
//! node, device classes; and the systemd unit that runs it on the host.

use std::io::{self, Write};

use thiserror::Error;

use crate::{
    arguments::Manifests,
    identity::{DriverName, NodeName},
};

const ACCESS: &str = include_str!("access.yaml");
const POLICY: &str = include_str!("policy.yaml");
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
    } else {
        cluster(&arguments.driver, &arguments.namespace) + &rollout(&arguments.namespace)
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// What is applied to the cluster, as YAML documents.
pub fn cluster(driver: &DriverName, namespace: &NodeName) -> String {
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
    }

    #[test]
    fn nothing_is_left_to_be_filled_in() {
        let text = cluster(&"nics.example.org".parse().unwrap(), &"infra".parse().unwrap());
        assert!(!text.contains('@'), "{text}");
        assert!(text.contains("name: vf.nics.example.org") && text.contains("namespace: infra"), "{text}");
        assert!(!text.contains("penstock.dev"), "another driver has nothing of the default one: {text}");
    }
}
