//! The controller as the Deployment of `manifests --controller` has it: what the API server says of its pods, and its program as kubelet starts it.

use std::{
    fs,
    process::{Command, Stdio},
};

use penstock_testkit::{
    binary,
    needs::{self, Lack},
};
use serde_json::{Value, json};

use super::{fleet::Fleet, program};

/// What it takes to be kubelet and the container runtime.
pub fn lacking() -> Option<Lack> {
    needs::root().or_else(|| needs::programs(&["unshare", "sh", "mount", "cp", "setpriv", "strip"]))
}

/// Gives a program the place of a container's: its service account's files, no other user than the pod's, and no capability.
const CONTAINER: &str = r#"umask 022
account=/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /run && mkdir -p "$account" && cp "$1" /run/program && cp "$2" "$account/token" && cp "$3" "$account/ca.crt" || exit
printf %s "$4" > "$account/namespace" && chmod 444 "$account"/* && chown "$5:$6" "$account/token" || exit
user=$5 group=$6
shift 6
exec setpriv --reuid="$user" --regid="$group" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs /run/program "$@""#;

pub fn runs_in_a_pod() {
    let mut fleet = Fleet::new("deployed", 1);
    let printed = program().args(["manifests", "--controller", "localhost/penstock:test"]).output().unwrap();
    assert!(printed.status.success());
    // kubectl validates strictly: no key is unknown to the API server.
    fleet.plane.must(&["apply", "--filename", "-"], &String::from_utf8(printed.stdout).unwrap());
    let deployment = fleet.plane.get("/apis/apps/v1/namespaces/penstock/deployments/penstock-controller");
    fleet.plane.must(&["delete", "deployment", "penstock-controller", "--namespace=penstock"], "");
    let pod = &deployment["spec"]["template"]["spec"];

    // The strictest of the Pod Security Standards takes it.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted",
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let api = fleet.plane.api();
    api.must("POST", "/api/v1/namespaces", Some(("application/json", &namespace)));
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "controller"}, "spec": pod});
    let pods = "/api/v1/namespaces/restricted/pods?dryRun=All";
    api.must("POST", pods, Some(("application/json", &object)));
    let mut privileged = object;
    privileged["spec"]["containers"][0]["securityContext"]["capabilities"] = Value::Null;
    let refused = api.request("POST", pods, Some(("application/json", &privileged))).unwrap();
    assert!(!refused.is_success() && refused.text.contains("PodSecurity"), "{refused:?}");
    api.must("DELETE", "/api/v1/namespaces/restricted", None);

    let context = &pod["securityContext"];
    let (user, group) = (context["runAsUser"].to_string(), context["runAsGroup"].to_string());
    let line = pod["containers"][0]["command"].as_array().unwrap();
    let line = line.iter().map(|word| word.as_str().unwrap());
    let config = fs::read_to_string(fleet.directory.path().join("kubeconfig")).unwrap();
    let server = config.split_once("server: https://").unwrap().1.lines().next().unwrap();
    let (host, port) = server.rsplit_once(':').unwrap();
    let token = fleet.at("deployed-0", "token");
    let created = fleet.plane.must(&["create", "token", "penstock-controller", "--namespace=penstock"], "");
    fs::write(&token, created.trim()).unwrap();
    let own = fleet.at("deployed-0", "program");
    binary::strip(env!("CARGO_BIN_EXE_penstock-kubernetes").as_ref(), &own).unwrap();
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation=private", "sh", "-c", CONTAINER, "container"]);
    container
        .arg(own)
        .arg(token)
        .arg(fleet.plane.path("ca.crt"))
        .args(["penstock", &user, &group])
        .args(line.skip(1));
    container.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
    container.stdin(Stdio::null()).stdout(fleet.log()).stderr(fleet.log());
    fleet.controller = Some(container.spawn().unwrap());
    fleet.start_agent("deployed-0");
    fleet.machine(json!({"drain": {"mode": "node"}}));
    fleet.until("the node has the model", |status| status["ready"] == 1);
}
