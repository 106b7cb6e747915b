//! The container image of the DaemonSet: this program and `penstock`, and nothing else. It is made without a container engine, and the same
//! programs give the same bytes.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use penstock_host::files::{self, FileError};
use penstock_oci::{ContainerImage, ContainerLayer, Tar};
use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    arguments,
    elf::{Elf, Processor},
    host::PROGRAM_LIMIT,
    penstock::{Penstock, PenstockError},
};

/// Where both programs are in the image, as the DaemonSet has it.
const DIRECTORY: &str = "usr/bin";

/// Why there is no image.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// This program cannot find out where it is.
    #[error("cannot find out where this program is")]
    Program(#[source] io::Error),
    /// There is no `penstock`.
    #[error(transparent)]
    Penstock(#[from] PenstockError),
    /// It is no program of a processor that images are made for.
    #[error("{0} is no program for x86_64 or aarch64: say with --penstock where the program is")]
    NoProgram(PathBuf),
    /// It does not start in an image that has nothing else.
    #[error(
        "{0} needs libraries, and the image has none: give the penstock of the packages or of `make build`, which needs none, by --penstock"
    )]
    Dynamic(PathBuf),
    /// The two are for different processors.
    #[error("{path} is for {} and this program for {}: an image is for one of them", .found.goarch(), .own.goarch())]
    Processors {
        /// The other one.
        path: PathBuf,
        /// For which it is.
        found: Processor,
        /// For which this one is.
        own: Processor,
    },
}

/// Writes the image, and says its name and digest.
///
/// # Errors
///
/// There is no `penstock` that starts without libraries on this processor; the file cannot be written.
pub fn run(arguments: &arguments::AgentImage) -> Result<(), ImageError> {
    let own = env::current_exe().map_err(ImageError::Program)?;
    let penstock = Penstock::new(&arguments.penstock)?;
    let (own, of_own) = program(&own)?;
    let (penstock, of_penstock) = program(penstock.path())?;
    if of_penstock != of_own {
        let path = arguments.penstock.clone();
        return Err(ImageError::Processors { path, found: of_penstock, own: of_own });
    }
    let image = image(&arguments.name, of_own, &own, &penstock);
    let mut digest = String::new();
    files::write_atomic_with(&arguments.to, 0o644, |to| {
        digest = image.write(io::BufWriter::new(to))?;
        Ok(())
    })?;
    println!("{}: {}@{digest}", arguments.to.display(), arguments.name);
    Ok(())
}

fn program(path: &Path) -> Result<(Vec<u8>, Processor), ImageError> {
    let bytes = files::read_whole(path, PROGRAM_LIMIT)?;
    let elf = Elf::read(&bytes);
    match elf.and_then(|elf| Some((elf.processor?, elf.is_dynamic))) {
        Some((processor, false)) => Ok((bytes, processor)),
        Some((_, true)) => Err(ImageError::Dynamic(path.to_owned())),
        None => Err(ImageError::NoProgram(path.to_owned())),
    }
}

fn image<'a>(reference: &'a str, processor: Processor, own: &[u8], penstock: &[u8]) -> ContainerImage<'a> {
    let mut layer = Tar::default();
    layer.directory("usr");
    layer.directory(DIRECTORY);
    layer.file(&format!("{DIRECTORY}/penstock"), 0o755, penstock);
    layer.file(&format!("{DIRECTORY}/penstock-kubernetes"), 0o755, own);
    let labels = json!({
        "org.opencontainers.image.title": "penstock-kubernetes",
        "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        "org.opencontainers.image.source": env!("CARGO_PKG_REPOSITORY"),
    });
    ContainerImage {
        reference,
        architecture: processor.goarch(),
        date: 0,
        config: json!({"Entrypoint": [format!("/{DIRECTORY}/penstock-kubernetes")], "Labels": labels}),
        more: Value::Null,
        annotations: labels,
        layers: vec![ContainerLayer::packed(layer)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(penstock: &[u8]) -> (Vec<u8>, String) {
        let mut bytes = Vec::new();
        let image = image("localhost/a:1", Processor::Arm64, b"own", penstock);
        let digest = image.write(&mut bytes).unwrap();
        (bytes, digest)
    }

    #[test]
    fn the_same_programs_make_the_same_image_and_others_another() {
        assert_eq!(written(b"one"), written(b"one"));
        assert_ne!(written(b"one").1, written(b"other").1);
        let text = String::from_utf8_lossy(&written(b"one").0).into_owned();
        assert!(text.contains("layer.v1.tar+gzip"), "registries would pack it, and give it another digest");
        for words in
            [r#""/usr/bin/penstock-kubernetes""#, r#""architecture":"arm64""#, r#"["localhost/a:1"]"#]
        {
            assert!(text.contains(words), "{words}");
        }
    }

    #[test]
    fn what_would_not_start_in_the_image_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("text");
        files::write_atomic(&text, "#!/bin/sh\n").unwrap();
        assert!(matches!(program(&text), Err(ImageError::NoProgram(_))));
        assert!(matches!(program(Path::new("/bin/sh")), Err(ImageError::Dynamic(_))));
        assert!(program(&env::current_exe().unwrap()).is_ok());
        let own = Processor::Amd64;
        let error = ImageError::Processors { path: text, found: Processor::Arm64, own }.to_string();
        assert!(
            error.ends_with("for arm64 and this program for amd64: an image is for one of them"),
            "{error}"
        );
    }
}
