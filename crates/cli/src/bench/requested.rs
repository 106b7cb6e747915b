//! A run as it was asked for, kept in its directory: with it, it can be taken up again.

use std::path::Path;

use penstock_host::files;
use serde::{Serialize, de::DeserializeOwned};

use crate::failure::{Failure, OrBadInput, Status};

/// More is no such file.
const LIMIT: usize = 1 << 20;

/// What is kept of a run of one kind.
pub trait Requested: Serialize + DeserializeOwned {
    /// The file in a run directory that holds it.
    const FILE: &'static str;

    /// SHA-256 of the model file.
    fn model(&self) -> &str;

    /// Keeps it in a run directory.
    ///
    /// # Errors
    ///
    /// When it has no form in JSON, or the file cannot be written.
    fn keep(&self, directory: &Path) -> Result<(), Failure> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(files::write_atomic(directory.join(Self::FILE), text)?)
    }

    /// Whether the run in `directory` is of this kind.
    fn is_in(directory: &Path) -> bool {
        files::exists(directory.join(Self::FILE))
    }

    /// What the run in `directory` was asked for; refused when that was about another model file, `model` being the hash of
    /// this one.
    ///
    /// # Errors
    ///
    /// `Status::BadInput` when the file cannot be read or does not say what the run was; `Status::Refused` when that was about another model
    /// file.
    fn of(directory: &Path, model: &str) -> Result<Self, Failure> {
        let path = directory.join(Self::FILE);
        let (bytes, _) = files::read_at_most(&path, LIMIT)
            .or_bad_input()
            .map_err(|failure| failure.hint("name the directory of a run of `penstock measure`"))?;
        let asked: Self = serde_json::from_slice(&bytes).map_err(|error| {
            let text = format!("{} does not say what the run was: {error}", path.display());
            Failure::new(Status::BadInput, text)
        })?;
        if asked.model() != model {
            let text = format!(
                "the run in {} was of another model: the file had the SHA-256 {}, and this one has {model}",
                directory.display(),
                asked.model()
            );
            return Err(Failure::new(Status::Refused, text).hint(
                "its model is kept there as model.yaml; what was changed since is measured in a new run",
            ));
        }
        Ok(asked)
    }
}
