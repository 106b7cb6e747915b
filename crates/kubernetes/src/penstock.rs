//! The `penstock` binary, which does everything that is done to the machine.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_host::{
    Command, ProcessError, files,
    process::{self, Background},
};
use penstock_model::{Inventory, inventory::INVENTORY_VERSION};
use serde_json::Value;
use thiserror::Error;

use crate::inventory::ModelInForce;

/// The line that ends an exposition (OpenMetrics 1.0, 4.1).
pub(crate) const END_OF_METRICS: &str = "# EOF\n";
/// A scan of a machine with some hundred VFs takes well under a second.
const SCAN: Duration = Duration::from_secs(60);

/// Why the binary gave no answer.
#[derive(Debug, Error)]
pub enum PenstockError {
    /// There is no such program.
    #[error("there is no penstock at {0}: install it, or say with --penstock where it is")]
    Missing(PathBuf),
    /// Its place cannot be found out.
    #[error("cannot find out where {path} is")]
    Place {
        /// As it was given.
        path: PathBuf,
        /// Why.
        source: files::FileError,
    },
    /// It could not be run, or took too long.
    #[error(transparent)]
    Run(#[from] ProcessError),
    /// It said that something went wrong.
    #[error("{command} ended with {status}: {why}")]
    Failed {
        /// What was run.
        command: String,
        /// Its exit status.
        status: String,
        /// What it said.
        why: String,
    },
    /// It printed something else than was asked for.
    #[error("{command} printed no {what}")]
    Nonsense {
        /// What was run.
        command: String,
        /// What was expected.
        what: &'static str,
        /// Why not.
        source: serde_json::Error,
    },
    /// It is of another version.
    #[error(
        "{command} printed an inventory of version {found}; this program reads up to {INVENTORY_VERSION}: install the penstock of the same release"
    )]
    Version {
        /// What was run.
        command: String,
        /// The version.
        found: u32,
    },
    /// Its metrics were cut off, or are none.
    #[error("{0} printed no OpenMetrics text, or not all of it")]
    NoMetrics(String),
    /// The thread that ran it is gone.
    #[error("the thread that ran {0} ended without an answer")]
    Lost(String),
}

/// The binary.
#[derive(Clone, Debug)]
pub struct Penstock {
    path: PathBuf,
}

impl Penstock {
    /// The binary at `path`; a name without a slash is looked for as other programs are.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn new(path: &Path) -> Result<Penstock, PenstockError> {
        let name = path.to_str().filter(|path| !path.contains('/'));
        let found = match name {
            Some(name) => process::find(name),
            None => Some(path.to_owned()),
        };
        let found = found
            .filter(|path| files::exists(path))
            .ok_or_else(|| PenstockError::Missing(path.to_owned()))?;
        let path = files::canonical(&found).map_err(|source| PenstockError::Place { path: found, source })?;
        Ok(Penstock { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn command<A: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        Command::new(&self.path).args(arguments)
    }

    /// The machine. `model` names its NICs, and is told by its text, since its file may be wrong by now; the way to `peers` counts among what
    /// the machine depends on.
    ///
    /// # Errors
    ///
    /// The binary cannot be run, fails, or prints no inventory of a version that is known.
    pub async fn scan(
        &self,
        model: Option<&ModelInForce>,
        peers: &[IpAddr],
    ) -> Result<Inventory, PenstockError> {
        let named = model.iter().flat_map(|_| ["--model".to_owned(), "-".to_owned()]);
        let peers = peers.iter().flat_map(|peer| ["--peer".to_owned(), peer.to_string()]);
        // Drivers may keep whoever asks them waiting for longer than a Node's devices can go unlooked at.
        let verb = ["scan", "--json", "--without-drivers"].map(str::to_owned);
        let arguments = verb.into_iter().chain(named).chain(peers);
        let mut command = self.command(arguments).deadline(SCAN);
        if let Some(model) = model {
            command = command.input(model.text.clone());
            if files::exists(&model.directory) {
                command = command.current_dir(&model.directory);
            }
        }
        let text = command.to_string();
        let value = run(command).await?;
        let found = value
            .get("version")
            .and_then(Value::as_u64)
            .and_then(|version| version.try_into().ok())
            .unwrap_or(0);
        if found > INVENTORY_VERSION {
            return Err(PenstockError::Version { command: text, found });
        }
        serde_json::from_value(value).map_err(|source| PenstockError::Nonsense {
            command: text,
            what: "inventory",
            source,
        })
    }

    /// Runs a verb with `--json` and gives its document, with `input` on standard input.
    ///
    /// # Errors
    ///
    /// The binary cannot be run, ends with another status than 0, or prints no JSON.
    pub async fn json(
        &self,
        arguments: &[&str],
        input: Vec<u8>,
        within: Duration,
    ) -> Result<Value, PenstockError> {
        let command = self.command(arguments.iter().chain(&["--json"])).input(input).deadline(within);
        run(command).await
    }

    /// The machine's metrics as OpenMetrics text, without verdicts. `model` names its NICs. Blocks, for `within` at most.
    ///
    /// # Errors
    ///
    /// The binary cannot be run, fails, or prints something else.
    pub fn metrics(&self, model: Option<&Path>, within: Duration) -> Result<String, PenstockError> {
        let model = model.map(|model| model.as_os_str().to_owned());
        let command = self.command(std::iter::once("metrics".into()).chain(model)).deadline(within);
        let output = command.run()?;
        let text = command.to_string();
        if !output.status.success() {
            let status = output.status.to_string();
            return Err(PenstockError::Failed {
                command: text,
                status,
                why: output.errors().trim().to_owned(),
            });
        }
        match String::from_utf8(output.stdout) {
            Ok(metrics) if is_whole(&metrics) => Ok(metrics),
            Ok(_) | Err(_) => Err(PenstockError::NoMetrics(text)),
        }
    }

    /// Starts `verify --watch` of a model. It is killed when the first of what this gives is dropped; the other has its lines.
    ///
    /// # Errors
    ///
    /// The binary cannot be run.
    pub fn watch(&self, model: &Path) -> Result<(Background, std::os::unix::net::UnixStream), PenstockError> {
        let arguments = ["verify".into(), model.as_os_str().to_owned(), "--watch".into(), "--json".into()];
        Ok(self.command(arguments).start_connected()?)
    }
}

/// Runs a command on a thread that may wait.
async fn run(command: Command) -> Result<Value, PenstockError> {
    let text = command.to_string();
    let output = tokio::task::spawn_blocking(move || command.run()).await;
    let output = output.map_err(|_| PenstockError::Lost(text.clone()))??;
    let document = serde_json::from_slice(&output.stdout);
    if !output.status.success() {
        let why = document.ok().and_then(|document| errors(&document)).unwrap_or_else(|| output.errors());
        return Err(PenstockError::Failed {
            command: text,
            status: output.status.to_string(),
            why: why.trim().to_owned(),
        });
    }
    document.map_err(|source| PenstockError::Nonsense { command: text, what: "JSON", source })
}

/// The messages of a document's `errors` (docs/json.md), each with its causes, and what is wrong where in the model.
pub fn errors(document: &Value) -> Option<String> {
    let errors = document.get("errors")?.as_array()?;
    let words = errors.iter().filter_map(|error| {
        let message = error.get("message")?.as_str()?;
        let causes =
            error.get("causes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        Some(std::iter::once(message).chain(causes).collect::<Vec<_>>().join(": "))
    });
    let words: Vec<String> = words.collect();
    let diagnostics = document.get("diagnostics").and_then(Value::as_array).into_iter().flatten();
    let diagnostics = diagnostics.filter(|one| one["severity"] != "warning").filter_map(diagnostic);
    let all: Vec<String> = words.into_iter().chain(diagnostics).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// A message about the model, with its place and what to do, as `penstock check` has them.
fn diagnostic(one: &Value) -> Option<String> {
    let message = one.get("message")?.as_str()?;
    let number = |key: &str| one.get(key).and_then(Value::as_u64).filter(|number| *number != 0);
    let place = match (number("line"), number("column")) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: "),
        (Some(line), None) => format!("line {line}: "),
        (None, _) => String::new(),
    };
    let help = one.get("help").and_then(Value::as_str).map(|help| format!(" ({help})"));
    Some(format!("{place}{message}{}", help.unwrap_or_default()))
}

/// Whether a text is a whole exposition.
pub(crate) fn is_whole(text: &str) -> bool {
    text == END_OF_METRICS || text.ends_with("\n# EOF\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_is_told_with_its_causes_and_lines() {
        let document = serde_json::json!({
            "kind": "error", "errors": [{"message": "cannot scan", "causes": ["no sysfs"], "hints": ["mount it"]}],
            "diagnostics": [
                {"severity": "warning", "line": 2, "column": 1, "message": "odd"},
                {"severity": "error", "line": 3, "column": 9, "message": "unknown key `x`", "help": "did you mean `y`?"},
            ],
        });
        let wanted = "cannot scan: no sysfs; line 3, column 9: unknown key `x` (did you mean `y`?)";
        assert_eq!(errors(&document).unwrap(), wanted);
        assert_eq!(errors(&serde_json::json!({"errors": []})), None);
        assert_eq!(errors(&serde_json::json!(null)), None);
    }

    #[test]
    fn a_binary_that_is_not_there_is_said_with_what_to_do() {
        let error = Penstock::new(Path::new("/nonexistent/penstock")).unwrap_err().to_string();
        assert!(error.contains("--penstock"), "{error}");
    }
}
