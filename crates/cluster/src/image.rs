//! The one container image of a cluster, made without a registry: busybox, linked statically, under the names of its commands. Sandboxes
//! and containers are made of it.

use penstock_oci::{ContainerImage, ContainerLayer, Tar};
use serde_json::{Value, json};

/// The image's name, as a pod names it.
pub const NAME: &str = "localhost/penstock:1";

/// What the commands of busybox are called that a container is given.
const COMMANDS: [&str; 24] = [
    "sh", "sleep", "cat", "echo", "ls", "ip", "ping", "ps", "env", "id", "grep", "head", "hostname", "kill",
    "ln", "mkdir", "mount", "nc", "rm", "sed", "test", "true", "false", "wget",
];

/// The image as a tar archive that `ctr images import` reads. Without a command its containers, sandboxes among them, sleep until they are
/// told to end: the first process of a namespace ends on SIGTERM only if it has a handler (pid_namespaces(7)).
pub fn archive(busybox: &[u8]) -> Vec<u8> {
    let command = "trap 'exit 0' TERM INT; sleep 2147483647 & wait";
    let config = json!({"Env": ["PATH=/bin"], "Cmd": ["/bin/sh", "-c", command]});
    let image = ContainerImage {
        reference: NAME,
        architecture: "amd64",
        date: 0,
        config,
        more: Value::Null,
        annotations: Value::Null,
        layers: vec![ContainerLayer::of(layer(busybox))],
    };
    let mut bytes = Vec::new();
    image.write(&mut bytes).expect("memory takes an image of what is in memory");
    bytes
}

fn layer(busybox: &[u8]) -> Tar {
    let mut layer = Tar::default();
    for directory in ["bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var"] {
        layer.directory(directory);
    }
    layer.file("bin/busybox", 0o755, busybox);
    for command in COMMANDS {
        layer.link(&format!("bin/{command}"), "busybox");
    }
    layer.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
    layer.file("etc/group", 0o644, b"root:x:0:\n");
    layer
}
