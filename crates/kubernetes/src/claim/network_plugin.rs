//! Calls of `penstock cni`, as a container runtime makes them (docs/cni.md).

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use penstock_host::{Command, ProcessError};
use penstock_model::{InterfaceName, text::one_line};
use serde_json::{Value, json};
use thiserror::Error;

use super::state::{ClaimUid, PreparedDevice};

/// Why a call of `penstock cni` came to nothing.
#[derive(Debug, Error)]
pub enum CallError {
    /// It could not be run to its end.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It answered with an error.
    #[error("{text}")]
    Refused {
        /// The number of the error (docs/cni.md).
        code: u64,
        /// What it said, with what to do about it.
        text: String,
    },
    /// It answered with nothing that is understood.
    #[error("penstock cni {verb} ended with {status} and without an answer: {errors}")]
    NoAnswer {
        /// What it was asked for.
        verb: &'static str,
        /// How it ended.
        status: String,
        /// What it wrote to standard error.
        errors: String,
    },
}

/// The error of `penstock cni` where something has to be found out first that cannot be now (docs/cni.md).
const TRY_AGAIN: u64 = 11;

impl CallError {
    /// Whether it is a word on what was asked: not that the program came to no answer, or may come to one later.
    pub fn is_answer(&self) -> bool {
        match self {
            CallError::Refused { code, .. } => *code != TRY_AGAIN,
            CallError::Process(_) | CallError::NoAnswer { .. } => false,
        }
    }
}

/// `penstock cni`.
#[derive(Clone, Debug)]
pub struct NetworkPlugin {
    program: PathBuf,
    /// How long a call may take.
    each: Duration,
    /// When all calls have to be over.
    until: Option<Instant>,
}

impl NetworkPlugin {
    /// The plugin of this program, each call of which may take so long.
    pub fn new(program: &Path, each: Duration) -> NetworkPlugin {
        NetworkPlugin { program: program.to_owned(), each, until: None }
    }

    /// The plugin of this program, all calls of which together end by then.
    pub fn until(program: &Path, until: Instant) -> NetworkPlugin {
        NetworkPlugin { program: program.to_owned(), each: Duration::MAX, until: Some(until) }
    }

    /// Whether an ADD of this configuration can come to something.
    ///
    /// # Errors
    ///
    /// When it cannot, with the reason.
    pub fn status(&self, configuration: &Value) -> Result<(), CallError> {
        self.call("STATUS", None, &free(configuration)).map(drop)
    }

    /// Gives the VF to a claim in a network namespace; what was given.
    ///
    /// # Errors
    ///
    /// When it could not be given. All is then as it was.
    pub fn add(&self, uid: &ClaimUid, device: &PreparedDevice, netns: &Path) -> Result<Value, CallError> {
        let target = Some((uid, &device.interface, netns));
        self.call("ADD", target, &free(&device.configuration))
    }

    /// Sets the VF's attributes and binds it to the driver that its configuration names, before there is a pod.
    ///
    /// # Errors
    ///
    /// When it could not be bound. All is then as it was.
    pub fn bind(&self, uid: &ClaimUid, device: &PreparedDevice) -> Result<(), CallError> {
        let target = Some((uid, &device.interface, Path::new("")));
        self.call("ADD", target, &free(&device.configuration)).map(drop)
    }

    /// Whether the VF is in the network namespace as an earlier ADD has given it; of one that is bound for a program, whether it is.
    ///
    /// # Errors
    ///
    /// When it is not, with each thing that differs.
    pub fn check(
        &self,
        uid: &ClaimUid,
        device: &PreparedDevice,
        netns: &Path,
        given: &Value,
    ) -> Result<(), CallError> {
        let mut configuration = device.configuration.clone();
        configuration["prevResult"] = given.clone();
        self.call("CHECK", Some((uid, &device.interface, netns)), &configuration).map(drop)
    }

    /// Takes one VF back from a network namespace in which an earlier call was killed. What is not there is fine.
    ///
    /// # Errors
    ///
    /// When it could not be asked for.
    pub fn take_back_one(
        &self,
        uid: &ClaimUid,
        device: &PreparedDevice,
        netns: &Path,
    ) -> Result<(), CallError> {
        self.call("DEL", Some((uid, &device.interface, netns)), &device.configuration).map(drop)
    }

    /// Takes back what a claim has, and waits until it is home. GC and not DEL: DEL succeeds also when it could not take back
    /// everything, as the specification wants.
    ///
    /// # Errors
    ///
    /// When something could not be taken back; another call tries again.
    pub fn take_back(&self, uid: &ClaimUid) -> Result<(), CallError> {
        let configuration = json!({
            "cniVersion": "1.1.0",
            "name": uid.as_str(),
            "type": "penstock-cni",
            "logLevel": "warning",
            "cni.dev/valid-attachments": [],
        });
        self.call("GC", None, &configuration).map(drop)
    }

    fn call(
        &self,
        verb: &'static str,
        target: Option<(&ClaimUid, &InterfaceName, &Path)>,
        configuration: &Value,
    ) -> Result<Value, CallError> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut command = Command::new(&self.program)
            .arg("cni")
            .env("CNI_COMMAND", verb)
            .env("CNI_ARGS", "")
            .env("CNI_PATH", "")
            .input(configuration.to_string())
            .deadline(left.map_or(self.each, |left| left.min(self.each)));
        let (container, interface, netns) = match target {
            Some((uid, interface, netns)) => (uid.as_str(), interface.as_str(), netns),
            None => ("", "", Path::new("")),
        };
        command =
            command.env("CNI_CONTAINERID", container).env("CNI_IFNAME", interface).env("CNI_NETNS", netns);
        let output = command.run()?;
        let answer: Option<Value> = match output.stdout.trim_ascii() {
            [] => Some(Value::Null),
            text => serde_json::from_slice(text).ok(),
        };
        match answer {
            Some(answer) if output.status.success() => Ok(answer),
            Some(answer) if answer["msg"].is_string() => {
                let text = |key: &str| one_line(answer[key].as_str().unwrap_or_default());
                let mut said = text("msg");
                let details = text("details");
                if !details.is_empty() {
                    said = format!("{said} ({details})");
                }
                Err(CallError::Refused { code: answer["code"].as_u64().unwrap_or_default(), text: said })
            }
            _ => Err(CallError::NoAnswer {
                verb,
                status: output.status.to_string(),
                errors: one_line(output.errors().trim()),
            }),
        }
    }
}

/// A configuration for a VF that the host does not use: it may have begun to since the VF was published. It is said with the call, so that what
/// is written down of prepared claims stays as it is.
fn free(configuration: &Value) -> Value {
    let mut configuration = configuration.clone();
    configuration["free"] = json!(true);
    configuration
}
