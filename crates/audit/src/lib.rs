//! Judges how late threads may wake on a machine, from its [`Inventory`](penstock_model::Inventory) alone.
//!
//! Each rule looks at one thing, or at two layers that must not contradict each other. What could not be read is `unknown`, never
//! a pass; where those who should know disagree, what was read is told and not judged. No rule advises to switch a protection
//! off.

mod advice;
mod applies;
mod command_line;
mod judge;
mod machine;
mod parameters;
mod release;
mod requirements;
mod rule;
mod rules;
mod sets;
mod unobservable;

pub use judge::audit;
pub use release::Release;
pub use rule::{Need, Rule};
pub use rules::rules;
