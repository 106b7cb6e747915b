//! Container images as one file, made without a registry or a container engine: an OCI image layout (image-spec 1.1) in an archive, as
//! `skopeo copy oci-archive:`, `podman load`, `ctr images import` and `docker load` take it. The same layers give the same bytes.
//!
//! `manifest.json` beside the layout is for `docker load` where Docker keeps images in its own store, and names the same files.

mod tar;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use ::tar::{Builder, EntryType};
use flate2::{Compression, write::GzEncoder};
use penstock_model::digest::sha256;
use serde_json::{Value, json};

pub use self::tar::{Tar, blank};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image.
pub struct ContainerImage<'a> {
    /// What it is called: a name with a tag, `localhost/penstock:1`.
    pub reference: &'a str,
    /// The processor as Go calls it (`GOARCH`): `amd64`, `arm64`.
    pub architecture: &'a str,
    /// When the files of the archive were changed, in seconds since 1970.
    pub date: u64,
    /// How its containers run: the member `config` of an image configuration.
    pub config: Value,
    /// Members of the image configuration beside those that follow from the layers.
    pub more: Value,
    /// The annotations of its manifest.
    pub annotations: Value,
    /// Its layers, the lowest first.
    pub layers: Vec<ContainerLayer<'a>>,
}

/// A layer of an image.
pub struct ContainerLayer<'a> {
    /// Its bytes.
    pub contents: Box<dyn Read + 'a>,
    /// How many.
    pub size: u64,
    /// The SHA-256 of them.
    pub digest: String,
    /// The SHA-256 of what they are unpacked; the same where they are not compressed with gzip.
    pub diff: String,
    /// What is in it, in a few words.
    pub title: Option<&'a str>,
}

impl ContainerLayer<'_> {
    /// An archive as a layer.
    pub fn of(archive: Tar) -> ContainerLayer<'static> {
        let bytes = archive.finish();
        let digest = sha256(&bytes);
        let (size, diff) = (bytes.len() as u64, digest.clone());
        ContainerLayer { contents: Box::new(io::Cursor::new(bytes)), size, digest, diff, title: None }
    }

    /// An archive as a layer that is compressed with gzip, as registries have them: what pushes an image as it is keeps its digest.
    pub fn packed(archive: Tar) -> ContainerLayer<'static> {
        let archive = archive.finish();
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        let bytes =
            packed.write_all(&archive).and_then(|()| packed.finish()).expect("memory takes all of it");
        let (size, digest) = (bytes.len() as u64, sha256(&bytes));
        let contents = Box::new(io::Cursor::new(bytes));
        ContainerLayer { contents, size, digest, diff: sha256(&archive), title: None }
    }

    fn descriptor(&self) -> Value {
        let packed = if self.digest == self.diff { "" } else { "+gzip" };
        let mut descriptor = descriptor(&format!("{LAYER}{packed}"), &self.digest, self.size);
        if let Some(title) = self.title {
            descriptor["annotations"] = json!({"org.opencontainers.image.title": title});
        }
        descriptor
    }
}

impl ContainerImage<'_> {
    /// Writes it; the digest of its manifest, which names the image for ever.
    ///
    /// # Errors
    ///
    /// When a layer cannot be read, has another size than it says, or nothing more can be written.
    pub fn write(self, to: impl Write) -> io::Result<String> {
        let config = text(&self.configuration());
        let config_digest = sha256(&config);
        let layers: Vec<Value> = self.layers.iter().map(ContainerLayer::descriptor).collect();
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config_digest, config.len() as u64),
            "layers": layers,
        });
        if !self.annotations.is_null() {
            manifest["annotations"] = self.annotations;
        }
        let manifest = text(&manifest);
        let digest = sha256(&manifest);
        let mut only = descriptor(MANIFEST, &digest, manifest.len() as u64);
        // Podman and containerd take the name from the one, and the specification has the tag in the other.
        only["annotations"] = json!({
            "io.containerd.image.name": self.reference,
            "org.opencontainers.image.ref.name": self.reference.rsplit(':').next(),
        });
        only["platform"] = json!({"architecture": self.architecture, "os": "linux"});
        let index = text(&json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [only]}));
        let docker = text(&json!([{
            "Config": blob(&config_digest),
            "RepoTags": [self.reference],
            "Layers": self.layers.iter().map(|layer| blob(&layer.digest)).collect::<Vec<_>>(),
        }]));

        let mut parts: BTreeMap<String, Part<'_>> = BTreeMap::new();
        for layer in self.layers {
            parts.insert(blob(&layer.digest), Part::Layer(layer));
        }
        parts.insert(blob(&config_digest), Part::Text(config));
        parts.insert(blob(&digest), Part::Text(manifest));
        for directory in ["blobs/", "blobs/sha256/"] {
            parts.insert(directory.to_owned(), Part::Directory);
        }
        parts.insert("index.json".to_owned(), Part::Text(index));
        parts.insert("manifest.json".to_owned(), Part::Text(docker));
        parts.insert("oci-layout".to_owned(), Part::Text(text(&json!({"imageLayoutVersion": "1.0.0"}))));
        let mut archive = Builder::new(to);
        for (name, part) in parts {
            part.add(&mut archive, &name, self.date)?;
        }
        archive.into_inner()?.flush()?;
        Ok(format!("sha256:{digest}"))
    }

    fn configuration(&self) -> Value {
        let diffs: Vec<String> = self.layers.iter().map(|layer| format!("sha256:{}", layer.diff)).collect();
        let mut configuration = json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": diffs},
        });
        for (key, value) in self.more.as_object().into_iter().flatten() {
            configuration[key] = value.clone();
        }
        configuration
    }
}

/// What is in the archive.
enum Part<'a> {
    Directory,
    Text(String),
    Layer(ContainerLayer<'a>),
}

impl Part<'_> {
    fn add(self, archive: &mut Builder<impl Write>, name: &str, date: u64) -> io::Result<()> {
        let mut header = blank(date);
        header.set_path(name)?;
        header.set_mode(0o644);
        let (size, mut contents): (u64, Box<dyn Read + '_>) = match self {
            Part::Directory => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(0o755);
                (0, Box::new(io::empty()))
            }
            Part::Text(text) => (text.len() as u64, Box::new(io::Cursor::new(text))),
            Part::Layer(layer) => (layer.size, layer.contents),
        };
        header.set_size(size);
        header.set_cksum();
        // The size is in the header before the contents: with more or fewer of them nothing behind is found.
        let mut limited = (&mut contents).take(size);
        archive.append(&header, &mut limited)?;
        let (missing, more) = (limited.limit(), contents.read(&mut [0])?);
        match (missing, more) {
            (0, 0) => Ok(()),
            (0, _) => Err(io::Error::other(format!("{name} has more than {size} bytes"))),
            _ => Err(io::Error::other(format!("{name} has fewer than {size} bytes"))),
        }
    }
}

fn descriptor(media: &str, digest: &str, size: u64) -> Value {
    json!({"mediaType": media, "digest": format!("sha256:{digest}"), "size": size})
}

/// The name of what has this SHA-256.
fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

fn text(value: &Value) -> String {
    format!("{value}\n")
}
