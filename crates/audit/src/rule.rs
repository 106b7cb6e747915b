//! What a rule is, and what it says.

use penstock_model::audit::{AuditOutcome, Currency, Layer, Price, Remedy};

pub use crate::applies::Need;
pub(crate) use crate::applies::{NoFinding, left_out, unknown};
use crate::{advice::Advice, machine::Machine};

/// One rule of the audit: what it looks at, why that matters, and how it judges a machine.
pub struct Rule {
    /// Its name, which stays the same from version to version.
    pub id: &'static str,
    /// Where it looks.
    pub layer: Layer,
    /// What it looks at, in a few words.
    pub what: &'static str,
    /// Why that matters.
    pub why: &'static str,
    /// What it costs to have it as wanted; of a protection that is off, what that costs.
    pub price: Option<(Currency, &'static str)>,
    /// The document or the commit that says so.
    pub source: &'static str,
    /// Whether reading its input takes root.
    pub needs_root: bool,
    /// When it is applied with a model.
    pub need: Need,
    /// The rule itself.
    pub(crate) judge: fn(&Machine<'_>) -> RuleResult,
}

/// What a rule says of a machine.
pub(crate) type RuleResult = Result<Vec<Finding>, NoFinding>;

impl From<Finding> for RuleResult {
    fn from(finding: Finding) -> RuleResult {
        Ok(vec![finding])
    }
}

/// What a rule found about one subject.
pub(crate) struct Finding {
    pub(crate) subject: String,
    pub(crate) verdict: AuditOutcome,
    pub(crate) read: String,
    pub(crate) wanted: String,
    pub(crate) ways: Vec<Remedy>,
    /// What this costs, where it is not what the rule says.
    pub(crate) price: Option<Price>,
}

impl Finding {
    fn new(verdict: AuditOutcome, read: String, wanted: impl Into<String>) -> Finding {
        let (subject, wanted) = ("machine".to_owned(), wanted.into());
        Finding { subject, verdict, read, wanted, ways: Vec::new(), price: None }
    }

    /// It is as it should be.
    pub(crate) fn pass(read: impl Into<String>, wanted: impl Into<String>) -> Finding {
        Finding::new(AuditOutcome::Pass, read.into(), wanted)
    }

    /// It is otherwise; `advice` puts it right.
    pub(crate) fn fail(read: impl Into<String>, wanted: impl Into<String>, advice: Advice) -> Finding {
        Finding::new(AuditOutcome::Fail, read.into(), wanted).changed_by(advice)
    }

    /// Two layers contradict each other; `advice` puts it right.
    pub(crate) fn conflict(read: impl Into<String>, wanted: impl Into<String>, advice: Advice) -> Finding {
        Finding::new(AuditOutcome::Conflict, read.into(), wanted).changed_by(advice)
    }

    /// It could not be read; why.
    pub(crate) fn unknown(why: impl Into<String>, wanted: impl Into<String>) -> Finding {
        Finding::new(AuditOutcome::Unknown, why.into(), wanted)
    }

    /// It is told and not judged.
    pub(crate) fn recorded(read: impl Into<String>, wanted: impl Into<String>) -> Finding {
        Finding::new(AuditOutcome::Recorded, read.into(), wanted)
    }

    /// What it is about.
    pub(crate) fn about(self, subject: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), ..self }
    }

    /// What it costs.
    pub(crate) fn costs(self, currency: Currency, what: impl Into<String>) -> Finding {
        Finding { price: Some(Price { currency, what: what.into() }), ..self }
    }

    /// What puts it right.
    pub(crate) fn changed_by(self, advice: Advice) -> Finding {
        Finding { ways: advice.0, ..self }
    }
}
