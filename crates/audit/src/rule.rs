//! What a rule is, and what it says.

use penstock_model::audit::{AuditOutcome, Currency, Layer, Price, Remedy};

use crate::{advice::Advice, machine::Machine};

/// What a model must ask for that a rule is applied. Without a model all rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Always: protections, and what is wrong whatever the machine is for.
    Always,
    /// CPUs that are somebody's alone.
    Isolation,
    /// CPUs without a tick.
    Tickless,
    /// Real-time threads that are not throttled.
    Throttling,
    /// A frequency or a governor for some CPU.
    Frequency,
    /// Idle states that wake in time.
    WakeLatency,
    /// Ways of a cache, or a share of memory bandwidth.
    Cache,
    /// VMs with CPUs of their own.
    Vms,
    /// Functions that guests own.
    Functions,
}

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

/// Why a rule says nothing.
pub(crate) enum NoFinding {
    /// It is about something that is not there; what.
    LeftOut(String),
    /// What it looks at could not be read; why.
    Unknown(String),
}

impl From<Finding> for RuleResult {
    fn from(finding: Finding) -> RuleResult {
        Ok(vec![finding])
    }
}

/// It is about something that is not there.
pub(crate) fn left_out<T>(why: impl Into<String>) -> Result<T, NoFinding> {
    Err(NoFinding::LeftOut(why.into()))
}

/// What it looks at could not be read.
pub(crate) fn unknown<T>(why: impl Into<String>) -> Result<T, NoFinding> {
    Err(NoFinding::Unknown(why.into()))
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
