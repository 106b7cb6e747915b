//! The container image that the DaemonSet and the Deployment run, on nodes.

use std::{path::PathBuf, process::Command};

use penstock_testkit::{
    binary::{self, Run},
    trials::{Failed, Outcome},
};

use super::{Bed, program};

/// Its name.
pub const IMAGE: &str = "localhost/penstock-kubernetes:test";

/// Makes it of the programs that are tested, and has a node's containerd take it.
pub fn put(bed: &Bed, node: &str) -> Outcome {
    let archive = bed.cluster.at().join("image.tar");
    let penstock = binary::path().ok_or("no penstock is named")?;
    let own = own(bed)?;
    let made: Run = Command::new(&own)
        .args(["image", "--name", IMAGE, "--to"])
        .arg(&archive)
        .arg("--penstock")
        .arg(penstock)
        .output()?
        .into();
    made.ended_with(0)?;
    assert!(made.stdout.contains(&format!("{IMAGE}@sha256:")), "{}", made.stdout);
    // Unpacked once, where kubelet's containers are made: another snapshotter would take the room of a container.
    bed.cluster.on_with(node, "ctr -n k8s.io images import --snapshotter native -", &archive)?;
    Ok(())
}

/// What `manifests` prints with these words.
pub fn manifests(bed: &Bed, words: &[&str]) -> Result<String, Failed> {
    let own = own(bed)?;
    let printed: Run = Command::new(&own).arg("manifests").args(words).output()?.into();
    printed.ended_with(0)?;
    Ok(printed.stdout)
}

/// The program without what only debuggers read.
fn own(bed: &Bed) -> Result<PathBuf, Failed> {
    let own = bed.cluster.at().join("penstock-kubernetes");
    binary::strip(&program(), &own)?;
    Ok(own)
}
