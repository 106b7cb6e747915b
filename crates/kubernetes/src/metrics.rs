//! `/metrics` of the agent and of the controller, in OpenMetrics.
//!
//! - [`families`]: what the agent tells beside what `penstock metrics` prints of the machine, and what the controller tells.
//! - [`exposition`]: that as text.
//! - [`agent`]: where the agent has it from.
//! - [`server`]: how scrapers are served over HTTP.

pub mod agent;
pub mod exposition;
pub mod families;
pub mod server;

pub use agent::{AgentSources, ClaimTimings, SliceProgress};
