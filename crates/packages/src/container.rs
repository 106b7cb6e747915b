//! The container image. Three layers, of which each changes less often than the one above it: Debian and what a rehearsal needs of it, the board
//! image, Penstock itself.

mod layer;
mod tree;

use std::{
    error::Error,
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use penstock_host::files::{self, FileError};
use penstock_oci::{ContainerImage, ContainerLayer};
use serde_json::{Value, json};

pub use self::{
    layer::{ImageLayer, write as write_layer},
    tree::Files,
};

/// The user who runs everything in a container, and that user's group; as numbers, so that Kubernetes can tell that it is not root.
pub const USER: &str = "1000:1000";
/// That user's home directory.
pub const HOME: &str = "/home/penstock";
/// Where models lie, and where runs are written to.
pub const DIRECTORY: &str = "/work";
/// Where a container looks for programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Its name without a version.
const NAME: &str = "localhost/penstock";

/// What an image says of itself.
#[derive(Clone, Debug)]
pub struct About {
    /// The version of Penstock.
    pub version: String,
    /// The commit, whole.
    pub revision: String,
    /// When the commit was made, in seconds since 1970.
    pub date: u64,
}

impl About {
    /// When the commit was made, as OCI has it.
    fn created(&self) -> String {
        humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(self.date)).to_string()
    }

    /// What the image is called before anybody gives it another name.
    fn reference(&self) -> String {
        format!("{NAME}:{}", tag(&self.version))
    }
}

/// A layer, and what is in it in a few words.
pub type TitledLayer<'a> = (&'a ImageLayer, &'a str);

/// Writes an image of these layers, the lowest first; the digest of its manifest.
///
/// # Errors
///
/// When a layer cannot be read or has another size than it had, or the file cannot be written.
pub fn write(about: &About, layers: &[TitledLayer<'_>], file: &Path) -> Result<String, Box<dyn Error>> {
    let created = about.created();
    let history: Vec<Value> =
        layers.iter().map(|(_, what)| json!({"created": created, "created_by": what})).collect();
    let opened = layers.iter().map(|(layer, what)| {
        Ok(ContainerLayer {
            contents: Box::new(files::open(&layer.file)?),
            size: layer.size,
            digest: layer.digest.clone(),
            diff: layer.diff.clone(),
            title: Some(what),
        })
    });
    let image = ContainerImage {
        reference: &about.reference(),
        architecture: "amd64",
        date: about.date,
        config: config(about),
        more: json!({"created": created, "history": history}),
        annotations: labels(about),
        layers: opened.collect::<Result<_, FileError>>()?,
    };
    let mut digest = String::new();
    files::write_atomic_with(file, 0o644, |to| {
        digest = image.write(io::BufWriter::new(to))?;
        Ok(())
    })?;
    Ok(digest)
}

/// How containers of it are started.
fn config(about: &About) -> Value {
    json!({
        "User": USER,
        "Env": [format!("PATH={PATH}"), format!("HOME={HOME}"), "LANG=C.UTF-8"],
        "Entrypoint": ["penstock"],
        "Cmd": ["--help"],
        "WorkingDir": DIRECTORY,
        "Labels": labels(about),
    })
}

/// What registries and scanners read (image-spec, annotations).
fn labels(about: &About) -> Value {
    json!({
        "org.opencontainers.image.title": "penstock",
        "org.opencontainers.image.description": "Describe a machine with SR-IOV in one file; rehearse it without privileges",
        "org.opencontainers.image.version": about.version,
        "org.opencontainers.image.revision": about.revision,
        "org.opencontainers.image.created": about.created(),
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        "org.opencontainers.image.source": env!("CARGO_PKG_REPOSITORY"),
    })
}

/// A version as a tag, which has no `~`.
fn tag(version: &str) -> String {
    version.replace(|character: char| !character.is_ascii_alphanumeric() && !"._-".contains(character), "-")
}

#[cfg(test)]
mod tests;
