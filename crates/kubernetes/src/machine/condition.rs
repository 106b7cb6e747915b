//! Conditions of objects, as Kubernetes' API conventions have them (`metav1.StatusCondition`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UtcTime;

/// The longest message of a condition in bytes; `metav1.StatusCondition` has 32,768. What is longer ends in an ellipsis.
pub const LONGEST_MESSAGE: usize = 4096;

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> ConditionStatus {
        if holds { ConditionStatus::True } else { ConditionStatus::False }
    }
}

/// One aspect of how an object stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Which aspect.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word, for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Why, in a sentence, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Since when the status is what it is.
    pub last_transition_time: UtcTime,
    /// The generation of the object that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl StatusCondition {
    /// A condition that came about at `now`.
    pub fn new(
        kind: &str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: impl AsRef<str>,
        now: UtcTime,
    ) -> StatusCondition {
        StatusCondition {
            kind: kind.to_owned(),
            status: status.into(),
            reason: reason.to_owned(),
            message: shortened(message.as_ref(), LONGEST_MESSAGE),
            last_transition_time: now,
            observed_generation: None,
        }
    }

    /// The same since when it was so before, if it was.
    #[must_use]
    pub fn after(mut self, before: &[StatusCondition]) -> StatusCondition {
        if let Some(before) = find(before, &self.kind).filter(|before| before.status == self.status) {
            self.last_transition_time = before.last_transition_time;
        }
        self
    }
}

/// The condition of this type.
pub fn find<'a>(conditions: &'a [StatusCondition], kind: &str) -> Option<&'a StatusCondition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// The beginning of a text in at most this many bytes.
pub fn shortened(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let mut end = longest.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let first = StatusCondition::new("Ready", false, "Waiting", "1 of 2", UtcTime(10));
        let before = [first.clone()];
        assert_eq!(
            StatusCondition::new("Ready", false, "Waiting", "2 of 2", UtcTime(20))
                .after(&before)
                .last_transition_time,
            UtcTime(10)
        );
        assert_eq!(
            StatusCondition::new("Ready", true, "Done", "", UtcTime(20)).after(&before).last_transition_time,
            UtcTime(20)
        );
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(shortened("äöü", 6), "äöü");
        assert_eq!(shortened("äöüä", 7), "äö…");
        assert_eq!(shortened("äöüä", 6), "ä…");
    }
}
