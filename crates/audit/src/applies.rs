//! When a rule is applied, and why one says nothing.

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

/// Why a rule says nothing.
pub(crate) enum NoFinding {
    /// It is about something that is not there; what.
    LeftOut(String),
    /// What it looks at could not be read; why.
    Unknown(String),
}

/// It is about something that is not there.
pub(crate) fn left_out<T>(why: impl Into<String>) -> Result<T, NoFinding> {
    Err(NoFinding::LeftOut(why.into()))
}

/// What it looks at could not be read.
pub(crate) fn unknown<T>(why: impl Into<String>) -> Result<T, NoFinding> {
    Err(NoFinding::Unknown(why.into()))
}
