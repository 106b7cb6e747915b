//! The versions of the specification.

use serde_json::{Value, json};

/// A version of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.3.0
    V0_3_0,
    /// 0.3.1
    V0_3_1,
    /// 0.4.0
    V0_4_0,
    /// 1.0.0
    V1_0_0,
    /// 1.1.0
    V1_1_0,
}

impl Version {
    /// All that are understood, the oldest first.
    pub const ALL: [Version; 5] =
        [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

    /// As configurations write it.
    pub const fn text(self) -> &'static str {
        match self {
            Version::V0_3_0 => "0.3.0",
            Version::V0_3_1 => "0.3.1",
            Version::V0_4_0 => "0.4.0",
            Version::V1_0_0 => "1.0.0",
            Version::V1_1_0 => "1.1.0",
        }
    }

    /// The version of a configuration, whatever else is wrong with it; the newest where it says none that is understood. What
    /// an error is told in.
    pub fn told_by(bytes: &[u8]) -> Version {
        let document: Option<Value> = serde_json::from_slice(bytes).ok();
        document.as_ref().and_then(|document| Version::of(document).ok()).unwrap_or(Version::V1_1_0)
    }

    /// The version that a configuration says; else what it says, which is none that is understood.
    pub(crate) fn of(document: &Value) -> Result<Version, &str> {
        let said = document.get("cniVersion").and_then(Value::as_str).filter(|said| !said.is_empty());
        // The specification has one that says none be of 0.1.0.
        let said = said.unwrap_or("0.1.0");
        Version::ALL.into_iter().find(|version| version.text() == said).ok_or(said)
    }

    /// What VERSION answers to a configuration that says this one.
    pub fn answer(bytes: &[u8]) -> Value {
        let known: Vec<&str> = Version::ALL.iter().map(|version| version.text()).collect();
        json!({"cniVersion": Version::told_by(bytes).text(), "supportedVersions": known})
    }
}
