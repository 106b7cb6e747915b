//! What is written here, as the program `tar` reads it.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    io::{self, Write},
    process::{Command, Stdio},
};

use penstock_model::digest::sha256;
use penstock_oci::{ContainerImage, ContainerLayer, Tar};
use serde_json::{Value, json};

/// Has `tar` read an archive; what it prints.
fn tar(arguments: &[&str], archive: &[u8]) -> String {
    let mut child =
        Command::new("tar").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(archive).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_archive_has_files_directories_and_links() {
    let mut archive = Tar::default();
    archive.directory("bin");
    archive.file("bin/a", 0o755, &[b'x'; 1000]);
    archive.link("bin/b", "a");
    let text = tar(&["-tvf", "-"], &archive.finish());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with("bin/"), "{text}");
    assert!(lines[1].starts_with("-rwxr-xr-x") && lines[1].contains(" 1000 "), "{text}");
    assert!(lines[2].starts_with("lrwxrwxrwx") && lines[2].ends_with("bin/b -> a"), "{text}");
}

/// An image and the digest of its manifest.
fn image(size: impl Fn(u64) -> u64) -> io::Result<(Vec<u8>, String)> {
    let mut layer = Tar::default();
    layer.file("program", 0o755, b"no program");
    let layer = ContainerLayer::of(layer);
    let layer = ContainerLayer { size: size(layer.size), title: Some("a program"), ..layer };
    let image = ContainerImage {
        reference: "localhost/example:1",
        architecture: "amd64",
        date: 7,
        config: json!({"Cmd": ["/program"]}),
        more: json!({"created": "today"}),
        annotations: json!({"org.opencontainers.image.title": "example"}),
        layers: vec![layer],
    };
    let mut bytes = Vec::new();
    let digest = image.write(&mut bytes)?;
    Ok((bytes, digest))
}

#[test]
fn every_blob_of_an_image_is_there_under_its_digest() {
    let (image, digest) = image(|size| size).unwrap();
    let directory = tempfile::tempdir().unwrap();
    tar(&["-xf", "-", "-C", directory.path().to_str().unwrap()], &image);
    let read = |path: &str| fs::read(directory.path().join(path)).unwrap();
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = read(&format!("blobs/sha256/{digest}"));
        assert_eq!((sha256(&bytes).as_str(), json!(bytes.len())), (digest, descriptor["size"].clone()));
        bytes
    };
    let parse = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
    let index = parse(read("index.json"));
    assert_eq!(index["manifests"][0]["digest"], digest.as_str());
    let manifest = parse(blob(&index["manifests"][0]));
    let config = parse(blob(&manifest["config"]));
    let layer = blob(&manifest["layers"][0]);
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
    assert_eq!((&config["config"]["Cmd"][0], &config["created"]), (&json!("/program"), &json!("today")));
    let docker = parse(read("manifest.json"));
    assert_eq!(read(docker[0]["Layers"][0].as_str().unwrap()), layer);
    assert_eq!(docker[0]["RepoTags"][0], "localhost/example:1");
    assert_eq!(image, self::image(|size| size).unwrap().0, "the same bytes each time");
}

#[test]
fn a_layer_that_is_not_as_long_as_it_says_makes_no_image() {
    let why = image(|size| size - 1).unwrap_err().to_string();
    assert!(why.contains("has more than"), "{why}");
    let why = image(|size| size + 1).unwrap_err().to_string();
    assert!(why.contains("has fewer than"), "{why}");
}
