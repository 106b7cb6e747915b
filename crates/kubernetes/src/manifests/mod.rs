//! What the cluster needs to know of agents and the controller: service accounts with what they may do, policies that fence what they write,
//! device classes, kinds; and what runs them: a unit of systemd or a DaemonSet for agents, a Deployment for the controller.

use std::io::{self, Write};

use thiserror::Error;

use crate::{
    arguments::{HOST_DIRECTORY, Manifests},
    identity::{DRIVER, DriverName, NodeName},
};

const ACCESS: &str = include_str!("access.yaml");
const POLICY: &str = include_str!("policy.yaml");
const DAEMONSET: &str = include_str!("daemonset.yaml");
const CONTROLLER: &str = include_str!("controller.yaml");
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
    } else if let Some(image) = &arguments.controller {
        controller(image, arguments)
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
    let driver = Some(driver.to_string()).filter(|driver| *driver != DRIVER);
    DAEMONSET
        .replace("@IMAGE@", &format!("\"{image}\""))
        .replace("@NAMESPACE@", namespace.as_str())
        .replace("@SERVER@", &option("--server", server.clone()))
        .replace("@DRIVER@", &option("--driver", driver))
        .replace("@METRICS@", &option("--metrics", metrics.map(|address| address.to_string())))
        .replace("@DIRECTORY@", HOST_DIRECTORY)
}

/// The Deployment of the controller, as YAML documents.
fn controller(image: &str, arguments: &Manifests) -> String {
    let Manifests { namespace, metrics, .. } = arguments;
    CONTROLLER
        .replace("@IMAGE@", &format!("\"{image}\""))
        .replace("@NAMESPACE@", namespace.as_str())
        .replace("@METRICS@", &option("--metrics", metrics.map(|address| address.to_string())))
}

/// An option of a command line that stands as a list in YAML; nothing where it has no value.
fn option(name: &str, value: Option<String>) -> String {
    value.map(|value| format!(", {name}, \"{value}\"")).unwrap_or_default()
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
        match (&arguments.daemonset, &arguments.controller) {
            (Some(image), None) => daemonset(image, &arguments),
            (None, Some(image)) => controller(image, &arguments),
            _ => panic!("one of the two"),
        }
    }

    #[test]
    fn they_are_those_of_the_golden_files() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/manifests");
        let text = cluster(&crate::identity::DRIVER.parse().unwrap(), &"penstock".parse().unwrap());
        penstock_testkit::golden::compare(&golden.join("cluster.yaml"), &text);
        penstock_testkit::golden::compare(&golden.join("penstock-kubernetes.service"), &unit());
        let text = told(&["--daemonset", "registry.example.org/penstock:1.0"]);
        penstock_testkit::golden::compare(&golden.join("daemonset.yaml"), &text);
        let text = told(&["--controller", "registry.example.org/penstock:1.0"]);
        penstock_testkit::golden::compare(&golden.join("controller.yaml"), &text);
    }

    #[test]
    fn an_option_that_is_of_no_use_is_refused() {
        for words in [
            &["--metrics", "127.0.0.1:9810"][..],
            &["--unit", "--metrics", "127.0.0.1:9810"],
            &["--unit", "--server", "https://10.0.0.1:6443"],
            &["--unit", "--controller", "a/b:1"],
            &["--daemonset", "a/b:1", "--controller", "a/b:1"],
            &["--controller", "a/b:1", "--server", "https://10.0.0.1:6443"],
            &["--controller", "a/b:1", "--driver", "nics.example.org"],
            &["--unit", "--driver", "nics.example.org"],
            &["--unit", "--namespace", "infra"],
        ] {
            let line = [&["penstock-kubernetes", "manifests"][..], words].concat();
            assert!(CommandLine::try_parse_from(line).is_err(), "{}", words.join(" "));
        }
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
        let image = ["--controller", "a/b@sha256:00", "--namespace", "infra", "--metrics", "[::]:9811"];
        let controller = told(&image);
        assert!(!controller.replace("@sha256", "").contains('@'), "{controller}");
        for words in ["--namespace, \"infra\", --metrics, \"[::]:9811\"]", "namespace: infra\n"] {
            assert!(controller.contains(words), "{words}: {controller}");
        }
    }
}
