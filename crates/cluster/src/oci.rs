//! The one container image of a cluster, made without a registry: busybox, linked statically, under the names of its commands. Sandboxes
//! and containers are made of it. Its layout is that of the OCI Image Format Specification, section "OCI Image Layout".

use penstock_model::digest::sha256;
use serde_json::{Value, json};

use crate::tar::Tar;

/// The image's name, as a pod names it.
pub const NAME: &str = "localhost/penstock:1";

/// What the commands of busybox are called that a container is given.
const COMMANDS: [&str; 24] = [
    "sh", "sleep", "cat", "echo", "ls", "ip", "ping", "ps", "env", "id", "grep", "head", "hostname", "kill",
    "ln", "mkdir", "mount", "nc", "rm", "sed", "test", "true", "false", "wget",
];

/// The image as a tar archive that `ctr images import` reads. Without a command its containers, sandboxes among them, sleep until they are
/// told to end: the first process of a namespace ends on SIGTERM only if it has a handler (pid_namespaces(7)).
pub fn image(busybox: &[u8]) -> Vec<u8> {
    let layer = layer(busybox);
    let diff = format!("sha256:{}", sha256(&layer));
    let command = "trap 'exit 0' TERM INT; sleep 2147483647 & wait";
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh", "-c", command]},
        "rootfs": {"type": "layers", "diff_ids": [diff]},
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut named = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    named["annotations"] =
        json!({"io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": NAME});
    let index = json!({"schemaVersion": 2, "manifests": [named]});
    let mut archive = Tar::default();
    archive.file("oci-layout", 0o644, json!({"imageLayoutVersion": "1.0.0"}).to_string().as_bytes());
    archive.file("index.json", 0o644, index.to_string().as_bytes());
    archive.directory("blobs");
    archive.directory("blobs/sha256");
    for blob in [&config, &manifest, &layer] {
        archive.file(&format!("blobs/sha256/{}", sha256(blob)), 0o644, blob);
    }
    archive.finish()
}

fn layer(busybox: &[u8]) -> Vec<u8> {
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
    layer.finish()
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{}", sha256(bytes)), "size": bytes.len()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_host::Command;

    #[test]
    fn every_blob_is_there_under_its_digest() {
        let image = image(b"no program");
        let directory = tempfile::tempdir().unwrap();
        let unpack = Command::new("tar").args(["-xf", "-", "-C"]).arg(directory.path());
        unpack.input(image.clone()).succeed().unwrap();
        let read = |path: &str| penstock_host::files::read(directory.path().join(path)).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = read(&format!("blobs/sha256/{digest}"));
            assert_eq!((sha256(&bytes).as_str(), json!(bytes.len())), (digest, descriptor["size"].clone()));
            bytes
        };
        let parse = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
        let index = parse(read("index.json"));
        let manifest = parse(blob(&index["manifests"][0]));
        let config = parse(blob(&manifest["config"]));
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], json!(format!("sha256:{}", sha256(&layer))));
        assert_eq!(image, super::image(b"no program"), "the same bytes each time");
    }
}
