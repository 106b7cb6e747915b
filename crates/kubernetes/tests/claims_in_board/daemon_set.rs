//! The agent as a DaemonSet on the second node, where nothing of Penstock's is started but by its pod.

use std::time::{Duration, Instant};

use penstock_testkit::{
    cluster::until,
    trials::{Failed, Outcome},
};
use serde_json::json;

use super::{
    Bed, KUBECONFIG, VFS, containers,
    image::{self, IMAGE},
    is_ready, list, pod, text,
};

/// Kubelet removes the slices of a driver that stays away for 30 s.
const KEPT_FOR: Duration = Duration::from_secs(25);

/// What the test has made in the cluster goes with this, also when the test fails: the next one has an agent of its own on the node.
struct Cleared<'a>(&'a Bed);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        let timeout = format!("--timeout={}s", super::PATIENT.as_secs());
        for what in [&["pod", "by-daemon"][..], &["daemonset", "penstock-kubernetes", "--namespace=penstock"]]
        {
            let line =
                [&["delete"][..], what, &["--ignore-not-found", "--cascade=foreground", &timeout]].concat();
            let run = self.0.cluster.kubectl(&line);
            if run.status != 0 {
                eprintln!("{}", run.stderr);
            }
        }
    }
}

/// Its slices stay when its pod is another one, and pods keep their VFs: the hook is on the node.
pub fn runs_the_agent(bed: &Bed) -> Outcome {
    let cluster = &bed.cluster;
    let node = cluster.node(2);
    super::make_vfs(cluster, &node)?;
    image::put(bed, &node)?;

    let server = serde_json::from_str::<serde_json::Value>(KUBECONFIG)?;
    let server = text(&server["clusters"][0]["cluster"]["server"]);
    let manifest = image::manifests(bed, &["--daemonset", IMAGE, "--server", &server])?;
    let cleared = Cleared(bed);
    let everywhere = "{kubernetes.io/os: linux}";
    assert!(manifest.contains(everywhere));
    let here = format!("{{kubernetes.io/hostname: {node}}}");
    cluster.apply(&manifest.replace(everywhere, &here))?;
    let of_agent = || -> Result<Option<String>, Failed> {
        let pods = cluster.get(&["pods", "--namespace=penstock"])?;
        let ready = list(&pods["items"]).iter().find(|pod| is_ready(pod));
        Ok(ready.map(|pod| text(&pod["metadata"]["name"])))
    };
    until("the agent's pod is ready", || Ok(of_agent()?.is_some()))?;
    let published = || bed.slices_of(&node, |device| device["attributes"]["pfDriver"]["string"] == "igb");
    until("its slices have the VFs", || Ok(published()?.1 == VFS))?;
    let (slices, _) = published()?;

    let mut object = pod("by-daemon", "igb", &["main"]);
    object["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    cluster.apply(&object.to_string())?;
    bed.await_ready("by-daemon")?;
    let before = containers(&bed.pod("by-daemon")?);

    let first = of_agent()?.unwrap_or_default();
    let began = Instant::now();
    // One that was killed leaves its socket behind.
    cluster.on(&node, "touch /run/agent.deleted")?;
    cluster.said(&["delete", "pod", "--namespace=penstock", &first])?;
    until("another pod has the agent", || Ok(of_agent()?.is_some_and(|name| name != first)))?;
    let socket = "find /var/lib/kubelet/plugins_registry -name '*.sock' -newer /run/agent.deleted";
    until("the agent is there again", || Ok(!cluster.on(&node, socket)?.is_empty()))?;
    let away = began.elapsed();
    cluster.on(&node, &format!("ctr -n k8s.io tasks kill -s SIGKILL {}", before["main"]))?;
    until("the container is started again with its VF", || {
        let now = containers(&bed.pod("by-daemon")?);
        Ok(now.get("main").is_some_and(|now| *now != before["main"]))
    })?;
    assert_eq!(super::ended(&bed.pod("by-daemon")?), (0, 0));
    until("its slices have the VFs again", || Ok(published()?.1 == VFS))?;
    assert!(away > KEPT_FOR || published()?.0 == slices, "the slices are the same ones");
    let timeout = format!("--timeout={}s", super::PATIENT.as_secs());
    cluster.said(&["delete", "pod", "by-daemon", &timeout])?;
    drop(cleared);
    let left = cluster.on(&node, super::LEFT)?;
    assert_eq!(left, "", "files of claims are left");
    Ok(())
}
