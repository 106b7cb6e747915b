//! The machine as it is now, looked at again when something happens.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use penstock_host::{Root, boot, files, uevent::DeviceEvents};
use penstock_model::{Diagnostics, Model, Source};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{sync::Notify, time};

use crate::{
    devices::KnownNics,
    log::{self, LastingTrouble},
};

/// The largest model file that is read, as `penstock` has it.
const MODEL_LIMIT: usize = 1 << 20;

/// Events come in bursts: what came is looked at when so long nothing more has come...
const QUIET: Duration = Duration::from_millis(200);

/// ...or so long after the first.
const LONGEST: Duration = Duration::from_secs(1);

/// Why a model cannot be used.
#[derive(Debug, Error)]
pub enum ModelError {
    /// It cannot be read.
    #[error("cannot read the model {path}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: files::FileError,
    },
    /// It is too large, or no text.
    #[error("the model {path} is {what}")]
    NoText {
        /// Which.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// It is wrong.
    #[error("the model {path} is wrong, `penstock check {path}` shows where: {why}")]
    Wrong {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// A model as it was when it was good, whatever becomes of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInForce {
    /// What it says.
    pub model: Model,
    /// The file's text.
    pub text: String,
    /// The directory that its relative paths start from.
    pub directory: PathBuf,
}

/// Reads a model.
///
/// # Errors
///
/// It cannot be read, or is wrong.
pub fn model(path: &Path) -> Result<ModelInForce, ModelError> {
    let named = path.to_owned();
    let (bytes, more) = files::read_named_by_user(path, MODEL_LIMIT)
        .map_err(|source| ModelError::Unreadable { path: named.clone(), source })?;
    let text = String::from_utf8(bytes).ok().filter(|_| !more);
    let Some(text) = text else {
        let what = if more { "larger than 1 MiB" } else { "no UTF-8 text" };
        return Err(ModelError::NoText { path: named, what });
    };
    let source = Source::new(path.display().to_string(), text);
    let parsed = penstock_model::parse(&source).map_err(|Diagnostics(wrong)| {
        let why: Vec<String> = wrong.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
        ModelError::Wrong { path: named, why: why.join("; ") }
    })?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).to_owned();
    Ok(ModelInForce { model: parsed.model, text: source.text, directory })
}

/// When a file was last changed, to see that it was changed again.
pub fn stamp(path: Option<&Path>) -> Option<files::Stamp> {
    files::stamp(path?)
}

/// The kernel's events of devices, to be waited for.
pub struct DeviceWatch {
    happened: Arc<Notify>,
}

impl DeviceWatch {
    /// From now on, on a thread of their own. Where they cannot be listened to, that is said, and time alone tells when to look again.
    pub fn open() -> DeviceWatch {
        let happened = Arc::new(Notify::new());
        let notify = happened.clone();
        let listening = DeviceEvents::open().and_then(|events| {
            thread::Builder::new().name("uevents".to_owned()).spawn(move || listen(events, &notify))
        });
        if let Err(error) = listening {
            deaf(&error);
        }
        DeviceWatch { happened }
    }

    /// Waits until something happened to a PCI function, at most for `longest`.
    pub async fn wait(&self, longest: Duration) {
        if time::timeout(longest, self.happened.notified()).await.is_err() {
            return;
        }
        // The rest of the burst.
        let rest = async { while time::timeout(QUIET, self.happened.notified()).await.is_ok() {} };
        let _ = time::timeout(LONGEST, rest).await;
    }
}

/// Says of each event that it has come. What happens to interfaces that are on no PCI function (those of pods) is none of ours.
fn listen(mut events: DeviceEvents, happened: &Notify) {
    loop {
        let heard = events.wait().map_err(|error| penstock_host::chain(&error));
        let heard = heard.and_then(|()| events.functions().map_err(|error| penstock_host::chain(&error)));
        match heard {
            Ok((functions, false)) if functions.is_empty() => {}
            Ok(_) => happened.notify_one(),
            Err(why) => {
                return log::say(format!("no longer listening to the kernel's events of devices: {why}"));
            }
        }
    }
}

fn deaf(why: &io::Error) {
    log::say(format!(
        "cannot listen to the kernel's events of devices, changes are seen by the next scan: {why}"
    ));
}

/// How NICs were known when the agent ran last, in a file that is good until the kernel's run ends: only then has no container the
/// interface of a PF any more.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
    boot: Option<String>,
    trouble: LastingTrouble,
}

#[derive(Default, Serialize, Deserialize)]
struct Remembered {
    boot: Option<String>,
    nics: KnownNics,
}

impl Memory {
    /// What is written down below `state`.
    pub fn open(state: &Path) -> (Memory, KnownNics) {
        let memory = Memory {
            path: state.join("nics.json"),
            boot: boot::id(&Root::system()),
            trouble: LastingTrouble::new("write down how NICs are known"),
        };
        let known = match files::read_whole(&memory.path, MODEL_LIMIT) {
            Err(error) if error.is_missing() => KnownNics::new(),
            Err(error) => {
                log::say(format!("what is known of NICs is not: {}", penstock_host::chain(&error)));
                KnownNics::new()
            }
            Ok(bytes) => match serde_json::from_slice::<Remembered>(&bytes) {
                Ok(known) if known.boot.is_some() && known.boot == memory.boot => known.nics,
                Ok(_) => KnownNics::new(),
                Err(error) => {
                    log::say(format!(
                        "{} cannot be read and is written anew: {error}",
                        memory.path.display()
                    ));
                    KnownNics::new()
                }
            },
        };
        (memory, known)
    }

    /// Writes down how NICs are known.
    pub fn keep(&mut self, nics: &KnownNics) {
        let remembered = Remembered { boot: self.boot.clone(), nics: nics.clone() };
        let written = serde_json::to_vec(&remembered).map_err(|error| error.to_string()).and_then(|bytes| {
            files::write_durable(&self.path, bytes).map_err(|error| penstock_host::chain(&error))
        });
        match written {
            Ok(()) => self.trouble.end(),
            Err(why) => self.trouble.meet_words(why),
        }
    }
}
