//! The texts that the programs of a cluster are configured by. Pure: the same cluster always has the same texts.
//!
//! Whatever is JSON here is also YAML, which is what those programs read.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use penstock_board::{FORWARD_ADDRESS, FORWARD_PORT};
use serde_json::{Value, json};

use crate::image;

/// Where a node has the disk of [`NodeDisk`](crate::NodeDisk).
pub const ON_NODE: &str = "/opt/kubernetes";

/// The script there that starts and stops kubelet.
pub const KUBELET: &str = "/opt/kubernetes/kubelet";

/// containerd's client there.
pub const CTR: &str = "/opt/kubernetes/bin/ctr";

/// Who signs tokens of service accounts; nobody looks there.
pub const ISSUER: &str = "https://penstock.invalid";

/// The addresses of services. Nobody is at any but the first, [`API_SERVICE`].
pub const SERVICES: &str = "10.96.0.0/24";

/// The service `kubernetes`, of which kubelet tells pods (`KUBERNETES_SERVICE_HOST`): the API server gives it the first address of [`SERVICES`] and
/// the port 443.
pub const API_SERVICE: &str = "10.96.0.1";

/// The addresses of a node's pods: each node has the same ones, since no pod reaches another node.
const PODS: &str = "10.99.0.0/24";

/// Where containerd listens on a node.
const CONTAINERD_SOCKET: &str = "unix:///run/containerd/containerd.sock";

/// The account of a node, as the API server's node authorizer wants it (Kubernetes, "Using Node Authorization").
pub fn node_user(node: &str) -> String {
    format!("system:node:{node}")
}

/// What the API server reads its static tokens from (`--token-auth-file`): a line `token,user,uid,"group"` each.
pub fn tokens(admin: &str, nodes: &[(String, String)]) -> String {
    let mut text = format!("{admin},admin,admin,\"system:masters\"\n");
    for (node, token) in nodes {
        let user = node_user(node);
        text.push_str(&format!("{token},{user},{user},\"system:nodes\"\n"));
    }
    text
}

/// The URL of the API server on this machine.
pub fn server_here(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

/// The URL of the API server on a node.
pub fn server_on_node() -> String {
    format!("https://{FORWARD_ADDRESS}:{FORWARD_PORT}")
}

/// A kubeconfig (`client.authentication` by token) that trusts the certificate authority in `ca`, PEM.
pub fn kubeconfig(cluster: &str, server: &str, ca: &str, user: &str, token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": BASE64_STANDARD.encode(ca)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    });
    lines(&config)
}

/// kubelet's configuration (`kubelet.config.k8s.io/v1beta1`). A node has no swap to speak of, no iptables rules, no DNS, and a root file
/// system in memory whose space nobody accounts for.
pub fn kubelet() -> String {
    lines(&json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": false}},
        "cgroupDriver": "cgroupfs",
        // Without one each pod gets an Event (`MissingClusterDNS`) that frightens newcomers. Nobody listens there in a pod, so that a look-up
        // fails at once.
        "clusterDNS": ["127.0.0.1"],
        "containerRuntimeEndpoint": CONTAINERD_SOCKET,
        "enforceNodeAllocatable": ["none"],
        "evictionHard": {},
        "failSwapOn": false,
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": false,
        "makeIPTablesUtilChains": false,
        "registerWithTaints": [],
        "resolvConf": "",
        "syncFrequency": "10s",
    }))
}

/// containerd's configuration (version 2, `docs/cri/config.md`): crun, since a runtime in Go costs ten times as much under software
/// emulation; the native snapshotter, since the board's root is an overlay already; CDI from its usual directories.
pub fn containerd() -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  sandbox_image = "{image}"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{ON_NODE}/cni"
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
  default_runtime_name = "crun"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
  BinaryName = "{ON_NODE}/bin/crun"
  SystemdCgroup = false
"#,
        image = image::NAME
    )
}

/// The network of pods of a node: a bridge that leads to the API server ([`services`]) and nowhere else.
pub fn network() -> String {
    lines(&json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            // The bridge gets the first address, by which pods reach services, and the node forwards.
            "isGateway": true,
            "ipam": {"type": "host-local", "subnet": PODS, "routes": [{"dst": SERVICES}]},
        }],
    }))
}

/// What kube-proxy would do for the one service that there is, as nft(8) reads it: connections to it, of pods and of the node itself, go the
/// node's own way to the API server, under the node's address.
pub fn services() -> String {
    let to_api_server =
        format!("ip daddr {API_SERVICE} tcp dport 443 dnat to {FORWARD_ADDRESS}:{FORWARD_PORT}");
    format!(
        "table ip services {{
    chain prerouting {{
        type nat hook prerouting priority dstnat
        {to_api_server}
    }}
    chain output {{
        type nat hook output priority -100
        {to_api_server}
    }}
    chain postrouting {{
        type nat hook postrouting priority srcnat
        ip saddr {PODS} ip daddr {FORWARD_ADDRESS} masquerade
    }}
}}
"
    )
}

fn lines(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_trusts_one_authority_and_has_one_token() {
        let text = kubeconfig("c", &server_here(40001), "PEM\n", "admin", "secret");
        let config: Value = serde_json::from_str(&text).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://127.0.0.1:40001");
        assert_eq!(cluster["certificate-authority-data"], "UEVNCg==");
        assert_eq!(config["users"][0]["user"]["token"], "secret");
        assert!(!text.contains("insecure"));
        assert_eq!(server_on_node(), "https://10.0.2.100:6443");
    }

    #[test]
    fn each_node_is_itself_and_only_the_administrator_is_master() {
        let nodes = [("a-1".to_owned(), "t1".to_owned()), ("a-2".to_owned(), "t2".to_owned())];
        assert_eq!(
            tokens("t0", &nodes),
            "t0,admin,admin,\"system:masters\"\n\
             t1,system:node:a-1,system:node:a-1,\"system:nodes\"\n\
             t2,system:node:a-2,system:node:a-2,\"system:nodes\"\n"
        );
    }

    #[test]
    fn a_node_lets_nobody_in_without_a_name_has_devices_of_cdi_and_leads_pods_to_the_api_server() {
        let kubelet: Value = serde_json::from_str(&kubelet()).unwrap();
        assert_eq!(kubelet["authentication"]["anonymous"]["enabled"], false);
        assert!(containerd().contains("enable_cdi = true") && containerd().contains(image::NAME));
        let network: Value = serde_json::from_str(&network()).unwrap();
        assert_eq!(network["plugins"][0]["type"], "bridge");
        // What pods are told is where they are led, and from there where nodes go.
        assert_eq!(network["plugins"][0]["ipam"]["routes"][0]["dst"], "10.96.0.0/24");
        let to_api_server = "ip daddr 10.96.0.1 tcp dport 443 dnat to 10.0.2.100:6443\n";
        assert_eq!(services().matches(to_api_server).count(), 2, "from pods, and from the node");
        assert!(services().contains("ip saddr 10.99.0.0/24 ip daddr 10.0.2.100 masquerade\n"));
    }
}
