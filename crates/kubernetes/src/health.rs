//! Drift as health: what `penstock verify --watch` tells, as taints of devices and as what kubelet is told of them.
//!
//! What is wrong with a VF concerns that VF; what is wrong with a NIC or its PF concerns all its functions. What is wrong with the
//! machine or a guest concerns no device.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, SystemTime},
};

use penstock_model::{
    FunctionName, NicName, Outcome, Verdict,
    verdict::{Subject, VerdictKey},
};
use serde::Deserialize;
use thiserror::Error;

use crate::{
    devices::{Devices, PublishedFunction},
    identity::{DRIFT, DeviceName},
    slices::{Taint, Taints},
};

/// kubelet takes no longer message (`dra-health/v1alpha1`).
const MESSAGE_LIMIT: usize = 1024;

/// How a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCondition {
    /// As the model says; without a model: it is there.
    Healthy,
    /// Otherwise than the model says, or gone.
    Unhealthy,
    /// It could not be seen.
    Unknown,
}

/// How a device is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// How it is.
    pub condition: DeviceCondition,
    /// Why, in at most 1024 bytes; empty for a healthy device.
    pub message: String,
    /// Since when this is so.
    pub since: SystemTime,
}

/// How devices are, those too that were published once and are gone.
pub type HealthReport = BTreeMap<DeviceName, DeviceHealth>;

/// A line that `verify --watch` does not print.
#[derive(Debug, Error)]
pub enum LineError {
    /// It is no JSON, or lacks something.
    #[error("penstock verify --watch printed a line that cannot be read")]
    Json(#[from] serde_json::Error),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

/// A line of `verify --watch`. Readers skip what they do not know (docs/json.md).
#[derive(Deserialize)]
struct Line {
    kind: String,
    #[serde(default)]
    event: String,
    #[serde(default)]
    verdicts: Vec<Verdict>,
    #[serde(default)]
    why: Option<String>,
}

/// What a line told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriftEvent {
    /// How all of it is.
    State,
    /// An attribute is no longer as the model says.
    Drift(Box<Verdict>),
    /// It can no longer be seen.
    Unseen(Box<Verdict>),
    /// It is again as the model says.
    HoldsAgain(Box<Verdict>),
    /// Something cannot be looked at for now.
    Blind(String),
    /// A VF that a pod has is no longer as it was given: a sentence.
    ClaimDrift(String),
    /// It is again as it was given: a sentence.
    ClaimHoldsAgain(String),
    /// Nothing that concerns devices.
    Nothing,
}

/// What pods have and is not as it was given, by the device's name: why, in words.
pub type ClaimDrift = BTreeMap<String, String>;

/// Adds the taint of devices that are not as a pod was given them. One that is not as the model says has one already.
pub fn add_claim_taints(claims: &ClaimDrift, devices: &Devices, taints: &mut Taints) {
    for device in claims.keys().filter_map(|name| devices.get(name)) {
        let of_device = taints.entry(device.name.clone()).or_default();
        if !of_device.iter().any(|taint| taint.key == DRIFT) {
            of_device.push(Taint { key: DRIFT, value: Some(OF_A_CLAIM.to_owned()) });
        }
    }
}

/// Adds to the health of devices what is not as a pod was given it. One that is as it was keeps the time of `previous`.
pub fn add_claim_health(
    claims: &ClaimDrift,
    previous: &HealthReport,
    now: SystemTime,
    report: &mut HealthReport,
) {
    for (name, why) in claims {
        let Some(health) = report.get_mut(name.as_str()) else { continue };
        let mut message = format!("not as the pod was given it: {why}");
        if health.condition == DeviceCondition::Unhealthy {
            message = format!("{}; {message}", health.message);
        }
        let (condition, message) = (DeviceCondition::Unhealthy, cut(message));
        let before = previous.get(name.as_str());
        let same = before.filter(|before| (before.condition, &before.message) == (condition, &message));
        *health = DeviceHealth { condition, since: same.map_or(now, |before| before.since), message };
    }
}

/// Everything that is otherwise than the model says.
#[derive(Clone, Debug, Default)]
pub struct Drift {
    /// Verdicts that do not hold.
    verdicts: HashMap<VerdictKey, Verdict>,
    /// Why nobody watches: `None` while somebody does, or there is no model.
    unwatched: Option<String>,
    /// Whether the state has come, or it is known that it does not.
    settled: bool,
    /// Whether the state of a model has come.
    seen: bool,
}

impl Drift {
    /// Where there is no model nothing can drift.
    pub fn without_a_model() -> Drift {
        Drift { settled: true, ..Drift::default() }
    }

    /// Whether it is known how things are, or that it cannot be known.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Takes in a line.
    ///
    /// # Errors
    ///
    /// It is no line of `verify --watch`, or tells that the watch failed.
    pub fn line(&mut self, line: &[u8]) -> Result<DriftEvent, LineError> {
        let value: serde_json::Value = serde_json::from_slice(line)?;
        let read: Line = Line::deserialize(&value)?;
        if read.kind == "error" {
            let why = crate::penstock::errors(&value).unwrap_or_else(|| "it does not say why".to_owned());
            return Err(LineError::Failed(why));
        }
        let verdict = || Verdict::deserialize(&value).map(Box::new);
        let news = match read.event.as_str() {
            "state" => {
                self.verdicts = read.verdicts.into_iter().map(|verdict| (verdict.key(), verdict)).collect();
                self.unwatched = None;
                (self.settled, self.seen) = (true, true);
                DriftEvent::State
            }
            "drift" => DriftEvent::Drift(verdict()?),
            "unseen" => DriftEvent::Unseen(verdict()?),
            "holds_again" => DriftEvent::HoldsAgain(verdict()?),
            "blind" => DriftEvent::Blind(read.why.unwrap_or_default()),
            _ => DriftEvent::Nothing,
        };
        match &news {
            DriftEvent::Drift(verdict) | DriftEvent::Unseen(verdict) => {
                self.verdicts.insert(verdict.key(), (**verdict).clone());
            }
            DriftEvent::HoldsAgain(verdict) => drop(self.verdicts.remove(&verdict.key())),
            DriftEvent::State
            | DriftEvent::Blind(_)
            | DriftEvent::ClaimDrift(_)
            | DriftEvent::ClaimHoldsAgain(_)
            | DriftEvent::Nothing => {}
        }
        Ok(news)
    }

    /// Nobody watches any more. What drifted is taken to be so still.
    pub fn lost(&mut self, why: String) {
        self.unwatched = Some(why);
        self.settled = true;
    }

    /// What is not as the model says, by subject and attribute; `None` while nobody watches.
    pub fn drifted(&self) -> Option<BTreeSet<(String, String)>> {
        let of = |verdict: &Verdict| (verdict.subject.to_string(), verdict.attribute.clone());
        (self.seen && self.unwatched.is_none())
            .then(|| self.verdicts.values().filter(|verdict| !verdict.holds()).map(of).collect())
    }

    /// The verdicts that concern a device, the worst first and then in a fixed order.
    fn concerning(&self, devices: &Devices, function: &PublishedFunction) -> Vec<&Verdict> {
        let Some(nic) = devices.nics.get(&function.pf).and_then(|nic| nic.in_model.as_ref()) else {
            return Vec::new();
        };
        let concerns = |verdict: &&Verdict| match &verdict.subject {
            Subject::Nic(name) => name == nic,
            Subject::Function(name) => concerns(name, nic, function),
            Subject::Machine
            | Subject::Tenant(_)
            | Subject::Drive(_)
            | Subject::DriveVf(_)
            | Subject::Guest(_)
            | Subject::Path { .. } => false,
        };
        let mut found: Vec<&Verdict> =
            self.verdicts.values().filter(concerns).filter(|one| !one.holds()).collect();
        found.sort_by_key(|verdict| (verdict.outcome == Outcome::Unknown, verdict.key()));
        found
    }

    /// The taints of devices that are not as the model says. What only cannot be seen is no reason for one.
    pub fn taints(&self, devices: &Devices) -> Taints {
        let mut taints = Taints::new();
        for function in devices.functions.values() {
            let drifted = self.concerning(devices, function);
            if let Some(first) = drifted.first().filter(|verdict| verdict.outcome != Outcome::Unknown) {
                let value = Some(first.attribute.clone()).filter(|value| is_label_value(value));
                taints.insert(function.name.clone(), vec![Taint { key: DRIFT, value }]);
            }
        }
        taints
    }

    /// How the devices are, where `blind` says that nobody sees the machine. One that is as it was keeps the time of `previous`; one that is gone
    /// stays, unhealthy, for a day.
    pub fn report(
        &self,
        devices: &Devices,
        blind: bool,
        previous: &HealthReport,
        now: SystemTime,
    ) -> HealthReport {
        let mut report = HealthReport::new();
        let mut put = |name: &DeviceName, condition, message: String| {
            let message = cut(message);
            let before = previous
                .get(name)
                .filter(|before| (before.condition, &before.message) == (condition, &message));
            let since = before.map_or(now, |before| before.since);
            report.insert(name.clone(), DeviceHealth { condition, message, since });
        };
        for (name, function) in &devices.functions {
            let found = self.concerning(devices, function);
            let unseen = match (self.settled, &self.unwatched) {
                (true, why) => why.as_deref(),
                (false, _) => Some("nobody has looked yet"),
            };
            let unseen = blind
                .then(|| BLIND_MESSAGE.to_owned())
                .or_else(|| unseen.map(|why| format!("whether it is as the model says is not known: {why}")));
            let (condition, message) = match (found.first(), unseen) {
                (Some(worst), _) if worst.outcome != Outcome::Unknown => {
                    (DeviceCondition::Unhealthy, sentence(&found))
                }
                (_, Some(why)) => (DeviceCondition::Unknown, why),
                (Some(_), None) => (DeviceCondition::Unknown, sentence(&found)),
                (None, None) => (DeviceCondition::Healthy, String::new()),
            };
            put(name, condition, message);
        }
        let gone = previous.iter().filter(|(name, _)| !devices.functions.contains_key(*name));
        for (name, before) in gone {
            let is_recent = now.duration_since(before.since).is_ok_and(|since| since < GONE);
            if before.message == GONE_MESSAGE && !is_recent {
                continue;
            }
            put(name, DeviceCondition::Unhealthy, GONE_MESSAGE.to_owned());
        }
        report
    }
}

/// The value of a taint that a claim is the reason of, where the model's has the attribute.
const OF_A_CLAIM: &str = "claim";

/// How long a device that is gone is remembered.
const GONE: Duration = Duration::from_secs(24 * 3600);

/// What is said of all while nobody sees the machine. Of words that change from look to look kubelet would be told each time.
const BLIND_MESSAGE: &str =
    "whether it is still there is not known: this machine cannot be looked at, and the agent's log has why";

/// What is said of it.
const GONE_MESSAGE: &str = "this function is not there any more, or no longer free for pods";

/// Whether a verdict about `name` concerns a device: about itself, or about the PF that it is a VF of.
fn concerns(name: &FunctionName, nic: &NicName, function: &PublishedFunction) -> bool {
    name.nic == *nic && (name.vf.is_none() || name.vf == Some(function.vf))
}

/// One verdict in words.
pub fn in_words(verdict: &Verdict) -> String {
    let Verdict { subject, attribute, wanted, seen, .. } = verdict;
    match verdict.outcome {
        Outcome::Unknown => format!("{subject} {attribute}: wanted {wanted}, could not be seen: {seen}"),
        Outcome::Unsupported => format!("{subject} {attribute}: wanted {wanted}, not supported: {seen}"),
        Outcome::Pass | Outcome::Fail => format!("{subject} {attribute}: wanted {wanted}, seen {seen}"),
    }
}

fn sentence(verdicts: &[&Verdict]) -> String {
    verdicts.iter().map(|verdict| in_words(verdict)).collect::<Vec<_>>().join("; ")
}

/// At most as many bytes as kubelet takes, in one line.
fn cut(message: String) -> String {
    let mut message = penstock_model::text::one_line(&message).to_string();
    if message.len() > MESSAGE_LIMIT {
        let end = (0..=MESSAGE_LIMIT - 3).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    message
}

/// Whether a text may be the value of a taint (`IsValidLabelValue`).
fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests;
