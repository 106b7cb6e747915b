//! The container image: an OCI image layout (image-spec 1.1) in one archive, as `podman load`, `skopeo copy oci-archive:` and `docker load` take it.
//!
//! Three layers, of which each changes less often than the one above it: Debian and what a rehearsal needs of it, the board image, Penstock itself.
//! `manifest.json` beside the layout is for `docker load` where Docker keeps images in its own store, and names the same files.

mod layer;
mod tree;

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use penstock_host::files;
use penstock_model::digest::sha256;
use serde_json::{Value, json};
use tar::{Builder, EntryType};

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

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

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
/// When a layer cannot be read or is not what it was, or the file cannot be written.
pub fn write(about: &About, layers: &[TitledLayer<'_>], file: &Path) -> Result<String, Box<dyn Error>> {
    let config = json(&config(about, layers));
    let config_digest = sha256(&config);
    let descriptors: Vec<Value> = layers
        .iter()
        .map(|(layer, what)| {
            let titled = json!({"org.opencontainers.image.title": what});
            described(LAYER, &layer.digest, layer.size, Some(titled))
        })
        .collect();
    let manifest = json(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(CONFIG, &config_digest, config.len() as u64, None),
        "layers": descriptors,
        "annotations": labels(about),
    }));
    let digest = sha256(&manifest);
    // Podman and containerd take the name from the one, and the specification has the tag in the other.
    let name = json!({
        "io.containerd.image.name": about.reference(),
        "org.opencontainers.image.ref.name": tag(&about.version),
    });
    let mut only = described(MANIFEST, &digest, manifest.len() as u64, Some(name));
    only["platform"] = json!({"architecture": "amd64", "os": "linux"});
    let index = json(&json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [only]}));
    let docker = json(&json!([{
        "Config": blob(&config_digest),
        "RepoTags": [about.reference()],
        "Layers": layers.iter().map(|(layer, _)| blob(&layer.digest)).collect::<Vec<_>>(),
    }]));

    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    parts.insert(blob(&config_digest), Part::Text(config));
    parts.insert(blob(&digest), Part::Text(manifest));
    for (layer, _) in layers {
        parts.insert(blob(&layer.digest), Part::File(layer.file.clone()));
    }
    for directory in ["blobs/", "blobs/sha256/"] {
        parts.insert(directory.to_owned(), Part::Directory);
    }
    parts.insert("index.json".to_owned(), Part::Text(index));
    parts.insert("manifest.json".to_owned(), Part::Text(docker));
    parts.insert("oci-layout".to_owned(), Part::Text(json(&json!({"imageLayoutVersion": "1.0.0"}))));
    files::write_atomic_with(file, 0o644, |to| {
        let mut archive = Builder::new(io::BufWriter::new(to));
        for (name, part) in parts {
            part.add(&mut archive, &name, about.date)?;
        }
        archive.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error).map(drop)
    })?;
    Ok(format!("sha256:{digest}"))
}

/// What is in the archive.
enum Part {
    Directory,
    Text(String),
    File(PathBuf),
}

impl Part {
    fn add(&self, archive: &mut Builder<impl io::Write>, name: &str, date: u64) -> io::Result<()> {
        let mut header = layer::blank(date);
        header.set_path(name)?;
        header.set_mode(0o644);
        let contents: Box<dyn Read> = match self {
            Part::Directory => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(0o755);
                Box::new(io::empty())
            }
            Part::Text(text) => {
                header.set_size(text.len() as u64);
                Box::new(text.as_bytes())
            }
            Part::File(file) => {
                let file = files::open(file).map_err(io::Error::other)?;
                header.set_size(file.metadata()?.len());
                Box::new(file)
            }
        };
        header.set_cksum();
        archive.append(&header, contents)
    }
}

/// How containers of it are started.
fn config(about: &About, layers: &[TitledLayer<'_>]) -> Value {
    let created = about.created();
    let diffs: Vec<String> = layers.iter().map(|(layer, _)| format!("sha256:{}", layer.diff)).collect();
    let history: Vec<Value> =
        layers.iter().map(|(_, what)| json!({"created": created, "created_by": what})).collect();
    json!({
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": USER,
            "Env": [format!("PATH={PATH}"), format!("HOME={HOME}"), "LANG=C.UTF-8"],
            "Entrypoint": ["penstock"],
            "Cmd": ["--help"],
            "WorkingDir": DIRECTORY,
            "Labels": labels(about),
        },
        "rootfs": {"type": "layers", "diff_ids": diffs},
        "history": history,
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

fn described(media: &str, digest: &str, size: u64, annotations: Option<Value>) -> Value {
    let mut described = json!({"mediaType": media, "digest": format!("sha256:{digest}"), "size": size});
    if let Some(annotations) = annotations {
        described["annotations"] = annotations;
    }
    described
}

/// The name of what has this SHA-256.
fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

/// A version as a tag, which has no `~`.
fn tag(version: &str) -> String {
    version.replace(|character: char| !character.is_ascii_alphanumeric() && !"._-".contains(character), "-")
}

fn json(value: &Value) -> String {
    format!("{value}\n")
}

#[cfg(test)]
mod tests;
